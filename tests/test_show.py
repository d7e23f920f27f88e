"""What was sent and what came back: stored with every attempt, and shown by `show` and `logs`."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.records import Exchange, Step, ToolCall
from paraval.store.exchanges import (
    LONGEST_TEXT,
    MOST_CHARACTERS,
    ExchangeRows,
    KnownTexts,
    create_tables,
    read_exchanges,
)
from paraval.store.reader import RunReader
from tests.conftest import Paraval, WriteSuite

SYSTEM = "You are a patient geographer. " * 20
SUITE = f"""
    models:
      small: {{provider: loopback}}
      large: {{provider: loopback}}
    matrix: {{model: [small, large]}}
    cases:
      - {{id: paris, input: "capital of France?", expect: France, tags: [geo]}}
      - {{id: rome, input: "capital of Italy?", expect: Rome}}
    target:
      chat: {{model: "{{model}}", system: "{SYSTEM}", prompt: "Q: {{input}}", temperature: 0}}
    graders: [contains]
"""


def only_run(folder: Path) -> Path:
    (run,) = (folder / ".paraval" / "runs").iterdir()
    return run


def execute(run: Path, *statements: str) -> list[Any]:
    with closing(sqlite3.connect(run / "run.db", isolation_level=None)) as connection:
        return [connection.execute(statement).fetchall() for statement in statements]


# ---- the store


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE trial (idx INTEGER PRIMARY KEY, key TEXT)")
    connection.execute("CREATE TABLE result (key TEXT, number INTEGER)")
    connection.execute("INSERT INTO trial VALUES (0, 'k')")
    connection.execute("INSERT INTO result VALUES ('k', 1)")
    create_tables(connection)
    yield connection
    connection.close()


def stored_and_read(connection: sqlite3.Connection, *exchanges: Exchange) -> tuple[Exchange, ...]:
    """Sent twice: the second time, long texts are rows of their own."""
    rows = ExchangeRows(KnownTexts())
    rows.add("k", 1, exchanges)
    rows.add("k", 2, exchanges)
    connection.executemany("INSERT OR REPLACE INTO exchange VALUES (?, ?, ?)", rows.exchanges)
    connection.executemany("INSERT OR IGNORE INTO long_text VALUES (?, ?)", rows.texts.items())
    first, again = (read_exchanges(connection, 0, number) for number in (None, 2))
    assert first == again
    return first


texts = st.text(max_size=30) | st.text(min_size=1, max_size=3).map(lambda text: text * 300)
data = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts, data, max_size=4), texts)
def test_whatever_was_sent_is_read_back_unchanged(request_data: dict[str, Any], text: str) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE trial (idx INTEGER PRIMARY KEY, key TEXT)")
        connection.execute("CREATE TABLE result (key TEXT, number INTEGER)")
        connection.execute("INSERT INTO trial VALUES (0, 'k')")
        connection.execute("INSERT INTO result VALUES ('k', 1)")
        create_tables(connection)
        steps = (Step(text=text, tool_calls=(ToolCall(name="grep", arguments=request_data),)),)
        sent = Exchange(by=text, request=request_data, reply=text, steps=steps)
        assert stored_and_read(connection, sent) == (sent,)


def test_texts_that_json_and_sqlite_dislike_are_stored_as_far_as_possible(
    connection: sqlite3.Connection,
) -> None:
    deep: Any = "bottom"
    for _ in range(3000):
        deep = [deep]
    sent = Exchange(
        request={"messages": ["\ud800" * 300, "\0nul", object, float("nan")], "d": deep}
    )
    (read,) = stored_and_read(connection, sent)
    assert read.request["messages"][0] == "\N{REPLACEMENT CHARACTER}" * 300
    assert read.request["messages"][1] == "\0nul"


def test_long_texts_lose_their_middle_and_endless_transcripts_their_end(
    connection: sqlite3.Connection,
) -> None:
    long = "a" * LONGEST_TEXT + "middle" + "z" * LONGEST_TEXT
    sent = Exchange(request={"texts": [f"{number}{long}" for number in range(40)]})
    (read,) = stored_and_read(connection, sent)
    first, last = read.request["texts"][0], read.request["texts"][-1]
    assert first.startswith("0aaa")
    assert first.endswith("zzz")
    assert "middle" not in first
    assert "characters are left out here" in last
    assert sum(map(len, read.request["texts"])) < MOST_CHARACTERS


# ---- a run


def test_a_long_text_is_stored_once_however_many_attempts_sent_it(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    assert paraval("run", "suite.yaml").returncode == 0
    run = only_run(folder)
    ((exchanges,),), ((stored,),) = execute(
        run, "SELECT count(*) FROM exchange", "SELECT count(*) FROM long_text"
    )
    assert (exchanges, stored) == (4, 1)
    with RunReader(run) as reader:
        (sent,) = reader.exchanges(0)
    assert sent.request == {
        "model": "small",
        "provider": "loopback",
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Q: capital of France?"},
        ],
        "temperature": 0,
    }


def test_show_tells_why_a_case_failed_with_one_variant(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    found = paraval("show", "--case", "rome", "--variant", "model=large")
    assert found.returncode == 0
    lines = [line.strip() for line in found.stdout.splitlines()]
    assert lines[:4] == ["rome", "input", "capital of Italy?", "expected"]
    assert any(line.startswith("✗ large · failed") for line in lines)
    assert any(line.startswith("✗ contains:") and "Rome" in line for line in lines)
    assert "sent (loopback large · temperature 0)" in lines
    assert "user Q: capital of Italy?" in lines
    assert "answer (stop reason: stop)" in lines
    assert "small" not in found.stdout
    both = paraval("show", "--case", "rome", "--variant", "model=large,model=large")
    assert both.stdout == found.stdout


def test_show_says_that_variants_were_sent_the_same(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    shown = paraval("show", "--case", "rome").stdout
    assert "the same as with small" in shown
    assert shown.count("patient geographer") <= 20


def test_show_without_a_case_lists_those_that_failed_first(
    write: WriteSuite, paraval: Paraval
) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    lines = paraval("show").stdout.splitlines()
    assert lines[0].startswith("rome   ✗ small ✗ large  capital of Italy?")
    assert lines[1].startswith("paris")
    assert lines[-1].endswith("--case rome")


def test_show_and_logs_have_the_same_for_programs(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    for command in ("show", "logs"):
        rows = json.loads(paraval(command, "--case", "rome", "--json").stdout)
        messages = [row["exchanges"][0]["request"]["messages"][-1] for row in rows]
        assert messages == [{"role": "user", "content": "Q: capital of Italy?"}] * 2


def test_logs_print_what_was_sent(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    printed = paraval("logs", "--case", "rome", "--variant", "model=small").stdout
    assert "sent (loopback small · temperature 0):\nsystem: You are" in printed
    assert "\nuser: Q: capital of Italy?\n" in printed


def test_an_unknown_case_is_named_with_the_nearest(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    done = paraval("show", "--case", "rom")
    assert done.returncode == 2
    assert "did you mean 'rome'?" in done.stderr


def test_an_unknown_value_is_named_with_the_known_ones(write: WriteSuite, paraval: Paraval) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    for command in ("show", "logs"):
        done = paraval(command, "--variant", "model=tiny")
        assert done.returncode == 2
        assert "no value 'tiny'; choose from 'small' and 'large'" in done.stderr
        assert "has no axis 'x'" in paraval(command, "--variant", "x=y").stderr


def test_what_a_judge_was_asked_and_replied_is_shown(write: WriteSuite, paraval: Paraval) -> None:
    write(
        "scenario.yaml",
        """
        models:
          judge: {answers: [{text: '{"reason": "no moon in it", "score": 0.2}'}]}
          small: {answers: [{text: Hello!}]}
        """,
    )
    write(
        "suite.yaml",
        """
        models:
          small: {provider: loopback, model: small, scenario: scenario.yaml}
          judge: {provider: loopback, model: judge, scenario: scenario.yaml}
        cases: [{id: a, input: hello}]
        target: {chat: {model: small, prompt: "{input}"}}
        graders: [{judge: {model: judge, rubric: Mentions the moon., name: moon}}]
        """,
    )
    paraval("run", "suite.yaml")
    shown = paraval("show", "--case", "a", "--full").stdout
    assert "sent to judge 'moon' (loopback judge" in shown
    assert "Mentions the moon." in shown
    assert 'assistant {"reason": "no moon in it", "score": 0.2}' in shown
    parts = ("  sent (", "  answer", "moon 0.2: ", "  sent to judge")
    places = [shown.index(part) for part in parts]
    assert places == sorted(places), "what was sent, the answer, the grades, then the judge's"


def test_a_long_text_that_was_sent_again_is_shown_once(write: WriteSuite, paraval: Paraval) -> None:
    judge = "graders: [{judge: {model: small, rubric: Names a city.}}]"
    suite = SUITE.replace("Q: {input}", "{model}: {input}")
    write("suite.yaml", suite.replace("graders: [contains]", judge))
    paraval("run", "suite.yaml")
    for options in ((), ("--full",)):
        shown = paraval("show", "--case", "rome", *options).stdout
        assert shown.count(SYSTEM.strip()) == 1
        assert shown.count("    system: as above\n    user large: capital of Italy?\n") == 1
        assert shown.count("Names a city.") == 1
        assert shown.count("    system: as above\n    user\n      <data-") == 1


def test_the_end_of_a_failed_graders_output_is_shown_and_no_text_twice(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    problem = "The first line of a problem that is not short. " * 6
    write(
        "suite.yaml",
        f"""
        cases: [{{id: a, input: {{repo: some/path, problem: "{problem}"}}}}]
        target:
          agent: custom
          command: [sh, -c, "echo Changed what was asked for.", agent, "{{prompt}}"]
          prompt: "{{input.problem}}"
        workspace: {{folder: true}}
        graders:
          - command: {{name: tests, command: [sh, -c, "seq 1 30; echo because; exit 1"]}}
          - command: {{name: quiet, command: [sh, -c, "echo not shown; echo why; exit 0"]}}
        """,
    )
    paraval("run", "suite.yaml")
    shown = paraval("show", "--case", "a").stdout
    lines = shown.splitlines()
    start = next(at for at, line in enumerate(lines) if "end of tests.stdout (paraval logs" in line)
    assert [line.strip() for line in lines[start + 1 : start + 21]] == [*map(str, range(11, 31))]
    assert "not shown" not in shown
    assert shown.count("Changed what was asked for.\n") == 1
    assert shown.split("sent (custom)")[1].count("first line of a problem") == 6
    assert "a  ✗  The first line of a problem" in paraval("show").stdout
    paraval("report", "-o", "page.html")
    assert '<span class="snippet">The first line' in (folder / "page.html").read_text()


def test_show_says_why_a_trial_was_retried(write: WriteSuite, paraval: Paraval) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a}]
        target: {command: [sh, -c, "echo busy >&2; exit 75"]}
        retry: {attempts: 3, first_delay: 0}
        """,
    )
    paraval("run", "suite.yaml")
    shown = paraval("show", "--case", "a").stdout
    assert "3 attempts" in shown
    assert "retried: 2 × infra error: asked for a retry (exit code 75): busy" in shown


def test_the_command_that_ran_is_shown_with_its_input(write: WriteSuite, paraval: Paraval) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a, input: "two words"}]
        target: {command: [tr, a-z, A-Z], stdin: "{input}"}
        """,
    )
    paraval("run", "suite.yaml")
    shown = paraval("show", "--case", "a").stdout
    assert "command tr a-z A-Z\n" in shown
    assert "stdin two words\n" in shown


def test_a_key_that_a_case_contains_is_not_stored(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        cases: [{id: a, input: x}]
        target:
          command: [cat]
          stdin: "key sk-Abc123def456ghi789"
          pass_env: [MY_KEY]
        """,
    )
    paraval("run", "suite.yaml", env={"MY_KEY": "sk-Abc123def456ghi789"})
    assert "key [REDACTED]" in paraval("show", "--case", "a").stdout
    for path in only_run(folder).rglob("*"):
        if path.is_file():
            assert b"Abc123def456" not in path.read_bytes(), path


@pytest.mark.parametrize("arguments", [(), ("-n", "2"), ("--parallel", "4")])
def test_what_a_test_asked_its_model_is_shown(
    write: WriteSuite, paraval: Paraval, folder: Path, arguments: tuple[str, ...]
) -> None:
    write("models.yaml", "local: {provider: loopback}\n")
    write(
        "test_greeting.py",
        """
        import os

        def test_polite(model):
            answer = model.ask(f"Say hello, {os.environ['MY_API_KEY']}", system="Be polite.")
            assert "goodbye" in answer.text
        """,
    )
    write("pytest.ini", "[pytest]\n")
    tests = [sys.executable, "-m", "pytest", "-q", "--paraval-store", *arguments]
    env = {**os.environ, "MY_API_KEY": "sk-Abc123def456ghi789"}
    subprocess.run(tests, cwd=folder, env=env, check=False, capture_output=True)
    shown = paraval("show", "last", "--case", "*test_polite*").stdout
    assert "sent (loopback local)" in shown
    assert "system Be polite." in shown
    assert "user Say hello, [REDACTED]" in shown
    assert "replied" in shown


def test_a_run_of_an_earlier_version_is_shown_and_resumed(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    run = only_run(folder)
    execute(run, "DROP TABLE exchange", "DROP TABLE long_text")
    shown = paraval("show", "--case", "rome")
    assert shown.returncode == 0
    assert "sent" not in shown.stdout
    write("suite.yaml", SUITE.replace("Rome", "Roma"))
    assert paraval("resume", run.name).returncode == 0
    assert "Q: capital of Italy?" in paraval("show", run.name, "--case", "rome").stdout


def test_damaged_exchanges_are_an_error_that_names_the_trial(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", SUITE)
    paraval("run", "suite.yaml")
    execute(only_run(folder), "UPDATE exchange SET content = x'00ff'")
    done = paraval("show", "--case", "rome")
    assert done.returncode != 0
    assert "damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cached_answer_is_shown_with_the_time_that_it_took(
    write: WriteSuite, paraval: Paraval
) -> None:
    write("slow.yaml", "latency: 1.2\n")
    write(
        "suite.yaml",
        """
        models: {slow: {provider: loopback, scenario: slow.yaml}}
        cases: [{id: a, input: hello}]
        target: {chat: {model: slow, prompt: "{input}"}}
        """,
    )
    for _ in range(2):
        paraval("run", "suite.yaml")
    assert "passed · 1.2 s" in paraval("show", "last", "--case", "a").stdout
