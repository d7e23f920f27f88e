"""What other programs that race candidates got wrong, each with a test in whole races.

Real git, real processes, real folders. `race_kit` checks after every race that the user's
repository is as it was, byte for byte, and that no process, worktree or temporary folder is left.
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

import paraval
from paraval.processes.children import Warden
from paraval.racing.correctness.tester import Tester
from paraval.racing.request import TOTAL
from paraval.racing.run import report_of
from paraval.racing.speed.measurement_worktrees import MOST_WORKTREES
from paraval.racing.speed.measurer import Measurer
from paraval.racing.steps import Step, StepKind
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


# ---- many candidates on two slots

MANY = {f"c{n}": 1.1 + n / 100 for n in range(19)} | {"quick": 0.5}
"""The seconds that the benchmark of each reports."""


@pytest.fixture(name="many", scope="module")
def many_fixture(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Track, paraval.RaceReport]]:
    """All pass, and there are more than slots, or worktrees to be measured in."""
    assert len(MANY) > 2 * MOST_WORKTREES
    track = make_track(tmp_path_factory.mktemp("many"))
    with scratch_of(track):
        order = list(MANY.items())
        random.Random(5).shuffle(order)
        report = track.race(*(telling(name, seconds) for name, seconds in order))
        yield track, report


def test_more_passing_candidates_than_slots_are_all_measured(
    many: tuple[Track, paraval.RaceReport],
) -> None:
    """If slots were held from a test until the benchmark, the first two would take all."""
    _, report = many
    assert len(report) == len(MANY)
    assert statuses(report) == dict.fromkeys(MANY, "slower") | {"quick": "won"}


def test_each_benchmark_runs_the_code_of_its_own_candidate(
    many: tuple[Track, paraval.RaceReport],
) -> None:
    """It reports a number in the candidate's own tree."""
    _, report = many
    reported = {name: estimate(report, name) for name in MANY}
    assert reported == {name: pytest.approx(1 / seconds) for name, seconds in MANY.items()}
    assert report.standings.baseline.seconds[TOTAL] == 1.0


def test_nothing_runs_beside_a_benchmark(many: tuple[Track, paraval.RaceReport]) -> None:
    """No test, and no other benchmark."""
    track, report = many
    steps = track.steps(report)
    alone = {"calibrate", "screen", "final"}
    assert {step.kind for step in steps} >= alone | {"stage", "test"}
    for before, step in itertools.pairwise(steps):
        if {before.kind, step.kind} & alone:
            assert before.ended <= step.began + 0.005, (before, step)


def test_the_stored_race_has_the_same_report(many: tuple[Track, paraval.RaceReport]) -> None:
    """No field is missing, however a candidate ended."""
    track, report = many
    read = report_of(Store(track.store), report.run)
    assert read.standings == report.standings
    assert read.text() == report.text()


def test_candidates_that_differ_only_in_how_long_they_sleep_are_ranked_by_that(
    track: Track,
) -> None:
    """By the clock, and given in another order."""
    sleeps = {"last": 0.3, "first": 0.0, "third": 0.15, "second": 0.06}
    candidates = [
        {"name": name, "files": {"timed.sh": f"sleep {seconds}\n"}}
        for name, seconds in sleeps.items()
    ]
    track.commit({"timed.sh": "sleep 0.15 # as it is\n"})
    bench = {"command": ["sh", "bench.sh"], "quiet": 0, "blocks": 3}
    report = track.race(*candidates, bench=bench)
    assert report.winner is not None
    assert report.winner.name == "first"
    ranked = sorted(sleeps, key=lambda name: -estimate(report, name))
    assert ranked == ["first", "second", "third", "last"]
    assert statuses(report)["last"] == "slower"
    assert statuses(report)["third"] == "not_shown", "it sleeps as long as the baseline"


# ---- slots that are lost


def test_a_race_that_is_cancelled_at_any_moment_leaves_nothing_and_resumes(track: Track) -> None:
    """At random moments, until it was resumed five times; finished work stays."""
    moments = random.Random(7)
    candidates = [telling("quick", 0.5), wrong("wrong"), telling("slow", 2.0)]

    async def propose(ask: paraval.Ask) -> list[Candidate]:
        assert ask.round == 1 or ask.candidates[1]["status"] == "failed"
        return [track.with_patch(telling("fixed", 0.8))] if ask.round == 2 else []

    async def cancelled_after(seconds: float, options: paraval.Options) -> None:
        race = asyncio.create_task(track.race_async(*candidates, propose=propose, options=options))
        await asyncio.sleep(seconds)
        race.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await race

    options = paraval.Options(store=track.store)
    for tries in range(100):
        # Longer each time: on a busy machine little happens in a moment.
        asyncio.run(cancelled_after(moments.uniform(0.02, 0.8) * (1 + tries / 10), options))
        track.assert_nothing_is_left()
        if runs := Store(track.store).runs():
            options = paraval.Options(store=track.store, resume="last")
            if tries >= 10 and runs[0].resumed >= 5:
                break
    report = track.race(*candidates, propose=propose, options=options)
    assert statuses(report) == {
        "quick": "won",
        "wrong": "failed",
        "slow": "slower",
        "fixed": "accepted",
    }
    assert len(Store(track.store).runs()) == 1
    assert report.run.resumed >= 5


class Once:
    """A function that fails the first time, as a disk may."""

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


def test_a_race_without_any_worktree_reports_that_and_ends(
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


def test_unreadable_and_very_deep_folders_are_removed(
    track: Track,
) -> None:
    """Removing them recurses for each level, and needs permission."""
    deep = whose_test_runs("deep", "(for i in $(seq 1200); do mkdir d && cd d || exit; done)")
    shut = whose_test_runs("shut", "mkdir -p a/b $HOME/c; echo x >a/b/x; chmod 0 a/b a $HOME/c")
    report = track.race(deep, shut, telling("quick", 0.4))
    assert statuses(report) == {"deep": "accepted", "shut": "accepted", "quick": "won"}


def test_a_slot_that_is_released_after_the_end_harms_nothing(track: Track) -> None:
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
    """No file, cache, home, temporary folder, git setting or variable: each looks for what another
    left, and then leaves the same."""
    track.commit({"work.sh": LOOKS + LEAVES})
    names = [f"c{n}" for n in range(8)]
    report = track.race(
        *(whose_test_runs(name, f"# {name}{LOOKS}{LEAVES}echo x >by-{name}") for name in names)
    )
    assert report.standings.baseline.reason is None
    right = ("won", "accepted")
    assert {one.name: one.reason for one in report if one.status not in right} == {}


def test_a_measurement_worktree_carries_nothing_of_the_candidate_before(track: Track) -> None:
    """There are more candidates than worktrees, so that they are reused."""

    def code(name: str) -> str:
        places = '. "$HOME" "$TMPDIR"'
        return (
            f'for one in $(find {places} -name "left-by-*"); do test ${{one##*/}} = left-by-{name} '
            f"|| exit 1; done\nfor place in {places}; do touch $place/left-by-{name}; done\n"
        )

    track.commit({"timed.sh": code("c99")})
    names = [f"c{n}" for n in range(MOST_WORKTREES + 2)]
    report = track.race(
        *({"name": n, "files": {"timed.sh": code(n), "seconds": "2.0\n"}} for n in names)
    )
    assert statuses(report) == dict.fromkeys(names, "slower")


# ---- what tests report


def junit_of(name: str) -> str:
    """A command that reports a test of this name, which failed, after a while."""
    return (
        f'echo \'<testsuite><testcase classname="t" name="same"/><testcase classname="t" '
        f'name="{name}"><failure message="{name} is wrong"/></testcase></testsuite>\' >"$1"; '
        f"echo {name} >out.json; sleep 0.05; exit 1"
    )


def test_reports_of_parallel_candidates_never_collide(track: Track) -> None:
    """Each gets its own failures, and not those of whoever ended last."""
    passing = junit_of("nothing").replace("exit 1", ":").replace("failure", "system-out")
    track.commit({"work.sh": passing})
    names = [f"c{n}" for n in range(8)]
    report = track.race(
        *(whose_test_runs(name, junit_of(name)) for name in names),
        test=["sh", "check.sh", "{junit}"],
        compare=["out.json"],
        limits={"parallel": 4},
    )
    for name in names:
        differences = {one.name: one for one in report[name].differences}
        assert report[name].status == "failed"
        assert differences["out.json"].status == "different"
        assert [test for test in differences if test.startswith("t::c")] == [f"t::{name}"]
        assert f"{name} is wrong" in differences[f"t::{name}"].message


def test_an_incomplete_report_or_measurement_ends_only_that_candidate(
    track: Track,
) -> None:
    """No total, no object, no number, no file; and tests without names."""
    texts = {
        "empty": "{}",
        "list": "[1]",
        "text": '{"__total__": "1"}',
        "nan": '{"__total__": NaN}',
    }
    track.commit({"work.sh": 'echo \'<testsuite><testcase name="a"/></testsuite>\' >"$1"\n'})
    candidates = [
        {"name": name, "files": {"timed.sh": f"echo '{text}' >out.json; exit 0\n"}}
        for name, text in texts.items()
    ]
    none = {"name": "none", "files": {"timed.sh": "exit 0\n"}}
    nameless = whose_test_runs("nameless", "echo '<testsuite><testcase/></testsuite>' >\"$1\"")
    report = track.race(
        *candidates,
        none,
        nameless,
        telling("quick", 0.5),
        test=["sh", "check.sh", "{junit}"],
    )
    names = [*texts, "none", "nameless"]
    assert statuses(report) == dict.fromkeys(names, "failed") | {"quick": "won"}
    assert all(report[name].reason for name in names)


def test_a_candidate_that_passes_but_prints_or_writes_something_else_fails(
    track: Track,
) -> None:
    track.commit({"work.sh": "echo the answer is 42; echo '[42]' >found.json\n"})
    report = track.race(
        whose_test_runs("prints", "echo the answer is 41; echo '[42]' >found.json"),
        whose_test_runs("writes", "echo the answer is 42; echo '[41]' >found.json"),
        whose_test_runs("forgets", "echo the answer is 42"),
        whose_test_runs("same", "echo 'the answer is'  42; echo '[42]' >found.json"),
        compare=["stdout", "found.json"],
    )
    assert statuses(report) == {
        "prints": "failed",
        "writes": "failed",
        "forgets": "failed",
        "same": "won",
    }
    (printed,) = report["prints"].differences
    assert (printed.scope, printed.status) == ("stdout", "different")
    (written,) = report["writes"].differences
    assert (written.scope, written.name, written.status) == ("file", "found.json", "different")
    (forgotten,) = report["forgets"].differences
    assert (forgotten.name, forgotten.status) == ("found.json", "missing")


def test_pytest_runs_with_the_users_own_settings(track: Track) -> None:
    """`addopts` apply in worktrees, reports of parallel runs do not mix, and the user's file stays
    as it is even while tests run."""
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
    """An observer that calls a function on every event."""

    def __init__(self, look: Callable[[Happening], None]) -> None:
        self._look = look

    def __call__(self, event: Happening) -> None:
        self._look(event)

    def tick(self, now: float) -> None: ...


# ---- the user's tree


def test_no_candidate_is_in_the_users_tree_even_for_a_moment(track: Track) -> None:
    """Not while it is proposed, staged, tested or measured."""
    before = fingerprint(track.repo)
    seen: list[str] = []

    def look(event: Happening) -> None:
        if isinstance(event, AttemptStarted | TrialEnded):
            seen.append(type(event).__name__)
            assert fingerprint(track.repo) == before

    async def propose(ask: paraval.Ask) -> list[Candidate]:
        assert fingerprint(track.repo) == before
        return [track.with_patch(telling("fixed", 0.8))] if ask.round == 2 else []

    report = track.race(
        telling("quick", 0.5), wrong("wrong"), propose=propose, observer=Looking(look)
    )
    assert statuses(report) == {"quick": "won", "wrong": "failed", "fixed": "accepted"}
    assert len(seen) > 30


def test_an_engine_that_is_killed_leaves_the_users_tree_alone_and_the_next_one_cleans_up(
    track: Track,
) -> None:
    """By SIGKILL, while a candidate's test runs."""
    started = track.folder / "started"
    patch = track.folder / "candidates" / "waits.jsonl"
    patch.parent.mkdir()
    code = f"test -e '{started}' || {{ touch '{started}'; sleep 60; }}"
    patch.write_text(json.dumps(track.with_patch(whose_test_runs("waits", code))) + "\n")
    keys = track.keys()
    race = {name: keys[name] for name in ("test", "bench", "env", "sandbox", "accept")}
    race |= {"repo": str(track.repo), "candidates": "candidates/waits.jsonl"}
    (track.folder / "race.yaml").write_text(json.dumps({"race": race}))
    before = fingerprint(track.repo)
    command = [sys.executable, "-m", "paraval", "race", "race.yaml", "--store", str(track.store)]
    with subprocess.Popen(
        command, cwd=track.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as engine:
        until(started.exists)
        engine.send_signal(signal.SIGKILL)
    assert fingerprint(track.repo) == before
    until(lambda: not track.processes())
    assert list(track.scratch.iterdir()), "no one was left to remove it"
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


def test_every_candidate_has_uncommitted_changes_where_they_are_requested(
    track: Track,
) -> None:
    """All of the working tree, not only the file that a candidate changes."""
    check = "test -e new/notes.txt && . ./work.sh && test $(cat answer) = 42\n"
    slow = track.with_patch(telling("slow", 1.5))
    track.write({"new/notes.txt": "not added\n", "check.sh": check, "seconds": "2.0\n"})
    (track.repo / "bench.sh").chmod(0o755)
    report = track.race(
        telling("quick", 1.0),
        whose_test_runs("needs", "test -x bench.sh"),
        repo={"git": str(track.repo), "uncommitted": True},
    )
    assert statuses(report) == {"quick": "accepted", "needs": "won"}
    assert estimate(report, "quick") == pytest.approx(2.0)
    without = track.race(slow)
    assert statuses(without) == {"slow": "slower"}, "compared with the commit"


def test_two_concurrent_races_of_one_repository_do_not_mix(track: Track) -> None:
    async def both() -> tuple[paraval.RaceReport, paraval.RaceReport]:
        asked = track.keys()
        one, other = (
            paraval.race_async(candidates=[*map(track.with_patch, candidates)], **asked)
            for candidates in (
                [telling("quick", 0.5), wrong("wrong")],
                [telling("quick", 0.25), wrong("other")],
            )
        )
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
def test_a_bug_of_ours_with_one_candidate_ends_only_that_one(
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


def test_propose_learns_why_each_candidate_failed(track: Track) -> None:
    """However it failed: there is a reason and a patch, and what differed if its tests ran."""
    asked: list[paraval.Ask] = []
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
        propose=asked.append,
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
    _, ask = asked
    assert {one["name"]: one["status"] for one in ask.candidates} == ends
    assert all(one["reason"] and one["patch"] for one in ask.candidates)
    differing = {one["name"] for one in ask.candidates if one["differences"]}
    assert differing == {"fails", "hangs", "crashes", "prints"}


def test_each_round_builds_on_the_speeds_of_the_one_before(track: Track) -> None:
    def propose(ask: paraval.Ask) -> Candidate:
        best = max((one["speedup"]["estimate"] for one in ask.candidates), default=1.0)
        return track.with_patch(telling(f"round-{ask.round}", 0.8 / best))

    report = track.race(propose={"function": propose, "rounds": 3})
    assert report.winner is not None
    assert report.winner.name == "round-3"
    assert estimate(report, "round-3") == pytest.approx(1 / 0.8**3)


def test_a_slow_test_holds_up_no_other_test(track: Track) -> None:
    quick = [f"quick-{n}" for n in range(4)]
    report = track.race(
        whose_test_runs("slow", "sleep 1.5"),
        wrong("wrong"),
        *(telling(name, 2.0 + n) for n, name in enumerate(quick)),
    )
    slow = track.step(report, StepKind.TEST, "slow")
    for name in (*quick, "wrong"):
        assert slow.began < track.step(report, StepKind.TEST, name).ended < slow.ended
