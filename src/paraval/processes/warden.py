"""The one process that an engine starts: it forks supervisors for the commands, and outlives the
engine just long enough to see that nothing else does.

It knows nothing about commands: a supervisor reads its own from the socket that the engine hands
over. A supervisor serves one command at a time, and many in its life. If one is killed, the warden
ends what it leaves behind and notifies the engine.
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import select
import time

from paraval.processes.cgroups import Cgroups, find_places
from paraval.processes.fast_imports import (
    Socket,
    receive_exactly,
    receive_fds,
    send_fds,
    signal,
    socket_of,
    socket_pair,
)
from paraval.processes.supervisor import ChildSignalPipe, become_supervisor, keep
from paraval.processes.tree import (
    HAS_SUBREAPER,
    ProcessEntry,
    become_subreaper,
    become_unreadable,
    descendants,
    kill_entries,
    process_table,
    send_signal,
)
from paraval.processes.wire import KILL_SUPERVISOR, REQUEST_NUMBER, message_frame

TYPE_CHECKING = False  # avoids `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

CLOSING_PATIENCE_S = 15.0
"""How long supervisors may take to end their trees; longer than any of them waits."""
MOST_FREE = 32
"""Supervisors kept for the next commands; each takes about 1.5 MB."""
MOST_COMMANDS_OF_A_SUPERVISOR = 200
"""It never collects garbage, which would unshare its memory: a new one starts clean."""
_SWEEP_AGAIN_S = 0.02
_LOOK_FOR_ENGINE_S = 1.0
_LOWEST_PASSED_FD = 10
_HIGHEST_FD = 1 << 16
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(engine_fd: int, engine_pid: int, expected: int) -> None:
    """Serve the engine at the other end of this socket until it closes it or dies.

    `expected` is how many commands the engine expects to run in parallel.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for ignored in _IGNORED:
        # The engine decides when it is over, by closing its end of the socket.
        signal.signal(ignored, signal.SIG_IGN)
    os.chdir("/")
    become_subreaper()
    # A supervisor sees the variables and the stdin of many commands, all of the same user.
    become_unreadable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # What is loaded now is shared with every supervisor, as long as nothing writes to it.
    gc.disable()
    gc.freeze()
    server = ForkServer(socket_of(engine_fd), engine_pid, expected)
    server.serve()
    server.close()


class _HiredSupervisor:
    """A supervisor as the warden knows it."""

    __slots__ = ("control", "line", "pid", "request")

    def __init__(self, pid: int, line: Socket) -> None:
        self.pid = pid
        self.line = line
        """The socket on which it gets commands, and reports when it is free again."""
        self.control: Socket | None = None
        """While it has a command: the socket on which to notify the engine if this supervisor
        dies."""
        self.request = 0
        """The number of the request that it serves, or served last."""


class ForkServer:
    """The state of a warden."""

    def __init__(self, engine: Socket, engine_pid: int, expected: int) -> None:
        self._engine = engine
        self._engine_pid = engine_pid
        self._engine_handle = _open_process(engine_pid)
        self._wake = ChildSignalPipe()
        self._cgroups = Cgroups(find_places())
        self._cgroups.heal()
        self._lifeline, self._lifeline_held = os.pipe()
        self._poller = select.poll()
        self._supervisors: dict[int, _HiredSupervisor] = {}
        """By pid."""
        self._lines: dict[int, _HiredSupervisor] = {}
        """By the descriptor of their line."""
        self._free: list[_HiredSupervisor] = []
        self._wanted_free = min(expected, MOST_FREE)
        self._requests = 0
        """How many commands there were, counted as in the engine."""
        self._orphaned: list[Socket] = []
        """Sockets of killed supervisors; notified when their orphans are gone."""

    def serve(self) -> None:
        self._poller.register(self._wake.pipe, select.POLLIN)
        self._poller.register(self._engine, select.POLLIN)
        if self._engine_handle is not None:
            # The socket alone is not enough: a fork of the engine may hold a copy of it open.
            self._poller.register(self._engine_handle, select.POLLIN)
        while os.getppid() == self._engine_pid:
            ready = self._wait()
            if self._wake.pipe in ready or self._orphaned:
                self._attend_to_ends()
            for fd in ready & self._lines.keys():
                self._handle_line(self._lines[fd])
            if self._engine.fileno() in ready and not self._take_request():
                return

    def _wait(self) -> set[int]:
        """Wait for descriptors that are ready to read; use idle time to fork supervisors ahead of
        need."""
        while len(self._supervisors) < self._wanted_free:
            ready = self._poller.poll(0)
            if ready or not self._hire_ahead():
                break
        bounded = self._orphaned or self._engine_handle is None
        wait_s = _SWEEP_AGAIN_S if self._orphaned else _LOOK_FOR_ENGINE_S
        return {fd for fd, _ in self._poller.poll(wait_s * 1000 if bounded else None)}

    def close(self) -> None:
        """Let the supervisors end their trees, then end whatever is left."""
        self._end_supervisors()
        self._cgroups.close()

    def _end_supervisors(self) -> None:
        os.close(self._lifeline_held)
        for supervisor in self._supervisors.values():
            supervisor.line.close()
        until = time.monotonic() + CLOSING_PATIENCE_S
        poller = select.poll()
        poller.register(self._wake.pipe, select.POLLIN)
        while time.monotonic() < until:
            self._attend_to_ends()
            if not self._supervisors and not self._orphaned:
                return
            poller.poll(_SWEEP_AGAIN_S * 1000)
        for pid in self._supervisors:
            send_signal(pid, signal.SIGKILL)
        if HAS_SUBREAPER:
            kill_entries(descendants([os.getpid()], process_table()))

    # ---- requests

    def _take_request(self) -> bool:
        """Handle a request from the engine; False: there are no more."""
        try:
            asked, fds = receive_fds(self._engine, 2)
            if asked == KILL_SUPERVISOR:
                number = receive_exactly(self._engine, REQUEST_NUMBER.size)
                self._kill_supervisor(*REQUEST_NUMBER.unpack(number))
                return True
        except ConnectionError:
            return False
        if asked:
            self._requests += 1
        if not fds:
            # A request without descriptors: too many files are open here. The engine sees its own
            # end close, and may retry.
            return bool(asked)
        self._keep(fds)
        return True

    def _keep(self, fds: list[int]) -> None:
        """Have a supervisor serve one command."""
        control = socket_of(fds[0])
        try:
            self._give(control, fds)
        except OSError as error:
            _send_failure(control, f"cannot start a process: {error.strerror}")
            control.close()
        for fd in fds[1:]:
            os.close(fd)

    def _give(self, control: Socket, fds: list[int]) -> None:
        """Give the command at the other end of `control` to a free supervisor, or to a new one."""
        supervisor = self._free.pop() if self._free else self._hire()
        try:
            send_fds(supervisor.line, fds)
        except ConnectionError:
            # It was killed in the meantime, and will be found dead like any other with a command.
            pass
        except OSError:
            self._free.append(supervisor)
            raise
        supervisor.control = control
        supervisor.request = self._requests

    def _kill_supervisor(self, number: int) -> None:
        """Kill the supervisor that still serves this request, if any; its command falls to this
        process."""
        for supervisor in self._supervisors.values():
            if supervisor.request == number and supervisor.control is not None:
                send_signal(supervisor.pid, signal.SIGKILL)

    def _hire_ahead(self) -> bool:
        """False: the machine refuses."""
        try:
            self._free.append(self._hire())
        except OSError:
            return False
        return True

    def _hire(self) -> _HiredSupervisor:
        ours, theirs = socket_pair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            self._be_supervisor(theirs)
        theirs.close()
        supervisor = self._supervisors[pid] = self._lines[ours.fileno()] = _HiredSupervisor(
            pid, ours
        )
        self._poller.register(ours, select.POLLIN)
        return supervisor

    def _be_supervisor(self, line: Socket) -> NoReturn:
        code = 1
        try:
            kept_line = _above_standard(line.fileno())
            lifeline = _above_standard(self._lifeline)
            _close_all_but((kept_line, lifeline))
            self._cgroups.settle()
            _keep_one_after_another(socket_of(kept_line), lifeline, self._cgroups)
            code = 0
        finally:
            # Whatever went wrong, this process must not continue as the warden.
            os._exit(code)

    # ---- ends

    def _handle_line(self, supervisor: _HiredSupervisor) -> None:
        """Handle a supervisor that is free again, or about to be found dead."""
        try:
            is_free = bool(supervisor.line.recv(1))
        except ConnectionError:
            is_free = False
        if not is_free:
            self._hang_up(supervisor)
            return
        if supervisor.control is not None:
            supervisor.control.close()
            supervisor.control = None
        if len(self._free) < MOST_FREE:
            self._free.append(supervisor)
        else:
            self._hang_up(supervisor)

    def _hang_up(self, supervisor: _HiredSupervisor) -> None:
        """Close its line, which makes it exit, if it isn't already gone."""
        if self._lines.pop(supervisor.line.fileno(), None) is not None:
            self._poller.unregister(supervisor.line)
        supervisor.line.close()
        if supervisor in self._free:
            self._free.remove(supervisor)

    def _attend_to_ends(self) -> None:
        self._wake.clear()
        self._reap()
        if self._orphaned and not self._kill_orphans():
            for control in self._orphaned:
                _send_failure(control, "the command's supervising process was killed")
                control.close()
            self._orphaned.clear()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            supervisor = self._supervisors.pop(pid, None)
            if supervisor is None:
                continue
            self._hang_up(supervisor)
            self._cgroups.forget(pid)
            if supervisor.control is None:
                continue
            if status == 0:
                supervisor.control.close()
            else:
                self._orphaned.append(supervisor.control)

    def _kill_orphans(self) -> bool:
        """Kill processes without a supervisor; returns whether there were any."""
        orphans = self._orphans() if HAS_SUBREAPER else []
        kill_entries(orphans)
        return bool(orphans)

    def _orphans(self) -> list[ProcessEntry]:
        table = process_table()
        own = os.getpid()
        adopted = [
            entry
            for entry in table.values()
            if entry.parent == own and entry.pid not in self._supervisors
        ]
        return adopted + descendants([entry.pid for entry in adopted], table)


def _keep_one_after_another(line: Socket, lifeline: int, cgroups: Cgroups) -> None:
    """The life of a supervisor: serve commands until the line is closed."""
    wake = become_supervisor()
    for left in reversed(range(MOST_COMMANDS_OF_A_SUPERVISOR)):
        _, fds = receive_fds(line, 2)
        if not fds:
            return
        kept = [_above_standard(fd) for fd in fds]
        for fd in fds:
            os.close(fd)
        control = socket_of(kept[0])
        keep(control, kept[1] if len(kept) > 1 else None, lifeline, wake, cgroups)
        control.close()
        # A supervisor about to exit must not report that it is free.
        if left and not _send_free(line):
            return


def _send_free(line: Socket) -> bool:
    try:
        line.send(b"f")
    except BrokenPipeError:
        return False
    return True


def _open_process(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, if supported."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _send_failure(control: Socket, message: str) -> None:
    failure = {"code": "LOST", "message": message, "transient": True}
    try:
        control.sendall(message_frame({"ended": {"failure": failure}}))
    except OSError:
        return


def _above_standard(fd: int) -> int:
    """The same file at a number that no command's own descriptors will use."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST_PASSED_FD)


def _close_all_but(kept: Iterable[int]) -> None:
    low = 3
    for fd in sorted(kept):
        os.closerange(low, fd)
        low = fd + 1
    # Some systems allow a billion, and not every one closes a range in one call.
    os.closerange(low, min(os.sysconf("SC_OPEN_MAX"), _HIGHEST_FD))
