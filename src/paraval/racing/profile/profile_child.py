"""Runs a benchmark's Python program with line_profiler: `python profile_child.py bench.py ...`.

It is copied next to the attempt and runs in the benchmark's own Python: it needs only the standard
library, and line_profiler if installed. Functions are set up as their module is loaded; at the end,
the profile is written as JSON.

It does not see other processes that the program starts, and writes nothing if the program ends by
`os._exit` or a signal.
"""

from __future__ import annotations

import json
import linecache
import os
import runpy
import sys
import threading
from importlib import machinery, util
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, Iterator  # noqa: UP035 - as Python 3.8 has them

REQUEST_VARIABLE = "PARAVAL_PROFILE"
"""Names a JSON file: {"into": file, "top": folder, "functions": [...], "files": [...]}. Without
functions and files, all functions of the modules below the top are meant."""
LONGEST_TEXT = 200
_IS_FUNCTION = 0x01  # CO_OPTIMIZED: not set for class bodies
_MAIN = "__main__"


class ProfiledProgram:
    """The functions to profile, and their profile."""

    def __init__(self, request: dict[str, Any], profiler: Any) -> None:
        """The request's `functions`: `module:function`, `module:Class.method`; its `files`:
        absolute paths, to profile all their functions."""
        self._asked = set(request["functions"])
        self._files = {os.path.realpath(file) for file in request["files"]}
        self._top = os.path.realpath(request["top"])
        self._profiler = profiler
        self._loaded: set[str] = set()
        self._found: set[str] = set()
        self._names: dict[tuple[str, int], str] = {}
        """By file and first line, like line_profiler."""

    def hook_loading(self) -> None:
        """Hook into every module that is loaded from a file, imported or run by `-m`."""
        loader = machinery.SourceFileLoader
        get_code = loader.get_code

        def get_profiled_code(module: Any, fullname: str) -> CodeType | None:
            code = get_code(module, fullname)
            name = Path(module.path).stem if fullname == _MAIN else fullname
            self._loaded.add(name)
            is_asked = any(one.startswith(f"{name}:") for one in self._asked)
            if code is None or not (is_asked or self._is_wanted_file(module.path)):
                return code
            return self._profiled(code, name, "")

        loader.get_code = get_profiled_code  # type: ignore[method-assign, assignment]  # a hook

    def _profiled(self, code: CodeType, module: str, qualified: str) -> CodeType:
        """The code, with the code of wanted functions replaced."""
        inner = f"{qualified}.<locals>." if code.co_flags & _IS_FUNCTION else f"{qualified}."
        consts = tuple(
            self._profiled(const, module, (inner if qualified else "") + const.co_name)
            if isinstance(const, CodeType)
            else const
            for const in code.co_consts
        )
        code = code.replace(co_consts=consts)
        # Unnamed code (a lambda, a comprehension) counts in the lines around it.
        is_named = bool(code.co_flags & _IS_FUNCTION) and not code.co_name.startswith("<")
        if not (qualified and is_named and self._wants(module, qualified, code.co_filename)):
            return code
        self._names[code.co_filename, code.co_firstlineno] = f"{module}:{qualified}"
        # line_profiler marks the code of the function it gets: that code must run.
        cells = tuple(CellType() for _ in code.co_freevars)
        function = FunctionType(code, {}, code.co_name, None, cells)
        self._profiler.add_function(function)
        return function.__code__

    def _wants(self, module: str, qualified: str, path: str) -> bool:
        # Nested functions are part of the outer one.
        outermost = qualified.partition(".<locals>.")[0]
        fitting = self._asked & {f"{module}:{qualified}", f"{module}:{outermost}"}
        self._found |= fitting
        return bool(fitting) or self._is_wanted_file(path)

    def _is_wanted_file(self, path: str) -> bool:
        real = os.path.realpath(path)
        is_any = not self._asked and not self._files
        return real in self._files or (is_any and real.startswith(self._top + os.sep))

    def enable(self) -> None:
        self._profiler.enable_by_count()

        def enable_here(*_: object) -> None:
            sys.setprofile(None)
            self._profiler.enable_by_count()

        # Each thread has its own trace: set it at the first call in a new thread.
        threading.setprofile(enable_here)

    def seen(self) -> dict[str, Any]:
        """What was profiled. It ends here: from Python 3.12 on, a profiler that is still on when
        Python ends prints errors of its own."""
        threading.setprofile(None)
        self._profiler.disable()
        return {
            "loaded": sorted(self._loaded),
            "found": sorted(self._found),
            "functions": list(self._functions()),
        }

    def _functions(self) -> Iterator[dict[str, Any]]:
        stats = self._profiler.get_stats()
        for (file, first, _), timings in sorted(stats.timings.items()):
            name = self._names.get((file, first))
            if name is None or not timings:
                continue
            path = os.path.realpath(file)
            is_within = path.startswith(self._top + os.sep)
            yield {
                "name": name,
                "file": os.path.relpath(path, self._top) if is_within else path,
                "seconds": sum(time for _, _, time in timings) * stats.unit,
                "lines": [
                    {
                        "line": line,
                        "hits": hits,
                        "seconds": time * stats.unit,
                        "text": linecache.getline(file, line).rstrip("\n")[:LONGEST_TEXT],
                    }
                    for line, hits, time in timings
                ],
            }


def _run() -> None:
    """Run the program that the arguments name, as Python would."""
    first, *others = sys.argv[1:]
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        here = {"-m": str(Path.cwd()), "-c": ""}
        sys.path[0] = here.get(first, str(Path(os.path.realpath(first)).parent))
    if first == "-m":
        sys.argv = others
        runpy.run_module(others[0], run_name=_MAIN, alter_sys=True)
        return
    sys.argv = ["-c", *others[1:]] if first == "-c" else [first, *others]
    if first == "-c":
        module = type(sys)(_MAIN)
        sys.modules[_MAIN] = module
        exec(compile(others[0], "<string>", "exec"), vars(module))  # noqa: S102 - as asked for
        return
    spec = util.spec_from_file_location(_MAIN, first)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    module.__spec__ = None
    sys.modules[_MAIN] = module
    spec.loader.exec_module(module)


def main() -> None:
    request = json.loads(Path(os.environ[REQUEST_VARIABLE]).read_text(encoding="utf-8"))
    try:
        from line_profiler import LineProfiler  # noqa: PLC0415 - it may not be there
    except ImportError:
        Path(request["into"]).write_text(json.dumps({"no_profiler": sys.executable}))
        return
    program, pid = ProfiledProgram(request, LineProfiler()), os.getpid()
    program.hook_loading()
    program.enable()
    try:
        _run()
    finally:
        # A forked child has its parent's profile too: only the parent reports.
        if os.getpid() == pid:
            Path(request["into"]).write_text(json.dumps(program.seen()), encoding="utf-8")


if __name__ == _MAIN:
    main()
