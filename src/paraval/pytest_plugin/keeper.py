"""Starts workers as forks of a keeper, and knows what they do; `program` is for where forking is
not safe.

The keeper is a copy of this process as it was right after collection, without threads. So this
process may have threads, and each worker starts from what the collection left.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

import pytest

from paraval.pytest_plugin.recording.report_data import ReportData, attach_report_data
from paraval.pytest_plugin.reports import made_up
from paraval.pytest_plugin.worker import STACKS_SIGNAL, Inbox, WorkerIdentity
from paraval.records import AttemptResult, Failure, Outcome
from paraval.text.words import counted

NEWS = struct.Struct("!cii")
BEGAN, ENDED = b"b", b"e"
_WAITING_IN = "accept acquire get join poll read readinto readline recv select wait"
_WAITS = frozenset(_WAITING_IN.split())
"""Functions of the standard library in which a thread does nothing."""
_WITH_THREADS = ("polars", "torch", "tensorflow", "jax", "grpc")
"""Libraries whose own threads a fork lacks, and waits for."""
_SERVES = frozenset({"_worker", "run_forever"})
"""Functions of threads that others wait for: of executors and event loops. Forks lack them."""

STACKS_WITHIN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A worker that was asked for."""

    number: int
    process: int
    socket: socket.socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A worker's process has ended."""

    process: int
    status: int
    """As `os.waitpid` returns it."""


class Starter(Protocol):
    """Starts workers, and tells how they end."""

    def fileno(self) -> int:
        """Readable when there is news."""

    def start(self, number: int) -> None: ...

    def news(self) -> Iterator[Began | Ended]:
        """What has happened; waits if nothing has. Raises EOFError if it can start no more."""

    def close(self) -> None:
        """After the last worker has ended."""


class Keeper:
    """Forks workers from a copy of this process; in this process."""

    def __init__(
        self,
        work: Callable[[int, socket.socket], None],
        *,
        before: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        """`work` is called in each worker; `before` and `after` in the keeper."""
        self._socket, theirs = pair_of_sockets()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()
        self._process = _fork()
        if self._process == 0:
            self._socket.close()
            _keep(theirs, work, before, after)
        theirs.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def start(self, number: int) -> None:
        self._socket.sendall(number.to_bytes(4))

    def news(self) -> Iterator[Began | Ended]:
        data, descriptors, _, _ = socket.recv_fds(self._socket, NEWS.size, 1)
        if len(data) < NEWS.size:
            raise EOFError
        kind, process, rest = NEWS.unpack(data)
        if kind == ENDED:
            yield Ended(process=process, status=rest)
        else:
            ours = socket.socket(fileno=descriptors[0])
            ours.settimeout(None)
            yield Began(number=rest, process=process, socket=ours)

    def close(self) -> None:
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self._process, 0)


def pair_of_sockets() -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair()
    for one in pair:
        one.settimeout(None)  # Whatever a test's module sets for all sockets.
    return pair


def _fork() -> int:
    with warnings.catch_warnings():
        # Python's, about threads: those that there are only wait.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _keep(
    parent: socket.socket,
    work: Callable[[int, socket.socket], None],
    before: Callable[[], None],
    after: Callable[[], None],
) -> NoReturn:
    """Fork a worker whenever the parent asks, until it has closed or died."""
    workers: set[int] = set()
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        before()
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        while True:
            ready, _, _ = select.select([parent.fileno(), woken], [], [])
            if parent.fileno() in ready:
                try:
                    asked = parent.recv(4, socket.MSG_WAITALL)
                except ConnectionResetError:
                    break  # It has died.
                if len(asked) < 4:
                    break
                workers.add(_fork_worker(int.from_bytes(asked), parent, work, (woken, wake)))
            if woken in ready:
                os.read(woken, 4096)
                for process in tuple(workers):
                    ended, status = os.waitpid(process, os.WNOHANG)
                    if ended:
                        workers.remove(ended)
                        parent.sendall(NEWS.pack(ENDED, ended, status))
    except BaseException:  # noqa: BLE001 - nobody else can show it
        _show_error()
    finally:
        for process in workers:
            kill(process, signal.SIGKILL)
        try:
            after()
        except BaseException:  # noqa: BLE001
            _show_error()
        os._exit(0)


def _show_error() -> None:
    os.write(2, traceback.format_exc().encode())


def _fork_worker(
    number: int,
    parent: socket.socket,
    work: Callable[[int, socket.socket], None],
    pipes: Sequence[int],
) -> int:
    ours, theirs = pair_of_sockets()
    process = _fork()
    if process == 0:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            parent.close()
            ours.close()
            for pipe in pipes:
                os.close(pipe)
            work(number, theirs)
            code = 0
        except BaseException:  # noqa: BLE001
            _show_error()
        finally:
            os._exit(code)
    theirs.close()
    with ours:
        socket.send_fds(parent, [NEWS.pack(BEGAN, process, number)], [ours.fileno()])
    return process


def kill(process: int, number: int) -> None:
    """Send a signal to a worker and to what it has started."""
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(process, number)
            return


def how_it_ended(status: int) -> str:
    """`was killed by signal 11 (SIGSEGV)`, `ended with exit code 3`."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(ValueError):
            return f"was killed by signal {number} ({signal.Signals(number).name})"
        return f"was killed by signal {number}"
    return f"ended with exit code {os.waitstatus_to_exitcode(status)}"


# ---- workers that run


@dataclass(slots=True)
class RunningWorker:
    """A worker, and what it is doing."""

    identity: WorkerIdentity
    process: int
    socket: Any
    inbox: Inbox
    ticket: int | None = None
    """The unit that it runs."""
    test: int | None = None
    """The test of that, by its position."""
    given: deque[int] = field(default_factory=deque)
    """More tests that it was given."""
    began: float = 0.0
    home: object = None
    """The module whose fixtures it has set up."""
    held: tuple[pytest.Item, pytest.TestReport] | None = None
    """A test whose teardown goes on when the worker knows its next one, and its last report."""
    last: int | None = None
    beside: set[int] = field(default_factory=set)
    """The tests that others ran while it ran this one."""
    why_killed: str | None = None
    is_ready: bool = True
    is_leaving: bool = False

    def stacks(self) -> str:
        """Where its threads are, as Python's faulthandler shows it; empty: it doesn't answer."""
        path = self.identity.file("stacks")
        with suppress(OSError):
            size = path.stat().st_size
            os.kill(self.process, STACKS_SIGNAL)
            until = time.monotonic() + STACKS_WITHIN_S
            while time.monotonic() < until and path.stat().st_size == size:
                time.sleep(0.01)
            time.sleep(0.02)
            return self.stacks_in(path.read_bytes()[size:])
        return ""

    def crashed(self, item: pytest.Item, how: str) -> tuple[list[pytest.TestReport], AttemptResult]:
        """What is known of its test, after it has died, or was killed."""
        took_s = time.monotonic() - self.began
        path = self.identity.file("stacks")
        kind, text = Outcome.TIMEOUT, how
        if self.why_killed is None:
            stacks = self.stacks_in(path.read_bytes()) if path.exists() else ""
            kind, text = Outcome.CRASHED, f"{how}\n\n{stacks}".rstrip()
        report = made_up(item, text, when="call", duration_s=took_s)
        for stream, name in (("out", "stdout"), ("err", "stderr")):
            with suppress(OSError):
                if content := self.identity.file(stream).read_text(errors="replace"):
                    report.sections.append((f"Captured {name} call", content))
        failure = Failure(kind=kind, message=text.partition("\n")[0], lasting=True)
        result = AttemptResult(outcome=kind, error=failure, duration_s=took_s)
        end = made_up(item, None, when="teardown", outcome="passed")
        attach_report_data(end, ReportData(result=result))
        return [report, end], result

    @staticmethod
    def stacks_in(data: bytes) -> str:
        """Without the frames of pytest and of this plugin, below those of the test."""
        kept, is_below = [], False
        for line in data.decode(errors="replace").splitlines():
            is_below = line.startswith("  File") and (is_below or "_pytest" in line)
            if not is_below:
                kept.append(line)
        return "\n".join(kept)

    def place(self, file: Path) -> tuple[Path, int] | None:
        """The line of the test's file that its main thread is at."""
        _, _, current = self.stacks().partition("Current thread")
        for line in current.splitlines():
            if line.startswith(f'  File "{file}", line '):
                return file, int(line.removeprefix(f'  File "{file}", line ').split()[0])
        return None


def raise_at(place: tuple[str | Path, int], error: BaseException) -> NoReturn:
    """Raise the error with a traceback that ends at this file and line."""
    code = compile("\n" * (place[1] - 1) + "raise error", str(place[0]), "exec")
    exec(code, {"error": error.with_traceback(None)})  # noqa: S102 - our own constant code
    raise error


# ---- whether this process can be forked


def why_not_fork() -> str | None:
    """What a thread of this process is doing; None: all of them wait, or there is no other."""
    if sys.platform == "darwin":
        return "macOS"
    natives = len(os.listdir("/proc/self/task")) - threading.active_count()  # noqa: PTH208
    owner = next((name for name in _WITH_THREADS if name in sys.modules), None)
    # Those of numpy's BLAS are ready for a fork.
    if natives > 0 and (owner is not None or "numpy" not in sys.modules):
        return f"{counted(natives, 'native thread')} of {owner or 'some library'}"
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if thread is threading.current_thread() or frame is None:
            continue
        callers = [one.f_code for one, _ in traceback.walk_stack(frame)]
        serves = [code for code in callers if code.co_name in _SERVES]
        if serves or callers[0].co_name not in _WAITS:
            return f"thread {thread.name!r} is in {(serves or callers)[0].co_qualname}"
    return None
