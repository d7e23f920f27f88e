"""Starts workers: as forks of a keeper, or, where forking is not safe, as programs of their own.

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
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn, Protocol

from paraval.text.words import counted

_NEWS = struct.Struct("!cii")
_BEGAN, _ENDED = b"b", b"e"
_WAITING_IN = "accept acquire get join poll read readinto readline recv select wait"
_WAITS = frozenset(_WAITING_IN.split())
"""Functions of the standard library in which a thread does nothing."""
_WITH_THREADS = ("polars", "torch", "tensorflow", "jax", "grpc")
"""Libraries whose own threads a fork lacks, and waits for."""
_SERVES = frozenset({"_worker", "run_forever"})
"""Functions of threads that others wait for: of executors and event loops. Forks lack them."""


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
        self._socket, theirs = _pair()
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
        data, descriptors, _, _ = socket.recv_fds(self._socket, _NEWS.size, 1)
        if len(data) < _NEWS.size:
            raise EOFError
        kind, process, rest = _NEWS.unpack(data)
        if kind == _ENDED:
            yield Ended(process=process, status=rest)
        else:
            ours = socket.socket(fileno=descriptors[0])
            ours.settimeout(None)
            yield Began(number=rest, process=process, socket=ours)

    def close(self) -> None:
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self._process, 0)


def _pair() -> tuple[socket.socket, socket.socket]:
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
                asked = parent.recv(4, socket.MSG_WAITALL)
                if len(asked) < 4:
                    break
                workers.add(_fork_worker(int.from_bytes(asked), parent, work, (woken, wake)))
            if woken in ready:
                os.read(woken, 4096)
                for process in tuple(workers):
                    ended, status = os.waitpid(process, os.WNOHANG)
                    if ended:
                        workers.remove(ended)
                        parent.sendall(_NEWS.pack(_ENDED, ended, status))
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
    ours, theirs = _pair()
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
        socket.send_fds(parent, [_NEWS.pack(_BEGAN, process, number)], [ours.fileno()])
    return process


class ProgramStarter:
    """Starts workers as programs that collect by themselves: slower, and safe with any threads."""

    def __init__(self, command: Sequence[str], greet: Callable[[int, socket.socket], None]) -> None:
        """`command` is given the descriptor of the worker's socket; `greet` speaks first."""
        self._command = command
        self._greet = greet
        self._news, self._told = _pair()
        self._began: list[Began] = []

    def fileno(self) -> int:
        return self._news.fileno()

    def start(self, number: int) -> None:
        ours, theirs = _pair()
        descriptor = theirs.fileno()
        process = subprocess.Popen(
            [*self._command, str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        theirs.close()
        self._greet(number, ours)
        self._began.append(Began(number=number, process=process.pid, socket=ours))
        self._told.sendall(_NEWS.pack(_BEGAN, process.pid, number))
        threading.Thread(target=self._wait, args=[process], daemon=True).start()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with suppress(OSError):
            self._told.sendall(_NEWS.pack(_ENDED, process.pid, -code if code < 0 else code << 8))

    def news(self) -> Iterator[Began | Ended]:
        kind, process, rest = _NEWS.unpack(self._news.recv(_NEWS.size, socket.MSG_WAITALL))
        yield self._began.pop(0) if kind == _BEGAN else Ended(process=process, status=rest)

    def close(self) -> None:
        self._news.close()
        self._told.close()


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
