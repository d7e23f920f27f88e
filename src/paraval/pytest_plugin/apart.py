"""What is kept apart while tests run beside each other, put up and taken down as one.

A test that runs alone has pytest as it always is: nothing of this is in place then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

Walls = Sequence[Callable[[], AbstractContextManager[Any]]]


class Apart:
    """In place or not. Only the main thread changes that, and while no turn runs."""

    def __init__(self, walls: Walls) -> None:
        self._walls = walls
        self._standing: ExitStack | None = None

    @property
    def is_up(self) -> bool:
        return self._standing is not None

    def put_up(self) -> None:
        if self._standing is None:
            with ExitStack() as stack:
                for wall in self._walls:
                    stack.enter_context(wall())
                self._standing = stack.pop_all()

    def take_down(self) -> None:
        if self._standing is not None:
            standing, self._standing = self._standing, None
            standing.close()
