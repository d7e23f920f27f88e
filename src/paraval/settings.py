"""Settings of a run beyond the suite, one record for each stage that reads it; and where runs are
kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Literal

from paraval.dataclass import dataclass
from paraval.errors import RequestError

AUTO_LEAST_MOST = 64
AUTO_MOST_PER_CORE = 4
AUTO_MOST = max(AUTO_LEAST_MOST, AUTO_MOST_PER_CORE * (os.cpu_count() or 1))
"""The most concurrent attempts under `auto`: beyond it, the machine only starts processes."""
MOST_CALLS = 256
"""The same, if all that attempts do is to call models."""
Parallel = int | Literal["auto"]
"""How many attempts run concurrently; `auto`: as many as the machine can handle."""
STORE_FOLDER = ".paraval"
STORE_VARIABLE = "PARAVAL_STORE"
MODELS_VARIABLE = "TEST_MODELS"
RACE = "race"
"""Key that marks the stored selection of a race."""
PAIRWISE = "pairwise"
"""Key that marks the stored selection of a run that judges pairs, and the folder of such runs."""
TESTS = "pytest"
"""Key that marks the stored selection of a pytest session; holds its arguments and its code."""

IMPORTED = "imported"
"""Key that marks the stored selection of a run that was imported; holds its source and a digest."""

DEFAULT_MAX_DROP = 0.05
"""How far the pass rate may drop below a baseline's by default, as a share."""

ANSWER_LIMIT_BYTES = 1 << 20
"""A longer answer is not judged: its outcome is `invalid_output`."""
LOG_LIMIT_BYTES = 16 << 20
"""Captured streams up to this size are kept whole; of longer ones, the first part and the end."""
NO_TOOL = "none"
"""For the grader `tool_call`, in place of a tool's name: no tool may be called."""
JUDGE_PROMPT_VERSION = 1
"""Version of the judge prompt. It affects verdicts, so it is part of a trial's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which trials of a suite to plan, and what overrides the suite's own settings."""

    cases: tuple[str, ...] = ()
    """Globs over case ids; empty means all."""
    tags: tuple[str, ...] = ()
    """A case needs at least one of them; empty means all."""
    only: tuple[str, ...] = ()
    """Case ids, exactly; empty means all. A resume and a regrade find their cases here."""
    sample: int | None = None
    """Of the cases that remain, this many, drawn with `sample_seed`."""
    sample_seed: int | None = None
    """None: the suite's seed, or 0. The same seed draws the same cases, whatever their order."""
    limit: int | None = None
    """Of the cases that remain, the first ones."""
    variants: tuple[tuple[str, str], ...] = ()
    """(axis, value) pairs; several values of one axis are alternatives."""
    parallel: Parallel | None = None
    repeats: int | None = None
    timeout: float | None = None
    fail_under: float | None = None
    baseline: str | None = None
    """A run or report file to compare with; empty: no baseline, even if the suite has one."""
    max_drop: float | None = None
    """How far the pass rate may drop below the baseline's, as a share."""
    max_regressed: int | None = None
    """How many cases that passed in the baseline may fail now."""
    models: tuple[str, ...] = ()
    """Names or globs from the suite's registry of models, or only `all`; empty: the default."""
    budget_usd: float | None = None
    cache: str | None = None
    """reuse, refresh or off."""
    ref: str | None = None
    """The ref of a git workspace, as written in the suite."""
    commit: str | None = None
    """The commit that `ref` named when the run began. A resume uses it wherever the ref points
    now, and ignores it if the suite names another ref."""
    tree: str | None = None
    """The git tree of an uncommitted working tree when the run began."""
    starts: Mapping[str, str] = field(default_factory=dict)
    """The same for workspaces that differ: `ref of repository` -> its commit."""
    regrade: str | None = None
    """A run whose stored answers are graded again, with the suite's graders as they are now:
    nothing else runs, and nothing is paid for but judges."""
    pairwise: Mapping[str, Any] | None = None
    """For a run that judges pairs of answers: the run that they are from, and by what."""

    def __post_init__(self) -> None:
        for name in ("cases", "tags", "only", "variants", "models"):
            if isinstance(getattr(self, name), str):
                raise RequestError(f"a selection's {name} must be a tuple, not a string")

    def as_mapping(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, (), {})}

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> Selection:
        """Reverse `as_mapping`, also after a round trip through JSON."""
        fields: dict[str, Any] = {key: stored[key] for key in stored if key != IMPORTED}
        for name in ("cases", "tags", "only", "models"):
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
        """Return an earlier selection, overridden by what this one sets."""
        return replace(earlier, **{name: getattr(self, name) for name in self.as_mapping()})


def is_of_tests(stored: Mapping[str, Any]) -> bool:
    """Whether a run with this stored selection is a pytest session."""
    return TESTS in stored


def is_imported(stored: Mapping[str, Any]) -> bool:
    """Whether a run with this stored selection is from another program's results."""
    return IMPORTED in stored


def is_report_file(name: str) -> bool:
    """Whether a baseline's name is a report file, not a run."""
    return name.lower().endswith((".json", ".jsonl"))


def chosen_models(text: str, *, source: str) -> tuple[str, ...]:
    """The models that a flag or a variable names; whether they exist is checked later.

    An empty item is an error, not a guess: elsewhere, `haiku,` has matched any model at all.
    """
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise RequestError(
            f"{source}={text}: empty item", hint="write names or globs, separated by commas"
        )
    doubled = [name for place, name in enumerate(names) if name in names[:place]]
    if doubled:
        raise RequestError(f"{source}={text}: duplicate '{doubled[0]}'")
    if "all" in names and len(names) > 1:
        raise RequestError(f"{source}={text}: 'all' cannot be combined with names")
    return tuple(names)


def models_from_environment() -> tuple[str, ...]:
    """The models that TEST_MODELS names; none if it is unset or empty."""
    text = os.environ.get(MODELS_VARIABLE, "")
    return chosen_models(text, source=MODELS_VARIABLE) if text.strip() else ()


def default_store(folder: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The store for commands in `folder` (default: the current one): PARAVAL_STORE, or else the
    nearest `.paraval` in the folder or its parents, up to the root of the git repository.

    If there is none, a new one goes to that root, or, outside of a repository, to the folder
    itself. The search ends at the home folder, at a folder of another user, and inside a store.
    """
    folder = Path() if folder is None else folder
    if named := environ.get(STORE_VARIABLE):
        return folder / Path(named).expanduser()
    start = folder.absolute()
    for place in _searched(start):
        if (place / STORE_FOLDER).is_dir() or (place / ".git").exists():
            return (folder if place == start else place) / STORE_FOLDER
    return folder / STORE_FOLDER


def _searched(start: Path) -> Iterator[Path]:
    """The folder and its parents, as far as a store may belong to commands in the folder."""
    owner, home = _owner(start), Path(os.environ.get("HOME", os.sep))
    for place in (start, *start.parents):
        if place.name == STORE_FOLDER or _owner(place) != owner:
            return
        yield place
        if place == home:
            return


def _owner(folder: Path) -> int | None:
    try:
        return folder.stat().st_uid
    except OSError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run is carried out; the suite and the selection decide what runs."""

    store: Path | None = None
    """Where runs are kept; None: as `default_store` finds it."""
    seed: int | None = None
    """For the jitter of retries, and for the order of cases if a run may stop early; None: the
    suite's, or 0."""
    resume: str | None = None
    """A run to resume; empty: the suite's last unfinished one; None: start a new one."""
    rerun: Literal["errors", "failed"] | None = None
    """Of the resumed run, also rerun trials that ended in an error, or these and all that failed;
    their new results take the place of the old ones."""
    cluster: str | None = None
    """Where attempts run: `ray`, `ray://HOST:10001` or `HOST:6379`; None: on this machine. A run
    may be resumed with another one, or without."""
    insecure_cluster: bool = False
    """Use the cluster even if it accepts work from anyone who can reach it."""

    def __post_init__(self) -> None:
        if isinstance(self.store, str):
            object.__setattr__(self, "store", Path(self.store))
        if self.cluster is not None:
            _check_cluster(self.cluster)
        elif self.insecure_cluster:
            raise RequestError("--insecure-cluster is only for runs with --cluster")
        if self.rerun is not None and self.resume is None:
            raise RequestError("rerun is for a run that is resumed", hint="add resume='last'")

    @property
    def resumes(self) -> bool:
        return self.resume is not None


_CLUSTER = re.compile(r"ray|(?:ray://)?(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})")


def _check_cluster(address: str) -> None:
    found = _CLUSTER.fullmatch(address)
    if found is None or not 0 < int(found["port"] or 1) < 1 << 16:
        raise RequestError(
            f"--cluster {address}: not the address of a cluster",
            hint="write ray (the cluster of this machine, or a new one for this run),"
            " ray://HOST:10001 (a cluster elsewhere, through its client port), or HOST:6379"
            " (a cluster that this machine has joined)",
        )


def is_race(selection: Mapping[str, Any]) -> bool:
    """Whether a run with this stored selection is a race."""
    return RACE in selection
