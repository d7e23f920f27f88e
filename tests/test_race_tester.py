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

from paraval.processes.children import Warden
from paraval.processes.sandbox import why_no_sandbox
from paraval.racing import findings
from paraval.racing.context import RaceContext, RacePerformer
from paraval.racing.correctness.tester import Tester
from paraval.racing.findings import TestCounts
from paraval.racing.integrity.protection import unusual
from paraval.racing.request import RaceKeys, RaceRequest
from paraval.racing.steps import BASELINE, Base, Step, StepKind, end_of, finding_of, trial_of
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
Files = Mapping[str, str | None]
PASSED, FAILED = Outcome.PASSED, Outcome.FAILED
PYTHON = sys.executable
PYTEST = (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
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
    ".gitignore": "__pycache__/\nout.json\nbuilt.py\n",
}
NAMES = ["test_double", "test_edges[0]", "test_edges[-1]", "test_writes"]
IDS = [f"tests/test_mod.py::{name}" for name in NAMES]
SAME: Files = {"mod.py": "def double(x):\n    return x + x\n"}
WRONG: Files = {"mod.py": "def double(x):\n    return 3 * x\n"}


@dataclass
class Race:
    """A race that has come to its tests."""

    context: RaceContext
    pool: Pool
    repository: Path
    steps: dict[int, Step] = field(default_factory=dict)
    tester: Tester = field(init=False)

    def __post_init__(self) -> None:
        self.tester = Tester(self.context)

    async def test(self, candidate: str = BASELINE, number: int = 1) -> AttemptResult:
        """A candidate is the name of a branch."""
        tree = self.context.base.tree
        if candidate != BASELINE:
            tree = run_git(self.repository, "rev-parse", f"{candidate}^{{tree}}")
        step = Step(kind=StepKind.TEST, candidate=candidate, number=number, tree=tree)
        index = len(self.steps)
        self.steps[index] = step
        trial = trial_of(step, index, self.context.request, self.context.base)
        folder = self.context.run_folder / f"attempts/{index}-1"
        performer = RacePerformer(
            self.context, {StepKind.TEST: self.tester}, self.steps, lambda: 0.0
        )
        result = await performer.perform(Attempt(trial=trial, number=1, folder=str(folder)))
        ended = TrialResult(
            index=index,
            case_id=candidate,
            variant=trial.variant,
            repeat=number,
            result=result,
            attempts=1,
        )
        self.context.ends[StepKind.TEST, candidate, number] = end_of(step, ended)
        return result

    async def baseline(self) -> list[AttemptResult]:
        return [await self.test(number=1), await self.test(number=2)]

    def branch(self, name: str, files: Files) -> None:
        run_git(self.repository, "checkout", "-q", "-b", name, "main")
        write(self.repository, files)
        run_git(self.repository, "add", "-A")
        run_git(self.repository, "commit", "-q", "--allow-empty", "-m", name)
        run_git(self.repository, "checkout", "-q", "main")


def write(folder: Path, files: Files) -> None:
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


@asynccontextmanager
async def opened(
    place: Path,
    files: Files | None = None,
    *,
    at_most: int = 2,
    start: str = ".",
    command: tuple[str, ...] = PYTEST,
    timeout_s: float = 30.0,
    **keys: Any,
) -> AsyncIterator[Race]:
    """A race on the project with more files, and with these keys."""
    repository, run_folder = place / "project", place / "store" / "run"
    repository.mkdir()
    run_folder.mkdir(parents=True)
    write(repository, {**PROJECT, **(files or {})})
    make_repository(repository)
    test = {"command": command, "timeout": timeout_s}
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    request = RaceRequest(
        name="race",
        source=None,
        folder=str(repository),
        repo=str(repository),
        keys=RaceKeys.model_validate({"test": test, "bench": ["true"], "env": env, **keys}),
    )
    workspace = Workspace(
        kind=WorkspaceKind.GIT,
        source=str(repository),
        start=start,
        setup=request.keys.setup or (),
        sandbox=request.is_sandboxed,
    )
    plan = Plan(name="race", source=None, axes={}, variants=(), trials=(), workspace=workspace)
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
        context = RaceContext(
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
        yield Race(context=context, pool=pool, repository=repository)
    assert said == [], "nothing is left behind"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def results_of(
    place: Path, candidates: Mapping[str, Files], **asked: Any
) -> dict[str, AttemptResult]:
    """Of candidates that are tested in parallel, with a baseline that passes."""

    async def work() -> dict[str, AttemptResult]:
        async with opened(place, **asked) as race:
            for result in await race.baseline():
                assert result.outcome is PASSED, reason(result)
            for name, files in candidates.items():
                race.branch(name, files)
            results = await asyncio.gather(*(race.test(name) for name in candidates))
            return dict(zip(candidates, results, strict=True))

    return run(work())


def baseline_of(place: Path, **asked: Any) -> list[AttemptResult]:
    async def work() -> list[AttemptResult]:
        async with opened(place, **asked) as race:
            return await race.baseline()

    return run(work())


def evidence(result: AttemptResult) -> findings.CorrectnessFinding:
    found = finding_of(result).tested
    assert found is not None, result
    return found


def changes(result: AttemptResult) -> list[tuple[str, str]]:
    return [(one.name, one.status) for one in evidence(result).differences]


def reason(result: AttemptResult) -> str:
    return "" if result.error is None else result.error.message


# ---- candidates


def test_each_candidate_is_tested_with_its_own_code(place: Path) -> None:
    """Although there are more of them than worktrees."""
    candidates: dict[str, Files] = {
        "right": SAME,
        "wrong": {"mod.py": "def double(x):\n    return 2 * abs(x)\n"},
        "lazy": {"mod.py": "LAZY = True\ndef double(x):\n    return 2 * x\n"},
        "broken": {"mod.py": "def double(x:\n"},
        "float": {"mod.py": "def double(x):\n    return 2.0 * x\n"},
        "exits": {"mod.py": "import os\nos._exit(0)\n"},
    }
    results = results_of(place, candidates, compare=["stdout", "out.json"])
    outcomes = {name: result.outcome for name, result in results.items()}
    assert outcomes == dict.fromkeys(candidates, FAILED) | {"right": PASSED}
    assert evidence(results["right"]) == findings.CorrectnessFinding(counts=TestCounts(passed=4))

    assert changes(results["wrong"]) == [(IDS[2], "failed"), ("stdout", "different")]
    assert "(-1 + -1)" in evidence(results["wrong"]).differences[0].message
    assert reason(results["wrong"]).startswith(f"1 of 4 tests failed: {IDS[2]}")

    assert results["lazy"].exit_code == 0, "it cannot win by skipping tests"
    assert evidence(results["lazy"]).counts == TestCounts(passed=2, skipped=2)
    assert changes(results["lazy"])[:2] == [(IDS[1], "skipped"), (IDS[2], "skipped")]

    first, *others = changes(results["broken"])
    assert first == ("tests/test_mod.py", "error")
    assert "SyntaxError" in evidence(results["broken"]).differences[0].message
    assert others[:4] == [(name, "missing") for name in IDS]

    assert changes(results["float"]) == [("out.json", "different")], "2 == 2.0 in a test"
    assert "reported no test results" in reason(results["exits"])
    assert changes(results["exits"])[:4] == [(name, "missing") for name in IDS]


HOSTILE = {
    "hangs": "import time\ntime.sleep(60)\n",
    "forks": """
        import subprocess, sys, time
        for _ in range(50):
            subprocess.Popen(["sleep", "60"], start_new_session=True)
        def double(x):
            return 2 * x
        """,
    "floods": """
        import os
        def double(x):
            for _ in range(400):
                os.write(1, b"x" * 100_000)
            return 2 * x
        """,
    "deletes": """
        import pathlib, shutil
        shutil.rmtree(pathlib.Path(__file__).parent)
        def double(x):
            return 2 * x
        """,
    "segfaults": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "kills": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
    "prints": "import os\ndef double(x):\n    os.write(2, b'\\x1b[2J\\0\\xff\\n'); return 3 * x\n",
    "edits": """
        import pathlib
        tests = pathlib.Path(__file__).with_name("tests")
        (tests / "test_mod.py").write_text("def test(): pass")
        def double(x):
            return 3 * x
        """,
    "pipes": """
        import os
        options = os.environ["PYTEST_ADDOPTS"].split()
        (report,) = [one.partition("=")[2] for one in options if one.startswith("--junitxml=")]
        os.mkfifo(report)
        os._exit(0)
        """,
}
SEGFAULTS: Files = {"mod.py": HOSTILE["segfaults"]}


def test_a_hostile_candidate_harms_only_itself(place: Path) -> None:
    """It hangs, forks, floods, deletes, crashes: the result shows it, and a plain one passes."""
    script = ("/bin/sh", "-c", f"{' '.join(PYTEST)}; exit $?")
    candidates = {**{name: {"mod.py": code} for name, code in HOSTILE.items()}, "plain": SAME}
    results = results_of(place, candidates, command=script, timeout_s=15.0, at_most=3)
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
        "pipes": "failed",
        "plain": "passed",
    }
    assert reason(results["hangs"]) == "timed out after 15 s"
    assert changes(results["hangs"]) == [("timed out after 15 s", "different")]
    assert any("left 50 processes running" in note for note in results["forks"].notes)
    assert any("deleted" in flag for flag in evidence(results["deletes"]).flags)
    assert any("tests/test_mod.py" in flag for flag in evidence(results["edits"]).flags)
    assert "SIGKILL" in reason(results["kills"])
    assert "SIGSEGV" in reason(results["segfaults"])
    assert "reported no test results" in reason(results["pipes"])
    assert evidence(results["plain"]).flags == ()
    for result in results.values():
        assert result.output is not None
        json.dumps(result.output.metadata, ensure_ascii=False).encode()  # as the store keeps it


def test_a_candidate_without_the_folder_of_the_tests_fails(place: Path) -> None:
    gone = results_of(place, {"gone": {"sub/x.txt": None}}, command=("true",), start="sub")["gone"]
    assert gone.outcome is FAILED
    assert "'sub'" in reason(gone)


def test_nothing_of_a_candidate_is_there_for_the_next(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its files, not its home; nor is anything of the engine's environment."""
    monkeypatch.setenv("SECRET", "secret")
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
    candidates: dict[str, Files] = {"dirty": {"mod.py": dirt}, "next": {"sub/y": "y"}}
    command = (PYTHON, "-c", look)
    results = results_of(place, candidates, command=command, compare=["stdout"], at_most=1)
    assert [result.outcome for result in results.values()] == [PASSED] * 2


@pytest.mark.skipif(why_no_sandbox() is not None, reason="there is no sandbox here")
def test_in_a_sandbox_a_report_is_written_and_a_signal_is_named(place: Path) -> None:
    results = results_of(place, {"plain": {}, "segfaults": SEGFAULTS}, sandbox=True)
    assert evidence(results["plain"]).counts == TestCounts(passed=4)
    assert results["segfaults"].outcome is Outcome.CRASHED
    assert "SIGSEGV" in reason(results["segfaults"])


def test_without_single_tests_the_exit_code_counts(place: Path) -> None:
    command = ("{python}", "-c", "import mod; assert mod.double(1) == 2, 'not doubled'")
    wrong = results_of(place, {"wrong": WRONG}, command=command)["wrong"]
    assert evidence(wrong).counts is None
    (found,) = evidence(wrong).differences
    assert (found.scope, found.name, found.baseline) == ("exit_code", "exit code 1", "0")
    assert "not doubled" in found.message
    assert reason(wrong) == "exit code 1: AssertionError: not doubled"


def test_a_candidate_is_tested_with_what_setup_makes_of_its_own_code(place: Path) -> None:
    """One with which setup fails has failed by itself; the others continue."""
    build = "test -f mod.py || { echo no module to build >&2; exit 9; }; cp mod.py built.py"
    look = (PYTHON, "-c", "import built; assert built.double(2) == 4")
    candidates: dict[str, Files] = {"right": SAME, "wrong": WRONG, "unbuilt": {"mod.py": None}}
    results = results_of(place, candidates, setup=build, command=look)
    assert [result.outcome for result in results.values()] == [PASSED, FAILED, Outcome.CRASHED]
    unbuilt = results["unbuilt"].error
    assert unbuilt is not None
    assert "setup failed with exit code 9: no module to build" in unbuilt.message
    assert not unbuilt.lasting


# ---- the baseline


def test_the_baseline_keeps_what_candidates_are_compared_with(place: Path) -> None:
    first, second = baseline_of(place, compare=["stdout", "out.json"])
    assert (first.outcome, second.outcome) == (PASSED, PASSED)
    assert evidence(second) == findings.CorrectnessFinding(counts=TestCounts(passed=4))
    folder = place / "store" / "run"
    kept = json.loads((folder / first.artifacts["tests.json"]).read_text())
    assert [one["id"] for one in kept["report"]["tests"]] == IDS
    assert set(kept["outputs"]) == {"stdout", "out.json"}
    assert (folder / first.artifacts["stdout"]).is_file()


FLAKY = """
    import pathlib, time
    def test_stable(): pass
    def test_flaky():
        # Only its first run makes the file.
        marker = pathlib.Path({marker!r})
        with_luck = marker.exists()
        marker.touch()
        assert with_luck
    """


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_the_second_run_of_the_baseline_finds_what_is_unstable(
    place: Path, order: tuple[int, int]
) -> None:
    """Whichever it is. It is not compared, even where it explains another exit code."""
    flaky = textwrap.dedent(FLAKY).format(marker=str(place / "marker"))

    async def work() -> list[AttemptResult]:
        async with opened(place, {"tests/test_flaky.py": flaky}) as race:
            results = [await race.test(number=number) for number in order]
            (place / "marker").unlink()
            race.branch("unlucky", {})
            return [*results, await race.test("unlucky")]

    first, second, unlucky = run(work())
    name = "tests/test_flaky.py::test_flaky"
    assert (first.outcome, second.outcome) == (FAILED, PASSED)
    assert evidence(first).failing == (name,)
    assert (evidence(first).unstable, evidence(second).unstable) == ((), (name,))
    assert (unlucky.exit_code, unlucky.outcome) == (1, PASSED)


def test_two_runs_of_the_baseline_in_parallel_find_what_is_unstable(place: Path) -> None:
    command = (PYTHON, "-c", "import os; print(os.getpid())")

    async def work() -> tuple[AttemptResult, ...]:
        async with opened(place, command=command, compare=["stdout"]) as race:
            return await asyncio.gather(race.test(number=1), race.test(number=2))

    assert "stdout" in {name for result in run(work()) for name in evidence(result).unstable}


def test_a_resumed_race_compares_with_the_stored_run_and_never_without_it(place: Path) -> None:
    """Only the ends and the run's folder are left."""

    async def work() -> list[AttemptResult]:
        async with opened(place, compare=["stdout", "out.json"]) as race:
            await race.baseline()
            race.branch("wrong", WRONG)
            race.tester = Tester(race.context)
            found = await race.test("wrong")
            for path in race.context.run_folder.rglob("tests.json"):
                path.unlink()
            race.tester = Tester(race.context)
            return [found, await race.test("wrong")]

    found, gone = run(work())
    assert [one.scope for one in evidence(found).differences] == ["test"] * 2 + ["stdout", "file"]
    assert gone.outcome is Outcome.INFRA_ERROR
    assert gone.error is not None
    assert gone.error.lasting


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"command": ("sh", "-c", "echo no; echo why >&2; exit 7")}, "exit code 7: why"),
        ({"command": ("true",), "compare": ["out"]}, "left no 'out'"),
        ({"command": (*PYTEST[:-1], "sub")}, "exit code 5"),
        ({"files": WRONG}, f"2 of 4 tests failed: {IDS[0]}, {IDS[2]}"),
    ],
    ids=["exit code", "no output", "no tests", "failing tests"],
)
def test_a_baseline_that_cannot_be_compared_with_fails(
    place: Path, asked: dict[str, Any], words: str
) -> None:
    result, _ = baseline_of(place, **asked)
    assert result.outcome is FAILED
    assert words in reason(result)
    if "files" in asked:
        assert evidence(result).failing == (IDS[0], IDS[2])


def test_a_baseline_whose_report_cannot_be_read_has_a_note_that_its_exit_code_counts(
    place: Path,
) -> None:
    result, _ = baseline_of(place, command=("sh", "-c", "echo '<testsuite>' >{junit}"))
    assert result.outcome is PASSED
    assert evidence(result).counts is None
    assert any(note.startswith("only its exit code counts: its JUnit") for note in result.notes)


# ---- no one's failure


def test_a_command_that_cannot_be_started_is_no_ones_failure(place: Path) -> None:
    result, _ = baseline_of(place, command=("no-such-program",))
    assert result.outcome is Outcome.INFRA_ERROR
    assert result.error is not None
    assert result.error.lasting
    assert "no-such-program" in result.error.message


def test_a_folder_that_cannot_be_written_to_is_no_ones_failure(place: Path) -> None:
    async def work() -> AttemptResult:
        async with opened(place, command=("true",)) as race:
            (race.context.run_folder / "attempts").write_text("a file, where a folder should be")
            return await race.test()

    result = run(work())
    assert result.outcome is Outcome.INFRA_ERROR
    assert "cannot be saved" in reason(result)


def test_a_worktree_that_cannot_be_opened_is_no_ones_failure(place: Path) -> None:
    async def work() -> list[AttemptResult]:
        async with opened(place, command=("true",)) as race:
            await race.baseline()
            step = Step(kind=StepKind.TEST, candidate="none", tree="0" * 40)
            trial = trial_of(step, 99, race.context.request, race.context.base)
            attempt = Attempt(
                trial=replace(trial, key="no such tree"), number=1, folder=str(place / "attempt")
            )
            unknown = await race.tester.perform(attempt, step)
            await race.pool.close()
            return [unknown, await race.tester.perform(attempt, step)]

    for result in run(work()):
        assert result.outcome is Outcome.INFRA_ERROR
        assert reason(result)


# ---- worktrees


def test_a_cancel_releases_the_worktree_and_leaves_no_process(place: Path) -> None:
    command = (PYTHON, "-c", "import time; print('on', flush=True); time.sleep(60)")

    async def work() -> None:
        async with opened(place, command=command, at_most=1) as race:
            for _ in range(3):
                task = asyncio.create_task(race.test())
                await asyncio.sleep(0.3)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            lease = await asyncio.wait_for(race.pool.lease(), 10)
            await lease.release()

    run(work())


def test_candidates_are_tested_in_parallel(place: Path) -> None:
    """Nine that wait half a second each, in three worktrees."""
    names = [f"c{number}" for number in range(9)]

    async def work() -> float:
        command = (PYTHON, "-c", "import time; time.sleep(0.5)")
        async with opened(place, command=command, at_most=3) as race:
            await race.baseline()
            for name in names:
                race.branch(name, {"mod.py": f"NAME = {name!r}\n"})
            began = time.perf_counter()
            results = await asyncio.gather(*map(race.test, names))
            assert {result.outcome for result in results} == {PASSED}
            return time.perf_counter() - began

    assert run(work()) < 9 * 0.5


# ---- what tests also do with the baseline

LEAVES = """
    import pathlib, random, string, tempfile

    def test_leaves():
        name = "".join(random.choices(string.ascii_lowercase, k=8))
        here = pathlib.Path(__file__).parent
        (here / f"made_{name}.py").write_text("x = 1\\n")
        for _ in range(30):
            tempfile.mkstemp(suffix=".py", dir=here)
"""


def test_files_with_generated_names_that_tests_leave_are_no_flag(place: Path) -> None:
    hidden = "pathlib.Path('tests/conftest.py').write_text('')"
    cheats = {"mod.py": f"import pathlib\n{hidden}\ndef double(x):\n    return 2 * x\n"}
    results = results_of(
        place, {"right": SAME, "cheats": cheats}, files={"tests/test_leaves.py": LEAVES}
    )
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
def test_what_the_baseline_does_is_usual_and_where_its_runs_differ_all_of_its_kind(
    flag: str, one: list[str], other: list[str], is_usual: bool
) -> None:
    now, *runs = ([f"{did} while it ran" for did in flags] for flags in ([flag], one, other))
    assert (unusual(now, runs) == ()) is is_usual


def test_a_flag_that_names_no_file_is_excused_only_by_the_same_one() -> None:
    assert unusual(["deleted .git"], [["changed .git/config"], []]) == ("deleted .git",)
    assert unusual(["deleted .git"], [[], ["deleted .git"]]) == ()
    assert unusual(["deleted .git"], []) == ("deleted .git",)
