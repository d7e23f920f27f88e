"""Exceptions that nobody handles, of tests that run beside each other."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from paraval.pytest_plugin.isolation.exceptions import isolate_unhandled
from tests.heard import PARALLEL, hear

SUITE = """
    import threading, time
    import pytest

    def boom(of): raise ValueError(of)

    def starts_a_thread(of):
        thread = threading.Thread(target=boom, args=(of,), name="mine")
        thread.start()
        thread.join()

    class Leaky:
        def __init__(self, of): self.of = of
        def __del__(self): raise ValueError(self.of)

    @pytest.fixture
    def sets_up():
        starts_a_thread("setup")
        yield
        starts_a_thread("teardown")

    def test_thread():
        starts_a_thread("thread")
        time.sleep(0.2)

    def test_finalizer():
        leaky = Leaky("finalizer")
        del leaky
        time.sleep(0.2)

    def test_fixture(sets_up):
        time.sleep(0.2)

    @pytest.mark.filterwarnings("error")
    def test_strict():
        starts_a_thread("first")
        starts_a_thread("second")
        time.sleep(0.1)

    @pytest.mark.parametrize("n", range(8))
    def test_innocent(n):
        time.sleep(0.02 * n)
"""


def test_they_are_told_of_the_test_that_they_came_up_in(tmp_path: Path) -> None:
    """As a warning in pytest's words, or as a failure of that test where a filter says so."""
    (tmp_path / "test_u.py").write_text("\n".join(line[4:] for line in SUITE.splitlines()))
    heard = hear(tmp_path, *PARALLEL)
    told = Counter(
        (node.partition("::")[2], kind, said.split("\n")[0].split(" at 0x")[0])
        for (node, _, _, said, kind, *_), _ in heard.warnings
        if "Exception" in kind
    )
    thread, unraisable = (
        "PytestUnhandledThreadExceptionWarning",
        "PytestUnraisableExceptionWarning",
    )
    assert told == {
        ("test_thread", thread, "Exception in thread mine"): 1,
        ("test_finalizer", unraisable, "Exception ignored in: <function Leaky.__del__"): 1,
        ("test_fixture", thread, "Exception in thread mine"): 2,
    }
    assert list(heard.failed) == ["test_u.py::test_strict"]
    assert "ValueError: first" in heard.output
    assert "ValueError: second" in heard.output


def test_the_hooks_of_the_process_are_as_they_were(pytestconfig: pytest.Config) -> None:
    """And what is nobody's is pytest's, all the time."""
    heard: list[object] = []
    before = (threading.excepthook, sys.unraisablehook)
    threading.excepthook = mine = heard.append
    try:
        with isolate_unhandled(pytestconfig):
            assert threading.excepthook is not mine
            thread = threading.Thread(target=lambda: 1 // 0)
            thread.start()
            thread.join()
        assert (threading.excepthook, sys.unraisablehook) == (mine, before[1])
    finally:
        threading.excepthook = before[0]
    assert len(heard) == 1
