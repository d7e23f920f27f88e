"""Live progress of a race: a line for what matters, and its phase with a counter."""

from __future__ import annotations

import io
import json

import pyte
import pytest
from hypothesis import given, strategies as st

from paraval.cli.progress.progress import ProgressView, choose
from paraval.cli.progress.race_progress import RaceProgress
from paraval.codec import to_data
from paraval.racing import findings
from paraval.racing.findings import (
    Block,
    Calibration,
    Proposal,
    Proposed,
    RunDifference,
    StagedCandidate,
    StepFinding,
    TestCounts,
)
from paraval.racing.request import NO_TESTS, TOTAL
from paraval.racing.steps import StepKind
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

    def __init__(self, events: list[Happening] | None = None) -> None:
        self.events: list[Happening] = [] if events is None else events
        self.total = self.done = 0
        self.command: tuple[str, ...] = ("pytest",)

    def named(self, number: int) -> None:
        self.total += number

    def starts(self, name: str, kind: str, number: int = 1) -> Trial:
        trial = Trial(
            index=len(self.events),
            key=str(len(self.events)),
            case=Case(id=name),
            variant={"step": kind},
            repeat=number,
            target=CommandTarget(command=self.command, cwd="."),
        )
        attempt = Attempt(trial=trial, number=1, folder="/f")
        self.events.append(AttemptStarted(attempt=attempt))
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
        self.events.append(
            TrialEnded(trial=trial, result=whole, done=self.done, total=self.total, eta_s=8.0)
        )

    # ---- steps

    def stages(self, name: str) -> None:
        staged = StagedCandidate(tree=f"tree of {name}", normal=name)
        self.ends(self.starts(name, "stage"), StepFinding(staged=staged))

    def tests(self, name: str, passed: int = 12, number: int = 1) -> None:
        tested = findings.CorrectnessFinding(counts=TestCounts(passed=passed))
        self.ends(self.starts(name, "test", number), StepFinding(tested=tested))

    def measures(self, name: str, kind: str, number: int) -> None:
        sample = {TOTAL: 1.0}
        block = Block(baseline=(sample, sample), candidate=(sample, sample))
        self.ends(self.starts(name, kind, number), StepFinding(block=block))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lines_of(
    events: list[Happening], *, verbose: bool = False, encoding: str = "utf-8"
) -> list[str]:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    observer = choose("lines", stream, verbose, clock=Clock(), environ={}, shown_as=RaceProgress)
    observer(RunStarted(run=RUN, total=0, already_done=0))
    for event in events:
        observer(event)
    observer(RunEnded(run=RUN))
    observer.close()
    stream.seek(0)
    return stream.read().splitlines()


@pytest.fixture(name="engine")
def engine_fixture() -> Engine:
    return Engine()


def test_a_log_has_a_line_for_each_candidate_that_is_decided(engine: Engine) -> None:
    """The whole of a small race."""
    engine.named(12)
    for number in (1, 2):
        engine.tests("baseline", number=number)
    for name in ("dict-index", "wrong-edge", "hangs"):
        engine.stages(name)
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
    engine.ends(engine.starts("hangs", "test"), None, Outcome.TIMEOUT, "timed out after 10 s")
    for kind in ("screen", "final"):
        for number in (1, 2):
            engine.measures("dict-index", kind, number)
    assert lines_of(engine.events) == [
        "✓ baseline  tests passed (12)  1.9 s",
        "✓ baseline  benchmark 500 ms per run",
        "✓ dict-index  tests passed (12)  1.9 s",
        "✗ wrong-edge  failed: 1 of 12 tests: test_cycle",
        "! hangs  timeout: timed out after 10 s",
    ]


def test_the_baselines_two_runs_are_one_line_also_if_both_fail(engine: Engine) -> None:
    tested = findings.CorrectnessFinding(failing=("a.py::x",))
    for number in (1, 2):
        trial = engine.starts("baseline", "test", number)
        engine.ends(trial, StepFinding(tested=tested), Outcome.FAILED)
    assert lines_of(engine.events) == ["✗ baseline  failed: 1 test: x"]


def test_a_comparison_of_refs_without_tests_says_so(engine: Engine) -> None:
    engine.command = NO_TESTS
    engine.ends(engine.starts("topic", "test"), StepFinding(tested=findings.CorrectnessFinding()))
    assert lines_of(engine.events) == ["✓ topic  has no tests to pass"]


def test_a_terminal_without_utf_8_gets_plain_marks(engine: Engine) -> None:
    engine.tests("quick")
    engine.ends(engine.starts("hängt", "test"), None, Outcome.CRASHED, "exit code 3")
    assert lines_of(engine.events, encoding="ascii") == [
        "ok   quick  tests passed (12)  1.9 s",
        "ERR  h\\xe4ngt  crashed: exit code 3",
    ]


def test_what_a_call_proposed_is_shown_with_how_many_proposals_were_skipped(engine: Engine) -> None:
    proposals = (Proposal(name="a", patch=""), Proposal(name="b", patch=""))
    for name, proposed in (
        ("propose", Proposed(proposals=proposals)),
        ("large-1", Proposed(proposals=proposals[:1], complaints=("line 2: no JSON",))),
        ("small-1", Proposed(complaints=("line 1: no JSON", "line 2"), more_complaints=998)),
    ):
        engine.ends(engine.starts(name, "propose"), StepFinding(proposed=proposed))
    engine.ends(engine.starts("small-2", "propose"), None, Outcome.CRASHED, "exit code 1: no key")
    assert lines_of(engine.events) == [
        "→ propose  proposed 2 candidates",
        "→ large-1  proposed 1 candidate",
        "! large-1  1 proposal skipped: line 2: no JSON",
        "→ small-1  proposed 0 candidates",
        "! small-1  1,000 proposals skipped: line 1: no JSON",
        "! small-2  crashed: exit code 1: no key",
    ]


def test_an_invalid_candidate_has_its_reason(engine: Engine) -> None:
    engine.ends(
        engine.starts("stale", "stage"), None, Outcome.FAILED, "error: patch does not apply"
    )
    flagged = StagedCandidate(tree="t", normal="n", flags=("edits tests/test_a.py",))
    engine.ends(engine.starts("cheat", "stage"), StepFinding(staged=flagged))
    assert lines_of(engine.events) == [
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
    assert lines_of(engine.events) == [f"✗ wrong  failed: {why}"]


def test_notices_skips_and_retries_are_shown(engine: Engine) -> None:
    trial = engine.starts("quick", "screen", 2)
    again = AttemptResult(
        outcome=Outcome.INFRA_ERROR, error=Failure(kind=Outcome.INFRA_ERROR, message="no room")
    )
    attempt = Attempt(trial=trial, number=1, folder="/f")
    events = [
        *engine.events,
        Notice(message="Waiting for a quiet machine."),
        AttemptEnded(attempt=attempt, result=again, retry_in_s=1.5),
        *[TrialSkipped(trial=trial, reason="the budget is spent")] * 3,
    ]
    assert lines_of(events) == [
        "Waiting for a quiet machine.",
        "↻ quick · screen · #2  infra_error: no room; retry in 1.5 s or later",
        "– quick · screen · #2  skipped: the budget is spent",
        "– 2 more skipped: the budget is spent",
    ]


def test_a_log_shows_the_state_every_ten_seconds(engine: Engine) -> None:
    stream, clock = io.StringIO(), Clock()
    observer = choose("lines", stream, False, clock=clock, environ={}, shown_as=RaceProgress)
    observer(RunStarted(run=RUN, total=0, already_done=0))
    engine.stages("quick")
    engine.starts("quick", "test")
    for event in engine.events:
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


def shown_on(terminal: Terminal, events: list[Happening]) -> ProgressView:
    clock = Clock()
    observer = choose(
        "auto", terminal, False, clock=clock, environ={"TERM": "xterm"}, shown_as=RaceProgress
    )
    observer(RunStarted(run=RUN, total=0, already_done=0))
    for event in events:
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
    observer = shown_on(terminal, engine.events)
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
    observer = shown_on(terminal, engine.events)
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
    engine.measures("a", kind, 4)
    engine.measures("b", kind, 4)
    terminal = Terminal()
    shown_on(terminal, engine.events).tick(2000.0)
    assert f"{word} 2 of 6 blocks" in "\n".join(terminal.lines())


def test_programs_get_the_same_json_as_of_any_run(engine: Engine) -> None:
    stream = io.StringIO()
    observer = choose("json", stream, False, shown_as=RaceProgress)
    engine.tests("quick")
    for event in engine.events:
        observer(event)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [one["event"] for one in events] == ["attempt_started", "trial_ended"]
    assert events[1]["case"] == "quick"
    assert events[1]["variant"] == {"step": "test"}


# ---- hostile


@given(st.text(max_size=80), st.text(max_size=80), st.sampled_from(Outcome))
def test_untrusted_text_cannot_act_on_a_terminal(name: str, why: str, outcome: Outcome) -> None:
    engine = Engine()
    difference = RunDifference(scope="test", name=why, status=why, baseline="passed")
    tested = findings.CorrectnessFinding(differences=(difference,), flags=(why,) if why else ())
    staged = StagedCandidate(tree="t", normal="n", flags=(why,))
    for kind in (*StepKind, "other"):
        proposed = Proposed(complaints=(why,))
        finding = StepFinding(staged=staged, tested=tested, proposed=proposed)
        engine.ends(engine.starts(name, kind), finding, outcome, why)
    for line in lines_of(engine.events):
        assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in line)
        assert len(line) < 2000


def test_a_finding_of_another_version_is_no_error(engine: Engine) -> None:
    trial = engine.starts("quick", "test")
    output = Output(metadata={"race": {"tested": {"counts": "many"}}})
    result = AttemptResult(outcome=Outcome.PASSED, output=output)
    whole = TrialResult(
        index=0, case_id="quick", variant=trial.variant, repeat=1, result=result, attempts=1
    )
    events = TrialEnded(trial=trial, result=whole, done=1, total=1, eta_s=None)
    assert lines_of([events]) == ["✓ quick  tests passed  0 ms"]


def test_steps_of_earlier_engines_are_counted_and_not_shown_again(engine: Engine) -> None:
    engine.named(2)
    engine.stages("a")
    engine.tests("a")
    stream, clock = io.StringIO(), Clock()
    observer = choose("lines", stream, False, clock=clock, environ={}, shown_as=RaceProgress)
    assert isinstance(observer, RaceProgress)
    for event in engine.events:
        if isinstance(event, TrialEnded):
            observer.recall(event.trial, event.result)
    observer(RunStarted(run=RUN, total=3, already_done=2))
    again = Engine()
    again.named(3)
    again.done = 2
    again.tests("b")
    for event in again.events:
        observer(event)
    observer.close()
    assert stream.getvalue().splitlines() == ["✓ b  tests passed (12)  1.9 s"]
    assert observer.phase == "testing 1 of 1 candidates"
