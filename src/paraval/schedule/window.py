"""How many requests at once an account bears, where nobody told: found by trying.

Slow start first: it doubles as long as nothing is refused, and not only when answers have come,
since a refusal comes at once and an answer may take a minute. A refusal takes the limit back to
the last level that was good; another one with as many in flight as before shows that it is the
number at once that is limited, and not a rate. From then on the limit grows little by little, and
is cut once in a window of time, however many refusals come in it, since they all tell of the same
moment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paraval.schedule.pacing import INSTANT_S

FIRST = 20
DOUBLES_EVERY_S = 0.25
"""Long enough for a refusal to have come back from anywhere on earth."""
GROWTH = 0.05
CUT = 0.8
CUT_EVERY_S = 15.0
IN_USE = 0.8
"""A limit that was not nearly reached has not been tried: it doesn't grow."""
ALIKE = 0.1
"""Two refusals with numbers in flight that differ by no more than this share tell the same."""


@dataclass(slots=True)
class Window:
    """A limit on what is in flight, between 1 and `most`."""

    most: int
    limit: int = 0
    in_flight: int = 0
    is_found: bool = False
    """True: the number at once is limited, and it is about this."""
    _peak: int = 0
    _successes: int = 0
    _refused_with: int = 0
    _cut_at: float = -math.inf
    _starting: bool = True
    """Nothing was refused yet."""
    _full_since: float | None = None
    """When so many were first in flight as the limit allows."""

    def __post_init__(self) -> None:
        self.limit = min(FIRST, self.most)

    def room_at(self, now: float) -> float:
        """When one more may be in flight; infinite while only an answer can tell."""
        if self.in_flight < self.limit:
            return now
        if not self._starting or self._full_since is None or self.limit >= self.most:
            return math.inf
        grows_at = self._full_since + DOUBLES_EVERY_S
        if grows_at > now + INSTANT_S:
            return grows_at
        self._grow(self.limit)
        return now

    def enter(self, now: float) -> None:
        self.in_flight += 1
        if self.in_flight >= self.limit and self._full_since is None:
            self._full_since = now
        self._peak = max(self._peak, self.in_flight)

    def leave(self) -> None:
        self.in_flight -= 1

    def succeed(self, now: float) -> None:
        """A round is clean when as many as the limit succeeded, one after the other."""
        if self.is_found and now - self._cut_at < CUT_EVERY_S:
            return
        self._successes += 1
        if self._successes < self.limit:
            return
        if self._peak >= IN_USE * self.limit:
            self._grow(max(1, int(GROWTH * self.limit)) if self.is_found else self.limit)
        self._begin_round()

    def pause(self, now: float) -> None:
        """The provider has troubles of its own: no reason to do less, but none to do more."""
        self._begin_round()
        if self._full_since is not None:
            self._full_since = now

    def refuse(self, now: float, beside: int) -> None:
        """A request was refused that had so many others beside it when it was sent."""
        self._starting = False
        before, self._refused_with = self._refused_with, beside
        self._begin_round()
        # One beside another tells nothing: a burst of one is refused just so.
        alike = min(before, beside) > 1 and abs(beside - before) <= ALIKE * before
        if alike and not self.is_found:
            self.is_found = True
            least = 1
        elif now - self._cut_at >= CUT_EVERY_S:
            # While it doubled, the half is the last level that was known to be good.
            least = int(CUT * self.limit) if self.is_found else self.limit // 2
        else:
            return
        self._cut_at = now
        self.limit = max(1, least, min(self.limit, beside))

    def start_again(self) -> None:
        """What was found is in doubt: slow start, once more."""
        self.limit = min(FIRST, self.most)
        self.is_found = False
        self._refused_with = 0
        self._full_since = None
        self._begin_round()

    def _grow(self, step: int) -> None:
        self.limit = min(self.most, self.limit + step)
        self._full_since = None

    def _begin_round(self) -> None:
        self._successes = 0
        self._peak = self.in_flight
