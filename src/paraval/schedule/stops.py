"""When nothing more can be done with an account or a model in a run, and why."""

from __future__ import annotations

from paraval.records import Outcome
from paraval.schedule.accounts import Account
from paraval.schedule.messages import Ended, Stopped

LONGEST_REFUSAL_S = 900.0
"""A service that says to come back later than this has run out of quota: not worth waiting for."""
MOST_REFUSALS_IN_A_ROW = 20
"""An account that refuses this often without an answer between is not worth waiting for either."""


def stopped_by(event: Ended, accounts: tuple[Account, ...]) -> Stopped | None:
    """What the end of an attempt puts an end to; its accounts have learned of it already."""
    if event.outcome.is_judged:
        return None
    if event.stops is not None:
        reason = event.reason or f"{called(event.stops)} cannot be used"
        return Stopped(need=event.stops, reason=reason)
    for account in accounts:
        if account.never_reached:
            reason = event.reason or f"{called(account.name)}: it cannot be reached"
            return Stopped(need=account.name, reason=reason)
        if account.name == event.account and event.outcome is Outcome.RATE_LIMITED:
            final = _why_final(account, event)
            if final is not None:
                return Stopped(need=account.name, reason=f"{called(account.name)}: {final}")
    return None


def _why_final(account: Account, refusal: Ended) -> str | None:
    held_s = max(account.held_until - refusal.at, refusal.retry_after or 0.0)
    if held_s > LONGEST_REFUSAL_S:
        return f"its quota is used up for {_span(held_s)}; resume after that"
    if account.refusals >= MOST_REFUSALS_IN_A_ROW:
        return f"it refused {account.refusals} times in a row; resume when it answers again"
    return None


def called(need: str) -> str:
    """`account:team-a` as messages call it."""
    kind, _, name = need.partition(":")
    return f"{kind} '{name}'" if name else need


def _span(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{hours:,.0f} h" if hours >= 1.5 else f"{seconds / 60.0:.0f} min"
