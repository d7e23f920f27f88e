"""What a test's last report tells beside pytest's own words: `report.paraval`, plain data.

So it survives the way from one of xdist's workers to the controller. Made by `telling`, read by
`recording` and `history`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from paraval.records import AttemptResult, Failure, Grade, Outcome, Spend

ATTRIBUTE = "paraval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How a test ended, by all that its own process knew of it."""

    result: AttemptResult
    earlier: tuple[AttemptResult, ...] = ()
    """Its attempts before this one, in their order: refused by a rate limit, and tried again."""
    alone: str | None = None
    """Why it had to have the floor for itself, although nothing told before."""


def attach(report: pytest.TestReport, told: Told) -> None:
    data = {
        "result": _as_data(told.result),
        "earlier": [_as_data(result) for result in told.earlier],
        "alone": told.alone,
    }
    setattr(report, ATTRIBUTE, data)


def told_by(report: pytest.TestReport) -> Told | None:
    """None: its process knew nothing more, or did not live to tell it."""
    data = getattr(report, ATTRIBUTE, None)
    if not isinstance(data, dict):
        return None
    return Told(
        result=_from_data(data["result"]),
        earlier=tuple(map(_from_data, data["earlier"])),
        alone=data["alone"],
    )


def _as_data(result: AttemptResult) -> dict[str, Any]:
    """Exactly the types that travel: an enum that is a text, too, is none of them."""
    error, spend = result.error, result.spend
    return {
        "outcome": result.outcome.value,
        "duration_s": float(result.duration_s),
        "reasons": [grade.reason for grade in result.grades],
        "notes": list(result.notes),
        "error": None
        if error is None
        else {
            "message": error.message,
            "retry_after": error.retry_after,
            "account": error.account,
            "lasting": error.lasting,
        },
        "spend": None
        if spend is None
        else {
            "calls": spend.calls,
            "cached": spend.cached,
            "cost_usd": spend.cost_usd,
            "part_usd": spend.part_usd,
            "usage": dict(spend.usage),
        },
    }


def _from_data(data: dict[str, Any]) -> AttemptResult:
    outcome = Outcome(data["outcome"])
    passed, error, spend = outcome is Outcome.PASSED, data["error"], data["spend"]
    score = float(passed) if outcome.is_judged else None
    return AttemptResult(
        outcome=outcome,
        grades=tuple(
            Grade(score=float(passed), passed=passed, grader="pytest", reason=reason)
            for reason in data["reasons"]
        ),
        score=score,
        error=None if error is None else Failure(kind=outcome, **error),
        duration_s=data["duration_s"],
        notes=tuple(data["notes"]),
        spend=None if spend is None else Spend(**spend),
    )
