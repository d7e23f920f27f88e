"""What is different with a candidate: its run of the tests held against the baseline's.

A candidate has to pass every test that the baseline passes: one that it skips, or does not come to,
is as different as one that fails. What differs between two runs of the baseline itself says nothing
of a candidate, and is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from paraval.racing.correctness.junit_results import SingleTest
from paraval.racing.correctness.outputs import LONGEST_VALUE, compared, cut
from paraval.racing.correctness.test_results import CommandRunRecord
from paraval.racing.findings import MOST_DIFFERENCES, RunDifference, TestCounts, TestStatus

# Lines that claim something of values, taken apart: an operator counts only where it stands in no
# quotes, and in no brackets.

_OPENING, _CLOSING = "([{", ")]}"


def sides(claim: str, operator: str) -> tuple[str, str] | None:
    """What stands before and after an operator that is in no brackets and no quotes."""
    places = list(outside_quotes(claim, operator))
    # pytest leaves out the middle of long values, and with it brackets: one alone is the one.
    at = [place for place, depth in places if depth == 0] or [place for place, _ in places]
    if len(at) != 1:
        return None
    return claim[: at[0]], claim[at[0] + len(operator) :]


def parts(text: str, separator: str) -> list[str]:
    """The text, taken apart at each separator that is in no brackets and no quotes."""
    found, begin = [], 0
    for place, depth in outside_quotes(text, separator):
        if depth == 0:
            found.append(text[begin:place])
            begin = place + len(separator)
    return [*found, text[begin:]]


def outside_quotes(claim: str, operator: str) -> Iterator[tuple[int, int]]:
    """Where the operator stands, and in how many brackets."""
    quote, depth, skip = "", 0, False
    for place, character in enumerate(claim):
        if skip:
            skip = False
        elif quote:
            skip = character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif claim.startswith(operator, place):
            yield place, depth


# Assertions that say nothing of their values: those in helpers, which pytest does not rewrite.

_BARE = re.compile(r"[\w.]*")
_FRAME = re.compile(r"(?:_ )+_? *")
_BARE_ASSERT = re.compile(r"(?:> +| +)assert (?P<claim>.+)")
_NAMED = re.compile(r"(?P<name>[^\W\d]\w*) *= (?P<value>.*)", re.DOTALL)
_EXPECTED = ("expected", "expect", "want", "wanted", "desired", "reference", "correct", "should_be")
_ACTUAL = ("actual", "result", "got", "received", "observed", "output", "returned")
_LONGEST_SHOWN = 200
"""Of a value in a line."""


def told_of_values(message: str, details: str) -> str:
    """The failure in short, with what is claimed and of which values where it does not say so."""
    if not _BARE.fullmatch(message.strip()):
        return message
    claim, values = _claim(details), _values(details)
    if claim is None:
        return message
    named = [
        f"{name} = {cut(value, _LONGEST_SHOWN)}"
        for name, value in values.items()
        if _is_in(name, claim)
    ]
    of = f" ({', '.join(named)})" if named else ""
    return f"{message.strip() or 'AssertionError'}: assert {cut(claim, LONGEST_VALUE)}{of}"


def actual_and_expected(details: str) -> tuple[str, str] | None:
    """None: nobody can tell."""
    claim, values = _claim(details), _values(details)
    if claim is None:
        return None
    compared = sides(parts(claim, ", ")[0], " == ")
    if compared is None:
        return _by_their_names(claim, values)
    left, right = (side.strip() for side in compared)
    actual, expected = _value(left, values), _value(right, values)
    if actual is None or expected is None:
        return None
    is_turned = _is_expected(left) and not _is_expected(right)
    return (expected, actual) if is_turned else (actual, expected)


def _by_their_names(claim: str, values: dict[str, str]) -> tuple[str, str] | None:
    """Of a claim like `allclose(result, expected)`."""
    named = {name: value for name, value in values.items() if _is_in(name, claim)}
    expected = next((named[name] for name in _EXPECTED if name in named), None)
    actual = next((named[name] for name in _ACTUAL if name in named), None)
    return None if expected is None or actual is None else (actual, expected)


def _is_in(name: str, claim: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", claim) is not None


def _is_expected(side: str) -> bool:
    """`3` is, and so is `expected`; what is computed is what the test got."""
    return side in _EXPECTED or _is_literal(side)


def _value(side: str, values: dict[str, str]) -> str | None:
    return values.get(side, side if _is_literal(side) else None)


def _is_literal(side: str) -> bool:
    try:
        ast.literal_eval(side)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


# ---- what the traceback shows


def _claim(details: str) -> str | None:
    """Of the innermost line that asserts something."""
    for line in reversed(_innermost(details)):
        found = _BARE_ASSERT.fullmatch(line)
        if found is not None and len(line) <= LONGEST_VALUE:
            return found["claim"].strip()
    return None


def _values(details: str) -> dict[str, str]:
    """By name, of the innermost function: pytest writes them from the first column on."""
    values: dict[str, str] = {}
    for line in _innermost(details):
        if not _NAMED.match(line):
            continue
        name = ""
        for part in parts(line, ", "):
            if (found := _NAMED.fullmatch(part)) is not None:
                name = found["name"]
                values[name] = found["value"]
            else:
                values[name] += f", {part}"
    return {name: cut(value.strip(), LONGEST_VALUE) for name, value in values.items()}


def _innermost(details: str) -> list[str]:
    lines = details.splitlines()
    frames = [number for number, line in enumerate(lines) if _FRAME.fullmatch(line)]
    return lines[frames[-1] + 1 :] if frames else lines


# What a test expected and what it got, from the words in which it failed.

_LONGEST_READ = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedValues:
    """None: nobody can tell."""

    expected: str | None = None
    actual: str | None = None


NOTHING = AssertedValues()


def asserted_in(message: str, details: str = "") -> AssertedValues:
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


def _asserted(actual: str, expected: str) -> AssertedValues:
    """Of values that were shortened to the same text, the message tells more."""
    found = AssertedValues(
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


def _by_pytest(lines: list[str]) -> AssertedValues | None:
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


def _by_difference(lines: list[str]) -> AssertedValues | None:
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


def _by_labels(lines: list[str]) -> AssertedValues | None:
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


def _by_unittest(lines: list[str]) -> AssertedValues | None:
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


def _by_words(lines: list[str]) -> AssertedValues | None:
    for line in lines:
        if len(line) > LONGEST_VALUE:
            continue
        for words in _WORDS:
            if (matched := words.fullmatch(line)) is not None:
                return _asserted(matched["actual"], matched["expected"])
    return None


# ---- helpers that assert, and say nothing of it


def _by_names(details: str) -> AssertedValues | None:
    found = actual_and_expected(details)
    return None if found is None else _asserted(*found)


FAILS = (TestStatus.FAILED, TestStatus.ERROR)
NAMES_TOLD = 3
EXIT_CODE = "exit_code"
FAILED = "failed"
ITSELF = "-"
"""What failures of the baseline's own have in the place of a baseline's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceList:
    """All that differs: the first of it, and how much more there is."""

    differences: tuple[RunDifference, ...] = ()
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.differences)

    def with_first(self, one: RunDifference) -> DifferenceList:
        """One more, before all others."""
        kept = (one, *self.differences)[:MOST_DIFFERENCES]
        return DifferenceList(
            differences=kept, more=self.more + len(self.differences) + 1 - len(kept)
        )


def differences_between(
    baseline: CommandRunRecord,
    candidate: CommandRunRecord,
    unstable: Collection[str] = (),
    *,
    said: str = "",
) -> DifferenceList:
    """`said`: the last that the candidate's run printed."""
    tests = list(_of_tests(baseline, candidate, unstable))
    others = list(_of_looks(baseline, candidate, unstable))
    if _exit_code_differs(baseline, candidate, unstable) and not any(
        one.status in FAILS for one in tests
    ):
        others.insert(0, exit_difference(str(candidate.exit_code), said))
        if not candidate.tells_of_tests:
            # It ended before it came to any: to list them all would say no more.
            tests = []
    room = max(0, MOST_DIFFERENCES - len(others))
    kept = (*tests[:room], *others[:MOST_DIFFERENCES])
    return DifferenceList(differences=kept, more=len(tests) + len(others) - len(kept))


def exit_difference(how: str, said: str) -> RunDifference:
    """A command that ended in another way than with the exit code 0."""
    return RunDifference(
        scope=EXIT_CODE,
        name=EXIT_CODE,
        status="different",
        baseline="there",
        message=cut(said),
        expected="0",
        actual=how,
    )


def _exit_code_differs(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str]
) -> bool:
    if candidate.exit_code in (0, None):
        return False
    failing = [test.id for test in candidate.tests if test.status in FAILS]
    if not failing or candidate.exit_code != 1:
        return True
    # 1 is what test programs say of tests that fail: where the baseline's fail too, at least at
    # times, it says nothing else.
    known = {test.id for test in baseline.tests if test.status in FAILS}
    return not all(name in unstable or name in known for name in failing)


# ---- tests


def failures_in(baseline: CommandRunRecord) -> Iterator[RunDifference]:
    """What fails with the baseline itself, and how."""
    for test in baseline.tests:
        if test.status in FAILS:
            yield _difference(test, ITSELF)


def _of_tests(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str]
) -> Iterator[RunDifference]:
    """Those that fail first, by the baseline's order; then those that were left out."""
    now = {test.id: test for test in candidate.tests}
    before = {test.id: test.status for test in baseline.tests if test.id not in unstable}
    new = [name for name in now if name not in before and name not in unstable]
    for name in (*before, *new):
        test, status = now.get(name), before.get(name, TestStatus.MISSING)
        if test is not None and test.status in FAILS and status not in FAILS:
            yield _difference(test, status)
    problem = candidate.report.problem if candidate.report is not None else None
    for name, status in before.items():
        if status is TestStatus.PASSED:
            test = now.get(name)
            if test is None:
                if candidate.exit_code is not None and _is_whole(baseline):
                    yield _missing(name, problem)
                    # It is the same for all that follow.
                    problem = None
            elif test.status is TestStatus.SKIPPED:
                yield _difference(test, status)


def _is_whole(baseline: CommandRunRecord) -> bool:
    """A report that is too large to be read to its end ends elsewhere for each."""
    return baseline.report is not None and baseline.report.problem is None


def _difference(test: SingleTest, baseline: str) -> RunDifference:
    asserted = asserted_in(test.message, test.details)
    is_repeated = not test.details or test.details in test.message
    said = told_of_values(test.message, test.details)
    message = said if is_repeated else f"{said}\n\n{test.details}".strip()
    return RunDifference(
        scope="test",
        name=test.id,
        status=test.status.value,
        baseline=str(baseline),
        message=cut(message),
        expected=asserted.expected if test.status in FAILS else None,
        actual=asserted.actual if test.status in FAILS else None,
    )


def _missing(name: str, problem: str | None) -> RunDifference:
    return RunDifference(
        scope="test",
        name=name,
        status=TestStatus.MISSING.value,
        baseline=TestStatus.PASSED.value,
        message="" if problem is None else f"of the report of its tests: {problem}",
    )


def counts_against(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str] = ()
) -> TestCounts | None:
    """Of a candidate's tests, with those that it did not come to and those that are new."""
    counts = candidate.counts
    if counts is None:
        return None
    now = {test.id for test in candidate.tests}
    before = {test.id for test in baseline.tests}
    new = [test for test in candidate.tests if test.id not in before and test.id not in unstable]
    missing = 0
    if candidate.exit_code is not None and _is_whole(baseline):
        missing = sum(
            test.status is TestStatus.PASSED and test.id not in now and test.id not in unstable
            for test in baseline.tests
        )
    return replace(
        counts,
        missing=missing,
        new_passed=sum(test.status is TestStatus.PASSED for test in new),
        new_failed=sum(test.status in FAILS for test in new),
    )


# ---- what is compared


def _of_looks(
    baseline: CommandRunRecord, candidate: CommandRunRecord, unstable: Collection[str]
) -> Iterator[RunDifference]:
    if candidate.exit_code is None:
        return
    for before, now in zip(baseline.looks, candidate.looks, strict=False):
        found = None if now.name in unstable else compared(before, now)
        if found is not None:
            yield found


# ---- in words


def tests_run(counts: TestCounts | None) -> int:
    """How many there are to fail: those that are skipped say nothing of a candidate."""
    return 0 if counts is None else counts.passed + counts.failed + counts.errors


def in_words(
    found: DifferenceList, counts: TestCounts | None = None, baseline: TestCounts | None = None
) -> str:
    """Why a candidate is not right, in one line; `counts`: of its own tests, and the baseline's."""
    by_status: dict[str, list[str]] = {}
    for one in found.differences:
        if one.scope == "test":
            by_status.setdefault(_verb(one.status), []).append(one.name)
    more = found.more
    parts = []
    for verb, names in by_status.items():
        # What fails is of those that ran; what did not run is of those that do with the baseline.
        ran, number = tests_run(counts if verb == FAILED else baseline), len(names)
        if verb == FAILED and counts is not None:
            number = max(number, min(number + more, counts.failed + counts.errors))
        more -= number - len(names)
        parts.append(_of_some(number, verb, names, ran))
    for one in found.differences:
        if one.scope == EXIT_CODE:
            parts.append(f"exit code {one.actual}{_last_line(one.message)}")
        elif one.scope != "test":
            parts.append(_of_compared(one))
    return "; ".join(parts) + (f"; {more:,} more differences" if more else "")


def _verb(status: str) -> str:
    match status:
        case TestStatus.MISSING:
            return "did not run"
        case TestStatus.SKIPPED:
            return "skipped"
        case _:
            return FAILED


def _of_some(number: int, verb: str, names: list[str], ran: int) -> str:
    of_all = f"of {ran:,} tests" if ran >= number else "tests"
    return f"{number:,} {of_all} {verb}: {some(names, number)}"


def _of_compared(one: RunDifference) -> str:
    if one.status == "missing":
        return f"{one.name} is missing" + (f" ({one.message})" if one.message else "")
    first = one.message.partition("\n")[0].strip("@ ")
    return f"{one.name} is not the baseline's" + (f" ({first})" if first else "")


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f": {cut(lines[-1], 300)}" if lines else ""


def some(names: Sequence[str], number: int = 0) -> str:
    """The first few names, and how many more there are; `number`: of all, if more than these."""
    more = max(number, len(names)) - NAMES_TOLD
    return ", ".join(names[:NAMES_TOLD]) + (f" and {more:,} more" if more > 0 else "")
