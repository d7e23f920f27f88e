"""Amounts of money as people read them."""

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
