"""Which files a patch names, without applying it. Patches come from data sets of others."""

from __future__ import annotations

import os
import re
from pathlib import Path

from paraval.git.run_git import GitError, failure, run_git

_NOT_INSIDE = frozenset({b"", b".", b"..", b".git"})
"""No part of a path in a workspace. The empty one: of an absolute path."""
_SUSPECT = re.compile(
    rb"^(?:diff --git|---|\+\+\+|(?:rename|copy) (?:from|to)) "
    rb'(?:.*[\s/])?(?:"|//|\.{1,2}/|\.git(?:[/\s"]|$)|/(?!dev/null))',
    re.MULTILINE,
)
"""Lines that may name a path outside, or in an encoding; lines of code may look like them."""
_PATIENCE_S = 120.0


def paths_in_patch(patch: str) -> list[bytes]:
    """All files that a patch names, before and after it. Raises GitError, also for paths that are
    not inside a workspace."""
    found: dict[bytes, None] = {}
    for way in ((), ("--reverse",)):
        ended = run_git(["apply", "--numstat", "-z", *way, patch], cwd="/", timeout=_PATIENCE_S)
        if not ended.is_well:
            raise failure(f"{patch} is not a patch", ended)
        lines = (line.split(b"\t", 2) for line in ended.stdout.split(b"\0") if line)
        found.update(dict.fromkeys(line[-1] for line in lines))
    for path in found:
        if not _NOT_INSIDE.isdisjoint(path.split(b"/")):
            raise GitError(
                f"{patch} names '{os.fsdecode(path)}', which is not a file of the workspace",
                hint="do not use this patch: such a path could change other files",
            )
    return list(found)


def check_patch_quickly(patch: str) -> None:
    """Raise GitError for paths outside a workspace; starts git only where that is possible."""
    try:
        content = Path(patch).read_bytes()
    except OSError as error:
        raise GitError(f"{patch} cannot be read: {error.strerror}") from error
    if _SUSPECT.search(content):
        paths_in_patch(patch)
