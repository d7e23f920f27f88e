"""The directories of a run's attempts: scratch folder, homes, workspaces and sandboxes."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paraval.environment import WorktreeImports
from paraval.errors import RequestError
from paraval.plan.suite_folder import placed
from paraval.processes.children import Warden
from paraval.processes.commands import Command
from paraval.processes.sandbox import Sandbox, why_no_sandbox
from paraval.records import (
    AgentTarget,
    Attempt,
    CommandTarget,
    Home,
    Plan,
    Target,
    Workspace,
    WorkspaceKind,
)
from paraval.scratch import Homes, OwnHome, open_scratch
from paraval.targets.command import FolderFor, SandboxFor, own_folder, template_fields, unbounded
from paraval.templates.template import named_paths
from paraval.workspaces.workspace import Workspaces

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


def check_sandbox(plan: Plan) -> None:
    """Reject a sandbox that is not available, before the run begins."""
    if not plan.workspace.sandbox:
        return
    reason = why_no_sandbox()
    if reason is not None:
        raise RequestError(f"workspace.sandbox: {reason}")
    for trial in plan.trials:
        target = trial.target
        if isinstance(target, AgentTarget | CommandTarget) and target.home is Home.MINE:
            raise RequestError(
                "workspace.sandbox: with home: mine a target writes to your home, which a sandbox"
                " does not allow",
                hint="give it a key and a home of its own, or remove workspace.sandbox",
            )
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
            if plan.workspace.sandbox:
                objects_of = await asyncio.to_thread(_objects_of, plan)
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
    """Every workspace of the plan, once."""
    of_trials = dict.fromkeys(trial.workspace for trial in plan.trials)
    return [plan.workspace, *(one for one in of_trials if one not in (None, plan.workspace))]


def _objects_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Repository -> the folders of its git objects, which worktrees borrow."""
    from paraval.git.repositories import find_repository  # noqa: PLC0415 - seldom needed

    sources = {one.source for one in _workspaces(plan) if one.kind is WorkspaceKind.GIT}
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
    line = placed(target.command[0], target.folder)
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
        seen = [*self._seen, *named_paths(_words_of(attempt.trial.target), fields)]
        own = attempt.trial.workspace or self._workspace
        seen += self._objects_of.get(own.source or "", ())
        if attempt.workspace is not None:
            seen.append(self._trusted(attempt.workspace))
        named = tuple(seen)
        if self._hides_suite:
            return Sandbox(
                writable=tuple(writable),
                renamed={attempt.own_folder: _FOLDER},
                hidden=(self._store, self._suite, *self._hidden),
                readable=named,
                network=True,
            )
        return Sandbox(
            writable=(attempt.own_folder, *writable),
            hidden=(self._store,),
            readable=(*named, self._suite, *self._sources),
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
