"""A child of the same user looks for the engine's keys. Root may read everything: where the tests
run as root, the engine of a test becomes another user first.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paraval.processes.identity import unreadable_environment

NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
    "--bounding-set=-all,+dac_read_search",
)
"""A user who may read the files of this checkout and its Python; other processes are none."""
ENGINE = """
import asyncio, os, sys
from paraval.processes.children import Command, Warden
from paraval.processes.identity import unreadable_environment

LOOK = (
    "import sys\\n"
    "try: print(b'SOME_KEY=' in open(f'/proc/{sys.argv[1]}/environ', 'rb').read())\\n"
    "except PermissionError: print('refused')\\n"
)

async def look(warden):
    command = Command(
        argv=(sys.executable, "-c", LOOK, str(os.getpid())),
        env={}, cwd="/", stdout=sys.argv[1], stderr=os.devnull,
    )
    await warden.run(command)
    return open(sys.argv[1]).read().strip()

async def main():
    async with Warden() as warden:
        told = [await look(warden)]
        with unreadable_environment():
            told.append(await look(warden))
            with unreadable_environment():
                told.append(await look(warden))
            told.append(await look(warden))
        told.append(await look(warden))
    print(*told)

asyncio.run(main())
"""

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux")


@needs_linux
@pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="root cannot become another user here"
)
def test_while_a_run_starts_children_none_can_read_the_engine_s_environment(
    tmp_path: Path,
) -> None:
    """Before and after they can: so it is this that keeps them from it. It nests."""
    tmp_path.chmod(0o777)
    user = NOBODY if os.geteuid() == 0 else ()
    ended = subprocess.run(
        [*user, sys.executable, "-c", ENGINE, str(tmp_path / "told")],
        env={**os.environ, "SOME_KEY": "sk-secret"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.stderr == ""
    assert ended.stdout.split() == ["True", "refused", "refused", "refused", "True"]


ATTEMPTS = """
import asyncio, os, sys
from paraval.processes.children import Command, Warden

LOOK = (
    "import os\\n"
    "supervisor = os.getppid()\\n"
    "warden = int(open(f'/proc/{supervisor}/stat').read().rpartition(')')[2].split()[1])\\n"
    "for pid in (supervisor, warden):\\n"
    "    for name in ('environ', 'mem', 'maps'):\\n"
    "        try: open(f'/proc/{pid}/{name}', 'rb').close(); print('opened')\\n"
    "        except PermissionError: print('refused')\\n"
)

async def main():
    async with Warden() as warden:
        for number in range(2):
            command = Command(
                argv=(sys.executable, "-c", LOOK), env={"SOME_KEY": "sk-secret"}, stdin=b"sk",
                cwd="/", stdout=f"{sys.argv[1]}{number}", stderr=os.devnull,
            )
            assert (await warden.run(command)).exit_code == 0
            print(open(command.stdout).read())

asyncio.run(main())
"""


@needs_linux
@pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="root cannot become another user here"
)
def test_no_command_can_read_the_processes_that_started_it(tmp_path: Path) -> None:
    """They serve many commands, and were given the variables and the stdin of each."""
    tmp_path.chmod(0o777)
    user = NOBODY if os.geteuid() == 0 else ()
    ended = subprocess.run(
        [*user, sys.executable, "-c", ATTEMPTS, str(tmp_path / "told")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.stderr == ""
    assert ended.stdout.split() == ["refused"] * 12


@needs_linux
def test_what_was_before_comes_back_in_whatever_order_they_end() -> None:
    dumpable = ctypes.CDLL(None).prctl
    before = dumpable(3, 0, 0, 0, 0)
    first, second = unreadable_environment(), unreadable_environment()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert dumpable(3, 0, 0, 0, 0) == 0
    second.__exit__(None, None, None)
    assert dumpable(3, 0, 0, 0, 0) == before


def test_elsewhere_than_on_linux_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with unreadable_environment():
        pass
