"""Data that a test's last report carries for us: `report.paraval`, plain data.

It survives the transfer from an xdist worker to the controller. `recording` and `item_history` read
it. A plugin adds it wherever tests run: in the main thread, in test threads, in xdist's workers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import field

import pytest

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.pytest_plugin.models.item_outcomes import result_of
from paraval.pytest_plugin.running.current_test import PhaseEnd
from paraval.records import AttemptResult

ATTRIBUTE = "paraval"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """How a test ended, with everything its own process knows."""

    result: AttemptResult
    earlier: tuple[AttemptResult, ...] = ()
    """Its earlier attempts, in order, that a rate limit refused."""
    alone: str | None = None
    """Why it had to run exclusively, found only at run time."""


def attach_report_data(report: pytest.TestReport, data: ReportData) -> None:
    setattr(report, ATTRIBUTE, to_data(data))


def report_data_of(report: pytest.TestReport) -> ReportData | None:
    """The report's data; None: its process had no more data, or died first."""
    data = getattr(report, ATTRIBUTE, None)
    return from_data(ReportData, data) if isinstance(data, dict) else None


# ---- the plugin that adds the data


@dataclass(slots=True)
class _PhaseLog:
    """A test's phases and attempts so far."""

    phases: list[PhaseEnd] = field(default_factory=list)
    earlier: list[AttemptResult] = field(default_factory=list)


_COURSE = pytest.StashKey[_PhaseLog]()


class ReportDataPlugin:
    """Adds the data. `alone`: by node id, why tests had to run exclusively, filled elsewhere."""

    NAME = "paraval-telling"

    def __init__(self, alone: Mapping[str, str] | None = None) -> None:
        self.alone: Mapping[str, str] = {} if alone is None else alone

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        course = item.stash.setdefault(_COURSE, _PhaseLog())
        if report.when == "setup":
            course.phases = []
        error = None if call.excinfo is None else call.excinfo.value
        course.phases.append(PhaseEnd(report=report, error=error))
        if report.when == "teardown":
            self._attach(item, course)
        return report

    def _attach(self, item: pytest.Item, course: _PhaseLog) -> None:
        phases, course.phases = course.phases, []
        seconds = sum(phase.report.duration for phase in phases)
        result = result_of(item, phases, seconds)
        why = self.alone.get(item.nodeid)
        attach_report_data(
            phases[-1].report, ReportData(result=result, earlier=tuple(course.earlier), alone=why)
        )
        course.earlier.append(result)


def register_report_data(config: pytest.Config) -> ReportDataPlugin:
    """Return the session's plugin; its `alone` is set from outside."""
    manager = config.pluginmanager
    found = manager.get_plugin(ReportDataPlugin.NAME)
    if found is None:
        found = ReportDataPlugin()
        manager.register(found, ReportDataPlugin.NAME)
    assert isinstance(found, ReportDataPlugin)
    return found
