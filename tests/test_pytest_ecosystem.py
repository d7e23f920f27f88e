"""Other plugins, really installed: with workers, each does what it does in a plain session."""

from __future__ import annotations

import json
import re
import textwrap
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.child_pytest import run_pytest, run_pytest_with_all

RERUNS = """
    import logging, threading, time
    import pytest

    COUNTS = {}
    SETUPS = []

    def times(name):
        COUNTS[name] = COUNTS.get(name, 0) + 1
        return COUNTS[name]

    @pytest.fixture(scope="module")
    def server():
        SETUPS.append("up")
        yield SETUPS
        SETUPS.append("down")

    @pytest.mark.flaky(reruns=2)
    @pytest.mark.parametrize("number", range(6))
    def test_flaky(server, number, caplog, capsys):
        time.sleep(0.4)
        attempt = times(number)
        logging.warning("attempt %d", attempt)
        print(attempt)
        assert caplog.messages == [f"attempt {attempt}"]
        assert capsys.readouterr().out == f"{attempt}\\n"
        assert server == ["up"]
        assert attempt == 2

    @pytest.mark.flaky(reruns=1, reruns_delay=0.3)
    def test_never():
        COUNTS.setdefault("began", time.monotonic())
        print("attempt", times("never"))
        assert time.monotonic() - COUNTS["began"] > 0.3, "too early"
        assert False, "never"

    class TestClass:
        value = 0

        @pytest.mark.flaky(reruns=1)
        def test_has_a_new_instance(self):
            self.value += 1
            assert times("instance") == 2
            assert self.value == 1

    @pytest.mark.flaky(reruns=3, only_rerun="OSError")
    def test_only():
        raise ValueError("not this one")

    @pytest.mark.flaky(reruns=3, condition=False)
    def test_condition():
        raise ValueError("no condition")

    @pytest.fixture(scope="module")
    def fails_once():
        if times("shared") == 1:
            raise OSError("setup")

    @pytest.mark.flaky(reruns=1)
    def test_setup(fails_once):
        pass

    @pytest.fixture
    def ends_badly_once():
        yield
        if times("teardown") == 1:
            raise OSError("teardown")

    @pytest.mark.flaky(reruns=1)
    def test_teardown(ends_badly_once, server):
        assert server == ["up"]

    @pytest.mark.flaky(reruns=1)
    @pytest.mark.xfail
    def test_expected():
        assert False

    @pytest.mark.flaky(reruns=1)
    def test_skipped():
        pytest.skip("so")

    @pytest.mark.timeout_s(1)
    @pytest.mark.flaky(reruns=2)
    def test_each_attempt_has_its_own_time():
        attempt = times("time")
        time.sleep(0.7)
        while attempt == 1:
            time.sleep(0.01)
        assert attempt == 3
"""


@dataclass(frozen=True)
class Suite:
    """Tests of one plugin's users."""

    plugins: str
    tests: str
    files: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


DJANGO = Suite(
    "pytest_django.plugin",
    """
    import time
    import pytest
    from django.db import connection
    from shop.models import Book

    @pytest.mark.django_db
    @pytest.mark.parametrize("n", range(8))
    def test_rows_are_each_tests_own(n):
        Book.objects.create(title=f"book {n}")
        time.sleep(0.05)
        assert [book.title for book in Book.objects.all()] == [f"book {n}"]

    @pytest.mark.django_db
    def test_a_database_for_each_worker(request):
        worker = getattr(request.config, "workerinput", {}).get("workerid")
        assert worker is None or worker in connection.settings_dict["NAME"]

    @pytest.mark.django_db(transaction=True)
    def test_with_transactions():
        Book.objects.create(title="kept until the end")

    def test_no_database():
        Book.objects.count()

    def test_view(client):
        assert client.get("/none").status_code == 404

    def test_settings(settings):
        settings.APPEND_SLASH = False
    """,
    {
        "shop/__init__.py": "",
        "shop/models.py": """
            from django.db import models

            class Book(models.Model):
                title = models.TextField()
        """,
        "shop/urls.py": "urlpatterns = []",
        "site_settings.py": """
            SECRET_KEY = "x"
            INSTALLED_APPS = ["shop"]
            ROOT_URLCONF = "shop.urls"
            DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
            DATABASES = {
                "default": {
                    "ENGINE": "django.db.backends.sqlite3",
                    "NAME": "db.sqlite3",
                    "TEST": {"NAME": "tests.sqlite3"},
                }
            }
        """,
    },
    ("--ds=site_settings",),
)
ASYNCIO = Suite(
    "pytest_asyncio.plugin",
    """
    import asyncio, time
    import pytest, pytest_asyncio

    @pytest_asyncio.fixture(loop_scope="module", scope="module")
    async def server():
        yield asyncio.get_running_loop()
        await asyncio.sleep(0)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("n", range(6))
    async def test_waits(n):
        await asyncio.sleep(0.05)
        assert n != 4

    @pytest.mark.asyncio(loop_scope="module")
    async def test_of_the_modules_loop(server):
        assert asyncio.get_running_loop() is server

    @pytest.mark.asyncio(loop_scope="module")
    async def test_of_that_loop_too(server):
        assert asyncio.get_running_loop() is server

    @pytest_asyncio.fixture
    async def own():
        yield asyncio.get_running_loop()

    @pytest.mark.asyncio
    async def test_own(own):
        assert asyncio.get_running_loop() is own
    """,
    {"pytest.ini": "[pytest]\nasyncio_default_fixture_loop_scope = function\n"},
)
ANYIO = Suite(
    "anyio.pytest_plugin",
    """
    import anyio, pytest, sniffio

    @pytest.fixture(scope="module", params=["asyncio", "trio"])
    def anyio_backend(request):
        return request.param

    @pytest.fixture(scope="module")
    async def shared(anyio_backend):
        async with anyio.create_task_group() as group:
            yield group

    @pytest.mark.anyio
    @pytest.mark.parametrize("n", range(4))
    async def test_waits(n, shared):
        print("in test", n)
        await anyio.sleep(0.05)
        assert n != 2

    @pytest.mark.anyio
    async def test_uses_what_is_shared(shared):
        shared.start_soon(anyio.sleep, 0.01)
    """,
)
TRIO = Suite(
    "pytest_trio.plugin",
    """
    import pytest, trio

    @pytest.fixture
    async def opened():
        await trio.sleep(0)
        yield "open"

    @pytest.mark.trio
    @pytest.mark.parametrize("n", range(4))
    async def test_waits(n, opened):
        await trio.sleep(0.05)
        assert opened == "open" and n != 1
    """,
)
TIMEOUT = Suite(
    "pytest_timeout",
    """
    import time
    import pytest

    @pytest.mark.timeout(0.3)
    @pytest.mark.parametrize("n", range(3))
    def test_hangs(n):
        time.sleep(30)

    @pytest.mark.timeout(30)
    def test_ends():
        time.sleep(0.01)

    def test_without():
        pass
    """,
)
SUBTESTS = Suite(
    "",
    """
    import unittest

    def test_some(subtests):
        for n in range(3):
            with subtests.test(number=n):
                assert n != 1

    class TestCases(unittest.TestCase):
        def test_inner(self):
            for n in range(3):
                with self.subTest(n=n):
                    self.assertNotEqual(n, 2)
    """,
    flags=("-o", "junit_logging=no"),
)
RECORDING = Suite(
    "pytest_recording.plugin",
    """
    import urllib.request
    import pytest

    @pytest.mark.vcr
    @pytest.mark.parametrize("n", [1, 2])
    def test_recorded(n):
        with urllib.request.urlopen(f"http://api.example/{n}") as answer:
            assert answer.read() == b"answer"

    @pytest.mark.block_network
    def test_blocked():
        urllib.request.urlopen("http://127.0.0.1:9/")
    """,
    {
        f"cassettes/test_it/test_recorded[{n}].yaml": f"""
            interactions:
            - request: {{body: null, headers: {{}}, method: GET, uri: "http://api.example/{n}"}}
              response:
                body: {{string: answer}}
                headers: {{Content-Length: ["6"]}}
                status: {{code: 200, message: OK}}
            version: 1
        """
        for n in (1, 2)
    },
)
CLOCKS = Suite(
    "time_machine",
    """
    import datetime, time
    import pytest, time_machine
    from freezegun import freeze_time

    @freeze_time("2020-01-01")
    def test_frozen():
        assert datetime.date.today().year == 2020
        assert time.time() < 1_600_000_000

    @time_machine.travel("2021-03-03")
    def test_travels():
        assert datetime.date.today().year == 2021

    def test_by_fixture(time_machine):
        time_machine.move_to("2022-02-02", tick=False)
        assert datetime.date.today().year == 2022

    @pytest.mark.parametrize("n", range(3))
    def test_now(n):
        assert datetime.date.today().year > 2022
    """,
)
SYRUPY = Suite(
    "syrupy",
    """
    import pytest

    @pytest.mark.parametrize("n", range(4))
    def test_same(n, snapshot):
        assert {"number": n} == snapshot

    def test_other(snapshot):
        assert "new" == snapshot
    """,
    {
        "__snapshots__/test_it.ambr": "# serializer version: 1\n"
        "# name: test_other\n  'old'\n# ---\n"
        + "".join(
            f"# name: test_same[{n}]\n  dict({{\n    'number': {n},\n  }})\n# ---\n"
            for n in range(4)
        )
    },
)
RANDOMLY = Suite(
    "pytest_randomly",
    """
    import random
    import pytest

    @pytest.mark.parametrize("n", range(6))
    def test_each_begins_with_its_seed(n):
        print("first:", random.randrange(10**9))
    """,
    flags=("--randomly-seed=7",),
)
SUITES = {
    "django": DJANGO,
    "asyncio": ASYNCIO,
    "anyio": ANYIO,
    "trio": TRIO,
    "timeout": TIMEOUT,
    "subtests": SUBTESTS,
    "recording": RECORDING,
    "clocks": CLOCKS,
    "syrupy": SYRUPY,
    "randomly": RANDOMLY,
    "rerunfailures": Suite("pytest_rerunfailures", RERUNS),
}


def written(folder: Path, suite: Suite) -> Path:
    for name, text in {"test_it.py": suite.tests, **suite.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return folder


def outcomes(folder: Path) -> list[tuple[str, list[tuple[str, str]], list[str]]]:
    """Of JUnit's file, in its order: the test's name, how it ended, and what it printed."""
    found = []
    for case in ET.parse(folder / "junit.xml").iter("testcase"):
        ends = [(one.tag, _settled(one.get("message", ""))) for one in case if one.tag in ENDS]
        output = [_settled(one.text or "") for one in case if one.tag == "system-out"]
        found.append((str(case.get("name")), ends, output))
    return found


ENDS = ("failure", "error", "skipped", "rerun")


def _settled(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+\.\d+", "N", text).replace("\nu\n", "\n")


BY_EXEC = ("asyncio", "django", "randomly", "timeout")
WAYS = [*((name, "fork") for name in SUITES), *((name, "exec") for name in BY_EXEC)]


@pytest.mark.parametrize(("name", "start"), WAYS)
def test_outcomes_are_those_of_a_plain_session(tmp_path: Path, name: str, start: str) -> None:
    suite = SUITES[name]
    plugins = [flag for plugin in suite.plugins.split() for flag in ("-p", plugin)]
    ended = []
    for way in ((), ("--parallel", "2", "--parallel-start", start)):
        folder = written(tmp_path / (way[0] if way else "plain"), suite)
        flags = ("--junitxml=junit.xml", "-o", "junit_logging=system-out", *plugins, *suite.flags)
        done = run_pytest(folder, *flags, *way)
        told = done.stdout + done.stderr
        assert "INTERNALERROR" not in told, told
        ended.append((done.returncode, outcomes(folder)))
    plain, parallel = ended
    assert plain[1], told
    assert parallel == plain, told


def test_coverage_has_the_same_total(tmp_path: Path) -> None:
    """Of lines that run at import, in tests, in fixtures, in a child process, and of branches."""
    tests = """
        import subprocess, sys
        import pytest
        from shop import price

        @pytest.fixture(scope="session", autouse=True)
        def session_wide():
            yield price.in_teardown()

        @pytest.mark.parametrize("n", range(6))
        def test_price(n):
            assert price.of(n) == (n if n < 3 else 2 * n)
    """
    price = """
        RATE = 2

        def of(n):
            if n < 3:
                return n
            return RATE * n

        def in_teardown():
            return RATE

        def never():
            if RATE:
                return RATE
    """
    suite = Suite("pytest_cov.plugin", tests, {"shop/price.py": price, "shop/__init__.py": ""})
    totals = []
    for way in ((), ("--parallel", "3"), ("--parallel", "3", "--parallel-start", "exec")):
        folder = written(tmp_path / "-".join(way), suite)
        flags = ("-p", "pytest_cov.plugin", "--cov=shop", "--cov-branch", "--cov-report=term")
        done = run_pytest(folder, *flags, *way)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in done.stdout.lower(), done.stdout
        totals.append(re.findall(r"(?m)^(?:shop|TOTAL).*$", done.stdout))
    assert totals[0] == totals[1] == totals[2]


def test_report_log_tells_each_test_once_in_order(tmp_path: Path) -> None:
    written(tmp_path, Suite("", "def test_a(): pass\ndef test_b(): assert 0\n"))
    done = run_pytest(
        tmp_path, "-p", "pytest_reportlog.plugin", "--report-log=log.jsonl", "--parallel", "2"
    )
    assert done.returncode == 1
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    calls = [(one["nodeid"], one["outcome"]) for one in log if one.get("when") == "call"]
    assert sorted(calls) == [("test_it.py::test_a", "passed"), ("test_it.py::test_b", "failed")]


WORKER = """
    import os
    import pytest

    @pytest.mark.parametrize("n", range(4))
    def test_worker(n, worker_id, testrun_uid, request, tmp_path_factory):
        assert worker_id == os.environ["PYTEST_XDIST_WORKER"] in ("gw0", "gw1")
        assert os.environ["PYTEST_XDIST_WORKER_COUNT"] == "2"
        assert os.environ["PYTEST_XDIST_TESTRUNUID"] == testrun_uid
        given = request.config.workerinput
        assert (given["workerid"], given["workercount"]) == (worker_id, 2)
        assert given["testrunuid"] == testrun_uid
        base = tmp_path_factory.getbasetemp()
        assert base.name == f"popen-{worker_id}"
        with open("bases", "a") as file:
            print(base.parent, file=file)
"""


@pytest.mark.parametrize("plugins", [(), ("-p", "xdist")], ids=["alone", "xdist"])
@pytest.mark.parametrize("start", ["fork", "exec"])
def test_workers_look_like_those_of_xdist(
    tmp_path: Path, start: str, plugins: tuple[str, ...]
) -> None:
    written(tmp_path, Suite("", WORKER))
    done = run_pytest(tmp_path, *plugins, "--parallel", "2", "--parallel-start", start)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    bases = (tmp_path / "bases").read_text().splitlines()
    assert len(set(bases)) == 1
    assert not list(Path(bases[0]).parent.glob("*/*/popen-*"))


def test_tests_under_xdist_and_parallel_together_are_refused(tmp_path: Path) -> None:
    written(tmp_path, Suite("", "def test_a(): pass"))
    done = run_pytest(tmp_path, "-p", "xdist", "-n", "2", "--parallel", "2")
    assert done.returncode == 4
    assert "cannot be combined" in done.stderr


@pytest.mark.parametrize("start", ["fork", "exec"])
def test_other_plugins_do_their_work_in_a_parallel_run(tmp_path: Path, start: str) -> None:
    """Reruns, subtests, hypothesis and mocks among tests that wait; lines of all of them are
    covered, and the shuffled order of pytest-randomly is no matter."""
    (tmp_path / "test_some.py").write_text(
        textwrap.dedent(
            """
            import pathlib, time
            import pytest
            from hypothesis import given, strategies

            @pytest.mark.parametrize("number", range(4))
            def test_waiting(number):
                time.sleep(0.05)
                assert covered(number) == number

            def covered(number):
                return number

            @pytest.mark.flaky(reruns=1)
            def test_flaky():
                marker = pathlib.Path("was-here")
                if not marker.exists():
                    marker.touch()
                    pytest.fail("once")

            @given(strategies.integers())
            def test_given(number):
                assert number == int(str(number))

            def test_subtests(subtests):
                for number in range(3):
                    with subtests.test(number=number):
                        assert number != 1

            def test_mock(mocker):
                mocker.patch("time.sleep")
                time.sleep(60)
            """
        )
    )
    ran = run_pytest_with_all(
        tmp_path,
        "--parallel",
        "4",
        f"--parallel-start={start}",
        "--cov=.",
        "--cov-report=term",
        "-v",
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "2 failed, 7 passed, 2 subtests passed, 1 rerun" in ran.stdout
    coverage = next(line for line in ran.stdout.splitlines() if line.startswith("test_some.py  "))
    assert coverage.endswith("100%")
    assert "pytest_rerunfailures" not in ran.stdout


def test_reruns_of_all_tests_by_a_flag(tmp_path: Path) -> None:
    """With the exit code of --fail-on-flaky."""
    text = """
        import time

        COUNTS = {}

        def once(name):
            time.sleep(0.3)
            COUNTS[name] = COUNTS.get(name, 0) + 1
            assert COUNTS[name] == 2

        def test_one(): once(1)
        def test_two(): once(2)
        def test_three(): once(3)
    """
    (tmp_path / "test_some.py").write_text(textwrap.dedent(text))
    flags = ("-p", "pytest_rerunfailures", "--parallel", "4", "--reruns", "1", "-rR")
    ran = run_pytest(tmp_path, *flags)
    assert (ran.returncode, "3 passed, 3 rerun" in ran.stdout) == (0, True), ran.stdout
    assert ran.stdout.count("RERUN test_some.py::") == 3
    ran = run_pytest(tmp_path, *flags, "--fail-on-flaky")
    assert ran.returncode == 7, ran.stdout
    ran = run_pytest(tmp_path, *flags, "--rerun-exclude-path", "test_some.py")
    assert "3 failed in" in ran.stdout
