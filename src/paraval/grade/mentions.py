"""The grader that looks for what an answer should mention: files, symbols, lines, pieces of text.

The score is recall, the share of all this that is there, unless the suite asks for precision, the
share of the files in the answer that are expected, or for F1 of both. What the answer denies is not
mentioned (`affirmed`); how files are told apart is in `paths_named`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paraval.grade.affirmed import affirmed
from paraval.grade.grader import CannotGrade, Subject, quoted
from paraval.grade.paths_named import (
    ExpectedPaths,
    NamedPath,
    looks_like_a_file,
    normal_path,
    paths_in,
)
from paraval.records import Case, Grade, GraderSpec
from paraval.threads import Threads

KINDS = ("files", "symbols", "lines", "content")
LONGEST_INLINE_TEXT = 20_000
"""A longer answer is read in a thread, because that may take a while."""
TOLD_MISSING = 5
LONGEST_RANGE = 100
"""Lines: `1-99999` says nothing of line 8."""
FLOAT_DUST = 1e-9
_BEFORE, _BEHIND = 60, 120
"""Characters around a path in which a line's number belongs to it."""


class MentionsGrader:
    """The answer mentions what it should."""

    may_block = False

    def __init__(self, spec: GraderSpec, *, threads: Threads) -> None:
        self.name = spec.name
        self._options = spec.options
        self._threads = threads
        self._measure = str(spec.options.get("score") or "recall")
        pass_at = spec.options.get("pass_at")
        self._pass_at = 1.0 if pass_at is None else float(pass_at)

    async def grade(self, subject: Subject) -> Grade:
        wanted = wanted_of(self._options, subject.case)
        text = subject.output.text
        if len(text) > LONGEST_INLINE_TEXT:
            found = await self._threads.call(lambda: look_for(wanted, text))
        else:
            found = look_for(wanted, text)
        score = found.score(self._measure)
        return Grade(
            score=score,
            passed=score >= self._pass_at - FLOAT_DUST,
            reason=found.told(),
            grader=self.name,
        )


# ---- what is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an answer should mention."""

    files: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()
    """(path, line)."""
    content: tuple[str, ...] = ()


def wanted_of(options: Mapping[str, Any], case: Case) -> Wanted:
    """By the grader's own options; what they leave out is the case's."""
    truth = _truth_of(case)
    chosen = {kind: options.get(kind) or truth.get(kind) or () for kind in KINDS}
    wanted = Wanted(
        files=tuple(normal_path(path) for path in _texts("files", chosen["files"])),
        symbols=_texts("symbols", chosen["symbols"]),
        lines=tuple(_lines(chosen["lines"])),
        content=_texts("content", chosen["content"]),
    )
    if not (wanted.files or wanted.symbols or wanted.lines or wanted.content):
        raise CannotGrade(
            f"neither the grader nor case '{case.id}' says what to look for; give either of them"
            " files, symbols, lines or content"
        )
    return wanted


def _truth_of(case: Case) -> Mapping[str, Any]:
    for place in (case.expect, case.metadata):
        if isinstance(place, Mapping) and isinstance(place.get("ground_truth"), Mapping):
            inner: Mapping[str, Any] = place["ground_truth"]
            return inner
    return case.expect if isinstance(case.expect, Mapping) else {}


def _texts(kind: str, value: Any) -> tuple[str, ...]:
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple):
        raise CannotGrade(f"'{kind}' is a list of texts, not {quoted(value)}")
    for one in several:
        if not isinstance(one, str) or not one.strip():
            raise CannotGrade(f"'{kind}' is a list of texts that are not empty; {quoted(one)}")
    return tuple(dict.fromkeys(_composed(one.strip()) for one in several))


def _lines(value: Any) -> Iterable[tuple[str, int]]:
    if not value:
        return
    if not isinstance(value, Mapping):
        raise CannotGrade(f"'lines' maps files to lists of line numbers, unlike {quoted(value)}")
    for path, numbers in value.items():
        for number in numbers if isinstance(numbers, list | tuple) else (numbers,):
            if not isinstance(path, str) or isinstance(number, bool) or not isinstance(number, int):
                raise CannotGrade(f"'lines' maps files to line numbers, unlike {quoted(number)}")
            yield normal_path(_composed(path)), number


# ---- what is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What of it an answer mentions."""

    wanted: int
    missing: tuple[str, ...]
    """In words: `file a.go`, `symbol Foo`."""
    right_files: int
    """Expected ones that it names ..."""
    wrong_files: tuple[str, ...]
    """... and other files that it names."""
    judges_files: bool
    """False: no file was expected, so that none can be wrong."""

    @property
    def recall(self) -> float:
        return (self.wanted - len(self.missing)) / self.wanted

    @property
    def precision(self) -> float:
        if not self.judges_files:
            return 1.0
        named = self.right_files + len(self.wrong_files)
        return self.right_files / named if named else 0.0

    def score(self, measure: str) -> float:
        if measure == "recall" or (measure == "f1" and not self.judges_files):
            return self.recall
        if measure == "precision":
            return self.precision
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def told(self) -> str:
        there = self.wanted - len(self.missing)
        told = f"recall {self.recall:.2f} ({there} of {self.wanted})"
        if self.judges_files:
            told += f", precision {self.precision:.2f}, F1 {self.score('f1'):.2f}"
        parts = [told]
        if self.missing:
            parts.insert(0, f"not mentioned: {_listed(self.missing)}")
        if self.wrong_files:
            parts.append(f"not asked for: {_listed(self.wrong_files)}")
        return "; ".join(parts)


def look_for(wanted: Wanted, answer: str) -> Found:
    """What an answer mentions of what is wanted, and which other files it names."""
    text = affirmed(unicodedata.normalize("NFC", answer))
    paths = ExpectedPaths(dict.fromkeys((*wanted.files, *(path for path, _ in wanted.lines))))
    words = list(paths_in(text, paths.names))
    named = {word: paths.named_by(word) for word in {one.path for one in words}}
    right = {path for several in named.values() for path in several}
    right |= {path for path in wanted.files if " " in path and _has_whole(text, path)}
    lines = _lines_named(text, words, named) if wanted.lines else set()
    squeezed = " ".join(text.split()) if wanted.content else ""
    missing = [
        *(f"file {path}" for path in wanted.files if path not in right),
        *(f"symbol {one}" for one in wanted.symbols if not _has_whole(text, one)),
        *(f"line {path}:{line}" for path, line in wanted.lines if (path, line) not in lines),
        *(
            f"content {quoted(one)}"
            for one in wanted.content
            if " ".join(one.split()) not in squeezed
        ),
    ]
    wrong = (
        path
        for path, expected in named.items()
        if not expected and looks_like_a_file(path) and not paths.is_above(path)
    )
    every = (wanted.files, wanted.symbols, wanted.lines, wanted.content)
    return Found(
        wanted=sum(len(kind) for kind in every),
        missing=tuple(missing),
        right_files=len(right),
        wrong_files=tuple(sorted(wrong)),
        judges_files=bool(wanted.files or wanted.lines),
    )


def _has_whole(text: str, name: str) -> bool:
    """Whether a name stands there as a whole word, where its ends are letters."""
    at = text.find(name)
    while at >= 0:
        before, behind = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        if not (_is_word(name[0]) and _is_word(before)) and not (
            _is_word(name[-1]) and _is_word(behind)
        ):
            return True
        at = text.find(name, at + 1)
    return False


def _is_word(character: str) -> bool:
    """Marks are parts of letters: `\\w` does not know them."""
    if not character:
        return False
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


# ---- lines

_NUMBERED = re.compile(
    r"(?:^:|#L|\blines?\b:?|\bL(?=\d))\s{0,3}((?:\d{1,7}|[\s,&\u2013-]|L(?=\d)|and\b|to\b){1,100})",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d{1,7})(?:\s*(?:-|\u2013|to)\s*L?(\d{1,7}))?")


def _lines_named(
    text: str, words: Sequence[NamedPath], named: Mapping[str, tuple[str, ...]]
) -> set[tuple[str, int]]:
    """(path, line) for every number of a line that stands by a path, nearer than any other path."""
    places = [
        (one, named[one.path]) for one in words if named[one.path] or looks_like_a_file(one.path)
    ]
    lines: set[tuple[str, int]] = set()
    for number, (place, paths) in enumerate(places):
        if not paths:
            continue
        last = places[number - 1][0].end if number else 0
        following = places[number + 1][0].begin if number + 1 < len(places) else len(text)
        behind = text[place.end : min(following, place.end + _BEHIND)]
        before = text[max(last, place.begin - _BEFORE) : place.begin]
        numbers = (*_numbers(behind), *_numbers(before))
        lines.update((path, line) for path in paths for line in numbers)
    return lines


def _numbers(text: str) -> Iterable[int]:
    for found in _NUMBERED.finditer(text):
        for first, last in _RANGE.findall(found[1]):
            begin, end = int(first), int(last or first)
            if 0 <= end - begin <= LONGEST_RANGE:
                yield from range(begin, end + 1)


def _listed(items: Sequence[str]) -> str:
    shown = ", ".join(
        item if len(item) <= 100 else f"{item[:100]}…" for item in items[:TOLD_MISSING]
    )
    return shown if len(items) <= TOLD_MISSING else f"{shown} and {len(items) - TOLD_MISSING} more"
