"""Workspaces as suites write them: every key of a folder and of a git worktree."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from paraval.plan.form_types import Arguments, Flag, Form, Seconds, Told, Words


class WorkspaceForm(Form):
    """What all workspaces have."""

    setup: Annotated[Arguments, Words("a list of texts and numbers")] | None = Field(
        None,
        description="A command that makes it ready, run once in each; what it leaves that git"
        " ignores is kept between trials.",
    )
    setup_timeout: Seconds = Field(600.0, description="How long `setup` may take.")
    sandbox: Flag = Field(
        False,
        description="Attempts and grader commands can write only in their workspace, home and"
        " temporary folder. Homes and other data on this machine are hidden from them, and the"
        " suite's folder from attempts. Grader commands have no network. Needs bubblewrap.",
    )
    readable: Annotated[list[str], Words("a list of paths")] | None = Field(
        None,
        description="With `sandbox: true`: files and folders that can be read besides what commands"
        " name, relative to the suite's folder.",
    )


class FolderWorkspaceForm(WorkspaceForm):
    """A fresh folder for each attempt."""

    folder: Annotated[str | Literal[True] | None, Words("the path of a folder, or true")] = Field(
        None,
        description="A template that is copied, without its `.git`; `true` or `null`: the folder is"
        " empty.",
    )


class GitWorkspaceForm(WorkspaceForm):
    """A worktree for each attempt, from a pool. The repository itself is never touched: not its
    branches, its index, its configuration or its working tree."""

    git: Annotated[str, Field(min_length=1), Words("the path of a git repository")] = Field(
        description="A repository, or a folder within one, in which attempts then begin."
    )
    ref: Annotated[str, Field(min_length=1), Words("the name of a commit")] | None = Field(
        None, description="A branch, a tag or a commit; by default `HEAD`."
    )
    uncommitted: Flag = Field(
        False, description="Take the working tree as it is, what git ignores left out."
    )


WorkspaceWritten = Annotated[
    Literal["none"] | FolderWorkspaceForm | GitWorkspaceForm,
    Told("'none', or a mapping with folder or git"),
]
