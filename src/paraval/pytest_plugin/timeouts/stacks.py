"""Where a test hung: what its threads and its task were doing at the deadline.

Frames are read from another thread while they run: the result is a snapshot.
"""

from __future__ import annotations

import asyncio
import linecache
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path
from traceback import StackSummary
from types import FrameType
from typing import Any, NoReturn

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.async_tests.plugins import run_in
from paraval.pytest_plugin.pytest_internals import Failed
from paraval.pytest_plugin.running.current_test import CURRENT, Phase, PhaseEnd, RunningTest

MOST_STACKS = 20
MOST_FRAMES = 60
LEFT_BEHIND = (
    "it could not be stopped: its thread was abandoned and its teardown did not run "
    "(a client's own timeout ends calls that Python cannot interrupt)"
)
_OWN = "paraval.pytest_plugin."
_HARNESS = ("_pytest", "pluggy", "paraval", "threading", "contextlib", "pytest_asyncio", "anyio")
_RUNS_A_LOOP = {
    asyncio.base_events.BaseEventLoop.run_until_complete.__code__: "future",
    asyncio.Runner.run.__code__: "task",
    run_in.__code__: "task",
}
"""Functions that wait for a task, and its variable there. The second is for loops that are not
written in Python, the third for a loop that runs in another thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangReport:
    """A test that exceeded its timeout."""

    nodeid: str
    phase: Phase
    seconds: float
    stacks: str
    place: tuple[str, int] | None
    """The innermost file and line in the test's own file, or else the innermost of all."""
    where: str
    """`tests/test_x.py:12: client.get(url) -> socket.SocketIO.readinto`; empty: unknown."""
    notes: Sequence[str] = ()
    """Additional remarks, one line each."""
    ended: Sequence[PhaseEnd] = ()
    """How its earlier phases ended; only for an abandoned test."""

    @property
    def text(self) -> str:
        of = "" if self.phase == "call" else f" (in {self.phase})"
        hung = f"; hung in {self.where}" if self.where else ""
        message = f"timeout after {self.seconds:g} s{of}{hung}"
        return "\n".join((message, *self.notes, self.stacks))

    def noting(self, note: str) -> HangReport:
        return replace(self, notes=(*self.notes, note))

    def phases(self, test: RunningTest) -> Sequence[PhaseEnd]:
        """The reports of an abandoned test, as if it had failed in this phase."""
        item = test.item
        for key, text in test.captured.take():
            item.add_report_section(self.phase, key, text)
        test.logs.end(self.phase)
        hung = _end(item, self.phase, TestTimedOut(self), self.seconds)
        if self.phase == "teardown":
            return [*self.ended, hung]
        # Reporters wait for a test's teardown.
        return [*self.ended, hung, _end(item, "teardown", None, 0.0)]

    def set_place(self, report: pytest.TestReport) -> None:
        """Report the hang's place as the failure's, as with `--tb=line`, not where we raise it."""
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and self.place is not None:
            crash.path, crash.lineno = self.place


class TestTimedOut(Failed):
    """A test exceeded its timeout; the message shows where it hung."""

    __test__ = False  # Not a test class, wherever it is imported.
    # Look like pytest's own: a summary has room for one short word before the reason.
    __module__, __qualname__ = "builtins", "Failed"

    def __init__(self, hung: HangReport) -> None:
        # The text has the stacks at the deadline; a traceback would show the same or less.
        super().__init__(hung.text, pytrace=False)
        self.hung = hung

    @staticmethod
    def of(hung: HangReport) -> type[TestTimedOut]:
        """Create an exception class that Python can instantiate without arguments."""
        own = {"__init__": lambda error: TestTimedOut.__init__(error, hung)}
        names = {"__module__": TestTimedOut.__module__, "__qualname__": TestTimedOut.__qualname__}
        return type("Failed", (TestTimedOut,), {**names, **own})


def look_at(
    item: pytest.Item,
    thread: int,
    *,
    phase: Phase,
    seconds: float,
    test: RunningTest | None = None,
    frame: FrameType | None = None,
) -> HangReport:
    """Find where the test in this thread hangs; `frame`: its position, in the current thread."""
    frames = sys._current_frames()
    at = (None if test is None else thread_at(test)) or thread
    found = _test_frames(frame or frames.get(at))
    stacks = [_stack("the test", found)]
    started = set() if test is None else test.threads
    stacks += [
        _stack(f"{one.name}, which the test started", _user_frames(frames[one.ident]))
        for one in threading.enumerate()
        if one.native_id in started and one.ident != thread and one.ident in frames
    ]
    own = [one for one in found if one.f_code.co_filename == str(item.path)] or found
    return HangReport(
        nodeid=item.nodeid,
        phase=phase,
        seconds=seconds,
        stacks="\n".join(stacks[:MOST_STACKS]),
        place=(own[-1].f_code.co_filename, own[-1].f_lineno) if own else None,
        where=_where(own[-1], found[-1], item.config.rootpath) if own else "",
    )


def raise_at(place: tuple[str, int], error: BaseException) -> NoReturn:
    """Raise the error with a traceback that ends at this file and line."""
    code = compile("\n" * (place[1] - 1) + "raise error", place[0], "exec")
    exec(code, {"error": error.with_traceback(None)})  # noqa: S102 - our own constant code
    raise error


def _where(own: FrameType, inner: FrameType, root: Path) -> str:
    file = own.f_code.co_filename
    source = linecache.getline(file, own.f_lineno, own.f_globals).strip()
    place = f"{file.removeprefix(f'{root}{os.sep}')}:{own.f_lineno}: {source}".removesuffix(": ")
    return place if own is inner else f"{place} -> {module_of(inner)}.{inner.f_code.co_qualname}"


def _stack(title: str, frames: Sequence[FrameType]) -> str:
    lines = StackSummary.extract((one, one.f_lineno) for one in frames[-MOST_FRAMES:]).format()
    return f"~~~ Stack of {title} ~~~\n{''.join(lines)}".rstrip()


# ---- frames, the outermost first


def _test_frames(frame: FrameType | None) -> list[FrameType]:
    frames, task = _user_frames(frame), task_in(frame)
    if task is not None and (not frames or _is_of_a_loop(frames[-1])):
        # The loop is waiting: what it waits for matters more than how.
        while frames and _is_of_a_loop(frames[-1]):
            frames.pop()
        frames += _task_frames(task)
    return frames


def _user_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames from the test on, without those of pytest, threads and this package before it."""
    frames = [*outwards(frame)][::-1]
    phase = [*dropwhile(lambda one: not _runs_a_phase(one), frames)] or frames
    shown = dropwhile(lambda one: module_of(one).partition(".")[0] in _HARNESS, phase)
    return [one for one in shown if not module_of(one).startswith(_OWN)]


def _task_frames(task: asyncio.Future[Any]) -> list[FrameType]:
    """The frames of suspended coroutines: a task exposes only its first."""
    frames: list[FrameType] = []
    awaitable: Any = task
    while awaitable is not None and len(frames) < MOST_FRAMES:
        if isinstance(awaitable, asyncio.Task):
            awaitable = awaitable.get_coro()
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if frame is None:
            break
        frames.append(frame)
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
    return frames


def _runs_a_phase(frame: FrameType) -> bool:
    is_hook = frame.f_code.co_name.startswith("pytest_runtest_")
    return is_hook and module_of(frame) == "_pytest.runner"


def _is_of_a_loop(frame: FrameType) -> bool:
    return module_of(frame).partition(".")[0] in ("asyncio", "selectors")


def task_in(frame: FrameType | None) -> asyncio.Future[Any] | None:
    """The task that the innermost running asyncio loop of a stack was started for."""
    for one in outwards(frame):
        task = one.f_locals.get(_RUNS_A_LOOP[one.f_code]) if one.f_code in _RUNS_A_LOOP else None
        if isinstance(task, asyncio.Future):
            return task
    return None


def thread_at(test: RunningTest) -> int | None:
    """The thread that runs the test's code now: a shared loop's, while that runs the test."""
    task = task_in(frame_of(test.thread))
    of_loop: int | None = None if task is None else getattr(task.get_loop(), "_thread_id", None)
    for frame in outwards(frame_of(of_loop)):
        if frame.f_code is asyncio.Handle._run.__code__:
            # A handle has the context that its callback runs in.
            is_its = frame.f_locals["self"]._context.get(CURRENT) is test
            return of_loop if is_its else test.thread
    return test.thread


def frame_of(thread: int | None) -> FrameType | None:
    """The thread's current frame; None: it has ended."""
    return None if thread is None else sys._current_frames().get(thread)


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _end(item: pytest.Item, phase: Phase, error: BaseException | None, seconds: float) -> PhaseEnd:
    def end() -> None:
        if error is not None:
            raise error

    call = pytest.CallInfo.from_call(end, when=phase)
    report = pytest.TestReport.from_item_and_call(item, call)
    if isinstance(error, TestTimedOut):
        error.hung.set_place(report)
    report.duration = seconds
    report.start = report.stop - seconds
    return PhaseEnd(report=report, error=error)
