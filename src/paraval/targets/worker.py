"""A warm worker process for `isolate: process`: calls one function, one attempt after another.

It runs as `python -m paraval.targets.worker`, with its orders on file descriptor 3: a frame
(length, then bytes) for each. The first names the function; each further one is a pickled (case,
variant). It answers with a frame of JSON each. Its stdout and stderr belong to the function.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import os
import pickle
import socket
import struct
import sys
import traceback
from typing import Any

from paraval.errors import ParavalError
from paraval.functions import is_async, load_function, positional_arguments
from paraval.targets.answer import InvalidOutputError, read_output
from paraval.targets.function import failure_of

CHANNEL_FD = 3
LENGTH = struct.Struct("!I")


def main() -> None:
    # What was printed before a hang or an exit is what is wanted most.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    channel = socket.socket(fileno=CHANNEL_FD)
    order = json.loads(_receive(channel) or b"{}")
    try:
        function = load_function(order["reference"], order["folder"])
    except ParavalError as error:
        _send(channel, {"problem": str(error)})
        return
    _send(channel, {"ready": True})
    takes_variant = positional_arguments(function) >= 2
    while (frame := _receive(channel)) is not None:
        case, variant = pickle.loads(frame)  # noqa: S301 - it comes from the engine that started us
        arguments = (case, variant) if takes_variant else (case,)
        _send(channel, _call(function, arguments))


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
        sys.stdout.flush()
        sys.stderr.flush()


def _receive(channel: socket.socket) -> bytes | None:
    head = _exactly(channel, LENGTH.size)
    return None if head is None else _exactly(channel, LENGTH.unpack(head)[0])


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        piece = channel.recv(min(size - len(received), 1 << 20))
        if not piece:
            return None
        received += piece
    return bytes(received)


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    payload = json.dumps(message).encode()
    channel.sendall(LENGTH.pack(len(payload)) + payload)


if __name__ == "__main__":
    os.set_inheritable(CHANNEL_FD, False)
    main()
