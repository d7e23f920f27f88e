"""Spending of attempts, from their stored content: summed per trial, per run and over runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from paraval.records import AttemptResult, Outcome, Spend
from paraval.store.encoding import content_of


class Spent(NamedTuple):
    """Spending on the target, and on judges; None if unknown."""

    target: Spend | None = None
    judging: Spend | None = None


def spent_in(content: str) -> Spent:
    """An attempt's spending from its stored content; fast enough for very many."""
    if '"cost_usd"' not in content:
        return Spent()
    result = AttemptResult(outcome=Outcome.PASSED, **content_of(content))
    return Spent(result.told_spend, result.judging)


def known_usd(spent: Spent) -> float:
    """The known spending; 0 if no price is known."""
    costs = (spend.known_usd for spend in spent if spend is not None)
    return math.fsum(cost for cost in costs if math.isfinite(cost))


def whole_usd(spent: Spent) -> float | None:
    """The spending if all of it is known."""
    costs = [spend.cost_usd for spend in spent if spend is not None]
    if not costs or any(cost is None or not math.isfinite(cost) for cost in costs):
        return None
    return known_usd(spent)


def tokens_of(spend: Spend | None) -> float | None:
    """Input plus output tokens; None if neither is known."""
    told = [] if spend is None else [spend.usage.get(name) for name in _TOKENS]
    amounts = [amount for amount in told if amount is not None and math.isfinite(amount)]
    return math.fsum(amounts) if amounts else None


class Sum(NamedTuple):
    """Total spending of attempts, judges included: the known part, and whether it is complete."""

    usd: float = 0.0
    is_partly_unknown: bool = False


def sum_of(contents: Iterable[str | None]) -> Sum:
    """From the attempts' stored contents; None for one that never ended."""
    spends: list[Spend] = []
    unended = False
    for content in contents:
        unended = unended or content is None
        spends += [spend for spend in spent_in(content or "") if spend is not None]
    unknown = any(spend.cost_usd is None for spend in spends) or (unended and bool(spends))
    return Sum(math.fsum(known_usd(Spent(spend)) for spend in spends), unknown)


def is_from_cache(spend: Spend | None) -> bool:
    """Whether every answer came from the cache, at no time or cost."""
    return spend is not None and spend.cached > 0 and spend.calls == 0


def is_carried_over(spent: Spent) -> bool:
    """Whether only a judge was called, on an answer that an earlier attempt had paid for."""
    return spent.judging is not None and spent.target == Spend()


_TOKENS = ("input_tokens", "output_tokens")
