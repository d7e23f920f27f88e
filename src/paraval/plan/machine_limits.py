"""Limits that a plan asks for and this machine does not enforce: for a notice before a run."""

from __future__ import annotations

from paraval.isolation import TargetLimits
from paraval.processes.enforcement import Means, limits_enforced
from paraval.records import AgentTarget, CommandTarget, Plan


def unenforced(plan: Plan) -> str | None:
    """What a person should know of `limits: {memory, processes}`; None where all is held to."""
    targets = {id(trial.target): trial.target for trial in plan.trials}.values()
    limits = [one.limits for one in targets if isinstance(one, CommandTarget | AgentTarget)]
    asked = {key for one in limits for key in _asked(one)}
    if not asked:
        return None
    here = limits_enforced()
    means = {"memory": here.memory, "processes": here.processes}
    loose = [f"limits.{key}" for key, by in means.items() if key in asked and by is Means.NONE]
    if not loose:
        return None
    are = "is" if len(loose) == 1 else "are"
    reserved = "; memory is reserved all the same" if "memory" in asked else ""
    return (
        f"{' and '.join(loose)} {are} not enforced here: no cgroup can be written to"
        f" (paraval doctor tells more){reserved}."
    )


def _asked(limits: TargetLimits) -> list[str]:
    given = {"memory": limits.memory_bytes, "processes": limits.processes}
    return [key for key, value in given.items() if value is not None]
