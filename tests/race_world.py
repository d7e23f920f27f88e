"""A world for the course of a race: it answers steps as told, in any order, without a clock.

What candidates do is looked up by their name; the noise of a block by candidate, kind and number.
So the same race has the same ends, whatever order they come in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paraval.racing.course.course import Course
from paraval.racing.course.recorded import RecordedSteps, StepId, id_of
from paraval.racing.course.steps import BASELINE, Base, Step, StepEnd, StepKind, trial_of

from paraval.racing.candidates.duplicates import BASE_NORMAL
from paraval.racing.findings import (
    Block,
    Calibration,
    Canary,
    CorrectnessFinding,
    HookAnswer,
    ProfileFinding,
    Proposal,
    RunDifference,
    StagedCandidate,
    StepFinding,
    TestCounts,
)
from paraval.racing.request import (
    TOTAL,
    Accept,
    BenchSpec,
    HookSpec,
    RaceLimits,
    RaceRequest,
    TestSpec,
)
from paraval.records import FileChange, Outcome

BASE = Base(tree="base-tree", commit="c0ffee")
PROCESS_S = 0.5
PYTHON = (FileChange(path="a.py", status="changed", lines_added=1, lines_deleted=1),)
Noise = Callable[[random.Random], float]


def gaussian(rng: random.Random) -> float:
    """3% to both sides."""
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
    normal: str | None = None
    """None: like no other."""
    tree: str | None = None
    flags: tuple[str, ...] = ()
    test_flags: tuple[str, ...] = ()
    bench_flags: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    """Names of what repair proposes for it."""
    refinements: tuple[str, ...] = ()
    cost_usd: float = 0.0
    noisy: bool = False


@dataclass
class World:
    """Answers the steps of a race."""

    fates: Mapping[str, Fate] = field(default_factory=dict)
    generated: tuple[str, ...] = ()
    noise: Noise = gaussian
    seed: int = 0
    baseline: Mapping[int, tuple[Outcome, CorrectnessFinding]] = field(default_factory=dict)
    calibration: Outcome = Outcome.PASSED
    cases: tuple[str, ...] = ("a", "b")
    """Of its benchmark."""
    asked: int = 0
    fate_of: Callable[[str], Fate] | None = None
    test_s: float = 0.0
    """How long the tests of each candidate take."""
    files: tuple[FileChange, ...] = ()
    """That every candidate changes."""
    is_blind: bool = False
    """Its tests pass whatever is broken."""
    mood: str = ""
    """Of hooks: in another one they propose other things under the same names."""

    def fate(self, name: str) -> Fate:
        found = self.fates.get(name)
        if found is None:
            found = self.fate_of(name) if self.fate_of is not None else Fate()
        return found

    def end(self, step: Step) -> StepEnd:
        answer = {
            StepKind.STAGE: self._stage,
            StepKind.TEST: self._test,
            StepKind.CALIBRATE: self._calibrate,
            StepKind.SCREEN: self._block,
            StepKind.FINAL: self._block,
            StepKind.GENERATE: self._ask,
            StepKind.REPAIR: self._ask,
            StepKind.REFINE: self._ask,
            StepKind.PROFILE: self._profile,
            StepKind.CANARY: self._canary,
        }[step.kind]
        return answer(step)

    def _stage(self, step: Step) -> StepEnd:
        fate = self.fate(step.candidate)
        if fate.stage is not Outcome.PASSED:
            return _broken(step, fate.stage, "error: patch failed: a.py:1")
        tree = fate.tree or f"tree of {step.candidate}"
        normal = fate.normal or f"normal of {tree}"
        staged = StagedCandidate(tree=tree, normal=normal, flags=fate.flags, files=self.files)
        return _found(
            step, StepFinding(staged=staged), artifacts={"patch": f"{step.candidate}.patch"}
        )

    def _canary(self, step: Step) -> StepEnd:
        passed = self.is_blind and step.candidate == BASELINE
        return _found(step, StepFinding(canary=Canary(broken=step.files, passed=passed)))

    def _test(self, step: Step) -> StepEnd:
        if step.candidate == BASELINE:
            outcome, tested = self.baseline.get(
                step.number, (Outcome.PASSED, CorrectnessFinding(counts=TestCounts(passed=3)))
            )
            return replace(_found(step, StepFinding(tested=tested)), outcome=outcome)
        fate = self.fate(step.candidate)
        if fate.test in (Outcome.PASSED, Outcome.FAILED):
            failed = fate.test is Outcome.FAILED
            difference = RunDifference(scope="test", name="t", status="failed", baseline="passed")
            tested = CorrectnessFinding(
                counts=TestCounts(passed=3 - failed, failed=int(failed)),
                differences=(difference,) * failed,
                flags=fate.test_flags,
            )
            found = _found(step, StepFinding(tested=tested), duration_s=self.test_s)
            return replace(found, outcome=fate.test)
        return _broken(step, fate.test, f"its tests: {fate.test.value}", self.test_s)

    def _calibrate(self, step: Step) -> StepEnd:
        if self.calibration is not Outcome.PASSED:
            return _broken(step, self.calibration, "No module named bench")
        samples = ({TOTAL: PROCESS_S, "a": PROCESS_S / 2},) * 3
        found = Calibration(samples=samples, process_s=PROCESS_S, busy_cpus=1.0)
        return _found(step, StepFinding(calibration=found))

    def _block(self, step: Step) -> StepEnd:
        fate = self.fate(step.candidate)
        if fate.bench is not Outcome.PASSED:
            return _broken(step, fate.bench, f"its benchmark: {fate.bench.value}")
        rng = random.Random(f"{self.seed} {step.kind} {step.candidate} {step.number}")
        a, b, c, d = (PROCESS_S * math.exp(self.noise(rng)) for _ in range(4))
        block = Block(
            baseline=(self._sample(a), self._sample(b)),
            candidate=(self._sample(c / fate.speed), self._sample(d / fate.speed)),
            flags=fate.bench_flags,
            noisy=fate.noisy,
        )
        return _found(step, StepFinding(block=block), duration_s=4 * PROCESS_S)

    def _sample(self, seconds: float) -> dict[str, float]:
        return {TOTAL: seconds, **{case: seconds / len(self.cases) for case in self.cases}}

    def _ask(self, step: Step) -> StepEnd:
        self.asked += 1
        fate = self.fate(step.candidate) if step.kind is not StepKind.GENERATE else Fate()
        names = {
            StepKind.GENERATE: self.generated,
            StepKind.REPAIR: fate.repairs,
            StepKind.REFINE: fate.refinements,
        }[step.kind]
        # The same name may stand for another thing with each candidate.
        asked = HookAnswer(
            proposals=tuple(
                replace(one, content=f"{one.name} for {step.candidate}{self.mood}")
                for one in proposals(*names)
            )
        )
        return replace(_found(step, StepFinding(asked=asked)), cost_usd=fate.cost_usd)

    def _profile(self, step: Step) -> StepEnd:
        return _found(step, StepFinding(profiled=ProfileFinding(problem="no line_profiler")))


@dataclass
class Gone:
    """A course that was gone to its end."""

    course: Course
    ends: list[StepEnd]
    named: list[Step]

    @property
    def ids(self) -> list[StepId]:
        return [id_of(step) for step in self.named]

    def recorded(self, asked: RaceRequest) -> RecordedSteps:
        """As the store tells it, with the order in which candidates came."""
        ended = {id_of(end.step) for end in self.ends}
        came = [name for kind, name, _ in self.ids if kind is StepKind.STAGE]
        return recorded_of(self.ends, asked, [c for c in came if (StepKind.STAGE, c, 1) in ended])

    def count(self, kind: StepKind, candidate: str | None = None) -> int:
        return sum(one.kind is kind and candidate in (None, one.candidate) for one in self.named)


def recorded_of(
    ends: Sequence[StepEnd], asked: RaceRequest, came: Sequence[str] = ()
) -> RecordedSteps:
    keys = [trial_of(end.step, 0, asked, BASE).key for end in ends]
    return RecordedSteps([id_of(end.step) for end in ends], keys, came)


def go(
    course: Course,
    world: World,
    *,
    pick: Callable[[Sequence[Step]], int] = lambda _: 0,
    known: Mapping[StepId, StepEnd] | None = None,
    skips: Callable[[Step, float], str | None] = lambda _step, _elapsed_s: None,
    most: int = 20_000,
) -> Gone:
    """Goes the course to its end. `pick`: which of the steps that are out ends next. `known`:
    answers from the store; then nothing else is answered. `skips`: why a step is left for later,
    by when it is to start."""
    out = course.begin()
    named, ends, elapsed = [*out], list[StepEnd](), 0.0
    while out and len(ends) < most:
        step = out.pop(pick(out))
        if known is not None:
            if id_of(step) not in known:
                continue
            end = known[id_of(step)]
        elif (reason := skips(step, elapsed)) is not None:
            end = _broken(step, Outcome.SKIPPED, reason)
        else:
            end = world.end(step)
            elapsed += end.duration_s
            end = replace(end, elapsed_s=elapsed)
        ends.append(end)
        following = course.handle(end, end.elapsed_s)
        named += following
        out += following
    assert not out, "the race does not end"
    return Gone(course, ends, named)


def request(
    *,
    speedup: float = 1.05,
    limits: RaceLimits | None = None,
    hooks: Mapping[str, HookSpec] | None = None,
    blocks: int | None = None,
    **more: object,
) -> RaceRequest:
    asked = RaceRequest(
        name="race",
        source=None,
        folder="/f",
        repo="/r",
        test=TestSpec(command=("pytest",)),
        bench=BenchSpec(command=("bench",), blocks=blocks),
        accept=Accept(speedup=speedup),
        limits=limits or RaceLimits(),
    )
    return replace(asked, **(hooks or {}), **more)  # type: ignore[arg-type]  # any field of it


def course(
    asked: RaceRequest, names: Iterable[str] = (), recorded: RecordedSteps | None = None
) -> Course:
    kinds = (StepKind.GENERATE, StepKind.REPAIR, StepKind.REFINE)
    hooks = frozenset(kind for kind in kinds if asked.hook(kind.value) is not None)
    return Course(asked, BASE, proposals(*names), hooks=hooks, recorded=recorded or RecordedSteps())


def race(
    fates: Mapping[str, Fate], asked: RaceRequest | None = None, **world: object
) -> tuple[Gone, World]:
    """A race of these, the first ones first."""
    made = World(fates=fates, **world)  # type: ignore[arg-type]  # any field of it
    children = {
        child for fate in fates.values() for child in (*fate.repairs, *fate.refinements)
    } | set(made.generated)
    given = [name for name in fates if name not in children]
    return go(course(asked or request(), given), made), made


def proposals(*names: str) -> tuple[Proposal, ...]:
    return tuple(Proposal(name=name, patch=name, content=name) for name in names)


def same_as_baseline() -> Fate:
    return Fate(normal=BASE_NORMAL)


def _found(step: Step, finding: StepFinding, **more: object) -> StepEnd:
    end = StepEnd(step=step, outcome=Outcome.PASSED, finding=finding)
    return replace(end, **more)  # type: ignore[arg-type]  # any field of it


def _broken(step: Step, outcome: Outcome, reason: str, duration_s: float = 0.0) -> StepEnd:
    return StepEnd(
        step=step, outcome=outcome, finding=StepFinding(), reason=reason, duration_s=duration_s
    )
