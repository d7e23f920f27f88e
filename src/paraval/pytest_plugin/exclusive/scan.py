"""Which tests must run alone, found before anything runs, with the reason in words for `-v`.

By marks, fixtures and source: of the test, its fixtures and setups, and the functions of test code
that they use. Users' objects are not touched. A harmless test that runs alone costs its time; what
is missed here is learned from its failure.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import pytest

from paraval.pytest_plugin.exclusive import known_effects as known

_TESTS_FOLDER = re.compile(r"(\w+[_-])?(tests?|testing)", re.IGNORECASE)
_CLASS_SETUPS = "setup_method teardown_method setup_class teardown_class setUp tearDown "
_CLASS_SETUPS += "asyncSetUp asyncTearDown"
_MODULE_SETUPS = "setup_function teardown_function setup_module teardown_module"
_WORD = re.compile(r"[^\W\d]\w*")
_IMPORT = re.compile(r"^[ \t]*(?:from\s+(\S+)\s+)?import\s+(\([^)]*\)|[^;\n]*)", re.MULTILINE)
_SETS_ATTRIBUTE = re.compile(r"\.(?<!\bself\.)(?<!\bcls\.)\w+\s*[-+*/%&|^@<>]{0,2}=(?!=)")
_ENDS = [(one.split(".")[0], one.split(".")[-1]) for one in (*known.CALLS, *known.CONTAINERS)]
_FIXTURE_NAMES = frozenset(" ".join(known.FIXTURES.values()).split())
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_WORDS = known.PATCHING_METHODS | known.METHODS.keys() | {"global", "del", "getfixturevalue"}


def why_alone(item: pytest.Item) -> str | None:
    """The reason why a test cannot run beside others, as in "calls os.chdir"; None: it can."""
    try:
        if _SCAN not in item.config.stash:
            item.config.stash[_SCAN] = Scan(item.session)
        return item.config.stash[_SCAN].why_alone(item)
    except Exception as error:  # noqa: BLE001 - whatever a user's file has in it
        return f"it could not be read: {type(error).__name__}: {error}"


class Scan:
    """One session's tests. What they have in common is read once."""

    def __init__(self, session: pytest.Session) -> None:
        self._root = f"{session.config.rootpath}{os.sep}"
        self._sources = _Sources(session)
        self._known: dict[tuple[int, int], tuple[object, str | None]] = {}

    def why_alone(self, item: pytest.Item) -> str | None:
        for mark in item.iter_markers():
            if mark.name in known.MARKS:
                return known.MARKS[mark.name]
        if not isinstance(item, pytest.Function):
            kind = type(item).__name__
            return "a doctest" if "Doctest" in kind else f"not a Python function: a {kind}"
        parent, cls = item.getparent(pytest.Module), item.cls
        module = {} if parent is None else vars(parent.obj)
        # Of a class, `item.obj` may have to make an instance.
        function = item.obj if cls is None else _member(cls, item.originalname or item.name)
        return (
            self._once(module, cls, lambda: self._by_setups(module, cls))
            or self._by_fixtures(item._fixtureinfo)
            or self._once(function, cls, lambda: self._sources.why(function, cls, is_own=True))
        )

    def _once(self, thing: object, cls: type | None, read: Callable[[], str | None]) -> str | None:
        key = (id(thing), id(cls))
        if key not in self._known:
            self._known[key] = (thing, read())  # kept, so that its id stays its own
        return self._known[key][1]

    def _by_setups(self, module: Mapping[str, Any], cls: type | None) -> str | None:
        state = None if cls is None else _test_case_state(cls, module)
        setups = [(name, _member(cls, name)) for name in _CLASS_SETUPS.split() if cls is not None]
        setups += [(name, module.get(name)) for name in _MODULE_SETUPS.split()]
        reasons = ((name, self._sources.why(function, cls)) for name, function in setups)
        return state or next((f"{name} {why}" for name, why in reasons if why), None)

    def _by_fixtures(self, info: Any) -> str | None:
        for name, definitions in info.name2fixturedefs.items():
            for one in _in_use(name, definitions):
                why = self._once(one, None, functools.partial(self._by_fixture, name, one))
                if why is None:
                    continue
                user = None if name in info.argnames else _user(name, info.name2fixturedefs)
                is_placed = user is None or why.startswith("fixture ")
                return why if is_placed else f"{self._place(user)} {why}"
        return None

    def _by_fixture(self, name: str, definition: pytest.FixtureDef[Any]) -> str | None:
        if definition.scope == "session":  # it changes the process once, for all tests
            return None
        for function in _layers(definition.func):
            package = str(function.__globals__.get("__name__")).partition(".")[0]
            if name in known.FIXTURES.get(package, "").split():
                return f"uses {name}"
        is_own = definition.scope in {"function", "class"}
        why = self._sources.why(definition.func, None, is_own=is_own)
        return None if why is None else f"{self._place(definition)} {why}"

    def _place(self, definition: Any) -> str:
        """As in "fixture `keys` (conftest.py:5)"."""
        places = [
            f" ({one.__code__.co_filename.removeprefix(self._root)}:{one.__code__.co_firstlineno})"
            for one in _layers(definition.func)
        ]
        return f"fixture `{definition.argname}`{places[-1] if places else ''}"


_SCAN = pytest.StashKey[Scan]()


def _in_use(
    name: str, definitions: Sequence[pytest.FixtureDef[Any]]
) -> Iterator[pytest.FixtureDef[Any]]:
    """The last one overrides the others, unless it asks for what it overrides."""
    for definition in reversed(definitions):
        yield definition
        if name not in definition.argnames:
            return


def _user(name: str, definitions: Mapping[str, Sequence[Any]]) -> Any:
    """The fixture that asks for another one."""
    others = (found[-1] for other, found in definitions.items() if found and other != name)
    return next((other for other in others if name in other.argnames), None)


def _member(cls: type, name: str) -> object:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _test_case_state(cls: type, module: Mapping[str, Any]) -> str | None:
    packages = [str(vars(base).get("__module__")).partition(".")[0] for base in cls.__mro__]
    if "unittest" not in packages:
        return None
    for base, package in zip(cls.__mro__, packages, strict=True):
        if package == "unittest":
            break
        if package in known.TEST_CASES:
            return f"{cls.__name__} is a {known.TEST_CASES[package]}"
        for name in {"setUpClass", "tearDownClass"} & vars(base).keys():
            return f"{base.__name__} has {name}"
    states = (name for name in ("setUpModule", "tearDownModule") if name in module)
    return next((f"its module has {name}" for name in states), None)


def _layers(function: Any) -> Iterator[FunctionType]:
    """The function and those that it is wrapped around, from the outside in."""
    for _ in range(20):
        if type(function) in (MethodType, classmethod, staticmethod):
            function = function.__func__
        elif type(function) is functools.partial:
            function = function.func
        elif type(function) is FunctionType:
            yield function
            function = vars(function).get("__wrapped__")


# ---- source


@dataclass(eq=False, slots=True, kw_only=True)
class _Code:
    """What the source of a function, or of a whole class, says."""

    name: str
    lines: range = range(0)
    reason: str | None = None
    written: str | None = None
    """A global that it writes itself."""
    uses: dict[tuple[str, str], None] = field(default_factory=dict)
    """Other test code: its file, and its name there."""
    methods: dict[str, None] = field(default_factory=dict)
    """Names after `self.` or `cls.`."""


class _Sources:
    """The files of a session's test code, each read once, when it is needed."""

    def __init__(self, session: pytest.Session) -> None:
        config = session.config
        self._root = str(config.rootpath)
        self._paths = [*map(str, config.getini("pythonpath")), str(config.rootpath.parent)]
        folders = {file.parent for file in dict.fromkeys(item.path for item in session.items)}
        self._test_folders = folders - {config.rootpath}
        self._module = functools.cache(lambda file: _Module(file, self))
        self._is_there = functools.cache(os.path.exists)
        self.locate = functools.cache(self._locate)

    def why(self, function: object, cls: type | None, *, is_own: bool = False) -> str | None:
        """Why the function must run alone; None: nothing is known. `is_own`: its globals count."""
        own = dict.fromkeys(self._found(function))
        seen, pending = dict(own), list(own)
        for one in pending:  # it grows
            if one.reason is not None:
                return one.reason if one in own else f"{one.reason} in `{one.name}`"
            if is_own and one in own and one.written is not None:
                return f"writes the global `{one.written}`"
            used = [code for file, name in one.uses for code in self.named(file, name)]
            for name in one.methods:
                used += self._found(None if cls is None else _member(cls, name))
            pending += [code for code in dict.fromkeys(used) if code not in seen]
            seen |= dict.fromkeys(used)
        return None

    def _found(self, function: object) -> list[_Code]:
        """A function of the user's, and those inside it, by the places of their code."""
        codes = [layer.__code__ for layer in _layers(function)]
        places = [(code.co_filename, code.co_firstlineno) for code in codes]
        return [
            code
            for file, line in places
            if file.startswith(self._root) and "site-packages" not in file
            for code in self._module(file).at(line)
        ]

    def named(self, file: str, name: str, depth: int = 0) -> list[_Code]:
        """What a name stands for in a file of test code, which may have imported it."""
        module, (first, dot, rest) = self._module(file), name.partition(".")
        if first in module.codes or first not in module.imports:
            return [module.codes[first]] if first in module.codes else module.errors
        full = f"{module.imports[first]}{dot}{rest}"
        effect = _effect(full)
        if effect is not None:
            return [_Code(name=name, reason=f"uses {effect}")]
        place = self.locate(module.folder, full)
        return [] if place is None or depth > 9 else self.named(*place, depth + 1)

    def _locate(self, folder: str, full: str) -> tuple[str, str] | None:
        """The file of test code that a full name leads to, and the name in that file."""
        parts = full.lstrip(".").split(".")
        level = len(full) - len(full.lstrip("."))
        parents = [folder, *map(str, Path(folder).parents)]
        near = [one for one in parents if one.startswith(self._root)]
        for base in parents[level - 1 : level] if level else (*near, *self._paths):
            top = f"{base}/{parts[0]}"
            if not (level or self._is_there(top) or self._is_there(f"{top}.py")):
                continue
            for count in range(len(parts), -1 if level else 0, -1):
                stem = "/".join([base, *parts[:count]])
                for file in (f"{stem}.py", f"{stem}/__init__.py"):
                    if self._is_there(file):
                        return (file, ".".join(parts[count:])) if self._is_tests(file) else None
        return None

    def _is_tests(self, file: str) -> bool:
        """A module of tests, a conftest, or any other module in a folder of tests."""
        path = Path(file)
        names = [one.name for one in path.parents if str(one).startswith(self._root)]
        return "site-packages" not in file and (
            path.name.startswith(("conftest.", "test_"))
            or any(map(_TESTS_FOLDER.fullmatch, names))
            or not self._test_folders.isdisjoint(path.parents)
        )


class _Module:
    """One file. Without any suspect word it is not parsed: nothing in it is a reason."""

    def __init__(self, file: str, sources: _Sources) -> None:
        self.file, self.folder = file, str(Path(file).parent)
        self.locate = functools.partial(sources.locate, self.folder)
        self.imports: dict[str, str] = {}
        self.codes: dict[str, _Code] = {}
        """Functions and classes by name."""
        self.classes: set[str] = set()
        self._by_line: dict[int, _Code] = {}
        self.errors: list[_Code] = []
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - OSError, SyntaxError, RecursionError, ...
            why = f"its file could not be read: {type(error).__name__}: {error}"
            self.errors = [_Code(name=Path(file).name, reason=why)]

    def at(self, line: int) -> list[_Code]:
        """The function that begins in a line, or those that have it in them."""
        if line in self._by_line:
            return [self._by_line[line]]
        return self.errors or [one for one in self._by_line.values() if line in one.lines]

    def _read(self) -> None:
        with tokenize.open(self.file) as source:
            text = source.read()
        words = {*_WORD.findall(text), "builtins"}
        # A name that is imported and no more is no use of it.
        used = {*_WORD.findall(_IMPORT.sub(lambda one: one[0] * (" as " in one[0]), text))}
        suspects = {
            end for top, end in _ENDS if top in words and end in (words if top == end else used)
        } | (used & _WORDS)
        if not (suspects or _SETS_ATTRIBUTE.search(text) or self._imports_test_code(text)):
            return
        statements = list(_statements(ast.parse(text, Path(self.file).name).body))
        self.imports = _imports(one for one, _ in statements)
        for one, _ in statements:
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
                self._read_alias(one.targets[0].id, one.value)
        definitions = [(one, cls) for one, cls in statements if isinstance(one, _DEFINITIONS)]
        self.codes = {one.name: _Code(name=one.name) for one, cls in definitions if cls is None}
        self.classes = {one.name for one, _ in definitions if isinstance(one, ast.ClassDef)}
        suspects |= {one.name for one, _ in definitions if not one.name.lower().startswith("test")}
        suspects |= {one for one, it in self.imports.items() if _effect(it) or self.locate(it)}
        suspects.add("import")
        lines = text.split("\n")
        for one, cls in definitions:
            code = self.codes[one.name] if cls is None else _Code(name=one.name)
            first, end = _first_line(one), one.end_lineno or one.lineno
            code.lines = range(first, end + 1)
            segment = lines[first - 1 : end]
            if cls is not None:
                segment += lines[_first_line(cls) - 1 : cls.body[0].lineno]
            own = "\n".join(segment)
            if isinstance(one, ast.ClassDef) and "test" in one.name.lower():
                continue  # each of its tests is read by itself
            if not suspects.isdisjoint(_WORD.findall(own)) or _SETS_ATTRIBUTE.search(own):
                _Reading(self, code, [one, *([] if cls is None else cls.decorator_list)])
            if not isinstance(one, ast.ClassDef):
                self._by_line[first] = code

    def _imports_test_code(self, text: str) -> bool:
        """From other files."""
        return any(
            self.locate(f"{module.rstrip('.')}.{name}" if module.strip(".") else f"{module}{name}")
            for module, names in _IMPORT.findall(text)
            for name in re.findall(r"[\w.]+", names)
        )

    def _read_alias(self, name: str, value: ast.expr) -> None:
        """`recorder = vcr.VCR()`: what is done with it is done with a VCR."""
        called = value.func if isinstance(value, ast.Call) else value
        first, dot, rest = _dotted(called).partition(".")
        full = f"{self.imports.get(first, '')}{dot}{rest}"
        if full == "pytest.importorskip" and isinstance(value, ast.Call):
            self.imports[name] = _text(value.args[:1])
        elif first in self.imports and not (called is not value and full.endswith("patch.dict")):
            self.imports[name] = full


class _Reading:
    """Reads a function into its code: the first reason, and the test code that it uses."""

    def __init__(self, module: _Module, code: _Code, nodes: Iterable[ast.AST]) -> None:
        self._module, self._code = module, code
        everything = _flat(nodes)
        local = _imports(everything)
        names = [one for one in everything if isinstance(one, ast.Name)]
        self._own = {one.id for one in names if isinstance(one.ctx, ast.Store)} - local.keys()
        self._own |= {one.arg for one in everything if isinstance(one, ast.arg)}
        self._imports = module.imports | local
        self._skipped: set[ast.AST] = set()
        for node in everything:
            if isinstance(node, ast.Attribute | ast.Name):
                self._look_at_name(node)
            elif isinstance(node, ast.Call):
                self._look_at_call(node)
            elif isinstance(node, ast.Global):
                code.written = node.names[0]
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                full = self._full(_dotted(node.value))
                if full in known.CONTAINERS:
                    self._found(f"changes {full}")

    def _found(self, reason: str) -> None:
        self._code.reason = self._code.reason or reason

    def _full(self, written: str) -> str:
        """The full name of what is written; empty for what is the function's own, or unknown."""
        first, dot, rest = written.partition(".")
        if not first or first in self._own or first in self._module.codes:
            return ""
        return f"{self._imports.get(first, f'builtins.{first}')}{dot}{rest}"

    def _look_at_call(self, node: ast.Call) -> None:
        written, method = _dotted(node.func), getattr(node.func, "attr", "")
        full = self._full(written)
        effect, given = _effect(full), [*node.args, *(one.value for one in node.keywords)]
        text, second = _text(given[:1]), _text(given[1:2])
        if full in {"builtins.setattr", "builtins.delattr"} and given:
            self._look_at_set(given[0], second)
        elif effect in known.PATCHES or (
            method in known.PATCHING_METHODS and not full.startswith("operator.")
        ):
            target = text or _dotted(*given[:1])
            if method in {"dict", "setitem", "delitem"} and (
                text in known.ENVIRONMENT or self._full(target) in known.ENVIRONMENT
            ):
                self._skipped.update(ast.walk(node.func))
                return
            if target and not text and method in {"object", "setattr", "delattr"}:
                target = f"{target}.{second}".rstrip(".")
            self._found(f"patches {target}" if target else f"calls {effect or written or method}")
        elif method == "getfixturevalue" and text in _FIXTURE_NAMES:
            self._found(f"uses {text}")
        elif effect is not None:
            verb = "calls" if full == effect else "uses"
            self._found(f"{verb} {effect.removeprefix('builtins.')}")

    def _look_at_set(self, owner: ast.expr, name: str) -> None:
        """Of what is imported, of a class of the file, or of `self.__class__`."""
        written, first = ast.unparse(owner), _dotted(owner).partition(".")[0]
        is_shared = first in self._imports or first in self._module.classes
        is_class = written.endswith(".__class__") or written.startswith("type(")
        is_apart = f"{self._full(written)}.{name}" in known.EACH_TURNS_OWN
        if is_class or (is_shared and first not in self._own and not is_apart):
            self._found(f"sets `{f'{written}.{name}'.rstrip('.')}`")

    def _look_at_name(self, node: ast.Attribute | ast.Name) -> None:
        written, attribute = _dotted(node), getattr(node, "attr", "")
        full, (first, _, rest) = self._full(written), written.partition(".")
        effect, container = _effect(full), full.rpartition(".")[0]
        if not isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Attribute):
                self._look_at_set(node.value, node.attr)
        elif effect is not None and node not in self._skipped:
            self._found(f"uses {effect.removeprefix('builtins.')}")
        elif container in known.CONTAINERS and attribute in known.CHANGING_METHODS:
            self._found(f"changes {container}")
        elif attribute in known.METHODS:
            self._found(known.METHODS[attribute])
        elif first in {"self", "cls"} and rest:
            self._code.methods[rest.partition(".")[0]] = None
        elif first in self._module.codes and first not in self._own:
            self._code.uses[self._module.file, first] = None
        elif first in self._imports and full:
            place = self._module.locate(full)
            if place is not None:
                self._code.uses[place] = None


def _flat(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """With all that is in them, but for annotations."""
    found = list(nodes)
    for node in found:  # it grows
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found.extend(one for one in value if isinstance(one, ast.AST))
            elif isinstance(value, ast.AST) and name not in {"annotation", "returns", "ctx", "op"}:
                found.append(value)
    return found


def _statements(
    body: Sequence[ast.AST], cls: ast.ClassDef | None = None
) -> Iterator[tuple[ast.AST, ast.ClassDef | None]]:
    """Of a module, with those in `if`, `try`, `with` and in classes: each with its class."""
    for one in body:
        yield one, cls
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            for name in ("body", "handlers", "orelse", "finalbody"):
                inner = getattr(one, name, [])
                owner = one if isinstance(one, ast.ClassDef) else cls
                yield from _statements(inner if isinstance(inner, list) else [], owner)


def _imports(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Full names by local ones; those of relative imports begin with dots."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for one in node.names:
                found[one.asname or one.name.partition(".")[0]] = (
                    one.name if one.asname else one.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (f"{node.module}." if node.module else "")
            found |= {one.asname or one.name: f"{package}{one.name}" for one in node.names}
    return found


def _effect(full: str) -> str | None:
    """What is known of a full name: it, or what it is in, is in the table."""
    name = full
    while name and name not in known.CALLS:
        name = name.rpartition(".")[0]
    return (name if "." in name else full) if name else None


def _dotted(node: ast.AST | None = None) -> str:
    """As written, `a.b.c`; empty for anything else."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _text(nodes: Sequence[ast.AST]) -> str:
    """A literal; empty for anything else."""
    values = [one.value for one in nodes if isinstance(one, ast.Constant)]
    return values[0] if values and isinstance(values[0], str) else ""


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min(one.lineno for one in (node, *node.decorator_list))
