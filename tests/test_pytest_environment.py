"""The environment of tests that run side by side: each has its own, and so have its children."""

from __future__ import annotations

import os
import time
from pathlib import Path
from textwrap import dedent

from paraval.pytest_plugin.isolation.item_environment import environment_by_test
from tests.child_pytest import run_pytest

CONFTEST = """
    import os, pytest
    from unittest.mock import patch

    @pytest.fixture(autouse=True)
    def env_keys(monkeypatch):
        monkeypatch.setenv("SOME_API_KEY", "test-key")
        monkeypatch.delenv("OTHER_API_KEY", raising=False)

    @pytest.fixture(scope="session")
    def for_all():
        os.environ["FOR_ALL"] = "yes"

    @pytest.fixture(scope="module")
    def for_module():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FOR_MODULE", "yes")
            yield
        assert "FOR_MODULE" not in os.environ
"""
APP = """
    import functools, os
    from dotenv import load_dotenv

    @functools.cache
    def client():
        load_dotenv()
        os.environ.setdefault("APP_ONCE", "1")
        return object()

    def set(name, value):
        os.environ[name] = value
"""
DOTENV = """
    import os
    def load_dotenv(path="APP_MODEL"):
        os.environ.setdefault(path, "small")
"""
TESTS = """
    import os, subprocess, sys, threading, time
    from concurrent.futures import ThreadPoolExecutor
    from unittest.mock import patch
    import app, dotenv, pytest

    ALL = threading.Barrier(6)
    ASK = "import os; print(os.getenv('N'), os.getenv('OTHER_API_KEY'))"

    @pytest.mark.parametrize("n", range(5))
    def test_sees_its_own(n, monkeypatch, request):
        monkeypatch.setenv("N", str(n))
        os.environ["DIRECT"] = str(n)
        dotenv.load_dotenv("OF_ONE_TEST")
        del os.environ["HOME"]
        with patch.dict(os.environ, {"PATCHED": str(n)}), patch.dict("os.environ", {"TOO": "1"}):
            ALL.wait(20)
            assert os.environ["PATCHED"] == os.getenv("N") == os.environ["DIRECT"] == str(n)
            assert os.environb[b"N"] == str(n).encode()
            assert {"N", "DIRECT"} <= set(os.environ) and f"'N': '{n}'" in repr(os.environ)
            assert dict(os.environ)["N"] == os.environ.copy()["N"] == str(n)
            assert len(os.environ) == len(list(os.environ))
        assert "PATCHED" not in os.environ and "TOO" not in os.environ
        assert "HOME" not in os.environ
        with pytest.raises(KeyError, match="'HOME'"):
            del os.environ["HOME"]
        assert request.node.name in os.environ["PYTEST_CURRENT_TEST"]
        with ThreadPoolExecutor() as pool:
            assert pool.submit(os.getenv, "N").result() == str(n)
        said = [
            subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True).stdout,
            subprocess.check_output([sys.executable, "-c", ASK], text=True),
            os.popen(f'{sys.executable} -c "{ASK}"').read(),
        ]
        assert said == [f"{n} None\\n"] * 3
        given = {"PATH": os.environ["PATH"], "N": "given"}
        said = subprocess.check_output([sys.executable, "-c", ASK], text=True, env=given)
        assert said == "given None\\n"
        assert os.system('test "$N" = ' + str(n)) == 0

    def test_sees_nothing_of_others():
        ALL.wait(20)
        time.sleep(0.2)
        assert not {"N", "DIRECT", "PATCHED", "OF_ONE_TEST"} & set(os.environ)
        assert os.environ["SOME_API_KEY"] == "test-key"
        assert os.environ["HOME"] and "OTHER_API_KEY" not in os.environ

    @pytest.mark.parametrize("n", range(4))
    def test_what_fixtures_of_all_set_is_below(n, for_all, for_module, monkeypatch):
        assert os.environ["FOR_ALL"] == os.environ["FOR_MODULE"] == "yes"
        monkeypatch.setenv("FOR_ALL", str(n))
        time.sleep(0.05)
        assert os.environ["FOR_ALL"] == str(n)

    @pytest.mark.parametrize("n", range(6))
    def test_what_the_app_sets_once_all_see(n):
        app.client()
        time.sleep(0.05)
        assert os.environ["APP_MODEL"] == "small" and os.environ["APP_ONCE"] == "1"
        import late
        assert os.environ["SET_AT_IMPORT"] == "1"

    def test_what_the_app_sets_can_be_taken_back(monkeypatch):
        monkeypatch.setenv("APP_UNDONE", "so that it is put back")
        monkeypatch.delenv("APP_UNDONE")
        app.set("APP_UNDONE", "app's")
        assert os.environ["APP_UNDONE"] == "app's"

    @pytest.mark.serial
    def test_the_process_is_as_before():
        own = ("N", "DIRECT", "PATCHED", "OF_ONE_TEST", "APP_UNDONE")
        assert not set(own) & set(os.environ)
        assert type(os.environ).__name__ == "_Environ" and os.environ["HOME"]
        said = subprocess.check_output(["env"], text=True)
        assert "APP_MODEL=small" in said and "SET_AT_IMPORT=1" in said
        os.environ["ALONE"] = "1"
        assert "ALONE=1" in subprocess.check_output(["env"], text=True)
"""


def test_tests_side_by_side_have_environments_of_their_own(tmp_path: Path) -> None:
    """What fixtures that they share, the app under test and imports set once is there for all."""
    (tmp_path / "tests").mkdir()
    files = {
        "tests/conftest.py": CONFTEST,
        "app.py": APP,
        "dotenv.py": DOTENV,
        "tests/test_env.py": TESTS,
        "late.py": 'import os\nos.environ["SET_AT_IMPORT"] = "1"',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(dedent(text))
    for capture in ("fd", "sys", "no"):
        ran = run_pytest(
            tmp_path, "--parallel", "8", f"--capture={capture}", OTHER_API_KEY="of the user"
        )
        assert "18 passed" in ran.stdout, ran.stdout + ran.stderr
        assert "parallel 8: 17 concurrent, 1 exclusive: marked serial" in ran.stdout


def test_the_suite_this_was_made_for_takes_the_time_of_its_slowest_tests(tmp_path: Path) -> None:
    """30 tests, an autouse fixture that sets keys: one after another they take 15 s."""
    (tmp_path / "conftest.py").write_text(dedent(CONFTEST))
    (tmp_path / "test_llm.py").write_text(
        dedent(
            """
            import os, time, pytest

            @pytest.mark.parametrize("n", range(30))
            def test_asks(n):
                time.sleep(0.5)
                assert os.environ["SOME_API_KEY"] == "test-key"
            """
        )
    )
    began = time.monotonic()
    ran = run_pytest(tmp_path, "--parallel", "15")
    took_s = time.monotonic() - began
    assert "30 passed" in ran.stdout, ran.stdout
    assert "parallel 15: 30 concurrent\n" in ran.stdout
    assert took_s < 10


def test_what_a_modules_fixture_sets_is_that_modules(tmp_path: Path) -> None:
    """However it is set and taken back, and whether a test runs beside others or alone."""
    (tmp_path / "conftest.py").write_text(
        dedent(
            """
            import os, pytest

            @pytest.fixture(scope="module", autouse=True)
            def key(request):
                os.environ["KEY"] = request.module.__name__
                yield
                del os.environ["KEY"]

            @pytest.fixture(scope="module", autouse=True)
            def patched(request):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("PATCHED", request.module.__name__)
                    yield
            """
        )
    )
    tests = """
        import os, subprocess, time, pytest

        def setup_module(): os.environ["OLD"] = __name__
        def teardown_module(): os.environ.pop("OLD", None)

        def check():
            time.sleep({wait})
            seen = [os.environ[name] for name in ("KEY", "PATCHED", "OLD")]
            assert seen == [__name__] * 3
            assert "KEY=" + __name__ in subprocess.check_output(["env"], text=True)

        def test_beside(): check()
        def test_beside_too(monkeypatch):
            monkeypatch.setenv("KEY", __name__)
            check()
        @pytest.mark.serial
        def test_alone(): check()
    """
    for name, wait in (("a", 0.05), ("b", 0.3), ("c", 0.15)):
        (tmp_path / f"test_{name}.py").write_text(dedent(tests.format(wait=wait)))
    (tmp_path / "test_z.py").write_text(
        "import os, pytest, time\nNAMES = {'KEY', 'PATCHED', 'OLD'}\n"
        "@pytest.fixture(scope='module', autouse=True)\ndef key(): ...\n"
        "@pytest.fixture(scope='module', autouse=True)\ndef patched(): ...\n"
        "def test_beside(): time.sleep(0.2); assert not NAMES & set(os.environ)\n"
        "@pytest.mark.serial\ndef test_alone(): assert not NAMES & set(os.environ)\n"
    )
    ran = run_pytest(tmp_path, "--parallel", "8", "--maxfail=99")
    assert "11 passed" in ran.stdout, ran.stdout + ran.stderr


def test_without_a_test_around_it_the_environment_is_the_process_own() -> None:
    plain = type(os.environ)
    with environment_by_test([]):
        assert type(os.environ) is not plain
        os.environ["PARAVAL_PLAIN"] = "1"
        assert os.environb[b"PARAVAL_PLAIN"] == b"1"
    assert [type(os.environ), type(os.environb)] == [plain, plain]
    assert os.environ.pop("PARAVAL_PLAIN") == "1"
