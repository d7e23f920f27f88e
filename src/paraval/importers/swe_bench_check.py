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
from pathlib import Path
from typing import Any

PASSED = frozenset({"PASSED", "XFAIL", "ok", "expected failure"})
"""SWE-bench counts expected failures as passed, too."""
FAILED_TO_START = (126, 127)
STARTED = (
    "test session starts",
    "while loading conftest",
    "test process starts",
    "System check identified",
    "no tests ran",
)
"""Printed by pytest, sympy and django's runner once they have started."""
SHOWN = 3
_PYTEST = re.compile(r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (.+)")
_UNITTEST = re.compile(r"(.+) \.\.\. (ok|FAIL|ERROR|expected failure|skipped.*)$")
_FAILURE = re.compile(r"\b(FAIL(ED|URES?)?|ERRORS?|failed|failures?|errors?|exceptions?)\b")
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


def contradiction(output: str, code: int) -> str:
    """Why an exit code does not fit to passed tests; "" if it does.

    Runners end with 1 if other tests failed, and then say so.
    """
    if code == 0 or (code == 1 and _FAILURE.search(output)):
        return ""
    return f"; but the test command ended with exit code {code}"


def why_not_run(output: str, code: int) -> str:
    """Why the runner itself did not start; "" if it did.

    A change that breaks the tested code stays a failure: the runner then reports it, or ends with
    a traceback through files of this folder.
    """
    if any(mark in output for mark in STARTED):
        return ""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    missing = re.findall(r"No module named '?(\w+)", output)
    top = missing[-1] if missing else ""
    is_own = top and any(
        Path(one).exists() for one in (top, f"{top}.py", f"src/{top}", f"lib/{top}")
    )
    if "Traceback (" in output and (is_own or not missing) and code not in FAILED_TO_START:
        files = (Path.cwd() / file for file in re.findall(r'File "([^"<]+)"', output))
        if any(Path.cwd() in file.parents and "site-packages" not in file.parts for file in files):
            return ""
    said = f"No module named {top}" if missing else "".join(lines[-1:])
    return f"{said or 'nothing was printed'} (exit code {code}): no test was run"


def main() -> int:
    trial: dict[str, Any] = json.load(sys.stdin)
    command, solution = sys.argv[1], "".join(sys.argv[2:3])
    applied = trial["output"]["text"].strip()
    if solution == "prediction" and applied != "applied":
        print(json.dumps({"score": 0.0, "reason": applied}))
        return 1
    try:
        ended = subprocess.run(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except FileNotFoundError:
        print("there is no bash to run the tests with", file=sys.stderr)
        return 2
    output = ended.stdout.decode(errors="replace")
    print(output)
    found = statuses(output)
    why = "" if found else why_not_run(output, ended.returncode)
    if not (found or why) and solution == "empty":
        why = f"no test was run (exit code {ended.returncode})"
    if why:
        print(why, file=sys.stderr)
        return 2
    is_resolved, reason = verdict(trial["case"]["expect"], found)
    if is_resolved and solution != "empty":
        against = contradiction(output, ended.returncode)
        is_resolved, reason = not against, reason + against
    passed = is_resolved is not (solution == "empty")
    if solution == "empty":
        are = "pass, so they do not test it" if is_resolved else "fail, as they must"
        reason = f"without a solution, the tests {are}: {reason}"
    print(json.dumps({"score": float(passed), "reason": reason}))
    return 0 if passed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as error:  # noqa: BLE001 - Python's own exit code would be 1: failed
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
