"""What is wrong with marks, or with the choice of models, is told at once, and once."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paraval.pytest_plugin.planning import refuse
from tests.child_pytest import run_pytest

TESTS = """
    import pytest

    def test_fine(): open("ran", "w").close()

    @pytest.mark.timeout_s("x")
    def test_text(): ...

    @pytest.mark.timeout_s
    def test_bare(): ...

    @pytest.mark.parallel_group(limit=0)
    def test_unnamed(): ...

    @pytest.mark.parallel_group("a", limit=0)
    @pytest.mark.parametrize("n", [1, 2])
    class TestAround:
        @pytest.mark.retry_rate_limits(tries=0)
        def test_two(self, n): ...
"""
MISTAKES = (
    "test_a.py::test_text: @pytest.mark.timeout_s('x') takes a number",
    "test_a.py::test_bare: @pytest.mark.timeout_s() takes a number",
    "test_a.py::test_unnamed: parallel_group needs a name",
    "test_a.py::TestAround::test_two: parallel_group 'a' needs a limit of 1 or more, not 0",
    "test_a.py::TestAround::test_two: @pytest.mark.retry_rate_limits takes account",
    "no model in the registry matches 'nope'\nhint: choose from 'local'",
)


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        pytest.param((), 4, id="plain"),
        pytest.param(("--parallel", "AUTO"), 4, id="parallel"),
        pytest.param(("-p", "xdist", "-n", "2"), 1, id="xdist"),
    ],
)
def test_all_mistakes_are_told_once_before_anything_runs(
    tmp_path: Path, flags: tuple[str, ...], code: int
) -> None:
    """Under xdist as an error of collecting: a worker has no other way to end in order."""
    (tmp_path / "test_a.py").write_text(textwrap.dedent(TESTS))
    for name in ("test_b.py", "test_c.py"):
        (tmp_path / name).write_text("def test_asks(model): ...\n")
    (tmp_path / "models.yaml").write_text("local: {provider: loopback}\n")
    done = run_pytest(tmp_path, "--models", "nope", *flags, "-rN")
    told = done.stdout + done.stderr
    assert done.returncode == code, told
    assert not (tmp_path / "ran").exists()
    for mistake in MISTAKES:
        assert told.count(mistake) == 1, told
    for word in ("INTERNALERROR", "Traceback", "passed"):
        assert word not in told


def test_of_very_many_mistakes_the_first_are_told_and_the_rest_counted() -> None:
    session: Any = SimpleNamespace(config=SimpleNamespace())
    with pytest.raises(pytest.UsageError) as caught:
        refuse(session, [], [f"mistake {number}" for number in range(27)])
    lines = str(caught.value).splitlines()
    assert lines[0] == "mistake 0"
    assert lines[-2:] == ["mistake 19", "... and 7 more"]
