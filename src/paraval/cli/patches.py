"""A kept patch on its way out: byte for byte, or coloured and harmless on a terminal.

An agent wrote what is in it, so that on a terminal nothing of it may act.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, TextIO

from paraval.cli.showing import has_colour, has_unicode
from paraval.plain_files import PlainFileError, open_plain_file
from paraval.records import RunInfo
from paraval.report.text import printable, to_ascii

PIECE_BYTES = 1 << 16
"""A line without end is shown in pieces."""

_BOLD, _RED, _GREEN, _CYAN, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[0m"
_IN_A_HUNK = {b"+": _GREEN, b"-": _RED}
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
"""All but tab and line end. What ends a line elsewhere would forge one here, and what a terminal
would swallow may be what the patch is about."""


def put_patch(run: RunInfo, path: str, heading: Callable[[], None] = lambda: None) -> str | None:
    """To stdout, under its heading, as fits where that goes; why not, where it cannot be read."""
    try:
        descriptor = open_plain_file(path, within=run.folder)
    except PlainFileError as error:
        return f"the patch cannot be read: {error}"
    with os.fdopen(descriptor, "rb") as file:
        heading()
        sys.stdout.flush()
        if sys.stdout.isatty():
            _show_patch(file, sys.stdout)
        else:
            # Every byte as it was kept.
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    return None


def _show_patch(file: BinaryIO, stream: TextIO) -> None:
    """For a person: colours where they are wanted, and nothing that acts on the terminal."""
    is_painted, is_plain = has_colour(stream), not has_unicode(stream)
    for piece, style in _styled(file):
        text = printable(_CONTROLS.sub(_escaped, piece.decode(errors="replace")))
        shown = to_ascii(text) if is_plain else text
        body, end = (shown[:-1], "\n") if shown.endswith("\n") else (shown, "")
        stream.write(f"{style}{body}{_PLAIN}{end}" if is_painted and style else shown)
    stream.flush()


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode("ascii")


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
