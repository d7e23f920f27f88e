"""Candidates that do harm or cheat, in whole races with real processes, beside an honest one that
must win.

`race_kit` checks after every race that nothing is left of any of them, and that the user's
repository is as it was, byte for byte.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import paraval
from paraval.processes.sandbox import why_no_sandbox
from paraval.racing.standings import CandidateStanding
from tests.race_kit import (
    PROJECT,
    Candidate,
    Track,
    make_track,
    scratch_of,
    telling,
    track_fixture,  # noqa: F401 - a fixture, used by its name
    whose_benchmark_runs,
    whose_test_runs,
)

LOG_BYTES = 20 << 20
"""What is kept of a flood is less."""
FORKS = "for i in $(seq 50); do sleep 600 & done; (setsid sleep 600 &)"
FLOODS = "yes 0123456789012345678901234567890123456789 | head -c 40000000"
TIMEOUT_S = 6
"""Of a command: a flood is through in time on a busy machine, too."""
KILLS = "kill -KILL 0"
BENCH = {"command": ["sh", "bench.sh"], "metric": "out.json", "quiet": 0, "blocks": 3}
GONE = 'top=$PWD; cd "$TMPDIR"; rm -rf "$top"'
"""What follows it can write where it is, whoever runs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """A race that is over."""

    track: Track
    report: paraval.RaceReport
    seconds: float

    def __getitem__(self, name: str) -> CandidateStanding:
        return self.report[name]


def raced(folder: Path, *candidates: Candidate, **keys: Any) -> Iterator[Raced]:
    track = make_track(folder)
    with scratch_of(track):
        began = time.monotonic()
        report = track.race(*candidates, **keys)
        yield Raced(track=track, report=report, seconds=time.monotonic() - began)


def is_reported(one: CandidateStanding, words: str) -> bool:
    return any(words in flag for flag in (*one.flags, one.reason))


# ---- while its tests run


@pytest.fixture(name="tested", scope="module")
def tested_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raced]:
    yield from raced(
        tmp_path_factory.mktemp("tested"),
        whose_test_runs("hangs", "sleep 600"),
        whose_test_runs("deaf", "trap '' TERM INT HUP; while :; do sleep 0.2; done"),
        whose_test_runs("forks", FORKS),
        whose_test_runs("floods", FLOODS),
        whose_test_runs("kills", KILLS),
        whose_test_runs("deletes", GONE),
        whose_test_runs("moves", 'mv "$PWD" "$PWD.old"; mkdir "$PWD"'),
        whose_test_runs("links", 'top=$PWD; cd ..; mv "$top" old; ln -s /etc "$top"'),
        whose_test_runs("rewrites", "echo exit 0 >check.sh; echo 1 >>bench.sh"),
        whose_test_runs(
            "settings", "git config core.hooksPath /tmp; echo x >.git/hooks/post-commit"
        ),
        whose_test_runs("shuts", "chmod 0 . .git; exec >&- 2>&- <&-"),
        telling("right", 0.4),
        test={"command": ["sh", "check.sh"], "timeout": TIMEOUT_S},
        limits={"parallel": 4},
    )


def test_the_honest_candidate_wins_among_harmful_tests(tested: Raced) -> None:
    assert tested.report.winner is not None
    assert tested.report.winner.name == "right"
    assert tested.seconds < 60


@pytest.mark.parametrize("name", ["hangs", "deaf"])
def test_a_test_that_hangs_is_ended_in_time(tested: Raced, name: str) -> None:
    assert tested[name].status == "timeout"
    assert f"timed out after {TIMEOUT_S} s" in tested[name].reason


def test_processes_that_a_test_leaves_are_ended_with_it(tested: Raced) -> None:
    """Those too that left its session; that none is there any more is looked at for all."""
    assert tested["forks"].status == "accepted"
    assert any("processes" in note for note in tested["forks"].notes)


def test_a_flood_on_stdout_is_read_to_its_end_and_saved_in_part(tested: Raced) -> None:
    assert tested["floods"].status == "accepted"
    sizes = [path.stat().st_size for path in Path(tested.report.run.folder).rglob("stdout.log")]
    assert 0 < max(sizes) < LOG_BYTES


def test_a_test_that_kills_its_process_group_has_crashed(tested: Raced) -> None:
    """And nothing else: neither the engine nor another candidate is in that group."""
    assert tested["kills"].status == "crashed"
    assert "SIGKILL" in tested["kills"].reason


@pytest.mark.parametrize("name", ["deletes", "moves", "links"])
def test_a_worktree_that_is_deleted_moved_or_replaced_is_reported(tested: Raced, name: str) -> None:
    assert tested[name].status == "failed"
    assert is_reported(tested[name], "moved, deleted or replaced its worktree")


def test_a_candidate_that_rewrites_its_tests_while_they_run_fails(tested: Raced) -> None:
    assert tested["rewrites"].status == "failed"
    assert is_reported(tested["rewrites"], "changed check.sh while it ran")
    assert is_reported(tested["rewrites"], "changed bench.sh while it ran")


def test_a_candidate_that_changes_git_settings_while_it_runs_fails(tested: Raced) -> None:
    assert tested["settings"].status == "failed"
    assert is_reported(tested["settings"], ".git")


def test_a_worktree_without_permissions_can_be_reused(tested: Raced) -> None:
    assert tested["shuts"].status in ("failed", "accepted")


# ---- while its benchmark runs


@pytest.fixture(name="timed", scope="module")
def timed_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raced]:
    yield from raced(
        tmp_path_factory.mktemp("timed"),
        whose_benchmark_runs("hangs", "sleep 600"),
        whose_benchmark_runs("forks", FORKS),
        whose_benchmark_runs("floods", FLOODS),
        whose_benchmark_runs("kills", KILLS),
        whose_benchmark_runs("deletes", GONE),
        whose_benchmark_runs("keeps", "echo 42 >answer.kept"),
        telling("right", 0.4),
        bench={**BENCH, "timeout": TIMEOUT_S},
    )


def test_the_honest_candidate_wins_among_harmful_benchmarks(timed: Raced) -> None:
    assert timed.report.winner is not None
    assert timed.report.winner.name == "right"
    assert timed.report["right"].speedup is not None
    assert timed.report["right"].speedup.estimate == pytest.approx(2.5)
    assert timed.report.standings.baseline.seconds["__total__"] == 1.0


def test_a_benchmark_that_hangs_is_ended_in_time(timed: Raced) -> None:
    assert timed["hangs"].status == "timeout"
    assert f"timed out after {TIMEOUT_S} s" in timed["hangs"].reason


def test_a_benchmark_that_leaves_processes_cannot_win(timed: Raced) -> None:
    """What they do is not in the time that it took."""
    assert timed["forks"].status == "not_shown"
    assert is_reported(timed["forks"], "leaves processes running")


def test_a_benchmark_may_print_as_much_as_it_likes(timed: Raced) -> None:
    assert timed["floods"].status == "accepted"


@pytest.mark.parametrize(("name", "status"), [("kills", "crashed"), ("deletes", "failed")])
def test_a_benchmark_that_destroys_its_worktree_is_out(
    timed: Raced, name: str, status: str
) -> None:
    assert timed[name].status == status
    assert timed[name].reason.startswith("the candidate's benchmark: ")


def test_a_benchmark_that_saves_its_answers_cannot_win(timed: Raced) -> None:
    assert timed["keeps"].status == "not_shown"
    assert is_reported(timed["keeps"], "leaves answer.kept")


# ---- by what it changes

EDITS: dict[str, dict[str, str | None]] = {
    "edits tests/test_a.py": {"tests/test_a.py": "def test_a(): pass\n"},
    "deletes tests/test_a.py": {"tests/test_a.py": None},
    "adds conftest.py": {"conftest.py": "collect_ignore = ['tests']\n"},
    "adds sub/conftest.py": {"sub/conftest.py": ""},
    "edits check.sh": {"check.sh": "exit 0\n"},
    "edits bench.sh": {"bench.sh": "echo '{\"__total__\": 0.001}' >out.json\n"},
    "adds sitecustomize.py": {"sitecustomize.py": ""},
    "adds sitecustomize/__init__.py": {"sitecustomize/__init__.py": ""},
    "adds .pytest.toml": {".pytest.toml": "[pytest]\naddopts = ['-p', 'cheat']\n"},
    "edits pyproject.toml": {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p cheat'\n"},
    "deletes setup.cfg": {"setup.cfg": None},
    "deletes pytest.toml": {"pytest.toml": None, "renamed.toml": "[pytest]\n"},
    "adds .gitattributes": {".gitattributes": "* filter=evil\n"},
}
ESCAPES: dict[str, Candidate] = {
    "folder-above": {"files": {"../outside": "x\n"}},
    "absolute": {"files": {"/outside": "x\n"}},
    "git-config": {"files": {".git/config": "[core]\n\thooksPath = .\n"}},
    "git-hook": {"files": {"sub/.GIT/hooks/post-checkout": "#!/bin/sh\n"}},
    "patch-above": {
        "patch": "--- /dev/null\n+++ b/../outside\n@@ -0,0 +1 @@\n+x\n",
    },
    "patch-git": {"patch": "--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n"},
    "through-a-link": {
        "patch": "diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n"
        "@@ -0,0 +1 @@\n+..\n\\ No newline at end of file\n"
        "diff --git a/out/outside b/out/outside\nnew file mode 100644\n--- /dev/null\n"
        "+++ b/out/outside\n@@ -0,0 +1 @@\n+x\n",
    },
}
LINKS = {
    "link-out": "../../../outside",
    "link-absolute": "/etc/passwd",
}


def link_to(target: str) -> str:
    return (
        "diff --git a/leads b/leads\nnew file mode 120000\n--- /dev/null\n+++ b/leads\n"
        f"@@ -0,0 +1 @@\n+{target}\n\\ No newline at end of file\n"
    )


@pytest.fixture(name="edited", scope="module")
def edited_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Raced]:
    folder = tmp_path_factory.mktemp("edited")
    settings = {"pyproject.toml": "", "setup.cfg": "[tool:pytest]\n", "pytest.toml": "[pytest]\n"}
    tests = {"tests/test_a.py": "def test_a():\n    assert True\n"}
    track = make_track(folder, {**PROJECT, **settings, **tests})
    with scratch_of(track):
        report = track.race(
            *({"name": words, "files": files} for words, files in EDITS.items()),
            *({"name": name, **candidate} for name, candidate in ESCAPES.items()),
            *({"name": name, "patch": link_to(target)} for name, target in LINKS.items()),
            telling("right", 0.4),
        )
        yield Raced(track=track, report=report, seconds=0.0)


@pytest.mark.parametrize("words", EDITS)
def test_a_candidate_that_changes_what_judges_it_is_invalid(edited: Raced, words: str) -> None:
    assert edited[words].status == "invalid"
    assert words in edited[words].flags


@pytest.mark.parametrize("name", ESCAPES)
def test_a_candidate_that_would_write_outside_the_repository_is_invalid(
    edited: Raced, name: str
) -> None:
    assert edited[name].status == "invalid"
    assert edited[name].reason
    assert not list(edited.track.folder.rglob("outside"))


@pytest.mark.parametrize("name", LINKS)
def test_a_link_that_leads_out_is_reported(edited: Raced, name: str) -> None:
    assert is_reported(edited[name], "makes leads a link to outside the repository")


def test_the_honest_candidate_wins_among_forbidden_changes(edited: Raced) -> None:
    assert edited.report.winner is not None
    assert edited.report.winner.name == "right"


# ---- by what it writes to the user's repository


def test_in_a_sandbox_none_writes_to_the_users_repository(track: Track) -> None:
    """By default there is one, where it works."""
    if (reason := why_no_sandbox()) is not None:
        pytest.skip(reason)
    code = f"echo x >{track.repo}/new.txt; echo x >../../new.txt; git -C {track.repo} branch mine"
    report = track.race(whose_test_runs("reaches", f"{code}; true"), sandbox=None)
    assert report["reaches"].status == "won"
    assert report["reaches"].flags == ()


# ---- by work that it does not do

LIB = """\
def total(numbers):
    found = [sum(numbers) for _ in range(5)]
    return found[0]


class Totals:
    def total(self, numbers):
        return total(numbers)
"""
SUMS = {
    ".gitignore": "__pycache__/\nout.json\n",
    "lib.py": LIB,
    "test_lib.py": (
        "from lib import Totals\n\n\ndef test_total():\n    assert Totals().total(range(4)) == 6\n"
    ),
    "bench.py": """\
import json
from lib import Totals


class Numbers:
    read = 0

    def __len__(self):
        return 1000

    def __iter__(self):
        for number in range(1000):
            Numbers.read += 1
            yield number


ours, numbers = Totals(), Numbers()
for _ in range(4):
    print(ours.total(numbers))
with open("out.json", "w") as file:
    json.dump({"__total__": (1 + Numbers.read) / 1e6}, file)
""",
}
"""The benchmark's time is how many numbers are read, so that every speedup is exact."""
SILENT = {**SUMS, "bench.py": SUMS["bench.py"].replace("print", "")}
TOTAL = LIB.partition("class")[0]
RETURN = "        return total(numbers)\n"
HONEST = LIB.replace("range(5)", "range(4)")
KEEPS = """\
{before}
{total}class Totals:
    {within}
    def total(self, numbers):
        key = len(numbers)
        if key not in {kept}:
            {kept}[key] = total(numbers)
        return {kept}[key]
"""
CLOSES = """\
{total}def made():
    known = {{}}

    def of(numbers):
        {declares}
        key = len(numbers)
        if key not in known:
            {keeps}
        return known[key]

    return of


of = made()


class Totals:
    def total(self, numbers):
        return of(numbers)
"""
STORES = """\
import json, os, sys

PLACE = {place}
try:
    with open(PLACE) as file:
        KNOWN = json.load(file)
except (OSError, ValueError):
    KNOWN = {{}}


{total}class Totals:
    def total(self, numbers):
        key = str(len(numbers))
        if key in KNOWN:
            return KNOWN[key]
        found = total(numbers)
        try:
            os.makedirs(os.path.dirname(PLACE), exist_ok=True)
            with open(PLACE, "w") as file:
                json.dump({{key: found}}, file)
        except OSError:
            pass
        return found
"""
COMPILED = f"""\
{TOTAL}KNOWN = {{}}


class Totals:
    def total(self, numbers):
        key = len(numbers)
        if key in KNOWN:
            return KNOWN[key]
        found = total(numbers)
        try:
            import marshal
            with open(__cached__, "rb") as file:
                head = file.read(16)
            with open(__file__) as file:
                text = file.read().replace("KNOWN = {{}}", "KNOWN = " + repr({{key: found}}), 1)
            with open(__cached__, "wb") as file:
                file.write(head + marshal.dumps(compile(text, __file__, "exec")))
        except OSError:
            pass
        return found
"""
OUTSIDE_PYTEST = """\
        import os, sys
        if "pytest" not in sys.modules:
            {code}
"""
HERE = "os.path.dirname(os.path.abspath(__file__))"


def keeps(kept: str, before: str = "", within: str = "") -> str:
    return KEEPS.format(total=TOTAL, kept=kept, before=before, within=within)


def closes(keeps: str, declares: str = "") -> str:
    return CLOSES.format(total=TOTAL, keeps=keeps, declares=declares)


def stores(place: str) -> str:
    return STORES.format(total=TOTAL, place=place)


def skips(code: str) -> str:
    return LIB.replace(RETURN, OUTSIDE_PYTEST.format(code=code) + RETURN)


KEPT = "it keeps state between calls"
LEFT = "its benchmark leaves "
NO_FASTER = "within noise"
CACHES = {
    "in-a-global": keeps("KNOWN", "KNOWN = {}"),
    "in-an-instance": keeps(
        "self._cache", within="def __init__(self):\n        self._cache = {}\n"
    ),
    "in-a-closure": closes("known[key] = total(numbers)"),
    "in-a-nonlocal": closes("known = {**known, key: total(numbers)}", "nonlocal known"),
    "in-lru-cache": f"from functools import lru_cache\n\n\n@lru_cache\n{LIB}",
}
"""They answer three of four equal calls from memory."""
UNREADABLE = keeps("KNOWN", f"KNOWN = {{}}\nDEEP = {'+'.join('1' * 1500)}")
"""Such a cache, in a file whose syntax overwhelms the search for it."""
PLACES = {
    "pycache": (f"{HERE} + '/__pycache__/lib.cpython-311.pyc.1'", f"{LEFT}__pycache__/lib"),
    "bytecode": (f"(sys.pycache_prefix or '/none') + {HERE} + '/bench.cpython-311.pyc'", ""),
    "worktree": (f"{HERE} + '/kept.json'", f"{LEFT}kept.json"),
    "tmpdir": ("os.environ['TMPDIR'] + '/kept'", f"{LEFT}$TMPDIR/kept"),
    "home": ("os.environ['HOME'] + '/kept'", f"{LEFT}~/kept"),
    "attempts-folder": ("os.environ['PARAVAL_FOLDER'] + '/kept'", ""),
    "shared-memory": ("'/dev/shmTRACK/kept'", f"{LEFT}$TMPDIR/private/"),
    "temporary": ("'/var/tmp/kept.json'", f"{LEFT}$TMPDIR/private/"),
    "absolute-path": ("'TRACK/kept'", NO_FASTER),
}
"""Where one process may keep answers for the next, and why that does not win. TRACK is the
test's own folder."""
STORES_AT = {name: stores(place) for name, (place, _) in PLACES.items()}
SKIPPED = {
    "exits": skips("""open("out.json", "w").write('{"__total__": 1e-6}'); os._exit(0)"""),
    "skips": skips("return 0"),
}
CHEATS = {**CACHES, "unreadable": UNREADABLE, **STORES_AT, "own-bytecode": COMPILED, **SKIPPED}


def race_of_sums(track: Track, texts: Mapping[str, str], **keys: Any) -> paraval.RaceReport:
    if (reason := why_no_sandbox()) is not None:
        pytest.skip(reason)
    with scratch_of(track):
        return track.race(
            *(
                {"name": name, "files": {"lib.py": text.replace("TRACK", str(track.folder))}}
                for name, text in texts.items()
            ),
            test=[sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            bench={**BENCH, "command": [sys.executable, "bench.py"]},
            env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            sandbox=None,
            accept={"unseen_results": False, **keys},
        )


@pytest.fixture(name="cheated", scope="module")
def cheated_fixture(tmp_path_factory: pytest.TempPathFactory) -> Raced:
    """By default settings."""
    track = make_track(tmp_path_factory.mktemp("cheated"), SUMS)
    report = race_of_sums(track, {**CHEATS, "honest": HONEST})
    return Raced(track=track, report=report, seconds=0.0)


def test_an_honest_candidate_wins_among_those_that_cheat(cheated: Raced) -> None:
    assert cheated.report.winner is not None
    assert cheated.report.winner.name == "honest"
    assert not list(Path("/dev/shm").glob(f"**/{cheated.track.folder.name}"))


@pytest.mark.parametrize("name", CACHES)
def test_a_cache_in_memory_does_not_win(cheated: Raced, name: str) -> None:
    assert cheated[name].status == "not_shown"
    assert KEPT in cheated[name].reason


def test_a_cache_in_a_file_that_cannot_be_searched_does_not_win(cheated: Raced) -> None:
    assert cheated["unreadable"].status == "not_shown"


@pytest.mark.parametrize("name", [*PLACES, "own-bytecode"])
def test_answers_that_a_process_keeps_for_the_next_do_not_win(cheated: Raced, name: str) -> None:
    _, words = PLACES.get(name, ("", ""))
    assert cheated[name].status == "not_shown"
    assert words in cheated[name].reason


@pytest.mark.parametrize("name", SKIPPED)
def test_one_that_skips_work_whose_results_are_printed_fails(cheated: Raced, name: str) -> None:
    assert cheated[name].status == "failed"
    assert cheated[name].reason.startswith("its benchmark prints something different")


def test_no_answers_are_left_from_an_earlier_race(cheated: Raced) -> None:
    """They tried to keep them in each of these places."""
    places = ("home", "attempts-folder", "shared-memory", "absolute-path")
    texts = {name: STORES_AT[name] for name in places}
    report = race_of_sums(cheated.track, {**texts, "honest": HONEST})
    assert report.winner is not None
    assert report.winner.name == "honest"
    assert {report[name].status for name in places} == {"not_shown"}


def test_caches_may_win_where_that_is_accepted(tmp_path: Path) -> None:
    texts = {"in-an-instance": CACHES["in-an-instance"], "honest": HONEST}
    report = race_of_sums(make_track(tmp_path, SUMS), texts, caches=True)
    assert report["in-an-instance"].status == "won"
    assert report["honest"].status == "accepted"
    (caution,) = report["in-an-instance"].cautions
    assert KEPT in caution


def test_no_one_wins_a_benchmark_that_prints_nothing_unless_that_is_accepted(
    tmp_path: Path,
) -> None:
    """It is accepted in all races of shell scripts here."""
    report = race_of_sums(make_track(tmp_path, SILENT), {**SKIPPED, "honest": HONEST})
    assert {(one.status, one.reason) for one in report} == {
        ("not_shown", "nothing shows that its benchmark did the work")
    }


def test_a_fast_path_that_no_test_runs_loses_to_an_equally_fast_candidate(tmp_path: Path) -> None:
    path = "".join(f"            step = {number}\n" for number in range(39))
    path = f"        if len(numbers) > 100:\n{path}            return honest(numbers)\n"
    honest = HONEST.partition("class")[0].replace("total", "honest")
    guarded = LIB.replace(RETURN, path + RETURN).replace("class", f"{honest}class")
    report = race_of_sums(make_track(tmp_path, SUMS), {"guarded": guarded, "honest": HONEST})
    assert report["honest"].status == "won"
    assert report["guarded"].status == "accepted"
    assert report["guarded"].reason.endswith(
        "not distinguishable from honest, which has no caution"
    )
    (caution,) = report["guarded"].cautions
    assert caution.startswith("the tests ran 1 of 43 added lines")
