"""Computes a candidate's normal form, to find duplicates.

Python files count by their syntax, without comments and formatting. Other files, and those that
cannot be parsed, count byte for byte. Nothing here runs a candidate's code or raises because of
it.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.git.objects import ABSENT, FILES, TreeChange
from paraval.processes.quick import run_quickly
from paraval.workspaces.changed_files import shown

BASE_NORMAL = hashlib.sha256().hexdigest()
"""The normal form of a candidate that is equivalent to the baseline."""
LARGEST_SOURCE_BYTES = 2_000_000
BROKEN = "!"
"""What the child prints before a syntax error."""
_PATIENCE_S = 20.0
_CHILD = str(Path(__file__).with_name("syntax_child.py"))


def sources_of(changes: Sequence[TreeChange]) -> set[str]:
    """The hashes of the files that the normal form needs."""
    return {name for change in changes if _is_python(change) for name in _both(change)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSyntax:
    """What the syntax of a candidate's Python files says."""

    normal: str
    """A hash of its normalized changes."""
    syntax_error: str
    """Of the first file that the baseline's Python can be parsed of, and its own cannot."""


def syntax_of(changes: Sequence[TreeChange], sources: Mapping[str, bytes]) -> ChangedSyntax:
    """`sources`: by hash, without too large ones."""
    forms = _forms({name: sources[name] for name in sources_of(changes) if name in sources})
    whole, error = hashlib.sha256(), ""
    for change in sorted(changes, key=lambda one: one.path):
        now = forms.get(change.new_hash) if _is_python(change) else None
        before = forms.get(change.old_hash)
        if now is not None and now.startswith(BROKEN):
            if not error and not (before or "").startswith(BROKEN):
                error = f"syntax error in {shown(change.path)}{now.removeprefix(BROKEN)}"
            now = None
        is_same = now is not None and now == before
        if is_same and change.old_mode == change.new_mode:
            continue
        content = b"deleted" if change.new_mode == ABSENT else (now or change.new_hash).encode()
        whole.update(b"%d %s %o %s\n" % (len(change.path), change.path, change.new_mode, content))
    return ChangedSyntax(normal=whole.hexdigest(), syntax_error=error)


def _is_python(change: TreeChange) -> bool:
    return change.path.endswith(b".py") and change.new_mode in FILES


def _both(change: TreeChange) -> list[str]:
    return [change.new_hash, *([change.old_hash] if change.old_mode in FILES else [])]


def _forms(sources: Mapping[str, bytes]) -> dict[str, str]:
    """Normal forms by hash, of sources that have one; empty if the parser does not finish."""
    asked = [name for name, source in sources.items() if len(source) <= LARGEST_SOURCE_BYTES]
    if not asked:
        return {}
    ended = run_quickly(
        [sys.executable, "-I", "-S", "-W", "ignore", _CHILD],
        env={"PATH": os.environ.get("PATH", os.defpath)},
        stdin=b"".join(b"%d\n%s" % (len(sources[name]), sources[name]) for name in asked),
        timeout=_PATIENCE_S,
    )
    forms = ended.stdout.decode(errors="replace").splitlines()
    if not ended.is_well or len(forms) != len(asked):
        return {}
    return {name: form for name, form in zip(asked, forms, strict=True) if form != "-"}
