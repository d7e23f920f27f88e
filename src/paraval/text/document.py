"""A small document: sections of headings, paragraphs, tables, lists and files, shown on a terminal
or as Markdown that fits a comment on a pull request.

A document is built for one medium, which defines how untrusted text is quoted. HTML pages have
their own templates, in `report.page`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from paraval.dataclass import dataclass
from paraval.text.tables import (
    LONGEST_IN_A_SENTENCE,
    LONGEST_NAME,
    Medium,
    Page,
    Table,
    table_lines,
    table_markdown,
)
from paraval.text.terminal import cut_middle, one_line, to_ascii
from paraval.text.words import counted

_MOST_BYTES = 60_000
"""GitHub allows 65,536 characters in a comment."""
_MOST_VERBATIM_BYTES = 15_000
_LONGEST_LINE = 500
_ACTING = re.compile(r"[&<>|`*_~\[\]\\$@]|:(?=//)|(?<=www)\.")
_TOO_LONG = "… and more, too long for a comment"


@dataclass(frozen=True, slots=True)
class Subheading:
    text: str
    style: str = "bold"


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    style: str = ""
    strong: bool = False
    """In bold in Markdown."""
    is_copied: bool = False
    """Whether it is not wrapped, so that it can be copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbatim:
    """The first lines of a file, each with its style on a terminal."""

    heading: str
    lines: Sequence[tuple[str, str]]
    unshown: int = 0
    language: str = ""


Part = Subheading | Paragraph | Table | Verbatim


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDocument:
    """Sections, with a blank line between two of them."""

    sections: Sequence[Sequence[Part]]
    title: str = ""
    """In Markdown."""
    verdict: str = ""
    """Last on a terminal, where one looks first; first in Markdown."""
    verdict_style: str = ""
    closing: str = ""
    """In Markdown, the last sentence."""


def render(document: TextDocument, out: Medium) -> str:
    """Render as text; on a terminal without a final newline, in Markdown with one."""
    return _on_terminal(document, out) if isinstance(out, Page) else _in_markdown(document)


# ---- on a terminal


def _on_terminal(document: TextDocument, page: Page) -> str:
    blocks = [
        [line for part in parts for line in _lines(part, page)] for parts in document.sections
    ]
    blocks = [block for block in blocks if block] or [[]]
    if document.verdict:
        verdict = page.wrapped(document.verdict)
        blocks[-1] += (page.paint(line, document.verdict_style) for line in verdict)
    text = "\n\n".join("\n".join(block) for block in blocks)
    return text if page.unicode else to_ascii(text)


def _lines(part: Part, page: Page) -> Iterator[str]:
    match part:
        case Table():
            yield from table_lines(part, page)
        case Verbatim():
            yield from (page.paint(line, "bold") for line in page.wrapped(f"{part.heading}:"))
            yield from (page.paint(page.line_of(line), style) for line, style in part.lines)
            if part.unshown:
                yield f"{page.ellipsis} and {counted(part.unshown, 'more line')}"
        case Paragraph(text=text, is_copied=True):
            yield text
        case Subheading() | Paragraph():
            yield from (page.paint(line, part.style) for line in page.wrapped(part.text))


def patch_style(line: str, *, in_hunk: bool) -> tuple[str, bool]:
    """The style of a line of a patch; and whether the next line is in a hunk."""
    if line.startswith(("diff --git ", "@@ ")):
        in_hunk = line.startswith("@@ ")
        return "cyan" if in_hunk else "bold", in_hunk
    if in_hunk:
        return {"+": "green", "-": "red"}.get(line[:1], ""), True
    return "bold" if line.startswith(("--- ", "+++ ")) else "", False


# ---- in Markdown


def code(text: str, limit: int = LONGEST_NAME) -> str:
    """Untrusted text on one line, shown unchanged and without any effect.

    It is in `<code>` with special characters as entities: neither Markdown nor HTML is interpreted
    there, and GitHub and GitLab send no notification for an `@name`.
    """
    shown = _ACTING.sub(lambda match: f"&#{ord(match[0])};", one_line(text, limit))
    return f"<code>{shown}</code>"


class Markdown(Medium):
    """Fits a comment on a pull request."""

    def quote(self, text: str, limit: int = LONGEST_NAME) -> str:
        return code(text, limit)

    def name(self, text: str) -> str:
        return code(cut_middle(one_line(text, LONGEST_NAME), LONGEST_IN_A_SENTENCE))


def _in_markdown(document: TextDocument) -> str:
    parts = [f"## {document.title}"]
    if document.verdict:
        parts.append(f"**{document.verdict}**")
    room = _MOST_BYTES - sum(len(part.encode()) for part in parts)
    for text in filter(None, (_markdown(part) for each in document.sections for part in each)):
        room -= len(text.encode()) + 2
        if room < 0:
            parts.append(_TOO_LONG)
            break
        parts.append(text)
    return "\n\n".join((*parts, *filter(None, [document.closing]))) + "\n"


def _markdown(part: Part) -> str:
    match part:
        case Table():
            return table_markdown(part)
        case Verbatim():
            return _fenced(part)
        case Subheading():
            return f"### {part.text.removesuffix(':')}"
        case Paragraph():
            return f"**{part.text}**" if part.strong else part.text


def _fenced(part: Verbatim) -> str:
    """A collapsed block, in a fence that its lines cannot close."""
    page = Page(width=_LONGEST_LINE)
    room, lines = _MOST_VERBATIM_BYTES, []
    for line, _ in part.lines:
        shown = page.line_of(line)
        room -= len(shown.encode()) + 1
        if room < 0:
            break
        lines.append(shown)
    if more := len(part.lines) - len(lines) + part.unshown:
        lines.append(f"… and {counted(more, 'more line')}")
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    shown = "\n".join((f"{fence}{part.language}", *lines, fence))
    return f"<details><summary>{part.heading}</summary>\n\n{shown}\n\n</details>"
