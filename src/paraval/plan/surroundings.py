"""What a suite's words are relative to: its folder, functions handed over with it, its models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paraval.errors import ParavalError
from paraval.functions import Functions, load_function
from paraval.plan.places import Spot
from paraval.plan.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """A suite's own folder, absolute, its functions that were given as objects, and its models."""

    folder: Path
    functions: Functions
    registry: Registry = field(default_factory=Registry)
    has_workspace: bool = False
    """True: attempts run in a folder of their own, not in the suite's."""

    def function(self, reference: str, spot: Spot) -> Callable[..., Any] | None:
        """The function that a reference stands for; None after telling why it cannot be had."""
        if reference in self.functions:
            return self.functions[reference]
        try:
            return load_function(reference, str(self.folder))
        except ParavalError as error:
            spot.report(error.message)
        return None
