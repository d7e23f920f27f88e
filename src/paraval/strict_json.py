"""JSON and nothing but JSON, for all that comes from outside: suites, answers, verdicts.

Python's own reader takes NaN, lets the last of two equal keys win, and turns 1e999 into infinity.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

SHOWN_CHARACTERS = 20


class DuplicateKeyError(ValueError):
    """An object that names a key twice."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:SHOWN_CHARACTERS]} is too large a number")
    return number


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKeyError(f"the key '{key[:SHOWN_CHARACTERS]}' is there twice")
            seen.add(key)
    return made


DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_duplicates
)


def parse_strictly(text: str) -> Any:
    """The data; ValueError says what is wrong, and where."""
    try:
        return DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError as error:
        near = _shown(text[error.pos :]) if error.pos < len(text) else "the end"
        raise ValueError(
            f"{error.msg} at line {error.lineno}, column {error.colno}, near {near}"
        ) from None


def _shown(text: str) -> str:
    return json.dumps(text[:SHOWN_CHARACTERS], ensure_ascii=False)
