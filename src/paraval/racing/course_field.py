"""The field of a race: who joins it, under which name, and who of them is tested. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count, islice

from paraval.racing.course_entries import Entry
from paraval.racing.course_recorded import Recorded, StepId, id_of
from paraval.racing.course_time import RaceTime
from paraval.racing.findings import Origin, Proposal
from paraval.racing.normal_form import BASE_NORMAL
from paraval.racing.request import RaceRequest
from paraval.racing.standings import Status
from paraval.racing.steps import BASELINE, Base, Step, StepKind, trial_of
from paraval.report.wording import counted

_PLACE_OF_KIND = {StepKind.REPAIR: 2, StepKind.REFINE: 3}
"""Among the children of a candidate: repairs come before refinements."""


class Field:
    """All candidates, in the order in which they came."""

    def __init__(
        self, request: RaceRequest, base: Base, recorded: Recorded, time: RaceTime
    ) -> None:
        self._request = request
        self._most = request.limits.candidates
        self._base = base
        self._recorded = recorded
        self._time = time
        self._entries: dict[str, Entry] = {}
        self._originals: dict[str, str] = {}
        """Normal form -> the candidate that has it."""
        self._places = set(recorded.candidates(StepKind.STAGE))
        """Who has one among `limits.candidates`; what is recorded has its place already."""
        self._came: dict[StepId, set[tuple[str, str]]] = {}
        """By call of a hook: what it proposed, by name and content."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def sorted(self) -> list[Entry]:
        """In an order that does not hang on what came first."""
        return sorted(self, key=lambda one: one.order)

    # ---- who joins

    def give(self, proposals: Sequence[Proposal]) -> None:
        """What the race begins with."""
        for place, proposal in enumerate(proposals):
            self._enter(proposal, (0, 0, place), None)

    def join(self, step: Step, proposals: Sequence[Proposal]) -> None:
        """What a hook proposes; what it said before is not taken twice."""
        came = self._came.setdefault(id_of(step), set())
        parent = self._entries.get(step.candidate)
        for proposal in proposals:
            said = (proposal.name, proposal.content)
            if said in came:
                continue
            order: tuple[int, ...] = (0, 1, len(came))
            if parent is not None:
                depth = parent.proposal.depth + 1
                order = (depth, *parent.order[1:], _PLACE_OF_KIND[step.kind], len(came))
            came.add(said)
            self._enter(replace(proposal, origin=Origin(step.kind.value)), order, parent)

    def _enter(self, proposal: Proposal, order: tuple[int, ...], parent: Entry | None) -> None:
        proposal = replace(
            proposal,
            name=self._own_name(proposal, parent),
            parent=None if parent is None else parent.name,
            depth=0 if parent is None else parent.proposal.depth + 1,
        )
        self._entries[proposal.name] = Entry(proposal=proposal, order=order)

    def _own_name(self, proposal: Proposal, parent: Entry | None) -> str:
        """The name that it had before; else a free one.

        A name that is taken has its parent's before it: a number alone would be another one when
        hooks end in another order.
        """
        told = proposal.name if parent is None else f"{parent.name}-{proposal.name}"
        numbered = (f"{told}-{number}" for number in count(2))
        free = filter(self._is_free, chain((proposal.name, told), numbered))
        likely = [*islice(free, 2)]
        had = (name for name in likely if self._had(name, proposal))
        never = (name for name in chain(likely, free) if not self._is_recorded(name))
        return next(chain(had, never))

    def _is_free(self, name: str) -> bool:
        return name not in self._entries and name != BASELINE

    def _had(self, name: str, proposal: Proposal) -> bool:
        """Whether what is recorded under a name is this very proposal."""
        if not self._is_recorded(name):
            return False
        step = _staging_of(replace(proposal, name=name))
        return trial_of(step, 0, self._request, self._base).key in self._recorded.keys

    # ---- who is staged

    def staging(self, *, recorded_only: bool = False) -> list[Step]:
        """Of those that are new."""
        new = [one for one in self if one.is_new]
        if recorded_only:
            new = [one for one in new if self._is_recorded(one.name)]
        return [_staging_of(one.proposal) for one in new if self._is_staged_now(one)]

    def _is_staged_now(self, one: Entry) -> bool:
        if not self._is_recorded(one.name):
            is_given = one.proposal.origin is Origin.GIVEN
            if (one.order[-1] if is_given else len(self._places)) >= self._most:
                reason = f"past the limit of {counted(self._most, 'candidate')}"
                one.take_out(Status.SKIPPED, reason)
                return False
            if self._time.is_up:
                self._time.end(one, "it was looked at")
                return False
        self._places.add(one.name)
        one.is_staging = True
        return True

    def _is_recorded(self, name: str) -> bool:
        return self._recorded.has(StepKind.STAGE, name)

    # ---- who is tested

    def tests(self, *, recorded_only: bool = False) -> list[Step]:
        """Of those that are staged, and everyone before them: so which of two equals is the
        duplicate does not hang on who was staged sooner."""
        steps: list[Step] = []
        are_staged = not recorded_only
        for one in self:
            are_staged = are_staged and not one.is_staging
            if one.awaits_decision and (are_staged or self._was_original(one)):
                self._decide(one)
                if one.is_on:
                    steps.append(Step(kind=StepKind.TEST, candidate=one.name, tree=one.tree))
        return steps

    def _was_original(self, one: Entry) -> bool:
        """An earlier engine went on with it."""
        kinds = (StepKind.TEST, StepKind.REPAIR)
        return any(one.name in self._recorded.candidates(kind) for kind in kinds)

    def _decide(self, one: Entry) -> None:
        """Whether a candidate that applies goes on to its tests."""
        assert one.staged is not None
        one.flag(one.staged.flags)
        if (same := self._same_as(one)) is not None:
            one.duplicate_of, reason = same
            one.take_out(Status.DUPLICATE, reason)
        elif one.staged.flags:
            one.take_out(Status.INVALID, _forbidden(one.staged.flags))
            one.is_repairable = True
        elif self._time.is_up and not self._recorded.has(StepKind.TEST, one.name):
            self._time.end(one, "it was tested")
        else:
            one.is_on = True

    def _same_as(self, one: Entry) -> tuple[str, str] | None:
        """What a candidate is a duplicate of, in words too."""
        assert one.staged is not None
        tree, normal = one.staged.tree, one.staged.normal
        if tree == self._base.tree:
            return BASELINE, "it changes nothing"
        if normal == BASE_NORMAL:
            return BASELINE, "it changes nothing but formatting"
        first = self._originals.setdefault(normal, one.name)
        if first == one.name or self._was_original(one):
            return None
        if tree == self[first].tree:
            return first, f"identical to {first}"
        return first, f"equal to {first} but for formatting"


def _staging_of(proposal: Proposal) -> Step:
    return Step(kind=StepKind.STAGE, candidate=proposal.name, proposal=proposal)


def _forbidden(flags: Sequence[str]) -> str:
    return (
        f"it {'; it '.join(flags)}: that judges candidates, and is not theirs to change "
        "(`protect: []` allows it)"
    )
