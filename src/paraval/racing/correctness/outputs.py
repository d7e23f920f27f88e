"""What a test command printed and wrote, held against what it did with the baseline, short enough
to keep.

Byte for byte, but for what is another in every run whatever the candidate: the folders that a run
has of its own, and what pytest says of times and of the report that we asked it for. JSON files
(`.json`) that say the same in another form are equal: the order of keys and white space are not
compared, while 1, 1.0 and true are three things.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from paraval.documents.json import parse_strictly
from paraval.racing.findings import RunDifference
from paraval.racing.request import ComparedOutput
from paraval.targets.answer import InvalidOutputError, open_plain_file, read_plain_file

# Text that candidates wrote, made short enough to keep, and the same wherever it was written.

LONGEST_MESSAGE = 4000
LONGEST_VALUE = 1000


def cut(text: str, most: int = LONGEST_MESSAGE) -> str:
    """The text, its middle left out where it has more characters than this."""
    if len(text) <= most:
        return text
    mark = f" [... {len(text) - most:,} characters ...] "
    half = max(1, (most - len(mark)) // 2)
    return f"{text[:half]}{mark}{text[-half:]}"


class RunFolders:
    """Folders that are others for every run of the same tests, and what is told in their place."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names`: an absolute folder -> what stands for it."""
        paths = {path: name for path, name in names.items() if path not in ("", "/")}
        # By what a link leads to, too: programs tell of a folder by either name.
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
"""What stands for the folder of an attempt."""
WORKTREE = "{worktree}"
"""What stands for the folder that a candidate is tested in."""

KEPT_BYTES = 16 << 20
"""Larger files are compared by their hash alone: where they differ is not told."""
LOG_BYTES = KEPT_BYTES + (1 << 20)
"""Of stdout: a log holds its end and what it says of the middle beyond its limit."""
HASHED_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20
_CONTEXT_LINES = 2
_LINES_TOLD = 6
_LONGEST_LINE = 200
_BEFORE_COLUMN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSnapshot:
    """What one of the compared things was after a run."""

    name: str
    """Of its Difference."""
    is_stdout: bool = False
    size: int = 0
    digest: str | None = None
    """None: there is nothing to compare; `problem` tells why."""
    content: bytes | None = None
    """None: too large, or kept in `file` ..."""
    file: str | None = None
    """... an absolute path."""
    problem: str | None = None

    @property
    def is_there(self) -> bool:
        return self.digest is not None

    def bytes_of(self) -> bytes | None:
        """All of it, where it is kept and still what it was."""
        if self.content is not None or self.file is None:
            return self.content
        try:
            content = read_plain_file(self.file, LOG_BYTES)
        except (InvalidOutputError, OSError):
            return None
        return content if _digest(content) == self.digest else None


# ---- looking; all of it blocks


def look_at_stdout(log: str, size: int, *, places: RunFolders, is_pytest: bool) -> OutputSnapshot:
    """`log`: where it was kept; `size`: how much came."""
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
    """`folder`: where the command ran, in the worktree at `top`."""
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
    """Where it is; InvalidOutputError where that is not in the worktree, links followed."""
    path = Path(folder, name)
    try:
        real = path.parent.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise InvalidOutputError(f"'{name}' cannot be looked for: {error}") from error
    if not real.is_relative_to(Path(top).resolve()):
        raise InvalidOutputError(f"'{name}' leads out of the worktree")
    return str(real / path.name)


def _why(error: Exception, places: RunFolders) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return places.hidden_in(said or str(error))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_SUMMARY = re.compile(
    rb"^(?:=+ )?(?P<said>(?:\d+ [a-z]+|no tests)[^\n]*?)"
    rb" in \d[\d.]*s(?: \([\d:, a-z]+\))?(?: =+)?$",
    re.MULTILINE,
)
_REPORT = re.compile(rb"^-+ generated xml file: [^\n]* -+\n", re.MULTILINE)


def without_times(said: bytes) -> bytes:
    """What pytest printed, without how long it took and without a word of the report."""
    return _SUMMARY.sub(rb"\g<said>", _REPORT.sub(b"", said))


# ---- comparing


def compared(baseline: OutputSnapshot, candidate: OutputSnapshot) -> RunDifference | None:
    """How they differ; None: they don't."""
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
        message = f"{baseline.size:,} bytes with the baseline, {candidate.size:,} with it"
        return replace(found, message=f"{message} (too large to tell where they differ)")
    if not candidate.is_stdout and _say_the_same(candidate.name, before, now):
        return None
    return _where(found, before, now)


def _say_the_same(name: str, before: bytes, now: bytes) -> bool:
    if PurePosixPath(name).suffix.lower() != ".json":
        return False
    try:
        return _canonical(before) == _canonical(now)
    except (ValueError, RecursionError):
        return False


def _canonical(content: bytes) -> str:
    return json.dumps(parse_strictly(content.decode()), sort_keys=True)


def _where(found: RunDifference, before: bytes, now: bytes) -> RunDifference:
    """The first line that differs, with some around it, as a patch would show it."""
    place = _first_difference(before, now)
    number = before.count(b"\n", 0, place)
    begin = before.rfind(b"\n", 0, place) + 1
    column = place - begin
    expected, actual = _lines_from(before, begin), _lines_from(now, begin)
    # From the end: of a large file, all lines before it would take ten times its memory.
    context = before[:begin].rsplit(b"\n", _CONTEXT_LINES + 1)[-1 - _CONTEXT_LINES : -1]
    message = "\n".join(
        (
            f"@@ line {number + 1} @@",
            *(f" {_shown(line, 0)}" for line in context),
            *(f"-{_shown(line, column)}" for line in expected[:_LINES_TOLD]),
            *(f"+{_shown(line, column)}" for line in actual[:_LINES_TOLD]),
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
    """The first few, without those that are the same on the other side further down."""
    end = begin
    for _ in range(_LINES_TOLD):
        end = content.find(b"\n", end) + 1
        if end == 0:
            end = len(content)
            break
    lines = content[begin:end].split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _shown(line: bytes, column: int) -> str:
    """A line, of a long one what is around this column."""
    begin = max(0, column - _BEFORE_COLUMN) if len(line) > _LONGEST_LINE else 0
    text = line[begin : begin + _LONGEST_LINE].decode(errors="replace")
    return ("..." if begin else "") + text + ("..." if len(line) > begin + _LONGEST_LINE else "")


def _value(lines: list[bytes], column: int) -> str:
    return cut(_shown(lines[0], column), LONGEST_VALUE) if lines else ""
