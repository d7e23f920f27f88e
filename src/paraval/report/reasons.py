"""Why a trial did not pass, in the same words in progress and in every report."""

from __future__ import annotations

from paraval.models.response_reader import ending_notes
from paraval.records import CUT_OFF, AttemptResult, Grade, Outcome

_ENDINGS = frozenset(
    note
    for finish in ("max_tokens", "model_context_window_exceeded", "content_filter", "refusal")
    for note in ending_notes(finish, refused=False)
)
"""Notes that may explain a failure. Others are about costs, logs and processes."""


def reason(result: AttemptResult) -> str:
    """Why a trial did not pass: the error's message, or what the graders missed.

    It starts with how the model or agent ended its answer, unless that was a normal stop: a cut-off
    answer fails for another reason than a complete one.
    """
    ends = [note for note in result.notes if note in _ENDINGS or note.startswith(CUT_OFF)]
    why = _bare_reason(result)
    if result.outcome is Outcome.FAILED and (empty := without_text(result)):
        why = f"{empty} {why}"
    return " ".join((*(f"[{note}]" for note in ends), why)).rstrip() if ends else why


EMPTY_ANSWER = "(empty answer)"


def without_text(result: AttemptResult) -> str:
    """What a model or an agent answered in place of text: tool calls, or nothing; empty if there is
    text."""
    output = result.output
    if output is None or output.text.strip():
        return ""
    if output.tool_calls:
        names = dict.fromkeys(call.name for call in output.tool_calls)
        return f"(no text, called {', '.join(names)})"
    # Commands and functions have their own reasons to print nothing.
    is_answer = result.activity is not None or "finish_reason" in output.metadata
    return EMPTY_ANSWER if is_answer else ""


def _bare_reason(result: AttemptResult) -> str:
    if result.error is not None:
        return result.error.message or result.error.kind.value
    if not result.outcome.is_judged:
        return result.outcome.value
    missed = [grade for grade in result.grades if not grade.passed]
    several = len(missed) > 1
    whys = (_grade_reason(grade, is_named=several) for grade in missed)
    return "; ".join(whys) or _score_reason(result.score)


def _grade_reason(grade: Grade, *, is_named: bool) -> str:
    if grade.reason and not (is_named and grade.grader):
        return grade.reason
    return f"{grade.grader or 'grader'}: {grade.reason or _score_reason(grade.score)}"


def _score_reason(score: float | None) -> str:
    return "" if score is None else f"score {score:.3g}"
