"""Finds changes to protected files: tests, benchmarks and their configuration.

Checks what a candidate changes (`flags_of`) and what changed in its worktree while it ran
(`flags_of_kept`). Changes that the tests also make with the baseline are excused (`unusual`). Other
modules decide what a flag means for a candidate.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from paraval.racing.integrity.benchmark_checks import without_made_up
from paraval.racing.request import SETTINGS_FILES, STARTUP_MODULES, RaceRequest
from paraval.records import FileChange
from paraval.workspaces.slots import LOST
from paraval.workspaces.workspace import KeptWorkspace

MOST_FLAGS = 20
_BEFORE = {"added": "adds", "changed": "edits", "deleted": "deletes"}
_READ_BY_PROGRAMS = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "nox": ("noxfile.py",),
    "tox": ("tox.ini",),
}
"""Files that a program reads by default."""
_LEFT_BY_TOOLS = frozenset({"__pycache__", ".pytest_cache", ".hypothesis", ".benchmarks"})
_AFFECTS_TESTS = (".py", ".pth", ".ini", ".cfg", ".toml", ".so", ".sh")
"""A new file with such an ending can change what tests do; tests write many others."""
LEADS_OUT = "a link to outside the repository"
_JUDGING = re.compile(r"(^|[_-])(tests?|bench(mark)?s?|spec)([_-]|$)", re.IGNORECASE)


def flags_of(
    files: Iterable[FileChange],
    request: RaceRequest,
    *,
    start: str = ".",
    links: Mapping[str, str],
) -> tuple[str, ...]:
    """Flags for a candidate's changes to protected files. `start`: where in the repository commands
    run; `links`: targets of its links, by path."""
    watched = ProtectedPaths(request, start)
    flags = []
    for file in files:
        if file.path in watched:
            flags.append(f"{_BEFORE[file.status]} {file.path}")
        if file.path in links and leads_out(file.path, links[file.path]):
            target = links[file.path][:200]
            flags.append(f"makes {file.path} {LEADS_OUT}: {target}")
    return first_flags(flags)


def flags_of_kept(
    kept: KeptWorkspace, request: RaceRequest, *, start: str = "."
) -> tuple[str, ...]:
    """Flags for forbidden changes in its worktree while it ran."""
    change = kept.change
    flags = list(change.tampering)
    if change.unknown == LOST:
        flags.append("moved, deleted or replaced its worktree")
    flags += ["mounted something in its worktree" for note in kept.notes if "mounted in" in note]
    watched = ProtectedPaths(request, start)
    flags += [
        f"{file.status} {file.path} while it ran"
        for file in change.files
        if file.path in watched and not _is_left_by_tools(file)
    ]
    return tuple(dict.fromkeys(flags))


class ProtectedPaths:
    """Paths in the repository that candidates must not change."""

    def __init__(
        self, request: RaceRequest, start: str = ".", patterns: Sequence[str] | None = None
    ) -> None:
        """`patterns`: None for those of the request."""
        self._start = "" if posixpath.normpath(start) == "." else posixpath.normpath(start) + "/"
        patterns = request.keys.protect if patterns is None else patterns
        self._patterns = tuple(_compiled(pattern) for pattern in patterns)
        files: set[str] = set()
        folders: set[str] = set()
        for command in (request.test.command, request.bench.command):
            for path in _named_by(command, request.repo):
                whole = posixpath.normpath(self._start + path)
                files.add(whole)
                if _JUDGING.search(PurePosixPath(whole).name):
                    # `pytest src` only says where to look; `pytest tests` names the tests.
                    folders.add(whole + "/")
        self._files = frozenset(files)
        self._folders = tuple(folders)

    def __contains__(self, path: str) -> bool:
        if path in self._files or path.startswith(self._folders):
            return True
        # Patterns may be relative to the top, or to where commands run.
        below = path.removeprefix(self._start)
        return any(one.fullmatch(path) or one.fullmatch(below) for one in self._patterns)


def leads_out(path: str, target: str) -> bool:
    """Whether a link at this path points outside the repository."""
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return target.startswith("/") or whole == ".." or whole.startswith("../")


def _named_by(command: tuple[str, ...], repo: str) -> Iterable[str]:
    """Paths that the arguments of a command may name, relative to where it runs."""
    # An argument may be a whole command, as in `sh -c "python bench.py"`.
    words = [part for word in command for part in (word, *word.split())]
    for word in words:
        yield from _READ_BY_PROGRAMS.get(PurePosixPath(word).name, ())
    for before, word in zip(("", *words), words, strict=False):
        if before == "-m":
            module = word.replace(".", "/")
            for top in ("", "src/"):
                yield from (f"{top}{module}.py", f"{top}{module}/__main__.py")
        # `--benchmark=bench.py`, and `tests/test_a.py::test_b`.
        path = word.rpartition("=")[2].partition("::")[0].removeprefix(f"{repo}/")
        normal = posixpath.normpath(path)
        if not normal.startswith(("-", "/", "../")) and normal not in (".", ".."):
            yield normal


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """`**` matches any number of folders, also none; `*` and `?` stay within a name."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^]/]+\])", pattern)
    return re.compile("".join(_piece(piece, parts) for piece in pieces), re.DOTALL)


def _piece(piece: str, parts: Mapping[str, str]) -> str:
    if piece.startswith("[") and piece.endswith("]"):
        inner = piece[1:-1]
        is_not = inner.startswith("!")
        return f"[{'^' if is_not else ''}{re.escape(inner[is_not:]).replace(chr(92) + '-', '-')}]"
    return parts.get(piece) or re.escape(piece)


def _is_left_by_tools(file: FileChange) -> bool:
    path = PurePosixPath(file.path)
    if not _LEFT_BY_TOOLS.isdisjoint(path.parts):
        return True
    return file.status == "added" and path.suffix not in _AFFECTS_TESTS


def first_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """The first flags, and how many more there are."""
    several = tuple(dict.fromkeys(flags))
    if len(several) <= MOST_FLAGS:
        return several
    return (*several[:MOST_FLAGS], f"and {len(several) - MOST_FLAGS} more like these")


# ---- changes that tests also make with the baseline

_DONE = re.compile(r"(?P<did>added|changed|deleted) (?P<path>.+) while it ran", re.DOTALL)
_READ_BY_NAME = frozenset((*SETTINGS_FILES, *(f"{name}.py" for name in STARTUP_MODULES)))
"""Names with a meaning: such files change what tests do."""


def unusual(flags: Sequence[str], baseline: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The candidate's flags that no baseline run explains; `baseline`: the flags of each run.

    Tests may write files next to them with names that differ in every run: where the baseline's
    runs differ, a third may too.
    """
    known = [{_normal(flag) for flag in run} for run in baseline]
    usual = set[str]().union(*known)
    always = set.intersection(*known) if known else set()
    varying = {_kind(flag) for run in baseline for flag in run if _normal(flag) not in always}
    return tuple(
        flag for flag in flags if _normal(flag) not in usual and _kind(flag) not in varying
    )


def _normal(flag: str) -> str:
    """The flag, with generated parts of the name of a new file replaced."""
    return without_made_up(flag) if flag.startswith("added ") else flag


def _kind(flag: str) -> str:
    """A key for flags with the same action, folder and ending."""
    found = _DONE.fullmatch(flag)
    if found is None:
        return flag
    folder, name = posixpath.split(found["path"])
    ending = posixpath.splitext(name)[1]
    if name in _READ_BY_NAME or (ending == ".py" and found["did"] != "added"):
        return flag
    return f"{found['did']} {without_made_up(folder)}/*{ending}"
