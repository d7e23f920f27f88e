"""Derives a test's outcome and its reason from its phases.

A failing assertion, or any other exception of the test itself, means that the test failed. A
failing fixture is no verdict. An outage, as detected by `outages`, is an error and never a failed
test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from paraval.pytest_plugin.models.spending import exchanges_of, spending_of
from paraval.pytest_plugin.models.spent import SPENDING
from paraval.records import (
    AccountUse,
    AttemptResult,
    Failure,
    Grade,
    Outcome,
    account_need,
    model_need,
)

LONGEST_LINE = 500
PASSED = Grade(score=1.0, passed=True, grader="pytest")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnd:
    """How one phase of a test ended."""

    report: pytest.TestReport
    error: BaseException | None = None
    """The exception raised in it; None: none, or no longer known."""


def is_plainly_passed(item: pytest.Item, phases: Sequence[PhaseEnd]) -> bool:
    """Whether its reports say everything: it passed, without a score of its own or model calls."""
    is_silent = _SCORE not in item.stash and SPENDING not in item.stash
    return is_silent and all(
        phase.report.passed and not hasattr(phase.report, "wasxfail") for phase in phases
    )


def result_of(item: pytest.Item, phases: Sequence[PhaseEnd], duration_s: float) -> AttemptResult:
    """A test's result for the engine and the store."""
    outcome, failure = outcome_of(phases, item)
    grades: tuple[Grade, ...] = ()
    if outcome is Outcome.PASSED:
        grades = (replace(PASSED, score=item.stash.get(_SCORE, 1.0)),)
    elif outcome is Outcome.FAILED:
        score = item.stash.get(_SCORE, 0.0)
        grades = (Grade(score=score, passed=False, grader="pytest", reason=_why(phases)),)
    spend, uses = spending_of(item)
    return AttemptResult(
        outcome=outcome,
        grades=grades,
        score=grades[0].score if grades else None,
        error=failure,
        duration_s=duration_s,
        spend=spend,
        uses=uses or _use_of(item, outcome),
        exchanges=exchanges_of(item),
    )


_SCORE = pytest.StashKey[float]()
SCORE_PROPERTY = "paraval_score"
"""In a report's `user_properties`: `confidence=0.95`."""


def record_score_of(item: pytest.Item, value: Any, name: str = "score") -> None:
    """Record a test's score; the last one counts. For the fixture `record_score`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise ValueError(f"record_score() takes a number from 0 to 1, not {value!r}")
    item.stash[_SCORE] = float(value)
    others = (one for one in item.user_properties if one[0] != SCORE_PROPERTY)
    item.user_properties[:] = [*others, (SCORE_PROPERTY, f"{name}={value:g}")]


def outcome_of(
    phases: Sequence[PhaseEnd], item: pytest.Item | None = None
) -> tuple[Outcome, Failure | None]:
    """Return the outcome, with a failure unless it is a verdict.

    The call's verdict stands, whatever happens in the teardown. `item`: its needs and marks
    determine the account of an outage; None: only the client does.
    """
    failed = [phase for phase in phases if phase.report.failed]
    if not failed:
        return _without_failure(phases)
    # The first failed phase decides.
    first = failed[0]
    outage = _outage(first, item)
    if outage is not None:
        return outage.kind, outage
    if first.report.when == "call":
        return Outcome.FAILED, None
    message = f"{first.report.when}: {crash_line(first.report)}"
    return Outcome.CRASHED, Failure(kind=Outcome.CRASHED, message=message, lasting=True)


def _without_failure(phases: Sequence[PhaseEnd]) -> tuple[Outcome, Failure | None]:
    for phase in phases:
        if phase.report.skipped:
            reason = _why_skipped(phase.report)
            return Outcome.SKIPPED, Failure(kind=Outcome.SKIPPED, message=reason)
    return Outcome.PASSED, None


def _why_skipped(report: pytest.TestReport) -> str:
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        reason = str(expected).removeprefix("reason: ").strip()
        return f"expected to fail: {reason}" if reason else "expected to fail"
    if isinstance(report.longrepr, tuple):
        return _short(report.longrepr[2].removeprefix("Skipped: ")) or "skipped"
    return crash_line(report)


def crash_line(report: pytest.TestReport) -> str:
    """The line that states the error, as in pytest's short summary."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr or "") if crash is None else crash.message
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "failed"
    # In a text that is not one of pytest's tracebacks, the last line says most.
    return _short(lines[-1] if crash is None else lines[0])


def _short(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"


def _why(phases: Sequence[PhaseEnd]) -> str:
    return next(crash_line(phase.report) for phase in phases if phase.report.failed)


# ---- outages


def _outage(phase: PhaseEnd, item: pytest.Item | None) -> Failure | None:
    if phase.error is None:
        return None
    # Imported here because runs without failures don't need it.
    from paraval.pytest_plugin.models.model_accounts import account_of, model_of, retry_mark_of
    from paraval.pytest_plugin.models.outages import OutageScope, outage_in

    outage = outage_in(phase.error)
    if outage is None:
        return None
    when = "" if phase.report.when == "call" else f"{phase.report.when}: "
    failure = Failure(
        kind=outage.kind,
        message=f"{when}{outage.message}",
        retry_after=outage.retry_after,
        lasting=outage.lasting,
        account=account_need(outage.client) if outage.client else None,
    )
    if item is None:
        return failure
    account, asked, stops = account_need(account_of(item, outage)), model_of(item), None
    # Tests that don't let the engine manage their account each report for themselves.
    if outage.stops is not None and retry_mark_of(item) is not None:
        model = None if asked is None else model_need(asked.name)
        stops = account if outage.stops is OutageScope.ACCOUNT else model
    return replace(failure, account=account, stops=stops)


def _use_of(item: pytest.Item, outcome: Outcome) -> tuple[AccountUse, ...]:
    """Count a marked test with a verdict as one request, so that limits can be learned."""
    if not outcome.is_judged or item.get_closest_marker("retry_rate_limits") is None:
        return ()
    from paraval.pytest_plugin.models.model_accounts import needs_of

    accounts = (need for need in needs_of(item) if need.startswith("account:"))
    return tuple(AccountUse(account=need, requests=1) for need in accounts)
