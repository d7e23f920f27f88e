"""The candidates of a race: who joins, under which name, and who is staged and tested. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count

from paraval.racing.candidates.duplicates import BASE_NORMAL
from paraval.racing.course.candidate import Candidate
from paraval.racing.course.recorded import PREPARED, TESTED, RaceTime, RecordedSteps, StepId, id_of
from paraval.racing.course.steps import BASELINE, Base, Step, StepKind, trial_of
from paraval.racing.findings import Origin, Proposal
from paraval.racing.integrity.protection import LEADS_OUT, ProtectedPaths
from paraval.racing.report.standings import Status
from paraval.racing.request import PROTECTED, RaceRequest
from paraval.text.words import counted

# Names of candidates: unique in a race, and the same in a replay. Pure.


class CandidateNames:
    """The names already taken."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._taken = {BASELINE, *taken}
        self._next: dict[str, int] = defaultdict(lambda: 2)
        """Name -> the lowest number suffix that may be free."""

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def free_for(self, entry: Candidate, reserved: Collection[str] = ()) -> str:
        """A free name, not yet taken: see `take`.

        If the name is taken, its parent's is put before it: a number alone would depend on the
        order in which hooks end.
        """
        stem = name_with_parent(entry)
        names = chain(dict.fromkeys((entry.proposed_name, stem)), self._numbered(stem))
        return next(name for name in names if name not in self._taken and name not in reserved)

    def take(self, name: str) -> None:
        self._taken.add(name)

    def _numbered(self, stem: str) -> Iterator[str]:
        for number in count(self._next[stem]):
            name = f"{stem}-{number}"
            if name not in self._taken:
                yield name
            elif number == self._next[stem]:
                self._next[stem] = number + 1


def name_with_parent(entry: Candidate) -> str:
    """The name to use if the proposed one is taken."""
    parent = entry.proposal.parent
    return entry.proposed_name if parent is None else f"{parent}-{entry.proposed_name}"


_PLACE_OF_KIND = {StepKind.REPAIR: 2, StepKind.REFINE: 3}
"""Sort order among a candidate's children: repairs before refinements."""

_WRONG = (Status.FAILED, Status.TIMEOUT, Status.CRASHED)


class CandidateField:
    """All candidates, in order of arrival."""

    def __init__(
        self, request: RaceRequest, base: Base, recorded: RecordedSteps, time: RaceTime
    ) -> None:
        self._request = request
        self._most = request.limits.candidates
        self._judging = ProtectedPaths(replace(request, protect=PROTECTED), base.start)
        self.changed_python: set[str] = set()
        """Baseline files that candidates change so far, without those that judge candidates, even
        if unprotected: breaking them would break the tests themselves."""
        self._base = base
        self._recorded = recorded
        self._time = time
        self._names = CandidateNames()
        self._all: list[Candidate] = []
        self._named: dict[str, Candidate] = {}
        """Candidates with a final name: given ones and staged ones."""
        self._new: list[Candidate] = []
        self._new_recorded: list[Candidate] = []
        self._places = 0
        """How many of `limits.candidates` are taken."""
        self._line = [*recorded.came]
        """Names to stage, in order of arrival, an earlier engine's first: so the same one of two
        equal candidates is the duplicate."""
        self._in_line = set(self._line)
        """Those not yet decided ..."""
        self._waiting: dict[str, Candidate] = {}
        """... and the candidates among them that have arrived."""
        self.passed = 0
        """How many in the line are decided."""
        self._originals_again: list[Candidate] = []
        """Staged candidates that an earlier engine tested."""
        self.wrong: list[Candidate] = []
        """Candidates to repair, until the caller takes them."""
        self._by_tree: dict[str, str] = {}
        """Tree -> candidate."""
        self._by_normal: dict[str, str] = {}
        """Normal form -> candidate."""
        self._came: dict[StepId, set[tuple[str, str]]] = {}
        """Hook call -> its proposals, by name and content."""

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all)

    def __getitem__(self, name: str) -> Candidate:
        return self._named[name]

    def sorted(self) -> list[Candidate]:
        """All candidates, each with a name, in an order independent of arrival."""
        entries = sorted(self._all, key=lambda one: one.order)
        if len(self._named) < len(self._all):
            names = CandidateNames(self._named)
            for one in entries:
                if not self._is_named(one):
                    one.call(names.free_for(one))
                    names.take(one.name)
        return entries

    # ---- who joins

    def give(self, proposals: Sequence[Proposal]) -> None:
        """Add the given candidates."""
        for place, proposal in enumerate(proposals):
            entry = Candidate(proposal=proposal, proposed_name=proposal.name, order=(0, 0, place))
            # They come first, so their names are free.
            self._call(entry, self._names.free_for(entry))
            entry.is_recorded = self._was_staged_as(entry, entry.name)
            self._enter(entry)

    def join(self, step: Step, proposals: Sequence[Proposal]) -> None:
        """Add a hook's proposals; repeated ones are ignored."""
        came = self._came.setdefault(id_of(step), set())
        parent = self._named.get(step.candidate)
        for proposal in proposals:
            key = (proposal.name, proposal.content)
            if key in came:
                continue
            entry = _proposed(proposal, step, parent, len(came))
            came.add(key)
            if (name := self._name_it_had(entry)) is not None:
                entry.is_recorded = True
                self._call(entry, name)
            self._enter(entry)

    def _enter(self, entry: Candidate) -> None:
        self._all.append(entry)
        (self._new_recorded if entry.is_recorded else self._new).append(entry)

    def _name_it_had(self, entry: Candidate) -> str | None:
        """Its name with an earlier engine, if that staged it."""
        stem = name_with_parent(entry)
        names = chain((entry.proposed_name, stem), self._recorded.numbered(stem))
        had = (name for name in names if name not in self._names)
        return next((name for name in had if self._was_staged_as(entry, name)), None)

    def _was_staged_as(self, entry: Candidate, name: str) -> bool:
        """Whether the step recorded under a name staged this very proposal."""
        if not self._recorded.has(StepKind.STAGE, name):
            return False
        step = _staging_of(replace(entry.proposal, name=name))
        return trial_of(step, 0, self._request, self._base).key in self._recorded.keys

    def _call(self, entry: Candidate, name: str) -> None:
        entry.call(name)
        self._names.take(name)
        self._named[name] = entry

    def _is_named(self, entry: Candidate) -> bool:
        return self._named.get(entry.name) is entry

    # ---- who is staged

    def staging(self, *, recorded_only: bool = False) -> list[Step]:
        """Staging steps for new candidates."""
        new, self._new_recorded = self._new_recorded, []
        if not recorded_only:
            new += self._new
            self._new = []
        return [_staging_of(one.proposal) for one in new if self._is_staged_now(one)]

    def _is_staged_now(self, one: Candidate) -> bool:
        if not self._is_within_limit(one):
            reason = f"over the limit of {counted(self._most, 'candidate')}"
            one.take_out(Status.SKIPPED, reason)
            return False
        if self._time.is_up and not one.is_recorded:
            self._time.end(one, PREPARED)
            return False
        if not self._is_named(one):
            staged = self._recorded.candidates(StepKind.STAGE)
            self._call(one, self._names.free_for(one, reserved=staged))
        self._places += 1
        if one.name not in self._in_line:
            self._in_line.add(one.name)
            self._line.append(one.name)
        self._waiting[one.name] = one
        one.is_staging = True
        return True

    def _is_within_limit(self, one: Candidate) -> bool:
        """Counts by arrival: candidates that an earlier engine staged keep no place, because a
        hook that is called again may propose different ones."""
        is_given = one.proposal.origin is Origin.GIVEN
        return (one.order[-1] if is_given else self._places) < self._most

    # ---- who is tested

    def staged(self, one: Candidate) -> None:
        """Record that its staging has ended."""
        if one.status is Status.INVALID:
            self.wrong.append(one)
        elif self._was_original(one):
            self._originals_again.append(one)
        if one.staged is not None and not one.staged.flags:
            self.changed_python.update(
                file.path
                for file in one.staged.files
                if file.path.endswith(".py") and file.status != "added"
                if file.path not in self._judging
            )

    def tests(self, *, recorded_only: bool = False) -> list[Step]:
        """Test steps for candidates that are staged, as is everyone before them: so which of two
        equal candidates is the duplicate does not depend on staging speed."""
        again, self._originals_again = self._originals_again, []
        undecided = chain(again, () if recorded_only else self._next_in_line())
        return [step for one in undecided for step in self._test_of(one)]

    def _next_in_line(self) -> Iterator[Candidate]:
        """Yield staged candidates in order; stop at one being staged or that may still arrive."""
        has_moved = False
        while self._waiting:
            name = self._line[self.passed]
            one = self._waiting.get(name)
            if has_moved if one is None else one.is_staging:
                return
            self._in_line.discard(name)
            self.passed += 1
            if one is not None:
                del self._waiting[name]
                has_moved = True
                yield one

    def _test_of(self, one: Candidate) -> Iterable[Step]:
        if one.awaits_decision:
            self._decide(one)
            if one.is_on:
                yield Step(kind=StepKind.TEST, candidate=one.name, tree=one.tree)

    def tested(self, one: Candidate) -> None:
        if one.status in _WRONG:
            self.wrong.append(one)

    def _was_original(self, one: Candidate) -> bool:
        """Whether an earlier engine tested or repaired it."""
        return any(self._recorded.has(kind, one.name) for kind in (StepKind.TEST, StepKind.REPAIR))

    def _decide(self, one: Candidate) -> None:
        """Decide whether a candidate that applies proceeds to its tests."""
        assert one.staged is not None
        one.flag(one.staged.flags)
        if (same := self._same_as(one)) is not None:
            one.duplicate_of, reason = same
            one.take_out(Status.DUPLICATE, reason)
        elif one.staged.flags:
            one.take_out(Status.INVALID, _forbidden(one.staged.flags))
            self.wrong.append(one)
        elif self._time.is_up and not self._recorded.has(StepKind.TEST, one.name):
            self._time.end(one, TESTED)
        else:
            one.is_on = True

    def _same_as(self, one: Candidate) -> tuple[str, str] | None:
        """The candidate that it duplicates, and the reason to show."""
        assert one.staged is not None
        tree, normal = one.staged.tree, one.staged.normal
        if tree == self._base.tree:
            return BASELINE, "it changes nothing"
        if normal == BASE_NORMAL:
            return BASELINE, "it changes only formatting"
        # Trees first, regardless of normal form: identical trees are never tested twice.
        first = self._by_tree.setdefault(tree, one.name)
        if first != one.name:
            return first, f"identical to {first}"
        first = self._by_normal.setdefault(normal, one.name)
        if first == one.name or self._was_original(one):
            return None
        return first, f"identical to {first} except for formatting"


def _proposed(proposal: Proposal, step: Step, parent: Candidate | None, place: int) -> Candidate:
    """The candidate for a hook's proposal; `place`: its position among them."""
    proposal, name = replace(proposal, origin=Origin(step.kind.value)), proposal.name
    if parent is None:
        return Candidate(
            proposal=replace(proposal, parent=None, depth=0),
            proposed_name=name,
            order=(0, step.number, place),
        )
    depth = parent.proposal.depth + 1
    order = (depth, *parent.order[1:], _PLACE_OF_KIND[step.kind], place)
    return Candidate(
        proposal=replace(proposal, parent=parent.name, depth=depth), proposed_name=name, order=order
    )


def _staging_of(proposal: Proposal) -> Step:
    return Step(kind=StepKind.STAGE, candidate=proposal.name, proposal=proposal)


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
