"""Runs the engine in its own thread, which drives tests like any other kind of attempt.

The main thread must be free for what only it can do, so the deciding loop is not there. Nothing is
written to disk here: runs are recorded from their reports.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from paraval.dataclass import dataclass
from paraval.execute.driver import Driver, Performer
from paraval.execute.pace import Pace
from paraval.execute.trial_source import Growth
from paraval.machine.machine_reader import MachineReader
from paraval.records import (
    Attempt,
    AttemptResult,
    Happening,
    Limits,
    Outcome,
    RetryPolicy,
    Trial,
    TrialResult,
)
from paraval.schedule.messages import Work
from paraval.schedule.scheduler import Scheduler

JOIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """What to run and how. The index of a trial or work is the position of its test."""

    trials: Sequence[Trial]
    works: Sequence[Work]
    limits: Limits
    retry: RetryPolicy
    has_history: bool
    """Whether the durations of tests are known from earlier runs."""
    is_alone_first: bool = False
    """Whether exclusive tests run first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCallbacks:
    """The engine's callbacks, all called in its own thread."""

    performer: Performer
    tell: Callable[[Happening], None]
    on_end: Callable[[BaseException | None], None]


class EmptySource:
    """A source without trials: they are added as xdist hands them out."""

    def begin(self) -> Sequence[Trial]:
        return ()

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:  # noqa: ARG002 - a source's signature
        return ()

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:  # noqa: ARG002 - a source's signature
        return ()


class EngineThread:
    """Drives a plan. Its methods may be called from any thread."""

    def __init__(self, plan: SessionPlan, callbacks: EngineCallbacks, *, is_fed: bool) -> None:
        """`is_fed`: run only what is added, until `add_no_more`."""
        self._plan = plan
        self._callbacks = callbacks
        self._is_fed = is_fed
        self._works: dict[int, Work] = {}
        """Work for the added trials."""
        self._driver: Driver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paraval-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def add(self, trials: Sequence[Trial], works: Sequence[Work]) -> None:
        """Add tests that were handed out to this process."""

        def add(driver: Driver) -> None:
            self._works.update((work.index, work) for work in works)
            driver.add(trials)

        self._in_loop(add)

    def add_no_more(self) -> None:
        self._in_loop(Driver.expect_no_more)

    def end_early(self) -> None:
        """Start nothing new; let running tests finish."""
        self._in_loop(Driver.end_early)

    def end_now(self) -> None:
        """Stop now, and abandon running tests."""
        self._in_loop(Driver.end_now)

    def join(self) -> bool:
        """Wait a while for the end; return whether it has ended."""
        self._thread.join(JOIN_S)
        return not self._thread.is_alive()

    def _in_loop(self, act: Callable[[Driver], None]) -> None:
        loop, driver = self._loop, self._driver
        if loop is not None and driver is not None:
            # A loop that has ended needs no more calls.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(act, driver)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._drive())
        except BaseException as caught:  # noqa: BLE001 - passed to the main thread, which raises it
            error = caught
        finally:
            self._ready.set()
            self._callbacks.on_end(error)

    async def _drive(self) -> None:
        plan = self._plan
        self._loop = asyncio.get_running_loop()
        scheduler = Scheduler(
            [] if self._is_fed else plan.works,
            limits=plan.limits,
            retry=plan.retry,
            seed=0,
        )
        if plan.is_alone_first:
            scheduler.begin_alone()
        self._driver = driver = Driver(
            {} if self._is_fed else {trial.index: trial for trial in plan.trials},
            scheduler=scheduler,
            performer=self._callbacks.performer,
            ledger=NullLedger(),
            tell=self._callbacks.tell,
            pace=Pace(self._expected_s, from_history=plan.has_history),
        )
        if self._is_fed:
            driver.follow(
                Growth(source=EmptySource(), known={}, work_of=lambda one: self._works[one.index])
            )
            driver.expect_more()
        self._ready.set()
        reader = MachineReader() if plan.limits.auto else None
        await driver.run(None if reader is None else lambda: reader.read({}))

    def _expected_s(self, trial: Trial) -> float:
        added = self._works.get(trial.index)
        return (added or self._plan.works[trial.index]).expected_s


# ---- the empty ledger


_NOTHING: Mapping[int, Outcome] = MappingProxyType({})


class NullLedger:
    """What the driver needs of a store, without one. Must be created in the loop that it serves."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._made: dict[int, int] = {}
        self._durable: list[Callable[[], None]] = []
        """Called together, in order, in the loop's next step."""

    @property
    def done(self) -> Mapping[int, Outcome]:
        return _NOTHING

    def add(self, trials: Sequence[Trial]) -> None: ...

    def attempts_made(self, index: int) -> int:
        return self._made.get(index, 0)

    def attempt_folder(self, trial: Trial, number: int) -> str:  # noqa: ARG002 - the driver's signature
        """No folder: a test that wants one has `tmp_path`."""
        return ""

    def record_start(self, attempt: Attempt, at: float, on_durable: Callable[[], None]) -> None:  # noqa: ARG002 - the driver's signature
        self._made[attempt.trial.index] = attempt.number
        self._call_soon(on_durable)

    record_ahead = record_start

    def hurry(self) -> None: ...

    def take_back(self, attempt: Attempt) -> None: ...

    def record_end(
        self,
        attempt: Attempt,  # noqa: ARG002 - the driver's signature, here and below
        result: AttemptResult,  # noqa: ARG002
        *,
        final: bool,  # noqa: ARG002
        queued_s: float | None,  # noqa: ARG002
        on_durable: Callable[[], None],
    ) -> None:
        self._call_soon(on_durable)

    def _call_soon(self, on_durable: Callable[[], None]) -> None:
        if not self._durable:
            self._loop.call_soon(self._deliver)
        self._durable.append(on_durable)

    def _deliver(self) -> None:
        durable, self._durable = self._durable, []
        for each in durable:
            # Separately: the loop reports what one raises, and the others still run.
            try:
                each()
            except Exception as error:  # noqa: BLE001 - the loop reports it, whatever it is
                self._loop.call_exception_handler(
                    {"message": "could not process the end of a test", "exception": error}
                )
