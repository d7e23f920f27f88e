"""Evaluates pairs: how much the sides differ, and whether chance explains it.

This module chooses the methods of `paraval.statistics`. `case_pairs` makes the pairs, and
`claims` puts the result in words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from paraval.report.compare.case_pairs import DUST, Pairs, Repeats
from paraval.report.compare.comparison import (
    Comparison,
    Difference,
    Finding,
    Method,
    PassAtK,
    Ratio,
    Side,
)
from paraval.statistics.pairs import (
    holm,
    mcnemar_mid_p,
    paired_interval,
    sign_flip_p,
    totals_ratio,
)
from paraval.statistics.power import detectable_from, seen_spread
from paraval.statistics.rates import (
    apart,
    pass_at_k,
    pass_hat_k,
    repeats_step,
    score_interval,
    speedup_interval,
)

MOST_RESAMPLES = 9_999
FEWEST_RESAMPLES = 999
DRAWS = 3_000_000
"""Resamples of all comparisons of a question together: about half a second."""
FEWEST_PASS_AT = 10
"""Cases: for fewer, pass@k is not computed."""
MOST_CASES = 0.8


def compare(
    pairs: Pairs,
    subject: Side,
    reference: Side,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = MOST_RESAMPLES,
) -> Comparison:
    """Compare the subject with the reference, as the only comparison of its question; `adjusted`
    accounts for others."""
    passing = _passing(pairs, confidence, seed=seed, resamples=resamples)
    spread = seen_spread(pairs.differences, step=step_of(pairs)) if pairs else None
    return Comparison(
        subject=subject,
        reference=reference,
        cases=len(pairs),
        confidence=confidence,
        rate_subject=fmean(pairs.rates_subject) if pairs else None,
        rate_reference=fmean(pairs.rates_reference) if pairs else None,
        passing=passing,
        score=_score(pairs, confidence, seed=seed, resamples=resamples),
        score_cases=len(pairs.scores),
        are_scores_partial=pairs.are_scores_partial,
        finding=finding_of(passing, confidence),
        detectable=None if spread is None else detectable_from(spread, confidence),
        spread=spread,
        passed_subject=_passed(pairs, 0),
        passed_reference=_passed(pairs, 1),
        if_errors=pairs.if_errors,
        seconds=_time_ratio(pairs, confidence),
        cost=_cost_ratio(pairs, confidence, seed=seed, resamples=resamples),
        timeouts_subject=pairs.timeouts[0],
        timeouts_reference=pairs.timeouts[1],
        pass_at=_pass_at(pairs),
        left_out=pairs.left_out,
        turned=pairs.turned,
    )


def adjusted(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """All comparisons of one question, with p-values, findings and detectable differences adjusted
    by Holm's method."""
    passing = _adjusted_ps([one.passing for one in comparisons])
    scores = _adjusted_ps([one.score for one in comparisons])
    among = max(1, sum(one is not None for one in passing))
    return tuple(
        replace(
            one,
            passing=new,
            score=score,
            among=among,
            detectable=_detectable(one, among),
            finding=finding_of(new, one.confidence),
        )
        for one, new, score in zip(comparisons, passing, scores, strict=True)
    )


def _detectable(comparison: Comparison, among: int) -> float | None:
    """None if the number of cases was not fixed in advance."""
    if comparison.detectable is None or comparison.spread is None:
        return comparison.detectable
    return detectable_from(comparison.spread, comparison.confidence, among=among)


def finding_of(difference: Difference | None, confidence: float) -> Finding:
    """A difference is shown if both the test and the interval agree."""
    if difference is None:
        return Finding.NOT_SHOWN
    low, high = difference.interval
    if difference.adjusted_p >= 1 - confidence - DUST or low <= 0 <= high:
        return Finding.NOT_SHOWN
    return Finding.BETTER if difference.mean > 0 else Finding.WORSE


def resamples_for(cases: int, comparisons: int) -> int:
    """Fewer for more work: many comparisons of many cases must not take seconds."""
    each = DRAWS // max(1, cases * comparisons)
    return min(MOST_RESAMPLES, max(FEWEST_RESAMPLES, each))


def _passing(pairs: Pairs, confidence: float, *, seed: int, resamples: int) -> Difference | None:
    if not pairs:
        return None
    differences = pairs.differences
    wins, losses = _split(differences)
    if pairs.is_single:
        method, p = Method.MCNEMAR, mcnemar_mid_p(wins, losses)
    else:
        p = sign_flip_p(differences, seed=seed, resamples=resamples)
        method = Method.SIGN_FLIPS
    mean, low, high = paired_interval(differences, confidence, step=step_of(pairs))
    return Difference(
        mean=mean,
        interval=(low, high),
        p=p,
        adjusted_p=p,
        method=method,
        wins=wins,
        losses=losses,
    )


def _passed(pairs: Pairs, side: int) -> tuple[int, int]:
    """Trials that passed, and trials judged."""
    counts = [(kind[side], number) for kinds, number in pairs.repeats.items() for kind in kinds]
    passed = sum(number * passed for (_, passed), number in counts)
    return passed, sum(number * judged for (judged, _), number in counts)


def step_of(pairs: Pairs) -> float:
    """The step of their interval: how much repeats and settings of the cases vary."""
    squares = math.fsum(value * value for value in pairs.differences)
    single = math.fsum(
        number * fmean(apart(passed / n, others / m) for (n, passed), (m, others) in kinds)
        for kinds, number in pairs.repeats.items()
    )
    return repeats_step(squares, single)


def _score(pairs: Pairs, confidence: float, *, seed: int, resamples: int) -> Difference | None:
    if not (pairs.has_more_scores and pairs.scores):
        return None
    differences = pairs.scores
    wins, losses = _split(differences)
    p = sign_flip_p(differences, seed=seed, resamples=resamples)
    mean, low, high = score_interval(differences, confidence, least=-1.0)
    return Difference(
        mean=mean,
        interval=(low, high),
        p=p,
        adjusted_p=p,
        method=Method.SIGN_FLIPS,
        wins=wins,
        losses=losses,
    )


def _time_ratio(pairs: Pairs, confidence: float) -> Ratio | None:
    logs = pairs.log_seconds
    if pairs.is_short or not logs:
        return None
    ratio, low, high = speedup_interval(logs, confidence)
    subject, reference = map(math.fsum, pairs.seconds)
    of_totals = subject / reference
    return Ratio(ratio=ratio, interval=(low, high), cases=len(logs), of_totals=of_totals)


def _cost_ratio(pairs: Pairs, confidence: float, *, seed: int, resamples: int) -> Ratio | None:
    """None if a side paid nothing: there is no ratio to zero."""
    if not pairs.usd or not all(map(sum, zip(*pairs.usd, strict=True))):
        return None
    ratio, low, high = totals_ratio(pairs.usd, confidence, seed=seed, resamples=resamples)
    return Ratio(ratio=ratio, interval=(low, high), cases=len(pairs.usd))


def _pass_at(pairs: Pairs) -> tuple[PassAtK, ...]:
    """pass@k for k = the repeats that most cases have, over the cases that have as many."""
    most = _most_repeats(pairs)
    enough = [
        (number, [kind for kind in kinds if _both(kind) >= most])
        for kinds, number in pairs.repeats.items()
    ]
    if most < 2 or sum(number for number, kinds in enough if kinds) < FEWEST_PASS_AT:
        return ()
    return (_pass_at_k(enough, most),)


def _most_repeats(pairs: Pairs) -> int:
    """The largest number of repeats that at least MOST_CASES of the cases have on both sides."""
    having: Counter[int] = Counter()
    for kinds, number in pairs.repeats.items():
        having[max(map(_both, kinds))] += number
    cases = 0
    for repeats in sorted(having, reverse=True):
        cases += having[repeats]
        if cases >= MOST_CASES * len(pairs):
            return repeats
    return 0


def _pass_at_k(enough: Sequence[tuple[int, Sequence[Repeats]]], k: int) -> PassAtK:
    """A mean over cases, each a mean over its settings with enough repeats."""
    known = [(number, kinds) for number, kinds in enough if kinds]
    cases = sum(number for number, _ in known)

    def mean(likely: Callable[[int, int, int], float], side: int) -> float:
        return (
            math.fsum(n * fmean(likely(*kind[side], k) for kind in kinds) for n, kinds in known)
            / cases
        )

    return PassAtK(
        k=k,
        cases=cases,
        any_subject=mean(pass_at_k, 0),
        any_reference=mean(pass_at_k, 1),
        all_subject=mean(pass_hat_k, 0),
        all_reference=mean(pass_hat_k, 1),
    )


def _both(kind: Repeats) -> int:
    """The smaller number of judged repeats of the two sides."""
    (subject, _), (reference, _) = kind
    return min(subject, reference)


def _adjusted_ps(differences: Sequence[Difference | None]) -> list[Difference | None]:
    known = [one for one in differences if one is not None]
    ps = iter(holm([one.p for one in known]))
    return [None if one is None else replace(one, adjusted_p=next(ps)) for one in differences]


def _split(differences: Sequence[float]) -> tuple[int, int]:
    return (sum(value > 0 for value in differences), sum(value < 0 for value in differences))
