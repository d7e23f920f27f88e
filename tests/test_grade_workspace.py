"""Graders that look at a workspace: what changed in it, commands in it, and their order."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.grade.command import CommandContext
from paraval.grade.diff import fits, similarity
from paraval.grade.grader import Subject
from paraval.grade.panel import Panel, PanelVerdict
from paraval.models.requests import FailedCall, ModelAnswer, Request
from paraval.processes.children import Command, ProcessEnd, Warden
from paraval.processes.sandbox import Sandbox, why_no_sandbox
from paraval.records import (
    AccountUse,
    Case,
    Change,
    Failure,
    FileChange,
    Grade,
    GraderSpec,
    Grading,
    Model,
    Outcome,
    Output,
    Provider,
    Spend,
    TargetLimits,
)
from paraval.scratch import Homes
from paraval.threads import Threads

PASSED, FAILED, GRADER_ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.GRADER_ERROR


def subject(workspace: Path | None = None, change: Change | None = None) -> Subject:
    return Subject(
        case=Case(id="fix", input="Fix it."),
        variant={},
        repeat=1,
        output=Output(text="done"),
        workspace=None if workspace is None else str(workspace),
        change=change,
    )


def judged(
    graders: list[GraderSpec],
    what: Subject,
    *,
    folder: Path | str | None = None,
    room: CommandContext | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
) -> PanelVerdict:
    async def judge() -> PanelVerdict:
        threads = Threads()
        try:
            async with Warden() as warden:
                panel = Panel(
                    Grading(graders=tuple(graders)),
                    functions=functions or {},
                    threads=threads,
                    warden=warden,
                    room=room,
                )
                return await panel.judge(what, str(logs if folder is None else folder))
        finally:
            threads.close()

    with tempfile.TemporaryDirectory() as logs:
        return asyncio.run(judge())


def said(verdict: PanelVerdict) -> str:
    return verdict.error.message if verdict.error is not None else verdict.grades[0].reason


# ---- diff


def changed(*paths: str, lines: int = 1, binary: bool = False) -> Change:
    files = tuple(
        FileChange(
            path=path,
            status="changed",
            lines_added=None if binary else lines,
            lines_deleted=None if binary else 0,
            binary=binary,
        )
        for path in paths
    )
    return Change(
        files_changed=len(paths),
        binary_files=len(paths) if binary else 0,
        lines_added=0 if binary else lines * len(paths),
        files=files,
    )


def diffed(change: Change | None, **options: Any) -> PanelVerdict:
    spec = GraderSpec(name="diff", kind="diff", options=options)
    return judged([spec], subject(Path("/work"), change))


@pytest.mark.parametrize(
    ("change", "options", "outcome", "reason"),
    [
        (changed("a.py"), {"max_files": 1}, PASSED, "1 file changed, +1 -0"),
        (changed("a.py", "b.py"), {"max_files": 1}, FAILED, "2 files changed, at most 1 allowed"),
        (changed("a.py", lines=9), {"max_lines": 8}, FAILED, "9 lines added and deleted"),
        (Change(), {"max_files": 0, "max_lines": 0}, PASSED, "nothing changed"),
        (Change(), {"empty": True}, PASSED, "nothing changed"),
        (changed("a.py"), {"empty": True}, FAILED, "1 file changed, none allowed: a.py"),
        (Change(), {"empty": False}, FAILED, "nothing changed"),
        (changed("a.py"), {"empty": False}, PASSED, "1 file changed"),
        (changed("a.png", binary=True), {"binary": False}, FAILED, "1 binary file changed"),
        (changed("a.png", binary=True), {"binary": None, "max_files": 1}, PASSED, "1 file"),
        (changed("src/a.py"), {"only": ["src/**"]}, PASSED, "1 file"),
        (
            changed("src/a.py", "x.py"),
            {"only": ["src/"]},
            FAILED,
            "changed x.py, but may change only",
        ),
        (
            changed("tests/a.py"),
            {"not": ["tests/**"]},
            FAILED,
            "changed tests/a.py, which is not allowed",
        ),
        (changed("src/a.py"), {"not": ["tests/**", "*.lock"]}, PASSED, "1 file"),
    ],
)
def test_a_change_is_held_to_its_bounds(
    change: Change, options: dict[str, Any], outcome: Outcome, reason: str
) -> None:
    verdict = diffed(change, **options)
    assert verdict.outcome is outcome
    assert reason in said(verdict)


def test_every_bound_that_is_broken_is_told() -> None:
    verdict = diffed(changed("a", "b", lines=5), max_files=1, max_lines=1, only=["c"])
    assert said(verdict).count(";") == 2


def test_tampering_fails_whatever_else_is_right() -> None:
    verdict = diffed(Change(tampering=("a hook was added: post-commit",)), max_files=5)
    assert verdict.outcome is FAILED
    assert said(verdict) == "it tampered with .git: a hook was added: post-commit"


def test_without_a_workspace_there_is_no_change_to_judge() -> None:
    assert diffed(None, max_files=1).outcome is GRADER_ERROR


@pytest.mark.parametrize(
    "options", [{"max_files": 5}, {"max_lines": 5}, {"empty": True}, {"empty": False}, {}]
)
def test_a_change_that_is_not_wholly_known_keeps_no_bound(options: dict[str, Any]) -> None:
    verdict = diffed(Change(unknown="the workspace was moved away"), **options)
    assert verdict.outcome is GRADER_ERROR
    assert "the workspace was moved away" in said(verdict)


def test_what_is_known_of_a_change_may_break_a_bound() -> None:
    known = replace(changed("a", "b", lines=5), unknown="a folder cannot be read")
    assert diffed(known, max_files=1).outcome is FAILED
    assert diffed(known, max_lines=9).outcome is FAILED
    assert diffed(known, only=["a"]).outcome is FAILED
    assert diffed(known, max_files=2).outcome is GRADER_ERROR
    tampered = Change(tampering=("deleted .git",), unknown="git was gone")
    assert diffed(tampered, max_files=2).outcome is FAILED


def test_paths_that_are_not_listed_leave_no_verdict_unless_there_is_one_already() -> None:
    many = Change(files_added=2000, files=changed("src/a.py").files)
    assert "1999 are not listed" in said(diffed(many, only=["src/"]))
    assert diffed(many, only=["docs/"]).outcome is FAILED
    assert diffed(many, only=["src/"], max_files=10).outcome is FAILED


@pytest.mark.parametrize(
    ("path", "glob", "does"),
    [
        ("src/a.py", "src/**", True),
        ("src", "src/**", False),
        ("src/a/b/c.py", "src/**/*.py", True),
        ("src/c.py", "src/**/*.py", True),
        ("a/b/c.py", "*.py", True),
        ("a/b/c.py", "/*.py", False),
        ("c.py", "/*.py", True),
        ("a/src/c.py", "src/", True),
        ("a/src", "src/", False),
        ("a/b/c.py", "a/*/c.py", True),
        ("a/b/d/c.py", "a/*/c.py", False),
        ("a/b/c.py", "a", True),
        ("ab/c.py", "a", False),
        ("x/y/z", "**/y/**", True),
        ("A.py", "a.py", False),
        ("a.py", "**", True),
        ("a.py", "./a.py", True),
        ("a[1].py", "a[[]1].py", True),
        ("a.py", "", False),
    ],
)
def test_globs_are_those_of_ignore_files(path: str, glob: str, does: bool) -> None:
    assert fits(path, glob) is does


@given(
    path=st.lists(st.sampled_from(["a", "b", "aa"]), min_size=1, max_size=200).map("/".join),
    glob=st.lists(st.sampled_from(["**", "*", "a", "*a*a*", "b"]), max_size=40).map("/".join),
)
def test_any_glob_is_decided_soon(path: str, glob: str) -> None:
    fits(path, glob)
    assert fits(path, path)
    assert fits(f"{path}/below", path)


# ---- commands in a workspace


def command(*program: str, name: str = "tests", **options: Any) -> GraderSpec:
    argv = [sys.executable, "-c", *program]
    return GraderSpec(name=name, kind="command", options={"command": argv, **options}, folder="/")


def test_a_command_runs_in_the_workspace_and_is_told_of_it(tmp_path: Path) -> None:
    where = "import os; print(os.getcwd() == os.environ['PARAVAL_WORKSPACE'], os.getcwd())"
    verdict = judged([command(where)], subject(tmp_path), folder=tmp_path / "logs")
    assert said(verdict) == f"True {tmp_path}"
    outside = judged([command(where.replace("['", ".get('").replace("']", "')"))], subject())
    assert said(outside) == "False /"


@pytest.mark.parametrize(
    ("code", "options", "outcome"),
    [
        (0, {}, PASSED),
        (1, {}, FAILED),
        (2, {}, FAILED),
        (101, {}, FAILED),
        (126, {}, GRADER_ERROR),
        (127, {}, GRADER_ERROR),
        (127, {"failing": "any"}, FAILED),
        (2, {"failing": "any"}, FAILED),
        (101, {"failing": "any"}, FAILED),
        (2, {"failing": [1, 2]}, FAILED),
        (1, {"failing": [2]}, GRADER_ERROR),
        (3, {"failing": [1, 2]}, GRADER_ERROR),
        (0, {"failing": "any"}, PASSED),
        (2, {"failing": None}, FAILED),
    ],
)
def test_the_suite_says_which_exit_codes_fail(
    tmp_path: Path, code: int, options: dict[str, Any], outcome: Outcome
) -> None:
    verdict = judged([command(f"raise SystemExit({code})", **options)], subject(tmp_path))
    assert verdict.outcome is outcome


def test_an_edit_that_breaks_the_tests_is_a_wrong_answer_and_says_how(tmp_path: Path) -> None:
    """pytest ends with 2 where a module cannot be imported: that is the edit's fault."""
    broken = command("import sys; print('SyntaxError: x', file=sys.stderr); sys.exit(2)")
    verdict = judged([broken], subject(tmp_path), folder=tmp_path / "logs")
    assert (verdict.outcome, said(verdict)) == (FAILED, "exit code 2: SyntaxError: x")
    outside = judged([broken], subject(), folder=tmp_path / "logs")
    assert said(outside) == (
        "grader 'tests': SyntaxError: x (it ended with exit code 2; 0 means passed, 1 failed)"
    )


def test_what_cannot_be_started_says_nothing_of_the_answer(tmp_path: Path) -> None:
    lost = command("import sys; print('sh: pytset: not found', file=sys.stderr); sys.exit(127)")
    told = said(judged([lost], subject(tmp_path), folder=tmp_path / "logs"))
    assert told == (
        "grader 'tests': sh: pytset: not found (it ended with exit code 127: its program cannot be"
        " started)"
    )


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        (("-m", "pytest", "-q", "missing.py"), GRADER_ERROR),
        (("-m", "pytest", "-q", "empty.py"), GRADER_ERROR),
        (("-m", "pytest", "--no-such-option"), GRADER_ERROR),
        (("-m", "pytest", "-q", "broken.py"), FAILED),
        (("-S", "-m", "pytest", "-q", "broken.py"), GRADER_ERROR),
    ],
)
def test_pytest_that_ran_no_test_says_nothing_of_the_answer(
    tmp_path: Path, words: tuple[str, ...], outcome: Outcome
) -> None:
    """`-S`: without installed packages, so there is no pytest."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "empty.py").write_text("")
    (workspace / "broken.py").write_text("import what_the_answer_should_have\n")
    spec = replace(command("pass"), options={"command": [sys.executable, *words]})
    verdict = judged([spec], subject(workspace), folder=tmp_path / "logs")
    assert verdict.outcome is outcome, said(verdict)


def test_pytest_says_which_tests_failed(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "test_sums.py").write_text("def test_sums():\n    assert 1 + 1 == 3\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sums.py"]
    spec = replace(command("pass"), options={"command": words})
    told = said(judged([spec], subject(workspace), folder=tmp_path / "logs"))
    assert told == "FAILED test_sums.py::test_sums - assert (1 + 1) == 3"


@pytest.mark.parametrize(
    ("options", "outcome"), [({}, GRADER_ERROR), ({"on_timeout": "fail"}, FAILED)]
)
def test_the_suite_says_whose_fault_a_hanging_test_is(
    tmp_path: Path, options: dict[str, Any], outcome: Outcome
) -> None:
    hanging = command("import time; time.sleep(60)", timeout=0.3, **options)
    verdict = judged([hanging], subject(tmp_path), folder=tmp_path / "logs")
    assert verdict.outcome is outcome
    assert "it timed out after 0.3 s" in said(verdict)
    assert ("on_timeout: fail" in said(verdict)) is (outcome is GRADER_ERROR)


UNITTEST = """
import unittest
class Sums(unittest.TestCase):
    def test_that_fails(self):
        self.assertEqual(1 + 1, 3)
unittest.main(argv=["sums"])
"""


@pytest.mark.parametrize(
    ("program", "options", "outcome"),
    [
        ("import os; os.kill(os.getpid(), 9)", {"failing": "any"}, GRADER_ERROR),
        ("import os; os.kill(os.getpid(), 9)", {}, GRADER_ERROR),
        ("raise ValueError('broken by the edit')", {}, FAILED),
        ("raise ValueError('broken by the edit')", {"failing": [2]}, GRADER_ERROR),
        ("assert 1 == 2, 'wrong'", {}, FAILED),
        (UNITTEST, {}, FAILED),
    ],
)
def test_a_test_that_fails_is_told_from_a_judge_that_breaks(
    tmp_path: Path, program: str, options: dict[str, Any], outcome: Outcome
) -> None:
    verdict = judged([command(program, **options)], subject(tmp_path), folder=tmp_path / "logs")
    assert verdict.outcome is outcome


def test_a_command_has_a_temporary_folder_of_its_own_that_is_gone_afterwards(
    tmp_path: Path,
) -> None:
    leave = "import tempfile; print(tempfile.mkstemp()[1])"
    room = CommandContext(homes=Homes(tmp_path / "scratch"))
    verdict = judged([command(leave)], subject(tmp_path), folder=tmp_path / "logs", room=room)
    left = Path(said(verdict))
    assert left.is_relative_to(tmp_path / "scratch")
    assert not left.exists()


@pytest.mark.parametrize(
    ("in_workspace", "options", "is_own"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"pass_env": ["HOME"]}, False),
        (True, {"env": {"HOME": "/home/me"}}, False),
    ],
)
def test_what_runs_an_attempts_code_does_not_see_the_users_home(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_workspace: bool,
    options: dict[str, Any],
    is_own: bool,
) -> None:
    """Unless the suite hands it over."""
    monkeypatch.setenv("HOME", "/home/me")
    room = CommandContext(homes=Homes(tmp_path / "scratch"))
    asked = command("import os; print(os.environ['HOME'])", **options)
    what = subject(tmp_path if in_workspace else None)
    told = said(judged([asked], what, folder=tmp_path / "logs", room=room))
    assert told.startswith(str(tmp_path / "scratch")) if is_own else told == "/home/me"


def test_a_command_yields_to_others_and_is_told_by_its_trial(tmp_path: Path) -> None:
    class Listening(Warden):
        async def run(self, command: Command) -> ProcessEnd:
            started.append(command)
            return ProcessEnd(exit_code=0)

    started: list[Command] = []
    limits = TargetLimits(memory_bytes=1 << 30)
    what = replace(subject(tmp_path), index=7, limits=limits)

    async def judge() -> None:
        async with Listening() as warden:
            grading = Grading(graders=(command("pass"),))
            panel = Panel(grading, functions={}, threads=Threads(), warden=warden)
            await panel.judge(what, str(tmp_path))

    asyncio.run(judge())
    [one] = started
    assert (one.tag, one.nice, one.limits) == (7, 5, limits)


def test_a_commands_arguments_and_variables_are_filled_in(tmp_path: Path) -> None:
    show = "import os, sys; print(*sys.argv[1:], os.environ['WHAT'])"
    asked = command(show, "{workspace}/x", "{case.id}", "{mode}", "{{}}", env={"WHAT": "#{repeat}"})
    what = replace(subject(tmp_path), variant={"mode": "fast"})
    told = said(judged([asked], what, folder=tmp_path / "logs"))
    assert told == f"{tmp_path}/x fix fast {{}} #1"


def test_a_sandbox_is_made_for_commands_in_a_workspace_alone(tmp_path: Path) -> None:
    asked: list[str] = []

    def no_sandbox(workspace: str) -> None:
        asked.append(workspace)

    room = CommandContext(sandbox_for=no_sandbox)
    judged([command("pass")], subject(tmp_path), room=room)
    judged([command("pass")], subject(), room=room)
    assert asked == [str(tmp_path)]


@pytest.mark.skipif(why_no_sandbox() is not None, reason=str(why_no_sandbox()))
@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("import tempfile; open('made', 'w'); tempfile.mkstemp()", PASSED),
        ("import sys; open(sys.argv[1], 'w')", FAILED),
        ("import os; os.kill(os.getpid(), 9)", GRADER_ERROR),
        ("print('wrong'); raise SystemExit(1)", FAILED),
    ],
)
def test_a_sandboxed_command_writes_its_workspace_and_its_temporary_folder_alone(
    tmp_path: Path, program: str, outcome: Outcome
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    room = CommandContext(
        homes=Homes(tmp_path / "scratch"), sandbox_for=lambda path: Sandbox(writable=(path,))
    )
    outside = Path(__file__).with_name("outside-of-the-sandbox")
    asked = command(program, str(outside))
    verdict = judged([asked], subject(workspace), folder=tmp_path / "logs", room=room)
    assert verdict.outcome is outcome, said(verdict)
    assert not outside.exists()


def test_commands_in_one_workspace_run_one_after_the_other(tmp_path: Path) -> None:
    # It fails if another one is there.
    alone = "import os, time; os.mkdir('busy'); time.sleep(0.1); os.rmdir('busy')"
    several = [command(alone, name=f"c{number}") for number in range(4)]
    verdict = judged(several, subject(tmp_path), folder=tmp_path / "logs")
    assert verdict.outcome is PASSED
    assert [grade.grader for grade in verdict.grades] == ["c0", "c1", "c2", "c3"]


# ---- functions


def python(name: str = "python") -> GraderSpec:
    return GraderSpec(name=name, kind="python", options={"function": "m:f"})


def test_a_function_that_asks_for_the_workspace_is_told_of_it(tmp_path: Path) -> None:
    told: list[Any] = []

    def third(output: Output, case: Case, workspace: str | None) -> bool:
        told.append((output.text, case.id, workspace))
        return True

    async def by_name(output: Output, case: Case, variant: Any, *, workspace: str) -> bool:
        told.append(workspace)
        return True

    def with_default(output: Output, workspace: str = "") -> bool:
        told.append(workspace)
        return True

    for function in (third, by_name, with_default):
        verdict = judged([python()], subject(tmp_path), functions={"m:f": function})
        assert verdict.outcome is PASSED
    assert told == [("done", "fix", str(tmp_path)), str(tmp_path), str(tmp_path)]
    judged([python()], subject(), functions={"m:f": third})
    assert told[-1] == ("done", "fix", None)


def test_functions_in_one_workspace_take_turns_with_commands(tmp_path: Path) -> None:
    def judge(output: Output, case: Case, workspace: str) -> bool:
        return not (tmp_path / "busy").exists()

    slow = command("import os, time; os.mkdir('busy'); time.sleep(0.1); os.rmdir('busy')")
    graders = [slow, python("p1"), command("pass", name="c2")]
    verdict = judged(graders, subject(tmp_path), folder=tmp_path / "logs", functions={"m:f": judge})
    assert verdict.outcome is PASSED


# ---- marks that stay


JUDGE = Model(
    name="haiku", provider=Provider.OPENAI, model="m", base_url="http://x", account="team-a"
)


class Judges:
    """Answers as told, in this order."""

    def __init__(self, *replies: str | None) -> None:
        self.replies = list(replies)

    async def ask(self, request: Request) -> ModelAnswer | FailedCall:
        reply = self.replies.pop(0)
        use = AccountUse(account="account:team-a", requests=1)
        if reply is None:
            failure = Failure(kind=Outcome.RATE_LIMITED, message="no", account="account:team-a")
            return FailedCall(failure=failure, use=use)
        return ModelAnswer(text=reply, spend=Spend(calls=1), use=use)

    def forget(self, request: Request) -> None:
        raise AssertionError("nothing to forget")


def test_only_the_judge_that_was_missing_is_asked_when_the_workspace_is_gone(
    tmp_path: Path,
) -> None:
    """Neither the command, whose workspace is gone by then, nor the judge that has spoken."""
    runs = tmp_path / "runs"
    count = f"open({str(runs)!r}, 'a').write('.')"
    good = '{"reason": "fine", "score": 1}'
    judges = Judges(good, None, good)
    graders = (
        GraderSpec(name="first", kind="judge", options={"rubric": "?"}, model=JUDGE),
        command(count),
        GraderSpec(name="second", kind="judge", options={"rubric": "!"}, model=JUDGE),
    )

    async def judge_twice() -> tuple[PanelVerdict, PanelVerdict]:
        threads = Threads()
        async with Warden() as warden:
            panel = Panel(
                Grading(graders=graders),
                functions={},
                threads=threads,
                warden=warden,
                models=judges,
            )
            missing = await panel.judge(subject(tmp_path), str(tmp_path / "1"))
            whole = await panel.judge(subject(), str(tmp_path / "2"), missing.marks)
        threads.close()
        return missing, whole

    missing, whole = asyncio.run(judge_twice())
    assert missing.outcome is Outcome.RATE_LIMITED
    assert list(missing.marks) == [1, 2]
    assert all(isinstance(mark, Grade) for mark in missing.marks.values())
    assert whole.outcome is PASSED
    assert [grade.grader for grade in whole.grades] == ["first", "tests", "second"]
    assert whole.marks == {}
    assert runs.read_text() == "."
    assert judges.replies == []


# ---- similarity to a patch

HUMAN = """diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -1,2 +1,3 @@
-def area(r):
+def area(radius):
+    \"\"\"Of a circle.\"\"\"
     return 3
diff --git a/new.py b/new.py
new file mode 100644
--- /dev/null
+++ b/new.py
@@ -0,0 +1 @@
+--- not a header
"""


def test_patches_are_as_similar_as_the_changed_lines_that_both_have() -> None:
    assert similarity(HUMAN, HUMAN) == 1
    assert similarity(HUMAN, "") == 0
    other = HUMAN.replace("Of a circle", "Its area").replace("    return", "  return")
    assert similarity(HUMAN, other) == pytest.approx(2 * 3 / 8)
    elsewhere = HUMAN.replace("a.py", "b.py")
    assert similarity(HUMAN, elsewhere) == pytest.approx(2 * 1 / 8)


@pytest.mark.parametrize(("least", "outcome"), [(0.0, PASSED), (0.5, PASSED), (0.9, FAILED)])
def test_an_attempt_is_graded_by_its_similarity_to_the_expected_patch(
    tmp_path: Path, least: float, outcome: Outcome
) -> None:
    (tmp_path / "changes.patch").write_text(HUMAN.replace("Of a circle", "Its area"))
    change = Change(files_changed=1, files_added=1, lines_added=3, lines_deleted=1)
    what = replace(
        subject(change=change),
        case=Case(id="fix", input="Fix it.", expect={"patch": HUMAN}),
        patch=str(tmp_path / "changes.patch"),
    )
    verdict = judged([GraderSpec(name="diff", kind="diff", options={"similar": least})], what)
    assert verdict.outcome is outcome
    assert verdict.score == 0.75
    assert verdict.grades[0].reason.startswith(f"similarity 0.75, needs {least:g}; 2 files")
