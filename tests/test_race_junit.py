"""JUnit reports, whoever wrote them and whatever is wrong; and how one is asked for."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given, strategies as st

from paraval.processes.children import Command
from paraval.racing.correctness import junit
from paraval.racing.correctness.junit import JunitReport, cut, read_junit
from paraval.racing.correctness.test_run import ADDOPTS, _reporting
from paraval.racing.findings import TestCounts

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def statuses(report: JunitReport) -> dict[str, str]:
    return {test.id: test.status.value for test in report.tests}


def read(folder: Path, data: bytes) -> JunitReport:
    (folder / "r.xml").write_bytes(data)
    return read_junit(str(folder / "r.xml"), {})


def report_of(folder: Path, *testcases: str) -> JunitReport:
    whole = f"<testsuites><testsuite>{''.join(testcases)}</testsuite></testsuites>"
    return read(folder, whole.encode())


def reported(folder: Path, argv: tuple[str, ...], name: str = "out.xml", **env: str) -> JunitReport:
    """What a command reports that is run in a folder."""
    env = {"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env}
    plain = Command(argv=argv, env=env, cwd=str(folder), stdout=os.devnull, stderr=os.devnull)
    asked = _reporting(plain, str(folder / name))
    subprocess.run(asked.argv, cwd=folder, env=asked.env, capture_output=True, check=False)
    return read_junit(str(folder / name), {f"{folder}/": ""})


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
    (folder / "tests" / "test_b.py").write_text("import no_such_module_at_all\n")
    return reported(folder, (*PYTEST, "--continue-on-collection-errors"))


def test_every_pytest_test_has_its_node_id_and_how_it_ended(real: JunitReport) -> None:
    assert real.problem is None
    assert statuses(real) == {
        "tests/test_b.py": "error",
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
    assert real.counts == TestCounts(passed=3, failed=3, errors=2, skipped=2)


def test_a_message_is_short_at_first_and_then_has_the_traceback_without_the_folder(
    real: JunitReport,
) -> None:
    messages = {test.id.rpartition("::")[2]: test.message for test in real.tests}
    assert messages["test_fails"].startswith("assert (1 + 1) == 3")
    assert "tests/test_a.py:5: AssertionError" in messages["test_fails"]
    assert messages["test_skips"] == "not today\n\ntests/test_a.py:6: not today"
    cause = "ModuleNotFoundError: No module named 'no_such_module_at_all'"
    assert messages["tests/test_b.py"].startswith(f"collection failure: {cause}\n")


# ---- other programs'


@pytest.mark.parametrize(
    ("testcase", "name", "status"),
    [
        ('<testcase classname="pkg.mod.TestX" name="test_y"/>', "pkg.mod.TestX::test_y", "passed"),
        ('<testcase classname="x.org/a" name="TestAdd/one"/>', "x.org/a::TestAdd/one", "passed"),
        ('<testcase name="alone"><error/></testcase>', "alone", "error"),
        ('<testcase file="a/Foo.php" classname="Foo" name="t"/>', "a/Foo.php::Foo::t", "passed"),
        ("<testcase><skipped/></testcase>", "(unnamed test)", "skipped"),
        ('<testcase name="m"><skipped/><failure message="x"/></testcase>', "m", "failed"),
        ('<testcase name="rerun"><rerunFailure message="x"/></testcase>', "rerun", "passed"),
    ],
)
def test_reports_of_other_programs_are_read(
    tmp_path: Path, testcase: str, name: str, status: str
) -> None:
    assert statuses(report_of(tmp_path, testcase)) == {name: status}


def test_tests_with_the_same_name_are_numbered_and_long_names_are_cut(tmp_path: Path) -> None:
    twice, long = '<testcase classname="a" name="b"/>', "x" * 5000
    report = report_of(tmp_path, twice, twice, *(f'<testcase name="{long}{end}"/>' for end in "12"))
    assert [*statuses(report)] == ["a::b", "a::b #2", "x" * 500, f"{'x' * 500} #2"]


def test_a_long_message_is_cut_in_its_middle(tmp_path: Path) -> None:
    message = quoteattr("begin" + "x" * 100_000)
    failure = f"<failure message={message}>{'y' * 100_000}end</failure>"
    (test,) = report_of(tmp_path, f'<testcase name="a">{failure}</testcase>').tests
    assert len(test.message) <= junit.LONGEST_MESSAGE
    assert (test.message[:5], test.message[-3:]) == ("begin", "end")


@given(st.text(max_size=400), st.integers(100, 300))
def test_a_cut_text_is_never_longer_than_allowed(text: str, most: int) -> None:
    assert len(cut(text, most)) <= most


# ---- what is wrong with them


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"not xml",
        b"<a>" * 100_000,
        b'<?xml version="1.0" encoding="nope"?><a/>',
        b'<?xml version="1.0" encoding="utf-7"?><a/>',
        b'<testsuite><testcase name="a"/><testcase name="b"><failure>no</failure></testcase>',
    ],
)
def test_a_report_that_is_not_complete_xml_has_only_a_problem(tmp_path: Path, data: bytes) -> None:
    report = read(tmp_path, data)
    assert report.tests == ()
    assert (report.problem or "").startswith("its JUnit report cannot be read: ")


_TIMES_TEN = "".join(
    f'<!ENTITY {name} "{f"&{before};" * 10}">'
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BILLION_LAUGHS = f"""<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">{_TIMES_TEN}]>
<testsuite><testcase name="&i;"/></testsuite>"""
OUTSIDE = """<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<testsuite><testcase name="&x;"/></testsuite>"""


@pytest.mark.parametrize("attack", [BILLION_LAUGHS, OUTSIDE], ids=["laughs", "outside"])
@pytest.mark.parametrize("padding", ["", f"<!--{'x' * 2000}-->"], ids=["first", "later"])
def test_entities_are_never_expanded(tmp_path: Path, attack: str, padding: str) -> None:
    assert read(tmp_path, f"{padding}{attack}".encode()).tests == ()


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reading(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    read(folder, b"<testsuite><testcase name='a'>" + data)
    read(folder, data)


@pytest.mark.parametrize(("limit", "most"), [("LARGEST_BYTES", 100), ("MOST_TESTS", 5)])
def test_a_report_that_is_too_large_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(junit, limit, most)
    report = report_of(tmp_path, '<testcase name="a"/>' * 9)
    assert report.tests == ()
    assert report.problem


def test_what_is_not_a_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "absent"):
        report = read_junit(str(tmp_path / name), {})
        assert report.tests == ()
        assert report.problem


# ---- how a report is asked for

PASSES = '<testsuite><testcase name="a"/></testsuite>'
SHELL = ("sh", "-c", f"echo {shlex.quote(PASSES)} >{{junit}}")
WRITE = (sys.executable, "-c", f"import sys; open(sys.argv[1], 'w').write({PASSES!r})", "{junit}")


@pytest.mark.parametrize("name", ["r.xml", "my run's.xml"], ids=["plain", "quoted"])
@pytest.mark.parametrize(
    "argv",
    [PYTEST, ("sh", "-c", f"cd . && {shlex.join(PYTEST)}"), WRITE, SHELL],
    ids=["pytest", "pytest in a script", "program", "script"],
)
def test_a_report_is_written_where_it_is_asked_for(
    tmp_path: Path, argv: tuple[str, ...], name: str
) -> None:
    (tmp_path / "test_a.py").write_text("def test(): pass\n")
    assert reported(tmp_path, argv, name).counts == TestCounts(passed=1)


def test_the_users_own_options_for_pytest_stay(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    assert [*statuses(reported(tmp_path, PYTEST, **{ADDOPTS: "-k test_b"}))] == [
        "test_a.py::test_b"
    ]
