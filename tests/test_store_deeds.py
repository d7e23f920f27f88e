"""What attempts did is stored with them, and comes back as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.records import Activity, AttemptResult, Change, FileChange, McpState, Outcome, ToolUse
from paraval.store.encoding import EndedColumns, from_columns, to_columns
from paraval.store.store import Store
from tests.test_store import HOSTILE, Desk, make_plan, results_of

text = st.text()
counts = st.integers(min_value=0, max_value=2**62)
maybe_text = st.none() | text
activities = st.builds(
    Activity,
    turns=st.none() | counts,
    tools=st.lists(
        st.builds(ToolUse, name=text, server=maybe_text, calls=counts, failed=counts), max_size=4
    ).map(tuple),
    mcp=st.dictionaries(text, st.sampled_from(McpState), max_size=3),
    tells_tools=st.booleans(),
    session=maybe_text,
    version=maybe_text,
    model=maybe_text,
)
changes = st.builds(
    Change,
    files_added=counts,
    files_changed=counts,
    files_deleted=counts,
    binary_files=counts,
    lines_added=counts,
    lines_deleted=counts,
    files=st.lists(
        st.builds(
            FileChange,
            path=text,
            status=st.sampled_from(["added", "changed", "deleted"]),
            lines_added=st.none() | counts,
            lines_deleted=st.none() | counts,
            binary=st.booleans(),
        ),
        max_size=4,
    ).map(tuple),
    tampering=st.lists(text, max_size=3).map(tuple),
    unknown=maybe_text,
)


def kept(result: AttemptResult) -> AttemptResult:
    return from_columns(to_columns(result))


@given(
    activity=st.none() | activities,
    change=st.none() | changes,
    cpu_s=st.none() | st.floats(min_value=0, allow_nan=False),
    memory_bytes=st.none() | counts,
)
def test_whatever_an_attempt_did_comes_back_equal(**deeds: Any) -> None:
    result = AttemptResult(outcome=Outcome.PASSED, duration_s=1.0, **deeds)
    assert kept(result) == result


def test_a_thousand_files_come_back() -> None:
    files = tuple(
        FileChange(path=f"[{number}]", status="added", lines_added=None, lines_deleted=None)
        for number in range(1000)
    )
    result = AttemptResult(outcome=Outcome.PASSED, change=Change(files_added=1000, files=files))
    assert kept(result) == result


def test_attempts_stored_before_there_were_deeds_read_without_any() -> None:
    old = from_columns(EndedColumns("passed", 1.0, 0.5, 0, '{"output":{"text":"hi"}}'))
    assert (old.activity, old.change, old.cpu_s, old.memory_bytes) == (None, None, None, None)


def test_attempts_without_deeds_are_stored_as_they_were_before() -> None:
    assert to_columns(AttemptResult(outcome=Outcome.PASSED)).content == "{}"


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_names_of_tools_and_files_can_be_stored_and_written(
    tmp_path: Path, words: str
) -> None:
    result = AttemptResult(
        outcome=Outcome.PASSED,
        activity=Activity(
            tools=(ToolUse(name=words, server=words, calls=1),),
            mcp={words: McpState.CONNECTED},
            session=words,
        ),
        change=Change(
            files_added=1,
            files=(FileChange(path=words, status="added", lines_added=1, lines_deleted=0),),
            tampering=(words,),
        ),
    )
    store = Store(tmp_path / "store")
    with store.create_run(make_plan(1), seed=1) as ledger:
        Desk(ledger).run(0, result)
    stored = results_of(store, store.find("last"))[0].result
    whole = words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert stored.activity is not None
    assert stored.activity.calls_of(whole) == 1
    assert stored.activity.mcp == {whole: McpState.CONNECTED}
    assert stored.change is not None
    assert stored.change.files[0].path == whole
    assert stored.change.tampering == (whole,)


@pytest.mark.parametrize(
    ("part", "spoilt"),
    [
        ("activity", "text"),
        ("activity", 1),
        ("activity", {"tools": [[1, 2]]}),
        ("activity", {"tools": 5}),
        ("activity", {"mcp": {"a": "no state of ours"}}),
        ("activity", {"mcp": "text"}),
        ("activity", {"turns": 1, "stranger": 2}),
        ("change", [1]),
        ("change", {"files": ["abc"]}),
        ("change", {"stranger": 2}),
        ("change", {"tampering": 7}),
    ],
)
def test_damaged_deeds_are_refused_with_errors_that_a_reader_explains(
    part: str, spoilt: Any
) -> None:
    columns = EndedColumns("passed", 1.0, 0.5, 0, json.dumps({part: spoilt}))
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_columns(columns)
