"""What is in the working tree and not in the commit that a race begins with: told, once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.repositories import find_repository, resolve
from paraval.git.snapshots import differing_paths
from paraval.isolation import Workspace
from paraval.racing.request import RaceRequest
from paraval.racing.whereabouts import fitting, path_of
from paraval.report.wording import counted
from paraval.workspaces.selection import shown

_SHOWN = 3


def not_committed_note(
    request: RaceRequest, workspace: Workspace, own: Sequence[Path] = ()
) -> str | None:
    """In words; None where all is committed, or the race is of another commit than HEAD.

    What the race itself is asked with is left out: its file, its candidates, its hooks; and `own`,
    what the engine writes to.
    """
    try:
        repository = find_repository(request.repo)
        is_of_head = resolve(repository, "HEAD") == workspace.commit
        if request.uncommitted or repository.bare or not is_of_head:
            return None
        differing = differing_paths(repository, workspace.commit or "")
    except (ParavalError, OSError):
        # Nothing hangs on it: what is wrong with the repository is told where it matters.
        return None
    top = os.fsencode(repository.top)
    places = [*map(os.fspath, own), *_asked_with(request)]
    asked_with = [os.fsencode(os.path.realpath(place)) for place in places]
    left_out = [
        path for path in differing if not any(_is_at(top + b"/" + path, one) for one in asked_with)
    ]
    if not left_out:
        return None
    first = ", ".join(shown(path) for path in left_out[:_SHOWN])
    more = ", …" if len(left_out) > _SHOWN else ""
    return (
        f"At commit {(workspace.commit or '')[:12]}: what is not committed in your working tree is"
        f" not in the race ({counted(len(left_out), 'file')}: {first}{more});"
        " --uncommitted takes it as it is."
    )


def _is_at(path: bytes, place: bytes) -> bool:
    return path == place or path.startswith(place + b"/")


def _asked_with(request: RaceRequest) -> Iterator[str]:
    """Paths, absolute; not all of them are there."""
    folder = Path(request.folder)
    if request.source is not None:
        yield request.source
    for text in request.candidates:
        found = path_of(text, folder)
        if found is not None:
            yield from [found] if os.path.lexists(found) else fitting(found)
    for hook in (request.generate, request.repair, request.refine):
        for word in () if hook is None else hook.command:
            if "\0" not in word and (folder / word).is_file():
                yield str(folder / word)
