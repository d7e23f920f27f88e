"""Runs the test suites of well-known packages with plain pytest and with `--parallel`.

    python -m tests.suites.run                  all packages of packages.py
    python -m tests.suites.run attrs pluggy     some of them
    python -m tests.suites.run --all-pytests    a few of them, on each release of pytest

Each package's source distribution is fetched from PyPI into `.suites/NAME/`, with an environment of
its own that has the package, what its tests need, and paraval. Its suite runs plain twice, then in
parallel twice with pytest's cache, so that the second run knows what the first one learned. A test
that passed in both plain runs and is skipped, failed, an error or missing in parallel makes this
exit with 1, unless packages.py knows the difference. The output and JUnit file of each run stay in
`.suites/NAME/pytest-VERSION/`.

Environments do not depend on the checkout under test: it comes first in PYTHONPATH. To test
another one in the same environments, without running plain pytest again:

    PARAVAL_UNDER_TEST=PATH python -m tests.suites.run --reuse-plain
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.suites.outcomes import Run, differences, lost, read, unstable
from tests.suites.packages import PACKAGES, PYTESTS, Package

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = Path(os.environ.get("PARAVAL_UNDER_TEST", ROOT)).resolve()
SUITES = ROOT / ".suites"
WORKERS = 8
LIMIT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A package's suite, run plain and in parallel."""

    package: Package
    plain: tuple[Run, ...]
    parallel: tuple[Run, ...]

    @property
    def failed(self) -> bool:
        tests = {test for run in self.parallel for test in lost(self.plain, run)}
        nothing_passed = all("passed" not in kinds for kinds in self.plain[0].outcomes.values())
        return nothing_passed or not all(map(self.package.why_known, tests))

    def row(self) -> str:
        fastest = min(run.seconds for run in self.plain)
        cells = (
            f"{self.package.name} {self.package.version}",
            self.package.pytest,
            self.plain[0].tests,
            self.plain[0].counts(),
            len(unstable(self.plain)),
            " / ".join(str(len(lost(self.plain, run))) for run in self.parallel),
            " / ".join(str(run.alone) for run in self.parallel),
            f"{fastest:.1f}",
            " / ".join(f"{run.seconds / fastest:.2f}" for run in self.parallel),
        )
        return f"| {' | '.join(map(str, cells))} |"

    def details(self) -> list[str]:
        found = [f"  unstable in plain: {test}" for test in sorted(unstable(self.plain))]
        for number, run in enumerate(self.parallel, 1):
            bad = lost(self.plain, run)
            for test, words in differences(self.plain, run).items():
                reason = self.package.why_known(test)
                kind = f"known ({reason})" if reason else "DIFFERENT" if test in bad else "other"
                found.append(f"  run {number}, {kind}: {test}: {words}")
        return found


HEAD = (
    "| suite | pytest | tests | plain p/f/s | unstable plain | different run 1 / 2 "
    "| alone run 1 / 2 | plain s | wall ratio run 1 / 2 |\n|" + " --- |" * 9
)


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
        plain = run_twice(package, "plain", reuse=options.reuse_plain)
        parallel = () if options.plain_only else run_twice(package, "parallel", reuse=False)
        compared.append(Compared(package=package, plain=plain, parallel=parallel))
        print(*compared[-1].details(), compared[-1].row(), sep="\n", flush=True)
    print(f"\np/f/s: passed/failed/skipped; --parallel {WORKERS}; paraval of {CHECKOUT}\n\n{HEAD}")
    for one in compared:
        print(one.row())
    return int(any(one.failed for one in compared))


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
    pip(sys.executable, "download", "--no-deps", "--no-binary", package.name, "--dest", str(home),
        f"{package.name}=={package.version}")  # fmt: skip
    unpack(package)
    subprocess.run([sys.executable, "-m", "venv", home / "venv"], check=True)
    python = str(python_of(package))
    pip(python, "install", str(source), f"pytest=={PYTESTS[-1]}", *package.requires)
    pip(python, "install", "--editable", str(CHECKOUT))
    mark.write_text(wanted)


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


def run_twice(package: Package, kind: str, *, reuse: bool) -> tuple[Run, ...]:
    """With a cache of their own, empty before the first."""
    folder = home_of(package) / f"pytest-{package.pytest}"
    cache = folder / f"cache-{kind}"
    own = ("-p", "no:paraval") if kind == "plain" else ("--parallel", str(WORKERS))
    command = [
        str(python_of(package)), "-m", "pytest", "-v", f"--rootdir={source_of(package)}",
        "-o", f"cache_dir={cache}",
        *package.arguments, *own,
    ]  # fmt: skip
    outputs = [folder / f"{kind}-{number}.txt" for number in (1, 2)]
    if not (reuse and all(is_of(output, command) for output in outputs)):
        shutil.rmtree(cache, ignore_errors=True)
        for output in outputs:
            run(package, output, command)
    runs = tuple(read(output.with_suffix(".xml"), output) for output in outputs)
    for output, result in zip(outputs, runs, strict=True):
        print(f"{package.name} {output.stem}: {result.last_line}", flush=True)
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
    began = time.monotonic()
    with output.open("w") as file:
        print(f"$ {shlex.join(command)}", file=file, flush=True)
        process = subprocess.Popen(
            [*command, f"--junitxml={junit}"], cwd=source_of(package), env=environment(package),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            print(f"{package.name}: stopped after {LIMIT_S} s", flush=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    with output.open("a") as file:
        print(f"\nwall: {time.monotonic() - began:.2f} s", file=file)


def environment(package: Package) -> dict[str, str]:
    """As in a shell of its own: no settings of pytest or make, and no keys of real models."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST", "MAKE", "PARAVAL")) and not name.endswith("_API_KEY")
    }
    own["PYTHONPATH"] = f"{CHECKOUT / 'src'}{os.pathsep}{SUITES / f'pytest-{package.pytest}'}"
    return own


if __name__ == "__main__":
    raise SystemExit(main())
