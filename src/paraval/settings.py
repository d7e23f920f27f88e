"""What a person may choose for a run, beside the suite: one record for each stage that reads it."""

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
"""The most attempts at once where the machine decides: past it, starting them is all it does."""
Parallel = int | Literal["auto"]
"""How many attempts run at once; `auto`: as many as the machine can carry."""
STORE_FOLDER = ".paraval"
STORE_VARIABLE = "PARAVAL_STORE"
MODELS_VARIABLE = "TEST_MODELS"
RACE = "race"
"""By this key a run's selection tells that it is a race's."""
TESTS = "pytest"
"""By this a run's selection tells that it is a session of tests: its arguments, its code."""

DEFAULT_MAX_DROP = 0.05
"""How far the pass rate may be below a baseline's where nobody says."""

ANSWER_LIMIT_BYTES = 1 << 20
"""An answer longer than this is not judged: it is `invalid_output`."""
LOG_LIMIT_BYTES = 16 << 20
"""Of each captured stream this much is kept whole; past it, the first part and the end."""
JUDGE_PROMPT_VERSION = 1
"""Of what judges are asked: it decides verdicts, so that a trial's key holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which trials of a suite to plan, and what to lay over the suite's own words."""

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
    """A run, or the file of a report, to hold the run against; empty: none, whatever is set."""
    max_drop: float | None = None
    """By how much the pass rate may be below the baseline's, as a share."""
    models: tuple[str, ...] = ()
    """Names or globs of the suite's registry of models, or `all` alone; empty: not said."""
    budget_usd: float | None = None
    cache: str | None = None
    """reuse, refresh or off."""
    ref: str | None = None
    """Of a git workspace, as the suite names it, with ..."""
    commit: str | None = None
    """... what it stood for when the run began: a resume begins there too, wherever the ref points
    by now. Where the suite names another ref, it says nothing."""
    tree: str | None = None
    """Of an uncommitted working tree, when the run began."""

    def __post_init__(self) -> None:
        for name in ("cases", "tags", "variants", "models"):
            if isinstance(getattr(self, name), str):
                raise RequestError(f"a selection's {name} are a tuple, not one text")

    def as_mapping(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> Selection:
        """From what `as_mapping` gave, also after a way through JSON."""
        fields: dict[str, Any] = dict(stored)
        for name in ("cases", "tags", "models"):
            fields[name] = tuple(fields.get(name, ()))
        fields["variants"] = tuple((axis, value) for axis, value in fields.get("variants", ()))
        try:
            return cls(**fields)
        except TypeError as error:
            raise RequestError(
                f"the run was planned with settings that this version does not know: {error}",
                hint="start a new run",
            ) from error

    def over(self, earlier: Selection) -> Selection:
        """An earlier selection with what this one says laid over it."""
        said = {name: getattr(self, name) for name in self.as_mapping()}
        return replace(earlier, **said)


def is_of_tests(stored: Mapping[str, Any]) -> bool:
    """Whether what is stored as a run's selection is that of a session of pytest."""
    return TESTS in stored


def is_report_file(name: str) -> bool:
    """Whether a baseline's name is that of a report, and not a run's."""
    return name.lower().endswith((".json", ".jsonl"))


def chosen_models(text: str, *, source: str) -> tuple[str, ...]:
    """The models that a flag or a variable names, apart from whether there are such models.

    Nothing is guessed: other suites made of `haiku,` the first model that contains nothing.
    """
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise RequestError(
            f"{source}={text}: an item is empty", hint="write names or globs, with commas between"
        )
    doubled = [name for place, name in enumerate(names) if name in names[:place]]
    if doubled:
        raise RequestError(f"{source}={text}: '{doubled[0]}' is there twice")
    if "all" in names and len(names) > 1:
        raise RequestError(f"{source}={text}: 'all' stands alone")
    return tuple(names)


def models_from_environment() -> tuple[str, ...]:
    """What TEST_MODELS names; nothing where it is unset or empty."""
    text = os.environ.get(MODELS_VARIABLE, "")
    return chosen_models(text, source=MODELS_VARIABLE) if text.strip() else ()


def default_store() -> Path:
    """Where runs are kept unless told otherwise: PARAVAL_STORE, or a folder in the current one."""
    return Path(os.environ.get(STORE_VARIABLE) or STORE_FOLDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is carried out; what runs is the suite's and the selection's business."""

    store: Path | None = None
    """None: PARAVAL_STORE, or `.paraval` in the current folder."""
    seed: int | None = None
    """For the jitter of retries, and the order of cases where a run may stop early; None: the
    suite's, or 0."""
    resume: str | None = None
    """A run to go on with; empty for the last unfinished one of the suite; None for a new one."""
    retry_errors: bool = False
    """Run again what ended in an error, in the run to resume; by itself, in the suite's last."""

    def __post_init__(self) -> None:
        if isinstance(self.store, str):
            object.__setattr__(self, "store", Path(self.store))

    @property
    def resumes(self) -> bool:
        return self.resume is not None or self.retry_errors


def is_race(selection: Mapping[str, Any]) -> bool:
    """Whether a run with this selection, as its store has it, is a race."""
    return RACE in selection
