"""Tools of MCP servers that agents call `server_tool`, with or without something before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paraval.agents.tool_names import ToolTally, as_written
from paraval.isolation import McpServer, McpState


class PrefixedTools:
    """Counts calls by such names. What else such agents tell of a server is nothing: one whose tool
    gave an answer is connected, and of others it is not known."""

    def __init__(self, servers: Iterable[McpServer], *, before: str = "") -> None:
        # The longest first: `repo_search_find` is of `repo_search`, if there is `repo` too.
        names = sorted((server.name for server in servers), key=len, reverse=True)
        self._starts = {f"{before}{as_written(name)}_": name for name in names}
        self._answered: set[str] = set()
        self._tally = ToolTally()
        self.tools = self._tally.tools

    def count(self, called: str, *, failed: bool) -> None:
        start = next((one for one in self._starts if called.startswith(one)), "")
        server = self._starts.get(start)
        self._tally.count(called.removeprefix(start), server, failed=failed)
        if server is not None and not failed:
            self._answered.add(server)

    def states(self) -> Mapping[str, McpState]:
        return {
            name: McpState.CONNECTED if name in self._answered else McpState.UNKNOWN
            for name in self._starts.values()
        }
