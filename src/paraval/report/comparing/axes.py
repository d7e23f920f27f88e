"""The comparisons that a run's own variants make: value against value, axis by axis."""

from __future__ import annotations

from paraval.records import RunInfo
from paraval.report.comparing.cells import CaseBook
from paraval.report.comparing.comparison import Comparison


def comparisons_of(book: CaseBook, run: RunInfo) -> tuple[Comparison, ...]:  # noqa: ARG001 - to come
    """For every axis with two or more values; none where there is nothing to compare."""
    return ()
