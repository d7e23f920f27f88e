"""Commands as targets: a program for each attempt, with its answer on stdout or in a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.environment import WorktreeImports, child_environment, with_worktree_first
from paraval.processes.children import Command, CommandRunner, ProcessEnd, Warden
from paraval.processes.identity import RUN_VARIABLE
from paraval.processes.sandbox import Sandbox
from paraval.records import (
    Attempt,
    CommandTarget,
    Exchange,
    Failure,
    Home,
    Outcome,
    Output,
    OutputForm,
    Trial,
)
from paraval.scratch import Homes, OwnHome
from paraval.settings import ANSWER_LIMIT_BYTES
from paraval.targets.answer import (
    InvalidOutputError,
    TargetAnswer,
    checked,
    from_mapping,
    invalid,
    parse_object,
    read_plain_file,
    seconds,
    too_long,
)
from paraval.targets.process_ends import artifacts_of, last_words, notes_of, unexpected_end
from paraval.templates.shell import shell_command, used_variables
from paraval.templates.template import TemplateFields, field_names, fill

# What an attempt's process sees of the machine: home, temporary folder, sandbox.

SandboxFor = Callable[[Attempt, OwnHome | None], Sandbox | None]
"""Returns the sandbox of an attempt with this home; None: no sandbox."""


FolderFor = Callable[[Attempt], str]
"""Returns the path by which an attempt sees its own folder."""


def own_folder(attempt: Attempt) -> str:
    return attempt.own_folder


def unbounded(_attempt: Attempt, _own: OwnHome | None) -> Sandbox | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRoom:
    """What process-based attempts get from a run."""

    warden: Warden
    run_id: str
    homes: Homes | None = None
    """None: all see the user's own home."""
    nice: int = 0
    sandbox_for: SandboxFor = unbounded
    imports: WorktreeImports | None = None
    """Import paths for the worktrees that attempts run in; None: they run in none."""
    folder_for: FolderFor = own_folder
    containers: CommandRunner | None = None
    """None: no attempt runs in a container."""

    async def run(self, command: Command, workspace: str | None) -> ProcessEnd:
        if self.containers is None:
            return await self.warden.run(command)
        return await self.containers.run(command, workspace)

    def in_container(self, workspace: str | None) -> bool:
        return self.containers is not None and self.containers.has(workspace)

    def path_in(self, workspace: str) -> str:
        """A workspace's path as the attempt sees it."""
        return workspace if self.containers is None else self.containers.path_in(workspace)

    def home(self) -> AbstractAsyncContextManager[OwnHome | None]:
        """Yield a home for an attempt; None if all see the user's own."""
        return nullcontext() if self.homes is None else self.homes.lease()


def own_places(own: OwnHome | None, home: Home) -> dict[str, str]:
    """Return the home's variables; temporary files are separate in any case."""
    if own is None:
        return {}
    places = {"TMPDIR": own.temp}
    return {**places, "HOME": own.home} if home is Home.OWN else places


TRY_AGAIN_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: a command reports a temporary failure that it did not cause."""


class CommandAnswerer:
    """Starts commands."""

    def __init__(self, room: ProcessRoom) -> None:
        self._room = room

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        async with self._room.home() as own:
            return await self._answer(attempt, own)

    async def _answer(self, attempt: Attempt, own: OwnHome | None) -> TargetAnswer:
        target = attempt.trial.target
        assert isinstance(target, CommandTarget)
        fields = template_fields(attempt.trial, attempt.own_folder, attempt.workspace)
        if _uses_folder(target):
            os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        shown = replace(fields, folder=self._room.folder_for(attempt))
        command = self._command(attempt, shown, own)
        if not self._room.in_container(attempt.workspace):
            imports = self._room.imports
            command = await with_worktree_first(command, imports, attempt.workspace)
        file = _AnswerFile.of(target, command.cwd, fields)
        ended = await self._room.run(command, attempt.workspace)
        output, failure, problem = None, _failure_of(ended, target, command), ""
        if failure is None:
            try:
                text, problem = file.read() if file is not None else _stdout(command, ended)
                output = _parsed(text, target)
            except InvalidOutputError as error:
                failure, problem = invalid(str(error)), ""
        return TargetAnswer(
            output=output,
            failure=failure,
            exit_code=ended.exit_code,
            artifacts=artifacts_of(command, ended),
            notes=notes_of(ended, problem),
            cpu_s=ended.cpu_s,
            memory_bytes=ended.memory_bytes,
            exchange=Exchange(request=_request_data(command)),
        )

    async def close(self) -> None:
        """Do nothing: the warden is shared, and its owner closes it."""

    def _command(self, attempt: Attempt, fields: TemplateFields, own: OwnHome | None) -> Command:
        target = attempt.trial.target
        assert isinstance(target, CommandTarget)
        if target.shell:
            known = replace(fields, extra={"suite": target.folder})
            argv = shell_command(target.command[0], known)
        else:
            argv = tuple(fill(part, fields) for part in target.command)
        env = {name: fill(value, fields) for name, value in target.env.items()}
        stdin = fill(target.stdin, fields) if target.stdin is not None else ""
        return Command(
            argv=argv,
            env=child_environment(
                {**own_places(own, target.home), **env},
                target.pass_env,
                attempt_marks(self._room.run_id, attempt, fields.folder),
            ),
            cwd=_folder_of(target, attempt.workspace),
            stdin=stdin.encode(errors="surrogateescape"),
            stdout=os.path.join(attempt.folder, "stdout.log"),  # noqa: PTH118 - text goes to the keeper
            stderr=os.path.join(attempt.folder, "stderr.log"),  # noqa: PTH118
            timeout=target.timeout,
            grace=target.grace,
            limits=target.limits,
            nice=self._room.nice,
            tag=attempt.trial.index,
            sandbox=self._room.sandbox_for(attempt, own),
        )


def _request_data(command: Command) -> dict[str, Any]:
    data: dict[str, Any] = {"command": list(command.argv)}
    if command.stdin:
        data["stdin"] = command.stdin.decode(errors="replace")
    return data


def attempt_marks(run_id: str, attempt: Attempt, folder: str | None = None) -> dict[str, str]:
    """Return the variables that identify a child's attempt, to the child and to us; `folder` is the
    attempt's own, by the path that the child sees."""
    marks = {
        RUN_VARIABLE: run_id,
        "PARAVAL_CASE": attempt.trial.case.id,
        "PARAVAL_ATTEMPT": str(attempt.number),
        "PARAVAL_FOLDER": folder or attempt.own_folder,
    }
    if attempt.workspace is not None:
        marks["PARAVAL_WORKSPACE"] = attempt.workspace
    return marks


def template_fields(trial: Trial, folder: str, workspace: str | None = None) -> TemplateFields:
    return TemplateFields(
        input=trial.case.input,
        case_id=trial.case.id,
        repeat=trial.repeat,
        folder=folder,
        variant=trial.variant,
        metadata=trial.case.metadata,
        workspace=workspace,
    )


def _folder_of(target: CommandTarget, workspace: str | None) -> str:
    if workspace is None:
        return target.cwd
    return os.path.normpath(os.path.join(workspace, target.cwd))  # noqa: PTH118 - text, and quick


def _uses_folder(target: CommandTarget) -> bool:
    if target.shell and "folder" in used_variables(target.command[0]):
        return True
    templates = [
        *(() if target.shell else target.command),
        *target.env.values(),
        target.stdin or "",
        target.output_file or "",
    ]
    return any("folder" in field_names(template) for template in templates)


def _failure_of(ended: ProcessEnd, target: CommandTarget, command: Command) -> Failure | None:
    if ended.failure is not None:
        return _unexpected(ended, command)
    if ended.timed_out:
        assert target.timeout is not None
        message = f"not done after {seconds(target.timeout)}; stopped"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.signal is not None:
        return _unexpected(ended, command)
    if ended.log_error and target.output is not OutputForm.FILE:
        message = f"its output could not be saved: {ended.log_error}"
        return Failure(kind=Outcome.INFRA_ERROR, message=message)
    if ended.exit_code == 0 or target.any_exit_code:
        return None
    if ended.exit_code == TRY_AGAIN_EXIT_CODE:
        message = f"asked for a retry (exit code 75){last_words(command.stderr)}"
        return Failure(kind=Outcome.INFRA_ERROR, message=message)
    return _unexpected(ended, command)


def _unexpected(ended: ProcessEnd, command: Command) -> Failure:
    return unexpected_end(ended, command.stderr, limits=command.limits)


def _stdout(command: Command, ended: ProcessEnd) -> tuple[str, str]:
    """Return the text on stdout, and a note on it."""
    if ended.stdout_bytes > ANSWER_LIMIT_BYTES:
        raise InvalidOutputError(too_long(ended.stdout_bytes, "bytes"))
    if ended.stdout_bytes == 0:
        return "", ""
    try:
        return _decoded(read_plain_file(command.stdout))
    except InvalidOutputError as error:
        raise InvalidOutputError(f"its output could not be read: {error}") from error


def _decoded(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return data.decode(
            errors="replace"
        ), "the output is not valid UTF-8; invalid bytes are shown as �"


def _parsed(text: str, target: CommandTarget) -> Output:
    if target.output is OutputForm.JSON:
        return from_mapping(parse_object(text))
    return checked(Output(text=text))


class _AnswerFile:
    """The file that a command writes its answer to; one from before is not an answer."""

    def __init__(self, path: str, folder: str) -> None:
        """`folder`: the attempt's own, in which no link is followed."""
        self._path = path
        self._folder = folder
        self._before = self._mark()

    @classmethod
    def of(cls, target: CommandTarget, cwd: str, fields: TemplateFields) -> _AnswerFile | None:
        if target.output is not OutputForm.FILE:
            return None
        assert target.output_file is not None
        return cls(str(Path(cwd, fill(target.output_file, fields))), fields.folder)

    def _mark(self) -> Any:
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self) -> tuple[str, str]:
        if (mark := self._mark()) is None or mark == self._before:
            raise InvalidOutputError(f"it did not write '{self._path}'")
        if self._path.startswith(f"{self._folder}/"):
            place = os.path.dirname(self._path)  # noqa: PTH120 - text, and quick
            within = os.path.realpath(self._folder) + place.removeprefix(self._folder)
            if os.path.realpath(place) != os.path.normpath(within):
                raise InvalidOutputError(f"'{self._path}' is behind a link")
        return _decoded(read_plain_file(self._path))
