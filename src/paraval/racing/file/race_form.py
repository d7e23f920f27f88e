"""The race file as its author writes it: every key in its long form, and the JSON Schema of it all.

How short forms become long ones is told in `race_words`, what the keys mean in `race_file`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SkipValidation

from paraval.documents.forms import (
    Arguments,
    AtOnce,
    Count,
    Delay,
    Environment,
    Flag,
    Form,
    FunctionName,
    Name,
    PlainWords,
    Positive,
    ReferenceNote,
    Seconds,
    Shorthand,
    VariableName,
)
from paraval.plan.schema.suite_form import EditorSchema

Command = Annotated[
    Arguments | str, PlainWords("a command: a list of texts and numbers, or one text")
]


def _within(path: str) -> str:
    if not path or "\0" in path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError("leads out")
    return path


FileWithin = Annotated[
    str,
    AfterValidator(_within),
    PlainWords("the path of a file, relative to where the command runs and within it"),
]
"""What commands write, in worktrees alone."""


class RepoForm(Form):
    """What the candidates are changes to. Nothing is ever written there."""

    git: Annotated[str, Field(min_length=1), PlainWords("the path of a git repository")] = Field(
        ".",
        description="A repository, or a folder within one, in which commands then run; relative to"
        " the race file's folder.",
    )
    ref: Annotated[str, Field(min_length=1), PlainWords("the name of a commit")] | None = Field(
        None, description="A branch, a tag or a commit; by default `HEAD`."
    )
    uncommitted: Flag = Field(
        False, description="Take the working tree as it is, what git ignores left out."
    )


class TestForm(Form):
    """How a candidate is shown to be right: a command that ends with exit code 0."""

    __test__ = False  # pytest takes it for a test otherwise

    command: Command = Field(description="Run in a worktree of the candidate's own.")
    timeout: Seconds = Field(600.0, description="Seconds after which it is ended.")
    junit: Annotated[
        Literal["auto", "off"] | FileWithin, PlainWords("'auto', 'off', or a file")
    ] = Field(
        "auto",
        description="Where single tests are told of, so that differences can be named: `auto`"
        " asks pytest for it, `off` does not, a path is that of a file in JUnit's form that the"
        " command writes.",
    )
    canary: Flag = Field(
        True,
        description="Run the tests once with the Python files broken that candidates change, to see"
        " that the tests run this code; if they still pass, there is no race.",
    )


class ComparedFileForm(Form):
    """A file that the test command writes."""

    file: FileWithin = Field(description="Relative to where the command runs.")


class BenchForm(Form):
    """How fast a candidate is: a command, started anew for each measurement, alone."""

    command: Command = Field(description="Run in a worktree of the candidate's own.")
    metric: Annotated[
        Literal["wall", "cpu"] | FileWithin | ComparedFileForm,
        PlainWords("'wall', 'cpu', or the JSON file that the command writes"),
    ] = Field(
        "wall",
        description="What counts: the time by the clock, the time of its CPUs, or a JSON file that"
        ' it writes, `{"case": seconds, "__total__": seconds}`, as a path or as `{file: path}`.',
    )
    timeout: Seconds = Field(600.0, description="Seconds after which a process is ended.")
    blocks: (
        Annotated[int, Field(ge=3, le=1000), PlainWords("a whole number from 3 to 1000")] | None
    ) = Field(
        None,
        description="How many ABBA blocks each finalist gets; by default as many as are worth it.",
    )
    quiet: Delay = Field(
        30.0,
        description="How many seconds to wait for a quiet machine; then it is measured all the"
        " same, and marked noisy.",
    )
    cpus: Annotated[int, Field(ge=0, le=4096), PlainWords("a whole number, 0 or more")] | None = (
        Field(
            None,
            description="To how many CPUs it is pinned, 0 for none; by default to one, where the"
            " baseline keeps no more busy.",
        )
    )


class GenerateForm(Form):
    """A program that proposes candidates: it prints them as JSON lines."""

    command: Command = Field(description="Run in the race file's folder.")
    timeout: Seconds = Field(600.0, description="Seconds after which a call of it is ended.")
    usd: Positive | None = Field(
        None,
        description="What its calls may cost in all, as far as they tell; by default anything.",
    )


class HookForm(GenerateForm):
    """A program that is told of a candidate as JSON, and prints others as JSON lines."""

    depth: Count = Field(
        2, description="How many times over what it proposed may be handed to it again."
    )
    calls: Count = Field(10, description="How often it is asked in one race.")


FunctionNames = Annotated[list[FunctionName], ReferenceNote("a list of module:function")]


class ProfileForm(Form):
    """What of the winner is profiled, by running its benchmark once more."""

    kind: Annotated[Literal["line", "none"], PlainWords("'line' or 'none'")] = Field(
        "line", description="`line`: with line_profiler, where it is installed."
    )
    functions: FunctionNames = Field(
        [],
        description="`module:function` or `module:Class.method`; by default every function in the"
        " files that the winner changed.",
    )


class AcceptForm(Form):
    """What a candidate must show."""

    speedup: Annotated[
        float, Field(ge=1, le=1000, allow_inf_nan=False), PlainWords("a number from 1 to 1000")
    ] = Field(
        1.05, description="How many times as fast as the baseline, at the interval's low end."
    )
    confidence: Annotated[
        float, Field(ge=0.5, lt=1), PlainWords("a number from 0.5 to under 1, such as 0.95")
    ] = Field(0.95, description="Of the interval.")


class RaceLimitsForm(Form):
    """What a race may take."""

    parallel: AtOnce | None = Field(
        None,
        description="How many candidates are tested at once; `auto`, the default: as many as the"
        " machine can carry. Measurements are always alone.",
    )
    candidates: Count = Field(
        200, description="How many there may be, those repaired and refined among them."
    )
    seconds: Seconds | None = Field(None, description="After this nothing new starts.")
    usd: Positive | None = Field(
        None, description="What `generate`, `repair` and `refine` may cost together."
    )


CandidateNames = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]
_COMMAND = "a command, or a mapping with command"


class RaceForm(Form):
    """A race of paraval: candidate changes to a repository, the right and fastest of which wins."""

    name: Name | None = Field(
        None, description="Its name in reports and in the store; by default the file's name."
    )
    repo: Annotated[
        SkipValidation[Annotated[RepoForm, Shorthand("git")] | None],
        ReferenceNote("the path of a git repository, or a mapping"),
    ] = Field(
        None, description="What the candidates are changes to; by default the race file's folder."
    )
    ref: Annotated[str, PlainWords("the name of a commit")] | None = Field(
        None, description="As `ref` in `repo`."
    )
    uncommitted: Flag = Field(False, description="As `uncommitted` in `repo`.")
    setup: Annotated[Command | None, ReferenceNote(_COMMAND.partition(",")[0])] = Field(
        None,
        description="A command that makes a worktree ready: it runs in each, with the candidate's"
        " code. What it leaves that git ignores is there for the tests and the benchmark.",
    )
    sandbox: Flag = Field(
        False,
        description="Tests and benchmarks can write nowhere but in their worktree, home and"
        " temporary folder. Needs bubblewrap.",
    )
    test: Annotated[
        SkipValidation[Annotated[TestForm, Shorthand("command")]], ReferenceNote(_COMMAND)
    ] = Field(description="How a candidate is shown to be right.")
    compare: Annotated[
        SkipValidation[
            Literal["stdout"] | FileWithin | list[Literal["stdout"] | FileWithin | ComparedFileForm]
        ],
        ReferenceNote("a list of 'stdout' and files"),
    ] = Field(
        [],
        description="What of the test command must be as it is with the baseline, beyond pass and"
        " fail: `stdout`, and files that it writes, as paths or as `{file: path}`.",
    )
    bench: Annotated[
        SkipValidation[Annotated[BenchForm, Shorthand("command")]], ReferenceNote(_COMMAND)
    ] = Field(description="How fast a candidate is.")
    candidates: Annotated[
        SkipValidation[str | CandidateNames],
        ReferenceNote("a path, a glob, a git ref, or a list of them"),
    ] = Field([], description="Who races, see below.")
    generate: Annotated[
        SkipValidation[Annotated[GenerateForm, Shorthand("command")] | None],
        ReferenceNote(_COMMAND),
    ] = Field(None, description="Proposes candidates, once, while those given are raced.")
    repair: Annotated[
        SkipValidation[Annotated[HookForm, Shorthand("command")] | None], ReferenceNote(_COMMAND)
    ] = Field(None, description="Is told of a candidate that failed, and proposes others.")
    refine: Annotated[
        SkipValidation[Annotated[HookForm, Shorthand("command")] | None], ReferenceNote(_COMMAND)
    ] = Field(None, description="Is told of a right one and its speed, and proposes others.")
    profile: Annotated[
        SkipValidation[
            Annotated[ProfileForm, Shorthand("kind")] | dict[Literal["line"], FunctionNames] | None
        ],
        ReferenceNote("'line', 'none', or a mapping"),
    ] = Field(None, description="Whether the winner's lines are timed; by default they are not.")
    functions: FunctionNames = Field([], description="As `functions` in `profile`.")
    accept: Annotated[SkipValidation[AcceptForm | None], ReferenceNote("a mapping")] = Field(
        None, description="What a candidate must show."
    )
    limits: Annotated[SkipValidation[RaceLimitsForm | None], ReferenceNote("a mapping")] = Field(
        None, description="What the race may take."
    )
    protect: Annotated[
        list[Annotated[str, Field(min_length=1)]] | bool,
        PlainWords("a list of globs, or false for nothing"),
    ] = Field(
        True,
        description="What judges the candidates, and is not theirs to change; a list takes the"
        " place of what is protected by default.",
    )
    env: Annotated[Environment, ReferenceNote("a mapping of names to texts")] = Field(
        {}, description="Environment variables to set for tests and benchmarks."
    )
    pass_env: Annotated[list[VariableName], ReferenceNote("a list of names of variables")] = Field(
        [],
        description="Variables to pass on from the environment that paraval itself has: to tests,"
        " benchmarks and hooks.",
    )


def race_schema() -> dict[str, Any]:
    """The JSON Schema of race files, for editors."""
    schema = RaceForm.model_json_schema(schema_generator=EditorSchema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "paraval race",
    }
