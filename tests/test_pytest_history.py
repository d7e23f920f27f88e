"""What sessions remember of tests: durations, and who had to run alone; and tests as trials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.cacheprovider import Cache

from paraval.pytest_plugin.history import FORGOTTEN_AFTER, History
from paraval.pytest_plugin.planning import groups_of
from paraval.pytest_plugin.recording.item_trials import (
    PlanFrame,
    PlannedTest,
    SourceDigests,
    key_by_code,
    model_in,
    named_test,
    plan_of,
    without_model,
    without_xdist_group,
)
from paraval.pytest_plugin.recording.report_data import ReportData, attach_report_data
from paraval.records import (
    AttemptResult,
    Failure,
    Model,
    Outcome,
    Provider,
)

HAIKU = Model(
    name="haiku", provider=Provider.ANTHROPIC, model="h-1", base_url="https://a", account="team"
)


# ---- a session, without its pytest


@pytest.fixture
def config(tmp_path: Path) -> pytest.Config:
    """As much of one as a history looks at, with a real cache."""
    (tmp_path / "test_x.py").write_text("def test_a(): ...\n")
    cache = Cache(tmp_path / ".pytest_cache", cast("pytest.Config", None), _ispytest=True)
    return cast("pytest.Config", SimpleNamespace(cache=cache, rootpath=tmp_path))


def item(name: str) -> pytest.Item:
    return cast("pytest.Item", SimpleNamespace(nodeid=name))


def report(name: str, seconds: float, **others: Any) -> pytest.TestReport:
    told = {"outcome": "passed", "when": "call", "longrepr": None, **others}
    return pytest.TestReport(name, ("", None, ""), {}, duration=seconds, **told)


def session(config: pytest.Config, took: Mapping[str, float]) -> None:
    history = History(config)
    for name, seconds in took.items():
        history.pytest_runtest_logreport(report(name, seconds / 2, when="setup"))
        history.pytest_runtest_logreport(report(name, seconds / 2))
    history.pytest_sessionfinish()


def test_durations_order_the_next_session(config: pytest.Config) -> None:
    """Phases are summed; a new parameter is judged by its function, a new function as rather long;
    the last sessions count most."""
    assert not History(config).is_known
    assert set(History(config).expected([item("a"), item("b")]).values()) == {1.0}
    session(config, {"f::slow": 8.0, "f::quick": 0.1, "f::same[1]": 2.0, "f::same[2]": 2.0})
    known = History(config)
    names = ["f::slow", "f::quick", "f::same[1]", "f::same[new]", "f::never_seen"]
    expected = known.expected([item(name) for name in names])
    assert known.is_known
    assert expected["f::slow"] > expected["f::same[1]"] > expected["f::quick"]
    assert expected["f::same[new]"] == pytest.approx(expected["f::same[1]"], rel=0.5)
    assert expected["f::never_seen"] > expected["f::same[1]"]
    for _ in range(8):
        session(config, {"f::quick": 30.0})
    later = History(config).expected([item("f::quick"), item("f::slow")])
    assert later["f::quick"] > later["f::slow"]


def test_tests_without_parameters_have_nothing_in_common(config: pytest.Config) -> None:
    """Or a slow one among quick ones would not begin first."""
    quick = {f"f::quick_{number}": 0.01 for number in range(5)}
    session(config, {"f::slow": 4.0, **quick, **{f"f::other[{n}]": 1.0 for n in range(40)}})
    known = History(config).expected([item("f::slow"), item("f::other[1]")])
    assert known["f::slow"] > 2 * known["f::other[1]"]


def test_what_says_nothing_of_a_duration_is_not_remembered(config: pytest.Config) -> None:
    """A skip, an outage, a dead worker; and nothing is written for them alone."""
    refused = report("f::refused", 9.0, when="teardown")
    failure = Failure(kind=Outcome.RATE_LIMITED, message="429")
    attach_report_data(
        refused, ReportData(result=AttemptResult(outcome=Outcome.RATE_LIMITED, error=failure))
    )
    history = History(config)
    for one in (report("f::skipped", 9.0, outcome="skipped"), refused, report("f::d", 9, when="?")):
        history.pytest_runtest_logreport(one)
    history.pytest_sessionfinish()
    assert not History(config).is_known
    assert cast("Any", config).cache.get("paraval/durations", None) is None


def test_sessions_that_end_at_once_lose_nothing_of_each_other(config: pytest.Config) -> None:
    one, other = History(config), History(config)
    one.pytest_runtest_logreport(report("f::one", 1.0))
    other.pytest_runtest_logreport(report("f::other", 2.0))
    one.pytest_sessionfinish()
    other.pytest_sessionfinish()
    stored = cast("Any", config).cache.get("paraval/durations", None)
    assert set(stored["tests"]) == {"f::one", "f::other"}
    assert stored["session"] == 2


def test_tests_that_are_gone_are_forgotten(config: pytest.Config) -> None:
    session(config, {"f::gone": 1.0})
    for _ in range(FORGOTTEN_AFTER + 1):
        session(config, {"f::here": 1.0})
    assert set(cast("Any", config).cache.get("paraval/durations", None)["tests"]) == {"f::here"}


def test_what_failed_beside_others_and_passed_alone_runs_alone(config: pytest.Config) -> None:
    history = History(config)
    assert history.why_alone("test_x.py::test_a") is None
    history.remember_alone("test_x.py::test_a")
    later = History(config)
    assert "passed alone" in (later.why_alone("test_x.py::test_a") or "")
    assert later.why_alone("test_x.py::test_b") is None


@pytest.mark.parametrize(
    "nonsense", ["[]", '{"tests": 3}', '{"session": 1, "tests": {"a": "much 1 1"}}', "\x00", "{"]
)
def test_nonsense_in_the_cache_is_as_nothing(config: pytest.Config, nonsense: str) -> None:
    folder = config.rootpath / ".pytest_cache" / "v" / "paraval"
    folder.mkdir(parents=True)
    for name in ("durations", "alone"):
        (folder / name).write_text(nonsense)
    assert not History(config).is_known
    assert History(config).why_alone("test_x.py::test_a") is None
    session(config, {"f::a": 1.0})
    assert History(config).is_known


def test_without_a_cache_nothing_is_known_and_nothing_breaks(tmp_path: Path) -> None:
    without = cast("pytest.Config", SimpleNamespace(rootpath=tmp_path))
    session(without, {"f::a": 1.0})
    assert not History(without).is_known


# ---- tests as trials


def test_a_model_is_a_variant_and_no_part_of_the_case() -> None:
    models = {"haiku": HAIKU, "haiku-3": HAIKU}
    assert without_model("t.py::test_y[haiku-3]", "haiku") == "t.py::test_y[3]"
    assert without_model("t.py::test_y[haiku]", "haiku") == "t.py::test_y"
    assert without_model("t.py::test_y[a-haiku-b[0]]", "haiku") == "t.py::test_y[a-b[0]]"
    assert without_model("t.py::test_y[haikus]", "haiku") == "t.py::test_y[haikus]"
    assert model_in("t.py::test_y[haiku-3]", models) == "haiku-3", "the longest that fits"
    assert model_in("t.py::test_haiku", models) is None
    assert model_in("t.py::test_y[haiku-a-haiku-3]", models) == "haiku", "the first of them"
    assert without_xdist_group("a@b/t.py::C::test_y[x@y]@g") == "a@b/t.py::C::test_y[x@y]"
    assert without_xdist_group("a@b/t.py::test_y") == "a@b/t.py::test_y"


def test_a_plan_tells_tests_with_models_from_those_without(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("one")
    frame = PlanFrame(name="s", folder=str(tmp_path))

    def planned(*names: str) -> Any:
        tests = [named_test(name, {"haiku": HAIKU}) for name in names]
        return plan_of(tests, frame=frame, key_of=key_by_code(SourceDigests(tmp_path)))

    plain = planned("t.py::a", "t.py::a", "t.py::b[1]")
    assert [trial.variant for trial in plain.trials] == [{}, {}, {}]
    assert [trial.repeat for trial in plain.trials] == [1, 2, 1], "the same name twice"
    assert plain.axes == {}
    mixed = planned("t.py::a", "t.py::m[haiku-1]")
    assert mixed.axes == {"model": ("(no model)", "haiku")}
    assert mixed.trials[1].case.id == "t.py::m[1]"
    assert mixed.trials[0].key == plain.trials[0].key, "the same, whatever else runs"
    assert len({trial.key for trial in (*plain.trials, mixed.trials[1])}) == 4
    (tmp_path / "t.py").write_text("two")
    assert planned("t.py::a").trials[0].key != plain.trials[0].key, "other code"


def test_keys_know_the_model_but_not_whose_account_it_is(tmp_path: Path) -> None:
    from dataclasses import replace

    key_of = key_by_code(SourceDigests(tmp_path))
    base = key_of(PlannedTest(node_id="t.py::a", model=HAIKU), 1)
    assert key_of(PlannedTest(node_id="t.py::a", model=replace(HAIKU, account="other")), 1) == base
    assert key_of(PlannedTest(node_id="t.py::a", model=replace(HAIKU, model="h-2")), 1) != base


# ---- groups


def marked(name: str, *marks: pytest.MarkDecorator) -> pytest.Item:
    def iter_markers(_name: str) -> list[pytest.Mark]:
        return [one.mark for one in marks]

    return cast("pytest.Item", SimpleNamespace(nodeid=name, iter_markers=iter_markers))


def test_groups_are_limits_and_the_smallest_counts() -> None:
    mark = pytest.mark.parallel_group
    both = marked("t::both", mark("db", limit=2), mark("db", limit=9), mark(name="gpu"))
    less = marked("t::less", mark("db", 1))
    groups = groups_of([both, less, marked("t::free")])
    assert groups.limits == {"group:db": 1, "group:gpu": 1}
    assert groups.by_test == {
        "t::both": ("group:db", "group:gpu"),
        "t::less": ("group:db",),
    }
    assert len(groups.conflicts) == 1
    for part in ("'db'", "1 in t::less", "2 in t::both"):
        assert part in groups.conflicts[0]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.mark.parallel_group(),
        pytest.mark.parallel_group(3),
        pytest.mark.parallel_group("db", limit=0),
        pytest.mark.parallel_group("db", limit=True),
        pytest.mark.parallel_group("db", 1, 2),
        pytest.mark.parallel_group("db", name="db"),
        pytest.mark.parallel_group("db", most=2),
    ],
)
def test_a_mark_that_says_no_group_names_its_test(wrong: pytest.MarkDecorator) -> None:
    with pytest.raises(pytest.UsageError, match="t::a: parallel_group"):
        groups_of([marked("t::a", wrong)])


# ---- a session of pytest


def test_a_parallel_session_learns_and_the_next_one_starts_the_longest_first(
    tmp_path: Path,
) -> None:
    """Two at once: of four tests the one that took longest, the last in the file, begins first.
    A run that nobody records loads nothing that only a store needs."""
    (tmp_path / "test_order.py").write_text(
        textwrap.dedent(
            """
            import pathlib, sys, time
            import pytest

            @pytest.mark.parametrize("seconds", [0.2, 0.3, 0.4, 0.9])
            def test_waits(seconds):
                with pathlib.Path("begun").open("a") as file:
                    file.write(f"{seconds}\\n")
                time.sleep(seconds)

            def test_light():
                assert not {"sqlite3", "pydantic", "aiohttp", "psutil"} & set(sys.modules)
            """
        )
    )
    plugin = ("-p", "paraval.pytest_plugin.plugin")
    command = [sys.executable, "-m", "pytest", "-q", *plugin, "--parallel", "2"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    begun = tmp_path / "begun"
    for _ in range(2):
        begun.unlink(missing_ok=True)
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "0.9" in begun.read_text().split()[:2]
    stored = json.loads((tmp_path / ".pytest_cache" / "v" / "paraval" / "durations").read_text())
    assert len(stored["tests"]) == 5
    assert stored["session"] == 2
