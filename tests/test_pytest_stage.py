"""The main thread's jobs: in their order, none lost, however the session ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from paraval.pytest_plugin.session.main_thread import Stage


def served(stage: Stage) -> None:
    stage.serve(lambda: None, every_s=60)


def test_small_jobs_are_done_in_their_order_and_before_an_urgent_one() -> None:
    stage, done = Stage(), []
    for number in range(5):
        stage.post_unhurried(lambda number=number: done.append(number))  # type: ignore[misc]  # mypy can't see a default
    stage.post(lambda: done.append("urgent"))
    stage.close()
    served(stage)
    assert done == [0, 1, 2, 3, 4, "urgent"]


def test_small_jobs_that_come_before_the_end_are_done_at_the_end() -> None:
    stage, done = Stage(), []
    stage.post(lambda: stage.post_unhurried(lambda: done.append("late")))
    stage.close()
    served(stage)
    assert done == ["late"]


def test_a_small_job_needs_nobody_to_wake_the_main_thread() -> None:
    stage, done = Stage(), threading.Event()
    server = threading.Thread(target=served, args=(stage,), daemon=True)
    server.start()
    stage.post_unhurried(done.set)
    assert done.wait(5)
    stage.close()
    server.join(5)
    assert not server.is_alive()


def test_after_an_error_what_is_left_is_still_done() -> None:
    stage, done = Stage(), []
    stage.end(RuntimeError("broken"))
    stage.post(lambda: done.append("urgent"))
    with pytest.raises(RuntimeError, match="broken"):
        served(stage)
    stage.post_unhurried(lambda: done.append("small"))
    stage.do_what_is_left()
    assert done == ["small", "urgent"]


def test_whoever_asks_from_the_loop_gets_the_value_or_the_error() -> None:
    stage = Stage()

    async def ask() -> list[object]:
        found: list[object] = [await stage.call(lambda: 42)]
        with pytest.raises(ValueError, match="no"):
            await stage.call(lambda: int("no"))
        stage.close()
        return found

    found: list[object] = []
    asking = threading.Thread(target=lambda: found.extend(asyncio.run(ask())), daemon=True)
    asking.start()
    served(stage)
    asking.join(5)
    assert found == [42]
