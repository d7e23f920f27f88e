"""The commands as a user types them: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from paraval.cli.commands.init import _check_tools, _copy_of_race
from paraval.cli.main import COMMANDS
from paraval.cli.output import own_name
from paraval.errors import RequestError
from paraval.racing.race_file import load_race
from paraval.settings import default_store
from paraval.testing import loopback
from tests.conftest import Paraval, WriteSuite

SUITE = """
    name: small
    cases: [{id: a, expect: a}, {id: b, expect: b}, {id: c, expect: x}]
    matrix: {model: [one, two]}
    target: {command: [echo, "{case.id}"]}
    graders: [equals]
"""


@pytest.fixture
def suite(write: WriteSuite) -> Path:
    return write("suite.yaml", SUITE)


# ---- exit codes


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ((), 0),
        (("--fail-under", "0.6"), 0),
        (("--fail-under", "0.7"), 1),
        (("--case", "a"), 0),
        (("--case", "nothing-like-it"), 2),
        (("--variant", "model=three"), 2),
        (("--variant", "model"), 2),
        (("--tag", "smoke"), 2),
        (("-o", "report.docx"), 2),
        (("-o", "no/such/folder/report.json"), 2),
        (("--resume",), 2),
        (("--no-such-flag",), 2),
        (("--fail-under", "2"), 2),
        (("--timeout", "0"), 2),
        (("--repeats", "0"), 2),
        (("--budget", "0"), 2),
        (("--budget", "-1"), 2),
        (("--budget", "nan"), 2),
        (("--budget", "inf"), 2),
        (("--cache", "maybe"), 2),
        (("--models", "one,,two"), 2),
        (("--models", ""), 2),
        (("--models", "one,one"), 2),
    ],
)
def test_the_exit_code_tells_what_happened(
    suite: Path, paraval: Paraval, flags: tuple[str, ...], code: int
) -> None:
    ended = paraval("run", "suite.yaml", *flags)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr


def test_errors_that_hide_the_answer_end_with_3(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", SUITE.replace("[echo,", "[false,").replace("x}]", "c}]"))
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 3
    assert "(left out of the pass rate)" in ended.stdout


def test_a_json_schema_that_is_none_runs_nothing(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE.replace("[equals]", "[{json: {schema: {type: 7}}}]"))
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2, ended.stderr
    assert "schema" in ended.stderr
    assert not list(folder.glob(".paraval/runs/*"))


def test_a_wrong_request_runs_nothing_and_makes_no_store(
    suite: Path, paraval: Paraval, folder: Path
) -> None:
    for flags in (("-o", "x.docx"), ("--case", "zzz")):
        paraval("run", "suite.yaml", *flags)
    assert not (folder / ".paraval").exists()


def test_all_errors_of_a_suite_come_in_one_go(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", "cases: [{id: a}]\ntarget: {command: [echo], tiemout: 3}\nrepaets: 2\n")
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 2
    assert "suite.yaml:2" in ended.stderr
    assert "unknown key 'tiemout', did you mean 'timeout'?" in ended.stderr
    assert "unknown key 'repaets', did you mean 'repeats'?" in ended.stderr


def test_parallel_0_means_1_and_says_so(suite: Path, paraval: Paraval, folder: Path) -> None:
    ended = paraval("run", "suite.yaml", "-j", "0", "-o", "r.json")
    assert "means 1" in ended.stderr
    assert json.loads((folder / "r.json").read_text())["run"]["parallel"] == 1


def test_more_workers_than_trials_is_fine(suite: Path, paraval: Paraval) -> None:
    assert paraval("run", "suite.yaml", "-j", "5000").returncode == 0


# ---- what is printed where


def test_the_report_goes_to_stdout_and_progress_to_stderr(suite: Path, paraval: Paraval) -> None:
    ended = paraval("run", "suite.yaml")
    assert "6 trials in" in ended.stdout
    assert "[6/6] ✗" in ended.stderr
    assert "[1/6]" not in ended.stdout


def test_progress_json_is_one_event_a_line(suite: Path, paraval: Paraval) -> None:
    ended = paraval("run", "suite.yaml", "--progress", "json")
    events = [json.loads(line)["event"] for line in ended.stderr.splitlines()]
    assert events[0] == "run_started"
    assert events[-1] == "run_ended"
    assert events.count("trial_ended") == 6


def test_progress_none_says_nothing(suite: Path, paraval: Paraval) -> None:
    assert paraval("run", "suite.yaml", "--progress", "none").stderr == ""


def test_verbose_names_trials_as_they_start(suite: Path, paraval: Paraval) -> None:
    quiet = paraval("run", "suite.yaml", "--progress", "lines").stderr.count("a · one")
    loud = paraval("run", "suite.yaml", "--progress", "lines", "-v").stderr.count("a · one")
    assert loud > quiet


def test_every_form_of_report_is_written_at_once(
    suite: Path, paraval: Paraval, folder: Path
) -> None:
    names = ["r.json", "r.jsonl", "r.csv", "r.md", "r.junit.xml"]
    paraval("run", "suite.yaml", *(word for name in names for word in ("-o", name)))
    assert all((folder / name).stat().st_size > 100 for name in names)


def test_without_utf_8_everything_is_readable(suite: Path, paraval: Paraval) -> None:
    ended = paraval("run", "suite.yaml", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert ended.returncode == 0
    (ended.stdout + ended.stderr).encode("ascii")


# ---- models, what they cost, and what is left for later

CHATS = """
    name: chats
    models:
      cheap:
        {provider: loopback, scenario: fast,
         price: {input_per_million: 1, output_per_million: 1}}
      dear:
        {provider: loopback, scenario: fast,
         price: {input_per_million: 9000, output_per_million: 9000}}
      unpriced: {provider: loopback, scenario: fast}
    cases: [{id: a, input: say a, expect: a}, {id: b, input: say b, expect: b}]
    matrix: {model: [cheap, dear]}
    target: {chat: {model: "{model}", prompt: "{input}", max_tokens: 20}}
    graders: [contains]
"""


def test_a_run_that_its_budget_ends_tells_how_to_go_on_and_a_resume_does(
    write: WriteSuite, paraval: Paraval
) -> None:
    write("suite.yaml", CHATS)
    ended = paraval("run", "suite.yaml", "--budget", "0.1", "--fail-under", "1", "--verbose")
    assert ended.returncode == 3, ended.stderr
    assert "2 skipped: budget of $0.10 reached" in ended.stdout
    (run,) = json.loads(paraval("runs", "--json").stdout)
    assert (run["state"], run["done"]) == ("held_back", 2)
    assert f"Resume with: paraval resume {run['id']} --budget 0.2\n" in ended.stderr
    assert " of $0.10)" in ended.stderr, "what was spent, as it goes on"
    assert paraval("report", "--check").returncode == 3

    ended = paraval("resume", run["id"], "--budget", "20")
    assert ended.returncode == 0, ended.stderr
    assert "4 trials in" in ended.stdout
    assert "Resume with" not in ended.stderr


def test_what_was_asked_before_is_free_and_a_plan_knows_it(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", CHATS)
    first = paraval("run", "suite.yaml", "--models", "cheap", "-o", "first.json")
    assert "Cost: $0.00" in first.stdout
    plan = paraval("plan", "suite.yaml")
    assert "2 of 4 answers are in the cache, free." in plan.stdout
    again = paraval("run", "suite.yaml", "--models", "cheap", "-o", "again.json")
    assert (
        "Cost: $0.0000080; spent: $0.00\nReused from equal requests: 2 of 2 answers\n"
        in again.stdout
    )
    first_sum, again_sum = (
        json.loads((folder / name).read_text())["summary"] for name in ("first.json", "again.json")
    )
    assert (first_sum["calls"], first_sum["cached"]) == (2, 0)
    assert (again_sum["calls"], again_sum["cached"], again_sum["spent_usd"]) == (0, 2, 0.0)
    assert again_sum["cost_usd"] == first_sum["cost_usd"] == first_sum["spent_usd"]
    asked_anew = paraval("run", "suite.yaml", "--models", "cheap", "--cache", "refresh")
    assert "no new call" not in asked_anew.stdout


def test_a_model_without_a_price_is_said_to_be_of_unknown_cost(
    write: WriteSuite, paraval: Paraval
) -> None:
    with loopback() as server:
        entry = f"{{provider: openai, model: sim, base_url: '{server.base_url}'}}"
        write("suite.yaml", CHATS.replace("{provider: loopback, scenario: fast}", entry))
        planned = paraval("plan", "suite.yaml", "--models", "unpriced")
        assert "Cost unknown: no price for model 'unpriced'" in planned.stdout
        assert "Cost: unknown\n" in paraval("run", "suite.yaml", "--models", "unpriced").stdout


# ---- reading


def test_runs_lists_newest_first_and_last_names_the_newest(
    suite: Path, paraval: Paraval, folder: Path
) -> None:
    paraval("run", "suite.yaml", "--case", "a")
    paraval("run", "suite.yaml", "--case", "b")
    listed = json.loads(paraval("runs", "--json").stdout)
    assert [run["trials"] for run in listed] == [2, 2]
    heading, *rows = paraval("runs").stdout.splitlines()
    assert heading.split() == [
        *(
            "run",
            "suite",
            "started",
            "(UTC)",
            "state",
            "trials",
            "pass",
            "rate",
            "errors",
            "cost",
            "time",
        )
    ]
    assert [row.split()[0] for row in rows] == [run["id"] for run in listed]
    assert [row.split()[1] for row in rows] == ["small", "small"]
    assert paraval("report", "last", "-o", "r.json").returncode == 0
    report = json.loads((folder / "r.json").read_text())
    assert report["run"]["id"] == listed[0]["id"]
    assert report["trials"][0]["case"] == "b"
    shown = json.loads(paraval("report", listed[1]["id"], "--json").stdout)
    assert shown["trials"][0]["case"] == "a"


def test_a_report_exits_with_the_runs_verdict_only_if_asked(suite: Path, paraval: Paraval) -> None:
    assert paraval("run", "suite.yaml", "--fail-under", "1").returncode == 1
    assert paraval("report", "-o", "report.html").returncode == 0
    assert paraval("report", "--json").returncode == 0
    assert paraval("report", "--check").returncode == 1
    assert paraval("report", "-o", "no/such/folder.html").returncode == 2


def ids_of_runs(paraval: Paraval) -> list[str]:
    return [run["id"] for run in json.loads(paraval("runs", "--json").stdout)]


@pytest.mark.parametrize("command", [("clean",), ("runs", "remove")])
def test_old_runs_are_removed_but_not_baselines_and_not_without_a_yes(
    suite: Path, paraval: Paraval, folder: Path, command: tuple[str, ...]
) -> None:
    for _ in range(4):
        paraval("run", str(suite))
    newest, second, third, oldest = ids_of_runs(paraval)
    assert paraval("baseline", "set", oldest).returncode == 0
    listed = paraval(*command, "--keep", "1")
    assert (listed.returncode, listed.stdout) == (0, f"{second}  small\n{third}  small\n")
    assert "Would remove 2 runs (" in listed.stderr
    assert f"To remove: paraval {' '.join(command)} --keep=1 --yes\n" in listed.stderr
    assert f"note: {oldest} stays: it is the baseline of suite 'small'\n" in listed.stderr
    assert paraval(*command, "--keep", "1", "--older-than", "8w").stdout == ""
    assert paraval(*command, "--keep", "1", "--yes", "--dry-run").returncode == 0
    for flags, complaint in (
        (("--dry-run",), "choose runs to remove: name them, or use --older-than AGE, --keep N"),
        ((second, "--keep", "1"), "choose runs to remove"),
        (("--older-than", "30"), "'30' is not an age such as 12h, 30d or 8w"),
        ((oldest,), f"run {oldest} was not removed: it is the baseline of suite 'small'"),
    ):
        ended = paraval(*command, *flags)
        assert (ended.returncode, complaint in ended.stderr) == (2, True), ended.stderr
    assert len(ids_of_runs(paraval)) == 4
    assert paraval(*command, "--keep", "1", "--yes").returncode == 0
    assert ids_of_runs(paraval) == [newest, oldest]
    assert {path.name for path in (folder / ".paraval" / "runs").iterdir()} == {newest, oldest}


def test_a_named_run_is_removed_and_a_kept_one_stays(suite: Path, paraval: Paraval) -> None:
    for _ in range(3):
        paraval("run", str(suite))
    newest, second, oldest = ids_of_runs(paraval)
    assert paraval("runs", "keep", "last", oldest).stdout == f"{newest}  kept\n{oldest}  kept\n"
    assert "done, kept" in paraval("runs").stdout
    refused = paraval("runs", "remove", oldest)
    assert refused.returncode == 2
    assert f"it is kept; to change that: paraval runs keep --undo {oldest}" in refused.stderr
    several = paraval("runs", "remove", second, oldest, "--yes")
    assert (several.returncode, len(ids_of_runs(paraval))) == (2, 3), "all of them, or none"
    removed = paraval("clean", "--suite", "small", "--yes")
    assert removed.stdout == f"{second}  small\n"
    assert f"note: {oldest} stays: it is kept" in removed.stderr
    assert paraval("runs", "keep", "--undo", oldest).stdout == f"{oldest}  not kept\n"
    assert "Removed 1 run (" in paraval("runs", "remove", oldest[:-2]).stderr
    assert ids_of_runs(paraval) == [newest]
    misplaced = paraval("runs", "--store", "elsewhere", "remove", newest)
    assert "put the options after the command: runs remove" in misplaced.stderr
    assert "Did you mean 'remove'?" in paraval("runs", "remov", newest).stderr


def test_the_size_of_runs_is_shown_by_what_takes_it(
    suite: Path, paraval: Paraval, folder: Path
) -> None:
    paraval("run", str(suite))
    (run_id,) = ids_of_runs(paraval)
    place = folder / ".paraval" / "runs" / run_id
    (place / "artifacts").mkdir(exist_ok=True)
    (place / "artifacts" / "changes.patch").write_bytes(b"x" * 4_000_000)
    (place / "artifacts" / "video").write_bytes(b"x" * 25_000_000)
    text = paraval("runs", "size").stdout
    assert re.search(rf"{run_id} +small +\d+ kB +25 MB +4 MB +29 MB\n", text), text
    assert re.search(r"total +1 run +\d+ kB +25 MB +4 MB +29 MB\n", text), text
    assert "Cache of model answers: 0 kB\n" in text
    told = json.loads(paraval("runs", "size", "--json").stdout)
    assert told["cache_bytes"] == 0
    assert told["runs"][0]["patches_bytes"] == 4_000_000


def test_a_run_that_a_kept_run_was_compared_with_is_not_removed(
    suite: Path, paraval: Paraval
) -> None:
    for flags in ((), (), ("--baseline", "last~1")):
        paraval("run", str(suite), *flags)
    oldest = json.loads(paraval("runs", "--json").stdout)[-1]["id"]
    removed = paraval("clean", "--keep", "1", "--yes")
    assert "Removed 1 run (" in removed.stderr
    assert oldest in paraval("runs").stdout
    assert paraval("report").returncode == 0


def test_a_case_that_is_not_in_the_run_is_suggested(suite: Path, paraval: Paraval) -> None:
    suite.write_text(suite.read_text().replace("id: a,", "id: alpha,"))
    ended = paraval("run", str(suite), "-o", "a.json", "-o", "b.md")
    assert "Wrote a.json and b.md" in ended.stderr
    ended = paraval("logs", "last", "--case", "alhpa")
    assert ended.returncode == 2
    assert "has no case 'alhpa', did you mean 'alpha'?" in ended.stderr


def test_a_simulated_model_that_its_scenario_does_not_have_is_suggested(
    write: WriteSuite, paraval: Paraval
) -> None:
    write("scenario.yaml", "models: {small: {latency: 0.01}}\n")
    suite = """
        models:
          tiny: {provider: loopback, model: smal, scenario: scenario.yaml}
        cases: [{id: a, input: hello}]
        target: {chat: {model: tiny, prompt: "{input}"}}
    """
    write("suite.yaml", suite)
    ended = paraval("run")
    assert ended.returncode == 2
    problem = "suite.yaml:3: models.tiny.model: its scenario has no model 'smal', did you mean"
    assert f"{problem} 'small'?" in ended.stderr
    write("scenario.yaml", "answers: echo\nmodels: {small: {latency: 0.01}}\n")
    assert paraval("run", "--fail-under", "0").returncode in (0, 3), "meant for any model"


def test_runs_are_limited_and_chosen_by_suite(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    """Only the runs that are shown are read: older ones may be damaged, and no one notices."""
    for name in ("one", "two", "one"):
        write(f"{name}.yaml", SUITE.replace("small", name))
        paraval("run", f"{name}.yaml")
    newest, middle, oldest = (run["id"] for run in json.loads(paraval("runs", "--json").stdout))
    listed = paraval("runs", "--suite", "one")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == [newest, oldest]
    assert "  6      66.7%       0     -  " in listed.stdout
    by_file = json.loads(paraval("runs", "--suite", "two.yaml", "--json").stdout)
    assert [run["id"] for run in by_file] == [middle]
    unknown = paraval("runs", "--suite", "on")
    assert (unknown.returncode, "did you mean 'one'?" in unknown.stderr) == (2, True)
    assert len(json.loads(paraval("runs", "--limit", "2", "--json").stdout)) == 2
    for run in (folder / ".paraval" / "runs").iterdir():
        if run.name != newest:
            # In another second than the newest, so that its file need not be looked at.
            damaged = run.rename(run.with_name(run.name.replace("2", "1", 1)))
            (damaged / "run.db").write_bytes(b"not a database at all" * 100)
    short = paraval("runs", "--limit", "1")
    assert [line.split()[0] for line in short.stdout.splitlines()[1:]] == [newest]
    assert short.stderr == "2 older runs not shown. To see more: --limit 3\n"
    assert paraval("runs").stderr.count("cannot be shown") == 2


def test_a_damaged_run_is_told_of_and_no_older_one_is_taken_for_the_last(
    suite: Path, paraval: Paraval, folder: Path
) -> None:
    paraval("run", "suite.yaml", "--case", "a")
    paraval("run", "suite.yaml", "--case", "b")
    newest = max((folder / ".paraval" / "runs").iterdir(), key=lambda run: run.name)
    (newest / "run.db").write_bytes(b"not a database at all" * 100)
    listed = paraval("runs", "--json")
    assert len(json.loads(listed.stdout)) == 1
    assert newest.name in listed.stderr
    ended = paraval("report", "last")
    assert ended.returncode == 2
    assert newest.name in ended.stderr


def test_an_empty_store_says_so(folder: Path, paraval: Paraval) -> None:
    assert paraval("runs", "--json").stdout.strip() == "[]"
    assert "No runs in " in paraval("runs").stderr
    ended = paraval("report")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_logs_are_whole_and_by_attempt(write: WriteSuite, paraval: Paraval) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a}, {id: b}]
        target: {shell: true, command: "for i in 1 2 3; do echo $case_id; sleep 0.05; done"}
        """,
    )
    paraval("run", "suite.yaml", "-j", "2")
    assert paraval("logs").stdout == (
        "==> a · attempt 1 · stdout <==\na\na\na\n==> b · attempt 1 · stdout <==\nb\nb\nb\n"
    )
    assert paraval("logs", "last", "--case", "b").stdout == "b\nb\nb\n"
    rows = json.loads(paraval("logs", "--json").stdout)
    assert [row["case"] for row in rows] == ["a", "b"]
    assert Path(rows[0]["stdout"]).read_text() == "a\na\na\n"
    assert paraval("logs", "--case", "zzz").returncode == 2


def test_logs_tell_of_attempts_at_models_how_each_ended_and_what_it_cost(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "flaky.yaml",
        """
        faults:
          - {kind: status, status: 503, match: say a, first: 1}
          - {kind: status, status: 422, match: say b}
        """,
    )
    write(
        "suite.yaml",
        """
        models:
          flaky:
            {provider: loopback, scenario: flaky.yaml,
             price: {input_per_million: 1000, output_per_million: 1000}}
        cases: [{id: a, input: say a, expect: a}, {id: b, input: say b, expect: b}]
        target: {chat: {model: flaky, prompt: "{input}"}}
        graders: [contains]
        retry: {first_delay: 0.01}
        """,
    )
    paraval("run", "suite.yaml")
    printed = paraval("logs").stdout
    again, answered, wrong = printed.split("==> ")[1:]
    sent = "sent (loopback flaky):\nuser: say"
    assert again.startswith(f"a · attempt 1 <==\n{sent} a\ninfra_error: ")
    assert "503" in again
    passed = "passed\ncontains: passed, score 1\ncost: $0.00"
    assert answered.startswith(f"a · attempt 2 <==\n{sent} a\n{passed}")
    assert answered.endswith("answer:\nsay a\n")
    assert wrong.startswith(f"b · attempt 1 <==\n{sent} b\ncrashed: ")
    alone = paraval("logs", "--case", "b").stdout
    assert alone == f"==> {wrong}", "it tells of the attempt, so that it is named"
    rows = json.loads(paraval("logs", "--json").stdout)
    assert [row["output"] for row in rows] == [None, "say a", None]
    assert rows[1]["cost_usd"] > 0
    assert "503" in rows[0]["message"]
    assert paraval("logs", "--stream", "stdout").stdout == ""


def test_the_store_is_found_upwards_within_the_repository(
    suite: Path, paraval: Paraval, folder: Path
) -> None:
    (folder / ".git").mkdir()
    inner = folder / "evals" / "deep"
    inner.mkdir(parents=True)
    paraval("run", str(suite), cwd=inner)
    assert (folder / ".paraval" / "runs").is_dir(), "a new store is at the repository's root"
    assert not (inner / ".paraval").exists()
    assert len(json.loads(paraval("runs", "--json", cwd=inner.parent).stdout)) == 1
    (inner / ".paraval").mkdir()
    assert paraval("runs", "--json", cwd=inner).stdout == "[]\n", "the nearest one counts"
    assert default_store(inner) == inner / ".paraval"
    assert default_store(inner.parent) == folder / ".paraval"
    assert default_store(folder, {"PARAVAL_STORE": "mine"}) == folder / "mine"


def test_the_store_is_not_looked_for_beyond_the_repository_the_home_or_a_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".paraval" / "runs" / "one").mkdir(parents=True)
    project, home = folder / "project", folder / "home"
    for place in (project / ".git", project / "a", home / "b"):
        place.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert default_store(project / "a") == project / ".paraval"
    assert default_store(home / "b") == home / "b" / ".paraval"
    (home / ".paraval").mkdir()
    assert default_store(home / "b") == home / ".paraval"
    inside = folder / ".paraval" / "runs" / "one"
    assert default_store(inside) == inside / ".paraval"
    assert default_store(folder / "elsewhere") == folder / "elsewhere" / ".paraval"
    assert default_store() == Path(".paraval")


def test_models_of_the_environment_are_ignored_by_a_suite_without_models(
    suite: Path, paraval: Paraval
) -> None:
    for command in ("run", "plan"):
        ended = paraval(command, "suite.yaml", env={"TEST_MODELS": "small,large"})
        assert ended.returncode == 0, ended.stderr
        assert ("TEST_MODELS is ignored" in ended.stderr) == (command == "run")


def test_a_store_elsewhere_by_flag_or_variable(suite: Path, paraval: Paraval, folder: Path) -> None:
    paraval("run", "suite.yaml", "--store", "mine")
    assert (folder / "mine" / "runs").is_dir()
    listed = paraval("runs", "--json", env={"PARAVAL_STORE": "mine"}).stdout
    assert len(json.loads(listed)) == 1
    assert not (folder / ".paraval").exists()


# ---- planning


def test_plan_tells_the_order_and_from_the_second_run_on_the_time(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: short, input: "0.01"}, {id: long, input: "0.6"}]
        target: {command: [sleep, "{input}"]}
        """,
    )
    before = paraval("plan", "suite.yaml")
    assert "No time estimate" in before.stdout
    assert before.stdout.index("short") < before.stdout.index("long")
    assert not (folder / ".paraval").exists()
    for _ in range(2):
        paraval("run", "suite.yaml")
    plan = json.loads(paraval("plan", "suite.yaml", "-j", "1", "--json").stdout)
    assert [trial["case"] for trial in plan["order"]] == ["long", "short"]
    assert plan["estimate"]["from_history"]
    assert 0.3 < plan["estimate"]["wall_s"] < 3


def test_plan_tells_where_attempts_run_and_how_many_at_once(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    (folder / "template").mkdir()
    write(
        "suite.yaml",
        """
        cases: [{id: a}, {id: b, exclusive: true}, {id: c, lock: db}]
        target: {command: [echo, hi]}
        workspace: {folder: template}
        """,
    )
    planned = paraval("plan", "suite.yaml").stdout.splitlines()
    assert "as many in parallel as the machine can handle, at most " in planned[0]
    assert planned[1] == f"each in a copy of {folder / 'template'}"
    assert "at most 1 in parallel: lock:db" in planned
    assert "1 trial exclusive: nothing else runs meanwhile" in planned
    told = json.loads(paraval("plan", "suite.yaml", "-j", "2", "--json").stdout)
    assert (told["parallel"], told["auto"]) == (2, False)
    assert told["workspace"]["kind"] == "folder"


def test_the_schema_is_one_that_accepts_the_starter(paraval: Paraval) -> None:
    schema = json.loads(paraval("schema").stdout)
    assert schema["properties"]["target"]
    assert schema["additionalProperties"] is False


# ---- starting


def test_a_report_of_a_run_is_as_the_schema_of_reports_says(suite: Path, paraval: Paraval) -> None:
    paraval("run", str(suite), "-o", "report.json")
    schema = json.loads(paraval("schema", "report").stdout)
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads((suite.parent / "report.json").read_text()))


def test_init_writes_a_suite_that_runs(paraval: Paraval, folder: Path) -> None:
    assert paraval("init", "new", "--template", "command").returncode == 0
    ended = paraval("run", "new/suite.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "12 trials" in ended.stdout
    again = paraval("init", "new", "--template", "command")
    assert again.returncode == 2
    assert "nothing was written" in again.stderr


def test_the_demo_tells_errors_from_wrong_answers(paraval: Paraval, folder: Path) -> None:
    ended = paraval("demo", "--progress", "lines", "-o", "demo.html")
    assert ended.returncode == 0, ended.stderr
    assert "60 trials in" in ended.stdout
    assert "10 failed\n" in ended.stdout
    assert "  sage vs swift    +37 points (+9 to +57)   better\n" in ended.stdout
    assert "sage passes 37 points more than swift" in (folder / "demo.html").read_text()
    assert "2 errors (left out of the pass rate): 1 timeout, 1 crashed\n" in ended.stdout
    assert "Cost: at least $0." in ended.stdout, "what a timeout cost is not known"
    assert "simulated" in ended.stderr
    (run,) = json.loads(paraval("runs", "--json").stdout)
    assert " s of work, " in ended.stdout
    assert len(ended.stdout.splitlines()) <= 40
    assert ", p = 0.023, adjusted for 3 comparisons\n" not in ended.stdout
    verbose = paraval("report", run["id"], "-v").stdout
    assert ", p = 0.023, adjusted for 3 comparisons\n" in verbose
    assert "\nRetried: " in verbose


def test_on_a_terminal_failures_are_listed_once(folder: Path) -> None:
    """As they happen, and not again in the report; a report that goes elsewhere lists them."""
    command = [sys.executable, "-m", "paraval", "demo"]
    for redirected, heading in ((False, "10 failed, 2 errors (listed above)"), (True, "10 failed")):
        main, terminal = os.openpty()
        with (
            (folder / "report.txt").open("w") as file,
            subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "TERM": "xterm", "CI": ""},
                stdin=subprocess.DEVNULL,
                stdout=file if redirected else terminal,
                stderr=terminal,
            ) as child,
        ):
            os.close(terminal)
            shown = b""
            with contextlib.suppress(OSError):  # the end of a terminal is an error
                while piece := os.read(main, 1 << 16):
                    shown += piece
        os.close(main)
        assert child.returncode == 0
        text = (folder / "report.txt").read_text() if redirected else shown.decode()
        assert f"\n{heading}\r\n" in text or f"\n{heading}\n" in text


def test_the_demo_prints_little_around_its_report_and_next_commands_that_work(
    folder: Path,
) -> None:
    """As `make demo` calls it: through a pipe, by its path, with no paraval on PATH."""
    program = folder / ".venv" / "bin" / "paraval"
    program.parent.mkdir(parents=True)
    program.symlink_to(Path(sys.executable).with_name("paraval"))
    env = {**os.environ, "PATH": os.defpath, "PARAVAL_STORE": ""}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments, cwd=folder, env=env, capture_output=True, text=True, check=False
        )

    ended = run(".venv/bin/paraval", "demo", "-o", "demo.html")
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stderr.splitlines()) <= 9, "the progress of 60 trials is no news on a pipe"
    *_, page, _blank, heading, compare, race, init = ended.stderr.splitlines()
    assert page == "Wrote demo.html"
    assert heading == "Next:"
    assert race.split("  #")[0].strip() == ".venv/bin/paraval demo race"
    for line, shown in ((compare, "sage"), (init, "wrote my-evals/suite.yaml")):
        command = line.split("  #")[0].strip()
        next_one = run(*command.split())
        assert next_one.returncode == 0, next_one.stderr
        assert shown in next_one.stdout + next_one.stderr
    ended = run(".venv/bin/paraval", "demo", "--store", "elsewhere")
    report = next(line for line in ended.stderr.splitlines() if " report " in line)
    command = report.split("  #")[0].strip()
    assert command.endswith(" -o demo.html --store elsewhere")
    (folder / "demo.html").unlink()
    assert run(*command.split()).returncode == 0
    assert (folder / "demo.html").exists()


def test_the_race_of_the_demo_is_copied_into_the_store_as_a_repository(folder: Path) -> None:
    copied = _copy_of_race(folder / "store")
    assert _copy_of_race(folder / "store") == copied
    assert copied.parent == folder / "store" / "demo"
    request = load_race(copied / "race.yaml", [])
    assert request.repo == str(copied / "repository")
    assert len(list((copied / "candidates").iterdir())) == 8
    state = subprocess.run(
        ["git", "-C", str(copied / "repository"), "status", "--porcelain"],
        capture_output=True,
        check=True,
    )
    assert state.stdout == b""


def test_the_race_of_the_demo_names_the_tool_that_is_missing(
    paraval: Paraval, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = paraval("demo", "race", env={"PATH": str(folder)})
    assert ended.returncode == 2
    assert "the demo race needs git" in ended.stderr
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RequestError, match="needs pytest") as refused:
        _check_tools()
    assert "-m pip install pytest" in (refused.value.hint or "")


def test_doctor_checks_what_is_here(paraval: Paraval) -> None:
    found = {row["name"]: row for row in json.loads(paraval("doctor", "--json").stdout)}
    assert {"python", "git", "sqlite", "machine", "store", "sandbox", "trees"} <= set(found)
    assert found["python"]["text"].endswith("is tested on Python 3.11 to 3.13")
    ended = paraval("doctor")
    assert ended.returncode == 0
    assert "Nothing essential is missing." in ended.stdout


def test_doctor_has_one_line_for_each_purpose_and_folds_what_nobody_installed(
    paraval: Paraval, folder: Path
) -> None:
    env = {"PATH": os.defpath, "HOME": str(folder), "OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}
    lines = paraval("doctor", env=env).stdout.splitlines()
    assert sum("Run models" in line for line in lines) == 1
    (models,) = (line for line in lines if "Run models" in line)
    assert models.startswith("note     Run models: no API key is set; set OPENAI_API_KEY or")
    (agents,) = (line for line in lines if "Run agents" in line)
    assert "none of the known agents is installed (claude-code, codex" in agents
    (race,) = (line for line in lines if "Race code changes" in line)
    assert race.startswith("ok       Race code changes: git 2.")
    listed = paraval("doctor", "-v", env=env).stdout
    assert "codex: not installed: npm install" in listed
    assert "note     key           OPENAI_API_KEY is not set" in listed


def test_doctor_ends_with_1_if_git_is_missing(paraval: Paraval, folder: Path) -> None:
    ended = paraval("doctor", env={"PATH": str(folder)})
    assert ended.returncode == 1
    assert "missing  Race code changes: git is not on PATH; install it: https" in ended.stdout
    assert "Something essential is missing." in ended.stdout


def test_doctor_checks_what_a_suite_needs(suite: Path, write: WriteSuite, paraval: Paraval) -> None:
    ended = paraval("doctor", "suite.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "suite.yaml can run here." in ended.stdout
    write(
        "chat.yaml",
        """
        models: {m: {provider: openai, model: gpt, api_key_env: A_KEY_OF_MINE}}
        cases: [{id: a, input: hi}]
        target: {chat: {model: m, prompt: "{input}"}}
        """,
    )
    ended = paraval("doctor", "chat.yaml")
    assert ended.returncode == 1, ended.stderr
    assert "missing  Needed by chat: A_KEY_OF_MINE is not set" in ended.stdout
    assert "chat.yaml cannot run here yet." in ended.stdout
    ended = paraval("doctor", "chat.yaml", env={"A_KEY_OF_MINE": "sk-very-secret"})
    assert ended.returncode == 0
    assert "ok       Needed by chat: A_KEY_OF_MINE is set" in ended.stdout
    assert "sk-very-secret" not in ended.stdout


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ('["{python}", -m, no_such_module]', "has no module no_such_module"),
        ('["{python}", -m, pytest, -q, lost.py]', "there is no lost.py"),
        ('["{python}", -m, pytest, -q, here.py]', ""),
    ],
)
def test_doctor_checks_the_modules_and_test_files_of_graders(
    write: WriteSuite, paraval: Paraval, command: str, problem: str
) -> None:
    write("here.py", "")
    graders = f"graders: [{{command: {command}}}]\n"
    write("suite.yaml", f"cases: [{{id: a}}]\ntarget: {{command: ['true']}}\n{graders}")
    ended = paraval("doctor", "suite.yaml")
    assert ended.returncode == bool(problem), ended.stdout + ended.stderr
    assert problem in ended.stdout


def test_plan_says_which_key_is_missing(write: WriteSuite, paraval: Paraval) -> None:
    write(
        "suite.yaml",
        """
        models: {m: {provider: openai, model: gpt, api_key_env: A_KEY_OF_MINE}}
        cases: [{id: a, input: hi}]
        target: {chat: {model: m, prompt: "{input}"}}
        """,
    )
    needed = "A run would fail to start here: model 'm' needs A_KEY_OF_MINE."
    assert needed in paraval("plan", "suite.yaml").stdout
    write(".env", "A_KEY_OF_MINE=sk-1\n")
    assert needed not in paraval("plan", "suite.yaml").stdout


def test_doctor_names_an_agent_of_the_suite_that_is_not_installed(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", "cases: [{id: a, input: hi}]\ntarget: {agent: codex, prompt: '{input}'}\n")
    ended = paraval("doctor", "suite.yaml", env={"PATH": os.defpath, "HOME": str(folder)})
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "codex" in ended.stdout


def test_doctor_shows_which_agents_are_here_and_needs_none(paraval: Paraval, folder: Path) -> None:
    (folder / "bin").mkdir()
    claude = folder / "bin" / "claude"
    claude.write_text("#!/bin/sh\necho '9.8.7 (Claude Code)'\n")
    claude.chmod(0o755)
    env = {
        "PATH": f"{folder / 'bin'}:{os.defpath}",
        "HOME": str(folder),
        "ANTHROPIC_API_KEY": "sk-very-secret",
        "OPENAI_API_KEY": "",
    }
    ended = paraval("doctor", "--json", env=env)
    assert ended.returncode == 0, "no agent is needed"
    rows = [row for row in json.loads(ended.stdout) if row["name"] == "agent"]
    (here,) = (row for row in rows if row["text"].startswith("claude-code"))
    assert here["mark"] == "ok"
    assert "9.8.7" in here["text"]
    (missing,) = (row for row in rows if row["text"].startswith("codex"))
    assert missing["mark"] == "note"
    assert "not installed" in missing["text"]
    assert "sk-very-secret" not in ended.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(paraval: Paraval, command: str) -> None:
    ended = paraval(command, "--help")
    assert ended.returncode == 0
    assert ended.stdout.startswith("Usage: ")
    assert re.search(f"\n  Examples?:\n    paraval {command}", ended.stdout)


def test_the_help_groups_every_command_by_task(paraval: Paraval) -> None:
    printed = paraval("--help").stdout
    heads = [printed.index(f"\n{heading}:\n") for heading in ("Run", "Read results", "Set up")]
    assert heads == sorted(heads)
    assert printed.count("\n  Example: paraval ") == 3
    for name in COMMANDS:
        assert printed.count(f"\n  {name} ") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("rn",), "No such command 'rn'. Did you mean 'run' or 'runs'?"),
        (("Compare",), "No such command 'Compare'. Did you mean 'compare'?"),
        (("baseline", "sett", "last"), "No such command 'sett'. Did you mean 'set'?"),
        (("xyzzy",), "No such command 'xyzzy'."),
    ],
)
def test_an_unknown_command_is_answered_with_those_like_it(
    paraval: Paraval, arguments: tuple[str, ...], said: str
) -> None:
    ended = paraval(*arguments)
    assert ended.returncode == 2
    assert ended.stderr.endswith(f"Error: {said}\n")


def test_printed_commands_work_where_paraval_is_not_on_the_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = folder / "venv" / "bin" / "paraval"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", os.defpath)
    assert own_name() == "venv/bin/paraval"
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_name() == "paraval"


# ---- which suites run


def test_without_a_suite_the_one_in_the_folder_is_taken(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    for command in ("run", "plan"):
        ended = paraval(command)
        assert ended.returncode == 2
        assert "there is no suite.yaml in this folder" in ended.stderr
        assert "paraval init" in ended.stderr
    write("suite.toml", '[target]\ncommand = ["true"]\n[[cases]]\nid = "from-toml"\n')
    assert "from-toml" in paraval("plan").stdout
    write("suite.yaml", SUITE)
    assert "6 trials in" in paraval("run").stdout
    assert "6 trials" in paraval("plan").stdout


def test_a_folder_runs_all_its_suites_and_exits_with_the_worst_code(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    for place in ("evals/deep", "evals/.hidden", "evals/empty", "out"):
        (folder / place).mkdir(parents=True)
    write("evals/good.yaml", SUITE.replace("small", "good").replace("expect: x", "expect: c"))
    write("evals/deep/suite.yaml", SUITE.replace("small", "bad"))
    write("evals/.hidden/suite.yaml", SUITE)
    write("evals/cases.json", '[{"id": "a"}]')
    write("evals/notes.yaml", "a: [1\n# no target\n")
    flags = ("--progress", "lines", "-o", "out/{suite}.json")
    ended = paraval("run", "evals", "--fail-under", "1", *flags)
    assert ended.returncode == 1, ended.stderr
    assert "Found 2 suites in evals: good.yaml, deep/suite.yaml\n" in ended.stderr
    assert "Skipped 1 file in evals (no 'target' key): cases.json\n" in ended.stderr
    assert "Skipped 1 file in evals (not valid YAML: " in ended.stderr
    *_, heading, good, bad = ended.stdout.splitlines()
    assert heading.split() == ["suite", "gate", "pass", "rate", "cost", "run"]
    ids = [run["id"] for run in json.loads(paraval("runs", "--json").stdout)]
    assert good.split() == ["good", "passed", "100%", "-", ids[1]]
    assert bad.split() == ["bad", "failed", "66.7%", "-", ids[0]]
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "deep-suite.json",
        "good.json",
    ]
    # A suite that cannot be read counts most, and the others run all the same.
    write("evals/broken.yaml", "target: [1\n")
    ended = paraval("run", "evals", "--progress", "json")
    assert ended.returncode == 2
    assert ended.stdout.splitlines()[-3].split()[:2] == ["evals/broken.yaml", "error"]
    assert "error: evals/broken.yaml:" in ended.stderr
    assert not paraval("run", "evals/good.yaml", "evals/deep", "--case", "a").returncode
    nothing = paraval("run", "evals/empty")
    assert nothing.returncode == 2
    assert "there is no suite in evals/empty" in nothing.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-o", "report.html"), "2 suites cannot share one report file"),
        (("-o", "{suite}/report.html"), "2 suites cannot share one report file"),
    ],
)
def test_what_is_for_one_suite_is_refused_for_several(
    write: WriteSuite, paraval: Paraval, folder: Path, flags: tuple[str, ...], said: str
) -> None:
    write("a.yaml", SUITE)
    write("b.yaml", SUITE)
    ended = paraval("run", ".", *flags)
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr
    assert not (folder / ".paraval").exists()
    planned = paraval("plan", ".")
    assert (planned.returncode, "a.yaml, b.yaml" in planned.stderr) == (2, True)


def test_an_interrupt_ends_all_suites(write: WriteSuite, folder: Path) -> None:
    write("a.yaml", "cases: [{id: a}]\ntarget: {command: [sleep, '60']}\n")
    write("b.yaml", "cases: [{id: a}]\ntarget: {command: ['true']}\n")
    engine = subprocess.Popen(
        [sys.executable, "-m", "paraval", "run", ".", "--progress", "lines", "-v"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert engine.stderr is not None
    while "[0/1]" not in (line := engine.stderr.readline()) and line:
        pass
    engine.send_signal(signal.SIGINT)
    printed, told = engine.communicate(timeout=60)
    assert engine.returncode == 130, told
    assert "interrupted" in printed.splitlines()[-1]
    assert told.endswith("Not run: b.yaml\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("schema", 141),
        ("run suite.yaml --case a", 0),
        ("run suite.yaml --case a 2>&1", 0),
        ("run suite.yaml --fail-under 1", 1),
        ("plan suite.yaml", 141),
    ],
)
def test_a_reader_who_has_gone_is_no_traceback_and_hides_no_verdict(
    suite: Path, folder: Path, arguments: str, code: int
) -> None:
    script = f"{{ {sys.executable} -m paraval {arguments}; echo $? >code; }} | true"
    ended = subprocess.run(
        ["sh", "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in ended.stderr
    assert "Error" not in ended.stderr
    assert int((folder / "code").read_text()) in (code, 0 if code == 141 else code)


@pytest.mark.parametrize(
    "redirection", ["| true", ">/dev/full", ">&-", "2>/dev/full", "2>&-", "2>&1 | true"]
)
def test_files_are_written_whatever_becomes_of_the_streams(
    suite: Path, folder: Path, redirection: str
) -> None:
    command = f"{sys.executable} -m paraval run suite.yaml --case a -o r.json {redirection}"
    subprocess.run(["sh", "-c", command], cwd=folder, capture_output=True, check=False)
    assert json.loads((folder / "r.json").read_text())["summary"]["passed"] == 2


def test_a_function_that_will_not_end_does_not_hold_up_the_program(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "holding.py",
        """
        import asyncio, time

        print("imported")

        async def f(case):
            await asyncio.to_thread(time.sleep, 60)
        """,
    )
    write(
        "suite.yaml",
        "cases: [{id: a}]\ntarget: {python: 'holding:f', timeout: 0.3, grace: 0.1}\n",
    )
    began = time.monotonic()
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 3
    assert time.monotonic() - began < 30
    assert "imported" not in ended.stdout
    assert json.loads(paraval("plan", "suite.yaml", "--json").stdout)["trials"] == 1


def test_a_full_disk_behind_stdout_hides_no_verdict(suite: Path, folder: Path) -> None:
    command = f"{sys.executable} -m paraval run suite.yaml --case a --progress none > /dev/full"
    ended = subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0
    assert "could not be printed" in ended.stderr


# ---- what is loaded

HEAVY = ("pydantic", "rich", "yaml", "psutil", "jsonschema", "aiohttp", "jinja2")


HELP = """
import runpy
sys.argv = ["paraval", "--help"]
try:
    runpy.run_module("paraval", run_name="__main__")
except SystemExit:
    pass
"""


@pytest.mark.parametrize("code", ["import paraval\n", HELP], ids=["import", "--help"])
def test_nothing_heavy_is_loaded_before_it_is_used(code: str) -> None:
    script = f"import sys\n{code}print(*sorted(sys.modules), file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    loaded = {name.partition(".")[0] for name in ended.stderr.split()}
    assert not loaded & set(HEAVY)


NOT_BEFORE_THE_FIRST_REQUEST = (
    *("yaml", "jinja2", "rich", "jsonschema", "genai_prices", "xml"),
    *("paraval.report.contents", "paraval.report.report", "paraval.runner.stored_runs"),
    *("paraval.runner.baseline", "paraval.statistics.pairs", "paraval.cli.run_report"),
    *("paraval.agents", "paraval.grade.mentions", "paraval.workspaces.pool"),
    *("paraval.importers", "paraval.loopback", "paraval.racing", "paraval.pytest_plugin"),
    *("paraval.view", "paraval.runner.cluster.nodes"),
)


def test_a_chat_run_sends_its_first_request_before_it_loads_what_it_does_not_need_yet(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        suite = {
            "cases": [{"id": "a", "input": "b", "expect": "b"}],
            "models": {"m": {"provider": "openai", "model": "m", "base_url": url}},
            "target": {"chat": {"model": "m", "prompt": "{input}"}},
            "graders": ["contains"],
        }
        (tmp_path / "suite.json").write_text(json.dumps(suite))
        command = [sys.executable, "-X", "importtime", "-m", "paraval", "run", "suite.json"]
        with (tmp_path / "imports").open("w") as imports:
            process = subprocess.Popen(command, cwd=tmp_path, stderr=imports)
        try:
            server.settimeout(30)
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
        finally:
            process.kill()
            process.wait()
    lines = (tmp_path / "imports").read_text().splitlines()
    loaded = {line.rpartition("|")[2].strip() for line in lines if "|" in line}
    assert "aiohttp" in loaded
    early = [one for one in NOT_BEFORE_THE_FIRST_REQUEST if one in loaded]
    assert early == []


def test_logs_show_what_graders_printed_and_are_chosen_by_variant_and_repeat(
    write: WriteSuite, paraval: Paraval
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a}]
        matrix: {mode: [fast, slow]}
        repeats: 2
        target: {command: [echo, "{mode}"]}
        graders:
          - command: {command: [sh, -c, "echo tested {mode}; echo oh >&2"], name: tests}
          - python: judging:judge
        """,
    )
    write("judging.py", "def judge(output, case):\n    print('judged')\n    return True\n")
    paraval("run", "suite.yaml")
    chosen = ("--variant", "mode=slow", "--repeat", "2")
    printed = paraval("logs", "last", *chosen).stdout
    title = "==> a · slow · #2 · attempt 1"
    assert printed == (
        f"{title} · stdout <==\nslow\n"
        f"{title} · tests.stdout <==\ntested slow\n"
        f"{title} · tests.stderr <==\noh\n"
        f"{title} · graders.stdout <==\njudged\n"
    )
    assert paraval("logs", "last", *chosen, "--stream", "stdout").stdout == "slow\n"
    [row] = json.loads(paraval("logs", "last", *chosen, "--json").stdout)
    assert list(row["graders"]) == ["tests.stdout", "tests.stderr", "graders.stdout"]
    assert Path(row["graders"]["tests.stdout"]).read_text() == "tested slow\n"
    assert paraval("logs", "last", "--variant", "mode=none").returncode == 2
