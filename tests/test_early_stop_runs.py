"""Early stop in real runs: it stops, says so, leaves nothing for a resume, and survives a kill."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paraval import Case, Options, Outcome, Report, Selection, Suite, TransientError, run
from paraval.cli.commands.run import run_command
from paraval.cli.commands.runs import runs_command
from paraval.execute.driver import Driver
from paraval.execute.pace import Pace
from paraval.records import (
    Attempt,
    AttemptResult,
    Failure,
    Happening,
    Limits,
    Notice,
    RetryPolicy,
    Trial,
    TrialResult,
    TrialSkipped,
)
from paraval.runner.run import open_store
from paraval.runner.stored_runs import StoredRun
from paraval.schedule.messages import Work
from paraval.schedule.scheduler import Scheduler
from paraval.statistics.anytime import drawn_order
from tests.conftest import Paraval, WriteSuite
from tests.test_driver import Book, trial

STOP = {"when": "decided", "confidence": 0.95}
CASES = [Case(id=f"case-{number}", expect="right") for number in range(40)]


class Onlooker:
    def __init__(self) -> None:
        self.told: list[Happening] = []

    def __call__(self, event: Happening) -> None:
        self.told.append(event)

    def tick(self, now: float) -> None: ...

    @property
    def notices(self) -> list[str]:
        return [one.message for one in self.told if isinstance(one, Notice)]

    @property
    def skipped(self) -> list[TrialSkipped]:
        return [one for one in self.told if isinstance(one, TrialSkipped)]


def b_is_better(case: Case, variant: Mapping[str, Any]) -> str:
    return "right" if variant["mode"] == "b" else "wrong"


def suite_of(target: Any, *, stop: Mapping[str, Any] | None = STOP, **more: Any) -> Suite:
    settings = {"matrix": {"mode": ["a", "b"]}, "fail_under": 0.4, **more}
    return Suite(cases=CASES, target=target, graders=["equals"], name="s", stop=stop, **settings)


def by_outcome(report: Report) -> dict[Outcome, list[TrialResult]]:
    found: dict[Outcome, list[TrialResult]] = {}
    for result in report.trials:
        found.setdefault(result.outcome, []).append(result)
    return found


def test_a_plain_difference_ends_the_run_early_and_the_report_says_so(folder: Path) -> None:
    observer = Onlooker()
    report = run(suite_of(b_is_better), parallel=4, observer=observer)
    ended = by_outcome(report)
    skipped = ended[Outcome.SKIPPED]
    why = "early stop: decided after 8 of 40 cases"
    assert {one.result.error.message for one in skipped if one.result.error} == {why}
    assert all(one.result.error and one.result.error.lasting for one in skipped)
    assert all(one.attempts == 0 for one in skipped), "none of them was ever attempted"
    # What ran while the last ends were on their way to the disk, which may be busy.
    assert 16 <= 80 - len(skipped) <= 40
    assert report.run.done == report.run.trials == 80
    assert not report.run.interrupted
    assert not report.run.held_back
    (notice,) = observer.notices
    assert notice.startswith("Early stop: decided after 8 of 40 cases. No new trials start")
    assert len(observer.skipped) == len(skipped)

    without = run(suite_of(b_is_better, stop=None), parallel=4)
    assert report.exit_code == without.exit_code == 0
    assert len(by_outcome(without)) == 2


def test_what_is_claimed_holds_at_any_time_and_is_the_same_when_it_is_read_later(
    folder: Path,
) -> None:
    report = run(suite_of(b_is_better), parallel=4)
    (comparison,) = report.comparisons
    assert comparison.stopped is not None
    assert comparison.stopped.decided
    assert comparison.stopped.planned == 40
    assert comparison.passing is not None
    assert comparison.passing.losses == 0
    assert comparison.passing.p <= 1 / 28
    store = open_store(Options())
    (info,) = store.runs()
    assert info.stop is not None
    assert Report(StoredRun(store, info)).comparisons == report.comparisons


def test_the_cases_that_ran_are_the_first_in_the_order_that_the_seed_draws(folder: Path) -> None:
    for seed in (1, 2):
        report = run(suite_of(b_is_better), parallel=1, options=Options(seed=seed))
        ran = {one.case_id for one in report.trials if one.outcome is not Outcome.SKIPPED}
        first = drawn_order([case.id for case in CASES], seed)[:8]
        assert ran.issuperset(first)
        assert len(ran) <= 9, "what ran already as it was decided"


def test_a_run_without_a_difference_ends_when_none_can_be_shown(folder: Path) -> None:
    report = run(suite_of(lambda case: "right"), parallel=2)
    (why,) = report.summary.skipped_by_reason
    assert why == "early stop: a difference can no longer be shown (futile) after 33 of 40 cases"
    assert report.exit_code == 0


def test_one_variant_alone_or_too_few_cases_run_to_the_end(folder: Path) -> None:
    alone = run(suite_of(b_is_better), selection=Selection(variants=(("mode", "b"),)))
    assert alone.summary.passed == 40
    assert alone.run.stop is None
    observer = Onlooker()
    few = Selection(cases=("case-1", "case-2"))
    report = run(suite_of(b_is_better), selection=few, observer=observer)
    assert report.summary.ended == 4
    (notice,) = observer.notices
    assert notice.startswith("No early stop: with 2 cases nothing can be decided at 95%")


def test_the_list_of_runs_tells_what_never_ran(folder: Path) -> None:
    summary = run(suite_of(b_is_better), parallel=1).summary
    _, line = CliRunner().invoke(runs_command, []).stdout.splitlines()
    assert f"  stopped early   {summary.ended}/80  " in line
    (told,) = json.loads(CliRunner().invoke(runs_command, ["--json"]).stdout)
    assert (told["done"], told["not_run"]) == (80, summary.skipped)


def test_a_resume_runs_nothing_that_was_left_out(folder: Path) -> None:
    calls: list[str] = []

    def target(case: Case, variant: Mapping[str, Any]) -> str:
        calls.append(case.id)
        return b_is_better(case, variant)

    first = run(suite_of(target), parallel=1)
    made = len(calls)
    for options in (Options(resume="last"), Options(resume="last", rerun="errors")):
        again = run(suite_of(target), parallel=1, options=options)
        assert again.summary.skipped == first.summary.skipped
        assert again.run.id == first.run.id
    assert len(calls) == made


@pytest.mark.parametrize(("then", "after"), [("right", 8), ("wrong", 12)])
def test_when_errors_are_tried_again_it_is_decided_anew(
    folder: Path, then: str, after: int
) -> None:
    """The first case was passed over for an error; it turns out to be a win, or a loss."""
    first_case = drawn_order([case.id for case in CASES], 0)[0]
    broken = [True]

    def target(case: Case, variant: Mapping[str, Any]) -> str:
        if case.id != first_case:
            return b_is_better(case, variant)
        if variant["mode"] == "a":
            return "wrong" if then == "right" else "right"
        if broken.pop():
            raise ValueError("broken once")
        return then

    first = run(suite_of(target, retry={"attempts": 1}), parallel=1)
    assert set(first.summary.skipped_by_reason) == {"early stop: decided after 9 of 40 cases"}
    broken.append(False)
    options = Options(resume="last", rerun="errors")
    again = run(suite_of(target, retry={"attempts": 1}), parallel=1, options=options)
    assert again.summary.errors == 0
    why = f"early stop: decided after {after} of 40 cases"
    assert set(again.summary.skipped_by_reason) == {why}
    assert again.run.done == again.run.trials == 80
    (told,) = again.comparisons
    assert told.stopped is not None
    assert told.stopped.decided
    assert told.finding.value == "better"


def test_a_trial_that_waits_for_its_next_attempt_is_left_out_and_its_attempt_is_told(
    folder: Path,
) -> None:
    """Of the cases that come after those that decide it, as one of many that run at once."""
    order = drawn_order([case.id for case in CASES], 0)

    def target(case: Case, variant: Mapping[str, Any]) -> str:
        if case.id == order[8]:
            raise TransientError("not now")
        return b_is_better(case, variant)

    retry = {"attempts": 3, "first_delay": 3600, "longest_delay": 3600}
    # All of the first nine cases start at once; those of the ninth are to be tried again.
    report = run(suite_of(target, retry=retry), parallel=18)
    waited = [one for one in report.trials if one.case_id == order[8]]
    assert [one.outcome for one in waited] == [Outcome.SKIPPED] * 2
    assert [one.retries for one in waited] == [{Outcome.INFRA_ERROR: 1}] * 2
    assert [one.attempts for one in waited] == [1, 1]
    assert report.run.done == 80


SUITE = """
    name: stops
    cases: cases.jsonl
    target: {python: 'tasks:answer'}
    graders: [equals]
    matrix: {mode: [a, b]}
    stop: {when: decided}
    fail_under: 0.4
"""
TASKS = """
    from pathlib import Path

    def answer(case, variant):
        with Path("calls").open("a") as file:
            file.write(f"{case.id}\\n")
        return "right" if variant["mode"] == "b" else "wrong"
"""
DIES = """
    import os, signal, sqlite3, sys, time
    from paraval.__main__ import main
    from paraval.store.ledger import Ledger

    record_end, on_disk, left_out = Ledger.record_end, int(sys.argv.pop(1)), 0

    def dying(self, attempt, result, **rest):
        global left_out
        if attempt.number == 0:
            left_out += 1
            if left_out > on_disk:
                reading = sqlite3.connect(self.folder / "run.db")
                found = "SELECT count(*) FROM result WHERE number = 0"
                while reading.execute(found).fetchone()[0] < on_disk:
                    time.sleep(0.001)
                os.kill(os.getpid(), signal.SIGKILL)
        record_end(self, attempt, result, **rest)

    Ledger.record_end = dying
    sys.exit(main())
"""


@pytest.mark.parametrize("on_disk", [0, 20])
def test_a_kill_between_the_decision_and_what_it_leaves_out_decides_the_same_again(
    on_disk: int, write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """kill -9 once it was decided, with none or some of the skipped trials on disk."""
    write("suite.yaml", SUITE)
    write("tasks.py", TASKS)
    write("dies.py", DIES)
    lines = [json.dumps({"id": case.id, "expect": case.expect}) for case in CASES]
    (folder / "cases.jsonl").write_text("\n".join(lines))
    killed = subprocess.run(
        [sys.executable, "dies.py", str(on_disk), "run", "suite.yaml", "--parallel", "2"],
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    made = (folder / "calls").read_text()
    resumed = paraval("resume", "last", "-o", "report.json")
    assert resumed.returncode == 0, resumed.stderr
    assert (folder / "calls").read_text() == made, "nothing more ran"
    assert "Early stop: decided after 8 of 40 cases" in resumed.stderr
    assert "Resume with" not in resumed.stderr
    told = json.loads((folder / "report.json").read_text())
    why = {"early stop: decided after 8 of 40 cases"}
    assert set(told["summary"]["skipped_by_reason"]) == why
    assert (told["run"]["interrupted"], told["run"]["held_back"]) == (False, False)
    store = open_store(Options())
    (info,) = store.runs()
    assert set(Report(StoredRun(store, info)).summary.skipped_by_reason) == why


def test_the_example_of_the_page_runs_as_it_is_shown(paraval: Paraval, folder: Path) -> None:
    """But for times, and for how many happened to be running when it was decided."""
    docs = Path(__file__).parent.parent / "docs"
    page = (docs / "how-to" / "stop-early.md").read_text(encoding="utf-8")
    (tasks,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (folder / "tasks.py").write_text(tasks)
    (folder / "suite.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0, ended.stderr
    notice = shown.splitlines()[0]
    assert notice.startswith("Early stop: decided after")
    assert notice in ended.stderr
    (why,) = re.findall(r"skipped: (early stop: .*)", shown)
    assert why in ended.stdout
    for words in (
        "Compared by mode (95% confidence interval, valid at any time):",
        " points (",
        "better; stop",
    ):
        assert words in shown
        assert words in ended.stdout
    below = re.compile(r"^    (\w+): ", re.MULTILINE)
    assert below.findall(shown) == below.findall(ended.stdout), "what else the comparison says"


def test_the_help_says_what_a_seed_draws() -> None:
    (seed,) = [one for one in run_command.params if one.name == "seed"]
    assert "the order of cases if the run may stop early" in (seed.to_info_dict()["help"] or "")


# ---- the driver


class Endings:
    """Performs attempts with the ends that it is told, at once; the rest pass."""

    def __init__(self, ends: Mapping[int, Outcome]) -> None:
        self.ends = ends
        self.forgotten: list[int] = []

    async def perform(self, attempt: Attempt) -> AttemptResult:
        await asyncio.sleep(0)
        outcome = self.ends.get(attempt.trial.index, Outcome.PASSED)
        failure = Failure(kind=outcome, message="m") if outcome.is_error else None
        return AttemptResult(outcome=outcome, error=failure)

    def forget(self, index: int) -> None:
        self.forgotten.append(index)

    def kill(self) -> None: ...


class After:
    """Says that enough has run after so many results."""

    def __init__(self, number: int) -> None:
        self.left = number

    @property
    def verdict(self) -> str | None:
        return None if self.left > 0 else "early stop: enough"

    def hear(self, trial: Trial, outcome: Outcome) -> None:
        self.left -= 1


class Remembering(Book):
    def __init__(self) -> None:
        self.final: dict[int, tuple[int, AttemptResult]] = {}

    def record_end(self, attempt: Attempt, result: AttemptResult, **rest: Any) -> None:
        if rest["final"]:
            self.final[attempt.trial.index] = (attempt.number, result)
        super().record_end(attempt, result, **rest)


def drive(
    decider: After, ends: Mapping[int, Outcome], count: int = 10
) -> tuple[Driver, Remembering, Onlooker, Endings]:
    book, observer, performer = Remembering(), Onlooker(), Endings(ends)

    async def go() -> Driver:
        trials = {index: trial(index) for index in range(count)}
        driver = Driver(
            trials,
            scheduler=Scheduler(
                [Work(index=index) for index in trials],
                limits=Limits(parallel=2),
                retry=RetryPolicy(first_delay_s=3600, longest_delay_s=3600),
                seed=0,
            ),
            performer=performer,
            ledger=book,
            tell=observer,
            pace=Pace(lambda _: 1.0, from_history=False),
        )
        driver.heed(decider)
        await driver.run()
        return driver

    return asyncio.run(asyncio.wait_for(go(), 30)), book, observer, performer


def test_the_driver_leaves_out_for_good_what_has_not_started() -> None:
    driver, book, observer, performer = drive(After(4), {})
    left_out = [index for index, (number, _) in book.final.items() if number == 0]
    assert len(book.final) == 10
    assert driver.done + len(left_out) == 10
    assert driver.done in (4, 5, 6)
    assert (driver.left, driver.skipped) == (0, 0), "nothing is held back for a resume"
    assert sorted(performer.forgotten) == list(range(10))
    assert len(observer.notices) == 1
    for index in left_out:
        failure = book.final[index][1].error
        assert failure == Failure(kind=Outcome.SKIPPED, message="early stop: enough", lasting=True)


def test_a_trial_that_waits_for_another_attempt_is_left_out_and_its_attempt_is_kept() -> None:
    driver, book, _, _ = drive(After(6), {0: Outcome.INFRA_ERROR})
    assert book.final[0][0] == 0
    assert (driver.left, driver.skipped) == (0, 0)


def test_a_verdict_that_is_there_as_the_run_begins_starts_nothing() -> None:
    driver, book, observer, _ = drive(After(0), {})
    assert driver.done == 0
    assert {number for number, _ in book.final.values()} == {0}
    assert len(observer.skipped) == 10


def test_a_verdict_with_the_last_result_is_nothing_to_speak_of() -> None:
    driver, _, observer, _ = drive(After(10), {})
    assert driver.done == 10
    assert observer.notices == []
