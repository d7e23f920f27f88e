"""What is told of a suite's past: an entry a run, with its figures and what is new in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from paraval.records import RunInfo, Variant
from paraval.report.summary import Summary


class Standing(StrEnum):
    """Whether a run's figures are over all that was planned."""

    COMPLETE = "complete"
    RUNNING = "running"
    HELD_BACK = "held_back"
    INTERRUPTED = "interrupted"


def standing_of(run: RunInfo) -> Standing:
    """An early stop completes a run; a budget that is spent does not."""
    if run.running:
        return Standing.RUNNING
    if run.held_back:
        return Standing.HELD_BACK
    if run.interrupted or run.ended_at is None or run.done < run.trials:
        return Standing.INTERRUPTED
    return Standing.COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is another than in the run before."""

    part: str
    """cases, prompt, models, target, graders, workspace, matrix, repeats or code."""
    words: str
    """`prompt changed`, `cases: 20 -> 22`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A pass rate that is shown to be another than in an earlier run, case by case."""

    variant: Variant | None
    """None: that of the whole run."""
    since: str
    """The run it was compared with."""
    is_since_last: bool
    """True: that is the run before."""
    difference: float
    """Now less then, in shares."""
    interval: tuple[float, float]
    confidence: float
    cases: int
    at_any_time: bool = False
    """True: one of the two may have stopped early, and this holds all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A run in the history of its suite."""

    run: RunInfo
    standing: Standing
    summary: Summary
    """Of the part that was asked for, where one was."""
    cases: int
    """That the run has trials of."""
    chosen_variants: str = ""
    """Which variants were asked for, where it were not all: `mode=with-tool`."""
    suite_variants: int | None = None
    """How many the suite has, as far as a run of all of them is known."""
    changes: tuple[Change, ...] = ()
    compared_with: str | None = None
    """The last complete run before with the same cases; None: there is none, or this is not
    complete."""
    shifts: tuple[Shift, ...] = ()

    @property
    def is_partial(self) -> bool:
        return self.standing is not Standing.COMPLETE

    @property
    def has_verdicts(self) -> bool:
        """An outage is no history of wrong answers."""
        return self.summary.judged > 0

    @property
    def suite_cases(self) -> int | None:
        """Of the suite as it was written; None where nobody noted it."""
        told = self.run.parts.get("case_count", "")
        return int(told) if told.isdecimal() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The last runs of a suite, the newest last."""

    suite: str
    choice: Mapping[str, str] = field(default_factory=dict)
    """Axis -> value: the figures are of such trials alone."""
    entries: tuple[Entry, ...]
    older: int = 0
    """Runs that were not asked for."""
    unfitting: int = 0
    """Runs without a trial that fits the choice."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Run -> why."""
