"""What decides the end of a run: for each limit, how long the whole plan takes through it at least.

`paraval plan` tells by this which limit is worth changing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paraval.records import AccountLimits, Limits
from paraval.schedule.messages import Work, draws_of

PARALLEL = "parallel"
ALONE = "what runs alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A run cannot end sooner than this, because of that."""

    name: str
    """`parallel`, `what runs alone`, a limit's or an account's name as among the needs, or
    `longest trial`."""
    seconds: float
    text: str
    """What limits: `300 requests a minute`."""
    is_rate: bool = False
    """True: it holds however long trials take."""


@dataclass(slots=True)
class _Load:
    """All that has to pass through a limit."""

    seconds: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0


def bounds(works: Sequence[Work], limits: Limits) -> tuple[Bound, ...]:
    """Every bound of a plan, the one that decides first."""
    if not works:
        return ()
    found = [
        _bound_of_slots(works, limits),
        Bound(
            name="longest trial",
            seconds=max(work.expected_s for work in works),
            text="the longest trial",
        ),
    ]
    for name, load in sorted(_loads(works).items()):
        found.extend(_bounds_of(name, load, limits))
    return tuple(sorted(found, key=lambda bound: -bound.seconds))


def _bound_of_slots(works: Sequence[Work], limits: Limits) -> Bound:
    """What runs alone comes on top of what does not; it is named after what takes longer."""
    alone_s = sum(work.expected_s for work in works if work.exclusive)
    shared_s = (sum(work.expected_s for work in works) - alone_s) / max(1, limits.parallel)
    if alone_s > shared_s:
        return Bound(name=ALONE, seconds=shared_s + alone_s, text="one at a time")
    return Bound(name=PARALLEL, seconds=shared_s + alone_s, text=f"{limits.parallel} at once")


def _loads(works: Sequence[Work]) -> dict[str, _Load]:
    loads: dict[str, _Load] = defaultdict(_Load)
    for work in works:
        for need in work.needs:
            loads[need].seconds += work.expected_s
        for draw in draws_of(work):
            loads[draw.account].requests += draw.requests
            loads[draw.account].tokens += draw.tokens
    return loads


def _bounds_of(name: str, load: _Load, limits: Limits) -> Iterator[Bound]:
    if name in limits.named:
        capacity = max(1, min(limits.named[name], limits.parallel))
        yield Bound(
            name=name, seconds=load.seconds / capacity, text=f"{limits.named[name]} at once"
        )
    known = limits.accounts.get(name, AccountLimits())
    if known.concurrent:
        capacity = max(1, min(known.concurrent, limits.parallel))
        yield Bound(name=name, seconds=load.seconds / capacity, text=f"{known.concurrent} at once")
    if known.requests_per_minute:
        yield Bound(
            name=name,
            seconds=60.0 * load.requests / known.requests_per_minute,
            text=f"{known.requests_per_minute:,g} requests a minute",
            is_rate=True,
        )
    if known.tokens_per_minute:
        yield Bound(
            name=name,
            # The first minute's worth may be taken at once.
            seconds=max(0.0, 60.0 * load.tokens / known.tokens_per_minute - 60.0),
            text=f"{known.tokens_per_minute:,.0f} tokens a minute",
            is_rate=True,
        )
