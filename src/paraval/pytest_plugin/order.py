"""What is written at the end is in the order of collection, whatever order tests ended in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from _pytest.junitxml import xml_key


class Order:
    """A plugin: remembers whose reports junit's file is made of, and sorts them at the end."""

    NAME = "paraval-order"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._nodes: list[str] = []
        """Of junit's reporters, which forget it, in their own order; empty for those of others."""

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        written = self._junit_reporters()
        while len(self._nodes) < len(written) - 1:
            self._nodes.append("")
        if len(self._nodes) < len(written):
            self._nodes.append(report.nodeid)

    def restore(self, items: Sequence[pytest.Item]) -> None:
        """Before the file and the summary are written. What is not of a test stays in front."""
        place = {item.nodeid: index for index, item in enumerate(items)}
        written = self._junit_reporters()
        places = [place.get(node, -1) for node in self._nodes]
        places += [-1] * (len(written) - len(places))
        written[:] = [one for _, one in sorted(zip(places, written, strict=True), key=_first)]
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            for reports in reporter.stats.values():
                reports.sort(key=lambda one: place.get(getattr(one, "nodeid", ""), -1))

    def _junit_reporters(self) -> list[Any]:
        xml: Any = self._config.stash.get(xml_key, None)
        return [] if xml is None else xml.node_reporters_ordered


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]
