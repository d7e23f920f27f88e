"""What an attempt has mounted in its workspace: only root can, and nobody else may find it."""

from __future__ import annotations

import os
from pathlib import Path

from paraval.scratch import MOUNTS, unmount_below
from paraval.workspaces.workspace import WorkspaceError

_MOST_LAYERS = 100


def unmounted(room: Path) -> tuple[str, ...]:
    """Take it away; tells that there was something. Raises WorkspaceError where it stays."""
    if not _is_mentioned(room):
        return ()
    left = unmount_below(room)
    for _ in range(_MOST_LAYERS):
        # What is mounted over another mount hides it.
        before, left = left, unmount_below(room) if left else left
        if left == before:
            break
    if left:
        raise WorkspaceError(f"something is mounted in the workspace, and stays: {left[0]}")
    return (
        "something was mounted in the workspace; it was unmounted, and is no part of the patch",
    )


def _is_mentioned(room: Path) -> bool:
    try:
        table = MOUNTS.read_bytes()
    except OSError:
        return False
    place = os.fsencode(room.parent.resolve() / room.name)
    return place + b"/" in table or place + b" " in table
