"""The attempts of a test that waits out rate limits: each starts like the first.

`plain` and the engine decide whether there is another attempt, and when.
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
"""In a marked test: whether it has attempts left after this one."""
PROPERTIES = pytest.StashKey[list[tuple[str, object]]]()
"""The test's report properties before its first attempt."""


def begin(item: pytest.Item) -> None:
    """Prepare the first attempt."""
    item.stash[PROPERTIES] = list(item.user_properties)


def begin_again(item: pytest.Item) -> None:
    """Prepare another attempt: drop what the previous one printed, reported and left behind.

    Its spending stays, since that is reported for all attempts.
    """
    item._report_sections.clear()
    spent = [one for one in item.user_properties if one[0] == PROPERTY]
    item.user_properties[:] = [*item.stash.get(PROPERTIES, ()), *spent]
    spend_again(item)
    _drop_instance(item)


def refusal_in(phases: Sequence[PhaseEnd], item: pytest.Item) -> Failure | None:
    """The refusal by a rate limit in the phases so far; None for a lasting one, such as a used-up
    quota, which is not worth waiting for."""
    outcome, failure = outcome_of(phases, item)
    if outcome is not Outcome.RATE_LIMITED or failure is None or failure.lasting:
        return None
    return failure


def will_come_again(phases: Sequence[PhaseEnd], item: pytest.Item) -> bool:
    """Whether the test will be tried again, and so keeps what it shares, as if it had not ended.

    Otherwise a server that only this test needs would be started and stopped for each attempt.
    """
    return item.stash.get(MAY_COME_AGAIN, False) and refusal_in(phases, item) is not None


def _drop_instance(item: pytest.Item) -> None:
    """Drop the test class's instance that the test runs in.

    pytest creates one per test on first access, and keeps it. A function that is not in the class
    stays as it is.
    """
    parent, name = item.parent, getattr(item, "originalname", None)
    if isinstance(parent, pytest.Class) and name is not None and hasattr(parent.obj, name):
        own: Any = item
        own._obj = None
        vars(own).pop("_instance", None)
