"""The sentences of a race: numbers that a person reads, and reasons that are the right ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paraval.racing.findings import Proposal, RunDifference, Speedup
from paraval.racing.integrity.protection import LEADS_OUT
from paraval.racing.prepare import RaceStart, _changed
from paraval.racing.report.race_report import RaceReport
from paraval.racing.report.race_words import (
    advice_sentences,
    apply_sentence,
    cost_sentence,
    measured_sentence,
    speedup_cell,
    times,
)
from paraval.racing.request import RaceRequest
from paraval.racing.rounds import _forbidden
from paraval.racing.standings import BaselineStanding
from paraval.racing.steps import Base
from paraval.racing.verdicts import IN_TIME, extent
from paraval.records import Model, Provider
from tests.test_race_report import STANDINGS, request_for, run_in


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(0.03, "0.03×"), (1.0, "1.00×"), (9.999, "10.0×"), (1234.5, "1,234×"), (1e300, "1e+300×")],
)
def test_a_ratio_has_the_digits_that_matter(ratio: float, words: str) -> None:
    assert times(ratio) == words


def test_large_ratios_are_written_out_everywhere() -> None:
    large = Speedup(estimate=33_280.4, low=33_000.0, high=37_233.4, blocks=5)
    assert speedup_cell(large) == "33,280× (33,000–37,233)"
    assert extent(large, IN_TIME) == "33,000–37,233× as fast"


@pytest.mark.parametrize(("name", "file"), [("-rf", "./-rf.patch"), ("a b/c", "a-b-c.patch")])
def test_a_patch_has_a_name_that_is_no_option_and_no_path(
    tmp_path: Path, name: str, file: str
) -> None:
    sentence = apply_sentence(run_in(tmp_path), name)
    assert f" -o {file} (then: git apply {file})" in sentence


@pytest.mark.parametrize(
    ("finalists", "finals", "intervals"),
    [
        (0, "wall time.", "Intervals: 95%."),
        (1, "wall time; the finalist on fresh blocks.", "Intervals: 95%."),
        (2, "the 2 finalists on fresh blocks.", "Intervals: 95%, jointly for all finalists."),
    ],
)
def test_the_finalists_are_counted(finalists: int, finals: str, intervals: str) -> None:
    sentence = measured_sentence(replace(STANDINGS, finalists=finalists), request_for()) or ""
    assert finals in sentence
    assert sentence.endswith(intervals)


def test_a_link_that_leads_out_is_no_protected_file() -> None:
    link = f"makes data {LEADS_OUT}: /etc"
    assert _forbidden([link]).endswith("candidates must stay inside their worktree")
    assert "protect" not in _forbidden([link])
    both = _forbidden([link, "edits tests/test_a.py"])
    assert "worktree; it edits tests/test_a.py, which candidates must not change" in both


def test_what_changed_since_a_race_began_is_named_by_its_keys() -> None:
    then = request_for()
    now = request_for(
        bench={"command": ["python", "bench.py"], "timeout": 5.0},
        propose=["propose"],
        limits={"usd": 1.0},
    )

    def changes(now: RaceRequest, *names: str) -> list[str]:
        given = [Proposal(name=name, patch=name, content=name) for name in names]
        return _changed(now, given, RaceStart(request=then, proposals=(), base=Base(tree="t0")))

    assert changes(then) == []
    assert changes(now) == ["bench", "propose"]
    assert changes(then, "newer") == ["candidates"]


@pytest.mark.parametrize(
    ("usd", "unknown", "sentence", "data"),
    [
        (0.0, 0, None, {"usd": 0.0, "unknown_calls": 0}),
        (0.5, 0, "Cost of {}: $0.50.", {"usd": 0.5, "unknown_calls": 0}),
        (
            0.5,
            2,
            "Cost of {}: $0.50, plus 2 calls that reported none.",
            {"usd": 0.5, "unknown_calls": 2},
        ),
        (
            0.0,
            1,
            "Cost of {}: unknown; 1 call reported none (`cost_usd`).",
            {"usd": None, "unknown_calls": 1},
        ),
    ],
)
def test_the_cost_of_proposals_is_shown_with_what_is_unknown_of_it(
    tmp_path: Path, usd: float, unknown: int, sentence: str | None, data: dict[str, Any]
) -> None:
    standings = replace(STANDINGS, cost_usd=usd, unpriced_calls=unknown)
    program = request_for(propose=["propose"])
    asked = request_for(propose={"models": ["large", "small"]})
    models = {
        name: Model(name=name, provider=Provider.OPENAI, model=name, base_url="", account="a")
        for name in ("large", "small")
    }
    for request, who in ((program, "propose"), (replace(asked, models=models), "large and small")):
        assert cost_sentence(standings, request) == (sentence and sentence.format(who))
    assert RaceReport(standings, run_in(tmp_path), program).as_json()["cost"] == data


@pytest.mark.parametrize(("repo", "is_said"), [(".", True), ("src", False)])
def test_a_module_in_src_that_was_not_found_has_advice(
    tmp_path: Path, repo: str, is_said: bool
) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    message = "collection failure: ModuleNotFoundError: No module named 'pkg'"
    difference = RunDifference(
        scope="test", name="tests/test_a.py", status="error", baseline="-", message=message
    )
    baseline = BaselineStanding(
        reason="the baseline fails its own tests",
        failing=("tests/test_a.py",),
        differences=(difference,),
    )
    request = replace(request_for(), repo=str(tmp_path / repo))
    advice = "The module 'pkg' is in src/: add --env PYTHONPATH=src (in a file: `env`)."
    assert (advice in advice_sentences(baseline, run_in(tmp_path), request)) is is_said
