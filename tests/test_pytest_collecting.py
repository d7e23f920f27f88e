"""A test that collects garbage has it collected, whatever runs beside it."""

from __future__ import annotations

import gc
import threading
import weakref

from paraval.pytest_plugin.collecting import collecting_for_sure


class Slow:
    """Garbage whose end takes as long as is wanted, in the middle of a collection."""

    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self.itself = self
        self.begun, self.go_on = begun, go_on

    def __del__(self) -> None:
        self.begun.set()
        gc.collect()  # within a collection of its own thread: it must not wait for itself
        self.go_on.wait(10)


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_a_collection_waits_for_the_one_in_another_thread() -> None:
    """Python itself would do nothing then, and the cycle would still be there."""
    begun, go_on = threading.Event(), threading.Event()
    plain = gc.collect
    with collecting_for_sure():
        Slow(begun, go_on)
        other = threading.Thread(target=gc.collect)
        other.start()
        assert begun.wait(10)
        cycle = weakref.ref(Cycle())
        assert plain() == 0
        assert cycle() is not None
        threading.Timer(0.05, go_on.set).start()
        gc.collect()
        assert cycle() is None
        other.join(10)
        assert gc.collect(0) >= 0
    assert gc.collect is plain
