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

_CONFIGURED = pytest.StashKey[tuple[Any, ...] | None]()
"""The filters of the configuration, as they are in force; None: some of them cannot be read."""
_PLAINLY_SHOWN: Any = vars(warnings)["_showwarning_orig"]


@contextmanager
def warnings_apart(config: pytest.Config) -> Iterator[None]:
    """Until the block ends, each turn has its own; what code of nobody warns of is told then,
    without a test's name."""
    nobodys: list[warnings.WarningMessage] = []
    of_filters: list[warnings.WarningMessage] = []
    with warnings_by_turn():
        # Tried once: what filters that cannot be read warn of is told when they are left.
        with _recorded(config, None, nobodys, of_filters):
            pass
        with _recorded(config, None, nobodys, []):
            is_plain = config.pluginmanager.hasplugin("warnings") and not of_filters
            config.stash[_CONFIGURED] = tuple(warnings.filters) if is_plain else None
            yield
    for message in nobodys:
        _tell(config.hook, message, "")


@contextmanager
def catching(turn: Turn) -> Iterator[None]:
    """In the test's own thread, around all its phases: filters of the configuration and of marks
    hold, and what they let through is in `turn.warned` at once, for one that hangs, too."""
    configured = turn.item.config.stash.get(_CONFIGURED, None)
    if configured is not None and not any(turn.item.iter_markers("filterwarnings")):
        # What pytest would read anew for each test; and what a turn holds ends with it.
        warnings.filters = list(configured)
        warnings.showwarning = _PLAINLY_SHOWN
        setattr(warnings, SHOW_IMPL, turn.warned.append)
        yield
        return
    with _recorded(turn.item.config, turn.item, turn.warned, turn.warned):
        yield


def emit(item: pytest.Item, warned: Sequence[warnings.WarningMessage]) -> None:
    """In the main thread: reporters hear of a test's warnings, as from pytest's own plugin."""
    for message in warned:
        _tell(item.ihook, message, item.nodeid)


@contextmanager
def _recorded(
    config: pytest.Config,
    item: pytest.Item | None,
    warned: list[warnings.WarningMessage],
    of_filters: list[warnings.WarningMessage],
) -> Iterator[None]:
    """As pytest's own, without its hooks. `of_filters`: what filters that cannot be read warn of;
    that is told for each test, and so once too often for nobody."""
    if not config.pluginmanager.hasplugin("warnings"):
        yield
        return

    def keep(kwargs: dict[str, Any]) -> None:
        of_filters.append(kwargs["warning_message"])

    hook = SimpleNamespace(pytest_warning_recorded=SimpleNamespace(call_historic=keep))
    with catch_warnings_for_item(config=config, ihook=hook, when="runtest", item=item):
        setattr(warnings, SHOW_IMPL, warned.append)
        yield


def _tell(hook: Any, message: warnings.WarningMessage, node_id: str) -> None:
    hook.pytest_warning_recorded.call_historic(
        kwargs={
            "warning_message": message,
            "nodeid": node_id,
            "when": "runtest",
            "location": None,
        }
    )
