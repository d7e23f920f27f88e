"""A report that was written can be read back: the same figures, or a word on why not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from paraval.errors import RequestError
from paraval.records import (
    Activity,
    Baseline,
    Change,
    Failure,
    FileChange,
    McpState,
    Outcome,
    Output,
    Spend,
    StopRule,
    ToolUse,
    TrialResult,
)
from paraval.report import report_file
from paraval.report.compare.two_runs import (
    ComparisonQuestion,
    ComparisonSide,
    SideComparison,
    notices_of,
)
from paraval.report.contents import Contents, Related, RunSource
from paraval.report.formats.json import to_json
from paraval.report.formats.json_schema import report_schema
from paraval.report.report import Report
from paraval.report.report_file import source_from_file
from paraval.report.summary.tally import Costs
from paraval.text.terminal import well_formed
from tests.test_report import counts, ended, hostile_report, report_of, small_report


def doing_report() -> Report:
    """Trials that tell all that a trial can tell."""
    trial = ended(case="agent", total_s=1.5, target_s=1.25, queued_s=0.25, unended=1)
    told = replace(
        trial.result,
        activity=Activity(
            turns=3,
            tools=(ToolUse(name="find", server="repo", calls=4, failed=1), ToolUse(name="sh")),
            mcp={"repo": McpState.CONNECTED, "other": McpState.FAILED},
            session="s",
            model="m",
        ),
        change=Change(
            files_added=1,
            lines_added=7,
            files=(
                FileChange(path="a", status="added", lines_added=7, lines_deleted=0),
                FileChange(path="b", status="added", lines_added=None, lines_deleted=None),
            ),
            tampering=("a hook was added",),
            unknown="b could not be read",
        ),
        cpu_s=0.5,
        memory_bytes=1_000_000,
        exit_code=-9,
        artifacts={"stdout": "artifacts/a/stdout"},
        notes=("the answer was cut at max_tokens", "other"),
    )
    part = Spend(calls=2, cost_usd=None, part_usd=0.125, usage={"input_tokens": 10})
    whole = Spend(calls=1, cached=1, cost_usd=0.5, usage={"input_tokens": 3, "output_tokens": 2.5})
    cached = Spend(cached=2, cost_usd=0.0)
    retried: dict[str, Any] = {
        "retries": {Outcome.INFRA_ERROR: 2},
        "retry_errors": (Failure(kind=Outcome.INFRA_ERROR, message="502"),) * 2,
        "attempts": 3,
    }
    used = replace(ended(case="used").result, output=Output(text="x", usage={"calls": 3}))
    return report_of(
        replace(trial, result=told, spend=part, judging=whole, **retried),
        ended(case="whole", spend=whole),
        ended(case="unknown", spend=Spend(calls=1, cost_usd=None)),
        ended(case="silent", spend=Spend(calls=1, calls_unknown=True, cost_usd=0.25)),
        ended(case="cached", spend=cached, judging=cached),
        replace(ended(case="used"), result=used),
        ended(Outcome.SKIPPED, case="later", why="budget"),
        ended(Outcome.GRADER_ERROR, case="error"),
        interrupted=True,
        ended_at=None,
        fail_under=0.25,
        dropped_usd=0.5,
        dropped_unknown=True,
        trials=9,
    )


def cases_of(ends: str, **other: Any) -> list[TrialResult]:
    """`P` passed, `F` failed: cases 0, 1, ..."""
    return [
        ended(Outcome.PASSED if end == "P" else Outcome.FAILED, case=f"case-{number}", **other)
        for number, end in enumerate(ends)
    ]


def stopped_report() -> Report:
    """Ended early, since the second variant wins every case; what was left is skipped for good."""
    skipped = ended(Outcome.SKIPPED, case="case-9", why="early stop: decided")
    return report_of(
        *cases_of("F" * 9, variant={"mode": "old"}),
        replace(skipped, variant={"mode": "old"}),
        *cases_of("P" * 9, variant={"mode": "new"}),
        replace(skipped, variant={"mode": "new"}),
        stop=StopRule(confidence=0.9),
        seed=7,
        fail_under=0.4,
        parts={"cases": "1a", "target": "2b"},
    )


def skipping_report() -> Report:
    """As of pytest: a test that skipped itself will do so again, and nothing is asked of it."""
    skipped = ended(Outcome.SKIPPED, case="elsewhere", why="only on another system")
    error = Failure(kind=Outcome.SKIPPED, message="only on another system", lasting=True)
    lasting = replace(skipped, result=replace(skipped.result, error=error))
    retried = replace(ended(case="retried"), retry_errors=(replace(error, kind=Outcome.CRASHED),))
    return report_of(ended(), retried, lasting)


def held_report() -> Report:
    """Held against a baseline, below which it fell."""
    return report_of(
        *cases_of("F" * 30 + "P" * 10),
        baseline=Baseline(name="before", max_drop=0.05),
        parts={"cases": "1a", "target": "3c"},
    )


def last_trial_ended() -> Report:
    """Every trial has a result, and the engine is still there: to clear up, or to be killed."""
    return report_of(ended(), ended(Outcome.FAILED), ended_at=None, running=True, trials=2)


def killed_report() -> Report:
    """No engine works on it, and none has written an end."""
    return report_of(
        ended(), ended(Outcome.SKIPPED), ended_at=None, interrupted=False, running=False, trials=2
    )


REPORTS: dict[str, Callable[[], Report]] = {
    "small": small_report,
    "hostile": hostile_report,
    "doing": doing_report,
    "errors alone": lambda: counts(0, 0, 3),
    "nothing at all": lambda: counts(0),
    "going on": lambda: report_of(
        ended(), ended(Outcome.SKIPPED), ended_at=None, running=True, trials=2
    ),
    "stopped early": stopped_report,
    "tests": skipping_report,
    "held against another": held_report,
    "about to end": last_trial_ended,
    "killed": killed_report,
}


@pytest.fixture(params=REPORTS)
def report(request: pytest.FixtureRequest) -> Report:
    return REPORTS[request.param]()


def saved(report: Report, path: Path) -> Path:
    report.write(path)
    return path


def test_a_json_report_read_back_and_written_again_is_the_same_file(
    report: Report, tmp_path: Path
) -> None:
    first = saved(report, tmp_path / "first.json")
    second = saved(Report(source_from_file(first)), tmp_path / "second.json")
    assert second.read_text() == first.read_text()


def test_json_lines_read_back_and_written_again_are_the_same_file(
    report: Report, tmp_path: Path
) -> None:
    first = saved(report, tmp_path / "first.jsonl")
    second = saved(Report(source_from_file(first)), tmp_path / "second.jsonl")
    assert second.read_text() == first.read_text()


def test_the_summary_and_the_comparisons_are_those_of_the_run(
    report: Report, tmp_path: Path
) -> None:
    back = Report(source_from_file(saved(report, tmp_path / "report.json")))
    assert back.summary.passed == report.summary.passed
    assert back.summary.pass_rate_interval == report.summary.pass_rate_interval
    for cost in fields(Costs):
        assert getattr(back.summary, cost.name) == getattr(report.summary, cost.name)
    assert back.summary.agents == report.summary.agents
    assert len(back.book) == len({trial.case_id for trial in back.trials})
    assert back.to_dict().get("comparisons") == report.to_dict().get("comparisons")


class Before(Related):
    def baseline(self, name: str) -> RunSource:
        """The run that others are held against."""
        return report_of(*cases_of("P" * 40)).source


def test_the_gate_is_that_of_the_run(report: Report, tmp_path: Path) -> None:
    """Also where a run is held against another, may stop early, goes on, or left tests out."""
    back = Report(source_from_file(saved(report, tmp_path / "report.json")), Before())
    assert back.gate == Report(report.source, Before()).gate


def test_a_file_tells_what_was_asked_of_its_run(tmp_path: Path) -> None:
    for make in (stopped_report, held_report, last_trial_ended, killed_report):
        told, run = source_from_file(saved(make(), tmp_path / "report.json")).run, make().run
        assert (told.stop, told.baseline, told.parts) == (run.stop, run.baseline, run.parts)
        assert told.running is run.running
        assert told.seed == run.seed


def test_tests_that_skip_themselves_are_asked_for_nothing_in_a_file_either(tmp_path: Path) -> None:
    back = Report(source_from_file(saved(skipping_report(), tmp_path / "report.json")))
    assert back.gate.exit_code == 0
    assert [trial.retry_errors for trial in back.trials] == [
        trial.retry_errors for trial in skipping_report().trials
    ]


def test_comparisons_and_notices_are_the_same_for_a_file_as_for_its_run(
    report: Report, tmp_path: Path
) -> None:
    """What one may claim of a run that could stop early, no file forgets."""

    def told(subject: RunSource, reference: RunSource) -> list[str]:
        now = ComparisonSide(label="B", name="now", contents=Contents(subject))
        then = ComparisonSide(label="A", name="then", contents=Contents(reference))
        versus = SideComparison(now, then, ComparisonQuestion())
        return [str(versus.comparison), *notices_of(versus, str)]

    file = source_from_file(saved(report, tmp_path / "report.json"))
    again = source_from_file(saved(Report(file), tmp_path / "again.json"))
    assert told(again, again) == told(file, file)
    # Names that are no UTF-8 are written as what they look like.
    if all(well_formed(trial.case_id) == trial.case_id for trial in report.trials):
        assert told(file, file) == told(report.source, report.source)


def test_a_report_that_tells_all_is_as_the_published_schema_says() -> None:
    for make in REPORTS.values():
        document = json.loads(to_json(make().to_dict()))
        Draft202012Validator(report_schema()).validate(document)


def test_a_file_is_read_anew_each_time_and_its_attempts_are_not_known(tmp_path: Path) -> None:
    source = source_from_file(saved(small_report(), tmp_path / "r.json"))
    assert [result.case_id for result in source.results()] == [
        result.case_id for result in source.results()
    ]
    assert list(source.attempts()) == []


@pytest.mark.parametrize(
    "written",
    [
        lambda data: json.dumps(data, indent=4),
        lambda data: json.dumps(data, separators=(",", ":"), ensure_ascii=True),
        lambda data: json.dumps(data, sort_keys=True),
        lambda data: json.dumps(dict(reversed(data.items())), indent=1),
        lambda data: "\ufeff" + json.dumps(data) + "\n\n",
        lambda data: json.dumps({**data, "added_later": [1, {"x": None}]}),
    ],
    ids=["indented", "compact", "sorted", "backwards", "with a mark", "with more in it"],
)
def test_a_report_may_have_been_formatted_anew(
    written: Callable[[Any], str], tmp_path: Path
) -> None:
    report = doing_report()
    path = tmp_path / "r.json"
    path.write_text(written(report.to_dict()), encoding="utf-8")
    back = Report(source_from_file(path))
    assert back.to_dict()["summary"] == report.to_dict()["summary"]
    assert back.run.id == report.run.id


def test_what_jq_may_have_left_out_of_a_trial_is_simply_not_known(tmp_path: Path) -> None:
    """Only what decides a comparison must be there."""
    kept = ("index", "case", "variant", "repeat", "outcome")
    lines = [
        json.dumps({key: trial[key] for key in kept})
        for trial in small_report().to_dict()["trials"]
    ]
    path = tmp_path / "few.jsonl"
    path.write_text("\n\n".join(lines))
    assert Report(source_from_file(path)).summary.passed == 3


# ---- what is no report


def wrong_run(**fields: Any) -> str:
    data = counts(1).to_dict()
    data["run"].update(fields)
    return json.dumps(data)


def wrong_trial(**fields: Any) -> str:
    data = counts(1).to_dict()
    data["trials"][0].update(fields)
    data["trials"][0] = {key: value for key, value in data["trials"][0].items() if value != ...}
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not valid JSON: Expecting value"),
        ("{", "not valid JSON: Expecting property name"),
        ("[]", "it has no 'trials'"),
        ("{}", "it has no 'trials'"),
        ('{"trials": []}', "it has no 'schema'"),
        ('{"schema": 1, "trials": []}', "it has no 'run'"),
        ('{"schema": 3, "run": {}, "summary": {}, "trials": []}', "a later version of paraval"),
        ('{"schema": "1", "run": {}, "trials": []}', "'schema' of it is not a whole number"),
        ('{"schema": 1, "run": {"id": "x"}, "trials": []}', "'run' has no 'suite'"),
        ('{"schema": 1, "candidates": [], "run": {}}', "it is one of a race"),
        ('{"schema": 1, "schema": 1}', "duplicate key 'schema'"),
        ('{"schema": NaN}', "NaN is not a JSON number"),
        ('{\n"schema": 1e999}', "not valid JSON: the number 1e999 is too large"),
        ('{"a": ' + "[" * 200_000, "nested too deeply"),
        ('{"a": 1 "b": 2}', "Expecting ',' delimiter at line 1"),
        ('{"trials": [1 2]}', "Expecting ',' delimiter at line 1"),
        ('{"trials": [1,]}', "Expecting value"),
        ('{"a": "unended', "Unterminated string"),
        (json.dumps(counts(1).to_dict()) + "{}", "Extra data at line 1"),
        (json.dumps(counts(1).to_dict())[:-1], "Expecting ',' delimiter"),
        (wrong_run(stop={"confidence": 1}), "'confidence' of 'stop' is not a number between"),
        (wrong_run(stop="decided"), "'stop' is no object"),
        (wrong_run(baseline={"max_drop": 0.1}), "'baseline' has no 'name'"),
        (wrong_run(baseline={"name": "x", "max_drop": 7}), "is not a number from 0 to 1"),
        (wrong_run(parts={"cases": 1}), "'cases' of 'parts' is not a text"),
        (wrong_run(running="yes"), "'running' of 'run' is not a true or false"),
        (wrong_trial(case=...), "trial 1: a trial has no 'case'"),
        (wrong_trial(case=7), "trial 1: 'case' of a trial is not a text"),
        (wrong_trial(outcome="great"), "trial 1: 'great' is no outcome"),
        (wrong_trial(variant=[]), "trial 1: 'variant' is no object"),
        (wrong_trial(variant={"a": [1]}), "'a' of 'variant' is not a text, number"),
        (wrong_trial(score=7), "'score' of a trial is not a number from 0 to 1"),
        (wrong_trial(score=True), "'score' of a trial is not a number"),
        (wrong_trial(total_s=10**400), "'total_s' of a trial is not a number"),
        (wrong_trial(total_s=-5), "'total_s' of a trial is not a number from 0 on"),
        (wrong_trial(cost_usd=-0.5), "'cost_usd' of a trial is not a number from 0 on"),
        (wrong_trial(outcome="failed", passed=True), "trial 1: 'passed' is true, but 'outcome' is"),
        (wrong_trial(outcome="passed", passed=False), "'passed' is false, but 'outcome' is 'passe"),
        (wrong_trial(outcome="timeout", passed=True), "'passed' is true, but 'outcome' is 'timeou"),
        (wrong_trial(index=True), "'index' of a trial is not a whole number"),
        (wrong_trial(attempts=-1), "'attempts' of a trial is not a number from 0 on"),
        (wrong_trial(grades=[1]), "an entry of 'grades' is no object"),
        (wrong_trial(grades={}), "'grades' of a trial is not a list"),
    ],
)
def test_what_is_no_report_is_refused_with_what_is_missing(
    text: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(RequestError) as told:
        list(source_from_file(path).results())
    assert "r.json is not a report of a run: " in told.value.message
    assert complaint in told.value.message
    assert told.value.hint is not None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"index": 0}\n', "line 1: a trial has no 'case'"),
        ("\n\nnothing\n", "line 3: not valid JSON"),
        ("[1]\n", "line 1: a trial is no object"),
    ],
)
def test_lines_that_are_no_trials_are_refused_with_their_number(
    text: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(RequestError, match=complaint):
        list(source_from_file(path).results())


def test_trials_of_two_runs_in_one_file_are_refused(tmp_path: Path) -> None:
    path = saved(counts(2), tmp_path / "r.jsonl")
    path.write_text(path.read_text() * 2)
    with pytest.raises(RequestError, match="line 3: duplicate trial index 0"):
        list(source_from_file(path).results())


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for name, complaint in (
        ("gone.json", "No such file"),
        ("report.csv", "only .json and .jsonl"),
        ("folder.json", "not a regular file"),
        ("pipe.jsonl", "not a regular file"),
        ("latin.json", "not UTF-8"),
    ):
        path = tmp_path / name
        if name == "folder.json":
            path.mkdir()
        elif name == "pipe.jsonl":
            os.mkfifo(path)
        elif name == "latin.json":
            path.write_bytes(b'{"a": "\xff"}')
        with pytest.raises(RequestError, match=complaint) as told:
            source_from_file(path)
        assert name in told.value.message


def test_a_message_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(wrong_trial(outcome="\x1b[2J\u202e"))
    with pytest.raises(RequestError) as told:
        list(source_from_file(path).results())
    assert told.value.message.isprintable()


def test_a_document_too_large_for_memory_is_refused_and_the_lines_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_file, "MOST_BYTES", 1_000)
    path = saved(counts(5), tmp_path / "long.json")
    with pytest.raises(RequestError, match="too large to be read back: over 1 kB") as told:
        source_from_file(path)
    assert told.value.hint == "write it as .jsonl, or name the run's folder"
    assert len(list(source_from_file(saved(counts(5), tmp_path / "long.jsonl")).results())) == 5
