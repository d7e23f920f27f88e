"""The part that pytest loads at every start: flags, marks and fixtures.

The rest is loaded on demand. Unless a flag, a variable or the ini file asks for something, pytest
behaves as without this plugin.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from paraval.pytest_plugin.models.spent import SPENDING, properties_in
from paraval.pytest_plugin.options import OPTIONS, add_flags, read_options

if TYPE_CHECKING:
    from paraval.pytest_plugin.model_fixture import ModelUnderTest
    from paraval.pytest_plugin.usage import Usage


MARKS = (
    "serial: runs alone, while no other test runs",
    "parallel_group(name, limit=1): one worker runs all its tests; or at most `limit` run at once",
    "timeout_s(seconds): ends the test after this time and reports where it hung",
    "retry_rate_limits(account=None, tries=20): reruns the test when it hits a rate limit",
)
READ_BY_US = frozenset({"parallel_group", "timeout_s", "retry_rate_limits"})
"""Marks that take arguments."""
WRONG_MODELS = pytest.StashKey[str]()
"""Why tests that use a model could not be generated."""


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flags(parser)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    options = read_options(config, os.environ)
    config.stash[OPTIONS] = options
    if options.store is not None:
        from paraval.pytest_plugin.recording.recording import register_recording

        register_recording(config, options)
    if options.is_parallel and not hasattr(config, "workerinput"):
        from paraval.pytest_plugin.session import register_parallel

        register_parallel(config, options)
    if not config.pluginmanager.has_plugin("xdist"):
        config.pluginmanager.register(_workers_fixtures(), "paraval-workers")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Report all invalid marks before anything runs; enforce our marks without --parallel too."""
    marked = _with_own_marks(items)
    mistakes = [config.stash[WRONG_MODELS]] if WRONG_MODELS in config.stash else []
    if marked or mistakes:
        from paraval.pytest_plugin.planning import mistakes_in, refuse

        mistakes += mistakes_in(marked)
        if mistakes:
            refuse(session, items, mistakes)
    if marked:
        from paraval.pytest_plugin.retries import RateLimitRetryPlugin
        from paraval.pytest_plugin.time_limits import TimeLimits

        config.pluginmanager.register(TimeLimits(), TimeLimits.NAME)
        if not config.stash[OPTIONS].is_parallel:
            config.pluginmanager.register(RateLimitRetryPlugin(), RateLimitRetryPlugin.NAME)


def _with_own_marks(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests with our marks. Checks each parent once: there may be thousands of tests."""

    def is_own(marks: Iterable[pytest.Mark]) -> bool:
        return not READ_BY_US.isdisjoint([mark.name for mark in marks])

    parents = {item.parent for item in items}
    around = {node: node is not None and is_own(node.iter_markers()) for node in parents}
    return [item for item in items if around[item.parent] or is_own(item.own_markers)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model" in metafunc.fixturenames:
        from paraval.pytest_plugin.models.choice import generate

        wrong = generate(metafunc, metafunc.config.stash[OPTIONS])
        if wrong is not None:
            metafunc.config.stash[WRONG_MODELS] = wrong


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start another attempt of a test that called models before."""
    spending = item.stash.get(SPENDING, None)
    if spending is not None:
        spending.begin()


def _workers_fixtures() -> ModuleType:
    """What xdist offers, where it is not installed."""

    @pytest.fixture(scope="session")
    def worker_id(request: pytest.FixtureRequest) -> str:
        """The worker that runs the tests: gw0, gw1, ...; `master` without workers."""
        return str(getattr(request.config, "workerinput", {}).get("workerid", "master"))

    @pytest.fixture(scope="session")
    def testrun_uid(request: pytest.FixtureRequest) -> str:
        """The same in all workers of a session."""
        given = getattr(request.config, "workerinput", {}).get("testrunuid")
        return str(given or uuid.uuid4().hex)

    module = ModuleType("paraval_workers")
    vars(module).update(worker_id=worker_id, testrun_uid=testrun_uid)
    return module


@pytest.fixture
def record_score(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Record how good the result is, from 0 to 1: record_score(0.95), or (0.95, "confidence")."""
    from paraval.pytest_plugin.models.item_outcomes import record_score_of

    return partial(record_score_of, request.node)


@pytest.fixture
def usage(request: pytest.FixtureRequest) -> Usage:
    """Tokens and cost of this test's model calls: usage.add(response), usage.add(cost_usd=0.01)."""
    from paraval.pytest_plugin.usage import make_usage

    return make_usage(request)


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest) -> ModelUnderTest:
    """A model from the registry (models.yaml); a test that uses it runs once per chosen model."""
    from paraval.pytest_plugin.model_fixture import make_model

    return make_model(request)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    properties = properties_in(terminalreporter)
    if properties:
        from paraval.pytest_plugin.models.spending import spends_in, summary_lines, summed

        lines = summary_lines(summed(map(spends_in, properties)))
        if lines:
            terminalreporter.write_sep("=", "models")
        for line in lines:
            terminalreporter.write_line(line)
