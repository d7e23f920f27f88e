"""What other plugins want of a run with tests side by side: by the plugins themselves."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from tests.child_pytest import run_python

PYTEST = ("-m", "pytest", "-p", "no:cacheprovider")

ASKING = """
    import json
    from paraval.pytest_plugin import neighbours

    def pytest_collection_finish(session):
        config = session.config
        told = {
            "all": neighbours.why_all_alone(config),
            "owner": neighbours.owner_of_loop(config),
            "notes": neighbours.notes(config),
            "alone": {item.name: neighbours.why_alone(item) for item in session.items},
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
        "test_not_so_flaky",
        "test_case",
    }
    assert alone["test_flaky"] == "it is run by pytest_rerunfailures"
    assert "hypothesis" in alone["test_given"]
    assert alone["test_with_some"] == alone["test_subtests"]
    assert "benchmark" in alone["test_fast"]


def test_what_is_otherwise_than_one_may_think_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("def test_one(): pass")
    told = ask(tmp_path, "--reruns", "2", "--cov", "--cov-context", "test", "--cov-report", "")
    assert told["alone"]["test_one"] == "it is run by pytest_rerunfailures"
    rerun, context, seed = told["notes"]
    assert "@pytest.mark.flaky(reruns=2)" in rerun
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
    told = ask(tmp_path, "-p", "no:randomly", "-p", "own_loop", "--setup-show")
    assert told["owner"] == "own_loop"
    assert told["all"] == "--setup-show tells of one test at a time"
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
    assert "(alone: it is run by pytest_rerunfailures)" in ran.stdout
