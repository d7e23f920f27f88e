"""The warden as the engine's child, and the engine's connection to a supervisor."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from paraval.dataclass import dataclass
from paraval.processes.commands import (
    LOST,
    SILENT,
    CapturedLogs,
    Command,
    ProcessEnd,
    SpawnFailure,
    log_paths,
)
from paraval.processes.identity import ProcessIdentity, process_identity
from paraval.processes.supervisor import KILL_PATIENCE_S
from paraval.processes.tree import (
    descendants,
    kill_entries,
    process_table,
    read_entry,
    signal_entries,
)
from paraval.processes.warden import CLOSING_PATIENCE_S
from paraval.processes.wire import (
    KEEP,
    KILL_SUPERVISOR,
    REQUEST_NUMBER,
    Frames,
    message_frame,
    read_message,
)

# The warden as the engine's child: starting it, sending requests, letting it exit.

MARGIN_S = 5.0
_MOST_SWEEPS = 100
_POLL_S = 0.005
_READ_AT_ONCE = 64 << 10

# Skips the package's own __init__: it may load what a warden doesn't need.
_BOOTSTRAP = """\
import sys
package = type(sys)("paraval")
package.__path__ = [sys.argv[1]]
sys.modules["paraval"] = package
from paraval.processes.warden import main
main(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
"""
_LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


class WardenProcess:
    """The warden itself, as a child of this process."""

    def __init__(self, expected: int) -> None:
        self._requests = 0
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        folder = str(Path(__file__).parent.parent)
        environment = {name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ}
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOTSTRAP),
                        *(folder, str(theirs.fileno()), str(os.getpid()), str(expected)),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # A command can read its parents' environment: it must contain no secrets.
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    # Ctrl-C then reaches only the engine, which decides.
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    async def hand_over(self, fds: list[int]) -> int:
        """Send one request, descriptors for a supervisor, and return its number."""
        while True:
            try:
                socket.send_fds(self._socket, [KEEP], fds)
            except BlockingIOError:
                await _writable(self._socket)
            except OSError as error:
                # The kernel limits how many descriptors may be in transit.
                if error.errno != errno.ETOOMANYREFS:
                    raise
                await asyncio.sleep(_POLL_S)
            else:
                self._requests += 1
                return self._requests

    def kill_supervisor(self, number: int) -> None:
        """Request the kill; if there is no room for the request now, it has to be repeated."""
        with suppress(OSError):
            self._socket.send(KILL_SUPERVISOR + REQUEST_NUMBER.pack(number))

    @property
    def is_stopped(self) -> bool:
        entry = read_entry(self.pid) if self._process.poll() is None else None
        return entry is not None and entry.state in "Tt"

    def kill_with_all_below(self) -> None:
        """For a stopped warden: nothing else would end what is below it."""
        for _ in range(_MOST_SWEEPS):
            # The warden goes last: stopped or not, it inherits what its supervisors leave.
            below = [e for e in descendants([self.pid], process_table()) if not e.is_dead]
            if not below:
                break
            signal_entries((e for e in below if e.session == self.pid), signal.SIGKILL)
            kill_entries(e for e in below if e.session != self.pid)
        self._process.kill()

    async def close(self) -> None:
        """Wait until the warden has exited and left nothing; bounded in time, even if canceled."""
        self._socket.close()
        waiting_s, cancelled = 0.0, False
        while self._process.poll() is None:
            if waiting_s > CLOSING_PATIENCE_S + MARGIN_S:
                self._process.kill()
            try:
                await asyncio.sleep(_POLL_S)
            except asyncio.CancelledError:
                cancelled = True
            waiting_s += _POLL_S
        if cancelled:
            raise asyncio.CancelledError

    def discard(self) -> None:
        """Clean up after a dead warden."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


async def _writable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    writable: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not writable.done():
            writable.set_result(None)

    loop.add_writer(connection, wake)
    try:
        await writable
    finally:
        loop.remove_writer(connection)


SUPERVISOR_PATIENCE_S = KILL_PATIENCE_S + MARGIN_S
"""How long a supervisor may be overdue with a report before it is killed."""
ASK_AGAIN_S = 2.0
"""How long the warden may take to kill a supervisor, and to end what it leaves behind."""
MOST_ASKS = 3
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorAddress:
    """Where a command is served: by which warden, as which of its requests."""

    process: WardenProcess
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorInfo:
    """The supervisor whose descendant a command is."""

    pid: int
    spent_before: float
    """CPU seconds of the commands it served before."""


class SupervisorConnection:
    """The connection to a supervisor, for one command.

    On a plain socket: a transport of asyncio is only there after a turn of the loop, so that of
    many commands the first would start after the last one's preparation.
    """

    def __init__(self, command: Command, on_answer: Callable[[], None]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self.seat: SupervisorAddress | None = None
        self.identity: ProcessIdentity | None = None
        self.tag = command.tag
        self.nice = command.nice
        self.niced: set[tuple[int, int]] = set()
        """Session leaders, by pid and start time, that already have the niceness; used by the
        measuring thread."""
        self.supervisor: SupervisorInfo | None = None
        """None: nothing has been started yet."""
        self.most_memory = 0
        """Peak memory seen of its tree, in bytes; written by the measuring thread."""
        self.ended: asyncio.Future[ProcessEnd] = loop.create_future()
        self._timeout = command.timeout
        self._grace = command.grace
        self._on_answer = on_answer
        self._started: asyncio.Future[None] = loop.create_future()
        self._switches: deque[asyncio.Future[CapturedLogs | None]] = deque()
        self._frames = Frames()
        self._socket: socket.socket | None = None
        """None: not connected yet, or no longer."""
        self._unsent = bytearray()
        self._has_begun = False
        self._began_at = loop.time()
        self._end: ProcessEnd | None = None
        """What is known about the end."""
        self._overdue: asyncio.TimerHandle | None = None
        """When the supervisor is given up; None as long as its command may take any time."""
        self._is_given_up = False

    # ---- requests from the engine

    def connect(self, connection: socket.socket) -> None:
        """From now on the socket belongs to this object, until the end."""
        self._socket = connection
        connection.setblocking(False)
        self._loop.add_reader(connection, self._receive)

    def begin(self, request: bytes) -> None:
        """Send the supervisor the command to start, unless it is already over."""
        if self._end is None and self._socket is not None:
            self._has_begun = True
            self._began_at = self._loop.time()
            self._write(request)
            if self._timeout is not None:
                self._expect_end_in(self._timeout + self._grace)

    def send(self, message: Mapping[str, Any]) -> None:
        self._write(message_frame(message))

    def _write(self, data: bytes) -> None:
        """Send it now, or in order as soon as there is room."""
        if self._socket is None:
            return
        is_waiting = bool(self._unsent)
        self._unsent += data
        if not is_waiting:
            self._send_rest()
            if self._unsent:
                self._loop.add_writer(self._socket, self._send_rest)

    def _send_rest(self) -> None:
        assert self._socket is not None
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            # The supervisor is gone; what it sent before can still be received.
            self._unsent.clear()
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def end(self) -> None:
        self.send({"do": "end"})
        self._expect_end_in(self._grace)

    def kill(self) -> None:
        if self._has_begun:
            self.send({"do": "kill"})
            self._expect_end_in(0.0)
        else:
            self.finish(ProcessEnd(cancelled=True))

    def finish(self, ended: ProcessEnd) -> None:
        """Set the end; nothing more is expected."""
        if self._end is None:
            self._end = ended
        self._disconnect()

    async def wait_started(self) -> None:
        await self._answer(self._started)

    async def outlast_cancels(self) -> None:
        """Wait for the end whatever happens; another cancellation only removes the grace period."""
        while not self.ended.done():
            try:
                await asyncio.shield(self.ended)
            except asyncio.CancelledError:
                self.kill()

    async def switch_logs(self, stdout: str, stderr: str) -> CapturedLogs | None:
        if self.ended.done():
            return None
        switched: asyncio.Future[CapturedLogs | None] = self._loop.create_future()
        self._switches.append(switched)
        self.send({"do": "switch", **log_paths(stdout, stderr)})
        return await self._answer(switched)

    # ---- an unresponsive supervisor

    async def _answer(self, answer: asyncio.Future[T]) -> T:
        """Await an answer that is due immediately, and give up the supervisor if it is late."""
        late = self._loop.call_later(SUPERVISOR_PATIENCE_S, self._give_up)
        try:
            return await asyncio.shield(answer)
        finally:
            late.cancel()

    def _expect_end_in(self, seconds: float) -> None:
        """Expect the end within this time from now; the earliest deadline counts."""
        due = self._loop.time() + seconds + SUPERVISOR_PATIENCE_S
        if self.ended.done() or (self._overdue is not None and self._overdue.when() <= due):
            return
        self._give_up_at(due, 0)

    def _give_up_at(self, due: float, asks: int) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self._loop.call_at(due, self._give_up, asks)

    def _give_up(self, asks: int = 0) -> None:
        """Have the supervisor killed; the warden ends its command and reports it, if it can."""
        if self.seat is None or self.ended.done():
            return
        self._is_given_up = True
        if asks < MOST_ASKS:
            self.seat.process.kill_supervisor(self.seat.number)
            self._give_up_at(self._loop.time() + ASK_AGAIN_S, asks + 1)
            return
        if self.seat.process.is_stopped:
            self.seat.process.kill_with_all_below()
        self.finish(ProcessEnd(failure=LOST))

    # ---- messages from the supervisor

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(_READ_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        self._on_answer()
        self._frames.feed(data)
        for payload in self._frames:
            for kind, content in read_message(payload).items():
                self._handle_message(kind, content)

    def _disconnect(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            self._loop.remove_reader(connection)
            self._loop.remove_writer(connection)
            connection.close()
        self._settle()

    def _handle_message(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "started":
            self.identity = _identity(content)
            self.supervisor = SupervisorInfo(
                pid=content["supervisor"], spent_before=content["spent_before"]
            )
            self._started.set_result(None)
        elif kind == "switched":
            switched = self._switches.popleft()
            if not switched.done():
                switched.set_result(CapturedLogs(**content))
        elif kind == "ended":
            failure = content.pop("failure", None)
            self.finish(ProcessEnd(**content, failure=SpawnFailure(**failure) if failure else None))

    def _settle(self) -> None:
        if self.ended.done():
            return
        if self._overdue is not None:
            self._overdue.cancel()
        ended = self._end or ProcessEnd(failure=LOST)
        if self._is_given_up and ended.failure is not None and ended.failure.code == LOST.code:
            ended = self._ended_in_silence(ended)
        if self.most_memory > ended.memory_bytes:
            ended = replace(ended, memory_bytes=self.most_memory)
        self.ended.set_result(ended)
        if not self._started.done():
            self._started.set_result(None)
        for switched in self._switches:
            if not switched.done():
                switched.set_result(None)

    def _ended_in_silence(self, ended: ProcessEnd) -> ProcessEnd:
        """A command that stopped its supervisor gains nothing by it: its timeout still counts."""
        passed_s = self._loop.time() - self._began_at
        if self._timeout is not None and passed_s >= self._timeout:
            return replace(ended, failure=None, timed_out=True, wall_s=passed_s)
        return replace(ended, failure=SILENT)


def _identity(started: dict[str, Any]) -> ProcessIdentity | None:
    pid, start_time = started["pid"], started["start_time"]
    if start_time is None:
        return process_identity(pid)
    return ProcessIdentity(pid=pid, start_time=start_time)
