"""The columns of a CSV that tell what trials did: only those that a run has something for."""

from __future__ import annotations

from dataclasses import dataclass

from paraval.isolation import Activity, Change
from paraval.records import AttemptResult
from paraval.report.costs import finite, seconds
from paraval.report.deeds import Deeds
from paraval.report.inert import Cell, inert


@dataclass(frozen=True, slots=True, kw_only=True)
class DeedColumns:
    """Which of them a run has."""

    agents: bool
    servers: tuple[str, ...]
    changes: bool
    machine: bool

    @classmethod
    def of(cls, deeds: Deeds) -> DeedColumns:
        return cls(
            agents=deeds.agents > 0,
            servers=tuple(deeds.servers),
            changes=deeds.changes is not None,
            machine=deeds.cpu_s is not None or deeds.most_memory_bytes is not None,
        )

    @property
    def headings(self) -> list[str]:
        found = []
        if self.agents:
            found += ["turns", "tool_calls", "tool_errors"]
        for server in self.servers:
            found += [inert(f"mcp.{server}"), inert(f"mcp_calls.{server}")]
        if self.changes:
            found += ["files_changed", "lines_added", "lines_deleted", "tampering"]
            found += ["change_unknown"]
        if self.machine:
            found += ["cpu_s", "memory_bytes"]
        return found

    def cells(self, end: AttemptResult) -> list[Cell]:
        found: list[Cell] = []
        if self.agents:
            found += _turns_and_calls(end.activity)
        for server in self.servers:
            found += _server(end.activity, server)
        if self.changes:
            found += _change(end.change)
        if self.machine:
            found += [seconds(end.cpu_s), end.memory_bytes]
        return found


def _turns_and_calls(activity: Activity | None) -> list[Cell]:
    if activity is None:
        return [None, None, None]
    if not activity.tells_tools:
        return [finite(activity.turns), None, None]
    calls = sum(tool.calls for tool in activity.tools)
    failed = sum(tool.failed for tool in activity.tools)
    return [finite(activity.turns), calls, failed]


def _server(activity: Activity | None, server: str) -> list[Cell]:
    """Whether it was connected, and the calls without an error; empty where nobody tells."""
    if activity is None:
        return [None, None]
    state = activity.mcp.get(server)
    calls = activity.calls_of(server) if activity.tells_tools else None
    return [None if state is None else state.value, calls]


def _change(change: Change | None) -> list[Cell]:
    """Numbers only where they are known: a lower bound in a column would be taken for one."""
    if change is None:
        return [None, None, None, None, None]
    numbers: list[Cell] = [change.files_in_all, change.lines_added, change.lines_deleted]
    return [
        *(numbers if change.unknown is None else (None, None, None)),
        inert("; ".join(change.tampering)),
        inert(change.unknown or ""),
    ]
