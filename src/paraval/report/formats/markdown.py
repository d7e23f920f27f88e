"""Markdown that fits a comment on a pull request.

Everything others wrote stands in `<code>` with its signs as entities: there neither Markdown nor
HTML acts, and GitHub and GitLab turn no `@name` into a message to somebody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TextIO

from paraval.records import TrialResult
from paraval.report.compare.comparison import Comparison
from paraval.report.compare.sentences import details, heading, not_made, notes, sentence
from paraval.report.compare.variants import number_left_out
from paraval.report.contents import Contents
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
from paraval.text.terminal import cut_middle, one_line
from paraval.text.words import trial_label

# GitHub takes 65,536 characters in a comment; each part has its share of the bytes below that.
_TABLE_BYTES = 14_000
_COMPARED_BYTES = 6_000
_LIST_BYTES = 12_000
_DEED_BYTES = 3_000
_MOST_LISTED = 200
_LONGEST_NAME = 150
_LONGEST_WITHIN = 48
_LONGEST_REASON = 300

_ACTING = re.compile(r"[&<>|`*_~\[\]\\$@]|:(?=//)|(?<=www)\.")


class AsMarkdown:
    def write(self, contents: Contents, file: TextIO) -> None:
        file.write(f"## paraval: {code(contents.run.suite)}\n\n")
        file.write(f"**{contents.gate.sentence}**\n\n")
        _write_table(contents.summary, file)
        _write_comparisons(contents, file)
        _write_lists(contents, file)
        _write_deeds(contents.summary, file)
        told = closing_sentences(contents, lambda text: code(text, _LONGEST_REASON))
        # A blank line between: in Markdown, lines that follow one another run together.
        file.write("\n\n".join(told[:-1]) + "\n")
        file.write(f"\nRun {code(contents.run.id)}.\n")


def code(text: str, limit: int = _LONGEST_NAME) -> str:
    """Text of others: shown as it is, on one line, without any effect."""
    shown = _ACTING.sub(lambda match: f"&#{ord(match[0])};", one_line(text, limit))
    return f"<code>{shown}</code>"


def _write_table(summary: Summary, file: TextIO) -> None:
    if not summary.variants:
        return
    shown = columns_of(summary)
    file.write(f"| variant | {' | '.join(column.heading for column in shown)} |\n")
    file.write(f"| --- |{' ---: |' * len(shown)}\n")
    *variants, last = rows_of(summary)
    more = _write_within(_TABLE_BYTES, (_row(*row, shown) for row in variants), file)
    if more < len(variants):
        left = len(variants) - more
        file.write(f"| … and {left:,} more |{' |' * len(shown)}\n")
    file.write(_row(*last, shown))
    file.write("\n")


def _row(label: str, tally: Tally, shown: list[Column]) -> str:
    return f"| {code(label)} | {' | '.join(column.cell(tally) for column in shown)} |\n"


def _write_comparisons(contents: Contents, file: TextIO) -> None:
    made = contents.comparisons
    lines = _comparison_lines(made, going_on=contents.run.running)
    written = _write_within(_COMPARED_BYTES, lines, file)
    if left := len(made) - written:
        file.write(f"\n… and {left:,} more: {code(f'paraval compare {contents.run.id}')}\n")
    if left_out := number_left_out(contents.book):
        file.write(f"\n{not_made(left_out)}.\n")
    if made:
        file.write("\n")


def _comparison_lines(made: Sequence[Comparison], *, going_on: bool) -> Iterator[str]:
    """A piece a comparison; the first of an axis brings the heading."""
    gap = ""
    for axis, family in groupby(made, key=lambda comparison: comparison.axis):
        head = f"{gap}### {heading(axis, _name, going_on=going_on)}\n\n"
        gap = "\n"
        for comparison in family:
            beside = [*notes(comparison, _name), *details(comparison, _name)]
            told = f"- {sentence(comparison, _name)}\n"
            yield head + told + "".join(f"  - {line}\n" for line in beside)
            head = ""


def _name(text: str) -> str:
    """Within a sentence, where it must leave room for what is said of it."""
    return code(cut_middle(one_line(text, _LONGEST_NAME), _LONGEST_WITHIN))


def _write_lists(contents: Contents, file: TextIO) -> None:
    summary = contents.summary
    listed = first_unpassed(contents, _MOST_LISTED)
    if listed.wrong:
        file.write(f"### {wrong_heading(summary)}\n\n")
        _write_list(listed.wrong, summary.failed, file)
    if listed.errors:
        file.write(f"### {errors_heading(summary)}\n\n")
        _write_list(listed.errors, summary.errors, file)


def _write_list(results: tuple[TrialResult, ...], number: int, file: TextIO) -> None:
    written = _write_within(_LIST_BYTES, _items(results), file)
    if written < number:
        file.write(f"\n… and {number - written:,} more\n")
    file.write("\n")


def _items(results: Iterable[TrialResult]) -> Iterator[str]:
    for result in results:
        why = one_line(reason(result.result), _LONGEST_REASON)
        because = f": {code(why, _LONGEST_REASON)}" if why else ""
        outcome = result.outcome.value.replace("_", " ")
        yield f"- {code(trial_label(result))} {outcome}{because}\n"


def _write_deeds(summary: Summary, file: TextIO) -> None:
    for section in deed_sections(summary, code):
        file.write(f"### {section.heading}\n\n")
        alarms = [f"- **{alarm}**\n" for alarm in section.alarms]
        lines = [f"- {code(label)} {text}\n" for label, text in section.lines]
        # Alarms first: where not all fits, they are what must be read.
        written = _write_within(_DEED_BYTES, [*alarms, *lines], file)
        if left := len(alarms) + len(lines) - written:
            file.write(f"\n… and {left:,} more\n")
        file.write("\n")


def _write_within(most_bytes: int, lines: Iterable[str], file: TextIO) -> int:
    """Writes lines as long as they fit; returns how many did."""
    written = 0
    for line in lines:
        most_bytes -= len(line.encode())
        if most_bytes < 0:
            break
        file.write(line)
        written += 1
    return written
