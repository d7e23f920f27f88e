"""A run with tests side by side says what a plain one says: reports, files, hooks, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.child_pytest import run_pytest, run_pytest_with_all, run_python

CONFTEST = """
    import os
    import pytest

    SEEN = []

    def pytest_addoption(parser):
        parser.addoption("--patience", default="much")

    def pytest_configure(config):
        config.addinivalue_line("markers", "slow: takes a while")
        config.addinivalue_line("markers", "first: comes first")

    def pytest_collection_modifyitems(items):
        items.sort(key=lambda item: item.get_closest_marker("first") is None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        setattr(item, "rep_" + report.when, report)
        report.user_properties.append(("phase", report.when))
        return report

    def pytest_runtest_setup(item):
        if item.get_closest_marker("slow") and item.config.getoption("--patience") == "none":
            pytest.skip("too slow for now")

    def pytest_exception_interact(node, call, report):
        SEEN.append(("interact", node.nodeid, report.when))

    def pytest_runtest_logstart(nodeid, location):
        SEEN.append(("start", nodeid))

    def pytest_runtest_logreport(report):
        SEEN.append(("report", report.nodeid, report.when, report.outcome))

    def pytest_runtest_logfinish(nodeid, location):
        SEEN.append(("finish", nodeid))

    def pytest_assertion_pass(item, lineno, orig, expl):
        SEEN.append(("asserted", item.nodeid, lineno))

    def pytest_assertrepr_compare(config, op, left, right):
        if type(left).__name__ == "Money" and op == "==":
            return ["two sums", f"   {left.sum} is not {right.sum}"]

    def pytest_sessionfinish(session, exitstatus):
        SEEN.append(("session", int(exitstatus), session.testscollected, session.testsfailed))
        with open(os.environ["SEEN"], "w") as file:
            for one in SEEN:
                print(*one, file=file)

    def pytest_terminal_summary(terminalreporter):
        terminalreporter.section("of the conftest")
        for key, reports in sorted(terminalreporter.stats.items()):
            nodes = [getattr(one, "nodeid", "") for one in reports]
            terminalreporter.write_line(f"{key}: {nodes}")

    @pytest.fixture
    def outcome(request):
        yield
        print("the call ended as", request.node.rep_call.outcome)

    @pytest.fixture(scope="session", autouse=True)
    def whole(record_testsuite_property):
        record_testsuite_property("build", 7)

    @pytest.fixture(scope="package")
    def packed():
        return "packed"

    @pytest.fixture
    def far_away():
        raise OSError("cannot set up, far away from the test")

    @pytest.fixture
    def far_away_teardown():
        yield
        raise OSError("cannot tear down, far away from the test")

    @pytest.fixture(scope="session")
    def far_away_session():
        raise OSError("cannot set up for the session")
"""
KINDS = """
    import logging
    import sys
    import time
    import warnings
    import pytest

    log = logging.getLogger("kinds")

    class Money:
        def __init__(self, sum):
            self.sum = sum
        def __eq__(self, other):
            return self.sum == other.sum
        __hash__ = None

    @pytest.fixture(scope="module")
    def module_wide():
        yield [1]

    def test_passes(module_wide):
        assert module_wide == [1]

    def test_fails(module_wide):
        print("before the failure")
        print("to the other stream", file=sys.stderr)
        log.warning("of a failure")
        values = {"a": [1, 2, 3], "b": "text"}
        assert values == {"a": [1, 2, 4], "b": "text"}

    def test_money():
        assert Money(1) == Money(2)

    def deeper(depth):
        if depth:
            deeper(depth - 1)
        raise ValueError("deep")

    def test_deep():
        deeper(3)

    def test_chained():
        try:
            {}["missing"]
        except KeyError as error:
            raise RuntimeError("outer") from error

    def test_skips():
        pytest.skip("not here")

    @pytest.mark.skip(reason="not now")
    def test_marked_skip():
        pass

    @pytest.mark.skipif("sys.version_info > (3, 0)", reason="new python")
    def test_skipif():
        pass

    @pytest.mark.xfail(reason="known")
    def test_xfails():
        assert False

    @pytest.mark.xfail(reason="known, but passes")
    def test_xpasses():
        pass

    @pytest.mark.xfail(strict=True, reason="strictly")
    def test_xpasses_strictly():
        pass

    @pytest.mark.xfail(raises=KeyError)
    def test_xfails_otherwise():
        raise ValueError("another")

    @pytest.mark.xfail(run=False, reason="not run")
    def test_not_run():
        raise ValueError

    def test_xfails_inside():
        pytest.xfail("from inside")

    def test_outright():
        pytest.fail("outright", pytrace=False)

    @pytest.fixture
    def bad_setup():
        print("bad setup prints")
        raise OSError("cannot set up")

    @pytest.fixture
    def bad_teardown():
        yield
        print("bad teardown prints")
        raise OSError("cannot tear down")

    def test_setup_error(bad_setup):
        pass

    def test_teardown_error(bad_teardown):
        pass

    def test_fails_and_teardown_error(bad_teardown):
        assert 1 == 2

    def test_far_away(far_away):
        pass

    def test_far_away_teardown(far_away_teardown):
        pass

    def test_far_away_session(far_away_session):
        pass

    def test_asked_far_away(request):
        with pytest.raises(OSError):
            request.getfixturevalue("far_away")
        raise ValueError("and on")

    def test_fixture_missing(no_such_fixture):
        pass

    @pytest.mark.parametrize("number", [1, 2, 3])
    @pytest.mark.parametrize("word", ["a", pytest.param("b", marks=pytest.mark.slow)])
    def test_many(number, word):
        assert (number, word) != (2, "b")

    def test_warns():
        warnings.warn("look out", UserWarning)
        warnings.warn(DeprecationWarning("old"))

    def test_warns_too():
        warnings.warn("look out", UserWarning)

    @pytest.mark.filterwarnings("error")
    def test_warns_as_error():
        warnings.warn("as an error", UserWarning)

    @pytest.mark.slow
    def test_takes_a_while():
        time.sleep(0.05)

    def test_properties(record_property, record_xml_attribute):
        record_property("key", "value")
        record_xml_attribute("assertions", "9")
        print("with properties")

    def test_logs(caplog):
        log.error("an error is logged")
        assert "logged" in caplog.text

    def test_outcome_seen(outcome):
        assert 0, "for the fixture"

    @pytest.mark.first
    def test_comes_first():
        print("first")

    def test_raises_group():
        raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])

    def test_sys_exit():
        sys.exit(3)

    def test_recursion():
        def again(n):
            return again(n + 1)
        again(0)

    def test_no_memory():
        raise MemoryError("none left")

    class Odd(BaseException):
        pass

    def test_base_exception():
        raise Odd("a base exception")

    def test_returns():
        return 5

    def test_tmp(tmp_path, tmp_path_factory):
        (tmp_path / "file").write_text("x")
        assert tmp_path_factory.mktemp("other").is_dir()

    def test_capsys(capsys):
        print("in capsys")
        assert capsys.readouterr().out == "in capsys\\n"
"""
CLASSES = """
    import unittest
    import pytest

    class TestPlain:
        def setup_method(self, method):
            self.method = method.__name__

        def test_one(self):
            assert self.method == "test_one"

        def test_two(self, packed):
            assert self.method == "test_one"

    class TestUnit(unittest.TestCase):
        def setUp(self):
            self.value = 5
            self.addCleanup(print, "cleaned up")

        def test_equal(self):
            self.assertEqual(self.value, 5)

        def test_unequal(self):
            self.assertEqual([self.value], [6], "a message")

        @unittest.skip("unittest's own")
        def test_skipped(self):
            pass

        @unittest.expectedFailure
        def test_expected(self):
            self.fail()

        @unittest.expectedFailure
        def test_unexpected(self):
            pass

        def test_skips_inside(self):
            self.skipTest("inside")

    class TestWithClass(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            cls.x = 1

        def test_x(self):
            assert self.x == 1

    class TestThatCannotBe:
        def __init__(self):
            pass

        def test_never(self):
            pass
"""
INNER_CONFTEST = """
    import pytest

    @pytest.fixture(autouse=True)
    def around():
        print("around, before")
        yield
        print("around, after")

    def pytest_runtest_setup(item):
        print("the inner hook sees", item.name)

    def pytest_runtest_teardown(item):
        print("the inner hook leaves", item.name)

    def pytest_runtest_makereport(item, call):
        if call.excinfo is not None and call.excinfo.errisinstance(LookupError):
            report = pytest.TestReport.from_item_and_call(item, call)
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 1, "Skipped: lookups are skipped here")
            return report
"""
INNER = """
    def test_inner():
        print("in it")

    def test_inner_fails(packed):
        assert packed == "other"

    def test_lookup():
        raise LookupError("of the inner folder")
"""
DOCS = '''
    """
    >>> 1 + 1
    2
    """

    def wrong():
        """
        >>> 1 + 2
        4
        """
'''
INI = """
    [pytest]
    asyncio_default_fixture_loop_scope = function
    enable_assertion_pass_hook = true
    junit_logging = all
"""
SUITE = {
    "conftest.py": CONFTEST,
    "test_kinds.py": KINDS,
    "test_classes.py": CLASSES,
    "inner/__init__.py": "",
    "inner/conftest.py": INNER_CONFTEST,
    "inner/test_inner.py": INNER,
    "docs.py": DOCS,
    "pytest.ini": INI,
}


def write_all(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def variables_in(folder: Path, more: dict[str, str]) -> dict[str, str]:
    return {"COLUMNS": "120", "SEEN": str(folder / "seen.txt"), **more}


def run_lightly(
    folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return run_pytest(folder, *arguments, **variables_in(folder, variables))


def settled(text: str) -> str:
    """Without what differs from run to run: addresses, times, depths of stacks, places."""
    for pattern, word in (
        (r"0x[0-9a-f]+", "0x"),
        (r"\b\d+\.\d+s\b", "TIME"),
        (r"={3,}", "==="),  # Rules are as long as the times in them leave room.
        (r"\bn = \d+\b", "n = DEPTH"),
        (r"stack frames out of \d+", "stack frames out of DEPTH"),
        (r" +\[ *\d+%\]", ""),
        (r"(?m)^parallel \d+: .*\n", ""),
        # On a slow machine.
        (r"(?m)^\d+ tests? that failed beside others: .*\n", ""),
        (r'  File "[^"]*/(?:_pytest|pluggy|pytest_timeout|pytest_plugin)\b.*\n(?: {4}.*\n)+', ""),
    ):
        text = re.sub(pattern, word, text)
    return text


def part(text: str, begin: str, end: str) -> list[str]:
    """The lines between two headings."""
    found = re.search(rf"^=+ {begin} =+\n(.*?)^=+ {end}", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no {begin} before {end} in:\n{text}"
    return found[1].splitlines()


def written(junit: Path) -> list[str]:
    """All that a file of junit says, but for times."""
    lines = []
    for element in ET.parse(junit).iter():
        kept = {
            key: value
            for key, value in element.attrib.items()
            if key not in ("time", "timestamp", "hostname")
        }
        lines.append(f"{element.tag} {kept} timed={'time' in element.attrib}")
        lines += settled(element.text or "").splitlines()
    return lines


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Sequence[tuple[Path, str, int]]:
    """One suite with everything in it, plain and side by side: folder, output and exit code."""
    found = []
    for asked in ((), ("--parallel", "6")):
        folder = tmp_path_factory.mktemp("suite") / "suite"
        write_all(folder, SUITE)
        flags = ("-v", "-rA", "--durations=0", "-vv", "--doctest-modules", "--junitxml=junit.xml")
        ran = run_pytest_with_all(folder, *flags, *asked, **variables_in(folder, {}))
        text = settled(ran.stdout + ran.stderr).replace(str(folder), "FOLDER")
        found.append((folder, text, ran.returncode))
    return found


def test_all_kinds_of_tests_are_told_as_in_a_plain_run(
    runs: Sequence[tuple[Path, str, int]],
) -> None:
    """Exit code, counts, each test's word, tracebacks, output, warnings and all summaries."""
    (_, plain, plain_code), (_, parallel, parallel_code) = runs
    assert plain_code == parallel_code == 1
    assert "INTERNALERROR" not in parallel
    plain_words, words = (
        [line for line in text.splitlines() if re.match(r"\S+::\S+ [A-Z]+", line)]
        for text in (plain, parallel)
    )
    assert len(words) > 50
    assert sorted(words) == sorted(plain_words)
    for begin, end in (
        ("ERRORS", "FAILURES"),
        ("FAILURES", "warnings summary"),
        ("warnings summary", "PASSES"),
        ("PASSES", "(?:slowest durations|- generated xml)"),
        ("of the conftest", "slowest durations"),
        ("short test summary info", r"\d+ failed"),
    ):
        assert part(parallel, begin, end) == part(plain, begin, end)
    assert parallel.splitlines()[-1] == plain.splitlines()[-1]
    timed = [set(re.findall(r"TIME (\w+ +\S+::\S+)", text)) for text in (plain, parallel)]
    assert len(timed[0]) > 100
    assert timed[0] == timed[1]


def test_files_and_hooks_are_told_as_in_a_plain_run(runs: Sequence[tuple[Path, str, int]]) -> None:
    """junit's file in the same order, with properties and output; each hook for each test."""
    (plain, _, _), (parallel, _, _) = runs
    texts = [
        "\n".join(written(folder / "junit.xml")).replace(str(folder), "FOLDER")
        for folder in (plain, parallel)
    ]
    assert "{'name': 'build', 'value': '7'}" in texts[0]
    assert "{'name': 'key', 'value': 'value'}" in texts[0]
    assert "of a failure" in texts[0]
    assert texts[0].splitlines() == texts[1].splitlines()
    seen, plain_seen = ((one / "seen.txt").read_text().splitlines() for one in (parallel, plain))
    only_in_workers = ("interact", "asserted")
    assert sorted(seen) == sorted(
        line for line in plain_seen if not line.startswith(only_in_workers)
    )
    _are_told_in_order(seen)


def _are_told_in_order(seen: Sequence[str]) -> None:
    """For each test: one start, its reports, one finish."""
    by_node: dict[str, list[str]] = {}
    for line in seen:
        kind, name = line.split(" ")[:2]
        if kind in ("start", "report", "finish"):
            by_node.setdefault(name, []).append(kind)
    for kinds in by_node.values():
        assert kinds[0] == "start"
        assert set(kinds[1:-1]) == {"report"}
        assert kinds[-1] == "finish"


def test_a_failed_fixture_is_told_without_frames_of_the_plugin(
    runs: Sequence[tuple[Path, str, int]],
) -> None:
    """It stands around hooks and fixtures, and is nothing that a user has to read."""
    _, parallel, _ = runs[1]
    assert "cannot tear down, far away from the test" in parallel
    assert "pytest_plugin" not in parallel
    assert "entries are hidden" not in parallel


OPTIONS = (
    "--tb=line -q -k test_fails",
    "--tb=short --show-capture=log -k 'fails or far'",
    "--tb=native -q -k test_deep",
    "-l --strict-markers -k test_deep",
    "--tb=no -q -m slow",
    "--tb=no -q --patience=none -rs -W error::DeprecationWarning -k 'many or while or warns'",
    "--tb=no -q --deselect test_kinds.py::test_fails test_kinds.py -k 'fails or money'",
    "-q test_kinds.py::test_many[a-1] test_classes.py::TestPlain::test_one",
    "--co -q",
    "--tb=no -q --runxfail -k xfail",
    "--tb=short -q --capture=sys -k test_fails",
    "--tb=short -q --log-level=ERROR -k 'test_fails or logs'",
    "-p no:terminal -k test_money",
    "-q --basetemp=BASE -k test_tmp",
    "-q -k nothing_of_the_kind",
    "-q /nonexistent",
    "--tb=no -q -o cache_dir=CACHE -k 'many or test_fails or test_deep'",
    "--tb=no -q --lf -o cache_dir=CACHE",
    "--tb=no -q --ff --nf -o cache_dir=CACHE --co",
    "--tb=no -q --sw -o cache_dir=CACHE test_classes.py",
    "--tb=no -q --sw -o cache_dir=CACHE test_classes.py",
    "--tb=no -q --setup-show -k test_inner",
)
DRIVER = """
    import contextlib, io, json, shlex, sys
    import pytest

    told = []
    for options in json.loads(sys.argv[1]):
        arguments = shlex.split(options)
        if not any("cache_dir" in one for one in arguments):
            arguments += ["-p", "no:cacheprovider"]
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = pytest.main([*arguments, *sys.argv[2:]])
        told.append([int(code), out.getvalue()])
    print("TOLD", json.dumps(told))
"""


def test_options_do_the_same_as_in_a_plain_run(tmp_path: Path) -> None:
    """Of choosing, showing, capturing and remembering; all in one process, one after another. On a
    slow machine, a second run of what failed would be announced."""
    told = []
    for name, asked in (("plain", ()), ("parallel", ("--parallel", "6", "--no-recheck"))):
        folder = tmp_path / name / "suite"
        write_all(folder, {**SUITE, "driver.py": DRIVER})
        options = [
            one.replace("CACHE", str(folder / "cache")).replace("BASE", str(folder / "base"))
            for one in OPTIONS
        ]
        ran = run_python(
            folder,
            "driver.py",
            json.dumps(options),
            "-p",
            "paraval.pytest_plugin.plugin",
            *asked,
            **variables_in(folder, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}),
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith("TOLD ")]
        assert lines, ran.stdout + ran.stderr
        told.append(
            [
                (code, _without_dots(text).replace(str(folder), "FOLDER"))
                for code, text in json.loads(lines[0].removeprefix("TOLD "))
            ]
        )
    for options, plain, parallel in zip(OPTIONS, *told, strict=True):
        assert (options, parallel) == (options, plain)
    codes = dict(zip(OPTIONS, (code for code, _ in told[1]), strict=True))
    assert codes["-p no:terminal -k test_money"] == 1
    assert codes["-q -k nothing_of_the_kind"] == 5
    assert codes["-q /nonexistent"] == 4
    assert [re.findall(r"\d+ failed", text) for _, text in told[1][-3:-1]] == [["1 failed"]] * 2


def _without_dots(text: str) -> str:
    """Letters of results come in the order in which tests end."""
    dots = r"^(\S+\.py )?[.FEsxXw]+$\n?"
    note = r"^not in parallel: .*\n"
    return re.sub(f"{dots}|{note}", "", settled(text), flags=re.MULTILINE)


# ---- what asks for it, and what does not

LISTING = """
    import sys
    import pytest

    def pytest_collection_finish(session):
        manager = session.config.pluginmanager
        names = sorted(str(name) for name, one in manager.list_name_plugin() if one is not None)
        print("PLUGINS", *(name for name in names if "paraval" in name))
        print("MODULES", *sorted(name for name in sys.modules if name.startswith("paraval")))
"""
QUICK = """
    def test_one(): pass
    def test_two(): pass
"""


def listed(ran: subprocess.CompletedProcess[str], word: str) -> list[str]:
    lines = [line for line in ran.stdout.splitlines() if line.startswith(word)]
    assert len(lines) == 1, ran.stdout + ran.stderr
    return lines[0].split()[1:]


def test_without_being_asked_nothing_of_it_is_there_but_the_entry(tmp_path: Path) -> None:
    """0 and 1 are plain pytest, too, whatever the ini file says."""
    write_all(
        tmp_path,
        {"conftest.py": LISTING, "test_q.py": QUICK, "pytest.ini": "[pytest]\nparallel = 4\n"},
    )
    plain = run_lightly(tmp_path, "-s", "--parallel", "1")
    assert listed(plain, "PLUGINS") == ["paraval-workers", "paraval.pytest_plugin.plugin"]
    assert set(listed(plain, "MODULES")) == {
        "paraval",
        "paraval.pytest_plugin",
        "paraval.pytest_plugin.plugin",
        "paraval.pytest_plugin.options",
        "paraval.pytest_plugin.models",
        "paraval.pytest_plugin.models.spent",
    }
    assert "parallel:" not in plain.stdout
    assert "2 passed" in plain.stdout
    by_variable = run_lightly(tmp_path, "-s", PARALLEL_WORKERS="0")
    assert listed(by_variable, "PLUGINS") == listed(plain, "PLUGINS")
    by_ini = run_lightly(tmp_path, "-s")
    assert "parallel 4: " in by_ini.stdout
    assert "paraval-parallel" in listed(by_ini, "PLUGINS")


def test_what_cannot_be_meant_is_an_error_of_usage(tmp_path: Path) -> None:
    """By the name of what was said wrong; and nothing runs."""
    write_all(tmp_path, {"test_q.py": QUICK})
    for flags, variables, words in (
        (["--parallel", "many"], {}, "--parallel: expected a number of workers from 0"),
        (["--parallel=-2"], {}, "got '-2'"),
        (["--parallel", "test_q.py"], {}, "(before a path, write --parallel=auto)"),
        (["--models"], {}, "--models: expected model names"),
        ([], {"PARALLEL_WORKERS": "2.5"}, "PARALLEL_WORKERS: expected a number of workers"),
    ):
        ran = run_lightly(tmp_path, *flags, **variables)
        assert ran.returncode == 4
        assert words in ran.stderr
        assert "passed" not in ran.stdout
        assert "Traceback" not in ran.stderr


def test_flags_and_fixtures_of_the_same_name_stay_the_users_own(tmp_path: Path) -> None:
    """A pytest that worked goes on to work once the plugin is installed."""
    write_all(
        tmp_path,
        {
            "conftest.py": """
                import pytest

                def pytest_addoption(parser):
                    parser.addoption("--parallel", action="store_true", help="of the user")
                    parser.addoption("--models", default="none", help="of the user")
                    parser.addini("parallel", "of the user", type="bool", default=False)

                @pytest.fixture(scope="session", params=["a", "b"])
                def model(request):
                    return request.param

                @pytest.fixture
                def usage():
                    return "mine"
            """,
            "test_own.py": """
                def test_own(model, usage, request):
                    assert model in "ab" and usage == "mine"
                    assert request.config.getoption("--parallel") is True
                    assert request.config.getoption("models") == "x"
                    assert request.config.getini("parallel") is True
            """,
            "pytest.ini": "[pytest]\nparallel = true\n",
        },
    )
    plain = run_lightly(tmp_path, "--parallel", "--models=x")
    assert "2 passed" in plain.stdout, plain.stdout + plain.stderr
    assert " concurrent" not in plain.stdout
    asked = run_lightly(tmp_path, "--parallel", "--models=x", PARALLEL_WORKERS="3")
    assert "2 passed" in asked.stdout, asked.stdout + asked.stderr
    assert "parallel 3: " in asked.stdout


def test_a_plugin_that_came_first_keeps_its_flags_and_keys(tmp_path: Path) -> None:
    write_all(
        tmp_path,
        {
            "came_first.py": """
                def pytest_addoption(parser):
                    parser.getgroup("first").addoption("--models", type=int, help="of the first")
                    parser.addini("parallel", "of the first", type="args", default=["7"])
            """,
            "test_first.py": """
                def test_first(request):
                    assert request.config.getoption("--models") == 5
                    assert request.config.getini("parallel") == ["7"]
            """,
        },
    )
    plugins = ("-p", "came_first", "-p", "paraval.pytest_plugin.plugin", "-p", "no:cacheprovider")
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = run_python(tmp_path, "-m", "pytest", *plugins, "--models=5", **variables)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert " concurrent" not in ran.stdout


def test_help_and_errors_of_collection_are_as_ever(tmp_path: Path) -> None:
    write_all(tmp_path, {"test_q.py": QUICK, "test_bad.py": "import no_such_module_at_all"})
    told = run_lightly(tmp_path, "--help", "--parallel", "2").stdout
    assert "parallel tests (paraval):" in told
    assert "--parallel=[N]" in told
    broken = run_lightly(tmp_path, "--parallel")
    assert "parallel auto: " in broken.stdout
    assert broken.returncode == 2
    assert "Interrupted: 1 error during collection" in broken.stdout
    anyway = run_lightly(tmp_path, "--parallel", "2", "--continue-on-collection-errors")
    assert anyway.returncode == 1
    assert "2 passed, 1 error" in anyway.stdout
