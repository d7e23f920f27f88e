"""Limits that a provider does not announce, in virtual time: how well they are used, and how seldom
it has to refuse."""

from __future__ import annotations

import functools
import heapq
import math
import os
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st

from paraval.records import (
    AccountLimits,
    AccountUse,
    FoundLimit,
    Limits,
    Outcome,
    RetryPolicy,
)
from paraval.schedule.messages import Work
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import ImagineAt, SimulatedEnd, Trace, simulate_at

# ---- simulated providers


@dataclass(frozen=True, slots=True)
class Request:
    """One that was accepted."""

    at: float
    size: float
    """In tokens; or 1, where only their number counts."""
    takes_s: float

    def seconds_in(self, start: float, end: float) -> float:
        return max(0.0, min(end, self.at + self.takes_s) - max(start, self.at))


@dataclass(slots=True)
class Limit:
    per_s: float
    """What it allows."""
    period_s: float = 1.0
    """It allows the same in each."""

    def accept(self, request: Request) -> float:
        """0: it is accepted; or how long until it would be."""
        raise NotImplementedError

    def use(self, request: Request, start: float, end: float) -> float:
        """How much the request takes of what is allowed in this time."""
        return request.size if start <= request.at < end else 0.0


@dataclass(slots=True, kw_only=True)
class Bucket(Limit):
    """What is larger than the bucket is taken from a full one."""

    burst: float
    level: float = 0.0
    _at: float = 0.0

    def accept(self, request: Request) -> float:
        inflow = (request.at - self._at) * self.per_s
        self.level, self._at = min(self.burst, self.level + inflow), request.at
        missing = min(request.size, self.burst) - self.level
        if missing > 1e-9 * self.burst:
            return missing / self.per_s
        self.level -= request.size
        return 0.0


@dataclass(slots=True)
class SlidingWindow(Limit):
    """The same number of requests in any period."""

    _times: deque[float] = field(default_factory=deque)

    def accept(self, request: Request) -> float:
        while self._times and request.at - self._times[0] >= self.period_s:
            self._times.popleft()
        if len(self._times) >= round(self.per_s * self.period_s):
            return self._times[0] + self.period_s - request.at
        self._times.append(request.at)
        return 0.0


@dataclass(slots=True)
class FixedWindow(Limit):
    """They are counted from zero at each full minute, say."""

    _period: int = -1
    _count: int = 0

    def accept(self, request: Request) -> float:
        period = int(request.at / self.period_s)
        if period != self._period:
            self._period, self._count = period, 0
        if self._count >= round(self.per_s * self.period_s):
            return (period + 1) * self.period_s - request.at
        self._count += 1
        return 0.0


@dataclass(slots=True)
class AtOnce(Limit):
    """A number at the same time; so many seconds of requests in a second."""

    _ends: list[float] = field(default_factory=list)

    def accept(self, request: Request) -> float:
        while self._ends and self._ends[0] <= request.at:
            heapq.heappop(self._ends)
        if len(self._ends) >= self.per_s:
            return self._ends[0] - request.at
        heapq.heappush(self._ends, request.at + request.takes_s)
        return 0.0

    def use(self, request: Request, start: float, end: float) -> float:
        return request.seconds_in(start, end)


RETRY_AFTER: Mapping[str, Callable[[float], float | None]] = {
    "none": lambda _: None,
    "exact": lambda wait_s: wait_s,
    "rounded up": math.ceil,
    "always 1": lambda _: 1.0,
}


@dataclass(slots=True, kw_only=True)
class Provider:
    """Of a model, or of an account."""

    limit: Limit | None
    """None: it accepts everything."""
    account: str = "account:a"
    retry_after: str = "rounded up"
    latency_s: float = 0.3
    sigma: float = 0.3
    refuses_in_s: float = 0.02
    sizes: Sequence[float] = (1.0,)
    """By index of the trial, and then from the first again."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    accepted: list[Request] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    def __call__(self, now: float, index: int, number: int) -> SimulatedEnd:
        takes_s = self.latency_s * math.exp(self.chance.gauss(0.0, self.sigma))
        request = Request(now, self.sizes[index % len(self.sizes)], takes_s)
        wait_s = 0.0 if self.limit is None else self.limit.accept(request)
        if wait_s > 0.0:
            self.refused.append(now)
            retry_after = RETRY_AFTER[self.retry_after](wait_s)
            return refusal(self.account, self.refuses_in_s, retry_after)
        self.accepted.append(request)
        use = AccountUse(account=self.account, requests=1, tokens=request.size)
        return SimulatedEnd(duration_s=takes_s, uses=(use,))

    @property
    def mean_s(self) -> float:
        """How long requests take on average."""
        return self.latency_s * math.exp(0.5 * self.sigma**2)

    @property
    def last_at(self) -> float:
        """When the last request was accepted."""
        return self.accepted[-1].at

    def used(self, start: float, end: float) -> float:
        """The share that was used of what the limit allows in this time."""
        assert self.limit is not None
        used = sum(self.limit.use(one, start, end) for one in self.accepted)
        return used / self.limit.per_s / (end - start)

    @property
    def last_half(self) -> tuple[float, float]:
        """In whole periods, since all that a period allows may be used in a moment."""
        assert self.limit is not None
        periods = math.ceil(0.5 * self.last_at / self.limit.period_s)
        return self.last_at - periods * self.limit.period_s, self.last_at

    @property
    def refused_in_vain(self) -> int:
        """Those that could have been avoided: the first was known when they were sent."""
        known_at = min(self.refused, default=0.0) + self.refuses_in_s
        return sum(at > known_at for at in self.refused)


def refusal(account: str, takes_s: float, retry_after: float | None) -> SimulatedEnd:
    use = AccountUse(account=account, requests=1, refused=True, retry_after=retry_after)
    return SimulatedEnd(
        duration_s=takes_s,
        outcome=Outcome.RATE_LIMITED,
        retry_after=retry_after,
        account=account,
        uses=(use,),
    )


def trials(count: int, *needs: str, first: int = 0) -> list[Work]:
    return [Work(index=first + index, needs=needs or ("account:a",)) for index in range(count)]


PARALLEL = 100


def play(
    works: Sequence[Work],
    imagine: ImagineAt,
    *,
    accounts: Mapping[str, AccountLimits] | None = None,
    found: Mapping[str, FoundLimit] | None = None,
    seed: int = 0,
    parallel: int = PARALLEL,
) -> Trace:
    """A run to its end."""
    limits = Limits(parallel=parallel, accounts=accounts or {})
    machine = Scheduler(works, limits=limits, retry=RetryPolicy(), seed=seed, found=found)
    trace = simulate_at(machine, imagine)
    assert not trace.stopped
    assert not trace.skipped
    assert sorted(trace.concluded) == sorted(work.index for work in works)
    return trace


# ---- any limit

MOST_TRIALS = 3000
LARGEST_BURST = 1000.0
"""In requests: where a burst is enough for a run, it meets no limit."""
TOKENS = 1000.0
"""Of a request, on average."""


def some_bucket(chance: random.Random, rate: float, size: float) -> Bucket:
    least = 1.0 if size == 1.0 else 5.0
    burst = chance.choice([1.0, 0.1 * rate, rate, 10.0 * rate, 60.0 * rate])
    burst = size * min(LARGEST_BURST, max(least, burst))
    return Bucket(size * rate, burst=burst, level=burst * chance.choice([0.0, 1.0]))


FASTEST = 200.0
"""Requests a second."""


def some_provider(seed: int) -> Provider:
    """A new one, the same for the same seed."""
    chance = random.Random(seed)
    rate = math.exp(chance.uniform(math.log(0.2), math.log(FASTEST)))
    period_s = chance.choice([1.0, 10.0 if rate < 20.0 else 1.0, 60.0 if rate < 3.0 else 1.0])
    whole = max(1, round(rate * period_s)) / period_s
    latency_s = chance.choice([0.05, 0.2, 0.5, 1.0, 3.0])
    sizes, limit = [1.0], Limit(rate)
    match chance.choice(["bucket", "bucket", "tokens", "sliding", "fixed", "at once"]):
        case "bucket":
            limit = some_bucket(chance, rate, 1.0)
        case "tokens":
            limit = some_bucket(chance, rate, TOKENS)
            spread = chance.choice([0.0, 0.5])
            mean = math.log(TOKENS) - 0.5 * spread**2
            sizes = [chance.lognormvariate(mean, spread) for _ in range(1000)]
        case "sliding":
            limit = SlidingWindow(whole, period_s)
        case "fixed":
            limit = FixedWindow(whole, period_s)
        case "at once":
            limit = AtOnce(chance.randint(1, min(60, int(FASTEST * latency_s))))
    return Provider(
        limit=limit,
        retry_after=chance.choice(list(RETRY_AFTER)),
        latency_s=latency_s,
        sigma=chance.choice([0.0, 0.3, 0.8]),
        refuses_in_s=min(latency_s, chance.choice([0.01, 0.05, 0.2])),
        sizes=sizes,
        chance=chance,
    )


def number_of_trials(provider: Provider, seed: int) -> int:
    """As many as it allows in a few minutes."""
    limit = provider.limit
    assert limit is not None
    use = provider.mean_s if isinstance(limit, AtOnce) else statistics.mean(provider.sizes)
    at_first = limit.level / use if isinstance(limit, Bucket) else 0.0
    seconds = random.Random(seed + 0.5).choice([60.0, 120.0, 300.0])
    seconds = max(seconds, 10.0 * limit.period_s)
    then = seconds * min(limit.per_s / use, PARALLEL / provider.mean_s)
    return int(at_first + min(MOST_TRIALS, max(200.0, then)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of a run that had to find the limit of a provider."""

    used: float
    """Of what it allows in the last half of the run; or of the slots, where they are too few."""
    requests: int
    refused_in_vain: int
    took_s: float
    four_take_s: float
    """Four callers, each with one request after another."""


@functools.cache
def figures_of(seed: int) -> Figures:
    provider = some_provider(seed)
    count = number_of_trials(provider, seed)
    play(trials(count), provider, seed=seed)
    assert len(provider.accepted) == count
    start, end = provider.last_half
    slots = sum(one.seconds_in(start, end) for one in provider.accepted) / PARALLEL / (end - start)
    return Figures(
        used=min(1.0, max(provider.used(start, end), slots)),
        requests=count + len(provider.refused),
        refused_in_vain=provider.refused_in_vain,
        took_s=end,
        four_take_s=four_take_s(some_provider(seed), count),
    )


def four_take_s(provider: Provider, count: int) -> float:
    """Four callers who wait as they are told; if told nothing, they back off exponentially."""
    chance = random.Random(1)
    callers = [(0.0, caller, 0) for caller in range(4)]
    indices = iter(range(count))
    asking = [next(indices) for _ in callers]
    while callers:
        now, caller, refusals = heapq.heappop(callers)
        end = provider(now, asking[caller], 1)
        wait_s = 0.0
        if end.outcome is Outcome.RATE_LIMITED:
            refusals += 1
            backoff_s = 2.0 ** min(6, refusals - 1) * chance.uniform(0.5, 1.0)
            wait_s = backoff_s if end.retry_after is None else end.retry_after
        elif (following := next(indices, None)) is not None:
            asking[caller], refusals = following, 0
        else:
            continue
        heapq.heappush(callers, (now + end.duration_s + wait_s, caller, refusals))
    return provider.last_at


LEAST_USED = 0.6
MOST_REFUSED = 0.15
BEFORE_IT_IS_FOUND = 50
MOST_OF_FOUR = 1.5
SEEDS = 2000
"""The bounds hold for all of these, with some room."""


@given(st.integers(0, SEEDS - 1))
@settings(
    max_examples=int(os.environ.get("PARAVAL_EXAMPLES", "25")),
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
def test_any_limit_is_found_and_used_with_few_refusals(seed: int) -> None:
    figures = figures_of(seed)
    assert figures.used >= LEAST_USED
    assert figures.refused_in_vain <= MOST_REFUSED * figures.requests + BEFORE_IT_IS_FOUND
    assert figures.took_s <= MOST_OF_FOUR * figures.four_take_s + 10.0


def test_nearly_all_of_what_is_allowed_is_used_of_nearly_all_limits() -> None:
    used = [figures_of(seed).used for seed in range(60)]
    assert statistics.mean(used) >= 0.93
    assert sum(one >= 0.85 for one in used) >= 0.9 * len(used)


# ---- models of one account

A = "account:a"


def call_of(model: str, account: str = A) -> str:
    return f"{account} model:{model}"


def needs_of(*models: str, account: str = A) -> tuple[str, ...]:
    calls = {call_of(model, account) for model in models}
    return tuple(sorted({account, *calls, *(f"model:{model}" for model in models)}))


ACCOUNTS = {
    name: AccountLimits()
    for account in (A, "account:b")
    for name in (account, *(call_of(model, account) for model in "xyz"))
}

LIMITS: Mapping[str, Callable[[], Limit]] = {
    "a bucket": lambda: Bucket(20.0, burst=20.0),
    "a small bucket": lambda: Bucket(20.0, burst=1.0),
    "a sliding window": lambda: SlidingWindow(20.0, 5.0),
    "a fixed window": lambda: FixedWindow(20.0, 1.0),
    "a number at once": lambda: AtOnce(6.0),
}


def calling(providers_of: Callable[[int], Sequence[Provider]]) -> ImagineAt:
    """A trial asks its models one after another; a refusal ends its attempt."""

    def imagine(now: float, index: int, number: int) -> SimulatedEnd:
        took_s = 0.0
        uses: tuple[AccountUse, ...] = ()
        end = SimulatedEnd(duration_s=0.0)
        for provider in providers_of(index):
            end = provider(now + took_s, index, number)
            took_s += end.duration_s
            uses += end.uses
            if end.outcome is Outcome.RATE_LIMITED:
                break
        return replace(end, duration_s=took_s, uses=uses)

    return imagine


def last_end(trace: Trace, works: Iterable[Work]) -> float:
    indices = {work.index for work in works}
    return max(span.end for span in trace.spans if span.index in indices)


def of_model(model: str, limit: Limit | None = None, account: str = A, **how: Any) -> Provider:
    return Provider(limit=limit, account=call_of(model, account), **how)


@pytest.mark.parametrize("retry_after", ["none", "always 1"])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_models_limit_slows_down_no_other_model_of_its_account(
    limit: str, retry_after: str
) -> None:
    limited = trials(800, *needs_of("x"))
    others = trials(1000, *needs_of("y"), first=800) + trials(1000, *needs_of("z"), first=1800)
    x = of_model("x", LIMITS[limit](), retry_after=retry_after)
    y, z = of_model("y", latency_s=0.5), of_model("z", latency_s=1.0)
    ask = calling(lambda index: [x if index < 800 else y if index < 1800 else z])
    alone = play(others, ask, accounts=ACCOUNTS)
    together = play([*limited, *others], ask, accounts=ACCOUNTS)
    assert last_end(together, others) <= 1.2 * last_end(alone, others)
    assert x.used(*x.last_half) >= 0.85
    assert x.refused_in_vain <= 0.05 * 800
