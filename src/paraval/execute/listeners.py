"""What happens alongside a run's results: notices for the user, and early stopping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from paraval.records import WORKSPACE_NEED, Notice, Outcome, Trial
from paraval.schedule.messages import AccountHeld, NeedStopped

SHORTEST_SHOWN_HOLD_S = 2.0
"""Shorter holds are not worth a notice."""
HOLDS_SHOWN_EVERY_S = 15.0
"""Per account: a burst of refusals must not fill the terminal."""
LIMIT = "limit"
"""Prefix of a need that is one of the run's own limits."""


def stop_words(stopped: NeedStopped) -> str:
    reason = stopped.reason.rstrip(".")
    kind, _, name = stopped.need.partition(":")
    if stopped.need == WORKSPACE_NEED or kind == LIMIT:
        return f"Stopped: {reason}. The trials are skipped; resume to run them."
    return f"Stopped {kind} '{name}': {reason}. Its trials are skipped; resume to run them."


def hold_words(held: AccountHeld, now: float) -> str:
    name = held.account.partition(":")[2]
    return f"Account '{name}' is rate limited; waiting {held.until - now:.0f} s."


def verdict_words(verdict: str) -> str:
    """The verdict, for display."""
    return (
        f"{verdict[:1].upper()}{verdict[1:]}. No new trials start; running ones finish and count."
    )


class RunNotices:
    """Reports the scheduler's decisions in sentences, without repeating them too often."""

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        self._tell = tell
        self._has_shown_verdict = False
        self._shown_holds: dict[str, float] = {}
        """Account -> when the last notice about it was shown."""

    def say(self, message: str) -> None:
        self._tell(Notice(message=message))

    def need_stopped(self, stopped: NeedStopped) -> None:
        self.say(stop_words(stopped))

    def account_held(self, held: AccountHeld, now: float) -> None:
        last = self._shown_holds.get(held.account)
        is_news = last is None or now - last >= HOLDS_SHOWN_EVERY_S
        if is_news and held.until - now >= SHORTEST_SHOWN_HOLD_S:
            self._shown_holds[held.account] = now
            self.say(hold_words(held, now))

    def called_off(self, verdict: str) -> None:
        """Once, and only if trials are left out."""
        if not self._has_shown_verdict:
            self._has_shown_verdict = True
            self.say(verdict_words(verdict))


class Decider(Protocol):
    """Receives results, and decides when the rest need not run."""

    @property
    def verdict(self) -> str | None:
        """Why nothing more need run; None: it must. Never taken back."""
        ...

    def hear(self, trial: Trial, outcome: Outcome) -> None:
        """Take the result of a trial, which is on disk."""
        ...


class EarlyStopListener:
    """Passes results to a decider, and calls off the rest of the run once it has decided."""

    def __init__(self, decider: Decider | None, call_off: Callable[[str], None]) -> None:
        self._decider = decider
        self._call_off = call_off

    @property
    def verdict(self) -> str | None:
        return None if self._decider is None else self._decider.verdict

    def hear(self, trial: Trial, outcome: Outcome) -> None:
        if self._decider is None:
            return
        was_open = self.verdict is None
        self._decider.hear(trial, outcome)
        if was_open and (verdict := self.verdict) is not None:
            self._call_off(verdict)
