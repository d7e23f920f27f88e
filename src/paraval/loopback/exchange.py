"""The nouns between the three protocols and what is answered, and how a request is gathered from
its messages.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Protocol

CHARACTERS_PER_TOKEN = 4
PIECE_CHARACTERS = 24
"""How much text one event of a stream carries."""

encode = json.JSONEncoder(separators=(",", ":")).encode
"""ASCII alone: prompts may hold halves of surrogate pairs, which have no bytes in UTF-8."""


class MalformedError(ValueError):
    """A request's body that the real servers would refuse as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What a request asks, whatever protocol it came in."""

    model: str
    prompt: str
    """The text of the last message of the user that brings no tool's result, without what agents
    add to it as reminders."""
    characters: int
    """Of all texts in it."""
    tool_results: int = 0
    last_result: str = ""
    """What the last of them says."""
    texts: tuple[str, ...] = ()
    """Every message and instruction, as it came; tools' results are not among them."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """What is offered, in the protocol's own form."""
    stream: bool = False
    wants_usage: bool = True
    """False: a stream of which the usage was not asked for."""
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyToolCall:
    id: str
    name: str
    arguments: str
    """JSON."""
    namespace: str | None = None
    """What the name stands in, where the request has its tools in namespaces."""
    text: str | None = None
    """What a tool gets that takes a text instead of arguments."""


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
    """What is answered."""

    id: str
    """Without the prefix of a protocol."""
    model: str
    created: int
    pieces: tuple[str, ...]
    """The text, as a stream delivers it; empty where there is none."""
    calls: tuple[ReplyToolCall, ...] = ()
    finish: Finish = Finish.STOP
    usage: TokenUsage | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class RefusalKind(Enum):
    """Why a request gets no answer; each protocol has its own words for it."""

    MALFORMED = auto()
    BAD_KEY = auto()
    NO_MODEL = auto()
    NO_PATH = auto()
    TOO_LARGE = auto()
    RATE = auto()
    QUOTA = auto()
    STATUS = auto()
    """As a fault says: told by the status alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReply:
    """A request that gets an error instead of an answer."""

    kind: RefusalKind
    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_headers(self, further: Mapping[str, str]) -> ErrorReply:
        return replace(self, headers={**further, **self.headers})


class Dialect(Protocol):
    """One of the protocols that the server speaks."""

    def question(self, body: Mapping[str, Any]) -> ModelRequest:
        """What is asked; MalformedError where a real server would refuse the body."""

    def whole(self, reply: Reply) -> dict[str, Any]:
        """The body of an answer that is not streamed."""

    def events(self, reply: Reply, question: ModelRequest) -> list[str]:
        """The events of a stream, as they are sent."""

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
    """The text of a message's content: a string, or a list of parts of which some are text."""
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
    """A list of objects that a body must hold."""
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
    """The first of these that is there."""
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
"""Stands where the texts of an event go. Nobody can guess it, so it is nowhere else."""


def filled(event: Mapping[str, Any], texts: Iterable[str]) -> list[str]:
    """The event as JSON, with one text after another in its blank.

    Streams are mostly one event many times over, and to encode each whole takes ten times longer.
    """
    before, after = encode(event).split(f'"{BLANK}"')
    return [f"{before}{encode(text)}{after}" for text in texts]


def server_events(kind: str, *data: str) -> list[str]:
    """Events that carry their type beside their data, as two of the protocols have them."""
    return [f"event: {kind}\ndata: {one}\n\n" for one in data]


# What the messages of a request say, gathered one after another, whatever protocol they are in.

REMINDER = ("<system-reminder>", "</system-reminder>")
"""What agents put around what they add to the words of users and tools."""
MOST_REMINDERS = 10


class RequestBuilder:
    """Gathers one request; its question is asked for at the end."""

    def __init__(self) -> None:
        self._prompt: str | None = None
        self._last_words = ""
        self._texts: list[str] = []
        self._tool_results = 0
        self._last_result = ""
        self._characters = 0

    def message(self, content: Any, *, of_user: bool = False) -> None:
        """Someone's message, or instructions."""
        texts = texts_of(content)
        if not texts:
            return
        text = "\n".join(texts)
        self._texts.append(text)
        self._characters += len(text)
        if of_user:
            own = [text for text in texts if not _is_reminder(text)]
            self._last_words = text
            # Reminders alone are nothing that the user said: what he said before still stands.
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
    """What a tool said, without what the agent put behind it."""
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
