"""The report of a race as text, on a terminal or in Markdown: a table of all candidates, the
evidence, and the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from paraval.dataclass import dataclass
from paraval.racing.findings import ProfiledFunction, RunDifference
from paraval.racing.report.race_words import (
    KeyRow,
    advice_sentences,
    amount,
    apply_sentence,
    baseline_sentence,
    by_merit,
    caution_sentences,
    cost_sentence,
    difference_heading,
    key_rows,
    machines_sentence,
    measured_sentence,
    resume_sentence,
    speedup_cell,
    status_word,
    tests_cell,
    verdict_sentence,
    winner_of,
)
from paraval.racing.request import RaceRequest
from paraval.racing.standings import CandidateStanding, Standings, Status
from paraval.records import RunInfo
from paraval.text.document import (
    Paragraph,
    Part,
    Subheading,
    TextDocument,
    Verbatim,
    patch_style,
    render,
)
from paraval.text.tables import Column, Medium, Table, TableRow, list_of
from paraval.text.words import duration, percent

_MOST_DIFFERENT = 8
"""Candidates whose differences are shown."""
_LINES_OF_A_MESSAGE = 2
_DIFFERENCES_EACH = 3
_MOST_FAILING = 20
_MOST_DETAILED_FAILURES = 5
"""Failing baseline tests shown with expected values; the rest by name."""
_MOST_CASES = 12
_MOST_KEYS = 50
_PROFILED_FUNCTIONS = 3
_PROFILED_LINES = 8
_LEAST_SHARE = 0.01
"""Share of a function's time below which a line is not hot."""
_LABEL_SHARE = 0.35
_LONGEST_VALUE = 300
_LONGEST_COMMAND = 4000
_STYLES = {
    Status.WON: "green",
    Status.ACCEPTED: "green",
    Status.FAILED: "red",
    Status.TIMEOUT: "yellow",
    Status.CRASHED: "yellow",
    Status.INFRA_ERROR: "yellow",
    Status.INVALID: "yellow",
    Status.DUPLICATE: "dim",
    Status.SKIPPED: "dim",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the text of a race is made from."""

    standings: Standings
    run: RunInfo
    request: RaceRequest
    patch: bytes | str | None
    """The winner's patch as bytes; a string: why it cannot be read; None: no winner."""


def race_text(shown: Shown, out: Medium) -> str:
    """The text printed after a race."""
    standings, request = shown.standings, shown.request
    winner, failed = winner_of(standings), standings.baseline.reason is not None
    sections: list[Sequence[Part]]
    if failed:
        sections = [_failing(standings, out), _advice(shown, out)]
    else:
        sections = [[_table(shown, out)], _flags(standings, out), *_differences(standings, out)]
        if request.head is not None and (rows := key_rows(standings)):
            sections[0] = [_keys(rows, request, out)]
    if winner is not None and not failed and request.head is None:
        sections.append(list(_patch(winner, shown, out)))
        if out.is_terminal:
            sections += (_cases(winner, out), _profile(shown, winner, out))
    document = TextDocument(
        title=f"paraval race: {out.quote(shown.run.suite)}",
        verdict=verdict_sentence(standings, request, _value(out)),
        verdict_style="green" if winner else "red" if failed or _is_worse(shown) else "yellow",
        sections=[*sections, list(_closing(shown, winner, out))],
        closing=f"Run {out.quote(shown.run.id)}.",
    )
    return render(document, out)


def _is_worse(shown: Shown) -> bool:
    """Whether a comparison of two refs shows a regression."""
    worse = (Status.SLOWER, Status.FAILED, Status.CRASHED, Status.TIMEOUT)
    return shown.request.head is not None and shown.standings.candidates[0].status in worse


def _keys(several: Sequence[KeyRow], request: RaceRequest, out: Medium) -> Table:
    """The table of a comparison of two refs."""
    columns: list[Column[KeyRow]] = [
        Column(
            heading=out.quote(request.keys.repo.ref), cell=lambda row: amount(row.base_s, request)
        ),
        Column(heading=out.quote(request.head or ""), cell=lambda row: amount(row.head_s, request)),
        Column(heading="delta", cell=lambda row: _delta(row.delta_s, request)),
        Column(
            heading=f"speedup ({percent(request.accept.confidence)})",
            cell=lambda row: speedup_cell(row.speedup),
            is_left=True,
        ),
    ]
    most = out.most(_MOST_KEYS, len(several))
    shown = several if len(several) <= most else [*several[: most - 1], several[-1]]
    rows = [
        TableRow(label=out.quote(row.key), cells=tuple(column.cell(row) for column in columns))
        for row in shown
    ]
    unshown = len(several) - len(shown)
    return Table(
        label="key",
        columns=columns,
        rows=rows,
        label_share=_LABEL_SHARE,
        unshown=unshown,
        noun="more key",
    )


def _delta(value: float, request: RaceRequest) -> str:
    return f"{'-' if value < 0 else '+'}{amount(abs(value), request)}"


def _value(out: Medium) -> Callable[[str], str]:
    return lambda text: out.quote(text, _LONGEST_VALUE)


def _table(shown: Shown, out: Medium) -> Table:
    measured = [one for one in shown.standings.candidates if one.speedup is not None]
    # A mark on every row says nothing: the caution says it once.
    marks = not all(one.noisy for one in measured)
    columns: list[Column[CandidateStanding]] = [
        Column(heading="status", cell=lambda one: status_word(one.status), is_left=True),
        # On a narrow page the tests column can go: the reason repeats it.
        Column(
            heading="tests", cell=lambda one: tests_cell(one.tests), is_left=True, is_spare=True
        ),
        Column(
            heading=f"speedup ({percent(shown.request.accept.confidence)})",
            cell=lambda one: _speedup(one, marks=marks),
            is_left=True,
        ),
    ]
    rows = [
        TableRow(
            label=out.quote(one.name),
            cells=tuple(column.cell(one) for column in columns),
            beside=out.quote(why, _LONGEST_VALUE) if (why := _why(one)) else "",
            style=_STYLES.get(one.status, ""),
        )
        for one in by_merit(shown.standings.candidates)
    ]
    return Table(
        label="candidate",
        columns=columns,
        beside="why",
        rows=rows,
        label_share=_LABEL_SHARE,
        beside_lines=2,
        most_bytes=15_000,
    )


def _speedup(one: CandidateStanding, *, marks: bool) -> str:
    return speedup_cell(one.speedup) + " ~" * (marks and one.noisy and one.speedup is not None)


def _why(one: CandidateStanding) -> str:
    came = "" if one.round is None else f"[round {one.round + 1}]"
    if one.parent is not None:
        came = f"[from {one.parent}]"
    return f"{one.reason} {came}".strip()


# ---- the evidence


def _failing(standings: Standings, out: Medium) -> list[Part]:
    """The failing tests of a baseline that did not pass."""
    baseline = standings.baseline
    detailed = baseline.differences[:_MOST_DETAILED_FAILURES]
    names = {difference.name for difference in detailed}
    rest = [out.quote(name) for name in baseline.failing if name not in names]
    room = out.most(_MOST_FAILING - len(detailed), len(rest))
    head = [Subheading("Tests that fail on the baseline:", "red")] if baseline.failing else []
    return [
        *head,
        Table(rows=[_difference(one, out) for one in detailed], beside_lines=2),
        list_of(rest[:room], beside_lines=1, unshown=max(0, len(rest) - room)),
    ]


def _advice(shown: Shown, out: Medium) -> list[Part]:
    command, *others = advice_sentences(shown.standings.baseline, shown.run, shown.request)
    return [
        Paragraph(out.quote(command, _LONGEST_COMMAND), is_copied=True),
        *map(Paragraph, others),
    ]


def _flags(standings: Standings, out: Medium) -> list[Part]:
    rows = [
        TableRow(
            beside=f"{out.name(one.name)}: {out.quote('; '.join(one.flags), _LONGEST_VALUE)}",
            style="red",
            strong=True,
        )
        for one in standings.candidates
        if one.flags
    ]
    heading = Subheading("Forbidden for candidates:", "red")
    return [heading, Table(rows=rows, beside_lines=4, most_bytes=6_000)] if rows else []


def _differences(standings: Standings, out: Medium) -> Iterator[list[Part]]:
    different = [one for one in standings.candidates if one.differences]
    for one in different[:_MOST_DIFFERENT]:
        shown = one.differences[:_DIFFERENCES_EACH]
        yield [
            Subheading(f"{out.name(one.name)}: {status_word(one.status)}"),
            Table(
                rows=[_difference(difference, out) for difference in shown],
                beside_lines=2,
                unshown=len(one.differences) - len(shown) + one.more_differences,
                noun="more difference",
                most_bytes=2_500,
            ),
        ]
    if (more := len(different) - _MOST_DIFFERENT) > 0:
        yield [Table(rows=[], unshown=more, noun="more candidate", hint=" with differences")]


def _difference(difference: RunDifference, out: Medium) -> TableRow:
    # As the tester said it: which side of a comparison is right is not for us to guess.
    lines = difference.message.strip().splitlines()[:_LINES_OF_A_MESSAGE]
    values = [out.quote(line, _LONGEST_VALUE) for line in lines if line.strip()]
    return TableRow(beside=difference_heading(difference, out.quote), below=tuple(values))


def _patch(winner: CandidateStanding, shown: Shown, out: Medium) -> Iterator[Part]:
    """The winner's note and its patch."""
    name = out.name(winner.name)
    if winner.note:
        yield Paragraph(f"Note on {name}: {out.quote(winner.note, _LONGEST_VALUE)}")
    if isinstance(shown.patch, str):
        yield Paragraph(out.quote(shown.patch, _LONGEST_VALUE))
    elif shown.patch:
        lines = shown.patch.decode(errors="replace").removesuffix("\n").split("\n")
        most = out.most(40, 400)
        yield Verbatim(
            heading=f"Patch of {name}",
            lines=list(_styled(lines[:most])),
            unshown=max(0, len(lines) - most),
            language="diff",
        )


def _styled(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    in_hunk = False
    for line in lines:
        style, in_hunk = patch_style(line, in_hunk=in_hunk)
        yield line, style


def _cases(winner: CandidateStanding, out: Medium) -> list[Part]:
    """The winner's speedup by benchmark case, if the benchmark reports several."""
    rows = [
        TableRow(label=out.quote(name), cells=(speedup_cell(speedup),))
        for name, speedup in [*winner.cases.items()][:_MOST_CASES]
    ]
    more = len(winner.cases) - len(rows)
    heading = Subheading(f"{out.name(winner.name)} by benchmark case:")
    table = Table(rows=rows, label_share=_LABEL_SHARE, unshown=more, noun="more case")
    return [heading, table] if rows else []


def _profile(shown: Shown, winner: CandidateStanding, out: Medium) -> list[Part]:
    problem, profile = shown.standings.profile_problem, shown.standings.profile
    name = out.name(winner.name)
    if problem is not None:
        return [Paragraph(f"No profile for {name}: {out.quote(problem, _LONGEST_VALUE)}")]
    lines = [
        (line, "")
        for function in (profile or ())[:_PROFILED_FUNCTIONS]
        for line in _profiled(function)
    ]
    heading = f"Where {name} spends its time, by line"
    return [Verbatim(heading=heading, lines=lines)] if lines else []


def _profiled(function: ProfiledFunction) -> Iterator[str]:
    yield f"  {function.name}  {function.file}  {duration(function.seconds)}"
    whole = function.seconds or 1.0
    hot = [line for line in function.lines if line.seconds / whole >= _LEAST_SHARE]
    hottest = sorted(hot, key=lambda line: -line.seconds)[:_PROFILED_LINES]
    for line in sorted(hottest, key=lambda line: line.line):
        share = percent(line.seconds / whole)
        yield f"  {line.line:>6}  {share:>7}  {line.hits:>9,}x  {line.text}"


# ---- the closing sentences


def _closing(shown: Shown, winner: CandidateStanding | None, out: Medium) -> Iterator[Paragraph]:
    standings, request = shown.standings, shown.request
    sentences = [
        baseline_sentence(standings.baseline, request, out.quote),
        measured_sentence(standings, request),
        machines_sentence(standings, out.quote),
        cost_sentence(standings, request),
        *caution_sentences(standings, request, _value(out)),
    ]
    yield from (Paragraph(sentence) for sentence in sentences if sentence is not None)
    commands = []
    if winner is not None and isinstance(shown.patch, bytes) and request.head is None:
        commands.append(apply_sentence(shown.run, winner.name))
    if not standings.over or shown.run.held_back:
        commands.append(resume_sentence(shown.run, request))
    if out.is_terminal:
        # Not wrapped, so that they can be copied.
        for command in commands:
            yield Paragraph(out.quote(command, _LONGEST_COMMAND), is_copied=True)
