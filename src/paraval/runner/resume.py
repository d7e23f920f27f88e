"""Resumes a run: which one, with which plan, and with which of its results.

A resume keeps the run's plan. Filters given with it narrow what runs now, not what the run is: paid
results stay in the report.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.plan.build import draft_plan
from paraval.plan.suite import Suite
from paraval.records import Plan, RunInfo
from paraval.settings import Options, Selection, default_store
from paraval.store.store import Store
from paraval.text.words import some

# Files of a working tree that differ from its index, for a message.


def changed_files(source: str, *, since: float | None) -> list[str]:
    """Paths of changed or new files that git does not ignore; if some are newer than `since`
    (seconds since the epoch), only those."""
    paths = [
        *_listed(source, "diff-files", "-z", "--name-only"),
        *_listed(source, "ls-files", "-z", "--others", "--exclude-standard"),
    ]
    if since is None:
        return paths
    return [path for path in paths if _changed_at(Path(source, path)) >= since] or paths


def _listed(source: str, *asked: str) -> Iterator[str]:
    from paraval.git.run_git import run_git  # noqa: PLC0415 - seldom needed

    for path in run_git(asked, cwd=source).stdout.split(b"\0"):
        if path:
            yield path.decode(errors="backslashreplace")


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.lstat().st_mtime
    return 0.0


MOST_NAMED = 3


def how_to_resume(info: RunInfo) -> str:
    """The command that resumes a run from the current folder."""
    store = Path(info.folder).parent.parent
    if store == default_store().absolute():
        return f"paraval resume {info.id}"
    return f"paraval resume {info.id} --store {shlex.quote(str(store))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What a run belongs to."""

    kind: str
    """As shown in messages: suite, race."""
    name: str
    source: str | None
    """Its file; None: made in Python, or by flags."""
    grows: bool = False
    """True: the trials of its runs are named while they run."""

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}'"


def run_to_resume(store: Store, suite: Suite, options: Options) -> RunInfo:
    """The run to resume, if it belongs to this suite."""
    return run_of(store, Owner(kind="suite", name=suite.name, source=suite.source), options)


def run_of(store: Store, owner: Owner, options: Options) -> RunInfo:
    """The run to resume, if it belongs to this owner."""
    name = options.resume or ""
    if name in ("", "last"):
        return _newest(store, owner, finished_too=name == "last" or options.rerun is not None)
    info = store.find(name)
    if Path(info.folder).parent != store.runs_folder:
        raise RequestError(
            f"run {info.id} at {info.folder} is not in the store {store.root}",
            hint=f"copy its folder to {store.runs_folder / info.id}, or pass its --store",
        )
    grows = store.grows(info)
    if not _is_of(info, owner) or grows is not owner.grows:
        kind = owner.kind if grows is owner.grows else "race" if grows else "suite"
        raise RequestError(
            f"run {info.id} belongs to {kind} '{info.suite}' ({_made(info.source)}),"
            f" not to {_of(owner, kind)} ({_made(owner.source)})"
        )
    return info


def _made(source: str | None) -> str:
    return source or "made in Python"


def _of(owner: Owner, kind: str) -> str:
    """The owner; its kind is shown only if it differs."""
    return f"'{owner.name}'" if kind == owner.kind else str(owner)


def _newest(store: Store, owner: Owner, *, finished_too: bool) -> RunInfo:
    for info in store.runs():
        wanted = finished_too or _is_unfinished(info)
        if wanted and _is_of(info, owner) and store.grows(info) is owner.grows:
            return info
    kind = "run" if finished_too else "unfinished run"
    raise RequestError(
        f"{owner} has no {kind} in {store.root}",
        hint="start a new run",
    )


def _is_unfinished(info: RunInfo) -> bool:
    """An open-ended run may have a result for each trial and still not be over."""
    return info.done < info.trials or info.interrupted or info.held_back or info.running


def _is_of(info: RunInfo, owner: Owner) -> bool:
    """Whether a run belongs to this owner: by its name, and by its file unless that was moved
    away."""
    if info.suite != owner.name:
        # Runs from before a suite.yaml without a name was called after its folder.
        is_former = info.source is not None and info.suite == Path(info.source).stem
        return is_former and info.source == owner.source
    if info.source is None or owner.source is None:
        return info.source == owner.source
    return info.source == owner.source or not Path(info.source).exists()


def resumed_plan(
    suite: Suite, asked: Selection, earlier: Selection, run: RunInfo | None = None
) -> Plan:
    """The run's plan as the suite makes it now, with the new settings that don't shrink it.

    It starts from the commit recorded in the run. A changed working tree cannot be restored: such a
    resume is refused instead of silently starting over.
    """
    kept = replace(
        earlier,
        parallel=asked.parallel if asked.parallel is not None else earlier.parallel,
        timeout=asked.timeout if asked.timeout is not None else earlier.timeout,
        fail_under=asked.fail_under if asked.fail_under is not None else earlier.fail_under,
        baseline=asked.baseline if asked.baseline is not None else earlier.baseline,
        max_drop=asked.max_drop if asked.max_drop is not None else earlier.max_drop,
        max_regressed=earlier.max_regressed if asked.max_regressed is None else asked.max_regressed,
        budget_usd=asked.budget_usd if asked.budget_usd is not None else earlier.budget_usd,
        cache=asked.cache if asked.cache is not None else earlier.cache,
        repeats=_repeats(suite, asked, earlier),
    )
    plan = draft_plan(suite, kept)
    now = plan.workspace
    if earlier.tree is not None and now.uncommitted and now.tree != earlier.tree:
        raise _other_tree(now.source or "", run)
    return plan


def _other_tree(source: str, run: RunInfo | None) -> RequestError:
    newer = changed_files(source, since=None if run is None else run.started_at)
    which = f" ({some(newer, MOST_NAMED)})" if newer else ""
    results = "its results were" if run is None else _results(run)
    began = "the run" if run is None else f"run {run.id}"
    return RequestError(
        f"the working tree of {source} has changed since {began} began{which};"
        f" {results} from the old tree",
        hint="restore the tree, or start a new run",
    )


def _results(run: RunInfo) -> str:
    return "its one result was" if run.done == 1 else f"its {run.done:,} results were"


def _repeats(suite: Suite, asked: Selection, earlier: Selection) -> int | None:
    if asked.repeats is None:
        return earlier.repeats
    before = earlier.repeats if earlier.repeats is not None else suite.repeats
    if asked.repeats < before:
        raise RequestError(
            f"the run has {before} repeats; --repeats {asked.repeats} would drop results",
            hint="a resume can only add repeats; start a new run for fewer",
        )
    return asked.repeats


def chosen_now(suite: Suite, asked: Selection, plan: Plan) -> frozenset[int] | None:
    """The trials that the filters of a resume select to run now; None: all of them."""
    parts = (asked.cases, asked.tags, asked.variants, asked.models, asked.sample, asked.limit)
    if not any(parts):
        return None
    planned = Selection.from_mapping(plan.selection)
    filters = replace(
        planned,
        cases=asked.cases,
        tags=asked.tags,
        only=tuple({trial.case.id: None for trial in plan.trials}),
        sample=asked.sample,
        sample_seed=asked.sample_seed,
        limit=asked.limit,
        variants=asked.variants,
        models=asked.models or planned.models,
    )
    keys = {trial.key for trial in draft_plan(suite, filters).trials}
    return frozenset(trial.index for trial in plan.trials if trial.key in keys)
