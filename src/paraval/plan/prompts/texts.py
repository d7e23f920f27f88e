"""Texts in the suite or in their own files: prompts and rubrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.documents.files import beside, read_text, why_unreadable
from paraval.documents.problems import Location, shown
from paraval.errors import ParavalError
from paraval.templates.template import JINJA, field_names, insert, is_jinja

ENDINGS = r"\.(?:md|txt|prompt|j2)"
_FILE = re.compile(rf"\A[^\s{{}}]+{ENDINGS}\Z")
"""A single word with this ending is the path of a file; no one sends a model just that."""
_FILE_NAME = re.compile(rf"\A[^{{}}]+{ENDINGS}\Z")
_FILE_WITH_A_FIELD = re.compile(rf"\A(?=\S*\{{)\S+{ENDINGS}\Z")
_FRONT_MATTER = re.compile(
    r"\A\ufeff?---[ \t]*\r?\n(?:[A-Za-z_][\w.-]*[ \t]*:.*\n)(?:.*\n)*?---[ \t]*(?:\r?\n|\Z)"
)
"""A prompt file's metadata for people and tools, not for the model. A rule at the start of a text
is not front matter: its first line has no key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A text and its location."""

    text: str
    spot: Location
    in_file: bool = False
    lines_before: int = 0
    """Lines before the text in its file."""
    made_of: tuple[Prompt, ...] = ()
    """If files of axes were inserted: the text without them, then the files."""

    @property
    def sources(self) -> tuple[Prompt, ...]:
        """The texts that it consists of, each as its author wrote it."""
        return self.made_of or (self,)

    def spot_at(self, offset: int) -> Location:
        """Return the location of a part of the text; in a file of its own, that part's line."""
        return self.spot_at_line(self.text.count("\n", 0, offset) + 1)

    def spot_at_line(self, line: int) -> Location:
        if not self.in_file:
            return self.spot
        return replace(self.spot, line=self.lines_before + line)

    def inserting(self, files: Mapping[str, Prompt]) -> Prompt:
        """Return the text with files instead of the fields that name their axes. The files may name
        each other's axes."""
        others = {name: {one: files[one] for one in files if one != name} for name in files}
        return self.inserting_only(
            {name: file.inserting_only(others[name]) for name, file in files.items()}
        )

    def inserting_only(self, files: Mapping[str, Prompt]) -> Prompt:
        try:
            names = field_names(self.text)
            text = insert(self.text, {name: file.text for name, file in files.items()})
        except ParavalError:
            return self  # Reported when the templates are checked.
        used = [one for name, file in files.items() if name in names for one in file.sources]
        return replace(self, text=text, made_of=(self, *used)) if used else self


def insert_into(text: str, spot: Location, files: Mapping[str, Prompt]) -> str:
    """Return an argument, a variable or stdin with files instead of the fields that name their
    axes."""
    filled = Prompt(text=text, spot=spot).inserting(files).text
    if is_jinja(filled):
        spot.report("a .j2 file can only be inserted into a chat's or an agent's prompt")
    return filled


def names_a_file(written: str) -> bool:
    return _FILE.match(written) is not None


def may_name_a_file(written: str) -> bool:
    """The same where only files are expected: names may contain spaces."""
    return _FILE_NAME.match(written) is not None


def read_prompt(written: str, spot: Location, folder: Path) -> Prompt | None:
    """Return the text, or the content of the file it names; report problems and return None."""
    if _FILE_WITH_A_FIELD.match(written):
        files, axis = re.sub(r"\{[^{}]*\}", "*", written), re.findall(r"\{([^{}]*)\}", written)
        spot.report(
            f"{shown(written)} would be sent literally: a prompt file's name cannot contain a"
            f" field; make the files an axis, {axis[0]}: {files}, and write {{{axis[0]}}} here"
        )
        return None
    if not names_a_file(written):
        return Prompt(text=written, spot=spot)
    return read_prompt_file(written, spot, folder)


def read_prompt_file(written: str, spot: Location, folder: Path) -> Prompt | None:
    reason = why_unreadable(folder / written, written)
    if reason:
        spot.report(f"{shown(written)}: {reason}")
        return None
    there = beside(written, spot)
    text = read_text(folder / written, there)
    if text is None:
        return None
    front = _FRONT_MATTER.match(text)
    words = text[front.end() :] if front else text
    if not words.strip():
        there.report("the file is empty")
        return None
    # Editors end a file with a line break that its author does not mean.
    words = words.removesuffix("\n").removesuffix("\r")
    return Prompt(
        text=f"{JINJA}{words}" if written.endswith(".j2") else words,
        spot=there,
        in_file=True,
        lines_before=front[0].count("\n") if front else 0,
    )
