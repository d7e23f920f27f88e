"""The baseline of a run: chosen when the run begins, so that a resume and every report judge it the
same, and checked before anything is spent."""

from __future__ import annotations

import math
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError, why
from paraval.records import Baseline, Plan, RunInfo
from paraval.report.baseline_gate import points
from paraval.report.compare.case_pairs import shared_variants
from paraval.report.compare.case_results import CaseBook, variant_key
from paraval.report.contents import RunSource, book_of
from paraval.settings import DEFAULT_MAX_DROP, Selection, is_report_file
from paraval.statistics.anytime import betting_interval
from paraval.statistics.drops import pairs_to_tell
from paraval.statistics.rates import apart, repeats_step
from paraval.store.baselines import Baselines
from paraval.store.store import Store
from paraval.text.words import counted

_HOW_TO_SET = "paraval baseline set RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBaseline:
    """A run's baseline, and notices about it."""

    baseline: Baseline | None = None
    notices: tuple[str, ...] = ()


def resolve_baseline(
    plan: Plan, asked: Selection, store: Store, resumed: RunInfo | None
) -> ResolvedBaseline:
    """The baseline of a new or resumed run; raises RequestError if the requested one is not
    available."""
    if _is_asked(asked):
        return ResolvedBaseline(baseline=resolve_baseline_for(resumed, asked, store, plan=plan))
    if resumed is not None:
        return ResolvedBaseline(baseline=resumed.baseline)
    if plan.max_drop is None and plan.max_regressed is None:
        return ResolvedBaseline()
    known = Baselines(store.root).of(plan.name)
    if known is None:
        key = "max_drop" if plan.max_regressed is None else "max_regressed"
        notice = (
            f"{key} is not checked: suite '{plan.name}' has no baseline."
            f" Set one with: {_HOW_TO_SET}"
        )
        return ResolvedBaseline(notices=(notice,))
    return ResolvedBaseline(
        baseline=Baseline(
            name=_set(known.run, plan.name, store),
            max_drop=plan.max_drop,
            max_regressed=plan.max_regressed,
        )
    )


def _is_asked(asked: Selection) -> bool:
    return any(one is not None for one in (asked.baseline, asked.max_drop, asked.max_regressed))


def resolve_baseline_for(
    run: RunInfo | None, asked: Selection, store: Store, *, plan: Plan | None = None
) -> Baseline | None:
    """The baseline that the flags ask for, for a new run (with a plan) or an existing one."""
    own = None if run is None else run.baseline
    if asked.baseline == "":
        return None
    if not _is_asked(asked):
        return own
    max_regressed = _max_regressed(asked, own, plan)
    max_drop = _max_drop(asked, own, plan, or_default=max_regressed is None)
    if asked.baseline is None and own is not None:
        return replace(own, max_drop=max_drop, max_regressed=max_regressed)
    if asked.baseline is not None:
        name = _named(asked.baseline, store)
    else:
        suite = _suite_of(run, plan)
        known = Baselines(store.root).of(suite)
        if known is None:
            raise RequestError(
                f"{_option(asked)}: suite '{suite}' has no baseline",
                hint=f"name one with --baseline RUN|FILE, or set one with: {_HOW_TO_SET}",
            )
        name = _set(known.run, suite, store)
    if run is not None and name in (run.id, run.folder):
        raise RequestError(
            f"run {run.id} cannot be its own baseline",
            hint="name another run; list them with: paraval runs",
        )
    return Baseline(name=name, max_drop=max_drop, max_regressed=max_regressed)


def _option(asked: Selection) -> str:
    if asked.max_drop is not None:
        return f"--max-drop {asked.max_drop:g}"
    return f"--max-regressed {asked.max_regressed}"


def _suite_of(run: RunInfo | None, plan: Plan | None) -> str:
    if plan is not None:
        return plan.name
    assert run is not None, "it begins, with a plan, or it is there already"
    return run.suite


def _max_regressed(asked: Selection, own: Baseline | None, plan: Plan | None) -> int | None:
    if asked.max_regressed is not None:
        if asked.max_regressed < 0:
            raise RequestError(f"max-regressed must be 0 or more, not {asked.max_regressed}")
        return asked.max_regressed
    if plan is not None:
        return plan.max_regressed
    return None if own is None else own.max_regressed


def _max_drop(
    asked: Selection, own: Baseline | None, plan: Plan | None, *, or_default: bool
) -> float | None:
    if asked.max_drop is not None:
        if not 0 <= asked.max_drop <= 1:
            raise RequestError(f"max-drop must be a number from 0 to 1, not {asked.max_drop}")
        return asked.max_drop
    if plan is not None and plan.max_drop is not None:
        return plan.max_drop
    if own is not None and asked.max_regressed is None:
        return own.max_drop
    return DEFAULT_MAX_DROP if or_default else None


def _named(asked: str, store: Store) -> str:
    """The form that a run stores: an id, or an absolute path."""
    if is_report_file(asked):
        path = Path(asked).absolute()
        if (why_not := _why_no_file(path)) is not None:
            raise RequestError(f"--baseline {asked}: {why_not}")
        return str(path)
    info = store.find(asked)
    if store.grows(info):
        raise RequestError(f"--baseline {asked}: run {info.id} is a race, not a run of a suite")
    if info.running:
        raise RequestError(
            f"--baseline {asked}: run {info.id} is still running",
            hint="wait until it has finished: its results are still changing",
        )
    is_here = Path(info.folder).parent == store.runs_folder
    return info.id if is_here else info.folder


def _why_no_file(path: Path) -> str | None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "no such file"
    except (OSError, ValueError) as error:  # a loop of links; a name that no file system accepts
        return why(error)
    if stat.S_ISDIR(mode):
        return "it is a folder, not a report"
    # It is read more than once, which is impossible with a pipe.
    return None if stat.S_ISREG(mode) else "it is not a regular file"


def _set(name: str, suite: str, store: Store) -> str:
    """A baseline that was set earlier and may be gone by now."""
    try:
        return _named(name, store)
    except RequestError as error:
        raise RequestError(
            f"the baseline of suite '{suite}' cannot be used: {error.message}",
            hint=f"set another with: {_HOW_TO_SET}; or skip the comparison with --no-baseline",
        ) from error


# ---- whether it is usable


def check_baseline(
    plan: Plan, baseline: Baseline, baseline_of: Callable[[str], RunSource]
) -> Iterator[str]:
    """Notices about the baseline before the run; raises RequestError if nothing could be
    compared."""
    wavering, cases = _shared_cases(plan, _read(baseline, baseline_of), baseline)
    if len(wavering) < cases:
        yield (
            f"Only {len(wavering):,} of {counted(cases, 'case')} can be compared with the"
            " baseline: it has no verdict on the others."
        )
    if baseline.max_drop is None:
        return
    if plan.stop is None:
        yield from _too_few(wavering, baseline.max_drop)
    else:
        yield from _too_few_at_any_time(len(wavering), baseline.max_drop)


def _too_few(wavering: Sequence[float], max_drop: float) -> Iterator[str]:
    shared = len(wavering)
    step = repeats_step(0.0, math.fsum(wavering))
    more = pairs_to_tell([0.0] * shared, -max_drop, step=step)
    if more:
        yield (
            f"Even if no case changes, {counted(shared, 'case')} cannot rule out a drop of more"
            f" than {points(max_drop)}; {counted(more, 'more case')} could."
        )
    elif more is None:
        yield (
            f"Unless the pass rate rises, no number of cases rules out a drop of more than"
            f" {points(max_drop)}."
        )


def _too_few_at_any_time(shared: int, max_drop: float) -> Iterator[str]:
    """For a run that may stop early: its intervals are valid at any time, which takes more
    cases."""
    low, _ = betting_interval([0.0] * shared)
    if low <= -max_drop:
        yield (
            f"Even if no case changes, {counted(shared, 'case')} of a run that may stop early"
            f" cannot rule out a drop of more than {points(max_drop)}."
        )


def _read(baseline: Baseline, baseline_of: Callable[[str], RunSource]) -> CaseBook:
    try:
        return book_of(baseline_of(baseline.name))
    except ParavalError as error:
        raise RequestError(
            f"baseline {baseline.name} cannot be used: {error.message}",
            hint="name another with --baseline, or skip the comparison with --no-baseline",
        ) from error


def _shared_cases(plan: Plan, book: CaseBook, baseline: Baseline) -> tuple[list[float], int]:
    """For each case of the plan that the baseline judged: how flaky it was there, by its repeats.
    And the number of cases in the plan."""
    now = {variant_key(variant): variant for variant in plan.variants}
    shared = shared_variants(now, book.variants)
    if not shared:
        raise RequestError(
            f"baseline {baseline.name} has no variant in common with this run",
            hint="choose the same with --variant or --models, or name another with --baseline",
        )
    cases = {trial.case.id for trial in plan.trials}
    wavering = []
    for case, cells in book.rows():
        rates = [cells[key].rate for key in shared.values() if key in cells]
        judged = [apart(rate, rate) for rate in rates if rate is not None]
        if case in cases and judged:
            wavering.append(fmean(judged))
    if not wavering:
        raise RequestError(
            f"baseline {baseline.name} has no verdict on any case of this run",
            hint="name another with --baseline; list runs with: paraval runs",
        )
    return wavering, len(cases)
