"""What the processes of a profiled benchmark told, put together, or why there is no profile.

The files were written by code that nobody trusts: they are read with bounds, and as data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paraval.racing.findings import Profiled, ProfiledFunction, ProfiledLine
from paraval.report.text import well_formed
from paraval.strict_json import parse_strictly
from paraval.targets.answer import InvalidOutputError
from paraval.targets.plain_files import read_plain_file

MOST_FUNCTIONS = 30
MOST_LINES = 300
"""Of one function; those that took longest."""
LONGEST_TEXT = 200
MOST_PROCESSES = 200
"""Of one benchmark; what further ones tell is left out."""
MOST_BYTES = 8_000_000
"""That one process may tell."""
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one process told."""

    python: str
    has_profiler: bool
    missing: tuple[str, ...] = ()
    """Asked for, and not in their modules."""
    not_loaded: tuple[str, ...] = ()
    """Asked for, and their modules were not loaded."""
    functions: tuple[ProfiledFunction, ...] = ()


def profile_told(folder: Path, asked: Sequence[str]) -> tuple[Profiled, tuple[str, ...]]:
    """What is in a folder of files that the injected script wrote, and what to note beside it.

    `asked`: the functions that were asked for; empty: those of the files that were changed.
    """
    files = sorted(folder.glob("*.json"))[:MOST_PROCESSES]
    if not files:
        return Profiled(problem=_NOBODY), ()
    told = [one for file in files if (one := _read(file)) is not None]
    if not told:
        return Profiled(problem=_CUT_OFF), ()
    functions = _together(function for one in told for function in one.functions)
    absent = tuple(_absent(told, asked))
    if not functions:
        return Profiled(problem=_why_none(told, asked, absent)), ()
    return Profiled(functions=functions), absent


_NOBODY = (
    "the benchmark started no Python that could be profiled; python -I, -E and -S keep the profiler"
    " out"
)
_CUT_OFF = "the benchmark's Python was ended before it could tell (os._exit, a signal)"


def _why_none(told: Sequence[Told], asked: Sequence[str], absent: Sequence[str]) -> str:
    if not any(one.has_profiler for one in told):
        python = told[0].python or "python"
        return (
            "line_profiler is not installed in the benchmark's Python; install it there:"
            f" {python} -m pip install line_profiler"
        )
    if absent:
        return "; ".join(absent)
    if asked:
        return "the benchmark called none of the functions that were asked for"
    return "the benchmark called no function of the files that it changes"


def _absent(told: Sequence[Told], asked: Sequence[str]) -> Iterator[str]:
    """What of all that was asked for no process had."""
    able = [one for one in told if one.has_profiler]
    not_loaded = [name for name in asked if all(name in one.not_loaded for one in able)]
    missing = [
        name
        for name in asked
        if name not in not_loaded
        and all(name in one.missing or name in one.not_loaded for one in able)
    ]
    if able and missing:
        yield f"there is no function {_named(missing)}"
    if able and not_loaded:
        yield f"the benchmark did not load the module of {_named(not_loaded)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


# ---- what one process told


def _read(file: Path) -> Told | None:
    """None: it told nothing, or what no such process tells."""
    try:
        text = read_plain_file(str(file), MOST_BYTES).decode()
        return _told(parse_strictly(text)) if text else None
    except (InvalidOutputError, ArithmeticError, KeyError, TypeError, ValueError):
        return None


def _told(data: Any) -> Told:
    return Told(
        python=_text(data["python"]),
        has_profiler=data["problem"] is None,
        missing=tuple(map(_text, data["missing"])),
        not_loaded=tuple(map(_text, data["not_loaded"])),
        functions=tuple(map(_function, data["functions"])),
    )


def _function(data: Any) -> ProfiledFunction:
    return ProfiledFunction(
        name=_text(data["name"]),
        file=_text(data["file"]),
        seconds=_seconds(data["seconds"]),
        lines=tuple(map(_line, data["lines"])),
    )


def _line(data: Any) -> ProfiledLine:
    return ProfiledLine(
        line=int(data["line"]),
        hits=int(data["hits"]),
        seconds=_seconds(data["seconds"]),
        text=_text(data["text"]),
    )


def _text(value: Any) -> str:
    return well_formed(str(value)[:LONGEST_TEXT])


def _seconds(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{number} is no time")
    return number


# ---- all of them


def _together(functions: Iterator[ProfiledFunction]) -> tuple[ProfiledFunction, ...]:
    """Each function once, whoever called it; the one that took longest first."""
    found: dict[tuple[str, str], list[ProfiledFunction]] = {}
    for function in functions:
        found.setdefault((function.file, function.name), []).append(function)
    summed = (_summed(parts) for parts in found.values())
    return tuple(sorted(summed, key=lambda one: (-one.seconds, one.name)))[:MOST_FUNCTIONS]


def _summed(parts: Sequence[ProfiledFunction]) -> ProfiledFunction:
    lines: dict[int, ProfiledLine] = {}
    for line in (line for part in parts for line in part.lines):
        before = lines.get(line.line)
        hits, seconds = (before.hits, before.seconds) if before is not None else (0, 0.0)
        lines[line.line] = ProfiledLine(
            line=line.line, hits=hits + line.hits, seconds=seconds + line.seconds, text=line.text
        )
    slowest = sorted(lines.values(), key=lambda one: -one.seconds)[:MOST_LINES]
    return ProfiledFunction(
        name=parts[0].name,
        file=parts[0].file,
        seconds=math.fsum(part.seconds for part in parts),
        lines=tuple(sorted(slowest, key=lambda one: one.line)),
    )
