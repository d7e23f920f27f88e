"""A suite over its runs: one entry per run, what changed in between, which pass rates shifted."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from statistics import fmean, pvariance
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError
from paraval.records import RunInfo, Variant
from paraval.report.compare.case_pairs import Matchup, Pairs, pairs_of_each, same_variants
from paraval.report.compare.comparison import Comparison, Finding, Side
from paraval.report.compare.compute import compare, finding_of, resamples_for
from paraval.report.compare.two_runs import ComparisonQuestion, ComparisonSide, SideComparison
from paraval.report.contents import Choice, Contents, Part, RunSource, axes_in
from paraval.report.summary.tally import Summary
from paraval.statistics.pairs import holm


class Completeness(StrEnum):
    """Whether a run's figures cover everything that was planned."""

    COMPLETE = "complete"
    RUNNING = "running"
    HELD_BACK = "held_back"
    INTERRUPTED = "interrupted"


def standing_of(run: RunInfo) -> Completeness:
    """An early stop completes a run; an exhausted budget does not."""
    if run.running:
        return Completeness.RUNNING
    if run.held_back:
        return Completeness.HELD_BACK
    if run.interrupted or run.ended_at is None or run.done < run.trials:
        return Completeness.INTERRUPTED
    return Completeness.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteChange:
    """What changed since the previous run."""

    part: str
    """cases, prompt, models, target, graders, workspace, matrix, repeats or code."""
    words: str
    """`prompt changed`, `cases: 20 -> 22`."""


class Shift(NamedTuple):
    """A pass rate that differs from an earlier run's, shown by paired cases."""

    variant: Variant | None
    """None: of the whole run."""
    since: str
    """The run it was compared with."""
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A run in its suite's history."""

    run: RunInfo
    standing: Completeness
    summary: Summary
    """For the requested part, if one was requested."""
    cases: int
    """Number of cases that the run has trials of."""
    chosen_variants: str = ""
    """Which variants were selected, if not all: `mode=with-tool`."""
    suite_variants: int | None = None
    """Number of variants of the suite, as far as a run of all of them is known."""
    changes: tuple[SuiteChange, ...] = ()
    compared_with: str | None = None
    """The last earlier complete run with the same cases; None: there is none, or this one is
    incomplete."""
    shifts: tuple[Shift, ...] = ()

    @property
    def is_partial(self) -> bool:
        return self.standing is not Completeness.COMPLETE

    @property
    def has_verdicts(self) -> bool:
        """An outage is not counted as wrong answers."""
        return self.summary.judged > 0

    @property
    def suite_cases(self) -> int | None:
        """Digests of the suite as written; None if not recorded."""
        told = self.run.parts.get("case_count", "")
        return int(told) if told.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The last runs of a suite, the newest last."""

    suite: str
    choice: Mapping[str, str] = field(default_factory=dict)
    """Axis -> value: the figures cover only such trials."""
    entries: tuple[HistoryEntry, ...]
    older: int = 0
    """Number of older runs that were not requested."""
    unfitting: int = 0
    """Number of runs without a matching trial."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Run -> why it could not be read."""


# What changed between two runs of a suite, by the digests of its parts.

PARTS = (
    *("cases", "prompt", "models", "target", "graders", "hidden", "workspace", "matrix"),
    *("repeats", "code"),
)
"""In display order. There is one more, case_count, shown with the cases."""
_TOLD_AS_THEY_ARE = frozenset(("repeats",))


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteParts:
    """The parts of a run."""

    parts: Mapping[str, str]
    cases: str
    """A digest: the suite's own of ids, inputs and expectations, or of the run's ids."""
    case_count: int | None

    def has_cases_of(self, other: SuiteParts) -> bool:
        return bool(self.cases) and self.cases == other.cases


def made_of(parts: Mapping[str, str], case_ids: Iterable[str]) -> SuiteParts:
    """`case_ids` count only if the parts do not include cases."""
    if "cases" in parts:
        count = parts.get("case_count", "")
        number = int(count) if count.isdecimal() else None
        return SuiteParts(parts=parts, cases=parts["cases"], case_count=number)
    ids = sorted(case_ids)
    words = "\0".join(ids).encode(errors="surrogatepass")
    digest = hashlib.blake2b(words, digest_size=16).hexdigest()
    return SuiteParts(parts=parts, cases=f"ids:{digest}" if ids else "", case_count=len(ids))


def changes_between(before: SuiteParts, now: SuiteParts) -> Iterator[SuiteChange]:
    """Parts that both runs recorded; another version of paraval may record others."""
    for part in PARTS:
        then, later = _told(before, part), _told(now, part)
        if then is not None and later is not None and then != later:
            yield SuiteChange(part=part, words=_words(part, before, now))


def _told(made: SuiteParts, part: str) -> str | None:
    return (made.cases or None) if part == "cases" else made.parts.get(part)


def _words(part: str, before: SuiteParts, now: SuiteParts) -> str:
    if part in _TOLD_AS_THEY_ARE:
        return f"{part}: {before.parts[part]} -> {now.parts[part]}"
    counts = before.case_count, now.case_count
    if part == "cases" and None not in counts and counts[0] != counts[1]:
        return f"cases: {counts[0]:,} -> {counts[1]:,}"
    return f"{part} changed"


# Which pass rates differ from an earlier run's, paired by case.

CONFIDENCE = 0.95
_AT_ONCE = 20
"""Comparisons that share a random stream: a history makes many."""
_LEAST_ERRORS = 1.5
"""A mean must be this many standard errors from 0 to be examined; to be shown, about 2."""


Found = tuple[Variant | None, Comparison]


def shifts_between(before: Contents, now: Contents, since: str) -> tuple[Shift, ...]:
    """For the whole run, if both have the same variants, and for each variant."""
    if not (len(before.book) and len(now.book)):
        return ()
    sides = Side(label="now"), Side(label=since)
    may_have_stopped = before.may_have_stopped or now.may_have_stopped
    found = _at_any_time(before, now) if may_have_stopped else _found(before, now)
    return tuple(
        Shift(variant, before.run.id, replace(one, subject=sides[0], reference=sides[1]))
        for variant, one in found
        if one.finding is not Finding.NOT_SHOWN
    )


def _found(before: Contents, now: Contents) -> Iterator[Found]:
    """Two single variants with different names have no common history."""
    shared = same_variants(now.book.variants, before.book.variants)
    each = [(now.book.variants[ours], Matchup(keys=((ours, its),))) for ours, its in shared.items()]
    have_the_same = len(shared) == len(now.book.variants) == len(before.book.variants)
    if have_the_same:
        yield from _compared(before, now, [(None, Matchup(keys=tuple(shared.items())))])
    if not have_the_same or len(shared) > 1:
        yield from _compared(before, now, each)


Family = Sequence[tuple[Variant | None, Matchup]]
"""The comparisons of one question, each with its subject."""


def _compared(before: Contents, now: Contents, family: Family) -> Iterator[Found]:
    """Those that may be shown. Holm's method counts the others with p = 1, which can only make it
    harder to show one."""
    gathered = pairs_of_each(now.book, before.book, [matchup for _, matchup in family])
    made = [
        (variant, _comparison(pairs))
        for (variant, _), pairs in zip(family, gathered, strict=True)
        if _is_promising(pairs.differences)
    ]
    found = [one.passing for _, one in made if one.passing is not None]
    ps = holm([*(one.p for one in found), *([1.0] * (len(family) - len(found)))])
    for (variant, comparison), passing, p in zip(made, found, ps, strict=False):
        adjusted = replace(passing, adjusted_p=p)
        finding = finding_of(adjusted, CONFIDENCE)
        yield variant, replace(comparison, passing=adjusted, finding=finding, among=len(family))


def _is_promising(differences: Sequence[float]) -> bool:
    """Whether the mean is far enough from 0 for an interval to exclude it: all intervals used are
    wider than this."""
    if not any(differences):
        return False
    error = math.sqrt(pvariance(differences) / len(differences))
    return abs(fmean(differences)) > _LEAST_ERRORS * error


def _comparison(pairs: Pairs) -> Comparison:
    resamples = resamples_for(len(pairs), _AT_ONCE)
    now, before = Side(label="now"), Side(label="before")
    return compare(pairs, now, before, confidence=CONFIDENCE, resamples=resamples)


def _at_any_time(before: Contents, now: Contents) -> Iterator[Found]:
    """For runs that may have stopped early."""
    subject = ComparisonSide(label="now", name=now.run.id, contents=now)
    reference = ComparisonSide(label="before", name=before.run.id, contents=before)
    try:
        versus = SideComparison(subject, reference, ComparisonQuestion(confidence=CONFIDENCE))
    except RequestError:
        return
    if set(now.book.variants) == set(before.book.variants):
        yield None, versus.comparison
        yield from versus.by_variant
    elif versus.only_subject or versus.only_reference:
        yield from versus.by_variant


# Reads the runs of a history, each once, oldest first; keeps the cases of two at a time.


class EarlierRuns:
    """What is known about the runs before the next one."""

    def __init__(
        self,
        before: RunInfo | None = None,
        choice: Choice | None = None,
        *,
        tells_shifts: bool = True,
    ) -> None:
        """`before`: the run before all that are read, if there is one."""
        self._tells_shifts = tells_shifts
        self._choice = choice or {}
        self._made: SuiteParts | None = None if before is None else made_of(before.parts, ())
        self._last: str | None = None
        self._reference: tuple[Contents, SuiteParts] | None = None
        """The last complete run with a verdict."""
        self.unfitting = 0
        self.unreadable: dict[str, str] = {}

    def entries(self, sources: Iterable[RunSource]) -> Iterator[HistoryEntry]:
        """Read each source, oldest first; skips unreadable ones, and those without a matching
        trial."""
        for source in sources:
            run = source.info()
            try:
                contents = Contents(self._part(source))
                fits = len(contents.book) > 0 or not self._choice
            except ParavalError as error:
                self.unreadable[run.id] = error.message
                continue
            if fits:
                yield self.add(contents, run)
            else:
                self.unfitting += 1

    def add(self, contents: Contents, run: RunInfo) -> HistoryEntry:
        """Add the next run. `run`: the whole run, if the contents are a part of it."""
        book = contents.book
        made = made_of(run.parts, (case for case, _ in book.rows()))
        entry = HistoryEntry(
            run=run,
            standing=standing_of(run),
            summary=contents.summary,
            cases=len(book),
            changes=() if self._made is None else tuple(changes_between(self._made, made)),
        )
        if self._tells_shifts and not entry.is_partial and entry.has_verdicts:
            entry = self._compared(entry, contents, made)
            self._reference = contents, made
        self._made, self._last = made, run.id
        return entry

    def _part(self, source: RunSource) -> RunSource:
        if not self._choice:
            return source
        return Part(source=source, choice=self._choice, axes=axes_in(source))

    def _compared(self, entry: HistoryEntry, contents: Contents, made: SuiteParts) -> HistoryEntry:
        if self._reference is None:
            return entry
        before, made_before = self._reference
        if not made.has_cases_of(made_before):
            return entry
        is_last = before.run.id == self._last
        since = "the run before" if is_last else f"run {before.run.id}"
        shifts = shifts_between(before, contents, since)
        return replace(entry, compared_with=before.run.id, shifts=shifts)
