"""How a run with tests side by side ends before its end: at once, in order, as in plain pytest."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from paraval.records import Outcome
from paraval.store.store import Store

TESTS = """
    import asyncio, os, sys, threading, time
    import pytest

    def note(word):
        with open("notes.txt", "a") as file:
            file.write(word + "\\n")

    @pytest.fixture(scope="session")
    def shared():
        note("shared up")
        yield
        note("shared down")

    @pytest.fixture
    def own(request):
        yield
        note("down " + request.node.name)

    @pytest.mark.parametrize("n", range(40))
    def test_some(n, shared, own):
        note(f"ran {n}")
        if n in (1, 2, 3):
            time.sleep(0.2)
        assert n not in (4, 5)
        time.sleep(0.2)

    @pytest.mark.parametrize("n", range(12))
    def test_exit(n, shared, own):
        note(f"ran {n}")
        if n == 2:
            time.sleep(0.1)
            pytest.exit("enough", 7)
        if n:
            time.sleep(0.5)

    @pytest.mark.parametrize("n", range(12))
    def test_interrupts(n, shared, own):
        note(f"ran {n}")
        if n == 2:
            time.sleep(0.1)
            raise KeyboardInterrupt
        if n:
            time.sleep(0.5)

    @pytest.mark.parametrize("n", range(12))
    def test_asks(n, shared, own, request):
        note(f"ran {n}")
        if n == 2:
            request.session.shouldstop = "that will do"
        time.sleep(0.1)

    @pytest.mark.serial
    @pytest.mark.parametrize("n", range(5))
    def test_alone(n):
        note(f"ran {n}")
        assert n != 2

    @pytest.mark.serial
    def test_exits_alone():
        pytest.exit("alone")

    def test_dies():
        os._exit(9)

    @pytest.mark.parametrize("n", range(8))
    def test_hangs(n, shared, own):
        if n == 0:
            return
        note("hangs")
        if n == 1:
            asyncio.run(asyncio.sleep(1000))
        time.sleep(1000)

    @pytest.mark.parametrize("n", range(300))
    def test_crowd(n):
        time.sleep(0.005)

    @pytest.fixture
    def never_ends():
        yield
        while True:
            time.sleep(0.01)

    @pytest.mark.timeout_s(0.2)
    def test_hangs_in_teardown(never_ends):
        pass

    def test_leaves_a_thread():
        threading.Thread(target=lambda: (time.sleep(0.3), print("late"))).start()

    def test_is_cancelled():
        import asyncio
        raise asyncio.CancelledError

    def test_raises_what_ends_generators():
        raise GeneratorExit

    def test_loses_its_folder(tmp_path):
        folder = tmp_path / "gone"
        folder.mkdir()
        os.chdir(folder)
        folder.rmdir()
"""


class Child:
    """A pytest in a folder of its own, side by side unless it is asked otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "test_all.py").write_text(textwrap.dedent(TESTS))
        (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider --tb=short\n")

    def start(self, *arguments: str, at_once: int = 4) -> subprocess.Popen[str]:
        (self.folder / "notes.txt").write_text("")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
        asked = ("-p", "paraval.pytest_plugin.plugin", "--parallel", str(at_once))
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *asked, *arguments],
            cwd=self.folder,
            env={**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "120"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, at_once: int = 4) -> tuple[int, str]:
        with self.start(*arguments, at_once=at_once) as child:
            try:
                out, _ = child.communicate(timeout=60)
            finally:
                child.kill()
            return child.returncode, out

    @property
    def notes(self) -> list[str]:
        return (self.folder / "notes.txt").read_text().splitlines()

    def ran(self) -> set[int]:
        return {int(note[4:]) for note in self.notes if note.startswith("ran ")}

    def wait_for(self, note: str, count: int) -> None:
        until = time.monotonic() + 30
        while self.notes.count(note) < count:
            assert time.monotonic() < until, self.notes
            time.sleep(0.02)

    def all_is_torn_down(self) -> bool:
        began = sum(note.startswith(("ran ", "hangs")) for note in self.notes)
        ended = sum(note.startswith("down ") for note in self.notes)
        is_shared_down = self.notes.count("shared up") == self.notes.count("shared down")
        return ended >= began and is_shared_down and self.notes[-1] == "shared down"


@pytest.fixture
def child(tmp_path: Path) -> Child:
    return Child(tmp_path)


def test_after_a_failure_with_x_nothing_new_begins(child: Child) -> None:
    """What runs is ended, and its result dropped; what was set up is torn down."""
    code, out = child.run("-x", "-k", "test_some")
    assert code == 1
    assert re.search(r"FAILED test_all.py::test_some\[[45]\]", out)
    assert "stopping after 1 failures" in out
    assert "= 1 failed, " in out
    ran = child.ran()
    assert {4, 5} & ran
    assert len(ran) < 40
    assert child.all_is_torn_down()


def test_with_x_no_test_begins_that_runs_alone(child: Child) -> None:
    code, out = child.run("-x", "-k", "test_alone")
    assert code == 1
    assert "1 failed, 2 passed" in out
    assert child.ran() == {0, 1, 2}


def test_a_plugin_may_ask_for_the_end(child: Child) -> None:
    code, out = child.run("-k", "test_asks")
    assert code == 2
    assert "Interrupted: that will do" in out
    assert len(child.ran()) < 12
    assert child.all_is_torn_down()


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("test_exit", 7, "Exit: enough"),
        ("test_interrupts", 2, "! KeyboardInterrupt !"),
        ("test_exits_alone", 2, "Exit: alone"),
    ],
)
def test_a_test_may_end_the_whole_run(child: Child, name: str, code: int, words: str) -> None:
    """By pytest.exit, or as if by Ctrl-C; what had ended by then is told."""
    ended, out = child.run("-k", f"{name} or test_leaves", at_once=3)
    assert ended == code
    assert words in out
    assert "INTERNALERROR" not in out
    if child.notes:
        assert "1 passed" in out or "2 passed" in out
        assert len(child.ran()) < 12
        assert child.all_is_torn_down()


@pytest.mark.parametrize(
    "hook",
    [
        "pytest_runtest_logreport(report): node = report.nodeid",
        "pytest_runtest_makereport(item, call): node = item.nodeid",
    ],
)
def test_an_error_of_a_hook_ends_the_run_as_in_plain_pytest(child: Child, hook: str) -> None:
    """It is pytest's own kind of crash, with the hook's line, and nothing hangs."""
    head, _, body = hook.partition(": ")
    (child.folder / "conftest.py").write_text(
        f"def {head}:\n    {body}\n    if '[6]' in node:\n        raise OSError('a bad hook')\n"
    )
    code, out = child.run("-k", "test_some")
    assert code == 3
    assert re.search("INTERNALERROR> (E   )?OSError: a bad hook", out)
    assert "conftest.py" in out
    assert "neither run nor told" not in out
    assert len(child.ran()) < 40
    assert child.all_is_torn_down()


def test_ctrl_c_ends_tests_that_hang(child: Child) -> None:
    """In seconds, although what sleeps in C hears of nothing; what ended before is told. What was
    interrupted has no result, whatever it ended with, but it is said where it was."""
    store = child.folder / "store"
    (child.folder / "conftest.py").write_text(
        "def pytest_runtest_logfinish():\n"
        "    with open('notes.txt', 'a') as file: file.write('told\\n')\n"
    )
    with child.start("-k", "test_hangs", f"--paraval-store-at={store}") as running:
        child.wait_for("hangs", 4)
        child.wait_for("told", 1)
        time.sleep(0.1)
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=30)
    assert running.returncode == 2
    assert time.monotonic() - began < 15
    assert "! KeyboardInterrupt !" in out
    assert "= 1 passed, " in out
    assert out.count("still running: ") == 4
    where = r"test_all\.py:\d+: asyncio\.run\(asyncio\.sleep\(1000\)\)"
    assert re.search(rf"still running: test_all\.py::test_hangs\[1\], in {where}", out)
    assert re.search(r"/test_all\.py:\d+: KeyboardInterrupt\n", out)
    assert "/pytest_plugin/" not in out
    assert child.all_is_torn_down()
    run = Store(store).find("last")
    assert run.interrupted
    ended = Store(store).known_results(run).values()
    assert [one.outcome for one in ended] == [Outcome.PASSED]


def test_a_second_ctrl_c_does_not_wait(child: Child) -> None:
    with child.start("-k", "test_hangs") as running:
        child.wait_for("hangs", 4)
        running.send_signal(signal.SIGINT)
        time.sleep(0.3)
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=30)
    # pytest itself may be the one that is interrupted, while it shows the first interrupt.
    assert running.returncode in (2, -signal.SIGINT)
    assert time.monotonic() - began < 2.5
    assert "KeyboardInterrupt" in out


def test_a_process_that_a_test_ends_is_gone(child: Child) -> None:
    """That test fails, with its exit code; another process takes over."""
    code, out = child.run("-k", "test_dies or test_crowd")
    assert code == 1
    assert "the process of this test ended with exit code 9" in out
    assert "1 failed, 300 passed" in out


def test_odd_ends_are_each_tests_own(child: Child) -> None:
    """Hundreds in many processes; a teardown without an end; exceptions that are no Exception; a
    thread that outlives its test; a test whose folder is gone."""
    chosen = "crowd or in_teardown or leaves or cancelled or generators or loses"
    code, out = child.run("-q", "-k", chosen, at_once=50)
    assert code == 1
    assert "2 failed, 303 passed" in out
    assert "1 error" in out
    assert "timed out after 0.2 s, in the teardown" in out
    assert "FAILED test_all.py::test_is_cancelled" in out
    assert "FAILED test_all.py::test_raises_what_ends_generators - GeneratorExit" in out
