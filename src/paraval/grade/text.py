"""Graders that compare text: equals, contains, regex."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paraval.grade.bounded import within_cpu_time
from paraval.grade.grader import CannotGrade, Subject, expected_of, quoted
from paraval.records import Grade, GraderSpec

PATTERN_CPU_S = 0.2
"""A pattern that needs more than this on one answer cannot be told from one that never ends."""


class EqualsGrader:
    """The answer is the expected text."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options

    async def grade(self, subject: Subject) -> Grade:
        expected = _expected_text(expected_of(subject, self._options))
        answer = _as_compared(subject.output.text, self._options)
        wanted = _as_compared(expected, self._options)
        if answer == wanted:
            return Grade(score=1.0, passed=True, grader=self.name)
        reason = _difference(wanted, answer, _as_shown(subject.output.text, self._options))
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)


class ContainsGrader:
    """The answer has every expected text in it; the score is the part of them that it has."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options

    async def grade(self, subject: Subject) -> Grade:
        wanted = self._wanted(subject)
        answer = _as_compared(subject.output.text, self._options)
        missing = [text for text in wanted if _as_compared(text, self._options) not in answer]
        if not missing:
            return Grade(score=1.0, passed=True, grader=self.name)
        return Grade(
            score=(len(wanted) - len(missing)) / len(wanted),
            passed=False,
            reason=f"{_listed(missing)} not in {_as_shown(subject.output.text, self._options)}",
            grader=self.name,
        )

    def _wanted(self, subject: Subject) -> list[str]:
        expected = expected_of(subject, self._options)
        several = expected if isinstance(expected, list | tuple) else [expected]
        wanted = [_expected_text(one) for one in several]
        # Everything contains nothing: such a grader would pass any answer, and nobody would notice.
        if not wanted or not all(_as_compared(text, self._options) for text in wanted):
            raise CannotGrade(f"case '{subject.case.id}' gives it no text to look for")
        return wanted


class RegexGrader:
    """A pattern is found somewhere in the answer."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        self._options = spec.options
        self._flags = re.RegexFlag(0)
        for option, flag in (
            ("ignore_case", re.IGNORECASE),
            ("multiline", re.MULTILINE),
            ("dotall", re.DOTALL),
        ):
            if spec.options.get(option):
                self._flags |= flag

    async def grade(self, subject: Subject) -> Grade:
        pattern = self._pattern(subject)
        text = subject.output.text
        answer = text if self._options.get("strict") else text.strip()
        found = within_cpu_time(
            lambda: pattern.search(answer), seconds=PATTERN_CPU_S, characters=len(answer)
        )
        if found:
            return Grade(score=1.0, passed=True, grader=self.name)
        reason = f"no match for {quoted(pattern.pattern)} in {_as_shown(text, self._options)}"
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)

    def _pattern(self, subject: Subject) -> re.Pattern[str]:
        source = self._options.get("pattern")
        if source is None:
            source = expected_of(subject, self._options)
        try:
            # `re` keeps what it compiled, so that this is a look-up from the second time on.
            return re.compile(_expected_text(source), self._flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise CannotGrade(f"{quoted(source)} is no pattern: {error}") from None


def _as_compared(text: str, options: Mapping[str, Any]) -> str:
    trimmed = text if options.get("strict") else text.strip()
    return trimmed.casefold() if options.get("ignore_case") else trimmed


def _as_shown(text: str, options: Mapping[str, Any]) -> str:
    """The answer in a reason: blanks around it that don't count are seen all the same, but for the
    spaces and line ends that most answers have."""
    return quoted(text if options.get("strict") else text.strip(" \r\n"))


def _expected_text(expected: Any) -> str:
    if isinstance(expected, str):
        return expected
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        return str(expected)
    raise CannotGrade(f"it compares with text, not with {quoted(expected)}")


def _difference(wanted: str, answer: str, shown: str) -> str:
    """Where two texts part, when both begin alike and the whole would not be seen."""
    same = _common_start(wanted, answer)
    if same <= 40:
        return f"expected {quoted(wanted)}, got {shown}"
    start = same - 10
    return (
        f"differs from character {same + 1} on: "
        f"expected …{quoted(wanted[start : start + 60])}, got …{quoted(answer[start : start + 60])}"
    )


def _common_start(one: str, other: str) -> int:
    shorter = min(len(one), len(other))
    low, high = 0, shorter
    # By halves: comparing slices is quick, comparing a megabyte character by character is not.
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _listed(texts: list[str]) -> str:
    shown = ", ".join(quoted(text) for text in texts[:3])
    return shown if len(texts) <= 3 else f"{shown} and {len(texts) - 3} more"
