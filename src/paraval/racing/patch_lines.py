"""A patch as it is shown: its first lines, each with its style, and nothing in it that acts."""

from __future__ import annotations

from collections.abc import Iterator

from paraval.racing.page import Page

_IN_A_HUNK = {"+": "green", "-": "red"}
_LONGEST = 500


def patch_lines(patch: bytes, page: Page, most: int) -> Iterator[str]:
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
    page = Page(width=_LONGEST)
    return [page.verbatim(line, page.width) for line in _lines(patch)[:most]]


def count_lines(patch: bytes) -> int:
    return len(_lines(patch))


def _lines(patch: bytes) -> list[str]:
    text = patch.decode(errors="replace")
    return text.removesuffix("\n").split("\n") if text else []
