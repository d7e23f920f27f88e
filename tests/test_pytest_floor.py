"""The floor: who changes the process has it alone, and nobody waits for ever."""

from __future__ import annotations

import faulthandler
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from paraval.pytest_plugin.exclusive.guards import ProcessGuard, install_guards
from paraval.pytest_plugin.exclusive.lock import AbandonedTestError, ExclusiveLock
from paraval.pytest_plugin.running.current_test import RunningTest

LONG_S = 20.0
"""Nothing here takes so long, unless it hangs."""


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A deadlock ends the run, and shows where."""
    faulthandler.dump_traceback_later(60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def a_test(name: str = "test_it") -> RunningTest:
    item = cast("pytest.Item", SimpleNamespace(nodeid=name))
    return RunningTest(item=item, captured=cast("Any", None), logs=cast("Any", None))


class Turns:
    """Tests, as functions that run in threads on one floor."""

    def __init__(self, exclusive_lock: ExclusiveLock) -> None:
        self.exclusive_lock = exclusive_lock
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, act: Callable[[], object], name: str = "test_it") -> RunningTest:
        test = a_test(name)

        def run() -> None:
            with test.running_here():
                self.exclusive_lock.enter(test)
                try:
                    act()
                except BaseException as error:  # noqa: BLE001 - told by `join`
                    self.errors.append(error)
                finally:
                    self.exclusive_lock.leave(test)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()
        return test

    def join(self) -> None:
        for thread in self._threads:
            thread.join(LONG_S)
        assert not any(thread.is_alive() for thread in self._threads)
        if self.errors:
            raise self.errors[0]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Inside:
    """Counts who runs, and who has the lock; says so if these are wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = 0
        self.owners = 0
        self.wrong: list[str] = []

    @contextmanager
    def run(self) -> Iterator[None]:
        with self._lock:
            self.running += 1
            if self.owners:
                self.wrong.append("someone ran beside the one who has the lock")
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1

    @contextmanager
    def own(self) -> Iterator[None]:
        with self._lock:
            self.owners += 1
            if self.owners > 1 or self.running:
                self.wrong.append(f"{self.owners} had the lock beside {self.running}")
        try:
            yield
        finally:
            with self._lock:
                self.owners -= 1


# ---- having it alone


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whoever_has_the_lock_is_alone_however_many_ask(seed: int) -> None:
    exclusive_lock, inside = ExclusiveLock(), Inside()
    tests = Turns(exclusive_lock)
    fixture = threading.RLock()

    def test(number: int) -> Callable[[], None]:
        dice = random.Random(seed * 1000 + number)

        def pause() -> None:
            time.sleep(dice.choice((0, 0, 0.0005, 0.001)))

        def needs_a_shared_fixture() -> None:
            with exclusive_lock.waiting():
                fixture.acquire()
            try:
                if dice.random() < 0.3:
                    with asking(exclusive_lock, inside):
                        pause()
                else:
                    pause()
            finally:
                fixture.release()

        def act() -> None:
            for _ in range(12):
                with inside.run():
                    pause()
                choice = dice.random()
                if choice < 0.3:
                    with asking(exclusive_lock, inside):
                        pause()
                elif choice < 0.5:
                    needs_a_shared_fixture()

        return act

    for number in range(16):
        tests.start(test(number))
    tests.join()
    assert inside.wrong == []
    assert exclusive_lock.shared == {}


@contextmanager
def asking(exclusive_lock: ExclusiveLock, inside: Inside) -> Iterator[None]:
    release = exclusive_lock.ask("changes it")
    try:
        with inside.own():
            yield
    finally:
        release()


def test_who_asks_again_keeps_the_lock_until_the_last_of_it_ends() -> None:
    exclusive_lock = ExclusiveLock()
    tests = Turns(exclusive_lock)
    seen: list[str] = []
    has_it, may_end = threading.Event(), threading.Event()

    def outer() -> None:
        first, second = exclusive_lock.ask("one"), exclusive_lock.ask("two")
        first()
        first()
        has_it.set()
        may_end.wait(LONG_S)
        seen.append("still alone")
        second()

    tests.start(outer, "test_outer")
    has_it.wait(LONG_S)
    tests.start(lambda: seen.append("other"))
    time.sleep(0.02)
    assert seen == []
    may_end.set()
    tests.join()
    assert seen == ["still alone", "other"]
    assert exclusive_lock.reasons == {"test_outer": "one"}


def test_a_turns_end_gives_the_lock_back() -> None:
    exclusive_lock = ExclusiveLock()
    tests = Turns(exclusive_lock)
    tests.start(lambda: exclusive_lock.ask("never ended"))
    tests.join()
    tests.start(lambda: None)
    tests.join()


def test_only_a_tests_own_thread_waits_for_the_lock() -> None:
    """What another one of its threads changes is done beside others, told, and remembered."""
    exclusive_lock = ExclusiveLock()
    asked: list[Callable[[], None]] = []
    exclusive_lock.ask("nobody's code")()
    test = a_test()
    exclusive_lock.enter(a_test("another"))
    with test.running_here():
        exclusive_lock.enter(test)
        test.thread = None
        asked.append(exclusive_lock.ask("a thread of its own"))
    assert exclusive_lock.reasons == exclusive_lock.shared == {"test_it": "a thread of its own"}


# ---- waiting, and lending


def test_who_waits_for_a_fixture_does_not_hold_up_the_one_who_sets_it_up_alone() -> None:
    exclusive_lock = ExclusiveLock()
    tests = Turns(exclusive_lock)
    fixture = threading.Lock()
    is_set_up, waiting = threading.Event(), threading.Event()

    def first() -> None:
        with fixture:
            is_set_up.set()
            waiting.wait(LONG_S)
            exclusive_lock.ask("patches in a fixture")()

    def second() -> None:
        is_set_up.wait(LONG_S)
        with exclusive_lock.waiting():
            waiting.set()
            fixture.acquire()
        fixture.release()

    tests.start(first)
    tests.start(second)
    tests.join()
    assert exclusive_lock.shared == {}


def test_who_has_the_lock_lends_it_while_it_waits_but_to_nobody_new() -> None:
    exclusive_lock = ExclusiveLock()
    tests = Turns(exclusive_lock)
    fixture = threading.Lock()
    taken, lent = threading.Event(), threading.Event()
    seen: list[str] = []

    def builder() -> None:
        with fixture:
            taken.set()
            with exclusive_lock.waiting():
                lent.wait(LONG_S)
            seen.append("built")
            exclusive_lock.ask("patches, too")()
            seen.append("patched")

    def owner() -> None:
        taken.wait(LONG_S)
        exclusive_lock.ask("patches")
        with exclusive_lock.waiting():
            lent.set()
            fixture.acquire()
            # Who had it is the next to have it back, and newcomers wait.
            tests.start(lambda: seen.append("new"))
            time.sleep(0.02)
        seen.append("back")
        fixture.release()

    tests.start(builder, "builder")
    tests.start(owner, "owner")
    until(lambda: "back" in seen)
    tests.join()
    assert seen == ["built", "patched", "back", "new"]


def test_waiting_within_waiting_is_waiting_once() -> None:
    exclusive_lock = ExclusiveLock()
    tests = Turns(exclusive_lock)
    done, asked = threading.Event(), threading.Event()

    def waits() -> None:
        with exclusive_lock.waiting():
            with exclusive_lock.waiting():
                pass
            asked.wait(LONG_S)
            done.wait(LONG_S)

    tests.start(waits)

    def asks() -> None:
        asked.set()
        exclusive_lock.ask("alone")()
        done.set()

    tests.start(asks)
    tests.join()


# ---- patience


def test_who_holds_what_others_wait_for_goes_on_beside_them_after_a_while() -> None:
    exclusive_lock = ExclusiveLock(patience_s=0.1)
    tests = Turns(exclusive_lock)
    held, ended = threading.Lock(), threading.Event()
    began = threading.Event()

    def holds() -> None:
        with held:
            began.wait(LONG_S)
            exclusive_lock.ask("calls os.chdir")()
            before = time.monotonic()
            exclusive_lock.ask("calls os.chdir again")()
            assert time.monotonic() - before < 0.09
        ended.wait(LONG_S)

    def wants() -> None:
        began.set()
        with held:
            ended.set()

    tests.start(holds, "test_holds")
    tests.start(wants, "test_wants")
    tests.join()
    assert exclusive_lock.shared == {"test_holds": "calls os.chdir"}


def test_patience_begins_when_it_is_asked_not_when_the_last_one_left() -> None:
    exclusive_lock = ExclusiveLock(patience_s=0.3)
    tests = Turns(exclusive_lock)
    left, asked = threading.Event(), threading.Event()
    tests.start(lambda: left.wait(LONG_S))
    time.sleep(0.35)

    def asks() -> None:
        asked.set()
        exclusive_lock.ask("patches")()

    tests.start(asks)
    asked.wait(LONG_S)
    time.sleep(0.02)
    left.set()
    tests.join()
    assert exclusive_lock.shared == {}


# ---- those that are given up


def test_a_test_that_is_given_up_while_it_asks_changes_nothing_and_holds_up_nobody() -> None:
    exclusive_lock = ExclusiveLock()
    tests = Turns(exclusive_lock)
    changed: list[str] = []
    may_leave = threading.Event()
    tests.start(lambda: may_leave.wait(LONG_S))

    def asks() -> None:
        exclusive_lock.ask("patches")
        changed.append("patched")

    hung = tests.start(asks)
    until(lambda: exclusive_lock.reasons)
    exclusive_lock.leave(hung)
    tests.start(lambda: changed.append("next"))
    until(lambda: changed)
    may_leave.set()
    with pytest.raises(AbandonedTestError, match="test_it was abandoned"):
        tests.join()
    assert changed == ["next"]


def test_a_test_that_is_given_up_while_it_waits_does_not_come_back_to_run() -> None:
    exclusive_lock = ExclusiveLock()
    tests = Turns(exclusive_lock)
    waits, comes_back, is_over = threading.Event(), threading.Event(), threading.Event()

    def hangs() -> None:
        with exclusive_lock.waiting():
            waits.set()
            comes_back.wait(LONG_S)
        is_over.wait(LONG_S)

    hung = tests.start(hangs)
    waits.wait(LONG_S)
    exclusive_lock.leave(hung)
    comes_back.set()
    time.sleep(0.02)
    alone = threading.Event()

    def asks() -> None:
        exclusive_lock.ask("patches")
        alone.set()

    tests.start(asks)
    assert alone.wait(LONG_S)
    is_over.set()
    tests.join()


# ---- the nets


class Caught(Turns):
    """Turns with the nets under them, beside a turn that stays until it is told to leave."""

    def __init__(self) -> None:
        super().__init__(ExclusiveLock())
        self._leaves = threading.Event()
        self.manager = pytest.PytestPluginManager()
        self.items: list[Any] = []
        self.session = cast(
            "pytest.Session",
            SimpleNamespace(items=self.items, config=SimpleNamespace(pluginmanager=self.manager)),
        )

    def stays(self) -> None:
        begun = threading.Event()

        def act() -> None:
            begun.set()
            self._leaves.wait(LONG_S)

        self.start(act, "test_other")
        begun.wait(LONG_S)

    def other_leaves(self) -> None:
        self._leaves.set()


@pytest.fixture
def caught() -> Iterator[Caught]:
    made = Caught()
    with install_guards(ProcessGuard(made.exclusive_lock, made.session.items), made.session):
        yield made
        made.other_leaves()
        made.join()


module = ModuleType("patched_module")
module.__dict__["value"] = "plain"
table = {"key": "plain"}


def patches() -> list[Any]:
    def monkeypatched() -> Any:
        return pytest.MonkeyPatch.context()

    def started() -> Any:
        patcher = mock.patch.object(module, "value", "changed")

        @contextmanager
        def both() -> Iterator[None]:
            patcher.start()
            try:
                yield
            finally:
                patcher.stop()

        return both()

    mocked = lambda: mock.patch.object(module, "value", "changed")  # noqa: E731 - one of a list
    mocked_dict = lambda: mock.patch.dict(table, key="changed")  # noqa: E731 - one of a list
    return [
        pytest.param(mocked, id="mock.patch"),
        pytest.param(started, id="start and stop"),
        pytest.param(mocked_dict, id="mock.patch.dict"),
        pytest.param(monkeypatched, id="MonkeyPatch"),
    ]


@pytest.mark.parametrize("patcher", patches())
def test_a_patch_waits_for_the_lock_before_it_changes_anything_until_the_tests_end(
    caught: Caught, patcher: Callable[[], Any]
) -> None:
    seen: list[str] = []
    may_end = threading.Event()

    def patches_it() -> None:
        with patcher() as patch:
            if isinstance(patch, pytest.MonkeyPatch):
                patch.setattr(module, "value", "changed")
                with pytest.raises(AttributeError):
                    patch.setattr(module, "missing", 1)
            seen.append("patched")
            assert "changed" in (module.value, table["key"])
        may_end.wait(LONG_S)

    caught.stays()
    caught.start(patches_it, "test_patches")
    until(lambda: "test_patches" in caught.exclusive_lock.reasons)
    time.sleep(0.01)
    assert seen == []
    assert (module.value, table["key"]) == ("plain", "plain")
    caught.other_leaves()
    until(lambda: seen)
    caught.start(lambda: seen.append("next"))
    may_end.set()
    caught.join()
    assert seen == ["patched", "next"]
    assert "test_patches" in caught.exclusive_lock.reasons


def test_the_folder_is_changed_alone_and_what_is_never_put_back_is_no_tests_own(
    caught: Caught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(before := Path.cwd())

    def enters_and_leaves() -> None:
        os.chdir(tmp_path)
        os.chdir(before)

    def enters() -> None:
        os.chdir(tmp_path)

    def patches_for_good() -> None:
        mock.patch.object(module, "value", "for all").start()

    caught.stays()
    caught.start(enters_and_leaves, "test_puts_back")
    until(lambda: "test_puts_back" in caught.exclusive_lock.reasons)
    assert Path.cwd() == before
    caught.other_leaves()
    caught.join()
    caught.start(enters, "test_enters")
    caught.join()
    assert Path.cwd() == tmp_path
    caught.start(patches_for_good, "test_patches")
    caught.join()
    mock.patch.stopall()
    assert caught.exclusive_lock.reasons == {"test_puts_back": "calls os.chdir"}


def test_what_a_test_that_is_given_up_changed_is_told_and_put_back(
    caught: Caught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder; but what a fixture set up for others, too, is theirs."""
    monkeypatch.chdir(Path.cwd())
    before, ready, may_end = Path.cwd(), threading.Event(), threading.Event()

    def changes() -> None:
        os.chdir(tmp_path)
        ready.set()
        may_end.wait(LONG_S)

    def sets_up_for_others() -> None:
        caught.manager.hook.pytest_fixture_setup(
            fixturedef=SimpleNamespace(scope="module", argname="env", func=len), request=None
        )
        ready.set()
        may_end.wait(LONG_S)

    class Sets:
        @pytest.hookimpl(trylast=True)
        def pytest_fixture_setup(self) -> str:
            os.chdir(tmp_path)
            return "set up"

    caught.manager.register(Sets())
    for name, act in (("test_changes", changes), ("test_sets_up", sets_up_for_others)):
        ready.clear()
        hung = caught.start(act, name)
        assert ready.wait(LONG_S)
        caught.exclusive_lock.leave(hung)
        assert Path.cwd() == (before if act is changes else tmp_path)
    may_end.set()
    caught.join()
    why = "calls os.chdir; it was abandoned before it could undo that"
    assert caught.exclusive_lock.shared == {"test_changes": why, "test_sets_up": why}


def test_what_a_module_does_as_it_is_imported_does_not_wait_with_its_lock_held(
    caught: Caught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sets_at_import.py").write_text("import os\nos.environ['PARAVAL_B'] = '1'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("PARAVAL_B", raising=False)
    done: list[str] = []

    def imports() -> None:
        __import__("sets_at_import")
        done.append("imported")

    caught.stays()
    caught.start(imports)
    until(lambda: done)
    assert caught.exclusive_lock.reasons == {}
    monkeypatch.delenv("PARAVAL_B")


@pytest.mark.parametrize("scope", ["session", "module"])
def test_a_shared_fixture_changes_the_process_alone_and_outlives_the_test(
    caught: Caught, scope: str
) -> None:
    """For the session, until its setup ends; else it is told, with the tests that use it."""
    seen: list[str] = []
    fixture = SimpleNamespace(scope=scope, argname="env", func=len)
    info = SimpleNamespace(name2fixturedefs={"env": [fixture]})
    caught.items.append(SimpleNamespace(nodeid="test_user", _fixtureinfo=info))
    may_end = threading.Event()
    patch = mock.patch.object(module, "value", "changed")

    class Sets:
        @pytest.hookimpl(trylast=True)
        def pytest_fixture_setup(self) -> str:
            patch.start()
            return "set up"

    caught.manager.register(Sets())

    def uses() -> None:
        caught.manager.hook.pytest_fixture_setup(fixturedef=fixture, request=None)
        seen.append("set up")
        may_end.wait(LONG_S)

    caught.start(uses, "test_first")
    until(lambda: seen)
    caught.start(lambda: seen.append("other"))
    if scope == "session":
        until(lambda: "other" in seen)
    else:
        time.sleep(0.02)
        assert seen == ["set up"]
    may_end.set()
    caught.join()
    patch.stop()
    why = "calls unittest.mock.patch"
    if scope == "session":
        assert caught.exclusive_lock.by_shared_fixtures == {}
        assert caught.exclusive_lock.reasons == {}
    else:
        assert caught.exclusive_lock.by_shared_fixtures == {"env (module)": why}
        assert caught.exclusive_lock.reasons["test_user"] == f"fixture `env` (module) {why}"


def test_when_the_nets_are_taken_in_everything_is_as_it_was() -> None:
    made = Caught()

    def methods() -> list[object]:
        kinds: list[Any] = [pytest.MonkeyPatch, mock._patch, mock._patch_dict]
        return [dict(vars(kind)) for kind in kinds]

    before = methods()
    with install_guards(ProcessGuard(made.exclusive_lock, made.session.items), made.session):
        assert methods() != before
        with mock.patch.object(module, "value", "of nobody's turn"):
            assert module.value == "of nobody's turn"
    assert methods() == before
    assert not made.manager.hasplugin("paraval-nets")


def test_deaf_the_audit_hook_costs_next_to_nothing() -> None:
    with install_guards(ProcessGuard(ExclusiveLock(), []), Caught().session):
        pass
    began = time.thread_time()
    for _ in range(10_000):
        sys.audit("paraval.nothing")
    # About a tenth of a microsecond each, of this thread's own time: others may be at work, too.
    assert (time.thread_time() - began) / 10_000 < 5e-6


# ---- in a real session

HELPERS = """
import os
from unittest.mock import patch

def answer(): return "plain"
def patched(): return patch("helpers.answer", lambda: "patched")
def enter(path): os.chdir(path)
def put(name, value): os.environ[name] = value
"""

SUITE = """
import os, time
import helpers, pytest

HERE = os.getcwd()

@pytest.fixture(scope="session")
def once():
    helpers.put("PARAVAL_ONCE", "1")

@pytest.mark.parametrize("n", range(6))
def test_reads(n):
    for _ in range(10):
        assert helpers.answer() == "plain"
        assert os.getcwd() == HERE
        time.sleep(0.01)

@pytest.mark.parametrize("n", range(3))
def test_patches(n):
    with helpers.patched():
        time.sleep(0.02)
        assert helpers.answer() == "patched"
    assert helpers.answer() == "plain"

def test_enters(tmp_path):
    helpers.enter(tmp_path)
    time.sleep(0.02)
    helpers.enter(HERE)

@pytest.mark.parametrize("n", range(2))
def test_once(n, once):
    assert os.environ["PARAVAL_ONCE"] == "1"
"""


def test_changes_that_no_scan_sees_are_made_alone_and_known_the_next_time(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "test_suite.py").write_text(SUITE)

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--parallel", "6", "-v", "-p", "no:randomly"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"], "COLUMNS": "120"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "12 passed" in done.stdout
        return done.stdout

    run()
    again = run()
    assert again.count("(exclusive: calls unittest.mock.patch)") == 3
    assert again.count("(exclusive: calls os.chdir)") == 1
    assert again.count("(exclusive:") == 4
    assert (
        "parallel 6: 8 concurrent, 4 exclusive: calls unittest.mock.patch (3); calls os.chdir (1)"
        in again
    )
