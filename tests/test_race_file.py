"""Race files: every form of their keys, and the message for every mistake."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, strategies as st

from paraval.errors import RequestError
from paraval.racing.race_file import load_race, race_of, race_schema
from paraval.racing.request import (
    PROTECTED,
    AcceptSpec,
    BenchSpec,
    ProposeSpec,
    RaceFile,
    RaceKeys,
    RaceLimits,
    RaceRequest,
    RepoSpec,
    TestSpec,
)
from tests.conftest import WriteSuite
from tests.repositories import make_repository, put_on_path, run_git

LEAST = {"test": "pytest -q", "bench": "pytest bench.py"}


@pytest.fixture(autouse=True)
def repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A repository with a candidate, and the programs that races here name."""
    put_on_path(tmp_path_factory.mktemp("bin"), monkeypatch, "fix", "python")
    (folder / "candidates").mkdir()
    (folder / "candidates/a.patch").write_text("")
    make_repository(folder)
    return folder


def asked(**keys: Any) -> RaceRequest:
    return race_of({**LEAST, **keys}, Path.cwd())


def mistakes(**keys: Any) -> list[str]:
    with pytest.raises(RequestError) as refused:
        asked(**keys)
    return refused.value.message.split("\n")


# ---- forms


def test_a_file_with_every_part_is_read_completely(write: WriteSuite, folder: Path) -> None:
    write(
        "race.yaml",
        """
        name: sorting
        models: {haiku: {provider: loopback}}
        race:
          repo: {git: ., ref: main}
          test: {command: [pytest, -q, tests], timeout: 300, canary: false}
          compare: [stdout, out.json]
          bench: {command: [python, bench.py], metric: cpu, blocks: 9, quiet: 0, cpus: 0}
          candidates: candidates/
          propose: {models: haiku, files: [candidates/a.patch], n: 2, rounds: 4, prompt: Hurry.}
          profile: line
          functions: ["toposort:sort"]
          accept: {speedup: 1.2, confidence: 0.9, each: 0.95, caches: true, unseen_results: true}
          limits: {parallel: 4, candidates: 50, seconds: 1800, usd: 2}
          env: {A: 1}
          pass_env: [B]
        """,
    )
    request = load_race(Path("race.yaml"))
    assert (request.name, request.source) == ("sorting", str(folder / "race.yaml"))
    assert request.folder == request.repo == str(folder)
    keys = request.keys
    assert (keys.repo.ref, keys.repo.head, keys.repo.uncommitted) == ("main", None, False)
    assert request.test.model_dump() == {
        "command": ("pytest", "-q", "tests"),
        "timeout": 300,
        "canary": False,
    }
    assert keys.compare == ("stdout", "out.json")
    bench = {"command": ("python", "bench.py"), "metric": "cpu", "blocks": 9, "quiet": 0, "cpus": 0}
    assert request.bench.model_dump(exclude_unset=True) == bench
    assert keys.candidates == (str(folder / "candidates"),)
    assert request.propose is not None
    assert (request.propose.n, request.propose.rounds) == (2, 4)
    assert [model.name for model in request.proposing_models()] == ["haiku"]
    assert request.files == {"candidates/a.patch": ""}
    assert request.prompt.startswith("Hurry.\n\ncandidates/a.patch\n```\n")
    assert (keys.profile, keys.functions) == ("line", ("toposort:sort",))
    accept = {"speedup": 1.2, "confidence": 0.9, "each": 0.95, "caches": True}
    assert request.accept.model_dump() == {**accept, "unseen_results": True}
    limits = {"parallel": 4, "candidates": 50, "seconds": 1800, "usd": 2}
    assert request.limits.model_dump() == limits
    assert (keys.env, keys.pass_env, keys.protect) == ({"A": "1"}, ("B",), PROTECTED)


def test_paths_are_relative_to_the_file(
    write: WriteSuite, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("race.yaml", "race: {test: pytest, bench: pytest b.py, candidates: candidates/*.patch}\n")
    monkeypatch.chdir(folder / "candidates")
    request = load_race(Path("../race.yaml"))
    assert request.repo == str(folder)
    assert request.keys.candidates == (f"{folder}/candidates/*.patch",)


@pytest.mark.parametrize(
    ("keys", "attribute", "value"),
    [
        ({"test": ["pytest", "-n", 2]}, "test.command", ("pytest", "-n", "2")),
        ({"test": ["{python}", "t.py"]}, "test.command", (sys.executable, "t.py")),
        ({"test": {"command": ("pytest",)}}, "test.command", ("pytest",)),
        ({"bench": {"command": "pytest", "metric": "b.json"}}, "bench.file", "b.json"),
        ({"bench": {"command": "pytest", "metric": {"file": "b"}}}, "bench.file", "b"),
        ({"bench": {"command": "pytest", "metric": "memory"}}, "bench.file", None),
        ({"compare": "stdout"}, "keys.compare", ("stdout",)),
        ({"compare": [{"file": "a//out.txt"}]}, "keys.compare", ("a/out.txt",)),
        ({"repo": {"uncommitted": True}}, "keys.repo.uncommitted", True),
        ({"candidates": ["main"]}, "keys.candidates", ("main",)),
        ({"propose": "fix"}, "propose.command", ("fix",)),
        ({"propose": {"command": ["fix"], "timeout": 9}}, "propose.timeout", 9.0),
        ({"propose": None}, "propose", None),
        ({"limits": {"parallel": "auto"}}, "limits.at_once", None),
        ({"protect": False}, "keys.protect", ()),
        ({"protect": True}, "keys.protect", PROTECTED),
        ({"protect": ["spec/**"]}, "keys.protect", ("spec/**",)),
        ({"setup": "make deps"}, "keys.setup", ("make", "deps")),
        ({"setup": ["./made-there"]}, "keys.setup", ("./made-there",)),
        ({"sandbox": True}, "is_sandboxed", True),
        ({"name": "sorting"}, "name", "sorting"),
    ],
)
def test_every_form_of_a_key_is_understood(
    keys: dict[str, Any], attribute: str, value: Any
) -> None:
    found: Any = asked(**keys)
    for name in attribute.split("."):
        found = getattr(found, name)
    assert found == value


def test_candidates_are_found_from_the_folder_and_refs_stay(folder: Path) -> None:
    request = asked(candidates=["main", "candidates"], repo=Path("candidates"))
    assert request.keys.candidates == ("main", str(folder / "candidates"))
    assert request.repo == str(folder / "candidates")


def test_a_key_without_a_value_has_its_default(write: WriteSuite) -> None:
    write("race.yaml", "race:\n  test: pytest\n  bench: pytest\n  candidates:\n  limits:\n")
    assert load_race(Path("race.yaml")).limits == asked().limits


def test_a_tag_and_a_short_hash_name_candidates(folder: Path) -> None:
    run_git(folder, "tag", "v1")
    commit = run_git(folder, "rev-parse", "HEAD")
    assert asked(candidates=["v1", commit[:10]]).keys.candidates == ("v1", commit[:10])


# ---- commands


def command_of(text: str) -> tuple[str, ...]:
    return TestSpec.model_validate({"command": text}).command


@pytest.mark.parametrize(
    "text",
    ["a | b", "a > b", "a; b", "a $X", "A=1 b", "a 'b c'", "a *", "make\nmake test\n", "~/a"],
)
def test_a_text_with_shell_syntax_is_run_by_a_shell(text: str) -> None:
    assert command_of(text) == ("sh", "-c", text)


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_a_text_runs_as_a_shell_would_run_it(text: str) -> None:
    assume(text.strip())
    words = re.split("[ \t]+", text.strip(" \t\n"))
    command = command_of(text)
    assert command == ("sh", "-c", text) or list(command) == words == shlex.split(text)


def test_the_present_python_may_be_named_in_a_text() -> None:
    assert command_of("{python} t.py") == (sys.executable, "t.py")
    assert command_of("{python} t.py && x")[2] == f"{shlex.quote(sys.executable)} t.py && x"


# ---- mistakes

COMMAND = "must be a command: a list of texts, or one text that `sh -c` runs"
METRIC = "must be 'wall', 'cpu', 'memory', or the JSON file that the command writes"
FILE = "must be the path of a file, relative to where the command runs and within it"
OTHER = "must be 'stdout', or a file with a '.' or '/' in its path"
NOWHERE = "not found on PATH; install it, or give its path"
NO_CANDIDATE = "is not a file, folder or glob in {here}, nor a branch, tag or commit of {here}"
NO_REF = "is not a branch, tag or commit of the repository {here}"
URL = "https://example.com/a.git"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tset": 1}, "tset: unknown key 'tset', did you mean 'test'?"),
        ({"test": None}, "test: is missing"),
        ({"bench": {}}, "bench.command: is missing"),
        ({"test": 5}, f"test.command: {COMMAND}, not 5"),
        ({"test": ""}, f"test.command: {COMMAND}, not ''"),
        ({"setup": []}, f"setup: {COMMAND}, not the list []"),
        ({"setup": ["a\0"]}, f'setup: {COMMAND}, not the list ["a\\u0000"]'),
        ({"test": ["nowhere-at-all"]}, f"test.command: program 'nowhere-at-all' {NOWHERE}"),
        ({"propose": ["./fix"]}, "propose.command: program './fix' not found (looked in {here})"),
        (
            {"test": {"command": "pytest", "junit": "x.xml"}},
            "test.junit: unknown key 'junit'; choose from 'command', 'timeout' and 'canary'",
        ),
        ({"bench": {"command": "pytest", "metric": "wal"}}, f"bench.metric: {METRIC}, not 'wal'"),
        (
            {"bench": {"command": "pytest", "blocks": 1}},
            "bench.blocks: must be a whole number from 3 to 1000, not 1",
        ),
        ({"compare": 5}, "compare: must be a list of 'stdout' and files, not 5"),
        ({"compare": ["/a"]}, f"compare[0]: {FILE}, not '/a'"),
        ({"compare": ["stdot"]}, f"compare[0]: {OTHER}, not 'stdot'"),
        ({"repo": "nowhere"}, "repo.git: folder '{here}/nowhere' does not exist"),
        ({"repo": URL}, f"repo.git: '{URL}' is a URL; clone it first and give the folder"),
        ({"repo": {"ref": "nope"}}, f"repo.ref: 'nope' {NO_REF}"),
        (
            {"repo": {"ref": "main", "uncommitted": True}},
            "repo.ref: cannot be combined with uncommitted: true; remove one of them",
        ),
        (
            {"repo": {"head": "main"}, "candidates": "main"},
            "candidates: cannot be combined with repo.head",
        ),
        ({"candidates": ["main", "nope"]}, f"candidates[1]: 'nope' {NO_CANDIDATE}"),
        ({"candidates": ["main..main"]}, f"candidates[0]: 'main..main' {NO_CANDIDATE}"),
        ({"candidates": 5}, "candidates: must be a text or a list of texts, not 5"),
        ({"propose": {"rounds": 2}}, "propose: needs a command or models"),
        (
            {"propose": {"command": "fix", "rounds": 0}},
            "propose.rounds: must be a whole number from 1 to 50, not 0",
        ),
        ({"profile": "lines"}, "profile: must be 'line' or 'none', not 'lines'"),
        (
            {"functions": ["m"]},
            "functions[0]: must be a function, written 'module:function', not 'm'",
        ),
        ({"accept": 1.05}, "accept: must be a mapping, not 1.05"),
        ({"accept": {"speedup": 0.9}}, "accept.speedup: must be a number from 1 to 1000, not 0.9"),
        (
            {"limits": {"parallel": 0}},
            "limits.parallel: must be a whole number, 1 or more, or 'auto', not 0",
        ),
        ({"protect": 5}, "protect: must be a list of globs, or false for nothing, not 5"),
        ({"env": 5}, "env: must be a mapping, not 5"),
    ],
)
def test_a_mistake_is_reported_with_its_key(
    folder: Path, keys: dict[str, Any], message: str
) -> None:
    assert mistakes(**keys) == ["race." + message.replace("{here}", str(folder))]


def test_every_mistake_in_a_file_is_reported_with_its_line(write: WriteSuite) -> None:
    write(
        "race.yaml",
        """\
        nmae: sorting
        race:
          test: 5
          bench:
            command: [pytest]
            metric: wallclock
            block: 7
          candidate: candidates
          accept:
            speedup: 0
        """,
    )
    with pytest.raises(RequestError) as refused:
        load_race(Path("race.yaml"))
    assert [line[: line.index(": ", 14)] for line in refused.value.message.split("\n")] == [
        "race.yaml:1: nmae",
        "race.yaml:3: race.test.command",
        "race.yaml:6: race.bench.metric",
        "race.yaml:7: race.bench.block",
        "race.yaml:8: race.candidate",
        "race.yaml:10: race.accept.speedup",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("race: {test: &a pytest, bench: *a}\n", "anchors (&a) are not allowed"),
        ("race: {}\nrace: {}\n", "race.yaml:2: duplicate key 'race'"),
        ("- pytest\n", 'must be a mapping, not the list ["pytest"]'),
        ("race: 5\n", "race: must be a mapping, not 5"),
        ("", "the file is empty"),
        ("race: [pytest\n", "not valid YAML"),
        ("test: pytest\nbench: pytest\n", "race.yaml is not a race: it has no key `race`"),
    ],
)
def test_a_file_that_is_not_a_race_is_refused(write: WriteSuite, text: str, message: str) -> None:
    write("race.yaml", text)
    with pytest.raises(RequestError) as refused:
        load_race(Path("race.yaml"))
    assert message in refused.value.message


def test_a_folder_without_a_repository_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    assert mistakes(repo=str(outside)) == [f"race.repo.git: {outside} is not in a git repository"]


# ---- the schema and the page


def test_the_schema_accepts_valid_races_and_refuses_others() -> None:
    schema = race_schema()
    checker = jsonschema.Draft202012Validator(schema)
    checker.check_schema(schema)
    valid: list[dict[str, Any]] = [
        LEAST,
        {**LEAST, "repo": {"git": ".", "uncommitted": True}, "compare": ["stdout", "a.txt"]},
        {**LEAST, "bench": {"command": ["a"], "metric": {"file": "b.json"}}, "profile": "line"},
        {**LEAST, "functions": ["m:f"], "protect": False, "candidates": ["a", "b"]},
        {**LEAST, "limits": {"parallel": "auto"}, "propose": "fix"},
        {**LEAST, "propose": {"models": "haiku", "files": ["a.py"]}, "compare": "stdout"},
    ]
    for race in valid:
        assert [error.message for error in checker.iter_errors({"race": race})] == []
    for race in ({}, {**LEAST, "nmae": "x"}, {**LEAST, "accept": {"speedup": 0}}):
        assert list(checker.iter_errors({"race": race}))
    json.dumps(schema)


DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "reference" / "race-file.md").read_text(encoding="utf-8")


def test_the_reference_page_is_generated_from_the_records() -> None:
    written = runpy.run_path(str(DOCS / "generate.py"))["race_page"]()
    assert written == PAGE, "run: python docs/generate.py"


def test_the_reference_page_has_every_key() -> None:
    records = (RaceFile, RaceKeys, RepoSpec, TestSpec, BenchSpec, ProposeSpec, AcceptSpec)
    for record in (*records, RaceLimits):
        for name in record.model_fields:
            assert f"| `{name}` |" in PAGE


def test_the_examples_on_the_reference_page_load(write: WriteSuite, folder: Path) -> None:
    write("models.yaml", "haiku: {provider: loopback}\nqwen: {provider: loopback}\n")
    write("toposort.py", "")
    make_repository(folder)
    for example in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        write("race.yaml", example)
        assert load_race(Path("race.yaml")).keys.candidates
