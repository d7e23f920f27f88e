"""The pool of workspaces: never too many, in turn, none lost, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from paraval.errors import TransientError
from paraval.scratch import SCRATCH_VARIABLE, open_scratch
from paraval.threads import Threads
from paraval.workspaces.pool import LeaseLimit
from paraval.workspaces.slots import Slot
from paraval.workspaces.workspace import KeptWorkspace, Lease, WorkspaceError

from .workspace_kit import (  # noqa: F401 - fixtures, used by their names
    attempts,
    fingerprint,
    git,
    kept_in_fixture,
    opened,
    repository_fixture,
    run,
    scratch_fixture,
    worktrees,
)


@pytest.mark.parametrize("at_most", [1, 2])
def test_there_are_never_more_than_asked_for_and_who_comes_first_is_served_first(
    repository: Path, scratch: Path, at_most: int
) -> None:
    async def main() -> tuple[list[int], set[str], int]:
        order: list[int] = []
        tops: set[str] = set()
        now = most = 0

        async def attempt(number: int) -> None:
            nonlocal now, most
            lease = await pool.lease()
            order.append(number)
            now += 1
            most = max(most, now)
            tops.add(lease.top)
            (Path(lease.top) / "a.txt").write_text(f"{number}\n")
            await asyncio.sleep(0.01)
            assert (Path(lease.top) / "a.txt").read_text() == f"{number}\n"
            now -= 1
            await lease.release()
            await lease.release()  # Once is enough, twice does no harm.

        async with opened(worktrees(repository), scratch, at_most) as pool:
            await asyncio.gather(*(attempt(number) for number in range(50)))
        return order, tops, most

    order, tops, most = run(main())
    assert (most, len(tops)) == (at_most, at_most)
    assert sorted(order) == list(range(50))
    # Two are made ready at once, and the second may be ready first.
    assert at_most > 1 or order == sorted(order)


def test_a_cancelled_lease_loses_no_slot_wherever_it_is_cancelled(
    repository: Path, scratch: Path
) -> None:
    async def main() -> None:
        async def attempt() -> None:
            lease = await pool.lease()
            try:
                (Path(lease.top) / "y.log").unlink()
                await asyncio.sleep(0.005)
            finally:
                await lease.release()

        setup = ("sh", "-c", "sleep 0.02; echo x > y.log")
        async with opened(worktrees(repository, setup=setup), scratch, 2) as pool:
            for step in range(25):
                tasks = [asyncio.create_task(attempt()) for _ in range(4)]
                await asyncio.sleep(step * 0.004)
                for task in tasks[: 1 + step % 4]:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
                assert {type(end) for end in ends} <= {type(None), asyncio.CancelledError}
            # Both are still there to be had.
            first, second = await asyncio.gather(pool.lease(), pool.lease())
            assert first.top != second.top
            await first.release()
            await second.release()

    run(main())


def test_a_slot_that_cannot_be_made_lowers_the_pool_and_does_not_end_the_run(
    repository: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Slot.make

    def make_some(slot: Slot) -> None:
        if slot.place.number % 2 == 0:
            raise OSError(28, "No space left on device")
        make(slot)

    monkeypatch.setattr(Slot, "make", make_some)

    async def main() -> set[str]:
        tops: set[str] = set()

        async def attempt() -> None:
            lease = await pool.lease()
            tops.add(lease.top)
            await asyncio.sleep(0.001)
            await lease.release()

        async with opened(worktrees(repository), scratch, 6) as pool:
            await asyncio.gather(*(attempt() for _ in range(30)))
        return tops

    assert 1 <= len(run(main())) <= 6


def test_one_failure_does_not_make_the_run_serial(
    repository: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Slot.make

    def make_but_the_first(slot: Slot) -> None:
        if slot.place.number == 1:
            raise OSError(5, "Input/output error")
        make(slot)

    monkeypatch.setattr(Slot, "make", make_but_the_first)

    async def main() -> int:
        async with opened(worktrees(repository), scratch, 4) as pool:
            with pytest.raises(WorkspaceError, match="Input/output error"):
                await pool.lease()
            leases = await asyncio.gather(*(pool.lease() for _ in range(4)))
            tops = {lease.top for lease in leases}
            for lease in leases:
                await lease.release()
            return len(tops)

    assert run(main()) == 4


@given(
    at_most=st.integers(1, 40),
    events=st.lists(st.tuples(st.sampled_from(["fail", "new", "again"]), st.integers(0, 40))),
)
def test_room_stays_between_what_works_and_what_was_asked_for(
    at_most: int, events: list[tuple[str, int]]
) -> None:
    room = LeaseLimit(at_most)
    for event, number in events:
        before, working = room.size, min(number, room.size)
        if event == "fail":
            room.lower(working)
            assert max(1, working) <= room.size <= before
        else:
            room.raise_after(is_new=event == "new")
            assert before <= room.size <= before + 1
        assert 1 <= room.size <= at_most
    for _ in range(at_most):
        room.raise_after(is_new=True)
    assert room.size == at_most


def test_a_machine_without_room_for_a_thread_has_no_workspace_for_now(
    repository: Path, scratch: Path, kept_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def no_room(threads: Threads) -> None:
        raise TransientError("the machine cannot start another thread")

    async def main() -> None:
        async with opened(worktrees(repository), scratch, 2) as pool:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refuse)
                with pytest.raises(WorkspaceError, match="cannot start another thread"):
                    await pool.lease()
            lease = await pool.lease()
            await lease.release()
        with monkeypatch.context() as patched:
            patched.setattr(Threads, "_start_thread", no_room)
            with pytest.raises(WorkspaceError, match="cannot start another thread"):
                async with opened(worktrees(repository), scratch, 2):
                    pytest.fail("there is no workspace to be had")

    run(main())


def test_opening_that_is_cancelled_does_not_wait_for_a_git_that_stalls(
    repository: Path, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall_git(tmp_path, "ls-tree", monkeypatch)

    async def main() -> None:
        async def open_them() -> None:
            async with opened(worktrees(repository), scratch, 1):
                pytest.fail("there is no workspace to be had")

        opening = asyncio.create_task(open_them())
        while not (tmp_path / "stalls").exists():  # noqa: ASYNC110 - another program tells
            await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    started = time.monotonic()
    run(main())
    assert time.monotonic() - started < 20


def stall_git(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git that stands still at one command, and tells so by a file."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "git"
    program.write_text(
        f"""#!/bin/sh
        case "$*" in *{command}*) touch {folder}/stalls; sleep 100 ;; esac
        exec {shutil.which("git")} "$@"
        """
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


def test_closing_does_not_wait_for_a_git_that_stalls(
    repository: Path, scratch: Path, kept_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stall_git(tmp_path, "update-index", monkeypatch)

    async def main() -> KeptWorkspace:
        async with opened(worktrees(repository), scratch, 1) as pool:
            lease = await pool.lease()
            (Path(lease.top) / "a.txt").write_text("edited\n")
            keeping = asyncio.create_task(lease.keep(kept_in))
            while not (tmp_path / "stalls").exists():  # noqa: ASYNC110 - another program tells
                await asyncio.sleep(0.01)
            started = time.monotonic()
            await pool.close()
            assert time.monotonic() - started < 20
            return await keeping

    assert "the run ended" in (run(main()).change.unknown or "")


def test_only_when_no_slot_can_be_made_at_all_is_it_an_error(
    repository: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Slot.make
    is_full = True

    def make_none(slot: Slot) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        make(slot)

    monkeypatch.setattr(Slot, "make", make_none)

    async def main() -> None:
        nonlocal is_full
        async with opened(worktrees(repository), scratch, 4) as pool:
            ends = await asyncio.gather(*(pool.lease() for _ in range(9)), return_exceptions=True)
            for error in ends:
                assert isinstance(error, WorkspaceError)
                assert f"no space left in {scratch.parent}" in str(error)
                assert "PARAVAL_SCRATCH names another place" in str(error)
                assert not error.lasting
            is_full = False
            lease = await pool.lease()
            await lease.release()

    run(main())


def test_a_commit_whose_objects_are_missing_is_told_as_that(
    repository: Path, scratch: Path
) -> None:
    blob = git(repository, "rev-parse", "HEAD:a.txt")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()

    async def work(lease: Lease) -> None:
        pytest.fail("there is no workspace to be had")

    with pytest.raises(WorkspaceError, match="objects are missing") as caught:
        run(attempts(worktrees(repository), scratch, work))
    assert caught.value.lasting


def test_a_repository_that_is_gone_is_told_to_last(repository: Path, scratch: Path) -> None:
    async def main() -> None:
        async with opened(worktrees(repository), scratch, 2) as pool:
            lease = await pool.lease()
            shutil.rmtree(repository)
            with pytest.raises(WorkspaceError) as caught:
                await pool.lease()
            assert caught.value.lasting
            await lease.release()

    run(main())


def test_closing_ends_what_waits_and_what_is_being_made(
    repository: Path, scratch: Path, kept_in: str
) -> None:
    async def main() -> None:
        setup = ("sleep", "60")
        async with opened(worktrees(repository, setup=setup), scratch, 1) as pool:
            waiting = [asyncio.create_task(pool.lease()) for _ in range(3)]
            await asyncio.sleep(0.3)
            started = time.monotonic()
            await pool.close()
            ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert time.monotonic() - started < 20
            assert all(isinstance(end, WorkspaceError) for end in ends)
            with pytest.raises(WorkspaceError, match="the run has ended"):
                await pool.lease()

    run(main())

    async def late() -> None:
        async with opened(worktrees(repository), scratch, 1) as pool:
            lease = await pool.lease()
        assert "the run ended" in ((await lease.keep(kept_in)).change.unknown or "")
        await lease.release()

    run(late())


def left_after_clearing(base: Path) -> list[Path]:
    """A git that the dead engine had started may go on for a moment, and then all is cleared."""
    deadline = time.monotonic() + 20
    while True:
        scratch = open_scratch()
        left = [path for path in base.iterdir() if path != scratch.folder]
        scratch.close()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def test_an_engine_that_is_killed_leaves_nothing_that_the_next_one_does_not_clear(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from paraval.records import Workspace, WorkspaceKind
        from paraval.processes.children import Warden
        from paraval.scratch import open_scratch
        from paraval.workspaces.opening import open_workspaces

        async def main():
            scratch = open_scratch()
            workspace = Workspace(kind=WorkspaceKind.GIT, source=sys.argv[1])
            async with Warden() as warden, open_workspaces(
                workspace, scratch=scratch.folder, warden=warden, at_most=3
            ) as pool:
                async def attempts():
                    while True:
                        lease = await pool.lease()
                        Path(lease.top, "new.txt").write_text("new")
                        await lease.keep(str(scratch.folder))
                        await lease.release()
                        print("leased", flush=True)
                await asyncio.gather(*(attempts() for _ in range(4)))

        asyncio.run(main())
    """)
    before = fingerprint(repository)
    base = tmp_path / "base"
    base.mkdir()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(base))
    for count in (1, 3, 7):
        engine = subprocess.Popen(
            [sys.executable, "-c", script, str(repository)],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with engine:
            assert engine.stdout is not None
            for _ in range(count):
                assert engine.stdout.readline() == b"leased\n"
            os.kill(engine.pid, signal.SIGKILL)
        assert len(list(base.iterdir())) == 1
        assert left_after_clearing(base) == []
    assert fingerprint(repository) == before
