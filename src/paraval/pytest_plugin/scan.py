"""Which tests must run alone, found before anything runs, with the reason in words for `-v`.

By marks, by what kind of item it is, by its fixtures and by its code (`changing_code`). To take a
harmless test for one that must run alone costs its time; the other way round, `nets` catch it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from inspect import isasyncgenfunction, isgeneratorfunction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paraval.pytest_plugin.changing_code import ChangingCode, layers
from paraval.pytest_plugin.known_changes import FIXTURES, MARKS, SEEN_BY_EVERYBODY

_CLASS_STATE = ("setUpClass", "tearDownClass")
_MODULE_STATE = ("setUpModule", "tearDownModule")
_CLASS_SETUPS = (
    "setup_method",
    "teardown_method",
    "setUp",
    "tearDown",
    "asyncSetUp",
    "asyncTearDown",
    "setup_class",
    "teardown_class",
)
_MODULE_SETUPS = ("setup_function", "teardown_function", "setup_module", "teardown_module")


def why_alone(item: pytest.Item) -> str | None:
    """The reason why a test cannot run beside others, as in "uses monkeypatch"; None: it can."""
    scan = item.config.stash.get(_SCAN, None)
    if scan is None:
        # After the collection: what no test module has loaded by then is known by name only.
        scan = item.config.stash[_SCAN] = Scan(item.config)
    return scan.why_alone(item)


def tell_test_code(config: pytest.Config) -> Callable[[str], bool]:
    """Tells by its file whether code is that of tests: a module of tests, or a conftest."""
    patterns = config.getini("python_files")
    known: dict[str, bool] = {}

    def is_test_code(file: str) -> bool:
        found = known.get(file)
        if found is None:
            name = Path(file).name
            found = known[file] = name == "conftest.py" or any(
                fnmatch(name, pattern) or fnmatch(file, f"*/{pattern}") for pattern in patterns
            )
        return found

    return is_test_code


class Scan:
    """One session's tests. What they have in common is read once."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = str(config.rootpath)
        self._is_test_code = tell_test_code(config)
        self._test_modules: dict[int, tuple[Mapping[str, Any], bool]] = {}
        self._code = ChangingCode(self._is_test_module)
        self._fixtures: dict[int, tuple[object, str | None]] = {}
        self._setups: dict[tuple[int, type | None], str | None] = {}

    def why_alone(self, item: pytest.Item) -> str | None:
        for mark in item.iter_markers():
            if mark.name in MARKS:
                return MARKS[mark.name]
        if not isinstance(item, pytest.Function):
            kind = type(item).__name__
            return "a doctest" if "Doctest" in kind else f"not a Python function: a {kind}"
        module, cls = _module_of(item), item.cls
        if module is not None:
            self._test_modules[id(vars(module))] = (vars(module), True)
        return (
            self._by_setups(module, cls)
            or self._by_fixtures(item)
            or self._by_code(item, cls)
            or self._by_parameters(item)
        )

    # ---- classes, and what is set up the old way

    def _by_setups(self, module: ModuleType | None, cls: type | None) -> str | None:
        key = (id(module), cls)
        if key not in self._setups:
            self._setups[key] = self._read_setups(module, cls)
        return self._setups[key]

    def _read_setups(self, module: ModuleType | None, cls: type | None) -> str | None:
        if cls is not None and _is_test_case(cls):
            reason = _test_case_state(cls, module)
            if reason is not None:
                return reason
        for owner, names in ((cls, _CLASS_SETUPS), (module, _MODULE_SETUPS)):
            for name in names:
                function = getattr(owner, name, None)
                reason = None if function is None else self._code.why(function, cls)
                if reason is not None:
                    return f"{name} {reason}"
        return None

    # ---- fixtures

    def _by_fixtures(self, item: pytest.Function) -> str | None:
        info = item._fixtureinfo
        for name, definitions in info.name2fixturedefs.items():
            for definition in _in_use(name, definitions):
                reason = self._by_fixture(name, definition)
                if reason is None:
                    continue
                if not reason.startswith("uses ") or name in info.argnames:
                    return reason
                asker = _asker(name, info.name2fixturedefs)
                return reason if asker is None else f"fixture `{asker}` {reason}"
        return None

    def _by_fixture(self, name: str, definition: pytest.FixtureDef[Any]) -> str | None:
        found = self._fixtures.get(id(definition))
        if found is None:
            reason = self._read_fixture(name, definition)
            found = self._fixtures[id(definition)] = (definition, reason)
        return found[1]

    def _read_fixture(self, name: str, definition: pytest.FixtureDef[Any]) -> str | None:
        if definition.scope in SEEN_BY_EVERYBODY:
            return None
        function = next(iter(layers(definition.func)))
        globals_ = getattr(function, "__globals__", {})
        package = str(globals_.get("__name__", "")).partition(".")[0]
        if name in FIXTURES and package in FIXTURES[name].split():
            return f"uses {name}"
        if not self._is_users(definition):
            return None
        reason = self._code.why(definition.func)
        if reason is None and definition.scope in {"function", "class"}:
            written = self._code.written_global(definition.func)
            reason = None if written is None else f"writes the global `{written}`"
        if reason is None and not _is_reset(definition):
            reason = self._code.shared_setting(definition.func)
        if reason is None:
            return None
        scope = "" if definition.scope == "function" else f" ({definition.scope})"
        return f"fixture `{name}`{scope} {reason}"

    def _is_users(self, definition: pytest.FixtureDef[Any]) -> bool:
        """Not of an installed plugin: of those, the ones that matter are known by name."""
        for layer in layers(definition.func):
            globals_ = getattr(layer, "__globals__", None)
            if globals_ is not None and self._is_near(str(globals_.get("__file__", ""))):
                self._test_modules.setdefault(id(globals_), (globals_, True))
                return True
        return False

    # ---- code

    def _by_code(self, item: pytest.Function, cls: type | None) -> str | None:
        function = _function_of(item, cls)
        reason = self._code.why(function, cls)
        if reason is None:
            written = self._code.written_global(function)
            reason = None if written is None else f"writes the global `{written}`"
        return reason or self._code.shared_setting(function)

    def _by_parameters(self, item: pytest.Function) -> str | None:
        """Of a function that is handed to the test."""
        callspec = getattr(item, "callspec", None)
        if callspec is None:
            return None
        for name, value in callspec.params.items():
            if callable(value) and hasattr(value, "__code__"):
                reason = self._code.why(value)
                if reason is not None:
                    return f"`{name}` {reason}"
        return None

    def _is_test_module(self, globals_: Mapping[str, Any]) -> bool:
        found = self._test_modules.get(id(globals_))
        if found is None:
            file = str(globals_.get("__file__", ""))
            found = (globals_, self._is_near(file) and self._is_test_code(file))
            self._test_modules[id(globals_)] = found
        return found[1]

    def _is_near(self, file: str) -> bool:
        return Path(file).name == "conftest.py" or (
            file.startswith(self._root) and "site-packages" not in file
        )


_SCAN = pytest.StashKey[Scan]()


def _module_of(item: pytest.Function) -> ModuleType | None:
    module = item.getparent(pytest.Module)
    return None if module is None else module.obj


def _function_of(item: pytest.Function, cls: type | None) -> object:
    if cls is not None and _is_test_case(cls):
        # Not `item.obj`: that would make an instance of the class.
        return getattr(cls, item.originalname or item.name, None)
    return item.obj


def _is_test_case(cls: type) -> bool:
    unittest = sys.modules.get("unittest")
    return unittest is not None and issubclass(cls, unittest.TestCase)


def _test_case_state(cls: type, module: ModuleType | None) -> str | None:
    for base in cls.__mro__:
        package = base.__module__.partition(".")[0]
        if package == "twisted":
            return f"{cls.__name__} is a twisted test case: the reactor is the process's"
        if package == "django":
            return f"{cls.__name__} is a Django test case: connections are set up for one at a time"
        if package == "unittest":
            break
        for name in _CLASS_STATE:
            if name in vars(base):
                return f"{base.__name__} has {name}"
    for name in _MODULE_STATE:
        if hasattr(module, name):
            return f"its module has {name}"
    return None


def _in_use(
    name: str, definitions: Sequence[pytest.FixtureDef[Any]]
) -> Iterator[pytest.FixtureDef[Any]]:
    """The last one overrides the others, unless it asks for what it overrides."""
    for definition in reversed(definitions):
        yield definition
        if name not in definition.argnames:
            return


def _is_reset(definition: pytest.FixtureDef[Any]) -> bool:
    """Whether it sets things once more as they are for every test, and never to anything else:
    those that do need another setting run alone, so that it disturbs nobody."""
    # It has no public name. In a pytest that does not have it at all, such tests run alone.
    is_autouse = bool(getattr(definition, "_autouse", False))
    function = definition.func
    has_teardown = isgeneratorfunction(function) or isasyncgenfunction(function)
    return is_autouse and definition.params is None and not has_teardown


def _asker(name: str, definitions: Mapping[str, Any]) -> str | None:
    for other, found in definitions.items():
        if found and other != name and name in found[-1].argnames:
            return other
    return None
