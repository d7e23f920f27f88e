"""What a test spent on models, stored with the test and added to its last report.

Lightweight, since every test checks it; `usage` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add
from threading import Lock
from typing import Any

import pytest

from paraval.pytest_plugin.models.spent import PROPERTY, SPENDING
from paraval.records import AccountUse, Exchange, Spend
from paraval.text.words import dollars

MOST_EXCHANGES = 100
"""Of one test; more would be a load test, whose calls no one reads."""


class SpendRecorder:
    """What one test spent by model, in this attempt and in earlier ones."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._lock = Lock()
        """Guards all below, and the item's property: a test's threads may call models."""
        self._now: dict[str, Spend] = {}
        self._before: dict[str, Spend] = {}
        self._uses: list[AccountUse] = []
        self._exchanges: list[Exchange] = []
        self._goes_on = False
        """True: the previous attempt was not reported, so the next report includes it."""

    def add(self, model: str, spend: Spend, use: AccountUse | None = None) -> None:
        with self._lock:
            if use is not None:
                self._uses.append(use)
            if spend.calls:
                self._now[model] = self._now.get(model, Spend()) + spend
                self._update_property()

    def add_exchange(self, exchange: Exchange) -> None:
        with self._lock:
            if len(self._exchanges) < MOST_EXCHANGES:
                self._exchanges.append(exchange)

    def exchanges(self) -> tuple[Exchange, ...]:
        """What this attempt asked models, and what they replied."""
        with self._lock:
            return tuple(self._exchanges)

    def by_model(self) -> dict[str, Spend]:
        """Spending of this attempt."""
        with self._lock:
            return dict(self._now)

    def uses(self) -> tuple[AccountUse, ...]:
        with self._lock:
            uses = tuple(self._uses)
        if not uses:
            return ()
        from paraval.models.requests import merged_uses

        return merged_uses(uses)

    def begin_again(self) -> None:
        """Start a retry whose earlier attempts are not reported: the test sees only its new
        spending, but its report includes all."""
        with self._lock:
            self._before = summed((self._before, self._now))
            self._now = {}
            self._uses = []
            self._exchanges = []
            self._goes_on = True

    def begin(self) -> None:
        """Start an attempt. Drop earlier ones if reported, as pytest-rerunfailures does."""
        with self._lock:
            if self._goes_on:
                self._goes_on = False
                return
            self._now, self._before, self._uses, self._exchanges = {}, {}, [], []
            self._update_property()

    def _update_property(self) -> None:
        """Update the property with all attempts that the report covers."""
        spends = summed((self._before, self._now))
        own = [(PROPERTY, _as_text(spends))] if spends else []
        properties = self._item.user_properties
        properties[:] = [*(one for one in properties if one[0] != PROPERTY), *own]


def spending_of(item: pytest.Item) -> tuple[Spend | None, tuple[AccountUse, ...]]:
    """Total spending and account usage of this attempt; None: it called no model."""
    spending: SpendRecorder | None = item.stash.get(SPENDING, None)
    if spending is None:
        return None, ()
    spends = spending.by_model()
    return (reduce(add, spends.values()) if spends else None), spending.uses()


def exchanges_of(item: pytest.Item) -> tuple[Exchange, ...]:
    """What this attempt asked models through the `model` fixture."""
    spending: SpendRecorder | None = item.stash.get(SPENDING, None)
    return () if spending is None else spending.exchanges()


def begin_again(item: pytest.Item) -> None:
    """Prepare another attempt of a test."""
    spending = item.stash.get(SPENDING, None)
    if spending is not None:
        spending.begin_again()


def spends_in(properties: Iterable[tuple[str, object]]) -> dict[str, Spend]:
    """Read spending by model from a report's `user_properties`, even from another process."""
    text = next((value for name, value in properties if name == PROPERTY), None)
    if not isinstance(text, str):
        return {}
    try:
        return {name: _spend(each) for name, each in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, KeyError):
        return {}  # A property of the same name that a test wrote itself.


def with_earlier(
    properties: Iterable[tuple[str, object]], earlier: Iterable[tuple[str, object]]
) -> list[tuple[str, object]]:
    """Add what earlier attempts of a test spent, by their properties."""
    properties = list(properties)
    spends = summed((spends_in(earlier), spends_in(properties)))
    own = [(PROPERTY, _as_text(spends))] if spends else []
    return [*(one for one in properties if one[0] != PROPERTY), *own]


def summed(each: Iterable[Mapping[str, Spend]]) -> dict[str, Spend]:
    total: dict[str, Spend] = {}
    for spends in each:
        for model, spend in spends.items():
            total[model] = total.get(model, Spend()) + spend
    return total


def _as_text(spends: Mapping[str, Spend]) -> str:
    data: dict[str, Any] = {}
    for model, one in spends.items():
        part = {"part_usd": one.part_usd} if one.part_usd else {}
        data[model] = {"calls": one.calls, "cost_usd": one.cost_usd, **part, **one.usage}
    return json.dumps(data)


def _spend(data: Mapping[str, Any]) -> Spend:
    usage = {name: amount for name, amount in data.items() if name.endswith("_tokens")}
    part_usd = data.get("part_usd", 0.0)
    return Spend(calls=data["calls"], cost_usd=data["cost_usd"], part_usd=part_usd, usage=usage)


# ---- lines in pytest's summary


def summary_lines(by_model: Mapping[str, Spend]) -> list[str]:
    """One line per model, the most expensive first, and a total; none without calls."""
    called = [(name, spend) for name, spend in by_model.items() if spend.calls]
    if not called:
        return []
    spends = sorted(called, key=lambda one: (-one[1].known_usd, one[0]))
    if len(spends) > 1:
        spends.append(("total", reduce(add, by_model.values())))
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
