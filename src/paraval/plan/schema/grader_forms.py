"""Graders as suites write them: every kind, with its keys."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from paraval.documents.forms import (
    Arguments,
    Environment,
    Flag,
    Form,
    FunctionName,
    Name,
    NotNegative,
    Number,
    PlainWords,
    Positive,
    Prompt,
    ReferenceNote,
    Seconds,
    Share,
    Shorthand,
    Text,
    Texts,
    VariableName,
)


class GraderForm(Form):
    """What all graders have."""

    weight: Positive | None = Field(
        None,
        description="With weights, the weighted mean of the scores must reach `pass_at`; without,"
        " every grader must pass.",
    )
    name: Name | None = Field(None, description="Its name in reports; by default its kind.")


class TextGraderForm(GraderForm):
    """What graders of texts have."""

    ignore_case: Flag = Field(False, description="Upper and lower case are the same.")
    strict: Flag = Field(False, description="Spaces at the ends of the texts matter too.")


class EqualsForm(TextGraderForm):
    """The answer is exactly this text."""

    value: Text | None = Field(None, description="By default the case's `expect`.")


class ContainsForm(TextGraderForm):
    """The answer contains this text, or all of these."""

    value: (
        Annotated[
            str | Annotated[list[str], Field(min_length=1)],
            PlainWords("text, or a list of strings"),
        ]
        | None
    ) = Field(None, description="By default the case's `expect`.")


class RegexForm(GraderForm):
    """The pattern is found in the answer."""

    pattern: Text | None = Field(
        None, description="A regular expression of Python; by default the case's `expect`."
    )
    ignore_case: Flag = Field(False, description="Upper and lower case are the same.")
    multiline: Flag = Field(False, description="`^` and `$` match at every line.")


class JsonForm(GraderForm):
    """The answer is valid JSON; with a schema, fits it; with a path or value, equals it."""

    model_config = ConfigDict(serialize_by_alias=True)

    schema_: (
        Annotated[dict[str, Any] | str, PlainWords("a JSON Schema, or the path of one")] | None
    ) = Field(None, alias="schema", description="A JSON Schema, or a file that holds one.")
    path: (
        Annotated[
            str,
            Field(pattern=r"^([^.\[\]]+|\[\d+\])(\.[^.\[\]]+|\[\d+\])*$"),
            PlainWords("a path such as 'a.b[0].c'"),
        ]
        | None
    ) = Field(None, description="The part of the answer to compare: `a.b[0].c`.")
    value: Annotated[Any, PlainWords("anything")] = Field(
        None, description="What to compare with; with a `path`, by default the case's `expect`."
    )


class NumberForm(GraderForm):
    """The answer holds exactly one number, and it is this one, or near enough. An answer with none,
    or with several, is wrong; for those, use `regex` or a Python grader."""

    value: Number | None = Field(None, description="By default the case's `expect`.")
    tolerance: NotNegative = Field(0.0, description="How far off the answer may be.")
    relative: NotNegative | None = Field(
        None, description="How far off it may be, as a part of the value: 0.01 is one percent."
    )


class ExitCodeForm(GraderForm):
    """The command ended with this exit code. Without this grader, any code but 0 is a crash."""

    value: Annotated[
        int | Annotated[list[int], Field(min_length=1)],
        PlainWords("a whole number, or a list of whole numbers"),
    ] = Field(0, description="The code, or the codes, that pass.")


class FunctionGraderForm(GraderForm):
    """A Python function judges: `function(output, case)` or `function(output, case, variant)`."""

    function: FunctionName = Field(
        description="`module:function`; modules are looked for in the suite's folder first."
    )
    pass_at: Share = Field(1.0, description="The score that passes, where it returns a score.")
    timeout: Seconds = Field(600.0, description="After this it is given up: a `grader_error`.")


FailingCode = Annotated[int, Field(ge=1, le=255)]


class CommandGraderForm(GraderForm):
    """A program judges: it gets the trial as JSON on stdin, and exit code 0 passes. The last line
    of its output is the reason, a score, or a JSON object with both. It runs in the attempt's
    workspace, if there is one, with a home and a temporary folder of its own; else in the suite's
    folder."""

    command: Annotated[Arguments, PlainWords("a list of strings and numbers")] = Field(
        description="The program and its arguments. Each is a template, see above."
    )
    timeout: Seconds = Field(60.0, description="After this it is ended; see `on_timeout`.")
    on_timeout: Annotated[Literal["error", "fail"], PlainWords("'error' or 'fail'")] | None = Field(
        None,
        description="What a program means that takes too long: `error`, the default, is a"
        " `grader_error`; `fail` is a wrong answer, for tests that hang by what they test.",
    )
    env: Annotated[Environment, ReferenceNote("a mapping of names to values")] = Field(
        {}, description="Environment variables to set. Values are templates."
    )
    pass_env: Annotated[list[VariableName], ReferenceNote("a list of variable names")] = Field(
        [], description="Variables to pass on from the environment that paraval itself has."
    )
    failing: (
        Annotated[
            Literal["any"] | Annotated[list[FailingCode], Field(min_length=1)],
            PlainWords("'any', or a list of exit codes from 1 to 255"),
        ]
        | None
    ) = Field(
        None,
        description="Which exit codes say that the answer is wrong: `any` but 0, or these; any"
        " other is a `grader_error`. By default 1 alone; in a workspace any but 126 and 127, by"
        " which shells say that a program cannot be started. An end by a signal is always a"
        " `grader_error`.",
    )


class JudgeForm(GraderForm):
    """A model of the registry judges by a rubric. It is shown the input, the answer and, if it is
    there, the case's `expect`, and gives a score from 0 to 1. A judge that says anything else is a
    `grader_error`, never a low score."""

    model: Text = Field(description="The judge's name in the registry.")
    rubric: Prompt = Field(description="What a good answer is; or a file that says it.")
    pass_at: Share = Field(0.7, description="The score that passes.")
    votes: Annotated[int, Field(ge=1, le=9), PlainWords("a whole number from 1 to 9")] = Field(
        1, description="How often it is asked; the median of the scores counts."
    )
    reference: Flag = Field(True, description="Show the case's `expect` as a reference answer.")
    timeout: Seconds | None = Field(
        None, description="The longest that a call may take; by default the model's own."
    )


Line = Annotated[int, Field(ge=1)]
Lines = Annotated[
    dict[Annotated[str, Field(min_length=1)], Annotated[list[Line], Field(min_length=1)]],
    PlainWords("a mapping of files to lists of line numbers"),
]


class MentionsForm(GraderForm):
    """The answer mentions these files, symbols, lines and pieces of text. What is empty or left out
    comes from the case's `expect`: a mapping of the same keys, or one with `ground_truth`."""

    files: Texts = Field([], description="Paths; one that ends in `/` is any file below it.")
    symbols: Texts = Field([], description="Names, as whole words.")
    lines: Lines = Field({}, description="Line numbers by file: `{src/a.py: [8]}`.")
    content: Texts = Field([], description="Pieces of text; spaces and line breaks are the same.")
    score: Annotated[
        Literal["recall", "f1", "precision"], PlainWords("'recall', 'f1' or 'precision'")
    ] = Field(
        "recall",
        description="`recall`: the share of all this that is mentioned; `precision`: the share of"
        " the files in the answer that were asked for; `f1`: their harmonic mean.",
    )
    pass_at: Share = Field(1.0, description="The score that passes.")


Globs = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(min_length=1),
    PlainWords("a list of globs such as 'src/**'"),
]
Most = Annotated[int, Field(ge=0), PlainWords("a whole number, 0 or more")]


class DiffForm(GraderForm):
    """What the attempt changed in its workspace is within these bounds. It fails as well where the
    attempt tampered with `.git`."""

    model_config = ConfigDict(serialize_by_alias=True)

    max_files: Most | None = Field(None, description="The most files that may have changed.")
    max_lines: Most | None = Field(None, description="The most lines, added and deleted together.")
    only: Globs | None = Field(None, description="Every changed path fits one of these.")
    not_: Globs | None = Field(None, alias="not", description="No changed path fits any of these.")
    empty: Flag | None = Field(
        None, description="`true`: nothing may have changed; `false`: something must have."
    )
    binary: Flag | None = Field(None, description="`false`: no binary file may have changed.")


DIFF_CHECKS = ("max_files", "max_lines", "only", "not", "empty", "binary")


class OneGraderForm(Form):
    """A grader: its kind, with a value or options."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "maxProperties": 1},
    )

    equals: Annotated[EqualsForm, Shorthand("value")] | None = None
    contains: Annotated[ContainsForm, Shorthand("value")] | None = None
    regex: Annotated[RegexForm, Shorthand("pattern")] | None = None
    json_: JsonForm | None = Field(None, alias="json")
    number: Annotated[NumberForm, Shorthand("value")] | None = None
    exit_code: Annotated[ExitCodeForm, Shorthand("value")] | None = None
    python: Annotated[FunctionGraderForm, Shorthand("function")] | None = None
    command: Annotated[CommandGraderForm, Shorthand("command")] | None = None
    judge: JudgeForm | None = None
    mentions: MentionsForm | None = None
    diff: DiffForm | None = None


GRADER_FORMS: dict[str, type[GraderForm]] = {
    "equals": EqualsForm,
    "contains": ContainsForm,
    "regex": RegexForm,
    "json": JsonForm,
    "number": NumberForm,
    "exit_code": ExitCodeForm,
    "python": FunctionGraderForm,
    "command": CommandGraderForm,
    "judge": JudgeForm,
    "mentions": MentionsForm,
    "diff": DiffForm,
}
MAIN_KEYS = {
    "equals": "value",
    "contains": "value",
    "regex": "pattern",
    "number": "value",
    "exit_code": "value",
    "python": "function",
    "command": "command",
}
"""The key that a grader's value alone stands for."""
BareKind = Literal["equals", "contains", "regex", "json", "number", "exit_code", "mentions"]
