"""The one process that an engine starts: it forks a keeper for each command, and outlives the
engine just long enough to see that nothing else does.

It knows nothing of commands: a keeper reads its own from the socket that the engine hands over.
What a killed keeper leaves behind falls to the warden, which ends it and tells the engine.
"""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import socket
import time
from collections.abc import Iterable

from paraval.processes.keeper import Wake, keep
from paraval.processes.tree import (
    HAS_SUBREAPER,
    Entry,
    become_subreaper,
    descendants,
    kill_entries,
    process_table,
    send_signal,
)
from paraval.processes.wire import message_frame

CLOSING_PATIENCE_S = 15.0
"""How long keepers may take to end their trees; longer than any of them has patience."""
_SWEEP_AGAIN_S = 0.02
_LOOK_FOR_ENGINE_S = 1.0
_LOWEST_PASSED_FD = 10
_HIGHEST_FD = 1 << 16
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(engine_fd: int, engine_pid: int) -> None:
    """Serve the engine at the other end of this socket until it closes it or dies."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for ignored in _IGNORED:
        # The engine decides when it is over; its end of the socket says so.
        signal.signal(ignored, signal.SIG_IGN)
    os.chdir("/")
    become_subreaper()
    # What is there now is shared with every keeper, as long as nobody writes to it.
    gc.disable()
    gc.freeze()
    warden = Warden(socket.socket(fileno=engine_fd), engine_pid)
    warden.serve()
    warden.close()


class Warden:
    """The state of a fork server."""

    def __init__(self, engine: socket.socket, engine_pid: int) -> None:
        self._engine = engine
        self._engine_pid = engine_pid
        self._engine_handle = _open_process(engine_pid)
        self._wake = Wake()
        self._lifeline, self._lifeline_held = os.pipe()
        self._keepers: dict[int, socket.socket] = {}
        """By pid, the socket on which the engine is told if that keeper dies."""
        self._bereaved: list[socket.socket] = []
        """Sockets of keepers that were killed; told when their orphans are gone."""

    def serve(self) -> None:
        poller = select.poll()
        poller.register(self._wake.pipe, select.POLLIN)
        poller.register(self._engine, select.POLLIN)
        if self._engine_handle is not None:
            # The socket alone would not do: a fork of the engine may hold a copy of it open.
            poller.register(self._engine_handle, select.POLLIN)
        while os.getppid() == self._engine_pid:
            wait_s = _SWEEP_AGAIN_S if self._bereaved else _LOOK_FOR_ENGINE_S
            bounded = self._bereaved or self._engine_handle is None
            ready = {fd for fd, _ in poller.poll(wait_s * 1000 if bounded else None)}
            if self._wake.pipe in ready or self._bereaved:
                self._attend_to_ends()
            if self._engine.fileno() in ready and not self._take_request():
                return

    def close(self) -> None:
        """Let the keepers end their trees, then whatever is left."""
        os.close(self._lifeline_held)
        until = time.monotonic() + CLOSING_PATIENCE_S
        poller = select.poll()
        poller.register(self._wake.pipe, select.POLLIN)
        while time.monotonic() < until:
            self._attend_to_ends()
            if not self._keepers and not self._bereaved:
                return
            poller.poll(_SWEEP_AGAIN_S * 1000)
        for pid in self._keepers:
            send_signal(pid, signal.SIGKILL)
        if HAS_SUBREAPER:
            kill_entries(descendants([os.getpid()], process_table()))

    # ---- requests

    def _take_request(self) -> bool:
        """Fork one keeper; False when the engine has no more to ask."""
        try:
            data, fds, flags, _ = socket.recv_fds(self._engine, 1, 2)
        except ConnectionError:
            return False
        if not data:
            return False
        if flags & socket.MSG_CTRUNC or not fds:
            # Too many files are open here. The engine sees its own end close, and may try again.
            for fd in fds:
                os.close(fd)
            return True
        control = socket.socket(fileno=fds[0])
        channel = fds[1] if len(fds) > 1 else None
        try:
            self._fork(control, channel)
        except OSError as error:
            _tell_failure(control, f"cannot start a process: {error.strerror}")
            control.close()
        if channel is not None:
            os.close(channel)
        return True

    def _fork(self, control: socket.socket, channel: int | None) -> None:
        pid = os.fork()
        if pid:
            self._keepers[pid] = control
            return
        code = 1
        try:
            kept = [_above_standard(fd) for fd in (control.fileno(), channel, self._lifeline)]
            _close_all_but(fd for fd in kept if fd is not None)
            keep_control, keep_channel, keep_lifeline = kept
            keep(socket.socket(fileno=keep_control), keep_channel, keep_lifeline or 0)
            code = 0
        finally:
            # Whatever went wrong: the warden's own way on is not this process's.
            os._exit(code)

    # ---- ends

    def _attend_to_ends(self) -> None:
        self._wake.clear()
        self._reap()
        if self._bereaved and not self._kill_orphans():
            for control in self._bereaved:
                _tell_failure(control, "the process that watched over the command was killed")
                control.close()
            self._bereaved.clear()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            control = self._keepers.pop(pid, None)
            if control is None:
                continue
            if status == 0:
                control.close()
            else:
                self._bereaved.append(control)

    def _kill_orphans(self) -> bool:
        """Kill what belongs to no keeper; was there anything?"""
        orphans = self._orphans() if HAS_SUBREAPER else []
        kill_entries(orphans)
        return bool(orphans)

    def _orphans(self) -> list[Entry]:
        table = process_table()
        own = os.getpid()
        adopted = [
            entry
            for entry in table.values()
            if entry.parent == own and entry.pid not in self._keepers
        ]
        return adopted + descendants([entry.pid for entry in adopted], table)


def _open_process(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where there is such a thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _tell_failure(control: socket.socket, message: str) -> None:
    failure = {"code": "LOST", "message": message, "transient": True}
    try:
        control.sendall(message_frame({"ended": {"failure": failure}}))
    except OSError:
        return


def _above_standard(fd: int | None) -> int | None:
    """The same file at a number that no command's own descriptors will take."""
    return None if fd is None else fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST_PASSED_FD)


def _close_all_but(kept: Iterable[int]) -> None:
    low = 3
    for fd in sorted(kept):
        os.closerange(low, fd)
        low = fd + 1
    # Some systems allow a thousand million, and not every one closes a range in one go.
    os.closerange(low, min(os.sysconf("SC_OPEN_MAX"), _HIGHEST_FD))
