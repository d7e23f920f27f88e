"""A report that was written as .json or .jsonl, read back: a source like a run in the store.

What the file does not hold is not known: the attempts, and of .jsonl all but the trials. Trials are
read anew each time they are asked for, and never all held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

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
    Grade,
    Outcome,
    Output,
    RunInfo,
    Spend,
    StopRule,
    TrialResult,
)
from paraval.report.formats.json import SCHEMA
from paraval.text.terminal import one_line

# What a report holds, as `formats.json` writes it. Null is the same as missing, but for `calls`,
# and what a later version adds is passed over.

_DUST = 1e-9
"""What rounding leaves of weighted means."""

Whole = Annotated[int, Field(strict=True, ge=0)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Amount = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(ge=-_DUST, le=1 + _DUST)]


def _told(data: object) -> object:
    """With what a record must have, where the report says nothing of it."""
    if not isinstance(data, dict):
        return data
    known = {name: value for name, value in data.items() if value is not None}
    return {"score": 0.0, "passed": False, "message": "", **known}


class _SpendForm(BaseModel):
    cost_usd: Amount | None = None
    cost_unknown: StrictBool | None = None
    calls: Whole | None = None
    cached: Whole | None = None
    usage: dict[str, StrictInt | Number | None] | None = None

    def used(self) -> dict[str, float]:
        return {name: told for name, told in (self.usage or {}).items() if told is not None}

    def spend(self) -> Spend | None:
        """None where nothing was told, which is not the same as an unknown cost."""
        if self.cost_usd is None and not self.cost_unknown:
            return None
        calls_unknown = "calls" in self.model_fields_set and self.calls is None
        return Spend(
            calls=1 if calls_unknown else self.calls or 0,
            calls_unknown=calls_unknown,
            cached=self.cached or 0,
            cost_usd=None if self.cost_unknown else self.cost_usd,
            part_usd=(self.cost_usd or 0.0) if self.cost_unknown else 0.0,
            usage=self.used(),
        )


class _TrialForm(_SpendForm):
    index: Whole
    case: str
    variant: dict[str, StrictStr | StrictBool | StrictInt | StrictFloat]
    repeat: Whole
    outcome: Outcome
    passed: StrictBool | None = None
    score: Share | None = None
    grades: tuple[Annotated[Grade, BeforeValidator(_told)], ...] | None = None
    attempts: Whole | None = None
    duration_s: Amount | None = None
    queued_s: Number | None = None
    judging: _SpendForm | None = None
    retries: dict[Outcome, Whole] | None = None
    retry_errors: tuple[Annotated[Failure, BeforeValidator(_told)], ...] | None = None
    unended: Whole | None = None
    output: str | None = None
    error: Annotated[Failure, BeforeValidator(_told)] | None = None
    artifacts: dict[str, str] | None = None
    exit_code: StrictInt | None = None
    notes: tuple[str, ...] | None = None
    activity: Annotated[Activity, BeforeValidator(_told)] | None = None
    change: Annotated[Change, BeforeValidator(_told)] | None = None
    cpu_s: Number | None = None
    memory_bytes: StrictInt | None = None


class _StopRuleForm(BaseModel):
    confidence: Annotated[Number, Field(gt=0, lt=1)] = StopRule().confidence


class _BaselineForm(BaseModel):
    name: str
    max_drop: Share = 0.0


class _RunForm(BaseModel):
    id: str
    suite: str
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    wall_s: Number | None = None
    parallel: Whole | None = None
    resumed: Whole | None = None
    interrupted: StrictBool | None = None
    held_back: StrictBool | None = None
    running: StrictBool | None = None
    planned: Whole | None = None
    seed: StrictInt | None = None
    fail_under: Number | None = None
    dropped_cost_usd: Number | None = None
    dropped_cost_unknown: StrictBool | None = None
    stop: _StopRuleForm | None = None
    baseline: _BaselineForm | None = None
    parts: dict[str, str] | None = None


class _SummaryForm(BaseModel):
    skipped: Whole | None = None


class _HeadForm(BaseModel):
    version: Whole = Field(alias="schema")
    run: dict[str, Any]
    summary: _SummaryForm | None = None


F = TypeVar("F", bound=BaseModel)


def _filled(form: type[F], data: object, *inside: str) -> F:
    try:
        return form.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, (*inside, *first["loc"])))
        raise ValueError(f"'{place}': {first['msg']}" if place else first["msg"]) from None


def trial_from_dict(data: object) -> TrialResult:
    told = _filled(_TrialForm, data)
    if told.passed is not None and told.passed is not (told.outcome is Outcome.PASSED):
        said = "true" if told.passed else "false"
        raise ValueError(f"'passed' is {said}, but 'outcome' is '{told.outcome.value}'")
    spend = told.spend()
    judging, total_s = told.judging, told.duration_s or 0.0
    usage = {} if spend else told.used()
    result = AttemptResult(
        outcome=told.outcome,
        output=None if told.output is None else Output(text=told.output, usage=usage),
        grades=told.grades or (),
        score=None if told.score is None else min(max(told.score, 0.0), 1.0),
        error=told.error,
        duration_s=total_s,
        exit_code=told.exit_code,
        artifacts=told.artifacts or {},
        notes=told.notes or (),
        activity=told.activity,
        change=told.change,
        cpu_s=told.cpu_s,
        memory_bytes=told.memory_bytes,
    )
    return TrialResult(
        index=told.index,
        case_id=told.case,
        variant=told.variant,
        repeat=told.repeat,
        result=result,
        attempts=1 if told.attempts is None else told.attempts,
        queued_s=told.queued_s,
        total_s=total_s,
        spend=spend,
        judging=None if judging is None else judging.spend() or Spend(cost_usd=None),
        retries=told.retries or {},
        retry_errors=told.retry_errors or (),
        unended=told.unended or 0,
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
    told = _filled(_HeadForm, head)
    if told.version > SCHEMA:
        raise ValueError(f"it was written by a later version of paraval (schema {told.version})")
    run = _filled(_RunForm, told.run, "run")
    skipped = (told.summary and told.summary.skipped) or 0
    # Reports did not always tell: a run without an end that nothing stopped goes on, unless there
    # is nothing left to do.
    is_stopped = run.ended_at is not None or run.interrupted or run.held_back
    planned = run.planned or 0
    stop, baseline = run.stop, run.baseline
    return RunInfo(
        id=run.id,
        suite=run.suite,
        source=None,
        folder=str(path.absolute().parent),
        trials=planned,
        parallel=run.parallel or 0,
        seed=run.seed or 0,
        started_at=0.0 if run.started_at is None else run.started_at.timestamp(),
        ended_at=None if run.ended_at is None else run.ended_at.timestamp(),
        wall_s=run.wall_s or 0.0,
        resumed=run.resumed or 0,
        interrupted=run.interrupted or False,
        held_back=run.held_back or False,
        fail_under=run.fail_under,
        done=max(0, planned - skipped),
        dropped_usd=run.dropped_cost_usd or 0.0,
        dropped_unknown=run.dropped_cost_unknown or False,
        running=skipped > 0 and not is_stopped if run.running is None else run.running,
        stop=None if stop is None else StopRule(**stop.model_dump()),
        baseline=None if baseline is None else Baseline(**baseline.model_dump()),
        parts=run.parts or {},
    )


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
