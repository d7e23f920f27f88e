"""Containers from end to end: real runs in containers of podman, with a tiny image of busybox."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import SuiteError
from paraval.plan.suite import Suite
from tests.conftest import Paraval
from tests.containers_kit import engine, make_image, needs_containers
from tests.repositories import commit_all, make_repository


@pytest.fixture(scope="session")
def image() -> str:
    return make_image()


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARAVAL_SCRATCH", str(tmp_path / "scratch"))


@pytest.fixture
def repository(folder: Path) -> Path:
    repository = folder / "repository"
    repository.mkdir()
    (repository / "a.txt").write_text("one\n")
    make_repository(repository)
    return repository


def suite_of(script: str, container: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One case, whose command is a script of the image's shell in a worktree."""
    return {
        "cases": [{"id": "only", "input": "x"}],
        "target": {"command": ["sh", "-c", script], "timeout": 30},
        "workspace": {
            "git": "repository",
            "container": {"image": "localhost/paraval-test:tiny", **(container or {})},
        },
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


def mine() -> list[str]:
    """Containers that this test's runs started and did not remove."""
    words = ("ps", "-a", "--filter", "label=paraval", "--format", "{{.Names}} {{.Labels}}")
    listed = engine().call(*words).stdout.decode().splitlines()
    return [line.split()[0] for line in listed if os.environ["PARAVAL_SCRATCH"] in line]


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_an_attempt_and_its_graders_run_in_containers_which_are_gone_afterwards(
    paraval: Paraval, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_SECRET", "s3cret-value")
    (folder / "check.sh").write_text(
        "test ! -e /outside && grep two a.txt && ! pgrep -f 'sleep 99'\n"
    )
    script = (
        "cat prepared; echo two > a.txt; echo kept > /outside; (sleep 99 &) ;"
        f' test ! -e "{folder}/check.sh" && test ! -e "{folder}/suite.json" || exit 5;'
        ' echo "$PARAVAL_CASE:$HOME:$(pwd)"; echo "$API_SECRET" > "$PARAVAL_FOLDER/secret"'
    )
    suite = suite_of(script, graders=[{"contains": "x$(y) ; 'z"}])
    suite["target"]["pass_env"] = ["API_SECRET"]
    suite["cases"] = [{"id": "x$(y) ; 'z", "input": "x"}]
    suite["workspace"]["setup"] = ["sh", "-c", "echo prepared in $(cat /work/*) > prepared"]
    (folder / "repository" / ".gitignore").write_text("prepared\n")
    commit_all(folder / "repository")
    suite["graders"].append({"command": ["sh", "{suite}/check.sh"]})
    trial = only_trial(run(paraval, suite))
    assert trial["outcome"] == "passed", json.dumps(trial)
    assert trial["output"].startswith("prepared in image\n")
    # The home is the image's own.
    assert f":{os.environ['HOME']}:" not in trial["output"]
    (secret,) = folder.rglob("secret")
    assert "s3cret" not in secret.read_text()
    assert len(trial["change"]["files"]) == 1
    assert (folder / "repository" / "a.txt").read_text() == "one\n"
    ended = paraval("regrade", "last")
    assert ended.returncode == 0, ended.stdout
    assert mine() == []


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_an_attempt_cannot_change_what_grades_it(paraval: Paraval, folder: Path) -> None:
    """It puts a link where a grader's script will be, leaves a process that writes the answer
    later, and replaces the shell; so does what a grader runs."""
    victim = folder / "victim"
    victim.write_text("of the user\n")
    (folder / "agent.sh").write_text(
        f"ln -sf {victim} {folder}/check.sh; echo exit 0 > {folder}/check.sh;"
        " (trap '' TERM HUP; while :; do echo right > late.txt; sleep 0.1; done) > /dev/null 2>&1 &"
        " rm -f /bin/sh; printf '#!/bin/ash\\nexit 0\\n' > /bin/sh; chmod +x /bin/sh"
    )
    (folder / "check.sh").write_text("rm -f late.txt; sleep 0.5; grep right late.txt\n")
    suite = suite_of("", {"path": "/testbed"})
    suite["target"]["command"] = ["ash", "{suite}/agent.sh"]
    suite["graders"] = [
        {"command": ["ash", "-c", "rm /bin/sh; echo '#!/bin/ash' > /bin/sh; chmod +x /bin/sh"]},
        {"command": ["/bin/sh", "{suite}/check.sh"]},
    ]
    trial = only_trial(run(paraval, suite))
    assert [grade["passed"] for grade in trial["grades"]] == [True, False], trial
    assert victim.read_text() == "of the user\n"
    # Without a worktree, the container is what is graded, but nothing runs there any more.
    del suite["workspace"]["git"]
    script = (folder / "agent.sh").read_text().partition(" rm -f /bin/sh")[0]
    suite["target"]["command"] = ["sh", "-c", f"{script} touch /mark"]
    suite["workspace"]["container"].pop("path")
    suite["graders"] = [
        {"command": ["test", "-e", "/mark"]},
        {"command": ["sh", "{suite}/check.sh"]},
    ]
    trial = only_trial(run(paraval, suite))
    assert [grade["passed"] for grade in trial["grades"]] == [True, False], trial
    assert victim.read_text() == "of the user\n"
    assert mine() == []


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_the_network_is_this_machines_or_none(paraval: Paraval) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"nc -w 5 127.0.0.1 {port} < /dev/null && echo reached || echo refused"
        thread = threading.Thread(target=lambda: server.accept()[0].close())  # noqa: PLW0108 - later
        thread.start()
        online = only_trial(run(paraval, suite_of(script)))
        offline = only_trial(run(paraval, suite_of(script, {"network": False})))
        thread.join()
    assert online["output"] == "reached\n"
    assert offline["output"] == "refused\n"


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_what_exceeds_the_memory_of_its_container_is_killed_and_the_reason_is_reported(
    paraval: Paraval,
) -> None:
    script = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo done"
    trial = only_trial(run(paraval, suite_of(script, {"memory": "32MB", "cpus": 0.5})))
    assert trial["outcome"] == "crashed"
    assert "killed" in trial["error"]["message"]
    assert "container.memory is 32 MB" in trial["error"]["message"]


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_a_timeout_ends_what_runs_in_the_container(paraval: Paraval, folder: Path) -> None:
    beat = folder / "beat"
    beat.mkdir()
    script = f"(while :; do date > {beat}/b; sleep 0.1; done) & sleep 60"
    suite = suite_of(script)
    suite["target"].update(timeout=1.5, grace=0.2)
    suite["workspace"]["readable"] = ["beat"]
    # `readable` is mounted without the right to write: the loop fails, the sleep goes on.
    trial = only_trial(run(paraval, suite))
    assert trial["outcome"] == "timeout"
    assert list(beat.iterdir()) == []
    assert mine() == []


@pytest.mark.usefixtures("image")
@needs_containers
def test_without_git_or_folder_a_case_starts_in_its_own_image_and_hidden_tests_come_later(
    paraval: Paraval, folder: Path
) -> None:
    (folder / "tests").mkdir()
    (folder / "tests" / "check.sh").write_text('test -e made && test "$(pwd)" = /work\n')
    (folder / "cases.jsonl").write_text(
        '{"id": "a", "input": {"image": "localhost/paraval-test:tiny"}}\n'
        '{"id": "b", "input": {"image": "127.0.0.1:9/no/such:image"}}\n'
    )
    suite = suite_of(
        'test ! -e tests && pwd && cat of-the-image && echo "{workspace}" && touch made'
    )
    suite["cases"] = "cases.jsonl"
    suite["workspace"] = {"container": {"image": "{input.image}"}}
    suite["hidden"] = ["tests/"]
    suite["graders"] = [{"command": ["sh", "tests/check.sh"]}]
    suite["retry"] = {"attempts": 1}
    report = run(paraval, suite)
    good, bad = report["trials"]
    assert good["outcome"] == "passed", json.dumps(good)
    assert good["output"] == "/work\nimage\n/work\n"
    # An image that cannot be pulled is an error of the setup, for its case only.
    assert bad["outcome"] == "infra_error"
    assert "podman cannot provide 127.0.0.1:9/no/such:image" in bad["error"]["message"]
    assert "Pulling 127.0.0.1:9/no/such:image with podman." in report["stderr"]


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_an_agent_is_the_images_own_program_at_the_path_that_the_suite_names(
    paraval: Paraval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-not-a-key")
    suite = suite_of("", {"path": "/testbed"})
    suite["target"] = {"agent": "claude-code", "prompt": "Fix {workspace}", "timeout": 30}
    suite["graders"] = [{"command": ["sh", "-c", "pwd | grep -x /testbed && cat by-claude.txt"]}]
    trial = only_trial(run(paraval, suite))
    assert trial["outcome"] == "passed", json.dumps(trial)
    assert len(trial["change"]["files"]) == 1


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_twenty_attempts_four_in_parallel_leave_no_container(paraval: Paraval) -> None:
    suite = suite_of('echo "$PARAVAL_CASE"; test ! -e /mark; touch /mark')
    suite["cases"] = [{"id": f"c{number}", "input": ""} for number in range(20)]
    report = run(paraval, suite, "-j", "4")
    assert {trial["outcome"] for trial in report["trials"]} == {"passed"}
    assert mine() == []


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_a_resume_after_kill_9_removes_the_containers_that_were_left(
    paraval: Paraval, folder: Path
) -> None:
    suite = suite_of("echo ok; test -e /tmp/paraval-folder/../nothing || sleep 1.5")
    suite["cases"] = [{"id": name, "input": ""} for name in ("a", "b")]
    (folder / "suite.json").write_text(json.dumps(suite))
    argv = [sys.executable, "-m", "paraval", "run", "suite.json", "-j", "2"]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        until = time.monotonic() + 30
        while not mine() and time.monotonic() < until:
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
    left = mine()
    assert left
    ended = paraval(
        "resume",
    )
    assert ended.returncode == 0, ended.stderr
    assert "that a killed run had left" in ended.stderr
    assert mine() == []


@pytest.mark.usefixtures("image")
@needs_containers
def test_an_image_is_built_once_for_the_contents_of_its_folder(
    paraval: Paraval, folder: Path
) -> None:
    place = folder / "box"
    place.mkdir()
    mark = f"made-{time.time_ns()}"
    (place / "mark").write_text(mark)
    (place / "Dockerfile").write_text(
        "FROM localhost/paraval-test:tiny\nCOPY mark /mark\nWORKDIR /tmp\n"
    )
    suite = suite_of("cat /mark; pwd")
    suite["workspace"] = {"container": {"build": "box"}}
    suite["repeats"] = 2
    report = run(paraval, suite)
    try:
        assert report["trials"][0]["output"] == f"{mark}/tmp\n"
        assert report["stderr"].count("Building the image of") == 1
    finally:
        listed = engine().call("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.decode()
        built = [name for name in listed.split() if "paraval-build" in name]
        engine().call("rmi", "-f", *built)


def test_a_suite_is_refused_if_its_engine_is_not_here_and_doctor_shows_it(
    paraval: Paraval, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    suite = {
        "cases": [{"id": "a"}],
        "target": {"command": ["sh"]},
        "workspace": {"container": {"image": "tiny", "engine": "docker"}},
    }
    (folder / "suite.json").write_text(json.dumps(suite))
    ended = paraval("run", "suite.json")
    assert ended.returncode == 2
    assert "no container engine works here (docker: not installed)" in ended.stderr
    assert not (folder / ".paraval" / "runs").exists()
    shown = paraval("doctor", "suite.json")
    assert "docker: not installed" in shown.stdout


@pytest.mark.parametrize(
    ("workspace", "message"),
    [
        ({"container": {}}, "has neither image nor build"),
        ({"container": {"image": "-v/:/x"}}, "is not the name of an image"),
        ({"container": {"image": "a", "path": "work"}}, "must be an absolute path"),
        ({"container": {"image": "a"}, "sandbox": True}, "a container is a sandbox already"),
        ({"container": {"image": "a"}, "setup": ["true"]}, "put it into the image"),
        ({"container": {"build": "nowhere"}}, "no such folder"),
        ({"container": {"image": "a", "memori": 1}}, "memori"),
    ],
)
def test_mistakes_in_a_container_are_reported_at_their_key(
    folder: Path, workspace: dict[str, Any], message: str
) -> None:
    suite = {"cases": [{"id": "a"}], "target": {"command": ["sh"]}, "workspace": workspace}
    (folder / "suite.json").write_text(json.dumps(suite))
    with pytest.raises(SuiteError, match=message):
        Suite.load(folder / "suite.json")


def test_the_programs_of_a_container_are_not_looked_for_on_this_machine(folder: Path) -> None:
    suite: dict[str, Any] = {
        "cases": [{"id": "a"}],
        "target": {"command": ["only-in-the-image"]},
        "graders": [{"command": ["/opt/only-there"]}],
        "workspace": {"container": {"image": "a"}},
    }
    (folder / "suite.json").write_text(json.dumps(suite))
    Suite.load(folder / "suite.json")
    suite["target"]["command"] = ["{python}", "x.py"]
    (folder / "suite.json").write_text(json.dumps(suite))
    with pytest.raises(SuiteError, match="write the container's, such as python3"):
        Suite.load(folder / "suite.json")


@pytest.mark.usefixtures("repository", "image")
@needs_containers
def test_hidden_files_are_in_a_container_only_when_its_attempt_is_graded(
    paraval: Paraval, folder: Path
) -> None:
    """In a mounted worktree, and in the image's own folder."""
    (folder / "tests").mkdir()
    (folder / "tests" / "check.sh").write_text("# canary\ngrep done answer.txt\n")
    script = (
        f"cat > /dev/null; cat {folder}/tests/* tests/*; grep -r canary /proc/mounts {folder};"
        " for f in $(cat .git/objects/info/alternates); do test -d $f && echo borrowed; done;"
        " env | grep tests; mkdir -p tests; echo exit 0 > tests/check.sh; echo $A > answer.txt; ls"
    )
    suite = suite_of(script, {"path": "/testbed"}, graders=[{"command": ["sh", "tests/check.sh"]}])
    suite["target"]["env"] = {"A": "{input}"}
    suite["hidden"] = ["tests/"]
    suite["cases"] = [{"id": "good", "input": "done"}, {"id": "bad", "input": "nothing"}]
    mounted = run(paraval, suite)
    del suite["workspace"]["git"], suite["workspace"]["container"]["path"]
    own = run(paraval, suite)
    for report in (mounted, own):
        assert [it["outcome"] for it in report["trials"]] == ["passed", "failed"], report["trials"]
        assert "canary" not in json.dumps([it["output"] for it in report["trials"]])
        assert "can read the hidden files" not in report["stderr"]
    # Git works in it: what the worktree borrows is there.
    assert all("borrowed" in trial["output"] for trial in mounted["trials"])
    flagged = [trial["change"]["flagged"] for trial in mounted["trials"]]
    assert flagged == [["added tests/check.sh: a hidden file takes its place"]] * 2
