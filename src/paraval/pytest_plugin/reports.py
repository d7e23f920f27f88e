"""Reports of tests on their way: a worker sends them, and the parent gives them to pytest's
reporters, as its runner would have, had the tests run here.
"""

from __future__ import annotations

import io
import pickle
import sys
import warnings
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from paraval.pytest_plugin.pytest_internals import count_failed_subtests, junit_file_of
from paraval.pytest_plugin.recording.report_data import (
    ReportData,
    attach_report_data,
    report_data_of,
)
from paraval.records import AttemptResult, Failure, Outcome

# ---- in a worker


class _Pickler(pickle.Pickler):
    """Refuses what the parent cannot read, or only by importing more: users and plugins add
    anything to a report."""

    known = sys.stdlib_module_names | {"_pytest", "paraval", "pytest"}

    def reducer_override(self, obj: Any) -> Any:
        kind = obj if isinstance(obj, type) else type(obj)
        if kind.__module__.partition(".")[0] not in self.known:
            raise pickle.PicklingError
        return NotImplemented


def pickled(value: object) -> bytes | None:
    """None: the parent could not read it."""
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except Exception:  # noqa: BLE001 - objects of users raise anything
        return None
    return file.getvalue()


def sendable_report(report: pytest.TestReport) -> bytes:
    data = pickled(report)
    if data is None:
        if not pickled(report.longrepr):
            report.longrepr = str(report.longrepr)
        report.user_properties = [
            (name, value if pickled(value) else str(value))
            for name, value in report.user_properties
        ]
        for name in [name for name, value in vars(report).items() if not pickled(value)]:
            delattr(report, name)
        data = pickled(report)
    return data or pickle.dumps(pytest.TestReport(**vars(report)))


def know_plugins(config: pytest.Config) -> None:
    """The parent has their modules, too."""
    names = (str(name) for name, _ in config.pluginmanager.list_name_plugin())
    _Pickler.known |= {name.partition(".")[0] for name in names}


def sendable_warning(warning: warnings.WarningMessage) -> dict[str, Any]:
    """The parent may not know its class."""
    kind = warning.category
    return {
        "message": str(warning.message),
        "category": (kind.__module__, kind.__qualname__),
        "filename": warning.filename,
        "lineno": warning.lineno,
        "line": warning.line,
    }


# ---- in the parent


def made_up(
    item: pytest.Item,
    text: str | None,
    *,
    when: Any,
    outcome: Any = "failed",
    duration_s: float = 0.0,
) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,
        longrepr=text,
        when=when,
        duration=duration_s,
    )


def not_run(item: pytest.Item, reason: str) -> tuple[pytest.TestReport, AttemptResult]:
    report = made_up(item, f"not run: {reason}", when="setup")
    failure = Failure(kind=Outcome.INFRA_ERROR, message=reason)
    result = AttemptResult(outcome=Outcome.INFRA_ERROR, error=failure)
    attach_report_data(report, ReportData(result=result))
    return report, result


def loaded(data: bytes) -> pytest.TestReport:
    report: pytest.TestReport = pickle.loads(data)  # noqa: S301 - from a worker
    return report


def _received(data: dict[str, Any]) -> warnings.WarningMessage:
    module, name = data["category"]
    kind = getattr(sys.modules.get(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, Warning)):
        kind = type(name, (Warning,), {"__module__": module})
    try:
        told = kind(data["message"])
    except Exception:  # noqa: BLE001 - it takes other arguments
        told = UserWarning(data["message"])
    return warnings.WarningMessage(**{**data, "category": kind, "message": told})


class Reporters:
    """Those of this session."""

    def __init__(self, config: pytest.Config) -> None:
        self._config: Any = config

    def tell(
        self,
        item: pytest.Item,
        reports: Sequence[pytest.TestReport],
        warnings: Iterable[dict[str, Any]] = (),
        *,
        finish: bool = True,
    ) -> None:
        """A test has ended. `finish`: it has nothing left to tear down."""
        count_failed_subtests(item, reports)
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
            if hasattr(report, "rerun"):  # What pytest-rerunfailures looks at in the end.
                vars(item)["execution_count"] = report.rerun + 1
        self.warn(warnings)
        if finish:
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def warn(self, warnings: Iterable[dict[str, Any]]) -> None:
        hook = self._config.hook.pytest_warning_recorded
        for one in warnings:
            hook.call_historic(kwargs={**one, "warning_message": _received(one["warning_message"])})

    def finish(
        self, held: tuple[pytest.Item, pytest.TestReport] | None, late: bytes | None
    ) -> None:
        """The teardown of a worker's last test is over: `late` is how it really ended."""
        report = None if late is None else loaded(late)
        if held is None:
            if report is not None and report.failed:
                self._config.hook.pytest_runtest_logreport(report=report)
            return
        item, known = held
        ends = [known] if report is None else [report]
        if report is not None and known.failed:
            # Its own teardown has failed already.
            ends = [known, *([report] if report.failed else [])]
        elif report is not None:
            report.user_properties = known.user_properties
            if (data := report_data_of(known)) is not None:
                attach_report_data(report, data)
        for end in ends:
            item.ihook.pytest_runtest_logreport(report=end)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def add_suite_properties(self, properties: Iterable[tuple[str, str]]) -> None:
        """To JUnit's file."""
        xml = junit_file_of(self._config)
        for one in properties if xml is not None else ():
            if one not in xml.global_properties:
                xml.global_properties.append(one)

    def worker_ended(self, name: str, output: dict[str, Any] | None) -> None:
        """As xdist does it, for those that collect what workers put out."""
        hook = getattr(self._config.hook, "pytest_testnodedown", None)
        if hook is not None and output:
            gateway = SimpleNamespace(id=name)
            node = SimpleNamespace(gateway=gateway, config=self._config, workeroutput=output)
            hook(node=node, error=None)
