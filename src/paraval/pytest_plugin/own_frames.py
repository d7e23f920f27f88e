"""Keeps this package out of the tracebacks of tests, as pytest keeps itself out of them.

Much of it stands between pytest and a test: around hooks, fixtures, streams and loggers. What
failed is a line of the user's. With `--full-trace`, all is shown.
"""

from __future__ import annotations

import sys

_PACKAGE = __name__.rpartition(".")[0] + "."


def hide_own_frames() -> None:
    """In all modules of the package that are loaded by now."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(_PACKAGE):
            # pytest's own word for a function that is not to be shown; in a module, for all of it.
            vars(module)["__tracebackhide__"] = True
