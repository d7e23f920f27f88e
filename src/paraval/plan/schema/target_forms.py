"""Targets as suites write them: every key of a command, a function and a chat model.

Those of agents are in `agent_forms`, with which all that may be laid over a target is known.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SkipValidation

from paraval.documents.forms import (
    Arguments,
    Count,
    Delay,
    Environment,
    FileSize,
    Flag,
    Form,
    FunctionName,
    Memory,
    NotNegative,
    PlainWords,
    Positive,
    Prompt,
    ReferenceNote,
    Seconds,
    Text,
    VariableName,
)

# Workspaces as suites write them: every key of a folder and of a git worktree.


class WorkspaceForm(Form):
    """What all workspaces have."""

    setup: Annotated[Arguments, PlainWords("a list of strings and numbers")] | None = Field(
        None,
        description="A command that makes it ready, run once in each; what it leaves that git"
        " ignores is kept between trials.",
    )
    setup_timeout: Seconds = Field(600.0, description="How long `setup` may take.")
    sandbox: Flag = Field(
        False,
        description="Attempts and grader commands can write only in their workspace, home and"
        " temporary folder. Homes and other data on this machine are hidden from them, and the"
        " suite's folder from attempts. Grader commands have no network. Needs bubblewrap.",
    )
    readable: Annotated[list[str], PlainWords("a list of paths")] | None = Field(
        None,
        description="With `sandbox: true`: files and folders that can be read besides what commands"
        " name, relative to the suite's folder.",
    )


class FolderWorkspaceForm(WorkspaceForm):
    """A fresh folder for each attempt."""

    folder: Annotated[str | Literal[True] | None, PlainWords("the path of a folder, or true")] = (
        Field(
            None,
            description="A template that is copied, without its `.git`; `true` or `null`: the"
            " folder is empty.",
        )
    )


class GitWorkspaceForm(WorkspaceForm):
    """A worktree for each attempt, from a pool. The repository itself is never touched: not its
    branches, its index, its configuration or its working tree."""

    git: Annotated[str, Field(min_length=1), PlainWords("the path of a git repository")] = Field(
        description="A repository, or a folder within one, in which attempts then begin."
    )
    ref: Annotated[str, Field(min_length=1), PlainWords("the name of a commit")] | None = Field(
        None, description="A branch, a tag or a commit; by default `HEAD`."
    )
    uncommitted: Flag = Field(
        False, description="Take the working tree as it is, what git ignores left out."
    )


WorkspaceWritten = Annotated[
    Literal["none"] | FolderWorkspaceForm | GitWorkspaceForm,
    ReferenceNote("'none', or a mapping with folder or git"),
]


class ProcessForm(Form):
    """What commands and functions have in common."""

    env: Annotated[Environment, ReferenceNote("a mapping of names to values")] = Field(
        {}, description="Environment variables to set. Values are templates."
    )
    pass_env: Annotated[list[VariableName], ReferenceNote("a list of variable names")] = Field(
        [], description="Variables to pass on from the environment that paraval itself has."
    )
    timeout: Seconds | None = Field(
        None, description="After this the attempt is ended and its outcome is `timeout`."
    )
    grace: Delay = Field(
        5.0, description="How long a process may take to end by itself before it is killed."
    )


class TargetLimitsForm(Form):
    """What one attempt may take of the machine. An attempt starts when there is room for it."""

    cpu: Positive | None = Field(
        None, description="Cores that it keeps busy: reserved for it, not enforced."
    )
    memory: Memory | None = Field(
        None,
        description="Of its whole process tree: reserved for it, and enforced where cgroups allow.",
    )
    processes: Count | None = Field(
        None, description="How many processes it may have at once; enforced where cgroups allow."
    )
    open_files: Count | None = Field(
        None, description="How many files, pipes and sockets each of its processes may have open."
    )
    file_size: FileSize | None = Field(
        None, description="The largest file that it may write; one that goes past it is ended."
    )


class ProgramForm(ProcessForm):
    """What commands and agents have in common."""

    home: Annotated[Literal["own", "mine"], PlainWords("'own' or 'mine'")] = Field(
        "own",
        description="Which home folder it sees: `own`, a fresh one for each attempt; or `mine`,"
        " the user's, with all that is logged in there.",
    )
    limits: Annotated[
        SkipValidation[TargetLimitsForm | None], ReferenceNote("a mapping, see below")
    ] = Field(None, description="What one attempt may take of the machine.")


class CommandTargetForm(ProgramForm):
    """A program that is started once for each attempt."""

    command: Annotated[
        Arguments | str,
        PlainWords("a list of strings and numbers (with shell: true, one line of text)"),
    ] = Field(description="The program and its arguments. Each is a template.")
    shell: Flag = Field(
        False,
        description="Run the command, a text, with `/bin/sh`. The value of a field stays one word"
        " there and is never run.",
    )
    cwd: Text = Field(
        ".",
        description="The folder to run in, relative to the suite's own folder; with a workspace, to"
        " where attempts begin in it.",
    )
    stdin: Text | None = Field(None, description="A template for what the command reads.")
    output: Annotated[
        str,
        Field(pattern=r"^(stdout|json|.*[./{].*)$", min_length=1),
        PlainWords("'stdout', 'json', or the path of a file (with a '.', '/' or '{' in it)"),
    ] = Field(
        "stdout",
        description="Where the answer is: `stdout` as it is; `json`, an object on stdout, see"
        " below; or a template for the path of a file that the command writes.",
    )


class FunctionTargetForm(ProcessForm):
    """A Python function that is called once for each attempt: `function(case)` or
    `function(case, variant)`. `env` and `pass_env` need `isolate: process`."""

    python: FunctionName = Field(
        description="`module:function`; modules are looked for in the suite's folder first."
    )
    isolate: Annotated[Literal["process", "none"], PlainWords("'process' or 'none'")] = Field(
        "none",
        description="`process`: each attempt runs in a worker process, so that a crash costs that"
        " attempt alone and a timeout really ends it.",
    )


class MessageForm(Form):
    """One turn of a conversation."""

    role: Annotated[
        Literal["system", "user", "assistant"], PlainWords("'system', 'user' or 'assistant'")
    ] = Field(description="Who says it.")
    content: Prompt = Field(description="What is said: a template, or a file that holds one.")


class ChatForm(Form):
    """What the model is asked."""

    model: Text = Field(
        description="A name of the registry, or a template over axes: `{model}` is the value of the"
        " axis `model`, which is made from the registry where the matrix has none."
    )
    system: Prompt | None = Field(
        None, description="What the model is told first: a template, or a file that holds one."
    )
    prompt: Prompt | None = Field(
        None,
        description="What it is asked: a template, or a file that holds one; by default `{input}`.",
    )
    messages: (
        Annotated[
            SkipValidation[Annotated[list[MessageForm], Field(min_length=1)]],
            PlainWords("a list of mappings with role and content"),
        ]
        | None
    ) = Field(None, description="A whole conversation, in the place of `prompt`.")
    temperature: NotNegative | None = Field(
        None, description="Sent to the model; by default it uses its own."
    )
    max_tokens: Count | None = Field(None, description="The longest answer, in tokens.")


class ChatTargetForm(Form):
    """A model of the registry, asked once for each attempt."""

    chat: Annotated[SkipValidation[ChatForm], ReferenceNote("a mapping, see below")] = Field(
        description="What it is asked."
    )
    timeout: Seconds | None = Field(
        None, description="The longest that a call may take; by default the model's own."
    )


class ChatOverlayForm(ChatForm):
    """Keys of `chat`, laid over the target's own."""

    model: Text | None = Field(None, description="Another model of the registry.")  # type: ignore[assignment]  # an overlay need not say it
