"""A comparison written to a file: as JSON or as Markdown, by its ending."""

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
    if _is_json(path):
        write_whole(path, f"{to_json(versus_as_dict(versus, drop))}\n")
    else:
        write_whole(path, versus_markdown(versus, drop))


def write_within(path: Path, within: Within) -> None:
    if _is_json(path):
        write_whole(path, f"{to_json(within_as_dict(within))}\n")
    else:
        write_whole(path, within_markdown(within))


def versus_markdown(versus: Versus, drop: DropVerdict | None) -> str:
    """Fits a comment on a pull request."""
    return story_markdown(story_of(versus, code, most=_MOST_CASES, drop=drop))


def _is_json(path: Path) -> bool:
    return path.suffix.lower() == ".json"
