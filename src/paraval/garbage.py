"""When Python's garbage collector has nothing to find: while what stays is made, and at the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """To look through a plan again and again while it grows takes long, and finds nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


OBJECTS_BEFORE_A_LOOK = 20_000
"""Python's own 700 are there again after a few answers of a model, and nearly none is garbage."""


def few_collections() -> None:
    """For programs of our own, as what follows: in a user's process the user decides."""
    gc.set_threshold(OBJECTS_BEFORE_A_LOOK)


@contextmanager
def made_to_stay() -> Iterator[None]:
    """What there is at the end of the block is never looked through: the code of a program, say."""
    with no_collections():
        yield
        gc.freeze()


def no_more_collections() -> None:
    """A program ends: to look for garbage among all it has takes longer than to leave it there."""
    gc.disable()
    gc.freeze()
