"""What a race began with, as the store keeps it: so that a resume and a report need no files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paraval.codec import from_data, to_data
from paraval.errors import StoreError
from paraval.racing.course.steps import Base, StepKind
from paraval.racing.findings import Proposal
from paraval.racing.request import RaceRequest
from paraval.settings import RACE

_HOOKS = (StepKind.GENERATE, StepKind.REPAIR, StepKind.REFINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceStart:
    """All that a course begins with."""

    request: RaceRequest
    proposals: tuple[Proposal, ...]
    base: Base

    @property
    def hooks(self) -> frozenset[StepKind]:
        """Those that may be asked."""
        return frozenset(kind for kind in _HOOKS if self.request.hook(kind.value) is not None)


def as_selection(beginning: RaceStart) -> dict[str, str]:
    """As a text of ASCII alone: patches may hold bytes that are no characters."""
    return {RACE: json.dumps(to_data(beginning))}


def recalled(selection: Mapping[str, Any]) -> RaceStart:
    try:
        data = json.loads(selection[RACE])
        # One that was begun before there were canaries has none.
        data["request"]["test"].setdefault("canary", False)
        return from_data(RaceStart, data)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise StoreError(
            f"what the race began with cannot be read: {error}",
            hint="it was made by another version of paraval; start the race anew",
        ) from error
