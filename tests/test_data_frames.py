"""One row per trial: data frames, CSV, JSON and JSON Lines with the same columns; notebooks."""

from __future__ import annotations

import csv
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import paraval as api
from paraval.errors import RequestError
from paraval.report.formats.trial_rows import COLUMNS
from tests.conftest import Paraval, WriteSuite
from tests.test_report import HOSTILE, hostile_report, small_report, written
from tests.test_show import only_run

ROOT = Path(__file__).parents[1]
SUITE = """
    models: {quick: {provider: loopback}, slow: {provider: loopback}}
    cases:
      - {id: one, input: {q: say one}, expect: one, tags: [easy, short],
         metadata: {region: north, level: 2, pages: [1, 2]}}
      - {id: two, input: {q: say two}, expect: three}
    matrix: {model: [quick, slow]}
    target: {chat: {model: "{model}", prompt: "{input.q}"}}
    graders: [contains, {regex: {pattern: say, name: says}}]
"""


def at(trial: dict[str, Any], column: str) -> Any:
    """The value of a column in a trial of the JSON report."""
    value: Any = trial
    for key in column.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def same(one: Any, other: Any) -> bool:
    is_missing = not isinstance(one, list | dict) and pd.isna(one)
    return other is None if is_missing else bool(one == other)


def test_a_data_frame_csv_and_json_of_a_run_have_the_same_columns(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    files = ("r.json", "r.jsonl", "r.csv")
    paraval("run", "suite.yaml", *(word for name in files for word in ("-o", name)))
    report = api.load_report("last", store=folder / ".paraval")
    frame = report.to_dataframe()

    with (folder / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(frame.columns) == ["run", "suite", *rows[0]]
    assert set(frame.pop("run")) == {only_run(folder).name}
    assert set(frame.pop("suite")) == {folder.name}
    trials = json.loads((folder / "r.json").read_text())["trials"]
    assert [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()] == trials
    computed = {
        "retries",
        "metadata.pages",
        *(name for name in frame.columns if name.startswith("grade.")),
    }
    for row, trial in zip(frame.to_dict("records"), trials, strict=True):
        differ = [n for n in frame.columns if n not in computed and not same(row[n], at(trial, n))]
        assert differ == []

    assert frame.groupby("variant.model")["passed"].mean().to_dict() == {"quick": 0.5, "slow": 0.5}
    wrong = frame[frame["passed"].eq(False)].iloc[0]
    assert wrong["input"] == {"q": "say two"}
    assert (wrong["expect"], wrong["output"], wrong["outcome"]) == ("three", "say two", "failed")
    assert wrong["reason"] == wrong["grade.contains.reason"] == '"three" not in "say two"'
    assert (wrong["grade.contains.passed"], wrong["grade.says.score"]) == (False, 1.0)
    assert frame["usage.input_tokens"].gt(0).all()
    assert frame["tokens"].eq(frame["usage.input_tokens"] + frame["usage.output_tokens"]).all()
    assert set(frame.explode("tags")["tags"].dropna()) == {"easy", "short"}
    assert frame["metadata.region"].dropna().tolist() == ["north"] * 2
    assert frame["metadata.pages"].dropna().tolist() == ["[1, 2]"] * 2
    assert (rows[0]["metadata.level"], rows[-1]["metadata.level"]) == ("2", "")
    assert trials[0]["metadata"] == {"region": "north", "level": 2, "pages": [1, 2]}
    assert rows[0]["tags"] == "easy; short"
    assert rows[0]["input"] == '{"q": "say one"}'
    assert "<th>slow vs quick</th><td>" in report._repr_html_()


def test_errors_are_rows_too_without_a_verdict() -> None:
    frame = small_report().to_dataframe("pandas")
    assert len(frame) == 5
    error = frame[frame["outcome"] == "timeout"].iloc[0]
    assert error["passed"] is pd.NA
    assert (error["error.kind"], error["error.message"]) == ("timeout", "no answer within 60 s")
    assert frame["passed"].mean() == 0.75, "over judged trials"


def test_polars_is_used_where_only_that_is_installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # polars takes 160 MB, so its one class that is called has a stand-in here.
    frame = "class DataFrame:\n    def __init__(self, data, **options):\n"
    (folder / "polars.py").write_text(f"{frame}        self.data, self.options = data, options\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    made = small_report().to_dataframe()
    assert type(made).__module__ == "polars"
    assert made.data["outcome"] == ["passed", "failed", "passed", "timeout", "passed"]
    assert made.data["variant.model"][:2] == ["small", "large"]


def test_without_a_library_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RequestError, match="needs pandas or polars, and neither is") as refused:
        small_report().to_dataframe()
    assert refused.value.hint == "pip install pandas"
    with pytest.raises(RequestError, match="polars is not installed") as refused:
        small_report().to_dataframe("polars")
    assert refused.value.hint == "pip install polars"
    with pytest.raises(RequestError, match="unknown library 'numpy'"):
        small_report().to_dataframe("numpy")  # type: ignore[arg-type]  # what is tested


def test_a_notebook_shows_the_gate_and_the_variants() -> None:
    html = small_report()._repr_html_()
    assert "Gate passed: 60%" in html
    assert "<th>small · with-tool</th><td>100% (21–100%)</td>" in html
    assert "<script" not in html
    assert "src=" not in html + written(small_report(), ".csv")


def test_a_notebook_shows_hostile_text_escaped() -> None:
    html = hostile_report()._repr_html_()
    assert not [text for text in HOSTILE if "<" in text and text in html]
    assert "<script" not in html
    assert "<img" not in html


def test_the_reference_of_columns_is_what_the_table_says() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "generate.py"))["columns_page"]()
    assert page == (ROOT / "docs" / "reference" / "trial-columns.md").read_text(), "run: make docs"
    for column in COLUMNS:
        assert f"| `{column.name}` |" in page


def test_a_run_that_is_not_there_or_a_race_has_no_report(folder: Path) -> None:
    with pytest.raises(RequestError, match="has no runs yet"):
        api.load_report(store=folder)
