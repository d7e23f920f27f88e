"""The plugin's flags and ini keys, and what a user asked for by them.

A flag counts before a variable, and that before the ini file. Where a user's conftest or plugin has
a flag of the same name, that one stays, and ours is to be had by its variable or its key only.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

FAIL_UNDER = "--paraval-fail-under"

FLAGS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "--parallel",
        {
            "metavar": "N",
            # A flag of this name in a user's conftest may take no value, and pytest reads the flags
            # once before it knows of any conftest: ours must not be in error then.
            "nargs": "?",
            "const": "auto",
            "help": "run N tests at once, in threads of this process (auto, or no N: as many as "
            "the machine carries; 0 or 1: one after another). Also PARALLEL_WORKERS=N, or "
            "parallel = N in the ini file",
        },
    ),
    (
        "--parallel-progress",
        {
            "metavar": "FORM",
            "help": "auto: a line at the bottom of a terminal; lines: a line a test, with an ETA, "
            "for logs; none",
        },
    ),
    (
        "--check-alone",
        {
            "action": "store_const",
            "const": "",
            "help": "run every test that failed beside others once more, alone, and count that: "
            "also those that asked a model, which otherwise stay failed",
        },
    ),
    (
        "--models",
        {
            "metavar": "NAMES",
            "nargs": "?",  # The same.
            "const": "",
            "help": "run each test that asks for the fixture `model` with these models of the "
            "registry: a,b or all. Also TEST_MODELS=a,b",
        },
    ),
    (
        "--models-file",
        {
            "metavar": "FILE",
            "help": "the registry of models: --models-file=FILE (default: models.yaml in the "
            "rootdir or a folder of tests)",
        },
    ),
    (
        "--paraval-store",
        {
            "action": "store_const",
            "const": "",
            "help": "record this run in the store, for `paraval report` and to tell flaky "
            "tests (in PARAVAL_STORE, or .paraval in the rootdir or above it)",
        },
    ),
    (
        "--paraval-store-at",
        {"metavar": "FOLDER", "help": "the same, in this folder: --paraval-store-at=FOLDER"},
    ),
    (
        FAIL_UNDER,
        {
            "metavar": "RATE",
            "help": "of a recorded run: exit code 0 from this pass rate on, 0 to 1. Errors are not "
            "wrong answers",
        },
    ),
)
INI_KEYS = (
    ("parallel", "how many tests run at once: a number, or auto"),
    ("parallel_progress", "auto, lines or none"),
    ("paraval_models", "models for the fixture `model`: a,b or all"),
    ("paraval_models_file", "the registry of models"),
    ("paraval_store", "true, or the folder that every run is recorded in"),
    ("paraval_fail_under", "the pass rate that a recorded run needs for exit code 0"),
    ("paraval_suite", "what the runs are called in the store (default: the rootdir's name)"),
)


def dest_of(flag: str) -> str:
    """Where its value is kept: a name that no other plugin has."""
    return "paraval_flag_" + flag.removeprefix("--").replace("-", "_")


def add_flags(parser: pytest.Parser) -> None:
    group = parser.getgroup("paraval", "tests side by side (paraval)")
    taken = _flags_of_others(parser)
    for flag, attributes in FLAGS:
        if flag not in taken:
            group.addoption(flag, dest=dest_of(flag), default=None, **attributes)
    for key, words in INI_KEYS:
        if key not in parser._inidict:
            parser.addini(key, words, default="")
    _give_way(parser)


def written_in_ini(config: pytest.Config, key: str) -> str:
    """Empty, too, where the key is another's: then it means something else."""
    # pytest lets whoever comes last have a key, and tells nobody.
    words, *_ = config._parser._inidict[key]
    return str(config.getini(key)).strip() if (key, words) in INI_KEYS else ""


def _flags_of_others(parser: pytest.Parser) -> set[str]:
    groups = (*parser._groups, parser._anonymous)
    options = [option for group in groups for option in group.options]
    return {name for option in options for name in option.names() if option.dest != dest_of(name)}


def _give_way(parser: pytest.Parser) -> None:
    """A flag of another's by the same name would be an error, and end a pytest that worked before
    this plugin was installed. argparse can let the later one have the name; only ours may go."""
    if hasattr(parser, "_getparser"):
        _give_way_when_built(parser)
        return
    container: Any = argparse._ActionsContainer
    container._handle_conflict_giving_way = _let_ours_go
    for one in (parser.optparser, *(group._arggroup for group in parser._groups)):
        one.conflict_handler = "giving_way"


def _give_way_when_built(parser: Any) -> None:
    """pytest 8 keeps the options, and builds argparse's parser of them whenever it parses."""
    build = parser._getparser

    def build_with_ours_gone() -> argparse.ArgumentParser:
        taken = _flags_of_others(parser)
        group = parser.getgroup("paraval")
        group.options[:] = [one for one in group.options if taken.isdisjoint(one.names())]
        return build()  # type: ignore[no-any-return]  # of a pytest that is not at hand

    parser._getparser = build_with_ours_gone


def _let_ours_go(
    container: Any, action: argparse.Action, conflicts: list[tuple[str, argparse.Action]]
) -> None:
    ours = [(flag, one) for flag, one in conflicts if one.dest == dest_of(flag)]
    others = [conflict for conflict in conflicts if conflict not in ours]
    if ours:
        container._handle_conflict_resolve(action, ours)
    if others:
        container._handle_conflict_error(action, others)


# ---- what was asked for


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
class PluginOptions:
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


OPTIONS = pytest.StashKey[PluginOptions]()
"""Where a session's configuration has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionText:
    """A value, and where it was told: for messages."""

    text: str
    where: str


def read_options(config: pytest.Config, environ: Mapping[str, str]) -> PluginOptions:
    """Raises pytest.UsageError where something cannot be meant."""
    parallel = _told(config, environ, "--parallel", "PARALLEL_WORKERS", "parallel")
    progress = _told(config, environ, "--parallel-progress", None, "parallel_progress")
    models = _told(config, environ, "--models", "TEST_MODELS", "paraval_models")
    registry = _told(config, environ, "--models-file", None, "paraval_models_file")
    auto = parallel is not None and parallel.text.lower() == "auto"
    return PluginOptions(
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
) -> _OptionText | None:
    given = getattr(config.option, dest_of(flag), None)
    if given is not None:
        return _OptionText(text=str(given).strip(), where=flag)
    if variable is not None and environ.get(variable, "").strip():
        return _OptionText(text=environ[variable].strip(), where=variable)
    written = written_in_ini(config, key)
    return _OptionText(text=written, where=f"{key} in the ini file") if written else None


def _store(config: pytest.Config, environ: Mapping[str, str]) -> Path | None:
    at = _told(config, environ, "--paraval-store-at", None, "paraval_store")
    is_asked = getattr(config.option, dest_of("--paraval-store"), None) is not None
    if at is not None and at.text.lower() not in ("true", "false"):
        return _path(config, at)
    if not is_asked and (at is None or at.text.lower() == "false"):
        if getattr(config.option, dest_of(FAIL_UNDER), None) is not None:
            raise pytest.UsageError(f"{FAIL_UNDER} needs --paraval-store: it judges a recorded run")
        return None
    # Only here: most sessions record nothing.
    from paraval.settings import default_store

    return default_store(config.rootpath, environ)


def _count(told: _OptionText) -> int:
    if not told.text.isdecimal() or int(told.text) > MOST_AT_ONCE:
        raise pytest.UsageError(
            f"{told.where}: how many tests run at once is a number from 0 to {MOST_AT_ONCE}, or "
            f"auto; not {told.text!r}"
        )
    return int(told.text)


def _form(told: _OptionText) -> ProgressForm:
    try:
        return ProgressForm(told.text)
    except ValueError:
        forms = ", ".join(ProgressForm)
        raise pytest.UsageError(f"{told.where}: one of {forms}; not {told.text!r}") from None


def _names(told: _OptionText) -> tuple[str, ...]:
    names = tuple(name.strip() for name in told.text.split(",") if name.strip())
    if not names:
        raise pytest.UsageError(f"{told.where}: names of models (a,b) or all; not {told.text!r}")
    return () if names == ("all",) else names


def _path(config: pytest.Config, told: _OptionText) -> Path:
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
