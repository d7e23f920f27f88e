"""Every page of README and docs: its links lead somewhere, and its code blocks run.

A block is a file if the line before it names one (`suite.yaml`:). Files of suites, races, scenarios
and models are checked by paraval's own readers, Python is executed, and `sh` and `console` blocks
run in the page's folder, in order. `<!-- not run: REASON -->` before a block leaves it out; the
options of paraval's commands in it are checked all the same.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import click
import pytest

from paraval.cli.main import paraval as group
from paraval.documents.files import read_document
from paraval.documents.problems import Location
from paraval.loopback.scenario import Scenario
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.racing.file.race_file import load_race
from paraval.settings import Selection
from tests.conftest import HANGS_AFTER_S, Paraval
from tests.repositories import commit_all, make_repository

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
RUN_PAGES = [page for page in PAGES if "examples" not in page.parts]
LANGUAGES = {"sh", "console", "python", "yaml", "json", "csv", "markdown", "diff", "text"}
# Fragments of suites are checked as part of this one.
LEAST_SUITE = {"cases": [{"id": "a", "input": "a"}], "target": {"command": ["echo", "{input}"]}}
CHAT_MODEL = {"sim": {"provider": "loopback"}}
CHAT = {"chat": {"model": "sim"}}
LEAST_RACE = {"repo": ".", "test": "pytest -q", "bench": "true", "candidates": "candidates/"}
# What pages suppose that their readers have.
FILES = {
    "cases.jsonl": '{"id": "find", "input": "Where?", "expect": {"files": ["a.py"]}}\n',
    "cases/find.jsonl": '{"id": "find", "input": "Where?", "expect": {"files": ["a.py"]}}\n',
    "questions/all.jsonl": '{"id": "a", "input": "?", "expect": 5}\n',
    "answers.py": "def answer(case):\n    return case.id\n",
    "prompts/short.md": "Answer {input}",
    "prompts/careful.md": "Think, then answer {input}",
    "prompts/v2.md": "To {input.language}: {input.text}",
    "candidates/a.patch": "",
    "data/facts.txt": "",
    "tabulate-0.10.0/bench.py": "",
    "my-agent": "#!/bin/sh\n",
    "refine.sh": "#!/bin/sh\n",
    "test_example.py": "def test_example(): ...\n",
}
PROGRAMS = ("claude", "codex", "repo-search", "my-repairer", "my-refiner")


@dataclass(frozen=True, kw_only=True)
class Block:
    language: str
    text: str
    line: int
    file: str | None
    not_run: str | None

    @property
    def commands(self) -> list[str]:
        """The lines of a shell's block, or those that a console's shows behind a prompt."""
        lines = self.text.replace("\\\n", "").splitlines()
        if self.language == "console":
            return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [line for line in lines if line.strip() and not line.startswith("#")]


BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`[^\n]*:\n\n)?"
    r"(?:^<!-- not run: (?P<reason>[^\n]*?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            language=found["language"],
            text=found["text"],
            line=text.count("\n", 0, found.start("text")),
            file=found["file"],
            not_run=found["reason"],
        )
        for found in BLOCK.finditer(text)
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of the headings."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", prose):
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / one).resolve() for one in links_of(index)}
    assert {page for page in PAGES if "docs" in page.parts} - {index} <= linked


def links_of(page: Path) -> list[str]:
    return re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_names_its_language_and_the_reason_if_it_is_not_run(page: Path) -> None:
    text = page.read_text()
    found = blocks(page)
    assert len(found) * 2 == len(re.findall(r"^```", text, re.MULTILINE)), "an indented block?"
    assert len([one for one in found if one.not_run]) == text.count("<!-- not run:")
    for one in found:
        assert one.language in LANGUAGES, f"{page.name}:{one.line}"
        assert one.not_run is None or len(one.not_run.split()) > 1, f"{page.name}:{one.line}"


def test_the_reference_of_commands_is_what_their_help_says() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "generate.py"))["cli_page"]()
    assert written == (ROOT / "docs" / "reference" / "cli.md").read_text(), "run: make docs"


# ---- the code


@pytest.fixture
def readers_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the files that pages suppose, and programs that do nothing on the PATH."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / ".gitignore").write_text(".paraval/\nbin/\n__pycache__/\n")
    (folder / "bin").mkdir()
    for name in PROGRAMS:
        (folder / "bin" / name).write_text("#!/bin/sh\n")
        (folder / "bin" / name).chmod(0o755)
    make_repository(folder)
    path = (folder / "bin", Path(sys.executable).parent, os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, path)))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.mark.parametrize("page", RUN_PAGES, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, readers_folder: Path, paraval: Paraval) -> None:
    for number, block in enumerate(blocks(page)):
        place = f"{name_of(page)}:{block.line}"
        if block.not_run is None or block.language in ("yaml", "json"):
            if block.file is not None:
                (readers_folder / block.file).write_text(block.text)
            if block.language in CHECKS and not (block.not_run or "").startswith("a promptfoo"):
                CHECKS[block.language](block, number)
        for command in block.commands if block.language in ("sh", "console") else ():
            if command.strip() in PENDING:
                continue
            if block.not_run is not None:
                check_options(command, place)
            else:
                commit_all(readers_folder)
                run_command(command, readers_folder, paraval, place)


def run_command(command: str, folder: Path, paraval: Paraval, place: str) -> None:
    words = shlex.split(command, comments=True)
    if words[0] == "paraval" and not {"||", "|", ">", "&&"} & set(words):
        ended = paraval(*words[1:])
    else:
        ended = subprocess.run(
            ["sh", "-c", command],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS_AFTER_S,
        )
    shown = f"{place}: {command}\n{ended.stdout}{ended.stderr}"
    assert ended.returncode in (0, 1, 3), shown
    assert "Traceback" not in ended.stderr, shown


def paraval_words(command: str) -> list[str]:
    """What follows `paraval` in a command that calls it, perhaps with variables before it."""
    words = shlex.split(command, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        words.pop(0)
    return words[1:] if words and words[0] == "paraval" else []


def check_options(command: str, place: str) -> None:
    words = paraval_words(command)
    if not words:
        return
    found: click.Command | None = group
    while isinstance(found, click.Group):
        name, *words = words
        found = found.get_command(click.Context(found), name)
    assert found is not None, f"{place}: {command}"
    cut = next((at for at, word in enumerate(words) if word in ("|", ">", "||")), len(words))
    found.make_context(found.name, words[:cut], resilient_parsing=False).close()


def check_yaml(block: Block, number: int) -> None:
    path = Path(f"block-{number}.yaml")
    path.write_text(block.text)
    document = _data_of(path)
    whole = _whole(document)
    if whole is not document:
        path.write_text(json.dumps(whole))
    if "target" in whole:
        assert build_plan(Suite.load(str(path)), Selection()).trials
    elif "bench" in whole:
        assert load_race(path).test.command
    else:
        Scenario.load(path)


def _data_of(path: Path) -> Any:
    document = read_document(path, Location(problems={}))
    assert document is not None, path.read_text()
    return document.data


def _whole(document: dict[str, Any]) -> dict[str, Any]:
    """The document, or one that it is a part of."""
    inner = [one for one in document.values() if isinstance(one, Mapping)]
    if "target" in document or {"latency", "answers"} & set(document):
        return document
    if "bench" in document:
        return {**LEAST_RACE, **document}
    if len(inner) == len(document) and all("provider" in one for one in inner):
        return {**LEAST_SUITE, "models": document}
    if any("answers" in str(one) for one in inner):
        return document
    if "chat" in str(document.get("matrix")):
        return {**LEAST_SUITE, "models": CHAT_MODEL, "target": CHAT, **document}
    return {**LEAST_SUITE, **document}


def check_python(block: Block, _number: int) -> None:
    code = compile(block.text, block.file or "block.py", "exec")
    if block.file is None:
        assert exit_code_of(code) == 0


def exit_code_of(code: CodeType) -> object:
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit as ended:
        return ended.code
    return 0


def check_json(block: Block, _number: int) -> None:
    json.loads(block.text)


CHECKS: dict[str, Callable[[Block, int], None]] = {
    "yaml": check_yaml,
    "python": check_python,
    "json": check_json,
}
# Commands that other changes bring; delete this with the merge.
PENDING = {
    "paraval run                  # ./suite.yaml",
    "paraval plan                 # what it would run and cost, without running it",
    "paraval run -o report.html   # also as a page: one file, no scripts",
    "paraval demo race           # eight bundled candidates; needs git and pytest",
    "paraval report last --check --baseline baseline.json --max-drop 0.1",
    "paraval completion install           # bash, zsh or fish, by $SHELL",
}
