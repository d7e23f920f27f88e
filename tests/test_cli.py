"""The commands as a user types them: what goes to stdout, what to stderr, and the exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

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
        ((), 1),
        (("--fail-under", "0.6"), 0),
        (("--fail-under", "0.7"), 1),
        (("--case", "a"), 0),
        (("--case", "nothing-like-it"), 2),
        (("--variant", "model=three"), 2),
        (("--variant", "model"), 2),
        (("--tag", "smoke"), 2),
        (("-o", "report.docx"), 2),
        (("-o", "no/such/folder/report.json"), 2),
        (("--resume", "no-such-run"), 2),
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
    assert "(not counted as failures)" in ended.stdout


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
    assert paraval("run", "suite.yaml", "-j", "5000").returncode == 1


# ---- what is printed where


def test_the_report_goes_to_stdout_and_progress_to_stderr(suite: Path, paraval: Paraval) -> None:
    ended = paraval("run", "suite.yaml")
    assert "6 trials in" in ended.stdout
    assert "[1/6]" in ended.stderr
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
    assert ended.returncode == 1
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
    ended = paraval("run", "suite.yaml", "--budget", "0.1")
    assert ended.returncode == 3, ended.stderr
    assert "2 skipped: budget: $0.10 would be passed" in ended.stdout
    (run,) = json.loads(paraval("runs", "--json").stdout)
    assert (run["state"], run["done"]) == ("held_back", 2)
    assert f"Go on with: paraval resume {run['id']} --budget 0.2\n" in ended.stderr
    assert " of $0.10)" in ended.stderr, "what was spent, as it goes on"
    assert paraval("report").returncode == 3

    ended = paraval("resume", run["id"], "--budget", "20")
    assert ended.returncode == 0, ended.stderr
    assert "4 trials in" in ended.stdout
    assert "Go on" not in ended.stderr


def test_what_was_asked_before_is_free_and_a_plan_knows_it(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", CHATS)
    first = paraval("run", "suite.yaml", "--models", "cheap", "-o", "first.json")
    assert "Cost: $0.00" in first.stdout
    plan = paraval("plan", "suite.yaml")
    assert "2 of 4 answers are in the cache, free." in plan.stdout
    again = paraval("run", "suite.yaml", "--models", "cheap", "-o", "again.json")
    assert "Cost: $0.00\nCached: 2 of 2 answers\n" in again.stdout
    first_sum, again_sum = (
        json.loads((folder / name).read_text())["summary"] for name in ("first.json", "again.json")
    )
    assert (first_sum["calls"], first_sum["cached"]) == (2, 0)
    assert (again_sum["calls"], again_sum["cached"], again_sum["cost_usd"]) == (0, 2, 0.0)
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
    assert len(paraval("runs").stdout.splitlines()) == 2
    assert paraval("report", "last", "-o", "r.json").returncode == 0
    report = json.loads((folder / "r.json").read_text())
    assert report["run"]["id"] == listed[0]["id"]
    assert report["trials"][0]["case"] == "b"
    shown = json.loads(paraval("report", listed[1]["id"], "--json").stdout)
    assert shown["trials"][0]["case"] == "a"


def test_a_report_ends_with_the_runs_own_exit_code(suite: Path, paraval: Paraval) -> None:
    assert paraval("run", "suite.yaml").returncode == 1
    assert paraval("report").returncode == 1


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
    assert "No runs yet" in paraval("runs").stderr
    ended = paraval("report")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_logs_are_whole_and_by_attempt(write: WriteSuite, paraval: Paraval) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a}, {id: b}]
        target: {shell: true, command: "for i in 1 2 3; do echo {case.id}; sleep 0.05; done"}
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
    assert again.startswith("a · attempt 1 <==\ninfra_error: ")
    assert "503" in again
    assert answered.startswith("a · attempt 2 <==\npassed\ncost: $0.00")
    assert answered.endswith("answer:\nsay a\n")
    assert wrong.startswith("b · attempt 1 <==\ncrashed: ")
    alone = paraval("logs", "--case", "b").stdout
    assert alone == f"==> {wrong}", "it tells of the attempt, so that it is named"
    rows = json.loads(paraval("logs", "--json").stdout)
    assert [row["output"] for row in rows] == [None, "say a", None]
    assert rows[1]["cost_usd"] > 0
    assert "503" in rows[0]["message"]
    assert paraval("logs", "--stream", "stdout").stdout == ""


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
    assert "No estimate" in before.stdout
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
    assert "as many at once as the machine carries, " in planned[0]
    assert planned[1] == f"each in a copy of {folder / 'template'}"
    assert "at most 1 at once of lock:db" in planned
    assert "1 trial with nothing beside" in planned
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
    assert paraval("init", "new").returncode == 0
    ended = paraval("run", "new/suite.yaml")
    assert ended.returncode == 0, ended.stderr
    assert "12 trials" in ended.stdout
    again = paraval("init", "new")
    assert again.returncode == 2
    assert "nothing was written" in again.stderr


def test_the_demo_tells_errors_from_wrong_answers(paraval: Paraval, folder: Path) -> None:
    ended = paraval("demo", "--progress", "lines", "-o", "demo.html")
    assert ended.returncode == 0, ended.stderr
    assert "60 trials in" in ended.stdout
    assert "10 failed\n" in ended.stdout
    assert "  sage vs swift    +37 points (+9 to +57)   better\n" in ended.stdout
    assert "sage passes 37 points more than swift" in (folder / "demo.html").read_text()
    assert "2 errors (not counted as failures): 1 timeout, 1 crashed\n" in ended.stdout
    assert "Cost: at least $0." in ended.stdout, "what a timeout cost is not known"
    assert "simulated" in ended.stderr
    (run,) = json.loads(paraval("runs", "--json").stdout)
    assert f"report {run['id']} -o report.html" in ended.stderr, "`last` may be another by then"
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


def test_doctor_tells_what_is_here(paraval: Paraval) -> None:
    found = {row["name"]: row for row in json.loads(paraval("doctor", "--json").stdout)}
    assert {"python", "git", "sqlite", "machine", "store", "sandbox", "trees"} <= set(found)
    assert paraval("doctor").returncode == 0


def test_doctor_tells_which_agents_are_here_and_misses_none(paraval: Paraval, folder: Path) -> None:
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


@pytest.mark.parametrize(
    "command",
    ["run", "resume", "plan", "runs", "report", "logs", "diff", "init", "schema", "demo", "doctor"],
)
def test_every_command_has_help(paraval: Paraval, command: str) -> None:
    ended = paraval(command, "--help")
    assert ended.returncode == 0
    assert ended.stdout.startswith("Usage: ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("schema", 141),
        ("run suite.yaml --case a", 0),
        ("run suite.yaml --case a 2>&1", 0),
        ("run suite.yaml", 1),
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
