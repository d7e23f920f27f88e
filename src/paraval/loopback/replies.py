"""Simulated answers: an echo, a text, a step of a script; using what agents send besides the
prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paraval.dataclass import dataclass
from paraval.loopback.exchange import (
    CHARACTERS_PER_TOKEN,
    Finish,
    ModelRequest,
    Reply,
    ReplyToolCall,
    TokenUsage,
    encode,
    pieces_of,
    tokens_of,
)
from paraval.loopback.faults import draw, fits
from paraval.loopback.scenario_forms import (
    GROUP,
    AnswerRule,
    KnownAnswer,
    ScriptedCall,
    ScriptStep,
    Tokens,
)

# What agents send besides the prompt: their working folder and their tools.

HERE = "."
"""Working folder of an agent that doesn't send it."""
WORKING_FOLDER = re.compile(
    r"(?i:working directory|working in the directory): *(/[^\n<]{0,4096})"
    r"|<cwd>(/[^\n<]{0,4096})</cwd>"
)
DEFERRED_TOOL = re.compile(r"^(mcp__\w{1,200})\r?$", re.MULTILINE)
"""Claude Code lists the tools of MCP servers by name, one per line; their descriptions have to be
searched for."""
SOURCE_OF_TOOLS = re.compile(r"^- ([\w-]{1,200})\r?$", re.MULTILINE)
"""Codex names the servers whose tools can be searched for, but not the tools."""


def working_folder(question: ModelRequest) -> str:
    """The agent's working folder, according to itself."""
    for text in question.texts:
        found = WORKING_FOLDER.search(text)
        if found is not None:
            return (found.group(1) or found.group(2)).strip()
    return HERE


def offers(question: ModelRequest, name: str) -> bool:
    """Whether the request offers a tool of this name, directly or for a search."""
    return (
        name in _names(question)
        or namespace_of(question, name) is not None
        or any(name in DEFERRED_TOOL.findall(text) for text in question.texts)
    )


def namespace_of(question: ModelRequest, name: str) -> str | None:
    """The `mcp__server` of `mcp__server__tool`, if the request uses namespaces."""
    if name in _names(question):
        return None
    return next((one for one in _namespaces(question) if name.startswith(f"{one}__")), None)


def is_freeform(question: ModelRequest, name: str) -> bool:
    """Whether the tool takes text instead of arguments."""
    return any(tool.get("type") == "custom" and tool.get("name") == name for tool in question.tools)


def _names(question: ModelRequest) -> set[str]:
    return {name for tool in question.tools if (name := _name(tool)) is not None}


def _name(tool: Mapping[str, Any]) -> str | None:
    # In the chat protocol, a tool's name is one level deeper.
    inner = tool.get("function")
    name = inner.get("name") if isinstance(inner, Mapping) else tool.get("name")
    return name if isinstance(name, str) and tool.get("type") != "namespace" else None


def _namespaces(question: ModelRequest) -> Iterator[str]:
    for tool in question.tools:
        name, description = tool.get("name"), tool.get("description")
        if tool.get("type") == "namespace" and isinstance(name, str):
            yield name
        elif tool.get("type") == "tool_search" and isinstance(description, str):
            yield from (f"mcp__{source}" for source in SOURCE_OF_TOOLS.findall(description))


OVER = "The script is over."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What determines the answers of one model."""

    seed: int
    answers: list[AnswerRule]
    key: list[KnownAnswer]
    """For rules without a key of their own."""
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftReply:
    """An answer before it is counted and cut."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()


def reply_to(question: ModelRequest, rules: Rules, *, number: int, created: int) -> Reply:
    """The complete reply; `number` determines its id."""
    draft = _draft(question, rules)
    calls = tuple(
        _tool_call(call, question, id=f"{number:08d}{place:02d}")
        for place, call in enumerate(draft.calls)
    )
    usage = _usage(question, draft, calls, rules.tokens)
    text, finish = draft.text, Finish.TOOL_CALLS if calls else Finish.STOP
    if question.max_tokens is not None and usage.output > question.max_tokens and not calls:
        text = text[: question.max_tokens * CHARACTERS_PER_TOKEN]
        usage, finish = _cut(usage, question.max_tokens), Finish.LENGTH
    return Reply(
        id=f"simulated{number:08d}",
        model=question.model,
        created=created,
        pieces=pieces_of(text),
        calls=calls,
        finish=finish,
        usage=usage,
    )


def _tool_call(call: ScriptedCall, question: ModelRequest, *, id: str) -> ReplyToolCall:  # noqa: A002 - the protocol's name for it
    namespace = namespace_of(question, call.name)
    arguments = call.arguments if call.input is None else {"input": call.input}
    return ReplyToolCall(
        id=id,
        name=call.name if namespace is None else call.name.removeprefix(f"{namespace}__"),
        arguments=encode(arguments),
        namespace=namespace,
        text=call.input if is_freeform(question, call.name) else None,
    )


def _usage(
    question: ModelRequest, draft: DraftReply, calls: tuple[ReplyToolCall, ...], tokens: Tokens
) -> TokenUsage:
    written = len(draft.text) + sum(len(call.name) + len(call.arguments) for call in calls)
    given = tokens_of(question.characters) if tokens.input is None else tokens.input
    output = tokens_of(written) + tokens.reasoning if tokens.output is None else tokens.output
    return TokenUsage(
        input=given,
        output=output,
        cached=min(tokens.cached, given),
        reasoning=min(tokens.reasoning, output),
    )


def _cut(usage: TokenUsage, max_tokens: int) -> TokenUsage:
    return TokenUsage(
        input=usage.input,
        output=max_tokens,
        cached=usage.cached,
        reasoning=min(usage.reasoning, max_tokens),
    )


def _draft(question: ModelRequest, rules: Rules) -> DraftReply:
    for rule in rules.answers:
        if not fits(rule.match, question.prompt):
            continue
        if rule.offers is not None and not offers(question, rule.offers):
            continue
        draft = _by_rule(rule, question, rules)
        if draft is not None:
            return draft
    return DraftReply(text=question.prompt)


def _by_rule(rule: AnswerRule, question: ModelRequest, rules: Rules) -> DraftReply | None:
    """The rule's answer; None: the rule does not apply, and the next one is tried."""
    if rule.text is not None:
        return DraftReply(text=_Filling(rule, question).text(rule.text))
    if rule.script is not None:
        return _by_script(rule.script, question, _Filling(rule, question))
    if rule.right is not None:
        key = rules.key if rule.key is None else rule.key
        return _by_key(rule.right, key, question, rules.seed)
    return DraftReply(text=question.prompt)


class _Filling:
    """Substitutes groups of the prompt, and data from the request, in a rule's text."""

    def __init__(self, rule: AnswerRule, question: ModelRequest) -> None:
        self._match = rule.match
        self._question = question

    def text(self, text: str) -> str:
        if "\\" not in text:
            return text
        found = None if self._match is None else self._match.search(self._question.prompt)

        def group(reference: re.Match[str]) -> str:
            number, name = reference.groups()
            if found is not None and (number or name in found.re.groupindex):
                return found.group(name or int(number)) or ""
            if name == "cwd":
                return working_folder(self._question)
            return self._question.last_result if name == "result" else reference.group()

        return GROUP.sub(group, text)

    def call(self, call: ScriptedCall) -> ScriptedCall:
        text = None if call.input is None else self.text(call.input)
        return ScriptedCall(name=call.name, arguments=self._value(call.arguments), input=text)

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {name: self._value(inner) for name, inner in value.items()}
            case list():
                return [self._value(inner) for inner in value]
        return value


def _by_script(
    steps: list[ScriptStep], question: ModelRequest, filling: _Filling
) -> DraftReply | None:
    """The step reached after this many tool results.

    A model never calls tools that it was not offered: agents also ask for titles and summaries.
    """
    results = question.tool_results
    for step in steps:
        calls = step.all_calls
        if calls and not question.tools:
            return None
        if not calls or results < len(calls):
            return DraftReply(
                text=filling.text(step.text or ""), calls=tuple(map(filling.call, calls))
            )
        results -= len(calls)
    return DraftReply(text=OVER)


def _by_key(
    right: float, key: list[KnownAnswer], question: ModelRequest, seed: int
) -> DraftReply | None:
    for known in key:
        if not fits(known.match, question.prompt):
            continue
        if draw(seed, "right", question.model, question.prompt) < right:
            return DraftReply(text=known.right)
        which = draw(seed, "wrong", question.model, question.prompt)
        return DraftReply(text=known.wrong[int(which * len(known.wrong))])
    return None
