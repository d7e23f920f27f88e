"""The `.git` in a worktree, for the attempt's own use: its commits stay there.

The engine reads it only to report changes beyond normal use of git.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.alternates import Lender, write_repository
from paraval.git.run_git import run_git
from paraval.scratch import remove_tree
from paraval.workspaces.inventory import Inventory, compare, mark_again, take_stock

_PLAIN_SECTIONS = frozenset(
    {
        *("advice", "alias", "branch", "color", "column", "commit", "fetch", "format", "init"),
        *("log", "notes", "pull", "push", "rebase", "remote", "rerere", "stash", "status"),
        *("submodule", "tag", "user"),
    }
)
_PLAIN_SETTINGS = frozenset(
    {
        *("core.abbrev", "core.autocrlf", "core.bare", "core.eol", "core.filemode"),
        *("core.ignorecase", "core.logallrefupdates", "core.precomposeunicode"),
        *("core.quotepath", "core.repositoryformatversion", "core.safecrlf"),
        *("core.sparsecheckout", "core.sparsecheckoutcone", "core.symlinks", "core.whitespace"),
        *("diff.algorithm", "diff.renames", "extensions.worktreeconfig", "gc.auto"),
        *("index.sparse", "merge.conflictstyle", "merge.ff"),
    }
)
"""Settings that people, agents and git itself change freely, and that cannot run a program."""
_PROGRAMS = frozenset({"receivepack", "uploadpack", "vcs"})
"""Settings of a remote that make git run a program."""
_REACHING_OUT = frozenset({"branch", "remote", "submodule"})
_BY_A_HELPER = re.compile(r"\s*[\w+.-]+::", re.ASCII)
"""An address such as `ext::sh -c x`, for which git runs a program."""
_LINKS_TO_NOWHERE_ELSE = ("HEAD", "config", "index", "objects", "refs", "info", "hooks")
_MOST_CONFIG_BYTES = 1_000_000


@dataclass(slots=True)
class OwnRepository:
    """As created for one slot."""

    git_dir: str
    stock: Inventory
    config: bytes
    alternates: bytes

    index_ns: int
    """When the index that it copies was written."""

    def is_untouched(self) -> bool:
        return not compare(os.fsencode(self.git_dir), self.stock)

    def take_index(self, index: str) -> None:
        """Copy this index if it is a new one: a stale one would make every `status` slow."""
        index_ns = Path(index).stat().st_mtime_ns
        if index_ns != self.index_ns:
            # Overwriting a file makes ext4 wait for the disk.
            Path(self.git_dir, "index").unlink()
            shutil.copy2(index, Path(self.git_dir, "index"))
            mark_again(os.fsencode(self.git_dir), self.stock, [b"index"])
            self.index_ns = index_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCommit:
    """What every slot's own repository starts from."""

    lender: Lender
    commit: str
    branch: str | None = None


def make_own_repository(top: str, beginning: FirstCommit, index: str) -> OwnRepository:
    """Create it anew, whatever is there; its index is a copy of this one. Raises OSError."""
    git_dir = Path(top, ".git")
    with suppress(OSError):
        # Not a folder: a pipe must not even be opened.
        git_dir.unlink()
    if os.path.lexists(git_dir) and (left := remove_tree(git_dir)) is not None:
        raise OSError(left)
    write_repository(git_dir, beginning.lender, head=beginning.commit, branch=beginning.branch)
    shutil.copy2(index, git_dir / "index")
    return OwnRepository(
        git_dir=str(git_dir),
        stock=take_stock(os.fsencode(git_dir)),
        config=(git_dir / "config").read_bytes(),
        alternates=(git_dir / "objects/info/alternates").read_bytes(),
        index_ns=Path(index).stat().st_mtime_ns,
    )


def tampering(own: OwnRepository) -> tuple[str, ...]:
    """Changes to it beyond normal use of git, in words."""
    git_dir = Path(own.git_dir)
    try:
        replaced = _replaced(git_dir)
    except PermissionError:
        # The workspace around it cannot be read; that is reported separately.
        return ()
    if replaced is not None:
        return (replaced,)
    if own.is_untouched():
        return ()
    told = [
        f"made .git/{name} a link"
        for name in _LINKS_TO_NOWHERE_ELSE
        if (git_dir / name).is_symlink()
    ]
    told += _config_tampering(git_dir / "config", own.config)
    if os.path.lexists(git_dir / "config.worktree"):
        told += _config_tampering(git_dir / "config.worktree", b"")
    told += _hooks(git_dir / "hooks")
    if _content(git_dir / "objects/info/alternates") != own.alternates:
        told.append("changed where .git reads its objects (objects/info/alternates)")
    told += [
        f"put .git/{name} in"
        for name in ("objects/info/http-alternates", "info/attributes", "commondir", "gitdir")
        if os.path.lexists(git_dir / name)
    ]
    return tuple(told)


def _replaced(git_dir: Path) -> str | None:
    try:
        mode = git_dir.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "deleted .git"
    if stat.S_ISLNK(mode):
        return "replaced .git by a link"
    if not stat.S_ISDIR(mode):
        return "replaced .git by a file"
    return None


def _config_tampering(path: Path, made: bytes) -> list[str]:
    place = f".git/{path.name}"
    content = _content(path)
    if content == made:
        return []
    if content is None:
        return [f"deleted {place}, or made it unreadable"]
    if len(content) > _MOST_CONFIG_BYTES:
        return [f"made {place} longer than {_MOST_CONFIG_BYTES // 1_000_000} MB"]
    before, after = _settings(made), _settings(content)
    if after is None or before is None:
        return [f"made {place} unreadable"]
    names = sorted({name for name, value in after - before if not _is_plain(name, value)})
    gone = {name for name, _ in before} - {name for name, _ in after}
    told = [f"set {_shown(name)} in {place}" for name in names]
    told += [
        f"removed {_shown(name)} from {place}" for name in sorted(gone) if not _is_plain(name, "")
    ]
    return told


def _settings(config: bytes) -> set[tuple[str, str]] | None:
    """Names with all their values: for some, git uses more than the last."""
    # By stdin: git would follow a path, and block on a pipe.
    ended = run_git(["config", "--file", "-", "--no-includes", "--list", "-z"], stdin=config)
    if not ended.is_well:
        return None
    items = (item.partition(b"\n") for item in ended.stdout.split(b"\0") if item)
    return {(os.fsdecode(name), os.fsdecode(value)) for name, _, value in items}


def _is_plain(name: str, value: str) -> bool:
    """Whether it can only do what git itself does; `!` makes git run a shell."""
    if name in _PLAIN_SETTINGS:
        return True
    section, _, rest = name.partition(".")
    runs_a_program = (
        value.lstrip().startswith("!")
        or (section == "remote" and rest.rpartition(".")[2] in _PROGRAMS)
        or (section in _REACHING_OUT and _BY_A_HELPER.match(value) is not None)
        # Options of git itself, which can include any setting.
        or (section == "alias" and value.lstrip().startswith("-"))
        # Hooks for future repositories.
        or name == "init.templatedir"
    )
    return section in _PLAIN_SECTIONS and not runs_a_program


def _hooks(folder: Path) -> list[str]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return []
    return [f"added a hook: {_shown(name)}" for name in names if not name.endswith(".sample")]


def _content(path: Path) -> bytes | None:
    """Of a regular file; None for anything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return os.read(file, _MOST_CONFIG_BYTES + 1)
    finally:
        os.close(file)


def _shown(name: str) -> str:
    return os.fsencode(name).decode(errors="backslashreplace").replace("\n", "\\n")[:200]
