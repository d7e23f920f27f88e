"""Amounts of money and time as people read them."""

from __future__ import annotations

import math


def dollars(usd: float) -> str:
    """`$12.34`, `$0.034`, `$0.000082`: two digits that say something, and never an exponent."""
    size = abs(usd)
    if size == 0 or size >= 0.1:
        return f"${usd:,.2f}"
    if size < 1e-8:
        return "under $0.00000001"
    return f"${usd:.{1 - math.floor(math.log10(size))}f}"


def rough_time(seconds: float) -> str:
    """`8 s`, `2 min`, `1 h 05 min`: no more digits than a guess deserves."""
    if not math.isfinite(seconds) or seconds < 0:
        return "?"
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else "{} h {:02} min".format(*divmod(minutes, 60))
