"""A proposal becomes a tree, or is told why not; the user's repository is not touched by it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from paraval.racing.course.steps import Base, Step, StepKind, finding_of, trial_of
from paraval.racing.step_performer import RaceContext

from paraval.git.repositories import find_repository
from paraval.git.run_git import GitError
from paraval.git.snapshots import snapshot
from paraval.processes.children import Warden
from paraval.racing.candidates.duplicates import BASE_NORMAL
from paraval.racing.candidates.staging import Stager, content_hash
from paraval.racing.findings import Proposal, StagedCandidate
from paraval.racing.integrity.protection import ProtectedPaths, flags_of_kept, leads_out
from paraval.racing.request import BenchSpec, RaceRequest, TestSpec
from paraval.records import Attempt, AttemptResult, Change, FileChange, Outcome
from paraval.targets.command import ProcessRoom
from paraval.workspaces.slots import LOST
from paraval.workspaces.workspace import KeptWorkspace

from .workspace_kit import fingerprint, git, repository_fixture, run  # noqa: F401 - a fixture


def request_for(repo: Path, **asked: Any) -> RaceRequest:
    return RaceRequest(
        name="race",
        source=None,
        folder=str(repo),
        repo=str(repo),
        test=asked.pop("test", TestSpec(command=("pytest", "-q", "tests"))),
        bench=asked.pop("bench", BenchSpec(command=("python", "bench.py"))),
        **asked,
    )


class Stage:
    """A race's room for staging, and nothing else."""

    def __init__(self, repo: Path, place: Path, **asked: Any) -> None:
        self.place = place
        self.repo = repo
        top = git(repo, "rev-parse", "--show-toplevel")
        start = os.path.relpath(repo, top)
        self.request = request_for(repo, **asked)
        tree = git(repo, "rev-parse", "HEAD^{tree}")
        if self.request.uncommitted:
            tree = snapshot(find_repository(repo), place / "elsewhere").tree
        self.base = Base(tree=tree, start=start, commit=git(repo, "rev-parse", "HEAD"))
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
            room = RaceContext(
                request=self.request,
                base=self.base,
                processes=ProcessRoom(warden=warden, run_id="run"),
                workspaces=None,  # type: ignore[arg-type]  # staging needs none
                objects=self.objects,
                run_folder=self.place / "run",
            )
            stager = Stager(room)
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


def test_a_patch_becomes_a_tree_and_the_same_patch_in_git_s_own_form(
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
def test_patches_of_all_makes_come_to_the_same_tree(
    stage: Stage, repository: Path, tmp_path: Path, made_by: tuple[str, ...]
) -> None:
    clone = changed_clone(repository, tmp_path / "clone")
    patch = git(clone, *made_by) + "\n"
    staged = stage.staged(patch=patch)
    assert staged.tree == git(clone, "rev-parse", "HEAD^{tree}")
    assert stage.listed(staged.tree)["link"] == "120000"


def test_a_ref_a_folder_and_files_come_to_the_tree_that_the_patch_comes_to(
    stage: Stage, repository: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "replacement"
    (folder / ".git").mkdir(parents=True)
    (folder / "a.txt").write_text("one\nTWO\n")
    git(repository, "checkout", "-qb", "better")
    (repository / "a.txt").write_text("one\nTWO\n")
    git(repository, "commit", "-qam", "better")
    git(repository, "checkout", "-q", "main")
    trees = [
        stage.staged(patch=EDIT).tree,
        stage.staged(patch=EDIT.rstrip("\n")).tree,
        stage.staged(patch=EDIT.replace("\n", "\r\n")).tree,
        stage.staged(patch=EDIT.replace("a/a.txt", "a.txt").replace("b/a.txt", "a.txt")).tree,
        stage.staged(files={"a.txt": "one\nTWO\n"}).tree,
        stage.staged(folder=str(folder)).tree,
        stage.staged(ref="better").tree,
    ]
    assert len(set(trees)) == 1


def test_files_keep_their_permissions_and_none_deletes(stage: Stage, tmp_path: Path) -> None:
    staged = stage.staged(files={"src/run.sh": "echo\n", "src/b.py": None, "deep/er/x": "\udcff"})
    assert stage.listed(staged.tree) == {
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
    assert (listed["src/run.sh"], listed["program"], listed["way"]) == (
        "100755",
        "100755",
        "120000",
    )


def test_a_patch_for_a_folder_in_the_repository_is_taken_from_there(
    repository: Path, tmp_path: Path
) -> None:
    stage = Stage(repository / "src", tmp_path)
    patch = "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-print('b')\n+print('c')\n"
    staged = stage.staged(patch=patch)
    assert [file.path for file in staged.files] == ["src/b.py"]


def test_a_file_that_a_plain_patch_adds_is_where_it_says(stage: Stage) -> None:
    staged = stage.staged(patch="--- /dev/null\n+++ src/new.py\n@@ -0,0 +1 @@\n+x = 1\n")
    assert [file.path for file in staged.files] == ["src/new.py"]


def test_a_file_that_changed_its_line_ends_is_patched_with_them(
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


def test_what_changes_nothing_is_the_baseline(stage: Stage) -> None:
    staged = stage.staged(files={"a.txt": "one\ntwo\n"})
    assert (staged.tree, staged.normal, staged.files) == (stage.base.tree, BASE_NORMAL, ())


def test_a_race_with_what_is_not_committed_begins_there(repository: Path, tmp_path: Path) -> None:
    (repository / "a.txt").write_text("one\nnot committed\n")
    (repository / "untracked").write_text("x\n")
    stage = Stage(repository, tmp_path, uncommitted=True)
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


def test_a_ref_is_what_it_changes_and_reverts_nothing_that_came_since(
    repository: Path, tmp_path: Path
) -> None:
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


def test_a_ref_deletes_nothing_that_was_never_committed(repository: Path, tmp_path: Path) -> None:
    committed(repository, "better", {"src/b.py": None, "more.py": "1\n"}, at="main")
    (repository / "a.txt").write_text("one\nnot committed\n")
    (repository / "untracked").write_text("x\n")
    stage = Stage(repository, tmp_path, uncommitted=True)
    before = fingerprint(repository)
    staged = stage.staged(ref="better")
    assert [(file.path, file.status) for file in staged.files] == [
        ("more.py", "added"),
        ("src/b.py", "deleted"),
    ]
    assert stage.shown(staged.tree, "a.txt") == "one\nnot committed\n"
    assert "untracked" in stage.listed(staged.tree)
    assert fingerprint(repository) == before


def test_all_kinds_of_changes_of_a_ref_are_laid_on_what_came_since(
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


def test_a_ref_that_changes_nothing_since_is_the_baseline(repository: Path, tmp_path: Path) -> None:
    committed(repository, "empty", {}, at="main")
    git(repository, "tag", "older")
    (repository / "a.txt").write_text("newer\n")
    git(repository, "commit", "-qam", "newer")
    stage = Stage(repository, tmp_path)
    for ref in ("HEAD", "older", "empty"):
        staged = stage.staged(ref=ref)
        assert (staged.tree, staged.normal, staged.files) == (stage.base.tree, BASE_NORMAL, ())


def test_a_ref_that_does_not_go_onto_the_baseline_is_told_why(
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
def test_a_path_that_leads_out_or_into_git_is_refused(stage: Stage, path: str) -> None:
    assert stage.refused(patch=adding(path))
    assert stage.refused(files={path: "x"})


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
        ({"files": {"/etc/x": "x"}}, "must be relative"),
        ({"files": {"": "x"}}, "must be relative"),
        ({"files": {"a\0b": "x"}}, "must be relative"),
        ({"files": {"missing": None}}, "it does not exist"),
        ({"files": {"src": "x"}}, "is a folder"),
        ({"files": {"link": "x"}}, "a link or a submodule"),
        ({"files": {"x": "x", "x/y": "x"}}, "a file and a folder"),
        ({"files": {"x": "\ud800"}}, "not UTF-8"),
        ({"folder": "/nowhere/at/all"}, "does not exist"),
        ({"patch": adding("x" * 300)}, "a file name of 300 bytes"),
        ({"patch": adding(f"d/{'x' * 300}/y")}, "a file name of 300 bytes"),
        ({"files": {"x" * 300: "x"}}, "a file name of 300 bytes"),
        ({"files": {"d/" * 2000 + "x": "x"}}, "a path of 4,001 bytes"),
        ({"patch": GITLINK}, "vendored is a submodule"),
        ({"ref": "nowhere"}, "not a branch, tag or commit"),
        ({"ref": "--help"}, "not a branch, tag or commit"),
        ({}, "the proposal is empty"),
    ],
)
def test_what_is_no_change_to_the_baseline_is_told_why(
    stage: Stage, proposed: dict[str, Any], words: str
) -> None:
    assert words in stage.refused(**proposed)


def test_a_folder_or_a_ref_that_changed_since_it_was_proposed_is_refused(
    stage: Stage, tmp_path: Path, repository: Path
) -> None:
    """What is found is remembered for what was proposed."""
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


def test_a_tree_with_git_in_it_is_no_candidate(stage: Stage, repository: Path) -> None:
    """Nobody can check it out, and no plain git makes one."""
    blob = git(repository, "rev-parse", "HEAD:a.txt")
    inner = _tree(repository, f"100644 blob {blob}\tconfig\n")
    tree = _tree(repository, f"040000 tree {inner}\t.git\n")
    commit = git(repository, "commit-tree", tree, "-m", "hostile", "-p", "HEAD")
    git(repository, "update-ref", "refs/heads/hostile", commit)
    assert "invalid path" in stage.refused(ref="hostile")
    git(repository, "commit", "-q", "--allow-empty", "-m", "the baseline went on")
    (repository / "newer.txt").write_text("newer\n")
    went_on = Stage(repository, repository.parent / "later", uncommitted=True)
    assert "invalid path" in went_on.refused(ref="hostile")


def _tree(repository: Path, listed: str) -> str:
    argv = ["git", "-C", str(repository), "mktree"]
    made = subprocess.run(argv, input=listed, check=True, capture_output=True, text=True)
    return made.stdout.strip()


# ---- the user's repository


def test_nothing_of_the_user_s_repository_changes_whatever_is_staged(
    repository: Path, tmp_path: Path
) -> None:
    """Not a byte, not a time; their hooks, filters and settings are not heard."""
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
        *(Proposal(name=f"f{n}", files={path: "x"}) for n, path in enumerate(HOSTILE_PATHS)),
        Proposal(name="edit", patch=EDIT),
        # Objects that are there already: git would give them a new time.
        Proposal(name="back", patch=back.replace("-two\n", "-two\n+older\n")),
        Proposal(name="older", files={"a.txt": "older\n"}),
        Proposal(name="folder", folder=str(folder)),
        Proposal(name="ref", ref="other"),
        Proposal(name="attributes", files={".gitattributes": "* text eol=crlf filter=evil\n"}),
        Proposal(name="module", patch=adding("sub", "160000", "Subproject commit " + "1" * 40)),
        Proposal(name="none", patch=""),
        Proposal(name="link", patch=adding("out", "120000", "/etc/passwd")),
    ]
    results = stage(*proposals)
    assert len(results) >= 30
    wells = [p.name for p, r in zip(proposals, results, strict=True) if r.outcome is Outcome.PASSED]
    assert wells == ["edit", "back", "older", "folder", "ref", "attributes", "link"]
    assert finding_of(results[-1]).staged is not None
    assert fingerprint(repository) == before
    assert not ran.exists()


def test_a_disk_that_fails_is_no_fault_of_the_candidate(stage: Stage) -> None:
    stage.objects.parent.mkdir(parents=True)
    stage.objects.write_text("a file where a folder should be")
    (result,) = stage(Proposal(name="one", patch=EDIT))
    assert result.outcome is Outcome.INFRA_ERROR


def test_the_race_s_objects_may_be_moved_with_its_run(stage: Stage, tmp_path: Path) -> None:
    staged = stage.staged(patch=EDIT)
    shutil.move(str(stage.objects), str(tmp_path / "moved"))
    stage.objects = tmp_path / "moved"
    assert stage.shown(staged.tree, "a.txt") == "one\nTWO\n"


def test_many_at_once_come_to_the_same_and_a_cancel_ends_one_alone(
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


def test_what_judges_a_candidate_is_told_when_it_changes_that(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "tests").mkdir()
    (repository / "tests" / "test_a.py").write_text("def test_a(): pass\n")
    (repository / "bench.py").write_text("1\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "tests")
    stage = Stage(repository, tmp_path)
    staged = stage.staged(
        files={
            "tests/test_a.py": None,
            "conftest.py": "x",
            "src/conftest.py": "x",
            "bench.py": "2\n",
            "src/b.py": "x",
            ".github/workflows/x.yml": "x",
        }
    )
    assert staged.flags == (
        "adds .github/workflows/x.yml",
        "edits bench.py",
        "adds conftest.py",
        "adds src/conftest.py",
        "deletes tests/test_a.py",
    )


def test_a_link_that_leads_out_is_told(stage: Stage) -> None:
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
def test_what_commands_name_and_what_patterns_say_is_protected(
    command: tuple[str, ...], path: str, *, is_protected: bool
) -> None:
    request = request_for(Path("/repo"), test=TestSpec(command=command))
    assert (path in ProtectedPaths(request)) is is_protected


def test_patterns_and_commands_count_from_where_commands_run() -> None:
    request = request_for(Path("/repo/sub"), protect=("data/[a-c]?.txt", "exact"))
    watched = ProtectedPaths(request, "sub")
    assert "sub/bench.py" in watched
    assert "bench.py" not in watched
    assert "sub/data/a1.txt" in watched
    assert "data/c2.txt" in watched
    assert "data/d2.txt" not in watched
    assert "sub/exact" in watched


def test_what_was_done_while_it_ran_is_told() -> None:
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
