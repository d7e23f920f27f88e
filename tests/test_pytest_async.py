"""Async tests beside each other, by those who own them: pytest-asyncio, anyio and unittest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.child_pytest import run_pytest_with_all

TOOLS = """
    import asyncio, json, sys, threading, time
    from contextlib import contextmanager

    @contextmanager
    def noted(request):
        \"\"\"When the test ran, and in which thread.\"\"\"
        began = time.monotonic()
        yield
        span = [began, time.monotonic(), threading.get_ident()]
        request.node.user_properties.append(("span", span))

    async def use_everything():
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(7)", stdout=-1)
        assert (await child.communicate())[0] == b"7\\n"
        assert await asyncio.to_thread(lambda: 3) == 3
"""

REPORTING = """
    import json
    import pytest
    from paraval.pytest_plugin.async_tests import plugins as asyncs

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(session):
        for item in session.items:
            told = [("group", asyncs.group_of(item)), ("alone", asyncs.why_alone(item))]
            item.user_properties += told

    def pytest_runtest_logreport(report):
        told = [report.nodeid, report.when, report.outcome, report.user_properties]
        with open("told.jsonl", "a") as file:
            print(json.dumps([*told, str(report.longrepr or "")]), file=file)
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One test, as reporters heard of it."""

    outcomes: dict[str, str]
    properties: dict[str, Any]
    words: str

    @property
    def passed(self) -> bool:
        return {*self.outcomes.values()} == {"passed"}


def run_tests(folder: Path, text: str, *arguments: str) -> dict[str, Ran]:
    """The tests of the text, side by side; by their names."""
    for name, content in (
        ("tools.py", TOOLS),
        ("reporting.py", REPORTING),
        ("test_it.py", text),
    ):
        (folder / name).write_text(textwrap.dedent(content))
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "--parallel", "16", "-p", "reporting"]
    ran = subprocess.run(
        [*command, "-p", "no:randomly", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**env, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "INTERNALERROR" not in ran.stdout + ran.stderr, ran.stdout + ran.stderr
    assert "warning" not in ran.stdout, ran.stdout
    found: dict[str, list[Any]] = {}
    for line in (folder / "told.jsonl").read_text().splitlines():
        node_id, *rest = json.loads(line)
        found.setdefault(node_id.removeprefix("test_it.py::"), []).append(rest)
    return {
        name: Ran(
            outcomes={when: outcome for when, outcome, _, _ in phases},
            properties=dict(phases[-1][2]),
            words="\n".join(words for *_, words in phases),
        )
        for name, phases in found.items()
    }


def overlap(one: Ran, other: Ran) -> bool:
    (began, ended, _), (other_began, other_ended, _) = (
        one.properties["span"],
        other.properties["span"],
    )
    return bool(began < other_ended and other_began < ended)


def require_all_passed(ran: dict[str, Ran]) -> None:
    wrong = {name: one.words for name, one in ran.items() if not one.passed}
    assert not wrong


def test_tests_with_loops_of_their_own_run_at_once(tmp_path: Path) -> None:
    """pytest-asyncio's and anyio's, unittest's, and sync ones that make a loop for themselves, as
    they may in the main thread. What no plugin owns fails as in a plain run."""
    ran = run_tests(
        tmp_path,
        """
        import asyncio, unittest
        import anyio, pytest, pytest_asyncio
        from tools import noted, use_everything

        @pytest_asyncio.fixture
        async def loop():
            loop = asyncio.get_running_loop()
            await asyncio.sleep(0.01)
            yield loop
            assert asyncio.get_running_loop() is loop

        @pytest.mark.asyncio
        @pytest.mark.parametrize("number", range(4))
        async def test_asyncio(request, loop, number):
            assert asyncio.get_running_loop() is loop
            with noted(request):
                await asyncio.sleep(0.5)
            await use_everything()

        @pytest.fixture
        async def backend(anyio_backend_name):
            await anyio.sleep(0.01)
            yield anyio_backend_name
            await anyio.sleep(0.01)

        @pytest.mark.anyio
        async def test_anyio(request, backend):
            with noted(request):
                await anyio.sleep(0.5)
            assert await anyio.to_thread.run_sync(lambda: 4) == 4
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep, 0.01)

        @pytest.mark.parametrize("number", range(2))
        def test_sync(request, number):
            loop = asyncio.get_event_loop()
            with noted(request):
                loop.run_until_complete(asyncio.sleep(0.5))
            assert asyncio.get_event_loop() is loop

        def test_run(request):
            with noted(request):
                asyncio.run(asyncio.sleep(0.5))
            with pytest.raises(RuntimeError):
                asyncio.get_event_loop()

        class TestCase(unittest.IsolatedAsyncioTestCase):
            async def asyncSetUp(self):
                self.loop = asyncio.get_running_loop()

            async def test_unittest(self):
                assert asyncio.get_running_loop() is self.loop
                await asyncio.sleep(0.1)

        async def test_of_nobody():
            pass
        """,
        *("-o", "asyncio_default_fixture_loop_scope=function", "-W", "error"),
        # As in a plain run, from Python 3.12 on.
        *("-W", "ignore:There is no current event loop:DeprecationWarning"),
    )
    nobody = ran.pop("test_of_nobody")
    assert nobody.outcomes["call"] == "failed"
    assert "not natively supported" in nobody.words
    require_all_passed(ran)
    assert {(one.properties["group"], one.properties["alone"]) for one in ran.values()} == {
        (None, None)
    }
    noted = [one for name, one in ran.items() if "unittest" not in name]
    assert len(noted) == 4 + 2 + 2 + 1
    assert all(overlap(one, other) for one, other in combinations(noted, 2))


def test_tests_that_share_a_loop_run_side_by_side_in_it(tmp_path: Path) -> None:
    """Others that only use its fixtures run beside them. What the fixture leaves running in the
    loop goes on when the next test does; fixtures are set up and torn down once. Tests that share
    anyio's runner run one after another."""
    ran = run_tests(
        tmp_path,
        """
        import asyncio, contextvars
        import anyio, pytest, pytest_asyncio
        from tools import noted, use_everything

        SET = contextvars.ContextVar("SET", default=None)
        COUNTS = {"setup": 0, "teardown": 0}

        @pytest_asyncio.fixture(scope="module", loop_scope="module")
        async def pump():
            loop, queue = asyncio.get_running_loop(), asyncio.Queue()
            SET.set("by the fixture")

            async def answer():
                while True:
                    (await queue.get()).set_result("answer")

            answering = asyncio.create_task(answer())
            COUNTS["setup"] += 1
            yield loop, queue
            COUNTS["teardown"] += 1
            assert asyncio.get_running_loop() is loop
            answering.cancel()

        @pytest.mark.asyncio(loop_scope="module")
        @pytest.mark.parametrize("number", range(4))
        async def test_shared(request, pump, number):
            loop, queue = pump
            assert asyncio.get_running_loop() is loop
            with noted(request):
                waiting = loop.create_future()
                await queue.put(waiting)
                assert await waiting == "answer"
                await use_everything()
                await asyncio.sleep(0.3)
            assert COUNTS == {"setup": 1, "teardown": 0}

        @pytest.mark.asyncio
        async def test_own(request, pump):
            assert asyncio.get_running_loop() is not pump[0]
            await asyncio.sleep(0.3)

        def test_sync(pump):
            assert pump[0] is not None

        @pytest.mark.asyncio(loop_scope="class")
        class TestClass:
            loops = set()

            @pytest.mark.parametrize("number", range(2))
            async def test_in_class(self, number):
                self.loops.add(id(asyncio.get_running_loop()))
                assert len(self.loops) == 1

        @pytest.fixture(scope="module")
        async def wide(anyio_backend):
            done = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(done.wait)
                yield done
                done.set()

        @pytest.mark.anyio
        @pytest.mark.parametrize("number", range(3))
        async def test_wide(request, wide, number):
            with noted(request):
                await anyio.sleep(0.05)
                assert not wide.is_set()
        """,
        *("-o", "asyncio_default_fixture_loop_scope=function", "-W", "error"),
    )
    require_all_passed(ran)
    groups: dict[str, list[Ran]] = {}
    for name, one in ran.items():
        if one.properties["group"] is not None:
            groups.setdefault(one.properties["group"], []).append(one)
        is_trio = name.startswith("test_wide") and "trio" in name
        assert (one.properties["alone"] is not None) == is_trio, name
    assert {name: len(members) for name, members in groups.items()} == {
        "anyio's loop of test_it.py": 6,
    }
    by_anyio = groups["anyio's loop of test_it.py"]
    assert not any(overlap(one, other) for one, other in combinations(by_anyio, 2))
    shared = [one for name, one in ran.items() if name.startswith("test_shared")]
    assert len(shared) == 4
    assert all(overlap(one, other) for one, other in combinations(shared, 2))


SESSION_LOOP = """
    import asyncio, contextvars, signal, os, time
    import pytest, pytest_asyncio

    SET = contextvars.ContextVar("SET", default=None)

    class Client:
        loop = None

        async def ask(self, number):
            assert asyncio.get_running_loop() is self.loop
            await asyncio.sleep(0.5)
            return number

    @pytest_asyncio.fixture(scope="session", loop_scope="session")
    async def client():
        made = Client()
        made.loop = asyncio.get_running_loop()
        yield made
        assert asyncio.get_running_loop() is made.loop
        print("client closed")

    @pytest_asyncio.fixture(loop_scope="session")
    async def named(request):
        await asyncio.sleep(0.01)
        SET.set(request.node.name)
        yield
        assert SET.get() == request.node.name

    @pytest.mark.asyncio(loop_scope="session")
    @pytest.mark.parametrize("number", range(8))
    async def test_asks(client, named, request, capsys, number):
        print("asking", number)
        assert await client.ask(number) == number
        assert SET.get() == request.node.name
        assert capsys.readouterr().out == f"asking {number}\\n"
"""


def run_session_loop(folder: Path, tests: str = "", *arguments: str) -> tuple[str, float]:
    """What pytest prints, and the seconds that it says it took. With a limit of failures, what has
    failed is not run again alone."""
    text = textwrap.dedent(SESSION_LOOP) + textwrap.dedent(tests)
    (folder / "test_loop.py").write_text(text)
    scope = "asyncio_default_fixture_loop_scope=function"
    flags = ("--parallel", "16", "--maxfail", "99", "-o", scope, "-v")
    ran = run_pytest_with_all(folder, *flags, *arguments)
    output = ran.stdout + ran.stderr
    assert "INTERNALERROR" not in output, output
    took = re.search(r" in ([0-9.]+)s", ran.stdout)
    assert took is not None, output
    return output, float(took[1])


def test_tests_of_the_session_loop_wait_side_by_side(tmp_path: Path) -> None:
    """8 of 0.5 s in one loop, with a client and variables of async fixtures: not 4 s. A test that
    runs alone uses the same loop in the main thread; the client is closed by the last test."""
    output, took_s = run_session_loop(
        tmp_path,
        """
        @pytest.mark.asyncio(loop_scope="session")
        @pytest.mark.serial
        async def test_alone(client):
            import threading

            assert threading.current_thread() is threading.main_thread()
            assert await client.ask(1) == 1

        def test_sync(client):
            time.sleep(0.5)
        """,
        "-s",
    )
    assert "10 passed" in output
    assert output.count("client closed") == 1
    assert took_s < 3


def test_loops_of_two_modules_run_beside_each_other(tmp_path: Path) -> None:
    text = """
        import asyncio, time
        import pytest

        pytestmark = pytest.mark.asyncio(loop_scope="module")
        LOOPS = set()

        @pytest.mark.parametrize("number", range(4))
        async def test_waits(number):
            LOOPS.add(asyncio.get_running_loop())
            assert len(LOOPS) == 1
            await asyncio.sleep(0.5)
    """
    (tmp_path / "test_other.py").write_text(textwrap.dedent(text))
    (tmp_path / "test_more.py").write_text(textwrap.dedent(text))
    output, took_s = run_session_loop(tmp_path)
    assert "16 passed" in output
    assert took_s < 3


def test_a_test_of_a_shared_loop_that_fails_or_hangs_leaves_the_others_alone(
    tmp_path: Path,
) -> None:
    """Its traceback is its own, and a timeout shows the stack of its task. One that keeps the loop
    busy is ended in the loop's thread."""
    output, took_s = run_session_loop(
        tmp_path,
        """
        pytestmark = pytest.mark.asyncio(loop_scope="session")

        async def test_fails(client):
            await asyncio.sleep(0.1)
            print("before the end")
            assert [1, 2] == [1, 3]

        @pytest.mark.timeout_s(1)
        async def test_hangs(client):
            await asyncio.Event().wait()

        @pytest.mark.timeout_s(1)
        async def test_is_busy(client):
            async def spin():
                while True:
                    pass

            await asyncio.sleep(0.1)
            await asyncio.create_task(spin())

        async def test_exits_the_loop(client):
            raise SystemExit(3)
        """,
    )
    assert "4 failed, 8 passed" in output
    assert "AssertionError: assert [1, 2] == [1, 3]" in output
    assert "before the end" in output
    assert "await asyncio.Event().wait() -> asyncio.locks.Event.wait" in output
    assert ", in spin\n" in output
    assert "SystemExit: 3" in output
    assert took_s < 10


def test_a_test_that_waits_in_a_shared_loop_is_one_that_runs(tmp_path: Path) -> None:
    """Its own thread sits in a lock, but whoever wants to be the only one waits for it."""
    output, _ = run_session_loop(
        tmp_path,
        """
        @pytest.mark.asyncio(loop_scope="session")
        async def test_stays_in_its_folder(client):
            folder = os.getcwd()
            for _ in range(40):
                await asyncio.sleep(0.1)
                assert os.getcwd() == folder

        def test_goes_elsewhere(tmp_path):
            time.sleep(0.5)
            folder, go = os.getcwd(), getattr(os, "ch" + "dir")
            go(tmp_path)
            time.sleep(0.3)
            go(folder)
        """,
    )
    assert "10 passed" in output
    assert "while other tests ran" not in output


def test_ctrl_c_ends_the_tests_of_a_shared_loop(tmp_path: Path) -> None:
    """In order, each by a cancellation; and the client of the session is closed."""
    output, took_s = run_session_loop(
        tmp_path,
        """
        @pytest.mark.asyncio(loop_scope="session")
        async def test_is_cancelled(client):
            try:
                await asyncio.sleep(60)
            finally:
                print("cancelled")

        def test_interrupts():
            time.sleep(1.5)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)
        """,
        "-s",
    )
    assert "KeyboardInterrupt" in output
    assert "still running: test_loop.py::test_is_cancelled" in output
    assert "cancelled\n" in output
    assert "client closed" in output
    assert took_s < 10


def test_auto_mode_and_loops_of_the_session_by_the_ini_file(tmp_path: Path) -> None:
    ran = run_tests(
        tmp_path,
        """
        import asyncio
        import pytest

        @pytest.fixture(scope="session")
        async def loop():
            yield asyncio.get_running_loop()

        @pytest.mark.parametrize("number", range(3))
        async def test_session(loop, number):
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0.01)

        @pytest.mark.asyncio(loop_scope="function")
        async def test_own(loop):
            assert asyncio.get_running_loop() is not loop

        class TestPolicy:
            @pytest.fixture
            def event_loop_policy(self):
                return asyncio.DefaultEventLoopPolicy()

            @pytest.mark.asyncio(loop_scope="function")
            async def test_policy(self, event_loop_policy):
                assert asyncio.get_event_loop_policy() is event_loop_policy
        """,
        *("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=session"),
        *("-o", "asyncio_default_test_loop_scope=session", "-W", "ignore:Overriding"),
    )
    require_all_passed(ran)
    assert {one.properties["group"] for one in ran.values()} == {None}
    assert ran["test_own"].properties["alone"] is None
    assert "policy" in ran["TestPolicy::test_policy"].properties["alone"]


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("del plugin.Runner", "pytest-asyncio is older than 1.0"),
        ("plugin.wrap_in_sync = None", "it shares a loop, and pytest-asyncio is older than 1.2"),
    ],
)
def test_tests_of_an_old_pytest_asyncio_run_alone(
    tmp_path: Path, missing: str, reason: str
) -> None:
    """Before 1.2 only those that share a loop: by what such a version has, or does not have."""
    text = """
        import pytest

        @pytest.mark.asyncio(loop_scope="module")
        async def test_shares(): pass

        @pytest.mark.asyncio
        async def test_own(): pass
    """
    conftest = f"""
        from pytest_asyncio import plugin

        def pytest_collection(): {missing}
    """
    (tmp_path / "conftest.py").write_text(textwrap.dedent(conftest))
    ran = run_tests(tmp_path, text, "-o", "asyncio_default_fixture_loop_scope=function")
    assert ran["test_shares"].properties["alone"] == reason
    assert (ran["test_own"].properties["alone"] == reason) == ("1.0" in reason)


def test_without_the_plugins_nothing_of_them_is_looked_for(tmp_path: Path) -> None:
    ran = run_tests(tmp_path, "def test_sync(): pass", "-p", "no:asyncio", "-p", "no:anyio")
    require_all_passed(ran)
