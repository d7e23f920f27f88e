"""When a run may stop before its plan ends: its comparisons, followed as trials end.

Each is a test that may be looked at after every case, over the cases in drawn order. Results come
in any order; a case counts once all before it have come to an end, so that what is decided depends
on nothing but the results. The report makes the same comparisons (`report.comparing`); what becomes
of the trials that are left is the driver's.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from paraval.records import EARLY_STOP, Outcome, Plan, Trial, Variant
from paraval.report.compare.early_claims import Missing
from paraval.report.compare.variants import ValuePair, axes_of, value_pairs
from paraval.report.summary.summary import variant_key
from paraval.statistics.anytime import MeanTest, drawn_order
from paraval.text.words import counted, percent

Setting = tuple[int, int]
"""The numbers of two variants that differ in nothing but the values that are compared."""

_DUST = 1e-12
"""What rounding leaves of thirds and tenths."""


class _ComparisonState(Enum):
    """How a comparison stands."""

    OPEN = "open"
    DECIDED = "decided"
    FUTILE = "futile"
    """Not even winning all that is left would decide it."""


class _LiveComparison:
    """One comparison: the test, and how far it has come."""

    def __init__(self, settings: Sequence[Setting], cases: int, alpha: float) -> None:
        self.settings = settings
        self.at = 0
        """The place of the next case in the drawn order."""
        self.state = _ComparisonState.OPEN
        self._cases = cases
        self._alpha = alpha
        self._test = MeanTest()

    def take(self, difference: float | Missing) -> None:
        """The next case."""
        self.at += 1
        if not isinstance(difference, Missing):
            self._test.add(difference)
        if self._test.is_decided(self._alpha):
            self.state = _ComparisonState.DECIDED
        elif self._test.is_futile(self._cases - self.at, self._alpha):
            self.state = _ComparisonState.FUTILE


class _Cells:
    """A case with a variant, in three numbers: repeats that have not ended, passed, were judged."""

    def __init__(self, variants: int, cases: int) -> None:
        self._variants = variants
        self._counts = array("I", bytes(4 * 3 * variants * cases))

    def expect(self, case: int, variant: int) -> None:
        self._counts[self._place(case, variant)] += 1

    def end(self, case: int, variant: int, outcome: Outcome) -> bool:
        """Counts a repeat; True where it was the last."""
        place = self._place(case, variant)
        self._counts[place] -= 1
        self._counts[place + 1] += outcome is Outcome.PASSED
        self._counts[place + 2] += outcome.is_judged
        return self._counts[place] == 0

    def difference(self, case: int, settings: Sequence[Setting]) -> float | Missing:
        """What the subject passes more of a case; every setting counts the same."""
        gaps: list[float] = []
        for one, other in settings:
            unended, passed, judged = self._of(case, one)
            other_unended, other_passed, other_judged = self._of(case, other)
            if unended or other_unended:
                return Missing.NOT_YET
            if judged and other_judged:
                gaps.append(passed / judged - other_passed / other_judged)
        if not gaps:
            return Missing.ENDED_WITHOUT
        mean = math.fsum(gaps) / len(gaps)
        return 0.0 if abs(mean) < _DUST else mean

    def _of(self, case: int, variant: int) -> Sequence[int]:
        place = self._place(case, variant)
        return self._counts[place : place + 3]

    def _place(self, case: int, variant: int) -> int:
        return 3 * (case * self._variants + variant)


class EarlyStop:
    """Hears the results of a run with a stop rule, and says when the rest need not run."""

    def __init__(self, plan: Plan, seed: int) -> None:
        if plan.stop is None:
            raise ValueError(f"the plan of {plan.name} has no rule to stop by")
        cases = drawn_order(list(dict.fromkeys(trial.case.id for trial in plan.trials)), seed)
        pairs = value_pairs(axes_of(plan.variants))
        self._confidence = plan.stop.confidence
        self._alpha = (1 - plan.stop.confidence) / max(1, len(pairs))
        self._places = {case: place for place, case in enumerate(cases)}
        self._numbers = {variant_key(one): number for number, one in enumerate(plan.variants)}
        self._cells = _Cells(len(plan.variants), len(cases))
        for trial in plan.trials:
            self._cells.expect(*self._cell_of(trial))
        self._contests = [
            _LiveComparison(settings, len(cases), self._alpha)
            for pair in pairs
            if (settings := list(_settings(pair, plan.variants)))
        ]
        self._by_variant: Mapping[int, list[_LiveComparison]] = {
            number: [
                contest
                for contest in self._contests
                if any(number in setting for setting in contest.settings)
            ]
            for number in self._numbers.values()
        }
        self.is_possible = bool(self._contests) and not MeanTest().is_futile(
            len(cases), self._alpha
        )
        """Whether there are enough cases to decide anything, whatever comes."""
        self.verdict: str | None = None
        """Why nothing more need run; None: it must."""

    def why_impossible(self) -> str:
        """For a person to read, where it is not."""
        if not self._contests:
            return "No early stop: no two variants differ in one axis alone. All of them run."
        least = 1
        while MeanTest().is_futile(least, self._alpha):
            least += 1
        return (
            f"No early stop: with {counted(len(self._places), 'case')} nothing can be decided at"
            f" {percent(self._confidence)} ({least:,} are needed at least). All of them run."
        )

    def hear(self, trial: Trial, outcome: Outcome) -> None:
        """The result of a trial, in whatever order; what was skipped has not run."""
        if outcome is Outcome.SKIPPED or self.verdict is not None:
            return
        case, variant = self._cell_of(trial)
        if not self._cells.end(case, variant, outcome):
            return
        for contest in self._by_variant[variant]:
            if contest.at == case:
                self._advance(contest)
        if self.is_possible and not any(
            one.state is _ComparisonState.OPEN for one in self._contests
        ):
            self.verdict = self._in_words()

    def _cell_of(self, trial: Trial) -> tuple[int, int]:
        return self._places[trial.case.id], self._numbers[variant_key(trial.variant)]

    def _advance(self, contest: _LiveComparison) -> None:
        while contest.state is _ComparisonState.OPEN:
            difference = self._cells.difference(contest.at, contest.settings)
            if difference is Missing.NOT_YET:
                return
            contest.take(difference)

    def _in_words(self) -> str:
        after = max(contest.at for contest in self._contests)
        cases = f"after {after:,} of {counted(len(self._places), 'case')}"
        decided = sum(contest.state is _ComparisonState.DECIDED for contest in self._contests)
        if decided == len(self._contests):
            return f"{EARLY_STOP}: decided {cases}"
        if not decided:
            return f"{EARLY_STOP}: no difference can be shown any more (futile) {cases}"
        return (
            f"{EARLY_STOP}: {decided:,} of {len(self._contests):,} comparisons decided {cases};"
            " in the others no difference can be shown any more (futile)"
        )


def _settings(pair: ValuePair, variants: Sequence[Variant]) -> Iterator[Setting]:
    """The variants that stand against each other: all other choices are the same."""
    references = {
        _others(variant, pair.axis): number
        for number, variant in enumerate(variants)
        if repr(variant.get(pair.axis)) == repr(pair.reference)
    }
    for number, variant in enumerate(variants):
        others = _others(variant, pair.axis)
        if repr(variant.get(pair.axis)) == repr(pair.subject) and others in references:
            yield number, references[others]


def _others(variant: Variant, axis: str) -> str:
    return repr([(name, value) for name, value in variant.items() if name != axis])
