"""What a scenario may say, and what the simulation makes of it: no sockets, virtual time."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from paraval.errors import ScenarioError
from paraval.loopback.exchange import ErrorReply, ModelRequest
from paraval.loopback.faults import Faults, latency_s
from paraval.loopback.scenario import Scenario, bundled_names
from paraval.loopback.scenario_forms import (
    AnswerRule,
    Fault,
    FaultKind,
    Headers,
    KnownAnswer,
    Latency,
    ScenarioAccount as AccountForm,
    ScenarioForm,
    ScenarioLimits,
    Storm,
    Tokens,
)
from paraval.loopback.simulated_models import (
    AccountState,
    Allowance,
    ServedRequest,
    SimulatedModels,
    account_name,
    duration,
)
from tests.conftest import WriteSuite

RETRY_AFTER = "must be seconds, the header's exact text, or false for no header"
KINDS = (
    "'status', 'disconnect', 'hang', 'drip', 'invalid_json', 'wrong_usage', 'half_open', "
    "'html', 'redirect', 'huge' or 'echo_key'"
)


def question(prompt: str = "hello", model: str = "m", **further: Any) -> ModelRequest:
    return ModelRequest(model=model, prompt=prompt, characters=len(prompt), **further)


def meet(
    simulation: SimulatedModels, prompt: str = "hello", *, now: float = 0.0
) -> ServedRequest | ErrorReply:
    return simulation.meet(question(prompt), "key-a", Headers.OPENAI, now)


def text_of(met: ServedRequest | ErrorReply) -> str:
    assert isinstance(met, ServedRequest)
    return met.reply.text


# ---- scenarios


def test_every_bundled_scenario_loads_and_says_what_it_is() -> None:
    assert bundled_names() == ("fast", "flaky", "limited", "silent-limit", "slow")
    for name in bundled_names():
        assert Scenario.load(name).about


def test_everything_that_is_wrong_in_a_scenario_is_told_at_once(write: WriteSuite) -> None:
    path = write(
        "bad.yaml",
        r"""
        latncy: 1
        seed: yes
        latency: {median: 1, sgma: 2}
        answers:
          - {match: "(", text: a}
          - {match: "a(b)", text: 'x \2'}
          - {echo: true, text: both}
        limits:
          burst: -1
          retry_after: true
        faults:
          - kind: explode
          - {kind: status}
          - {kind: hang, megabytes: 3}
        accounts: {team: {quoto: 3}}
        """,
    )
    with pytest.raises(ScenarioError) as raised:
        Scenario.load(path)
    told = [str(problem).removeprefix(f"{path}:") for problem in raised.value.problems]
    assert sorted(told) == sorted(
        [
            "2: latncy: unknown key 'latncy', did you mean 'latency'?",
            "3: seed: must be a whole number, not 'yes'",
            "4: latency.sgma: unknown key 'sgma', did you mean 'sigma'?",
            "6: answers[0].match: must be a regular expression, not '('",
            "7: answers[1]: text: match has no group '2'",
            "8: answers[2]: needs one of echo, text, script or right",
            "10: limits.burst: must be greater than 0, not -1",
            f"11: limits.retry_after: {RETRY_AFTER}",
            f"13: faults[0].kind: must be {KINDS}, not 'explode'",
            "14: faults[1]: kind 'status' needs a status from 400 to 599",
            "15: faults[2]: megabytes does not apply to kind 'hang'",
            "16: accounts.team.quoto: unknown key 'quoto', did you mean 'quota'?",
        ]
    )


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.yaml", "latency: [1", "not valid YAML"),
        ("a.yaml", "seed: 1\nseed: 2", "a.yaml:2: .*duplicate key 'seed'"),
        ("a.yaml", "answers: &a [*a]", "aliases"),
        ("a.yaml", "seed: !!python/name:os.system", "tags .* are not allowed"),
        ("a.yaml", "[1, 2]", "must be a mapping"),
        ("a.json", '{"seed": NaN}', "NaN"),
        ("a.json", "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(
    write: WriteSuite, name: str, text: str, told: str
) -> None:
    with pytest.raises(ScenarioError, match=told):
        Scenario.load(write(name, text))


def test_names_that_are_no_scenario_are_never_guessed_at(folder: Path) -> None:
    with pytest.raises(ScenarioError, match="unknown scenario 'fsat', did you mean 'fast'"):
        Scenario.load("fsat")
    with pytest.raises(ScenarioError, match=r"missing.yaml: no such file"):
        Scenario.load(folder / "missing.yaml")


def test_plain_scalars_are_read_by_yaml_1_2(write: WriteSuite) -> None:
    path = write("a.yaml", "answers: {text: no}\naccounts: {012: {key: 12:30:00}}\n")
    scenario = Scenario.load(path)
    assert scenario.answers[0].text == "no"
    assert scenario.accounts["012"].key == "12:30:00"


def test_a_scenarios_identity_is_what_it_does_and_not_where_it_stands(write: WriteSuite) -> None:
    copied = write("mine.yaml", "about: mine\nlatency: 0.02\n")
    assert Scenario.load(copied).identity == Scenario.load("fast").identity
    assert Scenario.load("fast", latency=1).identity != Scenario.load("fast").identity


# ---- answers and latency


def test_answers_by_pattern_may_use_its_groups() -> None:
    simulation = SimulatedModels(
        Scenario.load(
            answers=[
                {"match": r"(\d+) \+ (?P<other>\d+)", "text": r"\1 and \g<other>: C:\dir {x}"},
                {"match": "^json", "text": '{"score": 1.0}'},
            ]
        )
    )
    assert text_of(meet(simulation, "what is 3 + 4?")) == r"3 and 4: C:\dir {x}"
    assert text_of(meet(simulation, "json, please")) == '{"score": 1.0}'
    assert text_of(meet(simulation, "anything else")) == "anything else"


def test_so_many_answers_are_right_by_a_draw_that_no_order_changes() -> None:
    key = [{"match": r"^(\d+)\?$", "right": "yes", "wrong": ["no", "perhaps"]}]
    scenario = Scenario.load(
        seed=7, key=key, answers={"right": 0.8}, models={"weak": {"answers": {"right": 0.3}}}
    )

    def answers(numbers: list[int], model: str) -> dict[int, str]:
        simulation = SimulatedModels(scenario)
        return {
            number: text_of(
                simulation.meet(question(f"{number}?", model), None, Headers.OPENAI, 0.0)
            )
            for number in numbers
        }

    forwards, backwards = list(range(1000)), list(reversed(range(1000)))
    strong = answers(forwards, "m")
    assert strong == answers(backwards, "m")
    assert 770 <= list(strong.values()).count("yes") <= 830
    weak = answers(forwards, "weak")
    assert 260 <= list(weak.values()).count("yes") <= 340
    assert set(weak.values()) == {"yes", "no", "perhaps"}


def test_latency_is_drawn_from_what_is_asked_by_its_pattern() -> None:
    scenario = Scenario.load(
        latency=[{"match": "^slow", "seconds": 9}, {"median": 0.5, "sigma": 1.0}]
    )
    times = sorted(latency_s(scenario.latency, question(f"q{n}"), 0) for n in range(2000))
    assert latency_s(scenario.latency, question("slow one"), 0) == 9
    # Lognormal: the median, and one sigma up and down.
    assert times[1000] == pytest.approx(0.5, rel=0.1)
    assert times[1683] == pytest.approx(0.5 * 2.718, rel=0.15)
    assert times[317] == pytest.approx(0.5 / 2.718, rel=0.15)
    assert times == sorted(latency_s(scenario.latency, question(f"q{n}"), 0) for n in range(2000))
    assert latency_s(scenario.latency, question("q1"), 1) != latency_s(
        scenario.latency, question("q1"), 0
    )


# ---- limits


def account(**limits: Any) -> AccountState:
    return AccountState(Allowance(limits=ScenarioLimits(**limits)), 0.0)


def test_a_bucket_allows_its_burst_and_then_its_rate() -> None:
    one = account(requests_per_minute=60, burst=5)
    assert [one.admit(0, 0.0) is None for _ in range(6)] == [True] * 5 + [False]
    refusal = one.admit(0, 0.5)
    assert refusal is not None
    assert refusal.headers == {"retry-after": "1"}
    assert one.admit(0, 1.0) is None
    assert one.admit(0, 1.0) is not None
    assert one.admit(0, 3.0) is None


def test_tokens_are_counted_beside_requests_and_a_refusal_takes_nothing() -> None:
    one = account(tokens_per_minute=100_000, requests_per_minute=600)
    assert one.admit(40_000, 0.0) is None
    assert one.admit(40_000, 0.0) is None
    for _ in range(20):
        refusal = one.admit(40_000, 0.0)
        assert refusal is not None
        assert "12s" in refusal.message
    assert one.admit(20_000, 0.0) is None
    assert one.admit(40_000, 24.0) is None


def test_more_tokens_than_the_whole_bucket_holds_go_when_it_is_full() -> None:
    one = account(tokens_per_minute=600)
    assert one.admit(1200, 0.0) is None
    assert one.admit(1, 59.0) is not None
    assert one.admit(1200, 120.0) is None


@given(
    st.floats(1, 6000),
    st.floats(1, 100),
    st.lists(st.floats(0, 2), max_size=200),
)
@settings(max_examples=100, deadline=None)
def test_no_more_is_ever_let_in_than_burst_and_rate_allow(
    per_minute: float, burst: float, gaps: list[float]
) -> None:
    one = account(requests_per_minute=per_minute, burst=burst)
    now, admitted = 0.0, 0
    for gap in gaps:
        now += gap
        admitted += one.admit(0, now) is None
        assert admitted <= burst + now * per_minute / 60 + 1e-6


def test_limits_are_told_in_each_providers_headers() -> None:
    one = account(requests_per_minute=3000, burst=50, tokens_per_minute=6000)
    one.admit(1000, 0.0)
    assert one.headers(Headers.OPENAI, 0.0) == {
        "x-ratelimit-limit-requests": "3000",
        "x-ratelimit-remaining-requests": "49",
        "x-ratelimit-reset-requests": "20ms",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5000",
        "x-ratelimit-reset-tokens": "10s",
    }
    told = one.headers(Headers.ANTHROPIC, 0.0)
    assert told["anthropic-ratelimit-requests-remaining"] == "49"
    reset = time.strptime(told["anthropic-ratelimit-tokens-reset"], "%Y-%m-%dT%H:%M:%SZ")
    assert reset > time.gmtime(time.time() + 5)
    silent = account(requests_per_minute=60, headers=Headers.NONE)
    assert silent.headers(Headers.OPENAI, 0.0) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.017, "17ms"),
        (1, "1s"),
        (8.64, "8.64s"),
        (90, "1m30s"),
        (360, "6m0s"),
        (3723, "1h2m3s"),
    ],
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("told", [7, "6m0s", "Wed, 21 Oct 2065 07:28:00 GMT", "soon", "-1", False])
def test_retry_after_is_as_the_scenario_says(told: object) -> None:
    simulation = SimulatedModels(
        Scenario.load(limits={"requests_per_minute": 1, "retry_after": told})
    )
    meet(simulation)
    refusal = meet(simulation)
    assert isinstance(refusal, ErrorReply)
    assert refusal.headers.get("retry-after") == (None if told is False else str(told))


def test_a_storm_refuses_everything_for_its_time_and_that_account_alone() -> None:
    storm = {"from_s": 10, "for_s": 60, "retry_after": 2}
    simulation = SimulatedModels(Scenario.load(accounts={"key-a": {"storm": storm}}))

    def refused(key: str, now: float) -> bool:
        return isinstance(simulation.meet(question(), key, Headers.OPENAI, now), ErrorReply)

    # The storm is counted from the account's first request, whenever that was.
    assert [refused("key-a", 100.0 + at) for at in (0, 9, 10, 40, 69, 70)] == [
        False,
        False,
        True,
        True,
        True,
        False,
    ]
    assert not refused("key-b", 130.0)


def test_each_account_and_each_model_with_limits_of_its_own_has_its_own_bucket() -> None:
    simulation = SimulatedModels(
        Scenario.load(
            limits={"requests_per_minute": 1},
            accounts={"rich": {"key": "secret", "limits": {}}},
            models={"big": {"limits": {"requests_per_minute": 2, "burst": 2}}},
        )
    )

    def admitted(key: str | None, model: str) -> int:
        met = [simulation.meet(question(model=model), key, Headers.OPENAI, 0.0) for _ in range(5)]
        return sum(isinstance(one, ServedRequest) for one in met)

    assert admitted("a", "m") == 1
    assert admitted("b", "m") == 1
    assert admitted("b", "big") == 2
    assert admitted(None, "m") == 1
    assert admitted("secret", "m") == 5
    names = set(simulation.stats().accounts)
    assert names == {account_name("a"), account_name("b"), "anonymous", "rich"}


def test_many_names_of_models_and_accounts_are_counted_together_in_the_end() -> None:
    simulation = SimulatedModels(Scenario.load())
    for number in range(1500):
        met = simulation.meet(question(model=f"m{number}"), f"k{number}", Headers.OPENAI, 0.0)
        assert isinstance(met, ServedRequest)
        met.end("answered")
    stats = simulation.stats()
    assert stats.total.answered == 1500
    assert len(stats.models) <= 1001
    assert stats.models["(others)"].answered == 500


# ---- which requests meet a fault


def test_faults_meet_their_share_whatever_the_order_and_another_try_may_end_well() -> None:
    scenario = Scenario.load(faults=[{"kind": "status", "status": 503, "share": 0.2}])

    def faults(numbers: list[int]) -> dict[int, list[bool]]:
        simulation = SimulatedModels(scenario)
        met: dict[int, list[bool]] = {number: [] for number in numbers}
        for number in [*numbers, *numbers]:
            served = meet(simulation, f"{number}")
            assert isinstance(served, ServedRequest)
            met[number].append(served.fault is not None)
        return met

    forwards = faults(list(range(500)))
    assert forwards == faults(list(reversed(range(500))))
    times = [time for tries in forwards.values() for time in tries]
    assert 150 <= sum(times) <= 250
    assert any(first and not second for first, second in forwards.values())


def test_a_fault_in_the_middle_of_a_session_waits_for_its_tool_results() -> None:
    faults = Faults([Fault(kind=FaultKind.STATUS, status=529, after_calls=2)], seed=0)
    questions = [replace(question("x"), tool_results=results) for results in (0, 1, 2, 3)]
    assert [faults.of(one) is not None for one in questions] == [False, False, True, True]


def test_only_the_first_requests_meet_a_fault_that_says_so() -> None:
    simulation = SimulatedModels(
        Scenario.load(faults=[{"kind": "status", "status": 500, "first": 2, "match": "x"}])
    )
    prompts = ["x", "y", "x", "x"]
    served = [meet(simulation, prompt) for prompt in prompts]
    assert [isinstance(one, ServedRequest) and one.fault is not None for one in served] == [
        True,
        False,
        True,
        False,
    ]


# ---- the page


def test_the_page_tells_every_key_and_its_example_loads(write: WriteSuite) -> None:
    docs = Path(__file__).parents[1] / "docs"
    page = (docs / "reference" / "scenarios.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    page += (docs / "how-to" / "simulate-models.md").read_text()
    assert set(Scenario.load(write("example.yaml", example)).models) == {"small", "large"}
    forms = (
        ScenarioForm,
        ScenarioLimits,
        Storm,
        AccountForm,
        Fault,
        AnswerRule,
        Tokens,
        Latency,
        KnownAnswer,
    )
    keys = {key for form in forms for key in form.model_fields}
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    in_code = " ".join(re.findall(r"`([^`]+)`", prose))
    told = set(re.findall(r"[\w-]+", in_code))
    assert {*keys, *FaultKind, *bundled_names()} <= told
