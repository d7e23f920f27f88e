"""What a target gives back: an output to be judged, or the failure that took its place; and how
files that it wrote are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from paraval import plain_files
from paraval.documents.json import parse_strictly
from paraval.plain_files import PlainFileError
from paraval.records import AccountUse, Activity, Attempt, Failure, Outcome, Output, Spend
from paraval.settings import ANSWER_LIMIT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAnswer:
    """Exactly one of `output` and `failure` is there."""

    output: Output | None = None
    failure: Failure | None = None
    exit_code: int | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> absolute path."""
    notes: tuple[str, ...] = ()
    spend: Spend | None = None
    """What calls of models took; None where nothing is known of it."""
    uses: tuple[AccountUse, ...] = ()
    activity: Activity | None = None
    """Of an agent."""
    cpu_s: float | None = None
    """Of its process tree; None where it had none of its own."""
    memory_bytes: int | None = None
    """The most that its process tree held at once, as far as it was seen."""


class Answerer(Protocol):
    """Where reality enters: performs one attempt at a kind of target."""

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        """Never raises for what the target does; CancelledError only after the target is gone."""
        ...

    async def close(self) -> None: ...


class InvalidOutputError(ValueError):
    """What came back cannot be read as an output."""


LARGEST_AMOUNT = 1e18
LONGEST_MESSAGE = 4000


def bounded(message: str) -> str:
    """The message, with its middle left out where it is too long to be of use."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    half = LONGEST_MESSAGE // 2
    return f"{message[:half]} [... {len(message) - 2 * half:,} characters ...] {message[-half:]}"


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
OUTPUT_FIELDS = frozenset(field.name for field in fields(Output))


def read_output(value: Any) -> Output:
    """An output from what a function returned: text, a mapping, or an Output."""
    if isinstance(value, str):
        return checked(Output(text=value))
    if isinstance(value, Output):
        return checked(value)
    if isinstance(value, Mapping):
        return from_mapping(value) if "text" in value else checked(Output(text=as_json(value)))
    raise InvalidOutputError(
        f"returned {type(value).__name__}; a target returns text, a mapping or paraval.Output"
    )


def from_mapping(value: Mapping[Any, Any]) -> Output:
    """An output from an object with text, usage, cost_usd and metadata; the rest is metadata."""
    if not isinstance(value.get("text"), str):
        raise InvalidOutputError("'text' is missing or not a string")
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidOutputError("'metadata' is not an object")
    others = {str(key): one for key, one in value.items() if key not in OUTPUT_FIELDS}
    return checked(
        Output(
            text=value["text"],
            usage=value.get("usage") or {},
            cost_usd=value.get("cost_usd"),
            metadata={**others, **metadata},
        )
    )


def checked(output: Output) -> Output:
    """The same output, if it is one that can be judged and stored."""
    if not isinstance(output.text, str):
        raise InvalidOutputError(f"the output's text is {type(output.text).__name__}, not a string")
    if len(output.text) > ANSWER_LIMIT_BYTES:
        raise InvalidOutputError(too_long(len(output.text), "characters"))
    if not isinstance(output.usage, Mapping):
        raise InvalidOutputError("'usage' is not an object")
    for name, amount in output.usage.items():
        _check_amount(f"usage '{name}'", amount)
    if output.cost_usd is not None:
        _check_amount("'cost_usd'", output.cost_usd)
    if output.metadata and len(as_json(output.metadata)) > ANSWER_LIMIT_BYTES:
        raise InvalidOutputError(f"its metadata has more than {ANSWER_LIMIT_BYTES:,} characters")
    return output


def _check_amount(name: str, amount: Any) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise InvalidOutputError(f"{name} is {type(amount).__name__}, not a number")
    if not 0 <= amount <= LARGEST_AMOUNT:
        raise InvalidOutputError(
            f"{name} is not a valid amount: negative, not a number, or too large"
        )


def as_json(value: Any) -> str:
    """The value as JSON text, or why it has none."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOutputError(f"the result is not plain JSON data: {error}") from error


def parse_object(text: str) -> Mapping[str, Any]:
    """A JSON object, strictly: no NaN, no doubled keys, no bottomless nesting."""
    try:
        value = parse_strictly(text)
    except ValueError as error:
        raise InvalidOutputError(f"the output is not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise InvalidOutputError(f"the output is a JSON {type(value).__name__}, not an object")
    return value


def too_long(size: int, unit: str) -> str:
    return f"the answer has {size:,} {unit}; the limit is {ANSWER_LIMIT_BYTES:,}"


def invalid(message: str) -> Failure:
    return Failure(kind=Outcome.INVALID_OUTPUT, message=message)


def seconds(amount: float) -> str:
    """`60 s`, `0.25 s`."""
    return f"{amount:g} s"


# Files that a target wrote: what cannot be read of them is an invalid output.


def read_plain_file(path: str, limit: int = ANSWER_LIMIT_BYTES) -> bytes:
    """All of it; InvalidOutputError says why that cannot be had."""
    try:
        return plain_files.read_plain_file(path, limit)
    except PlainFileError as error:
        message = str(error) if error.size is None else too_long(error.size, "bytes")
        raise InvalidOutputError(message) from error


def open_plain_file(path: str) -> int:
    """A descriptor to read it by; InvalidOutputError where it is missing or not a regular file."""
    try:
        return plain_files.open_plain_file(path)
    except PlainFileError as error:
        raise InvalidOutputError(str(error)) from error
