"""Runs the test suites of well-known packages plainly and with `--parallel`, and compares.

    python -m tests.suites.run                  all packages of packages.py
    python -m tests.suites.run attrs pluggy     some of them

Each package's source distribution is fetched from PyPI into `.suites/NAME/`, with an environment of
its own that has the package, what its tests need, and this checkout. Its suite runs plainly twice
and in parallel as often; what differs between the plain runs is flaky by itself. Any other
difference that is not known (packages.py, with its reason) makes this exit with 1. The output of
each run stays beside it: `.suites/NAME/plain-1.txt`, `parallel-1.txt` and so on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.suites.outcomes import Told, differing, read
from tests.suites.packages import PACKAGES, PYTEST, Package

ROOT = Path(__file__).resolve().parents[2]
SUITES = ROOT / ".suites"
AT_ONCE = 8
LIMIT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A package's suite, run plainly and in parallel."""

    package: Package
    plain: tuple[Told, ...]
    parallel: tuple[Told, ...]

    @property
    def flaky(self) -> dict[str, str]:
        return differing(self.plain[0], self.plain[1])

    @property
    def differences(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for told in self.parallel:
            found |= differing(self.plain[0], told)
        return {test: words for test, words in found.items() if test not in self.flaky}

    @property
    def unknown(self) -> dict[str, str]:
        differences = self.differences.items()
        return {test: words for test, words in differences if not self.package.why_known(test)}

    def row(self) -> str:
        plain, parallel = self.plain[0], self.parallel[0]
        cells = (
            f"{self.package.name} {self.package.version}",
            sum(map(len, plain.outcomes.values())),
            plain.counts(),
            parallel.counts(),
            len(self.differences),
            len(self.flaky),
            len(parallel.alone),
            f"{min(told.seconds for told in self.plain):.1f}",
            f"{min(told.seconds for told in self.parallel):.1f}",
        )
        return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "| package | tests | plain | parallel | different | flaky by itself | alone | plain s "
    "| parallel s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="PACKAGE", help="all, if none is named")
    parser.add_argument("--times", type=int, default=2, help="parallel runs of each suite")
    asked = parser.parse_args()
    chosen = [one for one in PACKAGES if not asked.names or one.name in asked.names]
    compared = [compare(package, asked.times) for package in chosen]
    print(f"\npassed/failed/skipped, {AT_ONCE} at once; {PYTEST}\n\n{HEAD}")
    for one in compared:
        print(one.row())
    return int(any(one.unknown for one in compared))


def compare(package: Package, times: int) -> Compared:
    source = install(package)
    compared = Compared(
        package=package,
        plain=tuple(run(package, source, f"plain-{number}") for number in (1, 2)),
        parallel=tuple(
            run(package, source, f"parallel-{number}", "--parallel", str(AT_ONCE))
            for number in range(1, times + 1)
        ),
    )
    for test, words in compared.flaky.items():
        print(f"  flaky by itself: {test}: {words}")
    for test, words in compared.differences.items():
        reason = package.why_known(test)
        print(
            f"  {'known' if reason else 'DIFFERENT'}: {test}: {words}"
            + f" ({reason})" * bool(reason)
        )
    return compared


def install(package: Package) -> Path:
    """The folder of its source, unpacked; its environment is made once."""
    home = SUITES / package.name
    source = home / f"{package.name}-{package.version}"
    wanted = "\n".join((package.version, PYTEST, *package.requires))
    mark = home / "installed.txt"
    if mark.exists() and mark.read_text() == wanted:
        return source
    print(f"{package.name} {package.version}: fetching and installing (once)", flush=True)
    home.mkdir(parents=True, exist_ok=True)
    pip(sys.executable, "download", "--no-deps", "--no-binary", ":all:", "--dest", str(home),
        f"{package.name}=={package.version}")  # fmt: skip
    with tarfile.open(home / f"{source.name}.tar.gz") as archive:
        archive.extractall(home, filter="data")
    subprocess.run([sys.executable, "-m", "venv", "--clear", home / "venv"], check=True)
    pip(str(python_of(home)), "install", str(source), PYTEST, *package.requires)
    pip(str(python_of(home)), "install", "--editable", str(ROOT))
    mark.write_text(wanted)
    return source


def pip(python: str, *arguments: str) -> None:
    quiet = ("--quiet", "--quiet", "--disable-pip-version-check")
    subprocess.run([python, "-m", "pip", arguments[0], *quiet, *arguments[1:]], check=True)


def python_of(home: Path) -> Path:
    return home / "venv" / "bin" / "python"


def run(package: Package, source: Path, name: str, *arguments: str) -> Told:
    home = source.parent
    junit, output = home / f"{name}.xml", home / f"{name}.txt"
    junit.unlink(missing_ok=True)
    command = [
        str(python_of(home)), "-m", "pytest", "-v", "-p", "no:cacheprovider",
        f"--junitxml={junit}", *package.arguments, *arguments,
    ]  # fmt: skip
    # As in a shell of its own: nothing of a run of pytest, or of make, around this one.
    own = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "MAKE"))
    }
    began = time.monotonic()
    with output.open("w") as file:
        subprocess.run(
            command, cwd=source, env=own, stdin=subprocess.DEVNULL, stdout=file,
            stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    seconds = time.monotonic() - began
    if not junit.exists():
        raise SystemExit(f"{package.name}: {name} ended without a JUnit file: see {output}")
    told = read(junit, output.read_text(errors="replace"), seconds)
    print(f"{package.name} {name}: {told.last_line}", flush=True)
    return told


if __name__ == "__main__":
    raise SystemExit(main())
