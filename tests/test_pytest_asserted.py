"""What a failed assert says, for tests that run beside each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.assertion import util

from paraval.pytest_plugin.isolation.exceptions import isolate_asserts
from paraval.pytest_plugin.running.current_test import RunningTest


def variables() -> tuple[object, ...]:
    return (util._reprcompare, util._assertion_pass, util._config)


def test_other_tests_never_see_what_is_set_up_for_one(pytestconfig: pytest.Config) -> None:
    """pytest's variables stay as they are for all, while the hooks of one test are asked."""
    seen: list[tuple[object, ...]] = []

    def look(*_: object, **__: object) -> list[list[str]]:
        seen.append(variables())
        return [["mine", "of the test"]]

    hooks = SimpleNamespace(
        pytest_assertion_pass=SimpleNamespace(get_hookimpls=look), pytest_assertrepr_compare=look
    )
    item = cast("Any", SimpleNamespace(ihook=hooks, config=pytestconfig))
    test = RunningTest(item=item, captured=cast("Any", None), logs=cast("Any", None))
    before = variables()
    with isolate_asserts(pytestconfig), test.running_here():
        within = variables()
        explain = util._reprcompare
        said = None if explain is None else explain("==", 1, 2)
    assert variables() == before
    assert seen == [within, within]
    assert said is not None
    assert said.startswith("mine")


def test_without_pytests_plugin_nobody_explains() -> None:
    """`-p no:assertion`: its options are not there, either."""
    without = SimpleNamespace(pluginmanager=SimpleNamespace(has_plugin=lambda _: False))
    before = variables()
    with isolate_asserts(cast("Any", without)):
        assert variables() == before
