"""What a fixture may ask for while it runs: names that it hands to `request.getfixturevalue`.

They stand in no signature, so its code is read. That is exact where the name is written out in the
call, and says so where it cannot tell.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from functools import lru_cache
from itertools import zip_longest
from types import CodeType

from paraval.pytest_plugin.code_steps import steps_of


def asked_by(function: Callable[..., object]) -> frozenset[str] | None:
    """The names of fixtures that the function asks for as it runs; None: it may be any."""
    innermost = inspect.unwrap(function)
    code = getattr(getattr(innermost, "__func__", innermost), "__code__", None)
    return None if code is None else _asked_in(code)


@lru_cache(maxsize=1024)
def _asked_in(code: CodeType) -> frozenset[str] | None:
    names: set[str] = set()
    steps = steps_of(code)
    for first, second, third in zip_longest(steps, steps[1:], steps[2:]):
        if not _loads_request(first):
            continue
        if second is None or not second.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            # The request is handed on, or kept: whoever has it may ask for anything.
            return None
        if second.argval == "getfixturevalue":
            if third is None or third.opname != "LOAD_CONST" or not isinstance(third.argval, str):
                return None
            names.add(third.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _asked_in(constant)
            if inner is None:
                return None
            names |= inner
    return frozenset(names)


def _loads_request(step: dis.Instruction) -> bool:
    return step.argval == "request" and step.opname.startswith(
        ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")
    )
