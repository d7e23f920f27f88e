"""A history as points to draw: of complete runs over the same extent alone, since a rate over some
of the cases looks like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paraval.report.history.records import Entry
from paraval.report.page.charts.data import TrendPoint
from paraval.report.summary import VariantSummary
from paraval.report.table import label_of


def points_of(entries: Sequence[Entry]) -> Iterator[TrendPoint]:
    """What changed in a run that is not drawn is told with the next that is."""
    drawn = {entry.run.id for entry in drawn_of(entries)}
    changed: dict[str, None] = {}
    for entry in entries:
        changed.update(dict.fromkeys(change.part for change in entry.changes))
        if entry.run.id not in drawn:
            continue
        for one in entry.summary.variants:
            yield TrendPoint(
                run=entry.run.id,
                at=entry.run.started_at,
                series=label_of(one),
                rate=one.pass_rate,
                interval=one.pass_rate_interval,
                usd=_usd_a_trial(one),
                seconds=one.median_s,
                changed=tuple(changed),
            )
        changed = {}


def drawn_of(entries: Sequence[Entry]) -> list[Entry]:
    """Complete runs of all cases, where the last was one; else those of as many as the last."""
    complete = [entry for entry in entries if not entry.is_partial]
    return [entry for entry in complete if _extent(entry) == _extent(complete[-1])]


def _extent(entry: Entry) -> int | None:
    """How many cases were chosen; None: all."""
    whole = entry.suite_cases
    return entry.cases if whole is not None and entry.cases < whole else None


def _usd_a_trial(one: VariantSummary) -> float | None:
    """Only where all of it is known; answers from the cache cost nothing, and say nothing."""
    costs = one.target
    paid = costs.priced - one.from_cache
    return costs.usd / paid if costs.usd is not None and paid > 0 and not costs.unpriced else None
