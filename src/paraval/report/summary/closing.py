"""The closing lines of a report, its sections on tools and changes, and the failures and errors to
look at first.

Reasons are untrusted text: callers pass a `quote` function that makes them safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import field

from paraval.dataclass import dataclass
from paraval.records import CANCELED, Outcome, RunInfo, TrialResult
from paraval.report.compare.best_variant import best_variant_sentence
from paraval.report.compare.case_results import variant_key
from paraval.report.contents import Contents
from paraval.report.judge_agreement import agreement_sentence
from paraval.report.pairwise import pairwise_sentences
from paraval.report.reasons import reason
from paraval.report.summary.columns import label_of, rates_with_errors
from paraval.report.summary.costs import NO_PRICE
from paraval.report.summary.summary import Summary, VariantSummary
from paraval.report.summary.tool_activity import ChangeTotals, ServerUse, ToolActivity
from paraval.text.words import counted, duration, listed, money, size, some, tokens

# Failures and errors, grouped: the repeats of a case with a variant that ended for one reason.


@dataclass(slots=True, kw_only=True)
class UnpassedGroup:
    """Repeats of one case with one variant that failed, or ended in an error, for one reason."""

    first: TrialResult
    reason: str
    repeats: int
    """All repeats of that case with that variant that ran ..."""
    number: int = 1
    """... and how many of them are in the group."""


@dataclass(slots=True, kw_only=True)
class _Groups:
    most: int
    left: int
    """Trials of this kind not seen yet."""
    groups: dict[tuple[str, str, Outcome, str], UnpassedGroup] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return not self.left or len(self.groups) == self.most


def first_unpassed(
    contents: Contents, most_failed: int, most_errors: int
) -> tuple[list[UnpassedGroup], list[UnpassedGroup]]:
    """The first groups of failures and of errors, in plan order."""
    summary = contents.summary
    failed = _Groups(most=most_failed, left=summary.failed)
    errors = _Groups(most=most_errors, left=summary.errors)
    cells: set[tuple[str, str]] = set()
    """Cases with variants that have a group ..."""
    outstanding = 0
    """... and how many of their unpassed repeats are still to come."""
    for result in contents.trials:
        if failed.is_full and errors.is_full and not outstanding:
            break
        if result.outcome in (Outcome.PASSED, Outcome.SKIPPED):
            continue
        kind = errors if result.outcome.is_error else failed
        kind.left -= 1
        cell_key = result.case_id, variant_key(result.variant)
        outstanding -= cell_key in cells
        key = (*cell_key, result.outcome, reason(result.result))
        if (group := kind.groups.get(key)) is not None:
            group.number += 1
        elif len(kind.groups) < kind.most:
            cell = contents.book.cells_of(result.case_id)[cell_key[1]]
            if cell_key not in cells:
                cells.add(cell_key)
                outstanding += cell.failed + cell.errors - 1
            repeats = cell.judged + cell.errors
            kind.groups[key] = UnpassedGroup(first=result, reason=key[-1], repeats=repeats)
    return list(failed.groups.values()), list(errors.groups.values())


def wrong_heading(summary: Summary) -> str:
    return f"{summary.failed:,} failed"


def errors_heading(summary: Summary) -> str:
    """`3 errors (left out of the pass rate): 2 timeouts, 1 crashed`."""
    kinds = (
        counted(number, _spoken(kind), _spoken(kind) + "s" * (Outcome(kind) in _NOUNS))
        for kind, number in summary.errors_by_kind.items()
    )
    return f"{counted(summary.errors, 'error')} (left out of the pass rate): {', '.join(kinds)}"


def unpassed_counts(summary: Summary) -> str:
    """`10 failed, 2 errors`; empty if every trial passed."""
    parts = [wrong_heading(summary)] if summary.failed else []
    return ", ".join([*parts, *([counted(summary.errors, "error")] if summary.errors else [])])


_NOUNS = (Outcome.TIMEOUT, Outcome.INVALID_OUTPUT, Outcome.GRADER_ERROR, Outcome.INFRA_ERROR)


def _spoken(kind: str) -> str:
    return kind.replace("_", " ")


_COUNTED = {
    kind.value: (kind.value.replace("_", " "), kind.value.replace("_", " ") + "s")
    for kind in _NOUNS
} | {Outcome.CRASHED.value: ("crash", "crashes")}
_MOST_REASONS = 5
_MOST_NODES = 12
_WHY_UNKNOWN = (
    "A cost is unknown if the model has no `price` in the registry, if a call reported no tokens or"
    " never ended, or if an agent does not report it"
)
_RETRIED = {
    Outcome.RATE_LIMITED: ("rate limit", "rate limits"),
    Outcome.INFRA_ERROR: ("server error", "server errors"),
    Outcome.TIMEOUT: ("timeout", "timeouts"),
}
LEAST_GAIN = 1.05
"""A smaller speedup is not worth mentioning."""

Quote = Callable[[str], str]
"""Makes untrusted text safe to show."""


def closing_sentences(
    contents: Contents, quote: Quote, *, in_full: bool = True, resume: str = ""
) -> list[str]:
    """The closing lines, before the gate's.

    `in_full`: also what errors hide, retries, tokens and notes on unknown costs. `resume`: the
    command that resumes the run, if it is not `paraval resume ID`.
    """
    summary = contents.summary
    return [
        _time(summary),
        *_nodes(summary, quote),
        *(_timeouts(summary) if in_full else ()),
        *_errors_failed(summary),
        *_hung(summary),
        *_missing(contents, quote, in_full=in_full, resume=resume),
        *(_retries(summary) if in_full else ()),
        *_rerun(summary),
        *held_back(contents.run, quote),
        *_cut(summary),
        *_skipped_graders(summary, quote),
        *_one_way_graders(summary, quote),
        *_cost(summary, in_full=in_full),
        *_dropped(contents.run),
        *(_tokens(summary) if in_full else ()),
        *_cached(summary),
        *_machine(summary),
        *_best(contents, quote),
        *_judges(contents, quote),
    ]


def _best(contents: Contents, quote: Quote) -> Iterator[str]:
    best = contents.best_variant
    if best is not None and (sentence := best_variant_sentence(best, quote)):
        yield sentence


def _judges(contents: Contents, quote: Quote) -> Iterator[str]:
    """What judges prefer, and how far graders agree with people's labels."""
    for report in contents.pairwise:
        several = len(contents.pairwise) > 1
        yield from pairwise_sentences(report, quote, is_one_of_several=several)
    yield from (agreement_sentence(one, quote(one.grader)) for one in contents.judges)
    if contents.labels_problem:
        yield f"Labels are left out: {quote(contents.labels_problem)}"


def _time(summary: Summary) -> str:
    done = f"{counted(summary.ended, 'trial')} in {duration(summary.wall_s)}"
    if summary.ended < 2 or not summary.speedup or summary.speedup < LEAST_GAIN:
        return done
    return f"{done} ({duration(summary.serial_s)} of work, {summary.speedup:.1f}× parallel)"


def _nodes(summary: Summary, quote: Quote) -> Iterator[str]:
    """`Ran on 3 nodes: a 340, b 330, c 330 trials`."""
    if not summary.nodes:
        return
    trials = [f"{quote(name)} {number:,}" for name, number in summary.nodes.items()]
    here = summary.ended - sum(summary.nodes.values())
    others = f"; {here:,} on the machine of the run" if here > 0 else ""
    of = "trial" if sum(summary.nodes.values()) == 1 else "trials"
    yield f"Ran on {counted(len(trials), 'node')}: {some(trials, _MOST_NODES)} {of}{others}"


def _timeouts(summary: Summary) -> Iterator[str]:
    if summary.timeouts:
        more = " or more" if summary.timeouts > 1 else ""
        yield (
            f"Median and p95 exclude {counted(summary.timeouts, 'timeout')} (after"
            f" {duration(summary.timeout_s)}{more}): true times are longer"
        )


def _errors_failed(summary: Summary) -> Iterator[str]:
    """`8 timeouts and 4 crashes count as failures`."""
    if kinds := summary.errors_failed:
        words = listed(counted(number, *_COUNTED[kind]) for kind, number in kinds.items())
        one = sum(kinds.values()) == 1
        yield f"{words} {'counts as a failure' if one else 'count as failures'}"


def _hung(summary: Summary) -> Iterator[str]:
    """`4 of 12 attempts hung or crashed; to count them as failures: errors: {...}`"""
    if summary.hung:
        yield (
            f"{summary.hung:,} of {counted(summary.judged + summary.errors, 'attempt')} hung or"
            " crashed; to count them as failures: errors: {timeout: fail, crashed: fail}"
        )


def _missing(contents: Contents, quote: Quote, *, in_full: bool, resume: str) -> Iterator[str]:
    summary, run = contents.summary, contents.run
    if summary.errors:
        yield from _errors(summary, quote, in_full=in_full)
    is_interrupted = run.interrupted or (run.ended_at is None and not run.running)
    unended = summary.planned - summary.trials
    if is_interrupted:
        for_good = summary.left_out + summary.skipped_by_reason.get(CANCELED, 0)
        yield _interrupted(run, summary.skipped - for_good + unended, resume)
    elif unended:
        yield f"{counted(unended, 'trial')} without a result"
    if summary.skipped and not run.running and (in_full or not is_interrupted):
        yield from _reasons(summary, quote)
        if in_full:
            yield "The pass rate excludes skipped trials"


def _interrupted(run: RunInfo, pending: int, resume: str) -> str:
    words = f"Interrupted: {counted(pending, 'trial')} pending"
    if run.source is None:
        # Started from Python, or by pytest: no command resumes it.
        return words
    return f"{words}. Resume with: {resume or f'paraval resume {run.id}'}"


def _reasons(summary: Summary, quote: Quote) -> Iterator[str]:
    reasons = list(summary.skipped_by_reason.items())
    for why, number in reasons[:_MOST_REASONS]:
        yield f"{number:,} skipped: {quote(why)}"
    if left := sum(number for _, number in reasons[_MOST_REASONS:]):
        yield f"{left:,} skipped for other reasons"


def _errors(summary: Summary, quote: Quote, *, in_full: bool) -> Iterator[str]:
    """What errors hide: the rates if all had failed, and if all had passed. Of variants only
    `in_full`: their comparisons say whether errors could change them."""
    errors = counted(summary.errors, "error")
    if not summary.judged:
        yield f"No pass rate: no trial was judged ({errors})"
    elif len(summary.variants) == 1:
        rates = rates_with_errors(summary)
        yield f"With {errors} as failures or as passes, the pass rate is {rates}"
    elif in_full:
        named = [
            f"{quote(label_of(one))} {rates_with_errors(one)}"
            for one in summary.variants
            if one.errors
        ]
        yield f"With errors as failures or as passes, pass rates are: {some(named, _MOST_NODES)}"


def held_back(run: RunInfo, quote: Quote = str) -> Iterator[str]:
    """`Held back: model mid: 12 requests/s found (429), for 18 s`."""
    waits = [one for one in run.notices if one.waited_s is not None]
    for wait in waits[:_MOST_REASONS]:
        yield f"Held back: {quote(wait.message)}, for {duration(wait.waited_s)}"


def _retries(summary: Summary) -> Iterator[str]:
    numbers, lost = dict(summary.retries_by_kind), summary.retries_lost
    if lost:
        numbers[Outcome.INFRA_ERROR.value] = numbers.get(Outcome.INFRA_ERROR.value, lost) - lost
    kinds = [
        counted(number, *_RETRIED.get(Outcome(kind), (_spoken(kind), _spoken(kind))))
        for kind, number in numbers.items()
        if number > 0 and kind != Outcome.FAILED
    ]
    if lost:
        kinds.append(f"{lost:,} lost with a node")
    if kinds:
        yield f"Retried: {', '.join(kinds)}"


def _rerun(summary: Summary) -> Iterator[str]:
    """What was chosen to run again by its result is not a fair sample."""
    if number := summary.retries_by_kind.get(Outcome.FAILED.value):
        were = "was" if number == 1 else "were"
        failed = f"{counted(number, 'failed attempt')} {were} run again by choice"
        yield f"{failed}: second tries raise the rate, even if nothing changed"


def _cut(summary: Summary) -> Iterator[str]:
    if summary.answers_cut:
        yield f"{counted(summary.answers_cut, 'answer')} cut off at max_tokens"
    for where, number in summary.answers_cut_off.items():
        yield f"{counted(number, 'answer')} cut off {where}"
    if empty := summary.answers_empty:
        are = "is" if empty == 1 else "are"
        yield f"{empty:,} of {counted(summary.judged, 'answer')} {are} empty"


FEWEST_ALIKE = 3
"""Of fewer trials, it means nothing that a grader fails all of them alike ..."""
FEWEST_ONE_WAY = 30
"""... and of fewer than this, that it passes or fails all of them."""
FEWEST_SCORES = 10


def broken_graders(summary: Summary, quote: Quote) -> Iterator[str]:
    """`Grader tests failed all 36 trials with the same message; does it work? exit code 1: ...`"""
    for note in summary.setup_undone:
        yield (
            f"Attempts did not see all that setup did: {quote(note)}. To evaluate with these files,"
            " commit them to a branch (workspace: {git: ..., ref: BRANCH})"
        )
    if summary.grader_error:
        yield f"No trial was graded, for the same reason: {quote(summary.grader_error)}"
    is_alike = summary.judged >= FEWEST_ALIKE and summary.cases > 1
    for name, one in summary.by_grader.items() if is_alike else ():
        if one.judged == summary.judged and not one.passed and one.only_reason:
            yield (
                f"Grader {quote(name)} failed all {one.judged:,} trials with the same message; does"
                f" it work? {quote(one.only_reason)}"
            )


def _one_way_graders(summary: Summary, quote: Quote) -> Iterator[str]:
    """Graders that tell nothing apart."""
    judges = [one for one in summary.by_grader.items() if one[1].is_judge]
    for name, one in judges:
        if one.judged >= FEWEST_SCORES and one.only_score is not None:
            yield (
                f"Judge {quote(name)} gave all {one.judged:,} answers the same score,"
                f" {one.only_score:g}"
            )
    often = [one for one in summary.by_grader.items() if one[1].judged >= FEWEST_ONE_WAY]
    for words, share in (("failed", 1.0), ("passed", 0.0)):
        if names := [quote(name) for name, one in often if one.pass_rate == share]:
            they = "Grader" if len(names) == 1 else "Graders"
            yield f"{they} that never {words} in {FEWEST_ONE_WAY} trials or more: {listed(names)}"


def _skipped_graders(summary: Summary, quote: Quote) -> Iterator[str]:
    """`Grader cost was skipped in 10 of 10 trials: the cost of the answer is unknown`."""
    skipped = [(name, one) for name, one in summary.by_grader.items() if one.skipped]
    for name, one in skipped[:_MOST_REASONS]:
        trials = f"{one.skipped:,} of {counted(one.skipped + one.judged, 'trial')}"
        yield f"Grader {quote(name)} was skipped in {trials}: {quote(one.skip_reason)}"


def _cost(summary: Summary, *, in_full: bool) -> Iterator[str]:
    """`Cost: $0.022: target $0.0041, judges $0.018`: always of both together."""
    target, judging = summary.target, summary.judging
    own, of_judges = _reported(summary, in_full=in_full), judging.in_words(in_full=in_full)
    if target.is_told and judging.is_paid:
        yield f"Cost: {total_cost(summary)} (target {own}, judges {of_judges}){_spent(summary)}"
    elif target.is_told:
        yield f"Cost: {own}{_spent(summary)}"
    elif judging.is_told:
        yield f"Cost: {of_judges}, all of it judges{_spent(summary)}"
    if in_full and (target.is_partly_unknown or judging.is_partly_unknown):
        yield _WHY_UNKNOWN


def _dropped(run: RunInfo) -> Iterator[str]:
    """Money that counts toward the budget, but is in no trial of the report."""
    trials = "trials that have since changed or left the suite"
    if run.dropped_usd:
        another = "At least another" if run.dropped_unknown else "Another"
        yield f"{another} {money(run.dropped_usd)} was spent on {trials}"
    elif run.dropped_unknown:
        yield f"Unknown: the cost of {trials}"


def _reported(summary: Summary, *, in_full: bool) -> str:
    target = summary.target
    cost = target.in_words(in_full=in_full)
    without = summary.trials_without_cost - target.unpriced
    if without <= 0 or target.usd is None:
        return cost
    if target.is_partly_unknown:
        return f"{cost}; {without:,} reported none"
    return f"{cost} for {counted(summary.ended - without, 'trial')}; {without:,} reported none"


def total_cost(summary: Summary) -> str:
    """What the answers cost, judges' included: `$0.36`, `at least $0.12`, `unknown`."""
    target, judging = summary.target, summary.judging
    if summary.total_cost_usd is None:
        return NO_PRICE
    least = "at least " * (target.is_partly_unknown or judging.is_partly_unknown)
    return f"{least}{money(summary.total_cost_usd)}"


def _spent(summary: Summary) -> str:
    """`; spent: $0.05`, if this run paid less than its answers cost."""
    both = (summary.target, summary.judging)
    spent = math.fsum(one.spent_usd for one in both)
    is_unknown = any(one.spent_unknown for one in both)
    # At least $0.00 says nothing.
    if not any(one.cached for one in both) or (is_unknown and not spent):
        return ""
    if money(spent) == money(summary.total_cost_usd or 0.0) and summary.total_cost_usd is not None:
        return ""
    return f"; spent: {'at least ' * is_unknown}{money(spent)}"


def _tokens(summary: Summary) -> Iterator[str]:
    parts = filter(None, (tokens(summary.target.usage), _judges_tokens(summary)))
    if words := "; ".join(parts):
        yield f"Tokens: {words}"


def _judges_tokens(summary: Summary) -> str:
    words = tokens(summary.judging.usage)
    return f"judges: {words}" if words else ""


def _cached(summary: Summary) -> Iterator[str]:
    """From the cache, or from an equal request of the same run, which is sent once."""
    target, judging = summary.target, summary.judging
    found = []
    if target.cached:
        found.append(f"{target.cached:,} of {counted(target.answers, 'answer')}")
    if judging.cached:
        found.append(f"{judging.cached:,} of {counted(judging.answers, 'judge verdict')}")
    if found:
        yield f"Reused from equal requests: {', '.join(found)}"


def _machine(summary: Summary) -> Iterator[str]:
    """For agents only: it shows how many fit on a machine."""
    deeds = summary.deeds
    if deeds.agents and deeds.most_memory_bytes:
        cpu = "" if deeds.cpu_s is None else f"; total CPU time: {duration(deeds.cpu_s)}"
        yield f"Memory: up to {size(deeds.most_memory_bytes)} per attempt{cpu}"


# What trials did: the sections `Tools` and `Changes`, and alarms that a reader must not miss.

_MOST_TAMPERING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, a line for each variant, and alarms: void comparisons and suspect trials."""

    heading: str
    lines: tuple[tuple[str, str], ...]
    """The variant's label, not yet quoted, and what it did."""
    alarms: tuple[str, ...]


def deed_sections(summary: Summary, quote: Quote) -> Iterator[Section]:
    """The sections that apply to this run; none if no agent ran and nothing was changed."""
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
                f"{quote(label_of(one))}: {words}"
                for one, changes in changed
                for words in _tampered(changes, quote)
            ),
        )


def tool_alarms(one: VariantSummary, summary: Summary, quote: Quote) -> Iterator[str]:
    """Why a comparison of tools with this variant may be void."""
    label, deeds = quote(label_of(one)), one.deeds
    for name, use in deeds.handed.items():
        server = quote(name)
        if use.is_never_called and use.errors:
            yield (
                f"{label} got nothing but errors from {server} ({counted(use.errors, 'call')}): "
                "comparisons with it say nothing about the tool"
            )
        elif use.is_never_called:
            yield (f"{label} never called {server}: comparisons with it say nothing about the tool")
        if use.failed:
            trials = f"{use.failed:,} of {counted(use.handed, 'trial')}"
            yield f"{label} could not connect to {server} in {trials}"
    for name, use in deeds.servers.items():
        if not use.handed and name in summary.deeds.handed and use.called:
            yield (
                f"{label} called {quote(name)} in {counted(use.called, 'trial')} although it was "
                "not given it: comparisons without the tool are void"
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
    # Some agents report a connection only through calls over it: that adds nothing.
    is_known = use.connected + use.failed == use.handed
    return f"{words}, connected in {use.connected:,}" if is_known else words


def _turns_and_calls(deeds: ToolActivity, *, is_other: bool) -> Iterator[str]:
    parts = []
    if deeds.median_turns is not None:
        parts.append(_amount(deeds.median_turns, "turn"))
    if deeds.telling:
        what = "other tool call" if is_other else "tool call"
        parts.append(f"{counted(deeds.other_calls, what)} in total")
    elif not is_other:
        parts.append("tool calls not reported")
    if parts:
        yield ("median " if deeds.median_turns is not None else "") + ", ".join(parts)


def _changed(changes: ChangeTotals) -> str:
    """`28 of 30 trials changed files; median 2 files, 14 lines added, 3 deleted`."""
    trials = counted(changes.trials, "trial")
    unknown = f"unknown in {changes.unknown:,} of {trials}"
    known = (changes.median_files, changes.median_lines_added, changes.median_lines_deleted)
    if None in known:
        at_least = f"; at least {changes.changed:,} changed files" if changes.changed else ""
        return unknown + at_least
    parts = [f"{changes.changed:,} of {trials} changed files"]
    if changes.changed:
        files, added, deleted = (number or 0 for number in known)
        lines = f"{_amount(added, 'line')} added, {deleted:,.6g} deleted"
        parts.append(f"median {_amount(files, 'file')}, {lines}")
    return "; ".join([*parts, unknown] if changes.unknown else parts)


def _amount(median: float, noun: str) -> str:
    """`1 line`, `2.5 lines`."""
    return f"{median:,.6g} {noun if median == 1 else noun + 's'}"


def _tampered(changes: ChangeTotals, quote: Quote) -> Iterator[str]:
    for trials, did, what in (
        (changes.tampered, "tampered with .git", list(changes.tampering.items())),
        (changes.flagged, "touched files of the grading", list(changes.flags.items())),
    ):
        parts = [f"{quote(words)} ({number:,})" for words, number in what[:_MOST_TAMPERING]]
        if (left := len(what) - _MOST_TAMPERING) > 0:
            parts.append(f"{left:,} more")
        if trials:
            yield f"{counted(trials, 'trial')} {did}: {listed(parts)}"
