"""Runs the test command once in a worktree, and reads its report and its compared outputs.

`tester` compares the record with the baseline's, after the worktree is released.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.environment import with_worktree_first
from paraval.processes.children import Command, ProcessEnd
from paraval.racing.context import RaceContext, failed, step_command
from paraval.racing.correctness.junit import JunitReport, SingleTest, cut, read_junit
from paraval.racing.findings import CorrectnessFinding, StepFinding, TestCounts
from paraval.racing.integrity.protection import flags_of_kept
from paraval.racing.request import JUNIT, STDOUT
from paraval.records import Attempt, AttemptResult, Failure, Outcome
from paraval.targets.answer import InvalidOutputError, open_plain_file, read_plain_file, seconds
from paraval.targets.process_ends import (
    artifacts_of,
    last_words,
    notes_of,
    signal_name,
    unexpected_end,
)
from paraval.workspaces.pool import SlotLease
from paraval.workspaces.workspace import TreeSetupError, WorkspaceError

RECORD = "tests.json"
"""The artifact's name."""
LARGEST_RECORD_BYTES = 256 << 20
LARGEST_OUTPUT_BYTES = 1 << 30
LAST_BYTES = 2000
ADDOPTS = "PYTEST_ADDOPTS"
_JUNIT_OPTIONS = "-o junit_family=xunit1 -o junit_logging=no"
"""The older family names each test's file; captured output is not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRecord:
    """One run of the test command. The baseline's are saved, so that a resumed race compares with
    the same results."""

    __test__ = False  # pytest takes it for a test otherwise

    exit_code: int | None
    """None if it was stopped: then missing tests and outputs mean nothing."""
    report: JunitReport | None = None
    """None if it reports no individual tests."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """A digest of each compared output; empty: it is missing."""
    flags: tuple[str, ...] = ()
    """Forbidden changes that it made; a candidate that makes the same ones is excused."""
    printed: str = ""
    """The end of its output, stderr last."""

    @property
    def tests(self) -> tuple[SingleTest, ...]:
        return () if self.report is None else self.report.tests

    @property
    def counts(self) -> TestCounts | None:
        return self.report.counts if self.report is not None and self.tests else None

    def save(self, folder: str) -> dict[str, str]:
        """Save it to an attempt's folder; return the artifact. Blocks."""
        path = Path(folder, RECORD)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Remove links that the attempt's own processes may have put there.
        path.unlink(missing_ok=True)
        path.write_text(json.dumps(to_data(self)), encoding="utf-8")
        return {RECORD: str(path)}


def load_record(path: Path) -> TestRecord | None:
    """Load a record; None if it is missing or unreadable. Blocks."""
    try:
        data = json.loads(read_plain_file(str(path), LARGEST_RECORD_BYTES))
        return from_data(TestRecord, data)
    except (InvalidOutputError, OSError, ValueError, TypeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """A finished run of the test command, here or on a node."""

    __test__ = False  # pytest takes it for a test otherwise

    record: TestRecord
    failure: Failure | None
    """Why it has no result to judge; None if it has one."""
    fields: Mapping[str, Any]
    """The fields that every result has."""

    def fields_with(self, artifacts: Mapping[str, str]) -> dict[str, Any]:
        return {**self.fields, "artifacts": {**self.fields["artifacts"], **artifacts}}


async def run_tests(
    context: RaceContext, attempt: Attempt, tree: str | None
) -> TestRun | AttemptResult:
    """Run the tests in a worktree, which is always released afterwards. `tree`: None for the
    baseline. A result: they could not run."""
    nothing = StepFinding(tested=CorrectnessFinding())
    try:
        lease = await context.workspaces.lease(tree)
        try:
            if not os.path.isdir(lease.path):  # noqa: PTH112, ASYNC240 - one look, and quick
                message = f"it has no folder '{context.base.start}', where the tests run"
                return failed(Outcome.FAILED, message, finding=nothing)
            return await _run_in(context, attempt, lease)
        finally:
            await lease.release()
    except TreeSetupError as error:
        # Setup works for the baseline, so the candidate breaks it.
        return failed(Outcome.CRASHED, error.message, finding=nothing)
    except WorkspaceError as error:
        message = error.message if error.hint is None else f"{error.message} ({error.hint})"
        return failed(Outcome.INFRA_ERROR, message, lasting=error.lasting)


async def _run_in(context: RaceContext, attempt: Attempt, lease: SlotLease) -> TestRun:
    """Run the tests with the lease's tree. Cancelling ends the command first."""
    # Time spent waiting for a worktree is not part of how long the tests take.
    began = time.perf_counter()
    attempt = replace(attempt, workspace=lease.path)
    # In the folder that a sandbox lets it write to, not in the worktree, which is checked.
    os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
    junit = f"{attempt.own_folder}/junit.xml"
    async with context.processes.home() as own:
        command = await with_worktree_first(
            _reporting(step_command(context.processes, attempt, own), junit),
            context.processes.imports,
            lease.path,
        )
        ended = await context.processes.warden.run(command)
    folders = {lease.top: "{worktree}", attempt.folder: "{folder}"}
    if own is not None:
        folders |= {own.home: "{home}", own.temp: "{temp}"}
    kept = await lease.keep(attempt.folder)
    artifacts, report = artifacts_of(command, ended), None
    if await asyncio.to_thread(os.path.lexists, junit):
        report = await asyncio.to_thread(read_junit, junit, {f"{lease.top}/": "", **folders})
        artifacts["junit"] = junit
    compare = context.request.keys.compare
    outputs = await asyncio.to_thread(_digests, compare, command, lease, folders)
    failure = failure_of(ended, command)
    if ended.log_error is not None and STDOUT in compare:
        message = f"its output could not be saved: {ended.log_error}"
        failure = Failure(kind=Outcome.INFRA_ERROR, message=message)
    return TestRun(
        record=TestRecord(
            exit_code=None if failure is not None else ended.exit_code,
            report=report,
            outputs=outputs,
            flags=flags_of_kept(kept, context.request, start=context.base.start),
            printed=last_printed(command.stdout, command.stderr),
        ),
        failure=failure,
        fields={
            "duration_s": time.perf_counter() - began,
            "exit_code": ended.exit_code,
            "artifacts": artifacts,
            "notes": (*lease.notes, *notes_of(ended), *kept.notes),
            "cpu_s": ended.cpu_s,
            "memory_bytes": ended.memory_bytes,
        },
    )


def _reporting(command: Command, junit: str) -> Command:
    """The command, asked for a JUnit report in its own words or in pytest's."""
    if any(JUNIT in part for part in command.argv):
        shell, path = command.argv[0] == "sh", shlex.quote(junit)
        argv = tuple(part.replace(JUNIT, path if shell else junit) for part in command.argv)
        return replace(command, argv=argv)
    options = f"{command.env.get(ADDOPTS, '')} --junitxml={shlex.quote(junit)} {_JUNIT_OPTIONS}"
    return replace(command, env={**command.env, ADDOPTS: options})


# ---- compared outputs

_SUMMARY = re.compile(
    rb"^(?:=+ )?(?P<counts>(?:\d+ [a-z]+|no tests)[^\n]*?)"
    rb" in \d[\d.]*s(?: \([\d:, a-z]+\))?(?: =+)?$|^-+ generated xml file: [^\n]* -+$",
    re.MULTILINE,
)
"""pytest's lines on times and on the report that we asked for."""


def _digests(
    compare: Sequence[str], command: Command, lease: SlotLease, folders: Mapping[str, str]
) -> dict[str, str]:
    """A digest of each compared output, independent of folders; empty if it is missing. Blocks."""
    found = {}
    for name in compare:
        path = command.stdout if name == STDOUT else os.path.join(lease.path, name)  # noqa: PTH118
        is_within = os.path.realpath(path).startswith(f"{os.path.realpath(lease.top)}/")
        # Nothing printed leaves no log.
        content: bytes | None = b"" if name == STDOUT else None
        if name == STDOUT or is_within:
            with suppress(InvalidOutputError, OSError):
                content = read_plain_file(path, LARGEST_OUTPUT_BYTES)
        for folder, shown in folders.items():
            content = content and content.replace(os.fsencode(folder), shown.encode())
        if content and name == STDOUT:
            content = _SUMMARY.sub(lambda found: found["counts"] or b"", content)
        digest = None if content is None else hashlib.sha256(content)
        found[name] = "" if digest is None else digest.hexdigest()
    return found


# ---- how it ended

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
    return cut("\n".join(texts))


def _end_of(path: str) -> str:
    try:
        descriptor = open_plain_file(path)
    except InvalidOutputError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LAST_BYTES))
        return file.read(LAST_BYTES).decode(errors="replace").strip()
