"""Blocks of `redirect_stdout` and `redirect_stderr` that a test leaves too late.

While turns run, what a test assigns to the streams is its own, and that of one that is over is
dropped: `streams` sees to that. One that was given up may leave such a block when the streams are
everybody's again, and must not put back there what was its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from paraval.pytest_plugin.turns import turn_here


@contextmanager
def redirections_of_turns() -> Iterator[None]:
    """For all blocks that are entered until this one ends: how to leave is looked up there."""
    blocks: tuple[Any, ...] = (redirect_stdout, redirect_stderr)
    leave: Any = redirect_stdout.__exit__  # Both have it from one class.

    def leave_in_time(self: Any, *error: Any) -> None:
        turn = turn_here()
        if turn is None or not turn.is_over:
            leave(self, *error)

    for block in blocks:
        block.__exit__ = leave_in_time
    try:
        yield
    finally:
        for block in blocks:
            del block.__exit__
