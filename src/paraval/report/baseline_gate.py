"""Whether the pass rate dropped against a baseline by more than allowed: paired cases, a verdict
and a sentence.

The verdict comes from the interval of the drop, over cases: failed if such a drop is shown, passed
if it is ruled out, and undecided in between. Over the whole run one variant may hide behind the
others, so a single variant with such a drop fails the gate; the more variants there are, the more
certain that must be (Holm). Missing verdicts are not failures: their pairs are left out, and if
they could change the verdict, it is undecided.

If one of the runs may stop early, only claims that are valid at any time are made: about the first
cases in the drawn order, with the intervals that comparisons of such runs use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from paraval.dataclass import dataclass
from paraval.records import Baseline
from paraval.report.compare.case_pairs import Matchup, Pairs, Row, row_of, shared_variants
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.claims import signed_points, signed_range
from paraval.report.compare.comparison import Interval
from paraval.report.compare.compute import step_of
from paraval.report.compare.early_claims import Missing, state_of
from paraval.report.gate import SPOKEN, DropVerdict, GateVerdict, VariantDrop
from paraval.statistics.anytime import betting_interval, drawn_order
from paraval.statistics.drops import drop_interval, pairs_to_tell
from paraval.text.terminal import to_ascii
from paraval.text.words import counted, listed, percent, variant_label

CONFIDENCE = 0.95
NO_VARIANT = "no variant in common"
NO_ORDER = (
    "one of the runs may stop early, and they have no known case order in common, as runs with the"
    " same seed have"
)
_MOST_NAMED = 3
# Letters, and signs between them without effect in Markdown: `gpt_4`, `small - with-tool`.
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
    None if unknown, or if both runs may stop and drew different orders."""
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
        return judge.unknown("no case in common")
    if not whole:
        return judge.unknown("no case has a verdict in both runs")
    return judge.verdict()


def gone(baseline: Baseline) -> DropVerdict:
    """The verdict if the baseline existed when the run began, but can no longer be read."""
    return DropVerdict(
        verdict=GateVerdict.UNKNOWN,
        finding=f"{_undecided(baseline)}: the baseline can no longer be read",
        name=baseline.name,
        max_drop=baseline.max_drop or 0.0,
    )


# The cases of a run paired with those of its baseline, as comparisons pair them.


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


def _exchanged(now: CaseBook, baseline: CaseBook) -> tuple[str, str] | None:
    """The labels of the only variants, now and before, if they differ."""
    if not len(now.variants) == len(baseline.variants) == 1:
        return None
    (one,), (other,) = now.variants.values(), baseline.variants.values()
    # As texts: 1, 1.0 and True are different values.
    if {axis: repr(one[axis]) for axis in one} == {axis: repr(other[axis]) for axis in other}:
        return None
    return variant_label(one), variant_label(other)


class Change(NamedTuple):
    """The fields of a RateChange, where something could be compared."""

    difference: float
    interval: Interval
    confidence: float
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _DropJudge:
    """Turns pairs into a verdict and its finding."""

    baseline: Baseline
    confidence: float
    at_any_time: bool
    whole: Pairs
    planned: int
    """Cases that both have, counted or not."""
    variants: Sequence[tuple[str, Pairs]]
    """With their labels; empty if they have only one in common."""
    exchanged: tuple[str, str] | None

    @property
    def max_drop(self) -> float:
        return self.baseline.max_drop or 0.0

    def unknown(self, why: str) -> DropVerdict:
        """The verdict if there is nothing to judge by."""
        return self._drop(GateVerdict.UNKNOWN, f"{_undecided(self.baseline)}: {why}", None)

    def verdict(self) -> DropVerdict:
        change = self._change_of(self.whole, self.confidence)
        figures, lowest = self._figures(change), -self.max_drop
        allowed, against = points(self.max_drop), f"against {name_of(self.baseline)}"
        dropped_by = f"pass rate dropped by more than {allowed} {against}"
        if_errors = self.whole.if_errors
        if self._is_dropped(change, if_errors):
            return self._drop(GateVerdict.MISSED, f"{dropped_by} ({figures})", change)
        if dropped := self._dropped_variants():
            finding = f"{dropped_by} with {self._variants(dropped)}"
            drops = tuple(VariantDrop(variant=one, **of._asdict()) for one, of in dropped.items())
            return self._drop(GateVerdict.MISSED, finding, change, dropped_variants=drops)
        low, high = change.interval
        undecided = f"{_undecided(self.baseline)} ({figures}; allowed {allowed})"
        # It would be passed or failed, were it not for missing verdicts.
        if high < lowest or (low > lowest and if_errors is not None and if_errors[0] < lowest):
            hidden = signed_range(if_errors or (-1.0, 1.0))
            finding = f"{undecided}: errors and skipped trials could make it {hidden} points"
            return self._drop(GateVerdict.UNKNOWN, finding, change)
        if low > lowest:
            finding = f"no drop of more than {allowed} {against} ({figures})"
            return self._drop(GateVerdict.MET, finding, change)
        suggestion = ""
        if self.baseline.max_regressed is None:
            suggestion = "; max_regressed: 0 decides with any number of cases if answers don't vary"
        if self.at_any_time:
            return self._drop(GateVerdict.UNKNOWN, undecided + suggestion, change)
        step = step_of(self.whole)
        more = pairs_to_tell(self.whole.differences, lowest, self.confidence, step=step)
        if more is not None:
            # Another sample of as many cases would name another number.
            more = math.ceil(float(f"{more:.0e}"))
            likely = SPOKEN[GateVerdict.MET if change.difference > lowest else GateVerdict.MISSED]
            undecided += f"; about {counted(more, 'more case')} would probably decide it: {likely}"
        finding = f"{undecided}{suggestion}"
        return self._drop(GateVerdict.UNKNOWN, finding, change, more_cases=more)

    def _drop(
        self, verdict: GateVerdict, finding: str, change: Change | None, **figures: Any
    ) -> DropVerdict:
        left_out = self.whole.left_out
        if change is not None:
            figures |= change._asdict()
        return DropVerdict(
            verdict=verdict,
            finding="; ".join((finding, *self._left_out())),
            name=self.baseline.name,
            max_drop=self.max_drop,
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
                (left_out.unjudged, "without a verdict in one of the runs"),
            )
            if cases
        ]
        if parts:
            yield f"{counted(left_out.cases, 'case')} left out: {listed(parts)}"

    def _figures(self, change: Change) -> str:
        cases = counted(change.cases, "case")
        if self.at_any_time and self.planned > change.cases:
            cases = f"{change.cases:,} of {counted(self.planned, 'case')}"
        bounds = signed_range(change.interval)
        interval = f"{percent(change.confidence)} CI {bounds}{' at any time' * self.at_any_time}"
        difference = signed_points(change.difference)
        if self.exchanged is not None:
            now, before = self.exchanged
            difference += f", {_variant(now)} vs {_variant(before, 'another variant')}"
        return f"{difference}, {interval}, {cases}"

    def _variants(self, dropped: Mapping[str, Change]) -> str:
        parts = [f"{_variant(label)} ({self._figures(one)})" for label, one in dropped.items()]
        if (more := len(parts) - _MOST_NAMED) > 0:
            parts[_MOST_NAMED:] = [f"{more:,} more"]
        return listed(parts)

    def _is_dropped(self, change: Change, if_errors: Interval | None) -> bool:
        lowest = -self.max_drop
        hidden = if_errors is not None and if_errors[1] >= lowest
        return change.interval[1] < lowest and not hidden

    def _dropped_variants(self) -> Mapping[str, Change]:
        """By Holm's method: the most certain first, each tested against all that are left."""
        left = [(label, pairs) for label, pairs in self.variants if pairs]
        dropped: dict[str, Change] = {}
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

    def _change_of(self, pairs: Pairs, confidence: float) -> Change:
        differences = pairs.differences
        if self.at_any_time:
            mean, interval = fmean(differences), betting_interval(differences, confidence)
        else:
            mean, low, high = drop_interval(differences, confidence, step=step_of(pairs))
            interval = (low, high)
        cases = len(differences)
        return Change(difference=mean, interval=interval, confidence=confidence, cases=cases)


def points(share: float) -> str:
    """`5 points`, `2.5 points`, `1 point`: as exact as it was given."""
    number = f"{round(share * 100, 2):g}"
    return f"{number} {'point' if number == '1' else 'points'}"


def name_of(baseline: Baseline) -> str:
    """The baseline's run id or file name, if it is safe to show."""
    return harmless(Path(baseline.name).name) or "the baseline"


def _undecided(baseline: Baseline) -> str:
    return f"drop against {name_of(baseline)} undecided"


def _variant(label: str, otherwise: str = "one variant") -> str:
    return (harmless(label) or otherwise) if to_ascii(label) else "no variant"


def harmless(name: str) -> str:
    """The name in ASCII, if it has no effect in Markdown or on a terminal; else empty."""
    name = to_ascii(name)
    return name if _HARMLESS.fullmatch(name) and not name.startswith("www.") else ""
