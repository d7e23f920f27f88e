"""How much a command yields to what else runs on the machine.

Where the kernel groups processes by session (autogroup), niceness counts among the processes of a
session alone, and the session has one of its own: both are set. A session that a command starts for
itself is a new group; `Warden.loads` sees to those that last.
"""

from __future__ import annotations

import os
import sys

MOST_NICE = 19


def be_nice(session: int, nice: int) -> bool:
    """Have the session that this process leads yield; False: ask again in a while."""
    try:
        # The group, too: it may have started others already.
        os.setpriority(os.PRIO_PGRP, session, nice)
    except OSError:
        # It is gone, or became another user.
        return True
    return sys.platform != "linux" or _be_nice_as_group(session, nice)


def _be_nice_as_group(session: int, nice: int) -> bool:
    try:
        file = os.open(f"/proc/{session}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        os.write(file, b"%d" % nice)
    except BlockingIOError:
        # From all who are not root, the kernel hears this ten times a second, and no more often.
        return False
    except OSError:
        return True
    finally:
        os.close(file)
    return True
