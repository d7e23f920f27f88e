"""Whether a run got worse than its baseline: the pass rate dropped by more than allowed, or cases
that passed fail now.

The verdict on the drop comes from its interval, over paired cases: failed if such a drop is shown,
passed if it is ruled out, and undecided in between. Over the whole run one variant may hide behind
the others, so a single variant with such a drop fails the gate; the more variants there are, the
more certain that must be (Holm). Missing verdicts are not failures: their pairs are left out, and
if they could change the verdict, it is undecided. If one of the runs may stop early, only claims
that are valid at any time are made: about the first cases in the drawn order.

A case with a variant has regressed if all its judged repeats passed in the baseline, and most of
its repeats fail now, and each time that it ran again. One that fails some repeats, or that passed
and failed in the baseline, is flaky: it is named, and not counted. What has no verdict in the
baseline did not pass there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from paraval.records import Baseline
from paraval.report.compare.case_pairs import Matchup, Pairs, Row, row_of, shared_variants
from paraval.report.compare.case_results import CaseBook, Cell
from paraval.report.compare.claims import signed_points, signed_range
from paraval.report.compare.comparison import Interval
from paraval.report.compare.compute import step_of
from paraval.report.compare.early_claims import Missing, state_of
from paraval.report.gate import (
    SPOKEN,
    DropVerdict,
    GateVerdict,
    RegressionVerdict,
    Tries,
    VariantDrop,
)
from paraval.statistics.anytime import betting_interval, drawn_order
from paraval.statistics.drops import drop_interval, pairs_to_tell
from paraval.statistics.pairs import mcnemar_mid_p
from paraval.text.terminal import to_ascii
from paraval.text.words import counted, listed, percent, some, variant_label

CONFIDENCE = 0.95
BEYOND_CHANCE = 0.001
"""The p-value from which on as many that got worse, and so few better, need not run again."""
NO_VARIANT = "no variant in common"
NO_ORDER = (
    "one of the runs may stop early, and they have no known case order in common, as runs with the"
    " same seed have"
)
GONE = "the baseline can no longer be read"
_MOST_VARIANTS = 3
_MOST_NAMED = 5
_ALL = " (all: paraval report -v)"
# Letters, and signs between them without effect in Markdown: `gpt_4`, `small - with-tool`.
_HARMLESS = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9 ,=+/-]|(?<=[A-Za-z0-9])[_@.:](?=[A-Za-z0-9])){0,79}"
)


def points(share: float) -> str:
    """`5 points`, `2.5 points`, `1 point`: as exact as it was given."""
    number = f"{round(share * 100, 2):g}"
    return f"{number} {'point' if number == '1' else 'points'}"


def name_of(baseline: Baseline) -> str:
    """The baseline's run id or file name, if it is safe to show."""
    return harmless(Path(baseline.name).name) or "the baseline"


def harmless(name: str) -> str:
    """The name in ASCII, if it has no effect in Markdown or on a terminal; else empty."""
    name = to_ascii(name)
    return name if _HARMLESS.fullmatch(name) and not name.startswith("www.") else ""


# ---- the drop of the pass rate


class _Change(NamedTuple):
    """The pass rate now minus then."""

    difference: float
    interval: Interval
    confidence: float
    cases: int


def judge_drop(
    now: CaseBook,
    before: CaseBook | None,
    baseline: Baseline,
    *,
    confidence: float = CONFIDENCE,
    at_any_time: bool = False,
    order_seed: int | None = None,
) -> DropVerdict:
    """`before`: None if the baseline can no longer be read. `at_any_time`: one of the runs may stop
    early. Then `order_seed` drew the order of its cases; None if unknown, or if both runs may stop
    and drew different orders."""
    undecided, max_drop = f"drop against {name_of(baseline)} undecided", baseline.max_drop or 0.0
    usual: dict[str, Any] = {"name": baseline.name, "max_drop": max_drop}

    def unknown(why: str) -> DropVerdict:
        finding = f"{undecided}: {why}"
        return DropVerdict(verdict=GateVerdict.UNKNOWN, finding=finding, **usual)

    if before is None:
        return unknown(GONE)
    shared = shared_variants(now.variants, before.variants)
    seed = order_seed if at_any_time else None
    whole, planned = _pairs(now, before, Matchup(keys=tuple(shared.items())), seed)
    usual |= {
        "if_errors": whole.if_errors,
        "only_now": len(whole.left_out.only_subject),
        "only_baseline": len(whole.left_out.only_reference),
        "unjudged": len(whole.left_out.unjudged),
    }
    whys = (
        (not shared, NO_VARIANT),
        (at_any_time and order_seed is None, NO_ORDER),
        (not planned, "no case in common"),
        (not whole, "no case has a verdict in both runs"),
    )
    if why := next((why for is_so, why in whys if is_so), ""):
        return unknown(why + _left_out(whole))
    change, lowest = _change_of(whole, confidence, at_any_time=at_any_time), -max_drop
    exchanged = _exchanged(now, before)
    usual |= change._asdict()

    def told(verdict: GateVerdict, finding: str, **more: Any) -> DropVerdict:
        return DropVerdict(verdict=verdict, finding=finding + _left_out(whole), **(usual | more))

    def figures(one: _Change) -> str:
        cases = counted(one.cases, "case")
        if at_any_time and planned > one.cases:
            cases = f"{one.cases:,} of {counted(planned, 'case')}"
        interval = f"{percent(one.confidence)} CI {signed_range(one.interval)}"
        valid = " at any time" * at_any_time
        return f"{signed_points(one.difference)}{exchanged}, {interval}{valid}, {cases}"

    allowed, against = points(max_drop), f"against {name_of(baseline)}"
    dropped_by = f"pass rate dropped by more than {allowed} {against}"
    if _is_dropped(change, whole, lowest):
        return told(GateVerdict.MISSED, f"{dropped_by} ({figures(change)})")
    variants = [
        (
            variant_label(now.variants[key]),
            _pairs(now, before, Matchup(keys=((key, its),)), seed)[0],
        )
        for key, its in shared.items()
        if len(shared) > 1
    ]
    if dropped := _dropped(variants, lowest, confidence, at_any_time=at_any_time):
        names = some([f"{_variant(n)} ({figures(one)})" for n, one in dropped], _MOST_VARIANTS)
        drops = tuple(VariantDrop(variant=label, **one._asdict()) for label, one in dropped)
        finding = f"{dropped_by} with {names}"
        return told(GateVerdict.MISSED, finding, dropped_variants=drops)
    verdict, words, more = _unshown(change, whole, baseline, at_any_time=at_any_time)
    if verdict is GateVerdict.MET:
        return told(verdict, f"no drop of more than {allowed} {against} ({figures(change)})")
    finding = f"{undecided} ({figures(change)}; allowed {allowed}){words}"
    return told(verdict, finding, more_cases=more)


def _unshown(
    change: _Change, pairs: Pairs, baseline: Baseline, *, at_any_time: bool
) -> tuple[GateVerdict, str, int | None]:
    """Of a drop that is not shown: whether it is ruled out, else why not; and how many more cases
    like these would probably decide it."""
    (low, high), lowest, if_errors = change.interval, -(baseline.max_drop or 0.0), pairs.if_errors
    # It would be passed or failed, were it not for missing verdicts.
    if high < lowest or (low > lowest and if_errors is not None and if_errors[0] < lowest):
        hidden = signed_range(if_errors or (-1.0, 1.0))
        words = f": errors and skipped trials could make it {hidden} points"
        return GateVerdict.UNKNOWN, words, None
    if low > lowest:
        return GateVerdict.MET, "", None
    more = None if at_any_time else _more_cases(pairs, lowest, change.confidence)
    words = ""
    if more is not None:
        likely = SPOKEN[GateVerdict.MET if change.difference > lowest else GateVerdict.MISSED]
        words = f"; about {counted(more, 'more case')} would probably decide it: {likely}"
    if baseline.max_regressed is None:
        words += "; max_regressed: 0 decides with any number of cases if answers don't vary"
    return GateVerdict.UNKNOWN, words, more


def _more_cases(pairs: Pairs, lowest: float, confidence: float) -> int | None:
    more = pairs_to_tell(pairs.differences, lowest, confidence, step=step_of(pairs))
    # Another sample of as many cases would name another number.
    return None if more is None else math.ceil(float(f"{more:.0e}"))


def _pairs(
    now: CaseBook, before: CaseBook, matchup: Matchup, order_seed: int | None
) -> tuple[Pairs, int]:
    """The pairs, with the mean over the variants judged on both sides; and how many cases both
    have. In a drawn order, cases count up to the first that has not ended."""
    cases = list(dict.fromkeys(case for book in (now, before) for case, _ in book.rows()))
    if order_seed is not None:
        cases = drawn_order(cases, order_seed)
    pairs, planned, ended = Pairs(), 0, False
    for case in cases:
        sides = _row(now, case), _row(before, case)
        settings = matchup.settings(*sides)
        if settings:
            planned += 1
            ended = ended or (order_seed is not None and state_of(settings) is Missing.NOT_YET)
        if not (settings and ended):
            matchup.add_row(pairs, case, *sides)
    return pairs, planned


def _row(book: CaseBook, case: str) -> Row:
    """A case's row with skipped trials as errors: neither has a verdict."""
    cells = book.cells_of(case).items()
    return row_of({key: one._replace(errors=one.errors + one.skipped) for key, one in cells})


def _change_of(pairs: Pairs, confidence: float, *, at_any_time: bool) -> _Change:
    differences = pairs.differences
    if at_any_time:
        mean, (low, high) = fmean(differences), betting_interval(differences, confidence)
    else:
        mean, low, high = drop_interval(differences, confidence, step=step_of(pairs))
    return _Change(mean, (low, high), confidence, len(differences))


def _is_dropped(change: _Change, pairs: Pairs, lowest: float) -> bool:
    hidden = pairs.if_errors is not None and pairs.if_errors[1] >= lowest
    return change.interval[1] < lowest and not hidden


def _dropped(
    variants: Sequence[tuple[str, Pairs]], lowest: float, confidence: float, *, at_any_time: bool
) -> list[tuple[str, _Change]]:
    """By Holm's method: the most certain first, each tested against all that are left."""
    left, dropped = [(label, pairs) for label, pairs in variants if pairs], []
    while left:
        sure = 1 - (1 - confidence) / len(left)
        tested = [
            (label, pairs, _change_of(pairs, sure, at_any_time=at_any_time))
            for label, pairs in left
        ]
        found = [(label, one) for label, pairs, one in tested if _is_dropped(one, pairs, lowest)]
        if not found:
            break
        dropped += found
        names = {label for label, _ in found}
        left = [(label, pairs) for label, pairs in left if label not in names]
    return dropped


def _left_out(pairs: Pairs) -> str:
    left_out = pairs.left_out
    parts = [
        f"{len(cases):,} {where}"
        for cases, where in (
            (left_out.only_subject, "only in this run"),
            (left_out.only_reference, "only in the baseline"),
            (left_out.unjudged, "without a verdict in one of the runs"),
        )
        if cases
    ]
    return f"; {counted(left_out.cases, 'case')} left out: {listed(parts)}" if parts else ""


def _exchanged(now: CaseBook, baseline: CaseBook) -> str:
    """`, large vs small`: the only variants, now and before, if they differ."""
    if not len(now.variants) == len(baseline.variants) == 1:
        return ""
    (one,), (other,) = now.variants.values(), baseline.variants.values()
    # As texts: 1, 1.0 and True are different values.
    if {axis: repr(one[axis]) for axis in one} == {axis: repr(other[axis]) for axis in other}:
        return ""
    return (
        f", {_variant(variant_label(one))} vs {_variant(variant_label(other), 'another variant')}"
    )


def _variant(label: str, otherwise: str = "one variant") -> str:
    return (harmless(label) or otherwise) if to_ascii(label) else "no variant"


# ---- cases that passed and fail now


class _Kind(Enum):
    REGRESSED = auto()
    FLAKY = auto()
    FIXED = auto()
    """It failed each time in the baseline, and passes now."""
    UNKNOWN = auto()
    """Verdicts are missing that could make it a regression."""


def judge_regressions(
    now: CaseBook, before: CaseBook | None, baseline: Baseline, again: CaseBook | None = None
) -> RegressionVerdict:
    """`before`: None if the baseline can no longer be read. `again`: what ran again."""
    allowed, name = baseline.max_regressed or 0, name_of(baseline)
    usual: dict[str, Any] = {"baseline": baseline.name, "max_regressed": allowed}

    def unknown(why: str) -> RegressionVerdict:
        finding = f"regressions against {name} undecided: {why}"
        return RegressionVerdict(verdict=GateVerdict.UNKNOWN, finding=finding, **usual)

    if before is None:
        return unknown(GONE)
    shared = shared_variants(now.variants, before.variants)
    if not shared:
        return unknown(NO_VARIANT)
    found: dict[_Kind, list[str]] = {kind: [] for kind in _Kind}
    cells: dict[tuple[str, str], Tries] = {}
    number = 0
    for case, key, kind, tries in _kinds(now, before, shared.items(), again):
        number += 1
        if kind is not None:
            label = variant_label(now.variants[key]) if len(shared) > 1 else ""
            found[kind].append(f"{case} · {label}" if label else case)
        if kind is _Kind.REGRESSED:
            cells[case, key] = tries
    if not number:
        return unknown("no case in common")
    regressed, missing = found[_Kind.REGRESSED], found[_Kind.UNKNOWN]
    flaky, fixed = found[_Kind.FLAKY], len(found[_Kind.FIXED])
    of = counted(number, "case" if len(shared) == 1 else "result")
    names = f": {_names(regressed, _ALL)}" if regressed else ""
    parts = [f"{len(regressed):,} of {of} got worse than {name}, allowed {allowed:,}{names}"]
    parts += [f"flaky, not counted: {_names(flaky)}"] if flaky else []
    failed_again = [one.failed for one in cells.values() if one.failed]
    least = min(failed_again, default=0)
    is_beyond_chance = mcnemar_mid_p(len(regressed), fixed) < BEYOND_CHANCE
    verdict = GateVerdict.MISSED if len(regressed) > allowed else GateVerdict.MET
    if verdict is GateVerdict.MISSED and least:
        each = "each" if len(failed_again) == len(cells) else f"{len(failed_again):,} of them"
        parts.append(f"{each} failed {counted(least, 'more time')}")
    elif verdict is GateVerdict.MISSED and fixed and not is_beyond_chance:
        were = "was" if fixed == 1 else "were"
        parts.append(f"{fixed:,} {were} fixed: answers that vary turn both ways")
    if verdict is GateVerdict.MET and len(regressed) + len(missing) > allowed:
        verdict = GateVerdict.UNKNOWN
        parts.append(f"no verdict because of errors or skipped trials: {_names(missing)}")
    return RegressionVerdict(
        verdict=verdict,
        finding="; ".join(parts),
        regressed=tuple(regressed),
        flaky=tuple(flaky),
        unknown=tuple(missing),
        cells=cells,
        tries=least,
        is_beyond_chance=is_beyond_chance,
        **usual,
    )


def _kinds(
    now: CaseBook, before: CaseBook, shared: Any, again: CaseBook | None
) -> Iterator[tuple[str, str, _Kind | None, Tries]]:
    """Each case and variant that both have: what became of it, and how often it ran again."""
    for case, cells in now.rows():
        then = before.cells_of(case)
        for key, its in shared:
            if key not in cells or its not in then:
                continue
            kind = _kind(cells[key], then[its])
            tried = None if again is None else again.cells_of(case).get(key)
            tries = Tries() if tried is None else Tries(sum(tried[:4]), tried.failed)
            if kind is _Kind.REGRESSED and tried is not None and tried.passed:
                kind = _Kind.FLAKY
            yield case, key, kind, tries


def _kind(now: Cell, before: Cell) -> _Kind | None:
    if not before.passed:
        is_fixed = before.failed and now.passed and not now.failed
        return _Kind.FIXED if is_fixed else None
    missing = now.errors + now.skipped
    if not before.failed and now.failed + missing > now.passed:
        is_certain = now.failed > now.passed + missing
        return _Kind.REGRESSED if is_certain else _Kind.UNKNOWN
    return _Kind.FLAKY if now.failed else None


def _names(names: Sequence[str], elsewhere: str = "") -> str:
    """The first few that are safe to show anywhere; `elsewhere`: where to find all."""
    shown = [name for one in names if (name := harmless(one))][:_MOST_NAMED]
    if more := len(names) - len(shown):
        shown.append((f"{more:,} more" if shown else counted(more, "case")) + elsewhere)
    return listed(shown)
