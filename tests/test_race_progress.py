"""What is seen of a race while it goes on: a line for what matters, a bar with its phase."""

from __future__ import annotations

import io
import json
from typing import Any

import pyte
import pytest
from hypothesis import given, strategies as st

from paraval.cli.progress.progress import ProgressView, choose
from paraval.cli.progress.race_progress import RaceProgress
from paraval.codec import to_data
from paraval.racing import findings  # its Tested looks like a test to pytest
from paraval.racing.findings import (
    Block,
    Calibration,
    HookAnswer,
    Proposal,
    RunDifference,
    StagedCandidate,
    StepFinding,
    TestCounts,
)
from paraval.racing.request import TOTAL
from paraval.records import (
    Attempt,
    AttemptEnded,
    AttemptResult,
    AttemptStarted,
    Case,
    CommandTarget,
    Failure,
    Happening,
    Notice,
    Outcome,
    Output,
    RunEnded,
    RunInfo,
    RunStarted,
    Trial,
    TrialEnded,
    TrialResult,
    TrialSkipped,
)

RUN = RunInfo(
    id="run-1",
    suite="sort",
    source=None,
    folder="/store/runs/run-1",
    trials=0,
    parallel=2,
    seed=0,
    started_at=0.0,
    ended_at=None,
    wall_s=1.0,
    resumed=0,
    interrupted=False,
    fail_under=None,
)


class Engine:
    """Tells of steps as the engine does: a trial's index, and how many there are."""

    def __init__(self, told: list[Happening] | None = None) -> None:
        self.told: list[Happening] = [] if told is None else told
        self.total = self.done = 0

    def named(self, number: int) -> None:
        self.total += number

    def starts(self, name: str, kind: str, number: int = 1, **metadata: Any) -> Trial:
        trial = Trial(
            index=len(self.told),
            key=str(len(self.told)),
            case=Case(id=name, metadata=metadata),
            variant={"step": kind},
            repeat=number,
            target=CommandTarget(command=("true",), cwd="."),
        )
        attempt = Attempt(trial=trial, number=1, folder="/f")
        self.told.append(AttemptStarted(attempt=attempt))
        return trial

    def ends(
        self,
        trial: Trial,
        finding: StepFinding | None = None,
        outcome: Outcome = Outcome.PASSED,
        why: str = "",
    ) -> None:
        self.done += 1
        output = Output(metadata={} if finding is None else {"race": to_data(finding)})
        error = Failure(kind=outcome, message=why) if why else None
        result = AttemptResult(outcome=outcome, output=output, error=error, duration_s=1.9)
        whole = TrialResult(
            index=trial.index,
            case_id=trial.case.id,
            variant=trial.variant,
            repeat=trial.repeat,
            result=result,
            attempts=1,
        )
        self.told.append(
            TrialEnded(trial=trial, result=whole, done=self.done, total=self.total, eta_s=8.0)
        )

    # ---- steps

    def stages(self, name: str, normal: str = "", **metadata: Any) -> None:
        staged = StagedCandidate(tree=f"tree of {name}", normal=normal or name)
        self.ends(self.starts(name, "stage", **metadata), StepFinding(staged=staged))

    def tests(self, name: str, passed: int = 12, number: int = 1) -> None:
        tested = findings.CorrectnessFinding(counts=TestCounts(passed=passed))
        self.ends(self.starts(name, "test", number), StepFinding(tested=tested))

    def measures(
        self, name: str, kind: str, number: int, ratio: float, *, noisy: bool = False
    ) -> None:
        slow, quick = {TOTAL: ratio}, {TOTAL: 1.0}
        block = Block(baseline=(slow, slow), candidate=(quick, quick), noisy=noisy)
        self.ends(self.starts(name, kind, number), StepFinding(block=block))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lines_of(told: list[Happening], *, verbose: bool = False, encoding: str = "utf-8") -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    observer = choose("lines", stream, verbose, clock=Clock(), environ={}, shown_as=RaceProgress)
    observer(RunStarted(run=RUN, total=0, already_done=0))
    for event in told:
        observer(event)
    observer(RunEnded(run=RUN))
    observer.close()
    stream.seek(0)
    return stream.read().splitlines()


@pytest.fixture(name="engine")
def engine_fixture() -> Engine:
    return Engine()


def test_a_log_has_a_line_for_each_candidate_that_is_decided(engine: Engine) -> None:
    """The whole of a small race, as it is read afterwards."""
    engine.named(6)
    engine.tests("baseline")
    engine.tests("baseline", number=2)
    for name in ("dict-index", "wrong-edge", "hangs"):
        engine.stages(name)
    engine.stages("reformatted", normal="dict-index")
    engine.named(4)
    calibration = Calibration(samples=({TOTAL: 0.5},), process_s=0.512, busy_cpus=1.0)
    engine.ends(engine.starts("baseline", "calibrate"), StepFinding(calibration=calibration))
    engine.tests("dict-index")
    difference = RunDifference(
        scope="test", name="tests/test_a.py::test_cycle", status="failed", baseline="passed"
    )
    tested = findings.CorrectnessFinding(
        counts=TestCounts(passed=11, failed=1), differences=(difference,)
    )
    engine.ends(engine.starts("wrong-edge", "test"), StepFinding(tested=tested), Outcome.FAILED)
    engine.named(1)
    engine.ends(engine.starts("hangs", "test"), None, Outcome.TIMEOUT, "timed out after 10 s")
    for number, ratio in enumerate((3.2, 3.3, 3.1), 1):
        # One block to see that it works, the rest of the first round, then the finals.
        engine.named({1: 2, 2: 0, 3: 5}[number])
        engine.measures("dict-index", "screen", number, ratio)
    for number in range(1, 6):
        engine.measures("dict-index", "final", number, 3.2 + number / 100)
    assert lines_of(engine.told) == [
        "✓ baseline  tests passed (12)  1.9 s",
        "✓ baseline  benchmark 500 ms per run",
        "✓ dict-index  tests passed (12)  1.9 s",
        "✗ wrong-edge  failed: 1 of 12 tests: test_cycle",
        "! hangs  timeout: timed out after 10 s",
    ]


def test_a_terminal_without_utf_8_gets_plain_marks(engine: Engine) -> None:
    engine.tests("quick")
    engine.ends(engine.starts("hängt", "test"), None, Outcome.CRASHED, "exit code 3")
    assert lines_of(engine.told, encoding="ascii") == [
        "ok   quick  tests passed (12)  1.9 s",
        "ERR  h\\xe4ngt  crashed: exit code 3",
    ]


def test_candidates_that_hooks_propose_are_told_with_where_they_come_from(engine: Engine) -> None:
    asked = HookAnswer(proposals=(Proposal(name="a", patch=""),), complaints=("line 2: no JSON",))
    engine.ends(engine.starts("wrong", "repair"), StepFinding(asked=asked))
    engine.stages("wrong-repair-1", origin="repair", parent="wrong")
    engine.stages("new", origin="generate", parent=None)
    engine.stages("given", origin="given", parent=None)
    engine.ends(engine.starts("generate", "generate"), None, Outcome.CRASHED, "exit code 1: no key")
    assert lines_of(engine.told) == [
        "! wrong  1 proposal skipped: line 2: no JSON",
        "→ wrong-repair-1  repair of wrong",
        "→ new  generated",
        "! generate  crashed: exit code 1: no key",
    ]


def test_of_lines_that_are_left_out_the_true_number_is_told(engine: Engine) -> None:
    asked = HookAnswer(
        proposals=(Proposal(name="a", patch=""),),
        complaints=("line 1: no JSON", "line 2: no JSON"),
        more_complaints=998,
        remarks=("lines after the 1,000th were not read",),
    )
    engine.ends(engine.starts("generate", "generate"), StepFinding(asked=asked))
    assert lines_of(engine.told) == [
        "! generate  1,000 proposals skipped: line 1: no JSON",
        "! generate  lines after the 1,000th were not read",
    ]


def test_what_is_no_candidate_is_told_with_the_reason(engine: Engine) -> None:
    engine.ends(
        engine.starts("stale", "stage"), None, Outcome.FAILED, "error: patch does not apply"
    )
    flagged = StagedCandidate(tree="t", normal="n", flags=("edits tests/test_a.py",))
    engine.ends(engine.starts("cheat", "stage"), StepFinding(staged=flagged))
    assert lines_of(engine.told) == [
        "✗ stale  invalid: error: patch does not apply",
        "✗ cheat  invalid: edits tests/test_a.py",
    ]


@pytest.mark.parametrize(
    ("tested", "why"),
    [
        (
            findings.CorrectnessFinding(flags=("changed tests/test_a.py",)),
            "changed tests/test_a.py",
        ),
        (findings.CorrectnessFinding(failing=("a.py::x", "a.py::y")), "2 tests: x and y"),
        (
            findings.CorrectnessFinding(
                differences=tuple(
                    RunDifference(scope="test", name=name, status="failed", baseline="passed")
                    for name in "abcd"
                ),
                more=2,
            ),
            "6 tests: a, b, c and 3 more",
        ),
        (
            findings.CorrectnessFinding(
                differences=(
                    RunDifference(
                        scope="stdout", name="stdout", status="different", baseline="there"
                    ),
                )
            ),
            "stdout is different",
        ),
        (findings.CorrectnessFinding(), "its tests"),
    ],
)
def test_why_tests_failed_fits_on_a_line(
    engine: Engine, tested: findings.CorrectnessFinding, why: str
) -> None:
    engine.ends(engine.starts("wrong", "test"), StepFinding(tested=tested), Outcome.FAILED)
    assert lines_of(engine.told) == [f"✗ wrong  failed: {why}"]


def test_notices_skips_and_tries_are_told(engine: Engine) -> None:
    trial = engine.starts("quick", "screen", 2)
    again = AttemptResult(
        outcome=Outcome.INFRA_ERROR, error=Failure(kind=Outcome.INFRA_ERROR, message="no room")
    )
    attempt = Attempt(trial=trial, number=1, folder="/f")
    told = [
        *engine.told,
        Notice(message="Waiting for a quiet machine."),
        AttemptEnded(attempt=attempt, result=again, retry_in_s=1.5),
        *[TrialSkipped(trial=trial, reason="the budget is spent")] * 3,
    ]
    assert lines_of(told) == [
        "Waiting for a quiet machine.",
        "↻ quick · screen · #2  infra_error: no room; retry in 1.5 s or later",
        "– quick · screen · #2  skipped: the budget is spent",
        "– 2 more skipped: the budget is spent",
    ]


def test_a_log_says_every_ten_seconds_how_the_race_goes(engine: Engine) -> None:
    stream, clock = io.StringIO(), Clock()
    observer = choose("lines", stream, False, clock=clock, environ={}, shown_as=RaceProgress)
    observer(RunStarted(run=RUN, total=0, already_done=0))
    engine.stages("quick")
    engine.starts("quick", "test")
    for event in engine.told:
        observer(event)
    for _ in range(5):
        clock.now += 5.0
        observer.tick(clock.now)
    so_far = "… testing 0 of 1 candidates: 0 passed, 0 failed"
    assert stream.getvalue().splitlines() == [
        f"{so_far}, 10 s, 1 running, longest quick · test for 10 s",
        f"{so_far}, 20 s, 1 running, longest quick · test for 20 s",
    ]


# ---- on a terminal


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.screen = pyte.Screen(110, 20)
        self._stream = pyte.Stream(self.screen)

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._stream.feed(text)
        return len(text)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]


def shown_on(terminal: Terminal, told: list[Happening]) -> ProgressView:
    clock = Clock()
    observer = choose(
        "auto", terminal, False, clock=clock, environ={"TERM": "xterm"}, shown_as=RaceProgress
    )
    observer(RunStarted(run=RUN, total=0, already_done=0))
    for event in told:
        clock.now += 1.0
        observer(event)
    return observer


def test_a_terminal_shows_the_phase_and_what_runs_and_only_what_failed_above(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    engine.named(9)
    for name in ("a", "b", "c"):
        engine.stages(name)
    engine.tests("a")
    engine.ends(engine.starts("b", "test"), None, Outcome.CRASHED, "exit code 3")
    engine.starts("c", "test")
    terminal = Terminal()
    observer = shown_on(terminal, engine.told)
    *above, first, second = terminal.lines()
    assert above == ["! b  crashed: exit code 3"]
    assert first.endswith("testing 2 of 3 candidates  1 passed  0 failed  1 error  11 s  ETA 8 s")
    assert second == "1 running: c · test"
    observer(RunEnded(run=RUN))
    assert terminal.lines() == ["! b  crashed: exit code 3"]


def test_many_candidates_with_long_names_fit_on_any_terminal_of_any_size(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{'宽' * 20}-{'long' * 20}-{number}" for number in range(200)]
    engine.named(400)
    for name in names:
        engine.stages(name)
    for name in names[:100]:
        engine.tests(name)
    engine.ends(engine.starts(names[100], "test"), None, Outcome.CRASHED, "exit code 3 " * 20)
    for name in names[101:]:
        engine.starts(name, "test")
    monkeypatch.setenv("COLUMNS", "110")
    terminal, now = Terminal(), 10_000.0
    observer = shown_on(terminal, engine.told)
    for width in (110, 60, 33, 12, 7, 200, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        terminal.screen.resize(20, width)
        now += 1.0
        observer.tick(now)
        failure, bar, running = terminal.lines()
        assert failure.startswith("! 宽")
        assert "testing 101 of 200"[: width - 2] in bar
        assert running.startswith("99 running: 宽"[: width - 2])
    observer.close()
    assert len(terminal.lines()) == 1


@pytest.mark.parametrize(("kind", "word"), [("screen", "measuring"), ("final", "finals")])
def test_the_bar_counts_the_blocks_of_a_round(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, kind: str, word: str
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    engine.named(6)
    engine.measures("a", kind, 4, 2.0)
    engine.measures("b", kind, 4, 2.0)
    terminal = Terminal()
    shown_on(terminal, engine.told).tick(2000.0)
    assert f"{word} 2 of 6 blocks" in "\n".join(terminal.lines())


def test_programs_get_the_json_of_any_run(engine: Engine) -> None:
    stream = io.StringIO()
    observer = choose("json", stream, False, shown_as=RaceProgress)
    engine.tests("quick")
    for event in engine.told:
        observer(event)
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [one["event"] for one in told] == ["attempt_started", "trial_ended"]
    assert told[1]["case"] == "quick"
    assert told[1]["variant"] == {"step": "test"}


# ---- hostile


@given(st.text(max_size=80), st.text(max_size=80), st.sampled_from(Outcome))
def test_nothing_that_others_wrote_can_act_on_a_terminal_or_break_the_story(
    name: str, why: str, outcome: Outcome
) -> None:
    engine = Engine()
    difference = RunDifference(scope="test", name=why, status=why, baseline="passed")
    tested = findings.CorrectnessFinding(differences=(difference,), flags=(why,) if why else ())
    staged = StagedCandidate(tree="t", normal="n", flags=(why,))
    for kind in ("stage", "test", "repair", "calibrate", "screen", "final", "profile", "other"):
        finding = StepFinding(staged=staged, tested=tested, asked=HookAnswer(complaints=(why,)))
        engine.ends(engine.starts(name, kind, origin="repair", parent=why), finding, outcome, why)
    for line in lines_of(engine.told):
        assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in line)
        assert len(line) < 2000


def test_a_finding_of_another_version_disturbs_nobody(engine: Engine) -> None:
    trial = engine.starts("quick", "test")
    output = Output(metadata={"race": {"tested": {"counts": "many"}}})
    result = AttemptResult(outcome=Outcome.PASSED, output=output)
    whole = TrialResult(
        index=0, case_id="quick", variant=trial.variant, repeat=1, result=result, attempts=1
    )
    told = TrialEnded(trial=trial, result=whole, done=1, total=1, eta_s=None)
    assert lines_of([told]) == ["✓ quick  tests passed  0 ms"]


def test_what_earlier_engines_did_is_counted_and_not_told_again(engine: Engine) -> None:
    engine.named(2)
    engine.stages("a")
    engine.tests("a")
    stream, clock = io.StringIO(), Clock()
    observer = choose("lines", stream, False, clock=clock, environ={}, shown_as=RaceProgress)
    assert isinstance(observer, RaceProgress)
    for event in engine.told:
        if isinstance(event, TrialEnded):
            observer.recall(event.trial, event.result)
    observer(RunStarted(run=RUN, total=3, already_done=2))
    again = Engine()
    again.named(3)
    again.done = 2
    again.tests("b")
    for event in again.told:
        observer(event)
    observer.close()
    assert stream.getvalue().splitlines() == ["✓ b  tests passed (12)  1.9 s"]
    assert observer.phase == "testing 1 of 1 candidates"
