"""The CANARY steps: check whether tests notice broken code that candidates change.

On the baseline, once per race: every Python file that candidates change raises when it is imported.
Tests that still pass run a different copy of the code, or none of these files. On a would-be
winner: what it changes and adds tells that it runs, and its files are searched for state that they
keep between calls. The course decides what follows from the result.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.git.objects import FILES, read_blobs
from paraval.git.repositories import TreeEntry, find_repository, tree_entries
from paraval.processes.quick import run_quickly
from paraval.racing.candidates.duplicates import LARGEST_SOURCE_BYTES
from paraval.racing.candidates.patch import InvalidProposalError
from paraval.racing.candidates.staging_repo import StagingRepo, open_staging
from paraval.racing.context import RaceContext, StepPerformer, failed, found, with_timeout
from paraval.racing.correctness.canary_child import BREAKING
from paraval.racing.correctness.tester import CANARY
from paraval.racing.findings import Canary, StepFinding
from paraval.racing.steps import BASELINE, Step, StepKind
from paraval.records import Attempt, AttemptResult, CommandTarget, Outcome

RAN = "ran.txt"
"""Where changed code tells that it runs, in the attempt's folder."""
PATIENCE_S = 20.0
_TIMES_AS_LONG, _AND_S = 3, 10
"""Time limit relative to the baseline's tests: broken code may hang, which counts as a failure."""
_CHILD = str(Path(__file__).with_name("canary_child.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _BrokenTree:
    """A tree with broken code, and what is broken."""

    tree: str | None = None
    """None if nothing could be broken."""
    what: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    lines: int = 0
    """For a candidate: added lines that tell whether they run."""


class CanaryTester:
    """Performs CANARY. `tester` runs and judges the tests as for a candidate."""

    def __init__(self, context: RaceContext, tester: StepPerformer) -> None:
        self._context = context
        self._tester = tester

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        try:
            ran = Path(attempt.own_folder, RAN)
            broken = await asyncio.to_thread(self._broken, step, ran)
        except (ParavalError, InvalidProposalError, OSError) as error:
            message = f"could not break code to check whether the tests notice: {error}"
            return failed(Outcome.INFRA_ERROR, message, lasting=True)
        seen = Canary(broken=broken.what, state=broken.state)
        if broken.tree is None or not self._context.request.test.canary:
            return found(StepFinding(canary=seen))
        tested = replace(step, kind=StepKind.TEST, candidate=CANARY, tree=broken.tree)
        result = await self._tester.perform(self._bounded(attempt), tested)
        if result.outcome is Outcome.INFRA_ERROR:
            return result
        if step.candidate == BASELINE:
            seen = replace(seen, passed=result.outcome is Outcome.PASSED)
        elif attempt.node is None:
            told = await asyncio.to_thread(_told_in, ran)
            number = len(told - {one for one in told if one.endswith(" 0")})
            seen = replace(seen, passed=not told, lines=broken.lines, lines_run=number)
        return found(
            StepFinding(canary=seen),
            duration_s=result.duration_s,
            exit_code=result.exit_code,
            artifacts=result.artifacts,
        )

    async def close(self) -> None:
        """Do nothing: no resources are kept between steps."""

    def _bounded(self, attempt: Attempt) -> Attempt:
        target = attempt.trial.target
        assert isinstance(target, CommandTarget)
        assert target.timeout is not None
        timeout = _TIMES_AS_LONG * self._context.baseline_test_s() + _AND_S
        return with_timeout(attempt, min(target.timeout, timeout))

    def _broken(self, step: Step, ran: Path) -> _BrokenTree:
        """Write the tree with broken code, or code that tells in a file what runs. Blocks."""
        context = self._context
        repository = find_repository(context.request.repo)
        tree = context.base.tree if step.tree is None else step.tree
        with open_staging(repository, tree, context.objects) as staging:
            entries = staging.entries()
            paths = [path for path in step.files if _is_file(entries.get(os.fsencode(path)))]
            if step.candidate == BASELINE:
                broken = _BrokenTree(what=tuple(paths))
                texts = dict.fromkeys(paths, f"{BREAKING}\n")
            else:
                ran.parent.mkdir(parents=True, exist_ok=True)
                broken, texts = self._of_a_candidate(staging, entries, paths, ran)
            if not texts:
                return broken
            staging.put({os.fsencode(path): text.encode() for path, text in texts.items()})
            return replace(broken, tree=staging.write_tree())

    def _of_a_candidate(
        self, staging: StagingRepo, entries: Mapping[bytes, TreeEntry], paths: list[str], ran: Path
    ) -> tuple[_BrokenTree, dict[str, str]]:
        listed = tree_entries(staging.git_dir, self._context.base.tree, staging.to_read)
        before = {entry.path: entry for entry in listed}
        hashes = {
            path: [
                None if (one := side.get(os.fsencode(path))) is None else one.hash
                for side in (before, entries)
            ]
            for path in paths
        }
        wanted = [name for pair in hashes.values() for name in pair if name is not None]
        contents = read_blobs(staging.git_dir, wanted, staging.to_read)
        findings = _inspect(
            {
                path: [None if name is None else contents.get(name, b"") for name in pair]
                for path, pair in hashes.items()
            },
            str(ran),
        )
        what = [
            f"{name} in {path}"
            for path, one in findings.items()
            for name in one["functions"] or ["the module"]
        ]
        state = [f"{words} in {path}" for path, one in findings.items() for words in one["state"]]
        state += [f"{path} cannot be searched" for path in paths if path not in findings]
        texts = {path: one["telling"] for path, one in findings.items()}
        lines = sum(one["lines"] for one in findings.values())
        return _BrokenTree(what=tuple(what), state=tuple(state), lines=lines), texts


def _told_in(file: Path) -> set[str]:
    try:
        return set(file.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return set()


def _is_file(entry: TreeEntry | None) -> bool:
    return entry is not None and entry.mode in FILES


def _inspect(sources: Mapping[str, list[bytes | None]], ran: str = "") -> dict[str, dict[str, Any]]:
    """Findings for files that can be parsed, by path; in a separate process, as for duplicates."""
    texts: dict[str, list[str | None]] = {}
    for path, pair in sources.items():
        if all(one is None or len(one) <= LARGEST_SOURCE_BYTES for one in pair):
            with suppress(UnicodeDecodeError):
                texts[path] = [None if one is None else one.decode() for one in pair]
    ended = run_quickly(
        [sys.executable, "-I", "-S", "-W", "ignore", _CHILD, ran],
        env={"PATH": os.environ.get("PATH", os.defpath)},
        stdin=json.dumps(texts).encode(),
        timeout=PATIENCE_S,
    )
    if not ended.is_well:
        return {}
    findings: dict[str, dict[str, Any]] = json.loads(ended.stdout)
    return findings
