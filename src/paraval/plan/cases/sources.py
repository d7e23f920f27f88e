"""Where cases come from: the suite itself, files beside it, or a function."""

from __future__ import annotations

import contextlib
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
from paraval.plan.cases.fields import FieldMap, FieldReader
from paraval.plan.cases.files import FILE_KINDS, CaseFiles, is_dataset
from paraval.plan.schema.suite_form import CaseSourceForm


def read_cases(written: Any, spot: Location, into: CaseList) -> None:
    """Add the cases under the key `cases`: a list, files, or a function's result."""
    before = len(spot.problems)
    match written:
        case str():
            _read_files([written], [spot], CaseFiles(into=into))
        case Mapping():
            _read_source(written, spot, into)
        case list() | tuple() if written and all(isinstance(item, str) for item in written):
            spots = [spot.at(n) for n in range(len(written))]
            _read_files(list(written), spots, CaseFiles(into=into))
        case list() | tuple():
            with into.reading(spot, FieldReader()):
                read_list(written, spot, into)
        case _:
            spot.report(f"must be a list of cases, or a path, not {shown(written)}")
    if not into.cases and len(spot.problems) == before:
        spot.report("is empty; add at least one case")


def _read_source(written: Mapping[str, Any], spot: Location, into: CaseList) -> None:
    found = len(spot.problems)
    form = check(CaseSourceForm, written, spot)
    if form is None or len(spot.problems) > found:
        return
    if (form.file is None) == (form.python is None):
        spot.report("needs either file or python")
        return
    mapped = FieldMap.from_form(form)
    if form.python is not None:
        _read_function(form.python, spot.at("python"), into, mapped)
        return
    files = CaseFiles(into=into, mapped=mapped, mapped_at=spot, split=form.split)
    at = spot.at("file")
    if isinstance(form.file, list):
        _read_files(form.file, [at.at(number) for number in range(len(form.file))], files)
    else:
        _read_files([form.file or ""], [at], files)


def _read_function(reference: str, key: Location, into: CaseList, mapped: FieldMap) -> None:
    with contextlib.chdir(into.around.folder):
        function = into.around.function(reference, key)
        if function is None:
            return
        if is_async(function):
            key.report(f"'{reference}' is async; write it as a plain function")
            return
        items = _called(reference, function, key)
    spot = replace(key, path=("cases",))
    with into.reading(spot, FieldReader(mapped=mapped, mapped_at=spot)):
        for position, item in enumerate(items):
            add_plain(item, (spot, None, (position,)), into)


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


def _read_files(patterns: list[str], spots: list[Location], files: CaseFiles) -> None:
    folder = files.into.around.folder
    done: set[Path] = set()
    for pattern, spot in zip(patterns, spots, strict=True):
        for path in _matching(pattern, spot, folder):
            if path not in done:
                done.add(path)
                files.read(path, _file_spot(path, pattern, spot, folder))


def _matching(pattern: str, spot: Location, folder: Path) -> list[Path]:
    if "\0" in pattern:
        spot.report("a path cannot contain a NUL character")
        return []
    plain_path = folder / pattern
    if os.path.isdir(plain_path):  # noqa: PTH112 - False for a name too long
        return _in_folder(plain_path, pattern, spot)
    if not glob.has_magic(pattern) or os.path.isfile(plain_path):  # noqa: PTH113 - False for a name too long
        reason = why_unreadable(plain_path, pattern)
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


def _in_folder(folder: Path, pattern: str, spot: Location) -> list[Path]:
    """Return a folder's files of cases; a dataset's folder stands for itself."""
    if is_dataset(folder):
        return [folder]
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in FILE_KINDS
        and not path.name.startswith((".", "README"))
        and path.is_file()
    ]
    if not files:
        spot.report(f"{shown(pattern)} has no files of cases; use {', '.join(FILE_KINDS)}")
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
