"""The grader that asks a program.

It runs in the attempt's workspace, where there is one, else in the suite's folder. The trial goes
to its stdin as one JSON object: `case`, `variant`, `repeat`, `output`, `exit_code`, `workspace`.
Exit code 0 means passed, 1 means failed, unless the suite says which ones do, and anything else
that there is no verdict. The last line of its stdout that is not empty may give a score, or
`{"score": …, "reason": …}`, or a reason in words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from paraval.environment import child_environment
from paraval.grade.grader import CannotGrade, Subject, quoted
from paraval.processes.children import Command, Ended, Warden
from paraval.processes.sandbox import Sandbox
from paraval.records import Case, Grade, GraderSpec, Output
from paraval.scratch import Homes

DEFAULT_TIMEOUT_S = 60.0
LOG_LIMIT_BYTES = 1 << 20
TAIL_BYTES = 64 << 10
"""The last line is looked for in so much of the end of a log."""
WORKSPACE_VARIABLE = "PARAVAL_WORKSPACE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRoom:
    """What grader commands get of a run beside their workspace."""

    marks: Mapping[str, str] = field(default_factory=dict)
    """Laid over their environment, to find their leftovers by."""
    homes: Homes | None = None
    """Where each has a folder for temporary files from; None: they use the user's."""
    sandbox_for: Callable[[str], Sandbox | None] | None = None
    """By the workspace: what a command may do in it; None: anything."""


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
        self._argv = tuple(spec.options["command"])
        self._folder = spec.folder
        self._timeout = float(spec.options.get("timeout") or DEFAULT_TIMEOUT_S)
        self._env = child_environment(
            spec.options.get("env") or {}, spec.options.get("pass_env") or (), room.marks
        )
        failing = spec.options.get("failing")
        self._failing = None if failing == "any" else frozenset(failing or {1})
        """The exit codes that say "wrong"; None: all but 0."""
        self._is_told_codes = failing is not None

    async def grade(self, subject: Subject) -> Grade:
        command, ended = await self._run(subject)
        passed = self._passed(ended, command, in_workspace=subject.workspace is not None)
        score, reason = _read_last_line(_last_line(command.stdout))
        if score is None:
            score = 1.0 if passed else 0.0
        return Grade(score=score, passed=passed, reason=reason, grader=self.name)

    async def _run(self, subject: Subject) -> tuple[Command, Ended]:
        if self._room.homes is None:
            command = self._command(subject, temp=None)
            return command, await self._warden.run(command)
        async with self._room.homes.lease() as own:
            command = self._command(subject, temp=own.temp)
            return command, await self._warden.run(command)

    def _command(self, subject: Subject, *, temp: str | None) -> Command:
        stdout, stderr = self._logs(subject.folder)
        env = dict(self._env)
        if temp is not None:
            env["TMPDIR"] = temp
        sandbox = None
        if subject.workspace is not None:
            env[WORKSPACE_VARIABLE] = subject.workspace
            if self._room.sandbox_for is not None:
                sandbox = self._room.sandbox_for(subject.workspace)
        if sandbox is not None and temp is not None:
            sandbox = replace(sandbox, writable=(*sandbox.writable, temp))
        return Command(
            argv=self._argv,
            env=env,
            cwd=subject.workspace or self._folder,
            stdin=_trial_as_json(subject),
            stdout=stdout,
            stderr=stderr,
            timeout=self._timeout,
            log_limit=LOG_LIMIT_BYTES,
            sandbox=sandbox,
        )

    def artifacts(self, folder: str) -> dict[str, str]:
        """The logs that its run in this folder left, by name."""
        names = (f"{self.name}.stdout", f"{self.name}.stderr")
        logs = zip(names, self._logs(folder), strict=True)
        return {name: path for name, path in logs if Path(path).is_file()}

    def _logs(self, folder: str) -> tuple[str, str]:
        # By position: a grader's name may hold what a file's may not.
        start = Path(folder) / f"grader-{self._position}"
        return f"{start}.stdout", f"{start}.stderr"

    def _passed(self, ended: Ended, command: Command, *, in_workspace: bool) -> bool:
        if ended.failure is not None:
            raise CannotGrade(f"it could not be started: {ended.failure.message}")
        if ended.timed_out:
            raise CannotGrade(f"it did not end within {self._timeout:g} s, and was ended")
        if ended.log_error:
            raise CannotGrade(f"what it said could not be kept: {ended.log_error}")
        signal = _signal_of(ended, command)
        if signal is None:
            if ended.exit_code == 0:
                return True
            if self._fails(ended.exit_code, command):
                return False
        how = (
            f"was ended by signal {signal}"
            if signal is not None
            else f"ended with exit code {ended.exit_code}, where 0 is passed and"
            f" {_told_codes(self._failing)} failed"
        )
        said = _last_line(command.stderr) or _last_line(command.stdout)
        hint = (
            "; for a program that fails with other codes, say 'failing: any'"
            if in_workspace and signal is None and not self._is_told_codes
            else ""
        )
        raise CannotGrade(f"it {how}" + (f"; it said {quoted(said)}" if said else "") + hint)

    def _fails(self, code: int | None, command: Command) -> bool:
        """Whether this exit code says that the answer is wrong."""
        if self._failing is not None and code not in self._failing:
            return False
        if code != 1:
            return True
        if command.sandbox is not None and _last_line(command.stderr).startswith("bwrap: "):
            return False
        return self._is_told_codes or not _crashed(command.stdout, command.stderr)


def _signal_of(ended: Ended, command: Command) -> int | None:
    """The signal that ended it, also where a sandbox tells of it as a shell does."""
    code = ended.exit_code
    if command.sandbox is not None and code is not None and 128 < code < 160:
        return code - 128
    return ended.signal


def _told_codes(codes: frozenset[int] | None) -> str:
    if codes is None:
        return "any other is"
    listed = ", ".join(str(code) for code in sorted(codes))
    return f"{listed} is" if len(codes) == 1 else f"{listed} are"


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


def _crashed(stdout: str, stderr: str) -> bool:
    """Whether 1 is no verdict but how Python itself ends a program that raised.

    Tests may end so too: what fails by an assertion, or is counted by unittest, was tested.
    """
    said = _tail(stderr)
    if _tail(stdout) or "Traceback (most recent call last):" not in said:
        return False
    return not said[-1].startswith(("AssertionError", "FAILED ("))


def _last_line(path: str) -> str:
    """The last of the lines in a log; "" if there is none."""
    return next(reversed(_tail(path)), "")


def _tail(path: str) -> list[str]:
    """The lines at the end of a log, trimmed, without the empty ones."""
    try:
        with Path(path).open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - TAIL_BYTES))
            tail = log.read(TAIL_BYTES)
    except FileNotFoundError:
        return []
    lines = (line.strip() for line in tail.decode("utf-8", "replace").splitlines())
    return [line for line in lines if line]


def _read_last_line(line: str) -> tuple[float | None, str]:
    """The score and the reason that a last line gives."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None, line
    if isinstance(said, dict) and ("score" in said or "reason" in said):
        return _score_in(said), str(said.get("reason") or "")
    if _is_number(said) and 0 <= said <= 1:
        return float(said), ""
    return None, line


def _score_in(said: Mapping[str, Any]) -> float | None:
    score = said.get("score")
    if score is None:
        return None
    if not _is_number(score) or not 0 <= score <= 1:
        raise CannotGrade(f"it gave the score {quoted(score)}, which is not between 0 and 1")
    return float(score)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
