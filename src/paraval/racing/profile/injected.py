"""Line profiling from within: copied as `sitecustomize.py` to where a benchmark's Python finds it.

It runs in whatever Python the benchmark is started with, before the benchmark's own code: it needs
the standard library alone, and line_profiler where that is there. Functions are profiled as their
module is loaded, by import, by `python -m` or as the script itself; at exit each process writes
what it saw into a file of its own. Whatever goes wrong here is told in that file, and nothing of it
reaches the benchmark.

Not seen: processes that were forked from a Python that runs already, and those that end without
Python's own way out (`os._exit`, a signal).
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import threading
from importlib import machinery, util
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, Iterator, Sequence  # noqa: UP035 - as Python 3.8 has them

REQUEST_VARIABLE = "PARAVAL_PROFILE"
"""Names a JSON file: {"into": folder, "top": folder, "functions": [...], "files": [...]}."""
LONGEST_TEXT = 200
_IS_FUNCTION = 0x01  # CO_OPTIMIZED: a class's body has it not
_SCRIPT = "__main__"


class ProfiledFunctions:
    """Which functions are to be profiled."""

    def __init__(self, functions: Sequence[str], files: Sequence[str]) -> None:
        """`functions`: `module:function`, `module:Class.method`; `files`: absolute."""
        self._asked = [one.partition(":")[::2] for one in functions]
        self._files = {os.path.realpath(file) for file in files}
        self._loaded: set[str] = set()
        self._found: set[tuple[str, str]] = set()

    def has_any_in(self, names: Sequence[str], path: str) -> bool:
        """`names`: what the module is called."""
        is_asked_for = any(module in names for module, _ in self._asked)
        return is_asked_for or os.path.realpath(path) in self._files

    def has(self, names: Sequence[str], path: str, function: str) -> bool:
        if os.path.realpath(path) in self._files:
            return True
        self._loaded.update(names)
        # Functions in a function are a part of it.
        outermost = function.partition(".<locals>.")[0]
        fitting = {
            (module, name)
            for module, name in self._asked
            if module in names and name in (function, outermost)
        }
        self._found |= fitting
        return bool(fitting)

    def missing(self) -> Iterator[str]:
        """Those whose module was loaded, and has no such function."""
        for module, name in self._asked:
            if module in self._loaded and (module, name) not in self._found:
                yield f"{module}:{name}"

    def not_loaded(self) -> Iterator[str]:
        return (f"{module}:{name}" for module, name in self._asked if module not in self._loaded)


class Joining:
    """The profiler in one process: from the first module that is wanted until the end."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._into: str = request["into"]
        self._top = os.path.realpath(request["top"])
        self._pid = os.getpid()
        self._wanted = ProfiledFunctions(request["functions"], request["files"])
        self._profiler: Any = None
        self._is_enabled = False
        self._problem: str | None = None
        self._names: dict[tuple[str, int], str] = {}
        """By file and first line, as line_profiler tells them apart."""
        self._sources: dict[str, list[str]] = {}

    def begin(self) -> None:
        # An empty file tells of a process that never came to its end.
        self._write("")
        atexit.register(self.end)
        try:
            self._profiler = importlib.import_module("line_profiler").LineProfiler()
        except ImportError as error:
            self._problem = f"no line_profiler: {error}"
            return
        _hook_loading(self.profiled_module)
        script = _script()
        if script is not None and self._wanted.has_any_in(_names_of(_SCRIPT, script), script):
            # As it was written, or in full: that depends on the version.
            for path in (sys.argv[0], script):
                sys.path_importer_cache[path] = _ScriptFinder(script)

    def end(self) -> None:
        """A forked child holds what its parent saw too: only the parent tells."""
        if os.getpid() == self._pid:
            self._write(json.dumps(self._told()))

    def profiled_module(self, name: str, path: str, code: CodeType) -> CodeType:
        """The module's code with that of the functions that are wanted replaced."""
        names = _names_of(name, path)
        if self._profiler is None or not self._wanted.has_any_in(names, path):
            return code
        self._enable()
        self._sources[code.co_filename] = _lines_of(path)
        return self._profiled(code, names, path, "")

    def _profiled(
        self, code: CodeType, names: Sequence[str], path: str, qualified: str
    ) -> CodeType:
        inner = f"{qualified}.<locals>." if code.co_flags & _IS_FUNCTION else f"{qualified}."
        prefix = inner if qualified else ""
        consts = tuple(
            self._profiled(const, names, path, prefix + const.co_name)
            if isinstance(const, CodeType)
            else const
            for const in code.co_consts
        )
        code = code.replace(co_consts=consts)
        # What has no name of its own (a lambda, a comprehension) is seen in the lines around it.
        is_named = bool(code.co_flags & _IS_FUNCTION) and not code.co_name.startswith("<")
        if not (qualified and is_named and self._wanted.has(names, path, qualified)):
            return code
        self._names[code.co_filename, code.co_firstlineno] = f"{names[0]}:{qualified}"
        return self._registered(code)

    def _registered(self, code: CodeType) -> CodeType:
        """line_profiler marks the code of a function that it is handed: that code must run."""
        cells = tuple(CellType() for _ in code.co_freevars)
        function = FunctionType(code, {}, code.co_name, None, cells)
        self._profiler.add_function(function)
        return function.__code__

    def _enable(self) -> None:
        if self._is_enabled:
            return
        self._is_enabled = True
        self._profiler.enable_by_count()

        def enable_here(*_: object) -> None:
            sys.setprofile(None)
            self._profiler.enable_by_count()

        # Each thread has a trace of its own: it is set at the first call in a new one.
        threading.setprofile(enable_here)

    def _told(self) -> dict[str, Any]:
        functions = [] if self._profiler is None else list(self._functions())
        return {
            "problem": self._problem,
            "python": sys.executable,
            "missing": list(self._wanted.missing()),
            "not_loaded": list(self._wanted.not_loaded()),
            "functions": functions,
        }

    def _functions(self) -> Iterator[dict[str, Any]]:
        stats = self._profiler.get_stats()
        for (file, first, _), timings in sorted(stats.timings.items()):
            name = self._names.get((file, first))
            if name is None or not timings:
                continue
            source = self._sources.get(file, [])
            lines = [
                {
                    "line": line,
                    "hits": hits,
                    "seconds": time * stats.unit,
                    "text": source[line - 1][:LONGEST_TEXT] if line <= len(source) else "",
                }
                for line, hits, time in timings
            ]
            yield {
                "name": name,
                "file": self._shown(file),
                "seconds": sum(time for _, _, time in timings) * stats.unit,
                "lines": lines,
            }

    def _shown(self, file: str) -> str:
        path = os.path.realpath(file)
        within = path.startswith(self._top + os.sep)
        return os.path.relpath(path, self._top) if within else path

    def _write(self, text: str) -> None:
        path = Path(self._into, f"{self._pid}.json")
        beside = path.with_suffix(".part")
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")
        beside.replace(path)


def _names_of(name: str, path: str) -> tuple[str, ...]:
    """What a module is called; a script also by its file."""
    if name != _SCRIPT:
        return (name,)
    return Path(path).stem, _SCRIPT


def _lines_of(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []


def _hook_loading(change: Any) -> None:
    """Every module that is read from a file, imported or run by `python -m`, comes by here."""
    loader = machinery.SourceFileLoader
    get_code = loader.get_code

    def get_changed_code(self: Any, fullname: str) -> CodeType | None:
        code = get_code(self, fullname)
        if code is None:
            return code
        try:
            changed: CodeType = change(fullname, self.path, code)
        except Exception:  # noqa: BLE001 - the benchmark comes first, and runs unprofiled
            return code
        return changed

    loader.get_code = get_changed_code  # type: ignore[method-assign]  # that is the hook


def _script() -> str | None:
    """The file that this Python was started with; None: a module, a line, a prompt."""
    first = Path(getattr(sys, "argv", [""])[0])
    return str(first.absolute()) if first.suffix == ".py" and first.is_file() else None


class _ScriptFinder:
    """Has the script loaded as a module named `__main__`, as Python does with archives.

    A script is else run from within the interpreter, where no hook reaches it.
    """

    def __init__(self, script: str) -> None:
        self._script = script

    def find_spec(self, name: str, _target: object = None) -> machinery.ModuleSpec | None:
        if name != _SCRIPT:
            return None
        # Where the archive would stand, a script has its folder.
        sys.path[0] = str(Path(self._script).parent)
        return util.spec_from_file_location(_SCRIPT, self._script)

    def invalidate_caches(self) -> None:
        """There are none."""


def _stand_aside() -> None:
    """Nothing of this folder is seen by the benchmark; another sitecustomize has its turn."""
    here = Path(__file__).absolute().parent
    sys.path[:] = [path for path in sys.path if Path(path).absolute() != here]
    spec = machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _begin() -> None:
    try:
        request = Path(os.environ[REQUEST_VARIABLE]).read_text(encoding="utf-8")
        Joining(json.loads(request)).begin()
    except Exception:  # noqa: BLE001 - see the module's docstring: told by what is not there
        return


if __name__ == "sitecustomize":
    _begin()
    _stand_aside()
