"""Templates: `{input.question}` in a command or a shell script, filled in for each attempt.

The plan checks them against every case when a suite is loaded; the targets fill them in when an
attempt starts. Both use this parser, so what was checked is what runs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from functools import lru_cache
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import ParavalError
from paraval.records import Case, Scalar
from paraval.templates.jinja import MARK, names_in, render

FIXED_FIELDS = ("input", "case.id", "repeat", "folder", "python")
"""Fields that every trial has, in addition to its axes."""

JINJA = MARK
"""How a Jinja template begins; its names are input, case, metadata, repeat and the axes."""
JINJA_NAMES = ("input", "case", "metadata", "repeat")
PLAIN_FIELD = "paraval_field"
"""The function that gives a field's value where a plain text was inserted into Jinja."""

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_BRACES = "write {{ and }} for literal braces"


class TemplateError(ParavalError):
    """A template with a syntax error, or with a field that a trial does not have."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field in a template: `input.question`."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFields:
    """The values for the fields of one attempt's templates."""

    input: Any
    case_id: str
    repeat: int
    folder: str
    """The attempt's own scratch folder."""
    variant: Mapping[str, Scalar] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    workspace: str | None = None
    """The attempt's workspace; None: there is no such field."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Fields that only some templates have; they take precedence over axes."""


NO_FIELDS = TemplateFields(input=None, case_id="", repeat=0, folder="")


def fields_of_case(case: Case, variant: Mapping[str, Scalar], *, repeat: int = 1) -> TemplateFields:
    """The fields that are known before there is an attempt."""
    return TemplateFields(
        input=case.input,
        case_id=case.id,
        repeat=repeat,
        folder="",
        variant=variant,
        metadata=case.metadata,
    )


def fill(template: str, fields: TemplateFields) -> str:
    """Return the template with every field replaced by its value."""
    if is_jinja(template):
        return render(template, _jinja_values(fields), as_text)
    return "".join(
        [
            piece if isinstance(piece, str) else as_text(field_value(piece.name, fields))
            for piece in parse(template)
        ]
    )


@lru_cache(maxsize=1024)
def parse(template: str) -> tuple[str | Field, ...]:
    """Split a template into literal text and fields; a Jinja template is one piece."""
    if is_jinja(template):
        return (template,)
    pieces: list[str | Field] = []
    end = 0
    for token in _TOKEN.finditer(template):
        pieces.append(template[end : token.start()])
        pieces.append(_piece(token))
        end = token.end()
    pieces.append(template[end:])
    return tuple(piece for piece in pieces if piece != "")


def field_names(template: str) -> tuple[str, ...]:
    """Return the fields that a template uses, each once, in order."""
    if is_jinja(template):
        return names_in(template)
    return tuple(dict.fromkeys(piece.name for piece in parse(template) if isinstance(piece, Field)))


def escaped_names(template: str) -> Iterator[tuple[str, int]]:
    """Return the texts in double braces (which make them literal), and their positions."""
    before: re.Match[str] | None = None
    for token in _TOKEN.finditer(template):
        if before is not None and (before[0], token[0]) == ("{{", "}}"):
            yield template[before.end() : token.start()].strip(), before.start()
        before = token


def field_value(name: str, fields: TemplateFields) -> Any:
    """Return the value of a field; TemplateError if the trial has no such field."""
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
        return part_of(fields.input, name)
    if name.startswith("metadata."):
        return part_of(fields.metadata, name)
    raise TemplateError(f"unknown field {{{name}}}")


def part_of(given: Any, name: str) -> Any:
    """Return the value of `{input.path}` or `{metadata.path}`: mapping keys and list positions,
    joined by dots."""
    found = given
    for part in name.split(".")[1:]:
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list | tuple) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            raise TemplateError(f"unknown field {{{name}}}")
    return found


DEFAULT_CONTEXT = "metadata.context|input.context"
"""Where a judge's context is by default; the first one that a case has."""


def context_of(case: Case, paths: str) -> Any:
    """Return the value of the first of these fields that a case has; None if it has none."""
    for path in paths.split("|"):
        with suppress(TemplateError):
            found = part_of(case.metadata if path.startswith("metadata.") else case.input, path)
            if found not in (None, "", [], {}):
                return found
    return None


def as_text(value: Any) -> str:
    """Return a value as inserted into a template: text unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def named_paths(words: Iterable[str], fields: TemplateFields) -> Iterator[str]:
    """Return the local files and folders that a command's words or variables name: each as a whole
    word, after a `=`, or in a list with colons.

    A file named literally, such as a script, brings its folder along; one from a field, such as a
    case's, does not.
    """
    for word in words:
        text = _fill_known(word, fields)
        for part in {text, text.partition("=")[2], *text.split(":")}:
            if not part.startswith("/") or "\0" in part or not os.path.lexists(part):
                continue
            path = os.path.normpath(part)
            yield path
            beside = os.path.dirname(path)  # noqa: PTH120 - text
            # Don't add a whole home folder just because a script is in it.
            if text == word and os.path.isfile(path) and beside != os.path.expanduser("~"):  # noqa: PTH113, PTH111
                yield beside


def _fill_known(template: str, fields: TemplateFields) -> str:
    """Remove the fields that only some templates have."""
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
        raise TemplateError(
            f"unmatched '{token[0]}' at character {token.start() + 1}", hint=_BRACES
        )
    name = token[1].strip()
    if not name:
        raise TemplateError("empty field: {}", hint=_BRACES)
    return Field(name)


# Jinja templates, and texts that are inserted into templates.


def escaped(text: str) -> str:
    """Return a text as a template that gives just that."""
    return text.replace("{", "{{").replace("}", "}}")


def is_jinja(template: str) -> bool:
    return template.startswith(JINJA)


def _jinja_values(fields: TemplateFields) -> dict[str, Any]:
    case = {"id": fields.case_id, "metadata": fields.metadata}
    own: dict[str, Any] = {"case": case, "metadata": fields.metadata, "repeat": fields.repeat}
    if fields.input is not None:
        own["input"] = case["input"] = fields.input
    own[PLAIN_FIELD] = lambda name: field_value(name, fields)
    return {**fields.variant, **own}


def insert(template: str, texts: Mapping[str, str]) -> str:
    """Insert texts where a template names them; they and the result are templates."""
    names = [name for name in field_names(template) if name in texts]
    if is_jinja(template):
        given = (f"{{% set {name} %}}{_as_jinja(texts[name])}{{% endset %}}" for name in names)
        return f"{JINJA}{''.join(given)}{template}" if names else template
    if not any(is_jinja(texts[name]) for name in names):
        return _TOKEN.sub(lambda token: texts.get((token[1] or "").strip(), token[0]), template)
    pieces = parse(template)
    return JINJA + "".join(
        _as_jinja(texts[piece.name])
        if isinstance(piece, Field) and piece.name in texts
        else _piece_as_jinja(piece)
        for piece in pieces
    )


def literal(text: str) -> str:
    """Return a text as a part of a Jinja template that prints just that."""
    return _piece_as_jinja(text)


def _as_jinja(template: str) -> str:
    return template if is_jinja(template) else "".join(map(_piece_as_jinja, parse(template)))


def _piece_as_jinja(piece: str | Field) -> str:
    if isinstance(piece, Field):
        return f"{{{{ {PLAIN_FIELD}({json.dumps(piece.name)}) }}}}"
    return f"{{{{ {json.dumps(piece, ensure_ascii=False)} }}}}"
