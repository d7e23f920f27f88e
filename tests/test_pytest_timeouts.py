"""Tests that hang, crash, or end their process: each fails with what is known, and the rest run."""

from __future__ import annotations

import re
import subprocess
import textwrap
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paraval.pytest_plugin.time_limits import seconds_of
from tests.child_pytest import run_pytest


@pytest.mark.parametrize("bad", [(), (0,), (-1,), ("30",), (True,), (float("inf"),), (1, 2)])
def test_a_limit_that_is_none_is_refused_by_the_name_of_the_test(bad: tuple[Any, ...]) -> None:
    item: Any = SimpleNamespace(
        nodeid="test_x.py::test_y",
        get_closest_marker=lambda _: getattr(pytest.mark, "timeout_s")(*bad).mark,  # noqa: B009
    )
    with pytest.raises(pytest.UsageError, match=r"^test_x.py::test_y: @pytest.mark.timeout_s\("):
        seconds_of(item)


HANGS = """
    import asyncio, queue, socket, threading, time
    import pytest

    pytestmark = pytest.mark.timeout_s(0.5)

    @pytest.fixture
    def cleaned(request):
        yield
        with open("cleaned.txt", "a") as file:
            file.write(request.node.name + "\\n")

    def poll():
        while True:
            time.sleep(0.01)

    def test_polls(cleaned):
        print("said before")
        poll()

    def test_receives(cleaned):
        here, there = socket.socketpair()
        here.recv(1)

    def test_runs_a_loop(cleaned):
        asyncio.run(asyncio.sleep(30))

    def test_waits_for_a_thread(cleaned):
        thread = threading.Thread(target=queue.Queue().get, daemon=True)
        thread.start()
        thread.join()

    @pytest.fixture
    def slow():
        poll()

    def test_setup(slow): ...

    @pytest.fixture
    def slow_end():
        yield
        poll()

    def test_teardown(slow_end): ...

    @pytest.mark.xfail
    def test_expected():
        poll()

    @pytest.mark.serial
    def test_alone(cleaned):
        time.sleep(30)

    def test_fine(cleaned): ...

    def test_wrong(slow_end):
        assert 1 == 2, "a wrong answer"

    def test_skips(slow_end):
        pytest.skip("no need")

    @pytest.mark.parametrize("n", range(2))
    def test_shares(n, request):
        request.getfixturevalue("slow")
"""


def ends_in(folder: Path) -> dict[str, list[str]]:
    """For each test: what kinds of ends it has, with their first lines."""
    found: dict[str, list[str]] = {}
    for case in ET.parse(folder / "junit.xml").getroot().iter("testcase"):
        kinds = [one for one in case if one.tag in ("failure", "error", "skipped")]
        told = found.setdefault(str(case.get("name")), [])
        told += [f"{one.tag}: {one.get('message')}" for one in kinds]
    return found


def run(folder: Path, tests: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_x.py").write_text(textwrap.dedent(tests))
    return run_pytest(folder, "--junitxml=junit.xml", *flags)


@pytest.mark.parametrize("flags", [(), ("--parallel", "8")], ids=["plain", "parallel"])
def test_what_takes_too_long_fails_at_its_line_and_is_torn_down(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    done = run(tmp_path, HANGS, "--tb=short", *flags)
    ends, said = ends_in(tmp_path), done.stdout
    assert done.returncode == 1, said
    for name in ("polls", "receives", "runs_a_loop", "waits_for_a_thread", "alone"):
        expected = ["failure: Failed: timed out after 0.5 s, in the call"]
        assert ends[f"test_{name}"] == expected, said
    # pytest's word for what fails before and after the test itself.
    setup = "Failed: timed out after 0.5 s, in the setup"
    teardown = "Failed: timed out after 0.5 s, in the teardown"
    assert setup in ends["test_setup"][0]
    assert teardown in ends["test_teardown"][0]
    assert ends["test_expected"][0].startswith("skipped")
    assert ends["test_fine"] == []
    assert [one.partition(":")[0] for one in ends["test_skips"]] == ["skipped", "error"]
    assert "a wrong answer" in ends["test_wrong"][0]
    for n in range(2):
        assert "in the call" in ends[f"test_shares[{n}]"][0]
    assert re.search(r"test_x\.py:15: in poll\n +time\.sleep\(0\.01\)", said)
    assert "said before" in said
    cleaned = sorted((tmp_path / "cleaned.txt").read_text().split())
    in_order = ["alone", "fine", "polls", "receives", "runs_a_loop", "waits_for_a_thread"]
    assert cleaned == [f"test_{name}" for name in in_order]


ENDS = """
    import ctypes, os, signal, threading, time
    import pytest

    def test_exits():
        print("said before the end")
        os._exit(3)

    def test_segfaults():
        ctypes.string_at(0)

    def test_kills_its_group():
        os.killpg(0, signal.SIGKILL)

    @pytest.mark.timeout_s(0.3)
    @pytest.mark.parametrize("n", range(2))
    def test_does_not_heed(n):
        while True:
            try:
                time.sleep(30)
            except BaseException:
                pass

    @pytest.mark.timeout_s(0.3)
    def test_deadlock():
        lock = threading.Lock()
        with lock:
            lock.acquire()

    @pytest.mark.parametrize("n", range(20))
    def test_fine(n):
        time.sleep(0.01)
"""


@pytest.mark.parametrize("start", ["fork", "exec"])
def test_what_ends_its_process_fails_and_another_one_takes_over(tmp_path: Path, start: str) -> None:
    (tmp_path / "conftest.py").write_text(
        "from paraval.pytest_plugin import parallel_run, time_limits\n"
        "time_limits.RING_AGAIN_S = parallel_run.RING_AGAIN_S = 2.0\n"
        "parallel_run.TICK_S = 0.0\n"
    )
    done = run(tmp_path, ENDS, "--parallel", "3", "--parallel-start", start)
    ends, said = ends_in(tmp_path), done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "6 failed, 20 passed" in said
    process = "failure: the process of this test"
    assert ends["test_exits"] == [f"{process} ended with exit code 3"]
    assert ends["test_segfaults"][0].startswith(f"{process} was killed by signal 11 (SIGSEGV)")
    assert ends["test_kills_its_group"] == [f"{process} was killed by signal 9 (SIGKILL)"]
    for n in range(2):  # Killed in the same moment: each with its own stacks.
        (unheeded,) = ends[f"test_does_not_heed[{n}]"]
        assert unheeded.startswith("failure: timed out after 0.3 s, and did not end")
        told = said.partition(f"_ test_does_not_heed[{n}] _")[2].partition("\n__")[0]
        assert "in test_does_not_heed" in told
    assert ends["test_deadlock"] == ["failure: Failed: timed out after 0.3 s, in the call"]
    assert "string_at" in said.partition("_ test_segfaults _")[2].partition("\n__")[0]
    assert "said before the end" in said.partition("_ test_exits _")[2].partition("\n__")[0]


def test_a_test_without_a_limit_that_does_not_end_is_named_in_a_log(tmp_path: Path) -> None:
    """With its line, once nothing else runs; the session goes on to wait, as plain pytest does."""
    (tmp_path / "conftest.py").write_text(
        "from paraval.pytest_plugin import parallel_run\n"
        "parallel_run.HANGS_AFTER_S, parallel_run.NAMED_EVERY_S = 0.5, 1.0\n"
    )
    tests = """
        import time

        def test_sleeps():
            time.sleep(3)

        def test_quick():
            pass
    """
    began = time.monotonic()
    done = run(tmp_path, tests, "--parallel", "2")
    assert time.monotonic() - began < 20
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    place = r"test_x\.py::test_sleeps, in test_x\.py:5: time\.sleep\(3\)"
    assert len(re.findall(rf"running for [\d.]+ m?s: {place}", done.stdout)) >= 2
