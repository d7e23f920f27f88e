"""`gc.collect()` in one test while Python collects garbage in another: it would do nothing.

Python collects in one thread at a time, and a call that comes meanwhile returns at once. A test
that looks for what is left after it would find garbage. `from gc import collect` is not covered.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 1.0
_PAUSE_S = 0.001
_ALL = 2


@contextmanager
def collecting_for_sure() -> Iterator[None]:
    """Until the block ends, `gc.collect()` waits for the collection in another thread."""
    plain = gc.collect
    here = threading.local()

    def collect(generation: int = _ALL) -> int:
        # A finalizer may ask for it in the middle of one: that one cannot be waited for.
        if generation != _ALL or getattr(here, "is_collecting", False):
            return plain(generation)
        here.is_collecting = True
        until = time.monotonic() + PATIENCE_S
        try:
            while True:
                before = _collections()
                found = plain()
                if _collections() != before or time.monotonic() > until:
                    return found
                time.sleep(_PAUSE_S)
        finally:
            here.is_collecting = False

    gc.collect = collect
    try:
        yield
    finally:
        gc.collect = plain


def _collections() -> int:
    return int(gc.get_stats()[_ALL]["collections"])
