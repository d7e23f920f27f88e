"""Syntax trees, one at a time: Python 3.11 cannot build two in different threads.

It counts how deep it is in a variable of the whole process, and a thread that takes its turn in the
middle leaves a wrong count: `SystemError: AST constructor recursion depth mismatch`
(python/cpython#106905). pytest builds a tree for each failed test, to show its source. Since Python
3.12 nothing else runs meanwhile.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def parsing_one_by_one() -> Iterator[None]:
    """Until the block ends, `ast.parse` waits for the one that runs in another thread."""
    if sys.version_info >= (3, 12):
        yield
        return
    plain = ast.parse
    # A finalizer may parse in the middle of it, in the same thread.
    building = threading.RLock()
    """Guards the count."""

    def parse(*arguments: Any, **named: Any) -> Any:
        with building:
            return plain(*arguments, **named)

    ast.parse = parse
    try:
        yield
    finally:
        ast.parse = plain
