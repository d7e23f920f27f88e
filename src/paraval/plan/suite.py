"""The public class Suite, made in Python or loaded from a file, either valid as a whole or not at
all.

Both ways run the same checks, and one error lists every problem. The trials are up to `build`.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.files import beside, read_document
from paraval.documents.forms import check
from paraval.documents.problems import Document, Location
from paraval.documents.variables import ENV_FILE, References, env_file
from paraval.errors import Problem, SuiteError
from paraval.garbage import no_collections
from paraval.models.secrets import names_a_secret
from paraval.plan.cases.case_list import CaseList
from paraval.plan.cases.hidden_files import HiddenRequests, read_hidden
from paraval.plan.cases.sources import read_cases
from paraval.plan.graders import (
    Pairwise,
    check_expectations,
    compares_text,
    read_case_graders,
    read_graders,
    read_pairwise,
)
from paraval.plan.limits import read_budget, read_cache, read_limits, read_retry, read_stop
from paraval.plan.matrix import Axis, Matrix, read_choices, read_matrix, variant_of
from paraval.plan.model_axis import ModelAxis, RunnableVariants, find_model_axis
from paraval.plan.prompts.checks import (
    check_axes_have_effect,
    check_grader_texts,
    check_pairwise_rubric,
    check_prompts,
)
from paraval.plan.registry import read_registry
from paraval.plan.schema.suite_form import SuiteForm
from paraval.plan.suite_folder import SuiteFolder, place_target, read_sent_files
from paraval.plan.targets import VariantTarget, read_targets
from paraval.plan.template_checks import (
    check_grader_templates,
    check_setup_templates,
    check_templates,
    find_shared_file,
    find_unfit_id,
)
from paraval.plan.workspace import (
    CaseWorkspaces,
    WorkspaceProgram,
    WorkspaceRequest,
    programs_within,
    read_workspace,
    read_workspaces,
    tell_what_is_wrong,
)
from paraval.records import (
    AgentTarget,
    Budget,
    CacheUse,
    Case,
    ChatTarget,
    CommandTarget,
    GraderSpec,
    Grading,
    RetryPolicy,
    StopRule,
    Target,
    Variant,
    Workspace,
    WorkspaceKind,
)
from paraval.settings import NO_TOOL, Parallel
from paraval.text.suggest import suggestion
from paraval.text.words import some

TRIAL_LIMIT = 1_000_000
"""More than this is a mistake, and would exhaust memory first."""


USUAL_RECHECKS = 9
"""In simulations of 40 cases with a mean rate of 0.9 and nothing changed, a gate with 3 fails in up
to 19% of runs, with 9 in up to 5%, without in 30% to 98%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Everything in a suite, validated and as records."""

    name: str
    description: str | None
    source: str | None
    folder: str
    """The suite's folder, absolute."""
    cases: tuple[Case, ...]
    axes: tuple[Axis, ...]
    variants: tuple[tuple[Variant, Target], ...]
    """The variants that run by default; likewise the axes."""
    offer: RunnableVariants
    repeats: int
    grading: Grading
    parallel: Parallel | None
    """None: a default by the kinds of its targets."""
    named_limits: Mapping[str, int]
    """`mode=with-tool` -> 2."""
    workspace: WorkspaceRequest
    """The first one, if they differ."""
    programs: tuple[WorkspaceProgram, ...]
    """Programs to find in the workspace."""
    absent: tuple[tuple[Variant, Problem], ...]
    """Variants whose agent is not installed here: they can be planned but not run."""
    retry: RetryPolicy
    budget: Budget | None
    cache: CacheUse
    cache_bytes: int
    fail_under: float | None
    max_drop: float | None
    holdout: float | None
    recheck: int
    max_regressed: int | None
    stop: StopRule | None
    seed: int | None
    pairwise: Pairwise | None = None
    workspaces: CaseWorkspaces | None = None
    """Those of the trials; None: all have the same."""
    hidden: HiddenRequests | None = None
    send: tuple[str, ...] = ()
    """Paths and globs of files that the nodes of a cluster get; empty: all of its folder."""
    notices: tuple[str, ...] = ()
    """How cases were read, if that was not in the suite, and axes that may be a mistake."""


class Suite:
    """What to evaluate, on which cases, and how to grade the answers.

    The arguments are the keys of a suite file. In addition, cases may be `Case` objects, and the
    target, the graders and the source of cases may be functions.
    """

    definition: Definition
    functions: dict[str, Callable[..., Any]]
    """Functions passed as objects, by the reference that stands for them in records."""

    def __init__(  # noqa: PLR0913 - one argument for each key of a suite file
        self,
        *,
        cases: Iterable[Case | Mapping[str, Any]] | str | Mapping[str, Any] | Callable[[], Any],
        target: Callable[..., Any] | str | Mapping[str, Any],
        name: str | None = None,
        description: str | None = None,
        models: Mapping[str, Any] | str | None = None,
        matrix: Mapping[str, Any] | None = None,
        exclude: Sequence[Mapping[str, Any]] | None = None,
        repeats: int | None = None,
        workspace: Mapping[str, Any] | str | None = None,
        hidden: Sequence[str | Mapping[str, str]] | None = None,
        graders: Sequence[Any] | None = None,
        pass_at: float | None = None,
        limits: Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
        budget: Mapping[str, Any] | None = None,
        cache: str | Mapping[str, Any] | None = None,
        fail_under: float | None = None,
        max_drop: float | None = None,
        max_regressed: int | None = None,
        recheck: int | None = None,
        holdout: float | None = None,
        stop: Mapping[str, Any] | None = None,
        pairwise: Mapping[str, Any] | None = None,
        cluster: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        given = {key: value for key, value in locals().items() if key not in ("self", "__class__")}
        self.functions = {}
        spot = Location(problems={})
        around = SuiteFolder(folder=Path.cwd(), functions=self.functions)
        try:
            words = _in_file_form(given, self.functions)
            self.definition = _define(words, spot, around, default_name="suite")
        except RecursionError:
            raise SuiteError([Problem(message="the suite is nested too deeply")]) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Suite:
        """Load a suite from a .yaml, .yml, .json or .toml file."""
        file = Path(path)
        spot = Location(problems={}, file=str(file))
        document = read_document(file, spot)
        if document is None:
            raise SuiteError(list(spot.problems))
        around = SuiteFolder(folder=Path.cwd() / file.parent, functions={})
        suite = cls.__new__(cls)
        suite.functions = {}
        with env_file(around.folder, beside(ENV_FILE, spot)):
            data = _with_variables(document)
            name = _default_name(file)
            suite.definition = _define(data, document.spot, around, default_name=name)
        return suite

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def source(self) -> str | None:
        """The file it was loaded from, absolute; None for a suite made in Python."""
        return self.definition.source

    @property
    def notices(self) -> tuple[str, ...]:
        """How cases were read, if the suite does not specify it, and axes that may be a mistake:
        sentences for the user."""
        return self.definition.notices

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.definition.cases

    @property
    def repeats(self) -> int:
        return self.definition.repeats

    @property
    def has_models(self) -> bool:
        """Whether there is a registry of models."""
        return bool(self.definition.offer.registry.models)

    @property
    def chooses_models(self) -> bool:
        """Whether `--models` and TEST_MODELS can select models."""
        return self.definition.offer.model_axis.name is not None

    @property
    def unlisted_models(self) -> tuple[str, ...]:
        """The models that `--models all` runs, if the matrix lists none. By default, the first of
        them runs."""
        offer = self.definition.offer
        return tuple(offer.contestants) if offer.model_axis.is_made else ()

    @property
    def seed(self) -> int | None:
        return self.definition.seed

    def __repr__(self) -> str:
        return f"<Suite {self.name!r}: {len(self.cases)} cases>"


# ---- environment variables


def _with_variables(document: Document) -> Any:
    """Return a suite's data with `${NAME}` filled in, except in the cases it contains."""
    data = document.data
    if not isinstance(data, Mapping):
        return data
    matrix = data.get("matrix")
    axes = frozenset(map(str, matrix)) if isinstance(matrix, Mapping) else frozenset()
    is_list = isinstance(data.get("cases"), list)
    written = {key: value for key, value in data.items() if key != "cases" or not is_list}
    references = References(names_a_secret=names_a_secret, axes=axes)
    filled = references.filled(written, document.spot)
    if document.spot.problems:
        raise SuiteError(list(document.spot.problems))
    return {key: filled.get(key, value) for key, value in data.items()}


# ---- functions as objects


def _in_file_form(given: dict[str, Any], functions: dict[str, Callable[..., Any]]) -> Any:
    """Return the arguments as in a file, with references instead of functions."""
    words = {key: value for key, value in given.items() if value is not None}
    for key in ("target", "matrix", "graders"):
        if key in words:
            words[key] = _with_references(words[key], functions)
    if "target" in words:
        words["target"] = _as_python(words["target"])
    if isinstance(words.get("graders"), list):
        words["graders"] = [_as_python(grader) for grader in words["graders"]]
    cases = words.get("cases")
    if callable(cases) or isinstance(cases, Mapping):
        words["cases"] = _as_python(_with_references(cases, functions))
    elif isinstance(cases, Iterable) and not isinstance(cases, str):
        words["cases"] = [_case_in_file_form(case, functions) for case in cases]
    return words


def _case_in_file_form(case: Any, functions: dict[str, Callable[..., Any]]) -> Any:
    """Return a case with references instead of functions among its graders."""
    if isinstance(case, Case):
        own = case.graders
    else:
        own = case.get("graders") if isinstance(case, Mapping) else None
    if not own:
        return case
    own = _with_references(own, functions)
    if isinstance(own, list):
        own = [_as_python(grader) for grader in own]
    elif isinstance(own, Mapping) and isinstance(own.get("replace"), list):
        own = {"replace": [_as_python(grader) for grader in own["replace"]]}
    return replace(case, graders=own) if isinstance(case, Case) else {**case, "graders": own}


class _Reference(str):
    """Return a reference that stands for a function object."""

    __slots__ = ()


def _as_python(written: Any) -> Any:
    if isinstance(written, str) and (isinstance(written, _Reference) or ":" in written):
        return {"python": str(written)}
    return written


def _with_references(value: Any, functions: dict[str, Callable[..., Any]]) -> Any:
    match value:
        case Mapping():
            return {key: _with_references(inner, functions) for key, inner in value.items()}
        case list() | tuple():
            return [_with_references(inner, functions) for inner in value]
    return _reference(value, functions) if callable(value) else value


def _reference(function: Callable[..., Any], functions: dict[str, Callable[..., Any]]) -> str:
    for known, other in functions.items():
        if other is function:
            return _Reference(known)
    kind = type(function)
    name = getattr(function, "__qualname__", kind.__qualname__)
    module = getattr(function, "__module__", None) or kind.__module__
    reference, number = f"{module}:{name}", 2
    while reference in functions:
        reference = f"{module}:{name}#{number}"
        number += 1
    functions[reference] = function
    return _Reference(reference)


# ---- from written keys to records


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenSuite:
    """A suite as written, its location, and the folder that paths are relative to."""

    written: Mapping[str, Any]
    spot: Location
    around: SuiteFolder

    def key(self, name: str) -> tuple[Any, Location]:
        return self.written.get(name), self.spot.at(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variants:
    """Return every variant that can run, with its target, and which of them run by default."""

    comparison: Matrix
    model_axis: ModelAxis
    targets: tuple[tuple[Variant, VariantTarget], ...]

    @property
    def usual(self) -> list[tuple[Variant, VariantTarget]]:
        return [pair for pair in self.targets if self.model_axis.runs(pair[0])]


@no_collections()
def _define(written: Any, spot: Location, around: SuiteFolder, *, default_name: str) -> Definition:
    """Read the whole suite; SuiteError lists all its problems."""
    form = check(SuiteForm, written, spot)
    if not isinstance(written, Mapping):
        raise SuiteError(list(spot.problems))
    around = replace(
        around,
        registry=read_registry(written.get("models"), spot.at("models"), around.folder),
        has_workspace=_has_workspace(written),
        in_container=_has_container(written),
    )
    words = _WrittenSuite(written=written, spot=spot, around=around)
    variants = _read_variants(words)
    graders = read_graders(*words.key("graders"), words.around)
    cases = _read_cases(words, compares_text=any(map(compares_text, graders)))
    workspace, workspaces = _read_workspaces(words, variants, cases)
    grading = Grading(graders=graders, by_case=read_case_graders(cases, graders, words.around))
    parallel, named_limits = read_limits(*words.key("limits"), variants.comparison.axes)
    retry = read_retry(*words.key("retry"))
    budget = read_budget(*words.key("budget"))
    cache, cache_bytes = read_cache(*words.key("cache"))
    stop = read_stop(*words.key("stop"), variants.comparison.axes)
    pairwise = read_pairwise(*words.key("pairwise"), words.around, variants.comparison.axes)
    send = read_sent_files(*words.key("cluster"), around.folder)
    hidden = read_hidden(*words.key("hidden"), cases, variants.comparison.names)
    _check_pass_at(words, [*graders, *itertools.chain(*grading.by_case.values())])
    _check_exit_codes(words, variants)
    _check_tool_calls(words, variants, grading, cases)
    _check_workspace(words, variants, hidden)
    check_expectations(grading, cases)
    repeats = 1 if form is None else form.repeats
    _check_against_cases(words, variants, cases, repeats)
    notices = [f"{some(files, 3)}: {notice}" for notice, files in cases.notices.items()]
    notices += check_axes_have_effect(
        written, spot, variants.targets, variants.comparison.axes, grading.every
    )
    if spot.problems or form is None:
        raise SuiteError(_all_problems(spot, workspace, variants))
    judges = [*grading.every, *([] if pairwise is None else [pairwise.grader])]
    offer = RunnableVariants(
        registry=around.registry,
        model_axis=variants.model_axis,
        axes=variants.comparison.axes,
        variants=_as_records(variants, grading.every),
        judges=frozenset(spec.model.name for spec in judges if spec.model is not None),
    )
    return Definition(
        name=form.name or default_name,
        description=form.description,
        source=None if spot.file is None else _absolute(spot.file),
        folder=_absolute(around.folder),
        cases=tuple(cases.cases),
        axes=offer.model_axis.usual_of(offer.axes),
        variants=tuple(pair for pair in offer.variants if offer.model_axis.runs(pair[0])),
        offer=offer,
        repeats=int(repeats),
        grading=replace(grading, pass_at=float(form.pass_at)),
        parallel=parallel,
        named_limits=named_limits,
        workspace=workspace,
        workspaces=workspaces,
        programs=tuple(programs_within(workspace, variants.targets))
        if around.has_workspace
        else (),
        absent=tuple((one, why) for one, target in variants.targets for why in target.absent),
        retry=retry,
        budget=budget,
        cache=cache,
        cache_bytes=cache_bytes,
        fail_under=None if form.fail_under is None else float(form.fail_under),
        recheck=USUAL_RECHECKS if form.recheck is None else form.recheck,
        holdout=None if form.holdout is None else float(form.holdout),
        max_drop=None if form.max_drop is None else float(form.max_drop),
        max_regressed=form.max_regressed,
        stop=stop,
        seed=None if form.seed is None else int(form.seed),
        pairwise=pairwise,
        hidden=hidden,
        send=send,
        notices=tuple(notices),
    )


def _all_problems(
    spot: Location, workspace: WorkspaceRequest, variants: _Variants
) -> list[Problem]:
    if not any((problem.key or "").startswith("workspace") for problem in spot.problems):
        # Check the repository now: otherwise the plan would report it after everything else is
        # fixed.
        tell_what_is_wrong(workspace.record, workspace.spot)
    spot.problems.update(
        dict.fromkeys(why for _, target in variants.usual for why in target.absent)
    )
    return _in_order(spot)


def _default_name(file: Path) -> str:
    """The file's name, or its folder's if there is a `suite.yaml` in each of several folders."""
    folder = Path(_absolute(file)).parent.name
    is_name = folder.isprintable() and 0 < len(folder) <= 100
    return folder if file.stem == "suite" and is_name else file.stem


def _absolute(path: str | Path) -> str:
    return os.path.normpath(Path.cwd() / path)


def _in_order(spot: Location) -> list[Problem]:
    """Sort problems: the suite's own first, then those of other files; by line."""
    files = list(dict.fromkeys([spot.file, *(problem.file for problem in spot.problems)]))
    return sorted(spot.problems, key=lambda problem: (files.index(problem.file), problem.line or 0))


def _read_cases(words: _WrittenSuite, *, compares_text: bool) -> CaseList:
    cases = CaseList(
        around=words.around, problems=words.spot.problems, keeps_spelling=compares_text
    )
    if words.written.get("cases") is not None:
        read_cases(*words.key("cases"), cases)
    return cases


def _read_variants(words: _WrittenSuite) -> _Variants:
    target = words.written.get("target")
    listed = read_matrix(*words.key("matrix"), target, words.around.folder)
    registry = words.around.registry
    model_axis, axes = find_model_axis(words.written, listed, registry, words.spot)
    matrix = words.written.get("matrix")
    names = [str(name) for name in matrix] if isinstance(matrix, Mapping) else []
    comparison = Matrix(
        axes=axes,
        choices=read_choices(axes, words.written.get("exclude"), words.spot),
        names=tuple(dict.fromkeys((*names, *(axis.name for axis in axes)))),
        offered=model_axis.only_offered(axes),
    )
    targets = read_targets(*words.key("target"), comparison, words.around)
    variants = tuple(
        (variant_of(axes, choice), target)
        for choice, target in zip(comparison.choices, targets, strict=True)
        if target is not None
    )
    return _Variants(comparison=comparison, model_axis=model_axis, targets=variants)


def _check_exit_codes(words: _WrittenSuite, variants: _Variants) -> None:
    problem = None
    for _, target in variants.targets:
        if isinstance(target.record, ChatTarget):
            problem = "a chat model has no exit code; use another grader"
        elif isinstance(target.record, AgentTarget):
            problem = "an agent's exit code says nothing about its answer; use another grader"
    if problem is None:
        return
    written, spot = words.key("graders")
    for number, grader in enumerate(written if isinstance(written, list | tuple) else ()):
        if _names_exit_code(grader):
            spot.at(number).report(problem)


def _check_tool_calls(
    words: _WrittenSuite, variants: _Variants, grading: Grading, cases: CaseList
) -> None:
    """Report graders that expect a call of a tool that no chat target has."""
    if all(spec.kind != "tool_call" for spec in grading.every):
        return
    tools: set[str] = set()
    for _, target in variants.targets:
        record = target.record
        if not isinstance(record, ChatTarget) or "tools" in {
            **record.model.options,
            **record.settings.options,
        }:
            return  # Its tools are its own affair.
        tools |= {tool.name for tool in record.settings.tools}
    for case in cases.cases:
        for spec in (part for top in grading.of(case.id) for part in top.flat()):
            if spec.kind == "tool_call" and (problem := _unknown_tool(spec, case, tools)):
                words.spot.at("graders").report(f"grader '{spec.name}': {problem}")
                return


def _unknown_tool(spec: GraderSpec, case: Case, tools: set[str]) -> str | None:
    expect = spec.options.get("name", case.expect)
    calls = expect if isinstance(expect, list | tuple) else [expect]
    names = [call.get("name") if isinstance(call, Mapping) else call for call in calls]
    for name in names:
        if not isinstance(name, str) or name in (NO_TOOL, *tools):
            continue
        if not tools:
            return "the target has no tools; add tools: to chat"
        where = "" if "name" in spec.options else f" in the expect of case '{case.id}'"
        return f"unknown tool '{name}'{where}{suggestion(name, tools)}"
    return None


def _names_exit_code(grader: Any) -> bool:
    """Whether it is that grader, or combines it with others."""
    if isinstance(grader, list | tuple):
        return any(map(_names_exit_code, grader))
    if not isinstance(grader, Mapping):
        return bool(grader == "exit_code")
    inner = (grader[kind] for kind in ("not", "any", "all", "of") if kind in grader)
    return "exit_code" in grader or any(map(_names_exit_code, inner))


def _has_workspace(written: Mapping[str, Any]) -> bool:
    """Whether attempts run in workspaces: the suite has one, or an axis value or a case in it."""
    return written.get("workspace") not in (None, "none") or any(_own_workspaces(written))


def _has_container(written: Mapping[str, Any]) -> bool:
    """Whether some attempts run in containers, whose programs are not this machine's."""
    places = (written.get("workspace"), *_own_workspaces(written))
    return any(isinstance(one, Mapping) and one.get("container") is not None for one in places)


def _own_workspaces(written: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The keys `workspace` of axis values and of the cases in the suite."""
    matrix, cases = written.get("matrix"), written.get("cases")
    axes = matrix.values() if isinstance(matrix, Mapping) else ()
    values = [value for axis in axes if isinstance(axis, Mapping) for value in axis.values()]
    for value in (*values, *(cases if isinstance(cases, list | tuple) else ())):
        if isinstance(value, Case):
            own = value.workspace
        else:
            own = value.get("workspace") if isinstance(value, Mapping) else None
        if own is not None and isinstance(own, Mapping):
            yield own


def _read_workspaces(
    words: _WrittenSuite, variants: _Variants, cases: CaseList
) -> tuple[WorkspaceRequest, CaseWorkspaces | None]:
    """The workspace of all trials, or the first one of those that differ."""
    written, spot = words.key("workspace")
    folder = words.around.folder
    differing = read_workspaces(written, spot, folder, variants.comparison.axes, cases)
    if differing is None:
        return read_workspace(written, spot, folder), None
    if not words.around.has_workspace:
        spot.report(
            "cases have one, but the suite has none: write workspace: {} if only cases have keys"
        )
    first = differing.check(cases.cases, [variant for variant, _ in variants.usual])
    some = WorkspaceRequest(spot=spot, record=Workspace(kind=WorkspaceKind.FOLDER))
    return first or some, differing


def _check_workspace(words: _WrittenSuite, variants: _Variants, hidden: object) -> None:
    if not words.around.has_workspace:
        if hidden:
            needs = "needs a workspace to put the files into; add workspace:"
            words.spot.at("hidden").report(needs)
        return
    for _, target in variants.targets:
        if not isinstance(target.record, CommandTarget | AgentTarget):
            what = "a chat model" if isinstance(target.record, ChatTarget) else "a Python function"
            words.spot.at("workspace").report(
                f"applies only to commands and agents; {what} does not run in its own folder"
            )


def _check_pass_at(words: _WrittenSuite, graders: Sequence[GraderSpec]) -> None:
    written, spot = words.key("pass_at")
    if written is not None and all(grader.weight is None for grader in graders):
        spot.report("only works with weights; give every grader a weight, or remove pass_at")


def _check_against_cases(
    words: _WrittenSuite, variants: _Variants, cases: CaseList, repeats: int
) -> None:
    usual = variants.usual
    if variants.targets and not usual:
        words.spot.at("exclude").report("leaves no variant to run, unless other models are chosen")
    trials = len(cases.cases) * len(usual) * repeats
    if trials > TRIAL_LIMIT:
        words.spot.report(f"the suite makes {trials:,} trials; the limit is {TRIAL_LIMIT:,}")
        return
    targets = [target for _, target in variants.targets]
    axes = variants.comparison.names
    check_templates(targets, axes, cases)
    check_prompts(variants.targets, variants.comparison.axes, cases)
    has_workspace = words.around.has_workspace
    check_grader_templates(
        *words.key("graders"), axes=axes, cases=cases, has_workspace=has_workspace
    )
    check_grader_texts(*words.key("graders"), usual, cases, words.around.folder)
    check_pairwise_rubric(*words.key("pairwise"), cases, words.around.folder)
    for index, case in enumerate(cases.cases):
        if case.graders:
            spot = cases.spot(index).at("graders")
            alone = replace(cases, cases=[case], addresses=[cases.addresses[index]])
            check_grader_templates(
                case.graders, spot, axes=axes, cases=alone, has_workspace=has_workspace
            )
            check_grader_texts(case.graders, spot, usual, alone, words.around.folder)
    check_setup_templates(*words.key("workspace"), axes, cases)
    folder = str(words.around.folder)
    placed = [(variant, place_target(target.record, folder)) for variant, target in usual]
    shared = find_shared_file(placed, cases.cases, repeats)
    if shared is not None:
        usual[shared.variant][1].locate(("output",)).report(shared.message)
    for _, target in usual:
        if (name := find_unfit_id(target.record, cases.cases)) is not None:
            target.locate(("output",)).report(
                f"{{case.id}} cannot be in a file name: there is a case {name!r}; use {{folder}}"
            )


def _as_records(
    variants: _Variants, graders: Sequence[GraderSpec]
) -> tuple[tuple[Variant, Target], ...]:
    """Return the variants with their targets; shared ones stay shared."""
    judged = any(grader.kind == "exit_code" for grader in graders)
    made: dict[int, Target] = {}
    for _, target in variants.targets:
        record = target.record
        if judged and isinstance(record, CommandTarget):
            made.setdefault(id(record), replace(record, any_exit_code=True))
        else:
            made[id(record)] = record
    return tuple((variant, made[id(target.record)]) for variant, target in variants.targets)
