"""Records that the three protocols share, and how a request is built from its messages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from enum import Enum, auto
from typing import Any, Protocol

from paraval.dataclass import dataclass

CHARACTERS_PER_TOKEN = 4
PIECE_CHARACTERS = 24
"""Characters of text per stream event."""

encode = json.JSONEncoder(separators=(",", ":")).encode
"""ASCII only: prompts may contain lone surrogates, which UTF-8 cannot encode."""


class MalformedError(ValueError):
    """A request body that the real servers would reject as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request, independent of its protocol."""

    model: str
    prompt: str
    """The text of the user's last message without a tool result, and without the reminders that
    agents add."""
    characters: int
    """Of all its texts."""
    tool_results: int = 0
    last_result: str = ""
    """The text of the last tool result."""
    texts: tuple[str, ...] = ()
    """Every message and instruction, verbatim; tool results are not included."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """The tools offered, in the protocol's own form."""
    stream: bool = False
    wants_usage: bool = True
    """False: a stream without a request for usage."""
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyToolCall:
    id: str
    name: str
    arguments: str
    """JSON."""
    namespace: str | None = None
    """The tool's namespace, if the request uses namespaces."""
    text: str | None = None
    """Input of a tool that takes text instead of arguments."""


class Finish(Enum):
    """Why a reply ends."""

    STOP = auto()
    LENGTH = auto()
    TOOL_CALLS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """Tokens, or whatever a fault makes of them."""

    input: Any
    output: Any
    cached: int = 0
    reasoning: int = 0

    @property
    def total(self) -> Any:
        return self.input + self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A simulated answer."""

    id: str
    """Without the prefix of a protocol."""
    model: str
    created: int
    pieces: tuple[str, ...]
    """The text in the pieces that a stream delivers; empty if there is none."""
    calls: tuple[ReplyToolCall, ...] = ()
    finish: Finish = Finish.STOP
    usage: TokenUsage | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class RefusalKind(Enum):
    """Why a request gets no answer; each protocol words it differently."""

    MALFORMED = auto()
    BAD_KEY = auto()
    NO_MODEL = auto()
    NO_PATH = auto()
    TOO_LARGE = auto()
    RATE = auto()
    QUOTA = auto()
    STATUS = auto()
    """Set by a fault; only the status identifies it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply:
    """An error in place of an answer."""

    kind: RefusalKind
    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_headers(self, further: Mapping[str, str]) -> ErrorReply:
        return replace(self, headers={**further, **self.headers})


class Dialect(Protocol):
    """One of the server's protocols."""

    def question(self, body: Mapping[str, Any]) -> ModelRequest:
        """Parse a request; raises MalformedError if a real server would reject the body."""

    def whole(self, reply: Reply) -> dict[str, Any]:
        """The body of an answer that is not streamed."""

    def events(self, reply: Reply, question: ModelRequest) -> list[str]:
        """The events of a stream, in order."""

    def refusal(self, refusal: ErrorReply) -> tuple[int, dict[str, Any]]:
        """The status and body of an error."""


def pieces_of(text: str) -> tuple[str, ...]:
    return tuple(
        text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)
    )


def tokens_of(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


# ---- reading bodies


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or a list of parts, some of them text."""
    return content if isinstance(content, str) else "\n".join(texts_of(content))


def texts_of(content: Any) -> list[str]:
    """The same, part by part."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    texts = (part.get("text") for part in content if isinstance(part, Mapping))
    return [text for text in texts if isinstance(text, str)]


def mappings(body: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A list of objects that the body must contain."""
    value = body.get(name)
    if not isinstance(value, list) or not value:
        raise MalformedError(f"'{name}' must be a non-empty list")
    for item in value:
        if not isinstance(item, Mapping):
            raise MalformedError(f"'{name}' must contain objects")
    return value


def model_of(body: Mapping[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise MalformedError("you must provide a 'model', as text")
    return model


def positive_int(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is present."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise MalformedError(f"'{name}' must be a whole number of at least 1")
        return value
    return None


# ---- writing streams

BLANK = secrets.token_hex(16)
"""Placeholder for the texts of an event. Random, so that it occurs nowhere else."""


def filled(event: Mapping[str, Any], texts: Iterable[str]) -> list[str]:
    """The event as JSON, once for each text in place of the placeholder.

    Streams mostly repeat one event, and encoding each from scratch takes ten times longer.
    """
    before, after = encode(event).split(f'"{BLANK}"')
    return [f"{before}{encode(text)}{after}" for text in texts]


def server_events(kind: str, *data: str) -> list[str]:
    """Events that carry their type next to their data, as two of the protocols have them."""
    return [f"event: {kind}\ndata: {one}\n\n" for one in data]


# Building a request from its messages, one after another, whatever the protocol.

REMINDER = ("<system-reminder>", "</system-reminder>")
"""Tags around what agents add to the messages of users and tools."""
MOST_REMINDERS = 10


class RequestBuilder:
    """Collects the messages of one request; call `question` at the end."""

    def __init__(self) -> None:
        self._prompt: str | None = None
        self._last_words = ""
        self._texts: list[str] = []
        self._tool_results = 0
        self._last_result = ""
        self._characters = 0

    def message(self, content: Any, *, of_user: bool = False) -> None:
        """Add a message or instructions."""
        texts = texts_of(content)
        if not texts:
            return
        text = "\n".join(texts)
        self._texts.append(text)
        self._characters += len(text)
        if of_user:
            own = [text for text in texts if not _is_reminder(text)]
            self._last_words = text
            # Reminders alone are not from the user: the earlier prompt still counts.
            self._prompt = "\n".join(own) if own else self._prompt

    def tool_result(self, content: Any) -> None:
        text = text_of(content)
        self._tool_results += 1
        self._last_result = text
        self._characters += len(text)

    def question(
        self, *, model: str, tools: Any, stream: bool, wants_usage: bool, max_tokens: int | None
    ) -> ModelRequest:
        return ModelRequest(
            model=model,
            prompt=self._last_words if self._prompt is None else self._prompt,
            characters=self._characters,
            tool_results=self._tool_results,
            last_result=_without_reminders(self._last_result),
            texts=tuple(self._texts),
            tools=_mappings(tools),
            stream=stream,
            wants_usage=wants_usage,
            max_tokens=max_tokens,
        )


def _is_reminder(text: str) -> bool:
    bare = text.strip()
    return bare.startswith(REMINDER[0]) and bare.endswith(REMINDER[1])


def _without_reminders(text: str) -> str:
    """A tool's result, without what the agent appended."""
    for _ in range(MOST_REMINDERS):
        bare = text.rstrip()
        place = bare.rfind(REMINDER[0])
        if place < 0 or not bare.endswith(REMINDER[1]):
            return text
        text = bare[:place].rstrip()
    return text


def _mappings(tools: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(tools, list):
        return ()
    return tuple(tool for tool in tools if isinstance(tool, Mapping))
