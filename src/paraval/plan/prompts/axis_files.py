"""Axes whose values are files of text: `prompts/*.md`, a list, or a mapping of names to files.

A glob and a mapping always are such files. A list may also be meant as names, for a command that
opens them: it stands for the files' texts only if a chat's or an agent's prompt uses the axis.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paraval.documents.problems import Location, shown
from paraval.plan.prompts.texts import Prompt, may_name_a_file, names_a_file, read_prompt_file
from paraval.text.suggest import suggestion

_KINDS = "a text file (.md, .txt, .prompt or .j2)"


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
        case str() if names_a_file(written):
            names = _matching(written, folder)
            if not names and glob.escape(written) == written:
                names = [written]
            if not names:
                spot.report(f"no file matches {shown(written)}{_near(written, folder)}")
            found = [(None, name, spot) for name in names]
        case Mapping() if any(isinstance(file, str) for file in written.values()):
            what = f"must be {_KINDS}, or for every value a mapping of target keys"
            found = [(str(name), file, spot.at(str(name))) for name, file in written.items()]
        case list() | tuple() if _are_files(written, folder, prompts):
            found = [(None, name, spot.at(number)) for number, name in enumerate(written)]
        case _:
            return None
    stems = [Path(str(file)).stem for _, file, _ in found]
    files = []
    for name, file, at in found:
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
    if isinstance(values, str):
        return _matching(values, folder) if names_a_file(values) else []
    items = values.values() if isinstance(values, Mapping) else values
    items = items if isinstance(values, Mapping | list | tuple) else ()
    return [item for item in items if isinstance(item, str) and may_name_a_file(item)]


def _matching(pattern: str, folder: Path) -> list[str]:
    names = glob.iglob(pattern, root_dir=folder, recursive=True)  # noqa: PTH207 - may be absolute
    return sorted(name for name in names if (folder / name).is_file())


def _are_files(values: list[Any] | tuple[Any, ...], folder: Path, prompts: str) -> bool:
    files = [value for value in values if isinstance(value, str) and names_a_file(value)]
    if prompts == "whole":
        return bool(files)
    return prompts == "part" and any((folder / file).is_file() for file in files)


def _near(pattern: str, folder: Path) -> str:
    """A suggestion for the pattern's folder, if there is none of its name."""
    first = Path(pattern).parts[0]
    if (folder / first).exists() or glob.escape(first) != first:
        return ""
    near = suggestion(first, [entry.name for entry in folder.iterdir() if entry.is_dir()])
    return near if near.endswith("?") else ""
