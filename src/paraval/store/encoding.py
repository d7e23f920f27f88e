"""Records as text that SQLite takes and gives back: JSON for what has structure.

Users' programs write what they like: half characters, NUL, numbers of any size, nests without end.
Here, at the boundary, it becomes something that can be stored and shown; the raw bytes are kept in
artifacts, by others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic_core import from_json

from paraval.records import AttemptResult, Case, Failure, Grade, Outcome, Output, Spend
from paraval.store.deeds import activity_content, activity_from, change_content, change_from

DEEPEST = 100
"""Nests deeper than this are cut: what Python can write as JSON, it cannot always read again."""

_SURROGATES = re.compile(r"[\ud800-\udfff]+")
_COMPACT = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":"), default=str
)


def to_json(value: Any) -> str:
    """JSON of anything: what JSON cannot hold is written as text, what is too deep is cut."""
    try:
        text = _COMPACT.encode(value)
    except (TypeError, ValueError, RecursionError):
        text = _COMPACT.encode(_plain(value, DEEPEST))
    if text.count("[") + text.count("{") > DEEPEST:
        text = _COMPACT.encode(_plain(value, DEEPEST))
    return storable(text)


def storable(text: str) -> str:
    """The text with half characters (lone surrogates) made whole or replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub(_whole_characters, text)
    return text


def name_text(text: str) -> str:
    """For plain columns: also without NUL, at which SQLite's own functions stop reading."""
    text = storable(text)
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def _whole_characters(match: re.Match[str]) -> str:
    return match[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain(value: Any, depth: int) -> Any:
    """The value rebuilt from what JSON knows; keys as text, deep parts cut, strangers by name."""
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < 10_000 else f"<a number of {value.bit_length()} bits>"
    if depth == 0:
        return "<cut: nested too deep>"
    if isinstance(value, Mapping):
        return {_key_text(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth - 1) for item in value]
    return _described(value)


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else _described(key)


def _described(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - an object of the user's, whose __str__ may raise anything
        return f"<{type(value).__name__}>"


def case_json(case: Case) -> str:
    if type(case.input) is str and type(case.expect) is str and not (case.tags or case.metadata):
        # As below, but for very many cases: the encoder is much quicker with texts alone.
        texts = _COMPACT.encode(case.input), _COMPACT.encode(case.expect)
        return storable('{{"input":{},"expect":{}}}'.format(*texts))
    content = {"input": case.input}
    if case.expect is not None:
        content["expect"] = case.expect
    if case.tags:
        content["tags"] = case.tags
    if case.metadata:
        content["metadata"] = dict(case.metadata)
    return to_json(content)


def variant_json(variant: Mapping[str, Any]) -> str:
    return to_json(dict(variant))


class EndedColumns(NamedTuple):
    """The columns of an attempt that are known when it has ended, in the schema's order."""

    outcome: str
    score: float | None
    duration_s: float
    exit_code: int | None
    content: str


def to_columns(result: AttemptResult) -> EndedColumns:
    return EndedColumns(
        result.outcome.value,
        result.score,
        result.duration_s,
        result.exit_code,
        to_json(_content(result)),
    )


def _content(result: AttemptResult) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if (output := result.output) is not None:
        content["output"] = _output_content(output)
    if result.grades:
        content["grades"] = [_grade_content(grade) for grade in result.grades]
    if (error := result.error) is not None:
        content["error"] = _error_content(error)
    if result.spend is not None:
        content["spend"] = _spend_content(result.spend)
    if result.judging is not None:
        content["judging"] = _spend_content(result.judging)
    if result.artifacts:
        content["artifacts"] = dict(result.artifacts)
    if result.notes:
        content["notes"] = result.notes
    _add_deeds(content, result)
    return content


def _add_deeds(content: dict[str, Any], result: AttemptResult) -> None:
    if result.activity is not None:
        content["activity"] = activity_content(result.activity)
    if result.change is not None:
        content["change"] = change_content(result.change)
    if result.cpu_s is not None:
        content["cpu_s"] = result.cpu_s
    if result.memory_bytes is not None:
        content["memory_bytes"] = result.memory_bytes


def _output_content(output: Output) -> dict[str, Any]:
    content: dict[str, Any] = {"text": output.text}
    if output.usage:
        content["usage"] = dict(output.usage)
    if output.cost_usd is not None:
        content["cost_usd"] = output.cost_usd
    if output.metadata:
        content["metadata"] = dict(output.metadata)
    return content


def _grade_content(grade: Grade) -> dict[str, Any]:
    content: dict[str, Any] = {
        "grader": grade.grader,
        "score": grade.score,
        "passed": grade.passed,
        "reason": grade.reason,
    }
    if grade.agreement is not None:
        content["agreement"] = grade.agreement
    return content


def _error_content(error: Failure) -> dict[str, Any]:
    content: dict[str, Any] = {"kind": error.kind, "message": error.message}
    if error.retry_after is not None:
        content["retry_after"] = error.retry_after
    if error.account is not None:
        content["account"] = error.account
    if error.lasting:
        content["lasting"] = True
    if error.stops is not None:
        content["stops"] = error.stops
    return content


def _spend_content(spend: Spend) -> dict[str, Any]:
    # A price that is unknown is written as null: left out, it would be read as nothing to pay.
    content: dict[str, Any] = {"calls": spend.calls, "cost_usd": spend.cost_usd}
    if spend.calls_unknown:
        content["calls_unknown"] = True
    if spend.part_usd:
        content["part_usd"] = spend.part_usd
    if spend.cached:
        content["cached"] = spend.cached
    if spend.usage:
        content["usage"] = dict(spend.usage)
    return content


def content_of(text: str) -> dict[str, Any]:
    """What was written as an attempt's content; by the quicker parser, for there may be many."""
    content: dict[str, Any] = from_json(text)
    return content


def from_columns(columns: EndedColumns) -> AttemptResult:
    content = content_of(columns.content)
    error = content.get("error")
    return AttemptResult(
        outcome=Outcome(columns.outcome),
        output=Output(**content["output"]) if "output" in content else None,
        grades=tuple(Grade(**grade) for grade in content.get("grades", ())),
        score=columns.score,
        error=None if error is None else Failure(**{**error, "kind": Outcome(error["kind"])}),
        duration_s=columns.duration_s,
        exit_code=columns.exit_code,
        artifacts=content.get("artifacts", {}),
        notes=tuple(content.get("notes", ())),
        spend=spend_in(content, "spend"),
        judging=spend_in(content, "judging"),
        activity=activity_from(content["activity"]) if "activity" in content else None,
        change=change_from(content["change"]) if "change" in content else None,
        cpu_s=content.get("cpu_s"),
        memory_bytes=content.get("memory_bytes"),
    )


def spend_in(content: Mapping[str, Any], part: str) -> Spend | None:
    """One of the spends in an attempt's content: `spend`, its target's, or `judging`."""
    return Spend(**content[part]) if part in content else None
