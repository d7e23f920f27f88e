"""An agent's transcript: what it wrote in each step, and its tool calls with arguments and results.

Every adapter builds it from the agent's events with a `StepLog`, which keeps it bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from paraval.agents.json_output import as_text, clean
from paraval.agents.tools import ToolTally, shown_name
from paraval.dataclass import dataclass
from paraval.records import Step, ToolCall, ToolUse
from paraval.text.words import counted

LONGEST_TEXT = 20_000
"""Characters of one text, result or argument; the middle of a longer one is left out."""
LONGEST_WORD = 2_000
"""Texts are cut between words, if none is longer: half of a key would not be recognized as one."""
MOST_STEPS = 500
MOST_CALLS = 50
"""In one step of an agent that reports no messages."""
MOST_CHARACTERS = 2_000_000
"""Limit for a whole transcript, whose middle is left out if it is longer."""
DEEPEST = 20
"""Nesting of arguments; deeper parts become text."""


@dataclass(slots=True, kw_only=True)
class _Turn:
    texts: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    usage: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None


@dataclass(slots=True, kw_only=True)
class _Call:
    tool: str
    server: str | None
    arguments: Any
    result: str | None = None
    failed: bool = True


class StepLog:
    """Takes an agent's events in order, and returns the steps and the tools that it used.

    `message`: the id of the model's message that something belongs to. If the agent reports none, a
    new step begins with a text after a call, with a call after a result, and after `MOST_CALLS`.
    """

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._messages: dict[str, _Turn] = {}
        self._calls: dict[str, _Call] = {}
        """By id, the latest."""
        self._has_result = False
        """A call has a result since the last step began."""

    def text(self, text: str, *, message: str = "") -> None:
        text = text.strip()
        if not text:
            return
        turn = self._turn(message, is_new=any(last.calls for last in self._turns[-1:]))
        if turn.texts[:1] != [text]:
            turn.texts.append(text)

    def thought(self, text: str, *, message: str = "") -> None:
        self.text(text and f"[thinking] {text}", message=message)

    def call(
        self,
        call_id: str,
        tool: str,
        arguments: Any,
        *,
        server: str | None = None,
        message: str = "",
    ) -> None:
        """A call without a result counts as failed."""
        is_full = any(len(last.calls) >= MOST_CALLS for last in self._turns[-1:])
        turn = self._turn(message, is_new=self._has_result or is_full)
        call = self._calls[call_id] = _Call(tool=tool, server=server, arguments=arguments)
        turn.calls.append(call)

    def result(self, call_id: str, content: Any, *, failed: bool = False) -> None:
        """`content`: text, a list of parts with text, or other data; None: it is not reported. Of
        an unknown call, it is ignored."""
        call = self._calls.get(call_id)
        if call is not None:
            call.result = None if content is None else content_text(content)
            call.failed = failed
            self._has_result = self._has_result or content is not None

    def usage(
        self, usage: Mapping[str, float], cost_usd: float | None = None, *, message: str
    ) -> None:
        turn = self._turn(message, is_new=False)
        turn.usage, turn.cost_usd = usage, cost_usd

    def _turn(self, message: str, *, is_new: bool) -> _Turn:
        found = self._messages.get(message) if message else None
        if found is None and not message and self._turns and not is_new:
            found = self._turns[-1]
        if found is None:
            found = _Turn()
            self._turns.append(found)
            self._has_result = False
            if message:
                self._messages[message] = found
        return found

    def count_into(self, tally: ToolTally) -> ToolTally:
        for turn in self._turns:
            for call in turn.calls:
                tally.count(call.tool, call.server, failed=call.failed)
        return tally

    def tools(self) -> tuple[ToolUse, ...]:
        return self.count_into(ToolTally()).tools()

    def steps(self) -> tuple[Step, ...]:
        return _bounded([turn for turn in self._turns if turn.texts or turn.calls])


def text_steps(texts: Iterable[str]) -> tuple[Step, ...]:
    """The steps of an agent that reports only texts."""
    log = StepLog()
    for number, text in enumerate(texts, start=1):
        log.text(text, message=str(number))
    return log.steps()


def _step(turn: _Turn) -> Step:
    calls = (
        ToolCall(
            name=".".join(shown_name(part) for part in (call.server, call.tool) if part),
            arguments=_bounded_data(call.arguments),
            result=None if call.result is None else _shortened(call.result),
            failed=call.failed,
        )
        for call in turn.calls
    )
    return Step(
        text=_shortened("\n\n".join(turn.texts)),
        tool_calls=tuple(calls),
        usage=turn.usage,
        cost_usd=turn.cost_usd,
    )


def content_text(content: Any) -> str:
    """The text of a message or a tool's result; of an image, only that it is one."""
    if not isinstance(content, list):
        return "" if content is None else as_text(content)
    parts = [one if isinstance(one, Mapping) else {"text": one} for one in content]
    return "\n".join(
        as_text(part["text"]) if "text" in part else f"[{as_text(part.get('type', 'data'))}]"
        for part in parts
    )


# ---- bounds


def joined_steps(*parts: Iterable[Step]) -> tuple[Step, ...]:
    """The steps of a session that was resumed, with the same bounds."""
    return _bounded([step for part in parts for step in part])


def _bounded(turns: Sequence[_Turn | Step]) -> tuple[Step, ...]:
    first = _fitting(turns)
    last = _fitting(turns[len(first) :][::-1])[::-1]
    left_out = len(turns) - len(first) - len(last)
    note = [Step(text=f"[... {counted(left_out, 'step')} left out ...]")] if left_out else []
    return (*first, *note, *last)


def _fitting(turns: Sequence[_Turn | Step]) -> list[Step]:
    """The first steps, as many as fit into half of the limits."""
    steps: list[Step] = []
    size = 0
    for turn in turns[: (MOST_STEPS - 1) // 2]:
        step = turn if isinstance(turn, Step) else _step(turn)
        size += _size(step)
        if size > MOST_CHARACTERS // 2:
            break
        steps.append(step)
    return steps


def _size(step: Step) -> int:
    return len(step.text) + sum(
        len(call.name) + len(as_text(call.arguments)) + len(call.result or "")
        for call in step.tool_calls
    )


def _bounded_data(value: Any) -> Any:
    """Arguments as reported, with long texts in them cut; as cut text if that is not enough."""
    data = _plain_data(value, DEEPEST)
    text = as_text(data)
    return data if len(text) <= 2 * LONGEST_TEXT else _shortened(text)


def _plain_data(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping) and depth:
        return {clean(str(key)): _plain_data(one, depth - 1) for key, one in value.items()}
    if isinstance(value, list) and depth:
        return [_plain_data(one, depth - 1) for one in value]
    if value is None or isinstance(value, bool | int) or _is_finite(value):
        return value
    return _shortened(as_text(value))


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    start, end = _whole_words(text[:half]), _whole_words(text[-half:][::-1])[::-1]
    left_out = len(text) - len(start) - len(end)
    return f"{start}\n[... {left_out:,} characters left out ...]\n{end}"


def _whole_words(text: str) -> str:
    """Without the last word, which was cut."""
    space = max(text.rfind(" "), text.rfind("\n"))
    return text[:space] if space > len(text) - LONGEST_WORD else text
