"""What the nodes of a cluster have, and what a plan would miss there: asked before a run, by
`paraval plan` and by `paraval doctor`."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.machine.machine_reader import MachineReader
from paraval.processes.sandbox import why_no_sandbox
from paraval.records import AgentTarget, CommandTarget, MachineReading, Plan, WorkspaceKind
from paraval.runner.cluster.backend import Backend, ClusterNode, HostHandle, Message
from paraval.scratch import scratch_base
from paraval.settings import AUTO_LEAST_MOST, AUTO_MOST_PER_CORE, Options
from paraval.templates.template import TemplateError, field_names

FACTS = "facts"
"""The host's method: see `answer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNeeds:
    """What a plan needs on every node, besides the files that are sent there."""

    programs: tuple[str, ...] = ()
    """Names to find on PATH, and absolute paths."""
    agents: tuple[str, ...] = ()
    sandbox: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node has, as its host reports it. A host starts only if paraval is the same there."""

    python: str
    git: str | None
    """Its path; None: not installed."""
    sandbox: str | None
    """Why attempts cannot be sandboxed there; None: they can."""
    machine: MachineReading
    scratch: str
    """Where attempts have their temporary folders ..."""
    free_bytes: int
    """... and how much room there is."""
    clock_s: float
    """Seconds since the epoch, when it answered."""
    missing: tuple[str, ...] = ()
    """What the plan needs and the node lacks, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeForecast:
    """A node as a run would find it."""

    name: str
    facts: NodeFacts | None = None
    """None: no host runs there."""
    problem: str | None = None
    """Why no host runs there."""
    slots: int = 0
    """How many attempts it may run in parallel; 0: it cannot run any."""
    clock_skew_s: float = 0.0
    """How far its clock is ahead of this machine's, give or take the time of an answer."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Why it would be left out of a run."""
        if self.facts is None:
            return (self.problem or "no host runs there",)
        return self.facts.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterForecast:
    """The nodes of a cluster, by name."""

    nodes: tuple[NodeForecast, ...]

    @property
    def slots(self) -> int:
        return sum(node.slots for node in self.nodes)


# ---- the engine's side


def needs_of_plan(plan: Plan) -> PlanNeeds:
    """What nodes must have installed for a plan's trials."""
    targets = {id(trial.target): trial.target for trial in plan.trials}.values()
    agents = [target for target in targets if isinstance(target, AgentTarget)]
    programs = [one.program[0] for one in agents if one.program]
    programs += [one.custom.command[0] for one in agents if one.custom is not None]
    programs += [server.command[0] for one in agents for server in one.mcp if server.command]
    programs += plan.workspace.setup[:1]
    programs += [
        target.command[0]
        for target in targets
        if isinstance(target, CommandTarget) and not target.shell
    ]
    programs += [
        spec.options["command"][0] for spec in plan.grading.every if spec.kind == "command"
    ]
    if plan.workspace.kind is WorkspaceKind.GIT:
        programs.append("git")
    folder = Path(plan.source or os.sep).parent
    return PlanNeeds(
        programs=tuple(dict.fromkeys(_installed(programs, folder))),
        agents=tuple(dict.fromkeys(one.agent for one in agents if not one.program)),
        sandbox=plan.workspace.sandbox,
    )


def _installed(programs: Iterable[str], folder: Path) -> Iterator[str]:
    """Programs that are not filled in for each attempt, nor sent with the suite's folder."""
    for program in programs:
        try:
            is_filled_in = bool(field_names(program))
        except TemplateError:
            continue
        is_sent = "/" in program and (
            not Path(program).is_absolute() or Path(program).is_relative_to(folder)
        )
        if not is_filled_in and not is_sent:
            yield program


def slots_on(plan: Plan | None, machine: MachineReading) -> int:
    """How many attempts of a plan a machine may run in parallel; with limits `auto`, at most."""
    if plan is None or plan.limits.auto:
        return max(AUTO_LEAST_MOST, int(AUTO_MOST_PER_CORE * machine.cpus))
    return plan.limits.parallel


async def survey(
    plan: Plan | None, options: Options, say: Callable[[str], object]
) -> ClusterForecast:
    """Connect to the cluster of the options, and ask its nodes."""
    # Only here: few runs have a cluster.
    from paraval.runner.cluster.ray_backend import connect  # noqa: PLC0415 - see above

    assert options.cluster is not None, "asked of a run on a cluster"
    async with connect(options.cluster, insecure=options.insecure_cluster, say=say) as backend:
        return await survey_nodes(backend, plan)


async def survey_nodes(backend: Backend, plan: Plan | None) -> ClusterForecast:
    """Ask every node what it has; `plan`: and what of it the node lacks."""
    needs = PlanNeeds() if plan is None else needs_of_plan(plan)
    nodes = sorted(await backend.nodes(), key=lambda node: node.name)
    return ClusterForecast(
        nodes=tuple(
            await asyncio.gather(*(_survey_node(backend, node, needs, plan) for node in nodes))
        )
    )


async def _survey_node(
    backend: Backend, node: ClusterNode, needs: PlanNeeds, plan: Plan | None
) -> NodeForecast:
    host: HostHandle | None = None
    try:
        host = await backend.start_host(node)
        asked_at = time.time()
        facts = await facts_of(host, needs)
        skew_s = facts.clock_s - (asked_at + time.time()) / 2
    except ParavalError as error:
        return NodeForecast(
            name=node.name, problem=error.message.removeprefix(f"node {node.name}: ")
        )
    finally:
        if host is not None:
            host.kill()
    slots = 0 if facts.missing else slots_on(plan, facts.machine)
    return NodeForecast(name=node.name, facts=facts, slots=slots, clock_skew_s=skew_s)


async def facts_of(host: HostHandle, needs: PlanNeeds) -> NodeFacts:
    """Ask a host what its node has."""
    told = await host.call(FACTS, Message(text=json.dumps(to_data(needs))))
    return from_data(NodeFacts, json.loads(told.text))


# ---- the node's side


def answer(message: Message) -> Message:
    """The host's answer to `FACTS`; takes as long as a sandbox takes to try."""
    return Message(text=json.dumps(to_data(_facts(from_data(PlanNeeds, json.loads(message.text))))))


def _facts(needs: PlanNeeds) -> NodeFacts:
    sandbox, scratch = why_no_sandbox(), scratch_base()
    return NodeFacts(
        python=platform.python_version(),
        git=shutil.which("git"),
        sandbox=sandbox,
        machine=MachineReader().read({}),
        scratch=str(scratch),
        free_bytes=shutil.disk_usage(scratch).free,
        missing=tuple(_missing(needs, sandbox)),
        clock_s=time.time(),
    )


def _missing(needs: PlanNeeds, sandbox: str | None) -> Iterator[str]:
    from paraval.agents.catalog import KNOWN_AGENTS, find_program  # noqa: PLC0415 - only nodes do

    for program in needs.programs:
        if shutil.which(program) is None:
            yield f"{program} is not installed"
    for agent in needs.agents:
        if (
            agent in KNOWN_AGENTS
            and find_program(KNOWN_AGENTS[agent], os.environ.get("PATH")) is None
        ):
            yield f"{agent} is not installed"
    if needs.sandbox and sandbox is not None:
        yield sandbox.partition("\n")[0]
