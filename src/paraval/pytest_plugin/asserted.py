"""What a failed `assert` says of two values, for tests that run beside others.

pytest sets that up for one test at a time, in variables of the whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
from _pytest import assertion
from _pytest.assertion import util

from paraval.pytest_plugin.turns import current

Explain = Callable[[str, object, object], str | None]


@contextmanager
def asserts_apart(config: pytest.Config) -> Iterator[None]:
    """Each turn's asserts are explained by the hooks of its own test; with `-p no:assertion`, by
    nobody's."""
    if not config.pluginmanager.has_plugin("assertion"):
        yield
        return
    before = (util._reprcompare, util._assertion_pass, util._config)

    def explain(op: str, left: object, right: object) -> str | None:
        turn = current()
        ours = before[0] if turn is None else _hooks_of(turn.item)[0]
        return None if ours is None else ours(op, left, right)

    def passed(lineno: int, original: str, explanation: str) -> None:
        turn = current()
        ours = before[1] if turn is None else _hooks_of(turn.item)[1]
        if ours is not None:
            ours(lineno, original, explanation)

    wanted = bool(config.getini("enable_assertion_pass_hook"))
    util._reprcompare = explain
    util._assertion_pass = passed if wanted else None
    util._config = config
    try:
        yield
    finally:
        util._reprcompare, util._assertion_pass, util._config = before


def _hooks_of(item: pytest.Item) -> tuple[Explain | None, Any]:
    """What pytest's own plugin sets up for this item: by a copy of its function that sees variables
    of our own, since other tests read those of the process at the same time."""
    own = SimpleNamespace(_reprcompare=None, _assertion_pass=None, _config=None)
    code = assertion.pytest_runtest_protocol.__code__
    wrapper: Any = FunctionType(code, {**vars(assertion), "util": own})(item)
    try:
        next(wrapper)
        return own._reprcompare, own._assertion_pass
    finally:
        wrapper.close()
