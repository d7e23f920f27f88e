"""What an agent's attempt used of its account, and what it cost: told, reckoned, or unknown.

Nothing is taken to be free but what certainly is: what was never started, what was refused before
the model had said a word, and what a simulated model did.
"""

from __future__ import annotations

from dataclasses import replace

from paraval.agents.program import AgentEnd, Reading
from paraval.models.prices import Prices
from paraval.processes.children import Ended
from paraval.records import AccountUse, AgentTarget, Provider, Spend, account_need
from paraval.targets.ends import never_started

_UNBILLED = frozenset(
    {
        AgentEnd.RATE_LIMITED,
        AgentEnd.NO_LOGIN,
        AgentEnd.REFUSED_KEY,
        AgentEnd.NO_CREDIT,
        AgentEnd.NO_SUCH_MODEL,
        AgentEnd.UNREACHABLE,
        AgentEnd.BAD_REQUEST,
    }
)
"""The request that ended so is nobody's to pay; what was asked before it is another matter."""


def use_of(target: AgentTarget, ended: Ended, reading: Reading) -> AccountUse:
    refused = reading.end is AgentEnd.RATE_LIMITED or reading.refusals > 0
    usage = reading.usage
    return AccountUse(
        account=account_need(target.account),
        requests=_calls(ended, reading).calls,
        tokens=usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
        refused=refused,
        retry_after=reading.retry_after,
        overloaded=reading.end is AgentEnd.OVERLOADED,
        reached=reading.end is not AgentEnd.UNREACHABLE,
    )


def spend_of(target: AgentTarget, prices: Prices | None, ended: Ended, reading: Reading) -> Spend:
    calls = _calls(ended, reading)
    if not calls.calls or _is_unbilled(ended, reading):
        return calls
    usage = dict(reading.usage)
    cost = 0.0 if _is_free(target) else _cost(target, prices, reading)
    if _is_free(target) or _is_whole(ended, reading):
        return replace(calls, cost_usd=cost, usage=usage)
    # It broke off in the middle of something that is not in the sum.
    return replace(calls, cost_usd=None, part_usd=cost or 0.0, usage=usage)


def _calls(ended: Ended, reading: Reading) -> Spend:
    """Those of the model, without their cost."""
    if never_started(ended) or _was_not_asked(ended, reading):
        return Spend()
    told = reading.requests if reading.requests is not None else reading.activity.turns
    # One that reports none has asked at least once, if it came to anything.
    return Spend(calls=told) if told else Spend(calls=1, calls_unknown=True)


def _was_not_asked(ended: Ended, reading: Reading) -> bool:
    """No request came to the provider."""
    if _was_cut(ended):
        return False
    if reading.end is AgentEnd.NO_SERVER:
        return True
    if reading.end is AgentEnd.NO_LOGIN:
        return reading.has_worked is not True
    return reading.end is AgentEnd.UNREACHABLE and reading.has_worked is False


def _is_unbilled(ended: Ended, reading: Reading) -> bool:
    """Refused before the model had said a word."""
    if reading.end not in _UNBILLED or _was_cut(ended) or reading.cost_usd:
        return False
    told_none = reading.is_settled and bool(reading.usage)
    return not any(reading.usage.values()) and (reading.has_worked is False or told_none)


def _is_whole(ended: Ended, reading: Reading) -> bool:
    """What it told is all that it took."""
    if _was_cut(ended):
        return False
    return reading.answer is not None or reading.is_settled or reading.end in _UNBILLED


def _was_cut(ended: Ended) -> bool:
    """It was ended from outside, or nobody knows how it ended: its words are not its last."""
    return ended.timed_out or ended.out_of_memory or ended.failure is not None


def _is_free(target: AgentTarget) -> bool:
    """A simulated model costs nothing, whatever was asked of it."""
    model = target.model
    return model is not None and model.price is None and model.provider is Provider.LOOPBACK


def _cost(target: AgentTarget, prices: Prices | None, reading: Reading) -> float | None:
    """The registry's price where it says one: what an agent reckons by its own table is for its own
    provider."""
    model = target.model
    if model is None or (model.price is None and reading.cost_usd is not None):
        return reading.cost_usd
    if prices is None:
        return None
    return prices.cost_usd(model, reading.usage or None)
