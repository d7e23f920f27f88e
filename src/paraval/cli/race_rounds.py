"""The blocks of a race as they are measured: how far a round is, and how fast each candidate is.

Speeds are told as the report tells them: by all blocks that there are, those of earlier engines
among them, and with the report's own confidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from paraval.racing.findings import Block, Speedup
from paraval.racing.halving import FIRST_BLOCKS, one_of
from paraval.racing.shown import is_bounded, speedup_cell, times
from paraval.racing.steps import StepKind
from paraval.racing.verdicts import speedup_of
from paraval.report.wording import counted

LEAST_BLOCKS = 2
"""The first round begins with one block of each, to see that it works: that shows no speed yet."""
_BLOCKS = {StepKind.SCREEN: "block", StepKind.FINAL: "fresh block"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What is known of the blocks to come when one has ended."""

    blocks: int = 0
    is_last: bool = False
    """Nothing else was named when it began: what is named now is another round."""


@dataclass(slots=True, kw_only=True)
class _Round:
    """The blocks that are measured now."""

    kind: StepKind | None = None
    done: int = 0
    left: int = 0
    """Named, and not done."""
    measured: set[str] = field(default_factory=set)
    """Whose speed was not told since."""


class Rounds:
    """Is told of each block, and tells how fast candidates are."""

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._blocks: dict[tuple[StepKind, str], list[Block]] = {}
        self._finalists: set[str] = set()
        self._recalled: set[tuple[StepKind, str]] = set()
        """Who has blocks of earlier engines."""
        self._broken: set[str] = set()
        """A block of theirs came to no end: they are out, however fast the others were."""
        self._beginners: set[str] = set()
        """Whose first block was measured: the rest of their first round is not named yet."""
        self._is_first_pass = False
        self._round = _Round()

    @property
    def done(self) -> int:
        return self._round.done

    @property
    def total(self) -> int:
        """Of this round, with what is not named yet and sure to come; 0: nobody knows yet."""
        ahead = 0
        if self._is_first_pass and (self._round.done or self._round.left):
            ahead = (FIRST_BLOCKS - 1) * (len(self._beginners) + self._round.left)
        return self._round.done + self._round.left + ahead

    # ---- what happens

    def begin(self, kind: StepKind, name: str, number: int, left: int) -> Iterator[tuple[str, str]]:
        """A block begins; the speeds of a round that is over by that."""
        if kind is not self._round.kind:
            yield from self.speeds()
            self._round = _Round(kind=kind, left=left)
        if kind is StepKind.FINAL:
            self._finalists.add(name)
        self._is_first_pass = kind is StepKind.SCREEN and number == 1
        if not self._is_first_pass:
            self._beginners.clear()

    def end(
        self, kind: StepKind, name: str, block: Block | None, left: Left
    ) -> Iterator[tuple[str, str]]:
        """A block has ended, without one where it broke; the speeds of a round that it ends."""
        self._take(kind, name, block, is_first=self._is_first_pass)
        self._round.kind = kind
        self._round.done += 1
        self._round.left = left.blocks
        self._round.measured.add(name)
        if left.is_last:
            yield from self.speeds(least=LEAST_BLOCKS)
            if not self._is_first_pass:
                self._round.done = 0
            self._is_first_pass = False

    def recall(self, kind: StepKind, name: str, number: int, block: Block | None) -> None:
        """A block of an earlier engine."""
        self._recalled.add((kind, name))
        if kind is StepKind.FINAL:
            self._finalists.add(name)
        if number > 1:
            self._beginners.clear()
        self._take(kind, name, block, is_first=kind is StepKind.SCREEN and number == 1)

    def _take(self, kind: StepKind, name: str, block: Block | None, *, is_first: bool) -> None:
        if block is None:
            self._broken.add(name)
            return
        self._blocks.setdefault((kind, name), []).append(block)
        if is_first:
            self._beginners.add(name)

    def finish(self) -> Iterator[tuple[str, str]]:
        """Finals that were broken off say nothing: the report goes by the rounds before, then."""
        if not (self._round.kind is StepKind.FINAL and self._round.left):
            yield from self.speeds()

    # ---- how fast

    def speeds(self, least: int = 1) -> Iterator[tuple[str, str]]:
        """Of each candidate that was measured since it was told last, the fastest first.

        One with fewer blocks waits.
        """
        kind = self._round.kind
        if kind is None:
            return
        self._round.measured |= self._others_of_the_round(kind)
        self._round.measured -= self._broken
        names = [one for one in self._round.measured if len(self._blocks[kind, one]) >= least]
        self._round.measured.difference_update(names)
        told = [(*self._speed(kind, name), name) for name in sorted(names)]
        for _, words, name in sorted(told, key=lambda one: -one[0]):
            yield name, words

    def _others_of_the_round(self, kind: StepKind) -> set[str]:
        """Whom an earlier engine measured in the round that was gone on with, and did not end: they
        have as many blocks as those that were measured since."""
        done = {len(self._blocks.get((kind, name), ())) for name in self._round.measured}
        others = {name for of, name in self._recalled if of is kind}
        self._recalled = {one for one in self._recalled if not done}
        return {name for name in others if len(self._blocks.get((kind, name), ())) in done}

    def _speed(self, kind: StepKind, name: str) -> tuple[float, str]:
        blocks = self._blocks[kind, name]
        after = f"after {counted(len(blocks), _BLOCKS[kind])}"
        if any(block.noisy for of in _BLOCKS for block in self._blocks.get((of, name), ())):
            after += "  (noisy)"
        try:
            speedup = speedup_of(blocks, self._confidence_of(kind))
        except ValueError:
            speedup = None
        if speedup is None:
            return 0.0, f"no speed {after}"
        return speedup.estimate, f"{_shown(speedup)} {after}"

    def _confidence_of(self, kind: StepKind) -> float:
        if kind is StepKind.FINAL:
            return one_of(len(self._finalists), self._confidence)
        return self._confidence


def _shown(speedup: Speedup) -> str:
    if is_bounded(speedup):
        return speedup_cell(speedup)
    return f"{times(speedup.estimate)}, interval unknown,"
