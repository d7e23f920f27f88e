"""What `setup` left that git does not ignore, by the rules that are there now: its own count too.

git is asked about names alone. It does not walk there itself: a repository within that is made of
pipes would keep it waiting.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace

from paraval.workspaces.rules import GITIGNORE, not_ignored
from paraval.workspaces.sources import Baseline
from paraval.workspaces.stock import Differences, look_below, within


def not_ignored_leavings(top: str, baseline: Baseline, found: Differences) -> list[bytes]:
    """The new files and repositories to be removed. Raises GitError or OSError."""
    whole = os.fsencode(top)
    rules = replace(baseline, rules=top)
    _remove_pipes(whole, found.changed + found.extra)
    # A folder that is ignored as a whole is not looked into, nor a `.git` in one that is tracked.
    new = [path for path in not_ignored(rules, found.extra) if _name(path) != b".git"]
    below = look_below(whole, new)
    _remove_pipes(whole, below.special)
    repositories = not_ignored(rules, below.repositories)
    inside = tuple(path + b"/" for path in repositories)
    files = [path for path in below.files + below.special if not path.startswith(inside)]
    return repositories + not_ignored(rules, files)


def _remove_pipes(top: bytes, paths: list[bytes]) -> None:
    """Of rules, which git would wait for without end."""
    for path in paths:
        whole = within(top, path)
        if _name(path) == GITIGNORE and stat.S_ISFIFO(os.lstat(whole).st_mode):
            os.unlink(whole)  # noqa: PTH108 - bytes


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]
