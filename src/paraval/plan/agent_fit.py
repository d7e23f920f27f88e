"""Whether an agent can do what a suite tells it: asked when the suite is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paraval.errors import Problem
from paraval.isolation import Home
from paraval.plan.axis_texts import AxisText
from paraval.plan.forms import Locate
from paraval.plan.places import Spot, listed, suggestion
from paraval.plan.programs import check_executable, search_path
from paraval.records import AgentTarget, Model, Plan

if TYPE_CHECKING:
    from paraval.agents.program import AgentProgram

DECISIVE = {
    "system": "system: it has no way to be given instructions of one's own",
    "mcp": "mcp: it has no way to be handed a tool server",
    "model": "model: it has no way to be told which model to use",
}
"""Without these an agent would do something else than the suite says, whatever others can do."""
CUSTOMS_OWN = ("command", "stdin", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a target says, whichever agent it is for."""

    keys: frozenset[str]
    """Those that say something."""
    locate: Locate
    target: AgentTarget
    absent: dict[str, dict[Problem, None]] = field(default_factory=dict, repr=False)
    """By agent: why it cannot be started here. No error of the suite: it may be planned, and run
    for others, all the same."""


def known_agent(named: AxisText) -> AgentProgram | None:
    """The agent of this name; None after telling that there is none."""
    # Only here: most suites have no agents.
    from paraval.agents.catalogue import AGENTS  # noqa: PLC0415 - see above

    if named.text not in AGENTS:
        named.spot.report(f"there is no agent '{named.text}'{suggestion(named.text, AGENTS)}")
    return AGENTS.get(named.text)


def can_speak(program: AgentProgram, model: Model) -> bool:
    # A stand-in has no name, and what it stands for was told.
    return not model.name or model.provider in program.speaks


def check_speech(program: AgentProgram, model: Model, spot: Spot) -> None:
    """Tells where an agent cannot send its requests to a model of the registry."""
    if not can_speak(program, model):
        speaks = sorted(program.speaks)
        others = f"it speaks {listed(speaks)}" if speaks else "it speaks to its own provider alone"
        spot.report(
            f"{program.name} cannot be sent to '{model.name}' of the provider '{model.provider}';"
            f" {others}"
        )


def check_fit(program: AgentProgram, asked: Asked, named: AxisText) -> None:
    """Tells where an agent is told what it cannot be told."""
    for key, words in DECISIVE.items():
        if key in asked.keys and key not in program.takes and _says(asked.target, key):
            asked.locate((key,)).report(
                f"{named.text} cannot be told {words}; leave it out for this agent"
            )

    if asked.target.home is Home.MINE:
        for key in sorted(program.takes_in_own_home & asked.keys):
            if _says(asked.target, key):
                asked.locate((key,)).report(
                    f"{named.text} can be told {key} in a home of its own alone; leave out {key} or"
                    " home: mine"
                )


def _says(target: AgentTarget, key: str) -> bool:
    return key != "mcp" or bool(target.mcp)


def note_absence(program: AgentProgram, asked: Asked, named: AxisText) -> None:
    """Notes where an agent is not installed."""
    from paraval.agents.catalogue import find_program  # noqa: PLC0415 - see known_agent

    path = search_path(asked.target.env)
    noted = asked.absent.setdefault(named.text, {})
    if asked.target.program:
        first = asked.target.program[0]
        spot = replace(asked.locate(("program",)), problems=noted)
        check_executable(first, str(Path.cwd()), path, spot)
    elif find_program(program, path) is None:
        replace(named.spot, problems=noted).report(
            f"{named.text} is not installed: there is no program {listed(program.programs)} on"
            f" PATH; get it with: {program.install}; or name it with program:"
        )


# ---- what is said for several agents at once


def check_shared_keys(used: Iterable[tuple[Asked, str]]) -> None:
    """Tells of keys that none of the agents takes which they are written for.

    One place in a file may be for several agents, of which some take it: `max_turns` bounds those.
    """
    from paraval.agents.catalogue import AGENTS  # noqa: PLC0415 - see known_agent

    places: dict[tuple[str | None, tuple[object, ...]], _SharedKey] = {}
    for asked, agent in used:
        for key in ("max_turns", "program", *CUSTOMS_OWN):
            if key in asked.keys and agent in AGENTS:
                spot = asked.locate((key,))
                shared = places.setdefault((spot.file, spot.path), _SharedKey(key, spot, []))
                if agent not in shared.agents:
                    shared.agents.append(agent)
    for shared in places.values():
        problem = _shared_problem(shared, [agent for agent in shared.agents if agent == "custom"])
        takes = any(shared.key in AGENTS[agent].takes for agent in shared.agents)
        if shared.key == "max_turns" and not takes:
            problem = f"{listed(shared.agents)} cannot be told a number of turns; use timeout"
        if problem:
            shared.spot.report(problem)


@dataclass(frozen=True, slots=True)
class _SharedKey:
    key: str
    spot: Spot
    agents: list[str]


def _shared_problem(shared: _SharedKey, customs: Sequence[str]) -> str | None:
    agents = listed(shared.agents)
    if shared.key in CUSTOMS_OWN and not customs:
        use = "; to start it from another place, use program" if shared.key == "command" else ""
        return f"is for agent: custom, not for {agents}{use}"
    if shared.key == "program" and customs:
        return "custom has no usual program to replace; name it in command"
    if shared.key == "program" and len(shared.agents) > 1:
        return f"would be started for {agents} alike; set it in each value of the matrix"
    return None


def unbounded_agents(plan: Plan) -> tuple[str, ...]:
    """Those that cannot be told the `max_turns` that their target has, for a note to the user."""
    targets = [trial.target for trial in plan.trials if isinstance(trial.target, AgentTarget)]
    bounded = {target.agent for target in targets if target.max_turns is not None}
    if not bounded:
        return ()
    from paraval.agents.catalogue import AGENTS  # noqa: PLC0415 - see known_agent

    return tuple(sorted(name for name in bounded if "max_turns" not in AGENTS[name].takes))
