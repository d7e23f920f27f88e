"""Trials that are named while a run goes on: where they come from, and how the driver takes them.

A resume begins a source anew: the results of earlier engines are told to it as if they had come
just now, and so it arrives at what is left to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from paraval.records import Trial, TrialResult
from paraval.schedule.messages import Work

# Where trials come from that no plan knew of: what runs next is decided by what was found.


class TrialSource(Protocol):
    """Names trials while a run goes on. Quick, never raising, and in the engine's own loop.

    Each trial it names has an index of its own, one after the other from 0, and a key of its own.
    The run is over when nothing runs or waits, and the source has named nothing more.
    """

    def begin(self) -> Sequence[Trial]:
        """What to start with."""
        ...

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        """A trial has its result, and that is on disk; it may be from an earlier engine."""
        ...

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        """A trial will not run now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a run grows."""

    source: TrialSource
    known: Mapping[str, TrialResult]
    """The results of earlier engines, by the key of their trials."""
    work_of: Callable[[Trial], Work]
    """A trial as the scheduler sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrials:
    """What a source named, and all that followed from it."""

    trials: list[Trial] = field(default_factory=list)
    to_run: list[Work] = field(default_factory=list)
    """Those of them that have no result, as the scheduler sees them."""


def result_of(trial: Trial, known: TrialResult) -> TrialResult:
    """A result that is known by its key alone, as that of the trial that has the key now."""
    return replace(
        known,
        index=trial.index,
        case_id=trial.case.id,
        variant=trial.variant,
        repeat=trial.repeat,
    )


class SourceReader:
    """Asks a source, and keeps it from naming anything twice."""

    def __init__(self, growth: Growth) -> None:
        self._source = growth.source
        self._known = growth.known
        self._work_of = growth.work_of
        self._indexes: set[int] = set()
        self._keys: set[str] = set()
        self.known = 0
        """Trials that were named and had a result already."""

    def begin(self) -> NewTrials:
        return self.named(self._source.begin())

    def ended(self, trial: Trial, result: TrialResult) -> NewTrials:
        return self.named(self._source.ended(trial, result))

    def skipped(self, trial: Trial, reason: str) -> NewTrials:
        return self.named(self._source.skipped(trial, reason))

    def named(self, trials: Sequence[Trial]) -> NewTrials:
        """These, and all that the source names when it hears of the results that there are."""
        named = NewTrials()
        waiting = deque(trials)
        while waiting:
            trial = waiting.popleft()
            self._require_new(trial)
            named.trials.append(trial)
            known = self._known.get(trial.key)
            if known is None:
                named.to_run.append(self._work_of(trial))
                continue
            self.known += 1
            waiting.extend(self._source.ended(trial, result_of(trial, known)))
        return named

    def _require_new(self, trial: Trial) -> None:
        if trial.index in self._indexes or trial.key in self._keys:
            raise ValueError(f"trial {trial.index} ({trial.label}) was named twice")
        self._indexes.add(trial.index)
        self._keys.add(trial.key)
