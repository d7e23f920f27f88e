"""What the protocols share when an answer is read, tokens included. What a server sends is not
trusted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paraval.models.requests import Request
from paraval.settings import ANSWER_LIMIT_BYTES

LONGEST_NAME = 200
MOST_TOOL_CALLS = 1000

CUT = "cut at max_tokens"
NO_USAGE = "the provider reported no usage: tokens and cost are unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReading:
    """An answer as a protocol's adapter read it."""

    text: str
    usage: Mapping[str, float] | None
    metadata: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerComplaint:
    """What a server says of its refusal or failure."""

    message: str = ""
    kinds: frozenset[str] = frozenset()
    """Its type and code, as they stand: `rate_limit_error`, `insufficient_quota`."""
    status: int | None = None
    """Of an error inside an answer that began well: the status it would have had, if told."""

    def cleaned(self, clean: Clean) -> ServerComplaint:
        return replace(self, message=clean(self.message))


Clean = Callable[[str], str]
"""Takes keys out of a text. Whatever is quoted is cleaned first and shortened then: a key that is
cut in half is not found any more."""


class ReadingError(Exception):
    """Why there is no answer in what came back."""

    def cleaned(self, _: Clean) -> ReadingError:
        return self


class TruncatedError(ReadingError):
    """A stream that ended before its end."""


class TooLongError(ReadingError):
    """More than is read of one answer."""


class UnreadableError(ReadingError):
    """What came back does not follow the protocol."""

    def __init__(self, why: str, *, said: str = "") -> None:
        """`why` in our own words; `said`: what the server said instead."""
        super().__init__(why)
        self.why = why
        self.said = said

    def cleaned(self, clean: Clean) -> UnreadableError:
        return UnreadableError(self.why, said=clean(self.said))


class ErrorInStreamError(ReadingError):
    """A server that answers 200, and then says that it failed."""

    def __init__(self, complaint: ServerComplaint) -> None:
        super().__init__()
        self.complaint = complaint

    def cleaned(self, clean: Clean) -> ErrorInStreamError:
        return ErrorInStreamError(self.complaint.cleaned(clean))


class PageError(ReadingError):
    """A web page, for people, where an answer should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page

    def cleaned(self, clean: Clean) -> PageError:
        return PageError(clean(self.page))


def complaint_of(told: Any) -> ServerComplaint:
    """From what stands under `error`, in any of the forms that servers use."""
    if not isinstance(told, Mapping):
        return ServerComplaint(message=told if isinstance(told, str) else "")
    message = told.get("message")
    named = [told.get(name) for name in ("type", "code", "status")]
    status = next((one for one in named if isinstance(one, int) and 400 <= one < 600), None)
    return ServerComplaint(
        message=message if isinstance(message, str) else "",
        kinds=frozenset(one for one in named if isinstance(one, str)),
        status=status,
    )


def raise_if_error(told: Mapping[str, Any]) -> None:
    if error := told.get("error"):
        raise ErrorInStreamError(complaint_of(error))


def text_of(content: Any) -> str:
    """The text of a content: itself, nothing, or its parts."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise UnreadableError(f"its content is {kind_of(content)}")
    return "".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    """Parts of other kinds (thinking, images) are no part of the answer's text."""
    if not isinstance(part, Mapping) or part.get("type") not in ("text", "output_text"):
        return ""
    text = part.get("text")
    if not isinstance(text, str):
        raise UnreadableError(f"the text of a part of its content is {kind_of(text)}")
    return text


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    if isinstance(value, dict):
        return value
    raise UnreadableError(f"its '{name}' is {kind_of(value)}, not an object")


def elements(value: Any, name: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise UnreadableError(f"its '{name}' is {kind_of(value)}, not a list")


def kind_of(value: Any) -> str:
    """What a value is in JSON's terms."""
    match value:
        case None:
            return "missing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
    return "an object"


def joined(parts: Iterable[str]) -> str:
    """The whole text, such that it can be stored: a character that a server split in two halves
    over two events is made whole, and a half that stays alone is replaced."""
    text = "".join(parts)
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            size = len(text.encode())
    if size > ANSWER_LIMIT_BYTES:
        raise TooLongError
    return text


def short(value: Any) -> str | None:
    """A name that a server tells; None where it is none. Long ones are none, and are not cut."""
    return joined([value]) if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME else None


@dataclass(slots=True, kw_only=True)
class AnswerToolCall:
    """A call of a tool that a model asks for, while it is put together."""

    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def told(self) -> dict[str, str]:
        return {"name": short(self.name) or "", "arguments": joined(self.arguments)}


def tool_input(value: Any) -> str:
    """A tool's input as text, where a protocol has it as an object."""
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(slots=True, kw_only=True)
class Draft:
    """An answer while it is put together."""

    parts: list[str] = field(default_factory=list)
    size: int = 0
    """Characters, of everything that is kept."""
    tool_calls: dict[Any, AnswerToolCall] = field(default_factory=dict)
    """By their place."""
    refusal: list[str] = field(default_factory=list)
    model: Any = None
    finish_reason: Any = None
    usage: Any = None
    """As told; checked at the end."""
    notes: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)

    def refuse(self, text: Any) -> None:
        if isinstance(text, str):
            self.refusal.append(text)
            self.size += len(text)

    def call(self, place: Any, name: Any, arguments: Any) -> None:
        """Starts a tool call, or adds to the one at this place."""
        if not isinstance(place, int | str) or len(self.tool_calls) >= MOST_TOOL_CALLS:
            raise UnreadableError("its tool calls have invalid indexes")
        call = self.tool_calls.setdefault(place, AnswerToolCall())
        if isinstance(name, str) and name:
            call.name = name
        if isinstance(arguments, str):
            call.arguments.append(arguments)
            self.size += len(arguments)

    def finished(self, usage: Mapping[str, float] | None, note: str = "") -> AnswerReading:
        notes = [*self.notes, *ending_notes(self.finish_reason, refused=bool(self.refusal)), note]
        metadata: dict[str, Any] = {}
        if model := short(self.model):
            metadata["model"] = model
        if reason := short(self.finish_reason):
            metadata["finish_reason"] = reason
        if self.tool_calls:
            metadata["tool_calls"] = [call.told() for call in self.tool_calls.values()]
        return AnswerReading(
            text=joined(self.parts or self.refusal),
            usage=usage,
            metadata=metadata,
            notes=tuple(one for one in notes if one),
        )


def ending_notes(reason: Any, *, refused: bool) -> list[str]:
    """What a reader should know of how an answer ended."""
    match reason:
        case "length" | "max_tokens" | "max_output_tokens":
            return [CUT]
        case "model_context_window_exceeded":
            return ["cut: the model's context window is full"]
        case "content_filter":
            return ["the provider's content filter ended the answer"]
        case _ if refused or reason == "refusal":
            return ["the model refused to answer"]
    return []


# The tokens that a provider says a call took: checked, before anyone reckons a cost from them.

MOST_TOKENS = 20_000_000
"""Of one call; no model takes in or gives more."""
TOKENS_PER_BYTE = 4
"""More than any tokenizer makes of any text."""
ADDED_TOKENS = 10_000
"""What a provider puts around a request by itself."""
FETCHED_TOKENS = 1_000_000
"""What a provider may fetch for a request that has options: tools that it runs, stored prompts."""
PLENTY_OF_OUTPUT = 100_000
"""Reasoning counts as output, and may go beyond what was asked for."""
MOST_OUTPUT = 1_000_000
"""Where nothing was asked for."""
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def unbelievable(usage: Mapping[str, float], request: Request, size: int) -> str:
    """A note, where this cannot have been used for a request of so many bytes."""
    output = usage["output_tokens"]
    if output > PLENTY_OF_OUTPUT and output > _most_output(request):
        return senseless(f"{output:,.0f} output tokens are more than possible")
    most_input = TOKENS_PER_BYTE * size + ADDED_TOKENS
    asked = usage["input_tokens"]
    if asked > most_input + (FETCHED_TOKENS if request.model.options else 0):
        return senseless(f"{asked:,.0f} input tokens for {size:,} bytes")
    return ""


def _most_output(request: Request) -> float:
    options = request.model.options
    told = [request.max_tokens, *(options.get(name) for name in _OUTPUT_LIMITS)]
    asked = [limit for limit in told if isinstance(limit, int)]
    return max(PLENTY_OF_OUTPUT, 4 * max(asked)) if asked else MOST_OUTPUT


def checked_usage(told: Mapping[str, Any]) -> tuple[dict[str, float] | None, str]:
    """Tokens by our names, and a note; None where they are not told or make no sense."""
    amounts = {name: amount for name, amount in told.items() if amount is not None}
    for name, amount in amounts.items():
        if not _is_amount(amount):
            return None, senseless(f"{name} is {_amount_text(amount)}")
    if "input_tokens" not in amounts or "output_tokens" not in amounts:
        return None, NO_USAGE
    for part, whole in (("cached_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        if amounts.get(part, 0) > amounts[whole]:
            return None, senseless(f"{part} are more than {whole}")
    return amounts, ""


def _amount_text(amount: Any) -> str:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return kind_of(amount)
    return "below 0" if amount < 0 else "too large"


def senseless(why: str) -> str:
    return f"the reported usage is implausible ({why}): cost unknown"


def _is_amount(amount: Any) -> bool:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return False
    return 0 <= amount <= MOST_TOKENS  # NaN is in no range


def amount_in(told: Mapping[str, Any], group: str, name: str) -> Any:
    """`prompt_tokens_details.cached_tokens` and its like; None where it is not told."""
    inner = told.get(group)
    return inner.get(name) if isinstance(inner, Mapping) else None
