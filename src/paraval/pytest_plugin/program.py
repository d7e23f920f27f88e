"""Workers that are programs of their own: they collect the session's tests themselves.

The parent starts them as `python -m paraval.pytest_plugin.program DESCRIPTOR`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paraval.pytest_plugin.keeper import BEGAN, ENDED, NEWS, Began, Ended, pair_of_sockets
from paraval.pytest_plugin.pytest_internals import Session, prepare_config, temporary_folders_of
from paraval.pytest_plugin.worker import (
    Message,
    Worker,
    WorkerIdentity,
    own_files,
    receive,
    send,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a worker needs that is a program of its own."""

    identity: WorkerIdentity
    nodeids: list[str]
    arguments: list[str]
    folder: str
    path: list[str]
    argv: list[str]
    basetemp: str
    workerinput: dict[str, Any]
    """From plugins that know xdist."""


class ProgramStarter:
    """Starts workers as programs that collect by themselves: slower, and safe with any threads."""

    def __init__(self, session: Session, identity: Callable[[int], WorkerIdentity]) -> None:
        self._session = session
        self._identity = identity
        self._news, self._told = pair_of_sockets()
        self._began: list[Began] = []

    def fileno(self) -> int:
        return self._news.fileno()

    def start(self, number: int) -> None:
        ours, theirs = pair_of_sockets()
        descriptor = theirs.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(descriptor)],
            pass_fds=[descriptor],
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        theirs.close()
        send(ours, self._start_of(self._identity(number)))
        self._began.append(Began(number=number, process=process.pid, socket=ours))
        self._told.sendall(NEWS.pack(BEGAN, process.pid, number))
        threading.Thread(target=self._wait, args=[process], daemon=True).start()

    def _start_of(self, identity: WorkerIdentity) -> Start:
        config: Any = self._session.config
        gateway = SimpleNamespace(id=identity.name)
        node = SimpleNamespace(workerinput={}, config=config, gateway=gateway)
        hook = getattr(config.hook, "pytest_configure_node", None)
        for impl in () if hook is None else hook.get_hookimpls():
            with suppress(Exception):  # Some expect that xdist was asked for.
                impl.function(node)
        folders = temporary_folders_of(config)
        basetemp = Path(identity.folder, "tmp") if folders is None else folders.getbasetemp()
        arguments = [str(one) for one in config.invocation_params.args]
        if config.pluginmanager.has_plugin("_cov"):
            arguments.append("--cov-append")  # Or a worker would remove what others measured.
        return Start(
            identity=identity,
            nodeids=[item.nodeid for item in self._session.items],
            arguments=arguments,
            folder=str(config.invocation_params.dir),
            path=sys.path,
            argv=sys.argv,
            basetemp=str(basetemp / f"popen-{identity.name}"),
            workerinput=node.workerinput,
        )

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with suppress(OSError):
            self._told.sendall(NEWS.pack(ENDED, process.pid, -code if code < 0 else code << 8))

    def news(self) -> Iterator[Began | Ended]:
        kind, process, rest = NEWS.unpack(self._news.recv(NEWS.size, socket.MSG_WAITALL))
        yield self._began.pop(0) if kind == BEGAN else Ended(process=process, status=rest)

    def close(self) -> None:
        self._news.close()
        self._told.close()


# ---- the program


class CollectingWorker:
    """A plugin: once the tests are collected, it runs those that the parent names."""

    def __init__(self, start: Start, sock: socket.socket) -> None:
        self._start = start
        self._socket = sock

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Silence pytest's reporter: others ask it for the terminal's width and the like."""
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter._tw._file = Path(os.devnull).open("w")  # noqa: SIM115 - for as long as it lives

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> bool:
        # The parent speaks of tests by their position in its own collection.
        found: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            found.setdefault(item.nodeid, []).append(item)
        session.items = [
            (found[nodeid].pop(0) if len(found[nodeid]) > 1 else found[nodeid][0])
            for nodeid in self._start.nodeids
        ]
        own_files(session.config, self._start.identity)
        send(self._socket, Message(is_ready=True))
        Worker(session, self._start.identity, self._socket).serve()
        return True


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    start: Start | None = receive(sock)
    if start is None:
        return  # The parent has died.
    sys.path[:] = start.path
    sys.argv[:] = start.argv
    os.chdir(start.folder)
    config = prepare_config(start.arguments, None)
    config.option.basetemp = start.basetemp
    start.identity.announce(config)
    vars(config)["workerinput"].update(start.workerinput)
    config.pluginmanager.register(CollectingWorker(start, sock), "paraval-worker-program")
    config.hook.pytest_cmdline_main(config=config)


if __name__ == "__main__":
    main()
