"""What a race shows: the table, the JSON, the winner's patch; true, bounded and harmless."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from paraval.racing.course.course import Course
from paraval.racing.course.steps import Base
from paraval.racing.report.standings import BaselineStanding, CandidateStanding, Standings, Status

from paraval.errors import RequestError
from paraval.racing.findings import (
    Origin,
    ProfiledFunction,
    ProfiledLine,
    Proposal,
    RunDifference,
    Speedup,
    TestCounts,
)
from paraval.racing.report.race_report import RaceReport, check_race_outputs
from paraval.racing.request import (
    BenchMetric,
    BenchSpec,
    HookSpec,
    Profile,
    ProfileSpec,
    RaceRequest,
    TestSpec,
)
from paraval.records import RunInfo
from paraval.text.terminal import columns

PATCH = b"""\
diff --git a/sort.py b/sort.py
--- a/sort.py
+++ b/sort.py
@@ -1,2 +1,2 @@
 def sort(items):
-    return slow(items)
+    return quick(items)
"""
BASELINE = BaselineStanding(
    commit="1a2b3c4d5e6f7890", tree="t0", tests=TestCounts(passed=12), seconds={"__total__": 0.512}
)
DIFFERENCE = RunDifference(
    scope="test",
    name="tests/test_sort.py::test_cycle",
    status="failed",
    baseline="passed",
    message="assert [1, 3, 2] == [1, 2, 3]\n +  where [1, 3, 2] = sort([3, 2, 1])\nmore",
)
CANDIDATES = (
    CandidateStanding(name="late", status=Status.SKIPPED, reason="the time was up"),
    CandidateStanding(name="same", status=Status.DUPLICATE, reason="identical to quick", tree="t1"),
    CandidateStanding(
        name="wrong",
        status=Status.FAILED,
        reason="1 of 12 tests: test_cycle",
        tests=TestCounts(passed=11, failed=1),
        differences=(DIFFERENCE,) * 5,
        more_differences=2,
    ),
    CandidateStanding(name="hangs", status=Status.TIMEOUT, reason="timed out after 10 s"),
    CandidateStanding(
        name="noise",
        status=Status.NOT_SHOWN,
        reason="within noise: 1% slower to 3% faster",
        tests=TestCounts(passed=12),
        speedup=Speedup(estimate=1.01, low=0.99, high=1.03, blocks=3),
        noisy=True,
    ),
    CandidateStanding(
        name="quick",
        status=Status.WON,
        reason="3.05–3.38× as fast (15 fresh blocks)",
        tests=TestCounts(passed=12),
        speedup=Speedup(estimate=3.21, low=3.05, high=3.38, blocks=15),
        cases={"large": Speedup(estimate=4.0, low=3.0, high=5.0, blocks=15)},
        tree="t1",
        patch="attempts/3/patch.diff",
    ),
    CandidateStanding(
        name="wrong-repair-1",
        status=Status.ACCEPTED,
        reason="2.80–3.00× as fast; quick is faster",
        tests=TestCounts(passed=12),
        speedup=Speedup(estimate=2.9, low=2.8, high=3.0, blocks=15),
        origin=Origin.REPAIR,
        parent="wrong",
    ),
)
LINE = ProfiledLine(line=1, hits=2, seconds=1.0, text="x = 1")
STANDINGS = Standings(baseline=BASELINE, candidates=CANDIDATES, winner="quick")


def with_note(note: str) -> Standings:
    """What speaks for the winner, as its author says."""
    noted = (replace(one, note=note) if one.name == "quick" else one for one in CANDIDATES)
    return replace(STANDINGS, candidates=tuple(noted))


def request_for(**more: Any) -> RaceRequest:
    return RaceRequest(
        name="sort",
        source=None,
        folder="/project",
        repo="/project",
        test=TestSpec(command=("pytest", "-q")),
        bench=BenchSpec(command=("python", "bench.py")),
        **more,
    )


def run_in(folder: Path) -> RunInfo:
    return RunInfo(
        id="run-1",
        suite="sort",
        source=None,
        folder=str(folder),
        trials=40,
        parallel=2,
        seed=0,
        started_at=0.0,
        ended_at=60.0,
        wall_s=59.5,
        resumed=0,
        interrupted=False,
        fail_under=None,
        done=40,
    )


@pytest.fixture(name="run")
def run_fixture(tmp_path: Path) -> RunInfo:
    patch = tmp_path / "run" / "attempts" / "3" / "patch.diff"
    patch.parent.mkdir(parents=True)
    patch.write_bytes(PATCH)
    return run_in(tmp_path / "run")


@pytest.fixture(name="report")
def report_fixture(run: RunInfo) -> RaceReport:
    return RaceReport(STANDINGS, run, request_for())


# ---- in Python


def test_a_report_is_pleasant_to_use(report: RaceReport) -> None:
    assert report.winner is not None
    assert report.winner.name == "quick"
    assert report["wrong"].tests == TestCounts(passed=11, failed=1)
    assert [one.name for one in report][:2] == ["late", "same"]
    assert len(report) == 7
    assert report.patch == PATCH.decode()
    assert report.winner_patch() == PATCH
    assert report.patch_of("hangs") is None
    assert str(report) == report.text()
    assert repr(report) == (
        "<RaceReport of run-1: quick won: 3.21× as fast as the baseline (95%: 3.05–3.38).>"
    )
    with pytest.raises(KeyError):
        report["nobody"]


def test_the_exit_code_tells_a_winner_from_none_and_from_a_baseline_that_fails(
    run: RunInfo,
) -> None:
    def code(standings: Standings) -> int:
        return RaceReport(standings, run, request_for()).exit_code

    fails = replace(BASELINE, reason="its tests fail", failing=("test_a",))
    assert code(STANDINGS) == 0
    assert code(replace(STANDINGS, winner=None)) == 1
    assert code(Standings(baseline=BASELINE)) == 1
    assert code(Standings(baseline=fails)) == 3


# ---- JSON


def test_the_document_has_the_keys_that_were_promised_first_and_in_the_order_of_coming(
    report: RaceReport,
) -> None:
    document = report.as_json()
    assert list(document)[:4] == ["schema", "baseline", "winner", "candidates"]
    assert document["schema"] == 1
    assert document["winner"] == "quick"
    assert [one["name"] for one in document["candidates"]] == [one.name for one in CANDIDATES]
    first = document["candidates"][2]
    assert list(first)[:9] == [
        "name",
        "status",
        "tests",
        "differences",
        "speedup",
        "noisy",
        "reason",
        "parent",
        "origin",
    ]
    assert first["status"] == "failed"
    counts = {"passed": 11, "failed": 1, "errors": 0, "skipped": 0, "missing": 0}
    assert first["tests"] == counts
    assert first["differences"][0]["message"].startswith("assert [1, 3, 2] == [1, 2, 3]\n")
    assert first["more_differences"] == 2
    assert first["speedup"] is None
    won = document["candidates"][5]
    assert won["speedup"] == {"estimate": 3.21, "low": 3.05, "high": 3.38}
    assert won["cases"] == {"large": {"estimate": 4.0, "low": 3.0, "high": 5.0}}
    assert won["blocks"] == 15
    assert won["patch"] == "attempts/3/patch.diff"
    assert document["candidates"][6]["parent"] == "wrong"
    assert document["candidates"][6]["origin"] == "repair"
    assert document["accept"] == {"speedup": 1.05, "confidence": 0.95}
    assert document["run"]["started_at"] == "1970-01-01T00:00:00.000Z"
    assert document["over"] is True
    assert document["profile"] is None


def test_what_a_candidate_was_proposed_with_is_kept(run: RunInfo, tmp_path: Path) -> None:
    noted = Proposal(name="quick", patch="p", note="a *heap*\n| of | ours")
    course = Course(request_for(), Base(tree="t0"), [noted], hooks=frozenset())
    course.begin()
    standings = course.standings()
    assert standings.candidates[0].note == noted.note
    won = replace(standings.candidates[0], status=Status.WON)
    standings = replace(standings, candidates=(won,), winner="quick")
    report = RaceReport(standings=standings, run=run, request=request_for())
    assert report.as_json()["candidates"][0]["note"] == noted.note
    report.write(tmp_path / "race.md")
    text = RaceReport(with_note(noted.note), run, request_for()).text()
    assert "\nNote on quick: a *heap* | of | ours\nPatch of quick:\n" in text
    assert "Note on <code>quick</code>: <code>a &#42;heap" in (tmp_path / "race.md").read_text()


def test_the_page_tells_of_every_key_of_the_document(run: RunInfo) -> None:
    profile = (ProfiledFunction(name="m:f", file="m.py", seconds=1.0, lines=(LINE,)),)
    request = request_for(profile=ProfileSpec(kind=Profile.LINE))
    document = RaceReport(replace(STANDINGS, profile=profile), run, request).as_json()
    page = (Path(__file__).parent.parent / "docs" / "reference" / "race-report.md").read_text()
    _, _, told = page.partition("## race.json\n")
    cases = {name for one in CANDIDATES for name in one.cases}
    assert set(keys_in(document)) - cases <= set(re.findall(r"`(\w+)`", told))


def keys_in(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_in(inner)


def test_one_block_is_no_interval_and_the_document_says_so_in_words(run: RunInfo) -> None:
    one = CandidateStanding(
        name="once",
        status=Status.NOT_SHOWN,
        speedup=Speedup(estimate=3.2, low=0.0, high=math.inf, blocks=1),
    )
    report = RaceReport(Standings(baseline=BASELINE, candidates=(one,)), run, request_for())
    told = report.as_json()["candidates"][0]
    assert told["speedup"] is None
    assert told["notes"] == ["3.20× from 1 block: too few for an interval"]
    assert "3.20× (?)" in report.text()


@given(
    st.text(max_size=30),
    st.floats(),
    st.floats(),
    st.sampled_from(Status),
)
def test_whatever_is_in_it_the_document_is_strict_json(
    name: str, estimate: float, high: float, status: Status
) -> None:
    one = CandidateStanding(
        name=name,
        status=status,
        reason=f"\ud800{name}",
        speedup=Speedup(estimate=estimate, low=0.5, high=high, blocks=2),
        flags=(name,),
    )
    baseline = replace(BASELINE, seconds={name: estimate}, failing=(name,))
    standings = Standings(baseline=baseline, candidates=(one,), notes=(name,))
    document = RaceReport(standings, run_in(Path("/run")), request_for()).as_json()
    text = json.dumps(document, allow_nan=False, ensure_ascii=False)
    assert json.loads(text.encode()) == document


# ---- the table


def rows(text: str) -> list[str]:
    table = text.partition("\n\n")[0].split("\n")
    return [line.split()[0] for line in table[1:] if line[0] != " "]


def test_the_table_has_the_winner_first_and_what_never_ran_last(report: RaceReport) -> None:
    assert rows(report.text(120)) == [
        "quick",
        "wrong-repair-1",
        "noise",
        "wrong",
        "hangs",
        "same",
        "late",
    ]


def test_the_table_as_it_is_printed(report: RaceReport) -> None:
    assert (
        report.text(88).split("\n\n")[0]
        == """\
candidate       status     tests  speedup (95%)        why
quick           won        12/12  3.21× (3.05–3.38)    3.05–3.38× as fast (15 fresh
                                                       blocks)
wrong-repair-1  accepted   12/12  2.90× (2.80–3.00)    2.80–3.00× as fast; quick is
                                                       faster [repair of wrong]
noise           not shown  12/12  1.01× (0.99–1.03) ~  within noise: 1% slower to 3%
                                                       faster
wrong           failed     11/12  -                    1 of 12 tests: test_cycle
hangs           timeout    -      -                    timed out after 10 s
same            duplicate  -      -                    identical to quick
late            skipped    -      -                    the time was up"""
    )


def test_below_the_table_stands_the_evidence(report: RaceReport) -> None:
    text = report.text()
    assert "wrong: failed\n  tests/test_sort.py::test_cycle failed\n" in text
    assert "    assert [1, 3, 2] == [1, 2, 3]\n    + where [1, 3, 2] = sort([3, 2, 1])\n" in text
    assert "  … and 4 more differences" in text
    assert "Patch of quick:\n" + PATCH.decode() in text
    assert "quick by benchmark case:\n  large  4.00× (3.00–5.00)\n" in text
    assert "Baseline: commit 1a2b3c4d5e6f, 12 of 12 tests passed, 512 ms per benchmark run" in text
    assert "ABBA blocks" in text
    assert "Noisy (~)" in text
    assert "apply " in text
    assert text.endswith("\nquick won: 3.21× as fast as the baseline (95%: 3.05–3.38).")


def test_a_long_patch_is_shown_in_part_and_where_all_of_it_is(run: RunInfo) -> None:
    path = Path(run.folder, "attempts/3/patch.diff")
    path.write_bytes(PATCH + b"".join(b" line %d\n" % number for number in range(100)))
    text = RaceReport(STANDINGS, run, request_for()).text()
    assert "\n line 32\n" in text
    assert "\n line 33\n" not in text
    assert "\n… and 67 more lines\n" in text
    assert "The winning patch: paraval report run-1" in text


def test_without_the_patch_all_the_rest_is_shown(run: RunInfo) -> None:
    Path(run.folder, "attempts/3/patch.diff").unlink()
    report = RaceReport(STANDINGS, run, request_for())
    assert "quick won" in report.text()
    with pytest.raises(RequestError, match="patch of quick cannot be read"):
        report.winner_patch()


def test_flags_are_told_in_red(run: RunInfo) -> None:
    cheat = CandidateStanding(name="cheat", status=Status.INVALID, flags=("edits tests/test_a.py",))
    standings = Standings(baseline=BASELINE, candidates=(cheat,))
    report = RaceReport(standings, run, request_for())
    assert "  cheat: edits tests/test_a.py" in report.text()
    assert "\x1b[31m  cheat: edits tests/test_a.py\x1b[0m" in report.text(color=True)


def test_a_baseline_that_fails_has_no_table_and_its_tests_are_named(run: RunInfo) -> None:
    baseline = replace(BASELINE, reason="2 of its tests fail", failing=("test_a", "test_b"))
    report = RaceReport(Standings(baseline=baseline), run, request_for())
    text = report.text()
    assert "candidate" not in text
    assert "Tests that fail on the baseline:\n  test_a\n  test_b\n" in text
    assert text.endswith("The race did not start: 2 of its tests fail")


def test_of_a_baseline_that_fails_it_is_told_how_and_where_to_look(run: RunInfo) -> None:
    own = replace(DIFFERENCE, baseline="-")
    baseline = replace(
        BASELINE, reason="2 of its tests fail", failing=(own.name, "test_b"), differences=(own,)
    )
    report = RaceReport(Standings(baseline=baseline), run, request_for())
    text = report.text()
    where = "    + where [1, 3, 2] = sort([3, 2, 1])\n"
    assert f"  {own.name} failed\n    assert [1, 3, 2] == [1, 2, 3]\n{where}" in text
    assert "\n  test_b\n" in text
    assert "See the baseline's output: paraval logs run-1 --store" in text
    assert " --case baseline\n" in text
    assert "`--uncommitted` uses the working tree as it is" in in_one_line(report)
    assert report.as_json()["baseline"]["differences"][0]["status"] == "failed"
    as_it_is = RaceReport(Standings(baseline=baseline), run, request_for(uncommitted=True))
    assert "--uncommitted" not in as_it_is.text()


@pytest.mark.parametrize(
    ("reason", "is_told"),
    [
        ("the baseline fails its own tests: exit code 1", True),
        ("the baseline's tests gave no result: command not found: pytset", True),
        ("the baseline's benchmark cannot be measured: can't open file 'b.py'", True),
        ("the baseline was not tested: the time limit of 1 s was reached before its turn", False),
        ("the baseline's tests gave no result: timed out after 2 s", False),
        ("the baseline's benchmark cannot be measured: exit code 1", False),
    ],
)
def test_what_commands_see_is_told_where_that_may_be_why(
    run: RunInfo, reason: str, is_told: bool
) -> None:
    baseline = replace(BASELINE, reason=reason)
    text = RaceReport(Standings(baseline=baseline), run, request_for()).text()
    assert ("Commands see" in text) is is_told


def test_an_interrupted_race_says_how_to_go_on(run: RunInfo) -> None:
    standings = replace(STANDINGS, winner=None, over=False)
    text = RaceReport(standings, run, request_for()).text()
    assert "Resume it with: paraval race --resume run-1" in text
    assert "(repeat --apply and -o)" in text
    # A function cannot be found again by a command.
    asked = request_for(repair=HookSpec())
    text = RaceReport(standings, run, asked).text()
    assert "Resume it in Python: paraval.race(..., options=paraval.Options(resume='run-1'))" in text


# ---- what a reader should know before trusting it


def in_one_line(report: RaceReport) -> str:
    return " ".join(report.text().split())


def test_what_was_measured_on_a_busy_machine_may_be_off_and_the_verdict_says_so_too(
    run: RunInfo,
) -> None:
    noisy = [replace(one, noisy=one.name == "quick") for one in CANDIDATES]
    standings = replace(STANDINGS, candidates=tuple(noisy))
    said = in_one_line(RaceReport(standings, run, request_for()))
    assert "quick was measured while the machine was busy" in said
    assert "so speedups may be off. Rerun the race when the machine is quiet." in said
    assert said.endswith("(noisy).")


def test_a_test_command_without_single_tests_is_told_of_unless_that_was_asked_for(
    run: RunInfo,
) -> None:
    standings = replace(STANDINGS, baseline=replace(BASELINE, tests=None))

    def says_so(**test: Any) -> bool:
        request = replace(request_for(), test=TestSpec(**test))
        said = in_one_line(RaceReport(standings, run, request))
        return "reports no individual tests: only its exit code counts" in said

    assert says_so(command=("sh", "-c", "pytest -q && true"))
    assert not says_so(command=("sh", "-c", "pytest -q"), junit="off")
    # Why pytest told nothing is noted where it was found out.
    assert not says_so(command=("pytest",))


@pytest.mark.parametrize(
    ("metric", "seconds", "is_short"),
    [
        (BenchMetric.WALL, 0.001, True),
        (BenchMetric.CPU, 0.009, True),
        (BenchMetric.FILE, 0.001, False),
        (BenchMetric.WALL, 0.011, False),
    ],
)
def test_a_benchmark_of_a_moment_says_little_unless_it_measures_itself(
    run: RunInfo, metric: BenchMetric, seconds: float, *, is_short: bool
) -> None:
    standings = replace(STANDINGS, baseline=replace(BASELINE, seconds={"__total__": seconds}))
    request = replace(request_for(), bench=BenchSpec(command=("true",), metric=metric, file="o"))
    said = in_one_line(RaceReport(standings, run, request))
    assert ("process startup dominates" in said) is is_short


def test_of_an_unstable_baseline_it_is_said_whose_tests_are_counted(run: RunInfo) -> None:
    baseline = replace(BASELINE, unstable=("tests/test_a.py::test_flaky",))
    said = in_one_line(RaceReport(replace(STANDINGS, baseline=baseline), run, request_for()))
    assert "12 of 12 tests passed in the first of two runs" in said
    assert (
        "Not compared, because it differs between two runs of the baseline: tests/test_a.py" in said
    )


def test_the_hot_lines_of_the_winner_are_shown(run: RunInfo) -> None:
    lines = (
        ProfiledLine(line=12, hits=1000, seconds=0.9, text="    for item in items:"),
        ProfiledLine(line=13, hits=999, seconds=0.299, text="        found.append(item)"),
        ProfiledLine(line=14, hits=1, seconds=0.001, text="    return found"),
    )
    function = ProfiledFunction(name="sort:sort", file="sort.py", seconds=1.2, lines=lines)
    request = request_for(profile=ProfileSpec(kind=Profile.LINE))
    report = RaceReport(replace(STANDINGS, profile=(function,)), run, request)
    assert """\
  sort:sort  sort.py  1.2 s
      12      75%      1,000x      for item in items:
      13    24.9%        999x          found.append(item)
""" in report.text()
    assert "return found" not in report.text()
    assert report.as_json()["profile"]["functions"][0]["lines"][2]["hits"] == 1
    without = RaceReport(replace(STANDINGS, profile_problem="no Python"), run, request)
    assert "No profile for quick: no Python" in without.text()


# ---- hostile


HOSTILE = "\x1b[2J\x1b]0;title\x07\r\n| `<b>` \u202e\u2028 \x00 表" * 3


def hostile_standings(text: str) -> Standings:
    difference = RunDifference(
        scope="test",
        name=text,
        status=text,
        baseline=text,
        message=text,
        expected=text,
        actual=text,
    )
    line = ProfiledLine(line=1, hits=1, seconds=1.0, text=text)
    one = CandidateStanding(
        name=text or "?",
        status=Status.WON,
        reason=text,
        differences=(difference, replace(difference, expected=None, actual=None, scope="file")),
        flags=(text,),
        parent=text,
        speedup=Speedup(estimate=1e9, low=0.001, high=1e12, blocks=1),
        cases={text: Speedup(estimate=1e9, low=0.001, high=1e12, blocks=1)},
        patch="patch.diff",
    )
    return Standings(
        baseline=replace(BASELINE, commit=text, unstable=(text,)),
        candidates=(one, replace(one, name="other", status=Status.FAILED)),
        winner=text or "?",
        profile=(ProfiledFunction(name=text, file=text, seconds=1.0, lines=(line,)),),
        notes=(text,),
    )


@given(
    st.text(max_size=60) | st.just(HOSTILE), st.integers(min_value=48, max_value=130), st.booleans()
)
def test_every_line_fits_and_nothing_in_it_acts_on_a_terminal(
    text: str, width: int, unicode: bool
) -> None:
    report = RaceReport(hostile_standings(text), run_in(Path("/run")), request_for())
    shown = report.text(width, unicode=unicode)
    assert all(character == "\n" or character.isprintable() or unicode for character in shown)
    assert not any(ord(character) < 32 and character != "\n" for character in shown)
    assert unicode or shown.isascii()
    for line in shown.split("\n"):
        # What is there to be copied is not broken.
        assert columns(line) <= width or line.startswith("The winning patch: ")


def test_a_patch_cannot_act_on_a_terminal_nor_leave_its_fence(run: RunInfo, tmp_path: Path) -> None:
    hostile = PATCH + b"+\x1b[2J````\r\xff\n+```\n+</details>\n"
    Path(run.folder, "attempts/3/patch.diff").write_bytes(hostile)
    report = RaceReport(STANDINGS, run, request_for())
    assert "+\\x1b[2J````\\r\N{REPLACEMENT CHARACTER}\n" in report.text()
    report.write(tmp_path / "race.md")
    lines = (tmp_path / "race.md").read_text().split("\n")
    assert lines.count("`````diff") == lines.count("`````") == 1
    assert lines.index("`````diff") < lines.index("+</details>") < lines.index("`````")


def test_names_in_markdown_are_no_markdown(run: RunInfo, tmp_path: Path) -> None:
    report = RaceReport(hostile_standings("|`<b>@all"), run, request_for())
    report.write(tmp_path / "race.md")
    text = (tmp_path / "race.md").read_text()
    assert "<b>" not in text
    assert "@all" not in text
    assert "<code>&#124;&#96;&#60;b&#62;&#64;all</code>" in text


# ---- files


def test_files_are_written_in_the_form_that_their_ending_names(
    report: RaceReport, tmp_path: Path
) -> None:
    for name in ("race.json", "winner.patch", "winner.diff", "race.md", "race.txt"):
        report.write(tmp_path / name)
    assert json.loads((tmp_path / "race.json").read_text()) == report.as_json()
    assert (tmp_path / "winner.patch").read_bytes() == PATCH
    assert (tmp_path / "winner.diff").read_bytes() == PATCH
    assert (tmp_path / "race.txt").read_text() == report.text(100) + "\n"
    assert (tmp_path / "race.md").read_text().startswith("## paraval race: <code>sort</code>\n")
    assert not list(tmp_path.glob(".paraval*"))


def test_without_a_winner_a_patch_is_refused_and_what_stood_there_stays(
    run: RunInfo, tmp_path: Path
) -> None:
    (tmp_path / "winner.patch").write_text("before")
    report = RaceReport(replace(STANDINGS, winner=None), run, request_for())
    with pytest.raises(RequestError, match="the race has no winner"):
        report.write(tmp_path / "winner.patch")
    assert (tmp_path / "winner.patch").read_text() == "before"


def test_a_link_is_written_through(report: RaceReport, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("real.json")
    report.write(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["winner"] == "quick"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("race.html", "unknown format '.html' for a race's report"),
        ("race", "unknown format 'race' for a race's report"),
        ("nowhere/race.json", "there is no folder"),
        ("folder.json", "it is a folder"),
        ("pipe.json", "it is not a regular file"),
        ("loop.json", "cannot write"),
    ],
)
def test_what_could_not_be_written_is_refused_before_a_race(
    tmp_path: Path, path: str, message: str
) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RequestError, match=message):
        check_race_outputs([tmp_path / path])
    assert sorted(tmp_path.iterdir()) == before
