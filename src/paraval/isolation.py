"""The nouns of isolation: where attempts run, what they may take of the machine, what they did.

Like `records`, whose targets and results hold them: frozen, keyword-only, without live handles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PATCH = "patch"
"""The artifact that holds what an attempt changed in its workspace."""
WORKSPACE_NEED = "workspace"
"""What every trial of a plan with workspaces needs: without any, none of them can run."""


def lock_need(name: str) -> str:
    """What a lock is called among a trial's needs."""
    return f"lock:{name}"


# ---- where


class WorkspaceKind(StrEnum):
    NONE = "none"
    """Attempts run where their target says."""
    FOLDER = "folder"
    """A fresh folder each, empty or a copy of a template."""
    GIT = "git"
    """A worktree each, from a pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Where the attempts of a plan run, as the suite asks for it."""

    kind: WorkspaceKind = WorkspaceKind.NONE
    source: str | None = None
    """Absolute: the template's folder, or the top of the repository's working tree (of a bare
    repository, itself). None: an empty folder."""
    start: str = "."
    """Where in it attempts begin, relative to its top: the suite may name a folder within."""
    ref: str = "HEAD"
    commit: str | None = None
    """What `ref` stood for when the plan was made."""
    uncommitted: bool = False
    """True: the working tree as it is, what git ignores left out."""
    tree: str | None = None
    """The hash of the tree that attempts begin with; of a folder's template, of its contents."""
    setup: tuple[str, ...] = ()
    """A command, run once in each worktree. What it leaves that git ignores is kept."""
    setup_timeout: float = 600.0
    sandbox: bool = False
    readable: tuple[str, ...] = ()
    """Absolute: what can be read in a sandbox besides what commands name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What became of one file."""

    path: str
    status: str
    """added, changed, deleted."""
    lines_added: int | None
    """None for a binary file, and for one that could not be looked into."""
    lines_deleted: int | None
    binary: bool = False
    """False where nobody knows."""

    @property
    def is_unknown(self) -> bool:
        """How many lines were changed is not known."""
        return self.lines_added is None and not self.binary


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an attempt changed in its workspace. The patch itself is an artifact, `patch`."""

    files_added: int = 0
    files_changed: int = 0
    files_deleted: int = 0
    binary_files: int = 0
    """Of all these."""
    lines_added: int = 0
    lines_deleted: int = 0
    files: tuple[FileChange, ...] = ()
    """By path; the first thousand."""
    tampering: tuple[str, ...] = ()
    """What it did to the worktree's `.git` that no plain use of git does."""
    unknown: str | None = None
    """Why not all of it is known; what is told is a lower bound then. None: this is all."""

    @property
    def files_in_all(self) -> int:
        return self.files_added + self.files_changed + self.files_deleted


# ---- what it may take


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """What one attempt may take of the machine; None: not said."""

    cpu: float | None = None
    """Cores that it keeps busy: reserved for it, not enforced."""
    memory_bytes: int | None = None
    """Of its whole process tree: reserved for it, and enforced where cgroups allow."""
    processes: int | None = None
    """At once; enforced where cgroups allow."""
    open_files: int | None = None
    """Of one process."""
    file_bytes: int | None = None
    """The largest file that it may write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLoad:
    """What a running attempt takes at this moment."""

    memory_bytes: int
    """Of its whole process tree."""
    cpus: float
    """Cores that it kept busy since the reading before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineReading:
    """The machine at one moment, as far as this process may use it; cgroup limits are in it."""

    cpus: float
    """That may be used."""
    busy_cpus: float
    """Kept busy since the reading before, by anyone."""
    memory_bytes: int
    """In all."""
    memory_available: int
    memory_full: float = 0.0
    """The share of time since the reading before in which all waited for memory (PSI)."""
    memory_some: float = 0.0
    cpu_some: float = 0.0
    io_full: float = 0.0
    attempts: Mapping[int, AttemptLoad] = field(default_factory=dict)
    """By the trial's index."""


# ---- agents


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """A tool server that an agent is handed. Strings hold templates."""

    name: str
    command: tuple[str, ...] = ()
    """Started by the agent, spoken to over stdio; empty: reached by `url`."""
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None


class Home(StrEnum):
    """Which home folder a target sees."""

    OWN = "own"
    """A fresh one for each attempt."""
    MINE = "mine"
    """The user's, with all that is logged in there."""


class McpState(StrEnum):
    CONNECTED = "connected"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The agent does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """How often an agent called one tool."""

    name: str
    """As the agent calls it, without what it puts before or behind a server's name."""
    server: str | None = None
    """The MCP server that it is of; None: the agent's own."""
    calls: int = 0
    failed: int = 0
    """Of these, those that gave an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What an agent says that it did: the evidence that a tool was used."""

    turns: int | None = None
    tools: tuple[ToolUse, ...] = ()
    """By name."""
    mcp: Mapping[str, McpState] = field(default_factory=dict)
    """Every MCP server that it was handed."""
    tells_tools: bool = True
    """False: this agent does not tell which tools it called; `tools` says nothing then."""
    session: str | None = None
    version: str | None = None
    model: str | None = None
    """As it says itself."""

    def calls_of(self, server: str) -> int:
        """Calls of a server's tools that gave no error."""
        return sum(tool.calls - tool.failed for tool in self.tools if tool.server == server)
