"""What a suite is made of is kept part by part, so that a change between two runs can be told."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import paraval as api
from paraval.plan.build import build_plan
from paraval.plan.trial_keys import case_words, parts_of as plan_parts
from paraval.records import Case
from paraval.report.history.history import PARTS, changes_between, made_of
from paraval.settings import Options, Selection
from paraval.store.store import Store

A = {"id": "a", "input": "x", "expect": "y"}
B = {"id": "b", "input": "x", "expect": "y"}
MODELS = {
    "small": {"provider": "loopback", "model": "small-1"},
    "large": {"provider": "loopback", "model": "large-1"},
}


def chat(**keys: Any) -> api.Suite:
    usual: dict[str, Any] = {
        "name": "greetings",
        "cases": [A, B],
        "models": MODELS,
        "matrix": {"model": ["small", "large"]},
        "target": {
            "chat": {"model": "{model}", "messages": [{"role": "user", "content": "Say {input}"}]}
        },
        "graders": ["contains"],
    }
    return api.Suite(**(usual | keys))


def parts_of(suite: api.Suite, **selection: Any) -> dict[str, str]:
    return dict(build_plan(suite, Selection(**selection)).parts)


def changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    return [one.words for one in changes_between(made_of(before, ()), made_of(now, ()))]


def words(**keys: Any) -> list[str]:
    return changed(parts_of(chat()), parts_of(chat(**keys)))


def with_chat(**keys: Any) -> dict[str, Any]:
    said = {"model": "{model}", "messages": [{"role": "user", "content": "Say {input}"}], **keys}
    return {"target": {"chat": said}}


def test_every_part_that_is_kept_can_be_told() -> None:
    assert set(parts_of(chat())) - {"case_count"} == set(PARTS) - {"code"}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, []),
        ({"description": "other words", "fail_under": 0.5}, []),
        ({"limits": {"parallel": 2}, "retry": {"attempts": 5}}, []),
        ({"cases": [B, A]}, []),
        (
            {"cases": [{**A, "expect": "z"}, B]},
            ["cases changed"],
        ),
        ({"cases": [A]}, ["cases: 2 -> 1"]),
        (with_chat(messages=[{"role": "user", "content": "Shout {input}"}]), ["prompt changed"]),
        (with_chat(max_tokens=7), ["target changed"]),
        ({"target": {**with_chat()["target"], "timeout": 7}}, []),
        ({"matrix": {"model": ["small"]}}, ["models changed", "matrix changed"]),
        (
            {"models": {**MODELS, "large": {"provider": "loopback", "model": "large-2"}}},
            ["models changed"],
        ),
        ({"models": {**MODELS, "unused": MODELS["small"]}}, []),
        ({"graders": ["equals"]}, ["graders changed"]),
        ({"repeats": 3}, ["repeats: 1 -> 3"]),
    ],
)
def test_a_change_is_told_by_the_part_that_changed(keys: dict[str, Any], told: list[str]) -> None:
    assert words(**keys) == told


@pytest.mark.parametrize(
    "selection",
    [
        {"cases": ("a",)},
        {"variants": (("model", "small"),)},
        {"models": ("large",)},
        {"repeats": 4},
    ],
)
def test_filters_change_what_runs_and_not_the_suite(selection: dict[str, Any]) -> None:
    assert parts_of(chat(), **selection) == parts_of(chat())


def test_commands_and_functions_have_a_prompt_too() -> None:
    one = parts_of(chat(target={"command": ["echo", "{input}", "{model}"]}))
    other = parts_of(chat(target={"command": ["printf", "{input}", "{model}"]}))
    assert changed(one, other) == ["prompt changed"]
    elsewhere = chat(target={"command": ["echo", "{input}", "{model}"], "env": {"A": "1"}})
    assert changed(one, parts_of(elsewhere)) == ["target changed"]


def test_the_workspace_is_a_part_by_what_stands_in_it(folder: Path) -> None:
    (folder / "work").mkdir()
    (folder / "work" / "file").write_text("one")
    keys = {"target": {"command": ["cat", "file", "{model}"]}, "workspace": {"folder": "work"}}
    before = parts_of(chat(**keys))
    assert changed(parts_of(chat(target=keys["target"])), before) == ["workspace changed"]
    (folder / "work" / "file").write_text("two")
    assert changed(before, parts_of(chat(**keys))) == ["workspace changed"]


def test_what_only_one_of_two_versions_notes_is_no_change() -> None:
    assert changed({"prompt": "x", "other": "y"}, {"models": "z"}) == []


def test_without_parts_the_names_of_cases_tell() -> None:
    assert [one.words for one in changes_between(made_of({}, "ab"), made_of({}, "abc"))] == [
        "cases: 2 -> 3"
    ]
    assert [one.words for one in changes_between(made_of({}, "ab"), made_of({}, "ac"))] == [
        "cases changed"
    ]
    assert not list(changes_between(made_of({}, "ab"), made_of({}, "ba")))
    assert not list(changes_between(made_of({}, ()), made_of({}, "ba")))


def test_a_run_keeps_them(folder: Path) -> None:
    suite = api.Suite(name="s", cases=[Case(id="a", expect="a")], target=echo, graders=["equals"])
    api.run(suite, options=Options(store=folder / "store"))
    (run,) = Store(folder / "store").runs()
    assert dict(run.parts) == parts_of(suite)


def echo(case: Case) -> str:
    return case.id


def test_many_cases_are_quick() -> None:
    suite = api.Suite(
        name="large",
        cases=[Case(id=f"c{number}", input="say it", expect="it") for number in range(5_000)],
        target=echo,
        graders=["equals"],
    )
    plan = build_plan(suite, Selection())
    began = time.process_time()
    build_plan(suite, Selection())
    whole = time.process_time() - began
    texts = [case_words(case) for case in suite.cases]
    began = time.process_time()
    assert plan_parts(suite.definition, b"", texts) == plan.parts
    assert time.process_time() - began < whole / 3
