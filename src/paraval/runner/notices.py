"""Notices for the user before a run begins, each a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paraval.execute.listeners import rate_words
from paraval.plan.agents import agents_ignoring_retries, unbounded_agents
from paraval.plan.suite import Suite
from paraval.processes.enforcement import Means, limits_enforced
from paraval.records import (
    AgentTarget,
    CommandTarget,
    FoundLimit,
    Plan,
    TargetLimits,
    WorkspaceKind,
    call_need,
)
from paraval.schedule.accounts import called
from paraval.settings import MODELS_VARIABLE, Selection, models_from_environment
from paraval.store.ledger import Ledger
from paraval.text.words import counted, rough_time, some

# Limits in a plan that this machine does not enforce.


def unenforced(plan: Plan) -> str | None:
    """A notice about `limits: {memory, processes}`; None if all are enforced."""
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
    reserved = "; memory is still reserved" if "memory" in asked else ""
    return (
        f"{' and '.join(loose)} {are} not enforced here: no writable cgroup"
        f" (see paraval doctor){reserved}."
    )


def _asked(limits: TargetLimits) -> list[str]:
    given = {"memory": limits.memory_bytes, "processes": limits.processes}
    return [key for key, value in given.items() if value is not None]


def of_the_request(suite: Suite, asked: Selection) -> Iterator[str]:
    named = models_from_environment() if suite.has_models != suite.chooses_models else ()
    if named and not asked.models:
        yield f"{MODELS_VARIABLE} is ignored: this suite has no choice of models."


def of_a_resume(ledger: Ledger, to_run: int) -> Iterator[str]:
    if not ledger.run.resumed:
        return
    done, total = len(ledger.done), len(ledger.plan.trials)
    ended = f"{done:,} of {counted(total, 'trial')} done"
    if to_run:
        yield f"Resuming run {ledger.run.id}: {ended}, {to_run:,} to run now."
    else:
        yield f"Nothing to run in {ledger.run.id}: {ended}."
    if ledger.changed:
        yield f"Changed since the run began: {counted(ledger.changed, 'trial')}, to be run again."
    if ledger.dropped:
        yield (
            f"{counted(ledger.dropped, 'result')} left out of the report: no longer in the suite."
        )


def of_the_plan(plan: Plan) -> Iterator[str]:
    """Models that do not run, and limits that cannot be enforced."""
    if plan.models is not None:
        yield f"{plan.models.sentence}."
    for name in unbounded_agents(plan):
        yield f"{name} does not support max_turns: only the timeout limits its attempts."
    for ignored in agents_ignoring_retries(plan):
        yield f"{ignored}: it cannot be told how often to repeat a call."
    loose = unenforced(plan)
    if loose is not None:
        yield loose
    yield from of_hidden_tests(plan)


def of_hidden_tests(plan: Plan) -> Iterator[str]:
    """A warning that attempts can read hidden files, or files that their graders use from the
    suite's folder."""
    workspaces = [plan.workspace, *(it.workspace for it in plan.trials if it.workspace)]
    open_ones = [one for one in workspaces if not (one.sandbox or one.container)]
    if plan.workspace.kind is WorkspaceKind.NONE or not open_ones:
        return
    if hidden := [files.source for one in open_ones for files in one.hidden]:
        yield (
            "Without workspace.sandbox: true or a container, attempts can read the hidden files:"
            f" {some(list(dict.fromkeys(hidden)), 2)}."
        )
        return
    takes = any(
        spec.kind == "command" and any(spec.folder in word for word in spec.options["command"])
        for spec in plan.grading.every
    )
    if takes and any(isinstance(it.target, AgentTarget | CommandTarget) for it in plan.trials):
        yield (
            "Without workspace.sandbox: true, attempts can read the files beside the suite, such"
            " as the tests that a grader runs there."
        )


def of_found_limits(plan: Plan, found: Mapping[str, FoundLimit]) -> Iterator[str]:
    """Where models start that have no configured rate; in a regrade, only judges are called."""
    judges = {call_need(one.model) for one in plan.grading.every if one.model is not None}
    for name, limit in found.items():
        is_called = plan.regraded_from is None or name in judges
        if is_called and plan.limits.accounts[name].requests_per_minute is None:
            pace = rate_words(limit.requests_per_minute)
            yield f"{called(name)} starts at {pace}, found {rough_time(limit.age_s)} ago."


def of_the_machine(plan: Plan, at_once: int) -> Iterator[str]:
    wanted = min(plan.limits.parallel, len(plan.trials))
    if at_once < wanted:
        yield (
            f"Running {at_once:,} instead of {wanted:,} in parallel: no more files may be open"
            " (ulimit -Hn)."
        )
