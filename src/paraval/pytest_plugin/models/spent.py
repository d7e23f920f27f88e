"""What all tests of a run spent, out of their reports: light, since every run of pytest asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

PROPERTY = "paraval_usage"
"""Of a report's `user_properties`: junit files and xdist carry it."""
SPENDING = pytest.StashKey[Any]()
"""Where a test keeps its `SpendRecorder`, once it asks a model."""


def properties_in(terminalreporter: Any) -> Sequence[list[tuple[str, object]]]:
    """Of the reports that the terminal was shown and that tell of models."""
    return [
        report.user_properties
        for reports in terminalreporter.stats.values()
        for report in reports
        # Its last report tells all of an attempt; of several that are shown, each tells its own.
        if getattr(report, "when", None) == "teardown"
        and any(name == PROPERTY for name, _ in report.user_properties)
    ]
