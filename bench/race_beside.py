"""A race beside pyperf and pytest-benchmark on a machine that others keep busy: `make bench-race`.

Three changes to a small program, of which the true speedup is known by counting: 1.5, 1.2 and 1.
Each tool measures the original and the changes, as its documentation says, while a load comes and
goes. The reference is the least CPU time of interleaved runs. About five minutes.
"""

from __future__ import annotations

import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workspaces import git

PEERS = Path(__file__).parent / "peers" / ".venvs" / "race" / "bin" / "python"
TIMES = 60
CHANGES = {"1.5": TIMES * 2 // 3, "1.2": TIMES * 5 // 6, "1.0": TIMES}
"""How often the work is done by each change."""
WORK = """\
def run():
    for _ in range({times}):
        total = sum(range(50_000)){same}
    return total
"""
BENCH = "from work import run\nprint(run())\n"
TEST = "from work import run\n\n\ndef test_run():\n    assert run() == 1249975000\n"
TIMED = "from work import run\n\n\ndef test_run(benchmark):\n    benchmark(run)\n"
BUSY = """
import random, sys, time
chance = random.Random(int(sys.argv[1]))
while True:
    until = time.perf_counter() + chance.uniform(0.2, 8)
    while time.perf_counter() < until:
        pass
    time.sleep(chance.uniform(0.2, 8))
"""
REFERENCE_RUNS = 24


def source(times: int) -> str:
    return WORK.format(times=times, same=" + 0" if times == TIMES else "")


@contextmanager
def load() -> Iterator[None]:
    """Two other processes that work now and then."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY, str(seed)]) for seed in (1, 2)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def folders(top: Path) -> dict[str, Path]:
    """The original and each change, in a folder of its own."""
    found = {}
    for name, times in {"original": 0, **CHANGES}.items():
        folder = top / name
        folder.mkdir()
        text = WORK.format(times=TIMES, same="") if name == "original" else source(times)
        (folder / "work.py").write_text(text)
        (folder / "bench.py").write_text(BENCH)
        (folder / "timed_test.py").write_text(TIMED)
        found[name] = folder
    return found


def reference(trees: dict[str, Path]) -> dict[str, float]:
    """The least CPU time of interleaved runs."""
    least: dict[str, list[float]] = {name: [] for name in trees}
    for number in range(REFERENCE_RUNS):
        for name in random.Random(number).sample(list(trees), len(trees)):
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            subprocess.run(
                [sys.executable, "bench.py"], cwd=trees[name], check=True, capture_output=True
            )
            least[name].append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return {name: min(least["original"]) / min(times) for name, times in least.items()}


def race(top: Path) -> dict[str, str]:
    repo, patches = top / "repo", top / "patches"
    repo.mkdir()
    patches.mkdir()
    git(repo, "init", "-q")
    (repo / "work.py").write_text(WORK.format(times=TIMES, same=""))
    (repo / "bench.py").write_text(BENCH)
    (repo / "test_work.py").write_text(TEST)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "the original")
    for name, times in CHANGES.items():
        (repo / "work.py").write_text(source(times))
        patch = subprocess.run(["git", "diff"], cwd=repo, check=True, capture_output=True).stdout
        (patches / f"change-{name}.patch").write_bytes(patch)
    git(repo, "checkout", "-q", ".")
    command = [
        *(sys.executable, "-m", "paraval", "race", "--repo", str(repo)),
        *("--test", f"{sys.executable} -m pytest -q", "--bench", f"{sys.executable} bench.py"),
        *(str(patches), "--store", str(top / "store"), "-o", str(top / "race.json")),
        *("--progress", "none"),
    ]
    subprocess.run(command, check=False, capture_output=True)
    found = json.loads((top / "race.json").read_text())
    return {one["name"].removeprefix("change-"): _speed(one) for one in found["candidates"]}


def _speed(one: dict[str, object]) -> str:
    speed = one["speedup"]
    if not isinstance(speed, dict):
        return str(one["reason"])
    words = f"{speed['estimate']:.2f} ({speed['low']:.2f}-{speed['high']:.2f})"
    return f"{words} {str(one['status']).replace('_', ' ')}"


def pyperf(trees: dict[str, Path]) -> dict[str, str]:
    files = {name: folder / "pyperf.json" for name, folder in trees.items()}
    for name, folder in trees.items():
        command = [str(PEERS), "-m", "pyperf", "command", "--fast", "-q", "-o", str(files[name])]
        subprocess.run(
            [*command, "--", sys.executable, "bench.py"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
    found = {}
    for name in CHANGES:
        command = [str(PEERS), "-m", "pyperf", "compare_to"]
        ended = subprocess.run(
            [*command, str(files["original"]), str(files[name])],
            check=True,
            capture_output=True,
            text=True,
        )
        said = re.search(r"([\d.]+)x (faster|slower)", ended.stdout)
        found[name] = f"{said[1]} {said[2]}" if said else "not significant"
    return found


def pytest_benchmark(trees: dict[str, Path]) -> dict[str, str]:
    seconds = {}
    for name, folder in trees.items():
        command = [str(PEERS), "-m", "pytest", "-q", "timed_test.py", "--benchmark-json=b.json"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        (one,) = json.loads((folder / "b.json").read_text())["benchmarks"]
        seconds[name] = (one["stats"]["min"], one["stats"]["median"])
    least, middle = seconds["original"]
    return {
        name: f"{least / seconds[name][0]:.2f} min, {middle / seconds[name][1]:.2f} median"
        for name in CHANGES
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, load():
        top = Path(folder)
        trees = folders(top)
        rows: dict[str, dict[str, str]] = {}
        began = time.monotonic()
        for name, measure in {"pyperf": pyperf, "pytest-benchmark": pytest_benchmark}.items():
            rows[name] = measure(trees)
        rows["paraval race"] = race(top)
        known = reference(trees)
        rows["reference"] = {name: f"{known[name]:.2f}" for name in CHANGES}
        took = time.monotonic() - began
    print("| tool | " + " | ".join(f"truly {name}" for name in CHANGES) + " |")
    print("| --- " * (len(CHANGES) + 1) + "|")
    for name, row in rows.items():
        print(f"| {name} | " + " | ".join(row[change] for change in CHANGES) + " |")
    print(f"\n{took:.0f} s, load {statistics.fmean(_loads()):.1f}")


def _loads() -> tuple[float, ...]:
    return tuple(map(float, Path("/proc/loadavg").read_text().split()[:1]))


if __name__ == "__main__":
    main()
