"""Encodes records as text for SQLite, structured ones as JSON, and decodes them again.

Users' programs write anything: lone surrogates, NUL, huge numbers, endless nesting. At this
boundary it becomes something that can be stored and shown; the raw bytes are kept as artifacts
elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic_core import to_json as quick_json

from paraval.codec import Style, hints_of, object_reader, record_encoder
from paraval.records import AttemptResult, Case, Outcome
from paraval.text.terminal import well_formed

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

DEEPEST = 100
"""Deeper nesting is cut: Python can write JSON that it cannot always read again."""

LONGEST_NUMBER = 4300
"""Digits; longer integers are written as text, since no JSON parser reads them back."""

_COMPACT = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":"), default=str
)


def to_json(value: Any) -> str:
    """Any value as JSON: unsupported types are written as text, deep nesting is cut."""
    try:
        text = _COMPACT.encode(value)
    except (TypeError, ValueError, RecursionError):
        text = _COMPACT.encode(_plain(value, DEEPEST))
    if text.count("[") + text.count("{") > DEEPEST:
        text = _COMPACT.encode(_plain(value, DEEPEST))
    return well_formed(text)


def data_to_json(data: Any) -> str:
    """The same for what is JSON data already, as each attempt writes it: several times as fast."""
    try:
        text = quick_json(data).decode()
    except ValueError:  # Lone surrogates, endless nesting.
        return to_json(data)
    is_sound = len(text) < LONGEST_NUMBER and text.count("[") + text.count("{") <= DEEPEST
    return text if is_sound else to_json(data)


def name_text(text: str) -> str:
    """Text for plain columns: without NUL, at which SQLite's functions stop reading."""
    text = well_formed(text)
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def _plain(value: Any, depth: int) -> Any:
    """The value in JSON types: keys as text, deep parts cut, other objects by type name."""
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
    is_short = not (case.tags or case.metadata or case.description)
    if is_short and type(case.input) is str and type(case.expect) is str:
        # The same for very many cases: the encoder is much quicker when all values are text.
        given, expect = encode_basestring(case.input), encode_basestring(case.expect)
        return well_formed(f'{{"input":{given},"expect":{expect}}}')
    content = {"input": case.input}
    if case.expect is not None:
        content["expect"] = case.expect
    if case.tags:
        content["tags"] = case.tags
    if case.metadata:
        content["metadata"] = dict(case.metadata)
    if case.description:
        content["description"] = case.description
    return to_json(content)


def variant_json(variant: Mapping[str, Any]) -> str:
    return to_json(dict(variant))


class EndedColumns(NamedTuple):
    """An attempt's columns that are known when it has ended, in the schema's order."""

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
        data_to_json(_content_encoder()(result)),
    )


def from_columns(columns: EndedColumns) -> AttemptResult:
    """Decode columns; ValueError unless `to_columns` wrote them."""
    return AttemptResult(
        outcome=Outcome(columns.outcome),
        score=checked_number(columns.score),
        duration_s=required_number(columns.duration_s),
        exit_code=None if columns.exit_code is None else required_whole(columns.exit_code),
        **content_of(columns.content),
    )


# ---- reading, whoever wrote it


def content_of(text: str) -> dict[str, Any]:
    """Decode an attempt's content: its parts by name, each a record or plain data."""
    content: dict[str, Any] = _content_reader().validate_json(text)
    return content


def mapping_of(text: str) -> dict[str, Any]:
    """Decode a JSON object with arbitrary content."""
    mapping: dict[str, Any] = _object_reader().validate_json(text)
    return mapping


def selection_of(text: str) -> dict[str, Any]:
    """Decode a run's filters and overrides, and what races and tests store with them."""
    selection: dict[str, Any] = _selection_reader().validate_json(text)
    return selection


def case_of(case_id: str, text: str) -> Case:
    return Case(id=checked_text(case_id), **_case_reader().validate_json(text))


def checked_text(value: Any) -> str:
    if type(value) is str:
        return value
    raise ValueError(f"{_shown(value)} where a text should be")


def checked_number(value: Any) -> float | None:
    return None if value is None else required_number(value)


def required_number(value: Any) -> float:
    """Check a duration, score or time: SQLite stores any type in any column."""
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


LARGEST_NUMBER = 253_402_300_800.0
"""The end of the year 9999 in seconds since the epoch: no later time can be displayed."""
_NOT_IN_CONTENT = frozenset({"outcome", "score", "duration_s", "exit_code", "uses", "exchanges"})
"""Fields with a column of their own, and fields that are not stored."""

# Made when first used: a run starts without them.


@cache
def _content_encoder() -> Callable[[Any], Any]:
    return record_encoder(AttemptResult, Style.STORED, _NOT_IN_CONTENT)


@cache
def _content_reader() -> SchemaValidator:
    hints = hints_of(AttemptResult).items()
    return object_reader(
        {name: hint for name, hint in hints if name not in _NOT_IN_CONTENT},
        measured=("target_s", "cpu_s", "memory_bytes"),
    )


@cache
def _case_reader() -> SchemaValidator:
    return object_reader(
        {
            name: hints_of(Case)[name]
            for name in ("input", "expect", "tags", "metadata", "description")
        }
    )


@cache
def _selection_reader() -> SchemaValidator:
    return object_reader(
        {
            **dict.fromkeys(("cases", "tags", "only", "models"), list[str]),
            **dict.fromkeys(("sample", "sample_seed", "limit"), int),
            "variants": list[tuple[str, str]],
            "parallel": int | Literal["auto"],
            **dict.fromkeys(("repeats", "max_regressed"), int),
            **dict.fromkeys(("timeout", "fail_under", "max_drop", "budget_usd"), float),
            "starts": dict[str, str],
            **dict.fromkeys(("baseline", "cache", "ref", "commit", "tree", "regrade"), str),
        },
        allows_more=True,
    )


@cache
def _object_reader() -> SchemaValidator:
    return object_reader({}, allows_more=True)
