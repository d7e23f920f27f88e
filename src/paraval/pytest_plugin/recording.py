"""`--paraval-store`: every run of the tests is a run in the store, as those of suites are.

One way for all sessions, plain, parallel and with xdist: it is recorded from what pytest tells its
reporters. The engine has no part in it, and neither have xdist's workers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import ParavalError
from paraval.models.secrets import Redactor
from paraval.pytest_plugin.code_state import code_state
from paraval.pytest_plugin.flags import FAIL_UNDER, dest_of
from paraval.pytest_plugin.journal import Journal
from paraval.pytest_plugin.reviewing import Review, review_of
from paraval.pytest_plugin.sources import Sources
from paraval.pytest_plugin.store_hints import for_tests
from paraval.pytest_plugin.telling import register_telling
from paraval.pytest_plugin.trials import (
    Frame,
    KnownTest,
    has_model,
    key_by_code,
    known_test,
    named_test,
    plan_of,
)
from paraval.pytest_plugin.wanted import Wanted
from paraval.records import Limits, Model
from paraval.settings import TESTS
from paraval.store.store import Store

_SECRET = re.compile(r"(?:^|_)(?:KEY|TOKEN|PASSWORD)$|(?:^|_)SECRET", re.IGNORECASE)
"""Names of variables that hold what must not be kept."""


def register_recording(config: pytest.Config, wanted: Wanted) -> None:
    """xdist's workers only tell; the controller records."""
    register_telling(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recording(config, wanted), Recording.NAME)


class Recording:
    """A plugin."""

    NAME = "paraval-recording"

    def __init__(self, config: pytest.Config, wanted: Wanted) -> None:
        assert wanted.store is not None
        self._config = config
        self._wanted = wanted
        self._store = Store(wanted.store)
        self._fail_under = fail_under_in(config)
        self._journal: Journal | None = None
        self._review: Review | None = None
        self._why_not_all: str | None = None
        """Why the session ends before its time, if that is on purpose."""

    # ---- its beginning

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        option = session.config.option
        is_broken = session.testsfailed and not option.continue_on_collection_errors
        if session.items and not option.collectonly and not is_broken:
            models = self._models(are_asked_for=any(map(has_model, session.items)))
            self._begin([known_test(item, models) for item in session.items], models)
        return (yield)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """In the controller, which knows tests by name alone. All workers tell the same names."""
        if ids and self._journal is None and not self._config.option.collectonly:
            models = self._models(are_asked_for=any("[" in node_id for node_id in ids))
            self._begin([named_test(node_id, models) for node_id in ids], models)

    def _models(self, *, are_asked_for: bool) -> Mapping[str, Model]:
        """Of the registry, by name. In the controller nobody has read it yet."""
        if not are_asked_for:
            return {}
        # Only here: most tests need no registry, and to read one takes the whole planner.
        from paraval.pytest_plugin.model_choice import choose

        try:
            return choose(self._config, self._wanted).registry.models
        except ParavalError:
            # There is none: whatever a test calls a model is its own.
            return {}

    def _begin(self, tests: Sequence[KnownTest], models: Mapping[str, Model]) -> None:
        rootdir = self._config.rootpath
        redactor = _redactor(models)
        frame = Frame(
            name=redactor.text(str(self._config.getini("paraval_suite")))
            or f"pytest:{rootdir.name}",
            folder=str(rootdir),
            limits=Limits(parallel=self._at_once()),
            fail_under=self._fail_under,
            selection={TESTS: redactor.data(self._about(rootdir))},
        )
        # Parameters may be secrets, and they stand in the names of tests.
        shown = [replace(test, node_id=redactor.text(test.node_id)) for test in tests]
        plan = plan_of(shown, frame=frame, key_of=key_by_code(Sources(rootdir)))
        try:
            ledger = self._store.create_run(plan, seed=0)
        except ParavalError as error:
            raise pytest.UsageError(f"--paraval-store: {for_tests(error)}") from error
        self._journal = Journal(ledger, redactor, [test.node_id for test in tests])

    def _at_once(self) -> int:
        workers = getattr(self._config.option, "numprocesses", None)
        return max(1, self._wanted.parallel) * max(1, workers if isinstance(workers, int) else 1)

    def _about(self, rootdir: Path) -> dict[str, object]:
        """What a reader of the run may ask for: how it was started, and on which code."""
        state = code_state(rootdir)
        arguments = [str(argument) for argument in self._config.invocation_params.args]
        return {"arguments": arguments, **({} if state is None else state.as_mapping())}

    # ---- its course

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """In whichever thread the test runs; never in the controller of xdist."""
        if self._journal is not None:
            self._journal.begin(item.nodeid)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if self._journal is not None:
            self._journal.announce(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._journal is not None:
            self._journal.add(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if self._journal is not None:
            self._journal.end(nodeid)

    # ---- its end

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Also for what pytest stops for by itself, and for pytest.exit: then it says why."""
        if isinstance(excinfo.value, pytest.Session.Interrupted | pytest.exit.Exception):
            self._why_not_all = str(excinfo.value) or type(excinfo.value).__name__

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int | pytest.ExitCode
    ) -> None:
        if self._journal is None or self._review is not None:
            return
        self._journal.close(why_not_all=self._why(session, exitstatus))
        self._review = review_of(self._store, self._journal, self._fail_under)
        if self._fail_under is not None and exitstatus in (0, 1):
            session.exitstatus = 0 if self._review.is_good_enough else 1

    def _why(self, session: pytest.Session, exitstatus: int) -> str | None:
        """Why tests were left out; None: nobody meant to."""
        if self._why_not_all is not None:
            return f"not run: {self._why_not_all}"
        if session.shouldfail:
            return f"not run: {session.shouldfail}"
        return "not run: the session ended without it" if exitstatus in (0, 1) else None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._review is not None:
            terminalreporter.write_sep("=", "recorded by paraval")
            for line in self._review.lines():
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """A session that broke off between its hooks was interrupted."""
        if self._journal is not None and self._review is None:
            self._journal.close(why_not_all=None)


def fail_under_in(config: pytest.Config) -> float | None:
    """The pass rate that is asked for, from 0 to 1; None: none is."""
    given = getattr(config.option, dest_of(FAIL_UNDER), None)
    text = str(config.getini("paraval_fail_under") if given is None else given).strip()
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise pytest.UsageError(f"{FAIL_UNDER}: a pass rate from 0 to 1; not {text!r}")
    return rate


def _redactor(models: Mapping[str, Model]) -> Redactor:
    """What tests may print or be named by: keys of the models, and what is named like one."""
    names = {model.api_key_env for model in models.values()}
    return Redactor(
        value for name, value in os.environ.items() if name in names or _SECRET.search(name)
    )
