"""Commands as targets: where they run, what they see of the machine, and what is told of them."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paraval.processes.children import ProcessEnd, Warden
from paraval.records import (
    Attempt,
    Case,
    CommandTarget,
    Home,
    Outcome,
    OutputForm,
    TargetLimits,
    Trial,
)
from paraval.scratch import Homes
from paraval.targets.answer import TargetAnswer
from paraval.targets.command import CommandAnswerer, ProcessRoom
from paraval.targets.process_ends import unexpected_end


def command(script: str, *, cwd: str = ".", **options: object) -> CommandTarget:
    target = CommandTarget(command=(sys.executable, "-c", script), cwd=cwd, timeout=20)
    return replace(target, **options)  # type: ignore[arg-type]  # the test's own words


def answer(folder: Path, target: CommandTarget, *, workspace: Path | None = None) -> TargetAnswer:
    trial = Trial(
        index=0, key="k", case=Case(id="one", input="x"), variant={}, repeat=1, target=target
    )
    place = None if workspace is None else str(workspace)
    attempt = Attempt(trial=trial, number=1, folder=str(folder / "attempt"), workspace=place)

    async def run() -> TargetAnswer:
        async with Warden() as warden:
            homes = Homes(folder / "scratch")
            return await CommandAnswerer(
                ProcessRoom(warden=warden, run_id="run-2", homes=homes)
            ).answer(attempt)

    given = asyncio.run(run())
    assert not list((folder / "scratch" / "homes").glob("*/*/*")), "nothing stays in a home"
    return given


def text(given: TargetAnswer) -> str:
    assert given.output is not None, given.failure
    return given.output.text


SHOW = "import os; print(os.environ['HOME'], os.environ['TMPDIR'])"
LITTER = (
    "import os; open(os.environ['HOME'] + '/litter', 'w'); open(os.environ['TMPDIR'] + '/x', 'w')"
)


def test_a_command_has_a_home_and_temporary_files_of_its_own(tmp_path: Path) -> None:
    home, temp = text(answer(tmp_path, command(SHOW, cwd=str(tmp_path)))).split()
    assert home.startswith(str(tmp_path))
    assert temp.startswith(str(tmp_path))


def test_what_it_leaves_there_is_gone(tmp_path: Path) -> None:
    assert text(answer(tmp_path, command(LITTER, cwd=str(tmp_path)))) == ""


def test_home_mine_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    home, temp = text(answer(tmp_path, command(SHOW, cwd=str(tmp_path), home=Home.MINE))).split()
    assert home == "/home/me"
    assert temp.startswith(str(tmp_path))


def test_the_suites_own_words_count_more(tmp_path: Path) -> None:
    target = command(SHOW, cwd=str(tmp_path), env={"HOME": "/said"})
    assert text(answer(tmp_path, target)).startswith("/said ")


def test_with_a_workspace_it_runs_there(tmp_path: Path) -> None:
    """Its folder is relative to the workspace, which templates and a variable name."""
    workspace = tmp_path / "workspace"
    (workspace / "sub").mkdir(parents=True)
    script = "import os, sys; print(os.getcwd(), os.environ['PARAVAL_WORKSPACE'], sys.argv[1])"
    target = command(script, cwd="sub")
    target = replace(target, command=(*target.command, "{workspace}"))
    told = text(answer(tmp_path, target, workspace=workspace)).split()
    assert told == [str(workspace / "sub"), str(workspace), str(workspace)]


def test_an_answer_file_is_looked_for_there_too(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    script = "open('out.txt', 'w').write('yes')"
    target = command(script, output=OutputForm.FILE, output_file="out.txt")
    assert text(answer(tmp_path, target, workspace=workspace)) == "yes"


def test_what_it_took_of_the_machine_is_told(tmp_path: Path) -> None:
    given = answer(tmp_path, command("sum(range(2_000_000))", cwd=str(tmp_path)))
    assert given.cpu_s
    assert given.memory_bytes


def test_running_out_of_memory_is_said_to_be_that() -> None:
    ended = ProcessEnd(signal=9, out_of_memory=True)
    failure = unexpected_end(ended, "", limits=TargetLimits(memory_bytes=500_000_000))
    assert failure.kind is Outcome.CRASHED
    assert failure.message == "out of memory: it used more than 500 MB (limits.memory)"
    unlimited = unexpected_end(ended, "")
    assert unlimited.kind is Outcome.INFRA_ERROR
    assert "out of memory" in unlimited.message


def test_its_folder_is_there_and_is_not_that_of_its_logs(tmp_path: Path) -> None:
    script = "import os, sys; open(sys.argv[1] + '/x', 'w'); print(os.environ['PARAVAL_FOLDER'])"
    target = command(script, cwd=str(tmp_path))
    target = replace(target, command=(*target.command, "{folder}"))
    assert text(answer(tmp_path, target)).strip() == str(tmp_path / "attempt" / "files")
    assert (tmp_path / "attempt" / "files" / "x").exists()


def test_a_link_in_its_logs_place_is_not_read(tmp_path: Path) -> None:
    """Neither as its answer nor as its last words."""
    secret = tmp_path / "secret"
    secret.write_text("stolen\n")
    lay = tmp_path / "lay.py"
    lay.write_text(
        "import os, sys\n"
        "print('x', flush=True); print('y', file=sys.stderr, flush=True)\n"
        "logs = os.path.dirname(os.environ['PARAVAL_FOLDER'])\n"
        "for log in (logs + '/stdout.log', logs + '/stderr.log'):\n"
        f"    os.unlink(log); os.symlink({str(secret)!r}, log)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    for end in ("0", "3"):
        target = replace(command("", cwd=str(tmp_path)), command=(sys.executable, str(lay), end))
        given = answer(tmp_path / end, target)
        assert given.failure is not None
        assert "stolen" not in given.failure.message
