"""Users' own data: files in their published forms, through `cases`, without Python."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from paraval.errors import SuiteError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import Case
from paraval.settings import Selection
from tests.conftest import Paraval, WriteSuite

pytestmark = pytest.mark.usefixtures("folder")
ECHO = {"command": ["echo", "{input}"]}


def cases_of(cases: Any, **words: Any) -> tuple[Case, ...]:
    return Suite(cases=cases, target=lambda case: case.id, **words).cases


def problems_of(cases: Any, **words: Any) -> list[str]:
    with pytest.raises(SuiteError) as refused:
        cases_of(cases, **words)
    return [str(problem) for problem in refused.value.problems]


def lines(*records: dict[str, Any]) -> str:
    return "\n".join(json.dumps(record) for record in records)


# ---- published forms, by the command

GSM8K = [
    {"question": "3 boxes of 400 pens?", "answer": "3*400=<<3*400=1200>>1200\n#### 1,200"},
    {"question": "Half of 9?", "answer": "9/2 = 4.5\n#### 4.5"},
]
MMLU = [
    {
        "question": "Largest planet?",
        "subject": "astronomy",
        "choices": ["Mars", "Jupiter"],
        "answer": 1,
    },
    {"question": "2 + 2?", "subject": "math", "choices": ["4", "5"], "answer": 0},
]
HUMAN_EVAL = [
    {
        "task_id": "HumanEval/0",
        "prompt": "def add(a, b):\n",
        "entry_point": "add",
        "canonical_solution": "    return a + b\n",
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    }
]
SQUAD = [
    {
        "id": "56be4db0acb8001400a502ec",
        "title": "Rivers",
        "context": "The Nile flows through Egypt.",
        "question": "Where does the Nile flow?",
        "answers": {"text": ["Egypt"], "answer_start": [23]},
    }
]
RUN_TESTS = """
  - command:
      - "{python}"
      - -c
      - |
        import json, sys
        trial = json.load(sys.stdin)
        case = trial["case"]
        code = case["input"] + trial["output"]["text"] + chr(10) + case["metadata"]["test"]
        exec(code + "check(" + case["metadata"]["entry_point"] + ")")
"""


@pytest.mark.parametrize(
    ("name", "text", "suite", "passed"),
    [
        (
            "gsm8k.jsonl",
            lines(*GSM8K),
            """
            cases: {file: gsm8k.jsonl, expect: {field: answer, after: "####"}}
            target: {command: [echo, "The answer is 1,200"]}
            graders: [number]
            """,
            {"case-1": True, "case-2": False},
        ),
        (
            "mmlu.jsonl",
            lines(*MMLU),
            """
            cases: {file: mmlu.jsonl, tags: [subject]}
            target: {command: [sh, -c, 'test "$0" = 4 && echo 5 || echo 1', "{metadata.choices.0}"]}
            graders: [equals]
            """,
            {"case-1": True, "case-2": False},
        ),
        (
            "human-eval.jsonl",
            lines(*HUMAN_EVAL),
            """
            cases: {file: human-eval.jsonl, id: task_id}
            target: {command: [echo, "    return a + b"]}
            graders:
            """
            + RUN_TESTS.replace("\n", "\n            "),
            {"HumanEval/0": True},
        ),
        (
            "squad.json",
            json.dumps({"version": "1", "data": SQUAD}),
            """
            cases: {file: squad.json, input: [question, context], expect: answers.text.0}
            target: {command: [echo, "{input.question} {input.context}"]}
            graders: [contains]
            """,
            {"56be4db0acb8001400a502ec": True},
        ),
        (
            "tests.yaml",
            "- {vars: {name: Zoé}, assert: [{type: contains, value: Bonjour}]}",
            """
            cases: {file: tests.yaml, input: vars, expect: assert.0.value}
            target: {command: [echo, "Bonjour {input.name}"]}
            graders: [contains]
            """,
            {"case-1": True},
        ),
        (
            "tests.csv",
            'name,__expected\nZoé,"Bonjour Zoé"\n',
            """
            cases: {file: tests.csv, input: [name], expect: __expected}
            target: {command: [echo, "Bonjour {input.name}"]}
            graders: [equals]
            """,
            {"case-1": True},
        ),
    ],
    ids=["GSM8K", "MMLU", "HumanEval", "SQuAD", "promptfoo YAML", "promptfoo CSV"],
)
def test_a_public_dataset_runs_as_it_is_published(
    write: WriteSuite,
    paraval: Paraval,
    name: str,
    text: str,
    suite: str,
    passed: dict[str, bool],
) -> None:
    Path(name).write_text(text)
    write("suite.yaml", suite)
    ended = paraval("run", "suite.yaml", "-o", "report.json", "--fail-under", "0.1")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trials = json.loads(Path("report.json").read_text())["trials"]
    assert {trial["case"]: trial["outcome"] == "passed" for trial in trials} == passed


# ---- fields


def test_common_names_are_understood_and_what_was_taken_is_printed_once(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "qa.csv",
        "Question;Answer;region;level\nCapital of France?;Paris;EU;1\nOf Peru?;Lima;SA;2\n",
    )
    write(
        "suite.yaml",
        """
        cases: qa.csv
        target: {command: [echo, "{input} Paris or Lima {metadata.region}"]}
        graders: [contains]
        """,
    )
    notice = "qa.csv: input from 'Question', expect from 'Answer'; 2 other columns are in metadata."
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0
    assert ended.stderr.count(notice) == 1
    assert notice in paraval("plan", "suite.yaml").stdout


@pytest.mark.parametrize("key", ["question", "query", "prompt", "Question"])
@pytest.mark.parametrize("expect", ["answer", "expected_output", "target", "ideal", "reference"])
def test_each_common_name_is_understood_in_a_list_too(key: str, expect: str) -> None:
    [case] = cases_of([{key: "q", expect: "a", "region": "EU"}])
    assert (case.input, case.expect, case.metadata) == ("q", "a", {"region": "EU"})


def test_input_and_expect_win_over_common_names() -> None:
    [case] = cases_of([{"input": "i", "prompt": "p", "expect": "e", "answer": "a"}])
    assert (case.input, case.expect) == ("i", "e")
    assert case.metadata == {"prompt": "p", "answer": "a"}


def test_two_common_names_ask_for_a_mapping(write: WriteSuite) -> None:
    record = {"question": "q", "prompt": "p", "answer": "a"}
    write("qa.jsonl", lines(record, record))
    [problem] = problems_of("qa.jsonl")
    assert problem == (
        "qa.jsonl:1: 2 lines have 'question' and 'prompt', of which one is 'input';"
        " say which: cases: {file: ..., input: question}"
    )
    [first, _] = cases_of({"file": "qa.jsonl", "input": "prompt"})
    assert (first.input, first.expect, first.metadata) == ("p", "a", {"question": "q"})


def test_fields_are_mapped_also_nested_ones(write: WriteSuite) -> None:
    record = {
        "uid": 7,
        "q": {"text": "why", "lang": "en"},
        "gold": ["so", "thus"],
        "area": "x",
        "labels": ["y", 3],
        "title": "A title",
        "metadata": {"kept": True},
    }
    write("qa.jsonl", lines(record))
    source = {
        "file": "qa.jsonl",
        "id": "uid",
        "input": {"question": "q.text", "language": "q.lang"},
        "expect": "gold.1",
        "tags": ["area", "labels"],
        "description": "title",
    }
    [case] = cases_of(source)
    assert case == Case(
        id="7",
        input={"question": "why", "language": "en"},
        expect="thus",
        tags=("x", "y", "3"),
        metadata={
            "q": record["q"],
            "gold": record["gold"],
            "area": "x",
            "labels": ["y", 3],
            "kept": True,
        },
        description="A title",
    )


def test_a_mapped_field_that_no_case_has_is_an_error(write: WriteSuite) -> None:
    write("qa.jsonl", lines({"question": "q", "answer": "a"}))
    assert problems_of({"file": "qa.jsonl", "input": "questin"}) == [
        (
            "cases.input: qa.jsonl has no field 'questin', only 'question' and 'answer'; did you"
            " mean 'question'?"
        )
    ]
    write("deep.jsonl", lines({"uid": 1, "q": {"text": "x"}}))
    assert problems_of({"file": "deep.jsonl", "input": "q.txt"}) == [
        "cases.input: deep.jsonl has no field 'q.txt', only 'uid' and 'q'; did you mean 'q.text'?"
    ]


def test_a_misspelled_column_in_a_mapping_is_one_error_at_its_line_in_the_suite(
    write: WriteSuite, paraval: Paraval
) -> None:
    write("qa.csv", "question,answer\n" + "q,a\n" * 20)
    write(
        "suite.yaml",
        """
        models: {m: {provider: loopback}}
        cases:
          file: qa.csv
          expect: anwser
          input: qestion
        target: {chat: {model: m}}
        graders: [contains]
        """,
    )
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    found = [line.strip() for line in ended.stderr.splitlines() if "qa.csv" in line]
    there = "only 'question' and 'answer'; did you mean"
    assert found == [
        f"error: suite.yaml:5: cases.expect: qa.csv has no column 'anwser', {there} 'answer'?",
        f"error: suite.yaml:6: cases.input: qa.csv has no column 'qestion', {there} 'question'?",
    ]
    assert "missing" not in ended.stderr
    assert "no input" not in ended.stderr


def test_an_empty_cell_is_not_sent_as_a_question(write: WriteSuite, paraval: Paraval) -> None:
    write("qa.csv", "id,question,answer\na,x,x\nb,,y\nc,  ,z\n")
    suite = """
        models: {m: {provider: loopback}}
        cases: %s
        target: %s
        graders: [contains]
        """
    chat = "{chat: {model: m}}"
    write("suite.yaml", suite % ("qa.csv", chat))
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert (
        "qa.csv:3: input: cases 'b' and 'c' have an empty input, which would be sent"
        in ended.stderr
    )
    # A command may read something else, and an empty text that is written is meant.
    write("suite.yaml", suite % ("qa.csv", '{command: [echo, "{input}"]}'))
    assert paraval("plan", "suite.yaml").returncode == 0
    write("suite.yaml", suite % ("[{id: a, input: '', expect: x}]", chat))
    assert paraval("plan", "suite.yaml").returncode == 0


def test_a_typo_in_many_lines_is_one_error_and_nothing_runs(
    write: WriteSuite, paraval: Paraval
) -> None:
    write("qa.jsonl", lines(*({"question": str(n), "anwser": "x"} for n in range(20))))
    write("suite.yaml", "cases: qa.jsonl\ntarget: {command: [echo, x]}\ngraders: [contains]\n")
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert ended.stderr.count("error: ") == 1
    problem = "qa.jsonl:1: 20 lines have the unknown key 'anwser', did you mean 'answer'?"
    assert problem in ended.stderr


def test_the_first_ten_problems_of_a_kind_are_shown_and_the_rest_counted(write: WriteSuite) -> None:
    write("qa.jsonl", lines(*({"id": str(n), "tags": "smoke"} for n in range(30))))
    found = problems_of("qa.jsonl")
    assert len(found) == 11
    assert "qa.jsonl: 20 more problems of this kind in 'tags'" in found
    Path("qa.jsonl").write_text("[1, 2\n" * 30)
    assert len(problems_of("qa.jsonl")) == 11


def test_fields_that_nobody_knows_ask_for_a_mapping(write: WriteSuite) -> None:
    write("qa.jsonl", lines({"text": "a", "label": "b"}, {"text": "c", "label": "d"}))
    [problem] = problems_of("qa.jsonl")
    assert problem.startswith("qa.jsonl:1: 2 lines have no field called 'input', 'question'")
    assert "'query' or 'prompt'" in problem
    assert problem.endswith("cases: {file: ..., input: text}")
    write("deep.jsonl", lines({"uid": 1, "q": {"text": "x"}}))
    [problem] = problems_of("deep.jsonl")
    assert problem.endswith("cases: {file: ..., input: q}")


def test_numbers_are_text_where_text_is_needed_in_their_spelling(write: WriteSuite) -> None:
    write(
        "c.yaml", "- {input: 1.50, expect: 1.50, tags: [1, 2.0]}\n- {input: true, expect: false}\n"
    )
    first, second = cases_of("c.yaml", graders=["equals"])
    assert (first.input, first.expect, first.tags) == ("1.50", "1.50", ("1", "2.0"))
    assert (second.input, second.expect) == ("true", False)
    assert cases_of("c.yaml")[0].expect == 1.5


# ---- formats


def test_any_separator_separates_columns() -> None:
    for name, separator in (("a.csv", ";"), ("b.csv", "|"), ("c.csv", "\t"), ("d.tsv", "\t")):
        rows = ["id,question,answer".replace(",", separator), separator.join(("x", '"a, b"', "c"))]
        Path(name).write_text("\n".join(rows))
        [case] = cases_of(name)
        assert (case.id, case.input, case.expect) == ("x", "a, b", "c"), name


def test_a_folder_stands_for_the_files_of_cases_in_it() -> None:
    Path("data").mkdir()
    Path("data/a.ndjson").write_text(lines({"id": "a", "query": "1"}))
    Path("data/b.md").write_text("---\nexpected: yes\n---\nIs it?\n")
    Path("data/README.md").write_text("About this folder")
    Path("data/notes.xyz").write_text("?")
    first, second = cases_of("data")
    assert (first.id, first.input) == ("a", "1")
    assert (second.id, second.input, second.expect) == ("b", "Is it?", "yes")


def test_a_parquet_file_is_read() -> None:
    table = pa.table(
        {
            "question": ["q1", "q2"],
            "answer": [1, None],
            "day": [dt.date(2026, 1, 2), None],
            "choices": [["a", "b"], []],
        }
    )
    parquet.write_table(table, "qa.parquet")
    first, second = cases_of("qa.parquet")
    assert (first.input, first.expect, second.expect) == ("q1", 1, None)
    assert first.metadata == {"day": "2026-01-02", "choices": ["a", "b"]}
    Path("broken.parquet").write_text("no parquet")
    [problem] = problems_of("broken.parquet")
    assert problem.startswith("broken.parquet: cannot be read as parquet: ")


def save_to_disk(folder: Path, rows: list[dict[str, Any]]) -> None:
    """As `datasets` does it: Arrow streams, and a state that lists them."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    name = str(folder / "data-00000-of-00001.arrow")
    with pa.OSFile(name, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "test"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def test_a_hugging_face_dataset_on_disk_is_read(write: WriteSuite) -> None:
    save_to_disk(Path("one"), SQUAD)
    [case] = cases_of({"file": "one", "expect": "answers.text.0"})
    assert (case.input, case.expect) == ("Where does the Nile flow?", "Egypt")
    save_to_disk(Path("both/train"), [{"question": "a", "answer": "b"}])
    save_to_disk(Path("both/test"), [{"question": "c", "answer": "d"}])
    Path("both/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert problems_of("both") == [
        "both: choose a split of this dataset: it has 'train' and 'test'"
    ]
    assert cases_of({"file": "both", "split": "test"})[0].input == "c"


def test_a_function_reads_files_beside_the_suite(write: WriteSuite, paraval: Paraval) -> None:
    Path("app").mkdir()
    write("app/questions.csv", "q\nhello\n")
    source = (
        "def load():\n    return [{'input': line.strip()} for line in open('questions.csv')][1:]\n"
    )
    write("app/my_questions.py", source)
    suite = "cases: {python: my_questions:load}\ntarget: {command: [echo, '{input}']}\n"
    write("app/suite.yaml", suite + "graders: [{equals: hello}]\n")
    ended = paraval("run", "app/suite.yaml")
    assert ended.returncode == 0, ended.stderr


# ---- ids


def test_any_id_works_in_every_report_and_as_a_selection(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    ids = ["HumanEval/0", "con", "東京 [1] *?", "../up", "=1+1", "a|b", '<i>"&', "-rf"]
    write(
        "suite.yaml", "cases: c.jsonl\ntarget: {command: [echo, '{case.id}']}\ngraders: [equals]\n"
    )
    write("c.jsonl", lines(*({"id": name, "expect": name} for name in ids)))
    formats = ("r.json", "r.csv", "r.md", "r.junit.xml", "r.html", "r.jsonl")
    outputs = [word for name in formats for word in ("-o", name)]
    ended = paraval("run", "suite.yaml", *outputs)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert {one["case"] for one in json.loads((folder / "r.json").read_text())["trials"]} == {*ids}
    one = paraval("run", "suite.yaml", "--case", "東京 [1] *?")
    assert one.stdout.startswith("1 of 8 cases: --case")
    assert "東京 [1] *?" in paraval("logs", "last", "--case", "東京 [1] *?").stdout


def test_an_id_with_a_slash_does_not_become_a_path(write: WriteSuite) -> None:
    target = {"command": ["true"], "output": "out/{case.id}.txt"}
    with pytest.raises(SuiteError) as refused:
        Suite(cases=[{"id": "../../x"}], target=target)
    assert "{case.id} cannot be in a file name: there is a case '../../x'" in str(refused.value)


# ---- descriptions and names


def test_a_description_is_shown_and_does_not_change_a_trial(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    bare, told = ({"id": "a", "input": "i"}, {"id": "a", "input": "i", "description": "Says i"})
    keys = [
        build_plan(Suite(cases=[one], target=ECHO), Selection()).trials[0].key
        for one in (bare, told)
    ]
    assert keys[0] == keys[1]
    write("suite.yaml", f"cases: [{json.dumps(told)}]\ntarget: {json.dumps(ECHO)}\n")
    assert "a (Says i)" in paraval("plan", "suite.yaml").stdout
    assert paraval("run", "suite.yaml", "-o", "page.html").returncode == 0
    assert "<p>Says i</p>" in (folder / "page.html").read_text()


def test_an_unnamed_suite_yaml_is_called_after_its_folder(write: WriteSuite, folder: Path) -> None:
    for name in ("tone", "facts"):
        Path(name).mkdir()
        write(f"{name}/suite.yaml", "cases: [{}]\ntarget: {command: [echo]}\n")
        assert Suite.load(f"{name}/suite.yaml").name == name
    write("tone/other.yaml", "cases: [{}]\ntarget: {command: [echo]}\n")
    assert Suite.load("tone/other.yaml").name == "other"
    write("tone/suite.yaml", "name: mine\ncases: [{}]\ntarget: {command: [echo]}\n")
    assert Suite.load("tone/suite.yaml").name == "mine"


# ---- a part of the cases

NUMBERS = [
    {"id": f"n{number}", "tags": ["even"] if number % 2 == 0 else []} for number in range(50)
]


def selected(cases: list[dict[str, Any]], **words: Any) -> list[str]:
    plan = build_plan(Suite(cases=cases, target=lambda case: case.id), Selection(**words))
    return [trial.case.id for trial in plan.trials]


def test_a_sample_depends_on_its_seed_and_on_nothing_else() -> None:
    drawn = selected(NUMBERS, sample=10, sample_seed=3)
    assert len(drawn) == 10
    assert sorted(selected(NUMBERS[::-1], sample=10, sample_seed=3)) == sorted(drawn)
    assert selected(NUMBERS, sample=10, sample_seed=4) != drawn
    assert set(selected(NUMBERS, sample=20, sample_seed=3)) > set(drawn)
    assert selected(NUMBERS, sample=10, sample_seed=3, limit=4) == drawn[:4]
    assert selected(NUMBERS, tags=("even",), limit=2) == ["n0", "n2"]
    assert len(selected(NUMBERS, limit=99)) == 50


def test_a_limited_run_says_so_and_is_resumed_with_the_same_cases(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(
        "suite.yaml", f"name: part\ncases: {json.dumps(NUMBERS)}\ntarget: {{command: [echo, x]}}\n"
    )
    ended = paraval(
        "run", "suite.yaml", "--sample", "5", "--seed", "2", "--fail-under", "1", "-o", "r.json"
    )
    assert ended.returncode == 0
    assert "5 of 50 cases: --sample 5 --seed 2" in ended.stdout
    assert "Gate passed: 100% (5/5), required 100%, on 5 of 50 cases" in ended.stdout
    cases = json.loads((folder / "r.json").read_text())["run"]["cases"]
    assert cases == {"selected": 5, "offered": 50, "by": "--sample 5 --seed 2"}
    again = paraval("resume", "last")
    assert "5 of 5 trials done" in again.stderr
    assert "on 5 of 50 cases" in again.stdout
    planned = paraval("plan", "suite.yaml", "--limit", "3").stdout
    assert "3 of 50 cases: --limit 3." in planned
