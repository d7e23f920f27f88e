"""What is said of a run beside its table: the closing lines, what agents did and changed, and the
failures and errors to look at first.

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
from paraval.report.summary.figures import label_of, rates_with_errors
from paraval.report.summary.tally import (
    NO_PRICE,
    ChangeTotals,
    ServerUse,
    Summary,
    VariantSummary,
)
from paraval.text.words import counted, duration, listed, money, size, some, tokens

Quote = Callable[[str], str]
"""Makes untrusted text safe to show."""
LEAST_GAIN = 1.05
"""A smaller speedup is not worth mentioning."""
_MOST_REASONS = 5
_MOST_NODES = 12

# ---- failures and errors, grouped: the repeats of a case with a variant that ended for one reason


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


_WORDS = {
    Outcome.TIMEOUT: ("timeout", "timeouts"),
    Outcome.RATE_LIMITED: ("rate limited", "rate limited"),
    Outcome.CRASHED: ("crashed", "crashed"),
    Outcome.INVALID_OUTPUT: ("invalid output", "invalid outputs"),
    Outcome.GRADER_ERROR: ("grader error", "grader errors"),
    Outcome.INFRA_ERROR: ("infra error", "infra errors"),
}
"""How trials ended."""
_FAILED_BY = {Outcome.CRASHED: ("crash", "crashes")}
_RETRIED = {
    Outcome.RATE_LIMITED: ("rate limit", "rate limits"),
    Outcome.INFRA_ERROR: ("server error", "server errors"),
}
"""The same as nouns, where these are others."""


def wrong_heading(summary: Summary) -> str:
    return f"{summary.failed:,} failed"


def errors_heading(summary: Summary) -> str:
    """`3 errors (left out of the pass rate): 2 timeouts, 1 crashed`."""
    kinds = (counted(n, *_WORDS[Outcome(kind)]) for kind, n in summary.errors_by_kind.items())
    return f"{counted(summary.errors, 'error')} (left out of the pass rate): {', '.join(kinds)}"


def unpassed_counts(summary: Summary) -> str:
    """`10 failed, 2 errors`; empty if every trial passed."""
    parts = [wrong_heading(summary)] if summary.failed else []
    return ", ".join([*parts, *([counted(summary.errors, "error")] if summary.errors else [])])


# ---- the closing lines


def closing_sentences(
    contents: Contents, quote: Quote, *, in_full: bool = True, resume: str = ""
) -> list[str]:
    """The closing lines, before the gate's.

    `in_full`: also what errors hide, retries, tokens and notes on unknown costs. `resume`: the
    command that resumes the run, if it is not `paraval resume ID`.
    """
    return [
        *_time(contents.summary, quote, in_full=in_full),
        *_missing(contents, quote, in_full=in_full, resume=resume),
        *_attempts(contents, quote, in_full=in_full),
        *_graders(contents.summary, quote),
        *_cost(contents, in_full=in_full),
        *_conclusions(contents, quote),
    ]


def _time(summary: Summary, quote: Quote, *, in_full: bool) -> Iterator[str]:
    done = f"{counted(summary.ended, 'trial')} in {duration(summary.wall_s)}"
    if summary.ended > 1 and summary.speedup and summary.speedup >= LEAST_GAIN:
        done += f" ({duration(summary.serial_s)} of work, {summary.speedup:.1f}× parallel)"
    yield done
    if summary.nodes:
        on_nodes = sum(summary.nodes.values())
        trials = [f"{quote(name)} {number:,}" for name, number in summary.nodes.items()]
        of = "trial" if on_nodes == 1 else "trials"
        here = summary.ended - on_nodes
        others = f"; {here:,} on the machine of the run" if here > 0 else ""
        yield f"Ran on {counted(len(trials), 'node')}: {some(trials, _MOST_NODES)} {of}{others}"
    if summary.timeouts and in_full:
        more = " or more" if summary.timeouts > 1 else ""
        yield (
            f"Median and p95 exclude {counted(summary.timeouts, 'timeout')} (after"
            f" {duration(summary.timeout_s)}{more}): true times are longer"
        )
    if kinds := {Outcome(kind): number for kind, number in summary.errors_failed.items()}:
        words = listed(counted(n, *(_WORDS | _FAILED_BY)[kind]) for kind, n in kinds.items())
        count = "counts as a failure" if sum(kinds.values()) == 1 else "count as failures"
        yield f"{words} {count}"
    if summary.hung:
        yield (
            f"{summary.hung:,} of {counted(summary.ended, 'attempt')} hung or crashed; to count"
            " them as failures: errors: {timeout: fail, crashed: fail}"
        )


def _missing(contents: Contents, quote: Quote, *, in_full: bool, resume: str) -> Iterator[str]:
    """What errors hide, if they had failed or passed, and which trials have no result. Of variants
    only `in_full`: their comparisons say whether errors could change them."""
    summary, run = contents.summary, contents.run
    errors = counted(summary.errors, "error")
    if summary.errors and not summary.judged:
        yield f"No pass rate: no trial was judged ({errors})"
    elif summary.errors and len(summary.variants) == 1:
        rates = rates_with_errors(summary)
        yield f"With {errors} as failures or as passes, the pass rate is {rates}"
    elif summary.errors and in_full:
        erred = [one for one in summary.variants if one.errors]
        named = [f"{quote(label_of(one))} {rates_with_errors(one)}" for one in erred]
        yield f"With errors as failures or as passes, pass rates are: {some(named, _MOST_NODES)}"
    is_interrupted = run.interrupted or (run.ended_at is None and not run.running)
    unended = summary.planned - summary.trials
    if is_interrupted:
        for_good = summary.left_out + summary.skipped_by_reason.get(CANCELED, 0)
        words = f"Interrupted: {counted(summary.skipped - for_good + unended, 'trial')} pending"
        # What was started from Python, or by pytest, is resumed by no command.
        command = resume or f"paraval resume {run.id}"
        yield words if run.source is None else f"{words}. Resume with: {command}"
    elif unended:
        yield f"{counted(unended, 'trial')} without a result"
    if summary.skipped and not run.running and (in_full or not is_interrupted):
        reasons = list(summary.skipped_by_reason.items())
        yield from (f"{number:,} skipped: {quote(why)}" for why, number in reasons[:_MOST_REASONS])
        if left := sum(number for _, number in reasons[_MOST_REASONS:]):
            yield f"{left:,} skipped for other reasons"
        if in_full:
            yield "The pass rate excludes skipped trials"


def held_back(run: RunInfo, quote: Quote = str) -> Iterator[str]:
    """`Held back: model mid: 12 requests/s found (429), for 18 s`."""
    waits = [one for one in run.notices if one.waited_s is not None]
    for wait in waits[:_MOST_REASONS]:
        yield f"Held back: {quote(wait.message)}, for {duration(wait.waited_s)}"


def _attempts(contents: Contents, quote: Quote, *, in_full: bool) -> Iterator[str]:
    """Retries, what held attempts back, and answers that are not whole."""
    summary, lost = contents.summary, contents.summary.retries_lost
    numbers = {Outcome(kind): number for kind, number in summary.retries_by_kind.items()}
    again = numbers.pop(Outcome.FAILED, 0)
    if lost:
        numbers[Outcome.INFRA_ERROR] = numbers.get(Outcome.INFRA_ERROR, lost) - lost
    kinds = [counted(n, *(_WORDS | _RETRIED)[kind]) for kind, n in numbers.items() if n > 0]
    kinds += [f"{lost:,} lost with a node"] if lost else []
    if kinds and in_full:
        yield f"Retried: {', '.join(kinds)}"
    if again:
        # What was chosen to run again by its result is not a fair sample.
        failed = f"{counted(again, 'failed attempt')} {'was' if again == 1 else 'were'}"
        yield f"{failed} run again by choice: second tries raise the rate, even if nothing changed"
    yield from held_back(contents.run, quote)
    cuts = {"at max_tokens": summary.answers_cut, **summary.answers_cut_off}
    yield from (f"{counted(n, 'answer')} cut off {where}" for where, n in cuts.items() if n)
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


def _graders(summary: Summary, quote: Quote) -> Iterator[str]:
    """Graders that were skipped, and those that tell nothing apart."""
    graders = summary.by_grader.items()
    for name, one in [pair for pair in graders if pair[1].skipped][:_MOST_REASONS]:
        trials = f"{one.skipped:,} of {counted(one.skipped + one.judged, 'trial')}"
        yield f"Grader {quote(name)} was skipped in {trials}: {quote(one.skip_reason)}"
    for name, one in graders:
        if one.is_judge and one.judged >= FEWEST_SCORES and one.only_score is not None:
            score = f"{one.only_score:g}"
            yield f"Judge {quote(name)} gave all {one.judged:,} answers the same score, {score}"
    often = [(name, one) for name, one in graders if one.judged >= FEWEST_ONE_WAY]
    for words, share in (("failed", 1.0), ("passed", 0.0)):
        if names := [quote(name) for name, one in often if one.pass_rate == share]:
            they = "Grader" if len(names) == 1 else "Graders"
            yield f"{they} that never {words} in {FEWEST_ONE_WAY} trials or more: {listed(names)}"


_WHY_UNKNOWN = (
    "A cost is unknown if the model has no `price` in the registry, if a call reported no tokens or"
    " never ended, or if an agent does not report it"
)


def _cost(contents: Contents, *, in_full: bool) -> Iterator[str]:
    """`Cost: $0.022 (target $0.0041, judges $0.018)`: always of both together; and tokens."""
    summary, run, judging = contents.summary, contents.run, contents.summary.judging
    own, of_judges = _reported(summary, in_full=in_full), judging.cost_in_words(in_full=in_full)
    if summary.is_told and judging.is_paid:
        parts = f"target {own}, judges {of_judges}"
        yield f"Cost: {total_cost(summary)} ({parts}){_spent(summary)}"
    elif summary.is_told:
        yield f"Cost: {own}{_spent(summary)}"
    elif judging.is_told:
        yield f"Cost: {of_judges}, all of it judges{_spent(summary)}"
    if in_full and (summary.is_partly_unknown or judging.is_partly_unknown):
        yield _WHY_UNKNOWN
    # Money that counts toward the budget, but is in no trial of the report.
    gone = "trials that have since changed or left the suite"
    if run.dropped_usd:
        another = "At least another" if run.dropped_unknown else "Another"
        yield f"{another} {money(run.dropped_usd)} was spent on {gone}"
    elif run.dropped_unknown:
        yield f"Unknown: the cost of {gone}"
    used = tokens(judging.usage)
    used = "; ".join(filter(None, (tokens(summary.usage), used and f"judges: {used}")))
    if used and in_full:
        yield f"Tokens: {used}"
    # From the cache, or from an equal request of the same run, which is sent once.
    found = [
        f"{costs.cached:,} of {counted(costs.answers, what)}"
        for costs, what in ((summary, "answer"), (judging, "judge verdict"))
        if costs.cached
    ]
    if found:
        yield f"Reused from equal requests: {', '.join(found)}"
    if summary.agents is not None and summary.most_memory_bytes:
        # It shows how many fit on a machine.
        cpu = "" if summary.cpu_s is None else f"; total CPU time: {duration(summary.cpu_s)}"
        yield f"Memory: up to {size(summary.most_memory_bytes)} per attempt{cpu}"


def _reported(summary: Summary, *, in_full: bool) -> str:
    cost = summary.cost_in_words(in_full=in_full)
    without = summary.trials_without_cost - summary.trials_of_unknown_cost
    if without <= 0 or summary.cost_usd is None:
        return cost
    if not summary.is_partly_unknown:
        cost += f" for {counted(summary.ended - without, 'trial')}"
    return f"{cost}; {without:,} reported none"


def total_cost(summary: Summary) -> str:
    """What the answers cost, judges' included: `$0.36`, `at least $0.12`, `unknown`."""
    if summary.total_cost_usd is None:
        return NO_PRICE
    least = "at least " * (summary.is_partly_unknown or summary.judging.is_partly_unknown)
    return f"{least}{money(summary.total_cost_usd)}"


def _spent(summary: Summary) -> str:
    """`; spent: $0.05`, if this run paid less than its answers cost."""
    both = (summary, summary.judging)
    spent = math.fsum(one.spent_usd or 0.0 for one in both)
    is_unknown = any(one.spent_unknown for one in both)
    # At least $0.00 says nothing.
    if not any(one.cached for one in both) or (is_unknown and not spent):
        return ""
    if money(spent) == money(summary.total_cost_usd or 0.0) and summary.total_cost_usd is not None:
        return ""
    return f"; spent: {'at least ' * is_unknown}{money(spent)}"


def _conclusions(contents: Contents, quote: Quote) -> Iterator[str]:
    """The best variant, what judges prefer, and how far graders agree with people's labels."""
    best = contents.best_variant
    if best is not None and (sentence := best_variant_sentence(best, quote)):
        yield sentence
    for report in contents.pairwise:
        several = len(contents.pairwise) > 1
        yield from pairwise_sentences(report, quote, is_one_of_several=several)
    yield from (agreement_sentence(one, quote(one.grader)) for one in contents.judges)
    if contents.labels_problem:
        yield f"Labels are left out: {quote(contents.labels_problem)}"


# ---- what agents did: the sections `Tools` and `Changes`, and alarms that must not be missed

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
    agents = [one for one in summary.variants if one.agents is not None]
    if agents:
        yield Section(
            heading="Tools",
            lines=tuple((label_of(one), _did(one, summary, quote)) for one in agents),
            alarms=tuple(alarm for one in agents for alarm in tool_alarms(one, summary, quote)),
        )
    changed = [(one, one.changes) for one in summary.variants if one.changes is not None]
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
    label = quote(label_of(one))
    handed = {} if summary.agents is None else summary.agents.handed
    for name, use in ({} if one.agents is None else one.agents.mcp).items():
        server, void = quote(name), "comparisons with it say nothing about the tool"
        if use.never_called and use.errors:
            errors = counted(use.errors, "call")
            yield f"{label} got nothing but errors from {server} ({errors}): {void}"
        elif use.never_called:
            yield f"{label} never called {server}: {void}"
        if use.failed:
            trials = f"{use.failed:,} of {counted(use.handed, 'trial')}"
            yield f"{label} could not connect to {server} in {trials}"
        if not use.handed and name in handed and use.called:
            yield (
                f"{label} called {server} in {counted(use.called, 'trial')} although it was not"
                " given it: comparisons without the tool are void"
            )


def _did(one: VariantSummary, summary: Summary, quote: Quote) -> str:
    """`search: called in 28 of 30 trials (74 calls), connected in 30; median 4 turns`."""
    agents = one.agents
    assert agents is not None, "an agent ran"
    handed, telling = agents.handed, agents.trials_telling_tools
    parts = [f"{quote(name)}: {_used(use)}" for name, use in handed.items()]
    if summary.agents is not None and summary.agents.handed and not parts:
        parts.append("no MCP server")
    figures = []
    if agents.median_turns is not None:
        figures.append(f"median {_amount(agents.median_turns, 'turn')}")
    if telling:
        what = "other tool call" if handed else "tool call"
        figures.append(f"{counted(agents.other_calls, what)} in total")
    elif not handed:
        figures.append("tool calls not reported")
    return "; ".join([*parts, *([", ".join(figures)] if figures else [])])


def _used(use: ServerUse) -> str:
    words = "tool calls not reported"
    if use.telling:
        words = f"called in {use.called:,} of {counted(use.telling, 'trial')}"
        errors = f", {use.errors:,} more with an error" if use.errors else ""
        words += f" ({counted(use.calls, 'call')}{errors})" if use.calls or errors else ""
    # Some agents report a connection only through calls over it: that adds nothing.
    is_known = use.connected + use.failed == use.handed
    return f"{words}, connected in {use.connected:,}" if is_known else words


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
