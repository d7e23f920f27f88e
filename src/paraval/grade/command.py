"""The grader that asks a program.

It runs in the attempt's workspace, where there is one, else in the suite's folder. The trial goes
to its stdin as one JSON object: `case`, `variant`, `repeat`, `output`, `exit_code`, `workspace`.
What its end and its last line say is read in `command_verdict`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from paraval.environment import child_environment
from paraval.grade.command_verdict import ExitCodes, verdict_of
from paraval.grade.grader import Subject
from paraval.processes.children import Command, Ended, Warden
from paraval.processes.sandbox import Sandbox
from paraval.records import Case, Grade, GraderSpec, Output
from paraval.scratch import Homes, OwnHome
from paraval.templates import TemplateFields, fill, named_paths
from paraval.worktree_imports import WorktreeImports, with_worktree_first

DEFAULT_TIMEOUT_S = 60.0
LOG_LIMIT_BYTES = 1 << 20
WORKSPACE_VARIABLE = "PARAVAL_WORKSPACE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRoom:
    """What grader commands get of a run beside their workspace."""

    marks: Mapping[str, str] = field(default_factory=dict)
    """Laid over their environment, to find their leftovers by."""
    homes: Homes | None = None
    """Where each has a folder for temporary files from, and in a workspace a home, since what runs
    there is the agent's; None: they use the user's."""
    sandbox_for: Callable[[str], Sandbox | None] | None = None
    """By the workspace: what a command may do in it; None: anything."""
    imports: WorktreeImports | None = None
    """Of the worktrees that attempts run in; None: workspaces are no worktrees."""
    nice: int = 5
    """How much they yield to what else runs on the machine: as much as targets do."""


class CommandGrader:
    """A judge that is a program of its own."""

    may_block = True

    def __init__(
        self, spec: GraderSpec, *, position: int, warden: Warden, room: CommandRoom
    ) -> None:
        self.name = spec.name
        self._position = position
        self._warden = warden
        self._room = room
        self._spec = spec
        self._timeout = float(spec.options.get("timeout") or DEFAULT_TIMEOUT_S)
        self._codes = ExitCodes.from_options(spec.options)

    async def grade(self, subject: Subject) -> Grade:
        command, ended = await self._run(subject)
        verdict = verdict_of(
            ended, command, self._codes, in_workspace=subject.workspace is not None
        )
        return replace(verdict, grader=self.name)

    async def _run(self, subject: Subject) -> tuple[Command, Ended]:
        if self._room.homes is None:
            return await self._run_with(subject, None)
        async with self._room.homes.lease() as own:
            return await self._run_with(subject, own)

    async def _run_with(self, subject: Subject, own: OwnHome | None) -> tuple[Command, Ended]:
        command = await with_worktree_first(
            self._command(subject, own), self._room.imports, subject.workspace
        )
        return command, await self._warden.run(command)

    def _command(self, subject: Subject, own: OwnHome | None) -> Command:
        stdout, stderr = self._logs(subject.folder)
        given = TemplateFields(
            input=subject.case.input,
            case_id=subject.case.id,
            repeat=subject.repeat,
            folder=subject.folder,
            variant=subject.variant,
            workspace=subject.workspace,
        )
        return Command(
            argv=tuple(fill(argument, given) for argument in self._spec.options["command"]),
            env=self._environment(subject, own, given),
            cwd=subject.workspace or self._spec.folder,
            stdin=_trial_as_json(subject),
            stdout=stdout,
            stderr=stderr,
            timeout=self._timeout,
            log_limit=LOG_LIMIT_BYTES,
            limits=subject.limits,
            nice=self._room.nice,
            tag=subject.index,
            sandbox=self._sandbox(subject, own, given),
        )

    def _environment(
        self, subject: Subject, own: OwnHome | None, given: TemplateFields
    ) -> dict[str, str]:
        options, passed = self._spec.options, self._spec.options.get("pass_env") or ()
        places: dict[str, str] = {}
        if own is not None:
            places["TMPDIR"] = own.temp
        if own is not None and subject.workspace is not None:
            places["HOME"] = own.home
        # Whoever passes HOME on wants the one with the caches and the tools in it.
        env = {name: path for name, path in places.items() if name not in passed}
        env |= {name: fill(value, given) for name, value in (options.get("env") or {}).items()}
        marks = dict(self._room.marks)
        if subject.workspace is not None:
            marks[WORKSPACE_VARIABLE] = subject.workspace
        return child_environment(env, passed, marks)

    def _sandbox(
        self, subject: Subject, own: OwnHome | None, given: TemplateFields
    ) -> Sandbox | None:
        if subject.workspace is None or self._room.sandbox_for is None:
            return None
        sandbox = self._room.sandbox_for(subject.workspace)
        if sandbox is None:
            return None
        options = self._spec.options
        words = (*options["command"], *(options.get("env") or {}).values())
        sandbox = replace(sandbox, readable=(*sandbox.readable, *named_paths(words, given)))
        if own is None:
            return sandbox
        return replace(sandbox, writable=(*sandbox.writable, own.home, own.temp))

    def artifacts(self, folder: str) -> dict[str, str]:
        """The logs that its run in this folder left, by name."""
        names = (f"{self.name}.stdout", f"{self.name}.stderr")
        logs = zip(names, self._logs(folder), strict=True)
        return {name: path for name, path in logs if Path(path).is_file()}

    def _logs(self, folder: str) -> tuple[str, str]:
        # By position: a grader's name may hold what a file's may not.
        start = Path(folder) / f"grader-{self._position}"
        return f"{start}.stdout", f"{start}.stderr"


def _trial_as_json(subject: Subject) -> bytes:
    trial = {
        "case": _fields(subject.case),
        "variant": subject.variant,
        "repeat": subject.repeat,
        "output": _fields(subject.output),
        "exit_code": subject.exit_code,
        "workspace": subject.workspace,
    }
    try:
        text = json.dumps(trial, allow_nan=False, default=_plain)
    except ValueError:
        text = json.dumps(_without_nan(trial), allow_nan=False, default=_plain)
    return text.encode()


def _fields(record: Case | Output) -> dict[str, Any]:
    # Not `asdict`: it copies deeply, and what users put into a case need not be copyable.
    return {one.name: getattr(record, one.name) for one in fields(record)}


def _plain(value: Any) -> Any:
    """What JSON doesn't know, in its nearest form."""
    return dict(value) if isinstance(value, Mapping) else repr(value)


def _without_nan(value: Any) -> Any:
    """NaN and infinity as null: JSON has no word for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value
