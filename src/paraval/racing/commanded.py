"""The files that a test or a benchmark is started by: whether a race has them.

A command names them by its words. Only what is plain to see is looked at: a program that finds its
files by itself says so itself when they are not there.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from paraval.errors import RequestError
from paraval.git.repositories import Repository, find_repository
from paraval.git.running import run_git
from paraval.isolation import Workspace
from paraval.plan.places import nearest
from paraval.racing.request import RaceRequest

_INTERPRETER = re.compile(r"(python|pypy)[\d.]*t?|(ba|da|z|k)?sh")
_TAKES_A_VALUE = ("-X", "-W", "-o", "+o")
_NO_SCRIPT = re.compile(r"-[A-Za-z]*[cm]|--command|-s|-")
"""After these no file follows: code, a module, stdin."""
_SOURCES = (".py", ".sh")


def check_commands(request: RaceRequest, workspace: Workspace) -> None:
    """Raises RequestError where a command names a file that no worktree of the race will have."""
    if request.setup:
        # It may make what is missing.
        return
    repository = find_repository(request.repo)
    for what, command in (("test", request.test.command), ("bench", request.bench.command)):
        script = script_of(command)
        for word in dict.fromkeys((*([] if script is None else [script]), *_sources_in(command))):
            path = posixpath.normpath(posixpath.join(workspace.start, word))
            if posixpath.isabs(word) or path.startswith("../") or _has(repository, workspace, path):
                continue
            if os.path.lexists(Path(repository.top, path)):
                raise _left_out(what, path, repository, workspace)
            if word == script and shutil.which(word) is None:
                raise _nowhere(what, path, repository, workspace)


def script_of(command: tuple[str, ...]) -> str | None:
    """The file of `python FILE`, `sh FILE` and `./FILE`; None: it is no such command."""
    if not command:
        return None
    if _INTERPRETER.fullmatch(PurePosixPath(command[0]).name) is None:
        return command[0] if "/" in command[0] else None
    words = iter(command[1:])
    for word in words:
        if _NO_SCRIPT.fullmatch(word):
            return None
        if word in _TAKES_A_VALUE:
            next(words, None)
        elif not word.startswith(("-", "+")):
            return word
    return None


def _sources_in(command: tuple[str, ...]) -> Iterator[str]:
    """Sources that its words name, of a shell's and of options too: `--script=a.py`,
    `a.py::test_b`."""
    for part in " ".join(command).split():
        path = part.rpartition("=")[2].partition("::")[0]
        if path.endswith(_SOURCES):
            yield path


def _has(repository: Repository, workspace: Workspace, path: str) -> bool:
    """Whether a worktree of the race has something at this path; or where a link leads to."""
    real = os.path.relpath(os.path.realpath(Path(repository.top, path)), repository.top)
    return any(_is_in(repository, workspace, one) for one in dict.fromkeys((path, real)))


def _is_in(repository: Repository, workspace: Workspace, path: str) -> bool:
    if not workspace.uncommitted:
        at = f"{workspace.commit}:{path}"
        return run_git([f"--git-dir={repository.git_dir}", "cat-file", "-e", at]).is_well
    listed = run_git(
        [
            *(f"--git-dir={repository.git_dir}", f"--work-tree={repository.top}", "ls-files", "-z"),
            *("--cached", "--others", "--exclude-standard", "--", path),
        ]
    )
    return bool(listed.stdout) and os.path.lexists(Path(repository.top, path))


def _left_out(what: str, path: str, repository: Repository, workspace: Workspace) -> RequestError:
    if workspace.uncommitted or _is_ignored(repository, path):
        return RequestError(
            f"{what}: git ignores {path}, so that no worktree of the race would have it",
            hint="commit it with `git add --force`, or let `setup` make it",
        )
    return RequestError(
        f"{what}: {path} is not in commit {_short(workspace)}, which the race begins with",
        hint="commit it, or race with --uncommitted (`uncommitted: true`)",
    )


def _is_ignored(repository: Repository, path: str) -> bool:
    within = [f"--git-dir={repository.git_dir}", f"--work-tree={repository.top}"]
    asked = run_git([*within, "check-ignore", "-q", "--", path], env={"GIT_LITERAL_PATHSPECS": "0"})
    return asked.exit_code == 0


def _nowhere(what: str, path: str, repository: Repository, workspace: Workspace) -> RequestError:
    folder, name = posixpath.split(path)
    try:
        names = sorted(os.listdir(Path(repository.top, folder)))  # noqa: PTH208 - names alone
    except OSError:
        names = []
    near = nearest(name, names)
    where = "the working tree" if workspace.uncommitted else f"commit {_short(workspace)}"
    meant = f", did you mean {posixpath.join(folder, near[0])}?" if near else ""
    return RequestError(f"{what}: there is no {path} in {where} of {repository.top}{meant}")


def _short(workspace: Workspace) -> str:
    return (workspace.commit or "")[:12]
