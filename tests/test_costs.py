"""What a run cost, what was free, what was left for later: as it is stored, and as it is told."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from lxml import etree
from wcwidth import wcswidth

from paraval.cli.commands.plan import sentences
from paraval.cli.run_report import ways_to_resume
from paraval.models.response_reader import CUT
from paraval.records import (
    Activity,
    Attempt,
    AttemptResult,
    Budget,
    Failure,
    Grade,
    Outcome,
    Output,
    Plan,
    RunInfo,
    Spend,
    TrialResult,
)
from paraval.report.formats.run_text import TextDetail, run_text
from paraval.report.report import Report
from paraval.report.report_file import source_from_file
from paraval.report.summary.attempt_lines import end_in_lines
from paraval.runner.forecast import Forecast
from paraval.schedule.simulation import Bound
from paraval.store.encoding import from_columns, to_columns
from paraval.store.store import Store
from paraval.text.tables import Page
from tests.test_report import HOSTILE, Made, ended, report_of
from tests.test_store import Desk, _execute, finish, judged, make_plan, results_of

PAID = Spend(calls=1, cost_usd=0.25, usage={"input_tokens": 100, "output_tokens": 20})
UNPRICED = Spend(calls=1, cost_usd=None, usage={"input_tokens": 100, "output_tokens": 20})
CACHED = Spend(cached=1, cached_usd=0.25, cached_usage=PAID.usage, cached_s=4.0)
CACHED_EARLIER = Spend(cached=1)
"""As versions stored it that kept nothing of the first call."""
BUDGET_SPENT = "budget of $5.00 reached"
NO_USAGE = "the provider reported no usage: tokens and cost are unknown"
QUOTA = "account team-a: its quota is used up; add credit"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def spending(spend: Spend | None, judging: Spend | None = None, **other: Any) -> AttemptResult:
    """A chat trial's end; unlike a command's, its output tells no cost of its own."""
    result = replace(judged(**other), output=Output(text="hello"))
    return replace(result, spend=spend, judging=judging)


def refused(spend: Spend | None = None) -> AttemptResult:
    error = Failure(kind=Outcome.RATE_LIMITED, message="429", account="account:a", retry_after=2.0)
    return AttemptResult(outcome=Outcome.RATE_LIMITED, error=error, duration_s=0.1, spend=spend)


def left(reason: str) -> AttemptResult:
    """What the driver records for a trial that is not run now."""
    failure = Failure(kind=Outcome.SKIPPED, message=reason)
    return AttemptResult(outcome=Outcome.SKIPPED, error=failure)


def leave(desk: Desk, index: int, reason: str) -> None:
    trial = desk.ledger.plan.trials[index]
    number = desk.ledger.attempts_made(index) + 1
    folder = desk.ledger.attempt_folder(trial, number)
    attempt = Attempt(trial=trial, number=number, folder=folder)
    desk.end(attempt, left(reason), final=False)
    desk.wait()


# ---- what is stored


def test_spend_judging_agreement_and_where_an_error_came_from_are_kept() -> None:
    grade = Grade(score=0.7, passed=True, reason="polite", grader="judge", agreement=2 / 3)
    error = Failure(
        kind=Outcome.INFRA_ERROR,
        message="no such model",
        account="account:team-a",
        lasting=True,
        stops="model:haiku",
    )
    result = AttemptResult(
        outcome=Outcome.INFRA_ERROR,
        grades=(grade,),
        error=error,
        spend=replace(UNPRICED, cached=2),
        judging=PAID + CACHED,
    )
    assert from_columns(to_columns(result)) == result


spends = st.builds(
    Spend,
    calls=st.integers(0, 9),
    cached=st.integers(0, 9),
    cost_usd=st.none() | st.floats(0, 1e6),
    usage=st.dictionaries(st.sampled_from(["input_tokens", "other"]), st.floats(0, 1e9)),
)


@given(spend=st.none() | spends, judging=st.none() | spends)
def test_unknown_free_and_nothing_spent_stay_three_things(
    spend: Spend | None, judging: Spend | None
) -> None:
    result = AttemptResult(outcome=Outcome.PASSED, spend=spend, judging=judging)
    assert from_columns(to_columns(result)) == result


def test_a_trial_spent_what_all_its_attempts_did(store: Store) -> None:
    with store.create_run(make_plan(2), seed=1) as ledger:
        desk = Desk(ledger)
        desk.end(desk.start(0), refused(PAID), final=False)
        desk.end(desk.start(0), refused(), final=False)
        desk.run(0, spending(PAID, judging=PAID))
        desk.end(desk.start(1), refused(UNPRICED), final=False)
        desk.run(1, spending(PAID))
        desk.run(2, spending(None))

    first, second, third, _ = results_of(store, store.find("last"))
    assert first.spend == PAID + PAID
    assert first.judging == PAID
    assert first.retries == {Outcome.RATE_LIMITED: 2}
    assert first.attempts == 3
    assert first.total_s == pytest.approx(0.7)
    assert second.spend is not None
    assert (second.spend.cost_usd, second.spend.calls) == (None, 2), "one of them is unknown"
    assert (third.spend, third.judging, third.retries) == (None, None, {})


def test_what_a_trial_without_a_result_spent_counts_too(store: Store) -> None:
    with store.create_run(make_plan(1), seed=1) as ledger:
        desk = Desk(ledger)
        desk.end(desk.start(0), refused(PAID), final=False)
        leave(desk, 0, BUDGET_SPENT)

    first = results_of(store, store.find("last"))[0]
    assert (first.outcome, first.attempts, first.spend) == (Outcome.SKIPPED, 1, PAID)
    assert first.retries == {Outcome.RATE_LIMITED: 1}


def test_a_run_stored_before_there_was_a_spend_tells_what_its_outputs_told(store: Store) -> None:
    plan = make_plan(1)
    run = finish(store.create_run(plan, seed=1), {0: judged()})
    _execute(
        Path(run.folder) / "run.db",
        "UPDATE attempt SET content = json_remove(content, '$.spend', '$.judging')",
    )

    first, _ = results_of(store, run)
    assert first.spend == Spend(cost_usd=0.25, usage={"tokens": 3})
    with store.reader(run) as reader:
        assert Report(reader).summary.cost_usd == 0.5
    with store.resume_run(run.id, plan) as ledger:
        assert ledger.spent_usd() == 0.5


def test_a_sum_keeps_all_that_is_known_of_it() -> None:
    some = PAID + UNPRICED + PAID
    assert (some.cost_usd, some.known_usd, some.calls) == (None, 0.5, 3)
    assert (UNPRICED + UNPRICED).known_usd == 0
    assert ((PAID + PAID).cost_usd, (PAID + PAID).known_usd) == (0.5, 0.5)


def test_the_known_part_of_a_trial_s_cost_is_stored_added_up_and_told(
    store: Store, tmp_path: Path
) -> None:
    with store.create_run(make_plan(1), seed=1) as ledger:
        desk = Desk(ledger)
        desk.end(desk.start(0), refused(UNPRICED), final=False)
        desk.run(0, spending(PAID, judging=PAID + UNPRICED))
        desk.run(1, spending(UNPRICED, judging=PAID))

    run = store.find("last")
    with store.reader(run) as reader:
        report = Report(reader)
        text = text_of(report)
        as_json, as_csv, *_ = files_of(report, tmp_path)
    target = "target at least $0.25 (2 trials of unknown cost)"
    judges = "judges at least $0.50 (1 trial of unknown cost)"
    assert f"Cost: at least $0.75 ({target}, {judges})" in " ".join(text.split())
    first, second = json.loads(as_json)["trials"]
    assert [one["cost_usd"] for one in (first, first["judging"], second)] == [0.25, 0.25, None]
    assert first["cost_unknown"]
    rows = list(csv.DictReader(io.StringIO(as_csv)))
    known = [float(row[name] or 0) for row in rows for name in ("cost_usd", "judging.cost_usd")]
    assert sum(known) == 0.75, "a column adds up to what the report tells"
    with store.resume_run(run.id, make_plan(1)) as ledger:
        assert ledger.spent() == (0.75, True)


def test_attempts_that_never_ended_make_a_cost_a_lower_bound(store: Store) -> None:
    """Their engine was killed: their calls may have been billed, and nobody knows."""
    plan = make_plan(2)
    with store.create_run(plan, seed=1) as ledger:
        desk = Desk(ledger)
        desk.start(0)
        desk.start(1)
        desk.wait()
    with store.resume_run(ledger.run.id, plan) as again:
        desk = Desk(again)
        desk.run(0, spending(PAID, judging=PAID))
        desk.run(2, spending(PAID, judging=PAID))
        desk.start(3)
        desk.wait()
        live = _report(store, again.run)
    after = _report(store, again.run)

    assert [one["unended"] for one in live.to_dict()["trials"]] == [1, 1, 0, 0], "the last runs"
    assert "target at least $0.50 (2 trials of unknown cost), judges" in text_of(live)
    assert [one["unended"] for one in after.to_dict()["trials"]] == [1, 1, 0, 1]
    told = text_of(after)
    least = "at least $0.50 (3 trials of unknown cost)"
    assert f"Cost: at least $1.00 (target {least}, judges {least})" in " ".join(told.split())
    assert "or never ended" in " ".join(told.split())


def test_attempts_that_never_ended_say_nothing_of_costs_where_none_are_told(store: Store) -> None:
    with store.create_run(make_plan(1), seed=1) as ledger:
        desk = Desk(ledger)
        desk.start(0)
        desk.run(1, spending(None))
    report = _report(store, ledger.run)
    assert report.to_dict()["trials"][0]["unended"] == 1
    assert "ost" not in text_of(report)


def _report(store: Store, run: RunInfo) -> Report:
    """All of it read at once: what it tells is as it is now."""
    with store.reader(run) as reader:
        return Report(Made(trials=list(reader.results()), info_with=vars_of(reader.info())))


def vars_of(run: RunInfo) -> dict[str, Any]:
    return {field.name: getattr(run, field.name) for field in fields(run)}


def test_what_was_spent_on_trials_that_changed_or_went_is_told_apart(store: Store) -> None:
    with store.create_run(make_plan(2), seed=1) as ledger:
        desk = Desk(ledger)
        for index in range(4):
            desk.run(index, spending(PAID, judging=PAID))
    fewer = make_plan(1)
    with store.resume_run(ledger.run.id, fewer) as ledger:
        assert ledger.spent_usd() == 2.0
    report = _report(store, ledger.run)
    told = "Another $1.00 was spent on trials that have since changed or left the suite\n"
    assert told in text_of(report)
    assert "Cost: $1.00 (target $0.50, judges $0.50)\n" in text_of(report)
    run = report.to_dict()["run"]
    assert (run["dropped_cost_usd"], run["dropped_cost_unknown"]) == (1.0, False)
    assert store.runs() == [store.find("last")], "remembered as it was read"

    with store.resume_run(ledger.run.id, make_plan(2)) as ledger:
        pass
    assert "Another" not in text_of(_report(store, ledger.run)), "they are in the suite again"


def test_what_is_not_known_of_trials_that_went_is_said(store: Store) -> None:
    with store.create_run(make_plan(3), seed=1) as ledger:
        desk = Desk(ledger)
        desk.run(0, spending(PAID))
        desk.start(4)
        desk.run(2, spending(PAID))
    with store.resume_run(ledger.run.id, make_plan(2)) as ledger:
        gone = _report(store, ledger.run)
    assert "Unknown: the cost of trials that have since changed or left the suite\n" in (
        text_of(gone)
    )
    assert gone.to_dict()["run"]["dropped_cost_usd"] is None
    with store.resume_run(ledger.run.id, make_plan(1)) as ledger:
        gone = _report(store, ledger.run)
    assert "At least another $0.25 was spent on trials" in text_of(gone)


def test_why_each_attempt_was_tried_again_is_in_the_report(store: Store) -> None:
    with store.create_run(make_plan(1), seed=1) as ledger:
        desk = Desk(ledger)
        desk.end(desk.start(0), refused(), final=False)
        desk.run(0, spending(PAID))
    first = _report(store, ledger.run).to_dict()["trials"][0]
    error = {"kind": "rate_limited", "message": "429", "lasting": False, "lost": False}
    assert first["retry_errors"] == [error]


def test_what_was_spent_so_far_holds_all_attempts_and_judges(store: Store) -> None:
    with store.create_run(make_plan(2), seed=1) as ledger:
        assert ledger.spent_usd() == 0.0
        desk = Desk(ledger)
        desk.end(desk.start(0), refused(PAID), final=False)
        desk.run(0, spending(PAID, judging=PAID))
        desk.run(1, spending(UNPRICED, judging=PAID))
        desk.run(2, spending(Spend(calls=1, cost_usd=math.nan)))
        with pytest.raises(RuntimeError, match="before the ledger is opened"):
            ledger.spent_usd()

    changed = make_plan(1, salt="another key")
    with store.resume_run(store.find("last").id, changed) as ledger:
        assert ledger.spent_usd() == pytest.approx(1.0), "of trials that are gone, too"


# ---- trials left for later


def test_a_trial_left_for_later_is_skipped_with_the_reason_and_has_no_attempt(
    store: Store,
) -> None:
    plan = make_plan(2)
    ledger = store.create_run(plan, seed=1)
    desk = Desk(ledger)
    desk.run(0, judged())
    leave(desk, 1, BUDGET_SPENT)
    leave(desk, 2, QUOTA)
    live = results_of(store, ledger.run)
    ledger.close(interrupted=False, held_back=True)

    run = store.find("last")
    for results in (live, results_of(store, run)):
        assert [_reason(result) for result in results[1:3]] == [BUDGET_SPENT, QUOTA]
        assert [result.attempts for result in results] == [1, 0, 0, 0]
        assert results[1].total_s == 0.0
    with store.reader(run) as reader:
        assert [attempt.index for attempt in reader.attempts()] == [0]
    assert run.done == 1


def _reason(result: TrialResult) -> str:
    assert result.outcome is Outcome.SKIPPED
    assert result.result.error is not None
    return result.result.error.message


def test_a_resume_runs_what_was_left_and_numbers_attempts_from_the_first(store: Store) -> None:
    plan = make_plan(1)
    ledger = store.create_run(plan, seed=1)
    desk = Desk(ledger)
    desk.end(desk.start(0), refused(), final=False)
    leave(desk, 0, QUOTA)
    leave(desk, 1, QUOTA)
    ledger.close(interrupted=False, held_back=True)

    with store.resume_run(ledger.run.id, plan) as again:
        assert dict(again.done) == {}
        assert [again.attempts_made(index) for index in (0, 1)] == [1, 0]
        desk = Desk(again)
        assert [_reason(result) for result in results_of(store, again.run)] == [
            "not run yet: the run is in progress"
        ] * 2
        desk.run(0, judged())
        desk.run(1, judged())

    results = results_of(store, store.find("last"))
    assert [(result.outcome, result.attempts) for result in results] == [
        (Outcome.PASSED, 2),
        (Outcome.PASSED, 1),
    ]
    with store.reader(store.find("last")) as reader:
        numbers = [(attempt.index, attempt.number) for attempt in reader.attempts()]
    assert numbers == [(0, 1), (0, 2), (1, 1)]


def test_the_last_engine_s_reason_counts_until_the_trial_is_attempted_again(store: Store) -> None:
    plan = make_plan(1)
    ledger = store.create_run(plan, seed=1)
    desk = Desk(ledger)
    leave(desk, 0, QUOTA)
    leave(desk, 1, QUOTA)
    ledger.close(interrupted=False, held_back=True)

    second = store.resume_run(ledger.run.id, plan)
    desk = Desk(second)
    leave(desk, 0, BUDGET_SPENT)
    desk.start(1)
    desk.wait()
    second.close(interrupted=True)

    reasons = [_reason(result) for result in results_of(store, store.find("last"))]
    assert reasons == [BUDGET_SPENT, "interrupted; a resume runs them again"]


def test_a_run_held_back_is_not_interrupted_and_done_is_neither(store: Store) -> None:
    plan = make_plan(1)
    ledger = store.create_run(plan, seed=1)
    leave(Desk(ledger), 0, BUDGET_SPENT)
    ledger.close(interrupted=False, held_back=True)
    assert _standing(ledger.run) == (True, False)
    assert _standing(store.find("last")) == (True, False)
    assert _standing(store.runs()[0]) == (True, False)

    stopped = store.resume_run(ledger.run.id, plan)
    assert _standing(stopped.run) == (False, False), "it is worked on"
    stopped.close(interrupted=True, held_back=True)
    assert _standing(store.find("last")) == (False, True), "what a person did comes first"

    assert _standing(finish(store.resume_run(ledger.run.id, plan))) == (False, False)


def _standing(run: RunInfo) -> tuple[bool, bool]:
    return run.held_back, run.interrupted


def test_a_trial_that_has_a_result_cannot_be_left_for_later(store: Store) -> None:
    ledger = store.create_run(make_plan(1), seed=1)
    desk = Desk(ledger)
    desk.run(0, judged())
    leave(desk, 0, QUOTA)
    ledger.close(interrupted=False)
    first = results_of(store, ledger.run)[0]
    assert (first.outcome, first.attempts) == (Outcome.PASSED, 1)


# ---- what earlier runs tell


def test_history_tells_what_an_attempt_costs_and_how_many_tokens_it_takes(store: Store) -> None:
    more = replace(PAID, cost_usd=0.75, usage={"input_tokens": 300, "output_tokens": 60})
    finish(store.create_run(make_plan(2), seed=1), _ends(spending(PAID, judging=PAID)))
    finish(store.create_run(make_plan(2), seed=1), _ends(spending(more)))

    for _ in range(2):
        rows = {(row.case_id, row.variant["model"]): row for row in store.history("greetings").rows}
        assert rows["case-0", "small"].mean_cost_usd == pytest.approx(0.625), "judges included"
        assert rows["case-0", "small"].mean_tokens == pytest.approx(240), "the target's alone"
        assert rows["case-0", "large"].mean_cost_usd is None
        assert rows["case-0", "large"].mean_tokens == 120
        assert (rows["case-1", "small"].mean_cost_usd, rows["case-1", "small"].n) == (None, 2)
        # From the folders themselves.
        (store.root / "index.db").unlink()


def _ends(first: AttemptResult) -> dict[int, AttemptResult]:
    nothing = replace(judged(), output=None)
    return {0: first, 1: spending(UNPRICED), 2: nothing, 3: nothing}


def test_answers_from_the_cache_tell_nothing_of_how_long_a_trial_takes(store: Store) -> None:
    plan = make_plan(1)
    finish(store.create_run(plan, seed=1), {0: spending(PAID, duration_s=8.0)})
    partly = replace(CACHED, calls=1)
    finish(
        store.create_run(plan, seed=1),
        {0: spending(CACHED, duration_s=0.001), 1: spending(partly, duration_s=2.0)},
    )

    rows = {row.variant["model"]: row for row in store.history("greetings").rows}
    assert (rows["small"].n, rows["large"].n) == (1, 2)
    assert rows["small"].mean_log == pytest.approx(math.log(8.0))
    assert rows["small"].mean_cost_usd == 0.25


# ---- what is told


def trial(
    model: str, spend: Spend | None, judging: Spend | None = None, **other: Any
) -> TrialResult:
    return ended(variant={"model": model}, spend=spend, judging=judging, **other)


def text_of(report: Report, width: int = 100) -> str:
    detail = TextDetail(verbose=True)
    return run_text(report, Page(width=width, color=False, unicode=True), detail)


def files_of(report: Report, folder: Path) -> Iterator[str]:
    for ending in (".json", ".csv", ".md", ".junit.xml"):
        report.write(folder / f"report{ending}")
        yield (folder / f"report{ending}").read_text()


def test_a_price_that_is_unknown_is_never_told_as_nothing(tmp_path: Path) -> None:
    report = report_of(trial("local", UNPRICED), trial("local", UNPRICED, repeat=2))

    text = text_of(report)
    assert "unknown" in text.splitlines()[1]
    assert "Cost: unknown\n" in text
    assert "A cost is unknown if the model has no `price` in the registry" in text
    as_json, as_csv, markdown, junit = files_of(report, tmp_path)
    document = json.loads(as_json)
    assert document["summary"]["cost_usd"] is None
    assert document["summary"]["total_cost_usd"] is None
    assert document["summary"]["trials_of_unknown_cost"] == 2
    assert (document["trials"][0]["cost_usd"], document["trials"][0]["cost_unknown"]) == (
        None,
        True,
    )
    row = next(csv.DictReader(io.StringIO(as_csv)))
    assert (row["cost_usd"], row["cost_unknown"]) == ("", "true"), "no word among numbers"
    assert "Cost: unknown\n" in markdown
    assert '<property name="trials_of_unknown_cost" value="2"/>' in junit
    assert "cost_usd" not in junit
    assert "$0" not in text + markdown + junit


def test_a_number_of_calls_that_nobody_reported_is_null_and_not_1() -> None:
    silent = Spend(calls=1, calls_unknown=True, cost_usd=0.5)
    assert from_columns(to_columns(replace(judged(), spend=silent))).spend == silent
    told = report_of(trial("haiku", silent), trial("gpt", PAID)).to_dict()
    assert [one["calls"] for one in told["trials"]] == [None, PAID.calls]
    assert told["summary"]["calls"] is None
    reused = text_of(report_of(trial("haiku", silent), trial("gpt", CACHED)))
    assert "Reused from equal requests: 1 of 2 answers" in reused, "at least"


def test_a_row_of_which_nothing_is_known_is_unknown_and_no_lower_bound() -> None:
    """Refused calls are known to be free, which says nothing of those that were answered."""
    unbilled = trial("quota", Spend(), outcome=Outcome.SKIPPED, why=QUOTA)
    report = report_of(trial("quota", UNPRICED), unbilled, trial("a", PAID))
    rows = text_of(report).splitlines()[1:3]
    assert ["unknown" in row for row in rows] == [True, False]
    assert report.to_dict()["summary"]["variants"][0]["cost_usd"] is None


def cut(result: TrialResult) -> TrialResult:
    return replace(result, result=replace(result.result, notes=(CUT, NO_USAGE)))


def test_cached_answers_count_with_the_time_of_their_first_call() -> None:
    cached = [trial("a", CACHED, total_s=0.5, repeat=repeat) for repeat in (1, 2, 3)]
    asked = trial("a", PAID, total_s=8.0, repeat=4)
    judged_anew = trial("a", CACHED, PAID, total_s=1.0, repeat=5)
    both = trial("a", CACHED, CACHED, total_s=0.5, repeat=6)
    summary = report_of(*cached, asked, judged_anew, both).summary
    assert (summary.median_s, summary.p95_s) == (4.5, 7.25), "judges are not counted"
    report = report_of(*cached)
    assert (report.summary.median_s, report.summary.speedup) == (4.5, None)
    assert "3/3  $0.75   4.5 s" in text_of(report).splitlines()[1]
    assert "3 trials in 2.0 s\n" in text_of(report)


def test_cached_answers_whose_first_call_is_unknown_have_no_time_and_an_unknown_cost() -> None:
    cached = [trial("a", CACHED_EARLIER, total_s=0.001, repeat=repeat) for repeat in (1, 2, 3)]
    asked = trial("a", PAID, total_s=8.0, repeat=4)
    judged_anew = trial("a", CACHED_EARLIER, PAID, total_s=4.0, repeat=5)
    assert report_of(*cached, asked, judged_anew).summary.median_s == 8.0
    report = report_of(*cached)
    assert (report.summary.median_s, report.summary.speedup) == (None, None)
    assert text_of(report).splitlines()[1].split()[4:7] == ["unknown", "-", "-"]
    assert "Cost: unknown; spent: $0.00\n" in text_of(report)
    unpriced = report_of(trial("a", PAID, UNPRICED + CACHED_EARLIER))
    whole = "Cost: at least $0.25 (target $0.25, judges unknown)\n"
    assert whole in text_of(unpriced)


def test_what_is_spent_now_and_the_whole_cost_survive_a_report_file(tmp_path: Path) -> None:
    spends = [CACHED, PAID + CACHED, UNPRICED + CACHED, CACHED_EARLIER, PAID, UNPRICED]
    report = report_of(*(trial(f"m{number}", one) for number, one in enumerate(spends)))
    report.write(tmp_path / "report.json")
    entries = json.loads((tmp_path / "report.json").read_text())["trials"]
    assert [(one["cost_usd"], one["spent_usd"], one["cached_s"]) for one in entries] == [
        (0.25, 0.0, 4.0),
        (0.5, 0.25, 4.0),
        (0.25, 0.0, 4.0),
        (None, 0.0, None),
        (0.25, 0.25, None),
        (None, 0.0, None),
    ]
    read = [one.spend for one in source_from_file(str(tmp_path / "report.json")).results()]
    for one, spend in zip(spends, read, strict=True):
        assert spend is not None
        assert (spend.original_usd, spend.cost_usd, spend.known_usd, spend.cached_s) == (
            one.original_usd,
            one.cost_usd,
            one.known_usd,
            one.cached_s,
        )
        assert dict(spend.original_usage) == dict(one.original_usage)


def test_cached_answers_are_counted_and_what_is_spent_now_is_told_apart() -> None:
    report = report_of(trial("haiku", CACHED, CACHED), trial("haiku", PAID, PAID, repeat=2))

    text = text_of(report)
    assert "Reused from equal requests: 1 of 2 answers, 1 of 2 judge verdicts" in text
    assert "Cost: $1.00 (target $0.50, judges $0.50); spent: $0.50\n" in text
    whole = text_of(report_of(trial("haiku", CACHED)))
    assert "Cost: $0.25; spent: $0.00\n" in whole
    assert "Reused from equal requests: 1 of 1 answer" in whole


def test_an_attempt_is_told_by_its_end_its_notes_its_costs_and_its_answer() -> None:
    end = cut(trial("a", PAID, outcome=Outcome.FAILED)).result
    some = PAID + UNPRICED
    assert list(end_in_lines(replace(end, spend=some, judging=CACHED), goes_on=False)) == [
        'failed: [cut at max_tokens] expected "hello"',
        f"note: {NO_USAGE}",
        'contains: failed, score 0: expected "hello"',
        "cost: at least $0.25 (tokens: 200 in and 40 out)",
        "judges: $0.25 (cached; tokens: 100 in and 20 out)",
        "answer:",
        "hi",
    ]
    assert list(end_in_lines(refused(Spend()), goes_on=False)) == ["rate_limited: 429"]
    unknown = replace(refused(), spend=Spend(calls=1, cost_usd=None))
    assert list(end_in_lines(unknown, goes_on=False))[-1] == "cost: unknown"
    silent = replace(unknown, activity=Activity(tells_tools=False))
    assert list(end_in_lines(silent, goes_on=False))[-1] == "tools: not reported"
    assert list(end_in_lines(None, goes_on=True)) == ["still running"]
    assert list(end_in_lines(None, goes_on=False)) == ["never ended: the run was stopped"]


def test_a_suite_that_costs_nothing_speaks_of_no_cost(tmp_path: Path) -> None:
    report = report_of(ended(), ended(repeat=2))
    written = [text_of(report), *list(files_of(report, tmp_path))[2:]]
    assert not any("cost" in text.lower() or "$" in text for text in written)


def skipped(reason: str, number: int, model: str = "haiku") -> list[TrialResult]:
    return [
        trial(model, None, outcome=Outcome.SKIPPED, why=reason, repeat=repeat + 1)
        for repeat in range(number)
    ]


def test_many_reasons_are_told_in_few_lines() -> None:
    reasons = [one for number in range(100) for one in skipped(f"reason {number}", 1)]
    report = report_of(*reasons)
    assert text_of(report).count(" skipped: ") == 5
    assert sum(report.summary.skipped_by_reason.values()) == 100
    assert len(report.summary.skipped_by_reason) <= 21


@pytest.mark.parametrize("width", [40, 80])
def test_reasons_in_words_of_others_neither_act_nor_break_the_page(
    tmp_path: Path, width: int
) -> None:
    for reason in HOSTILE:
        report = report_of(*skipped(reason, 1))
        text = text_of(report, width)
        assert "\x1b" not in text
        assert all(wcswidth(line) <= width for line in text.splitlines()), reason
        markdown = list(files_of(report, tmp_path))[2]
        told = next(line for line in markdown.splitlines() if "skipped: " in line)
        assert told.startswith("1 skipped: <code>")
        assert "<" not in told.removeprefix("1 skipped: <code>").removesuffix("</code>")


def test_three_models_fit_beside_their_figures_on_a_common_terminal() -> None:
    report = report_of(
        *(trial(model, PAID, PAID) for model in ("haiku", "gpt-oss-120b", "local")),
        *skipped(BUDGET_SPENT, 12),
    )
    table = text_of(report, width=80).split("\n\n")[0].splitlines()
    assert len(table) == 4, "a line a model"
    assert all("$" in line for line in table[1:])


def test_junit_with_costs_is_valid(tmp_path: Path) -> None:
    schema = etree.XMLSchema(etree.parse(Path(__file__).parent / "junit.xsd"))
    report = report_of(trial("haiku", PAID, PAID), trial("local", UNPRICED), trial("c", CACHED))
    report.write(tmp_path / "junit.xml")
    tree = etree.parse(tmp_path / "junit.xml")
    schema.assertValid(tree)
    told = [
        {one.attrib["name"]: one.attrib["value"] for one in suite.iter("property")}
        for suite in tree.iter("testsuite")
    ]
    assert told == [
        {"cost_usd": "0.25", "judging.cost_usd": "0.25"},
        {"trials_of_unknown_cost": "1"},
        {"cost_usd": "0.25", "spent_usd": "0", "cached": "1"},
    ]


# ---- how it ends, and how to go on


def test_a_run_held_back_is_judged_as_far_as_it_can_be() -> None:
    undecided = report_of(
        trial("a", PAID), *skipped(BUDGET_SPENT, 2), held_back=True, fail_under=1.0
    )
    assert undecided.exit_code == 3
    assert "because of 2 skipped trials" in undecided.gate.sentence
    missed = report_of(
        ended(Outcome.FAILED), *skipped(BUDGET_SPENT, 2), held_back=True, fail_under=1.0
    )
    assert missed.exit_code == 1
    met = report_of(trial("a", PAID), *skipped(QUOTA, 1), held_back=True, fail_under=0.5)
    assert met.exit_code == 0


def _ways(*trials: TrialResult) -> list[str]:
    return list(ways_to_resume(report_of(*trials, held_back=True), "paraval resume RUN"))


def test_a_spent_budget_asks_for_one_that_does_for_all() -> None:
    half = [trial("a", replace(PAID, cost_usd=0.498), repeat=repeat) for repeat in range(1, 11)]
    (way,) = _ways(*half, *skipped(BUDGET_SPENT, 10))
    assert way == (
        "The next trial would exceed the budget. Resume with: paraval resume RUN --budget 15"
    )


def test_the_next_budget_is_more_than_the_last_even_where_little_was_spent() -> None:
    cheap = trial("a", replace(PAID, cost_usd=0.001))
    (way,) = _ways(cheap, *skipped("budget of $5.00 reached", 1))
    assert way.endswith("--budget 10")


def test_where_nothing_is_known_of_costs_no_budget_is_made_up() -> None:
    """The first trial may cost many times the budget: a plan knows, what was spent does not."""
    (way,) = _ways(*skipped("budget of $5.00 reached", 1))
    assert way == (
        "The next trial would exceed the budget. paraval plan SUITE estimates the cost of trials. "
        "Resume with: paraval resume RUN --budget USD"
    )


def test_the_next_budget_does_for_the_dear_ones_and_for_what_is_gone_too() -> None:
    """Cheap trials and cached ones came first: the mean of all says little of the rest."""
    little = "budget of $0.10 reached"
    ended_first = [trial("cheap", replace(PAID, cost_usd=0.01), repeat=n) for n in range(1, 5)]
    cached = [trial("dear", CACHED_EARLIER, repeat=n) for n in range(2, 5)]
    dear = trial("dear", replace(PAID, cost_usd=1.0))
    (way,) = _ways(*ended_first, dear, *cached, *skipped(little, 6, model="dear"))
    assert way.endswith("--budget 16"), "(0.04 + 10 x 1) x 1.5"
    late = trial("late", UNPRICED, outcome=Outcome.TIMEOUT)
    (way,) = _ways(dear, late, *skipped(little, 1, model="unheard of"))
    assert way.endswith("--budget 4.5"), "what is unknown may be as dear as the dearest"
    report = report_of(dear, *skipped(little, 1, model="dear"), dropped_usd=4.0)
    assert next(ways_to_resume(report, "paraval resume RUN")).endswith("--budget 7")


def test_a_stopped_account_is_to_be_mended_first() -> None:
    (way,) = _ways(trial("a", PAID), *skipped(QUOTA, 2))
    assert way == ("2 trials are pending. Fix the problem above, then run: paraval resume RUN")
    assert len(_ways(trial("a", PAID), *skipped(QUOTA, 2), *skipped(BUDGET_SPENT, 2))) == 2


# ---- what is expected


def forecast(budget: Budget | None = None, **expected: Any) -> list[str]:
    plan: Plan = replace(make_plan(50), budget=budget)
    unknown = Forecast(
        plan=plan,
        starts=(),
        from_history=True,
        wall_s=1.0,
        serial_s=2.0,
        cost_usd=None,
        cost_at_most_usd=None,
        cost_is_bounded=True,
        unpriced=(),
        cached=0,
        decides=None,
    )
    return sentences(replace(unknown, **expected))[1:]


def test_a_plan_tells_what_decides_the_end() -> None:
    rate = Bound(name="account:gpt-oss", seconds=400.0, text="300 requests per minute")
    assert forecast(decides=rate, wall_s=400.0) == [
        "Bottleneck: gpt-oss at 300 requests per minute."
    ]
    assert forecast(decides=rate, wall_s=None) == [
        "Bottleneck: gpt-oss at 300 requests per minute, at least about 6 min 40 s."
    ]
    longest = Bound(name="longest trial", seconds=4.0, text="the longest trial")
    assert forecast(decides=longest, wall_s=4.0) == ["Bottleneck: the longest trial."]
    assert forecast(decides=longest, wall_s=400.0) == []
    parallel = Bound(name="parallel", seconds=4.0, text="7 in parallel")
    assert forecast(decides=parallel) == ["Bottleneck: --parallel (7 in parallel)."]


def test_a_plan_tells_what_the_run_will_cost_and_what_is_free() -> None:
    assert forecast(cost_usd=0.42, cost_at_most_usd=1.2, cached=30) == [
        "About $0.42; 30 of 100 answers are in the cache, free."
    ]
    assert forecast(cost_usd=0.42) == ["About $0.42."]
    first: dict[str, Any] = {"cost_usual_usd": 0.1, "cost_at_most_usd": 1.2}
    assert forecast(**first) == ["About $0.10 if answers have about 300 tokens (at most $1.20)."]
    assert forecast(**first, cost_is_bounded=False) == [
        "About $0.10 if answers have about 300 tokens (max_tokens sets no limit)."
    ]
    # With max_tokens below 300:
    assert forecast(cost_usual_usd=0.1, cost_at_most_usd=0.1) == ["At most $0.10."]
    tight, wide = (forecast(Budget(usd=usd), **first)[-1] for usd in (0.05, 0.5))
    assert tight == "Budget: $0.050: may not be enough for all trials; the rest can be resumed."
    assert wide.startswith("Budget: $0.50: probably enough;")
    assert forecast(cost_usd=0.0, cost_at_most_usd=0.0, cached=100) == [
        "No cost: 100 of 100 answers are in the cache, free."
    ]
    assert forecast(cached=1) == ["1 of 100 answers is in the cache, free."]
    assert forecast() == []


def test_a_plan_tells_which_models_have_no_price() -> None:
    assert forecast(unpriced=("local",)) == [
        "Cost unknown: no price for model 'local' (price: in the registry)."
    ]
    assert forecast(unpriced=("a", "b"), cost_usd=0.42)[0].startswith(
        "About $0.42, plus unknown costs"
    )


def test_a_plan_tells_whether_the_budget_will_do() -> None:
    assert forecast(Budget(usd=5.0), cost_usd=0.42)[-1] == "Budget: $5.00."
    assert "not enough for all" in forecast(Budget(usd=0.2), cost_usd=0.42)[-1]
