"""Which suites a command is about: files, folders of suites, or names of suites in the store."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from paraval import Suite
from paraval.cli.error_messages import talk
from paraval.cli.output import own_name
from paraval.documents.files import SIZE_LIMIT_BYTES, read_document
from paraval.documents.problems import Location
from paraval.errors import RequestError, SuiteError
from paraval.records import RunInfo
from paraval.runner.run import load_suite
from paraval.store.store import Store
from paraval.text.suggest import nearest
from paraval.text.terminal import one_line
from paraval.text.words import counted, some

SUITE_ENDINGS = (".yaml", ".yml", ".toml", ".json")
_MOST_NAMED = 5
_LONGEST_NAME = 60
_LONGEST_REASON = 100


def suite_from(path: Path) -> Suite:
    """Load a suite; what its modules print while they are imported goes to stderr."""
    if path.is_dir():
        found = [str(file) for file in _sorted_folder(path)[0]]
        there = f"name one of its suites: {some(found, _MOST_NAMED)}" if found else None
        raise RequestError(f"{path} is a folder, not a suite", hint=there)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return load_suite(path)
    except SuiteError:
        # Only here: suites need nothing of it.
        from paraval.racing.race_file import is_race_file  # noqa: PLC0415 - see above

        if is_race_file(path):
            raise RequestError(
                f"{path} is a race, not a suite",
                hint=f"run it with: {own_name()} race {shlex.quote(str(path))}",
            ) from None
        raise


# ---- files and folders


def suite_or_default(path: Path | None) -> Path:
    """The path, or the suite in the current folder if no path is given."""
    if path is not None:
        return path
    for ending in SUITE_ENDINGS:
        if (default := Path(f"suite{ending}")).is_file():
            return default
    raise RequestError(
        "no suite given, and there is no suite.yaml in this folder",
        hint=f"name a suite file or a folder of suites, or write a first suite: {own_name()} init",
    )


def suite_files(paths: Sequence[Path], *, quiet: bool = False) -> list[Path]:
    """The files to run: each path, and instead of a folder the suites in it and below.

    Unless `quiet`, stderr shows which suites a folder has, and which files are skipped and why.
    """
    files: list[Path] = []
    for path in paths or [suite_or_default(None)]:
        files += _files_in(path, quiet=quiet) if path.is_dir() else [path]
    return list(dict.fromkeys(files))


def _files_in(folder: Path, *, quiet: bool) -> list[Path]:
    found, skipped = _sorted_folder(folder)
    if not quiet:
        for reason, files in skipped.items():
            names = some([str(file.relative_to(folder)) for file in files], _MOST_NAMED)
            talk(f"Skipped {counted(len(files), 'file')} in {folder} ({reason}): {names}")
        if found:
            names = some([str(file.relative_to(folder)) for file in found], len(found))
            talk(f"Found {counted(len(found), 'suite')} in {folder}: {names}")
    if not found:
        raise RequestError(
            f"there is no suite in {folder}",
            hint=f"a suite is a {', '.join(SUITE_ENDINGS[:-1])} or {SUITE_ENDINGS[-1]} file with "
            f"a 'target' key; write a first one: {own_name()} init {shlex.quote(str(folder))}",
        )
    return found


def _sorted_folder(folder: Path) -> tuple[list[Path], dict[str, list[Path]]]:
    """The suites in a folder and below; and other files of their kinds, by why they are skipped."""
    found: list[Path] = []
    skipped: dict[str, list[Path]] = {}
    for file in _documents_in(folder):
        if (reason := _why_no_suite(file)) is None:
            found.append(file)
        else:
            skipped.setdefault(reason, []).append(file)
    return found, skipped


def _documents_in(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name != "node_modules"
        )
        for name in sorted(names):
            if name.lower().endswith(SUITE_ENDINGS) and not name.startswith("."):
                yield Path(place, name)


_NO_TARGET = "no 'target' key"
_TARGET_LINE = re.compile(rb"""^\s*\[?["']?target["']?\s*[:=\]]""", re.MULTILINE)


def _why_no_suite(file: Path) -> str | None:
    """Why a file is not taken for a suite; None if it is one, or a broken file that looks like
    one: to skip that would hide its error."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(SIZE_LIMIT_BYTES)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if b"target" not in raw:
        return _NO_TARGET
    spot = Location(problems={})
    document = read_document(file, spot)
    if document is None:
        problem = next(iter(spot.problems)).message
        return None if _TARGET_LINE.search(raw) else one_line(problem, _LONGEST_REASON)
    data = document.data
    return None if isinstance(data, Mapping) and "target" in data else _NO_TARGET


# ---- suites of the store, by their file or their name


def suite_named(text: str, runs: Sequence[RunInfo], store: Store) -> str:
    """The name of the suite in its runs; RequestError if there are none.

    If runs were made from the file, it is not loaded: it may import anything, or be broken by now.
    """
    names = [run.suite for run in runs]
    if _is_file(text):
        source = os.path.normpath(Path.cwd() / text)
        made = [run.suite for run in runs if run.source == source]
        name = made[0] if made else suite_from(Path(text)).name
    else:
        name = text
    if name in names:
        return name
    raise RequestError(
        f"no run of suite '{one_line(name, _LONGEST_NAME)}' in {store.root}",
        hint=_known_suites(name, names),
    )


def suite_of(store: Store, asked: str | None) -> str:
    """The requested suite, or the only one; races don't count."""
    runs = store.runs()
    if asked is not None:
        return suite_named(asked, runs, store)
    # Only here: reports are slow to load, and most commands name their suites.
    from paraval.runner.stored_runs import runs_of_suites  # noqa: PLC0415 - see above

    names = list(dict.fromkeys(run.suite for run in runs_of_suites(store, _one_of_each(runs))))
    if len(names) == 1:
        return names[0]
    if not names:
        raise RequestError(f"the store {store.root} has no run of a suite yet")
    raise RequestError(
        f"the store {store.root} has runs of several suites: {named_suites(names)}",
        hint="name one of them",
    )


def _one_of_each(runs: list[RunInfo]) -> list[RunInfo]:
    """The newest run of each name: recognizing races would mean opening every run."""
    return list({run.suite: run for run in reversed(runs)}.values())


def named_suites(names: Iterable[str]) -> str:
    """`'a', 'b' and 3 more`."""
    distinct = dict.fromkeys(names)
    return some([f"'{one_line(name, _LONGEST_NAME)}'" for name in distinct], _MOST_NAMED)


def _known_suites(name: str, names: Sequence[str]) -> str:
    if not names:
        return f"the store has no runs yet; start one: {own_name()} run SUITE"
    near = nearest(name, names)
    if near:
        return f"did you mean '{one_line(near[0], _LONGEST_NAME)}'?"
    return f"the store has runs of {named_suites(names)}"


def _is_file(text: str) -> bool:
    # A name that the file system rejects is not a file's.
    with contextlib.suppress(OSError, ValueError):
        return Path(text).is_file()
    return False
