"""Live progress of a race: which candidates passed, failed or are duplicates, and how fast each one
is after a round. There is no line for each block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from statistics import median
from typing import TextIO

from paraval.cli.progress.progress import (
    ASCII_MARKS,
    GREEN,
    LONGEST_LABEL,
    LONGEST_REASON,
    MARKS,
    RED,
    YELLOW,
    CountPart,
    ProgressView,
    StoryLine,
    choose,
    how_it_ended,
)
from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.racing.candidates.duplicates import BASE_NORMAL
from paraval.racing.correctness.differences import tests_run
from paraval.racing.course.steps import BASELINE, STEP, StepKind, finding_of
from paraval.racing.course.verdicts import FIRST_BLOCKS, one_of, speedup_of
from paraval.racing.findings import (
    Block,
    CorrectnessFinding,
    Origin,
    Speedup,
    StepFinding,
    TestStatus,
)
from paraval.racing.report.race_words import is_bounded, speedup_cell, times
from paraval.racing.request import NO_TESTS, TOTAL
from paraval.records import (
    AttemptStarted,
    Happening,
    Outcome,
    RunEnded,
    Trial,
    TrialEnded,
    TrialResult,
)
from paraval.report.reasons import reason
from paraval.text.terminal import columns, one_line
from paraval.text.words import counted, duration, listed, rough_time

WIDEST_NAMES = 32
"""Text after names is aligned, but a longer name only shifts its own line."""
SHOWN_TESTS = 3
LEAST_BLOCKS = 2
"""The first round begins with one trial block each, which shows no speed yet."""
_BLOCKS = {StepKind.SCREEN: "block", StepKind.FINAL: "fresh block"}


def choose_for_race(
    mode: str,
    stream: TextIO,
    verbose: bool,
    *,
    confidence: float = 0.95,
    clock: Callable[[], float] = time.monotonic,
    environ: Mapping[str, str] | None = None,
) -> ProgressView:
    """The view for a race, by the modes of `progress.choose`, with intervals at `confidence`."""

    def story(ascii_only: bool) -> RaceStory:
        return RaceStory(ascii_only=ascii_only, confidence=confidence)

    return choose(mode, stream, verbose, clock=clock, environ=environ, story=story)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The current phase of a race."""

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
    """What is known of one candidate."""

    index: int
    """Index of the trial that staged it, in order of proposal."""
    normal: str | None = None
    """Its normal form; None if it is not staged yet, or does not apply."""
    is_settled: bool = False
    """Its tests began, or the reason why they never will was shown."""
    is_over: bool = False
    """Its tests ended, or will never begin."""


class RaceStory:
    """Turns each Happening into the lines to show for it."""

    # Passing candidates are only counted; the report names them.
    minor = frozenset(("passed",))
    is_brief = False
    noun = "race"
    # A step that fails for no fault of its candidate is worth showing.
    tells_retries = True
    tells_holds = False

    def __init__(self, *, ascii_only: bool, confidence: float = 0.95) -> None:
        self.hidden = frozenset[str]()
        self._marks = ASCII_MARKS if ascii_only else MARKS
        self.passed = self.failed = self.errors = 0
        """Numbers of candidates."""
        self._known: dict[str, _Known] = {}
        self._why_the_baseline_failed: str | None = None
        self._rounds = Rounds(confidence)
        self._word = "starting"
        self._total = 0
        """Trials known at the previous event ..."""
        self._done = 0
        """... and how many of them had ended."""
        self._width = 0

    @property
    def phase(self) -> Phase:
        if self._word == "testing":
            over = sum(one.is_over for one in self._known.values())
            return Phase(word="testing", done=over, total=len(self._known))
        if self._word in ("measuring", "finals"):
            rounds = self._rounds
            return Phase(word=self._word, unit="blocks", done=rounds.done, total=rounds.total)
        return Phase(word=self._word)

    @property
    def position(self) -> tuple[int, int]:
        phase = self.phase
        return (phase.done, phase.total) if phase.total else (0, 1)

    def counts(self, elapsed_s: float) -> list[CountPart]:
        return [
            CountPart(str(self.phase)),
            CountPart(f"{self.passed:,} passed", GREEN if self.passed else ""),
            CountPart(f"{self.failed:,} failed", RED if self.failed else ""),
            CountPart(counted(self.errors, "error") if self.errors else "", YELLOW),
            CountPart(rough_time(elapsed_s)),
        ]

    def prefix(self, mark: str) -> str:
        return f"{self._marks[mark]} " if mark == "start" else ""

    def note(self, words: str) -> str:
        return f"… {self.phase}: {words}"

    def tell(self, event: Happening, standing: str = "") -> list[StoryLine]:  # noqa: ARG002 - for suites
        return [line for line in self._lines(event) if line.mark not in self.hidden]

    def _lines(self, event: Happening) -> Iterator[StoryLine]:
        match event:
            case AttemptStarted():
                yield from self._started(event.attempt.trial, event.attempt.number)
            case TrialEnded():
                yield from self._ended(event)
            case RunEnded():
                yield from self._duplicates(None)
                yield from self._measured(self._rounds.finish())

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """Count a step of an earlier engine, which was shown then."""
        kind = _kind(trial)
        ended = TrialEnded(
            trial=trial, result=result, done=self._done, total=self._total, eta_s=None
        )
        if kind in (StepKind.SCREEN, StepKind.FINAL):
            block = _block(result)
            self._rounds.recall(kind, trial.case.id, trial.repeat, block)
            lines = (*self._duplicates(None), *self._broken(ended, block))
        else:
            lines = (*self._started(trial, 1), *self._ended(ended))
        del lines  # They were shown then.

    # ---- starts

    def _started(self, trial: Trial, number: int) -> Iterator[StoryLine]:
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
                    # All earlier proposals are staged, so duplicates are known.
                    yield from self._duplicates(known.index)
                    known.is_settled = True
            case StepKind.SCREEN | StepKind.FINAL:
                yield from self._duplicates(None)
                left = max(0, self._total - self._done)
                yield from self._measured(self._rounds.begin(kind, name, trial.repeat, left))
                self._word = "measuring" if kind is StepKind.SCREEN else "finals"
            case StepKind.CALIBRATE:
                self._word = "measuring the baseline"
            case StepKind.CANARY:
                self._word = "checking the tests"
            case StepKind.PROFILE:
                self._word = "profiling"

    def _arrived(self, trial: Trial) -> Iterator[StoryLine]:
        """Announce a candidate that was not given by the user."""
        origin = trial.case.metadata.get("origin", Origin.GIVEN)
        if origin == Origin.GENERATE:
            yield self._line("new", trial.case.id, "generated")
        elif origin != Origin.GIVEN:
            parent = one_line(str(trial.case.metadata.get("parent")), LONGEST_LABEL)
            yield self._line("new", trial.case.id, f"{origin} of {parent}")

    def _duplicates(self, before: int | None) -> Iterator[StoryLine]:
        """Lines for duplicates proposed before this index; None: for all known by now."""
        first: dict[str, str] = {BASE_NORMAL: BASELINE}
        for name, one in sorted(self._known.items(), key=lambda known: known[1].index):
            if before is not None and one.index >= before:
                break
            if one.normal is None and not one.is_settled:
                # Not staged yet: later ones may turn out to be equal to it.
                break
            original = name if one.normal is None else first.setdefault(one.normal, name)
            if original != name and not one.is_settled:
                one.is_settled = one.is_over = True
                what = f"duplicate of {one_line(original, LONGEST_LABEL)}"
                yield self._line("skipped", name, what)

    # ---- ends

    def _ended(self, event: TrialEnded) -> Iterator[StoryLine]:
        kind, finding = _kind(event.trial), _finding(event.result)
        is_last = event.done >= self._total > 0
        self._done, self._total = event.done, event.total
        match kind:
            case StepKind.STAGE:
                yield from self._staged(event, finding)
            case StepKind.TEST:
                yield from self._tested(event, finding.tested or CorrectnessFinding())
            case StepKind.SCREEN | StepKind.FINAL:
                yield from self._block_ended(event, kind, is_last=is_last)
            case StepKind.CALIBRATE:
                yield from self._calibrated(event, finding)
            case StepKind.GENERATE | StepKind.REPAIR | StepKind.REFINE:
                yield from self._asked(event, kind, finding)

    def _staged(self, event: TrialEnded, finding: StepFinding) -> Iterator[StoryLine]:
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

    def _tested(self, event: TrialEnded, tested: CorrectnessFinding) -> Iterator[StoryLine]:
        name, outcome = event.trial.case.id, event.result.outcome
        took = duration(event.result.result.duration_s)
        if (known := self._known.get(name)) is not None:
            known.is_settled = known.is_over = True
        if outcome is Outcome.PASSED and not tested.flags:
            if name == BASELINE and event.trial.repeat > 1:
                return
            self.passed += name != BASELINE
            if getattr(event.trial.target, "command", ()) == NO_TESTS:
                return
            number = "" if tested.counts is None else f" ({tested.counts.passed:,})"
            yield self._line("passed", name, f"tests passed{number}  {took}")
        elif outcome.is_judged:
            self.failed += name != BASELINE
            why = why_failed(tested) or _reason(event.result) or "its tests"
            # It is tested twice, and usually fails twice for the same reason.
            if name != BASELINE or why != self._why_the_baseline_failed:
                yield self._line("failed", name, f"failed: {why}")
            if name == BASELINE:
                self._why_the_baseline_failed = why
        else:
            yield self._error(event)

    def _calibrated(self, event: TrialEnded, finding: StepFinding) -> Iterator[StoryLine]:
        found = finding.calibration
        if event.result.outcome is not Outcome.PASSED or found is None or not found.samples:
            yield self._error(event)
            return
        # The compared time, as in the report: not the whole process if it measures itself.
        took = duration(median(one[TOTAL] for one in found.samples))
        yield self._line("passed", BASELINE, f"benchmark {took} per run")

    def _block_ended(
        self, event: TrialEnded, kind: StepKind, *, is_last: bool
    ) -> Iterator[StoryLine]:
        block = _block(event.result)
        yield from self._broken(event, block)
        left, name = max(0, event.total - event.done), event.trial.case.id
        yield from self._measured(self._rounds.end(kind, name, block, left, is_last=is_last))

    def _broken(self, event: TrialEnded, block: Block | None) -> Iterator[StoryLine]:
        if block is None and event.result.outcome is not Outcome.SKIPPED:
            yield self._error(event)

    def _measured(self, speeds: Iterable[tuple[str, str]]) -> Iterator[StoryLine]:
        for name, words in speeds:
            yield self._line("measured", name, words)

    def _asked(
        self, event: TrialEnded, kind: StepKind, finding: StepFinding
    ) -> Iterator[StoryLine]:
        name = event.trial.case.id
        who = "" if kind is StepKind.GENERATE else f"{kind.value} "
        if event.result.outcome not in (Outcome.PASSED, Outcome.SKIPPED):
            yield self._error(event, who=who)
        if finding.asked is None:
            return
        if not finding.asked.proposals and event.result.outcome is Outcome.PASSED:
            # Proposals are shown as they arrive, which may be long before it ends.
            took = duration(event.result.result.duration_s)
            yield self._line("new", name, f"{who}proposed nothing  {took}")
        if complaints := finding.asked.complaints:
            noun = "item" if complaints[0].startswith("item ") else "line"
            left_out = counted(len(complaints) + finding.asked.more_complaints, noun)
            yield self._line("error", name, f"{left_out} skipped: {complaints[0]}")
        for remark in finding.asked.remarks:
            yield self._line("error", name, remark)

    # ---- lines

    def _error(self, event: TrialEnded, who: str | None = None) -> StoryLine:
        """`! hangs  timeout: timed out after 10 s`; `who`: the hook, if it was one."""
        self.errors += who is None and event.trial.case.id != BASELINE
        words = f"{who or ''}{how_it_ended(event.result.result)}"
        return self._line("error", event.trial.case.id, words)

    def _line(self, mark: str, name: str, words: str) -> StoryLine:
        shown = one_line(name, LONGEST_LABEL)
        if columns(shown) <= WIDEST_NAMES:
            self._width = max(self._width, columns(shown))
        padding = " " * (self._width - columns(shown))
        # one_line would collapse the double spaces between our own parts.
        text = "  ".join(one_line(part, LONGEST_REASON) for part in words.split("  "))
        return StoryLine(mark, f"{self._marks[mark]} {shown}{padding}  {text}".rstrip())


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


def _block(result: TrialResult) -> Block | None:
    """The block of a result; None if it did not finish."""
    return _finding(result).block if result.outcome is Outcome.PASSED else None


def _reason(result: TrialResult) -> str:
    return one_line(reason(result.result), LONGEST_REASON)


# ---- rounds


@dataclass(slots=True, kw_only=True)
class _Round:
    """The blocks being measured."""

    kind: StepKind | None = None
    done: int = 0
    left: int = 0
    """Issued, and not done."""
    measured: set[str] = field(default_factory=set)
    """Candidates measured since their speed was last shown."""


class Rounds:
    """Collects blocks, and yields the speeds of candidates after each round."""

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._blocks: dict[tuple[StepKind, str], list[Block]] = {}
        self._finalists: set[str] = set()
        self._recalled: set[tuple[StepKind, str]] = set()
        """Candidates with blocks of earlier engines."""
        self._broken: set[str] = set()
        """Candidates with an unfinished block: they are out, however fast the others were."""
        self._beginners: set[str] = set()
        """Candidates after their first block, with the rest of the first round not issued yet."""
        self._is_first_pass = False
        self._round = _Round()

    @property
    def done(self) -> int:
        return self._round.done

    @property
    def total(self) -> int:
        """Blocks in this round, including those sure to be issued; 0 if unknown."""
        ahead = 0
        if self._is_first_pass and (self._round.done or self._round.left):
            ahead = (FIRST_BLOCKS - 1) * (len(self._beginners) + self._round.left)
        return self._round.done + self._round.left + ahead

    # ---- events

    def begin(self, kind: StepKind, name: str, number: int, left: int) -> Iterator[tuple[str, str]]:
        """Begin a block; yield the speeds of the round that this ends."""
        if kind is not self._round.kind:
            yield from self.speeds()
            self._round = _Round(kind=kind, left=left)
        if kind is StepKind.FINAL:
            self._finalists.add(name)
        self._is_first_pass = kind is StepKind.SCREEN and number == 1
        if not self._is_first_pass:
            self._beginners.clear()

    def end(
        self, kind: StepKind, name: str, block: Block | None, left: int, *, is_last: bool
    ) -> Iterator[tuple[str, str]]:
        """End a block (None if it failed); yield the speeds of the round that this ends.

        `left`: blocks issued and not done. `is_last`: nothing else was issued when it began, so
        blocks issued now belong to the next round.
        """
        self._take(kind, name, block, is_first=self._is_first_pass)
        self._round.kind = kind
        self._round.done += 1
        self._round.left = left
        self._round.measured.add(name)
        if is_last:
            yield from self.speeds(least=LEAST_BLOCKS)
            if not self._is_first_pass:
                self._round.done = 0
            self._is_first_pass = False

    def recall(self, kind: StepKind, name: str, number: int, block: Block | None) -> None:
        """Add a block of an earlier engine."""
        self._recalled.add((kind, name))
        if kind is StepKind.FINAL:
            self._finalists.add(name)
        if number > 1:
            self._beginners.clear()
        self._take(kind, name, block, is_first=kind is StepKind.SCREEN and number == 1)

    def _take(self, kind: StepKind, name: str, block: Block | None, *, is_first: bool) -> None:
        if block is None:
            self._broken.add(name)
            return
        self._blocks.setdefault((kind, name), []).append(block)
        if is_first:
            self._beginners.add(name)

    def finish(self) -> Iterator[tuple[str, str]]:
        """Yield the last speeds, except of unfinished finals: the report uses the rounds then."""
        if not (self._round.kind is StepKind.FINAL and self._round.left):
            yield from self.speeds()

    # ---- speeds

    def speeds(self, least: int = 1) -> Iterator[tuple[str, str]]:
        """The speeds of candidates measured since they were last shown, the fastest first.

        One with fewer than `least` blocks waits.
        """
        kind = self._round.kind
        if kind is None:
            return
        self._round.measured |= self._others_of_the_round(kind)
        self._round.measured -= self._broken
        names = [
            one for one in self._round.measured if len(self._blocks.get((kind, one), ())) >= least
        ]
        self._round.measured.difference_update(names)
        speeds = [(*self._speed(kind, name), name) for name in sorted(names)]
        for _, words, name in sorted(speeds, key=lambda one: -one[0]):
            yield name, words

    def _others_of_the_round(self, kind: StepKind) -> set[str]:
        """Candidates that an earlier engine measured in the resumed round: they have as many blocks
        as those measured since."""
        done = {len(self._blocks.get((kind, name), ())) for name in self._round.measured}
        others = {name for of, name in self._recalled if of is kind}
        self._recalled = {one for one in self._recalled if not done}
        return {name for name in others if len(self._blocks.get((kind, name), ())) in done}

    def _speed(self, kind: StepKind, name: str) -> tuple[float, str]:
        blocks = self._blocks[kind, name]
        after = f"after {counted(len(blocks), _BLOCKS[kind])}"
        if any(block.noisy for of in _BLOCKS for block in self._blocks.get((of, name), ())):
            after += "  (noisy)"
        try:
            speedup = speedup_of(blocks, self._confidence_of(kind))
        except ValueError:
            speedup = None
        if speedup is None:
            return 0.0, f"speed unknown {after}"
        return speedup.estimate, f"{_speedup_words(speedup)} {after}"

    def _confidence_of(self, kind: StepKind) -> float:
        if kind is StepKind.FINAL:
            return one_of(len(self._finalists), self._confidence)
        return self._confidence


def _speedup_words(speedup: Speedup) -> str:
    if is_bounded(speedup):
        return speedup_cell(speedup)
    return f"{times(speedup.estimate)}, interval unknown,"


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
