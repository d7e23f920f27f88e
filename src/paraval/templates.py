"""Templates: `{input.question}` in a command, filled in for each attempt.

The plan checks them against every case when a suite is loaded; the targets fill them in when an
attempt starts. Both use this one reading of them, so that what was checked is what runs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from paraval.errors import ParavalError
from paraval.records import Scalar

FIXED_FIELDS = ("input", "case.id", "repeat", "folder", "python")
"""The fields that every trial has, beside its axes."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_BRACES = "write {{ and }} for braces that are meant as they stand"


class TemplateError(ParavalError):
    """A template that cannot be read, or a field in it that a trial does not have."""


@dataclass(frozen=True, slots=True)
class Field:
    """A place in a template that is filled in: `input.question`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFields:
    """What one attempt fills into templates."""

    input: Any
    case_id: str
    repeat: int
    folder: str
    """The attempt's own scratch folder."""
    variant: Mapping[str, Scalar] = field(default_factory=dict)
    python: str = sys.executable
    workspace: str | None = None
    """Where the attempt runs; None: it has no place of its own, and no such field."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """What only some templates know, by name; an axis of the same name stands back."""


def fill(template: str, fields: TemplateFields) -> str:
    """The template with every field replaced by its value."""
    return "".join(
        piece if isinstance(piece, str) else as_text(field_value(piece.name, fields))
        for piece in parse(template)
    )


@lru_cache(maxsize=1024)
def parse(template: str) -> tuple[str | Field, ...]:
    """The template's pieces: literal text, and the fields between it."""
    pieces: list[str | Field] = []
    end = 0
    for token in _TOKEN.finditer(template):
        pieces.append(template[end : token.start()])
        pieces.append(_piece(token))
        end = token.end()
    pieces.append(template[end:])
    return tuple(piece for piece in pieces if piece != "")


def field_names(template: str) -> tuple[str, ...]:
    """The fields that a template asks for, each once, in order."""
    return tuple(dict.fromkeys(piece.name for piece in parse(template) if isinstance(piece, Field)))


def escaped_names(template: str) -> Iterator[tuple[str, int]]:
    """What stands in double braces, which make plain text of it, and where."""
    before: re.Match[str] | None = None
    for token in _TOKEN.finditer(template):
        if before is not None and (before[0], token[0]) == ("{{", "}}"):
            yield template[before.end() : token.start()].strip(), before.start()
        before = token


def field_value(name: str, fields: TemplateFields) -> Any:
    """What a field stands for; TemplateError where the trial has no such field."""
    if name in fields.extra:
        return fields.extra[name]
    if name in fields.variant:
        return fields.variant[name]
    match name:
        case "workspace" if fields.workspace is not None:
            return fields.workspace
        case "input" if fields.input is not None:
            return fields.input
        case "case.id":
            return fields.case_id
        case "repeat":
            return fields.repeat
        case "folder":
            return fields.folder
        case "python":
            return fields.python
    if name.startswith("input."):
        return input_value(fields.input, name.removeprefix("input."))
    raise TemplateError(f"there is no field {{{name}}}")


def input_value(given: Any, path: str) -> Any:
    """What `{input.path}` stands for: keys of mappings and positions in lists, joined by dots."""
    found = given
    for part in path.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list | tuple) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            raise TemplateError(f"there is no field {{input.{path}}}")
    return found


def as_text(value: Any) -> str:
    """A value as it stands in a filled template: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def named_paths(words: Iterable[str], fields: TemplateFields) -> Iterator[str]:
    """The files and folders of this machine that the words of a command, or its variables, name:
    each as a whole word, after a `=`, or in a list with colons.

    A file that is named as it stands, such as a script, comes with its folder; one that a field
    stands for, such as a case's, by itself.
    """
    for word in words:
        text = _fill_known(word, fields)
        for part in {text, text.partition("=")[2], *text.split(":")}:
            if not part.startswith("/") or "\0" in part or not os.path.lexists(part):
                continue
            path = os.path.normpath(part)
            yield path
            beside = os.path.dirname(path)  # noqa: PTH120 - text
            # A whole home is more than what comes with a script.
            if text == word and os.path.isfile(path) and beside != os.path.expanduser("~"):  # noqa: PTH113, PTH111
                yield beside


def _fill_known(template: str, fields: TemplateFields) -> str:
    """Without the fields that only some templates have."""
    known = []
    for piece in parse(template):
        if isinstance(piece, str):
            known.append(piece)
            continue
        with suppress(TemplateError):
            known.append(as_text(field_value(piece.name, fields)))
    return "".join(known)


def _piece(token: re.Match[str]) -> str | Field:
    if token[0] in ("{{", "}}"):
        return token[0][0]
    if token[1] is None:
        raise TemplateError(f"a lone '{token[0]}' at character {token.start() + 1}", hint=_BRACES)
    name = token[1].strip()
    if not name:
        raise TemplateError("a field without a name: {}", hint=_BRACES)
    return Field(name)
