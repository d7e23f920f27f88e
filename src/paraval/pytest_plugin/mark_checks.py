"""What is wrong with the marks of tests: all of it at once, before anything runs.

What a mark may say is for the module that reads it; here is only who is asked, and how it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from paraval.pytest_plugin.models.model_accounts import retry_mark_of
from paraval.pytest_plugin.session.planning import groups_in
from paraval.pytest_plugin.timeouts.time_limits import own_seconds_of

MOST_LINES = 20
_READERS = (own_seconds_of, groups_in, retry_mark_of)


def mistakes_in(items: Iterable[pytest.Item]) -> list[str]:
    """A sentence for each; one that all cases of a parametrized test share is told once."""
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
    if not hasattr(session.config, "workerinput"):
        raise pytest.UsageError(text)
    # One of xdist's workers: its controller shows an error of collecting once for all of them,
    # and would take any other end for a crash.
    items.clear()
    report = pytest.CollectReport(nodeid="", outcome="failed", longrepr=text, result=None)
    session.config.hook.pytest_collectreport(report=report)
