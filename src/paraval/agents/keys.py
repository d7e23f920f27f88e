"""Which of the user's keys an agent is handed: the variables that it would find in his shell."""

from __future__ import annotations

from collections.abc import Mapping

from paraval.agents.codex import KEY_VARIABLE
from paraval.agents.program import AgentProgram

_STANDS_FOR = {KEY_VARIABLE: "OPENAI_API_KEY"}
"""Codex has a name of its own for what most users have under another."""


def keys_for(program: AgentProgram, environment: Mapping[str, str]) -> dict[str, str]:
    """The key variables that are set; empty: it has no key."""
    keys = {
        name: environment[name]
        for name in program.login.key_variables
        if environment.get(name, "").strip()
    }
    for name, other in _STANDS_FOR.items():
        if name in program.login.key_variables and name not in keys and other in keys:
            keys[name] = keys[other]
    return keys
