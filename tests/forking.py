"""Runs `python -m paraval` again and again, each time in a process of its own that is a fork of
this one, where the program is loaded: to load it anew takes most of the time of a short command.

A script that stands alone, so that nothing of the tests can be imported where commands run. Each
line of stdin is a request; the process and then how it ended are told on stdout, a line each.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import sys
import threading
from typing import Any, NoReturn

from pydantic import BaseModel

from paraval.cli.main import COMMANDS
from paraval.report.page import rendering


def _load() -> None:
    """The commands, and what a process would otherwise load or build when it first needs it."""
    for module in sorted({module for module, _ in COMMANDS.values()}):
        importlib.import_module(f"paraval.cli.commands.{module}")
    for module in ("loopback.server", "models.http_call", "report.page.page"):
        importlib.import_module(f"paraval.{module}")
    forms = [BaseModel]
    for form in forms:
        forms += form.__subclasses__()
        if form.__module__.startswith("paraval."):
            form.model_rebuild()
    templates = rendering.environment()
    for name in templates.list_templates():
        templates.get_template(name)


def main() -> None:
    _load()
    if threading.active_count() > 1:
        sys.exit("a process with threads cannot be forked: who started one while loading?")
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line))
            _end(_run())
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run() -> int:
    """The exit code; any other exception ends the process as it would alone."""
    try:
        runpy.run_module("paraval", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        raise
    return 0


def _end(code: int) -> NoReturn:
    """As Python ends, but for the modules, which are not taken apart: each of their objects would
    be copied for that, which takes as long as a short command."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _become(request: dict[str, Any]) -> None:
    """What a new process would have been given."""
    for number, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
        descriptor = os.open(path, os.O_RDWR)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = request["folder"]
    sys.argv = ["paraval", *request["arguments"]]


if __name__ == "__main__":
    main()
