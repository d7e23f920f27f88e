"""The top-level keys of a suite file, and the JSON Schema of the whole file.

The keys of targets, graders and models are in the modules beside this one. How keys fit together is
checked elsewhere; cases are not validated by these forms, because there may be very many.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SkipValidation, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from paraval.documents.forms import (
    AtOnce,
    Count,
    Delay,
    Flag,
    Form,
    FunctionName,
    Name,
    PlainWords,
    Positive,
    ReferenceNote,
    Share,
    Text,
)
from paraval.plan.schema.agent_forms import AgentTargetForm, OverlayForm
from paraval.plan.schema.grader_forms import (
    GRADER_REFERENCE,
    GRADERS_SCHEMA,
    BareKind,
    OneGraderForm,
    PairwiseForm,
)
from paraval.plan.schema.model_forms import MODEL_NAME, ModelForm
from paraval.plan.schema.target_forms import (
    ChatTargetForm,
    CommandTargetForm,
    FunctionTargetForm,
    WorkspaceWritten,
)
from paraval.records import Outcome

AXIS_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
RETRIABLE = tuple(outcome.value for outcome in Outcome if outcome.is_error)


# ---- cases


LOCK_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,99}"
LockName = Annotated[str, Field(pattern=f"^{LOCK_NAME}$")]


class CaseForm(Form):
    """One input and its expected result."""

    id: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
        PlainWords("1 to 64 letters, digits, '.', '_' and '-'"),
    ] = Field("", description="Name in reports; by default `case-1`, `case-2`, ...")
    input: (
        Annotated[
            str | dict[str, Any] | list[dict[str, Any]],
            PlainWords("text, a mapping, or a list of messages"),
        ]
        | None
    ) = Field(
        None,
        description='What the target gets; required if `{input}` is used. `""` is an empty text.',
    )
    expect: Annotated[Any, PlainWords("anything")] = Field(
        None, description="What graders compare the answer with."
    )
    tags: Annotated[list[str], ReferenceNote("a list of strings")] = Field(
        [], description="For selecting cases with `--tag`."
    )
    metadata: Annotated[dict[str, Any], ReferenceNote("a mapping")] = Field(
        {},
        description="Anything else, for templates (`{metadata.key}`), Python targets and graders.",
    )
    lock: Annotated[LockName | list[LockName], ReferenceNote("a name, or a list of names")] = Field(
        [], description="Trials with the same lock never run at the same time."
    )
    exclusive: Flag = Field(
        False, description="While a trial of this case runs, nothing else runs."
    )
    graders: Annotated[
        Any,
        ReferenceNote("a list of graders, or `{replace: [...]}`"),
        WithJsonSchema(
            {
                "anyOf": [
                    GRADERS_SCHEMA,
                    {
                        "type": "object",
                        "properties": {"replace": GRADERS_SCHEMA},
                        "required": ["replace"],
                        "additionalProperties": False,
                    },
                ]
            }
        ),
    ] = Field(
        [],
        description="Graders of this case only, in addition to the suite's;"
        " `{replace: [...]}` instead of the suite's.",
    )


class FunctionCasesForm(Form):
    """Cases that a Python function returns."""

    python: FunctionName = Field(
        description="Called once, without arguments; returns cases as `paraval.Case` or mappings."
    )


# ---- the rest of a suite


class LimitsForm(Form):
    """How many attempts may run in parallel."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Count]] = Field(init=False)

    parallel: AtOnce | None = Field(
        None,
        description="Attempts that run in parallel; `auto`: as many as the machine can handle. By"
        " default `auto` for commands and agents, and 4 for functions and chat models.",
    )


ErrorName = Annotated[
    Literal["timeout", "rate_limited", "crashed", "invalid_output", "grader_error", "infra_error"],
    PlainWords(f"one of {', '.join(RETRIABLE)}"),
]


class RetryForm(Form):
    """Which outcomes are retried. A failed answer never is."""

    attempts: Count = Field(3, description="Maximum number of attempts per trial.")
    on: Annotated[list[ErrorName], ReferenceNote(f"a list of {', '.join(RETRIABLE)}")] = Field(
        ["infra_error", "rate_limited"],
        description="Outcomes that are retried. Rate-limited calls don't count as attempts, see"
        " below.",
    )
    first_delay: Delay = Field(1.0, description="Maximum wait before the second attempt.")
    longest_delay: Delay = Field(60.0, description="Waits double up to this maximum.")


class BudgetForm(Form):
    """What a run may spend on models. It stops before an attempt that would exceed the budget."""

    usd: Positive = Field(description="US dollars in total, including judges.")
    per_attempt_usd: Positive | None = Field(
        None, description="Assumed cost of an attempt when there is no better estimate."
    )


class StopForm(Form):
    """When a run may end before all its trials have run."""

    when: Annotated[Literal["decided"], PlainWords("'decided'")] = Field(
        description="`decided`: when every comparison of two values of an axis has shown a"
        " difference or can no longer show one.",
    )
    confidence: Annotated[
        float, Field(gt=0.5, lt=1), PlainWords("a number greater than 0.5 and less than 1")
    ] = Field(0.95, description="Confidence level for all decisions of a run together.")


Scalar = str | int | float | bool


class SuiteForm(Form):
    """A paraval suite: what to evaluate, on which cases, and how to grade the answers."""

    name: Name | None = Field(
        None, description="Name in reports and in the store; by default the file's name."
    )
    description: Text | None = Field(None, description="For readers; paraval does not use it.")
    cases: Annotated[
        SkipValidation[
            Annotated[list[CaseForm], Field(min_length=1)]
            | str
            | Annotated[list[str], Field(min_length=1)]
            | FunctionCasesForm
        ],
        PlainWords(
            "a list of cases, a path or glob (or a list of them), or {python: module:function}"
        ),
    ] = Field(
        description="The inputs. Files may be .yaml, .yml, .json, .jsonl, .csv, .md or .txt,"
        " relative to the suite's folder."
    )
    models: Annotated[
        SkipValidation[
            Annotated[
                dict[Annotated[str, Field(pattern=f"^{MODEL_NAME}$")], ModelForm],
                Field(min_length=1),
            ]
            | str
            | None
        ],
        PlainWords("a mapping of names to models, or the path of a file that contains one"),
    ] = Field(None, description="The registry of models, for chat targets, agents and judges.")
    matrix: Annotated[
        SkipValidation[
            dict[
                Annotated[str, Field(pattern=f"^{AXIS_NAME}$")],
                Annotated[list[Scalar], Field(min_length=1)]
                | dict[str, OverlayForm | str | None]
                | str,
            ]
        ],
        PlainWords(
            "a mapping of axes to lists of values, to mappings of values to target keys, or to text"
            " files"
        ),
    ] = Field({}, description="What to compare. Every combination of axis values is a variant.")
    exclude: Annotated[
        SkipValidation[list[dict[str, Scalar]]], PlainWords("a list of mappings of axes to values")
    ] = Field([], description="Variants to leave out: those that match all values of a mapping.")
    repeats: Count = Field(1, description="How many times each case runs with each variant.")
    target: Annotated[
        SkipValidation[CommandTargetForm | FunctionTargetForm | ChatTargetForm | AgentTargetForm],
        PlainWords("a mapping with command, python, chat or agent"),
    ] = Field(description="What to evaluate.")
    workspace: Annotated[
        SkipValidation[WorkspaceWritten | None],
        ReferenceNote("'none', or a mapping with folder or git"),
    ] = Field(
        None,
        description="Where attempts of commands and agents run; by default the suite's folder for"
        " commands, and an empty folder for agents.",
    )
    graders: Annotated[
        SkipValidation[list[BareKind | OneGraderForm]],
        PlainWords("a list of graders"),
    ] = Field(
        [],
        description="How answers are graded. Without graders, a trial passes if its target"
        " succeeds.",
    )
    pass_at: Share = Field(
        0.5, description="The lowest passing mean score, if graders have weights."
    )
    limits: Annotated[
        SkipValidation[LimitsForm | None],
        PlainWords("a mapping with parallel and limits per axis value"),
    ] = Field(None, description="How much may run in parallel: in total, and per axis value.")
    retry: Annotated[SkipValidation[RetryForm | None], ReferenceNote("a mapping")] = Field(
        None, description="Which failures are retried."
    )
    budget: Annotated[SkipValidation[BudgetForm | None], ReferenceNote("a mapping")] = Field(
        None, description="What a run may spend; unlimited by default."
    )
    cache: Annotated[
        Literal["reuse", "refresh", "off"], PlainWords("'reuse', 'refresh' or 'off'")
    ] = Field(
        "reuse",
        description="Whether stored model answers are reused: `refresh` calls the models again and"
        " stores the new answers; `off` neither reads nor stores.",
    )
    fail_under: Share | None = Field(
        None,
        description="The share of trials that must pass; by default all of them.",
    )
    max_drop: Share | None = Field(
        None,
        description="How far the pass rate may be below the suite's baseline (see `paraval"
        " baseline`): 0.05 is 5 points.",
    )
    stop: Annotated[SkipValidation[StopForm | None], ReferenceNote("a mapping")] = Field(
        None, description="When a run may stop early; by default all trials run."
    )
    pairwise: Annotated[SkipValidation[PairwiseForm | None], ReferenceNote("a mapping")] = Field(
        None, description="Which of two variants' answers is better: a judge decides, after a run."
    )
    seed: Annotated[int, PlainWords("a whole number")] | None = Field(
        None, description="Makes random choices repeatable, such as the waits between attempts."
    )


class EditorSchema(GenerateJsonSchema):
    """A schema without defaults that mean nothing to a reader (an empty list, a null)."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default") in (None, "", [], {}):
            described.pop("default", None)
        return described


def json_schema() -> dict[str, Any]:
    """The JSON Schema of suite files, for editors."""
    schema = SuiteForm.model_json_schema(schema_generator=EditorSchema)
    text = json.dumps(schema).replace(GRADER_REFERENCE, "#/$defs/OneGraderForm")
    schema = json.loads(text)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "paraval suite",
    }
