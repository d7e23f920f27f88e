"""A person's labels, and how far a judge agrees with them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import StoreError
from paraval.records import Case, Label, answer_digest
from paraval.report.judge_agreement import agreements_of
from paraval.store.labels import Labels
from tests.conftest import Paraval, WriteSuite

SCENARIO = """
    models:
      small:
        answers: [{match: odd, text: Go away.}, {text: You are welcome!}]
      judge:
        answers:
          - {match: "answer.*Go away", text: '{"reason": "it is rude", "score": 0.1}'}
          - {text: '{"reason": "it is kind", "score": 0.9}'}
"""


@pytest.fixture
def judged(write: WriteSuite, paraval: Paraval) -> None:
    """A run of twelve answers, of which the judge passes six."""
    cases = "\n".join(
        f"      - {{id: c{n}, input: Say hello {'odd' if n % 2 else 'even'} {n}}}"
        for n in range(12)
    )
    write("scenario.yaml", SCENARIO)
    write(
        "suite.yaml",
        f"""
    models:
      small: {{provider: loopback, model: small, scenario: scenario.yaml}}
      judge: {{provider: loopback, model: judge, scenario: scenario.yaml}}
    cases:
{cases}
    target: {{chat: {{model: small, prompt: "{{input}}"}}}}
    fail_under: 0
    graders:
      - judge: {{model: judge, rubric: Is it polite?, name: tone}}
    """,
    )
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0, ended.stderr


def answered(shown: str) -> list[str]:
    return re.findall(r"^--- \d+ of \d+: (c\d+)", shown, re.MULTILINE)


@pytest.mark.usefixtures("judged")
def test_labels_are_asked_for_blindly_and_the_reports_tell_the_agreement(
    paraval: Paraval, folder: Path
) -> None:
    ended = paraval("label", "--sample", "10", input="p\nwhat?\nf\nu\np\ns\nq\n")
    assert ended.returncode == 0, ended.stderr
    asked = answered(ended.stdout)
    assert asked[2:5] == [asked[2], asked[1], asked[2]], "undo goes one back, then on"
    assert "'what?' is none of these keys: p, f, s, u, q" in ended.stderr
    first, *_ = ended.stdout.split("--- 2 of 10")
    before, after = first.split("(q)uit?")
    assert "Say hello" in before
    assert "score" not in before
    assert "score 0." in after, "the verdict is shown once it cannot sway anyone"
    assert "few labels" in ended.stdout

    # It goes on where it stopped: the two labels are kept, the skipped one is asked again.
    ended = paraval("label", "--sample", "10", input="p\n" * 20)
    assert len(answered(ended.stdout)) == 8
    assert set(answered(ended.stdout)).isdisjoint(asked[:2])
    assert (
        "every answer of the sample has a label"
        in paraval("label", "--sample", "10").stderr.lower()
    )

    report = paraval("report", "last", "-o", "report.json", "-o", "report.html", "-o", "report.md")
    sentence = "tone says 50%; with 10 labels: 100% ("
    assert sentence in report.stdout
    assert "agreement 50% (" in report.stdout
    assert "it failed 5 that people passed" in report.stdout
    assert sentence in (folder / "report.html").read_text()
    assert "says 50%; with 10 labels: 100% (" in (folder / "report.md").read_text()
    (told,) = json.loads((folder / "report.json").read_text())["judges"]
    assert (told["grader"], told["labels"], told["kappa"]) == ("tone", 10, 0)
    assert (told["too_kind"], told["too_strict"]) == (0, 5)


@pytest.mark.usefixtures("judged")
def test_labels_survive_a_new_run_with_the_same_answers_and_not_one_with_others(
    paraval: Paraval, write: WriteSuite, folder: Path
) -> None:
    paraval("label", "--sample", "6", input="p\nf\n" * 3)
    assert "with 6 labels: " in paraval("run", "suite.yaml").stdout
    suite = (folder / "suite.yaml").read_text()
    (folder / "suite.yaml").write_text(suite.replace("Is it polite?", "Is it kind?"))
    assert "with 6 labels: " in paraval("run", "suite.yaml").stdout, "for a better rubric"
    write("scenario.yaml", SCENARIO.replace("Go away", "Please go away"))
    assert "3 labels cannot correct it" in paraval("run", "suite.yaml").stdout


@pytest.mark.usefixtures("judged")
def test_labels_come_from_a_spreadsheet_too(paraval: Paraval, folder: Path) -> None:
    ended = paraval("label", "--export", "labels.csv", "--sample", "12")
    assert ended.returncode == 0, ended.stderr
    with (folder / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert "rude" not in (folder / "labels.csv").read_text(), "blind"
    for row in rows:
        row["label"] = "pass" if "welcome" in row["answer"] else "FAIL"
    rows[0]["label"] = ""

    def imported(*lines: dict[str, Any]) -> Any:
        with (folder / "labels.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]))
            writer.writeheader()
            writer.writerows(lines)
        return paraval("label", "--import", "labels.csv")

    ended = imported(*rows)
    assert ended.returncode == 0, ended.stderr
    assert (
        "tone says 50%; with 11 labels: 50% (24–74%); agreement 100% (69–100%), kappa 1.00 (0.3"
        in ended.stdout
    )
    assert imported({"case": rows[0]["case"], "label": "no"}).returncode == 0
    ended = imported({"case": "c1", "label": "maybe"}, {"case": "c77", "label": "pass"})
    assert ended.returncode == 2
    assert "labels.csv:2: the label 'maybe' is neither pass nor fail" in ended.stderr
    assert "labels.csv:3: grader 'tone' has no verdict on c77" in ended.stderr
    ended = imported({"id": "c1", "label": "pass"})
    assert ended.returncode == 2
    assert "no column 'case'" in ended.stderr


@pytest.mark.usefixtures("judged")
def test_a_grader_that_is_not_there_is_never_guessed_at(paraval: Paraval) -> None:
    ended = paraval("label", "--grader", "tome")
    assert ended.returncode == 2
    assert "did you mean 'tone'?" in ended.stderr


def test_a_run_without_a_judge_names_its_suite_and_the_graders_that_can_be_labeled(
    paraval: Paraval, write: WriteSuite, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a, expect: a}]
        target: {command: [echo, "{case.id}"]}
        graders: [equals]
        """,
    )
    paraval("run", "suite.yaml")
    ended = paraval("label")
    assert ended.returncode == 2
    assert "no judge gave a verdict" in ended.stderr
    assert f"of suite '{folder.name}'" in ended.stderr
    assert "paraval runs --suite" in ended.stderr
    assert "'equals'" in ended.stderr
    assert (
        "equals says 100%; with 1 label: 100% ("
        in paraval("label", "--grader", "equals", input="p\n").stdout
    )


@pytest.mark.usefixtures("judged")
def test_damaged_labels_are_named_and_never_cost_a_report(paraval: Paraval, folder: Path) -> None:
    (folder / ".paraval" / "labels.jsonl").write_text('\n{"suite": "suite"}\n')
    report = paraval("report", "last")
    assert report.returncode == 0
    assert "labels.jsonl, line 2: this is not a label" in report.stdout.replace("\n", " ")
    assert paraval("label", input="p\n").returncode != 0


def test_the_last_label_counts_and_may_be_taken_back(tmp_path: Path) -> None:
    labels = Labels(tmp_path)
    one = Label(grader="g", case_id="c", answer="x", passed=True)
    other = Label(grader="g", case_id="d\ud800", answer="y", passed=False)
    labels.add("s", [one, other])
    labels.add("s", [])
    labels.add("t", [Label(grader="g", case_id="c", answer="x", passed=False)])
    assert labels.of("s") == {one.key: True, other.key: False}
    labels.add("s", [Label(grader="g", case_id="c", answer="x", passed=None)])
    assert labels.of("s") == {other.key: False}
    assert labels.of("nothing") == {}
    labels.file.write_bytes(b"\xff")
    with pytest.raises(StoreError, match="not UTF-8"):
        labels.of("s")


def test_a_label_is_for_what_was_seen() -> None:
    case = Case(id="a", input="x", expect="y")
    seen = answer_digest(case, "z")
    assert seen == answer_digest(Case(id="b", input="x", expect="y", tags=("t",)), "z")
    assert seen != answer_digest(case, "Z")
    assert seen != answer_digest(Case(id="a", input="x", expect="Y"), "z")
    assert agreements_of([], [], {("g", "a", seen): True}) == ()
