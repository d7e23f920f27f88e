"""A comparison in words: what was found, how certain it is, and what to know beside it.

Labels and case names are untrusted text: callers pass a `quote` function that makes them safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from paraval.dataclass import dataclass
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

# Differences, ratios and p-values in words, the same in every sentence.

_SMALLEST_P = 0.001
_FINEST = 6
"""Maximum digits of a p-value."""
_FINEST_POINTS = 4
_NARROW = 4
"""Points: a narrower range is shown in tenths."""
_MINUS = "\N{MINUS SIGN}"
_WIDEST_RATIO = 1000
"""An interval of ratios that spans more says only that there are too few cases."""


def points(share: float) -> str:
    """`12 points`, `1 point`, `0.4 points`: a difference without its sign."""
    number = _number(abs(share))
    return f"{number} {'point' if number == '1' else 'points'}"


def signed(share: float) -> str:
    """`+12`, `−0.4`, `0`: in points."""
    number = _number(abs(share))
    if number == "0":
        return number
    return f"{'+' if share > 0 else _MINUS}{number}"


def signed_points(share: float) -> str:
    """`+12 points`, `−1 point`."""
    return f"{signed(share)} {points(share).split()[1]}"


def signed_range(interval: Interval, bound: float = 0.0) -> str:
    """`−9 to +13`, `+0.3 to +20.8`: in points, both ends with as many digits as it takes to see on
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
    return " to ".join(_with_sign(one, digits) if one else "0" for one in shown)


def _with_sign(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", _MINUS)


def p_value(p: float, confidence: float = 0.95) -> str:
    """`p = 0.03`, `p < 0.001`; with as many digits as it takes to see on which side of the
    significance level it lies."""
    if p < _SMALLEST_P:
        return f"p < {_SMALLEST_P}"
    level = round(1 - confidence, 12)
    for digits in range(2, _FINEST + 1):
        shown = f"{p:.{digits}g}"
        if (float(shown) < level) == (p < level):
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
    """An axis name in the plural: `models`, `categories`."""
    if axis.endswith("y") and axis[-2:-1] not in tuple("aeiou"):
        return f"{axis[:-1]}ies"
    return axis if axis.endswith("s") else f"{axis}s"


def _number(share: float) -> str:
    """A share in points; 0 and 100 only when it is exactly that."""
    value = share * 100
    if math.isclose(value, round(value), abs_tol=1e-7):
        return f"{round(value)}"
    if value < 1.95:
        return f"{max(value, 0.1):.1f}".removesuffix(".0")
    return f"{min(round(value), 99) if value < 100 else round(value)}"


def _rounded(value: float, digits: int) -> float:
    """A rounded value; 100 only when it is exactly that."""
    shown = round(value, digits)
    if abs(shown) < 100 or math.isclose(abs(value), 100, abs_tol=1e-7):
        return shown
    return math.copysign(100 - 10**-digits, value)


def _side_of(value: float, edge: float) -> int:
    """1, -1, or 0 if no digits shown would make the side visible."""
    if math.isclose(value, edge, abs_tol=0.5 * 10**-_FINEST_POINTS):
        return 0
    return 1 if value > edge else -1


Quote = Callable[[str], str]
"""Makes untrusted text safe to show."""

MOST_NAMED = 3
"""Cases named in passing."""


def sentence(comparison: Comparison, quote: Quote) -> str:
    """The finding and its evidence in one sentence, without the period."""
    figures = ", ".join(_figures(comparison))
    found = f"{headline(comparison, quote)} ({figures})" if figures else headline(comparison, quote)
    if comparison.finding is not Finding.NOT_SHOWN:
        found += f": {comparison.finding.value}"
    return f"{found}{_power(comparison)}"


def headline(comparison: Comparison, quote: Quote) -> str:
    """The finding without its evidence: the first half of the sentence."""
    if _is_hopeless(comparison):
        return _counts(comparison, quote)
    passing = comparison.passing
    if passing is None or comparison.finding is Finding.NOT_SHOWN:
        return f"{names(comparison, quote)}: {_not_shown(comparison)}"
    subject, reference = quote(comparison.subject.label), quote(comparison.reference.label)
    more = "more" if passing.mean > 0 else "less"
    over = _over(comparison, quote)
    return f"{subject} passes {points(passing.mean)} {more} than {reference}{over}"


def evidence(comparison: Comparison) -> str:
    """What the headline rests on: the second half of the sentence; may be empty."""
    return f"{', '.join(_figures(comparison))}{_power(comparison)}"


def names(comparison: Comparison, quote: Quote) -> str:
    """`sage vs swift`."""
    subject, reference = quote(comparison.subject.label), quote(comparison.reference.label)
    return f"{subject} vs {reference}{_over(comparison, quote)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortRow:
    """A comparison as one row of a table: `sage vs swift  +37 points  (+9 to +57)  better`."""

    names: str
    difference: str = ""
    interval: str = ""
    finding: str


def short_row(comparison: Comparison, quote: Quote) -> ShortRow:
    passing = comparison.passing
    if passing is None or not comparison.cases:
        return ShortRow(names=names(comparison, quote), finding=_not_shown(comparison))
    is_bare = passing.method is Method.NONE or _is_hopeless(comparison)
    return ShortRow(
        names=names(comparison, quote),
        difference=signed_points(passing.mean),
        interval="" if is_bare else f"({signed_range(passing.interval)})",
        finding=_short_finding(comparison, passing, quote),
    )


def _short_finding(comparison: Comparison, passing: Difference, quote: Quote) -> str:
    if _is_hopeless(comparison):
        return _counts(comparison, quote)
    if passing.method is Method.NONE:
        return _not_shown(comparison)
    low, high = passing.interval
    stopped = comparison.stopped
    found = comparison.finding.value
    if comparison.finding is Finding.NOT_SHOWN and not low <= 0 <= high:
        # Explains why an interval without 0 shows no difference.
        found += f" (adjusted for {comparison.among:,} comparisons)"
    if stopped is not None and stopped.used < stopped.planned:
        found += f"; {_how_far(stopped)}"
    return found


def short_evidence(comparison: Comparison) -> str:
    """What a short row leaves out: cases, p-value and power; may be empty."""
    passing = comparison.passing
    if passing is None or passing.method is Method.NONE or _is_hopeless(comparison):
        return ""
    counts = counted(comparison.cases, "case")
    if comparison.stopped is not None:
        counts = _wins(passing)
    return f"{', '.join((counts, *chance(comparison, passing)))}{_power(comparison)}"


def figure_lines(comparison: Comparison, quote: Quote) -> list[str]:
    """Time and cost as ratios, and pass@k; a line each."""
    time = _ratio_line("time of a typical case", "times as long", comparison.seconds, comparison)
    return [
        *(f"{line}{_timeouts(comparison, quote)}" for line in time),
        *_ratio_line("cost", "times as much", comparison.cost, comparison),
        *(_pass_at_line(one, comparison) for one in comparison.pass_at),
    ]


def details(comparison: Comparison, quote: Quote) -> list[str]:
    """All other results of a comparison, a line each."""
    score = score_line(comparison)
    figures = figure_lines(comparison, quote)
    return [*([score] if score else ()), *figures, *turned_lines(comparison, quote)]


def score_line(comparison: Comparison) -> str | None:
    """`score: +0.05 (+0.01 to +0.09, p = 0.02)`; None if scores add nothing to pass and fail."""
    score = comparison.score
    if score is None:
        return None
    beside = [*score_range(score.interval), *chance(comparison, score)]
    cases = comparison.score_cases
    if cases is not None and cases < comparison.cases:
        beside.append(f"{counted(cases, 'case')} with the same graders")
    return f"score: {signed_score(score.mean)} ({', '.join(beside)})"


def signed_score(score: float) -> str:
    """`+0.05`, `−0.01`."""
    return _with_sign(score, 2)


def score_range(interval: Interval) -> Iterator[str]:
    """`−0.01 to +0.09`; nothing if both ends look the same."""
    low, high = map(signed_score, interval)
    if low != high:
        yield f"{low} to {high}"


def notes(comparison: Comparison, quote: Quote) -> list[str]:
    """What the finding does not rest on: cases left out, and errors that could change it."""
    return [*left_out(comparison, quote), *cautions(comparison)]


def turned_lines(comparison: Comparison, quote: Quote, most: int = MOST_NAMED) -> list[str]:
    """`regressed: a, b, c and 4 more`; a line for each kind of change."""
    turned = comparison.turned
    return [
        f"{how}: {_named(cases, quote, most)}"
        for how, cases in (
            ("regressed", turned.broke),
            ("fixed", turned.mended),
            ("flaky", turned.flaky),
        )
        if cases
    ]


def heading(axis: str | None, quote: Quote, *, going_on: bool) -> str:
    """`Compared by mode`."""
    by = "" if axis is None else f" by {quote(axis)}"
    return f"Compared{by}{', so far' if going_on else ''}"


def not_made(number: int) -> str:
    """How many pairs of values were not compared because there are too many."""
    were = "was" if number == 1 else "were"
    return f"{counted(number, 'more pair')} of values {were} not compared"


# ---- the parts of the sentence


def _over(comparison: Comparison, quote: Quote) -> str:
    """` over 3 models`: the axes that are equal on both sides."""
    axes = listed(f"{number:,} {quote(plural(axis))}" for axis, number in comparison.over.items())
    return f" over {axes}" if axes else ""


def _not_shown(comparison: Comparison) -> str:
    passing = comparison.passing
    if passing is None or not comparison.cases:
        return "no case has a verdict on both sides"
    if passing.method is Method.NONE:
        return "nothing can be claimed"
    return Finding.NOT_SHOWN.value


def _counts(comparison: Comparison, quote: Quote) -> str:
    """`good passed 12/12, lazy 0/12; 4 cases are too few to generalize`."""
    subject, reference = quote(comparison.subject.label), quote(comparison.reference.label)
    cases = f"{counted(comparison.cases, 'case')} {'is' if comparison.cases == 1 else 'are'}"
    return (
        f"{subject} passed {_of(comparison.passed_subject)}, {reference}"
        f" {_of(comparison.passed_reference)}{_over(comparison, quote)};"
        f" {cases} too few to generalize"
    )


def _of(counts: tuple[int, int]) -> str:
    passed, judged = counts
    return f"{passed:,}/{judged:,}"


def _figures(comparison: Comparison) -> Iterator[str]:
    passing = comparison.passing
    if passing is None or not comparison.cases or _is_hopeless(comparison):
        return
    if comparison.finding is Finding.NOT_SHOWN:
        yield signed_points(passing.mean)
    if passing.method is Method.NONE:
        yield counted(comparison.cases, "case")
    else:
        yield from _certainty(comparison, passing)


def _is_hopeless(comparison: Comparison) -> bool:
    """Whether there are too few cases to show any difference: then counts say all there is."""
    too_few = comparison.detectable is not None and comparison.detectable >= 1
    is_open = comparison.finding is Finding.NOT_SHOWN and comparison.stopped is None
    return too_few and is_open and comparison.cases > 0


def _certainty(comparison: Comparison, passing: Difference) -> Iterator[str]:
    stopped = comparison.stopped
    interval = f"{percent(comparison.confidence)} CI {signed_range(passing.interval)}"
    if stopped is None:
        yield interval
        yield counted(comparison.cases, "case")
    else:
        yield f"{interval} at any time"
        yield _wins(passing)
        yield _how_far(stopped)
    yield from chance(comparison, passing)


def _wins(passing: Difference) -> str:
    return f"{counted(passing.wins, 'win')}, {counted(passing.losses, 'loss', 'losses')}"


def chance(comparison: Comparison, difference: Difference) -> Iterator[str]:
    """`p = 0.094, adjusted for 3 comparisons`; nothing if the adjustment leaves nothing of it."""
    p = p_value(difference.adjusted_p, comparison.confidence)
    if comparison.among == 1:
        yield p
    elif difference.adjusted_p < 1:
        yield f"{p}, adjusted for {comparison.among:,} comparisons"


def _power(comparison: Comparison) -> str:
    """What it would take to show a difference, where none is shown."""
    passing = comparison.passing
    if passing is None or not comparison.cases or passing.method is Method.NONE:
        return ""
    if comparison.finding is not Finding.NOT_SHOWN or _is_hopeless(comparison):
        return ""
    return _what_could(comparison)


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
        is_over = comparison.stopped.futile and early
        return "; the remaining cases could not show one" if is_over else ""
    if comparison.detectable is None:
        return ""
    cases = counted(comparison.cases, "case")
    return f"; {cases} can only detect {points(comparison.detectable)} or more"


# ---- further results


def _ratio_line(what: str, unit: str, ratio: Ratio | None, comparison: Comparison) -> Iterator[str]:
    # That one case took longer than another says nothing about the sides.
    if ratio is None or ratio.cases == 1:
        return
    low, high = ratio.interval
    if low == high == 1:
        yield f"{what}: the same"
        return
    has_width = math.isfinite(high) and times(low) != times(high)
    known = [f"{times(low)} to {times(high)}"] if has_width else []
    if has_width and high > low * _WIDEST_RATIO:
        known = ["too few cases for an interval"]
    # The number of cases only if it is not that of the pairs.
    cases = [counted(ratio.cases, "case")] if ratio.cases != comparison.cases else []
    beside = ", ".join(known + cases)
    found = times(ratio.ratio)
    words = "about the same" if found == "1" else f"{found} {unit}"
    # A few long cases can outweigh many short ones.
    totals, other = ratio.of_totals, ""
    if totals is not None and (ratio.ratio - 1) * (totals - 1) < 0 and not low <= totals <= high:
        other = f", but in total {times(totals)} {unit}"
    yield f"{what}: {words}{f' ({beside})' if beside else ''}{other}"


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
    parts_in_words = (
        f"{counted(first, 'timeout')} of {label}",
        *(f"{n:,} of {side}" for n, side in others),
    )
    return f"; {listed(parts_in_words)} not counted: true times are longer"


def _pass_at_line(one: PassAtK, comparison: Comparison) -> str:
    some = f"{percent(one.any_subject)} vs {percent(one.any_reference)}"
    every = f"{percent(one.all_subject)} vs {percent(one.all_reference)}"
    cases = counted(comparison.cases, "case")
    if one.cases != comparison.cases:
        cases = f"{one.cases:,} of {cases}"
    return f"pass@{one.k}: {some}; pass^{one.k}: {every} ({cases})"


def left_out(comparison: Comparison, quote: Quote) -> Iterator[str]:
    """`left out: 1 case only in sage, 2 without a verdict in swift`."""
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
    # Said once: `1 case without a verdict in sage, 2 in swift`.
    words = "without a verdict in"
    for number, side in unjudged:
        if number:
            parts.append((number, f"{words} {side}"))
            words = "in"
    (first, how), *others = parts
    words_of = (f"{counted(first, 'case')} {how}", *(f"{number:,} {how}" for number, how in others))
    yield f"left out: {', '.join(words_of)}"


def cautions(comparison: Comparison) -> Iterator[str]:
    """What the finding may not survive: verdicts in place of errors, and cases that did not run."""
    stopped = comparison.stopped
    if stopped is not None and stopped.decided and stopped.used < stopped.planned:
        yield "decided early: such differences look larger than they are"
    bounds = comparison.if_errors
    if bounds is not None and _could_turn(comparison, bounds):
        yield f"errors could change this: anything from {signed_range(bounds)} points"


def _could_turn(comparison: Comparison, bounds: tuple[float, float]) -> bool:
    """Whether the finding could differ, had there been verdicts in place of errors."""
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
