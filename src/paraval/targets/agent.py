"""Agents as targets: one process tree for each attempt, started and read by its `AgentProgram`.

The run's own clock decides a timeout, whatever the agent printed; what it had reported and spent
until then is still read. A session that fails because of the provider, after it has cost money, is
resumed in the same attempt if the agent can do that. `agent_result` interprets its end.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from paraval.agents.catalog import AGENTS, find_program, keys_for
from paraval.agents.custom import custom_fields, has_patterns, read_by_patterns
from paraval.agents.program import (
    CONTINUE,
    TEMPORARY,
    AgentEndpoint,
    AgentJob,
    AgentProgram,
    Launch,
    Transcript,
    TranscriptReading,
    joined,
)
from paraval.dataclass import dataclass
from paraval.environment import PROXY_VARIABLES, child_environment
from paraval.models.prices import Prices
from paraval.processes.children import Command, ProcessEnd
from paraval.records import (
    AgentTarget,
    Attempt,
    Exchange,
    Failure,
    Home,
    McpServer,
    Outcome,
    Provider,
    Spend,
)
from paraval.scratch import OwnHome, remove_tree
from paraval.settings import LOG_LIMIT_BYTES
from paraval.targets.agent_result import AgentCall, answer_of, without_key
from paraval.targets.answer import (
    InvalidOutputError,
    TargetAnswer,
    open_plain_file,
    read_plain_file,
)
from paraval.targets.command import ProcessRoom, attempt_marks, own_places, template_fields
from paraval.targets.process_ends import artifacts_of
from paraval.templates.template import TemplateFields, fill
from paraval.text.words import counted

# Files that an agent creates for itself at the top of a repository, removed before its work is
# saved.

MOST_FOLDERS_UP = 40


class Litter:
    """The agent's own files: listed before it starts, and removed after it ends if they are new."""

    def __init__(self, workspace: str | None, names: tuple[str, ...]) -> None:
        """`names`: patterns; ignored without a workspace."""
        self._names = names
        self._top = _top_of(workspace) if workspace is not None and names else None
        self._before = self._found()

    async def clear(self) -> None:
        new = sorted(self._found() - self._before)
        if new:
            await asyncio.to_thread(lambda: [remove_tree(path) for path in new])

    def _found(self) -> frozenset[str]:
        if self._top is None:
            return frozenset()
        try:
            with os.scandir(self._top) as entries:
                return frozenset(
                    entry.path
                    for entry in entries
                    if any(fnmatch(entry.name, name) for name in self._names)
                )
        except OSError:
            return frozenset()


def _top_of(folder: str) -> str | None:
    """Return the top of the repository that contains it; None: there is none."""
    for _ in range(MOST_FOLDERS_UP):
        if os.path.lexists(f"{folder}/.git"):
            return folder
        above = os.path.dirname(folder)  # noqa: PTH120 - text, and quick
        if above == folder:
            return None
        folder = above
    return None


# Checks before an agent starts, and the files it needs.

LONGEST_ARGUMENT_BYTES = (128 << 10) - 1
"""Limit on Linux for one argument, or one variable with its name."""


class CannotStart(Exception):  # noqa: N818 - a state, not a bug
    """The agent is not started; the message has the reason and a hint."""


def check_home(target: AgentTarget, environment: Mapping[str, str]) -> None:
    if target.home is Home.MINE and not (target.env.get("HOME") or environment.get("HOME")):
        raise CannotStart(
            "HOME is not set, but `home: mine` needs it; set HOME, or remove `home: mine` and give"
            " the agent a key"
        )


def check_arguments(launch: Launch, job: AgentJob, agent: str) -> None:
    for argument in launch.argv:
        size = _size(argument)
        if size <= LONGEST_ARGUMENT_BYTES:
            continue
        what = "its prompt" if job.prompt in argument else "one of its arguments"
        if job.system and job.system in argument:
            what = "target.system"
        raise CannotStart(
            f"{agent} takes {what} on its command line, but it is {size:,} bytes long (limit:"
            f" {LONGEST_ARGUMENT_BYTES:,}); put the long part into a file in the workspace"
        )


def check_variables(env: Mapping[str, str], agent: str) -> None:
    for name, value in env.items():
        size = _size(f"{name}={value}")
        if size > LONGEST_ARGUMENT_BYTES:
            raise CannotStart(
                f"variable {name} for {agent} is {size:,} bytes long (limit:"
                f" {LONGEST_ARGUMENT_BYTES:,}); put its content into a file"
            )


def _size(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))


def write_files(files: Mapping[str, str], own: OwnHome) -> None:
    for path, text in files.items():
        if not path.startswith((f"{own.home}/", f"{own.temp}/")):
            raise ValueError(f"an agent's file must be in its own home or temp folder, not {path}")
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - text, and quick
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)


RESUMES = 5
"""How often a session is resumed; with the waits between, over a minute of overload."""
FIRST_WAIT_S = 2.0
"""Before a session is resumed; twice as long each time."""
LONGEST_WAIT_S = 300.0
"""If a provider asks for more, the attempt ends: its account waits without holding a slot."""

RESULT_FILE_LIMIT_BYTES = 32 << 20
LARGEST_LOG_BYTES = 2 * LOG_LIMIT_BYTES
"""With room for the note on the part that was left out."""
READ_IN_A_THREAD_FROM = 1 << 20
"""Bytes of output; reading more would delay other attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentModelAccess:
    """What agents need to use models from the registry."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """Base URLs of simulated models, by their name in the registry."""
    prices: Prices | None = None
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The environment that holds the keys."""


class AgentAnswerer:
    """Runs agent programs."""

    def __init__(self, room: ProcessRoom, models: AgentModelAccess | None = None) -> None:
        self._room = room
        self._models = models or AgentModelAccess()

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        target = attempt.trial.target
        assert isinstance(target, AgentTarget)
        model = target.model
        if model is not None and model.api_key_env and not self._key(model.api_key_env):
            return without_key(model)
        assert self._room.homes is not None
        async with self._room.homes.lease() as own:
            try:
                return await self._answer(attempt, target, own)
            except CannotStart as error:
                failure = Failure(kind=Outcome.CRASHED, message=str(error), lasting=True)
                return TargetAnswer(failure=failure, spend=Spend())

    async def close(self) -> None:
        """Do nothing: the warden is shared, and its owner closes it."""

    async def _answer(self, attempt: Attempt, target: AgentTarget, own: OwnHome) -> TargetAnswer:
        program = AGENTS[target.agent]
        os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        check_home(target, os.environ)
        job = self._job(attempt, target, own)
        keys = self._keys(target)
        call = AgentCall(
            target=target,
            program=program,
            has_key=bool(keys) or job.endpoint is not None,
            prices=self._models.prices,
        )
        started = time.monotonic()
        session = await self._session(attempt, job, own)
        resumes = 0
        while (wait := _wait_before_resume(session, job, resumes)) is not None:
            left = None
            if target.timeout is not None:
                left = target.timeout - (time.monotonic() - started) - wait
                if left <= 0:
                    break
            await asyncio.sleep(wait)
            resumes += 1
            again = await self._session(attempt, _resuming(job, session.reading, left), own)
            session = session.resumed(again)
        reading = session.reading
        if resumes:
            note = f"session resumed {counted(resumes, 'time')} after errors of the provider"
            reading = replace(reading, notes=(note, *reading.notes))
        answer = answer_of(call, session.ended, reading)
        exchange = Exchange(request=_request_data(job, target), steps=reading.steps)
        artifacts = {**artifacts_of(session.command, session.ended), **session.files}
        return replace(answer, artifacts=artifacts, exchange=exchange)

    async def _session(self, attempt: Attempt, job: AgentJob, own: OwnHome) -> _Session:
        """Run the agent once, in a new session or in an earlier one."""
        target = attempt.trial.target
        assert isinstance(target, AgentTarget)
        program = AGENTS[target.agent]
        launch = program.launch(job)
        check_arguments(launch, job, target.agent)
        command = self._command(attempt, launch, {**self._keys(target), **launch.env}, own)
        if job.earlier is not None:
            command = replace(
                command,
                timeout=job.timeout,
                stdout=f"{command.stdout}{RESUMED}",
                stderr=f"{command.stderr}{RESUMED}",
            )
        check_variables(command.env, target.agent)
        write_files(launch.files, own)
        litter = Litter(attempt.workspace, launch.litter)
        ended = await self._room.run(command, attempt.workspace)
        await litter.clear()
        files = _result_files(program.result_files(job), job, own)
        return _Session(
            command=command,
            ended=ended,
            files=_kept(files, attempt.folder),
            reading=await _read(program, job, _transcript(command, ended), files),
            can_resume=launch.can_resume,
        )

    def _keys(self, target: AgentTarget) -> dict[str, str]:
        """Return the user's own key variables, if it has no model from the registry."""
        if target.model is not None:
            return {}
        return keys_for(AGENTS[target.agent], self._models.environment)

    # ---- its input

    def _job(self, attempt: Attempt, target: AgentTarget, own: OwnHome) -> AgentJob:
        workspace = self._room.path_in(_working_folder(attempt))
        fields = template_fields(attempt.trial, self._room.folder_for(attempt), workspace)
        endpoint = self._endpoint(target)
        job = AgentJob(
            prompt=fill(target.prompt, fields),
            system=None if target.system is None else fill(target.system, fields),
            workspace=workspace,
            home=own.home if target.home is Home.OWN else None,
            temp=own.temp,
            model=target.model_name if endpoint is None else endpoint.model,
            endpoint=endpoint,
            max_turns=target.max_turns,
            retries=target.retries,
            mcp=tuple(_filled_server(server, fields) for server in target.mcp),
            arguments=tuple(fill(argument, fields) for argument in target.arguments),
            program=self._program(target, fields, attempt.workspace),
            timeout=target.timeout,
            custom=target.custom,
        )
        return job if job.custom is None else _with_command(job, fields)

    def _program(
        self, target: AgentTarget, fields: TemplateFields, place: str | None
    ) -> tuple[str, ...]:
        program = AGENTS[target.agent]
        if target.program or target.custom is not None:
            return tuple(fill(part, fields) for part in target.program)
        if self._room.in_container(place):
            return program.programs[:1]
        path = target.env.get("PATH", os.environ.get("PATH"))
        found = find_program(program, path)
        if found is None:
            names = " or ".join(f"'{name}'" for name in program.programs)
            raise CannotStart(
                f"{target.agent} is not installed: {names} is not on PATH; install it"
                f" ({program.install}), or set target.program"
            )
        return found

    def _endpoint(self, target: AgentTarget) -> AgentEndpoint | None:
        model = target.model
        if model is None:
            return None
        simulated = model.provider is Provider.LOOPBACK
        # A server identifies accounts by their keys; a simulated one has no secret.
        key = model.account if simulated else self._key(model.api_key_env)
        return AgentEndpoint(
            provider=model.provider,
            base_url=self._models.addresses[model.name] if simulated else model.base_url,
            model=model.model,
            api_key=key or "none",
        )

    def _key(self, variable: str | None) -> str:
        return self._models.environment.get(variable, "").strip() if variable else ""

    def _command(
        self, attempt: Attempt, launch: Launch, own_env: Mapping[str, str], own: OwnHome
    ) -> Command:
        target = attempt.trial.target
        assert isinstance(target, AgentTarget)
        workspace = self._room.path_in(_working_folder(attempt))
        fields = template_fields(attempt.trial, self._room.folder_for(attempt), workspace)
        configured = {name: fill(value, fields) for name, value in target.env.items()}
        simulated = target.model is not None and target.model.provider is Provider.LOOPBACK
        return Command(
            argv=launch.argv,
            env=child_environment(
                {**own_places(own, target.home), **own_env, **configured},
                # Without this, requests to this machine would go to the proxy.
                target.pass_env if simulated else (*PROXY_VARIABLES, *target.pass_env),
                {
                    **attempt_marks(self._room.run_id, attempt, fields.folder),
                    "PARAVAL_WORKSPACE": workspace,
                },
            ),
            cwd=workspace,
            stdin=launch.stdin.encode(errors="surrogateescape"),
            stdout=os.path.join(attempt.folder, "stdout.log"),  # noqa: PTH118 - text goes to the keeper
            stderr=os.path.join(attempt.folder, "stderr.log"),  # noqa: PTH118
            timeout=target.timeout,
            grace=target.grace,
            limits=target.limits,
            nice=self._room.nice,
            tag=attempt.trial.index,
            sandbox=self._room.sandbox_for(attempt, own),
        )


def _working_folder(attempt: Attempt) -> str:
    """Return its workspace, or else the empty folder that it may write to."""
    return attempt.own_folder if attempt.workspace is None else attempt.workspace


def _filled_server(server: McpServer, fields: TemplateFields) -> McpServer:
    return replace(
        server,
        command=tuple(fill(part, fields) for part in server.command),
        env={name: fill(value, fields) for name, value in server.env.items()},
        url=None if server.url is None else fill(server.url, fields),
    )


def _with_command(job: AgentJob, fields: TemplateFields) -> AgentJob:
    """Fill in a custom agent's own templates, which use the rest of the job."""
    assert job.custom is not None
    known = replace(fields, extra=custom_fields(job))
    stdin = job.custom.stdin
    return replace(
        job,
        custom=replace(
            job.custom,
            command=tuple(fill(part, known) for part in job.custom.command),
            stdin=None if stdin is None else fill(stdin, known),
        ),
    )


def _request_data(job: AgentJob, target: AgentTarget) -> dict[str, Any]:
    """Return what it was asked, as plain data, for people."""
    data = {
        "agent": target.agent,
        "command": list(job.custom.command) if job.custom is not None else None,
        "model": job.model,
        "system": job.system,
        "prompt": job.prompt,
        "max_turns": job.max_turns,
        "mcp": [server.name for server in job.mcp],
    }
    return {name: value for name, value in data.items() if value}


# ---- sessions that are resumed

RESUMED = ".resumed"
"""Ending of the logs of a resumed session, until they are appended to those before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What an agent did, whether or not it had to be resumed."""

    command: Command
    ended: ProcessEnd
    files: Mapping[str, str]
    """Its own result files, such as a trajectory: name -> where a copy is kept."""
    reading: TranscriptReading
    can_resume: bool

    def resumed(self, later: _Session) -> _Session:
        """Return the whole session; the later logs are appended to these."""
        for log, rest in (
            (self.command.stdout, later.command.stdout),
            (self.command.stderr, later.command.stderr),
        ):
            _append(log, rest)
        ended, before = later.ended, self.ended
        return replace(
            self,
            ended=replace(
                ended,
                cpu_s=before.cpu_s + ended.cpu_s,
                memory_bytes=max(before.memory_bytes, ended.memory_bytes),
                leaked=before.leaked + ended.leaked,
                survivors=before.survivors + ended.survivors,
                stdout_bytes=before.stdout_bytes + ended.stdout_bytes,
                stderr_bytes=before.stderr_bytes + ended.stderr_bytes,
                stdout_cut=before.stdout_cut or ended.stdout_cut,
                stderr_cut=before.stderr_cut or ended.stderr_cut,
                log_error=before.log_error or ended.log_error,
            ),
            reading=joined(self.reading, later.reading),
            # If the later part could not start, the session is lost.
            can_resume=self.can_resume and later.reading.end in TEMPORARY,
        )


def _wait_before_resume(session: _Session, job: AgentJob, resumes: int) -> float | None:
    """Return the seconds to wait before a session is resumed; None: it is not."""
    reading, ended = session.reading, session.ended
    most = RESUMES if job.retries.after is None else job.retries.after
    is_cut = ended.timed_out or ended.out_of_memory or ended.failure is not None
    if not session.can_resume or reading.end not in TEMPORARY or is_cut or resumes >= most:
        return None
    if not reading.has_worked or reading.activity.session is None:
        # It has cost nothing yet: the scheduler tries it again.
        return None
    wait = max(reading.retry_after or 0.0, min(FIRST_WAIT_S * 2**resumes, LONGEST_WAIT_S))
    return wait if wait <= LONGEST_WAIT_S else None


def _resuming(job: AgentJob, earlier: TranscriptReading, timeout: float | None) -> AgentJob:
    turns = job.max_turns
    if turns is not None:
        turns = max(1, turns - (earlier.activity.turns or 0))
    return replace(job, prompt=CONTINUE, max_turns=turns, timeout=timeout, earlier=earlier)


def _append(log: str, rest: str) -> None:
    """Append a log to another and remove it; on a full disk, both stay."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(InvalidOutputError, OSError):
        with (
            os.fdopen(open_plain_file(rest), "rb") as later,
            os.fdopen(os.open(log, flags, 0o666), "ab") as whole,
        ):
            shutil.copyfileobj(later, whole)
        os.unlink(rest)  # noqa: PTH108 - text, and quick


# ---- its results


async def _read(
    program: AgentProgram, job: AgentJob, transcript: Transcript, files: Mapping[str, str]
) -> TranscriptReading:
    size = len(transcript.stdout) + sum(map(len, files.values()))
    if size < READ_IN_A_THREAD_FROM:
        reading = program.read(job, transcript, files)
    else:
        reading = await asyncio.to_thread(program.read, job, transcript, files)
    if job.custom is None or reading.end is None or not has_patterns(job.custom):
        return reading
    return await asyncio.to_thread(read_by_patterns, reading, job.custom, transcript)


def _transcript(command: Command, ended: ProcessEnd) -> Transcript:
    """Read the logs from disk: if the watchers were killed, they counted no bytes."""
    return Transcript(
        stdout=_log(command.stdout),
        stderr=_log(command.stderr),
        exit_code=ended.exit_code,
        signal=ended.signal,
    )


def _log(path: str) -> str:
    try:
        return read_plain_file(path, LARGEST_LOG_BYTES).decode(errors="replace")
    except InvalidOutputError:
        return ""


def _kept(files: Mapping[str, str], folder: str) -> dict[str, str]:
    """Copy an agent's result files into the attempt's folder; on a full disk, none are kept."""
    kept: dict[str, str] = {}
    with suppress(OSError):
        for path, text in files.items():
            copy = Path(folder, Path(path).name)
            copy.write_text(text, errors="surrogateescape")
            kept[copy.name] = str(copy)
    return kept


def _result_files(paths: tuple[str, ...], job: AgentJob, own: OwnHome) -> dict[str, str]:
    """Read the result files that exist; links must not lead out of its own folders."""
    places = [os.path.realpath(place) for place in (job.home or own.home, own.temp)]
    found = {}
    for path in paths:
        folder = os.path.realpath(os.path.dirname(path))  # noqa: PTH120 - text, and quick
        if any(folder == place or folder.startswith(f"{place}/") for place in places):
            try:
                data = read_plain_file(path, RESULT_FILE_LIMIT_BYTES)
            except InvalidOutputError:
                continue
            found[path] = data.decode(errors="replace")
    return found
