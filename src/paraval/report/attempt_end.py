"""How one attempt ended, in lines: for attempts that left no streams behind, such as at models,
and for those whose streams don't say it to a person, such as agents'.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paraval.records import AttemptResult, Outcome, Spend
from paraval.report.attempt_deeds import deeds_in_lines
from paraval.report.costs import NO_PRICE, is_known, told_usd
from paraval.report.deeds_as_dict import attempt_deeds
from paraval.report.wording import money, reason, tokens


def end_in_lines(result: AttemptResult | None, *, goes_on: bool) -> Iterator[str]:
    """The outcome and why, notes, what it cost, and the answer, whole, at the end."""
    if result is None:
        yield "has not ended yet" if goes_on else "never ended: its engine was stopped"
        return
    why = reason(result)
    is_told = result.outcome is not Outcome.PASSED and why not in ("", result.outcome)
    yield f"{result.outcome}: {why}" if is_told else str(result.outcome)
    yield from (f"note: {note}" for note in result.notes if note not in why)
    for name, spend in (("cost", result.spend), ("judges", result.judging)):
        if words := _in_words(spend):
            yield f"{name}: {words}"
    yield from deeds_in_lines(result.activity, result.change)
    if result.output is not None:
        yield "answer:"
        yield result.output.text


def end_as_dict(result: AttemptResult | None) -> dict[str, Any]:
    """The same for programs; `cost_usd` is what is known, judges apart."""
    spend, judging = (None, None) if result is None else (result.spend, result.judging)
    output = None if result is None else result.output
    did = attempt_deeds(result or AttemptResult(outcome=Outcome.SKIPPED))
    return {
        "output": None if output is None else output.text,
        "cost_usd": told_usd(spend),
        "cost_unknown": spend is not None and not is_known(spend),
        "judging_cost_usd": told_usd(judging),
        "judging_cost_unknown": judging is not None and not is_known(judging),
        **did,
    }


def _in_words(spend: Spend | None) -> str:
    """`$0.012 (tokens: 35 in and 7 out)`; empty where nothing was asked for."""
    if spend is None or (not spend.calls and not spend.cached and spend.cost_usd == 0):
        return ""
    if spend.cached and not spend.calls:
        return "nothing, the answer was there already"
    known = told_usd(spend)
    if known is None:
        words = NO_PRICE
    else:
        words = money(known) if is_known(spend) else f"at least {money(known)}"
    used = tokens(spend.usage)
    return f"{words} (tokens: {used})" if used else words
