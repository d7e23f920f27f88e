"""Answers to a shell that completes a command line: which words could come next.

Loading a command takes longer than anyone waits after pressing Tab. So the names of all options are
kept in a file in the user's cache, and commands that only know those are made from it. No code of a
user's runs here, and an error is silence.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

import paraval
from paraval.settings import default_store

VARIABLE = "_PARAVAL_COMPLETE"
"""Where the shell's script says what it wants, as click names it."""
PROGRAM = "paraval"
MOST_ITEMS = 200
MOST_CASES = 10_000
MOST_BYTES = 5_000_000
DEFAULT_SUITES = ("suite.yaml", "suite.yml", "suite.toml", "suite.json")
SUITE_ENDINGS = (".html", ".json", ".jsonl", ".csv", ".md", ".junit.xml")
RACE_ENDINGS = (".json", ".md", ".txt", ".patch")

Words = Iterable[str]
Described = Mapping[str, Any]


def answer(instruction: str, program: click.Group) -> int:
    """Print what the shell asked for, and return the exit code; print nothing if that fails."""
    with contextlib.suppress(Exception):
        return shell_complete(
            _quick_command(_described(program)), {}, PROGRAM, VARIABLE, instruction
        )
    return 1


# ---- the commands, as far as completion needs them


def refresh(program: click.Command) -> None:
    """Write the file of all options, so that the first Tab is quick."""
    with contextlib.suppress(OSError):
        _described(program)


def _described(program: click.Command) -> Described:
    """All commands: from the file, or from the commands themselves if they have changed."""
    file, state = _cache_file(), _state_of_code()
    with contextlib.suppress(OSError, ValueError, KeyError):
        kept = json.loads(file.read_bytes())
        if kept["state"] == state:
            described: Described = kept["command"]
            return described
    described = _description(program, click.Context(program, info_name=PROGRAM))
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({"state": state, "command": described}))
        new.replace(file)
    return described


def _cache_file() -> Path:
    """One for each place where paraval is installed."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", PROGRAM)
    place = hashlib.sha256(os.fsencode(Path(__file__).parent)).hexdigest()[:8]
    return folder / f"completion-{place}.json"


def _state_of_code() -> str:
    """Changes with any module that declares a command."""
    folder = Path(__file__).parent
    modules = sorted([*folder.glob("*.py"), *folder.glob("commands/*.py")])
    times = ((module.name, module.stat().st_mtime_ns) for module in modules)
    return hashlib.sha256(repr((paraval.__version__, *times)).encode()).hexdigest()


def _description(command: click.Command, context: click.Context) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": command.name,
        "help": command.get_short_help_str(),
        "parameters": [_parameter(one) for one in command.get_params(context)],
    }
    if isinstance(command, click.Group):
        found = (command.get_command(context, name) for name in command.list_commands(context))
        described["commands"] = [
            _description(one, click.Context(one, parent=context))
            for one in found
            if one is not None
        ]
    return described


def _parameter(parameter: click.Parameter) -> dict[str, Any]:
    kind = parameter.type
    described = {
        "name": parameter.name,
        "declared": [*parameter.opts, *parameter.secondary_opts],
        "nargs": parameter.nargs,
        "choices": list(kind.choices) if isinstance(kind, click.Choice) else None,
        "is_path": isinstance(kind, click.Path),
        "takes_files": not isinstance(kind, click.Path) or kind.file_okay,
    }
    if isinstance(parameter, click.Option):
        described |= {
            "is_flag": parameter.is_flag,
            "value_is_optional": not parameter.is_flag and parameter.flag_value == "",
            "multiple": parameter.multiple,
            "help": parameter.help,
        }
    return described


def _quick_command(described: Described) -> click.Command:
    parameters = [_quick_parameter(one) for one in described["parameters"]]
    common: dict[str, Any] = {
        "name": described["name"],
        "params": parameters,
        "short_help": described["help"],
        "add_help_option": False,
    }
    if "commands" not in described:
        return click.Command(**common)
    commands = [_quick_command(one) for one in described["commands"]]
    return click.Group(**common, commands=commands)


def _quick_parameter(described: Described) -> click.Parameter:
    kind: Any = str
    if described["choices"] is not None:
        kind = click.Choice(described["choices"])
    elif described["is_path"]:
        kind = click.Path(file_okay=described["takes_files"])
    completer = _COMPLETERS.get(described["name"])
    common: dict[str, Any] = {
        "type": kind,
        "nargs": described["nargs"],
        "shell_complete": None if completer is None else _silenced(completer),
    }
    if "is_flag" not in described:
        return click.Argument([described["name"]], required=False, **common)
    names = [described["name"], *described["declared"]]
    more: dict[str, Any] = {"multiple": described["multiple"], "help": described["help"]}
    if described["is_flag"]:
        return click.Option(names, is_flag=True, help=described["help"])
    if described["value_is_optional"]:
        more |= {"is_flag": False, "flag_value": ""}
    return click.Option(names, **common, **more)


# ---- what values may be

Completer = Callable[[click.Context, str], Words]


def _silenced(
    completer: Completer,
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """As click calls it; words that do not fit are left out, and an error is no words."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        items: list[CompletionItem] = []
        with contextlib.suppress(Exception):
            words = (one for one in completer(context, incomplete) if one.startswith(incomplete))
            items += map(CompletionItem, itertools.islice(dict.fromkeys(words), MOST_ITEMS))
        if parameter.name in _OR_FILES:
            items.append(CompletionItem(incomplete, type="file"))
        return items

    return complete


def _runs(context: click.Context, _incomplete: str) -> Words:
    """`last`, `last~1`, and the ids of runs, newest first."""
    ids = _run_ids(context)
    return [*["last", "last~1"][: len(ids)], *ids]


def _run_ids(context: click.Context) -> list[str]:
    return sorted((one.name for one in os.scandir(_runs_folder(context))), reverse=True)


def _runs_folder(context: click.Context) -> Path:
    return Path(context.params.get("store") or default_store()) / "runs"


def _cases(context: click.Context, _incomplete: str) -> Words:
    """Of the run that `logs`, `diff` and `regrade` are about, else of the suite."""
    if context.info_name in ("logs", "diff", "regrade"):
        given = context.params.get("run") or next(iter(context.args), "last")
        run = _run_ids(context)[0] if given == "last" else given
        import sqlite3  # noqa: PLC0415 - only here

        file = f"file:{_runs_folder(context) / run / 'run.db'}?mode=ro"
        with contextlib.closing(sqlite3.connect(file, uri=True)) as database:
            return [str(row[0]) for row in database.execute("SELECT id FROM case_")]
    return (str(case["id"]) for case in _cases_of(context) if case.get("id"))


def _tags(context: click.Context, _incomplete: str) -> Words:
    for case in _cases_of(context):
        tags = case.get("tags") or []
        yield from map(str, tags if isinstance(tags, list) else tags.replace(",", " ").split())


def _models(context: click.Context, incomplete: str) -> Words:
    """Names with commas between: the last of them is completed."""
    before, comma, _ = incomplete.rpartition(",")
    named = before.split(",")
    names = [*_models_of(context), *([] if comma else ["all"])]
    return [f"{before}{comma}{name}" for name in names if name not in named]


def _variants(context: click.Context, _incomplete: str) -> Words:
    matrix = _suite_of(context).get("matrix") or {}
    for axis, values in matrix.items():
        yield from (f"{axis}={value}" for value in values)
    if "model" not in matrix:
        yield from (f"model={name}" for name in _models_of(context))


def _outputs(context: click.Context, incomplete: str) -> Words:
    """The name so far with each ending that a report may have."""
    is_race = "race" in (context.info_name, context.params.get("what"), *context.args)
    folder, slash, name = incomplete.rpartition("/")
    stem = name.partition(".")[0]
    stem = stem or ("race" if is_race else "report")
    endings = RACE_ENDINGS if is_race else SUITE_ENDINGS
    return [f"{folder}{slash}{stem}{ending}" for ending in endings]


_COMPLETERS: Mapping[str, Completer] = {
    "run": _runs,
    "resume": _runs,
    "baseline": _runs,
    "names": _runs,
    "case": _cases,
    "cases": _cases,
    "suite": lambda _context, _incomplete: (),
    "tags": _tags,
    "models": _models,
    "variants": _variants,
    "outputs": _outputs,
}
"""By the name that a command has for its option or argument."""
_OR_FILES = ("baseline", "names", "outputs", "suite")


# ---- suites, read without checks and without imports


def _suite_of(context: click.Context) -> Mapping[str, Any]:
    suite = _document(_suite_path(context))
    return suite if isinstance(suite, Mapping) else {}


def _suite_path(context: click.Context) -> Path:
    # click leaves arguments unassigned if the last option has no value yet.
    several = (*(context.params.get("suites") or ()), *context.args)
    given = context.params.get("suite") or next(iter(several), None)
    return Path(given or next(name for name in DEFAULT_SUITES if Path(name).is_file()))


def _models_of(context: click.Context) -> Words:
    models = _suite_of(context).get("models") or {}
    if isinstance(models, str):
        models = _document(_suite_path(context).parent / models)
    return list(models)


def _cases_of(context: click.Context) -> Iterator[Mapping[str, Any]]:
    found = _cases_in(_suite_of(context).get("cases"), _suite_path(context).parent)
    return itertools.islice(found, MOST_CASES)


def _cases_in(written: Any, folder: Path) -> Iterator[Mapping[str, Any]]:
    """Those of a list, of files by their name or pattern, or of a mapping that names a file."""
    match written:
        case str():
            for name in sorted(glob.glob(written, root_dir=folder)):  # noqa: PTH207 - may be absolute
                yield from _cases_of_file(folder / name)
        case list():
            for one in written:
                yield from _cases_in(one, folder)
        case {"file": str(name)}:
            yield from _cases_in(name, folder)
        case {"cases": list(cases)}:
            yield from _cases_in(cases, folder)
        case Mapping():
            yield written


def _cases_of_file(path: Path) -> Iterator[Mapping[str, Any]]:
    match path.suffix.lower():
        case ".jsonl":
            with path.open(encoding="utf-8-sig") as lines:
                yield from (json.loads(line) for line in lines if line.strip())
        case ".csv":
            with path.open(encoding="utf-8-sig", newline="") as lines:
                yield from csv.DictReader(lines)
        case ".md" | ".txt":
            yield {"id": path.stem}
        case _:
            yield from _cases_in(_document(path), path.parent)


def _document(path: Path) -> Any:
    """A file's data, every YAML scalar as its text."""
    if path.stat().st_size > MOST_BYTES:
        return None
    content = path.read_bytes()
    match path.suffix.lower():
        case ".json":
            return json.loads(content)
        case ".toml":
            import tomllib  # noqa: PLC0415 - few need it, and everyone waits for it

            return tomllib.loads(content.decode())
        case _:
            import yaml  # noqa: PLC0415

            # The fast one, if there is one; both know no types but text, lists and mappings.
            loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
            return yaml.load(content, Loader=loader)  # noqa: S506 - it makes no objects
