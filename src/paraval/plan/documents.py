"""Reading YAML, JSON and TOML files into plain data, whole, with the line of every key.

What the data means is for others to say. A file that cannot be read is told to its spot, and
nothing comes back for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from paraval.plan.json_text import read_json
from paraval.plan.places import Document, Spot, shown, suggestion

SIZE_LIMIT_BYTES = 10 << 20


def read_document(path: Path, spot: Spot) -> Document | None:
    """The data of a .yaml, .yml, .json or .toml file; None after telling what is wrong with it."""
    readers: dict[str, Callable[[str, Spot], Document | None]] = {
        ".yaml": _read_yaml,
        ".yml": _read_yaml,
        ".json": read_json,
        ".toml": _read_toml,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        spot.report(f"a file of the kind '{path.suffix}' cannot be read; use {', '.join(readers)}")
        return None
    text = read_text(path, spot)
    if text is None:
        return None
    if not text.strip():
        spot.report("the file is empty")
        return None
    return reader(text, spot)


def _read_yaml(text: str, spot: Spot) -> Document | None:
    # Only here, as below: the libraries are slow to load, and a suite is in one language.
    from paraval.plan.yaml_text import read_yaml  # noqa: PLC0415 - see above

    return read_yaml(text, spot)


def _read_toml(text: str, spot: Spot) -> Document | None:
    from paraval.plan.toml_text import read_toml  # noqa: PLC0415 - see above

    return read_toml(text, spot)


def read_beside(name: str, spot: Spot, folder: Path) -> Document | None:
    """The data of a file that is named at a spot; None after telling what is wrong with it."""
    reason = why_unreadable(folder / name)
    if reason:
        spot.report(f"{shown(name)}: {reason}")
        return None
    return read_document(folder / name, beside(name, spot))


def beside(name: str, spot: Spot) -> Spot:
    """The spot of a file that is named at another: called as the author would, from there."""
    folder = Path(spot.file).parent if spot.file else Path()
    return Spot(problems=spot.problems, file=str(folder / name))


def read_text(path: Path, spot: Spot) -> str | None:
    """A small text file as a whole; None after telling why it cannot be had."""
    reason = why_unreadable(path)
    if reason:
        spot.report(reason)
        return None
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_LIMIT_BYTES + 1)
    except OSError as error:
        spot.report(f"cannot be read: {error.strerror}")
        return None
    if len(raw) > SIZE_LIMIT_BYTES:
        spot.report(
            f"the file is larger than {SIZE_LIMIT_BYTES >> 20} MB; keep many cases in a .jsonl or"
            " .csv file, which are read line by line"
        )
        return None
    return _decoded(raw, spot)


def why_unreadable(path: Path) -> str | None:
    """Why there is no file to read at a path; None where there is one."""
    try:
        if path.is_dir():
            return "is a folder, not a file"
        if path.is_file():
            return None
        if path.exists():
            return "is not a plain file"
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or error}"
    near = suggestion(path.name, beside)
    return f"there is no such file{near if near.endswith('?') else ''}"


def _decoded(raw: bytes, spot: Spot) -> str | None:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        spot.report("the file is UTF-16; save it as UTF-8")
        return None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = raw[error.start]
        replace(spot, line=line).report(f"not UTF-8 text (byte 0x{byte:02x}); save it as UTF-8")
        return None
