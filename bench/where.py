"""Where the CPU of one trial goes, as a Markdown table: `python bench/where.py` (needs py-spy).

py-spy samples three runs of `bench/models.py quick`'s load. A sample belongs to the innermost
function of paraval, or of a library that has its own row; the CPU seconds are those of a run
without py-spy.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import ours
from loads import QUICK, empty_folder, say_if_busy, server
from models import carried

RUNS = 3
IMPORTS = "importlib"
WAITS = ("EpollSelector.select", "WriterThread._collect", "Condition.wait")
"""Threads are sampled on their way to sleep and back."""
PARTS = (
    ("HTTP client (aiohttp)", ("aiohttp/", "yarl/", "multidict/")),
    ("answer cache", ("paraval/models/cache.py",)),
    ("model call: request, stream, price", ("paraval/models/", "paraval/targets/")),
    ("ledger: writing to disk", ("paraval/store/writer.py", "paraval/store/ledger.py")),
    ("encoding of records", ("paraval/codec.py", "paraval/store/", "paraval/records/")),
    ("scheduler", ("paraval/schedule/",)),
    ("attempts and their driver", ("paraval/execute/", "paraval/runner/")),
    ("graders", ("paraval/grade/",)),
    ("suite and plan", ("paraval/plan/", "paraval/documents/")),
    ("progress and report", ("paraval/text/", "paraval/cli/", "paraval/report/")),
    ("rest of paraval", ("paraval/",)),
    ("event loop (asyncio)", ("asyncio/",)),
)
"""By the paths of its modules; the first that fits counts."""


def part_of(stack: str) -> str:
    if IMPORTS in stack:
        return "start: imports"
    if stack.rpartition(";")[2].startswith(WAITS):
        return "waiting and waking up"
    for frame in reversed(stack.split(";")):
        for name, paths in PARTS:
            if any(path in frame for path in paths):
                return name
    return "start and end of Python"


def samples(spy: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with empty_folder() as folder, server(QUICK.scenario, folder) as running:
        QUICK.write_cases(folder)
        entry = {"base_url": running.base_url, "limits": {"concurrent": QUICK.parallel}}
        (folder / "suite.json").write_text(json.dumps(ours.suite(QUICK, {"sim": entry}, "reuse")))
        raw = folder / "samples"
        command = [spy, "record", "-f", "raw", "-r", "500", "-F", "-o", str(raw), "--"]
        command += [*ours.PARAVAL, "run", "suite.json"]
        subprocess.run(command, cwd=folder, capture_output=True, check=True)
        for line in raw.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            found[part_of(stack)] += int(count)
    return found


def main() -> None:
    spy = shutil.which("py-spy", path=Path(sys.executable).parent) or shutil.which("py-spy")
    if spy is None:
        raise SystemExit("py-spy is missing; install it: pip install py-spy")
    say_if_busy()
    found = sum((samples(spy) for _ in range(RUNS)), Counter[str]())
    limits = {"concurrent": QUICK.parallel}
    cpu_s = min(carried(QUICK, limits)[0].used.cpu_s for _ in range(RUNS))
    print("| part | ms of CPU a trial | share |\n| --- | --- | --- |")
    for name, count in found.most_common():
        share = count / found.total()
        print(f"| {name} | {1000 * cpu_s * share / QUICK.count:.3f} | {share:.0%} |")
    print(f"| all, of a run of {QUICK.count:,} | {1000 * cpu_s / QUICK.count:.3f} | |")


if __name__ == "__main__":
    main()
