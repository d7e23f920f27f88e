"""Every page of README and docs: its links lead somewhere, and its code blocks run.

A block is a file if the line before it names one (`suite.yaml`:). Suites, races, scenarios and
models are checked by paraval's own readers, Python is executed, and `sh` and `console` blocks run
in the page's folder, in order. `<!-- not run: REASON -->` before a block leaves it out; the options
of paraval's commands in it are checked all the same.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import click
import pytest

from paraval.cli.main import paraval as group
from paraval.documents.files import read_document
from paraval.documents.problems import Location
from paraval.loopback.scenario import Scenario
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.racing.race_file import load_race
from paraval.settings import Selection
from tests.conftest import HANGS_AFTER_S, Paraval
from tests.repositories import commit_all, make_repository

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIAL = ROOT / "docs" / "tutorial.md"
"""It makes the files that other pages suppose."""
PAGES = [*DOCS, *sorted((ROOT / "examples").glob("*/README.md"))]
LANGUAGES = {"sh", "console", "python", "yaml", "json", "csv", "markdown", "diff", "text"}
# Fragments are checked as parts of these.
LEAST_SUITE = {"cases": [{"id": "a", "input": "a"}], "target": {"command": ["echo", "{input}"]}}
LEAST_CHAT = {"models": {"sim": {"provider": "loopback"}}, "target": {"chat": {"model": "sim"}}}
LEAST_RACE = {"repo": ".", "test": "pytest -q", "bench": "true", "candidates": "candidates/"}
# What pages suppose that their readers have.
FILES = {
    "cases.jsonl": '{"id": "find", "input": "Where?", "expect": {"files": ["a.py"]}}\n',
    "cases/find.jsonl": '{"id": "find", "input": "Where?", "expect": {"files": ["a.py"]}}\n',
    "questions/all.jsonl": '{"id": "a", "input": "?", "expect": 5}\n',
    "data.jsonl": '{"uid": 1, "question": "?", "solution": {"text": "!"}, "category": "a"}\n',
    "answers.py": "def answer(case):\n    return case.id\n",
    "qa.csv": "question,answer\nWhen are you open?,9 to 5\n",
    "prompts/short.md": "Answer {input}",
    "prompts/careful.md": "Think, then answer {input}",
    "translations/v1.md": "Convert to {input.language}: {input.text}",
    "translations/v2.md": "To {input.language}: {input.text}",
    "candidates/a.patch": "",
    "toposort.py": "",
    "src/toposort.py": "",
    "models.yaml": "haiku: {provider: loopback}\nqwen: {provider: loopback}\n",
    "data/facts.txt": "",
    "tabulate-0.10.0/bench.py": "",
    "test_example.py": "def test_example(): ...\n",
    **dict.fromkeys(("my-agent", "refine.sh"), "#!/bin/sh\n"),
    **{f"bin/{name}": "#!/bin/sh\n" for name in ("claude", "codex", "repo-search")},
    **{f"bin/{name}": "#!/bin/sh\n" for name in ("my-repairer", "my-refiner")},
    ".gitignore": ".paraval/\nbin/\n__pycache__/\n",
}
BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`[^\n]*:\n\n)?"
    r"(?:^<!-- not run: (?P<reason>[^\n]*?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    language: str
    text: str
    file: str | None
    not_run: str | None
    place: str

    @property
    def commands(self) -> list[str]:
        """The lines of a shell's block, or those that a console's shows after a prompt."""
        lines = self.text.replace("\\\n", "").splitlines()
        if self.language == "console":
            return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return [line for line in lines if line.strip()] if self.language == "sh" else []


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = [(one, text.count("\n", 0, one.start("text"))) for one in BLOCK.finditer(text)]
    return [
        Block(one["language"], one["text"], one["file"], one["reason"], f"{name_of(page)}:{line}")
        for one, line in found
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of the headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}


def links(page: Path) -> list[tuple[str, str]]:
    text = BLOCK.sub("", page.read_text())
    return re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    for target, anchor in links(page):
        there = page.parent / target if target else page
        assert there.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target).resolve() for target, _ in links(index)}
    assert set(DOCS) - {index, ROOT / "README.md"} <= linked


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_names_its_language_and_the_reason_if_it_is_not_run(page: Path) -> None:
    text = page.read_text()
    found = blocks(page)
    assert len(found) * 2 == len(re.findall(r"^ *```", text, re.MULTILINE)), "an indented block?"
    assert len([one for one in found if one.not_run]) == text.count("<!-- not run:")
    for one in found:
        assert one.language in LANGUAGES, one.place
        assert one.not_run is None or len(one.not_run.split()) > 1, one.place


def test_the_reference_of_commands_is_what_their_help_says() -> None:
    # In a process of its own: click keeps a command's help option as its first context made it.
    code = "import runpy; print(runpy.run_path('docs/generate.py')['cli_page'](), end='')"
    written = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert written == (ROOT / "docs" / "reference" / "cli.md").read_text(), "run: make docs"


# ---- the code


@pytest.fixture
def readers_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the files that pages suppose; programs that do nothing on the PATH."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    make_repository(folder)
    path = (folder / "bin", Path(sys.executable).parent, os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, path)))
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, readers_folder: Path, paraval: Paraval) -> None:
    if page == TUTORIAL:
        shutil.rmtree(readers_folder / "prompts")
    for block in blocks(page):
        if block.file is not None:
            (readers_folder / block.file).write_text(block.text)
        if block.not_run is None and block.language in CHECKS:
            CHECKS[block.language](block)
        for command in block.commands:
            if block.not_run is None:
                commit_all(readers_folder)
                run_command(command, readers_folder, paraval, block.place)
            else:
                check_options(command, block.place)


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


def check_options(command: str, place: str) -> None:
    called = re.fullmatch(r"(?:[A-Z_]+=\S* )?paraval ([^|>]+?)(?: [|>].*)?", command)
    words = shlex.split(called[1], comments=True) if called else []
    found: click.Command | None = group if words else None
    while isinstance(found, click.Group):
        name, *words = words
        found = found.get_command(click.Context(found), name)
        assert found is not None, f"{place}: {command}"
    if found is not None:
        found.make_context(found.name, words).close()


def check_yaml(block: Block) -> None:
    path = Path(block.file or "block.yaml")
    path.write_text(block.text)
    document = read_document(path, Location(problems={}))
    assert document is not None, block.place
    whole = _whole(document.data)
    if whole is not document.data:
        path = Path("whole.yaml")
        path.write_text(json.dumps(whole))
    if "target" in whole:
        assert build_plan(Suite.load(str(path)), Selection()).trials
    elif "race" in whole:
        assert load_race(path).test.command
    else:
        Scenario.load(path)


def _whole(document: dict[str, Any]) -> dict[str, Any]:
    """The document, or one that it is a part of."""
    inner = [one for one in document.values() if isinstance(one, Mapping)]
    if {"target", "latency", "answers"} & set(document):
        return document
    if "race" in document:
        race = {**LEAST_RACE, **document["race"]}
        if isinstance(propose := race.get("propose"), Mapping) and "prompt" in propose:
            race["propose"] = {**propose, "prompt": "{files}"}
        return {**document, "race": race}
    if len(inner) == len(document) and all("provider" in one for one in inner):
        return {**LEAST_SUITE, "models": document}
    if any("answers" in str(one) for one in inner):
        return document
    chat = LEAST_CHAT if "chat" in str(document.get("matrix")) else {}
    return {**LEAST_SUITE, **chat, **document}


def check_python(block: Block) -> None:
    code = compile(block.text, block.file or block.place, "exec")
    assert block.file is not None or exit_code_of(code) == 0


def exit_code_of(code: CodeType) -> object:
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit as ended:
        return ended.code
    return 0


CHECKS: dict[str, Callable[[Block], object]] = {
    "yaml": check_yaml,
    "python": check_python,
    "json": lambda block: json.loads(block.text),
}
