"""Graders that run a program and read its exit code and last line; and the grader of the target's
exit code.

A program runs in the attempt's workspace, if there is one, otherwise in the suite's folder. It gets
the trial on stdin as one JSON object: `case`, `variant`, `repeat`, `output`, `exit_code`,
`workspace`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.environment import WorktreeImports, child_environment, with_worktree_first
from paraval.grade.grader import CannotGrade, Subject, fields_of, quoted
from paraval.processes.children import Command, CommandRunner, ProcessEnd, Warden
from paraval.processes.sandbox import Sandbox
from paraval.records import Grade, GraderSpec, Step, ToolCall
from paraval.scratch import Homes, OwnHome
from paraval.templates.template import TemplateFields, fill, named_paths
from paraval.text.terminal import one_line

# The verdict of a grader's program: passed, failed, or none.

TAIL_BYTES = 64 << 10
"""How much of the end of a log is searched for the last line."""
REASON_CHARACTERS = 300
NOT_STARTED = frozenset({126, 127})
"""Exit codes of shells for a program that cannot be executed or found."""
NO_TESTS_RUN = frozenset({3, 4, 5})
"""Exit codes of pytest for an error of its own, a wrong option or path, and no test. 2 is not among
them: it is what tests end with that cannot import what they test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCodes:
    """How a suite interprets a program's exit code."""

    failing: frozenset[int] | None = None
    """The codes that fail an answer; None: all except 0. Used only if `are_given`."""
    are_given: bool = False
    timeout_fails: bool = False

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> ExitCodes:
        failing = options.get("failing")
        return cls(
            failing=frozenset(failing) if isinstance(failing, list | tuple) else None,
            are_given=failing is not None,
            timeout_fails=options.get("on_timeout") == "fail",
        )


def verdict_of(
    ended: ProcessEnd, command: Command, codes: ExitCodes, *, in_workspace: bool
) -> Grade:
    """Return the grade for a program's end; CannotGrade if there is no verdict."""
    if ended.failure is not None:
        raise CannotGrade(f"it could not be started: {ended.failure.message}")
    if ended.timed_out:
        late = f"it timed out after {command.timeout:g} s"
        if codes.timeout_fails:
            return Grade(score=0.0, passed=False, reason=late)
        raise CannotGrade(f"{late}{TIMEOUT_ADVICE if in_workspace else ''}")
    if ended.log_error:
        raise CannotGrade(f"its output could not be saved: {ended.log_error}")
    if _signal_of(ended, command) is not None or not (
        ended.exit_code == 0 or _fails(ended.exit_code, command, codes, in_workspace)
    ):
        raise CannotGrade(_why_no_verdict(ended, command, codes))
    passed = ended.exit_code == 0
    score, reason = _read_last_line(last_line(command.stdout))
    if score is None:
        score = 1.0 if passed else 0.0
    if not passed and _is_pytest(command):
        # Its summary says which tests; its last line only how many.
        summary = (line for line in _tail(command.stdout) if line.startswith(("FAILED ", "ERROR ")))
        reason = next(summary, reason)
    if in_workspace and not passed and not reason:
        line = last_line(command.stderr)
        reason = f"exit code {ended.exit_code}" + (f": {line}" if line else "")
    return Grade(score=score, passed=passed, reason=reason)


TIMEOUT_ADVICE = "; if the tested code caused that, set 'on_timeout: fail'"


def _fails(code: int | None, command: Command, codes: ExitCodes, in_workspace: bool) -> bool:
    """Whether this nonzero exit code fails the answer."""
    if command.sandbox is not None and last_line(command.stderr).startswith("bwrap: "):
        # The sandbox itself could not be created.
        return False
    if codes.are_given:
        return codes.failing is None or code in codes.failing
    if code in NOT_STARTED or (_is_pytest(command) and _ran_no_test(code, command)):
        return False
    if in_workspace:
        return True
    return code == 1 and not _crashed(command.stdout, command.stderr)


def _is_pytest(command: Command) -> bool:
    return any(Path(word).name in ("pytest", "py.test") for word in command.argv)


def _ran_no_test(code: int | None, command: Command) -> bool:
    return code in NO_TESTS_RUN or last_line(command.stderr).endswith(": No module named pytest")


def _why_no_verdict(ended: ProcessEnd, command: Command, codes: ExitCodes) -> str:
    signal = _signal_of(ended, command)
    if signal is not None:
        how = f"was killed by signal {signal}"
    elif not codes.are_given and ended.exit_code in NOT_STARTED:
        how = f"ended with exit code {ended.exit_code}: its program cannot be started"
    elif not codes.are_given and _is_pytest(command) and _ran_no_test(ended.exit_code, command):
        how = f"ended with exit code {ended.exit_code}: pytest ran no test"
    else:
        failing = codes.failing if codes.are_given else frozenset({1})
        how = f"ended with exit code {ended.exit_code}; 0 means passed, {_listed(failing)} failed"
    printed = one_line(last_line(command.stderr) or last_line(command.stdout), REASON_CHARACTERS)
    return f"{printed} (it {how})" if printed else f"it {how}"


def _signal_of(ended: ProcessEnd, command: Command) -> int | None:
    """Return the signal that ended it; a sandbox reports signals as a shell does."""
    code = ended.exit_code
    if command.sandbox is not None and code is not None and 128 < code < 160:
        return code - 128
    return ended.signal


def _listed(codes: frozenset[int] | None) -> str:
    if codes is None:
        return "any other"
    return ", ".join(str(code) for code in sorted(codes))


def _crashed(stdout: str, stderr: str) -> bool:
    """Whether 1 is not a verdict but Python's exit code after an exception.

    Tests may end like this too: a failed assertion, or a count by unittest, is a verdict.
    """
    lines = _tail(stderr)
    if _tail(stdout) or "Traceback (most recent call last):" not in lines:
        return False
    return not lines[-1].startswith(("AssertionError", "FAILED ("))


# ---- the program's output


def last_line(path: str) -> str:
    """Return the last line of a log; "" if there is none."""
    return next(reversed(_tail(path)), "")


def _tail(path: str) -> list[str]:
    """Return the lines at the end of a log, trimmed, without empty ones."""
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
    """Return the score and the reason in a last line."""
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None, line
    if isinstance(parsed, dict) and ("score" in parsed or "reason" in parsed):
        return _score_in(parsed), str(parsed.get("reason") or "")
    if _is_number(parsed) and 0 <= parsed <= 1:
        return float(parsed), ""
    return None, line


def _score_in(parsed: Mapping[str, Any]) -> float | None:
    score = parsed.get("score")
    if score is None:
        return None
    if not _is_number(score) or not 0 <= score <= 1:
        raise CannotGrade(f"it gave the score {quoted(score)}, which is not between 0 and 1")
    return float(score)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# The grader of a command's exit code.


class ExitCodeGrader:
    """The command ended with the expected code, or one of them; 0 by default."""

    may_block = False

    def __init__(self, spec: GraderSpec) -> None:
        self.name = spec.name
        value = spec.options.get("value", 0)
        self._wanted = tuple(value) if isinstance(value, list | tuple) else (value,)

    async def grade(self, subject: Subject) -> Grade:
        code = subject.exit_code
        if code is None:
            raise CannotGrade("no exit code to check: the target is not a command")
        if code in self._wanted:
            return Grade(score=1.0, passed=True, grader=self.name)
        wanted = " or ".join(str(one) for one in self._wanted)
        reason = f"exit code {code}, expected {wanted}"
        return Grade(score=0.0, passed=False, reason=reason, grader=self.name)


DEFAULT_TIMEOUT_S = 60.0
LOG_LIMIT_BYTES = 1 << 20
WORKSPACE_VARIABLE = "PARAVAL_WORKSPACE"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """What grader commands get from a run, in addition to their workspace."""

    marks: Mapping[str, str] = field(default_factory=dict)
    """Added to their environment, to find leftover processes."""
    homes: Homes | None = None
    """Source of each command's temporary folder and, in a workspace, home, since it runs the
    agent's code there; None: they use the user's."""
    sandbox_for: Callable[[str], Sandbox | None] | None = None
    """By workspace: what a command may do in it; None: anything."""
    imports: WorktreeImports | None = None
    """Import paths for the worktrees that attempts run in; None: workspaces are not worktrees."""
    containers: CommandRunner | None = None
    """None: no attempt runs in a container."""
    nice: int = 5
    """Niceness: the same as that of targets."""


class CommandGrader:
    """A grader that runs a program."""

    may_block = True

    def __init__(
        self, spec: GraderSpec, *, position: str, warden: Warden, room: CommandContext
    ) -> None:
        self.name = spec.name
        self.words: tuple[str, ...] = tuple(spec.options["command"])
        """As written."""
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

    async def _run(self, subject: Subject) -> tuple[Command, ProcessEnd]:
        if self._room.homes is None:
            return await self._run_with(subject, None)
        async with self._room.homes.lease() as own:
            return await self._run_with(subject, own)

    async def _run_with(self, subject: Subject, own: OwnHome | None) -> tuple[Command, ProcessEnd]:
        command, containers = self._command(subject, own), self._room.containers
        if containers is not None and containers.has(subject.workspace):
            return command, await containers.run(command, subject.workspace, is_grader=True)
        command = await with_worktree_first(command, self._room.imports, subject.workspace)
        return command, await self._warden.run(command)

    def _command(self, subject: Subject, own: OwnHome | None) -> Command:
        stdout, stderr = self._logs(subject.folder)
        given = fields_of(subject)
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
        # A user who passes HOME on wants the one with the caches and tools.
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
        sandbox = replace(sandbox, named=tuple(named_paths(words, given)))
        containers = self._room.containers
        if own is None or (containers is not None and containers.has(subject.workspace)):
            # In a container, the home is the image's.
            return sandbox
        return replace(sandbox, writable=(*sandbox.writable, own.home, own.temp))

    def artifacts(self, folder: str) -> dict[str, str]:
        """Return the logs of its run in this folder, by name."""
        names = (f"{self.name}.stdout", f"{self.name}.stderr")
        logs = zip(names, self._logs(folder), strict=True)
        return {name: path for name, path in logs if Path(path).is_file()}

    def _logs(self, folder: str) -> tuple[str, str]:
        # By position: a grader's name may contain characters that file names may not.
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


_OF_THE_PLAN = ("graders", "hidden", "timeout", "workspace")
"""Fields of a case that are not for graders."""


def _fields(record: Any) -> dict[str, Any]:
    # Not `asdict`: it copies deeply, and what users put into a case may not be copyable.
    names = (one.name for one in fields(record))
    return {name: getattr(record, name) for name in names if name not in _OF_THE_PLAN}


def _plain(value: Any) -> Any:
    """Return the nearest JSON form of an unsupported value."""
    if isinstance(value, Step | ToolCall):
        return _fields(value)
    return dict(value) if isinstance(value, Mapping) else repr(value)


def _without_nan(value: Any) -> Any:
    """Return NaN and infinity as null: JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return value
