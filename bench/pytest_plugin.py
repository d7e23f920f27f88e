"""The pytest plugin's figures: suites of tests that wait, beside plain pytest and xdist.

Each suite is written to a folder of its own and run by `python -m pytest` as a user would, with the
start of Python in the time.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from figures import WITH_PYC_FILES, say

WAITING = """
import os, time, pytest

@pytest.mark.parametrize("number", range(200))
def test_waits(number):
    time.sleep(float(os.environ.get("WAIT_S", "0.2")))
"""
EXAMPLE = Path(__file__).parents[1] / "examples" / "pytest-own-client"
OWN_CLIENT = ("-p", "anyio", "-p", "paraval.pytest_plugin.plugin")
TRIVIAL = "def test_{0}():\n    assert {0} + 1 == {1}\n\n"
LONG = """
import json, os, time, pytest

SECONDS = {seconds}

@pytest.mark.parametrize("number", range(len(SECONDS)))
def test_waits(number):
    began = time.time()
    time.sleep(SECONDS[number])
    with open("times.jsonl", "a") as file:
        file.write(json.dumps([began, time.time()]) + "\\n")
"""
CHANGING = """
import os, pytest

@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "some_name", "some value", raising=False)
"""
STARTS = """
import time, pytest

@pytest.mark.parametrize("number", range(20))
def test_starts(number, record_property):
    print(time.time())
    time.sleep(2)
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of pytest."""

    wall_s: float
    session_s: float
    """By its own account: without the start of Python."""
    own_memory: int
    """Of its processes but the first, in bytes: what a typical one shares with no other."""
    output: str


def pytest_command(*flags: str) -> list[str]:
    """pytest with nothing but the plugin that is measured."""
    plugin = {"--parallel": ["-p", "paraval.pytest_plugin.plugin"], "-n": ["-p", "xdist"]}
    plugins = [one for flag in flags for one in plugin.get(flag, [])]
    return [sys.executable, "-m", "pytest", "-q", *plugins, *flags, "."]


def environment(wait_s: float) -> dict[str, str]:
    return {**WITH_PYC_FILES, "WAIT_S": str(wait_s), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(folder: Path, *flags: str, wait_s: float = 0.2) -> Ran:
    command = pytest_command(*flags)
    with tempfile.TemporaryFile("w+") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(wait_s),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        memory = 0
        while process.poll() is None:
            if flags and time.perf_counter() - began > 1.5:
                memory = max(memory, _own_memory(process.pid))
            time.sleep(0.02)
        wall_s = time.perf_counter() - began
        output.seek(0)
        told = output.read()
    if process.returncode != 0 and folder.name != "tests":  # One of the example's tests fails.
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{told}")
    found = re.findall(r"(?:passed|collected).* in ([\d.]+)s", told)
    return Ran(wall_s, float(found[-1]), memory, told)


def _own_memory(pid: int) -> int:
    try:
        family = psutil.Process(pid).children(recursive=True)
        return int(statistics.median(one.memory_full_info().uss for one in family))
    except (psutil.Error, statistics.StatisticsError):
        return 0


def waiting(folder: Path) -> None:
    _waiting(folder, "200 tests that wait 0.2 s, --parallel 20")
    others = run(folder, "-n", "20")
    say("  the same with xdist -n 20, for comparison", f"{others.wall_s:.2f} s")


def changing(folder: Path) -> None:
    (folder / "conftest.py").write_text(CHANGING)
    _waiting(folder, "the same, each with monkeypatch.setenv, chdir and setattr")


def _waiting(folder: Path, what: str) -> None:
    (folder / "test_waiting.py").write_text(WAITING)
    both = [(run(folder, "--co").wall_s, run(folder, "--parallel", "20")) for _ in range(3)]
    start_s = statistics.median(start for start, _ in both)
    session_s = statistics.median(ran.session_s for _, ran in both)
    say(
        what,
        f"{session_s:.2f} s, {session_s / 2:.2f} of the ideal 2 s",
        "<= 1.35",
        reached=session_s <= 1.35 * 2,
    )
    wall_s = statistics.median(ran.wall_s for _, ran in both)
    ratio = wall_s / (start_s + 2)
    say(
        "  the whole command, relative to plain pytest's start and the ideal",
        f"{wall_s:.2f} s, {ratio:.2f} of {start_s:.2f} + 2 s",
        "<= 1.35",
        reached=ratio <= 1.35,
    )


def starts(folder: Path) -> None:
    """20 tests that begin at once: each worker runs one."""
    (folder / "test_starts.py").write_text(STARTS)
    ran = run(folder, "--parallel", "20", "-rP")
    began = sorted(map(float, re.findall(r"^(\d{10}\.\d+)$", ran.output, re.MULTILINE)))
    start_s = (began[-1] - began[0]) / (len(began) - 1)
    say(
        "one more worker starts within",
        f"{start_s * 1000:.0f} ms",
        "<= 20 ms",
        reached=start_s <= 0.02,
    )
    say(
        "  and has memory of its own",
        f"{ran.own_memory / 1e6:.1f} MB",
        "<= 10 MB",
        reached=0 < ran.own_memory <= 10e6,
    )


def best_possible(seconds: Sequence[float], at_once: int) -> float:
    """Of no more than twice as many tests as run at once: the shortest ones share a place, the
    shortest of them with the longest."""
    shared = sorted(seconds)[: 2 * (len(seconds) - at_once)]
    pairs = [one + other for one, other in zip(shared, reversed(shared), strict=True)]
    return max([*pairs, max(seconds)])


def span_of(folder: Path, seconds: Sequence[float], at_once: int) -> float:
    """Of tests that wait so long each, from the first to begin to the last to end."""
    (folder / "test_long.py").write_text(LONG.format(seconds=list(seconds)))
    (folder / "times.jsonl").unlink(missing_ok=True)
    run(folder, "--parallel", str(at_once))
    times = [json.loads(line) for line in (folder / "times.jsonl").read_text().splitlines()]
    return float(max(end for _, end in times) - min(began for began, _ in times))


def spans_of(folder: Path, shortest_s: float, longest_s: float) -> tuple[list[float], float]:
    """The spans of 20 tests in two runs; and the best span."""
    drawn = random.Random(6)
    seconds = [round(drawn.uniform(shortest_s, longest_s), 2) for _ in range(20)]
    return [span_of(folder, seconds, 15) for _ in range(2)], best_possible(seconds, 15)


def long_ones(folder: Path) -> None:
    spans, best = spans_of(folder, 4, 8)
    say(
        "20 tests of 4 to 8 s, --parallel 15, second run",
        f"{spans[1]:.2f} s, {spans[1] / best:.3f} of the best possible {best:.2f} s "
        f"(first run {spans[0] / best:.2f})",
        "<= 1.05",
        reached=spans[1] <= 1.05 * best,
    )


def own_client(folder: Path) -> None:
    """The example's tests, as long as plain pytest has taken for each, in the best order; without
    the second run of the one that fails."""
    tests = folder / "tests"
    shutil.copytree(EXAMPLE, tests)
    best, spans = [], []
    for _ in range(3):
        plain = run(tests, *OWN_CLIENT, "--durations=0", "--durations-min=0")
        both = re.findall(r"^([\d.]+)s (?:setup|call) +(\S.*)$", plain.output, re.MULTILINE)
        seconds: dict[str, float] = {}
        for took, test in both:
            seconds[test] = seconds.get(test, 0.0) + float(took)
        best.append(list_scheduled(seconds.values(), 15))
        collected_s = run(tests, *OWN_CLIENT, "--co").session_s
        spans.append(
            run(tests, *OWN_CLIENT, "--parallel", "15", "--no-recheck").session_s - collected_s
        )
    ratios = [ideal / span for ideal, span in zip(best, spans, strict=True)]
    say(
        "examples/pytest-own-client, --parallel 15",
        f"{statistics.median(spans):.2f} s, {statistics.median(ratios):.2f} of the speed of list "
        f"scheduling ({statistics.median(best):.2f} s)",
        ">= 0.8",
        reached=statistics.median(ratios) >= 0.8,
    )


def list_scheduled(seconds: Iterable[float], at_once: int) -> float:
    """When the last one ends if the longest of the rest begins wherever there is room first."""
    free = [0.0] * at_once
    for one in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def trivial(folder: Path) -> None:
    tests = "".join(TRIVIAL.format(number, number + 1) for number in range(2000))
    (folder / "test_trivial.py").write_text(tests)
    plain, parallel = _by_turns(
        lambda: run(folder).wall_s, lambda: run(folder, "--parallel", "2").wall_s, times=5
    )
    say(
        "2,000 trivial tests, --parallel 2, relative to plain pytest",
        f"{parallel:.2f} s, {parallel / plain:.2f} of {plain:.2f} s",
        "<= 1",
        reached=parallel <= plain,
    )


def _by_turns(
    one: Callable[[], float], other: Callable[[], float], *, times: int
) -> tuple[float, float]:
    """The medians of both, measured by turns, so that a busy machine is busy for both."""
    both = [(one(), other()) for _ in range(times)]
    return statistics.median(a for a, _ in both), statistics.median(b for _, b in both)


FIGURES: dict[str, Callable[[Path], None]] = {
    "waiting": waiting,
    "changing": changing,
    "starts": starts,
    "long": long_ones,
    "own-client": own_client,
    "trivial": trivial,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], help="all by default")
    for name in parser.parse_args().figures or FIGURES:
        with tempfile.TemporaryDirectory() as folder:
            FIGURES[name](Path(folder))


if __name__ == "__main__":
    main()
