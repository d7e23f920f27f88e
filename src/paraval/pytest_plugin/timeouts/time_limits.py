"""How long tests may take, and who sees to it.

A test's time is told by `@pytest.mark.timeout_s`, or as pytest-timeout was told. Setup and call
have it together, the teardown has it once more. One thread looks after all tests that run beside
others; what it does to one whose time is up is for `watchdog`. In the main thread an alarm does it,
but what pytest-timeout was told is there pytest-timeout's own business.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paraval.pytest_plugin.running.current_test import Phase, Turn, current, start_for_nobody
from paraval.pytest_plugin.timeouts.ending import cancel, frame_of, loop_in, raise_in
from paraval.pytest_plugin.timeouts.stacks import Hung, TestTimedOut
from paraval.pytest_plugin.timeouts.watchdog import LOOK_S, Patience, Watch, alarm

MARK = "timeout_s"
OTHERS_PLUGIN = ("timeout", "pytest_timeout")
"""The names that pytest-timeout may be registered by: the second one after `-p`."""


def seconds_of(item: pytest.Item) -> float | None:
    """What a test has beside others; None: all the time it wants. Its own mark comes first."""
    own = own_seconds_of(item)
    if own is not None:
        return own
    settings = _settings_of_others(item)
    if settings is None or settings.timeout is None or settings.timeout <= 0:
        return None
    return float(settings.timeout)


def own_seconds_of(item: pytest.Item) -> float | None:
    """What the mark `timeout_s` says."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return None
    given = (*mark.args, *mark.kwargs.values())
    seconds = given[0] if len(given) == 1 and set(mark.kwargs) <= {"seconds"} else None
    if isinstance(seconds, int | float) and seconds is not True and 0 < seconds < math.inf:
        return float(seconds)
    shown = ", ".join((*map(repr, mark.args), *(f"{k}={v!r}" for k, v in mark.kwargs.items())))
    raise pytest.UsageError(
        f"{item.nodeid}: @pytest.mark.{MARK}({shown}) takes one number of seconds above 0, "
        f"as in @pytest.mark.{MARK}(30)"
    )


def counts_only_the_call(item: pytest.Item) -> bool:
    """As pytest-timeout's `func_only` asks; not where the mark `timeout_s` stands."""
    if item.get_closest_marker(MARK) is not None:
        return False
    settings = _settings_of_others(item)
    return settings is not None and bool(settings.func_only)


def _settings_of_others(item: pytest.Item) -> Any:
    """pytest-timeout's Settings for a test, by its own rules; None: it is not there."""
    found = map(item.config.pluginmanager.get_plugin, OTHERS_PLUGIN)
    plugin = next((one for one in found if one is not None), None)
    # Its rules (mark, flag, variable, ini file) are no public interface, but they are its alone.
    read = getattr(plugin, "_get_item_settings", None)
    if read is None:
        return None
    try:
        return read(item)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.timeout: {error}") from error


class Watcher:
    """Looks after all tests that have a time to end by."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._watches: dict[Turn, Watch] = {}
        self._starting = threading.Lock()
        """Guards the thread."""
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextmanager
    def watching(
        self, turn: Turn, seconds: float, on_given_up: Callable[[Hung], None]
    ) -> Iterator[Watch]:
        """All phases of a test in its own thread. `on_given_up` is called in the watcher's."""
        watch = Watch(
            turn=turn,
            seconds=seconds,
            on_given_up=on_given_up,
            patience=self._patience,
            call_only=counts_only_the_call(turn.item),
        )
        with self._starting:
            if self._thread is None:
                name = "paraval-watcher"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                start_for_nobody(self._thread)
        self._watches[turn] = watch
        try:
            yield watch
        finally:
            del self._watches[turn]

    def watch_of(self, turn: Turn) -> Watch | None:
        return self._watches.get(turn)

    def close(self) -> None:
        """No test is looked after any more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_S):
            now = time.monotonic()
            for watch in self._watches.copy().values():
                watch.look(now)


def interrupt(turns: Collection[Turn], grace_s: float) -> list[Turn]:
    """As Ctrl-C would, in each turn's thread; those that did not end within the grace.

    A teardown that is under way is only waited for: it does what the end is for. Out of what a
    loop ran comes CancelledError, out of other code KeyboardInterrupt.
    """
    for turn in turns:
        running = loop_in(frame_of(turn.thread))
        if turn.is_over or turn.thread is None or turn.phase == "teardown":
            continue
        if running is not None:
            cancel(running, KeyboardInterrupt(), lambda: None)
        else:
            raise_in(turn.thread, KeyboardInterrupt)
    until = time.monotonic() + grace_s
    while (left := [turn for turn in turns if not turn.is_over]) and time.monotonic() < until:
        time.sleep(LOOK_S)
    return left


# ---- around each phase


class TimeLimits:
    """A plugin, for turns and for the main thread."""

    NAME = "paraval-time-limits"

    def __init__(self, watcher: Watcher | None = None) -> None:
        """Without a watcher, tests run in the main thread only."""
        self._watcher = watcher

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._limited(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._limited(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from self._limited(item, "teardown"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and isinstance(call.excinfo.value, TestTimedOut):
            call.excinfo.value.hung.place(report, item.config.rootpath)
        return report

    def _limited(self, item: pytest.Item, phase: Phase) -> Generator[None, Any, Any]:
        turn = current()
        if turn is not None:
            watch = None if self._watcher is None else self._watcher.watch_of(turn)
            return (yield) if watch is None else (yield from watch.during(phase))
        seconds = own_seconds_of(item)
        if seconds is None:
            return (yield)
        with alarm(item, seconds, phase):
            return (yield)
