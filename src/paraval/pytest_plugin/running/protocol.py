"""A test's three phases: beside others in a thread, or alone in the main one.

What `_pytest.runner` does, for a turn. All plugins and conftests have their hooks called as always,
in the test's own thread, but for those whose work is process-wide and done by this package for each
turn apart. Nothing is told to reporters here: the reports are kept for the main thread.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pytest
from _pytest import runner
from _pytest.runner import runtestprotocol

from paraval.pytest_plugin.exclusive.guards import Net
from paraval.pytest_plugin.fixtures.instances import OwnFixtures
from paraval.pytest_plugin.isolation.test_environment import environment_alone
from paraval.pytest_plugin.models.test_outcomes import result_of
from paraval.pytest_plugin.running.attempts import will_come_again
from paraval.pytest_plugin.running.current_test import Phase, Turn, current
from paraval.pytest_plugin.running.patches import Apart
from paraval.records import AttemptResult

TIMEOUT_PLUGINS = ("timeout", "pytest_timeout")
"""pytest-timeout, by its entry point or as `-p pytest_timeout`: its timers end the process."""
NOT_IN_TURNS = (
    "capturemanager",
    "logging-plugin",
    "threadexception",
    "unraisableexception",
    *TIMEOUT_PLUGINS,
)
"""Process-wide, and done apart for each turn: by `capture`, `logs`, `exceptions` and `timeouts`."""
NOT_AROUND_TURNS = ("runner", "warnings", "faulthandler", "assertion", *TIMEOUT_PLUGINS)
"""Of those that wrap a test's whole protocol: the same, by this module, `test_warnings`,
`exceptions` and `timeouts`; a dump of all threads after a while is left out."""
RERUN_PLUGINS = ("rerunfailures", "pytest_rerunfailures")
"""pytest-rerunfailures, by its entry point or as `-p pytest_rerunfailures`. Its teardown hook would
take what all tests share off the stack of what is set up."""

_PYTESTS_OWN = ("runner", "skipping", "tmpdir", "unittest")
"""What of pytest itself has a part in a test's protocol and in its reports; it prints nothing."""
_UNLIFTED = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnd:
    """How one phase of a test ended."""

    report: pytest.TestReport
    error: BaseException | None
    interacts: Callable[[], None] | None
    """Tells plugins of the exception; for the main thread. None: there is nothing to be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callers:
    """The hooks of one folder's tests."""

    setup: Any
    call: Any
    teardown: Any
    around: Any
    """What others wrap around a whole test; None: nobody does."""
    relay: Any
    lifts: bool
    """Whether hooks of others make reports, and may print."""

    def of(self, phase: Phase) -> Any:
        return {"setup": self.setup, "call": self.call, "teardown": self.teardown}[phase]


class Protocol:
    """Runs tests in the threads that call it."""

    def __init__(
        self,
        config: pytest.Config,
        keep: Callable[[pytest.Item], None],
        begin_again: Callable[[Turn], None],
    ) -> None:
        """`keep`: told, before its teardown, of a test that has failed and will run again;
        `begin_again`: called before it is run again in the same turn."""
        self._keep = keep
        self._begin_again = begin_again
        self._manager = config.pluginmanager
        self._reruns: Any = next(iter(self._plugins(RERUN_PLUGINS)), None)
        self._setup_only = bool(config.getoption("setuponly", False))
        self._callers: dict[frozenset[object], Callers] = {}

    def run(self, turn: Turn) -> list[PhaseEnd]:
        """All phases of the turn's test. Raises what is to end the whole run: pytest.exit, and
        KeyboardInterrupt."""
        callers = self._callers_for(turn.item)
        if callers.around is None:
            self._phases(turn, callers)
            return turn.ended
        turn.inner = lambda: self._attempts(turn, callers)
        callers.around(item=turn.item, nextitem=None)
        return turn.ended

    def _attempts(self, turn: Turn, callers: Callers) -> None:
        """One; or as many as pytest-rerunfailures wants. It decides by its own code, in a copy that
        calls us for each attempt; what it tells reporters is kept, as all reports are."""
        item, plugin = turn.item, self._reruns
        told: list[pytest.TestReport] = []
        if plugin is None or not plugin.get_reruns_count(item):
            self._phases(turn, callers)
            return
        turn.check = "none"  # How often it is run is told.

        def attempt(*_: object, **__: object) -> list[pytest.TestReport]:
            begun = len(turn.ended)
            if begun:
                self._begin_again(turn)
            self._phases(turn, callers)
            return [end.report for end in turn.ended[begun:]]

        def tell(report: pytest.TestReport) -> None:
            told.append(report)

        hooks = _Overlay(
            item.ihook,
            pytest_runtest_logstart=_ignore,
            pytest_runtest_logfinish=_ignore,
            pytest_runtest_logreport=tell,
        )
        # Tests with subtests run alone; and the lists that it would clean up are the main thread's.
        own = {"runtestprotocol": attempt, "_remove_failed_subtest_reports_from_stats": _ignore}
        code = plugin.pytest_runtest_protocol.__code__
        run = FunctionType(code, {**vars(plugin), **own})
        if run(_Overlay(item, ihook=hooks), None) is None:  # By --rerun-exclude-path.
            self._phases(turn, callers)
            return
        by_report = {id(end.report): end for end in turn.ended}
        turn.ended[:] = [by_report[id(report)] for report in told]

    def _phases(self, turn: Turn, callers: Callers) -> None:
        item, ends = turn.item, turn.ended
        if not getattr(item, "_request", True):
            item._initrequest()  # type: ignore[attr-defined]  # as pytest's runner, for a second run
        try:
            ends.append(self._phase(turn, callers, "setup"))
            if ends[-1].report.passed and not self._setup_only:
                ends.append(self._phase(turn, callers, "call"))
            if ends[-1].report.failed and (
                turn.is_to_be_checked
                or will_come_again(ends, item)
                or (self._reruns is not None and _is_run_again(self._reruns, item))
            ):
                self._keep(item)
            ends.append(self._phase(turn, callers, "teardown"))
        finally:
            if hasattr(item, "_request"):
                item._request = False
                item.funcargs = None  # type: ignore[attr-defined]  # as pytest's runner does

    def _phase(self, turn: Turn, callers: Callers, phase: Phase) -> PhaseEnd:
        item, hook = turn.item, callers.of(phase)
        named = {"nextitem": None} if phase == "teardown" else {}

        def act() -> None:
            turn.phase = phase
            turn.logs.begin(phase)
            try:
                hook(item=item, **named)
            finally:
                for key, text in turn.captured.take():
                    item.add_report_section(phase, key, text)
                turn.logs.end(phase)

        call = pytest.CallInfo.from_call(
            act, when=phase, reraise=(pytest.exit.Exception, KeyboardInterrupt)
        )
        # What hooks print here is no part of the test's output, as with pytest itself.
        with turn.captured.lifted() if callers.lifts else _UNLIFTED:
            report = callers.relay.pytest_runtest_makereport(item=item, call=call)
        error = None if call.excinfo is None else call.excinfo.value

        def interact() -> None:
            callers.relay.pytest_exception_interact(node=item, call=call, report=report)

        interacts = interact if runner.check_interactive_exception(call, report) else None
        return PhaseEnd(report=report, error=error, interacts=interacts)

    def _callers_for(self, item: pytest.Item) -> Callers:
        """Those of conftests that stand elsewhere are left out, as in pytest's own proxy."""
        relay = item.ihook
        elsewhere = frozenset(getattr(relay, "remove_mods", ()))
        if elsewhere not in self._callers:
            self._callers[elsewhere] = self._make_callers(relay, elsewhere)
        return self._callers[elsewhere]

    def _make_callers(self, relay: Any, elsewhere: frozenset[object]) -> Callers:
        without = elsewhere | self._plugins(NOT_IN_TURNS)
        subset = self._manager.subset_hook_caller
        around = subset("pytest_runtest_protocol", elsewhere | self._plugins(NOT_AROUND_TURNS))
        reporters = relay.pytest_runtest_makereport
        return Callers(
            setup=subset("pytest_runtest_setup", without),
            call=subset("pytest_runtest_call", without),
            teardown=subset("pytest_runtest_teardown", without | self._plugins(RERUN_PLUGINS)),
            around=around if _others(around) else None,
            relay=relay,
            lifts=_others(reporters),
        )

    def _plugins(self, names: Iterable[str]) -> frozenset[object]:
        found = (self._manager.get_plugin(name) for name in names)
        return frozenset(plugin for plugin in found if plugin is not None)


def _others(hook: Any) -> bool:
    """Whether anybody but pytest and this package has something to do there."""
    names = (str(one.plugin_name) for one in hook.get_hookimpls())
    return any(name not in _PYTESTS_OWN and not name.startswith("paraval-") for name in names)


def _is_run_again(plugin: Any, item: pytest.Item) -> bool:
    """Whether pytest-rerunfailures thinks so before the teardown: what tests share stays up."""

    def has(name: str) -> bool:
        return any(getattr(item, name, {}).values())

    return (
        getattr(item, "execution_count", 0) <= (plugin.get_reruns_count(item) or 0)
        and has("_test_failed_statuses")
        and not has("_test_xfailed")
        and not has("_terminal_errors")
    )


class _Overlay:
    """An object with other values for some attributes; all else is that object's."""

    def __init__(self, below: object, **own: object) -> None:
        vars(self).update(own, _below=below)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_below"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(vars(self)["_below"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(vars(self)["_below"], name)


def _ignore(*_: object, **__: object) -> None: ...


class Middle:
    """A plugin: what stands in the middle of all that others wrap around a test's protocol."""

    NAME = "paraval-middle"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        turn = current()
        if turn is None or turn.item is not item or turn.inner is None:
            return None
        turn.inner()
        return True


# ---- how a test ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnd:
    """One execution of a test."""

    item: pytest.Item
    phases: Sequence[PhaseEnd]
    result: AttemptResult
    """What the engine is told of it."""
    warned: Sequence[warnings.WarningMessage] = ()
    is_to_be_checked: bool = False
    """True: it failed beside others, and is run once more, alone, before reporters hear of it."""
    may_have_asked: bool = False
    """True: if it failed, it was not run again only because it may have asked a model."""
    is_beside: bool = False
    """True: it ran beside others."""
    is_told: bool = False
    """True: reporters have heard of it already, as of a test that ran alone."""


# ---- alone


class Solo:
    """A plugin, too: it takes down how the phases of the one test that runs here end."""

    NAME = "paraval-solo"

    def __init__(
        self,
        apart: Apart,
        fixtures: OwnFixtures,
        net: Net,
        *,
        keep: Callable[[pytest.Item], None],
        on_end: Callable[[str, bool], None],
    ) -> None:
        """`keep` is told of a test that will be tried again, before its teardown; `on_end` of each
        whether it changed the process, as far as nets tell."""
        self._keep = keep
        self._apart = apart
        self._fixtures = fixtures
        self._net = net
        self._on_end = on_end
        self._phases: list[PhaseEnd] = []
        self._is_told_later = False

    def run(self, item: pytest.Item, *, before: Callable[[], None], is_told_later: bool) -> ItemEnd:
        """In the main thread; `before` anything of it is told. `is_told_later`: reporters hear
        nothing of it yet."""
        self._apart.take_down()
        before()
        self._fixtures.give(item)
        self._phases = []
        began, changes = time.perf_counter(), self._net.changes_alone
        listening = self._listening(item.config.pluginmanager, is_told_later=is_told_later)
        with environment_alone(item), listening:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        self._on_end(item.nodeid, self._net.changes_alone > changes)
        return ItemEnd(
            item=item,
            phases=tuple(self._phases),
            result=result_of(item, self._phases, time.perf_counter() - began),
            is_told=not is_told_later,
        )

    @contextmanager
    def _listening(
        self, manager: pytest.PytestPluginManager, *, is_told_later: bool
    ) -> Iterator[None]:
        """Only while such a test runs: every hook of every other test would pay for it."""
        self._is_told_later = is_told_later
        manager.register(self, self.NAME)
        try:
            yield
        finally:
            manager.unregister(self)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        if not self._is_told_later:
            return None
        runtestprotocol(item, log=False, nextitem=nextitem)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        self._phases.append(PhaseEnd(report=report, error=error, interacts=None))
        if report.when != "teardown" and will_come_again(self._phases, item):
            self._keep(item)
        return report
