"""What tests print beside each other is kept apart, as pytest keeps it for one after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any, cast

import pytest

from paraval.pytest_plugin.isolation import streams
from paraval.pytest_plugin.isolation.capture import CapturedOutput, isolate_streams
from paraval.pytest_plugin.isolation.streams import OutputSpool
from paraval.pytest_plugin.running.current_test import (
    CURRENT,
    RunningTest,
    owning_test,
    propagate_to_threads,
)
from tests.child_pytest import run_pytest

DRIVER = '''
"""Runs all tests at once, each as a test, with nothing of the plugin but what is tested here."""
import copy, dataclasses, sys, threading
from contextlib import ExitStack
import pytest
from _pytest.runner import SetupState
from paraval.pytest_plugin.isolation.item_environment import environment_by_test
from paraval.pytest_plugin.isolation.capture import set_up_capsys
from paraval.pytest_plugin.isolation.capture import CapturedOutput, isolate_streams
from paraval.pytest_plugin.running.current_test import propagate_to_threads
from paraval.pytest_plugin.isolation.capture import isolate_children
from paraval.pytest_plugin.running.current_test import RunningTest

class Setups(threading.local):
    def __init__(self):
        self.state = SetupState()
    def __getattr__(self, name):
        return getattr(self.state, name)

def pytest_fixture_setup(fixturedef, request):
    return set_up_capsys(fixturedef, request)

def run(item, reports):
    config = item.config
    names = ("capturemanager", "logging-plugin")
    left_out = [config.pluginmanager.getplugin(name) for name in names]
    test = RunningTest(item=item, captured=CapturedOutput(config), logs=None)
    with test.running_here():
        for phase in ("setup", "call", "teardown"):
            if phase == "call" and not reports[-1].passed:
                continue
            hook = config.pluginmanager.subset_hook_caller(f"pytest_runtest_{phase}", left_out)
            named = {"nextitem": None} if phase == "teardown" else {}
            def act():
                try:
                    hook(item=item, **named)
                finally:
                    for key, text in test.captured.take():
                        item.add_report_section(phase, key, text)
            call = pytest.CallInfo.from_call(act, when=phase)
            reports.append(item.ihook.pytest_runtest_makereport(item=item, call=call))
    test.captured.close()

def pytest_runtestloop(session):
    session._setupstate = Setups()
    for item in session.items:
        info = dataclasses.replace(item._fixtureinfo, name2fixturedefs={
            name: [copy.copy(one) for one in all]
            for name, all in item._fixtureinfo.name2fixturedefs.items()
        })
        for all in info.name2fixturedefs.values():
            for one in all:
                one._finalizers = []
        item._fixtureinfo = info
        item._initrequest()
    reports = {item: [] for item in session.items}
    before = sys.stdin, sys.stdout, sys.stderr, type(sys)
    config = session.config
    isolations = environment_by_test([]), propagate_to_threads(), isolate_children()
    with isolations[0], isolations[1], isolate_streams(config), isolations[2]:
        threads = [threading.Thread(target=run, args=one, daemon=True) for one in reports.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        for item, own in reports.items():
            for report in own:
                item.ihook.pytest_runtest_logreport(report=report)
    assert (sys.stdin, sys.stdout, sys.stderr, type(sys)) == before
    return True
'''

CONFTEST = """
import json, pathlib
told = {}
def pytest_runtest_logreport(report):
    own = told.setdefault(report.nodeid.split("::")[-1], {"sections": {}, "error": ""})
    own["sections"].update(report.sections)
    if report.failed:
        own["error"] += report.longreprtext
def pytest_sessionfinish():
    pathlib.Path("told.json").write_text(json.dumps(told))
"""

MEETING = """
import threading
import pytest
barrier = threading.Barrier(2)
def meet():
    barrier.wait(10)
"""


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """What came of a run."""

    shown: str
    tests: dict[str, Any] = field(default_factory=dict)

    def section(self, test: str, name: str) -> str:
        text = self.tests[test]["sections"].get(f"Captured {name}", "")
        assert isinstance(text, str)
        return text


def run_at_once(folder: Path, tests: str, *options: str) -> ReportData:
    """All at the same time, without the loop that decides which tests may be."""
    (folder / "driver.py").write_text(DRIVER)
    return run(folder, tests, "-p", "driver", *options)


def run(folder: Path, tests: str, *options: str) -> ReportData:
    """All of the tests pass, and this is what they told."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(MEETING + dedent(tests))
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    shown = ended.stdout + ended.stderr
    assert (folder / "told.json").exists(), shown
    told = json.loads((folder / "told.json").read_text())
    errors = "\n".join(one["error"] for one in told.values())
    assert ended.returncode == 0, errors + shown
    return ReportData(shown=shown, tests=told)


# ---- with --capture=fd, as it is by default


def test_what_tests_print_is_told_with_the_phase_and_the_test_that_printed_it(
    folder: Path,
) -> None:
    told = run_at_once(
        folder,
        """
        import asyncio, logging, sys
        from concurrent.futures import ThreadPoolExecutor

        at_import = logging.StreamHandler(sys.stderr)
        handlers, pool = [], ThreadPoolExecutor(1)
        pool.submit(lambda: None).result()

        @pytest.fixture
        def before_and_after(request):
            print("before", request.node.name)
            yield
            print("after", request.node.name, file=sys.stderr)

        def speak(name):
            for number in range(50):
                print(name, number)
            thread = threading.Thread(target=print, args=(name, "thread"))
            thread.start()
            thread.join()
            timer = threading.Timer(0, print, (name, "timer"))
            timer.start()
            timer.join()
            pool.submit(print, name, "pool").result()
            async def spoken():
                await asyncio.gather(asyncio.to_thread(print, name, "to_thread"), task())
            async def task():
                await asyncio.sleep(0)
                print(name, "task")
                await asyncio.get_running_loop().run_in_executor(pool, print, name, "executor")
            asyncio.run(spoken())
            print(name, "err", file=sys.stderr)
            at_import.stream.write(f"{name} handler at import\\n")
            print(f"{name} \\udc80 \u00e9", end="", flush=True)
            sys.stdout.buffer.write(b" bytes \\xff ")
            sys.stdout.buffer.write(bytearray(b"array "))
            sys.stdout.writelines(["lines\\n", "more\\n"])

        def test_one(before_and_after):
            handlers.append(logging.StreamHandler(sys.stdout))
            meet()
            speak("one")
            meet()

        def test_two(before_and_after):
            meet()
            speak("two")
            handlers[0].stream.write("two by one's handler\\n")
            meet()

        def test_silent():
            pass
        """,
    )
    for name in ("one", "two"):
        other = {"one": "two", "two": "one"}[name]
        test, out = f"test_{name}", told.section(f"test_{name}", "stdout call")
        assert told.section(test, "stdout setup") == f"before {test}\n"
        assert told.section(test, "stderr teardown") == f"after {test}\n"
        assert told.section(test, "stderr call") == f"{name} err\n{name} handler at import\n"
        assert out.startswith("".join(f"{name} {number}\n" for number in range(50)))
        ways = ("thread", "timer", "pool", "to_thread", "task", "executor")
        assert all(f"{name} {way}\n" in out for way in ways)
        assert f"{name} ? é bytes \ufffd array lines\nmore\n" in out
        assert f"{other} " not in out.replace("two by one's", "")
    assert told.section("test_two", "stdout call").endswith("two by one's handler\n")
    assert told.tests["test_silent"]["sections"] == {}


def test_children_print_into_their_tests_report_in_order(folder: Path) -> None:
    told = run_at_once(
        folder,
        """
        import asyncio, multiprocessing, os, subprocess, sys

        def say(*words):
            return ["sh", "-c", "echo " + " ".join(words)]

        def speak(name):
            print(name, "first")
            subprocess.run(say(name, "child"), check=True)
            print(name, "second")
            subprocess.Popen(say(name, "err", ">&2"), -1, None, None, None, None).wait()
            assert os.system(f"echo {name} system; exit 3") == 3 << 8
            assert os.system("kill -9 $$") == 9
            subprocess.run(say(name, "given"), stdout=sys.stdout, check=True)
            subprocess.run(say(name, "joined", ">&2"), stderr=subprocess.STDOUT, check=True)
            assert subprocess.check_output(say("asked")) == b"asked\\n"
            os.write(sys.stdout.fileno(), f"{name} descriptor\\n".encode())
            async def awaited():
                child = await asyncio.create_subprocess_exec(*say(name, "async"))
                await child.wait()
            asyncio.run(awaited())
            child = multiprocessing.get_context("fork").Process(target=print, args=(name, "fork"))
            child.start()
            child.join()
            print(name, "last")

        def test_one():
            meet()
            speak("one")

        def test_two():
            meet()
            speak("two")

        def test_forks():
            print("before")
            child = multiprocessing.get_context("fork").Process(target=print, args=("forked",))
            child.start()
            child.join()
            print("after")

        def test_empties():
            "As with pytest: what opens /dev/stdout anew empties the file, and goes on from there."
            print("gone")
            subprocess.run(["sh", "-c", "echo opened > /dev/stdout"], check=True)
            print("after")

        def test_left_behind():
            "A child that outlives its test harms nobody."
            subprocess.Popen(["sh", "-c", "sleep 0.2; echo late"])
        """,
        "-W",
        "ignore",
    )
    for name in ("one", "two"):
        ways = ("first", "child", "second", "system", "given", "joined", "descriptor", "async")
        lines = [f"{name} {way}" for way in (*ways, "fork", "last")]
        assert told.section(f"test_{name}", "stdout call").splitlines() == lines
        assert told.section(f"test_{name}", "stderr call") == f"{name} err\n"
    assert told.section("test_forks", "stdout call") == "before\nforked\nafter\n"
    assert told.section("test_empties", "stdout call") == "opened\nafter\n"
    assert "late" not in told.shown


def test_what_a_test_assigns_to_the_streams_is_its_own(folder: Path) -> None:
    told = run_at_once(
        folder,
        """
        import contextlib, io, sys, unittest.mock

        class Tee:
            def __init__(self, *streams):
                self.streams = streams
            def write(self, text):
                for stream in self.streams:
                    stream.write(text)
                return len(text)
            def flush(self):
                pass

        def test_redirects():
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                assert sys.stdout is out
                meet()
                print("for out")
                thread = threading.Thread(target=lambda: print("for err", file=sys.stderr))
                thread.start()
                thread.join()
                with contextlib.redirect_stdout(sys.stderr):
                    print("for err as well")
                meet()
            assert out.getvalue() == "for out\\n"
            assert err.getvalue() == "for err\\nfor err as well\\n"
            kept = io.StringIO()
            with contextlib.redirect_stdout(Tee(sys.stdout, kept)):
                with contextlib.redirect_stdout(Tee(sys.stdout)):
                    with contextlib.redirect_stdout(sys.stdout):
                        print("both")
            assert kept.getvalue() == "both\\n"
            with unittest.mock.patch("sys.stdout", new=io.StringIO()) as mocked:
                print("mocked")
            assert mocked.getvalue() == "mocked\\n"

        def test_prints_meanwhile():
            plain = sys.stdout
            meet()
            assert sys.stdout is plain
            print("meanwhile")
            print("meanwhile", file=sys.stderr)
            meet()

        @pytest.fixture
        def assigned():
            sys.stdout = io.StringIO()
            print("lost with the phase")

        def test_assigns(assigned):
            print("seen")
            sys.stdin = io.StringIO("an answer")
            assert input() == "an answer"
            sys.stdout = None
            print("nothing")

        def test_cannot_read():
            with pytest.raises(OSError, match="reading from stdin"):
                input()
            with pytest.raises(OSError, match="reading from stdin"):
                sys.stdin.read()
        """,
    )
    assert told.section("test_redirects", "stdout call") == "both\n"
    assert told.section("test_redirects", "stderr call") == ""
    assert told.section("test_prints_meanwhile", "stdout call") == "meanwhile\n"
    assert told.section("test_prints_meanwhile", "stderr call") == "meanwhile\n"
    assert told.section("test_assigns", "stdout setup") == ""
    assert told.section("test_assigns", "stdout call") == "seen\n"


def test_the_streams_behave_as_files_do(folder: Path) -> None:
    run_at_once(
        folder,
        """
        import io, sys

        def test_stream():
            stream = sys.stdout
            assert isinstance(stream, io.TextIOWrapper)
            assert stream.encoding == "utf-8" and stream.errors == "replace"
            assert not stream.isatty() and stream.writable() and not stream.readable()
            stream.reconfigure(line_buffering=True, encoding="latin-1")
            assert stream.encoding == "utf-8" and stream.line_buffering is False
            assert stream.write("word") == 4 and stream.buffer.write(b"bytes") == 5
            stream.close()
            assert not stream.closed and not stream.buffer.closed
            with pytest.raises(io.UnsupportedOperation):
                stream.detach()
            with pytest.raises(TypeError):
                stream.write(b"bytes")
            with pytest.raises(TypeError):
                stream.buffer.write("text")
            assert stream.mode == "w" and stream.name == "<stdout>"
            assert isinstance(stream.fileno(), int)
        """,
    )


# ---- capsys and its kin


def test_capsys_hears_its_own_test_alone(folder: Path) -> None:
    told = run_at_once(
        folder,
        """
        import os, subprocess, sys
        from _pytest import capture

        @pytest.fixture
        def early(capsys):
            print("in setup")
            yield
            print("in teardown")
            assert capsys.readouterr().out == "not read\\nin teardown\\n"

        def test_text(early, capsys):
            assert isinstance(capsys, pytest.CaptureFixture)
            assert capsys.readouterr().out == "in setup\\n"
            meet()
            print("text")
            thread = threading.Thread(target=lambda: print("thread", file=sys.stderr))
            thread.start()
            thread.join()
            meet()
            assert capsys.readouterr() == ("text\\n", "thread\\n")
            subprocess.run(["echo", "child"])
            assert capsys.readouterr().out == ""
            with capsys.disabled():
                print("shown by capsys")
            print("not read")

        def test_binary(capsysbinary):
            meet()
            print("binary")
            sys.stdout.buffer.write(b"\\xff")
            meet()
            assert capsysbinary.readouterr() == (b"binary\\n\\xff", b"")
            print("not read either")

        @pytest.mark.skipif(not hasattr(capture, "capteesys"), reason="since pytest 8.4")
        def test_tee(request):
            capteesys = request.getfixturevalue("capteesys")
            print("both ways")
            assert capteesys.readouterr().out == "both ways\\n"
            print("once")

        def test_one_only(capsys, request):
            with pytest.raises(pytest.FixtureLookupError, match="capsysbinary and capsys"):
                request.getfixturevalue("capsysbinary")

        def test_manager(request):
            manager = request.config.pluginmanager.getplugin("capturemanager")
            with manager.global_and_fixture_disabled():
                print("shown by the manager")
            manager.suspend_global_capture(in_=True)
            print("shown by suspending")
            manager.resume_global_capture()
            print("kept again")
        """,
    )
    assert told.section("test_text", "stdout setup") == "in setup\n"
    assert told.section("test_text", "stdout call") == "child\nnot read\n"
    assert told.section("test_text", "stdout teardown") == ""
    assert told.section("test_binary", "stdout call") == "not read either\n"
    assert told.section("test_tee", "stdout call") in {"both ways\nonce\n", ""}
    assert told.section("test_manager", "stdout call") == "kept again\n"
    for who in ("capsys", "the manager", "suspending"):
        assert f"shown by {who}\n" in told.shown
    assert " passed" in told.shown


def test_a_stream_that_was_kept_beside_others_is_not_what_a_test_alone_assigns(
    tmp_path: Path,
) -> None:
    """As the log handler of a server that a session's fixture starts."""
    (tmp_path / "test_kept.py").write_text(
        dedent(
            """
            import contextlib, io, logging, sys, time
            import pytest

            @pytest.fixture(scope="session")
            def log():
                log = logging.getLogger("server")
                log.propagate = False
                log.addHandler(logging.StreamHandler(sys.stdout))
                return log

            def test_first(log): log.error("beside")

            @pytest.mark.serial
            def test_alone(log):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    log.error("from the server")
                    print("own")
                assert out.getvalue() == "own\\n"
            """
        )
    )
    for capture in ("fd", "sys"):
        ran = run_pytest(tmp_path, "--parallel", "4", f"--capture={capture}", "-rP")
        assert "2 passed" in ran.stdout, ran.stdout
        assert "from the server\n" in ran.stdout


# ---- the other modes


def test_without_capture_lines_come_out_whole_and_children_are_left_alone(folder: Path) -> None:
    told = run_at_once(
        folder,
        """
        import io, subprocess, sys

        def speak(name, capsys):
            meet()
            for number in range(200):
                print(name, end="")
                print("", number, end="")
                print(" done", flush=True)
            subprocess.run(["echo", name, "child"])
            print("unfinished", name, end="")
            assert sys.stdout.fileno() == 1 and not sys.stdout.isatty()

        def test_one(request):
            speak("one", None)

        def test_two(request):
            speak("two", None)

        def test_capsys(capsys):
            print("heard")
            assert capsys.readouterr().out == "heard\\n"
        """,
        "-s",
    )
    shown = told.shown.replace("unfinished one", "\n").replace("unfinished two", "\n")
    lines = shown.splitlines()
    for name in ("one", "two"):
        found = [line for line in lines if line.endswith(" done") and line.split()[-3] == name]
        assert len(found) == 200, found
        assert f"{name} child" in told.shown
        assert f"unfinished {name}" in told.shown
        assert told.tests[f"test_{name}"]["sections"] == {}


@pytest.mark.parametrize("mode", ["sys", "tee-sys"])
def test_sys_keeps_what_python_prints_and_tee_shows_it_as_well(folder: Path, mode: str) -> None:
    told = run_at_once(
        folder,
        """
        import io, subprocess, sys

        def speak(name):
            meet()
            print(name, "says")
            subprocess.run(["echo", name, "child"])
            with pytest.raises(io.UnsupportedOperation):
                sys.stdout.fileno()
            meet()

        def test_one():
            speak("one")

        def test_two():
            speak("two")
        """,
        f"--capture={mode}",
    )
    for name in ("one", "two"):
        assert told.section(f"test_{name}", "stdout call") == f"{name} says\n"
        assert (f"{name} says" in told.shown) is (mode == "tee-sys")
        assert f"{name} child" in told.shown


# ---- in the loop itself


@pytest.mark.parametrize("mode", ["fd", "sys"])
def test_sections_are_the_same_beside_others_as_one_after_another(folder: Path, mode: str) -> None:
    tests = """
        import io, logging, subprocess, sys, time

        handler = logging.StreamHandler(sys.stderr)

        @pytest.fixture
        def around(request, capsys):
            print("around", request.node.name)
            yield
            print("after", request.node.name)

        @pytest.mark.parametrize("number", range(6))
        def test_prints(number):
            print("prints", number)
            subprocess.run(["echo", "child", str(number)], check=True)
            handler.stream.write(f"handler {number}\\n")
            time.sleep(0.02)
            sys.stdout.buffer.write(b"bytes\\n")

        @pytest.mark.parametrize("number", range(6))
        def test_reads(around, capsys, number):
            print("reads", number)
            print("reads", number, file=sys.stderr)
            time.sleep(0.02)
            told = capsys.readouterr()
            assert told.out.endswith(f"reads {number}\\n") and told.err == f"reads {number}\\n"
            print("leaves", number)

        def test_alone(monkeypatch, capsys):
            print("alone")

        def test_descriptors(capfd):
            subprocess.run(["echo", "heard"], check=True)
            assert capfd.readouterr().out == "heard\\n"
    """
    plain = run(folder, tests, f"--capture={mode}")
    ours = ("-p", "paraval.pytest_plugin.plugin", "--parallel", "4")
    beside = run(folder, tests, *ours, f"--capture={mode}")
    assert "parallel 4: " in beside.shown
    assert beside.tests == plain.tests


# ---- the parts by themselves


def test_much_output_is_not_kept_in_memory() -> None:
    """50 MB are in a file while the test runs, and come back whole and once."""
    spool, piece = OutputSpool(), b"0123456789abcde\n" * 4096
    tracemalloc.start()
    try:
        for _ in range(800):
            spool.write(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    assert spool.take() == piece * 800
    spool.write(b"more")
    assert spool.take() == b"more"
    assert spool.take() == b""
    spool.close()
    spool.write(b"too late")
    with pytest.raises(ValueError, match="over"):
        spool.descriptor()


def a_config() -> Any:
    """Without pytest's own capture."""
    return SimpleNamespace(
        option=SimpleNamespace(capture="fd"),
        pluginmanager=SimpleNamespace(getplugin=lambda _: None),
    )


def test_a_stream_that_is_kept_writes_for_whoever_uses_it_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also after the streams were taken down and put up again, and after its test is over."""
    config = a_config()
    before, left_over = sys.stdout, StringIO()
    test = RunningTest(
        item=cast("Any", None), captured=CapturedOutput(config), logs=cast("Any", None)
    )
    with isolate_streams(config), test.running_here():
        kept = sys.stdout
        print("one's")
    assert sys.stdout is before
    assert test.captured.take() == [("stdout", "one's\n")]
    kept.write("outside\n")
    with streams.install_streams(errors="replace", leftovers={"stdout": left_over}):
        other = RunningTest(item=test.item, captured=CapturedOutput(config), logs=test.logs)
        with other.running_here():
            kept.write("other's\n")
            sys.stdout = kept
            del sys.stdout
            print("other's, too")
        sys.stdout = kept  # a fixture of all tests that is torn down by nobody
        print("still outside")
        late = threading.Thread(target=print, args=("of no test",))
        late.start()
        late.join()
    assert sys.stdout is before
    assert other.captured.take() == [("stdout", "other's\nother's, too\n")]
    assert left_over.getvalue() == "of no test\n"
    assert capsys.readouterr().out == "outside\nstill outside\n"
    test.captured.close()
    other.captured.close()


def test_a_pool_works_for_whoever_submits_and_all_is_as_before_afterwards() -> None:
    """Threads carry a turn, also those that override `run`; nobody's work is nobody's."""
    test = RunningTest(item=cast("Any", None), captured=cast("Any", None), logs=cast("Any", None))
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit
    seen: list[object] = []

    class Own(threading.Thread):
        def run(self) -> None:
            assert "run" not in vars(self)
            seen.append(owning_test())

    with ThreadPoolExecutor(1) as pool:
        with propagate_to_threads():
            token = CURRENT.set(test)
            assert pool.submit(owning_test).result() is test
            own = Own()
            own.start()
            own.join()
            with pytest.raises(RuntimeError, match="once"):
                own.start()
            CURRENT.reset(token)
            assert pool.submit(owning_test).result() is None
            nobody = Own()
            nobody.start()
            nobody.join()
        assert seen == [test, None]
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == (start, submit)
