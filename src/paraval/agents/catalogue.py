"""The agents that suites can name."""

from __future__ import annotations

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


def find_program(agent: AgentProgram, path: str | None) -> tuple[str, ...] | None:
    """The beginning of its command line, from the folders of this PATH; None: not installed."""
    for program in agent.programs:
        found = shutil.which(program, path=path)
        if found is not None:
            return (found,)
    return None
