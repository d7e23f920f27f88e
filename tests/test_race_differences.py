"""What is different with a candidate: tests, what was expected and what came, stdout and files."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from paraval.racing.correctness.junit_results import JunitReport, SingleTest
from paraval.racing.correctness.outputs import (
    NOWHERE,
    WORKTREE,
    OutputSnapshot,
    RunFolders,
    compared,
    look_at_file,
    look_at_stdout,
    without_times,
)
from paraval.racing.correctness.test_results import (
    CommandRunRecord,
    load_account,
    save_account,
    unstable_between,
)

from paraval.cli.progress.race_progress import why_failed
from paraval.racing import findings
from paraval.racing.correctness import outputs as comparing
from paraval.racing.correctness.differences import (
    DifferenceList,
    counts_against,
    differences_between,
    exit_difference,
    in_words,
)
from paraval.racing.findings import MOST_DIFFERENCES, RunDifference, TestStatus
from paraval.racing.report import race_words as shown

PASSED, FAILED, ERROR = TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR
SKIPPED, MISSING = TestStatus.SKIPPED, TestStatus.MISSING


def account(exit_code: int | None = 0, /, **tests: TestStatus) -> CommandRunRecord:
    found = tuple(SingleTest(id=name, status=status) for name, status in tests.items())
    return CommandRunRecord(exit_code=exit_code, report=JunitReport(tests=found))


def told(found: DifferenceList) -> list[tuple[str, str, str]]:
    return [(one.name, one.baseline, one.status) for one in found.differences]


# ---- tests


@pytest.mark.parametrize(
    ("before", "now", "is_different"),
    [
        (PASSED, PASSED, False),
        (PASSED, FAILED, True),
        (PASSED, ERROR, True),
        (PASSED, SKIPPED, True),
        (PASSED, MISSING, True),
        (SKIPPED, PASSED, False),
        (SKIPPED, FAILED, True),
        (SKIPPED, MISSING, False),
        (FAILED, ERROR, False),
        (FAILED, PASSED, False),
        (MISSING, FAILED, True),
        (MISSING, PASSED, False),
    ],
)
def test_a_candidate_passes_what_the_baseline_passes(
    before: TestStatus, now: TestStatus, is_different: bool
) -> None:
    baseline, candidate = (
        account(**({} if status is MISSING else {"t": status}), other=PASSED)
        for status in (before, now)
    )
    expected = [("t", before.value, now.value)] if is_different else []
    assert told(differences_between(baseline, candidate)) == expected


def test_failures_come_first_and_all_by_the_baselines_order() -> None:
    baseline = account(a=PASSED, b=PASSED, c=PASSED, d=PASSED)
    candidate = account(1, new=ERROR, d=FAILED, c=SKIPPED, b=FAILED)
    names = [name for name, _, _ in told(differences_between(baseline, candidate))]
    assert names == ["b", "d", "new", "a", "c"]


def test_what_is_unstable_is_not_compared() -> None:
    baseline, candidate = account(a=PASSED, b=PASSED), account(1, a=FAILED, b=PASSED)
    assert not differences_between(baseline, candidate, {"a"})


def test_another_exit_code_is_told_where_no_test_explains_it() -> None:
    baseline = account(a=PASSED)
    found = differences_between(baseline, account(3, a=PASSED), printed="boom\n")
    assert told(found) == [("exit_code", "there", "different")]
    assert found.differences[0].actual == "3"
    assert in_words(found, baseline.counts) == "exit code 3: boom"


def test_an_exit_code_that_unstable_tests_explain_counts_for_nothing_and_another_does() -> None:
    baseline = account(a=PASSED)
    assert not differences_between(baseline, account(1, a=FAILED), {"a"})
    assert differences_between(baseline, account(2, a=FAILED), {"a"})
    assert differences_between(baseline, account(1, a=PASSED), {"a"})


def test_a_run_that_came_to_no_test_is_told_by_its_end_alone() -> None:
    baseline = account(**{f"t{n}": PASSED for n in range(500)})
    found = differences_between(baseline, CommandRunRecord(exit_code=4, report=JunitReport()))
    assert told(found) == [("exit_code", "there", "different")]
    assert found.more == 0


def test_a_run_that_ended_well_without_a_word_of_its_tests_has_none() -> None:
    baseline = account(**{f"t{n}": PASSED for n in range(500)})
    found = differences_between(
        baseline, CommandRunRecord(exit_code=0, report=JunitReport(problem="gone"))
    )
    assert len(found.differences) == MOST_DIFFERENCES
    assert found.more == 500 - MOST_DIFFERENCES
    assert {one.status for one in found.differences} == {"missing"}


def test_a_run_that_was_ended_is_not_told_what_it_did_not_come_to() -> None:
    baseline = account(a=PASSED, b=PASSED, c=PASSED)
    found = differences_between(baseline, account(None, a=PASSED, b=FAILED))
    assert told(found) == [("b", "passed", "failed")]


def test_where_not_all_of_the_baselines_tests_are_known_none_is_missing() -> None:
    known = tuple(SingleTest(id=name, status=PASSED) for name in "abc")
    baseline = CommandRunRecord(exit_code=0, report=JunitReport(tests=known, problem="too large"))
    candidate = CommandRunRecord(
        exit_code=0, report=JunitReport(tests=known[:1], problem="too large")
    )
    assert not differences_between(baseline, candidate)


def test_there_is_room_for_what_is_compared_beside_many_tests() -> None:
    baseline = CommandRunRecord(
        exit_code=0,
        report=account(**{f"t{n}": PASSED for n in range(500)}).report,
        looks=(OutputSnapshot(name="out", digest="1", content=b"a\n"),),
    )
    candidate = CommandRunRecord(
        exit_code=1,
        report=account(**{f"t{n}": FAILED for n in range(500)}).report,
        looks=(OutputSnapshot(name="out", digest="2", content=b"b\n"),),
    )
    found = differences_between(baseline, candidate)
    assert len(found.differences) == MOST_DIFFERENCES
    assert found.differences[-1].name == "out"
    assert found.more == 501 - MOST_DIFFERENCES


def test_one_more_is_put_first_and_the_bound_holds() -> None:
    many = DifferenceList(
        differences=tuple(exit_difference(str(n), "") for n in range(MOST_DIFFERENCES))
    )
    more = many.with_first(exit_difference("first", ""))
    assert more.differences[0].actual == "first"
    assert (len(more.differences), more.more) == (MOST_DIFFERENCES, 1)
    assert DifferenceList().with_first(more.differences[0]).more == 0


statuses = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([*TestStatus][:4]))


@given(statuses, statuses)
def test_always_every_difference_is_a_reason_and_no_difference_is_a_pass(
    before: dict[str, TestStatus], now: dict[str, TestStatus]
) -> None:
    baseline = account(**before)
    fails = any(status in (FAILED, ERROR) for status in now.values())
    found = differences_between(baseline, account(int(fails), **now))
    names = {name for name, _, _ in told(found)}
    for name, status in before.items():
        if status is PASSED and now.get(name) is not PASSED:
            assert name in names
    assert all(one.status != "passed" for one in found.differences)
    assert bool(in_words(found)) is bool(found)
    assert not differences_between(baseline, baseline)


def test_a_difference_has_the_message_first_and_the_traceback_after_it() -> None:
    test = SingleTest(
        id="t", status=FAILED, message="assert 1 == 2", details="E   assert 1 == 2\n\nt.py:3: Error"
    )
    candidate = CommandRunRecord(exit_code=1, report=JunitReport(tests=(test,)))
    (one,) = differences_between(account(t=PASSED), candidate).differences
    assert one.message.splitlines()[0] == "assert 1 == 2"
    assert "t.py:3: Error" in one.message


def words(baseline: CommandRunRecord, candidate: CommandRunRecord) -> str:
    return in_words(differences_between(baseline, candidate), candidate.counts, baseline.counts)


def test_why_not_is_one_line() -> None:
    baseline = account(a=PASSED, b=PASSED, c=PASSED, d=PASSED, e=PASSED, f=PASSED, g=SKIPPED)
    candidate = account(1, a=FAILED, b=FAILED, c=ERROR, d=FAILED, e=SKIPPED, g=SKIPPED)
    assert words(baseline, candidate) == (
        "4 of 4 tests failed: a, b, c and 1 more; 1 of 6 tests skipped: e;"
        " 1 of 6 tests did not run: f"
    )


def test_tests_that_are_skipped_are_not_among_those_that_could_fail() -> None:
    """As in the table, and in what is told live: 2/3."""
    baseline = account(a=PASSED, b=PASSED, c=PASSED, d=SKIPPED)
    candidate = account(1, a=PASSED, b=FAILED, c=PASSED, d=SKIPPED)
    found = differences_between(baseline, candidate)
    assert words(baseline, candidate) == "1 of 3 tests failed: b"
    assert shown.tests_cell(candidate.counts) == "2/3"
    tested = findings.CorrectnessFinding(counts=candidate.counts, differences=found.differences)
    assert why_failed(tested) == "1 of 3 tests: b"


def test_of_very_many_failures_all_are_counted() -> None:
    names = [f"t{number}" for number in range(MOST_DIFFERENCES + 50)]
    baseline, candidate = (
        account(code, **dict.fromkeys(names, status), other=PASSED)
        for code, status in ((0, PASSED), (1, FAILED))
    )
    found = differences_between(baseline, candidate)
    assert words(baseline, candidate) == "150 of 151 tests failed: t0, t1, t2 and 147 more"
    tested = findings.CorrectnessFinding(
        counts=candidate.counts, differences=found.differences, more=found.more
    )
    assert why_failed(tested) == "150 of 151 tests: t0, t1, t2 and 147 more"


def test_tests_that_did_not_run_are_told_live_as_what_they_are() -> None:
    baseline = account(a=PASSED, b=PASSED, c=PASSED)
    candidate = account(1, a=FAILED, b=SKIPPED)
    found = differences_between(baseline, candidate)
    tested = findings.CorrectnessFinding(counts=candidate.counts, differences=found.differences)
    assert why_failed(tested) == "1 of 1 tests: a; 2 tests did not run: b and c"


# ---- two runs of the same code


def test_tests_are_counted_against_those_of_the_baseline() -> None:
    """Neither fewer tests nor others in their place look like all of them."""
    baseline = account(a=PASSED, b=PASSED, c=PASSED, s=SKIPPED, u=PASSED)

    def cell(candidate: CommandRunRecord) -> str:
        return shown.tests_cell(counts_against(baseline, candidate, ["u"]))

    assert cell(account(a=PASSED)) == "1/3"
    assert cell(account(x=PASSED, y=PASSED, z=PASSED)) == "0/3"
    assert cell(account(2, **{"tests/test_a.py": ERROR})) == "0/3"
    assert cell(account(1, a=FAILED, b=PASSED)) == "1/3"
    assert cell(account(a=PASSED, b=PASSED, c=PASSED, new=PASSED)) == "4/4"
    assert cell(account(1, a=PASSED, b=PASSED, c=PASSED, new=FAILED)) == "3/4"
    assert cell(account(None, a=PASSED)) == "1/1", "what it did not come to tells nothing"
    assert cell(CommandRunRecord(exit_code=0)) == "-"


def test_why_there_is_no_report_is_told_once() -> None:
    baseline = account(a=PASSED, b=PASSED, c=PASSED)
    found = differences_between(
        baseline, CommandRunRecord(exit_code=0, report=JunitReport(problem="gone"))
    )
    assert [one.message for one in found.differences] == [
        "its test report: gone",
        "",
        "",
    ]


def test_what_differs_between_two_runs_of_the_baseline_is_unstable() -> None:
    one = account(a=PASSED, b=PASSED, c=PASSED, d=FAILED, e=PASSED)
    other = account(1, a=PASSED, b=FAILED, d=ERROR, e=SKIPPED, new=PASSED)
    assert unstable_between(one, other) == ("b", "c", "e", "new")


def test_what_is_printed_otherwise_the_second_time_is_unstable() -> None:
    one, other = (
        CommandRunRecord(
            exit_code=0, looks=(OutputSnapshot(name="stdout", is_stdout=True, digest=d, content=c),)
        )
        for d, c in (("1", b"0.1\n"), ("2", b"0.2\n"))
    )
    assert unstable_between(one, other) == ("stdout",)
    assert unstable_between(one, one) == ()


def test_an_account_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    given_account = CommandRunRecord(
        exit_code=0,
        report=JunitReport(
            tests=(SingleTest(id="a", status=SKIPPED, message="\x1b[31m\0é"),), problem=None
        ),
        looks=(
            look_at_stdout("/nowhere", 0, places=NOWHERE, is_pytest=False),
            OutputSnapshot(
                name="out/a.json", size=3, digest=comparing._digest(b"{}\n"), content=b"{}\n"
            ),
            OutputSnapshot(name="gone", problem="not there"),
        ),
        flags=("changed tests/a",),
    )
    saved, artifacts = save_account(given_account, str(tmp_path / "attempt"))
    assert set(artifacts) == {"tests.json", "compared.1", "compared.2"}
    again = load_account(Path(artifacts["tests.json"]))
    assert again == saved
    assert unstable_between(again, given_account) == ()
    assert again.looks[1].bytes_of() == b"{}\n"


def test_an_account_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert load_account(tmp_path / "absent") is None
    for text in ("", "{}", "[1]", '{"tests": 3}'):
        (tmp_path / "a").write_text(text)
        assert load_account(tmp_path / "a") is None


def test_what_was_kept_and_is_another_by_now_is_not_used(tmp_path: Path) -> None:
    look = OutputSnapshot(name="x", digest=comparing._digest(b"as it was"), content=b"as it was")
    saved, artifacts = save_account(CommandRunRecord(exit_code=0, looks=(look,)), str(tmp_path))
    Path(artifacts["compared.1"]).write_bytes(b"forged")
    assert saved.looks[0].bytes_of() is None


# ---- stdout and files


def file_look(folder: Path, name: str, content: bytes) -> OutputSnapshot:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return look_at_file(name, str(folder), str(folder))


def difference(
    tmp_path: Path, before: bytes, now: bytes, name: str = "out"
) -> RunDifference | None:
    return compared(
        file_look(tmp_path / "before", name, before), file_look(tmp_path / "now", name, now)
    )


def test_files_are_compared_byte_for_byte(tmp_path: Path) -> None:
    assert difference(tmp_path, b"a\0\xff\n", b"a\0\xff\n") is None
    found = difference(tmp_path, b"one\ntwo\nthree\nfour\n", b"one\ntwo\nTHREE\nfour\n")
    assert found is not None
    assert (found.scope, found.name, found.status) == ("file", "out", "different")
    assert found.message.startswith("@@ line 3 @@\n one\n two\n-three\n")
    assert "+THREE" in found.message
    assert (found.expected, found.actual) == ("three", "THREE")


@pytest.mark.parametrize(
    ("before", "now"), [(b"a\n", b"a"), (b"", b"a\n"), (b"a\nb\n", b"a\n"), (b"\0", b"\x1b[2J")]
)
def test_every_difference_is_one(tmp_path: Path, before: bytes, now: bytes) -> None:
    assert difference(tmp_path, before, now) is not None


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_two_contents_are_equal_or_told_apart(before: bytes, now: bytes) -> None:
    looks = (
        OutputSnapshot(name="x", size=len(data), digest=comparing._digest(data), content=data)
        for data in (before, now)
    )
    assert (compared(*looks) is None) is (before == now)


def test_of_a_long_line_what_differs_is_told(tmp_path: Path) -> None:
    found = difference(tmp_path, b"x" * 5000 + b"A" + b"y" * 5000, b"x" * 5000 + b"B" + b"y" * 5000)
    assert found is not None
    assert "A" in (found.expected or "")
    assert "B" in (found.actual or "")
    assert len(found.message) < 1000


@pytest.mark.parametrize(
    ("before", "now", "is_equal"),
    [
        ('{"a": 1, "b": 2}', '{"b":2,\n"a":1}', True),
        ("[1.0]", "[1.00]", True),
        ("[1]", "[1.0]", False),
        ("[1]", "[true]", False),
        ("[1, 2]", "[2, 1]", False),
        ("[NaN]", "[ NaN]", False),
        ("[" * 100_000, "[" * 100_001, False),
    ],
)
def test_json_files_that_say_the_same_are_equal(
    tmp_path: Path, before: str, now: str, is_equal: bool
) -> None:
    found = difference(tmp_path, before.encode(), now.encode(), "out.json")
    assert (found is None) is is_equal
    assert difference(tmp_path, before.encode(), now.encode(), "out.txt") is not None


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    before = file_look(tmp_path, "out", b"x")
    (tmp_path / "out").unlink()
    found = compared(before, look_at_file("out", str(tmp_path), str(tmp_path)))
    assert found is not None
    assert (found.status, found.baseline) == ("missing", "there")


@pytest.mark.parametrize("kind", ["pipe", "link", "zero", "folder", "out", "absolute", "loop"])
def test_nothing_is_waited_for_and_no_link_is_followed(tmp_path: Path, kind: str) -> None:
    top, name = tmp_path / "top", kind
    top.mkdir()
    (tmp_path / "secret").write_text("secret")
    match kind:
        case "pipe":
            os.mkfifo(top / kind)
        case "link":
            (top / kind).symlink_to(tmp_path / "secret")
        case "zero":
            (top / kind).symlink_to("/dev/zero")
        case "folder":
            (top / kind).mkdir()
        case "out":
            (top / kind).symlink_to(tmp_path)
            name = "out/secret"
        case "absolute":
            name = str(tmp_path / "secret")
        case "loop":
            (top / kind).symlink_to(kind)
            name = "loop/x"
    look = look_at_file(name, str(top), str(top))
    assert not look.is_there
    assert look.problem


def test_large_files_are_compared_by_their_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "KEPT_BYTES", 10)
    assert difference(tmp_path, b"x" * 100, b"x" * 100) is None
    found = difference(tmp_path, b"x" * 100, b"x" * 99 + b"y")
    assert found is not None
    assert "too large to show where" in found.message


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    look = look_at_file("sparse", str(tmp_path), str(tmp_path))
    assert not look.is_there


def test_where_it_ran_and_how_long_pytest_took_are_not_compared(tmp_path: Path) -> None:
    looks = []
    for number, (took, sign) in enumerate((("0.01s", "=" * 20), ("61.23s (0:01:01)", "=" * 9))):
        log = tmp_path / f"{number}.log"
        log.write_text(
            f"rootdir: /slots/{number}/x\n..\n- generated xml file: /slots/{number}/r.xml -\n"
            f"{sign} 2 passed, 1 warning in {took} {sign}\n"
        )
        places = RunFolders({f"/slots/{number}/x": WORKTREE})
        size = log.stat().st_size
        looks.append(look_at_stdout(str(log), size, places=places, is_pytest=True))
    assert compared(*looks) is None


@pytest.mark.parametrize(
    ("line", "left"),
    [
        (b"3 passed in 0.01s", b"3 passed"),
        (b"===== 1 failed, 3 passed in 0.51s =====", b"1 failed, 3 passed"),
        (b"no tests ran in 0.00s", b"no tests ran"),
        (b"==== 5 passed in 3601.00s (1:00:01) ====", b"5 passed"),
        (b"done in 0.01s", b"done in 0.01s"),
        (b"3 passed in the end", b"3 passed in the end"),
    ],
)
def test_of_what_pytest_prints_the_times_alone_are_left_out(line: bytes, left: bytes) -> None:
    assert without_times(b"x\n" + line + b"\n") == b"x\n" + left + b"\n"


def test_where_large_files_differ_is_told_without_all_their_lines_in_memory() -> None:
    before = b"x\n" * 1_000_000 + b"a\nb\nold\n"
    now = before.replace(b"old", b"new")
    sides = [
        OutputSnapshot(name="f", size=len(side), digest=str(hash(side)), content=side)
        for side in (before, now)
    ]
    tracemalloc.start()
    try:
        told = compared(*sides)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert told is not None
    assert told.message == "@@ line 1000003 @@\n a\n b\n-old\n+new"
    assert peak < 4 * len(before)
