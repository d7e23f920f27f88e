"""The contents of a report in any format, and whether its run may have stopped early.

Trials are read from their source each time, in plan order, and never all held in memory: a run may
have 100,000 of them, with answers of a megabyte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol, TextIO

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError
from paraval.records import (
    EARLY_STOP,
    AttemptRecord,
    Baseline,
    Case,
    Exchange,
    RunInfo,
    TrialResult,
    Variant,
    value_text,
)
from paraval.report.baseline_gate import judge_drop, judge_regressions
from paraval.report.compare.best_variant import BestVariant, best_variant
from paraval.report.compare.case_results import CaseBook
from paraval.report.compare.comparison import Comparison
from paraval.report.compare.variants import axes_of, comparisons_of
from paraval.report.gate import (
    NO_GATE,
    DropVerdict,
    Gate,
    against_baseline,
    judge_gate,
    not_yet,
    unjudged_gate,
)
from paraval.report.judge_agreement import GraderAgreement, Labels, agreements_of
from paraval.report.pairwise import PairwiseReport
from paraval.report.summary.summary import summarize
from paraval.report.summary.tally import Summary, Tally
from paraval.text.suggest import nearest
from paraval.text.terminal import one_line
from paraval.text.words import some

# Which runs may have stopped early, and what drew the order of their cases: one rule for all
# comparisons.


def may_have_stopped(run: RunInfo, summary: Summary) -> bool:
    """Whether a run may have stopped early, so that its sample size depends on its results.

    A file of trials lacks the run's stop rule, but has the reasons of skipped trials.
    """
    return run.stop is not None or early_stops(summary) > 0


def early_stops(tally: Tally) -> int:
    """How many trials an early stop skipped."""
    reasons = tally.skipped_by_reason.items()
    return sum(number for why, number in reasons if why.startswith(EARLY_STOP))


def order_seed_of(stopped: Iterable[RunInfo]) -> int | None:
    """The seed of the case order in runs that may have stopped; None if unknown, or if they
    differ."""
    seeds = {run.seed if run.stop is not None else None for run in stopped}
    return seeds.pop() if len(seeds) == 1 else None


class RunSource(Protocol):
    """A source to read a run from. Each iterator begins at the first in plan order each time; a
    file has no attempts, cases and exchanges."""

    def info(self) -> RunInfo: ...

    def results(self) -> Iterator[TrialResult]: ...

    def attempts(self) -> Iterator[AttemptRecord]:
        """All attempts by plan order and number."""
        return iter(())

    def cases(self) -> Iterator[Case]:
        return iter(())

    def tags(self) -> Mapping[str, tuple[str, ...]]:
        """The tags of the cases that have some, by their ids."""
        return {}

    def exchanges(self, index: int, number: int | None = None) -> tuple[Exchange, ...]:  # noqa: ARG002 - of sources that have them
        """What a trial's target and judges were sent in the attempt with this number; None: in the
        one that decided it."""
        return ()


class Related:
    """What else is known about a run: nothing, unless a store tells it."""

    def baseline(self, name: str) -> RunSource:
        """A baseline by its name in RunInfo; raises ParavalError if it is gone."""
        raise RequestError(f"there is no baseline {name}")

    def earlier(self) -> Iterable[RunSource]:
        """Earlier complete runs of the same suite, oldest first."""
        return ()

    def labels(self) -> Labels:
        """People's labels on answers of the suite."""
        return {}

    def pairwise(self) -> tuple[PairwiseReport, ...]:
        """What judges said about pairs of the run's answers."""
        return ()

    def rechecks(self) -> CaseBook | None:
        """What got worse than the baseline, as it ended when it ran again; None: nothing did."""
        return None


class Trials:
    """The results of a run, in plan order; each loop reads them again."""

    def __init__(self, source: RunSource, number: int) -> None:
        self._source = source
        self._number = number

    def __iter__(self) -> Iterator[TrialResult]:
        return iter(self._source.results())

    def __len__(self) -> int:
        return self._number


class Contents:
    """A run, its summary, its gate and its trials."""

    def __init__(self, source: RunSource, related: Related | None = None) -> None:
        """Without what is related, the gate of a run with a baseline is undecided."""
        self.source = source
        """The source of all contents."""
        self._related = related or Related()
        self.labels_problem = ""
        self.full = False
        """Whether JSON has what was sent to models, agents and commands."""
        self.run: RunInfo = source.info()

    def hold_against(self, baseline: Baseline | None) -> None:
        """Replace the baseline that the run began with; call it before reading the gate."""
        self.run = replace(self.run, baseline=baseline)

    @cached_property
    def _read(self) -> tuple[Summary, CaseBook]:
        """Summary and book, read in one pass: a run may be long, and on a slow disk."""
        book = CaseBook()
        results = _entered(self.source.results(), book)
        return summarize(results, self.run, book, self.source.tags()), book

    @property
    def summary(self) -> Summary:
        return self._read[0]

    @property
    def book(self) -> CaseBook:
        """The result of each case with each variant."""
        return self._read[1]

    @property
    def may_have_stopped(self) -> bool:
        """Whether it may have stopped early, so that its sample size depends on its results."""
        return may_have_stopped(self.run, self.summary)

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Comparisons of the run's own variants."""
        return comparisons_of(self.book, self.run)

    @cached_property
    def best_variant(self) -> BestVariant | None:
        """Of a run that has ended and could not stop early."""
        if self.run.running or self.run.stop is not None:
            return None
        return best_variant(self.summary, self.book, self.run.holdout, self.run.seed)

    @cached_property
    def judges(self) -> tuple[GraderAgreement, ...]:
        """How far graders agree with people's labels; see also `labels_problem`."""
        try:
            labels = self._related.labels()
        except ParavalError as error:
            # A report must not fail because of them: its run was paid for.
            self.labels_problem = error.message
            return ()
        results, cases = self.source.results(), self.source.cases()
        return agreements_of(results, cases, labels) if labels else ()

    @cached_property
    def pairwise(self) -> tuple[PairwiseReport, ...]:
        """What judges said about pairs of answers, in the direction of the comparisons."""
        reports = self._related.pairwise()
        directions = {(one.subject.label, one.reference.label) for one in self.comparisons}
        return tuple(report.facing(directions) for report in reports)

    @cached_property
    def gate(self) -> Gate:
        gate, part = self._gate(), self.run.cases
        if part is None or not gate.finding:
            return gate
        return replace(gate, finding=f"{gate.finding}, on {part.share}")

    def _gate(self) -> Gate:
        run, summary = self.run, self.summary
        is_required = run.fail_under is not None or run.baseline is not None
        if run.running:
            return not_yet(summary, is_required=is_required)
        unjudged = unjudged_gate(summary, run.interrupted, is_required=is_required)
        if unjudged is not None:
            return unjudged
        asked = None if run.fail_under is None else judge_gate(summary, run.fail_under)
        if run.baseline is None:
            return asked or NO_GATE
        held, other = run.baseline, self.reference
        drop = None if held.max_drop is None else self._drop(held)
        regressions = None
        if held.max_regressed is not None:
            before = None if other is None else other.book
            regressions = judge_regressions(self.book, before, held, self._related.rechecks())
        return against_baseline(drop, regressions, asked)

    @cached_property
    def reference(self) -> Contents | None:
        """The baseline; None if there is none, or if it can no longer be read."""
        baseline = self.run.baseline
        if baseline is None:
            return None
        try:
            other = Contents(self._related.baseline(baseline.name))
            other.summary  # noqa: B018 - read now: later, nothing catches a missing file
        except ParavalError:
            return None
        return other

    def _drop(self, baseline: Baseline) -> DropVerdict:
        other = self.reference
        stopped = [one.run for one in (self, other) if one is not None and one.may_have_stopped]
        return judge_drop(
            self.book,
            None if other is None else other.book,
            baseline,
            at_any_time=bool(stopped),
            order_seed=order_seed_of(stopped),
        )

    def earlier(self) -> Iterator[RunSource]:
        """Earlier complete runs of the same suite, oldest first."""
        return iter(self._related.earlier())

    @property
    def trials(self) -> Trials:
        return Trials(self.source, self.summary.trials)

    def trials_with_cases(self) -> Iterator[tuple[TrialResult, Case | None]]:
        """Each trial with its case; None if the cases were not kept."""
        cases = self.source.cases()
        case: Case | None = None
        for result in self.trials:
            if case is None or case.id != result.case_id:
                # Both are in plan order, so this seldom starts again.
                later = (one for one in cases if one.id == result.case_id)
                case = next(later, None)
                if case is None:
                    cases = self.source.cases()
                    case = next((one for one in cases if one.id == result.case_id), None)
            yield result, case


def book_of(source: RunSource) -> CaseBook:
    """The result of each case of a run with each variant."""
    book = CaseBook()
    for result in source.results():
        book.add(result)
    return book


def _entered(results: Iterator[TrialResult], book: CaseBook) -> Iterator[TrialResult]:
    for result in results:
        book.add(result)
        yield result


class Format(Protocol):
    """A file format for reports."""

    def write(self, contents: Contents, file: TextIO) -> None: ...


# A part of a run: the trials whose variants have the chosen values, with only those axes that the
# parts of two runs can share.

Choice = Mapping[str, str]
"""Axis -> value, as the suite spells them."""
_MOST_NAMED = 8
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A source of only those trials that match a choice."""

    source: RunSource
    choice: Choice
    axes: Sequence[str]
    """The axes that are kept in their variants."""

    def info(self) -> RunInfo:
        """The run's info; the number of planned trials of a part is unknown."""
        info = self.source.info()
        return replace(info, trials=0) if self.choice else info

    def results(self) -> Iterator[TrialResult]:
        for result in self.source.results():
            if self._fits(result.variant):
                told = self._told(result.variant)
                # Copying each of 100,000 would take seconds.
                is_same = len(told) == len(result.variant)
                yield result if is_same else replace(result, variant=told)

    def attempts(self) -> Iterator[AttemptRecord]:
        for attempt in self.source.attempts():
            if self._fits(attempt.variant):
                yield replace(attempt, variant=self._told(attempt.variant))

    def cases(self) -> Iterator[Case]:
        return self.source.cases()

    def tags(self) -> Mapping[str, tuple[str, ...]]:
        return self.source.tags()

    def exchanges(self, index: int, number: int | None = None) -> tuple[Exchange, ...]:
        return self.source.exchanges(index, number)

    def _fits(self, variant: Variant) -> bool:
        return all(
            axis in variant and value_text(variant[axis]) == value
            for axis, value in self.choice.items()
        )

    def _told(self, variant: Variant) -> Variant:
        return {axis: variant[axis] for axis in self.axes if axis in variant}


def axes_in(source: RunSource) -> tuple[str, ...]:
    """The names of the axes, the same for every variant; empty without trials."""
    first = next(iter(source.results()), None)
    return () if first is None else tuple(first.variant)


def side_by_side(
    one: tuple[RunSource, Choice], other: tuple[RunSource, Choice]
) -> tuple[Part, Part]:
    """Two parts with the axes that they can share.

    An axis that is chosen on both sides, as in `model=a` and `model=b`, is dropped, and so is one
    that was chosen here and that the other side doesn't have.
    """
    axes, other_axes = axes_in(one[0]), axes_in(other[0])
    order = dict.fromkeys((*axes, *other_axes))
    return (
        Part(source=one[0], choice=one[1], axes=_kept(order, one[1], other[1], other_axes)),
        Part(source=other[0], choice=other[1], axes=_kept(order, other[1], one[1], axes)),
    )


def _kept(
    order: Iterable[str], own: Choice, others: Choice, other_axes: Sequence[str]
) -> list[str]:
    return [
        axis for axis in order if axis not in own or (axis in other_axes and axis not in others)
    ]


# ---- in words


def choice_from(text: str, source: RunSource, name: str) -> Choice:
    """Parse `AXIS=VALUE,AXIS=VALUE`; values may hold commas and equals signs."""
    axes = axes_in(source)
    known = "|".join(re.escape(axis) for axis in sorted(axes, key=len, reverse=True))
    choice: dict[str, str] = {}
    for item in re.split(f",(?=(?:{known})=)", text) if axes else [text]:
        found = re.match(f"({known})=(.*)", item, re.DOTALL) if axes else None
        if found is None:
            raise _no_such_axis(item, axes, name)
        axis, value = found.groups()
        if axis in choice:
            raise RequestError(f"{text}: duplicate axis '{axis}'", hint=_ONE_VALUE)
        choice[axis] = value
    return choice


def require_trials(part: Part, name: str) -> None:
    """Raise RequestError, with the known values, if no trial matches."""
    if not part.choice or next(part.results(), None) is not None:
        return
    axes = axes_of(result.variant for result in part.source.results())
    for axis, value in part.choice.items():
        values = [value_text(one) for one in axes.get(axis, ())]
        if value not in values:
            near = nearest(value, values)
            hint = f"did you mean {axis}={_shown(near[0])}?" if near else f"it has {_some(values)}"
            raise RequestError(f"the axis '{axis}' of {name} has no value '{value}'", hint=hint)
    raise RequestError(f"{name} has no trial with {choice_text(part.choice)}")


def choice_text(choice: Choice) -> str:
    """`model=small,mode=fast`."""
    return ",".join(f"{axis}={value}" for axis, value in choice.items())


_ONE_VALUE = "give one value for each axis"


def _no_such_axis(item: str, axes: Sequence[str], name: str) -> RequestError:
    if not axes:
        return RequestError(f"{item}: {name} has no axes to choose from")
    axis, equals, _ = item.partition("=")
    if not (axis and equals):
        message = f"'{item}' is not a part of {name}: write AXIS=VALUE"
        return RequestError(message, hint=f"its axes are {_some(axes)}")
    near = nearest(axis, axes)
    hint = f"did you mean {_shown(near[0])}?" if near else f"its axes are {_some(axes)}"
    return RequestError(f"{name} has no axis '{axis}'", hint=hint)


def _some(names: Sequence[str]) -> str:
    return some([*map(_shown, names)], _MOST_NAMED)


def _shown(text: str) -> str:
    """A name on one line; it may come from an untrusted file."""
    return one_line(text, _LONGEST_NAME)
