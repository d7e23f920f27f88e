"""Files of cases, each format with its reader."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.files import read_document, read_text
from paraval.documents.json import decode_json
from paraval.documents.problems import Document, Location, shown
from paraval.plan.cases.case_list import CaseList, add_plain, read_list
from paraval.plan.cases.fields import FieldMap, FieldReader
from paraval.text.suggest import quoted

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
CELL_LIMIT_BYTES = 10 << 20
FILE_KINDS = (
    *(".yaml", ".yml", ".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".md", ".txt", ".parquet"),
)
SEPARATORS = (",", ";", "\t", "|")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFiles:
    """Reads files into a list of cases, with the fields that a suite maps."""

    into: CaseList
    mapped: FieldMap = field(default_factory=FieldMap)
    mapped_at: Location | None = None
    """Where the suite maps them."""
    split: str | None = None

    def read(self, path: Path, spot: Location) -> None:
        """Add the cases of a file, or of the folder of a dataset."""
        before, found_before = self.into.count, len(spot.problems)
        suffix = path.suffix.lower()
        is_table = suffix in (".csv", ".tsv")
        fields = FieldReader(mapped=self.mapped, mapped_at=self.mapped_at, is_table=is_table)
        with self.into.reading(spot, fields):
            if is_table:
                _read_table(path, spot, self.into, fields)
            elif path.is_dir():
                self._read_dataset(path, spot)
            else:
                self._read_file(path, suffix, spot)
        if self.into.count == before and len(spot.problems) == found_before:
            spot.report("the file has no cases")

    def _read_file(self, path: Path, suffix: str, spot: Location) -> None:
        into = self.into
        match suffix:
            case ".jsonl" | ".ndjson":
                _read_lines(path, spot, into)
            case ".yaml" | ".yml" | ".json":
                _read_case_document(path, spot, into)
            case ".md" | ".txt":
                case = read_prompt_case(path, spot)
                if case is not None:
                    add_plain(case.data, (case.spot, None, ()), into)
            case ".parquet":
                _add_batches(path, spot, into, "parquet")
            case _:
                kinds = ", ".join(FILE_KINDS)
                spot.report(f"cases cannot be read from a '{suffix}' file; use {kinds}")

    def _read_dataset(self, folder: Path, spot: Location) -> None:
        """Read a dataset that Hugging Face's `save_to_disk` wrote; nothing is downloaded."""
        about = _small_json(folder / _SPLITS, spot)
        if about is not None:
            names = [str(name) for name in about.get("splits", [])]
            split = names[0] if self.split is None and len(names) == 1 else self.split
            if split not in names:
                choice = "split" if self.split is None else f"split {shown(self.split)}"
                spot.report(f"choose a {choice} of this dataset: it has {quoted(names)}")
                return
            folder /= split or ""
        state = _small_json(folder / _STATE, spot) or {}
        first = 0
        for file in state.get("_data_files", []):
            first = _add_batches(folder / file["filename"], spot, self.into, "arrow", first)


def _read_case_document(path: Path, spot: Location, into: CaseList) -> None:
    document = read_document(path, spot)
    if document is None:
        return
    data, spot = document.data, document.spot
    if isinstance(data, dict):
        # As in exports that have a few facts about the set beside its cases.
        lists = [key for key, value in data.items() if isinstance(value, list)]
        if len(lists) == 1:
            data, spot = data[lists[0]], spot.at(lists[0])
    if isinstance(data, list):
        read_list(data, spot, into)
    else:
        spot.report(f"must be a list of cases, or a mapping with one list, not {shown(data)}")


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
        address = (spot, number, ())
        try:
            data = decode_json(words)
        except json.JSONDecodeError as error:
            where = f"{error.msg} (column {error.colno})"
            into.report(address, "", f"not valid JSON: {where}; each line must be one case")
        except ValueError as error:
            into.report(address, "", f"not valid JSON: {error}")
        else:
            into.add(data, address)


# ---- tables


def _read_table(path: Path, spot: Location, into: CaseList, fields: FieldReader) -> None:
    csv.field_size_limit(CELL_LIMIT_BYTES)
    lines = _text_lines(path, spot)
    first = next(lines, "")
    separator = "\t" if path.suffix.lower() == ".tsv" else _separator(first)
    rows = csv.reader(itertools.chain([first], lines), strict=True, delimiter=separator)
    try:
        names = [name.strip() for name in next(rows, [])]
        if not names or not _are_columns(names, replace(spot, line=1), fields):
            return
        start = rows.line_num + 1
        for row in rows:
            address = (spot, start, ())
            if row and len(row) != len(names):
                cells = f"the row has {len(row)} cells, the header has {len(names)}"
                into.report(address, "", cells)
            elif row:
                into.add(_record(names, row), address)
            start = rows.line_num + 1
    except csv.Error as error:
        replace(spot, line=rows.line_num or 1).report(f"not valid CSV: {error}")


def _separator(header: str) -> str:
    """Return what separates the columns: the most frequent separator outside of quotes."""
    bare = re.sub(r'"[^"]*"', "", header)
    return max(SEPARATORS, key=bare.count)


def _are_columns(names: list[str], spot: Location, fields: FieldReader) -> bool:
    """Whether the columns can be read; report why not."""
    found = len(spot.problems)
    for name in dict.fromkeys(names):
        if not name or names.count(name) > 1:
            spot.report(f"duplicate column '{name}'" if name else "a column has no name")
    if "input" in names and any(name.startswith("input.") for name in names):
        spot.report("has both 'input' and 'input.…' columns; use one or the other")
    if len(spot.problems) > found:
        return False
    for mistake in fields.shape(tuple(_record(names, names))).mistakes:
        if mistake.key:
            meant = mistake.phrase.partition(", ")[2]
            spot.report(f"the column '{mistake.key}' would go to metadata, {meant}")
        else:
            spot.report(mistake.message(1, "line"))
    return len(spot.problems) == found


def _record(columns: list[str], row: list[str]) -> dict[str, Any]:
    """Return a row as a record; `input.a` and `input.b` are the keys of one input."""
    record: dict[str, Any] = {}
    for name, cell in zip(columns, row, strict=True):
        if name.startswith("input."):
            record.setdefault("input", {})[name.removeprefix("input.")] = cell
        else:
            record[name] = cell
    return record


# ---- Parquet files and datasets on disk

_STATE = "state.json"
_SPLITS = "dataset_dict.json"


def is_dataset(folder: Path) -> bool:
    """Whether Hugging Face's `save_to_disk` wrote this folder."""
    return (folder / _SPLITS).is_file() or (folder / _STATE).is_file()


def _small_json(path: Path, spot: Location) -> dict[str, Any] | None:
    document = read_document(path, replace(spot, file=str(path))) if path.is_file() else None
    return document.data if document is not None and isinstance(document.data, dict) else None


def _add_batches(path: Path, spot: Location, into: CaseList, kind: str, first: int = 0) -> int:
    """Add the rows of a file in Arrow's formats; return the number of the next row."""
    try:
        # Imported late: an optional package, and slow to import.
        import pyarrow as pa  # noqa: PLC0415 - see above
        from pyarrow import parquet  # noqa: PLC0415 - see above
    except ImportError:
        spot.report("reading this needs pyarrow; install it: pip install 'paraval[data]'")
        return first
    try:
        with pa.OSFile(str(path)) as source:
            is_parquet = kind == "parquet"
            batches = (
                parquet.ParquetFile(source).iter_batches()
                if is_parquet
                else pa.ipc.open_stream(source)
            )
            for batch in batches:
                for row in batch.to_pylist():
                    add_plain(_as_json(row), (spot, None, (first,)), into)
                    first += 1
    except (pa.ArrowException, OSError) as error:
        spot.report(f"cannot be read as {kind}: {error}")
    return first


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with dates and decimals as text; raw bytes stay, and are refused."""
    simple = (str, int, float, bool, type(None))
    if all(type(value) in simple for value in row.values()):
        return row
    return {name: _value_as_json(value) for name, value in row.items()}


def _value_as_json(value: Any) -> Any:
    match value:
        case None | str() | int() | float() | bool() | bytes():
            return value
        case dict():
            return {name: _value_as_json(inner) for name, inner in value.items()}
        case list():
            return [_value_as_json(inner) for inner in value]
    return str(value)


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
        case |= document.data
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
