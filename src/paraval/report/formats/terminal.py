"""The text printed after a run: a table, the variants compared, what did not pass, and the closing
sentences.

It reads the same without colour and without UTF-8, and nothing that a target wrote can act on the
terminal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from paraval.records import TrialResult
from paraval.report.compare.comparison import Comparison, Finding
from paraval.report.compare.sentences import details, heading, not_made, notes, sentence
from paraval.report.compare.variants import number_left_out
from paraval.report.contents import Contents
from paraval.report.gate import GateVerdict
from paraval.report.reasons import reason
from paraval.report.summary.closing import (
    closing_sentences,
    deed_sections,
    errors_heading,
    first_unpassed,
    wrong_heading,
)
from paraval.report.summary.columns import Column, columns_of, rows_of
from paraval.report.summary.summary import Summary, Tally
from paraval.text.terminal import columns, cut, cut_middle, one_line, to_ascii
from paraval.text.words import trial_label

_MOST_LISTED = 20
NARROWEST = 40
_NARROWEST_WITH_INTERVALS = 60
_GAP = "  "
_LONGEST_NAME = 200
_LONGEST_BESIDE = 24
"""A label up to so wide stands beside its figures, if need be beside fewer of them."""
_LONGEST_WITHIN = 48
_LONGEST_REASON = 500
_MOST_COMPARED = 12

_TOGETHER = re.compile(
    r"(?<=\d) (?=(?:ms|s|min|h)\b|%)"  # a number and its unit
    r"|(?<=\bp) (?=[=<] \d)|(?<=\bp [=<]) (?=\d)"  # p = 0.03
)
_HOLD = "\N{NO-BREAK SPACE}"

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_CELL_STYLES = {"passed": "green", "failed": "red", "errors": "yellow"}
_FINDING_STYLES = {Finding.BETTER: "green", Finding.WORSE: "red"}
_VERDICT_STYLES = {
    GateVerdict.MET: "green",
    GateVerdict.MISSED: "red",
    GateVerdict.UNKNOWN: "yellow",
}


def summary_text(contents: Contents, *, width: int, colour: bool, unicode: bool) -> str:
    """What is printed after a run; ends without a newline."""
    page = _TerminalPage(width=max(width, NARROWEST), colour=colour, unicode=unicode)
    blocks = [
        _table(contents.summary, page),
        *_comparisons(contents, page),
        *_lists(contents, page),
        *_deeds(contents.summary, page),
        _closing(contents, page),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TerminalPage:
    """What can be shown where the text goes."""

    width: int
    colour: bool
    unicode: bool

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    def safe(self, text: str, limit: int = _LONGEST_NAME) -> str:
        line = one_line(text, limit)
        return line if self.unicode else to_ascii(line)

    def name(self, text: str) -> str:
        """Within a sentence, where it must leave room for what is said of it."""
        return self.cut_middle(self.safe(text), _LONGEST_WITHIN)

    def cut(self, text: str, limit: int) -> str:
        return cut(text, limit, self.ellipsis)

    def cut_middle(self, text: str, limit: int) -> str:
        return cut_middle(text, limit, self.ellipsis)

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colour and text.strip() else text


def _pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


# ---- the table


def _table(summary: Summary, page: _TerminalPage) -> list[str]:
    rows = rows_of(summary)
    if not summary.variants:
        return []
    labels = [page.safe(label) for label, _ in rows]
    label_width = max(map(columns, [*labels, "variant"]))
    shown = _fitting_columns(summary, label_width, page)
    widths = _column_widths(summary, shown)
    room = page.width - _taken(widths)
    # A label that leaves no room for the figures stands on a line of its own: cut, variants that
    # differ in their last axis would look the same.
    apart = label_width > room
    start_width = room if apart else label_width
    lines = [page.paint(_headings(start_width, shown, widths), "bold")]
    for label, (_, tally) in zip(labels, rows, strict=True):
        figures = _figures(tally, shown, widths, page)
        if apart:
            lines += [page.cut_middle(label, page.width), " " * start_width + figures]
        else:
            lines.append(_pad(label, start_width) + figures)
    return lines


def _fitting_columns(summary: Summary, label_width: int, page: _TerminalPage) -> list[Column]:
    """As many as fit beside the labels; what can be spared goes first, then the intervals."""
    beside = label_width if label_width <= _LONGEST_BESIDE else len("variant")
    intervals = page.width >= _NARROWEST_WITH_INTERVALS
    shown = columns_of(summary, intervals=intervals)
    for choice in (shown, columns_of(summary, intervals=False)):
        spare = sum(column.is_spare for column in choice)
        for left_out in range(spare + 1):
            few = choice[: len(choice) - left_out]
            if _taken(_column_widths(summary, few)) + beside <= page.width:
                return few
    while len(shown) > 1 and _taken(_column_widths(summary, shown)) > page.width - len("variant"):
        shown = shown[:-1]
    return shown


def _column_widths(summary: Summary, shown: list[Column]) -> list[int]:
    return [
        max(len(column.heading), *(len(column.cell(tally)) for _, tally in rows_of(summary)))
        for column in shown
    ]


def _taken(widths: list[int]) -> int:
    return sum(len(_GAP) + width for width in widths)


def _headings(start_width: int, shown: list[Column], widths: list[int]) -> str:
    headings = (
        _GAP + column.heading.rjust(width) for column, width in zip(shown, widths, strict=True)
    )
    return _pad("variant", start_width) + "".join(headings)


def _figures(tally: Tally, shown: list[Column], widths: list[int], page: _TerminalPage) -> str:
    parts = []
    for column, width in zip(shown, widths, strict=True):
        cell = column.cell(tally)
        style = _CELL_STYLES.get(column.heading) if cell != "0" else None
        text = cell.rjust(width)
        parts.append(_GAP + (page.paint(text, style) if style else text))
    return "".join(parts)


# ---- the variants compared


def _comparisons(contents: Contents, page: _TerminalPage) -> Iterator[list[str]]:
    made = contents.comparisons
    shown = made[:_MOST_COMPARED]
    more = _more_comparisons(len(made) - len(shown), contents, page)
    for axis, family in groupby(shown, key=lambda comparison: comparison.axis):
        head = heading(axis, page.name, going_on=contents.run.running)
        lines = [page.paint(line, "bold") for line in _hung("", f"{head}:", page)]
        for comparison in family:
            lines += _comparison(comparison, page, in_full=len(made) == 1)
        is_last = comparison is shown[-1]
        yield [*lines, *(more if is_last else ())]


def _comparison(comparison: Comparison, page: _TerminalPage, *, in_full: bool) -> Iterator[str]:
    style = _FINDING_STYLES.get(comparison.finding)
    for line in _hung("  ", sentence(comparison, page.name), page):
        yield page.paint(line, style) if style else line
    beside = notes(comparison, page.name)
    if in_full:
        beside += details(comparison, page.name)
    for text in beside:
        yield from _hung("    ", text, page)


def _more_comparisons(unshown: int, contents: Contents, page: _TerminalPage) -> Iterator[str]:
    if unshown:
        command = f"paraval compare {page.safe(contents.run.id)}"
        yield f"  {page.ellipsis} and {unshown:,} more: {command}"
    if left_out := number_left_out(contents.book):
        yield from _hung("  ", f"{not_made(left_out)}.", page)


# ---- what did not pass


def _lists(contents: Contents, page: _TerminalPage) -> Iterator[list[str]]:
    summary = contents.summary
    listed = first_unpassed(contents, _MOST_LISTED)
    mark = "✗" if page.unicode else "x"
    if listed.wrong:
        heading = page.paint(wrong_heading(summary), "red")
        more = _more(summary.failed - len(listed.wrong), contents, page)
        yield [heading, *_trial_lines(listed.wrong, page.paint(mark, "red"), page), *more]
    if listed.errors:
        heading = page.paint(errors_heading(summary), "yellow")
        more = _more(summary.errors - len(listed.errors), contents, page)
        yield [heading, *_trial_lines(listed.errors, page.paint("!", "yellow"), page), *more]


def _trial_lines(results: tuple[TrialResult, ...], mark: str, page: _TerminalPage) -> Iterator[str]:
    labels = [page.safe(trial_label(result)) for result in results]
    label_width = min(max(map(columns, labels)), page.width * 45 // 100)
    outcome_width = max(len(result.outcome.value) for result in results)
    for label, result in zip(labels, results, strict=True):
        start = _pad(page.cut_middle(label, label_width), label_width)
        outcome = result.outcome.value.ljust(outcome_width)
        # Two columns before the mark's text, and a gap on each side of the outcome.
        room = page.width - 4 - label_width - outcome_width - 2 * len(_GAP)
        why = page.cut(page.safe(reason(result.result), max(room, 1) * 2), room)
        yield f"  {mark} {start}{_GAP}{outcome}{_GAP}{why}".rstrip()


def _more(number: int, contents: Contents, page: _TerminalPage) -> list[str]:
    if not number:
        return []
    command = f"paraval report {page.safe(contents.run.id)} -o report.md"
    return [f"  {page.ellipsis} and {number:,} more: {command}"]


# ---- what agents did


def _deeds(summary: Summary, page: _TerminalPage) -> Iterator[list[str]]:
    for section in deed_sections(summary, page.safe):
        labels = [page.safe(label) for label, _ in section.lines]
        width = min(max(map(columns, labels)), page.width * 45 // 100)
        lines = [page.paint(section.heading, "bold")]
        for label, (_, text) in zip(labels[:_MOST_LISTED], section.lines, strict=False):
            start = _pad(page.cut_middle(label, width), width)
            lines += _hung(f"  {start}{_GAP}", text, page)
        if (more := len(labels) - _MOST_LISTED) > 0:
            lines.append(f"  {page.ellipsis} and {more:,} more variants")
        for alarm in section.alarms:
            lines += [page.paint(line, "red") for line in _hung("  ", alarm, page)]
        yield lines


def _hung(start: str, text: str, page: _TerminalPage) -> list[str]:
    """The text behind its start; further lines stand under the text."""
    indent = columns(start)
    first, *others = wrapped(text, page.width - indent).split("\n")
    return [start + first, *(" " * indent + line for line in others)]


# ---- the closing sentences


def _closing(contents: Contents, page: _TerminalPage) -> list[str]:
    told = closing_sentences(contents, lambda text: page.safe(text, _LONGEST_REASON))
    *sentences, verdict = (wrapped(sentence, page.width) for sentence in told)
    return [*sentences, page.paint(verdict, _VERDICT_STYLES[contents.gate.verdict])]


def wrapped(sentence: str, width: int) -> str:
    """Broken between words, but not between a number and what it is of."""
    held = _TOGETHER.sub(_HOLD, sentence)
    # Lines are measured in characters, and some of other people's take two columns.
    room = width if columns(held) <= len(held) else width // 2
    lines = textwrap.fill(held, room, break_on_hyphens=False)
    return lines.replace(_HOLD, " ")
