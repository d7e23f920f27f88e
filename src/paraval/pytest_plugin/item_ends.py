"""How a test ended, from its thread to the main one: reports, warnings, and what they come to."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from paraval.pytest_plugin.protocol import PhaseEnd
from paraval.records import AttemptResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnd:
    """One execution of a test."""

    item: pytest.Item
    phases: Sequence[PhaseEnd]
    result: AttemptResult
    """What the engine is told of it."""
    warned: Sequence[warnings.WarningMessage] = ()
    is_to_be_checked: bool = False
    """True: it failed beside others, and is run once more, alone, before reporters hear of it."""
    has_called: bool = False
    """True: it may have asked a model."""
    is_told: bool = False
    """True: reporters have heard of it already, as of a test that ran alone."""
