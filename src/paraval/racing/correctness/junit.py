"""Reads JUnit reports, as written by pytest and many other test programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from paraval.dataclass import dataclass
from paraval.racing.findings import TestCounts, TestStatus
from paraval.targets.answer import InvalidOutputError, read_plain_file
from paraval.text.terminal import well_formed

LARGEST_BYTES = 32 << 20
MOST_TESTS = 100_000
LONGEST_ID = 500
LONGEST_MESSAGE = 4000
_STATUSES = {
    "error": TestStatus.ERROR,
    "failure": TestStatus.FAILED,
    "skipped": TestStatus.SKIPPED,
}
"""By element, the gravest first. Also for xfail, which pytest writes as `skipped`."""
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
    """Why it did not pass, as the test program says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JunitReport:
    """The tests of a report, in its order."""

    tests: tuple[SingleTest, ...] = ()
    problem: str | None = None
    """Why it cannot be used; None if it can."""

    @property
    def counts(self) -> TestCounts:
        found = Counter(test.status for test in self.tests)
        return TestCounts(
            passed=found[TestStatus.PASSED],
            failed=found[TestStatus.FAILED],
            errors=found[TestStatus.ERROR],
            skipped=found[TestStatus.SKIPPED],
        )


def read_junit(path: str, folders: Mapping[str, str]) -> JunitReport:
    """Read a report; `folders`: those that differ in every run, and what is shown instead."""
    try:
        data = read_plain_file(path, LARGEST_BYTES)
        # Attacks are made of it.
        root = None if b"<!DOCTYPE" in data[:1000] else ET.fromstring(data)  # noqa: S314 - see above
    except (InvalidOutputError, LookupError, OSError, ET.ParseError, ValueError) as error:
        return JunitReport(problem=f"its JUnit report cannot be read: {error}")
    cases = [] if root is None else [*root.iter("testcase")]
    if len(cases) > MOST_TESTS:
        return JunitReport(problem=f"its JUnit report has more than {MOST_TESTS:,} tests")
    seen = Counter[str]()
    tests = []
    for case in cases:
        name = without_folders(_id_of(case.attrib), folders)[:LONGEST_ID]
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name} #{seen[name]}"
        status, message = _result_of(case)
        message = cut(without_folders(message, folders))
        tests.append(SingleTest(id=name, status=status, message=message))
    return JunitReport(tests=tuple(tests))


def _result_of(case: ET.Element) -> tuple[TestStatus, str]:
    for tag, status in _STATUSES.items():
        # Of several (one for each subtest), the first counts.
        if (found := case.find(tag)) is not None:
            message, details = found.get("message", ""), (found.text or "").strip()
            if message == _NOT_COLLECTED:
                errors = [line[1:].strip() for line in details.splitlines() if line[:2] == "E "]
                message = f"{message}: {errors[-1]}" if errors else message
            is_repeated = not details or details in message
            return status, message if is_repeated else f"{message}\n\n{details}".strip()
    return TestStatus.PASSED, ""


def _id_of(attributes: Mapping[str, str]) -> str:
    name, classname = attributes.get("name", ""), attributes.get("classname", "")
    file = attributes.get("file", "")
    # pytest's: `tests.test_a.TestX`, where the file is `tests/test_a.py`.
    module = file.removesuffix(".py").replace("/", ".")
    if file.endswith(".py") and module in classname:
        parts = [file, *classname.rpartition(module)[2].strip(".").split("."), name]
    elif file.endswith(".py") and not classname and name == module:
        parts = [file]  # pytest could not import it.
    else:
        parts = [file, "" if classname == file else classname, name]
    return "::".join(part for part in parts if part) or "(unnamed test)"


# ---- text of a run


def without_folders(text: str, folders: Mapping[str, str]) -> str:
    for folder, shown in folders.items():
        text = text.replace(folder, shown)
    return text


def cut(text: str, most: int = LONGEST_MESSAGE) -> str:
    """The text, with its middle removed if it is longer than `most`."""
    text = well_formed(text)
    if len(text) <= most:
        return text
    half = most // 2 - 20
    return f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"
