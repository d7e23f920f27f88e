"""Make a plan from a suite: which trials run, in which order, each with its key."""

from __future__ import annotations

import fnmatch
import hashlib
import heapq
import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paraval.dataclass import dataclass
from paraval.documents.scalars import scalar_text
from paraval.errors import Problem, RequestError, SuiteError
from paraval.plan.cases.hidden_files import HiddenFinder
from paraval.plan.limits import limit_name
from paraval.plan.matrix import Axis
from paraval.plan.model_axis import VariantTargets, choose_models
from paraval.plan.registry import Registry
from paraval.plan.suite import TRIAL_LIMIT, Definition, Suite
from paraval.plan.suite_folder import place_grading, place_target, place_workspace
from paraval.plan.template_checks import find_shared_file
from paraval.plan.trial_keys import (
    case_words,
    digest_of,
    grading_words,
    hidden_words,
    parts_of,
    trial_key,
    variant_words,
    workspace_words,
)
from paraval.plan.workspace import (
    MOST_LISTED,
    KnownCommits,
    RecordedStart,
    WorkspaceRequest,
    check_programs_within,
    of_case,
    stands_for,
)
from paraval.records import (
    AccountLimits,
    AgentTarget,
    Budget,
    CacheUse,
    Case,
    CasesRun,
    ChatTarget,
    GraderSpec,
    HiddenFiles,
    Limits,
    Model,
    ModelsRun,
    Plan,
    Scalar,
    Target,
    Trial,
    Variant,
    Workspace,
    WorkspaceKind,
    account_need,
    agent_need,
    call_need,
    lock_need,
    model_need,
)
from paraval.settings import AUTO_MOST, MOST_CALLS, Parallel, Selection
from paraval.text.suggest import nearest, quoted, suggestion
from paraval.text.words import listed


def build_plan(suite: Suite, selection: Selection) -> Plan:
    """Make a plan that can run; SuiteError if an agent that it needs is not installed."""
    plan = draft_plan(suite, selection)
    check_installed(suite, plan)
    return plan


def check_installed(suite: Suite, plan: Plan) -> None:
    """Raise SuiteError if an agent that the plan needs is not installed here."""
    absent = absent_programs(suite, plan)
    if absent:
        raise SuiteError(absent)


def absent_programs(suite: Suite, plan: Plan) -> tuple[Problem, ...]:
    """Return the plan's programs that are not installed here."""
    absent = suite.definition.absent
    return tuple(dict.fromkeys(why for variant, why in absent if variant in plan.variants))


def draft_plan(suite: Suite, selection: Selection) -> Plan:
    """Return the selected trials, by case, then variant, then repeat."""
    definition = suite.definition
    _check_overrides(selection)
    if selection.sample is None:
        selection = replace(selection, sample_seed=None)
    elif selection.sample_seed is None:
        selection = replace(selection, sample_seed=definition.seed or 0)
    cases = _select_cases(definition.cases, selection)
    axes, possible = _with_models(definition, selection.models)
    chosen = _select_variants(axes, possible, selection, definition.offer.registry)
    variants = _with_timeout(chosen, selection.timeout)
    repeats = definition.repeats if selection.repeats is None else selection.repeats
    _check_size(len(cases) * len(variants) * repeats)
    if selection.models or repeats != definition.repeats:
        # The suite's own values were checked when it was loaded.
        _check_files(definition, cases, variants, repeats)
    places = _Places(definition, selection)
    places.prepare(cases, variants)
    parts = _variant_parts(definition, variants, places.same)
    words = {case.id: case_words(case, definition.folder) for case in definition.cases}
    trials = _trials(definition, cases, words, parts, places, repeats)
    places.check()
    if selection.timeout is None:
        trials = _with_timeouts_of_cases(trials)
    workspace = (
        place_workspace(places.same, definition.folder)
        if places.same
        else next((trial.workspace for trial in trials if trial.workspace), places.first)
    )
    workspace, trials = _with_hidden(definition, workspace, trials)
    fail_under = definition.fail_under if selection.fail_under is None else selection.fail_under
    return Plan(
        name=definition.name,
        source=definition.source,
        axes=_remaining_axes(axes, variants),
        variants=tuple(variant for variant, _ in variants),
        trials=trials,
        grading=place_grading(definition.grading, definition.folder),
        limits=_limits(definition, selection.parallel, parts, cases, trials),
        retry=definition.retry,
        fail_under=fail_under,
        # With one value per axis, there is nothing to decide.
        stop=definition.stop if len(variants) > 1 else None,
        holdout=definition.holdout,
        max_drop=definition.max_drop if selection.max_drop is None else selection.max_drop,
        max_regressed=definition.max_regressed
        if selection.max_regressed is None
        else selection.max_regressed,
        recheck=definition.recheck,
        budget=_budget(definition.budget, selection.budget_usd),
        cache=definition.cache if selection.cache is None else CacheUse(selection.cache),
        cache_bytes=definition.cache_bytes,
        workspace=workspace,
        selection=places.noted(selection).as_mapping(),
        cases=_cases_run(len(cases), len(definition.cases), selection),
        models=_models_run(suite, selection),
        send=definition.send,
        parts=parts_of(definition, places.words, words.values(), hidden_words(workspace.hidden)),
    )


def _cases_run(selected: int, offered: int, selection: Selection) -> CasesRun | None:
    if selected == offered:
        return None
    by = (
        *(f"--case {shlex.quote(glob)}" for glob in selection.cases),
        *(f"--tag {shlex.quote(tag)}" for tag in selection.tags),
        f"regraded from {selection.regrade}" if selection.regrade and selection.only else "",
        f"--sample {selection.sample} --seed {selection.sample_seed}" if selection.sample else "",
        f"--limit {selection.limit}" if selection.limit else "",
    )
    return CasesRun(selected=selected, offered=offered, by=" ".join(filter(None, by)))


def _models_run(suite: Suite, selection: Selection) -> ModelsRun | None:
    """Only the first model of the registry runs, because neither the matrix lists models nor the
    user chose any."""
    offered = suite.unlisted_models
    if len(offered) < 2 or selection.models:
        return None
    return ModelsRun(names=offered[:1], offered=len(offered))


class _Places:
    """The workspaces of a plan: as they are now, or as they were when the resumed run started."""

    def __init__(self, definition: Definition, selection: Selection) -> None:
        self._definition = definition
        self._noted = selection
        self._found: dict[Workspace, Workspace] = {}
        self._known = KnownCommits()
        self._problems: dict[Problem, None] = {}
        self.same = (
            None if definition.workspaces is not None else self._resolved(definition.workspace)
        )

    @property
    def first(self) -> Workspace:
        return next(iter(self._found.values()), Workspace())

    def prepare(self, cases: Sequence[Case], variants: VariantTargets) -> None:
        """Look up all commits at once."""
        if self._definition.workspaces is None:
            return
        refs: dict[str, dict[str, None]] = {}
        for case, (variant, _) in itertools.product(cases, variants):
            record = self._definition.workspaces.of(case, variant).record
            if record.kind is WorkspaceKind.GIT and record.source is not None:
                refs.setdefault(record.source, {})[record.ref] = None
        for source, names in refs.items():
            self._known.prepare(source, names)

    def of(self, case: Case, variant: Variant) -> tuple[Workspace, Workspace] | None:
        """The workspace that a trial starts from, and as it runs; None: that of all trials."""
        if self._definition.workspaces is None:
            return None
        request = self._definition.workspaces.of(case, variant)
        try:
            found = self._resolved(request)
        except SuiteError as error:
            self._problems.update(dict.fromkeys(of_case(case, one) for one in error.problems))
            found = Workspace()
        return found, place_workspace(found, self._definition.folder, request.fields)

    def check(self) -> None:
        """Raise SuiteError with the first problems of cases, if there are any."""
        if self._problems:
            problems = list(self._problems)
            more = len(problems) - MOST_LISTED
            hint = f"{more:,} more cases have such a problem" if more > 0 else None
            raise SuiteError(problems[:MOST_LISTED], hint=hint)

    def _resolved(self, request: WorkspaceRequest) -> Workspace:
        found = self._found.get(request.record)
        if found is None:
            noted = self._start_of(request.record)
            found = stands_for(request.record, request.spot, noted, self._known)
            check_programs_within(self._definition.programs, found)
            self._found[request.record] = found
        return found

    def _start_of(self, asked: Workspace) -> RecordedStart | None:
        noted = self._noted
        if noted.ref is not None and noted.commit is not None:
            return RecordedStart(ref=noted.ref, commit=noted.commit)
        commit = noted.starts.get(_start_name(asked))
        return None if commit is None else RecordedStart(ref=asked.ref, commit=commit)

    @property
    def words(self) -> bytes:
        """A digest of all of them."""
        if self.same is not None:
            return workspace_words(self.same)
        return digest_of(sorted(workspace_words(one).hex() for one in self._found.values()))

    def noted(self, selection: Selection) -> Selection:
        """Return the selection with what a resume must know about the run's start."""
        bare = replace(selection, ref=None, commit=None, tree=None, starts={})
        if self.same is None:
            moving = (one for one in self._found.items() if one[0].ref != one[1].commit)
            starts = {_start_name(one): found.commit for one, found in moving if found.commit}
            return replace(bare, starts=starts)
        if self.same.kind is not WorkspaceKind.GIT:
            return bare
        if self.same.uncommitted:
            return replace(bare, tree=self.same.tree)
        return replace(bare, ref=self.same.ref, commit=self.same.commit)


def _start_name(asked: Workspace) -> str:
    return f"{asked.ref} of {asked.source}"


def _check_overrides(selection: Selection) -> None:
    if isinstance(selection.parallel, str) and selection.parallel != "auto":
        raise RequestError(f"parallel must be a number or 'auto', not '{selection.parallel}'")
    for name in ("repeats", "sample", "limit"):
        number = getattr(selection, name)
        if number is not None and number < 1:
            raise RequestError(f"{name} must be 1 or more, not {number}")
    timeout = selection.timeout
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise RequestError(f"the timeout must be a number of seconds greater than 0, not {timeout}")
    for name, share in (("fail-under", selection.fail_under), ("max-drop", selection.max_drop)):
        if share is not None and not 0 <= share <= 1:
            raise RequestError(f"{name} must be a number from 0 to 1, not {share}")
    usd = selection.budget_usd
    if usd is not None and not (usd > 0 and math.isfinite(usd)):
        raise RequestError(f"the budget must be a number of US dollars greater than 0, not {usd}")
    uses = [use.value for use in CacheUse]
    if selection.cache is not None and selection.cache not in uses:
        near = suggestion(selection.cache, uses)
        raise RequestError(f"unknown cache mode '{selection.cache}'{near}")


def _limits(
    definition: Definition,
    asked: Parallel | None,
    parts: Sequence[_VariantPart],
    cases: Sequence[Case],
    trials: Sequence[Trial],
) -> Limits:
    given = definition.parallel if asked is None else asked
    parallel = "auto" if given is None else given
    # A call takes next to nothing of this machine, and its account tells when it is enough.
    calls_only = all(isinstance(part.target, ChatTarget) for part in parts)
    most = MOST_CALLS if calls_only else AUTO_MOST
    known = definition.offer.registry.limits
    needs = {need for part in parts for need in part.needs}
    if definition.grading.by_case:
        needs.update(need for trial in trials for need in trial.needs)
    accounts = {need for need in needs if need.startswith(account_need(""))}
    targets = (part.target for part in parts)
    agents = {agent_need(target) for target in targets if isinstance(target, AgentTarget)}
    locks = {lock_need(name): 1 for case in cases for name in case.locks}
    return Limits(
        parallel=min(most, len(trials)) if parallel == "auto" else max(1, parallel),
        auto=parallel == "auto",
        named={**definition.named_limits, **locks},
        accounts={
            need: known.get(need, AccountLimits(paced=need not in agents))
            for need in sorted(accounts)
        },
    )


def _budget(budget: Budget | None, usd: float | None) -> Budget | None:
    if usd is None:
        return budget
    return Budget(usd=float(usd)) if budget is None else replace(budget, usd=float(usd))


# ---- selection


def _select_cases(cases: tuple[Case, ...], selection: Selection) -> Sequence[Case]:
    by_id = _matching_ids(cases, selection.cases)
    only = frozenset(selection.only)
    tags = _known_tags(cases, selection.tags)
    chosen = [
        case
        for case in cases
        if (by_id is None or case.id in by_id)
        and (not only or case.id in only)
        and (not tags or not tags.isdisjoint(case.tags))
    ]
    if not chosen:
        asked = [
            f"--case {quoted(selection.cases)}" if selection.cases else "",
            f"--tag {quoted(selection.tags)}" if selection.tags else "",
            f"the cases of the run: {quoted(selection.only, 3)}" if only else "",
        ]
        raise RequestError(f"no case matches {listed(filter(None, asked))}")
    if selection.sample is not None:
        chosen = _sample(chosen, selection.sample, selection.sample_seed or 0)
    return chosen[: selection.limit]


def _sample(cases: Sequence[Case], number: int, seed: int) -> list[Case]:
    """Return cases drawn by a hash of their ids: other cases or another order change little."""

    def rank(case: Case) -> bytes:
        return hashlib.blake2b(f"{seed}:{case.id}".encode(), digest_size=16).digest()

    drawn = {case.id for case in heapq.nsmallest(number, cases, key=rank)}
    return [case for case in cases if case.id in drawn]


def _matching_ids(cases: tuple[Case, ...], globs: tuple[str, ...]) -> set[str] | None:
    if not globs:
        return None
    ids = [case.id for case in cases]
    exact = frozenset(ids)
    chosen: set[str] = set()
    for pattern in globs:
        # An id may contain what globs have a meaning for.
        found = (
            [pattern]
            if pattern in exact
            else [name for name in ids if fnmatch.fnmatchcase(name, pattern)]
        )
        if not found:
            near = nearest(pattern.strip("*"), ids)
            hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {quoted(ids)}"
            raise RequestError(f"no case matches '{pattern}'", hint=hint)
        chosen.update(found)
    return chosen


def _known_tags(cases: tuple[Case, ...], tags: tuple[str, ...]) -> set[str]:
    known = {tag: None for case in cases for tag in case.tags} if tags else {}
    for tag in tags:
        if tag not in known:
            what_there_is = suggestion(tag, known) or "; the cases have no tags"
            raise RequestError(f"no case has the tag '{tag}'{what_there_is}")
    return set(tags)


def _with_models(
    definition: Definition, patterns: tuple[str, ...]
) -> tuple[tuple[Axis, ...], VariantTargets]:
    if patterns:
        return choose_models(definition.offer, patterns)
    return definition.axes, definition.variants


def _select_variants(
    axes: tuple[Axis, ...], possible: VariantTargets, selection: Selection, registry: Registry
) -> VariantTargets:
    wanted = _wanted_values(axes, selection.variants, registry)
    chosen = [
        (variant, target)
        for variant, target in possible
        if all(scalar_text(variant[axis]) in texts for axis, texts in wanted.items())
    ]
    if not chosen:
        asked = quoted(f"{axis}={value}" for axis, value in selection.variants)
        raise RequestError(f"no variant matches {asked}", hint="the suite excludes them")
    return chosen


def _wanted_values(
    axes: tuple[Axis, ...], pairs: tuple[tuple[str, str], ...], registry: Registry
) -> dict[str, list[str]]:
    """Return the selected values as text: in Python, True is 1 and 1 is 1.0."""
    by_name = {axis.name: axis for axis in axes}
    wanted: dict[str, list[str]] = {}
    for name, text in pairs:
        if name not in by_name:
            what_there_is = suggestion(name, by_name) or "; the suite has no matrix"
            raise RequestError(f"unknown axis '{name}'{what_there_is}")
        value = by_name[name].find(text)
        if value is None:
            what_there_is = suggestion(text, by_name[name].texts())
            hint = f"--models {text} runs this model" if text in registry.models else None
            raise RequestError(f"axis '{name}' has no value '{text}'{what_there_is}", hint=hint)
        wanted.setdefault(name, []).append(value.text)
    return wanted


def _remaining_axes(
    axes: tuple[Axis, ...], variants: VariantTargets
) -> dict[str, tuple[Scalar, ...]]:
    present = {
        axis.name: {scalar_text(variant[axis.name]) for variant, _ in variants} for axis in axes
    }
    return {
        axis.name: tuple(v.value for v in axis.values if v.text in present[axis.name])
        for axis in axes
    }


def _with_timeout(variants: VariantTargets, timeout: float | None) -> VariantTargets:
    if timeout is None:
        return variants
    made = {id(target): replace(target, timeout=float(timeout)) for _, target in variants}
    return [(variant, made[id(target)]) for variant, target in variants]


def _check_size(trials: int) -> None:
    if trials > TRIAL_LIMIT:
        raise RequestError(f"this makes {trials:,} trials; the limit is {TRIAL_LIMIT:,}")


def _check_files(
    definition: Definition, cases: Sequence[Case], variants: VariantTargets, repeats: int
) -> None:
    placed = [(variant, place_target(target, definition.folder)) for variant, target in variants]
    shared = find_shared_file(placed, cases, repeats)
    if shared is not None:
        problem = Problem(message=shared.message, file=definition.source, key="target.output")
        raise SuiteError([problem])


# ---- trials and their keys


@dataclass(frozen=True, slots=True, kw_only=True)
class _VariantPart:
    """What the trials of a variant have in common."""

    variant: Variant
    target: Target
    needs: tuple[str, ...]
    words: bytes


def _endings(
    definition: Definition, graders: tuple[GraderSpec, ...], repeats: int
) -> list[tuple[int, bytes]]:
    """Each repeat with its part of the key."""
    grading = replace(definition.grading, graders=graders, by_case={})
    words = grading_words(grading, definition.offer.registry)
    return [(repeat, words + repeat.to_bytes(8)) for repeat in range(1, repeats + 1)]


def _trials(
    definition: Definition,
    cases: Sequence[Case],
    words: Mapping[str, bytes],
    parts: Sequence[_VariantPart],
    places: _Places,
    repeats: int,
) -> tuple[Trial, ...]:
    """`words`: each case's part of the key, by id."""
    trials: list[Trial] = []
    grading = definition.grading
    usual = _endings(definition, grading.graders, repeats)
    for case in cases:
        own = grading.by_case.get(case.id) if grading.by_case else None
        endings = usual if own is None else _endings(definition, own, repeats)
        for part in parts:
            start, workspace = part.words + words[case.id], None
            if places.same is None and (own_place := places.of(case, part.variant)) is not None:
                found, workspace = own_place
                start = part.words + workspace_words(found) + words[case.id]
            needs = part.needs
            if own is not None:
                needs = _needs(definition, part.variant, part.target, own)
            if case.locks:
                needs = _with_locks(needs, case)
            for repeat, ending in endings:
                trials.append(
                    Trial(
                        index=len(trials),
                        key=trial_key(start + ending),
                        case=case,
                        variant=part.variant,
                        repeat=repeat,
                        target=part.target,
                        needs=needs,
                        exclusive=case.exclusive,
                        workspace=workspace,
                    )
                )
    return tuple(trials)


def _with_timeouts_of_cases(trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
    if all(trial.case.timeout is None for trial in trials):
        return trials
    made: dict[tuple[int, float], Target] = {}
    changed: list[Trial] = []
    for trial in trials:
        timeout = trial.case.timeout
        if timeout is None:
            changed.append(trial)
            continue
        key = (id(trial.target), float(timeout))
        if key not in made:
            made[key] = replace(trial.target, timeout=float(timeout))
        changed.append(replace(trial, target=made[key]))
    return tuple(changed)


def _with_hidden(
    definition: Definition, workspace: Workspace, trials: tuple[Trial, ...]
) -> tuple[Workspace, tuple[Trial, ...]]:
    """Return the workspace and the trials with their hidden files, which decide results."""
    if not definition.hidden:
        return workspace, trials
    finder = HiddenFinder(definition.hidden, definition.folder)
    workspace = replace(workspace, hidden=finder.same_for_all(workspace))
    differ = not workspace.hidden or bool(definition.hidden.by_case)
    others: dict[tuple[Workspace, tuple[HiddenFiles, ...]], Workspace] = {}
    made: list[Trial] = []
    for trial in trials:
        own = trial.workspace or workspace
        hidden = finder.of(trial.case, trial.variant, own)
        if hidden:
            key = trial_key(trial.key.encode() + hidden_words(hidden))
            made.append(replace(trial, key=key))
        else:
            made.append(trial)
        if differ or trial.workspace is not None:
            own = others.setdefault((own, hidden), replace(own, hidden=hidden))
            made[-1] = replace(made[-1], workspace=own)
    finder.raise_problems()
    return workspace, tuple(made)


def _with_locks(needs: tuple[str, ...], case: Case) -> tuple[str, ...]:
    return tuple(sorted({*needs, *map(lock_need, case.locks)}))


def _variant_parts(
    definition: Definition, variants: VariantTargets, workspace: Workspace | None
) -> list[_VariantPart]:
    """`workspace`: that of all trials; None: they differ."""
    placed: dict[int, Target] = {}
    """Variants that share a target still share it."""
    parts = []
    for variant, target in variants:
        if id(target) not in placed:
            placed[id(target)] = place_target(target, definition.folder)
        words = variant_words(variant, target, definition.folder, definition.offer.registry)
        parts.append(
            _VariantPart(
                variant=variant,
                target=placed[id(target)],
                needs=_needs(definition, variant, target, definition.grading.graders),
                words=words if workspace is None else words + workspace_words(workspace),
            )
        )
    return parts


def _needs(
    definition: Definition, variant: Variant, target: Target, graders: Sequence[GraderSpec]
) -> tuple[str, ...]:
    axis_limits = (limit_name(axis, value) for axis, value in variant.items())
    needs = {name for name in axis_limits if name in definition.named_limits}
    models = models_called(target, graders)
    for model in models:
        needs |= {account_need(model.account), model_need(model.name)}
    if isinstance(target, AgentTarget):
        needs |= {account_need(target.account), agent_need(target)}
        models = models_called(target, graders)[target.model is not None :]
    needs |= set(map(call_need, models))
    return tuple(sorted(needs))


def models_called(target: Target, graders: Sequence[GraderSpec]) -> list[Model]:
    """Return the registry's models that an attempt calls: its target's, then its judges'."""
    asked = target.model if isinstance(target, ChatTarget | AgentTarget) else None
    every = (one for spec in graders for one in spec.flat())
    judges = [spec.model for spec in every if spec.model is not None]
    return judges if asked is None else [asked, *judges]
