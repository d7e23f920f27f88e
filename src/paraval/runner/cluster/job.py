"""What the nodes of a cluster are sent for a run: its targets and graders, files, programs to look
for, and secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.codec import to_data
from paraval.dataclass import dataclass
from paraval.documents.variables import env_file_of
from paraval.errors import RequestError
from paraval.functions import Functions
from paraval.plan.suite import Suite
from paraval.records import (
    AgentTarget,
    ChatTarget,
    CommandTarget,
    FunctionTarget,
    Plan,
    Target,
    WorkspaceKind,
)
from paraval.runner.attempt_dirs import containers_of
from paraval.runner.cluster.backend import (
    Message,
)
from paraval.runner.cluster.files import Bundle, suite_bundle, workspace_bundle
from paraval.runner.cluster.host import (
    Job,
    target_data,
)
from paraval.runner.cluster.survey import PlanNeeds, needs_of_plan
from paraval.targets.redaction import secrets_of


def goes_to_nodes(target: Target, functions: Functions) -> bool:
    """Whether attempts at this target run on nodes: models are called from here, so that limits by
    account are exact, and functions passed as objects exist only here."""
    if isinstance(target, FunctionTarget):
        return target.reference not in functions
    return not isinstance(target, ChatTarget)


# ---- what nodes are sent


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """What every node needs to know about a run, whatever its number."""

    plan: Plan
    """With the workspace as nodes have it."""
    targets: tuple[Target, ...]
    """Those that go to nodes."""
    bundles: tuple[Bundle, ...]
    needs: PlanNeeds
    env: Mapping[str, str]
    redacted: tuple[str, ...] = ()
    performer: str | None = None
    """As in `Job`, with its details."""
    details: Any = None

    def opening(self, run_id: str, node: str) -> Message:
        plan = self.plan
        job = Job(
            run_id=run_id,
            node=node,
            name=plan.name,
            source=plan.source,
            grading=plan.grading,
            workspace=plan.workspace,
            parallel=plan.limits.parallel,
            auto=plan.limits.auto,
            bundles=tuple(bundle.header for bundle in self.bundles),
            performer=self.performer,
            details=self.details,
        )
        targets = [target_data(target) for target in self.targets]
        return Message.of(job=to_data(job), targets=targets)


def node_job(suite: Suite, plan: Plan, store: Path) -> NodeJob:
    """Pack what nodes need. Raises RequestError if the plan cannot run on nodes."""
    targets = [
        target
        for target in {id(trial.target): trial.target for trial in plan.trials}.values()
        if goes_to_nodes(target, suite.functions)
    ]
    if targets:
        _check_graders(plan, suite.functions)
        if any(trial.workspace is not None for trial in plan.trials):
            raise RequestError(
                "workspace: trials with different workspaces cannot run on a cluster",
                hint="run them on one machine, or make a suite for each repository",
            )
    bundles: list[Bundle] = []
    if targets:
        bundles.append(suite_bundle(Path(suite.definition.folder), plan.send, store=store))
        packed = workspace_bundle(plan.workspace)
        if packed is not None:
            bundles.append(packed[0])
            plan = replace(plan, workspace=packed[1])
    return NodeJob(
        plan=plan,
        targets=tuple(targets),
        bundles=tuple(bundles),
        needs=needs_of_plan(plan),
        env=_variables(plan, targets),
        redacted=tuple(dict.fromkeys(secrets_of(plan, os.environ))),
    )


def _check_graders(plan: Plan, functions: Functions) -> None:
    if containers_of(plan):
        raise RequestError(
            "workspace.container: attempts on the nodes of a cluster cannot run in containers",
            hint="run the suite without --cluster, or use sandbox: true",
        )
    for spec in plan.grading.every:
        if spec.kind == "python" and spec.options.get("function") in functions:
            raise RequestError(
                f"grader '{spec.name}' is a function object, which nodes of a cluster do not have",
                hint="name it as module:function",
            )
        works_there = any(part.kind in ("python", "command") for part in spec.flat())
        asks_here = any(part.model is not None for part in spec.flat())
        if works_there and asks_here and plan.workspace.kind is not WorkspaceKind.NONE:
            raise RequestError(
                f"grader '{spec.name}' combines a model with a program: on a cluster, programs"
                " grade on the node and models are asked here",
                hint="make them two graders",
            )


def _variables(plan: Plan, targets: list[Target]) -> dict[str, str]:
    """The variables that attempts on nodes need from this environment."""
    names = set() if plan.source is None else set(env_file_of(Path(plan.source).parent))
    found: dict[str, str] = {}
    for target in targets:
        if isinstance(target, CommandTarget | FunctionTarget | AgentTarget):
            names.update(target.pass_env)
        if isinstance(target, AgentTarget):
            if target.model is not None:
                names.add(target.model.api_key_env or "")
            else:
                from paraval.agents.catalog import AGENTS, keys_for  # noqa: PLC0415 - slow to load

                found.update(keys_for(AGENTS[target.agent], os.environ))
    for spec in plan.grading.every:
        names.update(spec.options.get("pass_env") or ())
    return found | {name: os.environ[name] for name in names if name in os.environ}
