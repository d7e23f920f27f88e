"""What all tests of a run spent, read from their reports. Lightweight: every pytest run uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

PROPERTY = "paraval_usage"
"""The name in a report's `user_properties`, which junit files and xdist preserve."""
SPENDING = pytest.StashKey[Any]()
"""The key of a test's `SpendRecorder`, once it calls a model."""


def properties_in(terminalreporter: Any) -> Sequence[list[tuple[str, object]]]:
    """The properties of all displayed reports with model usage."""
    return [
        report.user_properties
        for reports in terminalreporter.stats.values()
        for report in reports
        # The last report covers a whole attempt; if several attempts are shown, each has its own.
        if getattr(report, "when", None) == "teardown"
        and any(name == PROPERTY for name, _ in report.user_properties)
    ]
