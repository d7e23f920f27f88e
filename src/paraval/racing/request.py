"""What a user writes under `race:`, and the race that is asked for with it.

The records are the schema of race files, their reference page, and what the race reads: flags and
Python arguments patch the same keys. `race_file` reads them and resolves paths, models and refs.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from paraval.dataclass import dataclass
from paraval.documents.forms import (
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
from paraval.records import AccountLimits, Model

TOTAL = "__total__"
"""The case name of the whole benchmark."""
STDOUT = "stdout"
JUNIT = "{junit}"
"""In a test command: the file for its JUnit report."""
PYTHON = "{python}"
"""In a command: the Python that paraval runs with."""
BASELINE_TIMEOUT_S = 600.0
"""For the baseline, if no timeout was given."""
NO_TESTS = ("true",)
"""The test command of a comparison of two refs without tests."""


def usual_timeout(took_s: float) -> float:
    """For candidates, if none was given: the baseline took so long."""
    return max(30.0, 10 * took_s)


SETTINGS_FILES = (
    "conftest.py",
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "setup.cfg",
    "tox.ini",
    ".coveragerc",
)
"""Configuration files of pytest and coverage, in any folder."""
STARTUP_MODULES = ("sitecustomize", "usercustomize")
"""What Python imports automatically: a module in any form, or a package."""
PROTECTED = (
    "tests/**",
    "test/**",
    "**/tests/**",
    "**/test/**",
    "**/test_*.py",
    "**/*_test.py",
    *(f"**/{name}" for name in SETTINGS_FILES),
    *(f"**/{name}{form}" for name in STARTUP_MODULES for form in (".*", "/**")),
    "**/*.pth",
    "**/*.dist-info/**",
    "**/*.egg-info/**",
    ".git*/**",
    "**/.gitattributes",
)
"""Files that judge candidates, so candidates must not change them. `**/x` also matches `x` at the
top. The repository's files that the commands of `test` and `bench` name are protected too."""


# ---- values

_PLAIN = re.compile(
    r"(?!(?:\.|:|cd|command|eval|exec|exit|export|set|source|trap|ulimit|umask|wait)( |$))"
    r"[\w@%+:,./-]+(?: +(?:-[\w@%+:,./=-]*|[\w@%+:,./-]+))*",
    re.ASCII,
)
"""A command that means the same without a shell."""


def _command(value: Any) -> Any:
    """A list as it is, one text by a shell, unless that would only split it into words."""
    if isinstance(value, str):
        text = value.replace(PYTHON, shlex.quote(sys.executable))
        is_plain = _PLAIN.fullmatch(text.replace(JUNIT, "x").strip(" \n"))
        value = text.split() if is_plain else ["sh", "-c", text]
    if not isinstance(value, list | tuple):
        return value
    parts = [str(one) if isinstance(one, int | float) else one for one in value]
    wrong = [one for one in parts if not isinstance(one, str) or "\0" in one]
    if wrong or not parts or not parts[0].strip() or (parts[0] == "sh" and not parts[-1].strip()):
        raise ValueError("names no program")
    return tuple(sys.executable if one == PYTHON else one for one in parts)


def _file_within(value: Any) -> Any:
    """The path of a file in the worktree; `{file: x}` is the same as `x`."""
    if isinstance(value, Mapping) and set(value) == {"file"}:
        value = value["file"]
    if isinstance(value, str):
        if not value or "\0" in value or value.startswith("/") or ".." in value.split("/"):
            raise ValueError("leads out")
        value = os.path.normpath(value)
    return value


def _metric(value: Any) -> Any:
    # A misspelled word must not be taken for a file.
    if isinstance(value, str) and value not in set(BenchMetric) and not set(value) & set("./"):
        raise ValueError("neither")
    return _file_within(value)


def _compared(value: Any) -> Any:
    value = _several(value)
    if not isinstance(value, tuple):
        raise PydanticCustomError("words", "a list of 'stdout' and files")
    return value


def _several(value: Any) -> Any:
    """One text, or a list of them."""
    return (value,) if isinstance(value, str) else tuple(value) if type(value) is list else value


def _of(key: str) -> BeforeValidator:
    """A part that may be written as the value of its main key."""
    return BeforeValidator(
        lambda value: value if isinstance(value, Mapping | Form) else {key: value}
    )


Command = Annotated[
    tuple[str, ...],
    BeforeValidator(_command, json_schema_input_type=list[str | int | float] | str),
    PlainWords("a command: a list of texts, or one text that `sh -c` runs"),
]
FileWithin = Annotated[
    str,
    BeforeValidator(_file_within),
    PlainWords("the path of a file, relative to where the command runs and within it"),
]
Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_several, json_schema_input_type=list[str] | str),
    PlainWords("a text or a list of texts"),
]
Ref = Annotated[str, Field(min_length=1), PlainWords("the name of a commit")]


class Record(Form):
    """What a user writes, checked, and what the race reads."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, value: Any) -> Any:
        """A key without a value is one that is not there."""
        if not isinstance(value, Mapping):
            return value
        known = cls.model_fields
        return {key: one for key, one in value.items() if one is not None or key not in known}


class BenchMetric(StrEnum):
    """What is compared between benchmark processes; less is better. Else it is a file."""

    WALL = "wall"
    CPU = "cpu"
    MEMORY = "memory"


class RepoSpec(Record):
    """The repository that candidates change. Nothing is written to it, except with `--apply`."""

    git: Annotated[str, Field(min_length=1), PlainWords("the path of a git repository")] = Field(
        ".",
        description="The repository, or a folder in it where commands then run. Relative to the"
        " race file's folder.",
    )
    ref: Ref = Field("HEAD", description="The branch, tag or commit to start from.")
    head: Ref | None = Field(
        None,
        description="Compare this branch, tag or commit with `ref`, instead of racing candidates."
        " `test` is optional then, and the files that judge candidates may differ.",
    )
    uncommitted: Flag = Field(
        False,
        description="Start from the working tree with its uncommitted changes, without ignored"
        " files.",
    )


class TestSpec(Record):
    """The command that tests a candidate: exit code 0 means that it passed."""

    __test__ = False  # pytest takes it for a test otherwise

    command: Command = Field(
        description="Runs in the candidate's own worktree. pytest is asked for the results of"
        " single tests by `PYTEST_ADDOPTS`, through uv, poetry or tox too; another program writes a"
        " JUnit XML file if its command has `{junit}`, the file's path."
    )
    timeout: Seconds | None = Field(
        None,
        description="Seconds after which it is stopped; by default ten times as long as the"
        " baseline took, at least 30.",
    )
    canary: Flag = Field(
        True,
        description="Before candidates are tested, break the Python files that they change and run"
        " the tests once. If they still pass, they do not test this code, and the race is refused.",
    )

    @property
    def is_none(self) -> bool:
        """Whether a comparison of two refs has no tests."""
        return self.command == NO_TESTS


class BenchSpec(Record):
    """The command that measures speed: one new process per measurement, one at a time."""

    command: Command = Field(description="Runs in the candidate's own worktree.")
    metric: Annotated[
        str,
        BeforeValidator(_metric, json_schema_input_type=str | dict[Literal["file"], str]),
        PlainWords("'wall', 'cpu', 'memory', or the JSON file that the command writes"),
    ] = Field(
        "wall",
        description="What to compare: `wall` time, `cpu` time (hardly depends on what else runs),"
        " `memory` (the largest resident size), or the seconds in a JSON file that the command"
        ' writes, `{"case": seconds, "__total__": seconds}` or the JSON of pytest-benchmark,'
        " pyperf, hyperfine or asv (medians).",
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
        " continue and are marked noisy. No wait for `cpu` and `memory`.",
    )
    cpus: Annotated[int, Field(ge=0, le=4096), PlainWords("a whole number, 0 or more")] | None = (
        Field(
            None,
            description="How many CPUs to pin it to, 0 for no pinning. Default: 1 if the baseline"
            " keeps only one busy.",
        )
    )

    @property
    def file(self) -> str | None:
        """The JSON file with the seconds; None: they are measured from outside."""
        return None if self.metric in set(BenchMetric) else self.metric


class ProposeSpec(Record):
    """Who proposes candidates, once a round: a program, a Python function or models."""

    command: Command | None = Field(
        None,
        description="A program that gets the standings as JSON and prints candidates as JSON lines."
        " Runs in the race file's folder.",
    )
    models: Texts = Field(
        (),
        description="Models in `models`, each asked `n` times a round; replies that cannot be"
        " applied are candidates that failed, with the reason. Answers are cached.",
    )
    files: Texts = Field(
        (),
        description="For models: the files that they are shown and may edit, relative to `repo`.",
    )
    n: Annotated[int, Field(ge=1, le=200), PlainWords("a whole number from 1 to 200")] = Field(
        4, description="For models: how many candidates from each, in each round."
    )
    prompt: (
        Annotated[str, Field(min_length=1), PlainWords("a text, or the path of a file")] | None
    ) = Field(
        None,
        description="For models: what to ask for; files are relative to the race file. Fields:"
        " `{files}`, the files with their paths (added at the end if it is not used), `{n}`, and"
        " `{attempt}`, the number of the candidate. How to reply is added, and from the second"
        " round on the standings. Default: make it faster.",
    )
    temperature: (
        Annotated[float, Field(ge=0, le=2, allow_inf_nan=False), PlainWords("a number from 0 to 2")]
        | None
    ) = Field(None, description="For models. Default: the provider's.")
    max_tokens: Count | None = Field(
        None,
        description="For models: longest reply; a whole file must fit. Default: the provider's.",
    )
    rounds: Annotated[int, Field(ge=1, le=50), PlainWords("a whole number from 1 to 50")] = Field(
        3,
        description="How often it is called at most: first with the baseline's speed and line"
        " profile, then after each round with every failure and every speed so far.",
    )
    timeout: Seconds = Field(600.0, description="Seconds after which a call is stopped.")

    @property
    def is_function(self) -> bool:
        return self.command is None and not self.models


class AcceptSpec(Record):
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
    caches: Flag = Field(
        False,
        description="Whether a candidate may win that keeps results between calls, in a module, a"
        " class, an instance or a closure: a benchmark that repeats its inputs then measures the"
        " cache.",
    )
    unseen_results: Flag = Field(
        False,
        description="Whether a candidate may win although the benchmark prints nothing that is the"
        " same in each process, so that nothing shows that a candidate does the same work.",
    )


class RaceLimits(Record):
    """Limits of a race."""

    parallel: AtOnce = Field(
        "auto",
        description="How many candidates to test in parallel; on a cluster, on each node. `auto`:"
        " as many as the machine can handle. Measurements always run one at a time.",
    )
    candidates: Count = Field(200, description="How many candidates in all.")
    seconds: Seconds | None = Field(None, description="Nothing new starts after this time.")
    usd: Positive | None = Field(None, description="What `propose` may spend, in USD.")

    @property
    def at_once(self) -> int | None:
        return None if self.parallel == "auto" else int(self.parallel)


def _protect(value: Any) -> Any:
    return PROTECTED if value is True else () if value is False else _several(value)


_COMMAND = "a command, or a mapping with command"


class RaceKeys(Record):
    """A race between candidate changes to a repository: the fastest one that passes wins."""

    repo: Annotated[
        RepoSpec,
        _of("git"),
        Shorthand("git"),
        ReferenceNote("the path of a git repository, or a mapping"),
    ] = Field(
        default_factory=lambda: RepoSpec.model_validate({}),
        description="The repository that candidates change. Default: the race file's folder.",
    )
    setup: Command | None = Field(
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
    test: Annotated[TestSpec, _of("command"), Shorthand("command"), ReferenceNote(_COMMAND)] = (
        Field(description="The command that tests a candidate.")
    )
    compare: Annotated[
        tuple[FileWithin, ...],
        BeforeValidator(_compared, json_schema_input_type=list[str] | str),
        ReferenceNote("a list of 'stdout' and files"),
    ] = Field(
        (),
        description="Output of the test command that must match the baseline's, besides pass and"
        " fail: `stdout`, and files that it writes.",
    )
    bench: Annotated[BenchSpec, _of("command"), Shorthand("command"), ReferenceNote(_COMMAND)] = (
        Field(description="The command that measures speed.")
    )
    candidates: Annotated[Texts, ReferenceNote("a path, a glob, a git ref, or a list of them")] = (
        Field((), description="The candidates, see below.")
    )
    propose: Annotated[
        Annotated[ProposeSpec, _of("command"), Shorthand("command")] | None,
        ReferenceNote("a command, or a mapping with command or models"),
    ] = Field(None, description="Who proposes more candidates, once a round.")
    profile: Annotated[Literal["line", "none"], PlainWords("'line' or 'none'")] | None = Field(
        None,
        description="`line` times the lines of the baseline and of the winner, if line_profiler is"
        " installed. Default: those of the baseline, if there is `propose`.",
    )
    functions: Annotated[
        tuple[FunctionName, ...],
        BeforeValidator(_several, json_schema_input_type=list[str]),
        ReferenceNote("a list of module:function"),
    ] = Field(
        (),
        description="What to profile: `module:function` or `module:Class.method`. Default: every"
        " function in the files that the winner changed, or of the repository.",
    )
    accept: Annotated[AcceptSpec, ReferenceNote("a mapping")] = Field(
        default_factory=lambda: AcceptSpec.model_validate({}),
        description="What a candidate needs to win.",
    )
    limits: Annotated[RaceLimits, ReferenceNote("a mapping")] = Field(
        default_factory=lambda: RaceLimits.model_validate({}), description="Limits of the race."
    )
    protect: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        BeforeValidator(_protect, json_schema_input_type=list[str] | bool),
        PlainWords("a list of globs, or false for nothing"),
    ] = Field(
        PROTECTED,
        description="Files that judge candidates, so candidates must not change them. A list"
        " replaces the default, see below.",
    )
    env: Annotated[Environment, ReferenceNote("a mapping of names to texts")] = Field(
        {}, description="Environment variables to set for tests and benchmarks."
    )
    pass_env: Annotated[
        tuple[VariableName, ...],
        BeforeValidator(_several, json_schema_input_type=list[str]),
        ReferenceNote("a list of variable names"),
    ] = Field(
        (),
        description="Environment variables to pass on from paraval to tests, benchmarks and"
        " `propose`.",
    )


class RaceFile(Record):
    """A race file."""

    elsewhere = MappingProxyType(dict.fromkeys(RaceKeys.model_fields, "it stands below race"))

    name: Name | None = Field(
        None, description="Name in reports and in the store. Default: the file's name."
    )
    models: Annotated[
        Any, ReferenceNote("a mapping of names to models, or the path of a file that contains one")
    ] = Field(None, description="Models for `propose`, as in [suites](suite.md#models).")
    race: Annotated[RaceKeys, ReferenceNote("a mapping")] = Field(description="The race.")


# ---- the race that is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRequest:
    """A race as requested. Paths are absolute."""

    name: str
    source: str | None
    """The race file; None for a race from flags or Python."""
    folder: str
    """The race file's folder, or the current one: where `propose` runs."""
    repo: str
    """The top of the working tree, or a folder in it, where commands run."""
    keys: RaceKeys
    """With paths of candidates made absolute."""
    is_fenced: bool = False
    """Without `sandbox: true`: tests and benchmarks see everything, but write only to their
    worktree and to their own home and temporary folders, so that no later process finds what they
    left."""
    models: Mapping[str, Model] = field(default_factory=dict)
    """The registry, by name."""
    account_limits: Mapping[str, AccountLimits] = field(default_factory=dict)
    """Of the models' accounts, by need."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What models are shown: path in the repository -> text."""
    prompt: str = ""
    """What models are asked, as a template with {attempt}."""

    @property
    def test(self) -> TestSpec:
        return self.keys.test

    @property
    def bench(self) -> BenchSpec:
        return self.keys.bench

    @property
    def accept(self) -> AcceptSpec:
        return self.keys.accept

    @property
    def limits(self) -> RaceLimits:
        return self.keys.limits

    @property
    def propose(self) -> ProposeSpec | None:
        return self.keys.propose

    @property
    def head(self) -> str | None:
        """The ref to compare with `repo.ref`: the only candidate, as it is. None for a race."""
        return self.keys.repo.head

    @property
    def is_sandboxed(self) -> bool:
        return self.keys.sandbox is True

    def proposing_models(self) -> tuple[Model, ...]:
        """The models that write candidates."""
        asked = () if self.propose is None else self.propose.models
        return tuple(self.models[name] for name in dict.fromkeys(asked))
