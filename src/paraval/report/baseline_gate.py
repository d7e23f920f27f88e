"""Whether the pass rate dropped against a baseline by more than it may: paired cases, a verdict, a
sentence.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from paraval.codec import Style, picked, to_data
from paraval.records import Baseline
from paraval.report.compare.case_pairs import Matchup, Pairs, Row, row_of, shared_variants
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.comparison import Interval
from paraval.report.compare.compute import step_of
from paraval.report.compare.early_claims import Missing, state_of
from paraval.report.compare.sentences import signed_points, signed_range
from paraval.report.formats.json_schema import DropEntry, VariantDropEntry
from paraval.report.gate import DropVerdict, GateVerdict, RateChange, tight_percent
from paraval.statistics.anytime import betting_interval, drawn_order
from paraval.statistics.drops import drop_interval, pairs_to_tell
from paraval.text.terminal import to_ascii
from paraval.text.words import counted, listed, variant_label

CONFIDENCE = 0.95
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
    shared = shared_variants(subject.variants, reference.variants)
    seed = order_seed if at_any_time else None
    whole, planned = _pairs(subject, reference, Matchup(keys=tuple(shared.items())), seed)
    judge = _DropJudge(
        baseline=baseline,
        confidence=confidence,
        at_any_time=at_any_time,
        whole=whole,
        planned=planned,
        variants=[
            (
                variant_label(subject.variants[key]),
                _pairs(subject, reference, Matchup(keys=((key, its),)), seed)[0],
            )
            for key, its in shared.items()
            if len(shared) > 1
        ],
        exchanged=_exchanged(subject, reference),
    )
    if not shared:
        return judge.unknown(NO_VARIANT)
    if at_any_time and order_seed is None:
        return judge.unknown(NO_ORDER)
    if not planned:
        return judge.unknown("it has no case in common with the baseline")
    if not whole:
        return judge.unknown("no case has a verdict in both runs")
    return judge.verdict()


def gone(baseline: Baseline) -> DropVerdict:
    """Of a baseline that was there when the run began, and cannot be read any more."""
    return DropVerdict(
        verdict=GateVerdict.UNKNOWN,
        finding=f"{_cannot_tell(baseline)}: {_name_of(baseline)} cannot be read any more",
        baseline=baseline.name,
        max_drop=baseline.max_drop,
    )


# The cases of a run beside the same cases of its baseline, in the pairs that comparisons make.


def _pairs(
    now: CaseBook, before: CaseBook, matchup: Matchup, order_seed: int | None
) -> tuple[Pairs, int]:
    """Of a case: the mean over the variants that are judged on both sides. And how many cases both
    have, counted or not: in a drawn order, those count up to the first that has not ended."""
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
    """With skipped trials as errors: neither has a verdict."""
    cells = book.cells_of(case).items()
    return row_of({key: one._replace(errors=one.errors + one.skipped) for key, one in cells})


def _exchanged(now: CaseBook, baseline: CaseBook) -> tuple[str, str] | None:
    """The labels of the only variants of both, now and before, where these are not the same."""
    if not len(now.variants) == len(baseline.variants) == 1:
        return None
    (one,), (other,) = now.variants.values(), baseline.variants.values()
    # As texts: 1, 1.0 and True are values of their own.
    if {axis: repr(one[axis]) for axis in one} == {axis: repr(other[axis]) for axis in other}:
        return None
    return variant_label(one), variant_label(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DropJudge:
    """From pairs to a verdict, in a sentence without its first words, which are the verdict."""

    baseline: Baseline
    confidence: float
    at_any_time: bool
    whole: Pairs
    planned: int
    """Cases that both have, counted or not."""
    variants: Sequence[tuple[str, Pairs]]
    """With their labels; none where they have only one in common."""
    exchanged: tuple[str, str] | None

    def unknown(self, why: str) -> DropVerdict:
        """Where there is nothing to judge by."""
        return self._told(GateVerdict.UNKNOWN, f"{_cannot_tell(self.baseline)}: {why}", None)

    def verdict(self) -> DropVerdict:
        change = self._change_of(self.whole, self.confidence)
        figures, lowest = self._figures(change), -self.baseline.max_drop
        dropped_by = f"the pass rate dropped by more than {points(self.baseline.max_drop)}"
        if_errors = self.whole.if_errors
        if self._is_dropped(change, if_errors):
            return self._told(GateVerdict.MISSED, f"{dropped_by} ({figures})", change)
        if dropped := self._dropped_variants():
            finding = f"{dropped_by} with {self._variants(dropped)}"
            return self._told(GateVerdict.MISSED, finding, change, dropped=dropped)
        low, high = change.interval
        cannot = f"{_cannot_tell(self.baseline)} ({figures})"
        # What could be met or missed, were it not for what is missing.
        if high < lowest or (low > lowest and if_errors is not None and if_errors[0] < lowest):
            hidden = signed_range(if_errors or (-1.0, 1.0), bound=lowest)
            finding = (
                f"{cannot}: with what errors and skipped trials hide, it could be anything from"
                f" {hidden} points"
            )
            return self._told(GateVerdict.UNKNOWN, finding, change)
        if low > lowest:
            ruled_out = f"a drop of more than {points(self.baseline.max_drop)} is ruled out"
            return self._told(GateVerdict.MET, f"{ruled_out} ({figures})", change)
        if self.at_any_time:
            return self._told(GateVerdict.UNKNOWN, cannot, change)
        step = step_of(self.whole)
        more = pairs_to_tell(self.whole.differences, lowest, self.confidence, step=step)
        could = "more cases like these could not"
        if more is not None:
            could = f"{counted(more, 'more case', 'more cases')} could"
        return self._told(GateVerdict.UNKNOWN, f"{cannot}; {could}", change, more_cases=more)

    def _told(
        self, verdict: GateVerdict, finding: str, change: RateChange | None, **figures: Any
    ) -> DropVerdict:
        left_out = self.whole.left_out
        return DropVerdict(
            verdict=verdict,
            finding="; ".join((finding, *self._left_out())),
            baseline=self.baseline.name,
            max_drop=self.baseline.max_drop,
            change=change,
            if_errors=self.whole.if_errors,
            only_now=len(left_out.only_subject),
            only_baseline=len(left_out.only_reference),
            unjudged=len(left_out.unjudged),
            **figures,
        )

    def _left_out(self) -> Iterator[str]:
        left_out = self.whole.left_out
        parts = [
            f"{len(cases):,} {where}"
            for cases, where in (
                (left_out.only_subject, "only in this run"),
                (left_out.only_reference, "only in the baseline"),
                (left_out.unjudged, "without a verdict in one of them"),
            )
            if cases
        ]
        if parts:
            yield f"{counted(left_out.cases, 'case')} left out: {listed(parts)}"

    def _figures(self, change: RateChange) -> str:
        sure = tight_percent(change.confidence)
        cases = counted(change.cases, "case")
        if self.at_any_time:
            sure = f"{sure} at any time"
            if self.planned > change.cases:
                cases = f"{change.cases:,} of {counted(self.planned, 'case')}"
        bounds = signed_range(change.interval, bound=-self.baseline.max_drop)
        against = f"{signed_points(change.mean)} against {_name_of(self.baseline)}"
        if self.exchanged is not None:
            now, before = self.exchanged
            against += f", {_variant(now)} against {_variant(before, 'another variant')}"
        return f"{against}, {sure}: {bounds}, {cases}"

    def _variants(self, dropped: Mapping[str, RateChange]) -> str:
        parts = [f"{_variant(label)} ({self._figures(one)})" for label, one in dropped.items()]
        if (more := len(parts) - _MOST_NAMED) > 0:
            parts[_MOST_NAMED:] = [f"{more:,} more"]
        return listed(parts)

    def _is_dropped(self, change: RateChange, if_errors: Interval | None) -> bool:
        lowest = -self.baseline.max_drop
        hidden = if_errors is not None and if_errors[1] >= lowest
        return change.interval[1] < lowest and not hidden

    def _dropped_variants(self) -> Mapping[str, RateChange]:
        """By Holm: the surest first, each as sure as all that are left ask for."""
        left = [(label, pairs) for label, pairs in self.variants if pairs]
        dropped: dict[str, RateChange] = {}
        while left:
            confidence = 1 - (1 - self.confidence) / len(left)
            still = []
            for label, pairs in left:
                change = self._change_of(pairs, confidence)
                if self._is_dropped(change, pairs.if_errors):
                    dropped[label] = change
                else:
                    still.append((label, pairs))
            if len(still) == len(left):
                break
            left = still
        return dropped

    def _change_of(self, pairs: Pairs, confidence: float) -> RateChange:
        differences = pairs.differences
        if self.at_any_time:
            mean, interval = fmean(differences), betting_interval(differences, confidence)
        else:
            mean, low, high = drop_interval(differences, confidence, step=step_of(pairs))
            interval = (low, high)
        cases = len(differences)
        return RateChange(mean=mean, interval=interval, confidence=confidence, cases=cases)


def points(share: float) -> str:
    """`5 points`, `2.5 points`, `1 point`: what was asked for, so as exactly as that was."""
    number = f"{round(share * 100, 2):g}"
    return f"{number} {'point' if number == '1' else 'points'}"


def _name_of(baseline: Baseline) -> str:
    """A run's id, the name of a file, or just what it is."""
    name = to_ascii(Path(baseline.name).name)
    return name if _is_harmless(name) else "the baseline"


def _cannot_tell(baseline: Baseline) -> str:
    return f"cannot tell whether the pass rate dropped by more than {points(baseline.max_drop)}"


def _variant(label: str, otherwise: str = "one variant") -> str:
    name = to_ascii(label)
    if not name:
        return "no variant"
    return name if _is_harmless(name) else otherwise


def _is_harmless(name: str) -> bool:
    return _HARMLESS.fullmatch(name) is not None and not name.startswith("www.")


def drop_as_dict(drop: DropVerdict) -> dict[str, Any]:
    return to_data(drop_entry(drop), Style.SHOWN)


def drop_entry(drop: DropVerdict) -> DropEntry:
    """For the JSON report."""
    return picked(
        DropEntry,
        drop,
        name=drop.baseline,
        dropped_variants=tuple(
            VariantDropEntry(variant=label, **_change(one)) for label, one in drop.dropped.items()
        ),
        **_change(drop.change),
    )


def _change(change: RateChange | None) -> dict[str, Any]:
    """The fields of a RateChangeEntry."""
    if change is None:
        return dict.fromkeys(("difference", "interval", "confidence")) | {"cases": 0}
    return {
        "difference": change.mean,
        "interval": change.interval,
        "confidence": change.confidence,
        "cases": change.cases,
    }
