"""Models that call tools: the calls are stored, shown and graded, and Python tools are run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paraval.errors import SuiteError
from paraval.grade.grader import Subject
from paraval.grade.judge import question
from paraval.grade.tool_calls import ToolCallGrader
from paraval.plan.suite import Suite
from paraval.records import Case, Grade, GraderSpec, Output, Step, ToolCall
from paraval.testing import Loopback, loopback
from tests.conftest import Paraval, WriteSuite

SCENARIO = r"""
answers:
  - match: 'nothing'
    text: ""
  - match: 'forever'
    script:
      - {call: get_weather, arguments: {city: A}}
      - {call: get_weather, arguments: {city: B}}
      - {call: get_weather, arguments: {city: C}}
  - match: 'weather of Rome'
    script: [{call: get_weather, arguments: {town: Rome}}, {text: 'Sorry: \g<result>'}]
  - match: 'weather on Mars'
    script: [{call: get_whether}, {text: 'Sorry: \g<result>'}]
  - match: 'in (?P<city>\w+)'
    script:
      - {text: Let me look., call: get_weather, arguments: {city: '\g<city>', days: 2}}
      - {text: 'It is \g<result>.'}
"""
TOOLS = '''
import time

def get_weather(city: str, days: int = 1) -> str:
    """Return the weather of a city."""
    print("looking up", city)
    if city == "Atlantis":
        raise LookupError("no such city")
    if city == "Slowtown":
        time.sleep(5)
    return f"sunny in {city} for {days} days"
'''
SUITE = """
models:
  sim: {entry}
cases:
  - id: paris
    input: What is the weather in Paris?
    expect: {{name: get_weather, arguments: {{city: Paris}}}}
target: {{chat: {{model: sim, tools: {tools}}}, timeout: 20}}
graders: [{graders}]
"""
DESCRIBED = "[{name: get_weather, parameters: {type: object, properties: {city: {type: string}}}}]"
RUN = "['weather:get_weather']"


@pytest.fixture
def server() -> Iterator[Loopback]:
    Path("scenario.yaml").write_text(SCENARIO)
    with loopback("scenario.yaml") as running:
        yield running


@pytest.fixture(autouse=True)
def tools(folder: Path) -> None:
    (folder / "weather.py").write_text(TOOLS)


def suite_of(server: Loopback | None = None, provider: str = "openai", **parts: str) -> str:
    price = {"input_per_million": 1.0, "output_per_million": 2.0}
    entry: dict[str, Any] = {"provider": "loopback", "scenario": "scenario.yaml", "price": price}
    if server is not None:
        entry = {"provider": provider, "base_url": server.base_url, "model": "m", "price": price}
    parts = {"tools": DESCRIBED, "graders": "tool_call", **parts}
    return SUITE.format(entry=json.dumps(entry), **parts)


def report_of(folder: Path) -> dict[str, Any]:
    [trial] = json.loads((folder / "report.json").read_text())["trials"]
    assert isinstance(trial, dict)
    return trial


PROVIDERS = ["openai", "openai-responses", "anthropic"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_that_calls_a_tool_is_stored_shown_and_graded(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path, provider: str
) -> None:
    write("suite.yaml", suite_of(server, provider))
    ended = paraval("run", "suite.yaml", "-o", "report.json", "-o", "page.html")
    assert ended.returncode == 0, ended.stdout
    trial = report_of(folder)
    [step] = trial["steps"]
    [call] = step["tool_calls"]
    assert (call["name"], call["arguments"]) == ("get_weather", {"city": "Paris", "days": 2})
    assert (call["result"], call["failed"]) == (None, False)
    assert call["id"]
    shown = 'get_weather(city="Paris", days=2)'
    assert shown in paraval("logs", "last").stdout
    assert "get_weather(city=&#34;Paris&#34;, days=2)" in (folder / "page.html").read_text()
    assert trial["activity"]["tools"][0]["calls"] == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_python_tools_are_run_until_the_model_answers(
    server: Loopback, write: WriteSuite, paraval: Paraval, folder: Path, provider: str
) -> None:
    graders = "{contains: sunny in Paris for 2 days}, tool_call"
    write("suite.yaml", suite_of(server, provider, tools=RUN, graders=graders))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    trial = report_of(folder)
    assert trial["output"] == "It is sunny in Paris for 2 days."
    first, last = trial["steps"]
    assert first["text"] == "Let me look."
    assert first["tool_calls"][0]["result"] == "sunny in Paris for 2 days"
    assert last["tool_calls"] == []
    tokens = [step["usage"]["input_tokens"] for step in (first, last)]
    assert trial["usage"]["input_tokens"] == sum(tokens)
    assert tokens[1] > tokens[0] > 0
    assert trial["cost_usd"] == pytest.approx(first["cost_usd"] + last["cost_usd"])
    assert (trial["calls"], trial["activity"]["turns"]) == (2, 2)
    assert server.stats().total.requests == 2
    logs = paraval("logs", "last").stdout
    assert "looking up Paris" in logs
    assert "-> sunny in Paris for 2 days" in logs
    # All of it comes from the cache now.
    again = paraval("run", "suite.yaml", "-o", "report.json")
    assert again.returncode == 0, again.stdout
    assert server.stats().total.requests == 2
    assert report_of(folder)["cached"] == 2


def test_an_exception_in_a_tool_goes_back_to_the_model_and_is_recorded(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("scenario.yaml", SCENARIO)
    suite = suite_of(tools=RUN, graders="{contains: no such city}").replace("Paris?", "Atlantis?")
    write("suite.yaml", suite)
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    [call] = report_of(folder)["steps"][0]["tool_calls"]
    assert call["result"].startswith("error: LookupError: no such city")
    assert call["failed"]
    assert report_of(folder)["activity"]["tools"][0]["failed"] == 1
    log = paraval("logs", "last", "--stream", "stderr").stdout
    assert log.startswith("Traceback (most recent call last):\n")
    assert 'weather.py", line 8, in get_weather' in log
    assert log.count("  File ") == 1, "nothing of paraval's own"


def test_wrong_arguments_are_told_to_the_model_without_a_place_in_paraval(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("scenario.yaml", SCENARIO)
    suite = suite_of(tools=RUN, graders="{contains: Sorry}")
    write("suite.yaml", suite.replace("in Paris?", "of Rome?"))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout
    [call] = report_of(folder)["steps"][0]["tool_calls"]
    told = "TypeError: get_weather() got an unexpected keyword argument 'town'"
    assert call["result"] == f"error: {told}"
    assert paraval("logs", "last", "--stream", "stderr").stdout == f"{told}\n"


def test_a_model_that_calls_an_unknown_tool_is_told_which_there_are(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("scenario.yaml", SCENARIO)
    suite = suite_of(tools=RUN, graders="{contains: there is get_weather}")
    write("suite.yaml", suite.replace("in Paris?", "on Mars?"))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout
    [call] = report_of(folder)["steps"][0]["tool_calls"]
    assert call["result"] == "error: there is no tool 'get_whether'; there is get_weather"


def test_a_tool_that_takes_too_long_is_a_timeout_of_the_attempt(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("scenario.yaml", SCENARIO)
    suite = suite_of(tools=RUN).replace("Paris?", "Slowtown?").replace("timeout: 20", "timeout: 1")
    write("suite.yaml", suite)
    paraval("run", "suite.yaml", "-o", "report.json")
    trial = report_of(folder)
    assert trial["outcome"] == "timeout"
    assert trial["error"]["message"] == "tool 'get_weather' did not finish within 1 s"
    assert trial["calls"] == 1


def test_max_turns_ends_a_model_that_calls_tools_forever(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("scenario.yaml", SCENARIO)
    suite = suite_of(tools=f"{RUN}, max_turns: 2", graders="{contains: sunny}")
    write("suite.yaml", suite.replace("What is the weather in Paris?", "forever"))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert "[cut off at max_turns (2)]" in ended.stdout
    trial = report_of(folder)
    assert (trial["outcome"], len(trial["steps"])) == ("failed", 2)
    assert "1 answer cut off at max_turns" in ended.stdout
    log = paraval("logs", "last").stdout
    assert log.count("    -> sunny in") == 1
    assert '  get_weather(city="B")\n    not run\n' in log


def test_an_empty_answer_is_visible_as_empty(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("scenario.yaml", SCENARIO)
    suite = suite_of(graders="{contains: hello}").replace(
        "What is the weather in Paris?", "nothing"
    )
    write("suite.yaml", suite)
    ended = paraval("run", "suite.yaml", "-o", "page.html")
    assert '(empty answer) "hello" not in ""' in ended.stdout
    assert "1 of 1 answer is empty" in ended.stdout
    assert paraval("logs", "last").stdout.endswith("answer:\n(empty answer)\n")
    assert "(empty answer)</" in (folder / "page.html").read_text()


def test_tools_may_be_function_objects_in_python(write: WriteSuite) -> None:
    def find(text: str, *, most: int = 3) -> list[str]:
        """Find a text."""
        return [text] * most

    suite = Suite(
        models={"sim": {"provider": "loopback"}},
        cases=[{"id": "a", "input": "x"}],
        target={"chat": {"model": "sim", "tools": [find]}},
    )
    [(_, target)] = suite.definition.variants
    [tool] = target.settings.tools  # type: ignore[union-attr]  # a chat target
    assert (tool.name, tool.description) == ("find", "Find a text.")
    assert tool.parameters["required"] == ["text"]
    assert tool.parameters["properties"]["most"] == {"default": 3, "type": "integer"}


# ---- the grader


def grade(calls: list[ToolCall], options: Mapping[str, Any], expect: Any = None) -> Grade:
    spec = GraderSpec(name="tool_call", kind="tool_call", options=options, folder="")
    output = Output(steps=(Step(tool_calls=tuple(calls)),) if calls else ())
    subject = Subject(case=Case(id="a", expect=expect), variant={}, repeat=1, output=output)
    return asyncio.run(ToolCallGrader(spec).grade(subject))


CALL = ToolCall(name="book", arguments={"city": "Paris", "nights": 2, "who": {"name": "Ada"}})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": "book"}, ""),
        ({"name": "book", "arguments": {"city": "Paris"}}, ""),
        ({"name": "book", "arguments": {"nights": 2.0}}, ""),
        ({"name": "book", "arguments": {"city": {"regex": "^Par"}, "who": {"any": True}}}, ""),
        ({"name": "book", "arguments": {"who": {"name": {"contains": "ad"}}}}, ""),
        ({"name": "find"}, "book(…) was called; expected find()"),
        (
            {"name": "book", "arguments": {"city": "Rome"}},
            'book was called with city = "Paris", not "Rome"',
        ),
        ({"name": "book", "arguments": {"day": 1}}, "book was called with no day"),
        ({"name": "book", "arguments": {"nights": "2"}}, 'nights = 2, not "2"'),
        ({"name": "book", "arguments": {"nights": True}}, "nights = 2, not true"),
        (
            {"name": "book", "arguments": {"city": "Paris"}, "exact": True},
            "book was called with the unexpected argument nights",
        ),
        ({"name": "none"}, "no tool was expected, but book(…) was called"),
    ],
)
def test_a_call_is_compared_with_what_is_expected(options: dict[str, Any], reason: str) -> None:
    given = grade([CALL], options)
    assert given.passed == (not reason)
    for part in reason.split("(…)"):
        assert part in given.reason


def test_expected_calls_come_from_the_case_too() -> None:
    one = {"name": "book", "arguments": {"city": "Paris"}}
    other = ToolCall(name="book", arguments={"city": "Rome"})
    assert grade([CALL], {}, one).passed
    assert grade([CALL], {}, "book").passed
    assert grade([], {}, "none").passed
    assert grade([other, CALL], {}, [one, {"name": "book"}]).passed
    # Each expected call needs a call of its own.
    assert not grade([CALL], {}, [one, one]).passed
    missed = grade([CALL], {}, ["book", "pay"])
    assert missed.reason.startswith('pay() was not called; called book(city="Paris"')
    assert grade([], {}, one).reason == 'no tool was called; expected book(city="Paris")'


@pytest.mark.parametrize(
    ("grader", "problem"),
    [
        ("{tool_call: get_wether}", "unknown tool 'get_wether', did you mean 'get_weather'?"),
        (
            "{tool_call: {name: get_weather, arguments: {city: {regex: '('}}}}",
            "not a valid regular",
        ),
        ("{tool_call: {nam: get_weather}}", "unknown key 'nam', did you mean 'name'?"),
    ],
)
def test_a_wrong_grader_is_reported_when_the_suite_is_loaded(
    write: WriteSuite, grader: str, problem: str
) -> None:
    write("scenario.yaml", SCENARIO)
    with pytest.raises(SuiteError) as refused:
        Suite.load(write("suite.yaml", suite_of(graders=grader)))
    assert problem in str(refused.value.problems[0])


def test_an_expected_tool_that_the_target_does_not_have_is_reported(write: WriteSuite) -> None:
    write("scenario.yaml", SCENARIO)
    suite = suite_of()
    expecting = suite.replace("expect: {name: get_weather", "expect: {name: get_wether")
    for text, problem in (
        (expecting, "unknown tool 'get_wether' in the expect of case 'paris', did you mean"),
        (suite.replace(f", tools: {DESCRIBED}", ""), "the target has no tools; add tools: to chat"),
    ):
        with pytest.raises(SuiteError) as refused:
            Suite.load(write("suite.yaml", text))
        assert problem in str(refused.value.problems[0])


def test_an_expect_that_is_no_call_is_reported_when_the_suite_is_loaded(write: WriteSuite) -> None:
    write("scenario.yaml", SCENARIO)
    suite = suite_of().replace("expect: {name: get_weather, arguments: {city: Paris}}", "expect: 5")
    with pytest.raises(SuiteError) as refused:
        Suite.load(write("suite.yaml", suite))
    assert "needs the name of a tool, or a mapping with name and" in str(refused.value.problems[0])


def test_a_failed_answer_that_only_calls_tools_says_so(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    scenario = SCENARIO.replace("text: Let me look., ", "")
    write("scenario.yaml", scenario)
    write("suite.yaml", suite_of(graders="{contains: sunny}"))
    ended = paraval("run", "suite.yaml")
    assert '(no text, called get_weather) "sunny" not in ""' in ended.stdout
    assert paraval("logs", "last").stdout.endswith("answer:\n(no text, called get_weather)\n")


def test_commands_and_judges_see_the_calls_that_they_grade(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("scenario.yaml", SCENARIO)
    check = (
        "import json, sys; step = json.load(sys.stdin)['output']['steps'][0];"
        "sys.exit(step['tool_calls'][0]['arguments']['city'] != 'Paris')"
    )
    grader = json.dumps({"command": ["{python}", "-c", check]})
    write("suite.yaml", suite_of(tools=RUN, graders=grader))
    ended = paraval("run", "suite.yaml")
    assert ended.returncode == 0, ended.stdout
    call = ToolCall(name="book", arguments={"city": "Paris"}, result="done")
    subject = Subject(
        case=Case(id="a", input="x"),
        variant={},
        repeat=1,
        output=Output(text="Booked.", steps=(Step(tool_calls=(call,)),)),
    )
    system, user = question("Was it booked?", subject, reference=False).messages
    assert '- "tool_calls": the tools that were called' in system.content
    assert '"tool_calls"' in user.content
    assert '"result": "done"' in user.content


def test_a_key_that_a_tool_returns_is_stored_nowhere(
    server: Loopback,
    write: WriteSuite,
    paraval: Paraval,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "sk-canary-7Yq0wVb8Lr2TnYxE"
    monkeypatch.setenv("MY_KEY", key)
    write(
        "weather.py",
        "import os\ndef get_weather(city: str, days: int) -> str:\n"
        "    return os.environ['MY_KEY']\n",
    )
    suite = suite_of(server, tools=RUN, graders="{contains: It is}")
    write("suite.yaml", suite.replace('"model": "m"', '"model": "m", "api_key_env": "MY_KEY"'))
    ended = paraval("run", "suite.yaml", "-o", "report.json")
    assert ended.returncode == 0, ended.stdout
    assert report_of(folder)["steps"][0]["tool_calls"][0]["result"] == "[REDACTED]"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if key.encode() in path.read_bytes()]
