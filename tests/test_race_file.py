"""Race files: every form that they may be written in, and what is said of those that are wrong."""

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
from hypothesis import given, strategies as st
from paraval.racing.file.race_file import (
    NeedsShellError,
    arguments_of,
    load_race,
    race_of_flags,
    request_from_mapping,
)
from paraval.racing.file.race_form import (
    AcceptForm,
    BenchForm,
    HookForm,
    ProfileForm,
    RaceForm,
    RaceLimitsForm,
    RepoForm,
    TestForm,
    race_schema,
)
from paraval.racing.file.short_forms import FlagValue

from paraval.errors import RequestError
from paraval.racing.request import (
    PROTECTED,
    Accept,
    BenchMetric,
    BenchSpec,
    ComparedOutput,
    HookSpec,
    Profile,
    ProfileSpec,
    RaceLimits,
    RaceRequest,
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
    put_on_path(tmp_path_factory.mktemp("bin"), monkeypatch, "my-repairer", "my-refiner", "python")
    (folder / "candidates").mkdir()
    (folder / "candidates/a.patch").write_text("")
    make_repository(folder)
    return folder


def asked(**keys: Any) -> RaceRequest:
    return request_from_mapping({**LEAST, **keys}, Path.cwd())


def mistakes(**keys: Any) -> list[str]:
    with pytest.raises(RequestError) as refused:
        asked(**keys)
    return refused.value.message.split("\n")


# ---- what may be written


def test_the_file_of_the_issue_is_read_whole(write: WriteSuite, folder: Path) -> None:
    write(
        "race.yaml",
        """
        repo: .
        test: {command: [pytest, -q, tests], timeout: 300, junit: auto}
        compare: [stdout, {file: out.json}]
        bench: {command: [python, bench.py], metric: wall}
        candidates: candidates/
        repair: [my-repairer]
        refine: [my-refiner]
        profile: line
        functions: ["toposort:sort"]
        accept: {speedup: 1.05, confidence: 0.95}
        limits: {parallel: 4, candidates: 50, seconds: 1800}
        """,
    )
    request = load_race(Path("race.yaml"))
    assert request.name == "race"
    assert request.source == str(folder / "race.yaml")
    assert request.folder == request.repo == str(folder)
    assert (request.ref, request.uncommitted) == ("HEAD", False)
    assert request.test.command == ("pytest", "-q", "tests")
    assert (request.test.timeout, request.test.junit) == (300, "auto")
    assert request.compare == (ComparedOutput(), ComparedOutput(file="out.json"))
    assert request.bench.command == ("python", "bench.py")
    assert request.bench.metric is BenchMetric.WALL
    assert request.candidates == (str(folder / "candidates"),)
    assert request.repair == HookSpec(command=("my-repairer",))
    assert request.refine == HookSpec(command=("my-refiner",))
    assert request.profile == ProfileSpec(kind=Profile.LINE, functions=("toposort:sort",))
    assert request.accept == Accept(speedup=1.05, confidence=0.95)
    assert request.limits == RaceLimits(parallel=4, candidates=50, seconds=1800)
    assert request.protect == PROTECTED


def test_paths_are_relative_to_the_file_and_not_to_where_one_stands(
    write: WriteSuite, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("race.yaml", "{test: pytest, bench: pytest b.py, candidates: candidates/*.patch}\n")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    request = load_race(Path("../race.yaml"))
    assert request.repo == str(folder)
    assert request.candidates == (f"{folder}/candidates/*.patch",)


@pytest.mark.parametrize(
    ("keys", "attribute", "value"),
    [
        ({"test": ["pytest", "-n", 2]}, "test.command", ("pytest", "-n", "2")),
        ({"test": "pytest -k 'a or b'"}, "test.command", ("pytest", "-k", "a or b")),
        ({"test": ["{python}", "t.py"]}, "test.command", (sys.executable, "t.py")),
        ({"test": {"command": ("pytest",), "junit": "off"}}, "test.junit", "off"),
        ({"test": {"command": "pytest", "junit": "build/t.xml"}}, "test.junit", "build/t.xml"),
        ({"bench": {"command": "pytest", "metric": "cpu"}}, "bench.metric", BenchMetric.CPU),
        ({"bench": {"command": "pytest", "metric": "b.json"}}, "bench.file", "b.json"),
        ({"bench": {"command": "pytest", "metric": {"file": "b"}}}, "bench.file", "b"),
        (
            {"bench": {"command": "pytest", "metric": {"file": "b"}}},
            "bench.metric",
            BenchMetric.FILE,
        ),
        ({"bench": {"command": "pytest", "blocks": 9}}, "bench.blocks", 9),
        ({"bench": {"command": "pytest", "quiet": 0}}, "bench.quiet_s", 0.0),
        ({"bench": {"command": "pytest", "cpus": 0}}, "bench.cpus", 0),
        ({"compare": "stdout"}, "compare", (ComparedOutput(),)),
        ({"compare": ["a/out.txt"]}, "compare", (ComparedOutput(file="a/out.txt"),)),
        ({"repo": {"git": ".", "uncommitted": True}}, "uncommitted", True),
        ({"uncommitted": True}, "uncommitted", True),
        ({"ref": "main"}, "ref", "main"),
        ({"repo": {"git": ".", "ref": "main"}}, "ref", "main"),
        ({"repo": Path("candidates")}, "repo", "candidates"),
        ({"candidates": ["main", "candidates"]}, "candidates", ("main", "candidates")),
        ({"candidates": ()}, "candidates", ()),
        ({"repair": {"command": "my-repairer", "depth": 3}}, "repair.depth", 3),
        ({"refine": {"command": "my-refiner", "calls": 5, "usd": 2}}, "refine.usd", 2.0),
        ({"generate": {"command": ["my-refiner"], "timeout": 9}}, "generate.timeout", 9.0),
        ({"profile": "none"}, "profile.kind", Profile.NONE),
        ({"profile": {"line": ["m:C.f"]}}, "profile", ["m:C.f"]),
        ({"profile": {"kind": "line", "functions": ["m:f"]}}, "profile", ["m:f"]),
        ({"functions": ["m:f"]}, "profile", ["m:f"]),
        ({"limits": {"parallel": "auto", "usd": 5}}, "limits", RaceLimits(usd=5)),
        ({"protect": False}, "protect", ()),
        ({"protect": []}, "protect", ()),
        ({"protect": True}, "protect", PROTECTED),
        ({"protect": ["spec/**"]}, "protect", ("spec/**",)),
        ({"env": {"A": 1}, "pass_env": ["B"]}, "env", {"A": "1"}),
        ({"pass_env": ["B"]}, "pass_env", ("B",)),
        ({"setup": "make deps"}, "setup", ("make", "deps")),
        ({"setup": ["./made-there"]}, "setup", ("./made-there",)),
        ({"sandbox": True}, "sandbox", True),
        ({"name": "sorting"}, "name", "sorting"),
        ({"refine": None}, "refine", None),
    ],
)
def test_every_form_is_understood(keys: dict[str, Any], attribute: str, value: Any) -> None:
    found: Any = asked(**keys)
    for name in attribute.split("."):
        found = getattr(found, name)
    if attribute == "profile":
        value = ProfileSpec(kind=Profile.LINE, functions=tuple(value))
    elif attribute == "repo":
        value = str(Path.cwd() / value)
    elif attribute == "candidates":
        value = tuple(
            str(Path.cwd() / text) if (Path.cwd() / text).exists() else text for text in value
        )
    assert found == value


# ---- what is wrong


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tset": 1}, "tset: unknown key 'tset', did you mean 'test'?"),
        ({"test": None}, "test: is missing"),
        ({"bench": None}, "bench: is missing"),
        (
            {"test": 5},
            "test: must be a command (a list, or one text), or a mapping with command, not 5",
        ),
        ({"test": {}}, "test.command: is missing"),
        (
            {"test": []},
            "test: must be a command: a list of texts and numbers, or one text, not the list []",
        ),
        ({"test": ""}, "test: names no program"),
        (
            {"test": "pytest 'a"},
            'test: unclosed quote or trailing backslash in "pytest \'a"',
        ),
        (
            {"test": "pytest && echo"},
            (
                "test: '&&' needs a shell, and none is used; put it in quotes, or write"
                ' [sh, -c, "pytest && echo"]'
            ),
        ),
        (
            {"test": "A=1 pytest"},
            "test: 'A=1' needs a shell, and none is used; put env before it",
        ),
        (
            {"test": "nowhere-to-be-found"},
            "test: program 'nowhere-to-be-found' not found on PATH; install it, or give its path",
        ),
        (
            {"repair": "./fix.sh"},
            "repair: program './fix.sh' not found (looked in {here})",
        ),
        (
            {"test": {"command": "pytest", "timeout": "10m"}},
            "test.timeout: must be a number of seconds greater than 0, not '10m'",
        ),
        (
            {"test": {"command": "pytest", "junit": "of"}},
            (
                "test.junit: must be 'auto' or 'off', or a file with a '.' or '/' in its path, not"
                " 'of', did you mean 'off'?"
            ),
        ),
        (
            {"test": {"command": "pytest", "junit": "/a.xml"}},
            "test.junit: must be 'auto', 'off', or a file, not '/a.xml'",
        ),
        (
            {"bench": {"command": "pytest", "metric": "wal"}},
            (
                "bench.metric: must be 'wall' or 'cpu', or a file with a '.' or '/' in its path,"
                " not 'wal', did you mean 'wall'?"
            ),
        ),
        (
            {"bench": {"command": "pytest", "blocks": 1}},
            "bench.blocks: must be a whole number from 3 to 1000, not 1",
        ),
        (
            {"bench": {"command": "pytest", "cpus": -1}},
            "bench.cpus: must be a whole number, 0 or more, not -1",
        ),
        ({"compare": 5}, "compare: must be a list of 'stdout' and files, not 5"),
        ({"compare": [5]}, "compare[0]: must be 'stdout', or a mapping with file, not 5"),
        ({"compare": ["stdout", "stdout"]}, "compare[1]: duplicate 'stdout'"),
        (
            {"compare": [{"file": "../a"}]},
            (
                "compare[0].file: must be the path of a file, relative to where the command runs"
                " and within it, not '../a'"
            ),
        ),
        ({"repo": "nowhere"}, "repo: folder '{here}/nowhere' does not exist"),
        (
            {"repo": "https://example.com/a.git"},
            "repo: 'https://example.com/a.git' is a URL; clone it first and give the folder",
        ),
        (
            {"ref": "nope"},
            "ref: 'nope' is not a branch, tag or commit of the repository {here}",
        ),
        (
            {"ref": "main", "uncommitted": True},
            "ref: cannot be combined with uncommitted: true; remove one of them",
        ),
        (
            {"ref": "main", "repo": {"ref": "main"}},
            "ref: is given twice, here and in repo; remove one of them",
        ),
        (
            {"candidates": ["candidates", "nope"]},
            (
                "candidates[1]: 'nope' is not a file, folder or glob in {here}, nor a branch, tag"
                " or commit of {here}"
            ),
        ),
        (
            {"candidates": ["main..main"]},
            (
                "candidates[0]: 'main..main' is not a file, folder or glob in {here}, nor a branch,"
                " tag or commit of {here}"
            ),
        ),
        (
            {"candidates": 5},
            (
                "candidates: must be a path, a glob or a git ref, a mapping with model, or a list"
                " of them, not 5"
            ),
        ),
        (
            {"generate": {"command": "my-refiner", "depth": 2}},
            "generate.depth: unknown key 'depth'; choose from 'command', 'timeout' and 'usd'",
        ),
        (
            {"repair": {"command": "my-repairer", "depth": 0}},
            "repair.depth: must be a whole number, 1 or more, not 0",
        ),
        ({"profile": "lines"}, "profile: must be 'line' or 'none', not 'lines'"),
        ({"profile": 5}, "profile: must be 'line', 'none', or a mapping, not 5"),
        (
            {"profile": "none", "functions": ["m:f"]},
            "functions: cannot be combined with profile: none",
        ),
        (
            {"functions": ["m"]},
            "functions[0]: must be a function, written 'module:function', not 'm'",
        ),
        ({"accept": {"speedup": 0.9}}, "accept.speedup: must be a number from 1 to 1000, not 0.9"),
        (
            {"accept": {"confidence": 1}},
            "accept.confidence: must be a number from 0.5 to under 1, such as 0.95, not 1",
        ),
        ({"accept": 1.05}, "accept: must be a mapping, not 1.05"),
        (
            {"limits": {"parallel": 0}},
            "limits.parallel: must be a whole number, 1 or more, or 'auto', not 0",
        ),
        ({"limits": {"usd": 0}}, "limits.usd: must be a number greater than 0, not 0"),
        (
            {"protect": "tests"},
            "protect: must be a list of globs, or false for nothing, not 'tests'",
        ),
        ({"uncommitted": "yes"}, "uncommitted: must be true or false, not 'yes'"),
        ({"name": "a\nb"}, "name: must be 1 to 100 characters on one line, not 'a\\nb'"),
    ],
)
def test_a_mistake_is_told_by_its_key(folder: Path, keys: dict[str, Any], message: str) -> None:
    assert mistakes(**keys) == [message.replace("{here}", str(folder))]


def test_every_mistake_is_told_in_one_go_with_its_line(write: WriteSuite) -> None:
    write(
        "race.yaml",
        """\
        test: "pytest | tee log"
        bench:
          command: [pytest]
          metric: wallclock.
          block: 7
        candidate: candidates
        accept:
          speedup: 0
        """,
    )
    with pytest.raises(RequestError) as refused:
        load_race(Path("race.yaml"))
    assert [line[: line.index(": ", 14)] for line in refused.value.message.split("\n")] == [
        "race.yaml:1: test",
        "race.yaml:5: bench.block",
        "race.yaml:6: candidate",
        "race.yaml:8: accept.speedup",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("test: &a pytest\nbench: *a\n", "anchors (&a) are not allowed"),
        ("test: pytest\ntest: pytest\n", "race.yaml:2: duplicate key 'test'"),
        ("- pytest\n", 'must be a mapping, not the list ["pytest"]'),
        ("", "the file is empty"),
        ("test: [pytest\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_race_is_refused(write: WriteSuite, text: str, message: str) -> None:
    write("race.yaml", text)
    with pytest.raises(RequestError) as refused:
        load_race(Path("race.yaml"))
    assert message in refused.value.message


def test_a_folder_without_a_repository_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    assert mistakes(repo=str(outside)) == [f"repo: {outside} is not in a git repository"]


# ---- flags over the file


def test_a_flag_counts_and_leaves_the_rest_of_its_part_alone(write: WriteSuite) -> None:
    write(
        "race.yaml",
        "{test: {command: pytest, timeout: 9}, bench: pytest b.py, accept: {confidence: 0.9}}\n",
    )
    flags = [
        FlagValue(flag="--test", steps=("test", "command"), value="python t.py"),
        FlagValue(flag="--metric", steps=("bench", "metric"), value="cpu"),
        FlagValue(flag="--speedup", steps=("accept", "speedup"), value=1.2),
    ]
    request = load_race(Path("race.yaml"), flags)
    assert request.test.command == ("python", "t.py")
    assert request.test.timeout == 9
    assert (request.bench.command, request.bench.metric) == (("pytest", "b.py"), BenchMetric.CPU)
    assert request.accept == Accept(speedup=1.2, confidence=0.9)


def test_what_is_wrong_with_a_flag_is_told_of_the_flag(write: WriteSuite) -> None:
    write("race.yaml", "{test: 5, bench: pytest b.py}\n")
    flags = [
        FlagValue(flag="--test", steps=("test", "command"), value="pytest 'a"),
        FlagValue(flag="--compare", steps=("compare",), value=["stdot"]),
    ]
    with pytest.raises(RequestError) as refused:
        load_race(Path("race.yaml"), flags)
    told = refused.value.message.split("\n")
    assert [line.partition(": ")[0] for line in told] == ["--test", "--compare[0]"]


def test_flags_alone_make_a_race_named_after_its_repository(folder: Path) -> None:
    request = race_of_flags(
        [
            FlagValue(flag="--test", steps=("test", "command"), value="pytest"),
            FlagValue(flag="--bench", steps=("bench", "command"), value="pytest b.py"),
        ]
    )
    assert (request.name, request.source) == (folder.name, None)
    assert request.folder == str(folder)


def test_a_tag_and_a_short_hash_name_candidates(folder: Path) -> None:
    run_git(folder, "tag", "v1")
    commit = run_git(folder, "rev-parse", "HEAD")
    assert asked(candidates=["v1", commit[:10]]).candidates == ("v1", commit[:10])


# ---- commands in one text


@given(st.lists(st.text(st.characters(blacklist_characters="\0"), min_size=1), min_size=1))
def test_what_is_quoted_as_a_shell_quotes_stays_as_it_is(words: list[str]) -> None:
    if not words[0].strip() or "=" in words[0]:
        words = ["program", *words]
    words = [word for word in words if word != "{python}"]
    assert arguments_of(shlex.join(words or ["program"])) == tuple(words or ["program"])


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("a | b", "|"),
        ("a > b", ">"),
        ("a 2>&1", ">"),
        ("a; b", ";"),
        ("a &", "&"),
        ("a || b", "||"),
        ("a < b", "<"),
        ("a $HOME", "$HOME"),
        ('a "$HOME"', "$HOME"),
        ("a ${X}", "${X}"),
        ("a $(b)", "$("),
        ("a `b`", "`"),
    ],
)
def test_what_would_need_a_shell_is_refused(line: str, sign: str) -> None:
    with pytest.raises(NeedsShellError, match="needs a shell") as refused:
        arguments_of(line)
    assert str(refused.value).startswith(repr(sign))
    # What is told instead, typed into a shell, is the same line again.
    instead = refused.value.message_for_flag("--test").partition("or write ")[2]
    flag, told = shlex.split(instead)
    assert (flag, shlex.split(told)) == ("--test", ["sh", "-c", line])
    assert arguments_of(told) == ("sh", "-c", line)


@pytest.mark.parametrize(
    "line", ["a '|' b", 'a "b & c"', "a '$HOME'", "a \\| b", "a b=c", "a test[1]", "a $", "a $/x"]
)
def test_what_a_shell_would_take_as_it_is_is_taken(line: str) -> None:
    assert arguments_of(line)[0] == "a"


# ---- the schema


def test_the_schema_takes_what_is_right_and_refuses_what_is_not() -> None:
    schema = race_schema()
    checker = jsonschema.Draft202012Validator(schema)
    checker.check_schema(schema)
    right: list[dict[str, Any]] = [
        LEAST,
        {**LEAST, "repo": {"git": ".", "uncommitted": True}, "compare": ["stdout", {"file": "a"}]},
        {**LEAST, "bench": {"command": ["a"], "metric": {"file": "b.json"}}, "profile": "line"},
        {**LEAST, "profile": {"line": ["m:f"]}, "protect": False, "candidates": ["a", "b"]},
        {**LEAST, "limits": {"parallel": "auto"}, "repair": "my-repairer"},
    ]
    for race in right:
        assert [error.message for error in checker.iter_errors(race)] == []
    for race in ({}, {**LEAST, "nmae": "x"}, {**LEAST, "accept": {"speedup": 0}}):
        assert list(checker.iter_errors(race))
    json.dumps(schema)


# ---- the page

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "reference" / "race-file.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_models_say_now() -> None:
    written = runpy.run_path(str(DOCS / "generate.py"))["race_page"]()
    assert written == PAGE, "run: python docs/generate.py"


def test_the_page_has_every_key() -> None:
    forms = (RaceForm, RepoForm, TestForm, BenchForm, HookForm, ProfileForm, AcceptForm)
    for form in (*forms, RaceLimitsForm):
        for name in form.model_fields:
            assert f"| `{name}` |" in PAGE


def test_the_examples_on_the_page_load(write: WriteSuite) -> None:
    for example in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        write("race.yaml", example)
        assert load_race(Path("race.yaml")).candidates


def test_the_defaults_in_files_are_those_of_requests() -> None:
    """The forms write them once more, for editors and for the page."""
    plain = asked()
    bench = asked(bench={"command": "pytest bench.py"}).bench
    assert (plain.bench, plain.accept, plain.limits) == (bench, Accept(), RaceLimits())
    assert asked(accept={}, limits={}).accept == Accept()
    assert asked(limits={}).limits == RaceLimits()
    assert asked(repair=["my-repairer"]).repair == HookSpec(command=("my-repairer",))
    assert plain.bench == BenchSpec(command=("pytest", "bench.py"))
    assert plain.test == TestSpec(command=("pytest", "-q"))
