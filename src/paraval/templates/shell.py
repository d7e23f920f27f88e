"""Scripts for /bin/sh with fields: `grep "{input}" notes.txt`.

Values are passed as arguments, never as code; a field where a shell would read it as code is an
error when a suite is loaded.
"""

from __future__ import annotations

import re
from functools import lru_cache

from paraval.dataclass import dataclass
from paraval.templates.template import Field, TemplateFields, as_text, field_value, parse

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
