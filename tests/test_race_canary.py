"""Whether tests run the code that a race measures, in whole races with deliberately broken code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import paraval
from paraval.racing.correctness import canary
from paraval.racing.correctness.canary import _inspect
from paraval.racing.steps import StepKind
from tests.race_kit import Track, make_track, scratch_of

BASE = """\
def answer(x):
    return x + 1


def untested(x):
    return x


SECONDS = 1.0
"""
FAST = BASE.replace("SECONDS = 1.0", "SECONDS = 0.4")
PROJECT = {
    ".gitignore": "__pycache__/\n*.json\n",
    "pkg/__init__.py": "",
    "pkg/core.py": BASE,
    "pkg/spare.py": "SPARE = 1\n",
    "tests/test_core.py": (
        "import unittest\n\nfrom pkg.core import answer\n\n\nclass T(unittest.TestCase):\n"
        "    def test_answer(self):\n        self.assertEqual(answer(1), 2)\n"
    ),
    "bench.py": (
        "import json\nfrom pkg import core\n"
        'json.dump({"__total__": core.SECONDS}, open("out.json", "w"))\n'
    ),
}
TESTS = [sys.executable, "-m", "unittest", "tests/test_core.py"]
BENCH = {"command": [sys.executable, "bench.py"], "metric": "out.json", "quiet": 0, "blocks": 3}


@pytest.fixture(name="track")
def track_of_python(tmp_path: Path) -> Track:
    return make_track(tmp_path, PROJECT)


def race(track: Track, *candidates: dict[str, Any], **keys: Any) -> paraval.RaceReport:
    with scratch_of(track):
        return track.race(*candidates, **{"test": TESTS, "bench": BENCH, **keys})


def core(text: str, name: str = "one") -> dict[str, Any]:
    return {"name": name, "files": {"pkg/core.py": text}}


def canaries(track: Track, report: paraval.RaceReport) -> list[str]:
    return [one.candidate for one in track.steps(report) if one.kind == StepKind.CANARY]


def test_a_race_whose_tests_run_another_copy_of_the_code_is_refused(track: Track) -> None:
    """Such as an installed one."""
    copy = track.folder / "installed"
    (copy / "pkg").mkdir(parents=True)
    (copy / "pkg" / "__init__.py").write_text("")
    (copy / "pkg" / "core.py").write_text(BASE)
    inserted = f"import sys; sys.path.insert(0, {str(copy)!r})\n"
    track.commit({"tests/test_core.py": inserted + PROJECT["tests/test_core.py"]})
    report = race(track, core(FAST.replace("x + 1", "x + 2"), "broken"), core(FAST, "fast"))
    assert report.exit_code == 3
    assert report.winner is None
    assert {one.status for one in report} == {"skipped"}
    assert "the tests do not run the code that candidates change" in str(report)
    assert "pkg/core.py cannot be" in " ".join(str(report).split())
    assert "PYTHONPATH" in str(report)
    assert canaries(track, report) == ["baseline"]


def test_the_check_can_be_turned_off(track: Track) -> None:
    report = race(
        track, core(FAST), test={"command": [sys.executable, "-c", "pass"], "canary": False}
    )
    assert report.winner is not None
    assert canaries(track, report) == ["one"], "it is searched for state all the same"


def test_a_race_that_changes_only_files_that_no_test_imports_is_refused(track: Track) -> None:
    report = race(track, {"name": "one", "files": {"pkg/spare.py": "SPARE = 2\n"}})
    assert report.exit_code == 3
    assert "pkg/spare.py" in str(report)


def test_one_candidate_that_changes_tested_code_is_enough_for_a_race(track: Track) -> None:
    spare = {"name": "spare", "files": {"pkg/spare.py": "SPARE = 2\n"}}
    report = race(track, spare, core(FAST))
    assert report.winner is not None
    assert report.winner.name == "one"
    assert canaries(track, report) == ["baseline", "one"]


def test_files_that_judge_are_not_broken_even_if_candidates_may_change_them(track: Track) -> None:
    """Broken tests fail, whatever code they run."""
    track.commit({"checks/test_core.py": PROJECT["tests/test_core.py"]})
    both = {"checks/test_core.py": "import unittest\n", "pkg/spare.py": "SPARE = 2\n"}
    tests = [sys.executable, "-m", "unittest", "discover", "-s", "checks"]
    report = race(track, {"name": "one", "files": both}, protect=[], test=tests)
    assert "pkg/spare.py" in str(report.standings.baseline.reason)
    assert "test_core" not in str(report.standings.baseline.reason)


def test_candidates_that_change_no_python_need_no_canary(track: Track) -> None:
    report = race(track, {"name": "one", "files": {"notes.txt": "x\n", "pkg/new.py": "x = 1\n"}})
    assert report["one"].status == "not_shown"
    assert canaries(track, report) == []


def test_proposed_candidates_are_tested_after_the_canary(track: Track) -> None:
    def propose(_ask: paraval.Ask) -> list[dict[str, Any]]:
        return [track.with_patch(core(FAST, "made"))]

    report = race(track, propose={"function": propose, "rounds": 1})
    assert report.winner is not None
    steps = [(one.kind, one.candidate) for one in track.steps(report)]
    assert steps.index(("canary", "baseline")) < steps.index(("test", "made"))


def test_a_resume_asks_neither_canary_again(track: Track) -> None:
    report = race(track, core(FAST))
    assert canaries(track, report) == ["baseline", "one"]
    again = race(
        track,
        core(FAST),
        options=paraval.Options(store=track.store, resume=report.run.id),
    )
    assert canaries(track, again) == ["baseline", "one"]
    assert again.winner == report.winner


def test_tests_that_hang_with_broken_code_have_noticed_it(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary, "_AND_S", 2)
    waits = (
        "import time\ntry:\n    import pkg.core\nexcept SystemExit:\n    time.sleep(600)\n"
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n"
    )
    track.commit({"tests/test_core.py": waits})
    report = race(track, core(FAST))
    assert report.winner is not None
    hung = track.step(report, StepKind.CANARY, "baseline")
    assert hung.ended - hung.began < 20, "they are stopped earlier than those of a candidate"


# ---- cautions


def test_a_winner_whose_changes_no_test_calls_has_a_caution(track: Track) -> None:
    changed = FAST.replace("return x\n", "return 2 * x\n")
    report = race(track, core(changed))
    assert report.winner is not None
    (caution,) = report.winner.cautions
    assert caution.startswith("no test runs the code that it changes (untested in pkg/core.py)")
    printed = " ".join(str(report).split())
    assert "Caution: one: no test runs the code that it changes" in printed
    assert printed.endswith("with cautions).")
    assert report.as_json()["candidates"][0]["cautions"] == [caution]
    report.write(track.folder / "race.md")
    assert "no test runs the code that it changes" in (track.folder / "race.md").read_text()


def test_a_winner_that_keeps_state_between_calls_has_a_caution_where_it_may_win(
    track: Track,
) -> None:
    keeps = FAST.replace(
        "def answer(x):\n    return x + 1\n",
        "_SEEN = {}\n\n\ndef answer(x):\n    if id(x) not in _SEEN:\n"
        "        _SEEN[id(x)] = x + 1\n    return _SEEN[id(x)]\n",
    )
    report = race(track, core(keeps), accept={"caches": True})
    assert report.winner is not None
    (caution,) = report.winner.cautions
    assert "it keeps state between calls (`_SEEN`, written by answer in pkg/core.py)" in caution


def test_a_winner_without_either_has_no_caution(track: Track) -> None:
    report = race(track, core(FAST.replace("x + 1", "1 + x")))
    assert report.winner is not None
    assert report.winner.cautions == ()


OLD = """\
from functools import lru_cache
KNOWN = {}
def known(a):
    KNOWN[a] = 1
def f(a):
    return a
class K:
    pass
"""


@pytest.mark.parametrize(
    ("new", "state"),
    [
        ("C = {}\ndef f(a):\n    C[a] = 1\n", ["`C`, written by f"]),
        ("C: dict = {}\ndef f(a):\n    C.setdefault(a, 1)\n", ["`C`, written by f"]),
        ("C = []\ndef f(a):\n    C.append(a)\n", ["`C`, written by f"]),
        ("C = 0\ndef f(a):\n    global C\n    C += 1\n", ["`C`, written by f"]),
        ("def f(a, memo={}):\n    memo[a] = 1\n", ["`memo`, written by f"]),
        ("def f(a, *, memo={}):\n    memo[a] = 1\n", ["`memo`, written by f"]),
        ("def f(a):\n    f.last = a\n", ["`f`, written by f"]),
        (
            "class K:\n  @classmethod\n  def f(cls, a):\n    cls.m[a] = 1\n",
            ["`cls.m`, written by K.f"],
        ),
        ("@lru_cache(maxsize=9)\ndef f(a):\n    return a\n", ["`lru_cache` on f"]),
        ("import functools\n@functools.cache\nasync def f(a): ...\n", ["`cache` on f"]),
        ("KNOWN = {}\ndef known(a):\n    KNOWN[a] = 2\n", []),
        ("C = {}\ndef f(C):\n    C[1] = 1\n", []),
        (
            "try:\n  C = load()\nexcept E:\n  C = {}\ndef f(a):\n  C[a] = 1\n",
            ["`C`, written by f"],
        ),
        (
            "def f(a):\n  def k(x): pass\n  o = a\n  o.b = 1\n  return sorted(o, key=k)\n",
            [],
        ),
        ("C = {}\ndef f(a):\n    C = {}\n    C[a] = 1\n    return C\n", []),
        ("def f(a):\n    out = []\n    out.append(a)\n    return out\n", []),
        ("class K:\n    def f(self, a):\n        self.a = a\n", ["`self.a`, written by K.f"]),
        (
            "class K:\n    def f(self, a):\n        self.a.b[0].append(a)\n",
            ["`self.a`, written by K.f"],
        ),
        ("class K:\n    def __init__(self, a):\n        self.a = a\n", []),
        ("class New:\n    def f(self, a):\n        self.a = a\n", []),
        (
            "class New:\n    def f(self, a):\n        self.a = a\nN = New()\n",
            ["`self.a`, written by New.f"],
        ),
        ("def f():\n  c = 0\n  def g():\n    nonlocal c\n    c += 1\n  g()\n  return c\n", []),
        ("g = 1\ndef f(a):\n    globals()['x'] = a\n", ["`globals()`, written by f"]),
        ("def f(a):\n    return lru_cache(None)(a)\n", ["`lru_cache` on f"]),
        (
            "def f():\n  c = 0\n  def g():\n    nonlocal c\n    c += 1\n  return g\n",
            ["`c`, written by f"],
        ),
        ("def f():\n  c = {}\n  def g(a):\n    c[a] = 1\n  return g\n", ["`c`, written by f"]),
        ("C = {}\ndef f(a):\n    return C[a]\n", []),
        ("C = {}\nC[1] = 2\n", []),
    ],
)
def test_state_that_a_change_adds_is_found(new: str, state: list[str]) -> None:
    found = _inspect({"a.py": [OLD.encode(), new.encode()]})
    assert found["a.py"]["state"] == state


def test_files_that_cannot_be_parsed_are_left_out() -> None:
    sources = {"a.py": [None, b"def ("], "b.py": [None, b"# \xff\n"], "c.py": [None, b"x = 1\n"]}
    found = _inspect({**sources, "d.py": [None, b"(" * 100_000]})
    assert list(found) == ["c.py"]
    assert found["c.py"]["functions"] == []
    assert "_paraval_ran(1)" in found["c.py"]["telling"]


def test_a_fast_path_that_no_test_runs_has_a_caution(track: Track) -> None:
    path = "\n".join(f"        y = x * {number}" for number in range(20))
    guarded = FAST.replace(
        "    return x + 1\n", f"    if x > 1000:\n{path}\n        return y\n    return x + 1\n"
    )
    report = race(track, core(guarded))
    assert report.winner is not None
    (caution,) = report.winner.cautions
    assert caution.startswith("the tests ran 1 of 22 added lines")
    tested = FAST.replace(
        "    return x + 1\n",
        "    if x < 1000:\n        y = x\n        return y + 1\n    return x + 1\n",
    )
    report = race(track, core(tested))
    assert report.winner is not None
    assert report.winner.cautions == ()


TELLING = """\
'''A docstring.'''
from __future__ import annotations
def same(a):
    return a
class K:
    def new(self, a):
        global C
        if a == 1:
            C = 1
        elif a == 2:
            C = 2
        else:
            for _ in range(3):
                pass
        match a:
            case 1: return 1
            case _: return 2
"""


def test_each_added_statement_that_runs_is_recorded_once(tmp_path: Path) -> None:
    ran = tmp_path / "ran.txt"
    old = TELLING.partition("class K")[0]
    found = _inspect({"a.py": [old.encode(), TELLING.encode()]}, str(ran))["a.py"]
    assert found["functions"] == ["K.new"]
    assert found["lines"] == 10
    space: dict[str, Any] = {}
    exec(found["telling"], space)
    assert not ran.exists(), "what a module does when it is imported shows nothing"
    space["K"]().new(2)
    space["K"]().new(2)
    ran_lines = ran.read_text().splitlines()
    assert ran_lines == ["a.py 0", "a.py 7", "a.py 8", "a.py 10", "a.py 11", "a.py 15", "a.py 17"]
