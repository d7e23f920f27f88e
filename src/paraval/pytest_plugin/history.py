"""What earlier sessions found out about tests: their durations, and which failed beside others.

Stored in pytest's cache (`paraval/durations`, `paraval/alone`); without that, nothing is known.
Also a plugin: it sees every test end, and writes once, when the session ends.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pytest

from paraval.pytest_plugin.recording.report_data import report_data_of
from paraval.records import Outcome
from paraval.schedule.estimates import Estimates, Observation

DURATIONS = "paraval/durations"
ALONE = "paraval/alone"
WEIGHT_OF_THE_LAST = 0.3
"""The weight of a test's last duration, once it has run a few times."""
FORGOTTEN_AFTER = 50
"""Sessions without the test: it was removed, or is never run."""
SHORTEST_S = 1e-4
"""The schedule doesn't distinguish shorter durations, and zero has no logarithm."""
_NO_DURATION = (Outcome.INFRA_ERROR, Outcome.RATE_LIMITED, Outcome.SKIPPED)
"""Outcomes whose duration says nothing about the test."""


class DurationRecord(NamedTuple):
    """What is remembered about a test."""

    mean_log_s: float = 0.0
    """An exponential mean of the logarithms of its durations."""
    times: int = 0
    """How often it was seen."""
    session: int = 0
    """The last session that it was in."""

    def with_another(self, seconds: float, session: int) -> DurationRecord:
        share = max(1 / (self.times + 1), WEIGHT_OF_THE_LAST)
        mean = self.mean_log_s + share * (math.log(max(seconds, SHORTEST_S)) - self.mean_log_s)
        return DurationRecord(mean, self.times + 1, session)


class History:
    """What is known about tests. Works without a cache."""

    NAME = "paraval-history"

    def __init__(self, config: pytest.Config) -> None:
        self._cache: Any = getattr(config, "cache", None)
        self._known, _ = self._read_durations()
        self._alone: dict[str, bool] = {}
        if self._cache is not None:
            found = self._cache.get(ALONE, None)
            self._alone = found if isinstance(found, dict) else {}
        self._took: defaultdict[str, float] = defaultdict(float)
        self._unsaid: set[str] = set()
        """Tests whose durations don't count in this session."""

    # ---- what is known

    @property
    def is_known(self) -> bool:
        return bool(self._known)

    def expected(self, items: Iterable[pytest.Item]) -> Mapping[str, float]:
        """Node id -> seconds; 1.0 for all if nothing is known."""
        estimates = Estimates(
            Observation(**_as_trial(node_id), count=one.times, mean_log_s=one.mean_log_s)
            for node_id, one in self._known.items()
        )
        return {item.nodeid: estimates.expected_s(**_as_trial(item.nodeid)) for item in items}

    def why_alone(self, node_id: str) -> str | None:
        """Why it runs with no other test beside it; None: it need not."""
        is_alone = node_id in self._alone
        return "failed beside others in an earlier session, and passed alone" if is_alone else None

    # ---- what is learned

    def forget_alone(self, node_id: str) -> None:
        """It failed although it ran alone."""
        if self._alone.pop(node_id, False) and self._cache is not None:
            self._cache.set(ALONE, self._alone)

    def remember_alone(self, node_id: str) -> bool:
        """Remember that the test failed beside others, and passed alone; False: no cache."""
        self._alone[node_id] = True
        if self._cache is not None:
            self._cache.set(ALONE, self._alone)
        return self._cache is not None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node_id = report.nodeid
        self._took[node_id] += report.duration
        if str(report.outcome) == "rerun":  # by pytest-rerunfailures: start again
            self._took[node_id] = 0.0
        data = report_data_of(report)
        ends = report.outcome if data is None else data.result.outcome
        if ends in _NO_DURATION or report.when not in ("setup", "call", "teardown"):
            self._unsaid.add(node_id)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Save, merged with what another process has written meanwhile."""
        if self._cache is None or self._took.keys() <= self._unsaid:
            return
        known, last = self._read_durations()
        session = last + 1
        for node_id, seconds in self._took.items():
            before = known.get(node_id, DurationRecord())
            if node_id not in self._unsaid:
                known[node_id] = before.with_another(seconds, session)
            elif node_id in known:
                known[node_id] = before._replace(session=session)
        # One string each: pytest writes lists one element per line, which takes four times as long.
        tests = {
            node_id: f"{one.mean_log_s:.4f} {one.times} {one.session}"
            for node_id, one in known.items()
            if session - one.session <= FORGOTTEN_AFTER
        }
        self._cache.set(DURATIONS, {"session": session, "tests": tests})

    def _read_durations(self) -> tuple[dict[str, DurationRecord], int]:
        stored: Any = None if self._cache is None else self._cache.get(DURATIONS, None)
        try:
            tests = {node_id: text.split() for node_id, text in stored["tests"].items()}
            known = {
                node_id: DurationRecord(float(mean), int(times), int(session))
                for node_id, (mean, times, session) in tests.items()
            }
            return known, int(stored["session"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return {}, 0  # Nothing, or damaged.


def _as_trial(node_id: str) -> dict[str, Any]:
    """Treat a test function as a case and its parameters as the variant.

    So a new test is estimated from the function with other parameters, and from the parameters (a
    model) with other functions. Functions without parameters have nothing in common.
    """
    function, _, parameters = node_id.partition("[")
    return {"case_id": function, "variant": {"parameters": parameters or function}}
