"""Commands as targets: a program for each attempt, its answer on stdout or in a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from paraval.environment import child_environment
from paraval.processes.children import Command, Ended, Warden
from paraval.processes.identity import RUN_VARIABLE
from paraval.records import Attempt, CommandTarget, Failure, Outcome, Output, OutputForm, Trial
from paraval.settings import ANSWER_LIMIT_BYTES
from paraval.targets.answer import (
    Answer,
    InvalidOutputError,
    checked,
    from_mapping,
    invalid,
    parse_object,
    seconds,
    too_long,
)
from paraval.targets.ends import last_words, unexpected_end
from paraval.templates import TemplateFields, field_names, fill, fill_shell

TRY_AGAIN_EXIT_CODE = 75
"""EX_TEMPFAIL of sysexits.h: by this a command says that the fault is not its own, and may pass."""


class CommandAnswerer:
    """Starts commands."""

    def __init__(self, warden: Warden, run_id: str) -> None:
        self._warden = warden
        self._run_id = run_id

    async def answer(self, attempt: Attempt) -> Answer:
        target = attempt.trial.target
        assert isinstance(target, CommandTarget)
        fields = template_fields(attempt.trial, attempt.folder)
        if _uses_folder(target):
            os.makedirs(attempt.folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        file = _AnswerFile.of(target, fields)
        command = self._command(attempt, target, fields)
        ended = await self._warden.run(command)
        failure = _failure_of(ended, target, command)
        artifacts = _artifacts(command, ended)
        if failure is not None:
            return Answer(
                failure=failure,
                exit_code=ended.exit_code,
                artifacts=artifacts,
                notes=_notes(ended),
            )
        try:
            text, problem = file.read() if file is not None else _stdout(command, ended)
            output = _parsed(text, target)
        except InvalidOutputError as error:
            return Answer(
                failure=invalid(str(error)),
                exit_code=ended.exit_code,
                artifacts=artifacts,
                notes=_notes(ended),
            )
        return Answer(
            output=output,
            exit_code=ended.exit_code,
            artifacts=artifacts,
            notes=_notes(ended, problem),
        )

    async def close(self) -> None:
        """The warden, which others use too, is closed by its owner."""

    def _command(self, attempt: Attempt, target: CommandTarget, fields: TemplateFields) -> Command:
        if target.shell:
            argv: tuple[str, ...] = ("/bin/sh", "-c", fill_shell(target.command[0], fields))
        else:
            argv = tuple(fill(part, fields) for part in target.command)
        env = {name: fill(value, fields) for name, value in target.env.items()}
        marks = attempt_marks(self._run_id, attempt)
        stdin = fill(target.stdin, fields) if target.stdin is not None else ""
        return Command(
            argv=argv,
            env=child_environment(env, target.pass_env, marks),
            cwd=target.cwd,
            stdin=stdin.encode(errors="surrogateescape"),
            stdout=os.path.join(attempt.folder, "stdout.log"),  # noqa: PTH118 - text goes to the keeper
            stderr=os.path.join(attempt.folder, "stderr.log"),  # noqa: PTH118
            timeout=target.timeout,
            grace=target.grace,
        )


def attempt_marks(run_id: str, attempt: Attempt) -> dict[str, str]:
    """Variables by which a child knows, and is known by, the attempt that it belongs to."""
    return {
        RUN_VARIABLE: run_id,
        "PARAVAL_CASE": attempt.trial.case.id,
        "PARAVAL_ATTEMPT": str(attempt.number),
        "PARAVAL_FOLDER": attempt.folder,
    }


def template_fields(trial: Trial, folder: str) -> TemplateFields:
    return TemplateFields(
        input=trial.case.input,
        case_id=trial.case.id,
        repeat=trial.repeat,
        folder=folder,
        variant=trial.variant,
    )


def _uses_folder(target: CommandTarget) -> bool:
    templates = [
        *target.command,
        *target.env.values(),
        target.stdin or "",
        target.output_file or "",
    ]
    return any("folder" in field_names(template) for template in templates)


def _failure_of(ended: Ended, target: CommandTarget, command: Command) -> Failure | None:
    if ended.failure is not None:
        return unexpected_end(ended, command.stderr)
    if ended.timed_out:
        assert target.timeout is not None
        message = f"not done after {seconds(target.timeout)}; ended"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.signal is not None:
        return unexpected_end(ended, command.stderr)
    if ended.log_error and target.output is not OutputForm.FILE:
        message = f"what it printed could not be kept: {ended.log_error}"
        return Failure(kind=Outcome.INFRA_ERROR, message=message)
    if ended.exit_code == 0 or target.any_exit_code:
        return None
    if ended.exit_code == TRY_AGAIN_EXIT_CODE:
        message = f"asked to be tried again (exit code 75){last_words(command.stderr)}"
        return Failure(kind=Outcome.INFRA_ERROR, message=message)
    return unexpected_end(ended, command.stderr)


def _artifacts(command: Command, ended: Ended) -> dict[str, str]:
    artifacts = {}
    if ended.stdout_bytes:
        artifacts["stdout"] = command.stdout
    if ended.stderr_bytes:
        artifacts["stderr"] = command.stderr
    return artifacts


def _notes(ended: Ended, *more: str) -> tuple[str, ...]:
    notes = []
    if ended.leaked:
        plural = "process" if ended.leaked == 1 else "processes"
        notes.append(f"left {ended.leaked} {plural} behind; ended")
    notes.extend(
        f"{name}: {total:,} bytes, of which the first part and the end are kept"
        for name, total, cut in (
            ("stdout", ended.stdout_bytes, ended.stdout_cut),
            ("stderr", ended.stderr_bytes, ended.stderr_cut),
        )
        if cut
    )
    if ended.log_error:
        notes.append(f"what it printed could not be kept: {ended.log_error}")
    if ended.survivors:
        notes.append(f"{ended.survivors} of its processes could not be ended yet")
    return (*notes, *(note for note in more if note))


def _stdout(command: Command, ended: Ended) -> tuple[str, str]:
    """The text on stdout, and what is remarkable about it."""
    if ended.stdout_bytes > ANSWER_LIMIT_BYTES:
        raise InvalidOutputError(too_long(ended.stdout_bytes, "bytes"))
    if ended.stdout_bytes == 0:
        return "", ""
    try:
        return _decoded(Path(command.stdout).read_bytes())
    except OSError as error:
        raise InvalidOutputError(f"what it printed could not be read back: {error}") from error


def _decoded(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return data.decode(
            errors="replace"
        ), "the output is not valid UTF-8; shown with � for the rest"


def _parsed(text: str, target: CommandTarget) -> Output:
    if target.output is OutputForm.JSON:
        return from_mapping(parse_object(text))
    return checked(Output(text=text))


class _AnswerFile:
    """The file that a command writes its answer to; one that stood there before is no answer."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._before = self._mark()

    @classmethod
    def of(cls, target: CommandTarget, fields: TemplateFields) -> _AnswerFile | None:
        if target.output is not OutputForm.FILE:
            return None
        assert target.output_file is not None
        return cls(str(Path(target.cwd, fill(target.output_file, fields))))

    def _mark(self) -> Any:
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self) -> tuple[str, str]:
        if (mark := self._mark()) is None or mark == self._before:
            raise InvalidOutputError(f"it did not write '{self._path}'")
        return _decoded(self._bytes())

    def _bytes(self) -> bytes:
        try:
            # A link, a pipe or a device in its place must neither lead out nor block.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise InvalidOutputError(f"'{self._path}' cannot be read: {error.strerror}") from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise InvalidOutputError(f"'{self._path}' is not a regular file")
            if found.st_size > ANSWER_LIMIT_BYTES:
                raise InvalidOutputError(too_long(found.st_size, "bytes"))
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(ANSWER_LIMIT_BYTES)
        finally:
            os.close(descriptor)
