"""A world for the course of a race: it answers steps in any order, without a clock.

What becomes of a candidate is looked up by its name; the noise of a block by candidate, kind and
number. So the same race has the same ends, in whatever order they come.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from paraval.racing.findings import (
    Block,
    Calibration,
    Canary,
    CorrectnessFinding,
    ProfileFinding,
    Proposal,
    Proposed,
    RunDifference,
    StagedCandidate,
    StepFinding,
    TestCounts,
)
from paraval.racing.request import TOTAL, RaceKeys, RaceRequest
from paraval.racing.rounds import RaceRounds, StepId, id_of
from paraval.racing.standings import CandidateStanding, Standings
from paraval.racing.steps import BASELINE, Base, Step, StepEnd, StepKind
from paraval.records import FileChange, Outcome

BASE = Base(tree="base-tree", commit="c0ffee")
PROCESS_S = 0.5
BLOCK_S = 4 * PROCESS_S
PYTHON = (FileChange(path="a.py", status="changed", lines_added=1, lines_deleted=1),)
Noise = Callable[[random.Random], float]


def gaussian(rng: random.Random) -> float:
    """Of a logarithm: 3% to both sides."""
    return rng.gauss(0, 0.03)


def one_sided(rng: random.Random) -> float:
    """Now and then something gets in the way; nothing ever speeds a process up."""
    return rng.expovariate(1 / 0.03)


def silent(_: random.Random) -> float:
    return 0.0


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What becomes of a candidate."""

    speed: float = 1.0
    stage: Outcome = Outcome.PASSED
    test: Outcome = Outcome.PASSED
    bench: Outcome = Outcome.PASSED
    tree: str | None = None
    """None: like no other."""
    normal: str | None = None
    files: tuple[FileChange, ...] | None = None
    """None: those that every candidate changes."""
    problem: str = ""
    flags: tuple[str, ...] = ()
    test_flags: tuple[str, ...] = ()
    bench_flags: tuple[str, ...] = ()
    canary: Canary | None = None
    noisy: bool = False


@dataclass(kw_only=True)
class World:
    """Answers the steps of a race."""

    fates: Mapping[str, Fate] = field(default_factory=dict)
    fate_of: Callable[[str], Fate] = lambda _: Fate()
    """Of those that have no other."""
    proposed: Sequence[Sequence[str]] = ()
    """The names of what is proposed, by round."""
    cost_usd: float = 0.0
    """Of a call."""
    noise: Noise = gaussian
    seed: int = 0
    cases: tuple[str, ...] = ("a", "b")
    """Of its benchmark."""
    files: tuple[FileChange, ...] = ()
    """Changed by every candidate."""
    is_blind: bool = False
    """Its tests pass whatever is broken."""
    change: Callable[[StepEnd], StepEnd] = lambda end: end
    """Changes the ends of steps, for what is rare."""

    def end(self, step: Step) -> StepEnd:
        answer = {
            StepKind.PROPOSE: self._propose,
            StepKind.STAGE: self._stage,
            StepKind.TEST: self._test,
            StepKind.CANARY: self._canary,
            StepKind.CALIBRATE: self._calibrate,
            StepKind.SCREEN: self._block,
            StepKind.FINAL: self._block,
            StepKind.PROFILE: self._profile,
        }[step.kind]
        return self.change(answer(step))

    def _fate(self, name: str) -> Fate:
        return self.fates[name] if name in self.fates else self.fate_of(name)

    def _propose(self, step: Step) -> StepEnd:
        names = self.proposed[step.round] if step.round < len(self.proposed) else ()
        found = Proposed(proposals=proposals(names))
        return replace(passed(step, StepFinding(proposed=found)), cost_usd=self.cost_usd)

    def _stage(self, step: Step) -> StepEnd:
        fate = self._fate(step.candidate)
        if fate.stage is not Outcome.PASSED:
            return failed(step, fate.stage, "error: patch failed: a.py:1")
        tree = fate.tree or f"tree of {step.candidate}"
        staged = StagedCandidate(
            tree=tree,
            normal=fate.normal or f"normal of {tree}",
            files=self.files if fate.files is None else fate.files,
            flags=fate.flags,
            problem=fate.problem,
        )
        end = passed(step, StepFinding(staged=staged))
        return replace(end, artifacts={"patch": f"{step.candidate}.patch"})

    def _test(self, step: Step) -> StepEnd:
        if step.candidate == BASELINE:
            return passed(step, StepFinding(tested=CorrectnessFinding(counts=TestCounts(passed=3))))
        fate = self._fate(step.candidate)
        if fate.test not in (Outcome.PASSED, Outcome.FAILED):
            return failed(step, fate.test, f"its tests: {fate.test.value}")
        is_wrong = fate.test is Outcome.FAILED
        difference = RunDifference(
            scope="test", name="t", status="failed", baseline="passed", message="1 is not 2"
        )
        tested = CorrectnessFinding(
            counts=TestCounts(passed=3 - is_wrong, failed=int(is_wrong)),
            differences=(difference,) * is_wrong,
            flags=fate.test_flags,
        )
        end = passed(step, StepFinding(tested=tested))
        return replace(end, outcome=fate.test, reason="1 test failed" * is_wrong)

    def _canary(self, step: Step) -> StepEnd:
        if step.candidate == BASELINE:
            canary = Canary(broken=step.files, passed=self.is_blind)
            return passed(step, StepFinding(canary=canary))
        return passed(step, StepFinding(canary=self._fate(step.candidate).canary))

    def _calibrate(self, step: Step) -> StepEnd:
        samples = ({TOTAL: PROCESS_S, "a": PROCESS_S / 2},) * 3
        found = Calibration(samples=samples, process_s=PROCESS_S, busy_cpus=1.0, printed="ok")
        return passed(step, StepFinding(calibration=found))

    def _block(self, step: Step) -> StepEnd:
        fate = self._fate(step.candidate)
        if fate.bench is not Outcome.PASSED:
            return failed(step, fate.bench, f"its benchmark: {fate.bench.value}")
        rng = random.Random(f"{self.seed} {step.kind} {step.candidate} {step.number}")
        a, b, c, d = (PROCESS_S * math.exp(self.noise(rng)) for _ in range(4))
        block = Block(
            baseline=(self._sample(a), self._sample(b)),
            candidate=(self._sample(c / fate.speed), self._sample(d / fate.speed)),
            flags=fate.bench_flags,
            noisy=fate.noisy,
        )
        return replace(passed(step, StepFinding(block=block)), duration_s=BLOCK_S)

    def _sample(self, seconds: float) -> dict[str, float]:
        return {TOTAL: seconds, **{case: seconds / len(self.cases) for case in self.cases}}

    def _profile(self, step: Step) -> StepEnd:
        return passed(step, StepFinding(profiled=ProfileFinding(problem="no line_profiler")))


class Answers(Protocol):
    """What ends the steps of a race."""

    def end(self, step: Step) -> StepEnd: ...


@dataclass
class Recorded:
    """Answers with the ends of an earlier race, and otherwise as another one, if there is one."""

    ends: Iterable[StepEnd]
    world: Answers | None = None

    @cached_property
    def _known(self) -> dict[StepId, StepEnd]:
        return {id_of(end.step): end for end in self.ends}

    def end(self, step: Step) -> StepEnd:
        if (known := self._known.get(id_of(step))) is not None:
            return known
        assert self.world is not None, f"the earlier race had no {id_of(step)}"
        return self.world.end(step)


@dataclass
class Raced:
    """A race at its end."""

    course: RaceRounds
    phases: list[list[Step]]
    ends: list[StepEnd]

    @property
    def standings(self) -> Standings:
        return self.course.standings()

    @property
    def steps(self) -> list[Step]:
        return [step for phase in self.phases for step in phase]

    @property
    def statuses(self) -> dict[str, str]:
        return {one.name: one.status.value for one in self.standings.candidates}

    def __getitem__(self, name: str) -> CandidateStanding:
        return next(one for one in self.standings.candidates if one.name == name)

    def count(self, kind: StepKind, candidate: str | None = None) -> int:
        return sum(one.kind is kind and candidate in (None, one.candidate) for one in self.steps)


Pick = Callable[[Sequence[Step]], int]
"""Which of the running steps ends next."""


def first(_: Sequence[Step]) -> int:
    return 0


def last(running: Sequence[Step]) -> int:
    return len(running) - 1


def go(
    course: RaceRounds,
    world: Answers,
    *,
    pick: Pick = first,
    skips: Callable[[Step], str | None] = lambda _: None,
) -> Raced:
    """Run a race to its end. `skips`: why the engine leaves a step for a resume."""
    running = course.begin()
    phases, ends, elapsed_s = [[*running]], list[StepEnd](), 0.0
    while running:
        step = running.pop(pick(running))
        if (reason := skips(step)) is not None:
            end = failed(step, Outcome.SKIPPED, reason)
            following = course.skipped(step, reason)
        else:
            end = world.end(step)
            elapsed_s += end.duration_s
            end = replace(end, elapsed_s=end.elapsed_s or elapsed_s)
            following = course.handle(end)
        ends.append(end)
        assert not (following and running), "a phase begins before the one before it is over"
        if following:
            running = following
            phases.append([*following])
    assert course.is_over
    return Raced(course, phases, ends)


def request(
    *, accept: Mapping[str, Any] | None = None, blocks: int | None = None, **keys: Any
) -> RaceRequest:
    """A race as requested, by the keys of a race file."""
    written = {
        "test": ["pytest"],
        "bench": {"command": ["bench"], "blocks": blocks},
        "accept": accept or {},
        **keys,
    }
    return RaceRequest(
        name="race", source=None, folder="/f", repo="/r", keys=RaceKeys.model_validate(written)
    )


def course(asked: RaceRequest, given: Iterable[str] = ()) -> RaceRounds:
    return RaceRounds(asked, BASE, proposals(given))


def race(fates: Mapping[str, Fate], asked: RaceRequest | None = None, **world: Any) -> Raced:
    """A race of these, but for those that are proposed in its rounds."""
    made = World(fates=fates, **world)
    later = {name for names in made.proposed for name in names}
    return go(course(asked or request(), [name for name in fates if name not in later]), made)


def when(kind: StepKind, change: Callable[[StepEnd], StepEnd]) -> Callable[[StepEnd], StepEnd]:
    """Changes the ends of such steps, and no other."""
    return lambda end: change(end) if end.step.kind is kind else end


def proposals(names: Iterable[str]) -> tuple[Proposal, ...]:
    return tuple(Proposal(name=name, patch=name, content=name) for name in names)


def passed(step: Step, finding: StepFinding) -> StepEnd:
    return StepEnd(step=step, outcome=Outcome.PASSED, finding=finding)


def failed(step: Step, outcome: Outcome, reason: str) -> StepEnd:
    return StepEnd(step=step, outcome=outcome, finding=StepFinding(), reason=reason)
