"""The sentences a report closes with: time saved, what the errors hide, cost, the gate."""

from __future__ import annotations

from collections.abc import Iterator

from paraval.report.contents import Contents
from paraval.report.summary import Summary
from paraval.report.wording import counted, duration, money, percent


def closing_sentences(contents: Contents) -> list[str]:
    summary = contents.summary
    return [
        _time(summary),
        *_missing(summary, going_on=contents.run.running),
        *_cost(summary),
        contents.gate.sentence,
    ]


def _time(summary: Summary) -> str:
    done = f"{counted(summary.ended, 'trial')} in {duration(summary.wall_s)}"
    if summary.ended < 2 or not summary.speedup:
        return f"{done}."
    times = f" ({summary.speedup:.1f} times as long)" if summary.speedup >= 1.05 else ""
    serial = duration(summary.serial_s)
    return f"{done}; one after the other they would have taken {serial}{times}."


def _missing(summary: Summary, *, going_on: bool) -> Iterator[str]:
    if summary.errors:
        yield _errors(summary)
    if summary.skipped and not going_on:
        were = "was skipped and counts" if summary.skipped == 1 else "were skipped and count"
        yield f"{counted(summary.skipped, 'trial')} {were} in no rate."
    unended = summary.planned - summary.trials
    if unended:
        has = "has" if unended == 1 else "have"
        yield f"{counted(unended, 'trial')} {has} no result."


def _errors(summary: Summary) -> str:
    errors = counted(summary.errors, "error")
    are = "is no wrong answer" if summary.errors == 1 else "are not wrong answers"
    worst, best = summary.rate_if_errors_failed, summary.rate_if_errors_passed
    if not summary.judged or worst is None or best is None:
        return f"{errors} {are}: no trial was judged, and there is no pass rate."
    them = "it the rate" if summary.errors == 1 else "them it"
    return (
        f"{errors} {are}: the pass rate is over the {summary.judged:,} judged;"
        f" with {them} lies between {percent(worst)} and {percent(best)}."
    )


def _cost(summary: Summary) -> Iterator[str]:
    if summary.cost_usd is None:
        return
    if summary.trials_without_cost:
        told = summary.ended - summary.trials_without_cost
        yield (
            f"Cost: {money(summary.cost_usd)} for {counted(told, 'trial')};"
            f" {summary.trials_without_cost:,} told none."
        )
    else:
        yield f"Cost: {money(summary.cost_usd)}."
