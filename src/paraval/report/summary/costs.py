"""What trials cost, added up: dollars, tokens, answers from the cache; and how it is said.

What is not known is told as unknown, never as nothing. A target's calls and its judges' are two
sums, side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paraval.codec import finite, rounded
from paraval.records import Outcome, Spend, TrialResult
from paraval.text.words import UNKNOWN, counted, money

NO_PRICE = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a set of trials spent: on their targets, or on judges."""

    usd: float | None
    """All that is known of it; None where nothing is."""
    priced: int
    """Trials whose cost is known."""
    unpriced: int
    """Trials with a call whose cost is unknown: the sum is larger by what that was."""
    calls: int
    """Answers that were asked for ..."""
    calls_unknown: bool
    """(not all of them are known)"""
    cached: int
    """... and those that came from the cache, free."""
    usage: Mapping[str, float]

    @property
    def is_told(self) -> bool:
        return self.priced + self.unpriced > 0

    @property
    def answers(self) -> int:
        return self.calls + self.cached

    @property
    def is_partly_unknown(self) -> bool:
        return self.unpriced > 0

    def __str__(self) -> str:
        """`$0.42`; `unknown`; `$0.12+` where some of it is unknown; `-` where nothing was told."""
        if self.usd is None:
            return NO_PRICE if self.unpriced else UNKNOWN
        return f"{money(self.usd)}+" if self.unpriced else money(self.usd)

    def in_words(self, *, in_full: bool = True) -> str:
        """`$0.42`, `unknown`, `at least $0.12 (3 trials of unknown cost)`; the last part only
        `in_full`."""
        if self.usd is None or not self.unpriced:
            return str(self)
        least = f"at least {money(self.usd)}"
        return f"{least} ({counted(self.unpriced, 'trial')} of unknown cost)" if in_full else least


class CostCount:
    """Costs, while results pass by."""

    def __init__(self) -> None:
        self._usd = 0.0
        self._priced = self._unpriced = self._unended = 0
        self._calls = self._cached = 0
        self._calls_unknown = False
        self._usage: dict[str, float] = {}

    def add(self, spend: Spend | None) -> None:
        if spend is None:
            return
        if is_known(spend):
            self._priced += 1
        else:
            self._unpriced += 1
        self._usd += finite(spend.known_usd) or 0.0
        self._calls += spend.calls
        self._calls_unknown |= spend.calls_unknown
        self._cached += spend.cached
        self.add_usage(spend.usage)

    def add_unended(self) -> None:
        """A trial that told nothing, since no attempt at it ended."""
        self._unended += 1

    @property
    def is_told(self) -> bool:
        return self._priced + self._unpriced > 0

    def add_usage(self, usage: Mapping[str, float]) -> None:
        for name, told in usage.items():
            amount = finite(told)
            if amount is not None:
                self._usage[name] = self._usage.get(name, 0) + amount

    def costs(self, *, is_paid: bool) -> Costs:
        """`is_paid`: the run's trials tell costs, so that those which did not end had some too."""
        unpriced = self._unpriced + (self._unended if is_paid else 0)
        # Nothing known beside something unknown is no lower bound, but unknown.
        is_known = self._usd > 0 or (self._priced > 0 and not unpriced)
        return Costs(
            usd=self._usd if is_known else None,
            priced=self._priced,
            unpriced=unpriced,
            calls=self._calls,
            calls_unknown=self._calls_unknown,
            cached=self._cached,
            usage=self._usage,
        )


def spend_of(result: TrialResult) -> Spend | None:
    """What a trial spent on its target; what its output told, where nobody added it up."""
    return result.spend or result.result.told_spend


def is_known(spend: Spend) -> bool:
    """Whether all that it cost is known."""
    return finite(spend.cost_usd) is not None


def told_usd(spend: Spend | None) -> float | None:
    """What is known of its cost; None where nothing is, which is not the same as nothing to pay."""
    if spend is None:
        return None
    known = finite(spend.known_usd)
    return known if is_known(spend) or known else None


def is_from_cache(result: TrialResult) -> bool:
    """Whether every answer, judges' included, was there already: it took no time worth telling."""
    spends = [spend for spend in (result.spend, result.judging) if spend is not None]
    return any(spend.cached for spend in spends) and not any(spend.calls for spend in spends)


def seconds_to_verdict(result: TrialResult) -> float | None:
    """How long a trial took, all its attempts together; None where it has no verdict of its own, or
    took all its answers from the cache. An error ends at any time, whatever an answer takes."""
    end = result.result
    if not end.outcome.is_judged or end.error is not None or is_from_cache(result):
        return None
    return finite(result.total_s)


def is_timeout(result: TrialResult) -> bool:
    """Whether it would have taken longer: also where a timeout counts as a failure."""
    error = result.result.error
    return Outcome.TIMEOUT in (result.outcome, None if error is None else error.kind)


def usage_of(result: TrialResult) -> Mapping[str, float]:
    """What a trial used, also where it told no cost."""
    spend, output = spend_of(result), result.result.output
    if spend is not None:
        return spend.usage
    return {} if output is None else output.usage


def seconds(value: float | None) -> float | None:
    """To the microsecond."""
    return rounded(value, 6)
