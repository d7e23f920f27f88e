"""`make test-pythons`: the tests on every Python that is here, each in an environment of its own.

Looks on PATH and in pyenv's folder, takes the newest patch release of each minor version from 3.11
on, and prints one line for each. What pytest prints goes to a log beside the environment.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".pythons"
OLDEST = (3, 11)
COMMAND_NAME = re.compile(r"python3\.\d+")
VERSION_TEXT = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
SUMMARY = re.compile(r"^=*\s?(\d.*) in \d[\d.]*s", re.MULTILINE)
FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
MOST_NAMES = 20

Version = tuple[int, ...]


def main() -> int:
    """Test on each Python in turn; with versions as arguments (3.12 3.13), on these."""
    pythons = found_pythons()
    if wanted := sys.argv[1:]:
        pythons = {version: path for version, path in pythons.items() if short(version) in wanted}
        if missing := set(wanted) - {short(version) for version in pythons}:
            print(f"not found on PATH or in pyenv's folder: {', '.join(sorted(missing))}")
            return 2
    return max([tested(version, path) for version, path in sorted(pythons.items())], default=2)


def found_pythons() -> dict[Version, Path]:
    """The newest Python of each minor version."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        path for folder in folders for path in folder.glob("python3.*") if is_interpreter(path)
    ]
    candidates += pyenv.glob("versions/*/bin/python3")
    newest: dict[Version, tuple[Version, Path]] = {}
    for path in candidates:
        version = version_of(path)
        if version >= OLDEST and version > newest.get(version[:2], ((), path))[0]:
            newest[version[:2]] = (version, path)
    return dict(newest.values())


def is_interpreter(path: Path) -> bool:
    """Not `python3.11-config`, and not the script by which pyenv chooses a version."""
    return COMMAND_NAME.fullmatch(path.name) is not None and path.parent.name != "shims"


def version_of(python: Path) -> Version:
    """Nothing at all for one that doesn't start."""
    try:
        told = subprocess.run(
            [python, "-c", VERSION_TEXT], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(number) for number in told.stdout.split("."))


def short(version: Version) -> str:
    """As people say it: 3.12."""
    return f"{version[0]}.{version[1]}"


def tested(version: Version, python: Path) -> int:
    """Set up the environment, run the tests, and print the line."""
    name = ".".join(map(str, version))
    log = FOLDER / f"{name}.log"
    began = time.monotonic()
    FOLDER.mkdir(exist_ok=True)
    print(f"{name}  testing ... (tail -f {log.relative_to(ROOT)})", flush=True)
    with log.open("w") as output:
        environment = set_up(name, python, output)
        ended = environment and subprocess.run(
            [
                environment,
                "-m",
                "pytest",
                "-n",
                "3",
                "--dist",
                "worksteal",
            ],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    text = log.read_text()
    minutes = f"{(time.monotonic() - began) / 60:.0f} min"
    if not ended:
        print(f"{name}  NOT SET UP  {log.relative_to(ROOT)} says why")
        return 2
    counts = (SUMMARY.findall(text) or ["no summary"])[-1]
    print(f"{name}  {'FAILED' if ended.returncode else 'ok'}  {counts}, {minutes}", flush=True)
    for failure in FAILURE.findall(text)[:MOST_NAMES]:
        print(f"    {failure}")
    return ended.returncode


def set_up(name: str, python: Path, output: object) -> Path | None:
    """The environment's Python, with the package and what its tests need; `None` if that failed."""
    folder = FOLDER / name
    inside = folder / "bin" / "python"
    installed = folder / ".installed"
    wanted = (ROOT / "pyproject.toml").read_text() + (ROOT / "constraints.txt").read_text()
    if installed.is_file() and installed.read_text() == wanted:
        return inside
    shutil.rmtree(folder, ignore_errors=True)
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [python, "-m", "venv", folder],
        [*pip, "-c", "constraints.txt", "-e", ".[demo,dev]"],
    ):
        ended = subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False)  # type: ignore[call-overload]
        if ended.returncode:
            return None
    installed.write_text(wanted)
    return inside


if __name__ == "__main__":
    sys.exit(main())
