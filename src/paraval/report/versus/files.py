"""A comparison as files: which endings there are. How one is written, `report.files` knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paraval.errors import RequestError
from paraval.report.files import check_place, not_written, opened_whole

ENDINGS = (".json", ".md", ".html")


def check_comparison_outputs(paths: Sequence[Path]) -> None:
    """RequestError for what could not be written later. No file is changed by asking."""
    for path in paths:
        if path.suffix.lower() not in ENDINGS:
            known = ", ".join(ENDINGS)
            raise RequestError(
                f"the ending of '{path}' names no form of a comparison; known: {known}",
                hint="comparison.html for people, comparison.json for programs, comparison.md for a"
                " pull request",
            )
        check_place(path)


def write_whole(path: Path, text: str) -> None:
    """NotWrittenError where it cannot be; what stood there before then still does."""
    try:
        with opened_whole(path, "x") as file:
            file.write(text)
    except (OSError, ValueError, RuntimeError) as error:
        raise not_written(path, error) from error
