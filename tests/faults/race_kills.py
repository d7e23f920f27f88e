"""A small race whose every step can be held, killed and counted, run by the real program.

A candidate changes one line: whether it is correct, and how long its benchmark reports. So a race
ends the same each time, whatever happened on its way. Each program of it logs that it began and
that it ended, outside of the repository; one that is to be held waits.
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

from paraval.racing.run import report_of
from paraval.racing.steps import STEP, StepKind
from paraval.store.store import Store
from tests.repositories import make_repository

PATIENCE_S = 60.0
PARALLEL = 4
PARAVAL = (sys.executable, "-m", "paraval")

RACE = """
name: killed
race:
  repo: repository
  test: {{command: [sh, {work}/test.sh], timeout: 60}}
  bench:
    {{command: ["{{python}}", {work}/bench.py], metric: m.json, quiet: 0, blocks: 3, cpus: 0}}
  candidates: candidates.jsonl
  propose: {{command: [sh, {work}/propose.sh], rounds: 3}}
  profile: line
  functions: ["value:value"]
  accept: {{unseen_results: true}}
  limits: {{parallel: 4}}
  sandbox: false
"""

SMALL_RACE = """
name: small
race:
  repo: repository
  test: {{command: [sh, {work}/test.sh], timeout: 60}}
  bench: {{command: [sh, {work}/bench.sh], metric: m.json, quiet: 0, blocks: 3, cpus: 0}}
  candidates: candidates.jsonl
  accept: {{unseen_results: true}}
  limits: {{parallel: 4}}
  sandbox: false
"""
TWO_ROUNDS = f"{SMALL_RACE}  propose: {{{{command: [sh, {{work}}/propose.sh], rounds: 2}}}}\n"

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
BEGIN
hold "$KIND-$PARAVAL_CASE"
read verdict seconds < value.txt
sleep "$(cat LOG/pause)"
echo "{\\"__total__\\": $seconds}" > m.json
echo "end $KIND $PARAVAL_CASE $$" >> LOG/log
"""
PYTHON_BENCH = """
import os, time
kind = "profile" if "PARAVAL_PROFILE" in os.environ else "bench"
case = os.environ["PARAVAL_CASE"]
def log(word):
    with open("LOG/log", "a") as file:
        file.write(f"{word} {kind} {case} {os.getpid()}\\n")
log("begin")
if os.path.exists(f"LOG/hold-{kind}-{case}"):
    open(f"LOG/held-{kind}-{case}", "w").close()
    while not os.path.exists(f"LOG/release-{kind}-{case}"):
        time.sleep(0.05)
verdict, seconds = open("value.txt").read().split()
time.sleep(float(open("LOG/pause").read()))
with open("m.json", "w") as file:
    file.write('{"__total__": %s}' % seconds)
log("end")
"""
"""The same, for a profile."""
PROPOSE = """
KIND=propose
PARAVAL_CASE=round-$(sed 's/.*"round": \\([0-9]*\\), "rounds": .*/\\1/')
BEGIN
hold "propose-$PARAVAL_CASE"
cat "LOG/$PARAVAL_CASE"
echo "end $KIND $PARAVAL_CASE $$" >> LOG/log
"""
GIT = """#!/bin/sh
case " $* " in *" apply "*)
    # Not for long: nothing ends git, which ends soon.
    if [ -e LOG/hold-apply ]; then touch LOG/held-apply; sleep 1; fi
esac
exec GIT "$@"
"""


def candidate(name: str, value: str, **more: str) -> dict[str, str]:
    patch = f"--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-right 1\n+{value}\n"
    return {"name": name, "patch": patch, **more}


GIVEN = (
    candidate("quick", "right 0.5"),
    candidate("slow", "right 2"),
    candidate("wrong", "wrong 0.1"),
    candidate("twin", "right 0.5"),
    {"name": "broken", "patch": "--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-x\n+y\n"},
)
FIXED = candidate("fixed", "right 0.8", parent="wrong")
ROUNDS = (
    (candidate("first", "right 0.9"), candidate("lame", "wrong 0.2")),
    (FIXED,),
    (candidate("best", "right 0.4", parent="quick"),),
)
STATUSES = {
    "quick": "accepted",
    "slow": "slower",
    "wrong": "failed",
    "twin": "duplicate",
    "broken": "invalid",
    "first": "accepted",
    "lame": "failed",
    "fixed": "accepted",
    "best": "won",
}
PHASES = (
    "test-baseline",
    "bench-baseline",
    "propose-round-1",
    "stage",
    "test-first",
    "bench-slow",
    "propose-round-2",
    "test-fixed",
    "propose-round-3",
    "final",
    "profile-best",
)
"""What a race comes to, in this order; but for `stage` and `final`, the name of a hold."""

Done = set[tuple[str, str, int]]
"""Steps: kind, candidate, number. A call of `propose` has its round instead of a candidate."""

_STEPS = """
    SELECT trial.key, variant.choices, case_.id, trial.repeat FROM trial
    JOIN case_ ON case_.number = trial.case_ JOIN variant ON variant.number = trial.variant
"""


@dataclass(slots=True)
class World:
    """A repository, a race of it and what its programs logged."""

    folder: Path
    race: str = RACE
    given: Sequence[Any] = GIVEN
    rounds: Sequence[Sequence[Any]] = ROUNDS
    environment: dict[str, str] = field(default_factory=dict)
    before: dict[str, tuple[int, int, bytes]] = field(default_factory=dict)
    _steps: dict[str, tuple[str, str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("repository", "work", "scratch", "tmp"):
            (self.folder / name).mkdir()
        (self.repository / "value.txt").write_text("right 1\n")
        make_repository(self.repository)
        for name, text in {"test": TEST, "bench": BENCH, "propose": PROPOSE}.items():
            filled = text.replace("BEGIN", BEGIN.strip()).replace("LOG", str(self.work))
            (self.work / f"{name}.sh").write_text(filled)
        (self.work / "bench.py").write_text(PYTHON_BENCH.replace("LOG", str(self.work)))
        (self.work / "pause").write_text("0.005")
        self._wrap_git()
        _write_lines(self.folder / "candidates.jsonl", self.given)
        for number, proposed in enumerate(self.rounds, 1):
            _write_lines(self.work / f"round-{number}", proposed)
        (self.folder / "race.yaml").write_text(self.race.format(work=self.work))
        self.before = self.tree()

    def _wrap_git(self) -> None:
        """Staging runs no program but git."""
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
        return Engine(process, events, Path(stdout.name), self.begun())

    def run(self, *arguments: str, code: int = 0) -> Engine:
        """Run it to its end."""
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
        """Hold every process that comes here from now on."""
        for name in names:
            (self.work / f"hold-{name}").touch()

    def await_held(self, name: str, engine: Engine) -> None:
        held = self.work / f"held-{name}"
        wait_until(lambda: held.exists() or engine.is_over, f"{name} is held", engine.told)
        assert held.exists(), engine.told()

    def release(self, name: str) -> None:
        """Those that are held continue."""
        (self.work / f"release-{name}").touch()

    def let_go(self, name: str = "*") -> None:
        """Hold no more; those that are held stay so."""
        for path in (*self.work.glob(f"hold-{name}"), *self.work.glob("held-*")):
            path.unlink()

    # ---- what must hold

    def started(self, engine: Engine) -> Done:
        """The steps that an engine has begun, up to now if it is the last one."""
        events = engine.happened("attempt_started")
        steps = {(one["step"], one["case"], one["repeat"]) for one in events}
        asked = self.begun() - engine.begun_before
        return {step for step in steps if step[0] != StepKind.PROPOSE} | {
            (kind, case, 1) for kind, case in asked if kind == StepKind.PROPOSE
        }

    def done(self) -> Done:
        """The steps that have a result in the store.

        A result has the key of its trial, and a resume adds trials anew: so they are remembered
        here. Calls of `propose` differ only by their key, and are answered one after the other.
        """
        found: set[str] = set()
        # A run that was killed while it wrote its plan is not listed.
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
        steps = [self._steps[key] for key in found]
        answered = sum(kind == StepKind.PROPOSE for kind, *_ in steps)
        return {step for step in steps if step[0] != StepKind.PROPOSE} | {
            (StepKind.PROPOSE, f"round-{number}", 1) for number in range(1, answered + 1)
        }

    def begun(self) -> Counter[tuple[str, str]]:
        """How often each program began: by kind, and candidate or round."""
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
        """But for the lock of those who measure, which is shared."""
        places = [path for name in ("scratch", "tmp") for path in (self.folder / name).iterdir()]
        return [str(path) for path in places if path.suffix != ".lock"]


@dataclass(slots=True)
class Engine:
    """A running `paraval`, and what it prints."""

    process: subprocess.Popen[bytes]
    events: Path
    stdout: Path
    begun_before: Counter[tuple[str, str]]

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


def _write_lines(path: Path, items: Sequence[Any]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in items))


def wait_until(
    condition: Callable[[], object], what: str, more: Callable[[], object] = lambda: ""
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited too long until {what}: {more()}"
        time.sleep(0.01)


def statuses(report: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["status"] for one in report["candidates"]}


def essence(report: dict[str, Any]) -> dict[str, Any]:
    """What is the same in the report of every race of a world: no times, no noise."""
    names = ("name", "status", "reason", "parent", "round", "duplicate_of", "speedup", "tests")
    return {
        "winner": report["winner"],
        "over": report["over"],
        "notes": report["notes"],
        "candidates": [{name: one[name] for name in names} for one in report["candidates"]],
    }


# ---- kills


def kill_in(phase: str, world: World, engine: Engine) -> None:
    """kill -9, when the race has got there."""
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
        again += len(world.started(engine) - done)
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
    again = world.started(engine) & done
    assert not again, f"run again: {again}"


# ---- Ctrl-C


def only_tests(steps: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """The tests among these steps: only those have a limit here."""
    return [step for step in steps if step[0] == "test"]


def interrupt_and_resume(world: World, where: str, times: int) -> None:
    """Ctrl-C when the race has got there, once or twice; then a resume to the end."""
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
    assert not world.started(resumed) & done
    assert world.left_in_scratch() == []
    assert world.tree() == world.before
