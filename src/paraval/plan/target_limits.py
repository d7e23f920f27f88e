"""What one attempt may take of the machine, as a target says it."""

from __future__ import annotations

from typing import Any

from paraval.isolation import TargetLimits
from paraval.plan.forms import Locate, check
from paraval.plan.target_forms import TargetLimitsForm


def read_target_limits(written: Any, locate: Locate) -> TargetLimits:
    at_limits: Locate = lambda steps: locate(("limits", *steps))  # noqa: E731 - a name for one use
    form = None if written is None else check(TargetLimitsForm, written, at_limits(()), at_limits)
    if form is None:
        return TargetLimits()
    return TargetLimits(
        cpu=None if form.cpu is None else float(form.cpu),
        memory_bytes=form.memory,
        processes=None if form.processes is None else int(form.processes),
        open_files=None if form.open_files is None else int(form.open_files),
        file_bytes=form.file_size,
    )
