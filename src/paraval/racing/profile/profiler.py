"""Profiles the winner: runs its benchmark once more, with line_profiler in the benchmark's Python.

If there is no profile, the race reports why and does not fail. The benchmark's process is not
trusted: its output is read as data, with size limits.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path, PurePosixPath

from paraval.codec import from_data
from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.environment import with_worktree_first
from paraval.processes.children import Command, ProcessEnd
from paraval.racing.context import RaceContext, found, step_command
from paraval.racing.findings import ProfiledFunction, ProfileFinding, StepFinding
from paraval.racing.profile import profile_child
from paraval.racing.steps import BASELINE, Step
from paraval.records import Attempt, AttemptResult
from paraval.targets.answer import InvalidOutputError, read_plain_file, seconds
from paraval.targets.process_ends import artifacts_of, notes_of, unexpected_end
from paraval.text.terminal import well_formed
from paraval.text.words import some
from paraval.workspaces.workspace import WorkspaceError

_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_TAKE_A_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_NO_PYTHON = (
    "only a benchmark whose command starts Python can be profiled: `python bench.py`,"
    " `python -m module`"
)
_CUT_OFF = "the benchmark's Python ended before it could report (os._exit, a signal)"
MOST_FUNCTIONS = 30
MOST_LINES = 300
"""Lines kept per function, the slowest."""
LONGEST_TEXT = 200
MOST_BYTES = 8_000_000
"""Limit for the output of a process."""
_SHOWN_NAMES = 5
SLOWED = 5
"""A profiled benchmark is slower: its timeout is multiplied by this."""


class Profiler:
    """Performs PROFILE."""

    def __init__(self, context: RaceContext) -> None:
        self._context = context

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        context = self._context
        is_baseline = step.candidate == BASELINE
        asked = context.request.keys.functions
        files = () if asked or is_baseline else step.files
        if not asked and not files and not is_baseline:
            return _none("it changes no Python file")
        place = program_place(context.request.bench.command)
        if place is None:
            return _none(_NO_PYTHON)
        try:
            async with AsyncExitStack() as stack:
                lease = await context.workspaces.lease(None if is_baseline else step.tree)
                stack.push_async_callback(lease.release)
                attempt = replace(attempt, workspace=lease.path)
                own = await stack.enter_async_context(context.processes.home())
                runner = _ProfileRun(attempt, lease.top, asked, files)
                await asyncio.to_thread(runner.lay_out)
                timeout = context.bench_timeout() * SLOWED
                command = await with_worktree_first(
                    step_command(context.processes, attempt, own, timeout=timeout, nice=0),
                    context.processes.imports,
                    lease.path,
                )
                ended = await context.processes.warden.run(runner.before(command, place))
            return await asyncio.to_thread(_result, command, ended, runner)
        except WorkspaceError as error:
            return _none(error.message)
        except OSError as error:
            return _none(f"the profiler could not be set up: {error}")

    async def close(self) -> None:
        """Do nothing: no resources are kept between steps."""


class _ProfileRun:
    """What the benchmark's Python runs, and where it writes its profile: in the attempt's own
    folder, which a sandbox allows."""

    def __init__(
        self, attempt: Attempt, top: str, asked: tuple[str, ...], files: tuple[str, ...]
    ) -> None:
        folder = Path(attempt.own_folder, "profiling")
        self._request = {
            "into": str(folder / "seen.json"),
            "top": top,
            "functions": asked,
            "files": [str(Path(top, file)) for file in files],
        }
        self._request_file = folder / "request.json"
        self._program = folder / "profile_child.py"
        self.asked = asked
        self.seen = folder / "seen.json"

    def lay_out(self) -> None:
        """Write the files. Raises OSError."""
        self._program.parent.mkdir(parents=True, exist_ok=True)
        self._program.write_bytes(Path(profile_child.__file__).read_bytes())
        self._request_file.write_text(json.dumps(self._request), encoding="utf-8")

    def before(self, command: Command, place: int) -> Command:
        """Insert the profiler; `place`: the index of the program in the command."""
        argv = (*command.argv[:place], str(self._program), *command.argv[place:])
        env = {**command.env, profile_child.REQUEST_VARIABLE: str(self._request_file)}
        return replace(command, argv=argv, env=env)


def program_place(argv: Sequence[str]) -> int | None:
    """The index of the program in `python -X dev bench.py`, or of `-m` or `-c`; None for other
    commands."""
    names = [PurePosixPath(argument).name for argument in argv]
    place = next((n for n, name in enumerate(names) if _PYTHON.fullmatch(name)), len(argv)) + 1
    while place < len(argv) and argv[place].startswith("-") and argv[place] not in ("-m", "-c"):
        place += 2 if argv[place] in _TAKE_A_VALUE else 1
    return place if place < len(argv) else None


# ---- results


def _result(command: Command, ended: ProcessEnd, runner: _ProfileRun) -> AttemptResult:
    artifacts = artifacts_of(command, ended)
    problem = _problem(command, ended)
    if problem is not None:
        return _none(problem, artifacts, notes_of(ended))
    profiled, notes = read_profile(runner.seen, runner.asked)
    return found(
        StepFinding(profiled=profiled), artifacts=artifacts, notes=(*notes_of(ended), *notes)
    )


def _problem(command: Command, ended: ProcessEnd) -> str | None:
    """Why the benchmark did not finish; a partial profile would mislead."""
    if ended.timed_out:
        return f"the profiled benchmark timed out after {seconds(command.timeout or 0)}"
    if ended.exit_code == 0 and ended.failure is None:
        return None
    return f"the profiled benchmark failed: {unexpected_end(ended, command.stderr).message}"


def _none(
    problem: str, artifacts: dict[str, str] | None = None, notes: tuple[str, ...] = ()
) -> AttemptResult:
    finding = StepFinding(profiled=ProfileFinding(problem=problem))
    return found(finding, artifacts=artifacts or {}, notes=notes)


# ---- the profile


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProfileData:
    """What the profiled process wrote."""

    no_profiler: str | None = None
    """Its Python, if that lacks line_profiler."""
    loaded: tuple[str, ...] = ()
    """Loaded modules."""
    found: tuple[str, ...] = ()
    """The requested functions that were found."""
    functions: tuple[ProfiledFunction, ...] = ()

    def __post_init__(self) -> None:
        times = [one.seconds for one in self.functions]
        times += [line.seconds for one in self.functions for line in one.lines]
        if not all(0 <= time < math.inf for time in times):
            raise ValueError("invalid times")


def read_profile(file: Path, asked: Sequence[str]) -> tuple[ProfileFinding, tuple[str, ...]]:
    """Read the output of `profile_child`, with notes; `asked`: the requested functions, empty for
    those in the changed files."""
    try:
        data = parse_strictly(read_plain_file(str(file), MOST_BYTES).decode())
        seen = from_data(_ProfileData, data)
    except (InvalidOutputError, ArithmeticError, TypeError, ValueError):
        return ProfileFinding(problem=_CUT_OFF), ()
    if seen.no_profiler is not None:
        python = well_formed(seen.no_profiler[:LONGEST_TEXT]) or "python"
        install = f"install it there: {python} -m pip install line_profiler"
        problem = f"line_profiler is not installed in the benchmark's Python; {install}"
        return ProfileFinding(problem=problem), ()
    absent = tuple(_absent(seen, asked))
    if not seen.functions:
        which = "that was requested" if asked else "that is profiled"
        problem = "; ".join(absent) or f"the benchmark called no function {which}"
        return ProfileFinding(problem=problem), ()
    slowest = sorted(seen.functions, key=lambda one: (-one.seconds, one.name))[:MOST_FUNCTIONS]
    return ProfileFinding(functions=tuple(map(_bounded, slowest))), absent


def _absent(seen: _ProfileData, asked: Sequence[str]) -> Iterator[str]:
    absent = [name for name in asked if name not in seen.found]
    missing = [name for name in absent if name.partition(":")[0] in seen.loaded]
    not_loaded = [name for name in absent if name not in missing]
    if missing:
        yield f"there is no function {some(missing, _SHOWN_NAMES)}"
    if not_loaded:
        yield f"the benchmark did not load the module of {some(not_loaded, _SHOWN_NAMES)}"


def _bounded(function: ProfiledFunction) -> ProfiledFunction:
    slowest = sorted(function.lines, key=lambda one: -one.seconds)[:MOST_LINES]
    lines = (replace(one, text=well_formed(one.text[:LONGEST_TEXT])) for one in slowest)
    return replace(
        function,
        name=well_formed(function.name[:LONGEST_TEXT]),
        file=well_formed(function.file[:LONGEST_TEXT]),
        lines=tuple(sorted(lines, key=lambda one: one.line)),
    )
