"""The agents that suites can name."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Mapping

from paraval.agents.aider import Aider
from paraval.agents.auggie import Auggie
from paraval.agents.claude_code import ClaudeCode
from paraval.agents.codex import Codex
from paraval.agents.custom import Custom
from paraval.agents.gemini import Gemini
from paraval.agents.mini_swe_agent import MiniSweAgent
from paraval.agents.opencode import OpenCode
from paraval.agents.program import AgentProgram
from paraval.errors import RequestError

_KNOWN: tuple[AgentProgram, ...] = (
    ClaudeCode(),
    Codex(),
    OpenCode(),
    Gemini(),
    Auggie(),
    Aider(),
    MiniSweAgent(),
)
KNOWN_AGENTS: Mapping[str, AgentProgram] = {agent.name: agent for agent in _KNOWN}
AGENTS: Mapping[str, AgentProgram] = {**KNOWN_AGENTS, "custom": Custom(KNOWN_AGENTS)}
"""By the name that suites write."""


def agent_names() -> tuple[str, ...]:
    return tuple(AGENTS)


def agent_named(name: str) -> AgentProgram:
    """RequestError where there is none of this name; it says which may be meant."""
    if name in AGENTS:
        return AGENTS[name]
    near = difflib.get_close_matches(name.casefold().replace("_", "-"), AGENTS, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(AGENTS)}"
    raise RequestError(f"there is no agent '{name}'", hint=hint)


def find_program(agent: AgentProgram, path: str | None) -> tuple[str, ...] | None:
    """The beginning of its command line, from the folders of this PATH; None: not installed."""
    for program in agent.programs:
        found = shutil.which(program, path=path)
        if found is not None:
            return (found,)
    return None
