"""What is to be compared, by the names that users have for it: runs, report files, and parts of
either.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from paraval.errors import RequestError
from paraval.past import StoredRun
from paraval.racing.remembering import is_race
from paraval.records import RunInfo
from paraval.report.contents import Source
from paraval.report.part import Choice, choice_from
from paraval.report.reading_back import ENDINGS, source_from_file
from paraval.report.text import one_line
from paraval.store.store import Store

LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A side that can be read."""

    name: str
    """A run's id, or a file as it was asked for."""
    source: Source
    run: RunInfo
    tells_run: bool = True
    """False: of which suite and run it is, the file does not tell."""
    choice: Choice = field(default_factory=dict)


class Sides:
    """Finds what is asked for. Nothing stays open: it is read anew each time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self, text: str) -> Opened:
        """`RUN`, `FILE`, `RUN:AXIS=VALUE`, or `AXIS=VALUE` of the last run that is no race."""
        name, part = split_name(text)
        if name is None:
            opened = self.open_run(self._last())
        else:
            opened = self._open_file(name) if _is_file(name) else self._open_named(name)
        if part is None:
            return opened
        return replace(opened, choice=choice_from(part, opened.source, opened.name))

    def open_run(self, info: RunInfo) -> Opened:
        with self._store.reader(info) as reader:
            if is_race(reader.selection()):
                raise RequestError(
                    f"{info.id} is a race: its candidates are compared in its own report",
                    hint=f"see it with: paraval report {info.id}",
                )
            # Read once more: it may go on.
            run = reader.info()
        return Opened(name=run.id, source=StoredRun(self._store, run), run=run)

    def last_two(self) -> tuple[RunInfo, RunInfo]:
        """The run before the last of the same suite, and the last; races are passed over."""
        last = self._last()
        for run in self._store.runs():
            is_before = (run.started_at, run.id) < (last.started_at, last.id)
            if run.suite == last.suite and is_before and not self._is_race(run):
                return run, last
        raise RequestError(
            f"there is no run of '{one_line(last.suite, 80)}' before {last.id} to compare it with",
            hint="name both: paraval compare A B; `paraval runs` lists them",
        )

    def _open_file(self, name: str) -> Opened:
        source = source_from_file(name)
        return Opened(name=name, source=source, run=source.run, tells_run=source.tells_run)

    def _open_named(self, name: str) -> Opened:
        return self.open_run(self._store.find(name))

    def _last(self) -> RunInfo:
        """The last that can be compared; where all are races, the last of them."""
        last = self._store.find(LAST)
        return next((run for run in self._store.runs() if not self._is_race(run)), last)

    def _is_race(self, run: RunInfo) -> bool:
        return is_race(self._store.selection(run))


def split_name(text: str) -> tuple[str | None, str | None]:
    """A run or a file, and which part of it, if any. A part alone names neither.

    Values and paths may hold colons and equals signs: what is there as a file or a folder counts
    as one.
    """
    if _exists(text):
        return text, None
    for colon in re.finditer(":", text):
        if _exists(text[: colon.start()]):
            return text[: colon.start()], text[colon.end() :]
    name, colon_sign, part = text.partition(":")
    if colon_sign and "=" not in name:
        if not name or not part:
            raise RequestError(f"'{text}' names no part of a run: write RUN:AXIS=VALUE")
        return name, part
    return (None, text) if "=" in text else (text, None)


def _exists(text: str) -> bool:
    # A name that no file system takes is none of a file.
    with contextlib.suppress(OSError, ValueError):
        return bool(text) and Path(text).exists()
    return False


def _is_file(name: str) -> bool:
    """Rather than a run: by its ending, also where it isn't there."""
    if name.lower().endswith(ENDINGS):
        return True
    with contextlib.suppress(OSError, ValueError):
        # A run's own file stands for the run.
        return Path(name).is_file() and Path(name).suffix != ".db"
    return False
