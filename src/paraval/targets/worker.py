"""A warm worker process for `isolate: process`: calls one function, one attempt after another.

Requests arrive on file descriptor 3: one frame (length, then bytes) each. The first names the
function; each further one is a pickled (number, case, variant). It replies with a JSON frame under
the same number. Its stdout and stderr belong to the function.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import pickle
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from paraval.errors import ParavalError
from paraval.functions import is_async, load_function, positional_arguments
from paraval.processes.launch import CHANNEL_FD
from paraval.processes.wire import Frames, frame
from paraval.targets.answer import InvalidOutputError, read_output
from paraval.targets.function import failure_of


def main() -> None:
    # The output before a hang or an exit matters most.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    os.set_inheritable(CHANNEL_FD, False)
    channel = socket.socket(fileno=CHANNEL_FD)
    orders = _orders(channel)
    order = json.loads(next(orders, b"{}"))
    try:
        function = load_function(order["reference"], order["folder"])
    except ParavalError as error:
        channel.sendall(_reply({"problem": str(error)}))
        return
    channel.sendall(_reply({"ready": True}))
    takes_variant = positional_arguments(function) >= 2
    own = os.getpid()
    for pickled in orders:
        number, case, variant = pickle.loads(pickled)  # noqa: S301 - it comes from the engine that started us
        arguments = (case, variant) if takes_variant else (case,)
        reply = _call(function, arguments)
        if os.getpid() != own:
            # A fork that the function left running must not send the reply.
            os._exit(1)
        channel.sendall(_reply({"number": number, **reply}))


def _call(function: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    try:
        value = function(*arguments)
        if is_async(function):
            value = asyncio.run(value)
        return {"output": dataclasses.asdict(read_output(value))}
    except (Exception, KeyboardInterrupt, GeneratorExit) as error:  # noqa: BLE001 - its result
        if not isinstance(error, InvalidOutputError | ParavalError):
            traceback.print_exc()
        failure = failure_of(error)
        return {
            "failure": {
                "kind": failure.kind,
                "message": failure.message,
                "retry_after": failure.retry_after,
            }
        }
    finally:
        for stream in (sys.stdout, sys.stderr):
            # The function may have replaced or closed them.
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()


def _orders(channel: socket.socket) -> Iterator[bytes]:
    frames = Frames()
    while data := channel.recv(1 << 20):
        frames.feed(data)
        yield from frames


def _reply(message: dict[str, Any]) -> bytes:
    return frame(json.dumps(message).encode())
