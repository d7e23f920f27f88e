"""Reads a candidate out of a model's reply: whole files, edits or a patch in fenced code blocks.

Models are told `FORMAT`, and what they often write instead is understood too. What cannot be
understood is a candidate that does not apply, with the reason.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paraval.dataclass import dataclass
from paraval.racing.findings import Proposal
from paraval.text.words import listed

FORMAT = """\
Reply with every file that you change: its path on a line of its own, then the complete new file in
a fenced code block. To change a few lines of a long file, put edits into the block instead:

<<<<<<< SEARCH
lines exactly as they are now
=======
the lines that replace them
>>>>>>> REPLACE

Do not change tests.
"""
LONGEST_NOTE = 200
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_EDIT = re.compile(
    r"^<{5,9} ?SEARCH[^\n]*\n(?P<old>.*?)^={5,9}[ \t]*\n(?P<new>.*?)^>{5,9} ?REPLACE[^\n]*$",
    re.DOTALL | re.MULTILINE,
)
_PATH = re.compile(r"(?:[\w.@+-]+/)*[\w.@+-]*\w\.\w+")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_PATCH = re.compile(r"\A(?:diff --git |--- \S)")


class UnusableReplyError(ValueError):
    """Why a reply is not a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CodeBlock:
    info: str
    """What follows the opening fence: the language, often a path."""
    before: str
    """The last line before it that is not empty."""
    text: str


def proposal_from(reply: str, files: Mapping[str, str], *, name: str, cut: bool) -> Proposal:
    """The candidate in a reply; `files`: what the model was shown, by path. `cut`: the reply was
    cut off."""
    if cut:
        problem = "the model's reply was cut off; raise max_tokens"
        return Proposal(name=name, patch=reply, problem=problem)
    try:
        blocks, prose = _blocks(reply)
        if _path_of(replace(blocks[0], info="", text=""), files) is not None:
            prose = prose.removesuffix(blocks[0].before)
        note = " ".join(prose.split())[:LONGEST_NOTE]
        patches = [block.text for block in blocks if _is_patch(block)]
        if patches:
            return Proposal(name=name, patch="".join(patches), note=note)
        return Proposal(name=name, patch=_patch(_changed(blocks, files), files), note=note)
    except UnusableReplyError as error:
        return Proposal(name=name, patch=reply, problem=f"the model's reply {error}")


def _blocks(reply: str) -> tuple[list[_CodeBlock], str]:
    """The code blocks of a reply, and the text before the first."""
    blocks: list[_CodeBlock] = []
    fence, info, before, lines = "", "", "", list[str]()
    prose: list[str] = []
    for line in reply.splitlines():
        found = _FENCE.match(line)
        if not fence and found is not None:
            fence, info, lines = found[1], found[2].strip(), []
        elif fence and found is not None and found[1].startswith(fence) and not found[2]:
            text = "".join(f"{one}\n" for one in lines)
            blocks.append(_CodeBlock(info=info, before=before, text=text))
            fence = before = ""
        elif fence:
            lines.append(line)
        elif line.strip():
            before = line.strip()
            if not blocks:
                prose.append(line)
    if fence:
        raise UnusableReplyError("ends inside a code block")
    if not blocks:
        raise UnusableReplyError("has no code block")
    return blocks, "\n".join(prose)


def _is_patch(block: _CodeBlock) -> bool:
    return block.info in ("diff", "patch") or _PATCH.match(block.text) is not None


def _changed(blocks: Sequence[_CodeBlock], files: Mapping[str, str]) -> dict[str, str]:
    """The new text of each file that the blocks change."""
    changed: dict[str, str] = {}
    nameless = []
    for block in blocks:
        edits = [(found["old"], found["new"]) for found in _EDIT.finditer(block.text)]
        path = _path_of(block, files)
        if edits:
            path = path or _file_with(edits[0][0], {**files, **changed})
            if path not in files:
                raise UnusableReplyError(f"edits {path}, which the model was not shown")
            text = changed.get(path, files[path])
            for old, new in edits:
                text = _edited(text, old, new, path)
            changed[path] = text
        elif path is None:
            nameless.append(block)
        else:
            changed[path] = block.text
    if not changed and len(nameless) == len(files) == 1:
        changed = {next(iter(files)): nameless[0].text}
    if not changed:
        raise UnusableReplyError("does not say which file its code is for")
    return changed


def _patch(changed: Mapping[str, str], files: Mapping[str, str]) -> str:
    """The new texts as a patch."""
    parts = []
    for path, new in changed.items():
        old = files.get(path)
        before = "/dev/null" if old is None else f"a/{path}"
        lines = difflib.unified_diff(
            _LINE.findall(old or ""), _LINE.findall(new), before, f"b/{path}"
        )
        for line in lines:
            is_whole = line.endswith("\n")
            parts.append(line if is_whole else f"{line}\n\\ No newline at end of file\n")
    return "".join(parts)


def _path_of(block: _CodeBlock, files: Mapping[str, str]) -> str | None:
    """The path in the line before a block or in its info; None if there is none."""
    inside = block.text.partition("\n")[0].strip("#/<!->* ")
    if inside in files:
        return inside
    for text in (block.info, block.before):
        words = text.replace("path=", " ").replace("file=", " ").split()
        # A sentence may mention a file; a heading is the path, perhaps after a word.
        for word in words if len(words) <= 3 else ():
            path = word.strip("`*\"':#()").removeprefix("./")
            if path in files:
                return path
            near = [one for one in files if one.endswith(f"/{path}")]
            if len(near) == 1:
                return near[0]
            if _PATH.fullmatch(path):
                return path
    return None


def _file_with(old: str, files: Mapping[str, str]) -> str:
    found = [path for path, text in files.items() if _places(text, old)]
    if len(found) != 1:
        where = f"could be for {listed(found)}" if found else "matches no file that it was shown"
        raise UnusableReplyError(f"has an edit without a path that {where}")
    return found[0]


def _edited(text: str, old: str, new: str, path: str) -> str:
    """The text with one edit."""
    if not text.strip() and not old.strip():
        return new
    places = _places(text, old)
    if not places:
        raise UnusableReplyError(f"has an edit of {path} whose SEARCH lines are not in the file")
    if len(places) > 1:
        count = len(places)
        raise UnusableReplyError(f"has an edit of {path} whose SEARCH lines occur {count} times")
    lines, size = text.splitlines(keepends=True), len(old.splitlines())
    return "".join((*lines[: places[0]], new, *lines[places[0] + size :]))


def _places(text: str, old: str) -> list[int]:
    """The lines where a text occurs. Spaces at the ends of lines may differ."""
    lines = [line.rstrip() for line in text.splitlines()]
    wanted = [line.rstrip() for line in old.splitlines()]
    last = len(lines) - len(wanted)
    if not any(wanted):
        return []
    return [at for at in range(last + 1) if lines[at : at + len(wanted)] == wanted]
