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
MOST_TESTS = 50_000
SHORTEST_S = 1e-4
"""The schedule doesn't distinguish shorter durations, and zero has no logarithm."""
LONGEST_LOG_S = 25.0
"""The longest plausible duration; a damaged cache may hold numbers that cannot be used."""
MOST_COUNTED = 10**12
"""Limits the counts of sessions and of runs of a test."""
_NO_DURATION = (Outcome.INFRA_ERROR, Outcome.RATE_LIMITED, Outcome.SKIPPED)
"""Outcomes whose duration says nothing about the test."""


class DurationRecord(NamedTuple):
    """What is remembered about a test."""

    mean_log_s: float
    """An exponential mean of the logarithms of its durations."""
    times: int
    """How often it was seen."""
    session: int
    """The last session that it was in."""

    def with_another(self, seconds: float, session: int) -> DurationRecord:
        share = max(1 / (self.times + 1), WEIGHT_OF_THE_LAST)
        mean = self.mean_log_s + share * (_log(seconds) - self.mean_log_s)
        return DurationRecord(mean, min(self.times + 1, MOST_COUNTED), session)


class History:
    """What is known about tests. Works without a cache, and with a damaged one."""

    NAME = "paraval-history"

    def __init__(self, config: pytest.Config) -> None:
        self._cache: Any = getattr(config, "cache", None)
        self._known, self._session = self._read_durations()
        self._alone = self._read_alone()
        self._took: defaultdict[str, float] = defaultdict(float)
        self._unsaid: set[str] = set()
        """Tests whose durations don't count in this session."""
        self._is_saved = False

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

    def remember_alone(self, node_id: str) -> None:
        """Remember that the test failed beside others, and passed alone."""
        self._alone[node_id] = self._session
        if self._cache is not None:
            self._cache.set(ALONE, self._alone)

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
        self.save()

    def save(self) -> None:
        """Save once, merged with what another process has written meanwhile."""
        learned = any(node_id not in self._unsaid for node_id in self._took)
        if self._cache is None or self._is_saved or not learned:
            return
        self._is_saved = True
        known, last = self._read_durations()
        # A damaged cache may hold the largest number that is read.
        now = min(last + 1, MOST_COUNTED)
        self._cache.set(DURATIONS, self._with_durations(known, now))

    def _with_durations(self, known: dict[str, DurationRecord], session: int) -> dict[str, Any]:
        for node_id, seconds in self._took.items():
            before = known.get(node_id)
            if node_id in self._unsaid:
                if before is not None:
                    known[node_id] = before._replace(session=session)
            elif before is None:
                known[node_id] = DurationRecord(_log(seconds), 1, session)
            else:
                known[node_id] = before.with_another(seconds, session)
        kept = {
            node_id: one
            for node_id, one in known.items()
            if session - one.session <= FORGOTTEN_AFTER
        }
        if len(kept) > MOST_TESTS:
            newest = sorted(kept, key=lambda node_id: kept[node_id].session)[-MOST_TESTS:]
            kept = {node_id: kept[node_id] for node_id in newest}
        # One string each: pytest writes lists one element per line, which takes four times as long.
        tests = {node_id: f"{one[0]:.4f} {one[1]} {one[2]}" for node_id, one in kept.items()}
        return {"session": session, "tests": tests}

    # ---- the cache: no content of it may end a session

    def _read_durations(self) -> tuple[dict[str, DurationRecord], int]:
        try:
            stored = self._get(DURATIONS)
            tests = {node_id: _parsed(text) for node_id, text in stored["tests"].items()}
            return tests, _counted(stored["session"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return {}, 0

    def _read_alone(self) -> dict[str, int]:
        try:
            found = self._get(ALONE) or {}
            return {str(node_id): _counted(session) for node_id, session in found.items()}
        except (TypeError, ValueError, AttributeError, OverflowError):
            return {}

    def _get(self, key: str) -> Any:
        return None if self._cache is None else self._cache.get(key, None)


def _as_trial(node_id: str) -> dict[str, Any]:
    """Treat a test function as a case and its parameters as the variant.

    So a new test is estimated from the function with other parameters, and from the parameters (a
    model) with other functions.
    """
    function, _, parameters = node_id.partition("[")
    return {"case_id": function, "variant": {"parameters": parameters}}


def _parsed(text: str) -> DurationRecord:
    mean, times, session = text.split()
    known = DurationRecord(float(mean), _counted(times), _counted(session))
    # Written so that NaN fails the check.
    if known.times < 1 or not _log(0) <= known.mean_log_s <= LONGEST_LOG_S:
        raise ValueError(text)
    return known


def _counted(value: Any) -> int:
    number = int(value)
    if not 0 <= number <= MOST_COUNTED:
        raise ValueError(value)
    return number


def _log(seconds: float) -> float:
    return min(math.log(max(seconds, SHORTEST_S)), LONGEST_LOG_S)
