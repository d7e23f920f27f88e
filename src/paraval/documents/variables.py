"""Environment variables in files: `${NAME}` in a suite, and the `.env` file beside it.

The variables of a `.env` file are part of this process's environment while the suite is loaded and
while it runs. They are not stored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.files import read_text
from paraval.documents.problems import Location

ENV_FILE = ".env"
NOT_FILLED_IN = frozenset(("command", "setup"))
"""Keys whose texts are programs: a shell has its own variables."""

_REFERENCE = re.compile(r"(\$?)\$\{([A-Z_][A-Z0-9_]*)(?::-([^{}]*))?\}")
"""In capital letters: `${input}` is a dollar sign and a template's field."""
_WORD = re.compile(r"(?P<bool>true|false)|(?P<int>-?\d+)|(?P<float>-?\d+\.\d+)")

_LINE = re.compile(
    r"""[ \t]*(?:(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.-]*)[ \t]*=[ \t]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s'"\#][^\n]*?)?)[ \t]*)?
    (?:(?<![^\s=])\#[^\n]*)?\r?(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
"""An entry, whose quoted value may have several lines, a comment, or nothing."""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


# ---- a .env file


def env_file_of(folder: Path, problems: Location | None = None) -> dict[str, str]:
    """Read the `.env` file in a folder; empty if there is none. Messages never show its values."""
    path = folder / ENV_FILE
    if not path.is_file():
        return {}
    spot = Location(problems={}) if problems is None else problems
    text = read_text(path, spot) or ""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        entry = _LINE.match(text, at)
        if entry is None:
            line = text.count("\n", 0, at) + 1
            replace(spot, line=line).report("must be NAME=value, a comment or an empty line")
        elif entry["name"] is not None and "\0" not in entry[0]:
            found[entry["name"]] = _value(entry)
        at = entry.end() if entry else (text.find("\n", at) + 1 or len(text))
    return found


def _value(entry: re.Match[str]) -> str:
    if entry["double"] is not None:
        return _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), entry["double"])
    return entry["single"] if entry["single"] is not None else (entry["bare"] or "").rstrip()


@contextmanager
def env_file(folder: Path | None, problems: Location | None = None) -> Iterator[None]:
    """While active, the environment has the variables of the folder's `.env` file that it lacks."""
    found = {} if folder is None else env_file_of(folder, problems)
    added = {name: value for name, value in found.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


# ---- references in a suite


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """How `${NAME}` is filled in."""

    names_a_secret: Callable[[str], bool]
    """Variables of such names must not become part of a suite."""
    axes: frozenset[str] = frozenset()
    """Names that templates have: `${COST}` is a dollar sign and the field of this axis."""

    def filled(self, value: Any, spot: Location) -> Any:
        """Return data with the references in its texts filled in; report those that cannot be."""
        match value:
            case str() if "${" in value:
                return self._text(value, spot)
            case Mapping():
                return {key: self._inside(key, inner, spot) for key, inner in value.items()}
            case list():
                return [self.filled(inner, spot.at(number)) for number, inner in enumerate(value)]
        return value

    def _inside(self, key: Any, value: Any, spot: Location) -> Any:
        if key in NOT_FILLED_IN and not isinstance(value, Mapping):
            return value
        return self.filled(value, spot.at(str(key)))

    def _text(self, text: str, spot: Location) -> Any:
        filled = _REFERENCE.sub(lambda found: self._variable(found, spot), text)
        whole = _REFERENCE.fullmatch(text)
        word = _WORD.fullmatch(filled) if whole and not whole[1] else None
        # As if it were written there.
        match word and word.lastgroup:
            case "bool":
                return filled == "true"
            case "int":
                return int(filled)
            case "float":
                return float(filled)
        return filled

    def _variable(self, found: re.Match[str], spot: Location) -> str:
        escape, name, default = found.groups()
        if escape or name in self.axes:
            return found[0].removeprefix("$") if escape else found[0]
        if self.names_a_secret(name):
            spot.report(
                f"${{{name}}} looks like a secret, which must not be part of a suite; name the"
                f" variable: api_key_env: {name} for a model, pass_env: [{name}] for a command"
            )
        elif name in os.environ:
            return os.environ[name]
        elif default is None:
            spot.report(
                f"${{{name}}} is not set, neither in the environment nor in {ENV_FILE} beside the"
                f" suite; set it, or write ${{{name}:-DEFAULT}} (and $${{ for a literal ${{)"
            )
        return default or ""
