"""What a workspace is to an attempt: a lease with a place, what changed there, and its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from paraval.errors import ParavalError
from paraval.isolation import Change


class WorkspaceError(ParavalError):
    """A workspace could not be had: no fault of the attempt."""

    lasting = False
    """True: nor can any other in this run."""


class LastingWorkspaceError(WorkspaceError):
    """What no later attempt can have either."""

    lasting = True


class TreeSetupError(WorkspaceError):
    """`setup` fails with the tree that was asked for: no fault of the workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept of a workspace after its attempt."""

    change: Change
    patch: str | None = None
    """Absolute path of the patch; None where nothing changed."""
    notes: tuple[str, ...] = ()


class Lease(Protocol):
    """A workspace while one attempt has it."""

    path: str
    """Absolute: where the attempt begins."""
    top: str
    """Absolute: all of it; `path` is in it."""
    notes: tuple[str, ...]
    """What was remarkable about making it."""

    async def keep(self, folder: str) -> Kept:
        """What the attempt changed until now; the patch is written into this folder."""
        ...

    async def release(self) -> None:
        """The attempt is over, and nothing of it runs any more. Never raises."""
        ...


class Workspaces(Protocol):
    """Where the leases of a run come from; an async context manager."""

    notes: tuple[str, ...]
    """What of all of them is not as their owner may expect it."""

    async def lease(self) -> Lease:
        """A clean workspace, when there is one. Raises WorkspaceError where none can be had."""
        ...

    async def close(self) -> None:
        """Nothing is left of any of them."""
        ...
