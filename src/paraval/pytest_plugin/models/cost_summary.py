"""What the tests of a run spent on models, by model and in all, for the end of pytest's summary."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add

from paraval.amounts import dollars
from paraval.records import Spend

IN_ALL = "in all"


def lines(by_model: Mapping[str, Spend]) -> list[str]:
    """A line for each model, the dearest first, and one in all; none where nothing was asked."""
    told = [(name, spend) for name, spend in by_model.items() if spend.calls]
    if not told:
        return []
    spends = sorted(told, key=lambda one: (-one[1].known_usd, one[0]))
    if len(spends) > 1:
        spends.append((IN_ALL, reduce(add, by_model.values())))
    rows = [(name, _calls(spend), _tokens(spend), _cost(spend)) for name, spend in spends]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        f"{name:<{widths[0]}}  {calls:>{widths[1]}}  {tokens:<{widths[2]}}  {cost}"
        for name, calls, tokens, cost in rows
    ]


def _calls(spend: Spend) -> str:
    return f"{spend.calls:,} {'call' if spend.calls == 1 else 'calls'}"


def _tokens(spend: Spend) -> str:
    usage = spend.usage
    if "input_tokens" not in usage:
        return "tokens unknown"
    cached = usage.get("cached_tokens")
    part = f" ({cached:,.0f} cached)" if cached else ""
    return f"{usage['input_tokens']:,.0f} in{part}, {usage.get('output_tokens', 0):,.0f} out"


def _cost(spend: Spend) -> str:
    if spend.cost_usd is not None:
        return dollars(spend.cost_usd)
    return f"at least {dollars(spend.known_usd)}" if spend.known_usd else "cost unknown"
