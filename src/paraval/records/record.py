"""The decorator of records that a run makes by the thousand per second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(**options: Any) -> Any:
        """As `dataclass`, but only the type checker keeps it frozen: making a frozen one takes four
        times as long. What users' code gets and could change is a real frozen dataclass."""
        return dataclass(**{**options, "frozen": False})


__all__ = ["record"]
