"""Untrusted text made safe to show: on a terminal, in a table, on one line.

Nothing is lost silently: cut text ends in a mark, and characters that would affect a terminal or
reorder a line are shown as escapes. The only exception is terminal sequences (colors, links,
titles), which are removed whole: their remains would only be noise.
"""

from __future__ import annotations

import re
import unicodedata

ELLIPSIS = "…"

# Each part stops at the next escape character, so that many unfinished ones take linear time; one
# that never ends loses only its opening, not the text after it.
_TERMINAL_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # the short ones: charset, reset
)
# Controls except newline and tab; direction marks and overrides; invisible characters and tags;
# noncharacters. The two joiners stay: scripts and emoji need them.
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)
_PLAIN = str.maketrans(
    {
        "·": "-",
        "…": "...",
        "\N{NO-BREAK SPACE}": " ",
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
        "\N{MINUS SIGN}": "-",
        "\N{MULTIPLICATION SIGN}": "x",
        "\N{PLUS-MINUS SIGN}": "+-",
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
    }
)
# Combining accents take no column; thousands on one letter would cover the lines around it.
_MOST_SIGNS_A_COLUMN = 6
_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
SIGNS = "✓✗–·…→↻━─−×±"
"""Our own special characters. Each takes one column, so no lookup is needed."""
_SIMPLE = re.compile(f"[ -~{SIGNS}]*")
_SIMPLE_LINE = re.compile(f"[!-~{SIGNS}]+(?: [!-~{SIGNS}]+)*")


def printable(text: str) -> str:
    """Text of one or more lines that has no effect on a terminal."""
    if text.isascii() and text.isprintable():
        return text
    text = _TERMINAL_SEQUENCE.sub("", well_formed(text))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.replace("\u2028", "\n").replace("\u2029", "\n")
    return _UNSHOWABLE.sub(lambda match: _escape(match[0]), text)


def one_line(text: str, limit: int) -> str:
    """The text on one line of at most `limit` columns; cut text ends in an ellipsis."""
    if len(text) <= limit and _SIMPLE_LINE.fullmatch(text):
        return text
    # More text than this cannot change the line, and an answer may have a megabyte.
    near = text[: limit * 20 + 2000]
    line = " ".join(printable(near).split())
    most = limit * _MOST_SIGNS_A_COLUMN
    if len(near) < len(text) or len(line) > most:
        return cut(line[:most], limit - 1).removesuffix(ELLIPSIS) + ELLIPSIS
    return cut(line, limit)


def columns(text: str) -> int:
    """How many columns of a terminal a line takes."""
    is_simple = text.isascii() or _SIMPLE.fullmatch(text)
    return len(text) if is_simple else sum(_widths(text))


def cut(text: str, limit: int, mark: str = ELLIPSIS) -> str:
    """A line of at most `limit` columns."""
    if columns(text) <= limit:
        return text
    room, taken = limit - len(mark), 0
    for position, width in enumerate(_widths(text)):
        taken += width
        if taken > room:
            return text[:position].rstrip() + mark[: max(limit, 0)]
    return text + mark


def cut_middle(text: str, limit: int, mark: str = ELLIPSIS) -> str:
    """A line of at most `limit` columns that keeps both ends, where names tend to differ."""
    if columns(text) <= limit:
        return text
    start = cut(text, (limit + len(mark)) // 2 + len(mark) // 2, mark)
    return start + _end(text, limit - columns(start))


def to_ascii(text: str) -> str:
    """For terminals without UTF-8: lookalikes for our own signs, escapes for the rest."""
    return text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _end(text: str, room: int) -> str:
    taken = 0
    for position in range(len(text) - 1, -1, -1):
        taken += columns(text[position])
        if taken > room:
            return text[position + 1 :].lstrip()
    return text


def _widths(text: str) -> list[int]:
    """The width that each character adds."""
    widths: list[int] = []
    before = ""
    for character in text:
        if before == _JOINER:
            widths.append(0)
        elif character == _EMOJI_STYLE:
            widths.append(1 if widths and widths[-1] == 1 else 0)
        elif unicodedata.category(character) in ("Mn", "Me", "Cf"):
            widths.append(0)
        else:
            widths.append(2 if unicodedata.east_asian_width(character) in "WF" else 1)
        before = character
    return widths


def well_formed(text: str) -> str:
    """Text that every Unicode encoding supports: lone surrogates become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
