"""Runs the test suites of well-known packages with plain pytest, with `--parallel` and with xdist.

    python -m tests.suites.run                  all packages of packages.py
    python -m tests.suites.run attrs pluggy     some of them
    python -m tests.suites.run --all-pytests    a few of them, on each release of pytest

Each package's source distribution is fetched from PyPI into `.suites/NAME/`, with an environment of
its own that has the package, what its tests need, xdist and paraval. Its suite runs plain twice,
then in parallel twice with pytest's cache, so that the second run knows what the first one learned,
and once with xdist. Where packages.py says what its tests share on purpose, a further parallel run
has these marks and options. A test that ends the same in both plain runs and in another way in
parallel (in that further run, if there is one) makes this exit with 1. The output and JUnit file of
each run stay in `.suites/NAME/pytest-VERSION/`.

Environments do not depend on the checkout under test: it comes first in PYTHONPATH. To test
another one in the same environments, without running plain pytest and xdist again:

    PARAVAL_UNDER_TEST=PATH python -m tests.suites.run --reuse-plain
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.suites.outcomes import (
    COSTS,
    HUNG,
    Run,
    differences,
    output_differences,
    read,
    unstable,
)
from tests.suites.packages import PACKAGES, PYTESTS, Package

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = Path(os.environ.get("PARAVAL_UNDER_TEST", ROOT)).resolve()
SUITES = ROOT / ".suites"
PLUGIN = Path(__file__).with_name("plugin")
WORKERS = 8
LIMIT_S = 400
MOST_NAMED = 20
"""Tests of one run that are named; the others are counted."""
HEAD = (
    "| package | tests | plain | different | with marks | output | plain s (CPU) "
    "| parallel s (CPU) | xdist s (CPU) | xdist different |\n|" + " --- |" * 10
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A package's suite, run in each way."""

    package: Package
    plain: tuple[Run, ...]
    parallel: tuple[Run, ...]
    marked: tuple[Run, ...]
    """One, or none if the package needs no marks."""
    xdist: tuple[Run, ...]

    @property
    def failed(self) -> bool:
        nothing_passed = any(("passed",) not in run.outcomes.values() for run in self.plain)
        tests = {t for run in self.marked or self.parallel for t in differences(self.plain, run)}
        return nothing_passed or not all(map(self.package.why_known, tests))

    def row(self) -> str:
        cells = (
            f"{self.package.name} {self.package.version}",
            self.plain[0].tests,
            next((run.ended for run in self.plain if not run.outcomes), self.plain[0].counts()),
            self._different(self.parallel),
            self._different(self.marked),
            " / ".join(str(len(output_differences(self.plain, run))) for run in self.parallel),
            *map(_costs, (self.plain, self.parallel, self.xdist)),
            self._different(self.xdist),
        )
        return f"| {' | '.join(map(str, cells))} |"

    def _different(self, runs: tuple[Run, ...]) -> str:
        counts = (len(differences(self.plain, run)) if run.outcomes else run.ended for run in runs)
        return " / ".join(map(str, counts)) or "-"

    def details(self) -> list[str]:
        lines = {"unstable in plain": sorted(unstable(self.plain))}
        for kind in ("parallel", "marked", "xdist"):
            runs: tuple[Run, ...] = getattr(self, kind)
            for number, run in enumerate(runs, 1):
                found = lines.setdefault(f"{kind} {number}", [])
                for test, words in differences(self.plain, run).items():
                    reason = self.package.why_known(test)
                    found.append(f"{test}: {words}{f' (known: {reason})' if reason else ''}")
                if kind != "xdist":
                    found += [f"{t}: other output" for t in output_differences(self.plain, run)]
        for found in lines.values():
            found[MOST_NAMED:] = [f"and {len(found) - MOST_NAMED} more"] * (len(found) > MOST_NAMED)
        return [f"  {where}: {line}" for where, found in lines.items() for line in found]


def _costs(runs: tuple[Run, ...]) -> str:
    """Of the fastest."""
    best = min(runs, key=lambda run: run.wall_s, default=None)
    return "-" if best is None else f"{best.wall_s:.1f} ({best.cpu_s:.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="PACKAGE", help="default: all")
    parser.add_argument(
        "--pytest", choices=PYTESTS, help="default: the newest that the suite supports"
    )
    parser.add_argument("--all-pytests", action="store_true", help="a few suites on each pytest")
    parser.add_argument("--reuse-plain", action="store_true", help="keep stored plain results")
    parser.add_argument("--plain-only", action="store_true", help="store plain results only")
    parser.add_argument("--install-only", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.names) - {package.name for package in PACKAGES}:
        parser.error(f"unknown packages: {', '.join(sorted(unknown))}")
    compared = []
    for package in chosen(options.names, options.pytest, all_pytests=options.all_pytests):
        install(package)
        if options.install_only:
            continue
        compared.append(compare(package, options.reuse_plain, options.plain_only))
        print(*compared[-1].details(), compared[-1].row(), sep="\n", flush=True)
    print(f"\nplain: passed/failed/skipped; --parallel {WORKERS}; paraval of {CHECKOUT}\n\n{HEAD}")
    for one in compared:
        print(one.row())
    return int(any(one.failed for one in compared))


def compare(package: Package, reuse_plain: bool, plain_only: bool) -> Compared:
    """Run it in each way; the parallel runs share a cache, which is empty before the first."""
    parallel = ("--parallel", str(WORKERS))
    marks = [f"-oparallel_shared={','.join(package.shared)}"] if package.shared else []
    marks += ["-p", "suite_marks"] if package.marks else []
    without = ("-p", "no:paraval")
    return Compared(
        package=package,
        plain=run_some(package, "plain", 2, *without, reuse=reuse_plain),
        parallel=run_some(package, "parallel", 0 if plain_only else 2, *parallel),
        marked=run_some(package, "marked", 1 if marks and not plain_only else 0, *parallel, *marks),
        xdist=run_some(package, "xdist", 1, *without, "-n", str(WORKERS), reuse=reuse_plain),
    )


def chosen(names: list[str], pytest: str | None, *, all_pytests: bool) -> list[Package]:
    packages = [package for package in PACKAGES if not names or package.name in names]
    if pytest:
        return [replace(package, pytest=pytest) for package in packages]
    if not all_pytests:
        return packages
    return [
        replace(package, pytest=version)
        for package in packages
        if package.every_pytest or names
        for version in PYTESTS[: PYTESTS.index(package.pytest) + 1]
    ]


def home_of(package: Package) -> Path:
    return SUITES / package.name


def source_of(package: Package) -> Path:
    return home_of(package) / f"{package.name.replace('-', '_')}-{package.version}"


def python_of(package: Package) -> Path:
    return home_of(package) / "venv" / "bin" / "python"


def install(package: Package) -> None:
    """Fetches the source and makes the environment, once; and the release of pytest beside it."""
    home, source = home_of(package), source_of(package)
    other = SUITES / f"pytest-{package.pytest}"
    if package.pytest != PYTESTS[-1] and not other.exists():
        pip(
            sys.executable,
            "install",
            "--no-deps",
            "--target",
            str(other),
            f"pytest=={package.pytest}",
        )
    wanted = "\n".join((package.version, PYTESTS[-1], *package.requires))
    mark = home / "installed.txt"
    if mark.exists() and mark.read_text() == wanted:
        return
    print(f"{package.name} {package.version}: fetching and installing (once)", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    fetch(package)
    unpack(package)
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    python = str(python_of(package))
    xdist = "pytest-xdist"
    pip(python, "install", str(source), f"pytest=={PYTESTS[-1]}", xdist, *package.requires)
    pip(python, "install", "--editable", str(CHECKOUT))
    mark.write_text(wanted)


def fetch(package: Package) -> None:
    home = str(home_of(package))
    pip(sys.executable, "download", "--no-deps", "--no-binary", package.name, "--dest", home,
        f"{package.name}=={package.version}")  # fmt: skip


def unpack(package: Package) -> None:
    """Makes the source as it was published; only compiled files of an earlier run stay."""
    home, source = home_of(package), source_of(package)
    with tarfile.open(home / f"{source.name}.tar.gz") as archive:
        published = {home / name for name in archive.getnames()}
        published |= {parent for path in published for parent in path.parents}
        for path in sorted(source.rglob("*"), reverse=True):
            if path in published or "__pycache__" in path.parts:
                continue
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            elif not any(path.iterdir()):
                path.rmdir()
        archive.extractall(home, filter="data")


def pip(python: str, *arguments: str) -> None:
    quiet = ("--quiet", "--quiet", "--disable-pip-version-check")
    subprocess.run([python, "-m", "pip", arguments[0], *quiet, *arguments[1:]], check=True)


def run_some(
    package: Package, kind: str, times: int, *own: str, reuse: bool = False
) -> tuple[Run, ...]:
    """With a cache of their own, empty before the first."""
    folder = home_of(package) / f"pytest-{package.pytest}"
    cache = folder / f"cache-{kind}"
    command = [
        str(python_of(package)), "-m", "pytest", "-v", f"--rootdir={source_of(package)}",
        "-o", f"cache_dir={cache}", "-o", "junit_logging=all", *package.arguments, *own,
    ]  # fmt: skip
    outputs = [folder / f"{kind}-{number}.txt" for number in range(1, times + 1)]
    if not (reuse and all(is_of(output, command) for output in outputs)):
        shutil.rmtree(cache, ignore_errors=True)
        for output in outputs:
            run(package, output, command)
    runs = tuple(read(output.with_suffix(".xml"), output) for output in outputs)
    for output, result in zip(outputs, runs, strict=True):
        print(f"{package.name} {output.stem}: {result.ended}", flush=True)
    return runs


def is_of(output: Path, command: list[str]) -> bool:
    """Whether it has the output of that command, to its end."""
    if not output.exists():
        return False
    lines = output.read_text(errors="replace").splitlines()
    return lines[0] == f"$ {shlex.join(command)}" and lines[-1].startswith("wall: ")


def run(package: Package, output: Path, command: list[str]) -> None:
    """Runs it; the output begins with the command and ends with the time that it took."""
    junit = output.with_suffix(".xml")
    output.parent.mkdir(parents=True, exist_ok=True)
    junit.unlink(missing_ok=True)
    unpack(package)
    # Where a suite has no settings, pytest would look further up, and take this repository's.
    (home_of(package) / "pytest.ini").touch()
    began, cpu_s = time.monotonic(), cpu_of_children()
    with output.open("w") as file:
        print(f"$ {shlex.join(command)}", file=file, flush=True)
        process = subprocess.Popen(
            [*command, f"--junitxml={junit}"], cwd=source_of(package), env=environment(package),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"\n{HUNG} after {LIMIT_S} s", file=file)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    with output.open("a") as file:
        costs = COSTS.format(time.monotonic() - began, cpu_of_children() - cpu_s)
        print(f"\n{costs}", file=file)


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def environment(package: Package) -> dict[str, str]:
    """As in a shell of its own: no settings of pytest or make, and no keys of real models."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "MAKE", "PARAVAL")) and not name.endswith("_API_KEY")
    }
    paths = (CHECKOUT / "src", SUITES / f"pytest-{package.pytest}", PLUGIN)
    return own | {
        "PATH": f"{python_of(package).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "SUITE_MARKS": json.dumps(package.marks),
    }


if __name__ == "__main__":
    raise SystemExit(main())
