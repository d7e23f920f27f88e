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

MOST_TRIALS = 2500
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


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds for the worst of all seeds, with some room."""

    used: float
    of_four: float


# One request at a time looks like a rate, which depends on how long each request takes.
BOUNDS_AT_ONCE = Bounds(used=0.2, of_four=3.6)
BOUNDS = Bounds(used=0.3, of_four=1.6)
MOST_REFUSED = 0.15
BEFORE_IT_IS_FOUND = 70
SEEDS = 2000
"""As many were tried."""


EXAMPLES = int(os.environ.get("PARAVAL_EXAMPLES", "25"))


@pytest.mark.timeout(300 + EXAMPLES)
@given(st.integers(0, SEEDS - 1))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    # A smaller seed is not a simpler example.
    phases=[Phase.explicit, Phase.generate],
)
def test_any_limit_is_found_and_no_run_starves_or_is_refused_all_the_time(seed: int) -> None:
    figures = figures_of(seed)
    bounds = BOUNDS_AT_ONCE if isinstance(some_provider(seed).limit, AtOnce) else BOUNDS
    assert figures.used >= bounds.used
    assert figures.took_s <= bounds.of_four * figures.four_take_s + 10.0
    assert figures.refused_in_vain <= MOST_REFUSED * figures.requests + BEFORE_IT_IS_FOUND


def test_most_limits_are_used_nearly_in_full_with_few_refusals() -> None:
    sample = [figures_of(seed) for seed in range(60)]
    assert statistics.mean(one.used for one in sample) >= 0.93
    assert sum(one.used >= 0.85 for one in sample) >= 0.88 * len(sample)
    few = [one for one in sample if one.refused_in_vain <= 0.05 * one.requests + 10]
    assert len(few) >= 0.9 * len(sample)
    # With no more effort than a loop over the trials takes.
    quick = [one for one in sample if one.took_s <= one.four_take_s + 10.0]
    assert len(quick) >= 0.8 * len(sample)


# ---- models of one account

A = "account:a"
B = "account:b"


def call_of(model: str, account: str = A) -> str:
    return f"{account} model:{model}"


def needs_of(*models: str, account: str = A) -> tuple[str, ...]:
    """As in a plan."""
    calls = (call_of(model, account) for model in models)
    return tuple(sorted({account, *calls, *(f"model:{model}" for model in models)}))


ACCOUNTS = {
    name: AccountLimits()
    for account in (A, B)
    for name in (account, *(call_of(model, account) for model in "xyz"))
}


def of_model(
    model: str,
    limit: Limit | None = None,
    *,
    account: str = A,
    latency_s: float = 0.3,
    sigma: float = 0.3,
    retry_after: str = "rounded up",
) -> Provider:
    return Provider(
        limit=limit,
        account=call_of(model, account),
        latency_s=latency_s,
        sigma=sigma,
        retry_after=retry_after,
    )


def calling(models_of: Callable[[int], Sequence[Provider]]) -> ImagineAt:
    """A trial asks its models one after another; a refusal ends its attempt."""

    def imagine(now: float, index: int, number: int) -> SimulatedEnd:
        took_s = 0.0
        uses: tuple[AccountUse, ...] = ()
        end = SimulatedEnd(duration_s=0.0)
        for model in models_of(index):
            end = model(now + took_s, index, number)
            took_s += end.duration_s
            uses += end.uses
            if end.outcome is Outcome.RATE_LIMITED:
                break
        return replace(end, duration_s=took_s, uses=uses)

    return imagine


def last_end(trace: Trace, works: Iterable[Work]) -> float:
    indices = {work.index for work in works}
    return max(span.end for span in trace.spans if span.index in indices)


LIMITS: Mapping[str, Callable[[float], Limit]] = {
    "a bucket": lambda per_s: Bucket(per_s, burst=per_s),
    "a small bucket": lambda per_s: Bucket(per_s, burst=1.0),
    "a sliding window": SlidingWindow,
    "a fixed window": FixedWindow,
    "a number at once": AtOnce,
}


@pytest.mark.parametrize(
    ("kind", "per_s", "retry_after"),
    [
        ("a bucket", 20.0, "rounded up"),
        ("a small bucket", 20.0, "none"),
        ("a fixed window", 20.0, "exact"),
        ("a number at once", 6.0, "exact"),
    ],
)
def test_a_models_limit_slows_down_no_other_model_of_its_account(
    kind: str, per_s: float, retry_after: str
) -> None:
    limited = trials(800, *needs_of("x"))
    others = trials(1000, *needs_of("y"), first=800) + trials(1000, *needs_of("z"), first=1800)
    x = of_model("x", LIMITS[kind](per_s), retry_after=retry_after)
    y, z = of_model("y", latency_s=0.5), of_model("z", latency_s=1.0)
    ask = calling(lambda index: [x if index < 800 else y if index < 1800 else z])
    without = play(others, ask, accounts=ACCOUNTS)
    trace = play([*limited, *others], ask, accounts=ACCOUNTS)
    assert last_end(trace, others) <= 1.2 * last_end(without, others)
    assert x.used(*x.last_half) >= 0.85
    assert x.refused_in_vain <= 0.05 * 800


def test_the_limit_of_a_judge_slows_down_only_the_trials_that_it_grades() -> None:
    graded = trials(600, *needs_of("x", "y"))
    others = trials(1000, *needs_of("x"), first=600) + trials(1000, *needs_of("z"), first=1600)
    # Without a spread, the judge is asked in order.
    x, z = of_model("x", sigma=0.0), of_model("z", latency_s=1.0)
    judge = of_model("y", Bucket(20.0, burst=20.0))
    ask = calling(lambda index: [x, judge] if index < 600 else [x] if index < 1600 else [z])
    without = play(others, ask, accounts=ACCOUNTS)
    trace = play([*graded, *others], ask, accounts=ACCOUNTS)
    assert last_end(trace, others) <= 1.2 * last_end(without, others)
    assert judge.used(*judge.last_half) >= 0.85
    assert judge.refused_in_vain <= 0.1 * 600


# ---- refusals of a whole account

WHERE = ((A, "x"), (A, "y"), (A, "z"), (B, "x"), (B, "x"), (B, "x"))
"""What trials ask, by their index."""


@dataclass(slots=True)
class OneRefusal:
    """Everything is accepted, but for the first request to a model after three seconds."""

    whole_account: bool
    known_at: float = math.inf
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def __call__(self, now: float, index: int, number: int) -> SimulatedEnd:
        account, model = WHERE[index % len(WHERE)]
        call = call_of(model, account)
        if self.known_at < math.inf or now < 3.0 or call != call_of("x"):
            use = AccountUse(account=call, requests=1)
            return SimulatedEnd(duration_s=self.chance.uniform(0.3, 0.7), uses=(use,))
        self.known_at = now + 0.02
        end = refusal(call, 0.02, 5.0)
        if not self.whole_account:
            return end
        (use,) = end.uses
        return replace(end, account=A, uses=(replace(use, whole_account=True),))


@dataclass(frozen=True, slots=True)
class Starts:
    """How many of a model's trials started after a refusal with a wait of five seconds."""

    during: int
    """Until that was over."""
    after: int
    """In two seconds more."""


def starts_after(refusal: OneRefusal) -> dict[tuple[str, str], Starts]:
    works = []
    for index in range(3000):
        account, model = WHERE[index % len(WHERE)]
        works.append(Work(index=index, needs=needs_of(model, account=account)))
    trace = play(works, refusal, accounts=ACCOUNTS, parallel=80)
    times: dict[tuple[str, str], list[float]] = {where: [] for where in WHERE}
    for span in trace.spans:
        times[WHERE[span.index % len(WHERE)]].append(span.start - refusal.known_at)
    return {
        where: Starts(
            during=sum(0.0 < at < 5.0 for at in starts), after=sum(5.0 <= at < 7.0 for at in starts)
        )
        for where, starts in times.items()
    }


def test_a_refusal_that_names_the_account_holds_back_all_its_models_and_no_other_account() -> None:
    starts = starts_after(OneRefusal(whole_account=True))
    for model in "xyz":
        assert starts[A, model].during == 0
        assert starts[A, model].after >= 10
    assert starts[B, "x"].during >= 300


def test_a_refusal_that_names_a_model_holds_back_this_model_only() -> None:
    starts = starts_after(OneRefusal(whole_account=False))
    assert starts[A, "x"].during == 0
    assert starts[A, "x"].after >= 10
    for where in ((A, "y"), (A, "z"), (B, "x")):
        assert starts[where].during >= 100


def test_a_limit_that_all_models_of_an_account_share_is_found() -> None:
    shared = Provider(limit=Bucket(20.0, burst=20.0))

    def ask(now: float, index: int, number: int) -> SimulatedEnd:
        end = shared(now, index, number)
        (use,) = end.uses
        call = call_of("xyz"[index % 3])
        return replace(end, uses=(replace(use, account=call, whole_account=use.refused),))

    works = [Work(index=index, needs=needs_of("xyz"[index % 3])) for index in range(900)]
    play(works, ask, accounts=ACCOUNTS)
    assert shared.used(*shared.last_half) >= 0.85
    assert shared.refused_in_vain <= 0.05 * 900


# ---- limits that change


def play_until(
    end: float, imagine: ImagineAt, *, found: Mapping[str, FoundLimit] | None = None
) -> None:
    """There are more trials than can be run in this time."""
    limits = Limits(parallel=PARALLEL)
    machine = Scheduler(trials(6000), limits=limits, retry=RetryPolicy(), seed=0, found=found)
    simulate_at(machine, imagine, stop_at=end)


def changing(provider: Provider, per_s: float) -> ImagineAt:
    """The limit is another one after 20 seconds."""

    def imagine(now: float, index: int, number: int) -> SimulatedEnd:
        assert provider.limit is not None
        if now >= 20.0:
            provider.limit.per_s = per_s
        return provider(now, index, number)

    return imagine


CHANGING = [
    ("a bucket", "none"),
    ("a bucket", "rounded up"),
    ("a small bucket", "exact"),
    ("a sliding window", "always 1"),
    ("a fixed window", "none"),
    ("a number at once", "rounded up"),
]


@pytest.mark.parametrize(("kind", "retry_after"), CHANGING)
def test_a_limit_that_rises_in_mid_run_is_used_after_little_more_than_a_minute(
    kind: str, retry_after: str
) -> None:
    provider = Provider(limit=LIMITS[kind](10.0), retry_after=retry_after, latency_s=1.0)
    play_until(105.0, changing(provider, 50.0))
    assert any(provider.used(at, at + 10.0) >= 0.8 for at in range(20, 95))


@pytest.mark.parametrize(("kind", "retry_after"), CHANGING)
def test_a_limit_that_falls_in_mid_run_is_found_again(kind: str, retry_after: str) -> None:
    provider = Provider(limit=LIMITS[kind](50.0), retry_after=retry_after, latency_s=1.0)
    play_until(60.0, changing(provider, 10.0))
    assert provider.used(40.0, 60.0) >= 0.6
    assert sum(at >= 22.0 for at in provider.refused) <= 20


@pytest.mark.parametrize("retry_after", RETRY_AFTER)
@pytest.mark.parametrize("burst", [5.0, 50.0])
def test_a_remembered_limit_that_is_five_times_too_low_is_left_behind_in_seconds(
    burst: float, retry_after: str
) -> None:
    limit = Bucket(50.0, burst=burst, level=burst)
    provider = Provider(limit=limit, retry_after=retry_after)
    play_until(15.0, provider, found={A: FoundLimit(requests_per_minute=600.0)})
    assert provider.used(5.0, 10.0) >= 0.8
    assert provider.used(10.0, 15.0) >= 0.95
    assert len(provider.refused) <= 40


# ---- agents

AGENT = "account:a agent:x"


@dataclass(slots=True, kw_only=True)
class Agents:
    """Attempts of an agent, each of many requests."""

    outage: tuple[float, float] = (math.inf, math.inf)
    """Every attempt that starts in it is refused."""
    meets_refusals: bool = False
    """Its own requests are, and it repeats them."""

    def __call__(self, now: float, index: int, number: int) -> SimulatedEnd:
        if self.outage[0] <= now < self.outage[1]:
            return refusal(AGENT, 2.0, None)
        chance = random.Random(1000 * index + number)
        use = AccountUse(
            account=AGENT,
            requests=chance.randint(5, 50),
            tokens=20_000.0,
            retry_after=20.0 if self.meets_refusals else None,
        )
        return SimulatedEnd(duration_s=7.0 * chance.lognormvariate(0.0, 0.2), uses=(use,))


def agents_take_s(agents: Agents) -> float:
    works = trials(800, A, AGENT)
    known = {A: AccountLimits(), AGENT: AccountLimits(paced=False)}
    return play(works, agents, accounts=known, parallel=40).makespan_s


@pytest.mark.parametrize("start", [5.0, 20.0, 60.0])
def test_an_outage_costs_agents_little_more_than_its_time(start: float) -> None:
    outage = (start, start + 30.0)
    assert agents_take_s(Agents(outage=outage)) <= 1.3 * agents_take_s(Agents()) + 30.0


def test_refusals_that_an_agent_overcame_slow_nothing_down() -> None:
    assert agents_take_s(Agents(meets_refusals=True)) == agents_take_s(Agents())
