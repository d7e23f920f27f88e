"""The main thread's jobs: in their order, none lost, however the session ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from paraval.pytest_plugin.session.main_thread import MainThread


def served(main_thread: MainThread) -> None:
    main_thread.serve(lambda: None, every_s=60)


def test_small_jobs_are_done_in_their_order_and_before_an_urgent_one() -> None:
    main_thread, done = MainThread(), []
    for number in range(5):
        main_thread.post_later(lambda number=number: done.append(number))  # type: ignore[misc]  # mypy can't see a default
    main_thread.post(lambda: done.append("urgent"))
    main_thread.close()
    served(main_thread)
    assert done == [0, 1, 2, 3, 4, "urgent"]


def test_small_jobs_that_come_before_the_end_are_done_at_the_end() -> None:
    main_thread, done = MainThread(), []
    main_thread.post(lambda: main_thread.post_later(lambda: done.append("late")))
    main_thread.close()
    served(main_thread)
    assert done == ["late"]


def test_a_small_job_needs_nobody_to_wake_the_main_thread() -> None:
    main_thread, done = MainThread(), threading.Event()
    server = threading.Thread(target=served, args=(main_thread,), daemon=True)
    server.start()
    main_thread.post_later(done.set)
    assert done.wait(5)
    main_thread.close()
    server.join(5)
    assert not server.is_alive()


def test_after_an_error_what_is_left_is_still_done() -> None:
    main_thread, done = MainThread(), []
    main_thread.end(RuntimeError("broken"))
    main_thread.post(lambda: done.append("urgent"))
    with pytest.raises(RuntimeError, match="broken"):
        served(main_thread)
    main_thread.post_later(lambda: done.append("small"))
    main_thread.do_what_is_left()
    assert done == ["small", "urgent"]


def test_whoever_asks_from_the_loop_gets_the_value_or_the_error() -> None:
    main_thread = MainThread()

    async def ask() -> list[object]:
        found: list[object] = [await main_thread.call(lambda: 42)]
        with pytest.raises(ValueError, match="no"):
            await main_thread.call(lambda: int("no"))
        main_thread.close()
        return found

    found: list[object] = []
    asking = threading.Thread(target=lambda: found.extend(asyncio.run(ask())), daemon=True)
    asking.start()
    served(main_thread)
    asking.join(5)
    assert found == [42]
