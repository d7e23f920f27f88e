"""What is said to a question: an echo, a text, a step of a script, what is right or is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paraval.loopback.draws import draw, fits
from paraval.loopback.exchange import (
    CHARACTERS_PER_TOKEN,
    Finish,
    Question,
    Reply,
    ToolCall,
    Usage,
    encode,
    pieces_of,
    tokens_of,
)
from paraval.loopback.forms import GROUP, Answer, Call, Known, Step, Tokens
from paraval.loopback.surroundings import is_freeform, namespace_of, offers, working_folder

OVER = "The script is over."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decides the answers of one model."""

    seed: int
    answers: list[Answer]
    key: list[Known]
    """For rules that have none of their own."""
    tokens: Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An answer before it is counted and cut."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def reply_to(question: Question, rules: Rules, *, number: int, created: int) -> Reply:
    """The whole reply; its id is the number's."""
    said = _said(question, rules)
    calls = tuple(
        _tool_call(call, question, id=f"{number:08d}{place:02d}")
        for place, call in enumerate(said.calls)
    )
    usage = _usage(question, said, calls, rules.tokens)
    text, finish = said.text, Finish.TOOL_CALLS if calls else Finish.STOP
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


def _tool_call(call: Call, question: Question, *, id: str) -> ToolCall:  # noqa: A002 - its name there
    namespace = namespace_of(question, call.name)
    arguments = call.arguments if call.input is None else {"input": call.input}
    return ToolCall(
        id=id,
        name=call.name if namespace is None else call.name.removeprefix(f"{namespace}__"),
        arguments=encode(arguments),
        namespace=namespace,
        text=call.input if is_freeform(question, call.name) else None,
    )


def _usage(question: Question, said: Said, calls: tuple[ToolCall, ...], told: Tokens) -> Usage:
    written = len(said.text) + sum(len(call.name) + len(call.arguments) for call in calls)
    given = tokens_of(question.characters) if told.input is None else told.input
    output = tokens_of(written) + told.reasoning if told.output is None else told.output
    return Usage(
        input=given,
        output=output,
        cached=min(told.cached, given),
        reasoning=min(told.reasoning, output),
    )


def _cut(usage: Usage, max_tokens: int) -> Usage:
    return Usage(
        input=usage.input,
        output=max_tokens,
        cached=usage.cached,
        reasoning=min(usage.reasoning, max_tokens),
    )


def _said(question: Question, rules: Rules) -> Said:
    for rule in rules.answers:
        if not fits(rule.match, question.prompt):
            continue
        if rule.offers is not None and not offers(question, rule.offers):
            continue
        said = _by_rule(rule, question, rules)
        if said is not None:
            return said
    return Said(text=question.prompt)


def _by_rule(rule: Answer, question: Question, rules: Rules) -> Said | None:
    """None: the rule has nothing to say to this, and the next one is asked."""
    if rule.text is not None:
        return Said(text=_Filling(rule, question).text(rule.text))
    if rule.script is not None:
        return _by_script(rule.script, question, _Filling(rule, question))
    if rule.right is not None:
        key = rules.key if rule.key is None else rule.key
        return _by_key(rule.right, key, question, rules.seed)
    return Said(text=question.prompt)


class _Filling:
    """Puts groups of the prompt, and what the request tells, into what a rule says."""

    def __init__(self, rule: Answer, question: Question) -> None:
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

    def call(self, call: Call) -> Call:
        text = None if call.input is None else self.text(call.input)
        return Call(name=call.name, arguments=self._value(call.arguments), input=text)

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {name: self._value(inner) for name, inner in value.items()}
            case list():
                return [self._value(inner) for inner in value]
        return value


def _by_script(steps: list[Step], question: Question, filling: _Filling) -> Said | None:
    """The step that so many tool results lead to.

    A model never calls tools that it was not offered: agents also ask for titles and summaries.
    """
    results = question.tool_results
    for step in steps:
        calls = step.all_calls
        if calls and not question.tools:
            return None
        if not calls or results < len(calls):
            return Said(text=filling.text(step.text or ""), calls=tuple(map(filling.call, calls)))
        results -= len(calls)
    return Said(text=OVER)


def _by_key(right: float, key: list[Known], question: Question, seed: int) -> Said | None:
    for known in key:
        if not fits(known.match, question.prompt):
            continue
        if draw(seed, "right", question.model, question.prompt) < right:
            return Said(text=known.right)
        which = draw(seed, "wrong", question.model, question.prompt)
        return Said(text=known.wrong[int(which * len(known.wrong))])
    return None
