"""The keys of commands, functions, chat models and workspaces.

Those of agents, and of overlays, are in `agent_forms`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

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
    PlainWords,
    Positive,
    Prompt,
    ReferenceNote,
    Seconds,
    Text,
    Unchecked,
    VariableName,
)

# Workspaces: a folder or a git worktree.


class ContainerForm(Form):
    """The container that each attempt runs in, with its grader commands. Everything runs as root in
    it, with the image's own PATH."""

    image: Annotated[str, PlainWords("the name of an image")] | None = Field(
        None, description="Its image, such as `python:3.12`; pulled if it is not here. A template."
    )
    build: Annotated[str, PlainWords("the path of a folder")] | None = Field(
        None,
        description="Instead of `image`: a folder with a Dockerfile, built once for its contents."
        " A template.",
    )
    engine: Annotated[
        Literal["auto", "docker", "podman", "apptainer"],
        PlainWords("'auto', 'docker', 'podman' or 'apptainer'"),
    ] = Field("auto", description="The program that runs it; `auto` is the first that works here.")
    network: Flag = Field(
        True, description="`true`: this machine's network; `false`: no network at all."
    )
    cpus: Positive | None = Field(None, description="Cores that it may use.")
    memory: Memory | None = Field(None, description="What exceeds this is killed.")
    path: Annotated[str, PlainWords("an absolute path")] | None = Field(
        None,
        description="Where the workspace is in the container; without `git` or `folder`, where"
        " attempts start. By default the workspace's own path, or the image's working directory.",
    )


class WorkspaceForm(Form):
    """Keys that all workspaces share."""

    setup: Annotated[Arguments, PlainWords("a list of strings and numbers")] | None = Field(
        None,
        description="A command that prepares the workspace, run once in each; files it leaves that"
        " git ignores are kept between trials. Each argument is a template, like `git`, `ref` and"
        " `folder`, with the fields of a case (`{input...}`, `{metadata...}`, `{case.id}`) and the"
        " axes.",
    )
    setup_timeout: Seconds = Field(600.0, description="Time limit for `setup`.")
    sandbox: Flag = Field(
        False,
        description="Attempts and grader commands can write only to their workspace, home and"
        " temporary folder. Other homes and data on this machine are hidden from them; attempts"
        " cannot see the suite's folder. Grader commands have no network. Needs bubblewrap.",
    )
    readable: Annotated[list[str], PlainWords("a list of paths")] | None = Field(
        None,
        description="With `sandbox: true` or `container`: files and folders that can be read in"
        " addition to those that commands name, relative to the suite's folder.",
    )
    container: Annotated[Unchecked[ContainerForm | None], ReferenceNote("a mapping, see below")] = (
        Field(
            None,
            description="Attempts and grader commands run in a container, one for each attempt."
            " Without `git` or `folder`, attempts start with the image's own files.",
        )
    )


class FolderWorkspaceForm(WorkspaceForm):
    """A fresh folder for each attempt."""

    folder: Annotated[str | Literal[True] | None, PlainWords("the path of a folder, or true")] = (
        Field(
            None,
            description="A folder to copy, without its `.git`; `true` or `null` means an empty"
            " folder.",
        )
    )


class GitWorkspaceForm(WorkspaceForm):
    """A worktree for each attempt, from a pool. The repository itself is never touched: neither its
    branches nor its index, configuration or working tree."""

    git: Annotated[str, Field(min_length=1), PlainWords("the path of a git repository")] = Field(
        description="A repository, or a folder in one; attempts start in that folder."
    )
    ref: Annotated[str, Field(min_length=1), PlainWords("the name of a commit")] | None = Field(
        None, description="A branch, a tag or a commit; by default `HEAD`."
    )
    uncommitted: Flag = Field(
        False, description="Use the working tree as it is, without ignored files."
    )


class ImageWorkspaceForm(WorkspaceForm):
    """Attempts start in an image's own files."""


WorkspaceWritten = Annotated[
    Literal["none"] | FolderWorkspaceForm | GitWorkspaceForm | ImageWorkspaceForm,
    ReferenceNote("'none', or a mapping with folder, git or container"),
]


class HiddenFilesForm(Form):
    """Files that attempts cannot read, and where they are put."""

    model_config = ConfigDict(serialize_by_alias=True)

    from_: Text = Field(
        alias="from", description="A file or a folder, relative to the suite's folder; a template."
    )
    to: Text | None = Field(
        None,
        description="Its path in the workspace, relative to where attempts start; a template. By"
        " default the same as `from`. Not for a patch, which names its own paths.",
    )


HiddenWritten = Annotated[
    list[Text | HiddenFilesForm], PlainWords("a list of paths, or of mappings with from and to")
]


HowCounted = Annotated[Literal["error", "fail"], PlainWords("'error' or 'fail'")]


class ErrorsForm(Form):
    """How errors of a target count: as missing data, or as failures. Outages and rate limits are
    never failures."""

    timeout: HowCounted = Field("error", description="It did not end within `timeout`.")
    crashed: HowCounted = Field(
        "error", description="It exited with an error, was killed, or raised an exception."
    )
    invalid_output: HowCounted = Field("error", description="Its output could not be read.")


class ProcessForm(Form):
    """Keys that commands and functions share."""

    env: Annotated[Environment, ReferenceNote("a mapping of names to values")] = Field(
        {}, description="Environment variables to set. Values are templates."
    )
    pass_env: Annotated[list[VariableName], ReferenceNote("a list of variable names")] = Field(
        [], description="Variables to pass on from paraval's own environment."
    )
    timeout: Seconds | None = Field(
        None, description="After this, the attempt is stopped with the outcome `timeout`."
    )
    grace: Delay = Field(
        5.0, description="Time a process gets to exit by itself before it is killed."
    )
    errors: Annotated[Unchecked[ErrorsForm | None], ReferenceNote("a mapping, see below")] = Field(
        None,
        description="Errors that count as failures, such as `{timeout: fail, crashed: fail}`;"
        " by default none.",
    )


class TargetLimitsForm(Form):
    """Resources one attempt may use. An attempt starts when there is room for it."""

    cpu: Positive | None = Field(None, description="Cores it keeps busy: reserved, not enforced.")
    memory: Memory | None = Field(
        None,
        description="Memory of its whole process tree: reserved, and enforced where cgroups allow.",
    )
    processes: Count | None = Field(
        None, description="Maximum number of concurrent processes; enforced where cgroups allow."
    )
    open_files: Count | None = Field(
        None, description="Maximum number of open files, pipes and sockets per process."
    )
    file_size: FileSize | None = Field(
        None, description="Largest file it may write; a process that exceeds this is stopped."
    )


class ProgramForm(ProcessForm):
    """Keys that commands and agents share."""

    home: Annotated[Literal["own", "mine"], PlainWords("'own' or 'mine'")] = Field(
        "own",
        description="Which home folder it sees: `own`, a fresh one for each attempt; or `mine`,"
        " yours, with all your logins.",
    )
    limits: Annotated[Unchecked[TargetLimitsForm | None], ReferenceNote("a mapping, see below")] = (
        Field(None, description="Resources one attempt may use.")
    )


class CommandTargetForm(ProgramForm):
    """A program, started once for each attempt."""

    command: Annotated[
        Arguments | str,
        PlainWords("a list of strings and numbers (with shell: true, one line of text)"),
    ] = Field(description="The program and its arguments. Each is a template.")
    shell: Flag = Field(
        False,
        description="Run the command, one line of text, with `/bin/sh`. The value of a field stays"
        " one word and is never executed.",
    )
    cwd: Text = Field(
        ".",
        description="The folder to run in, relative to the suite's folder; with a workspace,"
        " relative to where attempts start in it.",
    )
    stdin: Text | None = Field(None, description="A template for the command's stdin.")
    output: Annotated[
        str,
        Field(pattern=r"^(stdout|json|.*[./{].*)$", min_length=1),
        PlainWords("'stdout', 'json', or the path of a file (with a '.', '/' or '{' in it)"),
    ] = Field(
        "stdout",
        description="Where the answer is: `stdout`, unchanged; `json`, an object on stdout, see"
        " below; or a template for the path of a file that the command writes.",
    )


class FunctionTargetForm(ProcessForm):
    """A Python function, called once for each attempt: `function(case)` or
    `function(case, variant)`. `env` and `pass_env` need `isolate: process`."""

    python: FunctionName = Field(
        description="`module:function`; the suite's folder is searched first."
    )
    isolate: Annotated[Literal["process", "none"], PlainWords("'process' or 'none'")] = Field(
        "none",
        description="`process`: each attempt runs in a worker process, so a crash costs only that"
        " attempt and a timeout really stops it.",
    )


ToolName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{1,64}$"),
    PlainWords("1 to 64 letters, digits, '_' and '-'"),
]


class MessageForm(Form):
    """One message of a conversation."""

    role: Annotated[
        Literal["system", "user", "assistant"], PlainWords("'system', 'user' or 'assistant'")
    ] = Field(description="Who is speaking.")
    content: Prompt = Field(description="The text: a template, or a file that contains one.")


AxisField = Annotated[str, Field(pattern=r"^\{[A-Za-z][\w-]*\}$")]
"""`{temperature}`: the value of an axis."""


class ToolForm(Form):
    """A tool that the model may call."""

    name: ToolName | None = Field(
        None, description="By default the name of the Python function; otherwise required."
    )
    description: Text | None = Field(
        None, description="What it does; by default the function's docstring."
    )
    parameters: Annotated[dict[str, Any], PlainWords("a JSON Schema")] | None = Field(
        None,
        description="A JSON Schema of its arguments; by default from the function's annotations.",
    )
    python: FunctionName | None = Field(
        None,
        description="`module:function` to run when the model calls the tool; its result is sent"
        " back, until the model answers. Without it, the call itself is the answer.",
    )


class ChatForm(Form):
    """What to ask the model. Each parameter may be an axis: `temperature: "{temperature}"`."""

    model: Text = Field(
        description="A model from the registry, or a template over axes: `{model}` is the value of"
        " the axis `model`, which is created from the registry if the matrix has none."
    )
    system: Prompt | None = Field(
        None, description="The system prompt: a template, or a file that contains one."
    )
    prompt: Prompt | None = Field(
        None,
        description="The prompt: a template, or a file that contains one; by default `{input}`.",
    )
    messages: (
        Annotated[
            Unchecked[
                Annotated[list[MessageForm | Literal["{input}"]], Field(min_length=1)]
                | Literal["{input}"]
            ],
            PlainWords("a list of mappings with role and content"),
        ]
        | None
    ) = Field(
        None,
        description="A whole conversation, instead of `prompt`. The item `'{input}'` stands for"
        " the messages of a case whose input is a list of messages.",
    )
    temperature: (
        Annotated[
            Annotated[float, Field(ge=0, allow_inf_nan=False)] | AxisField,
            PlainWords("a number, 0 or more, or an axis such as '{temperature}'"),
        ]
        | None
    ) = Field(None, description="Sent to the model; by default the model's own.")
    max_tokens: (
        Annotated[
            Annotated[int, Field(ge=1)] | AxisField,
            PlainWords("a whole number, 1 or more, or an axis such as '{max_tokens}'"),
        ]
        | None
    ) = Field(None, description="Maximum length of the answer, in tokens.")
    top_p: (
        Annotated[
            Annotated[float, Field(ge=0, le=1)] | AxisField,
            PlainWords("a number from 0 to 1, or an axis such as '{top_p}'"),
        ]
        | None
    ) = Field(None, description="Nucleus sampling.")
    stop: (
        Annotated[
            Annotated[str, Field(min_length=1)] | list[Annotated[str, Field(min_length=1)]],
            PlainWords("text, or a list of texts"),
        ]
        | None
    ) = Field(None, description="The answer ends before this text. Not for `openai-responses`.")
    seed: (
        Annotated[int | AxisField, PlainWords("a whole number, or an axis such as '{seed}'")] | None
    ) = Field(None, description="For repeatable sampling. Only for `openai` and `loopback`.")
    reasoning_effort: (
        Annotated[
            Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | AxisField,
            PlainWords("one of none, minimal, low, medium, high, xhigh, max, or an axis"),
        ]
        | None
    ) = Field(None, description="How much the model thinks; each model has its own levels.")
    response_format: (
        Annotated[dict[str, Any] | str, PlainWords("a JSON Schema, or the path of one")] | None
    ) = Field(
        None,
        description="A JSON Schema that the answer must match, or a file that contains one."
        " OpenAI's strict mode is used if its `additionalProperties` is false.",
    )
    tools: (
        Annotated[
            Unchecked[list[ToolForm | FunctionName] | str],
            PlainWords("a list of tools, or the path of a .json or .yaml file with one"),
        ]
        | None
    ) = Field(
        None,
        description="Tools that the model may call: mappings, see below, or Python functions"
        " (`module:function`); or a .json or .yaml file with a list of them.",
    )
    max_turns: Count | None = Field(
        None,
        description="With Python tools: maximum number of calls of the model; by default 10.",
    )
    options: Annotated[dict[str, Any], PlainWords("a mapping")] | None = Field(
        None, description="Sent unchanged with every request; overrides the model's `options`."
    )


class ChatTargetForm(Form):
    """A model from the registry, called once for each attempt; with Python tools, until it calls no
    more of them."""

    chat: Annotated[Unchecked[ChatForm], ReferenceNote("a mapping, see below")] = Field(
        description="What to ask it."
    )
    timeout: Seconds | None = Field(
        None,
        description="Time limit for one call; by default the model's. With Python tools, for the"
        " whole attempt.",
    )


class ChatOverlayForm(ChatForm):
    """Keys of `chat` that override the target's own."""

    model: Text | None = Field(None, description="Another model from the registry.")  # type: ignore[assignment]  # optional in an overlay
