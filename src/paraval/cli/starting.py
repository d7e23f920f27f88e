"""`paraval init`, `paraval demo` and `paraval doctor`: for newcomers."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
import psutil

import paraval
from paraval.cli.options import json_option, store_option
from paraval.cli.running import (
    Showing,
    progress_option,
    run_and_show,
    verbose_option,
)
from paraval.composition import load_suite
from paraval.environment import child_environment
from paraval.errors import RequestError
from paraval.models.providers import DEFAULT_KEY_VARIABLE
from paraval.processes.children import Command, Warden
from paraval.settings import Options, Selection, default_store

STARTER = Path(__file__).parent / "starter"
DEMO_SUITE = Path(paraval.__file__).parent / "demo" / "suite.yaml"


def own_name() -> str:
    """How this program is called from here: by name, or by path where the name is not found."""
    if shutil.which("paraval") or not sys.argv[0].endswith("paraval"):
        return "paraval"
    return os.path.relpath(sys.argv[0])


# ---- init


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
def init_command(folder: Path) -> None:
    """Write a suite that runs, and the little program it tests, into a FOLDER."""
    files = {name: folder / name for name in ("suite.yaml", "agent.py")}
    for path in files.values():
        if path.exists():
            raise RequestError(
                f"{path} is there already; nothing was written",
                hint="name another folder: paraval init FOLDER",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in files.items():
            shutil.copyfile(STARTER / name, path)
            click.echo(f"wrote {path}", err=True)
    except OSError as error:
        raise RequestError(f"cannot write into {folder}: {error.strerror}") from error
    suite = shlex.quote(str(files["suite.yaml"]))
    click.echo(f"now: {own_name()} run {suite}", err=True)


# ---- demo


@click.command("demo")
@click.option("-j", "--parallel", type=click.IntRange(min=1), default=10, show_default=True)
@progress_option
@store_option
@verbose_option
def demo_command(parallel: int, progress: str, store: Path | None, *, verbose: bool) -> int:
    """Run a bundled suite: no key, no network.

    Three simulated models, different in speed, accuracy, price and rate limit, answer twenty
    questions. Some answers are wrong, one never comes, one request is refused: see how each is told
    apart.
    """
    click.echo(
        "Three simulated models answer twenty questions: no key, no network.",
        err=True,
    )
    code = run_and_show(
        load_suite(DEMO_SUITE),
        Selection(parallel=parallel),
        Options(store=store),
        Showing(progress=progress, verbose=verbose),
    )
    click.echo(
        f"\nNext: {own_name()} report last -o report.md, or {own_name()} init",
        err=True,
    )
    return code


# ---- doctor

Mark = Literal["ok", "note", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    mark: Mark
    text: str


@click.command("doctor")
@store_option
@json_option
def doctor_command(store: Path | None, *, as_json: bool) -> int:
    """Tell what is here and what is missing. Ends with 1 if something needed is missing."""
    findings = [finding for look in LOOKS for finding in look(store or default_store())]
    if as_json:
        rows = [{"name": f.name, "mark": f.mark, "text": f.text} for f in findings]
        click.echo(json.dumps(rows, indent=2))
    else:
        for finding in findings:
            click.echo(f"{finding.mark:8} {finding.name:10} {finding.text}")
    return int(any(finding.mark == "missing" for finding in findings))


def _python(_: Path) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"{version} at {sys.executable}; paraval {paraval.__version__}"
    yield Finding(name="python", mark="ok", text=text)


def _git(_: Path) -> Iterator[Finding]:
    git = shutil.which("git")
    if git is None:
        text = "not on PATH; commands that use it will miss it"
        yield Finding(name="git", mark="note", text=text)
        return
    yield Finding(name="git", mark="ok", text=f"{asyncio.run(_said(git, '--version'))} at {git}")


async def _said(*argv: str) -> str:
    """What a program prints."""
    with tempfile.TemporaryDirectory() as folder:
        stdout = os.path.join(folder, "stdout")  # noqa: PTH118 - text goes to the keeper
        command = Command(
            argv=argv,
            env=child_environment({}),
            cwd=folder,
            stdout=stdout,
            stderr=f"{stdout}.err",
            timeout=10,
        )
        async with Warden() as warden:
            ended = await warden.run(command)
        if ended.exit_code != 0 or not ended.stdout_bytes:
            return "it does not answer"
        return await asyncio.to_thread(lambda: Path(stdout).read_text().strip())


def _sqlite(_: Path) -> Iterator[Finding]:
    version = sqlite3.sqlite_version_info
    text = sqlite3.sqlite_version
    if version < (3, 24):
        yield Finding(name="sqlite", mark="missing", text=f"{text}; 3.24 or newer is needed")
    elif version < (3, 51, 3):
        note = (
            f"{text}; has the WAL-reset bug, which needs two writers at once: a run has one, so "
            "its results are safe; don't write to a run.db with other tools"
        )
        yield Finding(name="sqlite", mark="ok", text=note)
    else:
        yield Finding(name="sqlite", mark="ok", text=text)


def _machine(_: Path) -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = psutil.virtual_memory()
    text = f"{cores} cores; {_gigabytes(memory.available)} of {_gigabytes(memory.total)} free"
    yield Finding(name="machine", mark="ok", text=text)
    processes = psutil.Process()
    if hasattr(processes, "rlimit"):
        files = processes.rlimit(psutil.RLIMIT_NOFILE)[0]
        mark: Mark = "ok" if files < 0 or files >= 1024 else "note"
        text = f"{files} open files allowed" if files >= 0 else "no limit on open files"
        yield Finding(name="limits", mark=mark, text=text)


def _system(_: Path) -> Iterator[Finding]:
    if sys.platform != "linux":
        text = "not Linux: process trees are ended by process group, less thoroughly"
        yield Finding(name="system", mark="note", text=text)
    else:
        yield Finding(name="system", mark="ok", text="Linux")


def _keys(_: Path) -> Iterator[Finding]:
    """Whether the usual keys are there; never what they are."""
    for variable in dict.fromkeys(DEFAULT_KEY_VARIABLE.values()):
        state = "set" if os.environ.get(variable, "").strip() else "not set"
        yield Finding(name="key", mark="ok", text=f"{variable} is {state}")


def _store(store: Path) -> Iterator[Finding]:
    place = store.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    where = f"{store}: {_gigabytes(free)} free"
    if not os.access(place, os.W_OK):
        yield Finding(name="store", mark="missing", text=f"{where}, but it cannot be written")
    elif free < 1 << 30:
        yield Finding(name="store", mark="note", text=f"{where}: little room for a long run")
    else:
        yield Finding(name="store", mark="ok", text=where)


def _gigabytes(size: float) -> str:
    return f"{size / (1 << 30):.1f} GB"


LOOKS: tuple[Callable[[Path], Iterator[Finding]], ...] = (
    _python,
    _git,
    _sqlite,
    _machine,
    _system,
    _keys,
    _store,
)
