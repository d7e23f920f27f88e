"""Two runs, or parts of them, compared with each other; and what else differs between them.

`case_pairs` pairs cases and `compute` evaluates the pairs. This module adds what is specific to two
runs: which variants they share, and which claims are valid if one of them stopped early.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import Outcome, RunInfo, TrialResult, Variant
from paraval.report.compare.case_pairs import (
    Matchup,
    PairedBooks,
    Pairs,
    UnpairableError,
    pair_books,
    pairs_of_each,
)
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.claims import Quote
from paraval.report.compare.comparison import Comparison, Side
from paraval.report.compare.compute import adjusted, compare, resamples_for
from paraval.report.compare.early_claims import TwoBooks, compared_at_any_time
from paraval.report.contents import Choice, Contents, order_seed_of
from paraval.report.summary.figures import WITHOUT_MATRIX
from paraval.report.summary.tally import Summary
from paraval.text.words import counted, listed, variant_label


class ComparedMetric(StrEnum):
    """The metric of the headline."""

    PASS = "pass"  # noqa: S105 - no secret
    SCORE = "score"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonQuestion:
    """How to compare: confidence level, seed and metric."""

    confidence: float = 0.95
    seed: int = 0
    metric: ComparedMetric = ComparedMetric.PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonSide:
    """One side of a comparison: a run, a file, or a part of one."""

    label: str
    """Its name in sentences."""
    name: str
    """A run's id, or a file as given by the user."""
    contents: Contents
    choice: Choice = field(default_factory=dict)
    tells_run: bool = True
    """False if its suite and run are unknown, as for a .jsonl file."""

    @property
    def run(self) -> RunInfo:
        return self.contents.run

    @property
    def is_stored(self) -> bool:
        """Whether `paraval show` finds it by its name."""
        return self.name == self.run.id

    @property
    def summary(self) -> Summary:
        return self.contents.summary

    @property
    def is_stopped_early(self) -> bool:
        """Whether it stopped, or may stop, early: then the sample size depends on the results."""
        return self.contents.may_have_stopped

    @property
    def side(self) -> Side:
        return Side(label=self.label, choice=dict(self.choice), run=self.name)


class SideComparison:
    """The subject compared with the reference."""

    def __init__(
        self, subject: ComparisonSide, reference: ComparisonSide, question: ComparisonQuestion
    ) -> None:
        """Raises RequestError if the two cannot be compared."""
        self.subject = subject
        self.reference = reference
        self.question = question
        if question.metric is ComparedMetric.SCORE and not self.has_same_graders:
            raise RequestError(
                "scores cannot be compared: the two runs have different graders",
                hint="leave out --metric score to compare pass rates",
            )
        self._paired = _paired(subject, reference)

    @cached_property
    def comparison(self) -> Comparison:
        """The comparison over all cases and variants that both have."""
        if not self.is_any_time:
            return self._at_the_end(self._paired.pairs, among=1)
        keys = tuple(key for matchup in self._paired.matchups for key in matchup.keys)
        return self._at_any_time(Matchup(keys=keys), among=1)

    @cached_property
    def by_variant(self) -> tuple[tuple[Variant, Comparison], ...]:
        """Each shared variant by itself, adjusted for their number; empty if there is only one."""
        number = len(self._paired.shared)
        if number < 2:
            return ()
        matchups = self._paired.matchups
        if self.is_any_time:
            each = tuple(self._at_any_time(matchup, among=number) for matchup in matchups)
        else:
            gathered = pairs_of_each(*self._books, matchups)
            each = adjusted([self._at_the_end(pairs, among=number) for pairs in gathered])
        return tuple(zip(self._paired.shared, each, strict=True))

    @property
    def is_any_time(self) -> bool:
        """Whether a side may have stopped early: then claims must be valid at any time."""
        return self.subject.is_stopped_early or self.reference.is_stopped_early

    @property
    def order_seed(self) -> int | None:
        """The seed that drew the case order of sides that stopped early, if known and unique."""
        sides = (self.subject, self.reference)
        return order_seed_of(one.run for one in sides if one.is_stopped_early)

    @property
    def has_same_graders(self) -> bool:
        """False if graders are known to differ: then their scores measure different things."""
        now, before = (one.run.parts.get("graders") for one in (self.subject, self.reference))
        return now is None or before is None or now == before

    @property
    def only_subject(self) -> tuple[str, ...]:
        """Labels of variants that only the subject has."""
        return tuple(_label(one) for one in self._paired.only_subject)

    @property
    def only_reference(self) -> tuple[str, ...]:
        return tuple(_label(one) for one in self._paired.only_reference)

    @property
    def leaves_out(self) -> bool:
        """Whether a side has cases or variants that are not compared."""
        paired = self._paired
        return bool(self.comparison.left_out.cases or paired.only_subject or paired.only_reference)

    @property
    def _books(self) -> tuple[CaseBook, CaseBook]:
        return self.subject.contents.book, self.reference.contents.book

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.subject.side, self.reference.side

    def _at_any_time(self, matchup: Matchup, *, among: int) -> Comparison:
        subject, reference = self._books
        return compared_at_any_time(
            TwoBooks(subject=subject, reference=reference, matchup=matchup),
            self._sides,
            self.order_seed,
            confidence=self.question.confidence,
            among=among,
        )

    def _at_the_end(self, pairs: Pairs, *, among: int) -> Comparison:
        comparison = compare(
            pairs,
            *self._sides,
            confidence=self.question.confidence,
            seed=self.question.seed,
            resamples=resamples_for(len(pairs), among),
        )
        return comparison if self.has_same_graders else replace(comparison, score=None)


def _paired(subject: ComparisonSide, reference: ComparisonSide) -> PairedBooks:
    one, other = subject.contents.book, reference.contents.book
    if not (len(one) and len(other)):
        # A run without trials is not a wrong request, but there is nothing to compare.
        return PairedBooks(
            pairs=Pairs(), shared=(), only_subject=(), only_reference=(), matchups=()
        )
    try:
        return pair_books(one, other)
    except UnpairableError:
        hint = "choose one of each: paraval compare A:AXIS=VALUE B:AXIS=VALUE"
        message = f"{subject.label} and {reference.label} have no variant in common"
        raise RequestError(message, hint=hint) from None


def _label(variant: Variant) -> str:
    return variant_label(variant) or WITHOUT_MATRIX


LONGEST_ANSWER = 20_000
"""Characters of an answer that are kept of a case that changed."""


def first_ended(contents: Contents, wanted: Mapping[str, Outcome]) -> dict[str, TrialResult]:
    """The first trial of each of these cases that ended as wanted, with the beginning of its
    answer. A name is a case's id, or `case · variant`."""
    found: dict[str, TrialResult] = {}
    if not wanted:
        return found
    for result in contents.trials:
        case = result.case_id
        for name in {case, f"{case} · {variant_label(result.variant)}"} & wanted.keys():
            if result.outcome is wanted[name] and name not in found:
                found[name] = _shortened(result)
        if len(found) == len(wanted):
            break
    return found


def _shortened(result: TrialResult) -> TrialResult:
    output = result.result.output
    if output is None or len(output.text) <= LONGEST_ANSWER:
        return result
    more = counted(len(output.text) - LONGEST_ANSWER, "more character")
    short = replace(output, text=f"{output.text[:LONGEST_ANSWER]}\n… {more}")
    return replace(result, result=replace(result.result, output=short))


# ---- what else differs between two sides, and may explain a result


def notices_of(versus: SideComparison, quote: Quote) -> Iterator[str]:
    """What else to know about the two sides, each a sentence."""
    subject, reference = versus.subject, versus.reference
    if subject.tells_run and reference.tells_run:
        if subject.run.suite != reference.run.suite:
            names = f"{quote(reference.run.suite)} and {quote(subject.run.suite)}"
            yield f"The runs are of different suites, {names}: cases are paired by id only."
        now, before = subject.run.parts, reference.run.parts
        parts = dict.fromkeys((*before, *now)) if now and before else ()
        changed = [quote(name) for name in parts if now.get(name) != before.get(name)]
        if changed and subject.run.id != reference.run.id:
            yield f"Changed between the runs: {listed(changed)}."
        if not versus.has_same_graders:
            yield "Scores are not compared: the two runs have different graders."
    for side in (reference, subject):
        yield from _unfinished(side, quote)
    for side, variants in (
        (reference, versus.only_reference),
        (subject, versus.only_subject),
    ):
        if variants:
            only = f"{counted(len(variants), 'variant')} only in {quote(side.label)}"
            more = [f"{len(variants) - 5:,} more"] if len(variants) > 5 else []
            yield f"Left out, {only}: {listed([*map(quote, variants[:5]), *more])}."
    if versus.is_any_time:
        stopped = [one for one in (reference, subject) if one.is_stopped_early]
        names = listed(dict.fromkeys(quote(one.name) for one in stopped))
        may = "may stop" if any(one.run.running for one in stopped) else "could stop"
        claims = "only claims that are valid at any time are made"
        if versus.comparison.stopped is None:
            claims = "the cases were not drawn in one known order, so nothing can be claimed"
        yield f"{names} {may} early: {claims}."


def _unfinished(side: ComparisonSide, quote: Quote) -> Iterator[str]:
    run, number = side.run, side.summary.skipped
    # Labels such as `before` make no sentence.
    label = f"The run {quote(side.name)}"
    without = f", {counted(number, 'trial')} without a result" if number else ""
    if not side.summary.trials:
        yield f"{label} has no trials."
    elif run.running:
        yield f"{label} is still running{without}: its figures will change."
    elif run.interrupted or run.held_back:
        yield f"{label} {'was interrupted' if run.interrupted else 'is not complete'}{without}."
