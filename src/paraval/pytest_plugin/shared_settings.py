"""Functions that set what the whole process shares, as `product.set_active(False)` does.

The code under test is not read for all that it does: it may keep caches, and those harm nobody. But
a function that is called "set", "reset" or the like, and writes a global or what is in one, changes
the code under test for whoever runs beside the test that calls it.
"""

from __future__ import annotations

import sys
from types import FunctionType

from paraval.pytest_plugin.code_names import Root, Use, outline, used_names

_VERBS = frozenset(
    {
        "activate",
        "configure",
        "deactivate",
        "disable",
        "enable",
        "install",
        "override",
        "reset",
        "set",
        "uninstall",
        "use",
    }
)
_CHANGES = frozenset({Use.ATTRIBUTE_CHANGED, Use.ITEM_CHANGED})


def is_called_so(name: str) -> bool:
    """Whether a function of this name is worth reading."""
    return name.lstrip("_").partition("_")[0] in _VERBS


def setting_of(function: FunctionType) -> str | None:
    """What the function sets for everybody, as in "SETTINGS.is_active"; None: nothing is known.

    Of Python's own library, what matters is known by name.
    """
    package = str(function.__globals__.get("__name__", "")).partition(".")[0]
    if not is_called_so(function.__name__) or package in sys.stdlib_module_names:
        return None
    written = outline(function.__code__).written_globals
    if written:
        return written[0]
    for used in used_names(function.__code__):
        if used.root is Root.GLOBAL and used.use in _CHANGES:
            return ".".join(used.parts)
    return None
