"""Whether a function changes the whole process, as far as its code tells: nothing of it is run.

Names are resolved through what is loaded already, and compared by identity: `client.patch` is not
`unittest.mock.patch`, whatever it was imported as. Functions of test modules are followed into the
functions of test modules that they call; the code under test is left alone. What this misses is
caught by `nets` as it happens.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from paraval.pytest_plugin.code_names import Outline, Root, Use, UsedName, outline, used_names
from paraval.pytest_plugin.known_changes import (
    CALLABLES,
    CHANGING_METHODS,
    CONTAINERS,
    DECORATORS,
    EACH_TURNS_OWN,
    FIXTURES,
    METHODS,
)
from paraval.pytest_plugin.shared_containers import can_change, change_of, is_container
from paraval.pytest_plugin.shared_settings import is_called_so, setting_of

_DEPTH = 8
"""How many calls deep a test's own functions are followed."""
_MISSING = object()
_SUSPECT_PARTS = frozenset(name.rpartition(".")[2] for name in (*CALLABLES, *CONTAINERS)) | {
    "setattr",
    "delattr",
}
_KNOWN_NAMES = frozenset(CALLABLES)
_BUILT_IN_FIXTURES = frozenset(name for name, package in FIXTURES.items() if package == "_pytest")


class ChangingCode:
    """Reads functions, each once."""

    def __init__(self, is_test_module: Callable[[Mapping[str, Any]], bool]) -> None:
        self._is_test_module = is_test_module
        """By the globals of a module."""
        self._known: dict[int, tuple[object, str]] = dict(_loaded(CALLABLES))
        self._containers: dict[int, tuple[object, str]] = dict(_loaded(CONTAINERS))
        self._outlines: dict[int, tuple[CodeType, Outline]] = {}
        self._reasons: dict[tuple[int, int], tuple[object, str | None]] = {}
        self._methods: dict[type, dict[str, FunctionType]] = {}

    def why(self, function: object, cls: type | None = None) -> str | None:
        """Why the function, as a test or a fixture, must run alone; None: nothing is known."""
        return self._why(function, cls, 0)

    def written_global(self, function: object) -> str | None:
        """The first global that the function itself writes; what it calls may keep a cache."""
        for layer in layers(function):
            if isinstance(layer, FunctionType) and self._is_test_module(layer.__globals__):
                written = self._outline(layer.__code__).written_globals
                if written:
                    return written[0]
        return None

    def shared_setting(self, function: object) -> str | None:
        """What the function itself has the code under test set for everybody, by which call."""
        for layer in layers(function):
            if isinstance(layer, FunctionType) and self._is_test_module(layer.__globals__):
                reason = self._setting_call(layer)
                if reason is not None:
                    return reason
        return None

    def _setting_call(self, function: FunctionType) -> str | None:
        names = self._outline(function.__code__).names
        if not any(map(is_called_so, names)) and not any(
            is_called_so(getattr(function.__globals__.get(name), "__name__", "")) for name in names
        ):
            return None
        for used in used_names(function.__code__):
            if used.use is not Use.READ or used.root is Root.OWN_CLASS:
                continue
            for at, (value, _) in enumerate(_resolve(used.root, used.parts, function), start=1):
                for layer in layers(value):
                    setting = setting_of(layer) if isinstance(layer, FunctionType) else None
                    if setting is not None:
                        called = ".".join(used.parts[:at])
                        return f"calls `{called}`, which sets `{setting}` for all"
        return None

    def _why(self, function: object, cls: type | None, depth: int) -> str | None:
        key = (id(function), id(cls))
        if key not in self._reasons:
            # For functions that call each other. Keeping the function keeps its id its own.
            self._reasons[key] = (function, None)
            self._reasons[key] = (function, self._read(function, cls, depth))
        return self._reasons[key][1]

    def _read(self, function: object, cls: type | None, depth: int) -> str | None:
        for layer in layers(function):
            reason = _decoration(layer)
            if reason is None and isinstance(layer, FunctionType):
                if self._is_test_module(layer.__globals__):
                    reason = self._in_code(layer) or self._in_what_it_calls(layer, cls, depth)
                else:
                    reason = self._in_closure(layer, cls, depth)
            if reason is not None:
                return reason
        return None

    # ---- the function's own code

    def _in_code(self, function: FunctionType) -> str | None:
        shape = self._outline(function.__code__)
        for name in METHODS.keys() & shape.names:
            return f"uses {name}: {METHODS[name]}"
        if "getfixturevalue" in shape.names:
            for code in shape.codes:
                for name in code.co_consts:
                    if isinstance(name, str) and name in _BUILT_IN_FIXTURES:
                        return f"uses {name}"
        if self._is_worth_reading(function, shape):
            for used in used_names(function.__code__):
                reason = self._why_used(used, function)
                if reason is not None:
                    return reason
        return None

    def _is_worth_reading(self, function: FunctionType, shape: Outline) -> bool:
        """Instruction by instruction, that is; most tests are not."""
        if shape.sets_attributes or not _SUSPECT_PARTS.isdisjoint(shape.names):
            return True
        known, found = self._known, function.__globals__
        for name in shape.names:
            value = found.get(name)
            if value is not None and (id(value) in known or id(type(value)) in known):
                return True
        return can_change(shape, found)

    def _why_used(self, used: UsedName, function: FunctionType) -> str | None:
        if used.root is Root.OWN_CLASS:
            is_changed = used.use is Use.ATTRIBUTE_CHANGED
            return f"sets `{'.'.join(used.parts)}`" if is_changed else None
        if used.use is Use.ATTRIBUTE_CHANGED:
            owner = _last(_resolve(used.root, used.parts[:-1], function), len(used.parts) - 1)
            if (
                isinstance(owner, ModuleType)
                and f"{owner.__name__}.{used.parts[-1]}" in EACH_TURNS_OWN
            ):
                return None
            if isinstance(owner, ModuleType | type):
                return f"sets `{'.'.join(used.parts)}`"
            return None
        holder: object = None
        for at, (value, name) in enumerate(_resolve(used.root, used.parts, function), start=1):
            change = self._container_changed(value, used, at, holder)
            if change is not None:
                return change
            holder = value
            if id(value) in self._known:
                return _calls(self._known[id(value)][1])
            if name in _KNOWN_NAMES:
                return _calls(name)
            if id(type(value)) in self._known:
                return f"uses a {self._known[id(type(value))][1]}"
            if id(value) in self._containers:
                following = used.parts[at] if at < len(used.parts) else None
                if used.use is Use.ITEM_CHANGED or following in CHANGING_METHODS:
                    return f"changes {self._containers[id(value)][1]}"
        return None

    # ---- what it calls

    def _in_what_it_calls(self, function: FunctionType, cls: type | None, depth: int) -> str | None:
        if depth >= _DEPTH:
            return None
        methods, globals_ = self._methods_of(cls), function.__globals__
        for name in self._outline(function.__code__).names:
            called = globals_.get(name)
            if type(called) is not FunctionType:
                called = methods.get(name)
            if (
                type(called) is FunctionType
                and called is not function
                and self._is_of_tests(called)
            ):
                reason = self._why(called, cls, depth + 1)
                if reason is not None:
                    return reason if " in `" in reason else f"{reason} in `{name}`"
        return self._in_closure(function, cls, depth)

    def _in_closure(self, function: FunctionType, cls: type | None, depth: int) -> str | None:
        """What a decorator, or a function that makes functions, has put there."""
        if depth >= _DEPTH:
            return None
        for cell in function.__closure__ or ():
            value = _content(cell)
            # contextlib's: a context manager as a decorator knows the function that makes it.
            made_by = getattr(value, "func", None) if _is_of(function, "contextlib") else None
            for one in (value, made_by):
                if one is not function and self._is_of_tests(one):
                    reason = self._why(one, cls, depth + 1)
                    if reason is not None:
                        return reason
        return None

    def _container_changed(
        self, value: object, used: UsedName, at: int, owner: object
    ) -> str | None:
        if not is_container(value) or id(value) in self._containers:
            return None
        # In a module of tests, what they have found may be gathered.
        if isinstance(owner, ModuleType) and self._is_test_module(vars(owner)):
            return None
        return change_of(used, at, owner)

    def _is_of_tests(self, function: object) -> bool:
        return isinstance(function, FunctionType) and any(
            isinstance(layer, FunctionType) and self._is_test_module(layer.__globals__)
            for layer in layers(function)
        )

    def _methods_of(self, cls: type | None) -> Mapping[str, FunctionType]:
        if cls is None:
            return {}
        if cls not in self._methods:
            found: dict[str, FunctionType] = {}
            for base in reversed(cls.__mro__):
                for name, value in vars(base).items():
                    plain = getattr(value, "__func__", value)
                    if isinstance(plain, FunctionType):
                        found[name] = plain
            self._methods[cls] = found
        return self._methods[cls]

    def _outline(self, code: CodeType) -> Outline:
        # By identity: equal code of two modules means other globals, and hashing code is slow.
        found = self._outlines.get(id(code))
        if found is None:
            found = self._outlines[id(code)] = (code, outline(code))
        return found[1]


def layers(function: object) -> Iterator[object]:
    """The function and what it is wrapped around, from the outside in."""
    for _ in range(_DEPTH):
        if isinstance(function, MethodType):
            function = function.__func__
        yield function
        if isinstance(function, functools.partial):
            function = function.func
            continue
        # Hypothesis keeps the test under a name of its own.
        inner = getattr(getattr(function, "hypothesis", None), "inner_test", None)
        inner = inner or getattr(function, "__wrapped__", None)
        if inner is None or inner is function:
            return
        function = inner


def _decoration(layer: object) -> str | None:
    if not hasattr(layer, "__wrapped__"):
        return None
    if hasattr(layer, "patchings") or _is_of(layer, "unittest.mock") or _is_of(layer, "mock.mock"):
        return "decorated by unittest.mock.patch"
    package = _module_of(layer).partition(".")[0]
    return DECORATORS.get(package)


def _module_of(layer: object) -> str:
    # Not __module__: that is copied from the function inside.
    return str(getattr(layer, "__globals__", {}).get("__name__", ""))


def _is_of(layer: object, module: str) -> bool:
    return _module_of(layer) == module


def _calls(name: str) -> str:
    return f"calls {name.removeprefix('builtins.')}"


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def _loaded(names: tuple[str, ...]) -> Iterator[tuple[int, tuple[object, str]]]:
    for name in names:
        module, _, attribute = name.rpartition(".")
        value = vars(sys.modules[module]).get(attribute) if module in sys.modules else None
        if value is not None:
            yield id(value), (value, name)


def _resolve(
    root: Root, parts: tuple[str, ...], function: FunctionType
) -> Iterator[tuple[object, str]]:
    """What the first part stands for, then the second, as far as that can be told; each with its
    full name, where it has one. No attribute is computed: only modules are looked into."""
    if root is Root.GLOBAL:
        value = function.__globals__.get(parts[0], _MISSING)
        name = parts[0]
        if value is _MISSING:
            value, name = vars(builtins).get(parts[0], _MISSING), f"builtins.{parts[0]}"
    elif root is Root.CLOSED:
        value, name = _closed(parts[0], function), parts[0]
    else:
        value, name = sys.modules.get(parts[0], _MISSING), parts[0]
    yield value, ""
    for part in parts[1:]:
        if isinstance(value, ModuleType):
            name = f"{value.__name__}.{part}"
            value = vars(value).get(part, _MISSING)
        elif value is _MISSING and root is Root.IMPORTED:
            name = f"{name}.{part}"
            value = sys.modules.get(name, _MISSING)
        else:
            return
        yield value, name


def _last(steps: Iterator[tuple[object, str]], count: int) -> object:
    found = list(steps)
    return found[-1][0] if len(found) == count else _MISSING


def _closed(name: str, function: FunctionType) -> object:
    if name in function.__code__.co_freevars and function.__closure__:
        return _content(function.__closure__[function.__code__.co_freevars.index(name)])
    return _MISSING
