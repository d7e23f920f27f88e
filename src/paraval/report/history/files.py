"""A history as files: which endings there are. How one is written, `report.files` knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paraval.errors import RequestError
from paraval.report.as_json import to_json
from paraval.report.files import check_place
from paraval.report.history.as_csv import history_csv
from paraval.report.history.as_dict import history_as_dict
from paraval.report.history.as_markdown import history_markdown
from paraval.report.history.records import History
from paraval.report.versus.files import write_whole


def _as_html(history: History) -> str:
    # Templates and charts take long to load, and few histories are written as a page.
    from paraval.report.history.as_html import history_page  # noqa: PLC0415 - see above

    return history_page(history)


FORMS: Mapping[str, Callable[[History], str]] = {
    ".json": lambda history: f"{to_json(history_as_dict(history))}\n",
    ".csv": history_csv,
    ".md": history_markdown,
    ".html": _as_html,
}


def check_history_outputs(paths: Sequence[Path]) -> None:
    """RequestError for what could not be written later. No file is changed by asking."""
    for path in paths:
        if path.suffix.lower() not in FORMS:
            known = ", ".join(FORMS)
            raise RequestError(
                f"the ending of '{path}' names no form of a history; known: {known}",
                hint="history.html for people, history.json for programs",
            )
        check_place(path)


def write_history(history: History, paths: Sequence[Path]) -> None:
    for path in paths:
        write_whole(path, FORMS[path.suffix.lower()](history))
