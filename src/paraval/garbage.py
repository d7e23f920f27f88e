"""Pauses Python's garbage collector when there is nothing to collect: while building a plan, and at
exit."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """Scanning a plan again and again while it grows takes long, and finds nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


OBJECTS_BEFORE_A_LOOK = 20_000
"""Python's default threshold of 700 is reached after a few model answers, with almost no
garbage."""


def few_collections() -> None:
    """For our own programs, like the functions below: in a user's process the user decides."""
    gc.set_threshold(OBJECTS_BEFORE_A_LOOK)


@contextmanager
def made_to_stay() -> Iterator[None]:
    """Exclude everything alive at the end of the block from collection, such as loaded code."""
    with no_collections():
        yield
        gc.freeze()


def no_more_collections() -> None:
    """At exit: collecting garbage takes longer than leaving it."""
    gc.disable()
    gc.freeze()
