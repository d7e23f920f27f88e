"""Cases as other programs keep them: prompts with a ground truth, and a prompt a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.plan.documents import read_text
from paraval.plan.places import Document, Spot, shown, suggestion

TAGS = ("category", "difficulty")
_KEYS = ("id", "prompt", "ground_truth", *TAGS, "description", "tags", "lock", "exclusive")
_CASE_KEYS = ("id", "expect", "tags", "lock", "exclusive")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def from_ground_truth(written: Mapping[str, Any], spot: Spot) -> dict[str, Any]:
    """A case of repo-search-eval, with prompt and ground_truth, in our words; what is no part of
    such a case is told."""
    for key in written:
        if key not in _KEYS:
            name = str(key)
            spot.at(name).report(
                f"unknown key '{name}' in a case with ground_truth{suggestion(name, _KEYS)}"
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


def read_prompt_case(path: Path, spot: Spot) -> Document | None:
    """A text file as one case, named after the file: its text is the input.

    Front matter in YAML, if there is any, gives the keys of a case that it has, and metadata.
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
        # As many lines before it as there are in the file.
        document = _front_matter("\n" + front[1], spot)
        if document is None:
            return None
        spot = document.spot
        case |= {key: document.data[key] for key in _CASE_KEYS if key in document.data}
        rest = {key: value for key, value in document.data.items() if key not in _CASE_KEYS}
        case |= {"metadata": rest} if rest else {}
    # Editors end a file with a line break that its author does not mean.
    case["input"] = words.removesuffix("\n").removesuffix("\r")
    return Document(data=case, spot=spot)


def _front_matter(text: str, spot: Spot) -> Document | None:
    # Only here: the library is slow to load, and few files have any.
    from paraval.plan.yaml_text import read_yaml  # noqa: PLC0415 - see above

    if not text.strip():
        return Document(data={}, spot=spot)
    document = read_yaml(text, spot)
    if document is not None and not isinstance(document.data, Mapping):
        replace(spot, line=1).report(f"front matter must be a mapping, not {shown(document.data)}")
        return None
    return document
