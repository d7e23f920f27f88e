"""Workers beside what suites do to their process: threads, sockets, exits, odd classes."""

from __future__ import annotations

import re
import textwrap
import time
from pathlib import Path

import pytest

from tests.child_pytest import run_pytest


def run(folder: Path, tests: str, *flags: str, conftest: str = "") -> str:
    (folder / "test_it.py").write_text(textwrap.dedent(tests))
    (folder / "conftest.py").write_text(textwrap.dedent(conftest))
    done = run_pytest(folder, "--parallel", "2", *flags)
    assert "INTERNALERROR" not in done.stdout, done.stdout
    return done.stdout + done.stderr


def test_a_warning_of_a_class_of_its_own_arrives(tmp_path: Path) -> None:
    """Even if it cannot be made from its text, or its module is known to the worker only."""
    said = run(
        tmp_path,
        """
        import importlib, sys, warnings
        from pathlib import Path

        class Odd(UserWarning):
            def __init__(self, code, place):
                super().__init__(f"odd {code} in {place}")

        def test_odd():
            warnings.warn(Odd(3, "here"))

        def test_of_a_new_module(tmp_path, monkeypatch):
            (tmp_path / "made_up.py").write_text("class Late(UserWarning): pass")
            monkeypatch.syspath_prepend(tmp_path)
            warnings.warn(importlib.import_module("made_up").Late("late"))
        """,
    )
    assert "2 passed, 2 warnings" in said
    assert "Odd: odd 3 in here" in said
    assert "Late: late" in said


def test_what_cannot_be_sent_with_a_report_is_left_out(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import threading

        class Thing:
            def __str__(self):
                return "a thing"

        def test_properties(record_property):
            record_property("lock", threading.Lock())
            record_property("thing", Thing())
            record_property("number", 3)
        """,
        "--junitxml=junit.xml",
        conftest="""
        import pytest

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(item):
            report = yield
            report.item = item
            return report
        """,
    )
    assert "1 passed" in said
    written = (tmp_path / "junit.xml").read_text()
    assert 'name="thing" value="a thing"' in written
    assert 'name="number" value="3"' in written


def test_a_failed_teardown_stays_one_when_its_module_prints_later(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import pytest

        @pytest.fixture(scope="module")
        def wide():
            yield
            print("of the module")

        @pytest.fixture
        def bad(wide):
            yield
            raise RuntimeError("of the test")

        def test_it(bad):
            pass
        """,
    )
    assert "1 passed, 1 error" in said
    assert "RuntimeError: of the test" in said


def test_native_threads_are_not_forked_away(tmp_path: Path) -> None:
    """Those of a library, that Python doesn't know."""
    said = run(
        tmp_path,
        """
        import _thread, threading

        LOCK = threading.Lock()
        LOCK.acquire()
        _thread.start_new_thread(LOCK.acquire, ())

        def test_it():
            pass
        """,
    )
    assert "1 passed" in said, said
    assert "workers start as programs (1 native thread of some library)" in said


def test_a_warning_of_a_modules_teardown_is_one_of_its_last_test(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import warnings
        import pytest

        @pytest.fixture(scope="module")
        def wide():
            yield
            warnings.warn("at the end")

        def test_it(wide):
            pass
        """,
    )
    assert "1 passed, 1 warning" in said
    assert "UserWarning: at the end" in said


@pytest.mark.parametrize(
    ("thread", "use"),
    [
        ("ThreadPoolExecutor(1); POOL.submit(int).result()", "POOL.submit(int).result(20) == 0"),
        (
            "asyncio.new_event_loop(); Thread(target=POOL.run_forever, daemon=True).start()",
            "asyncio.run_coroutine_threadsafe(asyncio.sleep(0, 1), POOL).result(20) == 1",
        ),
    ],
    ids=["executor", "loop"],
)
def test_threads_that_tests_need_are_not_forked_away(tmp_path: Path, thread: str, use: str) -> None:
    said = run(
        tmp_path,
        f"""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor
        from threading import Thread

        POOL = {thread}

        def test_it():
            assert {use}
        """,
    )
    assert "1 passed" in said, said
    assert "workers start as programs (thread " in said


def test_a_thread_that_only_waits_is_in_nobodys_way(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import socket, threading

        SERVER = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=SERVER.accept, daemon=True).start()

        def test_it():
            pass
        """,
    )
    assert "1 passed" in said
    assert "forked workers" in said


def test_what_tests_leave_behind_ends_with_their_worker(tmp_path: Path) -> None:
    """The output that the children hold is closed, so that `pytest | tee log` ends."""
    began = time.monotonic()
    said = run(
        tmp_path,
        """
        import atexit, multiprocessing, subprocess, time

        def test_children():
            multiprocessing.Process(target=time.sleep, args=(60,), daemon=True).start()
            subprocess.Popen(["sleep", "60"])

        def test_at_exit():
            atexit.register(open, "exited", "w")
        """,
    )
    assert "2 passed" in said
    assert time.monotonic() - began < 30
    assert (tmp_path / "exited").exists()


def test_a_timeout_for_all_sockets_is_none_for_those_of_workers(tmp_path: Path) -> None:
    said = run(
        tmp_path,
        """
        import socket, time
        socket.setdefaulttimeout(0.2)

        def test_quick():
            pass

        def test_long():
            time.sleep(1)
        """,
    )
    assert "2 passed" in said, said


def test_a_session_fixture_sees_whether_tests_failed(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        def test_fails():
            assert 0
        """,
        conftest="""
        import pytest

        @pytest.fixture(scope="session", autouse=True)
        def seen(request):
            yield
            with open("failed", "w") as file:
                file.write(str(request.session.testsfailed))
        """,
    )
    # Of the last worker: what failed beside nothing is not run again.
    assert (tmp_path / "failed").read_text() == "1"


SERVER = """
    import http.server, threading
    import pytest

    @pytest.fixture(scope="session")
    def server():
        with open("started", "a") as file:
            file.write("x")
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address
        server.shutdown()
        with open("ended", "a") as file:
            file.write("x")
"""


def test_a_shared_fixture_is_set_up_once_and_serves_all_workers(tmp_path: Path) -> None:
    tests = """
        import urllib.request
        import pytest

        @pytest.mark.parametrize("n", range(6))
        def test_asks(n, server):
            with urllib.request.urlopen("http://%s:%s/" % server, timeout=10) as answer:
                assert answer.status == 200
    """
    said = run(tmp_path, tests, "-o", "parallel_shared=server sever", conftest=SERVER)
    assert "6 passed in" in said, said
    assert "parallel_shared: there is no fixture 'sever'" in said
    assert (tmp_path / "started").read_text() == "x"
    assert (tmp_path / "ended").read_text() == "x"


def test_a_fixture_of_another_scope_is_not_shared_nor_what_it_uses(tmp_path: Path) -> None:
    tests = """
        import os
        import pytest

        @pytest.fixture(scope="session")
        def made_by():
            return os.getpid()

        @pytest.fixture(scope="module")
        def wide(made_by):
            return made_by

        def test_it(wide):
            assert wide == os.getpid()
    """
    said = run(tmp_path, tests, "-o", "parallel_shared=wide")
    assert "1 passed in" in said, said
    assert "parallel_shared: 'wide' has the scope module, not session" in said


def test_a_second_run_that_takes_long_is_announced(tmp_path: Path) -> None:
    tests = """
        import time
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_wrong(n):
            time.sleep(1.5)
            assert 0
    """
    announced = "4 tests that failed beside others: running them once more, alone"
    assert announced in run(tmp_path, tests)
    assert announced not in run(tmp_path, tests, "--no-recheck")


RACE = """
    import pathlib, time
    import pytest

    SHARED = pathlib.Path("shared.txt")

    def check(word):
        SHARED.write_text(word)
        time.sleep(0.5)
        assert SHARED.read_text() == word

    def test_one():
        check("one")

    def test_two():
        time.sleep(0.2)
        check("two")

    def test_wrong():
        assert 0
"""


def test_a_session_that_is_over_before_all_workers_have_begun_ends(tmp_path: Path) -> None:
    tests = """
        import pytest

        @pytest.mark.parametrize("n", range(25))
        def test_short(n):
            pass
    """
    for _ in range(3):
        assert "25 passed" in run(tmp_path, tests, "-p", "cacheprovider", "--parallel", "20")


def test_what_a_test_before_it_in_its_worker_broke_passes_from_the_next_session_on(
    tmp_path: Path,
) -> None:
    """It is given a new worker, as it had one when it passed alone."""
    tests = """
        import time
        import pytest

        STATE = []

        @pytest.mark.parametrize("n", range(4))
        def test_sets(n):
            STATE.append(n)
            time.sleep(0.2)

        def test_needs():
            time.sleep(0.2)
            assert not STATE or WRONG

        @pytest.mark.parametrize("n", range(4))
        def test_sets_again(n):
            STATE.append(n)
            time.sleep(0.2)
    """
    cache = ("-p", "cacheprovider")
    said = run(tmp_path, tests.replace("WRONG", "False"), *cache)
    assert " passed alone, in a new worker" in said, said
    assert "9 passed" in run(tmp_path, tests.replace("WRONG", "False"), *cache)
    assert "1 failed" in run(tmp_path, tests.replace("not STATE or WRONG", "False"), *cache)
    said = run(tmp_path, tests.replace("not STATE or WRONG", "True"), *cache)
    assert "9 passed" in said
    assert "alone" not in said.partition("collected")[2], said


def test_what_fails_beside_others_and_passes_alone_is_said_and_runs_alone(tmp_path: Path) -> None:
    """Its result stays; from the next session on, it runs with no other beside it."""
    cache = ("-p", "cacheprovider")
    said = run(tmp_path, RACE, *cache)
    assert "2 failed, 1 passed" in said
    assert re.search(r"test_it.py::test_one failed beside .*test_two.*, and passed alone", said)
    assert "test_wrong failed beside" not in said
    again = run(tmp_path, RACE, *cache)
    assert "1 failed, 2 passed" in again
    assert "1 test alone" in again
    assert "passed alone" not in again
    once = run(tmp_path, RACE, *cache, "--cache-clear", "--no-recheck")
    assert "2 failed, 1 passed" in once
    assert "passed alone" not in once
