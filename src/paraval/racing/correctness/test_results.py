"""The record of a test run. The baseline's are saved, and candidates are compared with them.

They are files, so that a resumed race compares with the same results.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.racing.correctness.junit_results import JunitReport, SingleTest
from paraval.racing.correctness.outputs import OutputSnapshot, compared
from paraval.racing.findings import TestCounts, TestStatus
from paraval.targets.answer import InvalidOutputError, read_plain_file

ACCOUNT = "tests.json"
"""The artifact's file name."""
LARGEST_BYTES = 256 << 20
"""Limit for the file; a report is smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRunRecord:
    """One run of the test command."""

    exit_code: int | None
    """None if it was stopped: then missing tests and outputs mean nothing."""
    report: JunitReport | None = None
    """None if it reports no individual tests."""
    looks: tuple[OutputSnapshot, ...] = ()
    """The compared outputs, in the request's order."""
    flags: tuple[str, ...] = ()
    """Forbidden changes that it made; a candidate that makes the same ones is excused."""

    @property
    def reports_tests(self) -> bool:
        return self.report is not None and bool(self.report.tests)

    @property
    def counts(self) -> TestCounts | None:
        return self.report.counts if self.report is not None and self.report.tests else None

    @property
    def tests(self) -> tuple[SingleTest, ...]:
        return () if self.report is None else self.report.tests


def unstable_between(one: CommandRunRecord, other: CommandRunRecord) -> tuple[str, ...]:
    """What differs between two runs of the same code, by difference name."""
    before = {test.id: test.status for test in one.tests}
    after = {test.id: test.status for test in other.tests}
    ids = [*before, *(name for name in after if name not in before)]
    tests = [name for name in ids if _kind(before.get(name)) is not _kind(after.get(name))]
    pairs = zip(one.looks, other.looks, strict=False)
    return (*tests, *(look.name for look, again in pairs if compared(look, again) is not None))


def _kind(status: TestStatus | None) -> TestStatus | None:
    """The status, with failures and errors treated alike."""
    return TestStatus.FAILED if status is TestStatus.ERROR else status


# ---- as files; all of it blocks


def save_account(account: CommandRunRecord, folder: str) -> tuple[CommandRunRecord, dict[str, str]]:
    """Save a record to an attempt's folder; return it with file paths, and the artifacts."""
    artifacts: dict[str, str] = {}
    looks = []
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - text
    for number, look in enumerate(account.looks, 1):
        if look.content is None:
            looks.append(look)
            continue
        name = f"compared.{number}"
        path = os.path.join(folder, name)  # noqa: PTH118 - text
        _write(path, look.content)
        artifacts[name] = path
        looks.append(replace(look, content=None, file=path))
    saved = replace(account, looks=tuple(looks))
    artifacts[ACCOUNT] = os.path.join(folder, ACCOUNT)  # noqa: PTH118 - text
    _write(artifacts[ACCOUNT], json.dumps(_as_data(saved)).encode())
    return saved, artifacts


def load_account(path: Path) -> CommandRunRecord | None:
    """Load a record; None if it is missing or unreadable."""
    try:
        return _from_data(json.loads(read_plain_file(str(path), LARGEST_BYTES)), path.parent)
    except (InvalidOutputError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _write(path: str, content: bytes) -> None:
    # Remove links that the attempt's own processes may have put there.
    Path(path).unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(content)


def _as_data(account: CommandRunRecord) -> dict[str, Any]:
    report = account.report
    return {
        "schema": 1,
        "exit_code": account.exit_code,
        "tests": None if report is None else [_test_data(test) for test in report.tests],
        "problem": None if report is None else report.problem,
        "compared": [
            {
                "name": look.name,
                "is_stdout": look.is_stdout,
                "size": look.size,
                "sha256": look.digest,
                "file": None if look.file is None else Path(look.file).name,
                "problem": look.problem,
            }
            for look in account.looks
        ],
        "flags": account.flags,
    }


def _test_data(test: SingleTest) -> dict[str, str]:
    data = {"id": test.id, "status": test.status.value}
    return data if not test.message else {**data, "message": test.message}


def _from_data(data: dict[str, Any], folder: Path) -> CommandRunRecord:
    report = None
    if data["tests"] is not None:
        tests = (
            SingleTest(
                id=one["id"], status=TestStatus(one["status"]), message=one.get("message", "")
            )
            for one in data["tests"]
        )
        report = JunitReport(tests=tuple(tests), problem=data["problem"])
    looks = (
        OutputSnapshot(
            name=one["name"],
            is_stdout=one["is_stdout"],
            size=one["size"],
            digest=one["sha256"],
            file=None if one["file"] is None else str(folder / Path(one["file"]).name),
            problem=one["problem"],
        )
        for one in data["compared"]
    )
    return CommandRunRecord(
        exit_code=data["exit_code"],
        report=report,
        looks=tuple(looks),
        flags=tuple(data["flags"]),
    )
