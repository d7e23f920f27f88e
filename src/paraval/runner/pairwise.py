"""Judges pairs of a run's answers: a run of its own, in the store's folder `pairwise`.

Its cases are pairs of answers and its variants the two orders, so limits, budget, cache, retries
and resumes are those of any run. It has its own folder so that `last`, histories and baselines go
on meaning runs of suites. The same request finds its run again and goes on with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.problems import Location
from paraval.errors import RequestError, SuiteError
from paraval.plan.graders import read_pairwise
from paraval.plan.matrix import Axis, AxisValue
from paraval.plan.model_axis import ModelAxis
from paraval.plan.suite import Suite
from paraval.plan.suite_folder import SuiteFolder
from paraval.plan.workspace import WorkspaceRequest
from paraval.records import Case, FunctionTarget, Grading, RunInfo, Workspace
from paraval.report.report import Report
from paraval.runner.run import run_stoppably
from paraval.runner.session import Observer
from paraval.runner.stored_runs import judging_store, pairs_in
from paraval.settings import PAIRWISE, Options, Selection
from paraval.store.store import Store
from paraval.text.words import variant_label

ORDERS = ("given", "swapped")
_TARGET = "paraval:pair"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseRequest:
    """Which pairs of answers to judge, and by what; empty values are the suite's own."""

    run: str
    """The run's id."""
    model: str | None = None
    rubric: str | None = None
    against: str | None = None
    reference: bool | None = None


def judge_pairs(
    store: Store,
    suite: Suite,
    request: PairwiseRequest,
    selection: Selection,
    observer: Observer | None = None,
) -> Report:
    """Judge the pairs that have no verdict yet, and return the report of the judging run."""
    info = store.find(request.run)
    derived, asked = _derived(store, info, suite, request)
    inner = judging_store(store)
    known = _find(inner, derived.name)
    return run_stoppably(
        derived,
        selection=replace(selection, pairwise=asked),
        # Whoever asks again wants the verdicts that are missing.
        options=Options(
            store=inner.root,
            resume=None if known is None else known.id,
            rerun=None if known is None else "errors",
        ),
        observer=observer,
    )


def request_of(store: Store, info: RunInfo) -> tuple[Store, PairwiseRequest]:
    """For a run that judges pairs: the store of the run that they are from, and the request."""
    return Store(store.root.parent), PairwiseRequest(**store.selection(info)[PAIRWISE])


def _find(inner: Store, name: str) -> RunInfo | None:
    if not inner.runs_folder.is_dir():
        return None
    return next((run for run in inner.runs() if run.suite == name), None)


# ---- the run that judges


def _derived(
    store: Store, info: RunInfo, suite: Suite, request: PairwiseRequest
) -> tuple[Suite, dict[str, Any]]:
    definition = suite.definition
    given = definition.pairwise
    if request.model is not None:
        names = ("model", "rubric", "against", "reference")
        written = {name: getattr(request, name) for name in names}
        written = {name: value for name, value in written.items() if value is not None}
        spot = Location(problems={})
        around = SuiteFolder(
            folder=Path(definition.folder), functions={}, registry=definition.offer.registry
        )
        given = read_pairwise(written, spot, around)
        if spot.problems:
            raise SuiteError(list(spot.problems))
    if given is None:
        raise RequestError(
            "no judge for pairs: the suite has no 'pairwise' key", hint="name one with --model"
        )
    model = given.grader.model
    assert model is not None
    against = request.against if request.against is not None else given.against
    asked = asdict(
        PairwiseRequest(
            run=info.id,
            model=model.name,
            rubric=given.grader.options["rubric"],
            against=against,
            reference=given.grader.options["reference"],
        )
    )
    cases = tuple(_cases(store, info, against))
    if not cases:
        raise RequestError(f"run {info.id} has no two variants with answers to the same case")
    words = json.dumps([asked[name] for name in ("model", "rubric", "against", "reference")])
    digest = hashlib.blake2b(words.encode(), digest_size=4).hexdigest()
    spot = Location(problems={})
    axis = Axis(
        name="order",
        values=tuple(AxisValue(value=order, overlay={}, spot=spot) for order in ORDERS),
    )
    target = FunctionTarget(reference=_TARGET, folder=definition.folder)
    variants = tuple(({"order": order}, target) for order in ORDERS)
    derived = Suite.__new__(Suite)
    derived.functions = {_TARGET: _no_answer}
    derived.definition = replace(
        definition,
        name=f"{info.id} {digest}",
        source=None,
        cases=cases,
        axes=(axis,),
        variants=variants,
        offer=replace(definition.offer, model_axis=ModelAxis(), axes=(axis,), variants=variants),
        repeats=1,
        grading=Grading(graders=(given.grader,)),
        named_limits={},
        workspace=WorkspaceRequest(spot=spot, record=Workspace()),
        programs=(),
        absent=(),
        budget=None,
        fail_under=None,
        max_drop=None,
        max_regressed=None,
        holdout=None,
        stop=None,
        notices=(),
        pairwise=None,
    )
    return derived, asked


async def _no_answer(_input: Any) -> str:
    """The target of a judging run: the answers are in its cases."""
    return ""


def _cases(store: Store, info: RunInfo, against: str | None) -> Iterator[Case]:
    with store.reader(info) as reader:
        cases = {case.id: case for case in reader.cases()}
    for pair in pairs_in(store, info, against):
        if pair.answers is None:
            continue
        case = cases[pair.case_id]
        a, b = variant_label(pair.a), variant_label(pair.b)
        repeat = f" · #{pair.repeat}" if pair.repeat > 1 else ""
        yield Case(
            id=f"{case.id} · {b} vs {a}{repeat}",
            input={"input": case.input, "a": pair.answers[0], "b": pair.answers[1]},
            expect=case.expect,
            metadata={"case": case.id, "repeat": pair.repeat, "a": a, "b": b},
        )
