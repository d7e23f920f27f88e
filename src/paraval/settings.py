"""What a person may choose for a run, beside the suite: one record for each stage that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

DEFAULT_PARALLEL = 4
STORE_FOLDER = ".paraval"
STORE_VARIABLE = "PARAVAL_STORE"

ANSWER_LIMIT_BYTES = 1 << 20
"""An answer longer than this is not judged: it is `invalid_output`."""
LOG_LIMIT_BYTES = 16 << 20
"""Of each captured stream this much is kept whole; past it, the first part and the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which trials of a suite to plan, and what to lay over the suite's own words."""

    cases: tuple[str, ...] = ()
    """Globs over case ids; empty means all."""
    tags: tuple[str, ...] = ()
    """A case needs one of them; empty means all."""
    variants: tuple[tuple[str, str], ...] = ()
    """(axis, value) pairs; of several values of one axis, any fits."""
    parallel: int | None = None
    repeats: int | None = None
    timeout: float | None = None
    fail_under: float | None = None

    def as_mapping(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> Selection:
        """From what `as_mapping` gave, also after a way through JSON."""
        fields: dict[str, Any] = dict(stored)
        for name in ("cases", "tags"):
            fields[name] = tuple(fields.get(name, ()))
        fields["variants"] = tuple((axis, value) for axis, value in fields.get("variants", ()))
        return cls(**fields)
