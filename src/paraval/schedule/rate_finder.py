"""Finds the rate that a provider allows if it reveals nothing but refusals, and keeps looking.

A refusal means that the provider's bucket was empty when the request was sent. So the pace was at
least the rate by then, and what was accepted since the last refusal is what flowed in, unless the
bucket overflowed meanwhile. After a refusal the pace starts a little below the estimate, comes back
to it after so many requests, and goes beyond it faster and faster: a cubic curve, as in the AWS
SDKs' adaptive mode. It grows by requests that had to wait for it, not by time: a pace that nobody
waits for is not tested. So a rate that was found too low, or has risen, is left behind in seconds.

Before there is an estimate, the pace doubles until something is refused.

Some refusals have nothing to do with a rate: one overloaded server of many, a gateway's whim. They
come at any pace, so slowing down for each would never end. If refusals keep coming at paces that
worked before, but are rare, they are treated as strays, and there is no pace.

Requests are counted when they are sent, since answers may take long; a refusal is dated back to
when its request was sent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.records import FoundLimit
from paraval.schedule.throttle import TokenBucket

SOME = 0.5
"""Assumed to be accepted if nothing was: a pace of zero would never end."""
FEWEST_SENT = 4
"""A pace is not known to work before this many were sent at it."""
ENOUGH = 20
"""Accepted requests from which on the inflow is trusted, even after a long hold."""
FEWEST_BEYOND = 10
"""Requests beyond the estimate that say more than those before."""
DOUBLES_EVERY_S = 1.0
"""While searching: the requests of this time, but at least `FEWEST_SENT`."""
AT_A_TIME_S = 0.005
"""What this time allows may be sent at once."""
SETTLED_BY = 0.5
"""An estimate that is refused before this part of the way back to it was far too high."""
CONFIRMED_LEAST = 0.85
"""An estimate that was confirmed before is not far off, whatever a single refusal suggests."""
WELL_BELOW = 0.45
"""A pace below this share of what was observed before should be safe."""
CONTRADICTIONS = 4
"""After this many refusals at paces that used to work, the pace is not the reason."""
STRAY_SHARE = 0.2
"""Above this share, refusals are not strays."""
STRAY_SAMPLE = 20.0
LARGEST_SAMPLE = 200.0


class Mark(NamedTuple):
    """A time, and how many requests were sent before it."""

    at: float
    sent: float


class Curve(NamedTuple):
    """The way back to an estimate, and beyond it."""

    start: float
    """As a share of the estimate."""
    requests: float
    """It is reached after at least this many requests, and those of a second ..."""
    holds: float
    """... and of this many times the last hold, or holds would take most of the time."""
    beyond: float
    """How much faster, as a share of the estimate, after as many requests more; but ..."""
    per_s: float
    """... no more than this in a second: a refusal should find it not far above the rate."""


CURVES = (
    Curve(start=0.85, requests=30.0, holds=5.0, beyond=0.6, per_s=0.2),
    Curve(start=0.90, requests=60.0, holds=8.0, beyond=0.3, per_s=0.15),
    Curve(start=0.93, requests=120.0, holds=10.0, beyond=0.15, per_s=0.1),
    Curve(start=0.93, requests=240.0, holds=12.0, beyond=0.1, per_s=0.1),
)
"""The more often an estimate was confirmed, the more patient."""
REMEMBERED = Curve(start=1.0, requests=20.0, holds=0.0, beyond=0.6, per_s=1.0)


@dataclass(slots=True)
class RateFinder:
    """What is known about an account's rate, and the pace that follows from it."""

    sent: float = 0.0
    """Requests so far."""
    rate: float | None = None
    """The estimate; None: there is none yet."""
    pace: TokenBucket | None = None
    """None: nothing was refused yet, so there is no limit."""
    _first_at: float | None = None
    _empty: Mark | None = None
    """When the bucket was last known to be empty."""
    _refused: float = 0.0
    """Refusals since then."""
    _resumed: Mark = Mark(0.0, 0.0)
    """The end of the hold."""
    _held_s: float = 0.0
    """How long the last hold was."""
    _confirmed: int = 0
    """How often in a row the pace came back to the estimate before a refusal."""
    _has_doubled: bool = False
    """Whether the pace has doubled since the hold."""
    _paced: float = 0.0
    """Requests that had to wait for the pace since the hold, or since it doubled."""
    _back: Mark | None = None
    """When the pace was back at the estimate."""
    _grown_at: float = 0.0
    _paced_until: float = 0.0
    """How many had been sent when the last one waited."""
    _proven: float = 0.0
    """Highest rate observed from one refusal to the next."""
    _doubts: int = 0
    """Refusals in a row at paces that should be safe."""
    _doubted: Mark = Mark(0.0, 0.0)
    """The first of them."""
    _refused_since: float = 0.0
    """Refusals since then; or since they have counted as strays."""
    _doubts_from: float = 0.0
    """How many have to be sent before it is doubted again that there is a limit."""
    _free_from: Mark | None = None
    """Since when refusals have counted as strays; None: they don't."""

    def send(self, now: float, requests: float) -> None:
        if self._first_at is None:
            self._first_at = now
        self.sent += requests
        if self.pace is not None:
            self.pace.take(now, requests)

    def correct(self, requests: float) -> None:
        """Add requests that were made but not counted; fewer if negative."""
        self.sent += requests
        if self.pace is not None:
            self.pace.give_back(-requests)

    @property
    def is_free(self) -> bool:
        """Whether refusals come without revealing a rate."""
        return self._free_from is not None

    def start_at(self, rate: float) -> None:
        """Start with what an earlier run found; it is checked soon."""
        self.rate = rate
        self._paced = REMEMBERED.requests
        self._set_pace(rate, -math.inf)

    def forget_start(self) -> None:
        """The provider announces its limit, so an earlier one no longer counts."""
        if self._empty is None and self.rate is not None:
            self.rate = self.pace = None

    def found(self) -> FoundLimit | None:
        """The estimate, or the pace that has been reached since."""
        if self.rate is None or self.pace is None:
            return None
        return FoundLimit(requests_per_minute=60.0 * max(self.rate, self.pace.rate))

    def wait_s(self, now: float, requests: float) -> float:
        pace = self.pace
        if pace is None:
            return 0.0
        wait_s = pace.wait_s(now, requests)
        if wait_s > 0.0 and self.sent > self._paced_until:
            self._paced += min(self.sent - self._paced_until, max(pace.capacity, requests))
            self._paced_until = self.sent
            self._grow(now, pace)
            wait_s = pace.wait_s(now, requests)
        return wait_s

    def until_sent_s(self, requests: float) -> float:
        """How long until the last of this many may be sent."""
        return requests / self.pace.rate if self.pace is not None else 0.0

    # ---- refusals

    def refuse(self, now: float, refused: Mark, held_until: float) -> None:
        """A new refusal, of a request that was sent after the last refusal was known."""
        if self._free_from is not None and self._is_stray(now, self._free_from):
            return
        if self.pace is None:
            since = self._first_at if self._first_at is not None else now
            pace = 0.5 * max(refused.sent, 1.0) / max(now - since, 0.01)
        elif self._empty is None:
            # The first refusal after a start at what an earlier run found.
            seen = max(refused.sent, 1.0) / max(refused.at - (self._first_at or 0.0), 0.01)
            before = self.rate or seen
            self._confirmed = 1 if self.pace.rate < 1.5 * before else 0
            self.rate = pace = max(min(seen, self.pace.rate), math.sqrt(before * self.pace.rate))
        else:
            pace = self._estimate(refused, self._empty, self.pace.rate)
            if self._is_doubtful(refused):
                self._go_free(now)
                return
        self._note(now, refused, held_until)
        self._set_pace(self._curve.start * pace if self.rate else pace, held_until)

    def refuse_again(self, now: float, refused: Mark, held_until: float) -> None:
        """A refusal with no answer since the last one: it reveals nothing about the rate."""
        if self.pace is None:
            self.refuse(now, refused, held_until)
            return
        self._note(now, refused, held_until)
        self._set_pace(min(self.pace.rate, self.rate or math.inf), held_until)

    def refuse_too(self, refused: Mark) -> None:
        """Another of many simultaneous refusals; they don't come in the order of their requests."""
        self._refused_since += 1.0
        if self._empty is None or refused.sent >= self._empty.sent:
            self._refused += 1.0

    def resume(self, now: float) -> None:
        """The hold ended earlier than it was to."""
        if self.pace is not None and now < self._resumed.at:
            self._held_s -= self._resumed.at - now
            self._resumed = Mark(now, self.sent)
            self._grown_at = now
            self._set_pace(self.pace.rate, now)
            self.pace.level = 0.0

    def _estimate(self, refused: Mark, empty: Mark, pace: float) -> float:
        """Estimate the rate from what was accepted since the last refusal, and from the pace by
        now; return what to go by, which is also the estimate if it is any good."""
        accepted = max(refused.sent - empty.sent - self._refused, SOME)
        inflow = accepted / max(refused.at - empty.at, 1e-3)
        if accepted >= FEWEST_SENT:
            self._proven = max(self._proven, inflow)
        inflow = min(inflow, pace)
        if self.rate is None:
            if not self._has_doubled and self._paced < FEWEST_SENT:
                return math.sqrt(inflow * pace)
            # Half of this pace worked, or this one for a while.
            self.rate = max(inflow, 0.75 * pace)
            return self.rate
        back = self._paced / self._way_back(self.rate)
        least = CONFIRMED_LEAST if self._confirmed else 0.5 if accepted < FEWEST_SENT else 0.0
        self._confirmed = self._confirmed + 1 if back >= SETTLED_BY else 0
        if self._back is not None and refused.sent - self._back.sent >= FEWEST_BEYOND:
            beyond = (refused.sent - self._back.sent) / (refused.at - self._back.at)
            inflow = max(inflow, min(beyond, pace))
        # Of the two, the pace is too high by a burst, the inflow too low by what overflowed.
        held = self._held_s / (refused.at - empty.at) if accepted >= ENOUGH else 0.0
        trust = max(0.5, held)
        self.rate = max(inflow**trust * pace ** (1.0 - trust), least * pace)
        return self.rate

    def _is_doubtful(self, refused: Mark) -> bool:
        """Whether refusals come again and again, though seldom, at paces that used to work."""
        assert self.pace is not None
        if self.pace.rate >= WELL_BELOW * self._proven:
            self._doubts = 0
            return False
        if self._doubts == 0:
            self._doubted, self._refused_since = refused, 0.0
        self._doubts += 1
        self._refused_since += 1.0
        sent = refused.sent - self._doubted.sent
        seldom = sent >= STRAY_SAMPLE and self._refused_since <= STRAY_SHARE * sent
        return self._doubts > CONTRADICTIONS and seldom and self.sent >= self._doubts_from

    def _go_free(self, now: float) -> None:
        self.rate = None
        self._free_from = Mark(now, self.sent)
        self._note(now, self._free_from, now)
        self._refused_since, self._doubts = 0.0, 0
        self._doubts_from = 2.0 * self.sent

    def _is_stray(self, now: float, since: Mark) -> bool:
        self._refused_since += 1.0
        sent = self.sent - since.sent
        if sent >= STRAY_SAMPLE and self._refused_since > STRAY_SHARE * sent:
            # A limit after all: search for it from here.
            self._free_from, self._proven = None, 0.0
            return False
        if sent >= LARGEST_SAMPLE:
            self._free_from, self._refused_since = Mark(now, self.sent), 0.0
        return True

    def _note(self, now: float, refused: Mark, held_until: float) -> None:
        self._empty = refused
        self._refused = 1.0
        self._resumed = Mark(held_until, self.sent)
        self._held_s = max(0.0, held_until - now)
        self._paced, self._paced_until, self._has_doubled = 0.0, self.sent, False
        self._back, self._grown_at = None, held_until

    # ---- the pace

    def _set_pace(self, rate: float, held_until: float) -> None:
        self.pace = TokenBucket.full(rate, max(1.0, AT_A_TIME_S * rate), held_until)

    @property
    def _curve(self) -> Curve:
        if self._empty is None:
            return REMEMBERED
        return CURVES[min(self._confirmed, len(CURVES) - 1)]

    def _way_back(self, rate: float) -> float:
        """How many requests until the estimate is reached again."""
        return max(self._curve.requests, rate * max(1.0, self._curve.holds * self._held_s))

    def _grow(self, now: float, pace: TokenBucket) -> None:
        if self.rate is None:
            if self._paced < max(FEWEST_SENT, DOUBLES_EVERY_S * pace.rate):
                return
            rate, self._paced, self._has_doubled = 2.0 * pace.rate, 0.0, True
        else:
            ahead = self._paced / self._way_back(self.rate) - 1.0
            step = self._curve.beyond if ahead > 0.0 else 1.0 - self._curve.start
            if ahead > 0.0 and self._back is None:
                self._back = Mark(now, self.sent)
            passed_s = min(1.0, max(0.0, now - self._grown_at))
            most = pace.rate * math.exp(self._curve.per_s * passed_s)
            rate = min(self.rate * (1.0 + step * ahead**3), most)
        self._grown_at = now
        pace.change(now, rate=rate, capacity=max(1.0, AT_A_TIME_S * rate))
