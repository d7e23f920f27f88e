"""A run's scratch folder for what must not outlive it: worktrees, homes, temporary folders.

It is outside the store and every repository, so that no upward search finds anything in it. Its
owner holds a lock on it; the next run clears what a dead owner left.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.processes.identity import process_identity
from paraval.processes.quick import QuickResult, run_quickly

SCRATCH_VARIABLE = "PARAVAL_SCRATCH"
PREFIX = "paraval-"
LOCK = "owner.lock"
REMOVAL_PATIENCE_S = 120.0
NEVER_LOCKED_S = 0.3
"""After this many seconds, a folder without a lock is no longer being created."""
MOUNTS = Path("/proc/self/mountinfo")
OWN_MODE = stat.S_IFDIR | 0o700


class Scratch:
    """One folder, while its lock is held."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    def close(self) -> str | None:
        """Remove all of it; returns why something is left, if so."""
        left = _remove(self.folder)
        os.close(self._lock)
        return left


@contextmanager
def scratch_folder() -> Iterator[Scratch]:
    """A scratch folder for the duration of the block."""
    scratch = open_scratch()
    try:
        yield scratch
    finally:
        scratch.close()


def open_scratch() -> Scratch:
    """Create one, after clearing those of dead owners."""
    base = scratch_base()
    try:
        base.mkdir(parents=True, exist_ok=True)
        clear_dead(base)
        prefix = f"{PREFIX}{os.getuid()}-{os.getpid()}-"
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        lock = _locked(folder)
    except OSError as error:
        raise StoreError(
            f"cannot create a scratch folder in {base}: {error.strerror}",
            hint=f"free some space there, or name another folder in {SCRATCH_VARIABLE}",
        ) from error
    return Scratch(folder, lock)


def _locked(folder: Path) -> int:
    """The lock of a new folder, which gets its name only once locked: an unlocked one belongs to a
    dead owner."""
    unnamed = folder / f"{LOCK}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / LOCK)
    return lock


def scratch_base() -> Path:
    """PARAVAL_SCRATCH, or the system's folder for temporary files."""
    return Path(os.environ.get(SCRATCH_VARIABLE) or tempfile.gettempdir()).absolute()


def clear_dead(base: Path) -> int:
    """Remove this user's scratch folders whose owner is gone; returns how many."""
    cleared = 0
    for folder in base.glob(f"{PREFIX}{os.getuid()}-*"):
        lock = _lock_of_the_dead(folder)
        if lock is not None:
            cleared += _remove(folder) is None
            os.close(lock)
        elif _was_never_locked(folder):
            cleared += remove_tree(folder) is None
    return cleared


def _was_never_locked(folder: Path) -> bool:
    """Its creator was killed before locking it, or after the lock was removed with the rest."""
    maker = folder.name.removeprefix(f"{PREFIX}{os.getuid()}-").partition("-")[0]
    try:
        found = folder.lstat()
        if os.path.lexists(folder / LOCK) or found.st_uid != os.getuid() or not maker.isdecimal():
            return False
    except OSError:
        return False
    # Not immediately: the creator may be alive in another container, invisible from here.
    is_old = time.time() - found.st_mtime > NEVER_LOCKED_S
    return is_old and stat.S_ISDIR(found.st_mode) and process_identity(int(maker)) is None


def _remove(folder: Path) -> str | None:
    """The lock goes last, so that what cannot be removed now is found and cleared later."""
    try:
        within = [path for path in folder.iterdir() if path.name != LOCK]
    except OSError:
        within = []
    left = [reason for path in within if (reason := remove_tree(path)) is not None]
    return left[0] if left else remove_tree(folder)


def _lock_of_the_dead(folder: Path) -> int | None:
    """Take over its lock; None: its owner is alive, or it is not ours, or just being created."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def remove_tree(folder: str | Path) -> str | None:
    """Remove a folder and its contents, whatever their permissions.

    Links are removed, not followed. Returns None if nothing is left, else the reason.
    """
    path = Path(folder)
    # What is mounted there belongs to someone else: removing it would empty it.
    if mounted := unmount_below(path):
        return f"{path} could not be removed: {mounted[0]} is mounted there"
    with suppress(OSError, RecursionError):
        # Checked first: opening a pipe would block until its other end opens.
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
    if not os.path.lexists(path):
        return None
    # Folders without permissions, or nested too deep for Python. Not files: a hard link may be
    # shared with someone else's file.
    opening = ["find", str(path), "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx"]
    _quick(*opening, "{}", ";")
    complaint = _quick("rm", "-rf", "--", str(path)).stderr.splitlines()
    if not os.path.lexists(path):
        return None
    return f"{path} could not be removed" + (f": {complaint[-1]}" if complaint else "")


def unmount_below(folder: Path) -> list[str]:
    """Unmount what an attempt has mounted at or below a folder; returns what stays mounted."""
    mounted = _mounts_below(folder)
    while mounted:
        for place in mounted:
            _quick("umount", "--lazy", "--", place)
        # One mount may have hidden another.
        before, mounted = mounted, _mounts_below(folder)
        if len(mounted) >= len(before):
            break
    return mounted


def _mounts_below(folder: Path) -> list[str]:
    """Deepest first; empty if this system does not report mounts."""
    try:
        table = MOUNTS.read_bytes()
    except OSError:
        return []
    top = str(folder.parent.resolve() / folder.name)
    places = [_unescaped(line.split()[4]) for line in table.splitlines() if line.count(b" ") > 4]
    below = [place for place in places if place == top or place.startswith(f"{top}/")]
    return sorted(below, reverse=True)


def _unescaped(place: bytes) -> str:
    for escape, character in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n")):
        place = place.replace(escape, character)
    return os.fsdecode(place.replace(b"\\134", b"\\"))


def _quick(*argv: str) -> QuickResult:
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    return run_quickly(argv, env=env, timeout=REMOVAL_PATIENCE_S)


# ---- homes


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHome:
    """Two empty folders, absolute."""

    home: str
    temp: str


class Homes:
    """A home and a temporary folder per attempt; those left empty are reused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "homes"
        self._free: list[OwnHome] = []
        self._made = 0

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[OwnHome]:
        """One pair for the duration of the block; then it is removed."""
        own = self._free.pop() if self._free else self._make()
        try:
            yield own
        finally:
            if _is_untouched(own):
                self._free.append(own)
            else:
                # Without awaiting, so that a cancel cannot leave it behind.
                removal = asyncio.to_thread(remove_tree, Path(own.home).parent)
                await asyncio.shield(asyncio.ensure_future(removal))

    def close(self) -> None:
        """Remove the empty ones, which is quicker here than with the rest of the folder."""
        with suppress(OSError):
            for own in self._free:
                for path in (own.home, own.temp, os.path.dirname(own.home)):  # noqa: PTH120 - text, and quick
                    os.rmdir(path)  # noqa: PTH106 - quick

    def _make(self) -> OwnHome:
        self._made += 1
        place = self._folder / str(self._made)
        own = OwnHome(home=str(place / "home"), temp=str(place / "tmp"))
        for path in (own.home, own.temp):
            os.makedirs(path)  # noqa: PTH103 - quick, and in any loop
            # Not as the mode of mkdir: a umask may restrict that.
            os.chmod(path, 0o700)  # noqa: PTH101
        return own


def _is_untouched(own: OwnHome) -> bool:
    """Whether the two are still plain empty folders, with nothing beside them."""
    place = os.path.dirname(own.home)  # noqa: PTH120 - text, and quick
    try:
        if sorted(os.listdir(place)) != ["home", "tmp"]:  # noqa: PTH208
            return False
        return all(_is_empty(folder) for folder in (own.home, own.temp))
    except OSError:
        return False


def _is_empty(folder: str) -> bool:
    found = os.lstat(folder)
    if found.st_mode != OWN_MODE or found.st_uid != os.getuid():
        return False
    return not os.listdir(folder)  # noqa: PTH208 - quick
