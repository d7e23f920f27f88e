"""How much runs at once: what suites and people say of it, locks, and trials that run alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.documents.forms import LEAST_BYTES, read_size
from paraval.errors import RequestError, SuiteError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import Case, Limits, Plan
from paraval.settings import AUTO_MOST, Selection
from tests.conftest import Paraval, WriteSuite

pytestmark = pytest.mark.usefixtures("folder")

COMMAND = {"command": ["true"]}


def plan_of(selection: Selection | None = None, **words: Any) -> Plan:
    suite = Suite(**{"cases": [{}], "target": COMMAND, **words})
    return build_plan(suite, selection or Selection())


def limits_of(selection: Selection | None = None, **words: Any) -> Limits:
    return plan_of(selection, **words).limits


def test_commands_are_as_many_as_the_machine_can_carry_by_default() -> None:
    assert limits_of(repeats=9) == Limits(parallel=9, auto=True)
    assert limits_of(repeats=10_000) == Limits(parallel=AUTO_MOST, auto=True)


def test_functions_and_chat_models_are_as_many_as_the_machine_and_accounts_handle() -> None:
    assert limits_of(target=lambda case: "", repeats=100) == Limits(parallel=AUTO_MOST, auto=True)
    models = {"m": {"provider": "loopback"}}
    cases = [{"id": str(number), "input": "x"} for number in range(300)]
    chat = limits_of(cases=cases, models=models, target={"chat": {"model": "m"}})
    assert (chat.parallel, chat.auto) == (256, True)


def test_what_is_said_counts_and_a_person_before_the_suite() -> None:
    assert limits_of(limits={"parallel": 7}) == Limits(parallel=7)
    auto = limits_of(limits={"parallel": "auto"}, target=lambda case: "", repeats=3)
    assert auto == Limits(parallel=3, auto=True)
    assert limits_of(Selection(parallel="auto"), limits={"parallel": 7}, repeats=5) == Limits(
        parallel=5, auto=True
    )
    assert limits_of(Selection(parallel=2), limits={"parallel": "auto"}) == Limits(parallel=2)


def test_auto_in_a_selection_survives_the_store() -> None:
    selection = Selection(parallel="auto", repeats=2)
    stored = json.loads(json.dumps(selection.as_mapping()))
    assert Selection.from_mapping(stored) == selection
    assert Selection(parallel="auto").over(Selection(parallel=3)).parallel == "auto"
    assert plan_of(selection).selection == {"parallel": "auto", "repeats": 2}


def test_another_word_than_auto_is_refused() -> None:
    wrong: Any = "many"
    with pytest.raises(RequestError, match="a number or 'auto', not 'many'"):
        plan_of(Selection(parallel=wrong))
    with pytest.raises(SuiteError, match="1 or more, or 'auto', not 'many'"):
        plan_of(limits={"parallel": "many"})


def test_auto_can_be_asked_for_on_the_command_line(paraval: Paraval, write: WriteSuite) -> None:
    write("suite.yaml", "cases: [{}, {}]\ntarget: {command: ['true']}\nlimits: {parallel: 1}\n")
    asked = paraval("plan", "suite.yaml", "-j", "auto", "--json")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["parallel"] == 2
    refused = paraval("plan", "suite.yaml", "-j", "many")
    assert refused.returncode == 2
    assert "'many' is neither an integer nor auto" in refused.stderr


# ---- amounts of memory


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("2GB", 2_000_000_000),
        ("1.5GiB", 3 << 29),
        ("1TiB", 1 << 40),
        ("2000KB", 2_000_000),
        (2_000_000, 2_000_000),
        ("2000000", 2_000_000),
    ],
)
def test_amounts_of_memory_are_read_as_people_write_them(written: Any, size: int) -> None:
    assert read_size(written) == size
    target = plan_of(target={**COMMAND, "limits": {"memory": written}}).trials[0].target
    assert getattr(target, "limits").memory_bytes == size  # noqa: B009 - of any kind


@pytest.mark.parametrize(
    "written", ["", "GB", "500", 500, "2G", "2 apples", "-1GB", "1e9", "nan", "9" * 30 + "GB", True]
)
def test_other_amounts_are_refused(written: Any) -> None:
    with pytest.raises(SuiteError, match=r"limits\.memory: must be an amount of memory such as"):
        plan_of(target={**COMMAND, "limits": {"memory": written}})


@given(st.text(max_size=12) | st.integers() | st.floats())
def test_an_amount_is_a_sensible_number_of_bytes_or_nothing(written: Any) -> None:
    size = read_size(written)
    assert size is None or size >= LEAST_BYTES


# ---- locks and exclusive cases


CASES_YAML = """
    - {id: a, lock: db}
    - {id: b, lock: [db, "port:80"]}
    - {id: c, exclusive: true}
    - {id: d, lock: [], exclusive: false}
"""
EXPECTED = (
    Case(id="a", locks=("db",)),
    Case(id="b", locks=("db", "port:80")),
    Case(id="c", exclusive=True),
    Case(id="d"),
)


def test_locks_are_limits_of_one(write: WriteSuite) -> None:
    write("cases.yaml", CASES_YAML)
    plan = plan_of(cases="cases.yaml", limits={"parallel": 9})
    assert tuple(trial.case for trial in plan.trials) == EXPECTED
    assert [trial.needs for trial in plan.trials] == [
        ("lock:db",),
        ("lock:db", "lock:port:80"),
        (),
        (),
    ]
    assert [trial.exclusive for trial in plan.trials] == [False, False, True, False]
    assert plan.limits == Limits(parallel=9, named={"lock:db": 1, "lock:port:80": 1})
    chosen = build_plan(
        Suite(cases="cases.yaml", target=COMMAND, limits={"parallel": 9}), Selection(cases=("c",))
    )
    assert chosen.limits == Limits(parallel=9)


def test_locks_stand_beside_other_needs() -> None:
    plan = plan_of(
        cases=[{"lock": "db"}], matrix={"mode": ["x"]}, limits={"parallel": 2, "mode": {"x": 1}}
    )
    assert plan.trials[0].needs == ("lock:db", "mode=x")
    assert plan.limits.named == {"mode=x": 1, "lock:db": 1}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cases.csv", 'id,lock,exclusive\na,db,\nb,"db; port:80",\nc,,true\nd,,FALSE\n'),
        (
            "cases.jsonl",
            """
            {"id": "a", "lock": "db"}
            {"id": "b", "lock": ["db", "port:80"]}
            {"id": "c", "exclusive": true}
            {"id": "d"}
            """,
        ),
    ],
)
def test_locks_can_be_said_in_every_kind_of_file(write: WriteSuite, name: str, text: str) -> None:
    write(name, text)
    assert Suite(cases=name, target=COMMAND).cases == EXPECTED


def test_cases_of_python_may_have_them_too() -> None:
    assert Suite(cases=list(EXPECTED), target=COMMAND).cases == EXPECTED


def test_neither_decides_a_result() -> None:
    plain, held = plan_of(cases=[{"id": "a"}]), plan_of(cases=[{"id": "a", "lock": "x"}])
    assert plain.trials[0].key == held.trials[0].key


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"lock": 5}, "cases[0].lock: must be a name of letters, digits and any of"),
        ({"lock": ["a", ""]}, "cases[0].lock: must be a name of letters"),
        ({"lock": "a b"}, "or a list of such, not 'a b'"),
        ({"exclusive": "yes"}, "cases[0].exclusive: must be true or false, not 'yes'"),
        ({"locks": "a"}, "unknown key 'locks', did you mean 'lock'?"),
        (Case(id="a", locks=("",)), "cases[0].lock: must be"),
    ],
)
def test_wrong_ones_are_told(case: Any, problem: str) -> None:
    with pytest.raises(SuiteError) as refused:
        Suite(cases=[case], target=COMMAND)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("header", "problem"),
    [("id,locks", "did you mean 'lock'?"), ("id,exclusives", "did you mean 'exclusive'?")],
)
def test_a_near_miss_of_a_column_is_told(write: WriteSuite, header: str, problem: str) -> None:
    write("cases.csv", f"{header}\na,x\n")
    with pytest.raises(SuiteError) as refused:
        Suite(cases="cases.csv", target=COMMAND)
    assert problem in str(refused.value)


def test_columns_that_only_sound_alike_are_metadata(write: WriteSuite) -> None:
    write("cases.csv", "id,block,clock\na,1,2\n")
    [case] = Suite(cases="cases.csv", target=COMMAND).cases
    assert case.metadata == {"block": "1", "clock": "2"}
