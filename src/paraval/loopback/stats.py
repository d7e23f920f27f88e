"""Counts of what the server received: in total, by account and by model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from paraval.dataclass import dataclass
from paraval.loopback.exchange import Reply

DISTINCT_NAMES = 1000
"""How many accounts and models are counted separately; further ones are counted together."""
NAME_CHARACTERS = 200
OTHERS = "(others)"


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of requests. Each is one of: answered, refused, rejected, faults, abandoned."""

    requests: int = 0
    answered: int = 0
    """Complete answers."""
    refused: int = 0
    """By a rate limit, a quota or a storm."""
    rejected: int = 0
    """Wrong key, unknown model, invalid body."""
    faults: int = 0
    abandoned: int = 0
    """The client disconnected before its answer came."""
    at_once: int = 0
    """In progress."""
    most_at_once: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    first_at: float | None = None
    """Seconds since the epoch, of the first request."""
    last_at: float | None = None
    """Of the last answer or error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A snapshot of the server's counts."""

    total: Tally
    accounts: Mapping[str, Tally] = field(default_factory=dict)
    models: Mapping[str, Tally] = field(default_factory=dict)

    def as_mapping(self) -> dict[str, Any]:
        return asdict(self)


class CountedRequest:
    """One request, counted in all its tallies; it ends once."""

    __slots__ = ("_ended", "_let_in", "_tallies")

    def __init__(self, *tallies: Tally) -> None:
        self._tallies = tallies
        self._let_in = False
        self._ended = False
        now = time.time()
        for tally in tallies:
            tally.requests += 1
            if tally.first_at is None:
                tally.first_at = now

    def let_in(self) -> None:
        self._let_in = True
        for tally in self._tallies:
            tally.at_once += 1
            tally.most_at_once = max(tally.most_at_once, tally.at_once)

    def end(self, how: str, reply: Reply | None = None) -> bool:
        """End the request; `how` names the count of a Tally, and the tokens are those of the reply,
        if any.

        Returns False if it had ended before, and nothing was counted.
        """
        if self._ended:
            return False
        self._ended = True
        now = time.time()
        usage = None if reply is None else reply.usage
        for tally in self._tallies:
            setattr(tally, how, getattr(tally, how) + 1)
            tally.last_at = now
            if self._let_in:
                tally.at_once -= 1
            if usage is not None:
                tally.input_tokens += usage.input
                tally.output_tokens += usage.output
        return True


class RequestCounter:
    """All tallies of a server."""

    def __init__(self) -> None:
        self._total = Tally()
        self._accounts: dict[str, Tally] = {}
        self._models: dict[str, Tally] = {}

    def visit(self, account: str, model: str) -> CountedRequest:
        return CountedRequest(
            self._total, _named(self._accounts, account), _named(self._models, model)
        )

    def stats(self) -> Stats:
        return Stats(
            total=_copy(self._total),
            accounts={name: _copy(tally) for name, tally in self._accounts.items()},
            models={name: _copy(tally) for name, tally in self._models.items()},
        )


def _named(tallies: dict[str, Tally], name: str) -> Tally:
    name = name[:NAME_CHARACTERS]
    tally = tallies.get(name)
    if tally is None:
        if len(tallies) >= DISTINCT_NAMES:
            name = OTHERS
        tally = tallies.setdefault(name, Tally())
    return tally


def _copy(tally: Tally) -> Tally:
    return Tally(**asdict(tally))
