"""What an agent's attempt cost: told, a part of it, or unknown; and 0 only where it is that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paraval.agents.catalog import AGENTS
from paraval.agents.program import AgentEnd, AgentJob, Transcript, TranscriptReading
from paraval.models.prices import Prices
from paraval.processes.children import ProcessEnd, SpawnFailure
from paraval.processes.commands import LOST, SILENT
from paraval.records import Activity, AgentTarget, Model, Price, Provider, Spend
from paraval.targets.agent_result import spend_of

OUTPUTS = Path(__file__).parent / "agent_outputs"
TARGET = AgentTarget(agent="claude-code", prompt="x", account="a", timeout=10)
JOB = AgentJob(prompt="x", workspace="/w", home="/h", temp="/t", program=("a",))
FAILED = ProcessEnd(exit_code=1)
GONE = SpawnFailure(code="ENOENT", message="cannot start 'x'", transient=False)
REFUSED = [
    AgentEnd.RATE_LIMITED,
    AgentEnd.REFUSED_KEY,
    AgentEnd.NO_CREDIT,
    AgentEnd.NO_SUCH_MODEL,
    AgentEnd.BAD_REQUEST,
]


def spend(
    reading: TranscriptReading, ended: ProcessEnd = FAILED, target: AgentTarget = TARGET
) -> Spend:
    return spend_of(target, Prices(), ended, reading)


def registry(**options: Any) -> AgentTarget:
    known: dict[str, Any] = {
        "name": "m",
        "provider": Provider.ANTHROPIC,
        "model": "m",
        "base_url": "https://models.example/v1",
        "account": "a",
    }
    return replace(TARGET, model=Model(**{**known, **options}))


def read(agent: str, stdout: str, exit_code: int | None = 1) -> TranscriptReading:
    return AGENTS[agent].read(JOB, Transcript(stdout=stdout, stderr="", exit_code=exit_code), {})


def test_what_could_not_be_started_cost_nothing() -> None:
    nothing = TranscriptReading(end=AgentEnd.BROKEN)
    assert spend(nothing, ProcessEnd(failure=GONE)) == Spend()


@pytest.mark.parametrize("lost", [LOST, SILENT])
def test_what_may_have_been_started_cost_nobody_knows_what(lost: SpawnFailure) -> None:
    """Also where its logs hold nothing, or a refusal that may not have been its last word."""
    for end in (AgentEnd.BROKEN, AgentEnd.NO_LOGIN, AgentEnd.RATE_LIMITED):
        reading = TranscriptReading(end=end, has_worked=False)
        unknown = Spend(calls=1, calls_unknown=True, cost_usd=None)
        assert spend(reading, ProcessEnd(failure=lost)) == unknown


@pytest.mark.parametrize("end", REFUSED)
def test_a_refusal_costs_nothing_only_where_the_model_had_not_said_a_word(end: AgentEnd) -> None:
    assert spend(TranscriptReading(end=end, has_worked=False)) == Spend(calls=1, calls_unknown=True)
    assert spend(TranscriptReading(end=end, has_worked=True)).cost_usd is None
    assert spend(TranscriptReading(end=end, has_worked=None)).cost_usd is None
    told = TranscriptReading(end=end, has_worked=True, usage={"input_tokens": 9}, cost_usd=0.25)
    assert spend(told).cost_usd == 0.25


@pytest.mark.parametrize("end", [AgentEnd.NO_LOGIN, AgentEnd.UNREACHABLE])
def test_a_login_or_a_network_may_be_lost_after_much_was_paid(end: AgentEnd) -> None:
    assert spend(TranscriptReading(end=end, has_worked=False)) == Spend(calls=0)
    worked = spend(TranscriptReading(end=end, has_worked=True, activity=Activity(turns=7)))
    assert (worked.calls, worked.cost_usd) == (7, None)


@pytest.mark.parametrize(
    "ended",
    [
        ProcessEnd(timed_out=True),
        ProcessEnd(signal=9),
        ProcessEnd(signal=9, out_of_memory=True),
        ProcessEnd(exit_code=1),
        ProcessEnd(failure=LOST),
    ],
)
def test_what_had_been_told_before_it_broke_off_is_a_part(ended: ProcessEnd) -> None:
    reading = TranscriptReading(
        end=AgentEnd.BROKEN, has_worked=True, cost_usd=0.5, usage={"input_tokens": 9}
    )
    told = spend(reading, ended)
    assert (told.cost_usd, told.part_usd, told.usage) == (None, 0.5, {"input_tokens": 9})


def test_the_sum_that_it_told_itself_is_whole_also_where_it_failed() -> None:
    reading = TranscriptReading(end=AgentEnd.BROKEN, has_worked=True, cost_usd=0.5, is_settled=True)
    assert spend(reading).cost_usd == 0.5
    assert spend(reading, ProcessEnd(timed_out=True)).cost_usd is None


def test_a_simulated_model_costs_nothing_however_it_ended() -> None:
    target = registry(provider=Provider.LOOPBACK, base_url="")
    assert (
        spend(TranscriptReading(end=AgentEnd.BROKEN), ProcessEnd(failure=LOST), target).cost_usd
        == 0.0
    )


def test_tokens_of_a_part_are_a_part_of_the_price() -> None:
    price = Price(input_per_million=1000.0, output_per_million=0.0)
    usage = {"input_tokens": 1000, "output_tokens": 1}
    reading = TranscriptReading(end=AgentEnd.BROKEN, has_worked=True, usage=usage)
    told = spend(reading, ProcessEnd(signal=9), registry(price=price))
    assert (told.cost_usd, told.part_usd) == (None, 1.0)


# ---- as the agents tell it


def test_opencodes_steps_before_a_crash_are_a_part() -> None:
    steps = "\n".join((OUTPUTS / "opencode-ok.jsonl").read_text().split("\n")[:3])
    reading = read("opencode", steps)
    told = spend(reading)
    assert (told.cost_usd, told.part_usd) == (None, reading.cost_usd)
    assert told.part_usd > 0


def test_opencodes_steps_before_a_refusal_are_all_that_is_paid() -> None:
    steps = "\n".join((OUTPUTS / "opencode-ok.jsonl").read_text().split("\n")[:3])
    refused = read("opencode", f"{steps}\n{(OUTPUTS / 'opencode-429.jsonl').read_text()}")
    assert refused.end is AgentEnd.RATE_LIMITED
    assert spend(refused).cost_usd == refused.cost_usd


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("claude-code", "claude-2.1.197-429.json"),
        ("codex", "codex-429.jsonl"),
        ("opencode", "opencode-429.jsonl"),
        ("gemini", "gemini-429.stream.jsonl"),
    ],
)
def test_a_real_refusal_at_the_first_word_costs_nothing(agent: str, name: str) -> None:
    code = 173 if agent == "gemini" else 1
    reading = read(agent, (OUTPUTS / name).read_text(), code)
    assert reading.end is AgentEnd.RATE_LIMITED
    assert spend(reading).cost_usd == 0.0


def test_codex_whose_stream_was_dropped_has_made_calls_and_cost_nobody_knows_what() -> None:
    told = spend(read("codex", (OUTPUTS / "codex-dropped.jsonl").read_text()))
    assert (told.calls_unknown, told.cost_usd) == (True, None)


def test_codex_whose_server_did_not_start_has_asked_for_nothing() -> None:
    stderr = (OUTPUTS / "codex-mcp-failed.stderr").read_text()
    transcript = Transcript(stdout="", stderr=stderr, exit_code=1)
    assert spend(AGENTS["codex"].read(JOB, transcript, {})) == Spend()


@pytest.mark.parametrize(
    ("agent", "name"), [("codex", "codex-ok.jsonl"), ("gemini", "gemini-ok.stream.jsonl")]
)
def test_agents_that_do_not_report_their_calls_have_an_unknown_number(
    agent: str, name: str
) -> None:
    told = spend(read(agent, (OUTPUTS / name).read_text(), 0), ProcessEnd(exit_code=0))
    assert told.calls_unknown


def test_a_token_count_that_cannot_be_right_is_an_unknown_cost() -> None:
    price = Price(input_per_million=1.0, output_per_million=1.0)
    stdout = (OUTPUTS / "codex-ok.jsonl").read_text()
    huge = stdout.replace('"input_tokens":', '"input_tokens":99999999999999999')
    assert huge != stdout
    reading = read("codex", huge, 0)
    assert spend(reading, ProcessEnd(exit_code=0), registry(price=price)).cost_usd is None


def test_codex_that_was_refused_after_work_cost_nobody_knows_what() -> None:
    """It tells its tokens at the end of a turn alone."""
    begun = "\n".join((OUTPUTS / "codex-ok.jsonl").read_text().strip().split("\n")[:-1])
    refused = read("codex", f"{begun}\n{(OUTPUTS / 'codex-429.jsonl').read_text()}")
    assert refused.end is AgentEnd.RATE_LIMITED
    assert spend(refused).cost_usd is None


def test_an_agent_of_the_users_own_that_tells_no_cost_has_an_unknown_one() -> None:
    for end in (AgentEnd.RATE_LIMITED, AgentEnd.REFUSED_KEY, AgentEnd.BROKEN, AgentEnd.NO_RESULT):
        assert spend(TranscriptReading(end=end)).cost_usd is None
    assert spend(TranscriptReading(answer="x"), ProcessEnd(exit_code=0)).cost_usd is None
