"""Tells reporters how a test ended, all at once, in the main thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paraval.pytest_plugin.item_ends import ItemEnd
from paraval.pytest_plugin.warned import emit as emit_warnings


class Emitter:
    """Calls the hooks of reporters. What is to be known before each test's is told by `before`."""

    def __init__(self, before: Callable[[pytest.Item], None]) -> None:
        self._before = before

    def emit(self, end: ItemEnd) -> None:
        item = end.item
        hook = item.ihook
        self._before(item)
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for phase in end.phases:
            hook.pytest_runtest_logreport(report=phase.report)
            if phase.interacts is not None:
                phase.interacts()
        emit_warnings(item, end.warned)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
