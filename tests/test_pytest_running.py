"""The loop that takes the place of pytest's: who runs beside whom, and in which order."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import paraval
from paraval.pytest_plugin.options import PluginOptions
from paraval.pytest_plugin.session.session import register_parallel
from tests.child_pytest import run_pytest, run_python

WATCH = """
import threading
import time

class Watch:
    '''Who runs at the same time, by kind.'''

    def __init__(self):
        self._lock = threading.Lock()
        self._now = {}
        self.most = {}
        self.order = []

    def wait(self, kind, name, seconds):
        with self._lock:
            self.order.append(name)
            self._now[kind] = self._now.get(kind, 0) + 1
            self.most[kind] = max(self.most.get(kind, 0), self._now[kind])
            together = sum(self._now.values())
            self.most["all"] = max(self.most.get("all", 0), together)
            self.most["with " + kind] = max(self.most.get("with " + kind, 0), together)
        time.sleep(seconds)
        with self._lock:
            self._now[kind] -= 1

WATCH = Watch()
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
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent(
            """
            import json, pathlib
            from watch import WATCH

            def pytest_sessionfinish(session):
                told = {"most": WATCH.most, "order": WATCH.order}
                pathlib.Path(session.config.rootpath, "told.json").write_text(json.dumps(told))
            """
        )
    )
    return tmp_path


def told(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "told.json").read_text())
    return found


def test_groups_keep_their_limit_and_serial_tests_run_alone(suite: Path) -> None:
    """Free tests fill what is left; the order of what runs alone is that of collection."""
    (suite / "test_kinds.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from watch import WATCH

            @pytest.mark.parallel_group("db", limit=2)
            @pytest.mark.parametrize("n", range(6))
            def test_group(n):
                WATCH.wait("db", f"db{n}", 0.05)

            @pytest.mark.parametrize("n", range(12))
            def test_free(n):
                WATCH.wait("free", f"free{n}", 0.1)

            @pytest.mark.serial
            @pytest.mark.parametrize("n", range(3))
            def test_serial(n):
                WATCH.wait("serial", f"serial{n}", 0.01)
            """
        )
    )
    output = run(suite, "--parallel", "8", "-v")
    most = told(suite)["most"]
    assert most["db"] == 2
    assert 4 <= most["free"] <= 8
    assert most["all"] <= 8
    assert most["serial"] == most["with serial"] == 1
    order = [name for name in told(suite)["order"] if name.startswith("serial")]
    assert order == ["serial0", "serial1", "serial2"]
    assert output.count("(exclusive: marked serial)") == 3
    assert "parallel 8: " in output


def test_the_second_run_begins_with_the_longest(suite: Path) -> None:
    """How long tests take is remembered, so that a long one is not started last."""
    (suite / "test_long.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from watch import WATCH

            @pytest.mark.parametrize("n", range(8))
            def test_waits(n):
                WATCH.wait("any", str(n), 0.4 if n >= 6 else 0.01)
            """
        )
    )
    run(suite, "--parallel", "2")
    assert set(told(suite)["order"][:2]) == {"0", "1"}
    run(suite, "--parallel", "2")
    assert set(told(suite)["order"][:2]) == {"6", "7"}


def test_auto_and_a_line_in_the_ini_file_ask_for_it_too(suite: Path) -> None:
    (suite / "pytest.ini").write_text(
        "[pytest]\nparallel = auto\nasyncio_default_fixture_loop_scope=function\n"
    )
    (suite / "test_many.py").write_text(
        textwrap.dedent(
            """
            import pytest
            from watch import WATCH

            @pytest.mark.parametrize("n", range(12))
            def test_waits(n):
                WATCH.wait("any", str(n), 0.2)
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
    monkeypatch.setattr(pytest, "version_tuple", (8, 3, 5))
    monkeypatch.setattr(pytest, "__version__", "8.3.5")
    with pytest.raises(pytest.UsageError, match=r"needs pytest 8\.4 or newer; this is 8\.3\.5"):
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
