"""A proposal becomes a tree or is refused with the reason; the user's repository is left alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paraval.git.repositories import find_repository
from paraval.git.run_git import GitError
from paraval.git.snapshots import snapshot
from paraval.processes.children import Warden
from paraval.racing.candidates.duplicates import BASE_NORMAL
from paraval.racing.candidates.staging import Stager, content_hash
from paraval.racing.context import RaceContext
from paraval.racing.findings import Proposal, StagedCandidate
from paraval.racing.integrity.protection import ProtectedPaths, flags_of_kept, leads_out
from paraval.racing.request import RaceKeys, RaceRequest
from paraval.racing.steps import Base, Step, StepKind, finding_of, trial_of
from paraval.records import Attempt, AttemptResult, Change, FileChange, Outcome
from paraval.targets.command import ProcessRoom
from paraval.workspaces.slots import LOST
from paraval.workspaces.workspace import KeptWorkspace

from .race_kit import patch_of
from .workspace_kit import fingerprint, git, repository_fixture, run  # noqa: F401 - a fixture


def request_for(
    folder: Path, test: Sequence[str] = ("pytest", "-q", "tests"), **asked: Any
) -> RaceRequest:
    keys = {"test": list(test), "bench": ["python", "bench.py"], **asked}
    return RaceRequest(
        name="race",
        source=None,
        folder=str(folder),
        repo=str(folder),
        keys=RaceKeys.model_validate(keys),
    )


class Stage:
    """A race that only stages."""

    def __init__(self, folder: Path, place: Path, **asked: Any) -> None:
        self.place = place
        self.repo = folder
        top = git(folder, "rev-parse", "--show-toplevel")
        start = os.path.relpath(folder, top)
        self.request = request_for(folder, **asked)
        tree = git(folder, "rev-parse", "HEAD^{tree}")
        if self.request.keys.repo.uncommitted:
            tree = snapshot(find_repository(folder), place / "elsewhere").tree
        self.base = Base(tree=tree, start=start, commit=git(folder, "rev-parse", "HEAD"))
        self.objects = place / "run" / "objects"

    def __call__(self, *proposals: Proposal) -> list[AttemptResult]:
        return run(self._perform(proposals))

    async def _perform(self, proposals: tuple[Proposal, ...]) -> list[AttemptResult]:
        async with self.opened() as stager:
            return [
                await stager.perform(*self.step(index, proposal))
                for index, proposal in enumerate(proposals)
            ]

    def step(self, index: int, proposal: Proposal) -> tuple[Attempt, Step]:
        step = Step(kind=StepKind.STAGE, candidate=proposal.name, proposal=proposal)
        trial = trial_of(step, index, self.request, self.base)
        folder = str(self.place / "run" / "attempts" / f"{index}-{proposal.name}")
        return Attempt(trial=trial, number=1, folder=folder), step

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Stager]:
        async with Warden() as warden:
            context = RaceContext(
                request=self.request,
                base=self.base,
                processes=ProcessRoom(warden=warden, run_id="run"),
                workspaces=None,  # type: ignore[arg-type]  # staging needs none
                objects=self.objects,
                run_folder=self.place / "run",
            )
            stager = Stager(context)
            yield stager
            await stager.close()

    def staged(self, **proposed: Any) -> StagedCandidate:
        (result,) = self(Proposal(name=proposed.pop("name", "one"), **proposed))
        assert result.outcome is Outcome.PASSED, result.error
        staged = finding_of(result).staged
        assert staged is not None
        return staged

    def refused(self, **proposed: Any) -> str:
        (result,) = self(Proposal(name="one", **proposed))
        assert result.outcome is Outcome.FAILED, result
        assert result.error is not None
        assert result.error.lasting
        return result.error.message

    def shown(self, tree: str, path: str) -> str:
        return self._git("show", f"{tree}:{path}")

    def listed(self, tree: str) -> dict[str, str]:
        lines = self._git("ls-tree", "-r", tree).splitlines()
        return {line.split("\t")[1]: line.split(" ")[0] for line in lines}

    def _git(self, *arguments: str) -> str:
        env = {**os.environ, "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.objects)}
        argv = ["git", "-C", str(self.repo), *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True, env=env).stdout


@pytest.fixture(name="stage")
def stage_fixture(repository: Path, tmp_path: Path) -> Stage:
    return Stage(repository, tmp_path)


EDIT = """\
diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,2 +1,2 @@
 one
-two
+TWO
"""


def test_a_patch_becomes_a_tree_and_a_patch_that_git_applies(
    stage: Stage, repository: Path, tmp_path: Path
) -> None:
    (result,) = stage(Proposal(name="one", patch=EDIT))
    staged = finding_of(result).staged
    assert staged is not None
    assert stage.shown(staged.tree, "a.txt") == "one\nTWO\n"
    assert [(file.path, file.status, file.lines_added) for file in staged.files] == [
        ("a.txt", "changed", 1)
    ]
    assert staged.flags == ()
    patch = Path(result.artifacts["patch"])
    git(repository, "clone", "-q", ".", str(tmp_path / "clone"))
    git(tmp_path / "clone", "apply", "--index", str(patch))
    assert git(tmp_path / "clone", "write-tree") == staged.tree


def changed_clone(repository: Path, place: Path) -> Path:
    """With all kinds of changes, committed."""
    git(repository, "clone", "-q", ".", str(place))
    (place / "a.txt").write_text("one\nTWO\nthree")
    (place / "src" / "b.py").rename(place / "src" / "renamed.py")
    (place / "src" / "run.sh").chmod(0o644)
    (place / "image.bin").write_bytes(bytes(range(255, -1, -1)))
    (place / "new folder").mkdir()
    (place / "new folder" / 'odd "näme"').write_text("x\n")
    (place / "link").unlink()
    (place / "link").symlink_to("src")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "all kinds of changes")
    return place


@pytest.mark.parametrize(
    "made_by",
    [
        ("diff", "--binary", "HEAD~1", "HEAD"),
        ("diff", "--binary", "--no-renames", "HEAD~1", "HEAD"),
        ("diff", "--binary", "--no-prefix", "HEAD~1", "HEAD"),
        ("diff", "--binary", "--src-prefix=old/", "--dst-prefix=new/", "HEAD~1", "HEAD"),
        ("format-patch", "--stdout", "--binary", "HEAD~1"),
        ("format-patch", "--stdout", "--binary", "-M", "--attach", "HEAD~1"),
    ],
)
def test_patches_of_every_origin_become_the_same_tree(
    stage: Stage, repository: Path, tmp_path: Path, made_by: tuple[str, ...]
) -> None:
    clone = changed_clone(repository, tmp_path / "clone")
    patch = git(clone, *made_by) + "\n"
    staged = stage.staged(patch=patch)
    assert staged.tree == git(clone, "rev-parse", "HEAD^{tree}")
    assert stage.listed(staged.tree)["link"] == "120000"


def test_a_ref_a_folder_and_any_form_of_a_patch_become_the_same_tree(
    stage: Stage, repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "replacement"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.txt").write_text("one\nTWO\n")
    git(repository, "checkout", "-qb", "better")
    (repository / "a.txt").write_text("one\nTWO\n")
    git(repository, "commit", "-qam", "better")
    git(repository, "checkout", "-q", "main")
    patches = (
        EDIT,
        EDIT.rstrip("\n"),
        EDIT.replace("\n", "\r\n"),
        EDIT.replace("a/a.txt", "a.txt").replace("b/a.txt", "a.txt"),
        patch_of(repository, {"a.txt": "one\nTWO\n"}),
    )
    trees = {
        *(stage.staged(patch=patch).tree for patch in patches),
        stage.staged(folder=str(folder)).tree,
        stage.staged(ref="better").tree,
    }
    assert len(trees) == 1


def test_files_keep_their_permissions(stage: Stage, repository: Path, tmp_path: Path) -> None:
    patch = patch_of(repository, {"src/run.sh": "echo\n", "src/b.py": None, "deep/er/x": "x"})
    assert stage.listed(stage.staged(patch=patch).tree) == {
        ".gitignore": "100644",
        "a.txt": "100644",
        "deep/er/x": "100644",
        "image.bin": "100644",
        "link": "120000",
        "src/run.sh": "100755",
    }
    folder = tmp_path / "replacement"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "run.sh").write_text("echo\n")
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o755)
    (folder / "way").symlink_to("a.txt")
    listed = stage.listed(stage.staged(folder=str(folder)).tree)
    modes = [listed[name] for name in ("src/run.sh", "program", "way")]
    assert modes == ["100755", "100755", "120000"]


def test_a_patch_may_be_relative_to_the_folder_where_commands_run(
    repository: Path, tmp_path: Path
) -> None:
    stage = Stage(repository / "src", tmp_path)
    patch = "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-print('b')\n+print('c')\n"
    staged = stage.staged(patch=patch)
    assert [file.path for file in staged.files] == ["src/b.py"]


def test_a_plain_patch_adds_a_file_at_its_path(stage: Stage) -> None:
    staged = stage.staged(patch="--- /dev/null\n+++ src/new.py\n@@ -0,0 +1 @@\n+x = 1\n")
    assert [file.path for file in staged.files] == ["src/new.py"]


def test_a_patch_applies_to_a_file_with_other_line_endings(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "dos")
    stage = Stage(repository, tmp_path)
    body = "@@ -1,2 +1,2 @@\n one\r\n-two\r\n+2\r\n"
    patch = f"--- a/dos.txt\n+++ b/dos.txt\n{body}"
    trees = {
        stage.staged(patch=text).tree
        for text in (patch, patch.replace("\r\n", "\n").replace("\n", "\r\n"))
    }
    assert len(trees) == 1
    assert stage.shown(trees.pop(), "dos.txt") == "one\r\n2\r\n".replace("\r\n", "\n")


def test_a_folder_that_changes_nothing_is_the_baseline(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "same").mkdir()
    (tmp_path / "same" / "a.txt").write_text("one\ntwo\n")
    staged = stage.staged(folder=str(tmp_path / "same"))
    assert (staged.tree, staged.normal, staged.files) == (stage.base.tree, BASE_NORMAL, ())


def test_a_syntax_error_is_found_before_the_tests_run(stage: Stage, repository: Path) -> None:
    broken = stage.staged(patch=patch_of(repository, {"src/b.py": "def f(:\n"}))
    assert broken.problem == "syntax error in src/b.py:1: invalid syntax"
    assert stage.staged(patch=patch_of(repository, {"src/b.py": "def f(): 0\n"})).problem == ""


def test_a_race_may_start_from_uncommitted_changes(repository: Path, tmp_path: Path) -> None:
    (repository / "a.txt").write_text("one\nnot committed\n")
    (repository / "untracked").write_text("x\n")
    stage = Stage(repository, tmp_path, repo={"uncommitted": True})
    staged = stage.staged(patch=EDIT.replace("-two", "-not committed"))
    assert stage.shown(staged.tree, "a.txt") == "one\nTWO\n"
    assert "untracked" in stage.listed(staged.tree)


# ---- refs


def committed(repository: Path, branch: str, files: dict[str, str | None], *, at: str) -> None:
    """A branch from there with one commit; the working tree is left as it was."""
    place = repository.parent / f"of-{branch}"
    git(repository, "worktree", "add", "-q", "-b", branch, str(place), at)
    for name, text in files.items():
        if text is None:
            (place / name).unlink()
        else:
            (place / name).write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-q", "--allow-empty", "-m", branch)
    git(repository, "worktree", "remove", str(place))


def test_a_ref_is_its_changes_and_reverts_nothing_newer(repository: Path, tmp_path: Path) -> None:
    committed(repository, "better", {"src/b.py": "print('better')\n"}, at="main")
    (repository / "a.txt").write_text("one\ntwo\nthree\n")
    (repository / "newer.txt").write_text("newer\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "the baseline went on")
    stage = Stage(repository, tmp_path)
    staged = stage.staged(ref="better")
    assert [(file.path, file.status) for file in staged.files] == [("src/b.py", "changed")]
    assert stage.shown(staged.tree, "a.txt") == "one\ntwo\nthree\n"
    assert stage.shown(staged.tree, "src/b.py") == "print('better')\n"


def test_a_ref_keeps_uncommitted_files_of_the_baseline(repository: Path, tmp_path: Path) -> None:
    committed(repository, "better", {"src/b.py": None, "more.py": "1\n"}, at="main")
    (repository / "a.txt").write_text("one\nnot committed\n")
    (repository / "untracked").write_text("x\n")
    stage = Stage(repository, tmp_path, repo={"uncommitted": True})
    before = fingerprint(repository)
    staged = stage.staged(ref="better")
    assert [(file.path, file.status) for file in staged.files] == [
        ("more.py", "added"),
        ("src/b.py", "deleted"),
    ]
    assert stage.shown(staged.tree, "a.txt") == "one\nnot committed\n"
    assert "untracked" in stage.listed(staged.tree)
    assert fingerprint(repository) == before


def test_every_kind_of_change_of_a_ref_applies_to_a_newer_baseline(
    repository: Path, tmp_path: Path
) -> None:
    clone = changed_clone(repository, tmp_path / "clone")
    git(repository, "fetch", "-q", str(clone), "HEAD:changed")
    (repository / "newer.txt").write_text("newer\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "the baseline went on")
    git(clone, "pull", "-q", "--no-rebase", "--no-edit", str(repository), "main")
    staged = Stage(repository, tmp_path).staged(ref="changed")
    assert staged.tree == git(clone, "rev-parse", "HEAD^{tree}")


def test_a_ref_without_changes_of_its_own_is_the_baseline(repository: Path, tmp_path: Path) -> None:
    committed(repository, "empty", {}, at="main")
    git(repository, "tag", "older")
    (repository / "a.txt").write_text("newer\n")
    git(repository, "commit", "-qam", "newer")
    stage = Stage(repository, tmp_path)
    for ref in ("HEAD", "older", "empty"):
        staged = stage.staged(ref=ref)
        assert (staged.tree, staged.normal, staged.files) == (stage.base.tree, BASE_NORMAL, ())


def test_a_ref_that_does_not_apply_to_the_baseline_is_refused(
    repository: Path, tmp_path: Path
) -> None:
    committed(repository, "other", {"a.txt": "one\n2\n"}, at="main")
    (repository / "a.txt").write_text("one\nzwei\n")
    git(repository, "commit", "-qam", "the baseline went on")
    stranger = git(repository, "commit-tree", "-m", "a stranger", "HEAD^{tree}")
    stage = Stage(repository, tmp_path)
    assert "a.txt: patch does not apply" in stage.refused(ref="other")
    assert "shares no history" in stage.refused(ref=stranger)


# ---- what is refused


def adding(path: str, mode: str = "100644", text: str = "x") -> str:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n"
        f"@@ -0,0 +1 @@\n+{text}\n\\ No newline at end of file\n"
    )


ATTRIBUTES = "* text eol=crlf filter=evil\n"
GITLINK = f"""\
diff --git a/vendored b/vendored
new file mode 160000
index 0000000000000000000000000000000000000000..{"1" * 40}
--- /dev/null
+++ b/vendored
@@ -0,0 +1 @@
+Subproject commit {"1" * 40}
"""
HOSTILE_PATHS = [
    "../outside",
    "src/../../outside",
    ".git/config",
    ".GIT/config",
    ".git /config",
    ".git./config",
    "git~1/config",
    "src/.git/hooks/x",
    ".g\u200cit/config",
    "link/x",
    "a.txt/x",
]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_path_that_leads_out_or_into_git_is_refused(
    stage: Stage, tmp_path: Path, path: str
) -> None:
    assert stage.refused(patch=adding(path))
    file = tmp_path / "replacement" / path
    if path.startswith((".git", "git", ".g")) and not path.startswith(".git/"):
        file.parent.mkdir(parents=True)
        file.write_text("x")
        assert stage.refused(folder=str(tmp_path / "replacement"))


@pytest.mark.parametrize(
    ("proposed", "words"),
    [
        ({"patch": EDIT.replace("-two", "-zwei")}, "a.txt: patch does not apply"),
        ({"patch": EDIT.replace("a.txt", "b.txt")}, "b.txt: does not exist in index"),
        ({"patch": EDIT[:-6]}, "corrupt patch"),
        ({"patch": ""}, "it contains no patch"),
        ({"patch": "no patch at all\n"}, "it contains no patch"),
        ({"patch": "\ud800"}, "not text"),
        ({"patch": adding("x").replace("b/x", "/etc/x")}, "absolute path: /etc/x"),
        ({"patch": "literal 999999999999\n"}, "larger than 100 MB"),
        ({"folder": "/nowhere/at/all"}, "does not exist"),
        ({"patch": adding("x" * 300)}, "a file name of 300 bytes"),
        ({"patch": adding(f"d/{'x' * 300}/y")}, "a file name of 300 bytes"),
        ({"patch": adding("d/" * 2000 + "x")}, "a path of 4,001 bytes"),
        ({"patch": GITLINK}, "vendored is a submodule"),
        ({"ref": "nowhere"}, "not a branch, tag or commit"),
        ({"ref": "--help"}, "not a branch, tag or commit"),
        ({"patch": EDIT, "problem": "the model's reply has no code block"}, "has no code block"),
        ({}, "the proposal is empty"),
    ],
)
def test_a_proposal_that_is_no_change_to_the_baseline_is_refused(
    stage: Stage, proposed: dict[str, Any], words: str
) -> None:
    assert words in stage.refused(**proposed)


def test_a_folder_or_a_ref_that_changed_since_it_was_proposed_is_refused(
    stage: Stage, tmp_path: Path, repository: Path
) -> None:
    folder = tmp_path / "replacement"
    folder.mkdir()
    (folder / "a.txt").write_text("1\n")
    proposal = Proposal(name="one", folder=str(folder))
    content = content_hash(proposal, str(repository))
    stage.staged(folder=str(folder), content=content)
    (folder / "a.txt").write_text("2\n")
    assert "has changed since the race began" in stage.refused(folder=str(folder), content=content)
    ref = content_hash(Proposal(name="one", ref="HEAD"), str(repository))
    stage.staged(ref="HEAD", content=ref)
    git(repository, "commit", "-q", "--allow-empty", "-m", "another commit of the same tree")
    assert "'HEAD' has changed since the race began" in stage.refused(ref="HEAD", content=ref)
    (folder / "pipe").unlink(missing_ok=True)
    os.mkfifo(folder / "pipe")
    assert "not a regular file" in stage.refused(folder=str(folder))
    with pytest.raises(GitError, match="does not exist"):
        content_hash(Proposal(name="one", folder="/nowhere/at/all"), str(repository))


def test_a_tree_that_contains_git_is_refused(stage: Stage, repository: Path) -> None:
    """Plain git neither makes nor checks one out."""
    blob = git(repository, "rev-parse", "HEAD:a.txt")
    inner = _tree(repository, f"100644 blob {blob}\tconfig\n")
    tree = _tree(repository, f"040000 tree {inner}\t.git\n")
    commit = git(repository, "commit-tree", tree, "-m", "hostile", "-p", "HEAD")
    git(repository, "update-ref", "refs/heads/hostile", commit)
    assert "invalid path" in stage.refused(ref="hostile")
    git(repository, "commit", "-q", "--allow-empty", "-m", "the baseline went on")
    (repository / "newer.txt").write_text("newer\n")
    went_on = Stage(repository, repository.parent / "later", repo={"uncommitted": True})
    assert "invalid path" in went_on.refused(ref="hostile")


def _tree(repository: Path, listed: str) -> str:
    argv = ["git", "-C", str(repository), "mktree"]
    made = subprocess.run(argv, input=listed, check=True, capture_output=True, text=True)
    return made.stdout.strip()


# ---- the user's repository


def test_staging_changes_nothing_in_the_users_repository(repository: Path, tmp_path: Path) -> None:
    """Not a byte, not a time; its hooks, filters and settings are not used."""
    (repository / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    (repository / "a.txt").write_text("older\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "older")
    (repository / "a.txt").write_text("one\ntwo\n")
    git(repository, "commit", "-qam", "newer")
    ran = tmp_path / "ran"
    for name in ("filter.evil.smudge", "filter.evil.clean", "diff.evil.command", "diff.external"):
        git(repository, "config", name, f"touch {ran}")
    git(repository, "config", "core.fsmonitor", f"touch {ran}; false")
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    for hook in ("post-index-change", "post-checkout", "pre-commit"):
        (repository / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (repository / ".git" / "hooks" / hook).chmod(0o755)
    git(repository, "branch", "other")
    folder = tmp_path / "replacement"
    folder.mkdir()
    (folder / "a.txt").write_text("older\n")
    stage = Stage(repository, tmp_path)
    ran.unlink(missing_ok=True)
    before = fingerprint(repository)
    back = EDIT.replace("+TWO\n", "").replace("-1,2 +1,2", "-1,2 +1").replace(" one", "-one")
    proposals = [
        *(Proposal(name=f"p{n}", patch=adding(path)) for n, path in enumerate(HOSTILE_PATHS)),
        Proposal(name="edit", patch=EDIT),
        # Objects that are there already: git would give them a new time.
        Proposal(name="back", patch=back.replace("-two\n", "-two\n+older\n")),
        Proposal(name="older", patch=patch_of(repository, {"a.txt": "older\n"})),
        Proposal(name="folder", folder=str(folder)),
        Proposal(name="ref", ref="other"),
        Proposal(name="attributes", patch=patch_of(repository, {".gitattributes": ATTRIBUTES})),
        Proposal(name="module", patch=adding("sub", "160000", "Subproject commit " + "1" * 40)),
        Proposal(name="none", patch=""),
        Proposal(name="link", patch=adding("out", "120000", "/etc/passwd")),
    ]
    results = stage(*proposals)
    passed = [
        p.name for p, r in zip(proposals, results, strict=True) if r.outcome is Outcome.PASSED
    ]
    assert passed == ["edit", "back", "older", "folder", "ref", "attributes", "link"]
    assert finding_of(results[-1]).staged is not None
    assert fingerprint(repository) == before
    assert not ran.exists()


def test_a_failing_disk_is_not_the_candidates_fault(stage: Stage) -> None:
    stage.objects.parent.mkdir(parents=True)
    stage.objects.write_text("a file where a folder should be")
    (result,) = stage(Proposal(name="one", patch=EDIT))
    assert result.outcome is Outcome.INFRA_ERROR


def test_a_races_objects_can_be_moved_with_its_run(stage: Stage, tmp_path: Path) -> None:
    staged = stage.staged(patch=EDIT)
    shutil.move(str(stage.objects), str(tmp_path / "moved"))
    stage.objects = tmp_path / "moved"
    assert stage.shown(staged.tree, "a.txt") == "one\nTWO\n"


def test_many_can_be_staged_in_parallel_and_each_cancelled_alone(
    stage: Stage, repository: Path
) -> None:
    before = fingerprint(repository)

    async def work() -> list[AttemptResult | BaseException]:
        async with stage.opened() as stager:
            tasks = [
                asyncio.create_task(stager.perform(*stage.step(n, Proposal(name="x", patch=EDIT))))
                for n in range(12)
            ]
            for task in tasks[::4]:
                await asyncio.sleep(0.01)
                task.cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

    ended = run(work())
    results = [one for one in ended if isinstance(one, AttemptResult)]
    assert len(results) >= 9
    assert not [one for one in ended if isinstance(one, Exception)]
    trees = {found.tree for one in results if (found := finding_of(one).staged) is not None}
    assert len(trees) == 1
    assert fingerprint(repository) == before


# ---- flags


def test_changes_to_files_that_judge_candidates_are_flagged(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "tests").mkdir()
    (repository / "tests" / "test_a.py").write_text("def test_a(): pass\n")
    (repository / "bench.py").write_text("1\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "tests")
    added = ("conftest.py", "src/conftest.py", ".github/workflows/x.yml", "src/c.py")
    files = {"tests/test_a.py": None, "bench.py": "2\n", **dict.fromkeys(added, "x\n")}
    patch = patch_of(repository, files)
    assert Stage(repository, tmp_path).staged(patch=patch).flags == (
        "adds .github/workflows/x.yml",
        "edits bench.py",
        "adds conftest.py",
        "adds src/conftest.py",
        "deletes tests/test_a.py",
    )


def test_a_link_out_of_the_repository_is_flagged(stage: Stage) -> None:
    for target, is_out in (("/etc/passwd", True), ("../../x", True), ("b.py", False)):
        staged = stage.staged(patch=adding("src/way", "120000", target))
        assert bool(staged.flags) is is_out, target
    assert leads_out("a/b", "../..")
    assert not leads_out("a/b", "../c")


@pytest.mark.parametrize(
    ("command", "path", "is_protected"),
    [
        (("python", "bench.py"), "bench.py", True),
        (("python", "./bench.py"), "bench.py", True),
        (("python", "tools/bench.py", "--n=3"), "tools/bench.py", True),
        (("python", "-m", "pkg.bench"), "pkg/bench.py", True),
        (("python", "-m", "pkg.bench"), "src/pkg/bench/__main__.py", True),
        (("python", "-m", "pkg.bench"), "src/pkg/core.py", False),
        (("pytest", "checks/it_works.py::test_a"), "checks/it_works.py", True),
        (("pytest", "--confcutdir=checks"), "checks/x", False),
        (("pytest", "benchmarks"), "benchmarks/deep/x.json", True),
        (("pytest", "src"), "src/core.py", False),
        (("pytest", "."), "core.py", False),
        (("sh", "-c", "cd . && python run_it.py"), "run_it.py", True),
        (("make", "test"), "Makefile", True),
        (("true",), "src/test_x.py", True),
        (("true",), "test_x.py", True),
        (("true",), "src/contest_x.py", False),
        (("true",), "deep/tests/data.json", True),
        (("true",), "attests/x.py", False),
        (("true",), "x/y.pth", True),
        (("true",), ".gitignore", False),
        *(
            (("true",), f"{folder}{name}", True)
            for name in (
                *("conftest.py", "pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini"),
                *("pyproject.toml", "setup.cfg", "tox.ini", "x.pth"),
                *("x-1.dist-info/entry_points.txt", "x.egg-info/entry_points.txt"),
                *("sitecustomize.py", "sitecustomize/__init__.py", "sitecustomize.abi3.so"),
                *("usercustomize.py", "usercustomize/__init__.py"),
            )
            for folder in ("", "src/deep/")
        ),
        (("true",), "src/mysitecustomize.py", False),
        (("true",), "src/pyproject.py", False),
    ],
)
def test_files_that_commands_or_patterns_name_are_protected(
    command: tuple[str, ...], path: str, *, is_protected: bool
) -> None:
    request = request_for(Path("/repo"), command)
    assert (path in ProtectedPaths(request)) is is_protected


def test_patterns_and_commands_are_relative_to_where_commands_run() -> None:
    request = request_for(Path("/repo/sub"), protect=["data/[a-c]?.txt", "exact"])
    watched = ProtectedPaths(request, "sub")
    assert "sub/bench.py" in watched
    assert "bench.py" not in watched
    assert "sub/data/a1.txt" in watched
    assert "data/c2.txt" in watched
    assert "data/d2.txt" not in watched
    assert "sub/exact" in watched


def test_forbidden_changes_while_a_candidate_ran_are_flagged() -> None:
    def file(path: str, status: str) -> FileChange:
        return FileChange(path=path, status=status, lines_added=1, lines_deleted=0)

    files = (
        file("bench.py", "changed"),
        file("conftest.py", "added"),
        file("src/b.py", "changed"),
        file("tests/__pycache__/x.pyc", "added"),
        file("tests/out.json", "added"),
        file("tests/test_a.py", "deleted"),
    )
    request = request_for(Path("/repo"))
    kept = KeptWorkspace(change=Change(files=files, tampering=("deleted .git",)))
    assert flags_of_kept(kept, request) == (
        "deleted .git",
        "changed bench.py while it ran",
        "added conftest.py while it ran",
        "deleted tests/test_a.py while it ran",
    )
    assert flags_of_kept(KeptWorkspace(change=Change(unknown=LOST)), request) == (
        "moved, deleted or replaced its worktree",
    )
    assert flags_of_kept(KeptWorkspace(change=Change()), request) == ()
