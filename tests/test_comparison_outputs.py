"""Comparisons and histories as people and programs get them: as in `golden/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from paraval.records import Baseline, Spend, StopRule, TrialResult
from paraval.report.baseline_gate import judge_drop
from paraval.report.compare.compare_report import versus_as_dict
from paraval.report.compare.comparison_text import (
    AFTER,
    BEFORE,
    versus_text,
    within_run,
    within_text,
)
from paraval.report.compare.two_runs import ComparisonQuestion, ComparisonSide, SideComparison
from paraval.report.contents import Contents
from paraval.report.history.history import History
from paraval.report.history.history_formats import history_as_dict, history_csv, history_text
from paraval.statistics.anytime import drawn_order
from paraval.text.document import Markdown
from paraval.text.tables import Page
from tests.comparing_kit import Kept, trial
from tests.golden_kit import assert_golden
from tests.history_kit import PARTS, history_of_made, made_run
from tests.page_kit import MadeRun

Ends = Mapping[str, str]


def as_json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def answers(ends: Ends, *, slower: float = 1.0) -> list[TrialResult]:
    """By model: what each case came to, two letters a case, for its repeats."""
    scores = {"P": 0.9, "F": 0.2, "E": None}
    return [
        trial(
            f"case {place // 2 + 1}",
            {"model": model},
            row[place],
            score=scores[row[place]],
            seconds=(1 + place / 10) * slower ** (1 + place % 3),
            usd=0.01 * slower ** (place % 2),
            repeat=place % 2 + 1,
            text=f"{model} says {'yes' if row[place] == 'P' else 'no'}",
            why="as expected" if row[place] == "P" else 'expected "yes"',
        )
        for place in range(42)
        for model, row in ends.items()
        if place < len(row)
    ]


def side(label: str, name: str, trials: list[TrialResult], **info: Any) -> ComparisonSide:
    return ComparisonSide(label=label, name=name, contents=Contents(Kept(trials, id=name, **info)))


def two_runs() -> SideComparison:
    """The prompt changed: the small model got worse, and slower and dearer."""
    before = answers(
        {"small": "PP" * 16 + "FF" * 2 + "PF" + "PE", "large": "PP" * 18 + "FF" * 2, "old": "PF"}
    )
    after = answers(
        {
            "small": "FF" * 9 + "PP" * 7 + "PP" + "FF" + "PP" + "EE" + "PP",
            "large": "PP" * 17 + "FP" + "PP" + "FF",
        },
        slower=1.3,
    )
    return SideComparison(
        side(AFTER, "20260202-120000-bbbb", after, parts={**PARTS, "prompt": "q"}),
        side(BEFORE, "20260131-120000-aaaa", before, parts=PARTS),
        ComparisonQuestion(),
    )


def early_runs() -> SideComparison:
    """The second run stopped early."""
    cases = drawn_order([f"case {number}" for number in range(1, 31)], 1)

    def run(name: str, label: str, ends: str, **info: Any) -> ComparisonSide:
        trials = [trial(case, {}, end) for case, end in zip(cases, ends, strict=True)]
        return side(label, name, trials, **info)

    return SideComparison(
        run("20260202-120000-bbbb", AFTER, "F" * 10 + "S" * 20, stop=StopRule()),
        run("20260131-120000-aaaa", BEFORE, "P" * 30),
        ComparisonQuestion(),
    )


def one_run() -> Contents:
    """Three modes with two models each."""
    ends = {
        ("none", "small"): "F" * 15 + "P" * 5,
        ("none", "large"): "F" * 14 + "P" * 6,
        ("docs", "small"): "P" * 18 + "F" * 2,
        ("docs", "large"): "P" * 18 + "F" * 2,
        ("search", "small"): "F" * 9 + "P" * 10 + "E",
        ("search", "large"): "F" * 8 + "P" * 12,
    }
    trials = [
        trial(f"case {place}", {"mode": mode, "model": model}, row[place], seconds=seconds)
        for place in range(20)
        for seconds, ((mode, model), row) in enumerate(ends.items(), 1)
    ]
    return Contents(Kept(trials))


def four_runs() -> History:
    """A change of the prompt made one mode worse, then a run was interrupted."""
    good, bad = "P" * 36 + "F" * 4, "P" * 20 + "F" * 20
    changed = {**PARTS, "prompt": "other"}
    stopped = {"interrupted": True, "done": 5, "trials": 80}
    runs = (
        made_run(1, {"with tool": good, "without": good}),
        made_run(2, {"with tool": bad, "without": good}, parts=changed),
        made_run(3, {"with tool": "PPF", "without": "PE"}, parts=changed, **stopped),
        made_run(4, {"with tool": good, "without": good[1:] + "P"}, parts=PARTS),
    )
    return history_of_made(*map(paid, runs), older=3)


def paid(run: MadeRun) -> MadeRun:
    """What the last trial cost is unknown."""
    *others, last = run.trials
    known, unknown = Spend(cost_usd=0.01, calls=1), Spend(cost_usd=None, calls=1)
    trials = [*(replace(one, spend=known) for one in others), replace(last, spend=unknown)]
    return replace(run, trials=trials)


def two_runs_json(versus: SideComparison) -> str:
    before, now = versus.reference.contents.book, versus.subject.contents.book
    baseline = Baseline(name=versus.reference.name, max_drop=0.05)
    return as_json(versus_as_dict(versus, judge_drop(now, before, baseline)))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("comparison.txt", lambda: versus_text(two_runs(), Page())),
        ("comparison.md", lambda: versus_text(two_runs(), Markdown())),
        ("comparison.json", lambda: two_runs_json(two_runs())),
        ("comparison_early.txt", lambda: versus_text(early_runs(), Page())),
        ("within.txt", lambda: within_text(within_run("last", one_run()), Page())),
        ("within.md", lambda: within_text(within_run("last", one_run()), Markdown())),
        ("history.txt", lambda: history_text(four_runs(), Page(width=100))),
        ("history.md", lambda: history_text(four_runs(), Markdown())),
        ("history.json", lambda: as_json(history_as_dict(four_runs()))),
        ("history.csv", lambda: history_csv(four_runs())),
    ],
)
def test_it_is_as_in_its_golden_file(name: str, write: Callable[[], str]) -> None:
    assert_golden(name, write())
