"""`paraval doctor`: what is here and what is missing, a line for each thing that was looked at."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
import psutil

import paraval
from paraval.agents.catalog import AgentPresence, presence
from paraval.cli.options import json_option, store_option
from paraval.environment import child_environment
from paraval.machine.machine_reader import MachineReader
from paraval.models.requests import DEFAULT_KEY_VARIABLE
from paraval.processes.enforcement import Means, limits_enforced
from paraval.processes.launch import scopes_abstract_sockets
from paraval.processes.quick import run_quickly
from paraval.processes.sandbox import PROGRAM, why_no_sandbox
from paraval.settings import default_store
from paraval.text.terminal import one_line
from paraval.text.words import size

GIT_PATIENCE_S = 10.0
LONGEST_TEXT = 500

Mark = Literal["ok", "note", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
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


def _python(_: Path) -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"{version} at {sys.executable}; paraval {paraval.__version__}"
    yield Check(name="python", mark="ok", text=text)


def _git(_: Path) -> Iterator[Check]:
    git = shutil.which("git")
    if git is None:
        text = "not on PATH; commands that use it will miss it, and so will `workspace: {git: .}`"
        yield Check(name="git", mark="note", text=text)
        return
    ended = run_quickly([git, "--version"], env=child_environment({}), timeout=GIT_PATIENCE_S)
    said = ended.stdout.decode(errors="replace").strip() if ended.is_well else "it does not answer"
    yield Check(name="git", mark="ok" if ended.is_well else "note", text=f"{said} at {git}")


def _sqlite(_: Path) -> Iterator[Check]:
    version = sqlite3.sqlite_version_info
    text = sqlite3.sqlite_version
    if version < (3, 24):
        yield Check(name="sqlite", mark="missing", text=f"{text}; 3.24 or newer is needed")
    elif version < (3, 51, 3):
        note = (
            f"{text}; has the WAL-reset bug, which needs two writers at once: a run has one, so "
            "its results are safe; don't write to a run.db with other tools"
        )
        yield Check(name="sqlite", mark="ok", text=note)
    else:
        yield Check(name="sqlite", mark="ok", text=text)


def _machine(_: Path) -> Iterator[Check]:
    reading = MachineReader().read({})
    available, memory = size(reading.memory_available), size(reading.memory_bytes)
    cores = "core" if reading.cpus == 1 else "cores"
    text = f"{reading.cpus:g} {cores} may be used; {available} of {memory} of memory free"
    yield Check(name="machine", mark="ok", text=text)
    processes = psutil.Process()
    if hasattr(processes, "rlimit"):
        files = processes.rlimit(psutil.RLIMIT_NOFILE)[0]
        mark: Mark = "ok" if files < 0 or files >= 1024 else "note"
        text = f"{files} open files allowed" if files >= 0 else "no limit on open files"
        yield Check(name="limits", mark=mark, text=text)


def _system(_: Path) -> Iterator[Check]:
    if sys.platform != "linux":
        text = "not Linux: process trees are ended by process group, less thoroughly"
        yield Check(name="system", mark="note", text=text)
    else:
        yield Check(name="system", mark="ok", text="Linux")


def _trees(_: Path) -> Iterator[Check]:
    """By which means process trees are ended and held to the limits that suites set."""
    means = limits_enforced()
    held = {"limits.memory": means.memory, "limits.processes": means.processes}
    told = (
        f"{name} is {'not enforced' if by is Means.NONE else f'enforced by {by}'}"
        for name, by in held.items()
    )
    text = "; ".join((f"ended by {means.kill}", *told))
    is_whole = means.kill is not Means.PROCESS_GROUP and Means.NONE not in held.values()
    yield Check(name="trees", mark="ok" if is_whole else "note", text=text)


def _sandbox(_: Path) -> Iterator[Check]:
    why = why_no_sandbox()
    if why is not None:
        yield Check(name="sandbox", mark="note", text=_on_one_line(why))
        return
    text = "bubblewrap works: `sandbox: true` may be used"
    if not scopes_abstract_sockets(shutil.which(PROGRAM) or PROGRAM):
        text += "; attempts can reach abstract Unix sockets (Linux 6.12 with Landlock prevents it)"
    yield Check(name="sandbox", mark="ok", text=text)


def _agents(_: Path) -> Iterator[Check]:
    """Which agent programs are here, and whether someone is logged in; never a key itself."""
    for found in presence(os.environ, Path.home()):
        is_ready = found.program is not None and (found.key is not None or found.logged_in)
        mark: Mark = "ok" if is_ready else "note"
        yield Check(name="agent", mark=mark, text=_agent_text(found))


def _agent_text(found: AgentPresence) -> str:
    if found.program is None:
        return _on_one_line(f"{found.name}: {found.advice}")
    version = found.version or "tells no version"
    return _on_one_line(f"{found.name}: {version}, at {found.program}; {found.advice}")


def _keys(_: Path) -> Iterator[Check]:
    """Whether the usual keys are there; never what they are."""
    for variable in dict.fromkeys(DEFAULT_KEY_VARIABLE.values()):
        state = "set" if os.environ.get(variable, "").strip() else "not set"
        yield Check(name="key", mark="ok", text=f"{variable} is {state}")


def _store(store: Path) -> Iterator[Check]:
    place = store.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    where = f"{store}: {size(free)} free"
    if not os.access(place, os.W_OK):
        yield Check(name="store", mark="missing", text=f"{where}, but it cannot be written")
    elif free < 1 << 30:
        yield Check(name="store", mark="note", text=f"{where}: little room for a long run")
    else:
        yield Check(name="store", mark="ok", text=where)


def _on_one_line(text: str) -> str:
    return one_line(text.replace("\nhint: ", "; "), LONGEST_TEXT)


LOOKS: tuple[Callable[[Path], Iterator[Check]], ...] = (
    _python,
    _git,
    _sqlite,
    _machine,
    _system,
    _trees,
    _sandbox,
    _keys,
    _agents,
    _store,
)
