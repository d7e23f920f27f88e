"""Whose the threads are that tests and fixtures start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

SUITE = """
    import asyncio, contextvars, logging, threading, warnings
    from concurrent.futures import ThreadPoolExecutor
    from multiprocessing.pool import ThreadPool
    import pytest
    from paraval.pytest_plugin.running.current_test import current_test, owning_test

    def whose():
        test = owning_test()
        return None if test is None else test.item.name

    def in_thread():
        found = []
        thread = threading.Thread(target=lambda: found.append(whose()))
        thread.start()
        thread.join()
        return found[0]

    @pytest.fixture(scope="session")
    def inner():
        return in_thread()

    @pytest.fixture(scope="module")
    def shared(inner):
        with ThreadPool(1) as pool, ThreadPoolExecutor(1) as executor:
            yield [inner, in_thread(), executor.submit(whose).result()], pool, executor

    @pytest.fixture
    def own(shared):
        return in_thread()

    @pytest.mark.parametrize("n", range(3))
    def test_it(shared, own, request, n):
        assert current_test() is not None
        in_setup, pool, executor = shared
        assert in_setup == [None, None, None]
        assert pool.apply(whose) is None
        me = request.node.name
        assert [own, in_thread(), executor.submit(whose).result()] == [me, me, me]

    def test_an_empty_context_is_the_tests_of_its_thread(request, capsys, caplog):
        empty = contextvars.Context
        empty().run(print, "said")
        empty().run(logging.getLogger("x").error, "logged")
        with pytest.warns(UserWarning):
            empty().run(warnings.warn, "warned")
        assert capsys.readouterr().out == "said\\n"
        assert caplog.messages == ["logged"]
        assert empty().run(in_thread) == request.node.name

    def test_so_is_a_task_in_one(request):
        async def ask():
            async def inner():
                return whose()
            return await asyncio.create_task(inner(), context=contextvars.Context())
        assert asyncio.run(ask()) == request.node.name
"""


def test_what_a_shared_fixture_starts_is_nobodys(tmp_path: Path) -> None:
    """Though one test happens to set it up; what that test starts itself is its own."""
    (tmp_path / "test_s.py").write_text(dedent(SUITE))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--parallel", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "5 passed" in ran.stdout, ran.stdout + ran.stderr
