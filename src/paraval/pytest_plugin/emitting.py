"""Tells reporters how a test ended, all at once, in the main thread."""

from __future__ import annotations

from paraval.pytest_plugin import warned
from paraval.pytest_plugin.item_ends import ItemEnd


def emit(end: ItemEnd) -> None:
    """As pytest's runner would have, had the test run here."""
    item, hook = end.item, end.item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for phase in end.phases:
        hook.pytest_runtest_logreport(report=phase.report)
        if phase.interacts is not None:
            phase.interacts()
    warned.emit(item, end.warned)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
