"""Finds the runs, files and parts of them to compare, by the names that users give;
`paraval.compare`."""

from __future__ import annotations

import contextlib
import re
from dataclasses import field, replace
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.records import RunInfo
from paraval.report.compare.compare_report import ComparisonReport
from paraval.report.compare.comparison_text import AFTER, BEFORE
from paraval.report.compare.two_runs import ComparisonQuestion, ComparisonSide, SideComparison
from paraval.report.contents import (
    Choice,
    Contents,
    Part,
    RunSource,
    choice_from,
    choice_text,
    require_trials,
    side_by_side,
)
from paraval.report.report import Report
from paraval.report.report_file import ENDINGS, source_from_file
from paraval.runner.stored_runs import StoredRun
from paraval.settings import default_store, is_race
from paraval.store.store import Store
from paraval.text.terminal import one_line

LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableSide:
    """One side of a comparison, ready to read."""

    name: str
    """A run's id, or a file's path as given."""
    source: RunSource
    run: RunInfo
    tells_run: bool = True
    """False: the file does not identify its suite and run."""
    choice: Choice = field(default_factory=dict)


class SideFinder:
    """Finds the requested sides. Nothing stays open: each is read anew."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self, text: str) -> ReadableSide:
        """Open `RUN`, `FILE`, `RUN:AXIS=VALUE`, or `AXIS=VALUE` of the last run that is not a
        race."""
        name, part = split_name(text)
        if name is None:
            opened = self.open_run(self._last())
        else:
            opened = self._open_file(name) if _is_file(name) else self._open_named(name)
        if part is None:
            return opened
        return replace(opened, choice=choice_from(part, opened.source, opened.name))

    def open_run(self, info: RunInfo) -> ReadableSide:
        with self._store.reader(info) as reader:
            if is_race(reader.selection()):
                raise RequestError(
                    f"{info.id} is a race: its own report compares its candidates",
                    hint=f"see it with: paraval report {info.id}",
                )
            # Read again: it may still be running.
            run = reader.info()
        return ReadableSide(name=run.id, source=StoredRun(self._store, run), run=run)

    def last_two(self) -> tuple[RunInfo, RunInfo]:
        """The last run and the one before it of the same suite; races are skipped, and before it
        regrades of only some answers."""
        last = self._last()
        for run in self._store.runs():
            is_before = (run.started_at, run.id) < (last.started_at, last.id)
            if run.suite == last.suite and is_before and not self._is_race(run):
                if run.regraded_from is not None and self._is_part(run):
                    continue
                return run, last
        raise RequestError(
            f"there is no run of '{one_line(last.suite, 80)}' before {last.id} to compare it with",
            hint="name both: paraval compare A B; list runs with: paraval runs",
        )

    def _open_file(self, name: str) -> ReadableSide:
        source = source_from_file(name)
        return ReadableSide(name=name, source=source, run=source.run, tells_run=source.tells_run)

    def _open_named(self, name: str) -> ReadableSide:
        return self.open_run(self._store.find(name))

    def _last(self) -> RunInfo:
        """The last comparable run; if all are races, the last of them."""
        last = self._store.find(LAST)
        return next((run for run in self._store.runs() if not self._is_race(run)), last)

    def _is_part(self, run: RunInfo) -> bool:
        return run.cases is not None or bool(self._store.selection(run).get("variants"))

    def _is_race(self, run: RunInfo) -> bool:
        return is_race(self._store.selection(run))


def split_name(text: str) -> tuple[str | None, str | None]:
    """Split into a run or file, and the part of it, if any. A part alone has no run or file.

    Values and paths may contain colons and equals signs: an existing file or folder takes
    precedence.
    """
    if _exists(text):
        return text, None
    for colon in re.finditer(":", text):
        if _exists(text[: colon.start()]):
            return text[: colon.start()], text[colon.end() :]
    name, colon_sign, part = text.partition(":")
    if colon_sign and "=" not in name:
        if not name or not part:
            raise RequestError(f"'{text}' does not select part of a run; write RUN:AXIS=VALUE")
        return name, part
    return (None, text) if "=" in text else (text, None)


def _exists(text: str) -> bool:
    # A name that no file system accepts is not a file.
    with contextlib.suppress(OSError, ValueError):
        return bool(text) and Path(text).exists()
    return False


def _is_file(name: str) -> bool:
    """Whether it is a file rather than a run: by its suffix, even if it doesn't exist."""
    if name.lower().endswith(ENDINGS):
        return True
    with contextlib.suppress(OSError, ValueError):
        # A run's own database file stands for the run.
        return Path(name).is_file() and Path(name).suffix != ".db"
    return False


# From two sides to a comparison.


def held_against(
    reference: ReadableSide, subject: ReadableSide, question: ComparisonQuestion
) -> SideComparison:
    """Compare two sides. Raises RequestError if they are the same, or part of one is missing."""
    _refuse_the_same(reference, subject)
    parts = side_by_side((reference.source, reference.choice), (subject.source, subject.choice))
    opened = (reference, subject)
    labels = _labels(*opened)
    one, other = (_held(*each) for each in zip(opened, parts, labels, strict=True))
    return SideComparison(other, one, question)


def alone(opened: ReadableSide) -> tuple[str, Contents]:
    """One side alone, whose own variants are compared: its name and its contents."""
    if not opened.choice:
        return opened.name, Contents(opened.source)
    part, _ = side_by_side((opened.source, opened.choice), (opened.source, opened.choice))
    require_trials(part, opened.name)
    return f"{opened.name} ({choice_text(opened.choice)})", Contents(part)


def _held(opened: ReadableSide, part: Part, label: str) -> ComparisonSide:
    require_trials(part, opened.name)
    return ComparisonSide(
        label=label,
        name=opened.name,
        contents=Contents(part),
        choice=opened.choice,
        tells_run=opened.tells_run,
    )


def _refuse_the_same(one: ReadableSide, other: ReadableSide) -> None:
    """Refuse trials that are on both sides: comparing them says nothing."""
    both = one.choice.keys() & other.choice.keys()
    if one.name == other.name and all(one.choice[axis] == other.choice[axis] for axis in both):
        raise RequestError(
            f"both sides contain the same trials of {one.name}",
            hint="name two runs, or two values of an axis: paraval compare AXIS=VALUE AXIS=OTHER",
        )


def _labels(reference: ReadableSide, subject: ReadableSide) -> tuple[str, str]:
    """Names for the sides in sentences: parts of one run by their values, others by their order,
    since ids are hard to distinguish."""
    if reference.name != subject.name:
        return BEFORE, AFTER
    return " · ".join(reference.choice.values()), " · ".join(subject.choice.values())


# Comparisons from Python.


def compare(
    a: Report | str | Path,
    b: Report | str | Path,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    store: str | Path | None = None,
) -> ComparisonReport:
    """Compare two runs case by case: is B better than A, and how certain is that?

    Each side is a report, the path of a report file (.json, .jsonl) or of a run's folder, or what
    `paraval compare` takes: a run's id or its beginning, `last`, `last~1`, `RUN:AXIS=VALUE`, or
    `AXIS=VALUE` of the last run. Runs are looked for in `store`; by default in PARAVAL_STORE, or
    the `.paraval` that `paraval` itself would find.
    """
    if not 0.5 < confidence < 1:
        raise RequestError(f"confidence={confidence}: must be between 0.5 and 1")
    sides = SideFinder(Store(default_store() if store is None else Path(store)))
    question = ComparisonQuestion(confidence=confidence, seed=seed)
    return ComparisonReport(held_against(_opened(a, sides), _opened(b, sides), question))


def _opened(side: Report | str | Path, sides: SideFinder) -> ReadableSide:
    if isinstance(side, Report):
        return ReadableSide(name=side.run.id, source=side.source, run=side.run)
    return sides.open(str(side))
