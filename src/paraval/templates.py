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
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from paraval.errors import ParavalError
from paraval.jinja import MARK, names_in, render
from paraval.records import Case, Scalar

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


def fill(template: str, fields: TemplateFields) -> str:
    """Return the template with every field replaced by its value."""
    if is_jinja(template):
        return render(template, _jinja_values(fields), as_text)
    return "".join(
        piece if isinstance(piece, str) else as_text(field_value(piece.name, fields))
        for piece in parse(template)
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


# Scripts for /bin/sh with fields: `grep "{input}" notes.txt`.

SHELL = "/bin/sh"

_HOLE = "\0"
"""Placeholder for a field while a script is scanned: the one character that commands cannot
contain."""
_BARE = '"${paraval_%d}"'
_QUOTED = "${paraval_%d}"

_READ_AS_CODE = "where it would be read as code"
_VARIABLE = "assign it first, as in value={field}; then write $value here"
_ARGUMENT = "pass it as an argument, as in sh -c 'echo \"$1\"' sh {field}"
_DOUBLE_QUOTES = (
    'use double quotes: "{field}"; if a program reads that as code, pass {field} as a'
    " separate argument"
)
_REFUSED = {
    "single": ("inside single quotes", _DOUBLE_QUOTES),
    "backslash": ("after a backslash", "remove the backslash"),
    "backticks": ("inside backticks", "write $( ) instead"),
    "arithmetic": ("inside $(( ))", _VARIABLE),
    "expansion": ("inside ${ }", _VARIABLE),
    "dollar": ("after a $", "write {field} without it"),
}
"""Constructs where a field is not allowed: the place, and the hint."""
_BOTH = r"""
    (?P<backslash>\\(?!\n\#).) | (?P<backticks>`(?:[^`\\]|\\.)*+`) | (?P<dollar>\$\0)
    | (?P<arithmetic>\$\(\([^()'"`\\]*+\)\)) | (?P<expansion>\$\{[^{}"'`\\(]*+\})
    | (?P<nested>\$\((?!\()) | (?P<hole>\0)
"""
_IN_QUOTES = re.compile(rf"{_BOTH} | (?P<doubt>\$[\[({{] | [`\\]) | .", re.DOTALL | re.VERBOSE)
_IN_CODE = re.compile(
    rf"""{_BOTH} | (?P<single>'[^']*+') | (?P<double>") | <<<
    | (?P<here><<(?P<dash>-?)[ \t]*
        (?P<word>(?:[\w.-] | \\. | '[\w. -]*' | "[\w. -]*")++)(?=[\s;&|<>)]))
    | (?P<comment>(?<![^\s;&|()])(?<!\\.)\#[^\n]*+) | (?P<case>(?<![^\s;&|(])case(?=\s))
    | (?P<doubt>\$[\[({{'] | [`'\\] | << | \(\()
    | (?P<open>\() | (?P<close>\)) | (?P<separator>[;|\n] | (?<![<>])&) | .""",
    re.DOTALL | re.VERBOSE,
)
_EVALUATED = re.compile(r"(?:^|\s)(?:eval|trap|alias)\s")
_SCRIPT_OF_A_SHELL = re.compile(
    r"""(?:^|[\s/;&|("'`])(?:(?:rba|ba|da|k|z)?sh|su|\$\w+)["']?\s(?:[^;&|\n]*\s)?-\w*c\s+
    (?P<begun>(?:'[^']*'|"[^"]*"|[^\s'"])*(?:"[^"]*)?)\Z""",
    re.VERBOSE,
)
"""Matches up to a field that is within, or at the end of, a script passed to a shell."""
_INTERPRETER = r"(?:\S*/)?(?:(?:ba|da|k|z)?sh|python[\d.]*|perl|ruby|node)"
_FED_BY_A_DOCUMENT = re.compile(rf"(?:^|\s){_INTERPRETER}(?:\s+-\w*)*\s*\Z")
_FED_BY_A_PIPE = re.compile(rf"\|\s*{_INTERPRETER}(?:\s+-\w*)*\s*(?:[;&|)\n]|\Z)")
"""A program that reads its stdin as code."""
_CALCULATED = re.compile(r"(?:^|\s)(?:let|\[\[)\s|\w\[[^\]\s]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsafeField:
    """A field whose value might not stay one word, and a hint how to write it instead."""

    field: str
    where: str
    hint: str


def misplaced_fields(script: str) -> list[UnsafeField]:
    return [place for place in _places(script) if isinstance(place, UnsafeField)]


def shell_command(script: str, fields: TemplateFields) -> tuple[str, ...]:
    """Return the arguments that run a script in which no field is misplaced."""
    names, text = _with_references(script)
    values = [as_text(field_value(name, fields)) for name in names]
    return (SHELL, "-c", text, *((SHELL, *values) if values else ()))


@lru_cache(maxsize=256)
def _with_references(script: str) -> tuple[tuple[str, ...], str]:
    """Return the field names, and the script with references to them."""
    places = iter(_places(script))
    numbers: dict[str, int] = {}
    text = ""
    for piece in parse(script):
        if isinstance(piece, Field):
            place = next(places)
            assert isinstance(place, str), "such a suite is not loaded"
            text += place % numbers.setdefault(piece.name, len(numbers) + 1)
        else:
            text += piece
    if not numbers:
        return (), text
    prelude = " ".join(f"paraval_{number}=${{{number}}}" for number in numbers.values())
    return tuple(numbers), f"{prelude}; shift {len(numbers)}; {text}"


def _places(script: str) -> list[str | UnsafeField]:
    """Return for each field, in order, its reference, or why it is not allowed."""
    if _HOLE in script:
        return []  # An error in any case, whatever its fields.
    pieces = parse(script)
    reading = _ScriptScan(
        "".join(_HOLE if isinstance(piece, Field) else piece for piece in pieces),
        [piece.name for piece in pieces if isinstance(piece, Field)],
    )
    reading.code()
    return reading.places


class _ScriptScan:
    """One pass over a script with a placeholder for each field."""

    def __init__(self, text: str, names: list[str]) -> None:
        self.places: list[str | UnsafeField] = []
        self._text = text
        self._names = names
        self._at = 0
        self._is_piped = _FED_BY_A_PIPE.search(text) is not None
        self._doubt = ""
        """The first construct that the scanner cannot parse; later fields are not allowed."""

    def code(self, *, nested: bool = False) -> None:
        """Scan code up to the end; nested in `$( )`, past the closing parenthesis."""
        command_at, depth = self._at, 0
        heres: list[tuple[re.Match[str], bool]] = []
        while self._at < len(self._text):
            token = self._next(_IN_CODE)
            before = self._text[command_at : token.start()]
            match token.lastgroup:
                case "hole":
                    self._place(_BARE, before)
                case "double":
                    self._quoted(before)
                case "comment":
                    self.places += [_BARE] * token[0].count(_HOLE)
                case "here" if not nested:
                    heres.append((token, _FED_BY_A_DOCUMENT.search(before) is not None))
                case "here" | "case" if nested:
                    self._be_in_doubt(f"'{token[0].strip()}' inside $( )")
                case "close" if nested and not depth:
                    return
            depth += {"open": 1, "close": -1}.get(token.lastgroup or "", 0)
            if token.lastgroup in ("separator", "open", "close"):
                command_at = self._at
            if heres and "\n" in self._text[token.start() : self._at]:
                self._here_documents(heres, token[0])
                heres = []
        if nested:
            self._be_in_doubt("a $( that is not closed")

    def _quoted(self, before: str, end: int | None = None) -> None:
        """Scan past the closing quote, or to a here-document's end. `before`: the command so
        far."""
        while self._at < (len(self._text) if end is None else end):
            token = self._next(_IN_QUOTES)
            if token.lastgroup == "hole":
                self._place(_QUOTED, before)
            elif token[0] == '"' and end is None:
                return
        if end is None or self._at > end:
            self._be_in_doubt("something that is not closed")

    def _here_documents(self, begun: list[tuple[re.Match[str], bool]], reached: str) -> None:
        """Scan the here-documents announced in a line that ends with `reached`."""
        if reached != "\n":
            self._be_in_doubt("a line break between << and its document")
        for here, is_code in begun:
            self._here_document(here, is_code=is_code)

    def _here_document(self, begun: re.Match[str], *, is_code: bool) -> None:
        word = re.sub(r"['\"\\]", "", begun["word"])
        tabs = r"\t*" if begun["dash"] else ""
        last_line = re.compile(rf"^{tabs}{re.escape(word)}$", re.MULTILINE)
        last = last_line.search(self._text, self._at)
        end = last.start() if last else len(self._text)
        if is_code:
            self._refuse(self._text.count(_HOLE, self._at, end), _READ_AS_CODE, _ARGUMENT)
        elif word != begun["word"]:
            hint = f"write <<{begun['dash']}{word} without the quotes"
            self._refuse(self._text.count(_HOLE, self._at, end), "in a quoted here-document", hint)
        else:
            if "\\\n" in self._text[self._at : end]:
                self._be_in_doubt("a continued line in a here-document")
            self._quoted("", end)
        self._at = max(self._at, last.end() if last else end)

    def _next(self, tokens: re.Pattern[str]) -> re.Match[str]:
        """Take one token, and handle those that mean the same everywhere."""
        token = tokens.match(self._text, self._at)
        assert token is not None, "its last alternative is any character"
        self._at = token.end()
        if token.lastgroup in _REFUSED:
            self._refuse(token[0].count(_HOLE), *_REFUSED[token.lastgroup])
        elif token.lastgroup == "nested":
            self.code(nested=True)
        elif token.lastgroup == "doubt":
            self._be_in_doubt(token[0])
        return token

    def _be_in_doubt(self, met: str) -> None:
        self._doubt = self._doubt or met

    def _is_script_of_a_shell(self) -> bool:
        """Whether a field is part of a `sh -c` script; a field that is the whole script is
        intended."""
        found = _SCRIPT_OF_A_SHELL.search(self._text, 0, self._at - len(_HOLE))
        return found is not None and found["begun"] != ""

    def _place(self, form: str, before: str) -> None:
        if self._doubt:
            self._refuse(1, f"after {self._doubt}, which paraval cannot parse", _VARIABLE)
        elif (
            self._is_piped
            or _EVALUATED.search(re.sub(r"[\\'\"]", "", before))
            or self._is_script_of_a_shell()
        ):
            self._refuse(1, _READ_AS_CODE, _ARGUMENT)
        elif _CALCULATED.search(before):
            self._refuse(1, "in let, [[ ]] or a subscript", _VARIABLE)
        else:
            self.places.append(form)

    def _refuse(self, count: int, where: str, hint: str) -> None:
        for _ in range(count):
            name = self._names[len(self.places)]
            way = hint.replace("{field}", f"{{{name}}}")
            self.places.append(UnsafeField(field=name, where=where, hint=way))
