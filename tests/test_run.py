"""A suite from its file or from Python to its report, with real processes, threads and files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import paraval as library
from paraval.records import Happening, TrialEnded, TrialResult
from tests.conftest import Paraval, WriteSuite

EXAMPLE = """
    name: greetings
    cases:
      - id: hello
        input: Say hello.
        expect: hello
        tags: [smoke]
      - id: bye
        input: Say bye.
        expect: bye
    matrix:
      model: [small, large]
      mode:
        with-tool: {env: {TOOL: "1"}}
        without-tool: {}
    exclude:
      - {model: large, mode: with-tool}
    repeats: 2
    target:
      command: ["{python}", agent.py, --model, "{model}", "{input}"]
      env: {GREETING: hi}
      pass_env: [API_KEY]
      timeout: 60
    graders: [contains]
    limits:
      parallel: 4
      mode: {with-tool: 1}
    fail_under: 0.9
"""
AGENT = """
    import json, os, sys
    print(sys.argv[-1], os.environ.get("TOOL"), os.environ["GREETING"], os.environ.get("API_KEY"),
          os.environ.get("SECRET"))
    print("thinking", file=sys.stderr)
"""


def report_of(folder: Path, name: str = "report.json") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / name).read_text())
    return loaded


def outcomes(report: library.Report) -> dict[str, str]:
    return {trial.case_id: trial.outcome.value for trial in report.trials}


def run_case(target: Any, *, timeout: float | None = None, **keys: Any) -> library.Report:
    """One case at a Python target."""
    wanted = {"python": target, **({"timeout": timeout} if timeout else {}), **keys}
    suite = library.Suite(cases=[library.Case(id="only")], target=wanted)
    return library.run(suite)


def error_of(report: library.Report) -> tuple[str, str]:
    (trial,) = report.trials
    assert trial.result.error is not None
    return trial.outcome.value, trial.result.error.message


# ---- commands


def test_the_example_suite_runs_and_its_report_has_every_field(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("agent.py", AGENT)
    write("suite.yaml", EXAMPLE)
    ended = paraval(
        "run", "suite.yaml", "-o", "report.json", env={"API_KEY": "k-1", "SECRET": "s-1"}
    )
    assert ended.returncode == 0, ended.stderr
    report = report_of(folder)
    assert {"schema", "run", "summary", "trials"} <= set(report)
    assert {"id", "suite", "started_at", "ended_at", "wall_s", "parallel", "resumed"} <= set(
        report["run"]
    )
    assert report["summary"]["trials"] == 12 == report["summary"]["passed"]
    first = report["trials"][0]
    assert first["case"] == "hello"
    assert first["variant"] == {"model": "small", "mode": "with-tool"}
    assert first["output"].split("\n")[0] == "Say hello. 1 hi k-1 None"
    assert [trial["index"] for trial in report["trials"]] == list(range(12))
    assert "s-1" not in (folder / "report.json").read_text()


def test_selections_narrow_a_run(write: WriteSuite, paraval: Paraval, folder: Path) -> None:
    write("agent.py", AGENT)
    write("suite.yaml", EXAMPLE)
    chosen = ("--tag", "smoke", "--variant", "model=small", "--repeats", "1")
    ended = paraval("run", "suite.yaml", *chosen, "-o", "report.json")
    assert ended.returncode == 0, ended.stderr
    assert report_of(folder)["summary"]["trials"] == 2


@pytest.mark.parametrize(
    ("script", "outcome", "message"),
    [
        ("exit 3", "crashed", "exit code 3"),
        ("echo oh no >&2; exit 1", "crashed", "oh no"),
        ("kill -SEGV $$", "crashed", "SIGSEGV"),
        ("sleep 60", "timeout", "not done after 0.5 s"),
        ("trap '' TERM; sleep 60", "timeout", "not done after 0.5 s"),
    ],
)
def test_how_a_command_ends_decides_the_outcome(
    write: WriteSuite, script: str, outcome: str, message: str
) -> None:
    suite = write(
        "suite.yaml",
        f"""
        cases: [{{id: only}}]
        target: {{command: {json.dumps(script)}, shell: true, timeout: 0.5, grace: 0.2}}
        """,
    )
    got, said = error_of(library.run(suite))
    assert got == outcome
    assert message in said


def test_a_command_that_asks_to_be_tried_again_is(write: WriteSuite, folder: Path) -> None:
    suite = write(
        "suite.yaml",
        """
        cases: [{id: only, expect: done}]
        target:
          shell: true
          command: "[ -e tried ] && echo done || { touch tried; exit 75; }"
        graders: [contains]
        retry: {first_delay: 0.01}
        """,
    )
    report = library.run(suite)
    assert outcomes(report) == {"only": "passed"}
    assert next(iter(report.trials)).attempts == 2


@pytest.mark.parametrize(
    ("printed", "outcome", "message"),
    [
        ('{"text": "hi", "usage": {"tokens": 3}, "extra": 1}', "passed", ""),
        ("hi", "invalid_output", "not JSON"),
        ('{"text": 3}', "invalid_output", "text"),
        ('{"text": "a", "text": "b"}', "invalid_output", "duplicate key"),
        ('{"text": "a", "usage": {"tokens": NaN}}', "invalid_output", "NaN"),
        ("[" * 100_000, "invalid_output", "nested"),
    ],
)
def test_json_output_is_read_strictly(
    write: WriteSuite, folder: Path, printed: str, outcome: str, message: str
) -> None:
    (folder / "answer").write_text(printed)
    suite = write(
        "suite.yaml", "cases: [{id: only}]\ntarget: {command: [cat, answer], output: json}\n"
    )
    report = library.run(suite)
    (trial,) = report.trials
    assert trial.outcome.value == outcome
    if message:
        assert message in error_of(report)[1]
    else:
        assert trial.result.output is not None
        assert trial.result.output.metadata == {"extra": 1}


def test_an_answer_may_be_in_a_file_of_the_attempts_own(write: WriteSuite) -> None:
    suite = write(
        "suite.yaml",
        """
        cases: [{id: a, expect: a}, {id: b, expect: b}]
        target:
          shell: true
          command: "echo noise; echo $case_id > $folder/answer.txt"
          output: "{folder}/answer.txt"
        graders: [equals]
        """,
    )
    assert set(outcomes(library.run(suite)).values()) == {"passed"}


def test_an_answer_may_be_in_a_folder_within_the_attempts_own(write: WriteSuite) -> None:
    suite = write(
        "suite.yaml",
        """
        cases: [{id: a, expect: a}]
        target:
          shell: true
          command: "mkdir $folder/sub && echo a > $folder/sub/answer.txt"
          output: "{folder}/sub/answer.txt"
        graders: [equals]
        """,
    )
    assert outcomes(library.run(suite)) == {"a": "passed"}


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("stdin", '{command: [cat], stdin: "{input}"}'),
        ("prompt", '{agent: custom, command: [cat, "{prompt}"], prompt: "{input}"}'),
        ("command[1]", '{command: [echo, "{input}"]}'),
        ("command", '{command: "echo $input", shell: true}'),
    ],
)
def test_half_of_a_surrogate_pair_is_an_error_of_the_suite(
    write: WriteSuite, key: str, target: str
) -> None:
    write("cases.jsonl", '{"id": "half", "input": "\\ud800"}\n')
    suite = write("suite.yaml", f"cases: cases.jsonl\ntarget: {target}\n")
    with pytest.raises(library.SuiteError) as refused:
        library.run(suite)
    [problem] = refused.value.problems
    assert (problem.line, problem.key) == (2, f"target.{key}")
    assert problem.message.removeprefix("$input").removeprefix("{input}") == (
        " for case 'half': the value contains half of a surrogate pair, which is not valid text"
    )


def test_a_script_is_handed_the_text_of_cases_and_does_not_run_it(
    write: WriteSuite, folder: Path
) -> None:
    place = folder / "it's $(touch run) here"
    place.mkdir()
    hostile = "$(touch run) `touch run` '; touch run; \""
    suite = write(
        f"{place.name}/suite.yaml",
        f"""
        cases: [{{id: only, input: {json.dumps(hostile)}, expect: {json.dumps(hostile)}}}]
        target:
          shell: true
          command: |
            [ "$suite" = "$PWD" ] && cat <<END
            $input
            END
        graders: [equals]
        """,
    )
    assert outcomes(library.run(suite)) == {"only": "passed"}
    assert not list(folder.rglob("run"))


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("true", "answer.txt"),
        ("mkfifo $folder/answer.txt", "answer.txt"),
        ("ln -s /etc/hostname $folder/answer.txt", "answer.txt"),
        ("ln -s /etc $folder/sub", "sub/hostname"),
        ("mkdir $folder/a && ln -s /etc $folder/a/b", "a/b/hostname"),
    ],
)
def test_an_answer_file_that_is_none_is_invalid_output(
    write: WriteSuite, script: str, place: str
) -> None:
    suite = write(
        "suite.yaml",
        f"""
        cases: [{{id: only}}]
        target: {{shell: true, command: "{script}", output: "{{folder}}/{place}"}}
        """,
    )
    assert error_of(library.run(suite))[0] == "invalid_output"


def test_commands_run_side_by_side(write: WriteSuite) -> None:
    cases = "\n".join(f"  - {{id: c{i}}}" for i in range(10))
    suite = write("suite.yaml", f"cases:\n{cases}\ntarget: {{command: [sleep, '0.5']}}\n")
    report = library.run(suite, parallel=10)
    assert report.run.wall_s < 3.5
    assert report.summary.serial_s >= 5


# ---- functions


def test_an_async_function_gets_the_case_and_the_variant(folder: Path) -> None:
    async def answer(case: library.Case, variant: Mapping[str, Any]) -> str:
        return f"{case.input} {variant['temperature'] + 1}"

    suite = library.Suite(
        cases=[library.Case(id="a", input="x", expect="x 1.5")],
        target=answer,
        matrix={"temperature": [0.5]},
        graders=["equals"],
    )
    assert outcomes(library.run(suite)) == {"a": "passed"}


def test_what_an_async_grader_sets_for_itself_is_not_seen_by_others(folder: Path) -> None:
    judged: ContextVar[str] = ContextVar("judged", default="nothing")

    async def answer(case: library.Case) -> str:
        await asyncio.sleep(0.01)
        return judged.get()

    async def grade(output: library.Output, case: library.Case) -> bool:
        before = judged.get()
        judged.set(case.id)
        await asyncio.sleep(0)
        return before == output.text == "nothing"

    cases = [library.Case(id=f"c{i}", input="x") for i in range(40)]
    suite = library.Suite(cases=cases, target=answer, graders=[grade])
    assert set(outcomes(library.run(suite, parallel=4)).values()) == {"passed"}


def recorded_starts(folder: Path) -> int:
    (file,) = folder.glob(".paraval/runs/*/run.db")
    with contextlib.closing(sqlite3.connect(file)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM attempt").fetchone()
    return int(count)


@pytest.mark.parametrize(("budget", "recorded"), [(None, 4), ({"usd": 5, "per_attempt_usd": 1}, 2)])
def test_starts_are_recorded_ahead_unless_they_would_use_up_a_budget(
    folder: Path, budget: dict[str, float] | None, recorded: int
) -> None:
    starts: list[int] = []

    async def answer(case: library.Case) -> library.Output:
        await asyncio.sleep(0.3)
        if not starts:
            starts.append(recorded_starts(folder))
        return library.Output(text="x", cost_usd=0.01)

    cases = [library.Case(id=f"c{i}", input="x", expect="x") for i in range(8)]
    suite = library.Suite(cases=cases, target=answer, graders=["equals"], budget=budget)
    assert set(outcomes(library.run(suite, parallel=2)).values()) == {"passed"}
    assert starts == [recorded]


def test_sync_functions_use_as_many_threads_as_the_limits_allow(folder: Path) -> None:
    together = threading.Barrier(60, timeout=60)

    def answer(case: library.Case) -> str:
        together.wait()
        return case.id

    suite = library.Suite(cases=[library.Case(id=f"c{i}") for i in range(60)], target=answer)
    assert set(outcomes(library.run(suite, parallel=60)).values()) == {"passed"}


def test_a_sync_function_that_outlasts_its_timeout_is_recorded_at_once(folder: Path) -> None:
    release = threading.Event()

    def answer(case: library.Case) -> str:
        release.wait(60)
        return ""

    began = time.monotonic()
    report = run_case(answer, timeout=0.3)
    release.set()
    assert time.monotonic() - began < 30
    assert error_of(report)[0] == "timeout"
    (trial,) = report.trials
    assert "isolate: process" in " ".join(trial.result.notes)


def test_an_async_function_that_will_not_be_cancelled_is_left_behind(folder: Path) -> None:
    async def stubborn(case: library.Case) -> str:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)

    began = time.monotonic()
    report = run_case(stubborn, timeout=0.2, grace=0.2)
    assert error_of(report)[0] == "timeout"
    assert time.monotonic() - began < 20


async def _raises(case: library.Case) -> str:
    raise ValueError("no such model")


async def _exits(case: library.Case) -> str:
    raise SystemExit(3)


async def _none(case: library.Case) -> None:
    return None


async def _huge(case: library.Case) -> str:
    return "x" * (2 << 20)


@pytest.mark.parametrize(
    ("target", "outcome", "message"),
    [
        (_raises, "crashed", "ValueError: no such model"),
        (_exits, "crashed", "sys.exit(3)"),
        (_none, "invalid_output", "returned NoneType"),
        (_huge, "invalid_output", "2,097,152 characters"),
    ],
)
def test_what_a_function_does_decides_the_outcome(
    folder: Path, target: Callable[..., Any], outcome: str, message: str
) -> None:
    got, said = error_of(run_case(target))
    assert got == outcome
    assert message in said


def test_a_function_may_say_that_it_was_refused_or_that_a_service_failed(folder: Path) -> None:
    calls: list[str] = []

    async def answer(case: library.Case) -> library.Output:
        calls.append("call")
        if len(calls) == 1:
            raise library.RateLimitedError(retry_after=0.01)
        if len(calls) == 2:
            raise library.TransientError("the service is down")
        return library.Output(text="fine", usage={"tokens": 7}, cost_usd=0.25)

    suite = library.Suite(cases=[library.Case(id="a")], target=answer, retry={"first_delay": 0.01})
    report = library.run(suite)
    assert outcomes(report) == {"a": "passed"}
    assert report.summary.cost_usd == 0.25
    assert len(calls) == 3


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("error", "outcome", "attempts"),
    [
        (library.RateLimitedError(retry_after="0.01"), "rate_limited", 20),
        (library.RateLimitedError(retry_after=float("nan")), "rate_limited", 20),
        (library.RateLimitedError(2.0), "rate_limited", 20),
        (library.TransientError(ValueError("wrapped")), "infra_error", 3),
        (_UnspeakableError(), "crashed", 1),
        (RuntimeError("half a pair: \ud800"), "crashed", 1),
        (GeneratorExit(), "crashed", 1),
        (KeyboardInterrupt(), "crashed", 1),
    ],
)
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_whatever_a_function_raises_is_its_own_end_and_not_the_engines(
    folder: Path, error: BaseException, outcome: str, attempts: int, kind: str
) -> None:
    async def waiting(case: library.Case) -> str:
        raise error

    def blocking(case: library.Case) -> str:
        raise error

    target = waiting if kind == "async" else blocking
    retry = {"first_delay": 0.001, "longest_delay": 0.001}
    suite = library.Suite(cases=[library.Case(id="only")], target=target, retry=retry)
    report = library.run(suite)
    assert error_of(report)[0] == outcome
    assert next(iter(report.trials)).attempts == attempts
    assert outcome.replace("_", " ") in str(report)


def test_what_an_isolated_function_printed_before_it_hung_is_in_its_logs(write: WriteSuite) -> None:
    write("hanging.py", "import time\n\ndef f(case):\n    print('step 1')\n    time.sleep(60)\n")
    suite = write(
        "suite.yaml",
        "cases: [{id: a}]\n"
        "target: {python: 'hanging:f', isolate: process, timeout: 0.5, grace: 0.1}\n",
    )
    report = library.run(suite)
    (trial,) = report.trials
    assert trial.outcome == "timeout"
    log = Path(report.run.folder, trial.result.artifacts["stdout"])
    assert log.read_text() == "step 1\n"


def test_what_functions_print_is_kept_apart_and_off_the_screen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(case: library.Case) -> str:
        for _ in range(3):
            print(case.id)
            await asyncio.sleep(0.01)
        return ""

    suite = library.Suite(cases=[library.Case(id=f"c{i}") for i in range(5)], target=answer)
    report = library.run(suite, parallel=5)
    assert capsys.readouterr().out == ""
    for trial in report.trials:
        log = Path(report.run.folder, trial.result.artifacts["stdout"]).read_text()
        assert log == f"{trial.case_id}\n" * 3


def test_a_function_that_closes_stdout_closes_nobody_elses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(case: library.Case) -> str:
        sys.stdout.close()
        print("still here")
        return ""

    report = run_case(answer)
    print("and here")
    assert outcomes(report) == {"only": "passed"}
    assert capsys.readouterr().out == "and here\n"


def test_what_one_attempt_does_to_its_case_does_not_show_in_another(folder: Path) -> None:
    async def answer(case: library.Case) -> str:
        case.input["seen"] = case.input.get("seen", 0) + 1
        return str(case.input["seen"])

    suite = library.Suite(
        cases=[library.Case(id="a", input={"q": 1}, expect="1")],
        target=answer,
        graders=["equals"],
        repeats=3,
    )
    assert library.run(suite).summary.passed == 3


def test_what_graders_print_is_kept_off_the_screen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def judge(output: library.Output, case: library.Case) -> bool:
        print("I judge", case.id)
        return True

    async def answer(case: library.Case) -> str:
        return ""

    suite = library.Suite(cases=[library.Case(id="a")], target=answer, graders=[judge])
    report = library.run(suite)
    (trial,) = report.trials
    assert capsys.readouterr().out == ""
    log = Path(report.run.folder, trial.result.artifacts["graders.stdout"])
    assert log.read_text() == "I judge a\n"


def test_a_huge_message_is_cut(folder: Path) -> None:
    async def answer(case: library.Case) -> str:
        raise ValueError("z" * 3_000_000)

    assert len(error_of(run_case(answer))[1]) < 5000


def test_a_run_inside_a_running_loop(folder: Path) -> None:
    async def answer(case: library.Case) -> str:
        return "hello"

    async def main() -> library.Report:
        suite = library.Suite(
            cases=[library.Case(id="a", expect="hello")], target=answer, graders=["equals"]
        )
        return await library.run_async(suite, parallel=2)

    assert asyncio.run(main()).exit_code == 0


def test_a_run_in_a_thread_that_is_not_the_main_one(folder: Path) -> None:
    async def answer(case: library.Case) -> str:
        return "hello"

    reports: list[library.Report] = []
    suite = library.Suite(cases=[library.Case(id="a")], target=answer)
    thread = threading.Thread(target=lambda: reports.append(library.run(suite)))
    thread.start()
    thread.join()
    assert reports[0].exit_code == 0


# ---- isolated functions


ISOLATED = """
    import os, subprocess, sys, time

    def behave(case):
        match case.input:
            case "exit": os._exit(7)
            case "crash": os.kill(os.getpid(), 11)
            case "hang": time.sleep(600)
            case "leak": subprocess.Popen(["sleep", "600"], start_new_session=True)
            case "pid": return str(os.getpid())
            case "sys.exit": sys.exit(5)
            case "base": raise BaseException("not one of ours")
            case "no stdout": sys.stdout = None; return "fine"
        print("printed by", case.id)
        return "fine"

    def main_pid(case):
        return str(os.getppid())
"""


def test_an_isolated_function_that_ends_its_worker_is_reported_with_its_exit_code(
    write: WriteSuite,
) -> None:
    write("behavior.py", ISOLATED)
    suite = write(
        "suite.yaml",
        """
        cases:
          - {id: exit, input: sys.exit}
          - {id: base, input: base}
          - {id: quiet, input: no stdout}
        target: {python: 'behavior:behave', isolate: process, timeout: 60}
        """,
    )
    report = library.run(suite)
    messages = {t.case_id: t.result.error.message for t in report.trials if t.result.error}
    assert messages["exit"] == "its process ended: exit code 5"
    assert messages["base"].startswith("its process ended: exit code 1")
    assert "not one of ours" in messages["base"]
    assert outcomes(report)["quiet"] == "passed"


def test_an_isolated_crash_exit_or_hang_costs_that_attempt_alone(write: WriteSuite) -> None:
    write("behavior.py", ISOLATED)
    inputs = ["exit", "fine", "crash", "fine", "hang", "fine", "leak", "fine"]
    cases = "\n".join(f"  - {{id: c{i}, input: {what}}}" for i, what in enumerate(inputs))
    suite = write(
        "suite.yaml",
        f"cases:\n{cases}\n"
        "target: {python: 'behavior:behave', isolate: process, timeout: 5, grace: 0.2}\n",
    )
    report = library.run(suite, parallel=3)
    expected = {"exit": "crashed", "crash": "crashed", "hang": "timeout"}
    assert outcomes(report) == {
        f"c{i}": expected.get(what, "passed") for i, what in enumerate(inputs)
    }
    messages = {t.case_id: t.result.error.message for t in report.trials if t.result.error}
    assert "exit code 7" in messages["c0"]
    assert "SIGSEGV" in messages["c2"]
    logs = [
        Path(report.run.folder, trial.result.artifacts["stdout"]).read_text()
        for trial in report.trials
        if trial.case_id in {"c1", "c3", "c5"}
    ]
    assert logs == ["printed by c1\n", "printed by c3\n", "printed by c5\n"]


def test_modules_beside_the_suite_do_not_stand_in_for_pythons_own_in_a_worker(
    write: WriteSuite,
) -> None:
    write("queue.py", "raise RuntimeError('not the one')\n")
    write("beside.py", "def f(case): return 'fine'\n")
    suite = write(
        "suite.yaml", "cases: [{id: a}]\ntarget: {python: 'beside:f', isolate: process}\n"
    )
    assert outcomes(library.run(suite)) == {"a": "passed"}


def test_a_fork_that_a_function_lets_run_on_gives_no_answers(write: WriteSuite) -> None:
    write(
        "forking.py",
        """
        import os

        def f(case):
            if case.id == "c2" and os.fork() == 0:
                raise ValueError("in the child")
            return "answer of " + case.id
        """,
    )
    cases = "\n".join(f"  - {{id: c{i}, expect: answer of c{i}}}" for i in range(8))
    suite = write(
        "suite.yaml",
        f"cases:\n{cases}\ntarget: {{python: 'forking:f', isolate: process}}\ngraders: [equals]\n",
    )
    assert set(outcomes(library.run(suite, parallel=1)).values()) == {"passed"}


def test_workers_stay_warm_between_attempts(write: WriteSuite) -> None:
    write("behavior.py", ISOLATED)
    cases = "\n".join(f"  - {{id: c{i}, input: pid}}" for i in range(12))
    suite = write(
        "suite.yaml",
        f"cases:\n{cases}\ntarget: {{python: 'behavior:behave', isolate: process}}\n",
    )
    report = library.run(suite, parallel=3)
    pids = {trial.result.output.text for trial in report.trials if trial.result.output}
    assert 1 <= len(pids) <= 3
    assert str(os.getpid()) not in pids


def test_isolated_functions_get_the_environment_of_their_variant(write: WriteSuite) -> None:
    write("behavior.py", "import os\n\ndef tell(case): return os.environ['WHO']\n")
    cases = "\n".join(f"  - {{id: c{i}}}" for i in range(6))
    suite = write(
        "suite.yaml",
        f"cases:\n{cases}\nmatrix: {{model: [a, b]}}\n"
        "target: {python: 'behavior:tell', isolate: process, env: {WHO: '{case.id} {model}'}}\n",
    )
    report = library.run(suite, parallel=2)
    told = [trial.result.output.text for trial in report.trials if trial.result.output]
    assert told == [f"c{i} {model}" for i in range(6) for model in "ab"]


class Grumpy:
    """An onlooker that raises at the first trial that ends."""

    def __call__(self, event: Happening) -> None:
        if isinstance(event, TrialEnded):
            raise ZeroDivisionError("grumpy")

    def tick(self, now: float) -> None: ...


def test_an_onlooker_that_raises_ends_the_run_and_is_heard(folder: Path) -> None:
    async def answer(case: library.Case) -> str:
        return ""

    cases = [library.Case(id=f"c{i}") for i in range(50)]
    suite = library.Suite(cases=cases, target=answer)
    with pytest.raises(ZeroDivisionError, match="grumpy"):
        library.run(suite, observer=Grumpy())
    report = library.run(suite, options=library.Options(resume="last"))
    assert report.summary.passed == 50


def test_a_run_that_is_cancelled_ends_what_runs_and_can_be_resumed(write: WriteSuite) -> None:
    suite = write(
        "suite.yaml",
        """
        cases: [{id: a}, {id: b}, {id: c}]
        target: {shell: true, command: "echo $$ >> pids; exec sleep 30", grace: 0.2}
        limits: {parallel: 2}
        """,
    )

    async def main() -> None:
        await asyncio.wait_for(library.run_async(suite), 1.5)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    pids = [int(pid) for pid in Path("pids").read_text().split()]
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    Path("suite.yaml").write_text(Path("suite.yaml").read_text().replace("sleep 30", "true"))
    assert library.run(suite, options=library.Options(resume="")).summary.passed == 3


# ---- graders


def test_graders_never_block_the_engine(write: WriteSuite) -> None:
    write(
        "slow.py",
        """
        import time

        def judge(output, case):
            time.sleep(1)
            return True

        async def answer(case):
            return "x"
        """,
    )
    cases = "\n".join(f"  - {{id: c{i}}}" for i in range(10))
    suite = write(
        "suite.yaml",
        f"cases:\n{cases}\ntarget: {{python: 'slow:answer'}}\n"
        "graders: [{python: 'slow:judge'}]\n",
    )
    report = library.run(suite, parallel=10)
    assert report.exit_code == 0
    assert report.run.wall_s < 4


def test_a_grader_that_crashes_is_no_wrong_answer(folder: Path) -> None:
    def judge(output: library.Output, case: library.Case) -> bool:
        raise KeyError("rubric")

    async def answer(case: library.Case) -> str:
        return "fine"

    suite = library.Suite(cases=[library.Case(id="a")], target=answer, graders=[judge])
    report = library.run(suite)
    assert outcomes(report) == {"a": "grader_error"}
    assert report.exit_code == 3


@pytest.mark.parametrize("error", [GeneratorExit(), KeyboardInterrupt(), SystemExit(3)])
def test_whatever_a_grader_raises_is_a_grader_error(folder: Path, error: BaseException) -> None:
    async def judge(output: library.Output, case: library.Case) -> bool:
        raise error

    async def answer(case: library.Case) -> str:
        return "fine"

    suite = library.Suite(cases=[library.Case(id="a")], target=answer, graders=[judge])
    assert outcomes(library.run(suite)) == {"a": "grader_error"}


def test_an_answer_that_could_not_be_kept_is_no_wrong_answer(
    write: WriteSuite, folder: Path
) -> None:
    """The supervisor may write no file larger than 200 kB: as if the disk were full."""
    write(
        "suite.yaml",
        """
        cases: [{id: a, expect: end}]
        target: {shell: true, command: "printf %0300000d 0; echo end"}
        graders: [contains]
        retry: {attempts: 1}
        """,
    )
    script = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "import paraval; suite = paraval.Suite.load('suite.yaml'); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); "
        "print(*(t.outcome for t in paraval.run(suite).trials))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["infra_error"], ended.stderr


def test_another_exit_code_than_0_can_be_graded(write: WriteSuite) -> None:
    suite = write(
        "suite.yaml",
        """
        cases: [{id: a}]
        target: {command: "exit 4", shell: true}
        graders: [{exit_code: 4}]
        """,
    )
    assert outcomes(library.run(suite)) == {"a": "passed"}


# ---- the report


def timeless(report: dict[str, Any]) -> dict[str, Any]:
    """The report without ids, times, durations and the settings that tell two runs apart."""
    report["run"] = report["run"]["suite"]
    for group in (report["summary"], *report["summary"]["variants"]):
        for key in [key for key in group if key.endswith("_s") or key == "speedup"]:
            del group[key]
    for comparison in report["comparisons"]:
        del comparison["seconds"]
    for trial in report["trials"]:
        for key in ("queued_s", "total_s", "target_s", "artifacts"):
            trial.pop(key, None)
    return report


def test_one_at_a_time_and_fifty_at_once_write_the_same_report(
    write: WriteSuite, folder: Path
) -> None:
    write(
        "target.py",
        """
        import asyncio, random

        async def answer(case, variant):
            await asyncio.sleep(random.random() / 50)
            if case.id.endswith("7"):
                raise RuntimeError("always here")
            return case.id if variant["m"] == "a" else "wrong"
        """,
    )
    cases = "\n".join(f"  - {{id: c{i}, expect: c{i}}}" for i in range(40))
    suite = write(
        "suite.yaml",
        f"cases:\n{cases}\nmatrix: {{m: [a, b]}}\ntarget: {{python: 'target:answer'}}\n"
        "graders: [equals]\n",
    )
    reports = [timeless(library.run(suite, parallel=n).to_dict()) for n in (1, 50)]
    assert reports[0] == reports[1]
    assert reports[0]["summary"]["errors"] == 8


def test_onlookers_hear_of_every_trial_once_and_its_result_is_on_disk_then(folder: Path) -> None:
    class Listener:
        def __init__(self) -> None:
            self.ended: list[str] = []

        def __call__(self, event: Happening) -> None:
            if isinstance(event, TrialEnded):
                self.ended.append(event.trial.case.id)

        def tick(self, now: float) -> None: ...

    async def answer(case: library.Case) -> str:
        return "x"

    listener = Listener()
    cases = [library.Case(id=f"c{i}") for i in range(20)]
    library.run(library.Suite(cases=cases, target=answer), observer=listener)
    assert sorted(listener.ended) == sorted(case.id for case in cases)


def test_onlookers_are_given_the_results_that_the_report_shows(folder: Path) -> None:
    """Of a trial that was tried again, too."""
    given: list[TrialResult] = []
    calls: list[str] = []

    class Listener:
        def __call__(self, event: Happening) -> None:
            if isinstance(event, TrialEnded):
                given.append(replace(event.result, result=replace(event.result.result, uses=())))

        def tick(self, now: float) -> None: ...

    async def answer(case: library.Case) -> library.Output:
        calls.append("call")
        if len(calls) < 3:
            raise library.TransientError("the service is down")
        return library.Output(text="fine", usage={"tokens": 7}, cost_usd=0.25)

    suite = library.Suite(cases=[library.Case(id="a")], target=answer, retry={"first_delay": 0.01})
    report = library.run(suite, observer=Listener())
    assert given == list(report.trials)
    assert given[0].retries == {library.Outcome.INFRA_ERROR: 2}


def test_a_run_inside_a_loop_leaves_its_owners_signal_handlers_alone(folder: Path) -> None:
    async def answer(case: library.Case) -> str:
        return ""

    async def main() -> bool:
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, heard.set)
        await library.run_async(library.Suite(cases=[library.Case(id="a")], target=answer))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(heard.wait(), 5)
        return heard.is_set()

    assert asyncio.run(main())
