"""The winner's profile: by line, from within the benchmark's own Python, and never in the way."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from paraval.racing.course.steps import Base, Step, StepEnd, StepKind, finding_of, trial_of
from paraval.racing.step_performer import RaceContext

from paraval.processes.children import Warden
from paraval.racing.findings import ProfileFinding, StagedCandidate, StepFinding
from paraval.racing.profile.profiler import Profiler, program_place, read_profile
from paraval.racing.request import BenchSpec, Profile, ProfileSpec, RaceRequest, TestSpec
from paraval.records import Attempt, AttemptResult, FileChange, Outcome
from paraval.scratch import Homes
from paraval.targets.command import ProcessRoom
from paraval.workspaces.pool import Pool
from paraval.workspaces.workspace import WorkspaceError

from .workspace_kit import (  # noqa: F401 - fixtures, used by their names
    git,
    opened,
    repository_fixture,
    run,
    scratch_fixture,
    worktrees,
)

SLOW = """\
def total(numbers):
    found = 0
    for number in numbers:
        found += number
    return found


def never_called():
    return 0
"""
QUICK = """\
import functools
import threading


def counted(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@counted
def total(numbers):
    def doubled(number):
        return number + number

    found = 0
    for number in numbers:
        found += doubled(number) // 2
    return found


class Sums:
    def first(self):
        return self.numbers

    def second(self):
        return self.strings

    numbers, strings = 1, 2


def in_a_thread():
    thread = threading.Thread(target=total, args=([1, 2, 3],))
    thread.start()
    thread.join()


if __name__ == "__main__":
    total([1, 2])
"""
BENCH = """\
import sums


def measure():
    one = sums.Sums()
    return sums.total(range(100)), one.first(), one.second(), sums.in_a_thread()


if __name__ == "__main__":
    measure()
"""


class Race:
    """A repository with a baseline, and a winner that changes `sums.py`."""

    def __init__(self, repository: Path, scratch: Path, tmp_path: Path) -> None:
        self.repository = repository
        self.scratch = scratch
        self.run_folder = tmp_path / "run"
        self.files = {"sums.py": QUICK, "bench.py": BENCH}
        self.changed = ["sums.py"]
        self.request = RaceRequest(
            name="sums",
            source=None,
            folder=str(tmp_path),
            repo=str(repository),
            test=TestSpec(command=("true",)),
            bench=BenchSpec(command=(sys.executable, "bench.py"), timeout=20.0),
            profile=ProfileSpec(kind=Profile.LINE),
        )

    def asks(self, *functions: str, command: tuple[str, ...] = (), **env: str) -> None:
        bench = replace(self.request.bench, command=command or self.request.bench.command)
        self.request = replace(
            self.request,
            profile=ProfileSpec(kind=Profile.LINE, functions=functions),
            bench=bench,
            env=env,
        )

    def profile(self) -> AttemptResult:
        return run(self._profile())

    async def _profile(self) -> AttemptResult:
        (self.repository / "sums.py").write_text(SLOW)
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-qm", "slow")
        base = git(self.repository, "rev-parse", "HEAD^{tree}")
        git(self.repository, "checkout", "-q", "-b", "quick")
        for name, text in self.files.items():
            (self.repository / name).write_text(text)
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-qm", "quick")
        tree = git(self.repository, "rev-parse", "HEAD^{tree}")
        git(self.repository, "checkout", "-q", "main")
        async with Warden() as warden, opened(worktrees(self.repository), self.scratch) as pool:
            assert isinstance(pool, Pool)
            homes = Homes(self.run_folder)
            room = RaceContext(
                request=self.request,
                base=Base(tree=base),
                processes=ProcessRoom(warden=warden, run_id="run-1", homes=homes),
                workspaces=pool,
                objects=self.run_folder / "objects",
                run_folder=self.run_folder,
            )
            room.ends[StepKind.STAGE, "quick", 1] = self._staged(tree)
            step = Step(kind=StepKind.PROFILE, candidate="quick", tree=tree)
            result = await Profiler(room).perform(self._attempt(step, room.base), step)
            # The one slot that there is was given back.
            await (await pool.lease()).release()
        return result

    def _staged(self, tree: str) -> StepEnd:
        files = tuple(
            FileChange(path=path, status="changed", lines_added=1, lines_deleted=1)
            for path in self.changed
        )
        return StepEnd(
            step=Step(kind=StepKind.STAGE, candidate="quick"),
            outcome=Outcome.PASSED,
            finding=StepFinding(staged=StagedCandidate(tree=tree, normal="n", files=files)),
        )

    def _attempt(self, step: Step, base: Base) -> Attempt:
        folder = self.run_folder / "attempts" / "1"
        return Attempt(trial=trial_of(step, 0, self.request, base), number=1, folder=str(folder))


@pytest.fixture(name="race")
def race_fixture(repository: Path, scratch: Path, tmp_path: Path) -> Race:
    return Race(repository, scratch, tmp_path)


def profiled(result: AttemptResult) -> ProfileFinding:
    assert result.outcome is Outcome.PASSED
    found = finding_of(result).profiled
    assert found is not None
    return found


def hits(found: ProfileFinding) -> dict[str, dict[int, int]]:
    return {
        function.name: {line.line: line.hits for line in function.lines}
        for function in found.functions
    }


def test_every_function_of_the_changed_files_is_profiled_as_the_winner_has_it(race: Race) -> None:
    """Decorated ones, those in others, methods with the same bytecode, and in threads too."""
    found = profiled(race.profile())
    assert found.problem is None
    seen = hits(found)
    del seen["sums:counted"]  # How often its `def` is counted is another in other versions.
    assert seen == {
        "sums:counted.<locals>.wrapper": {8: 2},
        "sums:total": {15: 2, 18: 2, 19: 105, 20: 103, 21: 2},
        "sums:total.<locals>.doubled": {16: 103},
        "sums:Sums.first": {26: 1},
        "sums:Sums.second": {29: 1},
        "sums:in_a_thread": {35: 1, 36: 1, 37: 1},
    }
    total = next(one for one in found.functions if one.name == "sums:total")
    assert total.file == "sums.py"
    assert total.seconds > 0
    assert total.lines[3].text.strip() == "found += doubled(number) // 2"
    assert sum(line.seconds for line in total.lines) == pytest.approx(total.seconds)


def test_only_the_functions_that_are_asked_for_are_profiled(race: Race) -> None:
    race.asks("sums:Sums.first", "sums:total", "bench:measure")
    assert sorted(hits(profiled(race.profile()))) == [
        "bench:measure",
        "sums:Sums.first",
        "sums:total",
        "sums:total.<locals>.doubled",
    ]


@pytest.mark.parametrize("command", [("sums.py",), ("-m", "sums")], ids=["script", "module"])
def test_a_module_that_is_run_itself_is_profiled_too(race: Race, command: tuple[str, ...]) -> None:
    race.asks("sums:total", command=(sys.executable, *command))
    assert hits(profiled(race.profile()))["sums:total"] == {15: 1, 18: 1, 19: 3, 20: 2, 21: 1}


def test_a_script_sees_what_it_sees_otherwise(race: Race) -> None:
    """Its name, its file, its arguments, its path, and the sitecustomize that was there before."""
    other = race.repository.parent / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys; sys.customized = True\n")
    race.files["bench.py"] = (
        "import json, os, sys, sitecustomize\n"
        "def measure():\n    pass\n"
        "measure()\n"
        "print(json.dumps([__name__, os.path.basename(__file__), sys.argv[1:], sys.customized,\n"
        "    sitecustomize.__file__, [p for p in sys.path if 'profiling' in p],\n"
        "    sys.path[0] == os.getcwd()]))\n"
    )
    command = (sys.executable, "bench.py", "one", "two")
    race.asks("bench:measure", command=command, PYTHONPATH=str(other))
    result = race.profile()
    assert hits(profiled(result)) == {"bench:measure": {3: 1}}
    assert json.loads(Path(result.artifacts["stdout"]).read_text()) == [
        "__main__",
        "bench.py",
        ["one", "two"],
        True,
        str(other / "sitecustomize.py"),
        [],
        True,
    ]


def without_line_profiler(race: Race) -> None:
    place = race.repository.parent / "line_profiler.py"
    place.write_text("raise ImportError('none here')\n")
    race.asks(PYTHONPATH=str(place.parent))


def not_python(race: Race) -> None:
    race.asks(command=("true",))


def no_python_file(race: Race) -> None:
    race.changed = ["README.md"]


def nothing_called(race: Race) -> None:
    race.files["bench.py"] = ""


def no_such_function(race: Race) -> None:
    race.asks("sums:nothing")


def no_such_module(race: Race) -> None:
    race.asks("nowhere:nothing")


def fails(race: Race) -> None:
    race.files["bench.py"] = "import sys, sums\nsums.total([1])\nsys.exit('too few numbers')\n"


def leaves_at_once(race: Race) -> None:
    race.files["bench.py"] = "import os, sums\nsums.total([1])\nos._exit(0)\n"


def hangs(race: Race) -> None:
    race.files["bench.py"] = "import time\ntime.sleep(60)\n"
    race.request = replace(race.request, bench=replace(race.request.bench, timeout=0.1))


def tells_lies(race: Race) -> None:
    race.files["bench.py"] = (
        "import json, os, pathlib, sums\n"
        "request = json.loads(pathlib.Path(os.environ['PARAVAL_PROFILE']).read_text())\n"
        "pathlib.Path(request['into']).write_text('[[[')\n"
        "os._exit(0)\n"
    )


def tells_without_end(race: Race) -> None:
    tells_lies(race)
    written = "pathlib.Path(request['into']).write_text('[[[')"
    endless = "os.symlink('/dev/zero', request['into'])"
    race.files["bench.py"] = race.files["bench.py"].replace(written, endless)


@pytest.mark.parametrize(
    ("arrange", "problem"),
    [
        (without_line_profiler, "-m pip install line_profiler"),
        (not_python, "`python bench.py`, `python -m module`"),
        (no_python_file, "it changes no Python file"),
        (nothing_called, "called no function in the files that it changes"),
        (no_such_function, "there is no function sums:nothing"),
        (no_such_module, "did not load the module of nowhere:nothing"),
        (fails, "exit code 1: too few numbers"),
        (leaves_at_once, "ended before it could report"),
        (hangs, "timed out after 0.5 s"),
        (tells_lies, "ended before it could report"),
        (tells_without_end, "ended before it could report"),
    ],
)
def test_where_there_is_no_profile_the_reason_is_told_and_the_race_goes_on(
    race: Race, arrange: Callable[[Race], None], problem: str
) -> None:
    arrange(race)
    found = profiled(race.profile())
    assert found.functions == ()
    assert problem in (found.problem or "")


def test_a_function_that_is_not_there_does_not_hide_the_others(race: Race) -> None:
    race.asks("sums:total", "sums:nothing")
    result = race.profile()
    assert "sums:total" in hits(profiled(result))
    assert "there is no function sums:nothing" in result.notes


def test_a_worktree_that_cannot_be_had_is_a_reason_too(race: Race) -> None:
    class NoSlots:
        async def lease(self, tree: str | None = None) -> Any:
            raise WorkspaceError("the disk is full")

    async def perform() -> AttemptResult:
        async with Warden() as warden:
            room = RaceContext(
                request=race.request,
                base=Base(tree="b"),
                processes=ProcessRoom(warden=warden, run_id="run-1"),
                workspaces=NoSlots(),  # type: ignore[arg-type]  # a pool that has nothing to give
                objects=race.run_folder,
                run_folder=race.run_folder,
            )
            room.ends[StepKind.STAGE, "quick", 1] = race._staged("t")
            step = Step(kind=StepKind.PROFILE, candidate="quick", tree="t")
            return await Profiler(room).perform(race._attempt(step, room.base), step)

    assert profiled(run(perform())).problem == "the disk is full"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "file", "seconds", "lines", "line", "hits", "text"]), inner
        )
    ),
    max_leaves=10,
)


@given(anything, anything, anything)
def test_nothing_that_a_process_writes_can_break_the_reading(
    tmp_path_factory: pytest.TempPathFactory, functions: Any, missing: Any, problem: Any
) -> None:
    file = tmp_path_factory.mktemp("seen") / "seen.json"
    data = {"no_profiler": problem, "loaded": missing, "found": [], "functions": functions}
    file.write_text(json.dumps(data))
    found, _ = read_profile(file, ("a:b",))
    assert bool(found.functions) != bool(found.problem)


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("python bench.py", 1),
        ("uv run python3.12 -X dev -u bench.py", 6),
        ("/usr/bin/python3 -m bench", 1),
        ("python -c 1", 1),
        ("python", None),
        ("pytest bench.py", None),
        ("make bench", None),
    ],
)
def test_which_commands_can_be_profiled(command: str, place: int | None) -> None:
    assert program_place(command.split()) == place
