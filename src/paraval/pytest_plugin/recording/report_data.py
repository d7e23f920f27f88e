"""Data that a test's last report carries for us: `report.paraval`, plain data.

It survives the way from a worker, ours or xdist's. `session`, `recording` and `history` read it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import field

import pytest

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.pytest_plugin.models.item_outcomes import (
    PhaseEnd,
    is_plainly_passed,
    result_of,
)
from paraval.records import AttemptResult

ATTRIBUTE = "paraval"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """How a test ended, with everything its own process knows."""

    result: AttemptResult
    earlier: tuple[AttemptResult, ...] = ()
    """Its earlier attempts, in order, that a rate limit refused."""


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
    """Adds the data, wherever tests run."""

    NAME = "paraval-telling"

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
        if not phases[:-1]:
            return  # More of a teardown that was reported.
        if course.earlier or not is_plainly_passed(item, phases):
            self._add_data(item, phases, course)

    def _add_data(self, item: pytest.Item, phases: Sequence[PhaseEnd], course: _PhaseLog) -> None:
        result = result_of(item, phases, sum(phase.report.duration for phase in phases))
        data = ReportData(result=result, earlier=tuple(course.earlier))
        attach_report_data(phases[-1].report, data)
        course.earlier.append(result)


def register_report_data(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(ReportDataPlugin.NAME):
        config.pluginmanager.register(ReportDataPlugin(), ReportDataPlugin.NAME)
