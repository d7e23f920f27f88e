"""Measures the baseline and candidates: fresh processes in ABBA blocks, on a quiet machine.

A block is four processes, A B B A or B A A B, with A the baseline, so that drift affects both sides
equally. Other modules decide how many blocks there are and what they show.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from paraval.dataclass import dataclass
from paraval.machine.machine_reader import MachineReader, TreeUsage
from paraval.racing.context import RaceContext, failed, found
from paraval.racing.findings import Block, Calibration, Sample, StepFinding
from paraval.racing.integrity.benchmark_checks import (
    always_printed,
    flags_of_left,
    flags_of_printed,
    only_with,
)
from paraval.racing.request import BenchMetric
from paraval.racing.speed.benchmark_process import (
    BenchmarkRunner,
    BenchmarkTime,
    RandomLayout,
    chances,
    difference_in_cases,
    own_cpus,
    remarks,
)
from paraval.racing.speed.measurement_worktrees import (
    MOST_WORKTREES,
    MeasurementWorktree,
    MeasurementWorktrees,
)
from paraval.racing.steps import BASELINE, Step, StepKind
from paraval.records import Attempt, AttemptResult, Failure, MachineReading, Outcome
from paraval.scratch import scratch_base
from paraval.workspaces.workspace import WorkspaceError

# Whether the machine is quiet during measurements.

LEAST_DISTURBING_CPUS = 0.2
DISTURBING_SHARE = 0.05
"""Other processes disturb if they use more than a fifth of a CPU or, on a large machine, more than
this share of it. On two cores that shifts a benchmark by several percent; an idle desktop stays far
below."""
DISTURBING_PRESSURE = 0.05
"""The share of time in which a process waited for a CPU (PSI `some`) while none of ours ran."""
LOOK_S = 0.25
QUIET_LOOKS = 3
"""Quiet checks needed in a row: a pause between two bursts is not quiet."""
NOTICE_AFTER_LOOKS = 8
"""After this many checks, a notice about the wait is shown."""
BLUR_S = 0.03
"""Most kernels count busy time in ticks of 10 ms, so slightly past the end of a block."""
START_S = 0.001
"""The CPU time that starting and ending one of our processes costs its watchers."""


class LoadReader(Protocol):
    """`machine.machine_reader.MachineReader`, or a fake."""

    def read(self, loads: Mapping[int, TreeUsage]) -> MachineReading: ...


def others_cpus(reading: MachineReading, passed_s: float, own_cpu_s: float) -> float:
    """How many CPUs other processes kept busy; underestimated for short times."""
    if passed_s <= 0.0:
        return 0.0
    return max(0.0, reading.busy_cpus - (own_cpu_s + BLUR_S) / passed_s)


def is_disturbed(reading: MachineReading, passed_s: float, own_cpu_s: float) -> bool:
    """Whether other processes disturbed a measurement."""
    most = max(LEAST_DISTURBING_CPUS, DISTURBING_SHARE * reading.cpus)
    return others_cpus(reading, passed_s, own_cpu_s) > most


def is_quiet(reading: MachineReading, passed_s: float, own_cpu_s: float) -> bool:
    """Whether a benchmark may start, while only the engine itself runs."""
    pressed = reading.cpu_some > DISTURBING_PRESSURE
    return not pressed and not is_disturbed(reading, passed_s, own_cpu_s)


class QuietMachine:
    """Checks the machine's load; each check covers the time since the last one."""

    def __init__(
        self,
        reader: LoadReader,
        *,
        clock: Callable[[], float] = time.monotonic,
        engine_cpu_s: Callable[[], float] = time.process_time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._engine_cpu_s = engine_cpu_s
        self._sleep = sleep
        self._seen_at = clock()
        self._engine_then_s = engine_cpu_s()

    async def wait_until_quiet(
        self, limit_s: float, on_wait: Callable[[], None] = lambda: None
    ) -> bool:
        """Wait for a quiet machine; False if it was not quiet in time. A limit of 0 skips the wait.

        `on_wait` is called once, if it takes longer than a few checks.
        """
        if limit_s <= 0.0:
            return True
        began = self._clock()
        self._look(0.0)
        quiet, looks = 0, 0
        while quiet < QUIET_LOOKS:
            if self._clock() - began >= limit_s and not quiet:
                return False
            looks += 1
            if looks == NOTICE_AFTER_LOOKS:
                on_wait()
            await self._sleep(LOOK_S)
            quiet = quiet + 1 if is_quiet(*self._look(0.0)) else 0
        return True

    def begin(self) -> None:
        """Start the period for `was_disturbed`."""
        self._look(0.0)

    def was_disturbed(self, processes: int, own_cpu_s: float) -> bool:
        """Whether others disturbed us since `begin`; our processes took `own_cpu_s` of CPU time."""
        return is_disturbed(*self._look(own_cpu_s + processes * START_S))

    def _look(self, own_cpu_s: float) -> tuple[MachineReading, float, float]:
        reading, now, engine_s = self._reader.read({}), self._clock(), self._engine_cpu_s()
        passed_s, engine_took_s = now - self._seen_at, engine_s - self._engine_then_s
        self._seen_at, self._engine_then_s = now, engine_s
        return reading, passed_s, own_cpu_s + engine_took_s


CALIBRATING_PROCESSES = 3
SINGLE_CPUS = 1.2
"""A benchmark that keeps no more CPUs busy is sequential: pinned to one CPU it loses nothing, and
is not moved around."""
NEW_ROUND_S = 2.0
"""After this long without a measurement, wait for a quiet machine again."""
A, B = "baseline", "candidate"


def cpus_for(asked: int | None, busy_cpus: float | None, allowed: Sequence[int]) -> tuple[int, ...]:
    """The CPUs to pin a benchmark to; empty for no pinning.

    The last ones: the first one serves most interrupts, and new processes often start there.
    `busy_cpus`: how many the baseline keeps busy; None if unknown.
    """
    if asked is None:
        is_single = busy_cpus is not None and busy_cpus <= SINGLE_CPUS
        asked = 1 if is_single and len(allowed) > 1 else 0
    return tuple(allowed[len(allowed) - min(asked, len(allowed)) :])


@contextlib.asynccontextmanager
async def _turn(on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """While it lasts, no other race of this user measures on this machine."""
    path = scratch_base() / f".paraval-measuring-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        tries = 0
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                tries += 1
                if tries == NOTICE_AFTER_LOOKS:
                    on_wait()
                await asyncio.sleep(LOOK_S)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The worktrees of the two sides of a block."""

    baseline: MeasurementWorktree
    candidate: MeasurementWorktree

    def of(self, side: str) -> MeasurementWorktree:
        return self.baseline if side == A else self.candidate


class _BrokenError(Exception):
    """A process gave no measurement, which ends its step."""

    def __init__(self, side: str, timed: BenchmarkTime) -> None:
        super().__init__(side)
        self.side = side
        self.timed = timed


class Measurer:
    """Performs `calibrate`, `screen` and `final`; the engine runs one of these at a time."""

    def __init__(
        self,
        context: RaceContext,
        *,
        most_worktrees: int = MOST_WORKTREES,
        quiet: QuietMachine | None = None,
    ) -> None:
        """The pool needs slots for tests in addition to `most_worktrees`."""
        self._context = context
        self._timing = BenchmarkRunner(context.request, context.processes)
        self._worktrees = MeasurementWorktrees(
            context.workspaces,
            context.processes.homes,
            baseline=context.base.tree,
            most=most_worktrees,
            say=context.say,
        )
        self._quiet = quiet or QuietMachine(MachineReader())
        self._round: StepKind | None = None
        self._measured_at = 0.0
        self._is_quiet: bool | None = None
        """Whether the machine was quiet when this round began; None before the wait."""
        self._own = own_cpus()
        self._has_waited = False
        """Whether another race's turn was announced."""

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        began = time.monotonic()
        try:
            async with _turn(self._say_waiting):
                began = time.monotonic()
                if step.kind is not self._round or began - self._measured_at > NEW_ROUND_S:
                    self._round, self._is_quiet = step.kind, None
                if step.kind is StepKind.CALIBRATE:
                    return await self._calibrate(attempt, began)
                return await self._block(attempt, step, began)
        except WorkspaceError as error:
            return failed(
                Outcome.INFRA_ERROR,
                str(error),
                lasting=error.lasting,
                duration_s=time.monotonic() - began,
            )
        except _BrokenError as broken:
            self._worktrees.drop(broken.timed.start.worktree)
            return _broken(broken, step, time.monotonic() - began)
        except asyncio.CancelledError:
            self._worktrees.drop_all()
            raise
        finally:
            self._measured_at = time.monotonic()
            self._worktrees.rest()

    async def close(self) -> None:
        await self._worktrees.close()

    # ---- steps

    async def _calibrate(self, attempt: Attempt, began: float) -> AttemptResult:
        cpus = cpus_for(self._context.request.bench.cpus, None, self._own)
        worktree = await self._warm_worktree(attempt, A, self._context.base.tree, cpus)
        pairs = chances(f"calibrate:{worktree.tree}", CALIBRATING_PROCESSES)
        starts = [
            self._timing.ready(attempt, worktree, f"{number}-{A}", pair[0], cpus)
            for number, pair in enumerate(pairs, start=1)
        ]
        await self._worktrees.at_rest()
        # No wait for a quiet machine: all tests would wait too, and nothing is decided by this.
        self._quiet.begin()
        timed = [_well(A, await self._timing.time(start)) for start in starts]
        noisy = self._is_noisy(timed)
        await worktree.settle()
        samples = tuple(_sample(one) for one in timed)
        calibration = Calibration(
            samples=samples,
            process_s=statistics.median(one.ended.wall_s for one in timed),
            busy_cpus=statistics.median(_busy_cpus(one) for one in timed),
            noisy=noisy,
            is_memory=self._context.request.bench.metric == BenchMetric.MEMORY,
            printed=await asyncio.to_thread(_always_printed, timed),
        )
        if calibration.printed is None and not self._context.request.accept.unseen_results:
            self._context.say(
                "The benchmark prints nothing that is the same in each process, so nothing shows"
                " that a candidate does the same work: print its results. No candidate wins"
                " without that, unless you add --accept-unseen-results."
            )
        notes = remarks(self._context.request.bench, {"the baseline": samples})
        return found(StepFinding(calibration=calibration), notes=notes, **_taken(timed, began))

    async def _block(self, attempt: Attempt, step: Step, began: float) -> AttemptResult:
        assert step.tree is not None
        cpus = self._cpus()
        pair = _Pair(
            baseline=await self._warm_worktree(attempt, A, self._context.base.tree, cpus),
            candidate=await self._warm_worktree(attempt, B, step.tree, cpus),
        )
        order = (A, B, B, A) if step.number % 2 else (B, A, A, B)
        drawn = [one for two in chances(_seed(step), 2) for one in two]
        ready = partial(self._timing.ready, timeout=self._context.bench_timeout())
        starts = [
            (side, ready(attempt, pair.of(side), f"{number}-{side}", chance, cpus))
            for number, (side, chance) in enumerate(zip(order, drawn, strict=True), start=1)
        ]
        await self._begin()
        timed = [(side, _well(side, await self._timing.time(start))) for side, start in starts]
        every = [one for _, one in timed]
        noisy = self._is_noisy(every)
        baseline, candidate = _samples(timed, A), _samples(timed, B)
        problem = difference_in_cases(baseline, candidate)
        if problem is not None:
            message = f"the candidate's benchmark measures different cases: {problem}"
            return failed(Outcome.INVALID_OUTPUT, message, **_taken(every, began))
        block = Block(
            baseline=baseline,
            candidate=candidate,
            noisy=noisy,
            pinned=cpus if all(one.ended.pinned for one in every) else (),
            gap_s=_longest_gap(every),
            flags=await self._flags(pair, timed),
        )
        sides = {"the baseline": baseline, "the candidate": candidate}
        notes = remarks(self._context.request.bench, sides)
        return found(StepFinding(block=block), notes=notes, **_taken(every, began))

    # ---- before the processes

    async def _warm_worktree(
        self, attempt: Attempt, side: str, tree: str, cpus: tuple[int, ...]
    ) -> MeasurementWorktree:
        worktree = await self._worktrees.worktree(tree)
        if not worktree.is_warm:
            start = self._timing.ready(
                *(attempt, worktree, f"0-{side}", RandomLayout(), cpus),
                timeout=self._context.bench_timeout(),
            )
            _well(side, await self._timing.time(start))
            await worktree.settle()
            worktree.is_warm = True
        return worktree

    async def _begin(self) -> None:
        """Wait for our own cleanup, and once per round for a quiet machine."""
        await self._worktrees.at_rest()
        if self._is_quiet is None:
            bench = self._context.request.bench
            # These hardly depend on what else runs.
            is_steady = bench.metric in (BenchMetric.CPU, BenchMetric.MEMORY)
            quiet_s = 0.0 if is_steady else bench.quiet
            self._is_quiet = await self._quiet.wait_until_quiet(quiet_s, self._report_wait)
        self._quiet.begin()

    def _report_wait(self) -> None:
        quiet_s = self._context.request.bench.quiet
        self._context.say(
            f"Other processes are busy. Waiting up to {quiet_s:g} s; after that, measurements"
            " continue and are marked noisy. `--metric cpu` needs no quiet machine."
        )

    def _say_waiting(self) -> None:
        if self._has_waited:
            return
        self._has_waited = True
        self._context.say("Another race measures on this machine. Waiting for its turn to end.")

    def _cpus(self) -> tuple[int, ...]:
        calibration = self._calibration()
        busy_cpus = None if calibration is None else calibration.busy_cpus
        return cpus_for(self._context.request.bench.cpus, busy_cpus, self._own)

    def _calibration(self) -> Calibration | None:
        end = self._context.ends.get((StepKind.CALIBRATE, BASELINE, 1))
        return None if end is None else end.finding.calibration

    # ---- after them

    def _is_noisy(self, timed: Sequence[BenchmarkTime]) -> bool:
        own_cpu_s = sum(one.ended.cpu_s for one in timed)
        return self._quiet.was_disturbed(len(timed), own_cpu_s) or self._is_quiet is False

    async def _flags(
        self, pair: _Pair, timed: Sequence[tuple[str, BenchmarkTime]]
    ) -> tuple[str, ...]:
        """Flags for files that the candidate's benchmark left, and for work it skipped. Checked
        after every block: answers saved late would make all later blocks fast."""
        for worktree in (pair.baseline, pair.candidate):
            await worktree.look()
        # Also after the first process of each: later ones could hide what it left.
        left = only_with(pair.candidate.usual, pair.baseline.usual)
        left += only_with(pair.candidate.left, pair.baseline.left)
        flags = flags_of_left(sorted(set(left)), pair.candidate.had)
        leaked = {side: sum(one.ended.leaked for s, one in timed if s == side) for side in (A, B)}
        if leaked[B] and not leaked[A]:
            # Work that continues in the background is not in the measured time.
            flags += ("its benchmark leaves processes running",)
        return flags + await asyncio.to_thread(self._flags_of_printed, timed)

    def _flags_of_printed(self, timed: Sequence[tuple[str, BenchmarkTime]]) -> tuple[str, ...]:
        calibration = self._calibration()
        expected = None if calibration is None else calibration.printed
        baseline = [one.printed() for side, one in timed if side == A]
        # Output that could not be saved proves nothing.
        kept = [one for side, one in timed if side == B and one.ended.log_error is None]
        return flags_of_printed(expected, baseline, [one.printed() for one in kept])


def _seed(step: Step) -> str:
    return f"{step.kind}:{step.tree}:{step.number}"


def _well(side: str, timed: BenchmarkTime) -> BenchmarkTime:
    if timed.failure is not None:
        raise _BrokenError(side, timed)
    return timed


def _sample(timed: BenchmarkTime) -> Sample:
    assert timed.sample is not None
    return timed.sample


def _samples(timed: Sequence[tuple[str, BenchmarkTime]], side: str) -> tuple[Sample, Sample]:
    first, second = (_sample(one) for name, one in timed if name == side)
    return first, second


def _always_printed(timed: Sequence[BenchmarkTime]) -> str | None:
    return always_printed([one.printed() for one in timed])


def _busy_cpus(timed: BenchmarkTime) -> float:
    return timed.ended.cpu_s / timed.ended.wall_s if timed.ended.wall_s > 0.0 else 0.0


def _longest_gap(timed: Sequence[BenchmarkTime]) -> float:
    """The longest time from the end of a process to the start of the next: the time between both
    ends minus the later one's duration. Includes all our overhead."""
    pairs = itertools.pairwise(timed)
    return max(
        max(0.0, later.ended_at - earlier.ended_at - later.ended.wall_s) for earlier, later in pairs
    )


def _taken(timed: Sequence[BenchmarkTime], began: float) -> dict[str, Any]:
    """The fields of a result on time, CPU and memory."""
    return {
        "duration_s": time.monotonic() - began,
        "cpu_s": sum(one.ended.cpu_s for one in timed),
        "memory_bytes": max(one.ended.memory_bytes for one in timed),
    }


def _broken(broken: _BrokenError, step: Step, duration_s: float) -> AttemptResult:
    failure, timed = broken.timed.failure, broken.timed
    assert failure is not None
    return failed(
        _outcome(broken.side, step, failure),
        f"the {broken.side}'s benchmark: {failure.message}",
        duration_s=duration_s,
        exit_code=timed.ended.exit_code,
        artifacts=timed.logs,
    )


def _outcome(side: str, step: Step, failure: Failure) -> Outcome:
    """The outcome; a baseline that fails after calibration is not the candidate's fault."""
    if side == A and step.kind is not StepKind.CALIBRATE:
        return Outcome.INFRA_ERROR
    return failure.kind
