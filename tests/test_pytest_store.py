"""Sessions of tests in the store: plain, parallel and with xdist, whole and broken off."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paraval.pytest_plugin.options import FAIL_UNDER, INI_KEYS, dest_of, read_options
from paraval.pytest_plugin.recording.item_trials import (
    PlanFrame,
    PlannedTest,
    SourceDigests,
    key_by_code,
    plan_of,
)
from paraval.pytest_plugin.recording.recording import (
    code_state,
    fail_under_in,
    flaky_tests,
    for_tests,
)
from paraval.records import AttemptRecord, RunInfo, TrialResult
from paraval.report.gate import judge_gate
from paraval.report.report import Report
from paraval.store.connection import explained
from paraval.store.folder import unreadable, unusable
from paraval.store.store import Store

SECRET = "sk-live-0123456789abcdef"
TOKEN = "hub-98765432"
TESTS = """
    import logging, os, pathlib, subprocess
    import pytest

    def test_ok():
        print("the key is", os.environ["SOME_API_KEY"])
        print("in red", "\\x1b[31m".join(os.environ["SOME_API_KEY"]))

    def test_wrong():
        logging.getLogger("mine").warning("hm")
        assert 1 + 1 == 3, "sums"

    @pytest.fixture
    def broken():
        raise RuntimeError("no database")

    def test_setup(broken): ...

    def test_outage():
        raise ConnectionError("refused")

    def test_skipped():
        pytest.skip("not here")

    @pytest.mark.xfail(reason="known")
    def test_expected():
        assert False

    @pytest.fixture
    def unclosed():
        yield
        raise ValueError("cannot close")

    def test_teardown(unclosed): ...

    def test_wrong_and_unclosed(unclosed):
        assert False, "first"

    @pytest.mark.parametrize("n", [1, 2])
    def test_model(model, n, usage):
        usage.add(input_tokens=10, output_tokens=5, model=model.name, cost_usd=0.01)
        assert (model.name, n) != ("slow", 2)

    @pytest.mark.parametrize("rival", ["local"])
    def test_rival(model, rival): ...

    @pytest.mark.parametrize("key", [os.environ["SOME_API_KEY"], os.environ["HUB_TOKEN"]])
    def test_key(key):
        pytest.skip(key)

    def test_flips():
        count = pathlib.Path(os.environ["COUNT"])
        number = int(count.read_text()) if count.exists() else 0
        count.write_text(str(number + 1))
        subprocess.run(["true"])  # so that it is not run again, alone, when it fails
        assert number % 2 == 0
"""
MODELS = """
    local: {provider: loopback, scenario: fast}
    slow: {provider: loopback, scenario: fast}
"""
ENDS = {
    "test_ok": "passed",
    "test_wrong": "failed",
    "test_setup": "crashed",
    "test_outage": "infra_error",
    "test_skipped": "skipped",
    "test_expected": "skipped",
    "test_teardown": "crashed",
    "test_wrong_and_unclosed": "failed",
    "test_model[1] · local": "passed",
    "test_model[2] · local": "passed",
    "test_model[1] · slow": "passed",
    "test_model[2] · slow": "failed",
    "test_rival[local] · local": "passed",
    "test_rival[local] · slow": "passed",
    "test_key[[REDACTED]]": "skipped",
}


class Project:
    """A folder of tests, and what its sessions left in the store."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder = folder
        self.store = Store(folder / ".paraval")
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(textwrap.dedent(text))

    def command(self, *arguments: str) -> list[str]:
        ours = ("-q", "-p", "paraval.pytest_plugin.plugin", "--paraval-store")
        return [sys.executable, "-m", "pytest", *arguments, *ours]

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        others = {name: text for name, text in os.environ.items() if name != "PARAVAL_STORE"}
        count = str(self.folder.parent / "count")
        # To load what else is installed takes longer than most of these sessions.
        alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return {**others, **alone, "COUNT": count, "SOME_API_KEY": SECRET, "HUB_TOKEN": TOKEN}

    def commit(self) -> None:
        (self.folder / ".gitignore").write_text("__pycache__\n")
        signed = ("-c", "user.name=a", "-c", "user.email=a@localhost")
        for words in (["init", "-q"], ["add", "-A"], [*signed, "commit", "-qm", "tests"]):
            subprocess.run(["git", *words], cwd=self.folder, check=True, capture_output=True)

    def last(self) -> RunInfo:
        return self.store.find("last")

    def results(self) -> dict[str, TrialResult]:
        with self.store.reader(self.last()) as reader:
            found = list(reader.results())
        return {_short(one): one for one in found}

    def outcomes(self) -> dict[str, str]:
        return {name: one.outcome.value for name, one in self.results().items()}

    def attempts(self) -> list[AttemptRecord]:
        with self.store.reader(self.last()) as reader:
            return list(reader.attempts())

    def text(self) -> str:
        with self.store.reader(self.last()) as reader:
            return str(Report(reader))

    def kept(self, name: str, artifact: str) -> str:
        return (
            Path(self.last().folder) / self.results()[name].result.artifacts[artifact]
        ).read_text()


def _short(result: TrialResult) -> str:
    name = result.case_id.rpartition("::")[2]
    model = result.variant.get("model", "(no model)")
    return name if model == "(no model)" else f"{name} · {model}"


def test_every_kind_of_session_records_the_same(tmp_path: Path) -> None:
    """One project, on the same code: plain, side by side, and in one of xdist's workers."""
    project = Project(tmp_path / "project", test_all__py=TESTS, models__yaml=MODELS)
    project.commit()
    ways: list[tuple[str, ...]] = [
        (),
        ("--parallel", "4", "--no-recheck"),
        ("-p", "xdist", "-n", "1"),
    ]
    flips = []
    for way in ways:
        done = project.pytest("--models", "all", "--deselect", f"of-{TOKEN}", *way)
        assert done.returncode == 1, done.stdout + done.stderr
        ended = project.outcomes()
        flips.append(ended.pop("test_flips"))
        assert ended == ENDS, way
        assert "recorded by paraval" in done.stdout
        assert all(one.number == 1 and one.result is not None for one in project.attempts())
        _check_what_is_kept(project)
    assert flips == ["passed", "failed", "passed"]
    # The third session has seen both ends of one code, and only that test's.
    told = [line for line in done.stdout.splitlines() if line.startswith("flaky")]
    name = "test_all.py::test_flips"
    assert told == [f"flaky: {name} passed 2 of 3 times on this code (last 3 runs)"]
    about = project.store.selection(project.last())["pytest"]
    assert about["dirty"] is False
    assert "--models" in about["arguments"]
    _check_other_code(project)


def _check_what_is_kept(project: Project) -> None:
    results, text = project.results(), project.text()
    wrong, outage = results["test_wrong"].result, results["test_outage"].result
    assert wrong.grades[0].reason == "AssertionError: sums"
    assert outage.error is not None
    assert outage.error.message.endswith("refused")
    assert results["test_setup"].result.error is not None
    assert results["test_wrong_and_unclosed"].result.notes == (
        "teardown: ValueError: cannot close",
    )
    assert "1 + 1" in project.kept("test_wrong", "traceback")
    assert "hm" in project.kept("test_wrong", "log")
    assert project.kept("test_ok", "stdout") == "the key is [REDACTED]\nin red [REDACTED]\n"
    spend = results["test_model[1] · slow"].spend
    assert spend is not None
    assert (spend.cost_usd, spend.usage["input_tokens"]) == (0.01, 10)
    for sentence in (
        "3 errors (left out of the pass rate)",
        "1 skipped: not here",
        "2 skipped: [REDACTED]",
        "1 skipped: expected to fail: known",
        "Cost: $0.040 for 4 trials",
    ):
        assert sentence in text
    for file in Path(project.last().folder).rglob("*"):
        kept = b"" if file.is_dir() else file.read_bytes()
        assert not any(secret.encode() in kept for secret in (SECRET, TOKEN)), file


def _check_other_code(project: Project) -> None:
    """Where what they test has changed, a failure then and a success now are no flakiness; and
    where nobody knows, nothing is said."""
    with project.store.reader(project.last()) as reader:
        keys = list(reader.verdicts())
    test = PlannedTest(node_id="test_all.py::test_flips")
    here = str(project.store.selection(project.last())["pytest"]["tree"])
    key = key_by_code(SourceDigests(project.folder))(test, 1)
    assert key in keys
    (project.folder / "code.py").write_text("fixed = True\n")
    state = code_state(project.folder)
    assert state is not None
    assert state.is_dirty
    for tree, number in ((here, 1), (state.tree, 0), (None, 0)):
        frame = PlanFrame(name="pytest:project", folder="", selection={"pytest": {"tree": tree}})
        plan = plan_of([test], frame=frame, key_of=lambda _test, _repeat: key)
        assert len(flaky_tests(project.store, plan)) == number


SLOW = """
    import pathlib, time

    def test_quick(): ...

    def test_hangs():
        pathlib.Path("begun").touch()
        time.sleep(60)

    def test_never(): ...
"""


@pytest.mark.parametrize(
    ("how", "way", "state"),
    [
        (signal.SIGINT, (), {"test_quick": "passed", "test_hangs": "", "test_never": ""}),
        (signal.SIGKILL, ("--parallel", "2"), {"test_quick": "passed", "test_hangs": ""}),
    ],
)
def test_a_session_that_is_stopped_or_killed_is_an_interrupted_run(
    tmp_path: Path, how: signal.Signals, way: tuple[str, ...], state: dict[str, str]
) -> None:
    """What ended before is there, what ran is known to have begun, and the gate is not judged."""
    project = Project(tmp_path / "project", test_slow__py=SLOW)
    command = project.command(*way)
    session = subprocess.Popen(
        command,
        cwd=project.folder,
        env=project.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(project.folder / "begun")
        _wait_for_result(project, "test_quick")
        session.send_signal(how)
        session.wait(30)
    finally:
        session.kill()
        session.wait()
    ended = project.results()
    for name, outcome in state.items():
        assert ended[name].outcome == (outcome or "skipped")
    (begun,) = [one for one in project.attempts() if one.case_id.endswith("test_hangs")]
    assert begun.result is None
    assert project.last().interrupted
    assert "The run was interrupted" in project.text()
    assert "resume" not in project.text(), "nothing goes on with it"


def _wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, f"{path} never came"
        time.sleep(0.02)


def _wait_for_result(project: Project, name: str) -> None:
    until = time.monotonic() + 60
    while project.outcomes()[name] != "passed":
        assert time.monotonic() < until, f"{name} has no result"
        time.sleep(0.02)


def test_tests_that_maxfail_leaves_out_are_skipped_with_the_reason(tmp_path: Path) -> None:
    project = Project(
        tmp_path / "project",
        test_few__py="""
            def test_one(): ...
            def test_two(): assert False
            def test_three(): ...
        """,
    )
    done = project.pytest("-x")
    assert done.returncode == 1
    assert project.outcomes() == {
        "test_one": "passed",
        "test_two": "failed",
        "test_three": "skipped",
    }
    assert "1 skipped: not run: stopping after 1 failures" in project.text()
    assert project.last().held_back


def test_a_test_that_is_run_again_has_several_attempts_and_is_flaky(tmp_path: Path) -> None:
    """By pytest-rerunfailures: the last attempt decides, and the others are not lost."""
    project = Project(
        tmp_path / "project",
        test_again__py="""
            import os, pathlib

            def test_twice(usage):
                usage.add(input_tokens=3, output_tokens=1, model="m", cost_usd=1.0)
                assert usage.calls == 1, "nothing of the attempt before"
                count = pathlib.Path(os.environ["COUNT"])
                tries = len(count.read_text()) if count.exists() else 0
                count.write_text("x" * (tries + 1))
                assert tries, "the first time"
        """,
    )
    project.commit()
    done = project.pytest("-p", "pytest_rerunfailures", "--reruns", "2")
    assert done.returncode == 0, done.stdout
    first, second = project.attempts()
    assert first.result is not None
    assert second.result is not None
    assert (first.result.outcome, second.result.outcome) == ("failed", "passed")
    spends = [first.result.spend, second.result.spend]
    assert [spend and spend.calls for spend in spends] == [1, 1]
    assert "m  2 calls  6 in, 2 out  $2.00" in done.stdout
    assert project.outcomes() == {"test_twice": "passed"}
    assert "test_twice passed 1 of 2 times on this code (this run)" in done.stdout


GATED = """
    import pytest

    @pytest.mark.parametrize("n", range(10))
    def test_each(n):
        assert n

    def test_left_out():
        pytest.skip("not here")
"""


def test_a_rate_that_is_asked_for_decides_the_exit_code(tmp_path: Path) -> None:
    """9 of 10 passed, and one test that left itself out, which is asked for nothing."""
    project = Project(tmp_path / "project", test_gated__py=GATED)
    met = project.pytest("-o", "paraval_fail_under=0.9")
    assert met.returncode == 0, met.stdout + met.stderr
    assert "Gate passed: 90% (9/10), required 90%" in met.stdout
    with project.store.reader(project.last()) as reader:
        report = Report(reader)
        assert report.run.fail_under == 0.9
        missed = judge_gate(report.summary, 0.95)
    assert missed.sentence.startswith("Gate failed: 90% (9/10), required ")
    by_flag = project.pytest("-o", "paraval_fail_under=0.9", "--paraval-fail-under", "0.95")
    assert by_flag.returncode == 1
    assert missed.sentence in by_flag.stdout
    every = judge_gate(replace(report.summary, passed=10, failed=0), 1.0)
    assert every.sentence == "Gate passed: 100% (10/10), required 100%"


SCORED = """
    import pytest

    def test_good(record_score):
        record_score(0.25)
        record_score(0.95, "conf")

    def test_bad(record_score):
        record_score(0.05)
        assert 0

    def test_without():
        pass

    @pytest.mark.parametrize("wrong", [1.5, True, "x", None])
    def test_wrong(record_score, wrong):
        with pytest.raises(ValueError, match="takes a number from 0 to 1"):
            record_score(wrong)
"""


@pytest.mark.parametrize("flags", [(), ("--parallel", "2", "--parallel-progress", "lines")])
def test_the_last_score_of_a_test_is_stored_and_shown(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    project = Project(tmp_path / "project", test_scored__py=SCORED)
    said = project.pytest(*flags, "--junitxml=ends.xml").stdout
    scores = {name: one.result.score for name, one in project.results().items()}
    assert scores.pop("test_good") == 0.95
    assert scores.pop("test_bad") == 0.05
    assert set(scores.values()) == {1.0}
    assert len(scores) == 5
    assert 'name="paraval_score" value="conf=0.95"' in (project.folder / "ends.xml").read_text()
    assert "score" in project.text()
    if flags:
        assert re.search(r"test_good +conf=0.95 ", said), said


def test_a_rate_asked_for_without_a_store_is_refused() -> None:
    """Nobody would look at it."""
    asked = argparse.Namespace(**{dest_of(FAIL_UNDER): "0.9"})
    keys = {key: (words,) for key, words in INI_KEYS}
    config: Any = SimpleNamespace(option=asked, getini=lambda _key: "", rootpath=Path())
    config._parser = SimpleNamespace(_inidict=keys)
    with pytest.raises(pytest.UsageError, match="--paraval-fail-under needs --paraval-store"):
        read_options(config, {})
    asked.paraval_flag_paraval_store = ""
    assert read_options(config, {}).store == Path(".paraval")


def test_the_store_is_the_one_that_the_command_finds(tmp_path: Path) -> None:
    for place in (tmp_path / ".git", tmp_path / ".paraval", tmp_path / "package"):
        place.mkdir()
    asked = argparse.Namespace(**{dest_of("--paraval-store"): ""})
    config: Any = SimpleNamespace(
        option=asked, getini=lambda _key: "", rootpath=tmp_path / "package"
    )
    config._parser = SimpleNamespace(_inidict={key: (words,) for key, words in INI_KEYS})
    assert read_options(config, {}).store == tmp_path / ".paraval"
    elsewhere = {"PARAVAL_STORE": "mine"}
    assert read_options(config, elsewhere).store == tmp_path / "package" / "mine"


@pytest.mark.parametrize("told", ["90", "-0.1", "nan", "most"])
def test_a_rate_that_is_none_is_refused(told: str) -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(), getini=lambda _key: told)
    with pytest.raises(pytest.UsageError, match="a pass rate from 0 to 1; got"):
        fail_under_in(config)


def test_no_complaint_of_the_store_speaks_of_what_only_suites_can_do(tmp_path: Path) -> None:
    locked, broken = sqlite3.OperationalError("locked"), sqlite3.OperationalError("I/O")
    locked.sqlite_errorcode = sqlite3.SQLITE_BUSY
    complaints = [
        *(explained(error, tmp_path) for error in (OSError(errno.ENOSPC, "full"), locked, broken)),
        unusable(tmp_path, OSError(errno.EROFS, "read-only")),
        unreadable(tmp_path, PermissionError(errno.EACCES, "denied")),
    ]
    for complaint in complaints:
        assert "resume" in str(complaint) or "--store" in str(complaint)
        told = for_tests(complaint)
        assert "resume" not in told
        assert "--store" not in told
        assert "hint: " in told


def test_commands_know_a_run_of_tests(tmp_path: Path) -> None:
    """What it is, what was printed, and that nothing goes on with it; every form can be written.
    A suite may have a name of its own, and nothing is recorded where nothing runs."""
    project = Project(
        tmp_path / "project",
        test_few__py="""
            import pytest

            def test_one(): ...

            def test_two():
                print("printed")
                assert False

            def test_three():
                pytest.skip("not here")
        """,
    )
    assert project.pytest("-o", "paraval_suite=mine").returncode == 1
    assert project.pytest("--collect-only").returncode == 0

    def paraval(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "paraval", *words],
            cwd=project.folder,
            env=project.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    (run,) = json.loads(paraval("runs", "--json").stdout)
    assert (run["kind"], run["suite"], run["state"], run["done"]) == ("pytest", "mine", "done", 3)
    logs = paraval("logs", "last", "--case", "*test_two").stdout
    assert "printed\n" in logs
    assert "traceback <==" in logs
    refused = paraval("resume", "last")
    assert refused.returncode == 2
    assert "is a pytest session" in refused.stderr
    outputs = [f"report.{ending}" for ending in ("json", "jsonl", "csv", "md", "junit.xml")]
    written = paraval("report", "--check", *(word for name in outputs for word in ("-o", name)))
    assert written.returncode == 0, written.stderr
    assert all((project.folder / name).stat().st_size for name in outputs)


def test_a_store_that_cannot_be_used_is_said_before_any_test_runs(tmp_path: Path) -> None:
    project = Project(
        tmp_path / "project",
        test_one__py="""
            import pathlib
            def test_one(): pathlib.Path("ran").touch()
        """,
    )
    (project.folder / ".paraval").write_text("a file")
    done = project.pytest()
    assert done.returncode == 4, done.stdout + done.stderr
    assert ".paraval is not a folder" in done.stderr
    assert "choose another folder with --paraval-store-at=FOLDER" in done.stderr
    assert not (project.folder / "ran").exists()
