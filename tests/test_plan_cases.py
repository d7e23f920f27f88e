"""Cases: from lists, files and functions; their ids, and what is wrong with them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import SuiteError
from paraval.plan.cases.case_list import is_case_id
from paraval.plan.suite import Suite
from paraval.records import Case
from tests.conftest import WriteSuite

pytestmark = pytest.mark.usefixtures("folder")


def cases_of(cases: Any) -> tuple[Case, ...]:
    return Suite(cases=cases, target=lambda case: case.id).cases


def problems_of(cases: Any) -> list[str]:
    with pytest.raises(SuiteError) as refused:
        cases_of(cases)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    "name",
    [
        *("case-1", "a.b_c", "a" * 200, "7", "x.lock", "CON", "nul.txt", "com1", "a.", "-rf"),
        *("../../etc/passwd", "/abs", "a/b", "a\\b", "..", ".hidden", "HumanEval/0", "a [1] * ?"),
        *(
            "é",
            "東京 の 天気",
            "👨\u200d👩\u200d👧",
            "क्\u200cष",
            "What is 2 + 2?",
            "<b>",
            '"x"',
        ),
    ],
)
def test_any_visible_text_is_an_id(name: str) -> None:
    assert is_case_id(name)
    assert cases_of([{"id": name}])[0].id == name


@pytest.mark.parametrize(
    "name",
    ["", "  ", "a" * 201, "a\n", "x\0y", "\x1b[31m", "a\u2028b", "\u202eabc", "\ud800", "\x9b"],
)
def test_ids_that_terminals_and_files_cannot_show_are_refused(name: str) -> None:
    assert not is_case_id(name)
    problem = "cases[0].id: must be 1 to 200 visible characters on one line"
    assert problems_of([{"id": name}])[0].startswith(problem)
    assert problems_of([Case(id=name)])[0].startswith(problem)


def test_a_case_without_an_id_is_named_by_its_position_over_all_files(write: WriteSuite) -> None:
    write("a.jsonl", '{"input": "1"}\n{"id": "named"}\n')
    write("b.yaml", "- input: two\n")
    assert [case.id for case in cases_of(["a.jsonl", "b.yaml"])] == ["case-1", "named", "case-3"]


def test_a_number_as_id_is_taken_as_it_was_written(write: WriteSuite) -> None:
    write("a.yaml", "- {id: 010}\n- {id: 7}\n- {id: 1.50}\n- {id: true}\n")
    assert [case.id for case in cases_of("a.yaml")] == ["010", "7", "1.50", "true"]


def test_all_kinds_of_files_hold_the_same_cases(write: WriteSuite) -> None:
    expected = [
        Case(id="a", input={"q": "why"}, expect="so", tags=("x", "y"), metadata={"level": "1"}),
        Case(id="b", input={"q": "how, then"}, expect=None, tags=(), metadata={"level": "2"}),
    ]
    rows: list[dict[str, Any]] = [
        {
            "id": "a",
            "input": {"q": "why"},
            "expect": "so",
            "tags": ["x", "y"],
            "metadata": {"level": "1"},
        },
        {"id": "b", "input": {"q": "how, then"}, "metadata": {"level": "2"}},
    ]
    write("c.json", json.dumps(rows))
    write("c.yaml", json.dumps(rows))
    write("c.jsonl", f"// two cases\n\n{json.dumps(rows[0])}\n  {json.dumps(rows[1])}  \n")
    write("c.csv", 'id,input.q,expect,tags,level\na,why,so,x; y,1\n\nb,"how, then",,,2\n')
    for name in ("c.json", "c.yaml", "c.jsonl", "c.csv"):
        assert list(cases_of(name)) == expected, name


def test_a_glob_takes_its_files_in_order_and_each_once(write: WriteSuite) -> None:
    Path("deep/er").mkdir(parents=True)
    write("deep/b.jsonl", '{"id": "b"}')
    write("deep/er/a.jsonl", '{"id": "a"}')
    assert [case.id for case in cases_of(["deep/b.jsonl", "**/*.jsonl"])] == ["b", "a"]


def test_no_input_is_told_from_an_empty_one(write: WriteSuite) -> None:
    write("c.jsonl", '{"id": "a"}\n{"id": "b", "input": ""}\n{"id": "c", "input": null}\n')
    assert [case.input for case in cases_of("c.jsonl")] == [None, "", None]
    given = cases_of([Case(id="a"), Case(id="b", input="")])
    assert [case.input for case in given] == [None, ""]


def test_a_case_without_input_is_told_in_its_own_file_where_a_command_uses_it(
    write: WriteSuite,
) -> None:
    write("c.csv", "id,expect\na,x\nb,y\n")
    with pytest.raises(SuiteError) as refused:
        Suite(cases="c.csv", target={"command": ["echo", "{input}"]})
    [problem] = refused.value.problems
    assert str(problem) == (
        "c.csv:2: input: case 'a' and 1 more have no input, but {input} is used"
    )


@pytest.mark.parametrize(
    ("header", "meant"),
    [
        ("id,inptu", {"inptu": "input"}),
        ("id,input,expcet,tag", {"expcet": "expect", "tag": "tags"}),
        ("question,anwser", {"anwser": "answer"}),
        ("input,locks,grader", {"locks": "lock", "grader": "graders"}),
        ("id,in put", {"in put": "input"}),
        ("id,Input.q,inputs.r", {"Input.q": "input.q", "inputs.r": "input.r"}),
    ],
)
def test_a_column_that_is_nearly_a_known_one_is_told(
    write: WriteSuite, header: str, meant: dict[str, str]
) -> None:
    write("c.csv", f"{header}\n{','.join('x' for _ in header.split(','))}\n")
    assert problems_of("c.csv") == [
        f"c.csv:1: the column '{name}' would go to metadata, did you mean '{known}'?"
        for name, known in meant.items()
    ]


@pytest.mark.parametrize("column", ["uid", "stage", "ages", "output", "text", "expectation", "tag"])
def test_other_columns_are_metadata(write: WriteSuite, column: str) -> None:
    write("c.csv", f"id,input,tags,{column}\na,x,t,1\n")
    assert cases_of("c.csv")[0].metadata == {column: "1"}


def test_a_function_may_give_the_cases(write: WriteSuite) -> None:
    write(
        "my_case_source.py",
        """
        import paraval.records as records

        def all_cases():
            yield records.Case(id="a", input="1")
            yield {"id": "b", "input": {"n": 2}}
        """,
    )
    assert [case.id for case in cases_of({"python": "my_case_source:all_cases"})] == ["a", "b"]
    assert [case.id for case in cases_of(lambda: [Case(id="c")])] == ["c"]


@pytest.mark.parametrize(
    ("cases", "problem"),
    [
        ([], "cases: is empty; add at least one case"),
        (5, "cases: must be a list of cases, or a path, not 5"),
        ([{"id": "a"}, "b.yaml"], "cases[1]: mixes cases and paths; use one or the other"),
        ([["a"]], "cases[0]: a case must be a mapping with id, input and expect, not the list"),
        ([{"inptu": "x"}], "cases[0].inptu: unknown key 'inptu', did you mean 'input'?"),
        ([{"input": ["a"]}], "cases[0].input: must be text, or a mapping, not the list"),
        ([{"id": [1]}], "cases[0].id: must be text, not the list [1]"),
        ([{"description": [1]}], "cases[0].description: must be text, not the list [1]"),
        ([{"tags": "smoke"}], "cases[0].tags: must be a list of strings, not 'smoke'"),
        ([{"tags": [[5]]}], "cases[0].tags: must be a list of strings, not the list [[5]]"),
        ([{"metadata": "m"}], "cases[0].metadata: must be a mapping, not 'm'"),
        (
            [{"id": "a"}, {"id": "a"}],
            "cases[1].id: duplicate id 'a'; the first is cases[0]",
        ),
        ([{"expect": {1, 2}}], "cases[0]: a case must be plain data: Object of type set is not"),
        ([Case(id="a", input=float("nan"))], "cases[0]: a case must be plain data: Out of range"),
        ("none.yaml", "cases: 'none.yaml': no such file"),
        ("*.jsonl", "cases: no file matches '*.jsonl' in "),
        ("..", "cases: '..' has no files of cases; use .yaml, "),
        ({"input": "x"}, "cases: needs either file or python"),
        ({"python": "no_such_module:f"}, "cases.python: cannot import 'no_such_module': "),
        (
            {"python": "json"},
            "cases.python: must be a function, written 'module:function', not",
        ),
        ({"pyton": "json:loads"}, "cases.pyton: unknown key 'pyton', did you mean 'python'?"),
        (
            lambda: 5,
            "cases.python: 'tests.test_plan_cases:<lambda>' must return a list of cases, not 5",
        ),
        (
            lambda: 1 / 0,
            "cases.python: 'tests.test_plan_cases:<lambda>' raised ZeroDivisionError: ",
        ),
    ],
)
def test_what_is_wrong_with_cases_is_told_with_its_key(cases: Any, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems_of(cases)), problems_of(cases)


@pytest.mark.parametrize(
    ("name", "text", "problems"),
    [
        (
            "c.jsonl",
            '{"id": "a"}\n{"id": }\n',
            ["c.jsonl:2: not valid JSON: Expecting value (column"],
        ),
        ("c.jsonl", '{"id": "a", "id": "b"}', ["c.jsonl:1: not valid JSON: duplicate key 'id'"]),
        ("c.jsonl", '\n{"input": NaN}', ["c.jsonl:2: not valid JSON: NaN is not a JSON number"]),
        ("c.jsonl", "[" * 100_000, ["c.jsonl:1: not valid JSON: nested too deeply"]),
        ("c.jsonl", '{"id": "x\\ny"}', ["c.jsonl:1: id: must be 1 to 200 visible characters"]),
        (
            "c.jsonl",
            '{"id": "a"}\n\n{"id": "a"}',
            ["c.jsonl:3: id: duplicate id 'a'; the first is c.jsonl, line 1"],
        ),
        ("c.jsonl", "// nothing\n", ["c.jsonl: the file has no cases"]),
        ("c.csv", "", ["c.csv: the file has no cases"]),
        (
            "c.csv",
            "a,b\n1,2\n",
            ["c.csv:1: has no field called 'input', 'question', 'query' or 'prompt'; say which"],
        ),
        (
            "c.csv",
            "id,id,\na,b,c\n",
            ["c.csv:1: duplicate column 'id'", "c.csv:1: a column has no name"],
        ),
        ("c.csv", "input,input.q\na,b\n", ["c.csv:1: has both 'input' and 'input.…' columns"]),
        (
            "c.csv",
            'id,input\na,"1\n2"\nb,2,3\n',
            ["c.csv:4: the row has 3 cells, the header has 2"],
        ),
        ("c.csv", 'id,input\na,"1\n', ["c.csv:2: not valid CSV: unexpected end of data"]),
        ("c.csv", "id,input\na\tb,x\n", ["c.csv:2: id: must be 1 to 200 visible characters"]),
        ("c.yaml", "id: a\n", ["c.yaml:1: must be a list of cases, or a mapping with one list"]),
        (
            "c.yaml",
            "- id: a\n- id: b\n  metadata: 5\n",
            ["c.yaml:3: [1].metadata: must be a mapping"],
        ),
        (
            "c.json",
            '[{"id": "a"},\n{"tags": 5}]',
            ["c.json:2: [1].tags: must be a list of strings, not 5"],
        ),
        (
            "c.xml",
            "x",
            ["c.xml: cases cannot be read from a '.xml' file; use .yaml, .yml, .json, .jsonl"],
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(
    write: WriteSuite, name: str, text: str, problems: list[str]
) -> None:
    write(name, text)
    found = problems_of(name)
    assert len(found) == len(problems)
    for told, start in zip(found, problems, strict=True):
        assert told.startswith(start)


@pytest.mark.parametrize("pattern", ["/**/*.jsonl", "/*/**/x.jsonl", "/tmp/../**"])
def test_a_pattern_that_searches_the_whole_file_system_is_refused(pattern: str) -> None:
    assert problems_of(pattern) == [
        f"cases: '{pattern}' would search the whole file system; start it with a folder"
    ]


def test_a_line_that_is_not_utf_8_is_named() -> None:
    Path("c.jsonl").write_bytes(b'{"id": "a"}\n{"id": "\xff"}\n')
    assert problems_of("c.jsonl") == ["c.jsonl:2: not UTF-8 text (byte 0xff); save it as UTF-8"]


def test_the_problems_of_all_files_come_in_one_go(write: WriteSuite) -> None:
    write("a.yaml", "- [unclosed\n")
    write("b.jsonl", "{}}\n")
    write("c.csv", "id\nx\ty\n")
    found = problems_of("?.*")
    assert [told.split(":")[0] for told in found] == ["a.yaml", "b.jsonl", "c.csv"]


def test_a_hundred_thousand_cases_load_quickly(write: WriteSuite) -> None:
    lines = (
        json.dumps({"id": f"c{number}", "input": {"q": f"What is {number}?"}, "expect": "x"})
        for number in range(100_000)
    )
    Path("many.jsonl").write_text("\n".join(lines))
    path = write(
        "suite.yaml",
        """
        cases: many.jsonl
        target: {command: ["{python}", "{input.q}"]}
        graders: [contains]
        """,
    )
    started = time.process_time()
    assert len(Suite.load(path).cases) == 100_000
    assert time.process_time() - started < 6, "about 1.5 s on a quiet machine"
