"""What a race shows: the text, Markdown, JSON and the winner's patch; bounded and harmless.

Texts are in `golden/race_*`; PARAVAL_GOLDEN=write writes them anew.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.errors import RequestError
from paraval.racing.findings import (
    ProfiledFunction,
    ProfiledLine,
    RunDifference,
    Speedup,
    TestCounts,
)
from paraval.racing.report.race_report import RaceReport, check_race_outputs
from paraval.racing.request import TOTAL, RaceKeys, RaceRequest
from paraval.racing.standings import BaselineStanding, CandidateStanding, Standings, Status
from paraval.records import RunInfo
from paraval.text.terminal import columns
from tests.golden_kit import assert_golden

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
    commit="1a2b3c4d5e6f7890", tree="t0", tests=TestCounts(passed=12), seconds={TOTAL: 0.512}
)
DIFFERENCE = RunDifference(
    scope="test",
    name="tests/test_sort.py::test_cycle",
    status="failed",
    baseline="passed",
    message="assert [1, 3, 2] == [1, 2, 3]\n +  where [1, 3, 2] = sort([3, 2, 1])\nmore",
)
ENDED = RunDifference(
    scope="exit_code", name="exit code 3", status="different", baseline="0", message="boom"
)
OUTPUT = RunDifference(scope="stdout", name="stdout", status="different", baseline="there")
PASSED = TestCounts(passed=12)
CANDIDATES = (
    CandidateStanding(name="late", status=Status.SKIPPED, reason="the time was up"),
    CandidateStanding(name="same", status=Status.DUPLICATE, reason="identical to quick", tree="t1"),
    CandidateStanding(
        name="wrong",
        status=Status.FAILED,
        reason="1 of 12 tests failed: test_cycle",
        tests=TestCounts(passed=11, failed=1),
        differences=(DIFFERENCE, ENDED, OUTPUT, DIFFERENCE),
        more_differences=2,
    ),
    CandidateStanding(name="hangs", status=Status.TIMEOUT, reason="timed out after 10 s"),
    CandidateStanding(
        name="cheat",
        status=Status.INVALID,
        reason="it edits tests/test_a.py",
        flags=("edits tests/test_a.py",),
        round=0,
    ),
    CandidateStanding(
        name="noise",
        status=Status.NOT_SHOWN,
        reason="within noise: 1% slower to 3% faster",
        tests=PASSED,
        speedup=Speedup(estimate=1.01, low=0.99, high=1.03, blocks=3),
        noisy=True,
    ),
    CandidateStanding(
        name="quick",
        status=Status.WON,
        reason="3.05–3.38× as fast (15 fresh blocks)",
        tests=PASSED,
        speedup=Speedup(estimate=3.21, low=3.05, high=3.38, blocks=15),
        cases={"large": Speedup(estimate=4.0, low=3.0, high=5.0, blocks=15)},
        seconds={TOTAL: 0.16, "large": 0.1},
        tree="t1",
        patch="attempts/3/patch.diff",
        cautions=("the tests ran 1 of 3 added lines: nothing shows that the others are correct",),
        note="a *heap*\n| of | ours",
    ),
    CandidateStanding(
        name="wrong-fixed",
        status=Status.ACCEPTED,
        reason="2.80–3.00× as fast; quick is faster",
        tests=PASSED,
        speedup=Speedup(estimate=2.9, low=2.8, high=3.0, blocks=15),
        round=1,
        parent="wrong",
    ),
)
LINES = (
    ProfiledLine(line=12, hits=1000, seconds=0.9, text="    for item in items:"),
    ProfiledLine(line=13, hits=999, seconds=0.299, text="        found.append(item)"),
    ProfiledLine(line=14, hits=1, seconds=0.001, text="    return found"),
)
PROFILE = (ProfiledFunction(name="sort:sort", file="sort.py", seconds=1.2, lines=LINES),)
STANDINGS = Standings(
    baseline=BASELINE,
    candidates=CANDIDATES,
    winner="quick",
    profile=PROFILE,
    notes=("1 candidate pending: the time was up",),
    rounds=2,
    finalists=2,
    cost_usd=0.5,
    unpriced_calls=1,
    nodes=("a", "b"),
    measured_on=("desk",),
)
ONCE = CandidateStanding(
    name="once",
    status=Status.NOT_SHOWN,
    reason="a single block is not enough",
    speedup=Speedup(estimate=3.2, low=0.0, high=float("inf"), blocks=1),
    noisy=True,
)
FAILING = replace(
    BASELINE,
    reason="the baseline fails its own tests: 2 of 12 tests failed",
    failing=(DIFFERENCE.name, "test_b"),
    differences=(replace(DIFFERENCE, baseline="-"),),
)
COMPARED = Standings(
    baseline=replace(BASELINE, seconds={TOTAL: 0.75, "sort": 0.5, "parse": 0.25}),
    candidates=(
        CandidateStanding(
            name="topic",
            status=Status.SLOWER,
            reason="18 to 22% slower",
            tests=PASSED,
            speedup=Speedup(estimate=0.8, low=0.78, high=0.82, blocks=10),
            cases={
                "sort": Speedup(estimate=0.77, low=0.75, high=0.79, blocks=10),
                "parse": Speedup(estimate=1.0, low=0.97, high=1.03, blocks=10),
            },
            seconds={TOTAL: 0.9, "sort": 0.65, "parse": 0.2504},
        ),
    ),
)


def request_for(**keys: Any) -> RaceRequest:
    asked = {"test": ["pytest", "-q"], "bench": ["python", "bench.py"], **keys}
    return RaceRequest(
        name="sort",
        source=None,
        folder="/project",
        repo="/project",
        keys=RaceKeys.model_validate(asked),
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
def run_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunInfo:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".paraval" / "runs" / "run-1"
    (folder / "attempts" / "3").mkdir(parents=True)
    (folder / "attempts" / "3" / "patch.diff").write_bytes(PATCH)
    return run_in(folder)


@pytest.fixture(name="report")
def report_fixture(run: RunInfo) -> RaceReport:
    return RaceReport(STANDINGS, run, request_for(propose={"command": ["propose"]}))


def in_one_line(report: RaceReport) -> str:
    return " ".join(report.text().split())


# ---- as it is printed and written


@pytest.mark.parametrize("ending", ["txt", "md", "json"])
def test_a_race_is_reported_as_in_its_golden_file(report: RaceReport, ending: str) -> None:
    report.write(f"race.{ending}")
    assert_golden(f"race_won.{ending}", Path(f"race.{ending}").read_text())


@pytest.mark.parametrize(
    ("name", "standings", "keys"),
    [
        ("failing", Standings(baseline=FAILING), {}),
        ("interrupted", replace(STANDINGS, winner=None, over=False), {}),
        (
            "noisy",
            Standings(
                baseline=replace(BASELINE, tests=None, noisy=True, unseen=True, unstable=("t",)),
                candidates=(ONCE,),
                unpriced_calls=2,
            ),
            {"propose": ["propose"]},
        ),
        ("refs", COMPARED, {"repo": {"git": ".", "ref": "main", "head": "topic"}}),
        (
            "refs_memory",
            replace(
                COMPARED,
                baseline=replace(BASELINE, seconds={TOTAL: 12_000_000.0}),
                candidates=(
                    replace(COMPARED.candidates[0], cases={}, seconds={TOTAL: 15_000_000.0}),
                ),
            ),
            {
                "repo": {"git": ".", "ref": "main", "head": "topic"},
                "bench": {"command": "b", "metric": "memory"},
            },
        ),
        ("empty", Standings(baseline=BASELINE), {}),
    ],
)
def test_other_ends_of_a_race_are_reported_as_in_their_golden_files(
    run: RunInfo, name: str, standings: Standings, keys: dict[str, Any]
) -> None:
    assert_golden(f"race_{name}.txt", RaceReport(standings, run, request_for(**keys)).text() + "\n")


def test_the_page_and_the_module_describe_every_key_of_the_document(report: RaceReport) -> None:
    from paraval.racing.report import race_json

    page = (Path(__file__).parent.parent / "docs" / "reference" / "race-report.md").read_text()
    told = set(re.findall(r"`(\w+)`", page.partition("## race.json\n")[2]))
    module = set(re.findall(r'"(\w+)"', race_json.__doc__ or ""))
    refs = RaceReport(COMPARED, report.run, request_for(repo={"git": ".", "head": "topic"}))
    cases = {"large", "sort", "parse", TOTAL}
    keys = {*keys_in(report.as_json()), *keys_in(refs.as_json())} - cases
    assert keys <= told
    assert keys <= module


def keys_in(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_in(inner)


# ---- in Python


def test_a_report_is_pleasant_to_use(report: RaceReport) -> None:
    assert report.winner is not None
    assert report.winner.name == "quick"
    assert report["wrong"].tests == TestCounts(passed=11, failed=1)
    assert [one.name for one in report][:2] == ["late", "same"]
    assert len(report) == 8
    assert report.patch == PATCH.decode()
    assert report.winner_patch() == PATCH
    assert report.patch_of("hangs") is None
    assert str(report) == report.text()
    assert repr(report).startswith("<RaceReport of run-1: quick won: 3.21× as fast as the baseline")
    with pytest.raises(KeyError):
        report["nobody"]


@pytest.mark.parametrize(
    ("standings", "run_changes", "keys", "code"),
    [
        (STANDINGS, {}, {}, 0),
        (replace(STANDINGS, winner=None), {}, {}, 1),
        (Standings(baseline=BASELINE), {}, {}, 3),
        (Standings(baseline=FAILING), {}, {}, 3),
        (replace(STANDINGS, winner=None, over=False), {}, {}, 3),
        (STANDINGS, {"interrupted": True}, {}, 130),
        (COMPARED, {}, {"repo": {"git": ".", "head": "topic"}}, 1),
        (
            Standings(baseline=BASELINE, candidates=(ONCE,)),
            {},
            {"repo": {"git": ".", "head": "topic"}},
            0,
        ),
    ],
    ids=["won", "none", "empty", "failing", "pending", "interrupted", "slower", "no difference"],
)
def test_the_exit_code_says_whether_there_is_a_winner(
    run: RunInfo,
    standings: Standings,
    run_changes: dict[str, Any],
    keys: dict[str, Any],
    code: int,
) -> None:
    report = RaceReport(standings, replace(run, **run_changes), request_for(**keys))
    assert report.exit_code == code


# ---- the text


def test_a_long_patch_is_shown_in_part(run: RunInfo) -> None:
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


def test_flags_are_red(report: RaceReport) -> None:
    assert "\x1b[31m  cheat: edits tests/test_a.py\x1b[0m" in report.text(color=True)


def test_rows_are_marked_as_noisy_only_if_some_are_not(run: RunInfo) -> None:
    for noisy, marks in (({"noise"}, 1), ({"noise", "quick", "wrong-fixed"}, 0)):
        candidates = tuple(replace(one, noisy=one.name in noisy) for one in CANDIDATES)
        text = RaceReport(replace(STANDINGS, candidates=candidates), run, request_for()).text()
        assert text.partition("\n\n")[0].count(" ~ ") == marks
        assert "measured while the machine was busy" in " ".join(text.split())


@pytest.mark.parametrize(
    ("reason", "is_said"),
    [
        ("the baseline fails its own tests: exit code 1", True),
        ("the baseline's tests gave no result: command not found: pytset", True),
        ("the baseline's benchmark cannot be measured: can't open file 'b.py'", True),
        ("the baseline was not tested: the time limit of 1 s was reached before its turn", False),
        ("the baseline's tests gave no result: timed out after 2 s", False),
        ("the baseline's benchmark cannot be measured: exit code 1", False),
    ],
)
def test_what_commands_see_is_explained_where_that_may_be_the_reason(
    run: RunInfo, reason: str, is_said: bool
) -> None:
    standings = Standings(baseline=replace(BASELINE, reason=reason))
    text = RaceReport(standings, run, request_for()).text()
    assert ("Commands see" in text) is is_said
    uncommitted = request_for(repo={"git": ".", "uncommitted": True})
    assert "--uncommitted" not in RaceReport(standings, run, uncommitted).text()


def test_a_race_with_a_python_function_is_resumed_in_python(run: RunInfo) -> None:
    standings = replace(STANDINGS, winner=None, over=False)
    text = RaceReport(standings, run, request_for(propose={"rounds": 2})).text()
    assert "Resume it in Python: paraval.race(..., options=paraval.Options(resume='run-1'))" in text


@pytest.mark.parametrize(
    ("metric", "seconds", "is_short"),
    [("wall", 0.001, True), ("cpu", 0.009, True), ("o.json", 0.001, False), ("wall", 0.011, False)],
)
def test_a_very_short_benchmark_has_a_caution_unless_it_measures_itself(
    run: RunInfo, metric: str, seconds: float, *, is_short: bool
) -> None:
    standings = replace(STANDINGS, baseline=replace(BASELINE, seconds={TOTAL: seconds}))
    request = request_for(bench={"command": ["b"], "metric": metric})
    said = in_one_line(RaceReport(standings, run, request))
    assert ("process startup dominates" in said) is is_short


# ---- hostile


HOSTILE = "\x1b[2J\x1b]0;title\x07\r\n| `<b>` \u202e\u2028 \x00 表" * 3


def hostile_standings(text: str) -> Standings:
    difference = RunDifference(scope="test", name=text, status=text, baseline=text, message=text)
    line = ProfiledLine(line=1, hits=1, seconds=1.0, text=text)
    one = CandidateStanding(
        name=text or "?",
        status=Status.WON,
        reason=f"\ud800{text}",
        differences=(difference, replace(difference, scope="file")),
        flags=(text,),
        cautions=(text,),
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
        nodes=(text,),
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
        # Commands to copy are not broken.
        assert columns(line) <= width or line.startswith("The winning patch: ")


@given(st.text(max_size=30), st.floats(), st.floats(), st.sampled_from(Status))
def test_the_document_is_strict_json_whatever_is_in_it(
    name: str, estimate: float, high: float, status: Status
) -> None:
    standings = hostile_standings(name)
    one = replace(
        standings.candidates[0],
        status=status,
        speedup=Speedup(estimate=estimate, low=0.5, high=high, blocks=2),
    )
    standings = replace(
        standings,
        baseline=replace(BASELINE, seconds={name: estimate}, failing=(name,)),
        candidates=(one,),
    )
    document = RaceReport(standings, run_in(Path("/run")), request_for()).as_json()
    text = json.dumps(document, allow_nan=False, ensure_ascii=False)
    assert json.loads(text.encode()) == document


def test_a_patch_cannot_act_on_a_terminal_nor_leave_its_fence(run: RunInfo, tmp_path: Path) -> None:
    hostile = PATCH + b"+\x1b[2J````\r\xff\n+```\n+</details>\n"
    Path(run.folder, "attempts/3/patch.diff").write_bytes(hostile)
    report = RaceReport(STANDINGS, run, request_for())
    assert "+\\x1b[2J````\\r\N{REPLACEMENT CHARACTER}\n" in report.text()
    lines = report.markdown().split("\n")
    assert lines.count("`````diff") == lines.count("`````") == 1
    assert lines.index("`````diff") < lines.index("+</details>") < lines.index("`````")


def test_names_in_markdown_are_not_markdown(run: RunInfo) -> None:
    text = RaceReport(hostile_standings("|`<b>@all"), run, request_for()).markdown()
    assert "<b>" not in text
    assert "@all" not in text
    assert "<code>&#124;&#96;&#60;b&#62;&#64;all</code>" in text


# ---- files


def test_a_patch_is_written_if_there_is_a_winner(report: RaceReport, tmp_path: Path) -> None:
    for name in ("winner.patch", "winner.diff"):
        report.write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == PATCH
    without = RaceReport(replace(STANDINGS, winner=None), report.run, report.request)
    (tmp_path / "winner.patch").write_text("before")
    with pytest.raises(RequestError, match="the race has no winner"):
        without.write(tmp_path / "winner.patch")
    assert (tmp_path / "winner.patch").read_text() == "before"
    assert not [*tmp_path.glob(".paraval?*")]


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
def test_a_file_that_cannot_be_written_is_refused_before_the_race(
    tmp_path: Path, path: str, message: str
) -> None:
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RequestError, match=message):
        check_race_outputs([tmp_path / path])
    assert sorted(tmp_path.iterdir()) == before
