"""One failure that many tests tell of: that of a fixture or a collector which they share.

An exception grows a traceback as it is raised, and two threads that raise the same one at once
would mix theirs. So each test after the first raises a copy.
"""

from __future__ import annotations

import copy
from types import TracebackType


def told_again(error: BaseException, traceback: TracebackType | None) -> BaseException:
    """A copy of the error as it was first raised; the error itself where it cannot be copied."""
    try:
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001 - a user's class may ask for arguments that nobody kept
        twin = error
    if type(twin) is not type(error):
        twin = error
    if twin is not error:
        # A class that makes its message of its arguments would make one of the message.
        twin.args = error.args
        twin.__cause__ = error.__cause__
        twin.__context__ = error.__context__
        twin.__suppress_context__ = error.__suppress_context__
    return twin.with_traceback(traceback)
