"""How a candidate's test run differs from the baseline's: tests, exit codes, compared outputs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from paraval.cli.progress.race_progress import why_failed
from paraval.processes.children import Command
from paraval.racing import findings
from paraval.racing.correctness import test_run
from paraval.racing.correctness.differences import (
    DifferenceList,
    counts_against,
    differences_between,
    exit_difference,
    in_words,
    unstable_between,
)
from paraval.racing.correctness.junit import JunitReport, SingleTest
from paraval.racing.findings import MOST_DIFFERENCES, TestStatus
from paraval.racing.report import race_words

PASSED, FAILED, ERROR = TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR
SKIPPED, MISSING = TestStatus.SKIPPED, TestStatus.MISSING
UNREADABLE = JunitReport(problem="its JUnit report cannot be read: gone")
MANY = [f"t{number}" for number in range(MOST_DIFFERENCES + 50)]


def record(exit_code: int | None = 0, /, **tests: TestStatus) -> test_run.TestRecord:
    found = tuple(SingleTest(id=name, status=status) for name, status in tests.items())
    return test_run.TestRecord(exit_code=exit_code, report=JunitReport(tests=found))


def with_outputs(exit_code: int = 0, /, **outputs: str) -> test_run.TestRecord:
    return test_run.TestRecord(exit_code=exit_code, outputs=outputs)


def changes(found: DifferenceList) -> list[tuple[str, str, str]]:
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
def test_a_candidate_must_pass_every_test_that_the_baseline_passes(
    before: TestStatus, now: TestStatus, is_different: bool
) -> None:
    baseline, candidate = (
        record(**({} if status is MISSING else {"t": status}), other=PASSED)
        for status in (before, now)
    )
    expected = [("t", before.value, now.value)] if is_different else []
    assert changes(differences_between(baseline, candidate)) == expected


def test_failures_come_first_in_the_baselines_order() -> None:
    baseline = record(a=PASSED, b=PASSED, c=PASSED, d=PASSED)
    candidate = record(1, new=ERROR, d=FAILED, c=SKIPPED, b=FAILED)
    names = [name for name, _, _ in changes(differences_between(baseline, candidate))]
    assert names == ["b", "d", "new", "a", "c"]


def test_the_message_of_a_difference_is_the_testers_own() -> None:
    test = SingleTest(id="t", status=FAILED, message="assert 1 == 2\n\nt.py:3: AssertionError")
    candidate = test_run.TestRecord(exit_code=1, report=JunitReport(tests=(test,)))
    (one,) = differences_between(record(t=PASSED), candidate).differences
    assert one.message == test.message


@pytest.mark.parametrize(
    ("candidate", "unstable", "expected"),
    [
        (record(1, a=FAILED, b=PASSED), {"a"}, []),
        (record(3, a=PASSED, b=PASSED), (), [("exit code 3", "0", "different")]),
        (record(2, a=FAILED, b=PASSED), {"a"}, [("exit code 2", "0", "different")]),
        (record(1, a=PASSED, b=PASSED), {"a"}, [("exit code 1", "0", "different")]),
        (record(4), (), [("exit code 4", "0", "different")]),
        (record(None, a=FAILED), (), [("a", "passed", "failed")]),
        (test_run.TestRecord(exit_code=None), (), []),
        (
            test_run.TestRecord(exit_code=0, report=UNREADABLE),
            (),
            [("a", "passed", "missing"), ("b", "passed", "missing")],
        ),
    ],
    ids=[
        "an unstable test fails",
        "no test explains its exit code",
        "an unstable test fails, but not with exit code 1",
        "no test failed, but exit code 1",
        "no test ran: its end says it all",
        "it was stopped: what it did not reach is unknown",
        "it was stopped before any test",
        "its report cannot be read",
    ],
)
def test_an_exit_code_is_a_difference_unless_known_failures_explain_it(
    candidate: test_run.TestRecord, unstable: set[str], expected: list[tuple[str, str, str]]
) -> None:
    baseline = record(a=PASSED, b=PASSED)
    assert changes(differences_between(baseline, candidate, unstable)) == expected


def test_many_differences_are_counted_and_compared_outputs_stay_among_those_listed() -> None:
    before, now = (
        test_run.TestRecord(
            exit_code=code,
            report=record(**dict.fromkeys(MANY, status)).report,
            outputs={"out": digest},
        )
        for code, status, digest in ((0, PASSED, "1"), (1, FAILED, "2"))
    )
    found = differences_between(before, now)
    assert len(found.differences) == MOST_DIFFERENCES
    assert found.differences[-1].name == "out"
    assert found.more == len(MANY) + 1 - MOST_DIFFERENCES
    more = found.with_first(exit_difference("timed out", ""))
    assert more.differences[0].name == "timed out"
    assert (len(more.differences), more.more) == (MOST_DIFFERENCES, found.more + 1)


statuses = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from([*TestStatus][:4]))


@given(statuses, statuses)
def test_every_lost_pass_is_listed_and_every_list_has_words(
    before: dict[str, TestStatus], now: dict[str, TestStatus]
) -> None:
    baseline = record(**before)
    fails = any(status in (FAILED, ERROR) for status in now.values())
    found = differences_between(baseline, record(int(fails), **now))
    lost = {name for name, was in before.items() if was is PASSED and now.get(name) is not PASSED}
    assert lost <= {name for name, _, _ in changes(found)}
    assert all(one.status != "passed" for one in found.differences)
    assert bool(in_words(found)) is bool(found)
    assert not differences_between(baseline, baseline)


# ---- in words


@pytest.mark.parametrize(
    ("candidate", "reason", "live"),
    [
        (
            record(1, a=FAILED, b=FAILED, c=ERROR, d=FAILED, e=SKIPPED, s=SKIPPED),
            (
                "4 of 4 tests failed: a, b, c and 1 more; 1 of 6 tests skipped: e;"
                " 1 of 6 tests did not run: f"
            ),
            "4 of 4 tests: a, b, c and 1 more; 2 tests did not run: e and f",
        ),
        (
            record(1, **dict.fromkeys("abcde", PASSED), f=FAILED, s=SKIPPED),
            "1 of 6 tests failed: f",
            "1 of 6 tests: f",
        ),
        (
            record(1, **dict.fromkeys("abcdef", PASSED), **dict.fromkeys(MANY, FAILED)),
            "150 of 156 tests failed: t0, t1, t2 and 147 more",
            "150 of 156 tests: t0, t1, t2 and 147 more",
        ),
    ],
    ids=["all kinds", "skipped tests do not count", "very many"],
)
def test_a_reason_is_one_line_with_counts_of_the_tests_that_ran(
    candidate: test_run.TestRecord, reason: str, live: str
) -> None:
    baseline = record(**dict.fromkeys("abcdef", PASSED), s=SKIPPED)
    found = differences_between(baseline, candidate)
    assert in_words(found, candidate.counts, baseline.counts) == reason
    tested = findings.CorrectnessFinding(
        counts=candidate.counts, differences=found.differences, more=found.more
    )
    assert why_failed(tested) == live


def test_an_exit_code_has_the_last_printed_line_and_an_output_says_how_it_differs() -> None:
    ended = exit_difference("exit code 3", "begin\nboom\n")
    assert in_words(DifferenceList(differences=(ended,))) == "exit code 3: boom"
    found = differences_between(with_outputs(stdout="1", out="1"), with_outputs(stdout="2", out=""))
    assert changes(found) == [("stdout", "there", "different"), ("out", "there", "missing")]
    assert in_words(found) == "stdout differs from the baseline's; out is missing"


@pytest.mark.parametrize(
    ("candidate", "cell"),
    [
        (record(a=PASSED), "1/3"),
        (record(x=PASSED, y=PASSED, z=PASSED), "0/3"),
        (record(2, **{"tests/test_a.py": ERROR}), "0/3"),
        (record(1, a=FAILED, b=PASSED), "1/3"),
        (record(a=PASSED, b=PASSED, c=PASSED, new=PASSED), "4/4"),
        (record(1, a=PASSED, b=PASSED, c=PASSED, new=FAILED), "3/4"),
        (record(None, a=PASSED), "1/1"),
        (test_run.TestRecord(exit_code=0), "-"),
    ],
)
def test_neither_fewer_tests_nor_others_in_their_place_look_like_all_of_them(
    candidate: test_run.TestRecord, cell: str
) -> None:
    baseline = record(a=PASSED, b=PASSED, c=PASSED, s=SKIPPED, u=PASSED)
    assert race_words.tests_cell(counts_against(baseline, candidate, ["u"])) == cell


# ---- two runs of the same code


def test_what_differs_between_two_runs_of_the_baseline_is_unstable() -> None:
    one = record(a=PASSED, b=PASSED, c=PASSED, d=FAILED, e=PASSED)
    other = record(1, a=PASSED, b=FAILED, d=ERROR, e=SKIPPED, new=PASSED)
    assert unstable_between(one, other) == ("b", "c", "e", "new")
    assert unstable_between(
        with_outputs(stdout="1", out="1"), with_outputs(stdout="2", out="1")
    ) == ("stdout",)


def test_a_record_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    test = SingleTest(id="a", status=SKIPPED, message="\x1b[31m\0é")
    saved = test_run.TestRecord(
        exit_code=0,
        report=JunitReport(tests=(test,)),
        outputs={"out/a.json": "abc", "gone": ""},
        flags=("changed tests/a",),
        printed="the end",
    )
    (tmp_path / "precious").write_text("mine")
    (tmp_path / test_run.RECORD).symlink_to("precious")
    assert test_run.load_record(Path(saved.save(str(tmp_path))[test_run.RECORD])) == saved
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"tests": 3}', "[" * 100_000])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    assert test_run.load_record(tmp_path / "absent") is None
    (tmp_path / "a").write_text(text)
    assert test_run.load_record(tmp_path / "a") is None


# ---- compared outputs


def digests(folder: Path, *names: str, top: str = "top", log: bytes = b"") -> dict[str, str]:
    """Of these outputs of a command that ran in a worktree."""
    (folder / "stdout.log").write_bytes(log)
    command = Command(
        argv=("x",), env={}, cwd=str(folder), stdout=f"{folder}/stdout.log", stderr=os.devnull
    )
    place = str(folder / top)
    lease = cast("Any", SimpleNamespace(path=place, top=place))
    return test_run._digests(names, command, lease, {place: "{worktree}"})


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_outputs_have_one_digest_exactly_if_they_are_equal(
    tmp_path_factory: pytest.TempPathFactory, one: bytes, other: bytes
) -> None:
    folder = tmp_path_factory.mktemp("two")
    (folder / "top").mkdir()
    (folder / "top" / "one").write_bytes(one)
    (folder / "top" / "other").write_bytes(other)
    found = digests(folder, "one", "other")
    assert (found["one"] == found["other"]) is (one == other)


@pytest.mark.parametrize(
    "kind", ["pipe", "link", "zero", "folder", "outside", "neighbor", "loop", "endless", "absent"]
)
def test_an_output_that_is_not_a_file_of_the_worktree_is_missing(tmp_path: Path, kind: str) -> None:
    top, name = tmp_path / "top", kind
    top.mkdir()
    (tmp_path / "top-2").mkdir()
    for place in (tmp_path, tmp_path / "top-2"):
        (place / "secret").write_text("secret")
    match kind:
        case "pipe":
            os.mkfifo(top / kind)
        case "link":
            (top / kind).symlink_to(tmp_path / "secret")
        case "zero":
            (top / kind).symlink_to("/dev/zero")
        case "folder":
            (top / kind).mkdir()
        case "outside" | "neighbor":
            (top / kind).symlink_to(tmp_path if kind == "outside" else tmp_path / "top-2")
            name = f"{kind}/secret"
        case "loop":
            (top / kind).symlink_to(kind)
            name = "loop/x"
        case "endless":
            with (top / kind).open("wb") as file:
                file.truncate(1 << 40)
    assert digests(tmp_path, name) == {name: ""}


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("3 passed in 0.01s", "3 passed in 61.23s (0:01:01)", True),
        ("==== 3 passed in 9.99s ====", "=== 3 passed in 10.00s ====", True),
        ("no tests ran in 0.00s", "no tests ran in 0.01s", True),
        ("rootdir: {top}/x", "rootdir: {top}/x", True),
        (
            "-- generated xml file: {top}/r.xml --\n.",
            "- generated xml file: {top}/2.xml -\n.",
            True,
        ),
        ("2 passed in 0.01s", "3 passed in 0.01s", False),
        ("3 passed in the end", "3 passed in the middle", False),
    ],
)
def test_where_and_how_long_pytest_ran_is_not_compared(
    tmp_path: Path, one: str, other: str, are_equal: bool
) -> None:
    found = [
        digests(tmp_path, "stdout", top=top, log=text.format(top=tmp_path / top).encode())
        for top, text in (("1", one), ("22", other))
    ]
    assert (found[0] == found[1]) is are_equal
