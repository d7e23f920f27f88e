"""Decides when a run may stop early: follows its comparisons as trials end.

Each comparison is a test that may be checked after every case, over the cases in random order.
Results come in any order; a case counts once all before it have ended, so the decision depends only
on the results. The report makes the same comparisons (`report.compare`); the driver handles the
remaining trials.
"""

from __future__ import annotations

import math
from collections import defaultdict

from paraval.records import EARLY_STOP, Outcome, Plan, Trial
from paraval.report.compare.case_pairs import DUST, Matchup
from paraval.report.compare.case_results import variant_key
from paraval.report.compare.early_claims import Missing
from paraval.report.compare.variants import axes_of, contests_of, value_pairs
from paraval.statistics.anytime import MeanTest, drawn_order
from paraval.text.words import counted, percent


class _RepeatCount:
    """A case with a variant: how many repeats have not ended, passed, or were judged."""

    __slots__ = ("judged", "passed", "unended")

    def __init__(self) -> None:
        self.unended = self.passed = self.judged = 0


class _LiveContest:
    """One comparison: the test, and how far it has come."""

    def __init__(self, matchup: Matchup) -> None:
        self.keys = matchup.keys
        self.at = 0
        """Position of the next case in the random order."""
        self.is_decided = self.is_futile = False
        """Futile: not even winning all remaining cases would decide it."""
        self.test = MeanTest()

    @property
    def is_open(self) -> bool:
        return not (self.is_decided or self.is_futile)


class EarlyStop:
    """Follows the results of a run with a stop rule, and decides when the rest need not run."""

    def __init__(self, plan: Plan, seed: int) -> None:
        if plan.stop is None:
            raise ValueError(f"the plan of {plan.name} has no stop rule")
        self._cases = drawn_order(list(dict.fromkeys(t.case.id for t in plan.trials)), seed)
        variants = {variant_key(variant): variant for variant in plan.variants}
        among = len(value_pairs(axes_of(plan.variants)))
        self._confidence = plan.stop.confidence
        self._alpha = (1 - plan.stop.confidence) / max(1, among)
        self._counts: defaultdict[tuple[str, str], _RepeatCount] = defaultdict(_RepeatCount)
        for trial in plan.trials:
            self._count_of(trial).unended += 1
        self._contests = [_LiveContest(contest.matchup) for contest in contests_of(variants)]
        self.is_possible = bool(self._contests) and not MeanTest().is_futile(
            len(self._cases), self._alpha
        )
        """Whether there are enough cases to decide anything at all."""
        self.verdict: str | None = None
        """Why nothing more need run; None: it must."""

    def why_impossible(self) -> str:
        """The reason that `is_possible` is False, for display."""
        if not self._contests:
            return "No early stop: no two variants differ in exactly one axis. Running all of them."
        least = 1
        while MeanTest().is_futile(least, self._alpha):
            least += 1
        return (
            f"No early stop: with {counted(len(self._cases), 'case')} nothing can be decided at"
            f" {percent(self._confidence)} (at least {least:,} are needed). Running all of them."
        )

    def hear(self, trial: Trial, outcome: Outcome) -> None:
        """Take the result of a trial, in any order; skipped trials don't count."""
        if outcome is Outcome.SKIPPED or self.verdict is not None:
            return
        count = self._count_of(trial)
        count.unended -= 1
        count.passed += outcome is Outcome.PASSED
        count.judged += outcome.is_judged
        if count.unended:
            return
        for contest in self._contests:
            if contest.is_open and self._cases[contest.at] == trial.case.id:
                self._advance(contest)
        if self.is_possible and not any(contest.is_open for contest in self._contests):
            self.verdict = self._in_words()

    def _count_of(self, trial: Trial) -> _RepeatCount:
        return self._counts[trial.case.id, variant_key(trial.variant)]

    def _advance(self, contest: _LiveContest) -> None:
        while contest.is_open:
            difference = self._difference(self._cases[contest.at], contest)
            if difference is Missing.NOT_YET:
                return
            contest.at += 1
            if not isinstance(difference, Missing):
                contest.test.add(difference)
            contest.is_decided = contest.test.is_decided(self._alpha)
            left = len(self._cases) - contest.at
            contest.is_futile = not contest.is_decided and contest.test.is_futile(left, self._alpha)

    def _difference(self, case: str, contest: _LiveContest) -> float | Missing:
        """How much more of a case the subject passes; every setting counts the same."""
        gaps: list[float] = []
        for one, other in contest.keys:
            subject, reference = self._counts[case, one], self._counts[case, other]
            if subject.unended or reference.unended:
                return Missing.NOT_YET
            if subject.judged and reference.judged:
                gaps.append(subject.passed / subject.judged - reference.passed / reference.judged)
        if not gaps:
            return Missing.ENDED_WITHOUT
        mean = math.fsum(gaps) / len(gaps)
        return 0.0 if abs(mean) < DUST else mean

    def _in_words(self) -> str:
        after = max(contest.at for contest in self._contests)
        cases = f"after {after:,} of {counted(len(self._cases), 'case')}"
        decided = sum(contest.is_decided for contest in self._contests)
        if decided == len(self._contests):
            return f"{EARLY_STOP}: decided {cases}"
        if not decided:
            return f"{EARLY_STOP}: a difference can no longer be shown (futile) {cases}"
        return (
            f"{EARLY_STOP}: {decided:,} of {len(self._contests):,} comparisons decided {cases};"
            " in the others a difference can no longer be shown (futile)"
        )
