"""What a run means, in every form it is written in."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path
from typing import Any

import junitparser
import pyte
import pytest
from hypothesis import given, settings, strategies as st
from lxml import etree
from wcwidth import wcswidth

from paraval.cli.error_messages import EXIT_INPUT_OUTPUT, exit_code_of
from paraval.errors import NotWrittenError, RequestError
from paraval.records import (
    AttemptResult,
    Failure,
    Grade,
    Outcome,
    Output,
    RunInfo,
    TrialResult,
    Variant,
)
from paraval.report.files import (
    FORMATS,
    check_output_paths,
    format_for,
    write_files,
    write_whole,
)
from paraval.report.formats.csv import inert
from paraval.report.formats.run_text import TextDetail, run_text
from paraval.report.gate import GateVerdict
from paraval.report.report import Report
from paraval.statistics.rates import wilson
from paraval.text.document import code
from paraval.text.tables import Page
from paraval.text.terminal import columns, cut, cut_middle, one_line, printable, well_formed
from paraval.text.words import duration, money, percent, percent_range
from tests.page_kit import MadeRun

Made = MadeRun
SMALL: Variant = {"model": "small", "mode": "with-tool"}
LARGE: Variant = {"model": "large", "mode": "without-tool"}

FAMILY = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"

HOSTILE = [
    "</script><script>alert(1)</script><!--<script>",
    "<img src=x onerror=alert(1)>",
    "]]><failure/><![CDATA[",
    "| a | b |\n| - | - |\n`x` **y** [z](http://evil) ![i](http://evil)",
    "@everyone see #1 and www.evil.example",
    '=HYPERLINK("http://evil","x")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "  =1",
    "a;=1+1,=2",
    "\x1b[2J\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;cm0gLXJm" + "A" * 50,
    "\x9b31m\x9d0;x\x9c c1",
    "\x00\x01\x07\x08\x7f",
    "\udc80\ud800 lone",
    "\u202egnp.exe\u202c \u2066x\u2069 \u200b\ufeff",
    "line\u2028sep\u2029par\x0b\x0c",
    "\ufffe\uffff \U000e0041",
    "日本語" * 40,
    FAMILY + " \N{HEAVY BLACK HEART}\ufe0f e\u0301",
    "x" * 100_000,
    "[" * 100_000,
    "\x1b[" + "0" * 10_000,
]


def ended(
    outcome: Outcome = Outcome.PASSED,
    case: str = "hello",
    variant: Variant | None = None,
    *,
    text: str = "hi",
    why: str = 'expected "hello"',
    cost: float | None = None,
    **other: Any,
) -> TrialResult:
    """A trial that ended; the first of its case, after one second."""
    judged = outcome.is_judged
    passed = outcome is Outcome.PASSED
    grade = Grade(
        score=float(passed), passed=passed, reason="" if passed else why, grader="contains"
    )
    result = AttemptResult(
        outcome=outcome,
        output=Output(text=text, cost_usd=cost) if judged else None,
        grades=(grade,) if judged else (),
        score=float(passed) if judged else None,
        error=None if judged else Failure(kind=outcome, message=why),
        duration_s=1.0,
    )
    usual: dict[str, Any] = {"index": 0, "repeat": 1, "attempts": 1, "total_s": 1.0}
    return TrialResult(case_id=case, variant=variant or {}, result=result, **(usual | other))


def report_of(*trials: TrialResult, **info: Any) -> Report:
    numbered = [replace(trial, index=index) for index, trial in enumerate(trials)]
    return Report(Made(trials=numbered, info_with=info))


def counts(passed: int, failed: int = 0, errors: int = 0, **info: Any) -> Report:
    trials = [ended(case=f"p{n}") for n in range(passed)]
    trials += [ended(Outcome.FAILED, case=f"f{n}") for n in range(failed)]
    trials += [ended(Outcome.TIMEOUT, case=f"e{n}") for n in range(errors)]
    return report_of(*trials, **info)


def written(report: Report, ending: str) -> str:
    file = io.StringIO(newline="")
    format_for(Path(f"report{ending}")).write(report, file)
    return file.getvalue()


def plain(report: Report, width: int = 80, *, unicode: bool = True) -> str:
    return run_text(report, Page(width=width, color=False, unicode=unicode))


def small_report() -> Report:
    """Two variants, every kind of end."""
    return report_of(
        ended(case="hello", variant=SMALL, cost=0.25),
        ended(Outcome.FAILED, case="hello", variant=LARGE, cost=0.5),
        ended(case="hello", variant=SMALL, repeat=2, cost=0.25, total_s=2.0),
        ended(Outcome.TIMEOUT, case="bye", variant=SMALL, why="no answer within 60 s"),
        ended(case="bye", variant=LARGE, cost=0.5, attempts=2, total_s=3.0, queued_s=0.1),
        fail_under=0.5,
    )


def hostile_report() -> Report:
    ends = (Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED, Outcome.SKIPPED)
    return report_of(
        *(
            ended(outcome, case=text, variant={"axis": text}, text=text, why=text)
            for text in HOSTILE
            for outcome in ends
        ),
        suite=HOSTILE[0],
    )


# ---- the summary


def test_rates_are_over_what_was_judged_and_errors_stand_beside_them() -> None:
    summary = counts(34, 4, 2).summary
    assert (summary.trials, summary.passed, summary.failed, summary.errors) == (40, 34, 4, 2)
    assert summary.pass_rate == 34 / 38
    assert summary.rate_if_errors_failed == 34 / 40
    assert summary.rate_if_errors_passed == 36 / 40
    assert summary.errors_by_kind == {"timeout": 2}


def test_the_interval_is_over_cases_not_over_repeats() -> None:
    trials = [ended(case=case, repeat=n) for case in "ab" for n in range(1, 6)]
    trials[0] = ended(Outcome.FAILED, case="a")
    summary = report_of(*trials, ended(Outcome.TIMEOUT, case="c")).summary
    assert summary.cases == 2
    assert summary.pass_rate_interval == wilson(0.9 * 2, 2)


def test_variants_are_listed_in_plan_order_with_figures_of_their_own() -> None:
    variants = small_report().summary.variants
    assert [one.variant for one in variants] == [SMALL, LARGE]
    assert [(one.passed, one.failed, one.errors) for one in variants] == [(2, 0, 1), (1, 1, 0)]
    assert [one.serial_s for one in variants] == [4.0, 4.0]


def test_values_that_python_holds_equal_are_variants_of_their_own() -> None:
    values: list[Any] = [1, True, 1.0, "1"]
    summary = report_of(*(ended(variant={"axis": value}) for value in values)).summary
    assert [one.trials for one in summary.variants] == [1, 1, 1, 1]


def test_without_a_matrix_there_is_one_variant_without_axes() -> None:
    summary = counts(2).summary
    assert [one.variant for one in summary.variants] == [{}]
    assert "all trials" in plain(counts(2))


def test_cost_is_none_where_no_trial_told_one_and_else_says_how_many_did_not() -> None:
    assert counts(3).summary.cost_usd is None
    summary = small_report().summary
    assert (summary.cost_usd, summary.trials_without_cost) == (1.5, 1)


def test_usage_is_added_up_and_what_is_no_number_left_out() -> None:
    def using(**usage: Any) -> TrialResult:
        trial = ended()
        return replace(trial, result=replace(trial.result, output=Output(usage=usage)))

    huge = 10**400
    odd = using(tokens=math.nan, calls=math.inf, big=huge, flag=True, word="x")
    report = report_of(using(tokens=3, calls=1), using(tokens=4), odd)
    assert report.summary.usage == {"tokens": 7, "calls": 1}
    assert json.loads(written(report, ".json"))["trials"][2]["usage"]["big"] is None


def test_speedup_is_serial_over_wall_time_and_unknown_without_one() -> None:
    assert counts(6).summary.speedup == 3.0
    assert counts(6, wall_s=0.0).summary.speedup is None


def test_skipped_trials_count_in_no_rate_and_no_median() -> None:
    summary = report_of(ended(total_s=4.0), ended(Outcome.SKIPPED, total_s=0.0)).summary
    assert (summary.pass_rate, summary.skipped, summary.median_s) == (1.0, 1, 4.0)


def timed_report() -> Report:
    """Three answers, a crash at once, and two timeouts, of which one suite counts as failures."""
    late = ended(Outcome.TIMEOUT, case="d", total_s=60.0)
    failed = replace(ended(Outcome.FAILED, case="e", total_s=75.0).result, duration_s=75.0)
    slow = Failure(kind=Outcome.TIMEOUT, message="not done after 75 s; ended")
    return report_of(
        ended(case="a", total_s=1.0),
        ended(Outcome.FAILED, case="b", total_s=2.0),
        ended(case="c", total_s=3.0),
        ended(Outcome.CRASHED, case="c", repeat=2, total_s=0.001),
        replace(late, result=replace(late.result, duration_s=60.0)),
        replace(ended(Outcome.FAILED, case="e", total_s=75.0), result=replace(failed, error=slow)),
        fail_under=0.1,
    )


def test_times_are_those_of_trials_that_came_to_a_verdict() -> None:
    """A crash is no quick answer, and of a timeout only a lower bound is known."""
    summary = timed_report().summary
    assert summary.median_s == 2.0
    assert summary.p95_s == pytest.approx(2.9)
    assert (summary.timeouts, summary.timeout_s) == (2, 60.0)
    assert summary.serial_s == pytest.approx(141.001), "what was done in all counts everything"
    crashed = report_of(ended(Outcome.CRASHED, total_s=0.001)).summary
    assert (crashed.median_s, crashed.p95_s, crashed.timeouts) == (None, None, 0)


# ---- the gate


@pytest.mark.parametrize(
    ("ends", "fail_under", "verdict", "exit_code"),
    [
        ((10, 0, 0), 1.0, GateVerdict.MET, 0),
        ((9, 1, 0), 1.0, GateVerdict.MISSED, 1),
        ((9, 0, 1), 1.0, GateVerdict.UNKNOWN, 3),
        ((8, 1, 1), 1.0, GateVerdict.MISSED, 1),
        ((9, 1, 0), 0.9, GateVerdict.MET, 0),
        ((3, 7, 0), 0.1 + 0.2, GateVerdict.MET, 0),
        ((899, 101, 0), 0.9, GateVerdict.MISSED, 1),
        ((90, 0, 10), 0.9, GateVerdict.MET, 0),
        ((89, 1, 10), 0.9, GateVerdict.UNKNOWN, 3),
        ((80, 10, 10), 0.9, GateVerdict.UNKNOWN, 3),
        ((80, 11, 9), 0.9, GateVerdict.MISSED, 1),
        ((0, 0, 5), 0.9, GateVerdict.UNKNOWN, 3),
        ((0, 5, 0), 0.0, GateVerdict.MET, 0),
        ((0, 0, 0), 1.0, GateVerdict.UNKNOWN, 3),
    ],
)
def test_the_gate_is_judged_by_the_worst_and_best_that_errors_hide(
    ends: tuple[int, int, int],
    fail_under: float,
    verdict: GateVerdict,
    exit_code: int,
) -> None:
    report = counts(*ends, fail_under=fail_under)
    assert (report.gate.verdict, report.exit_code) == (verdict, exit_code)


def test_without_a_gate_a_run_has_no_verdict_and_exits_with_3_only_if_nothing_was_judged() -> None:
    for ends in ((3, 0, 0), (0, 3, 0), (1, 1, 8)):
        report = counts(*ends)
        assert (report.gate.verdict, report.gate.sentence) == (GateVerdict.NONE, "")
        assert (report.exit_code, "Gate" in plain(report)) == (0, False)
        assert "Gate" not in written(report, ".md") + written(report, ".html")
        assert json.loads(written(report, ".json"))["gate"]["verdict"] == "none"
    unjudged = counts(0, 0, 2)
    assert (unjudged.gate.verdict, unjudged.exit_code) == (GateVerdict.NONE, 3)
    assert plain(unjudged).endswith("No trial was judged, because of 2 errors")


def test_an_interrupted_run_is_not_judged() -> None:
    gate = counts(3, interrupted=True, trials=40, fail_under=1.0).gate
    assert (gate.verdict, gate.exit_code) == (GateVerdict.UNKNOWN, 130)
    assert gate.sentence == "Gate undecided: the run was interrupted after 3 of 40 trials"


def test_trials_that_an_interrupted_run_left_are_not_said_to_have_ended() -> None:
    left = [ended(Outcome.SKIPPED, case=f"s{n}", total_s=0.0) for n in range(3)]
    report = report_of(ended(cost=0.5), ended(Outcome.FAILED, cost=0.5), *left, interrupted=True)
    assert report.gate.sentence == "The run was interrupted after 2 of 5 trials"
    text = plain(report)
    assert "\n2 trials in 2.0 s\n" in text
    assert "\nInterrupted: 3 trials pending\n" in text
    assert "Cost: $1.00\n" in text
    assert "\nThe pass rate excludes skipped trials\n" in written(report, ".md")


def test_trials_that_were_skipped_or_never_ended_are_not_taken_for_passed() -> None:
    skipped = report_of(ended(), ended(Outcome.SKIPPED), trials=4, fail_under=1.0)
    assert skipped.exit_code == 3
    assert skipped.gate.sentence == (
        "Gate undecided: 25% (1/4) to 100% (4/4) because of 1 skipped trial and 2 trials without a"
        " result, required 100%"
    )


def test_the_gates_sentence_says_what_was_asked_and_what_was_reached() -> None:
    assert counts(4, fail_under=1.0).gate.sentence == "Gate passed: 100% (4/4), required 100%"
    assert counts(9, 1, fail_under=0.9).gate.sentence == (
        "Gate passed: 90% (9/10), required 90%, within noise (interval 60–98%)"
    )
    assert counts(7, 1, fail_under=1.0).gate.sentence == ("Gate failed: 87.5% (7/8), required 100%")
    assert counts(2, 1, fail_under=0.667).gate.sentence == (
        "Gate failed: 66.7% (2/3), required 66.7% (3/3)"
    )
    assert counts(34, 4, 2, fail_under=0.88).gate.sentence == (
        "Gate undecided: 85% (34/40) to 90% (36/40) because of 2 errors, required 88%"
    )
    assert counts(7, 2, 1, fail_under=0.9).gate.sentence == (
        "Gate failed: at most 80% (8/10), even with 1 error, required 90%"
    )


@given(
    passed=st.integers(0, 12),
    failed=st.integers(0, 12),
    errors=st.integers(0, 12),
    asked=st.integers(0, 20).map(lambda twentieths: twentieths / 20),
)
@settings(max_examples=150, deadline=None)
def test_whatever_the_errors_were_the_gates_word_holds(
    passed: int, failed: int, errors: int, asked: float
) -> None:
    verdict = counts(passed, failed, errors, fail_under=asked).gate.verdict
    if errors and not passed + failed:
        # Nothing was judged: a run without a verdict says nothing, whatever is required.
        assert verdict is GateVerdict.UNKNOWN
        return
    could_be = {
        counts(passed + right, failed + errors - right, fail_under=asked).gate.verdict
        for right in (0, errors)
    }
    assert could_be == {verdict} or (verdict is GateVerdict.UNKNOWN and len(could_be) == 2)


# ---- JSON


def timeless(document: dict[str, Any]) -> dict[str, Any]:
    """A JSON report without ids, times and durations."""
    run_keys = ("id", "started_at", "ended_at", "wall_s", "parallel", "seed", "resumed")
    times = ("serial_s", "speedup", "median_s", "p95_s", "total_s", "queued_s", "cpu_s")

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without(inner) for key, inner in value.items() if key not in times}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    run = {key: value for key, value in document["run"].items() if key not in run_keys}
    stripped: dict[str, Any] = without({**document, "run": run})
    return stripped


def test_times_are_utc_and_durations_are_to_the_microsecond() -> None:
    report = report_of(ended(total_s=1 / 3, queued_s=2 / 3), ended_at=None)
    document = report.to_dict()
    assert document["run"]["started_at"] == "2026-01-31T12:00:00.250Z"
    assert document["run"]["ended_at"] is None
    trial = document["trials"][0]
    assert (trial["total_s"], trial["queued_s"]) == (0.333333, 0.666667)


def test_a_written_json_report_reads_back_as_the_mapping(tmp_path: Path) -> None:
    for report in (small_report(), hostile_report(), counts(0)):
        report.write(tmp_path / "report.json")
        read = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert read == report.to_dict()


def test_two_runs_that_differ_only_in_times_write_equal_reports() -> None:
    one = small_report()
    other = report_of(
        *(replace(trial, total_s=trial.total_s * 7, queued_s=0.5) for trial in one.trials),
        id="another",
        wall_s=17.0,
        parallel=50,
        started_at=1.0,
        ended_at=2.0,
        fail_under=0.5,
    )
    assert other.to_dict() != one.to_dict()
    assert timeless(other.to_dict()) == timeless(one.to_dict())


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_say_are_null(odd: float) -> None:
    trial = ended(variant={"axis": odd}, total_s=odd, cost=odd)
    grade = Grade(score=odd, passed=False, grader="g")
    trial = replace(trial, result=replace(trial.result, score=odd, grades=(grade,)))

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    report = report_of(trial, wall_s=odd, fail_under=0.5)
    for ending in (".json", ".jsonl"):
        for line in written(report, ending).split("\n  {"):
            assert not re.search(r"[:\[] ?(NaN|-?Infinity)", line)
    document = json.loads(written(report, ".json"), parse_constant=refuse)
    assert document["trials"][0]["score"] is None
    assert document["trials"][0]["grades"][0]["score"] is None
    assert document["summary"]["cost_usd"] is None
    assert document["trials"][0]["variant"] == {"axis": str(odd)}
    assert plain(report)


def test_json_lines_are_the_trials_of_the_json_report() -> None:
    report = small_report()
    lines = written(report, ".jsonl").splitlines()
    assert [json.loads(line) for line in lines] == report.to_dict()["trials"]


# ---- CSV


def test_no_cell_of_a_csv_acts() -> None:
    rows = list(csv.reader(io.StringIO(written(hostile_report(), ".csv"), newline="")))
    assert {len(row) for row in rows} == {len(rows[0])}
    for cell in (cell for row in rows for cell in row):
        assert not cell.lstrip().startswith(("=", "+", "-", "@"))
        assert not cell.startswith(("\t", "\r"))


def test_numbers_of_our_own_stay_numbers_in_a_csv() -> None:
    report = report_of(ended(variant={"temperature": -1, "exact": True}, cost=0.5))
    line = written(report, ".csv").splitlines()[1]
    start = '0,"hello","","","",-1,"true",1,"passed","true",1.0,"","hi","true",1.0,"","","",""'
    end = '1,0,1.0,"","",0.5,"false",0.5,0,"","","","","","","","","","",""'
    assert line == f"{start},{end}"
    assert inert("-1") == "'-1"
    assert inert("a-1") == "a-1"


# ---- Markdown


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_others_has_no_effect_in_markdown(text: str) -> None:
    shown = code(text)
    inside = shown.removeprefix("<code>").removesuffix("</code>")
    assert not re.search(r"[<>|`*_\[\]@\\\n]|://|&(?!#\d+;)", inside)
    assert unescape(inside) == one_line(text, 150)


def test_markdown_fits_a_comment_however_much_went_wrong() -> None:
    nasty = "<&>|`" * 200 + "日本" * 100
    trials = [
        ended(outcome, case=f"{nasty}{n}", variant={"axis": f"{nasty}{n % 300}"}, why=nasty)
        for n in range(1500)
        for outcome in (Outcome.FAILED, Outcome.CRASHED)
    ]
    text = written(report_of(*trials), ".md")
    assert len(text.encode()) < 60_000
    assert re.search(r"… and 1,\d\d\d more", text)
    assert re.search(r"\| … and \d+ more \|", text)


# ---- JUnit


@pytest.fixture(scope="session")
def junit_schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(str(Path(__file__).with_name("junit.xsd"))))


MADE: list[Callable[[], Report]] = [
    small_report,
    hostile_report,
    lambda: counts(0),
    lambda: counts(1),
    lambda: counts(0, 0, 3),
]


@pytest.mark.parametrize("make", MADE)
def test_junit_reports_are_valid(make: Callable[[], Report], junit_schema: etree.XMLSchema) -> None:
    tree = etree.fromstring(written(make(), ".junit.xml").encode())
    junit_schema.assertValid(tree)


def test_junit_tells_failures_errors_and_skips_apart(tmp_path: Path) -> None:
    report = report_of(
        ended(case="a", variant=SMALL),
        ended(Outcome.FAILED, case="a", variant=LARGE, why="no <hello>"),
        ended(Outcome.CRASHED, case="a", variant=SMALL, repeat=2, why="exit code 1"),
        ended(Outcome.SKIPPED, case="a", variant=LARGE, repeat=2, why="the budget is spent"),
    )
    report.write(tmp_path / "report.junit.xml")
    suites = list(junitparser.JUnitXml.fromfile(str(tmp_path / "report.junit.xml")))
    assert [suite.name for suite in suites] == ["small · with-tool", "large · without-tool"]
    small, large = suites
    assert (small.tests, small.failures, small.errors, small.skipped) == (2, 0, 1, 0)
    assert (large.tests, large.failures, large.errors, large.skipped) == (2, 1, 0, 1)
    crashed = list(small)[1]
    assert (crashed.name, crashed.classname) == ("a #2", "greetings.small · with-tool")
    assert (crashed.result[0].type, crashed.result[0].message) == ("crashed", "exit code 1")
    assert [case.result[0].message for case in large] == ["no <hello>", "the budget is spent"]


def test_the_output_in_a_junit_report_is_bounded() -> None:
    for text in ("x" * 1_000_000, "日" * 9_000):
        tree = etree.fromstring(written(report_of(ended(text=text)), ".junit.xml").encode())
        told = tree.findtext(".//system-out")
        assert told is not None
        assert 9_000 < len(told.encode()) <= 10_000
        assert told.endswith("[cut]")


# ---- the terminal


def test_color_adds_nothing_but_color() -> None:
    colored = run_text(small_report(), Page(width=80, color=True, unicode=True))
    assert "\x1b[31m" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == str(small_report())


def test_without_utf8_everything_is_ascii() -> None:
    for report in (small_report(), hostile_report()):
        text = plain(report, unicode=False)
        assert text.isascii()
        assert all(len(line) <= 80 for line in text.splitlines())
    text = plain(small_report(), unicode=False)
    assert '  x hello - large - without-tool  expected "hello"' in text
    assert "(8.0 s of work, 4.0x parallel)" in text


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for report in (small_report(), hostile_report(), counts(100, 50, 50)):
        for line in plain(report, width).splitlines():
            # A command to copy is not broken.
            assert wcswidth(line) <= width or "more: paraval " in line


def test_hostile_text_leaves_a_terminal_as_it_should_be() -> None:
    """A real emulator shows the text as printed: no title, no color, no line moved or lost."""
    text = plain(report_of(*(t for t in hostile_report().trials if FAMILY not in t.case_id)))
    lines = text.splitlines()
    screen = pyte.Screen(90, len(lines) + 1)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    assert screen.title == ""
    assert {cell.fg for row in screen.buffer.values() for cell in row.values()} <= {"default"}
    # The emulator leaves an empty cell behind each wide character.
    assert [line.rstrip() for line in screen.display[: len(lines)]] == lines


def test_long_lists_are_cut_and_say_how_to_see_the_rest() -> None:
    text = plain(counts(5, 45, 30))
    assert text.count("✗") == 10
    assert text.count("  ! ") == 5
    assert "  … and 35 more: paraval report 20260131-120000-abcd -o report.html" in text
    assert "  … and 25 more: " in text
    assert "more:" not in plain(counts(0, 10))


def test_repeats_that_failed_for_one_reason_are_one_line() -> None:
    ends = {"add": "FFF", "sub": "FPF", "mul": "PEF", "div": "F"}
    outcomes = {"P": Outcome.PASSED, "F": Outcome.FAILED, "E": Outcome.CRASHED}
    trials = [
        ended(outcomes[end], case=case, repeat=number, why="add(1, 2) is not 3")
        # All first repeats come first, as plans may have it.
        for number in (1, 2, 3)
        for case, signs in ends.items()
        for end in signs[number - 1 : number]
    ]
    other = ended(Outcome.FAILED, case="sub", repeat=4, why="another reason")
    text = plain(report_of(*trials, other))
    assert text.split("\n\n")[1] == (
        "8 failed\n"
        "  ✗ add  3/3  add(1, 2) is not 3\n"
        "  ✗ sub  2/4  add(1, 2) is not 3\n"
        "  ✗ div       add(1, 2) is not 3\n"
        "  ✗ mul  1/3  add(1, 2) is not 3\n"
        "  ✗ sub  1/4  another reason"
    )
    assert "  ! mul  1/3  crashed: add(1, 2) is not 3" in text
    assert "- <code>add</code> 3/3: <code>add(1, 2) is not 3</code>" in written(
        report_of(*trials), ".md"
    )


def test_what_the_terminal_has_just_shown_is_only_counted() -> None:
    detail = TextDetail(are_failures_above=True)
    blocks = run_text(counts(5, 4, 2), Page(), detail).split("\n\n")
    assert blocks[1].splitlines() == [
        "4 failed, 2 errors (listed above)",
        "To see why: paraval show 20260131-120000-abcd --case f0",
    ]
    assert "listed" not in run_text(counts(5), Page(), detail)


def test_errors_are_wrapped_and_not_cut() -> None:
    why = "the provider refuses this request: " + "check the length of the prompt; " * 9
    text = plain(report_of(ended(Outcome.CRASHED, why=why)))
    assert f"crashed: {why.strip()}" in " ".join(text.split())


def test_a_run_that_was_interrupted_or_killed_names_the_command_that_resumes_it() -> None:
    left = ended(Outcome.SKIPPED, case="b", total_s=0.0, why="not run: the run was interrupted")
    for info in ({"interrupted": True}, {"ended_at": None}):
        report = report_of(ended(), left, source="suite.yaml", trials=4, **info)
        line = "Interrupted: 3 trials pending. Resume with: paraval resume 20260131-120000-abcd"
        assert line in plain(report).splitlines()
        assert "not run: the run was interrupted" not in plain(report)
        assert line in written(report, ".md")
    detail = TextDetail(resume="paraval resume X --store Y")
    assert "Resume with: paraval resume X --store Y" in run_text(report, Page(), detail)


def test_an_interval_without_a_width_is_not_shown() -> None:
    assert percent_range(0.679, 0.6821) == "67.9–68.2%"
    assert percent_range(0.68, 0.68) == "68%"


def test_variants_with_long_names_stay_distinct_in_the_table() -> None:
    names = [f"a-model-with-a-very-long-name-{n} · with-tool" for n in "ab"]
    text = plain(report_of(*(ended(variant={"x": name}) for name in names)))
    for name in names:
        assert name in text.splitlines()


def test_wide_characters_keep_the_table_straight() -> None:
    names = ["日本語", "ascii", "emoji 🎉", "e\u0301te\u0301"]
    text = plain(report_of(*(ended(variant={"x": name}) for name in names)))
    table = text.split("\n\n")[0].splitlines()
    assert {wcswidth(line) for line in table} == {wcswidth(table[0])}


def test_a_run_of_no_trials_says_so() -> None:
    assert plain(counts(0)) == "0 trials in 2.0 s\nNo trial ran"


def test_one_trial_is_not_compared_with_itself() -> None:
    assert "1 trial in 2.0 s" in plain(counts(1))


def test_a_run_of_errors_alone_has_no_pass_rate() -> None:
    report = counts(0, 0, 3)
    assert report.summary.pass_rate is None
    assert report.summary.pass_rate_interval is None
    assert "No pass rate: no trial was judged (3 errors)" in plain(report)
    assert report.to_dict()["summary"]["pass_rate"] is None


def test_a_number_is_not_parted_from_its_unit() -> None:
    for width in range(40, 100):
        for line in plain(counts(34, 4, 2), width).splitlines():
            assert not line.startswith(("% ", "s ", "s;"))


# ---- text and numbers


@pytest.mark.parametrize("text", HOSTILE)
def test_printable_text_has_no_character_that_acts(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]", shown
    )


@given(st.text(), st.integers(1, 60))
@settings(max_examples=60)
def test_one_line_is_one_line_within_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line.splitlines()) <= 1
    assert columns(line) <= limit


@given(st.text(alphabet="ab日🎉é ", max_size=50), st.integers(4, 30))
def test_cut_lines_fit_and_those_that_fit_are_not_cut(text: str, limit: int) -> None:
    for shorten in (cut, cut_middle):
        short = shorten(text, limit)
        assert columns(short) <= limit
        assert (short == text) == (columns(text) <= limit)


def test_a_heap_of_accents_is_bounded_too() -> None:
    assert len(one_line("e" + "\u0301" * 10_000, 10)) < 100


def test_a_line_that_was_cut_says_so() -> None:
    assert one_line("a b", 10) == "a b"
    assert one_line("a" * 11, 10) == "a" * 9 + "…"
    assert one_line("a" + " " * 100_000 + "b", 10) == "a…"


def test_terminal_sequences_go_and_other_controls_show() -> None:
    assert printable("\x1b[31mred\x1b[0m \x1b]0;t\x07x\x07") == "red x\\x07"
    assert printable("\u202egnp.exe") == "\\u202egnp.exe"
    assert printable("a\r\nb\rc\td") == "a\nb\nc\td"
    assert printable("\x1b]0;never ends: text stays") == "0;never ends: text stays"


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert well_formed("a\udc80b") == "a\ufffdb"
    assert well_formed("\ud83c\udf89") == "🎉"


def test_hostile_text_takes_linear_time() -> None:
    started = time.process_time()
    for part in ("\x1b[", "\x1b]", "\x1bP", "\x1b[0;", "\x9b ", "\x1b"):
        printable(part * 200_000)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "text",
    ["abc", "日本語", "🎉x", "e\u0301", "\N{HEAVY BLACK HEART}\ufe0f", FAMILY, "한국어", "\uff41"],
)
def test_columns_agree_with_wcwidth(text: str) -> None:
    assert columns(text) == wcswidth(text)


def test_rates_show_as_all_or_nothing_only_when_they_are() -> None:
    shares = [0, 0.0001, 0.9, 26 / 29, 0.9999, 1]
    assert [percent(share) for share in shares] == [
        *("0%", "0.1%", "90%", "89.7%", "99.9%", "100%")
    ]
    assert percent_range(0.0, 0.999) == "0–99.9%"
    assert percent_range(0.001, 1.0) == "0.1–100%"
    assert percent_range(0.981, 0.9994) == "98–99.9%", "the interval of 299 of 300, 99.7%"


def test_durations_and_money_read_well() -> None:
    times = [0, 0.12, 0.9999, 6.23, 59.97, 125, 3599.9, 3725, None, math.nan]
    assert [duration(seconds) for seconds in times] == [
        *("0 ms", "120 ms", "1.0 s", "6.2 s", "1 min 00 s", "2 min 05 s", "1 h 00 min"),
        *("1 h 02 min", "-", "-"),
    ]
    assert [money(usd) for usd in (0, 1234.5, 0.0123, 0.00001, None)] == [
        *("$0.00", "$1,234.50", "$0.012", "$0.000010", "-")
    ]


# ---- files


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.", "-", "report.txt"])
def test_an_unknown_ending_is_refused_and_the_known_ones_are_told(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(RequestError) as caught:
        check_output_paths([tmp_path / "good.json", name])
    for ending in FORMATS:
        assert ending in str(caught.value)


def test_plain_xml_gets_a_hint() -> None:
    with pytest.raises(RequestError, match=r"hint: .* report\.junit\.xml"):
        check_output_paths(["report.xml"])


def test_paths_that_cannot_be_written_are_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for name, why in {
        "folder.json": "it is a folder",
        "missing/report.json": "there is no folder",
        "pipe.json": "not a regular file",
        "loop.json": "loop",
        "x" * 300 + ".json": "too long",
    }.items():
        with pytest.raises(RequestError, match=why):
            check_output_paths([tmp_path / name])


def test_a_folder_that_takes_no_files_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        folder = tmp_path / "closed"
        folder.mkdir(mode=0o500)
    else:
        # Permissions don't hold root back; a file system that takes no files does.
        folder = Path("/proc/self")
    with pytest.raises(RequestError, match=r"cannot write .*report\.json: "):
        check_output_paths([folder / "report.json"])


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 74), (errno.EROFS, 2)])
def test_a_full_disk_is_no_wrong_request(
    number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    with pytest.raises(RequestError, match=os.strerror(number)) as raised:
        check_output_paths([tmp_path / "report.json"])
    assert exit_code_of(raised.value) == code


@pytest.mark.parametrize("data", ["", b""])
def test_comparisons_and_races_that_cannot_be_written_are_no_wrong_request(
    data: str | bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(NotWrittenError, match="No space left"):
        write_whole(tmp_path / "it.json", data)
    assert not list(tmp_path.iterdir())


def test_checking_a_path_changes_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("old")
    check_output_paths([kept, str(tmp_path / "new.MD")])
    assert kept.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"]


def test_every_form_is_written_by_its_ending(tmp_path: Path) -> None:
    paths = [tmp_path / f"report{ending}" for ending in FORMATS]
    write_files(small_report(), paths)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in paths}
    for path, ending in zip(paths, FORMATS, strict=True):
        assert path.read_text(encoding="utf-8") == written(small_report(), ending)


@pytest.mark.parametrize("ending", FORMATS)
def test_hostile_results_can_be_written_in_every_form(ending: str, tmp_path: Path) -> None:
    hostile_report().write(tmp_path / f"report{ending}")
    text = (tmp_path / f"report{ending}").read_bytes().decode("utf-8")
    assert "\x1b" not in text
    assert "\x00" not in text


def test_a_file_that_fails_leaves_the_old_one_and_the_others_are_written(tmp_path: Path) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Breaking(Made):
        """Fails in the third pass, when the first file is half written."""

        passes: list[int] = field(default_factory=list)

        def results(self) -> Iterator[TrialResult]:
            self.passes.append(1)
            yield from self.trials
            if len(self.passes) == 2:
                raise OSError(28, "No space left on device")

    old = tmp_path / "a.json"
    old.write_text("old")
    report = Report(Breaking(trials=[ended()]))
    wanted = r"a\.json: No space left[^$]*hint: .*paraval report"
    with pytest.raises(NotWrittenError, match=wanted) as raised:
        write_files(report, [old, tmp_path / "b.jsonl"])
    assert exit_code_of(raised.value) == EXIT_INPUT_OUTPUT, "nothing is wrong with the request"
    assert old.read_text() == "old"
    assert (tmp_path / "b.jsonl").read_text().count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.jsonl"]


def test_a_link_is_written_through_and_permissions_stay(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("old")
    real.chmod(0o640)
    (tmp_path / "link.json").symlink_to(real)
    small_report().write(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads(real.read_text())["schema"] == 1
    assert real.stat().st_mode & 0o777 == 0o640


# ---- many trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Many(Made):
    """Many results, made when asked for, as a store reads them."""

    number: int

    def info(self) -> RunInfo:
        return replace(Made().info(), trials=self.number)

    def results(self) -> Iterator[TrialResult]:
        answer = "an answer of some length " * 4
        passed = ended(text=answer).result
        failed = ended(Outcome.FAILED, text=answer).result
        for index in range(self.number):
            yield TrialResult(
                index=index,
                case_id=f"case-{index // 4}",
                variant={"model": f"m{index % 4}"},
                repeat=1,
                result=failed if index % 10 == 0 else passed,
                attempts=1,
                total_s=1.0 + index / 1000,
            )


def test_many_trials_are_shown_and_written_in_bounded_time_each(tmp_path: Path) -> None:
    """0.3 ms of CPU for each of 20,000; to look at all of them for each would take minutes."""
    report = Report(Many(number=20_000))
    started = time.process_time()
    assert "20,000 trials" in plain(report)
    assert report.summary.cases == 5_000
    report.write(tmp_path / "report.jsonl")
    assert time.process_time() - started < 6
    with (tmp_path / "report.jsonl").open() as file:
        assert sum(1 for _ in file) == 20_000


def test_summing_up_leaves_a_few_bytes_a_trial_behind() -> None:
    tracemalloc.start()
    try:
        summary = Report(Many(number=20_000)).summary
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (summary.trials, summary.failed, summary.cases) == (20_000, 2_000, 5_000)
    assert peak < 300 * 20_000


@pytest.mark.parametrize("ending", FORMATS)
def test_files_are_written_without_holding_their_trials(ending: str, tmp_path: Path) -> None:
    report = Report(Many(number=2_000))
    assert report.summary.trials == 2_000
    tracemalloc.start()
    try:
        report.write(tmp_path / f"report{ending}")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A page has a map of its cases, drawn as a whole: some thousand bytes for each of the 2,000
    # that it shows at most, and none for those beyond.
    the_map = 3_500 * report.summary.cases if ending == ".html" else 0
    assert peak < 500_000 + the_map


def test_trials_can_be_looped_over_again_and_counted() -> None:
    trials = small_report().trials
    assert [trial.index for trial in trials] == [trial.index for trial in trials]
    assert len(trials) == 5
