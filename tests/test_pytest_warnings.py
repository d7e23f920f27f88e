"""What tests warn of beside each other is kept apart, as pytest keeps it for one after another."""

from __future__ import annotations

import threading
import time
import warnings
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest

from paraval.pytest_plugin.isolation.item_warnings import warnings_by_test
from paraval.pytest_plugin.running.current_test import RunningTest
from tests.heard import ALL_AT_ONCE, PARALLEL, hear

SUITE = """
    import ctypes, threading, time, warnings
    from concurrent.futures import ThreadPoolExecutor
    import pytest
    import library

    def nap():
        time.sleep(0.0005)

    @pytest.mark.parametrize("n", range(12))
    def test_everyone_is_warned_of_the_same_line(n):
        for _ in range(5):
            library.warn()
        library.warn(f"mine {n}")

    @pytest.mark.filterwarnings("error:strict")
    def test_a_mark_makes_it_an_error():
        for _ in range(20):
            with pytest.raises(UserWarning):
                library.warn("strict")
            nap()

    def test_without_the_mark_it_is_none():
        for _ in range(20):
            library.warn("strict")
            nap()

    @pytest.mark.filterwarnings("ignore")
    def test_a_mark_ignores():
        for _ in range(20):
            library.warn("unheard")
            nap()

    @pytest.mark.parametrize("n", range(6))
    def test_expects_its_own(n):
        for _ in range(10):
            with pytest.warns(UserWarning, match=f"^{n}$") as got:
                library.warn(str(n))
                nap()
                library.warn(str(n))
            assert len(got) == 2

    def test_expects_in_vain():
        with pytest.warns(UserWarning):
            time.sleep(0.01)

    def test_records(recwarn):
        library.warn("kept")
        time.sleep(0.01)
        assert [str(one.message) for one in recwarn] == ["kept"]

    def test_old_calls():
        with pytest.deprecated_call():
            nap()
            warnings.warn("old", DeprecationWarning)
        warnings.warn("older", DeprecationWarning)

    def test_catches():
        for _ in range(20):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                nap()
                with pytest.raises(UserWarning):
                    library.warn("x")
            library.warn("y")

    def test_sets_filters():
        warnings.resetwarnings()
        assert warnings.filters == []
        warnings.simplefilter("ignore")
        time.sleep(0.01)
        assert len(warnings.filters) == 1
        library.warn("never")

    def test_how_often():
        for action in ("once", "module", "default", "always"):
            warnings.simplefilter(action)
            for _ in range(3):
                library.warn(action)
                if action != "once":
                    warnings.warn_explicit("without a registry", UserWarning, "x.py", 1)

    def test_by_module():
        warnings.simplefilter("always")
        warnings.filterwarnings("default", module="library")
        for _ in range(3):
            library.warn("by module")
            warnings.warn("by module")

    def test_in_threads():
        thread = threading.Thread(target=library.warn, args=("in a thread",))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(library.warn, "in a pool").result()

    @pytest.mark.parametrize("action", ["error", "ignore", "always"])
    def test_from_c(action):
        warn = ctypes.pythonapi["PyErr_WarnEx"]  # its own function object, for each test
        warn.argtypes = [ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t]
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            for _ in range(20):
                nap()
                if action == "error":
                    with pytest.raises(UserWarning):
                        warn(UserWarning, b"of C", 1)
                else:
                    warn(UserWarning, b"of C", 1)

    def test_shows_them_itself():
        seen, plain = [], warnings.showwarning
        warnings.showwarning = lambda *told: seen.append(told)
        try:
            library.warn("shown")
            nap()
        finally:
            warnings.showwarning = plain
        assert len(seen) == 1

    def test_told_again():
        with pytest.warns(DeprecationWarning):
            warnings.warn("old", DeprecationWarning)
            for _ in range(3):
                library.warn("not expected")
"""

LIBRARY = """
    import warnings

    def warn(text="of the library"):
        warnings.warn(text, UserWarning)
"""


@pytest.mark.parametrize(
    ("loop", "options"),
    [
        (ALL_AT_ONCE, ["-W", "ignore:mine 3", "-W", "once:mine 4"]),
        (PARALLEL, ["-W", "error:of the library", "-o", "filterwarnings=ignore::no_module.W"]),
        (ALL_AT_ONCE, ["-p", "no:warnings", "-p", "no:logging"]),
    ],
    ids=["filters", "errors", "off"],
)
def test_warnings_are_the_same_as_one_after_another(
    tmp_path: Path, loop: tuple[str, ...], options: list[str]
) -> None:
    """Of each test the same ones, as often, and the same tests fail; whatever changes filters."""
    (tmp_path / "library.py").write_text(dedent(LIBRARY))
    (tmp_path / "test_warnings.py").write_text(dedent(SUITE))
    plain = hear(tmp_path, *options)
    at_once = hear(tmp_path, *options, *loop)
    assert at_once.warnings == plain.warnings
    assert at_once.reports == plain.reports
    assert len(plain.warnings) > 20 or "no:warnings" in options
    assert "test_warnings.py::test_expects_in_vain" in plain.failed


def a_test() -> RunningTest:
    return RunningTest(item=cast("Any", None), captured=cast("Any", None), logs=cast("Any", None))


def held() -> tuple[object, ...]:
    """All that the module is made of."""
    block = dict(vars(warnings.catch_warnings))
    return (warnings.__class__, dict(vars(warnings)), list(warnings.filters), block)


def test_nothing_is_left_behind() -> None:
    """Whatever turns, their leftovers and code of nobody change is gone when the block ends."""
    before = held()
    test = a_test()
    with warnings_by_test():
        with test.running_here():
            warnings.simplefilter("ignore")
            left = warnings.catch_warnings(record=True)
            left.__enter__()
            warnings.showwarning = lambda *_: None
        warnings.simplefilter("always")
    assert held() == before


def test_what_is_left_of_a_test_changes_nothing_for_others() -> None:
    """A thread of a test that is over leaves its `catch_warnings` while others run."""
    over, later = a_test(), a_test()
    may_leave = threading.Event()

    def hang() -> None:
        with over.running_here():
            block = warnings.catch_warnings()
            block.__enter__()
            warnings.simplefilter("ignore")
            over.is_over = True
            may_leave.wait(5)
            block.__exit__(None, None, None)
            warnings.simplefilter("error")

    with warnings_by_test():
        nobodys = list(warnings.filters)
        thread = threading.Thread(target=hang)
        thread.start()
        with later.running_here():
            warnings.simplefilter("always")
            filters = list(warnings.filters)
            may_leave.set()
            thread.join(5)
            assert warnings.filters == filters
        assert warnings.filters == nobodys


def test_sixteen_threads_never_hear_another_ones_warnings() -> None:
    """Each under its own filters, recorded by `catch_warnings`, as fast as they can."""
    wrong: list[object] = []

    def warn_for_a_while(n: int) -> None:
        until = time.monotonic() + 0.3
        with a_test().running_here():
            while time.monotonic() < until:
                with warnings.catch_warnings(record=True) as got:
                    warnings.simplefilter("default" if n % 2 else "ignore")
                    for _ in range(3):
                        warnings.warn(f"of {n}", UserWarning, stacklevel=1)
                if [str(one.message) for one in got] != [f"of {n}"] * (n % 2):
                    wrong.append((n, got))

    with warnings_by_test():
        threads = [threading.Thread(target=warn_for_a_while, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
