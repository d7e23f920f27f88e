"""What a user asked of the plugin: by a flag, a variable or the ini file, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class ProgressForm(StrEnum):
    """How progress is shown beside pytest's own reporter."""

    AUTO = "auto"
    """A line at the bottom of a terminal; nothing in a log."""
    LINES = "lines"
    """`[ 3/20] ✓ test_basic  1.9 s  (ETA 8 s)` for each test, in the place of pytest's own dots."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The whole of what was asked for."""

    parallel: int = 0
    """How many tests at once; 0 and 1 are plain pytest."""
    auto: bool = False
    """True: as many as the machine can carry, up to `parallel`."""
    progress: ProgressForm = ProgressForm.AUTO
    store: Path | None = None
    """Where every run is recorded; None: nowhere."""
    models: tuple[str, ...] | None = None
    """Of the registry; empty: all of them. None: the first one."""
    registry: Path | None = None
    """The file of the registry; None: it is looked for."""

    @property
    def is_parallel(self) -> bool:
        return self.parallel > 1
