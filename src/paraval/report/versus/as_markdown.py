"""A comparison of two sides in Markdown that fits a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paraval.report.as_markdown import code
from paraval.report.versus.story import CaseList, Row, Story

# GitHub takes 65,536 characters in a comment; each part has its share of the bytes below that.
_LIST_BYTES = 14_000
_VARIANT_BYTES = 10_000
_LONGEST_REASON = 300


def story_markdown(story: Story) -> str:
    """Of a story whose names are quoted by `as_markdown.code`."""
    parts = [
        "## paraval: comparison",
        f"**{story.headline}**",
        f"A: {story.reference}\n\nB: {story.subject}",
        "".join(_table(story.rows)),
        "\n\n".join(story.figures),
        _by_variant(story),
        *(_cases(one) for one in story.lists),
        "\n\n".join(story.notices),
        story.gate or "",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    yield "| | A | B |\n| --- | ---: | ---: |\n"
    for row in rows:
        yield f"| {row.heading} | {row.reference} | {row.subject} |\n"


def _by_variant(story: Story) -> str:
    if not story.by_variant:
        return ""
    lines = [f"- {line}\n" for line in story.by_variant]
    return "### By variant\n\n" + _within(_VARIANT_BYTES, lines, len(lines))


def _cases(listed: CaseList) -> str:
    lines = (f"- {code(name)}{_because(why)}\n" for name, why in listed.cases)
    number = len(listed.cases) + listed.more
    return f"### {listed.heading}\n\n" + _within(_LIST_BYTES, lines, number)


def _because(why: str) -> str:
    return f": {code(why, _LONGEST_REASON)}" if why else ""


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
