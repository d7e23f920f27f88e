"""The race as Markdown that fits a comment on a pull request.

What others wrote stands in `<code>` or in a fence that it cannot end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paraval.racing.findings import RunDifference
from paraval.racing.report.race_text import RaceView, count_lines, plain_lines
from paraval.racing.report.race_words import (
    baseline_sentence,
    by_merit,
    caution_sentences,
    cost_sentence,
    difference_heading,
    first_line,
    measured_sentence,
    speedup_cell,
    status_word,
    tests_cell,
    verdict_sentence,
    winner_of,
)
from paraval.racing.report.standings import CandidateStanding
from paraval.report.formats.markdown import code
from paraval.text.words import counted, percent

# GitHub takes 65,536 characters in a comment; each part has its share below that.
_TABLE_BYTES = 20_000
_LIST_BYTES = 12_000
_PATCH_BYTES = 20_000
_MOST_PATCH_LINES = 400
_DIFFERENCES_EACH = 5
_LONGEST_VALUE = 300


def race_markdown(shown: RaceView) -> str:
    standings, request = shown.standings, shown.request
    parts = [
        f"## paraval race: {code(shown.run.suite)}",
        f"**{verdict_sentence(standings, request, code)}**",
        _table(shown) if standings.baseline.reason is None else _failing(shown),
        _flags(shown),
        _differences(shown),
        _note(shown),
        _patch(shown),
        baseline_sentence(standings.baseline, code),
        measured_sentence(standings, request) or "",
        cost_sentence(standings, request) or "",
        *caution_sentences(standings, request, code),
        f"Run {code(shown.run.id)}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(shown: RaceView) -> str:
    candidates = by_merit(shown.standings.candidates)
    if not candidates:
        return ""
    sure = percent(shown.request.accept.confidence)
    lines = [
        f"| candidate | status | tests | speed-up ({sure}) | why |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    rows = [_row(one) for one in candidates]
    fitting = list(_within(_TABLE_BYTES, rows))
    if more := len(rows) - len(fitting):
        fitting.append(f"| … and {more:,} more | | | | |")
    return "\n".join((*lines, *fitting))


def _row(one: CandidateStanding) -> str:
    speedup = speedup_cell(one.speedup) + (" ~" if one.noisy and one.speedup is not None else "")
    why = code(one.reason, _LONGEST_VALUE) if one.reason else ""
    tests = tests_cell(one.tests)
    return f"| {code(one.name)} | {status_word(one.status)} | {tests} | {speedup} | {why} |"


def _failing(shown: RaceView) -> str:
    baseline = shown.standings.baseline
    told = [f"- {_in_a_line(one)}" for one in baseline.differences[:_DIFFERENCES_EACH]]
    names = {one.name for one in baseline.differences[:_DIFFERENCES_EACH]}
    told += [f"- {code(name)}" for name in baseline.failing if name not in names]
    return "\n".join(_within(_LIST_BYTES, told))


def _flags(shown: RaceView) -> str:
    flagged = [
        f"- {code(one.name)}: **{code('; '.join(one.flags), _LONGEST_VALUE)}**"
        for one in shown.standings.candidates
        if one.flags
    ]
    if not flagged:
        return ""
    return "\n".join(("### What no candidate should do\n", *_within(_LIST_BYTES, flagged)))


def _differences(shown: RaceView) -> str:
    lines = [
        line
        for one in shown.standings.candidates
        if one.differences
        for line in _differences_of(one)
    ]
    if not lines:
        return ""
    fitting = list(_within(_LIST_BYTES, lines))
    if more := len(lines) - len(fitting):
        fitting.append(f"- … and {more:,} more")
    return "\n".join(("### What was different\n", *fitting))


def _differences_of(one: CandidateStanding) -> Iterator[str]:
    for difference in one.differences[:_DIFFERENCES_EACH]:
        yield f"- {code(one.name)}: {_in_a_line(difference)}"
    more = len(one.differences) - _DIFFERENCES_EACH + one.more_differences
    if more > 0:
        yield f"- {code(one.name)}: … and {counted(more, 'more difference')}"


def _in_a_line(difference: RunDifference) -> str:
    line = difference_heading(difference, code)
    if difference.expected is not None and difference.actual is not None:
        expected = code(difference.expected, _LONGEST_VALUE)
        return f"{line}: expected {expected}, got {code(difference.actual, _LONGEST_VALUE)}"
    if difference.message:
        return f"{line}: {code(first_line(difference.message), _LONGEST_VALUE)}"
    return line


def _note(shown: RaceView) -> str:
    """What whoever proposed the winner says of it."""
    winner = winner_of(shown.standings)
    if winner is None or not winner.note:
        return ""
    return f"{code(winner.name)} was proposed with: {code(winner.note, _LONGEST_VALUE)}"


def _patch(shown: RaceView) -> str:
    winner = winner_of(shown.standings)
    if winner is None or not shown.patch:
        return ""
    if isinstance(shown.patch, str):
        return code(shown.patch, _LONGEST_VALUE)
    lines = list(_within(_PATCH_BYTES, plain_lines(shown.patch, _MOST_PATCH_LINES)))
    if more := count_lines(shown.patch) - len(lines):
        lines.append(f"… and {counted(more, 'more line')}")
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    patch = "\n".join((f"{fence}diff", *lines, fence))
    summary = f"<summary>{code(winner.name)}, as a patch</summary>"
    return f"<details>{summary}\n\n{patch}\n\n</details>"


def _within(most_bytes: int, lines: list[str]) -> Iterator[str]:
    for line in lines:
        most_bytes -= len(line.encode()) + 1
        if most_bytes < 0:
            return
        yield line
