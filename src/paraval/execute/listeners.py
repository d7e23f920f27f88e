"""What happens alongside a run's results: notices for the user, and early stopping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from paraval.records import (
    WORKSPACE_NEED,
    HeldBack,
    Notice,
    Outcome,
    RunNotice,
    Trial,
    Wait,
    account_above,
)
from paraval.schedule.messages import BUDGET, MACHINE, RETRY, SLOT, LimitUse, NeedStopped, Standing

WAITS_SHOWN_AFTER_S = 5.0
"""Shorter waits are not worth a word, unless nothing runs."""
LIMIT = "limit"
"""Prefix of a need that is one of the run's own limits."""


def stop_words(stopped: NeedStopped) -> str:
    reason = stopped.reason.rstrip(".")
    kind, _, name = stopped.need.partition(":")
    if stopped.need == WORKSPACE_NEED or kind == LIMIT:
        return f"Stopped: {reason}. The trials are skipped; resume to run them."
    return f"Stopped {kind} '{name}': {reason}. Its trials are skipped; resume to run them."


def verdict_words(verdict: str) -> str:
    """The verdict, for display."""
    return (
        f"{verdict[:1].upper()}{verdict[1:]}. No new trials start; running ones finish and count."
    )


# What holds trials back.


def rate_words(per_minute: float) -> str:
    """`12 requests/s`, `40 requests/min`."""
    if per_minute < 120:
        return f"{per_minute:,.0f} requests/min"
    return f"{per_minute / 60:,.0f} requests/s"


def why_limited(use: LimitUse, now: float) -> str:
    """`12 requests/s found (429)`."""
    if use.held_until is not None and use.held_until > now + 1.0:
        return "refused (429)"
    found = " found (429)" if use.is_found else ""
    if use.limit is not None and use.in_flight >= use.limit:
        return f"{use.limit:,} in parallel{found}"
    known = []
    if (rate := use.requests_per_minute) is not None:
        known.append(rate_words(rate))
    if use.tokens_per_minute is not None:
        known.append(f"{use.tokens_per_minute:,.0f} tokens/min")
    return f"{' and '.join(known)}{found}" if known else "one request at a time, after a refusal"


def _name_of(need: str) -> str:
    """`model mid` for `account:team-a model:mid`."""
    if not need.startswith(("account:", "lock:")):
        return need
    return need.removeprefix(account_above(need) or "").strip().replace(":", " ", 1)


def waits_of(standing: Standing, now: float) -> Iterator[Wait]:
    """What trials wait for that is neither a slot nor the machine: the most trials first."""
    uses = {use.name: use for use in standing.limits}
    for name, trials in sorted(standing.waiting.items(), key=lambda one: -one[1]):
        next_at = None
        if name in uses:
            if uses[name].is_idle and not uses[name].is_found:
                continue  # What it waits for is a slot of the run's own.
            why, next_at = why_limited(uses[name], now), uses[name].next_at
        elif name == RETRY:
            why, next_at = "before another attempt", standing.retry_at
        elif name == BUDGET:
            why = "running attempts may use it up"
        elif name in (SLOT, MACHINE):
            continue
        else:
            why = "in use"
        next_s = None if next_at is None else max(0.0, next_at - now)
        yield Wait(name=_name_of(name), why=why, trials=trials, next_s=next_s)


class Waits:
    """How long trials have been held back, and by what."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._looked_at: float | None = None
        self._were_shown = False
        self._notices: dict[str, RunNotice] = {}

    def look(self, now: float, standing: Standing) -> HeldBack | None:
        """Call every second; None: there is nothing to tell."""
        waits = []
        for wait in waits_of(standing, now):
            since = self._since.setdefault(wait.name, now)
            if now - since >= WAITS_SHOWN_AFTER_S or not standing.running:
                waits.append(replace(wait, waited_s=now - since))
                self._add_up(wait, now, since)
        names = {wait.name for wait in waits_of(standing, now)}
        self._since = {name: at for name, at in self._since.items() if name in names}
        self._looked_at = now
        were_shown, self._were_shown = self._were_shown, bool(waits)
        return HeldBack(waits=tuple(waits)) if waits or were_shown else None

    def _add_up(self, wait: Wait, now: float, since: float) -> None:
        before = self._notices.get(wait.name)
        if before is None or before.waited_s is None or self._looked_at is None:
            waited_s = now - since
        else:
            waited_s = before.waited_s + now - max(since, self._looked_at)
        self._notices[wait.name] = RunNotice(message=f"{wait.name}: {wait.why}", waited_s=waited_s)

    @property
    def notices(self) -> tuple[RunNotice, ...]:
        """What held trials back for longer than a moment, the longest wait first."""
        long = (one for one in self._notices.values() if (one.waited_s or 0.0) >= 1.0)
        return tuple(sorted(long, key=lambda one: -(one.waited_s or 0.0)))


# Notices.


class RunNotices:
    """Reports the scheduler's decisions in sentences, without repeating them too often."""

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        self._tell = tell
        self._has_shown_verdict = False

    def say(self, message: str) -> None:
        self._tell(Notice(message=message))

    def need_stopped(self, stopped: NeedStopped) -> None:
        self.say(stop_words(stopped))

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
