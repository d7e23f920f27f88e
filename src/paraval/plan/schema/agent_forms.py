"""Agents as suites write them: every key, their tool servers, and how a custom one is read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SkipValidation

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
)
from paraval.plan.schema.target_forms import (
    ChatOverlayForm,
    CommandTargetForm,
    FunctionTargetForm,
    ProgramForm,
    TargetLimitsForm,
)

SERVER_NAME = r"[A-Za-z0-9_-]{1,64}"
"""What every agent takes for the name of a server, and tells of the server's tools by."""


class McpServerForm(Form):
    """A tool server that the agent is handed: a `command` that it starts and speaks to over stdio,
    or the `url` of one that runs already. Its strings are templates."""

    command: Annotated[Arguments, PlainWords("a list of strings and numbers")] | None = Field(
        None, description="The program and its arguments."
    )
    env: Annotated[Environment, ReferenceNote("a mapping of names to values")] = Field(
        {}, description="Environment variables for the command."
    )
    url: (
        Annotated[str, Field(pattern=r"^(https?://\S|\{)"), PlainWords("an address: http(s)://...")]
        | None
    ) = Field(None, description="Where it is reached over HTTP.")


Dotted = Annotated[
    str,
    Field(pattern=r"^[^.\s]+(\.[^.\s]+)*$"),
    PlainWords("a path of keys and positions such as result.text"),
]
Pattern = Annotated[str, Field(min_length=1), PlainWords("a regular expression")]


class CustomOutputForm(Form):
    """How to read what a custom agent prints on stdout. `output: text` and `output: claude-code`
    are short for the first two keys. Each path leads through keys and positions, joined by dots; in
    lines of JSON, that of the last line which has it counts."""

    format: Annotated[Literal["text", "json", "jsonl"], PlainWords("'text', 'json' or 'jsonl'")] = (
        Field(
            "text",
            description="`text`: all of it is the answer; `json`: one object; `jsonl`: an object a"
            " line.",
        )
    )
    like: Text | None = Field(
        None, description="The name of an agent that prints the same; then no paths are needed."
    )
    answer: Dotted | None = Field(
        None, description="The path of the answer; `json` and `jsonl` need it."
    )
    turns: Dotted | None = Field(None, description="The path of how many turns it took.")
    cost_usd: Dotted | None = Field(None, description="The path of what it cost.")
    input_tokens: Dotted | None = Field(None, description="The path of the tokens it read.")
    output_tokens: Dotted | None = Field(None, description="The path of the tokens it wrote.")
    tools: Dotted | None = Field(None, description="The path of the tools it called.")
    error: Dotted | None = Field(
        None, description="The path of an error: where something is there, it gave no answer."
    )
    rate_limited: Pattern | None = Field(
        None,
        description="What it prints, on stdout or stderr, when it was refused by a rate limit and"
        " did not end well.",
    )
    refused: Pattern | None = Field(
        None, description="The same for a key that was refused, or no login."
    )


PATHS = ("answer", "turns", "cost_usd", "input_tokens", "output_tokens", "tools", "error")


class AgentTargetForm(ProgramForm):
    """An agent program, started once for each attempt, in its workspace."""

    agent: Text = Field(
        description="Which one, or a template over axes: `{agent}` is the value of the axis"
        " `agent`. `custom` is a program of your own."
    )
    prompt: Prompt = Field(
        "{input}", description="What it is asked: a template, or a file that holds one."
    )
    system: Prompt | None = Field(
        None,
        description="What is added to its own instructions, where it takes that: a template, or a"
        " file that holds one.",
    )
    model: Text | None = Field(
        None,
        description="A name of the registry, or a template over axes: the agent's requests go where"
        " that entry says. Any other name is handed to the agent as it is; by default it chooses"
        " by itself.",
    )
    account: Name | None = Field(
        None,
        description="What shares a limit, and a refused key. By default that of the registry's"
        " model; else the agent's name, and of `custom` its command.",
    )
    max_turns: Count | None = Field(
        None, description="After so many turns the agent ends by itself, where it takes that."
    )
    mcp: Annotated[
        SkipValidation[
            dict[Annotated[str, Field(pattern=f"^{SERVER_NAME}$")], McpServerForm | None]
        ],
        PlainWords("a mapping of names to servers"),
    ] = Field({}, description="The tool servers that it is handed.")
    arguments: Annotated[list[Item], PlainWords("a list of strings and numbers")] = Field(
        [], description="Added to its command line. Each is a template."
    )
    program: Annotated[Arguments | str, PlainWords("a path, or a list of strings")] | None = Field(
        None,
        description="What is started in the place of the agent's usual program: a path, relative to"
        " the suite's folder, or a program with arguments. Each is a template.",
    )
    command: Annotated[Arguments, PlainWords("a list of strings and numbers")] | None = Field(
        None, description="Of `custom`: the program and its arguments. Each is a template."
    )
    stdin: Text | None = Field(
        None, description="Of `custom`: a template for what the program reads."
    )
    output: Annotated[
        SkipValidation[str | CustomOutputForm | None],
        PlainWords("'text', the name of an agent, or a mapping"),
    ] = Field(
        None, description="Of `custom`: how to read what it prints, see below; by default `text`."
    )


# ---- what is laid over a target


def _with_all_target_keys(schema: dict[str, Any]) -> None:
    """The overlay's keys are those of every kind of target; what it says itself counts."""
    own = dict(schema.setdefault("properties", {}))
    for form in (AgentTargetForm, FunctionTargetForm, CommandTargetForm):
        schema["properties"].update(form.model_json_schema()["properties"])
    schema["properties"].update(own)


class OverlayForm(Form):
    """Keys of the target, laid over it for one value of an axis. `env`, `mcp` and `chat` are
    merged; other keys replace the target's own."""

    model_config = ConfigDict(json_schema_extra=_with_all_target_keys)

    chat: ChatOverlayForm | None = Field(None, description="Keys of a chat target.")
    limits: TargetLimitsForm | None = Field(
        None, description="What one attempt may take of the machine."
    )
    mcp: dict[str, McpServerForm | None] | None = Field(
        None, description="Tool servers of an agent; one that is null is left out."
    )
    output: str | CustomOutputForm | None = Field(None, description="How the answer is read.")
