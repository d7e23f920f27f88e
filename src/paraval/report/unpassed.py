"""The trials a reader looks at first: wrong answers, and apart from them errors; the first of each.

How many there are in all is the summary's to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from paraval.records import Outcome, TrialResult
from paraval.report.contents import Contents
from paraval.report.summary import Summary
from paraval.report.wording import counted, listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpassed:
    """The first wrong answers and the first errors, in plan order."""

    wrong: tuple[TrialResult, ...]
    errors: tuple[TrialResult, ...]


def first_unpassed(contents: Contents, most: int) -> Unpassed:
    """At most `most` in all; each kind has half of them, and what the other leaves."""
    summary = contents.summary
    wrong_room = min(summary.failed, max(most // 2, most - summary.errors))
    error_room = min(summary.errors, max(most // 2, most - summary.failed))
    wrong: list[TrialResult] = []
    errors: list[TrialResult] = []
    if wrong_room or error_room:
        for result in contents.trials:
            if result.outcome is Outcome.FAILED and len(wrong) < wrong_room:
                wrong.append(result)
            elif result.outcome.is_error and len(errors) < error_room:
                errors.append(result)
            if len(wrong) == wrong_room and len(errors) == error_room:
                break
    return Unpassed(wrong=tuple(wrong), errors=tuple(errors))


def wrong_heading(summary: Summary) -> str:
    return counted(summary.failed, "wrong answer")


def errors_heading(summary: Summary) -> str:
    """`3 errors, not wrong answers: 2 timeout and 1 crashed`."""
    kinds = listed(f"{number:,} {kind}" for kind, number in summary.errors_by_kind.items())
    answers = "no wrong answer" if summary.errors == 1 else "not wrong answers"
    return f"{counted(summary.errors, 'error')}, {answers}: {kinds}"
