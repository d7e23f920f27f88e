"""The text printed after a race: a table of all candidates, the evidence, and the verdict last.

It reads the same without colour and without UTF-8, and nothing that a candidate, a test or a hook
wrote can act on the terminal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paraval.racing.findings import ProfiledFunction, RunDifference
from paraval.racing.report.race_words import (
    advice_sentences,
    apply_sentence,
    baseline_sentence,
    by_merit,
    caution_sentences,
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
from paraval.racing.report.standings import CandidateStanding, Standings, Status
from paraval.racing.request import RaceRequest
from paraval.records import RunInfo
from paraval.text.terminal import columns, cut, cut_middle, one_line, printable, to_ascii
from paraval.text.words import counted, duration, percent

# What a text of a race is set on: so wide, with or without colour and UTF-8; harmless in all.

LONGEST = 400
NARROWEST = 48
"""A table in less would not hold a name beside its figures."""
_PAGE_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h)\b|%)")
_HOLD = "\N{NO-BREAK SPACE}"
_CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
"""All but the tab: what ends a line elsewhere would forge one here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStyle:
    """What can be shown where the text goes."""

    width: int = 80
    colour: bool = False
    unicode: bool = True

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    def safe(self, text: str, limit: int = LONGEST) -> str:
        """What others wrote, on one line."""
        return self._spelt(one_line(text, limit))

    def verbatim(self, line: str, limit: int) -> str:
        """A line of a file: its spaces stay, and what does more than show itself is escaped."""
        near = _CONTROLS.sub(_escaped, line[: limit * 4])
        return self.cut(self._spelt(printable(near).expandtabs(8)), limit)

    def cut(self, text: str, limit: int) -> str:
        return cut(text, limit, self.ellipsis)

    def cut_middle(self, text: str, limit: int) -> str:
        return cut_middle(text, limit, self.ellipsis)

    def paint(self, text: str, style: str) -> str:
        is_painted = self.colour and style and text.strip()
        return f"\x1b[{_PAGE_STYLES[style]}m{text}\x1b[0m" if is_painted else text

    def wrapped(self, text: str, width: int | None = None) -> list[str]:
        """Broken between words, but not between a number and its unit."""
        room = self.width if width is None else max(width, 1)
        held = _UNIT.sub(_HOLD, text)
        # Lines are measured in characters, and some of other people's take two columns.
        room = room if columns(held) <= len(held) else max(room // 2, 1)
        lines = textwrap.wrap(held, room, break_on_hyphens=False)
        return [line.replace(_HOLD, " ") for line in lines] or [""]

    def hung(self, start: str, text: str, most: int | None = None) -> list[str]:
        """The text behind its start, on at most so many lines, which stand under one another."""
        room = self.width - columns(start)
        lines = self.wrapped(text, room)
        if most is not None and len(lines) > most:
            last = " ".join(lines[most - 1 :])
            lines = [*lines[: most - 1], self.cut(last, room)]
        first, *others = lines
        indent = " " * columns(start)
        return [f"{start}{first}".rstrip(), *(indent + line for line in others)]

    def _spelt(self, text: str) -> str:
        return text if self.unicode else to_ascii(text)


def padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode("ascii")


# A patch as it is shown: its first lines, each with its style, and nothing in it that acts.

_IN_A_HUNK = {"+": "green", "-": "red"}
_LONGEST = 500


def patch_lines(patch: bytes, page: TextStyle, most: int) -> Iterator[str]:
    """At most so many lines, cut to the page's width and coloured where that is wanted."""
    in_hunk = False
    for line in _lines(patch)[:most]:
        if line.startswith(("diff --git ", "@@ ")):
            in_hunk = line.startswith("@@ ")
            style = "cyan" if in_hunk else "bold"
        elif in_hunk:
            style = _IN_A_HUNK.get(line[:1], "")
        else:
            style = "bold" if line.startswith(("--- ", "+++ ")) else ""
        yield page.paint(page.verbatim(line, page.width), style)


def plain_lines(patch: bytes, most: int) -> list[str]:
    """The same for where there is no width and no colour."""
    page = TextStyle(width=_LONGEST)
    return [page.verbatim(line, page.width) for line in _lines(patch)[:most]]


def count_lines(patch: bytes) -> int:
    return len(_lines(patch))


def _lines(patch: bytes) -> list[str]:
    text = patch.decode(errors="replace")
    return text.removesuffix("\n").split("\n") if text else []


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
class RaceView:
    """What a race's texts are made from."""

    standings: Standings
    run: RunInfo
    request: RaceRequest
    patch: bytes | str | None
    """The winner's; a text: why it cannot be read; None: there is no winner."""


def race_text(shown: RaceView, page: TextStyle) -> str:
    """What is printed after a race; ends without a newline."""
    page = TextStyle(width=max(page.width, NARROWEST), colour=page.colour, unicode=page.unicode)
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


def _table(shown: RaceView, page: TextStyle) -> list[str]:
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


def _speedup(one: CandidateStanding) -> str:
    return speedup_cell(one.speedup) + (" ~" if one.noisy and one.speedup is not None else "")


def _padded(cells: tuple[str, ...], widths: list[int]) -> tuple[str, ...]:
    return tuple(padded(cell, width) for cell, width in zip(cells, widths, strict=True))


def _row(
    one: CandidateStanding, cells: tuple[str, ...], room: int, page: TextStyle
) -> Iterator[str]:
    name, status, *figures = cells
    style = _STYLES.get(one.status, "")
    start = _GAP.join((name, page.paint(status, style), *figures))
    why = page.safe(_why(one))
    if room >= _LEAST_FOR_WHY and why:
        indent = page.width - room
        first, *others = TextStyle(width=page.width, unicode=page.unicode).hung(
            " " * indent, why, _LINES_OF_WHY
        )
        yield start + _GAP + first[indent:]
        yield from others
        return
    yield start.rstrip()
    if why:
        yield from page.hung(" " * 4, why, _LINES_OF_WHY)


def _why(one: CandidateStanding) -> str:
    if one.parent is None:
        return one.reason
    came = f"{one.origin.value} of {one.parent}"
    return f"{one.reason} [{came}]" if one.reason else f"[{came}]"


# ---- the evidence


def _name(one: CandidateStanding, page: TextStyle) -> str:
    return page.cut_middle(page.safe(one.name), int(page.width * _NAME_SHARE))


def _failing(standings: Standings, page: TextStyle) -> list[str]:
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


def _advice(shown: RaceView, page: TextStyle) -> list[str]:
    command, *others = advice_sentences(shown.standings.baseline, shown.run, shown.request)
    # Not wrapped: it is there to be copied.
    return [page.safe(command, 4000), *(line for one in others for line in page.wrapped(one))]


def _flags(standings: Standings, page: TextStyle) -> list[str]:
    flagged = [one for one in standings.candidates if one.flags]
    if not flagged:
        return []
    lines = ["What no candidate should do:"]
    for one in flagged:
        lines += page.hung(f"  {_name(one, page)}: ", page.safe("; ".join(one.flags)), 4)
    return [page.paint(line, "red") for line in lines]


def _differences(standings: Standings, page: TextStyle) -> Iterator[list[str]]:
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


def _difference(difference: RunDifference, page: TextStyle) -> Iterator[str]:
    yield from page.hung("  ", difference_heading(difference, page.safe), 2)
    if difference.expected is not None or difference.actual is not None:
        for word, value in (("expected", difference.expected), ("actual", difference.actual)):
            if value is not None:
                yield from page.hung(f"    {word + ':':<10}", page.safe(value), 2)
    elif difference.message:
        yield from page.hung("    ", page.safe(first_line(difference.message)), 3)


def _patch(shown: RaceView, page: TextStyle) -> list[str]:
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


def _cases(standings: Standings, page: TextStyle) -> list[str]:
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


def _profile(standings: Standings, page: TextStyle) -> list[str]:
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


def _profiled(function: ProfiledFunction, page: TextStyle) -> Iterator[str]:
    name, file = page.safe(function.name), page.safe(function.file)
    yield page.cut(f"  {name}  {file}  {duration(function.seconds)}", page.width)
    whole = function.seconds or 1.0
    hot = [line for line in function.lines if line.seconds / whole >= LEAST_SHARE]
    hottest = sorted(hot, key=lambda line: -line.seconds)[:PROFILED_LINES]
    for line in sorted(hottest, key=lambda line: line.line):
        start = f"  {line.line:>6}  {percent(line.seconds / whole):>7}  {line.hits:>9,}x  "
        yield start + page.verbatim(line.text, max(page.width - len(start), 8))


# ---- the closing sentences


def _closing(shown: RaceView, page: TextStyle) -> list[str]:
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
