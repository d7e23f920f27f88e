"""Kills an engine at every SQL statement of a small run, and resumes it after each.

Run as a script, so that it is single-threaded and may fork: each engine is a fork that dies by
SIGKILL when its Nth statement is about to be executed. Prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import paraval
from paraval.records import Happening, TrialEnded
from paraval.runner import run as composition
from paraval.settings import Options
from paraval.store.store import Store

TRIALS = 5
PARALLEL = 2


class Journal:
    """Lines that are on their way to disk before anyone can die."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, *words: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, (" ".join(words) + "\n").encode())
        os.close(descriptor)

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self._path.read_text().splitlines()]


class Acknowledging:
    """Writes down every result that the engine calls done."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __call__(self, event: Happening) -> None:
        if isinstance(event, TrialEnded):
            assert event.result.result.output is not None
            self._journal.add(event.trial.case.id, event.result.result.output.text)

    def tick(self, now: float) -> None: ...


def engine(folder: Path, die_at: int | None, resume: str | None) -> None:
    """One engine's life."""
    seen = 0

    def trace(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    calls = Journal(folder / "calls")

    async def answer(case: paraval.Case) -> str:
        token = uuid.uuid4().hex
        calls.add(case.id, token)
        return token

    suite = paraval.Suite(
        name="small",
        cases=[paraval.Case(id=f"c{i}") for i in range(TRIALS)],
        target=answer,
    )
    composition.open_store = lambda options: Store(options.store or Path(), trace=trace)
    acknowledging = Acknowledging(Journal(folder / "acknowledged"))
    asyncio.run(
        paraval.run_async(
            suite,
            parallel=PARALLEL,
            options=Options(store=folder / "store", resume=resume),
            observer=acknowledging,
        )
    )


def survives(work: Callable[[], None]) -> bool:
    """Whether a fork that does this work lives to its end."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    assert status == 0, f"the engine failed by itself: {status}"
    return True


def runs_in(folder: Path) -> list[Path]:
    return sorted((folder / "store" / "runs").glob("*/run.db"))


def check(folder: Path, kills: int) -> int:
    """Holds the promises against what the journals say; gives how often work was done again."""
    stored: dict[str, str] = {}
    for database in runs_in(folder):
        connection = sqlite3.connect(database)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
    store = Store(folder / "store")
    (info,) = [info for info in store.runs() if info.done]
    with store.reader(info) as reader:
        for result in reader.results():
            assert result.outcome is paraval.Outcome.PASSED
            assert result.case_id not in stored
            assert result.result.output is not None
            stored[result.case_id] = result.result.output.text
    assert len(stored) == TRIALS
    acknowledged = Journal(folder / "acknowledged").lines()
    assert all(stored[case] == token for case, token in acknowledged), "a result was lost"
    assert len({case for case, _ in acknowledged}) == len(acknowledged), "a result was doubled"
    calls = Journal(folder / "calls").lines()
    again = len(calls) - TRIALS
    assert again <= 2 * PARALLEL * kills, f"{again} repeated after {kills} kills"
    return again


def resume_name(folder: Path) -> str | None:
    """The run to go on with; None where the engine died before there was one."""
    for info in Store(folder / "store").runs():
        return info.id
    return None


def kill_and_recover(folder: Path, point: int) -> int | None:
    """Dies at this statement, and recovers. Gives the kills; None: there was no such statement."""
    folder.mkdir()
    for name in ("calls", "acknowledged"):
        (folder / name).touch()
    if survives(lambda: engine(folder, point, None)):
        return None
    # The second death is in the recovery of the first.
    if survives(lambda: engine(folder, 1 + point % 7, resume_name(folder))):
        return 1
    assert survives(lambda: engine(folder, None, resume_name(folder)))
    return 2


def main(base: Path) -> None:
    points = again = 0
    while (kills := kill_and_recover(base / f"kill-{points + 1}", points + 1)) is not None:
        points += 1
        again += check(base / f"kill-{points}", kills)
    print(json.dumps({"points": points, "again": again}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
