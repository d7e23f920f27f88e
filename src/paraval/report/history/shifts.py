"""Which pass rates are shown to be others than in an earlier run, paired by case.

What counts as shown is decided as everywhere: by the test and the interval both, made up for the
number of variants. Most rates stay where they are: what is sure to show nothing is not looked into.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from paraval.errors import RequestError
from paraval.records import Variant
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.compared import compare, finding_of, resamples_for
from paraval.report.comparing.comparison import Comparison, Finding, Side
from paraval.report.comparing.pairing import Matchup, pairs_of
from paraval.report.comparing.pairs import Pairs
from paraval.report.contents import Contents
from paraval.report.history.records import Shift
from paraval.report.versus.held import Held, Question, Versus
from paraval.statistics.pairs import holm

CONFIDENCE = 0.95
_AT_ONCE = 20
"""Comparisons that share what may be drawn: a history makes many."""
_LEAST_ERRORS = 1.5
"""So many standard errors from 0 a mean must be to be looked into; to be shown, about 2."""


def shifts_between(before: Contents, now: Contents, *, is_last: bool) -> tuple[Shift, ...]:
    """Of the whole run, where both have the same variants, and of each variant by itself."""
    if not (len(before.book) and len(now.book)):
        return ()
    found = _at_any_time(before, now) if _may_stop(before, now) else _found(before, now)
    return tuple(
        _shift(variant, comparison, before.run.id, is_last=is_last)
        for variant, comparison in found
        if comparison.finding is not Finding.NOT_SHOWN
    )


def _shift(variant: Variant | None, found: Comparison, since: str, *, is_last: bool) -> Shift:
    assert found.passing is not None, "nothing is shown without a difference"
    return Shift(
        variant=variant,
        since=since,
        is_since_last=is_last,
        difference=found.passing.mean,
        interval=found.passing.interval,
        confidence=found.confidence,
        cases=found.cases,
        at_any_time=found.stopped is not None,
    )


Found = tuple[Variant | None, Comparison]


def _found(before: Contents, now: Contents) -> Iterator[Found]:
    shared = _shared(before.book, now.book)
    whole, each = _differences(before.book, now.book, [matchup for _, matchup in shared])
    have_the_same = len(shared) == len(now.book.variants) == len(before.book.variants)
    if have_the_same:
        every = Matchup(keys=tuple(pair for _, matchup in shared for pair in matchup.keys))
        yield from _compared(before, now, [(None, every)], [whole])
    if not have_the_same or len(shared) > 1:
        yield from _compared(before, now, shared, each)


Family = Sequence[tuple[Variant | None, Matchup]]
"""The comparisons of one question, each with what it is of."""


def _shared(before: CaseBook, now: CaseBook) -> list[tuple[Variant, Matchup]]:
    """Variants by the same name, whatever the order of their axes. Two lone ones that are called
    differently are no history of either."""
    theirs = {_name(variant): key for key, variant in before.variants.items()}
    return [
        (variant, Matchup(keys=((key, theirs[_name(variant)]),)))
        for key, variant in now.variants.items()
        if _name(variant) in theirs
    ]


def _name(variant: Variant) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((axis, repr(value)) for axis, value in variant.items()))


def _differences(
    before: CaseBook, now: CaseBook, matchups: Sequence[Matchup]
) -> tuple[array[float], list[array[float]]]:
    """By case: of all variants together, and of each. Much less than all that can be said of pairs,
    and enough to see where there is nothing to say."""
    whole, each = array("d"), [array("d") for _ in matchups]
    for case, cells in now.rows():
        others = before.cells_of(case)
        gaps = []
        for matchup, differences in zip(matchups, each, strict=True):
            ((ours, theirs),) = matchup.keys
            if ours in cells and theirs in others:
                rate, other = cells[ours].rate, others[theirs].rate
                if rate is not None and other is not None:
                    gaps.append(rate - other)
                    differences.append(rate - other)
        if gaps:
            whole.append(fmean(gaps))
    return whole, each


def _compared(
    before: Contents, now: Contents, family: Family, differences: Sequence[Sequence[float]]
) -> Iterator[Found]:
    """Those that may be shown. Holm counts the others as sure of nothing, which can only make it
    harder to show one."""
    made = [
        (variant, _comparison(pairs_of(now.book, before.book, matchup)))
        for (variant, matchup), own in zip(family, differences, strict=True)
        if _is_promising(own)
    ]
    found = [one.passing for _, one in made if one.passing is not None]
    ps = holm([*(one.p for one in found), *([1.0] * (len(family) - len(found)))])
    for (variant, comparison), passing, p in zip(made, found, ps, strict=False):
        adjusted = replace(passing, adjusted_p=p)
        finding = finding_of(adjusted, CONFIDENCE)
        yield variant, replace(comparison, passing=adjusted, finding=finding)


def _is_promising(differences: Sequence[float]) -> bool:
    """Whether the mean is far enough from 0 for an interval to leave that out: those that are used
    need more, and none is narrower."""
    if not any(differences):
        return False
    mean = fmean(differences)
    spread = math.fsum((value - mean) ** 2 for value in differences) / len(differences)
    return abs(mean) > _LEAST_ERRORS * math.sqrt(spread / len(differences))


def _comparison(pairs: Pairs) -> Comparison:
    resamples = resamples_for(len(pairs), _AT_ONCE)
    now, before = Side(label="now"), Side(label="before")
    return compare(pairs, now, before, confidence=CONFIDENCE, resamples=resamples)


# ---- where a run may have stopped early


def _held(contents: Contents, label: str) -> Held:
    return Held(label=label, name=contents.run.id, contents=contents)


def _may_stop(before: Contents, now: Contents) -> bool:
    return _held(before, "before").is_stopped_early or _held(now, "now").is_stopped_early


def _at_any_time(before: Contents, now: Contents) -> Iterator[Found]:
    try:
        versus = Versus(_held(now, "now"), _held(before, "before"), Question(confidence=CONFIDENCE))
    except RequestError:
        return
    if versus.only_subject or versus.only_reference:
        yield from versus.by_variant
        return
    if set(now.book.variants) == set(before.book.variants):
        yield None, versus.comparison
        yield from versus.by_variant
