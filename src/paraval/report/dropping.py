"""Whether the pass rate dropped against a baseline by more than it may: the second kind of gate.

The drop is judged by its interval, over cases: missed where such a drop is shown, met where it is
ruled out, and unknown between. In the whole run a variant may hide behind the others, so one of
which such a drop is shown misses the gate by itself; the more variants there are, the surer that
must be (Holm). Missing verdicts are no wrong answers: their pairs are left out, and where they
could turn the answer, it is unknown.

Where one of the runs may stop early, only what holds at any time is claimed: of the cases that come
first in the order that was drawn, with the interval that comparisons of such runs have.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from paraval.records import Baseline
from paraval.report import drop_words as words
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.compared import step_of
from paraval.report.comparing.comparison import Interval
from paraval.report.comparing.pairs import Pairs
from paraval.report.drop_pairs import DropPairs, drop_pairs, drop_pairs_in_order
from paraval.report.gate import DropVerdict, RateChange, Verdict
from paraval.statistics.betting import betting_interval
from paraval.statistics.drops import drop_interval, pairs_to_tell

CONFIDENCE = 0.95


def judge_drop(
    subject: CaseBook,
    reference: CaseBook,
    baseline: Baseline,
    *,
    confidence: float = CONFIDENCE,
    at_any_time: bool = False,
    order_seed: int | None = None,
) -> DropVerdict:
    """`at_any_time`: one of the runs may stop early. Then `order_seed` drew the order of its cases;
    None where nobody knows it, or where both runs may stop and drew different ones."""
    if at_any_time and order_seed is not None:
        pairs = drop_pairs_in_order(subject, reference, order_seed)
    else:
        pairs = drop_pairs(subject, reference)
    judging = _Judging(pairs, baseline, confidence, at_any_time=at_any_time)
    if not pairs.labels:
        return judging.unknown(words.NO_VARIANT)
    if at_any_time and order_seed is None:
        return judging.unknown(words.NO_ORDER)
    if not pairs.whole:
        return judging.unknown(words.nothing_shared(pairs))
    return judging.verdict()


def gone(baseline: Baseline) -> DropVerdict:
    """Of a baseline that was there when the run began, and cannot be read any more."""
    name = words.name_of(baseline)
    return DropVerdict(
        verdict=Verdict.UNKNOWN,
        finding=words.cannot_tell(baseline, f"{name} cannot be read any more"),
        baseline=baseline.name,
        max_drop=baseline.max_drop,
    )


class _Judging:
    """From pairs to a verdict, in a sentence."""

    def __init__(
        self, pairs: DropPairs, baseline: Baseline, confidence: float, *, at_any_time: bool
    ) -> None:
        self._pairs = pairs
        self._baseline = baseline
        self._confidence = confidence
        self._at_any_time = at_any_time
        self._lowest = -baseline.max_drop
        self._change: RateChange | None = None

    def unknown(self, why: str) -> DropVerdict:
        """Where there is nothing to judge by."""
        return self._told(Verdict.UNKNOWN, words.cannot_tell(self._baseline, why))

    def verdict(self) -> DropVerdict:
        whole = self._pairs.whole
        self._change = change = self._change_of(whole, self._confidence)
        planned = self._pairs.planned if self._at_any_time else None
        exchanged = self._pairs.exchanged
        told = words.Told(baseline=self._baseline, planned=planned, exchanged=exchanged)
        if self._is_dropped(change, whole.if_errors):
            return self._told(Verdict.MISSED, told.missed(change))
        if dropped := self._dropped_variants():
            return self._told(Verdict.MISSED, told.missed_by(dropped), dropped=dropped)
        if_errors = whole.if_errors
        low, high = change.interval
        # What could be met or missed, were it not for what is missing.
        if high < self._lowest or (
            low > self._lowest and if_errors is not None and if_errors[0] < self._lowest
        ):
            return self._told(Verdict.UNKNOWN, told.hidden(change, if_errors))
        if low > self._lowest:
            return self._told(Verdict.MET, told.met(change))
        more = None if self._at_any_time else self._more_cases()
        return self._told(Verdict.UNKNOWN, told.unknown(change, more), more_cases=more)

    def _told(self, verdict: Verdict, finding: str, **figures: Any) -> DropVerdict:
        pairs = self._pairs
        return DropVerdict(
            verdict=verdict,
            finding="; ".join((finding, *words.left_out(pairs))),
            baseline=self._baseline.name,
            max_drop=self._baseline.max_drop,
            change=self._change,
            if_errors=pairs.whole.if_errors,
            only_now=pairs.only_now,
            only_baseline=pairs.only_baseline,
            unjudged=pairs.unjudged,
            **figures,
        )

    def _more_cases(self) -> int | None:
        whole = self._pairs.whole
        step = step_of(whole)
        return pairs_to_tell(whole.differences, self._lowest, self._confidence, step=step)

    def _is_dropped(self, change: RateChange, if_errors: Interval | None) -> bool:
        hidden = if_errors is not None and if_errors[1] >= self._lowest
        return change.interval[1] < self._lowest and not hidden

    def _dropped_variants(self) -> Mapping[str, RateChange]:
        """By Holm: the surest first, each as sure as all that are left ask for."""
        left = {key: one for key, one in self._pairs.variants.items() if one}
        dropped: dict[str, RateChange] = {}
        while left:
            confidence = 1 - (1 - self._confidence) / len(left)
            changes = {key: self._change_of(one, confidence) for key, one in left.items()}
            found = {
                key: change
                for key, change in changes.items()
                if self._is_dropped(change, left[key].if_errors)
            }
            if not found:
                break
            dropped.update((self._pairs.labels[key], one) for key, one in found.items())
            left = {key: one for key, one in left.items() if key not in found}
        return dropped

    def _change_of(self, pairs: Pairs, confidence: float) -> RateChange:
        differences = pairs.differences
        if self._at_any_time:
            mean, interval = fmean(differences), betting_interval(differences, confidence)
        else:
            mean, low, high = drop_interval(differences, confidence, step=step_of(pairs))
            interval = (low, high)
        cases = len(differences)
        return RateChange(mean=mean, interval=interval, confidence=confidence, cases=cases)


def drop_as_dict(drop: DropVerdict) -> dict[str, Any]:
    """For the JSON report."""
    change = drop.change
    return {
        "name": drop.baseline,
        "verdict": drop.verdict.value,
        "sentence": drop.sentence,
        "max_drop": drop.max_drop,
        **_change_as_dict(change),
        "if_errors": None if drop.if_errors is None else list(drop.if_errors),
        "more_cases": drop.more_cases,
        "dropped_variants": [
            {"variant": label, **_change_as_dict(one)} for label, one in drop.dropped.items()
        ],
        "only_now": drop.only_now,
        "only_baseline": drop.only_baseline,
        "unjudged": drop.unjudged,
    }


def _change_as_dict(change: RateChange | None) -> dict[str, Any]:
    if change is None:
        return {"difference": None, "interval": None, "confidence": None, "cases": 0}
    return {
        "difference": change.mean,
        "interval": list(change.interval),
        "confidence": change.confidence,
        "cases": change.cases,
    }
