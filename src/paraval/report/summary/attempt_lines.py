"""What one attempt did, in lines: tool calls, and changes file by file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paraval.codec import Style, picked, to_data
from paraval.records import (
    CUT_OFF,
    Activity,
    AttemptResult,
    Change,
    FileChange,
    Outcome,
    Spend,
)
from paraval.report.formats.json_schema import DeedsEntry
from paraval.report.reasons import EMPTY_ANSWER, reason, without_text
from paraval.report.summary.costs import is_known, told_usd
from paraval.report.summary.tally import NO_PRICE
from paraval.text.terminal import columns, one_line
from paraval.text.words import call_text, counted, money, tokens

_LONGEST_PATH = 100
_LONGEST_LINE = 300


def stat_lines(change: Change) -> Iterator[str]:
    """A line for each changed file, and the totals; file names are made safe to show."""
    paths = [one_line(file.path, _LONGEST_PATH) for file in change.files]
    width = max(map(columns, paths), default=0)
    for path, file in zip(paths, change.files, strict=True):
        yield f" {path}{' ' * (width - columns(path))}  {file.status:<7}  {_lines(file)}"
    if more := change.files_in_all - len(change.files):
        yield f" and {counted(more, 'more file')}"
    yield f" {change_in_words(change)}"
    if change.unknown is not None:
        yield f" {one_line(f'incomplete: {change.unknown}', _LONGEST_LINE)}"


def change_in_words(change: Change) -> str:
    """`3 files: 1 added, 2 changed; 12 lines added, 4 deleted`."""
    kinds = (
        (change.files_added, "added"),
        (change.files_changed, "changed"),
        (change.files_deleted, "deleted"),
    )
    files = ", ".join(f"{number:,} {kind}" for number, kind in kinds if number)
    if not files:
        return "nothing changed" if change.unknown is None else "unknown"
    binary = f" ({change.binary_files:,} binary)" if change.binary_files else ""
    lines = counted(change.lines_added, "line")
    bound = "" if change.unknown is None else "at least "
    return (
        f"{bound}{counted(change.files_in_all, 'file')}: {files}{binary}; {lines} added, "
        f"{change.lines_deleted:,} deleted"
    )


def deeds_in_lines(activity: Activity | None, change: Change | None) -> Iterator[str]:
    """Tool calls and changes of an attempt; names are made safe to show."""
    if activity is not None:
        yield from _activity_lines(activity)
    if change is not None:
        yield f"changes: {change_in_words(change)}"
        if change.unknown is not None:
            yield one_line(f"changes are incomplete: {change.unknown}", _LONGEST_LINE)
        for words in change.tampering:
            yield one_line(f"tampering: {words}", _LONGEST_LINE)
        for words in change.flagged:
            yield one_line(f"flagged: {words}", _LONGEST_LINE)


def _activity_lines(activity: Activity) -> Iterator[str]:
    if activity.turns is not None:
        yield f"turns: {activity.turns:,}"
    for server, state in activity.mcp.items():
        yield one_line(f"MCP server {server}: {state}", _LONGEST_LINE)
    if not activity.tells_tools:
        yield "tools: not reported"
        return
    for tool in activity.tools:
        of = f" of {tool.server}" if tool.server is not None else ""
        failed = f", {tool.failed:,} with an error" if tool.failed else ""
        line = f"tool {tool.name}{of}: {counted(tool.calls, 'call')}{failed}"
        yield one_line(line, _LONGEST_LINE)


def _lines(file: FileChange) -> str:
    if file.binary:
        return "binary"
    if file.is_unknown:
        return "not inspected"
    return f"+{file.lines_added:,} -{file.lines_deleted or 0:,}"


# How one attempt ended, in lines: for attempts without output streams, such as model calls, and for
# those whose streams are not meant for people, such as agents'.


def end_in_lines(result: AttemptResult | None, *, goes_on: bool) -> Iterator[str]:
    """The outcome with its reason, notes, grades, cost, and last the whole answer."""
    if result is None:
        yield "still running" if goes_on else "never ended: the run was stopped"
        return
    why = reason(result)
    has_reason = result.outcome is not Outcome.PASSED and why not in ("", result.outcome)
    yield f"{result.outcome}: {why}" if has_reason else str(result.outcome)
    yield from (f"note: {note}" for note in result.notes if note not in why)
    for grade in result.grades:
        verdict = "passed" if grade.passed else "failed"
        because = f": {grade.reason}" if grade.reason else ""
        yield f"{grade.grader}: {verdict}, score {grade.score:g}{because}"
    for name, spend in (("cost", result.spend), ("judges", result.judging)):
        if words := _in_words(spend):
            yield f"{name}: {words}"
    yield from deeds_in_lines(result.activity, result.change)
    if result.output is not None:
        yield from step_lines(result)
        yield "answer:"
        yield result.output.text or without_text(result) or EMPTY_ANSWER


def step_lines(result: AttemptResult) -> Iterator[str]:
    """The tool calls of an answer, and what they returned; each call on a line of its own."""
    steps = () if result.output is None else result.output.steps
    is_cut = any(note.startswith(CUT_OFF) for note in result.notes)
    for number, step in enumerate(steps, start=1):
        if not step.tool_calls:
            continue
        used = f" (tokens: {told})" if (told := tokens(step.usage)) else ""
        text = f" {one_line(step.text, _LONGEST_LINE)}" if step.text.strip() else ""
        yield f"step {number}{used}:{text}"
        for call in step.tool_calls:
            yield f"  {one_line(call_text(call.name, call.arguments), _LONGEST_LINE)}"
            if call.result is not None:
                yield f"    -> {one_line(call.result, _LONGEST_LINE)}"
            elif is_cut:
                yield "    not run"


def end_as_dict(result: AttemptResult | None) -> dict[str, Any]:
    """The same for programs; `cost_usd` is the known cost without judges."""
    spend, judging = (None, None) if result is None else (result.spend, result.judging)
    output = None if result is None else result.output
    did = DeedsEntry() if result is None else picked(DeedsEntry, result)
    return {
        "output": None if output is None else output.text,
        "steps": [] if output is None else [to_data(step, Style.SHOWN) for step in output.steps],
        "score": None if result is None else result.score,
        "grades": [] if result is None else [to_data(one, Style.SHOWN) for one in result.grades],
        "cost_usd": told_usd(spend),
        "cost_unknown": spend is not None and not is_known(spend),
        "judging_cost_usd": told_usd(judging),
        "judging_cost_unknown": judging is not None and not is_known(judging),
        **to_data(did, Style.SHOWN),
    }


def _in_words(spend: Spend | None) -> str:
    """`$0.012 (tokens: 35 in and 7 out)`; empty if nothing was requested."""
    if spend is None or (not spend.calls and not spend.cached and spend.cost_usd == 0):
        return ""
    known = told_usd(spend)
    if known is None:
        words = NO_PRICE
    else:
        words = money(known) if is_known(spend) else f"at least {money(known)}"
    used = tokens(spend.original_usage)
    more = ["cached"] if spend.cached and not spend.calls else []
    more += [f"tokens: {used}"] if used else []
    return f"{words} ({'; '.join(more)})" if more else words
