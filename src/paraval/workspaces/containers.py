"""Containers of attempts and their graders: an image is fetched when a workspace is leased, and a
container starts with a command.

With a worktree, each grader has a container of its own: what an attempt changed in the image, or
left running, has no part in its grading. Without one, the container itself is what is graded. A
container whose engine was killed is removed when the next run with containers starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.environment import PASSED_ALWAYS
from paraval.errors import RequestError, TransientError
from paraval.processes.children import Command, ProcessEnd, SpawnFailure, Warden
from paraval.processes.sandbox import Sandbox
from paraval.records import (
    Change,
    Container,
    HiddenFiles,
    TargetLimits,
    Trial,
    Workspace,
    WorkspaceKind,
)
from paraval.scratch import remove_tree
from paraval.text.words import counted
from paraval.threads import Threads
from paraval.workspaces.container_engine import (
    ContainerEngine,
    EngineError,
    Mount,
    find_engine,
    new_name,
)
from paraval.workspaces.workspace import (
    KeptWorkspace,
    LastingWorkspaceError,
    Lease,
    PlacedFiles,
    WorkspaceError,
    Workspaces,
    no_workspace,
)

_MOST_THREADS = 16
_MOST_TRIES = 2
"""To fetch an image; then no attempt tries again."""
_KILLED = 128 + 9
_INPUT = "/tmp/paraval-input"  # noqa: S108 - in a container
"""Where a container has the stdin of its current command. A pipe will not do: podman loses the
output of a command that exits without reading it."""
_WITH_INPUT = ("/bin/sh", "-c", 'exec "$@" < "$0"', f"{_INPUT}/stdin")


def require_engines(containers: Iterable[Container]) -> None:
    """Raise RequestError for a container whose engine does not work here; blocking."""
    for name in {container.engine for container in containers}:
        found = find_engine(name)
        if isinstance(found, str):
            raise RequestError(f"workspace.container: {found}")


@dataclass(slots=True, kw_only=True)
class _Image:
    """An image that attempts need."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is fetched."""
    name: str = ""
    """What the engine calls it, once it is here."""
    start: str = "/"
    tries: int = 0
    why_not: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class _Box:
    """The container of one lease; with a worktree, the attempt's, then one for each grader."""

    name: str
    engine: ContainerEngine
    container: Container
    image: _Image
    top: str
    """The workspace, on this machine."""
    inside: str
    """The same in the container."""
    is_mounted: bool
    """False: the attempt starts with the image's own files, not with the workspace."""
    folder: str
    """For what is copied into it later, and for files of its engine."""
    suite: str
    """Where files beside the suite appear when a grader needs them; empty: none does."""
    mounted: frozenset[str] = frozenset()
    """What of this machine is in it; empty: it has not started."""
    written: tuple[Mount, ...] = ()
    """What of this machine it can change."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it starts, which a cancel does not end, and while it is removed."""
    is_removed: bool = False
    may_have_rest: bool = False
    """True: a command ran in it, and may have left processes."""

    def mounts(self, given: Sandbox) -> dict[str, Mount]:
        """By their paths on this machine."""
        found = [Mount(source=path, target=path, writable=True) for path in given.writable]
        found += [
            Mount(source=path, target=target, writable=True)
            for path, target in given.renamed.items()
        ]
        found += [Mount(source=path, target=path) for path in given.readable]
        found.append(Mount(source=self.input, target=_INPUT))
        if self.suite:
            # Never writable: this machine copies into it, and would follow links.
            found.append(Mount(source=self.later, target=self.suite))
        if self.is_mounted:
            found.append(Mount(source=self.top, target=self.inside, writable=True))
        return {mount.source: mount for mount in found}

    @property
    def later(self) -> str:
        return f"{self.folder}/later"

    @property
    def input(self) -> str:
        return f"{self.folder}/input"

    def text(self, text: str) -> str:
        """A text with the workspace's path as it is in the container."""
        return text if self.top == self.inside else text.replace(self.top, self.inside)


class Containers:
    """Leases with containers: those of a run's workspaces, and what runs in them."""

    def __init__(
        self,
        within: Workspaces,
        usual: Workspace,
        *,
        warden: Warden,
        scratch: Path,
        suite: str,
        say: Callable[[str], None],
    ) -> None:
        """`usual`: of trials without a workspace of their own. `suite`: the suite's folder, if
        graders name files in it, else empty."""
        self._within = within
        self._usual = usual
        self._warden = warden
        self._scratch = scratch / "containers"
        self._suite = suite
        self._say = say
        self._images: dict[tuple[str, str, str | None], _Image] = {}
        self._boxes: dict[str, _Box] = {}
        """By the path that the attempt's workspace has on this machine."""
        self._made = 0
        self._swept: set[str] = set()
        self._threads = Threads(limit=_MOST_THREADS)
        self.notes = within.notes

    # ---- leases

    async def lease_for(self, trial: Trial) -> Lease:
        """A workspace, with its image at hand. Raises WorkspaceError if there can be none."""
        asked = trial.workspace or self._usual
        if asked.container is None:
            return await self._within.lease_for(trial)
        engine = await self._engine(asked.container.engine)
        image = await self._fetched(engine, asked.container)
        lease = await self._within.lease_for(trial)
        self._made += 1
        mounted = asked.kind is not WorkspaceKind.IMAGE
        inside = asked.container.path or (lease.top if mounted else image.start)
        box = _Box(
            name=new_name(),
            engine=engine,
            container=asked.container,
            image=image,
            top=lease.top,
            inside=inside,
            is_mounted=mounted,
            folder=str(self._scratch / str(self._made)),
            suite=self._suite,
        )
        try:
            for place in (box.later, box.input):
                os.makedirs(place)  # noqa: PTH103 - quick
        except OSError as error:
            await lease.release()
            raise no_workspace(error) from error
        self._boxes[lease.path] = box
        return _ContainerLease(self, lease, box)

    def widen(self, at_most: int) -> None:
        self._within.widen(at_most)

    async def close(self) -> None:
        """Remove all containers. The workspaces' owner closes those."""
        try:
            await asyncio.gather(*(self.end(path) for path in tuple(self._boxes)))
        finally:
            self._threads.close()

    async def _engine(self, name: str) -> ContainerEngine:
        found = await self._threads.call(lambda: find_engine(name))
        if isinstance(found, str):
            raise LastingWorkspaceError(found.partition("\n")[0])
        if found.name not in self._swept:
            self._swept.add(found.name)
            if swept := await self._threads.call(found.sweep):
                self._say(f"Removed {counted(swept, 'container')} that a killed run had left.")
        return found

    async def _fetched(self, engine: ContainerEngine, container: Container) -> _Image:
        key = (engine.name, container.image, container.build)
        image = self._images.setdefault(key, _Image())
        async with image.lock:
            if image.name:
                return image
            what = container.image or f"the image of {container.build}"
            if image.tries >= _MOST_TRIES:
                raise WorkspaceError(image.why_not)
            image.tries += 1
            try:
                name = await self._threads.call(lambda: engine.find_image(container))
                if name is None:
                    verb = "Pulling" if container.build is None else "Building"
                    self._say(f"{verb} {what} with {engine.name}.")
                    name = await self._threads.call(lambda: engine.fetch(container))
                image.start = await self._threads.call(lambda: engine.start_folder(name))
            except EngineError as error:
                image.why_not = f"{engine.name} cannot provide {what}: {error}"
                raise WorkspaceError(image.why_not) from error
            image.name = name
            return image

    async def end(self, path: str) -> None:
        """Remove the container of the workspace at this path."""
        box = self._boxes.pop(path, None)
        if box is None:
            return

        def remove() -> None:
            with box.lock:
                box.is_removed = True
                _remove(box)
            remove_tree(box.folder)

        removal = asyncio.ensure_future(self._threads.call(remove))
        try:
            await asyncio.shield(removal)
        except asyncio.CancelledError:
            # Nothing may be left, and a removal takes less than a second.
            await asyncio.wait([removal])
            raise

    # ---- commands

    async def end_rest(self, path: str, *, for_grader: bool) -> None:
        """End what commands left running. A grader's files would change meanwhile; with a worktree,
        it also gets the image as it was."""
        box = self._boxes.get(path)
        if box is None or not box.may_have_rest:
            return

        def end() -> None:
            with box.lock:
                box.may_have_rest = False
                if box.is_mounted and for_grader:
                    _remove(box)
                else:
                    for mount in box.written:
                        # An agent's home may be gone; without it the engine restarts nothing.
                        os.makedirs(mount.source, exist_ok=True)  # noqa: PTH103 - quick
                    box.engine.end_rest(box.name)

        await self._threads.call(end)

    def has(self, workspace: str | None) -> bool:
        """Whether the workspace at this path has a container."""
        return workspace in self._boxes

    def path_in(self, workspace: str) -> str:
        """This path as attempts see it."""
        box = self._boxes.get(workspace)
        return workspace if box is None else box.text(workspace)

    async def run(
        self, command: Command, workspace: str | None, *, is_grader: bool = False
    ) -> ProcessEnd:
        """Run a command where the attempt with this workspace runs.

        `command.sandbox` has what its container needs besides the workspace. Files beside the suite
        that a later command names are copied into it.
        """
        box = self._boxes.get(workspace or "")
        if box is None:
            return await self._warden.run(command)
        given = command.sandbox or Sandbox()
        await self.end_rest(workspace or "", for_grader=is_grader)
        try:
            await self._threads.call(lambda: _prepare(box, command, given))
        except (EngineError, OSError, TransientError) as error:
            return _not_started(box, error)
        box.may_have_rest = True
        ended = await self._warden.run(_inside(box, command))
        return await self._threads.call(lambda: _end_of(box, command, ended))


async def run_once(command: Command, container: Container, top: str, warden: Warden) -> ProcessEnd:
    """Run a command in a container of its own: with this workspace, and with what
    `command.sandbox` names. Its temporary folder gets what the engine leaves."""
    folder = command.env["TMPDIR"]
    found = await asyncio.to_thread(find_engine, container.engine)
    if isinstance(found, str):
        raise LastingWorkspaceError(found.partition("\n")[0])
    box = _Box(
        name=new_name(),
        engine=found,
        container=container,
        image=_Image(),
        top=top,
        inside=container.path or top,
        is_mounted=True,
        folder=folder,
        suite="",
    )

    def start() -> None:
        os.makedirs(box.input, exist_ok=True)  # noqa: PTH103 - as above
        box.image.name = found.find_image(container) or found.fetch(container)
        _prepare(box, command, command.sandbox or Sandbox())

    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        await asyncio.shield(starting)
        ended = await warden.run(_inside(box, command))
        return await asyncio.to_thread(_end_of, box, command, ended)
    except (EngineError, OSError) as error:
        return _not_started(box, error)
    finally:
        # Also after a cancel, and then not before it has started.
        await asyncio.wait([starting])
        await asyncio.to_thread(box.engine.remove, [box.name])


def _not_started(box: _Box, error: Exception) -> ProcessEnd:
    what = box.image.name or box.container.image or box.container.build
    message = f"{box.engine.name} cannot start a container of {what}: {error}"
    return ProcessEnd(failure=SpawnFailure(code="CONTAINER", message=message, transient=True))


def _end_of(box: _Box, command: Command, ended: ProcessEnd) -> ProcessEnd:
    """What the end of the engine's program means for the command."""
    # What an engine starts beside a command is not the command's.
    ended, code = replace(ended, leaked=0), ended.exit_code
    if code is None or code == 0 or ended.timed_out:
        return ended
    if not box.engine.is_running(box.name):
        message = f"its container ended, or {box.engine.name} did"
        failure = SpawnFailure(code="CONTAINER", message=message, transient=True)
        return replace(ended, failure=failure)
    if code == _KILLED and (most := box.container.memory) is not None:
        with Path(command.stderr).open("a", encoding="utf-8") as log:
            log.write(f"container.memory is {most / 1e6:.6g} MB; what exceeds it is killed\n")
    if _KILLED - 9 < code < _KILLED + 56:
        return replace(ended, exit_code=None, signal=code - 128)
    return ended


def _inside(box: _Box, command: Command) -> Command:
    """The command that runs this one in its container."""
    env = {
        name: box.text(value)
        for name, value in command.env.items()
        # What describes this machine is not passed on, nor a home that is not there.
        if not ((name in PASSED_ALWAYS or name.startswith("LC_")) and value == os.environ.get(name))
        and not (name in ("HOME", "TMPDIR") and value not in box.mounted)
    }
    argv = tuple(box.text(word) for word in command.argv)
    if command.stdin:
        argv = (*_WITH_INPUT, *argv)
    argv, own = box.engine.inside(box.name, argv, env, box.text(command.cwd))
    # Limits are the container's own: here they would apply to the engine's program.
    none = TargetLimits()
    return replace(command, argv=argv, env=own, cwd="/", stdin=b"", sandbox=None, limits=none)


def _prepare(box: _Box, command: Command, given: Sandbox) -> None:
    """Start it, and put what the command needs into it."""
    stdin = command.stdin
    if box.top != box.inside:
        stdin = stdin.replace(os.fsencode(box.top), os.fsencode(box.inside))
    Path(box.input, "stdin").write_bytes(stdin)
    with box.lock:
        if not box.mounted and not box.is_removed:
            mounts = box.mounts(given)
            _make_targets(box, mounts.values())
            box.engine.start(box.name, box.image.name, box.container, mounts.values(), box.folder)
            box.mounted = frozenset(mounts)
            box.written = tuple(mount for mount in mounts.values() if mount.writable)
    for path in given.named:
        if box.suite and path.startswith(f"{box.suite}/"):
            _copy(path, box.later + path.removeprefix(box.suite))
    if not box.is_mounted and os.listdir(box.top):  # noqa: PTH208 - quick
        # Files that were put into the workspace for the graders.
        box.engine.copy_in(box.top, box.name, box.inside)


def _make_targets(box: _Box, mounts: Iterable[Mount]) -> None:
    """The engine cannot create mounts' targets where the suite's files appear read-only."""
    for mount in mounts:
        if box.suite and mount.target.startswith(f"{box.suite}/"):
            target = Path(box.later + mount.target.removeprefix(box.suite))
            is_folder = Path(mount.source).is_dir()
            (target if is_folder else target.parent).mkdir(parents=True, exist_ok=True)
            if not is_folder:
                target.touch()


def _remove(box: _Box) -> None:
    """Remove its container, if it has started, and with it all that runs there. The next command
    starts another one."""
    if not box.mounted:
        return
    box.engine.remove([box.name])
    box.mounted = frozenset()
    if box.engine.gives_back:
        # By programs of the image that no attempt has changed.
        with contextlib.suppress(EngineError):
            box.engine.start(box.name, box.image.name, box.container, box.written, box.folder)
            box.engine.give_back(box.name, *(mount.target for mount in box.written))
        box.engine.remove([box.name])


def _copy(source: str, target: str) -> None:
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    if Path(source).is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


class _ContainerLease:
    """A workspace with a container."""

    def __init__(self, containers: Containers, lease: Lease, box: _Box) -> None:
        self._containers = containers
        self._lease = lease
        self._box = box
        self.path = lease.path
        self.top = lease.top
        self.notes = lease.notes

    async def keep(self, folder: str) -> KeptWorkspace:
        await self._containers.end_rest(self.path, for_grader=True)
        if not self._box.is_mounted:
            return KeptWorkspace(change=Change(unknown="the files of an image are not compared"))
        return await self._lease.keep(folder)

    async def apply(self, patch: str) -> None:
        await self._lease.apply(patch)

    async def put_hidden(self, hidden: Sequence[HiddenFiles]) -> PlacedFiles:
        return await self._lease.put_hidden(hidden)

    async def release(self) -> None:
        try:
            await self._containers.end(self.path)
        finally:
            await self._lease.release()
