"""Keys stay out of what is kept, however an agent ends and whatever it lays in its logs' place."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paraval.isolation import Home
from paraval.models.secrets import Redactor
from paraval.processes.children import Warden
from paraval.records import AgentTarget, Attempt, Case, CustomAgent, Model, Outcome, Provider, Trial
from paraval.scratch import Homes
from paraval.targets.agent import AgentAnswerer, ModelAccess
from paraval.targets.answer import Answer
from paraval.targets.redaction import PIECE_BYTES, redact_file, redact_files
from paraval.targets.surroundings import ProcessRoom

KEY = "sk-secret-0123456789abcdef"
MODEL = Model(
    name="m",
    provider=Provider.OPENAI,
    model="m",
    base_url="https://models.example/v1",
    api_key_env="TEAM_KEY",
    account="a",
)
ACCESS = ModelAccess(environment={"TEAM_KEY": KEY})
SAY_KEY = (
    "import os, signal, sys, time\n"
    "print(os.environ['OPENAI_API_KEY'], flush=True)\n"
    "print(os.environ['OPENAI_API_KEY'], file=sys.stderr, flush=True)\n"
    "logs = os.path.dirname(os.environ['PARAVAL_FOLDER'])\n"
)


def custom(script: str, *more: str) -> AgentTarget:
    agent = CustomAgent(command=(sys.executable, "-c", script, *more))
    return AgentTarget(
        agent="custom", prompt="{input}", account="a", custom=agent, model=MODEL, timeout=30
    )


def attempt_at(target: AgentTarget, folder: Path, prompt: str = "x") -> Attempt:
    case = Case(id="one", input=prompt)
    trial = Trial(index=0, key="k", case=case, variant={}, repeat=1, target=target)
    return Attempt(trial=trial, number=1, folder=str(folder / "attempt"))


def answer(folder: Path, target: AgentTarget, prompt: str = "x") -> Answer:
    async def run() -> Answer:
        async with Warden() as warden:
            homes = Homes(folder / "scratch")
            answerer = AgentAnswerer(
                ProcessRoom(warden=warden, run_id="run-3", homes=homes), ACCESS
            )
            return await answerer.answer(attempt_at(target, folder, prompt))

    return asyncio.run(run())


def logs_of(folder: Path) -> list[str]:
    return [(folder / "attempt" / f"{name}.log").read_text() for name in ("stdout", "stderr")]


def test_a_cancel_leaves_no_key_in_the_logs(tmp_path: Path) -> None:
    async def run() -> None:
        async with Warden() as warden:
            homes = Homes(tmp_path / "scratch")
            answerer = AgentAnswerer(
                ProcessRoom(warden=warden, run_id="run-3", homes=homes), ACCESS
            )
            target = custom(SAY_KEY + "time.sleep(60)")
            task = asyncio.create_task(answerer.answer(attempt_at(target, tmp_path)))
            said = tmp_path / "attempt" / "stderr.log"
            while not said.exists() or KEY not in said.read_text():  # noqa: ASYNC110 - by another process
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert logs_of(tmp_path) == ["[REDACTED]\n"] * 2


def test_nor_does_one_whose_watchers_were_killed_and_its_cost_is_unknown(tmp_path: Path) -> None:
    wait = "time.sleep(0.3); os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    given = answer(tmp_path, custom(SAY_KEY + wait))
    assert given.failure is not None
    assert given.failure.kind is Outcome.INFRA_ERROR
    assert given.spend is not None
    assert (given.spend.calls, given.spend.cost_usd) == (1, None)
    assert logs_of(tmp_path) == ["[REDACTED]\n"] * 2
    assert set(given.artifacts) == {"stdout", "stderr"}


@pytest.mark.parametrize("lay", ["os.symlink", "os.link"])
def test_a_link_in_a_logs_place_leads_nowhere(tmp_path: Path, lay: str) -> None:
    """Neither is what it leads to taken for the answer, nor is it written to."""
    victim = tmp_path / "victim"
    victim.write_text(f"mine: {KEY}\n")
    script = f"log = logs + '/stdout.log'; os.unlink(log); {lay}({str(victim)!r}, log)"
    given = answer(tmp_path, custom(SAY_KEY + script))
    assert victim.read_text() == f"mine: {KEY}\n"
    if lay == "os.symlink":
        assert given.output is None
    else:
        assert KEY not in logs_of(tmp_path)[0]


def test_what_fails_before_it_starts_costs_nothing(tmp_path: Path) -> None:
    given = answer(tmp_path, replace(custom("pass"), env={"LONG": "y" * 200_000}))
    assert given.failure is not None
    assert given.failure.message.startswith("custom cannot be handed the variable LONG, which has")
    assert given.spend is not None
    assert given.spend.cost_usd == 0.0


def test_an_argument_that_is_too_long_is_blamed_on_what_is_in_it(tmp_path: Path) -> None:
    long = "y" * 200_000
    by_prompt = answer(tmp_path / "a", custom("pass", "{prompt}"), long)
    assert by_prompt.failure is not None
    assert "takes its prompt on its command line" in by_prompt.failure.message
    other = answer(tmp_path / "b", replace(custom("pass"), arguments=(long,)))
    assert other.failure is not None
    assert "takes one of its arguments on its command line" in other.failure.message


def test_home_mine_needs_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    given = answer(tmp_path, replace(custom("print(1)"), home=Home.MINE))
    assert given.failure is not None
    assert "HOME is not set" in given.failure.message
    assert given.failure.lasting


def test_its_folder_is_there_and_is_not_that_of_its_logs(tmp_path: Path) -> None:
    script = "import os, sys; open(sys.argv[1] + '/x', 'w'); print(os.environ['PARAVAL_FOLDER'])"
    given = answer(tmp_path, custom(script, "{folder}"))
    assert given.output is not None
    assert given.output.text.strip() == str(tmp_path / "attempt" / "files")
    assert (tmp_path / "attempt" / "files" / "x").exists()


# ---- files


def test_all_but_the_key_stays_byte_for_byte(tmp_path: Path) -> None:
    patch = tmp_path / "changes.patch"
    patch.write_bytes(b"+a \xff\xfe\r\n+" + KEY.encode() + b"\n+\xe2\x82\n")
    patch.chmod(0o640)
    assert redact_file(str(patch), Redactor([KEY]))
    assert patch.read_bytes() == b"+a \xff\xfe\r\n+[REDACTED]\n+\xe2\x82\n"
    assert patch.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["changes.patch"]


def test_a_file_without_a_key_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("nothing of it\n")
    before = path.stat()
    assert not redact_file(str(path), Redactor([KEY]))
    assert path.stat().st_ino == before.st_ino
    assert not redact_file(str(tmp_path / "gone"), Redactor([KEY]))


def test_links_and_pipes_are_left_alone(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text(KEY)
    (tmp_path / "link").symlink_to(real)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        assert not redact_file(str(tmp_path / name), Redactor([KEY]))
    assert real.read_text() == KEY


def test_a_huge_file_is_redacted_to_its_end_while_the_loop_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    line = b"y" * 99 + b"\n"
    path.write_bytes(line * (PIECE_BYTES // 100 + 1000) + KEY.encode() + b"\n")

    async def run() -> int:
        ticks = 0
        task = asyncio.create_task(redact_files((str(path),), Redactor([KEY])))
        while not task.done():
            await asyncio.sleep(0.001)
            ticks += 1
        assert task.result() == (str(path),)
        return ticks

    assert asyncio.run(run()) > 1
    assert path.read_bytes().endswith(line + b"[REDACTED]\n")
