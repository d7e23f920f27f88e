"""The engine in a thread of its own, driving tests as it drives every other kind of attempt.

The main thread has to be free for what only it can do; so the loop that decides and starts is not
there. Nothing is written to disk here: what a run found is recorded from its reports.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from paraval.execute.driver import Driver, Performer
from paraval.execute.growing import Growth
from paraval.execute.pace import Pace
from paraval.execute.source import Source
from paraval.machine.reader import MachineReader
from paraval.pytest_plugin.null_ledger import NullLedger
from paraval.records import Happening, Limits, RetryPolicy, Trial, TrialResult
from paraval.schedule.messages import Work
from paraval.schedule.scheduler import Scheduler

JOIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Programme:
    """What is to run, by which rules."""

    trials: Sequence[Trial]
    """All that may run, by their index."""
    works: Sequence[Work]
    """The same, as the scheduler sees them."""
    limits: Limits
    retry: RetryPolicy
    expected_s: Mapping[int, float]
    has_history: bool
    seed: int = 0


class Engine:
    """Drives a programme. Its methods may be called from any thread."""

    def __init__(
        self,
        programme: Programme,
        *,
        performer: Performer,
        tell: Callable[[Happening], None],
        on_end: Callable[[BaseException | None], None],
        source: Source | None = None,
    ) -> None:
        """`tell` is called in the engine's thread, and so is `on_end`, once. With a source, only
        what it names is run."""
        self._programme = programme
        self._performer = performer
        self._tell = tell
        self._on_end = on_end
        self._source = source
        self._driver: Driver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paraval-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def add(self, trials: Sequence[Trial]) -> None:
        """More of what the source names."""
        self._in_loop(lambda driver: driver.add(trials))

    def end_early(self) -> None:
        """Nothing new starts; what runs may end."""
        self._in_loop(Driver.end_early)

    def end_now(self) -> None:
        """What runs is left behind."""
        self._in_loop(Driver.end_now)

    def join(self) -> bool:
        """Whether it has ended, after a while."""
        self._thread.join(JOIN_S)
        return not self._thread.is_alive()

    def _in_loop(self, act: Callable[[Driver], None]) -> None:
        loop, driver = self._loop, self._driver
        if loop is not None and driver is not None:
            # A loop that has ended has nothing left to be asked for.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(act, driver)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._drive())
        except BaseException as caught:  # noqa: BLE001 - told to the main thread, which raises it
            error = caught
        finally:
            self._ready.set()
            self._on_end(error)

    async def _drive(self) -> None:
        programme = self._programme
        chosen = () if self._source is not None else programme.trials
        self._loop = asyncio.get_running_loop()
        self._driver = Driver(
            {trial.index: trial for trial in chosen},
            scheduler=Scheduler(
                [] if self._source is not None else programme.works,
                limits=programme.limits,
                retry=programme.retry,
                seed=programme.seed,
            ),
            performer=self._performer,
            ledger=NullLedger(),
            tell=self._tell,
            pace=Pace(
                lambda trial: programme.expected_s.get(trial.index, 1.0),
                from_history=programme.has_history,
            ),
        )
        if self._source is not None:
            known: Mapping[str, TrialResult] = {}
            works = {work.index: work for work in programme.works}
            self._driver.follow(
                Growth(source=self._source, known=known, work_of=lambda one: works[one.index])
            )
        self._ready.set()
        reader = MachineReader() if programme.limits.auto else None
        await self._driver.run(None if reader is None else lambda: reader.read({}))
