"""What a run of pytest told: each test's outcome by its JUnit file, the rest by its output."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_WARNINGS = re.compile(r"\b(\d+) warnings?\b")
_ALONE = re.compile(r" \(alone: (.+?)\)(?: +\[ *\d+%\])?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One run of a suite."""

    outcomes: dict[str, tuple[str, ...]]
    """By classname::name: passed, failed, error, or skipped and xfailed with their reasons. Several
    where ids are the same, or where a test failed and its teardown, too."""
    warnings: int
    alone: tuple[str, ...]
    """For each test that ran alone: why."""
    last_line: str
    seconds: float

    def counts(self) -> str:
        by_kind = Counter(
            one.partition(":")[0] for several in self.outcomes.values() for one in several
        )
        failed = by_kind["failed"] + by_kind["error"]
        return f"{by_kind['passed']}/{failed}/{by_kind['skipped'] + by_kind['xfailed']}"


def read(junit: Path, output: str, seconds: float) -> Told:
    last = next((line for line in reversed(output.splitlines()) if line.startswith("=")), "")
    warned = _WARNINGS.search(last)
    return Told(
        outcomes=_outcomes(junit),
        warnings=int(warned[1]) if warned else 0,
        alone=tuple(_ALONE.findall(output)),
        last_line=last.strip("= "),
        seconds=seconds,
    )


def differing(one: Told, other: Told) -> dict[str, str]:
    """What is not the same in two runs, in words: by test, and `warnings`."""
    found = {
        test: f"{_words(one, test)} -> {_words(other, test)}"
        for test in sorted({*one.outcomes, *other.outcomes})
        if one.outcomes.get(test) != other.outcomes.get(test)
    }
    if one.warnings != other.warnings:
        found["warnings"] = f"{one.warnings} -> {other.warnings}"
    return found


def _words(told: Told, test: str) -> str:
    return " and ".join(told.outcomes.get(test, ("not there",)))


def _outcomes(junit: Path) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for case in ET.parse(junit).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        several = found.setdefault(name, [])
        several.extend(_outcome(child) for child in case if child.tag in _KINDS)
        if not any(child.tag in _KINDS for child in case):
            several.append("passed")
    return {name: tuple(sorted(several)) for name, several in found.items()}


_KINDS = ("failure", "error", "skipped")


def _outcome(child: ET.Element) -> str:
    if child.tag == "skipped":
        kind = "xfailed" if child.get("type") == "pytest.xfail" else "skipped"
        return f"{kind}: {child.get('message')}"
    return "failed" if child.tag == "failure" else "error"
