"""A Ray cluster as a backend: its nodes, and one actor as the host on each of them.

Ray starts hosts and carries messages. It retries nothing, schedules nothing, and limits nothing.
This is the only module that imports Ray, and only when a run asks for a cluster. Ray keeps
constructor arguments in its tables and large arguments in shared memory, so texts, which may
contain secrets, cross in pieces that Ray sends within the call.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from paraval.errors import ParavalError, RequestError
from paraval.runner.cluster.backend import (
    ClusterLostError,
    ClusterNode,
    HostHandle,
    HostLostError,
    Message,
)
from paraval.threads import Threads

HERE = "ray"
"""The address that means: the cluster this machine belongs to, else one started for the run."""
CLIENT = "ray://"
HOST = "paraval.runner.cluster.host:Host"
"""The class of the host, which runs on the nodes: only they import it."""
STARTS = 3
REACH_PATIENCE_S = 10.0
HOST_PATIENCE_S = 90.0
"""For a node to start a Python process and import paraval."""
CONNECT_PATIENCE_S = 120.0
HEAD_PATIENCE_S = 30.0
"""Without an answer from the head for this long, the cluster is lost."""
CLOSE_PATIENCE_S = 20.0
CALLS_AT_A_TIME = 1000
INLINE_BYTES = 80_000
"""Ray puts arguments of 100 kB and more into its object store."""
OBJECT_STORE_BYTES = 200_000_000
"""Of a cluster started here: only bundles of files pass through it."""
AUTH_MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable
TOKEN_HINT = f"put the cluster's token into {TOKEN}, or into a file named in {TOKEN_PATH}"
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # it would send the working directory to all nodes
    # Otherwise Ray ends this process 60 s after the head is gone.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
    # In a cluster started here: Ray would run the host, and so all attempts, at niceness 15.
    "RAY_worker_niceness": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # or any call without a connection would start a cluster
}

Say = Callable[[str], object]


@asynccontextmanager
async def connect(
    address: str, *, insecure: bool = False, say: Say = print, host_class: str = HOST
) -> AsyncIterator[RayBackend]:
    """The cluster at an address: "ray", "ray://HOST:10001" or "HOST:6379". `insecure`: accept one
    that runs without tokens. `say` gets one line about each thing the user should know."""
    backend = RayBackend(_load_ray(address, insecure=insecure), host_class)
    try:
        await backend.connect(address, insecure=insecure, say=say)
        yield backend
    finally:
        await backend.close()


class RayBackend:
    """One connection; Ray allows one in a process."""

    def __init__(self, ray: Any, host_class: str) -> None:
        self._ray = ray
        self._host_class = host_class
        self._threads = Threads()
        self._folder: str | None = None
        """Of a cluster started here."""
        self._names: dict[str, str] = {}
        self._hosts: list[RayHost] = []
        self._is_lost = False
        self._actor_class: Any = None

    async def connect(self, address: str, *, insecure: bool, say: Say) -> None:
        if address == HERE:
            await self._join_or_start(insecure=insecure, say=say)
        else:
            await _reach(address)
            await self._join(address, insecure=insecure, say=say)
        if not insecure and not await self._requires_token():
            raise RequestError(
                "the Ray cluster runs without token authentication: anyone who can reach it can"
                " run code on its nodes",
                hint=f"start its nodes with {AUTH_MODE}=token and a token in {TOKEN} or"
                f" {TOKEN_PATH}, or accept the risk with --insecure-cluster",
            )

    async def nodes(self) -> list[ClusterNode]:
        """The nodes that are alive; raises ClusterLostError if the head does not answer."""
        ends = asyncio.get_running_loop().time() + HEAD_PATIENCE_S
        try:
            async with asyncio.timeout_at(ends):
                while True:
                    # The client raises anything while it reconnects; the native driver waits.
                    with suppress(Exception):
                        found = await self._threads.call(self._ray.nodes)
                        break
                    await asyncio.sleep(1)
        except TimeoutError:
            self._is_lost = True
            raise ClusterLostError(
                "the head of the Ray cluster does not answer any more",
                hint="when the cluster is back, continue with: paraval resume",
            ) from None
        alive = [node for node in found if node["Alive"]]
        self._names = _names(alive, self._names)
        return [
            ClusterNode(
                id=node["NodeID"],
                name=self._names[node["NodeID"]],
                address=node["NodeManagerAddress"],
            )
            for node in alive
        ]

    async def start_host(self, node: ClusterNode) -> HostHandle:
        """Raises HostLostError, or RequestError if paraval cannot run on the node."""
        try:
            async with asyncio.timeout(HOST_PATIENCE_S):
                actor = await self._threads.call(partial(self._create_actor, node))
                host = RayHost(self._ray, actor, node)
                self._hosts.append(host)
                mode, version = await host.ask(actor.about.remote)
        except TimeoutError:
            raise HostLostError(
                f"node {node.name}: no host started within {HOST_PATIENCE_S:.0f} s"
            ) from None
        if version != (here := importlib.metadata.version("paraval")):
            host.kill()
            raise RequestError(
                f"node {node.name}: paraval is not installed"
                if version is None
                else f"node {node.name} has paraval {version}, this machine {here}",
                hint=f"on the node, for the Python that runs ray start:"
                f" pip install 'paraval[cluster]=={here}'",
            )
        if mode != os.environ[AUTH_MODE]:
            host.kill()
            raise RequestError(f"node {node.name} runs without token authentication")
        return host

    async def close(self) -> None:
        hosts, self._hosts = [] if self._is_lost else self._hosts, []
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await asyncio.gather(*(host.close() for host in hosts), return_exceptions=True)
        for host in hosts:
            host.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE_S):
                await self._threads.call(self._ray.shutdown)
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        self._threads.close()

    async def _join(self, address: str, *, insecure: bool, say: Say) -> None:
        try:
            await self._init_patiently(say, ConnectionAbortedError, address=address)
        except Exception as error:
            if isinstance(error, RequestError):
                raise
            raise _not_connected(address, error, insecure=insecure) from error

    async def _join_or_start(self, *, insecure: bool, say: Say) -> None:
        services = importlib.import_module("ray._private.services")
        try:
            # The address of a cluster that crashed may still be on record.
            found = await self._threads.call(
                partial(services.get_ray_address_from_environment, "auto", None)
            )
            await _reach(found)
        except (ConnectionError, RequestError) as error:
            if insecure:
                raise RequestError(
                    "no Ray cluster runs on this machine",
                    hint="to start one here, leave out --insecure-cluster",
                ) from error
        else:
            say(f"Using the Ray cluster at {found} (RAY_ADDRESS can name another one).")
            try:
                return await self._join(found, insecure=insecure, say=say)
            except RequestError as error:
                another = "to start another one for this run, set RAY_ADDRESS=local"
                hint = another if error.hint is None else f"{error.hint}; {another}"
                raise RequestError(error.message, hint=hint) from error
        say("No Ray cluster runs on this machine: starting one.")
        # A folder for this user only: Ray's default is open to everyone. Its path must be short,
        # because Ray's sockets are in it.
        self._folder = await asyncio.to_thread(
            tempfile.mkdtemp,
            prefix="paraval-ray-",
            dir="/tmp",  # noqa: S108 - see above
        )
        try:
            await self._init_patiently(
                say,
                Exception,
                address="local",
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=self._folder,
            )
        except Exception as error:
            raise RequestError(
                f"Ray did not start on this machine: {_reason(error)}",
                hint="try again when the machine is less busy",
            ) from error

    async def _init_patiently(self, say: Say, again: type[Exception], **options: Any) -> None:
        """With more than one try, where Ray starts processes: it sometimes gives up on one that
        starts slowly, which is an exception of the type `again`."""
        for start in range(2, STARTS + 1):
            try:
                await self._init(options)
            except again as error:
                say(f"Ray did not start ({_reason(error)}): trying again ({start} of {STARTS}).")
                await self._threads.call(self._ray.shutdown)
            else:
                return
        await self._init(options)

    async def _init(self, options: Mapping[str, Any]) -> None:
        init = partial(
            self._ray.init, log_to_driver=False, logging_level=logging.CRITICAL, **options
        )
        with _stderr_captured() as captured:
            try:
                async with asyncio.timeout(CONNECT_PATIENCE_S):
                    await self._threads.call(init)
            except Exception as error:
                if "InvalidAuthToken" in captured():
                    raise _token_refused(options["address"]) from error
                raise

    async def _requires_token(self) -> bool:
        """As seen by a process that a node started."""

        def auth_mode() -> str | None:
            import os  # noqa: PLC0415 - this function is sent by value

            return os.environ.get("RAY_AUTH_MODE")

        try:
            async with asyncio.timeout(HOST_PATIENCE_S):
                ask = self._ray.remote(num_cpus=0, max_retries=0)(auth_mode)
                answer = await self._threads.call(ask.remote)
                return bool(await asyncio.wrap_future(answer.future()) == "token")
        except (TimeoutError, self._ray.exceptions.RayError) as error:
            raise RequestError(
                f"no node of the Ray cluster could start a process: {_reason(error)}"
            ) from error

    def _create_actor(self, node: ClusterNode) -> Any:
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        self._actor_class = self._actor_class or self._ray.remote(_actor_class())
        return self._actor_class.options(
            scheduling_strategy=strategies.NodeAffinitySchedulingStrategy(node.id, soft=False),
            num_cpus=0,
            max_concurrency=CALLS_AT_A_TIME,
            max_restarts=0,
            max_task_retries=0,
        ).remote(self._host_class)


class RayHost:
    """An actor that is pinned to its node."""

    def __init__(self, ray: Any, actor: Any, node: ClusterNode) -> None:
        self._ray = ray
        self._actor = actor
        self._node = node
        self._is_ended = False

    @property
    def node(self) -> ClusterNode:
        return self._node

    async def call(self, method: str, message: Message) -> Message:
        data = message.text.encode()
        pieces = (data[at : at + INLINE_BYTES] for at in range(0, len(data), INLINE_BYTES))
        failed, text, rest = await self.ask(
            partial(self._actor.call.remote, method, dict(message.files), *pieces)
        )
        if failed:
            raise ParavalError(text, hint=rest)
        return Message(text=text, files=rest)

    async def ask(self, call: Callable[[], Any]) -> Any:
        """The value of a call; raises HostLostError."""
        try:
            answer = call()
            value = asyncio.wrap_future(answer.future())
            value.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                # Ray's client cannot cope with a future that was canceled.
                return await asyncio.shield(value)
            except asyncio.CancelledError:
                self._ray.cancel(answer)
                raise
        except self._ray.exceptions.RayTaskError as error:
            raise RuntimeError(f"the host on node {self._node.name} failed:\n{error}") from error
        except Exception as error:  # of many types, and plain ones if the connection is lost
            raise HostLostError("its host ended, or cannot be reached") from error

    async def close(self) -> None:
        if not self._is_ended:
            await self.ask(self._actor.close.remote)

    def kill(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            with suppress(Exception):  # Whatever it is, nothing more can be done.
                self._ray.kill(self._actor)


def _actor_class() -> type:
    """The class of the actor. It is sent by value, so that a node without paraval can say so; hence
    it uses nothing of this module."""

    class ParavalHost:
        def __init__(self, host_class: str) -> None:
            self._host_class = host_class
            self._host: Any = None

        async def about(self) -> tuple[str | None, str | None]:
            """How the node authenticates, and its version of paraval."""
            import importlib.metadata  # noqa: PLC0415 - sent by value
            import os  # noqa: PLC0415 - sent by value

            try:
                version = importlib.metadata.version("paraval")
            except importlib.metadata.PackageNotFoundError:
                version = None
            return os.environ.get("RAY_AUTH_MODE", "disabled"), version

        async def call(
            self, method: str, files: Mapping[str, bytes], *pieces: bytes
        ) -> tuple[bool, str, Any]:
            """Whether it failed; the text; the files, or the hint of a failure."""
            import importlib  # noqa: PLC0415 - sent by value

            from paraval.errors import ParavalError  # noqa: PLC0415 - sent by value
            from paraval.runner.cluster.backend import Message  # noqa: PLC0415 - sent by value

            if self._host is None:
                module, _, name = self._host_class.partition(":")
                self._host = getattr(importlib.import_module(module), name)()
            try:
                message = Message(text=b"".join(pieces).decode(), files=files)
                answer = await self._host.call(method, message)
            except ParavalError as error:
                return True, error.message, error.hint
            return False, answer.text, dict(answer.files)

        async def close(self) -> None:
            if self._host is not None:
                await self._host.close()

    return ParavalHost


def _load_ray(address: str, *, insecure: bool) -> Any:
    """Import Ray after setting the variables that it reads on import."""
    if importlib.util.find_spec("ray") is None:
        raise RequestError("--cluster needs Ray", hint="pip install 'paraval[cluster]'")
    mode = "disabled" if insecure else "token"
    if not insecure:
        _find_token(may_create=address == HERE)
    if "ray" in sys.modules and os.environ.get(AUTH_MODE) != mode:
        raise RequestError(
            "Ray was imported before paraval could configure it",
            hint=f"set {AUTH_MODE}={mode} before importing ray",
        )
    os.environ.update({**ENVIRONMENT, AUTH_MODE: mode})
    ray = importlib.import_module("ray")
    if ray.is_initialized():
        raise RequestError("this process is connected to Ray already")
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    # Whatever the options are, Ray prints errors of the cluster to stdout, a node's death for one.
    worker: Any = importlib.import_module("ray._private.worker")
    worker.print_to_stdstream = lambda *_, **__: None
    return ray


def _find_token(*, may_create: bool) -> None:
    """Check that Ray will find a token where it looks, or create one there that only this user can
    read."""
    if os.environ.get(TOKEN):
        return
    named = os.environ.get(TOKEN_PATH) or None
    file = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        if file.read_text().strip():
            if may_create and named is None and stat.S_IMODE(file.stat().st_mode) & 0o077:
                file.chmod(0o600)  # as Ray created it
            return
    except OSError:
        pass
    if named is not None or not may_create:
        raise RequestError(f"no token for the Ray cluster: {file} cannot be read", hint=TOKEN_HINT)
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", opener=partial(os.open, mode=0o600)) as opened:
        opened.write(secrets.token_hex(32))


def _token_refused(address: str) -> RequestError:
    if os.environ[AUTH_MODE] == "token":
        return RequestError(f"the Ray cluster at {address} refused the token", hint=TOKEN_HINT)
    return RequestError(
        f"the Ray cluster at {address} requires a token", hint="leave out --insecure-cluster"
    )


async def _reach(address: str) -> None:
    """Ray itself waits a minute for an address where nothing answers."""
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not port.isdigit():  # RAY_ADDRESS=local, for one: there is none to join
        raise RequestError(f"{address} is not the address of a Ray cluster")
    try:
        async with asyncio.timeout(REACH_PATIENCE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.close()
    except (OSError, TimeoutError) as error:
        raise RequestError(
            f"--cluster {address}: nothing answers there ({_reason(error)})",
            hint="is the cluster's head running, and its port open to this machine?",
        ) from error


def _not_connected(address: str, error: Exception, *, insecure: bool) -> RequestError:
    """Ray's client does not say why it was refused."""
    hint = None
    if address.startswith(CLIENT):
        hint = "is this the head's client port (the head needs paraval[cluster], too)" + (
            "?" if insecure else ", and the token the cluster's?"
        )
    return RequestError(f"--cluster {address}: {_reason(error)}", hint=hint)


def _reason(error: BaseException) -> str:
    """On one line; of a traceback from elsewhere, the error only."""
    text = str(error).strip() or type(error).__name__
    return text.rpartition("\n")[2] if "Traceback" in text else " ".join(text.split())


def _names(alive: Iterable[Mapping[str, Any]], kept: Mapping[str, str]) -> dict[str, str]:
    """Names of nodes by their ids: the one given to `ray start --node-name`, or the host name, or
    the address where several nodes share it. A node keeps its name."""
    wanted = {
        node["NodeID"]: node["NodeManagerHostname"]
        if node["NodeName"] == node["NodeManagerAddress"]
        else node["NodeName"]
        for node in alive
    }
    shared = Counter(wanted.values())
    names = {id_: kept[id_] for id_ in wanted if id_ in kept}
    for node in alive:
        address = node["NodeManagerAddress"]
        candidates = [address, f"{address}:{node['NodeManagerPort']}"]
        if shared[wanted[node["NodeID"]]] == 1:
            candidates.insert(0, wanted[node["NodeID"]])
        free = (name for name in candidates if name not in names.values())
        names.setdefault(node["NodeID"], next(free, node["NodeID"]))
    return names


@contextmanager
def _stderr_captured() -> Iterator[Callable[[], str]]:
    """Until Ray has its log file, its C++ part writes to the file descriptor."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)

        def captured() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield captured
        finally:
            os.dup2(before, 2)
            os.close(before)
