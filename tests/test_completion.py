"""What a shell completes, how quickly, and how its script is installed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Paraval, WriteSuite

Complete = Callable[..., list[str]]

SUITE = """
    models: {swift: {provider: loopback}, sage: {provider: loopback}}
    cases:
      - {id: capital-peru, input: a, tags: [geo, easy]}
      - {id: capital-japan, input: b, tags: [geo]}
      - {id: sum, input: c}
    matrix: {style: [plain, polite], level: {low: 1, high: 2}}
    target: {chat: {model: swift, prompt: "{input}"}}
"""


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}


@pytest.fixture
def complete(folder: Path, environment: dict[str, str]) -> Complete:
    """The words that bash is offered for the last one of these; paths are `file:` and the word."""

    def run(*words: str) -> list[str]:
        asked = {
            "_PARAVAL_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("paraval", *words)),
            "COMP_CWORD": str(len(words)),
        }
        ended = subprocess.run(
            [sys.executable, "-m", "paraval"],
            cwd=folder,
            env={**environment, **asked},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.stderr == ""
        items = (line.partition(",") for line in ended.stdout.splitlines() if line)
        return [word if kind == "plain" else f"{kind}:{word}" for kind, _, word in items]

    return run


def make_runs(folder: Path, *ids: str) -> None:
    for name in ids:
        (folder / ".paraval" / "runs" / name).mkdir(parents=True)


def test_commands_and_options_are_completed(complete: Complete) -> None:
    assert complete("re") == ["regrade", "report", "resume"]
    assert complete("baseline", "s") == ["set", "show"]
    assert complete("run", "suite.yaml", "--max") == ["--max-drop", "--max-regressed"]
    assert complete("run", "suite.yaml", "--progress", "") == [
        "auto",
        "bar",
        "lines",
        "json",
        "none",
    ]
    assert complete("init", "--template", "p") == ["prompts", "pytest"]
    assert complete("completion", "") == ["install", "bash", "zsh", "fish"]


@pytest.mark.parametrize("before", [("report",), ("resume",), ("logs",), ("race", "--resume")])
def test_runs_are_completed_newest_first(
    complete: Complete, folder: Path, before: tuple[str, ...]
) -> None:
    assert complete(*before, "") == [], "there is no store yet"
    make_runs(folder, "20260101-000000-aaaa", "20260102-000000-bbbb")
    newest_first = ["20260102-000000-bbbb", "20260101-000000-aaaa"]
    assert complete(*before, "") == ["last", "last~1", *newest_first]
    assert complete(*before, "20260101") == ["20260101-000000-aaaa"]


def test_cases_of_logs_are_those_of_the_run_and_suites_are_files(
    complete: Complete, paraval: Paraval, write: WriteSuite, folder: Path
) -> None:
    write("suite.yaml", "cases: [{id: one}, {id: two}]\ntarget: {command: [echo, hi]}\n")
    paraval("run", "suite.yaml", "--progress", "none")
    (folder / "suite.yaml").unlink()
    assert complete("logs", "last", "--case", "o") == ["one"]
    assert complete("diff", "--case", "") == ["one", "two"]
    assert complete("history", "su") == ["file:su"]


def test_a_baseline_may_be_a_run_or_a_file(complete: Complete, folder: Path) -> None:
    make_runs(folder, "20260101-000000-aaaa")
    assert complete("run", "--baseline", "la") == ["last", "file:la"]
    assert complete("compare", "2026") == ["20260101-000000-aaaa", "file:2026"]


def test_cases_tags_models_and_variants_are_those_of_the_suite(
    complete: Complete, write: WriteSuite
) -> None:
    write("mine.yaml", SUITE)
    assert complete("run", "mine.yaml", "--case", "cap") == ["capital-peru", "capital-japan"]
    assert complete("run", "mine.yaml", "--tag", "") == ["geo", "easy"]
    assert complete("plan", "mine.yaml", "--models", "") == ["swift", "sage", "all"]
    assert complete("run", "mine.yaml", "--models", "sage,s") == ["sage,swift"]
    assert complete("run", "mine.yaml", "--variant", "style=") == ["style=plain", "style=polite"]
    assert complete("run", "mine.yaml", "--variant", "l") == ["level=low", "level=high"]
    assert complete("run", "m") == ["file:m"]


def test_without_a_suite_that_of_the_folder_is_taken(complete: Complete, write: WriteSuite) -> None:
    assert complete("run", "--case", "") == []
    write("suite.yaml", SUITE)
    assert complete("run", "--case", "s") == ["sum"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cases.jsonl", '{"id": "one", "tags": ["t"]}\n\n{"id": "two"}\n'),
        ("cases.csv", "id,tags\none,t\ntwo,\n"),
        ("cases.yaml", "[{id: one, tags: [t]}, {id: two}]\n"),
        ("cases.json", '{"cases": [{"id": "one", "tags": ["t"]}, {"id": "two"}]}'),
    ],
)
def test_cases_may_be_in_a_file_of_their_own(
    complete: Complete, write: WriteSuite, folder: Path, name: str, content: str
) -> None:
    (folder / name).write_text(content)
    write("suite.yaml", f"cases: {name}\ntarget: {{command: [echo]}}\n")
    assert complete("run", "suite.yaml", "--case", "") == ["one", "two"]
    assert complete("run", "suite.yaml", "--tag", "") == ["t"]


@pytest.mark.parametrize("content", ["cases: [", "- 1\n", "cases: {python: 'm:f'}", "cases: 7", ""])
def test_a_suite_that_cannot_be_read_is_silence(
    complete: Complete, folder: Path, content: str
) -> None:
    (folder / "suite.yaml").write_text(content)
    assert complete("run", "suite.yaml", "--case", "") == []
    assert complete("run", "suite.yaml", "--models", "x") == []


def test_no_module_of_a_suite_is_imported(
    complete: Complete, write: WriteSuite, folder: Path
) -> None:
    write("mine.py", "from pathlib import Path\nPath('imported').touch()\ndef f(): return []\n")
    write("suite.yaml", "cases: {python: 'mine:f'}\ntarget: {python: 'mine:f'}\n")
    assert complete("run", "suite.yaml", "--case", "") == []
    assert not (folder / "imported").exists()


def test_reports_are_completed_with_their_endings(complete: Complete) -> None:
    assert complete("report", "last", "-o", "") == [
        *("report.html", "report.json", "report.jsonl", "report.csv", "report.md"),
        *("report.junit.xml", "file:"),
    ]
    assert complete("run", "x.yaml", "-o", "out/a.j") == [
        *("out/a.json", "out/a.jsonl", "out/a.junit.xml", "file:out/a.j"),
    ]
    assert complete("race", "-o", "win") == [
        *("win.json", "win.md", "win.txt", "win.patch", "file:win"),
    ]


def test_an_answer_takes_little_time_and_loads_no_command(
    complete: Complete, folder: Path, environment: dict[str, str]
) -> None:
    make_runs(folder, *(f"20260101-{number:06}-aaaa" for number in range(3000)))
    complete("report", "")
    script = (
        "import sys, atexit; from paraval.cli.main import main;"
        " atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    asked = {
        "_PARAVAL_COMPLETE": "zsh_complete",
        "COMP_WORDS": "paraval report ",
        "COMP_CWORD": "2",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**environment, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "20260101-002999-aaaa" in ended.stdout
    loaded = set(ended.stderr.split())
    assert not {"pydantic", "yaml", "psutil", "sqlite3", "paraval.runner.run"} & loaded
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.3, "of CPU time; a busy machine may take longer by the clock"


def test_commands_that_changed_are_described_anew(complete: Complete, folder: Path) -> None:
    complete("re")
    (kept,) = (folder / "cache" / "paraval").glob("completion-*.json")
    written = kept.read_text()
    kept.write_text(written.replace('"state": "', '"state": "another-'))
    assert complete("re") == ["regrade", "report", "resume"]
    assert kept.read_text() == written
    kept.write_text("{")
    assert complete("re") == ["regrade", "report", "resume"]


# ---- installing it


def test_bash_completes_after_the_install(
    paraval: Paraval, folder: Path, environment: dict[str, str]
) -> None:
    home = {**environment, "SHELL": "/bin/bash", "XDG_DATA_HOME": str(folder / "data")}
    (folder / ".bashrc").write_text("export MINE=1")
    ended = paraval("completion", "install", env=home)
    assert ended.returncode == 0, ended.stderr
    assert f"added a line to {folder / '.bashrc'}" in ended.stderr
    assert "To undo, delete" in ended.stderr
    startup = (folder / ".bashrc").read_text()
    mine, line = startup.splitlines()
    assert mine == "export MINE=1"
    assert line.endswith("# paraval completion")
    assert "found its line" in paraval("completion", "install", env=home).stderr
    assert (folder / ".bashrc").read_text() == startup, "only once"

    (folder / "bin").mkdir()
    program = folder / "bin" / "paraval"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m paraval "$@"\n')
    program.chmod(0o755)
    make_runs(folder, "20260101-000000-aaaa")
    script = (
        ". ./.bashrc; COMP_WORDS=(paraval report 2026); COMP_CWORD=2;"
        ' _paraval_completion paraval; echo "${COMPREPLY[@]}"; complete -p paraval'
    )
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    shown = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=folder,
        env={**home, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown[0] == "20260101-000000-aaaa"
    assert "_paraval_completion" in shown[1]


def test_zsh_and_fish_get_what_they_load(
    paraval: Paraval, folder: Path, environment: dict[str, str]
) -> None:
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        environment[variable] = ""
    ended = paraval("completion", "install", env={**environment, "SHELL": "/usr/bin/zsh"})
    assert ended.returncode == 0, ended.stderr
    line = (folder / ".zshrc").read_text()
    script = folder / ".local/share/paraval/completion.zsh"
    assert "compinit" in line
    assert str(script) in line
    assert script.read_text().startswith("#compdef paraval")
    ended = paraval("completion", "install", "--shell", "fish", env=environment)
    script = folder / ".config/fish/completions/paraval.fish"
    assert f"wrote {script}" in ended.stderr
    assert "complete --no-files --command paraval" in script.read_text()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_name_of_a_shell_prints_its_script(paraval: Paraval, shell: str) -> None:
    ended = paraval("completion", shell)
    assert ended.returncode == 0
    assert f"_PARAVAL_COMPLETE={shell}_complete" in ended.stdout


def test_a_shell_that_is_not_supported_is_named(paraval: Paraval) -> None:
    ended = paraval("completion", "install", env={"SHELL": "/bin/tcsh"})
    assert ended.returncode == 2
    assert "'tcsh' is not supported" in ended.stderr
    assert "--shell bash|zsh|fish" in ended.stderr
