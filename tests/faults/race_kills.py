"""A small race whose every step can be held, killed and counted, run by the real program.

Candidates are lines in a file: whether they are right, and how long their benchmark says it took.
So a race comes to the same end each time, whatever happened on its way. Each program of it writes
down that it began and that it ended, outside of the repository; one that is told to is held.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from paraval.racing.course.steps import STEP

from paraval.racing.report.race_report import report_of
from paraval.store.store import Store
from tests.repositories import make_repository

PATIENCE_S = 60.0
PARALLEL = 4
PARAVAL = (sys.executable, "-m", "paraval")

RACE = """
name: killed
repo: repository
test: {{command: [sh, {work}/test.sh], timeout: 60}}
bench:
  command: ["{{python}}", -c, "import subprocess; subprocess.check_call(['sh', '{work}/bench.sh'])"]
  metric: {{file: m.json}}
  quiet: 0
  blocks: 3
  cpus: 0
candidates: candidates.jsonl
generate: [sh, {work}/generate.sh]
repair: [sh, {work}/repair.sh]
refine: {{command: [sh, {work}/refine.sh], depth: 1}}
profile: {{kind: line, functions: ["value:value"]}}
limits: {{parallel: 4}}
sandbox: false
"""

REPAIRED = """
name: repaired
repo: repository
test: {{command: [sh, {work}/test.sh], timeout: 60}}
bench: {{command: [sh, {work}/bench.sh], metric: {{file: m.json}}, quiet: 0, blocks: 3, cpus: 0}}
candidates: candidates.jsonl
repair: [sh, {work}/repair.sh]
limits: {{parallel: 4}}
sandbox: false
"""
"""Less of it."""

BEGIN = """
cd "${PARAVAL_WORKSPACE:-.}"
echo "begin $KIND $PARAVAL_CASE $$" >> LOG/log
hold() {
    [ -e "LOG/hold-$1" ] || return 0
    echo $$ > "LOG/held-$1"
    while [ ! -e "LOG/release-$1" ]; do sleep 0.05; done
}
"""
TEST = """
KIND=test
BEGIN
hold "test-$PARAVAL_CASE"
sleep 0.02
read verdict seconds < value.txt
echo "end $KIND $PARAVAL_CASE $$" >> LOG/log
[ "$verdict" = right ]
"""
BENCH = """
KIND=bench
[ -z "$PARAVAL_PROFILE" ] || KIND=profile
BEGIN
hold "$KIND-$PARAVAL_CASE"
read verdict seconds < value.txt
sleep "$(cat LOG/pause)"
echo "{\\"__total__\\": $seconds}" > m.json
echo "end $KIND $PARAVAL_CASE $$" >> LOG/log
"""
GENERATE = """
KIND=generate
BEGIN
printf '%s\\n' '{"name": "streamed", "files": {"value.txt": "right 0.9\\n"}}'
hold generate
printf '%s\\n' '{"name": "lame", "files": {"value.txt": "wrong 0.2\\n"}}'
echo "end $KIND $PARAVAL_CASE $$" >> LOG/log
"""
REPAIR = """
KIND=repair
BEGIN
hold "repair-$PARAVAL_CASE"
[ "$PARAVAL_CASE" != wrong ] ||
    printf '%s\\n' '{"name": "mended", "files": {"value.txt": "right 0.8\\n"}}'
echo "end $KIND $PARAVAL_CASE $$" >> LOG/log
"""
REFINE = """
KIND=refine
BEGIN
hold "refine-$PARAVAL_CASE"
[ "$PARAVAL_CASE" != quick ] ||
    printf '%s\\n' '{"name": "best", "files": {"value.txt": "right 0.4\\n"}}'
echo "end $KIND $PARAVAL_CASE $$" >> LOG/log
"""
GIT = """#!/bin/sh
case " $* " in *" apply "*)
    # Not for long: git is nobody's to end, and ends soon.
    if [ -e LOG/hold-apply ]; then touch LOG/held-apply; sleep 1; fi
esac
exec GIT "$@"
"""
GIVEN = (
    {"name": "quick", "files": {"value.txt": "right 0.5\n"}},
    {"name": "slow", "files": {"value.txt": "right 2\n"}},
    {"name": "wrong", "files": {"value.txt": "wrong 0.1\n"}},
    {"name": "twin", "files": {"value.txt": "right 0.5\n"}},
    {"name": "broken", "patch": "--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-x\n+y\n"},
)
STATUSES = {
    "quick": "accepted",
    "slow": "slower",
    "wrong": "failed",
    "twin": "duplicate",
    "broken": "invalid",
    "streamed": "accepted",
    "lame": "failed",
    "mended": "accepted",
    "best": "won",
}
PHASES = (
    "stage",
    "test-baseline",
    "bench-baseline",
    "generate",
    "test-streamed",
    "repair-wrong",
    "bench-slow",
    "refine-quick",
    "final",
    "profile-best",
)
"""What a race comes to, in this order; but for the first and `final`, the name of a hold."""

Done = set[tuple[str, str, int]]
"""Steps that have a result: kind, candidate, number."""

_STEPS = """
    SELECT trial.key, variant.choices, case_.id, trial.repeat FROM trial
    JOIN case_ ON case_.number = trial.case_ JOIN variant ON variant.number = trial.variant
"""


@dataclass(slots=True)
class World:
    """A repository, a race of it and what its programs wrote down."""

    folder: Path
    race: str = RACE
    given: Sequence[Any] = GIVEN
    environment: dict[str, str] = field(default_factory=dict)
    before: dict[str, tuple[int, int, bytes]] = field(default_factory=dict)
    _steps: dict[str, tuple[str, str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("repository", "work", "scratch", "tmp"):
            (self.folder / name).mkdir()
        (self.repository / "value.txt").write_text("right 1\n")
        make_repository(self.repository)
        scripts = {"test": TEST, "bench": BENCH, "generate": GENERATE, "repair": REPAIR}
        for name, text in {**scripts, "refine": REFINE}.items():
            filled = text.replace("BEGIN", BEGIN.strip()).replace("LOG", str(self.work))
            (self.work / f"{name}.sh").write_text(filled)
        (self.work / "pause").write_text("0.005")
        self._wrap_git()
        lines = [json.dumps(one) + "\n" for one in self.given]
        (self.folder / "candidates.jsonl").write_text("".join(lines))
        (self.folder / "race.yaml").write_text(self.race.format(work=self.work))
        self.before = self.tree()

    def _wrap_git(self) -> None:
        """Staging runs no program of the user's, but git."""
        git = shutil.which("git")
        assert git is not None
        wrapper = self.work / "bin" / "git"
        wrapper.parent.mkdir()
        filled = GIT.replace("LOG", str(self.work)).replace("GIT", git)
        wrapper.write_text(filled)
        wrapper.chmod(0o755)
        self.environment.setdefault("PATH", f"{wrapper.parent}:{os.environ['PATH']}")

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def store(self) -> Store:
        return Store(self.folder / ".paraval")

    # ---- running

    def variables(self) -> dict[str, str]:
        return {
            **os.environ,
            "PARAVAL_STORE": "",
            "PARAVAL_SCRATCH": str(self.folder / "scratch"),
            "TMPDIR": str(self.folder / "tmp"),
            "NO_COLOR": "1",
            **self.environment,
        }

    def start(self, *arguments: str) -> Engine:
        """`paraval race ...`, in the background."""
        number = len([*self.folder.glob("events-*")])
        events = self.folder / f"events-{number}"
        with events.open("w") as stderr, (self.folder / f"stdout-{number}").open("w") as stdout:
            process = subprocess.Popen(
                [*PARAVAL, *arguments, "--progress", "json"],
                cwd=self.folder,
                stdout=stdout,
                stderr=stderr,
                env=self.variables(),
            )
        return Engine(process, events, Path(stdout.name))

    def run(self, *arguments: str, code: int = 0) -> Engine:
        """To its end."""
        engine = self.start(*arguments)
        assert engine.wait() == code, engine.told()
        return engine

    def report(self, store: Path | None = None) -> dict[str, Any]:
        """The last race as it stands, from the store alone: what `paraval report --json` prints."""
        found = self.store if store is None else Store(store)
        return dict(json.loads(json.dumps(report_of(found, found.find("last")).as_json())))

    def written(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / name).read_text()))

    # ---- holding

    def hold(self, *names: str) -> None:
        """Whoever comes to this is held from now on."""
        for name in names:
            (self.work / f"hold-{name}").touch()

    def await_held(self, name: str, engine: Engine) -> None:
        held = self.work / f"held-{name}"
        wait_until(lambda: held.exists() or engine.is_over, f"{name} is held", engine.told)
        assert held.exists(), engine.told()

    def release(self, name: str) -> None:
        """Those who are held go on."""
        (self.work / f"release-{name}").touch()

    def let_go(self, name: str = "*") -> None:
        """Who comes now is not; those who are stay so."""
        for path in (*self.work.glob(f"hold-{name}"), *self.work.glob("held-*")):
            path.unlink()

    # ---- what must hold

    def done(self) -> Done:
        """The steps that have a result in the store.

        A result has the key of its trial, and a resume names trials anew: so what they are is
        remembered here.
        """
        found: set[str] = set()
        # One that was killed while it wrote its plan is none, and is not listed.
        for run in self.store.runs():
            database = sqlite3.connect(Path(run.folder, "run.db"), timeout=30)
            with contextlib.closing(database) as connection:
                self._steps.update(
                    (key, (json.loads(choices)[STEP], case, repeat))
                    for key, choices, case, repeat in connection.execute(_STEPS)
                )
                found |= {key for (key,) in connection.execute("SELECT key FROM result")}
                (checked,) = connection.execute("PRAGMA integrity_check").fetchone()
                assert checked == "ok"
        return {self._steps[key] for key in found}

    def begun(self) -> Counter[tuple[str, str]]:
        """How often each program was begun: by kind and candidate."""
        return self._counted("begin")

    def ended(self) -> Counter[tuple[str, str]]:
        return self._counted("end")

    def _counted(self, word: str) -> Counter[tuple[str, str]]:
        log = self.work / "log"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return Counter((kind, case) for what, kind, case, _ in lines if what == word)

    def tree(self) -> dict[str, tuple[int, int, bytes]]:
        """Every file of the user's repository, git's own among them: mode, time, bytes."""
        found = {}
        for path in sorted(self.repository.rglob("*")):
            seen = path.lstat()
            text = path.read_bytes() if path.is_file() else b""
            when = 0 if path.is_dir() else seen.st_mtime_ns
            found[str(path.relative_to(self.repository))] = (seen.st_mode, when, text)
        return found

    def await_nobody(self) -> None:
        """No process of a dead engine is left."""
        wait_until(lambda: not self.processes(), "nothing of it runs", self.processes)

    def processes(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                place = Path(process.cwd())
                is_here = self.folder in (place, *place.parents)
                if is_here and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
        return found

    def left_in_scratch(self) -> list[str]:
        return [str(path) for name in ("scratch", "tmp") for path in (self.folder / name).iterdir()]


@dataclass(slots=True)
class Engine:
    """A `paraval` that runs, and what it says."""

    process: subprocess.Popen[bytes]
    events: Path
    stdout: Path

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it does not end:\n{self.told()}") from None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def told(self) -> str:
        return self.events.read_text()[-3000:] + self.stdout.read_text()[-3000:]

    def happened(self, event: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """The events of a kind so far, with these fields; `step` among them."""
        for line in self.events.read_text().splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue  # A line that is being written.
            told |= {"step": told.get("variant", {}).get(STEP)}
            if told.get("event") == event and all(told[key] == fields[key] for key in fields):
                yield told

    def await_event(self, event: str, **fields: Any) -> None:
        what = f"{event} {fields}"
        wait_until(lambda: any(self.happened(event, **fields)) or self.is_over, what, self.told)
        assert any(self.happened(event, **fields)), self.told()

    def started(self) -> Done:
        """The steps that it has begun."""
        events = self.happened("attempt_started")
        return {(one["step"], one["case"], one["repeat"]) for one in events}


def wait_until(
    condition: Callable[[], object], what: str, more: Callable[[], object] = lambda: ""
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}: {more()}"
        time.sleep(0.01)


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["status"] for one in report["candidates"]}


def essence(report: dict[str, Any]) -> dict[str, Any]:
    """What of a report is the same for every race of the same world: no times, no noise."""
    names = ("name", "status", "reason", "parent", "origin", "duplicate_of", "speedup", "tests")
    return {
        "winner": report["winner"],
        "over": report["over"],
        "notes": report["notes"],
        "candidates": [{name: one[name] for name in names} for one in report["candidates"]],
    }


# ---- kills


def kill_in(phase: str, world: World, engine: Engine) -> None:
    """kill -9, when the race has come there."""
    match phase:
        case "stage":
            world.await_held("apply", engine)
        case "final":
            engine.await_event("attempt_started", step="final")
            world.hold("bench-best", "bench-quick")
            wait_until(lambda: [*world.work.glob("held-bench-*")], "a final is held", engine.told)
            world.let_go("bench-*")
        case _:
            world.await_held(phase, engine)
    engine.kill()


def killed_at_random(world: World, draw: random.Random, kills: int) -> int:
    """kill -9 at so many moments, then a resume to the end; how many steps were run again."""
    arguments = ["race", "race.yaml"]
    done: Done = set()
    again = 0
    for _ in range(kills):
        engine = world.start(*arguments)
        try:
            engine.process.wait(draw.uniform(0.3, 2.0))
        except subprocess.TimeoutExpired:
            engine.kill()
        world.await_nobody()
        _nothing_lost_or_doubled(world, engine, done)
        done = world.done()
        again += len(engine.started() - done)
        if engine.process.returncode == 0:
            return again
        assert engine.process.returncode == -signal.SIGKILL, engine.told()
        # One that was killed while it wrote its plan has run nothing: there is nothing to resume.
        if world.store.runs():
            arguments = ["resume", "last"]
    engine = world.run(*arguments)
    _nothing_lost_or_doubled(world, engine, done)
    return again


def _nothing_lost_or_doubled(world: World, engine: Engine, done: Done) -> None:
    assert done <= world.done(), f"lost: {done - world.done()}"
    assert not engine.started() & done, f"run again: {engine.started() & done}"


# ---- Ctrl-C


def only_tests(steps: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Of these steps, the tests: what proposes and stages candidates takes no place of theirs."""
    return [step for step in steps if step[0] == "test"]


def interrupt_and_go_on(world: World, where: str, times: int) -> None:
    """Ctrl-C when the race has come there, once or twice; then a resume to the end."""
    world.hold(where)
    engine = world.start("race", "race.yaml")
    world.await_held(where, engine)
    engine.process.send_signal(signal.SIGINT)
    if times > 1:
        engine.await_event("notice")
        engine.process.send_signal(signal.SIGINT)
    assert engine.wait() == 130, engine.told()
    assert world.processes() == []
    assert world.left_in_scratch() == []
    (run,) = world.store.runs()
    assert f"paraval race --resume {run.id}" in engine.stdout.read_text()
    done = world.done()
    world.let_go()
    resumed = world.run("resume", run.id)
    assert not resumed.started() & done
    assert world.left_in_scratch() == []
    assert world.tree() == world.before
