"""How the driver records attempts: what it needs from the store, and the starts of short attempts,
recorded ahead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from paraval.records import Attempt, AttemptResult, Outcome, Trial
from paraval.schedule.scheduler import Scheduler


class RunLedger(Protocol):
    """What the driver needs from the store. The calls don't block; `on_durable` is called in the
    loop."""

    @property
    def done(self) -> Mapping[int, Outcome]:
        """The trials that had a result when the driver started."""
        ...

    def add(self, trials: Sequence[Trial]) -> None:
        """Add trials to the run, before anything is recorded about them."""
        ...

    def record_start(self, attempt: Attempt, at: float, on_durable: Callable[[], None]) -> None: ...

    def record_ahead(self, attempt: Attempt, at: float, on_durable: Callable[[], None]) -> None:
        """Record a start that no one waits for yet. Whoever does calls `hurry`."""
        ...

    def hurry(self) -> None: ...

    def take_back(self, attempt: Attempt) -> None:
        """Its start was recorded, but it does not start."""
        ...

    def record_end(
        self,
        attempt: Attempt,
        result: AttemptResult,
        *,
        final: bool,
        queued_s: float | None,
        on_durable: Callable[[], None],
    ) -> None: ...

    def attempts_made(self, index: int) -> int: ...

    def attempt_folder(self, trial: Trial, number: int) -> str: ...


RECORDED_AHEAD_BELOW_S = 1.0
"""Longer attempts lose nothing by waiting for the disk, and the store shows only those as running
that are."""


class StartsAhead:
    """Attempts whose starts are recorded before there is a slot for them.

    The disk is then waited for while others run. What has a start on disk but no end is at most
    twice what runs: that much may run again after a kill.
    """

    def __init__(self, ledger: RunLedger, scheduler: Scheduler) -> None:
        self._ledger = ledger
        self._scheduler = scheduler
        self._attempts: dict[int, Attempt] = {}
        self._on_disk: set[int] = set()
        self._awaited: dict[int, Attempt] = {}
        """Attempts that were taken before they were on disk."""
        self._mean_s: float | None = None
        """How long attempts took, the last ones counting most; None: none has ended yet ..."""
        self._presumed_short = False
        """... and they are presumed short while none has run longer than that."""

    def observe(self, duration_s: float) -> None:
        self._mean_s = duration_s if self._mean_s is None else 0.9 * self._mean_s + 0.1 * duration_s

    def number(self, index: int) -> int | None:
        """The number of the trial's attempt that is recorded ahead, if one is."""
        attempt = self._attempts.get(index)
        return None if attempt is None else attempt.number

    def record(
        self,
        running: int,
        undurable: int,
        next_attempt: Callable[[int], Attempt],
        on_durable: Callable[[int], None],
    ) -> None:
        """Record more, once a quarter of what may be is free. `undurable`: how many have ended
        whose ends are not on disk."""
        room = running - undurable - len(self._attempts)
        is_short = self._mean_s is None or self._mean_s < RECORDED_AHEAD_BELOW_S
        if not is_short or room <= 0 or 4 * room < running:
            return
        if self._mean_s is None and not self._presumed_short:
            self._presumed_short = True
            loop = asyncio.get_running_loop()
            loop.call_later(RECORDED_AHEAD_BELOW_S, self._presume_long)
        now = time.time()
        upcoming = (one for one in self._scheduler.upcoming() if one not in self._attempts)
        for index in islice(upcoming, room):
            attempt = self._attempts[index] = next_attempt(index)
            self._ledger.record_ahead(attempt, now, partial(self._recorded, attempt, on_durable))

    def _presume_long(self) -> None:
        if self._mean_s is None:
            self._mean_s = RECORDED_AHEAD_BELOW_S
            self.take_back()

    def _recorded(self, attempt: Attempt, on_durable: Callable[[int], None]) -> None:
        index = attempt.trial.index
        if self._attempts.get(index) is attempt:
            self._on_disk.add(index)
        elif self._awaited.get(index) is attempt:
            del self._awaited[index]
            on_durable(index)

    def take(self, index: int) -> tuple[Attempt | None, bool]:
        """The trial's attempt, if it was recorded ahead, and whether it may start now. If not, it
        may when its start is on disk."""
        attempt = self._attempts.pop(index, None)
        is_on_disk = index in self._on_disk
        self._on_disk.discard(index)
        if attempt is not None and not is_on_disk:
            self._awaited[index] = attempt
            self._ledger.hurry()
        return attempt, is_on_disk

    def take_back(self, *indexes: int) -> None:
        for index in indexes or tuple(self._attempts):
            self._on_disk.discard(index)
            if (attempt := self._attempts.pop(index, None)) is not None:
                self._ledger.take_back(attempt)
