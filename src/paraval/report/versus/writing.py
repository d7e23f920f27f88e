"""A comparison written to a file: as JSON, Markdown or a page, by its ending."""

from __future__ import annotations

from pathlib import Path

from paraval.report.as_json import to_json
from paraval.report.as_markdown import code
from paraval.report.gate import DropVerdict
from paraval.report.versus.as_dict import versus_as_dict, within_as_dict
from paraval.report.versus.as_markdown import story_markdown
from paraval.report.versus.files import write_whole
from paraval.report.versus.held import Versus
from paraval.report.versus.story import story_of
from paraval.report.versus.within import Within, within_markdown

_MOST_CASES = 500
"""Of each list in Markdown."""


def write_versus(path: Path, versus: Versus, drop: DropVerdict | None) -> None:
    match path.suffix.lower():
        case ".json":
            text = f"{to_json(versus_as_dict(versus, drop))}\n"
        case ".html":
            # Templates and charts take long to load, and few comparisons are written as a page.
            from paraval.report.versus.as_html import versus_page  # noqa: PLC0415 - see above

            text = versus_page(versus, drop)
        case _:
            text = versus_markdown(versus, drop)
    write_whole(path, text)


def write_within(path: Path, within: Within) -> None:
    match path.suffix.lower():
        case ".json":
            text = f"{to_json(within_as_dict(within))}\n"
        case ".html":
            from paraval.report.versus.as_html import within_page  # noqa: PLC0415 - as above

            text = within_page(within)
        case _:
            text = within_markdown(within)
    write_whole(path, text)


def versus_markdown(versus: Versus, drop: DropVerdict | None) -> str:
    """Fits a comment on a pull request."""
    return story_markdown(story_of(versus, code, most=_MOST_CASES, drop=drop))
