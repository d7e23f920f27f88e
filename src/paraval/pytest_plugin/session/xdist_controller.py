"""xdist's controller for workers that run several tests concurrently. Imported only with xdist.

By default, xdist hands out two or three tests at a time to each worker, which would leave most of a
worker's threads idle. Here each worker gets its share from the start, and one with fewer tests than
it can run gets some that another has not begun. `--dist loadscope`, `loadfile`, `loadgroup` and
`each` work as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import (  # type: ignore[import-untyped]  # xdist has no types
    WorkStealingScheduling,
)

SHARED_OUT = ("load", "worksteal")
"""The distribution modes that let any worker run a test."""

Node = Any
"""xdist's WorkerController."""


class XdistDistribution:
    """A plugin for the controller: chooses the scheduler, and calls tests off after -x."""

    NAME = "paraval-shared-out"

    def __init__(self, at_once: int) -> None:
        """`at_once`: how many tests each worker runs concurrently."""
        self._at_once = at_once
        self._scheduler: ParallelWorkStealing | None = None
        self._most_failures = 0
        self._failures = 0

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        if config.getoption("dist") not in SHARED_OUT:
            return None
        self._most_failures = config.getoption("maxfail") or 0
        self._scheduler = ParallelWorkStealing(config, log, at_once=self._at_once)
        return self._scheduler

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Call tests off: xdist only stops handing them out, but most are out already."""
        self._failures += report.failed
        if self._scheduler is not None and 0 < self._most_failures <= self._failures:
            self._scheduler.call_off()


class ParallelWorkStealing(WorkStealingScheduling):  # type: ignore[misc]  # xdist has no types
    """Treats a worker with fewer tests than it can run as idle; only surplus can be stolen.

    A worker runs all tests that it has, without waiting for the next one.
    """

    def __init__(self, config: pytest.Config, log: Any = None, *, at_once: int) -> None:
        super().__init__(config, log)
        self._at_once = at_once
        self._dry: set[Node] = set()
        """Workers that had begun all requested tests; not asked again until they finish one."""
        self._is_called_off = False

    def call_off(self) -> None:
        """Take back all tests that have not begun."""
        if not self._is_called_off:
            self._is_called_off = True
            for node in self._up():
                node.send_steal(list(self.node2pending[node]))

    @property
    def tests_finished(self) -> bool:
        return bool(
            self.collection_is_completed
            and not self.has_pending
            and self.steal_requested_from_node is None
        )

    def mark_test_complete(self, node: Node, item_index: int, duration: float = 0) -> None:
        self._dry.discard(node)
        super().mark_test_complete(node, item_index, duration)

    def remove_pending_tests_from_node(self, node: Node, indices: Sequence[int]) -> None:
        if self._is_called_off:
            left = set(self.node2pending[node]) - set(indices)
            self.node2pending[node] = sorted(left)
            self.steal_requested_from_node = None
            return
        if not indices:
            self._dry.add(node)
        super().remove_pending_tests_from_node(node, indices)

    def check_schedule(self) -> None:
        if self._is_called_off:
            return
        self._hand_out()
        if self._idle() and self.steal_requested_from_node is None:
            self._steal()

    def _up(self) -> list[Node]:
        return [node for node in self.node2pending if not node.shutting_down]

    def _idle(self) -> list[Node]:
        return [node for node in self._up() if len(self.node2pending[node]) < self._at_once]

    def _hand_out(self) -> None:
        idle = self._idle()
        for place, node in enumerate(idle):
            self._send_tests(node, -(-len(self.pending) // (len(idle) - place)))

    def _steal(self) -> None:
        surplus = {node: len(self.node2pending[node]) - self._at_once for node in self._up()}
        if max(surplus.values()) <= 0:
            for node in self._idle():
                node.shutdown()
            return
        willing = [node for node in surplus if surplus[node] > 0 and node not in self._dry]
        if willing:
            richest = max(willing, key=lambda node: surplus[node])
            share = min(surplus[richest], len(self.node2pending[richest]) // 2)
            richest.send_steal(self.node2pending[richest][-share:])
            self.steal_requested_from_node = richest
