"""What agents report of their conversations: read into steps, bounded, and stored with attempts."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from paraval.agents.catalog import KNOWN_AGENTS
from paraval.agents.program import AgentJob, Transcript
from paraval.agents.steps import LONGEST_TEXT, MOST_CHARACTERS, MOST_STEPS, StepLog
from paraval.records import Exchange, McpServer, Outcome, Step, ToolCall
from paraval.store.reader import RunReader
from tests.conftest import Paraval, WriteSuite

OUTPUTS = Path(__file__).parent / "agent_outputs"
FAKE = str(Path(__file__).parent / "fake_agents" / "claude.py")
KEY = "sk-secret-0123456789abcdef"
SERVER = McpServer(name="fakectx", command=("python", "server.py"))
JOB = AgentJob(
    prompt="do it", workspace="/w", home="/h", temp="/t", program=("agent",), mcp=(SERVER,)
)
LOOKUP = ToolCall(
    name="fakectx.codebase_lookup", arguments={"query": "foo"}, result="answer for foo: 42"
)


def steps_of(agent: str, stdout: str = "", **files: str) -> tuple[Step, ...]:
    program = KNOWN_AGENTS[agent]
    given = dict(zip(program.result_files(JOB), files.values(), strict=False))
    transcript = Transcript(stdout=stdout, stderr="", exit_code=0)
    return program.read(JOB, transcript, given).steps


def steps_in(agent: str, name: str) -> tuple[Step, ...]:
    return steps_of(agent, (OUTPUTS / name).read_text())


def without_usage(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(replace(step, usage={}, cost_usd=None) for step in steps)


# ---- each agent, by what it really printed


def test_claudes_messages_are_steps_with_the_arguments_and_results_of_tools() -> None:
    looked, failed, done = steps_in("claude-code", "claude-2.1.325-mcp.stream.jsonl")
    result = '{"result":"answer for foo: 42"}'
    assert looked == Step(tool_calls=(replace(LOOKUP, result=result),))
    (call,) = failed.tool_calls
    assert (call.name, call.arguments, call.failed) == ("fakectx.fail", {"reason": "boom"}, True)
    assert (call.result or "").startswith("Error executing tool fail")
    assert done == Step(text="done")


def test_claudes_interrupted_command_is_in_its_transcript() -> None:
    (step,) = steps_in("claude-code", "claude-2.1.325-sigint.stream.jsonl")
    (call,) = step.tool_calls
    assert call.name == "Bash"
    assert call.arguments["command"].startswith("touch started")
    assert call.failed


def test_parts_of_claudes_messages_belong_together_and_sub_agents_are_marked() -> None:
    def line(message: str, parent: str | None = None, **part: Any) -> str:
        content = {"id": message, "content": [part]}
        return json.dumps({"type": "assistant", "message": content, "parent_tool_use_id": parent})

    def returned(call: str, content: Any) -> str:
        part = {"type": "tool_result", "tool_use_id": call, "content": content}
        return json.dumps({"type": "user", "message": {"content": [part]}})

    image = [{"type": "text", "text": "a"}, {"type": "image", "source": {"data": "AAAA"}}]
    lines = [
        line("m1", type="thinking", thinking="Where is it?"),
        line("m1", type="text", text="I look."),
        line("m1", type="tool_use", id="t1", name="Task", input={"prompt": "find it"}),
        line("m2", "t1", type="tool_use", id="t2", name="Grep", input={"pattern": "it"}),
        line("m1", type="tool_use", id="t3", name="Read", input={"file": "x.png"}),
        returned("t2", "x.py:1"),
        returned("t3", image),
        returned("t1", "in x.py"),
    ]
    assert steps_of("claude-code", "\n".join(lines)) == (
        Step(
            text="[thinking] Where is it?\n\nI look.",
            tool_calls=(
                ToolCall(name="Task", arguments={"prompt": "find it"}, result="in x.py"),
                ToolCall(name="Read", arguments={"file": "x.png"}, result="a\n[image]"),
            ),
        ),
        Step(
            text="[sub-agent]",
            tool_calls=(ToolCall(name="Grep", arguments={"pattern": "it"}, result="x.py:1"),),
        ),
    )


def test_codexs_items_are_steps() -> None:
    changes = {"changes": [{"path": "LAB/w/x2/hello.txt", "kind": "add"}]}
    command = {"command": "/bin/bash -lc 'pwd; echo from-bash > bash.txt'"}
    assert steps_in("codex", "codex-ok.jsonl") == (
        Step(tool_calls=(ToolCall(name="file_change", arguments=changes, result=""),)),
        Step(
            tool_calls=(ToolCall(name="command_execution", arguments=command, result="LAB/w/x2\n"),)
        ),
        Step(text="all done"),
    )
    looked, failed, _ = steps_in("codex", "codex-mcp.jsonl")
    assert looked.tool_calls == (LOOKUP,)
    assert failed.tool_calls[0].failed


def test_a_command_of_codex_that_was_cut_off_failed_and_has_no_result() -> None:
    lines = (OUTPUTS / "codex-ok.jsonl").read_text().split("\n")
    (*_, cut) = steps_of("codex", "\n".join(lines[:5]))
    (call,) = cut.tool_calls
    assert (call.name, call.result, call.failed) == ("command_execution", None, True)
    item = {**json.loads(lines[5])["item"], "exit_code": 2, "status": "failed"}
    (step,) = steps_of("codex", json.dumps({"type": "item.completed", "item": item}))
    assert step.tool_calls[0].result == "LAB/w/x2\n\n[exit code 2]"


def test_geminis_events_are_steps() -> None:
    write, shell, done = steps_in("gemini", "gemini-ok.stream.jsonl")
    arguments = {"file_path": "hello.txt", "content": "hi there\n"}
    assert write.tool_calls == (ToolCall(name="write_file", arguments=arguments, result=""),)
    assert shell.tool_calls[0].result == "LAB/w/g1"
    assert done == Step(text="all done")
    looked, _ = steps_in("gemini", "gemini-mcp.stream.jsonl")
    assert looked.tool_calls == (LOOKUP,)


def test_opencodes_steps_have_their_tokens_and_cost() -> None:
    looked, done = steps_in("opencode", "opencode-mcp.jsonl")
    assert looked.tool_calls == (LOOKUP,)
    assert done.text == "done"
    assert (done.usage["input_tokens"], done.usage["output_tokens"]) == (1000, 50)
    assert done.cost_usd == 0.00625


def test_minis_trajectory_is_read_into_steps() -> None:
    def asked(text: str | None, *commands: str) -> dict[str, Any]:
        actions = [{"command": one, "tool_call_id": one} for one in commands]
        usage = {"prompt_tokens": 100, "completion_tokens": 5}
        extra = {"actions": actions, "response": {"usage": usage}, "cost": 0.25}
        return {"role": "assistant", "content": text, "extra": extra}

    messages = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "do it"},
        asked("I look.", "ls", "cat x"),
        {"role": "tool", "content": "x", "tool_call_id": "ls", "extra": {"returncode": 0}},
        {"role": "user", "content": "no x", "extra": {"returncode": 1}},
        asked(None, "submit"),
        {"role": "exit", "content": "done", "extra": {"exit_status": "Submitted"}},
    ]
    info = {"exit_status": "Submitted", "submission": "done"}
    steps = steps_of("mini-swe-agent", file=json.dumps({"info": info, "messages": messages}))
    assert without_usage(steps) == (
        Step(
            text="I look.",
            tool_calls=(
                ToolCall(name="bash", arguments={"command": "ls"}, result="x"),
                ToolCall(name="bash", arguments={"command": "cat x"}, result="no x"),
            ),
        ),
        Step(tool_calls=(ToolCall(name="bash", arguments={"command": "submit"}, result="done"),)),
    )
    assert steps[0].usage == {"input_tokens": 100, "output_tokens": 5}
    assert steps[0].cost_usd == 0.25


def test_aiders_messages_are_steps_from_its_history_or_else_its_output() -> None:
    name = "aider-edit-in-a-large-repository"
    stdout = (OUTPUTS / f"{name}.txt").read_text()
    edit, answer = steps_of("aider", stdout, file=(OUTPUTS / f"{name}.llm-history").read_text())
    assert edit.text.startswith("calc.py\n```\n<<<<<<< SEARCH")
    assert answer == Step(text="42")
    (only,) = steps_in("aider", "aider-ok.txt")
    assert only.text.startswith("hello.txt")


def test_auggie_reports_only_its_last_text() -> None:
    assert steps_in("auggie", "auggie-ok.json") == (Step(text="all done"),)


# ---- bounds


def test_a_long_result_loses_its_middle_between_words() -> None:
    log = StepLog()
    words = " ".join(f"word-{number}" for number in range(10_000))
    log.call("1", "cat", {"path": "x", "content": "y" * 30_000, "nested": [[float("nan")]]})
    log.result("1", words)
    (step,) = log.steps()
    (call,) = step.tool_calls
    assert call.result is not None
    assert len(call.result) < LONGEST_TEXT + 100
    start, middle, end = call.result.split("\n")
    assert middle.startswith("[... ")
    assert middle.endswith(" characters left out ...]")
    assert words.startswith(f"{start} ")
    assert words.endswith(f" {end}")
    assert len(call.arguments["content"]) < LONGEST_TEXT + 100
    assert (call.arguments["path"], call.arguments["nested"]) == ("x", [["NaN"]])


def test_a_long_transcript_loses_its_middle() -> None:
    many, large = StepLog(), StepLog()
    for number in range(2_000):
        many.text(f"step {number}", message=str(number))
    for number in range(300):
        large.text(f"{number} {'x' * LONGEST_TEXT}", message=str(number))
    steps = many.steps()
    assert len(steps) <= MOST_STEPS
    assert (steps[0].text, steps[-1].text) == ("step 0", "step 1999")
    assert Step(text=f"[... {2_000 - len(steps) + 1:,} steps left out ...]") in steps
    texts = [step.text for step in large.steps()]
    assert sum(map(len, texts)) <= MOST_CHARACTERS + 100
    assert (texts[0][:2], texts[-1][:4]) == ("0 ", "299 ")


def test_arguments_that_are_nested_too_deep_become_text() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    log = StepLog()
    log.call("1", "odd", deep)
    log.call("2", "wide", [["x"] * 50] * 2_000)
    (step,) = log.steps()
    kept: Any = step.tool_calls[0].arguments
    for _ in range(20):
        (kept,) = kept
    assert kept.startswith("[[[")
    assert isinstance(step.tool_calls[1].arguments, str)
    assert len(step.tool_calls[1].arguments) < LONGEST_TEXT + 100


# ---- stored with the attempts of a run


def suite_of(inputs: dict[str, str], **more: Any) -> str:
    target = {
        "agent": "claude-code",
        "program": [sys.executable, FAKE],
        "prompt": "{input}",
        "system": "Be brief.",
        "timeout": 60,
        "env": {"ANTHROPIC_API_KEY": KEY},
    }
    cases = [{"id": name, "input": text} for name, text in inputs.items()]
    suite = {"cases": cases, "target": target, "graders": [{"contains": "done"}]}
    return json.dumps({**suite, **more, "target": {**target, **more.get("target", {})}})


def stored(folder: Path) -> dict[str, tuple[Outcome, Exchange]]:
    (run,) = (folder / ".paraval" / "runs").iterdir()
    with RunReader(run) as reader:
        return {
            result.case_id: (result.outcome, reader.exchanges(result.index)[0])
            for result in reader.results()
        }


def test_a_run_stores_what_agents_were_asked_and_did_however_they_ended(
    folder: Path, paraval: Paraval, write: WriteSuite
) -> None:
    """Also if one failed or was stopped, and without keys."""
    server = {"search": {"command": ["sh"]}}
    inputs = {
        "fine": "say looking call mcp__search__find say done",
        "crashed": "say looking break Bash silent exit 3",
        "slow": "leak Bash begin Read hang",
    }
    write("suite.json", suite_of(inputs, target={"mcp": server, "timeout": 3}))
    ended = paraval("run", "suite.json")
    found = stored(folder)
    assert {name: outcome.value for name, (outcome, _) in found.items()} == {
        "fine": "passed",
        "crashed": "crashed",
        "slow": "timeout",
    }, ended.stderr
    assert found["fine"][1] == Exchange(
        request={
            "agent": "claude-code",
            "system": "Be brief.",
            "prompt": inputs["fine"],
            "mcp": ["search"],
        },
        steps=(
            Step(text="looking"),
            Step(tool_calls=(ToolCall(name="search.find", arguments={}, result="x"),)),
            Step(text="done"),
        ),
    )
    (_, call) = found["crashed"][1].steps
    assert call.tool_calls == (ToolCall(name="Bash", arguments={}, result="x", failed=True),)
    leaked, read = found["slow"][1].steps
    assert leaked.tool_calls[0].result == "[REDACTED]"
    assert read.tool_calls == (ToolCall(name="Read", arguments={}, failed=True),)
    shown = paraval("show", "last", "--case", "slow").stdout
    assert "result (Bash) [REDACTED]" in shown
    assert "result (Read) failed (none)" in shown
    for file in (folder / ".paraval").rglob("run.db*"):
        assert KEY.encode() not in file.read_bytes()


def test_what_variants_with_and_without_a_server_were_sent_is_not_the_same(
    paraval: Paraval, write: WriteSuite
) -> None:
    modes = {"with": {"mcp": {"search": {"command": ["sh"]}}}, "without": {}, "plain": {}}
    write("suite.json", suite_of({"c": "say done"}, matrix={"mode": modes}))
    paraval("run", "suite.json")
    shown = paraval("show", "last", "--case", "c").stdout
    assert shown.count("the same as with without") == 1
    assert "the same as with with\n" not in shown


def test_a_key_in_a_file_that_an_agent_leaves_is_removed_from_its_steps(
    folder: Path, paraval: Paraval, write: WriteSuite
) -> None:
    """mini-swe-agent's trajectory is no log, so nothing has searched it before."""
    write(
        "mini.py",
        "import json, os, sys\n"
        "extra = {'actions': [{'command': 'env'}]}\n"
        "said = [{'role': 'assistant', 'content': 'I look.', 'extra': extra},\n"
        "        {'role': 'tool', 'content': 'KEY=' + os.environ['OPENAI_API_KEY']}]\n"
        "info = {'exit_status': 'Submitted', 'submission': 'done'}\n"
        "with open(sys.argv[sys.argv.index('-o') + 1], 'w') as file:\n"
        "    json.dump({'info': info, 'messages': said}, file)\n",
    )
    target = {
        "agent": "mini-swe-agent",
        "program": [sys.executable, str(folder / "mini.py")],
        "prompt": "{input}",
        "timeout": 60,
        "env": {"OPENAI_API_KEY": KEY},
    }
    suite = {"cases": [{"id": "c", "input": "x"}], "target": target, "graders": [{"contains": "d"}]}
    write("suite.json", json.dumps(suite))
    ended = paraval("run", "suite.json")
    outcome, exchange = stored(folder)["c"]
    assert outcome is Outcome.PASSED, ended.stdout + ended.stderr
    (call,) = exchange.steps[0].tool_calls
    assert call == ToolCall(name="bash", arguments={"command": "env"}, result="KEY=[REDACTED]")


def test_a_custom_agents_lines_are_its_transcript_and_graders_can_see_it(
    folder: Path, paraval: Paraval, write: WriteSuite
) -> None:
    write(
        "agent.py",
        "import json\n"
        "for line in (\n"
        "    {'text': 'I look.'},\n"
        "    {'call': {'name': 'mcp__repo__find', 'arguments': {'q': 'x'}, 'result': 'x.py'}},\n"
        "    {'call': {'name': 'edit', 'input': {'file': 'x.py'}, 'error': 'denied'}},\n"
        "    {'text': 'done'},\n"
        "): print(json.dumps(line))\n",
    )
    write(
        "graders.py",
        "def looked_first(output, case, *, steps):\n"
        "    names = [call.name for step in steps for call in step.tool_calls]\n"
        "    return names == ['repo.find', 'edit'] and not output.steps\n",
    )
    target = {
        "agent": "custom",
        "command": [sys.executable, str(folder / "agent.py")],
        "prompt": "{input}",
        "output": {"format": "jsonl", "answer": "text", "tools": "call"},
        "timeout": 60,
    }
    grader = {"python": "graders:looked_first"}
    suite = {"cases": [{"id": "c", "input": "x"}], "target": target, "graders": [grader]}
    write("suite.json", json.dumps(suite))
    ended = paraval("run", "suite.json")
    outcome, exchange = stored(folder)["c"]
    assert outcome is Outcome.PASSED, ended.stdout + ended.stderr
    assert exchange.request["command"][-1].endswith("agent.py")
    assert exchange.steps == (
        Step(
            text="I look.",
            tool_calls=(ToolCall(name="repo.find", arguments={"q": "x"}, result="x.py"),),
        ),
        Step(
            tool_calls=(
                ToolCall(name="edit", arguments={"file": "x.py"}, result="denied", failed=True),
            )
        ),
        Step(text="done"),
    )


def test_the_trajectory_of_mini_swe_agent_is_kept(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    trajectory = {
        "info": {"exit_status": "Submitted", "submission": "done"},
        "messages": [{"role": "assistant", "content": "I looked, with sk-0123456789abcdef."}],
    }
    write("trajectory.json", json.dumps(trajectory))
    write("mini.sh", 'while [ "$1" != -o ]; do shift; done; cp trajectory.json "$2"')
    write(
        "suite.yaml",
        """
        cases: [{id: a, input: Look.}]
        workspace: {folder: start}
        target:
          {agent: mini-swe-agent, program: [sh, "{suite}/mini.sh"], model: x, pass_env: [MY_KEY]}
        """,
    )
    (folder / "start").mkdir()
    (folder / "trajectory.json").rename(folder / "start" / "trajectory.json")
    env = {"MY_KEY": "sk-0123456789abcdef", "OPENAI_API_KEY": "sk-none-0123456789"}
    ended = paraval("run", "suite.yaml", env=env)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (kept,) = (folder / ".paraval").rglob("mini-trajectory.json")
    assert json.loads(kept.read_text())["info"] == trajectory["info"]
    assert "sk-0123456789abcdef" not in kept.read_text()
