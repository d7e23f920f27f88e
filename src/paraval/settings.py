"""What a person may choose for a run, beside the suite: one record for each stage that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from paraval.errors import RequestError

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

    def __post_init__(self) -> None:
        for name in ("cases", "tags", "variants"):
            if isinstance(getattr(self, name), str):
                raise RequestError(f"a selection's {name} are a tuple, not one text")

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

    def over(self, earlier: Selection) -> Selection:
        """An earlier selection with what this one says laid over it."""
        said = {name: getattr(self, name) for name in self.as_mapping()}
        return replace(earlier, **said)


def default_store() -> Path:
    """Where runs are kept unless told otherwise: PARAVAL_STORE, or a folder in the current one."""
    return Path(os.environ.get(STORE_VARIABLE) or STORE_FOLDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is carried out; what runs is the suite's and the selection's business."""

    store: Path | None = None
    """None: PARAVAL_STORE, or `.paraval` in the current folder."""
    seed: int | None = None
    """For the jitter of retries; None: the suite's, or 0."""
    resume: str | None = None
    """A run to go on with; empty for the last unfinished one of the suite; None for a new one."""
    retry_errors: bool = False
    """Run again what ended in an error, in the run to resume; by itself, in the suite's last."""

    def __post_init__(self) -> None:
        if isinstance(self.store, str):
            object.__setattr__(self, "store", Path(self.store))

    @property
    def resumes(self) -> bool:
        return self.resume is not None or self.retry_errors
