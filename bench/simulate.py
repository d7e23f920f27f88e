"""What the scheduler's decisions cost: a million simulated trials on 10,000 slots, in virtual time.

Each figure is CPU time of the scheduler per trial, from building its state to the last end. The
reference, measured in the same run, starts trials in plan order from a list, and knows no limits,
accounts or retries: its ratio says how busy this machine is with other things.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import time
from dataclasses import replace

from figures import say

from paraval.garbage import no_collections
from paraval.schedule.simulation import SimulatedLoad, simulate_load

GOAL_US = 50.0
SLOTS = 10_000

LOADS = {
    "lane": ("all alike", SimulatedLoad(trials=0, slots=SLOTS)),
    "faults": (
        "with 2% failures, 1% stragglers, 60,000 requests per minute",
        SimulatedLoad(
            trials=0,
            slots=SLOTS,
            accounts=1,
            requests_per_minute=60_000,
            failures=0.02,
            stragglers=0.01,
        ),
    ),
    "accounts": ("1,100 accounts", SimulatedLoad(trials=0, slots=SLOTS, accounts=1_100)),
    "paced": (
        "1,100 accounts, 15,000 requests per minute",
        SimulatedLoad(trials=0, slots=SLOTS, accounts=1_100, requests_per_minute=15_000),
    ),
    "nodes": ("1,000 nodes of 10 slots", SimulatedLoad(trials=0, slots=SLOTS, nodes=1_000)),
}


def reference_us(trials: int) -> float:
    """The least that any scheduler does: take the next, note that it runs, note that it ended."""
    waiting, running = list(range(trials, 0, -1)), dict[int, tuple[float, int]]()
    agenda = [(30.0, waiting.pop()) for _ in range(min(SLOTS, trials))]
    running.update((index, (0.0, index)) for _, index in agenda)
    cpu_s = 0.0
    while agenda:
        now, index = heapq.heappop(agenda)
        began = time.thread_time()
        del running[index]
        following = waiting.pop() if waiting else None
        if following is not None:
            running[following] = (now, following)
        cpu_s += time.thread_time() - began
        if following is not None:
            heapq.heappush(agenda, (now + 30.0, following))
    return 1e6 * cpu_s / trials


def measure(name: str, trials: int, reference: float) -> None:
    about, load = LOADS[name]
    load = replace(load, trials=trials)
    figures = simulate_load(load, time.thread_time)
    if figures.passed + figures.failed != trials:
        raise SystemExit(f"{about}: {figures.passed + figures.failed:,} of {trials:,} ended")
    each_us = 1e6 * figures.cpu_s / trials
    value = f"{each_us:.0f} µs a trial, {each_us / reference:.0f} × reference"
    say(f"{trials:,} trials, {about}", value, f"<= {GOAL_US:.0f} µs", reached=each_us <= GOAL_US)
    ratio = figures.makespan_s / figures.bound.seconds
    say("  makespan by lower bound", f"{ratio:.3f}", "<= 1.1", reached=ratio <= 1.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[[], *LOADS], help="all by default")
    parser.add_argument("--trials", type=int, default=1_000_000)
    given = parser.parse_args()
    with no_collections():
        reference = reference_us(given.trials)
    say("reference: take the next trial from a list", f"{reference:.2f} µs a trial")
    for figure in given.figures or LOADS:
        measure(figure, given.trials, reference)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    say("peak memory", f"{peak / 2**30:.2f} GB", "<= 2 GB", reached=peak <= 2 << 30)
