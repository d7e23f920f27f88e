"""Measuring, with real processes in plain folders: each side is timed with its own code, and
whatever a benchmark does ends in a value.
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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, strategies as st

from paraval.processes.children import ProcessEnd, Warden
from paraval.racing.context import RaceContext
from paraval.racing.findings import Block, Calibration, StepFinding
from paraval.racing.integrity.benchmark_checks import only_with
from paraval.racing.request import TOTAL, BenchSpec, RaceKeys, RaceRequest
from paraval.racing.speed import measurement_worktrees, measurer
from paraval.racing.speed.benchmark_process import (
    LEAST,
    MOST,
    MetricFile,
    chances,
    difference_in_cases,
    sample_of,
)
from paraval.racing.speed.measurement_worktrees import MeasurementWorktrees
from paraval.racing.speed.measurer import Measurer, QuietMachine, cpus_for
from paraval.racing.steps import BASELINE, Base, Step, StepEnd, StepKind, finding_of, trial_of
from paraval.records import (
    Attempt,
    AttemptResult,
    MachineReading,
    Outcome,
    Workspace,
    WorkspaceKind,
)
from paraval.scratch import SCRATCH_VARIABLE, Homes
from paraval.targets.answer import InvalidOutputError
from paraval.targets.command import ProcessRoom
from paraval.workspaces.opening import open_workspaces
from paraval.workspaces.pool import Pool
from paraval.workspaces.workspace import WorkspaceError
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
    """A lease on a plain folder: no git runs where something is measured."""

    slots: Slots
    top: str
    path: str
    laid: str

    async def release(self) -> None:
        shutil.rmtree(self.top)
        self.slots.out.remove(self)
        self.slots.free.set()


@dataclass
class Slots:
    """Plain folders for slots, at most so many."""

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

    async def lease(self, tree: str | None = None) -> Any:
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
        lease = Folder(self, str(top), str(top), tree or BASE_TREE)
        self.out.append(lease)
        self.most_out = max(self.most_out, len(self.out))
        return lease


@dataclass
class Machine:
    """One of two CPUs, of which other processes keep some busy."""

    busy_cpus: float = 0.0

    def read(self, loads: object) -> MachineReading:
        return MachineReading(
            cpus=2.0, busy_cpus=self.busy_cpus, memory_bytes=1, memory_available=1
        )


class Race:
    """A measurer on plain folders: trees by name, each with files that are laid on the baseline."""

    def __init__(
        self,
        folder: Path,
        trees: dict[str, dict[str, str]],
        *,
        env: dict[str, str] | None = None,
        **bench: Any,
    ) -> None:
        self.folder = folder
        self.slots = Slots(folder, trees)
        bench = {"command": BENCH, "quiet": 0.0, "timeout": 20.0, **bench}
        keys = RaceKeys.model_validate({"test": ["true"], "bench": bench, "env": env or {}})
        place = str(folder)
        self.request = RaceRequest(name="race", source=None, folder=place, repo=place, keys=keys)
        self.base = Base(tree=BASE_TREE)
        self.most_worktrees = 8
        self.ends: dict[tuple[StepKind, str, int], StepEnd] = {}
        self.attempts = 0
        self.quiet = QuietMachine(Machine())
        self.said: list[str] = []

    def calibrated(self, found: Calibration) -> None:
        self.ends[(StepKind.CALIBRATE, BASELINE, 1)] = StepEnd(
            step=CALIBRATE, outcome=Outcome.PASSED, finding=StepFinding(calibration=found)
        )

    def measure(self, use: Callable[[Measurer], Awaitable[T]]) -> T:
        async def main() -> T:
            async with self.opened() as measurer:
                return await use(measurer)

        found = asyncio.run(main())
        assert not self.slots.out, "every slot was released"
        return found

    @asynccontextmanager
    async def opened(self, pool: Pool | None = None) -> AsyncIterator[Measurer]:
        """`pool`: real worktrees, instead of plain folders."""
        async with Warden() as warden:
            measurer = Measurer(
                self.context(warden, pool), most_worktrees=self.most_worktrees, quiet=self.quiet
            )
            try:
                yield measurer
            finally:
                await measurer.close()

    def context(self, warden: Warden, pool: Pool | None = None) -> RaceContext:
        return RaceContext(
            request=self.request,
            base=self.base,
            processes=ProcessRoom(warden=warden, run_id="run", homes=Homes(self.folder)),
            workspaces=pool or cast("Any", self.slots),
            objects=self.folder / "objects",
            run_folder=self.folder,
            ends=self.ends,
            say=self.said.append,
        )

    async def perform(self, measurer: Measurer, step: Step) -> AttemptResult:
        self.attempts += 1
        trial = trial_of(step, self.attempts, self.request, self.base)
        folder = str(self.folder / f"attempt-{self.attempts}")
        return await measurer.perform(Attempt(trial=trial, number=1, folder=folder), step)

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


@pytest.fixture(autouse=True)
def _turns_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests beside this one, and races, measure when they like."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "scratch"))


# ---- what is timed


def test_candidates_that_differ_only_in_sleep_are_ranked_correctly_in_any_order(
    tmp_path: Path,
) -> None:
    """Fewer worktrees than candidates: slots come and go, and none runs another's code."""
    times = {f"c{n}": 0.01 + 0.03 * n for n in range(4)}
    trees = {name: sleeping(seconds) for name, seconds in times.items()}
    race = Race(tmp_path, {BASE_TREE: {"bench.py": SLEEP, **sleeping(0.05)}, **trees})
    race.most_worktrees = 3
    steps = [screen(name, number) for name in times for number in (1, 2)]
    random.Random(5).shuffle(steps)
    blocks = [block_of(result) for result in race.results(*steps)]
    means: dict[str, list[float]] = {}
    for step, block in zip(steps, blocks, strict=True):
        means.setdefault(step.candidate, []).extend(one[TOTAL] for one in block.candidate)
    ranked = sorted(means, key=lambda name: sum(means[name]))
    assert ranked == sorted(times, key=lambda name: times[name])
    assert race.slots.most_out <= 3
    assert all(min(one[TOTAL] for one in block.baseline) > 0.05 for block in blocks)


REPORT_ORDER = """
import os
with open(os.environ['ORDER'], 'a') as file:
    marker = open('code.txt').read()
    file.write(f"{marker}:{os.environ['PYTHONHASHSEED']}:{len(os.environ['PARAVAL_PADDING'])} ")
"""


def order_of(folder: Path, step: Step) -> list[tuple[str, str, str]]:
    """Marker, hash seed and padding of the processes of a block, after the two warm-ups."""
    folder.mkdir(exist_ok=True)
    order = folder / "order"
    trees = {BASE_TREE: {"bench.py": REPORT_ORDER, "code.txt": "A"}, "b": {"code.txt": "B"}}
    block_of(Race(folder, trees, env={"ORDER": str(order)}).results(step)[0])
    entries = [entry.split(":") for entry in order.read_text().split()]
    return [(marker, seed, padding) for marker, seed, padding in entries][2:]


@pytest.mark.parametrize(("number", "expected"), [(1, "ABBA"), (2, "BAAB")])
def test_a_block_is_abba_or_baab_each_side_with_its_own_code(
    tmp_path: Path, number: int, expected: str
) -> None:
    order = order_of(tmp_path, screen("b", number))
    assert "".join(marker for marker, _, _ in order) == expected
    seeds = [seed for _, seed, _ in order]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


def test_a_block_that_is_measured_again_has_the_same_random_layout(tmp_path: Path) -> None:
    assert order_of(tmp_path / "1", screen("b", 3)) == order_of(tmp_path / "2", screen("b", 3))


def test_random_layouts_favor_no_side() -> None:
    drawn = chances("seed", 500)
    assert all(a.hash_seed == b.hash_seed for a, b in drawn)
    assert 180 < sum(a.padding > b.padding for a, b in drawn) < 320
    assert drawn != chances("another seed", 500)


def test_calibration_finds_how_long_a_process_takes_and_how_busy_it_is(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.15: pass"
    race = Race(tmp_path, {BASE_TREE: {"bench.py": burn}})
    calibration = finding_of(race.results(CALIBRATE)[0]).calibration
    assert calibration is not None
    assert len(calibration.samples) == 3
    assert calibration.process_s >= 0.15
    # At most one thread computes; how much less depends on other processes of the machine.
    assert 0.1 < calibration.busy_cpus < 1.1
    assert not calibration.noisy


def test_a_sequential_benchmark_is_pinned_to_the_last_cpu() -> None:
    assert cpus_for(None, None, (0, 1, 2)) == ()
    assert cpus_for(None, 1.1, (0, 1, 2)) == (2,)
    assert cpus_for(None, 2.5, (0, 1, 2)) == ()
    assert cpus_for(None, 1.0, (0,)) == ()
    assert cpus_for(0, 1.0, (0, 1)) == ()
    assert cpus_for(2, 1.0, (0, 1, 5)) == (1, 5)
    assert cpus_for(9, 1.0, (0, 1)) == (0, 1)
    assert cpus_for(1, 1.0, ()) == ()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no CPUs to pin to")
@pytest.mark.parametrize(("busy_cpus", "is_pinned"), [(0.9, True), (1.8, False)])
def test_blocks_are_pinned_if_the_calibrated_baseline_keeps_one_cpu_busy(
    tmp_path: Path, busy_cpus: float, is_pinned: bool
) -> None:
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})
    race.calibrated(Calibration(samples=(), process_s=0.1, busy_cpus=busy_cpus))
    pinned = block_of(race.results(screen("b"))[0]).pinned
    assert bool(pinned) is (is_pinned and len(os.sched_getaffinity(0)) > 1)


# ---- what is compared


def test_cpu_time_is_without_waiting(tmp_path: Path) -> None:
    trees = {BASE_TREE: {"bench.py": SLEEP, **sleeping(0.1)}, "b": {}}
    block = block_of(Race(tmp_path, trees, metric="cpu").results(screen("b"))[0])
    assert all(sample[TOTAL] < 0.1 for sample in (*block.baseline, *block.candidate))


def test_memory_is_the_most_bytes_that_were_resident(tmp_path: Path) -> None:
    """Also if they were released before the end, or by a child."""
    child = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {!r}])"
    trees = {
        BASE_TREE: {"bench.py": "held = bytearray(100_000_000); del held"},
        "small": {"bench.py": "held = bytearray(30_000_000)"},
        "child": {"bench.py": child.format("held = bytearray(60_000_000)")},
    }
    race = Race(tmp_path, trees, metric="memory")
    small, child_s = map(block_of, race.results(screen("small"), screen("child")))
    for samples, least in ((small.baseline, 100), (small.candidate, 30), (child_s.candidate, 60)):
        assert all(least < sample[TOTAL] / 1e6 < least + 25 for sample in samples)


@pytest.mark.parametrize(("metric", "waits"), [("wall", True), ("cpu", False), ("memory", False)])
def test_only_wall_time_waits_for_a_quiet_machine(tmp_path: Path, metric: str, waits: bool) -> None:
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}}, metric=metric, quiet=0.6)
    looks: list[float] = []

    async def sleep(seconds: float) -> None:
        looks.append(seconds)
        await asyncio.sleep(seconds)

    race.quiet = QuietMachine(Machine(busy_cpus=2.0), sleep=sleep)
    assert block_of(race.results(screen("b"))[0]).noisy
    assert bool(looks) is waits


WRITE = "open('out.json', 'w').write(open('code.txt').read())"
GOOD = '{"sort": 0.5, "parse": 0.25}'


def with_file(folder: Path, candidate: dict[str, str], baseline: str = GOOD) -> AttemptResult:
    trees = {BASE_TREE: {"bench.py": WRITE, "code.txt": baseline}, "b": candidate}
    return Race(folder, trees, metric="out.json").results(screen("b"))[0]


def test_a_file_has_seconds_by_case_and_a_total(tmp_path: Path) -> None:
    block = block_of(with_file(tmp_path, {"code.txt": '{"sort": 0.25, "parse": 0.25}'}))
    assert block.candidate[0] == {"sort": 0.25, "parse": 0.25, TOTAL: 0.5}
    assert block.baseline[1] == {"sort": 0.5, "parse": 0.25, TOTAL: 0.75}
    assert block.flags == ()


def read(folder: Path, text: str) -> dict[str, float]:
    (folder / "out.json").write_text(text)
    return dict(MetricFile("out.json", str(folder), str(folder)).read())


ASV = {
    "version": 2,
    "result_columns": ["result", "params", "version", "started_at", "duration"],
    "results": {
        "sorting.time_sort": [[0.5], [], "f1e2", 1700000000000, 2.1],
        "sorting.time_by_size": [[0.25, None, 0.125], [["1", "2", "3"]], "a0b1"],
        "sorting.time_old_form": [0.125],
        "sorting.time_failed": [None, [], "c3d4"],
        "sorting.time_skipped": [],
    },
}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"a": 1, TOTAL: 4.5}, {"a": 1, TOTAL: 4.5}),
        (
            {"benchmarks": [{"fullname": "t.py::test_a", "stats": {"median": 0.5, "min": 0.1}}]},
            {"t.py::test_a": 0.5, TOTAL: 0.5},
        ),
        (
            {"results": [{"command": "sleep 1", "median": 0.5, "mean": 0.7, "times": [0.5]}]},
            {"sleep 1": 0.5, TOTAL: 0.5},
        ),
        (
            {
                "version": "1.0",
                "metadata": {"name": "sort", "unit": "second"},
                "benchmarks": [
                    {"runs": [{"metadata": {}}, {"values": [0.4, 0.6]}]},
                    {"metadata": {"name": "parse"}, "runs": [{"values": [0.25]}]},
                ],
            },
            {"sort": 0.5, "parse": 0.25, TOTAL: 0.75},
        ),
        (
            ASV,
            {
                "sorting.time_sort": 0.5,
                "sorting.time_by_size[0]": 0.25,
                "sorting.time_by_size[2]": 0.125,
                "sorting.time_old_form": 0.125,
                TOTAL: 1.0,
            },
        ),
    ],
    ids=["with a total", "pytest-benchmark", "hyperfine", "pyperf", "asv"],
)
def test_files_of_benchmark_programs_are_read(
    tmp_path: Path, data: dict[str, Any], expected: dict[str, float]
) -> None:
    assert read(tmp_path, json.dumps(data)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": 1e999}', "is too large"),
        ('{"a": 0}', "is 0, which is not plausible"),
        ('{"a": -1.5}', "is -1.5, which is not plausible"),
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
        (json.dumps(ASV | {"results": {"a": [None]}}), "must be a JSON object of seconds"),
        ('{"benchmarks": [{"runs": [{}]}], "version": "1.0"}', "is not a number of seconds"),
        ('{"benchmarks": [{"runs": [{"values": ["a", 1]}]}], "version": "1.0"}', "out.json"),
        ('{"benchmarks": [{"runs": [1]}], "version": "1.0"}', "out.json"),
        ('{"benchmarks": [{"fullname": "a", "stats": {"median": 1}}, 1]}', "out.json"),
        ('{"results": [{"command": "a", "median": 1}, {}]}', "out.json"),
        ('{"results": [{"command": ["a"], "median": 1}]}', "out.json"),
        ('{"version": 2, "result_columns": ["result"], "results": {"a": 1}}', "out.json"),
    ],
)
def test_a_file_without_seconds_is_invalid(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidOutputError, match=words):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        ({"code.txt": '{"sort": NaN, "parse": 1}'}, "NaN is not a JSON number"),
        (
            {"bench.py": "", "out.json": '{"sort": 1e-6, "parse": 1e-6}'},
            "it did not write 'out.json'",
        ),
        ({"bench.py": "import os; os.mkfifo('out.json')"}, "out.json"),
        ({"bench.py": "import os; os.symlink('/dev/zero', 'out.json')"}, "out.json"),
        ({"bench.py": "import os; os.mkdir('out.json')"}, "out.json"),
        (
            {"code.txt": '{"sort": 0.1, "other": 0.1}'},
            "different cases: it lacks 'parse' and the baseline's lacks 'other'",
        ),
    ],
    ids=["NaN", "a file of its own", "pipe", "link", "folder", "other cases"],
)
def test_a_candidate_without_a_measurement_of_its_own_is_invalid(
    tmp_path: Path, candidate: dict[str, str], words: str
) -> None:
    result = with_file(tmp_path, candidate)
    assert result.outcome is Outcome.INVALID_OUTPUT
    assert words in message_of(result)


def test_nothing_outside_the_worktree_is_removed_for_a_file(tmp_path: Path) -> None:
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


CASES = st.dictionaries(st.text(max_size=3), st.floats(0.1, 1.0), max_size=3)


@given(st.lists(CASES, min_size=2, max_size=2), st.lists(CASES, min_size=2, max_size=2))
def test_two_sides_are_compared_only_if_all_processes_measured_the_same_cases(
    baseline: list[dict[str, float]], candidate: list[dict[str, float]]
) -> None:
    same = len({frozenset(sample) for sample in (*baseline, *candidate)}) == 1
    assert (difference_in_cases(baseline, candidate) is None) is same


@given(st.floats())
def test_every_measurement_is_positive_and_finite(seconds: float) -> None:
    try:
        sample = sample_of(
            ProcessEnd(wall_s=seconds), BenchSpec.model_validate({"command": ["x"]}), None
        )
    except InvalidOutputError:
        assert not LEAST <= seconds <= MOST
    else:
        assert math.isfinite(sample[TOTAL])
        assert sample[TOTAL] > 0


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
def test_a_benchmark_that_goes_wrong_is_reported_with_its_side(
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


def test_a_worktree_in_which_a_benchmark_failed_is_not_used_again(tmp_path: Path) -> None:
    code = "import os, sys\nif os.path.exists('once'): sys.exit(1)\nopen('once', 'w').close()"
    race = Race(tmp_path, {BASE_TREE: {"bench.py": code}})

    async def use(measurer: Measurer) -> tuple[AttemptResult, int]:
        failed = await race.perform(measurer, CALIBRATE)
        await measurer._worktrees.at_rest()
        return failed, len(race.slots.out)

    failed, still_out = race.measure(use)
    assert (failed.outcome, still_out) == (Outcome.CRASHED, 0)


def test_a_tree_that_cannot_be_checked_out_is_the_workspaces_fault(tmp_path: Path) -> None:
    (result,) = Race(tmp_path, {BASE_TREE: {"bench.py": ""}}).results(screen("unknown"))
    assert result.outcome is Outcome.INFRA_ERROR
    assert message_of(result) == "there is no tree unknown"


# ---- what benchmarks leave behind

SAVE = """
import os
path = {path!r}.replace('$TMPDIR', os.environ['TMPDIR']).replace('$PWD', os.getcwd())
os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
if not os.path.exists(path): open(path, 'w').write('42')
"""
IGNORED = "import os, tempfile; tempfile.mkstemp(); open(f'log-{os.getpid()}.txt', 'w')\n"
"""What the baseline leaves, under names that it generates."""
LATE = """
import os
count = os.environ['COUNT']
open(count, 'a').write('x')
if os.path.getsize(count) == 5:
"""
"""In its fifth process, the last of the second block."""


@pytest.mark.parametrize(
    "path",
    [
        "answers.bin",
        "~/answers",
        "$TMPDIR/answers",
        ".pytest_cache/v/cache/lastfailed",
        ".git/answers",
        "lib/.git/answers",
        "__pycache__/code.cpython-311.pyc",
        "__pycache__/answers.json",
    ],
)
def test_saved_answers_are_flagged_wherever_they_are(tmp_path: Path, path: str) -> None:
    """Beside what the baseline leaves too; in `__pycache__` as well, where no bytecode goes."""
    save = SAVE.format(path=path).replace("'~/", "os.environ['HOME'] + '/")
    trees = {BASE_TREE: {"bench.py": IGNORED, "code.py": ""}, "b": {"bench.py": IGNORED + save}}
    (flag,) = block_of(Race(tmp_path, trees).results(screen("b"))[0]).flags
    assert flag.startswith("its benchmark leaves ")
    assert flag.endswith(path.rpartition("$PWD")[2])


def test_bytecode_of_modules_and_what_the_baseline_leaves_too_are_no_flag(tmp_path: Path) -> None:
    """Of modules that a candidate adds, too, and of those that only a later process imports."""
    late = f"{IGNORED}import code_one\nif os.path.exists('fast.py'): import fast\n"
    trees = {
        BASE_TREE: {"bench.py": late, "code_one.py": ""},
        "b": {"fast.py": "import code_two", "code_two.py": ""},
        "late": {"bench.py": f"{late}{LATE}    import code_two", "code_two.py": ""},
    }
    race = Race(tmp_path, trees, env={"COUNT": str(tmp_path / "count")})
    steps = (screen("b"), screen("late"), screen("late", 2))
    assert [block_of(one).flags for one in race.results(*steps)] == [(), (), ()]
    assert not [*tmp_path.rglob("__pycache__")]


def test_answers_that_are_saved_late_are_flagged_in_that_block(tmp_path: Path) -> None:
    code = f"{LATE}    open('late.txt', 'a').write('42')\n"
    trees = {BASE_TREE: {"bench.py": ""}, "b": {"bench.py": code}}
    race = Race(tmp_path, trees, env={"COUNT": str(tmp_path / "count")})
    first, second = (block_of(one).flags for one in race.results(screen("b"), screen("b", 2)))
    assert first == ()
    assert second == ("its benchmark leaves late.txt",)


@pytest.mark.parametrize(
    ("code", "flag"),
    [
        ("open('code.txt', 'a').write('more')", "its benchmark changes code.txt"),
        (
            "import subprocess; subprocess.Popen(['sleep', '60'])",
            "its benchmark leaves processes running",
        ),
    ],
)
def test_a_changed_file_and_a_running_process_are_flagged(
    tmp_path: Path, code: str, flag: str
) -> None:
    trees = {BASE_TREE: {"bench.py": "", "code.txt": ""}, "b": {"bench.py": code}}
    assert block_of(Race(tmp_path, trees).results(screen("b"))[0]).flags == (flag,)


def test_generated_names_are_told_from_new_ones() -> None:
    """In a temporary folder, more names are generated."""
    usual = {"runs/tmpzzzzzzzz/log", "out-12.json", "$TMPDIR/pymp-abcdefgh/x", "$TMPDIR/ccX7ab1q.o"}
    left = {"runs/tmpab12cd_x/log", "out-977.json", "$TMPDIR/pymp-hgfedcba/x", "$TMPDIR/ccQ1pq9z.o"}
    new = {"cache.db", "$TMPDIR/answers"}
    assert only_with(frozenset(left | new), frozenset(usual)) == sorted(new)


# ---- benchmarks that don't do their work

PRINTS = "its benchmark prints something different from the baseline's: "
SUM = "import code_; print('sum', 42)"
SUM_OF_CODE = "import code_; print('sum', code_.x)"
SHOWN_AS = "import code_; print(f'took {code_.x} s, or {code_.x * 7} ms')"


@pytest.mark.parametrize(
    ("bench", "code", "flag"),
    [
        (SUM, "import os; os._exit(0)", f'{PRINTS}"" instead of "sum 42"'),
        (SUM_OF_CODE, "x = 0", f'{PRINTS}"sum 0" instead of "sum 42"'),
        (SUM, "print('hi' * 1000000)", f"{PRINTS}more than is kept"),
        (SUM, "x = 41", ""),
        ("import code_, os; print(os.getcwd())", "x = 41", ""),
        ("import code_, time; print(time.time_ns())", "print('hi')", ""),
        ("import code_", "print('hi')", ""),
        (SHOWN_AS, "x = 41", ""),
    ],
    ids=["early exit", "wrong", "flood", "right", "folder", "unstable", "silent", "times"],
)
def test_a_benchmark_that_prints_something_else_is_flagged_except_for_times(
    tmp_path: Path, bench: str, code: str, flag: str
) -> None:
    """If the baseline's prints the same in every process. If it never does, a notice says so."""
    base = {"bench.py": bench, "code_.py": "x = 42"}
    race = Race(tmp_path, {BASE_TREE: base, "b": {"code_.py": code}})

    async def use(measurer: Measurer) -> AttemptResult:
        calibration = finding_of(await race.perform(measurer, CALIBRATE)).calibration
        assert calibration is not None
        race.calibrated(calibration)
        return await race.perform(measurer, screen("b"))

    assert block_of(race.measure(use)).flags == ((flag,) if flag else ())
    is_seen = "time_ns" not in bench and "print" in bench
    assert [one.partition(",")[0] for one in race.said] == (
        [] if is_seen else ["The benchmark prints nothing that is the same in each process"]
    )


# ---- turns

OVERLAPS = """
import os, time
folder = os.environ['FOLDER']
os.mkdir(f'{folder}/measuring')
time.sleep(0.02)
os.rmdir(f'{folder}/measuring')
"""


def test_two_races_take_turns(tmp_path: Path) -> None:
    """No process of one runs beside one of the other: the second `mkdir` would fail."""
    env = {"FOLDER": str(tmp_path)}
    order: list[str] = []

    async def measure(name: str) -> None:
        (tmp_path / name).mkdir()
        race = Race(tmp_path / name, {BASE_TREE: {"bench.py": OVERLAPS}, "b": {}}, env=env)
        async with race.opened() as measurer:
            for number in range(1, 6):
                block_of(await race.perform(measurer, screen("b", number)))
                order.append(name)

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(measure("one"), measure("two")), 120)

    asyncio.run(main())
    assert sorted(order) == ["one"] * 5 + ["two"] * 5


def test_a_race_says_that_it_waits_for_its_turn_and_a_cancel_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurer, "LOOK_S", 0.01)
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})

    async def use(waiting: Measurer) -> None:
        async with measurer._turn(lambda: None):
            task = asyncio.create_task(race.perform(waiting, screen("b")))
            while not race.said:  # noqa: ASYNC110 - there is no such event
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
        block_of(await race.perform(waiting, screen("b")))

    race.measure(use)
    assert race.said == ["Another race measures on this machine. Waiting for its turn to end."]


def test_the_lock_for_turns_is_in_the_temporary_folder(tmp_path: Path) -> None:
    """The folder around it may not be the user's: around /tmp, it is the root's."""

    async def main() -> None:
        async with measurer._turn(lambda: None):
            pass

    asyncio.run(main())
    assert [*tmp_path.iterdir()] == [tmp_path / "scratch"]


# ---- worktrees


def test_the_baselines_worktree_stays_and_candidates_replace_one_another(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(6)]
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, **{name: {} for name in names}})
    race.most_worktrees = 3
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


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.5])
def test_a_cancel_at_any_time_leaks_no_slot(tmp_path: Path, delay_s: float) -> None:
    """`measure` checks that all were released."""
    trees = {BASE_TREE: {"bench.py": ""}, "b": {"bench.py": "import time; time.sleep(60)"}}
    race = Race(tmp_path, trees)

    async def use(measurer: Measurer) -> int:
        task = asyncio.create_task(race.perform(measurer, screen("b")))
        await asyncio.sleep(delay_s)
        task.cancel()
        await asyncio.wait([task])
        await measurer._worktrees.at_rest()
        return len(race.slots.out)

    assert race.measure(use) == 0


@pytest.mark.parametrize(
    ("setting", "value"), [("IDLE_S", 0.05), ("SOON_S", 0.1)], ids=["a test", "a candidate"]
)
def test_an_idle_worktree_is_released_for_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: float
) -> None:
    monkeypatch.setattr(measurement_worktrees, setting, value)
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}, "c": {}})
    race.slots.at_most = 2

    async def use(measurer: Measurer) -> None:
        block_of(await race.perform(measurer, screen("b")))
        async with asyncio.timeout(10):
            if setting == "IDLE_S":
                await (await race.slots.lease()).release()
            else:
                block_of(await race.perform(measurer, screen("c")))
        block_of(await race.perform(measurer, screen("b", 2)))

    race.measure(use)


def test_a_long_setup_is_waited_for_and_releases_no_other_worktree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement_worktrees, "SOON_S", 0.01)
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}, "c": {}})
    plain = race.slots.lease

    async def slow(tree: str | None = None) -> Any:
        await asyncio.sleep(0.05)
        return await plain(tree)

    monkeypatch.setattr(race.slots, "lease", slow)
    race.results(screen("b"), screen("c"), screen("b", 2), screen("c", 2))
    assert race.slots.made == 3


def test_cleaning_up_is_waited_for_before_anything_is_measured(tmp_path: Path) -> None:
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})
    race.results(CALIBRATE, screen("b"), screen("b", 2))
    assert race.slots.rested == 3


def test_a_single_slot_is_too_few_and_no_deadlock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement_worktrees, "SOON_S", 0.05)
    monkeypatch.setattr(measurement_worktrees, "PATIENCE_S", 0.05)
    race = Race(tmp_path, {BASE_TREE: {"bench.py": ""}, "b": {}})
    race.slots.at_most = 1
    (result,) = race.results(screen("b"))
    assert result.outcome is Outcome.INFRA_ERROR
    assert "no worktree for measurements" in message_of(result)


def test_closing_releases_all_even_if_it_is_cancelled_and_reports_what_cannot_be_released(
    tmp_path: Path,
) -> None:
    slots = Slots(tmp_path, {BASE_TREE: {}, "b": {}, "gone": {}})
    said: list[str] = []

    async def main() -> None:
        worktrees = MeasurementWorktrees(slots, None, baseline=BASE_TREE, say=said.append)
        for tree in slots.trees:
            place = await worktrees.worktree(tree)
        shutil.rmtree(place.top)
        closing = asyncio.create_task(worktrees.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])

    asyncio.run(main())
    assert [lease.laid for lease in slots.out] == ["gone"]
    (notice,) = said
    assert "could not be cleaned up" in notice


@pytest.mark.parametrize("setup", [(), ("cp", "code.txt", "built.txt")], ids=["plain", "set up"])
def test_a_reused_git_worktree_runs_the_code_of_its_own_candidate(
    tmp_path: Path, setup: tuple[str, ...]
) -> None:
    """Also if `setup` builds it. There are two slots for all."""
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
    race = Race(tmp_path, {}, metric="out.json")
    race.base = Base(tree=run_git(repository, "rev-parse", f"{commit}^{{tree}}"))
    race.most_worktrees = 2
    asked = Workspace(
        kind=WorkspaceKind.GIT,
        source=str(repository),
        commit=commit,
        tree=race.base.tree,
        setup=setup,
    )
    order = [3, 1, 4, 2, 1, 3, 2, 4]

    async def main() -> list[Block]:
        async with (
            Warden() as warden,
            open_workspaces(asked, scratch=tmp_path / "scratch", warden=warden, at_most=2) as pool,
            race.opened(pool) as measurer,
        ):
            steps = (screen(trees[number], place) for place, number in enumerate(order, start=1))
            return [block_of(await race.perform(measurer, step)) for step in steps]

    blocks = asyncio.run(main())
    assert [block.candidate[1]["a"] for block in blocks] == order
    assert {block.baseline[1]["a"] for block in blocks} == {100.0}
    assert [block.flags for block in blocks] == [()] * len(order)
