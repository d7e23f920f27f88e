"""The directories of a run's attempts: scratch folder, homes, workspaces, sandboxes and
containers."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from paraval.dataclass import dataclass
from paraval.environment import WorktreeImports
from paraval.errors import RequestError
from paraval.processes.children import CommandRunner, Warden
from paraval.processes.commands import Command
from paraval.processes.sandbox import Sandbox, why_no_sandbox
from paraval.records import (
    AgentTarget,
    Attempt,
    CommandTarget,
    Container,
    Home,
    Plan,
    Target,
    Workspace,
    WorkspaceKind,
)
from paraval.scratch import Homes, OwnHome, open_scratch
from paraval.targets.command import FolderFor, SandboxFor, own_folder, template_fields, unbounded
from paraval.templates.template import escaped, named_paths
from paraval.workspaces.workspace import Workspaces

if TYPE_CHECKING:
    from paraval.workspaces.containers import Containers

_FOLDER = "/tmp/paraval-folder"  # noqa: S108 - inside a sandbox, which has its own
"""The path at which sandboxed attempts see their own folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenPaths:
    """Paths that a sandbox must not show."""

    store: Path
    suite: bool = False
    """True: hide the suite's folder from attempts too; hidden tests and expected answers may be
    there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDirs:
    """The directories for attempts that are processes."""

    homes: Homes | None = None
    """None: the run starts no processes."""
    workspaces: Workspaces | None = None
    """None: attempts run where their target says."""
    sandbox_for: SandboxFor = unbounded
    folder_for: FolderFor = own_folder
    grader_sandbox_for: Callable[[str], Sandbox | None] | None = None
    """By the attempt's workspace."""
    imports: WorktreeImports | None = None
    """None: workspaces are not worktrees."""
    containers: CommandRunner | None = None
    """None: no attempt runs in a container."""


def containers_of(plan: Plan) -> list[Container]:
    """The different containers that a plan's attempts run in."""
    places = (plan.workspace, *(trial.workspace for trial in plan.trials))
    return list(dict.fromkeys(one.container for one in places if one and one.container))


def check_sandbox(plan: Plan) -> None:
    """Reject a sandbox or a container that is not available, before the run begins."""
    containers = containers_of(plan)
    if containers:
        # Only here: most runs have none.
        from paraval.workspaces.containers import require_engines  # noqa: PLC0415 - see above

        require_engines(containers)
        _check_homes(plan, "container")
    if not plan.workspace.sandbox:
        return
    reason = why_no_sandbox()
    if reason is not None:
        raise RequestError(f"workspace.sandbox: {reason}")
    _check_homes(plan, "sandbox")
    folder = _suite_folder(plan)
    words = {word for trial in plan.trials for word in _words_of(trial.target)}
    whole = any(os.path.normpath(part) == folder for word in words for part in word.split(":"))
    if folder == "/" or whole:
        what = "the target names the suite's whole folder" if whole else "the suite is in '/'"
        raise RequestError(
            f"workspace.sandbox: {what}, which a sandbox hides from attempts",
            hint="put the files that attempts need into a separate folder, and name that folder in"
            " the command or in workspace.readable",
        )


def _check_homes(plan: Plan, what: str) -> None:
    for trial in plan.trials:
        target = trial.target
        if isinstance(target, AgentTarget | CommandTarget) and target.home is Home.MINE:
            raise RequestError(
                f"workspace.{what}: with home: mine a target writes to your home, which a {what}"
                " does not allow",
                hint=f"give it a key and a home of its own, or remove workspace.{what}",
            )


@asynccontextmanager
async def open_attempt_dirs(
    plan: Plan,
    *,
    warden: Warden,
    at_most: int,
    hidden: HiddenPaths,
    say: Callable[[str], None],
    objects: Path | None = None,
) -> AsyncIterator[AttemptDirs]:
    """Open the directories for the duration of a run. `say` reports what is left behind; `objects`
    holds git trees that workspaces may be created from."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_scratch))
    try:
        scratch = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The thread continues: clean up what it makes.
        await asyncio.to_thread((await opening).close)
        raise
    try:
        async with AsyncExitStack() as stack:
            workspaces: Workspaces | None = None
            imports: WorktreeImports | None = None
            if plan.workspace.kind is not WorkspaceKind.NONE:
                workspaces, imports = await _open_workspaces(
                    plan, stack, scratch.folder, warden, at_most, objects
                )
                for note in workspaces.notes:
                    say(f"Workspaces: {note}.")
            homes = Homes(scratch.folder)
            stack.push_async_callback(asyncio.to_thread, homes.close)
            bounded = plan.workspace.sandbox or bool(containers_of(plan))
            objects_of = await asyncio.to_thread(_objects_of, plan) if bounded else {}
            if workspaces is not None and containers_of(plan):
                containers = _containers(
                    plan, workspaces, warden=warden, scratch=scratch.folder, say=say
                )
                stack.push_async_callback(containers.close)
                inside = _ContainerBounds(plan, hidden, scratch.folder, objects_of, containers)
                yield AttemptDirs(
                    homes=homes,
                    workspaces=containers,
                    sandbox_for=inside.of_attempt_in,
                    folder_for=inside.folder_of,
                    grader_sandbox_for=inside.of_grader_in,
                    imports=imports,
                    containers=containers,
                )
            elif plan.workspace.sandbox:
                bounds = _SandboxBounds(plan, hidden, scratch.folder, objects_of)
                yield AttemptDirs(
                    homes=homes,
                    workspaces=workspaces,
                    sandbox_for=bounds.of_attempt,
                    folder_for=bounds.folder_of,
                    grader_sandbox_for=bounds.of_grader,
                    imports=imports,
                )
            else:
                yield AttemptDirs(homes=homes, workspaces=workspaces, imports=imports)
    finally:
        left = await asyncio.to_thread(scratch.close)
        if left is not None:
            say(f"Left behind: {left}.")


async def _open_workspaces(
    plan: Plan,
    stack: AsyncExitStack,
    scratch: Path,
    warden: Warden,
    at_most: int,
    objects: Path | None,
) -> tuple[Workspaces, WorktreeImports | None]:
    # Only here: most runs have none.
    from paraval.workspaces.opening import (  # noqa: PLC0415 - see above
        open_workspaces,
        open_workspaces_by_case,
    )

    if any(trial.workspace is not None for trial in plan.trials):
        by_case = await stack.enter_async_context(
            open_workspaces_by_case(scratch=scratch, warden=warden, at_most=at_most)
        )
        return by_case, _ImportsByCase(by_case.leased_at)
    same = open_workspaces(
        plan.workspace, scratch=scratch, warden=warden, at_most=at_most, objects=objects
    )
    return await stack.enter_async_context(same), _imports(plan.workspace)


def _containers(
    plan: Plan,
    workspaces: Workspaces,
    *,
    warden: Warden,
    scratch: Path,
    say: Callable[[str], None],
) -> Containers:
    from paraval.workspaces.containers import Containers  # noqa: PLC0415 - most runs have none

    suite = _suite_folder(plan)
    graders = (spec for spec in plan.grading.every if spec.kind == "command")
    words = (word for spec in graders for word in spec.options["command"])
    return Containers(
        workspaces,
        plan.workspace,
        warden=warden,
        scratch=scratch,
        suite=suite if any(f"{suite}/" in word for word in words) else "",
        say=say,
    )


def _imports(workspace: Workspace) -> WorktreeImports | None:
    if workspace.kind is not WorkspaceKind.GIT or workspace.source is None:
        return None
    return WorktreeImports(workspace.source, workspace.start)


class _ImportsByCase(WorktreeImports):
    """For the worktrees of several repositories."""

    def __init__(self, leased_at: Callable[[str], Workspace | None]) -> None:
        self._leased_at = leased_at
        self._by_source: dict[tuple[str | None, str], WorktreeImports | None] = {}

    def first(self, command: Command, workspace: str) -> Command:
        leased = self._leased_at(workspace)
        if leased is None:
            return command
        key = (leased.source, leased.start)
        if key not in self._by_source:
            self._by_source[key] = _imports(leased)
        own = self._by_source[key]
        return command if own is None else own.first(command, workspace)


def _suite_folder(plan: Plan) -> str:
    """The suite's folder; for a suite made in Python, the base of its relative paths."""
    return str(Path.cwd() if plan.source is None else Path(plan.source).absolute().parent)


def _workspaces(plan: Plan) -> list[Workspace]:
    """Every workspace that a trial has, once."""
    of_trials = (trial.workspace or plan.workspace for trial in plan.trials)
    return list(dict.fromkeys(of_trials)) or [plan.workspace]


def _borrows(workspace: Workspace) -> bool:
    """Whether its worktrees borrow the objects of their repository; with hidden files, they have
    copies."""
    is_git = workspace.kind is WorkspaceKind.GIT
    return is_git and (workspace.uncommitted or not workspace.hidden)


def _objects_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Repository -> the folders of its git objects, which worktrees borrow."""
    from paraval.git.repositories import find_repository  # noqa: PLC0415 - seldom needed

    sources = {one.source for one in _workspaces(plan) if _borrows(one)}
    return {source: find_repository(source).all_objects for source in sources if source}


def _hidden_folders(plan: Plan) -> Iterator[str]:
    """Folders of hidden files: not visible either if a program beside them is, or if they are not
    in the suite's folder."""
    for workspace in _workspaces(plan):
        for files in workspace.hidden:
            yield files.source if Path(files.source).is_dir() else str(Path(files.source).parent)


def _words_of(target: Target) -> Iterator[str]:
    """Templates in what it starts, and in its environment variables."""
    match target:
        case CommandTarget():
            yield from _shell_words(target) if target.shell else target.command
            yield from target.env.values()
        case AgentTarget():
            yield from (*target.program, *target.arguments, *target.env.values())
            yield from () if target.custom is None else target.custom.command
            for server in target.mcp:
                yield from (*server.command, *server.env.values())


def _shell_words(target: CommandTarget) -> list[str]:
    line = escaped(re.sub(r"\$(?:suite\b|\{suite\})", target.folder, target.command[0]))
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return line.split()


class _SandboxBounds:
    """What a sandbox lets a run's processes do: write to their own folders, read what they are
    given, and no more."""

    def __init__(
        self,
        plan: Plan,
        hidden: HiddenPaths,
        scratch: Path,
        objects_of: Mapping[str, tuple[str, ...]],
    ) -> None:
        """`objects_of`: as `_objects_of` returns it."""
        self._scratch = str(scratch)
        self._objects_of = objects_of
        self._store = str(hidden.store)
        self._suite = _suite_folder(plan)
        self._hides_suite = hidden.suite
        self._seen = (sys.prefix, sys.base_prefix, *plan.workspace.readable)
        self._workspace = plan.workspace
        self._sources = [
            source
            for source in {one.source: None for one in _workspaces(plan)}
            if source is not None and not Path(source).is_relative_to(self._suite)
        ]
        self._hidden = sorted(set(_hidden_folders(plan)))
        sources = {one.source for one in _workspaces(plan) if one.source is not None}
        self._withheld = (self._suite, *self._hidden, *sources)

    def folder_of(self, attempt: Attempt) -> str:
        """The attempt's own folder, as it sees it. The real one is in the store, which may be next
        to the suite, and its path would reveal that."""
        return _FOLDER if self._hides_suite else attempt.own_folder

    def of_attempt(self, attempt: Attempt, home: OwnHome | None) -> Sandbox:
        """Targets may use the network: most of them call a model."""
        os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        writable = [] if home is None else [home.home, home.temp]
        if attempt.workspace is not None:
            writable.append(self._top(attempt.workspace))
        fields = template_fields(attempt.trial, self.folder_of(attempt), attempt.workspace)
        named = named_paths(_words_of(attempt.trial.target), fields)
        # A script may be beside the suite or the repositories, whose answers it must not see.
        seen = [*self._seen, *(path for path in named if not self._contains_withheld(path))]
        seen += self._borrowed(attempt)
        if attempt.workspace is not None:
            seen.append(self._trusted(attempt.workspace))
        if self._hides_suite:
            return Sandbox(
                writable=tuple(writable),
                renamed={attempt.own_folder: _FOLDER},
                hidden=(self._store, self._suite, *self._hidden, *self._source_of(attempt)),
                readable=tuple(seen),
                network=True,
            )
        return Sandbox(
            writable=(attempt.own_folder, *writable),
            hidden=(self._store,),
            readable=(*seen, self._suite, *self._sources),
            network=True,
        )

    def of_grader(self, workspace: str) -> Sandbox:
        return Sandbox(
            writable=(self._top(workspace),),
            hidden=(self._store,),
            readable=(
                *self._seen,
                *(path for paths in self._objects_of.values() for path in paths),
                self._trusted(workspace),
                self._suite,
                *self._sources,
            ),
            network=False,
        )

    def _source_of(self, attempt: Attempt) -> tuple[str, ...]:
        """The repository or folder that the attempt's workspace is a copy of, which may have more
        than the copy; unless the suite says that it is readable."""
        source = (attempt.trial.workspace or self._workspace).source
        return () if source is None or source in self._workspace.readable else (source,)

    def _borrowed(self, attempt: Attempt) -> tuple[str, ...]:
        """Folders of git objects that the attempt's worktree borrows."""
        own = attempt.trial.workspace or self._workspace
        return self._objects_of.get(own.source or "", ()) if _borrows(own) else ()

    def _contains_withheld(self, path: str) -> bool:
        """Whether a folder has the suite, hidden files or a repository in it: then it is not given,
        although a script in it may be."""
        return any(one == path or one.startswith(f"{path}/") for one in self._withheld)

    def _top(self, workspace: str) -> str:
        """The top of the slot that a path is in."""
        pool, _, within = self._parts(workspace)
        return "/".join((pool, "slots", *within.split("/")[:2]))

    def _trusted(self, workspace: str) -> str:
        """Where the pool has the git files that its worktrees borrow."""
        return f"{self._parts(workspace)[0]}/trusted"

    def _parts(self, workspace: str) -> tuple[str, str, str]:
        pool, between, within = workspace.removeprefix(self._scratch).partition("/slots/")
        return f"{self._scratch}{pool}", between, within


class _ContainerBounds(_SandboxBounds):
    """What containers get of this machine: what their attempts are given, and no more."""

    def __init__(
        self,
        plan: Plan,
        hidden: HiddenPaths,
        scratch: Path,
        objects_of: Mapping[str, tuple[str, ...]],
        containers: CommandRunner,
    ) -> None:
        super().__init__(plan, hidden, scratch, objects_of)
        self._containers = containers
        self._readable = plan.workspace.readable

    def folder_of(self, attempt: Attempt) -> str:
        return _FOLDER if self._containers.has(attempt.workspace) else attempt.own_folder

    def of_attempt_in(self, attempt: Attempt, home: OwnHome | None) -> Sandbox | None:
        """None: this attempt has no container."""
        if attempt.workspace is None or not self._containers.has(attempt.workspace):
            return None
        os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        target = attempt.trial.target
        fields = template_fields(attempt.trial, _FOLDER, attempt.workspace)
        named = filter(self._is_given, named_paths(_words_of(target), fields))
        borrowed = (self._trusted(attempt.workspace), *self._borrowed(attempt))
        # A command uses the home of its image; an agent needs the files that it is given.
        is_agent = isinstance(target, AgentTarget)
        return Sandbox(
            writable=() if home is None or not is_agent else (home.home, home.temp),
            renamed={attempt.own_folder: _FOLDER},
            readable=(*self._readable, *borrowed, *named),
        )

    def _is_given(self, path: str) -> bool:
        """Whether a path that a command names is this machine's; others are the image's."""
        return path.startswith(f"{self._suite}/") and not self._contains_withheld(path)

    def of_grader_in(self, workspace: str) -> Sandbox | None:
        if not self._containers.has(workspace):
            return None
        objects = (path for paths in self._objects_of.values() for path in paths)
        return Sandbox(readable=(*self._readable, self._trusted(workspace), *objects))
