"""Front matter is edited where it stands: all that is not ours stays byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from paraval.errors import RequestError
from paraval.report.badge import MOST_CHARACTERS, Value, read_front_matter, values_in, with_values

OURS: dict[str, Value] = {"latest_accuracy": 91.7, "test_runs": [50.0, 91.7], "test_model": None}


def edited(text: str, **values: Value) -> str:
    return with_values(read_front_matter(text, "prompt.md"), values or OURS)


def data_in(text: str) -> Any:
    return yaml.safe_load(read_front_matter(text, "prompt.md").yaml)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("latest_accuracy: 5\n", "latest_accuracy: 91.7\n"),
        ("latest_accuracy: 5   # a note\n", "latest_accuracy: 91.7   # a note\n"),
        ("latest_accuracy:\n", "latest_accuracy: 91.7\n"),
        ("latest_accuracy:   # a note\n", "latest_accuracy: 91.7   # a note\n"),
        ("latest_accuracy:     5\n", "latest_accuracy:     91.7\n"),
        ("latest_accuracy: |\n  some\n  text\n\n", "latest_accuracy: 91.7\n\n"),
        ("latest_accuracy: >-\n  some\n# note\n", "latest_accuracy: 91.7\n# note\n"),
        ("latest_accuracy: some words\n  that go on\n", "latest_accuracy: 91.7\n"),
        ("latest_accuracy: [1,\n  2]  # two\n", "latest_accuracy: 91.7\n"),
        ("latest_accuracy:\n- 1\n- 2\n# note\n", "latest_accuracy: 91.7\n# note\n"),
        ("latest_accuracy:  # n\n  a: 1\n  b: {c: 2}\n\n", "latest_accuracy: 91.7  # n\n\n"),
        ("latest_accuracy: 91.70\n", "latest_accuracy: 91.70\n"),
        ("latest_accuracy: !!float 5\n", "latest_accuracy: 91.7\n"),
    ],
)
def test_a_value_is_exchanged_in_its_place(before: str, after: str) -> None:
    around = "---\n# first\nname: 'x'   \n{}tags:   [a,  b]\n---\n\nHello  \r\n"
    assert edited(around.format(before), latest_accuracy=91.7) == around.format(after)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (100.0, "100.0"),
        (12, "12"),
        (None, "null"),
        ([50.0, 91.7], "[50.0, 91.7]"),
        ("865db63d", "865db63d"),
        ("00123456", "'00123456'"),
        ("2026-01-31", "'2026-01-31'"),
        ("null", "'null'"),
        ("a: b # c", "'a: b # c'"),
    ],
)
def test_a_new_key_stands_at_the_end(value: Value, text: str) -> None:
    after = edited("---\nname: x\n# last\n---\nHello", ours=value)
    assert after == f"---\nname: x\n# last\nours: {text}\n---\nHello"


def test_a_text_without_any_gets_some() -> None:
    assert edited("# Hello\n", ours=1) == "---\nours: 1\n---\n# Hello\n"
    assert edited("", ours=1) == "---\nours: 1\n---\n"
    assert edited("\ufeff# Hello\r\n", ours=1) == "\ufeff---\r\nours: 1\r\n---\r\n# Hello\r\n"
    assert edited("--- not this\n---\n", ours=1) == "---\nours: 1\n---\n--- not this\n---\n"


def test_line_ends_and_marks_stay_what_they_are() -> None:
    before = "\ufeff--- \r\nname: x\r\nours: 2\r\n--- \r\nHello\nworld\r"
    after = edited(before, ours=1, other=2)
    assert after == "\ufeff--- \r\nname: x\r\nours: 1\r\nother: 2\r\n--- \r\nHello\nworld\r"


def test_it_may_be_empty_or_end_in_dots() -> None:
    assert edited("---\n---\nHello", ours=1) == "---\nours: 1\n---\nHello"
    assert edited("---\n# c\n---\n", ours=1) == "---\n# c\nours: 1\n---\n"
    assert edited("---\na: 1\n...\n---\n", ours=1) == "---\na: 1\nours: 1\n...\n---\n"


def test_nothing_changes_where_all_is_said_already() -> None:
    text = "---\ntest_runs:\n  - 50\n  - 91.70\nlatest_accuracy: 91.7\ntest_model: ~\n---\nHello"
    assert edited(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("---\nname: x\n", "line 1 and has no end"),
        ("---", "line 1 and has no end"),
        ("---\n\tname: x\n---\n", "line 2"),
        ("---\na: 1\nb: 2\na: 3\n---\n", "it has a duplicate key"),
        ("---\n- a\n- b\n---\n", "lines of `key: value`"),
        ("---\njust text\n---\n", "lines of `key: value`"),
        ("---\n{a: 1, b: 2}\n---\n", "cannot be used"),
        ("---\n  a: 1\n---\n", "cannot be used"),
        ("---\n'ours' : 5\n---\n", "without changing others"),
        ("---\na: [1\n---\n", "cannot be used"),
        ("---\na: \x07\n---\n", "not valid YAML"),
        ("---\na: " + "[" * 500 + "\n---\n", "cannot be used"),
        ("---\na: " + "x" * MOST_CHARACTERS + "\n---\n", "longer than 32,000"),
        ("---\nours: &x 5\nb: *x\n---\n", "cannot be used"),
        ("---\na: *nobody\n---\n", "cannot be used"),
        ("---\na: 1\n--- x\n---\n", "cannot be used"),
    ],
)
def test_what_cannot_be_edited_is_told(text: str, told: str) -> None:
    with pytest.raises(RequestError, match=rf"(?s)prompt\.md.*{told}"):
        edited(text, ours=1)


def test_values_are_told_as_they_are_written() -> None:
    text = "---\nhash: 00123456\nruns: [1, 2.50]\nnone:\nempty: ''\nday: 2026-01-31\n---\n"
    front = read_front_matter(text, "x")
    assert values_in(front, ("hash", "runs", "none", "empty", "day", "absent")) == {
        "hash": "00123456",
        "runs": ["1", "2.50"],
        "none": None,
        "empty": "",
        "day": "2026-01-31",
    }


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PLAIN = (
    st.none() | st.floats(0, 100) | st.lists(st.floats(0, 100), max_size=3) | st.dates().map(str)
)
KEYS = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=6)


@settings(deadline=None, max_examples=40)
@given(
    others=st.dictionaries(KEYS, NESTED, min_size=1, max_size=6),
    known=st.dictionaries(st.sampled_from([*OURS]), PLAIN),
    flow=st.sampled_from([None, False, True]),
    body=st.text(),
    model=st.none() | st.text(),
)
def test_whatever_stands_there_only_ours_changes(
    others: dict[str, Any], known: dict[str, Any], flow: bool | None, body: str, model: str | None
) -> None:
    data = {**others, **known}
    dumped = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    text = f"---\n{dumped}---\n{body}"
    values: dict[str, Value] = {**OURS, "test_model": model}
    try:
        after = edited(text, **values)
    except RequestError:
        assert dumped.startswith("{") or "\n---" in dumped or "\n..." in dumped
        return
    assert after.endswith(f"---\n{body}")
    # As it was read before: not all that can be dumped is read back the same.
    expected = {**data_in(text), **values}
    assert data_in(after) == expected
    assert list(data_in(after)) == list(expected)
    assert edited(after, **values) == after


def test_a_key_of_several_words_is_fine_beside_a_name() -> None:
    text = "---\nname: x\nlast seen: y\n---\n"
    assert data_in(edited(text))["last seen"] == "y"
