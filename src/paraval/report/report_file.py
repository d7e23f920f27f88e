"""A report that was written as .json or .jsonl, read back: a source like a run in the store.

What the file does not hold is not known: the attempts, and of .jsonl all but the trials. Trials are
read anew each time they are asked for, and never all held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

from paraval.documents.json import parse_strictly
from paraval.documents.json_stream import MOST_IN_A_VALUE, JsonPieces
from paraval.errors import RequestError, why
from paraval.records import (
    Activity,
    AttemptRecord,
    AttemptResult,
    Baseline,
    Change,
    Failure,
    FileChange,
    Grade,
    McpState,
    Outcome,
    Output,
    RunInfo,
    Scalar,
    Spend,
    StopRule,
    ToolUse,
    TrialResult,
)
from paraval.report.formats.json import SCHEMA
from paraval.report.summary.costs import finite
from paraval.text.terminal import one_line

# An object out of somebody's JSON, asked for one field after the other.

_SHOWN = 40
_DUST = 1e-9


class Fields:
    """Null is the same as missing."""

    __slots__ = ("_data", "_what")

    def __init__(self, data: object, what: str) -> None:
        """`what` it is, in messages: `a trial`, `'judging'`."""
        if not isinstance(data, dict):
            raise ValueError(f"{what} is no object")  # noqa: TRY004 - it is the file that is wrong
        self._data: dict[str, Any] = data
        self._what = what

    def names(self) -> Collection[str]:
        return self._data.keys()

    def has(self, name: str) -> bool:
        return self._data.get(name) is not None

    def text(self, name: str) -> str:
        found = self.maybe_text(name)
        if found is None:
            raise self._missing(name)
        return found

    def maybe_text(self, name: str) -> str | None:
        found = self._data.get(name)
        if found is None or isinstance(found, str):
            return found
        raise self._wrong(name, "text")

    def whole(self, name: str, *, default: int | None = None) -> int:
        """From 0 on; without a default it must be there."""
        found = self.maybe_whole(name)
        if found is None:
            found = default
        if found is None:
            raise self._missing(name)
        if found < 0:
            raise self._wrong(name, "number from 0 on")
        return found

    def maybe_whole(self, name: str) -> int | None:
        found = self._data.get(name)
        if found is None or (isinstance(found, int) and not isinstance(found, bool)):
            return found
        raise self._wrong(name, "whole number")

    def number(self, name: str) -> float | None:
        found = self._data.get(name)
        if found is None:
            return None
        if type(found) is float and isfinite(found):
            return found
        number = finite(found)
        if number is None:
            raise self._wrong(name, "number")
        return number

    def amount(self, name: str) -> float | None:
        """From 0 on."""
        found = self.number(name)
        if found is not None and found < 0:
            raise self._wrong(name, "number from 0 on")
        return found

    def share(self, name: str) -> float | None:
        """From 0 to 1, but for what rounding leaves of weighted means."""
        found = self.number(name)
        if found is None:
            return None
        if not -_DUST <= found <= 1 + _DUST:
            raise self._wrong(name, "number from 0 to 1")
        return min(max(found, 0.0), 1.0)

    def flag(self, name: str) -> bool:
        """False where nothing is said."""
        found = self._data.get(name)
        if found is None or isinstance(found, bool):
            return bool(found)
        raise self._wrong(name, "true or false")

    def scalar(self, name: str) -> Scalar:
        found = self._data.get(name)
        if isinstance(found, str | int | float):
            return found
        raise self._wrong(name, "text, number, true or false")

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._list(name)
        if found and not all(isinstance(one, str) for one in found):
            raise self._wrong(name, "list of texts")
        return tuple(found)

    def each(self, name: str) -> list[Fields]:
        """Of a list of objects."""
        return [Fields(one, f"an entry of '{name[:_SHOWN]}'") for one in self._list(name)]

    def fields(self, name: str) -> Fields | None:
        found = self._data.get(name)
        return None if found is None else Fields(found, f"'{name[:_SHOWN]}'")

    def mapping(self, name: str, *, is_needed: bool = False) -> Fields:
        """An empty one where there is none."""
        found = self._data.get(name)
        if found is None and is_needed:
            raise self._missing(name)
        return NOTHING if found is None or found == {} else Fields(found, f"'{name[:_SHOWN]}'")

    def _list(self, name: str) -> list[Any]:
        found = self._data.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self._wrong(name, "list")
        return found

    def _missing(self, name: str) -> ValueError:
        return ValueError(f"{self._what} has no '{name[:_SHOWN]}'")

    def _wrong(self, name: str, expected: str) -> ValueError:
        return ValueError(f"'{name[:_SHOWN]}' of {self._what} is not a {expected}")


NOTHING = Fields({}, "nothing")
"""An object without fields."""


# A trial of the JSON report, read back: what `as_json.trial_as_dict` wrote of it.

_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def trial_from_dict(data: object) -> TrialResult:
    fields = Fields(data, "a trial")
    spend = _spend(fields)
    total_s = fields.amount("duration_s") or 0.0
    judging = fields.fields("judging")
    retries = fields.mapping("retries")
    return TrialResult(
        index=fields.whole("index"),
        case_id=fields.text("case"),
        variant=_variant(fields),
        repeat=fields.whole("repeat"),
        result=_result(fields, total_s, usage={} if spend else _usage(fields)),
        attempts=fields.whole("attempts", default=1),
        queued_s=fields.number("queued_s"),
        total_s=total_s,
        spend=spend,
        judging=None if judging is None else _spend(judging) or Spend(cost_usd=None),
        retries={_outcome(kind): retries.whole(kind) for kind in retries.names()},
        retry_errors=tuple(_failure(error) for error in fields.each("retry_errors")),
        unended=fields.whole("unended", default=0),
    )


def _result(fields: Fields, total_s: float, usage: Mapping[str, float]) -> AttemptResult:
    answer, error = fields.maybe_text("output"), fields.fields("error")
    artifacts = fields.mapping("artifacts")
    activity, change = fields.fields("activity"), fields.fields("change")
    return AttemptResult(
        outcome=_verdict(fields),
        output=None if answer is None else Output(text=answer, usage=usage),
        grades=tuple(_grade(grade) for grade in fields.each("grades")),
        score=fields.share("score"),
        error=None if error is None else _failure(error),
        duration_s=total_s,
        exit_code=fields.maybe_whole("exit_code"),
        artifacts={name: artifacts.text(name) for name in artifacts.names()},
        notes=fields.texts("notes"),
        activity=None if activity is None else _activity(activity),
        change=None if change is None else _change(change),
        cpu_s=fields.number("cpu_s"),
        memory_bytes=fields.maybe_whole("memory_bytes"),
    )


def _spend(fields: Fields) -> Spend | None:
    """None where nothing was told, which is not the same as an unknown cost."""
    usd, is_unknown = fields.amount("cost_usd"), fields.flag("cost_unknown")
    if usd is None and not is_unknown:
        return None
    calls_unknown = "calls" in fields.names() and not fields.has("calls")
    return Spend(
        calls=fields.whole("calls", default=1 if calls_unknown else 0),
        calls_unknown=calls_unknown,
        cached=fields.whole("cached", default=0),
        cost_usd=None if is_unknown else usd,
        part_usd=(usd or 0.0) if is_unknown else 0.0,
        usage=_usage(fields),
    )


def _usage(fields: Fields) -> dict[str, float]:
    usage = fields.mapping("usage")
    if usage is NOTHING:
        return {}
    amounts = {name: usage.number(name) for name in usage.names()}
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _variant(fields: Fields) -> dict[str, Scalar]:
    variant = fields.mapping("variant", is_needed=True)
    return {axis: variant.scalar(axis) for axis in variant.names()}


def _outcome(name: str) -> Outcome:
    found = _OUTCOMES.get(name)
    if found is None:
        raise ValueError(f"'{name[:40]}' is no outcome")
    return found


def _verdict(fields: Fields) -> Outcome:
    """The trial's outcome, where the file doesn't say another beside it."""
    outcome = _outcome(fields.text("outcome"))
    passed = fields.flag("passed")
    if fields.has("passed") and passed is not (outcome is Outcome.PASSED):
        said = "true" if passed else "false"
        raise ValueError(f"'passed' is {said}, but 'outcome' is '{outcome.value}'")
    return outcome


def _grade(fields: Fields) -> Grade:
    return Grade(
        score=fields.number("score") or 0.0,
        passed=fields.flag("passed"),
        reason=fields.maybe_text("reason") or "",
        grader=fields.maybe_text("grader") or "",
        agreement=fields.number("agreement"),
    )


def _failure(fields: Fields) -> Failure:
    message = fields.maybe_text("message") or ""
    lasting = fields.flag("lasting")
    return Failure(kind=_outcome(fields.text("kind")), message=message, lasting=lasting)


def _activity(fields: Fields) -> Activity:
    mcp = fields.mapping("mcp")
    return Activity(
        turns=fields.maybe_whole("turns"),
        tools=tuple(_tool(tool) for tool in fields.each("tools")),
        mcp={name: _state(mcp.text(name)) for name in mcp.names()},
        tells_tools=fields.flag("tells_tools"),
        session=fields.maybe_text("session"),
        version=fields.maybe_text("version"),
        model=fields.maybe_text("model"),
    )


def _tool(fields: Fields) -> ToolUse:
    return ToolUse(
        name=fields.text("name"),
        server=fields.maybe_text("server"),
        calls=fields.whole("calls", default=0),
        failed=fields.whole("failed", default=0),
    )


def _state(name: str) -> McpState:
    return McpState(name) if name in {state.value for state in McpState} else McpState.UNKNOWN


def _change(fields: Fields) -> Change:
    numbers: dict[str, Any] = {
        name: fields.whole(name, default=0)
        for name in (
            "files_added",
            "files_changed",
            "files_deleted",
            "binary_files",
            "lines_added",
            "lines_deleted",
        )
    }
    return Change(
        **numbers,
        files=tuple(_file(file) for file in fields.each("files")),
        tampering=fields.texts("tampering"),
        unknown=fields.maybe_text("unknown"),
    )


def _file(fields: Fields) -> FileChange:
    return FileChange(
        path=fields.text("path"),
        status=fields.text("status"),
        lines_added=fields.maybe_whole("lines_added"),
        lines_deleted=fields.maybe_whole("lines_deleted"),
        binary=fields.flag("binary"),
    )


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
