"""Commands that are held to CPUs, with real processes; where a system knows no such thing, they run
all the same, and that is told.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paraval.processes.children import Command, ProcessEnd, Warden
from paraval.processes.priority import MOST_CPUS, Pin
from paraval.processes.sandbox import Sandbox, why_no_sandbox
from paraval.records import TargetLimits

TELL = "import os; print(sorted(os.sched_getaffinity(0)))"
TELL_BELOW = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {TELL!r}])"

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system holds no process to a CPU"
)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(
        argv=(sys.executable, "-S", "-c", TELL),
        env={"PATH": os.environ["PATH"]},
        cwd=str(tmp_path),
        stdout=str(tmp_path / "stdout.log"),
        stderr=str(tmp_path / "stderr.log"),
        grace=0.2,
    )


def run(*commands: Command) -> list[ProcessEnd]:
    """One after the other, by the same supervisor."""

    async def main() -> list[ProcessEnd]:
        async with Warden() as warden:
            return [await warden.run(command) for command in commands]

    return asyncio.run(main())


def said(command: Command) -> str:
    return Path(command.stdout).read_text().strip()


def own_cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@needs_affinity
@pytest.mark.parametrize("script", [TELL, TELL_BELOW], ids=["itself", "what it starts"])
def test_a_pinned_command_runs_on_its_cpus_alone(command: Command, script: str) -> None:
    last = own_cpus()[-1]
    asked = replace(command, argv=(sys.executable, "-S", "-c", script), cpus=(last,))
    (ended,) = run(asked)
    assert (ended.exit_code, ended.pinned, said(asked)) == (0, True, str([last]))


@needs_affinity
def test_a_command_with_limits_is_pinned_too(command: Command) -> None:
    last = own_cpus()[-1]
    asked = replace(command, cpus=(last,), limits=TargetLimits(open_files=64))
    (ended,) = run(asked)
    assert (ended.pinned, said(asked)) == (True, str([last]))


@needs_affinity
@pytest.mark.skipif(why_no_sandbox() is not None, reason="no sandbox here")
def test_a_sandboxed_command_is_pinned_too(command: Command) -> None:
    last = own_cpus()[-1]
    asked = replace(command, cpus=(last,), sandbox=Sandbox())
    (ended,) = run(asked)
    assert (ended.pinned, said(asked)) == (True, str([last]))


@needs_affinity
def test_the_next_command_of_the_same_supervisor_runs_anywhere(
    command: Command, tmp_path: Path
) -> None:
    free = replace(command, stdout=str(tmp_path / "free.log"))
    pinned, unpinned = run(replace(command, cpus=(own_cpus()[-1],)), free)
    assert (pinned.pinned, unpinned.pinned) == (True, False)
    assert said(free) == str(own_cpus())


@needs_affinity
def test_a_command_that_cannot_be_started_leaves_its_supervisor_free(
    command: Command, tmp_path: Path
) -> None:
    missing = replace(command, argv=("no-such-program",), cpus=(own_cpus()[-1],))
    free = replace(command, stdout=str(tmp_path / "free.log"))
    failed, _ = run(missing, free)
    assert failed.failure is not None
    assert said(free) == str(own_cpus())


def test_cpus_that_are_not_there_leave_a_command_unpinned_and_say_so(command: Command) -> None:
    (ended,) = run(replace(command, argv=("true",), cpus=(MOST_CPUS - 1,)))
    assert (ended.exit_code, ended.pinned) == (0, False)


def test_a_system_without_affinity_runs_it_unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with Pin((0,)) as pin:
        assert not pin.holds


@pytest.mark.parametrize("cpus", [(-1,), (0, MOST_CPUS)])
def test_numbers_that_no_cpu_has_are_refused(command: Command, cpus: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="CPUs are numbered"):
        replace(command, cpus=cpus)
