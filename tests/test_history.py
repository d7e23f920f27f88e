"""A suite over its runs: what changed, what is shown to be better or worse, and what is partial."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from paraval.records import Failure, Outcome, StopRule
from paraval.report.compare.comparison import Finding, Method
from paraval.report.compare.two_runs import ComparisonQuestion, ComparisonSide, SideComparison
from paraval.report.contents import Contents
from paraval.report.formats.json import to_json
from paraval.report.history.history import (
    Completeness,
    EarlierRuns,
    History,
    shifts_between,
)
from paraval.report.history.history_formats import (
    history_as_dict,
    history_csv,
    history_markdown,
    history_page,
    history_text,
    notes,
    points_of,
)
from paraval.text.tables import Page
from paraval.text.terminal import columns
from tests.history_kit import PARTS, entries_of, history_of_made, made_run
from tests.page_kit import PAYLOADS, MadeRun
from tests.test_report import HOSTILE

GOOD, BAD = "P" * 36 + "F" * 4, "P" * 20 + "F" * 20


def told(entry: Any) -> list[str]:
    return notes(entry, str)


def text_of(history: History, width: int = 100, *, unicode: bool = True) -> str:
    return history_text(history, Page(width=width, unicode=unicode))


# ---- what changed


def test_the_oldest_is_held_against_the_run_that_is_not_shown() -> None:
    before = made_run(0, GOOD, parts={**PARTS, "models": "other"}).info()
    (entry,) = entries_of(made_run(1, GOOD), before=before)
    assert told(entry) == ["models changed"]


def test_a_run_of_some_cases_says_so_and_is_no_change() -> None:
    _, some = entries_of(made_run(1, GOOD), made_run(2, GOOD[:12]))
    assert told(some) == ["12 of 40 cases"]


def test_tests_are_told_by_their_names_and_their_code() -> None:
    one = made_run(1, "PPP", parts={"code": "tree-1"})
    _, other = entries_of(one, made_run(2, "PPPP", parts={"code": "tree-2"}))
    assert told(other) == ["cases: 3 -> 4; code changed"]


# ---- better or worse


def test_a_rate_that_is_not_shown_to_differ_is_not_marked() -> None:
    first, same, worse = entries_of(made_run(1, GOOD), made_run(2, GOOD), made_run(3, BAD))
    assert (same.compared_with, same.shifts) == (first.run.id, ())
    assert [one.comparison.finding for one in worse.shifts] == [Finding.WORSE]


def test_it_is_what_a_comparison_of_the_two_runs_finds() -> None:
    """Also where only some variants differ, and one of them is new."""
    before = {"a": GOOD, "b": GOOD, "c": GOOD}
    now = {"a": BAD, "b": GOOD[1:] + "P", "d": GOOD}
    one, other = (Contents(made_run(n, ends)) for n, ends in enumerate((before, now), 1))
    sides = (
        ComparisonSide(label="now", name="2", contents=other),
        ComparisonSide(label="b", name="1", contents=one),
    )
    by_variant = {
        str(variant): comparison
        for variant, comparison in SideComparison(*sides, ComparisonQuestion()).by_variant
        if comparison.finding.value != "no difference shown"
    }
    shifts = shifts_between(one, other, "the run before")
    assert [str(shift.variant) for shift in shifts] == list(by_variant) == ["{'mode': 'a'}"]
    assert shifts[0].comparison.passing == by_variant["{'mode': 'a'}"].passing


@pytest.mark.parametrize("turned", range(0, 20, 2))
def test_nothing_that_a_comparison_shows_is_missed(turned: int) -> None:
    before, now = "P" * 20 + "F" * 10, "F" * turned + "P" * (20 - turned) + "F" * 10
    one, other = Contents(made_run(1, before)), Contents(made_run(2, now))
    sides = (
        ComparisonSide(label="now", name="2", contents=other),
        ComparisonSide(label="b", name="1", contents=one),
    )
    is_shown = SideComparison(*sides, ComparisonQuestion()).comparison.finding.value == "worse"
    assert bool(shifts_between(one, other, "the run before")) is is_shown


def test_other_models_are_no_history_of_one_another() -> None:
    _, other = entries_of(made_run(1, {"a": GOOD}), made_run(2, {"b": BAD}))
    assert other.shifts == ()


def test_other_cases_are_not_compared() -> None:
    parts = {**PARTS, "cases": "others"}
    _, other = entries_of(made_run(1, GOOD), made_run(2, BAD, parts=parts))
    assert other.compared_with is None


def test_a_run_that_was_interrupted_or_an_outage_hides_no_drop() -> None:
    first, *_, last = entries_of(
        made_run(1, GOOD),
        made_run(2, "P" * 5 + "S" * 35, interrupted=True, done=5),
        made_run(3, "E" * 40),
        made_run(4, BAD),
    )
    assert last.compared_with == first.run.id
    assert told(last)[0].startswith(f"now passes 40 points less than run {first.run.id} (")


def test_errors_are_no_drop() -> None:
    _, last = entries_of(made_run(1, GOOD), made_run(2, "P" * 20 + "E" * 20))
    assert last.shifts == ()


def test_runs_that_may_stop_early_claim_only_what_holds_at_any_time() -> None:
    stop = {"stop": StopRule()}
    _, last = entries_of(made_run(1, GOOD, **stop), made_run(2, "F" * 40, **stop))
    (shift,) = last.shifts
    assert shift.comparison.passing is not None
    assert shift.comparison.passing.method is Method.ANYTIME


# ---- what is partial


@pytest.mark.parametrize(
    ("info", "standing", "words"),
    [
        (
            {"interrupted": True, "done": 12},
            Completeness.INTERRUPTED,
            "interrupted, 12 of 40 trials",
        ),
        ({"ended_at": None, "done": 12}, Completeness.INTERRUPTED, "interrupted, 12 of 40 trials"),
        (
            {"held_back": True, "done": 12},
            Completeness.HELD_BACK,
            "trials pending, 12 of 40 trials",
        ),
        ({"running": True, "done": 12}, Completeness.RUNNING, "still running, 12 of 40 trials"),
    ],
)
def test_what_is_not_complete_is_partial(
    info: dict[str, Any], standing: Completeness, words: str
) -> None:
    history = history_of_made(made_run(1, "P" * 10 + "F" * 2 + "S" * 28, **info))
    (entry,) = history.entries
    assert entry.standing is standing
    assert told(entry) == [f"{words}: partial"]
    text = text_of(history)
    assert "~83.3% (" in text
    assert "~ partial: covers only the trials that had ended" in text
    run = history_as_dict(history)["runs"][0]
    assert (run["state"], run["partial"]) == (standing.value, True)
    assert not list(points_of(history.entries))


def test_an_outage_has_no_rate_and_never_one_of_0() -> None:
    history = history_of_made(made_run(1, GOOD), made_run(2, "E" * 40))
    outage = history.entries[1]
    assert told(outage) == ["nothing was judged: 40 timeout"]
    assert " 0%" not in text_of(history)
    run = history_as_dict(history)["runs"][1]
    assert run["pass_rate"] is None
    assert run["errors"] == 40
    assert [point.rate for point in points_of(history.entries)] == [0.9, None]


@pytest.mark.parametrize(
    ("why", "words"),
    [("early stop: decided", ["stopped early: 2 trials not run"]), ("by itself", [])],
)
def test_an_early_stop_completes_a_run(why: str, words: list[str]) -> None:
    run = made_run(1, {"a": "PS", "b": "FS"}, stop=StopRule(), parts={})
    final = Failure(kind=Outcome.SKIPPED, message=why, lasting=True)
    trials = [
        replace(one, result=replace(one.result, error=final)) if one.result.error else one
        for one in run.trials
    ]
    (entry,) = entries_of(replace(run, trials=trials))
    assert not entry.is_partial
    assert told(entry) == words


def test_a_run_without_any_result_is_told() -> None:
    history = history_of_made(made_run(1, "", trials=40, interrupted=True))
    assert told(history.entries[0])[0] == "interrupted, 0 of 40 trials: partial"
    for write in (text_of, history_markdown, history_csv, history_page):
        assert history.entries[0].run.id in write(history)


# ---- a part of the runs


def test_the_figures_are_those_of_the_chosen_variant() -> None:
    past = EarlierRuns(choice={"mode": "b"})
    runs = made_run(1, {"a": GOOD, "b": BAD}), made_run(2, {"a": GOOD})
    (entry,) = past.entries(runs)
    assert entry.summary.pass_rate == 0.5
    assert past.unfitting == 1


# ---- how it is shown


def runs_of_all_kinds() -> tuple[MadeRun, ...]:
    return (
        made_run(1, {"a": GOOD, "b": GOOD}),
        made_run(2, {"a": BAD, "b": GOOD}, parts={**PARTS, "prompt": "other"}),
        made_run(3, {"a": "E" * 40, "b": "E" * 40}),
        made_run(4, {"a": "PF", "b": "SS"}, interrupted=True, done=2, trials=80),
    )


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("unicode", [True, False])
def test_it_fits_every_terminal(width: int, unicode: bool) -> None:
    names = dict.fromkeys((*HOSTILE, *PAYLOADS[:10], "日本語" * 30, "x" * 300), GOOD)
    history = history_of_made(
        *runs_of_all_kinds(), made_run(5, names, suite=PAYLOADS[0]), older=3, unfitting=1
    )
    text = text_of(history, width, unicode=unicode)
    assert max(map(columns, text.splitlines())) <= width
    assert "\x1b" not in text
    assert unicode or text.isascii()
    assert "errors" in text
    assert "3 older runs not shown" in text


def test_markdown_survives_hostile_names_and_fits_a_comment() -> None:
    names = dict.fromkeys(HOSTILE, GOOD)
    (entry,) = entries_of(made_run(1, names))
    history = History(suite=HOSTILE[3], entries=(entry,) * 150)
    page = history_markdown(history)
    assert len(page) < 65_536
    assert "older runs not shown." in page
    assert "<script" not in page
    assert "<img" not in page
    assert "](http" not in page
    header = next(line for line in page.splitlines() if line.startswith("| run"))
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {header.count("|")}


def test_csv_acts_in_no_spreadsheet() -> None:
    names = dict.fromkeys(HOSTILE, GOOD)
    page = history_csv(history_of_made(made_run(1, GOOD), made_run(2, names)))
    rows = list(csv.DictReader(io.StringIO(page)))
    assert len(rows) == 1 + len(names)
    assert {row["run"] for row in rows} == {"20260131-120100-abcd", "20260131-120200-abcd"}
    for row in rows:
        assert not any(value.lstrip()[:1] in set("=+-@") for value in row.values() if value)


def test_json_tells_all_and_is_json_whatever_the_names() -> None:
    names: dict[str, str] = {**dict.fromkeys(HOSTILE, GOOD), "\udc80": GOOD}
    history = history_of_made(*runs_of_all_kinds(), made_run(5, names))
    loaded = json.loads(to_json(history_as_dict(history)).encode())
    assert [run["changed"] for run in loaded["runs"]] == [[], ["prompt"], ["prompt"], [], []]
    assert loaded["runs"][1]["variants"][0]["pass_rate"] == 0.5


def test_the_page_draws_complete_runs_and_nothing_acts_on_it() -> None:
    names = dict.fromkeys(PAYLOADS, GOOD)
    history = history_of_made(
        *runs_of_all_kinds(), made_run(5, names, suite=PAYLOADS[0]), choice={PAYLOADS[1]: "x"}
    )
    page = history_page(history)
    assert "1 run is not drawn" in page
    assert "less than the run before" in page
    assert "<script" not in page
    assert "<img" not in page
    assert "default-src" in page
    page.encode()


def test_a_rate_over_some_cases_is_not_drawn_among_those_over_all() -> None:
    whole, some = made_run(1, GOOD), made_run(2, GOOD[:10])
    assert len(list(points_of(entries_of(whole, some, made_run(3, GOOD))))) == 2
    few = list(points_of(entries_of(whole, some, made_run(3, GOOD[:10]))))
    assert [point.run for point in few] == [some.info().id, made_run(3, "").info().id]


def test_what_changed_in_a_run_that_is_not_drawn_is_told_with_the_next() -> None:
    parts = {**PARTS, "prompt": "other"}
    entries = entries_of(
        made_run(1, GOOD),
        made_run(2, "P", interrupted=True, parts=parts),
        made_run(3, GOOD, parts=parts),
    )
    assert [point.changed for point in points_of(entries)] == [(), ("prompt",)]
