"""Dicts, lists and sets that modules hold for everybody, as a registry: does code change them?

`product.SHELLS.clear()` and `product.SHELLS["own"] = ...` do, for whoever runs beside. What a test
adds to a container under a bare name may be its own module's, where results are gathered: only to
empty it is a change there.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Set
from types import ModuleType
from typing import Any

from paraval.pytest_plugin.code_names import Outline, Use, UsedName
from paraval.pytest_plugin.known_changes import CHANGING_METHODS, EACH_TURNS_OWN

_CONTAINERS = (dict, list, set, Counter, OrderedDict, defaultdict, deque)
_DEPTH = 3
"""How many modules within modules are looked into."""


def is_container(value: object) -> bool:
    return type(value) in _CONTAINERS


def can_change(shape: Outline, globals_: Mapping[str, Any]) -> bool:
    """Whether code of this outline is worth reading for it; quick, since most is not."""
    if not shape.changes_items and CHANGING_METHODS.isdisjoint(shape.names):
        return False
    is_emptied = "clear" in shape.names
    for name in shape.names:
        value = globals_.get(name) or sys.modules.get(name)
        if isinstance(value, ModuleType):
            if _holds_container(value, shape.names, _DEPTH):
                return True
        elif is_emptied and is_container(globals_.get(name)):
            return True
    return False


def change_of(used: UsedName, at: int, owner: object) -> str | None:
    """What is done, in words, to the container that the first `at` parts of a name stand for."""
    name = ".".join(used.parts[:at])
    following = used.parts[at] if at < len(used.parts) else None
    if isinstance(owner, ModuleType):
        is_changed = (
            used.use is Use.ITEM_CHANGED if following is None else following in CHANGING_METHODS
        )
        if not is_changed or f"{owner.__name__}.{used.parts[at - 1]}" in EACH_TURNS_OWN:
            return None
        return f"changes `{name}`"
    return f"empties `{name}`" if following == "clear" else None


def _holds_container(module: ModuleType, names: Set[str], depth: int) -> bool:
    found = vars(module)
    return any(
        is_container(found.get(name))
        or (
            depth > 1
            and isinstance(found.get(name), ModuleType)
            and _holds_container(found[name], names, depth - 1)
        )
        for name in names
    )
