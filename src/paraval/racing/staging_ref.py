"""A commit as a candidate: what it changes since it parted from what the race begins with.

Not its tree: that lacks what came to the baseline since, and what was never committed.
"""

from __future__ import annotations

from pathlib import Path

from paraval.git.repositories import Repository, resolve, tree_of
from paraval.git.running import failure, run_git
from paraval.git.trees import write_patch
from paraval.racing.staging_desk import Desk
from paraval.racing.staging_patch import InvalidProposalError, Manner
from paraval.racing.steps import Base

_NONE_IN_COMMON = 1


def tree_with_commit(ref: str, repository: Repository, desk: Desk, base: Base) -> str:
    """The baseline's tree with the changes of a commit. Raises InvalidProposalError where there is
    no such tree, GitError or OSError."""
    commit = resolve(repository, ref)
    parted = _parted_at(commit, repository, base)
    before, after = tree_of(repository, parted), tree_of(repository, commit)
    if before == after:
        return base.tree
    if before == base.tree:
        desk.check_names(after)
        return after
    patch = Path(desk.folder, "commit.patch")
    write_patch(desk.git_dir, (before, after), str(patch), desk.to_read)
    try:
        desk.apply([Manner(text=patch.read_bytes(), strip=1)], desk.entries())
    except InvalidProposalError as error:
        raise InvalidProposalError(
            f"what it changes since commit {parted[:12]} does not go onto what the race begins"
            f" with: {error}"
        ) from error
    return desk.write_tree()


def _parted_at(commit: str, repository: Repository, base: Base) -> str:
    """The last commit that it has in common with what the race begins with."""
    begins = base.commit or resolve(repository, "HEAD")
    ended = run_git([f"--git-dir={repository.git_dir}", "merge-base", begins, commit])
    if ended.is_well:
        return ended.stdout.decode().strip()
    if ended.exit_code == _NONE_IN_COMMON:
        raise InvalidProposalError(
            f"commit {commit[:12]} has no commit in common with {begins[:12]}, which the race"
            " begins with: what it changes cannot be told"
        )
    raise failure(f"cannot tell what commit {commit[:12]} changes", ended)
