"""Files of cases, each format with its reader."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.documents.files import read_document, read_text
from paraval.documents.json import decode_json
from paraval.documents.problems import Document, Location, shown
from paraval.plan.cases.case_list import KEYS, Address, CaseList, add_plain, read_list, spot_of
from paraval.text.suggest import nearest

_CASE_KEYS = ("id", "expect", "tags", "lock", "exclusive", "graders")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
CELL_LIMIT_BYTES = 10 << 20
NEAR_MISS = 0.8
"""`expected` and `tag` are typos; `stage` and `expectation` are columns in their own right."""
FILE_KINDS = (".yaml", ".yml", ".json", ".jsonl", ".csv", ".md", ".txt")


def read_file(path: Path, spot: Location, into: CaseList) -> None:
    before = into.count
    found_before = len(spot.problems)
    match path.suffix.lower():
        case ".jsonl":
            _read_lines(path, spot, into)
        case ".csv":
            _read_table(path, spot, into)
        case ".yaml" | ".yml" | ".json":
            _read_case_document(path, spot, into)
        case ".md" | ".txt":
            case = read_prompt_case(path, spot)
            if case is not None:
                add_plain(case.data, (case.spot, None, ()), into)
        case suffix:
            kinds = ", ".join(FILE_KINDS)
            spot.report(f"cases cannot be read from a '{suffix}' file; use {kinds}")
    if into.count == before and len(spot.problems) == found_before:
        spot.report("the file has no cases")


def _read_case_document(path: Path, spot: Location, into: CaseList) -> None:
    document = read_document(path, spot)
    if document is None:
        return
    if not isinstance(document.data, list):
        document.spot.report(f"must be a list of cases, not {shown(document.data)}")
        return
    read_list(document.data, document.spot, into)


# ---- line by line


def _text_lines(path: Path, spot: Location) -> Iterator[str]:
    """Yield the lines of a file of any size; report a part that cannot be read."""
    line = 0
    try:
        with path.open("rb") as file:
            for line, raw in enumerate(file, start=1):
                yield raw.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        replace(spot, line=line).report(f"not UTF-8 text (byte 0x{byte:02x}); save it as UTF-8")
    except OSError as error:
        spot.report(f"cannot be read: {error.strerror}")


def _read_lines(path: Path, spot: Location, into: CaseList) -> None:
    for number, line in enumerate(_text_lines(path, spot), start=1):
        words = line.strip()
        if not words or words.startswith("//"):
            continue
        try:
            data = decode_json(words)
        except json.JSONDecodeError as error:
            replace(spot, line=number).report(
                f"not valid JSON: {error.msg} (column {error.colno}); each line must be one case"
            )
        except ValueError as error:
            replace(spot, line=number).report(f"not valid JSON: {error}")
        else:
            into.add(data, (spot, number, ()))


def _read_table(path: Path, spot: Location, into: CaseList) -> None:
    csv.field_size_limit(CELL_LIMIT_BYTES)
    rows = csv.reader(_text_lines(path, spot), strict=True)
    try:
        header = next(rows, None)
        columns = None if header is None else _columns(header, spot)
        if columns is None:
            return
        start = rows.line_num + 1
        for row in rows:
            if row:
                _add_row(columns, row, (spot, start, ()), into)
            start = rows.line_num + 1
    except csv.Error as error:
        replace(spot, line=rows.line_num or 1).report(f"not valid CSV: {error}")


def _columns(header: list[str], spot: Location) -> list[str] | None:
    names = [name.strip() for name in header]
    first_line = replace(spot, line=1)
    near_misses = list(_near_misses(names))
    for name, known in near_misses:
        first_line.report(f"the column '{name}' would go to metadata, did you mean '{known}'?")
    if near_misses:
        return None
    if not any(name in KEYS or name.startswith("input.") for name in names):
        first_line.report(
            "the first line must name the columns: id, input, expect, tags, lock, exclusive"
        )
        return None
    wrong = False
    for name in dict.fromkeys(names):
        if not name or names.count(name) > 1:
            problem = f"duplicate column '{name}'" if name else "a column has no name"
            first_line.report(problem)
            wrong = True
    if "input" in names and any(name.startswith("input.") for name in names):
        first_line.report("has both 'input' and 'input.…' columns; use one or the other")
        wrong = True
    return None if wrong else names


def _near_misses(names: list[str]) -> Iterator[tuple[str, str]]:
    """Return columns that are almost certainly a misspelled known one, which is missing."""
    there = {name.partition(".")[0] for name in names}
    absent = [known for known in ("id", "input", "expect", "tags") if known not in there]
    for name in names:
        start, dot, rest = name.partition(".")
        words = "".join(start.casefold().split())
        near = nearest(words, absent, NEAR_MISS)
        # `id` is so short that `uid` and `bid` are near it; only its own letters count as a typo.
        if near and (near[0] != "id" or words == "id") and (not dot or near[0] == "input"):
            yield name, f"{near[0]}{dot}{rest}"
        elif words in ("lock", "locks", "exclusive") and name not in ("lock", "exclusive"):
            # Only these: `block` and `clock` are columns in their own right.
            yield name, words.removesuffix("s")


_FLAGS = {"": False, "false": False, "true": True}


def _add_row(columns: list[str], row: list[str], address: Address, into: CaseList) -> None:
    if len(row) != len(columns):
        spot_of(address).report(f"the row has {len(row)} cells, the header has {len(columns)}")
        return
    case: dict[str, Any] = {}
    for name, cell in zip(columns, row, strict=True):
        if name == "tags":
            case["tags"] = [tag.strip() for tag in cell.split(";") if tag.strip()]
        elif name == "input":
            case["input"] = cell
        elif name == "lock":
            case["lock"] = [lock.strip() for lock in cell.split(";") if lock.strip()]
        elif name == "exclusive":
            case["exclusive"] = _FLAGS.get(cell.strip().casefold(), cell)
        elif name in ("id", "expect"):
            case[name] = cell or None
        elif name.startswith("input."):
            case.setdefault("input", {})[name.removeprefix("input.")] = cell
        else:
            case.setdefault("metadata", {})[name] = cell
    into.add(case, address)


# ---- one prompt per file


def read_prompt_case(path: Path, spot: Location) -> Document | None:
    """Read a text file as one case, named after the file; its text is the input.

    Keys in YAML front matter become keys of the case, or metadata.
    """
    text = read_text(path, spot)
    if text is None:
        return None
    front = _FRONT_MATTER.match(text)
    words = text[front.end() :] if front else text
    if not words.strip():
        spot.report("the file is empty")
        return None
    case: dict[str, Any] = {"id": path.stem}
    if front is not None:
        # Keep the line numbers of the file.
        document = _front_matter("\n" + front[1], spot)
        if document is None:
            return None
        spot = document.spot
        case |= {key: document.data[key] for key in _CASE_KEYS if key in document.data}
        rest = {key: value for key, value in document.data.items() if key not in _CASE_KEYS}
        case |= {"metadata": rest} if rest else {}
    # Editors add a final line break that the author does not mean.
    case["input"] = words.removesuffix("\n").removesuffix("\r")
    return Document(data=case, spot=spot)


def _front_matter(text: str, spot: Location) -> Document | None:
    # Imported late: the library is slow to load, and few files have front matter.
    from paraval.documents.yaml import read_yaml  # noqa: PLC0415 - see above

    if not text.strip():
        return Document(data={}, spot=spot)
    document = read_yaml(text, spot)
    if document is not None and not isinstance(document.data, Mapping):
        replace(spot, line=1).report(f"front matter must be a mapping, not {shown(document.data)}")
        return None
    return document
