"""A comparison as JSON says it: every field that is told, by the names that `comparison` has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

from paraval.report.comparing.comparison import Comparison
from paraval.report.comparing.sentences import sentence
from paraval.report.costs import finite
from paraval.report.text import well_formed


def comparison_as_dict(comparison: Comparison) -> dict[str, Any]:
    """What JSON cannot say as a number (an interval without an end) is null."""
    told: dict[str, Any] = _said(comparison)
    return {**told, "sentence": sentence(comparison, well_formed)}


def _said(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        told = [one for one in dataclasses.fields(value) if one.metadata.get("told", True)]
        return {field.name: _said(getattr(value, field.name)) for field in told}
    if isinstance(value, Mapping):
        return {well_formed(key): _named(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return [_said(inner) for inner in value]
    if isinstance(value, str):
        return well_formed(value)
    return finite(value) if isinstance(value, float) else value


def _named(value: Any) -> Any:
    """An axis value names a side: what JSON cannot say as a number is said as text."""
    return str(value) if isinstance(value, float) and finite(value) is None else _said(value)
