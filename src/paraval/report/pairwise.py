"""Which of two variants' answers a judge prefers, from its verdicts in both orders.

A pair of answers is won only if the judge prefers the same one in both orders; anything else is a
tie. Wins are compared with the case as unit, at 95% for all pairs of variants together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations, groupby
from typing import Any

from paraval.dataclass import dataclass
from paraval.records import Case, RunInfo, Spend, TrialResult, Variant, value_text
from paraval.report.compare.case_pairs import DUST
from paraval.report.compare.case_results import variant_key
from paraval.report.compare.claims import p_value, signed_points, signed_range
from paraval.report.compare.comparison import Finding
from paraval.report.summary.costs import told_usd
from paraval.statistics.distributions import coin_tail
from paraval.statistics.pairs import is_pass_fail, paired_interval, sign_flip_p
from paraval.statistics.rates import clustered_rate_interval
from paraval.text.terminal import one_line
from paraval.text.words import counted, money, percent, percent_range, variant_label

LONGEST_RUBRIC = 40
"""Characters of a rubric that tell one judging from another."""
MOST_COMPARED_FREELY = 4
"""Up to this many variants are all compared with each other."""

# ---- which answers are compared


def variant_pairs(
    variants: Sequence[Variant], against: Mapping[str, str] | None
) -> list[tuple[Variant, Variant]]:
    """The variants to compare, the reference first."""
    if against is None:
        pairs = combinations(variants, 2)
        freely = len(variants) <= MOST_COMPARED_FREELY
        return [(a, b) for a, b in pairs if freely or _differing(a, b) == 1]
    return [
        (a, b)
        for a in variants
        for b in variants
        if all(value_text(a[axis]) == value for axis, value in against.items())
        and any(value_text(b[axis]) != value for axis, value in against.items())
        and all(a[axis] == b[axis] for axis in a if axis not in against)
    ]


def _differing(a: Variant, b: Variant) -> int:
    return sum(a[axis] != b[axis] for axis in a)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPair:
    """Two variants' answers to one case in one repeat."""

    case_id: str
    repeat: int
    a: Variant
    b: Variant
    answers: tuple[Any, Any] | None
    """None: one of them, or both, has no judged answer."""


def answer_pairs(
    results: Iterable[TrialResult], pairs: Sequence[tuple[Variant, Variant]]
) -> Iterator[AnswerPair]:
    """Every pair of answers of a run; results come by case."""
    for case_id, of_case in groupby(results, key=lambda one: one.case_id):
        answers: dict[tuple[str, int], Any] = {}
        for one in of_case:
            output = one.result.output if one.outcome.is_judged else None
            answer = None if output is None else output.whole
            answers[variant_key(one.variant), one.repeat] = answer
        repeats = sorted({repeat for _, repeat in answers})
        for a, b in pairs:
            for repeat in repeats:
                first, second = (answers.get((variant_key(one), repeat)) for one in (a, b))
                both = None if first is None or second is None else (first, second)
                yield AnswerPair(case_id=case_id, repeat=repeat, a=a, b=b, answers=both)


# ---- what the judge said


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """How often one variant's answers are better than another's."""

    reference: str
    subject: str
    pairs: int
    """Pairs of answers that were judged in both orders: the subject's is better in `wins` ..."""
    wins: int
    losses: int
    ties: int
    """... including pairs for which the judge changed its mind with the order."""
    inconsistent: int
    """How many of the ties are such pairs."""
    left_out: int
    """Pairs in which a side has no judged answer."""
    unjudged: int
    """Pairs without both verdicts: an error of the judge, or not judged yet."""
    difference: float | None
    """Wins minus losses, as a share of the pairs, averaged by case; None without pairs."""
    interval: tuple[float, float] | None
    p: float
    """The chance of wins and losses as unequal as these, or more, if neither side were better."""
    confidence: float
    """95% for all comparisons together."""

    @property
    def finding(self) -> Finding:
        """A preference is shown if both the test and the interval agree, as in comparisons."""
        if self.difference is None or self.interval is None or self.p >= 1 - self.confidence - DUST:
            return Finding.NOT_SHOWN
        low, high = self.interval
        return Finding.BETTER if low > 0 else Finding.WORSE if high < 0 else Finding.NOT_SHOWN

    @property
    def turned(self) -> Preference:
        """The same, with subject and reference exchanged."""
        return replace(
            self,
            reference=self.subject,
            subject=self.reference,
            wins=self.losses,
            losses=self.wins,
            difference=None if self.difference is None else -self.difference,
            interval=None if self.interval is None else (-self.interval[1], -self.interval[0]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseReport:
    """The verdicts of one judge on pairs of a run's answers."""

    run: str
    """The run that judged them, in the store's folder `pairwise`."""
    judge: str
    rubric: str
    preferences: tuple[Preference, ...]
    tie_rate: float | None
    first_preferred: float | None
    """Position bias: the share of verdicts, ties apart, for the answer that was shown first; 0.5
    without a bias."""
    first_preferred_interval: tuple[float, float] | None
    cost_usd: float | None

    def facing(self, comparisons: Collection[tuple[str, str]]) -> PairwiseReport:
        """The same, each pair in the direction of these comparisons of subject and reference."""
        return replace(
            self,
            preferences=tuple(
                one.turned if (one.reference, one.subject) in comparisons else one
                for one in self.preferences
            ),
        )


@dataclass(slots=True)
class _Pair:
    """Verdicts on the pairs of two variants, by case."""

    by_case: dict[str, list[float]] = field(default_factory=dict)
    """Per pair of answers: 1 won, -1 lost, 0 tie."""
    inconsistent: int = 0
    unjudged: int = 0
    left_out: int = 0


def pairwise_report(
    info: RunInfo,
    asked: Mapping[str, Any],
    verdicts: Iterable[TrialResult],
    cases: Iterable[Case],
    left_out: Iterable[AnswerPair],
) -> PairwiseReport:
    """`verdicts`: the judging run's results, two per case; `left_out`: pairs without both
    answers."""
    about = {case.id: case.metadata for case in cases}
    pairs: dict[tuple[str, str], _Pair] = {}
    shown_first: dict[str, list[float]] = {}
    spend: Spend | None = None
    for case_id, of_case in groupby(verdicts, key=lambda one: one.case_id):
        metadata, scores = about[case_id], list[float]()
        pair = pairs.setdefault((metadata["a"], metadata["b"]), _Pair())
        of_case_id = str(metadata["case"])
        for one in of_case:
            if one.judging is not None:
                spend = one.judging if spend is None else spend + one.judging
            if one.result.score is None:
                continue
            scores.append(one.result.score)
            if one.result.score != 0.5:
                is_first = (one.result.score == 1) == bool(one.variant.get("order") == "swapped")
                shown_first.setdefault(of_case_id, []).append(float(is_first))
        if len(scores) < 2:
            pair.unjudged += 1
            continue
        won = scores[0] if scores[0] == scores[1] else 0.5
        pair.inconsistent += scores[0] != scores[1]
        pair.by_case.setdefault(of_case_id, []).append(2 * won - 1)
    for gap in left_out:
        key = (variant_label(gap.a), variant_label(gap.b))
        pairs.setdefault(key, _Pair()).left_out += 1
    confidence = 1 - 0.05 / max(1, len(pairs))
    preferences = tuple(_preference(a, b, pair, confidence) for (a, b), pair in pairs.items())
    judged, ties = (sum(getattr(one, name) for one in preferences) for name in ("pairs", "ties"))
    clusters = [(sum(picks), float(len(picks))) for picks in shown_first.values()]
    decided = sum(n for _, n in clusters)
    return PairwiseReport(
        run=info.id,
        judge=str(asked.get("model", "")),
        rubric=str(asked.get("rubric") or ""),
        preferences=preferences,
        tie_rate=ties / judged if judged else None,
        first_preferred=sum(first for first, _ in clusters) / decided if decided else None,
        first_preferred_interval=clustered_rate_interval(clusters) if decided else None,
        cost_usd=None if spend is None else told_usd(spend),
    )


def _preference(a: str, b: str, pair: _Pair, confidence: float) -> Preference:
    verdicts = [one for case in pair.by_case.values() for one in case]
    means = [sum(case) / len(case) for case in pair.by_case.values()]
    mean, low, high = paired_interval(means, confidence) if means else (None, 0.0, 0.0)
    if is_pass_fail(means):
        # Exact: where few pairs tie, a mid-p would be significant too often.
        fewer, decided = min(means.count(1), means.count(-1)), len(means) - means.count(0)
        p = min(1.0, 2 * coin_tail(fewer, decided))
    else:
        p = sign_flip_p(means)
    return Preference(
        reference=a,
        subject=b,
        pairs=len(verdicts),
        wins=verdicts.count(1),
        losses=verdicts.count(-1),
        ties=verdicts.count(0),
        inconsistent=pair.inconsistent,
        left_out=pair.left_out,
        unjudged=pair.unjudged,
        difference=mean,
        interval=None if mean is None else (low, high),
        p=p,
        confidence=confidence,
    )


# ---- in words


def pairwise_sentences(
    report: PairwiseReport, name: Callable[[str], str], *, is_one_of_several: bool = False
) -> Iterator[str]:
    """One line for each pair of variants, then one on ties, the order and the cost; if it is one of
    several judgings, each with the beginning of its rubric."""
    rubric = one_line(report.rubric, LONGEST_RUBRIC) if is_one_of_several else ""
    on = f' on "{name(rubric)}"' if rubric else ""
    for one in report.preferences:
        names = f"{name(one.subject)} vs {name(one.reference)}, pairwise{on}"
        gaps = ((one.left_out, "without two answers"), (one.unjudged, "without a verdict"))
        left_out = ", ".join(f"{number:,} {what}" for number, what in gaps if number)
        found = "no pair was judged"
        if one.difference is not None and one.interval is not None:
            interval = f"{percent(one.confidence)}: {signed_range(one.interval)}"
            found = (
                f"{one.wins:,} better, {one.losses:,} worse, {one.ties:,} tied;"
                f" {signed_points(one.difference)} ({interval}; {p_value(one.p)}): {one.finding}"
            )
        yield f"{names}: {found}{left_out and '; left out: ' + left_out}"
    judged = sum(one.pairs for one in report.preferences)
    if not judged or report.tie_rate is None:
        return
    changed = sum(one.inconsistent for one in report.preferences)
    words = [
        f"tie rate {percent(report.tie_rate)}",
        f"{changed:,} of {counted(judged, 'pair')} changed with the order and count as ties",
    ]
    if report.first_preferred is not None and report.first_preferred_interval is not None:
        interval = f"{percent_range(*report.first_preferred_interval)}; 50% without position bias"
        first = f"the answer shown first was preferred in {percent(report.first_preferred)}"
        words.append(f"{first} ({interval})")
    if report.cost_usd is not None:
        words.append(f"cost {money(report.cost_usd)}")
    yield f"Pairs were judged{on} by {name(report.judge)}: {'; '.join(words)}"
