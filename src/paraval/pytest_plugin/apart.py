"""What is kept apart while tests run beside each other, put up and taken down as one.

A test that runs alone has pytest as it always is: nothing of this is in place then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from _pytest import runner

from paraval.pytest_plugin.turns import current

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


@contextmanager
def no_current_test() -> Iterator[None]:
    """PYTEST_CURRENT_TEST names one test for the whole process: not while several run."""
    update = runner._update_current_test_var

    def update_alone(*arguments: Any) -> None:
        if current() is None:
            update(*arguments)

    setattr(runner, "_update_current_test_var", update_alone)  # noqa: B010 - of another type
    try:
        yield
    finally:
        setattr(runner, "_update_current_test_var", update)  # noqa: B010 - the same
