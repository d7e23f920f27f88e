"""Compiled code as steps that each do one thing, whatever Python it was compiled by.

From Python 3.13 on, one instruction may load or store two local variables. What the steps mean is
for those who read them to say.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from types import CodeType

_FILLERS = frozenset({"CACHE", "EXTENDED_ARG", "NOT_TAKEN"})


def steps_of(code: CodeType) -> list[dis.Instruction]:
    return list(one_by_one(dis.get_instructions(code)))


def one_by_one(instructions: Iterable[dis.Instruction]) -> Iterator[dis.Instruction]:
    for instruction in instructions:
        name = instruction.opname
        if name in _FILLERS:
            continue
        # Tuples are constants, too: those are one thing.
        if "_FAST_" not in name or not isinstance(instruction.argval, tuple):
            yield instruction
            continue
        first, second = instruction.argval
        # LOAD_FAST_LOAD_FAST, STORE_FAST_LOAD_FAST, LOAD_FAST_BORROW_LOAD_FAST_BORROW, ...
        yield _local(instruction, "LOAD_FAST" if name.startswith("LOAD") else "STORE_FAST", first)
        yield _local(
            instruction, "STORE_FAST" if name.endswith("STORE_FAST") else "LOAD_FAST", second
        )


def _local(instruction: dis.Instruction, opname: str, variable: str) -> dis.Instruction:
    return instruction._replace(opname=opname, opcode=dis.opmap[opname], argval=variable)
