"""Read cases from the suite, from files beside it (also other tools' formats), or from a function.

There may be a hundred thousand, so records are built by hand, and each address is a small tuple
that becomes a Location only when there is a problem.
"""

from __future__ import annotations

import csv
import glob
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any

from paraval.documents.files import read_document, read_text, why_unreadable
from paraval.documents.forms import check, unknown_key
from paraval.documents.json import decode_json
from paraval.documents.problems import Document, Location, Step, shown
from paraval.documents.yaml import loses_digits, plain, scalar_text
from paraval.errors import Problem
from paraval.functions import is_async
from paraval.plan.schema.suite_form import LOCK_NAME, CaseForm, FunctionCasesForm
from paraval.plan.suite_folder import SuiteFolder
from paraval.records import Case
from paraval.text.suggest import nearest, suggestion

# Other tools' formats: prompts with a ground truth, and one prompt per file.

TAGS = ("category", "difficulty")
_FOREIGN_KEYS = ("id", "prompt", "ground_truth", *TAGS, "description", "tags", "lock", "exclusive")
_CASE_KEYS = ("id", "expect", "tags", "lock", "exclusive", "graders")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def from_ground_truth(written: Mapping[str, Any], spot: Location) -> dict[str, Any]:
    """Convert a case of repo-search-eval, with prompt and ground_truth; report unknown keys."""
    for key in written:
        if key not in _FOREIGN_KEYS:
            name = str(key)
            spot.at(name).report(
                f"unknown key '{name}' in a case with ground_truth{suggestion(name, _FOREIGN_KEYS)}"
            )
    for key in (*TAGS, "description"):
        if not isinstance(written.get(key), str | None):
            spot.at(key).report(f"must be text, not {shown(written[key])}")
    own = written.get("tags") or []
    found = [written[key] for key in TAGS if written.get(key)]
    case = {key: written[key] for key in ("id", "lock", "exclusive") if key in written}
    case |= {"input": written["prompt"], "expect": written["ground_truth"]}
    case["tags"] = [*own, *found] if isinstance(own, list) else own
    if written.get("description"):
        case["metadata"] = {"description": written["description"]}
    return case


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


CELL_LIMIT_BYTES = 10 << 20
NEAR_MISS = 0.8
"""`expected` and `tag` are typos; `stage` and `expectation` are columns in their own right."""
FILE_KINDS = (".yaml", ".yml", ".json", ".jsonl", ".csv", ".md", ".txt")

_KEYS = frozenset(("id", "input", "expect", "tags", "metadata", "lock", "exclusive", "graders"))
_LOCK = re.compile(LOCK_NAME)
_ID = re.compile(
    r"\A(?!(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|\Z))(?!.*\.\.)"
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.)(?<!\.lock)\Z"
)
_ID_RULE = (
    "must be 1 to 64 letters, digits, '.', '_' and '-', starting with a letter or digit,"
    " without '..', not ending in '.' or '.lock', and not a device name such as CON"
)

_PLAIN = (str, dict, NoneType)

Address = tuple[Location, int | None, tuple[Step, ...]]
"""The file's location, the line if known, and the steps to the case."""


def is_case_id(text: str) -> bool:
    """Whether an id is a safe file or folder name on any system."""
    return _ID.match(text) is not None


@dataclass(slots=True, kw_only=True)
class CaseList:
    """The cases read so far, with their addresses."""

    around: SuiteFolder
    problems: dict[Problem, None]
    """Shared by all locations of this suite."""
    cases: list[Case] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    seen: dict[str, Address] = field(default_factory=dict)
    count: int = 0
    """Number of cases, including invalid ones, so that default ids don't shift."""

    def spot(self, index: int) -> Location:
        return spot_of(self.addresses[index])

    def add(self, written: Any, address: Address) -> None:
        self.count += 1
        case = self._read(written, address)
        if case is None:
            return
        first = self.seen.setdefault(case.id, address)
        if first is not address:
            place = _place(first)
            spot_of(address).at("id").report(f"duplicate id '{case.id}'; the first is {place}")
            return
        self.cases.append(case)
        self.addresses.append(address)

    def _read(self, written: Any, address: Address) -> Case | None:
        if isinstance(written, Case):
            return written if _is_sound(written, address) else None
        if not isinstance(written, dict):
            spot_of(address).report(
                f"a case must be a mapping with id, input and expect, not {shown(written)}"
            )
            return None
        if "ground_truth" in written and "prompt" in written:
            found = len(self.problems)
            written = from_ground_truth(written, spot_of(address))
            if len(self.problems) > found:
                return None
        case = _as_case(written, self.count)
        sound = _is_sound(case, address)
        if written.keys() <= _KEYS:
            return case if sound else None
        for key in sorted(written.keys() - _KEYS, key=str):
            spot_of(address).at(str(key)).report(unknown_key(str(key), CaseForm))
        return None


def _as_case(written: dict[str, Any], number: int) -> Case:
    """Build the record, with defaults for missing keys; not validated yet."""
    given = written.get
    identity: Any = given("id")
    if type(identity) is not str:
        identity = f"case-{number}" if identity is None else _number_as_id(identity)
    tags: Any = given("tags")
    metadata: Any = given("metadata")
    locks: Any = given("lock")
    exclusive: Any = given("exclusive")
    return Case(
        id=identity,
        input=given("input"),
        expect=given("expect"),
        tags=() if tags is None else tuple(tags) if type(tags) is list else tags,
        metadata={} if metadata is None else metadata,
        locks=() if locks is None else _as_locks(locks),
        exclusive=False if exclusive is None else exclusive,
        graders=given("graders") or (),
    )


def _as_locks(written: Any) -> Any:
    if isinstance(written, str):
        return (written,)
    return tuple(written) if isinstance(written, list) else written


def _number_as_id(identity: Any) -> Any:
    """Data sets often number their cases, so whole numbers are accepted as ids."""
    is_number = isinstance(identity, int) and not isinstance(identity, bool)
    return scalar_text(identity) if is_number else identity


def spot_of(address: Address) -> Location:
    spot, line, steps = address
    return replace(spot, line=line or spot.line, path=spot.path + steps)


def _place(address: Address) -> str:
    found: dict[Problem, None] = {}
    replace(spot_of(address), problems=found).report("")
    [problem] = found
    parts = (problem.file, f"line {problem.line}" if problem.line else problem.key)
    return ", ".join(part for part in parts if part) or "another case"


def _is_sound(case: Case, address: Address) -> bool:
    """Whether the record is valid; report its problems."""
    # Exact types first: there may be very many cases, and checking for a Mapping is slow.
    if (
        type(case.id) is str
        and type(case.input) in _PLAIN
        and type(case.metadata) is dict
        and (not case.tags or _are_texts(case.tags))
        and case.locks == ()
        and case.exclusive is False
        and is_case_id(case.id)
    ):
        return True
    problems = list(_case_problems(case))
    for key, message in problems:
        spot_of(address).at(key).report(message)
    return not problems


def _are_texts(tags: Any) -> bool:
    return type(tags) is tuple and all(isinstance(tag, str) and tag for tag in tags)


def _case_problems(case: Case) -> Iterator[tuple[str, str]]:
    identity: Any = case.id
    if not isinstance(identity, str):
        yield "id", f"must be text, not {shown(identity)}; put it in quotes"
    elif not is_case_id(identity):
        yield "id", f"{_ID_RULE}; not {shown(identity)}"
    if not isinstance(case.input, str | Mapping | None):
        quotes = "" if isinstance(case.input, list | tuple) else "; put it in quotes"
        yield "input", f"must be text, or a mapping, not {shown(case.input)}{quotes}"
    tags: Any = case.tags
    if not _are_texts(tags):
        yield "tags", f"must be a list of strings, not {shown(tags)}"
    metadata: Any = case.metadata
    if not isinstance(metadata, Mapping):
        yield "metadata", f"must be a mapping, not {shown(metadata)}"
    locks: Any = case.locks
    if not isinstance(locks, tuple) or not all(_is_lock(name) for name in locks):
        one = locks[0] if isinstance(locks, tuple) and len(locks) == 1 else locks
        yield "lock", f"must be {_LOCK_RULE}, or a list of such, not {shown(one)}"
    exclusive: Any = case.exclusive
    if not isinstance(exclusive, bool):
        yield "exclusive", f"must be true or false, not {shown(exclusive)}"


_LOCK_RULE = "a name of letters, digits and any of '_.:/@+-'"


def _is_lock(name: Any) -> bool:
    return isinstance(name, str) and _LOCK.fullmatch(name) is not None


# ---- where cases come from


def read_cases(written: Any, spot: Location, into: CaseList) -> None:
    """Add the cases under the key `cases`: a list, files, or a function's result."""
    before = len(spot.problems)
    match written:
        case str():
            _read_files([written], [spot], into)
        case Mapping():
            _read_function(written, spot, into)
        case list() | tuple() if written and all(isinstance(item, str) for item in written):
            _read_files(list(written), [spot.at(n) for n in range(len(written))], into)
        case list() | tuple():
            _read_list(written, spot, into)
        case _:
            spot.report(f"must be a list of cases, or a path, not {shown(written)}")
    if not into.cases and len(spot.problems) == before:
        spot.report("is empty; add at least one case")


def _read_list(written: Iterable[Any], spot: Location, into: CaseList) -> None:
    for position, item in enumerate(written):
        if isinstance(item, str):
            spot.at(position).report("mixes cases and paths; use one or the other")
        else:
            _add_plain(item, (spot, None, (position,)), into)


def _add_plain(item: Any, address: Address, into: CaseList) -> None:
    """Add a case with values of any kind: Python objects, numbers with their spelling."""
    if type(item) is Case and _is_simple(item):
        into.add(item, address)
        return
    data = item
    if isinstance(item, Mapping):
        if loses_digits(item.get("id")):
            item = {**item, "id": scalar_text(item["id"])}
        data = item = plain(item)
    try:
        json.dumps(_contents(data), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        spot_of(address).report(f"a case must be plain data: {error}")
        return
    into.add(item, address)


def _is_simple(case: Case) -> bool:
    """Whether it is plain data at first sight, as most cases are."""
    texts = (str, NoneType)
    return (
        type(case.input) in texts
        and type(case.expect) in texts
        and not (case.metadata or case.graders)
    )


def _contents(data: Any) -> Any:
    if isinstance(data, Case):
        parts = (data.input, data.expect, data.metadata, data.graders)
        return [dict(part) if isinstance(part, Mapping) else part for part in parts]
    return data


def _read_function(written: Mapping[str, Any], spot: Location, into: CaseList) -> None:
    form = check(FunctionCasesForm, written, spot)
    if form is None:
        return
    key = spot.at("python")
    function = into.around.function(form.python, key)
    if function is None:
        return
    if is_async(function):
        key.report(f"'{form.python}' is async; write it as a plain function")
        return
    for position, item in enumerate(_called(form.python, function, key)):
        _add_plain(item, (replace(key, path=("cases",)), None, (position,)), into)


def _called(reference: str, function: Callable[[], Any], spot: Location) -> list[Any]:
    try:
        result = function()
        if isinstance(result, str | Mapping) or not isinstance(result, Iterable):
            spot.report(f"'{reference}' must return a list of cases, not {shown(result)}")
            return []
        return list(result)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's function may raise anything
        spot.report(f"'{reference}' raised {type(error).__name__}: {error}")
        return []


def _read_files(patterns: list[str], spots: list[Location], into: CaseList) -> None:
    done: set[Path] = set()
    for pattern, spot in zip(patterns, spots, strict=True):
        for path in _matching(pattern, spot, into.around.folder):
            if path not in done:
                done.add(path)
                _read_file(path, _file_spot(path, pattern, spot, into.around.folder), into)


def _matching(pattern: str, spot: Location, folder: Path) -> list[Path]:
    if "\0" in pattern:
        spot.report("a path cannot contain a NUL character")
        return []
    plain_path = folder / pattern
    if not glob.has_magic(pattern) or os.path.isfile(plain_path):  # noqa: PTH113 - False for a name too long
        reason = why_unreadable(plain_path)
        if reason:
            spot.report(f"{shown(pattern)}: {reason}")
        return [] if reason else [plain_path]
    if "**" in pattern and _begins_at_the_root(plain_path):
        spot.report(f"{shown(pattern)} would search the whole file system; start it with a folder")
        return []
    found = sorted(glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207 - Path.glob refuses paths with '..'
    files = [folder / name for name in found if (folder / name).is_file()]
    if not files:
        spot.report(f"no file matches {shown(pattern)} in {folder}")
    return files


def _begins_at_the_root(pattern: Path) -> bool:
    """Whether a glob would search all folders of the machine."""
    plain = itertools.takewhile(lambda part: not glob.has_magic(part), pattern.parts)
    return os.path.normpath(Path(*plain)) == os.sep


def _file_spot(path: Path, pattern: str, spot: Location, folder: Path) -> Location:
    """Return the file's name as the author would write it, relative to the suite's own path."""
    if Path(pattern).is_absolute():
        shown_path = path
    else:
        beside = Path(spot.file).parent if spot.file else Path()
        shown_path = beside / path.relative_to(folder)
    return Location(problems=spot.problems, file=str(shown_path))


def _read_file(path: Path, spot: Location, into: CaseList) -> None:
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
                _add_plain(case.data, (case.spot, None, ()), into)
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
    _read_list(document.data, document.spot, into)


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
    if not any(name in _KEYS or name.startswith("input.") for name in names):
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
