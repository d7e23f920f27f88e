"""A target's result: an output to grade, or a failure; and reading of files it wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, Protocol

from paraval import plain_files
from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.plain_files import PlainFileError
from paraval.records import (
    AccountUse,
    Activity,
    Attempt,
    Change,
    Exchange,
    Failure,
    Outcome,
    Output,
    Spend,
    Step,
    ToolCall,
)
from paraval.settings import ANSWER_LIMIT_BYTES


@dataclass(slots=True, kw_only=True)
class TargetAnswer:
    """Exactly one of `output` and `failure` is set."""

    output: Output | None = None
    failure: Failure | None = None
    exit_code: int | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Name -> absolute path."""
    notes: tuple[str, ...] = ()
    spend: Spend | None = None
    """Usage of model calls; None if unknown."""
    uses: tuple[AccountUse, ...] = ()
    target_s: float = 0.0
    """How long the target took in this attempt. Set by its caller."""
    answer_s: float | None = None
    """The same, with the time of cached answers, also when a later attempt grades it; None if
    unknown. Set by its caller."""
    cost_usd: float | None = None
    """What the answer cost, also when a later attempt grades it; None if unknown. Set by its
    caller."""
    activity: Activity | None = None
    """An agent's activity."""
    change: Change | None = None
    """For a stored answer: its attempt's changes in its workspace."""
    cpu_s: float | None = None
    """CPU seconds of its process tree; None if it had none of its own."""
    memory_bytes: int | None = None
    """Peak memory of its process tree, as far as observed."""
    exchange: Exchange | None = None
    """What the target was sent; None for a function, which gets the case itself."""


class Answerer(Protocol):
    """Performs attempts at one kind of target: the boundary to the real world."""

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        """Never raises for what the target does; CancelledError only after the target has ended."""
        ...

    async def close(self) -> None: ...


class InvalidOutputError(ValueError):
    """A result that cannot be read as an output."""


LARGEST_AMOUNT = 1e18
LONGEST_MESSAGE = 4000


def bounded(message: str) -> str:
    """Return the message, with its middle left out if it is too long."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    half = LONGEST_MESSAGE // 2
    return f"{message[:half]} [... {len(message) - 2 * half:,} characters ...] {message[-half:]}"


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
OUTPUT_KEYS = frozenset(("text", "usage", "cost_usd", "metadata"))


def read_output(value: Any) -> Output:
    """Convert a function's result to an output: text, a mapping, or an Output."""
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
    """Convert an object with text, usage, cost_usd, metadata and tool_calls; other keys become
    metadata."""
    if not isinstance(value.get("text"), str):
        raise InvalidOutputError("'text' is missing or not a string")
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidOutputError("'metadata' is not an object")
    calls = _tool_calls(value.get("tool_calls"))
    known = {*OUTPUT_KEYS, "tool_calls"} if calls else OUTPUT_KEYS
    others = {str(key): one for key, one in value.items() if key not in known}
    return checked(
        Output(
            text=value["text"],
            usage=value.get("usage") or {},
            cost_usd=value.get("cost_usd"),
            metadata={**others, **metadata},
            steps=(Step(text=value["text"], tool_calls=calls),) if calls else (),
        )
    )


def _tool_calls(value: Any) -> tuple[ToolCall, ...]:
    """Tool calls as a list of objects with name and arguments; anything else is metadata."""
    if not isinstance(value, list) or not all(
        isinstance(one, Mapping) and isinstance(one.get("name"), str) for one in value
    ):
        return ()
    return tuple(ToolCall(name=one["name"], arguments=one.get("arguments", {})) for one in value)


def checked(output: Output) -> Output:
    """Return the same output if it can be graded and stored; else InvalidOutputError."""
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
    if output.steps and len(as_json([asdict(step) for step in output.steps])) > ANSWER_LIMIT_BYTES:
        raise InvalidOutputError(f"its steps have more than {ANSWER_LIMIT_BYTES:,} characters")
    return output


def _check_amount(name: str, amount: Any) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise InvalidOutputError(f"{name} is {type(amount).__name__}, not a number")
    if not 0 <= amount <= LARGEST_AMOUNT:
        raise InvalidOutputError(
            f"{name} is not a valid amount: negative, not a number, or too large"
        )


def as_json(value: Any) -> str:
    """Return the value as JSON text; InvalidOutputError if it has none."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOutputError(f"the result is not plain JSON data: {error}") from error


def parse_object(text: str) -> Mapping[str, Any]:
    """Parse a JSON object strictly: no NaN, no duplicate keys, bounded nesting."""
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


# Files written by a target: unreadable ones are an invalid output.


def read_plain_file(path: str, limit: int = ANSWER_LIMIT_BYTES) -> bytes:
    """Return a file's content; InvalidOutputError has the reason if that fails."""
    try:
        return plain_files.read_plain_file(path, limit)
    except PlainFileError as error:
        message = str(error) if error.size is None else too_long(error.size, "bytes")
        raise InvalidOutputError(message) from error


def open_plain_file(path: str) -> int:
    """Open a file and return its descriptor; InvalidOutputError if missing or not regular."""
    try:
        return plain_files.open_plain_file(path)
    except PlainFileError as error:
        raise InvalidOutputError(str(error)) from error
