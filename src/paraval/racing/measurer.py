"""Measures the baseline and candidates: fresh processes in ABBA blocks, alone, on one CPU.

A block is four processes, A B B A or B A A B, with A the baseline: what drifts meanwhile drifts for
both. What blocks say together, and how many there are, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paraval.machine.reader import MachineReader
from paraval.racing.findings import Block, Calibration, Finding, Sample
from paraval.racing.forging import always_printed, flags_of_printed, flags_of_told
from paraval.racing.leavings import in_words, only_with
from paraval.racing.metrics import difference_in_cases, remarks
from paraval.racing.performing import RaceRoom, broke, found
from paraval.racing.quiet import Quiet
from paraval.racing.stands import MOST_STANDS, Stand, Stands
from paraval.racing.steps import BASELINE, Step, StepKind
from paraval.racing.timing import Chance, Timed, Timing, chances, own_cpus
from paraval.records import Attempt, AttemptResult, Failure, Outcome
from paraval.workspaces.workspace import WorkspaceError

CALIBRATING_PROCESSES = 3
SINGLE_CPUS = 1.2
"""A benchmark that keeps no more busy does its work one thing after the other: pinned to one CPU it
loses nothing, and is not moved about."""
NEW_ROUND_S = 2.0
"""After so long without a measurement the machine is waited for again."""
A, B = "baseline", "candidate"


def cpus_for(asked: int | None, busy_cpus: float | None, allowed: Sequence[int]) -> tuple[int, ...]:
    """Which CPUs a benchmark is pinned to; empty: none.

    The last ones: the first has most of the interrupts to serve, and what starts anew often begins
    there. `busy_cpus`: how many the baseline keeps busy; None: nobody knows yet.
    """
    if asked is None:
        is_single = busy_cpus is not None and busy_cpus <= SINGLE_CPUS
        asked = 1 if is_single and len(allowed) > 1 else 0
    return tuple(allowed[len(allowed) - min(asked, len(allowed)) :])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Where the two sides of a block stand."""

    baseline: Stand
    candidate: Stand

    def of(self, side: str) -> Stand:
        return self.baseline if side == A else self.candidate


class _BrokenError(Exception):
    """A process that gave no measurement ends its step."""

    def __init__(self, side: str, timed: Timed) -> None:
        super().__init__(side)
        self.side = side
        self.timed = timed


class Measurer:
    """Performs `calibrate`, `screen` and `final`; of these, the engine runs one at a time."""

    def __init__(
        self, room: RaceRoom, *, most_stands: int = MOST_STANDS, quiet: Quiet | None = None
    ) -> None:
        """Beside its stands, a race's pool needs the slots that tests run in."""
        self._room = room
        self._timing = Timing(room.request, room.processes)
        self._stands = Stands(
            room.workspaces,
            room.processes.homes,
            baseline=room.base.tree,
            most=most_stands,
            say=room.say,
        )
        self._quiet = quiet or Quiet(MachineReader())
        self._round: StepKind | None = None
        self._measured_at = 0.0
        self._is_quiet: bool | None = None
        """When this round began; None: nobody waited for it."""
        self._own = own_cpus()

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        began = time.monotonic()
        if step.kind is not self._round or began - self._measured_at > NEW_ROUND_S:
            self._round, self._is_quiet = step.kind, None
        try:
            if step.kind is StepKind.CALIBRATE:
                return await self._calibrate(attempt, began)
            return await self._block(attempt, step, began)
        except WorkspaceError as error:
            return broke(
                Outcome.INFRA_ERROR,
                str(error),
                lasting=error.lasting,
                duration_s=time.monotonic() - began,
            )
        except _BrokenError as broken:
            stand = broken.timed.start.stand
            is_alone = step.kind is StepKind.CALIBRATE or broken.side == B
            await stand.look()
            self._stands.drop(stand)
            meddled = [] if is_alone else stand.meddled
            return _broken(broken, step, time.monotonic() - began, meddled)
        except asyncio.CancelledError:
            self._stands.drop_all()
            raise
        finally:
            self._measured_at = time.monotonic()
            self._stands.rest()

    async def close(self) -> None:
        await self._stands.close()

    # ---- steps

    async def _calibrate(self, attempt: Attempt, began: float) -> AttemptResult:
        cpus = cpus_for(self._room.request.bench.cpus, None, self._own)
        stand = await self._warm_stand(attempt, A, self._room.base.tree, cpus)
        pairs = chances(f"calibrate:{stand.tree}", CALIBRATING_PROCESSES)
        starts = [
            self._timing.ready(attempt, stand, f"{number}-{A}", pair[0], cpus)
            for number, pair in enumerate(pairs, start=1)
        ]
        await self._stands.at_rest()
        # Not waited for: every test of a candidate would wait too, and no decision rests on this.
        self._quiet.begin()
        timed = [_well(A, await self._timing.time(start)) for start in starts]
        noisy = self._is_noisy(timed)
        await stand.settle()
        samples = tuple(_sample(one) for one in timed)
        calibration = Calibration(
            samples=samples,
            process_s=statistics.median(one.ended.wall_s for one in timed),
            busy_cpus=statistics.median(_busy_cpus(one) for one in timed),
            noisy=noisy,
            printed=await asyncio.to_thread(always_printed, timed),
        )
        notes = remarks(self._room.request.bench, {"the baseline": samples})
        return found(Finding(calibration=calibration), notes=notes, **_taken(timed, began))

    async def _block(self, attempt: Attempt, step: Step, began: float) -> AttemptResult:
        assert step.tree is not None
        cpus = self._cpus()
        pair = _Pair(
            baseline=await self._warm_stand(attempt, A, self._room.base.tree, cpus),
            candidate=await self._warm_stand(attempt, B, step.tree, cpus),
        )
        order = (A, B, B, A) if step.number % 2 else (B, A, A, B)
        drawn = [one for two in chances(_seed(step), 2) for one in two]
        starts = [
            (side, self._timing.ready(attempt, pair.of(side), f"{number}-{side}", chance, cpus))
            for number, (side, chance) in enumerate(zip(order, drawn, strict=True), start=1)
        ]
        await self._begin()
        timed = [(side, _well(side, await self._timing.time(start))) for side, start in starts]
        every = [one for _, one in timed]
        noisy = self._is_noisy(every)
        baseline, candidate = _samples(timed, A), _samples(timed, B)
        problem = difference_in_cases(baseline, candidate)
        if problem is not None:
            message = f"the candidate's benchmark measures something else: {problem}"
            return broke(Outcome.INVALID_OUTPUT, message, **_taken(every, began))
        block = Block(
            baseline=baseline,
            candidate=candidate,
            noisy=noisy,
            pinned=cpus if all(one.ended.pinned for one in every) else (),
            gap_s=_longest_gap(every),
            flags=await self._flags(pair, timed),
        )
        sides = {"the baseline": baseline, "the candidate": candidate}
        notes = remarks(self._room.request.bench, sides)
        return found(Finding(block=block), notes=notes, **_taken(every, began))

    # ---- before the processes

    async def _warm_stand(
        self, attempt: Attempt, side: str, tree: str, cpus: tuple[int, ...]
    ) -> Stand:
        stand = await self._stands.stand(tree)
        if stand.is_warm:
            await stand.look()
        if stand.meddled:
            # Another's benchmark did that, or a test: it is not measured as what it was made.
            self._stands.drop(stand)
            stand = await self._stands.stand(tree)
        if not stand.is_warm:
            start = self._timing.ready(attempt, stand, f"0-{side}", Chance(), cpus)
            _well(side, await self._timing.time(start))
            await stand.settle()
            stand.is_warm = True
        return stand

    async def _begin(self) -> None:
        """Wait until we are quiet ourselves, and for a quiet machine once for each round."""
        await self._stands.at_rest()
        if self._is_quiet is None:
            quiet_s = self._room.request.bench.quiet_s
            self._is_quiet = await self._quiet.wait_until_quiet(quiet_s, self._say_it_waits)
        self._quiet.begin()

    def _say_it_waits(self) -> None:
        quiet_s = self._room.request.bench.quiet_s
        self._room.say(
            f"Others keep this machine busy: it is waited for, {quiet_s:g} s at most; then it is"
            " measured all the same, and marked noisy."
        )

    def _cpus(self) -> tuple[int, ...]:
        calibration = self._calibration()
        busy_cpus = None if calibration is None else calibration.busy_cpus
        return cpus_for(self._room.request.bench.cpus, busy_cpus, self._own)

    def _calibration(self) -> Calibration | None:
        end = self._room.ends.get((StepKind.CALIBRATE, BASELINE, 1))
        return None if end is None else end.finding.calibration

    # ---- after them

    def _is_noisy(self, timed: Sequence[Timed]) -> bool:
        own_cpu_s = sum(one.ended.cpu_s for one in timed)
        return self._quiet.was_disturbed(len(timed), own_cpu_s) or self._is_quiet is False

    async def _flags(self, pair: _Pair, timed: Sequence[tuple[str, Timed]]) -> tuple[str, ...]:
        """What the candidate's benchmark left, and whether it did its work. After every block:
        answers that are written down late would make all later ones fast."""
        for stand in (pair.baseline, pair.candidate):
            await stand.look()
        # After one process of each alone, too: later ones could have covered up for it.
        left = only_with(pair.candidate.usual, pair.baseline.usual)
        left += only_with(pair.candidate.left, pair.baseline.left)
        flags = in_words(sorted(set(left)), pair.candidate.had)
        leaked = {side: sum(one.ended.leaked for s, one in timed if s == side) for side in (A, B)}
        if leaked[B] and not leaked[A]:
            # Work that goes on behind its back is not in the time that it took.
            flags += ("its benchmark leaves processes that go on",)
        if pair.baseline.meddled:
            self._stands.drop(pair.baseline)
            flags += (_meddling(pair.baseline.meddled),)
        return flags + await asyncio.to_thread(self._forged, timed)

    def _forged(self, timed: Sequence[tuple[str, Timed]]) -> tuple[str, ...]:
        calibration = self._calibration()
        expected = None if calibration is None else calibration.printed
        baseline, candidate = ([one for s, one in timed if s == side] for side in (A, B))
        printed = flags_of_printed(expected, baseline, candidate)
        return printed + flags_of_told(baseline, candidate)


def _seed(step: Step) -> str:
    return f"{step.kind}:{step.tree}:{step.number}"


def _well(side: str, timed: Timed) -> Timed:
    if timed.failure is not None:
        raise _BrokenError(side, timed)
    return timed


def _sample(timed: Timed) -> Sample:
    assert timed.sample is not None
    return timed.sample


def _samples(timed: Sequence[tuple[str, Timed]], side: str) -> tuple[Sample, Sample]:
    first, second = (_sample(one) for name, one in timed if name == side)
    return first, second


def _busy_cpus(timed: Timed) -> float:
    return timed.ended.cpu_s / timed.ended.wall_s if timed.ended.wall_s > 0.0 else 0.0


def _longest_gap(timed: Sequence[Timed]) -> float:
    """From the end of a process to the start of the next: what passed between both ends, without
    the time that the later one took. All that is ours is in it, the watchers' part too."""
    pairs = itertools.pairwise(timed)
    return max(
        max(0.0, later.ended_at - earlier.ended_at - later.ended.wall_s) for earlier, later in pairs
    )


def _taken(timed: Sequence[Timed], began: float) -> dict[str, Any]:
    """Fields of a result: what it took of the machine."""
    return {
        "duration_s": time.monotonic() - began,
        "cpu_s": sum(one.ended.cpu_s for one in timed),
        "memory_bytes": max(one.ended.memory_bytes for one in timed),
    }


def _meddling(changed: Sequence[str]) -> str:
    return f"its benchmark changes {changed[0]} in the baseline's worktree"


def _broken(
    broken: _BrokenError, step: Step, duration_s: float, meddled: Sequence[str]
) -> AttemptResult:
    failure, timed = broken.timed.failure, broken.timed
    assert failure is not None
    message = f"the {broken.side}'s benchmark: {failure.message}"
    outcome = _outcome(broken.side, step, failure)
    if meddled:
        outcome, message = Outcome.INVALID_OUTPUT, f"{_meddling(meddled)}; then {message}"
    return broke(
        outcome,
        message,
        duration_s=duration_s,
        exit_code=timed.ended.exit_code,
        artifacts=timed.logs,
    )


def _outcome(side: str, step: Step, failure: Failure) -> Outcome:
    """A baseline that worked when it was calibrated is no reason to think worse of a candidate."""
    if side == A and step.kind is not StepKind.CALIBRATE:
        return Outcome.INFRA_ERROR
    return failure.kind
