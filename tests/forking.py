"""Runs `python -m paraval` again and again, each time in a process of its own that is a fork of
this one, where the program is loaded: to load it anew takes most of the time of a short command.

A script that stands alone, so that nothing of the tests can be imported where commands run. Each
line of stdin is a request; the process and then how it ended are told on stdout, a line each.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import sys
import threading
from typing import Any

from paraval.cli.main import COMMANDS


def main() -> None:
    for module in sorted({module for module, _ in COMMANDS.values()}):
        importlib.import_module(f"paraval.cli.commands.{module}")
    if threading.active_count() > 1:
        sys.exit("a process with threads cannot be forked: who started one while loading?")
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line))
            # It ends the process in its own way, as it would alone.
            runpy.run_module("paraval", run_name="__main__", alter_sys=True)
            return
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


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
