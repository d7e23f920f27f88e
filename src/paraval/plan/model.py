"""The suite file as its author writes it: every key, what it must be, and what it is for.

The words here are used three times: in the messages about a wrong suite, in the JSON Schema that
editors use, and in the reference page. What the keys mean together is checked elsewhere; cases are
read by hand, because there may be very many.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SkipValidation,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from paraval.plan.scalars import scalar_text
from paraval.records import Outcome

AXIS_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
RETRIABLE = tuple(outcome.value for outcome in Outcome if outcome.is_error)


class Words:
    """What a value must be, in plain words, instead of the validator's own."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="words", custom_error_message=self.text
        )


class Told:
    """The same for the reference page alone, where the parts of a value have words of their own."""

    def __init__(self, text: str) -> None:
        self.text = text


class Shorthand:
    """A form that may be written as the value of its main key alone: `contains: hello`."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler(source)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        whole = handler(schema)
        key = handler.resolve_ref_schema(whole)["properties"][self.key]
        alone = {name: value for name, value in key.items() if name not in ("title", "default")}
        return {"anyOf": [alone, whole]}


def _item_text(value: Any) -> Any:
    return scalar_text(value) if isinstance(value, bool | int | float) else value


Text = Annotated[str, Words("text")]
Name = Annotated[
    str,
    Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,100}$"),
    Words("1 to 100 characters on one line"),
]
Flag = Annotated[bool, Words("true or false")]
Number = Annotated[float, Field(allow_inf_nan=False), Words("a number")]
Seconds = Annotated[
    float, Field(gt=0, allow_inf_nan=False), Words("a number of seconds greater than 0")
]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False), Words("a number of seconds, 0 or more")]
Count = Annotated[int, Field(ge=1), Words("a whole number, 1 or more")]
Share = Annotated[float, Field(ge=0, le=1), Words("a number from 0 to 1")]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False), Words("a number greater than 0")]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), Words("a number, 0 or more")]
Item = Annotated[str, BeforeValidator(_item_text, json_schema_input_type=str | int | float | bool)]
TextOrNumber = Annotated[Item, Words("text or a number")]
FunctionName = Annotated[
    str,
    Field(pattern=r"^[^\s:]+:[^\s:]+$"),
    Words("the name of a function: 'module:function'"),
]
VariableName = Annotated[
    str, Field(pattern=r"^[^=\x00\s]+$"), Words("the name of an environment variable")
]
Environment = dict[VariableName, TextOrNumber]
Arguments = Annotated[list[Item], Field(min_length=1)]


class Form(BaseModel):
    """A mapping in a suite file: only the keys named here, and nothing is guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)


# ---- cases


class CaseForm(Form):
    """One input with what is expected of it."""

    id: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
        Words("1 to 64 letters, digits, '.', '_' and '-'"),
    ] = Field("", description="Its name in reports; by default `case-1`, `case-2`, ...")
    input: Annotated[str | dict[str, Any], Words("text, or a mapping")] | None = Field(
        None,
        description='What the target gets; it must be there where `{input}` is used. `""` is an'
        " empty text.",
    )
    expect: Annotated[Any, Words("anything")] = Field(
        None, description="What the graders compare with."
    )
    tags: Annotated[list[str], Told("a list of texts")] = Field(
        [], description="For choosing cases with `--tag`."
    )
    metadata: Annotated[dict[str, Any], Told("a mapping")] = Field(
        {}, description="Anything else; Python targets and graders see it."
    )


class FunctionCasesForm(Form):
    """Cases that a Python function returns."""

    python: FunctionName = Field(
        description="Called once, without arguments; returns cases: `paraval.Case` or mappings."
    )


# ---- targets


class ProcessForm(Form):
    """What commands and functions have in common."""

    env: Annotated[Environment, Told("a mapping of names to texts")] = Field(
        {}, description="Environment variables to set. Values are templates."
    )
    pass_env: Annotated[list[VariableName], Told("a list of names of variables")] = Field(
        [], description="Variables to pass on from the environment that paraval itself has."
    )
    timeout: Seconds | None = Field(
        None, description="After this the attempt is ended and its outcome is `timeout`."
    )
    grace: Delay = Field(
        5.0, description="How long a process may take to end by itself before it is killed."
    )


class CommandTargetForm(ProcessForm):
    """A program that is started once for each attempt."""

    command: Annotated[
        Arguments | str, Words("a list of texts and numbers (with shell: true, one line of text)")
    ] = Field(description="The program and its arguments. Each is a template.")
    shell: Flag = Field(
        False,
        description="Run the command, one line of text, with `/bin/sh`. Values that templates fill"
        " in are quoted.",
    )
    cwd: Text = Field(".", description="The folder to run in, relative to the suite's own folder.")
    stdin: Text | None = Field(None, description="A template for what the command reads.")
    output: Annotated[
        str,
        Field(pattern=r"^(stdout|json|.*[./{].*)$", min_length=1),
        Words("'stdout', 'json', or the path of a file (with a '.', '/' or '{' in it)"),
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
    isolate: Annotated[Literal["process", "none"], Words("'process' or 'none'")] = Field(
        "none",
        description="`process`: each attempt runs in a worker process, so that a crash costs that"
        " attempt alone and a timeout really ends it.",
    )


def _with_all_target_keys(schema: dict[str, Any]) -> None:
    """The overlay's keys are those of every kind of target."""
    for form in (CommandTargetForm, FunctionTargetForm):
        schema.setdefault("properties", {}).update(form.model_json_schema()["properties"])


class OverlayForm(Form):
    """Keys of the target, laid over it for one value of an axis. `env` is merged; other keys
    replace the target's own."""

    model_config = ConfigDict(json_schema_extra=_with_all_target_keys)


# ---- graders


class GraderForm(Form):
    """What all graders have."""

    weight: Weight | None = Field(
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
            str | Annotated[list[str], Field(min_length=1)], Words("text, or a list of texts")
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

    schema_: Annotated[dict[str, Any] | str, Words("a JSON Schema, or the path of one")] | None = (
        Field(None, alias="schema", description="A JSON Schema, or a file that holds one.")
    )
    path: (
        Annotated[
            str,
            Field(pattern=r"^([^.\[\]]+|\[\d+\])(\.[^.\[\]]+|\[\d+\])*$"),
            Words("a path such as 'a.b[0].c'"),
        ]
        | None
    ) = Field(None, description="The part of the answer to compare: `a.b[0].c`.")
    value: Annotated[Any, Words("anything")] = Field(
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
        Words("a whole number, or a list of whole numbers"),
    ] = Field(0, description="The code, or the codes, that pass.")


class FunctionGraderForm(GraderForm):
    """A Python function judges: `function(output, case)` or `function(output, case, variant)`."""

    function: FunctionName = Field(
        description="`module:function`; modules are looked for in the suite's folder first."
    )
    pass_at: Share = Field(1.0, description="The score that passes, where it returns a score.")
    timeout: Seconds = Field(600.0, description="After this it is given up: a `grader_error`.")


class CommandGraderForm(GraderForm):
    """A program judges: it gets the trial as JSON on stdin; exit code 0 passes, 1 fails. The last
    line of its output is the reason, a score, or a JSON object with both."""

    command: Annotated[Arguments, Words("a list of texts and numbers")] = Field(
        description="The program and its arguments."
    )
    timeout: Seconds = Field(60.0, description="After this it is ended: a `grader_error`.")
    env: Annotated[Environment, Told("a mapping of names to texts")] = Field(
        {}, description="Environment variables to set."
    )
    pass_env: Annotated[list[VariableName], Told("a list of names of variables")] = Field(
        [], description="Variables to pass on from the environment that paraval itself has."
    )


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


GRADER_FORMS: dict[str, type[GraderForm]] = {
    "equals": EqualsForm,
    "contains": ContainsForm,
    "regex": RegexForm,
    "json": JsonForm,
    "number": NumberForm,
    "exit_code": ExitCodeForm,
    "python": FunctionGraderForm,
    "command": CommandGraderForm,
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
BareKind = Literal["equals", "contains", "regex", "json", "number", "exit_code"]


# ---- the rest of a suite


class LimitsForm(Form):
    """Capacities that attempts share."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Count]] = Field(init=False)

    parallel: Count = Field(4, description="How many attempts run at once.")


ErrorName = Annotated[
    Literal["timeout", "rate_limited", "crashed", "invalid_output", "grader_error", "infra_error"],
    Words(f"one of {', '.join(RETRIABLE)}"),
]


class RetryForm(Form):
    """Which ends of an attempt are tried again. A wrong answer never is."""

    attempts: Count = Field(3, description="How often a trial is tried at most.")
    on: Annotated[list[ErrorName], Told(f"a list of {', '.join(RETRIABLE)}")] = Field(
        ["infra_error", "rate_limited"],
        description="Which outcomes are tried again. Refusals by a rate limit don't count as"
        " attempts, see below.",
    )
    first_delay: Delay = Field(1.0, description="The longest wait before the second attempt.")
    longest_delay: Delay = Field(60.0, description="Waits double up to this.")


Scalar = str | int | float | bool


class SuiteForm(Form):
    """A suite of paraval: what is evaluated, on which cases, and how it is judged."""

    name: Name | None = Field(
        None, description="Its name in reports and in the store; by default the file's name."
    )
    description: Text | None = Field(None, description="For people; paraval does not use it.")
    cases: Annotated[
        SkipValidation[
            Annotated[list[CaseForm], Field(min_length=1)]
            | str
            | Annotated[list[str], Field(min_length=1)]
            | FunctionCasesForm
        ],
        Words("a list of cases, a path or glob (or a list of them), or {python: module:function}"),
    ] = Field(
        description="The inputs. Files may be .yaml, .yml, .json, .jsonl or .csv, relative to the"
        " suite's folder."
    )
    matrix: Annotated[
        SkipValidation[
            dict[
                Annotated[str, Field(pattern=f"^{AXIS_NAME}$")],
                Annotated[list[Scalar], Field(min_length=1)] | dict[str, OverlayForm | None],
            ]
        ],
        Words("a mapping of axes to lists of values, or to mappings of values to target keys"),
    ] = Field(
        {}, description="What is compared. Every combination of the axes' values is a variant."
    )
    exclude: Annotated[
        SkipValidation[list[dict[str, Scalar]]], Words("a list of mappings of axes to values")
    ] = Field([], description="Variants to leave out: those that fit all of a mapping's values.")
    repeats: Count = Field(1, description="How often each case runs with each variant.")
    target: Annotated[
        SkipValidation[CommandTargetForm | FunctionTargetForm],
        Words("a mapping with command or python"),
    ] = Field(description="What is evaluated.")
    graders: Annotated[
        SkipValidation[list[BareKind | OneGraderForm]],
        Words("a list of kinds, or of mappings of a kind to its value or options"),
    ] = Field(
        [],
        description="What judges the answers. Without any, a trial passes when its target ends"
        " well.",
    )
    pass_at: Share = Field(
        0.5, description="The mean score that passes, where graders have weights."
    )
    limits: Annotated[
        SkipValidation[LimitsForm | None],
        Words("a mapping of parallel, and of axes to mappings of values to numbers"),
    ] = Field(None, description="How much may run at once: in all, and by value.")
    retry: Annotated[SkipValidation[RetryForm | None], Told("a mapping")] = Field(
        None, description="Which failures are tried again."
    )
    fail_under: Share | None = Field(
        None,
        description="The pass rate below which a run fails; by default every trial must pass.",
    )
    seed: Annotated[int, Words("a whole number")] | None = Field(
        None, description="Fixes what is left to chance, such as the waits between attempts."
    )


class _EditorSchema(GenerateJsonSchema):
    """Without defaults that say nothing to a reader (an empty list, a null)."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default") in (None, "", [], {}):
            described.pop("default", None)
        return described


def json_schema() -> dict[str, Any]:
    """The JSON Schema of suite files, for editors."""
    schema = SuiteForm.model_json_schema(schema_generator=_EditorSchema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "paraval suite",
    }
