"""One command from its start until nothing of it is left: output, timeout, end, report.

A supervisor is forked by the warden and serves one command after another, each as long as its
process tree lives. It ends that tree on timeout, when the engine asks, and when the engine or the
warden is gone. The engine decides what the exit code means and whether to retry.
"""

from __future__ import annotations

import os
import resource  # noqa: F401 - os.wait4 loads it at its first call, which would be in each supervisor
import select
import sys
import time

from paraval.processes.fast_imports import Socket, signal
from paraval.processes.launch import CHANNEL_FD, LaunchError, launch
from paraval.processes.log_capture import LogFile, PipeReader
from paraval.processes.priority import Pin, be_nice
from paraval.processes.tree import (
    HAS_SUBREAPER,
    ProcessEntry,
    become_subreaper,
    descendants,
    kill_entries,
    process_table,
    read_entry,
    send_group_signal,
    signal_entries,
)
from paraval.processes.wire import Frames, message_frame, read_message

TYPE_CHECKING = False  # avoids `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    from typing import Any

    from paraval.processes.cgroups import Cgroups, CommandCgroups

DRAIN_S = 1.0
"""How long a pipe may stay open after the tree's last process: an outside process holds it."""
KILL_PATIENCE_S = 10.0
"""How long a killed tree may take to disappear before it is reported as stuck."""
_KILL_AGAIN_S = 0.02
_KILL_STUCK_AGAIN_S = 1.0
_OUTRUN_S = 0.3
"""How long a tree is killed process by process; after that, its whole control group is."""
_NICE_AGAIN_S = 0.25
_MOST_TRIES_TO_BE_NICE = 100
_SANDBOX_NAME = b"bwrap"
_LONGEST_WAIT_S = 3600.0  # poll() takes milliseconds, limited to 31 bits
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_WRITTEN_AT_ONCE = 64 << 10


class ChildSignalPipe:
    """A pipe that becomes readable when a child of this process ends."""

    def __init__(self) -> None:
        self.pipe, self._signaled = os.pipe()
        os.set_blocking(self.pipe, False)
        os.set_blocking(self._signaled, False)
        signal.set_wakeup_fd(self._signaled, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def clear(self) -> None:
        try:
            os.read(self.pipe, 4096)
        except BlockingIOError:
            return


def become_supervisor() -> ChildSignalPipe:
    """Do what is possible before there is a command."""
    become_subreaper()
    return ChildSignalPipe()


def keep(
    control: Socket,
    channel: int | None,
    lifeline: int,
    wake: ChildSignalPipe,
    cgroups: Cgroups | None = None,
) -> None:
    """Serve one command. `lifeline` is a pipe that the warden holds open as long as it lives."""
    inbox = Inbox(control)
    request, stdin = inbox.wait_for_frame(), inbox.wait_for_frame()
    if request is None or stdin is None:
        if channel is not None:
            os.close(channel)
        return
    supervisor = Supervisor(inbox, lifeline, wake, read_message(request), cgroups)
    try:
        supervisor.start(stdin, channel)
    except LaunchError as error:
        supervisor.send({"ended": {"failure": error.report}})
    else:
        # Possible secrets are not kept any longer than needed.
        del request, stdin
        supervisor.watch()
    finally:
        # This process continues with other commands: files left open would add up.
        supervisor.close()


class Inbox:
    """Messages from the engine, as far as received."""

    def __init__(self, control: Socket) -> None:
        self.control = control
        self.is_open = True
        """False: the engine is gone, or wants no more reports."""
        self.frames = Frames()

    def receive(self) -> None:
        try:
            data = self.control.recv(1 << 20)
        except ConnectionError:
            data = b""
        self.is_open = bool(data)
        self.frames.feed(data)

    def wait_for_frame(self) -> bytes | None:
        """The next frame; None if the engine goes away before."""
        while self.is_open:
            for payload in self.frames:
                return payload
            self.receive()
        return None


class TreeUsage:
    """Resource use of a tree's processes, as far as their ends were seen."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.max_rss_bytes = 0

    def reap(self) -> tuple[bool, dict[int, int]]:
        """Reap all children that ended. Returns whether none is left, and the statuses by pid."""
        ended: dict[int, int] = {}
        while True:
            try:
                pid, status, spent = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True, ended
            if not pid:
                return False, ended
            ended[pid] = status
            self.cpu_s += spent.ru_utime + spent.ru_stime
            self.max_rss_bytes = max(self.max_rss_bytes, spent.ru_maxrss * _RSS_UNIT)


class StdinFeed:
    """The command's stdin, written as it reads."""

    def __init__(self, stdin: bytes) -> None:
        self.pipe: int | None = None
        self._left = memoryview(stdin)

    def open(self) -> int:
        """Open the end that the command reads."""
        if not self._left:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        reading, self.pipe = os.pipe()
        os.set_blocking(self.pipe, False)
        return reading

    def write(self) -> None:
        if self.pipe is None:
            return
        try:
            self._left = self._left[os.write(self.pipe, self._left[:_WRITTEN_AT_ONCE]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._left = memoryview(b"")
        if not self._left:
            self.close()

    def close(self) -> None:
        self._left = memoryview(b"")
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None


class Supervisor:
    """The state of one command."""

    def __init__(
        self,
        inbox: Inbox,
        lifeline: int,
        wake: ChildSignalPipe,
        command: dict[str, Any],
        cgroups: Cgroups | None,
    ) -> None:
        self._inbox = inbox
        self._lifeline = lifeline
        self._wake = wake
        self._command = command
        self._cgroups = cgroups
        self._box: CommandCgroups | None = None
        """The control group of this command; None: it has no limits that can be enforced."""
        self._nice_at: float | None = None
        """When to set the niceness again that the kernel deferred; None: done."""
        self._tries_to_be_nice = 0
        self._pin = Pin(command["cpus"])
        self._feed = StdinFeed(b"")
        self._streams: tuple[PipeReader, ...] = ()

        self._leader = 0
        self._status: int | None = None
        self._started_at = time.monotonic()
        self._left_at: float | None = None
        self._usage = TreeUsage()
        self._is_empty = False

        self._kill_at: float | None = None
        """When to kill what is left; None as long as the command may continue."""
        self._killing_since: float | None = None
        self._timed_out = False
        self._cancelled = False
        self._lost = False
        self._strays: set[tuple[int, int]] = set()
        self._reported = False

    def start(self, stdin: bytes, channel: int | None) -> None:
        """Start the command, or raise LaunchError."""
        self._feed = StdinFeed(stdin)
        fds = {0: self._feed.open()}
        for target in (1, 2):
            reading, fds[target] = os.pipe()
            self._streams += (PipeReader(reading, self._new_log(target, self._command)),)
        if channel is not None:
            fds[CHANNEL_FD] = channel
        if self._cgroups is not None:
            self._box = self._cgroups.box(self._command["memory"], self._command["processes"])
        spent = os.times()
        try:
            with self._pin:
                self._leader = launch(self._command, fds, self._box)
        finally:
            del self._command["env"], self._command["argv"]
            for fd in fds.values():
                os.close(fd)
        entry = read_entry(self._leader)
        self.send(
            {
                "started": {
                    "pid": self._leader,
                    "start_time": entry.start_time if entry else None,
                    "supervisor": os.getpid(),
                    "spent_before": spent.children_user + spent.children_system,
                }
            }
        )
        self._be_nice()

    def _be_nice(self) -> None:
        self._nice_at = None
        nice: int = self._command["nice"]
        if nice and not be_nice(self._leader, nice):
            self._tries_to_be_nice += 1
            if self._tries_to_be_nice < _MOST_TRIES_TO_BE_NICE:
                self._nice_at = time.monotonic() + _NICE_AGAIN_S

    def _new_log(self, target: int, paths: dict[str, Any]) -> LogFile:
        return LogFile(paths["stdout" if target == 1 else "stderr"], self._command["log_limit"])

    # ---- watching

    def watch(self) -> None:
        """Watch until nothing of the command is left, and the engine has been notified."""
        # Messages that came along with the request won't wake us up again.
        self._obey()
        while not self._is_empty:
            self._wait_for_anything(self._seconds_to_wait())
            self._reap()
            self._decide(time.monotonic())
        if not self._reported:
            self._drain()
            self._report(survivors=0)

    def _seconds_to_wait(self) -> float | None:
        if self._killing_since is not None:
            return _KILL_STUCK_AGAIN_S if self._reported else _KILL_AGAIN_S
        until = self._kill_at if self._kill_at is not None else self._timeout_at
        if self._nice_at is not None and (until is None or self._nice_at < until):
            until = self._nice_at
        return None if until is None else max(0.0, until - time.monotonic())

    @property
    def _timeout_at(self) -> float | None:
        timeout: float | None = self._command["timeout"]
        return None if timeout is None else self._started_at + timeout

    def _wait_for_anything(self, seconds: float | None) -> None:
        poller = select.poll()
        poller.register(self._wake.pipe, select.POLLIN)
        if self._inbox.is_open:
            poller.register(self._inbox.control, select.POLLIN)
        if not self._lost:
            poller.register(self._lifeline, select.POLLIN)
        for stream in self._streams:
            if stream.pipe is not None:
                poller.register(stream.pipe, select.POLLIN)
        if self._feed.pipe is not None:
            poller.register(self._feed.pipe, select.POLLOUT)
        # Rounded up: a wait that ends a little early would spin until the deadline.
        ready = poller.poll(
            None if seconds is None else int(min(seconds, _LONGEST_WAIT_S) * 1000) + 1
        )
        self._serve({fd for fd, _ in ready})

    def _serve(self, ready: set[int]) -> None:
        if self._wake.pipe in ready:
            self._wake.clear()
        for stream in self._streams:
            if stream.pipe in ready:
                stream.read()
        if self._feed.pipe in ready:
            self._feed.write()
        if self._lifeline in ready and not self._lost:
            self._lost = True
            self._kill_now()
        if self._inbox.control.fileno() in ready:
            self._inbox.receive()
            self._obey()

    def _reap(self) -> None:
        no_child_left, ended = self._usage.reap()
        if self._leader in ended and self._status is None:
            self._status = ended[self._leader]
            self._left_at = time.monotonic()
        # As a subreaper this process is the parent of every orphan below it: no child, no tree.
        self._is_empty = no_child_left and (HAS_SUBREAPER or not send_group_signal(self._leader, 0))

    def _decide(self, now: float) -> None:
        if self._is_empty:
            return
        if self._nice_at is not None and now >= self._nice_at and self._status is None:
            self._be_nice()
        timeout_at = self._timeout_at
        if self._kill_at is None and self._status is not None:
            self._kill_at = now
        elif self._kill_at is None and timeout_at is not None and now >= timeout_at:
            self._timed_out = True
            self._end_softly()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill(now)

    # ---- ending

    def _end_softly(self) -> None:
        if self._kill_at is not None:
            return
        self._kill_at = time.monotonic() + self._command["grace"]
        if not HAS_SUBREAPER:
            send_group_signal(self._leader, signal.SIGTERM)
            return
        entries = self._own_work(descendants([os.getpid()], process_table()))
        signal_entries(entries, signal.SIGTERM)
        # A stopped process gets no signals until it continues.
        signal_entries((entry for entry in entries if entry.state in "Tt"), signal.SIGCONT)

    def _kill_now(self) -> None:
        self._kill_at = time.monotonic()

    def _kill(self, now: float) -> None:
        """Kill whatever is there; called repeatedly until nothing is."""
        if self._killing_since is None:
            self._killing_since = now
        if HAS_SUBREAPER:
            entries = [
                entry for entry in descendants([os.getpid()], process_table()) if not entry.is_dead
            ]
            if self._left_by_itself:
                strays = self._own_work(entries)
                self._strays.update((entry.pid, entry.start_time) for entry in strays)
            if self._box is not None:
                self._box.kill()
            kill_entries(entries)
            if self._cgroups is not None and now - self._killing_since > _OUTRUN_S:
                self._cgroups.kill_all_but_this()
        else:
            entries = []
            send_group_signal(self._leader, signal.SIGKILL)
        if now - self._killing_since > KILL_PATIENCE_S and not self._reported:
            self._report(survivors=len(entries))

    def _own_work(self, entries: list[ProcessEntry]) -> list[ProcessEntry]:
        """The entries without the sandbox's own processes: they exit by themselves when the sandbox
        is empty, and on SIGTERM the outer one would deprive the command of its grace period."""
        if not self._command["sandboxed"]:
            return entries
        outside = {os.getpid(), self._leader}
        return [
            entry for entry in entries if entry.name != _SANDBOX_NAME or entry.parent not in outside
        ]

    @property
    def _left_by_itself(self) -> bool:
        return self._status is not None and not (self._timed_out or self._cancelled or self._lost)

    def _drain(self) -> None:
        """Read what is still in the pipes: all of it, unless an outside process holds an end
        open."""
        self._feed.close()
        until = time.monotonic() + DRAIN_S
        while (left_s := until - time.monotonic()) > 0:
            # All of them in each round: a pipe held open must not cost the other its rest.
            size = sum([stream.read() for stream in self._streams])
            pipes = [stream.pipe for stream in self._streams if stream.pipe is not None]
            if not pipes:
                return
            if not size:
                poller = select.poll()
                for pipe in pipes:
                    poller.register(pipe, select.POLLIN)
                poller.poll(int(left_s * 1000) + 1)

    def close(self) -> None:
        """Release the command's pipes and its control group."""
        if self._box is not None and (self._is_empty or not self._leader):
            self._box.remove()
            self._box = None
        self._feed.close()
        for stream in self._streams:
            stream.close()

    # ---- messages from and to the engine

    def _obey(self) -> None:
        for payload in self._inbox.frames:
            self._carry_out(read_message(payload))
        if not self._inbox.is_open:
            self._lost = True
            self._kill_now()

    def _carry_out(self, message: dict[str, Any]) -> None:
        if message["do"] == "switch":
            self._switch_logs(message)
            return
        if self._status is None and not self._timed_out:
            self._cancelled = True
        if message["do"] == "kill":
            self._kill_now()
        else:
            self._end_softly()

    def _switch_logs(self, paths: dict[str, Any]) -> None:
        old = [
            stream.switch(self._new_log(target, paths))
            for target, stream in enumerate(self._streams, start=1)
        ]
        self.send({"switched": _captured(*old)})

    def _report(self, *, survivors: int) -> None:
        self._reported = True
        logs = [stream.log for stream in self._streams]
        memory = self._memory()
        self.close()
        for log in logs:
            log.finish()
        left_at = self._left_at if self._left_at is not None else time.monotonic()
        ended: dict[str, Any] = {
            **_exit(self._status),
            "timed_out": self._timed_out,
            "cancelled": self._cancelled,
            "leaked": len(self._strays),
            "survivors": survivors,
            **_captured(*logs),
            "wall_s": left_at - self._started_at,
            "cpu_s": self._usage.cpu_s,
            "pinned": self._pin.holds,
            "max_rss_bytes": self._usage.max_rss_bytes,
            **memory,
        }
        if self._lost:
            message = f"'{self._command['program']}' was killed: its supervising process is gone"
            ended["failure"] = {"code": "LOST", "message": message, "transient": True}
        self.send({"ended": ended})

    def _memory(self) -> dict[str, Any]:
        box = self._box
        peak = box.peak_bytes if box is not None else 0
        return {
            "memory_bytes": max(peak, self._usage.max_rss_bytes),
            "out_of_memory": box is not None and box.out_of_memory,
        }

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._inbox.control.sendall(message_frame(message))
        except OSError:
            # The engine is gone; the next poll sees the same at its end of the socket.
            return


def _exit(status: int | None) -> dict[str, int | None]:
    code = None if status is None else os.waitstatus_to_exitcode(status)
    if code is None or code >= 0:
        return {"exit_code": code, "signal": None}
    return {"exit_code": None, "signal": -code}


def _captured(stdout: LogFile, stderr: LogFile) -> dict[str, Any]:
    return {
        "stdout_bytes": stdout.total,
        "stderr_bytes": stderr.total,
        "stdout_cut": stdout.is_cut,
        "stderr_cut": stderr.is_cut,
        "log_error": stdout.error or stderr.error,
    }
