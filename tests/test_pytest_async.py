"""Async tests beside each other, by those who own them: pytest-asyncio, anyio and unittest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

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
    from paraval.pytest_plugin import asyncs

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


def test_tests_that_share_a_loop_run_in_it_one_after_another_in_any_thread(tmp_path: Path) -> None:
    """Others that only use its fixtures run beside them. What the fixture leaves running in the
    loop goes on when the next test does; fixtures are set up and torn down once."""
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
        "the asyncio loop of test_it.py": 4,
        "the asyncio loop of test_it.py::TestClass": 2,
        "anyio's loop of test_it.py": 6,
    }
    shared = groups["the asyncio loop of test_it.py"]
    assert not any(overlap(one, other) for one, other in combinations(shared, 2))


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
    in_session = [one for one in ran.values() if one.properties["group"] is not None]
    assert [one.properties["group"] for one in in_session] == [
        "the asyncio loop of the session"
    ] * 3
    assert ran["test_own"].properties["alone"] is None
    assert "policy" in ran["TestPolicy::test_policy"].properties["alone"]


def test_without_the_plugins_nothing_of_them_is_looked_for(tmp_path: Path) -> None:
    ran = run_tests(tmp_path, "def test_sync(): pass", "-p", "no:asyncio", "-p", "no:anyio")
    require_all_passed(ran)
