"""What the scheduler is told of an attempt's end, and a person of what the scheduler decides."""

from __future__ import annotations

from paraval.isolation import WORKSPACE_NEED
from paraval.records import Attempt, AttemptResult, ChatTarget, Failure, Outcome
from paraval.schedule.messages import Ended, Held, Stopped

_NO_FAILURE = Failure(kind=Outcome.PASSED, message="")


def end_of(attempt: Attempt, result: AttemptResult, at: float) -> Ended:
    """What the scheduler has to know of an attempt's end."""
    error = result.error or _NO_FAILURE
    return Ended(
        at=at,
        index=attempt.trial.index,
        outcome=result.outcome,
        retry_after=error.retry_after,
        account=error.account,
        lasting=error.lasting,
        stops=error.stops,
        reason=error.message,
        uses=result.uses,
        cost_usd=_cost_usd(attempt, result),
        at_least_usd=sum(
            spend.known_usd for spend in (result.spend, result.judging) if spend is not None
        ),
        memory_bytes=result.memory_bytes,
    )


def _cost_usd(attempt: Attempt, result: AttemptResult) -> float | None:
    """What the attempt cost; None where a part of it is unknown."""
    if result.spend is None and not isinstance(attempt.trial.target, ChatTarget):
        # A program may have spent what it does not tell; a call that was not billed has not.
        return None
    spends = [spend for spend in (result.spend, result.judging) if spend is not None]
    costs = [spend.cost_usd for spend in spends if spend.cost_usd is not None]
    return sum(costs) if len(costs) == len(spends) else None


LIMIT = "limit"
"""What stands before the name of a need that is a limit of the run's own."""


def stop_words(stopped: Stopped) -> str:
    reason = stopped.reason.rstrip(".")
    kind, _, name = stopped.need.partition(":")
    if stopped.need == WORKSPACE_NEED or kind == LIMIT:
        return f"Stopped: {reason}. The trials are skipped; a resume runs them."
    return f"Stopped {kind} '{name}': {reason}. Its trials are skipped; a resume runs them."


def hold_words(held: Held, now: float) -> str:
    name = held.account.partition(":")[2]
    return f"Account '{name}' is rate limited; it waits {held.until - now:.0f} s."
