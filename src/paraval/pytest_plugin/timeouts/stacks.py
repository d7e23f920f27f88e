"""Where a test hung: the stacks of its threads and tasks at the time it should have ended by.

Frames are looked at from another thread while they run on: what is read here is a moment's picture.
"""

from __future__ import annotations

import asyncio
import contextvars
import linecache
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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

    def __str__(self) -> str:
        told = f'  File "{self.file}", line {self.line}, in {self.function}'
        return f"{told}\n    {self.source}" if self.source else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What one thread or task was about, the outermost place first."""

    title: str
    places: Sequence[Place]

    def __str__(self) -> str:
        cut = len(self.places) - MOST_PLACES
        more = [f"  ... {cut} more"] if cut > 0 else []
        return "\n".join([f"~~~ {self.title} ~~~", *more, *map(str, self.places[-MOST_PLACES:])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung:
    """A test whose time was up."""

    nodeid: str
    phase: Phase
    seconds: float
    where: str
    """`tests/test_x.py:12: client.get(url) -> socket.SocketIO.readinto`; empty: unknown."""
    stacks: Sequence[Stack]
    notes: Sequence[str] = ()
    """What else there is to say, a line each."""
    ended: Sequence[PhaseEnd] = ()
    """How its phases before this one came out; only of a test that was given up."""
    own: Place | None = None
    """The innermost place in the test's own file; else the innermost of all."""

    @property
    def message(self) -> str:
        """In one line."""
        of = "" if self.phase == "call" else f" (in {self.phase})"
        hung = f"; hung in {self.where}" if self.where else ""
        return f"timeout: nothing after {self.seconds:g} s{of}{hung}"

    @property
    def text(self) -> str:
        shown = [*map(str, self.stacks[:MOST_STACKS])]
        if len(self.stacks) > MOST_STACKS:
            shown.append(f"... and {len(self.stacks) - MOST_STACKS} more threads and tasks")
        return "\n".join((self.message, *self.notes, *shown))

    def noting(self, note: str) -> Hung:
        return replace(self, notes=(*self.notes, note))

    def left_behind(self, turn: Turn) -> Hung:
        """The same of a test that is given up; while its phase is still open."""
        return replace(self.noting(LEFT_BEHIND), ended=tuple(turn.ended))

    def phases(self, turn: Turn) -> Sequence[PhaseEnd]:
        """The reports of a test that was given up, as if it had failed in this phase."""
        item = turn.item
        for key, text in turn.captured.take(self.phase):
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
    own = str(item.path)
    stacks = [*_stacks(frames, thread, turn, root)]
    # The one that tells most comes first: what stands in the test's own file.
    best = max(stacks, key=lambda stack: _is_in(stack, _shown(own, root)), default=None)
    if best is not None:
        stacks.remove(best)
        stacks.insert(0, best)
    places = () if best is None else best.places
    return Hung(
        nodeid=item.nodeid,
        phase=phase,
        seconds=seconds,
        where=_where(places, _shown(own, root)),
        stacks=tuple(stacks),
        own=_own(places, _shown(own, root)),
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
    frame = frames.get(at)
    if running is not None and running.is_shared and at == thread:
        yield Stack(title="Stack of the test", places=_task_places(running.main, root))
    elif frame is not None:
        places = [*_thread_places(frame, root)]
        if running is not None and places and _is_of_a_loop(places[-1]):
            # The loop waits: what it waits for says more than how it does.
            while places and _is_of_a_loop(places[-1]):
                places.pop()
            places += _task_places(running.main, root)
        yield Stack(title="Stack of the test", places=places)
    for task in () if running is None else _other_tasks(running, turn):
        yield Stack(title=f"Stack of {task.get_name()}", places=_task_places(task, root))
    names = {one.ident: one.name for one in threading.enumerate()}
    for ident, other in frames.items():
        if turn is not None and ident != thread and _belongs(other, turn):
            title = f"Stack of {names.get(ident, 'a thread')}, which the test started"
            yield Stack(title=title, places=_thread_places(other, root))


def _is_of_a_loop(place: Place) -> bool:
    return place.module.partition(".")[0] in ("asyncio", "selectors")


def _task_places(task: asyncio.Future[Any], root: str) -> Sequence[Place]:
    coroutine = task.get_coro() if isinstance(task, asyncio.Task) else None
    return [_place(frame, line, root) for frame, line in _awaits(coroutine)]


def _other_tasks(running: RunningLoop, turn: Turn | None) -> Sequence[asyncio.Task[Any]]:
    """Those of other tests are left out; before Python 3.12, all in a loop that tests share."""
    try:
        tasks = asyncio.all_tasks(running.loop) - {running.main}
    except RuntimeError:  # They came and went too quickly to be listed.
        return []
    if running.is_shared and turn is not None:
        tasks = {task for task in tasks if _is_of(getattr(task, "get_context", str)(), turn)}
    return sorted(tasks, key=lambda task: task.get_name())


def _awaits(awaitable: Any) -> Iterator[tuple[FrameType, int]]:
    """A suspended coroutine's frames, the outermost first: a task tells only of its first."""
    for _ in range(200):
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if frame is None:
            if not isinstance(awaitable, asyncio.Task):
                return
            awaitable = awaitable.get_coro()
            continue
        yield frame, frame.f_lineno or 0
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)


def _thread_places(frame: FrameType, root: str) -> Sequence[Place]:
    """From the test on: what pytest, threads and we do to get there says nothing."""
    places: list[Place] = []
    inner: FrameType | None = frame
    while inner is not None:
        places.append(_place(inner, inner.f_lineno or 0, root))
        inner = inner.f_back
    places.reverse()
    begun = next((at for at, place in enumerate(places) if _runs_a_phase(place)), 0)
    own = (at for at, place in enumerate(places) if at >= begun and not _is_harness(place))
    shown = places[next(own, 0) :]
    return [place for place in shown if not place.module.startswith("paraval.pytest_plugin.")]


def _runs_a_phase(place: Place) -> bool:
    return place.module == "_pytest.runner" and place.function.startswith("pytest_runtest_")


def _is_harness(place: Place) -> bool:
    return place.module.partition(".")[0] in _HARNESS


def _place(frame: FrameType, line: int, root: str) -> Place:
    code = frame.f_code
    return Place(
        file=_shown(code.co_filename, root),
        line=line,
        module=str(frame.f_globals.get("__name__", "?")),
        function=code.co_qualname,
        source=linecache.getline(code.co_filename, line, frame.f_globals).strip(),
    )


def _shown(path: str, root: str) -> str:
    return path[len(root) + 1 :] if path.startswith(root + os.sep) else path


def _is_in(stack: Stack, file: str) -> bool:
    return any(place.file == file for place in stack.places)


def _own(places: Sequence[Place], file: str) -> Place | None:
    inner = places[-1] if places else None
    return next((place for place in reversed(places) if place.file == file), inner)


def _where(places: Sequence[Place], file: str) -> str:
    own = _own(places, file)
    if own is None:
        return ""
    inner = places[-1]
    told = f"{own.file}:{own.line}: {own.source}".removesuffix(": ")
    return told if own is inner else f"{told} -> {inner.module}.{inner.function}"


def _belongs(frame: FrameType, turn: Turn) -> bool:
    """Whether a thread was started by the turn: `carrying` has it at the foot of the stack."""
    inner: FrameType | None = frame
    while inner is not None:
        if inner.f_globals.get("__name__") == "paraval.pytest_plugin.running.current_test":
            return any(_is_of(value, turn) for value in inner.f_locals.values())
        inner = inner.f_back
    return False


def _is_of(value: object, turn: Turn) -> bool:
    return value is turn or (isinstance(value, contextvars.Context) and value.get(CURRENT) is turn)


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
