"""What earlier sessions tell of tests: how long each took, and which had to run alone after all.

Kept in pytest's own cache (`paraval/durations`, `paraval/alone`); without that, nothing is known.
A plugin, too: it hears of every test that ends, and writes once, when the session ends.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pytest

from paraval.pytest_plugin.recording.item_trials import SourceDigests, without_xdist_group
from paraval.pytest_plugin.recording.report_data import report_data_of
from paraval.records import Outcome
from paraval.schedule.estimates import Estimates, Observation

DURATIONS = "paraval/durations"
ALONE = "paraval/alone"
WEIGHT_OF_THE_LAST = 0.3
"""Of what is remembered of a test, once it has run a few times."""
FORGOTTEN_AFTER = 50
"""Sessions that a test was not in: it is gone, or nobody runs it."""
MOST_TESTS = 50_000
SHORTEST_S = 1e-4
"""Durations below are all alike to a schedule, and zero has no logarithm."""
LONGEST_LOG_S = 25.0
"""Of a duration that can be meant; those of a damaged cache may be no numbers to count with."""
FAILED_BESIDE = "failed in parallel in an earlier session"
"""Why a test is remembered that passed as it was run again, alone."""
TRIED_AGAIN_AFTER = 20
"""Sessions, for such a test: what it failed by may be gone."""
MOST_COUNTED = 10**12
"""Of sessions, and of times that a test was seen."""
_NO_DURATION = (Outcome.INFRA_ERROR, Outcome.RATE_LIMITED, Outcome.SKIPPED)
"""How long such an end took says nothing of the test."""


class DurationRecord(NamedTuple):
    """What is remembered of a test."""

    mean_log_s: float
    """Of its durations: an exponential mean, over their logarithms."""
    times: int
    """That it was seen."""
    session: int
    """The last one that it was in."""

    def with_another(self, seconds: float, session: int) -> DurationRecord:
        share = max(1 / (self.times + 1), WEIGHT_OF_THE_LAST)
        mean = self.mean_log_s + share * (_log(seconds) - self.mean_log_s)
        return DurationRecord(mean, self.times + 1, session)


class AloneRecord(NamedTuple):
    """A test that had to run alone."""

    why: str
    digest: str
    """Of its file and its conftests."""
    session: int
    """In which that was found out."""


class DurationHistory:
    """What is known of tests. Harmless where the cache is switched off, or full of nonsense."""

    NAME = "paraval-history"

    def __init__(self, config: pytest.Config) -> None:
        self._cache: Any = getattr(config, "cache", None)
        self._is_worker = hasattr(config, "workerinput")
        self._sources = SourceDigests(config.rootpath)
        self._known, self._session = self._read_durations()
        self._alone = self._read_alone()
        self._took: defaultdict[str, float] = defaultdict(float)
        self._unsaid: set[str] = set()
        """Tests whose durations say nothing this time."""
        self._asked: dict[str, str] = {}
        self._forgotten: set[str] = set()
        self._is_saved = False

    # ---- what is known

    @property
    def is_known(self) -> bool:
        return bool(self._known)

    @property
    def is_kept(self) -> bool:
        """Whether what is learned is there in the next session."""
        return self._cache is not None

    def expected(self, items: Iterable[pytest.Item]) -> Mapping[str, float]:
        """Node id -> seconds; 1.0 for all where nothing is known of any."""
        estimates = Estimates(
            Observation(**_as_trial(node_id), count=one.times, mean_log_s=one.mean_log_s)
            for node_id, one in self._known.items()
        )
        return {item.nodeid: estimates.expected_s(**_as_trial(item.nodeid)) for item in items}

    def why_alone(self, item: pytest.Item) -> str | None:
        """Why it had to run alone in an earlier session; None: it did not, or its file changed."""
        one = self._alone.get(item.nodeid)
        return (
            one.why if one is not None and one.digest == self._sources.digest(item.nodeid) else None
        )

    # ---- what is learned

    def remember_alone(self, reasons: Mapping[str, str]) -> None:
        """By node id: why tests must run alone, as was found out while they ran."""
        self._asked.update(reasons)

    def ran_alone(self, node_id: str, is_changing: bool) -> None:
        """A test that was remembered for what it changed, and changes nothing, is forgotten."""
        one = self._alone.get(node_id)
        if one is not None and one.why != FAILED_BESIDE and not is_changing:
            self._forgotten.add(node_id)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        node_id = without_xdist_group(report.nodeid)
        self._took[node_id] += report.duration
        if str(report.outcome) == "rerun":  # by pytest-rerunfailures: it all begins anew
            self._took[node_id] = 0.0
        told = report_data_of(report)
        if told is not None and told.alone is not None:
            self._asked[node_id] = told.alone
        ends = report.outcome if told is None else told.result.outcome
        if ends in _NO_DURATION or report.when not in ("setup", "call", "teardown"):
            self._unsaid.add(node_id)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self.save()

    def save(self) -> None:
        """Once: together with what another process wrote meanwhile. xdist's workers leave it to
        the controller, which hears of all."""
        learned = any(node_id not in self._unsaid for node_id in self._took) or bool(self._asked)
        if self._cache is None or self._is_worker or self._is_saved or not learned:
            return
        self._is_saved = True
        known, last = self._read_durations()
        self._cache.set(DURATIONS, self._with_durations(known, last + 1))
        if self._asked or self._alone:
            self._cache.set(ALONE, self._with_alone(last + 1))

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
        # A text each: pytest writes lists a line an element, which takes four times as long.
        tests = {node_id: f"{one[0]:.4f} {one[1]} {one[2]}" for node_id, one in kept.items()}
        return {"session": session, "tests": tests}

    def _with_alone(self, session: int) -> dict[str, AloneRecord]:
        """Those whose code is as it was then; of tests that are gone, the file tells."""
        remembered = self._read_alone()
        for node_id in self._forgotten:
            remembered.pop(node_id, None)
        for node_id, why in self._asked.items():
            remembered[node_id] = AloneRecord(why, self._sources.digest(node_id), session)
        return {
            node_id: one
            for node_id, one in remembered.items()
            if one.digest == self._sources.digest(node_id)
            and (one.why != FAILED_BESIDE or session - one.session < TRIED_AGAIN_AFTER)
        }

    # ---- the cache: whatever is in it, nobody's session ends by it

    def _read_durations(self) -> tuple[dict[str, DurationRecord], int]:
        try:
            stored = self._get(DURATIONS)
            tests = {node_id: _parsed(text) for node_id, text in stored["tests"].items()}
            return tests, _counted(stored["session"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return {}, 0

    def _read_alone(self) -> dict[str, AloneRecord]:
        try:
            return {
                node_id: AloneRecord(str(why), str(digest), _counted(session))
                for node_id, (why, digest, session) in self._get(ALONE).items()
            }
        except (TypeError, ValueError, AttributeError, OverflowError):
            return {}

    def _get(self, key: str) -> Any:
        return None if self._cache is None else self._cache.get(key, None)


def _as_trial(node_id: str) -> dict[str, Any]:
    """A test function is a case, its parameters the variant: so that of a test that is new, the
    function with other parameters tells, and the parameters (a model) with other functions."""
    function, _, parameters = node_id.partition("[")
    return {"case_id": function, "variant": {"parameters": parameters}}


def _parsed(text: str) -> DurationRecord:
    mean, times, session = text.split()
    known = DurationRecord(float(mean), _counted(times), _counted(session))
    # Written so that it holds of no number that is none.
    if known.times < 1 or not _log(0) <= known.mean_log_s <= LONGEST_LOG_S:
        raise ValueError(text)
    return known


def _counted(told: Any) -> int:
    number = int(told)
    if not 0 <= number <= MOST_COUNTED:
        raise ValueError(told)
    return number


def _log(seconds: float) -> float:
    return min(math.log(max(seconds, SHORTEST_S)), LONGEST_LOG_S)
