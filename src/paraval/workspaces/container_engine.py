"""Container engines (docker, podman, apptainer): which one works here, and its command lines.

`containers` decides what runs in which container; here are only the engine's own words. All calls
block: use a thread in an event loop.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.git.folders import folder_tree
from paraval.processes.identity import is_alive, process_identity
from paraval.processes.quick import QuickResult, run_quickly
from paraval.records import Container

ENGINES = ("docker", "podman", "apptainer")
NOT_INSTALLED = "not installed"
ROOT = "0"
"""Commands run as root in a container: the workspace is another user's there."""
_LABEL = "paraval"
_CALL_TIMEOUT_S = 60.0
_TRY_TIMEOUT_S = 20.0
_FETCH_TIMEOUT_S = 3600.0
_STAY = "while :; do sleep 1000; done"
"""The first process of a container: a shell, since it also collects orphans that end."""
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64")
_HIGHEST_LIMIT = 32_768
"""Of open files and processes: an engine may be refused what this process itself could have."""
_OWN_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|TMPDIR|XDG_\w+|DOCKER_\w+|CONTAINER_HOST|CONTAINERS_\w+|BUILDAH_\w+|APPTAINER_\w+|"
    r"REGISTRY_AUTH_FILE|DBUS_SESSION_BUS_ADDRESS|SSH_AUTH_SOCK|(HTTPS?|NO|https?|no)_(PROXY|proxy)"
)
"""Variables that an engine's program itself needs."""


class EngineError(Exception):
    """The engine refused; the message is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    source: str
    """Absolute, on this machine."""
    target: str
    """In the container."""
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEngine:
    """An engine that works here."""

    name: str
    program: str
    version: str = ""
    options: tuple[str, ...] = ()
    """Options before each subcommand: another runtime than its default, which does not work."""
    limits: tuple[str, ...] = ()
    """Options of `run`: its default limits may be higher than this user's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment of the engine's program."""
    gives_back: bool = False
    """True: files that a container creates must be given to this user, who could not remove
    them."""

    def call(self, *words: str, timeout: float = _CALL_TIMEOUT_S, cwd: str = "/") -> QuickResult:
        argv = (self.program, *self.options, *words)
        return run_quickly(argv, env=self.env, timeout=timeout, cwd=cwd)

    def _done(self, *words: str, timeout: float = _CALL_TIMEOUT_S, cwd: str = "/") -> str:
        ended = self.call(*words, timeout=timeout, cwd=cwd)
        if not ended.is_well:
            raise EngineError(_last_line(ended.stderr) or f"exit code {ended.exit_code}")
        return ended.stdout.decode(errors="replace").strip()

    # ---- images

    def find_image(self, container: Container) -> str | None:
        """The name of its image, if it is here already. Raises EngineError."""
        if self.name == "apptainer":
            # It fetches images itself, when a container starts.
            return _apptainer_image(container)
        image = container.image if container.build is None else _tag(container.build)
        is_here = self.call("image", "inspect", "--format", "{{.Id}}", image).is_well
        return image if is_here else None

    def fetch(self, container: Container) -> str:
        """Pull or build its image; returns the image's name. Raises EngineError."""
        if container.build is not None:
            image = _tag(container.build)
            self._done("build", "-t", image, container.build, timeout=_FETCH_TIMEOUT_S)
        else:
            image = _full_name(container.image) if self.name == "podman" else container.image
            self._done("pull", "-q", image, timeout=_FETCH_TIMEOUT_S)
        return image

    def start_folder(self, image: str) -> str:
        """The image's own working directory."""
        if self.name == "apptainer":
            return "/"
        return self._done("image", "inspect", "--format", "{{.Config.WorkingDir}}", image) or "/"

    # ---- containers

    def start(
        self, name: str, image: str, container: Container, mounts: Iterable[Mount], folder: str
    ) -> None:
        """Start a container in which nothing runs yet. Podman leaves files in `folder`. Raises
        EngineError."""
        if self.name == "apptainer":
            words = ["instance", "start", "--containall", "--writable-tmpfs", "--no-home"]
            words += [] if container.network else ["--net", "--network", "none"]
            for mount in mounts:
                words += ["--bind", f"{mount.source}:{mount.target}:{_mode(mount)}"]
            self._done(*words, *_shares(container), image, name, timeout=_FETCH_TIMEOUT_S)
            return
        words = ["run", "-d", "--name", name, "--user", ROOT]
        words += ["--label", _LABEL, "--label", f"{_LABEL}.folder={folder}"]
        words += ["--network", "host" if container.network else "none"]
        # Its first process ignores other signals; and files keep their SELinux labels.
        words += ["--stop-signal", "SIGKILL", "--security-opt", "label=disable"]
        # Its worktree belongs to another user: git would refuse it.
        safe = {"COUNT": "1", "KEY_0": "safe.directory", "VALUE_0": "*"}
        for key, value in safe.items():
            words += ["--env", f"GIT_CONFIG_{key}={value}"]
        for mount in mounts:
            if "," in mount.source + mount.target:
                raise EngineError(f"a path with a comma cannot be mounted: {mount.source}")
            bind = f"type=bind,source={mount.source},target={mount.target}"
            words += ["--mount", bind if mount.writable else f"{bind},readonly"]
        words += [*_shares(container), *self.limits, "--entrypoint", "/bin/sh", image, "-c", _STAY]
        try:
            self._done(*words, cwd=folder)
        except EngineError:
            self.remove([name])
            raise

    def inside(
        self, name: str, argv: tuple[str, ...], env: Mapping[str, str], cwd: str
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """The command line and the environment that run a command in a container, without stdin.

        Values are not on the command line, where other users could read them; except for what the
        engine's own program has too, such as PATH.
        """
        if self.name == "apptainer":
            words = ("exec", "--pwd", cwd, f"instance://{name}", *argv)
            given = {f"APPTAINERENV_{key}": value for key, value in env.items()}
            return (self.program, *words), {**self.env, **given}
        words = ("exec", "--user", ROOT, "--workdir", cwd)
        own = {key: value for key, value in self.env.items() if not key.lower().endswith("_proxy")}
        for key, value in env.items():
            words += ("--env", f"{key}={value}" if key in own else key)
        return (self.program, *self.options, *words, name, *argv), {**env, **own}

    def end_rest(self, name: str) -> None:
        """Kill all that runs in it; its files stay."""
        if self.name == "apptainer":
            self.shell(name, "kill -9 -1")
        else:
            # From outside: a program in it may be the attempt's own.
            self.call("restart", "-t", "0", name)

    def give_back(self, name: str, *folders: str) -> None:
        """What was created in these folders is this user's then."""
        self.shell(name, 'chown -R "$@"', f"{os.getuid()}:{os.getgid()}", *folders)

    def shell(self, name: str, script: str, *words: str) -> QuickResult:
        argv = ("/bin/sh", "-c", script, "sh", *words)
        if self.name == "apptainer":
            return self.call("exec", f"instance://{name}", *argv)
        return self.call("exec", "--user", ROOT, name, *argv)

    def is_running(self, name: str) -> bool:
        if self.name == "apptainer":
            return self.shell(name, ":").is_well
        asked = self.call("container", "inspect", "--format", "{{.State.Running}}", name)
        return asked.stdout.strip() == b"true"

    def copy_in(self, folder: str, name: str, target: str) -> None:
        """Copy a folder's contents into a container. Raises EngineError."""
        self._done("cp", f"{folder}/.", f"{name}:{target}")

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            if self.name == "apptainer":
                self.call("instance", "stop", "--timeout", "1", name)
            else:
                self.call("rm", "-f", "-v", name)

    def names(self) -> list[str]:
        """The names of all containers that this program started."""
        if self.name == "apptainer":
            lines = self.call("instance", "list", "paraval-*").stdout.decode(errors="replace")
            return [line.split()[0] for line in lines.splitlines() if line.startswith("paraval-")]
        listed = self.call("ps", "-a", "--filter", f"label={_LABEL}", "--format", "{{.Names}}")
        return listed.stdout.decode(errors="replace").split()

    def sweep(self) -> int:
        """Remove the containers of engines that are gone; return how many."""
        dead = [name for name in self.names() if _is_left(name)]
        self.remove(dead)
        return len(dead)


def _mode(mount: Mount) -> str:
    return "rw" if mount.writable else "ro"


def _shares(container: Container) -> list[str]:
    words = [] if container.cpus is None else ["--cpus", f"{container.cpus:g}"]
    if container.memory is not None:
        # Without swap: the limit is what it may use altogether.
        words += ["--memory", str(container.memory), "--memory-swap", str(container.memory)]
    return words


def _tag(folder: str) -> str:
    """The image of a folder's contents."""
    try:
        return f"localhost/paraval-build:{folder_tree(folder)[:16]}"
    except (ParavalError, OSError) as error:
        raise EngineError(str(error)) from error


def _full_name(image: str) -> str:
    """Podman's own default is to ask which registry is meant; docker has only one."""
    first, _, rest = image.partition("/")
    if rest and (first == "localhost" or "." in first or ":" in first):
        return image
    return f"docker.io/{image}" if rest else f"docker.io/library/{image}"


def _apptainer_image(container: Container) -> str:
    if container.build is not None:
        raise EngineError("apptainer cannot build from a Dockerfile; use docker or podman")
    is_file = container.image.startswith(("/", ".")) or "://" in container.image
    return container.image if is_file else f"docker://{container.image}"


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


# ---- names: they show which process a container belongs to


_numbers = itertools.count(1)


def new_name() -> str:
    """A name for a new container of this process."""
    return f"paraval-{_host()}-{os.getpid()}-{_start_of(os.getpid())}-{next(_numbers)}"


def _is_left(name: str) -> bool:
    """Whether the process on this machine that started it is gone."""
    found = re.fullmatch(rf"paraval-{_host()}-(\d+)-(\d+)-\d+", name)
    return found is not None and _start_of(int(found[1])) != int(found[2])


def _start_of(pid: int) -> int | None:
    identity = process_identity(pid)
    return None if identity is None or not is_alive(identity) else int(identity.start_time)


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


# ---- which one works here


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """One engine on this machine."""

    name: str
    engine: ContainerEngine | None
    why_not: str = ""


def engine_states() -> tuple[EngineState, ...]:
    """All engines; those that are installed were tried."""
    return tuple(_state(name, os.environ.get("PATH", os.defpath)) for name in ENGINES)


def find_engine(name: str = "auto") -> ContainerEngine | str:
    """The engine, or the first that works here; or else why there is none, and what to do."""
    names = ENGINES if name == "auto" else (name,)
    reasons = []
    for one in names:
        state = _state(one, os.environ.get("PATH", os.defpath))
        if state.engine is not None:
            return state.engine
        reasons.append(f"{one}: {state.why_not}")
    return (
        f"no container engine works here ({'; '.join(reasons)})\n"
        "hint: install one (Debian and Ubuntu: apt-get install podman; Fedora: dnf install podman),"
        " and see: paraval doctor"
    )


@functools.cache
def _state(name: str, path: str) -> EngineState:
    program = shutil.which(name, path=path)
    if program is None:
        return EngineState(name=name, engine=None, why_not=NOT_INSTALLED)
    env = {key: value for key, value in os.environ.items() if _OWN_VARIABLES.fullmatch(key)}
    engine = ContainerEngine(name=name, program=program, env=env)
    named = engine.call("--version", timeout=_TRY_TIMEOUT_S).stdout.decode(errors="replace")
    version = re.search(r"\d+\.\d+(\.\d+)?", named)
    engine = replace(engine, version=version[0] if version else "")
    if name == "docker" and "podman" in named:
        return EngineState(name=name, engine=None, why_not="it is another name of podman")
    if name == "podman" and sys.platform == "linux":
        return _tried_podman(engine)
    asked = engine.call(*_QUESTIONS[name], timeout=_TRY_TIMEOUT_S)
    if not asked.is_well:
        return EngineState(name=name, engine=None, why_not=_last_line(asked.stderr))
    # Files that root creates there are root's here, unless the daemon runs as this user.
    as_root = name == "docker" and sys.platform == "linux" and b"rootless" not in asked.stdout
    return EngineState(name=name, engine=replace(engine, gives_back=as_root and os.getuid() != 0))


_QUESTIONS = {
    "docker": ("info", "--format", "{{.ServerVersion}} {{.SecurityOptions}}"),
    "podman": ("info",),
    "apptainer": ("--version",),
}


def _tried_podman(plain: ContainerEngine) -> EngineState:
    """Podman's default runtime and limits don't work everywhere: find out which do, with a
    container that has no image but this system's own programs."""
    why_not = ""
    for options in ((), ("--runtime", "runc")):
        engine = replace(plain, options=options, limits=_limits())
        with tempfile.TemporaryDirectory(prefix="paraval-try-") as folder:
            words = ["run", "--rm", "--network", "host", *engine.limits]
            for path in filter(os.path.isdir, _SYSTEM):
                Path(folder, path[1:]).mkdir()
                words += ["--volume", f"{path}:{path}:ro"]
            tried = engine.call(*words, "--rootfs", folder, "/bin/true", timeout=_TRY_TIMEOUT_S)
        if tried.is_well:
            return EngineState(name=plain.name, engine=engine)
        why_not = why_not or _last_line(tried.stderr)
    return EngineState(name=plain.name, engine=None, why_not=why_not)


def _limits() -> tuple[str, ...]:
    words: list[str] = []
    for name, which in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = resource.getrlimit(which)[1]
        most = _HIGHEST_LIMIT if hard == resource.RLIM_INFINITY else min(hard, _HIGHEST_LIMIT)
        words += ["--ulimit", f"{name}={most}:{most}"]
    return tuple(words)
