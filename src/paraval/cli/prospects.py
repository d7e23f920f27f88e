"""What a plan can show, for `paraval plan`: found from earlier runs of the suite, and in words.

How it is worked out is the report's.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import islice
from typing import Any

from paraval.errors import StoreError
from paraval.records import Plan, RunInfo
from paraval.report.comparing.cells import CaseBook
from paraval.report.detectable import CONFIDENCE, POWER, Detectable, Wanted, detectable, size_of
from paraval.report.spread import FEWEST_MEASURED, Spread, spread_in
from paraval.report.wording import counted, percent
from paraval.store.store import Store

MOST_READ = 20_000
"""Trials of an earlier run that are read to see how much they vary: seconds' worth."""
LAST_RUNS = 5
"""Whole runs of the suite that may tell: older ones may be of another suite by now."""


def prospect_of(plan: Plan, store: Store) -> Detectable | None:
    """None where the plan has nothing to show anything with."""
    for run in _telling_runs(plan, store):
        if (spread := _spread_told_by(run, plan, store)) is not None:
            return detectable(size_of(plan), spread, run.id)
    return detectable(size_of(plan), Spread())


def _telling_runs(plan: Plan, store: Store) -> list[RunInfo]:
    """Those that have most of the plan's cases first, of these the newest: a run of a few cases
    must not hide an older one of all."""
    whole = (
        run
        for run in store.runs()
        if run.suite == plan.name
        and not (run.running or run.interrupted or run.held_back)
        and run.trials >= FEWEST_MEASURED
    )
    last = list(islice(whole, LAST_RUNS))
    if len(last) < 2:
        return last
    cases = {trial.case.id for trial in plan.trials}
    return sorted(last, key=lambda run: _shared_cases(run, cases, store), reverse=True)


def _shared_cases(run: RunInfo, cases: Set[str], store: Store) -> int:
    try:
        with store.reader(run) as reader:
            return sum(case.id in cases for case in reader.cases())
    except StoreError:
        return 0


def _spread_told_by(run: RunInfo, plan: Plan, store: Store) -> Spread | None:
    """None where it tells too little, or cannot be read: a plan needs no history."""
    book = CaseBook()
    try:
        with store.reader(run) as reader:
            for result in islice(reader.results(), MOST_READ):
                book.add(result)
    except StoreError:
        return None
    return spread_in(book, plan)


def prospect_mapping(found: Detectable | None) -> dict[str, Any] | None:
    """Differences and widths are shares: 0.12 is twelve points."""
    if found is None:
        return None
    wanted = found.wanted
    return {
        "cases": found.size.cases,
        "repeats": found.size.repeats,
        "comparisons": found.size.comparisons,
        "confidence": CONFIDENCE,
        "power": POWER,
        "difference": found.difference,
        "half_width": found.half_width,
        "at_rate": None if found.half_width is None else found.spread.rate,
        "told_by": found.told_by,
        "for": None
        if wanted is None
        else {
            "difference": wanted.difference,
            "cases": wanted.cases,
            "repeats": wanted.repeats,
        },
    }


def prospect_sentences(found: Detectable | None) -> Iterator[str]:
    """`30 cases, once each, can show a difference of 18 points or more between two variants ...`"""
    if found is None:
        return
    planned = f"{counted(found.size.cases, 'case')}, {_times(found.size.repeats)} each"
    if found.half_width is not None:
        width = f"about +-{_points(found.half_width)} wide at {percent(found.spread.rate)}"
        yield f"{planned}: the pass rate's interval will be {width}{_at_that_rate(found)}."
    elif found.difference is None:
        few = "is" if found.size.cases == 1 else "are"
        yield f"{planned}, {few} too few to show any difference between two variants."
    else:
        yield (
            f"{planned}, can show a difference of {_points(found.difference)} or more between two"
            f" variants ({_how_sure(found)}){_told(found)}."
        )
    if found.wanted is not None:
        yield _more(found, found.wanted)


def _how_sure(found: Detectable) -> str:
    number = found.size.comparisons
    several = f" over {number:,} comparisons" if number > 1 else ""
    return f"{percent(POWER)} of the time, at {percent(CONFIDENCE)}{several}"


def _told(found: Detectable) -> str:
    if found.told_by is None:
        return ", if scores spread evenly; no run of this suite tells yet"
    return f", by how the {counted(found.spread.cases, 'case')} of {found.told_by} vary"


def _at_that_rate(found: Detectable) -> str:
    if found.told_by is not None:
        return f", as in {found.told_by}"
    evenly = "" if found.size.repeats == 1 else ", if scores spread evenly"
    return f", where it is widest{evenly}"


def _more(found: Detectable, wanted: Wanted) -> str:
    """`For 10 points: 97 cases, or 30 cases 5 times each.`"""
    size = found.size
    often = f" {_times(size.repeats)} each" if size.repeats > 1 else ""
    cases = f"For {_points(wanted.difference)}: {counted(wanted.cases, 'case')}{often}"
    if wanted.repeats is not None:
        guess = ""
        if found.told_by is not None and not found.spread.is_split:
            guess = ", as a guess, since no case was repeated yet,"
        planned = counted(size.cases, "case")
        return f"{cases}, or{guess} {planned} {_times(wanted.repeats)} each."
    cannot = "cannot" if found.spread.is_split else "would hardly"
    these = "this one" if size.cases == 1 else f"these {size.cases:,}"
    return f"{cases}; repeats of {these} alone {cannot} show it."


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def _points(share: float) -> str:
    """`18 points`, `1.4 points`: of a hundred."""
    points = share * 100
    if points < 1.95 and not abs(points - 1) < 1e-9:
        return f"{points:.1f} points"
    return counted(round(points), "point")
