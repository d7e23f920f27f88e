"""Line profiles of the baseline and the winner, from the benchmark's own Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from paraval.processes.children import Warden
from paraval.racing.context import RaceContext
from paraval.racing.findings import ProfileFinding
from paraval.racing.profile.profiler import Profiler, program_place, read_profile
from paraval.racing.request import RaceKeys, RaceRequest
from paraval.racing.steps import BASELINE, Base, Step, StepKind, finding_of, trial_of
from paraval.records import Attempt, AttemptResult, Outcome
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
    one = getattr(sums, 'Sums', None)
    found = sums.total(range(100))
    return one and (found, one().first(), one().second(), sums.in_a_thread())


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
        self.changed: tuple[str, ...] = ("sums.py",)
        self.command: tuple[str, ...] = (sys.executable, "bench.py")
        self.functions: tuple[str, ...] = ()
        self.env: dict[str, str] = {}
        self.timeout = 20.0

    def asks(self, *functions: str, command: tuple[str, ...] = (), **env: str) -> None:
        self.functions, self.env = functions, env
        self.command = command or self.command

    def request(self) -> RaceRequest:
        bench = {"command": self.command, "timeout": self.timeout}
        keys = RaceKeys.model_validate(
            {"test": ["true"], "bench": bench, "functions": self.functions, "env": self.env}
        )
        place = str(self.repository)
        return RaceRequest(name="sums", source=None, folder=place, repo=place, keys=keys)

    def profile(self, candidate: str = "quick") -> AttemptResult:
        return run(self._profile(candidate))

    async def _profile(self, candidate: str) -> AttemptResult:
        base = self._commit({"sums.py": SLOW, "bench.py": BENCH, "pkg/unused.py": SLOW})
        git(self.repository, "checkout", "-q", "-b", "quick")
        tree = self._commit(self.files)
        git(self.repository, "checkout", "-q", "main")
        async with opened(worktrees(self.repository), self.scratch) as pool:
            assert isinstance(pool, Pool)
            result = await self.perform(pool, candidate, base, tree)
            # The only slot was released.
            await (await pool.lease()).release()
        return result

    def _commit(self, files: dict[str, str]) -> str:
        for name, text in files.items():
            (self.repository / name).parent.mkdir(exist_ok=True)
            (self.repository / name).write_text(text)
        git(self.repository, "add", "-A")
        git(self.repository, "commit", "-qm", "a change")
        return git(self.repository, "rev-parse", "HEAD^{tree}")

    async def perform(self, pool: Pool, candidate: str, base: str, tree: str) -> AttemptResult:
        async with Warden() as warden:
            context = RaceContext(
                request=self.request(),
                base=Base(tree=base),
                processes=ProcessRoom(warden=warden, run_id="run-1", homes=Homes(self.run_folder)),
                workspaces=pool,
                objects=self.run_folder / "objects",
                run_folder=self.run_folder,
            )
            step = Step(kind=StepKind.PROFILE)
            if candidate != BASELINE:
                step = replace(step, candidate=candidate, tree=tree, files=self.changed)
            trial = trial_of(step, 0, context.request, context.base)
            folder = str(self.run_folder / "attempts" / "1")
            attempt = Attempt(trial=trial, number=1, folder=folder)
            return await Profiler(context).perform(attempt, step)


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
    """Decorated ones, nested ones, methods with the same bytecode, and in threads too."""
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


def test_every_function_of_the_repository_is_profiled_for_the_baseline(race: Race) -> None:
    """Those that the benchmark calls, from any module below its top."""
    found = profiled(race.profile(BASELINE))
    assert hits(found) == {
        "bench:measure": {5: 1, 6: 1, 7: 1},
        "sums:total": {2: 1, 3: 101, 4: 100, 5: 1},
    }
    assert {one.file for one in found.functions} == {"bench.py", "sums.py"}


def test_a_baseline_whose_benchmark_calls_nothing_has_a_reason_of_its_own(race: Race) -> None:
    race.asks(command=(sys.executable, "-c", "1"))
    problem = profiled(race.profile(BASELINE)).problem or ""
    assert "called no function" in problem
    assert "it changes" not in problem


def test_only_requested_functions_are_profiled(race: Race) -> None:
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


def test_a_profiled_script_sees_what_it_sees_otherwise(race: Race) -> None:
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
    race.changed = ()


def nothing_called(race: Race) -> None:
    race.files["bench.py"] = ""


def no_such_function(race: Race) -> None:
    race.asks("sums:nothing")


def no_such_module(race: Race) -> None:
    race.asks("nowhere:nothing")


def fails(race: Race) -> None:
    race.files["bench.py"] = "import sys, sums\nsums.total([1])\nsys.exit('too few numbers')\n"


def exits_early(race: Race) -> None:
    race.files["bench.py"] = "import os, sums\nsums.total([1])\nos._exit(0)\n"


def hangs(race: Race) -> None:
    race.files["bench.py"] = "import time\ntime.sleep(60)\n"
    race.timeout = 0.1


def writes_lies(race: Race) -> None:
    race.files["bench.py"] = (
        "import json, os, pathlib, sums\n"
        "request = json.loads(pathlib.Path(os.environ['PARAVAL_PROFILE']).read_text())\n"
        "pathlib.Path(request['into']).write_text('[[[')\n"
        "os._exit(0)\n"
    )


def writes_without_end(race: Race) -> None:
    writes_lies(race)
    written = "pathlib.Path(request['into']).write_text('[[[')"
    endless = "os.symlink('/dev/zero', request['into'])"
    race.files["bench.py"] = race.files["bench.py"].replace(written, endless)


@pytest.mark.parametrize(
    ("arrange", "problem"),
    [
        (without_line_profiler, "-m pip install line_profiler"),
        (not_python, "`python bench.py`, `python -m module`"),
        (no_python_file, "it changes no Python file"),
        (nothing_called, "called no function that is profiled"),
        (no_such_function, "there is no function sums:nothing"),
        (no_such_module, "did not load the module of nowhere:nothing"),
        (fails, "exit code 1: too few numbers"),
        (exits_early, "ended before it could report"),
        (hangs, "timed out after 0.5 s"),
        (writes_lies, "ended before it could report"),
        (writes_without_end, "ended before it could report"),
    ],
)
def test_without_a_profile_the_reason_is_recorded_and_the_race_continues(
    race: Race, arrange: Callable[[Race], None], problem: str
) -> None:
    arrange(race)
    found = profiled(race.profile())
    assert found.functions == ()
    assert problem in (found.problem or "")


def test_a_function_that_does_not_exist_does_not_hide_the_others(race: Race) -> None:
    race.asks("sums:total", "sums:nothing")
    result = race.profile()
    assert "sums:total" in hits(profiled(result))
    assert "there is no function sums:nothing" in result.notes


def test_a_worktree_that_cannot_be_opened_is_a_reason_too(race: Race) -> None:
    class NoSlots:
        async def lease(self, tree: str | None = None) -> Any:
            raise WorkspaceError("the disk is full")

    result = run(race.perform(cast("Pool", NoSlots()), "quick", "b", "t"))
    assert profiled(result).problem == "the disk is full"


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
def test_nothing_that_a_process_writes_breaks_the_reading(
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
def test_a_command_that_starts_python_can_be_profiled(command: str, place: int | None) -> None:
    assert program_place(command.split()) == place
