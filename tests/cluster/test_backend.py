"""The Ray backend with real clusters: who gets in, where hosts run, and what is lost."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import ParavalError
from paraval.runner.cluster.backend import (
    Backend,
    ClusterLostError,
    HostHandle,
    Message,
)
from paraval.runner.cluster.ray_backend import connect
from tests.cluster.echo_host import HOST
from tests.cluster.world import CHECKOUT, World

pytestmark = pytest.mark.cluster

ADDRESSES = ["native", "client"]
SECRET = "sk-a-secret-that-must-stay-in-memory"
PUBLIC = "what the object store may contain"
QUIET_S = 30.0
"""More than any loss takes that closes connections; a cut link takes longer."""


# What the driver does: these run on the head, each as a process of its own.


async def say_where_hosts_run(address: str) -> dict[str, str]:
    async with connected(address) as backend:
        hosts = await start_hosts(backend)
        return {name: await where(host) for name, host in hosts.items()}


async def call_in_many_ways(address: str) -> dict[str, Any]:
    async with connected(address) as backend:
        host = (await start_hosts(backend, "b"))["b"]
        long = Message(text="ü\n" * 300_000, files={"a/b": b"\0" * 1_000_000})
        echoed = await host.call("echo", long)
        refused = await failure(host, "refuse")
        bug = await failure(host, "bug")
        for _ in range(3):
            call = asyncio.ensure_future(host.call("sleep", Message(text="60")))
            await asyncio.sleep(0.3)
            call.cancel()
        await asyncio.sleep(0.5)
        canceled = await host.call("canceled", Message(text=""))
        return {
            "is_same": echoed == long,
            "refused": [type(refused).__name__, str(refused)],
            "bug": [type(bug).__name__, "a bug of ours" in str(bug)],
            "canceled": canceled.text,
        }


async def enter(address: str, insecure: str = "") -> str:
    """The error, if it cannot be entered."""
    try:
        async with connected(address, insecure=bool(insecure)) as backend:
            hosts = await start_hosts(backend)
            return " ".join([await where(host) for host in hosts.values()])
    except ParavalError as error:
        return f"{type(error).__name__}: {error}"


async def lose_a_host(address: str, node: str) -> dict[str, Any]:
    """Reports when calls are under way, and how they and later ones end."""
    async with connected(address) as backend:
        hosts = await start_hosts(backend, "a", node)
        calls = [hosts[node].call("sleep", Message(text="500")) for _ in range(3)]
        under_way = asyncio.gather(*calls, return_exceptions=True)
        await where(hosts[node])
        print('"under way"', flush=True)
        began = time.monotonic()
        ended = await under_way
        after_s = time.monotonic() - began
        later = await failure(hosts[node], "where")
        return {
            "ended": sorted({type(error).__name__ for error in ended}),
            "after_s": after_s,
            "later": type(later).__name__,
            "others": await where(hosts["a"]),
        }


async def start_again_on(address: str, node: str) -> str:
    async with connected(address) as backend:
        return await where((await start_hosts(backend, node))[node])


async def watch_nodes(address: str) -> list[list[str]]:
    """Reports when it has seen the nodes, and returns once there is the new one."""
    async with connected(address) as backend:
        before = after = sorted(node.name for node in await backend.nodes())
        print('"seen"', flush=True)
        while "new" not in after:
            await asyncio.sleep(0.2)
            after = sorted(node.name for node in await backend.nodes())
        return [before, after]


async def send_a_secret(address: str) -> str:
    async with connected(address) as backend:
        hosts = await start_hosts(backend)
        for host in hosts.values():
            await host.call("echo", Message(text=f'{{"KEY": "{SECRET}"}}'))
            # Too long for one piece: Ray would put it into its object store.
            await host.call("silent", Message(text=SECRET + "." * 500_000))
            await failure(host, "refuse")
            await host.call("silent", Message(text="", files={"x": PUBLIC.encode() * 10_000}))
        print('"sent"', flush=True)
        await asyncio.sleep(3)
    return "closed"


async def lose_the_head(address: str) -> dict[str, Any]:
    try:
        async with connected(address) as backend:
            await start_hosts(backend)
            print('"connected"', flush=True)
            began = time.monotonic()
            while True:
                await backend.nodes()
                await asyncio.sleep(0.5)
    except ClusterLostError as error:
        return {"after_s": time.monotonic() - began, "message": error.message}


@asynccontextmanager
async def connected(address: str, *, insecure: bool = False) -> AsyncIterator[Backend]:
    said: Callable[[str], object] = lambda line: print(line, file=sys.stderr)  # noqa: E731
    async with connect(address, insecure=insecure, say=said, host_class=HOST) as backend:
        yield backend


async def start_hosts(backend: Backend, *names: str) -> dict[str, HostHandle]:
    # A node that another test has just removed may still seem to be alive.
    nodes = [node for node in await backend.nodes() if node.name in (names or "abc")]
    hosts = await asyncio.gather(*(backend.start_host(node) for node in nodes))
    return {host.node.name: host for host in hosts}


async def where(host: HostHandle) -> str:
    return (await host.call("where", Message(text=""))).text


async def failure(host: HostHandle, method: str) -> Exception | None:
    try:
        await host.call(method, Message(text=SECRET))
    except Exception as error:  # noqa: BLE001 - it is what the test looks at
        return error
    return None


# The tests


@pytest.mark.parametrize("way", ADDRESSES)
def test_each_node_has_a_host_of_its_own(world: World, way: str) -> None:
    hosts = world.drive(say_where_hosts_run, getattr(world, way))

    assert {name: hosts[name] for name in "abc"} == {"a": "a", "b": "b", "c": "c"}
    assert [process for name in "abc" for process in world.processes(name)] == []


@pytest.mark.parametrize("way", ADDRESSES)
def test_messages_errors_and_cancellation_cross(world: World, way: str) -> None:
    assert world.drive(call_in_many_ways, getattr(world, way)) == {
        "is_same": True,
        "refused": ["ParavalError", "no bwrap here\nhint: install bubblewrap"],
        "bug": ["RuntimeError", True],
        "canceled": "3",
    }


def test_a_machine_of_the_cluster_finds_it_without_an_address(world: World) -> None:
    assert {"a", "b", "c"} <= set(world.drive(enter, "ray").split())


@pytest.mark.parametrize("way", ADDRESSES)
def test_with_another_token_there_is_no_entry(world: World, way: str) -> None:
    wrong = world.folder / "wrong"
    wrong.write_text("0" * 64)

    error = world.drive(enter, getattr(world, way), RAY_AUTH_TOKEN_PATH=str(wrong))

    assert error.startswith("RequestError: ")
    assert "token" in error


def test_without_a_token_ray_itself_lets_no_one_in(world: World) -> None:
    """Whatever the backend checks: the cluster refuses those who don't use it."""
    script = f"import ray; ray.init(address={world.native!r}, log_to_driver=False)"

    with world.start(sys.executable, "-c", script, env={"RAY_AUTH_MODE": "disabled"}) as process:
        _, err = process.communicate(timeout=100)

    assert process.returncode != 0
    assert "InvalidAuthToken" in err


def test_where_nothing_answers_the_error_says_so_soon(world: World) -> None:
    began = time.monotonic()

    error = world.drive(enter, "10.77.0.99:6379")

    assert "nothing answers there" in error
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("way", ADDRESSES)
def test_a_cluster_without_tokens_is_refused_unless_the_user_accepts_it(
    other_world: World, way: str
) -> None:
    other_world.auth_mode = "disabled"
    other_world.add("a")
    other_world.auth_mode = "token"

    refused = other_world.drive(enter, getattr(other_world, way))
    entered = other_world.drive(enter, getattr(other_world, way), "insecure")

    assert refused.startswith("RequestError: the Ray cluster runs without token authentication")
    assert "--insecure-cluster" in refused
    assert entered == "a"


def test_a_node_with_another_version_of_paraval_is_named(world: World, tmp_path: Path) -> None:
    info = tmp_path / "paraval-0.0.7.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: paraval\nVersion: 0.0.7\n")
    world.add("old", env={"PYTHONPATH": f"{tmp_path}:{CHECKOUT}"})

    error = world.drive(start_again_on_old, world.native)
    world.remove("old")

    assert error.startswith("node old has paraval 0.0.7, this machine ")


async def start_again_on_old(address: str) -> str:
    try:
        return await start_again_on(address, "old")
    except ParavalError as error:
        return error.message


@pytest.mark.parametrize("way", ADDRESSES)
def test_a_killed_host_is_lost_at_once_and_can_be_started_again(world: World, way: str) -> None:
    with world.driving(lose_a_host, getattr(world, way), "c") as driver:
        driver.reported()
        world.kill_host("c")
        lost = driver.result()

    assert lost.pop("after_s") < 5
    assert lost == {"ended": ["HostLostError"], "later": "HostLostError", "others": "a"}
    assert world.drive(start_again_on, world.native, "c") == "c"


@pytest.mark.parametrize("way", ADDRESSES)
def test_the_host_of_a_killed_raylet_is_lost(world: World, way: str) -> None:
    world.add("d")
    with world.driving(lose_a_host, getattr(world, way), "d") as driver:
        driver.reported()
        world.kill_raylet("d")
        lost = driver.result()
    left = world.processes("d")
    world.remove("d")

    assert lost.pop("after_s") < QUIET_S
    assert lost == {"ended": ["HostLostError"], "later": "HostLostError", "others": "a"}
    assert left == []


def test_the_host_behind_a_cut_link_is_lost_when_ray_notices(world: World) -> None:
    world.add("d")
    with world.driving(lose_a_host, world.native, "d") as driver:
        driver.reported()
        world.cut("d")
        lost = driver.result()
    world.remove("d")

    assert lost.pop("after_s") < 120
    assert lost == {"ended": ["HostLostError"], "later": "HostLostError", "others": "a"}


def test_a_node_that_joins_is_seen_within_seconds(world: World) -> None:
    with world.driving(watch_nodes, world.native) as driver:
        driver.reported()
        world.add("new")
        before, after = driver.result()
    world.remove("new")

    assert "new" not in before
    assert "new" in after


@pytest.mark.parametrize("way", ADDRESSES)
def test_a_secret_in_a_message_is_in_no_file_of_any_node(world: World, way: str) -> None:
    with world.driving(send_a_secret, getattr(world, way)) as driver:
        driver.reported()
        during = world.files_with(SECRET)
        assert driver.result() == "closed"

    assert during == []
    assert world.files_with(SECRET) == []
    # Where files are kept is looked at, too: else this test would show nothing.
    assert any("/fd/" in file for file in world.files_with(PUBLIC))


def test_a_lost_head_is_an_error_for_clients_too(other_world: World) -> None:
    other_world.add("a")
    other_world.add("b")

    with other_world.driving(lose_the_head, other_world.client, on="b") as driver:
        driver.reported()
        other_world.kill_head()
        lost = driver.result()

    assert 20 < lost["after_s"] < 50
    assert lost["message"] == "the head of the Ray cluster does not answer any more"


def test_a_cluster_started_for_the_run_ends_with_it(other_world: World, tmp_path: Path) -> None:
    other_world.add("a")
    other_world.kill_raylet("a")
    time.sleep(3)
    env = {"HOME": str(tmp_path), "RAY_AUTH_TOKEN_PATH": ""}

    assert other_world.drive(enter, "ray", **env) == "a"
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o077 == 0
    assert other_world.rays("a") == []
