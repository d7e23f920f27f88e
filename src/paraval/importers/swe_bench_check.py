"""Runs the tests of a SWE-bench instance, and checks those that it names.

`paraval import swe-bench` copies this file beside the suite, and runs put it into the workspace as
a hidden file: it needs nothing but Python 3.7. It gets the trial as JSON on stdin. Arguments: the
shell command that runs the tests and, in check.yaml, which solution was applied: with `empty`, the
tests must fail.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

PASSED = frozenset({"PASSED", "XFAIL", "ok", "expected failure"})
"""SWE-bench counts expected failures as passed, too."""
FAILED_TO_START = (126, 127)
SHOWN = 3
_PYTEST = re.compile(r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (.+)")
_UNITTEST = re.compile(r"(.+) \.\.\. (ok|FAIL|ERROR|expected failure|skipped.*)$")
_SYMPY = re.compile(r"(test_\w+) +(ok|F|E|X|f|s)\b")


def statuses(output: str) -> dict[str, str]:
    """The status of each test in the output of `pytest -rA`, a verbose unittest, or sympy.

    SWE-bench ends a pytest id at its first space: such an id stands for the last that starts so.
    """
    found: dict[str, str] = {}
    cut: dict[str, str] = {}
    for line in map(str.strip, output.splitlines()):
        pytest = _PYTEST.match(line)
        other = None if pytest else _UNITTEST.match(line) or _SYMPY.match(line)
        if pytest:
            name = pytest[2].split(" - ")[0] if pytest[1] in ("FAILED", "ERROR") else pytest[2]
            found[name] = pytest[1]
            cut[name.split()[0]] = pytest[1]
        elif other:
            found[other[1]] = other[2]
    return {**cut, **found}


def verdict(expect: dict[str, list[str]], found: dict[str, str]) -> tuple[bool, str]:
    """Whether every named test passed, and a sentence about it."""
    parts = []
    is_resolved = True
    for kind, names in expect.items():
        failed = [name for name in names if found.get(name) not in PASSED]
        is_resolved = is_resolved and not failed
        part = f"{len(names) - len(failed)} of {len(names)} {kind} passed"
        if failed:
            more = ", ..." if len(failed) > SHOWN else ""
            told = (f"{name} ({found.get(name, 'not run')})" for name in failed[:SHOWN])
            part += f" (not: {', '.join(told)}{more})"
        parts.append(part)
    return is_resolved, "; ".join(parts)


def main() -> int:
    trial: dict[str, Any] = json.load(sys.stdin)
    command, solution = sys.argv[1], "".join(sys.argv[2:3])
    ended = subprocess.run(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    output = ended.stdout.decode(errors="replace")
    print(output)
    found = statuses(output)
    if not found and (ended.returncode in FAILED_TO_START or "No module named pytest" in output):
        print(f"the tests could not be started: {command}", file=sys.stderr)
        return 2
    is_resolved, reason = verdict(trial["case"]["expect"], found)
    passed = is_resolved is not (solution == "empty")
    if solution == "empty":
        are = "pass, so they do not test it" if is_resolved else "fail, as they must"
        reason = f"without a solution, the tests {are}: {reason}"
    print(json.dumps({"score": float(passed), "reason": reason}))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
