"""Isolation from end to end: real runs of programs that would like to reach out of their place."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paraval.processes.sandbox import why_no_sandbox
from tests.conftest import Paraval
from tests.repositories import make_repository, run_git

needs_sandbox = pytest.mark.skipif(
    why_no_sandbox() is not None and "CI" not in os.environ, reason="bubblewrap is not to be had"
)


@pytest.fixture
def repository(folder: Path) -> Path:
    repository = folder / "repository"
    (repository / "src").mkdir(parents=True)
    (repository / "src" / "a.py").write_text("x = 1\n")
    make_repository(repository)
    return repository


@pytest.fixture
def scratch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = folder / "scratch"
    monkeypatch.setenv("PARAVAL_SCRATCH", str(place))
    return place


def suite_of(script: str, **more: Any) -> dict[str, Any]:
    """One case, whose command is a script of the shell in a worktree."""
    return {
        "cases": [{"id": "only", "input": ""}],
        "target": {"command": ["bash", "-c", script], "timeout": 30},
        "workspace": {"git": "repository"},
        **more,
    }


def run(paraval: Paraval, suite: dict[str, Any], *flags: str) -> dict[str, Any]:
    """The report of a run, as JSON."""
    Path("suite.json").write_text(json.dumps(suite))
    ended = paraval("run", "suite.json", "-o", "report.json", *flags)
    assert ended.returncode in (0, 1, 3), ended.stderr
    report: dict[str, Any] = json.loads(Path("report.json").read_text())
    report["stderr"] = ended.stderr
    return report


def only_trial(report: dict[str, Any]) -> dict[str, Any]:
    (trial,) = report["trials"]
    return dict(trial)


@pytest.mark.usefixtures("repository")
def test_nothing_is_left_in_the_scratch_place_whatever_was_left_there(
    paraval: Paraval, scratch: Path
) -> None:
    script = (
        "mkdir -p deep/er; touch $HOME/x $TMPDIR/y; chmod 000 deep; (setsid sleep 60 &); echo ok"
    )
    trial = only_trial(run(paraval, suite_of(script)))
    assert trial["outcome"] == "passed"
    assert list(scratch.iterdir()) == []


@pytest.mark.usefixtures("repository", "scratch")
def test_an_attempt_sees_nothing_of_the_one_before(paraval: Paraval) -> None:
    script = "ls -A $HOME $TMPDIR; git status --short; git stash list; git branch -q x; echo y > z"
    suite = suite_of(script, repeats=6)
    suite["limits"] = {"parallel": 2}
    outputs = {trial["output"] for trial in run(paraval, suite)["trials"]}
    assert len(outputs) <= 6
    assert all("z" not in text.split("\n") for text in outputs)
    assert all("already exists" not in text for text in outputs)


@needs_sandbox
@pytest.mark.usefixtures("repository", "scratch")
@pytest.mark.parametrize("log", ["stdout.log", "stderr.log", "changes.patch", "grader-1.stdout"])
def test_a_sandboxed_attempt_writes_nowhere_through_its_own_logs(
    paraval: Paraval, folder: Path, log: str
) -> None:
    victim = folder / "victim"
    victim.write_text("mine")
    script = (
        f"ln -sf {victim} $PARAVAL_FOLDER/{log}; ln -sf {victim} $PARAVAL_FOLDER/../{log};"
        " sleep 0.1; echo yours; echo yours >&2; echo yours > src/a.py"
    )
    suite = suite_of(script, graders=[{"command": ["cat", "src/a.py"]}])
    suite["workspace"]["sandbox"] = True
    assert only_trial(run(paraval, suite))["outcome"] == "passed"
    assert victim.read_text() == "mine"


@needs_sandbox
@pytest.mark.usefixtures("repository", "scratch")
def test_a_sandbox_bounds_what_is_written_and_hides_the_store(
    paraval: Paraval, folder: Path
) -> None:
    script = (
        f"touch {folder}/out 2>/dev/null && echo wrote; ls -A {folder}/.paraval;"
        " echo here > src/b.py; touch $HOME/a $TMPDIR/b $PARAVAL_FOLDER/c; git status --short;"
        " echo 1 > /proc/sys/vm/swappiness 2>/dev/null && echo tuned; true"
    )
    suite = suite_of(script)
    suite["workspace"]["sandbox"] = True
    trial = only_trial(run(paraval, suite))
    assert trial["outcome"] == "passed", trial
    lines = trial["output"].split("\n")
    assert "wrote" not in lines
    assert "tuned" not in lines
    assert "index.db" not in lines
    assert "?? src/b.py" in lines


@contextmanager
def listening() -> Iterator[str]:
    """A server on a socket in the system's own temporary folder, as other programs have them."""
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as server:
        path = f"{place}/socket"
        server.bind(path)
        server.listen()
        greeter = threading.Thread(target=_greet, args=(server,))
        greeter.start()
        try:
            yield path
        finally:
            server.shutdown(socket.SHUT_RDWR)
            greeter.join()


def _greet(server: socket.socket) -> None:
    try:
        while True:
            with server.accept()[0] as connection:
                connection.sendall(b"hello")
    except OSError:
        return


@needs_sandbox
@pytest.mark.usefixtures("repository", "scratch")
def test_a_sandboxed_grader_reaches_no_network_and_no_socket_of_others(paraval: Paraval) -> None:
    with listening() as path:
        ask = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); s.recv(9)"
        suite = suite_of("echo ok", graders=[{"command": [sys.executable, "-c", ask]}])
        assert only_trial(run(paraval, suite))["outcome"] == "passed"
        suite["workspace"]["sandbox"] = True
        bounded = only_trial(run(paraval, suite))
    assert bounded["outcome"] != "passed"


# ---- what lies beside the suite


@pytest.fixture
def hidden(folder: Path) -> Path:
    """Tests that attempts must not see, and where they might look for them."""
    tests = folder / "hidden"
    tests.mkdir()
    (tests / "check.py").write_text("import sys; sys.exit('x = 2' not in open('src/a.py').read())")
    return tests


def sandboxed_suite(command: list[str], **more: Any) -> dict[str, Any]:
    suite = suite_of("", **more)
    suite["target"]["command"] = command
    suite["workspace"]["sandbox"] = True
    return suite


@needs_sandbox
@pytest.mark.usefixtures("repository", "scratch", "hidden")
def test_an_attempt_cannot_read_what_lies_beside_the_suite_and_its_graders_can(
    paraval: Paraval, folder: Path
) -> None:
    script = (
        f"cat {folder}/hidden/check.py {folder}/suite.json; ls -R $PARAVAL_FOLDER/..;"
        " cat ${{PARAVAL_FOLDER%%/.paraval/*}}/suite.json; echo $PARAVAL_FOLDER;"
        " echo x = 2 > src/a.py; git log --oneline"
    )
    graders = [{"command": [sys.executable, "{suite}/hidden/check.py"]}]
    trial = only_trial(run(paraval, sandboxed_suite(["bash", "-c", script], graders=graders)))
    assert trial["outcome"] == "passed", trial
    assert "sys.exit" not in trial["output"]
    assert "cases" not in trial["output"]
    assert str(folder) not in trial["output"]


@needs_sandbox
@pytest.mark.usefixtures("repository", "scratch")
def test_what_a_sandboxed_attempt_writes_to_its_folder_is_kept(
    paraval: Paraval, folder: Path
) -> None:
    suite = sandboxed_suite(["sh", "-c", "echo one > {folder}/answer; echo 2 > $PARAVAL_FOLDER/b"])
    suite["target"]["output"] = "{folder}/answer"
    trial = only_trial(run(paraval, suite))
    assert (trial["outcome"], trial["output"]) == ("passed", "one\n"), trial
    assert [path.read_text() for path in (folder / ".paraval").rglob("files/b")] == ["2\n"]


@needs_sandbox
@pytest.mark.usefixtures("repository", "scratch", "hidden")
@pytest.mark.parametrize("shell", [False, True])
def test_a_sandboxed_attempt_sees_what_its_command_names_beside_the_suite(
    paraval: Paraval, folder: Path, shell: bool
) -> None:
    """A script in a folder of its own with that folder; one right beside the suite by itself."""
    (folder / "agent").mkdir()
    (folder / "agent" / "main.py").write_text("import part\n")
    (folder / "agent" / "part.py").write_text("import sys; print(open(sys.argv[1]).read())\n")
    (folder / "notes.txt").write_text("by name")
    (folder / "words.txt").write_text("by variable")
    command: Any = ["{python}", "{suite}/agent/main.py", "{input}"]
    if shell:
        command = (
            'ls $(dirname "$suite/notes.txt"); cat "$suite/notes.txt" $WORDS;'
            ' $python "$suite/agent/main.py" "$input"'
        )
    suite = sandboxed_suite(command)
    suite["target"] |= {"shell": shell, "env": {"WORDS": "{suite}/words.txt"}}
    suite["cases"] = [{"id": "only", "input": str(folder / "notes.txt")}]
    trial = only_trial(run(paraval, suite))
    expected = "by name\n"
    if shell:
        expected = "agent\nnotes.txt\nrepository\nwords.txt\nby nameby variableby name\n"
        trial["output"] = trial["output"].replace("scratch\n", "")
    assert (trial["outcome"], trial["output"]) == ("passed", expected), trial


@needs_sandbox
@pytest.mark.usefixtures("repository", "scratch", "hidden")
def test_a_sandboxed_attempt_reads_what_the_suite_says_is_readable(
    paraval: Paraval, folder: Path
) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "a.txt").write_text("given")
    script = f"cat {folder}/data/a.txt; ls {folder}/hidden; true"
    suite = sandboxed_suite(["sh", "-c", script])
    suite["workspace"]["readable"] = ["data"]
    trial = only_trial(run(paraval, suite))
    assert (trial["outcome"], trial["output"]) == ("passed", "given"), trial


@needs_sandbox
@pytest.mark.usefixtures("repository", "scratch")
def test_a_sandbox_for_a_command_that_names_the_whole_folder_of_the_suite_is_refused(
    paraval: Paraval,
) -> None:
    Path("suite.json").write_text(json.dumps(sandboxed_suite(["ls", "{suite}"])))
    ended = paraval("run", "suite.json")
    assert ended.returncode == 2
    assert "names the suite's whole folder" in ended.stderr
    assert "readable" in ended.stderr


@needs_sandbox
@pytest.mark.usefixtures("scratch")
def test_a_suite_in_its_repository_is_hidden_and_git_works_in_the_sandbox(
    paraval: Paraval, folder: Path
) -> None:
    """As most suites are; the repository borrows objects itself, as clones for CI do."""
    (folder / "origin").mkdir()
    (folder / "origin" / "a.py").write_text("x = 1\n")
    make_repository(folder / "origin")
    run_git(folder, "clone", "-q", "--shared", "origin", "clone")
    (folder / "clone" / "answers.txt").write_text("forty-two")
    script = f"cat {folder}/clone/answers.txt; git log --oneline | wc -l; cat a.py"
    suite = sandboxed_suite(["bash", "-c", script], workspace={"git": "."})
    (folder / "clone" / "suite.json").write_text(json.dumps(suite))
    ended = paraval("run", "clone/suite.json", "-o", "report.json")
    trial = only_trial(json.loads(Path("report.json").read_text()))
    assert (trial["outcome"], trial["output"]) == ("passed", "1\nx = 1\n"), ended.stderr


@pytest.mark.usefixtures("repository", "scratch", "hidden")
def test_without_a_sandbox_plan_and_run_say_once_that_hidden_tests_can_be_read(
    paraval: Paraval,
) -> None:
    graders = [{"command": [sys.executable, "{suite}/hidden/check.py"]}]
    suite = suite_of("echo x = 2 > src/a.py", graders=graders, repeats=3)
    told = "attempts can read the files beside the suite"
    assert run(paraval, suite)["stderr"].count(told) == 1
    planned = paraval("plan", "suite.json")
    assert planned.stdout.replace("\n", " ").count(told) == 1
    assert "sandbox: true" in planned.stdout.replace("\n", " ")


@pytest.mark.usefixtures("repository", "scratch", "hidden")
@pytest.mark.parametrize("graders", [[], [{"command": ["true"]}], [{"contains": "x"}]])
def test_a_suite_that_hides_no_tests_is_told_nothing_of_them(
    paraval: Paraval, graders: list[Any]
) -> None:
    assert "beside the suite" not in run(paraval, suite_of("echo x", graders=graders))["stderr"]
    assert "beside the suite" not in paraval("plan", "suite.json").stdout


@pytest.mark.usefixtures("repository", "scratch")
def test_a_sandbox_and_the_users_own_home_are_not_to_be_had_together(paraval: Paraval) -> None:
    suite = suite_of("true")
    suite["workspace"]["sandbox"] = True
    suite["target"]["home"] = "mine"
    Path("suite.json").write_text(json.dumps(suite))
    ended = paraval("run", "suite.json")
    assert ended.returncode == 2
    assert "sandbox" in ended.stderr


@pytest.mark.usefixtures("repository", "scratch")
@pytest.mark.parametrize("log", ["stdout.log", "stderr.log"])
def test_a_pipe_in_the_place_of_a_log_holds_nobody_up(paraval: Paraval, log: str) -> None:
    place = "$PARAVAL_FOLDER/.."
    script = f"echo real; echo real >&2; rm -f {place}/{log}; mkfifo {place}/{log}; echo more >&2"
    trial = only_trial(run(paraval, suite_of(script)))
    assert trial["outcome"] in ("passed", "invalid_output", "infra_error")


@pytest.mark.usefixtures("repository", "scratch")
def test_a_setup_that_fails_ends_the_run_once_and_with_its_last_words(paraval: Paraval) -> None:
    suite = suite_of("true", repeats=30)
    suite["workspace"]["setup"] = ["sh", "-c", "echo there is no rule for deps >&2; exit 2"]
    suite["budget"] = {"usd": 5, "per_attempt_usd": 1}
    report = run(paraval, suite)
    assert report["stderr"].count("Stopped:") == 1
    assert "there is no rule for deps" in report["stderr"]
    reasons = [trial["error"]["message"] for trial in report["trials"] if trial["error"]]
    assert not any("budget" in reason for reason in reasons)


def test_agents_without_a_login_end_the_run_early_with_what_to_do(
    paraval: Paraval, folder: Path
) -> None:
    """Not sixty times the same failure."""
    claude = folder / "bin" / "claude"
    claude.parent.mkdir()
    claude.write_text(
        '#!/bin/sh\necho started >> "$STARTS"\n'
        'echo \'{"type":"result","subtype":"success","is_error":true,'
        '"result":"Not logged in · Please run /login"}\'\nexit 1\n'
    )
    claude.chmod(0o755)
    suite = {
        "cases": [{"id": f"case-{number}", "input": "hello"} for number in range(20)],
        "target": {
            "agent": "claude-code",
            "program": [str(claude)],
            "env": {"STARTS": str(folder / "starts")},
        },
        "limits": {"parallel": 2},
    }
    report = run(paraval, suite)
    assert "ANTHROPIC_API_KEY" in report["stderr"]
    assert "home: mine" in report["stderr"]
    assert len((folder / "starts").read_text().splitlines()) <= 4
    assert {trial["outcome"] for trial in report["trials"]} == {"skipped"}


@pytest.mark.usefixtures("repository", "scratch")
def test_an_agents_key_is_in_nothing_that_is_kept_of_it(paraval: Paraval, folder: Path) -> None:
    key = "sk-ant-0123456789abcdefghijklmnop"
    claude = folder / "claude"
    claude.write_text(
        '#!/bin/sh\necho "$ANTHROPIC_API_KEY" > leak.txt\necho "$ANTHROPIC_API_KEY" >&2\n'
        'echo "{\\"type\\":\\"result\\",\\"subtype\\":\\"success\\",\\"is_error\\":false,'
        '\\"result\\":\\"$ANTHROPIC_API_KEY\\"}"\n'
    )
    claude.chmod(0o755)
    suite = {
        "cases": [{"id": "only", "input": "hello"}],
        "target": {"agent": "claude-code", "program": [str(claude)]},
        "workspace": {"git": "repository"},
    }
    Path("suite.json").write_text(json.dumps(suite))
    ended = paraval("run", "suite.json", "-o", "report.json", env={"ANTHROPIC_API_KEY": key})
    assert ended.returncode == 0, ended.stderr
    assert "leak.txt" in paraval("diff", "last", "--case", "only").stdout
    holders = [
        path
        for path in (folder / ".paraval").rglob("*")
        if path.is_file() and key.encode() in path.read_bytes()
    ]
    assert holders == []
    assert key not in Path("report.json").read_text() + ended.stdout + ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such call")
@pytest.mark.parametrize("graders", [[], [{"command": ["true"]}]])
def test_the_engine_is_unreadable_as_soon_as_a_run_starts_any_program(
    paraval: Paraval, folder: Path, graders: list[Any]
) -> None:
    """Also where only graders are programs: these are the runs whose engine holds keys."""
    (folder / "look.py").write_text(
        "import ctypes\ndef is_dumpable(case):\n    return str(ctypes.CDLL(None).prctl(3, 0))\n"
    )
    suite = {"cases": [{"id": "only"}], "target": {"python": "look:is_dumpable"}}
    report = run(paraval, {**suite, "graders": graders})
    assert only_trial(report)["output"] == ("0" if graders else "1")
