"""The keys of a race file in their long form, and their JSON Schema.

`short_forms` turns short forms into long ones; `race_file` turns the keys into a request.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

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
    Unchecked,
    VariableName,
)
from paraval.plan.schema.model_forms import ModelForm
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
"""A file that a command writes in its worktree."""


class RepoForm(Form):
    """The repository that candidates change. Nothing is written to it, except with `--apply`."""

    git: Annotated[str, Field(min_length=1), PlainWords("the path of a git repository")] = Field(
        ".",
        description="The repository, or a folder in it where commands then run. Relative to the"
        " race file's folder.",
    )
    ref: Annotated[str, Field(min_length=1), PlainWords("the name of a commit")] | None = Field(
        None, description="The branch, tag or commit to start from. Default: `HEAD`."
    )
    head: Annotated[str, Field(min_length=1), PlainWords("the name of a commit")] | None = Field(
        None,
        description="Compare this branch, tag or commit with `ref`, instead of racing candidates."
        " `test` is optional then, and the files that judge candidates may differ.",
    )
    uncommitted: Flag = Field(
        False,
        description="Start from the working tree with its uncommitted changes, without ignored"
        " files.",
    )


class TestForm(Form):
    """The command that tests a candidate: exit code 0 means that it passed."""

    __test__ = False  # pytest takes it for a test otherwise

    command: Command = Field(description="Runs in the candidate's own worktree.")
    timeout: Seconds | None = Field(
        None,
        description="Seconds after which it is stopped; by default ten times as long as the"
        " baseline took, at least 30.",
    )
    junit: Annotated[
        Literal["auto", "off"] | FileWithin, PlainWords("'auto', 'off', or a file")
    ] = Field(
        "auto",
        description="Where results of individual tests come from: `auto` asks pytest for a JUnit"
        " XML report, `off` uses only the exit code, and a path names the JUnit XML file that the"
        " command writes.",
    )
    canary: Flag = Field(
        True,
        description="Before the race, break the Python files that candidates change and run the"
        " tests once. If they still pass, they do not test this code, and the race is refused.",
    )


class ComparedFileForm(Form):
    """A file that the test command writes."""

    file: FileWithin = Field(description="Relative to where the command runs.")


class BenchForm(Form):
    """The command that measures speed: one new process per measurement, one at a time."""

    command: Command = Field(description="Runs in the candidate's own worktree.")
    metric: Annotated[
        Literal["wall", "cpu"] | FileWithin | ComparedFileForm,
        PlainWords("'wall', 'cpu', or the JSON file that the command writes"),
    ] = Field(
        "wall",
        description="What to compare: `wall` time, `cpu` time, or the seconds in a JSON file that"
        ' the command writes, `{"case": seconds, "__total__": seconds}` or the JSON of'
        " pytest-benchmark, pyperf or hyperfine (medians), given as a path or as `{file: path}`.",
    )
    timeout: Seconds | None = Field(
        None,
        description="Seconds after which a process is stopped; by default ten times as long as the"
        " baseline took, at least 30.",
    )
    blocks: (
        Annotated[int, Field(ge=3, le=1000), PlainWords("a whole number from 3 to 1000")] | None
    ) = Field(
        None,
        description="How many ABBA blocks to measure per finalist. Default: 5 to 15, depending on"
        " how long they take.",
    )
    quiet: Delay = Field(
        30.0,
        description="How many seconds to wait for a quiet machine. After that, measurements"
        " continue and are marked noisy.",
    )
    cpus: Annotated[int, Field(ge=0, le=4096), PlainWords("a whole number, 0 or more")] | None = (
        Field(
            None,
            description="How many CPUs to pin it to, 0 for no pinning. Default: 1 if the baseline"
            " keeps only one busy.",
        )
    )


class GenerateForm(Form):
    """A program that prints candidates as JSON lines."""

    command: Command = Field(description="Runs in the race file's folder.")
    timeout: Seconds = Field(600.0, description="Seconds after which a call is stopped.")
    usd: Positive | None = Field(
        None,
        description="Budget in USD for all its calls, by the costs they report. Default: no limit.",
    )


class ModelCandidatesForm(Form):
    """Candidates that a model writes, one call for each. Replies that cannot be applied are
    candidates that failed, with the reason. Answers are cached."""

    model: Annotated[
        Name | Annotated[list[Name], Field(min_length=1)],
        PlainWords("the name of a model in models, or a list of them"),
    ] = Field(description="A model in `models`; a list: `n` candidates from each.")
    target: Annotated[
        str | Annotated[list[str], Field(min_length=1)],
        PlainWords("the path of a file in the repository, or a list of them"),
    ] = Field(description="The files that the model is shown and may edit, relative to `repo`.")
    n: Annotated[int, Field(ge=1, le=200), PlainWords("a whole number from 1 to 200")] = Field(
        8, description="How many candidates."
    )
    prompt: (
        Annotated[str, Field(min_length=1), PlainWords("a text, or the path of a file")] | None
    ) = Field(
        None,
        description="What to ask for; files are relative to the race file. Fields: `{target}`,"
        " the files with their paths (added at the end if it is not used), `{n}`, and `{attempt}`,"
        " the number of the candidate. How to reply is added. Default: make it faster.",
    )
    temperature: (
        Annotated[float, Field(ge=0, le=2, allow_inf_nan=False), PlainWords("a number from 0 to 2")]
        | None
    ) = Field(None, description="Default: the provider's.")
    max_tokens: Count | None = Field(
        None,
        description="Longest reply; a whole file must fit. Default: the provider's.",
    )


class HookForm(GenerateForm):
    """A program that gets a candidate as JSON and prints new ones as JSON lines."""

    depth: Count = Field(
        2, description="How many generations deep it may build on its own proposals."
    )
    calls: Count = Field(10, description="How many times it may be called in one race.")


FunctionNames = Annotated[list[FunctionName], ReferenceNote("a list of module:function")]


class ProfileForm(Form):
    """What to profile in the winner, by running its benchmark once more."""

    kind: Annotated[Literal["line", "none"], PlainWords("'line' or 'none'")] = Field(
        "line", description="`line` times each line, if line_profiler is installed."
    )
    functions: FunctionNames = Field(
        [],
        description="`module:function` or `module:Class.method`. Default: every function in the"
        " files that the winner changed.",
    )


class AcceptForm(Form):
    """What a candidate needs to win."""

    speedup: Annotated[
        float, Field(ge=1, le=1000, allow_inf_nan=False), PlainWords("a number from 1 to 1000")
    ] = Field(1.05, description="The low end of its speedup interval must be above this.")
    confidence: Annotated[
        float, Field(ge=0.5, lt=1), PlainWords("a number from 0.5 to under 1, such as 0.95")
    ] = Field(0.95, description="Confidence level of the interval.")
    each: (
        Annotated[float, Field(gt=0, le=1000), PlainWords("a number greater than 0, such as 0.95")]
        | None
    ) = Field(
        None,
        description="How fast each case of the benchmark must be, if it reports cases: 0.95 lets"
        " none become more than 5% slower. A total may hide that.",
    )


class RaceLimitsForm(Form):
    """Limits of a race."""

    parallel: AtOnce | None = Field(
        None,
        description="How many candidates to test in parallel; on a cluster, on each node. Default:"
        " `auto`, as many as the machine can handle. Measurements always run one at a time.",
    )
    candidates: Count = Field(
        200, description="How many candidates in all, including repaired and refined ones."
    )
    seconds: Seconds | None = Field(None, description="Nothing new starts after this time.")
    usd: Positive | None = Field(
        None, description="Budget in USD for `generate`, `repair` and `refine` together."
    )


CandidateNames = Annotated[
    list[Annotated[str, Field(min_length=1)] | ModelCandidatesForm], Field(min_length=1)
]
_COMMAND = "a command, or a mapping with command"


class RaceForm(Form):
    """A race between candidate changes to a repository: the fastest one that passes wins."""

    name: Name | None = Field(
        None, description="Name in reports and in the store. Default: the file's name."
    )
    repo: Annotated[
        Unchecked[Annotated[RepoForm, Shorthand("git")] | None],
        ReferenceNote("the path of a git repository, or a mapping"),
    ] = Field(
        None, description="The repository that candidates change. Default: the race file's folder."
    )
    ref: Annotated[str, PlainWords("the name of a commit")] | None = Field(
        None, description="Same as `ref` in `repo`."
    )
    uncommitted: Flag = Field(False, description="Same as `uncommitted` in `repo`.")
    setup: Annotated[Command | None, ReferenceNote(_COMMAND.partition(",")[0])] = Field(
        None,
        description="A command that prepares a worktree. It runs in each one, with the candidate's"
        " code. Ignored files that it creates are kept for the tests and the benchmark.",
    )
    sandbox: Flag | None = Field(
        None,
        description="Whether tests and benchmarks write only to their worktree, home and temporary"
        " folders (Linux, with bubblewrap). By default they do where that works, and see"
        " everything; `true` also hides what they have no need to see, and fails where there is no"
        " bubblewrap; `false` is for tests that write elsewhere.",
    )
    test: Annotated[
        Unchecked[Annotated[TestForm, Shorthand("command")]], ReferenceNote(_COMMAND)
    ] = Field(description="The command that tests a candidate.")
    compare: Annotated[
        Unchecked[
            Literal["stdout"] | FileWithin | list[Literal["stdout"] | FileWithin | ComparedFileForm]
        ],
        ReferenceNote("a list of 'stdout' and files"),
    ] = Field(
        [],
        description="Output of the test command that must match the baseline's, besides pass and"
        " fail: `stdout`, and files that it writes, as paths or as `{file: path}`.",
    )
    bench: Annotated[
        Unchecked[Annotated[BenchForm, Shorthand("command")]], ReferenceNote(_COMMAND)
    ] = Field(description="The command that measures speed.")
    candidates: Annotated[
        Unchecked[str | ModelCandidatesForm | CandidateNames],
        ReferenceNote("a path, a glob, a git ref, a mapping with model, or a list of them"),
    ] = Field([], description="The candidates, see below.")
    models: Annotated[
        Unchecked[dict[str, ModelForm] | str | None],
        PlainWords("a mapping of names to models, or the path of a file that contains one"),
    ] = Field(None, description="Models that write candidates, as in [suites](suite.md#models).")
    generate: Annotated[
        Unchecked[Annotated[GenerateForm, Shorthand("command")] | None],
        ReferenceNote(_COMMAND),
    ] = Field(None, description="Called once to propose candidates, while the given ones race.")
    repair: Annotated[
        Unchecked[Annotated[HookForm, Shorthand("command")] | None], ReferenceNote(_COMMAND)
    ] = Field(None, description="Gets a failed candidate and proposes new ones.")
    refine: Annotated[
        Unchecked[Annotated[HookForm, Shorthand("command")] | None], ReferenceNote(_COMMAND)
    ] = Field(None, description="Gets a passing candidate with its timings and proposes new ones.")
    profile: Annotated[
        Unchecked[
            Annotated[ProfileForm, Shorthand("kind")] | dict[Literal["line"], FunctionNames] | None
        ],
        ReferenceNote("'line', 'none', or a mapping"),
    ] = Field(None, description="Whether to time the winner's lines. Default: no.")
    functions: FunctionNames = Field([], description="Same as `functions` in `profile`.")
    accept: Annotated[Unchecked[AcceptForm | None], ReferenceNote("a mapping")] = Field(
        None, description="What a candidate needs to win."
    )
    limits: Annotated[Unchecked[RaceLimitsForm | None], ReferenceNote("a mapping")] = Field(
        None, description="Limits of the race."
    )
    protect: Annotated[
        list[Annotated[str, Field(min_length=1)]] | bool,
        PlainWords("a list of globs, or false for nothing"),
    ] = Field(
        True,
        description="Files that judge candidates, so candidates must not change them. A list"
        " replaces the default, see below.",
    )
    env: Annotated[Environment, ReferenceNote("a mapping of names to texts")] = Field(
        {}, description="Environment variables to set for tests and benchmarks."
    )
    pass_env: Annotated[list[VariableName], ReferenceNote("a list of variable names")] = Field(
        [],
        description="Environment variables to pass on from paraval to tests, benchmarks and hooks.",
    )


def race_schema() -> dict[str, Any]:
    """The JSON Schema of race files, for editors."""
    schema = RaceForm.model_json_schema(schema_generator=EditorSchema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "paraval race",
    }
