"""Reads a user's repository: where it is, what a ref resolves to, what is in a tree.

Nothing in it changes: not even its index is refreshed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.run_git import GitError, check_git, last_line, must_git, read_settings, run_git
from paraval.processes.quick import QuickResult

GITLINK = 0o160000
_ATTRIBUTES = b".gitattributes"
_FILTERED = b"filter="
_FILES = (0o100644, 0o100755)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Where a repository is. All paths are absolute."""

    top: str
    """The top of its working tree; of a bare repository, itself."""
    git_dir: str
    common_dir: str
    """Where its objects are; differs from `git_dir` in a worktree."""
    bare: bool = False
    prefix: str = "."
    """The path it was found by, relative to `top`."""
    object_format: str = "sha1"

    @property
    def objects(self) -> str:
        return os.path.join(self.common_dir, "objects")  # noqa: PTH118 - text goes to git

    @property
    def all_objects(self) -> tuple[str, ...]:
        """Its object folders, including those that it borrows, recursively."""
        found: dict[str, None] = {}
        waiting = [self.objects]
        while waiting:
            folder = os.path.realpath(waiting.pop())
            if folder in found:
                continue
            found[folder] = None
            with suppress(OSError):
                lines = Path(folder, "info", "alternates").read_bytes().splitlines()
                waiting += [os.path.join(folder, os.fsdecode(line)) for line in lines if line]  # noqa: PTH118
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A file, a link or a submodule in a tree."""

    mode: int
    hash: str
    path: bytes


def find_repository(path: str | Path) -> Repository:
    """The repository that contains a folder. Raises GitError if there is no usable one."""
    check_git()
    folder = os.path.realpath(path)
    if not os.path.isdir(folder):  # noqa: PTH112 - False for a name that is too long
        raise GitError(f"no such folder: {path}", hint="name a folder in a repository")
    bare = _ask(folder, "--is-bare-repository") == "true"
    git_dir = _ask(folder, "--absolute-git-dir")
    common_dir = os.path.realpath(os.path.join(folder, _ask(folder, "--git-common-dir")))  # noqa: PTH118
    if not bare and _ask(folder, "--is-inside-work-tree") != "true":
        raise GitError(
            f"{path} is inside a repository's .git", hint="name the working tree instead"
        )
    return Repository(
        top=git_dir if bare else _ask(folder, "--show-toplevel"),
        git_dir=git_dir,
        common_dir=common_dir,
        bare=bare,
        prefix="." if bare else _ask(folder, "--show-prefix").rstrip("/") or ".",
        object_format=_ask(folder, "--show-object-format"),
    )


def resolve(repository: Repository, ref: str) -> str:
    """The commit that a ref resolves to now. Raises GitError if there is none."""
    ended = _run_in(repository, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}")
    if ended.is_well:
        return ended.stdout.decode().strip()
    if not _run_in(repository, "rev-parse", "--verify", "HEAD^{commit}").is_well and ref == "HEAD":
        raise GitError(
            f"the repository {repository.top} has no commits yet",
            hint="make a commit there: attempts start from one",
        )
    raise GitError(
        f"'{ref}' is not a branch, tag or commit of the repository {repository.top}:"
        f" {last_line(ended)}",
        hint=f"`git -C {repository.top} branch --all` and `tag` list what exists",
    )


def tree_of(repository: Repository, commit: str) -> str:
    """The hash of a commit's tree."""
    stdout = must_git(
        [f"--git-dir={repository.git_dir}", "rev-parse", "--verify", f"{commit}^{{tree}}"],
        doing=f"cannot read commit {commit} of {repository.top}",
    )
    return stdout.decode().strip()


def resolve_many(repository: Repository, refs: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The commits and trees of refs that certainly name one, with one git process."""
    asked = [ref for ref in refs if ref.isprintable() and ref]
    lines = "".join(f"{ref}^{{commit}}\n{ref}^{{tree}}\n" for ref in asked)
    batch = [f"--git-dir={repository.git_dir}", "cat-file", "--batch-check=%(objectname)"]
    ended = run_git(batch, stdin=os.fsencode(lines), timeout=60.0)
    told = ended.stdout.decode(errors="replace").splitlines()
    if not ended.is_well or len(told) != 2 * len(asked):
        return {}
    pairs = zip(asked, zip(told[::2], told[1::2], strict=True), strict=True)
    return {ref: found for ref, found in pairs if not any(" " in name for name in found)}


def branch_of(repository: Repository, ref: str) -> str | None:
    """The branch that a ref names, or that HEAD is on; None if there is none."""
    ended = _run_in(repository, "rev-parse", "--symbolic-full-name", "--end-of-options", ref)
    name = ended.stdout.decode(errors="replace").strip().removeprefix("--end-of-options").strip()
    return name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None


def names_of_refs(repository: Repository) -> list[str]:
    """Branches, including remote ones, and tags, as people write them."""
    ended = _run_in(repository, "for-each-ref", "--format=%(refname:short)")
    return ended.stdout.decode(errors="replace").split()


def tree_entries(git_dir: str, tree: str, env: Mapping[str, str] | None = None) -> list[TreeEntry]:
    """Everything in a tree, by path."""
    stdout = must_git(
        [f"--git-dir={git_dir}", "ls-tree", "-r", "-z", "--full-tree", tree],
        doing=f"cannot list tree {tree}",
        env=env,
    )
    entries = []
    for line in stdout.split(b"\0")[:-1]:
        about, _, path = line.partition(b"\t")
        mode, _, name = about.split(b" ")
        entries.append(TreeEntry(mode=int(mode, 8), hash=name.decode(), path=path))
    return entries


def contents_named(git_dir: str, entries: list[TreeEntry], name: bytes) -> dict[bytes, bytes]:
    """Contents of all files with this name, by path, in any folder; without links."""
    paths: dict[bytes, list[bytes]] = {}
    for entry in entries:
        if entry.mode in _FILES and entry.path.rpartition(b"/")[2] == name:
            paths.setdefault(entry.hash.encode(), []).append(entry.path)
    if not paths:
        return {}
    shown = must_git(
        [f"--git-dir={git_dir}", "cat-file", "--batch"],
        doing=f"cannot read {name.decode()}",
        stdin=b"".join(hashed + b"\n" for hashed in paths),
    )
    found = {}
    while shown:
        head, _, shown = shown.partition(b"\n")
        hashed, _, size = head.partition(b" blob ")
        if size:
            content, shown = shown[: int(size)], shown[int(size) + 1 :]
            found.update(dict.fromkeys(paths[hashed], content))
    return found


def has_folder(repository: Repository, folder: str, *, commit: str | None) -> bool:
    """Whether a folder, relative to the top, is in a commit; for None, in the working tree.

    A folder without a file that git tracks or would track is in neither.
    """
    if os.path.normpath(folder) == ".":
        return True
    if commit is not None:
        ended = _run_in(repository, "cat-file", "-t", f"{commit}:{os.path.normpath(folder)}")
        return ended.stdout.strip() in (b"tree", b"commit")
    ended = run_git(
        [
            *(f"--git-dir={repository.git_dir}", f"--work-tree={repository.top}", "ls-files", "-z"),
            *("--cached", "--others", "--exclude-standard", "--", os.path.normpath(folder)),
        ]
    )
    there = os.path.isdir(os.path.join(repository.top, folder))  # noqa: PTH112, PTH118 - text
    return there and bool(ended.stdout)


def tree_notes(git_dir: str, entries: list[TreeEntry]) -> tuple[str, ...]:
    """Parts of a tree that will be different in a checkout than its owner may expect."""
    notes = []
    submodules = [entry.path for entry in entries if entry.mode == GITLINK]
    if submodules:
        first = submodules[0].decode(errors="backslashreplace")
        others = f" and {len(submodules) - 1} more" if len(submodules) > 1 else ""
        notes.append(f"submodules are empty folders in workspaces: {first}{others}")
    for path, content in contents_named(git_dir, entries, _ATTRIBUTES).items():
        if _FILTERED in content:
            name = path.decode(errors="backslashreplace")
            notes.append(
                f"git's filters are not run in workspaces: files that {name} passes to one"
                " (LFS and the like) appear as stored"
            )
            break
    return tuple(notes)


def _ask(folder: str, question: str) -> str:
    """One call per answer: a path may contain anything, including newlines."""
    ended = read_settings(["rev-parse", question], cwd=folder)
    if ended.is_well:
        return os.fsdecode(ended.stdout.removesuffix(b"\n"))
    if "dubious ownership" in ended.stderr:
        # In git's own words, which quote the path and the top of the repository.
        lines = map(str.strip, ended.stderr.splitlines())
        advice = next((line for line in lines if line.startswith("git config")), last_line(ended))
        raise GitError(
            f"the repository at {folder} belongs to another user, so git does not trust it;"
            f" if you do, run: {advice}"
        )
    if "not a git repository" in ended.stderr:
        raise GitError(
            f"{folder} is not in a git repository",
            hint="run `git init` and commit, or use `folder:` instead of `git:`",
        )
    raise GitError(f"the repository at {folder} cannot be read: {last_line(ended)}")


def _run_in(repository: Repository, *arguments: str) -> QuickResult:
    return run_git([f"--git-dir={repository.git_dir}", *arguments])
