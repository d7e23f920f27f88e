"""Cells of a spreadsheet: text in them is shown, and does nothing."""

from __future__ import annotations

from paraval.report.text import printable

Cell = str | float | None

_CELL_CHARACTERS = 32_000
# The second half are the full-width forms, which some spreadsheets read as the first.
_FORMULA_STARTS = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_LOST_STARTS = frozenset("\t\r\n")


def inert(text: str) -> str:
    """Text that a spreadsheet shows and does not compute."""
    text = printable(text[:_CELL_CHARACTERS]) + ("…" if len(text) > _CELL_CHARACTERS else "")
    acts = text[:1] in _LOST_STARTS or text.lstrip()[:1] in _FORMULA_STARTS
    return f"'{text}" if acts else text
