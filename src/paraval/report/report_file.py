"""A report file (.json or .jsonl) read back, as a source like any run.

What the file does not have is unknown: the attempts, and in .jsonl all but the trials. A .json is
held in memory; the lines of a .jsonl are read again each time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pydantic_core import ValidationError

from paraval.codec import from_data, in_words, picked
from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.errors import RequestError, why
from paraval.records import (
    AttemptResult,
    Baseline,
    Failure,
    Grade,
    Outcome,
    Output,
    RunInfo,
    Spend,
    TrialResult,
)
from paraval.report.contents import RunSource
from paraval.report.formats.json_schema import (
    SCHEMA,
    ErrorEntry,
    RunEntry,
    SpendEntry,
    TrialEntry,
)
from paraval.report.summary.tally import Count
from paraval.text.terminal import one_line
from paraval.text.words import size

T = TypeVar("T")
ENDINGS = (".json", ".jsonl")
_TRIALS = "trials"
MOST_BYTES = 1 << 28
"""Of a .json, which is held in memory."""
_LONGEST_LINE = 1 << 26
"""Characters. The answer of a trial has at most a megabyte."""
_NO_REPORT = "write one with: paraval report RUN -o report.json"
_LONGEST_COMPLAINT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile(RunSource):
    """A file of trials, and what it says about their run."""

    path: Path
    run: RunInfo
    trials: Sequence[object] | None
    """None for .jsonl, which names neither suite nor run: its lines are the trials."""

    @property
    def tells_run(self) -> bool:
        return self.trials is not None

    def info(self) -> RunInfo:
        return self.run

    def results(self) -> Iterator[TrialResult]:
        """All trials in the order of the file, read again each time."""
        with _complaining(self.path):
            if self.trials is not None:
                numbered = enumerate(self.trials, 1)
                yield from _each_once((f"trial {number:,}", one) for number, one in numbered)
            else:
                with _opened(self.path) as file:
                    yield from _each_once(_trials_of_lines(file))


def source_from_file(path: str | Path) -> ReportFile:
    """Read a report by its extension; RequestError says why it is not one."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise RequestError(
            f"{path} cannot be read back: only {' and '.join(ENDINGS)} contain a whole report",
            hint=_NO_REPORT,
        )
    if ending == ".jsonl":
        with _complaining(path), _opened(path):
            return ReportFile(path=path, run=_unknown_run(path), trials=None)
    with _complaining(path), _opened(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise RequestError(
                f"{path} is too large to be read back: over {size(MOST_BYTES)}",
                hint="write it as .jsonl, or name the run's folder",
            )
        data = _parsed(file.read())
        trials = data.get(_TRIALS) if isinstance(data, dict) else None
        if not isinstance(trials, list):
            raise ValueError(_what_else(data))  # noqa: TRY004 - of the file's contents
        return ReportFile(path=path, run=_run_from(data, path), trials=trials)


# ---- the file


def _opened(path: Path) -> TextIO:
    # The file is read more than once, which a pipe does not allow.
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    # Some editors write a byte order mark.
    return path.open(encoding="utf-8-sig")


@contextlib.contextmanager
def _complaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestError(f"cannot read {path}: {why(error)}") from error
    except UnicodeDecodeError:
        raise RequestError(f"{path} is not a report: it is not UTF-8", hint=_NO_REPORT) from None
    except ValueError as error:
        told = one_line(str(error), _LONGEST_COMPLAINT)
        raise RequestError(f"{path} is not a report of a run: {told}", hint=_NO_REPORT) from None


def _what_else(data: object) -> str:
    head = data if isinstance(data, dict) else {}
    if "candidates" in head:
        return "it is one of a race, and races cannot be compared"
    if "comparison" in head or "comparisons" in head:
        return "it is a comparison, which has no trials of its own"
    return f"it has no '{_TRIALS}'"


def _trials_of_lines(file: TextIO) -> Iterator[tuple[str, object]]:
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        if line.isspace():
            continue
        try:
            yield f"line {number:,}", _parsed(line)
        except ValueError as error:
            raise ValueError(f"line {number:,}: {error}") from None


def _parsed(text: str) -> Any:
    try:
        return parse_strictly(text)
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None


def _each_once(trials: Iterable[tuple[str, object]]) -> Iterator[TrialResult]:
    seen: set[int] = set()
    for place, data in trials:
        try:
            result = _trial_from(data)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if result.index in seen:
            raise ValueError(f"{place}: duplicate trial index {result.index}")
        seen.add(result.index)
        yield result


def _read(kind: type[T], data: object, what: str) -> T:
    try:
        return from_data(kind, data)
    except ValidationError as error:
        raise ValueError(in_words(error, what)) from None


# ---- its trials


def _trial_from(data: object) -> TrialResult:
    entry = _read(TrialEntry, data, "a trial")
    if entry.passed is not None and entry.passed is not (entry.outcome is Outcome.PASSED):
        said = "true" if entry.passed else "false"
        raise ValueError(f"'passed' is {said}, but 'outcome' is '{entry.outcome.value}'")
    spend, judging, total_s = _spend(entry), entry.judging, entry.total_s or 0.0
    return picked(
        TrialResult,
        entry,
        case_id=entry.case,
        result=_result(entry, total_s, usage={} if spend else _usage(entry)),
        total_s=total_s,
        spend=spend,
        judging=None if judging is None else _spend(judging) or Spend(cost_usd=None),
        retry_errors=tuple(map(_failure, entry.retry_errors)),
    )


def _result(entry: TrialEntry, total_s: float, usage: Mapping[str, float]) -> AttemptResult:
    return AttemptResult(
        outcome=entry.outcome,
        output=None
        if entry.output is None
        else Output(text=entry.output, usage=usage, steps=entry.steps),
        grades=tuple(picked(Grade, one, score=one.score or 0.0) for one in entry.grades),
        score=None if entry.score is None else min(max(entry.score, 0.0), 1.0),
        error=None if entry.error is None else _failure(entry.error),
        duration_s=total_s,
        target_s=entry.target_s,
        exit_code=entry.exit_code,
        artifacts=entry.artifacts,
        notes=entry.notes,
        activity=entry.activity,
        change=entry.change,
        cpu_s=entry.cpu_s,
        memory_bytes=entry.memory_bytes,
        node=entry.node,
    )


def _failure(entry: ErrorEntry) -> Failure:
    return Failure(kind=entry.kind, message=entry.message, lasting=entry.lasting, lost=entry.lost)


def _spend(entry: TrialEntry | SpendEntry) -> Spend | None:
    """None if nothing was reported, which is not the same as an unknown cost."""
    usd, is_unknown, calls = entry.cost_usd, entry.cost_unknown, entry.calls
    if usd is None and not is_unknown:
        return None
    spent = entry.spent_usd
    spent_unknown = is_unknown and calls != 0
    then = None
    if usd is not None and entry.spent_usd is not None and is_unknown is spent_unknown:
        then = max(0.0, usd - entry.spent_usd)
    return Spend(
        calls=1 if calls is None else calls,
        calls_unknown=calls is None,
        cached=entry.cached,
        cost_usd=None if spent_unknown else spent,
        part_usd=(spent or 0.0) if spent_unknown else 0.0,
        usage=_usage(entry),
        cached_usd=then if entry.cached else None,
        cached_s=entry.cached_s,
    )


def _usage(entry: TrialEntry | SpendEntry) -> dict[str, float]:
    return {name: amount for name, amount in entry.usage.items() if amount is not None}


# ---- its run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Skipped:
    skipped: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """What is read from the part before the trials."""

    schema: Count
    run: RunEntry
    summary: _Skipped = _Skipped()


def _run_from(data: dict[str, Any], path: Path) -> RunInfo:
    schema = data.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ValueError(f"it was written by a later version of paraval (schema {schema})")
    head = _read(_Head, data, "it")
    run, skipped = head.run, head.summary.skipped
    if run.stop is not None and not 0 < run.stop.confidence < 1:
        raise ValueError("'confidence' of 'stop' is not a number between 0 and 1")
    ended_at = _epoch_s(run.ended_at, "ended_at")
    return picked(
        RunInfo,
        run,
        source=None,
        folder=str(path.absolute().parent),
        trials=run.planned,
        seed=run.seed or 0,
        started_at=_epoch_s(run.started_at, "started_at") or 0.0,
        ended_at=ended_at,
        wall_s=run.wall_s or 0.0,
        done=max(0, run.planned - skipped),
        dropped_usd=run.dropped_cost_usd or 0.0,
        dropped_unknown=run.dropped_cost_unknown,
        running=run.running,
        baseline=run.baseline and picked(Baseline, run.baseline),
    )


def _epoch_s(told: str | None, name: str) -> float | None:
    if told is None:
        return None
    try:
        return datetime.fromisoformat(told).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"'{name}' of 'run' is not a time") from None


def _unknown_run(path: Path) -> RunInfo:
    return RunInfo(
        id=path.name,
        suite=path.stem,
        source=None,
        folder=str(path.absolute().parent),
        trials=0,
        parallel=0,
        seed=0,
        started_at=0.0,
        ended_at=None,
        wall_s=0.0,
        resumed=0,
        interrupted=False,
        fail_under=None,
    )
