"""What each case came to with each variant, in a few numbers: what comparisons are made of.

A trial leaves these behind and not itself, so that 100,000 of them can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paraval.records import Outcome, TrialResult, Variant
from paraval.report.costs import finite, is_from_cache, is_known, spend_of
from paraval.report.summary import variant_key


@dataclass(slots=True)
class Cell:
    """A case with a variant, over its repeats."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    scored: int = 0
    """Judged repeats that have a score ..."""
    sum_score: float = 0.0
    """... and its sum."""
    timed: int = 0
    """Repeats that ran, neither skipped nor from the cache alone ..."""
    sum_s: float = 0.0
    """... and how long they took, all attempts of each together."""
    priced: int = 0
    """Repeats whose cost is known as a whole ..."""
    sum_usd: float = 0.0
    """... and what they cost, judges apart."""

    @property
    def judged(self) -> int:
        return self.passed + self.failed

    @property
    def rate(self) -> float | None:
        return self.passed / self.judged if self.judged else None

    @property
    def is_flaky(self) -> bool:
        """Whether repeats of the same thing passed and failed."""
        return bool(self.passed and self.failed)

    def add(self, result: TrialResult) -> None:
        outcome = result.outcome
        if outcome is Outcome.SKIPPED:
            self.skipped += 1
            return
        self.passed += outcome is Outcome.PASSED
        self.failed += outcome is Outcome.FAILED
        self.errors += outcome.is_error
        score = finite(result.result.score)
        if outcome.is_judged and score is not None:
            self.scored += 1
            self.sum_score += score
        seconds = finite(result.total_s)
        if seconds is not None and not is_from_cache(result):
            self.timed += 1
            self.sum_s += seconds
        spend = spend_of(result)
        if spend is not None and is_known(spend):
            self.priced += 1
            self.sum_usd += spend.known_usd


class CaseBook:
    """All cells of a run, cases and variants in plan order."""

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, Cell]] = {}
        self._variants: dict[str, Variant] = {}

    def add(self, result: TrialResult) -> None:
        key = variant_key(result.variant)
        if key not in self._variants:
            self._variants[key] = dict(result.variant)
        row = self._cells.setdefault(result.case_id, {})
        cell = row.get(key)
        if cell is None:
            cell = row[key] = Cell()
        cell.add(result)

    @property
    def variants(self) -> Mapping[str, Variant]:
        """By their keys."""
        return self._variants

    def rows(self) -> Iterator[tuple[str, Mapping[str, Cell]]]:
        """A case and its cells, by the keys of the variants."""
        yield from self._cells.items()

    def __len__(self) -> int:
        return len(self._cells)
