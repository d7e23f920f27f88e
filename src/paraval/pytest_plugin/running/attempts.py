"""The attempts of a test that waits out rate limits: each begins as the first one did.

Whether there is another, and when, is for `plain` and for the engine to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paraval.pytest_plugin.models.item_outcomes import outcome_of
from paraval.pytest_plugin.models.spending import begin_again as spend_again
from paraval.pytest_plugin.models.spent import PROPERTY
from paraval.pytest_plugin.running.current_test import PhaseEnd
from paraval.records import Failure, Outcome

MAY_COME_AGAIN = pytest.StashKey[bool]()
"""In a test that is marked for it: whether it has attempts left after this one."""
PROPERTIES = pytest.StashKey[list[tuple[str, object]]]()
"""What a test had to tell reporters before it was first tried."""


def begin(item: pytest.Item) -> None:
    """Before the first attempt."""
    item.stash[PROPERTIES] = list(item.user_properties)


def begin_again(item: pytest.Item) -> None:
    """Before another one: what the one before printed, told and left behind is no longer its own.

    What it spent stays: that is told of all attempts.
    """
    item._report_sections.clear()
    spent = [told for told in item.user_properties if told[0] == PROPERTY]
    item.user_properties[:] = [*item.stash.get(PROPERTIES, ()), *spent]
    spend_again(item)
    _drop_instance(item)


def refusal_in(phases: Sequence[PhaseEnd], item: pytest.Item) -> Failure | None:
    """By a rate limit, in the phases so far. One that lasts, as of a quota that is used up, is not
    waited for."""
    outcome, failure = outcome_of(phases, item)
    if outcome is not Outcome.RATE_LIMITED or failure is None or failure.lasting:
        return None
    return failure


def will_come_again(phases: Sequence[PhaseEnd], item: pytest.Item) -> bool:
    """Then it keeps what it shares with others, as if it had not ended: else a server that only
    this test needs would be started and ended for each attempt."""
    return item.stash.get(MAY_COME_AGAIN, False) and refusal_in(phases, item) is not None


def _drop_instance(item: pytest.Item) -> None:
    """The object of a test class that the test runs in. pytest makes one for each test, when it is
    first asked for it, and keeps it; a function that the class does not have stays as it is."""
    parent, name = item.parent, getattr(item, "originalname", None)
    if isinstance(parent, pytest.Class) and name is not None and hasattr(parent.obj, name):
        own: Any = item
        own._obj = None
        vars(own).pop("_instance", None)
