"""Compares what a test command printed and wrote with the baseline's.

Byte for byte, except what differs in every run: the run's own folders, and pytest's lines on times
and on the report that we requested. JSON files (`.json`) with the same content are equal: key order
and white space are ignored, but 1, 1.0 and true are different.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.racing.findings import RunDifference
from paraval.racing.request import ComparedOutput
from paraval.targets.answer import InvalidOutputError, open_plain_file, read_plain_file

# Text from candidates, shortened for storage, with run-specific folders replaced.

LONGEST_MESSAGE = 4000
LONGEST_VALUE = 1000


def cut(text: str, most: int = LONGEST_MESSAGE) -> str:
    """The text, with its middle removed if it is longer than `most`."""
    if len(text) <= most:
        return text
    mark = f" [... {len(text) - most:,} characters ...] "
    half = max(1, (most - len(mark)) // 2)
    return f"{text[:half]}{mark}{text[-half:]}"


class RunFolders:
    """Folders that differ in every run, and their placeholders."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names`: an absolute folder -> its placeholder."""
        paths = {path: name for path, name in names.items() if path not in ("", "/")}
        # Link targets too: programs print a folder by either name.
        paths |= {os.path.realpath(path): name for path, name in paths.items()}
        longest_first = sorted(paths.items(), key=lambda item: len(item[0]), reverse=True)
        self._text = tuple(longest_first)
        self._bytes = tuple((os.fsencode(path), name.encode()) for path, name in longest_first)

    def hidden_in(self, text: str) -> str:
        for path, name in self._text:
            text = text.replace(path, name)
        return text

    def hidden_in_bytes(self, data: bytes) -> bytes:
        for path, name in self._bytes:
            data = data.replace(path, name)
        return data


NOWHERE = RunFolders({})
FOLDER = "{folder}"
"""Placeholder for the folder of an attempt."""
WORKTREE = "{worktree}"
"""Placeholder for the worktree that a candidate is tested in."""

KEPT_BYTES = 16 << 20
"""Larger files are compared only by hash, without showing where they differ."""
LOG_BYTES = KEPT_BYTES + (1 << 20)
"""Limit for stdout: beyond its own limit, a log adds the end and a note on the gap."""
HASHED_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20
_CONTEXT_LINES = 2
_MOST_LINES = 6
_LONGEST_LINE = 200
_BEFORE_COLUMN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSnapshot:
    """One compared output after a run."""

    name: str
    """The name that its difference gets."""
    is_stdout: bool = False
    size: int = 0
    digest: str | None = None
    """None if there is nothing to compare; then `problem` is the reason."""
    content: bytes | None = None
    """None if it is too large, or saved in `file` ..."""
    file: str | None = None
    """... an absolute path."""
    problem: str | None = None

    @property
    def is_there(self) -> bool:
        return self.digest is not None

    def bytes_of(self) -> bytes | None:
        """The whole content, if it is available and unchanged."""
        if self.content is not None or self.file is None:
            return self.content
        try:
            content = read_plain_file(self.file, LOG_BYTES)
        except (InvalidOutputError, OSError):
            return None
        return content if _digest(content) == self.digest else None


# ---- reading; all of it blocks


def look_at_stdout(log: str, size: int, *, places: RunFolders, is_pytest: bool) -> OutputSnapshot:
    """Read stdout from its log; `size`: the bytes printed."""
    name = ComparedOutput().name
    content = b""
    if size:
        try:
            content = read_plain_file(log, LOG_BYTES)
        except (InvalidOutputError, OSError) as error:
            return OutputSnapshot(name=name, is_stdout=True, problem=_why(error, places))
    content = places.hidden_in_bytes(content)
    if is_pytest:
        content = without_times(content)
    return OutputSnapshot(
        name=name, is_stdout=True, size=size, digest=_digest(content), content=content
    )


def look_at_file(name: str, folder: str, top: str, places: RunFolders = NOWHERE) -> OutputSnapshot:
    """Read a file; `folder`: where the command ran, in the worktree at `top`."""
    try:
        path = path_within(name, folder, top)
        descriptor = open_plain_file(path)
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            if size > HASHED_BYTES:
                return OutputSnapshot(name=name, size=size, problem=f"'{name}' has {size:,} bytes")
            if size > KEPT_BYTES:
                digest = hashlib.sha256()
                while piece := file.read(_PIECE_BYTES):
                    digest.update(piece)
                return OutputSnapshot(name=name, size=size, digest=digest.hexdigest())
            content = places.hidden_in_bytes(file.read(KEPT_BYTES))
    except (InvalidOutputError, OSError) as error:
        return OutputSnapshot(name=name, problem=_why(error, places))
    return OutputSnapshot(name=name, size=len(content), digest=_digest(content), content=content)


def path_within(name: str, folder: str, top: str) -> str:
    """The path with links resolved. InvalidOutputError if it is outside the worktree."""
    path = Path(folder, name)
    try:
        real = path.parent.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidOutputError(f"cannot look for '{name}': {error}") from error
    if not real.is_relative_to(Path(top).resolve()):
        raise InvalidOutputError(f"'{name}' is outside the worktree")
    return str(real / path.name)


def _why(error: Exception, places: RunFolders) -> str:
    message = error.strerror if isinstance(error, OSError) else None
    return places.hidden_in(message or str(error))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_SUMMARY = re.compile(
    rb"^(?:=+ )?(?P<counts>(?:\d+ [a-z]+|no tests)[^\n]*?)"
    rb" in \d[\d.]*s(?: \([\d:, a-z]+\))?(?: =+)?$",
    re.MULTILINE,
)
_REPORT = re.compile(rb"^-+ generated xml file: [^\n]* -+\n", re.MULTILINE)


def without_times(printed: bytes) -> bytes:
    """What pytest printed, without durations and without the line on the report."""
    return _SUMMARY.sub(rb"\g<counts>", _REPORT.sub(b"", printed))


# ---- comparing


def compared(baseline: OutputSnapshot, candidate: OutputSnapshot) -> RunDifference | None:
    """How they differ; None if they are equal."""
    if baseline.digest == candidate.digest:
        return None
    scope = "stdout" if candidate.is_stdout else "file"
    found = RunDifference(scope=scope, name=candidate.name, status="different", baseline="there")
    if not candidate.is_there:
        return replace(found, status="missing", message=candidate.problem or "")
    if not baseline.is_there:
        return replace(found, baseline="missing", message="the baseline has none")
    before, now = baseline.bytes_of(), candidate.bytes_of()
    if before is None or now is None:
        message = f"{baseline.size:,} bytes with the baseline, {candidate.size:,} now"
        return replace(found, message=f"{message} (too large to show where they differ)")
    if not candidate.is_stdout and _have_same_content(candidate.name, before, now):
        return None
    return _where(found, before, now)


def _have_same_content(name: str, before: bytes, now: bytes) -> bool:
    if PurePosixPath(name).suffix.lower() != ".json":
        return False
    try:
        return _canonical(before) == _canonical(now)
    except (ValueError, RecursionError):
        return False


def _canonical(content: bytes) -> str:
    return json.dumps(parse_strictly(content.decode()), sort_keys=True)


def _where(found: RunDifference, before: bytes, now: bytes) -> RunDifference:
    """The first differing lines with some context, as in a patch."""
    place = _first_difference(before, now)
    number = before.count(b"\n", 0, place)
    begin = before.rfind(b"\n", 0, place) + 1
    column = place - begin
    expected, actual = _lines_from(before, begin), _lines_from(now, begin)
    # From the end: splitting a whole large file would take ten times its memory.
    context = before[:begin].rsplit(b"\n", _CONTEXT_LINES + 1)[-1 - _CONTEXT_LINES : -1]
    message = "\n".join(
        (
            f"@@ line {number + 1} @@",
            *(f" {_shown(line, 0)}" for line in context),
            *(f"-{_shown(line, column)}" for line in expected[:_MOST_LINES]),
            *(f"+{_shown(line, column)}" for line in actual[:_MOST_LINES]),
        )
    )
    return replace(
        found,
        message=cut(message),
        expected=_value(expected, column),
        actual=_value(actual, column),
    )


def _first_difference(before: bytes, now: bytes) -> int:
    for begin in range(0, max(len(before), len(now)), _PIECE_BYTES):
        one, other = (data[begin : begin + _PIECE_BYTES] for data in (before, now))
        if one != other:
            pairs = zip(one, other, strict=False)
            alike = min(len(one), len(other))
            return begin + next((i for i, (a, b) in enumerate(pairs) if a != b), alike)
    return len(before)


def _lines_from(content: bytes, begin: int) -> list[bytes]:
    """The first few lines."""
    end = begin
    for _ in range(_MOST_LINES):
        end = content.find(b"\n", end) + 1
        if end == 0:
            end = len(content)
            break
    lines = content[begin:end].split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _shown(line: bytes, column: int) -> str:
    """A line; of a long one, the part around `column`."""
    begin = max(0, column - _BEFORE_COLUMN) if len(line) > _LONGEST_LINE else 0
    text = line[begin : begin + _LONGEST_LINE].decode(errors="replace")
    return ("..." if begin else "") + text + ("..." if len(line) > begin + _LONGEST_LINE else "")


def _value(lines: list[bytes], column: int) -> str:
    return cut(_shown(lines[0], column), LONGEST_VALUE) if lines else ""
