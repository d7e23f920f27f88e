"""Runs the test command once in a worktree, and reads its report and output.

`tester` interprets the result, after the worktree is released.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from paraval.dataclass import dataclass
from paraval.environment import with_worktree_first
from paraval.processes.children import Command, ProcessEnd
from paraval.racing.correctness.junit_results import JunitReport, read_junit_file
from paraval.racing.correctness.outputs import (
    FOLDER,
    WORKTREE,
    OutputSnapshot,
    RunFolders,
    look_at_file,
    look_at_stdout,
    path_within,
)
from paraval.racing.correctness.test_results import CommandRunRecord
from paraval.racing.findings import CorrectnessFinding, StepFinding
from paraval.racing.integrity.protection import flags_of_kept
from paraval.racing.request import ComparedOutput
from paraval.racing.step_performer import RaceContext, broke, step_command
from paraval.records import Attempt, AttemptResult, CommandTarget, Failure, Outcome
from paraval.scratch import OwnHome
from paraval.targets.answer import InvalidOutputError, open_plain_file, seconds
from paraval.targets.process_ends import (
    artifacts_of,
    last_words,
    notes_of,
    signal_name,
    unexpected_end,
)
from paraval.workspaces.pool import SlotLease
from paraval.workspaces.workspace import TreeSetupError, WorkspaceError

# Whether a test command is pytest, however it is started, and where its test report will be.

AUTO, OFF = "auto", "off"
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_PYTEST = ("pytest", "py.test")
_OPTIONS = ("--junitxml", "--junit-xml")
_RUNNERS = ("uv", "poetry", "pipenv", "pdm", "hatch", "rye")
"""Programs whose `run` starts the command that follows."""
_TAKE_A_VALUE = frozenset(
    {
        *("--with", "--with-editable", "--with-requirements", "--python", "-p", "--extra"),
        *("--group", "--only-group", "--no-group", "--project", "--directory", "--package"),
        *("--env-file", "--index", "-C", "-P", "-e", "--env", "-n", "--name"),
    }
)
"""Options of those programs that take a value."""
_PYTHON_TAKES_A_VALUE = ("-X", "-W")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportingCommand:
    """A test command as started, and the report that it will write."""

    argv: tuple[str, ...]
    file: str | None = None
    """Absolute, or relative to where the command runs; None if there is no report."""
    is_pytest: bool = False


def reporting(argv: tuple[str, ...], junit: str, own_file: str) -> ReportingCommand:
    """Add report options. `junit`: as in the request; `own_file`: absolute, for our own report."""
    place = after_pytest(argv)
    is_pytest = place is not None
    if junit == OFF or (junit == AUTO and place is None):
        return ReportingCommand(argv=argv, is_pytest=is_pytest)
    if junit != AUTO:
        return ReportingCommand(argv=argv, file=junit, is_pytest=is_pytest)
    assert place is not None
    # The older family names each test's file. Captured output can be large and is not needed.
    asked = ("-o", "junit_family=xunit1", "-o", "junit_logging=no")
    given = _given_file(argv[place:])
    if given is not None and not given.startswith(("/", "~", "$")):
        return ReportingCommand(
            argv=(*argv[:place], *asked, *argv[place:]), file=given, is_pytest=True
        )
    # A file outside the worktree would be shared by all parallel tests. Drop the user's option,
    # because pytest uses the last one.
    rest = argv[place:] if given is None else _without_file(argv[place:])
    return ReportingCommand(
        argv=(*argv[:place], f"--junitxml={own_file}", *asked, *rest),
        file=own_file,
        is_pytest=True,
    )


def after_pytest(argv: tuple[str, ...], begin: int = 0) -> int | None:
    """Where pytest's own arguments begin; None if it is another command."""
    if begin >= len(argv):
        return None
    program = PurePosixPath(argv[begin]).name
    if program in _PYTEST:
        return begin + 1
    if _PYTHON.fullmatch(program):
        return _after_module(argv, begin + 1)
    if program == "coverage":
        return _after_coverage(argv, begin + 1)
    if program == "env":
        return after_pytest(argv, _after_assignments(argv, begin + 1))
    if program in _RUNNERS and argv[begin + 1 : begin + 2] == ("run",):
        return after_pytest(argv, _after_options(argv, begin + 2))
    if program == "uvx":
        return after_pytest(argv, _after_options(argv, begin + 1))
    return None


def _after_module(argv: tuple[str, ...], place: int) -> int | None:
    """The index after `python -X dev -m pytest`."""
    while place < len(argv) and argv[place].startswith("-"):
        if argv[place] == "-m":
            module = argv[place + 1 : place + 2]
            if module == ("pytest",):
                return place + 2
            return _after_coverage(argv, place + 2) if module == ("coverage",) else None
        if argv[place] == "-c":
            return None
        place += 2 if argv[place] in _PYTHON_TAKES_A_VALUE else 1
    return None


def _after_coverage(argv: tuple[str, ...], place: int) -> int | None:
    """The index after `coverage run --branch -m pytest`."""
    if argv[place : place + 1] != ("run",) or "-m" not in argv[place:]:
        return None
    module = argv.index("-m", place) + 1
    return module + 1 if argv[module : module + 1] == ("pytest",) else None


def _after_assignments(argv: tuple[str, ...], place: int) -> int:
    while place < len(argv) and (argv[place].startswith("-") or "=" in argv[place]):
        place += 2 if argv[place] in ("-u", "--unset", "-C", "--chdir") else 1
    return place


def _after_options(argv: tuple[str, ...], place: int) -> int:
    while place < len(argv) and argv[place].startswith("-"):
        place += 2 if argv[place] in _TAKE_A_VALUE else 1
    return place


def _given_file(arguments: tuple[str, ...]) -> str | None:
    """The report file that the user set; the last one counts, as for pytest."""
    given = None
    for place, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in _OPTIONS:
            following = arguments[place + 1 : place + 2]
            given = value if equals else (following[0] if following else given)
    return given


def _without_file(arguments: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    is_value = False
    for argument in arguments:
        if is_value:
            is_value = False
        elif argument in _OPTIONS:
            is_value = True
        elif argument.partition("=")[0] not in _OPTIONS:
            kept.append(argument)
    return tuple(kept)


# How a test command failed without a test result, and the last that it printed.

LAST_BYTES = 2000
_SHELLS_OFFSET = 128
"""In a sandbox, a process killed by signal n ends with exit code 128 + n, as does a shell whose
command is killed."""
_OF_A_CRASH = frozenset(
    {
        *(signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE),
        *(signal.SIGKILL, signal.SIGSEGV),
    }
)
"""Without a sandbox, other codes above 128 may be the program's own."""


def failure_of(ended: ProcessEnd, command: Command) -> Failure | None:
    """Why the command did not end by itself; None if it did."""
    if ended.failure is not None:
        return Failure(
            kind=Outcome.INFRA_ERROR,
            message=ended.failure.message,
            lasting=not ended.failure.transient,
        )
    if ended.timed_out:
        assert command.timeout is not None
        message = f"timed out after {seconds(command.timeout)}"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.signal is not None or (ended.out_of_memory and ended.exit_code != 0):
        return unexpected_end(ended, command.stderr, limits=command.limits)
    number = (ended.exit_code or 0) - _SHELLS_OFFSET
    if number in _OF_A_CRASH or (command.sandbox is not None and 0 < number < signal.NSIG):
        words = last_words(command.stderr)
        return Failure(kind=Outcome.CRASHED, message=f"killed by {signal_name(number)}{words}")
    return None


def last_printed(stdout: str, stderr: str) -> str:
    """The end of its output, stderr last."""
    texts = [text for path in (stdout, stderr) if (text := _end_of(path))]
    return "\n".join(texts)


def _end_of(path: str) -> str:
    try:
        descriptor = open_plain_file(path)
    except InvalidOutputError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LAST_BYTES))
        return file.read(LAST_BYTES).decode(errors="replace").strip()


PYTHON = "{python}"
_JUNIT = "junit.xml"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """A finished run of the test command, here or on a node."""

    __test__ = False  # pytest takes it for a test otherwise

    account: CommandRunRecord
    """With every forbidden change that it made."""
    failure: Failure | None
    """Why it has no result to judge; None if it has one."""
    printed: str
    """The end of its output, stderr last."""
    fields: Mapping[str, Any]
    """The fields that every result has."""

    def fields_with(self, artifacts: Mapping[str, str]) -> dict[str, Any]:
        return {**self.fields, "artifacts": {**self.fields["artifacts"], **artifacts}}


async def run_tests(
    room: RaceContext, attempt: Attempt, tree: str | None
) -> TestRun | AttemptResult:
    """Run the tests in a worktree, which is always released afterwards. `tree`: None for the
    baseline. A result: they could not run."""
    try:
        lease = await room.workspaces.lease(tree)
        try:
            if not os.path.isdir(lease.path):  # noqa: PTH112, ASYNC240 - one look, and quick
                return _without_its_folder(room.base.start)
            return await _run_in(room, attempt, lease)
        finally:
            await lease.release()
    except TreeSetupError as error:
        # Setup works for the baseline, so the candidate breaks it.
        return broke(
            Outcome.CRASHED, error.message, finding=StepFinding(tested=CorrectnessFinding())
        )
    except WorkspaceError as error:
        message = error.message if error.hint is None else f"{error.message} ({error.hint})"
        return broke(Outcome.INFRA_ERROR, message, lasting=error.lasting)


def _without_its_folder(start: str) -> AttemptResult:
    return broke(
        Outcome.FAILED,
        f"it has no folder '{start}', where the tests run",
        finding=StepFinding(tested=CorrectnessFinding()),
    )


async def _run_in(room: RaceContext, attempt: Attempt, lease: SlotLease) -> TestRun:
    """Run the tests with the lease's tree. Cancelling ends the command first."""
    # Time spent waiting for a worktree is not part of how long the tests take.
    began = time.perf_counter()
    attempt = replace(attempt, workspace=lease.path)
    asked = _asked(room, attempt)
    async with room.processes.home() as own:
        command = await with_worktree_first(
            step_command(room.processes, attempt, own, argv=asked.argv),
            room.processes.imports,
            lease.path,
        )
        looking = _OutputReader(asked, lease, _places(attempt, lease, own))
        ended = await room.processes.warden.run(command)
        report = await asyncio.to_thread(looking.report)
        looks = await asyncio.to_thread(looking.looks, room.request.compare, command, ended)
    kept = await lease.keep(attempt.folder)
    artifacts = artifacts_of(command, ended)
    if report is not None and report.tests and asked.file == _own_file(attempt):
        artifacts["junit"] = asked.file
    failure = failure_of(ended, command)
    if ended.log_error is not None and any(look.is_stdout for look in looks):
        message = f"its output could not be saved: {ended.log_error}"
        failure = Failure(kind=Outcome.INFRA_ERROR, message=message)
    return TestRun(
        account=CommandRunRecord(
            exit_code=None if failure is not None else ended.exit_code,
            report=report,
            looks=looks,
            flags=flags_of_kept(kept, room.request, start=room.base.start),
        ),
        failure=failure,
        printed=last_printed(command.stdout, command.stderr),
        fields={
            "duration_s": time.perf_counter() - began,
            "exit_code": ended.exit_code,
            "artifacts": artifacts,
            "notes": (*lease.notes, *notes_of(ended), *kept.notes),
            "cpu_s": ended.cpu_s,
            "memory_bytes": ended.memory_bytes,
        },
    )


# ---- starting


def _asked(room: RaceContext, attempt: Attempt) -> ReportingCommand:
    target = attempt.trial.target
    assert isinstance(target, CommandTarget)
    argv = tuple(part.replace(PYTHON, sys.executable) for part in target.command)
    # In the folder that a sandbox lets it write to, not in the worktree, which is checked.
    os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
    return reporting(argv, room.request.test.junit, _own_file(attempt))


def _own_file(attempt: Attempt) -> str:
    return f"{attempt.own_folder}/{_JUNIT}"


def _places(attempt: Attempt, lease: SlotLease, own: OwnHome | None) -> RunFolders:
    names = {lease.top: WORKTREE, attempt.folder: FOLDER}
    if own is not None:
        names |= {own.home: "{home}", own.temp: "{temp}"}
    return RunFolders(names)


# ---- reading outputs


class _OutputReader:
    """Reads what a run leaves. Blocks: use it in a thread."""

    def __init__(self, asked: ReportingCommand, lease: SlotLease, places: RunFolders) -> None:
        """Create it before the run, so that an existing report is not taken for the run's."""
        self._asked = asked
        self._lease = lease
        self._places = places
        self._before = self._mark()

    def report(self) -> JunitReport | None:
        if self._asked.file is None:
            return None
        try:
            path = self._report_path(self._asked.file)
        except InvalidOutputError as error:
            return JunitReport(problem=str(error))
        if self._before is not None and self._mark() == self._before:
            return JunitReport(problem=f"it did not write '{self._asked.file}'")
        return read_junit_file(path, self._places)

    def looks(
        self, compare: tuple[ComparedOutput, ...], command: Command, ended: ProcessEnd
    ) -> tuple[OutputSnapshot, ...]:
        return tuple(self._look(comparison, command, ended) for comparison in compare)

    def _look(
        self, comparison: ComparedOutput, command: Command, ended: ProcessEnd
    ) -> OutputSnapshot:
        if comparison.file is not None:
            return look_at_file(comparison.file, self._lease.path, self._lease.top, self._places)
        return look_at_stdout(
            command.stdout,
            ended.stdout_bytes,
            places=self._places,
            is_pytest=self._asked.is_pytest,
        )

    def _report_path(self, file: str) -> str:
        if file.startswith("/"):
            return file
        return path_within(file, self._lease.path, self._lease.top)

    def _mark(self) -> tuple[int, int, int] | None:
        if self._asked.file is None:
            return None
        try:
            found = os.lstat(self._report_path(self._asked.file))
        except (InvalidOutputError, OSError):
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size
