"""What trials cost in total: dollars, tokens and cached answers, and how it is worded.

An unknown cost is reported as unknown, never as zero. Targets and judges are summed separately.
"""

from __future__ import annotations

from collections.abc import Mapping

from paraval.codec import finite, rounded
from paraval.dataclass import dataclass
from paraval.records import Outcome, Spend, TrialResult
from paraval.text.words import UNKNOWN, counted, money

NO_PRICE = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The spending of a set of trials, on their targets or on judges."""

    usd: float | None
    """The known cost, cached answers included as when they were requested; None if nothing is
    known."""
    spent_usd: float
    """What is known to have been spent by the run itself."""
    spent_unknown: bool
    """True: that is not all."""
    priced: int
    """Trials whose cost is known."""
    unpriced: int
    """Trials with a call of unknown cost: the true sum is larger."""
    calls: int
    """Answers that were requested ..."""
    calls_unknown: bool
    """(True if not all of them are known)"""
    cached: int
    """... and those that came from the cache."""
    usage: Mapping[str, float]

    @property
    def is_told(self) -> bool:
        return self.priced + self.unpriced > 0

    @property
    def is_paid(self) -> bool:
        """Whether anything was spent, as far as known."""
        return self.is_told and (self.usd != 0 or self.is_partly_unknown)

    @property
    def answers(self) -> int:
        return self.calls + self.cached

    @property
    def is_partly_unknown(self) -> bool:
        return self.unpriced > 0

    def __str__(self) -> str:
        """`$0.42`; `unknown`; `$0.12+` if some of it is unknown; `-` if nothing was reported."""
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
    """Adds up costs, result by result."""

    def __init__(self) -> None:
        self._usd = self._spent_usd = 0.0
        self._spent_unknown = False
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
        self._usd += finite(spend.original_known_usd) or 0.0
        self._spent_usd += finite(spend.known_usd) or 0.0
        self._spent_unknown |= finite(spend.cost_usd) is None
        self._calls += spend.calls
        self._calls_unknown |= spend.calls_unknown
        self._cached += spend.cached
        self.add_usage(spend.original_usage)

    def add_unended(self) -> None:
        """Add a trial that reported nothing because no attempt ended."""
        self._unended += 1

    @property
    def is_told(self) -> bool:
        return self._priced + self._unpriced > 0

    def add_usage(self, usage: Mapping[str, float]) -> None:
        for name, reported in usage.items():
            amount = finite(reported)
            if amount is not None:
                self._usage[name] = self._usage.get(name, 0) + amount

    def costs(self, *, is_paid: bool) -> Costs:
        """The sums. `is_paid`: the run has costs, so trials that never ended had some, too."""
        unpriced = self._unpriced + (self._unended if is_paid else 0)
        # With an unknown cost and no known one, the sum is unknown, not at least $0.
        is_known = self._usd > 0 or (self._priced > 0 and not unpriced)
        return Costs(
            usd=self._usd if is_known else None,
            spent_usd=self._spent_usd,
            spent_unknown=self._spent_unknown or unpriced > self._unpriced,
            priced=self._priced,
            unpriced=unpriced,
            calls=self._calls,
            calls_unknown=self._calls_unknown,
            cached=self._cached,
            usage=self._usage,
        )


def spend_of(result: TrialResult) -> Spend | None:
    """The spending of a trial on its target; if it was not summed, as its output reports it."""
    return result.spend or result.result.told_spend


def is_known(spend: Spend) -> bool:
    """Whether the whole cost is known, cached answers included as when they were requested."""
    return finite(spend.original_usd) is not None


def told_usd(spend: Spend | None) -> float | None:
    """The known cost, as above; None if nothing is known, which is not the same as free."""
    if spend is None:
        return None
    known = finite(spend.original_known_usd)
    return known if is_known(spend) or known else None


def is_from_cache(result: TrialResult) -> bool:
    """Whether every answer, including judges', was cached."""
    spends = [spend for spend in (result.spend, result.judging) if spend is not None]
    return any(spend.cached for spend in spends) and not any(spend.calls for spend in spends)


def seconds_to_verdict(result: TrialResult) -> float | None:
    """The time of a trial's target over all attempts, with the time that its cached answers took
    when they were requested; None if that is unknown, or if it was not judged. The time of an error
    says nothing about the time of an answer, and the time of a judge nothing about the target."""
    end = result.result
    if not end.outcome.is_judged or end.error is not None:
        return None
    spend = spend_of(result)
    then_s = spend.cached_s if spend is not None and spend.cached else 0.0
    return None if then_s is None else finite(result.time_s + then_s)


def is_timeout(result: TrialResult) -> bool:
    """Whether a trial timed out, even if the timeout counts as a failure."""
    error = result.result.error
    return Outcome.TIMEOUT in (result.outcome, None if error is None else error.kind)


def usage_of(result: TrialResult) -> Mapping[str, float]:
    """The usage of a trial, even if it reported no cost."""
    spend, output = spend_of(result), result.result.output
    if spend is not None:
        return spend.original_usage
    return {} if output is None else output.usage


def seconds(value: float | None) -> float | None:
    """Rounded to the microsecond."""
    return rounded(value, 6)
