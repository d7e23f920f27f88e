"""The command in a process of its own, quickly: see `forking.py`, which is started once for many.

What a process takes from its surroundings only while it starts cannot be given to a fork: where a
test asks for that, or for two commands at once, the command is started as usual.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

_SCRIPT = Path(__file__).with_name("forking.py")


def _of_the_start(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in env.items() if name.startswith(("PYTHON", "LC_", "LANG"))
    }


class Forks:
    """Starts commands; itself started by the first of them."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._started_with: dict[str, str] = {}
        self._one_at_a_time = threading.Lock()

    def run(
        self, arguments: tuple[str, ...], *, folder: Path, env: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str] | None:
        """None where it has to be started as usual."""
        if not self._one_at_a_time.acquire(blocking=False):
            return None
        try:
            if self._server is None:
                self._started_with = _of_the_start(os.environ)
                self._server = subprocess.Popen(
                    [sys.executable, str(_SCRIPT)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            if _of_the_start(env) != self._started_with:
                return None
            with tempfile.TemporaryDirectory() as place:
                return self._ask(self._server, arguments, Path(place), (folder, env, timeout))
        finally:
            self._one_at_a_time.release()

    def _ask(
        self,
        server: subprocess.Popen[str],
        arguments: tuple[str, ...],
        place: Path,
        given: tuple[Path, dict[str, str], float],
    ) -> subprocess.CompletedProcess[str]:
        assert server.stdin is not None
        assert server.stdout is not None
        folder, env, timeout = given
        told = [place / "stdout", place / "stderr"]
        for path in told:
            path.touch()
        request = {
            "arguments": arguments,
            "folder": str(folder),
            "env": env,
            **{path.name: str(path) for path in told},
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        process = int(server.stdout.readline())
        too_long = threading.Timer(timeout, os.kill, (process, signal.SIGKILL))
        too_long.start()
        code = int(server.stdout.readline())
        in_time = not too_long.finished.is_set()
        too_long.cancel()
        if not in_time:
            raise subprocess.TimeoutExpired(["paraval", *arguments], timeout)
        stdout, stderr = (path.read_text() for path in told)
        return subprocess.CompletedProcess(["paraval", *arguments], code, stdout, stderr)

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()
