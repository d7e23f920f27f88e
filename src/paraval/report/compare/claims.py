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
    Finding,
    Interval,
    Method,
    Ratio,
)
from paraval.text.words import counted, listed, percent

Quote = Callable[[str], str]
"""Makes untrusted text safe to show."""

# ---- numbers: small ones with a digit more, and 0 and 100 only where it is exactly that

_SMALLEST_P = 0.001
_MINUS = "\N{MINUS SIGN}"
_WIDEST_RATIO = 1000
"""An interval of ratios that spans more says only that there are too few cases."""


def points(share: float) -> str:
    """`12 points`, `1 point`, `0.4 points`: a difference without its sign."""
    number = signed(abs(share)).removeprefix("+")
    return f"{number} {'point' if number == '1' else 'points'}"


def signed(share: float) -> str:
    """`+12`, `−0.4`, `0`: in points."""
    value = abs(share) * 100
    if math.isclose(value, round(value), abs_tol=1e-7):
        number = f"{round(value)}"
    elif value < 1.95:
        number = f"{max(value, 0.1):.1f}".removesuffix(".0")
    else:
        number = f"{min(round(value), 99) if value < 100 else round(value)}"
    return number if number == "0" else f"{'+' if share > 0 else _MINUS}{number}"


def signed_points(share: float) -> str:
    """`+12 points`, `−1 point`."""
    return f"{signed(share)} {points(share).split()[1]}"


def signed_range(interval: Interval) -> str:
    """`−9 to +13`: in points."""
    return " to ".join(map(signed, interval))


def signed_score(score: float) -> str:
    """`+0.05`, `−0.01`."""
    return f"{score:+.2f}".replace("-", _MINUS)


def p_value(p: float) -> str:
    """`p = 0.03`, `p < 0.001`."""
    return f"p < {_SMALLEST_P}" if p < _SMALLEST_P else f"p = {p:.2g}"


def times(ratio: float) -> str:
    """`1.8`, `0.97`, `12`, `0.0042`."""
    number = f"{ratio:,.{_digits_of(ratio)}f}"
    return number.rstrip("0").rstrip(".") if "." in number else number


def _digits_of(ratio: float) -> int:
    """Decimals that a ratio is shown with."""
    if ratio < 0.1:
        return 1 - math.floor(math.log10(ratio)) if ratio > 0 else 2
    return 0 if ratio >= 9.95 else 1 if ratio >= 1.995 else 2


def plural(axis: str) -> str:
    """An axis name in the plural: `models`, `categories`."""
    if axis.endswith("y") and axis[-2:-1] not in tuple("aeiou"):
        return f"{axis[:-1]}ies"
    return axis if axis.endswith("s") else f"{axis}s"


# ---- the claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a comparison shows, in parts: each output has as many of them as it has room for."""

    names: str
    """`sage vs swift over 3 models`."""
    headline: str
    """`sage passes 12 points more than swift over 3 models`."""
    estimate: str = ""
    """`+12 points`; empty if nothing was judged on both sides."""
    interval: str = ""
    """`+3 to +21`; empty if there is none."""
    level: str = ""
    """`95% CI`."""
    validity: str = ""
    """` at any time`."""
    counts: tuple[str, ...] = ()
    """`60 cases`, `p = 0.03`."""
    finding: Finding = Finding.NOT_SHOWN
    verdict: str = ""
    """`better`, `no difference shown`, or why nothing can be said."""
    power: str = ""
    """What it would take to show a difference, where none is shown."""

    @property
    def figures(self) -> str:
        """What the headline rests on; may be empty."""
        is_open = self.finding is Finding.NOT_SHOWN and self.counts
        interval = f"{self.level} {self.interval}{self.validity}" if self.interval else ""
        return ", ".join(filter(None, (self.estimate if is_open else "", interval, *self.counts)))

    @property
    def evidence(self) -> str:
        """The same with the power."""
        return "; ".join(filter(None, (self.figures, self.power)))

    @property
    def sentence(self) -> str:
        """The headline and its evidence, without the period."""
        words = f"{self.headline} ({self.figures})" if self.figures else self.headline
        if self.finding is not Finding.NOT_SHOWN:
            words += f": {self.finding.value}"
        return "; ".join(filter(None, (words, self.power)))


def claim_of(comparison: Comparison, quote: Quote) -> Claim:
    """About pass rates."""
    passing, stopped = comparison.passing, comparison.stopped
    subject, reference, over = _sides(comparison, quote)
    names = f"{subject} vs {reference}{over}"
    if passing is None or not comparison.cases:
        verdict = "no case has a verdict on both sides"
        return Claim(names=names, headline=f"{names}: {verdict}", verdict=verdict)
    estimate, cases = signed_points(passing.mean), counted(comparison.cases, "case")
    if _is_hopeless(comparison):
        are = "is" if comparison.cases == 1 else "are"
        passed, others = map(_of, (comparison.passed_subject, comparison.passed_reference))
        words = f"{subject} passed {passed}, {reference} {others}{over}"
        words = f"{words}; {cases} {are} too few to generalize"
        return Claim(names=names, headline=words, estimate=estimate, verdict=words)
    if passing.method is Method.NONE:
        verdict = "nothing can be claimed"
        headline = f"{names}: {verdict}"
        return Claim(
            names=names, headline=headline, estimate=estimate, counts=(cases,), verdict=verdict
        )
    headline, verdict = f"{names}: {Finding.NOT_SHOWN.value}", comparison.finding.value
    if comparison.finding is not Finding.NOT_SHOWN:
        more = "more" if passing.mean > 0 else "less"
        headline = f"{subject} passes {points(passing.mean)} {more} than {reference}{over}"
    elif comparison.among > 1 and not passing.interval[0] <= 0 <= passing.interval[1]:
        # Explains why an interval without 0 shows no difference.
        verdict += f" (adjusted for {comparison.among:,} comparisons)"
    counts: tuple[str, ...] = (cases,)
    if stopped is not None:
        losses = counted(passing.losses, "loss", "losses")
        counts = (f"{counted(passing.wins, 'win')}, {losses}", _how_far(comparison))
        verdict += f"; {counts[1]}" if stopped.used < stopped.planned else ""
    return Claim(
        names=names,
        headline=headline,
        estimate=estimate,
        interval=signed_range(passing.interval),
        level=f"{percent(comparison.confidence)} CI",
        validity=" at any time" * (stopped is not None),
        counts=(*counts, *_chance(comparison, passing)),
        finding=comparison.finding,
        verdict=verdict,
        power=_power(comparison),
    )


def score_claim(comparison: Comparison, score: Difference, finding: Finding, quote: Quote) -> Claim:
    """About scores."""
    subject, reference, over = _sides(comparison, quote)
    names = f"{subject} vs {reference}{over}"
    low, high = map(signed_score, score.interval)
    more = "more" if score.mean > 0 else "less"
    headline = f"{subject} scores {abs(score.mean):.2f} {more} than {reference}{over}"
    is_open = finding is Finding.NOT_SHOWN
    cases = comparison.cases if comparison.score_cases is None else comparison.score_cases
    same = " with the same graders" if comparison.are_scores_partial else ""
    return Claim(
        names=names,
        headline=f"{names}: no difference in scores shown" if is_open else headline,
        estimate=signed_score(score.mean),
        interval="" if low == high else f"{low} to {high}",
        level=f"{percent(comparison.confidence)} CI",
        counts=(f"{counted(cases, 'case')}{same}", *_chance(comparison, score)),
        finding=finding,
        verdict=finding.value,
    )


def _sides(comparison: Comparison, quote: Quote) -> tuple[str, str, str]:
    """Both labels, and ` over 3 models`: the axes that are equal on both sides."""
    axes = listed(f"{number:,} {quote(plural(axis))}" for axis, number in comparison.over.items())
    over = f" over {axes}" if axes else ""
    return quote(comparison.subject.label), quote(comparison.reference.label), over


def _is_hopeless(comparison: Comparison) -> bool:
    """Whether there are too few cases to show any difference: then counts say all there is."""
    too_few = comparison.detectable is not None and comparison.detectable >= 1
    return too_few and comparison.finding is Finding.NOT_SHOWN and comparison.stopped is None


def _of(counts: tuple[int, int]) -> str:
    passed, judged = counts
    return f"{passed:,}/{judged:,}"


def _chance(comparison: Comparison, difference: Difference) -> Iterator[str]:
    """`p = 0.094, adjusted for 3 comparisons`; nothing if the adjustment leaves nothing of it."""
    p = p_value(difference.adjusted_p)
    if comparison.among == 1:
        yield p
    elif difference.adjusted_p < 1:
        yield f"{p}, adjusted for {comparison.among:,} comparisons"


def _how_far(comparison: Comparison) -> str:
    stopped = comparison.stopped
    assert stopped is not None, "it may stop early"
    cases = counted(stopped.planned, "case")
    if stopped.used == stopped.planned:
        return cases
    if stopped.decided or stopped.futile:
        return f"stopped after {stopped.used:,} of {cases}"
    return f"{stopped.used:,} of {cases} so far"


def _power(comparison: Comparison) -> str:
    stopped = comparison.stopped
    if comparison.finding is not Finding.NOT_SHOWN:
        return ""
    if stopped is not None:
        is_over = stopped.futile and stopped.used < stopped.planned
        return "the remaining cases could not show one" if is_over else ""
    if comparison.detectable is None:
        return ""
    cases = counted(comparison.cases, "case")
    return f"{cases} can only detect {points(comparison.detectable)} or more"


def heading(axis: str | None, quote: Quote, *, going_on: bool) -> str:
    """`Compared by mode`."""
    by = "" if axis is None else f" by {quote(axis)}"
    return f"Compared{by}{', so far' if going_on else ''}"


def not_made(number: int) -> str:
    """How many pairs of values were not compared because there are too many."""
    were = "was" if number == 1 else "were"
    return f"{counted(number, 'more pair')} of values {were} not compared"


# ---- further results, a line each


def details(comparison: Comparison, quote: Quote) -> list[str]:
    """All other results of a comparison."""
    return [
        *score_line(comparison),
        *figure_lines(comparison, quote),
        *turned_lines(comparison, quote),
    ]


def score_line(comparison: Comparison) -> Iterator[str]:
    """`score: +0.05 (+0.01 to +0.09, p = 0.02)`; nothing if scores add nothing to pass and
    fail."""
    if (score := comparison.score) is not None:
        claim = score_claim(comparison, score, Finding.NOT_SHOWN, str)
        beside = filter(None, (claim.interval, *claim.counts))
        yield f"score: {claim.estimate} ({', '.join(beside)})"


def figure_lines(comparison: Comparison, quote: Quote) -> list[str]:
    """Time and cost as ratios, and pass@k."""
    time = _ratio("time of a typical case", "times as long", comparison.seconds, comparison)
    lines = [f"{line}{_timeouts(comparison, quote)}" for line in time]
    lines += _ratio("cost", "times as much", comparison.cost, comparison)
    for one in comparison.pass_at:
        some = f"{percent(one.any_subject)} vs {percent(one.any_reference)}"
        every = f"{percent(one.all_subject)} vs {percent(one.all_reference)}"
        cases = counted(comparison.cases, "case")
        cases = cases if one.cases == comparison.cases else f"{one.cases:,} of {cases}"
        lines.append(f"pass@{one.k}: {some}; pass^{one.k}: {every} ({cases})")
    return lines


def turned_lines(comparison: Comparison, quote: Quote, most: int | None = 3) -> list[str]:
    """`regressed: a, b, c and 4 more`; a line for each kind of change."""
    turned = comparison.turned
    kinds = (("regressed", turned.broke), ("fixed", turned.mended), ("flaky", turned.flaky))
    return [f"{how}: {_named(cases, quote, most)}" for how, cases in kinds if cases]


def _named(cases: Sequence[str], quote: Quote, most: int | None) -> str:
    named = [quote(case) for case in cases[:most]]
    left = len(cases) - len(named)
    return f"{', '.join(named)} and {left:,} more" if left else listed(named)


def _ratio(what: str, unit: str, ratio: Ratio | None, comparison: Comparison) -> Iterator[str]:
    # That one case took longer than another says nothing about the sides.
    if ratio is None or ratio.cases == 1:
        return
    low, high = ratio.interval
    if low == high == 1:
        yield f"{what}: the same"
        return
    digits = max(_digits_of(ratio.ratio), int(low < 1))
    ends = [f"{end:,.{digits}f}" for end in (low, high)]
    has_width = math.isfinite(high) and ends[0] != ends[1]
    known = [" to ".join(ends)] if has_width else []
    if has_width and high > low * _WIDEST_RATIO:
        known = ["too few cases for an interval"]
    # The number of cases only if it is not that of the pairs.
    known += [counted(ratio.cases, "case")] if ratio.cases != comparison.cases else []
    found = times(ratio.ratio)
    words = "about the same" if found == "1" else f"{found} {unit}"
    # A few long cases can outweigh many short ones.
    totals, other = ratio.of_totals, ""
    if totals is not None and (ratio.ratio - 1) * (totals - 1) < 0 and not low <= totals <= high:
        other = f", but in total {times(totals)} {unit}"
    beside = f" ({', '.join(known)})" if known else ""
    yield f"{what}: {words}{beside}{other}"


def _timeouts(comparison: Comparison, quote: Quote) -> str:
    """`; 2 timeouts of hang and 1 of good not counted: true times are longer`."""
    sides = (
        (comparison.timeouts_subject, comparison.subject),
        (comparison.timeouts_reference, comparison.reference),
    )
    timeouts = [(number, quote(side.label)) for number, side in sides if number]
    parts = [
        f"{counted(number, 'timeout') if not position else f'{number:,}'} of {label}"
        for position, (number, label) in enumerate(timeouts)
    ]
    return f"; {listed(parts)} not counted: true times are longer" if parts else ""


# ---- what the finding does not rest on: cases left out, and errors that could change it


def notes(comparison: Comparison, quote: Quote) -> list[str]:
    return [*left_out(comparison, quote), *cautions(comparison)]


def left_out(comparison: Comparison, quote: Quote) -> Iterator[str]:
    """`cases left out: 1 only in sage, 2 without a verdict in swift`."""
    left = comparison.left_out
    subject, reference = quote(comparison.subject.label), quote(comparison.reference.label)
    without_subject, without_reference = set(left.unjudged_subject), set(left.unjudged_reference)
    here = len(without_subject - without_reference)
    there = len(without_reference - without_subject)
    parts = [
        f"{number:,} {how}"
        for number, how in (
            (len(left.only_subject), f"only in {subject}"),
            (len(left.only_reference), f"only in {reference}"),
            (here, f"without a verdict in {subject}"),
            (there, f"without a verdict in {reference}"),
            (len(left.unjudged) - here - there, "without a verdict in both"),
        )
        if number
    ]
    if parts:
        yield f"cases left out: {', '.join(parts)}"


def cautions(comparison: Comparison) -> Iterator[str]:
    """What the finding may not survive: verdicts in place of errors, and cases that did not run."""
    stopped, bounds = comparison.stopped, comparison.if_errors
    if stopped is not None and stopped.decided and stopped.used < stopped.planned:
        yield "decided early: such differences look larger than they are"
    if bounds is not None and _could_turn(comparison, bounds):
        yield f"errors could change this: anything from {signed_range(bounds)} points"


def _could_turn(comparison: Comparison, bounds: Interval) -> bool:
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
