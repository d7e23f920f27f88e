"""The request for a race: frozen, keyword-only records without live handles.

Python callables for `generate`, `repair` and `refine` are passed separately, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from paraval.dataclass import dataclass
from paraval.records import AccountLimits, Model

TOTAL = "__total__"
"""The case name of the whole benchmark."""

BASELINE_TIMEOUT_S = 600.0
"""For the baseline, if no timeout was given."""


def usual_timeout(took_s: float) -> float:
    """For candidates, if none was given: the baseline took so long."""
    return max(30.0, 10 * took_s)


NO_TESTS = ("true", "no tests")
"""The test command of a comparison of two refs without tests."""

SETTINGS_FILES = (
    "conftest.py",
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "setup.cfg",
    "tox.ini",
    ".coveragerc",
)
"""Configuration files of pytest and coverage, in any folder."""
STARTUP_MODULES = ("sitecustomize", "usercustomize")
"""What Python imports automatically: a module in any form, or a package."""
PROTECTED = (
    "tests/**",
    "test/**",
    "**/tests/**",
    "**/test/**",
    "**/test_*.py",
    "**/*_test.py",
    *(f"**/{name}" for name in SETTINGS_FILES),
    *(f"**/{name}{form}" for name in STARTUP_MODULES for form in (".*", "/**")),
    "**/*.pth",
    "**/*.dist-info/**",
    "**/*.egg-info/**",
    ".git*/**",
    "**/.gitattributes",
)
"""Files that judge candidates, so candidates must not change them. `**/x` also matches `x` at the
top. The repository's files that the commands of `test` and `bench` name are protected too."""


class BenchMetric(StrEnum):
    """What is compared between benchmark processes; less is better."""

    WALL = "wall"
    CPU = "cpu"
    FILE = "file"
    """Seconds by case, in a JSON file that the command writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSpec:
    """The command that tests a candidate: exit code 0 means that it passed."""

    __test__ = False  # pytest takes it for a test otherwise

    command: tuple[str, ...]
    timeout: float | None = None
    """None: ten times as long as the baseline took, at least 30 s."""
    junit: str = "auto"
    """`auto`: requested from pytest by an option; `off`; or the file that the command writes,
    relative to where it runs."""
    canary: bool = True
    """Whether to check that the tests notice when the code that candidates change is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOutput:
    """Output of the test command that must match the baseline's."""

    file: str | None = None
    """Relative to where the command runs; None for stdout."""

    @property
    def name(self) -> str:
        return "stdout" if self.file is None else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """The command that measures speed, in a new process for each measurement."""

    command: tuple[str, ...]
    timeout: float | None = None
    """None: ten times as long as the baseline took, at least 30 s."""
    metric: BenchMetric = BenchMetric.WALL
    file: str | None = None
    """For `BenchMetric.FILE`: relative to where the command runs."""
    blocks: int | None = None
    """Blocks in the finals; None: depends on their duration, at least `LEAST_FINAL_BLOCKS`."""
    quiet_s: float = 30.0
    """How long to wait for a quiet machine, once per round; after that, measurements continue and
    are marked noisy."""
    cpus: int | None = None
    """How many CPUs to pin it to; 0: no pinning; None: 1 if the baseline keeps only one busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCandidates:
    """Candidates that models write: one call for each."""

    models: tuple[Model, ...]
    limits: Mapping[str, AccountLimits]
    """Of their accounts, by need."""
    n: int
    """Candidates by each model."""
    prompt: str
    """A template with {attempt}; the rest is filled in."""
    files: Mapping[str, str]
    """What the models are shown: path in the repository -> text."""
    temperature: float | None = None
    max_tokens: int | None = None

    @property
    def number(self) -> int:
        """How many calls."""
        return self.n * len(self.models)

    def model(self, call: int) -> Model:
        """The model of a call; calls count from 1."""
        return self.models[(call - 1) // self.n]

    def name(self, call: int) -> str:
        """The name of the candidate that a call writes: `haiku-3`."""
        return f"{self.model(call).name}-{self.attempt(call)}"

    def attempt(self, call: int) -> int:
        return (call - 1) % self.n + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSpec:
    """A program or Python function that proposes candidates."""

    command: tuple[str, ...] = ()
    """Empty for a function, which is passed separately, and for models."""
    asks: ModelCandidates | None = None
    """For `generate`: models to call instead of a program."""
    timeout: float = 600.0
    depth: int = 2
    """How many generations deep it may build on its own proposals. Not for `generate`."""
    calls: int = 10
    """How many times it may be called in one race. `generate` is called once."""
    usd: float | None = None
    """Budget for all its calls, by the costs they report; None: no limit of its own."""

    @property
    def is_function(self) -> bool:
        return not self.command and self.asks is None


class Profile(StrEnum):
    NONE = "none"
    LINE = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSpec:
    """What to profile in the winner, by running its benchmark once more."""

    kind: Profile = Profile.NONE
    functions: tuple[str, ...] = ()
    """`module:function` or `module:Class.method`; empty for every function in the files that the
    winner changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """What a candidate needs to win."""

    speedup: float = 1.05
    """The low end of its interval must be above this."""
    confidence: float = 0.95
    each: float | None = None
    """How fast each case of the benchmark must be; None: only the whole counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceLimits:
    """Limits of a race."""

    parallel: int | None = None
    """None: as many as the machine can handle."""
    candidates: int = 200
    """In all, including repaired and refined ones."""
    seconds: float | None = None
    """Of an engine's work; after that, nothing new starts."""
    usd: float | None = None
    """Budget for generate, repair and refine together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRequest:
    """A race as requested. Paths are absolute."""

    name: str
    source: str | None
    """The race file; None for a race from flags or Python."""
    folder: str
    """The race file's folder, or the current one: where hooks run."""
    repo: str
    """The top of the working tree, or a folder in it, where commands run."""
    ref: str = "HEAD"
    head: str | None = None
    """The ref to compare with `ref`: the only candidate, as it is. None for a race."""
    uncommitted: bool = False
    setup: tuple[str, ...] = ()
    """Runs once in each worktree."""
    sandbox: bool = False
    is_fenced: bool = False
    """Without `sandbox`: tests and benchmarks see everything, but write only to their worktree and
    to their own home and temporary folders, so that no later process finds what they left."""
    test: TestSpec
    compare: tuple[ComparedOutput, ...] = ()
    bench: BenchSpec
    candidates: tuple[str, ...] = ()
    """Patches, folders of them, folders of replacement files, git refs: as written, with paths made
    absolute."""
    models: Mapping[str, Model] = field(default_factory=dict)
    """The registry, by name."""
    generate: HookSpec | None = None
    repair: HookSpec | None = None
    refine: HookSpec | None = None
    profile: ProfileSpec = field(default_factory=ProfileSpec)
    accept: Accept = field(default_factory=Accept)
    limits: RaceLimits = field(default_factory=RaceLimits)
    protect: tuple[str, ...] = PROTECTED
    env: Mapping[str, str] = field(default_factory=dict)
    """For tests and benchmarks."""
    pass_env: tuple[str, ...] = ()
    """Environment variables to pass on to tests, benchmarks and hooks."""

    def hook(self, kind: str) -> HookSpec | None:
        """The hook called `generate`, `repair` or `refine`."""
        found: HookSpec | None = getattr(self, kind)
        return found
