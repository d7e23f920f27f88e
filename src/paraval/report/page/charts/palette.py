"""Which colour a variant has: the same in every chart that is given all variants in their order."""

from __future__ import annotations

COLOURS = 8
"""More than so many cannot be told apart; then all have the same."""


def colour_class(index: int, variants: int) -> str:
    """The class that colours what is drawn of a variant; empty where colours would tell nothing."""
    return f"v{index + 1}" if 1 < variants <= COLOURS else ""
