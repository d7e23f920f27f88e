"""A comparison of two sides on the terminal.

It reads the same without colour and without UTF-8, and nothing that a target wrote can act on the
terminal.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from paraval.report.compare.outline import ChangedCases, ComparisonOutline, FigureRow
from paraval.report.formats.markdown import code
from paraval.text.terminal import columns, cut, cut_middle, one_line, to_ascii

# A comparison of two sides in Markdown that fits a comment on a pull request.

# GitHub takes 65,536 characters in a comment; each part has its share of the bytes below that.
_LIST_BYTES = 14_000
_VARIANT_BYTES = 10_000
_LONGEST_MARKDOWN_REASON = 300


def story_markdown(story: ComparisonOutline) -> str:
    """Of a story whose names are quoted by `as_markdown.code`."""
    parts = [
        "## paraval: comparison",
        f"**{story.headline}**",
        f"A: {story.reference}\n\nB: {story.subject}",
        "".join(_markdown_table(story.rows)),
        "\n\n".join(story.figures),
        _markdown_by_variant(story),
        *(_markdown_cases(one) for one in story.lists),
        "\n\n".join(story.notices),
        story.gate or "",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _markdown_table(rows: Iterable[FigureRow]) -> Iterator[str]:
    yield "| | A | B |\n| --- | ---: | ---: |\n"
    for row in rows:
        yield f"| {row.heading} | {row.reference} | {row.subject} |\n"


def _markdown_by_variant(story: ComparisonOutline) -> str:
    if not story.by_variant:
        return ""
    lines = [f"- {line}\n" for line in story.by_variant]
    return "### By variant\n\n" + _within(_VARIANT_BYTES, lines, len(lines))


def _markdown_cases(listed: ChangedCases) -> str:
    lines = (f"- {code(name)}{_because(why)}\n" for name, why in listed.cases)
    number = len(listed.cases) + listed.more
    return f"### {listed.heading}\n\n" + _within(_LIST_BYTES, lines, number)


def _because(why: str) -> str:
    return f": {code(why, _LONGEST_MARKDOWN_REASON)}" if why else ""


def _within(most_bytes: int, lines: Iterable[str], number: int) -> str:
    """The lines that fit, of so many, and how many don't."""
    fitting = []
    for line in lines:
        most_bytes -= len(line.encode())
        if most_bytes < 0:
            break
        fitting.append(line)
    more = number - len(fitting)
    return "".join(fitting) + (f"\n… and {more:,} more\n" if more else "")


NARROWEST = 40
_GAP = "  "
_LONGEST_NAME = 200
_LONGEST_REASON = 500
_TOGETHER = re.compile(r"p [<=] [0-9.]+|[0-9.]+ (?:%|points?|cases?)")
"""What is not broken between lines."""
_HOLD = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonStyle:
    """What can be shown where the text goes."""

    width: int
    unicode: bool

    def safe(self, text: str, limit: int = _LONGEST_NAME) -> str:
        line = one_line(text, limit)
        return line if self.unicode else to_ascii(line)

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    def wrapped(self, sentence: str, start: str = "") -> list[str]:
        """Further lines stand under the text, behind its start."""
        room = self.width - columns(start)
        held = _TOGETHER.sub(lambda match: match[0].replace(" ", _HOLD), sentence)
        # Lines are measured in characters, and some of other people's take two columns.
        room = room if columns(held) <= len(held) else room // 2
        lines = textwrap.wrap(held, room, break_on_hyphens=False) or [""]
        first, *others = (line.replace(_HOLD, " ") for line in lines)
        return [start + first, *(" " * columns(start) + line for line in others)]


def paper(width: int, *, unicode: bool) -> ComparisonStyle:
    return ComparisonStyle(width=max(width, NARROWEST), unicode=unicode)


def story_text(story: ComparisonOutline, page: ComparisonStyle) -> str:
    """Ends without a newline."""
    blocks = [
        page.wrapped(story.headline),
        [*page.wrapped(story.reference, "A: "), *page.wrapped(story.subject, "B: ")],
        list(_table(story.rows)),
        [line for figure in story.figures for line in page.wrapped(figure)],
        list(_by_variant(story, page)),
        *(list(_cases(one, page)) for one in story.lists),
        [line for notice in story.notices for line in page.wrapped(notice)],
        [] if story.gate is None else page.wrapped(story.gate),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _table(rows: Sequence[FigureRow]) -> Iterator[str]:
    heading = max(len(row.heading) for row in rows)
    first = max(1, *(len(row.reference) for row in rows))
    second = max(1, *(len(row.subject) for row in rows))
    yield f"{'':{heading}}{_GAP}{'A':>{first}}{_GAP}{'B':>{second}}"
    for row in rows:
        figures = f"{_GAP}{row.reference:>{first}}{_GAP}{row.subject:>{second}}"
        yield f"{row.heading:{heading}}{figures}"


def _by_variant(story: ComparisonOutline, page: ComparisonStyle) -> Iterator[str]:
    if story.by_variant:
        yield "By variant:"
        for line in story.by_variant:
            yield from page.wrapped(line, _GAP)


def _cases(listed: ChangedCases, page: ComparisonStyle) -> Iterator[str]:
    yield from page.wrapped(listed.heading)
    names = [page.safe(name) for name, _ in listed.cases]
    more = f"{page.ellipsis} and {listed.more:,} more: --all shows them" if listed.more else ""
    if not any(why for _, why in listed.cases):
        told = ", ".join(names)
        yield from page.wrapped(f"{told}, {more}" if more else told, _GAP)
        return
    width = min(max(map(columns, names)), page.width * 45 // 100)
    room = page.width - width - 2 * len(_GAP)
    for name, (_, why) in zip(names, listed.cases, strict=True):
        shown = cut_middle(name, width, page.ellipsis)
        reason = cut(page.safe(why, _LONGEST_REASON), room, page.ellipsis)
        yield f"{_GAP}{shown}{' ' * (width - columns(shown))}{_GAP}{reason}".rstrip()
    if more:
        yield f"{_GAP}{more}"
