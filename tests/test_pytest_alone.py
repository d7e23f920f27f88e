"""What cannot run beside others is found before anything runs, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.child_pytest import run_pytest

DRIVER = """
import json, time
from paraval.pytest_plugin.exclusive.scan import why_alone

def pytest_collection_finish(session):
    began = time.perf_counter()
    reasons = {item.nodeid.rpartition("/")[2]: why_alone(item) for item in session.items}
    seconds = time.perf_counter() - began
    with open("reasons.json", "w") as file:
        json.dump({"reasons": reasons, "seconds": seconds}, file)
"""

PRODUCT = """
from contextlib import contextmanager

class Settings:
    is_active = True

SETTINGS = Settings()
LIMITS = {}
SHELLS = {}
SEEN = []
retries = 3
_client = None

def set_active(is_active):
    SETTINGS.is_active = is_active

def reset_retries():
    global retries
    retries = 3

@contextmanager
def override_limits(**limits):
    for name, value in limits.items():
        LIMITS[name] = value
    yield

def get_client():
    global _client
    if _client is None:
        _client = Settings()
    return _client

def set_up(settings):
    settings.is_active = True
    return settings
"""

CONFTEST = """
import os
import product
import pytest

@pytest.fixture
def env(monkeypatch):
    monkeypatch.setenv("A", "1")
    monkeypatch.delenv("B", raising=False)

@pytest.fixture
def patched(monkeypatch):
    monkeypatch.setattr(product, "retries", 1)

@pytest.fixture
def faked(mocker):
    return mocker.Mock()

@pytest.fixture
def folder(tmp_path):
    before = os.getcwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)

@pytest.fixture(scope="module")
def module_env():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("B", "1")
        yield

@pytest.fixture(scope="session")
def session_env():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("C", "1")
        yield

@pytest.fixture(scope="session", autouse=True)
def chdir_once():
    os.environ["EVERYBODY"] = "1"

@pytest.fixture(scope="module")
def module_patch():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("product.retries", 2)
        yield

@pytest.fixture
def numbered():
    global count
    count = 1

@pytest.fixture
def settings():
    return {"ours": True}

@pytest.fixture
def fs():
    return "not pyfakefs"

@pytest.fixture
def overridden(monkeypatch):
    monkeypatch.setattr(product, "retries", 4)

def enter_folder(path):
    os.chdir(path)
"""

BESIDE = """
import asyncio, concurrent.futures, json, logging, os, subprocess, sys, threading, time, warnings
import unittest
from contextlib import contextmanager, redirect_stdout
from unittest import mock
from unittest.mock import AsyncMock, MagicMock, patch

import product
import pytest

RESULTS = []

class Client:
    def __init__(self):
        self.calls = 0
    def patch(self, path):
        self.calls += 1
        return path
    async def __aenter__(self):
        return self
    async def __aexit__(self, *_):
        return None
    async def ask(self, text):
        return text

client = Client()
MODEL = os.environ.get("MODEL", "haiku")
_shared = None

def shared_client():
    global _shared
    if _shared is None:
        _shared = Client()
    return _shared

def used_by_nobody():
    os.chdir("/")

@pytest.fixture
def overridden():
    return 2

@pytest.fixture(scope="module")
def module_client():
    global _shared
    _shared = Client()
    yield _shared

@pytest.fixture
def own_client(tmp_path):
    made = Client()
    made.base_url = "http://127.0.0.1"
    return made

def test_trivial():
    assert 1 + 1 == 2

def test_reads_the_environment():
    assert os.environ.get("A") or os.environ["HOME"] or "A" in os.environ or os.getenv("B")
    known = {os.environ.get("A", ""): 1}
    known[os.environ["HOME"]] = 2
    assert dict(os.environ) == os.environ.copy()

def test_sets_the_environment(env, module_env, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("A", "2")
    monkeypatch.setitem(os.environ, "A", "3")
    os.environ["B"] = os.environ.pop("A")
    del os.environ["B"]
    os.environ.update(A="4")
    os.environ.setdefault("A", "5")
    with patch.dict(os.environ, {"A": "6"}), mock.patch.dict("os.environ", {"A": "7"}):
        pass
    with pytest.MonkeyPatch.context() as own:
        own.setenv("A", "8")
    load_dotenv()

@patch.dict(os.environ, {"A": "1"}, clear=True)
def test_decorated_environment():
    pass

with_key = patch.dict(os.environ, {"A": "1"})

@with_key
def test_decorated_by_a_name_for_it():
    pass

def load_dotenv():
    os.environ["A"] = "9"

def test_patches_over_http():
    assert client.patch("/a") == "/a"
    made = Client()
    assert made.patch(path="/b")

def test_patch_request(own_client):
    assert own_client.patch("/a")

@pytest.mark.parametrize("patch", ["/a", "/b"])
def test_named_patch(patch):
    assert patch

async def test_async_client():
    async with Client() as one:
        assert await one.ask("a") == "a"

def test_asyncio_run():
    async def main():
        return await asyncio.gather(client.ask("a"), client.ask("b"))
    assert asyncio.run(main())

def test_mocks_without_patches():
    model = MagicMock(return_value=1)
    other = mock.AsyncMock(side_effect=[1])
    assert model() == 1

def test_subprocess():
    subprocess.run([sys.executable, "-c", ""], check=True, env={**os.environ, "A": "1"}, cwd="/")

def test_fixtures(tmp_path, capsys, caplog, record_property, request, cache, settings, fs):
    caplog.set_level("INFO")
    logging.getLogger("a").info("b")
    print("x")
    assert "x" in capsys.readouterr().out

def test_session_patches(session_env):
    pass

def test_an_override_that_does_not_ask(overridden):
    pass

def test_shared(module_client):
    assert shared_client()

def test_threads():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(abs, [1]))
    thread = threading.Thread(target=time.sleep, args=(0,))
    thread.start()
    thread.join()

def test_warns_itself():
    warnings.warn("harmless", stacklevel=2)
    with pytest.raises(ValueError, match="x"):
        raise ValueError("x")

def test_warnings_are_its_own(recwarn):
    with pytest.warns(UserWarning), warnings.catch_warnings():
        warnings.simplefilter("always")

def test_streams_are_its_own():
    with redirect_stdout(sys.stderr):
        pass
    sys.stdout = sys.stderr

def test_reads_what_is_shared():
    shells = dict(product.SHELLS)
    shells.clear()
    shells["own"] = product.SHELLS.get("own")
    RESULTS.append(shells)
    sys.path.copy().append("/x")

def test_code_under_test():
    product.get_client()
    product.set_up(product.Settings())
    assert product.SETTINGS.is_active

def test_sets_attributes_of_its_own():
    made = Client()
    made.timeout = 3
    made.calls += 1
    setattr(made, "retries", 2)

class TestPlain:
    def setup_method(self):
        self.client = Client()
    @classmethod
    def setup_class(cls):
        cls.url = "http://127.0.0.1"
    def helper(self):
        return self.client
    def test_one(self):
        self.x = 1
        assert self.helper().patch("/a")

class TestUnit(unittest.TestCase):
    def setUp(self):
        self.client = Client()
    def test_unit(self):
        self.assertEqual(self.client.patch("/a"), "/a")

class TestIsolated(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = Client()
    async def test_isolated(self):
        self.assertEqual(await self.client.ask("a"), "a")
"""

ALONE = '''
import contextlib, gc, importlib, json, locale, logging, logging.config, os, signal, socket, sys
import threading, unittest, warnings
import multiprocessing
import os as system
from contextlib import contextmanager
from os import chdir as go
from unittest import mock
from unittest.mock import patch, patch as replace
import click.testing
import codecs
import json as codec
import product
import pytest
from conftest import enter_folder
from product import SETTINGS as settings

counter = 0
runner = click.testing.CliRunner()

class Config:
    debug = False

@contextmanager
def inside(path):
    os.chdir(path)
    yield

def third(path):
    return second(path)
def second(path):
    if path:
        third(None)
    with inside(path):
        pass

def noisy(function):
    def wrapper():
        os.umask(0o22)
        return function()
    return wrapper

def expect(reason):
    """What the scan is to say."""
    def mark(function):
        function.expected = reason
        return function
    return mark

# ---- marks and fixtures
@pytest.mark.serial
@expect("marked serial")
def test_serial(): pass

@expect("patches product.retries")
def test_monkeypatch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(product, "retries", 2)

@expect("patches product.retries")
def test_monkeypatch_by_text(monkeypatch):
    monkeypatch.delattr("product.retries")

@expect("patches sys.modules")
def test_monkeypatch_item(monkeypatch):
    monkeypatch.setitem(sys.modules, "product", None)

@expect("calls monkeypatch.setattr")
def test_monkeypatch_computed(monkeypatch):
    monkeypatch.setattr(f"product.{1}", None)

@expect("changes the working directory")
def test_monkeypatch_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

@expect("changes sys.path")
def test_monkeypatch_path(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)

@expect("fixture `patched` (conftest.py:11) patches product.retries")
def test_patched(patched): pass

@pytest.mark.usefixtures("patched")
@expect("fixture `patched` (conftest.py:11) patches product.retries")
def test_usefixtures(): pass

@expect("fixture `faked` (conftest.py:15) uses mocker")
def test_faked(faked): pass

@expect("uses capfd")
def test_capfd(capfd): pass

@expect("uses mocker")
def test_mocker(mocker): pass

@expect("fixture `folder` (conftest.py:19) calls os.chdir")
def test_folder(folder): pass

@expect("fixture `module_patch` (conftest.py:42) patches product.retries")
def test_module_patch(module_patch): pass

@expect("fixture `numbered` (conftest.py:48) writes the global `count`")
def test_numbered(numbered): pass

@expect("uses capfd")
def test_dynamic(request):
    request.getfixturevalue("capfd")

# ---- patches
@expect("patches os.getcwd")
def test_patch():
    with patch("os.getcwd"): pass

@expect("patches os.getcwd")
def test_patch_object():
    with mock.patch.object(os, "getcwd"): pass

@expect("patches sys.modules")
def test_patch_dict():
    with replace.dict(sys.modules, {"A": "1"}): pass

@expect("patches os.environ")
def test_patch_of_the_whole_environment():
    with patch("os.environ", {}): pass

@expect("calls unittest.mock.patch")
def test_patch_computed():
    with patch(f"os.{'getcwd'}"): pass

@expect("patches os.getcwd")
def test_patch_imported():
    from unittest.mock import patch as p
    def nested():
        with p("os.getcwd"): pass
    nested()

@expect("patches os.getcwd")
@patch("os.getcwd")
def test_decorated(getcwd): pass

@patch("os.getcwd")
class TestDecorated:
    def test_method(self, getcwd): pass
    test_method.expected = "patches os.getcwd"

@expect("patches json.dumps")
def test_own_monkeypatch():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(json, "dumps", None)

@expect("sets `json.dumps`")
def test_sets_a_module():
    json.dumps = None

@expect("sets `codec.dumps`")
def test_setattr():
    setattr(codec, "dumps", None)

@expect("sets `Config.debug`")
def test_sets_a_class():
    Config.debug = True

@expect("sets `settings.is_active`")
def test_sets_an_imported_object():
    settings.is_active = False

@expect("sets `type(Config()).debug`")
def test_sets_a_class_by_its_type():
    type(Config()).debug = True

@expect("writes the global `counter`")
def test_global():
    global counter
    counter += 1

# ---- the folder and the environment
@expect("calls os.chdir")
def test_chdir(tmp_path):
    os.chdir(tmp_path)

@expect("calls os.chdir")
def test_chdir_alias(tmp_path):
    system.chdir(tmp_path)

@expect("calls os.chdir")
def test_chdir_from(tmp_path):
    go(tmp_path)

@expect("calls os.chdir")
def test_chdir_inner(tmp_path):
    import os as inner
    (lambda: inner.chdir(tmp_path))()

@expect("calls os.chdir")
def test_chdir_in_one_line(tmp_path):
    import os as inner; inner.chdir(tmp_path)

@expect("calls os.chdir in `enter_folder`")
def test_chdir_in_conftest(tmp_path):
    enter_folder(tmp_path)

@expect("calls os.chdir in `inside`")
def test_chdir_deep(tmp_path):
    third(tmp_path)

@expect("calls os.chdir in `inside`")
@inside("/")
def test_chdir_as_decorator(): pass

@expect("calls contextlib.chdir")
def test_contextlib_chdir(tmp_path):
    with contextlib.chdir(tmp_path): pass

@expect("changes sys.modules")
def test_modules():
    del sys.modules["json"]

@expect("changes sys.modules")
def test_modules_item():
    from sys import modules as loaded
    loaded["json"] = None

@expect("changes sys.modules")
def test_modules_pop():
    sys.modules.pop("json", None)

# ---- logging, streams
@expect("calls logging.config.dictConfig")
def test_dict_config():
    logging.config.dictConfig({})

@expect("uses click.testing.CliRunner")
def test_cli():
    runner.invoke(None)

# ---- the interpreter
@expect("calls signal.signal")
def test_signal():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

@expect("calls importlib.reload")
def test_reload():
    importlib.reload(json)

@expect("calls locale.setlocale")
def test_locale():
    locale.setlocale(locale.LC_ALL, "C")

@expect("calls sys.setrecursionlimit")
def test_recursion():
    sys.setrecursionlimit(100)

@expect("calls gc.disable")
def test_gc():
    gc.disable()

@expect("calls socket.setdefaulttimeout")
def test_socket():
    socket.setdefaulttimeout(1)

@expect("calls os.fork")
def test_fork():
    os.fork()

@expect("calls multiprocessing.Process")
def test_process():
    multiprocessing.Process()

@expect("calls concurrent.futures.ProcessPoolExecutor")
def test_pool():
    from concurrent.futures import ProcessPoolExecutor
    ProcessPoolExecutor()

@expect("calls gc.get_objects")
def test_all_objects():
    for found in gc.get_objects():
        if isinstance(found, Config):
            found.close()

@expect("calls codecs.register")
def test_codecs():
    codecs.register(lambda name: None)

@expect("calls blockbuster.blockbuster_ctx")
def test_blocking_calls():
    from blockbuster import blockbuster_ctx
    with blockbuster_ctx():
        pass

@expect("calls anyio.open_signal_receiver")
async def test_signals():
    from anyio import open_signal_receiver
    with open_signal_receiver(signal.SIGUSR1):
        pass

@expect("changes sys.path")
def test_path():
    sys.path.insert(0, "/x")

@expect("calls breakpoint")
def test_breakpoint():
    breakpoint()

@pytest.mark.parametrize("act", [lambda: os.chdir("/")])
@expect("calls os.chdir")
def test_given(act):
    act()

# ---- classes
class TestMethods:
    def setup_method(self): os.chdir("/")
    def test_one(self): pass
    test_one.expected = "setup_method calls os.chdir"

class TestHelper:
    def go(self): os.umask(0)
    def test_two(self): self.go()
    test_two.expected = "calls os.umask in `go`"

class TestState(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.a = 1
    def test_state(self): pass
    test_state.expected = "TestState has setUpClass"

class TestInherited(TestState):
    def test_more(self): pass
    test_more.expected = "TestState has setUpClass"

class TestLogs(unittest.TestCase):
    def test_logs(self):
        with self.assertLogs(): pass
    test_logs.expected = "uses assertLogs: the logger is process-wide"

class TestOwnClass(unittest.TestCase):
    count = 0
    def test_count(self): self.__class__.count += 1
    test_count.expected = "sets `self.__class__.count`"

@expect("calls os.umask")
@noisy
def test_noisy(): pass
'''

EXPECTATIONS = """
import json
def pytest_collection_finish(session):
    expected = {
        item.nodeid.rpartition("/")[2]: getattr(
            getattr(item.cls, item.originalname, None) or item.obj, "expected", None
        )
        for item in session.items
        if hasattr(item, "originalname")
    }
    with open("expected.json", "w") as file:
        json.dump(expected, file)
"""


def collect(folder: Path, *arguments: str) -> tuple[dict[str, str | None], float]:
    """What the scan says of each test in the folder, and how many seconds it took."""
    (folder / "driver.py").write_text(DRIVER)
    (folder / "expectations.py").write_text(EXPECTATIONS)
    plugins = ("driver", "expectations", "no:randomly", "no:cacheprovider")
    named = [part for plugin in plugins for part in ("-p", plugin)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *named, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((folder / "reasons.json").read_text())
    return found["reasons"], found["seconds"]


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str | None]]:
    folder = tmp_path_factory.mktemp("scan")
    (folder / "product.py").write_text(PRODUCT)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_beside.py").write_text(BESIDE)
    (folder / "test_alone.py").write_text(ALONE)
    (folder / "test_unit_module.py").write_text(
        "import unittest\n"
        "def setUpModule(): pass\n"
        "class TestIt(unittest.TestCase):\n"
        "    def test_it(self): pass\n"
    )
    (folder / "notes.txt").write_text(">>> 1 + 1\n2\n")
    found, _ = collect(folder, "--doctest-glob=*.txt")
    return {"found": found, "expected": json.loads((folder / "expected.json").read_text())}


def test_each_test_that_changes_the_process_is_found_with_its_reason(
    reasons: dict[str, dict[str, str | None]],
) -> None:
    found = {id_: why for id_, why in reasons["found"].items() if "test_alone.py" in id_}
    expected = {id_: why for id_, why in reasons["expected"].items() if "test_alone.py" in id_}
    assert len(found) > 55
    assert None not in expected.values()
    assert found == expected


def test_tests_that_only_wait_read_and_mock_are_left_beside_others(
    reasons: dict[str, dict[str, str | None]],
) -> None:
    found = {id_: why for id_, why in reasons["found"].items() if "test_beside.py" in id_}
    assert len(found) > 15
    assert {id_: why for id_, why in found.items() if why is not None} == {}


def test_doctests_and_modules_with_state_run_alone(
    reasons: dict[str, dict[str, str | None]],
) -> None:
    assert reasons["found"]["notes.txt::notes.txt"] == "a doctest"
    assert reasons["found"]["test_unit_module.py::TestIt::test_it"] == "its module has setUpModule"


def test_to_look_at_a_trivial_test_costs_microseconds(tmp_path: Path) -> None:
    text = "import os, pytest\nfrom unittest.mock import patch\n"
    text += "".join(
        textwrap.dedent(
            f"""
            def test_{number}(tmp_path):
                answer = {{"number": {number}}}
                assert answer["number"] == {number}
                assert len(str(answer)) > 3, "short"
            """
        )
        for number in range(1000)
    )
    (tmp_path / "test_many.py").write_text(text)
    reasons, seconds = collect(tmp_path)
    assert len(reasons) == 1000
    assert set(reasons.values()) == {None}
    # About 20 microseconds each on a quiet machine; the room is for a busy one.
    assert seconds / len(reasons) < 200e-6


# ---- what is not touched, what is read besides, and what cannot be read

LAZY = """
import os
import pytest

class Lazy:
    @property
    def __class__(self):
        if "COLLECTED" not in os.environ:  # pytest itself looks at it
            return Lazy
        raise RuntimeError("outside of a request")
    def __getattr__(self, name):
        raise RuntimeError(f"outside of a request: {name}")
    __call__ = __bool__ = __eq__ = __getattr__
    __hash__ = None

class Settings:
    def __getattr__(self, name):
        raise ImproperlyConfigured(name)

class ImproperlyConfigured(Exception): ...

request = g = set_up = Lazy()
settings = Settings()

@pytest.fixture
def key(monkeypatch):
    return lambda: (request, settings)

class TestRequest:
    current = Lazy()
    def test_method(self):
        assert type(self.current) is Lazy

@pytest.mark.parametrize("lazy", [request, settings], ids=["request", "settings"])
def test_as_a_parameter(lazy):
    assert type(lazy) in (Lazy, Settings)

def test_used(key):
    g, set_up
    with pytest.raises(RuntimeError): request.args
    with pytest.raises(ImproperlyConfigured): settings.DEBUG
"""


def test_objects_that_cannot_be_looked_at_stop_no_session(tmp_path: Path) -> None:
    """As `flask.request` outside of a request, and Django's settings before they are configured."""
    (tmp_path / "test_lazy.py").write_text(LAZY)
    (tmp_path / "conftest.py").write_text(
        "import os\ndef pytest_collection_finish(): os.environ['COLLECTED'] = '1'\n"
    )
    ran = run_pytest(tmp_path, "--parallel", "4", "-v", "-p", "no:randomly")
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "(exclusive" not in ran.stdout


HELPERS = """
import contextlib, importlib, sys
from .clocks import FrozenClock

@contextlib.contextmanager
def without_module(name):
    before = sys.modules.get(name)
    sys.modules[name] = None
    try:
        yield
    finally:
        sys.modules[name] = before

def harmless():
    return sys.modules["sys"]
"""

CLOCKS = """
import os, time, vcr

recorder = vcr.VCR()

class Clock:
    def __enter__(self):
        time.tzset()
    def __exit__(self, *_): ...

class FrozenClock(Clock):
    def read(self): ...

class FixedClock:
    def __enter__(self):
        time.tzset()
    def __exit__(self, *_): ...

class Base:
    def enter(self, folder):
        os.chdir(folder)
"""

HELPED = """
import tests.helpers
from tests import helpers as own
from tests.clocks import Base, recorder
from .helpers import without_module, FrozenClock, harmless
import product

def test_by_name():
    with without_module("colorsys"): ...
def test_by_module():
    with own.without_module("colorsys"): ...
def test_by_full_name():
    with tests.helpers.without_module("colorsys"): ...
def test_imported_inside():
    from .clocks import FixedClock as fixed
    with fixed(): ...
def test_class():
    with FrozenClock(): ...
@recorder.use_cassette("answers.yaml")
def test_object(): ...
class TestInherited(Base):
    def test_method(self): self.enter("/")
def test_harmless(): harmless()
def test_code_under_test(): product.main()
"""


def test_every_module_in_the_folders_of_tests_is_read_and_the_code_under_test_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "product.py").write_text("import os\ndef main(): os.chdir('/')\n")
    (tmp_path / "vcr.py").write_text(
        "class VCR:\n    def use_cassette(self, name): return lambda function: function\n"
    )
    folder = tmp_path / "tests"
    folder.mkdir()
    sources = {"__init__": "", "helpers": HELPERS, "clocks": CLOCKS, "test_helped": HELPED}
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text)
    found, _ = collect(tmp_path)
    changes = "changes sys.modules in `without_module`"
    assert {id_.rpartition("::")[2]: why for id_, why in found.items()} == {
        "test_by_name": changes,
        "test_by_module": changes,
        "test_by_full_name": changes,
        "test_imported_inside": "calls time.tzset in `FixedClock`",
        "test_class": "calls time.tzset in `Clock`",
        "test_object": "uses vcr.VCR",
        "test_method": "calls os.chdir in `enter`",
        "test_harmless": None,
        "test_code_under_test": None,
    }


def test_a_helper_that_hides_a_module_skips_no_test_beside_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    suite = tmp_path_factory.mktemp("suite")
    folder = suite / "tests"
    folder.mkdir()
    (folder / "helpers.py").write_text(HELPERS.replace("from .clocks import FrozenClock\n", ""))
    (folder / "test_h.py").write_text(
        "import time, pytest\n"
        "from helpers import without_module\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_without_it(n):\n"
        "    with without_module('colorsys'):\n"
        "        time.sleep(0.3)\n"
        "def test_needs_it():\n"
        "    time.sleep(0.1)\n"
        "    pytest.importorskip('colorsys')\n"
    )
    ran = run_pytest(suite, "--parallel", "4", "-v", "-p", "no:randomly", "tests")
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
    assert ran.stdout.count("(exclusive: changes sys.modules in `without_module`)") == 3


PLUGINS = {
    "pytest_httpserver": "httpserver",
    "pytest_httpx": "httpx_mock",
    "pytest_mockito": "when",
    "pytest_subprocess": "fp",
    "requests_mock": "requests_mock",
    "respx": "respx_mock",
}
CALLS = {
    "import random; random.seed(1)": "calls random.seed",
    "import numpy as np; np.random.seed(1)": "calls numpy.random.seed",
    "import torch; torch.manual_seed(1)": "calls torch.manual_seed",
    "skipped.random.seed(1)": "calls numpy.random.seed",
    "from flexmock import flexmock; flexmock(object)": "calls flexmock.flexmock",
    "import mockito; mockito.when(object)": "calls mockito.when",
    "from mockito import expect as e; e(object)": "calls mockito.expect",
    "from testfixtures import LogCapture as L; L()": "calls testfixtures.LogCapture",
    "import testfixtures as t; t.Replacer().replace": "calls testfixtures.Replacer",
    "from moto import mock_aws\n    with mock_aws(): ...": "calls moto.mock_aws",
    "import responses\n    @responses.activate\n    def call(): ...": "uses responses.activate",
    "import respx\n    with respx.mock: ...": "uses respx.mock",
    "from blockbuster import blockbuster_ctx as b\n    with b(): ...": (
        "calls blockbuster.blockbuster_ctx"
    ),
    "from freezegun import freeze_time; freeze_time('2024-01-01')": "calls freezegun.freeze_time",
    "import threading; threading.main_thread()": "calls threading.main_thread",
    "import random; random.Random(1).seed(2)": None,
    "import numpy; numpy.random.default_rng(1)": None,
    "from testfixtures import compare; 'a'.replace('a', 'b')": None,
    "import operator; operator.setitem({}, 1, 2)": None,
}


def test_what_known_packages_do_is_found_whether_they_are_installed_or_not(tmp_path: Path) -> None:
    calls = dict(enumerate(CALLS))
    text = "import pytest\nskipped = pytest.importorskip('numpy')\n"
    text += "".join(f"def test_{name}({name}): ...\n" for name in PLUGINS.values())
    text += "".join(f"def test_{number}():\n    {call}\n" for number, call in calls.items())
    (tmp_path / "test_known.py").write_text(text)
    for package, name in PLUGINS.items():
        code = f"import pytest\n@pytest.fixture\ndef {name}(): ...\n"
        (tmp_path / f"{package}.py").write_text(code)
    found, _ = collect(tmp_path, *(f"-p{package}" for package in PLUGINS))
    uses = {f"test_known.py::test_{name}": f"uses {name}" for name in PLUGINS.values()}
    made = {f"test_known.py::test_{number}": CALLS[call] for number, call in calls.items()}
    assert found == {**uses, **made}


def test_fixtures_of_the_same_name_from_elsewhere_are_no_reason(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import pytest\n"
        + "".join(f"@pytest.fixture\ndef {name}(): ...\n" for name in PLUGINS.values())
        + f"def test_own({', '.join(PLUGINS.values())}): ...\n"
    )
    assert collect(tmp_path)[0] == {"test_own.py::test_own": None}


def test_tests_whose_file_cannot_be_read_run_alone(tmp_path: Path) -> None:
    for name in ("gone", "broken", "deep", "fine"):
        (tmp_path / f"test_{name}.py").write_text("def test_it(): ...\n")
    (tmp_path / "conftest.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "def pytest_collection_modifyitems(items):\n"
        "    here = Path(__file__).parent\n"
        "    (here / 'test_gone.py').unlink()\n"
        "    (here / 'test_broken.py').write_text('global x = chdir(')\n"
        "    (here / 'test_deep.py').write_text('global x\\n' + '-' * 100_000 + '1')\n"
    )
    found, _ = collect(tmp_path)
    reasons = {id_.partition(".")[0]: str(why) for id_, why in found.items()}
    assert reasons["test_gone"].startswith("its file could not be read: FileNotFoundError: ")
    assert reasons["test_broken"].startswith("its file could not be read: SyntaxError: ")
    assert reasons["test_deep"].startswith("its file could not be read: ")
    assert reasons["test_fine"] == "None"


def test_functions_that_were_made_elsewhere_keep_no_file_from_being_read(tmp_path: Path) -> None:
    """As a decorator that makes a new function with globals of its own does."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    (tmp_path / "tests" / "helpers.py").write_text("def help(): ...\n")
    (tmp_path / "tests" / "test_made.py").write_text(
        "import os, types\nfrom .helpers import help\n"
        "def made(f): return types.FunctionType(f.__code__, {'help': help}, f.__name__)\n"
        "@made\ndef test_made(): help()\n"
        "def test_beside(): help()\n"
        "def test_alone(): os.chdir('.')\n"
    )
    ran = run_pytest(tmp_path, "--parallel", "4")
    assert "3 passed" in ran.stdout, ran.stdout
    assert "parallel 4: 2 concurrent, 1 exclusive: calls os.chdir" in ran.stdout
