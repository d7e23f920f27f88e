"""A session with `--parallel`: what it says at its start and its end, and who runs its tests."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from paraval.pytest_plugin.history import History
from paraval.pytest_plugin.keeper import why_not_fork
from paraval.pytest_plugin.options import PluginOptions, StartForm
from paraval.pytest_plugin.parallel_run import ParallelRun
from paraval.pytest_plugin.planning import SessionPlan, plan_session
from paraval.pytest_plugin.pytest_internals import (
    ReportOrder,
    Session,
    dots_of_many_files,
    fixtures_named,
    why_one_by_one,
)
from paraval.text.words import counted

NAME = "paraval-parallel"


def register_parallel(config: pytest.Config, options: PluginOptions) -> None:
    """Take over the session's loop."""
    if pytest.version_tuple < (8, 2):
        raise pytest.UsageError(
            f"--parallel needs pytest 8.2 or newer; this is {pytest.__version__}"
        )
    if getattr(config.option, "dist", "no") != "no":
        raise pytest.UsageError(
            "--parallel (PARALLEL_WORKERS, or parallel in the ini file) and xdist's -n cannot be "
            "combined, since both have workers; --parallel=0 turns ours off"
        )
    manager = config.pluginmanager
    history = History(config)
    manager.register(history, History.NAME)
    order = ReportOrder(config)
    manager.register(order, ReportOrder.NAME)
    manager.register(ParallelSession(config, options, history, order), NAME)


class ParallelSession:
    """Hooks of a session whose tests run in workers."""

    def __init__(
        self, config: pytest.Config, options: PluginOptions, history: History, order: ReportOrder
    ) -> None:
        self._config = config
        self._options = options
        self._history = history
        self._order = order
        self._plan: SessionPlan | None = None
        self._why_plain: str | None = None
        self._run: ParallelRun | None = None
        self._why_program: str | None = None
        """Why workers are programs of their own, and not forks."""

    @pytest.hookimpl(trylast=True)
    def pytest_report_collectionfinish(self, items: Sequence[pytest.Item]) -> list[str]:
        """Say how the tests will run."""
        if not items:
            return []
        self._why_plain = why_one_by_one(self._config)
        if self._why_plain is not None:
            return [f"not in parallel: {self._why_plain}"]
        if self._options.start is StartForm.EXEC:
            self._why_program = "--parallel-start exec"
        elif self._options.start is None:
            self._why_program = why_not_fork()
        plan = self._planned(items)
        at_once = "auto" if self._options.auto else str(self._options.parallel)
        words = "forked workers"
        if self._why_program is not None:
            words = f"workers start as programs ({self._why_program})"
        alone = f", {counted(len(plan.alone), 'test')} alone" if plan.alone else ""
        shared = {name: self._why_not_shared(name, items) for name in self._options.shared}
        left = tuple(name for name, why in shared.items() if why is None)
        self._options = replace(self._options, shared=left)
        whys = (f"parallel_shared: {why}" for why in shared.values() if why is not None)
        return [f"parallel {at_once}: {words}{alone}", *plan.conflicts, *whys]

    def _why_not_shared(self, name: str, items: Sequence[pytest.Item]) -> str | None:
        """Why a fixture of `parallel_shared` is not shared."""
        found = fixtures_named(name, items)
        if not found:
            return f"there is no fixture '{name}'"
        if any(one.scope != "session" for one in found):
            return f"'{name}' has the scope {found[-1].scope}, not session"
        if self._why_program is not None:
            return f"'{name}' is not shared, since workers start as programs"
        return None

    def _planned(self, items: Sequence[pytest.Item]) -> SessionPlan:
        if self._plan is None:
            self._plan = plan_session(items, self._options, self._history)
        return self._plan

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: Session) -> Generator[None, Any, Any]:
        """Fork the keeper before anything has a thread, an open file or a connection."""
        option = session.config.option
        is_broken = session.testsfailed and not option.continue_on_collection_errors
        if option.collectonly or is_broken or not session.items or self._why_plain is not None:
            return (yield)
        with tempfile.TemporaryDirectory(prefix="paraval-pytest-") as folder:
            self._run = ParallelRun(
                session,
                self._planned(session.items),
                self._options,
                history=self._history,
                folder=folder,
                is_forked=self._why_program is None,
            )
            return (yield)

    @pytest.hookimpl(tryfirst=True, specname="pytest_runtestloop")
    def pytest_run_in_workers(self, session: Session) -> bool | None:
        run = self._run
        if run is None:
            return None
        with dots_of_many_files(self._config, session.items):
            run.run()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Session) -> None:
        self._order.restore(session.items)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in () if self._run is None else self._run.notes:
            terminalreporter.write_line(line, yellow=True)
