"""Reading the three formats: strictly, and with the line of every key."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.documents.files import SIZE_LIMIT_BYTES, read_document, read_toml
from paraval.documents.json import json_places, read_json
from paraval.documents.problems import Document, Location
from paraval.documents.scalars import scalar_text
from paraval.documents.yaml import read_yaml


def read(text: str | bytes, name: str, folder: Path) -> Document | list[str]:
    """The document, or what is wrong with it."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    spot = Location(problems={}, file=name)
    document = read_document(path, spot)
    return document if document is not None else [str(problem) for problem in spot.problems]


def yaml_data(text: str) -> Any:
    document = read_yaml(text, Location(problems={}))
    assert document is not None
    return document.data


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("12:30:00", "12:30:00"),
        ("2024-01-02", "2024-01-02"),
        ("1_000", "1_000"),
        ("010", 10),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        ("0o17", 15),
        ("0x1F", 31),
        ("-5", -5),
        (".5", 0.5),
        ("true", True),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        ("=", "="),
        ("<<", "<<"),
        ("- 1", [1]),
    ],
)
def test_plain_scalars_are_what_yaml_1_2_says(written: str, value: Any) -> None:
    if written.startswith("- "):
        assert yaml_data(written) == value
    else:
        read_value = yaml_data(f"key: {written}")["key"]
        assert read_value == value
        assert isinstance(read_value, bool) == isinstance(value, bool)


@pytest.mark.parametrize("written", ["010", "1.10", "1e3", "0x1F", "7", "1.5"])
def test_a_number_can_still_be_had_as_it_was_written(written: str) -> None:
    assert scalar_text(yaml_data(f"key: {written}")["key"]) == written


BOMB = "a: &a [x]\n" + "".join(
    f"{name}: &{name} [*{before}, *{before}, *{before}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BOMB, "x.yaml:1: anchors (&a) are not allowed; write it out"),
        ("a: *b\n", "x.yaml:1: aliases (*b) are not allowed; write it out"),
        (
            "a: 1\nb: !!python/object/apply:os.system [id]\n",
            "x.yaml:2: tags (tag:yaml.org,2002:python/object/apply:os.system) are not allowed",
        ),
        ("a: !!str 5\n", "x.yaml:1: tags (tag:yaml.org,2002:str) are not allowed"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: duplicate key 'a'"),
        ("a: .nan\n", "x.yaml:1: .nan is not a usable number; put it in quotes"),
        ("a: -.inf\n", "x.yaml:1: -.inf is not a usable number; put it in quotes"),
        ("a: 1e999\n", "x.yaml:1: the number 1e999 is too large; put it in quotes"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: a second document starts here; only one"),
        ("a: [1, 2\nb: 3\n", "x.yaml:2: not valid YAML: "),
        ("a:\n\t- b\n", "x.yaml:2: not valid YAML: the line is indented with a tab; use spaces"),
        ("a:\n  b: 1\n\tc: 2\n", "x.yaml:3: not valid YAML: the line is indented with a tab"),
        ("a:\n  \tb: 1\n", "x.yaml:2: not valid YAML: the line is indented with a tab"),
        ("a: |\n\tx\n", "x.yaml:2: not valid YAML: the line is indented with a tab"),
        ("? [a, b]\n: 1\n", "x.yaml:1: a list or a mapping cannot be a key"),
        ("[" * 500 + "]" * 500, "x.yaml: not valid YAML: nested more than 100 levels deep"),
        ("[" * 100_000, "x.yaml: not valid YAML: nested more than 100 levels deep"),
        ("a: " + "9" * 5000, "x.yaml:1: "),
        ("a: b\x07\n", "x.yaml: not valid YAML: "),
    ],
)
def test_dangerous_or_doubtful_yaml_is_refused_with_its_line(
    tmp_path: Path, text: str, problem: str
) -> None:
    found = read(text, "x.yaml", tmp_path)
    assert isinstance(found, list)
    assert found[0].startswith(problem)


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("a:\n  - b: 1\n   c: 2\n", 3, "right: indent it by 4 spaces, as line 2"),
        ("a:\n  - b: 1\n  c: 2\n", 3, "right: indent it by 4 spaces, as line 2"),
        ("a:\n  b: 1\n c: 2\n", 3, "right: indent it by 2 spaces, as line 2"),
        ("a:\n- b: 1\n  - c: 2\n", 3, "left: indent it by 0 spaces, as line 2"),
        ("a:\n  b: 1\n\n  # why\n   c: 2\n", 5, "left: indent it by 2 spaces, as line 2"),
    ],
)
def test_a_line_with_the_wrong_indentation_is_told_where_it_belongs(
    tmp_path: Path, text: str, line: int, hint: str
) -> None:
    problems = read(text, "x.yaml", tmp_path)
    assert isinstance(problems, list)
    (found,) = problems
    assert found.startswith(f"x.yaml:{line}: not valid YAML: ")
    assert found.endswith(f"; it should be further {hint}")


def test_a_yaml_bomb_is_refused_without_effort(tmp_path: Path) -> None:
    started = time.process_time()
    assert isinstance(read(BOMB, "x.yaml", tmp_path), list)
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1,\n "a": 0}', "x.json:2: duplicate key 'a'"),
        ('{"b": {\n"c": 1,\n"c": 2}}', "x.json:3: duplicate key 'c'"),
        ('{"a":\n NaN}', "x.json:2: not valid JSON: NaN is not a JSON number"),
        ('{"a": -Infinity}', "x.json:1: not valid JSON: -Infinity is not a JSON number"),
        ("[" * 100_000, "x.json: not valid JSON: nested too deeply"),
        ("[" * 101 + "]" * 101, "x.json:1: nested more than 100 levels deep"),
        ('{"a": ' + "9" * 5000 + "}", "x.json: not valid JSON: Exceeds the limit"),
        ('{"a": 1}\n{"b": 2}', "x.json:2: not valid JSON: Extra data"),
        ('{"a": }', "x.json:1: not valid JSON: Expecting value"),
    ],
)
def test_doubtful_json_is_refused_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    found = read(text, "x.json", tmp_path)
    assert isinstance(found, list)
    assert found[0].startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = 1\na = 2\n", "x.toml:2: not valid TOML: Cannot overwrite a value"),
        ("a = \n", "x.toml:1: not valid TOML: Invalid value"),
        ("a = nan\n", "x.toml: not valid TOML: nan is not a usable number"),
    ],
)
def test_doubtful_toml_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    found = read(text, "x.toml", tmp_path)
    assert isinstance(found, list)
    assert found[0].startswith(problem)


def test_times_and_dates_in_toml_are_text() -> None:
    document = read_toml("a = 12:30:00\nb = 2024-01-02", Location(problems={}))
    assert document is not None
    assert document.data == {"a": "12:30:00", "b": "2024-01-02"}


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.yaml", b"", "x.yaml: the file is empty"),
        ("x.yaml", b" \n\n", "x.yaml: the file is empty"),
        ("x.yaml", b"a: 1\nb: \xff\n", "x.yaml:2: not UTF-8 text (byte 0xff); save it as UTF-8"),
        ("x.yaml", "a: 1".encode("utf-16"), "x.yaml: the file is UTF-16; save it as UTF-8"),
        ("x.txt", b"a: 1", "x.txt: unknown file type '.txt'; use .yaml, "),
        ("x.yaml", b"#" * (SIZE_LIMIT_BYTES + 1), "x.yaml: the file is larger than 10 MB; put"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    found = read(content, name, tmp_path)
    assert isinstance(found, list)
    assert found[0].startswith(problem)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    document = read(b"\xef\xbb\xbfa: 1", "x.yaml", tmp_path)
    assert isinstance(document, Document)
    assert document.data == {"a": 1}


def test_folders_missing_files_and_pipes_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").mkdir()
    (tmp_path / "other.yaml").write_text("a: 1")
    problems: dict[Any, None] = {}
    for name in ("suite.yaml", "othr.yaml", "far/away.yaml"):
        read_document(tmp_path / name, Location(problems=problems, file=name))
    assert [str(problem) for problem in problems] == [
        "suite.yaml: is a folder, not a file",
        "othr.yaml: no such file, did you mean 'other.yaml'?",
        "far/away.yaml: no such file",
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a: 1\nb:\n  - x\n  - c: 2\n    d: 3\n", {("b",): 2, ("b", 1, "d"): 5, ("b", 1, "z"): 4}),
        ("\n\na: {b: 1,\n  c: 2}\n", {("a",): 3, ("a", "c"): 4}),
    ],
)
def test_yaml_keys_have_lines(text: str, lines: dict[tuple[str | int, ...], int]) -> None:
    document = read_yaml(text, Location(problems={}))
    assert document is not None
    assert document.spot.root is not None
    assert {path: document.spot.root.line_of(path) for path in lines} == lines


def test_json_keys_have_lines_whatever_stands_in_the_texts() -> None:
    text = '{"a": "{[,:\\"\\n",\n "b": [1,\n {"c": "\\ud83d\\ude00",\n\t"d": []}]}'
    document = read_json(text, Location(problems={}))
    assert document is not None
    root = document.spot.root
    assert root is not None
    assert [root.line_of(path) for path in (("a",), ("b",), ("b", 1, "d"))] == [1, 2, 4]


def test_toml_tables_and_keys_have_lines() -> None:
    text = """\
name = "x"
[target]
timeout = 1
[target.env]
A = "1"
[[cases]]
id = "a"
[[cases]]
id = "b"
[cases.metadata]
n = 1
"""
    document = read_toml(text, Location(problems={}))
    assert document is not None
    root = document.spot.root
    assert root is not None
    paths = [("target", "timeout"), ("target", "env", "A"), ("cases", 1, "id")]
    assert [root.line_of(path) for path in paths] == [3, 5, 9]
    assert root.line_of(("cases", 1, "metadata", "n")) == 11


plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(plain_data, st.sampled_from([None, 1]))
def test_every_value_in_any_json_has_the_line_where_it_begins(
    data: Any, indent: int | None
) -> None:
    text = json.dumps(data, indent=indent)
    places, twice = json_places(text)
    assert twice == []
    lines = text.splitlines()

    def check(value: Any, path: tuple[str | int, ...]) -> None:
        line = lines[places.line_of(path) - 1]
        match value:
            case dict():
                for key, inner in value.items():
                    check(inner, (*path, key))
            case list():
                for number, inner in enumerate(value):
                    check(inner, (*path, number))
            case _:
                assert json.dumps(value) in line

    check(data, ())


def test_a_suite_is_checked_without_plugins_of_pydantic(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("cases: [{id: a}]\ntarget: {command: [echo, a]}\n")
    program = (
        "import os, pydantic.plugin._loader as loader; from paraval import Suite;"
        "Suite.load('suite.yaml'); print(loader._plugins, 'PYDANTIC_DISABLE_PLUGINS' in os.environ)"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "None False\n"
