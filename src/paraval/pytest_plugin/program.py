"""A worker that is a program of its own: it collects the session's tests itself.

`python -m paraval.pytest_plugin.program DESCRIPTOR`, started by `keeper.ProgramStarter`.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from paraval.pytest_plugin.pytest_internals import Session, prepare_config
from paraval.pytest_plugin.worker import Message, Start, Worker, own_files, receive, send


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
