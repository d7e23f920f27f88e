"""How one tree differs from another, by path: from the objects alone, whatever is checked out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paraval.git.running import must_git

ABSENT = 0
LINK = 0o120000
FILES = (0o100644, 0o100755)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChange:
    """A file, a link or a submodule that is not the same in both."""

    path: bytes
    old_mode: int
    """ABSENT: the old tree has none."""
    new_mode: int
    old_hash: str
    new_hash: str


def tree_changes(
    git_dir: str, old: str, new: str, env: Mapping[str, str] | None = None
) -> list[TreeChange]:
    """By path; a rename is one that went and one that came. Raises GitError."""
    stdout = must_git(
        [f"--git-dir={git_dir}", "diff-tree", "-r", "-z", "--no-renames", "--raw", old, new],
        doing=f"cannot compare tree {new} with {old}",
        env=env,
    )
    parts = iter(stdout.split(b"\0")[:-1])
    changes = []
    for about in parts:
        old_mode, new_mode, old_hash, new_hash, _ = about[1:].split(b" ")
        changes.append(
            TreeChange(
                path=next(parts),
                old_mode=int(old_mode, 8),
                new_mode=int(new_mode, 8),
                old_hash=old_hash.decode(),
                new_hash=new_hash.decode(),
            )
        )
    return changes


def line_counts(
    git_dir: str, old: str, new: str, env: Mapping[str, str] | None = None
) -> dict[bytes, tuple[int, int] | None]:
    """By path, lines that came and that went; None for a binary file. Raises GitError."""
    stdout = must_git(
        [
            *(f"--git-dir={git_dir}", "diff-tree", "-r", "-z", "--no-renames", "--numstat"),
            *("--no-ext-diff", "--no-textconv", old, new),
        ],
        doing=f"cannot compare tree {new} with {old}",
        env=env,
    )
    found: dict[bytes, tuple[int, int] | None] = {}
    for record in stdout.split(b"\0")[:-1]:
        added, deleted, path = record.split(b"\t", 2)
        found[path] = None if added == b"-" else (int(added), int(deleted))
    return found


def write_patch(
    git_dir: str, trees: tuple[str, str], path: str, env: Mapping[str, str] | None = None
) -> None:
    """From one tree to the other, in the form that `git apply` takes. Raises GitError."""
    must_git(
        [
            *(f"--git-dir={git_dir}", "diff-tree", "-r", "-p", "--binary", "--full-index"),
            *("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"),
            *("--src-prefix=a/", "--dst-prefix=b/", f"--output={path}", *trees),
        ],
        doing="cannot write a patch",
        env=env,
    )
