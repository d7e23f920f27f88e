"""`setup`: a user's command that prepares a workspace, once in each.

The first one runs by itself. If it fails, all would: the failure is remembered and raised
immediately for all later ones, instead of failing once per attempt. With another tree in a
workspace it runs that tree's code: its failure belongs to that tree, and it is limited like
attempts.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from paraval.dataclass import dataclass
from paraval.processes.children import Command, ProcessEnd, Warden
from paraval.processes.sandbox import Sandbox
from paraval.records import Container
from paraval.workspaces.workspace import (
    LastingWorkspaceError,
    SlotPlace,
    TreeSetupError,
    WorkspaceError,
)

_LAST_WORDS_BYTES = 4_000
_LAST_WORDS_LINES = 8
_LONGEST_LAST_WORD = 300
_LONGEST_COMMAND = 80
_NICE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupCommand:
    """The command to run."""

    argv: tuple[str, ...]
    timeout: float
    env: Mapping[str, str]
    folder: Path
    """For its logs and temporary files."""
    bounds: Sandbox | None = None
    """With another tree than workspaces start from, what it may do besides writing to the workspace
    and its own temporary folder; None: anything. In a container, what that needs of this
    machine."""
    container: Container | None = None
    """It runs in a container like that of attempts."""


class WorkspaceSetup:
    """Runs the command, if there is one."""

    def __init__(self, command: SetupCommand | None, warden: Warden) -> None:
        self._command = command
        self._warden = warden
        self._first = asyncio.Lock()
        """Guards the two below until one has succeeded."""
        self._has_worked = False
        self._failure: WorkspaceError | None = None

    @property
    def is_asked_for(self) -> bool:
        return self._command is not None

    def refuse_if_it_failed(self) -> None:
        """Raises what it raised on its first run."""
        if self._failure is not None:
            raise self._failure

    async def run(self, place: SlotPlace, cwd: str) -> None:
        """Run in this slot. Raises WorkspaceError with the end of its output."""
        if self._command is None:
            return
        if self._has_worked:
            await self._run_here(self._command, place, cwd)
            return
        async with self._first:
            self.refuse_if_it_failed()
            await self._run_here(self._command, place, cwd)
            self._has_worked = True

    async def run_with_a_tree(self, place: SlotPlace, cwd: str) -> None:
        """Run in this slot, which now has another tree. Raises TreeSetupError with the end of its
        output."""
        if self._command is None:
            return
        failed = await self._run(self._command, place, cwd, self._command.bounds)
        if failed is not None:
            kind = WorkspaceError if failed.may_pass else TreeSetupError
            raise kind(failed.message, hint=failed.hint)

    async def _run_here(self, command: SetupCommand, place: SlotPlace, cwd: str) -> None:
        failed = await self._run(command, place, cwd, None)
        if failed is None:
            return
        if self._has_worked or failed.may_pass:
            raise WorkspaceError(failed.message, hint=failed.hint)
        self._failure = LastingWorkspaceError(failed.message, hint=failed.hint)
        raise self._failure

    async def _run(
        self, command: SetupCommand, place: SlotPlace, cwd: str, bounds: Sandbox | None
    ) -> _Failed | None:
        folder = command.folder / str(place.number)
        temporary = folder / "tmp"
        temporary.mkdir(parents=True)
        logs = {name: str(folder / f"{name}.log") for name in ("stdout", "stderr")}
        if bounds is not None:
            bounds = replace(bounds, writable=(place.top, str(temporary)))
        prepared = Command(
            argv=command.argv,
            env={**command.env, "TMPDIR": str(temporary)},
            cwd=cwd,
            timeout=command.timeout,
            nice=_NICE,
            stdout=logs["stdout"],
            stderr=logs["stderr"],
            sandbox=bounds if command.container is None else command.bounds,
        )
        try:
            if command.container is None:
                ended = await self._warden.run(prepared)
            else:
                # Only here: most runs have none.
                from paraval.workspaces.containers import run_once  # noqa: PLC0415 - see above

                ended = await run_once(prepared, command.container, place.top, self._warden)
            return None if ended.exit_code == 0 else _failed(command, ended, logs)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _Failed(NamedTuple):
    message: str
    hint: str
    may_pass: bool
    """True: the next one may succeed."""


def _failed(command: SetupCommand, ended: ProcessEnd, logs: Mapping[str, str]) -> _Failed:
    return _Failed(
        message=f"workspace.setup {_end_in_words(ended, command)}{_last_words(logs)}",
        hint=(
            f"it ran as: {_shortened(shlex.join(command.argv))}, once in each workspace, with a"
            " clean environment"
        ),
        may_pass=ended.cancelled or (ended.failure is not None and ended.failure.transient),
    )


def _end_in_words(ended: ProcessEnd, command: SetupCommand) -> str:
    if ended.failure is not None:
        return f"did not run: {ended.failure.message}"
    if ended.timed_out:
        return f"did not finish in {command.timeout:g} s"
    if ended.signal is not None:
        return f"was ended by signal {ended.signal}"
    return f"failed with exit code {ended.exit_code}"


def _last_words(logs: Mapping[str, str]) -> str:
    for name in ("stderr", "stdout"):
        try:
            with Path(logs[name]).open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - _LAST_WORDS_BYTES))
                text = log.read().decode(errors="replace").strip()
        except OSError:
            continue
        if text:
            *before, last = text.splitlines()[-_LAST_WORDS_LINES:]
            # The last line first: of a long message only the beginning may be shown.
            told = [f": {last.strip()[:_LONGEST_LAST_WORD]}"]
            if before:
                told += ["; before that:", *(f"\n  {line.strip()}" for line in before)]
            return "".join(told)
    return ""


def _shortened(command: str) -> str:
    if len(command) <= _LONGEST_COMMAND:
        return command
    return f"{command[: _LONGEST_COMMAND - 3]}..."
