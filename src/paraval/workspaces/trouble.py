"""Why there is no workspace, or no telling what changed in one: in words, and whether it lasts."""

from __future__ import annotations

import errno

from paraval.errors import ParavalError
from paraval.git.running import DiskFullError, MissingObjectsError
from paraval.scratch import SCRATCH_VARIABLE, scratch_base
from paraval.workspaces.workspace import LastingWorkspaceError, WorkspaceError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def in_words(error: BaseException) -> str:
    """What went wrong, without a hint; a full disk is told with where it is."""
    is_full = isinstance(error, OSError) and error.errno in _FULL
    if is_full or isinstance(error, DiskFullError):
        return f"no space left in {scratch_base()} ({SCRATCH_VARIABLE} names another place)"
    return error.message if isinstance(error, ParavalError) else str(error)


def not_laid(tree: str, error: BaseException) -> WorkspaceError:
    """To who wanted a tree in a workspace; that says nothing of other trees."""
    hint = error.hint if isinstance(error, ParavalError) else None
    words = in_words(error)
    return WorkspaceError(f"the tree {tree[:12]} cannot be laid on a worktree: {words}", hint=hint)


def no_workspace(error: BaseException) -> WorkspaceError:
    """To who wanted one."""
    if isinstance(error, WorkspaceError):
        return error
    hint = error.hint if isinstance(error, ParavalError) else None
    lasts = isinstance(error, MissingObjectsError)
    kind = LastingWorkspaceError if lasts else WorkspaceError
    is_full = isinstance(error, DiskFullError)
    return kind(f"no workspace can be made: {in_words(error)}", hint=None if is_full else hint)
