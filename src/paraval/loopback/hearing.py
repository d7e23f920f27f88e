"""What the messages of a request say, gathered one after another, whatever protocol they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paraval.loopback.exchange import Question, text_of, texts_of

REMINDER = ("<system-reminder>", "</system-reminder>")
"""What agents put around what they add to the words of users and tools."""
MOST_REMINDERS = 10


class Hearing:
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
    ) -> Question:
        return Question(
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
