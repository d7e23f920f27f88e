"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def suggestion(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'timeout'?`, or else the choices."""
    names = list(known)
    near = nearest(name, names)
    if near:
        return f", did you mean '{near[0]}'?"
    return f"; choose from {quoted(names)}" if names else ""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """At most three similar names, best first; case does not matter."""
    by_folded = {other.casefold(): other for other in known}
    near = difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=cutoff)
    return [by_folded[folded] for folded in near]


def quoted(names: Iterable[Any], limit: int = 20, word: str = "and") -> str:
    """`'a', 'b' and 'c'`; long lists are cut."""
    shown = [f"'{name}'" for name in names]
    if len(shown) > limit:
        shown[limit:] = [f"{len(shown) - limit} more"]
    return f" {word} ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))
