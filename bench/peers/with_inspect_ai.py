"""`with_inspect_ai.py BASE_URL CASES PARALLEL MODE`: the cases as an Inspect task.

MODE is `fixed` (`max_connections`) or `adaptive` (Inspect's own default, up to PARALLEL).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval  # noqa: A004 - Inspect's own name for it
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

base_url, path, parallel, mode = sys.argv[1:]
os.environ["LOOPBACK_BASE_URL"] = base_url
os.environ["LOOPBACK_API_KEY"] = "none"
cases = [json.loads(line) for line in Path(path).read_text().splitlines()]
connections: dict[str, Any] = (
    {"max_connections": int(parallel)}
    if mode == "fixed"
    else {"adaptive_connections": int(parallel)}
)
task = Task(
    dataset=[Sample(id=case["id"], input=case["input"], target=case["expect"]) for case in cases],
    solver=generate(),
    scorer=includes(),
)
log = eval(task, model="openai-api/loopback/sim", display="none", log_dir="logs", **connections)[0]
scored = [sample.scores["includes"].value for sample in log.samples or [] if sample.scores]
print(json.dumps({"answered": scored.count("C")}))
