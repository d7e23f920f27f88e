"""Cases from a repository's merged pull requests, from its git history alone.

An attempt starts at the commit that the pull request was merged into. Its tests are hidden until
the attempt has ended, and its other changes are the patch that attempts are compared with.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import RequestError
from paraval.git.repositories import find_repository
from paraval.git.run_git import must_git
from paraval.importers.imported import ImportedSuite, yaml_text
from paraval.text.words import counted, some

CASES_FILE = "cases.yaml"
LEAST_FILES = 2
_SQUASHED = re.compile(r"\(#(\d+)\)\s*$")
_MERGED = re.compile(r"Merge pull request #(\d+)|Merged in .*\(pull request #(\d+)\)|!(\d+)\b")
_UPDATE = re.compile(r"Merge (?:remote-tracking )?branch '(?:origin/)?(?:main|master)'")
"""A merge that only brings another branch up to date."""
_TRAILER = re.compile(
    r"(?:Co-authored-by|Signed-off-by|Reviewed-by|See merge request)\b", re.IGNORECASE
)
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs", "testdata"})
_TEST_FILE = re.compile(
    r"test_.*\.py|.*_test\.(?:py|go)|.*\.(?:test|spec)\.[cm]?[jt]sx?|.*_spec\.rb"
)
_FIELD = "\x1f"
_TIMEOUT_S = 1200
_TESTS_TIMEOUT_S = 600
_PROMPT = """\
The current folder is a checkout of a repository. Make the change that is described below. Tests
that you cannot see check the result.

{input}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestOptions:
    """Which pull requests become cases, and how they run."""

    last: int = 5
    since: str | None = None
    """A date, as git understands it."""
    branch: str = "HEAD"
    test_command: str | None = None
    """{tests} in it stands for the test files; None: by what the repository has."""
    agent: str = "claude-code"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A merged pull request."""

    id: str
    commit: str
    base: str
    """The commit that it was merged into."""
    description: str
    tests: tuple[str, ...]
    """The test files that it changed ..."""
    others: tuple[str, ...]
    """... and the other files."""
    runnable: tuple[str, ...]
    """The test files that it left, if any of them is named like a test: those that are."""


def merged_pull_requests(repository: Path, asked: PullRequestOptions) -> list[PullRequest]:
    """The newest pull requests that changed at least two files, not only tests; oldest first."""
    top = find_repository(repository).git_dir
    chosen: list[PullRequest] = []
    for entry in _log(top, asked.since, asked.branch):
        if len(chosen) == asked.last:
            break
        found = _pull_request(top, *entry)
        if found is not None and all(found.id != other.id for other in chosen):
            chosen.append(found)
    if not chosen:
        raise RequestError(
            f"no merged pull requests in {repository} ({asked.branch}): no merge commits,"
            f" and no subjects that end in (#123), with at least {LEAST_FILES} changed files",
            hint="choose another branch with --branch, or go back further with --since",
        )
    return chosen[::-1]


def read_pull_requests(
    repository: Path, *, folder: Path, asked: PullRequestOptions
) -> ImportedSuite:
    """A suite of merged pull requests. `folder`: where it will be."""
    found = merged_pull_requests(repository, asked)
    files: dict[str, str | bytes] = {}
    top = find_repository(repository).git_dir
    cases = []
    for one in found:
        cases.append(_case(top, one, asked.test_command or _default_tests(top, one)))
        if one.runnable:
            files[_hidden_name(one)] = _diff(top, one, one.tests, "--binary", "--full-index")
    untested = [one.id for one in found if not one.runnable]
    notes = [f"{counted(len(found), 'pull request')}: {some([one.id for one in found], 10)}."]
    if untested:
        notes.append(
            f"Without tests of their own: {some(untested, 10)}. They pass if anything was changed;"
            " the similarity to the merged change is recorded."
        )
    notes.append(f"Edit the prompts in {folder / CASES_FILE} where a description says too little.")
    return ImportedSuite(
        source=f"the merged pull requests of {repository}",
        suite={
            "name": f"pull requests {repository.resolve().name}",
            "cases": CASES_FILE,
            "target": {"agent": asked.agent, "prompt": _PROMPT, "timeout": _TIMEOUT_S},
            "workspace": {"git": os.path.relpath(repository, folder)},
            "graders": [{"diff": {"name": "similarity", "similar": 0, "empty": False}}],
        },
        files={CASES_FILE: yaml_text(cases), **files},
        notes=tuple(notes),
    )


def _case(top: str, one: PullRequest, test_command: Sequence[str] | str | None) -> dict[str, Any]:
    case: dict[str, Any] = {"id": one.id, "input": one.description, "workspace": {"ref": one.base}}
    if one.runnable:
        case["tags"] = ["tests"]
        case["hidden"] = [_hidden_name(one)]
        case["graders"] = [_tests_grader(one, test_command)]
    # Similarity ignores whitespace, and without it the patch is a block of plain text.
    patch = _diff(top, one, one.others, "--unified=0").decode(errors="replace")
    plain = "\n".join(line.replace("\t", "    ").rstrip() for line in patch.split("\n"))
    return {**case, "expect": {"patch": plain}}


def _hidden_name(one: PullRequest) -> str:
    return f"hidden/{one.id}.patch"


# ---- tests


def _tests_grader(one: PullRequest, command: Sequence[str] | str | None) -> dict[str, Any]:
    if command is None:
        raise RequestError(
            f"how do the tests of {one.id} run? {some(one.runnable, 3)}",
            hint="say it with --test-command, such as --test-command 'make test'",
        )
    words = shlex.split(command) if isinstance(command, str) else [*command]
    filled: list[str] = []
    for word in words:
        filled += one.runnable if word == "{tests}" else [word]
    options = {"name": "tests", "timeout": _TESTS_TIMEOUT_S, "on_timeout": "fail"}
    return {"command": {"command": filled, **options}}


def _default_tests(top: str, one: PullRequest) -> list[str] | None:
    """The command that runs the tests, by what the repository has; None: unknown."""
    suffixes = {PurePosixPath(path).suffix for path in one.runnable}
    if ".py" in suffixes:
        # Of files that are no tests themselves, such as a conftest.py, nobody knows which use them.
        are_tests = any(_TEST_FILE.fullmatch(PurePosixPath(path).name) for path in one.runnable)
        return ["python", "-m", "pytest", "-q", *(["{tests}"] if are_tests else [])]
    if ".go" in suffixes:
        folders = sorted({f"./{PurePosixPath(path).parent}" for path in one.runnable})
        return ["go", "test", *folders]
    names = must_git(
        ["--git-dir", top, "ls-tree", "--name-only", one.commit], doing="reading the repository"
    ).decode(errors="replace")
    if "package.json" in names.split("\n"):
        return ["npm", "test"]
    return ["cargo", "test"] if "Cargo.toml" in names.split("\n") else None


def _is_test(path: PurePosixPath) -> bool:
    """Whether a path is a test, or belongs to tests."""
    if _TEST_FILE.fullmatch(path.name) or path.name == "conftest.py":
        return True
    return bool(_TEST_FOLDERS & {*path.parts[:-1]})


# ---- history


def _log(top: str, since: str | None, branch: str) -> Iterator[tuple[str, list[str], str, str]]:
    """Commit, parents, subject and body of every commit of the branch itself, newest first."""
    period = [f"--since={since}"] if since else []
    shape = f"--format=%H{_FIELD}%P{_FIELD}%s{_FIELD}%b%x00"
    words = ["--git-dir", top, "log", "--first-parent", *period, shape, branch, "--"]
    text = must_git(words, doing=f"reading the history of {branch}").decode(errors="replace")
    for entry in text.split("\0"):
        if entry.strip():
            commit, parents, subject, body = entry.lstrip("\n").split(_FIELD, 3)
            yield commit, parents.split(), subject, body


def _pull_request(
    top: str, commit: str, parents: list[str], subject: str, body: str
) -> PullRequest | None:
    """None: not a pull request, or not one to learn from."""
    squashed = _SQUASHED.search(subject)
    is_merge = len(parents) > 1 and not _UPDATE.match(subject)
    if not parents or not (is_merge or squashed):
        return None
    paths = must_git(
        ["--git-dir", top, "diff", "--name-status", "--no-renames", "-z", parents[0], commit],
        doing=f"comparing {commit[:9]} with its parent",
    )
    words = paths.decode(errors="replace").split("\0")
    changed = dict(zip(words[1::2], words[::2], strict=False))
    tests = tuple(path for path in changed if _is_test(PurePosixPath(path)))
    left = [path for path in tests if changed[path] != "D"]
    named = [path for path in left if _TEST_FILE.fullmatch(PurePosixPath(path).name)]
    others = tuple(path for path in changed if path not in tests)
    if len(changed) < LEAST_FILES or not others:
        return None
    merged = _MERGED.search(f"{subject}\n{body}") if is_merge else None
    number = squashed[1] if squashed else next(filter(None, merged.groups())) if merged else None
    texts = [subject[: squashed.start()] if squashed else "", body]
    description = _description("\n\n".join(texts)) or _subjects(top, parents, subject)
    return PullRequest(
        id=f"pr-{number}" if number else f"merge-{commit[:9]}",
        commit=commit,
        base=parents[0],
        description=description,
        tests=tests,
        others=others,
        runnable=tuple(named or left),
    )


def _description(text: str) -> str:
    lines = [line.rstrip() for line in text.replace("\r", "").split("\n")]
    return "\n".join(line for line in lines if not _TRAILER.match(line)).strip()


def _subjects(top: str, parents: list[str], subject: str) -> str:
    """Of a merge that says nothing: what its commits say."""
    if len(parents) < 2:
        return subject
    words = ["--git-dir", top, "log", "--reverse", "--no-merges", "--format=%s"]
    text = must_git([*words, f"{parents[0]}..{parents[1]}"], doing="reading the merged commits")
    return text.decode(errors="replace").strip() or subject


def _diff(top: str, one: PullRequest, paths: Sequence[str], *options: str) -> bytes:
    words = ["--git-dir", top, "diff", "--no-renames", "--no-ext-diff", "--no-textconv", *options]
    return must_git([*words, one.base, one.commit, "--", *paths], doing=f"reading {one.id}")
