"""Accounts in virtual time: rates that are kept, told or found; holds, storms and stops."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from paraval.records import (
    AccountLimits,
    AccountUse,
    FoundLimit,
    Limits,
    Outcome,
    RateTold,
    RetryPolicy,
)
from paraval.schedule.messages import (
    Abandoned,
    AccountHeld,
    AttemptOver,
    Begin,
    Conclude,
    Draw,
    Event,
    Instruction,
    NeedStopped,
    RetryLater,
    Skip,
    StartAttempt,
    StopAsked,
    Tick,
    WakeAt,
    Work,
    draws_of,
)
from paraval.schedule.scheduler import Scheduler
from paraval.schedule.simulation import (
    Bound,
    Imagine,
    SimulatedEnd,
    Trace,
    bounds,
    simulate,
    simulate_at,
)
from paraval.schedule.throttle import Meter, TokenBucket, Window, by_the_minute

A = "account:a"
B = "account:b"


@dataclass(slots=True, kw_only=True)
class Provider:
    """A simulated one: a bucket of requests, a number at once, storms; it may tell its limits."""

    account: str = A
    rate: float | None = None
    """Requests a second."""
    burst: float = 50.0
    at_once: int | None = None
    storm: tuple[float, float] = (math.inf, math.inf)
    strays: float = 0.0
    """The share of requests that are refused for no reason."""
    tells: bool = False
    retry_after: float | None = 1.0
    latency_s: float = 0.1
    sigma: float = 0.0
    refuses_in_s: float = 0.01
    tokens: float = 0.0
    accepted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    most_at_once: int = 0
    _level: float | None = None
    _at: float = 0.0
    _ends: list[float] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(1))

    def __call__(self, now: float, index: int, number: int) -> SimulatedEnd:
        while self._ends and self._ends[0] <= now:
            heapq.heappop(self._ends)
        level = self._fill(now)
        takes_s = self.latency_s * math.exp(self._random.gauss(0.0, self.sigma))
        if self._refuses(now, level):
            self.refused.append(now)
            return self._refusal(min(takes_s, self.refuses_in_s))
        self._level = level - 1.0
        self.accepted.append(now)
        heapq.heappush(self._ends, now + takes_s)
        self.most_at_once = max(self.most_at_once, len(self._ends))
        use = AccountUse(account=self.account, requests=1, tokens=self.tokens, told=self._told())
        return SimulatedEnd(duration_s=takes_s, uses=(use,))

    def _fill(self, now: float) -> float:
        if self.rate is None:
            return math.inf
        before = self.burst if self._level is None else self._level
        level = min(self.burst, before + (now - self._at) * self.rate)
        self._level, self._at = level, now
        return level

    def _refuses(self, now: float, level: float) -> bool:
        crowded = self.at_once is not None and len(self._ends) >= self.at_once
        if self.strays and self._random.random() < self.strays:
            return True
        return self.storm[0] <= now < self.storm[1] or level < 1.0 - 1e-9 or crowded

    def _refusal(self, takes_s: float) -> SimulatedEnd:
        use = AccountUse(
            account=self.account,
            requests=1,
            refused=True,
            retry_after=self.retry_after,
            told=self._told(),
        )
        return SimulatedEnd(
            duration_s=takes_s,
            outcome=Outcome.RATE_LIMITED,
            retry_after=self.retry_after,
            account=self.account,
            uses=(use,),
        )

    def _told(self) -> RateTold | None:
        if not self.tells or self.rate is None or self._level is None:
            return None
        return RateTold(
            requests_per_minute=self.rate * 60,
            requests_left=math.floor(max(0.0, self._level)),
            requests_full_in_s=(self.burst - self._level) / self.rate,
        )

    def sent_between(self, start: float, end: float) -> int:
        return sum(start <= at < end for at in self.accepted + self.refused)


def scheduler(
    works: Sequence[Work],
    *,
    parallel: int = 100,
    accounts: Mapping[str, AccountLimits] | None = None,
    seed: int = 0,
) -> Scheduler:
    limits = Limits(parallel=parallel, accounts=accounts or {})
    return Scheduler(works, limits=limits, retry=RetryPolicy(), seed=seed)


def trials(count: int, *needs: str) -> list[Work]:
    return [Work(index=index, needs=needs or (A,)) for index in range(count)]


def run(
    provider: Provider, count: int, *, seed: int = 0, known: AccountLimits | None = None
) -> Trace:
    accounts = {A: known} if known is not None else {}
    trace = simulate_at(scheduler(trials(count), accounts=accounts, seed=seed), provider)
    assert sorted(trace.concluded) == list(range(count))
    return trace


def goodput(provider: Provider, took_s: float) -> float:
    """Against what the provider allows in this time, its burst apart."""
    assert provider.rate is not None
    return (len(provider.accepted) - provider.burst) / provider.rate / took_s


# ---- buckets


def test_requests_are_paced_as_gcra_paces_them() -> None:
    """60 a minute with a burst of 5."""
    bucket = TokenBucket.full(1.0, 5.0, 0.0)
    for _ in range(5):
        assert bucket.wait_s(0.0, 1.0) == 0.0
        bucket.take(0.0, 1.0)
    assert bucket.wait_s(0.0, 1.0) == pytest.approx(1.0)
    assert bucket.wait_s(0.5, 1.0) == pytest.approx(0.5)
    assert bucket.wait_s(1.0, 1.0) == 0.0
    bucket.take(1.0, 1.0)
    assert bucket.wait_s(3.0, 1.0) == 0.0


def test_tokens_are_reserved_and_settled() -> None:
    """100,000 a minute, 40,000 reserved twice; the third waits, and a refund helps it."""
    tokens = Meter(by_the_minute(100_000))
    tokens.take(0.0, 40_000)
    tokens.take(0.0, 40_000)
    assert tokens.wait_s(0.0, 40_000) == pytest.approx(12.0)
    tokens.correct(6.0, -25_000)
    assert tokens.wait_s(6.0, 55_000) == 0.0
    assert tokens.wait_s(6.0, 55_000.1) > 0.0


def test_what_is_larger_than_a_bucket_starts_when_it_is_full() -> None:
    bucket = TokenBucket(10.0, 100.0, 50.0, 0.0)
    assert bucket.wait_s(0.0, 500.0) == pytest.approx(5.0)
    bucket.take(5.0, 500.0)
    assert bucket.wait_s(5.0, 1.0) == pytest.approx(40.1)


def test_headers_are_set_right_by_what_was_sent_and_what_flowed_in_since() -> None:
    meter = Meter(None)
    meter.hear(10.0, 600.0, 20.0, 0.0, (9.0, 15.0))
    assert meter.wait_s(10.0, 20.0 - 15.0 + 9.85) == 0.0
    assert meter.wait_s(10.0, 20.0 - 15.0 + 9.95) > 0.0


def test_headers_never_raise_what_is_known_to_be_left() -> None:
    meter = Meter(None)
    meter.hear(0.0, 60.0, 2.0, 58.0, (0.0, 0.0))
    meter.hear(0.0, 60.0, 50.0, 10.0, (0.0, 0.0))
    assert meter.wait_s(0.0, 3.0) > 0.0


@pytest.mark.parametrize("per_minute", [0.0, -5.0, math.inf, math.nan, None])
def test_senseless_headers_are_not_heard(per_minute: float | None) -> None:
    meter = Meter(None)
    meter.hear(0.0, per_minute, 0.0, 60.0, (0.0, 0.0))
    assert not meter.knows_a_rate


# ---- numbers at once


def clean_round(window: Window, now: float) -> None:
    limit = window.limit
    for _ in range(limit):
        window.enter(0.0)
    for _ in range(limit):
        window.leave()
        window.succeed(now)


def test_an_unknown_number_at_once_doubles_from_twenty_with_each_clean_round() -> None:
    window = Window(most=100)
    seen = [window.limit]
    for _ in range(5):
        clean_round(window, 0.0)
        seen.append(window.limit)
    assert seen == [20, 40, 80, 100, 100, 100]


def test_an_unknown_number_at_once_doubles_before_the_first_answer_while_nothing_is_refused() -> (
    None
):
    window = Window(most=100)
    sent_at = []
    now = 0.0
    while window.in_flight < 100:
        now = max(now, window.room_at(now))
        window.enter(now)
        sent_at.append(now)
    assert [sum(start <= at < start + 0.25 for at in sent_at) for start in (0, 0.25, 0.5)] == [
        20,
        20,
        40,
    ]
    assert sent_at[-1] <= 1.1
    assert sent_at[19] == pytest.approx(0.076)
    window.refuse(1.1, 99)
    window.leave()
    assert window.room_at(9.0) == math.inf


def test_a_limit_that_is_not_nearly_reached_does_not_grow() -> None:
    window = Window(most=100)
    for _ in range(50):
        window.enter(0.0)
        window.leave()
        window.succeed(0.0)
    assert window.limit == 20


def test_a_provider_in_trouble_stops_the_growth_and_cuts_nothing() -> None:
    window = Window(most=100)
    for _ in range(19):
        window.enter(0.0)
        window.succeed(0.0)
    window.pause(0.0)
    window.succeed(0.0)
    assert window.limit == 20


def test_a_number_in_flight_that_was_found_grows_again_after_fifty_answers() -> None:
    window = Window(most=100)
    for _ in range(2):
        clean_round(window, 0.0)
    window.refuse(1.0, 40)
    assert window.limit == 40
    window.refuse(1.5, 40)
    assert not window.is_found
    window.refuse(2.0, 40)
    assert window.is_found
    clean_round(window, 6.9)
    assert window.limit == 40
    clean_round(window, 7.0)
    assert window.limit == 42
    clean_round(window, 8.0)
    assert window.limit == 46
    window.refuse(9.0, 42)
    assert window.limit == 42


def test_a_number_in_flight_is_not_the_limit_where_far_fewer_are_refused() -> None:
    window = Window(most=100)
    for _ in range(3):
        window.refuse(1.0, 20)
    assert window.is_found
    window.refuse(3.0, 4)
    assert not window.is_found
    assert window.limit == 20
    for _ in range(3):
        window.refuse(4.0, 20)
    assert not window.is_found, "once misled, it takes one refusal more"


@pytest.mark.parametrize("latency_s", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("retry_after", [None, 1.0])
def test_a_server_that_allows_twenty_at_once_is_kept_busy_and_hardly_annoyed(
    latency_s: float, retry_after: float | None
) -> None:
    provider = Provider(at_once=20, latency_s=latency_s, sigma=0.3, retry_after=retry_after)
    trace = run(provider, 2000)
    ideal_s = 2000 / (20 / (latency_s * math.exp(0.3**2 / 2)))
    assert ideal_s / trace.makespan_s >= 0.7
    assert len(provider.refused) <= 0.03 * 2000


# ---- known rates


def test_a_told_rate_is_used_to_its_last_twentieth_and_hardly_anything_is_refused() -> None:
    for burst in (50.0, 3000.0):
        provider = Provider(rate=50, burst=burst, tells=True)
        trace = run(provider, 1000 + int(burst))
        assert goodput(provider, trace.makespan_s) >= 0.95
        assert len(provider.refused) <= 0.005 * len(provider.accepted)


@pytest.mark.parametrize("latency_s", [0.02, 1.0])
def test_a_told_rate_is_kept_whatever_the_latency(latency_s: float) -> None:
    provider = Provider(rate=50, tells=True, latency_s=latency_s, sigma=0.5)
    run(provider, 2000)
    assert goodput(provider, max(provider.accepted)) >= 0.92
    assert len(provider.refused) <= 10


def test_what_others_take_of_a_told_rate_is_left_to_them() -> None:
    """Another program uses the same account: headers tell of less than was sent from here."""
    provider = Provider(rate=50, tells=True)

    def shared(now: float, index: int, number: int) -> SimulatedEnd:
        end = provider(now, index, number)
        provider._level = max(0.0, (provider._level or 0.0) - 1.0)
        return end

    trace = simulate_at(scheduler(trials(1000)), shared)
    assert len(trace.concluded) == 1000
    assert len(provider.refused) <= 0.1 * 1000


def test_a_configured_rate_is_paced_evenly_from_the_first_moment() -> None:
    provider = Provider()
    run(provider, 600, known=AccountLimits(requests_per_minute=300))
    assert provider.sent_between(0, 1) <= 10
    assert max(provider.accepted) == pytest.approx((600 - 5) / 5, rel=0.01)


def test_a_configured_number_at_once_is_used_from_the_first_moment_and_never_passed() -> None:
    provider = Provider(latency_s=1)
    run(provider, 100, known=AccountLimits(concurrent=20))
    assert provider.sent_between(0, 0.5) == 20
    assert provider.most_at_once == 20


@pytest.mark.parametrize(
    "known", [AccountLimits(concurrent=80), AccountLimits(requests_per_minute=1e6)]
)
def test_a_model_of_an_account_with_configured_limits_starts_at_once(known: AccountLimits) -> None:
    model = f"{A} model:m"
    machine = scheduler(
        trials(80, A, model), parallel=80, accounts={A: known, model: AccountLimits()}
    )
    provider = Provider(account=model, latency_s=1)
    trace = simulate_at(machine, provider)
    assert len(trace.concluded) == 80
    assert provider.sent_between(0, 0.5) == 80


def test_tokens_are_paced_by_what_they_turn_out_to_be() -> None:
    """Thought to take 1,000 tokens each, they take 200: five times as many fit."""
    works = [Work(index=i, needs=(A,), draws=(Draw(A, 1, 1000.0),)) for i in range(1200)]
    provider = Provider(tokens=200)
    known = {A: AccountLimits(tokens_per_minute=60_000)}
    trace = simulate_at(scheduler(works, accounts=known), provider)
    ideal_s = (1200 * 200 - 60_000) / 1000
    assert ideal_s <= trace.makespan_s <= 1.1 * ideal_s


def test_answers_from_the_cache_take_nothing_of_a_rate() -> None:
    cached = SimulatedEnd(duration_s=0.001, uses=(AccountUse(account=A, requests=0),))
    known = {A: AccountLimits(requests_per_minute=60)}
    trace = simulate(scheduler(trials(500), accounts=known), lambda *_: cached)
    assert trace.makespan_s < 2


def test_an_account_that_an_attempt_did_not_come_to_use_gets_its_share_back() -> None:
    """A judge is asked nothing where the target gave no answer."""
    failed = SimulatedEnd(
        duration_s=0.1, outcome=Outcome.CRASHED, uses=(AccountUse(account=A, requests=1),)
    )
    known = {B: AccountLimits(requests_per_minute=60)}
    trace = simulate(scheduler(trials(100, A, B), accounts=known), lambda *_: failed)
    assert trace.makespan_s < 10


def test_what_an_attempt_asks_for_beyond_its_draw_is_counted() -> None:
    """Drawn as one request each, they make three: a judge votes."""
    three = SimulatedEnd(duration_s=0.1, uses=(AccountUse(account=A, requests=3),))
    known = {A: AccountLimits(requests_per_minute=600)}
    trace = simulate(scheduler(trials(100), accounts=known), lambda *_: three)
    assert trace.makespan_s >= (300 - 10 - 30) / 10


# ---- unknown rates


@pytest.mark.parametrize("refuses_in_s", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.5])
def test_a_silent_rate_is_found_with_few_refusals_and_nothing_lost(
    refuses_in_s: float, sigma: float
) -> None:
    provider = Provider(rate=50, retry_after=1.0, refuses_in_s=refuses_in_s, sigma=sigma)
    trace = run(provider, 1000)
    assert goodput(provider, trace.makespan_s) >= 0.9
    assert len(provider.refused) <= 0.05 * 1000


@pytest.mark.parametrize(("tells", "least", "most"), [(True, 0.97, 0.005), (False, 0.92, 0.02)])
@pytest.mark.parametrize("refuses_in_s", [0.01, 0.02])
def test_a_shallow_bucket_is_hardly_ever_emptied(
    tells: bool, least: float, most: float, refuses_in_s: float
) -> None:
    for seed in range(3):
        provider = Provider(
            rate=50,
            burst=5,
            tells=tells,
            latency_s=0.3,
            sigma=0.1,
            refuses_in_s=refuses_in_s,
            _random=random.Random(seed),
        )
        trace = run(provider, 1000, seed=seed)
        assert ((1000 - 5) / 50 + 0.3) / trace.makespan_s >= least
        assert len(provider.refused) <= most * 1000


def run_again(provider: Provider, found: FoundLimit, count: int = 1000) -> tuple[Trace, FoundLimit]:
    """A run that starts with what an earlier one found, and what it finds."""
    machine = Scheduler(
        trials(count),
        limits=Limits(parallel=100),
        retry=RetryPolicy(),
        seed=0,
        found={A: found},
    )
    trace = simulate_at(machine, provider)
    assert sorted(trace.concluded) == list(range(count))
    return trace, machine.found_limits()[A]


@pytest.mark.parametrize("burst", [5.0, 50.0])
def test_a_run_starts_at_the_rate_that_the_last_one_found(burst: float) -> None:
    first = Provider(rate=50, burst=burst, latency_s=0.3, sigma=0.1)
    machine = scheduler(trials(1000))
    simulate_at(machine, first)
    second = Provider(rate=50, burst=burst, latency_s=0.3, sigma=0.1)
    trace, found = run_again(second, machine.found_limits()[A])
    assert ((1000 - burst) / 50 + 0.3) / trace.makespan_s >= 0.95
    assert len(second.refused) <= 0.01 * 1000
    assert found.requests_per_minute == pytest.approx(3000, rel=0.05)


@pytest.mark.parametrize(("times", "late_s"), [(0.2, 6.0), (1.5, 2.0), (5.0, 6.0)])
def test_a_found_rate_that_is_no_longer_right_costs_a_few_seconds(
    times: float, late_s: float
) -> None:
    provider = Provider(rate=50, burst=5, latency_s=0.3, sigma=0.1)
    trace, found = run_again(provider, FoundLimit(requests_per_minute=3000 * times))
    assert trace.makespan_s <= (1000 - 5) / 50 + 0.3 + late_s
    assert found.requests_per_minute == pytest.approx(3000, rel=0.2)


def test_configured_and_announced_rates_take_precedence_over_found_ones() -> None:
    low = FoundLimit(requests_per_minute=60)
    trace, found = run_again(Provider(rate=50, burst=50, tells=True), low)
    assert trace.makespan_s <= 1.1 * (1000 - 50) / 50
    assert found.requests_per_minute == pytest.approx(3000, rel=0.02)
    limits = Limits(parallel=100, accounts={A: AccountLimits(requests_per_minute=6000)})
    machine = Scheduler(trials(300), limits=limits, retry=RetryPolicy(), seed=0, found={A: low})
    assert simulate_at(machine, Provider()).makespan_s < 4.0


@pytest.mark.parametrize("rate", [1.0, 10.0, 50.0, 200.0])
@pytest.mark.parametrize("burst", [1.0, 50.0])
@pytest.mark.parametrize(("latency_s", "sigma"), [(0.02, 0.0), (0.1, 0.0), (1.0, 0.0), (5.0, 1.0)])
def test_a_silent_rate_is_found_whatever_it_is(
    rate: float, burst: float, latency_s: float, sigma: float
) -> None:
    """Measured against a run that knows the rate; the search itself is paid for in these runs."""
    count = {1.0: 150, 10.0: 400, 50.0: 1000, 200.0: 3000}[rate]
    provider = Provider(rate=rate, burst=burst, latency_s=latency_s, sigma=sigma)
    trace = run(provider, count)
    knowing = Provider(latency_s=latency_s, sigma=sigma)
    ideal = run(knowing, count, known=AccountLimits(requests_per_minute=rate * 60))
    assert ideal.makespan_s / trace.makespan_s >= 0.45
    assert len(provider.refused) <= max(0.1 * count, 80)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("retry_after", [1.0, 0.1, None])
@pytest.mark.parametrize("latency_s", [0.05, 1.0])
def test_refusals_for_no_reason_do_not_slow_a_run_down_for_ever(
    share: float, retry_after: float | None, latency_s: float
) -> None:
    """They come at any pace: to take them for a limit, and go slower for each, would never end."""
    for seed in range(4):
        provider = Provider(strays=share, retry_after=retry_after, latency_s=latency_s, sigma=0.3)
        provider._random = random.Random(seed)
        trace = simulate_at(scheduler(trials(300), parallel=200, seed=seed), provider)
        assert sorted(trace.concluded) == list(range(300))
        # Each of them is a second's hold at most, and there are some before it is known.
        assert trace.makespan_s <= 40.0 + 2.0 * len(provider.refused)


def test_a_rate_that_falls_in_the_middle_of_a_run_is_found_again() -> None:
    provider = Provider(rate=50)

    def falling(now: float, index: int, number: int) -> SimulatedEnd:
        provider.rate = 50.0 if now < 20 else 10.0
        return provider(now, index, number)

    trace = simulate_at(scheduler(trials(1500)), falling)
    assert len(trace.concluded) == 1500
    assert 8.0 <= provider.sent_between(40, 60) / 20 <= 12.0
    assert len(provider.refused) <= 0.04 * 1500


def test_a_told_rate_that_is_not_kept_by_its_provider_is_corrected() -> None:
    """It says 50 a second, and allows 10."""
    provider = Provider(rate=10, burst=10)

    def lying(now: float, index: int, number: int) -> SimulatedEnd:
        end = provider(now, index, number)
        told = RateTold(requests_per_minute=3000, requests_left=40, requests_full_in_s=0.2)
        use = AccountUse(
            account=A,
            requests=1,
            told=told,
            refused=end.outcome is Outcome.RATE_LIMITED,
            retry_after=end.retry_after,
        )
        return SimulatedEnd(
            duration_s=end.duration_s,
            outcome=end.outcome,
            retry_after=end.retry_after,
            account=end.account,
            uses=(use,),
        )

    trace = simulate_at(scheduler(trials(600)), lying)
    assert len(trace.concluded) == 600
    assert trace.makespan_s <= 1.5 * 60
    assert len(provider.refused) <= 0.25 * 600


# ---- holds


def refusal(at: float, index: int, retry_after: float | None = None) -> AttemptOver:
    use = AccountUse(account=A, requests=1, refused=True, retry_after=retry_after)
    return AttemptOver(
        at=at,
        index=index,
        outcome=Outcome.RATE_LIMITED,
        retry_after=retry_after,
        account=A,
        uses=(use,),
    )


def success(at: float, index: int, account: str = A) -> AttemptOver:
    uses = (AccountUse(account=account, requests=1),)
    return AttemptOver(at=at, index=index, outcome=Outcome.PASSED, uses=uses)


def started(instructions: Sequence[Instruction]) -> list[int]:
    return [one.index for one in instructions if isinstance(one, StartAttempt)]


def held(instructions: Sequence[Instruction]) -> list[AccountHeld]:
    return [one for one in instructions if isinstance(one, AccountHeld)]


class Clockwork:
    """A scheduler, and the time that it last asked to be woken at."""

    def __init__(self, machine: Scheduler) -> None:
        self.machine = machine
        self.wakes: list[float] = []

    def handle(self, event: Event) -> list[Instruction]:
        answer = self.machine.handle(event)
        for one in answer:
            if isinstance(one, WakeAt):
                heapq.heappush(self.wakes, one.at)
        return answer

    def until_something_starts(self) -> tuple[float, list[int]]:
        while True:
            at = heapq.heappop(self.wakes)
            if indices := started(self.handle(Tick(at=at))):
                return at, indices


def test_a_refusal_holds_its_account_back_and_no_other() -> None:
    works = [Work(index=i, needs=(A,) if i < 3 else (B,)) for i in range(6)]
    machine = Clockwork(scheduler(works, parallel=1))
    assert started(machine.handle(Begin(at=0))) == [0]
    answer = machine.handle(refusal(1, 0, retry_after=30))
    assert held(answer) == [AccountHeld(account=A, until=31, refusals=1)]
    assert RetryLater(index=0, delay_s=None) in answer
    assert started(answer) == [3]
    assert started(machine.handle(success(2, 3, B))) == [4]
    assert started(machine.handle(success(3, 4, B))) == [5]
    assert started(machine.handle(success(4, 5, B))) == []
    assert machine.until_something_starts() == (31, [0])


def test_refusals_of_what_was_under_way_are_one_with_the_first() -> None:
    machine = scheduler(trials(10), accounts={A: AccountLimits(concurrent=10)})
    machine.handle(Begin(at=0))
    told = [held(machine.handle(refusal(1 + index / 100, index, 5.0))) for index in range(10)]
    assert [len(one) for one in told] == [1] + [0] * 9


def test_one_request_tries_before_the_end_of_a_short_hold_and_opens_the_account() -> None:
    machine = Clockwork(scheduler(trials(50), accounts={A: AccountLimits(concurrent=10)}))
    machine.handle(Begin(at=0))
    for index in range(9):
        machine.handle(success(0.98, index))
    machine.handle(refusal(1.0, 10, retry_after=1.0))
    assert started(machine.handle(success(1.05, 11))) == []
    at, tries = machine.until_something_starts()
    assert at == pytest.approx(1.1)
    assert len(tries) == 1
    assert machine.until_something_starts()[0] < 2.0


def test_a_request_that_tries_too_early_leaves_the_hold_as_it_is_and_is_the_last_that_tries() -> (
    None
):
    machine = Clockwork(scheduler(trials(50), parallel=1))
    machine.handle(Begin(at=0))
    machine.handle(refusal(1.0, 0, retry_after=1.0))
    at, (tries,) = machine.until_something_starts()
    assert at == pytest.approx(1.1)
    assert held(machine.handle(refusal(1.15, tries, retry_after=1.0))) == []
    at, (after,) = machine.until_something_starts()
    assert at >= 2.0
    (hold,) = held(machine.handle(refusal(at + 0.1, after, retry_after=1.0)))
    assert machine.until_something_starts()[0] >= hold.until


def test_without_a_time_told_a_first_refusal_waits_a_second_at_most() -> None:
    for seed in range(20):
        machine = scheduler(trials(1), seed=seed)
        machine.handle(Begin(at=0))
        (hold,) = held(machine.handle(refusal(1, 0)))
        assert 1 < hold.until <= 2


def refused_all_over(machine: Clockwork) -> float:
    """Everything that runs is refused, and so is what tries again; gives the end of the hold."""
    for index in started(machine.handle(Begin(at=0))):
        machine.handle(refusal(0.1, index, 2.0))
    at, indices = machine.until_something_starts()
    (hold,) = held(machine.handle(refusal(at + 0.1, indices[0])))
    for index in indices[1:]:
        machine.handle(refusal(at + 0.1, index))
    return hold.until


def test_holds_double_while_nothing_is_answered_and_one_request_at_a_time_tries() -> None:
    machine = Clockwork(scheduler(trials(50)))
    until = refused_all_over(machine)
    lengths = []
    for _ in range(6):
        at, indices = machine.until_something_starts()
        assert at == until
        assert len(indices) == 1
        (hold,) = held(machine.handle(refusal(at + 0.1, indices[0])))
        until = hold.until
        lengths.append(round(until - at - 0.1, 6))
    assert lengths == [4, 8, 16, 32, 60, 60]


def test_a_success_opens_a_half_open_account() -> None:
    machine = Clockwork(scheduler(trials(50), accounts={A: AccountLimits(concurrent=10)}))
    refused_all_over(machine)
    at, (probe,) = machine.until_something_starts()
    running = started(machine.handle(success(at + 0.1, probe)))
    while len(running) < 3:
        running += machine.until_something_starts()[1]


def test_a_probe_that_was_called_off_is_followed_by_another() -> None:
    machine = Clockwork(scheduler(trials(50)))
    refused_all_over(machine)
    at, (probe,) = machine.until_something_starts()
    machine.handle(Abandoned(at=at + 0.1, index=probe))
    assert machine.until_something_starts()[1] == [1]


def test_a_refused_trial_keeps_its_place() -> None:
    machine = Clockwork(scheduler(trials(5), parallel=1))
    machine.handle(Begin(at=0))
    machine.handle(refusal(1, 0, 2.0))
    assert machine.until_something_starts() == (3.0, [0])


def test_a_trial_that_is_refused_time_and_again_while_others_are_answered_is_given_up() -> None:
    def too_big(index: int, number: int) -> SimulatedEnd:
        use = AccountUse(account=A, requests=1, refused=index == 3)
        if index == 3:
            return SimulatedEnd(
                duration_s=0.1, outcome=Outcome.RATE_LIMITED, account=A, uses=(use,)
            )
        return SimulatedEnd(duration_s=0.1, uses=(use,))

    trace = simulate(scheduler(trials(2000), parallel=4), too_big)
    assert sorted(trace.concluded) == list(range(2000))
    assert sum(span.index == 3 for span in trace.spans) == 20


def test_refusals_without_an_account_let_only_their_trial_wait() -> None:
    def first_refused(index: int, number: int) -> SimulatedEnd:
        if index == 0 and number == 1:
            return SimulatedEnd(duration_s=1, outcome=Outcome.RATE_LIMITED, retry_after=50)
        return SimulatedEnd(duration_s=1)

    trace = simulate(scheduler(trials(20, "mode=x"), parallel=2), first_refused)
    assert max(span.end for span in trace.spans if span.index > 0) <= 12
    assert max(span.start for span in trace.spans if span.index == 0) >= 51


@pytest.mark.parametrize("rate", [None, 30.0])
def test_a_storm_on_one_account_leaves_the_other_at_its_speed_and_is_hardly_fed(
    rate: float | None,
) -> None:
    def play(storm: tuple[float, float]) -> tuple[Provider, Provider, Trace]:
        stormy = Provider(latency_s=0.5, storm=storm, retry_after=None, rate=rate, tells=True)
        calm = Provider(account=B, latency_s=0.5, retry_after=None, rate=rate, tells=True)
        works = [Work(index=i, needs=(A if i % 2 else B,)) for i in range(6000)]
        trace = simulate_at(
            scheduler(works), lambda now, i, n: (stormy if i % 2 else calm)(now, i, n)
        )
        assert len(trace.concluded) == 6000
        return stormy, calm, trace

    end_of_time = (math.inf, math.inf)
    stormy, calm, trace = play((10.0, 70.0))
    usual, usual_calm, _ = play(end_of_time)
    assert max(usual_calm.accepted) / max(calm.accepted) >= 0.95
    normal = usual.sent_between(0.0, 20.0) / 20.0 * 60.0
    assert stormy.sent_between(10.0, 70.0) <= 0.1 * normal
    recovered = min(at for at in stormy.accepted if at >= 70.0)
    assert recovered <= 110.0
    assert stormy.sent_between(recovered + 10, recovered + 20) >= 0.8 * normal / 6 or (
        max(stormy.accepted) <= recovered + 20
    )
    assert trace.over_at is not None


# ---- stops


def test_a_stopped_account_skips_what_waits_and_the_rest_of_the_run_goes_on() -> None:
    works = [Work(index=i, needs=(A if i % 2 else B,)) for i in range(20)]

    def refused_key(index: int, number: int) -> SimulatedEnd:
        if index % 2:
            return SimulatedEnd(
                duration_s=1, outcome=Outcome.CRASHED, stops=A, lasting=True, reason="401: no"
            )
        return SimulatedEnd(duration_s=1)

    trace = simulate(scheduler(works, parallel=4), refused_key)
    assert trace.stopped == [NeedStopped(need=A, reason="401: no")]
    assert sorted(skip.index for skip in trace.skipped) == list(range(1, 20, 2))
    assert {skip.reason for skip in trace.skipped} == {"401: no"}
    assert sorted(trace.concluded) == list(range(0, 20, 2))


def test_a_model_that_is_not_there_stops_its_own_trials_only() -> None:
    works = [Work(index=i, needs=(A, f"model:{'xy'[i % 2]}")) for i in range(10)]

    def unknown(index: int, number: int) -> SimulatedEnd:
        if index % 2:
            return SimulatedEnd(
                duration_s=1, outcome=Outcome.CRASHED, stops="model:y", reason="404"
            )
        return SimulatedEnd(duration_s=1)

    trace = simulate(scheduler(works), unknown)
    assert trace.concluded == [0, 2, 4, 6, 8]
    assert [one.need for one in trace.stopped] == ["model:y"]


def test_what_still_runs_when_its_account_stops_is_decided_by_its_own_end() -> None:
    machine = scheduler(trials(5), parallel=4, accounts={A: AccountLimits(concurrent=4)})
    machine.handle(Begin(at=0))
    stop = AttemptOver(at=1, index=0, outcome=Outcome.CRASHED, stops=A, reason="quota")
    answer = machine.handle(stop)
    assert answer == [
        NeedStopped(need=A, reason="quota"),
        Skip(index=0, reason="quota"),
        Skip(index=4, reason="quota"),
    ]
    assert machine.handle(success(2, 1)) == [Conclude(index=1)]
    again = AttemptOver(at=3, index=2, outcome=Outcome.INFRA_ERROR)
    assert machine.handle(again) == [Skip(index=2, reason="quota")]
    wrong = AttemptOver(at=3, index=3, outcome=Outcome.INVALID_OUTPUT, lasting=True)
    assert machine.handle(wrong)[0] == Conclude(index=3)


def test_trials_that_rest_before_a_retry_are_skipped_with_their_account() -> None:
    machine = scheduler(trials(2), parallel=2)
    machine.handle(Begin(at=0))
    machine.handle(AttemptOver(at=1, index=0, outcome=Outcome.INFRA_ERROR))
    answer = machine.handle(
        AttemptOver(at=1, index=1, outcome=Outcome.CRASHED, stops=A, reason="x")
    )
    assert Skip(index=0, reason="x") in answer


def test_a_quota_that_is_used_up_for_hours_stops_its_account() -> None:
    machine = scheduler(trials(12), parallel=10, accounts={A: AccountLimits(concurrent=10)})
    machine.handle(Begin(at=0))
    answer = machine.handle(refusal(1, 0, retry_after=23 * 3600.0))
    (stopped,) = [one for one in answer if isinstance(one, NeedStopped)]
    assert stopped.reason == "account 'a': its quota is used up for 23 h; resume after that"
    assert [one.index for one in answer if isinstance(one, Skip)] == [0, 10, 11]


def test_an_account_that_answers_nothing_but_refusals_is_stopped_after_twenty_in_a_row() -> None:
    provider = Provider(storm=(0.0, math.inf), retry_after=None)
    trace = simulate_at(scheduler(trials(100)), provider)
    # The one that tries again first may have used up its own attempts by then.
    assert len(trace.skipped) + len(trace.concluded) == 100
    assert len(trace.skipped) >= 99
    assert len(trace.stopped) == 1
    assert "20 times" in trace.stopped[0].reason
    assert trace.makespan_s < 1200


def unreached(reason: str) -> SimulatedEnd:
    uses = (AccountUse(account=A, reached=False),)
    return SimulatedEnd(duration_s=0.1, outcome=Outcome.INFRA_ERROR, reason=reason, uses=uses)


def test_an_account_that_nobody_ever_reached_is_stopped_after_five_ends() -> None:
    trace = simulate(scheduler(trials(100), parallel=1), lambda *_: unreached("no such host"))
    assert len(trace.spans) == 5
    assert trace.stopped == [NeedStopped(need=A, reason="no such host")]
    assert len(trace.skipped) == 100


def test_an_account_that_was_reached_once_is_not_given_up_for_a_broken_line() -> None:
    def broken(index: int, number: int) -> SimulatedEnd:
        if index == 0:
            return SimulatedEnd(duration_s=0.1, uses=(AccountUse(account=A, requests=1),))
        return unreached("connection refused")

    trace = simulate(scheduler(trials(10), parallel=1), broken)
    assert not trace.stopped
    assert sorted(trace.concluded) == list(range(10))


def test_a_lasting_end_is_not_tried_again() -> None:
    end = SimulatedEnd(duration_s=1, outcome=Outcome.INFRA_ERROR, lasting=True)
    trace = simulate(scheduler(trials(1)), lambda *_: end)
    assert len(trace.spans) == 1
    assert trace.concluded == [0]


def test_after_a_stop_of_the_run_a_refused_trial_decides_nothing() -> None:
    machine = scheduler(trials(2), parallel=1)
    machine.handle(Begin(at=0))
    machine.handle(StopAsked(at=1))
    answer = machine.handle(refusal(2, 0, 5.0))
    assert RetryLater(index=0, delay_s=None) in answer
    assert started(answer) == []


def test_an_abandoned_attempt_gives_its_account_back() -> None:
    machine = scheduler(trials(2), accounts={A: AccountLimits(concurrent=1)})
    assert started(machine.handle(Begin(at=0))) == [0]
    assert started(machine.handle(Abandoned(at=1, index=0))) == [1]


# ---- how long it takes


def test_the_remaining_time_knows_rates_and_holds() -> None:
    known = {A: AccountLimits(requests_per_minute=60)}
    machine = scheduler(trials(61), accounts=known)
    machine.handle(Begin(at=0))
    assert machine.remaining_s(0) == pytest.approx(60)
    silent = scheduler(trials(1), parallel=1)
    silent.handle(Begin(at=0))
    silent.handle(refusal(1, 0, retry_after=100))
    assert silent.remaining_s(1) >= 100


def as_expected(works: Sequence[Work]) -> Imagine:
    """Every attempt goes as it is thought to, and takes of its accounts what it draws."""
    ends = {
        work.index: SimulatedEnd(
            duration_s=work.expected_s,
            uses=tuple(
                AccountUse(account=draw.account, requests=draw.requests, tokens=draw.tokens)
                for draw in draws_of(work)
            ),
        )
        for work in works
    }
    return lambda index, _: ends[index]


def test_a_plan_is_simulated_with_what_it_draws() -> None:
    works = trials(1000)
    free = simulate(scheduler(works), as_expected(works))
    assert free.makespan_s <= 15
    paced = scheduler(works, accounts={A: AccountLimits(requests_per_minute=600)})
    assert simulate(paced, as_expected(works)).makespan_s == pytest.approx(100, rel=0.02)


def test_the_bound_that_decides_the_end_comes_first() -> None:
    works = [
        Work(index=i, needs=(A, "mode=x"), expected_s=2.0, draws=(Draw(A, 1, 500.0),))
        for i in range(2000)
    ]
    limits = Limits(
        parallel=50,
        named={"mode=x": 20},
        accounts={
            A: AccountLimits(requests_per_minute=300, tokens_per_minute=1_000_000, concurrent=40)
        },
    )
    assert bounds(works, limits) == (
        Bound(name=A, seconds=399.8, text="300 requests per minute", is_rate=True),
        Bound(name="mode=x", seconds=200.0, text="20 in parallel"),
        Bound(name=A, seconds=100.0, text="40 in parallel"),
        Bound(name="parallel", seconds=80.0, text="50 in parallel"),
        Bound(name="longest trial", seconds=2.0, text="the longest trial"),
        Bound(name=A, seconds=0.0, text="1,000,000 tokens per minute", is_rate=True),
    )
    assert bounds([], limits) == ()


# ---- what must hold always


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A plan with accounts, and all that may happen to it."""

    works: list[Work]
    limits: Limits
    ends: dict[tuple[int, int], SimulatedEnd]
    seed: int

    def play(self) -> Trace:
        machine = Scheduler(self.works, limits=self.limits, retry=RetryPolicy(), seed=self.seed)
        calm = SimulatedEnd(duration_s=0.5)
        return simulate(machine, lambda index, number: self.ends.get((index, number), calm))


ACCOUNTS = (A, B)
NEEDS = (*ACCOUNTS, "m=x", "model:y")


def some_limits(chance: random.Random) -> AccountLimits:
    return AccountLimits(
        concurrent=chance.choice([None, 1, 2, 3]),
        requests_per_minute=chance.choice([None, 20.0, 130.0, 2000.0]),
        tokens_per_minute=chance.choice([None, 1000.0, 90_000.0]),
    )


def some_use(chance: random.Random, account: str) -> AccountUse:
    told = RateTold(
        requests_per_minute=chance.choice([None, 30.0, 6000.0]),
        requests_left=chance.choice([None, 0.0, 7.0, 100.0]),
        requests_full_in_s=chance.choice([None, 0.0, 1.0, 60.0]),
        tokens_per_minute=chance.choice([None, 1000.0, 1e6]),
        tokens_left=chance.choice([None, 0.0, 1e5]),
    )
    return AccountUse(
        account=account,
        requests=chance.randint(0, 3),
        tokens=chance.uniform(0, 5000),
        told=chance.choice([None, None, told]),
        refused=chance.random() < 0.3,
        retry_after=chance.choice([None, 0.5, 20.0]),
        overloaded=chance.random() < 0.2,
        reached=chance.random() < 0.8,
    )


def some_end(chance: random.Random, needs: tuple[str, ...]) -> SimulatedEnd:
    outcome = chance.choice([o for o in Outcome if o is not Outcome.SKIPPED])
    accounts = [need for need in needs if need in ACCOUNTS]
    stops = chance.choice([None] * 20 + list(needs))
    return SimulatedEnd(
        duration_s=chance.choice([0.0, 0.1, chance.uniform(0, 10)]),
        outcome=outcome,
        retry_after=chance.choice([None, None, 0.0, 3.0, 3.0, 1e9]),
        account=chance.choice([None, *accounts]),
        lasting=chance.random() < 0.2,
        stops=None if outcome.is_judged else stops,
        reason="so it is",
        uses=tuple(some_use(chance, account) for account in accounts if chance.random() < 0.9),
    )


@st.composite
def settings_of_runs(draw: st.DrawFn) -> Setting:
    """Sizes are drawn, details follow from a seed: drawing all would take most of the time."""
    count, parallel, seed = draw(st.tuples(st.integers(0, 40), st.integers(1, 9), st.integers(0)))
    chance = random.Random(seed)
    works = []
    for index in range(count):
        needs = tuple(sorted(chance.sample(NEEDS, chance.randint(0, 3))))
        draws = tuple(
            Draw(need, chance.randint(1, 3), chance.uniform(0, 5000))
            for need in needs
            if need in ACCOUNTS and chance.random() < 0.7
        )
        works.append(
            Work(index=index, needs=needs, expected_s=chance.choice([1.0, 5.0]), draws=draws)
        )
    ends = {
        (work.index, number): some_end(chance, work.needs) for work in works for number in (1, 2, 3)
    }
    limits = Limits(
        parallel=parallel,
        named={"m=x": chance.randint(1, 4)},
        accounts={account: some_limits(chance) for account in ACCOUNTS},
    )
    return Setting(works=works, limits=limits, ends=ends, seed=seed)


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    moments = [(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


@given(settings_of_runs())
@settings(max_examples=200, deadline=None)
def test_every_trial_ends_once_and_no_configured_limit_is_ever_exceeded(setting: Setting) -> None:
    trace = setting.play()
    ended = sorted([*trace.concluded, *(skip.index for skip in trace.skipped)])
    assert ended == [work.index for work in setting.works]
    assert trace.over_at is not None
    assert len({one.need for one in trace.stopped}) == len(trace.stopped)
    needs = {work.index: work.needs for work in setting.works}
    assert most_at_once([(s.start, s.end) for s in trace.spans]) <= setting.limits.parallel
    for account, known in setting.limits.accounts.items():
        spans = [(s.start, s.end) for s in trace.spans if account in needs[s.index]]
        assert known.concurrent is None or most_at_once(spans) <= known.concurrent


@given(settings_of_runs())
@settings(max_examples=50, deadline=None)
def test_the_same_seed_gives_the_same_trace(setting: Setting) -> None:
    assert setting.play() == setting.play()


@given(
    st.floats(20, 3000),
    st.integers(1, 200),
    st.lists(st.floats(0, 3), min_size=1, max_size=20),
    st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_a_configured_rate_is_not_passed_in_any_stretch_of_time_but_for_its_burst(
    per_minute: float, count: int, durations: list[float], parallel: int
) -> None:
    known = {A: AccountLimits(requests_per_minute=per_minute)}
    machine = scheduler(trials(count), parallel=parallel, accounts=known)
    trace = simulate(
        machine,
        lambda index, _: SimulatedEnd(
            duration_s=durations[index % len(durations)],
            uses=(AccountUse(account=A, requests=1),),
        ),
    )
    starts = sorted(span.start for span in trace.spans)
    burst = max(1.0, per_minute / 60)
    for place, first in enumerate(starts):
        for sent, last in enumerate(starts[place:], start=1):
            assert sent <= burst + (last - first) * per_minute / 60 + 1e-6
    assert all(before <= after for before, after in pairwise(starts))
