"""What a test's last report tells beside pytest's own words: `report.paraval`, plain data.

So it survives the way from one of xdist's workers to the controller. Read by `recording` and
`history`. Made by a plugin that works wherever tests run: in the main thread, in threads beside
others, in xdist's workers.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import pytest

from paraval.codec import from_data, to_data
from paraval.pytest_plugin.models.test_outcomes import result_of
from paraval.records import AttemptResult

ATTRIBUTE = "paraval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """How a test ended, by all that its own process knew of it."""

    result: AttemptResult
    earlier: tuple[AttemptResult, ...] = ()
    """Its attempts before this one, in their order: refused by a rate limit, and tried again."""
    alone: str | None = None
    """Why it had to have the floor for itself, although nothing told before."""


def attach(report: pytest.TestReport, told: Told) -> None:
    setattr(report, ATTRIBUTE, to_data(told))


def told_by(report: pytest.TestReport) -> Told | None:
    """None: its process knew nothing more, or did not live to tell it."""
    data = getattr(report, ATTRIBUTE, None)
    return from_data(Told, data) if isinstance(data, dict) else None


# ---- the plugin that tells


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """How one phase ended."""

    report: pytest.TestReport
    error: BaseException | None


@dataclass(slots=True)
class _Course:
    """What is known of a test so far."""

    phases: list[_Phase] = field(default_factory=list)
    earlier: list[AttemptResult] = field(default_factory=list)


_COURSE = pytest.StashKey[_Course]()


class Telling:
    """`alone`: by node id, why tests had to have the floor for themselves; filled by others."""

    NAME = "paraval-telling"

    def __init__(self, alone: Mapping[str, str] | None = None) -> None:
        self.alone: Mapping[str, str] = {} if alone is None else alone

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        course = item.stash.setdefault(_COURSE, _Course())
        if report.when == "setup":
            course.phases = []
        error = None if call.excinfo is None else call.excinfo.value
        course.phases.append(_Phase(report=report, error=error))
        if report.when == "teardown":
            self._tell(item, course)
        return report

    def _tell(self, item: pytest.Item, course: _Course) -> None:
        phases, course.phases = course.phases, []
        seconds = sum(phase.report.duration for phase in phases)
        result = result_of(item, phases, seconds)
        why = self.alone.get(item.nodeid)
        attach(phases[-1].report, Told(result=result, earlier=tuple(course.earlier), alone=why))
        course.earlier.append(result)


def register_telling(config: pytest.Config) -> Telling:
    """The session's one; what it is to know of tests that had to run alone is set on it."""
    manager = config.pluginmanager
    found = manager.get_plugin(Telling.NAME)
    if found is None:
        found = Telling()
        manager.register(found, Telling.NAME)
    assert isinstance(found, Telling)
    return found
