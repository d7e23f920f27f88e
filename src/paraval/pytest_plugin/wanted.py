"""What a user asked of the plugin: by a flag, a variable or the ini file, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from paraval.pytest_plugin.flags import FAIL_UNDER, dest_of, written_in_ini

MOST_AT_ONCE = 1000
AUTO_AT_MOST = 32
"""With `auto`: so many wait at once, as long as the machine is not under pressure."""


class ProgressForm(StrEnum):
    """How progress is shown beside pytest's own reporter."""

    AUTO = "auto"
    """A line at the bottom of a terminal; nothing in a log."""
    LINES = "lines"
    """`[ 3/20] ✓ test_basic  1.9 s  (ETA 8 s)` for each test, in the place of pytest's own dots."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The whole of what was asked for."""

    parallel: int = 0
    """How many tests at once; 0 and 1 are plain pytest."""
    auto: bool = False
    """True: as many as the machine can carry, up to `parallel`."""
    check_alone: bool = False
    """True: tests that failed beside others are run again, whatever they did."""
    progress: ProgressForm = ProgressForm.AUTO
    store: Path | None = None
    """Where every run is recorded; None: nowhere."""
    models: tuple[str, ...] | None = None
    """Of the registry; empty: all of them. None: the first one."""
    registry: Path | None = None
    """The file of the registry; None: it is looked for."""

    @property
    def is_parallel(self) -> bool:
        return self.parallel > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """A value, and where it was told: for messages."""

    text: str
    where: str


def read_wanted(config: pytest.Config, environ: Mapping[str, str]) -> Wanted:
    """Raises pytest.UsageError where something cannot be meant."""
    parallel = _told(config, environ, "--parallel", "PARALLEL_WORKERS", "parallel")
    progress = _told(config, environ, "--parallel-progress", None, "parallel_progress")
    models = _told(config, environ, "--models", "TEST_MODELS", "paraval_models")
    registry = _told(config, environ, "--models-file", None, "paraval_models_file")
    auto = parallel is not None and parallel.text.lower() == "auto"
    return Wanted(
        parallel=0 if parallel is None else AUTO_AT_MOST if auto else _count(parallel),
        auto=auto,
        check_alone=getattr(config.option, dest_of("--check-alone"), None) is not None,
        progress=ProgressForm.AUTO if progress is None else _form(progress),
        models=None if models is None else _names(models),
        registry=None if registry is None else _path(config, registry),
        store=_store(config, environ),
    )


def _told(
    config: pytest.Config, environ: Mapping[str, str], flag: str, variable: str | None, key: str
) -> _Told | None:
    given = getattr(config.option, dest_of(flag), None)
    if given is not None:
        return _Told(text=str(given).strip(), where=flag)
    if variable is not None and environ.get(variable, "").strip():
        return _Told(text=environ[variable].strip(), where=variable)
    written = written_in_ini(config, key)
    return _Told(text=written, where=f"{key} in the ini file") if written else None


def _store(config: pytest.Config, environ: Mapping[str, str]) -> Path | None:
    at = _told(config, environ, "--paraval-store-at", None, "paraval_store")
    is_asked = getattr(config.option, dest_of("--paraval-store"), None) is not None
    if at is not None and at.text.lower() not in ("true", "false"):
        return _path(config, at)
    if not is_asked and (at is None or at.text.lower() == "false"):
        if getattr(config.option, dest_of(FAIL_UNDER), None) is not None:
            raise pytest.UsageError(f"{FAIL_UNDER} needs --paraval-store: it judges a recorded run")
        return None
    return config.rootpath / Path(environ.get("PARAVAL_STORE") or ".paraval").expanduser()


def _count(told: _Told) -> int:
    if not told.text.isdecimal() or int(told.text) > MOST_AT_ONCE:
        raise pytest.UsageError(
            f"{told.where}: how many tests run at once is a number from 0 to {MOST_AT_ONCE}, or "
            f"auto; not {told.text!r}"
        )
    return int(told.text)


def _form(told: _Told) -> ProgressForm:
    try:
        return ProgressForm(told.text)
    except ValueError:
        forms = ", ".join(ProgressForm)
        raise pytest.UsageError(f"{told.where}: one of {forms}; not {told.text!r}") from None


def _names(told: _Told) -> tuple[str, ...]:
    names = tuple(name.strip() for name in told.text.split(",") if name.strip())
    if not names:
        raise pytest.UsageError(f"{told.where}: names of models (a,b) or all; not {told.text!r}")
    return () if names == ("all",) else names


def _path(config: pytest.Config, told: _Told) -> Path:
    """By a flag, from where the user stands; in the ini file, from the rootdir.

    pytest looks for its rootdir before it knows the flags of plugins, and takes what follows one,
    if it exists, for a place with tests.
    """
    if told.where in config.invocation_params.args and Path(told.text).expanduser().exists():
        raise pytest.UsageError(
            f"write {told.where}={told.text} (with =): after a space, pytest takes a path that "
            "exists for one that has tests, and looks for its rootdir there"
        )
    base = config.invocation_params.dir if told.where.startswith("--") else config.rootpath
    return (base / Path(told.text).expanduser()).absolute()
