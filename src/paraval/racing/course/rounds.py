"""The measurement rounds of a race: who is measured next, until the finals.

Pure. The course asks for the next blocks when nothing else is running; their results are in the
entries.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from paraval.racing.course.candidate import Candidate
from paraval.racing.course.recorded import RaceTime, RecordedSteps
from paraval.racing.course.steps import Base, Step, StepKind
from paraval.racing.course.verdicts import (
    FINALISTS,
    FIRST_BLOCKS,
    PROCESSES_OF_A_BLOCK,
    final_blocks,
    screening_rounds,
)
from paraval.racing.request import RaceRequest

STANDS_FOR_CANDIDATES = 7
"""How many candidates have a worktree ready for measurements, besides the baseline."""
MEASURED = "it was measured"
MEASURED_AGAIN = "it was measured again"


class MeasurementRounds:
    """The state of the measurement rounds."""

    def __init__(
        self, request: RaceRequest, base: Base, recorded: RecordedSteps, time: RaceTime
    ) -> None:
        self._bench = request.bench
        self._keeps_slow = request.head is not None
        self._confidence = request.accept.confidence
        self._seed = base.tree
        self._recorded = recorded
        self._time = time
        self.process_s = 0.0
        """Duration of one process of the baseline's benchmark."""
        self.round = 0
        self.finalists = 0
        self.is_in_finals = False

    # ---- the first round

    def first_blocks(self, entries: Sequence[Candidate]) -> list[Step]:
        """One block for each newcomer, enough to detect a benchmark that hangs or fails."""
        newcomers = [one for one in entries if one.is_measurable and not one.screens_named]
        newcomers = [one for one in newcomers if not one.is_in and not one.held]
        if not newcomers or self.is_in_finals:
            return []
        self.round = max(1, self.round)
        fitting = self._fitting(newcomers, first=not any(one.screens_named for one in entries))
        return self._blocks({one.name: 1 for one in fitting}, fitting)

    def rest_of_first_round(self, entries: Sequence[Candidate]) -> list[Step]:
        begun = [one for one in entries if one.is_in and 0 < one.screens_named < FIRST_BLOCKS]
        return self._blocks({one.name: FIRST_BLOCKS - one.screens_named for one in begun}, begun)

    def _fitting(self, newcomers: list[Candidate], *, first: bool) -> list[Candidate]:
        """The newcomers that there is time for; the others are out.

        If there is no time for any round, the first two may still go to the finals.
        """
        places = self._places(len(newcomers))
        fitting = [
            one
            for place, one in enumerate(newcomers)
            if place < places or self._recorded.has(StepKind.SCREEN, one.name)
        ]
        straight_to_finals = first and not fitting
        for one in newcomers:
            if one in fitting or straight_to_finals:
                one.is_in = True
            else:
                self._time.end(one, MEASURED)
        return fitting

    def _places(self, newcomers: int) -> int:
        """How many newcomers there is time for, the finals included."""
        if self._time.is_up:
            return 0
        left = self._time.left_s - self._finals_s(min(FINALISTS, newcomers))
        each = self._seconds(FIRST_BLOCKS)
        return newcomers if left >= each * newcomers else int(max(0.0, left) // each)

    # ---- halving

    def next_round(self, entries: Sequence[Candidate]) -> list[Step]:
        """The blocks of the next round; none if the finals are next."""
        if self.is_in_finals:
            return []
        self._drop_the_slow(entries)
        alive = self.ranked(entries)
        rounds = screening_rounds(max(1, sum(bool(one.screens_named) for one in entries)))
        if len(alive) <= FINALISTS or self.round >= len(rounds):
            return []
        left, blocks = rounds[self.round]
        survivors = alive[:left]
        if not self._may_continue(survivors, blocks):
            return []
        for one in alive[left:]:
            one.is_in = False
        self.round += 1
        return self._blocks({one.name: blocks for one in survivors}, survivors)

    def _may_continue(self, survivors: Sequence[Candidate], blocks: int) -> bool:
        """Whether there is time for a round and the finals, or as an earlier engine decided."""
        recorded = self._recorded
        if any(recorded.has(StepKind.SCREEN, s.name, s.screens_named + 1) for s in survivors):
            return True
        if recorded.candidates(StepKind.FINAL):
            return False
        needed = self._seconds(blocks * len(survivors)) + self._finals_s(FINALISTS)
        return self._time.left_s >= needed

    def ranked(self, entries: Sequence[Candidate]) -> list[Candidate]:
        """The candidates still in, the fastest first."""
        return sorted((one for one in entries if one.is_in), key=Candidate.rank)

    def _drop_the_slow(self, entries: Sequence[Candidate]) -> None:
        for one in () if self._keeps_slow else entries:
            speedup = one.screened(self._confidence) if one.is_in else None
            if speedup is not None and speedup.high < 1:
                one.is_in = False

    # ---- the finals

    def finals(self, entries: Sequence[Candidate]) -> list[Step]:
        if self.is_in_finals:
            return []
        self.is_in_finals = True
        self._drop_the_slow(entries)
        best = self.ranked(entries)[:FINALISTS]
        finalists = [one for place, one in enumerate(best, 1) if self._is_final(one, place)]
        for one in entries:
            if one.is_in and one not in finalists:
                self._leave_out(one, was_best=one in best)
        self.finalists = len(finalists)
        number = final_blocks(self._bench, self.process_s)
        return [
            Step(kind=StepKind.FINAL, candidate=one.name, number=block, tree=one.tree)
            for block in range(1, number + 1)
            for one in self._shuffled(finalists, f"final {block}")
        ]

    def _is_final(self, one: Candidate, place: int) -> bool:
        fits = not self._time.is_up and self._time.left_s >= self._finals_s(place)
        return fits or self._recorded.has(StepKind.FINAL, one.name)

    def _leave_out(self, one: Candidate, *, was_best: bool) -> None:
        one.is_in = False
        if not one.screening:
            self._time.end(one, MEASURED)
        elif was_best:
            one.held, one.is_late = self._time.came_before(MEASURED_AGAIN), True

    # ---- blocks

    def _blocks(self, numbers: Mapping[str, int], entries: Sequence[Candidate]) -> list[Step]:
        """The given number of blocks for each candidate. They take turns, so that a slow drift
        affects all equally, in groups no larger than the number of measurement worktrees:
        otherwise each block would need a new worktree."""
        steps: list[Step] = []
        for group in _batched(self._shuffled(entries, f"{self.round}"), STANDS_FOR_CANDIDATES):
            for turn in range(max(numbers[one.name] for one in group)):
                more = [one for one in group if numbers[one.name] > turn]
                steps += [_screen(one) for one in self._shuffled(more, f"{self.round} {turn}")]
        return steps

    def _shuffled(self, entries: Sequence[Candidate], turn: str) -> list[Candidate]:
        shuffled = sorted(entries, key=lambda one: one.order)
        rng = random.Random(f"{self._seed} {turn}")  # noqa: S311 - an order, not secrets
        rng.shuffle(shuffled)
        return shuffled

    def _finals_s(self, finalists: int) -> float:
        return self._seconds(finalists * final_blocks(self._bench, self.process_s))

    def _seconds(self, blocks: int) -> float:
        return blocks * PROCESSES_OF_A_BLOCK * self.process_s


def _screen(one: Candidate) -> Step:
    """The step for the candidate's next block."""
    one.screens_named += 1
    return Step(kind=StepKind.SCREEN, candidate=one.name, number=one.screens_named, tree=one.tree)


def _batched(entries: Sequence[Candidate], size: int) -> list[Sequence[Candidate]]:
    """Split into groups of `size`, in order."""
    return [entries[start : start + size] for start in range(0, len(entries), size)]
