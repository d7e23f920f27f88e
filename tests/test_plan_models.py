"""Models in suites: the registry, chat targets, judges, budgets, and which models run."""

from __future__ import annotations

import json
import pickle
import re
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings, strategies as st

from paraval.errors import Problem, RequestError, SuiteError
from paraval.plan.build import build_plan
from paraval.plan.schema.model_forms import ModelForm
from paraval.plan.schema.suite_form import json_schema
from paraval.plan.suite import Suite
from paraval.records import (
    AccountLimits,
    Budget,
    CacheUse,
    Case,
    ChatTarget,
    Message,
    Model,
    Plan,
    Price,
    Provider,
)
from paraval.settings import Selection, chosen_models
from tests.conftest import Paraval, WriteSuite

pytestmark = pytest.mark.usefixtures("folder")

EXAMPLE = """
    models:
      haiku:   {provider: anthropic, model: claude-haiku, account: team-a}
      gpt-oss: {provider: openai, base_url: "https://host/v1/", model: gpt-oss-120b, timeout: 120,
                limits: {requests_per_minute: 300, concurrent: 20}}
      local:   {provider: loopback, scenario: fast}
    cases: [{id: hello, input: Say hello., expect: hello}]
    matrix: {model: [haiku, gpt-oss, local]}
    target:
      chat: {model: "{model}", system: system.md, prompt: prompt.md, temperature: 0, max_tokens: 9}
      timeout: 30
    graders:
      - contains
      - judge: {model: haiku, rubric: "Is it polite?", pass_at: 0.8}
    budget: {usd: 5}
    cache: refresh
"""
REGISTRY: dict[str, Any] = {
    "haiku": {"provider": "anthropic", "model": "h"},
    "gpt": {"provider": "openai", "model": "g"},
    "gpt-mini": {"provider": "openai", "model": "m"},
}


def chat_suite(**changes: Any) -> Suite:
    given_keys: dict[str, Any] = {
        "cases": [{"id": "a", "input": "hi", "expect": "x"}],
        "models": REGISTRY,
        "target": {"chat": {"model": "{model}"}},
    }
    return Suite(**{**given_keys, **changes})


def plan_of(suite: Suite, *models: str) -> Plan:
    return build_plan(suite, Selection(models=models))


def model_of(**entry: Any) -> Model:
    [trial] = plan_of(chat_suite(models={"m": entry})).trials
    assert isinstance(trial.target, ChatTarget)
    return trial.target.model


def labels(plan: Plan) -> list[str]:
    return [trial.label for trial in plan.trials]


def problems_of(text: str) -> list[str]:
    Path("suite.yaml").write_text(text)
    with pytest.raises(SuiteError) as refused:
        Suite.load("suite.yaml")
    return [str(problem) for problem in refused.value.problems]


# ---- what a suite means


def test_the_example_means_what_it_says(write: WriteSuite) -> None:
    write("system.md", "Be brief, {case.id}.\n")
    write("prompt.md", "{input}\n\nAnswer as {{json}}.\n")
    plan = build_plan(Suite.load(write("suite.yaml", EXAMPLE)), Selection())
    assert plan.axes == {"model": ("haiku", "gpt-oss", "local")}
    haiku = Model(
        name="haiku",
        provider=Provider.ANTHROPIC,
        model="claude-haiku",
        base_url="https://api.anthropic.com/v1",
        api_key_env="ANTHROPIC_API_KEY",
        account="team-a",
    )
    assert plan.trials[0].target == ChatTarget(
        model=haiku,
        messages=(
            Message(role="system", content="Be brief, {case.id}."),
            Message(role="user", content="{input}\n\nAnswer as {{json}}."),
        ),
        temperature=0.0,
        max_tokens=9,
        folder=str(Path.cwd()),
        timeout=30.0,
    )
    team = ("account:team-a", "account:team-a model:claude-haiku")
    host = ("account:host", "account:host model:gpt-oss-120b")
    local = ("account:loopback:local", "account:loopback:local model:local")
    assert [trial.needs for trial in plan.trials] == [
        (*team, "model:haiku"),
        (*host, *team, "model:gpt-oss", "model:haiku"),
        (*local, *team, "model:haiku", "model:local"),
    ]
    assert plan.limits.accounts == {
        "account:host": AccountLimits(requests_per_minute=300.0, concurrent=20),
        **{name: AccountLimits() for name in (host[1], *local, *team)},
    }
    judge = plan.grading.graders[1]
    assert (judge.kind, judge.name, judge.model) == ("judge", "judge", haiku)
    assert judge.options == {
        "rubric": "Is it polite?",
        "pass_at": 0.8,
        "votes": 1,
        "reference": True,
    }
    assert plan.budget == Budget(usd=5.0)
    assert plan.cache is CacheUse.REFRESH
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_a_registry_may_stand_in_a_file_of_any_format(write: WriteSuite, folder: Path) -> None:
    (folder / "shared").mkdir()
    write("shared/quick.yaml", "latency: 0.001\n")
    data = {"one": {**REGISTRY["gpt"], "timeout": 9}, "sim": {"provider": "loopback"}}
    data["sim"]["scenario"] = "quick.yaml"
    write("shared/models.yaml", yaml.safe_dump(data, sort_keys=False))
    write("shared/models.json", json.dumps(data))
    toml = """
        one = {provider = "openai", model = "g", timeout = 9}
        [sim]
        provider = "loopback"
        scenario = "quick.yaml"
    """
    write("shared/models.toml", toml)
    plans = [
        plan_of(chat_suite(models=f"shared/models.{kind}"), "all")
        for kind in ("yaml", "json", "toml")
    ]
    assert labels(plans[0]) == ["a · one", "a · sim"]
    sim = plans[0].trials[1].target
    assert isinstance(sim, ChatTarget)
    assert sim.model.scenario == str(folder / "shared" / "quick.yaml")
    assert sim.model.base_url == ""
    assert sim.model.model == "sim"
    assert plans[0] == plans[1] == plans[2]


def test_problems_in_a_file_of_models_are_told_with_its_lines(write: WriteSuite) -> None:
    suite = "cases: [{input: x}]\nmodels: models.yaml\ntarget: {chat: {model: a}}\n"
    write("models.yaml", "a: {provider: openai, model: x}\nb:\n  provider: openai\n  modle: y\n")
    assert problems_of(suite) == [
        "models.yaml:2: b.model: is missing",
        "models.yaml:4: b.modle: unknown key 'modle', did you mean 'model'?",
    ]
    write("models.yaml", "models:\n  a: {provider: openai, model: x}\n")
    assert Suite.load(write("suite.yaml", suite)).cases
    write("models.yaml", "[a]")
    assert problems_of(suite) == [
        'models.yaml:1: must be a mapping of names to models, not the list ["a"]'
    ]


def test_problems_in_a_scenario_are_told_with_its_lines(write: WriteSuite) -> None:
    write("odd.yaml", "seed: 1\nlatnecy: 3\n")
    told = problems_of(
        "cases: [{input: x}]\nmodels: {a: {provider: loopback, scenario: ./odd.yaml}}\n"
        "target: {chat: {model: a}}\n"
    )
    assert len(told) == 1
    assert "odd.yaml:2: latnecy: " in told[0]


@pytest.mark.parametrize(
    ("entry", "key", "account"),
    [
        ({"provider": "openai"}, "OPENAI_API_KEY", "openai"),
        ({"provider": "openai-responses"}, "OPENAI_API_KEY", "openai"),
        ({"provider": "anthropic"}, "ANTHROPIC_API_KEY", "anthropic"),
        (
            {"provider": "openai", "base_url": "https://API.openai.com/v1/"},
            "OPENAI_API_KEY",
            "openai",
        ),
        ({"provider": "openai", "api_key_env": "OPENAI_API_KEY"}, "OPENAI_API_KEY", "openai"),
        ({"provider": "openai", "api_key_env": "MINE"}, "MINE", "openai:MINE"),
        ({"provider": "openai", "base_url": "http://api.openai.com/v1"}, None, "api.openai.com"),
        (
            {"provider": "openai", "base_url": "https://api.anthropic.com"},
            None,
            "api.anthropic.com",
        ),
        ({"provider": "openai", "base_url": "http://127.0.0.1:8000/v1"}, None, "127.0.0.1:8000"),
        ({"provider": "anthropic", "base_url": "https://Gate.way/x"}, None, "gate.way"),
        (
            {"provider": "openai", "base_url": "https://gate.way", "api_key_env": "GATE_KEY"},
            "GATE_KEY",
            "gate.way:GATE_KEY",
        ),
        ({"provider": "openai", "api_key_env": "MINE", "account": "ours"}, "MINE", "ours"),
        ({"provider": "loopback"}, None, "loopback:m"),
    ],
)
def test_a_key_goes_only_where_it_belongs_and_an_account_is_a_host_and_a_key(
    entry: dict[str, Any], key: str | None, account: str
) -> None:
    model = model_of(model="x", **entry)
    assert (model.api_key_env, model.account) == (key, account)


def test_an_entry_says_all_that_can_be_said_of_a_model() -> None:
    model = model_of(
        provider="openai-responses",
        model="x",
        base_url="https://host:8443/a/b//",
        api_key_env="KEY",
        account="ours",
        timeout=1,
        idle_timeout=2,
        limits={"tokens_per_minute": 5},
        price={"input_per_million": 1, "output_per_million": 2, "cached_input_per_million": 0},
        options={"top_p": 0.5, "reasoning": {"effort": "low"}, "stream": False},
    )
    assert model == Model(
        name="m",
        provider=Provider.OPENAI_RESPONSES,
        model="x",
        base_url="https://host:8443/a/b",
        api_key_env="KEY",
        account="ours",
        timeout=1.0,
        idle_timeout=2.0,
        price=Price(input_per_million=1.0, output_per_million=2.0, cached_input_per_million=0.0),
        options={"top_p": 0.5, "reasoning": {"effort": "low"}, "stream": False},
    )


def test_a_property_of_a_schema_may_be_called_key() -> None:
    schema = {"properties": {"key": {"type": "string"}, "token": {"type": "number"}}}
    assert model_of(provider="openai", model="x", options={"schema": schema}).options == {
        "schema": schema
    }


def test_one_entrys_limits_hold_for_its_account() -> None:
    models = {**REGISTRY, "gpt": {**REGISTRY["gpt"], "limits": {"concurrent": 3}}}
    plan = plan_of(chat_suite(models=models), "gpt-mini")
    assert plan.limits.accounts["account:openai"] == AccountLimits(concurrent=3)


def test_limits_may_be_those_of_one_model() -> None:
    limits = {"concurrent": 3, "per": "model"}
    models = {**REGISTRY, "gpt": {**REGISTRY["gpt"], "limits": limits}}
    plan = plan_of(chat_suite(models=models), "gpt")
    assert plan.limits.accounts == {
        "account:openai": AccountLimits(),
        "account:openai model:g": AccountLimits(concurrent=3),
    }


def test_a_prompt_is_the_input_and_messages_take_its_place(write: WriteSuite) -> None:
    [trial] = plan_of(chat_suite()).trials
    assert isinstance(trial.target, ChatTarget)
    assert trial.target.messages == (Message(role="user", content="{input}"),)
    write("ask.txt", "What is {input}?")
    messages = [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "ask.txt"},
    ]
    target = {"chat": {"model": "haiku", "system": "Be {model}", "messages": messages}}
    suite = chat_suite(target=target, matrix={"model": ["x"]})
    [trial] = plan_of(suite).trials
    assert isinstance(trial.target, ChatTarget)
    assert [(message.role, message.content) for message in trial.target.messages] == [
        ("system", "Be {model}"),
        ("user", "Hello."),
        ("assistant", "Yes?"),
        ("user", "What is {input}?"),
    ]


def test_the_front_matter_of_a_prompts_file_is_not_for_the_model(write: WriteSuite) -> None:
    """Figures that a badge writes there change neither what is asked nor the keys of trials."""
    suite = (
        "models: {m: {provider: loopback, model: m}}\ncases: [{id: a, input: x}]\n"
        "target: {chat: {model: m, prompt: prompt.md}}\n"
    )
    write("suite.yaml", suite)
    keys = set()
    for front in ("", "---\nlatest_accuracy: 91.7\n---\n", "---\r\nname: x\r\n# y\r\n---\r\n"):
        write("prompt.md", f"{front}Say {{input}}.\n")
        (trial,) = build_plan(Suite.load(Path("suite.yaml")), Selection()).trials
        assert isinstance(trial.target, ChatTarget)
        assert trial.target.messages[-1].content == "Say {input}."
        keys.add(trial.key)
    assert len(keys) == 1


@pytest.mark.parametrize(
    "text", ["---\nA rule, no key\n---\nSay {input}.", "---\nname: no end\n{input}"]
)
def test_a_rule_at_the_start_of_a_prompt_stays(write: WriteSuite, text: str) -> None:
    write("prompt.md", text)
    write(
        "suite.yaml",
        "models: {m: {provider: loopback, model: m}}\ncases: [{id: a, input: x}]\n"
        "target: {chat: {model: m, prompt: prompt.md}}\n",
    )
    (trial,) = build_plan(Suite.load(Path("suite.yaml")), Selection()).trials
    assert isinstance(trial.target, ChatTarget)
    assert trial.target.messages[-1].content == text


def test_a_mistake_below_front_matter_is_told_with_its_line(write: WriteSuite) -> None:
    write("prompt.md", "---\nname: x\n---\nSay\n{inptu}.\n")
    write(
        "suite.yaml",
        "models: {m: {provider: loopback, model: m}}\ncases: [{id: a, input: x}]\n"
        "target: {chat: {model: m, prompt: prompt.md}}\n",
    )
    with pytest.raises(SuiteError, match=r"prompt\.md:5: "):
        Suite.load(Path("suite.yaml"))


@pytest.mark.parametrize(
    "text", ["Read notes.md", "see {case.id}.md", "two\nlines.txt", "notes.pdf"]
)
def test_only_a_single_word_with_a_known_ending_is_a_file(text: str) -> None:
    [trial] = plan_of(chat_suite(target={"chat": {"model": "gpt", "prompt": text}})).trials
    assert isinstance(trial.target, ChatTarget)
    assert trial.target.messages[0].content == text


def test_what_is_wrong_in_a_prompts_file_is_told_with_its_line(write: WriteSuite) -> None:
    write("one.md", "Answer\n{input}\nas {persona}.\n{input.q}\n")
    write("two.md", "{input} and {{x}}\n\n{\n  json\n}\n")
    write("three.md", "{input}\n{{plain}} {lone\n")
    write("four.md", " \n")
    told = problems_of(
        "cases: [{id: a, input: x}]\n"
        "models: {m: {provider: openai, model: x}}\n"
        "matrix: {p: {a: {}, b: {chat: {prompt: two.md}}, c: {chat: {prompt: three.md}},"
        " d: {chat: {prompt: four.md}}}}\n"
        "target: {chat: {model: m, prompt: one.md}}\n"
    )
    fields = "choose from 'input', 'case.id', 'repeat' and 'p'; write {{ and }} for literal braces"
    assert told[:-1] == [
        "four.md: the file is empty",
        f"one.md:3: unknown field {{persona}}; {fields}",
        "one.md:4: {input.q} for case 'a': its input is text and has no keys; use {input}",
        f"two.md:3: unknown field {{json}}; {fields}",
    ]
    assert told[-1].startswith("three.md:2: unmatched '{' at character 19 in '{input}")


NOTHING_OF_THE_CASE = (
    "the prompt uses nothing of the case: all 3 cases would send the same text; did you mean"
    " {input}?"
)
LITERALLY = "axis values are inserted literally; write wording:"
THREE = """
    cases: [{id: a, input: x}, {id: b, input: y}, {id: c, input: z}]
    models: {m: {provider: openai, model: x}}
"""


def told_of_prompts(write: WriteSuite, lines: str) -> list[str]:
    """What is wrong with a suite of three cases whose target begins in line 4."""
    write("suite.yaml", THREE + textwrap.indent(textwrap.dedent(lines).lstrip(), "    "))
    try:
        Suite.load("suite.yaml")
    except SuiteError as refused:
        return [str(problem) for problem in refused.problems]
    return []


@pytest.mark.parametrize(
    ("chat", "key", "field"),
    [
        ('prompt: "Answer this: {{input}}"', "prompt", "input"),
        ('prompt: "{input}", system: "Be {{ tone }}."', "system", "tone"),
        (
            'messages: [{role: user, content: "{{input.q}} {case.id}"}]',
            "messages[0].content",
            "input.q",
        ),
    ],
)
def test_a_field_in_double_braces_is_refused(
    write: WriteSuite, chat: str, key: str, field: str
) -> None:
    written = re.search(r"\{\{.*?\}\}", chat)
    assert written is not None
    told = told_of_prompts(
        write, f"matrix: {{tone: [dry, warm]}}\ntarget: {{chat: {{model: m, {chat}}}}}"
    )
    why = f"{written[0]} is literal text and is not filled in; did you mean {{{field}}}?"
    assert told == [f"suite.yaml:5: target.chat.{key}: {why}"]


def test_double_braces_in_a_prompts_file_are_told_with_their_line(write: WriteSuite) -> None:
    write("prompt.md", "Answer the question.\n\n{{input}}\n")
    told = told_of_prompts(write, "target: {chat: {model: m, prompt: prompt.md}}")
    assert told == [
        "prompt.md:3: {{input}} is literal text and is not filled in; did you mean {input}?"
    ]


def test_braces_that_hold_no_field_stay_possible(write: WriteSuite) -> None:
    write("prompt.md", '{input}\n\nAnswer as {{"a": 1}}, {{x}} or {{{input}}}.\n')
    assert told_of_prompts(write, "target: {chat: {model: m, prompt: prompt.md}}") == []


@pytest.mark.parametrize(
    "chat",
    [
        'prompt: "Answer the question."',
        'prompt: "Answer {{question}}."',
        'prompt: "{tone} {repeat}"',
        'system: Be brief., messages: [{role: user, content: "Hello, {tone}."}]',
    ],
)
def test_a_prompt_that_uses_nothing_of_the_case_is_refused(write: WriteSuite, chat: str) -> None:
    told = told_of_prompts(
        write, f"matrix: {{tone: [dry, warm]}}\ntarget: {{chat: {{model: m, {chat}}}}}"
    )
    key = "messages[0].content" if "messages" in chat else "prompt"
    assert told == [f"suite.yaml:5: target.chat.{key}: {NOTHING_OF_THE_CASE}"]


@pytest.mark.parametrize(
    "chat",
    [
        "{model: m}",
        '{model: m, prompt: Go on., system: "About {case.id}:"}',
        '{model: m, messages: [{role: user, content: "{input}"}, {role: user, content: Why?}]}',
    ],
)
def test_one_message_that_uses_the_case_is_enough(write: WriteSuite, chat: str) -> None:
    assert told_of_prompts(write, f"target: {{chat: {chat}}}") == []


def test_a_suite_of_one_case_may_have_a_constant_prompt() -> None:
    [trial] = plan_of(chat_suite(target={"chat": {"model": "gpt", "prompt": "Hello."}})).trials
    assert trial.case.id == "a"


def test_only_the_variants_whose_prompt_uses_nothing_are_told(write: WriteSuite) -> None:
    told = told_of_prompts(
        write,
        """
        matrix:
          wording:
            short: {chat: {prompt: "{input}"}}
            none: {chat: {prompt: Answer.}}
        target: {chat: {model: m}}
        """,
    )
    assert told == [f"suite.yaml:7: matrix.wording.none.chat.prompt: {NOTHING_OF_THE_CASE}"]


@pytest.mark.parametrize("key", ["prompt", "system"])
def test_the_name_of_a_prompts_file_is_not_sent_as_a_prompt(write: WriteSuite, key: str) -> None:
    """Nobody asks a model for a path."""
    other = "" if key == "prompt" else ', prompt: "{input}"'
    told = told_of_prompts(
        write,
        f"""
        matrix: {{wording: [prompts/a.md, Be brief., "{{input}}, please"]}}
        target: {{chat: {{model: m, {key}: "{{wording}}"{other}}}}}
        """,
    )
    kinds = "must be a text file (.md, .txt, .prompt or .j2) like the other values of this axis"
    assert told == [
        "suite.yaml:4: matrix.wording[0]: 'prompts/a.md': no such file",
        f"suite.yaml:4: matrix.wording[1]: {kinds}, not 'Be brief.'",
        f"suite.yaml:4: matrix.wording[2]: {kinds}, not '{{input}}, please'",
    ]


@pytest.mark.parametrize("key", ["prompt", "system"])
def test_the_name_of_a_prompts_file_cannot_hold_a_field(write: WriteSuite, key: str) -> None:
    other = "" if key == "prompt" else ', prompt: "{input}"'
    told = told_of_prompts(
        write,
        f"""
        matrix: {{wording: [a, b]}}
        target: {{chat: {{model: m, {key}: "prompts/{{wording}}.md"{other}}}}}
        """,
    )
    (problem,) = told
    assert "'prompts/{wording}.md' would be sent literally" in problem
    assert "make the files an axis, wording: prompts/*.md, and write {wording} here" in problem


def test_a_template_as_the_value_of_an_axis_is_not_sent_as_it_stands() -> None:
    with pytest.raises(SuiteError) as refused:
        chat_suite(
            matrix={"wording": ["{input}, please", "now"]},
            target={"chat": {"model": "gpt", "prompt": "{wording}"}},
        )
    (problem,) = refused.value.problems
    assert str(problem) == (
        "matrix.wording[0]: '{input}, please' would be sent as the prompt:"
        f" {LITERALLY} {{NAME: {{chat: {{prompt: TEXT}}}}}}"
    )


def test_values_of_an_axis_that_are_texts_may_be_a_prompt() -> None:
    plan = plan_of(
        chat_suite(
            matrix={"wording": ["Say hi.", "Greet me."]},
            target={"chat": {"model": "gpt", "prompt": "{wording}"}},
        )
    )
    assert labels(plan) == ["a · Say hi.", "a · Greet me."]


def test_overlays_are_laid_over_the_keys_of_a_chat() -> None:
    suite = chat_suite(
        matrix={
            "heat": {
                "cold": {},
                "hot": {"chat": {"temperature": 1.5, "model": "haiku"}, "timeout": 5},
            }
        },
        target={"chat": {"model": "gpt", "temperature": 0, "max_tokens": 9}},
    )
    cold, hot = (trial.target for trial in plan_of(suite).trials)
    assert isinstance(cold, ChatTarget)
    assert isinstance(hot, ChatTarget)
    assert (cold.model.name, cold.temperature, cold.max_tokens, cold.timeout) == ("gpt", 0, 9, None)
    assert hot == replace(cold, model=hot.model, temperature=1.5, timeout=5.0)
    assert hot.model.name == "haiku"


def test_a_model_may_be_told_by_several_axes() -> None:
    suite = chat_suite(
        matrix={"vendor": ["gpt"], "size": ["mini"]},
        target={"chat": {"model": "{vendor}-{size}"}},
    )
    [trial] = plan_of(suite).trials
    assert trial.needs == ("account:openai", "account:openai model:m", "model:gpt-mini")


def test_a_judge_may_judge_a_command_and_its_rubric_stand_in_a_file(write: WriteSuite) -> None:
    write("rubric.md", "Is it {input}?\n")
    judge = {"model": "gpt", "rubric": "rubric.md", "votes": 3, "timeout": 7, "name": "manners"}
    suite = chat_suite(target={"command": ["echo", "hi"]}, graders=[{"judge": judge}])
    plan = plan_of(suite)
    [spec] = plan.grading.graders
    assert spec.name == "manners"
    assert spec.options == {
        "rubric": "Is it {input}?",
        "votes": 3,
        "timeout": 7.0,
        "pass_at": 0.7,
        "reference": True,
    }
    accounts = ("account:openai", "account:openai model:g")
    assert plan.trials[0].needs == (*accounts, "model:gpt")
    assert tuple(plan.limits.accounts) == accounts


# ---- which models run


def test_without_a_word_the_first_of_the_registry_runs() -> None:
    target = {"chat": {"model": "{model}", "system": "Be {tone}."}}
    plan = plan_of(chat_suite(matrix={"tone": ["dry", "warm"]}, target=target))
    assert labels(plan) == ["a · haiku · dry", "a · haiku · warm"]
    assert plan.axes == {"model": ("haiku",), "tone": ("dry", "warm")}


def test_without_a_word_those_run_that_the_matrix_lists_in_its_order() -> None:
    assert labels(plan_of(chat_suite(matrix={"model": ["gpt-mini", "haiku"]}))) == [
        "a · gpt-mini",
        "a · haiku",
    ]


@pytest.mark.parametrize("matrix", [None, {"model": ["gpt-mini", "haiku"]}])
@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("all", ["haiku", "gpt", "gpt-mini"]),
        ("gpt", ["gpt"]),
        ("gpt-mini,haiku", ["haiku", "gpt-mini"]),
        ("gpt*", ["gpt", "gpt-mini"]),
        ("*mini,gpt*", ["gpt", "gpt-mini"]),
    ],
)
def test_models_are_chosen_by_name_or_glob_in_the_registrys_order(
    matrix: dict[str, Any] | None, asked: str, chosen: list[str]
) -> None:
    plan = plan_of(chat_suite(matrix=matrix), *chosen_models(asked, source="--models"))
    assert labels(plan) == [f"a · {name}" for name in chosen]
    assert plan.axes == {"model": tuple(chosen)}
    assert Selection.from_mapping(plan.selection).models == tuple(asked.split(","))


def test_a_preset_is_a_rubric_to_which_the_suite_may_add() -> None:
    judge = {"model": "gpt", "preset": "factuality"}
    suite = chat_suite(graders=[{"judge": judge}, {"judge": {**judge, "rubric": "Be strict."}}])
    alone, added = (spec.options for spec in plan_of(suite).grading.graders)
    assert alone["rubric"].startswith('Compare the facts of "answer" with those of "reference".')
    assert added["rubric"] == alone["rubric"] + "\n\nBe strict."
    assert "context" not in alone


JUDGED = {"graders": ["contains", {"judge": {"model": "gpt-mini", "rubric": "Is it polite?"}}]}


def test_a_model_that_only_judges_is_chosen_by_its_name_and_not_by_all() -> None:
    assert labels(plan_of(chat_suite(**JUDGED), "all")) == ["a · haiku", "a · gpt"]
    assert labels(plan_of(chat_suite(**JUDGED), "gpt-mini")) == ["a · gpt-mini"]
    assert labels(plan_of(chat_suite(**JUDGED), "gpt*")) == ["a · gpt", "a · gpt-mini"]


@pytest.mark.parametrize(
    "changes",
    [
        {"matrix": {"model": ["haiku", "gpt-mini"]}},
        {"models": {"gpt-mini": REGISTRY["gpt-mini"], "haiku": REGISTRY["haiku"]}},
    ],
    ids=["listed", "first"],
)
def test_a_judge_that_runs_anyway_is_one_of_all(changes: dict[str, Any]) -> None:
    assert "a · gpt-mini" in labels(plan_of(chat_suite(**JUDGED, **changes), "all"))


def test_all_is_refused_where_every_model_of_the_registry_only_judges() -> None:
    suite = chat_suite(
        **JUDGED,
        models={"gpt-mini": REGISTRY["gpt-mini"]},
        target={"command": ["echo", "{model}"]},
        matrix={"model": ["mine"]},
    )
    with pytest.raises(RequestError, match=r"no model to run.*\nhint: to run one"):
        plan_of(suite, "all")
    assert labels(plan_of(suite, "gpt-mini")) == ["a · gpt-mini"]


def test_the_axis_may_have_any_name_and_place() -> None:
    suite = chat_suite(
        matrix={"tone": ["dry", "warm"], "llm": ["gpt"]},
        target={"chat": {"model": "{llm}", "system": "Be {tone}."}},
    )
    assert labels(plan_of(suite, "gpt", "haiku")) == [
        "a · dry · haiku",
        "a · dry · gpt",
        "a · warm · haiku",
        "a · warm · gpt",
    ]


def test_a_trial_has_the_same_key_however_its_model_was_chosen() -> None:
    by_default = plan_of(chat_suite()).trials[0]
    listed = plan_of(chat_suite(matrix={"model": ["gpt", "haiku"]})).trials[1]
    chosen = plan_of(chat_suite(), "all").trials[0]
    assert by_default.key == listed.key == chosen.key


def test_a_command_is_run_with_the_models_that_are_chosen() -> None:
    suite = chat_suite(
        matrix={"model": ["small"]}, target={"command": ["echo", "{model}"], "output": "stdout"}
    )
    assert labels(plan_of(suite)) == ["a · small"]
    plan = plan_of(suite, "gpt*")
    assert labels(plan) == ["a · gpt", "a · gpt-mini"]
    assert plan.trials[0].needs == ()


def test_files_are_not_shared_by_the_models_that_are_chosen() -> None:
    suite = chat_suite(
        matrix={"model": ["small"]}, target={"command": ["echo"], "output": "out.txt"}
    )
    assert labels(plan_of(suite)) == ["a · small"]
    with pytest.raises(SuiteError, match="3 trials would write the same file"):
        plan_of(suite, "all")


def test_rules_and_limits_may_name_models_that_only_a_choice_runs() -> None:
    suite = chat_suite(
        matrix={"model": ["gpt"], "tone": ["dry", "warm"]},
        target={"chat": {"model": "{model}", "system": "Be {tone}."}},
        exclude=[{"model": "haiku", "tone": "dry"}],
        limits={"model": {"haiku": 2}},
    )
    assert labels(plan_of(suite)) == ["a · gpt · dry", "a · gpt · warm"]
    [trial] = plan_of(suite, "haiku").trials
    assert trial.label == "a · haiku · warm"
    accounts = ("account:anthropic", "account:anthropic model:h")
    assert trial.needs == (*accounts, "model:haiku", "model=haiku")


FIXED = {"target": {"chat": {"model": "gpt"}}}
OVERLAID = {"matrix": {"model": {"gpt": {"chat": {"temperature": 0}}, "haiku": {}}}}
PARTS = {
    "target": {"chat": {"model": "{v}-{s}"}},
    "matrix": {"v": ["gpt"], "s": ["mini"]},
}
COMMAND = {"target": {"command": ["echo"]}}
EXCLUDED = {"matrix": {"model": ["gpt"]}, "exclude": [{"model": "haiku"}]}
NONE_FITS = "no model in the registry matches"
NO_CHOICE = "models cannot be chosen in this suite: its target"


@pytest.mark.parametrize(
    ("changes", "asked", "message"),
    [
        ({}, "gtp", f"{NONE_FITS} 'gtp'\nhint: did you mean gpt?"),
        ({}, "haiku,z*", f"{NONE_FITS} 'z*'\nhint: choose from 'haiku', 'gpt' and 'gpt-mini'"),
        ({}, "GPT", f"{NONE_FITS} 'GPT'\nhint: did you mean gpt?"),
        (FIXED, "gpt", f"{NO_CHOICE} always uses 'gpt'; to choose, write model: \"{{model}}\""),
        (
            PARTS,
            "gpt",
            f"{NO_CHOICE}'s model name has several parts, {{v}}-{{s}}; choose them with",
        ),
        (COMMAND, "gpt", f"{NO_CHOICE} uses no model, and its matrix has no axis 'model'"),
        (OVERLAID, "all", "keys only for 'gpt' and 'haiku', so 'gpt-mini' cannot be chosen\nhint"),
        ({**COMMAND, "models": None}, "gpt", "the suite has no models to choose from"),
        (EXCLUDED, "gpt,haiku", "the suite excludes every variant with the model 'haiku'"),
    ],
)
def test_models_that_cannot_be_chosen_are_told_and_never_guessed(
    changes: dict[str, Any], asked: str, message: str
) -> None:
    with pytest.raises(RequestError) as refused:
        plan_of(chat_suite(**changes), *asked.split(","))
    assert message in str(refused.value)


def test_an_axis_with_overlays_gives_those_it_lists() -> None:
    assert labels(plan_of(chat_suite(**OVERLAID), "haiku")) == ["a · haiku"]


def test_a_variant_that_only_a_choice_of_models_makes_is_hinted_at() -> None:
    with pytest.raises(RequestError, match=r"has no value 'gpt'.*\nhint: --models gpt runs"):
        build_plan(chat_suite(), Selection(variants=(("model", "gpt"),)))


def test_the_size_of_a_plan_is_that_of_the_models_chosen() -> None:
    cases = [Case(id=f"c{number}", input="x") for number in range(1_000)]
    suite = chat_suite(cases=cases, repeats=500)
    with pytest.raises(RequestError, match="1,500,000 trials"):
        plan_of(suite, "all")


# ---- budget and cache


def test_the_cache_is_a_word_or_a_mapping_with_a_size(write: WriteSuite, paraval: Paraval) -> None:
    assert plan_of(chat_suite(cache="off")).cache_bytes == 2_000_000_000
    plan = plan_of(chat_suite(cache={"max_size": "500MB"}))
    assert (plan.cache, plan.cache_bytes) == (CacheUse.REUSE, 500_000_000)
    plan = plan_of(chat_suite(cache={"mode": "refresh"}))
    assert (plan.cache, plan.cache_bytes) == (CacheUse.REFRESH, 2_000_000_000)
    suite = """\
        models: {{sim: {{provider: loopback}}}}
        cases: [{{id: a, input: "a {long}"}}, {{id: b, input: "b {long}"}}, {{id: c, input: c}}]
        target: {{chat: {{model: sim, prompt: "{{input}}"}}}}
        cache: {cache}
        """
    write("suite.yaml", suite.format(long="long " * 150_000, cache="{max_size: 1MB}"))
    assert paraval("run", "suite.yaml", "-j", "1").returncode == 0
    told = json.loads(paraval("runs", "size", "--json").stdout)
    assert 0 < told["cache_bytes"] < 1_200_000, "not both long answers"
    for cache, why in (
        ("refesh", "must be 'reuse', 'refresh', 'off' or a mapping, not 'refesh'"),
        ("[off]", "must be 'reuse', 'refresh', 'off' or a mapping, not the list"),
        ("{max_size: 2G}", "an amount such as 500MB, 2GB or 1.5GiB, not '2G'"),
        ("{size: 2GB}", "unknown key 'size', did you mean 'max_size'?"),
    ):
        write("suite.yaml", suite.format(long="", cache=cache))
        ended = paraval("plan", "suite.yaml")
        assert (ended.returncode, why in ended.stderr) == (2, True), ended.stderr
        assert "suite.yaml:4: cache" in ended.stderr


def test_a_selection_lays_its_budget_and_cache_over_the_suites() -> None:
    suite = chat_suite(budget={"usd": 5, "per_attempt_usd": 0.02}, cache="off")
    assert plan_of(suite).budget == Budget(usd=5.0, per_attempt_usd=0.02)
    assert plan_of(suite).cache is CacheUse.OFF
    plan = build_plan(suite, Selection(budget_usd=7, cache="refresh"))
    assert plan.budget == Budget(usd=7.0, per_attempt_usd=0.02)
    assert plan.cache is CacheUse.REFRESH
    assert plan_of(chat_suite()).budget is None
    assert plan_of(chat_suite()).cache is CacheUse.REUSE
    assert build_plan(chat_suite(), Selection(budget_usd=1)).budget == Budget(usd=1.0)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            Selection(budget_usd=0),
            "the budget must be a number of US dollars greater than 0, not 0",
        ),
        (Selection(budget_usd=float("nan")), "greater than 0, not nan"),
        (Selection(cache="reues"), "unknown cache mode 'reues', did you mean 'reuse'?"),
    ],
)
def test_a_senseless_budget_or_cache_is_told(selection: Selection, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        build_plan(chat_suite(), selection)
    assert message in str(refused.value)


# ---- keys of trials

JUDGE = {"model": "gpt", "rubric": "r"}
BASE: dict[str, Any] = {
    "models": {**REGISTRY, "m": {"provider": "openai", "model": "x"}},
    "target": {"chat": {"model": "m", "prompt": "{input}"}},
    "graders": [{"judge": JUDGE}],
}


def key_of(*, entry: dict[str, Any] | None = None, **changes: Any) -> str:
    models = {**BASE["models"], "m": {**BASE["models"]["m"], **(entry or {})}}
    [trial] = plan_of(chat_suite(**{**BASE, "models": models, **changes})).trials
    return trial.key


@pytest.mark.parametrize(
    "entry",
    [
        {"account": "other"},
        {"api_key_env": "OTHER"},
        {"timeout": 1},
        {"idle_timeout": 1},
        {"limits": {"concurrent": 1}},
        {"price": {"input_per_million": 1, "output_per_million": 1}},
        {"base_url": "https://api.openai.com/v1/"},
    ],
)
def test_what_does_not_decide_an_answer_leaves_keys_alone(entry: dict[str, Any]) -> None:
    assert key_of(entry=entry) == key_of()


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": {"usd": 1}},
        {"cache": "off"},
        {"target": {**BASE["target"], "timeout": 3}},
        {"graders": [{"judge": {**JUDGE, "timeout": 3}}]},
    ],
)
def test_how_a_run_goes_leaves_keys_alone(changes: dict[str, Any]) -> None:
    assert key_of(**changes) == key_of()


def test_what_decides_an_answer_or_its_verdict_changes_keys(write: WriteSuite) -> None:
    write("slow.yaml", "latency: 1\n")
    other_judge = {**REGISTRY, "gpt": {**REGISTRY["gpt"], "options": {"seed": 1}}}
    keys = [
        key_of(),
        *(
            key_of(entry=entry)
            for entry in (
                {"model": "y"},
                {"provider": "openai-responses"},
                {"base_url": "https://host/v1"},
                {"options": {"top_p": 1}},
                {"provider": "loopback"},
                {"provider": "loopback", "scenario": "slow"},
                {"provider": "loopback", "scenario": "slow.yaml"},
            )
        ),
        *(
            key_of(target={"chat": {**BASE["target"]["chat"], **chat}})
            for chat in (
                {"prompt": "{input}!"},
                {"system": "x"},
                {"temperature": 0},
                {"max_tokens": 5},
                {"prompt": None, "messages": [{"role": "user", "content": "{input}?"}]},
            )
        ),
        *(
            key_of(graders=[{"judge": {**JUDGE, **judge}}])
            for judge in (
                {"rubric": "s"},
                {"votes": 3},
                {"pass_at": 0.6},
                {"model": "haiku"},
                {"reference": False},
            )
        ),
        key_of(models={**other_judge, "m": BASE["models"]["m"]}),
    ]
    assert len(set(keys)) == len(keys)


def test_a_scenarios_contents_decide_and_not_where_it_stands(write: WriteSuite) -> None:
    write("one.yaml", "latency: 0.5\n")
    write("two.yaml", "# moved\nlatency: 0.5\n")
    key = key_of(entry={"provider": "loopback", "scenario": "one.yaml"})
    assert key_of(entry={"provider": "loopback", "scenario": "two.yaml"}) == key
    write("one.yaml", "answers: echo\nlatency: 0.6\n")
    assert key_of(entry={"provider": "loopback", "scenario": "one.yaml"}) != key


def test_a_registrys_name_decides_nothing_where_the_variant_does_not_say_it() -> None:
    entry = {"provider": "openai", "model": "x"}
    first, second = (
        plan_of(chat_suite(models={name: entry}, target={"chat": {"model": name}})).trials[0]
        for name in ("one", "two")
    )
    assert first.key == second.key
    assert first.needs != second.needs


# ---- what is wrong, in plain words

REPLACED = {
    "@cases": "cases: [{id: a, input: {q: x}, expect: x}, {id: b, input: {q: y}, expect: y}]",
    "@target": "target: {command: [echo, hi]}",
    "@models": "models:"
    " {haiku: {provider: anthropic, model: h}, gpt: {provider: openai, model: g}}",
}
BLOCKS = Path(__file__).with_name("test_plan_models_messages.txt").read_text().split("\n====\n")


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split("\n--\n")[0])
def test_a_wrong_suite_is_told_in_plain_words(block: str) -> None:
    """Each block of the file is a suite, and after a line of dashes all that is said about it."""
    text, messages = block.split("\n--\n")
    for mark, words in REPLACED.items():
        text = text.replace(mark, words)
    told = problems_of(text)
    assert told == messages.splitlines()
    assert "secret" not in "".join(told)


secrets = st.text("abcXYZ0189-_", min_size=8, max_size=20).map(lambda text: f"sk-{text}")
places = st.sampled_from([*ModelForm.model_fields, "api_key", "whatever"])
wrappings = st.sampled_from(
    [lambda key: key, lambda key: [key], lambda key: {"a": key}, lambda key: {"b": [{"c": key}]}]
)


@settings(deadline=None, max_examples=100)
@given(secrets, places, wrappings)
def test_a_key_in_an_entry_is_refused_and_never_repeated(
    secret: str, place: str, wrapping: Any
) -> None:
    entry = {"provider": "openai", "model": "x", place: wrapping(secret)}
    with pytest.raises(SuiteError) as refused:
        chat_suite(models={"m": entry})
    assert secret not in str(refused.value)
    assert "name its environment variable in api_key_env" in str(refused.value)


KEYS = "chat model models provider base_url api_key_env account limits concurrent price options"
VALUES = "openai anthropic loopback scenario fast system prompt messages role user content judge"
ODD = "rubric votes usd {model} {input} { m gpt temperature reuse notes.md"
WORDS = [*KEYS.split(), *VALUES.split(), *ODD.split()]
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)
GOOD: dict[str, Any] = {
    "models": {"m": {"provider": "openai", "model": "x"}},
    "chat": {"model": "{model}"},
    "judge": {"model": "m", "rubric": "x"},
    "budget": {"usd": 1},
    "cache": "reuse",
}


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(st.sampled_from(list(GOOD)), junk, max_size=2),
    st.dictionaries(
        st.sampled_from([*GOOD["models"]["m"], "limits", "price", "options", "base_url"]),
        junk,
        max_size=2,
    ),
)
def test_whatever_is_written_is_a_plan_or_a_list_of_problems(
    parts: dict[str, Any], entry: dict[str, Any]
) -> None:
    words = {**GOOD, **parts}
    if "models" not in parts:
        words["models"] = {"m": {**GOOD["models"]["m"], **entry}}
    problems: tuple[Problem, ...] = ()
    try:
        suite = Suite(
            cases=[{"input": "x"}],
            models=words["models"],
            target={"chat": words["chat"]},
            graders=[{"judge": words["judge"]}],
            budget=words["budget"],
            cache=words["cache"],
        )
        plan = plan_of(suite)
        assert pickle.loads(pickle.dumps(plan)) == plan
        assert len(plan.trials) == 1
    except SuiteError as error:
        problems = error.problems or (Problem(message="Input should not be refused silently"),)
    for problem in problems:
        assert "Input should" not in problem.message
        assert "\n" not in str(problem)


# ---- the schema for editors


SCHEMA = jsonschema.Draft202012Validator(json_schema())


def test_the_schema_takes_what_the_loader_takes() -> None:
    example = yaml.safe_load(EXAMPLE)
    SCHEMA.validate(example)
    example["models"] = "models.yaml"
    example["matrix"] = {"model": {"a": {"chat": {"temperature": 1}, "timeout": 3}, "b": {}}}
    example["target"] = {"chat": {"model": "a", "messages": [{"role": "user", "content": "x"}]}}
    SCHEMA.validate(example)


@pytest.mark.parametrize(
    "wrong",
    [
        {"models": {}},
        {"models": {"a": {"model": "x"}}},
        {"models": {"a": {"provider": "openai", "modle": "x"}}},
        {"models": {"a": {"provider": "openai", "limits": {"concurrent": 0}}}},
        {"models": {"a": {"provider": "openai", "price": {"input_per_million": 1}}}},
        {"target": {"chat": {"prompt": "x"}}},
        {"target": {"chat": {"model": "x", "messages": [{"role": "robot", "content": "x"}]}}},
        {"matrix": {"a": {"x": {"chat": {"tempreature": 1}}}}},
        {"graders": ["judge"]},
        {"graders": [{"judge": {"model": "a"}}]},
        {"budget": {"usd": 0}},
        {"cache": "always"},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(wrong: dict[str, Any]) -> None:
    good = {"cases": "a.csv", "target": {"chat": {"model": "a"}}}
    SCHEMA.validate(good)
    assert not SCHEMA.is_valid({**good, **wrong})


# ---- speed


def test_a_hundred_thousand_chat_trials_are_planned_quickly() -> None:
    cases = [Case(id=f"c{number}", input="x") for number in range(50_000)]
    suite = chat_suite(cases=cases, graders=[{"judge": JUDGE}])
    started = time.process_time()
    assert len(plan_of(suite, "haiku", "gpt").trials) == 100_000
    assert time.process_time() - started < 5, "about 1 s on a quiet machine"
