"""What other plugins want of a run with tests side by side: by the plugins themselves."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests.child_pytest import run_python

PYTEST = ("-m", "pytest", "-p", "no:cacheprovider")

ASKING = """
    import json
    from paraval.pytest_plugin.exclusive import other_plugins as neighbors, scan

    def pytest_collection_finish(session):
        config = session.config
        told = {
            "all": neighbors.why_all_alone(config),
            "owner": neighbors.owner_of_loop(config),
            "notes": neighbors.notes(config),
            "alone": {
                item.name: scan.why_alone(item) or neighbors.why_alone(item)
                for item in session.items
            },
        }
        print("TOLD", json.dumps(told))
"""


def ask(folder: Path, *arguments: str) -> dict[str, Any]:
    """What is said of the tests in the folder, with these arguments for pytest."""
    (folder / "asking.py").write_text(textwrap.dedent(ASKING))
    ran = run_python(folder, *PYTEST, "-p", "asking", "--collect-only", "-s", *arguments)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("TOLD ")]
    assert len(lines) == 1, ran.stdout + ran.stderr
    told: dict[str, Any] = json.loads(lines[0].removeprefix("TOLD "))
    return told


def test_tests_that_another_plugin_runs_or_times_run_alone(tmp_path: Path) -> None:
    """And no others: that a plugin is installed makes nothing run alone."""
    (tmp_path / "test_some.py").write_text(
        textwrap.dedent(
            """
            import unittest
            import pytest
            from hypothesis import given, strategies

            def test_plain():
                pass

            @pytest.mark.flaky(reruns=2)
            def test_flaky():
                pass

            @pytest.mark.flaky(reruns=0)
            def test_not_so_flaky():
                pass

            @given(strategies.integers())
            def test_given(number):
                pass

            def test_subtests(subtests):
                pass

            @pytest.fixture
            def benchmark():
                pass

            def test_fast(benchmark):
                pass

            @pytest.mark.dependency
            def test_depends():
                pass

            class TestCases(unittest.TestCase):
                def test_case(self):
                    pass

                def test_with_some(self):
                    def inner():
                        with self.subTest("one"):
                            pass
                    inner()
            """
        )
    )
    told = ask(tmp_path, "-p", "no:randomly")
    assert (told["all"], told["owner"], told["notes"]) == (None, None, [])
    alone = told["alone"]
    assert {name for name, why in alone.items() if why is None} == {
        "test_plain",
        "test_flaky",
        "test_not_so_flaky",
        "test_case",
    }
    assert "hypothesis" in alone["test_given"]
    assert alone["test_with_some"] == alone["test_subtests"]
    assert "benchmark" in alone["test_fast"]


def test_what_is_otherwise_than_one_may_think_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("def test_one(): pass")
    told = ask(tmp_path, "--reruns", "2", "--cov", "--cov-context", "test", "--cov-report", "")
    assert told["alone"]["test_one"] is None
    context, seed = told["notes"]
    assert "--cov-context" in context
    assert "pytest-randomly" in seed


def test_a_plugin_of_a_user_that_runs_tests_or_the_loop_itself_has_its_way(tmp_path: Path) -> None:
    """Those that only look on, by a wrapper, are in nobody's way."""
    (tmp_path / "test_some.py").write_text("def test_one(): pass")
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent(
            """
            import pytest

            @pytest.hookimpl(wrapper=True)
            def pytest_runtestloop(session):
                return (yield)

            def pytest_runtest_protocol(item, nextitem):
                pass
            """
        )
    )
    (tmp_path / "own_loop.py").write_text("def pytest_runtestloop(session): pass")
    told = ask(tmp_path, "-p", "no:randomly")
    assert told["owner"] is None
    assert told["alone"]["test_one"] == "it is run by conftest"
    (tmp_path / "conftest.py").unlink()
    (tmp_path / "flaky.py").write_text("def pytest_runtest_protocol(item): pass")
    (tmp_path / "test_more.py").write_text(
        "import pytest\n@pytest.mark.flaky(max_runs=2)\ndef test_flaky(): pass"
    )
    told = ask(tmp_path, "-p", "no:randomly", "-p", "flaky")
    assert told["alone"] == {"test_one": None, "test_flaky": "it is run by flaky"}
    told = ask(tmp_path, "-p", "no:randomly", "-p", "own_loop", "--setup-show")
    assert told["owner"] == "own_loop"
    assert told["all"] == "--setup-show prints one test at a time"
    assert [note.partition(":")[0] for note in told["notes"]] == ["not in parallel"] * 2


def test_other_plugins_do_their_work_in_a_parallel_run(tmp_path: Path) -> None:
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
    ran = run_python(tmp_path, *PYTEST, "--parallel", "4", "--cov=.", "--cov-report=term", "-v")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "2 failed, 7 passed, 2 subtests passed, 1 rerun" in ran.stdout
    coverage = next(line for line in ran.stdout.splitlines() if line.startswith("test_some.py  "))
    assert coverage.endswith("100%")
    assert "pytest_rerunfailures" not in ran.stdout


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


def _told_of_reruns(folder: Path, *arguments: str) -> tuple[list[str], list[Any], float]:
    """The lines of -v and of the summary, and the test cases of the JUnit file, both sorted; and
    how long it took."""
    (folder / "test_some.py").write_text(textwrap.dedent(RERUNS))
    flags = ("-v", "-rR", "--junitxml=junit.xml", "-p", "no:randomly")
    ran = run_python(folder, *PYTEST, *flags, *arguments)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    lines = [re.sub(r" +\[ *\d+%\]$", "", line) for line in ran.stdout.splitlines()]
    cases = ET.parse(folder / "junit.xml").iter("testcase")
    took = re.search(r"(.* rerun) in ([0-9.]+)s", ran.stdout)
    assert took is not None, ran.stdout
    told = [line for line in lines if "test_some.py::" in line]
    return (
        sorted([*told, took[1].strip("= ")]),
        sorted((case.get("name"), [child.tag for child in case]) for case in cases),
        float(took[2]),
    )


def test_reruns_run_beside_others_and_are_told_as_in_a_plain_run(tmp_path: Path) -> None:
    """By pytest-rerunfailures' own rules: its marks, delays and conditions. What the module shares
    stays up between two attempts."""
    lines, cases, plain_s = _told_of_reruns(tmp_path)
    lines_beside, cases_beside, took_s = _told_of_reruns(tmp_path, "--parallel", "16")
    assert lines_beside == lines
    assert cases_beside == cases
    assert "test_some.py::test_flaky[0] RERUN" in lines_beside
    # 6 tests of two attempts of 0.4 s; the longest one takes 2.4 s.
    assert took_s < 0.8 * plain_s


def test_reruns_of_all_tests_by_a_flag(tmp_path: Path) -> None:
    """With a limit for the whole session, and the exit code of --fail-on-flaky."""
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
    flags = (*PYTEST, "--parallel", "4", "--reruns", "1", "-rR")
    ran = run_python(tmp_path, *flags)
    assert (ran.returncode, "3 passed, 3 rerun" in ran.stdout) == (0, True), ran.stdout
    assert ran.stdout.count("RERUN test_some.py::") == 3
    ran = run_python(tmp_path, *flags, "--fail-on-flaky")
    assert ran.returncode == 7, ran.stdout
    ran = run_python(tmp_path, *flags, "--max-suite-reruns", "2")
    assert "1 failed, 2 passed, 2 rerun" in ran.stdout
    ran = run_python(tmp_path, *flags, "--rerun-exclude-path", "test_some.py")
    assert "3 failed in" in ran.stdout
    ran = run_python(tmp_path, *flags, "-n", "2", "-p", "xdist")
    assert "3 passed, 3 rerun" in ran.stdout, ran.stdout
