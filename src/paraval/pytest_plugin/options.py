"""The plugin's flags and ini keys, and the options that a user set with them.

A flag overrides an environment variable, which overrides the ini file. If a user's conftest or
plugin defines a flag with the same name, that one stays, and ours is only available through its
variable or ini key.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import pytest

FAIL_UNDER = "--paraval-fail-under"

FLAGS = (
    (
        "--parallel",
        "N",
        (
            "run tests in N worker processes (auto, or no N: as many as the machine can handle; 0 "
            "or 1: one after another, here). Also PARALLEL_WORKERS=N, or parallel = N in the ini "
            "file"
        ),
    ),
    (
        "--parallel-progress",
        "FORM",
        (
            "auto: a status line at the bottom of a terminal; lines: one line per test, with an "
            "ETA, for logs; none: nothing"
        ),
    ),
    (
        "--parallel-start",
        "FORM",
        (
            "how workers start: fork (at once, with everything that was collected) or exec (each "
            "collects by itself; where threads or macOS make forking unsafe)"
        ),
    ),
    (
        "--no-recheck",
        None,
        (
            "don't run tests that failed beside others once more alone at the end (their result "
            "stays; it is only said whether they passed)"
        ),
    ),
    (
        "--models",
        "NAMES",
        (
            "run each test that uses the fixture `model` with these models from the registry: a,b "
            "or all. Also TEST_MODELS=a,b"
        ),
    ),
    (
        "--models-file",
        "FILE",
        (
            "the model registry: --models-file=FILE (default: models.yaml in the rootdir or a test "
            "folder)"
        ),
    ),
    (
        "--paraval-store",
        None,
        (
            "record this run in the store, for `paraval report` and to detect flaky tests (in "
            "PARAVAL_STORE, or .paraval in the rootdir or above it)"
        ),
    ),
    ("--paraval-store-at", "FOLDER", "record this run in FOLDER: --paraval-store-at=FOLDER"),
    (
        FAIL_UNDER,
        "RATE",
        (
            "exit code 0 if a recorded run's pass rate is at least RATE, 0 to 1. Errors don't "
            "count as failed tests"
        ),
    ),
)
"""Their names, what they take (None: nothing) and their help."""
_WITHOUT_VALUE = {"--parallel": "auto", "--models": ""}
"""A user's conftest may define these flags without a value, and pytest parses the flags once before
it loads any conftest: ours must accept that."""
INI_KEYS = (
    ("parallel", "how many workers run tests: a number, or auto"),
    ("parallel_shared", "session fixtures, such as servers, that all workers share: a, b"),
    ("parallel_progress", "auto, lines or none"),
    ("paraval_models", "models for the fixture `model`: a,b or all"),
    ("paraval_models_file", "the model registry"),
    ("paraval_store", "true, or the folder to record every run in"),
    ("paraval_fail_under", "the pass rate that a recorded run needs for exit code 0"),
    ("paraval_suite", "the name of the runs in the store (default: the rootdir's name)"),
)


def dest_of(flag: str) -> str:
    """Return the attribute that holds the flag's value, a name no other plugin uses."""
    return "paraval_flag_" + flag.removeprefix("--").replace("-", "_")


def add_flags(parser: pytest.Parser) -> None:
    group = parser.getgroup("paraval", "parallel tests (paraval)")
    taken = _foreign_flags(parser)
    for flag, takes, text in FLAGS:
        kind: dict[str, Any] = {"metavar": takes}
        if takes is None:
            kind = {"action": "store_const", "const": ""}
        elif flag in _WITHOUT_VALUE:
            kind |= {"nargs": "?", "const": _WITHOUT_VALUE[flag]}
        if flag not in taken:
            group.addoption(flag, dest=dest_of(flag), default=None, help=text, **kind)
    for key, words in INI_KEYS:
        if key not in parser._inidict:
            parser.addini(key, words, default="")
    _give_way(parser)


def written_in_ini(config: pytest.Config, key: str) -> str:
    """Return the key's value, or an empty string if another plugin defined the key."""
    # pytest silently lets the last definition of a key win.
    words, *_ = config._parser._inidict[key]
    return str(config.getini(key)).strip() if (key, words) in INI_KEYS else ""


def _foreign_flags(parser: pytest.Parser) -> set[str]:
    groups = (*parser._groups, parser._anonymous)
    options = [option for group in groups for option in group.options]
    return {name for option in options for name in option.names() if option.dest != dest_of(name)}


def _give_way(parser: pytest.Parser) -> None:
    """Drop our flag when another plugin defines one of the same name.

    Otherwise argparse would fail, and break a pytest that worked before this plugin was installed.
    argparse can let the later definition win; only our own flags may be dropped.
    """
    if hasattr(parser, "_getparser"):
        _give_way_when_built(parser)
        return
    container: Any = argparse._ActionsContainer
    container._handle_conflict_giving_way = _let_ours_go
    for one in (parser.optparser, *(group._arggroup for group in parser._groups)):
        one.conflict_handler = "giving_way"


def _give_way_when_built(parser: Any) -> None:
    """Do the same for pytest 8, which builds argparse's parser from its options on every parse."""
    build = parser._getparser

    def build_with_ours_gone() -> argparse.ArgumentParser:
        taken = _foreign_flags(parser)
        group = parser.getgroup("paraval")
        group.options[:] = [one for one in group.options if taken.isdisjoint(one.names())]
        return build()  # type: ignore[no-any-return]  # from a pytest version that is not installed

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


# ---- the chosen options


MOST_AT_ONCE = 1000
AUTO_AT_MOST = 32
"""The most workers with `auto`, while the machine is not under pressure."""


class ProgressForm(StrEnum):
    """How progress is shown in addition to pytest's own reporter."""

    AUTO = "auto"
    """A status line at the bottom of a terminal; nothing in a log."""
    LINES = "lines"
    """`[ 3/20] ✓ test_basic  1.9 s  (ETA 8 s)` for each test, instead of pytest's own dots."""
    NONE = "none"


class StartForm(StrEnum):
    """How workers start."""

    FORK = "fork"
    EXEC = "exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """All options of the plugin."""

    parallel: int = 0
    """The number of workers; 0 and 1 mean plain pytest."""
    auto: bool = False
    """True: as many as the machine can handle, up to `parallel`."""
    start: StartForm | None = None
    """None: they are forked, if that is safe."""
    shared: tuple[str, ...] = ()
    """Session fixtures that exist once for all workers."""
    recheck: bool = True
    """Whether tests that failed beside others are run once more alone."""
    progress: ProgressForm = ProgressForm.AUTO
    store: Path | None = None
    """Where every run is recorded; None: runs are not recorded."""
    models: tuple[str, ...] | None = None
    """Names from the registry; empty: all of them; None: the first one."""
    registry: Path | None = None
    """The registry file; None: search for it."""

    @property
    def is_parallel(self) -> bool:
        return self.parallel > 1


OPTIONS = pytest.StashKey[PluginOptions]()
"""The key of the options in a session's configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionText:
    """A value and where it was set, for error messages."""

    text: str
    where: str


def read_options(config: pytest.Config, environ: Mapping[str, str]) -> PluginOptions:
    """Read the options; raises pytest.UsageError for invalid values."""
    parallel = _option_text(config, environ, "--parallel", "PARALLEL_WORKERS", "parallel")
    progress = _option_text(config, environ, "--parallel-progress", None, "parallel_progress")
    start = _option_text(config, environ, "--parallel-start", None, "")
    models = _option_text(config, environ, "--models", "TEST_MODELS", "paraval_models")
    registry = _option_text(config, environ, "--models-file", None, "paraval_models_file")
    auto = parallel is not None and parallel.text.lower() == "auto"
    return PluginOptions(
        parallel=0 if parallel is None else AUTO_AT_MOST if auto else _count(parallel),
        auto=auto,
        start=None if start is None else _form(start, StartForm),
        shared=tuple(written_in_ini(config, "parallel_shared").replace(",", " ").split()),
        recheck=getattr(config.option, dest_of("--no-recheck"), None) is None,
        progress=ProgressForm.AUTO if progress is None else _form(progress, ProgressForm),
        models=None if models is None else _names(models),
        registry=None if registry is None else _path(config, registry),
        store=_store(config, environ),
    )


def _option_text(
    config: pytest.Config, environ: Mapping[str, str], flag: str, variable: str | None, key: str
) -> _OptionText | None:
    given = getattr(config.option, dest_of(flag), None)
    if given is not None:
        return _OptionText(text=str(given).strip(), where=flag)
    if variable is not None and environ.get(variable, "").strip():
        return _OptionText(text=environ[variable].strip(), where=variable)
    written = written_in_ini(config, key) if key else ""
    return _OptionText(text=written, where=f"{key} in the ini file") if written else None


def _store(config: pytest.Config, environ: Mapping[str, str]) -> Path | None:
    at = _option_text(config, environ, "--paraval-store-at", None, "paraval_store")
    is_asked = getattr(config.option, dest_of("--paraval-store"), None) is not None
    if at is not None and at.text.lower() not in ("true", "false"):
        return _path(config, at)
    if not is_asked and (at is None or at.text.lower() == "false"):
        if getattr(config.option, dest_of(FAIL_UNDER), None) is not None:
            raise pytest.UsageError(
                f"{FAIL_UNDER} needs --paraval-store: it applies to recorded runs"
            )
        return None
    # Only here: most sessions record nothing.
    from paraval.settings import default_store

    return default_store(config.rootpath, environ)


def _count(option: _OptionText) -> int:
    if not option.text.isdecimal() or int(option.text) > MOST_AT_ONCE:
        is_path = option.where == "--parallel" and Path(option.text.partition("::")[0]).exists()
        hint = " (before a path, write --parallel=auto)" if is_path else ""
        raise pytest.UsageError(
            f"{option.where}: expected a number of workers from 0 to {MOST_AT_ONCE}, or auto; "
            f"got {option.text!r}{hint}"
        )
    return int(option.text)


F = TypeVar("F", bound=StrEnum)


def _form(option: _OptionText, kind: type[F]) -> F:
    try:
        return kind(option.text)
    except ValueError:
        forms = ", ".join(kind)
        raise pytest.UsageError(
            f"{option.where}: expected one of {forms}; got {option.text!r}"
        ) from None


def _names(option: _OptionText) -> tuple[str, ...]:
    names = tuple(name.strip() for name in option.text.split(",") if name.strip())
    if not names:
        raise pytest.UsageError(
            f"{option.where}: expected model names (a,b) or all; got {option.text!r}"
        )
    return () if names == ("all",) else names


def _path(config: pytest.Config, option: _OptionText) -> Path:
    """Resolve a path: a flag's from the working directory, an ini key's from the rootdir.

    pytest determines its rootdir before it knows the flags of plugins, and treats an existing path
    after such a flag as a path with tests.
    """
    if option.where in config.invocation_params.args and Path(option.text).expanduser().exists():
        raise pytest.UsageError(
            f"write {option.where}={option.text} (with =): after a space, pytest treats an "
            "existing path as one with tests, and looks for its rootdir there"
        )
    base = config.invocation_params.dir if option.where.startswith("--") else config.rootpath
    return (base / Path(option.text).expanduser()).absolute()
