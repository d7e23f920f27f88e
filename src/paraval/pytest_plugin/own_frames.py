"""Keeps this package out of the tracebacks of tests, as pytest keeps itself out of them.

Much of it stands between pytest and a test: around hooks, fixtures, streams and loggers. What
failed is a line of the user's. With `--full-trace`, all is shown.
"""

from __future__ import annotations

import sys

import pytest

_PACKAGE = __name__.rpartition(".")[0]
_BETWEEN = ("_pytest", "pluggy", _PACKAGE)
"""Packages whose frames are no user's."""


def hide_own_frames() -> None:
    """In all modules of the package that are loaded by now."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith(f"{_PACKAGE}."):
            # pytest's own word for a function that is not to be shown; in a module, for all of it.
            vars(module)["__tracebackhide__"] = _is_in_the_way


def _is_in_the_way(failure: pytest.ExceptionInfo[BaseException] | None) -> bool:
    """Where nothing of the user's is left, as of a test that hung, pytest would tell that all is
    hidden."""
    if failure is None:
        return True
    names = (str(entry.frame.f_globals.get("__name__", "")) for entry in failure.traceback)
    return not all(name.startswith(_BETWEEN) for name in names)
