"""Finds the rate of an account that reveals nothing but refusals.

A provider's bucket is empty whenever it refuses. So between two refusals just as much flowed into
it as was accepted, unless it overflowed meanwhile, and it overflows when more accumulates than its
burst. Hence for every period: accepted <= burst + rate x time. What is known about the burst comes
from the first requests, before anything was refused.

Some refusals have nothing to do with a rate: one overloaded server of many, a gateway's whim.
Slowing down because of them would never end, since they come at any pace. If refusals keep coming
at a pace that worked before, but are rare, they are treated as strays, and the account continues
without a rate.

Requests are counted when they are sent, since answers may take long; a refusal is dated back to
when its request was sent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.records import FoundLimit
from paraval.schedule.throttle import TokenBucket

UNDER = 0.97
"""Pace as a share of the estimate."""
PROBE_EVERY_S = 5.0
PROBES = (1.02, 1.02, 1.04, 1.08, 1.15)
"""Speed-up factor after each such period without a refusal."""
RAMP_EVERY_S = 1.0
RAMP = 2.0
"""Between the first refusal and the second the rate is unknown: search quickly."""
ROUGH_RAMP = 1.25
"""While the estimate may well be too low."""
THIN = 100.0
"""An estimate from fewer requests than this is checked soon ..."""
THIN_RAMP = 0.05
"""... at a pace that is higher by this share, then twice that, and so on."""
MOST_EVIDENCE = 1000.0
FEWEST_SENT = 4
"""A faster pace proves nothing before this many were sent at it."""
CATCH_UP = 2.0
"""The backlog of a hold is sent at this many times the rate, not all at once: if the provider
allows no burst, few are refused before that is known."""
SOME = 0.5
"""Assumed to be accepted if nothing was: a pace of zero would never end."""
MARKS = 512
WELL_BELOW = 0.8
CONTRADICTIONS = 3.0
"""After this many refusals at paces that used to work, the pace is not the reason."""
WHILE_CATCHING_UP = 0.34
"""Weight of a contradiction that the burst may explain."""
STRAY_SHARE = 0.2
"""Above this share, refusals are not strays."""
STRAY_SAMPLE = 20.0
LARGEST_SAMPLE = 200.0


class Mark(NamedTuple):
    """A time, and how many requests were sent before it. A tuple: there is one for each request."""

    at: float
    sent: float


BEGINNING = Mark(0.0, 0.0)


@dataclass(slots=True)
class RateFinder:
    """What is known about an account's rate, and the pace that follows from it."""

    sent: float = 0.0
    """Requests so far."""
    rate: float | None = None
    """The estimate; None before the second refusal."""
    burst: float = 1.0
    pace: TokenBucket | None = None
    """None: nothing was refused yet, so there is no limit."""
    _spread: TokenBucket | None = None
    _marks: deque[Mark] = field(default_factory=lambda: deque(maxlen=MARKS))
    _first_at: float | None = None
    _before: tuple[tuple[float, float], ...] = ()
    """What was accepted in periods before the first refusal: (count, duration)."""
    _empty: Mark | None = None
    """When the bucket was last known to be empty."""
    _refused: float = 0.0
    """Refusals since then."""
    _known: Mark = BEGINNING
    """When that became known."""
    _resumed: Mark = BEGINNING
    """The end of the hold."""
    _slowest: float = 1e-3
    """Lower bound of the rate."""
    _proven: float = 0.0
    """Highest rate observed from one refusal to the next."""
    _rough: bool = False
    """True: the estimate may well be too low."""
    _evidence: float = 0.0
    """How many requests the estimate comes from."""
    _contradictions: float = 0.0
    _free_from: Mark | None = None
    """Since when refusals have counted as strays; None: they don't."""
    _strays: float = 0.0
    _began: Mark = BEGINNING
    """When the current search for a rate began."""
    _all_refused: float = 0.0
    """Refusals since then."""
    _probed: Mark = BEGINNING
    _probes: int = 0
    _held_back: bool = False
    """Whether anything waited for the pace since the last probe."""

    def send(self, now: float, requests: float) -> None:
        if self._first_at is None:
            self._first_at = now
        self._marks.append(Mark(now, self.sent))
        self.sent += requests
        if self.pace is not None and self._spread is not None:
            self.pace.take(now, requests)
            self._spread.take(now, requests)

    def correct(self, requests: float) -> None:
        """Add requests that were made but not counted; fewer if negative."""
        self.sent += requests
        if self.pace is not None:
            self.pace.give_back(-requests)

    @property
    def is_free(self) -> bool:
        """Whether refusals come without revealing a rate."""
        return self._free_from is not None

    def start_at(self, rate: float, burst: float) -> None:
        """Start with what an earlier run found; it is checked soon."""
        self.rate, self.burst = rate, max(1.0, burst)
        self._probed = Mark(-math.inf, 0.0)
        self._set_pace(0.0, -math.inf, UNDER * rate)

    def forget_start(self) -> None:
        """The provider announces its limit, so an earlier one no longer counts."""
        if self._empty is None and self.rate is not None:
            self.rate = self.pace = self._spread = None

    def found(self) -> FoundLimit | None:
        """The estimate, or the pace that an earlier estimate has been raised to."""
        if self.rate is None or self.pace is None:
            return None
        rate = self.rate if self._empty is not None else self.pace.rate / UNDER
        return FoundLimit(requests_per_minute=60.0 * rate, burst=self.burst)

    def refuse_too(self, refused: Mark) -> None:
        """Another of many simultaneous refusals; they don't come in the order of their requests."""
        self._strays += 1
        self._all_refused += 1
        if self._empty is None or refused.sent >= self._empty.sent:
            self._refused += 1
        elif self.rate is None:
            self._before = tuple((sent - 1.0, lasted) for sent, lasted in self._before)

    def wait_s(self, now: float, requests: float) -> float:
        if self.pace is None or self._spread is None:
            return 0.0
        if now - self._probed.at >= RAMP_EVERY_S:
            self._probe(now, self.pace, self._spread)
        wait_s = max(self.pace.wait_s(now, requests), self._spread.wait_s(now, requests))
        if wait_s > 0.0:
            self._held_back = True
        return wait_s

    def until_sent_s(self, requests: float) -> float:
        """How long until the last of this many may be sent."""
        return requests / self.pace.rate if self.pace is not None else 0.0

    # ---- refusals

    def refuse(self, now: float, refused: Mark, held_until: float) -> None:
        """A new refusal, of a request that was sent after the last refusal was known."""
        self._all_refused += 1
        if self._free_from is not None and self._is_stray(now, self._free_from):
            return
        if self._empty is not None:
            passed_by = self._was_passed_by(refused, self._empty)
            contradicts = passed_by or self._contradicts()
            self._contradictions = self._contradictions + 1.0 if contradicts else 0.0
            if self._contradictions >= CONTRADICTIONS and self._refuses_seldom():
                self._go_free(now)
                return
            if passed_by:
                self.refuse_again(now, refused, held_until)
                return
        if self._empty is None and self.rate is not None and self.pace is not None:
            # The first refusal at a pace that an earlier run found.
            self.rate = min(self.pace.rate, max(self._fastest(refused), 0.5 * self.rate))
            rate = UNDER * self.rate
        elif self._first_at is None or self._empty is None:
            rate = self._guess(now, refused)
        else:
            rate = UNDER * self._estimate(refused, self._empty)
        self._note(now, refused, held_until)
        self._set_pace(now, held_until, rate)

    def refuse_again(self, now: float, refused: Mark, held_until: float) -> None:
        """A refusal with no answer since the last one: it reveals nothing about the rate."""
        if self.pace is None:
            self.refuse(now, refused, held_until)
            return
        self._note(now, refused, held_until)
        self._set_pace(now, held_until, self.pace.rate)

    def resume(self, now: float) -> None:
        """The hold ended earlier than it was to."""
        if self.pace is not None and now < self._resumed.at:
            self._resumed = self._probed = Mark(now, self.sent)
            self._set_pace(self._known.at, now, self.pace.rate)

    def _was_passed_by(self, refused: Mark, empty: Mark) -> bool:
        """Whether too many were accepted right after the last refusal for an empty bucket."""
        accepted = max(refused.sent - empty.sent - self._refused, SOME)
        rate = max(self.rate or 0.0, accepted / max(refused.at - empty.at, 1e-3))
        let_in = self._known.sent - empty.sent - self._refused
        return let_in > 2.0 * rate * (self._known.at - empty.at) + FEWEST_SENT

    def _contradicts(self) -> bool:
        """Whether a refusal comes at a pace that should be safe."""
        slow = self.pace is not None and self.pace.rate < WELL_BELOW * self._proven
        return slow or not self._probes

    def _refuses_seldom(self) -> bool:
        sent = self.sent - self._began.sent
        return sent >= STRAY_SAMPLE and self._all_refused <= STRAY_SHARE * sent

    def _go_free(self, now: float) -> None:
        self.rate = self.pace = self._spread = self._empty = None
        self._free_from = Mark(now, self.sent)
        self._strays = self._contradictions = 0.0
        self._marks.clear()

    def _is_stray(self, now: float, since: Mark) -> bool:
        self._strays += 1
        sent = self.sent - since.sent
        if sent >= STRAY_SAMPLE and self._strays > STRAY_SHARE * sent:
            # A limit after all: search for it from here.
            self._free_from = None
            self._began, self._all_refused = since, self._strays
            self._first_at = since.at
            self._before = ()
            self.burst, self._slowest, self._proven = 1.0, 1e-3, 0.0
            return False
        if sent >= LARGEST_SAMPLE:
            self._free_from, self._strays = Mark(now, self.sent), 0.0
        return True

    def _note(self, now: float, refused: Mark, held_until: float) -> None:
        self._empty = refused
        self._known = Mark(now, self.sent)
        self._refused = 1.0
        self._resumed = Mark(held_until, self.sent)
        self._marks.clear()
        self._probes = 0
        self._probed = self._resumed
        self._held_back = False

    def _guess(self, now: float, refused: Mark) -> float:
        """First guess after a refusal: no more than half the rate seen so far."""
        since = self._first_at if self._first_at is not None else now
        self._before = tuple(self._stretches(refused))
        sent = sum(1 for mark in self._marks if mark.sent < refused.sent)
        return 0.5 * max(sent, 1.0) / max(now - since, 0.01)

    def _estimate(self, refused: Mark, empty: Mark) -> float:
        accepted = max(refused.sent - empty.sent - self._refused, SOME)
        lasted = max(refused.at - empty.at, 1e-3)
        self._slowest = max(self._slowest, accepted / lasted)
        if accepted >= FEWEST_SENT:
            self._proven = max(self._proven, accepted / lasted)
        held = max(self._resumed.at - empty.at, 0.0)
        if self.rate is None:
            return self._narrow_down(refused, held)
        since_hold = refused.sent - self._resumed.sent
        active = max(refused.at - self._resumed.at, 0.0)
        caught_up = self.rate * active + 0.5 * min(self.burst, self.rate * held)
        if self.burst > 2.0 and active < held and since_hold < caught_up:
            # Refused while catching up: the burst is smaller than thought, the rate still good.
            self.burst = max(1.0, min(0.5 * self.burst, since_hold - self.rate * active))
            self._contradictions -= 1.0 - WHILE_CATCHING_UP
            return self.rate
        seen = max(accepted / lasted, self._fastest(refused))
        if self._probes > 0:
            known = 0.0 if self._rough else self._evidence
            self._evidence = min(known + accepted, MOST_EVIDENCE)
            self.rate += (seen - self.rate) * min(1.0, accepted / self._evidence)
            self._rough = False
        elif self._contradictions < 2.0:
            # Refused at a pace that was thought to be good: perhaps bad luck.
            self.rate = max(min(seen, 0.9 * self.rate), 0.8 * self.rate)
        else:
            # Again: it is slower than it was, and earlier findings no longer hold.
            self.rate = min(max(accepted / lasted, 0.3 * self.rate), 0.9 * self.rate)
            self._slowest = self.rate
            self._rough = True
        return self.rate

    def _narrow_down(self, refused: Mark, held: float) -> float:
        """Estimate rate and burst together, from before the first refusal and since then."""
        assert self.pace is not None
        rate = self._slowest
        for _ in range(4):
            self.burst = max([1.0, *(sent - rate * lasted for sent, lasted in self._before)])
            if self.burst >= rate * held:
                break
            rate = max(self._slowest, self._fastest(refused))
        # The bucket may have overflowed during the hold, and the rate be higher. After a short
        # time, one request more or less makes a difference.
        fastest = min(self.pace.rate, self._fastest(refused, one_more=1.0))
        thin = refused.sent - self._resumed.sent < 2.0 * FEWEST_SENT
        self._rough = fastest > 1.2 * rate or thin
        few = refused.sent - self._resumed.sent < 2.0 * self.burst + FEWEST_SENT
        if few and fastest > 2.0 * rate:
            return math.sqrt(rate * fastest)
        if thin and self.pace.rate > 4.0 * rate:
            # Next to nothing was sent: go half way down, and look again.
            return math.sqrt(rate * self.pace.rate)
        self.rate = rate if self._rough else 0.5 * (rate + max(rate, fastest))
        self._evidence = refused.sent - self._resumed.sent
        return self.rate

    def _fastest(self, refused: Mark, one_more: float = 0.0) -> float:
        """The highest rate implied by any period up to a refusal."""
        given = self.burst - one_more
        stretches = self._stretches(refused)
        return max(
            ((sent - given) / lasted for sent, lasted in stretches if lasted > 1e-3), default=0.0
        )

    def _stretches(self, refused: Mark) -> Iterator[tuple[float, float]]:
        """Requests sent in the periods up to a refusal, and their durations."""
        for mark in self._marks:
            if mark.at <= refused.at and mark.sent < refused.sent:
                yield refused.sent - mark.sent, refused.at - mark.at

    # ---- the pace

    def _set_pace(self, now: float, held_until: float, rate: float) -> None:
        held_s = max(0.0, held_until - now)
        known = self.rate is not None
        # Less than the whole burst: it is an estimate, and requests don't arrive evenly.
        burst = max(1.0, self.burst - math.sqrt(self.burst)) if known else 1.0
        at_hold_end = max(1.0, min(burst, rate * held_s))
        self.pace = TokenBucket(rate, burst, at_hold_end, held_until)
        fast = CATCH_UP * rate if known else rate
        self._spread = TokenBucket.full(fast, max(1.0, fast * 0.02), held_until)

    def _probe(self, now: float, pace: TokenBucket, spread: TokenBucket) -> None:
        """Go a little faster, if nothing was refused for a while and something waited."""
        fast = self.rate is None or self._rough or self._evidence < THIN
        lasted, sent = now - self._probed.at, self.sent - self._probed.sent
        if lasted < (RAMP_EVERY_S if fast else PROBE_EVERY_S) or sent < FEWEST_SENT:
            return
        self._probed = Mark(now, self.sent)
        if not self._held_back:
            return
        self._held_back = False
        step = PROBES[min(self._probes, len(PROBES) - 1)]
        if fast:
            thin = min(RAMP, 1.0 + THIN_RAMP * 2.0**self._probes)
            step = RAMP if self.rate is None else max(ROUGH_RAMP, thin) if self._rough else thin
        if pace.rate > RAMP * sent / lasted:
            return  # limited more by something else
        self._probes += 1
        pace.change(now, rate=pace.rate * step, capacity=pace.capacity)
        spread.change(now, rate=spread.rate * step, capacity=spread.capacity)
