"""Where the attempts of a run live: its scratch place, their homes, workspaces and sandboxes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paraval.errors import RequestError
from paraval.isolation import Home, Workspace, WorkspaceKind
from paraval.processes.children import Warden
from paraval.processes.sandbox import Sandbox, why_no_sandbox
from paraval.records import AgentTarget, Attempt, CommandTarget, Plan
from paraval.scratch import Homes, OwnHome, open_scratch
from paraval.targets.surroundings import SandboxFor, unbounded
from paraval.workspaces.workspace import Workspaces
from paraval.worktree_imports import WorktreeImports


@dataclass(frozen=True, slots=True, kw_only=True)
class Lodging:
    """What attempts that are processes are given of a place."""

    homes: Homes | None = None
    """None: nothing of the run is a process."""
    workspaces: Workspaces | None = None
    """None: attempts run where their target says."""
    sandbox_for: SandboxFor = unbounded
    grader_sandbox_for: Callable[[str], Sandbox | None] | None = None
    """By the attempt's workspace."""
    imports: WorktreeImports | None = None
    """None: workspaces are no worktrees."""


def check_sandbox(plan: Plan) -> None:
    """Refuse a sandbox that cannot be had, before there is a run."""
    if not plan.workspace.sandbox:
        return
    reason = why_no_sandbox()
    if reason is not None:
        raise RequestError(f"workspace.sandbox: {reason}")
    for trial in plan.trials:
        target = trial.target
        if isinstance(target, AgentTarget | CommandTarget) and target.home is Home.MINE:
            raise RequestError(
                "workspace.sandbox: with home: mine a target must write to your home, which a"
                " sandbox does not let it",
                hint="use a key and a home of its own, or leave the sandbox out",
            )


@asynccontextmanager
async def lodging_for(
    plan: Plan,
    *,
    warden: Warden,
    at_most: int,
    hidden: Path,
    say: Callable[[str], None],
    objects: Path | None = None,
) -> AsyncIterator[Lodging]:
    """For as long as a run lasts; `hidden` is what a sandbox covers, `say` tells of what is left
    behind, `objects` holds trees of git that workspaces can be asked to take."""
    scratch = await asyncio.to_thread(open_scratch)
    try:
        async with AsyncExitStack() as stack:
            workspaces: Workspaces | None = None
            if plan.workspace.kind is not WorkspaceKind.NONE:
                # Only here: most runs have none.
                from paraval.workspaces.opening import open_workspaces  # noqa: PLC0415 - see above

                workspaces = await stack.enter_async_context(
                    open_workspaces(
                        plan.workspace,
                        scratch=scratch.folder,
                        warden=warden,
                        at_most=at_most,
                        objects=objects,
                    )
                )
                for note in workspaces.notes:
                    say(f"Workspaces: {note}.")
            homes, imports = Homes(scratch.folder), _imports(plan.workspace)
            if plan.workspace.sandbox:
                bounds = _Bounds(plan, hidden, _seen(plan, scratch.folder))
                yield Lodging(
                    homes=homes,
                    workspaces=workspaces,
                    sandbox_for=bounds.of_attempt,
                    grader_sandbox_for=bounds.of_grader,
                    imports=imports,
                )
            else:
                yield Lodging(homes=homes, workspaces=workspaces, imports=imports)
    finally:
        left = await asyncio.to_thread(scratch.close)
        if left is not None:
            say(f"Left behind: {left}.")


def _imports(workspace: Workspace) -> WorktreeImports | None:
    if workspace.kind is not WorkspaceKind.GIT or workspace.source is None:
        return None
    return WorktreeImports(workspace.source, workspace.start)


def _seen(plan: Plan, scratch: Path) -> tuple[str, ...]:
    """What attempts and graders need that may lie in a temporary folder: the suite, the objects
    that their worktrees borrow, and the Python that `{python}` names."""
    places = [str(scratch / "workspaces" / "trusted"), sys.prefix, sys.base_prefix]
    if plan.source is not None:
        places.append(str(Path(plan.source).absolute().parent))
    if plan.workspace.source is not None:
        places.append(plan.workspace.source)
    return tuple(places)


class _Bounds:
    """What a sandbox lets the processes of a run do: write to what is their own, and no more."""

    def __init__(self, plan: Plan, hidden: Path, seen: tuple[str, ...]) -> None:
        self._start = os.path.normpath(plan.workspace.start)
        self._hidden = (str(hidden),)
        self._seen = seen

    def of_attempt(self, attempt: Attempt, own: OwnHome | None) -> Sandbox:
        """Targets may use the network: most of them ask a model there."""
        os.makedirs(attempt.own_folder, exist_ok=True)  # noqa: PTH103 - quick, and in any loop
        writable = [attempt.own_folder]
        if attempt.workspace is not None:
            writable.append(self._top(attempt.workspace))
        if own is not None:
            writable += [own.home, own.temp]
        return Sandbox(
            writable=tuple(writable), hidden=self._hidden, readable=self._seen, network=True
        )

    def of_grader(self, workspace: str) -> Sandbox:
        return Sandbox(
            writable=(self._top(workspace),),
            hidden=self._hidden,
            readable=self._seen,
            network=False,
        )

    def _top(self, workspace: str) -> str:
        return workspace if self._start == "." else workspace.removesuffix(f"/{self._start}")
