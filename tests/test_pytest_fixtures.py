"""Fixtures of tests that run in many threads at once: who sets up what, how often, and when.

Suites of pytest are run in a child process, in threads (see `in_threads`) and plainly.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from paraval.pytest_plugin.fixtures.sharing import FixtureParameter, asked_by

HERE = Path(__file__).parent
DIARY = """
    import json, threading, time, random
    from pathlib import Path
    lock = threading.Lock()
    lines = []
    def note(*words):
        with lock:
            lines.append(" ".join(map(str, words)))
    def pytest_unconfigure(config):
        Path("diary.json").write_text(json.dumps(lines))
"""


class Suite:
    """A suite of tests in a folder, and what its runs came to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = ""
        self.diary: list[str] = []
        self.write("diary.py", DIARY)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))

    def run(self, *flags: str) -> dict[str, str]:
        """How each test ended, by its name."""
        command = [sys.executable, "-m", "pytest", "-s", "-rA", "-p", "diary", *flags]
        # The plugins of this project's own tests have no part in it.
        plain = ["-p", "no:cacheprovider", "-p", "no:logging", "-p", "no:warnings"]
        environment = os.environ | {
            "PYTHONWARNINGS": "ignore",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(HERE)]),
        }
        ended = subprocess.run(
            [*command, *plain],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.output = ended.stdout + ended.stderr
        assert "INTERNALERROR" not in self.output, self.output
        self.diary = json.loads((self.folder / "diary.json").read_text())
        found = re.findall(
            r"^(PASSED|FAILED|ERROR|XFAIL)(?: \(.*\))? (\S+)", self.output, re.MULTILINE
        )
        return {name.rpartition("::")[2]: end for end, name in found}

    def in_threads(self, *flags: str) -> dict[str, str]:
        return self.run("-p", "in_threads", *flags)

    def at(self, line: str) -> int:
        """When something happened that happens once."""
        assert self.diary.count(line) == 1, (line, self.diary, self.output)
        return self.diary.index(line)

    def tests(self, word: str) -> list[int]:
        """When the tests with a word in their line ran."""
        return [n for n, line in enumerate(self.diary) if line.startswith("test") and word in line]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


# ---- who sets up what, and when

HAMMER = """
    import random, time
    import pytest
    from diary import note

    def setup_module(): note("up xunit", __name__)
    def teardown_module(): note("down xunit", __name__)

    @pytest.fixture(scope="module")
    def database(server, package, request):
        note("up database", request.node.name)
        time.sleep(random.random() / 500)
        yield server + 1
        note("down database", request.node.name)

    class Base:
        seen = None
        @classmethod
        def setup_class(cls): note("up class", __name__, cls.__name__); cls.seen = cls.__name__
        @classmethod
        def teardown_class(cls): note("down class", __name__, cls.__name__)
        def setup_method(self): self.mine = []

        @pytest.mark.parametrize("number", range(10))
        def test_it(self, number, database, table, row):
            assert self.mine == [] and self.seen == type(self).__name__
            self.mine.append(number)
            assert (database, table, row) == (2, type(self).__name__, [table])
            row.append(number)
            time.sleep(random.random() / 1000)
            note("test", __name__, type(self).__name__, number)

    class TestOne(Base): pass
    class TestTwo(Base): pass
    class TestThree(Base): pass
    class TestFour(Base): pass
    class TestFive(Base): pass
"""
HAMMER_CONFTEST = """
    import gc, random, time, weakref
    import pytest
    from diary import note

    class Row(list): __hash__ = object.__hash__
    rows = weakref.WeakSet()

    @pytest.fixture(scope="session")
    def server():
        note("up server")
        time.sleep(0.05)
        yield 1
        note("down server")

    @pytest.fixture(scope="package")
    def package(server, request):
        note("up package", request.node.name)
        yield
        note("down package", request.node.name)

    @pytest.fixture(scope="class")
    def table(request, database):
        note("up table", request.module.__name__, request.cls.__name__)
        yield request.cls.__name__
        note("down table", request.module.__name__, request.cls.__name__)

    @pytest.fixture
    def row(table):
        row = Row([table])
        rows.add(row)
        return row

    @pytest.fixture(autouse=True)
    def every(request):
        note("up every")
        request.addfinalizer(lambda: note("down every"))

    def pytest_sessionfinish(session):
        gc.collect()
        note("rows", len(rows), "definitions", len({id(i._fixtureinfo) for i in session.items}))
"""


def test_two_hundred_tests_in_sixteen_threads_share_what_pytest_would_share(suite: Suite) -> None:
    """Each shared fixture once, before its first and after its last test, inside what it needs."""
    suite.write("conftest.py", HAMMER_CONFTEST)
    for name in ("one/test_a", "one/inner/test_b", "two/test_c", "two/test_d"):
        for folder in list(Path(name).parents)[:-1]:
            suite.write(f"{folder}/__init__.py", "")
        suite.write(f"{name}.py", HAMMER)
    suite.write(
        "one/inner/conftest.py",
        """
        import pytest
        from diary import note
        @pytest.fixture(scope="package")
        def package(package, request):
            note("up inner package", request.node.name)
            yield
            note("down inner package", request.node.name)
        """,
    )
    ends = suite.in_threads()
    assert Counter(ends.values()) == {"PASSED": 10}, suite.output  # the names are the same
    assert "200 passed" in suite.output
    assert len(suite.tests("test")) == 200
    assert suite.diary.count("up every") == suite.diary.count("down every") == 200
    assert suite.at("up server") < min(suite.tests("test"))
    assert suite.at("down server") > max(suite.tests("test"))
    for module in ("one.test_a", "one.inner.test_b", "two.test_c", "two.test_d"):
        name = module.replace(".", "/") + ".py"
        found = [line for line in suite.diary if line.startswith("up database")]
        assert len(found) == 4
        database = next(line for line in found if line.endswith(Path(name).name))[3:]
        up, down = suite.at(f"up {database}"), suite.at(f"down {database}")
        assert suite.at(f"up xunit {module}") < min(suite.tests(module))
        assert suite.at(f"down xunit {module}") > max(suite.tests(module))
        assert suite.at("up server") < up < min(suite.tests(module))
        assert suite.at("down server") > down > max(suite.tests(module))
        for cls in ("TestOne", "TestTwo", "TestThree", "TestFour", "TestFive"):
            tests = suite.tests(f"{module} {cls} ")
            assert len(tests) == 10
            table, kind = f"table {module} {cls}", f"class {module} {cls}"
            assert up < suite.at(f"up {table}") < min(tests)
            assert max(tests) < suite.at(f"down {table}") < down
            assert suite.at(f"up {kind}") < min(tests) < max(tests) < suite.at(f"down {kind}")
    # The outer one is of a conftest above all packages; the inner one overrides it, and needs it.
    packages = [line.partition("package")[0] for line in suite.diary if "package" in line]
    assert packages == ["up ", "up inner ", "down inner ", "down "]
    # Nothing of a test is kept once it is done, and its definitions are pytest's own again.
    assert [line for line in suite.diary if "rows" in line] == ["rows 0 definitions 20"]


PARAMETERS_CONFTEST = """
    import pytest
    from diary import note

    @pytest.fixture(scope="session", params=["haiku", "qwen", "opus"])
    def model(request):
        note("up model", request.param)
        yield request.param
        note("down model", request.param)

    @pytest.fixture(scope="session")
    def client(model):
        note("up client", model)
        yield f"client of {model}"
        note("down client", model)

    @pytest.fixture(scope="module")
    def agent(request):
        model = request.getfixturevalue("model")
        note("up agent", model, request.module.__name__)
        yield f"agent of {model}"
        note("down agent", model, request.module.__name__)

    @pytest.fixture(scope="session")
    def machine(request):
        note("up machine", request.config.rootpath.name)
        request.addfinalizer(lambda: note("down machine"))
"""
PARAMETERS = """
    import time
    import pytest
    from diary import note

    @pytest.fixture(scope="class")
    def lonely(request):
        return [request.node.name]

    @pytest.fixture
    def basket(client):
        return [client]

    @pytest.mark.parametrize("number", range(4))
    def test_models(number, model, client, agent, machine, basket, lonely, request):
        assert client == f"client of {model}" and agent == f"agent of {model}"
        assert basket == [client] and lonely == [request.node.name]
        lonely.append(number)
        basket.append(number)
        time.sleep(0.002 if model == "haiku" else 0.05)
        note("test", model, number)

    def test_dynamic(request, model):
        assert request.getfixturevalue("agent") == f"agent of {model}"
        basket = request.getfixturevalue("basket")
        assert basket is request.getfixturevalue("basket") == [f"client of {model}"]
        note("test", model, "dynamic")

    @pytest.fixture(scope="module")
    def store(request):
        note("up store", request.param)
        yield request.param
        note("down store", request.param)

    @pytest.fixture(scope="module")
    def table(store):
        return ["table in", store]

    @pytest.mark.parametrize("store", ["here", {"far": "away"}], indirect=True, ids=str)
    def test_indirect(store, table):
        assert table == ["table in", store]

    @pytest.mark.parametrize("store", [float("nan"), "here"], indirect=True, ids=str)
    def test_indirect_elsewhere(store, table):
        assert table[1] is store

    @pytest.mark.parametrize("store", ["own"], indirect=True, scope="function")
    @pytest.mark.parametrize("number", range(3))
    def test_one_store_for_each(store, table, number):
        assert table == ["table in", "own"]
        table.append(number)

    @pytest.mark.parametrize("place", ["a", "b"], scope="module")
    @pytest.mark.parametrize("number", range(3))
    def test_direct(place, number, request):
        assert request.node.name == f"test_direct[{number}-{place}]"

    class TestOverridden:
        @pytest.fixture(scope="class")
        def client(self, client, flavour):
            note("up flavoured", client, flavour)
            return f"{flavour} {client}"

        @pytest.fixture(scope="class", params=["sweet", "sour"])
        def flavour(self, request):
            return request.param

        def test_it(self, client, model, flavour):
            assert client == f"{flavour} client of {model}"

    class TestRenamed:
        @pytest.fixture
        def basket(self, basket, request):
            return [*basket, *request.getfixturevalue("basket")]

        def test_it(self, basket, model):
            assert basket == [f"client of {model}"] * 2

    def test_missing(request):
        with pytest.raises(pytest.FixtureLookupError):
            request.getfixturevalue("nothing")
"""


def test_tests_with_the_same_parameters_share_a_value_and_others_have_another(suite: Suite) -> None:
    """Once for each combination, dependents inside what they need, gone when nobody needs it."""
    suite.write("conftest.py", PARAMETERS_CONFTEST)
    suite.write("test_parameters.py", PARAMETERS)
    # With a second module, plain pytest tears down the first between models, and so it does not
    # keep the agent of one model for the next.
    suite.write("test_more.py", "def test_more(model, agent): assert agent.endswith(model)")
    plain = suite.run()
    assert set(plain.values()) == {"PASSED"}, suite.output
    assert suite.in_threads() == plain, suite.output
    for model in ("haiku", "qwen", "opus"):
        tests = suite.tests(f" {model} ")
        assert len(tests) == 5
        up, down = suite.at(f"up model {model}"), suite.at(f"down model {model}")
        for name in (
            f"client {model}",
            f"agent {model} test_more",
            f"agent {model} test_parameters",
        ):
            assert up < suite.at(f"up {name}") < suite.at(f"down {name}") < down
        assert up < min(tests) < max(tests) < down
    assert suite.at("down model haiku") < max(suite.tests("opus"))
    assert suite.at("up machine " + Path(suite.folder).name) < suite.at("down machine")
    assert suite.diary.count("up store here") == suite.diary.count("down store here") == 1
    assert suite.diary.count("up store own") == suite.diary.count("down store own") == 3
    assert sum(line.startswith("up flavoured") for line in suite.diary) == 6
    assert suite.in_threads("--counts-unknown") == plain
    assert suite.at("down model haiku") > max(suite.tests("opus"))


def test_tests_that_run_alone_share_with_those_that_run_beside_others(suite: Suite) -> None:
    """In the parallel loop itself."""
    suite.write(
        "test_both.py",
        """
        import threading
        import pytest
        from diary import note

        HOME = threading.get_ident()

        @pytest.fixture(scope="module")
        def database():
            note("up database")
            yield []
            note("down database")

        @pytest.mark.parametrize("number", range(8))
        def test_beside(database, number):
            note("test beside", threading.get_ident() == HOME)

        @pytest.mark.serial
        @pytest.mark.parametrize("number", range(2))
        def test_alone(database, number):
            note("test alone", threading.get_ident() == HOME)
        """,
    )
    ends = suite.run("-p", "paraval.pytest_plugin.plugin", "--parallel", "4")
    assert "10 passed" in suite.output, suite.output
    assert len(ends) == 10
    assert suite.diary.count("test beside False") == 8
    assert suite.diary.count("test alone True") == 2
    assert suite.at("up database") < min(suite.tests("")) < max(suite.tests(""))
    assert max(suite.tests("")) < suite.at("down database")


# ---- what fails

FAILURES = """
    import time
    import pytest
    from diary import note

    class OddError(Exception):
        def __init__(self, code): super().__init__(f"code {code}")

    @pytest.fixture(scope="session")
    def broken():
        note("up broken")
        time.sleep(0.02)
        raise OddError(7)

    @pytest.fixture(scope="module")
    def skips():
        note("up skips")
        pytest.skip("not on this machine")

    @pytest.mark.parametrize("number", range(6))
    def test_errors(broken, number): pass

    @pytest.mark.parametrize("number", range(3))
    def test_skips(skips, number): pass

    @pytest.mark.skip(reason="by its mark")
    @pytest.mark.parametrize("number", range(3))
    def test_never(number): pass

    @pytest.fixture
    def two_ends(request):
        request.addfinalizer(lambda: 1 / 0)
        request.addfinalizer(lambda: [][0])

    def test_ends_badly(two_ends): pass

    class TestEndsBadly:
        @pytest.fixture(scope="class")
        def shared(self, request):
            yield
            note("down shared")
            raise RuntimeError("no end")

        @pytest.fixture(scope="class")
        def exits(self):
            yield
            raise SystemExit(3)

        @pytest.mark.parametrize("number", range(3))
        def test_shared(self, shared, number): pass

        def test_exits(self, exits, shared): pass

    class TestBetween:
        def setup_method(self): raise ValueError("not today")
        def teardown_method(self): note("teardown of what was not set up")
        def test_method(self): pass

    @pytest.fixture(scope="module", autouse=True)
    def whole(request):
        yield
        note("down whole")
"""


def test_what_fails_for_all_fails_for_each_and_is_tried_once(suite: Suite) -> None:
    """Reports as plain pytest's; what fails as it ends is told once, and keeps nothing back."""
    suite.write("test_failures.py", FAILURES)
    plain, counted = suite.run(), summary(suite)
    # Which test is the last of its class is a matter of luck.
    last = r"(test_shared\[\d\]|test_exits)$"
    threads = suite.in_threads()
    assert summary(suite) == counted, suite.output
    assert without(threads, last) == without(plain, last)
    for event in ("up broken", "up skips", "down shared", "down whole"):
        suite.at(event)
    assert "teardown of what was not set up" not in suite.diary
    assert suite.output.count("test_failures.py:13: OddError") == 6
    assert suite.output.count("\nE       test_failures.OddError: code 7\n") == 6
    assert 'errors while tearing down fixture "two_ends"' in suite.output


def summary(suite: Suite) -> str:
    return suite.output.strip().rpartition("\n")[2].partition(" in ")[0]


def without(ends: dict[str, str], pattern: str) -> dict[str, str]:
    return {name: end for name, end in ends.items() if not re.search(pattern, name)}


# ---- tests that do not run, or never end

STRAYS = """
    import threading
    import pytest
    from diary import note

    @pytest.fixture(scope="session")
    def server():
        note("up server")
        yield
        note("down server")
        raise OSError("the server is gone")

    @pytest.fixture(scope="module")
    def database(server):
        note("up database")
        yield
        note("down database")

    @pytest.fixture
    def row(server):
        yield
        note("down row")

    @pytest.fixture(scope="module")
    def stuck():
        note("up stuck")
        threading.Event().wait()

    @pytest.mark.forgotten
    def test_forgotten(database): pass

    @pytest.mark.twice
    def test_twice(database, server): note("test twice")

    @pytest.mark.hangs
    def test_hangs(row, database):
        note("test hangs")
        threading.Event().wait()

    @pytest.mark.hangs
    def test_builds(stuck): pass

    @pytest.mark.parametrize("number", range(3))
    def test_waits(stuck, number): pass
"""


def test_tests_that_never_end_or_never_run_hold_nobody_up(suite: Suite) -> None:
    """The fixture that hung fails those who wait for it; the rest is torn down, once, in order."""
    suite.write("test_strays.py", STRAYS)
    ends = suite.in_threads("-k", "not waits or waits")
    assert ends["test_twice"] == "PASSED"
    assert [ends[f"test_waits[{number}]"] for number in range(3)] == ["ERROR"] * 3
    assert "setup of fixture 'stuck' hung in test_strays.py::test_builds" in suite.output
    assert suite.diary.count("test twice") == 2
    assert suite.at("up server") < suite.at("up database") < suite.at("down database")
    assert suite.at("down database") < suite.at("down server")
    assert suite.diary.count("up stuck") == 1
    assert "down row" not in suite.diary
    # Nobody was the last; what fails then is still told, as the error of a test.
    assert suite.output.count("OSError: the server is gone") >= 1
    assert "1 passed, 4 errors" in suite.output


# ---- by themselves


def plainly(request: pytest.FixtureRequest) -> object:
    request.addfinalizer(print)
    return request.config


def by_name(request: pytest.FixtureRequest) -> object:
    return [request.getfixturevalue("model") for _ in range(3)], request.getfixturevalue("client")


def by_any_name(request: pytest.FixtureRequest) -> object:
    return request.getfixturevalue(request.node.name)


def handing_on(request: pytest.FixtureRequest) -> object:
    return plainly(request)


def giving(request: pytest.FixtureRequest) -> object:
    return request


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (plainly, frozenset()),
        (by_name, frozenset({"model", "client"})),
        (by_any_name, None),
        (handing_on, None),
        (giving, None),
        (len, None),
    ],
)
def test_the_fixtures_that_code_asks_for_by_name_are_known(
    function: Callable[..., object], names: frozenset[str] | None
) -> None:
    assert asked_by(function) == names


def test_parameters_are_the_same_if_a_fixture_would_keep_its_value() -> None:
    one, other = ["a list"], ["a list"]
    nan = float("nan")
    same: Sequence[tuple[object, object]] = [("a", "a"), (one, one), (nan, nan), ((1, 2), (1, 2))]
    different: Sequence[tuple[object, object]] = [("a", "b"), (1, True), (one, other), (1, 1.0)]
    assert all(FixtureParameter("x", a) == FixtureParameter("x", b) for a, b in same)
    assert all(hash(FixtureParameter("x", a)) == hash(FixtureParameter("x", b)) for a, b in same)
    assert not any(FixtureParameter("x", a) == FixtureParameter("x", b) for a, b in different)
    assert FixtureParameter("x", 1) != FixtureParameter("y", 1)
