"""N trials of an async function that waits; prints wall, CPU, memory and the first trial's time."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time

import paraval
from paraval.records import Happening, TrialEnded

count, wait_s, parallel = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])


class FirstTrial:
    """Notes when the first trial ended."""

    at: float | None = None

    def __call__(self, event: Happening) -> None:
        if self.at is None and isinstance(event, TrialEnded):
            self.at = time.time()

    def tick(self, now: float) -> None: ...


async def answer(case: paraval.Case) -> str:
    if wait_s:
        await asyncio.sleep(wait_s)
    return case.id


first = FirstTrial()
suite = paraval.Suite(
    name="bench",
    cases=[paraval.Case(id=f"c{i}", input="x", expect=f"c{i}") for i in range(count)],
    target=answer,
    graders=["equals"],
)
cpu = time.process_time()
report = paraval.run(suite, parallel=parallel, observer=first)
cpu_s = time.process_time() - cpu
assert report.summary.passed == count
assert first.at is not None
print(
    json.dumps(
        {
            "wall_s": report.run.wall_s,
            "cpu_s": cpu_s,
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "first_trial_s": first.at - float(os.environ["BENCH_STARTED_AT"]),
        }
    )
)
