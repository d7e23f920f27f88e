"""pytest's temporary folders, made one at a time.

The first test that asks for one makes the folder of the whole session, after it has removed an old
one of that name (`--basetemp`); two at once would remove what the other has just begun to use.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def folders_one_by_one() -> Iterator[None]:
    """Until the block ends, who asks for a folder waits for the one that is being made."""
    basetemp, mktemp = pytest.TempPathFactory.getbasetemp, pytest.TempPathFactory.mktemp
    # The one asks for the other, in the same thread.
    making = threading.RLock()
    """Guards the folder of the session, and the numbers of those in it."""

    def get_basetemp(factory: pytest.TempPathFactory) -> Path:
        with making:
            return basetemp(factory)

    def make_temp(factory: pytest.TempPathFactory, basename: str, numbered: bool = True) -> Path:
        with making:
            return mktemp(factory, basename, numbered)

    _set("getbasetemp", get_basetemp)
    _set("mktemp", make_temp)
    try:
        yield
    finally:
        _set("getbasetemp", basetemp)
        _set("mktemp", mktemp)


def _set(name: str, function: object) -> None:
    setattr(pytest.TempPathFactory, name, function)
