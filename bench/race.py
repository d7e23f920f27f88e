"""The race's figures: how little of it is the engine's own time. `make bench`.

Each is a run of `paraval race` on a small repository, read from the store afterwards: when each
step began and ended, and what its processes took.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from figures import measure_chosen, say
from workspaces import git

WAIT_S = 2.0
BURN_S = 1.0
FILES = {
    "value.txt": "0\n",
    "wait.py": f"import time; time.sleep({WAIT_S})\n",
    "burn.py": f"import time\nwhile time.process_time() < {BURN_S}: pass\n",
    "nothing.py": "",
    "bench.py": "import time; time.sleep(0.05)\n",
}
STEPS = """
SELECT case_.id, variant.choices, trial.repeat, attempt.started_at, attempt.ended_at,
       attempt.content
FROM attempt JOIN trial USING (key) JOIN case_ ON case_.number = trial.case_
     JOIN variant ON variant.number = trial.variant
WHERE attempt.ended_at IS NOT NULL AND attempt.number > 0
ORDER BY attempt.started_at
"""


@dataclass(frozen=True, slots=True)
class Done:
    """A step that has ended, and what it found."""

    candidate: str
    kind: str
    number: int
    began: float
    ended: float
    found: dict[str, Any]


def make_repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "what candidates change")
    return folder


def make_candidates(folder: Path, count: int) -> Path:
    """Patches that each change the same line, all differently."""
    folder.mkdir()
    for number in range(1, count + 1):
        patch = f"--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-0\n+{number}\n"
        (folder / f"c{number:02}.patch").write_text(patch, encoding="utf-8")
    return folder


def race(place: Path, *, test: str, bench: str, count: int, parallel: int) -> list[Done]:
    """The steps of a race, in the order in which they began."""
    keys = {
        "repo": str(make_repository(place / "repository")),
        "test": [sys.executable, "-S", test],
        # Other processes disturb the figures themselves: waiting for them would hide it.
        "bench": {"command": [sys.executable, "-S", bench], "quiet": 0},
        "candidates": str(make_candidates(place / "candidates", count)),
        "limits": {"parallel": parallel},
    }
    (place / "race.yaml").write_text(json.dumps({"race": keys}), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "paraval", "race", "race.yaml", "--store", str(place / "store")),
        *("-o", str(place / "race.json")),
    ]
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    # No candidate is faster, so there is no winner.
    if ended.returncode not in (0, 1):
        raise SystemExit(f"the race failed:\n{ended.stdout}\n{ended.stderr}")
    report = json.loads((place / "race.json").read_text(encoding="utf-8"))
    failed = [one for one in report["candidates"] if one["status"] in ("failed", "infra_error")]
    if failed:
        raise SystemExit(f"{failed[0]['name']} failed: {failed[0]['reason']}")
    return list(steps_of(place / "store"))


def steps_of(store: Path) -> Iterator[Done]:
    (file,) = store.glob("runs/*/run.db")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        for candidate, choices, number, began, ended, content in connection.execute(STEPS):
            output = json.loads(content or "{}").get("output") or {}
            found = output.get("metadata", {}).get("race", {})
            yield Done(candidate, json.loads(choices)["step"], number, began, ended, found)


def correctness_s(steps: list[Done]) -> float:
    """From the start of the first candidate's test to the end of the last one's."""
    tests = [step for step in steps if step.kind == "test" and step.candidate != "baseline"]
    return max(step.ended for step in tests) - min(step.began for step in tests)


# ---- figures


def waiting_tests() -> None:
    count, slots = 24, 8
    ideal_s = WAIT_S * count / slots
    with tempfile.TemporaryDirectory() as folder:
        steps = race(Path(folder), test="wait.py", bench="nothing.py", count=count, parallel=slots)
    wall_s = correctness_s(steps)
    ratio = wall_s / ideal_s
    name = f"{count} candidates, tests that wait {WAIT_S:g} s, {slots} slots"
    value = f"{wall_s:.2f} s, {ratio:.2f} of the ideal {ideal_s:g} s"
    say(name, value, "<= 1.25", reached=ratio <= 1.25)


def gaps() -> None:
    with tempfile.TemporaryDirectory() as folder:
        steps = race(Path(folder), test="nothing.py", bench="bench.py", count=2, parallel=2)
    blocks = [step for step in steps if step.found.get("block")]
    within = [step.found["block"]["gap_s"] for step in blocks]
    between = list(gaps_between(blocks))
    for name, found in (("within a block", within), ("around a block", between)):
        median_ms, worst_ms = 1e3 * statistics.median(found), 1e3 * max(found)
        value = f"{median_ms:.1f} ms, {worst_ms:.1f} ms at most, of {len(found)}"
        say(f"between two processes, {name}", value, "<= 50 ms", reached=worst_ms <= 50)


def gaps_between(blocks: list[Done]) -> Iterator[float]:
    """All time in which no process ran from the end of a block to the end of the next one: what is
    between blocks, and the little that is within. The first of a candidate in a phase is left out:
    its worktree is made ready then, and the machine waited for."""
    known: set[tuple[str, str]] = set()
    for before, block in pairwise(blocks):
        known.add((before.kind, before.candidate))
        if (block.kind, block.candidate) in known:
            sides = (*block.found["block"]["baseline"], *block.found["block"]["candidate"])
            ran_s = sum(sample["__total__"] for sample in sides)
            yield block.ended - before.ended - ran_s


def burning_tests() -> None:
    count = 16
    with tempfile.TemporaryDirectory() as folder:
        by_xargs_s = xargs_s(Path(folder), count)
    with tempfile.TemporaryDirectory() as folder:
        steps = race(Path(folder), test="burn.py", bench="nothing.py", count=count, parallel=2)
    wall_s = correctness_s(steps)
    ratio = wall_s / by_xargs_s
    name = f"{count} candidates, tests that burn {BURN_S:g} s of CPU, 2 concurrent"
    value = f"{wall_s:.2f} s, {ratio:.2f} of xargs -P 2"
    say(name, value, "<= 1.15", reached=ratio <= 1.15)


def xargs_s(place: Path, count: int) -> float:
    """The same tests in existing checkouts. On a busy machine this means little: kernels share time
    among sessions (autogroup), and each of our tests is one."""
    repository = make_repository(place / "repository")
    checkouts = [place / f"checkout{number}" for number in range(count)]
    for checkout in checkouts:
        git(place, "clone", "-q", str(repository), str(checkout))
    began = time.perf_counter()
    subprocess.run(
        ["xargs", "-P", "2", "-I", "{}", sys.executable, "-S", "{}/burn.py"],
        input="\n".join(map(str, checkouts)),
        text=True,
        check=True,
    )
    return time.perf_counter() - began


FIGURES = {"waiting": waiting_tests, "gaps": gaps, "burning": burning_tests}

if __name__ == "__main__":
    measure_chosen(__doc__, FIGURES)
