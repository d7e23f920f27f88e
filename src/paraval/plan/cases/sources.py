"""Where cases come from: the suite itself, files beside it, or a function."""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.documents.files import why_unreadable
from paraval.documents.forms import check
from paraval.documents.problems import Location, shown
from paraval.functions import is_async
from paraval.plan.cases.case_list import CaseList, add_plain, read_list
from paraval.plan.cases.files import read_file
from paraval.plan.schema.suite_form import FunctionCasesForm


def read_cases(written: Any, spot: Location, into: CaseList) -> None:
    """Add the cases under the key `cases`: a list, files, or a function's result."""
    before = len(spot.problems)
    match written:
        case str():
            _read_files([written], [spot], into)
        case Mapping():
            _read_function(written, spot, into)
        case list() | tuple() if written and all(isinstance(item, str) for item in written):
            _read_files(list(written), [spot.at(n) for n in range(len(written))], into)
        case list() | tuple():
            read_list(written, spot, into)
        case _:
            spot.report(f"must be a list of cases, or a path, not {shown(written)}")
    if not into.cases and len(spot.problems) == before:
        spot.report("is empty; add at least one case")


def _read_function(written: Mapping[str, Any], spot: Location, into: CaseList) -> None:
    form = check(FunctionCasesForm, written, spot)
    if form is None:
        return
    key = spot.at("python")
    function = into.around.function(form.python, key)
    if function is None:
        return
    if is_async(function):
        key.report(f"'{form.python}' is async; write it as a plain function")
        return
    for position, item in enumerate(_called(form.python, function, key)):
        add_plain(item, (replace(key, path=("cases",)), None, (position,)), into)


def _called(reference: str, function: Callable[[], Any], spot: Location) -> list[Any]:
    try:
        result = function()
        if isinstance(result, str | Mapping) or not isinstance(result, Iterable):
            spot.report(f"'{reference}' must return a list of cases, not {shown(result)}")
            return []
        return list(result)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything
        spot.report(f"'{reference}' raised {type(error).__name__}: {error}")
        return []


def _read_files(patterns: list[str], spots: list[Location], into: CaseList) -> None:
    done: set[Path] = set()
    for pattern, spot in zip(patterns, spots, strict=True):
        for path in _matching(pattern, spot, into.around.folder):
            if path not in done:
                done.add(path)
                read_file(path, _file_spot(path, pattern, spot, into.around.folder), into)


def _matching(pattern: str, spot: Location, folder: Path) -> list[Path]:
    if "\0" in pattern:
        spot.report("a path cannot contain a NUL character")
        return []
    plain_path = folder / pattern
    if not glob.has_magic(pattern) or os.path.isfile(plain_path):  # noqa: PTH113 - False for a name too long
        reason = why_unreadable(plain_path)
        if reason:
            spot.report(f"{shown(pattern)}: {reason}")
        return [] if reason else [plain_path]
    if "**" in pattern and _begins_at_the_root(plain_path):
        spot.report(f"{shown(pattern)} would search the whole file system; start it with a folder")
        return []
    found = sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207 - Path.glob refuses paths with '..'
    files = [folder / name for name in found if (folder / name).is_file()]
    if not files:
        spot.report(f"no file matches {shown(pattern)} in {folder}")
    return files


def _begins_at_the_root(pattern: Path) -> bool:
    """Whether a glob would search all folders of the machine."""
    plain = itertools.takewhile(lambda part: not glob.has_magic(part), pattern.parts)
    return os.path.normpath(Path(*plain)) == os.sep


def _file_spot(path: Path, pattern: str, spot: Location, folder: Path) -> Location:
    """Return the file's name as the author would write it, relative to the suite's own path."""
    if Path(pattern).is_absolute():
        shown_path = path
    else:
        beside = Path(spot.file).parent if spot.file else Path()
        shown_path = beside / path.relative_to(folder)
    return Location(problems=spot.problems, file=str(shown_path))
