"""The sentences a report closes with: time saved, what has no verdict, what it cost, the gate.

Reasons are in words of others: whoever shows the sentences says how to show those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paraval.records import RunInfo
from paraval.report.contents import Contents
from paraval.report.summary import Summary
from paraval.report.wording import counted, duration, listed, money, percent, size, tokens

_MOST_REASONS = 5
_WHY_UNKNOWN = (
    "A cost is unknown where a model has no `price` in the registry, where a call told no tokens or"
    " never ended, or where an agent does not tell it."
)
LEAST_GAIN = 1.05
"""Below it, nothing was gained by running side by side that would be worth a word."""

Quote = Callable[[str], str]
"""Makes text of others safe to show."""


def closing_sentences(contents: Contents, quote: Quote) -> list[str]:
    """Each a line; the gate's is the last."""
    summary = contents.summary
    return [
        _time(summary),
        *_timeouts(summary),
        *_missing(summary, quote, going_on=contents.run.running),
        *_retries(summary),
        *_cut(summary),
        *_cost(summary),
        *_dropped(contents.run),
        *_tokens(summary),
        *_cached(summary),
        *_machine(summary),
        contents.gate.sentence,
    ]


def _time(summary: Summary) -> str:
    done = f"{counted(summary.ended, 'trial')} in {duration(summary.wall_s)}"
    if summary.ended < 2 or not summary.speedup or summary.speedup < LEAST_GAIN:
        return f"{done}."
    times = f"{summary.speedup:.1f} times as long"
    serial = duration(summary.serial_s)
    return f"{done}; their times add up to {serial} ({times})."


def _timeouts(summary: Summary) -> Iterator[str]:
    if summary.timeouts:
        more = " or more" if summary.timeouts > 1 else ""
        yield (
            f"Median and p95 do not count {counted(summary.timeouts, 'timeout')}, after"
            f" {duration(summary.timeout_s)}{more}: true times are longer."
        )


def _missing(summary: Summary, quote: Quote, *, going_on: bool) -> Iterator[str]:
    if summary.errors:
        yield _errors(summary)
    if summary.skipped and not going_on:
        were = "was skipped and counts" if summary.skipped == 1 else "were skipped and count"
        yield f"{counted(summary.skipped, 'trial')} {were} in no rate."
        yield from _reasons(summary, quote)
    unended = summary.planned - summary.trials
    if unended:
        has = "has" if unended == 1 else "have"
        yield f"{counted(unended, 'trial')} {has} no result."


def _reasons(summary: Summary, quote: Quote) -> Iterator[str]:
    reasons = list(summary.skipped_by_reason.items())
    for why, number in reasons[:_MOST_REASONS]:
        yield f"{number:,} skipped: {quote(why)}"
    if left := sum(number for _, number in reasons[_MOST_REASONS:]):
        yield f"{left:,} skipped for other reasons"


def _errors(summary: Summary) -> str:
    errors = counted(summary.errors, "error")
    are = "is no wrong answer" if summary.errors == 1 else "are not wrong answers"
    worst, best = summary.rate_if_errors_failed, summary.rate_if_errors_passed
    if not summary.judged or worst is None or best is None:
        return f"{errors} {are}: no trial was judged, and there is no pass rate."
    # Who divides the counts would come to another rate where errors took repeats of some cases.
    judged = f"{summary.judged:,} judged{', by case' if summary.is_by_case else ''}"
    them = "it the rate" if summary.errors == 1 else "them it"
    return (
        f"{errors} {are}: the pass rate is over the {judged};"
        f" with {them} lies between {percent(worst)} and {percent(best)}."
    )


def _retries(summary: Summary) -> Iterator[str]:
    if summary.retries_by_kind:
        kinds = listed(f"{number:,} {kind}" for kind, number in summary.retries_by_kind.items())
        yield f"Attempts that decided nothing: {kinds}."


def _cut(summary: Summary) -> Iterator[str]:
    if summary.answers_cut:
        were = "was" if summary.answers_cut == 1 else "were"
        yield f"{counted(summary.answers_cut, 'answer')} {were} cut at max_tokens."


def _cost(summary: Summary) -> Iterator[str]:
    target, judging = summary.target, summary.judging
    if target.is_told:
        yield f"Cost: {_told(summary)}."
    if judging.is_told:
        yield f"Judges: {judging.in_words()}{_in_all(summary)}."
    if target.is_partly_unknown or judging.is_partly_unknown:
        yield _WHY_UNKNOWN


def _dropped(run: RunInfo) -> Iterator[str]:
    """What a budget counts, and no trial of the report does."""
    trials = "trials that changed or left the suite since"
    if run.dropped_usd:
        another = "At least another" if run.dropped_unknown else "Another"
        yield f"{another} {money(run.dropped_usd)} was spent on {trials}."
    elif run.dropped_unknown:
        yield f"What was spent on {trials} is unknown."


def _told(summary: Summary) -> str:
    target = summary.target
    untold = summary.trials_without_cost - target.unpriced
    if untold <= 0 or target.usd is None:
        return target.in_words()
    if target.is_partly_unknown:
        return f"{target.in_words()}; {untold:,} told none"
    told = counted(summary.ended - untold, "trial")
    return f"{target.in_words()} for {told}; {untold:,} told none"


def _in_all(summary: Summary) -> str:
    if not summary.target.is_told or summary.total_cost_usd is None:
        return ""
    unknown = summary.target.is_partly_unknown or summary.judging.is_partly_unknown
    return f"; in all {'at least ' if unknown else ''}{money(summary.total_cost_usd)}"


def _tokens(summary: Summary) -> Iterator[str]:
    told = filter(None, (tokens(summary.target.usage), _judges_tokens(summary)))
    if words := "; ".join(told):
        yield f"Tokens: {words}."


def _judges_tokens(summary: Summary) -> str:
    words = tokens(summary.judging.usage)
    return f"judges: {words}" if words else ""


def _cached(summary: Summary) -> Iterator[str]:
    target, judging = summary.target, summary.judging
    found = []
    if target.cached:
        found.append(f"{target.cached:,} of {counted(target.answers, 'answer')}")
    if judging.cached:
        answers = counted(judging.answers, "judge's answer", "judges' answers")
        found.append(f"{judging.cached:,} of {answers}")
    if found:
        # Where a run asks anew, too: an answer to an equal request of the same run is taken.
        yield f"{listed(found)} needed no new call, free."


def _machine(summary: Summary) -> Iterator[str]:
    """Of agents alone: how many fit into a machine is what one asks next."""
    deeds = summary.deeds
    if deeds.agents and deeds.most_memory_bytes:
        cpu = "" if deeds.cpu_s is None else f"; CPU time in all: {duration(deeds.cpu_s)}"
        yield f"Memory: {size(deeds.most_memory_bytes)} at most in one attempt{cpu}."
