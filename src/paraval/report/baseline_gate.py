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

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from paraval.records import Baseline
from paraval.report.compare.case_pairs import Cells, Matchup, Pairs, shared_variants
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.comparison import Interval
from paraval.report.compare.compute import step_of
from paraval.report.compare.early_claims import Missing, state_of
from paraval.report.compare.sentences import signed_points, signed_range
from paraval.report.gate import DropVerdict, GateVerdict, RateChange, tight_percent
from paraval.statistics.anytime import betting_interval, drawn_order
from paraval.statistics.drops import drop_interval, pairs_to_tell
from paraval.text.terminal import to_ascii
from paraval.text.words import counted, listed, variant_label

# The cases of a run beside the same cases of its baseline, in the pairs that comparisons make.


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPairs:
    """A run beside its baseline."""

    whole: Pairs
    """Of a case: the mean over the variants that both have and that are judged on both sides."""
    planned: int
    """Cases that both have, counted or not."""
    variants: Mapping[str, Pairs]
    """By their keys; none where they have only one in common."""
    labels: Mapping[str, str]
    """Of the variants that they have in common, by their keys."""
    exchanged: tuple[str, str] | None = None
    """The labels of the only variants of both, now and before, where these are not the same."""

    @property
    def only_now(self) -> int:
        """Cases that the baseline does not have ..."""
        return len(self.whole.left_out.only_subject)

    @property
    def only_baseline(self) -> int:
        """... that it alone has ..."""
        return len(self.whole.left_out.only_reference)

    @property
    def unjudged(self) -> int:
        """... and that both have, but one of them without a verdict."""
        return len(self.whole.left_out.unjudged)


def drop_pairs(now: CaseBook, baseline: CaseBook) -> DropPairs:
    return _gathered(now, baseline, _cases_of(now, baseline), in_order=False)


def drop_pairs_in_order(now: CaseBook, baseline: CaseBook, seed: int) -> DropPairs:
    """Of runs that may stop early; `seed` drew the order of their cases."""
    order = drawn_order(_cases_of(now, baseline), seed)
    return _gathered(now, baseline, order, in_order=True)


class _Gathering:
    """The pairs of some variants, as their cases come."""

    def __init__(self, matchup: Matchup, *, in_order: bool) -> None:
        self.pairs = Pairs()
        self.planned = 0
        self._matchup = matchup
        self._in_order = in_order
        self._ended = False

    def add(self, case: str, now: Cells, before: Cells) -> None:
        settings = self._matchup.settings(now, before)
        if settings:
            self.planned += 1
            if self._in_order and state_of(settings) is Missing.NOT_YET:
                self._ended = True
            if self._ended:
                return
        self._matchup.add_row(self.pairs, case, now, before)


def _gathered(now: CaseBook, baseline: CaseBook, cases: list[str], *, in_order: bool) -> DropPairs:
    shared = shared_variants(now.variants, baseline.variants)
    whole = _Gathering(Matchup(keys=tuple(shared.items())), in_order=in_order)
    each = {
        pair[0]: _Gathering(Matchup(keys=(pair,)), in_order=in_order)
        for pair in shared.items()
        if len(shared) > 1
    }
    for case in cases:
        rows = _cells(now, case), _cells(baseline, case)
        for gathering in (whole, *each.values()):
            gathering.add(case, *rows)
    return DropPairs(
        whole=whole.pairs,
        planned=whole.planned,
        variants={key: one.pairs for key, one in each.items()},
        labels={key: variant_label(now.variants[key]) for key in shared},
        exchanged=_exchanged(now, baseline) if len(shared) == 1 else None,
    )


def _exchanged(now: CaseBook, baseline: CaseBook) -> tuple[str, str] | None:
    if len(now.variants) > 1 or len(baseline.variants) > 1:
        return None
    (one,), (other,) = now.variants.values(), baseline.variants.values()
    # As texts: 1, 1.0 and True are values of their own.
    if {axis: repr(one[axis]) for axis in one} == {axis: repr(other[axis]) for axis in other}:
        return None
    return variant_label(one), variant_label(other)


def _cases_of(now: CaseBook, baseline: CaseBook) -> list[str]:
    return list(dict.fromkeys(case for book in (now, baseline) for case, _ in book.rows()))


def _cells(book: CaseBook, case: str) -> Cells:
    """With skipped trials as errors: neither has a verdict."""
    return {
        key: cell._replace(errors=cell.errors + cell.skipped)
        for key, cell in book.cells_of(case).items()
    }


# What a gate against a baseline says, without its first words, which are the verdict of all.

NO_VARIANT = "it has no variant in common with the baseline"
NO_ORDER = (
    "one of them may stop early, and they have no known order of cases in common, as runs with the"
    " same seed have"
)
_MOST_NAMED = 3
# Letters, and signs between them that act nowhere: `gpt_4`, `claude@2025`, `small - with-tool`.
_HARMLESS = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9 ,=+/-]|(?<=[A-Za-z0-9])[_@.:](?=[A-Za-z0-9])){0,79}"
)


def points(share: float) -> str:
    """`5 points`, `2.5 points`, `1 point`: what was asked for, so as exactly as that was."""
    number = f"{round(share * 100, 2):g}"
    return f"{number} {'point' if number == '1' else 'points'}"


def name_of(baseline: Baseline) -> str:
    """A run's id, the name of a file, or just what it is."""
    name = to_ascii(Path(baseline.name).name)
    return name if _is_harmless(name) else "the baseline"


def cannot_tell(baseline: Baseline, why: str) -> str:
    return f"{_cannot_tell(baseline)}: {why}"


def nothing_shared(pairs: DropPairs) -> str:
    if pairs.planned:
        return "no case has a verdict in both runs"
    return "it has no case in common with the baseline"


def left_out(pairs: DropPairs) -> Iterator[str]:
    parts = []
    if pairs.only_now:
        parts.append(f"{pairs.only_now:,} only in this run")
    if pairs.only_baseline:
        parts.append(f"{pairs.only_baseline:,} only in the baseline")
    if pairs.unjudged:
        parts.append(f"{pairs.unjudged:,} without a verdict in one of them")
    if parts:
        number = pairs.only_now + pairs.only_baseline + pairs.unjudged
        yield f"{counted(number, 'case')} left out: {listed(parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFigures:
    """What the figures are told with."""

    baseline: Baseline
    planned: int | None = None
    """Cases that both runs have, where one of them may stop early: what is claimed holds at any
    time, and not all of them may count."""
    exchanged: tuple[str, str] | None = None
    """Variants, now and before, that are compared though they are not the same."""

    def met(self, change: RateChange) -> str:
        return (
            f"a drop of more than {points(self.baseline.max_drop)} is ruled out"
            f" ({self._figures(change)})"
        )

    def missed(self, change: RateChange) -> str:
        return (
            f"the pass rate dropped by more than {points(self.baseline.max_drop)}"
            f" ({self._figures(change)})"
        )

    def missed_by(self, dropped: Mapping[str, RateChange]) -> str:
        parts = [f"{_variant(label)} ({self._figures(one)})" for label, one in dropped.items()]
        if (more := len(parts) - _MOST_NAMED) > 0:
            parts[_MOST_NAMED:] = [f"{more:,} more"]
        return (
            f"the pass rate dropped by more than {points(self.baseline.max_drop)}"
            f" with {listed(parts)}"
        )

    def unknown(self, change: RateChange, more: int | None) -> str:
        cannot = f"{_cannot_tell(self.baseline)} ({self._figures(change)})"
        if self.planned is not None:
            return cannot
        if more is None:
            return f"{cannot}; more cases like these could not"
        return f"{cannot}; {counted(more, 'more case', 'more cases')} could"

    def hidden(self, change: RateChange, if_errors: Interval | None) -> str:
        hidden = signed_range(if_errors or (-1.0, 1.0), bound=-self.baseline.max_drop)
        return (
            f"{_cannot_tell(self.baseline)} ({self._figures(change)}): with what errors and skipped"
            f" trials hide, it could be anything from {hidden} points"
        )

    def _figures(self, change: RateChange) -> str:
        sure = tight_percent(change.confidence)
        cases = counted(change.cases, "case")
        if self.planned is not None:
            sure = f"{sure} at any time"
            if self.planned > change.cases:
                cases = f"{change.cases:,} of {counted(self.planned, 'case')}"
        bounds = signed_range(change.interval, bound=-self.baseline.max_drop)
        against = f"{signed_points(change.mean)} against {name_of(self.baseline)}"
        if self.exchanged is not None:
            now, before = self.exchanged
            against += f", {_variant(now)} against {_variant(before, 'another variant')}"
        return f"{against}, {sure}: {bounds}, {cases}"


def _cannot_tell(baseline: Baseline) -> str:
    return f"cannot tell whether the pass rate dropped by more than {points(baseline.max_drop)}"


def _variant(label: str, otherwise: str = "one variant") -> str:
    name = to_ascii(label)
    if not name:
        return "no variant"
    return name if _is_harmless(name) else otherwise


def _is_harmless(name: str) -> bool:
    return _HARMLESS.fullmatch(name) is not None and not name.startswith("www.")


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
    judging = _DropJudge(pairs, baseline, confidence, at_any_time=at_any_time)
    if not pairs.labels:
        return judging.unknown(NO_VARIANT)
    if at_any_time and order_seed is None:
        return judging.unknown(NO_ORDER)
    if not pairs.whole:
        return judging.unknown(nothing_shared(pairs))
    return judging.verdict()


def gone(baseline: Baseline) -> DropVerdict:
    """Of a baseline that was there when the run began, and cannot be read any more."""
    name = name_of(baseline)
    return DropVerdict(
        verdict=GateVerdict.UNKNOWN,
        finding=cannot_tell(baseline, f"{name} cannot be read any more"),
        baseline=baseline.name,
        max_drop=baseline.max_drop,
    )


class _DropJudge:
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
        return self._told(GateVerdict.UNKNOWN, cannot_tell(self._baseline, why))

    def verdict(self) -> DropVerdict:
        whole = self._pairs.whole
        self._change = change = self._change_of(whole, self._confidence)
        planned = self._pairs.planned if self._at_any_time else None
        exchanged = self._pairs.exchanged
        told = DropFigures(baseline=self._baseline, planned=planned, exchanged=exchanged)
        if self._is_dropped(change, whole.if_errors):
            return self._told(GateVerdict.MISSED, told.missed(change))
        if dropped := self._dropped_variants():
            return self._told(GateVerdict.MISSED, told.missed_by(dropped), dropped=dropped)
        if_errors = whole.if_errors
        low, high = change.interval
        # What could be met or missed, were it not for what is missing.
        if high < self._lowest or (
            low > self._lowest and if_errors is not None and if_errors[0] < self._lowest
        ):
            return self._told(GateVerdict.UNKNOWN, told.hidden(change, if_errors))
        if low > self._lowest:
            return self._told(GateVerdict.MET, told.met(change))
        more = None if self._at_any_time else self._more_cases()
        return self._told(GateVerdict.UNKNOWN, told.unknown(change, more), more_cases=more)

    def _told(self, verdict: GateVerdict, finding: str, **figures: Any) -> DropVerdict:
        pairs = self._pairs
        return DropVerdict(
            verdict=verdict,
            finding="; ".join((finding, *left_out(pairs))),
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
