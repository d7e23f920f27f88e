"""The files that nodes need: packed here, sent once to each node by a hash of their contents, and
unpacked there.

The suite's folder and a workspace's template go as an archive, the commit that worktrees start from
as a pack of git objects.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError
from paraval.git.alternates import Lender, lender_of, tags_before, write_repository
from paraval.git.repositories import branch_of, find_repository, resolve
from paraval.git.run_git import must_git, run_git
from paraval.git.snapshots import snapshot
from paraval.records import Workspace, WorkspaceKind
from paraval.scratch import remove_tree, scratch_base, scratch_folder

MOST_FILES = 20_000
MOST_BYTES = 1 << 30
KEPT_S = 14 * 24 * 3600.0
"""How long a node keeps what was not used."""
GIT_PATIENCE_S = 600.0
ARCHIVE = "archive"
GIT = "git"
_LEFT_OUT = frozenset(
    {
        *(".git", ".hg", ".paraval", "__pycache__", "node_modules", ".venv", "venv"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox"),
    }
)
"""Folders that are never sent unless the suite names them."""
_SECRET = re.compile(r"\.env(\..*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleHeader:
    """What a bundle is, and what it stands for."""

    name: str
    """A hash of its contents."""
    kind: str
    path: str
    """The folder here that it stands for."""
    is_workspace: bool = False
    """What attempts' workspaces start from."""
    commit: str = ""
    branch: str | None = None
    object_format: str = "sha1"
    settings: Mapping[str, str] = field(default_factory=dict)
    excludes: str = ""
    shallow: str | None = None
    tags: str = ""
    """As git has them, one character for each byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    header: BundleHeader
    content: bytes


# ---- packing


def suite_bundle(folder: Path, send: tuple[str, ...], *, store: Path) -> Bundle:
    """Pack a suite's folder: the files that `send` names, or else all files that git would track
    there. Never the store, and never a `.env` file."""
    paths = _named(folder, send) if send else _usual(folder)
    within = f"{store.absolute()}/"
    chosen = sorted(
        path
        for path in set(paths)
        if not _SECRET.fullmatch(path.name) and not f"{path}/".startswith(within)
    )
    return _archive(folder, chosen)


def _named(folder: Path, globs: Iterable[str]) -> Iterator[Path]:
    for glob in globs:
        for path in folder.glob(glob):
            yield from path.rglob("*") if path.is_dir() and not path.is_symlink() else (path,)


def _usual(folder: Path) -> Iterator[Path]:
    listed = run_git(
        ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=str(folder)
    )
    if listed.is_well:
        for name in listed.stdout.split(b"\0")[:-1]:
            path = folder / os.fsdecode(name)
            if not _LEFT_OUT.intersection(path.relative_to(folder).parts):
                yield path
        return
    for top, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        yield from (Path(top, name) for name in (*files, *folders))


def _archive(folder: Path, paths: Iterable[Path]) -> Bundle:
    """The same bytes for the same files, whoever packs them and when."""
    packed, files, size = io.BytesIO(), 0, 0
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=3) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in paths:
            entry = _entry(archive, folder, path)
            if entry is None:
                continue
            files, size = files + 1, size + entry.size
            if files > MOST_FILES or size > MOST_BYTES:
                raise RequestError(
                    f"{folder} has more files than can be sent to the nodes of a cluster"
                    f" ({MOST_FILES:,} files, {MOST_BYTES >> 30} GB)",
                    hint="name the files that attempts need: cluster: {send: [...]} in the suite",
                )
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    content = packed.getvalue()
    name = blake2b(content, digest_size=20).hexdigest()
    return Bundle(header=BundleHeader(name=name, kind=ARCHIVE, path=str(folder)), content=content)


def _entry(archive: tarfile.TarFile, folder: Path, path: Path) -> tarfile.TarInfo | None:
    """None for what is neither a file, a folder nor a link, or has just been removed."""
    try:
        entry = archive.gettarinfo(path, str(path.relative_to(folder)))
    except OSError:
        return None
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        return None
    if entry.islnk():
        entry.type, entry.size = tarfile.REGTYPE, path.lstat().st_size
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    return entry


def workspace_bundle(workspace: Workspace) -> tuple[Bundle, Workspace] | None:
    """Pack what worktrees or copies start from, and return the workspace that a node makes of it;
    None if they start from nothing."""
    if workspace.source is None or workspace.kind is WorkspaceKind.NONE:
        return None
    if workspace.kind is WorkspaceKind.FOLDER:
        folder = Path(workspace.source)
        everything = sorted(
            path for path in folder.rglob("*") if ".git" not in path.relative_to(folder).parts
        )
        packed = _archive(folder, everything)
        return replace(packed, header=replace(packed.header, is_workspace=True)), workspace
    return _git_bundle(workspace, workspace.source)


def _git_bundle(workspace: Workspace, source: str) -> tuple[Bundle, Workspace]:
    repository = find_repository(source)
    with scratch_folder() as scratch:
        objects = scratch.folder / "objects"
        base = workspace.commit or resolve(repository, workspace.ref)
        commit = base
        if workspace.uncommitted:
            taken = snapshot(repository, objects)
            if workspace.tree not in (None, taken.tree):
                raise RequestError(
                    f"the working tree of {repository.top} has changed since the run was planned",
                    hint="run it again, and don't edit the working tree until the run has started",
                )
            commit = taken.commit
        lender = lender_of(repository, *([str(objects)] if objects.exists() else []))
        lender = replace(lender, tags=tags_before(repository, base))
        git_dir = scratch.folder / "pack.git"
        write_repository(git_dir, lender, head=commit)
        tags = re.findall(rb"^([0-9a-f]+) ", lender.tags, re.MULTILINE)
        content = must_git(
            [f"--git-dir={git_dir}", "pack-objects", "--revs", "--stdout", "-q"],
            doing=f"cannot pack commit {commit} of {repository.top}",
            stdin=b"\n".join([commit.encode(), *tags, b""]),
            timeout=GIT_PATIENCE_S,
        )
    header = BundleHeader(
        name="",
        kind=GIT,
        path=source,
        is_workspace=True,
        commit=commit,
        branch=branch_of(repository, workspace.ref),
        object_format=repository.object_format,
        settings=lender.settings,
        excludes=lender.excludes.decode("latin-1"),
        shallow=None if lender.shallow is None else lender.shallow.decode("latin-1"),
        tags=lender.tags.decode("latin-1"),
    )
    # Not of the pack: git may pack the same objects differently.
    name = blake2b(repr(header).encode(errors="surrogateescape"), digest_size=20).hexdigest()
    there = replace(workspace, commit=commit, uncommitted=False, ref="HEAD")
    return Bundle(header=replace(header, name=name), content=content), there


# ---- on a node


class BundleFolder:
    """The bundles that a node has, kept between runs, in a folder that only this user can read."""

    def __init__(self) -> None:
        self._folder = scratch_base() / f"paraval-files-{os.getuid()}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise ParavalError(f"{self._folder} is not a folder that only this user can use")
        for path in self._folder.iterdir():
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > KEPT_S:
                    remove_tree(path)

    def has(self, name: str) -> bool:
        place = self._place(name)
        if not place.exists():
            return False
        with suppress(OSError):
            os.utime(place)
        return True

    def put(self, header: BundleHeader, content: bytes) -> None:
        """Keep a bundle: an archive as it is, git objects as a repository."""
        unnamed = self._folder / f".{header.name}-{os.getpid()}"
        try:
            if header.kind == GIT:
                _write_repository(unnamed / Path(header.path).name / ".git", header, content)
            else:
                unnamed.write_bytes(content)
            with suppress(OSError):  # Another host of this node was faster.
                unnamed.rename(self._place(header.name))
        finally:
            remove_tree(unnamed)

    def unpack(self, header: BundleHeader, folder: Path) -> str:
        """Return the folder that stands for the bundle's; an archive is unpacked into `folder`."""
        place = self._place(header.name)
        if header.kind == GIT:
            return str(place / Path(header.path).name)
        made = folder / header.name / (Path(header.path).name or "root")
        if not made.exists():
            made.mkdir(parents=True)
            with tarfile.open(place, "r:gz") as archive:
                # Our own engine packed it, links and modes included.
                archive.extraction_filter = lambda member, _folder: member
                archive.extractall(made)  # noqa: S202 - see above
        return str(made)

    def _place(self, name: str) -> Path:
        return self._folder / name


def _write_repository(git_dir: Path, header: BundleHeader, pack: bytes) -> None:
    git_dir.parent.mkdir(parents=True)
    lender = Lender(
        objects=(),
        object_format=header.object_format,
        settings=header.settings,
        excludes=header.excludes.encode("latin-1"),
        shallow=None if header.shallow is None else header.shallow.encode("latin-1"),
        tags=header.tags.encode("latin-1"),
    )
    write_repository(git_dir, lender, head=header.commit, branch=header.branch)
    must_git(
        [f"--git-dir={git_dir}", "index-pack", "--stdin"],
        doing=f"cannot unpack commit {header.commit}",
        stdin=pack,
        timeout=GIT_PATIENCE_S,
    )


def moved(data: Any, folders: Mapping[str, str]) -> Any:
    """Plain data in which paths in these folders are replaced by paths in others."""
    if not folders:
        return data
    longest_first = sorted(folders, key=len, reverse=True)
    found = re.compile(
        "|".join(f"(?<![\\w./-]){re.escape(one.rstrip('/'))}(?![\\w.-])" for one in longest_first)
    )

    def move(value: Any) -> Any:
        if isinstance(value, str):
            return found.sub(lambda match: folders[match[0]], value)
        if isinstance(value, dict):
            return {key: move(inner) for key, inner in value.items()}
        return [move(inner) for inner in value] if isinstance(value, list | tuple) else value

    return move(data)
