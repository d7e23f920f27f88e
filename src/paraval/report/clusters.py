"""Rates and scores with the case as unit: the repeats of a case go together, as a cluster.

A rate is the mean over cells, a case with a variant each, of the cell's rate over its judged
repeats. So a case that lost repeats to errors counts no less than another, and a table says what
comparisons say. Where all have as many judged repeats, it is the share of what was judged.

What a case came to is read from a book of cases; how intervals are worked out is the statistics'.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from statistics import fmean
from typing import Protocol

from paraval.statistics.means import mean_interval
from paraval.statistics.rates import clustered_rate_interval


class Cell(Protocol):
    """A case with a variant, over its repeats."""

    @property
    def passed(self) -> int: ...
    @property
    def judged(self) -> int: ...
    @property
    def errors(self) -> int: ...
    @property
    def scored(self) -> int:
        """Judged repeats that have a score."""
        ...

    @property
    def sum_score(self) -> float: ...


class Book(Protocol):
    """What each case came to with each variant."""

    def rows(self) -> Iterator[tuple[str, Mapping[str, Cell]]]:
        """A case and its cells, by the keys of the variants."""
        ...


Counts = tuple[tuple[int, tuple[int, int]], ...]
"""Of a case: so many judged repeats, how many passed of the cells that have as many, and how many
such cells there are."""


class Clusters:
    """Cases with a verdict: how often each passed, and its mean score."""

    def __init__(self) -> None:
        # Few kinds come up again and again: each is held once, since there are many cases.
        self._cells: Counter[tuple[int, int, int]] = Counter()
        """By passed, judged and errors."""
        self._cases: list[Counts] = []
        self._known: dict[Counts, Counts] = {}
        self._scores = array("d")

    def add(self, cells: Iterable[Cell]) -> None:
        """A case: its cells."""
        counts: dict[int, tuple[int, int]] = {}
        scored, sum_score = 0, 0.0
        for cell in cells:
            passed, judged = cell.passed, cell.judged
            self._cells[passed, judged, cell.errors] += 1
            scored += cell.scored
            sum_score += cell.sum_score
            if judged:
                before, number = counts.get(judged, (0, 0))
                counts[judged] = (before + passed, number + 1)
        if counts:
            case = tuple(sorted(counts.items()))
            self._cases.append(self._known.setdefault(case, case))
        if scored:
            self._scores.append(sum_score / scored)

    def __len__(self) -> int:
        """How many cases have a verdict."""
        return len(self._cases)

    def rate(self) -> float | None:
        """None where nothing was judged."""
        kinds = self._cells.items()
        return _mean_rate((passed, judged, number) for (passed, judged, _), number in kinds)

    def rate_if_errors_failed(self) -> float | None:
        """Over cells with errors alone, too; None where no trial ended."""
        kinds = self._cells.items()
        return _mean_rate((passed, judged + errors, n) for (passed, judged, errors), n in kinds)

    def rate_if_errors_passed(self) -> float | None:
        """Over the same."""
        kinds = self._cells.items()
        return _mean_rate(
            (passed + errors, judged + errors, n) for (passed, judged, errors), n in kinds
        )

    def rate_interval(self) -> tuple[float, float] | None:
        if not self._cases:
            return None
        repeats = self._usual_repeats()
        scaled = {case: _cluster(case, repeats) for case in self._known}
        return clustered_rate_interval([scaled[case] for case in self._cases])

    def _usual_repeats(self) -> Fraction:
        """With so many judged repeats of every cell, all would tell as much as they do: the
        harmonic mean, since the variance of a mean of rates goes with the mean of 1 / n."""
        judged: Counter[int] = Counter()
        for (_, repeats, _), number in self._cells.items():
            if repeats:
                judged[repeats] += number
        inverse = sum((Fraction(number, n) for n, number in judged.items()), Fraction(0))
        return judged.total() / inverse

    def score(self) -> float | None:
        return fmean(self._scores) if self._scores else None

    def score_interval(self) -> tuple[float, float] | None:
        """None where the cases don't tell how much they vary: one alone, or all the same."""
        if not self._scores or min(self._scores) == max(self._scores):
            return None
        mean, low, high = mean_interval(self._scores)
        # A score lies between 0 and 1; one that does not is shown as it is.
        return (max(low, min(mean, 0.0)), min(high, max(mean, 1.0)))


def clusters_of(book: Book) -> tuple[Clusters, dict[str, Clusters]]:
    """Of the whole run, where all variants of a case go together; and by the variants' keys."""
    whole = Clusters()
    by_variant: dict[str, Clusters] = {}
    for _, cells in book.rows():
        for key, cell in cells.items():
            by_variant.setdefault(key, Clusters()).add([cell])
        whole.add(cells.values())
    return whole, by_variant


def _mean_rate(cells: Iterable[tuple[int, int, int]]) -> float | None:
    """Exactly, from how many passed of how many, and in how many cells; None where none are."""
    passed_of: Counter[int] = Counter()
    all_cells = 0
    for passed, of, number in cells:
        if of:
            passed_of[of] += passed * number
            all_cells += number
    if not all_cells:
        return None
    return float(sum(Fraction(passed, of) for of, passed in passed_of.items()) / all_cells)


def _cluster(case: Counts, repeats: Fraction) -> tuple[float, float]:
    """What passed, and of how many, were each cell repeated so often."""
    rates = sum(Fraction(passed, judged) for judged, (passed, _) in case)
    cells = sum(number for _, (_, number) in case)
    return (float(rates * repeats), float(cells * repeats))
