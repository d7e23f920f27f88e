"""The report of a run as text, on a terminal or in Markdown: a table, the variants compared,
failures and errors, what agents did, and the closing lines.

Markdown has every detail; a terminal has them only with `verbose`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from shlex import quote
from typing import TextIO

from paraval.dataclass import dataclass
from paraval.records import Outcome, RunInfo
from paraval.report.compare.claims import (
    cautions,
    claim_of,
    details,
    heading,
    left_out,
    not_made,
    notes,
)
from paraval.report.compare.comparison import Comparison, Finding
from paraval.report.compare.variants import number_left_out
from paraval.report.contents import Contents
from paraval.report.gate import GateVerdict
from paraval.report.summary.closing import (
    Section,
    UnpassedGroup,
    broken_graders,
    closing_sentences,
    deed_sections,
    errors_heading,
    first_unpassed,
    unpassed_counts,
    wrong_heading,
)
from paraval.report.summary.figures import breakdown_tables, summary_table
from paraval.text.document import Markdown, Paragraph, Part, Subheading, TextDocument, render
from paraval.text.tables import Medium, Table, TableRow, list_of
from paraval.text.words import percent, variant_label

_LONGEST_REASON = 300
_LONGEST_ERROR = 1_000
_MOST_FAILED = 10
_MOST_ERRORS = 5
_MOST_IN_MARKDOWN = 100
"""Of failures, and of errors."""
_LABEL_SHARE = 0.45
_COMPARED_BYTES = 6_000
_DEED_BYTES = 1_500
_FINDING_STYLES = {Finding.BETTER: "green", Finding.WORSE: "red", Finding.NOT_SHOWN: ""}
_VERDICT_STYLES = {
    GateVerdict.NONE: "",
    GateVerdict.MET: "green",
    GateVerdict.MISSED: "red",
    GateVerdict.UNKNOWN: "yellow",
}


class AsMarkdown:
    def write(self, contents: Contents, file: TextIO) -> None:
        file.write(run_text(contents, Markdown()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDetail:
    """How much of a run a terminal shows."""

    verbose: bool = False
    """Also p-values, power, left-out cases, p95, tokens, retries and notes on unknown costs."""
    are_failures_above: bool = False
    """The terminal has just shown each failure and error: they are only counted."""
    resume: str = ""
    """The command that resumes the run, if it is not `paraval resume ID`."""


def run_text(contents: Contents, out: Medium, detail: TextDetail | None = None) -> str:
    """The report that is printed after a run."""
    detail = detail or TextDetail()
    in_full = detail.verbose or not out.is_terminal
    closing = closing_sentences(
        contents,
        lambda text: out.quote(text, _LONGEST_REASON),
        in_full=in_full,
        resume=detail.resume,
    )
    document = TextDocument(
        title=f"paraval: {out.quote(contents.run.suite)}",
        verdict=contents.gate.sentence,
        verdict_style=_VERDICT_STYLES[contents.gate.verdict],
        sections=[
            [Paragraph(out.quote(sentence)) for sentence in _header(contents.run)],
            [Paragraph(sentence) for sentence in broken_graders(contents.summary, out.quote)],
            [summary_table(contents.summary, out, in_full=in_full, running=contents.run.running)],
            *([table] for table in breakdown_tables(contents.summary, out, in_full=in_full)),
            *_comparisons(contents, out, detail),
            *_unpassed(contents, out, detail),
            *(_regressed(contents, out) if in_full else ()),
            *(_deeds(section, out) for section in deed_sections(contents.summary, out.quote)),
            [Paragraph(sentence) for sentence in closing],
        ],
        closing=f"Run {out.quote(contents.run.id)}.",
    )
    return render(document, out)


def _header(run: RunInfo) -> Iterator[str]:
    """What the run is of, if not of all that its suite has."""
    if run.regraded_from is not None:
        yield f"Regraded from run {run.regraded_from}"
    yield from (notice.message for notice in run.notices if notice.waited_s is None)
    for part in (run.models, run.cases):
        if part is not None:
            yield part.sentence


# ---- the variants compared


def _comparisons(contents: Contents, out: Medium, detail: TextDetail) -> Iterator[list[Part]]:
    made = contents.comparisons
    shown = made[: out.most(12, len(made))]
    families = [list(family) for _, family in groupby(shown, key=lambda one: one.axis)]
    for family in families:
        # What is shown comes first: it is what one looks for.
        family.sort(key=lambda one: one.finding is Finding.NOT_SHOWN)
        in_full = len(made) == 1
        rows = (
            _short_rows(family, out, verbose=detail.verbose, in_full=in_full)
            if out.is_terminal
            else [_full_row(one, out) for one in family]
        )
        command = f"paraval compare {contents.run.id}"
        is_last = family is families[-1]
        table = Table(
            rows=rows,
            unshown=len(made) - len(shown) if is_last else 0,
            hint=f": {out.quote(command)}",
            most_bytes=_COMPARED_BYTES // len(families),
        )
        uncompared = number_left_out(contents.book) if is_last else 0
        more = [f"{not_made(uncompared)}."] if uncompared else []
        yield [Subheading(f"{_heading(contents, family, out)}:"), table, list_of(more)]


def _heading(contents: Contents, family: Sequence[Comparison], out: Medium) -> str:
    """`Compared by model (95% confidence interval)`; the last part only if a row has one."""
    first = family[0]
    head = heading(first.axis, out.name, going_on=contents.run.running)
    if not (out.is_terminal and any(claim_of(one, out.name).interval for one in family)):
        return head
    at_any_time = "" if first.stopped is None else ", valid at any time"
    return f"{head} ({percent(first.confidence)} confidence interval{at_any_time})"


def _short_rows(
    family: Sequence[Comparison], out: Medium, *, verbose: bool, in_full: bool
) -> list[TableRow]:
    """One aligned line each; `in_full`: also time, cost and which cases changed."""
    claims = [claim_of(one, out.name) for one in family]
    width = max(len(claim.estimate) for claim in claims)
    rows = []
    for comparison, claim in zip(family, claims, strict=True):
        below = list(cautions(comparison))
        if verbose:
            evidence = "; ".join(filter(None, (", ".join(claim.counts), claim.power)))
            below = [*([evidence] if evidence else ()), *left_out(comparison, out.name), *below]
        if in_full or verbose:
            below += details(comparison, out.name)
        interval = f"({claim.interval})" if claim.interval else ""
        rows.append(
            TableRow(
                label=claim.names,
                cells=(f"{claim.estimate:<{width}} {interval}".rstrip(),),
                beside=claim.verdict,
                below=tuple(below),
                style=_FINDING_STYLES[comparison.finding],
            )
        )
    return rows


def _full_row(comparison: Comparison, out: Medium) -> TableRow:
    below = (*notes(comparison, out.name), *details(comparison, out.name))
    return TableRow(beside=claim_of(comparison, out.name).sentence, below=below)


# ---- failures and errors


def _unpassed(contents: Contents, out: Medium, detail: TextDetail) -> Iterator[list[Part]]:
    summary = contents.summary
    if detail.are_failures_above:
        if counts := unpassed_counts(summary):
            yield [Paragraph(f"{counts} (listed above)"), *_how_to_see_one(contents, out)]
        return
    failed, errors = first_unpassed(
        contents,
        out.most(_MOST_FAILED, _MOST_IN_MARKDOWN),
        out.most(_MOST_ERRORS, _MOST_IN_MARKDOWN),
    )
    command = f"paraval report {contents.run.id} -o report.html"
    hint = f": {out.quote(command)}" * out.is_terminal
    for head, groups, number, mark, style, lines in (
        (wrong_heading, failed, summary.failed, "✗", "red", 1),
        (errors_heading, errors, summary.errors, "!", "yellow", None),
    ):
        if groups:
            yield [
                Subheading(head(summary), style),
                Table(
                    rows=_group_rows(groups, mark, style, out),
                    label_share=_LABEL_SHARE,
                    beside_lines=lines,
                    unshown=number - sum(group.number for group in groups),
                    hint=hint,
                ),
            ]
    if failed or errors:
        yield _how_to_see_one(contents, out)


def _how_to_see_one(contents: Contents, out: Medium) -> list[Part]:
    """On a terminal, the command that shows what was asked and why the first of them failed."""
    if not (out.is_terminal and contents.run.folder):
        return []
    first = next(
        one for one in contents.trials if one.outcome.is_error or one.outcome is Outcome.FAILED
    )
    command = f"paraval show {contents.run.id} --case {quote(first.case_id)}"
    return [Paragraph(f"To see why: {out.quote(command)}")]


def _regressed(contents: Contents, out: Medium) -> Iterator[list[Part]]:
    """All of them: the gate's sentence names only the first few."""
    found = contents.gate.regressions
    if found is not None and found.regressed:
        names = found.regressed[: out.most(len(found.regressed), _MOST_IN_MARKDOWN)]
        unshown = len(found.regressed) - len(names)
        table = Table(rows=[TableRow(beside=out.quote(name)) for name in names], unshown=unshown)
        yield [Subheading(f"{len(found.regressed):,} regressed against the baseline:"), table]


def _group_rows(
    groups: Sequence[UnpassedGroup], mark: str, style: str, out: Medium
) -> list[TableRow]:
    has_repeats = any(group.repeats > 1 for group in groups)
    rows = []
    for group in groups:
        result = group.first
        count = f"{group.number:,}/{group.repeats:,}" if group.repeats > 1 else ""
        names = filter(None, (result.case_id, variant_label(result.variant)))
        rows.append(
            TableRow(
                label=out.quote(" · ".join(names)),
                cells=(count,) if has_repeats else (),
                beside=_why(group, out),
                mark=mark,
                style=style,
            )
        )
    return rows


def _why(group: UnpassedGroup, out: Medium) -> str:
    """The reason; for errors after their kind: `timeout: not done after 4 s`."""
    outcome = group.first.outcome
    kind = outcome.value.replace("_", " ") if outcome.is_error else ""
    if not group.reason or group.reason == outcome.value:
        return kind
    longest = _LONGEST_ERROR if kind and out.is_terminal else _LONGEST_REASON
    return ": ".join(filter(None, (kind, out.quote(group.reason, longest))))


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
