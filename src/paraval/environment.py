"""The environment of a child process: built from nothing, so that secrets stay here; and which code
its Python imports in a worktree.

Commands, isolated workers and grader commands get it; the suite names anything else they need.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePath

from paraval.processes.commands import Command
from paraval.processes.quick import run_quickly

# Which code a Python program imports in a worktree: the worktree's own, not the user's checkout.

VARIABLE = "PYTHONPATH"
PATIENCE_S = 20.0
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_SHEBANG = re.compile(rb"#!\s*(?P<program>\S+)(?:\s+(?P<argument>\S+))?")
_LONG_SHEBANG = re.compile(rb"#!/bin/sh\n'''exec' \"?(?P<program>[^\"\n]+?)\"? \"\$0\"")
"""What pip writes if a path is too long for the first line, or contains spaces."""
_SEARCHED = ("VIRTUAL_ENV", "HOME", "PATH", VARIABLE, "PYTHONHOME", "PYTHONUSERBASE")
"""Variables that determine where Python looks for modules."""
_ASK = r"""
import json, os, sys
found = [("", path) for path in sys.path[1:] if path]
for finder in sys.meta_path:
    mappings = [getattr(finder, "_redirections", None)]
    module = sys.modules.get(getattr(finder, "__module__", None) or "")
    mappings += [getattr(module, name, None) for name in ("MAPPING", "NAMESPACES")]
    for mapping in mappings:
        for name, places in mapping.items() if isinstance(mapping, dict) else ():
            places = [places] if isinstance(places, str) else places
            found += [(name, place) for place in places]
for path in [path for _, path in found if os.path.basename(path).endswith("-packages")]:
    links = [link for link in os.scandir(path) if link.is_symlink()] if os.path.isdir(path) else []
    found += [(link.name.partition(".py")[0], os.path.realpath(link.path)) for link in links]
import importlib.util
absent = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
own = [sys.prefix, sys.base_prefix]
print(json.dumps({"own": own, "found": found, "absent": absent}))
"""
"""Paths (including `.pth` files), mappings of editable installs, links among packages, and which of
the packages that it is asked for cannot be found."""


async def with_worktree_first(
    command: Command, imports: WorktreeImports | None, workspace: str | None
) -> Command:
    """The command, importing from its worktree before the user's checkout; unchanged if there is no
    worktree."""
    if imports is None or workspace is None:
        return command
    return await asyncio.to_thread(imports.first, command, workspace)


class WorktreeImports:
    """For the worktrees of one repository."""

    def __init__(self, source: str, start: str = ".", *, finds_src: bool = False) -> None:
        """`source`: the top of the user's working tree; `start`: where commands start in a
        worktree. `finds_src`: import from `src` what is there and could not be found otherwise."""
        self._top = os.path.realpath(source)
        self._packages = tuple(_packages_in(f"{self._top}/src")) if finds_src else ()
        self.found_in_src: tuple[str, ...] = ()
        """What only `src` has."""
        self._start = os.path.normpath(start)
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def first(self, command: Command, workspace: str) -> Command:
        """The command, importing from the worktree first. Blocks for the first command of its kind;
        `workspace`: where it starts in the worktree."""
        top = workspace if self._start == "." else workspace.removesuffix(f"/{self._start}")
        folders = [os.path.normpath(f"{top}/{path}") for path in self._folders(command)]
        if not folders:
            return command
        before = command.env.get(VARIABLE)
        paths = os.pathsep.join((*folders, *([before] if before else [])))
        return replace(command, env={**command.env, VARIABLE: paths})

    def _folders(self, command: Command) -> tuple[str, ...]:
        """Folders of the repository, relative to its top, from which the command's Python
        imports."""
        python = _interpreter(command)
        if python is None:
            return ()
        env = {name: command.env[name] for name in _SEARCHED if name in command.env}
        # Fresh homes are all alike.
        key = (
            python,
            *(f"{name}={value}" for name, value in env.items() if not _is_fresh(name, value)),
        )
        if key not in self._known:
            self._known[key] = tuple(dict.fromkeys(self._asked(python, env)))
        return self._known[key]

    def _asked(self, python: str, env: Mapping[str, str]) -> Iterator[str]:
        # At the root: a Python started with `-c` also imports from the current folder.
        argv = [python, "-c", _ASK, *self._packages]
        ended = run_quickly(argv, env=env, cwd="/", timeout=PATIENCE_S)
        try:
            told = json.loads(ended.stdout)
            own = [os.path.realpath(path) for path in told["own"]]
            found = [(name, os.path.realpath(place)) for name, place in told["found"]]
        except (ValueError, KeyError, TypeError):
            # Not a Python, or one that prints something else: nothing is known about it.
            return
        if self._packages and len(told["absent"]) == len(self._packages):
            self.found_in_src = self._packages
            yield "src"
        for name, place in found:
            folder = _importing(name, place)
            if folder is None or not _is_within(folder, self._top):
                continue
            # A virtual environment may be inside the repository: packages installed in it are not
            # the worktree's code.
            if not any(one.startswith(f"{self._top}/") and _is_within(folder, one) for one in own):
                yield os.path.relpath(folder, self._top)


def _packages_in(folder: str) -> Iterator[str]:
    """The names of the packages and modules in a folder."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name, ending = os.path.splitext(entry.name)  # noqa: PTH122 - a name
                is_module = entry.is_file() and ending == ".py"
                is_package = not ending and os.path.isfile(f"{entry.path}/__init__.py")  # noqa: PTH113
                if name.isidentifier() and (is_module or is_package):
                    yield name
    except OSError:
        return


def _is_fresh(name: str, value: str) -> bool:
    return name == "HOME" and value != os.environ.get(name)


def _importing(name: str, place: str) -> str | None:
    """The folder in which a module of this name is found at this path; None if there is none."""
    if not name:
        return place
    parts = tuple(name.split("."))
    *above, last = PurePath(place).parts
    # A module file is listed with or without its suffix, a package by its folder or file.
    stem = last.partition(".")[0]
    whole = tuple(above) if stem == "__init__" else (*above, stem)
    if whole[-len(parts) :] != parts:
        return None
    return str(PurePath(*whole[: -len(parts)]))


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _interpreter(command: Command) -> str | None:
    """The Python that a command runs; for other programs, the one they would find themselves (`make
    test`, `sh -c pytest`). None if there is none."""
    path = command.env.get("PATH", os.defpath)
    program = shutil.which(command.argv[0], path=path)
    if program is not None:
        if _PYTHON.fullmatch(Path(program).name):
            return program
        named = _named_in_first_line(program, path)
        if named is not None:
            return named
    return shutil.which("python3", path=path) or shutil.which("python", path=path)


def _named_in_first_line(program: str, path: str) -> str | None:
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - text
            begins = file.read(1024)
    except OSError:
        return None
    matched = _LONG_SHEBANG.match(begins) or _SHEBANG.match(begins)
    if matched is None:
        return None
    named = os.fsdecode(matched["program"])
    argument = matched.groupdict().get("argument")
    if Path(named).name == "env" and argument is not None:
        named = shutil.which(os.fsdecode(argument), path=path) or ""
    return named if _PYTHON.fullmatch(Path(named).name) else None


PASSED_ALWAYS = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LOGNAME",
        "PATH",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "USER",
    }
)
"""What programs need to work, and every LC_*. Not TERM: a child has no terminal."""

PROXY_VARIABLES = (
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "NO_PROXY",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
)
"""What programs need to reach a provider through a proxy."""


def child_environment(
    env: Mapping[str, str],
    pass_env: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Allowed names and `pass_env` from this environment, then `env`, then `extra`: later ones
    win."""
    names = {name for name in os.environ if name in PASSED_ALWAYS or name.startswith("LC_")}
    names.update(name for name in pass_env if name in os.environ)
    inherited = {name: os.environ[name] for name in sorted(names)}
    return {**inherited, **env, **(extra or {})}
