"""Read limits, retries, the budget, the cache and early stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paraval.documents.forms import Locate, check
from paraval.documents.problems import Location, shown
from paraval.documents.scalars import scalar_text
from paraval.plan.matrix import Axis, find_value
from paraval.plan.schema.suite_form import (
    BudgetForm,
    CacheForm,
    LimitsForm,
    RetryForm,
    StopForm,
)
from paraval.plan.schema.target_forms import ErrorsForm, TargetLimitsForm
from paraval.records import (
    Budget,
    CacheUse,
    Outcome,
    RetryPolicy,
    Scalar,
    StopRule,
    TargetLimits,
)
from paraval.settings import Parallel
from paraval.text.suggest import suggestion

# Resources of one attempt, from the target.


def read_errors(written: Any, locate: Locate) -> tuple[Outcome, ...]:
    """Return the errors that count as failures."""
    if written is None:
        return ()
    spot = locate(("errors",))
    form = check(ErrorsForm, written, spot, lambda steps: locate(("errors", *steps)))
    if form is None:
        return ()
    return tuple(Outcome(name) for name, how in form if how == "fail")


def read_target_limits(written: Any, locate: Locate) -> TargetLimits:
    at_limits: Locate = lambda steps: locate(("limits", *steps))  # noqa: E731 - a name for one use
    form = None if written is None else check(TargetLimitsForm, written, at_limits(()), at_limits)
    if form is None:
        return TargetLimits()
    return TargetLimits(
        cpu=None if form.cpu is None else float(form.cpu),
        memory_bytes=form.memory,
        processes=None if form.processes is None else int(form.processes),
        open_files=None if form.open_files is None else int(form.open_files),
        file_bytes=form.file_size,
    )


# When a run may stop early.


def read_stop(written: Any, spot: Location, axes: Sequence[Axis]) -> StopRule | None:
    """Read the rule; a run with only one variant has nothing to decide."""
    form = None if written is None else check(StopForm, written, spot)
    if form is None:
        return None
    if all(len(axis.values) < 2 for axis in axes):
        spot.report(
            "needs something to compare; give 'matrix' an axis with at least two values, or remove"
            " 'stop'"
        )
    return StopRule(confidence=float(form.confidence))


def read_limits(
    written: Any, spot: Location, axes: Sequence[Axis]
) -> tuple[Parallel | None, dict[str, int]]:
    """Return the number of parallel attempts, if set, and the limits per axis value."""
    by_name = {axis.name: axis for axis in axes}
    if isinstance(written, Mapping):
        written = _known_limits(written, spot, ["parallel", *by_name])
    form = None if written is None else check(LimitsForm, written, spot)
    if form is None:
        return None, {}
    named: dict[str, int] = {}
    for name, values in (form.model_extra or {}).items():
        for text, limit in values.items():
            value = find_value(by_name, name, text, spot.at(name, text))
            if value is not None:
                named[limit_name(name, value.value)] = int(limit)
    return form.parallel if form.parallel in (None, "auto") else int(form.parallel), named


def _known_limits(
    written: Mapping[str, Any], spot: Location, known: Sequence[str]
) -> Mapping[str, Any]:
    """Check limits on axes; axis values are text here, but not in Python."""
    for name in written:
        if name not in known:
            spot.at(str(name)).report(f"unknown axis '{name}'{suggestion(str(name), known)}")
    return {
        name: {scalar_text(value): limit for value, limit in limits.items()}
        if isinstance(limits, Mapping)
        else limits
        for name, limits in written.items()
        if name in known
    }


def limit_name(axis: str, value: Scalar) -> str:
    """Return the name of an axis value's limit in records: `mode=with-tool`."""
    return f"{axis}={scalar_text(value)}"


def read_retry(written: Any, spot: Location) -> RetryPolicy:
    form = None if written is None else check(RetryForm, written, spot)
    if form is None:
        return RetryPolicy()
    if form.longest_delay < form.first_delay:
        spot.at("longest_delay").report(
            f"must be at least first_delay ({form.first_delay:g}), not {form.longest_delay:g}"
        )
    return RetryPolicy(
        attempts=int(form.attempts),
        on=frozenset(Outcome(name) for name in form.on),
        first_delay_s=float(form.first_delay),
        longest_delay_s=float(form.longest_delay),
    )


def read_cache(written: Any, spot: Location) -> tuple[CacheUse, int]:
    """How cached answers are used, and how many bytes they may take."""
    if isinstance(written, str) and written in [use.value for use in CacheUse]:
        written = {"mode": written}
    elif not (written is None or isinstance(written, Mapping)):
        spot.report(f"must be 'reuse', 'refresh', 'off' or a mapping, not {shown(written)}")
        written = None
    form = check(CacheForm, written or {}, spot)
    return (CacheUse.REUSE, 0) if form is None else (CacheUse(form.mode), form.max_size)


def read_budget(written: Any, spot: Location) -> Budget | None:
    form = None if written is None else check(BudgetForm, written, spot)
    if form is None:
        return None
    each = form.per_attempt_usd
    if each is not None and each > form.usd:
        spot.at("per_attempt_usd").report(f"must be at most usd ({form.usd:g}), not {each:g}")
    return Budget(usd=float(form.usd), per_attempt_usd=None if each is None else float(each))
