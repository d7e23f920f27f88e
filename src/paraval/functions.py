"""Python functions by name: `module:function`, with a folder searched first.

Targets, graders and case sources use this.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paraval.errors import ParavalError

Functions = Mapping[str, Callable[..., Any]]
"""Functions passed as objects, by the reference that stands for them in records."""
GRADER_PARAMETERS = ("workspace", "steps")
"""Parameters of a grader's function that it gets by name, if it has them."""


def load_function(reference: str, folder: str) -> Callable[..., Any]:
    """Return the function that `module:function` names; ParavalError has the reason if it fails."""
    module_name, colon, path = reference.partition(":")
    if not (module_name and colon and path):
        raise ParavalError(f"'{reference}' does not name a function; write module:function")
    if module_name.endswith(".py"):
        name = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise ParavalError(f"'{reference}' names a file, not a module; write {name}:{path}")
    _look_first_in(folder)
    try:
        found: Any = importlib.import_module(module_name)
    # SystemExit too: importing a script that exits must not end this process.
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ParavalError(
            f"cannot import '{module_name}': {type(error).__name__}: {error}",
            hint=f"modules are looked for in {folder} and on Python's path",
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise ParavalError(f"module '{module_name}' has no '{path}'")
        found = getattr(found, name)
    if not callable(found):
        raise ParavalError(f"'{reference}' is not a function (its type is {type(found).__name__})")
    function: Callable[..., Any] = found
    return function


_folders: list[str] = []
"""Folders that suites' modules were loaded from; the last one is current."""


def _look_first_in(folder: str) -> None:
    """Put this folder first, also before equally named modules of other suites' folders.

    Python caches modules by name only: without this, a second suite with its own `target.py` would
    get the first one's.
    """
    importlib.invalidate_caches()
    if _folders[-1:] == [folder] and folder in sys.path:
        return
    for name, module in tuple(sys.modules.items()):
        place = _folder_of(name, module)
        if place in _folders and place != folder and _has_module(folder, name):
            del sys.modules[name]
    for known in (sys.path, _folders):
        if folder in known:
            known.remove(folder)
    sys.path.insert(0, folder)
    _folders.append(folder)


def _folder_of(name: str, module: object) -> str | None:
    """Return the folder that a module, or its package, was found in."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    path = Path(file)
    levels = name.count(".") + (path.name == "__init__.py")
    return str(path.parents[levels]) if levels < len(path.parents) else None


def _has_module(folder: str, name: str) -> bool:
    place = Path(folder, name.partition(".")[0])
    return place.with_name(f"{place.name}.py").is_file() or (place / "__init__.py").is_file()


def positional_arguments(function: Callable[..., Any]) -> int:
    """Return how many positional arguments a function accepts."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return sys.maxsize
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in positional for parameter in parameters)


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine; also for objects with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is asked about
    )
