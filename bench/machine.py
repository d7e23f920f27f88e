"""The machine's figures: as many at once as it can carry, and what it keeps for others.

Each is a run of `paraval run` with `limits: {parallel: auto}`, in an empty store, so that nothing
is known of the commands. What is watched meanwhile is read by this process, which does nothing
else: how late it wakes shows how responsive the machine stays.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import measure_chosen, say

HELD = 2 << 30
KEPT = 1 << 30
"""What auto leaves free, of a machine of 10 GB or more."""
BURN = "import time\nwhile time.process_time() < 1.0: pass"
HOLD = f"import time\nmemory = bytearray({HELD})\ntime.sleep(15)"


@dataclass(slots=True)
class Watched:
    """What was seen while something ran."""

    lateness_s: list[float] = field(default_factory=list)
    available: list[int] = field(default_factory=list)
    swap_free: list[int] = field(default_factory=list)


def memory() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


@contextmanager
def watching(every_s: float = 0.05) -> Iterator[Watched]:
    watched, over = Watched(), threading.Event()

    def watch() -> None:
        while not over.is_set():
            began = time.perf_counter()
            time.sleep(every_s)
            watched.lateness_s.append(time.perf_counter() - began - every_s)
            now = memory()
            watched.available.append(now["MemAvailable"])
            watched.swap_free.append(now["SwapFree"])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield watched
    finally:
        over.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Ran:
    """A run's figures from its report."""

    wall_s: float
    passed: int
    watched: Watched


def run(command: list[str], count: int) -> Ran:
    """So many trials of a command, through the command line."""
    suite: dict[str, Any] = {
        "name": "machine",
        "cases": [{"id": f"case-{number}"} for number in range(count)],
        "target": {"command": command},
        "limits": {"parallel": "auto"},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "suite.yaml").write_text(json.dumps(suite), encoding="utf-8")
        with watching() as watched:
            began = time.perf_counter()
            ended = subprocess.run(
                [sys.executable, "-m", "paraval", "run", "suite.yaml", "--progress", "json"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            wall_s = time.perf_counter() - began
    if ended.returncode != 0:
        raise SystemExit(f"the run failed:\n{ended.stdout}\n{ended.stderr}")
    return Ran(wall_s, count, watched)


def sleepers() -> None:
    wall_s = run(["sleep", "1"], 40).wall_s
    ratio = 40.0 / wall_s
    value = f"{wall_s:.1f} s, {ratio:.1f} times faster"
    say("40 commands that sleep 1 s, auto", value, ">= 10 times", reached=ratio >= 10)


def burners() -> None:
    command = [sys.executable, "-S", "-c", BURN]
    began = time.perf_counter()
    subprocess.run(
        ["xargs", "-P", "2", "-I", "{}", *command],
        input="\n".join(map(str, range(40))),
        text=True,
        check=True,
    )
    by_xargs_s = time.perf_counter() - began
    ran = run(command, 40)
    ratio = ran.wall_s / by_xargs_s
    value = f"{ran.wall_s:.1f} s, {ratio:.2f} of xargs -P 2"
    say("40 commands that burn 1 s of CPU, auto", value, "<= 1.15", reached=ratio <= 1.15)
    late_ms = 1e3 * statistics.quantiles(ran.watched.lateness_s, n=20)[-1]
    value = f"{late_ms:.1f} ms late, 95 of 100 times"
    say("  another program meanwhile wakes", value, "<= 20 ms", reached=late_ms <= 20)


def holders() -> None:
    free = memory()["MemAvailable"]
    usable = free - KEPT
    at_once = usable // HELD
    if at_once < 2:
        say("commands that hold 2 GB each", "too little memory here", "-", reached=False)
        return
    watched = run([sys.executable, "-S", "-c", HOLD], 4 * at_once).watched
    held = [free - available for available in watched.available]
    middle = held[len(held) // 4 : 3 * len(held) // 4]
    share = statistics.fmean(middle) / usable
    name = f"{4 * at_once} commands that hold 2 GB each, auto"
    value = f"{share:.0%} of {usable / 2**30:.0f} GB in use"
    say(name, value, ">= 80%, none fails", reached=share >= 0.8)
    least = min(watched.available) / 2**30
    say("  least memory left", f"{least:.1f} GB", "> 0.3 GB", reached=least > 0.3)
    swapped = max(watched.swap_free) - min(watched.swap_free)
    say("  swapped out", f"{swapped >> 20} MB", "0 MB", reached=swapped == 0)


FIGURES = {"sleepers": sleepers, "burners": burners, "holders": holders}

if __name__ == "__main__":
    measure_chosen(__doc__, FIGURES)
