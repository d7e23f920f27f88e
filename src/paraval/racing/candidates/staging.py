"""The STAGE step: turns a proposal into a git tree, or finds why it does not apply.

Nothing is written to the user's repository, none of its hooks, filters or settings are used, and
none of the candidate's code is run. Duplicates are decided elsewhere, from the findings here.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from pathlib import Path

from paraval.errors import ParavalError
from paraval.git.alternates import alternates_variable
from paraval.git.folders import folder_tree
from paraval.git.objects import (
    ABSENT,
    LINK,
    TreeChange,
    line_counts,
    read_blobs,
    sizes_of,
    tree_changes,
    write_patch,
)
from paraval.git.repositories import GITLINK, Repository, find_repository, resolve, tree_of
from paraval.git.run_git import GitError, failure, run_git
from paraval.git.snapshots import snapshot
from paraval.processes.quick import KillSwitch
from paraval.racing.candidates.duplicates import LARGEST_SOURCE_BYTES, sources_of, syntax_of
from paraval.racing.candidates.patch import InvalidProposalError, PatchMode, patch_modes
from paraval.racing.candidates.staging_repo import StagingRepo, open_staging
from paraval.racing.context import RaceContext, failed, found
from paraval.racing.findings import Proposal, StagedCandidate, StepFinding
from paraval.racing.integrity.protection import flags_of
from paraval.racing.steps import Base, Step
from paraval.records import PATCH, Attempt, AttemptResult, FileChange, Outcome
from paraval.threads import Threads
from paraval.workspaces.changed_files import shown

# A commit as a candidate: its changes since it branched off from the race's start.

_NONE_IN_COMMON = 1


def tree_with_commit(ref: str, repository: Repository, staging: StagingRepo, base: Base) -> str:
    """The baseline's tree with the changes of a commit. Raises InvalidProposalError if they do not
    apply, GitError or OSError."""
    commit = resolve(repository, ref)
    parted = _parted_at(commit, repository, base)
    before, after = tree_of(repository, parted), tree_of(repository, commit)
    if before == after:
        return base.tree
    if before == base.tree:
        staging.check_names(after)
        return after
    patch = Path(staging.folder, "commit.patch")
    write_patch(staging.git_dir, (before, after), str(patch), staging.to_read)
    try:
        staging.apply([PatchMode(text=patch.read_bytes(), strip=1)], staging.entries())
    except InvalidProposalError as error:
        raise InvalidProposalError(
            f"its changes since commit {parted[:12]} do not apply to the baseline: {error}"
        ) from error
    return staging.write_tree()


def _parted_at(commit: str, repository: Repository, base: Base) -> str:
    """The last commit that it shares with the race's start."""
    begins = base.commit or resolve(repository, "HEAD")
    ended = run_git([f"--git-dir={repository.git_dir}", "merge-base", begins, commit])
    if ended.is_well:
        return ended.stdout.decode().strip()
    if ended.exit_code == _NONE_IN_COMMON:
        raise InvalidProposalError(
            f"commit {commit[:12]} shares no history with {begins[:12]}, where the race starts, so"
            " its changes are unknown"
        )
    raise failure(f"cannot determine what commit {commit[:12]} changes", ended)


MOST_FILES = 1_000
"""Files listed per candidate; all of them are checked."""
PATCH_NAME = "candidate.patch"
STAGED_AT_ONCE = 4
_LONGEST_LINK_BYTES = 10_000
_LONGEST_NAME_BYTES = 255
_LONGEST_PATH_BYTES = 3_000
"""Relative to the repository: systems allow 4,096, including the worktree's folder."""
CANCELLED_S = 5.0
"""How long a cancelled thread may take to clean up before it is abandoned."""


class Stager:
    """Performs STAGE."""

    def __init__(self, context: RaceContext) -> None:
        self._context = context
        self._threads = Threads(limit=STAGED_AT_ONCE)
        self._lock = threading.Lock()
        """Guards `_repository` and its preparation."""
        self._repository: Repository | None = None

    async def perform(self, attempt: Attempt, step: Step) -> AttemptResult:
        """Stage in a thread. Cancelling kills a running git and waits for the thread: its scratch
        folder must not outlive the race."""
        assert step.proposal is not None
        proposal, leash = step.proposal, KillSwitch()
        began = time.perf_counter()

        def on_the_leash() -> AttemptResult:
            with leash.held():
                return self._stage(proposal, attempt.folder, began)

        call = asyncio.ensure_future(self._threads.call(on_the_leash))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            leash.pull()
            await asyncio.wait([call], timeout=CANCELLED_S)
            call.cancel()
            raise

    async def close(self) -> None:
        self._threads.close()

    def _stage(self, proposal: Proposal, folder: str, began: float) -> AttemptResult:
        try:
            staged, patch = self._staged(proposal, folder)
        except InvalidProposalError as error:
            return failed(Outcome.FAILED, str(error), lasting=True, duration_s=_since(began))
        except (ParavalError, OSError) as error:
            words = error.message if isinstance(error, ParavalError) else str(error)
            message = f"candidate '{proposal.name}' could not be read: {words}"
            return failed(Outcome.INFRA_ERROR, message, duration_s=_since(began))
        artifacts = {} if patch is None else {PATCH: patch}
        return found(StepFinding(staged=staged), artifacts=artifacts, duration_s=_since(began))

    def _staged(self, proposal: Proposal, folder: str) -> tuple[StagedCandidate, str | None]:
        """The staged candidate, and the path of its patch; None if it changes nothing."""
        repository, base = self._ready(), self._context.base
        with open_staging(repository, base.tree, self._context.objects) as staging:
            tree = _tree_of(proposal, repository, staging, base)
            changes = tree_changes(staging.git_dir, base.tree, tree, staging.to_read)
            _check_can_be_checked_out(changes)
            contents = _contents(staging, changes)
            patch = None
            if changes:
                Path(folder).mkdir(parents=True, exist_ok=True)
                patch = str(Path(folder, PATCH_NAME))
                write_patch(staging.git_dir, (base.tree, tree), patch, staging.to_read)
            files = _files(changes, line_counts(staging.git_dir, base.tree, tree, staging.to_read))
        links = {
            shown(one.path): shown(contents.get(one.new_hash, b""))
            for one in changes
            if one.new_mode == LINK
        }
        request = self._context.request
        is_trusted = request.head is not None  # a commit of one's own may change its tests
        forms = syntax_of(changes, contents)
        staged = StagedCandidate(
            tree=tree,
            normal=forms.normal,
            problem=forms.syntax_error,
            files=files[:MOST_FILES],
            flags=() if is_trusted else flags_of(files, request, start=base.start, links=links),
        )
        return staged, patch

    def _ready(self) -> Repository:
        """The user's repository, with the baseline's tree readable from it or from the race's own
        objects. Raises GitError or OSError."""
        with self._lock:
            if self._repository is None:
                context = self._context
                repository = find_repository(context.request.repo)
                context.objects.mkdir(parents=True, exist_ok=True)
                if context.request.keys.repo.uncommitted:
                    _keep_snapshot(repository, context.base.tree, context.objects)
                self._repository = repository
            return self._repository


def content_hash(proposal: Proposal, repo: str) -> str:
    """A hash of the proposed content. Raises GitError if its folder or ref does not exist."""
    whole = hashlib.sha256()
    if proposal.patch is not None:
        whole.update(b"patch " + proposal.patch.encode(errors="surrogatepass"))
    elif proposal.folder is not None:
        if not Path(proposal.folder).is_dir():
            raise GitError(f"folder {proposal.folder} does not exist")
        whole.update(b"folder " + folder_tree(proposal.folder).encode())
    else:
        # The commit, not its tree: its changes depend on its history.
        commit = resolve(find_repository(repo), proposal.ref or "")
        whole.update(b"ref " + commit.encode())
    return whole.hexdigest()


def _tree_of(proposal: Proposal, repository: Repository, staging: StagingRepo, base: Base) -> str:
    if proposal.ref is not None:
        _check_it_is_the_same(proposal, repository)
        if proposal.whole:
            tree = tree_of(repository, resolve(repository, proposal.ref))
            staging.check_names(tree)
            return tree
        return tree_with_commit(proposal.ref, repository, staging, base)
    if proposal.problem:
        raise InvalidProposalError(proposal.problem)
    if proposal.patch is not None:
        modes = patch_modes(_patch_bytes(proposal.patch), base.start)
        staging.apply(modes, staging.entries())
    elif proposal.folder is not None:
        _check_it_is_the_same(proposal, repository)
        staging.put_folder(proposal.folder)
    else:
        raise InvalidProposalError("the proposal is empty: no patch, folder or ref")
    return staging.write_tree()


def _check_it_is_the_same(proposal: Proposal, repository: Repository) -> None:
    """Check that a folder or ref has not changed since it was proposed."""
    what = f"the folder {proposal.folder}" if proposal.folder else f"'{proposal.ref}'"
    try:
        now = content_hash(proposal, repository.top)
    except GitError as error:
        raise InvalidProposalError(error.message) from error
    if proposal.content not in ("", now):
        raise InvalidProposalError(f"{what} has changed since the race began")


def _check_can_be_checked_out(changes: list[TreeChange]) -> None:
    """git accepts trees that no disk can hold. Raises InvalidProposalError."""
    for change in changes:
        if change.new_mode == ABSENT:
            continue
        name = shown(change.path)[:200]
        longest = max(map(len, change.path.split(b"/")))
        if longest > _LONGEST_NAME_BYTES:
            raise InvalidProposalError(
                f"{name}: a file name of {longest:,} bytes is too long (at most"
                f" {_LONGEST_NAME_BYTES:,})"
            )
        if len(change.path) > _LONGEST_PATH_BYTES:
            raise InvalidProposalError(
                f"{name}: a path of {len(change.path):,} bytes is too long (at most"
                f" {_LONGEST_PATH_BYTES:,})"
            )
        if change.new_mode == GITLINK:
            raise InvalidProposalError(
                f"{name} is a submodule: its files are not in this repository, so no candidate"
                " can add or change it"
            )


def _patch_bytes(text: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidProposalError("the patch is not text") from error


def _keep_snapshot(repository: Repository, tree: str, objects: Path) -> None:
    """Save the objects of the working tree that the race began with, if missing."""
    there = run_git(
        [f"--git-dir={repository.git_dir}", "cat-file", "-e", f"{tree}^{{tree}}"],
        env=alternates_variable(str(objects)),
    )
    if not there.is_well and snapshot(repository, objects).tree != tree:
        raise GitError(
            f"the working tree of {repository.top} has changed since the race began",
            hint="start the race again, and do not change the working tree until it has begun",
        )


def _contents(staging: StagingRepo, changes: list[TreeChange]) -> dict[str, bytes]:
    """Contents of sources and links by hash, without too large ones."""
    links = {one.new_hash for one in changes if one.new_mode == LINK}
    wanted = sources_of(changes) | links
    sizes = sizes_of(staging.git_dir, wanted, staging.to_read)
    small = [
        name
        for name, size in sizes.items()
        if size <= (_LONGEST_LINK_BYTES if name in links else LARGEST_SOURCE_BYTES)
    ]
    return read_blobs(staging.git_dir, small, staging.to_read)


def _files(
    changes: list[TreeChange], counts: dict[bytes, tuple[int, int] | None]
) -> tuple[FileChange, ...]:
    files = []
    for change in changes:
        lines = counts.get(change.path, (0, 0))
        status = "added" if change.old_mode == ABSENT else "changed"
        files.append(
            FileChange(
                path=shown(change.path),
                status="deleted" if change.new_mode == ABSENT else status,
                lines_added=None if lines is None else lines[0],
                lines_deleted=None if lines is None else lines[1],
                binary=lines is None,
            )
        )
    return tuple(files)


def _since(began: float) -> float:
    return time.perf_counter() - began
