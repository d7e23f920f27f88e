"""The result of each case with each variant in a few numbers, from which comparisons are made.

Only these numbers are kept, not the trials, so that 100,000 trials can be compared.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from paraval.codec import finite
from paraval.records import AttemptResult, Outcome, TrialResult, Variant
from paraval.report.summary.costs import is_timeout, seconds_to_verdict, spend_of


def variant_key(variant: Variant) -> str:
    """Identifies a variant; unlike in the mapping itself, 1, 1.0 and True are different."""
    return repr(tuple(variant.items()))


Graders = tuple[str, ...]
"""The names of the graders that judged a trial."""
NO_SCORES: Mapping[Graders, tuple[int, float]] = MappingProxyType({})


class Cell(NamedTuple):
    """A case with a variant, over its repeats."""

    passed: int
    failed: int
    errors: int
    skipped: int
    scored: int
    """Judged repeats that have a score."""
    timed: int
    """Judged repeats whose time is known."""
    priced: int
    """Judged repeats whose whole cost is known."""
    timeouts: int
    """Repeats that timed out."""
    sum_score: float
    sum_s: float
    """Total time of those timed, over all attempts."""
    sum_usd: float
    """Total cost of those priced, without judges."""
    scores: Mapping[Graders, tuple[int, float]] = NO_SCORES
    """Which graders judged -> how many repeats, and the sum of their scores: a score is comparable
    only with one of the same graders."""

    @property
    def judged(self) -> int:
        return self.passed + self.failed

    @property
    def rate(self) -> float | None:
        return self.passed / self.judged if self.judged else None

    @property
    def is_flaky(self) -> bool:
        """Whether repeats both passed and failed."""
        return bool(self.passed and self.failed)


_COUNTS = 8
_SUMS = 3
PASSED, FAILED, ERRORS, SKIPPED, SCORED, TIMED, PRICED, TIMEOUTS = range(_COUNTS)
SCORE, SECONDS, USD = range(_SUMS)

_EMPTY = array("I")


class CaseBook:
    """All cells of a run, cases and variants in plan order.

    A cell is an index into two arrays: objects would take five times the memory.
    """

    def __init__(self) -> None:
        self._variants: dict[str, Variant] = {}
        self._numbers: dict[str, int] = {}
        """Numbers of variants, by their keys ..."""
        self._keys: list[str] = []
        """... and the keys by those numbers."""
        self._rows: dict[str, array[int]] = {}
        """For a case: variant number, cell index, and so on."""
        self._counts = array("I")
        self._sums = array("d")
        self._graders: dict[Graders, int] = {}
        """Numbers of the sets of graders that judged ..."""
        self._sets: list[Graders] = []
        """... and the sets by those numbers."""
        self._first: dict[int, int] = {}
        """For a cell: the set of its first score; nearly always the only one ..."""
        self._others: dict[int, dict[int, tuple[int, float]]] = {}
        """... and for further sets, how many scores and their sum."""

    def add(self, result: TrialResult) -> None:
        place = self._place(result)
        counts, first = self._counts, place * _COUNTS
        outcome = result.outcome
        if outcome is Outcome.SKIPPED:
            counts[first + SKIPPED] += 1
            return
        judged = PASSED if outcome is Outcome.PASSED else FAILED
        counts[first + (judged if outcome.is_judged else ERRORS)] += 1
        counts[first + TIMEOUTS] += is_timeout(result)
        if not outcome.is_judged:
            return
        sums, own = self._sums, place * _SUMS
        if (score := finite(result.result.score)) is not None:
            counts[first + SCORED] += 1
            sums[own + SCORE] += score
            self._add_graders(place, result.result, score)
        if (taken := seconds_to_verdict(result)) is not None:
            counts[first + TIMED] += 1
            sums[own + SECONDS] += taken
        spend = spend_of(result)
        if spend is not None and (usd := finite(spend.original_usd)) is not None:
            counts[first + PRICED] += 1
            sums[own + USD] += usd

    def _add_graders(self, place: int, result: AttemptResult, score: float) -> None:
        names = tuple(sorted(grade.grader for grade in result.grades))
        number = self._graders.setdefault(names, len(self._sets))
        if number == len(self._sets):
            self._sets.append(names)
        if self._first.setdefault(place, number) != number:
            others = self._others.setdefault(place, {})
            count, total = others.get(number, (0, 0.0))
            others[number] = (count + 1, total + score)

    def _place(self, result: TrialResult) -> int:
        key = variant_key(result.variant)
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self._variants):
            self._variants[key] = dict(result.variant)
            self._keys.append(key)
        row = self._rows.get(result.case_id)
        if row is None:
            row = self._rows[result.case_id] = array("I")
        for position in range(0, len(row), 2):
            if row[position] == number:
                return row[position + 1]
        place = len(self._counts) // _COUNTS
        row.extend((number, place))
        self._counts.extend((0,) * _COUNTS)
        self._sums.extend((0.0,) * _SUMS)
        return place

    @property
    def variants(self) -> Mapping[str, Variant]:
        """Variants by their keys."""
        return self._variants

    @property
    def grader_sets(self) -> int:
        """How many different sets of graders judged."""
        return len(self._sets)

    def rows(self) -> Iterator[tuple[str, Mapping[str, Cell]]]:
        """Each case and its cells by variant key; built again each time."""
        for case in self._rows:
            yield case, self.cells_of(case)

    def cells_of(self, case: str) -> Mapping[str, Cell]:
        """The cells of a case by variant key; empty if there is no such case."""
        row = self._rows.get(case, _EMPTY)
        places = zip(row[::2], row[1::2], strict=True)
        return {self._keys[number]: self._cell(place) for number, place in places}

    def _cell(self, place: int) -> Cell:
        counts = self._counts[place * _COUNTS : (place + 1) * _COUNTS]
        sums = self._sums[place * _SUMS : (place + 1) * _SUMS]
        scores = self._scores(place, counts[SCORED], sums[SCORE])
        return Cell._make((*counts, *sums, scores))

    def _scores(self, place: int, scored: int, total: float) -> Mapping[Graders, tuple[int, float]]:
        if place not in self._first:
            return NO_SCORES
        sets = self._sets
        others = self._others.get(place)
        if others is None:
            return {sets[self._first[place]]: (scored, total)}
        first = (
            scored - sum(number for number, _ in others.values()),
            total - sum(part for _, part in others.values()),
        )
        return {sets[number]: one for number, one in {self._first[place]: first, **others}.items()}

    def __contains__(self, case: object) -> bool:
        return case in self._rows

    def __len__(self) -> int:
        """The number of cases."""
        return len(self._rows)
