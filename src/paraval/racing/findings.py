"""The findings of race steps: records in their results, as stored.

Each is kept in an attempt's `output.metadata` as plain JSON data, so that a resume can read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from paraval.dataclass import dataclass
from paraval.records import FileChange

MOST_DIFFERENCES = 100
"""Differences listed per candidate; the rest are counted."""


# ---- candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A candidate as proposed, before it is checked.

    Exactly one of `patch`, `folder` and `ref` is set.
    """

    name: str
    """Unique in a race."""
    patch: str | None = None
    """A unified diff against the baseline, with non-UTF-8 bytes as surrogates."""
    folder: str | None = None
    """Absolute; its files replace those at the same paths in the repository."""
    ref: str | None = None
    """A commit hash; the candidate is its changes since it branched off from the race's start."""
    whole: bool = False
    """For a ref: the candidate is the commit as it is."""
    round: int | None = None
    """The round in which `propose` wrote it; None: it was given with the race."""
    parent: str | None = None
    """The candidate that it is based on, if its author named one."""
    note: str = ""
    """The author's comment."""
    problem: str = ""
    """Why a model's reply, which `patch` holds then, cannot be a candidate; empty if it can."""
    content: str = ""
    """A hash of the proposed content, including its folder's files or its ref's commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCandidate:
    """A candidate that applies."""

    tree: str
    """The hash of its git tree, in the race's own object folder."""
    normal: str
    """A hash that is equal for candidates that differ only in formatting and comments."""
    files: tuple[FileChange, ...] = ()
    """The files that it changes."""
    flags: tuple[str, ...] = ()
    """Protected files that it changes, in words: `edits tests/test_a.py`."""
    problem: str = ""
    """Why it need not be tested: a syntax error; empty if it must."""


# ---- correctness


class TestStatus(StrEnum):
    __test__ = False  # pytest takes it for a test otherwise

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    MISSING = "missing"
    """The baseline has the test, but the candidate's run did not reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCounts:
    __test__ = False  # pytest takes it for a test otherwise

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    missing: int = 0
    """Tests that pass with the baseline and that the candidate's run did not reach."""
    new_passed: int = 0
    """Passed tests that the baseline does not have."""
    new_failed: int = 0
    """Failed tests and errors that the baseline does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """One difference between a candidate's run and the baseline's."""

    scope: str
    """test, stdout, file or exit_code."""
    name: str
    """The test's id, the file's path, `stdout`, `exit_code`."""
    status: str
    """For a test, the candidate's TestStatus; else `different` or `missing`."""
    baseline: str
    """For a test, the baseline's TestStatus; else `there` or `missing`."""
    message: str = ""
    """As the test program says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectnessFinding:
    """The result of a test run."""

    __test__ = False  # pytest takes it for a test otherwise

    counts: TestCounts | None = None
    """None if the command reports no individual tests."""
    differences: tuple[RunDifference, ...] = ()
    more: int = 0
    """How many differences there are beyond the first `MOST_DIFFERENCES`."""
    failing: tuple[str, ...] = ()
    """For the baseline: the first tests that failed."""
    flags: tuple[str, ...] = ()
    """Forbidden changes that it made while it ran: `changed tests/test_a.py`."""
    unstable: tuple[str, ...] = ()
    """For the baseline's second run: what differed from the first, by difference name. It is not
    compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The result of a test run with deliberately broken code, or code that tells that it runs."""

    broken: tuple[str, ...] = ()
    """Broken files; for a candidate, the functions that it changes. Empty if none could be."""
    passed: bool = False
    """Whether the tests did not notice; for a candidate, whether they ran none of it."""
    lines: int = 0
    """For a candidate: how many statements it adds to functions ..."""
    lines_run: int = 0
    """... and how many of them the tests ran."""
    state: tuple[str, ...] = ()
    """For a candidate: what its code keeps between calls, in words."""


# ---- speed

Sample = Mapping[str, float]
"""One process: seconds by benchmark case, always including `request.TOTAL`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The first measurements of the baseline's benchmark."""

    samples: tuple[Sample, ...]
    process_s: float
    """Wall time of one process, whatever the metric."""
    busy_cpus: float
    """How many CPUs it keeps busy."""
    noisy: bool = False
    is_memory: bool = False
    """Whether the samples are bytes."""
    printed: str | None = None
    """A hash of its output; None if it prints nothing, or differs between processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One ABBA block: two processes of each side, in the order ABBA or BAAB."""

    baseline: tuple[Sample, Sample]
    candidate: tuple[Sample, Sample]
    noisy: bool = False
    pinned: tuple[int, ...] = ()
    """The CPUs that it was pinned to; empty if none."""
    gap_s: float = 0.0
    """The longest time between two of its processes, which is the engine's overhead."""
    flags: tuple[str, ...] = ()
    """What makes the candidate's measurements doubtful compared with the baseline's, such as files
    that its benchmark left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Speed relative to the baseline, with its interval."""

    estimate: float
    low: float
    high: float
    blocks: int = 0


# ---- propose


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """What one call of `propose` returned."""

    proposals: tuple[Proposal, ...] = ()
    complaints: tuple[str, ...] = ()
    """The first invalid lines, and why."""
    more_complaints: int = 0
    """How many more there are."""


# ---- line profiles


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledLine:
    line: int
    hits: int
    seconds: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledFunction:
    name: str
    file: str
    """Relative to the repository."""
    seconds: float
    lines: tuple[ProfiledLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFinding:
    functions: tuple[ProfiledFunction, ...] = ()
    problem: str | None = None
    """Why there is no profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinding:
    """The finding in an attempt's metadata: one field is set, depending on the kind of step."""

    staged: StagedCandidate | None = None
    tested: CorrectnessFinding | None = None
    calibration: Calibration | None = None
    block: Block | None = None
    proposed: Proposed | None = None
    profiled: ProfileFinding | None = None
    canary: Canary | None = None
