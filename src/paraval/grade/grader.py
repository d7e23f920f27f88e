"""The interface of graders: judge a subject, or give the reason why not.

Each kind has its own module; `panel` creates graders from a suite and combines their grades.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol

from paraval.dataclass import dataclass
from paraval.records import Case, Change, Grade, Output, Step, TargetLimits, Variant
from paraval.templates.template import TemplateFields, fill

SHOWN_CHARACTERS = 60
"""Length of a text quoted in a reason."""
# Line endings that JSON leaves unescaped and readers cannot see.
_UNSEEN = {ord(end): rf"\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is graded: a target's answer, with everything that a grader may need."""

    case: Case
    variant: Variant
    repeat: int
    output: Output
    steps: tuple[Step, ...] = ()
    """An agent's transcript, or the steps of the output."""
    answer_s: float | None = None
    """How long the target took; None if unknown."""
    cost_usd: float | None = None
    """What the answer cost; None if unknown."""
    exit_code: int | None = None
    """None if the target is not a command."""
    label: str = ""
    folder: str = ""
    """Where graders may leave files; set by the panel."""
    workspace: str | None = None
    """The attempt's workspace as it left it, absolute; None: it had none."""
    change: Change | None = None
    """Its changes in the workspace."""
    patch: str | None = None
    """The file that has them; None: nothing changed, or it had no workspace."""
    index: int | None = None
    """The trial's index, under which its graders' resource use is recorded; None: it is not."""
    limits: TargetLimits = field(default_factory=TargetLimits)
    """The limits of the trial's target, which apply to grader commands too."""


def fields_of(subject: Subject) -> TemplateFields:
    """Return the values for the templates of graders."""
    return TemplateFields(
        input=subject.case.input,
        case_id=subject.case.id,
        repeat=subject.repeat,
        folder=subject.folder,
        variant=subject.variant,
        metadata=subject.case.metadata,
        workspace=subject.workspace,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderProblem:
    """A grader that could not grade: a value, because the answer may still pass or fail."""

    grader: str
    message: str

    def __str__(self) -> str:
        return f"grader '{self.grader}': {self.message}"


class SkipGrader(Exception):  # noqa: N818 - a state, not a bug
    """Raised by a grader that does not apply, with the reason. The panel turns it into a value."""


class CannotGrade(Exception):  # noqa: N818 - a state, not a bug
    """Raised by a grader that has no verdict, with the reason. The panel turns it into a value."""


class Grader(Protocol):
    """One grader. Whatever it raises becomes a GraderProblem, never a failed answer."""

    name: str
    may_block: bool
    """True: it waits for something, so several of them run concurrently."""

    async def grade(self, subject: Subject) -> Grade: ...


_BRACE = re.compile(r"[{}]")


def filled(written: Any, subject: Subject) -> Any:
    """Return what a grader's options say, its texts filled in as templates; `regex` in a mapping is
    a pattern, and no template."""
    match written:
        case str():
            return (
                fill(written, fields_of(subject)) if "{" in written or "}" in written else written
            )
        case list() | tuple():
            return [filled(one, subject) for one in written]
        case Mapping():
            return {
                key: one if key == "regex" else filled(one, subject) for key, one in written.items()
            }
    return written


def expected_of(subject: Subject, options: Mapping[str, Any]) -> Any:
    """Return the grader's own `value`, or else the case's `expect`."""
    if "value" in options:
        return filled(options["value"], subject)
    if subject.case.expect is None:
        raise CannotGrade(
            f"nothing to compare with: case '{subject.case.id}' has no 'expect', and the grader no"
            " 'value'"
        )
    return subject.case.expect


def quoted(value: Any) -> str:
    """Return a value on one short line, for a reason."""
    # An answer can be a megabyte: cut it before escaping it.
    cut = value[: SHOWN_CHARACTERS + 1] if isinstance(value, str) else value
    try:
        text = json.dumps(cut, ensure_ascii=False, default=repr).translate(_UNSEEN)
    except Exception:  # noqa: BLE001 - too deep, a circle, a repr that raises: not worth a verdict
        return f"({type(value).__name__})"
    return text if len(text) <= SHOWN_CHARACTERS + 2 else f"{text[:SHOWN_CHARACTERS]}…"
