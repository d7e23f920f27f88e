"""What a person cares about in a race while it goes on, in lines: who passed, who failed and how,
who is a duplicate, how fast each is after a round. Not one line for each block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from paraval.cli.progress_lines import LONGEST_LABEL, LONGEST_REASON
from paraval.racing.findings import Block, Difference, Finding, Origin, Tested
from paraval.racing.normal_form import BASE_NORMAL
from paraval.racing.shown import is_bounded, speedup_cell, times
from paraval.racing.steps import BASELINE, STEP, StepKind, finding_of
from paraval.racing.verdicts import speedup_of
from paraval.records import (
    AttemptStarted,
    Happening,
    Outcome,
    RunEnded,
    Trial,
    TrialEnded,
    TrialResult,
)
from paraval.report.text import columns, one_line
from paraval.report.wording import counted, duration, listed, reason

SHOWN_TESTS = 3
LEAST_BLOCKS = 2
"""The first round begins with one block of each, to see that it works: that shows no speed yet."""
MARKS = {
    "passed": "✓",
    "failed": "✗",
    "error": "!",
    "skipped": "–",  # noqa: RUF001 - the dash is meant
    "start": "→",
    "again": "↻",
    "measured": "·",
}
ASCII_MARKS = {
    "passed": "ok  ",
    "failed": "FAIL",
    "error": "ERR ",
    "skipped": "skip",
    "start": "new ",
    "again": "again",
    "measured": "    ",
}
_BLOCKS = {StepKind.SCREEN: "block", StepKind.FINAL: "fresh block"}


class Line(NamedTuple):
    """Something to say."""

    mark: str
    """Of `MARKS`."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Where a race is."""

    word: str = "starting"
    unit: str = ""
    done: int = 0
    total: int = 0

    def __str__(self) -> str:
        """`testing 12 of 20`, `measuring 7 of 24 blocks`."""
        if not self.total:
            return self.word
        return f"{self.word} {self.done:,} of {self.total:,}{self.unit and ' ' + self.unit}"


@dataclass(slots=True, kw_only=True)
class _Known:
    """What was heard of one candidate."""

    index: int
    """Of the trial that staged it: in the order of proposal."""
    normal: str | None = None
    """None: not staged yet, or no candidate at all."""
    is_settled: bool = False
    """Its tests began, or it was told why they never will."""
    is_over: bool = False
    """Its tests ended, or never will begin."""


@dataclass(slots=True, kw_only=True)
class _Round:
    """The blocks that are measured now."""

    kind: StepKind | None = None
    done: int = 0
    left: int = 0
    measured: set[str] = field(default_factory=set)
    """Whose speed was not told since."""


class RaceStory:
    """Is told each Happening, and answers with the lines that it is worth."""

    def __init__(self, *, ascii_only: bool, confidence: float = 0.95) -> None:
        self._marks = ASCII_MARKS if ascii_only else MARKS
        self.passed = self.failed = self.errors = 0
        """Candidates."""
        self._confidence = confidence
        self._known: dict[str, _Known] = {}
        self._blocks: dict[tuple[StepKind, str], list[Block]] = {}
        self._round = _Round()
        self._word = "starting"
        self._total = 0
        """Of trials, as far as they were known at the event before ..."""
        self._done = 0
        """... and how many had ended."""
        self._width = 0

    @property
    def phase(self) -> Phase:
        if self._word == "testing":
            over = sum(one.is_over for one in self._known.values())
            return Phase(word="testing", done=over, total=len(self._known))
        if self._word in ("measuring", "finals"):
            done = self._round.done
            return Phase(word=self._word, unit="blocks", done=done, total=done + self._round.left)
        return Phase(word=self._word)

    def tell(self, event: Happening) -> list[Line]:
        match event:
            case AttemptStarted():
                return [*self._started(event.attempt.trial, event.attempt.number)]
            case TrialEnded():
                return [*self._ended(event)]
            case RunEnded():
                return [*self._duplicates(None), *self._measured()]
        return []

    # ---- what starts

    def _started(self, trial: Trial, number: int) -> Iterator[Line]:
        kind, name = _kind(trial), trial.case.id
        match kind:
            case StepKind.STAGE:
                self._word = "testing"
                self._known.setdefault(name, _Known(index=trial.index))
                if number == 1:
                    yield from self._arrived(trial)
            case StepKind.TEST:
                self._word = "testing"
                if (known := self._known.get(name)) is not None:
                    # All that were proposed before it are staged: who is equal to whom is known.
                    yield from self._duplicates(known.index)
                    known.is_settled = True
            case StepKind.SCREEN | StepKind.FINAL:
                yield from self._duplicates(None)
                if kind is not self._round.kind:
                    yield from self._measured()
                    self._round = _Round(kind=kind, left=max(0, self._total - self._done))
                self._word = "measuring" if kind is StepKind.SCREEN else "finals"
            case StepKind.CALIBRATE:
                self._word = "measuring the baseline"
            case StepKind.PROFILE:
                self._word = "profiling"

    def _arrived(self, trial: Trial) -> Iterator[Line]:
        """Only of those that nobody gave: the others are known to who asked for the race."""
        origin = trial.case.metadata.get("origin", Origin.GIVEN)
        if origin == Origin.GENERATE:
            yield self._line("start", trial.case.id, "generated")
        elif origin != Origin.GIVEN:
            parent = one_line(str(trial.case.metadata.get("parent")), LONGEST_LABEL)
            yield self._line("start", trial.case.id, f"{origin} of {parent}")

    def _duplicates(self, before: int | None) -> Iterator[Line]:
        """Of those that were proposed before this one; None: of all."""
        first: dict[str, str] = {BASE_NORMAL: BASELINE}
        for name, one in sorted(self._known.items(), key=lambda known: known[1].index):
            if one.normal is None or (before is not None and one.index >= before):
                continue
            original = first.setdefault(one.normal, name)
            if original != name and not one.is_settled:
                one.is_settled = one.is_over = True
                what = f"duplicate of {one_line(original, LONGEST_LABEL)}"
                yield self._line("skipped", name, what)

    # ---- what ended

    def _ended(self, event: TrialEnded) -> Iterator[Line]:
        kind, finding = _kind(event.trial), _finding(event.result)
        is_last = event.done >= self._total > 0
        self._done, self._total = event.done, event.total
        match kind:
            case StepKind.STAGE:
                yield from self._staged(event, finding)
            case StepKind.TEST:
                yield from self._tested(event, finding.tested or Tested())
            case StepKind.SCREEN | StepKind.FINAL:
                yield from self._block_ended(event, kind, finding)
                self._round.left = max(0, event.total - event.done)
                # Of all that was known there is nothing left: the next round is another.
                if is_last:
                    yield from self._measured(least=LEAST_BLOCKS)
                    self._round.done = 0
            case StepKind.CALIBRATE:
                yield from self._calibrated(event, finding)
            case StepKind.GENERATE | StepKind.REPAIR | StepKind.REFINE:
                yield from self._asked(event, kind, finding)

    def _staged(self, event: TrialEnded, finding: Finding) -> Iterator[Line]:
        name = event.trial.case.id
        known = self._known.setdefault(name, _Known(index=event.trial.index))
        staged = finding.staged
        if event.result.outcome is Outcome.PASSED and staged is not None and not staged.flags:
            known.normal = staged.normal
            return
        known.is_settled = known.is_over = True
        if staged is not None and staged.flags:
            self.failed += 1
            yield self._line("failed", name, f"invalid: {'; '.join(staged.flags)}")
        elif event.result.outcome is Outcome.FAILED:
            self.failed += 1
            yield self._line("failed", name, f"invalid: {_reason(event.result)}")
        else:
            yield self._error(event)

    def _tested(self, event: TrialEnded, tested: Tested) -> Iterator[Line]:
        name, outcome = event.trial.case.id, event.result.outcome
        took = duration(event.result.result.duration_s)
        if (known := self._known.get(name)) is not None:
            known.is_settled = known.is_over = True
        if outcome is Outcome.PASSED and not tested.flags:
            if name == BASELINE and event.trial.repeat > 1:
                return
            self.passed += name != BASELINE
            number = "" if tested.counts is None else f" ({tested.counts.passed:,})"
            yield self._line("passed", name, f"tests passed{number}  {took}")
        elif outcome.is_judged:
            self.failed += name != BASELINE
            yield self._line("failed", name, f"failed: {_why_failed(event.result, tested)}")
        else:
            yield self._error(event)

    def _calibrated(self, event: TrialEnded, finding: Finding) -> Iterator[Line]:
        if event.result.outcome is not Outcome.PASSED or finding.calibration is None:
            yield self._error(event)
            return
        took = duration(finding.calibration.process_s)
        yield self._line("passed", BASELINE, f"benchmark {took} a run")

    def _block_ended(self, event: TrialEnded, kind: StepKind, finding: Finding) -> Iterator[Line]:
        name = event.trial.case.id
        self._round.kind = kind
        self._round.done += 1
        if event.result.outcome is Outcome.PASSED and finding.block is not None:
            self._blocks.setdefault((kind, name), []).append(finding.block)
            self._round.measured.add(name)
        elif event.result.outcome is not Outcome.SKIPPED:
            yield self._error(event)

    def _asked(self, event: TrialEnded, kind: StepKind, finding: Finding) -> Iterator[Line]:
        name = event.trial.case.id
        who = "" if kind is StepKind.GENERATE else f"{kind.value} "
        if event.result.outcome not in (Outcome.PASSED, Outcome.SKIPPED):
            yield self._error(event, who=who)
        if finding.asked is None:
            return
        number = counted(len(finding.asked.proposals), "candidate")
        took = duration(event.result.result.duration_s)
        yield self._line("start", name, f"{who}proposes {number}  {took}")
        if finding.asked.complaints:
            left_out = counted(len(finding.asked.complaints), "line")
            yield self._line("error", name, f"{left_out} left out: {finding.asked.complaints[0]}")

    def _measured(self, least: int = 1) -> Iterator[Line]:
        """A line for each candidate that was measured since it was told last, the fastest first.

        One with fewer blocks waits.
        """
        kind = self._round.kind
        if kind is None:
            return
        names = [one for one in self._round.measured if len(self._blocks[kind, one]) >= least]
        self._round.measured.difference_update(names)
        lines = [(self._speed(self._blocks[kind, name], kind), name) for name in sorted(names)]
        for (_, words), name in sorted(lines, key=lambda one: -one[0][0]):
            yield self._line("measured", name, words)

    def _speed(self, blocks: Sequence[Block], kind: StepKind) -> tuple[float, str]:
        after = f"after {counted(len(blocks), _BLOCKS[kind])}"
        noisy = "  (noisy)" if any(block.noisy for block in blocks) else ""
        try:
            speedup = speedup_of(blocks, self._confidence)
        except ValueError:
            speedup = None
        if speedup is None:
            return 0.0, f"no speed {after}{noisy}"
        bounded = is_bounded(speedup)
        shown = (
            speedup_cell(speedup) if bounded else f"{times(speedup.estimate)}, interval unknown,"
        )
        return speedup.estimate, f"{shown} {after}{noisy}"

    # ---- words

    def _error(self, event: TrialEnded, who: str | None = None) -> Line:
        """`! hangs  timeout: not done after 10 s`; `who`: a hook's, not the candidate's own."""
        self.errors += who is None and event.trial.case.id != BASELINE
        outcome, why = event.result.outcome.value, _reason(event.result)
        told = outcome if why in ("", outcome) else f"{outcome}: {why}"
        return self._line("error", event.trial.case.id, f"{who or ''}{told}")

    def _line(self, mark: str, name: str, words: str) -> Line:
        shown = one_line(name, LONGEST_LABEL)
        self._width = max(self._width, columns(shown))
        padding = " " * (self._width - columns(shown))
        # Words of ours have two spaces between them that one_line would take away.
        said = "  ".join(one_line(part, LONGEST_REASON) for part in words.split("  "))
        return Line(mark, f"{self._marks[mark]} {shown}{padding}  {said}".rstrip())


def _kind(trial: Trial) -> StepKind | None:
    try:
        return StepKind(str(trial.variant.get(STEP)))
    except ValueError:
        return None


def _finding(result: TrialResult) -> Finding:
    try:
        return finding_of(result.result)
    except ValueError:
        # A finding of another version: nothing is known of it, and nobody is disturbed.
        return Finding()


def _reason(result: TrialResult) -> str:
    return one_line(reason(result.result), LONGEST_REASON)


def _why_failed(result: TrialResult, tested: Tested) -> str:
    """`1 of 12 tests: test_cycle`, `stdout is different`."""
    if tested.flags:
        return "; ".join(tested.flags)
    names = [_short(one) for one in tested.differences if one.scope == "test"] or [
        name.rpartition("::")[2] for name in tested.failing
    ]
    others = [f"{one.name} is {one.status}" for one in tested.differences if one.scope != "test"]
    parts = []
    if names:
        number = len(names) + tested.more
        counts = tested.counts
        ran = 0 if counts is None else counts.passed + counts.failed + counts.errors
        of = f" of {ran:,}" if ran >= number else ""
        more = [f"{number - SHOWN_TESTS:,} more"] if number > SHOWN_TESTS else []
        noun = "test" if number == 1 and not of else "tests"
        parts.append(f"{number:,}{of} {noun}: {listed((*names[:SHOWN_TESTS], *more))}")
    parts += others[:SHOWN_TESTS]
    return "; ".join(parts) or _reason(result) or "its tests"


def _short(difference: Difference) -> str:
    """`test_cycle`, of its whole id."""
    return difference.name.rpartition("::")[2]
