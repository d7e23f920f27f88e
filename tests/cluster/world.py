"""Three machines on this one: Ray nodes, each with its own network, host name, processes, shared
memory and temporary files; a link can be cut.

It needs root, `ip`, `unshare` and `nsenter` (Linux). Where you are not root, a container with
`--privileged` has them. Everything is in namespaces of its own: no process, interface or route of
this machine is touched, and killing the first process of a node ends all of it.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

CHECKOUT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
HOST = "ray::ParavalHost"
"""What Ray calls the process of a host."""
RAYLET = "/raylet/raylet "
NEEDED = ("ip", "unshare", "nsenter", "mount")
START_PATIENCE_S = 60.0
END_PATIENCE_S = 5.0
STARTS = 3
SHM_MB = 300
RAY_SETTINGS = (
    "--block",
    "--disable-usage-stats",
    "--include-log-monitor=false",
    "--object-store-memory=80000000",
    "--num-cpus=2",
)
BOOT = """
hostname "$1"; folder="$2"; shift 2
ip link set lo up
mount --bind "$folder/ray" /tmp/ray
mount -t tmpfs -o size=$SHM_MB"m" tmpfs /dev/shm
if [ -n "$SCRATCH_MB" ]; then mount -t tmpfs -o size=$SCRATCH_MB"m" tmpfs "$folder/scratch"; fi
"$@" > "$folder/ray.out" 2>&1
sleep 1000000
"""
"""The first process of a node: it outlives Ray, as a machine does."""


def why_not() -> str | None:
    """Why no world can be created here; None if it can."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "three network namespaces need root"
    return None


@dataclass(kw_only=True)
class Node:
    """One machine."""

    name: str
    address: str
    folder: Path
    space: str
    """Its network namespace."""
    link: str
    """Of the bridge to it."""
    first: subprocess.Popen[bytes]

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def pid(self) -> int:
        """Of its first process, as this machine sees it."""
        (child,) = psutil.Process(self.first.pid).children()
        return child.pid


@dataclass(kw_only=True)
class World:
    """A cluster with its head on node a."""

    folder: Path
    auth_mode: str = "token"
    nodes: dict[str, Node] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    id: str = field(default_factory=lambda: secrets.token_hex(3))

    def __enter__(self) -> Self:
        Path("/tmp/ray").mkdir(exist_ok=True)
        self.token.write_text(secrets.token_hex(32))
        self.token.chmod(0o600)
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in reversed(list(self.nodes)):
            self.remove(name)
        _ip("netns", "del", self._hub)

    @property
    def token(self) -> Path:
        return self.folder / "token"

    @property
    def native(self) -> str:
        return "10.77.0.1:6379"

    @property
    def client(self) -> str:
        return "ray://10.77.0.1:10001"

    @property
    def _hub(self) -> str:
        return f"pv{self.id}-hub"

    def add(
        self, name: str, *, scratch_mb: int | None = None, env: Mapping[str, str] | None = None
    ) -> Node:
        """Start a node; the first one is the head. Ray's start is retried, as it sometimes fails on
        a busy machine."""
        number = next(self._numbers)
        address = f"10.77.0.{number}"
        link = f"to-{number}"
        space = f"pv{self.id}-{number}"
        folder = self.folder / f"{name}-{number}"
        for part in ("ray", "scratch"):
            (folder / part).mkdir(parents=True)
        _ip("netns", "add", space)
        veth = f"{link} type veth peer name eth0 netns {space}"
        _ip("-n", self._hub, "link", "add", "name", *veth.split())
        _ip(*f"-n {self._hub} link set {link} master bridge up".split())
        _ip(*f"-n {space} addr add {address}/24 dev eth0".split())
        _ip(*f"-n {space} link set eth0 up".split())
        role = f"--address={self.native}"
        if not self.nodes:
            role = "--head --port=6379 --include-dashboard=false"
        command = [
            *f"ip netns exec {space} unshare --uts --pid --mount --fork --mount-proc".split(),
            *("--kill-child", "sh", "-c", BOOT, "sh", name, str(folder)),
            *(str(BIN / "ray"), "start", *role.split(), f"--node-ip-address={address}"),
            *RAY_SETTINGS,
        ]
        for _ in range(STARTS):
            first = subprocess.Popen(
                command,
                env={
                    **self._environment(folder),
                    "SHM_MB": str(SHM_MB),
                    "SCRATCH_MB": str(scratch_mb or ""),
                    **(env or {}),
                },
                start_new_session=True,
            )
            node = Node(
                name=name, address=address, folder=folder, space=space, link=link, first=first
            )
            if _comes_up(node):
                self.nodes[name] = node
                return node
            first.kill()
            first.wait()
        raise AssertionError(f"node {name} did not start:\n{(folder / 'ray.out').read_text()}")

    def remove(self, name: str) -> None:
        """Switch it off, and forget it; its raylet first, so that the head need not wait for it."""
        self.heal(name)
        node = self.nodes[name]
        with suppress(ValueError, psutil.NoSuchProcess):
            raylets = [pid for pid, line in self._all(name).items() if RAYLET in line]
            for pid in raylets:
                os.kill(pid, signal.SIGTERM)
            ends = time.monotonic() + END_PATIENCE_S
            while any(map(psutil.pid_exists, raylets)) and time.monotonic() < ends:
                time.sleep(0.1)
        del self.nodes[name]
        node.first.kill()
        node.first.wait()
        _ip("netns", "del", node.space)
        shutil.rmtree(node.folder, ignore_errors=True)

    def cut(self, name: str) -> None:
        """Unplug the node's cable: packets vanish, no connection is closed."""
        _ip("-n", self._hub, "link", "set", self.nodes[name].link, "down")

    def heal(self, name: str) -> None:
        _ip("-n", self._hub, "link", "set", self.nodes[name].link, "up")

    def kill_raylet(self, name: str) -> None:
        self._kill(name, RAYLET)

    def kill_host(self, name: str) -> None:
        """End the process of the node's host at once."""
        self._kill(name, HOST)

    def kill_head(self) -> None:
        """All of node a, as if its plug was pulled."""
        os.kill(self.nodes["a"].pid(), signal.SIGKILL)

    def processes(self, name: str) -> list[str]:
        """Command lines of what runs on the node besides Ray's own processes; hosts count."""
        return [line for line in self._all(name).values() if not _is_rays(line)]

    def rays(self, name: str) -> list[str]:
        """Ray's own processes on the node, without its first."""
        own = [line for line in self._all(name).values() if _is_rays(line)]
        return [line for line in own if "1000000" not in line]

    def files_with(self, text: str) -> list[str]:
        """Files of the nodes that contain a text: Ray's, its object store, scratch files."""
        found = []
        for name, node in self.nodes.items():
            root = f"/proc/{node.pid()}/root"
            places = [f"{root}/dev/shm", f"{root}/{node.folder}"]
            for pid, line in self._all(name).items():
                # The object store is a file that has no name any more.
                if RAYLET in line:
                    opened = Path(f"/proc/{pid}/fd").iterdir()
                    places += [str(file) for file in opened if "/dev/shm" in str(file.readlink())]
            grep = ["grep", "-r", "-l", "-a", "-F", "--devices=skip", text, *places]
            done = subprocess.run(grep, check=False, capture_output=True, text=True)
            found += done.stdout.splitlines()
        return found

    def run(
        self, *command: str, node: str = "a", cwd: Path | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """A command on a node, to its end."""
        with self.start(*command, node=node, cwd=cwd) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise AssertionError(f"{command} took too long:\n{out}\n{err}") from None
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    @contextmanager
    def start(
        self,
        *command: str,
        node: str = "a",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Iterator[subprocess.Popen[str]]:
        """A command on a node; killed at the end of the block, if it still runs. An empty variable
        of `env` is unset."""
        machine = self.nodes[node]
        variables = {**self._environment(machine.folder), **(env or {})}
        target = str(machine.pid())
        process = subprocess.Popen(
            ["nsenter", "-t", target, "-m", "-u", "-n", "-p", f"--wd={cwd or CHECKOUT}", *command],
            env={name: value for name, value in variables.items() if value},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def drive(self, function: Callable[..., Any], *arguments: str, **env: str) -> Any:
        """The result of an async function of a test module, run as a process on the head."""
        with self.driving(function, *arguments, **env) as driver:
            return driver.result()

    @contextmanager
    def driving(
        self, function: Callable[..., Any], *arguments: str, on: str = "a", **env: str
    ) -> Iterator[Driven]:
        name = f"{function.__module__}:{function.__qualname__}"
        python = (sys.executable, "-m", "tests.cluster.inside", name, *arguments)
        with self.start(*python, node=on, env=env) as process:
            yield Driven(process)

    def _environment(self, folder: Path) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {
            **kept,
            "PATH": f"{BIN}:{kept['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
            "PARAVAL_SCRATCH": str(folder / "scratch"),
            "RAY_AUTH_MODE": self.auth_mode,
            "RAY_AUTH_TOKEN_PATH": str(self.token),
        }

    def _all(self, name: str) -> dict[int, str]:
        """Command lines by process."""
        first = self.nodes[name].pid()
        space = Path(f"/proc/{first}/ns/net").readlink()
        found = {}
        for pid in psutil.pids():
            with suppress(OSError):
                if Path(f"/proc/{pid}/ns/net").readlink() == space:
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    found[pid] = b" ".join(words).decode(errors="replace")
        return {pid: line for pid, line in found.items() if line}  # Dead ones have none.

    def _kill(self, name: str, mark: str) -> None:
        found = [pid for pid, line in self._all(name).items() if mark in line]
        assert found, f"nothing to kill on node {name}"
        for pid in found:
            os.kill(pid, signal.SIGKILL)


class Driven:
    """A process on the head, which prints a line of JSON for each thing that it reports, and its
    result last."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def reported(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(self._process.communicate()[1])
        return json.loads(line)

    def result(self) -> Any:
        out, err = self._process.communicate(timeout=100)
        assert self._process.returncode == 0, out + err
        return json.loads(out.splitlines()[-1])


def _comes_up(node: Node) -> bool:
    out = node.folder / "ray.out"
    ends = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < ends and node.first.poll() is None:
        with suppress(OSError):
            if "Ray runtime started" in (text := out.read_text()):
                return True
            if "Traceback" in text:
                return False
        time.sleep(0.1)
    return False


def _is_rays(line: str) -> bool:
    own = ("/ray/", "ray::", "ray start", "ray.util.client", "unshare --uts", "sleep 1000000")
    return HOST not in line and any(part in line for part in own)


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True, capture_output=True)
