"""A comparison in plain words: what is found, how sure that is, and what to do next.

Labels and names of cases are others' words: whoever shows the sentences says how to show those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from paraval.report.compare.comparison import (
    Comparison,
    Difference,
    EarlyStopState,
    Finding,
    Interval,
    Method,
    PassAtK,
    Ratio,
)
from paraval.text.words import counted, listed, percent

# Differences, ratios and p-values in words: the same in every sentence that tells of them.

_SMALLEST_P = 0.001
_FINEST = 6
"""Digits of a p-value, at most."""
_FINEST_POINTS = 4
_NARROW = 4
"""Points: a narrower range is told in tenths."""


def points(share: float) -> str:
    """`12 points`, `1 point`, `0.4 points`: a difference without its sign."""
    number = _number(abs(share))
    return f"{number} {'point' if number == '1' else 'points'}"


def signed(share: float) -> str:
    """`+12`, `-0.4`, `0`: in points."""
    number = _number(abs(share))
    if number == "0":
        return number
    return f"{'+' if share > 0 else '-'}{number}"


def signed_points(share: float) -> str:
    """`+12 points`, `-1 point`."""
    return f"{signed(share)} {points(share).split()[1]}"


def signed_range(interval: Interval, bound: float = 0.0) -> str:
    """`-9 to +13`, `+0.3 to +20.8`: in points, both ends with as many digits as it takes to see on
    which side of the bound each lies, and that they differ."""
    edge = bound * 100
    low, high = (share * 100 for share in interval)
    for digits in range(_FINEST_POINTS + 1):
        shown = [_rounded(value, digits) for value in (low, high)]
        if (digits or high - low >= _NARROW or low == high) and all(
            _side_of(one, edge) == _side_of(value, edge)
            for one, value in zip(shown, (low, high), strict=True)
        ):
            break
    return " to ".join(f"{one:+.{digits}f}" if one else "0" for one in shown)


def p_value(p: float, confidence: float = 0.95) -> str:
    """`p = 0.03`, `p < 0.001`; with as many digits as it takes to see on which side of what was
    asked for it lies."""
    if p < _SMALLEST_P:
        return f"p < {_SMALLEST_P}"
    asked = round(1 - confidence, 12)
    for digits in range(2, _FINEST + 1):
        shown = f"{p:.{digits}g}"
        if (float(shown) < asked) == (p < asked):
            break
    return f"p = {shown}"


def times(ratio: float) -> str:
    """`1.8`, `0.97`, `12`, `0.0042`."""
    if ratio >= 9.95:
        return f"{ratio:,.0f}"
    if ratio < 0.1:
        return f"{ratio:.2g}"
    return f"{ratio:.{1 if ratio >= 1.995 else 2}f}".rstrip("0").rstrip(".")


def plural(axis: str) -> str:
    """`models`, `categories`: several values of an axis."""
    if axis.endswith("y") and axis[-2:-1] not in tuple("aeiou"):
        return f"{axis[:-1]}ies"
    return axis if axis.endswith("s") else f"{axis}s"


def _number(share: float) -> str:
    """0 and 100 only when it is exactly that."""
    value = share * 100
    if math.isclose(value, round(value), abs_tol=1e-7):
        return f"{round(value)}"
    if value < 1.95:
        return f"{max(value, 0.1):.1f}".removesuffix(".0")
    return f"{min(round(value), 99) if value < 100 else round(value)}"


def _rounded(value: float, digits: int) -> float:
    """100 only when it is exactly that."""
    shown = round(value, digits)
    if abs(shown) < 100 or math.isclose(abs(value), 100, abs_tol=1e-7):
        return shown
    return math.copysign(100 - 10**-digits, value)


def _side_of(value: float, edge: float) -> int:
    """0: no digits that are told would show on which."""
    if math.isclose(value, edge, abs_tol=0.5 * 10**-_FINEST_POINTS):
        return 0
    return 1 if value > edge else -1


Quote = Callable[[str], str]
"""Makes text of others safe to show."""

MOST_NAMED = 3
"""Cases that are named where they are told of in passing."""


def sentence(comparison: Comparison, quote: Quote) -> str:
    """What is found, in one sentence without its full stop."""
    told = ", ".join(_told(comparison))
    found = f"{headline(comparison, quote)} ({told})" if told else headline(comparison, quote)
    if comparison.finding is not Finding.NOT_SHOWN:
        found += f": {comparison.finding.value}"
    return f"{found}{_beyond(comparison)}"


def headline(comparison: Comparison, quote: Quote) -> str:
    """What is found, and not what it rests on: the sentence's first half."""
    subject, reference = quote(comparison.subject.label), quote(comparison.reference.label)
    over = _over(comparison, quote)
    passing = comparison.passing
    if passing is None or not comparison.cases:
        return f"{subject} and {reference}{over}: no case has a verdict on both sides"
    if passing.method is Method.NONE:
        return f"{subject} and {reference}{over}: nothing can be claimed"
    if comparison.finding is Finding.NOT_SHOWN:
        return f"{subject} and {reference}{over}: no difference shown"
    more = "more" if passing.mean > 0 else "less"
    return f"{subject} passes {points(passing.mean)} {more} than {reference}{over}"


def evidence(comparison: Comparison) -> str:
    """What the headline rests on: the other half; empty where it rests on nothing."""
    return f"{', '.join(_told(comparison))}{_beyond(comparison)}"


def figure_lines(comparison: Comparison, quote: Quote) -> list[str]:
    """Time and cost as ratios, and what repeats tell; a line each."""
    time = _ratio_line("time", "times as long", comparison.seconds, comparison)
    return [
        *(f"{line}{_timeouts(comparison, quote)}" for line in time),
        *_ratio_line("cost", "times", comparison.cost, comparison),
        *(_pass_at_line(one, comparison) for one in comparison.pass_at),
    ]


def details(comparison: Comparison, quote: Quote) -> list[str]:
    """All that can be told beside the sentence and its notes, a line each."""
    score = score_line(comparison)
    figures = figure_lines(comparison, quote)
    return [*([score] if score else ()), *figures, *turned_lines(comparison, quote)]


def score_line(comparison: Comparison) -> str | None:
    """`score: +0.05 (+0.01 to +0.09, p = 0.02)`; None where scores say no more than passes."""
    score = comparison.score
    if score is None:
        return None
    low, high = score.interval
    p = _chance(comparison, score)
    return f"score: {score.mean:+.2f} ({low:+.2f} to {high:+.2f}, {p})"


def notes(comparison: Comparison, quote: Quote) -> list[str]:
    """What the finding does not rest on: cases left out, and errors where they could turn it."""
    return [*_left_out(comparison, quote), *_errors(comparison)]


def turned_lines(comparison: Comparison, quote: Quote, most: int = MOST_NAMED) -> list[str]:
    """`broke: a, b, c and 4 more`; a line for each way that cases turned."""
    turned = comparison.turned
    return [
        f"{how}: {_named(cases, quote, most)}"
        for how, cases in (
            ("broke", turned.broke),
            ("mended", turned.mended),
            ("flaky", turned.flaky),
        )
        if cases
    ]


def heading(axis: str | None, quote: Quote, *, going_on: bool) -> str:
    """`Compared by mode`."""
    by = "" if axis is None else f" by {quote(axis)}"
    return f"Compared{by}{', so far' if going_on else ''}"


def not_made(number: int) -> str:
    """Of pairs of values that nobody compared, since there are so many."""
    were = "was" if number == 1 else "were"
    return f"{counted(number, 'more pair')} of values {were} not compared"


# ---- the parts of the sentence


def _over(comparison: Comparison, quote: Quote) -> str:
    """` over 3 models`: what was held equal."""
    axes = listed(f"{number:,} {quote(plural(axis))}" for axis, number in comparison.over.items())
    return f" over {axes}" if axes else ""


def _told(comparison: Comparison) -> Iterator[str]:
    passing = comparison.passing
    if passing is None or not comparison.cases:
        return
    if comparison.finding is Finding.NOT_SHOWN:
        yield signed_points(passing.mean)
    if passing.method is Method.NONE:
        yield counted(comparison.cases, "case")
    elif not _is_hopeless(comparison):
        yield from _sureness(comparison, passing)


def _is_hopeless(comparison: Comparison) -> bool:
    """Whether so few cases could show nothing at all: how unsure it is need not be told then."""
    too_few = comparison.detectable is not None and comparison.detectable >= 1
    return too_few and comparison.finding is Finding.NOT_SHOWN and comparison.stopped is None


def _sureness(comparison: Comparison, passing: Difference) -> Iterator[str]:
    stopped = comparison.stopped
    sure = percent(comparison.confidence)
    if stopped is None:
        yield f"{sure}: {signed_range(passing.interval)}"
        yield counted(comparison.cases, "case")
    else:
        yield f"{sure} at any time: {signed_range(passing.interval)}"
        yield f"{counted(passing.wins, 'win')} to {passing.losses:,}"
        yield _how_far(stopped)
    yield _chance(comparison, passing)


def _chance(comparison: Comparison, difference: Difference) -> str:
    """`p = 0.031, 0.094 after 3 comparisons`: without the first, nobody could see why an interval
    leaves out 0 and the difference is not shown."""
    alone = p_value(difference.p, comparison.confidence)
    if comparison.among == 1:
        return alone
    made_up = p_value(difference.adjusted_p, comparison.confidence)
    after = "also" if made_up == alone else made_up.removeprefix("p ").removeprefix("= ")
    return f"{alone}, {after} after {comparison.among:,} comparisons"


def _beyond(comparison: Comparison) -> str:
    """What is still open after it."""
    passing = comparison.passing
    if passing is None or not comparison.cases or passing.method is Method.NONE:
        return ""
    return _what_could(comparison) if comparison.finding is Finding.NOT_SHOWN else ""


def _how_far(stopped: EarlyStopState) -> str:
    cases = counted(stopped.planned, "case")
    if stopped.used == stopped.planned:
        return cases
    if stopped.decided or stopped.futile:
        return f"stopped after {stopped.used:,} of {cases}"
    return f"{stopped.used:,} of {cases} so far"


def _what_could(comparison: Comparison) -> str:
    if comparison.stopped is not None:
        early = comparison.stopped.used < comparison.stopped.planned
        return "; none can be shown any more" if comparison.stopped.futile and early else ""
    if comparison.detectable is None:
        return ""
    cases = counted(comparison.cases, "case")
    if comparison.detectable >= 1:
        return f"; {cases} {'is' if comparison.cases == 1 else 'are'} too few to show any"
    return f"; {cases} can show one of {points(comparison.detectable)} or more"


# ---- what stands beside it


def _ratio_line(what: str, unit: str, ratio: Ratio | None, comparison: Comparison) -> Iterator[str]:
    # One case took longer than another: that is no news of the sides.
    if ratio is None or ratio.cases == 1:
        return
    low, high = ratio.interval
    if low == high == 1:
        yield f"{what}: the same"
        return
    known = [f"{times(low)} to {times(high)}"] if math.isfinite(high) else []
    # Where not all of the pairs tell it, or others do, so many do.
    cases = [counted(ratio.cases, "case")] if ratio.cases != comparison.cases else []
    beside = ", ".join(known + cases)
    found = times(ratio.ratio)
    told = "about the same" if found == "1" else f"{found} {unit}"
    yield f"{what}: {told}{f' ({beside})' if beside else ''}"


def _timeouts(comparison: Comparison, quote: Quote) -> str:
    """`; 2 timeouts of hang and 1 of good not counted: true times are longer`."""
    sides = (
        (comparison.timeouts_subject, comparison.subject),
        (comparison.timeouts_reference, comparison.reference),
    )
    parts = [(number, quote(side.label)) for number, side in sides if number]
    if not parts:
        return ""
    (first, label), *others = parts
    told = (f"{counted(first, 'timeout')} of {label}", *(f"{n:,} of {side}" for n, side in others))
    return f"; {listed(told)} not counted: true times are longer"


def _pass_at_line(one: PassAtK, comparison: Comparison) -> str:
    some = f"{percent(one.any_subject)} against {percent(one.any_reference)}"
    every = f"{percent(one.all_subject)} against {percent(one.all_reference)}"
    cases = counted(comparison.cases, "case")
    if one.cases != comparison.cases:
        cases = f"{one.cases:,} of {cases}"
    return f"pass@{one.k}: {some}; pass^{one.k}: {every} ({cases})"


def _left_out(comparison: Comparison, quote: Quote) -> Iterator[str]:
    left = comparison.left_out
    if not left.cases:
        return
    subject, reference = quote(comparison.subject.label), quote(comparison.reference.label)
    without_subject, without_reference = set(left.unjudged_subject), set(left.unjudged_reference)
    here = len(without_subject - without_reference)
    there = len(without_reference - without_subject)
    either = len(left.unjudged) - here - there
    only = ((len(left.only_subject), subject), (len(left.only_reference), reference))
    unjudged = ((here, subject), (there, reference), (either, "both"))
    parts = [(number, f"only in {side}") for number, side in only if number]
    # Once is enough: `1 case without a verdict in A, 2 in B`.
    words = "without a verdict in"
    for number, side in unjudged:
        if number:
            parts.append((number, f"{words} {side}"))
            words = "in"
    (first, how), *others = parts
    told = (f"{counted(first, 'case')} {how}", *(f"{number:,} {how}" for number, how in others))
    yield f"left out: {', '.join(told)}"


def _errors(comparison: Comparison) -> Iterator[str]:
    bounds = comparison.if_errors
    if bounds is not None and _could_turn(comparison, bounds):
        yield f"errors could make it anything from {signed_range(bounds)} points"


def _could_turn(comparison: Comparison, bounds: tuple[float, float]) -> bool:
    """Whether the finding could be another, had there been verdicts in place of errors."""
    worst, best = bounds
    if comparison.finding is Finding.BETTER:
        return worst <= 0
    if comparison.finding is Finding.WORSE:
        return best >= 0
    if comparison.passing is None:
        return True
    low, high = comparison.passing.interval
    return worst < low or best > high


def _named(cases: Sequence[str], quote: Quote, most: int) -> str:
    named = [quote(case) for case in cases[:most]]
    left = len(cases) - len(named)
    return f"{', '.join(named)} and {left:,} more" if left else listed(named)
