"""A kept patch on its way out: byte for byte, or coloured and harmless on a terminal.

An agent wrote what is in it, so that on a terminal nothing of it may act.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from paraval.cli.showing import has_colour, has_unicode
from paraval.errors import RequestError
from paraval.report.text import printable, to_ascii

PIECE_BYTES = 1 << 16
"""A line without end is shown in pieces."""

_BOLD, _RED, _GREEN, _CYAN, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"
_IN_A_HUNK = {b"+": _GREEN, b"-": _RED}
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""All but tab and line end. What ends a line elsewhere would forge one here, and what a terminal
would swallow may be what the patch is about."""


def put_patch(path: Path) -> None:
    """To stdout, as fits where that goes."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        show_patch(path, sys.stdout)
    else:
        copy_patch(path, sys.stdout.buffer)


def copy_patch(path: Path, stream: BinaryIO) -> None:
    """Every byte as it was kept."""
    with _opened(path) as file:
        shutil.copyfileobj(file, stream)
    stream.flush()


def show_patch(path: Path, stream: TextIO) -> None:
    """For a person: colours where they are wanted, and nothing that acts on the terminal."""
    is_painted, is_plain = has_colour(stream), not has_unicode(stream)
    with _opened(path) as file:
        for piece, style in _styled(file):
            text = printable(_CONTROLS.sub(_escaped, piece.decode(errors="replace")))
            shown = to_ascii(text) if is_plain else text
            body, end = (shown[:-1], "\n") if shown.endswith("\n") else (shown, "")
            stream.write(f"{style}{body}{_PLAIN}{end}" if is_painted and style else shown)
    stream.flush()


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode("ascii")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise RequestError(
            f"the patch cannot be read: {path}: {error.strerror}",
            hint="it is in the run's folder, from which it seems to be gone",
        ) from error
    with file:
        yield file


def _styled(file: BinaryIO) -> Iterator[tuple[bytes, str]]:
    """Lines, the longest in pieces, each with the style that its first bytes ask for."""
    in_hunk, style, is_start = False, "", True
    while piece := file.readline(PIECE_BYTES):
        if is_start:
            if piece.startswith((b"diff --git ", b"@@ ")):
                in_hunk = piece.startswith(b"@@ ")
                style = _CYAN if in_hunk else _BOLD
            elif in_hunk:
                style = _IN_A_HUNK.get(piece[:1], "")
            else:
                style = _BOLD if piece.startswith((b"--- ", b"+++ ")) else ""
        yield piece, style
        is_start = piece.endswith(b"\n")
