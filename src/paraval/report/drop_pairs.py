"""The cases of a run beside the same cases of its baseline, in the pairs that comparisons make.

One thing is different: a gate asks for all that was planned, so what was skipped is missing like an
error. Of runs that may stop early, cases count in the order that was drawn, up to the first that
was skipped; what lies beyond was not asked for. What the pairs mean is judged in `dropping`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paraval.report.comparing.anytime import Missing
from paraval.report.comparing.cells import CaseBook, Cell
from paraval.report.comparing.claims import state_of
from paraval.report.comparing.pairing import Cells, Matchup, Row, row_of, shared_variants
from paraval.report.comparing.pairs import Pairs
from paraval.report.wording import variant_label
from paraval.statistics.drawing import drawn_order


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPairs:
    """A run beside its baseline."""

    whole: Pairs
    """Of a case: the mean over the variants that both have and that are judged on both sides."""
    planned: int
    """Cases that both have, counted or not."""
    variants: Mapping[str, Pairs]
    """By their keys; none where they have only one in common."""
    labels: Mapping[str, str]
    """Of the variants that they have in common, by their keys."""
    exchanged: tuple[str, str] | None = None
    """The labels of the only variants of both, now and before, where these are not the same."""

    @property
    def only_now(self) -> int:
        """Cases that the baseline does not have ..."""
        return len(self.whole.left_out.only_subject)

    @property
    def only_baseline(self) -> int:
        """... that it alone has ..."""
        return len(self.whole.left_out.only_reference)

    @property
    def unjudged(self) -> int:
        """... and that both have, but one of them without a verdict."""
        return len(self.whole.left_out.unjudged)


def drop_pairs(now: CaseBook, baseline: CaseBook) -> DropPairs:
    return _gathered(now, baseline, _cases_of(now, baseline), in_order=False)


def drop_pairs_in_order(now: CaseBook, baseline: CaseBook, seed: int) -> DropPairs:
    """Of runs that may stop early; `seed` drew the order of their cases."""
    order = drawn_order(_cases_of(now, baseline), seed)
    return _gathered(now, baseline, order, in_order=True)


class _Gathering:
    """The pairs of some variants, as their cases come."""

    def __init__(self, matchup: Matchup, *, in_order: bool) -> None:
        self.pairs = Pairs()
        self.planned = 0
        self._matchup = matchup
        self._in_order = in_order
        self._ended = False

    def add(self, case: str, now: Row, before: Row) -> None:
        settings = self._matchup.matched(now, before)
        if settings:
            self.planned += 1
            if self._in_order and state_of(settings) is Missing.NOT_YET:
                self._ended = True
            if self._ended:
                return
        self._matchup.add_figures(self.pairs, case, now, before)


def _gathered(now: CaseBook, baseline: CaseBook, cases: list[str], *, in_order: bool) -> DropPairs:
    shared = shared_variants(now.variants, baseline.variants)
    whole = _Gathering(Matchup(keys=tuple(shared.items())), in_order=in_order)
    each = {
        pair[0]: _Gathering(Matchup(keys=(pair,)), in_order=in_order)
        for pair in shared.items()
        if len(shared) > 1
    }
    for case in cases:
        rows = _row(now.cells_of(case)), _row(baseline.cells_of(case))
        for gathering in (whole, *each.values()):
            gathering.add(case, *rows)
    return DropPairs(
        whole=whole.pairs,
        planned=whole.planned,
        variants={key: one.pairs for key, one in each.items()},
        labels={key: variant_label(now.variants[key]) for key in shared},
        exchanged=_exchanged(now, baseline) if len(shared) == 1 else None,
    )


def _exchanged(now: CaseBook, baseline: CaseBook) -> tuple[str, str] | None:
    if len(now.variants) > 1 or len(baseline.variants) > 1:
        return None
    (one,), (other,) = now.variants.values(), baseline.variants.values()
    # As texts: 1, 1.0 and True are values of their own.
    if {axis: repr(one[axis]) for axis in one} == {axis: repr(other[axis]) for axis in other}:
        return None
    return variant_label(one), variant_label(other)


def _cases_of(now: CaseBook, baseline: CaseBook) -> list[str]:
    return list(dict.fromkeys(case for book in (now, baseline) for case, _ in book.rows()))


def _row(cells: Cells) -> Row:
    return row_of({key: _skips_missing(cell) for key, cell in cells.items()})


def _skips_missing(cell: Cell) -> Cell:
    return cell._replace(errors=cell.errors + cell.skipped) if cell.skipped else cell
