"""What the page on agents says of each is what each says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from paraval.agents.catalog import AGENTS
from paraval.records import Provider

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "benchmark-agents.md"


def rows() -> dict[str, list[str]]:
    """The table of agents, by name."""
    found = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and cells[0].startswith("`"):
            found[cells[0].strip("`")] = cells[1:]
    return found


def test_every_agent_is_on_the_page_and_no_other() -> None:
    assert set(rows()) == set(AGENTS)


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_the_page_says_what_an_agent_can_be_told(name: str) -> None:
    max_turns, system, mcp, *_, speaks = rows()[name]
    takes = AGENTS[name].takes
    told = {"max_turns": max_turns, "system": system, "mcp": mcp}
    assert told == {key: "yes" if key in takes else "no" for key in told}
    if speaks == "all":
        assert AGENTS[name].speaks == frozenset(Provider)
    else:
        named = [] if speaks == "none" else [word.strip(" `") for word in speaks.split(",")]
        assert AGENTS[name].speaks == frozenset(map(Provider, named))
