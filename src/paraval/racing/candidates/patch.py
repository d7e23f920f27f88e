"""Reads a patch: the files it names, and the ways in which git may apply it.

Patches come from `git diff`, mails, `diff -u` and models, with and without prefixes, and with the
line endings of other systems. git itself checks their content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paraval.dataclass import dataclass

LARGEST_FILE_BYTES = 100_000_000
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NAMES = (b"--- ", b"+++ ", b"rename from ", b"rename to ", b"copy from ", b"copy to ")
_GIT = b"diff --git "
_NOWHERE = b"/dev/null"
_PREFIXES = (b"a", b"b", b"c", b"i", b"o", b"w")
"""Prefixes that git itself puts before names."""
_DEFLATED = re.compile(rb"(?:literal|delta) (\d+)$")
_ESCAPES = {b"a": 7, b"b": 8, b"t": 9, b"n": 10, b"v": 11, b"f": 12, b"r": 13}
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)


class InvalidProposalError(Exception):
    """The proposal is not a valid change; the message is for its author."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMode:
    """A way to apply a patch."""

    text: bytes
    strip: int
    folder: str | None = None
    """The folder that its paths are relative to."""


def patch_modes(patch: bytes, start: str) -> list[PatchMode]:
    """Ways to apply it, the likeliest first. Raises InvalidProposalError for unsafe patches."""
    texts = _texts(patch)
    _check(texts[0])
    strips = _strips(texts[0])
    folders = (None,) if start == "." else (None, start)
    return [
        PatchMode(text=text, strip=strip, folder=folder)
        for folder in folders
        for text in texts
        for strip in strips
    ]


def names_in(mode: PatchMode) -> set[bytes]:
    """Paths that it may touch, relative to the top; possibly too many."""
    found = set()
    for line in _headers(mode.text):
        names = _both_names(line) if line.startswith(_GIT) else [_name(line)]
        for name in names:
            # The name after `rename from` has no prefix.
            strip = mode.strip if line.startswith((b"---", b"+++", _GIT)) else 0
            path = name.split(b"/", strip)[-1]
            found.add(path if mode.folder is None else mode.folder.encode() + b"/" + path)
    return found


def _texts(patch: bytes) -> list[bytes]:
    whole = patch if patch.endswith(b"\n") else patch + b"\n"
    if not any(line.endswith(b"\r") for line in _headers(whole)):
        return [whole]
    # Either the whole patch was converted to CRLF, or all but the file contents.
    heads = [line if within else line.removesuffix(b"\r") for line, within in _lines(whole)]
    return [whole.replace(b"\r\n", b"\n"), b"\n".join(heads)]


def _check(text: bytes) -> None:
    for line in _headers(text):
        if line.startswith((b"--- ", b"+++ ")):
            name = _name(line)
            if name.startswith(b"/") and name != _NOWHERE:
                raise InvalidProposalError(f"the patch names an absolute path: {_shown(name)}")
    for line in text.split(b"\n"):
        size = _DEFLATED.match(line)
        if size is not None and int(size[1][:20]) > LARGEST_FILE_BYTES:
            raise InvalidProposalError(
                f"the patch contains a file larger than {LARGEST_FILE_BYTES // 1_000_000} MB"
            )


def _strips(text: bytes) -> tuple[int, ...]:
    """How many leading parts of its names are prefixes: `a/x` and `b/x`, `old/x` and `new/x`.

    Guesses only if there is no evidence: an added file applies with any number.
    """
    old, alone = b"", (1,)
    for line in _headers(text):
        if line.startswith(b"--- "):
            old = _name(line)
        elif line.startswith(b"+++ "):
            new = _name(line)
            if _NOWHERE not in (old, new):
                return _strips_of_a_pair(old, new)
            name = new if old == _NOWHERE else old
            alone = (1,) if _has_a_prefix(name) else (0,)
        elif line.startswith(_GIT):
            names = _both_names(line)
            if names:
                return _strips_of_a_pair(names[0], names[1])
            old = line.removeprefix(_GIT)
        elif line.startswith(b"rename from "):
            return (0,) if old.startswith(_name(line)) else (1,)
    return alone


def _strips_of_a_pair(old: bytes, new: bytes) -> tuple[int, ...]:
    if old != new:
        return (1,) if b"/" in old and b"/" in new else (0,)
    return (0, 1) if _has_a_prefix(old) else (0,)


def _has_a_prefix(name: bytes) -> bool:
    return name.partition(b"/")[0] in _PREFIXES


def _headers(text: bytes) -> Iterator[bytes]:
    """Lines that name files, outside hunks."""
    for line, is_in_hunk in _lines(text):
        if not is_in_hunk and line.startswith((*_NAMES, _GIT)):
            yield line


def _lines(text: bytes) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether it is in a hunk."""
    left_old = left_new = 0
    for line in text.split(b"\n"):
        is_in_hunk = left_old > 0 or left_new > 0
        if is_in_hunk:
            left_old -= line[:1] in (b"-", b" ", b"", b"\r")
            left_new -= line[:1] in (b"+", b" ", b"", b"\r")
        elif (hunk := _HUNK.match(line)) is not None:
            left_old, left_new = (int((count or b"1")[:9]) for count in hunk.groups())
        yield line, is_in_hunk


def _name(line: bytes) -> bytes:
    """The name in a line, without the time after a tab."""
    for start in _NAMES:
        line = line.removeprefix(start)
    line = line.removesuffix(b"\r")
    return _unquoted(line) if line.startswith(b'"') else line.partition(b"\t")[0].rstrip()


def _both_names(line: bytes) -> list[bytes]:
    """The names in `diff --git a/x b/x`; with blanks in names, all possible splits."""
    rest = line.removeprefix(_GIT).removesuffix(b"\r")
    if rest.startswith(b'"'):
        return [_unquoted(part) for part in re.findall(rb'"(?:[^"\\]|\\.)*"', rest)]
    blanks = [at for at, byte in enumerate(rest[:10_000]) if byte == ord(" ")]
    halves = [(rest[:at], rest[at + 1 :]) for at in blanks]
    return [
        half
        for old, new in halves
        if old == new or old.partition(b"/")[2] == new.partition(b"/")[2]
        for half in (old, new)
    ]


def _unquoted(name: bytes) -> bytes:
    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        if len(code) > 1:
            return bytes((int(code, 8) & 255,))
        return bytes((_ESCAPES[code],)) if code in _ESCAPES else code

    inner = re.match(rb'"((?:[^"\\]|\\.)*)"', name)
    return name if inner is None else _ESCAPED.sub(plain, inner[1])


def _shown(name: bytes) -> str:
    return name.decode(errors="backslashreplace")[:200]
