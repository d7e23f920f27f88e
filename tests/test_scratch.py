"""A run's scratch place: its own while it lives, nothing of it afterwards, whatever happened."""

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
from typing import Any

import pytest

from paraval.errors import StoreError
from paraval.processes.quick import QuickResult
from paraval.runner.attempt_dirs import open_attempt_dirs
from paraval.scratch import (
    SCRATCH_VARIABLE,
    Homes,
    OwnHome,
    Scratch,
    clear_dead,
    open_scratch,
    remove_tree,
    scratch_folder,
)


def _leave_a_file(folder: str) -> None:
    Path(folder, "left").touch()


def _is_there(folder: str) -> bool:
    return Path(folder).exists()


def _contents(folder: str | Path) -> list[Path]:
    return list(Path(folder).iterdir())


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "base"
    monkeypatch.setenv(SCRATCH_VARIABLE, str(place))
    return place


def test_nothing_is_left_of_a_scratch_folder(base: Path) -> None:
    with scratch_folder() as scratch:
        (scratch.folder / "a" / "b").mkdir(parents=True)
        assert scratch.folder.parent == base
    assert list(base.iterdir()) == []


def test_a_folder_whose_owner_was_killed_is_cleared_by_the_next(base: Path) -> None:
    script = textwrap.dedent(
        """
        import os, signal
        from paraval.scratch import open_scratch
        scratch = open_scratch()
        (scratch.folder / "left").write_text("behind")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(base.iterdir())) == 1
    with scratch_folder() as scratch:
        assert list(base.iterdir()) == [scratch.folder]


def test_what_cannot_be_removed_now_is_found_again(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone may still write there while it is removed: the lock must not be gone before."""
    scratch = open_scratch()
    (scratch.folder / "busy").mkdir()
    (scratch.folder / "quiet").mkdir()
    real = shutil.rmtree

    def fails_on_busy(path: Path) -> None:
        if path.name == "busy":
            raise OSError("Directory not empty")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr("paraval.scratch.shutil.rmtree", fails_on_busy)
        patch.setattr("paraval.scratch.run_quickly", lambda *_, **__: QuickResult(exit_code=1))
        assert "busy" in (scratch.close() or "")
    assert (scratch.folder / "owner.lock").exists()
    assert clear_dead(base) == 1
    assert list(base.iterdir()) == []


def test_a_folder_whose_owner_lives_is_left_alone(base: Path) -> None:
    with scratch_folder() as first, scratch_folder() as second:
        assert clear_dead(base) == 0
        assert first.folder.exists()
        assert second.folder.exists()


def test_strangers_folders_and_links_are_left_alone(base: Path, tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "owner.lock").touch()
    base.mkdir()
    (base / f"paraval-{os.getuid()}-link").symlink_to(treasure)
    (base / f"paraval-{os.getuid()}-nolock").mkdir()
    with scratch_folder():
        pass
    assert treasure.exists()
    assert {path.name for path in base.iterdir()} == {
        f"paraval-{os.getuid()}-link",
        f"paraval-{os.getuid()}-nolock",
    }


def test_a_place_that_cannot_be_written_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(StoreError) as caught:
        open_scratch()
    assert SCRATCH_VARIABLE in (caught.value.hint or "")


def test_a_tree_is_removed_whatever_was_done_to_it(tmp_path: Path) -> None:
    """Links are not followed, permissions don't help, and no depth is too deep."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    tree = tmp_path / "tree"
    closed = tree / "closed"
    closed.mkdir(parents=True)
    (closed / "file").touch()
    (tree / "link").symlink_to(outside)
    os.mkfifo(tree / "pipe")
    os.mkfifo(tmp_path / "pipe")
    closed.chmod(0)
    here = Path.cwd()
    try:
        os.chdir(tree)
        for _ in range(1500):
            Path("deep").mkdir()
            os.chdir("deep")
    finally:
        os.chdir(here)
    assert remove_tree(tree) is None
    assert remove_tree(tmp_path / "pipe") is None
    assert not tree.exists()
    assert (outside / "kept").exists()


def test_another_name_of_somebody_elses_file_keeps_its_mode(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.touch(mode=0o400)
    here = Path.cwd()
    try:
        (tmp_path / "tree").mkdir()
        os.chdir(tmp_path / "tree")
        for _ in range(1500):
            Path("deep").mkdir()
            os.chdir("deep")
        os.link(mine, "link")
    finally:
        os.chdir(here)
    assert remove_tree(tmp_path / "tree") is None
    assert mine.stat().st_mode & 0o777 == 0o400


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_what_was_mounted_in_a_tree_is_not_removed_with_it(tmp_path: Path) -> None:
    victim = tmp_path / "somebody else's"
    victim.mkdir()
    (victim / "data").touch()
    place = tmp_path / "tree" / "a b"
    place.mkdir(parents=True)
    mounted = subprocess.run(["mount", "--bind", victim, place], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode()}")
    assert remove_tree(tmp_path / "tree") is None
    assert (victim / "data").exists()


def test_removing_what_is_not_there_is_no_failure(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "nothing") is None


def test_each_attempt_has_a_home_of_its_own_and_untouched_ones_are_used_again(
    tmp_path: Path,
) -> None:
    async def attempts() -> None:
        homes = Homes(tmp_path)
        async with homes.lease() as one, homes.lease() as other:
            assert len({one.home, one.temp, other.home, other.temp}) == 4
        async with homes.lease() as again:
            assert again in (one, other)
            _leave_a_file(again.temp)
        assert not _is_there(again.temp)
        async with homes.lease() as clean:
            assert _contents(clean.home) == _contents(clean.temp) == []
        homes.close()
        assert _contents(str(tmp_path / "homes")) == []

    asyncio.run(attempts())


@pytest.mark.parametrize("deed", ["mode", "beside", "replaced"])
def test_a_home_that_was_tampered_with_is_nobody_elses(tmp_path: Path, deed: str) -> None:
    def tamper(own: OwnHome) -> None:
        home = Path(own.home)
        if deed == "mode":
            home.chmod(0o500)
        elif deed == "beside":
            (home.parent / "note").touch()
        else:
            home.rmdir()
            home.symlink_to(own.temp)

    async def attempts() -> None:
        homes = Homes(tmp_path)
        async with homes.lease() as own:
            tamper(own)
        async with homes.lease() as clean:
            assert clean != own
            assert not _is_there(own.home)

    asyncio.run(attempts())


def test_a_cancelled_attempt_leaves_no_home(tmp_path: Path) -> None:
    async def attempts() -> None:
        homes = Homes(tmp_path)

        async def attempt() -> None:
            async with homes.lease() as own:
                _leave_a_file(own.home)
                await asyncio.sleep(60)

        task = asyncio.create_task(attempt())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        assert _contents(tmp_path / "homes") == []

    asyncio.run(attempts())


def test_what_its_maker_was_killed_with_before_it_was_locked_is_cleared(tmp_path: Path) -> None:
    """A living maker's, and one that is just being made, are left alone."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead = tmp_path / f"paraval-{os.getuid()}-{gone.pid}-abc"
    alive = tmp_path / f"paraval-{os.getuid()}-{os.getpid()}-abc"
    fresh = tmp_path / f"paraval-{os.getuid()}-{gone.pid}-new"
    for folder in (dead, alive, fresh):
        folder.mkdir()
        (folder / "stage").write_text("")
    for folder in (dead, alive):
        os.utime(folder, (0, 0))
    assert clear_dead(tmp_path) == 1
    assert sorted(path for path in tmp_path.iterdir()) == sorted([alive, fresh])


def test_a_run_that_is_cancelled_as_its_folder_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path))
    begun = threading.Event()

    def slowly() -> Scratch:
        begun.set()
        time.sleep(0.1)
        return open_scratch()

    async def cancel() -> None:
        nothing: Any = None
        attempt_dirs = open_attempt_dirs(
            nothing, warden=nothing, at_most=1, hidden=nothing, say=print
        )
        opening = asyncio.ensure_future(attempt_dirs.__aenter__())
        await asyncio.to_thread(begun.wait, 10)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    monkeypatch.setattr("paraval.runner.attempt_dirs.open_scratch", slowly)
    asyncio.run(cancel())
    assert list(tmp_path.iterdir()) == []
