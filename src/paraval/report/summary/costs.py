"""What one trial cost and how long its target took, cached answers as when they were requested."""

from __future__ import annotations

from collections.abc import Mapping

from paraval.codec import finite, rounded
from paraval.records import Outcome, Spend, TrialResult

_TOKENS = ("input_tokens", "output_tokens")
"""These include cached and reasoning tokens."""


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


def tokens_in(usage: Mapping[str, float | None]) -> float | None:
    """Input plus output tokens; None if neither was reported."""
    known = [amount for name in _TOKENS if (amount := finite(usage.get(name))) is not None]
    return sum(known) if known else None


def seconds(value: float | None) -> float | None:
    """Rounded to the microsecond."""
    return rounded(value, 6)
