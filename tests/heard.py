"""What reporters of a child pytest hear: reports with their logs, and warnings. Plugin and reader.

The same tests are run one after another by plain pytest, all at once (`all_at_once`), and by the
parallel loop.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ALL_AT_ONCE = ("-p", "tests.all_at_once")
PARALLEL = ("-p", "paraval.pytest_plugin.plugin", "--parallel", "16")

_REPORTS: list[Any] = []
_WARNINGS: Counter[tuple[str, ...]] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    logs = [text for title, text in report.sections if "log" in title]
    said = re.sub("0x[0-9a-f]+", "0x…", report.longreprtext[-300:])
    _REPORTS.append([report.nodeid, report.when, report.outcome, logs, said])


def pytest_warning_recorded(warning_message: Any, when: str, nodeid: str, location: Any) -> None:
    told = warning_message
    said = (str(told.message), told.category.__name__, Path(told.filename).name, str(told.lineno))
    _WARNINGS[nodeid, when, str(location), *said] += 1


def pytest_sessionfinish() -> None:
    heard = {"reports": sorted(_REPORTS), "warnings": sorted(_WARNINGS.items())}
    Path("heard.json").write_text(json.dumps(heard))


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Of one run."""

    reports: list[Any]
    """Node id, phase, outcome, texts of the log, and the end of what a failure says."""
    warnings: list[Any]
    """What a warning says and of whom, and how often it was told."""
    output: str

    @property
    def failed(self) -> dict[str, str]:
        return {node: text for node, _, outcome, _, text in self.reports if outcome == "failed"}


def hear(folder: Path, *options: str) -> Heard:
    """Runs the tests in the folder."""
    root = str(Path(__file__).parents[1])
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--tb=native",
            "-p",
            "tests.heard",
            *options,
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": root,
            # Only what is tested here: the plugins of others take a second to load.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            # Sets are shown in the same order.
            "PYTHONHASHSEED": "0",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    file = folder / "heard.json"
    assert file.exists(), run.stdout + run.stderr
    heard = json.loads(file.read_text())
    file.unlink()
    return Heard(output=run.stdout + run.stderr, **heard)
