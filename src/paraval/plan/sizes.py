"""Amounts of memory as people write them: `500MB`, `2 GB`, `1.5GiB`, or plain bytes."""

from __future__ import annotations

import re

_UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", start=1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
_BY_FOLDED = {unit.casefold(): size for unit, size in _UNITS.items()}
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]{1,3})?")

LEAST_BYTES = 1_000_000
"""No process is smaller; `memory: 500` is a slip of the pen."""
LARGEST_BYTES = 1 << 60


def read_size(written: str | float) -> int | None:
    """The bytes that are meant; None where it is no sensible amount of memory.

    `M` and `G` alone are refused: to some tools they are powers of 1000, to others of 1024.
    """
    found = _AMOUNT.fullmatch(str(written).strip())
    if found is None:
        return None
    unit = _BY_FOLDED.get((found[2] or "B").casefold())
    size = 0 if unit is None else round(float(found[1]) * unit)
    return size if LEAST_BYTES <= size <= LARGEST_BYTES else None
