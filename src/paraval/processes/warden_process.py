"""The warden as the engine's child: started, asked, and let go."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from paraval.processes.tree import (
    descendants,
    kill_entries,
    process_table,
    read_entry,
    signal_entries,
)
from paraval.processes.warden import CLOSING_PATIENCE_S
from paraval.processes.wire import KEEP, KILL_KEEPER, REQUEST_NUMBER

MARGIN_S = 5.0
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
        """Until it has seen to it that nothing of it is left; bounded, and whoever cancels it."""
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
        """Forget one that is dead."""
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
