"""The sentences a report closes with, the sections on tools and changes, and the trials to look at
first.

Reasons are in words of others: whoever shows the sentences says how to show those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from paraval.records import Outcome, RunInfo, TrialResult
from paraval.report.contents import Contents
from paraval.report.summary.columns import label_of
from paraval.report.summary.summary import Summary, VariantSummary
from paraval.report.summary.tool_activity import ChangeTotals, ServerUse, ToolActivity
from paraval.text.words import counted, duration, listed, money, percent, size, tokens

# The trials a reader looks at first: wrong answers, and apart from them errors; the first of
# each.


def first_unpassed(contents: Contents, most: int) -> tuple[list[TrialResult], list[TrialResult]]:
    """The first wrong answers and the first errors, in plan order: at most `most` in all. Each kind
    has half of them, and what the other leaves."""
    summary = contents.summary
    wrong_room = min(summary.failed, max(most // 2, most - summary.errors))
    error_room = min(summary.errors, max(most // 2, most - summary.failed))
    wrong: list[TrialResult] = []
    errors: list[TrialResult] = []
    if wrong_room or error_room:
        for result in contents.trials:
            if result.outcome is Outcome.FAILED and len(wrong) < wrong_room:
                wrong.append(result)
            elif result.outcome.is_error and len(errors) < error_room:
                errors.append(result)
            if len(wrong) == wrong_room and len(errors) == error_room:
                break
    return wrong, errors


def wrong_heading(summary: Summary) -> str:
    return counted(summary.failed, "wrong answer")


def errors_heading(summary: Summary) -> str:
    """`3 errors, not wrong answers: 2 timeout and 1 crashed`."""
    kinds = listed(f"{number:,} {kind}" for kind, number in summary.errors_by_kind.items())
    answers = "no wrong answer" if summary.errors == 1 else "not wrong answers"
    return f"{counted(summary.errors, 'error')}, {answers}: {kinds}"


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


# What trials did, in words: the sections `Tools` and `ChangeTotals`, and what a reader must not
# miss.

_MOST_TAMPERING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, a line a variant, and alarms: what makes a comparison void, or a trial suspect."""

    heading: str
    lines: tuple[tuple[str, str], ...]
    """The variant's label, not quoted yet, and what it did."""
    alarms: tuple[str, ...]


def deed_sections(summary: Summary, quote: Quote) -> Iterator[Section]:
    """Those that say something about this run; none where no agent ran and nothing was changed."""
    agents = [one for one in summary.variants if one.deeds.agents]
    if agents:
        servers = summary.deeds.handed
        yield Section(
            heading="Tools",
            lines=tuple((label_of(one), _did(one.deeds, servers, quote)) for one in agents),
            alarms=tuple(alarm for one in agents for alarm in tool_alarms(one, summary, quote)),
        )
    changed = [(one, changes) for one in summary.variants if (changes := one.deeds.changes)]
    if changed:
        yield Section(
            heading="Changes",
            lines=tuple((label_of(one), _changed(changes)) for one, changes in changed),
            alarms=tuple(
                f"{quote(label_of(one))}: {_tampered(changes, quote)}"
                for one, changes in changed
                if changes.tampered
            ),
        )


def tool_alarms(one: VariantSummary, summary: Summary, quote: Quote) -> Iterator[str]:
    """Why a comparison by tools that this variant is part of may be void."""
    label, deeds = quote(label_of(one)), one.deeds
    for name, use in deeds.handed.items():
        server = quote(name)
        if use.is_never_called and use.errors:
            yield (
                f"{label} got nothing but errors from {server} ({counted(use.errors, 'call')}): "
                "a comparison with it says nothing about the tool"
            )
        elif use.is_never_called:
            yield (
                f"{label} never called {server}: a comparison with it says nothing about the tool"
            )
        if use.failed:
            trials = f"{use.failed:,} of {counted(use.handed, 'trial')}"
            yield f"{label} could not connect {server} in {trials}"
    for name, use in deeds.servers.items():
        if not use.handed and name in summary.deeds.handed and use.called:
            yield (
                f"{label} called {quote(name)} in {counted(use.called, 'trial')}, though it was "
                "not handed over: it is no comparison without the tool"
            )


def _did(deeds: ToolActivity, servers: dict[str, ServerUse], quote: Quote) -> str:
    parts = [f"{quote(name)}: {_used(use)}" for name, use in deeds.handed.items()]
    if servers and not parts:
        parts.append("no MCP server")
    return "; ".join([*parts, *_turns_and_calls(deeds, is_other=bool(deeds.handed))])


def _used(use: ServerUse) -> str:
    """`called in 28 of 30 trials (74 calls), connected in 30`."""
    if use.telling:
        called = f"called in {use.called:,} of {counted(use.telling, 'trial')}"
        errors = f", {use.errors:,} more with an error" if use.errors else ""
        calls = f" ({counted(use.calls, 'call')}{errors})" if use.calls or errors else ""
        words = called + calls
    else:
        words = "tool calls not reported"
    # Some agents tell a connection only by what was called over it: that is nothing new.
    is_told = use.connected + use.failed == use.handed
    return f"{words}, connected in {use.connected:,}" if is_told else words


def _turns_and_calls(deeds: ToolActivity, *, is_other: bool) -> Iterator[str]:
    told = []
    if deeds.median_turns is not None:
        told.append(_amount(deeds.median_turns, "turn"))
    if deeds.telling:
        what = "call of other tools" if is_other else "call of tools"
        many = "calls of other tools" if is_other else "calls of tools"
        told.append(f"{counted(deeds.other_calls, what, many)} in all")
    elif not is_other:
        told.append("tool calls not reported")
    if told:
        yield ("median " if deeds.median_turns is not None else "") + ", ".join(told)


def _changed(changes: ChangeTotals) -> str:
    """`28 of 30 trials changed files; median 2 files, 14 lines added, 3 deleted`."""
    trials = counted(changes.trials, "trial")
    unknown = f"unknown in {changes.unknown:,} of {trials}"
    known = (changes.median_files, changes.median_lines_added, changes.median_lines_deleted)
    if None in known:
        at_least = f"; at least {changes.changed:,} changed files" if changes.changed else ""
        return unknown + at_least
    told = [f"{changes.changed:,} of {trials} changed files"]
    if changes.changed:
        files, added, deleted = (number or 0 for number in known)
        lines = f"{_amount(added, 'line')} added, {deleted:,.6g} deleted"
        told.append(f"median {_amount(files, 'file')}, {lines}")
    return "; ".join([*told, unknown] if changes.unknown else told)


def _amount(median: float, noun: str) -> str:
    """`1 line`, `2.5 lines`."""
    return f"{median:,.6g} {noun if median == 1 else noun + 's'}"


def _tampered(changes: ChangeTotals, quote: Quote) -> str:
    what = list(changes.tampering.items())
    told = [f"{quote(words)} ({number:,})" for words, number in what[:_MOST_TAMPERING]]
    if left := len(what) - _MOST_TAMPERING:
        told += [f"{left:,} more"] if left > 0 else []
    trials = counted(changes.tampered, "trial")
    return f"{trials} tampered with .git: {listed(told)}"
