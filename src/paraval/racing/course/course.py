"""The course of a race as a pure state machine: from the end of a step to the next steps.

No clock, no I/O, no asyncio. The baseline comes first; then candidates are staged and tested while
hooks propose more; when none of that is running, rounds of measurements and the finals follow.
`baseline_check` interprets the baseline's steps, `field` decides who joins and is tested, `rounds`
who is measured, `hook_calls` which hooks may be called, and `recorded` explains why a replay
reaches the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from paraval.racing.course.baseline_check import BaselineCheck
from paraval.racing.course.candidate import Candidate, baseline_medians, cautions_of, status_of
from paraval.racing.course.field import CandidateField
from paraval.racing.course.hook_calls import HookCalls, hook_details
from paraval.racing.course.recorded import PREPARED, TESTED, RaceTime, RecordedSteps, RunningSteps
from paraval.racing.course.rounds import MeasurementRounds
from paraval.racing.course.steps import BASELINE, Base, Step, StepEnd, StepKind
from paraval.racing.course.verdicts import CandidateCounts, RaceVerdict, speedup_of, verdicts_on
from paraval.racing.findings import CorrectnessFinding, ProfileFinding, Proposal, StepFinding
from paraval.racing.report.standings import BaselineStanding, CandidateStanding, Standings, Status
from paraval.racing.request import Profile, RaceRequest
from paraval.records import Outcome
from paraval.text.words import counted

_NOTHING = RecordedSteps()
_OF_WINNERS = (StepKind.CANARY, StepKind.PROFILE)
"""Steps after all measurements, which decide nothing."""


class Course:
    """The state of a race between two step ends."""

    def __init__(
        self,
        request: RaceRequest,
        base: Base,
        proposals: Sequence[Proposal],
        *,
        hooks: frozenset[StepKind],
        recorded: RecordedSteps = _NOTHING,
    ) -> None:
        """`hooks`: those that may be called. `recorded`: steps that an earlier engine did."""
        self._request = request
        self._given = tuple(proposals)
        self._recorded = recorded
        self._time = RaceTime(request.limits.seconds)
        self._underway = RunningSteps(recorded)
        self._hooks = HookCalls(request, hooks, recorded, self._time)
        self._baseline = BaselineCheck.of(request, base)
        self._field = CandidateField(request, base, recorded, self._time)
        self._measuring = MeasurementRounds(request, base, recorded, self._time)
        self._profiled: ProfileFinding | None = None
        self._seconds: dict[str, float] | None = None
        """The baseline's medians; None if something was measured since."""

    # ---- events

    def begin(self) -> list[Step]:
        """The first steps."""
        self._field.give(self._given)
        return self._underway.name([*self._baseline.begin(), *self._field.staging()])

    def handle(self, end: StepEnd, elapsed_s: float) -> list[Step]:
        """Record the end of a step; return the next ones. `elapsed_s`: race time by then."""
        self._time.advance(elapsed_s)
        if not self._underway.end(end.step):
            return []
        if end.outcome is Outcome.SKIPPED and end.reason == self._time.why_skipped:
            self._time.run_out()
        if end.step.kind.is_hook:
            self._hook_ended(end)
        elif end.step.candidate == BASELINE:
            return self._baseline_ended(end)
        elif end.outcome is Outcome.SKIPPED and end.step.kind not in _OF_WINNERS:
            self._candidate_skipped(self._field[end.step.candidate], end)
        else:
            self._candidate_ended(self._field[end.step.candidate], end)
        return self._advance()

    def proposed(self, step: Step, proposals: Sequence[Proposal]) -> list[Step]:
        """Add proposals of a running hook. It repeats all of them when it ends."""
        if (step.kind, step.candidate, step.number) not in self._underway:
            return []
        self._field.join(step, proposals)
        return self._advance()

    def skipped(self, step: Step, reason: str) -> list[Step]:
        """Record a step that will not run now, by decision and not by interruption. A resume
        runs it."""
        end = StepEnd(step=step, outcome=Outcome.SKIPPED, finding=StepFinding(), reason=reason)
        return self.handle(end, 0.0)

    def _baseline_ended(self, end: StepEnd) -> list[Step]:
        following = self._underway.name(self._baseline.handle(end))
        self._measuring.process_s = self._baseline.process_s
        self._seconds = None
        if self._baseline.is_ready and end.step.kind is StepKind.CALIBRATE:
            following += self._underway.name(self._generation())
        return following + self._advance()

    def _hook_ended(self, end: StepEnd) -> None:
        self._hooks.handle(end)
        if end.finding.asked is not None:
            self._field.join(end.step, end.finding.asked.proposals)

    def _candidate_skipped(self, entry: Candidate, end: StepEnd) -> None:
        """Take it out for now; what is known of it is kept."""
        entry.is_staging = False
        if end.reason == self._time.why_skipped:
            self._time.end(entry, PREPARED if end.step.kind is StepKind.STAGE else TESTED)
        else:
            entry.leave(_why(end))

    def _candidate_ended(self, entry: Candidate, end: StepEnd) -> None:
        entry.note(end.notes)
        entry.flag(end.finding.outside)
        match end.step.kind:
            case StepKind.STAGE:
                _stage_ended(entry, end)
                self._field.staged(entry)
            case StepKind.TEST:
                _test_ended(entry, end)
                self._field.tested(entry)
            case StepKind.CANARY:
                entry.cautions = cautions_of(end.finding.canary)
            case StepKind.PROFILE:
                self._profiled = end.finding.profiled or ProfileFinding(problem=_why(end))
            case _:
                _block_ended(entry, end)
                self._seconds = None

    # ---- next steps

    def _advance(self) -> list[Step]:
        baseline = self._baseline
        if not baseline.is_fine and not baseline.is_blind:
            return []
        steps = self._correctness(recorded_only=True)
        if baseline.is_blind:
            # A replay also gets the ends of steps that began before this was known.
            return steps
        passed = -1
        while not self._underway.is_catching_up and passed < self._field.passed:
            passed = self._field.passed
            steps += self._correctness()
        if self._underway or not baseline.is_ready:
            return steps
        return self._underway.name(self._next_phase())

    def _correctness(self, *, recorded_only: bool = False) -> list[Step]:
        """The staging, testing and repair steps that can run now."""
        name, field = self._underway.name, self._field
        steps = name(field.staging(recorded_only=recorded_only))
        if self._baseline.is_ready:
            steps += name(self._canary(recorded_only=recorded_only))
            if recorded_only or not self._awaits_canary:
                steps += name(field.tests(recorded_only=recorded_only))
            steps += name(self._repairs(recorded_only=recorded_only))
        return steps

    def _canary(self, *, recorded_only: bool) -> list[Step]:
        """Run once, before the first candidates that change Python are tested: breaks the files
        that all candidates known by then change."""
        if self._baseline.is_canary_named:
            return []
        is_due = self._awaits_canary and StepKind.STAGE not in self._underway.kinds
        if not self._recorded.has(StepKind.CANARY, BASELINE) and (recorded_only or not is_due):
            return []
        self._baseline.is_canary_named = True
        return [Step(kind=StepKind.CANARY, files=tuple(sorted(self._field.changed_python)))]

    @property
    def _awaits_canary(self) -> bool:
        if self._baseline.is_canary_named:
            return (StepKind.CANARY, BASELINE, 1) in self._underway
        # Too late if candidates are already being measured when the first one changes Python.
        is_due = bool(self._field.changed_python) and not self._measuring.round
        return self._request.test.canary and is_due

    def _next_phase(self) -> list[Step]:
        """The steps of the first phase that has any, when nothing is running."""
        measuring, entries = self._measuring, self._field.sorted()
        phases: Sequence[Callable[[], list[Step]]] = (
            lambda: measuring.first_blocks(entries),
            lambda: measuring.rest_of_first_round(entries),
            self._refinements,
            lambda: measuring.next_round(entries),
            lambda: measuring.finals(entries),
            self._winners_canaries,
            self._profile,
        )
        return next((steps for phase in phases if (steps := phase())), [])

    # ---- hooks

    def _generation(self) -> list[Step]:
        """The call of the hook, or one call of a model for each candidate that it writes."""
        hook = self._request.generate
        if StepKind.GENERATE not in self._hooks or hook is None:
            return []
        may_start = self._hooks.is_affordable(StepKind.GENERATE) and not self._time.is_up
        return [
            Step(kind=StepKind.GENERATE, number=number)
            for number in range(1, 1 + (1 if hook.asks is None else hook.asks.number))
            if may_start or self._recorded.has(StepKind.GENERATE, BASELINE, number)
        ]

    def _repairs(self, *, recorded_only: bool) -> list[Step]:
        wrong, self._field.wrong = self._field.wrong, []
        if StepKind.REPAIR not in self._hooks:
            return []
        steps: list[Step] = []
        for one in wrong:
            if recorded_only and not self._hooks.was_asked(StepKind.REPAIR, one):
                self._field.wrong.append(one)
            else:
                steps += self._ask(StepKind.REPAIR, one)
        return steps

    def _refinements(self) -> list[Step]:
        """Refine steps for candidates that look faster after their first round."""
        fresh = [one for one in self._field if one.is_refinable and one.screening]
        for one in fresh:
            one.is_refinable = False
        if StepKind.REFINE not in self._hooks or not fresh:
            return []
        ranked = self._measuring.ranked(fresh)
        everyone = self._measuring.ranked(self._field.sorted())
        better_half = everyone[: -(-len(everyone) // 2)]
        chosen = [one for one in ranked if self._is_promising(one, better_half)]
        return [step for one in chosen for step in self._ask(StepKind.REFINE, one)]

    def _is_promising(self, one: Candidate, better_half: Sequence[Candidate]) -> bool:
        speedup = one.screened(self._request.accept.confidence)
        if speedup is None or speedup.estimate <= 1:
            return False
        return speedup.low > 1 or one in better_half

    def _ask(self, kind: StepKind, one: Candidate) -> list[Step]:
        """The step, if the hook may be called."""
        if not self._hooks.may_ask(kind, one):
            return []
        details = hook_details(kind, one, self._request.accept, self._baseline_standing())
        return [Step(kind=kind, candidate=one.name, tree=one.tree, details=details)]

    # ---- the winner

    def _winners_canaries(self) -> list[Step]:
        """Check for candidates that may win whether a test runs what they change."""
        if not self._request.test.canary:
            return []
        steps = []
        for name, verdict in self._verdicts().items():
            one = self._field[name]
            if one.is_checked or verdict.status not in (Status.WON, Status.ACCEPTED):
                continue
            one.is_checked = True
            files = one.python_files()
            is_late = self._time.is_up and not self._recorded.has(StepKind.CANARY, name)
            if files and not is_late:
                step = Step(kind=StepKind.CANARY, candidate=name, tree=one.tree, files=files)
                steps.append(step)
        return steps

    def _profile(self) -> list[Step]:
        if self._request.profile.kind is Profile.NONE or self._profiled is not None:
            return []
        winner = _winner(self._verdicts())
        if winner is None:
            return []
        if self._time.is_up and not self._recorded.has(StepKind.PROFILE, winner):
            self._profiled = ProfileFinding(
                problem=self._time.came_before("the winner was profiled")
            )
            return []
        tree = self._field[winner].tree
        return [Step(kind=StepKind.PROFILE, candidate=winner, tree=tree)]

    def _verdicts(self) -> dict[str, RaceVerdict]:
        """Verdicts on measured candidates that have no other status."""
        measured = [one.measured() for one in self._field.sorted() if one.is_measured]
        accept = self._request.accept
        if self._are_finals_over:
            screened = sum(bool(one.screening) for one in self._field)
            among = CandidateCounts(screened=screened, finalists=self._measuring.finalists)
            return verdicts_on(measured, accept, among)
        return {
            one.name: RaceVerdict(
                status=Status.NOT_SHOWN,
                reason="not fully measured",
                speedup=speedup_of(one.screening, accept.confidence),
            )
            for one in measured
        }

    @property
    def _are_finals_over(self) -> bool:
        return self._measuring.is_in_finals and StepKind.FINAL not in self._underway.kinds

    # ---- standings

    @property
    def is_over(self) -> bool:
        """Whether all steps have ended."""
        return self._underway.has_begun and not self._underway

    def standings(self) -> Standings:
        """The current standings."""
        verdicts = self._verdicts()
        profiled = self._profiled or ProfileFinding()
        return Standings(
            baseline=self._baseline_standing(),
            candidates=tuple(self._standing(one, verdicts) for one in self._field.sorted()),
            winner=_winner(verdicts),
            profile=profiled.functions,
            profile_problem=profiled.problem,
            notes=() if self._baseline.is_blind else self._notes(),
            finalists=self._measuring.finalists,
            cost_usd=self._hooks.cost_usd,
            unpriced_calls=self._hooks.unpriced_calls,
            over=self.is_over,
        )

    def _standing(self, one: Candidate, verdicts: dict[str, RaceVerdict]) -> CandidateStanding:
        if self._baseline.is_blind:
            # Which duplicates were found before this was known depends on timing.
            verdict = RaceVerdict(status=Status.SKIPPED, reason=self._why_undecided(one))
            return replace(one.standing(verdict), flags=(), duplicate_of=None)
        if one.name in verdicts:
            return one.standing(verdicts[one.name])
        speedup = one.screened(self._request.accept.confidence)
        status, reason = one.status, one.reason
        if status is None:
            status, reason = Status.SKIPPED, self._why_undecided(one)
        return one.standing(RaceVerdict(status=status, reason=reason, speedup=speedup))

    def _why_undecided(self, one: Candidate) -> str:
        if self._baseline.standing.reason is not None:
            return "the race did not start"
        return "not measured yet" if one.passed else "not tested yet"

    def _baseline_standing(self) -> BaselineStanding:
        if self._seconds is None:
            self._seconds = baseline_medians(self._field, self._baseline.samples)
        return replace(self._baseline.standing, seconds=self._seconds)

    def _notes(self) -> tuple[str, ...]:
        return (*self._time_notes(), *self._left_notes(), *self._hooks.notes)

    def _time_notes(self) -> list[str]:
        late = sum(one.is_late for one in self._field)
        if not late:
            return []
        return [
            f"{self._time.came_before('the race was done')}: {counted(late, 'candidate')} pending"
        ]

    def _left_notes(self) -> list[str]:
        """How many candidates are pending, by reason."""
        reasons = Counter(one.reason for one in self._field if one.is_left)
        return [
            f"{counted(number, 'candidate')} pending: {reason}"
            for reason, number in sorted(reasons.items())
        ]


def _stage_ended(entry: Candidate, end: StepEnd) -> None:
    entry.is_staging = False
    entry.patch = end.artifacts.get("patch")
    if end.outcome is Outcome.PASSED and end.finding.staged is not None:
        entry.staged = end.finding.staged
    elif end.outcome is Outcome.FAILED:
        entry.take_out(Status.INVALID, _why(end))
    else:
        entry.take_out(status_of(end.outcome), _why(end))


def _test_ended(entry: Candidate, end: StepEnd) -> None:
    tested = end.finding.tested or CorrectnessFinding()
    entry.tests = tested.counts
    entry.differences, entry.more_differences = tested.differences, tested.more
    entry.flag(tested.flags)
    did = [flag.removesuffix(" while it ran") for flag in tested.flags]
    # First: results of tests that were tampered with matter less.
    why = [f"while its tests ran it {'; it '.join(did)}"] if did else []
    if end.outcome is not Outcome.PASSED:
        why.append(end.reason or _difference(tested, end))
        entry.take_out(status_of(end.outcome), "; ".join(why))
    elif why:
        entry.take_out(Status.FAILED, why[0])
    else:
        entry.passed = True


def _block_ended(entry: Candidate, end: StepEnd) -> None:
    block = end.finding.block
    if end.outcome is Outcome.PASSED and block is not None:
        entry.take_block(end.step.number, block, is_final=end.step.kind is StepKind.FINAL)
    else:
        entry.take_out(status_of(end.outcome), _why(end))


def _winner(verdicts: dict[str, RaceVerdict]) -> str | None:
    won = (name for name, verdict in verdicts.items() if verdict.status is Status.WON)
    return next(won, None)


def _why(end: StepEnd) -> str:
    return end.reason or f"the step '{end.step.kind.value}' ended as {end.outcome.value}"


def _difference(tested: CorrectnessFinding, end: StepEnd) -> str:
    number = len(tested.differences) + tested.more
    if number:
        return f"{counted(number, 'difference')} from the baseline"
    return f"its tests ended as {end.outcome.value}"
