"""A report that was written as .json or .jsonl, read back: a source like a run in the store.

What the file does not hold is not known: the attempts, and of .jsonl all but the trials. Trials are
read anew each time they are asked for, and never all held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from paraval.errors import RequestError
from paraval.records import AttemptRecord, Baseline, RunInfo, StopRule, TrialResult
from paraval.report.as_json import SCHEMA
from paraval.report.fields import Fields
from paraval.report.files import why
from paraval.report.json_pieces import MOST_IN_A_VALUE, JsonPieces
from paraval.report.text import one_line
from paraval.report.trial_from_dict import trial_from_dict
from paraval.strict_json import parse_strictly

ENDINGS = (".json", ".jsonl")
_TRIALS = "trials"
_HEAD = frozenset({"schema", "run", "summary"})
"""What stands before the trials, where nobody put it elsewhere."""
_NO_REPORT = "write one with: paraval report RUN -o report.json"
_LONGEST_COMPLAINT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFile:
    """A file of trials, and what it tells of their run."""

    path: Path
    run: RunInfo
    tells_run: bool
    """False for .jsonl: which suite and which run it is of, nobody knows."""

    def info(self) -> RunInfo:
        return self.run

    def results(self) -> Iterator[TrialResult]:
        """From the first each time, in the order of the file."""
        read = _trials_of_document if self.tells_run else _trials_of_lines
        with _complaining(self.path), _opened(self.path) as file:
            yield from _each_once(read(file))

    def attempts(self) -> Iterator[AttemptRecord]:
        return iter(())


def source_from_file(path: str | Path) -> ReportFile:
    """A report of ours, by its ending; RequestError says why it is none."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise RequestError(
            f"{path} cannot be read back: only {' and '.join(ENDINGS)} hold all of a report",
            hint=_NO_REPORT,
        )
    with _complaining(path), _opened(path) as file:
        if ending == ".jsonl":
            return ReportFile(path=path, run=_unknown_run(path), tells_run=False)
        return ReportFile(path=path, run=_run_from(_head(file), path), tells_run=True)


# ---- the file


def _opened(path: Path) -> TextIO:
    # It is read more than once, which a pipe cannot be.
    if path.exists() and not path.is_file():
        raise ValueError("it is no ordinary file")
    # Some editors put a mark before the first character.
    return path.open(encoding="utf-8-sig")


@contextlib.contextmanager
def _complaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RequestError(f"cannot read {path}: {why(error)}") from error
    except UnicodeDecodeError:
        raise RequestError(f"{path} is no report: it is not UTF-8", hint=_NO_REPORT) from None
    except ValueError as error:
        told = one_line(str(error), _LONGEST_COMPLAINT)
        raise RequestError(f"{path} is no report of a run: {told}", hint=_NO_REPORT) from None


def _head(file: TextIO) -> dict[str, Any]:
    """All but the trials; past them is read only for what is missing still."""
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
            result = trial_from_dict(data)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if result.index in seen:
            raise ValueError(f"{place}: a trial of index {result.index} was there before")
        seen.add(result.index)
        yield result


# ---- its run


def _run_from(head: dict[str, Any], path: Path) -> RunInfo:
    fields = Fields(head, "it")
    schema = fields.whole("schema")
    if schema > SCHEMA:
        raise ValueError(f"it was written by a later version of paraval (schema {schema})")
    run = fields.fields("run")
    if run is None:
        raise ValueError("it has no 'run'")
    ended_at = _epoch_s(run, "ended_at")
    interrupted, held_back = run.flag("interrupted"), run.flag("held_back")
    skipped = fields.mapping("summary").whole("skipped", default=0)
    # Reports did not always tell: a run without an end that nothing stopped goes on, unless there
    # is nothing left to do.
    goes_on = ended_at is None and not interrupted and not held_back and skipped > 0
    planned = run.whole("planned", default=0)
    return RunInfo(
        id=run.text("id"),
        suite=run.text("suite"),
        source=None,
        folder=str(path.absolute().parent),
        trials=planned,
        parallel=run.whole("parallel", default=0),
        seed=run.maybe_whole("seed") or 0,
        started_at=_epoch_s(run, "started_at") or 0.0,
        ended_at=ended_at,
        wall_s=run.number("wall_s") or 0.0,
        resumed=run.whole("resumed", default=0),
        interrupted=interrupted,
        held_back=held_back,
        fail_under=run.number("fail_under"),
        done=max(0, planned - skipped),
        dropped_usd=run.number("dropped_cost_usd") or 0.0,
        dropped_unknown=run.flag("dropped_cost_unknown"),
        running=run.flag("running") if run.has("running") else goes_on,
        **_asked_of(run),
    )


def _asked_of(run: Fields) -> dict[str, Any]:
    """What the run was planned with, where the report tells it."""
    stop, baseline = run.fields("stop"), run.fields("baseline")
    parts = run.mapping("parts")
    return {
        "stop": None if stop is None else _stop_rule(stop),
        "baseline": None
        if baseline is None
        else Baseline(name=baseline.text("name"), max_drop=baseline.share("max_drop") or 0.0),
        "parts": {name: parts.text(name) for name in parts.names()},
    }


def _stop_rule(fields: Fields) -> StopRule:
    confidence = fields.number("confidence")
    if confidence is None:
        return StopRule()
    if not 0 < confidence < 1:
        raise ValueError("'confidence' of 'stop' is not a number between 0 and 1")
    return StopRule(confidence=confidence)


def _epoch_s(fields: Fields, name: str) -> float | None:
    told = fields.maybe_text(name)
    if told is None:
        return None
    try:
        return datetime.fromisoformat(told).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"'{name}' of 'run' is no time") from None


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
