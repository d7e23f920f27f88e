"""A provider's account: what may be sent to it now, what its responses reveal about its limits, and
when to give it up.

Known rates (configured, or from headers) and an unknown concurrency limit are kept in `throttle`;
unknown rates are found by `rate_finder`. A refusal holds back its whole account, and no other.
Which trial goes first is decided elsewhere.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import field
from random import Random

from paraval.dataclass import dataclass
from paraval.records import AccountLimits, AccountUse, FoundLimit, Outcome, RateTold, account_above
from paraval.schedule.messages import AccountHeld, AttemptOver, Draw, LimitUse, NeedStopped
from paraval.schedule.rate_finder import Mark, RateFinder
from paraval.schedule.throttle import Meter, Window, by_the_minute, evenly

LONGEST_BACKOFF_S = 60.0
UNREACHED_ENDS = 5
"""An account that was never reached is given up after this many failed attempts in a row."""
REFUSALS_THAT_KEEP_COMING = 3
"""This many refusals within KEEP_COMING_S despite a known rate: something else is limited, too."""
KEEP_COMING_S = 30.0
CARRIED_DECAY = 0.995
"""How slowly the number in flight is forgotten with which a request was accepted."""
SHORT_HOLD_S = 1.0
"""Many providers round up the wait to whole seconds, whatever it is. So one request tries earlier:
if it is not refused, the hold is over."""
TRIES_AFTER = 0.1
"""Share of a short hold after which it tries."""
FEWEST_TO_REMEMBER = 20.0
"""After fewer requests, a run has learned nothing for the next one."""
FEWEST_AFTER = 4
"""If fewer are accepted after it, the hold ended too early."""
RATIOS = 50
FEWEST_RATIOS = 5


@dataclass(slots=True, eq=False)
class Grant:
    """What one attempt took from an account."""

    started_at: float
    requests: float
    tokens: float
    """As reserved."""
    estimated: float
    """Estimated tokens, before correction by experience."""
    sent_before: float
    tokens_before: float
    beside: int
    """How many others were in flight."""
    number: int
    """Sequence number of the grant."""


@dataclass(slots=True)
class Ratios:
    """How much of the estimated tokens was really used: nearly the highest recent ratio."""

    correction: float = 1.0
    _seen: deque[float] = field(default_factory=lambda: deque(maxlen=RATIOS))
    _unread: int = 0

    def observe(self, estimated: float, actual: float) -> None:
        self._seen.append(actual / estimated)
        self._unread += 1
        if len(self._seen) >= FEWEST_RATIOS and (self._unread >= 10 or len(self._seen) < 20):
            self._unread = 0
            ordered = sorted(self._seen)
            self.correction = max(0.01, ordered[math.ceil(0.9 * len(ordered)) - 1])


class Account:
    """The state of one account between two events."""

    def __init__(  # noqa: PLR0913 - what is known of it, each by its name
        self,
        name: str,
        known: AccountLimits,
        *,
        parallel: int,
        random: Random,
        is_shared: bool = False,
        first: int | None = None,
        found: FoundLimit | None = None,
    ) -> None:
        """`is_shared`: by models, each with limits of its own. Then it has those that are
        configured, and those that a refusal names. `first`: how many may be in flight at the
        start, if the account above it says so."""
        self.name = name
        self.is_shared = is_shared
        self.in_flight = 0
        self.held_until = -math.inf
        self.refusals = 0
        """Consecutive refusals, with no answer to anything sent between them."""
        self.waiting_s = 0.0
        self.waiting_requests = 0.0
        self.waiting_tokens = 0.0
        self._unreached = 0
        self._ever_reached = False
        self._random = random
        self._concurrent = known.concurrent
        self._paces = known.paced
        self._window = Window(most=parallel)
        if first is not None:
            self._window.limit = max(1, min(parallel, first))
        self._carried = 1.0
        """About how many others were in flight with one that was accepted recently, at most."""
        self._finder = RateFinder()
        self._taken = 0
        self._fresh_from = 0
        """Number of the first grant after the last refusal was known."""
        self._fresh = 0
        """How many of those are in flight."""
        self._unexpected: deque[float] = deque(maxlen=REFUSALS_THAT_KEEP_COMING)
        """Refusals despite what is known."""
        self._probe: Grant | None = None
        self._tries_at = math.inf
        """When a request may try whether a hold is over already; infinite: none may."""
        self._trier: Grant | None = None
        self._refused_in_s = 0.0
        """How long the last refusal took."""
        self._waits_are_exact = False
        """Trying earlier did not help."""
        self._resumed_with = -math.inf
        """How many requests had been sent when a hold was last ended early."""
        self._ratios = Ratios()
        self._requests = Meter(evenly(known.requests_per_minute))
        self._tokens = Meter(by_the_minute(known.tokens_per_minute))
        self._is_paced = self._requests.knows_a_rate or self._tokens.knows_a_rate
        """Cached, since it is read for every lane at every start."""
        if found is not None and known.requests_per_minute is None and self._paces:
            self._finder.start_at(found.requests_per_minute / 60.0)
            self._is_paced = True

    # ---- what may start

    @property
    def meets_strays(self) -> bool:
        """Refusals are rare and independent of the pace: only the refused trial waits."""
        return self._finder.is_free

    @property
    def never_reached(self) -> bool:
        return not self._ever_reached and self._unreached >= UNREACHED_ENDS

    @property
    def limit(self) -> float:
        """How many may be in flight; infinite if only a rate limits."""
        if self._concurrent is not None:
            return self._concurrent
        if self.is_shared or (self._rate_is_known and not self._window.is_found):
            return math.inf
        return self._window.limit

    def _room_at(self, now: float) -> float:
        if self._concurrent is not None:
            return now if self.in_flight < self._concurrent else math.inf
        if self.is_shared or (self._rate_is_known and not self._window.is_found):
            return now
        return self._window.room_at(now)

    @property
    def _rate_is_known(self) -> bool:
        return self._requests.knows_a_rate or self._finder.rate is not None

    @property
    def _is_half_open(self) -> bool:
        """After consecutive refusals, one request at a time tries again."""
        return self.refusals > 1

    def opens_at(self, now: float, draw: Draw) -> float:
        """When a request with this draw may start; infinite if that depends on another one's
        end."""
        if self._probe is not None and self._is_half_open:
            return math.inf
        held_until = self.held_until if now >= self.held_until else self._held_until(now)
        room_at = self._room_at(now)
        if room_at > now or not self._is_paced:
            return max(held_until, room_at)
        _, requests, tokens = draw
        wait_s = self._requests.wait_s(now, requests)
        if self._finder.pace is not None:
            wait_s = max(wait_s, self._finder.wait_s(now, requests))
        if tokens:
            wait_s = max(wait_s, self._tokens.wait_s(now, tokens * self._ratios.correction))
        return max(held_until, now + wait_s)

    def _held_until(self, now: float) -> float:
        if self._trier is None:
            return min(self.held_until, self._tries_at)
        passed_at = self._trier.started_at + 2.0 * self._refused_in_s + 0.02
        if now < passed_at:
            return min(self.held_until, passed_at)
        self._end_hold(now)
        return now

    def _end_hold(self, now: float) -> None:
        """The request that tried is being answered: a refusal would have come by now."""
        self._trier, self.held_until = None, now
        self._resumed_with = self._requests.sent
        self._finder.resume(now)

    def take(self, now: float, draw: Draw) -> Grant:
        tokens = draw.tokens * self._ratios.correction
        grant = Grant(
            now,
            draw.requests,
            tokens,
            draw.tokens,
            self._requests.sent,
            self._tokens.sent,
            self.in_flight,
            self._taken,
        )
        self._taken += 1
        self._fresh += 1
        self.in_flight += 1
        self._window.enter(now)
        self._finder.send(now, draw.requests)
        self._requests.take(now, draw.requests)
        self._tokens.take(now, tokens)
        if self._is_half_open:
            self._probe = grant
        elif now < self.held_until:
            self._trier = grant
        return grant

    def use(self, now: float) -> LimitUse:
        known, pace = self._requests.per_minute, self._finder.pace
        is_paced = pace is not None and (known is None or 60.0 * pace.rate < known)
        return LimitUse(
            name=self.name,
            in_flight=self.in_flight,
            limit=int(self.limit) if self._limits_in_flight else None,
            requests_per_minute=60.0 * (self._finder.rate or pace.rate)
            if pace is not None and is_paced
            else known,
            tokens_per_minute=self._tokens.per_minute,
            is_found=is_paced or self._window.is_found,
            held_until=self.held_until if self.held_until > now else None,
        )

    @property
    def _limits_in_flight(self) -> bool:
        """Whether it has a limit of its own, and not only the run's."""
        is_known = self._concurrent is not None or self._window.is_found
        return is_known and self.limit < math.inf

    def found_limit(self) -> FoundLimit | None:
        if self._finder.sent < FEWEST_TO_REMEMBER:
            return None
        return self._finder.found() or self._requests.announced()

    def widen(self, parallel: int) -> None:
        """So many attempts may run in parallel now."""
        self._window.widen(parallel)

    # ---- learning from responses

    def give_up(self, grant: Grant) -> None:
        """The attempt ended, and the fate of its requests is unknown."""
        self.in_flight -= 1
        self._fresh -= grant.number >= self._fresh_from
        self._window.leave()
        if self._probe is grant:
            self._probe = None
        if self._trier is grant:
            self._trier = None

    def settle(self, now: float, grant: Grant, use: AccountUse) -> AccountHeld | None:
        """Settle an attempt that ended, with what it did."""
        tried = self._trier is grant
        self.give_up(grant)
        self._correct(now, grant, use)
        if use.told is not None:
            self._learn_limits(now, grant, use.told)
        if not use.reached:
            self._unreached += 1
            return None
        if use.requests == 0:
            return None  # from the cache, or shared with another attempt: nothing to learn
        self._ever_reached = True
        self._unreached = 0
        if use.refused and tried:
            self._finder.refuse_too(Mark(grant.started_at, grant.sent_before))
            self._tries_at, self._waits_are_exact = math.inf, True
            return None
        if use.refused:
            return self._refuse(now, grant, use.retry_after)
        if tried:
            self._end_hold(now)
        if use.overloaded:
            self._window.pause(now)
            return None
        self._window.succeed(now)
        self._carried = max(CARRIED_DECAY * self._carried, grant.beside)
        if grant.number >= self._fresh_from:
            self.refusals = 0
        return None

    def _correct(self, now: float, grant: Grant, use: AccountUse) -> None:
        """Correct the reservation by what was used."""
        more = use.requests - grant.requests
        if more:
            self._finder.correct(more)
            self._requests.correct(now, more)
        more = use.tokens - grant.tokens
        if more:
            self._tokens.correct(now, more)
        if grant.estimated > 0.0 and use.tokens > 0.0 and not use.refused:
            self._ratios.observe(grant.estimated, use.tokens)

    def _learn_limits(self, now: float, grant: Grant, limits: RateTold) -> None:
        sent = self._requests.sent - grant.sent_before - grant.requests
        self._requests.hear(
            now,
            limits.requests_per_minute,
            limits.requests_left,
            limits.requests_full_in_s,
            (grant.started_at, sent),
        )
        if self._requests.knows_a_rate:
            self._finder.forget_start()
        sent = self._tokens.sent - grant.tokens_before - grant.tokens
        self._tokens.hear(
            now,
            limits.tokens_per_minute,
            limits.tokens_left,
            limits.tokens_full_in_s,
            (grant.started_at, sent),
        )
        self._is_paced = True

    # ---- refusals

    def _refuse(self, now: float, grant: Grant, retry_after: float | None) -> AccountHeld | None:
        refused = Mark(grant.started_at, grant.sent_before)
        if grant.number < self._fresh_from:
            # It was in flight when the last refusal came, and belongs to the same event.
            self._finder.refuse_too(refused)
            if not self.meets_strays:
                self.held_until = max(self.held_until, now + (retry_after or 0.0))
            return None
        self.refusals = 1 if self._lets_others_in(grant) else self.refusals + 1
        hold_s = self._hold_s(retry_after)
        self.held_until = now + hold_s
        self._refused_in_s = now - grant.started_at
        ended_too_early = grant.sent_before - self._resumed_with < FEWEST_AFTER
        may_try = not self._waits_are_exact and not ended_too_early
        is_short = hold_s <= SHORT_HOLD_S and self.refusals == 1 and may_try
        self._tries_at = now + TRIES_AFTER * hold_s if is_short else math.inf
        if self.refusals > 1 and self._paces:
            self._finder.refuse_again(now, refused, self.held_until)
        else:
            self._learn_from_refusal(now, grant, refused)
        self._is_paced = self._is_paced or self._paces
        self._fresh_from = self._taken
        self._fresh = 0
        if self.meets_strays:
            self.held_until, self.refusals = now, 0
            return None
        return AccountHeld(account=self.name, until=self.held_until, refusals=self.refusals)

    def _lets_others_in(self, refused: Grant) -> bool:
        """Whether something sent before it, but after the last refusal, is still in flight: it
        takes longer than a refusal, so it was accepted."""
        sent_after = self._taken - refused.number - 1
        return self._fresh > sent_after

    def _hold_s(self, retry_after: float | None) -> float:
        if self.refusals > 1:
            backoff_s = min(LONGEST_BACKOFF_S, 2.0 ** (self.refusals - 1))
            return max(retry_after or 0.0, backoff_s)
        return retry_after or self._random.uniform(0.1, 1.0)

    def _learn_from_refusal(self, now: float, grant: Grant, refused: Mark) -> None:
        """Decide whether a rate or concurrency is limited: apply what is known about the one before
        cutting the other."""
        if self._finder.is_free:
            self._finder.refuse(now, refused, self.held_until)
            return
        if self.is_shared:
            self._finder.refuse(now, refused, self.held_until)
            return
        is_crowded = grant.beside >= self._carried
        was_found = self._window.is_found
        self._window.refuse(now, grant.beside, is_crowded=is_crowded)
        if self._window.is_found or not self._paces:
            return
        if was_found and self._finder.pace is not None:
            # The pace grew while it was not the pace that was refused.
            self._finder.refuse_again(now, refused, self.held_until)
            return
        self._unexpected.append(now)
        full = len(self._unexpected) == REFUSALS_THAT_KEEP_COMING
        keep_coming = full and now - self._unexpected[0] < KEEP_COMING_S
        if self._finder.pace is not None or keep_coming or not self._requests.knows_a_rate:
            self._finder.refuse(now, refused, self.held_until)
        if self._finder.is_free:
            self._window.start_again()

    # ---- remaining time

    def holdup_s(self, parallel: int) -> float:
        """How long the waiting attempts take with all the capacity they may use."""
        return self.waiting_s / max(1.0, min(self.limit, parallel))

    def paced_s(self, now: float) -> float:
        """How long until the last waiting attempt may start."""
        held_s = max(0.0, self.held_until - now)
        if not self._is_paced:
            return held_s
        until_s = self._finder.until_sent_s(self.waiting_requests)
        if self._requests.knows_a_rate:
            until_s = max(until_s, self._requests.until_sent_s(now, self.waiting_requests))
        if self._tokens.knows_a_rate:
            tokens = self.waiting_tokens * self._ratios.correction
            until_s = max(until_s, self._tokens.until_sent_s(now, tokens))
        return held_s + until_s


# When an account or a model has to be given up for this run, and why.

LONGEST_REFUSAL_S = 900.0
"""A longer retry time means that the quota is used up: not worth waiting for."""
MOST_REFUSALS_IN_A_ROW = 20
"""An account that refuses this often in a row is not worth waiting for either."""


def stopped_by(event: AttemptOver, accounts: tuple[Account, ...]) -> NeedStopped | None:
    """The need that the end of an attempt stops, if any. Its accounts must have been settled
    before."""
    if event.outcome.is_judged:
        return None
    if event.stops is not None:
        reason = event.reason or f"{called(event.stops)} cannot be used"
        return NeedStopped(need=event.stops, reason=reason)
    for account in accounts:
        if account.never_reached:
            reason = event.reason or f"{called(account.name)}: cannot be reached"
            return NeedStopped(need=account.name, reason=reason)
        if account.name == event.account and event.outcome is Outcome.RATE_LIMITED:
            final = _why_final(account, event)
            if final is not None:
                return NeedStopped(need=account.name, reason=f"{called(account.name)}: {final}")
    return None


def _why_final(account: Account, refusal: AttemptOver) -> str | None:
    held_s = max(account.held_until - refusal.at, refusal.retry_after or 0.0)
    if held_s > LONGEST_REFUSAL_S:
        return f"its quota is used up for {_span(held_s)}; resume after that"
    if account.refusals >= MOST_REFUSALS_IN_A_ROW:
        return f"rate limited {account.refusals} times in a row; resume later"
    return None


def called(need: str) -> str:
    """`account:team-a` as shown in messages; of its models and agents, their names are enough."""
    account = account_above(need) or ""
    kind, _, name = need.removeprefix(account).strip().partition(":")
    return f"{kind} '{name}'" if name else need


def _span(seconds: float) -> str:
    hours = seconds / 3600.0
    return f"{hours:,.0f} h" if hours >= 1.5 else f"{seconds / 60.0:.0f} min"
