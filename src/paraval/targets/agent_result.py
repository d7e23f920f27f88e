"""Interpret an agent's end: an output or a failure, and its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paraval.agents.program import AgentEnd, AgentProgram, TranscriptReading
from paraval.dataclass import dataclass
from paraval.models.call_errors import no_key
from paraval.models.prices import Prices
from paraval.processes.children import ProcessEnd
from paraval.records import (
    AccountUse,
    AgentTarget,
    Failure,
    Home,
    Model,
    Outcome,
    Output,
    Provider,
    Spend,
    account_need,
    agent_need,
    model_need,
    stop_note,
)
from paraval.targets.answer import (
    InvalidOutputError,
    TargetAnswer,
    bounded,
    checked,
    invalid,
    seconds,
)
from paraval.targets.process_ends import never_started, notes_of, unexpected_end

# An attempt's use of its account, and its cost: reported, computed, or unknown.

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
"""Ends that cost nothing for the last request; earlier requests may have cost something."""


def use_of(target: AgentTarget, ended: ProcessEnd, reading: TranscriptReading) -> AccountUse:
    usage = reading.usage
    return AccountUse(
        account=agent_need(target),
        requests=_calls(ended, reading).calls,
        tokens=usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
        refused=reading.end is AgentEnd.RATE_LIMITED,
        retry_after=reading.retry_after,
        overloaded=reading.end is AgentEnd.OVERLOADED,
        reached=reading.end is not AgentEnd.UNREACHABLE,
    )


def spend_of(
    target: AgentTarget, prices: Prices | None, ended: ProcessEnd, reading: TranscriptReading
) -> Spend:
    calls = _calls(ended, reading)
    if not calls.calls or _is_unbilled(ended, reading):
        return calls
    usage = dict(reading.usage)
    cost = 0.0 if _is_free(target) else _cost(target, prices, reading)
    if _is_free(target) or _is_whole(ended, reading):
        return replace(calls, cost_usd=cost, usage=usage)
    # It was cut off in the middle of a request that is not in the sum.
    return replace(calls, cost_usd=None, part_usd=cost or 0.0, usage=usage)


def _calls(ended: ProcessEnd, reading: TranscriptReading) -> Spend:
    """Return the number of model calls, without their cost."""
    if never_started(ended) or _was_not_asked(ended, reading):
        return Spend()
    calls = reading.requests if reading.requests is not None else reading.activity.turns
    # An agent that reports none made at least one request, if it got anywhere.
    return Spend(calls=calls) if calls else Spend(calls=1, calls_unknown=True)


def _was_not_asked(ended: ProcessEnd, reading: TranscriptReading) -> bool:
    """Whether no request reached the provider."""
    if _was_cut(ended):
        return False
    if reading.end is AgentEnd.NO_SERVER:
        return True
    if reading.end is AgentEnd.NO_LOGIN:
        return reading.has_worked is not True
    return reading.end is AgentEnd.UNREACHABLE and reading.has_worked is False


def _is_unbilled(ended: ProcessEnd, reading: TranscriptReading) -> bool:
    """Whether it was refused before the model answered at all."""
    if reading.end not in _UNBILLED or _was_cut(ended) or reading.cost_usd:
        return False
    reported_none = reading.is_settled and bool(reading.usage)
    return not any(reading.usage.values()) and (reading.has_worked is False or reported_none)


def _is_whole(ended: ProcessEnd, reading: TranscriptReading) -> bool:
    """Whether its reported usage is complete."""
    if _was_cut(ended):
        return False
    return reading.answer is not None or reading.is_settled or reading.end in _UNBILLED


def _was_cut(ended: ProcessEnd) -> bool:
    """Whether it was stopped from outside, or its end is unknown: its last report is not final."""
    return ended.timed_out or ended.out_of_memory or ended.failure is not None


def _is_free(target: AgentTarget) -> bool:
    """Whether the model is simulated: then it costs nothing."""
    model = target.model
    return model is not None and model.price is None and model.provider is Provider.LOOPBACK


def _cost(target: AgentTarget, prices: Prices | None, reading: TranscriptReading) -> float | None:
    """Return the cost by the registry's price, if set: an agent's own price table is for its own
    provider."""
    model = target.model
    if model is None or (model.price is None and reading.cost_usd is not None):
        return reading.cost_usd
    if prices is None:
        return None
    return prices.cost_usd(model, reading.usage or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """The parts of a request that are needed to interpret its end."""

    target: AgentTarget
    program: AgentProgram
    has_key: bool
    """It got a key; False: it uses the login in its home, or none."""
    prices: Prices | None = None

    @property
    def account(self) -> str:
        return agent_need(self.target)


def without_key(model: Model) -> TargetAnswer:
    """Return the failure of an attempt that was not made because the model's key is missing."""
    ended = no_key(model, "is not set")
    return TargetAnswer(failure=ended.failure, spend=Spend(), uses=(ended.use,))


def answer_of(call: AgentCall, ended: ProcessEnd, reading: TranscriptReading) -> TargetAnswer:
    """Return the answer, without artifacts."""
    spend = spend_of(call.target, call.prices, ended, reading)
    failure = _failure(call, ended, reading) if _waited_for_provider(ended, reading) else None
    failure = failure or _own_end(call, ended) or _failure(call, ended, reading)
    output = None
    if failure is None:
        try:
            output = checked(_output(reading, spend))
        except InvalidOutputError as error:
            failure = invalid(str(error))
    notes = reading.notes
    if output is not None and reading.stopped_at is not None:
        notes = (stop_note(reading.stopped_at, call.target.max_turns), *notes)
    if failure is not None:
        failure = replace(failure, message=bounded(failure.message))
    return TargetAnswer(
        output=output,
        failure=failure,
        exit_code=ended.exit_code,
        notes=notes_of(ended, *notes),
        spend=spend,
        uses=(use_of(call.target, ended, reading),),
        activity=reading.activity,
        cpu_s=ended.cpu_s,
        memory_bytes=ended.memory_bytes,
    )


# ---- failures


def _waited_for_provider(ended: ProcessEnd, reading: TranscriptReading) -> bool:
    """Whether time ran out while it waited for a provider that had refused, or failed."""
    outages = (AgentEnd.RATE_LIMITED, AgentEnd.OVERLOADED, AgentEnd.UNREACHABLE, AgentEnd.DROPPED)
    is_intact = ended.failure is None and not ended.out_of_memory
    return ended.timed_out and is_intact and reading.is_waiting and reading.end in outages


def _own_end(call: AgentCall, ended: ProcessEnd) -> Failure | None:
    """Return a failure not caused by the agent, which takes precedence over its output."""
    if ended.failure is not None or ended.out_of_memory:
        # Out of memory, its answer may be missing or incomplete.
        return unexpected_end(ended, "", limits=call.target.limits)
    if ended.timed_out:
        assert call.target.timeout is not None
        message = f"not done after {seconds(call.target.timeout)}; stopped"
        return Failure(kind=Outcome.TIMEOUT, message=message)
    if ended.log_error:
        message = f"its output could not be saved: {ended.log_error}"
        return Failure(kind=Outcome.INFRA_ERROR, message=message)
    return None


def _failure(call: AgentCall, ended: ProcessEnd, reading: TranscriptReading) -> Failure | None:
    end = reading.end
    if end is None:
        return None
    who = _who(call)
    detail = f": {reading.message}" if reading.message else ""
    match end:
        case AgentEnd.RATE_LIMITED:
            return Failure(
                kind=Outcome.RATE_LIMITED,
                message=f"{who}: refused by a rate limit{detail}",
                retry_after=reading.retry_after,
                account=call.account,
            )
        case AgentEnd.NO_LOGIN | AgentEnd.REFUSED_KEY | AgentEnd.NO_CREDIT:
            message = f"{who}: {end.value}{detail}; {_advice(call, end)}, then resume"
            return _stops(call, message, account_need(call.target.account))
        case AgentEnd.NO_SUCH_MODEL:
            return _no_such_model(call, f"{who}: {end.value}{detail}")
        case AgentEnd.OVERLOADED | AgentEnd.UNREACHABLE | AgentEnd.DROPPED:
            message = f"{who}: {end.value}{detail}"
            return Failure(kind=Outcome.INFRA_ERROR, message=message, account=call.account)
        case AgentEnd.BAD_REQUEST:
            message = f"{who}: {end.value}{detail}"
            return Failure(kind=Outcome.CRASHED, message=message, lasting=True)
        case AgentEnd.UNREADABLE:
            return invalid(f"{who}: {end.value}{detail}")
        case AgentEnd.NO_SERVER:
            return Failure(kind=Outcome.CRASHED, message=f"{who}: {end.value}{detail}")
        case AgentEnd.NO_RESULT | AgentEnd.BROKEN:
            return Failure(kind=Outcome.CRASHED, message=f"{who}: {_how(ended, end)}{detail}")


def _how(ended: ProcessEnd, end: AgentEnd) -> str:
    if ended.signal is not None or ended.exit_code:
        return unexpected_end(ended, "").message
    cut = ", which was truncated" if ended.stdout_cut else ""
    if end is AgentEnd.NO_RESULT:
        return f"exit code 0, but no result in its output{cut}"
    return f"{end.value}, with exit code 0"


def _who(call: AgentCall) -> str:
    model = call.target.model
    return call.target.agent if model is None else f"{call.target.agent} on model '{model.name}'"


def _stops(call: AgentCall, message: str, need: str) -> Failure:
    return Failure(
        kind=Outcome.INFRA_ERROR, message=message, account=call.account, lasting=True, stops=need
    )


def _no_such_model(call: AgentCall, message: str) -> Failure:
    model = call.target.model
    if model is not None:
        return _stops(call, f"{message}; check 'model' in the registry", model_need(model.name))
    return Failure(kind=Outcome.CRASHED, message=f"{message}; check target.model", lasting=True)


def _advice(call: AgentCall, end: AgentEnd) -> str:
    """Return what the user can do about a key or a login."""
    model, login = call.target.model, call.program.login
    if end is AgentEnd.NO_CREDIT:
        return "top up the account"
    if model is not None:
        variable = model.api_key_env
        return f"set a valid key in {variable}" if variable else "name a key in api_key_env"
    variables = " or ".join(login.key_variables[:3])
    log_in = f"log in ({login.command})" if login.command else "log in"
    if call.target.home is Home.MINE:
        return log_in + (f", or set {variables}" if variables else "")
    if call.has_key:
        return f"set a valid key in {variables}"
    with_login = f"{log_in} and set `home: mine` in the target"
    return f"set {variables}, or {with_login}" if variables else with_login


# ---- outputs


def _output(reading: TranscriptReading, spend: Spend) -> Output:
    activity = reading.activity
    known: dict[str, Any] = {
        "turns": activity.turns,
        "session": activity.session,
        "stopped_at": reading.stopped_at,
        "refused": reading.refused or None,
    }
    return Output(
        text=reading.answer or "",
        usage=spend.usage,
        cost_usd=spend.cost_usd,
        metadata={name: value for name, value in known.items() if value is not None},
    )
