"""Hidden files: which paths they take in a workspace, and what an attempt did to files that its
grading uses.

`slots` puts them there. Nothing in a workspace can be trusted then: an attempt may have made a
folder a link, or git run its programs.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from paraval.git.folders import contents_digest, folder_contents
from paraval.records import Change, HiddenFiles
from paraval.workspaces.workspace import Lease, WorkspaceError

CACHE = b"__pycache__"
"""Compiled modules, which Python may load instead of what is beside them."""
_RUNNER_FILES = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "sitecustomize.py"),
    *("usercustomize.py", "package.json", "jest.config.*", "vitest.config.*"),
)
"""Files that control how tests run, in the folders of tests and above."""
_MOST_FLAGS = 20


def check_unchanged(hidden: Iterable[HiddenFiles]) -> None:
    """Raise WorkspaceError or GitError if files are no longer those of the plan."""
    for files in hidden:
        if contents_digest(files.source) != files.digest:
            raise WorkspaceError(
                f"{files.source} has changed since the run was planned",
                hint="resume the run: it then uses what is there now",
            )


def copies(files: HiddenFiles, start: str) -> Iterator[tuple[bytes, bytes]]:
    """Each file with its path in the workspace, relative to the top. Raises GitError."""
    source, to = os.fsencode(files.source), os.fsencode(os.path.normpath(f"{start}/{files.to}"))
    if not os.path.isdir(source):  # noqa: PTH112 - bytes
        yield source, to
        return
    for name in folder_contents(files.source).files:
        yield source + b"/" + name, os.path.normpath(to + b"/" + name)


def copy_file(source: bytes, to: bytes) -> None:
    """Copy a file or a link to where nothing is. Raises OSError."""
    shutil.copyfile(source, to, follow_symlinks=False)
    if not os.path.islink(source):  # noqa: PTH114 - bytes
        os.chmod(to, 0o755 if os.access(source, os.X_OK) else 0o644)  # noqa: PTH101 - bytes


def flags(
    change: Change, placed: Sequence[str], commands: Mapping[str, Sequence[str]], lease: Lease
) -> tuple[str, ...]:
    """What an attempt did to files that its grading uses, in words.

    `placed`: paths of hidden files, like those of the change; `commands`: by grader, the words of
    its command. Only files that existed count there: others may be what was asked for.
    """
    hidden = set(placed)
    start = os.path.relpath(lease.path, lease.top)
    folders = {str(above) for path in placed for above in PurePosixPath(path).parents}
    run = {
        os.path.normpath(f"{start}/{word.partition('::')[0]}"): grader
        for grader, words in commands.items()
        for word in words
        if word and not word.startswith("/") and len(word) < 1_000
    }
    found = []
    for file in change.files:
        path = PurePosixPath(file.path)
        if file.path in hidden:
            why = "a hidden file takes its place"
        elif str(path.parent) in folders and any(fnmatchcase(path.name, n) for n in _RUNNER_FILES):
            why = "it controls how tests run"
        elif file.path in run and file.status != "added":
            why = f"grader '{run[file.path]}' uses it"
        else:
            continue
        found.append(f"{file.status} {file.path}: {why}")
    if hidden and change.files_in_all > len(change.files):
        found.insert(0, f"changed {change.files_in_all:,} files, too many to check all of them")
    more = [f"{len(found) - _MOST_FLAGS} more"] if len(found) > _MOST_FLAGS else []
    return (*found[:_MOST_FLAGS], *more)
