"""What git ignored when an attempt began: rules that the attempt cannot reach.

A rule that an attempt adds hides nothing of what it did.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paraval.git.running import failure, run_git
from paraval.workspaces.sources import Baseline

GITIGNORE = b".gitignore"
_CACHES = frozenset({b".mypy_cache", b".pytest_cache", b".ruff_cache"})
"""Folders that tools leave wherever they run, with a rule of their own that ignores them."""
_PATIENCE_S = 120.0
_SOME_IGNORED, _NONE_IGNORED = 0, 1


def write_rules(top: Path, files: Mapping[bytes, bytes]) -> None:
    """A working tree of these `.gitignore` files alone, by path. Raises OSError."""
    top.mkdir()
    for path, content in files.items():
        place = top / os.fsdecode(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def not_ignored(baseline: Baseline, paths: list[bytes]) -> list[bytes]:
    """Of these files, those that git did not ignore at the start. Raises GitError."""
    asked = [path for path in paths if _CACHES.isdisjoint(path.split(b"/")[:-1])]
    if not asked:
        return []
    ended = run_git(
        [
            *(f"--git-dir={baseline.git_dir}", f"--work-tree={baseline.rules}"),
            *("check-ignore", "--no-index", "-z", "--stdin"),
        ],
        # This command knows no literal paths: `./` keeps a name from being taken for more.
        env={"GIT_LITERAL_PATHSPECS": "0"},
        stdin=b"".join(b"./" + path + b"\0" for path in asked),
        timeout=_PATIENCE_S,
    )
    if ended.exit_code not in (_SOME_IGNORED, _NONE_IGNORED):
        raise failure("git cannot tell what it ignores", ended)
    ignored = set(ended.stdout.split(b"\0"))
    return [path for path in asked if b"./" + path not in ignored]
