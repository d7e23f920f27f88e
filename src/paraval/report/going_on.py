"""How to go on with a run that left trials for later on purpose."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator

from paraval.report.contents import Contents
from paraval.report.summary import Summary, Tally

BUDGET = "budget"
"""How the reason of a trial begins that the budget left for later."""

_SPARE = 1.5
"""Expectations are off by a little, and a budget that is spent again near the end helps no one."""
_AMOUNT = re.compile(r"\$(\d[\d,]*(?:\.\d+)?)")


def ways_to_go_on(contents: Contents, resume: str) -> Iterator[str]:
    """What to do, by why trials were skipped; `resume` is the command that goes on."""
    summary = contents.summary
    by_budget = [why for why in summary.skipped_by_reason if why.startswith(BUDGET)]
    skipped = sum(summary.skipped_by_reason[why] for why in by_budget)
    others = summary.skipped - skipped
    if others:
        wait = "trial waits" if others == 1 else "trials wait"
        yield f"{others:,} {wait} for what is told above. Mend it, then go on with: {resume}"
    if by_budget:
        yield "The next trial would pass the budget. " + _with_more(contents, by_budget, resume)


def _with_more(contents: Contents, by_budget: list[str], resume: str) -> str:
    budget = enough_for_all(contents, above=max(map(_largest_amount, by_budget)))
    if budget is not None:
        return f"Go on with: {resume} --budget {budget:g}"
    plan = f"paraval plan {shlex.quote(contents.run.source or 'SUITE')}"
    return f"{plan} tells what trials may cost. Go on with: {resume} --budget USD"


def enough_for_all(contents: Contents, *, above: float) -> float | None:
    """A budget that every trial fits in, at what they cost so far; None where nothing is known.

    Also well above the last one: what stops a run is what trials may cost, which can be far more
    than what they cost so far.
    """
    expected = _expected(contents.summary)
    if expected <= 0:
        return None
    return _rounded_up(max(expected * _SPARE + contents.run.dropped_usd, above * 2))


def _expected(summary: Summary) -> float:
    """What all trials cost, each variant by its own trials, and one without any by the dearest."""
    means = [_mean(one) for one in summary.variants]
    dearest = max((mean for mean in means if mean is not None), default=0.0)
    return sum(
        one.trials * (dearest if mean is None else mean)
        for one, mean in zip(summary.variants, means, strict=True)
    )


def _mean(tally: Tally) -> float | None:
    """Of trials whose cost is known, and without those from the cache: those to come are not."""
    paid = tally.ended - tally.trials_without_cost - tally.from_cache
    return None if paid <= 0 else (tally.total_cost_usd or 0.0) / paid


def _largest_amount(reason: str) -> float:
    """The budget, which a run does not keep but the reason names: more than what was spent."""
    return max((float(told.replace(",", "")) for told in _AMOUNT.findall(reason)), default=0.0)


def _rounded_up(usd: float) -> float:
    """To two digits that count: 4.83 becomes 4.9, 0.0123 becomes 0.013."""
    step = 10.0 ** (math.floor(math.log10(usd)) - 1)
    return round(math.ceil(usd / step - 1e-9) * step, 12)
