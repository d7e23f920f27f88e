"""What tests warn of, kept apart: what pytest's warnings plugin does for each test, for a turn.

It is done by that plugin's own code, in the test's thread: `warnings_by_turn` gives each turn a
`warnings` module of its own, as it were. Reporters are told in the main thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.warnings import catch_warnings_for_item

from paraval.pytest_plugin.turns import Turn
from paraval.pytest_plugin.warnings_by_turn import SHOW_IMPL, warnings_by_turn


@contextmanager
def warnings_apart(config: pytest.Config) -> Iterator[None]:
    """Until the block ends, each turn has its own; code of nobody is heard together, and told at
    the end without a test's name."""
    with warnings_by_turn():
        if not config.pluginmanager.hasplugin("warnings"):
            yield
            return
        with catch_warnings_for_item(config=config, ihook=config.hook, when="runtest", item=None):
            yield


@contextmanager
def catching(turn: Turn) -> Iterator[None]:
    """In the test's own thread, around all its phases: filters of the configuration and of marks
    hold, and what they let through is in `turn.warned` at once, for one that hangs, too."""
    item, recorded = turn.item, turn.warned

    def record(kwargs: dict[str, Any]) -> None:
        recorded.append(kwargs["warning_message"])

    if not item.config.pluginmanager.hasplugin("warnings"):
        yield
        return
    # The hooks are for the main thread; this hears only of filters that could not be read.
    hook = SimpleNamespace(pytest_warning_recorded=SimpleNamespace(call_historic=record))
    with catch_warnings_for_item(config=item.config, ihook=hook, when="runtest", item=item):
        setattr(warnings, SHOW_IMPL, recorded.append)
        yield


def emit(item: pytest.Item, warned: Sequence[warnings.WarningMessage]) -> None:
    """In the main thread: reporters hear of a test's warnings, as from pytest's own plugin."""
    for message in warned:
        item.ihook.pytest_warning_recorded.call_historic(
            kwargs={
                "warning_message": message,
                "nodeid": item.nodeid,
                "when": "runtest",
                "location": None,
            }
        )
