"""The winner's profile: its benchmark once more, with line_profiler in the benchmark's own Python.

What comes of it is told; that there is none is never a failure of the race, and only says why.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from paraval.environment import child_environment
from paraval.isolation import Home
from paraval.processes.children import Command, Ended
from paraval.racing.findings import Finding, Profiled
from paraval.racing.performing import RaceRoom, found
from paraval.racing.profile_told import profile_told
from paraval.racing.profiling import injected
from paraval.racing.steps import Step, StepKind
from paraval.records import Attempt, AttemptResult
from paraval.scratch import OwnHome
from paraval.targets.answer import seconds
from paraval.targets.command import attempt_marks
from paraval.targets.ends import artifacts_of, notes_of, unexpected_end
from paraval.targets.surroundings import own_places
from paraval.workspaces.workspace import WorkspaceError
from paraval.worktree_imports import with_worktree_first

SLOWED = 5
"""A profiled benchmark takes longer: it may take as many times its timeout."""


class Profiler:
    """Performs PROFILE."""

    def __init__(self, room: RaceRoom) -> None:
        self._room = room

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        asked = self._room.request.profile.functions
        files = () if asked else self._changed_python(step)
        if not asked and not files:
            return _none("it changes no Python file")
        try:
            async with AsyncExitStack() as stack:
                is_baseline = step.tree == self._room.base.tree
                lease = await self._room.workspaces.lease(None if is_baseline else step.tree)
                stack.push_async_callback(lease.release)
                attempt = replace(attempt, workspace=lease.path)
                own = None
                if self._room.processes.homes is not None:
                    own = await stack.enter_async_context(self._room.processes.homes.lease())
                injection = _Injection(attempt, lease.top, asked, files)
                await asyncio.to_thread(injection.lay_out)
                command = await with_worktree_first(
                    self._command(attempt, own), self._room.processes.imports, lease.path
                )
                command = replace(command, env=injection.joined_to(command.env))
                ended = await self._room.processes.warden.run(command)
            return await asyncio.to_thread(_result, command, ended, injection)
        except WorkspaceError as error:
            return _none(error.message)
        except OSError as error:
            return _none(f"the profiler could not be put in place: {error}")

    async def close(self) -> None:
        """Nothing is held between steps."""

    def _changed_python(self, step: Step) -> tuple[str, ...]:
        """Relative to the repository's top."""
        end = self._room.ends.get((StepKind.STAGE, step.candidate, 1))
        staged = None if end is None else end.finding.staged
        if staged is None:
            return ()
        return tuple(
            change.path
            for change in staged.files
            if change.path.endswith(".py") and change.status != "deleted"
        )

    def _command(self, attempt: Attempt, own: OwnHome | None) -> Command:
        room, request = self._room, self._room.request
        assert attempt.workspace is not None
        env = child_environment(
            {**own_places(own, Home.OWN), **request.env},
            request.pass_env,
            attempt_marks(room.processes.run_id, attempt),
        )
        return Command(
            argv=request.bench.command,
            env=env,
            cwd=attempt.workspace,
            stdout=str(Path(attempt.folder, "stdout.log")),
            stderr=str(Path(attempt.folder, "stderr.log")),
            timeout=request.bench.timeout * SLOWED,
            tag=attempt.trial.index,
            sandbox=room.processes.sandbox_for(attempt, own),
        )


class _Injection:
    """What a benchmark's Python finds, and where it tells what it saw: in the attempt's own folder,
    which is within a sandbox too."""

    def __init__(
        self, attempt: Attempt, top: str, asked: tuple[str, ...], files: tuple[str, ...]
    ) -> None:
        self.asked = asked
        self._top = top
        self._files = files
        self._folder = Path(attempt.own_folder, "profiling")
        self.told = self._folder / "told"
        self._request = self._folder / "request.json"

    def lay_out(self) -> None:
        modules = self._folder / "modules"
        for folder in (modules, self.told):
            folder.mkdir(parents=True, exist_ok=True)
        source = Path(injected.__file__).read_bytes()
        (modules / "sitecustomize.py").write_bytes(source)
        request = {
            "into": str(self.told),
            "top": self._top,
            "functions": self.asked,
            "files": [str(Path(self._top, file)) for file in self._files],
        }
        self._request.write_text(json.dumps(request), encoding="utf-8")

    def joined_to(self, env: Mapping[str, str]) -> dict[str, str]:
        paths = [str(self._folder / "modules")]
        if env.get("PYTHONPATH"):
            paths.append(env["PYTHONPATH"])
        return {
            **env,
            "PYTHONPATH": os.pathsep.join(paths),
            injected.REQUEST_VARIABLE: str(self._request),
        }


def _result(command: Command, ended: Ended, injection: _Injection) -> AttemptResult:
    artifacts = artifacts_of(command, ended)
    problem = _problem(command, ended)
    if problem is not None:
        return _none(problem, artifacts, notes_of(ended))
    profiled, notes = profile_told(injection.told, injection.asked)
    return found(Finding(profiled=profiled), artifacts=artifacts, notes=(*notes_of(ended), *notes))


def _problem(command: Command, ended: Ended) -> str | None:
    """Why the benchmark did not come to its end; what was seen until then would mislead."""
    if ended.timed_out:
        return f"profiled, the benchmark was not done after {seconds(command.timeout or 0)}"
    if ended.exit_code == 0 and ended.failure is None:
        return None
    return f"profiled, the benchmark failed: {unexpected_end(ended, command.stderr).message}"


def _none(
    problem: str, artifacts: dict[str, str] | None = None, notes: tuple[str, ...] = ()
) -> AttemptResult:
    finding = Finding(profiled=Profiled(problem=problem))
    return found(finding, artifacts=artifacts or {}, notes=notes)
