"""paraval itself under a load: a suite of one chat target, run by the command that users run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loads import Load, Used, used_by

PRICE = {"input_per_million": 1.0, "output_per_million": 4.0}
PARAVAL = [sys.executable, "-m", "paraval"]
WITHOUT_REQUESTS = """
import paraval.targets.chat, paraval.store.exchanges
from paraval.cli.main import main
paraval.targets.chat.request_data = lambda request: {}
paraval.store.exchanges.ExchangeRows.add = lambda *attempt: None
main()
"""
"""paraval as it would be if it did not store what it sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What `paraval run` used, and how many of its trials passed."""

    used: Used
    trials: int
    passed: int

    @property
    def lost(self) -> int:
        return self.trials - self.passed


def suite(load: Load, models: Mapping[str, Mapping[str, Any]], cache: str) -> dict[str, Any]:
    """Every case at every model. No two cases are equal, so that in an empty store every trial is a
    request, whatever is said of the cache."""
    return {
        "name": "bench",
        "cases": "cases.jsonl",
        "models": {
            name: {"provider": "openai", "model": "sim", "price": PRICE, **entry}
            for name, entry in models.items()
        },
        "matrix": {"model": list(models)},
        "target": {"chat": {"model": "{model}", "prompt": "{input}"}},
        "graders": ["contains"],
        "limits": {"parallel": load.parallel},
        "cache": cache,
    }


def run(
    load: Load,
    models: Mapping[str, Mapping[str, Any]],
    *,
    folder: Path,
    keys: Mapping[str, str] | None = None,
    cache: str = "reuse",
    stores_requests: bool = True,
) -> Ours:
    """The whole process from its start to its end; what it answered is read from its store."""
    load.write_cases(folder)
    (folder / "suite.json").write_text(json.dumps(suite(load, models, cache)))
    program = PARAVAL if stores_requests else [sys.executable, "-c", WITHOUT_REQUESTS]
    used = used_by([*program, "run", "suite.json"], folder=folder, env=keys)
    report = subprocess.run(
        [*PARAVAL, "report", "last", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.stdout:
        raise SystemExit(f"paraval run failed:\n{used.stdout}\n{(folder / 'stderr').read_text()}")
    summary = json.loads(report.stdout)["summary"]
    return Ours(used=used, trials=summary["trials"], passed=summary["passed"])
