"""The agents that suites can name, which of the user's keys each gets, and whether it is
installed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from paraval.agents.aider import Aider
from paraval.agents.auggie import Auggie
from paraval.agents.claude_code import ClaudeCode
from paraval.agents.codex import KEY_VARIABLE, Codex
from paraval.agents.custom import Custom
from paraval.agents.gemini import Gemini
from paraval.agents.json_output import in_words
from paraval.agents.mini_swe_agent import MiniSweAgent
from paraval.agents.opencode import OpenCode
from paraval.agents.program import AgentProgram
from paraval.dataclass import dataclass
from paraval.processes.quick import run_quickly

# The user's keys for an agent: the variables that it would find in a shell.

_STANDS_FOR = {KEY_VARIABLE: "OPENAI_API_KEY"}
"""Codex has its own name for a key that most users have under another."""


def keys_for(program: AgentProgram, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the key variables that are set; empty: it has no key."""
    keys = {
        name: environment[name]
        for name in program.login.key_variables
        if environment.get(name, "").strip()
    }
    for name, other in _STANDS_FOR.items():
        if name in program.login.key_variables and name not in keys and other in keys:
            keys[name] = keys[other]
    return keys


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
"""By name in suites."""


def find_program(agent: AgentProgram, path: str | None) -> tuple[str, ...] | None:
    """Return the start of its command line, searching this PATH; None: not installed."""
    for program in agent.programs:
        found = shutil.which(program, path=path)
        if found is not None:
            return (found,)
    return None


# Installed agents, their versions, and whether they could log in.

VERSION_PATIENCE_S = 15.0
AT_ONCE = 4
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[\w.+-]*\w)?")
_PASSED = ("PATH", "LANG", "USER")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPresence:
    """One agent on this machine."""

    name: str
    program: str | None
    """Its path; None: not installed."""
    version: str | None
    """None: unknown."""
    key: str | None
    """The variable that holds its key; None: there is none."""
    logged_in: bool
    """There are traces of its login in the user's home."""
    advice: str
    """Its state and what to do, in one line."""


def presence(environment: Mapping[str, str], home: str | Path) -> tuple[AgentPresence, ...]:
    """Check every agent except `custom`, in the catalog's order; takes as long as the slowest."""
    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        return tuple(
            threads.map(lambda agent: _presence(agent, environment, home), KNOWN_AGENTS.values())
        )


def _presence(
    agent: AgentProgram, environment: Mapping[str, str], home: str | Path
) -> AgentPresence:
    program = find_program(agent, environment.get("PATH"))
    key = next(iter(keys_for(agent, environment)), None)
    logged_in = any(_is_there(Path(home, file)) for file in agent.login.files)
    return AgentPresence(
        name=agent.name,
        program=None if program is None else program[0],
        version=None if program is None else _version(agent, program, environment),
        key=key,
        logged_in=logged_in,
        advice=_advice(agent, installed=program is not None, key=key, logged_in=logged_in),
    )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _version(
    agent: AgentProgram, program: tuple[str, ...], environment: Mapping[str, str]
) -> str | None:
    passed = {name: environment[name] for name in _PASSED if name in environment}
    # In a separate home, like attempts: many write there even for `--version`.
    with TemporaryDirectory(prefix="paraval-", ignore_cleanup_errors=True) as home:
        ended = run_quickly(
            (*program, *agent.version_arguments),
            env={**passed, "HOME": home, "TMPDIR": home},
            cwd=home,
            timeout=VERSION_PATIENCE_S,
        )
    if not ended.is_well:
        return None
    output = ended.stdout[:4000].decode(errors="replace")
    found = _VERSION.search(output)
    return in_words(found[0])[:40] if found else None


def _advice(agent: AgentProgram, *, installed: bool, key: str | None, logged_in: bool) -> str:
    login = agent.login
    if not installed:
        return f"not installed: {agent.install}"
    if key is not None:
        return f"uses the key in {key}"
    if logged_in:
        return "logged in, but no key: set `home: mine` in the target"
    variables = " or ".join(login.key_variables)
    ways = [f"set {variables}"] if variables else []
    if login.command:
        ways.append(f"log in ({login.command}) and set `home: mine`")
    return f"no key and no login: {', or '.join(ways)}"
