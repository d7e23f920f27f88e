"""Reads JUnit reports, as written by pytest and many other test programs.

Hostile files are harmless: their size is limited, and document types and entities are refused. A
truncated report is read up to the break. `differences` compares the results.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from xml.parsers import expat

from paraval.dataclass import dataclass
from paraval.racing.correctness.outputs import FOLDER, NOWHERE, WORKTREE, RunFolders, cut
from paraval.racing.findings import TestCounts, TestStatus
from paraval.targets.answer import InvalidOutputError, open_plain_file

LARGEST_BYTES = 32 << 20
MOST_TESTS = 100_000
LONGEST_ID = 500
LONGEST_DETAILS = 20_000
_PIECE_BYTES = 1 << 20
_NOT_COLLECTED = "collection failure"
"""pytest's message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleTest:
    """One test of a report."""

    id: str
    """`tests/test_a.py::TestX::test_y[1]`; unique in its report."""
    status: TestStatus
    """Never MISSING."""
    message: str = ""
    """A short reason why it did not pass."""
    details: str = ""
    """The full reason: a traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JunitReport:
    """The tests of a report, in its order."""

    tests: tuple[SingleTest, ...] = ()
    problem: str | None = None
    """Why it is incomplete; None if it is complete."""

    @property
    def counts(self) -> TestCounts:
        found = Counter(test.status for test in self.tests)
        return TestCounts(
            passed=found[TestStatus.PASSED],
            failed=found[TestStatus.FAILED],
            errors=found[TestStatus.ERROR],
            skipped=found[TestStatus.SKIPPED],
        )


def read_junit_file(path: str, places: RunFolders = NOWHERE) -> JunitReport:
    """Read a report; one that cannot be read has only a `problem`."""
    if _is_ours(path, places) and not os.path.lexists(path):
        return JunitReport(problem="pytest wrote no test report")
    try:
        descriptor = open_plain_file(path)
    except InvalidOutputError as error:
        return JunitReport(problem=places.hidden_in(str(error)))
    try:
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        return JunitReport(problem=f"'{places.hidden_in(path)}' cannot be read: {error.strerror}")
    return read_junit(data, places)


def _is_ours(path: str, places: RunFolders) -> bool:
    """Whether it is in an attempt's own folder, where only pytest is asked to write a report."""
    return places.hidden_in(path).startswith(f"{FOLDER}/")


def read_junit(data: bytes, places: RunFolders = NOWHERE) -> JunitReport:
    """Parse a report as far as it is readable, with `places` replaced."""
    reading = _JunitParser(places)
    problem = reading.read(data[:LARGEST_BYTES])
    if len(data) > LARGEST_BYTES:
        problem = f"it is larger than {LARGEST_BYTES >> 20} MB"
    return JunitReport(tests=tuple(reading.tests), problem=problem)


class _RefusedError(ValueError):
    """The report contains something that no real one has."""


@dataclass(slots=True, kw_only=True)
class _OpenTest:
    """A test whose element is being read."""

    attributes: Mapping[str, str]
    status: TestStatus
    message: str = ""
    details: list[str] = field(default_factory=list)


_STATUS_OF_ELEMENT = {
    "failure": TestStatus.FAILED,
    "error": TestStatus.ERROR,
    "skipped": TestStatus.SKIPPED,
}
"""Also for xfail, which pytest writes as `skipped`."""
_STATUS_OF_ATTRIBUTE = {
    "failed": TestStatus.FAILED,
    "failure": TestStatus.FAILED,
    "error": TestStatus.ERROR,
    "errored": TestStatus.ERROR,
    "notrun": TestStatus.SKIPPED,
    "skipped": TestStatus.SKIPPED,
    "disabled": TestStatus.SKIPPED,
}
"""For programs that report it there: googletest, some in JavaScript."""
_GRAVITY = (TestStatus.PASSED, TestStatus.SKIPPED, TestStatus.FAILED, TestStatus.ERROR)


class _JunitParser:
    """Parses one report."""

    def __init__(self, places: RunFolders) -> None:
        self.tests: list[SingleTest] = []
        self._places = places
        self._seen: Counter[str] = Counter()
        self._test: _OpenTest | None = None
        self._element: str | None = None
        """The element within the test whose text is its details."""

    def read(self, data: bytes) -> str | None:
        """Parse the data; return what stopped it, or None."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        # No report needs them, and attacks are made of them.
        parser.StartDoctypeDeclHandler = _refuse_doctype
        try:
            for begin in range(0, len(data), _PIECE_BYTES):
                parser.Parse(data[begin : begin + _PIECE_BYTES], False)
            parser.Parse(b"", True)
        except (expat.ExpatError, _RefusedError, LookupError, ValueError) as error:
            return f"it is not a complete JUnit report: {error}"
        return None

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(":")[2]
        if name == "testcase":
            told = [attributes.get(name, "").lower() for name in ("status", "result")]
            statuses = [_STATUS_OF_ATTRIBUTE.get(word, TestStatus.PASSED) for word in told]
            self._test = _OpenTest(attributes=attributes, status=max(statuses, key=_GRAVITY.index))
        elif self._test is not None and name in _STATUS_OF_ELEMENT:
            test, status = self._test, _STATUS_OF_ELEMENT[name]
            self._element = name
            if _GRAVITY.index(status) > _GRAVITY.index(test.status):
                test.status = status
                test.message = ""
                test.details = []
            # Of several (one for each subtest), the first counts.
            if not test.message:
                test.message = attributes.get("message") or attributes.get("type") or ""

    def _end(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        if name == "testcase" and self._test is not None:
            self._add(self._test)
            self._test = None
        elif name == self._element:
            self._element = None

    def _text(self, text: str) -> None:
        if self._test is not None and self._element is not None:
            self._test.details.append(text)

    def _add(self, test: _OpenTest) -> None:
        if len(self.tests) >= MOST_TESTS:
            raise _RefusedError(f"it lists more than {MOST_TESTS:,} tests")
        hidden, details = self._places.hidden_in, "".join(test.details)
        name = _bounded_id(hidden(_id_of(test.attributes)).removeprefix(f"{WORKTREE}/"))
        self._seen[name] += 1
        if self._seen[name] > 1:
            name = f"{name} #{self._seen[name]}"
        self.tests.append(
            SingleTest(
                id=name,
                status=test.status,
                message=cut(hidden(_with_cause(test.message, details))),
                details=cut(hidden(details), LONGEST_DETAILS),
            )
        )


def _refuse_doctype(*_: object) -> None:
    raise _RefusedError("it has a DOCTYPE")


def _with_cause(message: str, details: str) -> str:
    """For a file that pytest cannot import, add the error, which the message lacks."""
    if message != _NOT_COLLECTED:
        return message
    # The last line that pytest marks as part of the error.
    errors = [line[1:].strip() for line in details.splitlines() if line.startswith("E ")]
    return f"{message}: {errors[-1]}" if errors and errors[-1] else message


def _id_of(attributes: Mapping[str, str]) -> str:
    name = attributes.get("name", "")
    classname = attributes.get("classname", "")
    file = attributes.get("file", "")
    # pytest's: `tests.test_a.TestX`, where the file is `tests/test_a.py`.
    module = file.removesuffix(".py").replace("/", ".")
    if file.endswith(".py") and module in classname:
        classes = classname.rpartition(module)[2].strip(".").split(".")
        parts = (file, *classes, name)
    elif file.endswith(".py") and not classname and name == module:
        # A file that pytest could not import.
        parts = (file,)
    elif not name and classname:
        parts = (file, classname)
    elif file == classname:
        parts = (file, name)
    else:
        parts = (file, classname, name)
    return "::".join(part for part in parts if part) or "(unnamed test)"


def _bounded_id(name: str) -> str:
    if len(name) <= LONGEST_ID:
        return name
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:12]
    return f"{name[:LONGEST_ID]}...{digest}"
