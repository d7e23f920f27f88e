"""The plugin's flags and ini keys. Where a user's conftest or plugin has one of the same name, that
one stays, and ours is to be had by its variable or its key only."""

from __future__ import annotations

import argparse
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
            "tests (in PARAVAL_STORE, or .paraval in the rootdir)",
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
