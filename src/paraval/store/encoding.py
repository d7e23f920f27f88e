"""Records as text that SQLite takes and gives back: JSON for what has structure.

Users' programs write what they like: half characters, NUL, numbers of any size, nests without end.
Here, at the boundary, it becomes something that can be stored and shown; the raw bytes are kept in
artifacts, by others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from pydantic_core import CoreSchema as Form
from pydantic_core import SchemaValidator, ValidationError
from pydantic_core import core_schema as forms

from paraval.records import (
    Activity,
    AttemptResult,
    Case,
    Change,
    Failure,
    FileChange,
    Grade,
    McpState,
    Outcome,
    Output,
    Spend,
    ToolUse,
)

# What an attempt did, as JSON: an agent's activity, and what changed in its workspace.


def activity_content(activity: Activity) -> dict[str, Any]:
    content: dict[str, Any] = {
        name: told
        for name in ("turns", "session", "version", "model")
        if (told := getattr(activity, name)) is not None
    }
    if activity.tools:
        content["tools"] = [
            [tool.name, tool.server, tool.calls, tool.failed] for tool in activity.tools
        ]
    if activity.mcp:
        content["mcp"] = {server: state.value for server, state in activity.mcp.items()}
    if not activity.tells_tools:
        content["tells_tools"] = False
    return content


def activity_from(content: Any) -> Activity:
    # `dict` and the unpackings refuse what is damaged with the errors that a reader explains.
    told = dict(content)
    tools = [
        ToolUse(name=name, server=server, calls=calls, failed=failed)
        for name, server, calls, failed in told.pop("tools", ())
    ]
    mcp = {server: McpState(state) for server, state in dict(told.pop("mcp", {})).items()}
    return Activity(tools=tuple(tools), mcp=mcp, **told)


CHANGE_COUNTS = (
    "files_added",
    "files_changed",
    "files_deleted",
    "binary_files",
    "lines_added",
    "lines_deleted",
)


def change_content(change: Change) -> dict[str, Any]:
    content: dict[str, Any] = {
        name: number for name in CHANGE_COUNTS if (number := getattr(change, name))
    }
    if change.files:
        content["files"] = [_file_content(file) for file in change.files]
    if change.tampering:
        content["tampering"] = change.tampering
    if change.unknown is not None:
        content["unknown"] = change.unknown
    return content


def change_from(content: Any) -> Change:
    told = dict(content)
    files = [_file_from(*file) for file in told.pop("files", ())]
    return Change(files=tuple(files), tampering=tuple(told.pop("tampering", ())), **told)


def _file_content(file: FileChange) -> list[Any]:
    content = [file.path, file.status, file.lines_added, file.lines_deleted]
    return [*content, True] if file.binary else content


def _file_from(
    path: str, status: str, added: int | None, deleted: int | None, *binary: bool
) -> FileChange:
    return FileChange(
        path=path,
        status=status,
        lines_added=added,
        lines_deleted=deleted,
        binary=any(binary),
    )


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


def from_columns(columns: EndedColumns) -> AttemptResult:
    """ValueError where it is nothing that `to_columns` gives."""
    content = content_of(columns.content)
    activity, change = content.get("activity"), content.get("change")
    return AttemptResult(
        outcome=Outcome(columns.outcome),
        output=content.get("output"),
        grades=content.get("grades", ()),
        score=checked_number(columns.score),
        error=content.get("error"),
        duration_s=required_number(columns.duration_s),
        exit_code=None if columns.exit_code is None else required_whole(columns.exit_code),
        artifacts=content.get("artifacts", {}),
        notes=content.get("notes", ()),
        spend=content.get("spend"),
        judging=content.get("judging"),
        activity=None if activity is None else activity_from(activity),
        change=None if change is None else change_from(change),
        cpu_s=content.get("cpu_s"),
        memory_bytes=content.get("memory_bytes"),
    )


# ---- reading what is there, whoever wrote it


def content_of(text: str) -> dict[str, Any]:
    """What was written as an attempt's content: its parts by name, each a record or plain data."""
    content: dict[str, Any] = _CONTENT.validate_json(text)
    return content


def mapping_of(text: str) -> dict[str, Any]:
    """What was written as a JSON object with anything in it."""
    mapping: dict[str, Any] = _OBJECT.validate_json(text)
    return mapping


def selection_of(text: str) -> dict[str, Any]:
    """The filters and overrides of a run, and what races and tests keep beside them."""
    selection: dict[str, Any] = _SELECTION.validate_json(text)
    return selection


def case_of(case_id: str, text: str) -> Case:
    return Case(id=checked_text(case_id), **_CASE.validate_json(text))


def checked_text(value: Any) -> str:
    if type(value) is str:
        return value
    raise ValueError(f"{_shown(value)} where a text should be")


def checked_number(value: Any) -> float | None:
    return None if value is None else required_number(value)


def required_number(value: Any) -> float:
    """A duration, a score or a time: SQLite keeps what it is given, texts and blobs too."""
    if type(value) in (float, int) and -LARGEST_NUMBER < value < LARGEST_NUMBER:
        number: float = value
        return number
    raise ValueError(f"{_shown(value)} where a number should be")


def required_time(value: Any) -> float:
    if required_number(value) >= 0:
        return float(value)
    raise ValueError(f"{_shown(value)} where a time should be")


def required_whole(value: Any) -> int:
    if type(value) is int:
        return value
    raise ValueError(f"{_shown(value)} where a whole number should be")


def _shown(value: Any) -> str:
    return repr(value[:40] if isinstance(value, str | bytes) else value)


def in_words(error: ValidationError) -> str:
    """The first thing that does not fit."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]


LARGEST_NUMBER = 253_402_300_800.0
"""The end of the year 9999, in seconds since the epoch: no later time can be shown, and nothing
lasts as long."""
LARGEST_AMOUNT = 10**30
"""Of tokens, bytes or dollars, as a whole number: a larger one does not fit others."""

_TEXT = forms.str_schema()
_FLAG = forms.bool_schema()
_WHOLE = forms.int_schema(ge=-LARGEST_AMOUNT, le=LARGEST_AMOUNT)
# Whole numbers stay whole: reports show them as they came. What is not finite, reports leave out.
_AMOUNT = forms.union_schema([_WHOLE, forms.float_schema()], mode="smart")
_AMOUNTS = forms.dict_schema(_TEXT, _AMOUNT)
_ANYTHING = forms.dict_schema(_TEXT, forms.any_schema())
_TEXTS = forms.tuple_variable_schema(_TEXT)


def _or_null(form: Form) -> Form:
    return forms.nullable_schema(form)


def _record(kind: type, /, **members: Form) -> Form:
    """The form of a dataclass: with these members, of which those that have a default may miss."""
    arguments = []
    for field in fields(kind):
        form = members[field.name]
        if field.default is not MISSING:
            form = forms.with_default_schema(form, default=field.default)
        elif field.default_factory is not MISSING:
            form = forms.with_default_schema(form, default_factory=field.default_factory)
        arguments.append(forms.dataclass_field(field.name, form, kw_only=True))
    return forms.dataclass_schema(
        kind,
        forms.dataclass_args_schema(kind.__name__, arguments, extra_behavior="forbid"),
        [field.name for field in fields(kind)],
        slots=True,
        frozen=True,
    )


def _object(extra: forms.ExtraBehavior, **members: Form) -> Form:
    """The form of a JSON object, in which every member may miss."""
    return forms.typed_dict_schema(
        {name: forms.typed_dict_field(form, required=False) for name, form in members.items()},
        extra_behavior=extra,
    )


_SPEND = _record(
    Spend,
    calls=_WHOLE,
    calls_unknown=_FLAG,
    cached=_WHOLE,
    cost_usd=_or_null(_AMOUNT),
    part_usd=_AMOUNT,
    usage=_AMOUNTS,
)
_GRADE = _record(
    Grade, score=_AMOUNT, passed=_FLAG, reason=_TEXT, grader=_TEXT, agreement=_or_null(_AMOUNT)
)
_ERROR = _record(
    Failure,
    kind=forms.enum_schema(Outcome, list(Outcome), sub_type="str"),
    message=_TEXT,
    retry_after=_or_null(_AMOUNT),
    account=_or_null(_TEXT),
    lasting=_FLAG,
    stops=_or_null(_TEXT),
)
_ACTIVITY = _object(
    "forbid",
    turns=_WHOLE,
    session=_TEXT,
    version=_TEXT,
    model=_TEXT,
    tools=forms.list_schema(forms.tuple_schema([_TEXT, _or_null(_TEXT), _WHOLE, _WHOLE])),
    mcp=forms.dict_schema(_TEXT, _TEXT),
    tells_tools=_FLAG,
)
_CHANGED_FILE = forms.tuple_schema(
    [_TEXT, _TEXT, _or_null(_WHOLE), _or_null(_WHOLE), _FLAG], variadic_item_index=4
)
_CHANGE = _object(
    "forbid",
    **dict.fromkeys(CHANGE_COUNTS, _WHOLE),
    files=forms.list_schema(_CHANGED_FILE),
    tampering=_TEXTS,
    unknown=_TEXT,
)
_STRICTLY = forms.CoreConfig(strict=True)
_CONTENT = SchemaValidator(
    _object(
        "ignore",
        output=_record(
            Output, text=_TEXT, usage=_AMOUNTS, cost_usd=_or_null(_AMOUNT), metadata=_ANYTHING
        ),
        grades=forms.tuple_variable_schema(_GRADE),
        error=_ERROR,
        spend=_SPEND,
        judging=_SPEND,
        artifacts=forms.dict_schema(_TEXT, _TEXT),
        notes=_TEXTS,
        activity=_ACTIVITY,
        change=_CHANGE,
        # Measured by the way: nonsense is left out.
        cpu_s=forms.with_default_schema(forms.float_schema(), on_error="omit"),
        memory_bytes=forms.with_default_schema(forms.int_schema(), on_error="omit"),
    ),
    _STRICTLY,
)
_CASE = SchemaValidator(
    _object(
        "ignore",
        input=forms.any_schema(),
        expect=forms.any_schema(),
        tags=_TEXTS,
        metadata=_ANYTHING,
    ),
    _STRICTLY,
)
_SELECTION = SchemaValidator(
    _object(
        "allow",
        **dict.fromkeys(("cases", "tags", "models"), forms.list_schema(_TEXT)),
        variants=forms.list_schema(forms.list_schema(_TEXT, min_length=2, max_length=2)),
        parallel=forms.union_schema([_WHOLE, forms.literal_schema(["auto"])]),
        repeats=_WHOLE,
        **dict.fromkeys(("timeout", "fail_under", "max_drop", "budget_usd"), _AMOUNT),
        **dict.fromkeys(("baseline", "cache", "ref", "commit", "tree"), _TEXT),
    ),
    _STRICTLY,
)
_OBJECT = SchemaValidator(_ANYTHING, _STRICTLY)
