"""What steps of a race found: the records that their results carry, as the store keeps them.

Each travels in an attempt's `output.metadata` as plain JSON data, so that a resume reads it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paraval.records import FileChange

MOST_DIFFERENCES = 100
"""Of one candidate; how many more there are is told."""


# ---- candidates


class Origin(StrEnum):
    """Where a candidate comes from."""

    GIVEN = "given"
    GENERATE = "generate"
    REPAIR = "repair"
    REFINE = "refine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A candidate as it was proposed, before anyone looked whether it is one.

    One of `patch`, `files`, `folder` and `ref` is there.
    """

    name: str
    """Unique in a race."""
    patch: str | None = None
    """A unified diff against the baseline; bytes that are no UTF-8 as surrogates."""
    files: Mapping[str, str | None] | None = None
    """Path in the repository -> its new text; None deletes it."""
    folder: str | None = None
    """Absolute; its files replace those of the same paths in the repository."""
    ref: str | None = None
    """A commit, as git names it: what it changes since it parted from what the race begins with."""
    origin: Origin = Origin.GIVEN
    parent: str | None = None
    """Whose repair or refinement it is."""
    depth: int = 0
    """How many repairs and refinements lie between it and what was given or generated."""
    note: str = ""
    """What whoever proposed it says of it."""
    content: str = ""
    """A hash of what is proposed, the files of its folder and the commit of its ref among it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCandidate:
    """A candidate that applies."""

    tree: str
    """The hash of the repository's tree with it, in the race's own object folder."""
    normal: str
    """A hash that is the same for candidates that differ in formatting and comments alone."""
    files: tuple[FileChange, ...] = ()
    """What it changes, by path."""
    flags: tuple[str, ...] = ()
    """What it changes that judges it, in words: `edits tests/test_a.py`."""


# ---- correctness


class TestStatus(StrEnum):
    __test__ = False  # pytest takes it for a test otherwise

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    MISSING = "missing"
    """The baseline has the test, the candidate's run did not come to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCounts:
    __test__ = False  # pytest takes it for a test otherwise

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    missing: int = 0
    """Of those that pass with the baseline: those that a candidate's run did not come to."""
    new_passed: int = 0
    """Of those that passed: those that the baseline does not have."""
    new_failed: int = 0
    """The same of those that failed, and of errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """Something that is another with a candidate than with the baseline."""

    scope: str
    """test, stdout, file or exit_code."""
    name: str
    """The test's id, the file's path, `stdout`, `exit_code`."""
    status: str
    """Of a test, the candidate's TestStatus; else `different` or `missing`."""
    baseline: str
    """Of a test, the baseline's TestStatus; else `there` or `missing`."""
    message: str = ""
    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectnessFinding:
    """What the tests said."""

    __test__ = False  # pytest takes it for a test otherwise

    counts: TestCounts | None = None
    """None: the command tells of no single tests."""
    differences: tuple[RunDifference, ...] = ()
    more: int = 0
    """Differences beyond the first `MOST_DIFFERENCES`."""
    failing: tuple[str, ...] = ()
    """Of the baseline: the first tests that failed."""
    flags: tuple[str, ...] = ()
    """What it did while it ran that no candidate should: `changed tests/test_a.py`."""
    unstable: tuple[str, ...] = ()
    """Of the baseline's run that ended second: what was another than in the other one, by the name
    of a Difference. Candidates are not compared in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """What a run of the tests showed in which code was broken on purpose."""

    broken: tuple[str, ...] = ()
    """Files; of a candidate, the functions that it changes. Empty: nothing could be broken."""
    passed: bool = False
    """True: the tests did not notice."""
    state: tuple[str, ...] = ()
    """Of a candidate: what its code keeps between calls, in words."""


# ---- speed

Sample = Mapping[str, float]
"""One process: seconds by benchmark case, `request.TOTAL` always among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the baseline's benchmark takes."""

    samples: tuple[Sample, ...]
    process_s: float
    """How long one process takes, by the clock, whatever the metric is."""
    busy_cpus: float
    """How many it keeps busy."""
    noisy: bool = False
    printed: str | None = None
    """A hash of what it prints; None: nothing, or something else in each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One ABBA block: two processes of each side, in this order or the other way round."""

    baseline: tuple[Sample, Sample]
    candidate: tuple[Sample, Sample]
    noisy: bool = False
    pinned: tuple[int, ...] = ()
    """The CPUs that it ran on; empty: on any."""
    gap_s: float = 0.0
    """The longest time between two of its processes: the engine's own."""
    flags: tuple[str, ...] = ()
    """What the benchmark did with the candidate and not with the baseline that makes its
    measurements doubtful, such as files that it left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """How many times as fast as the baseline, with its interval."""

    estimate: float
    low: float
    high: float
    blocks: int = 0


# ---- what hooks say


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """What a hook answered."""

    proposals: tuple[Proposal, ...] = ()
    """Named, and with their parent, in their order."""
    complaints: tuple[str, ...] = ()
    """Lines that are no candidate, and why: the first of them."""
    more_complaints: int = 0
    """How many there are beyond them."""
    remarks: tuple[str, ...] = ()
    """On all that it said: what of it was never read."""


# ---- the winner's profile


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
    """What is in an attempt's metadata: one of these, by the kind of its step."""

    staged: StagedCandidate | None = None
    tested: CorrectnessFinding | None = None
    calibration: Calibration | None = None
    block: Block | None = None
    asked: HookAnswer | None = None
    profiled: ProfileFinding | None = None
    canary: Canary | None = None
    outside: tuple[str, ...] = ()
    """What changed in the user's repository while the step ran, by it or by someone else."""
