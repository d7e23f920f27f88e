"""Figures of worktrees, each against bare git in the same run: `make bench`.

A lease gives a clean worktree after a typical attempt: a few edits, a few new files, some ignored.
Bare git does the same in an equal checkout with `git reset --hard && git clean -ffdx`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.repositories import find_repository, resolve, tree_of
from paraval.isolation import Workspace, WorkspaceKind
from paraval.processes.children import Warden
from paraval.scratch import scratch_folder
from paraval.workspaces.opening import open_workspaces

FOLDERS, FILES_EACH = 40, 50
LINES = 100


def say(name: str, value: str, goal: str, *, reached: bool) -> None:
    print(f"{'reached' if reached else 'MISSED ':8} {name:44} {value:34} goal: {goal}", flush=True)


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


async def lease_times(workspace: Workspace, scratch: Path, bare: Path, rounds: int) -> float:
    """The median of our times over the median of bare git's, one after the other in each round."""
    ours, theirs = [], []
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
            await lease.release()
            await asyncio.sleep(0.05)  # Folders are removed behind the lease: not in git's time.
            dirty(bare, seed)
            theirs.append(clean_by_git(bare))
    print(
        f"         {'':44} {statistics.median(ours) * 1e3:.1f} ms, bare git"
        f" {statistics.median(theirs) * 1e3:.1f} ms"
    )
    return statistics.median(ours) / statistics.median(theirs)


def clean_lease(repository: Path, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder, scratch_folder() as scratch:
        bare = Path(folder, "bare")
        git(Path(folder), "clone", "-q", str(repository), str(bare))
        ratio = asyncio.run(lease_times(as_asked(repository), scratch.folder, bare, rounds))
    name = "clean worktree of 2,000 files, after an attempt"
    say(name, f"{ratio:.2f} x reset --hard && clean -ffdx", "<= 1.3 x", reached=ratio <= 1.3)


async def lease_many(workspace: Workspace, scratch: Path, leases: int, slots: int) -> int:
    """How many of them were not clean or could not be had."""
    failures = 0
    async with (
        Warden() as warden,
        open_workspaces(workspace, scratch=scratch, warden=warden, at_most=slots) as workspaces,
    ):

        async def one(seed: int) -> None:
            nonlocal failures
            try:
                lease = await workspaces.lease()
                dirty(Path(lease.top), seed)
                await lease.release()
            except (OSError, ParavalError) as error:
                print(f"lease {seed}: {error}")
                failures += 1

        await asyncio.gather(*(one(seed) for seed in range(leases)))
    return failures


def many_leases(repository: Path, leases: int, slots: int) -> None:
    with scratch_folder() as scratch:
        started = time.perf_counter()
        failures = asyncio.run(lease_many(as_asked(repository), scratch.folder, leases, slots))
        wall_s = time.perf_counter() - started
        left = [path for path in scratch.folder.iterdir() if path.name != "owner.lock"]
    name = f"{leases:,} leases over {slots} slots"
    value = f"{failures} failed, {len(left)} left, {wall_s:.1f} s"
    say(name, value, "none failed, none left", reached=not failures and not left)


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
