"""What the benchmarks over models share: the same cases for everyone, the simulated server in a
process of its own, and what another program used to get them answered.

Nothing heavy is imported here: a program that is started by a large one counts the large one's
memory as its own peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import WITH_PYC_FILES

FILLER = "Read the whole question, think it over, and answer in the words of the question. " * 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Work for a server: how many cases, how many at once, and how it behaves."""

    name: str
    count: int
    parallel: int
    scenario: Mapping[str, Any]

    def write_cases(self, folder: Path) -> Path:
        """One JSON object a line: id, input, and an expectation that the echo fulfils."""
        lines = (
            json.dumps(
                {"id": f"c{i}", "input": f"Question {i}. {FILLER}", "expect": f"Question {i}."}
            )
            for i in range(self.count)
        )
        path = folder / "cases.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return path


def limited(*, told: bool, burst: int = 50, latency: float = 0.1) -> dict[str, Any]:
    """50 requests a second; announced in headers, or only by refusals."""
    limits: dict[str, Any] = {"requests_per_minute": 3000, "burst": burst}
    limits |= {"headers": "openai"} if told else {"headers": "none", "retry_after": 1}
    return {"latency": latency, "limits": limits}


QUICK = Load(name="1,000 cases, 100 ms", count=1000, parallel=100, scenario={"latency": 0.1})
TOLD = Load(name="50 a second, in headers", count=1000, parallel=100, scenario=limited(told=True))
SILENT = Load(name="50 a second, silent", count=1000, parallel=100, scenario=limited(told=False))
SHALLOW_TOLD, SHALLOW_SILENT = (
    Load(
        name=f"50 a second, bursts of 5, {how}",
        count=1000,
        parallel=100,
        scenario=limited(told=told, burst=5, latency=0.3),
    )
    for told, how in ((True, "in headers"), (False, "silent"))
)
IDEAL_S = {
    QUICK.name: 1.0,
    TOLD.name: (1000 - 50) / 50,
    SILENT.name: (1000 - 50) / 50,
    SHALLOW_TOLD.name: (1000 - 5) / 50 + 0.3,
    SHALLOW_SILENT.name: (1000 - 5) / 50 + 0.3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What a program used, from its start to its end, its own children included."""

    exit_code: int
    wall_s: float
    cpu_s: float
    peak_rss_mb: float
    stdout: str


def used_by(command: Sequence[str], *, folder: Path, env: Mapping[str, str] | None = None) -> Used:
    """Run a command in a folder, its talk kept beside its data."""
    with (folder / "stdout").open("w+") as out, (folder / "stderr").open("w+") as err:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env=WITH_PYC_FILES | dict(env or {}), stdout=out, stderr=err
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        stdout = out.read()
    return Used(
        exit_code=process.returncode,
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_rss_mb=usage.ru_maxrss / (1024 * 1024 if sys.platform == "darwin" else 1024),
        stdout=stdout,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the server saw: of all, or of one account."""

    requests: int
    answered: int
    refused: int
    most_at_once: int
    span_s: float
    """From the first request to the last answer."""


def say_if_busy() -> None:
    """Others on the machine stretch every time, and CPU time too where cores are shared."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.3 * cores:
        busy = f"Other processes are busy (load {load:.1f}, {cores} cores): trust only the ratios."
        print(busy, file=sys.stderr)


@contextmanager
def empty_folder() -> Iterator[Path]:
    """On the disk of the current folder: what a run stores there should cost what it costs."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        yield Path(folder).resolve()


class Server:
    """A running `paraval loopback`."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.root = base_url.removesuffix("/v1")

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.root}/stats") as answer:
            stats: dict[str, Any] = json.load(answer)
        return stats

    def reset(self) -> None:
        """Forget what was seen."""
        urllib.request.urlopen(f"{self.root}/reset", data=b"").close()

    def seen(self, account: str | None = None) -> Seen:
        stats = self.stats()
        part = stats["total"] if account is None else stats["accounts"][account]
        return Seen(
            requests=part["requests"],
            answered=part["answered"],
            refused=part["refused"],
            most_at_once=part["most_at_once"],
            span_s=part["last_at"] - part["first_at"],
        )


@contextmanager
def server(scenario: Mapping[str, Any], folder: Path) -> Iterator[Server]:
    """A loopback server in a process of its own, for as long as the block lasts."""
    path = folder / "scenario.json"
    path.write_text(json.dumps(scenario))
    command = [sys.executable, "-m", "paraval", "loopback", "--scenario", str(path)]
    with (folder / "server-stderr").open("w") as talk:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=talk, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise SystemExit(f"the server did not start:\n{(folder / 'server-stderr').read_text()}")
        yield Server(line)
    finally:
        process.terminate()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()
