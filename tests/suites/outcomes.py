"""The result of one run of pytest, by its JUnit file and its output."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COSTS = "wall: {:.2f} s, cpu: {:.2f} s"
"""The last line of a run's output."""
HUNG = "hung: killed"
_COSTS = re.compile(r"^wall: ([\d.]+) s, cpu: ([\d.]+) s$", re.MULTILINE)
_VARIES = re.compile(r"/\S*?/pytest-of-\w+/pytest-\w+(/popen-gw\d+)?|(\.\./)+|0x[0-9a-fA-F]+|\d+")
"""The base folder of temporary files, the way up from there, addresses and numbers."""
_KINDS = ("failure", "error", "skipped")
Tests = Mapping[str, tuple[str, ...]]
"""By classname::name; several entries where ids are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a suite."""

    outcomes: Tests
    """passed, failed, error, skipped or xfailed; two where a test failed and its teardown, too.
    Empty if pytest did not finish."""
    output: Tests
    """What was captured: its lines, sorted, without what varies."""
    ended: str
    """pytest's last line, or why there is none."""
    wall_s: float
    cpu_s: float
    """Of pytest and of all processes that it waited for."""

    @property
    def tests(self) -> int:
        return sum(map(len, self.outcomes.values()))

    def counts(self) -> str:
        kinds = Counter(kind for several in self.outcomes.values() for kind in several)
        skipped = kinds["skipped"] + kinds["xfailed"]
        return f"{kinds['passed']}/{kinds['failed'] + kinds['error']}/{skipped}"


def read(junit: Path, output: Path) -> Run:
    text = output.read_text(errors="replace")
    cases = [*ET.parse(junit).iter("testcase")] if junit.exists() else []
    wall_s, cpu_s = map(float, _COSTS.findall(text)[-1])
    return Run(
        outcomes=_by_test(cases, _outcomes),
        output=_by_test(cases, _output),
        ended=_how_it_ended(text, is_complete=bool(cases)),
        wall_s=wall_s,
        cpu_s=cpu_s,
    )


def unstable(plain: Sequence[Run]) -> set[str]:
    """Tests that do not end the same in all plain runs."""
    tests = {test for run in plain for test in run.outcomes}
    return {test for test in tests if len({run.outcomes.get(test) for run in plain}) > 1}


def differences(plain: Sequence[Run], other: Run) -> dict[str, str]:
    """Stable tests that end in another way, in words."""
    expected = plain[0].outcomes
    return {
        test: f"{_words(expected, test)} -> {_words(other.outcomes, test)}"
        for test in sorted({*expected, *other.outcomes} - unstable(plain))
        if expected.get(test) != other.outcomes.get(test)
    }


def output_differences(plain: Sequence[Run], other: Run) -> list[str]:
    """Tests whose outcome is the same, and whose output is that of no plain run, though all plain
    runs agree."""
    return [
        test
        for test, expected in plain[0].output.items()
        if all(run.output.get(test) == expected for run in plain)
        and other.output.get(test) != expected
        and other.outcomes.get(test) == plain[0].outcomes[test]
    ]


def _words(outcomes: Tests, test: str) -> str:
    return " and ".join(outcomes.get(test, ("missing",)))


def _how_it_ended(text: str, *, is_complete: bool) -> str:
    lines = [line.strip("= ") for line in text.splitlines() if line.startswith(("=", HUNG))]
    if not is_complete or not lines or lines[-1].startswith(HUNG):
        return HUNG if lines and lines[-1].startswith(HUNG) else "did not finish"
    return f"{'INTERNALERROR, ' * ('INTERNALERROR>' in text)}{lines[-1]}"


def _by_test(cases: Sequence[ET.Element], read_case: Callable[[ET.Element], list[str]]) -> Tests:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for case in cases:
        found[f"{case.get('classname')}::{case.get('name')}"].extend(read_case(case))
    return {name: tuple(sorted(several)) for name, several in found.items()}


def _outcomes(case: ET.Element) -> list[str]:
    return [_kind(child) for child in case if child.tag in _KINDS] or ["passed"]


def _kind(child: ET.Element) -> str:
    if child.tag == "skipped":
        return "xfailed" if child.get("type") == "pytest.xfail" else "skipped"
    return "failed" if child.tag == "failure" else "error"


def _output(case: ET.Element) -> list[str]:
    texts = (child.text or "" for child in case if child.tag in ("system-out", "system-err"))
    return [_VARIES.sub("0", line) for text in texts for line in text.splitlines()]
