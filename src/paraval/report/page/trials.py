"""A trial on the page: a line, and what unfolds below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.records import AttemptRecord, AttemptResult, Grade, Outcome, Output, TrialResult
from paraval.report.page.artifacts import Excerpt, LogExcerpt, beginning, logs_in, patch_in
from paraval.report.reasons import reason, without_text
from paraval.report.summary.attempt_lines import deeds_in_lines, step_lines
from paraval.report.summary.costs import is_known, seconds_to_verdict, spend_of, told_usd
from paraval.report.transcript import stop_reason
from paraval.text.terminal import one_line
from paraval.text.words import duration, money

# A patch as runs of lines of the same kind, for coloring; text only.

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADS = ("diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode")


class DiffPiece(NamedTuple):
    """Consecutive lines of the same kind."""

    kind: str
    """`add`, `del`, `head`, `at`; empty: unchanged."""
    text: str


def pieces(patch: str) -> Iterator[DiffPiece]:
    # Not by `splitlines`: in a changed file a form feed ends no line.
    lines = _LINE.findall(patch)
    for kind, group in groupby(lines, key=_kind):
        yield DiffPiece(kind, "".join(group))


def _kind(line: str) -> str:
    if line.startswith(_HEADS):
        return "head"
    if line.startswith("@@"):
        return "at"
    return {"+": "add", "-": "del"}.get(line[:1], "")


_LONGEST_NAME = 200
_LONGEST_WHY = 300
_LONGEST_REASON = 2_000
_LONGEST_ERROR = 4_000
_MOST_GRADES = 50
_MOST_ATTEMPTS = 30
_MOST_NOTES = 20
_MOST_DEEDS = 40
_MOST_STEP_LINES = 200
_USUAL_STOPS = ("stop", "end_turn", "completed")

SIGNS = {"pass": "✓", "wrong": "✗", "error": "!", "skip": "\N{EN DASH}"}


def kind_of(outcome: Outcome | None) -> str:
    """pass, wrong, error or skip: a CSS class, which also selects the sign."""
    if outcome is Outcome.PASSED:
        return "pass"
    if outcome is Outcome.FAILED:
        return "wrong"
    return "skip" if outcome is Outcome.SKIPPED else "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLine:
    """A trial in one line."""

    index: int
    kind: str
    outcome: str
    label: str
    """Its repeat from the second on, or empty: its column has the variant's name."""
    seconds: str
    cost: str
    why: str
    """Empty if it passed."""

    @property
    def sign(self) -> str:
        return SIGNS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeView:
    kind: str
    grader: str
    score: str
    reason: Excerpt

    @property
    def sign(self) -> str:
        return SIGNS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    text: str
    left_out: str
    stop: str
    """Why the model stopped, in its provider's word; empty if unknown, or if it was done."""
    marked: tuple[DiffPiece, ...] = ()
    """The text again, with the words that differ; empty if none are marked."""
    note: str = ""
    """Why none are marked, if it needs to be said."""


MarkWords = Callable[[TrialResult, str], tuple[tuple[DiffPiece, ...], str]]
"""Marks the words of a trial's answer that differ, or says why none are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptArtifacts:
    """What an attempt left: error, notes, streams, changes."""

    error: Excerpt | None
    notes: tuple[str, ...]
    deeds: tuple[str, ...]
    logs: tuple[LogExcerpt, ...]
    diff: tuple[DiffPiece, ...]
    diff_left_out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    number: int
    kind: str
    outcome: str
    began: str
    seconds: str
    left: AttemptArtifacts | None
    """None: it never ended."""

    @property
    def sign(self) -> str:
        return SIGNS[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """A trial with everything that a page shows of it."""

    line: TrialLine
    grades: tuple[GradeView, ...]
    grades_left_out: int
    steps: tuple[str, ...]
    """The tool calls before the answer, in lines."""
    answer: AnswerView | None
    decided: AttemptArtifacts
    """From the deciding attempt."""
    attempts: tuple[AttemptView, ...]
    """All of them, if there were several."""
    attempts_left_out: int


def line_of(result: TrialResult) -> TrialLine:
    passed = result.outcome is Outcome.PASSED
    skipped = result.outcome is Outcome.SKIPPED
    return TrialLine(
        index=result.index,
        kind=kind_of(result.outcome),
        outcome=_outcome_words(result),
        label=f"repeat {result.repeat}" if result.repeat > 1 else "",
        seconds=""
        if skipped and not result.total_s
        else duration(seconds_to_verdict(result) or result.time_s),
        cost=_cost(result),
        why="" if passed else one_line(reason(result.result), _LONGEST_WHY),
    )


def trial_view(
    result: TrialResult, attempts: Iterable[AttemptRecord], run_folder: str, mark_words: MarkWords
) -> TrialView:
    """Reads what the trial's attempts left in the run's folder."""
    end = result.result
    shown: list[AttemptView] = []
    left_out = 0
    for attempt in attempts:
        if len(shown) < _MOST_ATTEMPTS:
            shown.append(_attempt_view(attempt, run_folder))
        else:
            left_out += 1
    return TrialView(
        line=line_of(result),
        grades=tuple(map(_grade_view, end.grades[:_MOST_GRADES])),
        grades_left_out=max(0, len(end.grades) - _MOST_GRADES),
        steps=tuple(islice(step_lines(end), _MOST_STEP_LINES)),
        answer=None if end.output is None else _answer_view(result, end.output, mark_words),
        decided=_left(end, run_folder),
        attempts=tuple(shown) if len(shown) > 1 else (),
        attempts_left_out=left_out,
    )


def _answer_view(result: TrialResult, output: Output, mark_words: MarkWords) -> AnswerView:
    shown = beginning(output.text or without_text(result.result))
    marked, note = mark_words(result, shown.text) if output.text else ((), "")
    stop = stop_reason(result.result)
    return AnswerView(
        text=shown.text,
        left_out=shown.left_out,
        stop="" if stop in _USUAL_STOPS else one_line(stop, _LONGEST_NAME),
        marked=marked,
        note=note,
    )


def _attempt_view(attempt: AttemptRecord, run_folder: str) -> AttemptView:
    end = attempt.result
    began = datetime.fromtimestamp(attempt.started_at, UTC)
    return AttemptView(
        number=attempt.number,
        kind=kind_of(None if end is None else end.outcome),
        outcome="never ended" if end is None else _words(end.outcome),
        began=f"{began:%H:%M:%S} UTC",
        seconds="" if end is None else duration(end.duration_s),
        left=None if end is None else _left(end, run_folder),
    )


def _left(end: AttemptResult, run_folder: str) -> AttemptArtifacts:
    patch = patch_in(run_folder, end.artifacts)
    answer = "" if end.output is None else end.output.text.strip()
    logs = logs_in(run_folder, end.artifacts)
    deeds = [*deeds_in_lines(end.activity, end.change)]
    if end.exit_code:
        deeds.insert(0, f"exit code: {end.exit_code}")
    if end.node is not None:
        deeds.insert(0, one_line(f"node: {end.node}", _LONGEST_NAME))
    return AttemptArtifacts(
        error=None if end.error is None else beginning(end.error.message, _LONGEST_ERROR),
        notes=tuple(one_line(note, _LONGEST_REASON) for note in end.notes[:_MOST_NOTES]),
        deeds=tuple(deeds[:_MOST_DEEDS]),
        # A program's answer is what it printed: once is enough.
        logs=tuple(log for log in logs if log.excerpt.text.strip() != answer or not answer),
        diff=() if patch is None else tuple(pieces(patch.text)),
        diff_left_out="" if patch is None else patch.left_out,
    )


def _grade_view(grade: Grade) -> GradeView:
    return GradeView(
        kind="pass" if grade.passed else "wrong",
        grader=one_line(grade.grader or "grader", _LONGEST_NAME),
        score=f"{grade.score:.3g}",
        reason=beginning(grade.reason, _LONGEST_REASON),
    )


def _outcome_words(result: TrialResult) -> str:
    """Of a run in progress, trials without a result are not skipped."""
    error = result.result.error
    if result.outcome is Outcome.SKIPPED and error is not None:
        for start, word in (("still running", "running"), ("not run yet", "waiting")):
            if error.message.startswith(start):
                return word
    return _words(result.outcome)


def _words(outcome: Outcome) -> str:
    return outcome.value.replace("_", " ")


def _cost(result: TrialResult) -> str:
    spend = spend_of(result)
    known = told_usd(spend)
    if spend is None or known is None:
        return ""
    cached = " (cached)" if spend.cached and not spend.calls else ""
    return money(known) + "+" * (not is_known(spend)) + cached
