"""Repositories of our own that borrow another's objects, made of a few small files.

Nothing is registered with the lender: it does not know of them, shares no lock with them, and is
not affected by them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.repositories import Repository
from paraval.git.run_git import must_git, read_settings, run_git

_TAKEN_OVER = (
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "user.email",
    "user.name",
)
"""User settings that determine what a checkout looks like, and who commits."""
_MOST_EXCLUDES_BYTES = 1_000_000
_MOST_TAGS = 1_000
_TAGS_PATIENCE_S = 10.0
_COPYING_PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lender:
    """What borrowing repositories need to know about the lender."""

    objects: tuple[str, ...]
    """Folders of objects, absolute."""
    object_format: str = "sha1"
    settings: Mapping[str, str] = field(default_factory=dict)
    excludes: bytes = b""
    """Patterns that the user ignores besides those in `.gitignore` files."""
    shallow: bytes | None = None
    """Commits whose parents the lender lacks."""
    tags: bytes = b""
    """In git's packed-refs format."""


def lender_of(repository: Repository, *more_objects: str) -> Lender:
    """A user's repository as a lender, with the settings that matter for a checkout."""
    told = _settings(repository)
    shallow = Path(repository.common_dir, "shallow")
    return Lender(
        objects=(*more_objects, repository.objects),
        object_format=repository.object_format,
        settings={name: told[name] for name in _TAKEN_OVER if name in told},
        excludes=_excludes(repository, told.get("core.excludesfile")),
        shallow=shallow.read_bytes() if shallow.is_file() else None,
    )


def tags_before(repository: Repository, commit: str) -> bytes:
    """Tags of a commit and its ancestors, in `Lender`'s format: for `git describe`.

    Later tags could give away what an attempt has to find out. If there are very many, or finding
    them takes long, the result is empty.
    """
    stdout = run_git(
        [
            *(f"--git-dir={repository.git_dir}", "for-each-ref", f"--count={_MOST_TAGS + 1}"),
            *(f"--merged={commit}", "--format=%(objectname) %(refname)%0a^%(*objectname)"),
            "refs/tags",
        ],
        timeout=_TAGS_PATIENCE_S,
    ).stdout
    lines = [line for line in stdout.splitlines() if line not in (b"^", b"")]
    is_sane = sum(not line.startswith(b"^") for line in lines) <= _MOST_TAGS
    if not lines or not is_sane:
        return b""
    return b"\n".join([b"# pack-refs with: peeled fully-peeled sorted ", *lines, b""])


def write_repository(
    git_dir: str | Path,
    lender: Lender,
    *,
    head: str,
    branch: str | None = None,
    attributes: str = "",
) -> None:
    """Create a repository without an index: on a branch at this commit, or detached."""
    folder = Path(git_dir)
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (folder / name).mkdir(parents=True)
    (folder / "objects/info/alternates").write_bytes(_alternates(lender.objects))
    (folder / "config").write_text(_config(lender), errors="surrogateescape")
    (folder / "info/exclude").write_bytes(lender.excludes)
    if attributes:
        (folder / "info/attributes").write_text(attributes)
    if lender.shallow is not None:
        (folder / "shallow").write_bytes(lender.shallow)
    if lender.tags:
        (folder / "packed-refs").write_bytes(lender.tags)
    if branch is None:
        (folder / "HEAD").write_text(f"{head}\n")
    else:
        reference = folder / "refs/heads" / branch
        reference.parent.mkdir(parents=True, exist_ok=True)
        reference.write_text(f"{head}\n")
        (folder / "HEAD").write_text(f"ref: refs/heads/{branch}\n", errors="surrogateescape")


def lend_copies(
    arguments: Sequence[str],
    hashes: Sequence[str],
    objects: str,
    env: Mapping[str, str] | None = None,
) -> None:
    """Copy existing objects into a folder of objects.

    When git writes an object that an alternate also has, it updates the time of the lender's file.
    So it writes where there are no alternates, with copies of what it may have to read.
    """
    pack = os.path.join(objects, "pack", "pack")  # noqa: PTH118 - text goes to git
    os.makedirs(os.path.dirname(pack), exist_ok=True)  # noqa: PTH103, PTH120
    stdin = "".join(f"{name}\n" for name in hashes).encode()
    if hashes:
        run_git([*arguments, "pack-objects", "-q", pack], stdin=stdin, env=env)


_MOST_COMMITS = 50


def copied_history(repository: Repository, commit: str, objects: str) -> bytes:
    """Copy a commit and up to 49 before it into a folder of objects; return what its borrowers
    need as `Lender.shallow`. They cannot find later commits, which may contain a solution or its
    tests. Raises GitError."""
    git_dir = f"--git-dir={repository.git_dir}"
    doing = f"cannot copy the history of {commit[:12]}"
    newest = ["rev-list", f"--max-count={_MOST_COMMITS}"]
    commits = must_git([git_dir, *newest, "--parents", commit], doing=doing).split(b"\n")[:-1]
    parents = {line.split()[0]: line.split()[1:] for line in commits}
    cut = [one for one, before in parents.items() if not parents.keys() >= set(before)]
    listed = [git_dir, *newest, "--objects", "--no-object-names", commit]
    names = must_git(listed, doing=doing, timeout=_COPYING_PATIENCE_S)
    os.makedirs(os.path.join(objects, "pack"), exist_ok=True)  # noqa: PTH103, PTH118 - text
    pack = os.path.join(objects, "pack", "pack")  # noqa: PTH118
    packing = [git_dir, "pack-objects", "-q", pack]
    must_git(packing, doing=doing, stdin=names, timeout=_COPYING_PATIENCE_S)
    return b"".join(one + b"\n" for one in cut)


def alternates_variable(*folders: str) -> dict[str, str]:
    """Other folders where git finds objects."""
    told = ":".join(_in_a_list(folder) for folder in folders)
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": told}


def read_config(text: bytes) -> dict[str, str]:
    """Parse the output of `git config --list -z`; the last value of a name wins."""
    settings = {}
    for item in text.split(b"\0"):
        name, _, value = item.partition(b"\n")
        if name:
            settings[os.fsdecode(name)] = os.fsdecode(value)
    return settings


def _in_a_list(folder: str) -> str:
    """Split at `:`, except within quotes."""
    if not folder.startswith('"') and ":" not in folder:
        return folder
    escaped = folder.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _settings(repository: Repository) -> dict[str, str]:
    arguments = [f"--git-dir={repository.git_dir}", "config", "--list", "-z"]
    return read_config(read_settings(arguments, cwd=repository.git_dir).stdout)


def _excludes(repository: Repository, configured: str | None) -> bytes:
    """The user's file of patterns, then the repository's: as in git, later ones win."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    own = Path(os.path.expanduser(configured or f"{home}/git/ignore"))  # noqa: PTH111 - as git does
    parts = [_excludes_in(path) for path in (own, Path(repository.common_dir, "info/exclude"))]
    return b"\n".join(part for part in parts if part)


def _excludes_in(path: Path) -> bytes:
    try:
        if path.is_file() and path.stat().st_size <= _MOST_EXCLUDES_BYTES:
            return path.read_bytes()
    except OSError:
        pass  # git ignores an unreadable file, too.
    return b""


def _alternates(folders: Sequence[str]) -> bytes:
    """One per line; git reads a quoted one like a C string."""
    return b"".join(_quoted(os.fsencode(folder)) + b"\n" for folder in folders)


def _quoted(path: bytes) -> bytes:
    if not path.startswith((b'"', b"#")) and b"\n" not in path:
        return path
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"'


def _config(lender: Lender) -> str:
    is_sha1 = lender.object_format == "sha1"
    lines = ["[core]", f"repositoryformatversion = {0 if is_sha1 else 1}", "bare = false"]
    lines.append("logallrefupdates = true")
    if not is_sha1:
        lines += ["[extensions]", f"objectformat = {lender.object_format}"]
    # A repack would copy all borrowed objects.
    lines += ["[gc]", "auto = 0", "[maintenance]", "auto = false"]
    settings = {"user.name": "paraval", "user.email": "paraval@localhost", **lender.settings}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        lines += [f"[{section}]", f"{key} = {_config_value(value)}"]
    return "\n".join(lines) + "\n"


def _config_value(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
