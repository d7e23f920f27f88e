"""The dotted names that compiled code uses, read from its bytecode: nothing is run or imported.

What the names stand for, and whether that matters, is for `scan` to say. Read with `dis`, whose
`argval` is the same from Python 3.11 to 3.14, and once for each code object.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import CodeType, MappingProxyType

from paraval.pytest_plugin.code_steps import steps_of

_LOADS_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_LOADS_NAME = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_LOADS_CONSTANT = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_CHANGES_ATTRIBUTE = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_CHANGES_ITEM = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR"})
_STORES_NAME = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME"})
_BETWEEN_IMPORT_AND_STORE = frozenset({"SWAP", "POP_TOP", "COPY"})
_KEY_LENGTH = 40
"""How many instructions between a container and what is done to its item are looked at."""

_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]
_DELETE_GLOBAL = dis.opmap["DELETE_GLOBAL"]
_CHANGES_ATTRIBUTE_CODES = tuple(bytes([dis.opmap[name]]) for name in sorted(_CHANGES_ATTRIBUTE))
_CHANGES_ITEM_CODES = tuple(dis.opmap[name] for name in sorted(_CHANGES_ITEM))
_LOADS_LOCAL_CODES = frozenset(
    number for name, number in dis.opmap.items() if name.startswith("LOAD_FAST")
)
_CACHE = bytes([dis.opmap["CACHE"]])


class Root(Enum):
    """What the first part of a name is looked up in."""

    GLOBAL = auto()
    """The function's globals, then its builtins."""
    CLOSED = auto()
    """The function's closure."""
    IMPORTED = auto()
    """The modules: the parts are a full name, from an import inside the function."""
    OWN_CLASS = auto()
    """Nothing: the parts begin with `__class__`, of whatever object."""


class Use(Enum):
    """What the code does with what the name stands for."""

    READ = auto()
    ITEM_CHANGED = auto()
    """`name[...] = ...`, or `del name[...]`."""
    ATTRIBUTE_CHANGED = auto()
    """The last part of the name is set or deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedName:
    root: Root
    parts: tuple[str, ...]
    use: Use = Use.READ


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What can be said of code without reading its instructions one by one; quick."""

    codes: tuple[CodeType, ...]
    """The code and all that is nested in it."""
    names: frozenset[str]
    """Of globals, attributes and imported modules, in no order, and of what it closes over."""
    sets_attributes: bool
    """Of something else than a local variable, as `self.name = ...` does."""
    changes_items: bool
    """Of whatever, as `thing[key] = ...` does."""
    written_globals: tuple[str, ...]


def outline(code: CodeType) -> Outline:
    codes = tuple(_nested(code))
    names: set[str] = set()
    written: dict[str, None] = {}
    sets_attributes = changes_items = False
    for one in codes:
        names.update(one.co_names, one.co_freevars)
        operations = one.co_code[::2]
        sets_attributes |= _sets_attributes(operations.replace(_CACHE, b""))
        changes_items |= any(change in operations for change in _CHANGES_ITEM_CODES)
        if _STORE_GLOBAL in operations or _DELETE_GLOBAL in operations:
            written.update(
                (step.argval, None)
                for step in dis.get_instructions(one)
                if step.opcode in (_STORE_GLOBAL, _DELETE_GLOBAL)
            )
    return Outline(
        codes=codes,
        names=frozenset(names),
        sets_attributes=sets_attributes,
        changes_items=changes_items,
        written_globals=tuple(written),
    )


def _sets_attributes(operations: bytes) -> bool:
    for change in _CHANGES_ATTRIBUTE_CODES:
        at = operations.find(change)
        while at > 0:
            if operations[at - 1] not in _LOADS_LOCAL_CODES:
                return True
            at = operations.find(change, at + 1)
    return False


def used_names(code: CodeType) -> tuple[UsedName, ...]:
    """All names in the code and in what is nested in it, in order."""
    return tuple(_read(code, MappingProxyType({})))


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _read(code: CodeType, outer: Mapping[str, tuple[str, ...]]) -> Iterator[UsedName]:
    steps = steps_of(code)
    imported = {**outer, **_imports(steps)}
    at = 0
    while at < len(steps):
        found = _root(steps[at], imported)
        at += 1
        if found is None:
            continue
        root, parts = found
        while at < len(steps) and steps[at].opname in _LOADS_ATTRIBUTE:
            parts = (*parts, steps[at].argval)
            at += 1
        yield UsedName(root=root, parts=parts)
        if at < len(steps):
            yield from _change(root, parts, steps, at)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _read(constant, imported)


def _root(
    step: dis.Instruction, imported: Mapping[str, tuple[str, ...]]
) -> tuple[Root, tuple[str, ...]] | None:
    if step.opname in _LOADS_NAME:
        name = step.argval
        if step.opname == "LOAD_NAME" and name in imported:
            return Root.IMPORTED, imported[name]
        return Root.GLOBAL, (name,)
    if step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF")):
        name = step.argval
        if name in imported:
            return Root.IMPORTED, imported[name]
        if "DEREF" in step.opname:
            return Root.CLOSED, (name,)
    if step.opname in _LOADS_ATTRIBUTE and step.argval == "__class__":
        return Root.OWN_CLASS, ("__class__",)
    return None


def _change(
    root: Root, parts: tuple[str, ...], steps: list[dis.Instruction], at: int
) -> Iterator[UsedName]:
    """What is done to the thing that `steps[at - 1]` has put on the stack."""
    after = steps[at]
    if after.opname in _CHANGES_ATTRIBUTE:
        yield UsedName(root=root, parts=(*parts, after.argval), use=Use.ATTRIBUTE_CHANGED)
        return
    before = _before(steps, at, len(parts))
    if before in {"setattr", "delattr"}:
        name = after.argval if after.opname == "LOAD_CONST" else "…"
        yield UsedName(root=root, parts=(*parts, str(name)), use=Use.ATTRIBUTE_CHANGED)
        return
    if after.opname == "COPY" and len(steps) > at + 1 and steps[at + 1].opname == "LOAD_ATTR":
        # `name.attribute |= ...`
        name = steps[at + 1].argval
        yield UsedName(root=root, parts=(*parts, name), use=Use.ATTRIBUTE_CHANGED)
        return
    height = 1
    for step in steps[at : at + _KEY_LENGTH]:
        # The copy is for `name[...] += ...`.
        if height == 2 and (step.opname in _CHANGES_ITEM or step.opname == "COPY"):
            yield UsedName(root=root, parts=parts, use=Use.ITEM_CHANGED)
            return
        if step.opname.startswith("BINARY_") and height == 2:
            return
        height += dis.stack_effect(step.opcode, step.arg, jump=False)
        if height < 1:
            return


def _before(steps: list[dis.Instruction], at: int, parts: int) -> str | None:
    """The global that was loaded just before a name of so many parts."""
    # An imported name has more parts than steps: then this looks too far back, and finds nothing
    # that is called with it.
    first = at - parts
    if first >= 1 and steps[first - 1].opname in _LOADS_NAME:
        return str(steps[first - 1].argval)
    return None


def _imports(steps: list[dis.Instruction]) -> dict[str, tuple[str, ...]]:
    """What the names that the code imports stand for, as full names; relative ones are left out."""
    found: dict[str, tuple[str, ...]] = {}
    constants: list[object] = []
    module: tuple[str, ...] = ()
    is_from = False
    pending: tuple[str, ...] = ()
    for step in steps:
        if step.opname in _LOADS_CONSTANT:
            constants = [*constants[-1:], step.argval]
        elif step.opname == "IMPORT_NAME":
            level, fromlist = constants if len(constants) == 2 else [0, None]
            module = () if level else tuple(step.argval.split("."))
            is_from = fromlist is not None
            pending = () if is_from else module[:1]
        elif step.opname == "IMPORT_FROM" and module:
            pending = (*(module if is_from else pending), step.argval)
        elif step.opname in _STORES_NAME and pending:
            found[step.argval] = pending
            pending = ()
        elif step.opname not in _BETWEEN_IMPORT_AND_STORE:
            pending = ()
    return found
