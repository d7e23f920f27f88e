"""Writes a test run into the store while it runs: the start and the end of each attempt.

Tests are identified by node id. `recording` implements the hooks.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import pytest

from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.models.secrets import Redactor
from paraval.pytest_plugin.models.item_outcomes import PhaseEnd, crash_line, outcome_of
from paraval.pytest_plugin.recording.item_trials import without_xdist_group
from paraval.pytest_plugin.recording.report_data import report_data_of
from paraval.records import Attempt, AttemptResult, Failure, Grade, Outcome, Plan, RunInfo, Trial
from paraval.settings import LOG_LIMIT_BYTES
from paraval.store.ledger import Ledger


@dataclass(slots=True)
class _TestProgress:
    """One test, from its first start to its result."""

    trial: Trial
    begun: int = 0
    """The number of its last attempt."""
    is_open: bool = False
    """True: that attempt has begun, and its end has not been reported."""
    is_set_up: bool = False
    """True: its setup was observed here, not only announced."""
    is_rerun: bool = False
    """True: pytest-rerunfailures tries again. This end is reported again with the last one."""
    began_at: float = 0.0
    reports: list[pytest.TestReport] = field(default_factory=list)


class RunJournal:
    """The run of a session."""

    def __init__(self, ledger: Ledger, redactor: Redactor, node_ids: Iterable[str]) -> None:
        """`node_ids`: pytest's own, in plan order; the plan has them without secrets."""
        self._ledger = ledger
        self._redactor = redactor
        self._began = time.time()
        self._waiting: dict[str, deque[_TestProgress]] = {}
        """By node id: tests without a result, in plan order."""
        for node_id, trial in zip(node_ids, ledger.plan.trials, strict=True):
            self._waiting.setdefault(node_id, deque()).append(_TestProgress(trial))
        self.failure: StoreError | None = None
        """Why something could not be written; None: no error."""
        ledger.open(deliver=lambda _durable: None, on_failure=self._failed)

    @property
    def plan(self) -> Plan:
        return self._ledger.plan

    @property
    def run(self) -> RunInfo:
        """After `close`: the finished run."""
        return self._ledger.run

    def _failed(self, error: StoreError) -> None:
        self.failure = self.failure or error

    # ---- the course of a test

    def announce(self, node_id: str) -> None:
        """Record a start that pytest reports. For parallel tests, that is after their end."""
        course = self._course(node_id)
        if course is not None and not course.is_open:
            self._begin(course)

    def begin(self, node_id: str) -> None:
        """Record that an attempt starts now."""
        course = self._course(node_id)
        if course is None:
            return
        if not course.is_open or course.is_set_up:
            self._begin(course)
        course.is_set_up = True

    def _begin(self, course: _TestProgress) -> None:
        course.begun += 1
        course.is_open = True
        now = time.time()
        course.began_at = course.began_at or now
        self._ledger.record_start(self._attempt(course, course.begun), now, _nothing)

    def add(self, report: pytest.TestReport) -> None:
        course = self._course(report.nodeid)
        if course is None:
            return
        if report.when == "setup":
            course.reports.clear()
            course.is_rerun = False
        course.reports.append(report)
        course.is_rerun = course.is_rerun or str(report.outcome) == "rerun"
        if is_lost(report):
            self.end(report.nodeid)

    def end(self, node_id: str) -> None:
        """Record that no more reports follow for this attempt."""
        course = self._course(node_id)
        if course is None or not course.reports:
            return
        if course.is_rerun:
            course.is_open = course.is_set_up = False
            return
        self._waiting[without_xdist_group(node_id)].popleft()
        self._record(course)

    def _course(self, node_id: str) -> _TestProgress | None:
        """The test's progress. None: not planned, or it has its result."""
        waiting = self._waiting.get(without_xdist_group(node_id))
        return waiting[0] if waiting else None

    def _record(self, course: _TestProgress) -> None:
        test = ended(course.reports)
        # Some attempts may have begun without a reported end; the last report is for the last one.
        last = max(course.begun, len(test.attempts))
        for number, result in enumerate(test.attempts[:-1], 1):
            self._end(self._attempt(course, number), result, final=False, course=course)
        attempt = self._attempt(course, last)
        kept = self._kept(attempt, test.texts)
        result = replace(test.attempts[-1], artifacts=kept)
        self._end(attempt, result, final=True, course=course)

    def _end(
        self, attempt: Attempt, result: AttemptResult, *, final: bool, course: _TestProgress
    ) -> None:
        self._ledger.record_end(
            attempt,
            self._without_secrets(result),
            final=final,
            queued_s=max(0.0, course.began_at - self._began) if course.began_at else None,
            on_durable=_nothing,
        )

    def _attempt(self, course: _TestProgress, number: int) -> Attempt:
        folder = self._ledger.attempt_folder(course.trial, number)
        return Attempt(trial=course.trial, number=number, folder=folder)

    # ---- stored data

    def _without_secrets(self, result: AttemptResult) -> AttemptResult:
        grades, error, text = result.grades, result.error, self._redactor.text
        return replace(
            result,
            grades=tuple(replace(grade, reason=text(grade.reason)) for grade in grades),
            error=None if error is None else replace(error, message=text(error.message)),
            notes=tuple(map(text, result.notes)),
            exchanges=self._redactor.data(result.exchanges),
        )

    def _kept(self, attempt: Attempt, texts: Mapping[str, str]) -> dict[str, str]:
        """Save the texts; return the path of each, relative to the run's folder."""
        if not texts:
            return {}
        kept = {}
        try:
            os.makedirs(attempt.folder, exist_ok=True)  # noqa: PTH103 - the folder is a str
            for name, text in texts.items():
                path = Path(attempt.folder, f"{name}.log")
                path.write_bytes(_bounded(self._redactor.text(text)))
                kept[name] = str(path.relative_to(self._ledger.folder))
        except OSError as error:
            self._failed(StoreError(f"test output could not be saved: {error}"))
        return kept

    # ---- the end of the session

    def close(self, *, why_not_all: str | None) -> None:
        """End the run. `why_not_all`: why tests were left out on purpose; None: they were not."""
        left = [course for waiting in self._waiting.values() for course in waiting]
        self._waiting = {}
        for course in left:
            if course.reports and course.reports[-1].when == "teardown" and not course.is_rerun:
                self._record(course)
            elif why_not_all is not None:
                self._skip(course, why_not_all)
        try:
            self._ledger.close(interrupted=why_not_all is None, held_back=why_not_all is not None)
        except StoreError as error:
            self._failed(error)

    def _skip(self, course: _TestProgress, reason: str) -> None:
        failure = Failure(kind=Outcome.SKIPPED, message=reason)
        result = AttemptResult(outcome=Outcome.SKIPPED, error=failure)
        attempt = self._attempt(course, course.begun + 1)
        self._end(attempt, result, final=False, course=course)


def _bounded(text: str) -> bytes:
    """Keep the end of a text that is too long: that is where tests fail."""
    content = text.encode(errors="backslashreplace")
    if len(content) <= LOG_LIMIT_BYTES:
        return content
    cut = f"[first {len(content) - LOG_LIMIT_BYTES:,} bytes omitted]\n"
    return cut.encode() + content[-LOG_LIMIT_BYTES:]


def _nothing() -> None: ...


# ---- reports as records


PHASES = ("setup", "call", "teardown")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRecord:
    """A finished test."""

    attempts: tuple[AttemptResult, ...]
    """In order; the last one decides."""
    texts: dict[str, str]
    """The non-empty ones of stdout, stderr, log and traceback, from the last attempt."""


def ended(reports: Sequence[pytest.TestReport]) -> TestRecord:
    """Build the record from a test's reports, in order; at least one."""
    data = next(filter(None, map(report_data_of, reversed(reports))), None)
    attempts = (_by_reports_alone(reports),) if data is None else (*data.earlier, data.result)
    last = _with_notes(_as_final(attempts[-1]), reports)
    return TestRecord(attempts=(*attempts[:-1], last), texts=_texts(reports))


def is_lost(report: pytest.TestReport) -> bool:
    """Whether the report means that the test's process died; no more reports follow."""
    return report.when not in PHASES


def _by_reports_alone(reports: Sequence[pytest.TestReport]) -> AttemptResult:
    seconds = sum(report.duration for report in reports)
    lost = next(filter(is_lost, reports), None)
    if lost is not None:
        died = Failure(kind=Outcome.CRASHED, message=crash_line(lost))
        return AttemptResult(outcome=Outcome.CRASHED, error=died, duration_s=seconds)
    outcome, failure = outcome_of([PhaseEnd(report=report) for report in reports])
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
    """Mark a skip as final: a test that skips itself does so every time."""
    if result.outcome is not Outcome.SKIPPED or result.error is None:
        return result
    return replace(result, error=replace(result.error, lasting=True))


def _with_notes(result: AttemptResult, reports: Sequence[pytest.TestReport]) -> AttemptResult:
    """Add failures after the deciding one as notes, mostly of a teardown."""
    failed = [report for report in reports if report.failed]
    notes = tuple(f"{report.when}: {crash_line(report)}" for report in failed[1:])
    return replace(result, notes=(*result.notes, *notes)) if notes else result


def _texts(reports: Sequence[pytest.TestReport]) -> dict[str, str]:
    # Each report includes the sections of the ones before it.
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
