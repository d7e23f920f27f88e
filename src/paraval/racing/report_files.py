"""A race's report as files: which endings there are. How one is written, `report.files` knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paraval.errors import RequestError
from paraval.report.files import check_place, not_written, opened_whole

ENDINGS = (".json", ".patch", ".diff", ".md", ".txt")


def check_race_outputs(paths: Sequence[str | Path]) -> None:
    """RequestError for what could not be written later. No file is changed by asking."""
    for path in map(Path, paths):
        ending_of(path)
        check_place(path)


def ending_of(path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise RequestError(
            f"the ending of '{path}' names no form of a race's report; known: {known}",
            hint="race.json for programs, winner.patch for the winner, race.md for a pull request",
        )
    return ending


def write_whole(path: Path, data: bytes) -> None:
    """NotWrittenError where it cannot be; what stood there before then still does."""
    try:
        with opened_whole(path, "xb") as file:
            file.write(data)
    except (OSError, ValueError, RuntimeError) as error:
        raise not_written(path, error) from error
