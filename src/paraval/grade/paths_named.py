"""The paths that a text names, and whether one is another, written shorter or longer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

_WORD = re.compile(r"[\w./\\@+~-]+")
"""Characters that paths are made of. Not `:`, `#` and brackets: they follow paths."""
_EXTENSION = re.compile(
    r"adoc|bash|bat|bazel|bzl|c|cc|cfg|clj|cmake|conf|cpp|cs|css|csv|cu|cxx|dart|diff|el|elm|env|erb"
    r"|erl|ex|exs|f90|fish|fs|gemspec|go|gradle|graphql|groovy|h|haml|hbs|hcl|hh|hpp|hs|html?|hxx|ini"
    r"|ipynb|java|jinja|jl|jsonl?|jsx?|kts?|less|lisp|lock|lua|m|mdx?|mjs|mli?|mm|nim|nix|patch|php"
    r"|pl|pm|proto|ps1|pyi?|pyx|r|rb|rkt|rs|rst|sass|scala|scss|sh|sol|sql|svelte|svg|swift|tcl|tex"
    r"|tf|toml|tsx?|txt|v|vala|vb|vim|vue|wat|xml|ya?ml|zig|zsh",
    re.IGNORECASE,
)
"""Those that make a file of a word without a slash: `np.dot` is none."""


class NamedPath(NamedTuple):
    """A path where it stands in a text."""

    path: str
    """With slashes, without `./` before it and punctuation behind it."""
    begin: int
    end: int


def paths_in(text: str, names: Collection[str] = ()) -> Iterator[NamedPath]:
    """Every word that may be a path: one with a dot or a slash in it, or one of the names."""
    # The same words come again and again.
    read: dict[str, str] = {}
    for found in _WORD.finditer(text):
        word = found[0]
        path = read.get(word)
        if path is None:
            path = read[word] = _path_of(word, names)
        if path:
            yield NamedPath(path, found.start(), found.start() + len(word.rstrip(".-")))


def _path_of(word: str, names: Collection[str]) -> str:
    """ "" for a word that is none."""
    # What follows `https:` is an address.
    if word.startswith("//"):
        return ""
    path = normal_path(word.rstrip(".-"))
    return path if "/" in path or "." in path or path in names else ""


def normal_path(written: str) -> str:
    """With slashes, each one once, and without what means "here"."""
    return re.sub(r"^(?:\./)+", "", re.sub(r"/{2,}", "/", written.replace("\\", "/")))


def looks_like_a_file(path: str) -> bool:
    """Whether a word is certainly meant as a file: by an extension, or by two slashes in it."""
    name = path.rpartition("/")[2]
    stem, dot, extension = name.rpartition(".")
    if dot and stem.strip(".") and _EXTENSION.fullmatch(extension):
        return True
    inner = path.strip("/")
    return inner.count("/") >= 2 and not inner.replace("/", "").isdigit()


class ExpectedPaths:
    """Paths that an answer should name; one that ends in `/` is a folder."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        self._folders = tuple(path for path in self.paths if path.endswith("/"))
        self._by_name = _by_name(self.paths)
        self._above = frozenset(above for path in self.paths for above in _folders_above(path))
        self.names = frozenset(self._by_name)
        """Of the files: the last parts of their paths."""

    def named_by(self, word: str) -> tuple[str, ...]:
        """Those that a word names: a file, and every folder that the word lies in.

        A file is named in full, with more before it, or by its end alone, at least its whole name,
        where no other of them ends so.
        """
        file = self._file_of(word)
        return (*((file,) if file is not None else ()), *self._folders_of(word))

    def _file_of(self, word: str) -> str | None:
        name = word.rpartition("/")[2]
        fitting = [path for path in self._by_name.get(name, ()) if _ends_alike(word, path)]
        if len(fitting) > 1:
            # The longest that is there in full: `a/b.go` is not `b.go`, if both are expected.
            full = [path for path in fitting if _is_end_of(path, word)]
            return max(full, key=len) if full else None
        return fitting[0] if fitting else None

    def is_above(self, word: str) -> bool:
        """Whether a word is a folder that one of them is in: true, but no answer."""
        place = f"/{word.strip('/')}/"
        return any(place.endswith(above) or above.endswith(place) for above in self._above)

    def _folders_of(self, word: str) -> list[str]:
        if "/" not in word:
            return []
        place = f"/{word.strip('/')}/"
        return [path for path in self._folders if f"/{path.lstrip('/')}" in place]


def _folders_above(path: str) -> Iterator[str]:
    """`/a/` and `/a/b/` of `a/b/c.go`."""
    parts = path.strip("/").split("/")[:-1]
    return (f"/{'/'.join(parts[: count + 1])}/" for count in range(len(parts)))


def _by_name(paths: Iterable[str]) -> dict[str, list[str]]:
    """Files by the last part of their path."""
    index: dict[str, list[str]] = {}
    for path in paths:
        if not path.endswith("/"):
            index.setdefault(path.rpartition("/")[2], []).append(path)
    return index


def _ends_alike(one: str, other: str) -> bool:
    return _is_end_of(one, other) or _is_end_of(other, one)


def _is_end_of(end: str, path: str) -> bool:
    """By whole parts: `math.go` is an end of `embedding/math.go`, not of `aftermath.go`."""
    return f"/{path.lstrip('/')}".endswith(f"/{end.lstrip('/')}")
