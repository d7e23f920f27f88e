"""What an import makes: a suite that a person can edit, and what of the source it leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import yaml

from paraval.dataclass import dataclass
from paraval.documents.files import read_text
from paraval.documents.json import decode_json, read_json
from paraval.documents.problems import Location
from paraval.errors import NotWrittenError, Problem, RequestError, SuiteError
from paraval.text.words import listed

SUITE_FILE = "suite.yaml"
CHECK_FILE = "check.yaml"
"""Of a benchmark: the suite that checks its tests with the reference solutions."""
FLAGGED_NOTE = (
    "To fail attempts that touched test settings, add to graders: - diff: {flagged: false}"
)
_WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHonored:
    """A key of the source that has no effect in the suite."""

    key: str
    """Its path in the source: `tests[2].assert[0].provider`."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSuite:
    """A suite made from another program's files. The same source always gives the same suite."""

    source: str
    """What it was made from, as the user named it."""
    suite: Mapping[str, Any]
    """The keys of `suite.yaml`, in the order in which they are written."""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Other files: path relative to the suite's folder -> contents."""
    not_honored: tuple[NotHonored, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences for the user: what to check, and what to do before the first run."""


def write_suite(imported: ImportedSuite, folder: Path, *, replace: bool = False) -> list[Path]:
    """Write the suite and its files; return the paths that changed.

    Raises RequestError if a file there has other contents and `replace` is False, before anything
    is written.
    """
    contents: dict[str, bytes] = {}
    for name, text in imported.files.items():
        contents[name] = text.encode() if isinstance(text, str) else text
    # Last: if the disk is full, there is no suite that looks complete.
    contents[SUITE_FILE] = suite_text(imported).encode()
    try:
        changed = {name: data for name, data in contents.items() if _differs(folder / name, data)}
        existing = [name for name in changed if (folder / name).exists()]
        if existing and not replace:
            raise RequestError(
                f"{folder} already has {listed(existing[:5])} with other contents",
                hint="add --replace to overwrite, or choose another folder with --to",
            )
        for name, data in changed.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    except OSError as error:
        raise NotWrittenError(f"cannot write to {folder}: {error}") from error
    return [folder / name for name in changed]


def _differs(path: Path, data: bytes) -> bool:
    return not path.exists() or path.read_bytes() != data


def suite_text(imported: ImportedSuite) -> str:
    """The text of `suite.yaml`, with what was left out as comments."""
    head = [f"# Imported from {imported.source}."]
    if imported.not_honored:
        head.append("# Not honored:")
        head += _comment(f"{one.key}: {one.why}" for one in imported.not_honored)
    return "\n".join(head) + "\n" + yaml_text(imported.suite)


def _comment(lines: Iterable[str]) -> list[str]:
    return ["#   " + " ".join(line.split()) for line in lines]


# ---- reading the source


class SourceFiles:
    """Reads a program's files; collects what is wrong with them, with file and line."""

    def __init__(self) -> None:
        self.problems: dict[Problem, None] = {}

    def spot(self, path: Path) -> Location:
        return Location(problems=self.problems, file=str(path))

    def text(self, path: Path) -> str:
        """A text file; empty if it cannot be read."""
        return read_text(path, self.spot(path)) or ""

    def mapping(self, path: Path) -> tuple[dict[str, Any], Location]:
        """A JSON object, whatever the file's ending."""
        spot = self.spot(path)
        text = read_text(path, spot)
        document = None if text is None else read_json(text, spot)
        if document is not None and isinstance(document.data, dict):
            return document.data, document.spot
        if document is not None:
            document.spot.report("must be a JSON object")
        return {}, spot

    def lines(self, path: Path) -> Iterator[tuple[dict[str, Any], Location]]:
        """The objects of a JSONL file; empty lines and lines that start with `//` are skipped."""
        spot = self.spot(path)
        for number, line in enumerate((read_text(path, spot) or "").splitlines(), start=1):
            if not line.strip() or line.lstrip().startswith("//"):
                continue
            here = replace(spot, line=number)
            try:
                data = decode_json(line.strip())
            except ValueError as error:
                here.report(f"not valid JSON: {error}")
                continue
            if isinstance(data, dict):
                yield data, here
            else:
                here.report("must be a JSON object")

    def check(self) -> None:
        """SuiteError if anything was wrong."""
        if self.problems:
            raise SuiteError(tuple(self.problems))


# ---- writing


class _Dumper(yaml.SafeDumper):
    """Text of several lines as a block, and no anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's
        """Indent the items of a list below its key."""
        super().increase_indent(flow, indentless=False)


def _text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.strip("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def yaml_text(data: Any) -> str:
    """Plain data as YAML for people: keys in their own order, long texts as blocks."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


def check_text(keys: Mapping[str, Any]) -> str:
    """The text of `check.yaml`."""
    head = "# Checks the tests: they must pass with the reference solution, and fail without it."
    return f"{head}\n{yaml_text({'name': 'check-solutions', 'fail_under': 1, **keys})}"


def jsonl_text(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
