"""Plain scalars by the rules of YAML 1.2: `no`, `on` and `12:30:00` are text.

Apart from `yaml`, whose library takes long to load and only YAML files need.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from paraval.templates.template import as_text

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_MAY_START_A_NUMBER = frozenset("0123456789-+.")


class WrittenInt(int):
    """A whole number that keeps its original spelling."""

    written: str


class WrittenFloat(float):
    """A number that keeps its original spelling."""

    written: str


def read_scalar(text: str) -> Any:
    """Return the value of a plain scalar; ValueError if JSON cannot represent it."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _MAY_START_A_NUMBER:
        return text
    if _INTEGER.match(text):
        return _with_spelling(WrittenInt(text), text)
    if _BASED.match(text):
        return _with_spelling(WrittenInt(text, 0), text)
    if _FLOAT.match(text):
        return _finite(text)
    if _NOT_FINITE.match(text):
        raise ValueError(f"{text} is not a usable number; put it in quotes if it is text")
    return text


def scalar_text(value: Any) -> str:
    """Return a scalar as text: as written if that is known, otherwise as in JSON."""
    written = getattr(value, "written", None)
    return written if isinstance(written, str) else as_text(value)


def loses_digits(value: Any) -> bool:
    """Return True for `010` and `1.10`: likely meant as text, and changed when read as numbers."""
    written = getattr(value, "written", None)
    return isinstance(written, str) and re.fullmatch(r"-?[0-9.]+", written) is not None


def plain(value: Any) -> Any:
    """Return the same data without spellings, as stored in records."""
    match value:
        case Mapping():
            return {key: plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case WrittenInt():
            return int(value)
        case WrittenFloat():
            return float(value)
    return value


def _finite(text: str) -> Any:
    value = WrittenFloat(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is too large; put it in quotes if it is text")
    return _with_spelling(value, text)


def _with_spelling(value: WrittenInt | WrittenFloat, text: str) -> Any:
    plain = int(value) if isinstance(value, WrittenInt) else float(value)
    if repr(plain) == text:
        return plain
    value.written = text
    return value
