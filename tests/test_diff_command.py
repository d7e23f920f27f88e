"""`paraval diff`: what attempts changed, as it was kept, and harmless on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paraval.records import Activity, AttemptResult, Change, FileChange, McpState, Outcome, ToolUse
from paraval.store.ledger import Ledger
from paraval.store.store import Store
from tests.conftest import Paraval
from tests.test_store import Desk, broken, judged, make_plan

Keep = Callable[..., None]


@pytest.fixture
def ledger(folder: Path) -> Ledger:
    """A run of two cases by two models, twice each, in the folder's own store."""
    return Store(folder / ".paraval").create_run(make_plan(2, repeats=2), seed=1)


@pytest.fixture
def keep(ledger: Ledger) -> Keep:
    """Ends a trial whose attempt changed something; its patch is kept as workspaces keep it."""
    desk = Desk(ledger)

    def keep_patch(
        index: int, patch: bytes | None, *, final: bool = True, files: int | None = None
    ) -> None:
        attempt = desk.start(index)
        artifacts = {}
        if patch is not None:
            place = Path(attempt.folder, "patch")
            place.parent.mkdir(parents=True)
            place.write_bytes(patch)
            artifacts["patch"] = str(place.relative_to(ledger.run.folder))
        added = int(patch is not None) if files is None else files
        change = Change(files_added=added, lines_added=added)
        result = AttemptResult(outcome=Outcome.PASSED, change=change, artifacts=artifacts)
        desk.end(attempt, result, final=final)
        desk.wait()

    return keep_patch


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=folder,
        env=env,
        input=stdin,
        capture_output=True,
        check=True,
    ).stdout


def real_patch(folder: Path) -> bytes:
    """Of a repository that this makes: an edit, bytes that are no text, no newline at the end."""
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_bytes(b"one\r\ntwo\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "start")
    (folder / "a.txt").write_bytes(b"one\r\nTWO \xff\xfe without end")
    (folder / "b.bin").write_bytes(bytes(range(256)))
    git(folder, "add", "-A")
    patch = git(folder, "diff", "--cached", "--binary", "--full-index")
    git(folder, "reset", "-q", "--hard")
    return patch


def patch_of(name: str, line: str = "hello") -> bytes:
    return (
        f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
        f"@@ -0,0 +1 @@\n+{line}\n"
    ).encode()


def raw(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "paraval", "diff", *arguments],
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=60,
    )


def test_the_patch_of_one_trial_is_what_git_apply_takes(
    folder: Path, ledger: Ledger, keep: Keep
) -> None:
    repository = folder / "repository"
    patch = real_patch(repository)
    keep(0, patch)
    keep(1, patch_of("other"))
    ledger.close(interrupted=True)
    ended = raw(folder, "last", "--case", "case-0", "--variant", "model=small", "--repeat", "1")
    assert ended.stdout == patch
    assert ended.stderr == b""
    git(repository, "apply", stdin=ended.stdout)
    assert (repository / "b.bin").read_bytes() == bytes(range(256))
    assert (repository / "a.txt").read_bytes() == b"one\r\nTWO \xff\xfe without end"


def test_several_trials_come_under_a_line_each_that_git_passes_over(
    folder: Path, ledger: Ledger, keep: Keep
) -> None:
    for index in range(4):
        keep(index, patch_of(f"file-{index}"))
    keep(4, None)
    ledger.close(interrupted=True)
    ended = raw(folder, "last")
    assert ended.stdout == b"".join(
        b"# case-0 \xc2\xb7 " + name + b"\n" + patch_of(f"file-{index}")
        for index, name in enumerate(
            (b"small", b"small \xc2\xb7 #2", b"large", b"large \xc2\xb7 #2")
        )
    )
    assert "case-1 · small changed nothing" in ended.stderr.decode()
    place = folder / "place"
    place.mkdir()
    git(place, "apply", stdin=ended.stdout)
    assert sorted(path.name for path in place.iterdir()) == [f"file-{n}" for n in range(4)]


def test_an_attempt_that_did_not_decide_is_shown_by_its_number(
    folder: Path, ledger: Ledger, keep: Keep
) -> None:
    keep(0, patch_of("first"), final=False)
    keep(0, patch_of("second"))
    ledger.close(interrupted=True)
    assert raw(folder, ledger.run.id, "--case", "case-0").stdout == patch_of("second")
    assert raw(folder, ledger.run.id[:-1], "--attempt", "1").stdout == patch_of("first")


def test_stat_counts_by_file(ledger: Ledger, paraval: Paraval) -> None:
    files = (
        FileChange(path="src/long/name.py", status="changed", lines_added=12, lines_deleted=3),
        FileChange(
            path="x\x1b[31m\n.bin",
            status="added",
            lines_added=None,
            lines_deleted=None,
            binary=True,
        ),
        FileChange(path="large", status="added", lines_added=None, lines_deleted=None),
    )
    change = Change(
        files_added=3,
        files_changed=1,
        binary_files=1,
        lines_added=12,
        lines_deleted=3,
        files=files,
        unknown="the lines of 1 file\x1b[31m",
    )
    Desk(ledger).run(0, AttemptResult(outcome=Outcome.PASSED, change=change))
    ledger.close(interrupted=True)
    assert paraval("diff", "--stat").stdout.splitlines() == [
        " src/long/name.py  changed  +12 -3",
        " x .bin            added    binary",
        " large             added    not inspected",
        " and 1 more file",
        " at least 4 files: 3 added, 1 changed (1 binary); 12 lines added, 3 deleted",
        " incomplete: the lines of 1 file",
    ]


def test_a_change_that_is_not_known_is_told_with_why(ledger: Ledger, paraval: Paraval) -> None:
    change = Change(unknown="the workspace's folder was deleted or replaced")
    Desk(ledger).run(0, AttemptResult(outcome=Outcome.PASSED, change=change))
    ledger.close(interrupted=True)
    ended = paraval("diff", "--case", "case-0", "--repeat", "1", "--variant", "model=small")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == (
        "case-0 · small: its changes were not stored: the workspace's folder was deleted or"
        " replaced\n"
    )
    assert "changes: unknown" in paraval("logs").stdout


def test_nothing_changed_is_told_and_is_no_error(
    ledger: Ledger, keep: Keep, paraval: Paraval
) -> None:
    keep(0, None)
    ledger.close(interrupted=True)
    ended = paraval("diff", "last", "--case", "case-0", "--variant", "model=small")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == "case-0 · small changed nothing\n"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--case", "case-7"), ("has no case 'case-7'", "it has case-1, case-0")),
        (("--variant", "model=smal"), ("no variant with model=smal", "it has model=small")),
        (("--variant", "modle=small"), ("no variant with modle=small", "model=small")),
        (("--variant", "small"), ("write it as axis=value",)),
        (("--repeat", "9"), ("no matching trial",)),
        (("--attempt", "9"), ("no matching attempt",)),
        (("--case", "case-1"), ("it is unknown what case-1 · small changed", "skipped: ")),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    ledger: Ledger, keep: Keep, paraval: Paraval, flags: tuple[str, ...], words: tuple[str, ...]
) -> None:
    keep(0, patch_of("a"))
    ledger.close(interrupted=True)
    ended = paraval("diff", "last", *flags)
    assert ended.returncode == 2, ended.stdout
    assert ended.stdout == ""
    for part in words:
        assert part in ended.stderr


def test_a_run_without_workspaces_says_so(ledger: Ledger, paraval: Paraval) -> None:
    Desk(ledger).run(0, judged())
    ledger.close(interrupted=True)
    ended = paraval("diff")
    assert ended.returncode == 2
    assert "had no workspaces" in ended.stderr
    assert "workspace: {git: .}" in ended.stderr


def test_an_error_before_anything_changed_is_told_as_that(ledger: Ledger, paraval: Paraval) -> None:
    Desk(ledger).run(0, broken(Outcome.CRASHED))
    ledger.close(interrupted=True)
    assert "crashed: went wrong" in paraval("diff", "--case", "case-0").stderr


def test_a_patch_that_is_gone_and_one_that_was_never_kept_are_told(
    folder: Path, ledger: Ledger, keep: Keep, paraval: Paraval
) -> None:
    keep(0, patch_of("a"))
    keep(1, None, files=1)
    ledger.close(interrupted=True)
    assert "no patch was stored" in paraval("diff", "--repeat", "2").stderr
    (patch,) = Path(ledger.run.folder).rglob("patch")
    patch.unlink()
    ended = paraval("diff", "--repeat", "1", "--variant", "model=small", "--case", "case-0")
    assert ended.returncode == 2
    assert "the patch cannot be read" in ended.stderr


def test_a_case_whose_name_is_also_a_glob_is_found_by_its_name(paraval: Paraval) -> None:
    """Tested where it is decided: no suite of ours has such a case."""
    from paraval.cli.commands.diff import _TrialFilter

    wanted = _TrialFilter(case="fix[1]", choices=(), repeat=None, number=None)
    assert wanted.has_case("fix[1]")
    assert wanted.has_case("fix1")
    assert not wanted.has_case("fix2")


def on_a_terminal(folder: Path, **env: str) -> str:
    """What a person's terminal gets."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "paraval", "diff", "last", "--case", "case-0", "--repeat", "1"],
        cwd=folder,
        env={**os.environ, "TERM": "xterm", **env},
        stdout=theirs,
    ) as process:
        os.close(theirs)
        pieces = []
        while piece := _read(ours):
            pieces.append(piece)
        assert process.wait(60) == 0
    os.close(ours)
    return b"".join(pieces).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux's way to say that the other end is closed.
        return b""


def test_on_a_terminal_it_is_colored_and_nothing_of_it_acts(
    folder: Path, ledger: Ledger, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    long = "x" * 200_000
    keep(0, patch_of("a", f"\x1b]0;title\x07\x1b[2Jred\x9b31m \u202ex {long}") + b"-\xff gone\n")
    ledger.close(interrupted=True)
    seen = on_a_terminal(folder)
    assert "\x1b[1mdiff --git a/a b/a\x1b[0m\n" in seen
    assert "\x1b[36m@@ -0,0 +1 @@\x1b[0m\n" in seen
    # Not even what a terminal would take for its own is left out: it may be what matters.
    assert "\x1b[32m+\\x1b]0;title\\x07\\x1b[2Jred\\x9b31m \\u202ex " in seen
    assert "\x1b[31m-\N{REPLACEMENT CHARACTER} gone\x1b[0m\n" in seen
    assert seen.count("x") >= 200_000
    for acting in ("\x1b]", "\x1b[2J", "\x07", "\x9b", "\u202e"):
        assert acting not in seen
    plain = on_a_terminal(folder, NO_COLOR="1")
    assert "\x1b" not in plain


@pytest.mark.parametrize("end", ["\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c"])
def test_on_a_terminal_nothing_but_an_end_of_line_ends_a_line(
    folder: Path, ledger: Ledger, keep: Keep, end: str
) -> None:
    keep(0, patch_of("a", f"one{end}-forged"))
    ledger.close(interrupted=True)
    escaped = end.encode("unicode_escape").decode()
    assert f"+one{escaped}-forged\n" in on_a_terminal(folder, NO_COLOR="1")


def test_logs_tell_behind_an_agents_streams_what_it_did(ledger: Ledger, paraval: Paraval) -> None:
    desk = Desk(ledger)
    attempt = desk.start(0)
    Path(attempt.folder).mkdir(parents=True)
    Path(attempt.folder, "stdout.log").write_text('{"type":"result"}\n')
    stdout = str(Path(attempt.folder, "stdout.log").relative_to(ledger.run.folder))
    activity = Activity(
        turns=3,
        tools=(
            ToolUse(name="Bash", calls=2, failed=1),
            ToolUse(name="search", server="repo-search", calls=1),
        ),
        mcp={"repo-search": McpState.CONNECTED},
    )
    change = Change(files_added=1, lines_added=2, tampering=("hook put in\x1b[31m",))
    result = AttemptResult(
        outcome=Outcome.PASSED, activity=activity, change=change, artifacts={"stdout": stdout}
    )
    desk.end(attempt, result)
    desk.wait()
    ledger.close(interrupted=True)
    assert paraval("logs").stdout.splitlines() == [
        "==> case-0 · small · attempt 1 · stdout <==",
        '{"type":"result"}',
        "==> case-0 · small · attempt 1 <==",
        "passed",
        "turns: 3",
        "MCP server repo-search: connected",
        "tool Bash: 2 calls, 1 with an error",
        "tool search of repo-search: 1 call",
        "changes: 1 file: 1 added; 2 lines added, 0 deleted",
        "tampering: hook put in",
    ]
    assert paraval("logs", "--stream", "stdout").stdout == '{"type":"result"}\n'
