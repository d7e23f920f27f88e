"""Tests that take longer than they may: ended in order or given up, and where they hung is told."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from _pytest.mark.structures import Mark

from paraval.pytest_plugin.exclusive.lock import ExclusiveLock
from paraval.pytest_plugin.running.current_test import RunningTest
from paraval.pytest_plugin.session.loop import ParallelRun
from paraval.pytest_plugin.session.main_thread import MainThread
from paraval.pytest_plugin.timeouts.stacks import HangReport, TestTimedOut, look_at
from paraval.pytest_plugin.timeouts.time_limits import (
    counts_only_the_call,
    own_seconds_of,
    seconds_of,
)
from paraval.pytest_plugin.timeouts.watchdog import TimeoutWatcher, alarm, interrupt

SHORT_S = 0.2

# ---- what a test may take


def marked(config: pytest.Config, **marks: tuple[Any, ...]) -> Any:
    """A test with such marks and no others."""
    known = {name: Mark(name, args, {}, _ispytest=True) for name, args in marks.items()}

    def get_closest_marker(name: str) -> Mark | None:
        return known.get(name)

    return SimpleNamespace(
        nodeid="test_x.py::test_y", config=config, get_closest_marker=get_closest_marker
    )


@pytest.mark.parametrize("bad", [(), (0,), (-1,), ("30",), (True,), (float("inf"),), (1, 2)])
def test_a_time_that_is_none_is_refused_by_the_name_of_the_test(
    bad: tuple[Any, ...], pytestconfig: pytest.Config
) -> None:
    with pytest.raises(pytest.UsageError, match=r"^test_x.py::test_y: @pytest.mark.timeout_s\("):
        own_seconds_of(marked(pytestconfig, timeout_s=bad))


def test_time_is_told_by_our_mark_then_by_what_pytest_timeout_was_told(
    pytestconfig: pytest.Config,
) -> None:
    """This suite's own ini file says 300 to pytest-timeout."""
    assert seconds_of(marked(pytestconfig, timeout_s=(30,), timeout=(7,))) == 30
    assert seconds_of(marked(pytestconfig, timeout=(7,))) == 7
    assert seconds_of(marked(pytestconfig, timeout=(0,))) is None
    assert seconds_of(marked(pytestconfig)) == 300
    assert own_seconds_of(marked(pytestconfig, timeout=(7,))) is None
    assert not counts_only_the_call(marked(pytestconfig))
    with pytest.raises(pytest.UsageError, match=r"test_x.py::test_y: @pytest.mark.timeout: "):
        seconds_of(marked(pytestconfig, timeout=("soon",)))


# ---- one test in a thread


@dataclass(kw_only=True)
class Ended:
    """How a phase of a test in a thread of its own came out."""

    test: RunningTest
    thread: threading.Thread
    error: BaseException | None = None
    stray: BaseException | None = None
    """What came up after all was over."""
    given_up: HangReport | None = None
    after_s: float = 0.0


def nobody(item: pytest.Item) -> RunningTest:
    def log(phase: str) -> None:
        item.add_report_section(phase, "log", f"logged in {phase}")

    spoken: Any = SimpleNamespace(take=lambda: [("stdout", "said")])
    logged: Any = SimpleNamespace(end=log)
    return RunningTest(item=item, captured=spoken, logs=logged)


def in_thread(
    item: pytest.Item,
    function: Callable[[], object],
    seconds: float,
    watcher: TimeoutWatcher | None = None,
) -> Ended:
    """Waits until it has ended, or was given up."""
    watcher = watcher or TimeoutWatcher(SHORT_S)
    test, over = nobody(item), threading.Event()

    def give_up(hung: HangReport) -> None:
        ended.given_up = hung
        over.set()

    def act() -> None:
        try:
            with test.running_here(), watcher.watching(test, seconds, give_up) as watch:
                around = watch.around_phase("call")
                next(around)
                try:
                    function()
                except BaseException as error:  # noqa: BLE001 - as pluggy does
                    around.throw(error)
                else:
                    around.send(None)
        except StopIteration:
            pass
        except BaseException as error:  # noqa: BLE001 - it is what the test looks at
            ended.error = error
        try:
            for _ in range(2000):
                pass
        except BaseException as error:  # noqa: BLE001 - it is what the test looks at
            ended.stray = error
        over.set()

    ended = Ended(test=test, thread=threading.Thread(target=act, daemon=True))
    began = time.monotonic()
    ended.thread.start()
    assert over.wait(30)
    ended.after_s = time.monotonic() - began
    return ended


@pytest.fixture
def item(request: pytest.FixtureRequest) -> pytest.Item:
    node = request.node
    assert isinstance(node, pytest.Item)
    return node


def test_code_that_runs_python_is_ended_where_it_is(item: pytest.Item) -> None:
    """Also where it catches every Exception, as those do that poll for something."""
    log: list[str] = []

    def poll() -> None:
        try:
            while True:
                try:
                    time.sleep(0.01)
                except Exception as error:  # noqa: BLE001 - as careless code does
                    log.append(str(error))
        finally:
            log.append("cleaned up")

    ended = in_thread(item, poll, 0.2)
    assert isinstance(ended.error, TestTimedOut)
    assert log == ["cleaned up"]
    first = str(ended.error).splitlines()[0]
    assert first.startswith("timeout after 0.2 s; hung in tests/test_pytest_timeouts.py:")
    assert first.endswith(": time.sleep(0.01)")
    assert ", in poll\n" in str(ended.error)


def test_what_asyncio_runs_is_cancelled_in_order(item: pytest.Item) -> None:
    log: list[str] = []

    async def wait_long() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            log.append("cancelled")
            await asyncio.sleep(0.05)
            log.append("cleaned up")
            raise

    ended = in_thread(item, lambda: asyncio.run(wait_long()), 0.2)
    assert log == ["cancelled", "cleaned up"]
    assert isinstance(ended.error, TestTimedOut)
    assert "await asyncio.sleep(30) -> asyncio.tasks.sleep\n" in str(ended.error)


def test_what_hears_nothing_or_will_not_hear_is_given_up(item: pytest.Item) -> None:
    """It is reported as failed, with its output; what it comes to later is nobody's business."""
    ours, theirs = os.pipe()
    stop = threading.Event()

    def never() -> None:
        while not stop.is_set():
            try:
                stop.wait(0.01)
            except BaseException:  # noqa: BLE001 - as hostile code does
                continue

    deaf, stubborn = in_thread(item, lambda: os.read(ours, 1), 0.1), in_thread(item, never, 0.1)
    for ended in (deaf, stubborn):
        assert ended.given_up is not None
        assert "could not be stopped: its thread was abandoned" in ended.given_up.text
        assert 0.2 < ended.after_s < 5
    assert deaf.given_up is not None
    hung, rest = deaf.given_up.phases(deaf.test)
    assert (hung.report.when, hung.report.outcome) == ("call", "failed")
    assert (rest.report.when, rest.report.outcome) == ("teardown", "passed")
    assert hung.report.longreprtext.startswith("timeout after 0.1 s; hung in tests/")
    assert (hung.report.capstdout, hung.report.caplog) == ("said", "logged in call")
    assert isinstance(hung.error, TestTimedOut)
    os.write(theirs, b".")
    stop.set()
    for ended in (deaf, stubborn):
        ended.thread.join(5)
        assert not ended.thread.is_alive()
        assert isinstance(ended.error, TestTimedOut)


def test_one_that_is_given_up_failed_at_its_own_line(item: pytest.Item) -> None:
    test = nobody(item)
    hung = look_at(item, threading.get_ident(), phase="call", seconds=1.0, test=test)
    crash = hung.phases(test)[0].report.longrepr.reprcrash  # type: ignore[union-attr]  # it failed
    assert hung.place is not None
    assert (crash.path, crash.lineno) == hung.place
    assert hung.place[0] == __file__
    assert "look_at(item" in hung.where


def test_one_that_ends_too_late_or_otherwise_says_so(item: pytest.Item) -> None:
    def raise_another() -> None:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:  # noqa: BLE001 - as careless code does
            raise ValueError("on the way out") from None

    async def swallow() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return

    another = in_thread(item, raise_another, 0.1).error
    late = in_thread(item, lambda: asyncio.run(swallow()), 0.1).error
    assert isinstance(another, TestTimedOut)
    assert "\nwhen stopped, it raised ValueError: on the way out\n" in str(another)
    assert isinstance(late, TestTimedOut)
    assert "\nit then finished, but too late\n" in str(late)


def test_time_that_is_spent_waiting_for_other_tests_is_not_the_tests_own(
    item: pytest.Item,
) -> None:
    """As is seen from where it stands."""
    watcher, exclusive_lock = TimeoutWatcher(SHORT_S), ExclusiveLock()
    other = nobody(item)
    exclusive_lock.enter(other)

    def wait_for_the_lock() -> None:
        exclusive_lock.enter(next(iter(watcher._watches)))
        exclusive_lock.ask("changes all")()

    threading.Timer(0.5, lambda: exclusive_lock.leave(other)).start()
    ended = in_thread(item, wait_for_the_lock, 0.2, watcher)
    assert (ended.error, ended.given_up) == (None, None)
    assert ended.after_s > 0.4


def test_nothing_is_raised_after_a_test_has_ended(item: pytest.Item) -> None:
    """Many tests that end at the very moment their time is up: each passes or times out, at once,
    and nothing comes up in what its thread does then."""
    watcher = TimeoutWatcher(5)
    errors: list[BaseException | None] = []

    for number in range(150):
        spin_s = 0.009 + number % 30 / 10_000

        def spin(spin_s: float = spin_s) -> None:
            until = time.monotonic() + spin_s
            while time.monotonic() < until:
                pass

        ended = in_thread(item, spin, 0.01, watcher)
        assert ended.stray is None
        assert ended.given_up is None
        errors.append(ended.error)
    assert all(error is None or isinstance(error, TestTimedOut) for error in errors)


def test_ctrl_c_reaches_tests_in_threads(item: pytest.Item) -> None:
    tests = [nobody(item) for _ in range(3)]
    raised: dict[int, BaseException] = {}
    ours, theirs = os.pipe()

    def run(number: int, function: Callable[[], object]) -> None:
        try:
            with tests[number].running_here():
                function()
        except BaseException as error:  # noqa: BLE001 - it is what the test looks at
            raised[number] = error

    def poll() -> None:
        while True:
            time.sleep(0.01)

    acts = (poll, lambda: asyncio.run(asyncio.sleep(30)), lambda: os.read(ours, 1))
    threads = [
        threading.Thread(target=run, args=(number, act), daemon=True)
        for number, act in enumerate(acts)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert interrupt(tests, 0.3) == [tests[2]]
    assert isinstance(raised[0], KeyboardInterrupt)
    assert isinstance(raised[1], asyncio.CancelledError)
    os.write(theirs, b".")
    threads[2].join(5)


def test_ctrl_c_reaches_a_test_that_began_just_then(item: pytest.Item) -> None:
    """The engine hears of the end a moment later: until then it may start another test."""
    tests = [nobody(item) for _ in range(2)]
    running: dict[int, RunningTest] = {}
    engine = SimpleNamespace(**dict.fromkeys(("end_early", "end_now", "join"), lambda: None))
    performer: Any = SimpleNamespace(
        running=running, services=SimpleNamespace(main_thread=MainThread(), isolation=None)
    )
    unasked = SimpleNamespace(getoption=lambda _name, default: default)
    nothing: Any = SimpleNamespace(is_handed_out=False, config=unasked)
    run = ParallelRun(nothing, nothing, performer, assignment=nothing, progress=nothing)
    run._engine = engine  # type: ignore[assignment]  # one that runs nothing

    def begin(number: int) -> None:
        with suppress(KeyboardInterrupt), tests[number].running_here():
            running[number] = tests[number]
            try:
                while True:
                    time.sleep(0.01)
            finally:
                if number == 0:
                    threading.Thread(target=begin, args=(1,), daemon=True).start()
                    while 1 not in running:
                        time.sleep(0.01)

    threading.Thread(target=begin, args=(0,), daemon=True).start()
    while 0 not in running:
        time.sleep(0.01)
    run._break_off()
    assert all(test.is_over for test in tests)
    assert len(run.still_running) == 2


# ---- in the main thread


def test_an_alarm_ends_what_waits_in_c_and_leaves_the_process_as_it_was(item: pytest.Item) -> None:
    """Setup and call have the time together."""

    def handler(*_: object) -> None: ...

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        with alarm(item, 0.3, "setup"):
            time.sleep(0.2)
        began = time.monotonic()
        with (
            pytest.raises(TestTimedOut, match=r"after 0.3 s; hung in tests/"),
            alarm(item, 0.3, "call"),
        ):
            time.sleep(10)
        assert time.monotonic() - began < 1
        with (
            pytest.raises(TestTimedOut, match=r"-> asyncio.tasks.sleep"),
            alarm(item, 0.1, "teardown"),
        ):
            asyncio.run(asyncio.sleep(10))
        assert signal.getsignal(signal.SIGALRM) is handler
        assert 55 < signal.getitimer(signal.ITIMER_REAL)[0] < 60
        signal.setitimer(signal.ITIMER_REAL, 0)
        with alarm(item, 0.1, "setup"):  # Somebody's handler, of whom we know nothing.
            time.sleep(0.15)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_alarm_that_is_swallowed_rings_again_once_the_time_to_clean_up_is_over(
    item: pytest.Item, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paraval.pytest_plugin.timeouts.watchdog.RING_AGAIN_S", 0.4)
    rang: list[float] = []

    def swallow() -> None:
        while len(rang) < 3:
            try:
                time.sleep(5)
            except TestTimedOut:
                rang.append(time.monotonic())

    with alarm(item, 0.02, "setup"):
        swallow()
    assert rang[1] - rang[0] > 0.3
    assert rang[2] - rang[1] > 0.3


# ---- whole runs

TESTS = """
import asyncio, queue, socket, threading, time
import pytest

pytestmark = pytest.mark.timeout_s(0.4)

@pytest.fixture
def cleaned(request):
    yield
    with open("cleaned.txt", "a") as file:
        file.write(request.node.name + "\\n")

def poll():
    while True:
        time.sleep(0.01)

def test_polls(cleaned):
    poll()

def test_receives(cleaned):
    print("said before")
    here, there = socket.socketpair()
    here.recv(1)

def test_runs_a_loop(cleaned):
    asyncio.run(asyncio.sleep(30))

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
async def resource(anyio_backend, cleaned):
    yield
    await asyncio.sleep(0)

@pytest.mark.anyio
async def test_anyio(resource):
    await asyncio.sleep(30)

def test_starts_a_thread():
    thread = threading.Thread(target=queue.Queue().get, daemon=True, name="my-worker")
    thread.start()
    while thread.is_alive():
        thread.join(0.05)

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

@pytest.fixture
def hangs_late():
    yield
    time.sleep(30)

def test_wrong(hangs_late):
    assert 1 == 2, "a wrong answer"

def test_skips(hangs_late):
    pytest.skip("no need")

@pytest.fixture
def broken(hangs_late):
    raise ValueError("a broken setup")

def test_broken(broken): ...

@pytest.fixture(scope="module")
def shared():
    poll()

@pytest.mark.parametrize("n", range(2))
def test_shares(n, shared): ...
"""


def run(folder: Path, *flags: str) -> tuple[str, dict[str, str]]:
    """What pytest says, and how each test ended, with the first line of why."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    plugins = ("paraval", "anyio", "timeout")  # By the names that they have when all are loaded.
    named = [part for plugin in plugins for part in ("-p", plugin)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *named, "-v", "--junitxml=junit.xml", *flags],
        cwd=folder,
        env={**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    ends = {}
    for case in ET.parse(folder / "junit.xml").getroot().iter("testcase"):
        found = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
        why = "passed" if found is None else f"{found.tag}: {(found.text or '').splitlines()[:1]}"
        ends[case.get("name") or ""] = why
    return ran.stdout + ran.stderr, ends


def test_a_parallel_run_ends_all_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    said, ends = run(tmp_path, "--parallel", "12")
    assert "1 passed" in said or "2 passed" in said, said
    for name in ("polls", "receives", "runs_a_loop", "anyio", "starts_a_thread", "alone"):
        assert ends[f"test_{name}"].startswith("failure: ['timeout after 0.4 s; "), said
    assert "(in setup); hung in test_x.py" in ends["test_setup"]
    assert "(in teardown); hung in test_x.py" in ends["test_teardown"]
    assert ends["test_expected"].startswith("skipped")
    assert ends["test_fine"] == "passed"
    # What a test came to before its teardown hung stays what it is.
    assert ends["test_skips"].startswith("skipped")
    for wrong in ("FAILED test_x.py::test_wrong - ", "ERROR test_x.py::test_broken - ValueError"):
        assert wrong in said
    for name in ("wrong", "skips", "broken"):
        assert f"_ ERROR at teardown of test_{name} _" in said
        assert f"test_x.py::test_{name} PASSED" not in said
    # One of them is told what the other one's setup was ended with.
    for n in range(2):
        assert f"ERROR test_x.py::test_shares[{n}] - Failed: timeout after 0.4 s" in said
    assert "its teardown did not run" in said.partition("_ test_receives _")[2].partition("\n__")[0]
    assert "said before" in said
    assert "Stack of my-worker, which the test started" in said
    assert "FAILED test_x.py::test_polls - Failed: timeout after 0.4 s; hung" in said
    cleaned = sorted((tmp_path / "cleaned.txt").read_text().split())
    assert cleaned == ["test_alone", "test_anyio", "test_fine", "test_polls", "test_runs_a_loop"]


def test_a_plain_run_knows_the_mark_and_a_parallel_one_that_of_pytest_timeout(
    tmp_path: Path,
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_x.py").write_text(
        "import time, pytest\n"
        "@pytest.mark.timeout_s(0.3)\n"
        "def test_ours(): time.sleep(30)\n"
        "@pytest.mark.timeout(0.3)\n"
        "def test_theirs():\n"
        "    while True: time.sleep(0.01)\n"
    )
    place = tmp_path / "test_x.py"
    said, ends = run(tmp_path, "--tb=line")
    assert "after 0.3 s; hung in test_x.py:3: def test_ours(): time.sleep(30)" in said
    assert f"\n{place}:3: Failed: timeout after " in said
    assert "from pytest-timeout" in said
    said, ends = run(tmp_path, "--parallel", "2", "-k", "theirs", "--tb=line")
    assert ends["test_theirs"].startswith("failure: ['timeout after 0.3 s; "), said
    assert f"\n{place}:6: Failed: timeout after " in said
