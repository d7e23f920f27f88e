"""Reads the candidates given with a race: patches, folders of replacement files, git refs.

Each gets a name. Staging decides whether it applies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.errors import ParavalError, RequestError
from paraval.git.repositories import Repository, find_repository, resolve
from paraval.racing.candidates.lines import ProposalReader
from paraval.racing.candidates.names import (
    fitting,
    is_commit,
    natural_order,
    near_misses,
    path_of,
    why_no_name,
)
from paraval.racing.candidates.staging import content_hash
from paraval.racing.findings import Proposal
from paraval.racing.request import RaceRequest

PATCHES = (".patch", ".diff")
LINES = ".jsonl"
LARGEST_PATCH = 64 << 20
LARGEST_LINES = 256 << 20
_LITTER = ("__pycache__",)


def given_proposals(request: RaceRequest) -> tuple[Proposal, ...]:
    """Every candidate in the request, in order. RequestError lists all problems."""
    try:
        repository = find_repository(request.repo)
    except ParavalError as error:
        raise RequestError(error.message, hint=error.hint) from error
    if request.head is not None:
        commit = resolve(repository, request.head)
        head = Proposal(name=request.head, ref=commit, whole=True)
        return (replace(head, content=content_hash(head, request.repo)),)
    found: dict[str, _FoundCandidate] = {}
    mistakes: list[str] = []
    for text in request.keys.candidates:
        try:
            for one in _found_in(text, repository, Path(request.folder)):
                mistakes += _take(_hashed(one, request.repo), found)
        except _MistakeError as mistake:
            mistakes += mistake.args
        except OSError as error:
            mistakes.append(f"candidate {text!a} cannot be read: {error.strerror or error}")
    if mistakes:
        raise RequestError("\n".join(mistakes))
    if not found and request.propose is None:
        raise RequestError(
            "there are no candidates to race",
            hint="name patches, folders of replacement files or git refs; or set propose to a"
            " command that prints candidates",
        )
    return tuple(one.proposal for one in found.values())


class _MistakeError(Exception):
    """Invalid candidates, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundCandidate:
    """A candidate, and where it was found."""

    proposal: Proposal
    where: str


def _hashed(one: _FoundCandidate, repo: str) -> _FoundCandidate:
    proposal = one.proposal
    try:
        return replace(one, proposal=replace(proposal, content=content_hash(proposal, repo)))
    except ParavalError as error:
        raise _MistakeError(f"candidate {one.where}: {error.message}") from error


def _take(one: _FoundCandidate, known: dict[str, _FoundCandidate]) -> list[str]:
    """Add it to the known ones; return problems."""
    name = one.proposal.name
    if (why := why_no_name(name)) is not None:
        return [f"candidate {one.where!a}: {why}"]
    other = known.setdefault(name, one)
    if other.where != one.where:
        return [f"two candidates are called '{name}': {other.where} and {one.where}; rename one"]
    return []


def _found_in(text: str, repository: Repository, folder: Path) -> Iterator[_FoundCandidate]:
    path = path_of(text, folder)
    if path is None:
        yield _commit(text, repository, folder)
    elif os.path.lexists(path):
        yield from _at(Path(path), repository)
    else:
        for found in fitting(path):
            yield from _at(Path(found), repository)


def _commit(text: str, repository: Repository, folder: Path) -> _FoundCandidate:
    if not is_commit(repository, text):
        raise _MistakeError(
            f"candidate {text!a} is not a file, folder or glob in {folder}, nor a branch, tag"
            f" or commit of {repository.top}{near_misses(text, folder, repository)}"
        )
    # The commit, not the branch, which may move during the race.
    commit = resolve(repository, text)
    return _FoundCandidate(proposal=Proposal(name=text, ref=commit), where=f"the ref {text}")


def _at(path: Path, repository: Repository) -> Iterator[_FoundCandidate]:
    if path.is_dir():
        yield from _in_folder(path, repository)
    elif not path.is_file():
        raise _MistakeError(f"candidate {path} is neither a file nor a folder")
    elif _holds_candidates(path):
        yield from _in_file(path, repository)
    else:
        raise _MistakeError(
            f"candidate {path} is not a patch: patches end in {' or '.join(PATCHES)}, JSON lines"
            f" in {LINES}; put replacement files in a folder"
        )


def _holds_candidates(path: Path) -> bool:
    return path.suffix.lower() in (*PATCHES, LINES)


def _in_file(path: Path, repository: Repository) -> Iterator[_FoundCandidate]:
    if path.suffix.lower() == LINES:
        yield from _in_lines(path, repository)
        return
    patch = _text(path, LARGEST_PATCH)
    yield _FoundCandidate(proposal=Proposal(name=path.stem, patch=patch), where=str(path))


def _in_lines(path: Path, repository: Repository) -> Iterator[_FoundCandidate]:
    reader = ProposalReader(repo=repository.top, folder=path.parent, called=path.stem)
    found, _ = reader.lines(_text(path, LARGEST_LINES))
    if found.complaints:
        raise _MistakeError(*(f"{path}: {complaint}" for complaint in found.complaints))
    for number, proposal in enumerate(found.proposals, start=1):
        yield _FoundCandidate(proposal=proposal, where=f"{path} (candidate {number})")


def _text(path: Path, limit: int) -> str:
    with path.open("rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise _MistakeError(f"candidate {path} is larger than {limit >> 20} MB")
    return raw.decode(errors="surrogateescape")


# ---- folders


def _in_folder(folder: Path, repository: Repository) -> Iterator[_FoundCandidate]:
    entries = sorted(_entries(folder), key=lambda entry: natural_order(entry.name))
    if not entries:
        raise _MistakeError(f"candidate {folder} is an empty folder")
    folders = [entry for entry in entries if entry.is_dir()]
    if any(entry.is_file() and _holds_candidates(entry) for entry in entries):
        # Other files there, such as a README, are not candidates.
        for entry in entries:
            if entry in folders:
                yield _replacement(entry)
            elif _holds_candidates(entry):
                yield from _at(entry, repository)
    elif len(folders) == len(entries) and not _is_laid_out_as(repository, folders):
        yield from map(_replacement, folders)
    else:
        yield _replacement(folder)


def _entries(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if not entry.name.startswith(".") and entry.name not in _LITTER:
            yield entry


def _is_laid_out_as(repository: Repository, folders: list[Path]) -> bool:
    """Whether a folder mirrors the repository: `candidate/src/a.py` if that has a `src`."""
    return any(Path(repository.top, folder.name).is_dir() for folder in folders)


def _replacement(folder: Path) -> _FoundCandidate:
    absolute = Path(os.path.normpath(folder))
    return _FoundCandidate(
        proposal=Proposal(name=absolute.name, folder=str(absolute)), where=str(absolute)
    )
