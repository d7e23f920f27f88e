"""What five programs promised of running in parallel, measured with paraval: `make headline`.

Each figure has the durations that its program published, made shorter by a factor: processes that
sleep, and simulated models with latency. The ideal is a queue without overhead: each slot takes the
next in plan order as soon as it is free; longest first, where an earlier run knows the durations.
Measured is from the start of the run to the end of its last trial. Python's start-up is not part of
it, because it does not shrink with the factor.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_plugin
import race
from loads import empty_folder, say_if_busy, server, used_by

GOAL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table."""

    what: str
    factor: int
    promised: str
    seconds: Sequence[float]
    slots: int
    measured_s: float

    @property
    def ideal_s(self) -> float:
        slots = [0.0] * self.slots
        for seconds in self.seconds:
            heapq.heapreplace(slots, slots[0] + seconds)
        return max(slots)

    @property
    def share(self) -> float:
        return self.ideal_s / self.measured_s

    def cells(self, one_by_one_s: float) -> list[str]:
        return [
            self.what,
            f"1/{self.factor}",
            self.promised,
            f"{one_by_one_s / self.measured_s:.2f} times, −{1 - self.measured_s / one_by_one_s:.0%}"
            if self.slots > 1
            else "-",
            f"{self.measured_s:.2f} s",
            f"{self.ideal_s:.2f} s",
            f"{self.share:.2f}{'' if self.share >= GOAL else ' MISSED'}",
        ]


def run_s(suite: dict[str, Any], parallel: int) -> float:
    """How long a run of `paraval run` took in an empty store, if all of its trials passed."""
    command = [sys.executable, "-m", "paraval", "run", "suite.json", "-j", str(parallel)]
    with empty_folder() as folder:
        (folder / "suite.json").write_text(json.dumps(suite))
        used = used_by([*command, "-o", "report.json"], folder=folder)
        if used.exit_code != 0:
            raise SystemExit(f"the run failed:\n{used.stdout}\n{(folder / 'stderr').read_text()}")
        taken_s: float = json.loads((folder / "report.json").read_text())["run"]["wall_s"]
        return taken_s


def modes() -> Iterator[Figure]:
    """repo-search-eval: 60 min for 10 cases in two modes, so 3 min for each."""
    factor = 100
    seconds = [180 / factor] * 20
    suite = {
        "name": "modes",
        "cases": [{"id": f"c{number}"} for number in range(10)],
        "matrix": {"mode": ["with_mcp", "without_mcp"]},
        "target": {"command": ["sleep", str(180 / factor)]},
    }
    promised = {1: "-", 2: "−50%", 4: "−75%", 8: "−85%"}
    for slots, theirs in promised.items():
        yield Figure(
            what=f"repo-search-eval: 10 cases × 2 modes, {slots} at a time",
            factor=factor,
            promised=theirs,
            seconds=seconds,
            slots=slots,
            measured_s=run_s(suite, slots),
        )


def prompts() -> Iterator[Figure]:
    """Augbench: 40 runs of 30 s."""
    factor = 30
    suite = {
        "name": "prompts",
        "cases": [{"id": f"prompt{number}"} for number in range(5)],
        "matrix": {"agent": ["one", "other"]},
        "repeats": 4,
        "target": {"command": ["sleep", str(30 / factor)]},
    }
    for slots, theirs in ((1, "-"), (4, "4 times")):
        yield Figure(
            what=f"Augbench: 40 runs, {slots} at a time",
            factor=factor,
            promised=theirs,
            seconds=[30 / factor] * 40,
            slots=slots,
            measured_s=run_s(suite, slots),
        )


def models() -> Iterator[Figure]:
    """Multi-model vitest suites: 19 scenarios took a model about 40 s; three models, three times
    as long one after another, should take 1.5 times as long."""
    factor, names = 4, ("one", "two", "three")
    latency = 40 / 19 / factor
    with empty_folder() as folder, server({"latency": latency}, folder) as running:
        suite = {
            "name": "models",
            "models": {
                name: {"provider": "openai", "model": name, "base_url": running.base_url}
                for name in names
            },
            "matrix": {"model": list(names)},
            "cases": [{"id": f"c{number}", "input": f"Scenario {number}"} for number in range(19)],
            "target": {"chat": {"model": "{model}", "prompt": "{input}"}},
        }
        measured_s = run_s(suite, len(names))
    yield Figure(
        what="cite (vitest): 19 scenarios × 3 models, 3 at a time",
        factor=factor,
        promised="2 times",
        seconds=[latency] * 19 * len(names),
        slots=len(names),
        measured_s=measured_s,
    )


def tests() -> Iterator[Figure]:
    """pflow: 20 tests took 90 s one after another, and 7.7 s on 15 workers. The second run knows
    how long each test takes, and starts the longest first."""
    factor = 3
    seconds = [round((1.6 + number * 5.8 / 19) / factor, 2) for number in range(20)]
    random.Random(1).shuffle(seconds)
    # Not below this repository, whose settings of pytest would apply.
    with tempfile.TemporaryDirectory() as folder:
        spans = [pytest_plugin.span_of(Path(folder), seconds, 15) for _ in range(2)]
    orders = {"first run": seconds, "second run": sorted(seconds, reverse=True)}
    for (name, order), measured_s in zip(orders.items(), spans, strict=True):
        yield Figure(
            what=f"pflow: 20 tests, pytest --parallel 15, {name}",
            factor=factor,
            promised="11.7 times",
            seconds=order,
            slots=15,
            measured_s=measured_s,
        )


def candidates() -> Iterator[Figure]:
    """codeflash published no durations: tests of 10 s, all candidates' tests from the first start
    to the last end. Benchmarks run one at a time, by design."""
    count, slots, factor = 24, 4, 5
    with empty_folder() as folder:
        steps = race.race(folder, test="wait.py", bench="nothing.py", count=count, parallel=slots)
    yield Figure(
        what=f"codeflash: tests of {count} candidates on {slots} slots",
        factor=factor,
        promised="none",
        seconds=[race.WAIT_S] * count,
        slots=slots,
        measured_s=race.correctness_s(steps),
    )


MEASURES = {
    "modes": modes,
    "prompts": prompts,
    "models": models,
    "tests": tests,
    "candidates": candidates,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[[], *MEASURES], help="all by default")
    chosen = parser.parse_args().figures or MEASURES
    say_if_busy()
    print("| load | factor | promised | faster than one at a time | measured | ideal | share |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    missed = 0
    for name in chosen:
        one_by_one_s = None
        for figure in MEASURES[name]():
            # The first line is measured one at a time; where there is none, the work added up.
            if one_by_one_s is None:
                one_by_one_s = figure.measured_s if figure.slots == 1 else sum(figure.seconds)
            print(f"| {' | '.join(figure.cells(one_by_one_s))} |", flush=True)
            missed += figure.share < GOAL
    cores = os.cpu_count()
    print(f"\n{time.strftime('%Y-%m-%d')}, {cores} cores, Python {sys.version.split()[0]}")
    if missed:
        raise SystemExit(f"{missed} of these reached less than {GOAL} of the ideal.")


if __name__ == "__main__":
    main()
