"""The loop that takes the place of pytest's: who runs beside whom, and in which order."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from pathlib import Path

import pytest

import paraval
from paraval.pytest_plugin.options import PluginOptions
from paraval.pytest_plugin.session import register_parallel
from tests.child_pytest import run_pytest, run_python

WATCH = """
import os
import time
from pathlib import Path

def wait(kind, name, seconds):
    '''Note who begins and who ends, in a file of all workers.'''
    with open("told", "a") as file:
        print(f"{kind} {name}", file=file, flush=True)
        time.sleep(seconds)
        print(f"{kind} -", file=file, flush=True)
"""


def run(folder: Path, *flags: str, fails: bool = False) -> str:
    ran = run_python(folder, "-m", "pytest", "-p", "no:randomly", *flags)
    assert (ran.returncode != 0) is fails, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with its own configuration, and a watch that its tests share."""
    (tmp_path / "watch.py").write_text(WATCH)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope=function\n")
    return tmp_path


def order(folder: Path) -> list[str]:
    """The names of the tests, as they began."""
    lines = (folder / "told").read_text().splitlines()
    return [name for _, _, name in (line.partition(" ") for line in lines) if name != "-"]


def most_at_once(folder: Path) -> Counter[str]:
    """By kind; and, as `with` that kind, of all kinds."""
    now, most = Counter[str](), Counter[str]()
    for line in (folder / "told").read_text().splitlines():
        kind, _, name = line.partition(" ")
        now[kind] += -1 if name == "-" else 1
        for key, count in ((kind, now[kind]), ("all", now.total()), (f"with {kind}", now.total())):
            most[key] = max(most[key], count)
    return most


def test_groups_keep_their_limit_and_serial_tests_run_alone(suite: Path) -> None:
    """Free tests fill what is left; the order of what runs alone is that of collection."""
    (suite / "test_kinds.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from watch import wait

            @pytest.mark.parallel_group("db", limit=2)
            @pytest.mark.parametrize("n", range(6))
            def test_group(n):
                wait("db", f"db{n}", 0.3)

            @pytest.mark.parametrize("n", range(12))
            def test_free(n):
                wait("free", f"free{n}", 0.3)

            @pytest.mark.serial
            @pytest.mark.parametrize("n", range(3))
            def test_serial(n):
                wait("serial", f"serial{n}", 0.01)
            """
        )
    )
    output = run(suite, "--parallel", "8", "-v")
    most = most_at_once(suite)
    assert most["db"] == 2
    assert 4 <= most["free"] <= 8
    assert most["all"] <= 8
    assert most["serial"] == most["with serial"] == 1
    serial = [name for name in order(suite) if name.startswith("serial")]
    assert serial == ["serial0", "serial1", "serial2"]
    assert "parallel 8: forked workers, 3 tests alone" in output


def test_the_second_run_begins_with_the_longest(suite: Path) -> None:
    """How long tests take is remembered, so that a long one is not started last."""
    (suite / "test_long.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from watch import wait

            @pytest.mark.parametrize("n", range(8))
            def test_waits(n):
                wait("any", str(n), 0.8 if n >= 6 else 0.2)
            """
        )
    )
    run(suite, "--parallel", "2")
    assert {"6", "7"} == set(order(suite)[-2:])
    (suite / "told").unlink()
    run(suite, "--parallel", "2")
    assert set(order(suite)[:2]) == {"6", "7"}


def test_auto_and_a_line_in_the_ini_file_ask_for_it_too(suite: Path) -> None:
    (suite / "pytest.ini").write_text(
        "[pytest]\nparallel = auto\nasyncio_default_fixture_loop_scope=function\n"
    )
    (suite / "test_many.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from watch import wait

            @pytest.mark.parametrize("n", range(12))
            def test_waits(n):
                wait("any", str(n), 0.2)
            """
        )
    )
    output = run(suite)
    assert "parallel auto: " in output
    assert "12 passed" in output


def test_an_account_that_can_do_no_more_fails_its_tests_and_no_others(suite: Path) -> None:
    """Quota exhausted: what was not run is told as an error, and never as passed or skipped."""
    (suite / "test_quota.py").write_text(
        textwrap.dedent(
            """
            import time
            import pytest

            class Response:
                status_code = 429
                headers = {}
                text = '{"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}'

            class RateLimitError(Exception):
                status_code = 429
                response = Response()
                body = {"type": "insufficient_quota", "code": "insufficient_quota"}
                code = "insufficient_quota"

            RateLimitError.__module__ = "openai"

            @pytest.mark.retry_rate_limits(account="openai")
            @pytest.mark.parametrize("n", range(6))
            def test_asks(n):
                time.sleep(0.02)
                raise RateLimitError("You exceeded your current quota")

            def test_other():
                pass
            """
        )
    )
    output = run(suite, "--parallel", "2", fails=True)
    assert "1 passed" in output
    assert "not run: " in output
    assert "skipped" not in output


def test_a_pytest_that_is_too_old_is_told_by_its_version(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest, "version_tuple", (8, 1, 2))
    monkeypatch.setattr(pytest, "__version__", "8.1.2")
    with pytest.raises(pytest.UsageError, match=r"needs pytest 8\.2 or newer; this is 8\.1\.2"):
        register_parallel(pytestconfig, PluginOptions(parallel=4))


def test_a_path_that_pytest_would_take_for_a_place_with_tests_is_refused(suite: Path) -> None:
    """pytest would look for its rootdir in the store, and record another suite."""
    (suite / "store").mkdir()
    (suite / "test_one.py").write_text("def test_one(): pass\n")
    ran = run_pytest(suite, "--paraval-store-at", "store")
    assert ran.returncode == 4
    assert "write --paraval-store-at=store (with =)" in ran.stderr


def test_only_one_module_imports_the_private_parts_of_pytest() -> None:
    """So there is one place to look when pytest changes them."""
    package = Path(paraval.__file__).parent
    private = re.compile(r"^\s*(from|import) _pytest\b", re.MULTILINE)
    found = {path.name for path in package.rglob("*.py") if private.search(path.read_text())}
    assert found == {"pytest_internals.py"}


def test_a_start_without_flags_loads_next_to_nothing_of_the_plugin(suite: Path) -> None:
    (suite / "test_one.py").write_text(
        "import sys\n"
        "def test_one():\n"
        "    loaded = {name for name in sys.modules if name.startswith('paraval.pytest_plugin.')}\n"
        "    assert len(loaded) < 6, loaded\n"
    )
    run(suite)


def test_a_conftest_that_prints_what_tests_collected_is_told_that_workers_share_no_globals(
    suite: Path,
) -> None:
    (suite / "results.py").write_text("RESULTS = []\n")
    (suite / "conftest.py").write_text(
        "from results import RESULTS\n"
        "def pytest_sessionfinish():\n"
        "    print('accuracy of', len(RESULTS), 'tests')\n"
    )
    (suite / "test_one.py").write_text(
        "from results import RESULTS\n"
        "def test_one(): RESULTS.append(1)\n"
        "def test_two(): RESULTS.append(0)\n"
    )
    output = run(suite, "--parallel", "2")
    assert output.count("accuracy of") == 1
    assert output.count("pytest_sessionfinish of a conftest prints in each worker") == 1
    (suite / "conftest.py").write_text("def pytest_sessionfinish(): pass\n")
    assert "prints in each worker" not in run(suite, "--parallel", "2")
