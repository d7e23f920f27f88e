"""What a test expected and what it got, from the words in which it failed.

Of pytest, unittest, numpy, pandas, Jest and others that say it plainly; where it cannot be told,
nothing is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paraval.racing.bare_asserts import actual_and_expected
from paraval.racing.claims import outside_quotes, sides
from paraval.racing.excerpts import LONGEST_VALUE, cut

_LONGEST_READ = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asserted:
    """None: nobody can tell."""

    expected: str | None = None
    actual: str | None = None


NOTHING = Asserted()


def asserted_in(message: str, details: str = "") -> Asserted:
    """`message`: the failure in short; `details`: its traceback, as far as there is one."""
    for text in (message, _error_lines(details)):
        lines = text[:_LONGEST_READ].splitlines()
        found = _by_pytest(lines) or _by_labels(lines) or _by_unittest(lines) or _by_words(lines)
        if found is not None:
            return found
    # A traceback shows lines of programs, too, which compare names and not values.
    lines = details[:_LONGEST_READ].splitlines()
    raised = [line for line in lines if line.startswith("AssertionError: ")]
    found = _by_labels(lines) or _by_unittest(raised) or _by_words(raised)
    return found or _by_names(details[-_LONGEST_READ:]) or NOTHING


def _asserted(actual: str, expected: str) -> Asserted:
    """Of values that were shortened to the same text, the message tells more."""
    found = Asserted(
        expected=cut(expected.strip(), LONGEST_VALUE), actual=cut(actual.strip(), LONGEST_VALUE)
    )
    return NOTHING if found.expected == found.actual else found


def _error_lines(details: str) -> str:
    """The lines that pytest marks with an E."""
    marked = [line[1:] for line in details[:_LONGEST_READ].splitlines() if line[:2] == "E "]
    indent = min((len(line) - len(line.lstrip()) for line in marked if line.strip()), default=0)
    return "\n".join(line[indent:] for line in marked)


# ---- pytest: assert actual == expected

_ASSERT = re.compile(r"(?:AssertionError: )?assert (?P<claim>.+)")
_AT_INDEX = re.compile(r"At index \d+ diff: (?P<actual>.+) != (?P<expected>.+)")
_COMPUTED = re.compile(r" \+ +(?:where|and) +(?P<value>.+?) = ")


def _by_pytest(lines: list[str]) -> Asserted | None:
    for number, line in enumerate(lines):
        matched = _ASSERT.fullmatch(line)
        if matched is None or matched["claim"].startswith("not "):
            continue
        compared = sides(matched["claim"], " == ") or sides(matched["claim"], " is ")
        if compared is None or compared[1].startswith("not "):
            return None
        computed = {found["value"] for found in map(_COMPUTED.match, lines[number + 1 :]) if found}
        left, right = compared
        # `assert 3 == add(1, 1)`: what was computed is what the test got.
        if right in computed and left not in computed:
            left, right = right, left
        if left == right:
            return _by_difference(lines[number + 1 :])
        return _asserted(left, right)
    return None


def _by_difference(lines: list[str]) -> Asserted | None:
    """What pytest says below two values that it has shortened."""
    plain = [line.strip() for line in lines]
    for line in plain:
        if (matched := _AT_INDEX.fullmatch(line)) is not None:
            return _asserted(matched["actual"], matched["expected"])
    expected = next((line[1:] for line in plain if line.startswith("- ")), "")
    actual = next((line[1:] for line in plain if line.startswith("+ ")), "")
    return _asserted(actual, expected) if expected and actual else NOTHING


# ---- labels: each value behind its name, perhaps on several lines

_LABELS = (
    ("ACTUAL:", "DESIRED:"),  # numpy
    ("x:", "y:"),  # numpy before 2
    ("[left]:", "[right]:"),  # pandas
    ("Received:", "Expected:"),  # Jest
    ("Obtained:", "Expected:"),
    ("actual  :", "expected:"),  # testify
    ("actual:", "expected:"),
    ("Actual:", "Expected:"),
    ("got:", "want:"),
)


def _by_labels(lines: list[str]) -> Asserted | None:
    for pair in _LABELS:
        found = [_labelled(lines, label, pair) for label in pair]
        if found[0] is not None and found[1] is not None:
            return _asserted(found[0], found[1])
    return None


def _labelled(lines: list[str], label: str, pair: tuple[str, str]) -> str | None:
    for number, line in enumerate(lines):
        if line.lstrip().startswith(label):
            value = [line.lstrip().removeprefix(label)]
            for following in lines[number + 1 :]:
                text = following.strip()
                if not text or text.startswith((*pair, "at ")):  # Jest's traceback
                    break
                value.append(text)
            return "\n".join(value)
    return None


# ---- unittest: assertEqual(first, second) says `first != second`

_DIFFER = re.compile(r"(?:AssertionError: )?(?:\w+ differ: )?(?P<claim>.+ != .+)")
_NOT_TRUE = re.compile(r"(?:AssertionError: )?(?P<actual>.+) is not (?P<expected>true|false)\b.*")
_AFTERWARDS = re.compile(r" within \S+ (?:places|delta) .*| : .*")


def _by_unittest(lines: list[str]) -> Asserted | None:
    """The first is what the test got, as in the examples of unittest's own documentation."""
    for line in lines:
        if (matched := _DIFFER.fullmatch(line)) is not None:
            compared = sides(_without_message(matched["claim"]), " != ")
            return None if compared is None else _asserted(*compared)
        if (matched := _NOT_TRUE.fullmatch(line)) is not None:
            return _asserted(matched["actual"], matched["expected"])
    return None


def _without_message(claim: str) -> str:
    for place, depth in outside_quotes(claim, " "):
        if depth == 0 and _AFTERWARDS.fullmatch(claim, place):
            return claim[:place]
    return claim


# ---- sentences of other programs

_WORDS = (
    re.compile(r".*\bexpected:? ?<(?P<expected>.*)> but was:? ?<(?P<actual>.*)>.*"),  # JUnit
    re.compile(r".*\b[Ee]xpected:? (?P<expected>.+?),? (?:but )?(?:got|was):? (?P<actual>.+)"),
    re.compile(r".*\bgot(?:\s*=\s*|:? )(?P<actual>.+?)[,;] want(?:\s*=\s*|:? )(?P<expected>.+)"),
)


def _by_words(lines: list[str]) -> Asserted | None:
    for line in lines:
        if len(line) > LONGEST_VALUE:
            continue
        for words in _WORDS:
            if (matched := words.fullmatch(line)) is not None:
                return _asserted(matched["actual"], matched["expected"])
    return None


# ---- helpers that assert, and say nothing of it


def _by_names(details: str) -> Asserted | None:
    found = actual_and_expected(details)
    return None if found is None else _asserted(*found)
