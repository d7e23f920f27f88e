"""Figures of worktrees, each against bare git in the same run: `make bench`.

A lease gives a clean worktree after a typical attempt: a few edits, a few new files, some ignored.
Bare git does the same in an equal checkout with `git reset --hard && git clean -ffdx`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from figures import say

from paraval.errors import ParavalError
from paraval.git.repositories import find_repository, resolve, tree_of
from paraval.processes.children import Warden
from paraval.records import Workspace, WorkspaceKind
from paraval.scratch import scratch_folder
from paraval.workspaces.opening import open_workspaces

FOLDERS, FILES_EACH = 40, 50
LINES = 100


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def make_repository(folder: Path) -> None:
    """2,000 files, in folders of 50."""
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("*.pyc\nbuild/\n")
    for i in range(FOLDERS):
        inner = folder / f"package{i}"
        inner.mkdir()
        for j in range(FILES_EACH):
            lines = (f"line {k} of module {j} of package {i}\n" for k in range(LINES))
            (inner / f"module{j}.py").write_text("".join(lines))
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "2,000 files")


def dirty(folder: Path, seed: int) -> None:
    """What an attempt does: 5 edits, a deletion, 3 new files, and what running tests leaves."""
    for i in range(5):
        path = folder / f"package{(seed + i) % FOLDERS}" / f"module{(seed + i) % FILES_EACH}.py"
        path.write_text(path.read_text() + "edited\n")
    (folder / f"package{(seed + 9) % FOLDERS}" / "module0.py").unlink()
    (folder / "new").mkdir()
    for i in range(3):
        (folder / "new" / f"test_{i}.py").write_text("new\n")
    cache = folder / f"package{seed % FOLDERS}" / "__pycache__"
    cache.mkdir()
    for i in range(20):
        (cache / f"module{i}.pyc").write_bytes(b"compiled")
    (folder / "build").mkdir()
    (folder / "build" / "out.bin").write_bytes(b"built")


def clean_by_git(folder: Path) -> float:
    started = time.perf_counter()
    git(folder, "reset", "--hard", "-q")
    git(folder, "clean", "-ffdxq")
    return time.perf_counter() - started


def as_asked(repository: Path) -> Workspace:
    found = find_repository(repository)
    commit = resolve(found, "HEAD")
    tree = tree_of(found, commit)
    return Workspace(kind=WorkspaceKind.GIT, source=found.top, commit=commit, tree=tree)


async def lease_times(
    workspace: Workspace, scratch: Path, bare: Path, rounds: int
) -> tuple[float, float, float]:
    """The medians in seconds: a lease as attempts wait for it, a lease with all that is done for
    it, and bare git, one after the other in each round.

    New folders are put out of the way at once and removed behind the lease, by a thread that shares
    the machine with the attempt: the first figure leaves that out, the second waits for it.
    """
    ours, with_removal, theirs = [], [], []
    async with (
        Warden() as warden,
        open_workspaces(workspace, scratch=scratch, warden=warden, at_most=1) as workspaces,
    ):
        for seed in range(rounds):
            lease = await workspaces.lease()
            dirty(Path(lease.top), seed)
            await lease.release()
            started = time.perf_counter()
            lease = await workspaces.lease()
            ours.append(time.perf_counter() - started)
            await asyncio.to_thread(wait_until_emptied, scratch / "workspaces" / "trash")
            with_removal.append(time.perf_counter() - started)
            await lease.release()
            dirty(bare, seed)
            theirs.append(clean_by_git(bare))
    return statistics.median(ours), statistics.median(with_removal), statistics.median(theirs)


def wait_until_emptied(trash: Path) -> None:
    """What is put there is removed by threads of the pool."""
    while any(any(slot.iterdir()) for slot in trash.glob("*")):
        time.sleep(0.0005)


def clean_lease(repository: Path, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, scratch_folder() as scratch:
        bare = Path(folder, "bare")
        git(Path(folder), "clone", "-q", str(repository), str(bare))
        times = lease_times(as_asked(repository), scratch.folder, bare, rounds)
        lease_s, removed_s, git_s = asyncio.run(times)
    ratio = lease_s / git_s
    name = "clean worktree of 2,000 files, after an attempt"
    value = f"{ratio:.2f} x bare git ({1e3 * lease_s:.1f} ms, git {1e3 * git_s:.1f} ms)"
    say(name, value, "<= 1.2 x", reached=ratio <= 1.2)
    ratio = removed_s / git_s
    name = "  including removal in the background"
    say(name, f"{ratio:.2f} x bare git", "<= 1.3 x", reached=ratio <= 1.3)


def contents(folder: Path) -> dict[str, bytes]:
    """By path, what is in every file; of a folder, the names in it. All but `.git`."""
    found: dict[str, bytes] = {}
    pending = [""]
    while pending:
        within = pending.pop()
        with os.scandir(folder / within) as entries:
            names = {entry.name: entry for entry in entries if entry.name != ".git"}
        found[within] = "/".join(sorted(names)).encode()
        for name, entry in names.items():
            path = f"{within}{name}"
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{path}/")
            else:
                file = os.open(entry.path, os.O_RDONLY)
                found[path] = os.read(file, 1_000_000)
                os.close(file)
    return found


async def lease_many(
    workspace: Workspace, scratch: Path, leases: int, slots: int
) -> tuple[int, int]:
    """How many of them could not be had, and how many were not clean: every byte is looked at."""
    failures = unclean = 0
    expected = contents(Path(str(workspace.source)))
    async with (
        Warden() as warden,
        open_workspaces(workspace, scratch=scratch, warden=warden, at_most=slots) as workspaces,
    ):

        async def one(seed: int) -> None:
            nonlocal failures, unclean
            try:
                lease = await workspaces.lease()
                unclean += await asyncio.to_thread(contents, Path(lease.top)) != expected
                dirty(Path(lease.top), seed)
                await lease.release()
            except (OSError, ParavalError) as error:
                print(f"lease {seed}: {error}")
                failures += 1

        await asyncio.gather(*(one(seed) for seed in range(leases)))
    return failures, unclean


def many_leases(repository: Path, leases: int, slots: int) -> None:
    with scratch_folder() as scratch:
        started = time.perf_counter()
        leasing = lease_many(as_asked(repository), scratch.folder, leases, slots)
        failures, unclean = asyncio.run(leasing)
        wall_s = time.perf_counter() - started
        left = [path for path in scratch.folder.iterdir() if path.name != "owner.lock"]
    name = f"{leases:,} leases over {slots} slots"
    value = f"{failures} failed, {unclean} unclean, {len(left)} left, {wall_s:.1f} s"
    say(name, value, "none of all", reached=not (failures or unclean or left))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--leases", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=16)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        made = Path(place, "repository")
        make_repository(made)
        clean_lease(made, asked.rounds)
        many_leases(made, asked.leases, asked.slots)
