"""The executor on a node: performs attempts as an engine on one machine does.

A backend starts it and carries messages to it. It holds a lease: if the engine is silent for too
long, because it was killed or cannot be reached, the host ends what it runs, and itself. If the
host is killed, its warden ends everything that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.execute.attempts import UnjudgedAnswer
from paraval.execute.driver import Performer
from paraval.machine.machine_reader import MachineReader
from paraval.models.prices import Prices
from paraval.models.secrets import Redactor
from paraval.plain_files import PlainFileError, leads_out, read_plain_file
from paraval.processes.children import Warden
from paraval.processes.identity import end_leftovers
from paraval.records import (
    AgentTarget,
    Attempt,
    AttemptResult,
    Case,
    CommandTarget,
    Failure,
    FunctionTarget,
    Grade,
    Grading,
    Limits,
    Model,
    Outcome,
    Plan,
    SkippedGrader,
    Target,
    Trial,
    Workspace,
)
from paraval.runner.cluster import survey
from paraval.runner.cluster.backend import Message
from paraval.runner.cluster.files import BundleFolder, BundleHeader, moved
from paraval.runner.resources import (
    AttemptResources,
    ModelAccess,
    at_once_with_files,
    attempts_with,
    loopback_addresses,
    scenarios_of,
)
from paraval.scratch import open_scratch, remove_tree, scratch_base
from paraval.targets.answer import TargetAnswer
from paraval.text.words import counted
from paraval.workspaces.workspace import KeptWorkspace

LEASE_S = 60.0
"""How long a host works for an engine from which it hears nothing."""
GATHER_S = 0.01
"""How long results wait for others to travel with."""
READ_EVERY_S = 0.1
"""A reading of the machine looks at all its processes: not with every message."""
MOST_FILE_BYTES = 64 << 20
MOST_FILES = 10_000
"""Of the files that an attempt leaves, as many as fit come back."""
FULL_BYTES = 16 << 20
"""A disk with less room than this is full: attempts fail there for no reason of their own."""

_TARGETS: Mapping[str, Callable[..., Target]] = {
    "command": CommandTarget,
    "function": FunctionTarget,
    "agent": AgentTarget,
}


# ---- records as messages


def target_data(target: Target) -> dict[str, Any]:
    kind = next(name for name, of in _TARGETS.items() if type(target) is of)
    return {"kind": kind, **to_data(target)}


def attempt_data(attempt: Attempt, target: int, run_folder: str) -> dict[str, Any]:
    trial = attempt.trial
    return {
        "index": trial.index,
        "number": attempt.number,
        "key": trial.key,
        "case": to_data(trial.case),
        "variant": dict(trial.variant),
        "repeat": trial.repeat,
        "target": target,
        "folder": attempt.folder.removeprefix(f"{run_folder}/"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all attempts of a run have in common."""

    run_id: str
    node: str
    """The node's name."""
    name: str
    source: str | None
    grading: Grading
    workspace: Workspace
    parallel: int
    auto: bool
    bundles: tuple[BundleHeader, ...] = ()
    """The files that the node has been sent."""
    performer: str | None = None
    """What performs its attempts: `module:function` in paraval, an `Opener`; None: as in a
    suite."""
    details: Any = None
    """What that needs to know, unchanged: with paths of the engine's machine."""


class NodePerformer(Performer, Protocol):
    """Performs attempts on a node."""

    def take_answer(self, index: int) -> UnjudgedAnswer | None:
        """The answer of a trial, if the engine has to judge it."""
        ...


Opener = Callable[[AttemptResources, Any], contextlib.AbstractAsyncContextManager[NodePerformer]]
"""Opens a performer, with the details of its job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderMark:
    """What one grader said: one of the two is set."""

    position: int
    grade: Grade | None = None
    skipped: SkippedGrader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReply:
    """What comes back of an attempt: its result, or an answer for the judges."""

    index: int
    number: int
    result: AttemptResult | None = None
    answer: TargetAnswer | None = None
    kept: KeptWorkspace | None = None
    marks: tuple[GraderMark, ...] = ()
    duration_s: float = 0.0

    @classmethod
    def unjudged(cls, attempt: Attempt, one: UnjudgedAnswer) -> AttemptReply:
        return cls(
            index=attempt.trial.index,
            number=attempt.number,
            answer=one.answer,
            kept=one.kept,
            marks=tuple(
                GraderMark(position=at, grade=mark)
                if isinstance(mark, Grade)
                else GraderMark(position=at, skipped=mark)
                for at, mark in one.marks.items()
            ),
            duration_s=one.duration_s,
        )

    def for_judges(self) -> UnjudgedAnswer | None:
        if self.answer is None:
            return None
        said = {mark.position: mark.grade or mark.skipped for mark in self.marks}
        return UnjudgedAnswer(
            answer=self.answer,
            kept=self.kept,
            marks={at: mark for at, mark in said.items() if mark is not None},
            duration_s=self.duration_s,
        )


# ---- the host


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenJob:
    """A run that this host works for."""

    node: str
    auto: bool
    folder: Path
    targets: tuple[Target, ...]
    attempts: NodePerformer
    warden: Warden
    reader: MachineReader
    closing: contextlib.AsyncExitStack


class Host:
    """Performs the attempts that an engine submits. Belongs to one event loop."""

    def __init__(self) -> None:
        self._bundles = BundleFolder()
        self._redacted: list[str] = []
        self._job: _OpenJob | None = None
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._replies: list[tuple[AttemptReply, dict[str, bytes]]] = []
        self._has_replies = asyncio.Event()
        self._read_at = 0.0
        self._heard_at = time.monotonic()
        self._lease = asyncio.create_task(self._watch_lease())

    async def call(self, method: str, message: Message) -> Message:
        self._heard_at = time.monotonic()
        data = json.loads(message.text)
        if method == "put":
            header = from_data(BundleHeader, data)
            await asyncio.to_thread(self._bundles.put, header, message.files["content"])
            return Message(text="null")
        if method == survey.FACTS:
            return await asyncio.to_thread(survey.answer, message)
        if method == "collect":
            return await self._collect(**data)
        if method == "submit":
            self._submit(data["attempts"], message.files)
            return Message(text="null")
        answers: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "missing": self._missing,
            "secrets": self._secrets,
            "open": self._open,
            "cancel": self._cancel,
            "kill": self._kill,
            "close": self._close,
        }
        return Message(text=json.dumps(await answers[method](**data)))

    async def close(self) -> None:
        """End everything that it runs, and the lease."""
        self._lease.cancel()
        await self._close()

    async def _watch_lease(self) -> None:
        while True:
            left_s = self._heard_at + LEASE_S - time.monotonic()
            if left_s <= 0.0:
                break
            await asyncio.sleep(left_s)
        try:
            async with asyncio.timeout(LEASE_S / 2):
                await self._close()
        finally:
            os._exit(1)

    # ---- before a run

    async def _missing(self, *, names: list[str]) -> list[str]:
        """The bundles that have to be sent."""
        return [name for name in names if not self._bundles.has(name)]

    async def _secrets(self, *, env: dict[str, str], redacted: list[str]) -> None:
        """Variables for attempts, kept in memory only, and what to remove from results."""
        os.environ.update(env)
        self._redacted = redacted

    # ---- a run

    async def _open(self, *, job: Any, targets: list[Any]) -> dict[str, int]:
        told = from_data(Job, job)
        await self._close()
        # Other nodes may be on the same machine.
        marker = f"{told.run_id}@{told.node}"
        await asyncio.to_thread(end_leftovers, marker)
        async with contextlib.AsyncExitStack() as stack:
            scratch = await asyncio.to_thread(open_scratch)
            stack.push_async_callback(asyncio.to_thread, scratch.close)
            places = [
                await asyncio.to_thread(self._bundles.unpack, header, scratch.folder / "files")
                for header in told.bundles
            ]
            # The workspace's source may be the suite's folder, which is another bundle.
            folders = {
                header.path: place
                for header, place in zip(told.bundles, places, strict=True)
                if not header.is_workspace
            }
            plan = _plan(from_data(Job, moved(job, folders)), moved(targets, folders))
            for header, place in zip(told.bundles, places, strict=True):
                if header.is_workspace:
                    plan = replace(plan, workspace=replace(plan.workspace, source=place))
            reader = MachineReader()
            if told.auto:
                slots = survey.slots_on(plan, reader.read({}))
                plan = replace(plan, limits=replace(plan.limits, parallel=slots))
            slots = at_once_with_files(replace(plan, trials=()))
            warden = await stack.enter_async_context(Warden())
            warden.prepare(slots)
            addresses = await loopback_addresses(scenarios_of(_models_of_agents(plan)), stack)
            resources = AttemptResources(
                plan=plan,
                run_id=marker,
                folder=scratch.folder / "run",
                functions={},
                warden=warden,
                access=ModelAccess(addresses=addresses, redactor=Redactor(self._redacted)),
                prices=Prices(),
                store_root=scratch.folder / "run",
                at_once=slots,
                asks_judges=False,
            )
            opened = _opener(told.performer)(resources, told.details)
            attempts = await stack.enter_async_context(opened)
            self._job = _OpenJob(
                node=told.node,
                auto=told.auto,
                folder=resources.folder,
                targets=tuple(trial.target for trial in plan.trials),
                attempts=attempts,
                warden=warden,
                reader=reader,
                closing=stack.pop_all(),
            )
        return {"slots": slots}

    async def _close(self) -> None:
        """End the run's attempts, and remove what they left here."""
        job, self._job = self._job, None
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())
        self._replies.clear()
        if job is not None:
            await job.closing.aclose()

    def _submit(self, attempts: Sequence[Any], files: Mapping[str, bytes]) -> None:
        job = self._job
        if job is None:
            raise ParavalError("this host has no run")
        for data in attempts:
            attempt = _attempt(data, job)
            own = {path: files[path] for path in files if path.startswith(f"{data['folder']}/")}
            task = asyncio.create_task(self._perform(attempt, job, own))
            self._tasks[attempt.id] = task
            task.add_done_callback(partial(self._ended, attempt.id))

    def _ended(self, which: tuple[int, int], _task: asyncio.Task[None]) -> None:
        self._tasks.pop(which, None)

    async def _cancel(self, *, index: int, number: int) -> None:
        """Return when nothing of the attempt is running."""
        task = self._tasks.get((index, number))
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _kill(self) -> None:
        if self._job is not None:
            self._job.attempts.kill()

    async def _collect(self, *, wait_s: float) -> Message:
        """Results that are ready, or else a sign of life."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._has_replies.wait()
                await asyncio.sleep(GATHER_S)
        job, files, size, replies = self._job, dict[str, bytes](), 0, list[Any]()
        while self._replies and size < MOST_FILE_BYTES:
            reply, its_files = self._replies.pop(0)
            replies.append(to_data(reply))
            files.update(its_files)
            size += sum(map(len, its_files.values()))
        if not self._replies:
            self._has_replies.clear()
        reading = None
        if job is not None and job.auto and time.monotonic() - self._read_at >= READ_EVERY_S:
            self._read_at = time.monotonic()
            measured = await asyncio.to_thread(lambda: job.reader.read(job.warden.loads()))
            reading = to_data(measured)
        return Message(text=json.dumps({"replies": replies, "reading": reading}), files=files)

    # ---- an attempt

    async def _perform(self, attempt: Attempt, job: _OpenJob, sent: Mapping[str, bytes]) -> None:
        """Whatever happens, the engine gets an answer."""
        files: dict[str, bytes] = {}
        reply = AttemptReply(index=attempt.trial.index, number=attempt.number)
        try:
            if sent:
                await asyncio.to_thread(write_files, job.folder, sent)
            result = await job.attempts.perform(attempt)
            unjudged = job.attempts.take_answer(attempt.trial.index)
            files, note = await _taken(attempt, str(job.folder))
            if result.outcome is not Outcome.PASSED and _free_bytes() < FULL_BYTES:
                result = _of_node(f"the disk of node {job.node} is full", result)
            elif unjudged is not None:
                reply = AttemptReply.unjudged(attempt, _relative(unjudged, job.folder))
            elif result.error is not None and _is_of_node(attempt, result):
                result = _of_node(f"node {job.node}: {result.error.message}", result)
            if reply.answer is None:
                reply = replace(reply, result=replace(result, notes=(*result.notes, *note)))
        except Exception as error:  # noqa: BLE001 - see above
            result = AttemptResult(outcome=Outcome.INFRA_ERROR)
            reply = replace(reply, result=_of_node(f"node {job.node}: {error!r}", result))
        self._replies.append((reply, files))
        self._has_replies.set()


def _opener(name: str | None) -> Opener:
    if name is None:
        return lambda resources, _details: attempts_with(resources, _say_nothing)
    module, _, function = name.partition(":")
    if not module.startswith("paraval."):
        raise ParavalError(f"'{name}' is not a part of paraval")
    opener: Opener = getattr(import_module(module), function)
    return opener


def write_files(folder: str | Path, files: Mapping[str, bytes]) -> None:
    """Write files of attempts, by their path in the run's folder."""
    for path, content in files.items():
        place = Path(folder, path)
        if leads_out(path):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _plan(job: Job, targets: list[Any]) -> Plan:
    """A plan with a trial for each target: it shows what attempts will need."""
    trials = tuple(
        Trial(index=at, key="", case=Case(id=""), variant={}, repeat=1, target=_target(data))
        for at, data in enumerate(targets)
    )
    return Plan(
        name=job.name,
        source=job.source,
        axes={},
        variants=(),
        trials=trials,
        grading=job.grading,
        limits=Limits(parallel=job.parallel, auto=job.auto),
        workspace=job.workspace,
    )


def _models_of_agents(plan: Plan) -> tuple[Model, ...]:
    """Judges are asked elsewhere."""
    targets = (trial.target for trial in plan.trials)
    models = (one.model for one in targets if isinstance(one, AgentTarget) and one.model)
    return tuple({model.name: model for model in models}.values())


def _target(data: dict[str, Any]) -> Target:
    return from_data(_TARGETS[data["kind"]], data)


def _attempt(data: dict[str, Any], job: _OpenJob) -> Attempt:
    trial = Trial(
        index=data["index"],
        key=data["key"],
        case=from_data(Case, data["case"]),
        variant=data["variant"],
        repeat=data["repeat"],
        target=job.targets[data["target"]],
    )
    return Attempt(trial=trial, number=data["number"], folder=f"{job.folder}/{data['folder']}")


def _relative(unjudged: UnjudgedAnswer, folder: Path) -> UnjudgedAnswer:
    """With paths relative to the run's folder, as the engine has one of its own."""
    answer, kept = unjudged.answer, unjudged.kept
    artifacts = {name: os.path.relpath(path, folder) for name, path in answer.artifacts.items()}
    if kept is not None and kept.patch is not None:
        kept = replace(kept, patch=os.path.relpath(kept.patch, folder))
    return replace(unjudged, answer=replace(answer, artifacts=artifacts), kept=kept)


async def _taken(attempt: Attempt, run_folder: str) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """An attempt's files by their path in the run's folder, which are then removed here; and a note
    if not all of them fit."""
    if not Path(attempt.folder).is_dir():  # noqa: ASYNC240 - quick, and most functions leave none
        return {}, ()
    return await asyncio.to_thread(_files_of, attempt.folder, run_folder)


def _files_of(folder: str, run_folder: str) -> tuple[dict[str, bytes], tuple[str, ...]]:
    files: dict[str, bytes] = {}
    room, left_out = MOST_FILE_BYTES, 0
    paths = (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)  # noqa: PTH118 - text
    for path in sorted(paths):
        if len(files) >= MOST_FILES:
            left_out += 1
            continue
        try:
            content = read_plain_file(path, room)
        except PlainFileError as error:
            left_out += error.size is not None
            continue
        files[os.path.relpath(path, run_folder)] = content
        room -= len(content)
    remove_tree(folder)
    if not left_out:
        return files, ()
    return files, (f"{counted(left_out, 'file')} too large, or too many, to be sent from the node",)


def _is_of_node(attempt: Attempt, result: AttemptResult) -> bool:
    """Whether the node is at fault: it had no workspace, or could not start a process."""
    error = result.error
    if error is None or error.kind is not Outcome.INFRA_ERROR or error.account is not None:
        return False
    never_began = not result.target_s
    is_function = isinstance(attempt.trial.target, FunctionTarget)
    return never_began or (result.exit_code is None and not is_function)


def _of_node(message: str, result: AttemptResult) -> AttemptResult:
    """It says nothing about the target, and another node may do better."""
    failure = Failure(kind=Outcome.INFRA_ERROR, message=message, lost=True)
    return replace(result, outcome=failure.kind, error=failure, grades=(), score=None)


def _free_bytes() -> int:
    return shutil.disk_usage(scratch_base()).free


def _say_nothing(_words: str) -> None: ...
