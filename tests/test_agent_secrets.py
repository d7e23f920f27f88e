"""Keys stay out of what is kept, however an agent ends and whatever it lays in its logs' place."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import paraval as library
from paraval.models.secrets import Redactor, secrets_of_variable
from paraval.processes.children import Warden
from paraval.records import (
    AgentTarget,
    Attempt,
    Case,
    CustomAgent,
    Home,
    Model,
    Outcome,
    Provider,
    Trial,
)
from paraval.scratch import Homes
from paraval.targets.agent import AgentAnswerer, AgentModelAccess
from paraval.targets.answer import TargetAnswer
from paraval.targets.command import ProcessRoom
from paraval.targets.redaction import PIECE_BYTES, redact_file, redact_files
from tests.conftest import WriteSuite

KEY = "sk-secret-0123456789abcdef"
MODEL = Model(
    name="m",
    provider=Provider.OPENAI,
    model="m",
    base_url="https://models.example/v1",
    api_key_env="TEAM_KEY",
    account="a",
)
ACCESS = AgentModelAccess(environment={"TEAM_KEY": KEY})
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


def answer(folder: Path, target: AgentTarget, prompt: str = "x") -> TargetAnswer:
    async def run() -> TargetAnswer:
        async with Warden() as warden:
            warden.clean_logs = partial(redact_files, redactor=Redactor([KEY]))
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
            warden.clean_logs = partial(redact_files, redactor=Redactor([KEY]))
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
        assert given.output is None or given.output.text == ""
    else:
        assert KEY not in logs_of(tmp_path)[0]


def test_what_fails_before_it_starts_costs_nothing(tmp_path: Path) -> None:
    given = answer(tmp_path, replace(custom("pass"), env={"LONG": "y" * 200_000}))
    assert given.failure is not None
    assert given.failure.message.startswith("variable LONG for custom is")
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


# ---- whole runs

PASSED = "ghp_passed0123456789abcdefABCDEF"
WRITTEN = "written-b16f00d5eedcafe0"
SERVED = "served-token-of-a-tool"
REPEAT_ALL = """\
import json, os, pathlib, sys
secrets = [os.environ[name] for name in sys.argv[2].split(",")]
secrets += [text for text in sys.argv[3:] if text]
for secret in secrets:
    print("answer", secret, "\\x1b[1m".join(secret), secret.encode().hex())
    print("error", secret, file=sys.stderr)
    place = pathlib.Path(sys.argv[1])
    (place / f"dir-{secret}").mkdir()
    (place / f"dir-{secret}" / f"file-{secret}").write_text(secret)
    (place / f"link-{len(secret)}").symlink_to(secret)
    pathlib.Path(f"changed-{secret}").write_text(f"changed {secret}\\n")
"""
TELL_ALL = """\
import os, pathlib, sys
for path in pathlib.Path().glob("changed-*"):
    print("reason", path.read_text().strip(), os.environ["PASSED_ON"], path, end=" ")
    print(path.read_text(), file=sys.stderr)
sys.exit(1)
"""


def everything_kept(folder: Path) -> str:
    """The names and contents of all files, without terminal codes too."""
    kept = b""
    for path in [folder, *folder.rglob("*")]:
        kept += os.fsencode(path.relative_to(folder)) + b"\n"
        if path.is_symlink():
            kept += os.fsencode(path.readlink())
        elif path.is_file():
            kept += path.read_bytes()
    text = kept.decode(errors="replace")
    return text + re.sub(r"(?:\x1b|\\u001b)\[1m", "", text)


def run_and_report(suite: Path, capsys: pytest.CaptureFixture[str]) -> library.Report:
    report = library.run(suite, options=library.Options(store=suite.parent / "kept"))
    for ending in ("html", "json", "jsonl", "csv", "md", "junit.xml"):
        report.write(suite.parent / "kept" / f"report.{ending}")
    print(report)
    (suite.parent / "kept" / "printed").write_text("".join(capsys.readouterr()))
    return report


def test_nothing_that_a_command_and_its_grader_are_handed_is_kept(
    write: WriteSuite,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PASSED_ON", PASSED)
    monkeypatch.setenv("REGION", "us-east-1")
    write("all.py", REPEAT_ALL)
    write("tell.py", TELL_ALL)
    suite = write(
        "suite.yaml",
        f"""
        cases: [{{id: one}}]
        workspace: {{folder: true}}
        target:
          command: ["{{python}}", "{{suite}}/all.py", "{{folder}}", "PASSED_ON,API_KEY,REGION,MODE"]
          pass_env: [PASSED_ON, REGION]
          env: {{API_KEY: {WRITTEN}, MODE: thorough}}
        graders:
          - command: {{command: ["{{python}}", "{{suite}}/tell.py"], pass_env: [PASSED_ON]}}
        """,
    )
    report = run_and_report(suite, capsys)
    (trial,) = report.trials
    assert trial.outcome is Outcome.FAILED
    assert trial.result.output is not None
    assert trial.result.output.text.startswith("answer [REDACTED] [REDACTED] [REDACTED]\n")
    assert "answer us-east-1" in trial.result.output.text
    assert "answer thorough" in trial.result.output.text
    assert (
        "reason changed [REDACTED] [REDACTED] changed-[REDACTED]" in trial.result.grades[0].reason
    )
    kept = everything_kept(folder / "kept")
    assert "dir-[REDACTED]-2/file-[REDACTED]" in kept
    for secret in (PASSED, WRITTEN):
        assert secret not in kept
        assert secret.encode().hex() not in kept


def test_nothing_that_an_agent_and_its_tools_are_handed_is_kept(
    write: WriteSuite,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PASSED_ON", PASSED)
    monkeypatch.setenv("TEAM_KEY", KEY)
    write("all.py", REPEAT_ALL)
    suite = write(
        "suite.yaml",
        f"""
        cases: [{{id: one, input: x}}]
        models:
          m: {{provider: openai, model: m, base_url: "https://a.example", api_key_env: TEAM_KEY}}
        workspace: {{folder: true}}
        target:
          agent: custom
          prompt: "{{input}}"
          model: m
          command: ["{{python}}", "{{suite}}/all.py", "{{folder}}", "OPENAI_API_KEY,PASSED_ON"]
          arguments: [{SERVED}]
          pass_env: [PASSED_ON]
          mcp: {{tool: {{command: [cat], env: {{TOOL_TOKEN: {SERVED}}}}}}}
        """,
    )
    report = run_and_report(suite, capsys)
    (trial,) = report.trials
    assert trial.outcome is Outcome.PASSED, trial.result.error
    kept = everything_kept(folder / "kept")
    for secret in (PASSED, KEY, SERVED):
        assert secret not in kept
        assert secret.encode().hex() not in kept


@pytest.mark.parametrize(
    ("name", "value", "written", "secret"),
    [
        ("GITHUB_TOKEN", "ghp_0123456789abcdef", True, True),
        ("ANYTHING", "ghp_0123456789abcdef", True, True),
        ("ANYTHING", "some pass phrase 1 is here, ok?", False, True),
        ("DB_PASSWORD", "correct-horse-battery-staple", True, True),
        ("ANYTHING", "correct-horse-battery-staple", False, False),
        ("DB_PASSWORD", "postgres", True, False),
        ("DB_PASSWORD", "correcthorse", True, True),
        ("ANYTHING", "correcthorse", False, False),
        ("ANYTHING", "hunter2hunter2", False, True),
        ("ANYTHING", "hunter2hunter2", True, False),
        ("GREETING", "hello there, reader!", True, False),
        ("API_KEY", "short", False, False),
        (
            "GOOGLE_APPLICATION_CREDENTIALS",
            "/home/me/service-account-0123456789abcdef.json",
            False,
            False,
        ),
        ("AWS_REGION", "us-east-1", False, False),
        ("MODEL", "claude-sonnet-4-5-20250929", False, True),
        ("SEED", "1234567890", False, False),
        ("API_URL", "https://api.example.com/v1/0123456789abcdef", False, False),
        ("CACHE_DIR", "cache-0123456789abcdef", False, False),
        ("LC_ALL", "en_US.UTF-8", False, False),
        ("DATABASE_URL", "postgres://me:pa55w0rd!@db/x", True, True),
        ("HOOK", "https://example.com/hook?token=abc123def456", False, True),
    ],
)
def test_which_variables_are_secret(name: str, value: str, written: bool, secret: bool) -> None:
    assert bool(secrets_of_variable(name, value, is_written=written)) is secret


def test_the_password_of_an_address_and_the_lines_of_a_key_are_secret_by_themselves() -> None:
    found = secrets_of_variable("DATABASE_URL", "postgres://me:pa%2055word@db/x")
    assert found == ("postgres://me:pa%2055word@db/x", "pa 55word")
    lines = "-----BEGIN KEY-----\nMIIabcdef0123456789abc\n-----END KEY-----"
    assert "MIIabcdef0123456789abc" in secrets_of_variable("PRIVATE_KEY", lines)


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
