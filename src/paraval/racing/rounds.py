"""The course of a race, in rounds, as a generator of steps. Pure: no clock, no I/O, no asyncio.

First the baseline. Then rounds: candidates are proposed, staged, tested and measured, each phase
when the one before it is over, and the next round's proposers see every failure and every speed.
Then the finals. What follows depends only on how the steps ended, so that a resume arrives at the
same step with the results that are stored.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from paraval.racing.baseline_check import BaselineCheck
from paraval.racing.candidate import Candidate, baseline_medians, status_of
from paraval.racing.candidates.duplicates import BASE_NORMAL
from paraval.racing.findings import (
    CorrectnessFinding,
    ProfileFinding,
    Proposal,
    Proposed,
    StepFinding,
)
from paraval.racing.integrity.protection import LEADS_OUT, ProtectedPaths
from paraval.racing.request import PROTECTED, RaceRequest
from paraval.racing.standings import (
    BaselineStanding,
    CandidateStanding,
    Standings,
    Status,
    proposer_data,
)
from paraval.racing.steps import BASELINE, Base, Step, StepEnd, StepKind, calls_of
from paraval.racing.verdicts import (
    FIRST_BLOCKS,
    PROCESSES_OF_A_BLOCK,
    CandidateCounts,
    RaceVerdict,
    final_blocks,
    most_finalists,
    one_of,
    speedup_of,
    verdicts_on,
    words_of,
)
from paraval.records import Outcome
from paraval.text.words import counted

WORKTREES = 7
"""How many candidates have a worktree ready for measurements, besides the baseline."""
MOST_COMPLAINTS = 5
"""Complaints per call of `propose` among the notes of a race."""
StepId = tuple[StepKind, str, int, int]


def id_of(step: Step) -> StepId:
    return (step.kind, step.candidate, step.number, step.round)


class RaceRounds:
    """The state of a race between two step ends."""

    def __init__(self, request: RaceRequest, base: Base, given: Sequence[Proposal]) -> None:
        self._request = request
        self._base = base
        self._baseline = BaselineCheck.of(request, base)
        self._candidates: dict[str, Candidate] = {}
        """By name, in order of arrival."""
        self._over_limit = 0
        self._given = self._joined(given)
        self._by_content: dict[str, str] = {}
        """Tree or normal form -> candidate."""
        self._judging = ProtectedPaths(request, base.start, PROTECTED)
        self._answers: dict[int, tuple[Proposal, ...]] = {}
        """What was proposed in the round that is beginning, by call."""
        self._round = 0
        self._finalists = 0
        self._are_finals_over = False
        self._profiled = ProfileFinding()
        self._costs: dict[StepId, float] = {}
        self._unpriced_calls = 0
        self._call_notes: list[str] = []
        self._elapsed_s = 0.0
        self._running: dict[StepId, StepEnd | None] = {}
        """The steps of this phase, in the order of their issue, with how they ended."""
        self._has_failed_calls = False
        """Whether a call of this round failed, so that the next round may bring more."""
        self._why_no_more = ""
        """Why the last round called no one."""
        self._flow = self._phases()
        self.is_over = False

    # ---- events

    def begin(self) -> list[Step]:
        """The first steps."""
        return self._next()

    def handle(self, end: StepEnd) -> list[Step]:
        """Record the end of a step; return the next ones, once its phase is over."""
        if self._running.get(id_of(end.step), end) is not None:
            return []
        self._running[id_of(end.step)] = end
        return self._next() if all(self._running.values()) else []

    def skipped(self, step: Step, reason: str) -> list[Step]:
        """Record a step that will not run now, by decision and not by interruption. A resume
        runs it."""
        end = StepEnd(step=step, outcome=Outcome.SKIPPED, finding=StepFinding(), reason=reason)
        return self.handle(end)

    def _next(self) -> list[Step]:
        self._take_ends()
        for steps in self._flow:
            if steps:
                self._running = {id_of(step): None for step in steps}
                return steps
        self.is_over = True
        return []

    def _take_ends(self) -> None:
        """Apply the ends of this phase in the order of issue, whichever came first."""
        for end in filter(None, self._running.values()):
            self._elapsed_s = max(self._elapsed_s, end.elapsed_s)
            if end.step.kind is StepKind.PROPOSE:
                self._take_proposals(end)
            elif end.step.candidate == BASELINE:
                self._baseline.handle(end)
            else:
                self._take(self._candidates[end.step.candidate], end)
        self._running = {step: None for step, end in self._running.items() if end is None}

    # ---- the course

    def _phases(self) -> Iterator[list[Step]]:
        baseline = self._baseline
        yield baseline.tests()
        if not baseline.is_fine:
            return
        yield [Step(kind=StepKind.CALIBRATE)]
        if not baseline.is_fine:
            return
        yield self._baseline_profile()
        for number in range(self._most_rounds):
            self._round = number
            yield self._calls()
            new = self._join()
            if not new and not self._has_failed_calls:
                break
            yield [_stage(one) for one in new]
            for one in new:
                self._decide(one)
            yield self._baseline_canary()
            if not baseline.is_fine:
                return
            yield [_step(StepKind.TEST, one) for one in new if one.status is None]
            # One block first shows a benchmark that hangs or fails.
            yield self._blocks(StepKind.SCREEN, new, range(1, 2))
            yield self._blocks(StepKind.SCREEN, new, range(2, FIRST_BLOCKS + 1))
        # Which lines the tests ran weighs in the choice of finalists.
        yield self._canaries()
        finalists = self._choose_finalists()
        self._finalists = len(finalists)
        blocks = final_blocks(self._request.bench, baseline.process_s, len(finalists))
        yield self._blocks(StepKind.FINAL, finalists, range(1, blocks + 1))
        self._are_finals_over = True
        yield self._winners_profile()

    @property
    def _most_rounds(self) -> int:
        return 1 if self._request.propose is None else self._request.propose.rounds

    def _blocks(self, kind: StepKind, several: Sequence[Candidate], numbers: range) -> list[Step]:
        """Blocks for each candidate. They take turns, so that a slow drift affects all equally, in
        groups no larger than the number of worktrees: otherwise each block would need a new one."""
        measured = [one for one in several if one.is_measurable]
        steps: list[Step] = []
        for begin in range(0, len(measured), WORKTREES):
            group = measured[begin : begin + WORKTREES]
            for number in numbers:
                rng = random.Random(f"{self._base.tree} {kind} {number}")  # noqa: S311 - an order
                steps += [_step(kind, one, number=number) for one in rng.sample(group, len(group))]
        return steps

    # ---- proposals

    def _calls(self) -> list[Step]:
        """The calls of `propose` in this round."""
        self._answers, self._has_failed_calls = {}, False
        if self._request.propose is None:
            return []
        self._why_no_more = self._why_no_calls()
        if self._why_no_more:
            return []
        details = proposer_data(self.standings(), self._round, self._most_rounds)
        return [
            Step(
                kind=StepKind.PROPOSE,
                candidate=name if self._round == 0 else f"{name}.{self._round + 1}",
                number=number,
                round=self._round,
                details=details,
            )
            for number, name in calls_of(self._request).items()
        ]

    def _why_no_calls(self) -> str:
        """Why `propose` is not called; empty if it is."""
        limits = self._request.limits
        blocks = final_blocks(self._request.bench, self._baseline.process_s)
        finals_s = blocks * PROCESSES_OF_A_BLOCK * self._baseline.process_s
        if limits.usd is not None and self.cost_usd >= limits.usd:
            return f"the budget of ${limits.usd:g} was reached"
        if limits.seconds is not None and self._elapsed_s + finals_s >= limits.seconds:
            return f"the time limit of {limits.seconds:g} s leaves only the finals"
        if len(self._candidates) >= limits.candidates:
            return f"the limit of {counted(limits.candidates, 'candidate')} was reached"
        return ""

    def _take_proposals(self, end: StepEnd) -> None:
        step, proposed = end.step, end.finding.proposed or Proposed()
        self._costs[id_of(step)] = end.cost_usd
        self._unpriced_calls += not end.is_priced and end.outcome is not Outcome.SKIPPED
        who = calls_of(self._request)[step.number]
        who = f"{who}, round {step.round + 1}"
        if end.outcome is Outcome.SKIPPED:
            self._call_notes.append(f"{who} was not called: {end.reason}")
        elif end.outcome is not Outcome.PASSED:
            self._has_failed_calls = True
            self._call_notes.append(f"{who} ended as {end.outcome.value}: {end.reason}")
        several = proposed.complaints[:MOST_COMPLAINTS]
        self._call_notes += [f"{who}: {complaint}" for complaint in several]
        if more := len(proposed.complaints) + proposed.more_complaints - len(several):
            self._call_notes.append(f"{who}: {more:,} more like these")
        self._answers[step.number] = proposed.proposals

    @property
    def cost_usd(self) -> float:
        return sum(self._costs[key] for key in sorted(self._costs))

    def _join(self) -> list[Candidate]:
        """The candidates of this round."""
        proposals = [
            # In the order of the calls, whichever ended first.
            replace(one, round=self._round)
            for number in sorted(self._answers)
            for one in self._answers[number]
        ]
        return [*(self._given if self._round == 0 else ()), *self._joined(proposals)]

    def _joined(self, proposals: Sequence[Proposal]) -> list[Candidate]:
        """New candidates, each with a name of its own."""
        new = []
        for proposal in proposals:
            if len(self._candidates) >= self._request.limits.candidates:
                self._over_limit += 1
                continue
            parent = proposal.parent if proposal.parent in self._candidates else None
            named = replace(proposal, name=self._free_name(proposal.name), parent=parent)
            one = Candidate(proposal=named, place=len(self._candidates))
            self._candidates[named.name] = one
            new.append(one)
        return new

    def _free_name(self, name: str) -> str:
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        return next(one for one in names if one != BASELINE and one not in self._candidates)

    # ---- correctness

    def _decide(self, one: Candidate) -> None:
        """Whether a staged candidate proceeds to its tests."""
        if one.staged is None:
            return
        one.flag(one.staged.flags)
        if (same := self._same_as(one)) is not None:
            one.duplicate_of, reason = same
            one.take_out(Status.DUPLICATE, reason)
        elif one.staged.flags:
            one.take_out(Status.INVALID, _forbidden(one.staged.flags))
        elif one.staged.problem:
            one.take_out(Status.FAILED, one.staged.problem)

    def _same_as(self, one: Candidate) -> tuple[str, str] | None:
        """The candidate that it duplicates, and the reason to show."""
        assert one.staged is not None
        tree, normal = one.staged.tree, one.staged.normal
        if tree == self._base.tree:
            return BASELINE, "it changes nothing"
        if normal == BASE_NORMAL:
            return BASELINE, "it changes only formatting"
        for content, but in ((tree, ""), (normal, " except for formatting")):
            first = self._by_content.setdefault(content, one.name)
            if first != one.name:
                return first, f"identical to {first}{but}"
        return None

    def _baseline_canary(self) -> list[Step]:
        """Once, before the first candidates that change Python are tested: breaks the files that
        they change, to see whether the tests notice."""
        if self._baseline.has_canary or not self._request.test.canary:
            return []
        changed = {
            file.path
            for one in self._candidates.values()
            if one.staged is not None and one.status is None
            for file in one.staged.files
            if file.path.endswith(".py") and file.status != "added"
            # Breaking those that judge candidates would break the tests themselves.
            if file.path not in self._judging
        }
        self._baseline.has_canary = bool(changed)
        return [Step(kind=StepKind.CANARY, files=tuple(sorted(changed)))] if changed else []

    def _canaries(self) -> list[Step]:
        """Find out for candidates that may win what the tests ran of them."""
        if not self._request.test.canary and self._request.accept.caches:
            return []
        able = [one for one in self._candidates.values() if self._may_win(one)]
        return [
            _step(StepKind.CANARY, one, files=files)
            for one in able
            if (files := one.python_files())
        ]

    def _take(self, one: Candidate, end: StepEnd) -> None:
        one.note(end.notes)
        kind = end.step.kind
        if kind is StepKind.PROFILE:
            self._profiled = end.finding.profiled or ProfileFinding(problem=_why(end))
        elif kind is StepKind.CANARY:
            allows_state = self._request.accept.caches or self._request.head is not None
            one.take_canary(end.finding.canary, allows_state=allows_state)
        elif end.outcome is Outcome.SKIPPED:
            if kind is StepKind.FINAL:
                one.hold(_why(end))
            elif not one.screening:
                one.leave(_why(end))
        elif kind is StepKind.STAGE:
            _stage_ended(one, end)
        elif kind is StepKind.TEST:
            _test_ended(one, end)
        elif end.outcome is Outcome.PASSED and end.finding.block is not None:
            one.take_block(end.step.number, end.finding.block, is_final=kind is StepKind.FINAL)
        else:
            one.take_out(status_of(end.outcome), _why(end))

    # ---- finals

    def _may_win(self, one: Candidate) -> bool:
        """Whether its round leaves open that it is as much faster as required. Two refs are always
        compared to the end."""
        speedup = one.screened(self._request.accept.confidence)
        if not one.is_measurable or speedup is None:
            return False
        return self._request.head is not None or speedup.high > self._request.accept.speedup

    def _choose_finalists(self) -> list[Candidate]:
        able = sorted(filter(self._may_win, self._candidates.values()), key=Candidate.rank)
        most = most_finalists(self._request.bench, self._baseline.process_s)
        for one in able[most:]:
            one.hold(f"{counted(most, 'other candidate')} looked better and were measured again")
        return sorted(able[:most], key=lambda one: one.place)

    def _verdicts(self) -> dict[str, RaceVerdict]:
        """Verdicts on measured candidates that have no other status."""
        several = self._candidates.values()
        measured = [one.measured() for one in several if one.is_measured]
        accept = self._request.accept
        if self._baseline.standing.unseen and not accept.unseen_results:
            measured = [replace(one, held=one.held or UNSEEN) for one in measured]
        screened = sum(bool(one.screening) for one in several)
        if self._are_finals_over:
            among = CandidateCounts(screened=screened, finalists=self._finalists)
            return verdicts_on(measured, accept, among, words_of(self._request.bench))
        level = one_of(screened, accept.confidence)
        return {
            one.name: RaceVerdict(
                status=Status.NOT_SHOWN if one.held else Status.MEASURED,
                reason=one.held or "measured in its round; the finals decide",
                speedup=speedup_of(one.screening, level),
            )
            for one in measured
        }

    # ---- line profiles

    def _baseline_profile(self) -> list[Step]:
        wanted = self._request.keys.profile
        is_wanted = wanted == "line" or (wanted is None and self._request.propose is not None)
        return [Step(kind=StepKind.PROFILE)] if is_wanted else []

    def _winners_profile(self) -> list[Step]:
        winner = _winner(self._verdicts())
        if self._request.keys.profile != "line" or winner is None:
            return []
        one = self._candidates[winner]
        return [_step(StepKind.PROFILE, one, files=one.python_files())]

    # ---- standings

    def standings(self) -> Standings:
        """The current standings."""
        self._take_ends()
        verdicts = self._verdicts()
        return Standings(
            baseline=self._baseline_standing(),
            candidates=tuple(
                self._standing(one, verdicts.get(one.name)) for one in self._candidates.values()
            ),
            winner=_winner(verdicts),
            profile=self._profiled.functions,
            profile_problem=self._profiled.problem,
            notes=() if self._baseline.is_blind else tuple(self._notes()),
            rounds=self._round + 1,
            finalists=self._finalists,
            cost_usd=self.cost_usd,
            unpriced_calls=self._unpriced_calls,
            over=self.is_over,
        )

    def _standing(self, one: Candidate, verdict: RaceVerdict | None) -> CandidateStanding:
        if verdict is None:
            status, reason = one.status, one.reason
            if status is None:
                why = "not measured yet" if one.passed else "not tested yet"
                reason = why if self._baseline.is_fine else "the race did not start"
                status = Status.SKIPPED
            speedup = one.screened(self._request.accept.confidence)
            verdict = RaceVerdict(status=status, reason=reason, speedup=speedup)
        return one.standing(verdict)

    def _baseline_standing(self) -> BaselineStanding:
        seconds = baseline_medians(self._candidates.values(), self._baseline.samples)
        return replace(self._baseline.standing, seconds=seconds)

    def _notes(self) -> Iterator[str]:
        left = Counter(one.reason for one in self._candidates.values() if one.is_left)
        for reason, number in sorted(left.items()):
            yield f"{counted(number, 'candidate')} pending: {reason}"
        if self._over_limit:
            most = counted(self._request.limits.candidates, "candidate")
            yield f"{counted(self._over_limit, 'proposal')} left out: the limit is {most}"
        yield from sorted(self._call_notes)
        if self._why_no_more:
            yield f"no more proposals: {self._why_no_more}"


UNSEEN = "nothing shows that its benchmark did the work"


def _step(kind: StepKind, one: Candidate, *, number: int = 1, files: tuple[str, ...] = ()) -> Step:
    return Step(kind=kind, candidate=one.name, number=number, tree=one.tree, files=files)


def _stage(one: Candidate) -> Step:
    return Step(kind=StepKind.STAGE, candidate=one.name, proposal=one.proposal)


def _stage_ended(one: Candidate, end: StepEnd) -> None:
    one.patch = end.artifacts.get("patch")
    if end.outcome is Outcome.PASSED and end.finding.staged is not None:
        one.staged = end.finding.staged
    elif end.outcome is Outcome.FAILED:
        one.take_out(Status.INVALID, _why(end))
    else:
        one.take_out(status_of(end.outcome), _why(end))


def _test_ended(one: Candidate, end: StepEnd) -> None:
    tested = end.finding.tested or CorrectnessFinding()
    one.tests = tested.counts
    one.differences, one.more_differences = tested.differences, tested.more
    one.flag(tested.flags)
    did = [flag.removesuffix(" while it ran") for flag in tested.flags]
    # First: results of tests that were tampered with matter less.
    why = [f"while its tests ran it {'; it '.join(did)}"] if did else []
    if end.outcome is not Outcome.PASSED:
        why.append(_why(end))
        one.take_out(status_of(end.outcome), "; ".join(why))
    elif why:
        one.take_out(Status.FAILED, why[0])
    else:
        one.passed = True


def _forbidden(flags: Sequence[str]) -> str:
    """Why the changes are forbidden. No `protect` allows links out of the repository."""
    out = [flag for flag in flags if LEADS_OUT in flag]
    judging = [flag for flag in flags if LEADS_OUT not in flag]
    reasons = []
    if out:
        reasons.append(f"it {'; it '.join(out)}; candidates must stay inside their worktree")
    if judging:
        reasons.append(
            f"it {'; it '.join(judging)}, which candidates must not change "
            "(`protect: []` allows it)"
        )
    return "; ".join(reasons)


def _winner(verdicts: dict[str, RaceVerdict]) -> str | None:
    won = (name for name, verdict in verdicts.items() if verdict.status is Status.WON)
    return next(won, None)


def _why(end: StepEnd) -> str:
    return end.reason or f"the step '{end.step.kind.value}' ended as {end.outcome.value}"
