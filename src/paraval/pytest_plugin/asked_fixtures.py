"""What a fixture may ask for while it runs: names that it hands to `request.getfixturevalue`.

They stand in no signature, so its code is read. That is exact where the name is written out in the
call, and says so where it cannot tell.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType


def asked_by(function: Callable[..., object]) -> frozenset[str] | None:
    """The names of fixtures that the function asks for as it runs; None: it may be any."""
    innermost = inspect.unwrap(function)
    code = getattr(getattr(innermost, "__func__", innermost), "__code__", None)
    return None if code is None else _asked_in(code)


@lru_cache(maxsize=1024)
def _asked_in(code: CodeType) -> frozenset[str] | None:
    names: set[str] = set()
    for first, second, third in _triples(code):
        if not _loads_request(first):
            continue
        if not second.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            # The request is handed on, or kept: whoever has it may ask for anything.
            return None
        if second.argval == "getfixturevalue":
            if third.opname != "LOAD_CONST" or not isinstance(third.argval, str):
                return None
            names.add(third.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _asked_in(constant)
            if inner is None:
                return None
            names |= inner
    return frozenset(names)


def _triples(
    code: CodeType,
) -> Iterator[tuple[dis.Instruction, dis.Instruction, dis.Instruction]]:
    instructions = list(dis.get_instructions(code))
    return zip(instructions, instructions[1:], instructions[2:], strict=False)


def _loads_request(instruction: dis.Instruction) -> bool:
    if not instruction.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
        return False
    # From Python 3.13 on, one instruction may load two names.
    loaded = instruction.argval
    return "request" in loaded if isinstance(loaded, tuple) else bool(loaded == "request")
