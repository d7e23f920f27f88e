"""What paraval needs from a cluster: its nodes, and a host on each of them.

Queue, limits, retries and records stay with the engine. A backend only starts hosts and carries
messages to them: JSON of the records' codec, and files beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol

from paraval.dataclass import dataclass
from paraval.errors import ParavalError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A machine of the cluster."""

    id: str
    """The backend's own, unique; a node that comes back has a new one."""
    name: str
    """For users: the host name, or the address where several nodes share it."""
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What crosses between the engine and a host."""

    text: str
    """JSON."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents by name."""

    @classmethod
    def of(cls, **data: Any) -> Message:
        return cls(text=json.dumps(data))


class HostLostError(ParavalError):
    """A host cannot be reached, or is gone; so is whatever it was running."""


class ClusterLostError(ParavalError):
    """The head of the cluster is gone: the run ends, and can be resumed."""


class HostHandle(Protocol):
    """A host on a node, as the engine sees it. Several calls may be under way at a time."""

    @property
    def node(self) -> ClusterNode: ...

    async def call(self, method: str, message: Message) -> Message:
        """Raises HostLostError if the host is lost, and ParavalError with the host's own words if
        it raises one. Cancelling the call cancels it on the node."""
        ...

    def kill(self) -> None:
        """End the host without waiting for it, whatever it is doing."""
        ...


class Backend(Protocol):
    """A cluster that is connected."""

    async def nodes(self) -> list[ClusterNode]:
        """The nodes that are alive now; raises ClusterLostError."""
        ...

    async def start_host(self, node: ClusterNode) -> HostHandle:
        """Start a host there; raises HostLostError, and RequestError if paraval cannot run there:
        it is not installed, say."""
        ...

    async def close(self) -> None:
        """End the hosts, and the cluster if it was started here."""
        ...
