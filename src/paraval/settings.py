"""What a person may choose for a run, besides the suite: one record per stage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from paraval.errors import RequestError

DEFAULT_PARALLEL = 4
AUTO_LEAST_MOST = 64
AUTO_MOST_PER_CORE = 4
AUTO_MOST = max(AUTO_LEAST_MOST, AUTO_MOST_PER_CORE * (os.cpu_count() or 1))
"""The maximum parallelism chosen automatically: beyond it, starting attempts is all the machine
does."""
Parallel = int | Literal["auto"]
"""Number of parallel attempts; `auto`: as many as the machine can handle."""
STORE_FOLDER = ".paraval"
STORE_VARIABLE = "PARAVAL_STORE"
MODELS_VARIABLE = "TEST_MODELS"
RACE = "race"
"""Key that marks a run's selection as a race."""
TESTS = "pytest"
"""Key that marks a run's selection as a pytest session: its arguments and code."""

DEFAULT_MAX_DROP = 0.05
"""Default allowed drop of the pass rate below a baseline's."""

ANSWER_LIMIT_BYTES = 1 << 20
"""A longer answer is not judged: it is `invalid_output`."""
LOG_LIMIT_BYTES = 16 << 20
"""Bytes kept of each captured stream; beyond it, the first part and the end."""
JUDGE_PROMPT_VERSION = 1
"""Version of the judge prompt: it affects verdicts, so it is part of a trial's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which trials of a suite to plan, and overrides of the suite's settings."""

    cases: tuple[str, ...] = ()
    """Globs over case ids; empty means all."""
    tags: tuple[str, ...] = ()
    """A case needs one of them; empty means all."""
    variants: tuple[tuple[str, str], ...] = ()
    """(axis, value) pairs; of several values of one axis, any fits."""
    parallel: Parallel | None = None
    repeats: int | None = None
    timeout: float | None = None
    fail_under: float | None = None
    baseline: str | None = None
    """A run or a report file to compare the run with; empty: none, whatever is set."""
    max_drop: float | None = None
    """How far the pass rate may drop below the baseline's, as a share."""
    models: tuple[str, ...] = ()
    """Names or globs of models in the suite's registry, or only `all`; empty: unspecified."""
    budget_usd: float | None = None
    cache: str | None = None
    """reuse, refresh or off."""
    ref: str | None = None
    """The ref of a git workspace as the suite names it, and ..."""
    commit: str | None = None
    """... the commit it resolved to when the run began: a resume starts there too, wherever the ref
    points by then. Ignored if the suite now names another ref."""
    tree: str | None = None
    """The tree of an uncommitted working tree when the run began."""

    def __post_init__(self) -> None:
        for name in ("cases", "tags", "variants", "models"):
            if isinstance(getattr(self, name), str):
                raise RequestError(f"a selection's {name} are a tuple, not one text")

    def as_mapping(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> Selection:
        """From the result of `as_mapping`, also after a round trip through JSON."""
        fields: dict[str, Any] = dict(stored)
        for name in ("cases", "tags", "models"):
            fields[name] = tuple(fields.get(name, ()))
        fields["variants"] = tuple((axis, value) for axis, value in fields.get("variants", ()))
        try:
            return cls(**fields)
        except TypeError as error:
            raise RequestError(
                f"the run was planned with settings that this version does not support: {error}",
                hint="start a new run",
            ) from error

    def over(self, earlier: Selection) -> Selection:
        """An earlier selection, overridden by this one."""
        said = {name: getattr(self, name) for name in self.as_mapping()}
        return replace(earlier, **said)


def is_of_tests(stored: Mapping[str, Any]) -> bool:
    """Whether a run's stored selection is that of a pytest session."""
    return TESTS in stored


def is_report_file(name: str) -> bool:
    """Whether a baseline's name is a report file rather than a run."""
    return name.lower().endswith((".json", ".jsonl"))


def chosen_models(text: str, *, source: str) -> tuple[str, ...]:
    """Parse the models named by a flag or a variable, without checking that they exist.

    Nothing is guessed: other suites take `haiku,` to include the first model whose name contains
    the empty string.
    """
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise RequestError(
            f"{source}={text}: it has an empty item",
            hint="write names or globs separated by commas",
        )
    doubled = [name for place, name in enumerate(names) if name in names[:place]]
    if doubled:
        raise RequestError(f"{source}={text}: '{doubled[0]}' is a duplicate")
    if "all" in names and len(names) > 1:
        raise RequestError(f"{source}={text}: 'all' cannot be combined with names")
    return tuple(names)


def models_from_environment() -> tuple[str, ...]:
    """The models in TEST_MODELS; empty if unset."""
    text = os.environ.get(MODELS_VARIABLE, "")
    return chosen_models(text, source=MODELS_VARIABLE) if text.strip() else ()


def default_store() -> Path:
    """Where runs are kept unless told otherwise: PARAVAL_STORE, or a folder in the current one."""
    return Path(os.environ.get(STORE_VARIABLE) or STORE_FOLDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is carried out; the suite and the selection define what runs."""

    store: Path | None = None
    """None: PARAVAL_STORE, or `.paraval` in the current folder."""
    seed: int | None = None
    """Seed for the jitter of retries and the order of cases with early stopping; None: the suite's,
    or 0."""
    resume: str | None = None
    """A run to resume; empty for the suite's last unfinished one; None for a new run."""
    retry_errors: bool = False
    """Rerun what ended in an error, in the resumed run; by itself, in the suite's last run."""

    def __post_init__(self) -> None:
        if isinstance(self.store, str):
            object.__setattr__(self, "store", Path(self.store))

    @property
    def resumes(self) -> bool:
        return self.resume is not None or self.retry_errors


def is_race(selection: Mapping[str, Any]) -> bool:
    """Whether a run with this stored selection is a race."""
    return RACE in selection
