"""Chat targets: their messages, and the model of each variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.forms import Locate, check
from paraval.documents.problems import Location, Step, shown
from paraval.plan.chat_settings import (
    PARAMETERS,
    check_protocol,
    read_settings,
    with_axis_values,
)
from paraval.plan.matrix import Choice, Matrix, spelled_out
from paraval.plan.prompts.texts import Prompt, read_prompt
from paraval.plan.registry import Registry
from paraval.plan.schema.target_forms import ChatForm, ChatTargetForm, MessageForm
from paraval.plan.suite_folder import SuiteFolder
from paraval.records import ChatTarget, Message, Model, Provider

ONLY_THE_INPUT = "{input}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTemplate:
    """A message and the location of its text."""

    role: str
    prompt: Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDraft:
    """A chat target before its model is known; it may differ between variants."""

    form: ChatForm
    turns: tuple[MessageTemplate, ...]
    timeout: float | None
    locate: Locate
    around: SuiteFolder
    _targets: dict[tuple[Any, ...], ChatTarget] = field(default_factory=dict, repr=False)
    """By model and parameters: variants with the same ones share one."""

    @property
    def model(self) -> str:
        return self.form.model

    def at_chat(self, steps: tuple[Step, ...]) -> Location:
        return self.locate(("chat", *steps))

    def asking(self, model: Model, form: ChatForm) -> ChatTarget:
        mark = (model.name, *(repr(getattr(form, key)) for key in PARAMETERS))
        if mark not in self._targets:
            settings = read_settings(form, self.at_chat, self.around)
            check_protocol(settings, model, self.at_chat)
            target = ChatTarget(
                model=model,
                messages=tuple(
                    Message(role=turn.role, content=turn.prompt.text) for turn in self.turns
                ),
                temperature=None if form.temperature is None else float(form.temperature),
                max_tokens=None if form.max_tokens is None else int(form.max_tokens),
                settings=settings,
                max_turns=DEFAULT_MAX_TURNS if form.max_turns is None else int(form.max_turns),
                folder=str(self.around.folder),
                timeout=self.timeout,
            )
            if form.max_turns is not None and not target.runs_tools:
                self.at_chat(("max_turns",)).report("needs a tool with a Python function")
            self._targets[mark] = target
        return self._targets[mark]

    def inserting(self, files: Mapping[str, Prompt]) -> ChatDraft:
        """Return the draft for variants whose axes stand for these texts."""
        turns = (replace(turn, prompt=turn.prompt.inserting(files)) for turn in self.turns)
        return replace(self, turns=tuple(turns), _targets={})


def read_chat(keys: Mapping[str, Any], locate: Locate, around: SuiteFolder) -> ChatDraft | None:
    """Read a chat target except for its model and axis values; report problems, None if
    unusable."""
    outer = check(ChatTargetForm, keys, locate(()), locate)
    at_chat: Locate = lambda steps: locate(("chat", *steps))  # noqa: E731 - a name for one use
    form = check(ChatForm, keys.get("chat"), at_chat(()), at_chat)
    if outer is None or form is None:
        return None
    turns = _read_turns(form, at_chat, around.folder)
    if turns is None:
        return None
    return ChatDraft(
        form=form,
        turns=turns,
        timeout=None if outer.timeout is None else float(outer.timeout),
        locate=locate,
        around=around,
    )


# ---- the conversation


def _read_turns(form: ChatForm, locate: Locate, folder: Path) -> tuple[MessageTemplate, ...] | None:
    turns: list[MessageTemplate | None] = []
    if form.system is not None:
        turns.append(_turn("system", form.system, locate(("system",)), folder))
    if form.messages is None:
        text = ONLY_THE_INPUT if form.prompt is None else form.prompt
        turns.append(_turn("user", text, locate(("prompt",)), folder))
    else:
        if form.prompt is not None:
            locate(("messages",)).report("cannot be combined with prompt; use one or the other")
        turns += _read_messages(form.messages, locate, folder)
        _check_roles(form, [turn.role for turn in turns if turn is not None], locate)
    whole = tuple(turn for turn in turns if turn is not None)
    return whole if len(whole) == len(turns) else None


def _read_messages(written: Any, locate: Locate, folder: Path) -> list[MessageTemplate | None]:
    if written == ONLY_THE_INPUT:
        written = [written]
    if not isinstance(written, list | tuple) or not written:
        locate(("messages",)).report(
            f"must be a list of mappings with role and content, not {shown(written)}"
        )
        return [None]
    turns = []
    for number, item in enumerate(written):
        spot = locate(("messages", number))
        if item == ONLY_THE_INPUT:
            turns.append(_turn("user", ONLY_THE_INPUT, spot, folder))
            continue
        form = check(MessageForm, item, spot)
        turns.append(
            None if form is None else _turn(form.role, form.content, spot.at("content"), folder)
        )
    return turns


def _check_roles(form: ChatForm, roles: list[str], locate: Locate) -> None:
    at_messages = locate(("messages",))
    if roles and "user" not in roles:
        at_messages.report("needs a message with role user")
    if form.system is not None and roles.count("system") > 1:
        at_messages.report("has a system message, but chat.system is set too; use one or the other")


def _turn(role: str, text: str, spot: Location, folder: Path) -> MessageTemplate | None:
    prompt = read_prompt(text, spot, folder)
    return None if prompt is None else MessageTemplate(role=role, prompt=prompt)


# ---- the model

DEFAULT_MAX_TURNS = 10
NO_PARAMETERS = dict.fromkeys((*PARAMETERS, "max_turns"))

STAND_IN = Model(name="", provider=Provider.OPENAI, model="", base_url="", account="")
"""Stands in for an unknown model (already reported), so that other problems are found too."""


def resolve(draft: ChatDraft, choice: Choice, comparison: Matrix, registry: Registry) -> ChatTarget:
    """Return the target of a choice, with its model and parameters; report problems with them."""
    model = _model_of(draft, choice, comparison, registry) or STAND_IN
    form = with_axis_values(draft.form, choice, comparison, draft.at_chat)
    return draft.asking(
        model, draft.form.model_copy(update=NO_PARAMETERS) if form is None else form
    )


def _model_of(
    draft: ChatDraft, choice: Choice, comparison: Matrix, registry: Registry
) -> Model | None:
    spot = draft.locate(("chat", "model"))
    if not registry.models:
        if not registry.spots:
            registry.find(draft.model, spot)
        return None
    named = spelled_out(draft.model, spot, choice, comparison, "a model")
    return None if named is None else registry.find(named.text, named.spot)
