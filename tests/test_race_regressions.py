"""What others who raced candidates got wrong, each held in whole races by a test of its own.

Real git, real processes, real folders. After every race here the user's repository is what it was,
byte for byte, and no process, worktree or temporary folder is left (`race_kit`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paraval.racing.course.steps import Step, StepKind

import paraval
from paraval.processes.children import Warden
from paraval.racing.correctness.tester import Tester
from paraval.racing.report.race_report import report_of
from paraval.racing.request import TOTAL
from paraval.racing.speed.measurement_worktrees import MOST_STANDS
from paraval.racing.speed.measurer import Measurer
from paraval.records import (
    Attempt,
    AttemptResult,
    AttemptStarted,
    Happening,
    Plan,
    RetryPolicy,
    TrialEnded,
)
from paraval.store.store import Store
from paraval.workspaces import slots
from paraval.workspaces.opening import open_workspaces
from paraval.workspaces.slots import Slot
from paraval.workspaces.workspace import WorkspaceError
from tests.race_kit import (
    MARK,
    Candidate,
    Track,
    make_track,
    scratch_of,
    telling,
    track_fixture,  # noqa: F401 - a fixture, used by its name
    whose_test_runs,
    wrong,
)
from tests.workspace_kit import fingerprint, worktrees

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
NO_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def statuses(report: paraval.RaceReport) -> dict[str, str]:
    return {one.name: one.status.value for one in report}


def estimate(report: paraval.RaceReport, name: str) -> float:
    speedup = report[name].speedup
    assert speedup is not None, f"{name} was not measured: {report[name].reason}"
    return speedup.estimate


# ---- fifty candidates on two slots

FIFTY = {f"c{n}": 1.1 + n / 100 for n in range(49)} | {"quick": 0.5}
"""What the benchmark of each tells."""


@pytest.fixture(name="fifty", scope="module")
def fifty_fixture(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Track, paraval.RaceReport]]:
    """They pass, all of them, and many more than there are slots, or stands to be measured in."""
    assert len(FIFTY) > 2 * MOST_STANDS
    track = make_track(tmp_path_factory.mktemp("fifty"))
    with scratch_of(track):
        order = list(FIFTY.items())
        random.Random(5).shuffle(order)
        report = track.race(*(telling(name, seconds) for name, seconds in order))
        yield track, report


def test_more_passing_candidates_than_slots_all_come_to_their_benchmark(
    fifty: tuple[Track, paraval.RaceReport],
) -> None:
    """Slots that are held from a test on to the benchmark would be taken by the first two."""
    _, report = fifty
    assert len(report) == len(FIFTY)
    assert statuses(report) == dict.fromkeys(FIFTY, "slower") | {"quick": "won"}


def test_each_benchmark_runs_the_code_of_its_own_candidate(
    fifty: tuple[Track, paraval.RaceReport],
) -> None:
    """What it tells stands in the candidate's own tree: another's would tell another figure."""
    _, report = fifty
    told = {name: estimate(report, name) for name in FIFTY}
    assert told == {name: pytest.approx(1 / seconds) for name, seconds in FIFTY.items()}
    assert report.standings.baseline.seconds[TOTAL] == 1.0


def test_nothing_runs_beside_a_benchmark(fifty: tuple[Track, paraval.RaceReport]) -> None:
    """Neither tests nor another benchmark."""
    track, report = fifty
    steps = track.steps(report)
    alone = {"calibrate", "screen", "final"}
    assert {step.kind for step in steps} >= alone | {"stage", "test"}
    for before, step in itertools.pairwise(steps):
        if {before.kind, step.kind} & alone:
            assert before.ended <= step.began + 0.005, (before, step)


def test_what_the_store_kept_tells_the_same_race(fifty: tuple[Track, paraval.RaceReport]) -> None:
    """No field is missing, however a candidate ended."""
    track, report = fifty
    read = report_of(Store(track.store), report.run)
    assert read.standings == report.standings
    assert read.text() == report.text()


def test_candidates_that_differ_only_in_how_long_they_sleep_are_ranked_by_it(track: Track) -> None:
    """By the clock, and handed over in another order."""
    sleeps = {"last": 0.08, "first": 0.0, "third": 0.04, "second": 0.015}
    candidates = [
        {"name": name, "files": {"timed.sh": f"sleep {seconds}\n"}}
        for name, seconds in sleeps.items()
    ]
    track.commit({"timed.sh": "sleep 0.04 # as it is\n"})
    bench = {"command": ["sh", "bench.sh"], "quiet": 0, "blocks": 3}
    report = track.race(*candidates, bench=bench)
    assert report.winner is not None
    assert report.winner.name == "first"
    ranked = sorted(sleeps, key=lambda name: -estimate(report, name))
    assert ranked == ["first", "second", "third", "last"]
    assert statuses(report)["last"] == "slower"
    assert statuses(report)["third"] == "not_shown", "it sleeps as long as the baseline"


# ---- slots that are lost


def test_a_race_that_is_cancelled_at_any_moment_leaves_nothing_and_goes_on(track: Track) -> None:
    """At moments that are drawn, ten at least, until it was resumed five times; what is done stays,
    and the race comes to its end."""
    moments = random.Random(7)
    candidates = [telling("quick", 0.5), wrong("wrong"), telling("slow", 2.0)]
    asked: list[str | None] = []

    async def repair(ask: paraval.Ask) -> Candidate:
        asked.append(ask.candidate)
        return telling("mended", 0.8)

    async def cancelled_after(seconds: float, options: paraval.Options) -> None:
        race = asyncio.create_task(track.race_async(*candidates, repair=repair, options=options))
        await asyncio.sleep(seconds)
        race.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await race

    options = paraval.Options(store=track.store)
    for tries in range(100):
        # The longer, the later: on a busy machine little happens in a moment.
        asyncio.run(cancelled_after(moments.uniform(0.02, 0.8) * (1 + tries / 10), options))
        track.assert_nothing_is_left()
        if runs := Store(track.store).runs():
            options = paraval.Options(store=track.store, resume="last")
            if tries >= 10 and runs[0].resumed >= 5:
                break
    report = track.race(*candidates, repair=repair, options=options)
    assert statuses(report) == {
        "quick": "won",
        "wrong": "failed",
        "slow": "slower",
        "mended": "accepted",
    }
    assert len(Store(track.store).runs()) == 1
    assert report.run.resumed >= 5
    assert set(asked) == {"wrong"}


class Once:
    """A function that cannot do its work the first time, as with a disk, and then can."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str, problem: Any) -> None:
        function, self.failures = getattr(owner, name), 0

        def fails_once(*arguments: Any, **named: Any) -> Any:
            if self.failures > 0:
                return function(*arguments, **named)
            self.failures += 1
            if isinstance(problem, OSError):
                raise problem
            return problem

        patch.setattr(owner, name, fails_once)


NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
LITTER = whose_test_runs("litters", "echo x >litter; mkdir -p a/b; echo x >a/b/c")
RACED = [telling("quick", 0.4), LITTER, wrong("wrong"), telling("slow", 2.0)]
ENDS = {"quick": "won", "litters": "accepted", "wrong": "failed", "slow": "slower"}


def test_a_worktree_that_cannot_be_made_costs_no_candidate_its_place(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    making = Once(monkeypatch, Slot, "make", NO_SPACE)
    assert statuses(track.race(*RACED)) == ENDS
    assert making.failures == 1


def test_where_no_worktree_can_be_made_the_race_says_so_and_ends(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_slot: Slot) -> None:
        raise NO_SPACE

    monkeypatch.setattr(Slot, "make", never)
    monkeypatch.setattr("paraval.racing.prepare.Plan", quick_to_retry)
    report = track.race(telling("quick", 0.5))
    assert report.exit_code == 3
    assert "no space left" in (report.standings.baseline.reason or "")
    assert statuses(report) == {"quick": "skipped"}


@pytest.mark.parametrize(
    ("owner", "name", "problem"),
    [
        (Slot, "clean", NO_SPACE),
        (slots, "compare", OSError(errno.EIO, "Input/output error")),
        (slots, "remove_tree", "it could not be removed: Device or resource busy"),
    ],
)
def test_a_cleanup_that_fails_once_stops_no_other(
    track: Track, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, problem: Any
) -> None:
    cleaning = Once(monkeypatch, owner, name, problem)
    assert statuses(track.race(*RACED)) == ENDS
    assert cleaning.failures == 1


def test_folders_that_nobody_may_enter_or_that_lie_too_deep_are_removed_all_the_same(
    track: Track,
) -> None:
    """What removes them calls itself for each level, and asks for permission."""
    deep = whose_test_runs("deep", "(for i in $(seq 1200); do mkdir d && cd d || exit; done)")
    shut = whose_test_runs("shut", "mkdir -p a/b $HOME/c; echo x >a/b/x; chmod 0 a/b a $HOME/c")
    report = track.race(deep, shut, telling("quick", 0.4))
    assert statuses(report) == {"deep": "accepted", "shut": "accepted", "quick": "won"}


def test_a_slot_that_is_given_back_after_the_end_harms_nothing(track: Track) -> None:
    async def late() -> None:
        async with Warden() as warden:
            workspace = worktrees(track.repo)
            async with open_workspaces(
                workspace, scratch=track.scratch, warden=warden, at_most=2
            ) as pool:
                one, other = await pool.lease(), await pool.lease()
                await one.release()
            await other.release()
            await other.release()
            kept = await other.keep(str(track.folder / "kept"))
            assert kept.change.unknown is not None
            with pytest.raises(WorkspaceError, match="the run has ended"):
                await pool.lease()

    asyncio.run(late())


# ---- what one candidate leaves for the next

LEAVES = """
for place in . .git __pycache__ .pytest_cache "$HOME" "$HOME/.cache" "$HOME/.config" "$TMPDIR" \
    .. "$PARAVAL_FOLDER" "$(git rev-parse --git-dir)/hooks"
do
    mkdir -p "$place" && echo left >"$place/left-by-another.json"
done
echo 'import os; os._exit(9)' >sitecustomize.py
printf 'stale' >__pycache__/answer.cpython-311.pyc
export LEFT_BY_ANOTHER=1
git config user.left by-another
git update-ref refs/heads/left-by-another HEAD
"""
LOOKS = """
if [ -n "$LEFT_BY_ANOTHER" ]; then echo environment >&2; exit 1; fi
for place in . .git "$HOME" "$TMPDIR" .. "$PARAVAL_FOLDER"; do
    if [ -n "$(find "$place" -name 'left-by-*' -print -quit)" ]; then
        echo "in $place" >&2
        exit 1
    fi
done
if [ -e sitecustomize.py ] || [ -e __pycache__ ] || [ -e .pytest_cache ]; then exit 1; fi
if [ -n "$(git config user.left)" ]; then echo config >&2; exit 1; fi
"""


def test_a_slot_carries_nothing_of_the_candidate_before(track: Track) -> None:
    """No file, cache, home, temporary folder, setting of git or variable: each looks for what any
    other left wherever it could, and then leaves the same."""
    track.commit({"work.sh": LOOKS + LEAVES})
    names = [f"c{n}" for n in range(8)]
    report = track.race(
        *(whose_test_runs(name, f"# {name}{LOOKS}{LEAVES}echo x >by-{name}") for name in names)
    )
    assert report.standings.baseline.reason is None
    right = ("won", "accepted")
    assert {one.name: one.reason for one in report if one.status not in right} == {}


def test_a_stand_carries_nothing_of_the_candidate_that_was_measured_before(track: Track) -> None:
    """There are more candidates than stands, so that worktrees go from one to another."""

    def code(name: str) -> str:
        places = '. "$HOME" "$TMPDIR"'
        return (
            f'for one in $(find {places} -name "left-by-*"); do test ${{one##*/}} = left-by-{name} '
            f"|| exit 1; done\nfor place in {places}; do touch $place/left-by-{name}; done\n"
        )

    track.commit({"timed.sh": code("c99")})
    names = [f"c{n}" for n in range(MOST_STANDS + 2)]
    report = track.race(
        *({"name": n, "files": {"timed.sh": code(n), "seconds": "2.0\n"}} for n in names)
    )
    assert statuses(report) == dict.fromkeys(names, "slower")


# ---- what tests tell


def junit_of(name: str) -> str:
    """A command that reports one test of this name, which failed, after a while."""
    return (
        f'echo \'<testsuite><testcase classname="t" name="same"/><testcase classname="t" '
        f'name="{name}"><failure message="{name} is wrong"/></testcase></testsuite>\' >report.xml; '
        f"echo {name} >out.json; sleep 0.05; exit 1"
    )


def test_reports_of_candidates_that_run_side_by_side_never_collide(track: Track) -> None:
    """Each is told what went wrong with itself, and not with whoever ended last."""
    passing = junit_of("nothing").replace("exit 1", ":").replace("failure", "system-out")
    track.commit({"work.sh": passing})
    names = [f"c{n}" for n in range(8)]
    report = track.race(
        *(whose_test_runs(name, junit_of(name)) for name in names),
        test={"command": ["sh", "check.sh"], "junit": "report.xml"},
        compare=[{"file": "out.json"}],
        limits={"parallel": 4},
    )
    for name in names:
        differences = {one.name: one for one in report[name].differences}
        assert report[name].status == "failed"
        assert differences["out.json"].actual == name
        assert [test for test in differences if test.startswith("t::c")] == [f"t::{name}"]
        assert f"{name} is wrong" in differences[f"t::{name}"].message


def test_what_is_missing_in_a_report_or_a_measurement_ends_that_candidate_alone(
    track: Track,
) -> None:
    """No total, no object, no number, no file; and tests without names."""
    told = {"empty": "{}", "list": "[1]", "text": '{"__total__": "1"}', "nan": '{"__total__": NaN}'}
    track.commit({"work.sh": "echo '<testsuite><testcase name=\"a\"/></testsuite>' >report.xml\n"})
    candidates = [
        {"name": name, "files": {"timed.sh": f"echo '{text}' >out.json; exit 0\n"}}
        for name, text in told.items()
    ]
    none = {"name": "none", "files": {"timed.sh": "exit 0\n"}}
    nameless = whose_test_runs("nameless", "echo '<testsuite><testcase/></testsuite>' >report.xml")
    report = track.race(
        *candidates,
        none,
        nameless,
        telling("quick", 0.5),
        test={"command": ["sh", "check.sh"], "junit": "report.xml"},
    )
    names = [*told, "none", "nameless"]
    assert statuses(report) == dict.fromkeys(names, "failed") | {"quick": "won"}
    assert all(report[name].reason for name in names)


def test_what_passes_its_tests_and_prints_or_writes_something_else_is_not_right(
    track: Track,
) -> None:
    """Beyond pass and fail."""
    track.commit({"work.sh": "echo the answer is 42; echo '[42]' >found.json\n"})
    report = track.race(
        whose_test_runs("prints", "echo the answer is 41; echo '[42]' >found.json"),
        whose_test_runs("writes", "echo the answer is 42; echo '[41]' >found.json"),
        whose_test_runs("forgets", "echo the answer is 42"),
        whose_test_runs("same", "echo 'the answer is'  42; echo '[42]' >found.json"),
        compare=["stdout", {"file": "found.json"}],
    )
    assert statuses(report) == {
        "prints": "failed",
        "writes": "failed",
        "forgets": "failed",
        "same": "won",
    }
    (printed,) = report["prints"].differences
    assert (printed.scope, printed.status) == ("stdout", "different")
    assert "41" in (printed.actual or "")
    assert "42" in (printed.expected or "")
    (written,) = report["writes"].differences
    assert (written.scope, written.name) == ("file", "found.json")
    (forgotten,) = report["forgets"].differences
    assert (forgotten.name, forgotten.status) == ("found.json", "missing")


def test_pytest_runs_by_the_users_own_settings_which_nobody_rewrites(track: Track) -> None:
    """`addopts` hold in worktrees, reports of pytest that run side by side are told apart, and the
    user's file is as it was even while tests run."""
    settings = "[pytest]\naddopts = --strict-markers -k 'not slow'\n"
    track.commit(
        {
            "pytest.ini": settings,
            "work.py": "def work():\n    return 42\n",
            "test_work.py": "from work import work\n\ndef test_work():\n    assert work() == 42\n"
            "\ndef test_slow():\n    raise AssertionError\n",
        }
    )
    seen: list[str] = []

    def look(_event: Happening) -> None:
        seen.append((track.repo / "pytest.ini").read_text())

    report = track.race(
        *(
            {"name": f"c{n}", "files": {"work.py": f"def work():\n    return {n}\n"}}
            for n in (41, 43)
        ),
        test=PYTEST,
        env={**NO_PLUGINS, MARK: str(track.folder)},
        observer=Looking(look),
    )
    assert set(seen) == {settings}
    assert report.standings.baseline.tests is not None
    assert report.standings.baseline.tests.passed == 1, "what is slow was left out"
    for n in (41, 43):
        (difference,) = report[f"c{n}"].differences
        assert difference.name == "test_work.py::test_work"
        assert f"assert {n} == 42" in difference.message


class Looking:
    """An onlooker that calls a function at whatever happens."""

    def __init__(self, look: Callable[[Happening], None]) -> None:
        self._look = look

    def __call__(self, event: Happening) -> None:
        self._look(event)

    def tick(self, now: float) -> None: ...


# ---- the user's tree


def test_no_candidate_is_in_the_users_tree_even_for_a_moment(track: Track) -> None:
    """Not while it is staged, tested, measured or repaired."""
    before = fingerprint(track.repo)
    seen: list[str] = []

    def look(event: Happening) -> None:
        if isinstance(event, AttemptStarted | TrialEnded):
            seen.append(type(event).__name__)
            assert fingerprint(track.repo) == before

    async def repair(_ask: paraval.Ask) -> Candidate:
        assert fingerprint(track.repo) == before
        return telling("mended", 0.8)

    report = track.race(
        telling("quick", 0.5), wrong("wrong"), repair=repair, observer=Looking(look)
    )
    assert statuses(report) == {"quick": "won", "wrong": "failed", "mended": "accepted"}
    assert len(seen) > 30


def test_an_engine_that_is_killed_leaves_the_users_tree_alone_and_the_next_one_clears_up(
    track: Track,
) -> None:
    """With a candidate's test under way, and SIGKILL, which nobody can answer."""
    started = track.folder / "started"
    patch = track.folder / "candidates" / "waits.jsonl"
    patch.parent.mkdir()
    code = f"test -e '{started}' || {{ touch '{started}'; sleep 60; }}"
    patch.write_text(json.dumps(whose_test_runs("waits", code)) + "\n")
    (track.folder / "race.yaml").write_text(
        json.dumps(
            {
                "repo": str(track.repo),
                "test": ["sh", "check.sh"],
                "bench": {**track.keys()["bench"]},
                "env": {MARK: str(track.folder)},
                "sandbox": False,
                "candidates": "candidates/waits.jsonl",
            }
        )
    )
    before = fingerprint(track.repo)
    command = [sys.executable, "-m", "paraval", "race", "race.yaml", "--store", str(track.store)]
    with subprocess.Popen(
        command, cwd=track.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as engine:
        until(started.exists)
        engine.send_signal(signal.SIGKILL)
    assert fingerprint(track.repo) == before
    until(lambda: not track.processes())
    assert list(track.scratch.iterdir()), "nobody was left to clear it"
    done = subprocess.run(
        [*command, "--resume"], cwd=track.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "waits won" in done.stdout
    assert fingerprint(track.repo) == before
    track.assert_nothing_is_left()


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def test_what_is_not_committed_is_there_for_every_candidate_where_that_is_asked_for(
    track: Track,
) -> None:
    """All of the working tree, and not only the file that a candidate changes."""
    check = "test -e new/notes.txt && . ./work.sh && test $(cat answer) = 42\n"
    track.write({"new/notes.txt": "not added\n", "check.sh": check, "seconds": "2.0\n"})
    (track.repo / "bench.sh").chmod(0o755)
    report = track.race(
        telling("quick", 1.0),
        whose_test_runs("needs", "test -x bench.sh"),
        repo={"git": str(track.repo), "uncommitted": True},
    )
    assert statuses(report) == {"quick": "accepted", "needs": "won"}
    assert estimate(report, "quick") == pytest.approx(2.0)
    without = track.race(telling("slow", 1.5))
    assert statuses(without) == {"slow": "slower"}, "against what is committed"


def test_two_races_of_one_repository_at_the_same_time_don_t_meet(track: Track) -> None:
    async def both() -> tuple[paraval.RaceReport, paraval.RaceReport]:
        asked = track.keys()
        one = paraval.race_async(candidates=[telling("quick", 0.5), wrong("wrong")], **asked)
        other = paraval.race_async(candidates=[telling("quick", 0.25), wrong("other")], **asked)
        return await asyncio.gather(one, other)

    before = fingerprint(track.repo)
    one, other = asyncio.run(both())
    assert statuses(one) == {"quick": "won", "wrong": "failed"}
    assert statuses(other) == {"quick": "won", "other": "failed"}
    assert [estimate(race, "quick") for race in (one, other)] == pytest.approx([2.0, 4.0])
    assert one.run.id != other.run.id
    assert fingerprint(track.repo) == before
    track.assert_nothing_is_left()


# ---- one candidate and the others


@pytest.mark.parametrize("performer", [Tester, Measurer])
def test_a_fault_of_ours_with_one_candidate_ends_that_one_alone(
    track: Track, monkeypatch: pytest.MonkeyPatch, performer: type[Any]
) -> None:
    perform = performer.perform

    async def perform_or_not(self: Any, attempt: Attempt, step: Step) -> AttemptResult:
        if step.candidate == "cursed":
            raise ZeroDivisionError("a fault")
        result: AttemptResult = await perform(self, attempt, step)
        return result

    monkeypatch.setattr(performer, "perform", perform_or_not)
    monkeypatch.setattr("paraval.racing.prepare.Plan", quick_to_retry)
    report = track.race(telling("quick", 0.5), telling("cursed", 0.1), telling("slow", 2.0))
    assert statuses(report) == {"quick": "won", "cursed": "infra_error", "slow": "slower"}
    assert "a bug in paraval" in report["cursed"].reason


def quick_to_retry(**fields: Any) -> Plan:
    return Plan(**fields, retry=RetryPolicy(first_delay_s=0.01))


def test_repair_is_always_told_what_is_wrong(track: Track) -> None:
    """However a candidate failed: there is a reason, and where it ran, what was another."""
    asked: dict[str, paraval.Ask] = {}

    async def repair(ask: paraval.Ask) -> None:
        assert ask.candidate is not None
        asked[ask.candidate] = ask

    track.commit({"work.sh": "echo right\n"})
    report = track.race(
        wrong("fails"),
        whose_test_runs("hangs", "sleep 60"),
        whose_test_runs("crashes", "kill -SEGV $$"),
        whose_test_runs("prints", "echo left"),
        {"name": "stray", "patch": "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-a\n+b\n"},
        {"name": "empty", "patch": "not a patch"},
        test={"command": ["sh", "check.sh"], "timeout": 0.5},
        compare=["stdout"],
        repair=repair,
        limits={"parallel": 4},
    )
    ends = {
        "fails": "failed",
        "hangs": "timeout",
        "crashes": "crashed",
        "prints": "failed",
        "stray": "invalid",
        "empty": "invalid",
    }
    assert statuses(report) == ends
    assert {name: ask.status for name, ask in asked.items()} == ends
    assert all(ask.reason for ask in asked.values())
    assert all(asked[name].differences for name in ("fails", "hangs", "crashes", "prints"))
    assert all(ask.patch for ask in asked.values())


def test_what_was_refined_is_refined_again_as_deep_as_is_asked_for(track: Track) -> None:
    """In parallel as well as one by one."""
    asked: list[str | None] = []

    async def refine(ask: paraval.Ask) -> Candidate:
        asked.append(ask.candidate)
        assert ask.speedup is not None
        return {"files": {"seconds": f"{0.8 / ask.speedup['estimate']}\n"}}

    report = track.race(
        telling("a", 0.9),
        telling("b", 0.8),
        refine={"function": refine, "depth": 2},
    )
    once, twice = "{}-refine-1", "{}-refine-1.1"
    expected = {one.format(name) for one in ("{}", once, twice) for name in "ab"}
    assert set(asked) == expected
    assert len(asked) == len(expected)
    assert report.winner is not None
    assert report.winner.name == "b-refine-1.1.1"
    assert estimate(report, report.winner.name) == pytest.approx(1 / (0.8 * 0.8**3))


def test_a_slow_candidate_holds_up_neither_the_tests_nor_the_repairs_of_others(
    track: Track,
) -> None:
    """By the times in the store: all others were through while it still ran."""

    async def repair(_ask: paraval.Ask) -> Candidate:
        return telling("mended", 0.6)

    quick = [f"quick-{n}" for n in range(4)]
    report = track.race(
        whose_test_runs("slow", "sleep 1.5"),
        wrong("wrong"),
        *(telling(name, 2.0 + n) for n, name in enumerate(quick)),
        repair=repair,
    )
    slow = track.step(report, StepKind.TEST, "slow")
    for name in (*quick, "wrong", "mended"):
        assert slow.began < track.step(report, StepKind.TEST, name).ended < slow.ended
    repaired = track.step(report, StepKind.REPAIR, "wrong")
    assert slow.began < repaired.began <= repaired.ended < slow.ended
    assert statuses(report)["mended"] == "accepted"
