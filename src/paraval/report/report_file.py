"""A report file (.json or .jsonl) read back, as a source like any run.

What the file does not have is unknown: the attempts, and in .jsonl all but the trials. Trials are
read again each time, and never all held in memory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

from pydantic_core import ValidationError

from paraval.codec import from_data, in_words, picked
from paraval.dataclass import dataclass
from paraval.documents.json import DECODER, SHOWN_CHARACTERS, parse_strictly
from paraval.errors import RequestError, why
from paraval.records import (
    AttemptRecord,
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
from paraval.report.formats.json_schema import (
    SCHEMA,
    Count,
    ErrorEntry,
    RunEntry,
    SpendEntry,
    TrialEntry,
)
from paraval.text.terminal import one_line

# A JSON document, read from beginning to end in pieces.

CHUNK = 1 << 18
MOST_IN_A_VALUE = 1 << 26
"""Characters. The answer of a trial has at most a megabyte."""

_SPACE = " \t\r\n"
_BEHIND_A_VALUE = frozenset(_SPACE + ",:]}")


class JsonPieces:
    """A position in a document. ValueError messages name the problem and its line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._lines_before = 0
        """Lines before the text that is still held."""

    def members(self) -> Iterator[str]:
        """The keys of the top-level object; the caller must read each value before the next
        key."""
        self._expect("{")
        seen: set[str] = set()
        if not self._skip("}"):
            while True:
                yield self._key(seen)
                if self._skip("}"):
                    break
                self._expect(",")
        if self._next():
            raise self._wrong("extra text after its end")

    def items(self) -> Iterator[Any]:
        """The values of the next list."""
        self._expect("[")
        if self._skip("]"):
            return
        while True:
            yield self.value()
            if self._skip("]"):
                return
            self._expect(",")

    def value(self) -> Any:
        """The whole next value."""
        self._next()
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # Cut off at the end of the text, or invalid: more text decides.
                if not self._read_on():
                    raise self._wrong(f"not valid JSON: {error.msg}", error.pos) from None
                continue
            except RecursionError:
                raise self._wrong("nested too deeply") from None
            except ValueError as error:
                raise self._wrong(f"not valid JSON: {error}") from None
            # A number may continue beyond the text read so far.
            if self._text[end : end + 1] not in _BEHIND_A_VALUE and self._read_on():
                continue
            self._at = end
            return value

    @property
    def line(self) -> int:
        """The position in words."""
        return self._line_of(self._at)

    # ---- signs

    def _key(self, seen: set[str]) -> str:
        if self._next() != '"':
            raise self._wrong("not valid JSON: a key in quotes is missing")
        key = str(self.value())
        if key in seen:
            raise self._wrong(f"duplicate key '{key[:SHOWN_CHARACTERS]}'")
        seen.add(key)
        self._expect(":")
        return key

    def _next(self) -> str:
        """The next character that is not a space; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._read_on():
                return ""

    def _skip(self, sign: str) -> bool:
        """Skip the sign if it is next; whether it was."""
        found = self._next() == sign
        self._at += found
        return found

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            there = self._next()
            found = f"'{there}'" if there else "the end"
            raise self._wrong(f"not valid JSON: '{sign}' is missing before {found}")

    # ---- the text

    def _read_on(self) -> bool:
        """Read more; whether there was any. Text already read is dropped."""
        kept = len(self._text) - self._at
        if kept > MOST_IN_A_VALUE:
            return False
        # As much again as there is, so that a long value is not parsed many times.
        more = self._file.read(max(CHUNK, kept))
        if more:
            self._lines_before += self._text.count("\n", 0, self._at)
            self._text = self._text[self._at :] + more
            self._at = 0
        return bool(more)

    def _line_of(self, place: int) -> int:
        return 1 + self._lines_before + self._text.count("\n", 0, place)

    def _wrong(self, what: str, place: int | None = None) -> ValueError:
        return ValueError(f"line {self._line_of(self._at if place is None else place)}: {what}")


T = TypeVar("T")
ENDINGS = (".json", ".jsonl")
_TRIALS = "trials"
_HEAD = frozenset({"schema", "run", "summary"})
"""The keys before the trials, in files that were not rearranged."""
_NO_REPORT = "write one with: paraval report RUN -o report.json"
_LONGEST_COMPLAINT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile:
    """A file of trials, and what it says about their run."""

    path: Path
    run: RunInfo
    tells_run: bool
    """False for .jsonl, which names neither suite nor run."""

    def info(self) -> RunInfo:
        return self.run

    def results(self) -> Iterator[TrialResult]:
        """All trials in the order of the file, read again each time."""
        read = _trials_of_document if self.tells_run else _trials_of_lines
        with _complaining(self.path), _opened(self.path) as file:
            yield from _each_once(read(file))

    def attempts(self) -> Iterator[AttemptRecord]:
        return iter(())


def source_from_file(path: str | Path) -> ReportFile:
    """Read a report by its extension; RequestError says why it is not one."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise RequestError(
            f"{path} cannot be read back: only {' and '.join(ENDINGS)} contain a whole report",
            hint=_NO_REPORT,
        )
    with _complaining(path), _opened(path) as file:
        if ending == ".jsonl":
            return ReportFile(path=path, run=_unknown_run(path), tells_run=False)
        return ReportFile(path=path, run=_run_from(_head(file), path), tells_run=True)


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


def _head(file: TextIO) -> dict[str, Any]:
    """All but the trials; reads beyond them only if something is still missing."""
    head: dict[str, Any] = {}
    has_trials = False
    pieces = JsonPieces(file)
    for key in pieces.members():
        if key == _TRIALS:
            has_trials = True
            if head.keys() >= _HEAD:
                break
            for _ in pieces.items():
                pass
        else:
            head[key] = pieces.value()
    if not has_trials:
        raise ValueError(_what_else(head))
    return head


def _what_else(head: dict[str, Any]) -> str:
    if "candidates" in head:
        return "it is one of a race, and races cannot be compared"
    if "comparison" in head or "comparisons" in head:
        return "it is a comparison, which has no trials of its own"
    return f"it has no '{_TRIALS}'"


def _trials_of_document(file: TextIO) -> Iterator[tuple[str, object]]:
    pieces = JsonPieces(file)
    for key in pieces.members():
        if key == _TRIALS:
            for number, item in enumerate(pieces.items(), 1):
                yield f"trial {number:,}", item
        else:
            pieces.value()


def _trials_of_lines(file: TextIO) -> Iterator[tuple[str, object]]:
    number = 0
    while line := file.readline(MOST_IN_A_VALUE):
        number += 1
        if line.isspace():
            continue
        try:
            yield f"line {number:,}", parse_strictly(line)
        except ValueError as error:
            raise ValueError(f"line {number:,}: not valid JSON: {error}") from None


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
    if isinstance(data, dict) and "duration_s" in data:
        data = {"total_s": data["duration_s"], **data}  # as it was called in schema 1
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
    # Earlier reports lack what was spent: their costs are without cached answers.
    spent = usd if entry.spent_usd is None else entry.spent_usd
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
    # Older reports lack this: a run without an end that was not stopped is still running, unless
    # nothing is left to do.
    goes_on = ended_at is None and not run.interrupted and not run.held_back and skipped > 0
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
        running=goes_on if run.running is None else run.running,
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
