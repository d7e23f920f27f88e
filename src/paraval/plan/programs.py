"""Whether the programs that a suite names can be started: asked when it is loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from paraval.plan.places import Spot, shown
from paraval.plan.placing import placed
from paraval.plan.surroundings import Surroundings
from paraval.templates import TemplateError, field_names


def search_path(env: Mapping[str, str]) -> str:
    """Where a child with this environment looks for programs."""
    return env.get("PATH", os.environ.get("PATH", os.defpath))


def check_executable(program: str, cwd: str, path: str, spot: Spot) -> None:
    """Tells where a program that a command starts with is not to be found."""
    if not _can_be_checked(program, spot):
        return
    if "/" in program:
        if shutil.which(os.path.normpath(Path(cwd) / program)) is None:
            is_there = os.path.exists(Path(cwd) / program)  # noqa: PTH110 - not for a name too long
            state = "cannot be executed" if is_there else "is not there"
            spot.report(f"the program '{program}' {state} (looked for in {cwd})")
    elif shutil.which(program, path=path) is None:
        beside = os.path.isfile(Path(cwd) / program)  # noqa: PTH113 - False for a name too long
        spot.report(f"there is no program '{program}' on PATH{_program_hint(program, beside)}")


def check_started_in_workspace(program: str, path: str, spot: Spot, around: Surroundings) -> None:
    """The same for a program that is started where an attempt runs, not beside the suite."""
    named = placed(program, str(around.folder))
    if not _can_be_checked(named, spot):
        return
    if "/" not in named or Path(named).is_absolute():
        check_executable(named, str(around.folder), path, spot)
    elif not around.has_workspace:
        # With one, it is there or not when an attempt has its workspace.
        spot.report(
            f"'{program}' would be looked for in the attempt's own empty folder; write"
            f" {{suite}}/{program.removeprefix('./')} for a file beside the suite"
        )


def _can_be_checked(program: str, spot: Spot) -> bool:
    try:
        if not program or "\0" in program:
            spot.report(f"must start with the name of a program, not {shown(program)}")
            return False
        return not field_names(program)
    except TemplateError:
        return False


def _program_hint(program: str, beside: bool) -> str:
    if program.startswith("python"):
        return "; {python} is the Python that paraval runs with"
    if beside:
        return f"; write ./{program} for the file of this name"
    return "; install it, or give its path"
