"""What a protocol's adapter is, and which provider speaks which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from paraval.models.anthropic_messages import AnthropicMessages
from paraval.models.conversation import Request
from paraval.models.openai_chat import OpenAIChat
from paraval.models.openai_responses import OpenAIResponses
from paraval.models.reading import Reading
from paraval.records import Provider


class Reader(Protocol):
    """Takes in the events of one stream. Its errors are those of `reading`."""

    done: bool
    """Its end has come; anything after that is not wanted."""

    @property
    def size(self) -> int:
        """Characters kept so far."""
        ...

    def take(self, event: Mapping[str, Any]) -> None: ...

    def take_end(self) -> None:
        """`[DONE]`."""
        ...

    def finish(self) -> Reading: ...


class Adapter(Protocol):
    """One protocol: what is sent, and how what comes back is read. Without I/O."""

    path: str
    """After the base URL."""

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, request: Request, *, stream: bool) -> dict[str, Any]:
        """Without the model's own options, which are laid over it."""
        ...

    def reader(self) -> Reader: ...

    def read(self, whole: Mapping[str, Any]) -> Reading:
        """An answer that came in one piece."""
        ...


ADAPTERS: Mapping[Provider, Adapter] = {
    Provider.OPENAI: OpenAIChat(),
    Provider.OPENAI_RESPONSES: OpenAIResponses(),
    Provider.ANTHROPIC: AnthropicMessages(),
    Provider.LOOPBACK: OpenAIChat(),
}
