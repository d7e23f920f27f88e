"""Trials that are named during a run: where they come from, and how the driver adds them.

On a resume, the source starts over: it receives the results of earlier engines as if they had just
come in, and so arrives at what is left to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

from paraval.dataclass import dataclass
from paraval.records import Trial, TrialResult
from paraval.schedule.messages import Work

# Sources of trials that are not in the plan: results decide what runs next.


class TrialSource(Protocol):
    """Names trials during a run. Quick, never raises, and runs in the engine's own loop.

    Each trial it names has an index of its own, counting from 0, and a key of its own. The run is
    over when nothing is running or waiting, and the source has named nothing more.
    """

    def begin(self) -> Sequence[Trial]:
        """The first trials."""
        ...

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        """A trial's result is on disk; it may come from an earlier engine."""
        ...

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        """A trial will not run now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Where an open-ended run gets its trials."""

    source: TrialSource
    known: Mapping[str, TrialResult]
    """Results of earlier engines, by the key of their trial."""
    work_of: Callable[[Trial], Work]
    """A trial as the scheduler sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrials:
    """Trials that a source named, and everything that followed from them."""

    trials: list[Trial] = field(default_factory=list)
    to_run: list[Work] = field(default_factory=list)
    """Those without a result, as the scheduler sees them."""


def result_of(trial: Trial, known: TrialResult) -> TrialResult:
    """A result that is stored by key, assigned to the trial that has the key now."""
    return replace(
        known,
        index=trial.index,
        case_id=trial.case.id,
        variant=trial.variant,
        repeat=trial.repeat,
    )


class SourceReader:
    """Asks a source, and rejects duplicate trials."""

    def __init__(self, growth: Growth) -> None:
        self._source = growth.source
        self._known = growth.known
        self._work_of = growth.work_of
        self._indexes: set[int] = set()
        self._keys: set[str] = set()
        self.known = 0
        """Named trials that already had a result."""

    def begin(self) -> NewTrials:
        return self.named(self._source.begin())

    def ended(self, trial: Trial, result: TrialResult) -> NewTrials:
        return self.named(self._source.ended(trial, result))

    def skipped(self, trial: Trial, reason: str) -> NewTrials:
        return self.named(self._source.skipped(trial, reason))

    def named(self, trials: Sequence[Trial]) -> NewTrials:
        """These trials, and everything the source names when it receives their known results."""
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
