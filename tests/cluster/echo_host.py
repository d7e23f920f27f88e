"""A host for the tests of the backend: it has the interface of the real one, and runs nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from paraval.errors import ParavalError
from paraval.runner.cluster.backend import Message

CLOSED = Path("/tmp/ray/closed")
"""Of the node, see `world.py`."""
HOST = "tests.cluster.echo_host:EchoHost"


class EchoHost:
    def __init__(self) -> None:
        self.canceled = 0

    async def call(self, method: str, message: Message) -> Message:
        match method:
            case "where":
                return Message(text=os.uname().nodename)
            case "sleep":
                try:
                    await asyncio.sleep(float(message.text))
                except asyncio.CancelledError:
                    self.canceled += 1
                    raise
            case "canceled":
                return Message(text=str(self.canceled))
            case "silent":
                return Message(text="")
            case "refuse":
                raise ParavalError("no bwrap here", hint="install bubblewrap")
            case "bug":
                raise KeyError("a bug of ours")
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
        return message

    async def close(self) -> None:
        CLOSED.touch()  # noqa: ASYNC240 - it is quick
