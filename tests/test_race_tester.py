"""TEST steps: real tests in real worktrees, of a baseline and of candidates of every kind."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from paraval.racing.course.steps import BASELINE, Base, Step, StepKind, end_of, finding_of, trial_of
from paraval.racing.step_performer import RaceContext, RacePerformer

from paraval.processes.children import Warden
from paraval.processes.sandbox import why_no_sandbox
from paraval.racing import findings
from paraval.racing.correctness.tester import Tester
from paraval.racing.findings import RunDifference, TestCounts
from paraval.racing.integrity.protection import unusual
from paraval.racing.request import BenchSpec, ComparedOutput, RaceRequest, TestSpec
from paraval.records import (
    Attempt,
    AttemptResult,
    Outcome,
    Plan,
    TrialResult,
    Workspace,
    WorkspaceKind,
)
from paraval.runner.attempt_dirs import HiddenPaths, open_attempt_dirs
from paraval.scratch import SCRATCH_VARIABLE
from paraval.targets.command import ProcessRoom
from paraval.workspaces.pool import Pool
from tests.repositories import make_repository, run_git

T = TypeVar("T")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PROJECT = {
    "mod.py": "def double(x):\n    return 2 * x\n",
    "tests/test_mod.py": """
        import json, pathlib
        import pytest
        import mod

        def test_double():
            assert mod.double(2) == 4

        @pytest.mark.parametrize("x", [0, -1])
        def test_edges(x):
            if getattr(mod, "LAZY", False):
                pytest.skip("lazy")
            assert mod.double(x) == x + x

        def test_writes():
            pathlib.Path("out.json").write_text(json.dumps({"a": mod.double(1), "b": 1}))
            print(mod.double(1))
        """,
    "sub/x.txt": "x\n",
    ".gitignore": "__pycache__/\nout.json\n",
}
NAMES = ["test_double", "test_edges[0]", "test_edges[-1]", "test_writes"]
IDS = [f"tests/test_mod.py::{name}" for name in NAMES]


@dataclass
class Race:
    """A race that has come to its tests."""

    room: RaceContext
    pool: Pool
    repository: Path
    steps: dict[int, Step] = field(default_factory=dict)
    tester: Tester = field(init=False)

    def __post_init__(self) -> None:
        self.tester = Tester(self.room)

    async def test(self, candidate: str = BASELINE, number: int = 1) -> AttemptResult:
        """A candidate is the name of a branch."""
        tree = (
            run_git(self.repository, "rev-parse", f"{candidate}^{{tree}}")
            if (candidate != BASELINE)
            else self.room.base.tree
        )
        step = Step(kind=StepKind.TEST, candidate=candidate, number=number, tree=tree)
        index = len(self.steps)
        self.steps[index] = step
        trial = trial_of(step, index, self.room.request, self.room.base)
        attempt = Attempt(
            trial=trial, number=1, folder=str(self.room.run_folder / f"attempts/{index}-1")
        )
        performer = RacePerformer(self.room, {StepKind.TEST: self.tester}, self.steps, lambda: 0.0)
        result = await performer.perform(attempt)
        told = TrialResult(
            index=index,
            case_id=candidate,
            variant=trial.variant,
            repeat=number,
            result=result,
            attempts=1,
        )
        self.room.ends[StepKind.TEST, candidate, number] = end_of(step, told)
        return result

    async def baseline(self) -> list[AttemptResult]:
        return [await self.test(number=1), await self.test(number=2)]

    def branch(self, name: str, files: Mapping[str, str | None]) -> None:
        run_git(self.repository, "checkout", "-q", "-b", name, "main")
        write(self.repository, files)
        run_git(self.repository, "add", "-A")
        run_git(self.repository, "commit", "-q", "--allow-empty", "-m", name)
        run_git(self.repository, "checkout", "-q", "main")


def write(folder: Path, files: Mapping[str, str | None]) -> None:
    for name, text in files.items():
        path = folder / name
        if text is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


@pytest.fixture(name="place")
def place_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "scratch"))
    return tmp_path


def project(place: Path, **more: str) -> Path:
    repository = place / "project"
    repository.mkdir()
    write(repository, {**PROJECT, **more})
    make_repository(repository)
    return repository


def asked(repository: Path, **asked: Any) -> RaceRequest:
    test = TestSpec(
        command=asked.pop("command", PYTEST),
        timeout=asked.pop("timeout", 30.0),
        junit=asked.pop("junit", "auto"),
    )
    return RaceRequest(
        name="race",
        source=None,
        folder=str(repository),
        repo=str(repository),
        test=test,
        bench=BenchSpec(command=("true",)),
        env=QUICK,
        **asked,
    )


@asynccontextmanager
async def opened(
    repository: Path, request: RaceRequest, *, at_most: int = 2, start: str = "."
) -> AsyncIterator[Race]:
    workspace = Workspace(
        kind=WorkspaceKind.GIT,
        source=str(repository),
        start=start,
        setup=request.setup,
        sandbox=request.sandbox,
    )
    plan = Plan(name="race", source=None, axes={}, variants=(), trials=(), workspace=workspace)
    run_folder = repository.parent / "store" / "run"
    run_folder.mkdir(parents=True)
    said: list[str] = []
    async with (
        Warden() as warden,
        open_attempt_dirs(
            plan,
            warden=warden,
            at_most=at_most,
            hidden=HiddenPaths(store=run_folder.parent),
            say=said.append,
        ) as attempt_dirs,
    ):
        pool = attempt_dirs.workspaces
        assert isinstance(pool, Pool)
        room = RaceContext(
            request=request,
            base=Base(tree=run_git(repository, "rev-parse", "HEAD^{tree}"), start=start),
            processes=ProcessRoom(
                warden=warden,
                run_id="run-1",
                homes=attempt_dirs.homes,
                sandbox_for=attempt_dirs.sandbox_for,
            ),
            workspaces=pool,
            objects=run_folder / "objects",
            run_folder=run_folder,
        )
        yield Race(room=room, pool=pool, repository=repository)
    assert said == [], "nothing is left behind"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def evidence(result: AttemptResult) -> findings.CorrectnessFinding:
    found = finding_of(result).tested
    assert found is not None, result
    return found


def one_difference(result: AttemptResult) -> RunDifference:
    (found,) = evidence(result).differences
    return found


def reason(result: AttemptResult) -> str:
    return "" if result.error is None else result.error.message


async def results_of(
    race: Race, candidates: Mapping[str, Mapping[str, str | None]]
) -> dict[str, AttemptResult]:
    """Of the baseline, which must pass, and then of all candidates at once."""
    for result in await race.baseline():
        assert result.outcome is Outcome.PASSED, reason(result)
    for name, files in candidates.items():
        race.branch(name, files)
    results = await asyncio.gather(*(race.test(name) for name in candidates))
    return dict(zip(candidates, results, strict=True))


# ---- candidates


def test_each_candidate_is_told_by_what_is_different_with_it(place: Path) -> None:
    """More of them than worktrees, all at once; each is tested with its own code."""
    repository = project(place)
    compare = (ComparedOutput(), ComparedOutput(file="out.json"))
    candidates: dict[str, Mapping[str, str | None]] = {
        "right": {"mod.py": "def double(x):\n    return x + x\n"},
        "wrong": {"mod.py": "def double(x):\n    return 2 * abs(x)\n"},
        "lazy": {"mod.py": "LAZY = True\ndef double(x):\n    return 2 * x\n"},
        "broken": {"mod.py": "def double(x:\n"},
        "float": {"mod.py": "def double(x):\n    return 2.0 * x\n"},
        "left": {"mod.py": "import os\nos._exit(0)\n"},
    }

    async def work() -> dict[str, AttemptResult]:
        async with opened(repository, asked(repository, compare=compare)) as race:
            return await results_of(race, candidates)

    results = run(work())
    outcomes = {name: result.outcome for name, result in results.items()}
    assert outcomes == dict.fromkeys(candidates, Outcome.FAILED) | {"right": Outcome.PASSED}

    right = evidence(results["right"])
    assert right.counts == TestCounts(passed=4)
    assert (right.differences, right.flags) == ((), ())

    wrong = evidence(results["wrong"]).differences
    assert [one.name for one in wrong] == ["tests/test_mod.py::test_edges[-1]", "stdout"]
    assert (wrong[0].status, wrong[0].baseline) == ("failed", "passed")
    assert "(-1 + -1)" in wrong[0].message
    assert reason(results["wrong"]).startswith(
        "1 of 4 tests failed: tests/test_mod.py::test_edges[-1]"
    )

    lazy = evidence(results["lazy"])
    assert results["lazy"].exit_code == 0, "it cannot win by skipping tests"
    assert lazy.counts == TestCounts(passed=2, skipped=2)
    assert [one.status for one in lazy.differences if one.scope == "test"] == ["skipped"] * 2

    broken = evidence(results["broken"]).differences
    assert broken[0].status == "error"
    assert "SyntaxError" in broken[0].message
    assert [one.name for one in broken if one.status == "missing" and one.scope == "test"] == IDS

    as_float = evidence(results["float"]).differences
    assert [one.name for one in as_float] == ["out.json"], "2 and 2.0 are equal to a test"
    assert (as_float[0].scope, as_float[0].status) == ("file", "different")
    assert '"a": 2.0' in (as_float[0].actual or "")

    left = evidence(results["left"]).differences
    assert "reported no test results" in reason(results["left"])
    assert [one.name for one in left if one.status == "missing" and one.scope == "test"] == IDS


HANGS = "import time\ntime.sleep(60)\n"
FORKS = """
    import subprocess, sys, time
    for _ in range(50):
        subprocess.Popen(["sleep", "60"], start_new_session=True)
    def double(x):
        return 2 * x
    """
FLOODS = """
    import os
    def double(x):
        for _ in range(400):
            os.write(1, b"x" * 100_000)
        return 2 * x
    """
DELETES = """
    import pathlib, shutil
    shutil.rmtree(pathlib.Path(__file__).parent)
    def double(x):
        return 2 * x
    """
SEGFAULTS = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
KILLS_PARENT = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"
PRINTS = "import os\ndef double(x):\n    os.write(2, b'\\x1b[2J\\0\\xff\\n'); return 3 * x\n"
EDITS = """
    import pathlib
    pathlib.Path(__file__).with_name("tests").joinpath("test_mod.py").write_text("def test(): pass")
    def double(x):
        return 3 * x
    """


def test_a_hostile_candidate_harms_itself_alone(place: Path) -> None:
    """It hangs, forks, floods, deletes, crashes: that is told, and the plain one passes."""
    repository = project(place)
    candidates: dict[str, Mapping[str, str | None]] = {
        "hangs": {"mod.py": HANGS},
        "forks": {"mod.py": FORKS},
        "floods": {"mod.py": FLOODS},
        "deletes": {"mod.py": DELETES},
        "segfaults": {"mod.py": SEGFAULTS},
        "kills": {"mod.py": KILLS_PARENT},
        "prints": {"mod.py": PRINTS},
        "edits": {"mod.py": EDITS},
        "plain": {"mod.py": "def double(x):\n    return x + x\n"},
    }
    shell = ("/bin/sh", "-c", f"{' '.join(PYTEST)} --junitxml=r.xml; exit $?")
    request = asked(repository, command=shell, timeout=15.0, junit="r.xml")

    async def work() -> dict[str, AttemptResult]:
        async with opened(repository, request, at_most=3) as race:
            return await results_of(race, candidates)

    results = run(work())
    outcomes = {name: result.outcome.value for name, result in results.items()}
    assert outcomes == {
        "hangs": "timeout",
        "forks": "passed",
        "floods": "passed",
        "deletes": "failed",
        "segfaults": "crashed",
        "kills": "crashed",
        "prints": "failed",
        "edits": "failed",
        "plain": "passed",
    }
    assert reason(results["hangs"]) == "timed out after 15 s"
    assert one_difference(results["hangs"]).scope == "exit_code"
    assert any("left 50 processes running" in note for note in results["forks"].notes)
    assert any("deleted" in flag for flag in evidence(results["deletes"]).flags)
    assert any("tests/test_mod.py" in flag for flag in evidence(results["edits"]).flags)
    assert "SIGKILL" in reason(results["kills"])
    assert evidence(results["plain"]).flags == ()
    assert "SIGSEGV" in reason(results["segfaults"])
    for result in results.values():
        assert result.output is not None
        json.dumps(result.output.metadata, ensure_ascii=False).encode()  # as the store keeps it


def test_a_report_that_is_a_pipe_or_was_there_before_tells_nothing(place: Path) -> None:
    """A report in the repository, left as it is by a candidate that ends at once, is not its."""
    repository = project(place)
    command = (*PYTEST, "--junitxml=r.xml")
    candidates: dict[str, Mapping[str, str | None]] = {
        "pipe": {"mod.py": "import os\nos.mkfifo('r.xml')\nos._exit(0)\n"},
        "old": {"mod.py": "import os\nos._exit(0)\n", "r.xml": "<testsuite/>"},
    }

    async def work() -> dict[str, AttemptResult]:
        async with opened(repository, asked(repository, command=command)) as race:
            return await results_of(race, candidates)

    for result in run(work()).values():
        assert result.outcome is Outcome.FAILED
        assert "reported no test results" in reason(result)


def test_a_candidate_without_the_folder_of_the_tests_fails(place: Path) -> None:
    repository = project(place)

    async def work() -> AttemptResult:
        request = asked(repository, command=("true",))
        async with opened(repository, request, start="sub") as race:
            return (await results_of(race, {"gone": {"sub/x.txt": None}}))["gone"]

    result = run(work())
    assert result.outcome is Outcome.FAILED
    assert "'sub'" in reason(result)


def test_nothing_of_a_candidate_is_there_for_the_next(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its files, not its caches, not its home; nor is anything of the engine's environment."""
    monkeypatch.setenv("SECRET", "secret")
    repository = project(place)
    look = (
        "import os, pathlib, sys; home = pathlib.Path(os.environ['HOME'])\n"
        "print(sorted(map(str, pathlib.Path('.').rglob('*.dirt'))), sorted(os.listdir(home)),\n"
        "      os.environ.get('SECRET'), os.environ.get('PYTHONPATH'),\n"
        "      os.environ.get('PYTHONDONTWRITEBYTECODE'))\n"
        "import mod\n"
    )
    dirt = (
        "import os, pathlib\n"
        "for folder in ('.', 'sub', os.environ['HOME']):\n"
        "    pathlib.Path(folder, 'x.dirt').write_text('x')\n"
    )
    request = asked(repository, command=(sys.executable, "-c", look), compare=(ComparedOutput(),))

    async def work() -> list[AttemptResult]:
        async with opened(repository, request, at_most=1) as race:
            results = await results_of(race, {"dirty": {"mod.py": dirt}, "next": {"sub/y": "y"}})
            return list(results.values())

    assert [result.outcome for result in run(work())] == [Outcome.PASSED] * 2


@pytest.mark.skipif(why_no_sandbox() is not None, reason="there is no sandbox here")
def test_in_a_sandbox_a_report_can_be_written_and_a_signal_is_told(place: Path) -> None:
    repository = project(place)

    async def work() -> dict[str, AttemptResult]:
        async with opened(repository, asked(repository, sandbox=True)) as race:
            return await results_of(race, {"plain": {}, "segfaults": {"mod.py": SEGFAULTS}})

    results = run(work())
    assert evidence(results["plain"]).counts == TestCounts(passed=4)
    assert results["segfaults"].outcome is Outcome.CRASHED
    assert "SIGSEGV" in reason(results["segfaults"])


# ---- the baseline


def test_the_baseline_keeps_what_candidates_are_held_against(place: Path) -> None:
    repository = project(place)
    compare = (ComparedOutput(), ComparedOutput(file="out.json"))

    async def work() -> tuple[list[AttemptResult], Path]:
        async with opened(repository, asked(repository, compare=compare)) as race:
            return await race.baseline(), race.room.run_folder

    (first, second), folder = run(work())
    assert (first.outcome, second.outcome) == (Outcome.PASSED, Outcome.PASSED)
    assert evidence(second).unstable == ()
    assert evidence(second).counts == TestCounts(passed=4)
    kept = json.loads((folder / first.artifacts["tests.json"]).read_text())
    assert [one["id"] for one in kept["tests"]] == IDS
    assert (folder / first.artifacts["compared.2"]).read_text() == '{"a": 2, "b": 1}'
    assert (folder / first.artifacts["stdout"]).is_file()


FLAKY = """
    import pathlib, time
    def test_stable(): pass
    def test_flaky():
        # Its first run alone makes the file.
        marker = pathlib.Path({marker!r})
        with_luck = marker.exists()
        marker.touch()
        assert with_luck
    """


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_whichever_run_of_the_baseline_ends_second_tells_what_is_unstable(
    place: Path, order: tuple[int, int]
) -> None:
    """Candidates are not compared in that, even where it is why they end with another code."""
    flaky = textwrap.dedent(FLAKY).format(marker=str(place / "marker"))
    repository = project(place, **{"tests/test_flaky.py": flaky})

    async def work() -> list[AttemptResult]:
        async with opened(repository, asked(repository)) as race:
            results = [await race.test(number=number) for number in order]
            (place / "marker").unlink()
            race.branch("unlucky", {})
            return [*results, await race.test("unlucky")]

    first, second, unlucky = run(work())
    name = "tests/test_flaky.py::test_flaky"
    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.PASSED)
    assert evidence(first).failing == (name,)
    assert (evidence(first).unstable, evidence(second).unstable) == ((), (name,))
    assert unlucky.exit_code == 1
    assert unlucky.outcome is Outcome.PASSED


def test_two_runs_of_the_baseline_at_once_find_what_is_unstable(place: Path) -> None:
    repository = project(place)
    command = (sys.executable, "-c", "import os; print(os.getpid())")
    request = asked(repository, command=command, compare=(ComparedOutput(),))

    async def work() -> tuple[AttemptResult, ...]:
        async with opened(repository, request) as race:
            return await asyncio.gather(race.test(number=1), race.test(number=2))

    assert "stdout" in {name for result in run(work()) for name in evidence(result).unstable}


def test_another_engine_compares_with_what_the_first_one_kept(place: Path) -> None:
    """A resume: only the ends and the run's folder are left. Without that, nothing is compared."""
    repository = project(place)
    compare = (ComparedOutput(), ComparedOutput(file="out.json"))

    async def work() -> list[AttemptResult]:
        async with opened(repository, asked(repository, compare=compare)) as race:
            await race.baseline()
            race.branch("wrong", {"mod.py": "def double(x):\n    return 3 * x\n"})
            race.tester = Tester(race.room)
            found = await race.test("wrong")
            for path in race.room.run_folder.rglob("tests.json"):
                path.unlink()
            race.tester = Tester(race.room)
            return [found, await race.test("wrong")]

    found, gone = run(work())
    assert [one.scope for one in evidence(found).differences] == ["test"] * 2 + ["stdout", "file"]
    assert evidence(found).differences[-1].expected == '{"a": 2, "b": 1}'
    assert gone.outcome is Outcome.INFRA_ERROR
    assert gone.error is not None
    assert gone.error.lasting


@pytest.mark.parametrize(
    ("asking", "words"),
    [
        ({"command": ("sh", "-c", "echo no; echo why >&2; exit 7")}, "exit code 7: why"),
        ({"command": ("true",), "compare": (ComparedOutput(file="out"),)}, "left no 'out'"),
        ({"command": ("true",), "junit": "r.xml"}, "reported no results"),
        ({"command": (*PYTEST[:-1], "sub")}, "exit code 5"),
    ],
)
def test_a_baseline_that_nothing_can_be_held_against_fails(
    place: Path, asking: dict[str, Any], words: str
) -> None:
    repository = project(place)

    async def work() -> AttemptResult:
        async with opened(repository, asked(repository, **asking)) as race:
            return await race.test()

    result = run(work())
    assert result.outcome is Outcome.FAILED
    assert words in reason(result)


def test_a_failing_baseline_names_its_tests(place: Path) -> None:
    repository = project(place, **{"mod.py": "def double(x):\n    return 3 * x\n"})

    async def work() -> AttemptResult:
        async with opened(repository, asked(repository)) as race:
            return await race.test()

    result = run(work())
    assert evidence(result).failing == (IDS[0], IDS[2])
    assert reason(result) == f"2 of 4 tests failed: {IDS[0]}, {IDS[2]}"


def test_a_command_that_cannot_be_started_is_no_ones_failure(place: Path) -> None:
    repository = project(place)

    async def work() -> AttemptResult:
        async with opened(repository, asked(repository, command=("no-such-program",))) as race:
            return await race.test()

    result = run(work())
    assert result.outcome is Outcome.INFRA_ERROR
    assert result.error is not None
    assert result.error.lasting
    assert "no-such-program" in result.error.message


def test_without_single_tests_the_exit_code_counts(place: Path) -> None:
    repository = project(place)
    command = ("{python}", "-c", "import mod; assert mod.double(1) == 2, 'not doubled'")

    async def work() -> dict[str, AttemptResult]:
        async with opened(repository, asked(repository, command=command)) as race:
            return await results_of(race, {"wrong": {"mod.py": "def double(x): return 3"}})

    result = run(work())["wrong"]
    assert evidence(result).counts is None
    found = one_difference(result)
    assert (found.scope, found.expected, found.actual) == ("exit_code", "0", "1")
    assert "not doubled" in found.message
    assert reason(result) == "exit code 1: AssertionError: not doubled"


def test_a_folder_that_cannot_be_written_to_is_no_ones_failure(place: Path) -> None:
    repository = project(place)

    async def work() -> AttemptResult:
        async with opened(repository, asked(repository, command=("true",))) as race:
            (race.room.run_folder / "attempts").write_text("a file, where a folder should be")
            return await race.test()

    result = run(work())
    assert result.outcome is Outcome.INFRA_ERROR
    assert "cannot be saved" in reason(result)


# ---- worktrees


def test_a_cancel_gives_the_worktree_back_and_leaves_no_process(place: Path) -> None:
    repository = project(place)
    command = (sys.executable, "-c", "import time; print('on', flush=True); time.sleep(60)")

    async def work() -> None:
        async with opened(repository, asked(repository, command=command), at_most=1) as race:
            for _ in range(3):
                task = asyncio.create_task(race.test())
                await asyncio.sleep(0.3)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            lease = await asyncio.wait_for(race.pool.lease(), 10)
            await lease.release()

    run(work())


def test_worktrees_are_given_back_at_once(place: Path) -> None:
    """Nine that wait half a second each, in three worktrees: side by side, and no deadlock."""
    repository = project(place)
    command = (sys.executable, "-c", "import time; time.sleep(0.5)")
    names = [f"c{number}" for number in range(9)]

    async def work() -> float:
        async with opened(repository, asked(repository, command=command), at_most=3) as race:
            await race.baseline()
            for name in names:
                race.branch(name, {"mod.py": f"NAME = {name!r}\n"})
            began = time.perf_counter()
            results = await asyncio.gather(*map(race.test, names))
            assert {result.outcome for result in results} == {Outcome.PASSED}
            return time.perf_counter() - began

    assert run(work()) < 9 * 0.5


def test_a_worktree_that_cannot_be_had_is_no_ones_failure(place: Path) -> None:
    repository = project(place)

    async def work() -> list[AttemptResult]:
        async with opened(repository, asked(repository, command=("true",))) as race:
            await race.baseline()
            step = Step(kind=StepKind.TEST, candidate="none", tree="0" * 40)
            trial = replace(
                trial_of(step, 99, race.room.request, race.room.base), key="no such tree"
            )
            attempt = Attempt(trial=trial, number=1, folder=str(place / "attempt"))
            unlaid = await race.tester.perform(attempt, step)
            await race.pool.close()
            return [unlaid, await race.tester.perform(attempt, step)]

    for result in run(work()):
        assert result.outcome is Outcome.INFRA_ERROR
        assert reason(result)


# ---- what tests do with the baseline too

LEAVES = """
    import pathlib, random, string, tempfile

    def test_leaves():
        name = "".join(random.choices(string.ascii_lowercase, k=8))
        here = pathlib.Path(__file__).parent
        (here / f"made_{name}.py").write_text("x = 1\\n")
        for _ in range(30):
            tempfile.mkstemp(suffix=".py", dir=here)
"""


def test_tests_that_leave_files_under_names_that_they_make_up_fail_no_candidate(
    place: Path,
) -> None:
    repository = project(place, **{"tests/test_leaves.py": LEAVES})
    hidden = "pathlib.Path('tests/conftest.py').write_text('')"
    candidates: dict[str, dict[str, str | None]] = {
        "right": {"mod.py": "def double(x):\n    return x + x\n"},
        "cheats": {"mod.py": f"import pathlib\n{hidden}\ndef double(x):\n    return 2 * x\n"},
    }

    async def work() -> dict[str, AttemptResult]:
        async with opened(repository, asked(repository)) as race:
            return await results_of(race, candidates)

    results = run(work())
    assert evidence(results["right"]).flags == ()
    assert evidence(results["cheats"]).flags == ("added tests/conftest.py while it ran",)


@pytest.mark.parametrize(
    ("flag", "one", "other", "is_usual"),
    [
        ("added tests/tmpab12cd_3.py", ["added tests/tmpzz12cd_9.py"], [], True),
        ("added tests/xqzw.py", ["added tests/abcd.py"], ["added tests/efgh.py"], True),
        ("added tests/xqzw.py", ["added tests/abcd.py"], ["added tests/abcd.py"], False),
        ("added tests/conftest.py", ["added tests/abcd.py"], ["added tests/efgh.py"], False),
        ("added other/xqzw.py", ["added tests/abcd.py"], ["added tests/efgh.py"], False),
        ("changed tests/test_2.py", ["changed tests/test_1.py"], [], False),
        ("changed tests/b.db", ["changed tests/a.db"], [], True),
        ("changed tests/a.db", ["changed tests/a.db"], ["changed tests/a.db"], True),
        ("deleted tests/xqzw.py", ["added tests/abcd.py"], ["added tests/efgh.py"], False),
    ],
)
def test_what_the_baseline_does_in_either_run_is_usual_and_where_they_differ_all_of_its_kind(
    flag: str, one: list[str], other: list[str], is_usual: bool
) -> None:
    told, *habits = (
        [f"{done} while it ran" for done in run_of_tests] for run_of_tests in ([flag], one, other)
    )
    assert (unusual(told, habits) == ()) is is_usual


def test_what_is_no_file_is_usual_only_as_it_is() -> None:
    assert unusual(["deleted .git"], [["changed .git/config"], []]) == ("deleted .git",)
    assert unusual(["deleted .git"], [[], ["deleted .git"]]) == ()
    assert unusual(["deleted .git"], []) == ("deleted .git",)


# ---- setup


def test_a_candidate_is_tested_with_what_setup_makes_of_its_own_code(place: Path) -> None:
    """One that setup fails with has failed by itself; the others go on."""
    build = "test -f mod.py || { echo no module to build >&2; exit 9; }; cp mod.py built.py"
    look = "python3 -c 'import built; assert built.double(2) == 4'"
    repository = project(place, **{".gitignore": "built.py\n__pycache__/\n"})
    request = asked(repository, setup=("sh", "-c", build), command=("sh", "-c", look), junit="off")
    candidates: dict[str, dict[str, str | None]] = {
        "right": {"mod.py": "def double(x):\n    return x + x\n"},
        "wrong": {"mod.py": "def double(x):\n    return 5\n"},
        "unbuilt": {"mod.py": None},
    }

    async def work() -> dict[str, AttemptResult]:
        async with opened(repository, request) as race:
            return await results_of(race, candidates)

    results = run(work())
    outcomes = {name: result.outcome for name, result in results.items()}
    assert outcomes == {
        "right": Outcome.PASSED,
        "wrong": Outcome.FAILED,
        "unbuilt": Outcome.CRASHED,
    }
    assert "setup failed with exit code 9: no module to build" in reason(results["unbuilt"])
    assert results["unbuilt"].error is not None
    assert not results["unbuilt"].error.lasting
