"""The stored start of a race, so that a resume or report needs no other files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paraval.codec import from_data, to_data
from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.racing.course.steps import Base, StepKind
from paraval.racing.findings import Proposal
from paraval.racing.request import RaceRequest
from paraval.records import Model
from paraval.settings import RACE

_HOOKS = (StepKind.GENERATE, StepKind.REPAIR, StepKind.REFINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceStart:
    """Everything that a course starts from."""

    request: RaceRequest
    proposals: tuple[Proposal, ...]
    base: Base

    @property
    def hooks(self) -> frozenset[StepKind]:
        """The hooks that may be called."""
        return frozenset(kind for kind in _HOOKS if self.request.hook(kind.value) is not None)

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that write candidates, and those that functions may call."""
        hooks = [self.request.hook(kind.value) for kind in self.hooks]
        if any(hook is not None and hook.is_function for hook in hooks):
            return tuple(self.request.models.values())
        generate = self.request.generate
        return () if generate is None or generate.asks is None else generate.asks.models


def as_selection(beginning: RaceStart) -> dict[str, str]:
    """Encode as ASCII text, because patches may contain undecodable bytes."""
    return {RACE: json.dumps(to_data(beginning))}


def recalled(selection: Mapping[str, Any]) -> RaceStart:
    try:
        data = json.loads(selection[RACE])
        # Races from before canaries existed have none.
        data["request"]["test"].setdefault("canary", False)
        return from_data(RaceStart, data)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise StoreError(
            f"the stored start of the race cannot be read: {error}",
            hint="it was stored by another version of paraval; start a new race",
        ) from error
