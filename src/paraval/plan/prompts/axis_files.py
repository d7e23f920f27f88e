"""Axes whose values are files of text: `prompts/*.md`, a list, or a mapping of names to files.

A glob and a mapping always are such files. A list may also be meant as names, for a command that
opens them: it stands for the files' texts only if a chat's or an agent's prompt uses the axis.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.problems import Location, shown
from paraval.plan.prompts.texts import Prompt, may_name_a_file, names_a_file, read_prompt_file
from paraval.text.suggest import nearest

_KIND = "text file (.md, .txt, .prompt or .j2)"
_KINDS = f"a {_KIND}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisFile:
    """A file as an axis value, under the name that reports show."""

    name: str
    prompt: Prompt
    spot: Location


def read_axis_files(
    written: Any, spot: Location, folder: Path, prompts: str
) -> list[AxisFile] | None:
    """Return an axis's files, or None if its values are none; report problems, and leave out files
    that have one.

    `prompts`: how the suite's prompts use the axis, see `use_in_prompts`.
    """
    what = f"must be {_KINDS} like the other values of this axis"
    found: list[tuple[str | None, Any, Location]]
    match written:
        case str() if names_a_file(written) or _is_glob(written, folder):
            found = [(None, name, spot) for name in _named(written, spot, folder)]
        case Mapping() if any(isinstance(file, str) for file in written.values()):
            what = f"must be {_KINDS}, or for every value a mapping of target keys"
            found = [(str(name), file, spot.at(str(name))) for name, file in written.items()]
        case list() | tuple() if _are_files(written, folder, prompts):
            found = []
            for number, item in enumerate(written):
                at, listed = spot.at(number), [name for _, name, _ in found]
                names = _named(item, at, folder)
                # A glob stands for the files that are not listed before it.
                found += [(None, name, at) for name in names if name is item or name not in listed]
        case _:
            return None
    stems = [Path(str(file)).stem for _, file, _ in found]
    files = []
    for name, file, at in found:
        if name is not None and _is_glob(file, folder):
            key = spot.path[-1] if spot.path else "AXIS"
            at.report(f"a name stands for one file; for all that match, write {key}: {file}")
            continue
        if not isinstance(file, str) or not may_name_a_file(file) or not file.isprintable():
            at.report(f"{what}, not {shown(file)}")
            continue
        prompt = read_prompt_file(file, at, folder)
        if prompt is not None:
            stem = Path(file).stem
            label = name or (stem if stems.count(stem) == 1 else file)
            files.append(AxisFile(name=label, prompt=prompt, spot=at))
    return files


def check_use(axis: str, target: Any, matrix: Mapping[Any, Any], spot: Location) -> None:
    """Report an axis of files that no template of the target names."""
    overlays = [values for values in matrix.values() if isinstance(values, Mapping)]
    words = json.dumps([target, overlays], default=str)
    if not re.search(rf"\{{\s*{re.escape(axis)}\s*\}}", words):
        spot.report(
            f"names text files, but no template in the target uses {{{axis}}}; write"
            f' prompt: "{{{axis}}}" there'
        )


def use_in_prompts(axis: str, target: Any, matrix: Mapping[Any, Any], folder: Path) -> str:
    """Return how the prompts of a suite use an axis: `whole` if one consists of it only, `part`, or
    nothing."""
    uses = ""
    field = re.compile(rf"\{{\s*{re.escape(axis)}\s*\}}")
    prompts = list(_prompts(target, matrix))
    files = [
        one for name, values in matrix.items() if name != axis for one in _files(values, folder)
    ]
    for text in (*prompts, *(files if prompts else ())):
        if field.fullmatch(text.strip()):
            return "whole"
        is_file = names_a_file(text) or text in files
        try:
            content = (folder / text).read_text("utf-8") if is_file else text
        except (OSError, ValueError):
            continue
        if field.search(content) or (text.endswith(".j2") and re.search(rf"\b{axis}\b", content)):
            uses = "part"
    return uses


def _prompts(target: Any, matrix: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the prompts of chats and agents as written, in the target and in overlays."""
    axes = [values for values in matrix.values() if isinstance(values, Mapping)]
    for keys in (target, *(overlay for values in axes for overlay in values.values())):
        if not isinstance(keys, Mapping):
            continue
        asks = keys.get("chat", keys)
        if not isinstance(asks, Mapping):
            continue
        messages = asks.get("messages")
        items = messages if isinstance(messages, list | tuple) else ()
        contents = [item.get("content") for item in items if isinstance(item, Mapping)]
        for text in (asks.get("prompt"), asks.get("system"), *contents):
            if isinstance(text, str):
                yield text


def _files(values: Any, folder: Path) -> list[str]:
    """Return the files that an axis may name."""
    items = values.values() if isinstance(values, Mapping) else values
    items = items if isinstance(values, Mapping | list | tuple) else [values]
    names = [name for item in items for name in _named(item, None, folder)]
    return [name for name in names if isinstance(name, str) and may_name_a_file(name)]


def _is_glob(written: Any, folder: Path) -> bool:
    if not isinstance(written, str) or not glob.has_magic(written):
        return False
    is_path = names_a_file(written) or re.fullmatch(r"[^\s{}]*/[^\s{}]*", written)
    return bool(is_path) and not os.path.isfile(folder / written)  # noqa: PTH113 - False for a name too long


def _named(written: Any, spot: Location | None, folder: Path) -> list[Any]:
    """Return a value, or the text files that match it if it is a glob; report if there are none."""
    if not _is_glob(written, folder):
        return [written]
    found = glob.iglob(written, root_dir=folder, recursive=True)  # noqa: PTH207 - may be absolute
    names = sorted(name for name in found if (folder / name).is_file())
    texts = [name for name in names if names_a_file(written) or may_name_a_file(name)]
    if not texts and spot is not None:
        what = _KIND if names else "file"
        spot.report(f"no {what} matches {shown(written)}{_near(written, folder)}")
    return texts


def _are_files(values: list[Any] | tuple[Any, ...], folder: Path, prompts: str) -> bool:
    files = [
        value
        for value in values
        if isinstance(value, str) and (names_a_file(value) or _is_glob(value, folder))
    ]
    if prompts == "whole":
        return bool(files)
    names = (name for file in files for name in _named(file, None, folder))
    return prompts == "part" and any((folder / name).is_file() for name in names)


def _near(pattern: str, folder: Path) -> str:
    """A suggestion for the pattern's folder, if there is none of its name."""
    first, *rest = Path(pattern).parts
    if (folder / first).exists() or glob.escape(first) != first:
        return ""
    near = nearest(first, [entry.name for entry in folder.iterdir() if entry.is_dir()])
    return f", did you mean '{Path(near[0], *rest)}'?" if near else ""
