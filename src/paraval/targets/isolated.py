"""Python functions in warm worker processes: a crash, a leak or an exit costs that attempt alone.

A worker serves one attempt at a time and is used again for the next with the same function and
environment. One that crashed, was too slow or was cancelled is ended, with all that it started.
There are never more than attempts at once: an idle one makes room for one of another kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import signal
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paraval.environment import child_environment
from paraval.processes.children import Child, Command, Ended, Warden
from paraval.records import Attempt, Failure, FunctionTarget, Outcome, Output
from paraval.targets.answer import Answer, seconds
from paraval.targets.command import template_fields
from paraval.templates import fill

LENGTH = struct.Struct("!I")
LARGEST_FRAME_BYTES = 64 << 20
START_LIMIT_S = 60.0
"""How long a worker may take to import the function."""

_Kind = tuple[str, str, tuple[tuple[str, str], ...]]


def _kind(target: FunctionTarget, env: Mapping[str, str]) -> _Kind:
    """What a worker can do: call this function in this environment."""
    return target.reference, target.folder, tuple(sorted(env.items()))


class _WorkerGoneError(Exception):
    """The worker's channel closed: it exited, was killed, or closed it."""


class IsolatedAnswerer:
    """Keeps the workers."""

    def __init__(self, warden: Warden, run_id: str, *, folder: str, most: int) -> None:
        self._warden = warden
        self._run_id = run_id
        self._folder = folder
        """For what workers print between attempts."""
        self._most = most
        self._idle: list[_Worker] = []
        """The one that worked last is last."""
        self._busy = 0
        self._made = 0

    async def answer(self, attempt: Attempt) -> Answer:
        target = attempt.trial.target
        assert isinstance(target, FunctionTarget)
        fields = template_fields(attempt)
        env = {name: fill(value, fields) for name, value in target.env.items()}
        self._busy += 1
        try:
            worker = self._take(_kind(target, env)) or await self._start(target, env)
            answer = await worker.answer(attempt, target)
        except _WorkerGoneError as error:
            return Answer(failure=Failure(kind=Outcome.CRASHED, message=str(error)))
        finally:
            self._busy -= 1
        if worker.alive:
            self._idle.append(worker)
        return answer

    async def close(self) -> None:
        workers, self._idle = self._idle, []
        await asyncio.gather(*(worker.end() for worker in workers))

    def _take(self, kind: _Kind) -> _Worker | None:
        """The idle worker of this kind that worked last."""
        for worker in reversed(self._idle):
            if worker.kind == kind:
                self._idle.remove(worker)
                return worker
        return None

    async def _start(self, target: FunctionTarget, own_env: Mapping[str, str]) -> _Worker:
        if self._idle and len(self._idle) + self._busy > self._most:
            await self._idle.pop(0).end()
        self._made += 1
        place = Path(self._folder, f"worker-{self._made}")
        env = child_environment(own_env, target.pass_env, {"PARAVAL_RUN": self._run_id})
        package = str(Path(__file__).parents[2])
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [package, env.get("PYTHONPATH")]))
        child = await self._warden.open(
            Command(
                argv=(sys.executable, "-m", "paraval.targets.worker"),
                env=env,
                cwd=target.folder,
                stdout=str(place / "stdout.log"),
                stderr=str(place / "stderr.log"),
                grace=target.grace,
            )
        )
        worker = _Worker(child, _kind(target, own_env), place)
        await worker.make_ready(target)
        return worker


class _Worker:
    def __init__(self, child: Child, kind: _Kind, place: Path) -> None:
        self.kind = kind
        self._child = child
        self._place = place
        self.alive = True
        child.channel.setblocking(False)

    async def make_ready(self, target: FunctionTarget) -> None:
        order = {"reference": target.reference, "folder": target.folder}
        try:
            async with asyncio.timeout(START_LIMIT_S):
                reply = await self._exchange(json.dumps(order).encode())
        except (_WorkerGoneError, TimeoutError):
            ended = await self.end()
            raise _WorkerGoneError(f"the worker did not start: {_how(ended)}") from None
        except asyncio.CancelledError:
            await self.end()
            raise
        if "problem" in reply:
            await self.end()
            raise _WorkerGoneError(reply["problem"])

    async def answer(self, attempt: Attempt, target: FunctionTarget) -> Answer:
        folder = Path(attempt.folder)
        await self._child.switch_logs(str(folder / "stdout.log"), str(folder / "stderr.log"))
        answer = await self._answer(attempt, target)
        if self.alive:
            await self._child.switch_logs(
                str(self._place / "stdout.log"), str(self._place / "stderr.log")
            )
        logs = {name: str(folder / f"{name}.log") for name in ("stdout", "stderr")}
        return Answer(
            output=answer.output,
            failure=answer.failure,
            artifacts={name: path for name, path in logs.items() if _is_there(path)},
            notes=answer.notes,
        )

    async def _answer(self, attempt: Attempt, target: FunctionTarget) -> Answer:
        trial = attempt.trial
        order = pickle.dumps((trial.case, dict(trial.variant)))
        try:
            async with asyncio.timeout(target.timeout):
                return _answer_of(await self._exchange(order))
        except TimeoutError:
            await self.end()
            assert target.timeout is not None
            message = f"not done after {seconds(target.timeout)}; its process was ended"
            return Answer(failure=Failure(kind=Outcome.TIMEOUT, message=message))
        except _WorkerGoneError:
            ended = await self.end()
            message = f"its process ended: {_how(ended)}"
            return Answer(failure=Failure(kind=Outcome.CRASHED, message=message))
        except asyncio.CancelledError:
            await self.end()
            raise

    async def end(self) -> Ended:
        """The worker and all that it started are gone when this returns."""
        self.alive = False
        self._child.end()
        ended = await self._child.wait()
        self._child.channel.close()
        return ended

    async def _exchange(self, payload: bytes) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(self._child.channel, LENGTH.pack(len(payload)) + payload)
        size = LENGTH.unpack(await self._exactly(LENGTH.size))[0]
        if size > LARGEST_FRAME_BYTES:
            raise _WorkerGoneError
        try:
            reply: dict[str, Any] = json.loads(await self._exactly(size))
        except ValueError as error:
            raise _WorkerGoneError from error
        return reply

    async def _exactly(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        received = bytearray()
        while len(received) < size:
            try:
                piece = await loop.sock_recv(
                    self._child.channel, min(size - len(received), 1 << 20)
                )
            except ConnectionError as error:
                raise _WorkerGoneError from error
            if not piece:
                raise _WorkerGoneError
            received += piece
        return bytes(received)


def _is_there(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - no Path for one quick look


def _answer_of(reply: dict[str, Any]) -> Answer:
    if "output" in reply:
        return Answer(output=Output(**reply["output"]))
    failure = reply["failure"]
    return Answer(
        failure=Failure(
            kind=Outcome(failure["kind"]),
            message=failure["message"],
            retry_after=failure["retry_after"],
        )
    )


def _how(ended: Ended) -> str:
    if ended.failure is not None:
        return ended.failure.message
    if ended.signal is not None:
        return f"killed by {signal.Signals(ended.signal).name}"
    return f"exit code {ended.exit_code}"
