"""The keys of agent targets, their tool servers, and the output of custom agents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from paraval.documents.forms import (
    Arguments,
    Count,
    Environment,
    Form,
    Item,
    Name,
    PlainWords,
    Prompt,
    ReferenceNote,
    Text,
    Unchecked,
)
from paraval.plan.schema.target_forms import (
    ChatOverlayForm,
    CommandTargetForm,
    ErrorsForm,
    FunctionTargetForm,
    ProgramForm,
    TargetLimitsForm,
)

SERVER_NAME = r"[A-Za-z0-9_-]{1,64}"
"""A server name that every agent accepts, and uses in the names of the server's tools."""


class McpServerForm(Form):
    """A tool server for the agent: a `command` that the agent starts and talks to over stdio, or
    the `url` of a running server. Its strings are templates."""

    command: Annotated[Arguments, PlainWords("a list of strings and numbers")] | None = Field(
        None, description="The program and its arguments."
    )
    env: Annotated[Environment, ReferenceNote("a mapping of names to values")] = Field(
        {}, description="Environment variables for the command."
    )
    url: (
        Annotated[str, Field(pattern=r"^(https?://\S|\{)"), PlainWords("a URL: http(s)://...")]
        | None
    ) = Field(None, description="Its HTTP address.")


Dotted = Annotated[
    str,
    Field(pattern=r"^[^.\s]+(\.[^.\s]+)*$"),
    PlainWords("a path of keys and positions such as result.text"),
]
Pattern = Annotated[str, Field(min_length=1), PlainWords("a regular expression")]


class CustomOutputForm(Form):
    """How to read what a custom agent prints on stdout. `output: text` and `output: claude-code`
    are short for the first two keys. A path consists of keys and positions, joined by dots; with
    `jsonl`, the last line that has the path counts."""

    format: Annotated[Literal["text", "json", "jsonl"], PlainWords("'text', 'json' or 'jsonl'")] = (
        Field(
            "text",
            description="`text`: all of stdout is the answer; `json`: one object; `jsonl`: one"
            " object per line.",
        )
    )
    like: Text | None = Field(
        None, description="A known agent with the same output format; then no paths are needed."
    )
    answer: Dotted | None = Field(
        None, description="Path of the answer; required for `json` and `jsonl`."
    )
    turns: Dotted | None = Field(None, description="Path of the number of turns.")
    cost_usd: Dotted | None = Field(None, description="Path of the cost.")
    input_tokens: Dotted | None = Field(None, description="Path of the input tokens.")
    output_tokens: Dotted | None = Field(None, description="Path of the output tokens.")
    tools: Dotted | None = Field(None, description="Path of the tools it called.")
    error: Dotted | None = Field(
        None, description="Path of an error: if there is a value, the attempt has no answer."
    )
    rate_limited: Pattern | None = Field(
        None,
        description="Matches what it prints, on stdout or stderr, when a rate limit made it fail.",
    )
    refused: Pattern | None = Field(
        None, description="The same for a rejected key or a missing login."
    )


Retries = Annotated[int, Field(ge=0, le=20)] | Literal["default"]
RETRIES_WORDS = PlainWords("a whole number from 0 to 20, or 'default'")


class AgentRetriesForm(Form):
    """What to do about model calls that fail. See "Overloads" in the how-to guide on agents for the
    default of each agent."""

    before_first: Annotated[Retries, RETRIES_WORDS] = Field(
        "default",
        description="How often the agent itself repeats a call. With few retries, an outage ends an"
        " attempt within seconds, and its account waits.",
    )
    after: Annotated[Retries, RETRIES_WORDS] = Field(
        "default",
        description="How often a session that fails after the model's first answer is resumed, with"
        " what it has done so far. For agents that cannot resume one: how often the agent itself"
        " repeats a call.",
    )


PATHS = ("answer", "turns", "cost_usd", "input_tokens", "output_tokens", "tools", "error")


class AgentTargetForm(ProgramForm):
    """An agent program, started once for each attempt, in its workspace."""

    agent: Text = Field(
        description="The agent's name, or a template over axes: `{agent}` is the value of the"
        " axis `agent`. `custom` is your own program."
    )
    prompt: Prompt = Field(
        "{input}", description="The prompt: a template, or a file that contains one."
    )
    system: Prompt | None = Field(
        None,
        description="Added to the agent's own instructions, if it supports that: a template, or"
        " a file that contains one.",
    )
    model: Text | None = Field(
        None,
        description="A model from the registry, or a template over axes: the agent then uses that"
        " entry's endpoint. Any other name is passed to the agent unchanged. By default the agent"
        " chooses.",
    )
    account: Name | None = Field(
        None,
        description="Targets with the same account share rate limits and stop together when a key"
        " is rejected. By default the account of the registry's model; otherwise the agent's name,"
        " or for `custom` its command.",
    )
    max_turns: Count | None = Field(
        None, description="The agent stops after this many turns, if it supports that."
    )
    retries: AgentRetriesForm | None = Field(
        None,
        description="Retries of model calls that fail because of a rate limit, an overload or a"
        " lost connection.",
    )
    mcp: Annotated[
        Unchecked[dict[Annotated[str, Field(pattern=f"^{SERVER_NAME}$")], McpServerForm | None]],
        PlainWords("a mapping of names to servers"),
    ] = Field({}, description="Tool servers (MCP) for the agent.")
    arguments: Annotated[list[Item], PlainWords("a list of strings and numbers")] = Field(
        [], description="Extra command-line arguments. Each is a template."
    )
    program: Annotated[Arguments | str, PlainWords("a path, or a list of strings")] | None = Field(
        None,
        description="Started instead of the agent's default program: a path, relative to the"
        " suite's folder, or a program with arguments. Each is a template.",
    )
    command: Annotated[Arguments, PlainWords("a list of strings and numbers")] | None = Field(
        None, description="For `custom`: the program and its arguments. Each is a template."
    )
    stdin: Text | None = Field(
        None, description="For `custom`: a template for the program's stdin."
    )
    output: Annotated[
        Unchecked[str | CustomOutputForm | None],
        PlainWords("'text', the name of an agent, or a mapping"),
    ] = Field(
        None, description="For `custom`: how to read its stdout, see below; by default `text`."
    )


# ---- overlays of a target


def _with_all_target_keys(schema: dict[str, Any]) -> None:
    """Add the keys of every kind of target; the overlay's own definitions win."""
    own = dict(schema.setdefault("properties", {}))
    for form in (AgentTargetForm, FunctionTargetForm, CommandTargetForm):
        schema["properties"].update(form.model_json_schema()["properties"])
    schema["properties"].update(own)


class OverlayForm(Form):
    """Target keys that apply for one value of an axis. `env`, `mcp` and `chat` are merged; other
    keys replace the target's own."""

    model_config = ConfigDict(json_schema_extra=_with_all_target_keys)

    chat: ChatOverlayForm | None = Field(None, description="Keys of a chat target.")
    limits: TargetLimitsForm | None = Field(None, description="Resources one attempt may use.")
    errors: ErrorsForm | None = Field(None, description="Errors that count as failures.")
    retries: AgentRetriesForm | None = Field(None, description="Retries of an agent's model calls.")
    mcp: dict[str, McpServerForm | None] | None = Field(
        None, description="Tool servers of an agent; null removes one."
    )
    output: str | CustomOutputForm | None = Field(None, description="How to read the answer.")
    workspace: dict[str, Any] | None = Field(
        None, description="Keys of the suite's `workspace` that differ for this value."
    )
