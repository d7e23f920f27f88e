"""The winner's profile: its benchmark once more, with line_profiler in the benchmark's own Python.

What comes of it is told; that there is none is never a failure of the race, and only says why.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paraval.codec import well_formed
from paraval.documents.json import parse_strictly
from paraval.environment import child_environment, with_worktree_first
from paraval.processes.children import Command, ProcessEnd
from paraval.racing.course.steps import Step, StepKind
from paraval.racing.findings import ProfiledFunction, ProfiledLine, ProfileFinding, StepFinding
from paraval.racing.profile import injected
from paraval.racing.step_performer import RaceContext, found
from paraval.records import Attempt, AttemptResult, Home
from paraval.scratch import OwnHome
from paraval.targets.answer import InvalidOutputError, read_plain_file, seconds
from paraval.targets.command import attempt_marks, own_places
from paraval.targets.process_ends import artifacts_of, notes_of, unexpected_end
from paraval.workspaces.workspace import WorkspaceError

# What the processes of a profiled benchmark told, put together, or why there is no profile.

MOST_FUNCTIONS = 30
MOST_LINES = 300
"""Of one function; those that took longest."""
LONGEST_TEXT = 200
MOST_PROCESSES = 200
"""Of one benchmark; what further ones tell is left out."""
MOST_BYTES = 8_000_000
"""That one process may tell."""
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessProfile:
    """What one process told."""

    python: str
    has_profiler: bool
    missing: tuple[str, ...] = ()
    """Asked for, and not in their modules."""
    not_loaded: tuple[str, ...] = ()
    """Asked for, and their modules were not loaded."""
    functions: tuple[ProfiledFunction, ...] = ()


def profile_told(folder: Path, asked: Sequence[str]) -> tuple[ProfileFinding, tuple[str, ...]]:
    """What is in a folder of files that the injected script wrote, and what to note beside it.

    `asked`: the functions that were asked for; empty: those of the files that were changed.
    """
    files = sorted(folder.glob("*.json"))[:MOST_PROCESSES]
    if not files:
        return ProfileFinding(problem=_NOBODY), ()
    told = [one for file in files if (one := _read(file)) is not None]
    if not told:
        return ProfileFinding(problem=_CUT_OFF), ()
    functions = _together(function for one in told for function in one.functions)
    absent = tuple(_absent(told, asked))
    if not functions:
        return ProfileFinding(problem=_why_none(told, asked, absent)), ()
    return ProfileFinding(functions=functions), absent


_NOBODY = (
    "the benchmark started no Python that could be profiled; python -I, -E and -S keep the profiler"
    " out"
)
_CUT_OFF = "the benchmark's Python was ended before it could tell (os._exit, a signal)"


def _why_none(told: Sequence[ProcessProfile], asked: Sequence[str], absent: Sequence[str]) -> str:
    if not any(one.has_profiler for one in told):
        python = told[0].python or "python"
        return (
            "line_profiler is not installed in the benchmark's Python; install it there:"
            f" {python} -m pip install line_profiler"
        )
    if absent:
        return "; ".join(absent)
    if asked:
        return "the benchmark called none of the functions that were asked for"
    return "the benchmark called no function of the files that it changes"


def _absent(told: Sequence[ProcessProfile], asked: Sequence[str]) -> Iterator[str]:
    """What of all that was asked for no process had."""
    able = [one for one in told if one.has_profiler]
    not_loaded = [name for name in asked if all(name in one.not_loaded for one in able)]
    missing = [
        name
        for name in asked
        if name not in not_loaded
        and all(name in one.missing or name in one.not_loaded for one in able)
    ]
    if able and missing:
        yield f"there is no function {_named(missing)}"
    if able and not_loaded:
        yield f"the benchmark did not load the module of {_named(not_loaded)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


# ---- what one process told


def _read(file: Path) -> ProcessProfile | None:
    """None: it told nothing, or what no such process tells."""
    try:
        text = read_plain_file(str(file), MOST_BYTES).decode()
        return _told(parse_strictly(text)) if text else None
    except (InvalidOutputError, ArithmeticError, KeyError, TypeError, ValueError):
        return None


def _told(data: Any) -> ProcessProfile:
    return ProcessProfile(
        python=_text(data["python"]),
        has_profiler=data["problem"] is None,
        missing=tuple(map(_text, data["missing"])),
        not_loaded=tuple(map(_text, data["not_loaded"])),
        functions=tuple(map(_function, data["functions"])),
    )


def _function(data: Any) -> ProfiledFunction:
    return ProfiledFunction(
        name=_text(data["name"]),
        file=_text(data["file"]),
        seconds=_seconds(data["seconds"]),
        lines=tuple(map(_line, data["lines"])),
    )


def _line(data: Any) -> ProfiledLine:
    return ProfiledLine(
        line=int(data["line"]),
        hits=int(data["hits"]),
        seconds=_seconds(data["seconds"]),
        text=_text(data["text"]),
    )


def _text(value: Any) -> str:
    return well_formed(str(value)[:LONGEST_TEXT])


def _seconds(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{number} is no time")
    return number


# ---- all of them


def _together(functions: Iterator[ProfiledFunction]) -> tuple[ProfiledFunction, ...]:
    """Each function once, whoever called it; the one that took longest first."""
    found: dict[tuple[str, str], list[ProfiledFunction]] = {}
    for function in functions:
        found.setdefault((function.file, function.name), []).append(function)
    summed = (_summed(parts) for parts in found.values())
    return tuple(sorted(summed, key=lambda one: (-one.seconds, one.name)))[:MOST_FUNCTIONS]


def _summed(parts: Sequence[ProfiledFunction]) -> ProfiledFunction:
    lines: dict[int, ProfiledLine] = {}
    for line in (line for part in parts for line in part.lines):
        before = lines.get(line.line)
        hits, seconds = (before.hits, before.seconds) if before is not None else (0, 0.0)
        lines[line.line] = ProfiledLine(
            line=line.line, hits=hits + line.hits, seconds=seconds + line.seconds, text=line.text
        )
    slowest = sorted(lines.values(), key=lambda one: -one.seconds)[:MOST_LINES]
    return ProfiledFunction(
        name=parts[0].name,
        file=parts[0].file,
        seconds=math.fsum(part.seconds for part in parts),
        lines=tuple(sorted(slowest, key=lambda one: one.line)),
    )


SLOWED = 5
"""A profiled benchmark takes longer: it may take as many times its timeout."""


class Profiler:
    """Performs PROFILE."""

    def __init__(self, room: RaceContext) -> None:
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


def _result(command: Command, ended: ProcessEnd, injection: _Injection) -> AttemptResult:
    artifacts = artifacts_of(command, ended)
    problem = _problem(command, ended)
    if problem is not None:
        return _none(problem, artifacts, notes_of(ended))
    profiled, notes = profile_told(injection.told, injection.asked)
    return found(
        StepFinding(profiled=profiled), artifacts=artifacts, notes=(*notes_of(ended), *notes)
    )


def _problem(command: Command, ended: ProcessEnd) -> str | None:
    """Why the benchmark did not come to its end; what was seen until then would mislead."""
    if ended.timed_out:
        return f"profiled, the benchmark was not done after {seconds(command.timeout or 0)}"
    if ended.exit_code == 0 and ended.failure is None:
        return None
    return f"profiled, the benchmark failed: {unexpected_end(ended, command.stderr).message}"


def _none(
    problem: str, artifacts: dict[str, str] | None = None, notes: tuple[str, ...] = ()
) -> AttemptResult:
    finding = StepFinding(profiled=ProfileFinding(problem=problem))
    return found(finding, artifacts=artifacts or {}, notes=notes)
