"""The engine's side: commands as awaitables. One warden per engine, and a keeper for each command
while it runs; a keeper serves one at a time, and many in its life.

Whatever a command does, and however the wait for it ends, its whole process tree is gone before the
wait is over. The keeper holds the clock; one that says nothing long after its time is killed. What
the end means (an outcome, another try) is for the caller.
"""

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
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from paraval.processes.identity import ProcessIdentity, process_identity
from paraval.processes.keeper import KILL_PATIENCE_S
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
    KILL_KEEPER,
    REQUEST_NUMBER,
    Frames,
    frame,
    message_frame,
    portable,
    read_message,
)
from paraval.settings import LOG_LIMIT_BYTES

MOST_STARTS_IN_A_ROW = 5
"""Starts of a warden without a command that came through; after them, the machine is at fault."""
_MARGIN_S = 5.0
KEEPER_PATIENCE_S = KILL_PATIENCE_S + _MARGIN_S
"""How long a keeper may be silent beyond the time that it is due to speak; then it is killed."""
ASK_AGAIN_S = 2.0
"""How long the warden may take to kill a keeper, and to end what that one leaves behind."""
MOST_ASKS = 3
_MOST_SWEEPS = 100
_POLL_S = 0.005

# The package's own __init__ is left out: it may load what a warden has no use for.
_BOOTSTRAP = """\
import sys
package = type(sys)("paraval")
package.__path__ = [sys.argv[1]]
sys.modules["paraval"] = package
from paraval.processes.warden import main
main(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
"""
T = TypeVar("T")

_LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to start, with what, where its output goes, and how long it may take."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """All of it: nothing is added from this process's own."""
    cwd: str
    stdin: bytes = b""
    stdout: str
    """The log file of each stream; made, with its folders, when the first byte comes."""
    stderr: str
    timeout: float | None = None
    grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    log_limit: int = LOG_LIMIT_BYTES

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("a command needs the name of a program")
        if self.stdout == self.stderr != os.devnull:
            raise ValueError(f"stdout and stderr need a log file each, not both '{self.stdout}'")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnFailure:
    """Why there is no exit of a command to speak of."""

    code: str
    """The system's name for it, such as ENOENT; LOST where those who watched it were killed."""
    message: str
    transient: bool
    """True: nothing is wrong with the command; another try may well work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What went into a pair of logs."""

    stdout_bytes: int = 0
    """All that came, kept or not."""
    stderr_bytes: int = 0
    stdout_cut: bool = False
    """True: the log is full, and the middle of what came was left out."""
    stderr_cut: bool = False
    log_error: str | None = None
    """Why a log holds less than it has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Captured):
    """How a command ended. Nothing of it is left, unless `survivors` says so."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    cancelled: bool = False
    leaked: int = 0
    """Processes that were still there when the command itself had left, and were killed."""
    survivors: int = 0
    """Processes that SIGKILL has not ended yet (the kernel holds them); their keeper goes on."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    """Of its largest process; on Linux never less than a keeper's own 10 MB or so."""
    failure: SpawnFailure | None = None


class Child:
    """A command under way, with a channel to it."""

    def __init__(self, link: _Link, channel: socket.socket) -> None:
        self._link = link
        self.channel = channel
        """A connected socket; its other end is the command's descriptor 3. The caller closes it."""

    @property
    def identity(self) -> ProcessIdentity | None:
        """None: it could not be started; `wait` tells why."""
        return self._link.identity

    async def switch_logs(self, stdout: str, stderr: str) -> Captured | None:
        """Write to other files from now on; what came until now is in the old ones, closed.

        Tells what the old ones got; None where the command has ended, which `wait` tells about.
        """
        return await self._link.switch_logs(stdout, stderr)

    async def wait(self) -> Ended:
        """Until nothing of it is left. To be cancelled here ends the wait, not the command."""
        return await asyncio.shield(self._link.ended)

    def end(self) -> None:
        """SIGTERM to the tree, SIGKILL after the grace."""
        self._link.end()

    def kill(self) -> None:
        """SIGKILL to the tree."""
        self._link.kill()


class Warden:
    """Starts and ends commands; an async context manager. Belongs to one event loop."""

    def __init__(self) -> None:
        self._process: _WardenProcess | None = None
        self._expected = 1
        self._starts_in_a_row = 0
        self._requests = asyncio.Lock()
        """Guards the warden's socket: one request at a time waits for room in it."""
        self._links: set[_Link] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def prepare(self, expected: int) -> None:
        """Start the warden now, ready for this many at once: the first need not wait for it."""
        self._expected = expected
        # A machine that refuses it now may have room later; the first command will tell.
        with suppress(OSError):
            self._living_process()

    async def run(self, command: Command) -> Ended:
        """Run a command to its end. A cancel ends its tree first, with grace; a second, without."""
        link = await self._start(command, None)
        try:
            return await asyncio.shield(link.ended)
        except asyncio.CancelledError:
            link.end()
            await link.outlast_cancels()
            raise

    async def open(self, command: Command) -> Child:
        """Start a command that is talked to over `Child.channel`, and don't wait for its end."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        link: _Link | None = None
        try:
            with theirs:
                link = await self._start(command, theirs)
            await link.wait_started()
        except BaseException:
            ours.close()
            if link is not None:
                link.kill()
                await link.outlast_cancels()
            raise
        return Child(link, ours)

    def kill_all(self) -> None:
        """SIGKILL to everything that was started here; whoever waits for it hears of its end."""
        for link in self._links:
            link.kill()

    async def close(self) -> None:
        """Kill what still runs, and let the warden go."""
        self._closed = True
        self.kill_all()
        if self._links:
            ends = [link.ended for link in self._links]
            await asyncio.wait(ends, timeout=KEEPER_PATIENCE_S + _MARGIN_S)
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    # ---- starting

    async def _start(self, command: Command, channel: socket.socket | None) -> _Link:
        """A link to a keeper that has been told what to start, or one that has ended already."""
        if self._closed:
            raise RuntimeError("this warden is closed; commands need one that is open")
        link = _Link(command, self._came_through)
        self._links.add(link)
        link.ended.add_done_callback(lambda _: self._links.discard(link))
        try:
            request = _request(command)
            await self._connect(link, channel)
            link.begin(request)
        except (OSError, UnicodeEncodeError) as error:
            link.finish(Ended(failure=_failure(command, error)))
        except BaseException:
            link.finish(Ended(cancelled=True))
            raise
        return link

    async def _connect(self, link: _Link, channel: socket.socket | None) -> None:
        """Be connected to a keeper."""
        ours, theirs = socket.socketpair()
        link.connect(ours)
        with theirs:
            try:
                await asyncio.get_running_loop().create_unix_connection(lambda: link, sock=ours)
            except BaseException:
                ours.close()
                raise
            fds = [theirs.fileno()] if channel is None else [theirs.fileno(), channel.fileno()]
            async with self._requests:
                link.seat = await self._hand_over(fds)

    async def _hand_over(self, fds: list[int]) -> _Seat:
        while True:
            process = self._living_process()
            try:
                number = await process.hand_over(fds)
            except (BrokenPipeError, ConnectionResetError):
                # It died, and nothing was started: another one may have the request.
                process.discard()
                self._process = None
            else:
                return _Seat(process=process, number=number)

    def _living_process(self) -> _WardenProcess:
        if self._process is None:
            if self._starts_in_a_row >= MOST_STARTS_IN_A_ROW:
                raise ChildProcessError(
                    errno.ECHILD, f"the warden process died {self._starts_in_a_row} times in a row"
                )
            self._process = _WardenProcess(self._expected)
            # Not before: what was never started has not died.
            self._starts_in_a_row += 1
        return self._process

    def _came_through(self) -> None:
        self._starts_in_a_row = 0


class _WardenProcess:
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
                    # A command can read its parents' environment: it must hold no secrets.
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    # So that Ctrl-C reaches the engine alone, and it decides.
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    async def hand_over(self, fds: list[int]) -> int:
        """Send one request, descriptors for a keeper, and tell its number."""
        while True:
            try:
                socket.send_fds(self._socket, [KEEP], fds)
            except BlockingIOError:
                await _writable(self._socket)
            except OSError as error:
                # The kernel bounds how many descriptors may be under way at once.
                if error.errno != errno.ETOOMANYREFS:
                    raise
                await asyncio.sleep(_POLL_S)
            else:
                self._requests += 1
                return self._requests

    def kill_keeper(self, number: int) -> None:
        """Ask for it; where there is no room for the request now, it is to be asked again."""
        with suppress(OSError):
            self._socket.send(KILL_KEEPER + REQUEST_NUMBER.pack(number))

    @property
    def is_stopped(self) -> bool:
        entry = read_entry(self.pid) if self._process.poll() is None else None
        return entry is not None and entry.state in "Tt"

    def kill_with_all_below(self) -> None:
        """For one that is stopped: nobody else would end what is below it."""
        for _ in range(_MOST_SWEEPS):
            # It goes last: stopped or not, it inherits what its keepers leave.
            below = [e for e in descendants([self.pid], process_table()) if not e.is_dead]
            if not below:
                break
            signal_entries((e for e in below if e.session == self.pid), signal.SIGKILL)
            kill_entries(e for e in below if e.session != self.pid)
        self._process.kill()

    async def close(self) -> None:
        """Until it has seen to it that nothing of it is left; bounded."""
        self._socket.close()
        waiting_s = 0.0
        while self._process.poll() is None:
            if waiting_s > CLOSING_PATIENCE_S + _MARGIN_S:
                self._process.kill()
            await asyncio.sleep(_POLL_S)
            waiting_s += _POLL_S

    def discard(self) -> None:
        """Forget one that is dead."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    """Where a command is served: by which warden, as which of its requests."""

    process: _WardenProcess
    number: int


class _Link(asyncio.Protocol):
    """The connection to a keeper, for one command."""

    def __init__(self, command: Command, on_answer: Callable[[], None]) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self.seat: _Seat | None = None
        self.identity: ProcessIdentity | None = None
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self._timeout = command.timeout
        self._grace = command.grace
        self._on_answer = on_answer
        self._started: asyncio.Future[None] = loop.create_future()
        self._switches: deque[asyncio.Future[Captured | None]] = deque()
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        """The transport's own."""
        self._has_begun = False
        self._end: Ended | None = None
        """What is known of the end; `ended` follows when the connection is closed too."""
        self._overdue: asyncio.TimerHandle | None = None
        """When the keeper is given up; None as long as its command may take any time."""
        self._is_given_up = False

    # ---- what the engine asks for

    def connect(self, connection: socket.socket) -> None:
        """Told before the transport is made of it."""
        self._socket = connection

    def begin(self, request: bytes) -> None:
        """Tell the keeper what to start, unless it is over already."""
        if self._end is None and self._transport is not None:
            self._has_begun = True
            self._transport.write(request)
            if self._timeout is not None:
                self._expect_end_in(self._timeout + self._grace)

    def send(self, message: Mapping[str, Any]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() or self._socket is None:
            self._transport.write(message_frame(message))
            return
        # Not through the transport: when the keeper has just left, it would drop what came last.
        try:
            self._socket.send(message_frame(message))
        except BlockingIOError:
            self._transport.write(message_frame(message))
        except OSError:
            return

    def end(self) -> None:
        self.send({"do": "end"})
        self._expect_end_in(self._grace)

    def kill(self) -> None:
        if self._has_begun:
            self.send({"do": "kill"})
            self._expect_end_in(0.0)
        else:
            self.finish(Ended(cancelled=True))

    def finish(self, ended: Ended) -> None:
        """This is how it ended; nothing more is to be heard."""
        if self._end is None:
            self._end = ended
        if self._transport is not None:
            self._transport.abort()
        else:
            self._settle()

    async def wait_started(self) -> None:
        await self._answer(self._started)

    async def outlast_cancels(self) -> None:
        """Wait for the end whatever happens; another cancel only takes the grace away."""
        while not self.ended.done():
            try:
                await asyncio.shield(self.ended)
            except asyncio.CancelledError:
                self.kill()

    async def switch_logs(self, stdout: str, stderr: str) -> Captured | None:
        if self.ended.done():
            return None
        switched: asyncio.Future[Captured | None] = self._loop.create_future()
        self._switches.append(switched)
        self.send({"do": "switch", **_log_paths(stdout, stderr)})
        return await self._answer(switched)

    # ---- a keeper that says nothing

    async def _answer(self, answer: asyncio.Future[T]) -> T:
        """What the keeper says at once, if it can say anything."""
        late = self._loop.call_later(KEEPER_PATIENCE_S, self._give_up)
        try:
            return await asyncio.shield(answer)
        finally:
            late.cancel()

    def _expect_end_in(self, seconds: float) -> None:
        """From now on; the earliest of such times counts."""
        due = self._loop.time() + seconds + KEEPER_PATIENCE_S
        if self.ended.done() or (self._overdue is not None and self._overdue.when() <= due):
            return
        self._give_up_at(due, 0)

    def _give_up_at(self, due: float, asks: int) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = self._loop.call_at(due, self._give_up, asks)

    def _give_up(self, asks: int = 0) -> None:
        """Have the keeper killed; the warden ends its command and tells of it, if it can."""
        if self.seat is None or self.ended.done():
            return
        self._is_given_up = True
        if asks < MOST_ASKS:
            self.seat.process.kill_keeper(self.seat.number)
            self._give_up_at(self._loop.time() + ASK_AGAIN_S, asks + 1)
            return
        if self.seat.process.is_stopped:
            self.seat.process.kill_with_all_below()
        self.finish(Ended(failure=_LOST))

    # ---- what the keeper tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._on_answer()
        self._frames.feed(data)
        for payload in self._frames:
            for kind, content in read_message(payload).items():
                self._hear(kind, content)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None
        self._settle()

    def _hear(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "started":
            self.identity = _identity(content)
            self._started.set_result(None)
        elif kind == "switched":
            switched = self._switches.popleft()
            if not switched.done():
                switched.set_result(Captured(**content))
        elif kind == "ended":
            failure = content.pop("failure", None)
            self.finish(Ended(**content, failure=SpawnFailure(**failure) if failure else None))

    def _settle(self) -> None:
        if self.ended.done():
            return
        if self._overdue is not None:
            self._overdue.cancel()
        ended = self._end or Ended(failure=_LOST)
        if self._is_given_up and ended.failure is not None and ended.failure.code == _LOST.code:
            ended = replace(ended, failure=_SILENT)
        self.ended.set_result(ended)
        if not self._started.done():
            self._started.set_result(None)
        for switched in self._switches:
            if not switched.done():
                switched.set_result(None)


_LOST = SpawnFailure(
    code="LOST",
    message="the processes that watched over the command were killed; it may have been started",
    transient=True,
)
_SILENT = replace(
    _LOST,
    message="the process that watched over the command said nothing long after its time and was"
    " killed; did the command stop it?",
)
_TRANSIENT = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS}


def _request(command: Command) -> bytes:
    message = {
        "argv": [portable(argument) for argument in command.argv],
        "env": {portable(name): portable(value) for name, value in command.env.items()},
        "cwd": _absolute(command.cwd),
        **_log_paths(command.stdout, command.stderr),
        "timeout": command.timeout,
        "grace": command.grace,
        "log_limit": command.log_limit,
    }
    return message_frame(message) + frame(command.stdin)


def _log_paths(stdout: str, stderr: str) -> dict[str, str]:
    return {
        "stdout": _absolute(stdout),
        "stderr": _absolute(stderr),
    }


def _absolute(path: str) -> str:
    # The keeper is in another folder: a relative path would mean another file there.
    return portable(str(Path(path).absolute()))


def _failure(command: Command, error: OSError | UnicodeEncodeError) -> SpawnFailure:
    start = f"cannot start '{ascii(command.argv[0])[1:-1]}': "
    if isinstance(error, UnicodeEncodeError):
        reason = f"text that no program can be handed: {ascii(error.object)[:80]}"
        return SpawnFailure(code="EILSEQ", message=start + reason, transient=False)
    number = error.errno or 0
    return SpawnFailure(
        code=errno.errorcode.get(number, str(number)),
        message=start + (error.strerror or str(error)),
        transient=number in _TRANSIENT,
    )


def _identity(started: dict[str, Any]) -> ProcessIdentity | None:
    pid, start_time = started["pid"], started["start_time"]
    if start_time is None:
        return process_identity(pid)
    return ProcessIdentity(pid=pid, start_time=start_time)


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
