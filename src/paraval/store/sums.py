"""What attempts spent, as their ends tell it: for sums over a trial, a run, and earlier runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from paraval.records import AttemptResult, Outcome, Spend
from paraval.store.encoding import content_of


class Spent(NamedTuple):
    """On the target, and on judges; None where nothing is known of it."""

    target: Spend | None = None
    judging: Spend | None = None


def spent_in(content: str) -> Spent:
    """What an attempt spent, from its stored content; for very many of them."""
    if '"cost_usd"' not in content:
        return Spent()
    result = AttemptResult(outcome=Outcome.PASSED, **content_of(content))
    return Spent(result.told_spend, result.judging)


def known_usd(spent: Spent) -> float:
    """What is known to be spent: nothing, where the price is not."""
    costs = (spend.known_usd for spend in spent if spend is not None)
    return math.fsum(cost for cost in costs if math.isfinite(cost))


def whole_usd(spent: Spent) -> float | None:
    """What was spent, if all of it is known."""
    costs = [spend.cost_usd for spend in spent if spend is not None]
    if not costs or any(cost is None or not math.isfinite(cost) for cost in costs):
        return None
    return known_usd(spent)


def tokens_of(spend: Spend | None) -> float | None:
    """Input and output together; None where neither was told."""
    told = [] if spend is None else [spend.usage.get(name) for name in _TOKENS]
    amounts = [amount for amount in told if amount is not None and math.isfinite(amount)]
    return math.fsum(amounts) if amounts else None


class Sum(NamedTuple):
    """What attempts spent together, judges included: what is known, and whether that is all."""

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
    """Whether every answer came from the cache: it took no time and cost nothing."""
    return spend is not None and spend.cached > 0 and spend.calls == 0


def is_carried_over(spent: Spent) -> bool:
    """Whether only a judge was asked, on an answer that an earlier attempt had paid for."""
    return spent.judging is not None and spent.target == Spend()


_TOKENS = ("input_tokens", "output_tokens")
