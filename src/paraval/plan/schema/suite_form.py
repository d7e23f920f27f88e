"""The top-level keys of a suite file, and the JSON Schema of the whole file.

The keys of targets, graders and models are in the modules beside this one. How keys fit together is
checked elsewhere; cases are not validated by these forms, because there may be very many.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from paraval.documents.forms import (
    AtOnce,
    Count,
    Delay,
    Duration,
    FileSize,
    Flag,
    Form,
    FunctionName,
    Name,
    PlainWords,
    Positive,
    ReferenceNote,
    Share,
    Text,
    Unchecked,
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
    HiddenWritten,
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
        Field(min_length=1, max_length=200),
        PlainWords("1 to 200 visible characters on one line"),
    ] = Field("", description="Name in reports; by default `case-1`, `case-2`, ...")
    input: (
        Annotated[
            str | int | float | bool | dict[str, Any] | list[dict[str, Any]],
            PlainWords("text, a mapping, or a list of messages"),
        ]
        | None
    ) = Field(
        None,
        description='What the target gets; required if `{input}` is used. `""` is an empty text.'
        " If there is no such field: `question`, `query` or `prompt`.",
    )
    expect: Annotated[Any, PlainWords("anything")] = Field(
        None,
        description="What graders compare the answer with. If there is no such field: `answer`,"
        " `expected`, `expected_output`, `target`, `ideal`, `reference` or `ground_truth`.",
    )
    description: Text | None = Field(
        None, description="For readers, in `paraval plan` and on the page; does not affect results."
    )
    tags: Annotated[list[str], ReferenceNote("a list of strings")] = Field(
        [], description="For selecting cases with `--tag`."
    )
    metadata: Annotated[dict[str, Any], ReferenceNote("a mapping")] = Field(
        {},
        description="Anything else, for templates (`{metadata.key}`), Python targets and graders."
        " All other keys of a case go here.",
    )
    lock: Annotated[LockName | list[LockName], ReferenceNote("a name, or a list of names")] = Field(
        [], description="Trials with the same lock never run at the same time."
    )
    exclusive: Flag = Field(
        False, description="While a trial of this case runs, nothing else runs."
    )
    workspace: Annotated[dict[str, Any], ReferenceNote("a mapping, as in a suite")] = Field(
        {},
        description="Keys of the suite's `workspace` that differ for this case, such as `git` and"
        " `ref`.",
    )
    timeout: Duration | None = Field(
        None, description="Time limit for this case, instead of the target's."
    )
    hidden: Annotated[Unchecked[HiddenWritten], ReferenceNote("a list, as in a suite")] = Field(
        [], description="Hidden files of this case only, in addition to the suite's."
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


FieldName = Annotated[str, Field(min_length=1), PlainWords("the name of a field")]


class PartOfFieldForm(Form):
    """A part of a field."""

    field: FieldName = Field(description="The field.")
    after: Annotated[str, Field(min_length=1), PlainWords("text")] = Field(
        description="Only what comes after this text, at its last occurrence."
    )


class CaseSourceForm(Form):
    """Cases from files or a function, and which of their fields is what. A field may be a path into
    nested data: `answers.text.0`. Fields that are not mapped go by their names, as in `cases`."""

    file: (
        Annotated[
            str | Annotated[list[str], Field(min_length=1)],
            PlainWords("a path or glob, or a list of them"),
        ]
        | None
    ) = Field(
        None,
        description="The files: a path, a glob or a folder, or a list of them, relative to the"
        " suite's folder.",
    )
    python: FunctionName | None = Field(
        None,
        description="Instead of files: a function, called once, without arguments, in the suite's"
        " folder; returns cases as `paraval.Case` or mappings.",
    )
    split: Text | None = Field(
        None, description="The split to read, of a Hugging Face dataset that has several."
    )
    id: FieldName | None = Field(None, description="The field with the id.")
    input: (
        Annotated[
            str | Annotated[list[str], Field(min_length=1)] | dict[str, str],
            PlainWords("a field, a list of fields, or a mapping of names to fields"),
        ]
        | None
    ) = Field(
        None,
        description="The field with the input. For several fields, a list, or a mapping of names to"
        " fields: templates use them as `{input.name}`.",
    )
    expect: (
        Annotated[str | PartOfFieldForm, PlainWords("a field, or a mapping with field and after")]
        | None
    ) = Field(
        None,
        description="The field with the expected result; `{field: answer, after: '####'}` takes a"
        " part of it.",
    )
    tags: Annotated[str | list[str], PlainWords("a field, or a list of fields")] | None = Field(
        None, description="Fields whose values become tags."
    )
    description: FieldName | None = Field(None, description="The field with the description.")


# ---- the rest of a suite


class LimitsForm(Form):
    """How many attempts may run in parallel."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Count]] = Field(init=False)

    parallel: AtOnce | None = Field(
        None,
        description="Attempts that run in parallel; `auto`, the default: as many as the machine and"
        " the models' accounts can handle.",
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

    example: ClassVar[str] = "{usd: 5}"

    usd: Positive = Field(description="US dollars in total, including judges.")
    per_attempt_usd: Positive | None = Field(
        None, description="Assumed cost of an attempt when there is no better estimate."
    )


CacheMode = Annotated[Literal["reuse", "refresh", "off"], PlainWords("'reuse', 'refresh' or 'off'")]


class CacheForm(Form):
    """The cache of model answers, which all suites of a store share."""

    mode: CacheMode = Field("reuse", description="As without a mapping.")
    max_size: FileSize = Field(
        2_000_000_000,
        description="Beyond this size (2 GB by default), the least recently used answers are"
        " dropped.",
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


class ClusterForm(Form):
    """What a run with `--cluster` does beyond one on this machine. It does not affect results."""

    send: Annotated[
        list[Annotated[str, Field(min_length=1)]], PlainWords("a list of paths and globs")
    ] = Field(
        [],
        description="Files that attempts and graders need on the nodes: paths, folders or globs"
        " within the suite's folder. By default all files of the folder that git does not ignore."
        " `.env` files are never sent.",
    )


Scalar = str | int | float | bool


class SuiteForm(Form):
    """A paraval suite: what to evaluate, on which cases, and how to grade the answers."""

    elsewhere: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "timeout": "it belongs under target",
            "judge": "write it as graders: [{judge: {model: NAME, rubric: The answer is polite.}}]",
            **dict.fromkeys(
                ("providers", "defaultTest", "evaluateOptions"),
                "this is a promptfoo config; convert it with: paraval import promptfoo FILE",
            ),
        }
    )

    name: Name | None = Field(
        None,
        description="Name in reports and in the store; by default the file's name, or the folder's"
        " if the file is called `suite`.",
    )
    description: Text | None = Field(None, description="For readers; paraval does not use it.")
    cases: Annotated[
        Unchecked[
            Annotated[list[CaseForm], Field(min_length=1)]
            | str
            | Annotated[list[str], Field(min_length=1)]
            | CaseSourceForm
        ],
        PlainWords(
            "a list of cases, a path, glob or folder (or a list of them), or a mapping with file or"
            " python"
        ),
    ] = Field(
        description="The inputs. Files may be .yaml, .yml, .json, .jsonl, .ndjson, .csv, .tsv, .md,"
        " .txt or .parquet, relative to the suite's folder."
    )
    models: Annotated[
        Unchecked[
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
        Unchecked[
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
        Unchecked[list[dict[str, Scalar]]], PlainWords("a list of mappings of axes to values")
    ] = Field([], description="Variants to leave out: those that match all values of a mapping.")
    repeats: Count = Field(1, description="How many times each case runs with each variant.")
    target: Annotated[
        Unchecked[CommandTargetForm | FunctionTargetForm | ChatTargetForm | AgentTargetForm],
        PlainWords("a mapping with command, python, chat or agent"),
    ] = Field(description="What to evaluate.")
    workspace: Annotated[
        Unchecked[WorkspaceWritten | None],
        ReferenceNote("'none', or a mapping with folder or git"),
    ] = Field(
        None,
        description="Where attempts of commands and agents run; by default the suite's folder for"
        " commands, and an empty folder for agents. Cases and axis values may have a `workspace`"
        " with the keys that differ.",
    )
    hidden: Annotated[Unchecked[HiddenWritten], ReferenceNote("a list")] = Field(
        [],
        description="Files and folders that attempts cannot read, such as tests: put into the"
        " workspace when an attempt has ended, before it is graded. A path relative to the suite's"
        " folder, or a mapping; templates with the fields of a case (`{case.id}`, `{input...}`) and"
        " the axes. A `.patch` or `.diff` file is applied with git, after the files that it names"
        " were restored.",
    )
    graders: Annotated[
        Unchecked[list[BareKind | OneGraderForm]],
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
        Unchecked[LimitsForm | None],
        PlainWords("a mapping with parallel and limits per axis value"),
    ] = Field(None, description="How much may run in parallel: in total, and per axis value.")
    retry: Annotated[Unchecked[RetryForm | None], ReferenceNote("a mapping")] = Field(
        None, description="Which failures are retried."
    )
    budget: Annotated[Unchecked[BudgetForm | None], ReferenceNote("a mapping")] = Field(
        None, description="What a run may spend; unlimited by default."
    )
    cache: Annotated[
        Unchecked[CacheMode | CacheForm | None],
        ReferenceNote("'reuse', 'refresh', 'off', or a mapping"),
    ] = Field(
        None,
        description="Whether stored model answers are reused (`reuse`, the default): `refresh`"
        " calls the models again and stores the new answers; `off` neither reads nor stores.",
    )
    fail_under: Share | None = Field(
        None,
        description="The share of trials that must pass; without it, `max_drop` or"
        " `max_regressed`, a report ends without a verdict.",
    )
    max_drop: Share | None = Field(
        None,
        description="How far the pass rate may be below the suite's baseline (see `paraval"
        " baseline`): 0.05 is 5 points.",
    )
    max_regressed: Annotated[int, Field(ge=0), PlainWords("a whole number, 0 or more")] | None = (
        Field(
            None,
            description="How many cases that passed in the suite's baseline may fail now: 0 for a"
            " gate that works with any number of cases. With repeats, a case counts if it passed"
            " all of them there and fails most of them now; flaky ones are only named.",
        )
    )
    recheck: (
        Annotated[int, Field(ge=0, le=100), PlainWords("a whole number from 0 to 100")] | None
    ) = Field(
        None,
        description="How often a case that got worse than the baseline runs again before"
        " `max_regressed` fails the gate, 9 by default: it counts only if it fails each time. 0:"
        " never.",
    )
    stop: Annotated[Unchecked[StopForm | None], ReferenceNote("a mapping")] = Field(
        None, description="When a run may stop early; by default all trials run."
    )
    holdout: Annotated[float, Field(gt=0, lt=1), PlainWords("a number between 0 and 1")] | None = (
        Field(
            None,
            description="The share of cases that don't choose the best of three or more variants,"
            " but measure it: chosen on the others, its rate on these is not flattered by the"
            " choice.",
        )
    )
    pairwise: Annotated[Unchecked[PairwiseForm | None], ReferenceNote("a mapping")] = Field(
        None, description="Which of two variants' answers is better: a judge decides, after a run."
    )
    cluster: Annotated[Unchecked[ClusterForm | None], ReferenceNote("a mapping")] = Field(
        None, description="What the nodes of a cluster get; only read with `--cluster`."
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
