"""The result of one run of pytest, by its JUnit file and its output."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ALONE = re.compile(r" \(exclusive: ", re.MULTILINE)
_SUMMARY = re.compile(r"\b\d+ concurrent, (\d+) exclusive\b")
_SECONDS = re.compile(r"^wall: ([\d.]+) s$", re.MULTILINE)
_KINDS = ("failure", "error", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a suite."""

    outcomes: dict[str, tuple[str, ...]]
    """By classname::name: passed, failed, error, skipped or xfailed. Several where ids are the
    same, or where a test failed and its teardown, too. Empty if pytest did not finish."""
    alone: int
    last_line: str
    seconds: float

    @property
    def tests(self) -> int:
        return sum(map(len, self.outcomes.values()))

    def counts(self) -> str:
        kinds = Counter(kind for several in self.outcomes.values() for kind in several)
        skipped = kinds["skipped"] + kinds["xfailed"]
        return f"{kinds['passed']}/{kinds['failed'] + kinds['error']}/{skipped}"


def read(junit: Path, output: Path) -> Run:
    text = output.read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("=")]
    seconds = _SECONDS.findall(text)
    summary = _SUMMARY.findall(text)
    return Run(
        outcomes=_outcomes(junit) if junit.exists() else {},
        alone=int(summary[-1]) if summary else len(_ALONE.findall(text)),
        last_line=lines[-1].strip("= ")
        if lines and junit.exists()
        else f"did not finish: {output}",
        seconds=float(seconds[-1]) if seconds else 0.0,
    )


def unstable(plain: Sequence[Run]) -> set[str]:
    """Tests that do not end the same in all plain runs."""
    tests = {test for run in plain for test in run.outcomes}
    return {test for test in tests if len({run.outcomes.get(test) for run in plain}) > 1}


def differences(plain: Sequence[Run], parallel: Run) -> dict[str, str]:
    """Stable tests that end in another way in parallel, in words."""
    expected = plain[0].outcomes
    return {
        test: f"{_words(expected, test)} -> {_words(parallel.outcomes, test)}"
        for test in sorted({*expected, *parallel.outcomes} - unstable(plain))
        if expected.get(test) != parallel.outcomes.get(test)
    }


def lost(plain: Sequence[Run], parallel: Run) -> dict[str, str]:
    """Those differences where a test passed in plain: now skipped, failed, error or missing."""
    found = differences(plain, parallel)
    return {t: words for t, words in found.items() if "passed" in plain[0].outcomes.get(t, ())}


def _words(outcomes: dict[str, tuple[str, ...]], test: str) -> str:
    return " and ".join(outcomes.get(test, ("missing",)))


def _outcomes(junit: Path) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for case in ET.parse(junit).iter("testcase"):
        several = found.setdefault(f"{case.get('classname')}::{case.get('name')}", [])
        several.extend([_kind(child) for child in case if child.tag in _KINDS] or ["passed"])
    return {name: tuple(sorted(several)) for name, several in found.items()}


def _kind(child: ET.Element) -> str:
    if child.tag == "skipped":
        return "xfailed" if child.get("type") == "pytest.xfail" else "skipped"
    return "failed" if child.tag == "failure" else "error"
