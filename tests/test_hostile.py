"""Targets that misbehave: floods, garbage, escape codes. Bounded memory and an honest outcome."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import paraval as library
from tests.conftest import Paraval, WriteSuite

GIGABYTE = 1 << 30


def suite_of(write: WriteSuite, command: str) -> Path:
    return write(
        "suite.yaml",
        f"""
        cases: [{{id: only, expect: hello}}]
        target: {{shell: true, command: {json.dumps(command)}, timeout: 100}}
        graders: [contains]
        """,
    )


@pytest.mark.parametrize(
    "flood",
    [
        f"head -c {GIGABYTE} /dev/zero",
        f"yes | head -c {GIGABYTE // 4}",
        "head -c 100000000 /dev/zero | tr '\\0' x",
    ],
    ids=["a gigabyte of NUL", "many lines", "one line of 100 MB"],
)
def test_a_flood_is_invalid_output_and_the_engine_does_not_grow(
    write: WriteSuite, folder: Path, flood: str
) -> None:
    suite_of(write, flood)
    script = write(
        "measure.py",
        """
        import json, resource
        import paraval
        paraval.run(paraval.Suite(cases=[paraval.Case(id="a")], target={"command": ["true"]}))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        report = paraval.run("suite.yaml")
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        (trial,) = report.trials
        print(json.dumps([trial.outcome.value, trial.result.error.message, after - before]))
        """,
    )
    ended = subprocess.run(
        [sys.executable, script], cwd=folder, capture_output=True, text=True, check=True
    )
    outcome, message, growth_kb = json.loads(ended.stdout)
    assert outcome == "invalid_output"
    assert "bytes" in message
    assert growth_kb < 64 * 1024
    logs = [path.stat().st_size for path in folder.rglob("stdout.log")]
    assert max(logs) < 20 << 20


@pytest.mark.parametrize(
    ("printed", "outcome"),
    [
        (r"hello \0 there", "passed"),
        (r"hello \377\376", "passed"),
        (r"hello \033[31mred\033[0m \033]0;title\007", "passed"),
        (r"hello \342\200\256 reversed", "passed"),
        (r"\355\240\200 hello", "passed"),
    ],
    ids=["NUL", "invalid UTF-8", "ANSI and OSC", "bidi override", "lone surrogate"],
)
def test_odd_bytes_are_judged_stored_and_shown_safely(
    write: WriteSuite, folder: Path, paraval: Paraval, printed: str, outcome: str
) -> None:
    suite_of(write, f"printf '{printed.replace('%', '%%')}'")
    files = ["r.json", "r.jsonl", "r.csv", "r.md", "r.junit.xml"]
    ended = paraval("run", "suite.yaml", *(word for name in files for word in ("-o", name)))
    report = json.loads((folder / "r.json").read_text())
    assert report["trials"][0]["outcome"] == outcome, ended.stderr
    assert "\x1b" not in ended.stdout + ended.stderr + (folder / "r.md").read_text()
    (log,) = folder.rglob("stdout.log")
    raw = subprocess.run(["printf", printed], capture_output=True, check=True).stdout
    assert log.read_bytes() == raw


def test_error_messages_cannot_act_on_the_terminal(
    write: WriteSuite, folder: Path, paraval: Paraval
) -> None:
    suite_of(write, r"printf '\033[2J\033]0;owned\007' >&2; exit 1")
    ended = paraval("run", "suite.yaml", "--progress", "lines")
    assert ended.returncode == 3
    assert "\x1b" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "suite",
    [
        'cases: "a\\e]0;owned\\a.jsonl"\ntarget: {command: [echo]}\n',
        'cases: [{id: a}]\ntarget: {command: [echo], cwd: "\\e]0;owned\\a"}\n',
        'cases: [{id: a}]\ntarget: {command: [echo]}\nworkspace: {git: ., ref: "\\e]0;owned\\a"}\n',
        'cases: [{id: a}]\ntarget: {command: [echo]}\n"\\e]0;owned\\a": 1\n',
    ],
    ids=["case file", "folder", "ref", "key"],
)
def test_names_in_a_suite_cannot_act_on_the_terminal_by_the_errors_about_them(
    write: WriteSuite, folder: Path, paraval: Paraval, suite: str
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    write("suite.yaml", suite)
    ended = paraval("run", "suite.yaml")
    assert (ended.returncode, ended.stderr.startswith("error: ")) == (2, True), ended.stderr
    assert "\x1b" not in ended.stderr
    assert "\x07" not in ended.stderr


@pytest.mark.parametrize(
    "lines",
    [
        ["cases: [{id: a}]", "target: {command: [echo], cwd: NAME}"],
        ["cases: [{id: a}]", "target: {command: [NAME]}"],
        ["cases: [{id: a}]", "target: {command: [./NAME]}"],
        ["cases: [{id: a}]", "target: {command: [echo]}", "workspace: {folder: NAME}"],
        ["cases: [{id: a}]", "target: {command: [echo]}", "workspace: {git: NAME}"],
        ["cases: [{id: a}]", "target: {command: [echo]}", "graders: [{command: [./NAME]}]"],
        ["target: {command: [echo]}", "cases: 'NAME*.jsonl'"],
    ],
    ids=lambda lines: lines[-1],
)
def test_a_path_that_no_file_system_takes_is_told_with_its_line(
    write: WriteSuite, paraval: Paraval, lines: list[str]
) -> None:
    text = "\n".join([*lines, "unknown: 1"]).replace("NAME", "x" * 300)
    write("suite.yaml", text)
    ended = paraval("plan", "suite.yaml")
    assert ended.returncode == 2
    assert f"error: suite.yaml:{len(lines)}: " in ended.stderr
    assert "unknown key 'unknown'" in ended.stderr, "other mistakes are told, too"


def test_no_case_id_leads_out_of_the_stores_folder(
    write: WriteSuite, folder: Path, paraval: Paraval
) -> None:
    """Ids may be any text: folders are named by a trial's key."""
    ids = ["../../etc/passwd", "/abs", "a/b", "..", ".hidden", "CON", "-rf", "x.lock"]
    cases = [{"id": name} for name in ids]
    write("suite.yaml", f"cases: {json.dumps(cases)}\ntarget: {{command: [echo]}}\n")
    ended = paraval("run", "suite.yaml", "-o", "report.html")
    assert ended.returncode == 0, ended.stderr
    assert {path.name for path in folder.iterdir()} == {"suite.yaml", "report.html", ".paraval"}
    names = [part for path in folder.rglob("*") for part in path.parts]
    assert not {"passwd", "abs", "a", "b", ".hidden", "CON", "-rf", "x.lock"} & set(names)
    assert paraval("logs", "last", "--case", "../../etc/passwd").returncode == 0


def test_a_case_id_with_a_line_break_is_refused_at_load(
    write: WriteSuite, folder: Path, paraval: Paraval
) -> None:
    write("suite.yaml", 'cases: [{id: "a\\n"}]\ntarget: {command: [echo]}\n')
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert "suite.yaml:1" in ended.stderr
    assert not (folder / ".paraval").exists()


def test_a_hundred_commands_at_once_within_a_small_limit_of_open_files(
    write: WriteSuite, folder: Path
) -> None:
    write("made.py", "def cases(): return [dict(id='c%d' % i) for i in range(100)]\n")
    write("suite.yaml", 'cases: {python: "made:cases"}\ntarget: {command: [sleep, "0.2"]}\n')
    script = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)); "
    script += "import paraval; print(paraval.run('suite.yaml', parallel=100).summary.passed)"
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.stdout.strip() == "100", ended.stderr


def test_functions_that_print_a_lot_are_bounded_too(folder: Path) -> None:
    async def chatty(case: library.Case) -> str:
        for _ in range(40):
            print("x" * (1 << 20))
        return "hello"

    report = library.run(library.Suite(cases=[library.Case(id="a")], target=chatty))
    (trial,) = report.trials
    log = Path(report.run.folder, trial.result.artifacts["stdout"])
    assert log.stat().st_size < 20 << 20
    assert b"bytes left out" in log.read_bytes()[-100:]
