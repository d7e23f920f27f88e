"""What a grader is: it looks at a subject and says how good it is, or why it cannot say.

One file beside this one for each kind; `panel` makes them from a suite's words and weighs them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from paraval.records import Case, Change, Grade, Output, TargetLimits, Variant

SHOWN_CHARACTERS = 60
"""Of a text that is quoted in a reason."""
# Ends of lines that JSON leaves as they are: nobody would see them.
_UNSEEN = {ord(end): rf"\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is judged: a target's answer, with all that a grader may want to know about it."""

    case: Case
    variant: Variant
    repeat: int
    output: Output
    exit_code: int | None = None
    """None where the target is no command."""
    label: str = ""
    folder: str = ""
    """Where graders may leave files; the panel fills it in."""
    workspace: str | None = None
    """Where the attempt ran, absolute, as it left it; None: it had no workspace."""
    change: Change | None = None
    """What it changed there."""
    index: int | None = None
    """The trial's, by which what its graders take of the machine is told; None: it is not."""
    limits: TargetLimits = field(default_factory=TargetLimits)
    """Of the trial's target: its graders' commands are held to them too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderProblem:
    """A grader that could not judge: a value, because the answer may still be right or wrong."""

    grader: str
    message: str

    def __str__(self) -> str:
        return f"grader '{self.grader}': {self.message}"


class CannotGrade(Exception):  # noqa: N818 - says what is so, not that a program is wrong
    """Raised by a grader that has no verdict; its message says why. The panel makes it a value."""


class Grader(Protocol):
    """One judge. Whatever it raises is a GraderProblem, never a wrong answer."""

    name: str
    may_block: bool
    """True: it waits for something, so several of them are run at once."""

    async def grade(self, subject: Subject) -> Grade: ...


def expected_of(subject: Subject, options: Mapping[str, Any]) -> Any:
    """The grader's own `value`, else what the case expects."""
    if "value" in options:
        return options["value"]
    if subject.case.expect is None:
        raise CannotGrade(
            f"nothing to compare with: case '{subject.case.id}' has no 'expect', and the grader no"
            " 'value'"
        )
    return subject.case.expect


def quoted(value: Any) -> str:
    """A value in one short line, for a reason."""
    # A whole answer is up to a megabyte: cut it before it is escaped.
    cut = value[: SHOWN_CHARACTERS + 1] if isinstance(value, str) else value
    try:
        text = json.dumps(cut, ensure_ascii=False, default=repr).translate(_UNSEEN)
    except Exception:  # noqa: BLE001 - too deep, a circle, a repr that raises: not worth a verdict
        return f"({type(value).__name__})"
    return text if len(text) <= SHOWN_CHARACTERS + 2 else f"{text[:SHOWN_CHARACTERS]}…"
