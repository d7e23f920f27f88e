"""What pytest loads at every start: flags, marks and fixtures; the rest only when asked for.

Without a flag, a variable or a line in the ini file that asks for something, pytest is as it was.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from paraval.pytest_plugin.flags import add_flags
from paraval.pytest_plugin.spent import SPENDING
from paraval.pytest_plugin.wanted import Wanted, read_wanted

if TYPE_CHECKING:
    from paraval.pytest_plugin.model_fixture import ModelUnderTest
    from paraval.pytest_plugin.usage import Usage

MARKS = (
    "serial: runs alone, when no other test does",
    "parallel_group(name, limit=1): at most so many tests of the group run at once",
    "timeout_s(seconds): the test is ended after so long, and where it hung is told",
    "retry_rate_limits(account=None, tries=20): refused by a rate limit, the test runs again",
)
WANTED = pytest.StashKey[Wanted]()


def pytest_addoption(parser: pytest.Parser) -> None:
    add_flags(parser)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    wanted = read_wanted(config, os.environ)
    config.stash[WANTED] = wanted
    if wanted.is_parallel:
        from paraval.pytest_plugin.session import register_parallel

        register_parallel(config, wanted)
    if wanted.store is not None:
        from paraval.pytest_plugin.recording import register_recording

        register_recording(config, wanted)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks that a plain run has to see to, too."""
    if not config.stash[WANTED].is_parallel and any(map(_has_own_mark, items)):
        from paraval.pytest_plugin.plain import register_plain

        register_plain(config)


def _has_own_mark(item: pytest.Item) -> bool:
    return any(mark.name in ("timeout_s", "retry_rate_limits") for mark in item.iter_markers())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "model" in metafunc.fixturenames:
        from paraval.pytest_plugin.model_choice import generate

        generate(metafunc, metafunc.config.stash[WANTED])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Of a test that has asked models before, another attempt begins."""
    spending = item.stash.get(SPENDING, None)
    if spending is not None:
        spending.begin()


@pytest.fixture
def usage(request: pytest.FixtureRequest) -> Usage:
    """What this test's calls of models took: usage.add(response) or usage.add(input_tokens=9)."""
    from paraval.pytest_plugin.usage import make_usage

    return make_usage(request)


@pytest.fixture(scope="session")
def model(request: pytest.FixtureRequest) -> ModelUnderTest:
    """A model of the registry (models.yaml); each test that asks for it runs once for each."""
    from paraval.pytest_plugin.model_fixture import make_model

    return make_model(request)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    from paraval.pytest_plugin.spent import spent_in

    by_model = spent_in(terminalreporter)
    if by_model:
        from paraval.pytest_plugin.cost_summary import lines

        terminalreporter.write_sep("=", "models")
        for line in lines(by_model):
            terminalreporter.write_line(line)
