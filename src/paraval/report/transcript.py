"""What was sent and what came back, as conversations to show: for `show`, the page and the viewer.

Texts are as stored, whoever wrote them: each face makes them safe in its own way.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paraval.codec import Style, shown, to_data
from paraval.dataclass import dataclass
from paraval.records import AttemptResult, Exchange, Step
from paraval.text.words import call_text, tokens

_SHOWN_APART = frozenset(
    {"model", "provider", "messages", "tools", "agent", "system", "prompt", "mcp"}
    | {"command", "stdin"}
)
_QUESTIONS = ("problem", "prompt", "question", "task", "instruction", "query")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One text of a conversation."""

    role: str
    """system, user, assistant, tool; call and result for tool calls; prompt, command and stdin for
    programs."""
    text: str
    note: str = ""
    """Beside the role: a tool's name, the tokens of a step."""
    failed: bool = False
    """The result of a call that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a target or a judge was sent, and the transcript of what came back."""

    by: str
    """Empty for the target; otherwise the grader's name."""
    to: str
    """`openai gpt-4o-mini`, `claude-code (haiku)`; empty for a command."""
    options: str
    """`temperature 0, max_tokens 100`; empty if none were set."""
    sent: tuple[Turn, ...]
    tools: tuple[str, ...]
    """The tools or MCP servers that were offered: name, and the first words of a description."""
    transcript: tuple[Turn, ...]
    """Steps with tool calls, or a judge's reply. The target's final answer is its output."""

    @property
    def transcript_title(self) -> str:
        is_reply = len(self.transcript) == 1 and self.transcript[0].role == "assistant"
        return "replied" if is_reply else "transcript"


def conversations_of(
    exchanges: Iterable[Exchange], result: AttemptResult | None
) -> tuple[Conversation, ...]:
    """One for each exchange, the target's first. `result`: the attempt's, for a chat's steps."""
    return tuple(_conversation(exchange, result) for exchange in exchanges)


def conversation_lines(conversation: Conversation) -> Iterator[str]:
    """The whole conversation as text, each turn after its role."""
    about = " · ".join(part for part in (conversation.to, conversation.options) if part)
    heading = f"sent to judge '{conversation.by}'" if conversation.by else "sent"
    yield f"{heading} ({about}):" if about else f"{heading}:"
    yield from map(_turn_text, conversation.sent)
    yield from (f"tool offered: {tool}" for tool in conversation.tools)
    if conversation.transcript:
        yield f"{conversation.transcript_title}:"
        yield from map(_turn_text, conversation.transcript)


def _turn_text(turn: Turn) -> str:
    note = f" ({turn.note})" if turn.note else ""
    return f"{turn.role}{note}{' failed' if turn.failed else ''}: {turn.text}"


def main_text(value: Any) -> str:
    """What readers recognize an input by: of an object, its question or its longest text."""
    if isinstance(value, Mapping):
        texts = {key: text for key, text in value.items() if isinstance(text, str) and text.strip()}
        named = next((texts[key] for key in _QUESTIONS if key in texts), "")
        value = named or max(texts.values(), key=len, default="") or value
    return _shown(value)


def exchanges_data(exchanges: Iterable[Exchange]) -> list[Any]:
    """For JSON reports."""
    return [shown(to_data(exchange, Style.SHOWN)) for exchange in exchanges]


def stop_reason(result: AttemptResult | None) -> str:
    """Why the model stopped, in the provider's word; empty if unknown."""
    output = None if result is None else result.output
    return "" if output is None else str(output.metadata.get("finish_reason") or "")


def _conversation(exchange: Exchange, result: AttemptResult | None) -> Conversation:
    request = exchange.request
    steps = exchange.steps
    if not steps and not exchange.by and result is not None and result.output is not None:
        steps = result.output.steps
    transcript = tuple(_step_turns(steps))
    if exchange.reply is not None:
        transcript = (Turn(role="assistant", text=exchange.reply), *transcript)
    elif not exchange.by and transcript and result is not None and result.output is not None:
        last, answer = transcript[-1], result.output.text
        if last.role == "assistant" and last.text.strip() == answer.strip():
            transcript = transcript[:-1]
    return Conversation(
        by=exchange.by,
        to=_addressee(request),
        options=", ".join(
            f"{name} {_shown(value)}"
            for name, value in request.items()
            if name not in _SHOWN_APART and value not in (None, [], {})
        ),
        sent=tuple(_sent(request)),
        tools=tuple(_offered(request)),
        transcript=transcript,
    )


def _addressee(request: Mapping[str, Any]) -> str:
    model = str(request.get("model") or "")
    if agent := request.get("agent"):
        return f"{agent} ({model})" if model else str(agent)
    return f"{request.get('provider', '')} {model}".strip()


def _sent(request: Mapping[str, Any]) -> Iterator[Turn]:
    if command := request.get("command"):
        words = command if isinstance(command, list) else [command]
        named = ("{prompt}" if word == request.get("prompt") else str(word) for word in words)
        yield Turn(role="command", text=shlex.join(named))
    for role in ("system", "prompt", "stdin"):
        if (text := request.get(role)) and not (role == "stdin" and text == request.get("prompt")):
            yield Turn(role=role, text=_shown(text))
    for message in _objects(request.get("messages")):
        text = _shown(message.get("content") or "")
        calls = _objects(message.get("tool_calls"))
        images = "".join(f" image {one}" for one in message.get("images") or ()).strip()
        note = str(message.get("result_of") or images)
        if text or note or not calls:
            yield Turn(role=str(message.get("role")), text=text, note=note)
        for call in calls:
            yield Turn(role="call", text=call_text(str(call.get("name")), call.get("arguments")))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """A list of objects; what is none was not written here."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _offered(request: Mapping[str, Any]) -> Iterator[str]:
    for tool in (*(request.get("tools") or ()), *(request.get("mcp") or ())):
        if isinstance(tool, Mapping):
            about = str(tool.get("description") or "").partition("\n")[0]
            yield f"{tool.get('name')}: {about}" if about else str(tool.get("name"))
        else:
            yield str(tool)


def _step_turns(steps: Iterable[Step]) -> Iterator[Turn]:
    for step in steps:
        used = tokens(step.usage)
        if step.text:
            yield Turn(role="assistant", text=step.text, note=f"tokens: {used}" if used else "")
        for call in step.tool_calls:
            yield Turn(role="call", text=call_text(call.name, call.arguments))
            if call.result is not None or call.failed:
                result = "(none)" if call.result is None else call.result
                yield Turn(role="result", text=result, note=call.name, failed=call.failed)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False, default=str)
