"""A failure beside others teaches: the test is run again, alone, and remembered where it passes."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from paraval.pytest_plugin.session.item_history import TRIED_AGAIN_AFTER
from paraval.pytest_plugin.session.session import REMEDY, summary_of
from tests.child_pytest import PLUGIN, run_python

PASSED = " PASSED when rerun alone (failed in parallel)"
SINGLETON = """
    CLIENT = []
    def put(client): CLIENT[:] = [client]
    def get(): return CLIENT[0]
"""
TESTS = """
    import pathlib, socket, subprocess, time
    import pytest
    from app import get, put

    @pytest.fixture(scope="module")
    def server():
        with open("setups.txt", "a") as file: print("set up", file=file)

    @pytest.mark.parametrize("n", range(3))
    def test_singleton(server, n):
        put(n)
        time.sleep(0.3)
        assert get() == n

    def test_is_wrong(): assert 1 == 2

    def test_right(): pass
"""


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With pytest's cache: what is remembered counts."""
    flags = ("-p", PLUGIN, "--parallel", "8", "--tb=short", *arguments)
    return run_python(folder, "-m", "pytest", *flags, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def suite(folder: Path, tests: str, app: str = SINGLETON) -> Path:
    (folder / "tests").mkdir()
    (folder / "app.py").write_text(dedent(app))
    (folder / "tests" / "test_s.py").write_text(dedent(tests))
    return folder


def test_what_fails_beside_others_and_passes_alone_is_told_and_remembered(tmp_path: Path) -> None:
    """What it shares with others stays up until then; a test that fails alone, too, has failed."""
    suite(tmp_path, TESTS)
    first, second = run(tmp_path, "-v"), run(tmp_path, "-v")
    taught = len(re.findall(re.escape(PASSED), first.stdout))
    assert taught >= 2, first.stdout
    assert "1 failed, 4 passed" in first.stdout, first.stdout
    assert (
        f"parallel: {taught} passed when rerun alone (failed in parallel): tests/test_s"
        in first.stdout
    )
    assert first.stdout.count("test_is_wrong FAILED when rerun alone, too") == 1
    assert first.stdout.count("E   assert 1 == 2") == 1
    assert (tmp_path / "setups.txt").read_text() == "set up\n" * 2
    assert "1 failed, 4 passed" in second.stdout, second.stdout
    assert PASSED not in second.stdout
    why = "(exclusive: failed in parallel in an earlier session)"
    assert second.stdout.count(why) == taught


def test_a_test_that_may_have_asked_a_model_is_not_run_again_in_silence(
    tmp_path: Path, port: int
) -> None:
    calls = {
        "connects": f'socket.create_connection(("127.0.0.1", {port})).close()',
        "starts": 'subprocess.run(["true"], check=True)',
        "starts_elsewhere": ("ThreadPoolExecutor(1).submit(subprocess.run, ['true']).result()"),
    }
    tests = (
        "import pathlib, socket, subprocess\nfrom concurrent.futures import ThreadPoolExecutor\n"
    )
    for name, call in calls.items():
        count = f"pathlib.Path('{name}.txt')"
        tests += f"def test_{name}():\n    {call}\n    with {count}.open('a') as f: f.write('x')\n"
        tests += f"    assert len({count}.read_text()) > 1\n"
    suite(tmp_path, tests)
    first = run(tmp_path)
    assert "3 failed" in first.stdout, first.stdout
    assert (
        "parallel: 3 tests failed in parallel and may have called a model: not rerun "
        "(--check-alone reruns such tests alone)"
    ) in first.stdout
    for name in calls:
        (tmp_path / f"{name}.txt").unlink()
    checked = run(tmp_path, "--check-alone", "-v")
    assert "3 passed" in checked.stdout
    assert checked.stdout.count(PASSED) == 3, checked.stdout


def test_where_all_fail_alone_too_the_rest_are_not_run_again(tmp_path: Path) -> None:
    suite(
        tmp_path,
        """
        import pytest
        @pytest.mark.parametrize("n", range(30))
        def test_fails(n):
            with open("ran.txt", "a") as file: print(n, file=file)
            assert False
        """,
    )
    ran = run(tmp_path, "--tb=no")
    assert "30 failed" in ran.stdout, ran.stdout
    assert len((tmp_path / "ran.txt").read_text().split()) == 50


def test_with_x_the_first_failure_ends_the_run(tmp_path: Path) -> None:
    ran = run(suite(tmp_path, "def test_fails(): print('ran'); assert 0\n"), "-x")
    assert "1 failed" in ran.stdout
    assert ran.stdout.count("ran\n") == 1, ran.stdout
    assert "parallel: 1 test failed in parallel; with -x or --maxfail, failed" in ran.stdout


def test_a_test_that_failed_once_is_tried_beside_others_again_after_some_sessions(
    tmp_path: Path,
) -> None:
    suite(tmp_path, TESTS.replace("range(3)", "range(2)"))
    told = run(tmp_path, "-v").stdout
    assert PASSED in told, told
    (tmp_path / "app.py").write_text(
        "import threading\nHERE = threading.local()\n"
        "def put(client): HERE.client = client\ndef get(): return HERE.client\n"
    )
    durations = tmp_path / ".pytest_cache" / "v" / "paraval" / "durations"
    known = json.loads(durations.read_text())
    durations.write_text(json.dumps({**known, "session": TRIED_AGAIN_AFTER}))
    told = run(tmp_path, "-k", "singleton").stdout
    assert "exclusive: failed in parallel in an earlier session" in told, told
    told = run(tmp_path, "-k", "singleton").stdout
    assert "parallel 8: 2 concurrent" in told, told


RATCHET = """
    import functools, os, pathlib, time
    from unittest.mock import patch

    HOME = os.getcwd()

    @functools.cache
    def client():
        os.environ.setdefault("APP_KEY", "k")
        os.chdir(HOME)
        patch("app.VERSION", 2).start()
        time.sleep(0.05)
        return object()

    VERSION = 1
"""


def test_an_app_that_sets_itself_up_once_makes_no_session_slower(tmp_path: Path) -> None:
    """Whoever comes first does it for all, and is not held to run alone for that."""
    suite(
        tmp_path,
        """
        import time, app, pytest

        @pytest.mark.parametrize("n", range(12))
        def test_asks(n):
            app.client()
            time.sleep(0.2)
        """,
        RATCHET,
    )
    for _ in range(5):
        told = run(tmp_path).stdout
        assert "12 passed" in told
        assert "parallel 8: 12 concurrent\n" in told, told


def test_a_remembered_test_that_changes_nothing_any_more_is_forgotten(tmp_path: Path) -> None:
    app = """
        import pathlib
        from unittest.mock import patch
        VALUE = 1
        def use():
            if pathlib.Path("patch.txt").exists():
                with patch("app.VALUE", 2): pass
    """
    tests = "import app\ndef test_uses(): app.use()\ndef test_other(): pass\n"
    suite(tmp_path, tests, app)
    (tmp_path / "patch.txt").touch()
    told = [run(tmp_path).stdout, run(tmp_path).stdout]
    (tmp_path / "patch.txt").unlink()
    told += [run(tmp_path).stdout, run(tmp_path).stdout]
    alone = "parallel 8: 1 concurrent, 1 exclusive: calls unittest.mock.patch"
    beside = "parallel 8: 2 concurrent"
    for text, line in zip(told, (beside, alone, alone, beside), strict=True):
        assert line in text, text


LOCKED = """
    import threading, time
    from unittest.mock import patch
    LOCK, HELD, CLIENT = threading.Lock(), threading.Event(), None
    def client():
        global CLIENT
        with LOCK:
            if CLIENT is None:
                HELD.set()
                time.sleep(0.1)
                with patch("app.CLIENT", 1): pass
                CLIENT = 2
"""


def test_a_test_that_waits_to_run_alone_with_a_lock_that_others_wait_for_goes_on(
    tmp_path: Path,
) -> None:
    tests = "import app, pytest\n@pytest.mark.parametrize('n', range(4))\n"
    suite(tmp_path, tests + "def test_uses(n): app.client()\n", LOCKED)
    began = time.monotonic()
    first = run(tmp_path)
    assert time.monotonic() - began < 8
    assert "4 passed" in first.stdout, first.stdout
    words = "parallel: changed process-wide state while other tests ran"
    assert f"{words} (calls unittest.mock.patch): tests/" in first.stdout
    assert "3 concurrent, 1 exclusive: calls unittest.mock.patch" in run(tmp_path).stdout


def test_an_error_of_ours_leaves_tests_to_run_one_after_another(tmp_path: Path) -> None:
    """As the plan is made, or while tests run: each runs, and is told once."""
    suite(tmp_path, "def test_a(): pass\ndef test_b(): pass\ndef test_c(): assert 0\n")
    words = "internal error in this plugin (ZeroDivisionError: "
    plan = "import paraval.pytest_plugin.session.session as s\ns.plan_session = lambda *_: 1 / 0\n"
    late = (
        "from paraval.pytest_plugin.session.engine import EngineThread\n"
        "async def drive(self):\n    self._ready.set()\n    1 / 0\nEngineThread._drive = drive\n"
    )
    for text, count in ((plan, "the 3 tests run"), (late, "3 tests ran")):
        (tmp_path / "conftest.py").write_text(text)
        told = run(tmp_path).stdout
        assert "1 failed, 2 passed" in told, told
        assert words in told
        assert f"{count} one after another. Please report this" in told


OTHER = "other reasons, see -v"
REASON = "fixture `keys` (conftest.py:5) patches app.client"


@pytest.mark.parametrize(
    ("alone", "count", "line"),
    [
        ({}, 3, "3 concurrent"),
        ({"a": "marked serial"}, 3, "2 concurrent, 1 exclusive: marked serial"),
        (
            dict.fromkeys("ab", REASON),
            3,
            f"little speedup expected: 1 concurrent, 2 exclusive: {REASON}; {REMEDY}",
        ),
        (
            {**dict.fromkeys("abc", "calls os.chdir"), "d": "e", "f": "g", "h": "i"},
            30,
            f"24 concurrent, 6 exclusive: calls os.chdir (3); e (1); g (1); {OTHER} (1)",
        ),
    ],
)
def test_one_line_says_what_runs_alone_and_why(
    alone: dict[str, str], count: int, line: str
) -> None:
    assert summary_of(alone, count) == line
