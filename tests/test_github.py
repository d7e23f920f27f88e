"""What GitHub Actions is told, and what it must never be told: commands that a model wrote."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from hypothesis import given, strategies as st

import paraval as api
from paraval.cli.commands.report import report_command
from paraval.cli.commands.run import run_command
from paraval.cli.github import MOST_SUMMARY_BYTES, annotation, append_summary, gate_annotations
from paraval.cli.inert_streams import InertStream
from paraval.cli.main import paraval as group
from paraval.records import Case
from paraval.report.files import check_output_paths
from paraval.statistics.drops import pairs_to_tell
from tests.conftest import Paraval, WriteSuite

DOCS = Path(__file__).parent.parent / "docs"
COMMANDS = {
    *("add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group"),
    *("notice", "remove-matcher", "save-state", "set-env", "set-output", "stop-commands"),
    "warning",
}

Command = tuple[str, dict[str, str], str]


def commands_in(text: str) -> list[Command]:
    """As the runner reads them: from lines that begin with `::`, blanks aside, or hold `##[`."""
    return [found for line in re.split(r"\r\n|\r|\n", text) if (found := _command(line))]


def _command(line: str) -> Command | None:
    trimmed = line.lstrip()
    if trimmed.startswith("::") and "::" in trimmed[2:]:
        info, data = trimmed[2:].split("::", 1)
        name, _, properties = info.partition(" ")
        if name in COMMANDS:
            pairs = (part.split("=", 1) for part in properties.strip().split(",") if "=" in part)
            return name, {key: _unescaped(value) for key, value in pairs}, _unescaped(data)
    if "##[" in line and "]" in line.partition("##[")[2]:
        name = line.partition("##[")[2].partition("]")[0].split(" ")[0]
        if name in COMMANDS:
            return name, {}, ""
    return None


def _unescaped(text: str) -> str:
    for code, sign in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, sign)
    return text


# ---- annotations

HOSTILE = [
    "a::b",
    "x,y=z",
    "100% of it%0A::error::no",
    "a\r\n::stop-commands::x",
    "##[error]no",
    "title=x::",
    "日本語",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_an_annotation_says_what_it_was_given_and_nothing_else(text: str) -> None:
    line = annotation("error", f"paraval: {text}", f"said {text}")
    assert commands_in(line) == [("error", {"title": f"paraval: {text}"}, f"said {text}")]
    assert "\n" not in line


@given(st.text(), st.text())
def test_whatever_the_texts_are_it_is_one_command(title: str, message: str) -> None:
    (found,) = commands_in(annotation("warning", f"p{title}p", message))
    assert found == ("warning", {"title": f"p{title}p"}, message)


def answers(*wrong: str) -> Any:
    """A target that gives wrong answers to some, and fails on those that are `broken`."""

    def answer(case: Case) -> str:
        if case.id.startswith("broken"):
            raise RuntimeError(f"\n::error::{case.id}\n##[error]{case.id}")
        return "::error::x" if case.id in wrong else case.id

    return answer


def report_of(*wrong: str, ids: Sequence[str] = "abc") -> api.Report:
    cases = [Case(id=one, expect=one) for one in ids]
    return api.run(
        api.Suite(
            name="small", cases=cases, target=answers(*wrong), graders=["equals"], fail_under=1
        )
    )


def test_a_gate_that_is_missed_is_an_error_and_wrong_answers_are_not(folder: Path) -> None:
    ((kind, properties, message),) = commands_in("\n".join(gate_annotations(report_of("a", "b"))))
    assert (kind, properties) == ("error", {"title": "paraval: small"})
    assert message == "Gate failed: 33.3% (1/3), required 100%"


def test_a_gate_that_is_met_says_nothing(folder: Path) -> None:
    assert list(gate_annotations(report_of())) == []


def test_errors_are_one_warning_beside_a_gate_that_is_unknown(folder: Path) -> None:
    report = report_of(ids=("a", "broken-1", "broken-2"))
    gate, errors = commands_in("\n".join(gate_annotations(report)))
    assert (gate[0], errors[0]) == ("warning", "warning")
    assert errors[2] == "2 errors have no verdict: 2 crashed."


# ---- the page of a job


@pytest.fixture
def summary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = folder / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(file))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return file


def test_the_report_is_appended_to_what_is_there(summary: Path) -> None:
    report_of()
    summary.write_text("before\n")
    report_command.main([], standalone_mode=False)
    text = summary.read_text()
    assert text.startswith("before\n## paraval: <code>small</code>")
    assert text.endswith("\n")


def test_a_full_summary_is_left_alone_with_a_note(
    summary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary.write_bytes(b"x" * MOST_SUMMARY_BYTES)
    append_summary(lambda: "more")
    assert summary.stat().st_size == MOST_SUMMARY_BYTES
    assert "1 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["folder", "pipe", "no-folder/file", "n" * 300, "/dev/full"])
def test_a_summary_that_cannot_be_written_is_a_note_and_no_failure(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
) -> None:
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(folder / place))
    append_summary(lambda: "report")
    assert "note: the report was not added to the job summary" in capsys.readouterr().err


def test_elsewhere_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    append_summary(lambda: pytest.fail("it was made"))


# ---- text of others


ACTING = st.sampled_from(
    [
        "::error::",
        "::",
        ":",
        "##[error]x",
        "##[",
        "#",
        "[",
        "]",
        "\n",
        "\r",
        " ",
        "\t",
        "\u200d",
        "x",
    ]
)


@given(st.lists(st.lists(ACTING).map("".join)))
def test_no_line_that_is_printed_is_a_command_however_it_is_cut(pieces: list[str]) -> None:
    below = io.StringIO(newline="")
    stream = InertStream(below)
    stream.writelines(pieces)
    printed = below.getvalue()
    lines = re.split(r"[\r\n]", printed.replace("\u200d", ""))
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    # Nothing else is changed.
    shown = printed.replace("\\u003a", ":").replace("\\u005b", "[")
    assert shown == "".join(pieces)


@given(
    st.recursive(st.text() | ACTING, lambda inner: st.lists(inner) | st.dictionaries(ACTING, inner))
)
def test_a_json_document_says_the_same(value: Any) -> None:
    for indent in (None, 2):
        below = io.StringIO()
        print(json.dumps(value, ensure_ascii=False, indent=indent), file=InertStream(below))
        assert json.loads(below.getvalue()) == value
        assert not commands_in(below.getvalue())


def test_our_own_commands_stand_on_lines_of_their_own() -> None:
    below = io.StringIO()
    stream = InertStream(below)
    stream.write("half a line")
    stream.command("::error::ours")
    stream.write("::error::theirs\n")
    assert commands_in(below.getvalue()) == [("error", {}, "ours")]


FUNCTIONS = """
def answer(case):
    if case.id == "broken":
        raise RuntimeError("\\n::error::theirs\\n  ::set-output name=x::y\\n##[error]theirs")
    return "::error::theirs\\n##[error]theirs\\r::warning::theirs"
"""


def test_on_actions_only_ours_are_commands_whatever_models_say(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("functions.py", FUNCTIONS)
    write(
        "suite.yaml",
        """
        name: "::error::theirs"
        cases: [{id: wrong, expect: right}, {id: broken, expect: right}]
        matrix: {model: ["::error::theirs", "##[error]theirs"]}
        target: {python: "functions:answer"}
        graders: [equals]
        fail_under: 1
        """,
    )
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    ended = paraval("run", "suite.yaml", "-v", env=env)
    assert ended.returncode == 1, ended.stderr
    found = commands_in(ended.stdout) + commands_in(ended.stderr)
    assert [(kind, data) for kind, _, data in found] == [
        ("error", "Gate failed: at most 50% (2/4), even with 2 errors, required 100%"),
        ("warning", "2 errors have no verdict: 2 crashed."),
    ]
    assert found[0][1] == {"title": "paraval: ::error::theirs"}
    assert "theirs" in ended.stdout
    assert (folder / "summary.md").read_text().startswith("## paraval: <code>")
    as_json = paraval("report", "--json", env=env)
    assert not commands_in(as_json.stdout)
    outputs = [trial["output"] for trial in json.loads(as_json.stdout)["trials"]]
    assert "::error::theirs\n##[error]theirs\r::warning::theirs" in outputs


# ---- the workflow of the docs


def _steps() -> Iterator[dict[str, Any]]:
    workflow = yaml.safe_load((DOCS / "workflows" / "paraval.yml").read_text())
    for job in workflow["jobs"].values():
        yield from job["steps"]


def _paraval_lines() -> list[list[str]]:
    lines = [line for step in _steps() for line in step.get("run", "").splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("paraval ")]


SHOUTING = """
cases: [{id: only}]
workspace: {folder: template}
target:
  shell: true
  command: 'cat talk; cp talk said.txt'
"""
TALK = "::error::printed\n  ::add-mask::x\nfine\n##[error]printed\n"


@pytest.fixture
def shouted(write: WriteSuite, folder: Path, paraval: Paraval) -> None:
    """A run whose target printed commands, and left them in its workspace."""
    (folder / "template").mkdir()
    (folder / "template" / "talk").write_text(TALK)
    # Beside a line that is changed, the others are lines of the patch by themselves.
    (folder / "template" / "said.txt").write_text(f"before\n{TALK}")
    write("suite.yaml", SHOUTING)
    assert paraval("run", "suite.yaml", "--progress", "none").returncode == 0


def test_on_actions_logs_and_diffs_hold_no_commands_of_a_targets(
    shouted: None, paraval: Paraval
) -> None:
    for command in ("logs", "diff"):
        plain = paraval(command, "last")
        assert commands_in(plain.stdout)
        on_actions = {"GITHUB_ACTIONS": "true"}
        there = paraval(command, "last", env=on_actions, stdin=subprocess.DEVNULL)
        assert commands_in(there.stdout + there.stderr) == []
        assert there.stdout.replace("\\u003a", ":").replace("\\u005b", "[") == plain.stdout
        assert "write to a file" in there.stderr
        assert "write to a file" not in plain.stderr


def test_on_actions_every_byte_goes_to_a_file(
    shouted: None, folder: Path, paraval: Paraval
) -> None:
    for command in ("logs", "diff"):
        with (folder / "out").open("wb") as file:
            subprocess.run(
                [sys.executable, "-m", "paraval", command, "last"],
                cwd=folder,
                env={**os.environ, "GITHUB_ACTIONS": "true"},
                stdout=file,
                check=True,
            )
        assert (folder / "out").read_text() == paraval(command, "last").stdout


@given(st.lists(st.sampled_from([b":", b"\xe2", b"\x80", b"\x8b", b"\n", b" ", b"#", b"[", b"a"])))
def test_no_line_of_bytes_is_a_command_however_it_is_cut(pieces: list[bytes]) -> None:
    raw = io.BytesIO()
    stream = InertStream(io.TextIOWrapper(raw, encoding="utf-8"))
    for piece in pieces:
        stream.buffer.write(piece)
    stream.buffer.flush()
    for line in re.split(r"[\r\n]", raw.getvalue().decode(errors="replace")):
        seen = line.replace("\u200b", "").lstrip()
        assert not seen.startswith("::")
        assert "##[" not in seen


def test_the_workflow_has_its_tiers_and_known_actions_alone() -> None:
    workflow = yaml.safe_load((DOCS / "workflows" / "paraval.yml").read_text())
    # YAML 1.1 reads `on` as a truth value; GitHub does not.
    assert set(workflow[True]) == {"push", "pull_request", "release"}
    assert workflow["permissions"] == {"contents": "read"}
    release = workflow["jobs"]["release"]
    assert release["concurrency"]["cancel-in-progress"] is False
    for step in _steps():
        assert re.fullmatch(
            r"actions/(checkout|setup-python|cache|upload-artifact)@v\d+",
            step.get("uses", "actions/cache@v4"),
        )


def test_the_commands_of_the_workflow_are_ones_that_we_take() -> None:
    lines = _paraval_lines()
    assert len(lines) == 3
    for command, *arguments in lines:
        assert command == "run"
        with run_command.make_context("run", arguments) as context:
            check_output_paths([Path(path.name) for path in context.params["outputs"]])
    smoke, every, release = (" ".join(line) for line in lines)
    assert "--tag smoke --models haiku" in smoke
    assert "--baseline evals/baseline.json" in every
    assert "--parallel 1 " in release


def test_the_commands_of_the_page_are_ones_that_we_take() -> None:
    text = (DOCS / "how-to" / "gate-in-ci.md").read_text()
    lines = re.findall(r"^paraval ([^#|\n\\]+)", text, flags=re.MULTILINE)
    assert len(lines) > 7
    for line in lines:
        name, *arguments = shlex.split(line)
        command = group.get_command(click.Context(group), name)
        assert command is not None, line
        if isinstance(command, click.Group):
            name, *arguments = arguments
            command = command.commands[name]
        command.make_context(name, arguments).close()


def test_what_the_page_says_of_72_cases_is_so() -> None:
    assert pairs_to_tell([0.0] * 72, -0.05) == 0
    assert pairs_to_tell([0.0] * 71, -0.05) == 1
    assert pairs_to_tell([0.0] * 36, -0.1) == 0
    assert pairs_to_tell([0.0] * 35, -0.1) == 1
