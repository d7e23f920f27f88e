"""What a warden needs from `signal` and `socket`, without their slow parts.

Both are thin layers over C modules and spend their load time on enums of all constants. Every run
that starts commands waits for a warden to start: with only the C modules it waits half as long.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # avoids `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    import signal
    import socket as sockets

    Socket = sockets.socket
else:
    import _signal as signal
    import _socket as sockets

    Socket = sockets.socket

__all__ = [
    "Socket",
    "receive_exactly",
    "receive_fds",
    "send_fds",
    "signal",
    "socket_of",
    "socket_pair",
]

_FD_SIZE = struct.calcsize("i")


def socket_of(fd: int) -> Socket:
    return sockets.socket(fileno=fd)


def socket_pair() -> tuple[Socket, Socket]:
    return sockets.socketpair()


def send_fds(line: Socket, fds: list[int]) -> None:
    """Send descriptors, along with one byte that announces them."""
    rights = struct.pack(f"{len(fds)}i", *fds)
    line.sendmsg([b"k"], [(sockets.SOL_SOCKET, sockets.SCM_RIGHTS, rights)])


def receive_exactly(line: Socket, size: int) -> bytes:
    """Receive this many bytes; fewer only if the other end is gone."""
    return line.recv(size, sockets.MSG_WAITALL)


def receive_fds(line: Socket, most: int) -> tuple[bytes, list[int]]:
    """The byte received, if any, and the descriptors: none, if there was no room for them all."""
    data, extras, flags, _ = line.recvmsg(1, sockets.CMSG_LEN(most * _FD_SIZE))
    fds: list[int] = []
    for level, kind, rights in extras:
        if level == sockets.SOL_SOCKET and kind == sockets.SCM_RIGHTS:
            count = len(rights) // _FD_SIZE
            fds += struct.unpack(f"{count}i", rights[: count * _FD_SIZE])
    if flags & sockets.MSG_CTRUNC:
        for fd in fds:
            sockets.close(fd)
        fds = []
    return data, fds
