"""Python functions in warm worker processes: a crash, a leak or an exit costs only that attempt.

A worker serves one attempt at a time and is reused for the next with the same function and
environment. One that crashed, timed out or was cancelled is killed, with everything it started.
There are never more workers than parallel attempts: an idle one makes room for one of another kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from paraval.environment import child_environment
from paraval.processes.children import Child, Command, ProcessEnd, Warden
from paraval.processes.identity import RUN_VARIABLE
from paraval.processes.wire import Frames, frame
from paraval.records import Attempt, Failure, FunctionTarget, Outcome, Output
from paraval.targets.answer import TargetAnswer, seconds
from paraval.targets.command import template_fields
from paraval.targets.process_ends import unexpected_end
from paraval.templates.template import field_names, fill

START_LIMIT_S = 60.0
"""Time limit for a worker to import the function."""
EXIT_PATIENCE_S = 5.0
"""Time that a worker that closed its channel gets to exit: its exit code is informative."""

_Kind = tuple[str, str, tuple[tuple[str, str], ...]]


def _kind(target: FunctionTarget, env: Mapping[str, str]) -> _Kind:
    """The kind of a worker: it calls this function in this environment."""
    return target.reference, target.folder, tuple(sorted(env.items()))


_BOOTSTRAP = """\
import sys
sys.path.append(sys.argv[1])
from paraval.targets.worker import main
main()
"""


class _WorkerGoneError(Exception):
    """The worker's channel closed: it exited, was killed, or closed it."""


class _NotStartedError(Exception):
    """No worker could be started."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class IsolatedAnswerer:
    """Manages the workers."""

    def __init__(self, warden: Warden, run_id: str, *, folder: str, most: int) -> None:
        self._warden = warden
        self._run_id = run_id
        self._folder = folder
        """For what workers print between attempts."""
        self._most = most
        self._idle: list[_Worker] = []
        """Most recently used last."""
        self._busy = 0
        self._made = 0

    async def answer(self, attempt: Attempt) -> TargetAnswer:
        target = attempt.trial.target
        assert isinstance(target, FunctionTarget)
        fields = template_fields(attempt.trial, attempt.own_folder)
        if any("folder" in field_names(value) for value in target.env.values()):
            os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        env = {name: fill(value, fields) for name, value in target.env.items()}
        self._busy += 1
        try:
            worker = self._take(_kind(target, env)) or await self._start(target, env)
            answer = await worker.answer(attempt, target)
        except _NotStartedError as error:
            return TargetAnswer(failure=error.failure)
        finally:
            self._busy -= 1
        if worker.alive:
            self._idle.append(worker)
        return answer

    async def close(self) -> None:
        workers, self._idle = self._idle, []
        await asyncio.gather(*(worker.end() for worker in workers))

    def _take(self, kind: _Kind) -> _Worker | None:
        """Return the most recently used idle worker of this kind."""
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
        package = str(Path(__file__).parents[2])
        child = await self._warden.open(
            Command(
                # -P: a `queue.py` in the suite's folder must not replace Python's own.
                argv=(sys.executable, "-P", "-c", _BOOTSTRAP, package),
                env=child_environment(own_env, target.pass_env, {RUN_VARIABLE: self._run_id}),
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
        self._stderr = str(place / "stderr.log")
        """Where its output goes now."""
        self._asked = 0
        self.alive = True
        child.channel.setblocking(False)

    async def make_ready(self, target: FunctionTarget) -> None:
        order = {"reference": target.reference, "folder": target.folder}
        try:
            async with asyncio.timeout(START_LIMIT_S):
                reply = await self._exchange(json.dumps(order).encode())
        except TimeoutError:
            await self.end()
            message = f"importing '{target.reference}' took more than {seconds(START_LIMIT_S)}"
            raise _NotStartedError(Failure(kind=Outcome.CRASHED, message=message)) from None
        except _WorkerGoneError:
            raise _NotStartedError(
                await self._end_of_itself("its worker did not start: ")
            ) from None
        except asyncio.CancelledError:
            await self.end()
            raise
        if "problem" in reply:
            await self.end()
            failure = Failure(kind=Outcome.CRASHED, message=reply["problem"])
            raise _NotStartedError(failure)

    async def answer(self, attempt: Attempt, target: FunctionTarget) -> TargetAnswer:
        folder = Path(attempt.folder)
        await self._log_to(folder)
        answer = await self._answer(attempt, target)
        if self.alive:
            await self._log_to(self._place)
        logs = {name: str(folder / f"{name}.log") for name in ("stdout", "stderr")}
        return TargetAnswer(
            output=answer.output,
            failure=answer.failure,
            artifacts={name: path for name, path in logs.items() if _is_there(path)},
            notes=answer.notes,
        )

    async def _log_to(self, folder: Path) -> None:
        self._stderr = str(folder / "stderr.log")
        await self._child.switch_logs(str(folder / "stdout.log"), self._stderr)

    async def _answer(self, attempt: Attempt, target: FunctionTarget) -> TargetAnswer:
        trial = attempt.trial
        self._asked += 1
        order = pickle.dumps((self._asked, trial.case, dict(trial.variant)))
        try:
            async with asyncio.timeout(target.timeout):
                return _answer_of(await self._exchange(order), self._asked)
        except TimeoutError:
            await self.end()
            assert target.timeout is not None
            message = f"not done after {seconds(target.timeout)}; its process was stopped"
            return TargetAnswer(failure=Failure(kind=Outcome.TIMEOUT, message=message))
        except _WorkerGoneError:
            return TargetAnswer(failure=await self._end_of_itself("its process ended: "))
        except asyncio.CancelledError:
            await self.end()
            raise

    async def _end_of_itself(self, what: str) -> Failure:
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_PATIENCE_S):
                await self._child.wait()
        return unexpected_end(await self.end(), self._stderr, what=what)

    async def end(self) -> ProcessEnd:
        """Kill the worker and everything it started; they are gone when this returns."""
        self.alive = False
        self._child.end()
        ended = await self._child.wait()
        self._child.channel.close()
        return ended

    async def _exchange(self, payload: bytes) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        frames = Frames()
        try:
            await loop.sock_sendall(self._child.channel, frame(payload))
            while data := await loop.sock_recv(self._child.channel, 1 << 20):
                frames.feed(data)
                for reply in frames:
                    message = json.loads(reply)
                    if isinstance(message, dict):
                        return message
                    raise _WorkerGoneError
        except (ConnectionError, ValueError) as error:
            raise _WorkerGoneError from error
        raise _WorkerGoneError


def _is_there(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - no Path for one quick look


def _answer_of(reply: dict[str, Any], number: int) -> TargetAnswer:
    if reply.get("number") != number:
        # Something else writes to the channel: nothing on it can be trusted.
        raise _WorkerGoneError
    if "output" in reply:
        return TargetAnswer(output=Output(**reply["output"]))
    failure = reply["failure"]
    return TargetAnswer(failure=Failure(**{**failure, "kind": Outcome(failure["kind"])}))
