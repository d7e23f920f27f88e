"""Blocking functions called from asyncio: threads, and the environment of children."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from paraval.environment import child_environment
from paraval.threads import FunctionExit, Threads


@pytest.fixture
def threads() -> Iterator[Threads]:
    pool = Threads()
    yield pool
    pool.close()


def our_threads() -> int:
    return sum(thread.name == "paraval-call" for thread in threading.enumerate())


async def until(condition: threading.Event) -> None:
    while not condition.is_set():  # noqa: ASYNC110 - it is set by a thread, not on this loop
        await asyncio.sleep(0.001)


def test_a_call_brings_back_what_the_function_returns(threads: Threads) -> None:
    assert asyncio.run(threads.call(lambda: 6 * 7)) == 42


def test_none_is_a_result_like_any_other(threads: Threads) -> None:
    assert asyncio.run(threads.call(lambda: None)) is None


def test_an_exception_comes_back_with_its_own_traceback(threads: Threads) -> None:
    def fails() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost") as caught:
        asyncio.run(threads.call(fails))
    assert caught.traceback[-1].name == "fails"


@pytest.mark.parametrize(
    ("error", "code"),
    [(SystemExit(3), 3), (KeyboardInterrupt(), None), (asyncio.CancelledError(), None)],
)
def test_a_function_that_would_end_the_engine_is_an_error_of_its_own(
    threads: Threads, error: BaseException, code: object
) -> None:
    def leaves() -> None:
        raise error

    with pytest.raises(FunctionExit) as caught:
        asyncio.run(threads.call(leaves))
    assert caught.value.code == code
    assert asyncio.run(threads.call(lambda: "still here")) == "still here"


def test_stop_iteration_does_not_hang_the_caller(threads: Threads) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(threads.call(lambda: next(iter(()))))


def test_as_many_calls_run_at_once_as_there_are(threads: Threads) -> None:
    everybody = threading.Barrier(50, timeout=30)

    async def all_of_them() -> None:
        await asyncio.gather(*(threads.call(everybody.wait) for _ in range(50)))

    asyncio.run(all_of_them())  # The barrier breaks, and a call raises, unless all 50 meet in it.


def test_idle_threads_are_used_again(threads: Threads) -> None:
    async def one_after_the_other() -> set[int]:
        return {await threads.call(threading.get_ident) for _ in range(100)}

    before = our_threads()
    assert len(asyncio.run(one_after_the_other())) == 1
    assert our_threads() <= before + 1


def test_no_more_than_the_limit_run_at_once_and_all_get_their_turn() -> None:
    threads = Threads(limit=3)
    running: list[int] = []
    most: list[int] = []

    def work() -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.002)
        running.pop()

    async def many() -> None:
        await asyncio.gather(*(threads.call(work) for _ in range(40)))

    asyncio.run(many())
    threads.close()
    assert len(most) == 40
    assert max(most) <= 3


def test_a_cancelled_caller_leaves_the_thread_behind_at_once(threads: Threads) -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def hangs() -> None:
        begun.set()
        release.wait(30)
        ended.set()
        raise ValueError("too late to matter")

    async def give_up() -> None:
        call = asyncio.create_task(threads.call(hangs))
        await until(begun)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert threads.left_behind == 1
        assert not ended.is_set()
        assert await threads.call(lambda: "replaced") == "replaced"
        release.set()
        await until(ended)
        assert await threads.call(lambda: "and fine") == "and fine"

    asyncio.run(give_up())
    assert threads.left_behind == 1


def test_a_thread_left_behind_makes_room_for_a_waiting_call() -> None:
    threads = Threads(limit=1)
    begun, release = threading.Event(), threading.Event()

    def hangs() -> None:
        begun.set()
        release.wait(30)

    async def give_up() -> str:
        hung = asyncio.create_task(threads.call(hangs))
        await until(begun)
        waiting = asyncio.create_task(threads.call(lambda: "my turn"))
        await asyncio.sleep(0)
        hung.cancel()
        return await asyncio.wait_for(waiting, 10)

    try:
        assert asyncio.run(give_up()) == "my turn"
    finally:
        release.set()
        threads.close()


def test_a_call_given_up_before_it_began_never_runs() -> None:
    threads = Threads(limit=1)
    begun, release, ran = threading.Event(), threading.Event(), threading.Event()

    def holds() -> None:
        begun.set()
        release.wait(30)

    async def withdraw() -> None:
        first = asyncio.create_task(threads.call(holds))
        await until(begun)
        second = asyncio.create_task(threads.call(ran.set))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        release.set()
        await first
        await threads.call(lambda: None)

    asyncio.run(withdraw())
    threads.close()
    assert not ran.is_set()
    assert threads.left_behind == 0


def test_the_callers_context_is_seen_but_not_changed(threads: Threads) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    def look_and_set() -> str:
        seen = variable.get()
        variable.set("inside")
        return seen

    async def both() -> tuple[str, str]:
        variable.set("outside")
        return await threads.call(look_and_set), variable.get()

    assert asyncio.run(both()) == ("outside", "outside")


def test_the_same_threads_serve_one_event_loop_after_another(threads: Threads) -> None:
    assert [asyncio.run(threads.call(lambda: number)) for number in range(3)] == [0, 1, 2]  # noqa: B023 - called at once


def test_an_idle_thread_keeps_no_result_alive(threads: Threads) -> None:
    class Big:
        pass

    result = asyncio.run(threads.call(Big))
    gone = weakref.ref(result)
    del result
    deadline = time.monotonic() + 10
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
    assert gone() is None


def test_calls_that_end_together_wake_the_loop_once(threads: Threads) -> None:
    woken = []

    async def many() -> list[int]:
        loop = asyncio.get_running_loop()
        wake, ready = loop.call_soon_threadsafe, threading.Barrier(21)

        def counted(*arguments: Any, **named: Any) -> Any:
            woken.append(1)
            return wake(*arguments, **named)

        def work(number: int) -> int:
            ready.wait(10)
            return number

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]  # to count
        calls = [asyncio.ensure_future(threads.call(partial(work, n))) for n in range(20)]
        await asyncio.sleep(0)
        # The loop stands still until all have ended, as one that is busy does.
        ready.wait(10)
        while len(threads._returned.get(loop, ())) < 20:
            time.sleep(0.001)  # noqa: ASYNC251 - see above
        return await asyncio.gather(*calls)

    assert asyncio.run(many()) == list(range(20))
    assert len(woken) == 1


def test_a_loop_that_has_gone_leaves_nothing_behind(threads: Threads) -> None:
    ended, go_on = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(10)
        ended.set()

    async def leave() -> None:
        asyncio.ensure_future(threads.call(work))  # noqa: RUF006 - left on purpose
        await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    pending = asyncio.all_tasks(loop)
    loop.close()
    go_on.set()
    assert ended.wait(10)
    until = time.monotonic() + 10
    while threads._returned and time.monotonic() < until:
        time.sleep(0.01)
    assert not threads._returned
    for task in pending:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is, on purpose


def test_close_lets_idle_threads_go_and_refuses_more_calls() -> None:
    threads = Threads()
    ident = asyncio.run(threads.call(threading.current_thread))
    threads.close()
    ident.join(10)
    assert not ident.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(threads.call(lambda: None))


def test_a_thread_that_is_busy_at_close_goes_when_its_function_ends() -> None:
    threads = Threads()
    begun, release = threading.Event(), threading.Event()

    def holds() -> threading.Thread:
        begun.set()
        release.wait(30)
        return threading.current_thread()

    async def close_meanwhile() -> threading.Thread:
        call = asyncio.create_task(threads.call(holds))
        await until(begun)
        threads.close()
        release.set()
        return await call

    thread = asyncio.run(close_meanwhile())
    thread.join(10)
    assert not thread.is_alive()


def test_a_hung_thread_does_not_hold_the_process_at_its_exit() -> None:
    program = """
import asyncio, time
from paraval.threads import Threads
async def main():
    threads = Threads()
    try:
        await asyncio.wait_for(threads.call(lambda: time.sleep(600)), 0.05)
    except asyncio.TimeoutError:
        print("timed out,", threads.left_behind, "left behind")
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "timed out, 1 left behind\n"
    assert ended.stderr == ""


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        Threads(limit=0)


def test_a_child_gets_allowed_names_and_what_it_is_sent_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "SECRET": "s",
        "API_KEY": "k",
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.delenv("NOT_SET", raising=False)
    made = child_environment({"GREETING": "hi"}, ["API_KEY", "NOT_SET"], {"MARK": "1"})
    assert made["PATH"] == "/bin"
    assert made["LC_ALL"] == "C.UTF-8"
    assert made["API_KEY"] == "k"
    assert (made["GREETING"], made["MARK"]) == ("hi", "1")
    assert not {"SECRET", "TERM", "NOT_SET"} & made.keys()


def test_what_is_sent_wins_over_what_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert child_environment({"TZ": "CET"}, ["TZ"])["TZ"] == "CET"
    assert child_environment({"TZ": "CET"}, (), {"TZ": "EST"})["TZ"] == "EST"
