"""Runs git: with restricted configuration and a time limit.

No configuration of a user, a machine or an agent can make it run another program: that would be
their code running in the engine's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from paraval.errors import ParavalError
from paraval.processes.quick import QuickResult, run_quickly

NEEDS = (2, 32)
"""The first version that reads GIT_CONFIG_GLOBAL; an older git would read the user's settings."""
PATIENCE_S = 120.0
_HARDENED = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("core.attributesFile", os.devnull),
    ("core.excludesFile", os.devnull),
    ("core.pager", "cat"),
    ("core.safecrlf", "false"),
    ("protocol.allow", "never"),
    ("submodule.recurse", "false"),
    ("advice.addEmbeddedRepo", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
_HARDENED_ARGUMENTS = tuple(part for name, value in _HARDENED for part in ("-c", f"{name}={value}"))
_VERSION = re.compile(rb"git version (\d+)\.(\d+)")


class GitError(ParavalError):
    """git cannot do what was requested; the hint suggests a fix."""


class MissingObjectsError(GitError):
    """An object that it needed is missing, and will stay missing."""


class DiskFullError(GitError):
    """No space where it was to write."""


def run_git(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: bytes = b"",
    timeout: float = PATIENCE_S,
) -> QuickResult:
    """Run git with these arguments; the caller interprets the result."""
    argv = ["git", *_HARDENED_ARGUMENTS, *arguments]
    return run_quickly(
        argv, env={**_environment(), **(env or {})}, cwd=cwd, stdin=stdin, timeout=timeout
    )


def read_settings(arguments: Sequence[str], *, cwd: str) -> QuickResult:
    """Run git with the user's configuration, for queries that run no other program."""
    env = _environment()
    for name in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        del env[name]
    for name in ("HOME", "XDG_CONFIG_HOME"):
        if name in os.environ:
            env[name] = os.environ[name]
    return run_quickly(["git", *arguments], env=env, cwd=cwd, timeout=PATIENCE_S)


def must_git(
    arguments: Sequence[str],
    *,
    doing: str,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout: float = PATIENCE_S,
) -> bytes:
    """git's output; raises GitError if it fails, naming the operation."""
    ended = run_git(arguments, env=env, stdin=stdin, timeout=timeout)
    if not ended.is_well:
        raise failure(doing, ended)
    return ended.stdout


def failure(doing: str, ended: QuickResult) -> GitError:
    """A message for the user about a failed call."""
    complaint = last_line(ended)
    if any(sign in ended.stderr for sign in _MISSING_OBJECT):
        return MissingObjectsError(
            f"{doing}: objects are missing in the repository ({complaint})",
            hint="a partial or damaged clone: `git fetch --refetch` or a full clone has them all",
        )
    if "No space left" in ended.stderr:
        return DiskFullError(f"{doing}: the disk is full", hint="free some space there")
    return GitError(f"{doing}: {complaint}")


def last_line(ended: QuickResult) -> str:
    """git's error: the most informative line, without `fatal:`."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("fatal:")]
    chosen = (fatal or lines or [f"git ended with exit code {ended.exit_code}"])[-1]
    return chosen.removeprefix("fatal:").removeprefix("error:").strip()


def check_git() -> None:
    """Raises GitError if git is missing or too old."""
    ended = run_git(["--version"])
    version = _VERSION.match(ended.stdout)
    needed = ".".join(map(str, NEEDS))
    if not ended.is_well or version is None:
        raise GitError(
            "git is not installed, or not on the PATH",
            hint=f"install git {needed} or newer",
        )
    if (int(version[1]), int(version[2])) < NEEDS:
        raise GitError(
            f"git is too old: {version[1].decode()}.{version[2].decode()}",
            hint=f"git {needed} or newer is needed",
        )


_MISSING_OBJECT = (
    "unable to read sha1 file",
    "unable to read sha256 file",
    "missing blob",
    "missing tree",
    "failed to unpack tree object",
    "unable to read tree",
    "check .git/objects/info/alternates",
    "could not fetch",
    "transport 'https' not allowed",
    "transport 'ssh' not allowed",
    "transport 'file' not allowed",
    "promisor remote",
)


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        # A partial clone would fetch what it lacks, with the user's helpers and keys.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }
