"""Looks at the user's repository: as few as will do, and fair to whoever ran."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from paraval.racing.integrity.user_repo import Fingerprint, RepoWatch, UserRepo

from paraval.racing.integrity import user_repo

from .workspace_kit import repository_fixture  # noqa: F401 - a fixture

TAKES_S = 0.1


@pytest.fixture(name="looks")
def looks_fixture(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When looks began, at a repository that is as slow to look at as a large one."""
    began: list[float] = []

    class Large(UserRepo):
        def look(self) -> Fingerprint:
            began.append(time.monotonic())
            time.sleep(TAKES_S)
            return super().look()

    monkeypatch.setattr(user_repo, "UserRepo", Large)
    return began


def watching(repository: Path, work: Callable[[RepoWatch], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        watch = RepoWatch(str(repository), [])
        await watch.begin()
        await work(watch)

    asyncio.run(whole())


def test_steps_that_end_together_share_a_look(repository: Path, looks: list[float]) -> None:
    async def work(watch: RepoWatch) -> None:
        for index in range(40):
            watch.started(index)
        (repository / "new").write_text("x")
        found = await asyncio.gather(*map(watch.ended, range(40)))
        assert all("something else: new" in words for (words,) in found)
        assert len(looks) == 2

    watching(repository, work)


def test_steps_that_end_one_by_one_wait_a_little_for_one_another(
    repository: Path, looks: list[float]
) -> None:
    """Or all the time would be spent on looking."""

    async def work(watch: RepoWatch) -> None:
        async def step(index: int) -> None:
            watch.started(index)
            await asyncio.sleep(0.01 * index)
            assert await watch.ended(index) == ()

        await asyncio.gather(*map(step, range(100)))

    watching(repository, work)
    gaps = [after - before for before, after in itertools.pairwise(looks)]
    assert len(looks) < 20
    # The last ones have nobody left to wait for.
    assert all(gap > 2 * TAKES_S for gap in gaps[:-2])


def test_one_that_runs_alone_is_looked_after_at_once(repository: Path, looks: list[float]) -> None:
    """As all that is measured does: nobody waits, and nobody looks while the next one runs."""

    async def work(watch: RepoWatch) -> None:
        for index in range(5):
            watch.started(index)
            (repository / f"new-{index}").write_text("x")
            ended = time.monotonic()
            (words,) = await watch.ended(index)
            assert words.endswith(f"new-{index}")
            assert looks[-1] - ended < 2.5 * TAKES_S
            so_far = len(looks)
            await asyncio.sleep(2 * TAKES_S)
            assert len(looks) == so_far

    watching(repository, work)


def test_a_change_is_told_to_all_that_ran_then_and_to_none_that_came_later(
    repository: Path, looks: list[float]
) -> None:
    async def work(watch: RepoWatch) -> None:
        watch.started(1)
        watch.started(2)
        (repository / "new").write_text("x")
        (first,) = await watch.ended(1)
        watch.started(3)
        assert await watch.ended(3) == ()
        assert await watch.ended(2) == (first,)

    watching(repository, work)
    assert looks


def test_a_step_that_is_cancelled_leaves_the_look_to_the_others(
    repository: Path, looks: list[float]
) -> None:
    async def work(watch: RepoWatch) -> None:
        for index in range(3):
            watch.started(index)
        (repository / "new").write_text("x")
        tasks = [asyncio.create_task(watch.ended(index)) for index in range(3)]
        await asyncio.sleep(TAKES_S / 2)
        tasks[0].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert len(found[1]) == len(found[2]) == 1  # type: ignore[arg-type]  # no errors

    watching(repository, work)
    assert len(looks) == 3, "its own is given up, and the two others share one"
