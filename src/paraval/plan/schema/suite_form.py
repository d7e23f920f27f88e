"""The suite file as its author writes it: its own keys, and the JSON Schema of it all.

Targets, graders and the registry of models have forms of their own beside this one. What the keys
mean together is checked elsewhere; cases are read by hand, because there may be very many.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, SkipValidation
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
from paraval.plan.schema.grader_forms import BareKind, OneGraderForm
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
    """One input with what is expected of it."""

    id: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
        PlainWords("1 to 64 letters, digits, '.', '_' and '-'"),
    ] = Field("", description="Its name in reports; by default `case-1`, `case-2`, ...")
    input: Annotated[str | dict[str, Any], PlainWords("text, or a mapping")] | None = Field(
        None,
        description='What the target gets; it must be there where `{input}` is used. `""` is an'
        " empty text.",
    )
    expect: Annotated[Any, PlainWords("anything")] = Field(
        None, description="What the graders compare with."
    )
    tags: Annotated[list[str], ReferenceNote("a list of strings")] = Field(
        [], description="For choosing cases with `--tag`."
    )
    metadata: Annotated[dict[str, Any], ReferenceNote("a mapping")] = Field(
        {}, description="Anything else; Python targets and graders see it."
    )
    lock: Annotated[LockName | list[LockName], ReferenceNote("a name, or a list of names")] = Field(
        [], description="No two trials that hold the same lock run at once."
    )
    exclusive: Flag = Field(
        False, description="While a trial of this case runs, nothing else does."
    )


class FunctionCasesForm(Form):
    """Cases that a Python function returns."""

    python: FunctionName = Field(
        description="Called once, without arguments; returns cases: `paraval.Case` or mappings."
    )


# ---- the rest of a suite


class LimitsForm(Form):
    """Capacities that attempts share."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Count]] = Field(init=False)

    parallel: AtOnce | None = Field(
        None,
        description="How many attempts run at once; `auto`: as many as the machine can carry. By"
        " default `auto` for commands and agents, and 4 for functions and chat models.",
    )


ErrorName = Annotated[
    Literal["timeout", "rate_limited", "crashed", "invalid_output", "grader_error", "infra_error"],
    PlainWords(f"one of {', '.join(RETRIABLE)}"),
]


class RetryForm(Form):
    """Which ends of an attempt are tried again. A wrong answer never is."""

    attempts: Count = Field(3, description="How often a trial is tried at most.")
    on: Annotated[list[ErrorName], ReferenceNote(f"a list of {', '.join(RETRIABLE)}")] = Field(
        ["infra_error", "rate_limited"],
        description="Which outcomes are tried again. Refusals by a rate limit don't count as"
        " attempts, see below.",
    )
    first_delay: Delay = Field(1.0, description="The longest wait before the second attempt.")
    longest_delay: Delay = Field(60.0, description="Waits double up to this.")


class BudgetForm(Form):
    """What a run may spend on models. It stops before the attempt that would not fit."""

    usd: Positive = Field(description="US dollars in all, judges included.")
    per_attempt_usd: Positive | None = Field(
        None, description="What an attempt is thought to cost where nothing else tells."
    )


class StopForm(Form):
    """When a run ends before all of its trials ran."""

    when: Annotated[Literal["decided"], PlainWords("'decided'")] = Field(
        description="`decided`: when every comparison of two values of an axis has shown a"
        " difference, or no longer can.",
    )
    confidence: Annotated[
        float, Field(gt=0.5, lt=1), PlainWords("a number greater than 0.5 and less than 1")
    ] = Field(0.95, description="How sure all decisions of a run together are.")


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
        PlainWords("a mapping of names to models, or the path of a file that holds one"),
    ] = Field(None, description="The registry of models, for chat targets, agents and judges.")
    matrix: Annotated[
        SkipValidation[
            dict[
                Annotated[str, Field(pattern=f"^{AXIS_NAME}$")],
                Annotated[list[Scalar], Field(min_length=1)] | dict[str, OverlayForm | None],
            ]
        ],
        PlainWords("a mapping of axes to lists of values, or to mappings of values to target keys"),
    ] = Field(
        {}, description="What is compared. Every combination of the axes' values is a variant."
    )
    exclude: Annotated[
        SkipValidation[list[dict[str, Scalar]]], PlainWords("a list of mappings of axes to values")
    ] = Field([], description="Variants to leave out: those that fit all of a mapping's values.")
    repeats: Count = Field(1, description="How often each case runs with each variant.")
    target: Annotated[
        SkipValidation[CommandTargetForm | FunctionTargetForm | ChatTargetForm | AgentTargetForm],
        PlainWords("a mapping with command, python, chat or agent"),
    ] = Field(description="What is evaluated.")
    workspace: Annotated[
        SkipValidation[WorkspaceWritten | None],
        ReferenceNote("'none', or a mapping with folder or git"),
    ] = Field(
        None,
        description="Where attempts of commands and agents run; by default in the suite's folder.",
    )
    graders: Annotated[
        SkipValidation[list[BareKind | OneGraderForm]],
        PlainWords("a list of kinds, or of mappings of a kind to its value or options"),
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
        PlainWords("a mapping of parallel, and of axes to mappings of values to numbers"),
    ] = Field(None, description="How much may run at once: in all, and by value.")
    retry: Annotated[SkipValidation[RetryForm | None], ReferenceNote("a mapping")] = Field(
        None, description="Which failures are tried again."
    )
    budget: Annotated[SkipValidation[BudgetForm | None], ReferenceNote("a mapping")] = Field(
        None, description="What a run may spend; by default as much as it takes."
    )
    cache: Annotated[
        Literal["reuse", "refresh", "off"], PlainWords("'reuse', 'refresh' or 'off'")
    ] = Field(
        "reuse",
        description="Whether models' answers that are in the store are used again: `refresh`"
        " asks again and keeps the new ones, `off` does neither.",
    )
    fail_under: Share | None = Field(
        None,
        description="The share of trials that must pass, or the run fails; by default every trial.",
    )
    max_drop: Share | None = Field(
        None,
        description="By how much the pass rate may be below that of the suite's baseline (see"
        " `paraval baseline`): 0.05 are 5 points.",
    )
    stop: Annotated[SkipValidation[StopForm | None], ReferenceNote("a mapping")] = Field(
        None, description="When a run may stop early; by default every trial runs."
    )
    seed: Annotated[int, PlainWords("a whole number")] | None = Field(
        None, description="Fixes what is left to chance, such as the waits between attempts."
    )


class EditorSchema(GenerateJsonSchema):
    """Without defaults that say nothing to a reader (an empty list, a null)."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default") in (None, "", [], {}):
            described.pop("default", None)
        return described


def json_schema() -> dict[str, Any]:
    """The JSON Schema of suite files, for editors."""
    schema = SuiteForm.model_json_schema(schema_generator=EditorSchema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "paraval suite",
    }
