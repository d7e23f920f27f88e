"""A test that a rate limit refused is tried again: each attempt begins as the first one did."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.child_pytest import run_pytest

ONCE_MORE = """
    import paraval
    import pytest

    TRIED = []

    def be_refused_at_first(name):
        TRIED.append(name)
        if TRIED.count(name) == 1:
            raise paraval.RateLimitedError(retry_after=0.01)

    @pytest.fixture(scope="module")
    def server(log):
        log.append("up")
        yield
        log.append("down")

    @pytest.fixture(scope="module")
    def lone_server(log):
        log.append("alone up")
        yield
        log.append("alone down")

    class TestRefused:
        @pytest.mark.retry_rate_limits(account="one")
        def test_beside(self, server, record_property):
            record_property("tried", len(TRIED))
            assert not hasattr(self, "left"), "the object of the attempt before"
            self.left = True
            be_refused_at_first("beside")

        @pytest.mark.serial
        @pytest.mark.retry_rate_limits(account="another")
        def test_alone(self, lone_server, record_property):
            record_property("alone", len(TRIED))
            be_refused_at_first("alone")
"""
ONCE_MORE_CONFTEST = """
    import pytest

    LOG = []

    @pytest.fixture(scope="session")
    def log():
        return LOG

    def pytest_runtest_logreport(report):
        if report.when == "teardown":
            LOG.append([name for name, _ in report.user_properties])

    def pytest_terminal_summary(terminalreporter):
        for one in sorted(map(str, LOG)):
            terminalreporter.write_line(f"told: {one}")
"""


@pytest.mark.parametrize("at_once", ["1", "2"])
def test_a_refused_test_begins_again_as_if_it_had_not_run_with_what_others_share_kept(
    tmp_path: Path, at_once: str
) -> None:
    """A new object, no property told twice, and the fixtures that only it needs set up once."""
    (tmp_path / "test_once_more.py").write_text(textwrap.dedent(ONCE_MORE))
    (tmp_path / "conftest.py").write_text(textwrap.dedent(ONCE_MORE_CONFTEST))
    output = run_pytest(tmp_path, "--parallel", at_once, "--parallel-progress", "lines").stdout
    assert " 2 passed in " in output, output
    for name, account in (("beside", "one"), ("alone", "another")):
        waits = f"TestRefused::test_{name}: rate limited by {account}, retrying in "
        assert (waits in output) == (at_once == "2"), output
    told = [line.removeprefix("told: ") for line in output.splitlines() if "told: " in line]
    assert told == ["['alone']", "['tried']", "alone down", "alone up", "down", "up"]
