"""When a run may stop early, as suites write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paraval.plan.forms import check
from paraval.plan.matrix import Axis
from paraval.plan.model import StopForm
from paraval.plan.places import Spot
from paraval.records import StopRule


def read_stop(written: Any, spot: Spot, axes: Sequence[Axis]) -> StopRule | None:
    """The rule; a run of one variant alone has nothing that could be decided."""
    form = None if written is None else check(StopForm, written, spot)
    if form is None:
        return None
    if all(len(axis.values) < 2 for axis in axes):
        spot.report(
            "is for suites that compare; give `matrix` an axis with two values or more, or remove"
            " `stop`"
        )
    return StopRule(confidence=float(form.confidence))
