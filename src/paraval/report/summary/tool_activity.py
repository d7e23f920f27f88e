"""What trials did in total: turns, tool calls, file changes, CPU and memory.

Tool calls are evidence: a variant that was given a tool and never called it says nothing about the
tool. What an agent does not report is kept apart from what it did not do.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import field
from statistics import median

from paraval.codec import finite
from paraval.dataclass import dataclass
from paraval.records import Activity, AttemptResult, Change, McpState

MOST_UNASKED = 20
"""A limit, since names of servers that were not given to an agent are up to the agent."""
MOST_TAMPERING = 20


@dataclass(slots=True, kw_only=True)
class ServerUse:
    """What trials did with one MCP server."""

    handed: int = 0
    """Trials that were given it and reported what they did; 0 if it was called without that."""
    telling: int = 0
    """Those of them whose agent reports its tool calls."""
    connected: int = 0
    """Those of them that connected; the rest failed, or did not report it."""
    failed: int = 0
    called: int = 0
    """Trials in which one of its tools was called without an error."""
    calls: int = 0
    """Calls without an error."""
    errors: int = 0
    """Calls with an error."""

    @property
    def is_never_called(self) -> bool:
        """Whether it was available but never called, as far as agents report."""
        return self.telling > 0 and self.called == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTotals:
    """What trials changed in their workspaces."""

    trials: int
    """Trials that had a workspace."""
    changed: int
    """Those of them known to have changed a file."""
    unknown: int
    """Those of them with incomplete information; they are in no median."""
    median_files: float | None
    """None if nothing is known."""
    median_lines_added: float | None
    median_lines_deleted: float | None
    tampered: int
    tampering: Mapping[str, int]
    """What was done to `.git` -> number of trials."""
    flagged: int = 0
    flags: Mapping[str, int] = field(default_factory=dict)
    """What was done to files of the grading -> number of trials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolActivity:
    """What a set of trials did, in their deciding attempts."""

    agents: int
    """Trials whose agent reported what it did."""
    telling: int
    """Those of them whose agent reports its tool calls."""
    median_turns: float | None
    servers: Mapping[str, ServerUse]
    other_calls: int
    """Calls of tools of no given server, mostly the agent's own."""
    changes: ChangeTotals | None
    cpu_s: float | None
    most_memory_bytes: int | None
    """The most that one attempt used."""

    @property
    def handed(self) -> dict[str, ServerUse]:
        """The servers that were given to agents."""
        return {name: use for name, use in self.servers.items() if use.handed}


class ActivityCount:
    """Adds up activity, result by result."""

    def __init__(self) -> None:
        self._trials = self._telling = self._other_calls = 0
        self._turns = array("d")
        self._servers: defaultdict[str, ServerUse] = defaultdict(ServerUse)
        self._changes = _ChangeCount()
        self._cpu_s: float | None = None
        self._memory_bytes: int | None = None

    def add(self, end: AttemptResult) -> None:
        if end.activity is not None:
            self._add_activity(end.activity)
        if end.change is not None:
            self._changes.add(end.change)
        if (cpu_s := finite(end.cpu_s)) is not None:
            self._cpu_s = (self._cpu_s or 0.0) + cpu_s
        if end.memory_bytes is not None:
            self._memory_bytes = max(self._memory_bytes or 0, end.memory_bytes)

    def deeds(self) -> ToolActivity:
        return ToolActivity(
            agents=self._trials,
            telling=self._telling,
            median_turns=_median(self._turns),
            servers=self._servers,
            other_calls=self._other_calls,
            changes=self._changes.changes(),
            cpu_s=self._cpu_s,
            most_memory_bytes=self._memory_bytes,
        )

    def _add_activity(self, activity: Activity) -> None:
        self._trials += 1
        self._telling += activity.tells_tools
        if (turns := finite(activity.turns)) is not None:
            self._turns.append(turns)
        for name, state in activity.mcp.items():
            use = self._servers[name]
            use.handed += 1
            use.telling += activity.tells_tools
            use.connected += state is McpState.CONNECTED
            use.failed += state is McpState.FAILED
        if activity.tells_tools:
            self._add_calls(activity)

    def _add_calls(self, activity: Activity) -> None:
        self._other_calls += sum(
            tool.calls for tool in activity.tools if tool.server not in activity.mcp
        )
        for name in {tool.server for tool in activity.tools if tool.server is not None}:
            if name in self._servers or len(self._servers) < MOST_UNASKED:
                use, calls = self._servers[name], activity.calls_of(name)
                use.called += calls > 0
                use.calls += calls
                use.errors += sum(tool.failed for tool in activity.tools if tool.server == name)


class _ChangeCount:
    def __init__(self) -> None:
        self._trials = self._changed = self._unknown = self._tampered = self._flagged = 0
        self._files, self._added, self._deleted = array("d"), array("d"), array("d")
        self._tampering: Counter[str] = Counter()
        self._flags: Counter[str] = Counter()

    def add(self, change: Change) -> None:
        self._trials += 1
        self._changed += change.files_in_all > 0
        if change.unknown is None:
            self._files.append(change.files_in_all)
            self._added.append(change.lines_added)
            self._deleted.append(change.lines_deleted)
        else:
            self._unknown += 1
        self._tampered += bool(change.tampering)
        self._tampering.update(dict.fromkeys(change.tampering, 1))
        self._flagged += bool(change.flagged)
        self._flags.update(dict.fromkeys(change.flagged, 1))

    def changes(self) -> ChangeTotals | None:
        if not self._trials:
            return None
        return ChangeTotals(
            trials=self._trials,
            changed=self._changed,
            unknown=self._unknown,
            median_files=_median(self._files),
            median_lines_added=_median(self._added),
            median_lines_deleted=_median(self._deleted),
            tampered=self._tampered,
            tampering=dict(self._tampering.most_common(MOST_TAMPERING)),
            flagged=self._flagged,
            flags=dict(self._flags.most_common(MOST_TAMPERING)),
        )


def _median(values: array[float]) -> float | None:
    return median(values) if values else None
