"""Runs in a store, as reports read them: one by one, and all of a suite together.

The report interprets their figures; the store knows which runs exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from paraval.errors import RequestError, StoreError
from paraval.records import (
    AttemptRecord,
    Case,
    Exchange,
    LabelKey,
    RunInfo,
    TrialResult,
    Variant,
)
from paraval.report.compare.case_results import CaseBook
from paraval.report.contents import Related, RunSource, choice_from
from paraval.report.history.history import (
    Completeness,
    EarlierRuns,
    History,
    HistoryEntry,
    standing_of,
)
from paraval.report.pairwise import (
    AnswerPair,
    PairwiseReport,
    answer_pairs,
    pairwise_report,
    variant_pairs,
)
from paraval.report.report import Report
from paraval.report.report_file import source_from_file
from paraval.settings import PAIRWISE, TESTS, default_store, is_race, is_report_file
from paraval.store.labels import Labels
from paraval.store.reader import RunReader
from paraval.store.store import Store
from paraval.text.terminal import one_line
from paraval.text.words import variant_label

EARLIER_RUNS = 20
"""Maximum number of earlier runs in a report ..."""
EARLIER_TRIALS = 20_000
"""... as long as they have no more trials in total: a page must not take longer for them than for
itself. The last run is always included."""
_LONGEST_CHOICE = 120
_MODEL_AXIS = "model"


class StoredRun:
    """A run as a report reads it: opened each time, so that nothing stays open."""

    def __init__(self, store: Store, run: RunInfo) -> None:
        self._store = store
        self._run = run
        self._reader: RunReader | None = None
        """Open while trials or attempts are looped over, for their exchanges."""

    def info(self) -> RunInfo:
        return self._run

    def results(self) -> Iterator[TrialResult]:
        with self._looped_over() as reader:
            yield from reader.results()

    def attempts(self) -> Iterator[AttemptRecord]:
        with self._looped_over() as reader:
            yield from reader.attempts()

    def cases(self) -> Iterator[Case]:
        with self._store.reader(self._run) as reader:
            yield from reader.cases()

    def tags(self) -> Mapping[str, tuple[str, ...]]:
        with self._store.reader(self._run) as reader:
            return reader.tags()

    def exchanges(self, index: int, number: int | None = None) -> tuple[Exchange, ...]:
        if self._reader is not None:
            return self._reader.exchanges(index, number)
        with self._store.reader(self._run) as reader:
            return reader.exchanges(index, number)

    @contextmanager
    def _looped_over(self) -> Iterator[RunReader]:
        with self._store.reader(self._run) as reader:
            self._reader = reader
            try:
                yield reader
            finally:
                self._reader = None


def history_of(store: Store, suite: str, *, limit: int, choice: Mapping[str, str]) -> History:
    """The last runs of a suite. Older ones are listed but not read."""
    runs = [run for run in store.runs() if run.suite == suite]
    # One more, to show what is new in the oldest one shown.
    shown = list(islice(runs_of_suites(store, runs), limit + 1))
    before = shown.pop() if len(shown) > limit else None
    past = EarlierRuns(before, choice)
    gathered = past.entries(StoredRun(store, run) for run in reversed(shown))
    entries = _with_extents(
        replace(entry, chosen_variants=chosen_variants(store, entry.run, choice))
        for entry in gathered
    )
    return History(
        suite=suite,
        choice=choice,
        entries=entries,
        older=0 if before is None else sum(order(run) <= order(before) for run in runs),
        unfitting=past.unfitting,
        unreadable=past.unreadable,
    )


def chosen_variants(store: Store, run: RunInfo, choice: Mapping[str, str]) -> str:
    """The variants that the run was limited to, in words; empty if it has all that fit the choice:
    a run of `mode=a` has everything for the choice `mode=a`."""
    try:
        selection = store.selection(run)
    except StoreError:
        # Reading its results will report the problem.
        return ""
    pairs, models = selection.get("variants", ()), selection.get("models", ())
    parts = [f"{axis}={value}" for axis, value in pairs if axis not in choice]
    # The axis of the models is not stored: a value that matches one of them belongs to that axis.
    names_one = any(fnmatchcase(value, model) for value in choice.values() for model in models)
    if models and not (names_one or _MODEL_AXIS in choice):
        parts.append(f"models {', '.join(models)}")
    return one_line("; ".join(parts), _LONGEST_CHOICE)


def _with_extents(entries: Iterable[HistoryEntry]) -> tuple[HistoryEntry, ...]:
    """Add to each how many variants its matrix has, if a full run of it is among them."""
    every = tuple(entries)
    wholes = {
        entry.run.parts["matrix"]: len(entry.summary.variants)
        for entry in every
        if "matrix" in entry.run.parts and not entry.is_partial and not entry.chosen_variants
    }
    return tuple(
        replace(entry, suite_variants=wholes.get(entry.run.parts.get("matrix", "")))
        for entry in every
    )


class InStore(Related):
    """What a store knows about a run."""

    def __init__(self, store: Store, run: RunInfo, *, names_files: bool = True) -> None:
        """`names_files`: whether its baseline may be a file. A run elsewhere may be a stranger's,
        who must not choose what is read."""
        self._store, self._run, self._names_files = store, run, names_files

    def baseline(self, name: str) -> RunSource:
        if Path(name).is_absolute() and not self._names_files:
            raise RequestError(f"only the run itself names {name}, and the run may not be yours")
        return baseline_in(self._store, name)

    def earlier(self) -> Iterable[RunSource]:
        run = self._run
        before = (
            one
            for one in self._store.runs()
            if one.suite == run.suite
            and order(one) < order(run)
            and standing_of(one) is Completeness.COMPLETE
        )
        last = list(_within_reason(islice(runs_of_suites(self._store, before), EARLIER_RUNS)))
        return [StoredRun(self._store, one) for one in reversed(last)]

    def labels(self) -> Mapping[LabelKey, bool]:
        return Labels(self._store.root).of(self._run.suite)

    def pairwise(self) -> tuple[PairwiseReport, ...]:
        """Oldest first."""
        judging = judging_store(self._store)
        if not judging.runs_folder.is_dir():
            return ()
        made = []
        for one in reversed(judging.runs()):
            if one.suite.startswith(f"{self._run.id} "):
                asked, judged = judging.selection(one)[PAIRWISE], StoredRun(judging, one)
                every = pairs_in(self._store, self._run, asked.get("against"))
                gaps = (pair for pair in every if pair.answers is None)
                made.append(pairwise_report(one, asked, judged.results(), judged.cases(), gaps))
        return tuple(made)

    def rechecks(self) -> CaseBook | None:
        inner = recheck_store(self._store)
        if self._run.baseline is None or not inner.runs_folder.is_dir():
            return None
        book = CaseBook()
        for one in inner.runs():
            if one.suite == rechecks_named(self._run):
                for result in StoredRun(inner, one).results():
                    book.add(result)
        return book


def baseline_in(store: Store, name: str) -> RunSource:
    """A run of the store, or a report file."""
    return source_from_file(name) if is_report_file(name) else StoredRun(store, store.find(name))


def judging_store(store: Store) -> Store:
    return Store(store.root / PAIRWISE)


def recheck_store(store: Store) -> Store:
    """The store of runs that repeat what got worse than a baseline."""
    return Store(store.root / "recheck")


def rechecks_named(run: RunInfo) -> str:
    """The suite that the rechecks of a run have."""
    return f"{run.id} recheck"


def pairs_in(store: Store, info: RunInfo, against: str | None) -> Iterator[AnswerPair]:
    """Every pair of answers of a run's variants, or only those against one variant."""
    source = StoredRun(store, info)
    choice: Mapping[str, str] | None = None
    if against is not None:
        choice = choice_from(against, source, f"run {info.id}")
    variants: dict[str, Variant] = {}
    for result in source.results():
        variants.setdefault(variant_label(result.variant), result.variant)
    pairs = variant_pairs(list(variants.values()), choice)
    if choice is not None and not pairs:
        raise RequestError(
            f"'{against}' is no variant of run {info.id}", hint=f"it has: {', '.join(variants)}"
        )
    return answer_pairs(source.results(), pairs)


def _within_reason(runs: Iterable[RunInfo]) -> Iterator[RunInfo]:
    trials = 0
    for number, run in enumerate(runs):
        trials += run.trials
        if number and trials > EARLIER_TRIALS:
            return
        yield run


def order(run: RunInfo) -> tuple[float, str]:
    """Sort key: runs in order of start."""
    return (run.started_at, run.id)


def runs_of_suites(store: Store, runs: Iterable[RunInfo]) -> Iterator[RunInfo]:
    """Runs that are not races, with everything known about their parts."""
    for run in runs:
        try:
            with store.reader(run) as reader:
                grows, code = reader.grows(), _code_of(reader.selection())
        except StoreError:
            # Reading its results will report the problem.
            yield run
            continue
        if not grows:
            yield run if code is None else replace(run, parts={**run.parts, "code": code})


def _code_of(selection: Mapping[str, Any]) -> str | None:
    """The working tree that tests ran on; None if unknown, or if they are not tests."""
    about = selection.get(TESTS)
    tree = about.get("tree") if isinstance(about, Mapping) else None
    return tree if isinstance(tree, str) else None


# ---- reports


def report_of(store: Store, run: RunInfo) -> Report:
    """The report of a run in its store."""
    return Report(StoredRun(store, run), InStore(store, run))


def load_report(run: str = "last", *, store: str | Path | None = None) -> Report:
    """The report of a stored run: an id, the start of one, a run's folder, `last` (the default) or
    `last~1` for the one before it."""
    opened = Store(default_store() if store is None else Path(store))
    info = opened.find(run)
    if is_race(opened.selection(info)):
        raise RequestError(f"run {info.id} is a race; read it with: paraval report {info.id}")
    if Path(info.folder).parent != opened.runs_folder:
        return Report(StoredRun(opened, info))  # It may be a stranger's: it names no file to read.
    return report_of(opened, info)
