"""What a race says of itself: reasons that are the right ones, numbers that a person reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from paraval.racing.course.field import _forbidden
from paraval.racing.course.steps import Base, StepKind
from paraval.racing.course.verdicts import extent
from paraval.racing.report.standings import BaselineStanding, Standings
from paraval.racing.stored_race import RaceStart

from paraval.racing.findings import HookAnswer, Proposal, RunDifference, Speedup, StepFinding
from paraval.racing.integrity.protection import LEADS_OUT
from paraval.racing.prepare import _changed
from paraval.racing.report.race_json import race_document
from paraval.racing.report.race_report import RaceReport
from paraval.racing.report.race_words import (
    advice_sentences,
    apply_sentence,
    cost_sentence,
    measured_sentence,
    speedup_cell,
    times,
)
from paraval.racing.request import BenchSpec, HookSpec, RaceLimits, RaceRequest
from paraval.records import Outcome
from tests.race_world import Fate, World, course, go, race, request
from tests.test_race_report import STANDINGS, request_for, run_in

LARGE = Speedup(estimate=33_280.4, low=33_000.0, high=37_233.4, blocks=5)


# ---- numbers


def test_large_ratios_are_written_out_and_alike_everywhere() -> None:
    assert speedup_cell(LARGE) == "33,280× (33,000–37,233)"
    assert extent(LARGE) == "33,000–37,233× as fast"
    assert times(1234.5) == "1,234×"
    assert times(1e300) == "1e+300×"


def test_a_patch_whose_name_begins_with_a_dash_is_no_option(tmp_path: Path) -> None:
    told = apply_sentence(run_in(tmp_path), "-rf")
    assert "-o ./-rf.patch" in told
    assert "git apply ./-rf.patch" in told
    assert "git apply rf.patch" in apply_sentence(run_in(tmp_path), "rf")


@pytest.mark.parametrize(
    ("given", "words"), [(1, "the finalist on"), (2, "jointly for the two finalists")]
)
def test_as_many_finalists_are_spoken_of_as_there_were(given: int, words: str) -> None:
    fates = {f"c{number}": Fate(speed=1.5 + number) for number in range(given)}
    standings = race(fates)[0].course.standings()
    told = measured_sentence(standings, request())
    assert standings.finalists == given
    assert told is not None
    assert words in told
    assert ("two" in told) == (given == 2)


# ---- reasons


def test_a_link_that_leads_out_is_no_matter_of_what_judges() -> None:
    link = f"makes data {LEADS_OUT}: /etc"
    assert _forbidden([link]).endswith("candidates must stay inside their worktree")
    assert "protect" not in _forbidden([link])
    both = _forbidden([link, "edits tests/test_a.py"])
    assert "worktree; it edits tests/test_a.py, which candidates must not change" in both


def _changes(now: RaceRequest, then: RaceRequest, *names: str) -> list[str]:
    given = [Proposal(name=name, patch=name, content=name) for name in names]
    base = Base(tree="t0", commit=None)
    return _changed(now, given, RaceStart(request=then, proposals=(), base=base))


def test_what_changed_since_a_race_began_is_named_by_its_keys() -> None:
    then = request_for()
    bench = BenchSpec(command=("python", "bench.py"), timeout=5.0)
    now = replace(then, bench=bench, repair=HookSpec(), limits=RaceLimits(usd=1.0))
    assert _changes(then, then) == []
    assert _changes(now, then) == ["bench.timeout", "repair"]
    assert _changes(then, then, "newer") == ["candidates"]


# ---- what hooks cost


def cost_of(standings: Standings, asked: RaceRequest, folder: Path) -> object:
    return json.loads(json.dumps(race_document(standings, run_in(folder), asked)))["cost"]


def test_what_hooks_cost_is_told_and_what_is_unknown_of_it(tmp_path: Path) -> None:
    asked = request_for(repair=HookSpec(), refine=HookSpec())
    none, some = STANDINGS, replace(STANDINGS, cost_usd=0.5, unpriced_calls=2)
    unknown = replace(STANDINGS, unpriced_calls=1)
    assert cost_sentence(none, asked) is None
    assert cost_sentence(replace(some, unpriced_calls=0), asked) == (
        "Cost of repair and refine: $0.50."
    )
    assert cost_sentence(some, asked) == (
        "Cost of repair and refine: $0.50, plus 2 calls that reported none."
    )
    assert cost_sentence(unknown, asked) == (
        "Cost of repair and refine: unknown; 1 call reported none (`cost_usd`)."
    )
    assert cost_of(none, asked, tmp_path) == {"usd": 0.0, "unknown_calls": 0}
    assert cost_of(some, asked, tmp_path) == {"usd": 0.5, "unknown_calls": 2}
    assert cost_of(unknown, asked, tmp_path) == {"usd": None, "unknown_calls": 1}


def test_that_a_bound_of_cost_was_passed_is_told() -> None:
    limits = RaceLimits(usd=0.25)
    asked = request_for(repair=HookSpec(), limits=limits)
    told = cost_sentence(replace(STANDINGS, cost_usd=0.5), asked)
    assert told == "Cost of repair: $0.50, over the $0.25 of limits.usd."
    within = cost_sentence(replace(STANDINGS, cost_usd=0.25), asked)
    assert within == "Cost of repair: $0.25."


def test_what_calls_told_of_their_cost_is_added_up_over_a_race() -> None:
    fates = {f"c{number}": Fate(test=Outcome.FAILED, cost_usd=0.1) for number in range(3)}
    one = course(request(hooks={"repair": HookSpec()}), list(fates))
    go(one, World(fates=fates))
    assert one.standings().cost_usd == pytest.approx(0.3)
    assert one.standings().unpriced_calls == 0


def test_a_call_that_told_no_cost_is_counted() -> None:
    one = course(request(hooks={"repair": HookSpec()}), ["bad"])
    world = World(fates={"bad": Fate(test=Outcome.FAILED)})
    out = one.begin()
    while out:
        end = world.end(out.pop(0))
        out += one.handle(replace(end, is_priced=False), 0.0)
    assert one.standings().unpriced_calls == 1


def test_the_report_tells_the_cost_as_text_and_as_markdown(tmp_path: Path) -> None:
    standings = replace(STANDINGS, cost_usd=0.5)
    report = RaceReport(standings, run_in(tmp_path), request_for(repair=HookSpec()))
    report.write(tmp_path / "race.md")
    for told in (report.text(), (tmp_path / "race.md").read_text()):
        assert "Cost of repair: $0.50." in told


# ---- what hooks said that is left out


def test_complaints_are_told_in_their_order_and_counted_as_they_are() -> None:
    one = course(request(hooks={"generate": HookSpec()}))
    lines = tuple(f"line {number}: is no JSON" for number in range(1, 21))
    asked = HookAnswer(complaints=lines, more_complaints=980, remarks=("lines were not read",))
    world, out = World(), one.begin()
    while out:
        step = out.pop(0)
        end = world.end(step)
        if step.kind is StepKind.GENERATE:
            end = replace(end, finding=StepFinding(asked=asked))
        out += one.handle(end, 0.0)
    assert one.standings().notes == (
        *(f"generate: {line}" for line in lines[:5]),
        "generate: 995 more like these",
        "generate: lines were not read",
    )


def test_a_module_in_src_that_was_not_found_is_told_with_what_to_add(tmp_path: Path) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    failed = RunDifference(
        scope="test",
        name="tests/test_a.py",
        status="error",
        baseline="-",
        message="collection failure: ModuleNotFoundError: No module named 'pkg'",
    )
    baseline = BaselineStanding(
        reason="the baseline fails its own tests",
        failing=("tests/test_a.py",),
        differences=(failed,),
    )
    told = list(
        advice_sentences(baseline, run_in(tmp_path), replace(request_for(), repo=str(tmp_path)))
    )
    assert "The module 'pkg' is in src/: add --env PYTHONPATH=src (in a file: `env`)." in told
    elsewhere = list(
        advice_sentences(
            baseline, run_in(tmp_path), replace(request_for(), repo=str(tmp_path / "src"))
        )
    )
    assert len(elsewhere) == len(told) - 1
