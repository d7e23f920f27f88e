"""Reports of tests: whoever wrote them, whatever is wrong with them, however pytest is started."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given, strategies as st
from paraval.racing.correctness.junit_results import JunitReport, read_junit, read_junit_file
from paraval.racing.correctness.outputs import FOLDER, WORKTREE, RunFolders, cut

from paraval.racing.correctness import junit_results as junit
from paraval.racing.correctness.test_run import after_pytest, reporting

OWN = "/own/junit.xml"


def statuses(report: JunitReport) -> dict[str, str]:
    return {test.id: test.status.value for test in report.tests}


def report_of(*testcases: str) -> JunitReport:
    return read_junit(
        f"<testsuites><testsuite>{''.join(testcases)}</testsuite></testsuites>".encode()
    )


# ---- pytest's own


@pytest.fixture(name="real", scope="module")
def real_fixture(tmp_path_factory: pytest.TempPathFactory) -> JunitReport:
    """What pytest writes of tests that end in every way."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "tests").mkdir()
    (folder / "tests" / "test_a.py").write_text(
        textwrap.dedent("""
        import unittest, pytest

        def test_passes(): pass
        def test_fails(): assert 1 + 1 == 3
        def test_skips(): pytest.skip("not today")
        @pytest.mark.xfail
        def test_xfails(): assert 0
        @pytest.mark.parametrize("x", [1, 2])
        def test_with(x): print("\\x1b[31m\\0"); assert x == 1, "\\x1b[31m\\0"
        class TestX:
            class TestY:
                def test_deep(self): pass
        class TestU(unittest.TestCase):
            def test_sub(self):
                for i in range(3):
                    with self.subTest(i=i): self.assertEqual(i, 1)
        @pytest.fixture
        def bad():
            yield
            raise ValueError("teardown")
        def test_torn(bad): pass
        """)
    )
    asked = reporting(
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"), "auto", "out.xml"
    )
    env = {"PATH": os.environ["PATH"]}
    subprocess.run(asked.argv, cwd=folder, env=env, capture_output=True, check=False)
    return read_junit_file(str(folder / "out.xml"), RunFolders({str(folder): WORKTREE}))


def test_every_end_of_a_pytest_test_is_told_by_its_node_id(real: JunitReport) -> None:
    assert real.problem is None
    assert statuses(real) == {
        "tests/test_a.py::test_passes": "passed",
        "tests/test_a.py::test_fails": "failed",
        "tests/test_a.py::test_skips": "skipped",
        "tests/test_a.py::test_xfails": "skipped",
        "tests/test_a.py::test_with[1]": "passed",
        "tests/test_a.py::test_with[2]": "failed",
        "tests/test_a.py::TestX::TestY::test_deep": "passed",
        "tests/test_a.py::TestU::test_sub": "failed",
        "tests/test_a.py::test_torn": "error",
    }


def test_its_messages_are_short_and_its_tracebacks_are_there(real: JunitReport) -> None:
    failed = next(test for test in real.tests if test.id.endswith("test_fails"))
    assert failed.message.startswith("assert (1 + 1) == 3")
    assert "test_a.py:5: AssertionError" in failed.details


def test_where_it_was_run_is_not_in_it(real: JunitReport) -> None:
    skipped = next(test for test in real.tests if test.id.endswith("test_skips"))
    assert skipped.details == f"{WORKTREE}/tests/test_a.py:6: not today"


def test_counts_are_by_status(real: JunitReport) -> None:
    counts = real.counts
    assert (counts.passed, counts.failed, counts.errors, counts.skipped) == (3, 3, 1, 2)


# ---- other programs'


@pytest.mark.parametrize(
    ("testcase", "name", "status"),
    [
        ('<testcase classname="pkg.mod.TestX" name="test_y"/>', "pkg.mod.TestX::test_y", "passed"),
        ('<testcase classname="x.org/a" name="TestAdd/one"/>', "x.org/a::TestAdd/one", "passed"),
        (
            '<testcase classname=" a" name=" a b"><failure>x</failure></testcase>',
            " a:: a b",
            "failed",
        ),
        ('<testcase name="alone"><error/></testcase>', "alone", "error"),
        ('<testcase name="g" status="notrun"/>', "g", "skipped"),
        ('<testcase name="g" status="run" result="skipped"/>', "g", "skipped"),
        ('<testcase name="j" status="failed"/>', "j", "failed"),
        ('<testcase file="a/Foo.php" classname="Foo" name="t"/>', "a/Foo.php::Foo::t", "passed"),
        ("<testcase><skipped/></testcase>", "(unnamed test)", "skipped"),
        ('<testcase name="m"><skipped/><failure message="x"/></testcase>', "m", "failed"),
        ('<testcase name="rerun"><rerunFailure message="x"/></testcase>', "rerun", "passed"),
        ('<x:testcase xmlns:x="urn:x" name="ns"><x:failure/></x:testcase>', "ns", "failed"),
        ('<testcase name="p"><property name="error" value="1"/></testcase>', "p", "passed"),
    ],
)
def test_reports_of_other_programs_are_read_too(testcase: str, name: str, status: str) -> None:
    assert statuses(report_of(testcase)) == {name: status}


def test_tests_of_one_name_are_numbered() -> None:
    twice = '<testcase classname="a" name="b"/>'
    assert list(statuses(report_of(twice, twice, twice))) == ["a::b", "a::b #2", "a::b #3"]


def test_absolute_files_are_told_from_the_worktree() -> None:
    data = b'<testsuite><testcase file="/w/1/a/t.js" classname="c" name="n"/></testsuite>'
    report = read_junit(data, RunFolders({"/w/1": WORKTREE}))
    assert statuses(report) == {"a/t.js::c::n": "passed"}


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    long = "x" * 5000
    report = report_of(f'<testcase name="{long}1"/>', f'<testcase name="{long}2"/>')
    one, other = (test.id for test in report.tests)
    assert one != other
    assert len(one) < 600


def test_messages_are_cut_in_the_middle() -> None:
    message = quoteattr("begin" + "x" * 100_000 + "end")
    failure = f"<failure message={message}>{'y' * 100_000}</failure>"
    report = report_of(f'<testcase name="a">{failure}</testcase>')
    (test,) = report.tests
    assert len(test.message) <= 4000
    assert test.message.startswith("begin")
    assert test.message.endswith("end")
    assert len(test.details) <= 20_000


@given(st.text(max_size=400), st.integers(100, 300))
def test_a_cut_is_never_longer_than_asked(text: str, most: int) -> None:
    assert len(cut(text, most)) <= most


# ---- what is wrong with them


def test_one_that_is_broken_off_is_read_as_far_as_it_goes() -> None:
    whole = b'<testsuite><testcase name="a"/><testcase name="b"><failure>no</failure></testcase>'
    report = read_junit(whole + b'<testcase name="c"><fail')
    assert statuses(report) == {"a": "passed", "b": "failed"}
    assert report.problem is not None
    assert "not a complete JUnit report" in report.problem


BILLION_LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>"""
OUTSIDE = b"""<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<testsuite><testcase name="&x;"/></testsuite>"""


@pytest.mark.parametrize("attack", [BILLION_LAUGHS, OUTSIDE])
def test_document_types_are_refused(attack: bytes) -> None:
    report = read_junit(attack)
    assert report.tests == ()
    assert report.problem is not None
    assert "DOCTYPE" in report.problem


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"not xml", b"<a>" * 100_000, b'<?xml version="1.0" encoding="nope"?><a/>']
)
def test_what_is_no_report_tells_nothing_and_why(data: bytes) -> None:
    report = read_junit(data)
    assert report.tests == ()
    assert report.problem


@given(st.binary(max_size=300))
def test_no_bytes_at_all_do_harm(data: bytes) -> None:
    read_junit(b"<testsuite><testcase name='a'>" + data)
    read_junit(data)


def test_one_that_is_too_large_is_read_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "LARGEST_BYTES", 100)
    report = read_junit(b"<testsuite>" + b'<testcase name="a"/>' * 50)
    assert 0 < len(report.tests) < 50
    assert report.problem == "it is larger than 0 MB"


def test_tests_without_end_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "MOST_TESTS", 5)
    report = report_of('<testcase name="a"/>' * 9)
    assert len(report.tests) == 5
    assert "more than 5 tests" in (report.problem or "")


def test_a_file_that_is_none_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "absent"):
        report = read_junit_file(str(tmp_path / name))
        assert report.tests == ()
        assert report.problem


def test_that_pytest_wrote_no_report_is_told_without_its_path(tmp_path: Path) -> None:
    report = read_junit_file(str(tmp_path / "files" / "r.xml"), RunFolders({str(tmp_path): FOLDER}))
    assert report == JunitReport(problem="pytest wrote no test report")


def test_of_a_file_that_cannot_be_imported_the_cause_is_told(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_b.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "tests" / "test_c.py").write_text("def (:\n")
    ask = ("-p", "no:cacheprovider", "-o", "junit_family=xunit1", "--junitxml=r.xml", "tests")
    command = [sys.executable, "-m", "pytest", "-q", *ask]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    first, second = read_junit_file(str(tmp_path / "r.xml")).tests
    cause = "ModuleNotFoundError: No module named 'no_such_module_at_all'"
    assert (first.id, first.message) == ("tests/test_b.py", f"collection failure: {cause}")
    assert second.message.startswith("collection failure: SyntaxError: ")


# ---- how pytest is started


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("pytest -q", 1),
        ("py.test", 1),
        ("/venv/bin/pytest tests", 1),
        ("python -m pytest -q", 3),
        ("/usr/bin/python3.12 -X dev -W error -B -m pytest", 8),
        ("env A=1 -u B pytest", 5),
        ("env A=1 python -m pytest", 5),
        ("uv run pytest", 3),
        ("uv run --with pytest --frozen -- pytest -q", 7),
        ("uv run python -m pytest", 5),
        ("poetry run pytest", 3),
        ("uvx --with x pytest", 4),
        ("coverage run --branch -m pytest tests", 5),
        ("python -m coverage run -m pytest", 6),
        ("python tests/run.py", None),
        ("python -m unittest", None),
        ("python -c pytest", None),
        ("make pytest", None),
        ("grep pytest .", None),
        ("python -m", None),
        ("env", None),
        ("uv run", None),
        ("uv sync pytest", None),
    ],
)
def test_pytest_is_known_however_it_is_started(line: str, place: int | None) -> None:
    assert after_pytest(tuple(line.split())) == place


def test_pytest_is_asked_for_a_report_before_its_own_arguments() -> None:
    asked = reporting(("pytest", "-q", "--", "tests"), "auto", OWN)
    assert asked.file == OWN
    assert asked.argv[:2] == ("pytest", f"--junitxml={OWN}")
    assert asked.argv[-3:] == ("-q", "--", "tests")


@pytest.mark.parametrize("given", [("--junitxml=r.xml",), ("--junit-xml", "r.xml")])
def test_a_report_that_is_asked_for_already_is_read(given: tuple[str, ...]) -> None:
    asked = reporting(("pytest", *given), "auto", OWN)
    assert asked.file == "r.xml"
    assert f"--junitxml={OWN}" not in asked.argv


@pytest.mark.parametrize("given", [("--junitxml=/tmp/r.xml",), ("--junit-xml", "~/r.xml")])
def test_a_report_that_all_candidates_would_share_is_put_elsewhere(given: tuple[str, ...]) -> None:
    asked = reporting(("pytest", *given, "-q"), "auto", OWN)
    assert asked.file == OWN
    assert "r.xml" not in " ".join(asked.argv)
    assert asked.argv[-1] == "-q"


def test_off_is_off_and_a_file_is_a_file() -> None:
    assert reporting(("pytest",), "off", OWN).file is None
    assert reporting(("pytest",), "off", OWN).argv == ("pytest",)
    assert reporting(("make", "test"), "auto", OWN).file is None
    assert reporting(("make", "test"), "out/r.xml", OWN).file == "out/r.xml"
