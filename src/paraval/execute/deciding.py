"""Who says that enough has run, as the driver sees them."""

from __future__ import annotations

from typing import Protocol

from paraval.records import Outcome, Trial


class Decider(Protocol):
    """Hears how trials end, and says when the rest need not run."""

    @property
    def verdict(self) -> str | None:
        """Why nothing more need run; None: it must. Once said, it is not taken back."""
        ...

    def hear(self, trial: Trial, outcome: Outcome) -> None:
        """The result of a trial, which is on disk."""
        ...


def verdict_words(verdict: str) -> str:
    """For a person to read, when it is said."""
    return f"{verdict[:1].upper()}{verdict[1:]}. Nothing new starts; what runs may end, and counts."
