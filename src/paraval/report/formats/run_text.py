"""The report of a run as text, on a terminal or in Markdown: a table, the variants compared, what
did not pass, what agents did, and the closing sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TextIO

from paraval.records import TrialResult
from paraval.report.compare.comparison import Comparison, Finding
from paraval.report.compare.sentences import details, heading, not_made, notes, sentence
from paraval.report.compare.variants import number_left_out
from paraval.report.contents import Contents
from paraval.report.gate import GateVerdict
from paraval.report.reasons import reason
from paraval.report.summary.closing import (
    Section,
    closing_sentences,
    deed_sections,
    errors_heading,
    first_unpassed,
    wrong_heading,
)
from paraval.report.summary.columns import summary_table
from paraval.text.document import Markdown, Paragraph, Part, Subheading, TextDocument, render
from paraval.text.tables import Medium, Table, TableRow, list_of
from paraval.text.words import trial_label

_LONGEST_REASON = 300
_LABEL_SHARE = 0.45
_COMPARED_BYTES = 6_000
_DEED_BYTES = 1_500
_FINDING_STYLES = {Finding.BETTER: "green", Finding.WORSE: "red", Finding.NOT_SHOWN: ""}
_VERDICT_STYLES = {
    GateVerdict.MET: "green",
    GateVerdict.MISSED: "red",
    GateVerdict.UNKNOWN: "yellow",
}


class AsMarkdown:
    def write(self, contents: Contents, file: TextIO) -> None:
        file.write(run_text(contents, Markdown()))


def run_text(contents: Contents, out: Medium) -> str:
    """What is printed after a run."""
    told = closing_sentences(contents, lambda text: out.quote(text, _LONGEST_REASON))
    document = TextDocument(
        title=f"paraval: {out.quote(contents.run.suite)}",
        verdict=contents.gate.sentence,
        verdict_style=_VERDICT_STYLES[contents.gate.verdict],
        sections=[
            [summary_table(contents.summary, out)],
            *_comparisons(contents, out),
            *_unpassed(contents, out),
            *(_deeds(section, out) for section in deed_sections(contents.summary, out.quote)),
            [Paragraph(sentence) for sentence in told[:-1]],
        ],
        closing=f"Run {out.quote(contents.run.id)}.",
    )
    return render(document, out)


# ---- the variants compared


def _comparisons(contents: Contents, out: Medium) -> Iterator[list[Part]]:
    made = contents.comparisons
    shown = made[: out.most(12, len(made))]
    families = [list(family) for _, family in groupby(shown, key=lambda one: one.axis)]
    for family in families:
        head = heading(family[0].axis, out.name, going_on=contents.run.running)
        rows = [_comparison(one, out, in_full=len(made) == 1) for one in family]
        command = f"paraval compare {contents.run.id}"
        is_last = family is families[-1]
        table = Table(
            rows=rows,
            unshown=len(made) - len(shown) if is_last else 0,
            hint=f": {out.quote(command)}",
            most_bytes=_COMPARED_BYTES // len(families),
        )
        left_out = number_left_out(contents.book) if is_last else 0
        more = [f"{not_made(left_out)}."] if left_out else []
        yield [Subheading(f"{head}:"), table, list_of(more)]


def _comparison(comparison: Comparison, out: Medium, *, in_full: bool) -> TableRow:
    beside = notes(comparison, out.name)
    if in_full or not out.is_terminal:
        beside += details(comparison, out.name)
    return TableRow(
        beside=sentence(comparison, out.name),
        below=tuple(beside),
        style=_FINDING_STYLES[comparison.finding],
    )


# ---- what did not pass


def _unpassed(contents: Contents, out: Medium) -> Iterator[list[Part]]:
    summary = contents.summary
    wrong, errors = first_unpassed(contents, out.most(20, 200))
    hint = f": paraval report {out.quote(contents.run.id)} -o report.md" * out.is_terminal
    for head, results, number, mark, style in (
        (wrong_heading, wrong, summary.failed, "✗", "red"),
        (errors_heading, errors, summary.errors, "!", "yellow"),
    ):
        if results:
            rows = [_trial(result, mark, style, out) for result in results]
            yield [
                Subheading(head(summary), style),
                Table(
                    rows=rows,
                    label_share=_LABEL_SHARE,
                    beside_lines=1,
                    unshown=number - len(rows),
                    hint=hint,
                ),
            ]


def _trial(result: TrialResult, mark: str, style: str, out: Medium) -> TableRow:
    why = reason(result.result)
    return TableRow(
        label=out.quote(trial_label(result)),
        cells=(result.outcome.value.replace("_", " "),),
        beside=out.quote(why, _LONGEST_REASON) if why else "",
        mark=mark,
        style=style,
    )


# ---- what agents did


def _deeds(section: Section, out: Medium) -> list[Part]:
    lines = [TableRow(label=out.quote(label), beside=text) for label, text in section.lines]
    most = out.most(20, len(lines))
    return [
        Subheading(section.heading),
        # Alarms first: where not all fits, they are what must be read.
        Table(
            rows=[TableRow(beside=alarm, style="red", strong=True) for alarm in section.alarms],
            most_bytes=_DEED_BYTES,
        ),
        Table(
            rows=lines[:most],
            label_share=_LABEL_SHARE,
            between=" ",
            unshown=max(0, len(lines) - most),
            noun="more variant",
            most_bytes=_DEED_BYTES,
        ),
    ]
