"""Live progress of a race: its phase with a counter, and a line for each candidate that is decided.

How fast candidates are is left to the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from paraval.cli.progress.progress import (
    GREEN,
    LONGEST_LABEL,
    LONGEST_REASON,
    RED,
    YELLOW,
    CountPart,
    RunProgress,
    how_it_ended,
)
from paraval.errors import StoreError
from paraval.racing.correctness.differences import tests_run
from paraval.racing.findings import CorrectnessFinding, StepFinding, TestStatus
from paraval.racing.request import NO_TESTS, TOTAL
from paraval.racing.steps import BASELINE, STEP, StepKind, finding_of
from paraval.records import Attempt, AttemptEnded, Outcome, Trial, TrialEnded, TrialResult
from paraval.report.reasons import reason
from paraval.text.terminal import one_line
from paraval.text.words import counted, duration, listed, rough_time

SHOWN_TESTS = 3
_PHASES = {
    StepKind.PROPOSE: ("proposing", ""),
    StepKind.STAGE: ("testing", "candidates"),
    StepKind.TEST: ("testing", "candidates"),
    StepKind.CALIBRATE: ("measuring the baseline", ""),
    StepKind.CANARY: ("checking the tests", ""),
    StepKind.SCREEN: ("measuring", "blocks"),
    StepKind.FINAL: ("finals", "blocks"),
    StepKind.PROFILE: ("profiling", ""),
}
"""What a race does while steps of a kind begin, and what is counted of them."""
_OF_CANDIDATES = (StepKind.STAGE, StepKind.TEST, StepKind.SCREEN, StepKind.FINAL)


class RaceProgress(RunProgress):
    """Words the steps of a race."""

    _phase: tuple[str, str] = ("starting", "")
    _baseline_failed = ""
    _done_before = 0
    """How many steps had ended when this phase began."""

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """Count a step of an earlier engine; its line was shown then."""
        if _kind(trial) is StepKind.STAGE:
            self._numbers["new"] += 1
        self._count(trial, result)

    @property
    def phase(self) -> str:
        """`testing 12 of 20 candidates`, `finals 7 of 24 blocks`."""
        word, unit = self._phase
        done, total = self._progress()
        return f"{word} {done:,} of {total:,} {unit}" if unit and total else word

    def _progress(self) -> tuple[int, int]:
        number = self._numbers
        if self._phase[1] == "candidates":
            over = sum(number[end] for end in ("passed", "failed", "error"))
            return min(over, number["new"]), number["new"]
        done, total = self._position
        return done - self._done_before, total - self._done_before

    def _counts(self) -> list[CountPart]:
        number = self._numbers
        return [
            CountPart(self.phase),
            CountPart(f"{number['passed']:,} passed", GREEN if number["passed"] else ""),
            CountPart(f"{number['failed']:,} failed", RED if number["failed"] else ""),
            CountPart(counted(number["error"], "error") if number["error"] else "", YELLOW),
            CountPart(rough_time(self._clock() - self._began_at)),
        ]

    def _prefix(self, mark: str, took: str = "") -> str:  # noqa: ARG002 - has no column of times
        return f"{self._marks[mark]} "

    def _note(self, words: str) -> None:
        self._display.line(f"… {self.phase}: {words}")

    def _attempt_started(self, attempt: Attempt) -> None:
        kind = _kind(attempt.trial)
        phase = self._phase if kind is None else _PHASES.get(kind, self._phase)
        if phase != self._phase:
            self._phase, self._done_before = phase, self._position[0]
        if kind is not StepKind.STAGE or attempt.number > 1:
            return
        self._numbers["new"] += 1

    def _attempt_ended(self, event: AttemptEnded) -> None:
        # A step that fails for no fault of its candidate is worth showing in a log, too.
        if self._verbose or not self._display.is_live:
            self._say_retried(event)

    def _trial_ended(self, event: TrialEnded) -> None:
        name = event.trial.case.id
        for mark, words in self._count(event.trial, event.result):
            # The baseline is tested twice, and usually fails twice for the same reason.
            if mark == "failed" and name == BASELINE:
                if words == self._baseline_failed:
                    continue
                self._baseline_failed = words
            if mark != "passed" or self._verbose or not self._display.is_live:
                self._say(mark, name, words)

    def _say(self, mark: str, name: str, words: str) -> None:
        # one_line would collapse the double spaces between our own parts.
        text = "  ".join(one_line(part, LONGEST_REASON) for part in words.split("  "))
        self._display.line(f"{self._prefix(mark)}{one_line(name, LONGEST_LABEL)}  {text}")

    def _count(self, trial: Trial, result: TrialResult) -> list[tuple[str, str]]:
        """Count how a step ended; return its lines, each with its mark."""
        lines = _lines_of(trial, result)
        if _kind(trial) in _OF_CANDIDATES and trial.case.id != BASELINE:
            self._numbers.update(mark for mark, _ in lines)
        return lines


def _lines_of(trial: Trial, result: TrialResult) -> list[tuple[str, str]]:
    kind, finding = _kind(trial), _finding(result)
    if kind is None or result.outcome is Outcome.SKIPPED:
        return []
    if result.outcome.is_error:
        return [("error", how_it_ended(result.result))]
    match kind:
        case StepKind.STAGE:
            flags = () if finding.staged is None else finding.staged.flags
            if result.outcome is Outcome.FAILED or flags:
                return [("failed", f"invalid: {'; '.join(flags) or reason(result.result)}")]
            if finding.staged is not None and finding.staged.problem:
                return [("failed", f"failed: {finding.staged.problem}")]
        case StepKind.TEST:
            return _test_lines(trial, result, finding.tested or CorrectnessFinding())
        case StepKind.CALIBRATE if finding.calibration is not None and finding.calibration.samples:
            # The compared time, as in the report: not the whole process if it measures itself.
            took = median(one[TOTAL] for one in finding.calibration.samples)
            is_memory = finding.calibration.is_memory
            words = f"{took / 1e6:,.1f} MB" if is_memory else duration(took)
            return [("passed", f"benchmark {words} per run")]
        case StepKind.PROPOSE if finding.proposed is not None:
            proposed = finding.proposed
            number = counted(len(proposed.proposals), "candidate")
            lines = [("new", f"proposed {number}")]
            if proposed.complaints:
                left_out = len(proposed.complaints) + proposed.more_complaints
                words = f"{counted(left_out, 'proposal')} skipped: {proposed.complaints[0]}"
                lines.append(("error", words))
            return lines
    return []


def _test_lines(
    trial: Trial, result: TrialResult, tested: CorrectnessFinding
) -> list[tuple[str, str]]:
    if result.outcome is Outcome.FAILED or tested.flags:
        return [("failed", f"failed: {why_failed(tested) or reason(result.result) or 'its tests'}")]
    if trial.case.id == BASELINE and trial.repeat > 1:
        return []
    if getattr(trial.target, "command", ()) == NO_TESTS:
        return [("passed", "has no tests to pass")]
    number = "" if tested.counts is None else f" ({tested.counts.passed:,})"
    return [("passed", f"tests passed{number}  {duration(result.result.duration_s)}")]


def _kind(trial: Trial) -> StepKind | None:
    try:
        return StepKind(str(trial.variant.get(STEP)))
    except ValueError:
        return None


def _finding(result: TrialResult) -> StepFinding:
    try:
        return finding_of(result.result)
    except StoreError:
        # A finding of another version: unreadable, but no reason to stop.
        return StepFinding()


# ---- failures


def why_failed(tested: CorrectnessFinding) -> str:
    """`1 of 12 tests: test_cycle`, `stdout is different`; empty if unknown."""
    if tested.flags:
        return "; ".join(tested.flags)
    tests = [one for one in tested.differences if one.scope == "test"]
    left_out = [one for one in tests if one.status in (TestStatus.SKIPPED, TestStatus.MISSING)]
    names = [_short_name(one.name) for one in tests if one not in left_out]
    names = names or [_short_name(name) for name in tested.failing]
    # Failing tests come first: if skipped ones are listed, no failing ones are missing.
    number = len(names) + (0 if left_out else tested.more)
    parts = [_of_those_that_ran(number, names, tested)] if names else []
    if left_out:
        more = len(left_out) + tested.more
        which = _first_of(more, [_short_name(one.name) for one in left_out])
        parts.append(f"{counted(more, 'test')} did not run: {which}")
    others = [f"{one.name} is {one.status}" for one in tested.differences if one.scope != "test"]
    parts += others[:SHOWN_TESTS]
    return "; ".join(parts)


def _of_those_that_ran(number: int, names: Sequence[str], tested: CorrectnessFinding) -> str:
    ran = tests_run(tested.counts)
    all_of_them = f"{number:,} of {ran:,} tests" if ran >= number else counted(number, "test")
    return f"{all_of_them}: {_first_of(number, names)}"


def _first_of(number: int, names: Sequence[str]) -> str:
    more = [f"{number - SHOWN_TESTS:,} more"] if number > SHOWN_TESTS else []
    return listed((*names[:SHOWN_TESTS], *more))


def _short_name(name: str) -> str:
    """The last part of a test's id: `test_cycle`."""
    return name.rpartition("::")[2]
