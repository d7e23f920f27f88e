"""A host as the engine sees it: sends it attempts and receives their results, several in a message
if they are short."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping

from paraval.codec import from_data
from paraval.errors import ParavalError
from paraval.records import Attempt, MachineReading
from paraval.runner.cluster.backend import HostHandle, HostLostError, Message
from paraval.runner.cluster.host import AttemptReply

WAIT_S = 0.25
"""A host without results gives a sign of life this often, with a reading of its machine."""
SILENT_S = 30.0
"""A host that gives none for this long is lost."""
LONGEST_REASON = 500

Reply = tuple[AttemptReply, Mapping[str, bytes]]
"""Of an attempt, with the files of all replies of the same message."""


class NodeHost:
    """A host that works for a run."""

    def __init__(self, handle: HostHandle, slots: int) -> None:
        self.handle = handle
        self.slots = slots
        self.is_lost = False
        self.is_resting = False
        """After a failure of its own: it gets nothing for a while."""
        self._running: dict[tuple[int, int], asyncio.Future[Reply]] = {}
        self._waiting: dict[tuple[int, int], Message] = {}
        self._has_work = asyncio.Event()

    @property
    def name(self) -> str:
        return self.handle.node.name

    @property
    def running(self) -> int:
        return len(self._running)

    async def perform(self, attempt: Attempt, message: Message) -> Reply:
        """Raises HostLostError."""
        if self.is_lost:
            raise HostLostError("it had just been lost")
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._running[attempt.id] = future
        self._waiting[attempt.id] = message
        self._has_work.set()
        try:
            return await future
        except asyncio.CancelledError:
            if self._waiting.pop(attempt.id, None) is None and not self.is_lost:
                await self._cancel(*attempt.id)
            raise
        finally:
            self._running.pop(attempt.id, None)

    async def _cancel(self, index: int, number: int) -> None:
        """Cancel an attempt there, and wait until nothing of it is running."""
        with contextlib.suppress(ParavalError, TimeoutError):
            async with asyncio.timeout(SILENT_S):
                await self.handle.call("cancel", Message.of(index=index, number=number))

    async def work(self, measured: Callable[[MachineReading], None]) -> None:
        """Send attempts and receive results. Returns the reason when the host is lost."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            group.create_task(self._receive(measured))

    async def _send(self) -> None:
        """What comes while a message is on its way travels together in the next."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            waiting, self._waiting = [*self._waiting.values()], {}
            if waiting:
                together = Message(
                    text=f'{{"attempts":[{",".join(one.text for one in waiting)}]}}',
                    files={path: one.files[path] for one in waiting for path in one.files},
                )
                async with asyncio.timeout(SILENT_S):
                    await self.handle.call("submit", together)

    async def _receive(self, measured: Callable[[MachineReading], None]) -> None:
        while True:
            async with asyncio.timeout(SILENT_S):
                message = await self.handle.call("collect", Message.of(wait_s=WAIT_S))
            data = json.loads(message.text)
            for told in data["replies"]:
                reply = from_data(AttemptReply, told)
                future = self._running.get((reply.index, reply.number))
                if future is not None and not future.done():
                    future.set_result((reply, message.files))
            if (reading := data["reading"]) is not None:
                loads = {int(index): load for index, load in reading["attempts"].items()}
                measured(from_data(MachineReading, {**reading, "attempts": loads}))

    def lose(self, why: str) -> None:
        """It is gone, or cannot be reached; so is everything that it was running."""
        self.is_lost = True
        self.handle.kill()
        for future in self._running.values():
            if not future.done():
                future.set_exception(HostLostError(why))

    async def close(self) -> None:
        if not self.is_lost:
            with contextlib.suppress(ParavalError, TimeoutError):
                async with asyncio.timeout(SILENT_S):
                    await self.handle.call("close", Message.of())
            self.handle.kill()


def why_lost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no sign of life for {SILENT_S:g} s"
    return error.message if isinstance(error, ParavalError) else repr(error)[-LONGEST_REASON:]
