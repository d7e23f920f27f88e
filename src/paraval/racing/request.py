"""The nouns of what a race is asked to do: frozen, keyword-only, without live handles.

Python callables for `generate`, `repair` and `refine` are handed over beside them, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

TOTAL = "__total__"
"""The measurement of a whole benchmark, among those of its cases."""

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
"""What pytest and coverage take settings from, in whichever folder."""
STARTUP_MODULES = ("sitecustomize", "usercustomize")
"""What Python imports by itself: a module in any form, or a package."""
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
"""What judges a candidate, and is not its to change. `**/x` is also the `x` at the top. The files
of the repository that the commands of `test` and `bench` name are protected too."""


class BenchMetric(StrEnum):
    """What of a benchmark process is compared: less is better."""

    WALL = "wall"
    CPU = "cpu"
    FILE = "file"
    """Seconds by case, in a JSON file that the command writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSpec:
    """How a candidate is shown to be right: a command that ends with exit code 0."""

    __test__ = False  # pytest takes it for a test otherwise

    command: tuple[str, ...]
    timeout: float = 600.0
    junit: str = "auto"
    """`auto`: asked of pytest by an option of its own; `off`; or the file that the command writes,
    relative to where it runs."""
    canary: bool = True
    """Whether it is looked that the tests notice when the code is broken that candidates change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOutput:
    """Something of the test command that must be as it is with the baseline."""

    file: str | None = None
    """Relative to where the command runs; None: its stdout."""

    @property
    def name(self) -> str:
        return "stdout" if self.file is None else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSpec:
    """How fast a candidate is: a command, started anew for each measurement."""

    command: tuple[str, ...]
    timeout: float = 600.0
    metric: BenchMetric = BenchMetric.WALL
    file: str | None = None
    """For `BenchMetric.FILE`: relative to where the command runs."""
    blocks: int | None = None
    """Of the finals; None: as many as are worth it, at least `LEAST_FINAL_BLOCKS`."""
    quiet_s: float = 30.0
    """How long to wait for a quiet machine, once for each round; then it is measured all the same,
    and marked noisy."""
    cpus: int | None = None
    """Pinned to so many; 0: not pinned; None: to one where the baseline keeps no more busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSpec:
    """A program, or a function of Python, that proposes candidates."""

    command: tuple[str, ...] = ()
    """Empty: a function, handed over beside this."""
    timeout: float = 600.0
    depth: int = 2
    """How many times over what it proposed may be handed to it again. Of no use to `generate`."""
    calls: int = 10
    """How often it is asked in one race. `generate` is asked once."""
    usd: float | None = None
    """What all its calls may cost, as far as they tell; None: no bound of its own."""


class Profile(StrEnum):
    NONE = "none"
    LINE = "line"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSpec:
    """What of the winner is profiled, by running its benchmark once more."""

    kind: Profile = Profile.NONE
    functions: tuple[str, ...] = ()
    """`module:function` or `module:Class.method`; empty: every function in the files that the
    winner changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """What a candidate must show."""

    speedup: float = 1.05
    """The lower end of its interval must be above this."""
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceLimits:
    """What a race may take."""

    parallel: int | None = None
    """None: as many as the machine can carry."""
    candidates: int = 200
    """In all, those that were repaired and refined among them."""
    seconds: float | None = None
    """Of an engine's work; past it nothing new starts."""
    usd: float | None = None
    """What generate, repair and refine may cost together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceRequest:
    """A race as a person asks for it. Paths are absolute."""

    name: str
    source: str | None
    """The race file; None: made by flags or in Python."""
    folder: str
    """The race file's, or the current one: where hooks run."""
    repo: str
    """The top of the working tree, or a folder in it: commands run there."""
    ref: str = "HEAD"
    uncommitted: bool = False
    setup: tuple[str, ...] = ()
    """Run once in each worktree."""
    sandbox: bool = False
    test: TestSpec
    compare: tuple[ComparedOutput, ...] = ()
    bench: BenchSpec
    candidates: tuple[str, ...] = ()
    """Patches, folders of them, folders of replacement files, git refs: as they were written, but
    for paths, which are absolute."""
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
    """Of the environment, for tests, benchmarks and hooks."""

    def hook(self, kind: str) -> HookSpec | None:
        """`generate`, `repair` or `refine`."""
        found: HookSpec | None = getattr(self, kind)
        return found
