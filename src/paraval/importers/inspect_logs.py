"""Logs of inspect-ai as runs: `.eval` (a zip file of samples) and `.json`."""

from __future__ import annotations

import datetime as dt
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import Problem, RequestError, SuiteError
from paraval.importers.results import ImportedTrial
from paraval.records import Case, Exchange, Grade, Outcome, Scalar, Step, ToolCall

_ZSTANDARD = 93
LARGEST_ENTRY = 256 << 20
LARGEST_LOG = 2 << 30
MOST_EPOCHS = 1_000_000
_LOCAL_HEADER_BYTES = 30
_ATTACHMENT = "attachment://"
_VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log: its task, its model, and its samples as the program wrote them."""

    path: Path
    header: Mapping[str, Any]
    samples: Sequence[Mapping[str, Any]]

    @property
    def task(self) -> str:
        return str(self.header["eval"].get("task") or self.path.stem).rpartition("/")[2]

    @property
    def when(self) -> float | None:
        return _time(self.header["eval"].get("created"))

    @property
    def is_complete(self) -> bool:
        return bool(self.header.get("status") == "success")

    @property
    def variant(self) -> dict[str, Scalar]:
        """The model, and the arguments that the task was given."""
        evaluation = self.header["eval"]
        given = evaluation.get("task_args_passed")
        named = given.items() if isinstance(given, dict) else ()
        axes = {name: one for name, one in named if isinstance(one, str | int | float)}
        return {**axes, "model": str(evaluation.get("model") or "none")}


def find_logs(paths: Sequence[Path]) -> list[Path]:
    """Return the log files that paths mean; a folder stands for all logs in it."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(one for one in path.rglob("*") if one.suffix in (".eval", ".json"))
        found += inside if path.is_dir() else [path]
    if not found:
        raise RequestError(f"{paths[0]} has no .eval or .json file")
    return found


def read_log(path: Path) -> Log:
    """Read a log; SuiteError if it is damaged."""
    try:
        is_archive = path.suffix == ".eval" or zipfile.is_zipfile(path)
        header, samples = _read_zip(path) if is_archive else _read_json(path)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError) as error:
        # The last two: it is encrypted, or compressed in an unknown way.
        message = f"not a zip archive, or incomplete (an eval that was killed?): {error}"
        raise SuiteError([Problem(message=message, file=str(path))]) from error
    except OSError as error:
        raise SuiteError([Problem(message=f"cannot be read: {error}", file=str(path))]) from error
    if not isinstance(header, dict) or not isinstance(header.get("eval"), dict):
        raise SuiteError([Problem(message="not a log of inspect-ai: no 'eval'", file=str(path))])
    return Log(path=path, header=header, samples=samples if isinstance(samples, list) else [])


def _read_json(path: Path) -> tuple[Any, Any]:
    log = _parsed(path.read_bytes(), str(path))
    return log, log.get("samples") or [] if isinstance(log, dict) else []


def _read_zip(path: Path) -> tuple[Any, Any]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        # A log without a header is of a run that was killed.
        header = "header.json" if "header.json" in names else "_journal/start.json"
        if header not in names:
            return None, []
        samples = [name for name in names if name.startswith("samples/")]
        total = sum(info.file_size for info in archive.infolist())
        if total > LARGEST_LOG:
            raise zipfile.BadZipFile(f"unpacked, it is larger than {LARGEST_LOG:,} bytes")
        return (
            _parsed(_entry(archive, header, path), f"{path}:{header}"),
            [_parsed(_entry(archive, name, path), f"{path}:{name}") for name in samples],
        )


def _entry(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    info = archive.getinfo(name)
    if info.file_size > LARGEST_ENTRY:
        raise zipfile.BadZipFile(f"{name} is larger than {LARGEST_ENTRY:,} bytes")
    if info.compress_type != _ZSTANDARD:
        with archive.open(info) as file:
            # Its size may be a lie.
            content = file.read(LARGEST_ENTRY + 1)
        if len(content) > LARGEST_ENTRY:
            raise zipfile.BadZipFile(f"{name} is larger than {LARGEST_ENTRY:,} bytes")
        return content
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise RequestError(
            f"{path} is compressed with Zstandard",
            hint="pip install 'paraval[data]', or: inspect log convert --to json --output-dir json "
            f"{path}",
        ) from None
    with path.open("rb") as file:
        file.seek(info.header_offset)
        lengths = struct.unpack("<HH", file.read(_LOCAL_HEADER_BYTES)[26:30])
        file.seek(sum(lengths), 1)
        packed = file.read(info.compress_size)
    try:
        unpacked: bytes = pa.decompress(packed, info.file_size, "zstd", asbytes=True)
    except (OSError, ValueError) as error:
        raise zipfile.BadZipFile(f"{name} is damaged: {error}") from None
    return unpacked


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        problem = Problem(message=f"not valid JSON: {error.msg}", file=where, line=error.lineno)
        raise SuiteError([problem]) from None
    except (ValueError, RecursionError) as error:
        raise SuiteError([Problem(message=f"not valid JSON: {error}", file=where)]) from None


def trials_of(log: Log, *, scorer: str | None, pass_at: float) -> Iterator[ImportedTrial]:
    """Return the samples as trials; the scorer (default: the first) decides which ones passed."""
    for at, sample in enumerate(log.samples):
        try:
            yield _trial(sample, log, scorer, pass_at)
        except (AttributeError, TypeError, ValueError, LookupError) as error:
            message = f"not a sample of inspect-ai: {error}"
            problem = Problem(message=message, file=str(log.path), key=f"samples[{at}]")
            raise SuiteError([problem]) from None


def trials_of_task(
    logs: Sequence[Log], *, scorer: str | None, pass_at: float
) -> list[ImportedTrial]:
    """Return the trials of all logs; an argument that a task was not given is `default`."""
    usual = {axis: "default" for log in logs for axis in log.variant}
    return [
        replace(trial, variant={**usual, **trial.variant})
        for log in logs
        for trial in trials_of(log, scorer=scorer, pass_at=pass_at)
    ]


def _trial(
    sample: Mapping[str, Any], log: Log, scorer: str | None, pass_at: float
) -> ImportedTrial:
    scores = sample.get("scores") or {}
    grades = dict(_grades(scores, pass_at))
    if scorer is not None and grades and scorer not in grades:
        raise RequestError(
            f"{log.path} has no scores by '{scorer}'", hint=f"it has: {', '.join(grades)}"
        )
    # Without a usable score by the first scorer, no other one decides.
    first = next(iter(scores), "")
    names = [name for name in grades if name == first or name.startswith(f"{first}.")]
    decisive = grades.get(scorer or next(iter(names), ""))
    outcome, error = _outcome(sample, decisive)
    # Half a surrogate pair cannot be stored.
    json.dumps(sample, ensure_ascii=False).encode()
    repeat, duration_s = int(sample.get("epoch") or 1), float(sample.get("total_time") or 0)
    if not 1 <= repeat <= MOST_EPOCHS:
        raise ValueError(f"epoch {repeat:.3g}")
    if not (math.isfinite(duration_s) and duration_s >= 0):
        raise ValueError(f"total_time {duration_s}")
    usage, cost = _usage(sample.get("model_usage") or {})
    return ImportedTrial(
        case=_case(sample),
        variant=log.variant,
        repeat=repeat,
        outcome=outcome,
        score=decisive.score if decisive is not None and outcome.is_judged else None,
        grades=tuple(grades.values()) if outcome.is_judged else (),
        output=_answer(sample),
        error=error,
        cost_usd=cost,
        usage=usage,
        duration_s=duration_s,
        started_at=_time(sample.get("started_at")) or log.when,
        exchanges=(_transcript(sample, log.variant["model"]),),
    )


def _case(sample: Mapping[str, Any]) -> Case:
    given = sample.get("input")
    if isinstance(given, list):
        given = [{"role": one.get("role"), "content": _text(one, sample)} for one in given]
    metadata = dict(sample.get("metadata") or {})
    if sample.get("choices"):
        metadata["choices"] = sample["choices"]
    return Case(
        id=str(sample.get("id")), input=given, expect=sample.get("target"), metadata=metadata
    )


def _outcome(sample: Mapping[str, Any], decisive: Grade | None) -> tuple[Outcome, str | None]:
    """An error or a limit is never a wrong answer."""
    if sample.get("error"):
        return Outcome.CRASHED, str(sample["error"].get("message") or "error")
    if decisive is not None and decisive.passed:
        return Outcome.PASSED, None
    if limit := sample.get("limit"):
        return Outcome.TIMEOUT, f"{limit.get('type')} limit reached: {limit.get('limit')}"
    if decisive is None:
        return Outcome.GRADER_ERROR, "no scorer gave a usable score"
    return Outcome.FAILED, None


def _grades(scores: Mapping[str, Any], pass_at: float) -> Iterator[tuple[str, Grade]]:
    for name, written in scores.items():
        value = written.get("value") if isinstance(written, dict) else written
        reason = str((written.get("explanation") if isinstance(written, dict) else "") or "")
        parts = value if isinstance(value, dict) else {"": value}
        for part, inner in parts.items():
            score = _number(inner)
            if score is not None:
                full = f"{name}.{part}" if part else name
                passed = score >= pass_at
                yield full, Grade(score=score, passed=passed, reason=reason, grader=full)


def _number(value: Any) -> float | None:
    """Return a score from 0 to 1; None if it is something else."""
    if isinstance(value, str):
        if value in _VALUES or value.lower() in _VALUES:
            return _VALUES.get(value, _VALUES.get(value.lower()))
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= 1:
        return None
    return float(value)


def _usage(models: Mapping[str, Any]) -> tuple[dict[str, float], float | None]:
    """Return the tokens of all models of a sample, and their cost if it is known."""
    usage = {"input_tokens": 0.0, "output_tokens": 0.0, "cached_tokens": 0.0}
    costs: list[Any] = []
    for used in models.values():
        output = used.get("output_tokens") or 0
        total = used.get("total_tokens") or 0
        usage["output_tokens"] += output
        # The total includes cached tokens, which some providers count apart.
        usage["input_tokens"] += max(used.get("input_tokens") or 0, total - output)
        usage["cached_tokens"] += used.get("input_tokens_cache_read") or 0
        costs.append(used.get("total_cost"))
    known = costs and all(cost is not None for cost in costs)
    found = {name: count for name, count in usage.items() if count}
    return found, sum(costs) if known else None


# Messages.


def _answer(sample: Mapping[str, Any]) -> str | None:
    output = sample.get("output") or {}
    choices = output.get("choices") or []
    if choices:
        return _text(choices[0].get("message") or {}, sample)
    return output.get("completion") or None


def _text(message: Mapping[str, Any], sample: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    texts = [
        str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]"
        for part in parts
        if part.get("type") != "reasoning"
    ]
    attached = sample.get("attachments") or {}
    found = [
        str(attached.get(text.removeprefix(_ATTACHMENT), text))
        if text.startswith(_ATTACHMENT)
        else text
        for text in texts
    ]
    return "\n".join(found)


def _transcript(sample: Mapping[str, Any], model: Scalar) -> Exchange:
    """Return what was sent first, and then the model's turns with their tool calls."""
    messages = [one for one in sample.get("messages") or [] if isinstance(one, dict)]
    roles = [one.get("role") for one in messages]
    first = roles.index("assistant") if "assistant" in roles else len(messages)
    results = {one.get("tool_call_id"): one for one in messages if one.get("role") == "tool"}
    steps: list[Step] = []
    for one in messages[first:]:
        if one.get("role") == "assistant":
            calls = tuple(_tool_call(call, results, sample) for call in one.get("tool_calls") or [])
            steps.append(Step(text=_text(one, sample), tool_calls=calls))
        elif one.get("role") != "tool":
            steps.append(Step(text=f"({one.get('role')}) {_text(one, sample)}"))
    sent = [{"role": one.get("role"), "content": _text(one, sample)} for one in messages[:first]]
    only_answer = len(steps) == 1 and not steps[0].tool_calls
    return Exchange(
        request={"model": model, "messages": sent}, steps=() if only_answer else tuple(steps)
    )


def _tool_call(
    call: Mapping[str, Any], results: Mapping[Any, Mapping[str, Any]], sample: Mapping[str, Any]
) -> ToolCall:
    result = results.get(call.get("id"))
    return ToolCall(
        name=str(call.get("function") or ""),
        arguments=call.get("arguments"),
        id=call.get("id"),
        result=None if result is None else _text(result, sample),
        failed=result is not None and bool(result.get("error")),
    )


def _time(text: Any) -> float | None:
    try:
        return dt.datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None
