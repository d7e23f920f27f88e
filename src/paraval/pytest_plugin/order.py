"""What is written at the end is in the order of collection, whatever order tests ended in."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest
from _pytest.junitxml import xml_key


class Order:
    """A plugin: remembers whose reports junit's file is made of, and sorts them at the end."""

    NAME = "paraval-order"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._nodes: dict[int, str] = {}
        """By the identity of junit's reporters, which forget it: whose they are."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """A test's reporter is made with its first report; or before, by a fixture that writes."""
        xml: Any = self._config.stash.get(xml_key, None)
        if xml is None:
            return (yield)
        for (node, *_), reporter in list(xml.node_reporters.items()):
            self._nodes[id(reporter)] = str(getattr(node, "nodeid", node))
        known = len(xml.node_reporters_ordered)
        yield
        for reporter in xml.node_reporters_ordered[known:]:
            self._nodes.setdefault(id(reporter), report.nodeid)
        return None

    def restore(self, items: Sequence[pytest.Item]) -> None:
        """Before the file and the summary are written. What is not of a test stays in front."""
        place = {item.nodeid: index for index, item in enumerate(items)}
        written = self._junit_reporters()
        written.sort(key=lambda one: place.get(self._nodes.get(id(one), ""), -1))
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            for reports in reporter.stats.values():
                reports.sort(key=lambda one: place.get(getattr(one, "nodeid", ""), -1))

    def _junit_reporters(self) -> list[Any]:
        xml: Any = self._config.stash.get(xml_key, None)
        return [] if xml is None else xml.node_reporters_ordered
