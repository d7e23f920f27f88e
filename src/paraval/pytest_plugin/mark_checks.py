"""Finds all invalid marks before any test runs.

The module that reads a mark also validates it; this one runs the checks and reports the errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from paraval.pytest_plugin.models.model_accounts import retry_mark_of
from paraval.pytest_plugin.planning import groups_in
from paraval.pytest_plugin.time_limits import seconds_of

MOST_LINES = 20
_READERS = (seconds_of, groups_in, retry_mark_of)


def mistakes_in(items: Iterable[pytest.Item]) -> list[str]:
    """Return an error message per mistake, once for all cases of a parametrized test."""
    found: dict[str, None] = {}
    for item in items:
        for read in _READERS:
            try:
                read(item)
            except pytest.UsageError as error:
                test = item.nodeid.partition("[")[0]
                found[str(error).replace(item.nodeid, test, 1)] = None
    return list(found)


def refuse(session: pytest.Session, items: list[pytest.Item], mistakes: Sequence[str]) -> None:
    """End the session before its first test."""
    more = len(mistakes) - MOST_LINES
    shown = [*mistakes[:MOST_LINES], *([f"... and {more} more"] if more > 0 else [])]
    text = "\n".join(shown)
    items.clear()
    if not hasattr(session.config, "workerinput"):
        raise pytest.UsageError(text)
    # This is an xdist worker: its controller shows a collection error once for all workers, and
    # would treat any other way to stop as a crash.
    report = pytest.CollectReport(nodeid="", outcome="failed", longrepr=text, result=None)
    session.config.hook.pytest_collectreport(report=report)
