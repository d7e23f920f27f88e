"""Short programs of our own, run to their end: git, `--version`. Blocking; a loop uses a thread.

For what users run there is `children`: what is started here is trusted to leave nothing behind but
is bounded in time all the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickEnd:
    """How it ended."""

    exit_code: int | None
    """None: it could not be started, or was ended after its time; `stderr` tells."""
    stdout: bytes = b""
    stderr: str = ""
    timed_out: bool = False

    @property
    def is_well(self) -> bool:
        return self.exit_code == 0


def run_quickly(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdin: bytes = b"",
    timeout: float = 60.0,
) -> QuickEnd:
    """Run a program and wait for it; its whole process group is ended after the time."""
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return QuickEnd(exit_code=None, stderr=f"cannot start '{argv[0]}': {error}")
    with process:
        try:
            stdout, stderr = process.communicate(stdin or None, timeout=timeout)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return QuickEnd(
                exit_code=None, timed_out=True, stderr=f"'{argv[0]}' was not done in {timeout:g} s"
            )
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return QuickEnd(
        exit_code=process.returncode, stdout=stdout, stderr=stderr.decode(errors="replace").strip()
    )
