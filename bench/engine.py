"""The engine's figures, each against a reference in the same run: `make bench`.

Every figure is measured in a process of its own, with its store on disk. Machines are noisy, so the
ratios mean more than the seconds, and each line names what it should reach.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ours
from figures import WITH_PYC_FILES, measure_chosen, say
from loads import Load, empty_folder, used_by

HERE = Path(__file__).parent


def measured(script: str, *arguments: str) -> dict[str, Any]:
    """What a script of this folder prints as JSON, run in an empty folder."""
    env = WITH_PYC_FILES | {"BENCH_STARTED_AT": str(time.time())}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        ended = subprocess.run(
            [sys.executable, str(HERE / script), *arguments],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode != 0:
        raise SystemExit(f"{script} {' '.join(arguments)} failed:\n{ended.stderr}")
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def best(times: int, measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(times))


def cpu_of(*command: str) -> float:
    """CPU seconds of a process, start to end."""
    before = os.times()
    subprocess.run(command, env=WITH_PYC_FILES, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def waiting_functions() -> None:
    runs = [measured("functions.py", "2000", "0.1", "100") for _ in range(3)]
    ratio = min(run["wall_s"] for run in runs) / 2.0
    cpu_ms = min(run["cpu_s"] for run in runs) / 2000 * 1000
    name = "2,000 functions of 100 ms, 100 concurrent"
    say(name, f"{ratio:.3f} of the ideal 2.0 s", "<= 1.05", reached=ratio <= 1.05)
    say("  engine CPU", f"{cpu_ms:.2f} ms a trial", "<= 0.8 ms", reached=cpu_ms <= 0.8)


def instant_functions() -> None:
    small = [measured("functions.py", "10000", "0", "100") for _ in range(2)]
    large = measured("functions.py", "100000", "0", "100")
    per_small = min(run["cpu_s"] for run in small) / 10_000
    per_large = large["cpu_s"] / 100_000
    ratio = per_large / per_small
    name = "100,000 functions that return immediately"
    value = f"{per_large * 1e3:.3f} ms CPU a trial"
    say(name, value, "<= 0.25 ms", reached=per_large <= 0.25e-3)
    say("  relative to 10,000", f"{ratio:.2f} x", "<= 1.3 x", reached=ratio <= 1.3)
    rss = large["peak_rss_mb"]
    say("  peak RSS", f"{rss:.0f} MB", "< 300 MB", reached=rss < 300)
    first_s = large["first_trial_s"]
    say("  plan and first trial", f"{first_s:.2f} s from the start", "<= 2 s", reached=first_s <= 2)


def starting_up() -> None:
    python = sys.executable
    reference = best(7, lambda: cpu_of(python, "-c", "import argparse, asyncio"))
    for name, command in (
        ("paraval --help", (python, "-m", "paraval", "--help")),
        ("import paraval", (python, "-c", "import paraval")),
    ):
        ratio = best(7, lambda command=command: cpu_of(*command)) / reference  # type: ignore[misc]
        value = f"{ratio:.2f} x 'import argparse, asyncio'"
        say(name, value, "<= 3 x", reached=ratio <= 3)

    first_request()


def first_request() -> None:
    """One chat trial, from the command to its first request, which is never answered."""
    # In turns, so that a noisy minute of the machine strikes both.
    command = (sys.executable, "-c", "import aiohttp, asyncio")
    runs = [(cpu_of(*command), until_first_request()) for _ in range(7)]
    reference = statistics.median(cpu_s for cpu_s, _ in runs)
    cpu_s, wall_s = (statistics.median(run[1][i] for run in runs) for i in (0, 1))
    ratio = cpu_s / reference
    value = f"{ratio:.2f} x 'import aiohttp, asyncio'"
    say("paraval run to the first request, CPU", value, "<= 1.3 x", reached=ratio <= 1.3)
    value = f"{cpu_s:.3f} s CPU in {wall_s:.3f} s; the imports {reference:.3f} s"
    say("  in seconds", value)


def planned() -> None:
    """100,000 cases of a file at a chat model, from the command to the first request."""
    runs = [until_first_request(100_000) for _ in range(3)]
    cpu_s, wall_s = (min(run[i] for run in runs) for i in (0, 1))
    value = f"{wall_s:.2f} s, {cpu_s:.2f} s CPU"
    say("100,000 chat cases, to the first request", value, "<= 2 s", reached=wall_s <= 2)


def until_first_request(count: int = 1) -> tuple[float, float]:
    """CPU and wall seconds of `paraval run` in an empty store."""
    load = Load(name="first request", count=count, parallel=100, scenario={})
    with empty_folder() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        load.write_cases(folder)
        suite = ours.suite(load, {"sim": {"base_url": url}}, "reuse")
        (folder / "suite.json").write_text(json.dumps(suite))
        command = [*ours.PARAVAL, "run", "suite.json"]
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=WITH_PYC_FILES, stderr=subprocess.DEVNULL
        )
        server.settimeout(60)
        connection, _ = server.accept()
        with connection:
            connection.recv(1)
            wall_s = time.perf_counter() - started
            process.kill()
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, wall_s


def commands() -> None:
    # Medians: an interruption of a few milliseconds shows in the parallel runs.
    serial = run_commands(25, 1, "sleep", "0.2")[0]
    parallel = [run_commands(25, 10, "sleep", "0.2")[0] for _ in range(5)]
    ratio = serial / statistics.median(parallel)
    name = "25 commands of 0.2 s, 10 concurrent relative to 1"
    say(name, f"{ratio:.2f} times faster", ">= 8.2", reached=ratio >= 8.2)
    # The difference between many and few: starting up is another figure.
    runs = [cpu_of_commands(500) - cpu_of_commands(20) for _ in range(3)]
    bare = [cpu_of_bare_commands(500) - cpu_of_bare_commands(20) for _ in range(3)]
    ours_ms, bare_ms = (min(cpu_s) / 480 * 1e3 for cpu_s in (runs, bare))
    value = f"{ours_ms / bare_ms:.2f} x a bare asyncio loop ({ours_ms:.2f} ms, {bare_ms:.2f} ms)"
    say("  CPU of a command that does nothing", value)


def run_commands(count: int, parallel: int, *command: str) -> tuple[float, float]:
    """How long the run took by its report, and the CPU of `paraval run` and all its processes."""
    cases = [{"id": f"c{i}"} for i in range(count)]
    target, limits = {"command": list(command)}, {"parallel": parallel}
    suite = {"name": "bench", "cases": cases, "target": target, "limits": limits}
    with empty_folder() as folder:
        (folder / "suite.json").write_text(json.dumps(suite))
        used = used_by([*ours.PARAVAL, "run", "suite.json"], folder=folder)
        if used.exit_code != 0:
            raise SystemExit(f"paraval run failed:\n{used.stdout}")
        report = subprocess.check_output([*ours.PARAVAL, "report", "last", "--json"], cwd=folder)
    return json.loads(report)["run"]["wall_s"], used.cpu_s


def cpu_of_commands(count: int) -> float:
    return run_commands(count, 10, "true")[1]


def cpu_of_bare_commands(count: int) -> float:
    return cpu_of(sys.executable, str(HERE / "commands.py"), str(count), "10", "true")


FIGURES = {
    "waiting": waiting_functions,
    "instant": instant_functions,
    "plan": planned,
    "start": starting_up,
    "commands": commands,
}

if __name__ == "__main__":
    measure_chosen(__doc__, FIGURES)
