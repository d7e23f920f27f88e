"""What the protocols share for reading answers and token counts. Servers are not trusted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from paraval.dataclass import dataclass
from paraval.models.requests import Request
from paraval.settings import ANSWER_LIMIT_BYTES

LONGEST_NAME = 200
MOST_TOOL_CALLS = 1000

CUT = "cut at max_tokens"
NO_USAGE = "the provider reported no usage: tokens and cost are unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReading:
    """An answer as read by a protocol's adapter."""

    text: str
    usage: Mapping[str, float] | None
    metadata: dict[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerComplaint:
    """A server's account of a refusal or failure."""

    message: str = ""
    kinds: frozenset[str] = frozenset()
    """Its type and code, verbatim: `rate_limit_error`, `insufficient_quota`."""
    status: int | None = None
    """For an error inside an answer that began well: the status it would have had, if known."""

    def cleaned(self, clean: Clean) -> ServerComplaint:
        return replace(self, message=clean(self.message))


Clean = Callable[[str], str]
"""Removes keys from a text. Redact first, then shorten: a key cut in half would not be found."""


class ReadingError(Exception):
    """Why the response contains no answer."""

    def cleaned(self, _: Clean) -> ReadingError:
        return self


class TruncatedError(ReadingError):
    """A stream that ended early."""


class TooLongError(ReadingError):
    """An answer that exceeds the limit."""


class UnreadableError(ReadingError):
    """A response that violates the protocol."""

    def __init__(self, why: str, *, quote: str = "") -> None:
        """`why` in our own words; `quote`: what the server sent instead."""
        super().__init__(why)
        self.why = why
        self.quote = quote

    def cleaned(self, clean: Clean) -> UnreadableError:
        return UnreadableError(self.why, quote=clean(self.quote))


class ErrorInStreamError(ReadingError):
    """A server that responded 200 and then reported a failure."""

    def __init__(self, complaint: ServerComplaint) -> None:
        super().__init__()
        self.complaint = complaint

    def cleaned(self, clean: Clean) -> ErrorInStreamError:
        return ErrorInStreamError(self.complaint.cleaned(clean))


class PageError(ReadingError):
    """A web page for humans in place of an answer."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page = page

    def cleaned(self, clean: Clean) -> PageError:
        return PageError(clean(self.page))


def complaint_of(error: Any) -> ServerComplaint:
    """Parse the value under `error`, in any of the formats that servers use."""
    if not isinstance(error, Mapping):
        return ServerComplaint(message=error if isinstance(error, str) else "")
    message = error.get("message")
    named = [error.get(name) for name in ("type", "code", "status")]
    status = next((one for one in named if isinstance(one, int) and 400 <= one < 600), None)
    return ServerComplaint(
        message=message if isinstance(message, str) else "",
        kinds=frozenset(one for one in named if isinstance(one, str)),
        status=status,
    )


def raise_if_error(event: Mapping[str, Any]) -> None:
    if error := event.get("error"):
        raise ErrorInStreamError(complaint_of(error))


def text_of(content: Any) -> str:
    """The text of a message's content: a string, nothing, or its parts."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise UnreadableError(f"its content is {kind_of(content)}")
    return "".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    """Other kinds of parts (thinking, images) are not part of the answer's text."""
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
    """The JSON type of a value, in words."""
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
    """The whole text, made storable: surrogate pairs split over two events are joined, and lone
    surrogates replaced."""
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
    """A short name sent by a server; None if it is invalid or too long (it is not cut)."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        return None
    return value if value.isascii() else joined([value])


@dataclass(slots=True, kw_only=True)
class AnswerToolCall:
    """A tool call requested by a model, while it is assembled."""

    name: str = ""
    arguments: list[str] = field(default_factory=list)
    id: Any = None

    def as_mapping(self) -> dict[str, str]:
        call = {"name": short(self.name) or "", "arguments": joined(self.arguments)}
        identity = short(self.id)
        return call if identity is None else {**call, "id": identity}


def tool_input(value: Any) -> str:
    """A tool's input as text, for protocols that send it as an object."""
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(slots=True, kw_only=True)
class Draft:
    """An answer while it is assembled."""

    parts: list[str] = field(default_factory=list)
    size: int = 0
    """Characters kept so far, of every kind."""
    tool_calls: dict[Any, AnswerToolCall] = field(default_factory=dict)
    """By index."""
    refusal: list[str] = field(default_factory=list)
    model: Any = None
    finish_reason: Any = None
    usage: Any = None
    """As reported; checked at the end."""
    notes: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)

    def refuse(self, text: Any) -> None:
        if isinstance(text, str):
            self.refusal.append(text)
            self.size += len(text)

    def call(self, place: Any, name: Any, arguments: Any, identity: Any = None) -> None:
        """Start a tool call, or add to the one at this index."""
        if not isinstance(place, int | str) or len(self.tool_calls) >= MOST_TOOL_CALLS:
            raise UnreadableError("its tool calls have invalid indexes")
        call = self.tool_calls.setdefault(place, AnswerToolCall())
        if isinstance(name, str) and name:
            call.name = name
        if identity is not None:
            call.id = identity
        if isinstance(arguments, str):
            call.arguments.append(arguments)
            self.size += len(arguments)

    def finished(self, usage: Mapping[str, float] | None, note: str = "") -> AnswerReading:
        notes = [*self.notes, *ending_notes(self.finish_reason, refused=bool(self.refusal))]
        if note:
            notes.append(note)
        metadata: dict[str, Any] = {}
        if model := short(self.model):
            metadata["model"] = model
        if reason := short(self.finish_reason):
            metadata["finish_reason"] = reason
        if self.tool_calls:
            metadata["tool_calls"] = [call.as_mapping() for call in self.tool_calls.values()]
        return AnswerReading(
            text=joined(self.parts or self.refusal),
            usage=usage,
            metadata=metadata,
            notes=tuple(notes),
        )


def ending_notes(reason: Any, *, refused: bool) -> list[str]:
    """Notes on how an answer ended."""
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


# Reported token counts: checked before a cost is computed from them.

MOST_TOKENS = 20_000_000
"""Of one call; no model takes or returns more."""
TOKENS_PER_BYTE = 4
"""More than any tokenizer makes of any text."""
ADDED_TOKENS = 10_000
"""What a provider adds to a request by itself."""
FETCHED_TOKENS = 1_000_000
"""What a provider may add to a request with options: tools that it runs, stored prompts."""
PLENTY_OF_OUTPUT = 100_000
"""Reasoning counts as output and may exceed the requested maximum."""
MOST_OUTPUT = 1_000_000
"""If no maximum was requested."""
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def unbelievable(usage: Mapping[str, float], request: Request, size: int) -> str:
    """A note, if this usage is impossible for a request of this many bytes."""
    output = usage["output_tokens"]
    if output > PLENTY_OF_OUTPUT and output > _most_output(request):
        return implausible(f"{output:,.0f} output tokens are more than possible")
    most_input = TOKENS_PER_BYTE * size + ADDED_TOKENS
    asked = usage["input_tokens"]
    may_fetch = request.model.options or request.settings.options
    if asked > most_input + (FETCHED_TOKENS if may_fetch or _has_images(request) else 0):
        return implausible(f"{asked:,.0f} input tokens for {size:,} bytes")
    return ""


def _has_images(request: Request) -> bool:
    return any(message.parts for message in request.messages)


def _most_output(request: Request) -> float:
    options = {**request.model.options, **request.settings.options}
    limits = [request.max_tokens, *(options.get(name) for name in _OUTPUT_LIMITS)]
    asked = [limit for limit in limits if isinstance(limit, int)]
    return max(PLENTY_OF_OUTPUT, 4 * max(asked)) if asked else MOST_OUTPUT


def checked_usage(reported: Mapping[str, Any]) -> tuple[dict[str, float] | None, str]:
    """Tokens by our names, and a note; None if they are missing or implausible."""
    amounts = {name: amount for name, amount in reported.items() if amount is not None}
    for name, amount in amounts.items():
        if not _is_amount(amount):
            return None, implausible(f"{name} is {_amount_text(amount)}")
    if "input_tokens" not in amounts or "output_tokens" not in amounts:
        return None, NO_USAGE
    for part, whole in (("cached_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        if amounts.get(part, 0) > amounts[whole]:
            return None, implausible(f"{part} are more than {whole}")
    return amounts, ""


def _amount_text(amount: Any) -> str:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return kind_of(amount)
    return "below 0" if amount < 0 else "too large"


def implausible(why: str) -> str:
    return f"the reported usage is implausible ({why}): cost unknown"


def _is_amount(amount: Any) -> bool:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return False
    return 0 <= amount <= MOST_TOKENS  # NaN is in no range


def amount_in(usage: Mapping[str, Any], group: str, name: str) -> Any:
    """`prompt_tokens_details.cached_tokens` and the like; None if not reported."""
    inner = usage.get(group)
    return inner.get(name) if isinstance(inner, Mapping) else None
