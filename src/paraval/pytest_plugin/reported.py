"""What the reports of one test come to: its attempts, and the texts that are kept of the last one.

For every kind of session: reports are all that the process which records may ever see of a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from paraval.pytest_plugin.outcomes import crash_line, outcome_of
from paraval.pytest_plugin.told import told_by
from paraval.records import AttemptResult, Failure, Grade, Outcome

PHASES = ("setup", "call", "teardown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A test, ended."""

    attempts: tuple[AttemptResult, ...]
    """In their order; the last one decides."""
    texts: dict[str, str]
    """stdout, stderr, log, traceback: those of the last attempt that are not empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """One phase, of which nobody knows the exception any more."""

    report: pytest.TestReport
    error: BaseException | None = None


def ended(reports: Sequence[pytest.TestReport]) -> Ended:
    """By the reports of one test, in their order; at least one."""
    told = next(filter(None, map(told_by, reversed(reports))), None)
    attempts = (_by_reports_alone(reports),) if told is None else (*told.earlier, told.result)
    last = _with_notes(_as_final(attempts[-1]), reports)
    return Ended(attempts=(*attempts[:-1], last), texts=_texts(reports))


def is_lost(report: pytest.TestReport) -> bool:
    """Whether it tells that the test's process died; nothing more will come of the test."""
    return report.when not in PHASES


def _by_reports_alone(reports: Sequence[pytest.TestReport]) -> AttemptResult:
    seconds = sum(report.duration for report in reports)
    lost = next(filter(is_lost, reports), None)
    if lost is not None:
        died = Failure(kind=Outcome.CRASHED, message=crash_line(lost))
        return AttemptResult(outcome=Outcome.CRASHED, error=died, duration_s=seconds)
    outcome, failure = outcome_of([_Phase(report=report) for report in reports])
    passed = outcome is Outcome.PASSED
    why = next((crash_line(report) for report in reports if report.failed), "")
    grade = Grade(score=float(passed), passed=passed, grader="pytest", reason=why)
    return AttemptResult(
        outcome=outcome,
        grades=(grade,) if outcome.is_judged else (),
        score=grade.score if outcome.is_judged else None,
        error=failure,
        duration_s=seconds,
    )


def _as_final(result: AttemptResult) -> AttemptResult:
    """A test that skips itself does so every time: nothing is left to be run of it."""
    if result.outcome is not Outcome.SKIPPED or result.error is None:
        return result
    return replace(result, error=replace(result.error, lasting=True))


def _with_notes(result: AttemptResult, reports: Sequence[pytest.TestReport]) -> AttemptResult:
    """What failed after what decided: a teardown, mostly."""
    failed = [report for report in reports if report.failed]
    notes = tuple(f"{report.when}: {crash_line(report)}" for report in failed[1:])
    return replace(result, notes=(*result.notes, *notes)) if notes else result


def _texts(reports: Sequence[pytest.TestReport]) -> dict[str, str]:
    # Each report has the sections of those before it, too.
    last = reports[-1]
    tracebacks = [
        f"{report.when}:\n{report.longreprtext}\n"
        for report in reports
        if report.failed and report.longreprtext
    ]
    texts = {
        "stdout": last.capstdout,
        "stderr": last.capstderr,
        "log": last.caplog,
        "traceback": "\n".join(tracebacks),
    }
    ended = {name: text if text.endswith("\n") else f"{text}\n" for name, text in texts.items()}
    return {name: text for name, text in ended.items() if text.strip()}
