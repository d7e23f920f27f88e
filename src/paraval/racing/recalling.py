"""Onlookers who know what earlier engines of a race did: they are told of every result in the store
that the race goes on from, as its course comes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, runtime_checkable

from paraval.execute.source import Source
from paraval.records import Trial, TrialResult


@runtime_checkable
class Recalls(Protocol):
    """What an onlooker may be, too."""

    def recall(self, trial: Trial, result: TrialResult) -> None:
        """A step of an earlier engine: quick, and never raising."""
        ...


def recalled_by(onlooker: object, source: Source, known: Collection[str]) -> Source:
    """The source, with the onlooker told of what is known by its key; others hear of no such."""
    return Recalling(source, known, onlooker.recall) if isinstance(onlooker, Recalls) else source


class Recalling:
    """A source whose results of earlier engines are told to someone else, too."""

    def __init__(
        self,
        source: Source,
        known: Collection[str],
        recall: Callable[[Trial, TrialResult], None],
    ) -> None:
        self._source = source
        self._known = known
        self._recall = recall

    def begin(self) -> Sequence[Trial]:
        return self._source.begin()

    def ended(self, trial: Trial, result: TrialResult) -> Sequence[Trial]:
        if trial.key in self._known:
            self._recall(trial, result)
        return self._source.ended(trial, result)

    def skipped(self, trial: Trial, reason: str) -> Sequence[Trial]:
        return self._source.skipped(trial, reason)
