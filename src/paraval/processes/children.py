"""The engine's side: commands as awaitables, one warden per engine; and what running commands use
of the machine.

Whatever a command does, and however the wait for it ends, its whole process tree is gone before the
wait is over. The supervisor keeps the time; one that stays silent long after its deadline is
killed. The caller decides what the end means (an outcome, another try).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

from paraval.dataclass import dataclass
from paraval.processes.commands import (
    CapturedLogs,
    Command,
    ProcessEnd,
    SpawnFailure,
    failure_of,
    request_of,
)
from paraval.processes.identity import ProcessIdentity
from paraval.processes.priority import be_nice
from paraval.processes.tree import ProcessEntry, below, by_parent, process_table
from paraval.processes.warden_client import (
    MARGIN_S,
    SUPERVISOR_PATIENCE_S,
    SupervisorAddress,
    SupervisorConnection,
    SupervisorInfo,
    WardenProcess,
)

# Machine use of running commands, from one pass over the process table.


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLoad:
    """What the process tree of a command uses."""

    memory_bytes: int
    """Memory of its processes; shared memory counts for each of them."""
    cpu_s: float
    """So far."""


def look_at(links: Iterable[SupervisorConnection]) -> dict[int, TreeLoad]:
    """Loads by tag; each link remembers its peak memory. Empty if there is no /proc."""
    seen = [(link, link.supervisor) for link in links if link.tag is not None]
    running = [
        (link, supervisor) for link, supervisor in seen if supervisor and not link.ended.done()
    ]
    if not running or sys.platform != "linux":
        return {}
    table = process_table()
    children = by_parent(table)
    loads: dict[int, TreeLoad] = {}
    for link, supervisor in running:
        entries = below([supervisor.pid], children)
        load = _load(entries, table.get(supervisor.pid), supervisor)
        link.most_memory = max(link.most_memory, load.memory_bytes)
        _be_nice(link, entries)
        assert link.tag is not None
        loads[link.tag] = _sum(loads.get(link.tag), load)
    return loads


def _load(
    entries: list[ProcessEntry], watcher: ProcessEntry | None, supervisor: SupervisorInfo
) -> TreeLoad:
    ticks = sum(entry.cpu_ticks + entry.reaped_ticks for entry in entries)
    # CPU time of children that ended directly below the supervisor, minus that of earlier commands.
    reaped = watcher.reaped_ticks / os.sysconf("SC_CLK_TCK") if watcher is not None else 0.0
    return TreeLoad(
        memory_bytes=sum(entry.rss_pages for entry in entries) * os.sysconf("SC_PAGE_SIZE"),
        cpu_s=ticks / os.sysconf("SC_CLK_TCK") + max(0.0, reaped - supervisor.spent_before),
    )


def _sum(one: TreeLoad | None, other: TreeLoad) -> TreeLoad:
    if one is None:
        return other
    return TreeLoad(
        memory_bytes=one.memory_bytes + other.memory_bytes, cpu_s=one.cpu_s + other.cpu_s
    )


def _be_nice(link: SupervisorConnection, entries: list[ProcessEntry]) -> None:
    if not link.nice:
        return
    for entry in entries:
        leads = entry.session == entry.pid and (entry.pid, entry.start_time) not in link.niced
        if leads and be_nice(entry.pid, link.nice):
            link.niced.add((entry.pid, entry.start_time))


__all__ = ["CapturedLogs", "Child", "Command", "ProcessEnd", "SpawnFailure", "TreeLoad", "Warden"]

MOST_STARTS_IN_A_ROW = 5
"""How often a warden may be started without running a command; after that, the machine is at
fault."""


CleanLogs = Callable[[tuple[str, ...]], Awaitable[object]]
"""Called with complete logs before anyone learns that they are complete. Must finish even if
canceled."""


class Child:
    """A running command, with a channel to it."""

    def __init__(
        self,
        link: SupervisorConnection,
        channel: socket.socket,
        logs: tuple[str, ...],
        clean: CleanLogs,
    ) -> None:
        self._link = link
        self._logs = logs
        self._clean = clean
        self.channel = channel
        """A connected socket; its other end is the command's descriptor 3. The caller closes it."""

    @property
    def identity(self) -> ProcessIdentity | None:
        """None: it could not be started; `wait` returns the reason."""
        return self._link.identity

    async def switch_logs(self, stdout: str, stderr: str) -> CapturedLogs | None:
        """Write to other files from now on; earlier output is in the old ones, closed.

        Returns what the old ones got; None if the command has ended (see `wait`).
        """
        captured = await self._link.switch_logs(stdout, stderr)
        if captured is not None:
            old, self._logs = self._logs, (stdout, stderr)
            await self._clean(old)
        return captured

    async def wait(self) -> ProcessEnd:
        """Wait until nothing of it is left. Canceling ends the wait, not the command."""
        ended = await asyncio.shield(self._link.ended)
        await self._clean(self._logs)
        return ended

    def end(self) -> None:
        """Send SIGTERM to the tree, and SIGKILL after the grace period."""
        self._link.end()

    def kill(self) -> None:
        """Send SIGKILL to the tree."""
        self._link.kill()


class Warden:
    """Starts and ends commands; an async context manager. Belongs to one event loop."""

    def __init__(self) -> None:
        self.clean_logs: CleanLogs = _as_they_are
        self._process: WardenProcess | None = None
        self._expected = 1
        self._starts_in_a_row = 0
        self._requests = asyncio.Lock()
        """Guards the warden's socket: one request at a time waits for room in it."""
        self._links: set[SupervisorConnection] = set()
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
        """Start the warden now, ready for this many commands, so that the first need not wait for
        it."""
        self._expected = expected
        # A machine that refuses now may have room later; the first command will report it.
        with suppress(OSError):
            self._living_process()

    async def run(self, command: Command) -> ProcessEnd:
        """Run a command to its end. Canceling ends its tree first, with grace; canceling again,
        without."""
        link = await self._start(command, None)
        try:
            return await asyncio.shield(link.ended)
        except asyncio.CancelledError:
            link.end()
            await link.outlast_cancels()
            raise
        finally:
            await self.clean_logs((command.stdout, command.stderr))

    async def open(self, command: Command) -> Child:
        """Start a command that communicates over `Child.channel`, and don't wait for its end."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        link: SupervisorConnection | None = None
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
        return Child(link, ours, (command.stdout, command.stderr), self.clean_logs)

    def kill_all(self) -> None:
        """Send SIGKILL to everything started here; waiting callers get the ends."""
        for link in self._links:
            link.kill()

    def loads(self) -> dict[int, TreeLoad]:
        """What the running commands use now, by tag; the sum for each tag.

        Blocking, so call it in a thread. New sessions started by a command get the command's
        niceness.
        """
        return look_at(tuple(self._links))

    async def close(self) -> None:
        """Kill what is still running, and let the warden exit."""
        self._closed = True
        self.kill_all()
        try:
            if self._links:
                ends = [link.ended for link in self._links]
                await asyncio.wait(ends, timeout=SUPERVISOR_PATIENCE_S + MARGIN_S)
        finally:
            process, self._process = self._process, None
            if process is not None:
                await process.close()

    # ---- starting

    async def _start(self, command: Command, channel: socket.socket | None) -> SupervisorConnection:
        """A connection to a supervisor that has been given the command, or one that has already
        ended."""
        if self._closed:
            raise RuntimeError("this warden is closed and cannot run commands")
        link = SupervisorConnection(command, self._came_through)
        self._links.add(link)
        link.ended.add_done_callback(lambda _: self._links.discard(link))
        try:
            request = request_of(command)
            await self._connect(link, channel)
            link.begin(request)
        except (OSError, UnicodeEncodeError) as error:
            link.finish(ProcessEnd(failure=failure_of(command, error)))
        except BaseException:
            link.finish(ProcessEnd(cancelled=True))
            raise
        return link

    async def _connect(self, link: SupervisorConnection, channel: socket.socket | None) -> None:
        """Connect to a supervisor."""
        ours, theirs = socket.socketpair()
        link.connect(ours)
        with theirs:
            fds = [theirs.fileno()] if channel is None else [theirs.fileno(), channel.fileno()]
            async with self._requests:
                link.seat = await self._hand_over(fds)

    async def _hand_over(self, fds: list[int]) -> SupervisorAddress:
        while True:
            process = self._living_process()
            try:
                number = await process.hand_over(fds)
            except (BrokenPipeError, ConnectionResetError):
                # It died before anything was started: another one may take the request.
                process.discard()
                self._process = None
            else:
                return SupervisorAddress(process=process, number=number)

    def _living_process(self) -> WardenProcess:
        if self._process is None:
            if self._starts_in_a_row >= MOST_STARTS_IN_A_ROW:
                raise ChildProcessError(
                    errno.ECHILD, f"the warden process died {self._starts_in_a_row} times in a row"
                )
            self._process = WardenProcess(self._expected)
            # Not before: what was never started has not died.
            self._starts_in_a_row += 1
        return self._process

    def _came_through(self) -> None:
        self._starts_in_a_row = 0


class CommandRunner(Protocol):
    """Runs commands of attempts where those run, which may be a container."""

    def has(self, workspace: str | None) -> bool:
        """Whether the attempt with this workspace runs in a container."""
        ...

    def path_in(self, workspace: str) -> str:
        """A workspace's path as the attempt sees it."""
        ...

    async def run(
        self, command: Command, workspace: str | None, *, is_grader: bool = False
    ) -> ProcessEnd:
        """Like `Warden.run`. In a container, `command.sandbox` names what it needs of this
        machine. What grades a worktree gets a container that nothing else has changed."""
        ...


async def _as_they_are(_paths: tuple[str, ...]) -> None:
    return
