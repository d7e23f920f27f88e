"""Where a test hung: the stacks of its threads and tasks at the time it should have ended by.

Frames are looked at from another thread while they run on: what is read here is a moment's picture.
"""

from __future__ import annotations

import asyncio
import linecache
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any, NoReturn

import pytest
from _pytest.outcomes import Failed

from paraval.pytest_plugin.running.current_test import CURRENT, Phase, Turn
from paraval.pytest_plugin.running.protocol import PhaseEnd
from paraval.pytest_plugin.timeouts.ending import RunningLoop, loop_in, thread_at

MOST_STACKS = 20
MOST_PLACES = 60
LEFT_BEHIND = (
    "it could not be ended: its thread is left behind, and its teardown was not run "
    "(a client's own timeout ends a call where Python cannot)"
)
_HARNESS = ("_pytest", "pluggy", "paraval", "threading", "contextlib", "pytest_asyncio", "anyio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One frame of a stack."""

    file: str
    line: int
    module: str
    function: str
    source: str

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        told = f'  File "{self.file}", line {self.line}, in {self.function}'
        return f"{told}\n    {self.source}" if self.source else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What one thread or task was about, the outermost place first."""

    title: str
    places: Sequence[Place]

    def __str__(self) -> str:
        return "\n".join([f"~~~ {self.title} ~~~", *map(str, self.places[-MOST_PLACES:])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung:
    """A test whose time was up."""

    nodeid: str
    phase: Phase
    seconds: float
    stacks: Sequence[Stack]
    """The one that tells most comes first."""
    own: Place | None
    """The innermost place in the test's own file; else the innermost of all."""
    notes: Sequence[str] = ()
    """What else there is to say, a line each."""
    ended: Sequence[PhaseEnd] = ()
    """How its phases before this one came out; only of a test that was given up."""

    @property
    def where(self) -> str:
        """`tests/test_x.py:12: client.get(url) -> socket.SocketIO.readinto`; empty: unknown."""
        if self.own is None:
            return ""
        inner = self.stacks[0].places[-1]
        told = f"{self.own.file}:{self.own.line}: {self.own.source}".removesuffix(": ")
        return told if self.own is inner else f"{told} -> {inner.module}.{inner.function}"

    @property
    def message(self) -> str:
        """In one line."""
        of = "" if self.phase == "call" else f" (in {self.phase})"
        hung = f"; hung in {self.where}" if self.where else ""
        return f"timeout: nothing after {self.seconds:g} s{of}{hung}"

    @property
    def text(self) -> str:
        return "\n".join((self.message, *self.notes, *map(str, self.stacks[:MOST_STACKS])))

    def noting(self, note: str) -> Hung:
        return replace(self, notes=(*self.notes, note))

    def left_behind(self, turn: Turn) -> Hung:
        """The same of a test that is given up; while its phase is still open."""
        return replace(self.noting(LEFT_BEHIND), ended=tuple(turn.ended))

    def phases(self, turn: Turn) -> Sequence[PhaseEnd]:
        """The reports of a test that was given up, as if it had failed in this phase."""
        item = turn.item
        for key, text in turn.captured.take():
            item.add_report_section(self.phase, key, text)
        turn.logs.end(self.phase)
        hung = _end(item, self.phase, TestTimedOut(self), self.seconds)
        if self.phase == "teardown":
            return [*self.ended, hung]
        # Reporters wait for a test's teardown.
        return [*self.ended, hung, _end(item, "teardown", None, 0.0)]

    def place(self, report: pytest.TestReport, root: Path) -> None:
        """As the place of a failure, as with `--tb=line`: not ours, where it is raised."""
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and self.own is not None:
            crash.path, crash.lineno = str(root / self.own.file), self.own.line


class TestTimedOut(Failed):
    """A test took longer than it may; says where it hung."""

    __test__ = False  # It is no test, wherever it is imported.
    # As pytest shows its own: a summary has room for one short word before the reason.
    __module__, __qualname__ = "builtins", "Failed"

    def __init__(self, hung: Hung) -> None:
        # The stacks in its text are those at the deadline; a traceback would say the same, or less.
        super().__init__(hung.text, pytrace=False)
        self.hung = hung


def look_at(
    item: pytest.Item,
    thread: int,
    *,
    phase: Phase,
    seconds: float,
    turn: Turn | None = None,
    frame: FrameType | None = None,
) -> Hung:
    """Where a test hangs whose own thread this is; `frame`: at what, if it is this very thread."""
    frames = sys._current_frames()
    if frame is not None:
        frames[thread] = frame
    root = str(item.config.rootpath)
    file = _shown(str(item.path), root)

    def own_places(stack: Stack) -> list[Place]:
        return [place for place in stack.places if place.file == file]

    # First what stands in the test's own file.
    stacks = sorted(_stacks(frames, thread, turn, root), key=lambda one: not own_places(one))
    known = (own_places(stacks[0]) or stacks[0].places) if stacks else ()
    return Hung(
        nodeid=item.nodeid,
        phase=phase,
        seconds=seconds,
        stacks=stacks,
        own=known[-1] if known else None,
    )


def raise_at(place: Place, error: BaseException, root: Path) -> NoReturn:
    """With a traceback that ends at this place, although it is raised here."""
    code = compile("\n" * (place.line - 1) + "raise error", str(root / place.file), "exec")
    exec(code, {"error": error.with_traceback(None), "__name__": place.module})  # noqa: S102 - our own two words
    raise error


def _stacks(
    frames: dict[int, FrameType], thread: int, turn: Turn | None, root: str
) -> Iterator[Stack]:
    running = loop_in(frames.get(thread))
    at = (None if turn is None else thread_at(turn)) or thread
    places: list[Place] = []
    if at in frames and not (running is not None and running.is_shared and at == thread):
        places = _thread_places(frames[at], root)
    if running is not None and (not places or _is_of_a_loop(places[-1])):
        # The loop waits: what it waits for says more than how it does.
        while places and _is_of_a_loop(places[-1]):
            places.pop()
        places += _task_places(running.main, root)
    yield Stack(title="Stack of the test", places=places)
    for task in () if running is None else _other_tasks(running, turn):
        yield Stack(title=f"Stack of {task.get_name()}", places=_task_places(task, root))
    started = set() if turn is None else turn.threads
    for one in threading.enumerate():
        if one.native_id in started and one.ident != thread and one.ident in frames:
            title = f"Stack of {one.name}, which the test started"
            yield Stack(title=title, places=_thread_places(frames[one.ident], root))


def _is_of_a_loop(place: Place) -> bool:
    return place.package in ("asyncio", "selectors")


def _other_tasks(running: RunningLoop, turn: Turn | None) -> Sequence[asyncio.Task[Any]]:
    """Those of other tests are left out; before Python 3.12, all in a loop that tests share."""
    try:
        tasks = asyncio.all_tasks(running.loop) - {running.main}
    except RuntimeError:  # They came and went too quickly to be listed.
        return []
    if running.is_shared:
        tasks = {
            task
            for task in tasks
            if hasattr(task, "get_context") and task.get_context().get(CURRENT) is turn
        }
    return sorted(tasks, key=lambda task: task.get_name())


def _task_places(task: asyncio.Future[Any], root: str) -> list[Place]:
    """A suspended coroutine's frames, the outermost first: a task tells only of its first."""
    places: list[Place] = []
    awaitable: Any = task
    while awaitable is not None and len(places) < MOST_PLACES:
        if isinstance(awaitable, asyncio.Task):
            awaitable = awaitable.get_coro()
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if frame is None:
            break
        places.append(_place(frame, frame.f_lineno, root))
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
    return places


def _thread_places(frame: FrameType, root: str) -> list[Place]:
    """From the test on: what pytest, threads and we do to get there says nothing."""
    places = [_place(one, line, root) for one, line in walk_stack(frame)][::-1]
    phase = [*dropwhile(lambda place: not _runs_a_phase(place), places)] or places
    shown = [*dropwhile(lambda place: place.package in _HARNESS, phase)] or places
    return [place for place in shown if not place.module.startswith("paraval.pytest_plugin.")]


def _runs_a_phase(place: Place) -> bool:
    return place.module == "_pytest.runner" and place.function.startswith("pytest_runtest_")


def _place(frame: FrameType, line: int | None, root: str) -> Place:
    code = frame.f_code
    return Place(
        file=_shown(code.co_filename, root),
        line=line or 0,
        module=str(frame.f_globals.get("__name__", "?")),
        function=code.co_qualname,
        source=linecache.getline(code.co_filename, line or 0, frame.f_globals).strip(),
    )


def _shown(path: str, root: str) -> str:
    return path.removeprefix(root + os.sep)


def _end(item: pytest.Item, phase: Phase, error: BaseException | None, seconds: float) -> PhaseEnd:
    def end() -> None:
        if error is not None:
            raise error

    call = pytest.CallInfo.from_call(end, when=phase)
    report = pytest.TestReport.from_item_and_call(item, call)
    if isinstance(error, TestTimedOut):
        error.hung.place(report, item.config.rootpath)
    report.duration = seconds
    report.start = report.stop - seconds
    return PhaseEnd(report=report, error=error, interacts=None)
