"""A cluster without Ray: each node is a process of this machine that runs a host.

What crosses is the same as with Ray, and a node can be killed, frozen or started in mid-run.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import ParavalError
from paraval.runner.cluster import ray_backend
from paraval.runner.cluster.backend import ClusterNode, HostLostError, Message
from paraval.runner.cluster.host import Host

_LENGTH = struct.Struct("!Q")
_SERVE = "from tests.cluster_kit import serve; serve()"


async def _read(reader: asyncio.StreamReader) -> Any:
    size = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
    return pickle.loads(await reader.readexactly(size))


def _frame(what: Any) -> bytes:
    data = pickle.dumps(what)
    return _LENGTH.pack(len(data)) + data


# ---- the node's side


def serve() -> None:
    asyncio.run(_serve(int(sys.argv[1])))


async def _serve(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    reader, writer = await asyncio.open_connection(sock=connection)
    host = Host()
    calls: dict[int, asyncio.Task[None]] = {}

    async def answer(number: int, method: str, message: Message) -> None:
        try:
            reply: Any = await host.call(method, message)
        except ParavalError as error:
            reply = error
        except Exception as error:  # noqa: BLE001 - as Ray does it
            reply = HostLostError(repr(error))
        writer.write(_frame((number, reply)))

    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            number, method, message = await _read(reader)
            if method is None:
                calls[number].cancel()
            else:
                calls[number] = asyncio.create_task(answer(number, method, message))
    await host.close()
    writer.close()


# ---- the engine's side


class ProcessHost:
    """A handle of a host process."""

    def __init__(self, node: ClusterNode, env: dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **env},
                cwd=Path(__file__).parent.parent,
            )
        self.node = node
        self.calls: list[tuple[str, Message]] = []
        self._socket = ours
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        self._reading = asyncio.create_task(self._read_on(reader))

    async def _read_on(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, reply = await _read(reader)
                if number in self._waiting:
                    self._waiting.pop(number).set_result(reply)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(HostLostError("its host ended"))
        self._waiting.clear()

    async def call(self, method: str, message: Message) -> Message:
        if self._reading is None or self._reading.done() or self._writer is None:
            raise HostLostError("its host ended")
        self.calls.append((method, message))
        self._number += 1
        number = self._number
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(_frame((number, method, message)))
        try:
            reply = await future
        except asyncio.CancelledError:
            self._waiting.pop(number, None)
            with suppress(ConnectionError):
                self._writer.write(_frame((number, None, None)))
            raise
        if isinstance(reply, Exception):
            raise reply
        assert isinstance(reply, Message)
        return reply

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._writer is not None:
            self._writer.close()

    async def close(self) -> None:
        self.kill()
        if self._reading is not None and self._writer is not None:
            await self._reading
            with suppress(ConnectionError):
                await self._writer.wait_closed()


@dataclass
class ProcessCluster:
    """A backend whose nodes are processes of this machine."""

    folder: Path
    names: list[str]
    env: dict[str, str] = field(default_factory=dict)
    env_of: dict[str, dict[str, str]] = field(default_factory=dict)
    hosts: list[ProcessHost] = field(default_factory=list)

    async def nodes(self) -> list[ClusterNode]:
        return [ClusterNode(id=name, name=name, address="127.0.0.1") for name in self.names]

    async def start_host(self, node: ClusterNode) -> ProcessHost:
        scratch = self.folder / f"node-{node.name}"
        scratch.mkdir(exist_ok=True)
        own = {"PARAVAL_SCRATCH": str(scratch), **self.env_of.get(node.name, {})}
        host = ProcessHost(node, {**self.env, **own})
        self.hosts.append(host)
        await host.start()
        return host

    async def close(self) -> None:
        for host in self.hosts:
            await host.close()

    def of(self, name: str) -> ProcessHost:
        """The latest host of a node."""
        return next(host for host in reversed(self.hosts) if host.node.name == name)

    def kill_host(self, name: str) -> None:
        os.kill(self.of(name).process.pid, signal.SIGKILL)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make `--cluster ray` mean this cluster, in this process."""

        @asynccontextmanager
        async def connect(
            _address: str, *, insecure: bool, say: Callable[[str], None]
        ) -> AsyncIterator[ProcessCluster]:
            assert not insecure
            assert callable(say)
            try:
                yield self
            finally:
                await self.close()

        monkeypatch.setattr(ray_backend, "connect", connect)
