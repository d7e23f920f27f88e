"""What a process of an attempt sees of the machine: its home, its temporary folder, its sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paraval.isolation import Home
from paraval.processes.children import Warden
from paraval.processes.sandbox import Sandbox
from paraval.records import Attempt
from paraval.scratch import Homes, OwnHome
from paraval.worktree_imports import WorktreeImports

SandboxFor = Callable[[Attempt, OwnHome | None], Sandbox | None]
"""What bounds an attempt that has this home; None: nothing does."""


FolderFor = Callable[[Attempt], str]
"""By which path an attempt sees the folder of its own."""


def own_folder(attempt: Attempt) -> str:
    return attempt.own_folder


def unbounded(_attempt: Attempt, _own: OwnHome | None) -> Sandbox | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRoom:
    """What attempts that are processes get of a run."""

    warden: Warden
    run_id: str
    homes: Homes | None = None
    """None: every one sees the user's own home."""
    nice: int = 0
    sandbox_for: SandboxFor = unbounded
    imports: WorktreeImports | None = None
    """Of the worktrees that attempts run in; None: they run in none."""
    folder_for: FolderFor = own_folder


def own_places(own: OwnHome | None, home: Home) -> dict[str, str]:
    """Its variables; whatever the home, temporary files are its own."""
    if own is None:
        return {}
    places = {"TMPDIR": own.temp}
    return {**places, "HOME": own.home} if home is Home.OWN else places
