"""The keys of every kind of grader."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from paraval.documents.forms import (
    Arguments,
    Duration,
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

BareKind = Literal[
    "equals",
    "contains",
    "starts_with",
    "similarity",
    "regex",
    "json",
    "number",
    "exit_code",
    "mentions",
    "tool_call",
]
"""Graders that may be written without options."""


class GraderForm(Form):
    """Keys that all graders share."""

    weight: Positive | None = Field(
        None,
        description="With weights, the weighted mean of the scores must reach `pass_at`. Without"
        " weights, every grader must pass.",
    )
    name: Name | None = Field(
        None,
        description="Name in reports; by default the kind, the judge's preset, or the name of the"
        " Python function.",
    )


class TextGraderForm(GraderForm):
    """Keys that text graders share."""

    ignore_case: Flag = Field(False, description="Ignore case differences.")
    strict: Flag = Field(False, description="Compare leading and trailing whitespace too.")


class EqualsForm(TextGraderForm):
    """The answer is exactly this text."""

    value: Text | None = Field(None, description="A template; by default the case's `expect`.")


class ContainsForm(TextGraderForm):
    """The answer contains this text, or all texts of a list."""

    value: (
        Annotated[
            str | Annotated[list[str], Field(min_length=1)],
            PlainWords("text, or a list of strings"),
        ]
        | None
    ) = Field(None, description="A template; by default the case's `expect`.")


class StartsWithForm(TextGraderForm):
    """The answer starts with this text."""

    value: Text | None = Field(None, description="A template; by default the case's `expect`.")


class SimilarityForm(TextGraderForm):
    """The answer resembles this text: the score is the ratio of matching characters (Python's
    `difflib`; of words, if a text is longer than 2,000 characters), or with `model` the cosine of
    the two texts' embeddings."""

    value: Text | None = Field(None, description="A template; by default the case's `expect`.")
    pass_at: Share = Field(0.8, description="The lowest passing score.")
    model: Text | None = Field(
        None,
        description="An embedding model in the registry, called as OpenAI-compatible"
        " `/embeddings`. Its cost counts as judging.",
    )


class RegexForm(GraderForm):
    """The pattern matches somewhere in the answer."""

    pattern: Text | None = Field(
        None, description="A Python regular expression; by default the case's `expect`."
    )
    ignore_case: Flag = Field(False, description="Ignore case differences.")
    multiline: Flag = Field(False, description="`^` and `$` match at every line.")


class JsonForm(GraderForm):
    """The answer is valid JSON, or has exactly one fenced block of it. With `schema`, it matches
    the schema; with `path` or `value`, it equals the expected value."""

    model_config = ConfigDict(serialize_by_alias=True)

    schema_: (
        Annotated[dict[str, Any] | str, PlainWords("a JSON Schema, or the path of one")] | None
    ) = Field(None, alias="schema", description="A JSON Schema, or a file that contains one.")
    path: (
        Annotated[
            str,
            Field(pattern=r"^([^.\[\]]+|\[\d+\])(\.[^.\[\]]+|\[\d+\])*$"),
            PlainWords("a path such as 'a.b[0].c'"),
        ]
        | None
    ) = Field(None, description="The part of the answer to compare: `a.b[0].c`.")
    value: Annotated[Any, PlainWords("anything")] = Field(
        None, description="The expected value; with a `path`, by default the case's `expect`."
    )
    # Without a default that would be part of every trial's key; so is `take` of a number.
    strict: Flag | None = Field(
        None, description="`true`: the whole answer must be JSON, without a fence or other text."
    )


class NumberForm(GraderForm):
    """The answer contains exactly one number, and it is close enough to the expected one. An answer
    with no number fails; for several, see `take`."""

    value: Number | None = Field(
        None,
        description="By default the case's `expect`: a number, or with `take` also a text that"
        " contains one, such as GSM8K's `... #### 42`.",
    )
    take: (
        Annotated[Literal["only", "first", "last"], PlainWords("'only', 'first' or 'last'")] | None
    ) = Field(
        None,
        description="Which number counts if there are several: `first` or `last`. By default"
        " `only`: several fail.",
    )
    tolerance: NotNegative = Field(0.0, description="Allowed absolute error.")
    relative: NotNegative | None = Field(
        None, description="Allowed relative error: 0.01 is one percent of the value."
    )


class LatencyForm(GraderForm):
    """The target answered in time. For a cached answer, the time of its first call counts. If the
    time is unknown, the grader is skipped."""

    max: Duration = Field(description="The longest passing time: `2s`, `500ms`, or seconds.")


class CostForm(GraderForm):
    """The answer was cheap enough, without judges. For a cached answer, the cost of its first call
    counts. If the cost is unknown, the grader is skipped."""

    max_usd: NotNegative = Field(description="The highest passing cost in US dollars.")


class ExitCodeForm(GraderForm):
    """The command ended with this exit code. Without this grader, any code except 0 is a crash."""

    value: Annotated[
        int | Annotated[list[int], Field(min_length=1)],
        PlainWords("a whole number, or a list of whole numbers"),
    ] = Field(0, description="The exit code or codes that pass.")


class FunctionGraderForm(GraderForm):
    """A Python function grades: `function(output, case)` or `function(output, case, variant)`."""

    function: FunctionName = Field(
        description="`module:function`; the suite's folder is searched first."
    )
    pass_at: Share = Field(1.0, description="The lowest passing score, if it returns a score.")
    timeout: Seconds = Field(600.0, description="After this, the trial is a `grader_error`.")


FailingCode = Annotated[int, Field(ge=1, le=255)]


class CommandGraderForm(GraderForm):
    """A program grades: it gets the trial as JSON on stdin, and exit code 0 passes. The last line
    of its output is the reason, a score, or a JSON object with both. It runs in the attempt's
    workspace, if there is one, with its own home and temporary folder; otherwise in the suite's
    folder."""

    command: Annotated[Arguments, PlainWords("a list of strings and numbers")] = Field(
        description="The program and its arguments. Each is a template."
    )
    timeout: Seconds = Field(
        60.0, description="After this, the program is stopped; see `on_timeout`."
    )
    on_timeout: Annotated[Literal["error", "fail"], PlainWords("'error' or 'fail'")] | None = Field(
        None,
        description="What a timeout means: `error`, the default, is a `grader_error`; `fail` fails"
        " the trial, for tests that hang because of the code they test.",
    )
    env: Annotated[Environment, ReferenceNote("a mapping of names to values")] = Field(
        {}, description="Environment variables to set. Values are templates."
    )
    pass_env: Annotated[list[VariableName], ReferenceNote("a list of variable names")] = Field(
        [], description="Variables to pass on from paraval's own environment."
    )
    failing: (
        Annotated[
            Literal["any"] | Annotated[list[FailingCode], Field(min_length=1)],
            PlainWords("'any', or a list of exit codes from 1 to 255"),
        ]
        | None
    ) = Field(
        None,
        description="Exit codes that fail the answer: `any` except 0, or a list; all other codes"
        " are a `grader_error`. By default only 1; in a workspace, all except 126 and 127, which"
        " shells use for a program that cannot be started. Ending by a signal is always a"
        " `grader_error`.",
    )


class JudgeForm(GraderForm):
    """A model from the registry grades by a rubric, a preset or both. It sees the input, the answer
    and, if there is one, the case's `expect`, and returns a score from 0 to 1. Any other reply is a
    `grader_error`, never a low score."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["rubric"]}, {"required": ["preset"]}]}
    )
    example: ClassVar[str] = "{model: NAME, rubric: The answer is polite.}"

    model: Text = Field(description="The judge's name in the registry.")
    rubric: Prompt | None = Field(
        None,
        description="What makes a good answer: a template, or a file that contains one. With a"
        " preset, it adds to it.",
    )
    preset: (
        Annotated[
            Literal["factuality", "faithfulness", "relevance", "instruction_following"],
            PlainWords("'factuality', 'faithfulness', 'relevance' or 'instruction_following'"),
        ]
        | None
    ) = Field(
        None,
        description="A ready-made rubric: `factuality` compares with the case's `expect`,"
        " `faithfulness` checks claims against a context, `relevance` asks whether the question is"
        " addressed, `instruction_following` whether the input's instructions are followed.",
    )
    context: (
        Annotated[
            str,
            Field(pattern=r"^\{?(metadata|input)(\.[^.{}]+)+\}?$"),
            PlainWords("a field of the case such as 'metadata.context'"),
        ]
        | None
    ) = Field(
        None,
        description="The field that holds the context to show the judge. For `faithfulness` and"
        " `relevance`, by default `metadata.context` or `input.context`.",
    )
    pass_at: Share = Field(0.7, description="The lowest passing score.")
    votes: Annotated[int, Field(ge=1, le=9), PlainWords("a whole number from 1 to 9")] = Field(
        1, description="How many times to ask; the median score counts."
    )
    reference: Flag = Field(True, description="Show the case's `expect` as a reference answer.")
    timeout: Seconds | None = Field(
        None, description="Time limit for one call; by default the model's."
    )


class PairwiseForm(Form):
    """After the run, a model from the registry decides which of two variants' answers is better, in
    both orders. It sees the input, both answers and, if there is one, the case's `expect`."""

    model: Text = Field(description="The judge's name in the registry.")
    rubric: Prompt | None = Field(
        None,
        description="What makes an answer better: a template without axes, or a file that contains"
        " one. By default: correct, complete, clear and to the point.",
    )
    against: Text | None = Field(
        None,
        description="The variant to compare all others with: `model=small`. By default, variants"
        " that differ in one axis are compared with each other; all, if there are up to four.",
    )
    reference: Flag = Field(True, description="Show the case's `expect` as a reference answer.")


Line = Annotated[int, Field(ge=1)]
Lines = Annotated[
    dict[Annotated[str, Field(min_length=1)], Annotated[list[Line], Field(min_length=1)]],
    PlainWords("a mapping of files to lists of line numbers"),
]


class MentionsForm(GraderForm):
    """The answer mentions these files, symbols, lines and pieces of text. Keys that are empty or
    missing come from the case's `expect`: a mapping with the same keys, or with `ground_truth`."""

    files: Texts = Field([], description="Paths; one that ends in `/` means any file below it.")
    symbols: Texts = Field([], description="Names, as whole words.")
    lines: Lines = Field({}, description="Line numbers by file: `{src/a.py: [8]}`.")
    content: Texts = Field([], description="Pieces of text; spaces and line breaks are equivalent.")
    score: Annotated[
        Literal["recall", "f1", "precision"], PlainWords("'recall', 'f1' or 'precision'")
    ] = Field(
        "recall",
        description="`recall`: the share of expected items that are mentioned; `precision`: the"
        " share of files in the answer that were expected; `f1`: their harmonic mean.",
    )
    pass_at: Share = Field(1.0, description="The lowest passing score.")


Globs = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(min_length=1),
    PlainWords("a list of globs such as 'src/**'"),
]
Most = Annotated[int, Field(ge=0), PlainWords("a whole number, 0 or more")]


class DiffForm(GraderForm):
    """The attempt's changes in its workspace are within these limits. Tampering with `.git` also
    fails."""

    model_config = ConfigDict(serialize_by_alias=True)

    max_files: Most | None = Field(None, description="Maximum number of changed files.")
    max_lines: Most | None = Field(None, description="Maximum number of lines, added plus deleted.")
    only: Globs | None = Field(None, description="Every changed path must match one of these.")
    not_: Globs | None = Field(
        None, alias="not", description="No changed path may match any of these."
    )
    empty: Flag | None = Field(
        None, description="`true`: nothing may have changed; `false`: something must have."
    )
    binary: Flag | None = Field(None, description="`false`: no binary file may have changed.")
    flagged: Flag | None = Field(
        None,
        description="`false`: files of the grading must not have been touched, such as those that"
        " `hidden` replaces. Otherwise that is only reported.",
    )
    similar: Share | None = Field(
        None,
        description="How similar the changes must be to the patch in the case's `expect` (its text,"
        " or a mapping with `patch`), from 0 to 1: the share of changed lines that both have. The"
        " score is the similarity; 0 only records it.",
    )


DIFF_CHECKS = ("max_files", "max_lines", "only", "not", "empty", "binary", "flagged", "similar")


class ToolCallForm(GraderForm):
    """The model called this tool, with these arguments; for chat targets with `tools`. In
    `arguments`, `{regex: ...}`, `{contains: ...}` and `{any: true}` match a value; numbers are
    compared as numbers, anything else exactly. Further arguments and calls are allowed."""

    name: Text | None = Field(
        None,
        description="The tool's name (this grader has no other), or `none`: no tool may be called."
        " By default the case's `expect`: a name, a mapping with `name` and `arguments`, or a list"
        " of such.",
    )
    arguments: Annotated[dict[str, Any], PlainWords("a mapping of arguments to values")] | None = (
        Field(None, description="The expected arguments, values or matchers; texts are templates.")
    )
    exact: Flag = Field(False, description="Allow no further arguments and no further calls.")


GRADER_REFERENCE = "https://paraval.invalid/grader"
"""Stands for the schema of a grader: pydantic cannot generate one that refers to itself."""
GRADER_SCHEMA = {"anyOf": [{"type": "string"}, {"$ref": GRADER_REFERENCE}]}
"""A grader within another, or within a case."""
GRADERS_SCHEMA = {"type": "array", "items": GRADER_SCHEMA, "minItems": 1}


class NotForm(GraderForm):
    """The grader in it fails. An error of that grader stays an error."""

    of: Annotated[Any, ReferenceNote("a grader"), WithJsonSchema(GRADER_SCHEMA)] = Field(
        description="The grader; `not: {contains: sorry}` is the short form."
    )


class CombinationForm(GraderForm):
    """Keys of the combinations of several graders."""

    of: Annotated[
        list[Any],
        PlainWords("a list of graders"),
        WithJsonSchema(GRADERS_SCHEMA),
    ] = Field(description="The graders; a list in place of the mapping is the short form.")


class AnyForm(CombinationForm):
    """At least one of several graders passes. The score is the highest of theirs. Once one has
    passed, models are not called."""


class AllForm(CombinationForm):
    """All of several graders pass; for use within `any` and `not`. The score is the mean of theirs.
    Once one has failed, models are not called."""


class OneGraderForm(Form):
    """A grader: its kind with a value or options."""

    model_config = ConfigDict(
        json_schema_extra={"minProperties": 1, "maxProperties": 1},
    )

    equals: Annotated[EqualsForm, Shorthand("value")] | None = None
    contains: Annotated[ContainsForm, Shorthand("value")] | None = None
    starts_with: Annotated[StartsWithForm, Shorthand("value")] | None = None
    similarity: Annotated[SimilarityForm, Shorthand("value")] | None = None
    regex: Annotated[RegexForm, Shorthand("pattern")] | None = None
    json_: JsonForm | None = Field(None, alias="json")
    number: Annotated[NumberForm, Shorthand("value")] | None = None
    exit_code: Annotated[ExitCodeForm, Shorthand("value")] | None = None
    python: Annotated[FunctionGraderForm, Shorthand("function")] | None = None
    command: Annotated[CommandGraderForm, Shorthand("command")] | None = None
    judge: JudgeForm | None = None
    mentions: MentionsForm | None = None
    diff: DiffForm | None = None
    tool_call: Annotated[ToolCallForm, Shorthand("name")] | None = None
    latency: Annotated[LatencyForm, Shorthand("max")] | None = None
    cost: Annotated[CostForm, Shorthand("max_usd")] | None = None
    not_: Annotated[NotForm, Shorthand("of")] | None = Field(None, alias="not")
    any_: Annotated[AnyForm, Shorthand("of")] | None = Field(None, alias="any")
    all_: Annotated[AllForm, Shorthand("of")] | None = Field(None, alias="all")


GRADER_FORMS: dict[str, type[GraderForm]] = {
    "equals": EqualsForm,
    "contains": ContainsForm,
    "starts_with": StartsWithForm,
    "similarity": SimilarityForm,
    "regex": RegexForm,
    "json": JsonForm,
    "number": NumberForm,
    "exit_code": ExitCodeForm,
    "python": FunctionGraderForm,
    "command": CommandGraderForm,
    "judge": JudgeForm,
    "mentions": MentionsForm,
    "diff": DiffForm,
    "tool_call": ToolCallForm,
    "latency": LatencyForm,
    "cost": CostForm,
    "not": NotForm,
    "any": AnyForm,
    "all": AllForm,
}
MAIN_KEYS = {
    "equals": "value",
    "contains": "value",
    "starts_with": "value",
    "similarity": "value",
    "regex": "pattern",
    "number": "value",
    "exit_code": "value",
    "python": "function",
    "command": "command",
    "tool_call": "name",
    "latency": "max",
    "cost": "max_usd",
    "not": "of",
    "any": "of",
    "all": "of",
}
"""The key that a bare value stands for: `contains: hello` means `{value: hello}`."""
