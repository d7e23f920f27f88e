"""Measuring, with real processes in plain folders: what is timed is the code that it is called by,
and whatever a benchmark does ends in a value.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import random
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, strategies as st
from paraval.racing.course.steps import (
    BASELINE,
    Base,
    Step,
    StepEnd,
    StepKind,
    finding_of,
    trial_of,
)
from paraval.racing.step_performer import RaceContext

from paraval.processes.children import ProcessEnd, Warden
from paraval.racing.findings import Block, Calibration, StepFinding
from paraval.racing.integrity.benchmark_checks import only_with
from paraval.racing.request import TOTAL, BenchMetric, BenchSpec, RaceRequest, TestSpec
from paraval.racing.speed import measurement_worktrees as stands_module
from paraval.racing.speed.benchmark_process import (
    LEAST_S,
    MOST_S,
    MetricFile,
    chances,
    difference_in_cases,
    sample_of,
)
from paraval.racing.speed.measurement_worktrees import MeasurementWorktrees
from paraval.racing.speed.measurer import Measurer, QuietMachine, cpus_for
from paraval.records import (
    Attempt,
    AttemptResult,
    HiddenFiles,
    MachineReading,
    Outcome,
    Workspace,
    WorkspaceKind,
)
from paraval.scratch import Homes
from paraval.targets.answer import InvalidOutputError
from paraval.targets.command import ProcessRoom
from paraval.workspaces.opening import open_workspaces
from paraval.workspaces.workspace import KeptWorkspace, PlacedFiles, WorkspaceError
from tests.repositories import commit_all, make_repository, run_git

T = TypeVar("T")
PYTHON = sys.executable
BENCH = (PYTHON, "-S", "bench.py")
BASE_TREE = "base"


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


@dataclass
class Folder:
    """A lease on a plain folder."""

    slots: Slots
    top: str
    path: str
    notes: tuple[str, ...] = ()
    laid: str = BASE_TREE
    is_out: bool = True

    async def keep(self, folder: str) -> KeptWorkspace:
        raise AssertionError("no git runs where something is measured")

    async def apply(self, patch: str) -> None:
        raise AssertionError("no git runs where something is measured")

    async def put_hidden(self, hidden: Sequence[HiddenFiles]) -> PlacedFiles:
        raise AssertionError("nothing is hidden where something is measured")

    async def release(self) -> None:
        assert self.is_out
        self.is_out = False
        shutil.rmtree(self.top)
        self.slots.out.remove(self)
        self.slots.free.set()


@dataclass
class Slots:
    """Plain folders for slots, as many at once as are told."""

    folder: Path
    trees: dict[str, dict[str, str]]
    at_most: int = 100
    out: list[Folder] = field(default_factory=list)
    most_out: int = 0
    made: int = 0
    rested: int = 0
    free: asyncio.Event = field(default_factory=asyncio.Event)

    is_waited_for: bool = False

    async def at_rest(self) -> None:
        self.rested += 1

    async def lease(self, tree: str | None = None) -> Folder:
        while len(self.out) >= self.at_most:
            self.is_waited_for = True
            self.free.clear()
            await self.free.wait()
        self.is_waited_for = False
        if tree is not None and tree not in self.trees:
            raise WorkspaceError(f"there is no tree {tree}")
        self.made += 1
        top = self.folder / "slots" / str(self.made)
        top.mkdir(parents=True)
        write_files(top, self.trees[BASE_TREE])
        write_files(top, self.trees[tree or BASE_TREE])
        lease = Folder(self, str(top), str(top), laid=tree or BASE_TREE)
        self.out.append(lease)
        self.most_out = max(self.most_out, len(self.out))
        return lease


class Calm:
    """A machine that nobody else uses."""

    def read(self, loads: object) -> MachineReading:
        return MachineReading(cpus=2.0, busy_cpus=0.0, memory_bytes=1, memory_available=1)


class Race:
    """A measurer on plain folders: trees by name, each with files that are laid on the baseline."""

    def __init__(self, folder: Path, trees: dict[str, dict[str, str]], **bench: Any) -> None:
        self.folder = folder
        self.slots = Slots(folder, trees)
        spec = BenchSpec(**{"command": BENCH, "quiet_s": 0.0, "timeout": 20.0, **bench})
        self.request = RaceRequest(
            name="race",
            source=None,
            folder=str(folder),
            repo=str(folder),
            test=TestSpec(command=("true",)),
            bench=spec,
        )
        self.base = Base(tree=BASE_TREE)
        self.most_stands = 8
        self.ends: dict[tuple[StepKind, str, int], StepEnd] = {}
        self.attempts = 0

    def measure(self, use: Callable[[Measurer], Awaitable[T]]) -> T:
        async def main() -> T:
            async with Warden() as warden:
                measurer = Measurer(
                    self.room(warden), most_stands=self.most_stands, quiet=QuietMachine(Calm())
                )
                try:
                    return await use(measurer)
                finally:
                    await measurer.close()

        found = asyncio.run(main())
        assert not self.slots.out, "every slot was given back"
        return found

    def room(self, warden: Warden) -> RaceContext:
        return RaceContext(
            request=self.request,
            base=self.base,
            processes=ProcessRoom(warden=warden, run_id="run", homes=Homes(self.folder)),
            workspaces=cast("Any", self.slots),
            objects=self.folder / "objects",
            run_folder=self.folder,
            ends=self.ends,
        )

    def attempt(self, step: Step) -> Attempt:
        self.attempts += 1
        trial = trial_of(step, self.attempts, self.request, self.base)
        return Attempt(trial=trial, number=1, folder=str(self.folder / f"attempt-{self.attempts}"))

    async def perform(self, measurer: Measurer, step: Step) -> AttemptResult:
        return await measurer.perform(self.attempt(step), step)

    def results(self, *steps: Step) -> list[AttemptResult]:
        async def use(measurer: Measurer) -> list[AttemptResult]:
            return [await self.perform(measurer, step) for step in steps]

        return self.measure(use)


def screen(tree: str, number: int = 1) -> Step:
    return Step(kind=StepKind.SCREEN, candidate=tree, number=number, tree=tree)


CALIBRATE = Step(kind=StepKind.CALIBRATE, tree=BASE_TREE)


def block_of(result: AttemptResult) -> Block:
    assert result.error is None, result.error
    block = finding_of(result).block
    assert block is not None
    return block


def sleeping(seconds: float) -> dict[str, str]:
    return {"code.txt": str(seconds)}


SLEEP = "import time; time.sleep(float(open('code.txt').read()))"


def message_of(result: AttemptResult) -> str:
    assert result.error is not None
    return result.error.message


# ---- what is timed


def test_candidates_that_differ_in_sleep_alone_are_ranked_right_in_any_order(
    tmp_path: Path,
) -> None:
    """Fewer stands than candidates: slots come and go, and none carries another's code."""
    times = {f"c{n}": 0.01 + 0.03 * n for n in range(4)}
    trees = {name: sleeping(seconds) for name, seconds in times.items()}
    race = Race(tmp_path, {BASE_TREE: {"bench.py": SLEEP, **sleeping(0.05)}, **trees})
    race.most_stands = 3
    steps = [screen(name, number) for name in times for number in (1, 2)]
    random.Random(5).shuffle(steps)
    results = race.results(*steps)
    means: dict[str, list[float]] = {}
    for step, result in zip(steps, results, strict=True):
        means.setdefault(step.candidate, []).extend(s[TOTAL] for s in block_of(result).candidate)
    ranked = sorted(means, key=lambda name: sum(means[name]))
    assert ranked == sorted(times, key=lambda name: times[name])
    assert race.slots.most_out <= 3
    assert all(min(s[TOTAL] for s in block_of(one).baseline) > 0.05 for one in results)


TELL_ORDER = """
import json, os, pathlib
marker = open('code.txt').read()
with open(os.environ['ORDER'], 'a') as file:
    file.write(f"{marker}:{os.environ['PYTHONHASHSEED']}:{len(os.environ['PARAVAL_PADDING'])} ")
"""


def order_of(tmp_path: Path, step: Step) -> list[tuple[str, str, str]]:
    """Marker, hash seed and padding of the processes of a block, after the two warm-ups."""
    trees = {BASE_TREE: {"bench.py": TELL_ORDER, "code.txt": "A"}, "b": {"code.txt": "B"}}
    race = Race(tmp_path, trees)
    order = tmp_path / "order"
    race.request = replace(race.request, env={"ORDER": str(order)})
    block_of(race.results(step)[0])
    told = [entry.split(":") for entry in order.read_text().split()]
    return [(marker, seed, padding) for marker, seed, padding in told][2:]


@pytest.mark.parametrize(("number", "expected"), [(1, "ABBA"), (2, "BAAB")])
def test_a_block_is_abba_or_baab_each_side_with_its_own_code(
    tmp_path: Path, number: int, expected: str
) -> None:
    told = order_of(tmp_path, screen("b", number))
    assert "".join(marker for marker, _, _ in told) == expected
    seeds = [seed for _, seed, _ in told]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


def test_a_block_that_is_measured_again_meets_the_same_chance(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert order_of(one, screen("b", 3)) == order_of(other, screen("b", 3))


def test_chance_favors_no_side() -> None:
    drawn = chances("seed", 500)
    assert all(a.hash_seed == b.hash_seed for a, b in drawn)
    more = sum(a.padding > b.padding for a, b in drawn)
    assert 180 < more < 320
    assert drawn != chances("another seed", 500)


def test_the_calibration_tells_how_long_a_process_takes_and_how_busy_it_is(
    tmp_path: Path,
) -> None:
    burn = "import time\nwhile time.process_time() < 0.15: pass"
    race = Race(tmp_path, {BASE_TREE: {"bench.py": burn}})
    calibration = finding_of(race.results(CALIBRATE)[0]).calibration
    assert calibration is not None
    assert len(calibration.samples) == 3
    assert calibration.process_s >= 0.15
    # At most one thread computes; how much less depends on who else is on the machine.
    assert 0.1 < calibration.busy_cpus < 1.1
    assert not calibration.noisy


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no CPUs to be pinned to")
def test_a_block_is_pinned_to_the_cpus_that_are_asked_for(tmp_path: Path) -> None:
    told = "import os; assert len(os.sched_getaffinity(0)) == 1"
    race = Race(tmp_path, {BASE_TREE: {"bench.py": told}, "b": {}}, cpus=1)
    assert block_of(race.results(screen("b"))[0]).pinned == (max(os.sched_getaffinity(0)),)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no CPUs to be pinned to")
@pytest.mark.parametrize(("busy_cpus", "is_pinned"), [(0.9, True), (1.8, False)])
def test_what_the_calibration_saw_decides_whether_blocks_are_pinned(
    tmp_path: Path, busy_cpus: float, is_pinned: bool
) -> None:
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})
    seen = Calibration(samples=(), process_s=0.1, busy_cpus=busy_cpus)
    race.ends[(StepKind.CALIBRATE, BASELINE, 1)] = StepEnd(
        step=CALIBRATE, outcome=Outcome.PASSED, finding=StepFinding(calibration=seen)
    )
    pinned = block_of(race.results(screen("b"))[0]).pinned
    assert bool(pinned) is (is_pinned and len(os.sched_getaffinity(0)) > 1)


def test_cpus_are_the_last_ones_and_never_more_than_there_are() -> None:
    assert cpus_for(None, None, (0, 1, 2)) == ()
    assert cpus_for(None, 1.1, (0, 1, 2)) == (2,)
    assert cpus_for(None, 2.5, (0, 1, 2)) == ()
    assert cpus_for(None, 1.0, (0,)) == ()
    assert cpus_for(0, 1.0, (0, 1)) == ()
    assert cpus_for(2, 1.0, (0, 1, 5)) == (1, 5)
    assert cpus_for(9, 1.0, (0, 1)) == (0, 1)
    assert cpus_for(1, 1.0, ()) == ()


def test_little_time_passes_between_two_processes_of_a_block(tmp_path: Path) -> None:
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})
    gaps = [block_of(one).gap_s for one in race.results(*(screen("b", n) for n in range(1, 4)))]
    # The figure is at most 50 ms, on a machine that does nothing else; tests run side by side.
    assert 0.0 < min(gaps) < 0.25


# ---- benchmarks that go wrong


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        ("import sys; sys.exit('no data')", Outcome.CRASHED, "exit code 1: no data"),
        ("import os; os.kill(os.getpid(), 9)", Outcome.CRASHED, "killed by SIGKILL"),
        ("import time; time.sleep(60)", Outcome.TIMEOUT, "timed out after 0.5 s"),
    ],
    ids=["fails", "dies", "hangs"],
)
def test_a_benchmark_that_goes_wrong_is_said_to_with_whose_it_is(
    tmp_path: Path, code: str, outcome: Outcome, words: str
) -> None:
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "bad": {"bench.py": code}}, timeout=0.5)
    bad, good = race.results(screen("bad"), CALIBRATE)
    assert (bad.outcome, message_of(bad)) == (outcome, f"the candidate's benchmark: {words}")
    assert good.outcome is Outcome.PASSED


def test_a_baseline_that_fails_in_a_block_is_no_fault_of_the_candidate(tmp_path: Path) -> None:
    trees = {BASE_TREE: {"bench.py": "import sys; sys.exit(3)"}, "b": {"bench.py": ""}}
    block, calibration = Race(tmp_path, trees).results(screen("b"), CALIBRATE)
    assert block.outcome is Outcome.INFRA_ERROR
    assert message_of(block) == "the baseline's benchmark: exit code 3"
    assert calibration.outcome is Outcome.CRASHED


def test_a_stand_in_which_a_benchmark_failed_is_not_used_again(tmp_path: Path) -> None:
    """It fails where a file of an earlier process is: with a new slot, it works again."""
    code = "import os, sys\nif os.path.exists('once'): sys.exit(1)\nopen('once', 'w').close()"
    race = Race(tmp_path, {BASE_TREE: {"bench.py": code}})

    async def use(measurer: Measurer) -> tuple[AttemptResult, int]:
        failed = await race.perform(measurer, CALIBRATE)
        await asyncio.sleep(0)
        return failed, len(race.slots.out)

    failed, still_out = race.measure(use)
    assert (failed.outcome, still_out) == (Outcome.CRASHED, 0)


def test_a_tree_that_cannot_be_laid_is_the_workspace_s_fault(tmp_path: Path) -> None:
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}})
    (result,) = race.results(screen("unknown"))
    assert result.outcome is Outcome.INFRA_ERROR
    assert message_of(result) == "there is no tree unknown"


# ---- files with measurements

WRITE = "open('out.json', 'w').write(open('code.txt').read())"
GOOD = '{"sort": 0.5, "parse": 0.25}'


def with_file(tmp_path: Path, candidate: dict[str, str], baseline: str = GOOD) -> AttemptResult:
    trees = {BASE_TREE: {"bench.py": WRITE, "code.txt": baseline}, "b": candidate}
    return Race(tmp_path, trees, metric=BenchMetric.FILE, file="out.json").results(screen("b"))[0]


def test_a_file_tells_seconds_by_case_and_in_total(tmp_path: Path) -> None:
    block = block_of(with_file(tmp_path, {"code.txt": '{"sort": 0.25, "parse": 0.25}'}))
    assert block.candidate[0] == {"sort": 0.25, "parse": 0.25, TOTAL: 0.5}
    assert block.baseline[1] == {"sort": 0.5, "parse": 0.25, TOTAL: 0.75}
    assert block.flags == ()


@pytest.mark.parametrize(
    "told",
    [
        {"benchmarks": [{"fullname": "t.py::test_a", "stats": {"median": 0.5, "min": 0.1}}]},
        {"results": [{"command": "t.py::test_a", "median": 0.5, "mean": 0.7, "times": [0.5]}]},
        {
            "version": "1.0",
            "metadata": {"name": "t.py::test_a", "unit": "second"},
            "benchmarks": [{"runs": [{"metadata": {}}, {"values": [0.4, 0.6]}]}],
        },
    ],
)
def test_files_of_pytest_benchmark_hyperfine_and_pyperf_are_read(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    block = block_of(with_file(tmp_path, {"code.txt": json.dumps(told)}, json.dumps(told)))
    assert block.candidate[0] == {"t.py::test_a": 0.5, TOTAL: 0.5}


def test_a_total_that_is_told_counts(tmp_path: Path) -> None:
    told = '{"sort": 1, "__total__": 4.5}'
    assert block_of(with_file(tmp_path, {"code.txt": told}, told)).candidate[0][TOTAL] == 4.5


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": 1e999}', "is too large"),
        ('{"a": 0}', "is 0 s, which is not plausible"),
        ('{"a": -1.5}', "is -1.5 s, which is not plausible"),
        ('{"a": true}', "'True', which is not a number of seconds"),
        ('{"a": "1"}', "'1', which is not a number of seconds"),
        ('{"a": ' + "9" * 400 + "}", "which is not plausible"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ("[1, 2]", "must be a JSON object of seconds by case name"),
        ("{}", "must be a JSON object of seconds by case name"),
        ("", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"' + "a" * 300 + '": 1}', "a name of 300 characters"),
        ("{" + ", ".join(f'"{n}": 1' for n in range(1001)) + "}", "1,001 cases"),
    ],
)
def test_a_file_that_tells_no_seconds_is_invalid(tmp_path: Path, told: str, words: str) -> None:
    (tmp_path / "out.json").write_text(told)
    with pytest.raises(InvalidOutputError, match=words):
        MetricFile("out.json", str(tmp_path), str(tmp_path)).read()


def test_nan_from_a_candidate_ends_its_block(tmp_path: Path) -> None:
    result = with_file(tmp_path, {"code.txt": '{"sort": NaN, "parse": 1}'})
    assert result.outcome is Outcome.INVALID_OUTPUT
    assert "NaN is not a JSON number" in message_of(result)


def test_an_old_file_is_no_measurement(tmp_path: Path) -> None:
    """A candidate that brings a file with its own times, and measures nothing."""
    result = with_file(tmp_path, {"bench.py": "", "out.json": '{"sort": 1e-6, "parse": 1e-6}'})
    assert result.outcome is Outcome.INVALID_OUTPUT
    assert message_of(result).endswith("it did not write 'out.json'")


@pytest.mark.parametrize(
    "code",
    ["os.mkfifo('out.json')", "os.symlink('/dev/zero', 'out.json')", "os.mkdir('out.json')"],
    ids=["pipe", "link", "folder"],
)
def test_what_is_no_plain_file_is_not_read(tmp_path: Path, code: str) -> None:
    result = with_file(tmp_path, {"bench.py": f"import os; {code}"})
    assert result.outcome is Outcome.INVALID_OUTPUT


def test_nothing_outside_of_the_worktree_is_removed_for_a_file(tmp_path: Path) -> None:
    """Its folder has become a link to one of the user's."""
    precious = tmp_path / "precious" / "out.json"
    precious.parent.mkdir()
    precious.write_text("mine")
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    (worktree / "results").symlink_to(precious.parent)
    with pytest.raises(InvalidOutputError, match="outside its worktree"):
        MetricFile("results/out.json", str(worktree), str(worktree)).clear()
    assert precious.read_text() == "mine"


def test_sides_that_measure_different_cases_are_not_compared(tmp_path: Path) -> None:
    result = with_file(tmp_path, {"code.txt": '{"sort": 0.1, "other": 0.1}'})
    assert result.outcome is Outcome.INVALID_OUTPUT
    assert message_of(result) == (
        "the candidate's benchmark measures different cases: it lacks 'parse' and the baseline's"
        " lacks 'other'"
    )


CASES = st.dictionaries(st.text(max_size=3), st.floats(0.1, 1.0), max_size=3)


@given(st.lists(CASES, min_size=2, max_size=2), st.lists(CASES, min_size=2, max_size=2))
def test_two_sides_are_compared_only_where_all_processes_measured_the_same(
    baseline: list[dict[str, float]], candidate: list[dict[str, float]]
) -> None:
    same = len({frozenset(sample) for sample in (*baseline, *candidate)}) == 1
    assert (difference_in_cases(baseline, candidate) is None) is same


@given(st.floats())
def test_no_measurement_is_anything_but_a_positive_finite_time(seconds: float) -> None:
    spec = BenchSpec(command=("x",))
    try:
        sample = sample_of(ProcessEnd(wall_s=seconds), spec, None)
    except InvalidOutputError:
        assert not LEAST_S <= seconds <= MOST_S
    else:
        assert math.isfinite(sample[TOTAL])
        assert sample[TOTAL] > 0


def test_cpu_time_can_be_what_is_compared(tmp_path: Path) -> None:
    trees = {BASE_TREE: {"bench.py": SLEEP, **sleeping(0.1)}, "b": {}}
    race = Race(tmp_path, trees, metric=BenchMetric.CPU)
    block = block_of(race.results(screen("b"))[0])
    assert all(sample[TOTAL] < 0.1 for sample in (*block.baseline, *block.candidate))


# ---- what benchmarks leave behind


@pytest.mark.parametrize(
    ("code", "flag"),
    [
        ("open('answers.bin', 'w').write('42')", "its benchmark leaves answers.bin"),
        ("open(os.environ['HOME'] + '/answers', 'w')", "its benchmark leaves ~/answers"),
        (
            "open(os.environ['TMPDIR'] + '/answers', 'w')",
            "its benchmark leaves $TMPDIR/answers",
        ),
        (
            "open('code.txt', 'a').write('more')",
            "its benchmark changes code.txt",
        ),
        (
            "import subprocess; subprocess.Popen(['sleep', '60'])",
            "its benchmark leaves processes running",
        ),
    ],
    ids=["in its worktree", "at home", "in its temporary folder", "in a file of its own", "alive"],
)
def test_a_candidate_that_leaves_what_the_baseline_does_not_is_flagged(
    tmp_path: Path, code: str, flag: str
) -> None:
    trees = {
        BASE_TREE: {"bench.py": "", "code.txt": ""},
        "b": {"bench.py": f"import os\n{code}"},
    }
    assert flag in block_of(Race(tmp_path, trees).results(screen("b"))[0]).flags


@pytest.mark.parametrize(
    "path",
    [
        ".pytest_cache/answers",
        ".pytest_cache/v/cache/lastfailed",
        ".git/answers",
        "lib/.git/answers",
        "__pycache__/answers.cpython-311.pyc",
        "__pycache__/answers.pyc.1",
        "__pycache__/code.cpython-311.json",
        "$TMPDIR/answers",
    ],
)
def test_a_cache_of_answers_is_found_wherever_it_is_kept(tmp_path: Path, path: str) -> None:
    """Beside what the baseline leaves under names that it makes up."""
    leave = "import os, tempfile; tempfile.mkstemp()\n"
    keep = (
        f"path = {path!r}.replace('$TMPDIR', os.environ['TMPDIR'])\n"
        "os.makedirs(os.path.dirname(path), exist_ok=True)\n"
        "if not os.path.exists(path): open(path, 'w').write('42')\n"
    )
    race = Race(
        tmp_path, {BASE_TREE: {"bench.py": leave, "code.py": ""}, "b": {"bench.py": leave + keep}}
    )
    block = block_of(race.results(screen("b"))[0])
    assert block.flags == (f"its benchmark leaves {path}",)


@pytest.mark.parametrize("path", ["late.txt", "__pycache__/code.cpython-311.pyc"])
def test_a_cache_that_is_written_late_is_found_in_the_block_in_which_it_is(
    tmp_path: Path, path: str
) -> None:
    """By its fifth process, the last of the second block."""
    code = (
        "import os\nos.makedirs('__pycache__', exist_ok=True)\n"
        "compiled = '__pycache__/code.cpython-311.pyc'\n"
        "if not os.path.exists(compiled): open(compiled, 'w').write('x')\n"
        "count = os.environ['COUNT']\nopen(count, 'a').write('x')\n"
        f"if os.path.getsize(count) == 5: open({path!r}, 'a').write('42')\n"
    )
    race = Race(tmp_path, {BASE_TREE: {"bench.py": "", "code.py": ""}, "b": {"bench.py": code}})
    race.request = replace(race.request, env={"COUNT": str(tmp_path / "count")})
    blocks = [block_of(one) for one in race.results(screen("b"), screen("b", 2))]
    assert [block.flags for block in blocks] == [(), (f"its benchmark leaves {path}",)]


# ---- benchmarks that don't do their work


def forging_block(race: Race) -> Block:
    """Of the candidate `b`, after the baseline was calibrated."""

    async def use(measurer: Measurer) -> AttemptResult:
        calibration = finding_of(await race.perform(measurer, CALIBRATE))
        race.ends[(StepKind.CALIBRATE, BASELINE, 1)] = StepEnd(
            step=CALIBRATE, outcome=Outcome.PASSED, finding=calibration
        )
        return await race.perform(measurer, screen("b"))

    return block_of(race.measure(use))


PRINTS = "its benchmark prints something different from the baseline's"


@pytest.mark.parametrize(
    ("bench", "code", "flags"),
    [
        (
            "import code_; print('sum', 42)",
            "import os; os._exit(0)",
            (f'{PRINTS}: "" instead of "sum 42"',),
        ),
        (
            "x = 42\nimport code_; x = getattr(code_, 'x', x); print('sum', x)",
            "x = 0",
            (f'{PRINTS}: "sum 0" instead of "sum 42"',),
        ),
        (
            "import code_; print('sum', 42)",
            "print('hi' * 1000000)",
            (f"{PRINTS}: more than is kept",),
        ),
        ("import code_; print('sum', 42)", "x = 42", ()),
        ("import code_, os; print(os.getcwd())", "x = 42", ()),
        ("import code_, time; print(time.time_ns())", "print('hi')", ()),
        ("import code_", "print('hi')", ()),
        ("import code_; print(f'took {code_.x} s')", "x = 0.1", ()),
        ("import code_; print(f'took {code_.x} ms')", "x = 7", ()),
    ],
    ids=[
        "ends early",
        "is wrong",
        "floods",
        "right",
        "folder",
        "unstable",
        "silent",
        "faster",
        "in ms",
    ],
)
def test_a_candidate_whose_benchmark_prints_something_else_is_flagged(
    tmp_path: Path, bench: str, code: str, flags: tuple[str, ...]
) -> None:
    """Where the baseline's prints the same in every process; times may be others."""
    base = {"bench.py": bench, "code_.py": "x = 42"}
    assert forging_block(Race(tmp_path, {BASE_TREE: base, "b": {"code_.py": code}})).flags == flags


def test_what_python_compiles_of_a_candidate_s_own_modules_is_no_flag(tmp_path: Path) -> None:
    """Those that it adds, and those that a later process imports first."""
    late = "import os\nif os.path.exists('fast.py'): import fast\n"
    trees = {
        BASE_TREE: {"bench.py": late, "code.py": ""},
        "b": {"fast.py": "import code_two", "code_two.py": ""},
    }
    race = Race(tmp_path, trees)
    assert block_of(race.results(screen("b"))[0]).flags == ()


def test_what_the_baseline_leaves_too_is_no_flag(tmp_path: Path) -> None:
    """Files of its pid, of its hash seed and compiled ones among it."""
    leave = "import os, tempfile\nopen(f'log-{os.getpid()}.txt', 'w')\ntempfile.mkstemp()\n"
    compiled = leave + "import code\n"
    race = Race(
        tmp_path, {BASE_TREE: {"bench.py": leave, "code.py": ""}, "b": {"bench.py": compiled}}
    )
    assert block_of(race.results(screen("b"))[0]).flags == ()


def test_made_up_names_are_told_from_new_ones() -> None:
    left = frozenset({"runs/tmpab12cd_x/log", "out-977.json", "cache.db"})
    usual = frozenset({"runs/tmpzzzzzzzz/log", "out-12.json"})
    assert only_with(left, usual) == ["cache.db"]


def test_names_in_a_temporary_folder_are_made_up_in_more_ways() -> None:
    usual = frozenset({"$TMPDIR/pymp-abcdefgh/x", "$TMPDIR/tmp.Ab3dEf", "$TMPDIR/ccX7ab1q.o"})
    left = {"$TMPDIR/pymp-hgfedcba/x", "$TMPDIR/tmp.zZyYxX", "$TMPDIR/ccQ1pq9z.o"}
    assert only_with(frozenset(left | {"$TMPDIR/answers"}), usual) == ["$TMPDIR/answers"]


# ---- stands


def test_the_baseline_s_stand_stays_and_candidates_make_room_for_one_another(
    tmp_path: Path,
) -> None:
    names = [f"c{n}" for n in range(6)]
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, **{name: {} for name in names}})
    race.most_stands = 3
    laid: list[set[str]] = []

    async def use(measurer: Measurer) -> None:
        for name in names:
            block_of(await race.perform(measurer, screen(name)))
            await asyncio.sleep(0)
            laid.append({lease.laid for lease in race.slots.out})

    race.measure(use)
    assert laid == [
        {BASE_TREE, "c0"},
        *({BASE_TREE, before, name} for before, name in itertools.pairwise(names)),
    ]


def test_stands_are_given_back_when_measuring_is_cancelled(tmp_path: Path) -> None:
    trees = {BASE_TREE: {"bench.py": ""}, "b": {"bench.py": "import time; time.sleep(60)"}}
    race = Race(tmp_path, trees)

    async def use(measurer: Measurer) -> int:
        task = asyncio.create_task(race.perform(measurer, screen("b")))
        while len(race.slots.out) < 2:  # noqa: ASYNC110 - the fake tells of no such event
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        return len(race.slots.out)

    assert race.measure(use) == 0


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_a_cancel_at_any_time_leaks_no_slot(tmp_path: Path, delay_s: float) -> None:
    """`measure` looks whether all are back."""
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})

    async def use(measurer: Measurer) -> None:
        task = asyncio.create_task(race.perform(measurer, screen("b")))
        await asyncio.sleep(delay_s)
        task.cancel()
        await asyncio.wait([task])

    race.measure(use)


def test_stands_that_nobody_needs_hold_up_no_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both slots stand there after a block; a test that waits for one gets it."""
    monkeypatch.setattr(stands_module, "IDLE_S", 0.05)
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})
    race.slots.at_most = 2

    async def use(measurer: Measurer) -> None:
        block_of(await race.perform(measurer, screen("b")))
        async with asyncio.timeout(5):
            lease = await race.slots.lease()
        await lease.release()
        block_of(await race.perform(measurer, screen("b", 2)))

    race.measure(use)


def test_fewer_slots_than_stands_are_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stands_module, "SOON_S", 0.1)
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}, "c": {}})
    race.slots.at_most = 2
    results = race.results(screen("b"), screen("c"), screen("b", 2))
    assert [one.outcome for one in results] == [Outcome.PASSED] * 3


def test_a_long_setup_is_waited_for_and_sends_no_other_stand_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stands_module, "SOON_S", 0.01)
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}, "c": {}})
    plain = race.slots.lease

    async def slow(tree: str | None = None) -> Folder:
        await asyncio.sleep(0.05)
        return await plain(tree)

    monkeypatch.setattr(race.slots, "lease", slow)
    race.results(screen("b"), screen("c"), screen("b", 2), screen("c", 2))
    assert race.slots.made == 3


def test_what_is_cleared_away_is_waited_for_before_anything_is_measured(tmp_path: Path) -> None:
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})
    race.results(CALIBRATE, screen("b"), screen("b", 2))
    assert race.slots.rested == 3


def test_a_place_that_cannot_be_given_back_is_told_and_costs_no_measurement(
    tmp_path: Path,
) -> None:
    slots = Slots(tmp_path, {BASE_TREE: {}, "b": {}})
    said: list[str] = []

    async def main() -> None:
        stands = MeasurementWorktrees(slots, None, baseline=BASE_TREE, say=said.append)
        shutil.rmtree((await stands.stand("b")).top)
        stands.drop_all()
        await stands.at_rest()
        await stands.close()

    asyncio.run(main())
    assert len(said) == 1
    assert "could not be cleaned up" in said[0]


def test_one_slot_alone_is_too_few_and_no_deadlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stands_module, "SOON_S", 0.05)
    monkeypatch.setattr(stands_module, "PATIENCE_S", 0.05)
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})
    race.slots.at_most = 1
    (result,) = race.results(screen("b"))
    assert result.outcome is Outcome.INFRA_ERROR
    assert "no worktree for measurements" in message_of(result)


def test_closing_stands_outlasts_a_cancel(tmp_path: Path) -> None:
    slots = Slots(tmp_path, {BASE_TREE: {}, "b": {}})

    async def main() -> None:
        stands = MeasurementWorktrees(slots, Homes(tmp_path), baseline=BASE_TREE)
        for tree in (BASE_TREE, "b"):
            await stands.stand(tree)
        closing = asyncio.create_task(stands.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])

    asyncio.run(main())
    assert not slots.out


# ---- real worktrees


def on_worktrees(
    race: Race, tmp_path: Path, asked: Workspace, steps: list[Step]
) -> list[AttemptResult]:
    """Two slots for all: each is used again and again."""

    async def main() -> list[AttemptResult]:
        async with (
            Warden() as warden,
            open_workspaces(asked, scratch=tmp_path / "scratch", warden=warden, at_most=2) as pool,
        ):
            room = replace(race.room(warden), workspaces=pool)
            measurer = Measurer(room, most_stands=2, quiet=QuietMachine(Calm()))
            try:
                return [await race.perform(measurer, step) for step in steps]
            finally:
                await measurer.close()

    return asyncio.run(main())


@pytest.mark.parametrize("setup", [(), ("cp", "code.txt", "built.txt")], ids=["plain", "set up"])
def test_a_worktree_that_was_another_candidate_s_runs_the_code_of_its_own(
    tmp_path: Path, setup: tuple[str, ...]
) -> None:
    """Each tells by what it writes whose it is; where it is built by `setup`, as well."""
    repository = tmp_path / "repository"
    repository.mkdir()
    write = WRITE.replace("code.txt", "built.txt") if setup else WRITE
    ignored = "built.txt\nout.json\n"
    write_files(repository, {"bench.py": write, "code.txt": '{"a": 100}', ".gitignore": ignored})
    commit = make_repository(repository)
    trees = {}
    for number in range(1, 5):
        (repository / "code.txt").write_text(f'{{"a": {number}}}')
        trees[number] = run_git(repository, "rev-parse", f"{commit_all(repository)}^{{tree}}")
    race = Race(tmp_path, {}, metric=BenchMetric.FILE, file="out.json")
    race.base = Base(tree=run_git(repository, "rev-parse", f"{commit}^{{tree}}"))
    asked = Workspace(
        kind=WorkspaceKind.GIT,
        source=str(repository),
        commit=commit,
        tree=race.base.tree,
        setup=setup,
    )
    order = [3, 1, 4, 2, 1, 3, 2, 4]
    steps = [screen(trees[number], place) for place, number in enumerate(order, start=1)]
    blocks = [block_of(result) for result in on_worktrees(race, tmp_path, asked, steps)]
    assert [block.candidate[1]["a"] for block in blocks] == order
    assert {block.baseline[1]["a"] for block in blocks} == {100.0}
    assert [block.flags for block in blocks] == [()] * len(order)
