"""Finds the tests that must run exclusively before anything runs, with the reason for `-v`.

It checks marks, fixtures and source code: of the test, its fixtures and setups, and the functions
of test code that they use. Of users' objects, only the types are examined. A false positive only
costs time; what the scan misses is learned from the test's failure.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import pytest

from paraval.dataclass import dataclass
from paraval.pytest_plugin.exclusive import known_effects as known

_TEST_CODE = re.compile(r"[/_-](tests?|testing)/|/conftest\.py$")
_SETUPS = "setup_method teardown_method setup_class teardown_class setUp tearDown asyncSetUp "
_SETUPS += "asyncTearDown setup_function teardown_function setup_module teardown_module"
_WORD = re.compile(r"[^\W\d]\w*")
_IMPORTED = re.compile(r"^(from \S+ import) (?!.* as )[^(;\n]*$", re.MULTILINE)
_SETS_ATTRIBUTE = re.compile(r"\.\w+\s*[-+*/%&|^@<>]{0,2}=(?!=)")
_ENDS = {(one.split(".")[0], one.split(".")[-1]): one for one in (*known.CALLS, *known.CONTAINERS)}
_FIXTURE_NAMES = frozenset(" ".join(known.FIXTURES.values()).split())
_SUSPECTS = known.PATCHING_METHODS | known.METHODS.keys() | {"global", "del", "getfixturevalue"}
_INSIDE: dict[Any, str] = {functools.partial: "func", property: "fget"}
_INSIDE |= dict.fromkeys((MethodType, classmethod, staticmethod), "__func__")


def why_alone(item: pytest.Item) -> str | None:
    """Why a test must run exclusively, such as "calls os.chdir"; None: it need not."""
    try:
        if _SCAN not in item.config.stash:
            item.config.stash[_SCAN] = ExclusiveScan(item.session)
        return item.config.stash[_SCAN].why_alone(item)
    except Exception as error:  # noqa: BLE001 - a user's file may contain anything
        return f"it could not be read: {type(error).__name__}: {error}"


class ExclusiveScan:
    """Scans one session's tests. What they share is read once."""

    def __init__(self, session: pytest.Session) -> None:
        root = session.config.rootpath
        self._root, self._above = f"{root}{os.sep}", str(root.parent)
        self._places = {one for item in session.items for one in (item.path, item.path.parent)}
        self._places.discard(root)
        self._is_read = functools.cache(self._is_test_code)
        self._files: dict[str, _FileVisitor] = {}
        modules = {name: one for name, one in sys.modules.items() if type(one) is ModuleType}
        files = {name: str(vars(one).get("__file__")) for name, one in modules.items()}
        of_tests = {name.rpartition(".")[2] for name, one in files.items() if self._is_read(one)}
        self.suspects = _SUSPECTS | of_tests
        self._setups = functools.cache(self._by_setups)
        self._source = functools.cache(self._by_source)

    def why_alone(self, item: pytest.Item) -> str | None:
        for mark in item.iter_markers():
            if mark.name in known.MARKS:
                return known.MARKS[mark.name]
        if not isinstance(item, pytest.Function):
            kind = type(item).__name__
            return "a doctest" if "Doctest" in kind else f"not a Python function: a {kind}"
        cls = item.cls or object
        # For a class, `item.obj` might create an instance.
        function = item.obj if item.cls is None else _member(cls, item.originalname or item.name)
        return (
            self._setups(item.module, cls)
            or self._by_fixtures(item._fixtureinfo)
            or self._source(function, cls, is_own=True)
        )

    def _by_setups(self, module: ModuleType, cls: type) -> str | None:
        holders: list[Any] = [*cls.__mro__, module]
        for holder in holders:
            package = str(vars(holder).get("__module__")).partition(".")[0]
            if package in known.TEST_CASES:
                return f"{cls.__name__} is a {known.TEST_CASES[package]}"
            for name in known.UNITTEST_SETUPS & vars(holder).keys():
                if package != "unittest":
                    return f"{'its module' if holder is module else holder.__name__} has {name}"
        setups = {name: _member(cls, name) or vars(module).get(name) for name in _SETUPS.split()}
        reasons = ((name, self._source(function, cls)) for name, function in setups.items())
        return next((f"{name} {why}" for name, why in reasons if why), None)

    def _by_fixtures(self, info: Any) -> str | None:
        for name, definitions in info.name2fixturedefs.items():
            for one in reversed(definitions):
                why = self._by_fixture(name, one)
                if why is not None:
                    others = (found[-1] for found in info.name2fixturedefs.values() if found)
                    user = next((other for other in others if name in other.argnames), one)
                    is_placed = name in info.argnames or user is one or why.startswith("fixture ")
                    return why if is_placed else f"{self._place(user)} {why}"
                if name not in one.argnames:
                    break  # it overrides the others
        return None

    def _by_fixture(self, name: str, definition: pytest.FixtureDef[Any]) -> str | None:
        if definition.scope == "session":  # it changes the process once, for all tests
            return None
        for function in _layers(definition.func):
            package = str(function.__globals__.get("__name__")).partition(".")[0]
            if name in known.FIXTURES.get(package, "").split():
                return f"uses {name}"
        is_own = definition.scope in {"function", "class"}
        why = self._source(definition.func, object, is_own=is_own)
        return None if why is None else f"{self._place(definition)} {why}"

    def _place(self, definition: Any) -> str:
        """Describe a fixture as "fixture `keys` (conftest.py:5)"."""
        *_, function = _layers(definition.func)
        file, line = function.__code__.co_filename, function.__code__.co_firstlineno
        return f"fixture `{definition.argname}` ({file.removeprefix(self._root)}:{line})"

    def _by_source(self, function: object, cls: type, *, is_own: bool = False) -> str | None:
        """Scan a test, fixture or setup, and what it uses. `is_own`: it may not write globals."""
        pending = [(one, "") for one in _layers(function)]
        seen: set[FunctionType] = set()
        for one, user in pending:  # the loop appends to it
            file = one.__code__.co_filename
            if one in seen or not (user or self._is_read(file, is_own=True)):
                continue
            seen.add(one)
            if file not in self._files:
                self._files[file] = _FileVisitor(file, one.__globals__, self)
            code = self._files[file].codes[one.__code__.co_firstlineno]
            if code.reasons:
                return f"{code.reasons[0]} in `{user}`" if user else code.reasons[0]
            if is_own and code.written is not None and not user:
                return f"writes the global `{code.written}`"
            pending += code.uses.items()
            for method in code.methods:
                pending += self.functions(_member(cls, method)).items()
        return None

    def functions(self, used: Any) -> dict[FunctionType, str]:
        """Return the test-code functions in a function or class, with the names to report."""
        owners = used.__mro__ if issubclass(type(used), type) else ()
        members = [(one, base.__name__) for base in owners for one in vars(base).values()]
        return {
            one: name or one.__name__
            for member, name in members or [(used, "")]
            for one in _layers(member)
            if self._is_read(one.__code__.co_filename)
        }

    def _is_test_code(self, file: str, *, is_own: bool = False) -> bool:
        """Decide by the folder's name or its tests. `is_own`: a fixture may be anywhere."""
        if not file.startswith(self._root) or "site-packages" in file:
            return False
        is_named = is_own or _TEST_CODE.search(file.removeprefix(self._above)) is not None
        return is_named or not self._places.isdisjoint((Path(file), *Path(file).parents))


_SCAN = pytest.StashKey[ExclusiveScan]()


def _member(cls: type, name: str) -> object:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _layers(function: Any) -> Iterator[FunctionType]:
    """Yield the function and the functions it wraps, from the outside in."""
    for _ in range(20):
        if type(function) in _INSIDE:
            function = getattr(function, _INSIDE[type(function)])
        elif type(function) is FunctionType:
            yield function
            function = vars(function).get("__wrapped__")
        else:
            return


# ---- source


@dataclass(eq=False, slots=True, kw_only=True)
class _CodeFindings:
    """What the source of a function, including nested functions, does."""

    reasons: list[str] = field(default_factory=list)
    written: str | None = None
    """A global that it writes."""
    own: set[str] = field(default_factory=set)
    """Its local variables."""
    uses: dict[FunctionType, str] = field(default_factory=dict)
    """The test-code functions it uses, with the names to report."""
    methods: set[str] = field(default_factory=set)
    """Names after `self.` or `cls.`."""


class _FileVisitor(ast.NodeVisitor):
    """Reads the functions of a file, if the file contains a suspect word."""

    def __init__(self, file: str, names: Mapping[str, Any], scan: ExclusiveScan) -> None:
        self._globals, self._scan = names, scan
        modules = {name: one for name, one in names.items() if type(one) is ModuleType}
        self._imports = {name: one.__name__ for name, one in modules.items()}
        """Full names; includes modules imported by `pytest.importorskip`."""
        self.codes = defaultdict[int, _CodeFindings](_CodeFindings)
        """By the line that a function begins on."""
        self._code = self._outside = _CodeFindings()
        """The function being read, or the code outside of functions."""
        try:
            with tokenize.open(file) as source:
                text = source.read()
            words = {*_WORD.findall(_IMPORTED.sub(r"\1", text)), "builtins"}
            has_suspect = not words.isdisjoint(scan.suspects) or any(map(words.issuperset, _ENDS))
            if has_suspect or _SETS_ATTRIBUTE.search(text):
                self.visit(ast.parse(text, Path(file).name))
        except Exception as error:  # noqa: BLE001 - OSError, SyntaxError, RecursionError, ...
            why = f"its file could not be read: {type(error).__name__}: {error}"
            self.codes = defaultdict(lambda: _CodeFindings(reasons=[why]))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for one in node.body:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                one.body += map(ast.Expr, node.decorator_list)  # they are applied to its methods
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._code
        self._code = _CodeFindings() if outer is self._outside else outer
        self.codes[min(one.lineno for one in (node, *node.decorator_list))] = self._code
        self.generic_visit(node)
        self._code = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast's name

    def visit_Import(self, node: ast.Import) -> None:
        for one in node.names:
            top = one.name.partition(".")[0]
            self._imports[one.asname or top] = one.name if one.asname else top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        package = "." * node.level + (node.module or "")
        own = self._globals.get("__package__")  # Missing for functions created by `exec`.
        if node.level and own:
            package = importlib.util.resolve_name(package, own)
        self._imports |= {one.asname or one.name: f"{package}.{one.name}" for one in node.names}

    def visit_arg(self, node: ast.arg) -> None:
        self._code.own.add(node.arg)

    def visit_Global(self, node: ast.Global) -> None:
        self._code.written = node.names[0]

    def visit_Subscript(self, node: ast.Subscript) -> None:
        full = self._full(_dotted(node.value))
        if full in known.CONTAINERS and not isinstance(node.ctx, ast.Load):
            self._code.reasons.append(f"changes {full}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        written, method = _dotted(node.func), getattr(node.func, "attr", "")
        full, effect = self._full(written), self._effect(written)
        given = [*node.args, *(one.value for one in node.keywords)]
        first, second = (*given, None, None)[:2]
        text, target = _text(first), _text(first) or _dotted(first)
        is_patch = method in known.PATCHING_METHODS and not full.startswith("operator.")
        if full in {"builtins.setattr", "builtins.delattr"} and first:
            self._set(first, _text(second))
        elif method == "getfixturevalue" and text in _FIXTURE_NAMES:
            self._code.reasons.append(f"uses {text}")
        elif effect in known.PATCHES or is_patch:
            of_dict = method in {"dict", "setitem", "delitem"}
            if of_dict and {text, self._full(target)} & known.ENVIRONMENT:
                return
            if target and not text and method in {"object", "setattr", "delattr"}:
                target = f"{target}.{_text(second)}".rstrip(".")
            called = effect or written or method
            self._code.reasons.append(f"patches {target}" if target else f"calls {called}")
        elif effect is not None and effect == full:
            self._code.reasons.append(f"calls {effect.removeprefix('builtins.')}")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._code.own.add(node.id)
        else:
            self._use(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        written = _dotted(node)
        if not isinstance(node.ctx, ast.Load):
            self._set(node.value, node.attr)
        else:
            self._use(written, node.attr)
        if not written:
            self.visit(node.value)

    def _use(self, written: str, attribute: str = "") -> None:
        """Record the use of a name and its attributes."""
        effect, (first, _, rest) = self._effect(written), written.partition(".")
        container = self._full(written).rpartition(".")[0]
        if effect is not None:
            self._code.reasons.append(f"uses {effect.removeprefix('builtins.')}")
        elif container in known.CONTAINERS and attribute in known.CHANGING_METHODS:
            self._code.reasons.append(f"changes {container}")
        elif attribute in known.METHODS:
            self._code.reasons.append(known.METHODS[attribute])
        elif first in {"self", "cls"} and rest:
            self._code.methods.add(rest.partition(".")[0])
        elif first not in self._code.own:
            self._code.uses |= self._scan.functions(self._value(written))

    def _set(self, owner: ast.expr, name: str) -> None:
        """Record setting an attribute of an import, a class in the file, or the test's class."""
        written, first = ast.unparse(owner), _dotted(owner).partition(".")[0]
        is_shared = first in self._imports or issubclass(type(self._globals.get(first)), type)
        is_class = written.endswith(".__class__") or written.startswith("type(")
        is_isolated = f"{self._full(written)}.{name}" in known.ISOLATED
        if is_class or (is_shared and first not in self._code.own and not is_isolated):
            self._code.reasons.append(f"sets `{f'{written}.{name}'.rstrip('.')}`")

    def _full(self, written: str) -> str:
        """Resolve a name through the file's imports; empty for names of the function or file."""
        first, dot, rest = written.partition(".")
        is_own = first in self._code.own or (first in self._globals and first not in self._imports)
        top = self._imports.get(first, f"builtins.{first}")
        return f"{top}{dot}{rest}" if first and not is_own else ""

    def _effect(self, written: str) -> str | None:
        """The known effect of a name, of what contains it, or of an object's class."""
        full, first = self._full(written), written.partition(".")[0]
        name = full
        while name and name not in known.CALLS:
            name = name.rpartition(".")[0]
        if name or first in self._code.own:
            return (name if "." in name else full) or None
        kind = type(self._globals.get(first))
        package = str(vars(kind).get("__module__")).partition(".")[0]
        return _ENDS.get((package, kind.__name__.lstrip("_")))

    def _value(self, written: str) -> object:
        """The value of a global or of a function's import; looks into modules."""
        first, *rest = written.split(".")
        if first not in self._globals:
            first, *rest = self._full(written).split(".")
        value = self._globals.get(first, sys.modules.get(first))
        for name in rest:
            value = vars(value).get(name) if type(value) is ModuleType else value
        return value


def _dotted(node: ast.AST | None) -> str:
    """Return a dotted name such as `a.b.c`; empty for anything else."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST | None) -> str:
    """Return a string literal's value; empty for anything else."""
    value = getattr(node, "value", None)
    return value if isinstance(value, str) else ""
