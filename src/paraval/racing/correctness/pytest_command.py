"""Whether a test command is pytest, however it is started, and where its report of tests will be.

pytest alone is asked for a report of its own accord: other programs have options of their own for
it, and their users name the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

AUTO, OFF = "auto", "off"
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_PYTEST = ("pytest", "py.test")
_OPTIONS = ("--junitxml", "--junit-xml")
_RUNNERS = ("uv", "poetry", "pipenv", "pdm", "hatch", "rye")
"""Programs whose `run` starts what follows."""
_TAKE_A_VALUE = frozenset(
    {
        *("--with", "--with-editable", "--with-requirements", "--python", "-p", "--extra"),
        *("--group", "--only-group", "--no-group", "--project", "--directory", "--package"),
        *("--env-file", "--index", "-C", "-P", "-e", "--env", "-n", "--name"),
    }
)
"""Options of those programs, before the command."""
_PYTHON_TAKES_A_VALUE = ("-X", "-W")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportingCommand:
    """A test command as it is started, and the report that it will write."""

    argv: tuple[str, ...]
    file: str | None = None
    """Absolute, or relative to where the command runs; None: it tells of no single tests."""
    is_pytest: bool = False


def reporting(argv: tuple[str, ...], junit: str, own_file: str) -> ReportingCommand:
    """`junit`: as in the request. `own_file`: absolute, where a report is asked for by us."""
    place = after_pytest(argv)
    is_pytest = place is not None
    if junit == OFF or (junit == AUTO and place is None):
        return ReportingCommand(argv=argv, is_pytest=is_pytest)
    if junit != AUTO:
        return ReportingCommand(argv=argv, file=junit, is_pytest=is_pytest)
    assert place is not None
    # The older family names each test's file. Captured output can be much, and is of no use here.
    asked = ("-o", "junit_family=xunit1", "-o", "junit_logging=no")
    given = _given_file(argv[place:])
    if given is not None and not given.startswith(("/", "~", "$")):
        return ReportingCommand(
            argv=(*argv[:place], *asked, *argv[place:]), file=given, is_pytest=True
        )
    # A file outside of the worktree would be the same one for all that are tested at once: of two
    # such options, pytest takes the last.
    rest = argv[place:] if given is None else _without_file(argv[place:])
    return ReportingCommand(
        argv=(*argv[:place], f"--junitxml={own_file}", *asked, *rest),
        file=own_file,
        is_pytest=True,
    )


def after_pytest(argv: tuple[str, ...], begin: int = 0) -> int | None:
    """Where pytest's own arguments begin; None: it is another command."""
    if begin >= len(argv):
        return None
    program = PurePosixPath(argv[begin]).name
    if program in _PYTEST:
        return begin + 1
    if _PYTHON.fullmatch(program):
        return _after_module(argv, begin + 1)
    if program == "coverage":
        return _after_coverage(argv, begin + 1)
    if program == "env":
        return after_pytest(argv, _after_assignments(argv, begin + 1))
    if program in _RUNNERS and argv[begin + 1 : begin + 2] == ("run",):
        return after_pytest(argv, _after_options(argv, begin + 2))
    if program == "uvx":
        return after_pytest(argv, _after_options(argv, begin + 1))
    return None


def _after_module(argv: tuple[str, ...], place: int) -> int | None:
    """Behind `python -X dev -m pytest`."""
    while place < len(argv) and argv[place].startswith("-"):
        if argv[place] == "-m":
            module = argv[place + 1 : place + 2]
            if module == ("pytest",):
                return place + 2
            return _after_coverage(argv, place + 2) if module == ("coverage",) else None
        if argv[place] == "-c":
            return None
        place += 2 if argv[place] in _PYTHON_TAKES_A_VALUE else 1
    return None


def _after_coverage(argv: tuple[str, ...], place: int) -> int | None:
    """Behind `coverage run --branch -m pytest`."""
    if argv[place : place + 1] != ("run",) or "-m" not in argv[place:]:
        return None
    module = argv.index("-m", place) + 1
    return module + 1 if argv[module : module + 1] == ("pytest",) else None


def _after_assignments(argv: tuple[str, ...], place: int) -> int:
    while place < len(argv) and (argv[place].startswith("-") or "=" in argv[place]):
        place += 2 if argv[place] in ("-u", "--unset", "-C", "--chdir") else 1
    return place


def _after_options(argv: tuple[str, ...], place: int) -> int:
    while place < len(argv) and argv[place].startswith("-"):
        place += 2 if argv[place] in _TAKE_A_VALUE else 1
    return place


def _given_file(arguments: tuple[str, ...]) -> str | None:
    """The report that the user asks for; the last one counts, as for pytest."""
    given = None
    for place, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in _OPTIONS:
            following = arguments[place + 1 : place + 2]
            given = value if equals else (following[0] if following else given)
    return given


def _without_file(arguments: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    is_value = False
    for argument in arguments:
        if is_value:
            is_value = False
        elif argument in _OPTIONS:
            is_value = True
        elif argument.partition("=")[0] not in _OPTIONS:
            kept.append(argument)
    return tuple(kept)
