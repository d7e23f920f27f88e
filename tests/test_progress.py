"""What is seen of a run while it goes on: on real terminals, in logs, and by other programs."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pyte
import pytest

from paraval.cli.progress.progress import ProgressView, choose
from paraval.errors import RequestError
from paraval.records import (
    Attempt,
    AttemptEnded,
    AttemptResult,
    AttemptStarted,
    Capacity,
    Case,
    Failure,
    FunctionTarget,
    Grade,
    Happening,
    HeldBack,
    NodeChanged,
    Notice,
    Outcome,
    RunEnded,
    RunInfo,
    RunStarted,
    Spend,
    Trial,
    TrialEnded,
    TrialResult,
    TrialSkipped,
    Wait,
)

TERMINAL = {"TERM": "xterm-256color"}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def run_info(trials: int = 20) -> RunInfo:
    return RunInfo(
        id="run-1",
        suite="greetings",
        source=None,
        folder="/store/runs/run-1",
        trials=trials,
        parallel=4,
        seed=0,
        started_at=0.0,
        ended_at=None,
        wall_s=1.5,
        resumed=0,
        interrupted=False,
        fail_under=None,
    )


def trial(index: int, case: str = "hello", **variant: str) -> Trial:
    return Trial(
        index=index,
        key=str(index),
        case=Case(id=case),
        variant=variant or {"model": "small", "mode": "with-tool"},
        repeat=1,
        target=FunctionTarget(reference="m:f", folder="/"),
    )


def started(total: int = 20, already_done: int = 0, **money: Any) -> RunStarted:
    return RunStarted(run=run_info(total), total=total, already_done=already_done, **money)


def begins(what: Trial, number: int = 1) -> AttemptStarted:
    return AttemptStarted(attempt=Attempt(trial=what, number=number, folder="/f"))


def ended(
    what: Trial,
    done: int,
    total: int = 20,
    *,
    outcome: Outcome = Outcome.PASSED,
    why: str = "",
    eta_s: float | None = 8.0,
    took: float = 1.2,
    spend: Spend | None = None,
    judging: Spend | None = None,
) -> TrialEnded:
    judged = outcome.is_judged
    result = AttemptResult(
        outcome=outcome,
        grades=(Grade(score=0.0, passed=outcome is Outcome.PASSED, reason=why),) if judged else (),
        score=float(outcome is Outcome.PASSED) if judged else None,
        error=None if judged else Failure(kind=outcome, message=why),
        duration_s=took,
        spend=spend,
        judging=judging,
    )
    whole = TrialResult(
        index=what.index,
        case_id=what.case.id,
        variant=what.variant,
        repeat=1,
        result=result,
        attempts=1,
        total_s=took,
    )
    return TrialEnded(trial=what, result=whole, done=done, total=total, eta_s=eta_s)


def retried(
    what: Trial, why: str = "connection lost", *, spend: Spend | None = None
) -> AttemptEnded:
    error = Failure(kind=Outcome.INFRA_ERROR, message=why)
    return AttemptEnded(
        attempt=Attempt(trial=what, number=1, folder="/f"),
        result=AttemptResult(outcome=error.kind, error=error, duration_s=0.5, spend=spend),
        retry_in_s=1.5,
    )


def paid(usd: float | None) -> Spend:
    return Spend(calls=1, cost_usd=usd)


def left(what: Trial, why: str = "budget: spent") -> TrialSkipped:
    return TrialSkipped(trial=what, reason=why)


def said_by(mode: str, *events: Happening, verbose: bool = False, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, newline="")
    observer = choose(mode, stream, verbose, clock=Clock(), environ={})
    for event in events:
        observer(event)
    observer.close()
    return raw.getvalue().decode(encoding)


# ---- lines


def test_a_trial_that_passed_is_one_line_of_a_verbose_log_and_none_of_another() -> None:
    said = said_by("lines", started(), ended(trial(2), done=3), verbose=True)
    assert said == "[ 3/20] ✓      1.2 s  hello · small · with-tool  (ETA 8 s)\n"
    assert said_by("lines", started(), ended(trial(2), done=3)) == ""


def test_every_end_has_its_mark_and_its_reason() -> None:
    said = said_by(
        "lines",
        started(),
        ended(trial(0), 1, outcome=Outcome.FAILED, why='expected "hello", got "bye"'),
        ended(trial(1), 2, outcome=Outcome.TIMEOUT, why="no answer within 60 s"),
        ended(trial(2), 3, outcome=Outcome.SKIPPED, why="the run was stopped"),
        ended(trial(3), 20, eta_s=0.0),
        verbose=True,
    ).splitlines()
    assert said[0].startswith("[ 1/20] ✗      1.2 s  hello")
    assert said[0].endswith('expected "hello", got "bye"')
    assert said[1].startswith("[ 2/20] !      1.2 s  hello")
    assert said[1].endswith("timeout: no answer within 60 s")
    assert said[2].startswith("[ 3/20] –             hello")
    assert said[2].endswith("skipped: the run was stopped")
    assert said[3].endswith("1.2 s  hello · small · with-tool")


def test_names_begin_in_one_column_however_long_names_and_times_are() -> None:
    said = said_by(
        "lines",
        started(),
        ended(trial(0, "short"), 1),
        begins(trial(1, "漢字")),
        ended(trial(1, "漢字"), 9, took=0.02),
        ended(trial(2, "a-much-longer-name"), 10, took=75.0),
        retried(trial(3, "short")),
        left(trial(4, "short")),
        verbose=True,
    ).splitlines()
    times = [line[9:20].strip() for line in said]
    assert times == ["1.2 s", "", "20 ms", "1 min 15 s", "", ""]
    assert all(line[20:22] == "  " for line in said)
    assert [line[22:].split(" ")[0] for line in said] == [
        *("short", "漢字", "漢字", "a-much-longer-name", "short", "short"),
    ]


def test_a_stream_without_utf_8_gets_plain_words() -> None:
    said = said_by(
        "lines",
        started(),
        begins(trial(0)),
        retried(trial(0)),
        ended(trial(0), 1),
        ended(trial(1, "é漢"), 2, outcome=Outcome.FAILED, why="got “x”…"),
        ended(trial(2), 3, outcome=Outcome.CRASHED, why="exit code 3"),
        verbose=True,
        encoding="ascii",
    )
    assert said.isascii()
    lines = said.splitlines()
    assert "ok        1.2 s  hello - small - with-tool" in lines[2]
    assert "FAIL" in lines[3]
    assert "ERR       1.2 s  hello" in lines[4]
    assert "crashed: exit code 3" in lines[4]


def test_verbose_names_each_start_and_each_retry_with_its_reason() -> None:
    said = said_by(
        "lines", started(), begins(trial(0)), retried(trial(0)), begins(trial(0), 2), verbose=True
    )
    again = "[ 0/20] ↻             "
    assert said.splitlines() == [
        "[ 0/20] →             hello · small · with-tool",
        f"{again}hello · small · with-tool  infra_error: connection lost; retry in 1.5 s or later",
        "[ 0/20] →             hello · small · with-tool  (attempt 2)",
    ]
    assert said_by("lines", started(), begins(trial(0)), retried(trial(0))) == ""


def test_a_log_says_every_ten_seconds_how_the_run_goes() -> None:
    stream, clock = io.StringIO(), Clock()
    observer = choose("lines", stream, False, clock=clock, environ={})
    observer(started())
    observer(begins(trial(0, "slow")))
    clock.now += 90
    observer(begins(trial(1, "quick")))
    observer(ended(trial(2), 1))
    for _ in range(25):
        clock.now += 1
        observer.tick(clock.now)
    lines = stream.getvalue().splitlines()
    running = "1 passed, 0 failed, 0 errors, 2 running, longest slow · small · with-tool"
    assert lines == [
        f"[ 1/20] … {running} for 2 min, ETA 8 s",
        f"[ 1/20] … {running} for 2 min, ETA 8 s",
        f"[ 1/20] … {running} for 2 min, ETA 8 s",
    ]
    observer(RunEnded(run=run_info()))
    clock.now += 600
    observer.tick(clock.now)
    assert stream.getvalue().splitlines() == lines


def test_a_log_says_what_holds_trials_back_and_when_the_next_starts() -> None:
    stream, clock = io.StringIO(), Clock()
    observer = choose("lines", stream, False, clock=clock, environ={})
    observer(started())
    wait = Wait(name="model mid", why="12 requests/s found (429)", trials=12, next_s=2.8)
    for _ in range(12):
        clock.now += 1
        observer(HeldBack(waits=(wait,)))
        observer.tick(clock.now)
    held_back = "model mid: 12 requests/s found (429), 12 trials wait, next in 3 s"
    assert stream.getvalue().splitlines() == [
        f"[ 0/20] … {held_back}",
        f"[ 0/20] … 0 passed, 0 failed, 0 errors, 0 running; {held_back}",
    ]
    observer(HeldBack(waits=()))
    clock.now += 10
    observer.tick(clock.now)
    assert stream.getvalue().splitlines()[-1].endswith("0 errors, 0 running")
    assert json.loads(said_by("json", HeldBack(waits=(wait,))))["waits"] == [
        {
            "name": "model mid",
            "why": "12 requests/s found (429)",
            "trials": 12,
            "waited_s": 0.0,
            "next_s": 2.8,
        }
    ]


def held(by: str | None, at_once: int = 6) -> Capacity:
    return Capacity(at_once=at_once, wanted=20, held_by=by)


def test_lines_tell_what_was_spent_so_far_retries_and_judges_included() -> None:
    said = said_by(
        "lines",
        started(budget_usd=5.0, spent_usd=1.0),
        ended(trial(0), 1, spend=paid(0.25), judging=paid(0.125)),
        retried(trial(1), spend=paid(0.5)),
        ended(trial(1), 20, spend=Spend(cached=1)),
        verbose=True,
    ).splitlines()
    assert said[0].endswith("with-tool  (ETA 8 s, $1.38 of $5.00)")
    assert said[2].endswith("with-tool  ($1.88 of $5.00)")


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        ((0.25, 0.25), "(ETA 8 s, $0.50)"),
        ((0.25, None), "(ETA 8 s, at least $0.25)"),
        ((None, None), "(ETA 8 s, cost unknown)"),
        ((0.25, float("nan")), "(ETA 8 s, at least $0.25)"),
        ((0.0, 0.0), "(ETA 8 s, $0.00)"),
    ],
)
def test_what_is_not_known_of_a_cost_is_not_told_as_nothing(
    costs: tuple[float | None, ...], told: str
) -> None:
    ends = [ended(trial(n), n + 1, spend=paid(cost)) for n, cost in enumerate(costs)]
    assert said_by("lines", started(), *ends, verbose=True).splitlines()[-1].endswith(told)


def test_the_known_part_of_a_cost_is_told_also_of_engines_before() -> None:
    some = Spend(calls=2, cost_usd=None, part_usd=0.25)
    end = ended(trial(0), 1, spend=some, judging=paid(0.25))
    said = said_by("lines", started(), end, verbose=True)
    assert said.splitlines()[-1].endswith("(ETA 8 s, at least $0.50)")
    before = started(spent_usd=1.0, spent_unknown=True)
    said = said_by("lines", before, ended(trial(0), 1, spend=paid(0.25)), verbose=True)
    assert said.splitlines()[-1].endswith("(ETA 8 s, at least $1.25)")
    assert json.loads(said_by("json", before))["spent_unknown"] is True


def test_of_many_skipped_the_first_is_named_and_the_rest_counted() -> None:
    stream, clock = io.StringIO(), Clock()
    observer = choose("lines", stream, False, clock=clock, environ={})
    observer(started())
    for number in range(1000):
        observer(left(trial(number)))
    observer(left(trial(1000), "account a: quota used up"))
    first = "[ 0/20] –             hello · small · with-tool  skipped: "
    more = "[ 0/20] –             {} more skipped: budget: spent"
    named = [f"{first}budget: spent", f"{first}account a: quota used up"]
    assert stream.getvalue().splitlines() == named[:1], "ten times a second is enough"
    observer.tick(clock.now + 2)
    assert stream.getvalue().splitlines() == named
    observer(RunEnded(run=run_info()))
    observer.close()
    assert stream.getvalue().splitlines() == [*named, more.format(999)]


def test_a_notice_is_a_line_of_its_own() -> None:
    assert said_by("lines", Notice(message="stopping\nsoon")) == "stopping soon\n"


@pytest.mark.parametrize("mode", ["lines", "json"])
def test_hostile_names_and_messages_stay_on_their_line_and_do_nothing(mode: str) -> None:
    nasty = "a\x1b[2J\x1b]0;owned\x07\r\n\x9b31mb\u202e\u2028c"
    said = said_by(
        mode, started(), ended(trial(0, nasty), 1, outcome=Outcome.CRASHED, why=nasty * 1000)
    )
    assert said.count("\n") == (1 if mode == "lines" else 2)
    assert not {"\x1b", "\x07", "\r", "\x9b", "\u202e", "\u2028"} & set(said)


def test_a_reader_that_goes_away_does_not_disturb_the_run() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        observer = choose("lines", stream, False, environ={})
        for number in range(3):
            observer(ended(trial(number), number))
        observer.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # So that closing can flush.


# ---- json


def test_every_event_is_one_line_of_json() -> None:
    said = said_by(
        "json",
        started(already_done=2),
        begins(trial(0)),
        retried(trial(0)),
        ended(trial(0), 3),
        ended(trial(1), 4, outcome=Outcome.TIMEOUT, why="late", eta_s=None),
        Notice(message="héllo"),
        RunEnded(run=run_info()),
    )
    assert said.isascii()
    events = [json.loads(line) for line in said.splitlines()]
    where = {"index": 0, "case": "hello", "variant": {"model": "small", "mode": "with-tool"}}
    assert [event["event"] for event in events] == [
        "run_started",
        "attempt_started",
        "attempt_retried",
        "trial_ended",
        "trial_ended",
        "notice",
        "run_ended",
    ]
    assert events[0]["already_done"] == 2
    first = {**where, "repeat": 1, "attempt": 1, "node": None}
    assert events[1] == {"event": "attempt_started", **first}
    assert events[2]["error"] == {"kind": "infra_error", "message": "connection lost"}
    assert events[2]["retry_in_s"] == 1.5
    assert (events[3]["passed"], events[3]["eta_s"], events[3]["done"]) == (True, 8.0, 3)
    assert (events[4]["passed"], events[4]["eta_s"]) == (None, None)
    assert events[4]["error"] == {"kind": "timeout", "message": "late"}
    assert events[5]["message"] == "héllo"
    assert events[6]["run"] == "run-1"


def test_json_tells_costs_budget_and_each_skipped_trial() -> None:
    said = said_by(
        "json",
        started(budget_usd=5.0, spent_usd=1.0),
        retried(trial(0), spend=paid(0.5)),
        ended(trial(0), 1, spend=paid(0.25), judging=paid(0.25)),
        ended(trial(1), 2, spend=paid(0.25), judging=paid(None)),
        ended(trial(2), 3, spend=Spend(cached=1)),
        left(trial(3)),
        left(trial(4)),
        RunEnded(run=run_info()),
    )
    run, again, first, second, third, skipped, other, over = map(json.loads, said.splitlines())
    assert (run["budget_usd"], run["spent_usd"]) == (5.0, 1.0)
    assert again["cost_usd"] == 0.5
    assert [one["cost_usd"] for one in (first, second, third)] == [0.5, None, 0.0]
    assert [one["cached"] for one in (first, second, third)] == [False, False, True]
    assert (skipped["event"], skipped["index"]) == ("trial_skipped", 3)
    assert (other["index"], other["reason"]) == (4, "budget: spent")
    assert over["held_back"] is False


def on_node(node: str, event: AttemptStarted | TrialEnded | AttemptEnded) -> Happening:
    """The same event of an attempt that ran on a node."""
    if isinstance(event, TrialEnded):
        result = replace(event.result.result, node=node)
        return replace(event, result=replace(event.result, result=result))
    return replace(event, attempt=replace(event.attempt, node=node))


def joins(node: str, slots: int = 8) -> NodeChanged:
    return NodeChanged(node=node, slots=slots)


def test_json_names_the_node_of_each_attempt_and_tells_when_nodes_come_and_go() -> None:
    said = said_by(
        "json",
        joins("b"),
        on_node("b", begins(trial(0))),
        on_node("b", retried(trial(0))),
        on_node("c", ended(trial(0), 1)),
        joins("b", slots=0),
    )
    came, start, again, end, went = map(json.loads, said.splitlines())
    assert came == {"event": "node_changed", "node": "b", "slots": 8}
    assert [one["node"] for one in (start, again, end)] == ["b", "b", "c"]
    assert (went["node"], went["slots"]) == ("b", 0)


def test_lines_name_the_node_of_each_trial_and_of_each_start() -> None:
    said = said_by(
        "lines",
        started(),
        on_node("b", begins(trial(0))),
        on_node("b", ended(trial(0), 1)),
        on_node("c", begins(trial(1), 2)),
        verbose=True,
    ).splitlines()
    assert said[0].endswith("with-tool  on b")
    assert said[1].endswith("with-tool  (on b, ETA 8 s)")
    assert said[2].endswith("with-tool  on c (attempt 2)")


def test_a_quiet_minute_on_a_cluster_names_where_attempts_run() -> None:
    stream, clock = io.StringIO(), Clock()
    observer = choose("lines", stream, False, clock=clock, environ={})
    observer(started())
    for number, node in enumerate("abab"):
        observer(on_node(node, begins(trial(number, "slow"))))
    observer(on_node("b", retried(trial(1))))
    clock.now += 90
    observer.tick(clock.now)
    assert ", 3 running on a (2), b (1), longest slow" in stream.getvalue()


def test_json_stays_json_when_a_number_is_none() -> None:
    line = said_by("json", ended(trial(0), 1, eta_s=float("inf"), took=float("nan")))
    assert json.loads(line, parse_constant=pytest.fail)["eta_s"] is None


def test_no_progress_is_silence() -> None:
    assert said_by("none", started(), ended(trial(0), 1), Notice(message="x")) == ""


# ---- a real terminal


class Terminal:
    """A pseudo-terminal, and an emulator that shows what a person would see on it."""

    def __init__(self, width: int, height: int = 12) -> None:
        self._ours, theirs = pty.openpty()
        tty.setraw(theirs, termios.TCSANOW)
        os.set_blocking(self._ours, False)
        self._theirs = theirs
        self.stream: TextIO = os.fdopen(theirs, "w", encoding="utf-8")
        self.screen = pyte.HistoryScreen(width, height, history=1000)
        self._emulator = pyte.Stream(self.screen)
        self.writes: list[str] = []
        self.resize(width, height)

    def resize(self, width: int, height: int = 12) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.screen.resize(height, width)

    def read(self) -> str:
        try:
            said = os.read(self._ours, 1 << 20).decode()
        except BlockingIOError:
            return ""
        self.writes.append(said)
        self._emulator.feed(said)
        return said

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, without empty lines."""
        self.read()
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def close(self) -> None:
        self.stream.close()
        os.close(self._ours)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


class Watched:
    """An onlooker on a terminal of its own, and a clock that is moved by hand."""

    def __init__(
        self, terminal: Terminal, environ: dict[str, str] | None = None, *, verbose: bool = False
    ) -> None:
        self.terminal = terminal
        self.clock = Clock()
        self.observer: ProgressView = choose(
            "auto",
            terminal.stream,
            verbose,
            clock=self.clock,
            environ={**TERMINAL, **(environ or {})},
        )

    def tell(self, *events: Happening) -> None:
        for event in events:
            self.clock.now += 0.2
            self.observer(event)
            self.terminal.read()


def watched(terminals: list[Terminal], width: int, **environ: str) -> Watched:
    terminals.append(Terminal(width))
    return Watched(terminals[-1], environ)


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_shows_a_bar_with_counts_and_what_runs_now(
    terminals: list[Terminal], width: int
) -> None:
    seen = watched(terminals, width)
    seen.tell(started(), begins(trial(0, "one")), begins(trial(1, "two")))
    seen.tell(ended(trial(5), 1), begins(trial(2, "three")))
    bar, running = seen.terminal.lines
    assert bar.startswith("━")
    assert bar.endswith(" 1/20  1 passed  0 failed  0 errors  ETA 8 s")
    assert running.startswith("3 running: one · small · with-tool, two · small · with-tool, th")
    assert len(bar) <= min(width - 1, 110)
    assert len(running) <= min(width - 1, 110)
    assert seen.terminal.screen.cursor.hidden


def test_the_bar_tells_beside_what_runs_what_holds_back_more(terminals: list[Terminal]) -> None:
    seen = watched(terminals, 80)
    seen.tell(started(), begins(trial(0, "one")), held("memory"))
    assert seen.terminal.lines[1].startswith("1 running (6 of 20, memory): one · small")
    seen.tell(held(None))
    assert seen.terminal.lines[1].startswith("1 running: one · small")


@pytest.mark.parametrize("width", [1, 2, 5, 10, 20, 30, 40, 60, 80, 110, 200])
def test_no_line_of_the_bar_ever_wraps(terminals: list[Terminal], width: int) -> None:
    seen = watched(terminals, width)
    seen.tell(started(100_000))
    for number in range(8):
        seen.tell(begins(trial(number, "漢字" * 30)))
        seen.tell(
            ended(trial(100 + number), 99_000 + number, 100_000, eta_s=1e6, spend=paid(1e5)),
            left(trial(200 + number)),
        )
    assert len(seen.terminal.lines) <= 2


def test_failures_and_errors_are_printed_above_the_bar_and_stay(terminals: list[Terminal]) -> None:
    seen = watched(terminals, 80)
    seen.tell(started(), begins(trial(0)))
    seen.tell(ended(trial(0, "wrong"), 1, outcome=Outcome.FAILED, why="got bye"))
    seen.tell(ended(trial(1, "fine"), 2))
    seen.tell(ended(trial(2, "broken"), 3, outcome=Outcome.CRASHED, why="exit code 3"))
    seen.tell(Notice(message="take care"))
    first, second, third, bar, *_ = seen.terminal.lines
    assert first.startswith("[ 1/20] ✗      1.2 s  wrong · small · with-tool")
    assert second.startswith("[ 3/20] !      1.2 s  broken · small · with-tool")
    assert third == "take care"
    assert bar.endswith("1 passed  1 failed  1 error  ETA 8 s")
    seen.tell(RunEnded(run=run_info()))
    assert seen.terminal.lines == [first, second, third]
    assert not seen.terminal.screen.cursor.hidden


def test_the_bar_tells_what_was_spent_and_counts_the_skipped(terminals: list[Terminal]) -> None:
    seen = watched(terminals, 110)
    seen.tell(started(budget_usd=5.0), begins(trial(0)))
    assert seen.terminal.lines[0].endswith("0 errors  $0.00 of $5.00")
    seen.tell(ended(trial(0), 1, spend=paid(0.12)), begins(trial(1)))
    assert seen.terminal.lines[0].endswith("0 errors  ETA 8 s  $0.12 of $5.00")
    seen.tell(left(trial(1)), *(left(trial(number)) for number in range(2, 20)))
    (bar,) = seen.terminal.lines
    assert bar.endswith("1/20  1 passed  0 failed  0 errors  19 skipped  ETA 8 s  $0.12 of $5.00")


def test_a_long_reason_above_the_bar_is_cut_to_its_row(terminals: list[Terminal]) -> None:
    seen = watched(terminals, 60)
    seen.tell(started(), ended(trial(0), 1, outcome=Outcome.FAILED, why="why " * 100))
    failure, bar = seen.terminal.lines
    assert failure.startswith("[ 1/20] ✗      1.2 s  hello · small · with-tool  why why")
    assert failure.endswith("…")
    assert " 1/20  0 passed  1 failed" in bar


def test_nothing_is_left_of_the_bar_when_it_is_closed(terminals: list[Terminal]) -> None:
    seen = watched(terminals, 80)
    seen.terminal.stream.write("$ paraval run\r\n")
    seen.tell(started(), begins(trial(0)), ended(trial(0), 1))
    assert len(seen.terminal.lines) == 2
    for _ in range(2):
        seen.observer.close()
        assert seen.terminal.lines == ["$ paraval run"]
        assert not seen.terminal.screen.cursor.hidden
        assert (seen.terminal.screen.cursor.x, seen.terminal.screen.cursor.y) == (0, 1)
    seen.tell(Notice(message="afterwards"))
    assert seen.terminal.lines == ["$ paraval run", "afterwards"]


def test_a_resize_in_the_middle_is_survived(terminals: list[Terminal]) -> None:
    seen = watched(terminals, 200)
    seen.tell(started(), begins(trial(0)))
    seen.tell(ended(trial(9, "wrong"), 1, outcome=Outcome.FAILED, why="no"))
    for width in (80, 45, 200, 100):
        seen.terminal.resize(width)
        seen.tell(begins(trial(0)))
        failure, bar, running = seen.terminal.lines
        assert failure.startswith("[ 1/20] ✗      1.2 s  wrong")
        assert " 1/20" in bar
        assert max(len(bar), len(running)) <= min(width - 1, 110)
    seen.observer.close()
    assert len(seen.terminal.lines) == 1


def test_the_screen_may_scroll_under_the_bar(terminals: list[Terminal]) -> None:
    seen = watched(terminals, 80)
    seen.tell(started(40))
    for number in range(30):
        seen.tell(ended(trial(number), number + 1, 40, outcome=Outcome.FAILED, why=f"no {number}"))
    lines = seen.terminal.lines
    assert len(lines) == 11  # The second line of the block has nothing to show.
    assert [line.rsplit(" ", 1)[1] for line in lines[:-1]] == [str(n) for n in range(20, 30)]
    history = ["".join(row[x].data for x in range(80)) for row in seen.terminal.screen.history.top]
    assert sum("✗" in line for line in history) == 20
    assert not any("passed" in line for line in history)


def test_a_redraw_is_one_write_and_comes_at_most_ten_times_a_second(
    terminals: list[Terminal],
) -> None:
    seen = watched(terminals, 80)
    seen.tell(started(2000))
    seen.terminal.writes.clear()
    for number in range(1000):
        seen.clock.now += 0.001
        seen.observer(ended(trial(number), number + 1, 2000))
        seen.terminal.read()
    assert 5 <= len(seen.terminal.writes) <= 11
    # Nothing is wiped before it is drawn again: that is what would flicker.
    assert not any(re.search(r"\x1b\[\d*J|\x1b\[2K", write) for write in seen.terminal.writes)
    seen.clock.now += 1
    seen.observer.tick(seen.clock.now)
    assert "1000/2000" in seen.terminal.lines[0]


def test_colors_are_left_out_when_nobody_wants_them(terminals: list[Terminal]) -> None:
    plain = watched(terminals, 80, NO_COLOR="1")
    plain.tell(started(), begins(trial(0)), ended(trial(1), 1))
    assert not re.search(r"\x1b\[\d+m", "".join(plain.terminal.writes))
    colored = watched(terminals, 80)
    colored.tell(started(), begins(trial(0)), ended(trial(1), 1))
    assert "\x1b[32m" in "".join(colored.terminal.writes)


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"TERM": ""}, {"CI": "true"}])
def test_a_terminal_that_cannot_show_a_bar_gets_lines(
    terminals: list[Terminal], environ: dict[str, str]
) -> None:
    seen = watched(terminals, 80, **environ)
    seen.tell(started(), begins(trial(0)), ended(trial(0), 1, outcome=Outcome.FAILED))
    assert "\x1b" not in "".join(seen.terminal.writes)
    assert "✗      1.2 s  hello" in seen.terminal.lines[0]


def test_a_bar_in_plain_characters_where_utf_8_is_missing(terminals: list[Terminal]) -> None:
    terminals.append(Terminal(80))
    terminals[0].stream.reconfigure(encoding="ascii")  # type: ignore[attr-defined]  # a TextIOWrapper has it
    seen = Watched(terminals[0], verbose=True)
    seen.tell(started(), begins(trial(0)), ended(trial(1), 10))
    assert "".join(seen.terminal.writes).isascii()
    assert any(line.startswith("[####") for line in seen.terminal.lines)


def test_verbose_lines_go_above_the_bar(terminals: list[Terminal]) -> None:
    terminals.append(Terminal(80))
    seen = Watched(terminals[0], verbose=True)
    seen.tell(started(), begins(trial(0)), retried(trial(0)))
    assert [line[:9] for line in seen.terminal.lines[:2]] == ["[ 0/20] →", "[ 0/20] ↻"]


def test_a_piped_stream_gets_lines_even_when_a_bar_is_asked_for() -> None:
    said = said_by("bar", started(), ended(trial(0), 1, outcome=Outcome.FAILED))
    assert said.startswith("[ 1/20] ✗")
    assert "\x1b" not in said


def test_the_cursor_comes_back_even_when_the_program_dies_of_an_exception() -> None:
    program = """
import sys
sys.path.insert(0, "tests")
from test_progress import begins, choose, started, trial
onlooker = choose("bar", sys.stderr, False, environ={"TERM": "xterm"})
onlooker(started())
onlooker(begins(trial(0)))
raise SystemError("on purpose")
"""
    ours, theirs = pty.openpty()
    child = subprocess.run([sys.executable, "-c", program], stderr=theirs, timeout=60, check=False)
    os.close(theirs)
    said = b""
    try:
        while more := os.read(ours, 1 << 16):
            said += more
    except OSError:
        pass  # The other side is closed: all is read.
    os.close(ours)
    assert child.returncode == 1
    assert b"on purpose" in said
    assert said.rindex(b"\x1b[?25h") > said.rindex(b"\x1b[?25l")


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match="sparkles"):
        choose("sparkles", io.StringIO(), False)


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.FAILED])
def test_an_event_costs_little_however_many_there_are(outcome: Outcome) -> None:
    sink: Any = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - closed below
    sink.isatty = lambda: True
    observer = choose("auto", sink, False, environ=TERMINAL)
    count = 20_000
    events: list[Happening] = [started(count)]
    for number in range(count):
        what = trial(number)
        events += [begins(what), ended(what, number, count, outcome=outcome, why="no")]
    before = time.process_time()
    for event in events:
        observer(event)
    per_event = (time.process_time() - before) / len(events)
    observer.close()
    sink.close()
    assert per_event < 100e-6  # 30 µs is what it should be; a busy machine is allowed more.
