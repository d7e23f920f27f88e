"""The text printed after a race: a table of all candidates, the evidence, and the verdict last.

It reads the same without colour and without UTF-8, and nothing that a candidate, a test or a hook
wrote can act on the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paraval.racing.cautions import advice_sentences, caution_sentences
from paraval.racing.findings import Difference, ProfiledFunction
from paraval.racing.page import NARROWEST, Page, padded
from paraval.racing.patch_lines import count_lines, patch_lines
from paraval.racing.request import RaceRequest
from paraval.racing.shown import (
    apply_sentence,
    baseline_sentence,
    by_merit,
    cost_sentence,
    difference_heading,
    first_line,
    measured_sentence,
    resume_sentence,
    speedup_cell,
    status_word,
    tests_cell,
    verdict_sentence,
    winner_of,
)
from paraval.racing.standings import Standing, Standings, Status
from paraval.records import RunInfo
from paraval.report.text import columns
from paraval.report.wording import counted, duration, percent

MOST_PATCH_LINES = 40
MOST_DIFFERENT = 8
"""Candidates whose differences are shown."""
DIFFERENCES_EACH = 3
MOST_FAILING = 20
MOST_TOLD_OF_THE_BASELINE = 5
"""Failing tests that are told with what was expected; the others by name."""
MOST_CASES = 12
PROFILED_FUNCTIONS = 3
PROFILED_LINES = 8
LEAST_SHARE = 0.01
"""Of a function's time: a line that takes less is not hot."""
_GAP = "  "
_LEAST_FOR_WHY = 24
"""Columns; in less, why stands on lines of its own."""
_SHORTEST_NAME = 8
_NAME_SHARE = 0.35
"""Of the width: longer names are cut in their middle."""
_LINES_OF_WHY = 2
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
    """What a race's texts are made from."""

    standings: Standings
    run: RunInfo
    request: RaceRequest
    patch: bytes | str | None
    """The winner's; a text: why it cannot be read; None: there is no winner."""


def race_text(shown: Shown, page: Page) -> str:
    """What is printed after a race; ends without a newline."""
    page = Page(width=max(page.width, NARROWEST), colour=page.colour, unicode=page.unicode)
    standings = shown.standings
    if standings.baseline.reason is not None:
        blocks = [_failing(standings, page), _advice(shown, page), _closing(shown, page)]
    else:
        blocks = [
            _table(shown, page),
            _flags(standings, page),
            *_differences(standings, page),
            _patch(shown, page),
            _cases(standings, page),
            _profile(standings, page),
            _closing(shown, page),
        ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


# ---- the table


def _table(shown: Shown, page: Page) -> list[str]:
    candidates = by_merit(shown.standings.candidates)
    if not candidates:
        return []
    rows: list[tuple[str, ...]] = [
        ("status", "tests", _speedup_heading(shown.request)),
        *((status_word(one.status), tests_cell(one.tests), _speedup(one)) for one in candidates),
    ]
    names = ["candidate", *(page.safe(one.name) for one in candidates)]
    wanted = min(max(map(columns, names)), max(int(page.width * _NAME_SHARE), len(names[0])))
    if wanted + _taken(rows) > page.width:
        # Of a narrow page's columns, the tests can be spared: they stand in why.
        rows = [(status, speedup) for status, _, speedup in rows]
    most = max(min(wanted, page.width - _taken(rows)), _SHORTEST_NAME)
    names = [page.cut_middle(name, most) for name in names]
    table = [(name, *row) for name, row in zip(names, rows, strict=True)]
    widths = _widths(table)
    headings, *rest = (_padded(row, widths) for row in table)
    room = page.width - sum(widths) - len(_GAP) * len(widths)
    lines = [page.paint(_GAP.join((*headings, "why" if room >= _LEAST_FOR_WHY else "")), "bold")]
    for one, cells in zip(candidates, rest, strict=True):
        lines += _row(one, cells, room, page)
    return [line.rstrip() for line in lines]


def _widths(rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(columns, cells)) for cells in zip(*rows, strict=True)]


def _taken(rows: Sequence[tuple[str, ...]]) -> int:
    return sum(len(_GAP) + width for width in _widths(rows))


def _speedup_heading(request: RaceRequest) -> str:
    return f"speed-up ({percent(request.accept.confidence)})"


def _speedup(one: Standing) -> str:
    return speedup_cell(one.speedup) + (" ~" if one.noisy and one.speedup is not None else "")


def _padded(cells: tuple[str, ...], widths: list[int]) -> tuple[str, ...]:
    return tuple(padded(cell, width) for cell, width in zip(cells, widths, strict=True))


def _row(one: Standing, cells: tuple[str, ...], room: int, page: Page) -> Iterator[str]:
    name, status, *figures = cells
    style = _STYLES.get(one.status, "")
    start = _GAP.join((name, page.paint(status, style), *figures))
    why = page.safe(_why(one))
    if room >= _LEAST_FOR_WHY and why:
        indent = page.width - room
        first, *others = Page(width=page.width, unicode=page.unicode).hung(
            " " * indent, why, _LINES_OF_WHY
        )
        yield start + _GAP + first[indent:]
        yield from others
        return
    yield start.rstrip()
    if why:
        yield from page.hung(" " * 4, why, _LINES_OF_WHY)


def _why(one: Standing) -> str:
    if one.parent is None:
        return one.reason
    came = f"{one.origin.value} of {one.parent}"
    return f"{one.reason} [{came}]" if one.reason else f"[{came}]"


# ---- the evidence


def _name(one: Standing, page: Page) -> str:
    return page.cut_middle(page.safe(one.name), int(page.width * _NAME_SHARE))


def _failing(standings: Standings, page: Page) -> list[str]:
    """Of a baseline that did not pass: which tests, and how."""
    baseline, lines = standings.baseline, []
    if baseline.failing:
        lines.append(page.paint("Tests that fail with the baseline:", "red"))
    told = baseline.differences[:MOST_TOLD_OF_THE_BASELINE]
    for difference in told:
        lines += _difference(difference, page)
    names = {difference.name for difference in told}
    rest = [name for name in baseline.failing if name not in names]
    room = max(0, MOST_FAILING - len(told))
    lines += [f"  {page.cut_middle(page.safe(name), page.width - 2)}" for name in rest[:room]]
    if (more := len(rest) - room) > 0:
        lines.append(f"  {page.ellipsis} and {more:,} more")
    return lines


def _advice(shown: Shown, page: Page) -> list[str]:
    command, *others = advice_sentences(shown.standings.baseline, shown.run, shown.request)
    # Not wrapped: it is there to be copied.
    return [page.safe(command, 4000), *(line for one in others for line in page.wrapped(one))]


def _flags(standings: Standings, page: Page) -> list[str]:
    flagged = [one for one in standings.candidates if one.flags]
    if not flagged:
        return []
    lines = ["What no candidate should do:"]
    for one in flagged:
        lines += page.hung(f"  {_name(one, page)}: ", page.safe("; ".join(one.flags)), 4)
    return [page.paint(line, "red") for line in lines]


def _differences(standings: Standings, page: Page) -> Iterator[list[str]]:
    different = [one for one in standings.candidates if one.differences]
    for one in different[:MOST_DIFFERENT]:
        heading = f"{_name(one, page)}: {status_word(one.status)}"
        lines = [page.paint(heading, "bold")]
        for difference in one.differences[:DIFFERENCES_EACH]:
            lines += _difference(difference, page)
        more = len(one.differences) - DIFFERENCES_EACH + one.more_differences
        if more > 0:
            lines.append(f"  {page.ellipsis} and {counted(more, 'more difference')}")
        yield lines
    if (more := len(different) - MOST_DIFFERENT) > 0:
        yield [f"{page.ellipsis} and {counted(more, 'more candidate')} with differences"]


def _difference(difference: Difference, page: Page) -> Iterator[str]:
    yield from page.hung("  ", difference_heading(difference, page.safe), 2)
    if difference.expected is not None or difference.actual is not None:
        for word, value in (("expected", difference.expected), ("actual", difference.actual)):
            if value is not None:
                yield from page.hung(f"    {word + ':':<10}", page.safe(value), 2)
    elif difference.message:
        yield from page.hung("    ", page.safe(first_line(difference.message)), 3)


def _patch(shown: Shown, page: Page) -> list[str]:
    winner = winner_of(shown.standings)
    if winner is None or not shown.patch:
        return []
    if isinstance(shown.patch, str):
        return page.wrapped(page.safe(shown.patch))
    lines = []
    if winner.note:
        note = f"{page.safe(winner.name)} was proposed with: {page.safe(winner.note)}"
        lines += page.hung("", note, 3)
    lines.append(page.paint(f"{_name(winner, page)}, as a patch:", "bold"))
    lines += patch_lines(shown.patch, page, MOST_PATCH_LINES)
    more = count_lines(shown.patch) - MOST_PATCH_LINES
    if more > 0:
        lines.append(f"{page.ellipsis} and {counted(more, 'more line')}")
    return lines


def _cases(standings: Standings, page: Page) -> list[str]:
    """Of the winner, where its benchmark tells of several."""
    winner = winner_of(standings)
    if winner is None or not winner.cases:
        return []
    shown = [(page.safe(name), speedup) for name, speedup in winner.cases.items()][:MOST_CASES]
    width = min(max(columns(name) for name, _ in shown), int(page.width * _NAME_SHARE))
    lines = [page.paint(f"{_name(winner, page)}, by case of the benchmark:", "bold")]
    for name, speedup in shown:
        start = padded(page.cut_middle(name, width), width)
        lines.append(f"  {start}{_GAP}{speedup_cell(speedup)}")
    if (more := len(winner.cases) - len(shown)) > 0:
        lines.append(f"  {page.ellipsis} and {counted(more, 'more case')}")
    return lines


def _profile(standings: Standings, page: Page) -> list[str]:
    winner = winner_of(standings)
    if winner is None:
        return []
    if standings.profile_problem is not None:
        told = f"No profile of {_name(winner, page)}: {page.safe(standings.profile_problem)}"
        return page.wrapped(told)
    if not standings.profile:
        return []
    lines = [page.paint(f"Where {_name(winner, page)} spends its time, by line:", "bold")]
    for function in standings.profile[:PROFILED_FUNCTIONS]:
        lines += _profiled(function, page)
    return lines


def _profiled(function: ProfiledFunction, page: Page) -> Iterator[str]:
    name, file = page.safe(function.name), page.safe(function.file)
    yield page.cut(f"  {name}  {file}  {duration(function.seconds)}", page.width)
    whole = function.seconds or 1.0
    hot = [line for line in function.lines if line.seconds / whole >= LEAST_SHARE]
    hottest = sorted(hot, key=lambda line: -line.seconds)[:PROFILED_LINES]
    for line in sorted(hottest, key=lambda line: line.line):
        start = f"  {line.line:>6}  {percent(line.seconds / whole):>7}  {line.hits:>9,}x  "
        yield start + page.verbatim(line.text, max(page.width - len(start), 8))


# ---- the closing sentences


def _closing(shown: Shown, page: Page) -> list[str]:
    standings, request = shown.standings, shown.request
    winner = winner_of(standings)
    sentences = [baseline_sentence(standings.baseline, page.safe)]
    told = (measured_sentence(standings, request), cost_sentence(standings, request))
    sentences += [sentence for sentence in told if sentence is not None]
    sentences += caution_sentences(standings, request, page.safe)
    lines = [line for sentence in sentences for line in page.wrapped(sentence)]
    if winner is not None and isinstance(shown.patch, bytes):
        # Not wrapped: it is there to be copied.
        lines.append(page.safe(apply_sentence(shown.run, winner.name), 4000))
    if not standings.over or shown.run.held_back:
        lines.append(page.safe(resume_sentence(shown.run, request), 4000))
    style = "green" if winner is not None else "red" if standings.baseline.reason else "yellow"
    verdict = verdict_sentence(standings, request, page.safe)
    return [*lines, *(page.paint(line, style) for line in page.wrapped(verdict))]
