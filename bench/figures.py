"""`make bench`: every figure as a row of one Markdown table, and how many reach their goals.

`python bench/figures.py engine models` runs these two scripts only; `python bench/models.py quick`
measures one figure.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
# In the folder where it runs: otherwise all runs would be in this repository's store, which would
# grow, and every run would know the durations of those before it.
os.environ["PARAVAL_STORE"] = ".paraval"
SCRIPTS = (
    "engine",
    "models",
    "workspaces",
    "machine",
    "simulate",
    "race",
    "pytest_plugin",
    "page",
    "view",
)
WITH_PYC_FILES = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
}
"""An environment for what is measured: compiling every module would be measured otherwise."""


def say(name: str, value: str, goal: str = "", *, reached: bool | None = None) -> None:
    """A row. Two spaces before the name: it continues the row above."""
    if name.startswith("  "):
        name = f"… {name.strip()}"
    verdict = {None: "", True: "reached", False: "MISSED"}[reached]
    print(f"| {name:60} | {value:50} | {goal:24} | {verdict:7} |", flush=True)


def measure_chosen(about: str | None, figures: Mapping[str, Callable[[], None]]) -> None:
    """The figures that the command line names."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("figures", nargs="*", choices=[[], *figures], help="all by default")
    for figure in parser.parse_args().figures or figures:
        figures[figure]()


def machine_and_versions() -> str:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        time.strftime("%Y-%m-%d"),
        f"{os.cpu_count()} cores",
        f"{memory_gb:.0f} GB",
        platform.system(),
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in ("paraval", "aiohttp")),
    ]
    return ", ".join(parts)


def rows_of(script: str) -> list[list[str]]:
    """The cells of the rows that a script prints, printed as they come."""
    rows = []
    command = [sys.executable, str(HERE / f"{script}.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            rows.append([cell.strip() for cell in line.split("|")])
    if process.returncode != 0:
        raise SystemExit(f"bench/{script}.py failed with exit code {process.returncode}.")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scripts", nargs="*", choices=[[], *SCRIPTS], help="all by default")
    chosen = parser.parse_args().scripts or SCRIPTS
    print(f"{machine_and_versions()}\n")
    print("| measurement | result | goal | |\n| --- | --- | --- | --- |", flush=True)
    rows = [row for script in chosen for row in rows_of(script)]
    reached = sum("reached" in row for row in rows)
    missed = [row[1] for row in rows if "MISSED" in row]
    print(f"\n{reached} reached, {len(missed)} missed{': ' * bool(missed)}{'; '.join(missed)}")


if __name__ == "__main__":
    main()
