"""With and without an MCP server: the call is in the transcript, and the report counts it."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from tests.agents.conftest import AGENTS, INSTALLED, Place, asking, both

pytestmark = pytest.mark.agents

SERVER = """
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("notes")


    @server.tool()
    def look_up(name: str) -> str:
        '''What the notes say of a name.'''
        return f"{name} is 42"


    server.run()
"""
CALLS = {"claude-code": "mcp__notes__look_up", "codex": '"mcp_tool_call"'}


def modes(place: Place) -> dict[str, Any]:
    server = place.folder / "notes.py"
    server.write_text(textwrap.dedent(SERVER))
    python = str(INSTALLED / "venv" / "bin" / "python")
    with_mcp = {
        "mcp": {"notes": {"command": [python, str(server)]}},
        # Claude Code waits 30 s for it: little, where eight agents start on a busy machine.
        "env": {"MCP_TIMEOUT": "90000"},
    }
    return {"with-mcp": with_mcp, "without-mcp": {}}


def test_calls_of_a_real_server_are_seen_and_counted(place: Place) -> None:
    """With it: called in each trial, and its answer is used. Without it: there is none to call."""
    cases = [{"id": word, "input": f"What is {word}?"} for word in ("foo", "bar")]
    _with_modes(place, cases)
    report = place.run()
    assert report.all_ended("passed"), report.outcomes
    for variant in report.summary["variants"]:
        servers = variant["agents"]["mcp"]
        if variant["variant"]["mode"] == "without-mcp":
            assert servers == {}
            continue
        assert servers["notes"]["handed"] == servers["notes"]["called"] == len(cases)
        assert servers["notes"]["calls"] == len(cases)
        assert not servers["notes"]["never_called"]
    for trial in report.trials:
        with_it = trial["variant"]["mode"] == "with-mcp"
        said = f"{trial['case']} is 42" if with_it else "I do not know."
        assert said in trial["output"]
        logs = place.paraval("logs", "last", "--trial", str(trial["index"]), "--stream", "stdout")
        assert (CALLS[trial["variant"]["agent"]] in logs.stdout) is with_it
    for word in ("foo", "bar"):
        shown = place.paraval("show", "last", "--case", word).stdout
        assert shown.count(f'call notes.look_up(name="{word}")') == len(AGENTS)
    assert "called in 2 of 2" in report.told
    assert "never called" not in report.told
    assert place.leftovers() == []


def test_a_mode_that_never_calls_its_tool_is_said_to_be_void(place: Place) -> None:
    _with_modes(place, asking("Say something."))
    report = place.run()
    assert report.all_ended("passed"), report.outcomes
    for variant in report.summary["variants"]:
        if variant["variant"]["mode"] == "with-mcp":
            assert variant["agents"]["mcp"]["notes"]["never_called"]
    assert report.told.count("never called notes") == len(AGENTS)


def _with_modes(place: Place, cases: list[dict[str, str]]) -> None:
    place.write_suite(cases=cases, matrix={"agent": both(), "mode": modes(place)})
