"""What must hold before an agent is started, and the files that it finds."""

from __future__ import annotations

import os
from collections.abc import Mapping

from paraval.agents.program import Job, Launch
from paraval.isolation import Home
from paraval.records import AgentTarget
from paraval.scratch import OwnHome

LONGEST_ARGUMENT_BYTES = (128 << 10) - 1
"""Of one argument, or of one variable with its name: Linux takes no more."""


class CannotStart(Exception):  # noqa: N818 - says what is the case
    """Nothing is started; the message says why, and what to do."""


def check_home(target: AgentTarget, environment: Mapping[str, str]) -> None:
    if target.home is Home.MINE and not (target.env.get("HOME") or environment.get("HOME")):
        raise CannotStart(
            "HOME is not set, so that nobody knows which home `home: mine` is; set HOME, or leave"
            " out `home: mine` and give the agent a key"
        )


def check_arguments(launch: Launch, job: Job, agent: str) -> None:
    for argument in launch.argv:
        size = _size(argument)
        if size <= LONGEST_ARGUMENT_BYTES:
            continue
        what = "its prompt" if job.prompt in argument else "one of its arguments"
        if job.system and job.system in argument:
            what = "what target.system says"
        raise CannotStart(
            f"{agent} takes {what} on its command line, and no program can be handed an argument"
            f" of {size:,} bytes (at most {LONGEST_ARGUMENT_BYTES:,}); put the long part into a"
            " file of the workspace"
        )


def check_variables(env: Mapping[str, str], agent: str) -> None:
    for name, value in env.items():
        size = _size(f"{name}={value}")
        if size > LONGEST_ARGUMENT_BYTES:
            raise CannotStart(
                f"{agent} cannot be handed the variable {name}, which has {size:,} bytes (at most"
                f" {LONGEST_ARGUMENT_BYTES:,}); put what is in it into a file"
            )


def _size(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))


def write_files(files: Mapping[str, str], own: OwnHome) -> None:
    for path, text in files.items():
        if not path.startswith((f"{own.home}/", f"{own.temp}/")):
            raise ValueError(f"an agent's file belongs into its own home or temp, not to {path}")
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - text, and quick
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
