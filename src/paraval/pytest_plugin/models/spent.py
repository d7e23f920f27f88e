"""What all tests of a run spent, out of their reports: light, since every run of pytest asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from paraval.pytest_plugin.models.spending import Spending
    from paraval.records import Spend

PROPERTY = "paraval_usage"
"""Of a report's `user_properties`: junit files and xdist carry it."""
SPENDING: pytest.StashKey[Spending] = pytest.StashKey()
"""Where a test keeps it, once it asks a model."""


def spent_in(terminalreporter: Any) -> Mapping[str, Spend]:
    """By model, as the reports tell that the terminal was shown; empty: no model was asked."""
    told = [
        report.user_properties
        for reports in terminalreporter.stats.values()
        for report in reports
        # Its last report tells all of an attempt; of several that are shown, each tells its own.
        if getattr(report, "when", None) == "teardown"
        and any(name == PROPERTY for name, _ in report.user_properties)
    ]
    if not told:
        return {}
    from paraval.pytest_plugin.models.spending import spends_in, summed

    return summed(map(spends_in, told))
