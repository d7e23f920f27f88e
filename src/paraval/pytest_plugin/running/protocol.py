"""A test's three phases: in parallel in a thread, or exclusively in the main thread.

Does what `_pytest.runner` does, for one of several concurrent tests. The hooks of all plugins and
conftests are called as always, in the test's own thread, except those whose work is process-wide:
this package does that for each test separately. Reports are not sent to reporters here, but kept
for the main thread.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.exclusive.guards import ProcessGuard
from paraval.pytest_plugin.fixtures.instances import FixtureInstances
from paraval.pytest_plugin.isolation.item_environment import environment_alone
from paraval.pytest_plugin.models.item_outcomes import result_of
from paraval.pytest_plugin.pytest_internals import check_interactive_exception, runtestprotocol
from paraval.pytest_plugin.running.attempts import will_come_again
from paraval.pytest_plugin.running.current_test import Phase, PhaseEnd, RunningTest, current_test
from paraval.pytest_plugin.running.patches import Isolation
from paraval.records import AttemptResult

TIMEOUT_PLUGINS = ("timeout", "pytest_timeout")
"""pytest-timeout, by its entry point or as `-p pytest_timeout`: its timers end the process."""
REPLACED_PLUGINS = (
    "capturemanager",
    "logging-plugin",
    "threadexception",
    "unraisableexception",
    *TIMEOUT_PLUGINS,
)
"""Process-wide; `capture`, `item_logs`, `exceptions` and `timeouts` replace them per test."""
REPLACED_WRAPPERS = ("runner", "warnings", "faulthandler", "assertion", *TIMEOUT_PLUGINS)
"""The same for plugins that wrap a test's whole protocol: replaced by this module, `item_warnings`,
`exceptions` and `timeouts`. faulthandler's dump of all threads after a timeout is omitted."""
RERUN_PLUGINS = ("rerunfailures", "pytest_rerunfailures")
"""pytest-rerunfailures, by its entry point or as `-p pytest_rerunfailures`. Its teardown hook would
remove what all tests share from the setup stack."""

_PYTESTS_OWN = ("runner", "skipping", "tmpdir", "unittest")
"""The parts of pytest that take part in a test's protocol and reports, and print nothing."""
_NOT_SUSPENDED = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCallers:
    """The hooks of one folder's tests."""

    setup: Any
    call: Any
    teardown: Any
    around: Any
    """The hooks that other plugins wrap around a whole test; None: there are none."""
    relay: Any
    suspends_capture: bool
    """Whether other plugins' hooks make reports, and may print."""

    def of(self, phase: Phase) -> Any:
        return {"setup": self.setup, "call": self.call, "teardown": self.teardown}[phase]


class RuntestProtocol:
    """Runs tests in the threads that call it."""

    def __init__(
        self,
        config: pytest.Config,
        keep: Callable[[pytest.Item], None],
        begin_again: Callable[[RunningTest], None],
    ) -> None:
        """`keep` is called before the teardown of a test that failed and will run again;
        `begin_again` before it runs again in the same thread."""
        self._keep = keep
        self._begin_again = begin_again
        self._manager = config.pluginmanager
        self._reruns: Any = next(iter(self._plugins(RERUN_PLUGINS)), None)
        self._setup_only = bool(config.getoption("setuponly", False))
        self._callers: dict[frozenset[object], HookCallers] = {}

    def run(self, test: RunningTest) -> list[PhaseEnd]:
        """Run all phases. Raises what must end the run: pytest.exit and KeyboardInterrupt."""
        callers = self._callers_for(test.item)
        if callers.around is None:
            self._phases(test, callers)
            return test.ended
        test.inner = lambda: self._attempts(test, callers)
        callers.around(item=test.item, nextitem=None)
        return test.ended

    def _attempts(self, test: RunningTest, callers: HookCallers) -> None:
        """Run the test once, or as often as pytest-rerunfailures wants.

        It decides with its own code, in a copy that calls us for each attempt. What it sends to
        reporters is kept, like all reports.
        """
        item, plugin = test.item, self._reruns
        reports: list[pytest.TestReport] = []
        if plugin is None or not plugin.get_reruns_count(item):
            self._phases(test, callers)
            return
        test.check = "none"  # The user determines the number of reruns.

        def attempt(*_: object, **__: object) -> list[pytest.TestReport]:
            begun = len(test.ended)
            if begun:
                self._begin_again(test)
            self._phases(test, callers)
            return [end.report for end in test.ended[begun:]]

        def collect(report: pytest.TestReport) -> None:
            reports.append(report)

        hooks = _Overlay(
            item.ihook,
            pytest_runtest_logstart=_ignore,
            pytest_runtest_logfinish=_ignore,
            pytest_runtest_logreport=collect,
        )
        # Tests with subtests run exclusively, and the lists that it would clean up belong to the
        # main thread.
        own = {"runtestprotocol": attempt, "_remove_failed_subtest_reports_from_stats": _ignore}
        code = plugin.pytest_runtest_protocol.__code__
        run = FunctionType(code, {**vars(plugin), **own})
        if run(_Overlay(item, ihook=hooks), None) is None:  # By --rerun-exclude-path.
            self._phases(test, callers)
            return
        by_report = {id(end.report): end for end in test.ended}
        test.ended[:] = [by_report[id(report)] for report in reports]

    def _phases(self, test: RunningTest, callers: HookCallers) -> None:
        item, ends = test.item, test.ended
        if not getattr(item, "_request", True):
            item._initrequest()  # type: ignore[attr-defined]  # like pytest's runner, for a second run
        try:
            ends.append(self._phase(test, callers, "setup"))
            if ends[-1].report.passed and not self._setup_only:
                ends.append(self._phase(test, callers, "call"))
            if ends[-1].report.failed and (
                test.is_to_be_checked
                or will_come_again(ends, item)
                or (self._reruns is not None and _is_run_again(self._reruns, item))
            ):
                self._keep(item)
            ends.append(self._phase(test, callers, "teardown"))
        finally:
            if hasattr(item, "_request"):
                item._request = False
                item.funcargs = None  # type: ignore[attr-defined]  # like pytest's runner

    def _phase(self, test: RunningTest, callers: HookCallers, phase: Phase) -> PhaseEnd:
        item, hook = test.item, callers.of(phase)
        named = {"nextitem": None} if phase == "teardown" else {}

        def act() -> None:
            test.phase = phase
            test.logs.begin(phase)
            try:
                hook(item=item, **named)
            finally:
                for key, text in test.captured.take():
                    item.add_report_section(phase, key, text)
                test.logs.end(phase)

        call = pytest.CallInfo.from_call(
            act, when=phase, reraise=(pytest.exit.Exception, KeyboardInterrupt)
        )
        # As in pytest, what hooks print here is not part of the test's output.
        with test.captured.suspended() if callers.suspends_capture else _NOT_SUSPENDED:
            report = callers.relay.pytest_runtest_makereport(item=item, call=call)
        error = None if call.excinfo is None else call.excinfo.value

        def interact() -> None:
            callers.relay.pytest_exception_interact(node=item, call=call, report=report)

        interacts = interact if check_interactive_exception(call, report) else None
        return PhaseEnd(report=report, error=error, interacts=interacts)

    def _callers_for(self, item: pytest.Item) -> HookCallers:
        """The hooks for a test, without conftests of other folders, as in pytest's own proxy."""
        relay = item.ihook
        elsewhere = frozenset(getattr(relay, "remove_mods", ()))
        if elsewhere not in self._callers:
            self._callers[elsewhere] = self._make_callers(relay, elsewhere)
        return self._callers[elsewhere]

    def _make_callers(self, relay: Any, elsewhere: frozenset[object]) -> HookCallers:
        without = elsewhere | self._plugins(REPLACED_PLUGINS)
        subset = self._manager.subset_hook_caller
        around = subset("pytest_runtest_protocol", elsewhere | self._plugins(REPLACED_WRAPPERS))
        reporters = relay.pytest_runtest_makereport
        return HookCallers(
            setup=subset("pytest_runtest_setup", without),
            call=subset("pytest_runtest_call", without),
            teardown=subset("pytest_runtest_teardown", without | self._plugins(RERUN_PLUGINS)),
            around=around if _has_other_plugins(around) else None,
            relay=relay,
            suspends_capture=_has_other_plugins(reporters),
        )

    def _plugins(self, names: Iterable[str]) -> frozenset[object]:
        found = (self._manager.get_plugin(name) for name in names)
        return frozenset(plugin for plugin in found if plugin is not None)


def _has_other_plugins(hook: Any) -> bool:
    """Whether plugins other than pytest's and ours implement the hook."""
    names = (str(one.plugin_name) for one in hook.get_hookimpls())
    return any(name not in _PYTESTS_OWN and not name.startswith("paraval-") for name in names)


def _is_run_again(plugin: Any, item: pytest.Item) -> bool:
    """Whether pytest-rerunfailures will rerun the test, so that shared fixtures must stay up."""

    def has(name: str) -> bool:
        return any(getattr(item, name, {}).values())

    return (
        getattr(item, "execution_count", 0) <= (plugin.get_reruns_count(item) or 0)
        and has("_test_failed_statuses")
        and not has("_test_xfailed")
        and not has("_terminal_errors")
    )


class _Overlay:
    """An object that replaces some attributes of another one and forwards everything else to it."""

    def __init__(self, below: object, **own: object) -> None:
        vars(self).update(own, _below=below)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_below"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(vars(self)["_below"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(vars(self)["_below"], name)


def _ignore(*_: object, **__: object) -> None: ...


class InnermostProtocol:
    """A plugin that runs the test inside everything that others wrap around its protocol."""

    NAME = "paraval-middle"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        test = current_test()
        if test is None or test.item is not item or test.inner is None:
            return None
        test.inner()
        return True


# ---- how a test ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """One execution of a test."""

    item: pytest.Item
    phases: Sequence[PhaseEnd]
    result: AttemptResult
    """The result for the engine."""
    warned: Sequence[warnings.WarningMessage] = ()
    is_to_be_checked: bool = False
    """True: it failed in parallel, and is rerun alone before it is reported."""
    may_have_called: bool = False
    """True: if it failed, it was not rerun only because it may have called a model."""
    is_parallel: bool = False
    """True: it ran in parallel with others."""
    is_reported: bool = False
    """True: it has already been reported, like an exclusive test."""


# ---- exclusive tests


class AloneRunner:
    """Runs exclusive tests; also a plugin, to record how their phases end."""

    NAME = "paraval-solo"

    def __init__(
        self,
        isolation: Isolation,
        fixtures: FixtureInstances,
        guard: ProcessGuard,
        *,
        keep: Callable[[pytest.Item], None],
        on_end: Callable[[str, bool], None],
    ) -> None:
        """`keep` is called before the teardown of a test that will be retried; `on_end` for each
        test, with whether the guards saw it change the process."""
        self._keep = keep
        self._isolation = isolation
        self._fixtures = fixtures
        self._guard = guard
        self._on_end = on_end
        self._phases: list[PhaseEnd] = []
        self._is_deferred = False

    def run(
        self, item: pytest.Item, *, before: Callable[[], None], is_deferred: bool
    ) -> ItemResult:
        """Run the test in the main thread, after `before`. `is_deferred`: don't report it yet."""
        self._isolation.remove()
        before()
        self._fixtures.give(item)
        self._phases = []
        began, changes = time.perf_counter(), self._guard.changes_alone
        listening = self._listening(item.config.pluginmanager, is_deferred=is_deferred)
        with environment_alone(item), listening:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        self._on_end(item.nodeid, self._guard.changes_alone > changes)
        return ItemResult(
            item=item,
            phases=tuple(self._phases),
            result=result_of(item, self._phases, time.perf_counter() - began),
            is_reported=not is_deferred,
        )

    @contextmanager
    def _listening(
        self, manager: pytest.PytestPluginManager, *, is_deferred: bool
    ) -> Iterator[None]:
        """Register only for such a test: otherwise every hook of other tests would be slower."""
        self._is_deferred = is_deferred
        manager.register(self, self.NAME)
        try:
            yield
        finally:
            manager.unregister(self)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        if not self._is_deferred:
            return None
        runtestprotocol(item, log=False, nextitem=nextitem)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        self._phases.append(PhaseEnd(report=report, error=error))
        if report.when != "teardown" and will_come_again(self._phases, item):
            self._keep(item)
        return report
