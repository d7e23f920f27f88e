"""CSV for spreadsheets: the rows of `trial_rows`, and no cell that is executed.

Text is always quoted, numbers never, so that nothing in an answer starts a new cell. (A spreadsheet
set to another separator than commas reads other cells; that can't be prevented.) Long text is cut
to the limit of a spreadsheet's cell; the JSON report has all of it.
"""

from __future__ import annotations

import csv
from typing import Any, TextIO

from paraval.codec import finite
from paraval.records import Scalar
from paraval.report.contents import Contents
from paraval.report.formats.trial_rows import Rows, as_text
from paraval.text.terminal import printable

# Spreadsheet cells whose text is shown and never executed.

Cell = str | float | None

_CELL_CHARACTERS = 32_000
# The second half are full-width forms, which some spreadsheets treat like the first.
_FORMULA_STARTS = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_LOST_STARTS = frozenset("\t\r\n")


def inert(text: str) -> str:
    """Text that a spreadsheet shows and does not compute."""
    text = printable(text[:_CELL_CHARACTERS]) + ("…" if len(text) > _CELL_CHARACTERS else "")
    acts = text[:1] in _LOST_STARTS or text.lstrip()[:1] in _FORMULA_STARTS
    return f"'{text}" if acts else text


def axis_cell(value: Scalar | None) -> Cell:
    """An axis value names a variant, even if it is not a number that a spreadsheet knows."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return inert(value)
    return finite(value) if value is None or finite(value) is not None else str(value)


_JOINED = frozenset({"tags", "notes", "change.tampering", "change.flagged"})


class AsCsv:
    def write(self, contents: Contents, file: TextIO) -> None:
        out = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        rows = Rows(contents)
        out.writerow(map(inert, rows.names))
        out.writerows(map(_cell, rows.names, row) for row in rows)


def _cell(name: str, value: Any) -> Cell:
    if value is None or isinstance(value, str):
        return value and inert(value)
    if isinstance(value, bool | int | float):
        return axis_cell(value)
    return inert("; ".join(value) if name in _JOINED else as_text(value))
