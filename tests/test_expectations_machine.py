"""What trials are expected to take of the machine, and what a plan foresees of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paraval import Case, Options, Selection, Suite
from paraval.cli.commands.plan import sentences
from paraval.records import (
    AgentTarget,
    ChatTarget,
    CommandTarget,
    FunctionTarget,
    Limits,
    MachineReading,
    Message,
    Model,
    Plan,
    Price,
    Provider,
    StopRule,
    Target,
    TargetLimits,
)
from paraval.runner.forecast import Forecast, Forecaster, ModelKnowledge, forecast_plan, models_of
from paraval.runner.run import forecast_of
from paraval.schedule.messages import Work
from paraval.statistics.anytime import drawn_order
from paraval.store.index import HistoryRow
from paraval.store.store import Store
from tests.test_store import finish, judged, make_plan

GB = 1 << 30
MB = 1 << 20
HAIKU = Model(
    name="haiku", provider=Provider.ANTHROPIC, model="h", base_url="http://x", account="team"
)
COMMAND = CommandTarget(command=("true",), cwd="/")
MACHINE = MachineReading(
    cpus=4.0, busy_cpus=0.0, memory_bytes=24 * GB, memory_available=20 * GB, attempts={}
)


class NoPrices:
    def price(self, model: Model) -> Price | None:
        return None


ASKING = ModelKnowledge(prices=NoPrices())


def plan_of(target: Target, cases: int = 4, *, parallel: int = 16, auto: bool = True) -> Plan:
    plan = make_plan(cases)
    trials = tuple(replace(trial, target=target) for trial in plan.trials)
    return replace(plan, trials=trials, limits=Limits(parallel=parallel, auto=auto))


def seen(case: str, model: str, memory: int | None, cores: float | None) -> HistoryRow:
    return HistoryRow(case, {"model": model}, 3, 0.0, memory_bytes=memory, cores=cores)


def works_of(plan: Plan, *history: HistoryRow) -> list[Work]:
    expected = Forecaster(plan, history, ASKING)
    return [expected.work(trial, expected.calls(trial)) for trial in plan.trials]


# ---- what a trial takes


def test_history_tells_memory_with_a_margin_and_cores_by_case_then_by_variant() -> None:
    small, large, unseen, _ = works_of(
        plan_of(COMMAND, 2), seen("case-0", "small", 100 * MB, 0.5), seen("x", "small", 200 * MB, 1)
    )
    assert (small.memory_bytes, small.cores) == (110 * MB, 0.5)
    assert (large.memory_bytes, large.cores) == (None, None), "nothing is known of this variant"
    assert (unseen.memory_bytes, unseen.cores) == (220 * MB, 0.75)


def test_the_suites_word_goes_before_what_was_seen() -> None:
    target = replace(COMMAND, limits=TargetLimits(cpu=2.0, memory_bytes=GB))
    first, *_ = works_of(plan_of(target), seen("case-0", "small", 100 * MB, 0.5))
    assert (first.memory_bytes, first.cpu) == (GB, 2.0)


def test_what_runs_in_the_engines_own_process_takes_no_memory_of_its_own() -> None:
    chat = ChatTarget(model=HAIKU, messages=(Message(role="user", content="hi"),))
    assert {work.memory_bytes for work in works_of(plan_of(chat))} == {0}
    function = FunctionTarget(reference="m:f", folder="/")
    assert {work.memory_bytes for work in works_of(plan_of(function))} == {0}
    apart = replace(function, isolate=True)
    assert {work.memory_bytes for work in works_of(plan_of(apart))} == {None}


def test_trials_of_one_target_are_of_one_kind() -> None:
    assert len({work.kind for work in works_of(plan_of(COMMAND))}) == 1
    plan = plan_of(COMMAND)
    other = replace(plan.trials[0], target=replace(COMMAND, cwd="/tmp"))
    both = replace(plan, trials=(other, *plan.trials[1:]))
    assert len({work.kind for work in works_of(both)}) == 2


def test_where_the_number_is_given_nothing_of_it_is_looked_up() -> None:
    plan = plan_of(COMMAND, auto=False)
    first, *_ = works_of(plan, seen("case-0", "small", 100 * MB, 0.5))
    assert (first.memory_bytes, first.cores, first.kind) == (None, None, None)


def test_an_agent_keeps_the_limits_of_its_account_and_its_model_is_one_of_the_plans() -> None:
    agent = AgentTarget(agent="codex", prompt="{input}", model=HAIKU, account="team")
    plan = plan_of(agent)
    needs = ("account:team", "lock:db", "model:haiku")
    plan = replace(plan, trials=tuple(replace(trial, needs=needs) for trial in plan.trials))
    assert {work.needs for work in works_of(plan)} == {needs}
    assert models_of(plan) == (HAIKU,)
    own = replace(agent, model=None, model_name="sonnet")
    assert models_of(plan_of(own)) == ()


# ---- what the store remembers of it


def test_the_store_remembers_the_most_memory_and_the_mean_cores(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    plan = make_plan(1)
    measured = [(300 * MB, 0.5, 1.0), (100 * MB, 4.0, 2.0)]
    for memory, cpu_s, duration_s in measured:
        result = replace(judged(duration_s=duration_s), memory_bytes=memory, cpu_s=cpu_s)
        finish(store.create_run(plan, seed=0), {0: result, 1: judged()})
    for _ in range(2):  # from the folders, then from the index
        rows = {row.variant["model"]: row for row in store.history("greetings").rows}
        assert rows["small"].memory_bytes == 300 * MB
        assert rows["small"].cores == pytest.approx(1.5)
        assert (rows["large"].memory_bytes, rows["large"].cores) == (None, None)


@pytest.mark.parametrize("told", [-1, 2**70, float("nan"), "much", None, True])
def test_a_measure_that_makes_no_sense_is_left_out(tmp_path: Path, told: object) -> None:
    store = Store(tmp_path / "store")
    nonsense = replace(judged(), memory_bytes=told, cpu_s=told)  # type: ignore[arg-type]  # on purpose
    finish(store.create_run(make_plan(1), seed=0), {0: nonsense})
    small, _ = store.history("greetings").rows
    assert (small.memory_bytes, small.cores) == (None, None)
    assert small.n == 1


# ---- what a plan foresees


def forecast(tmp_path: Path, plan: Plan, *, memory: int, cpu_s: float) -> Forecast:
    store = Store(tmp_path / "store")
    result = replace(judged(duration_s=1.0), memory_bytes=memory, cpu_s=cpu_s)
    results = {trial.index: result for trial in plan.trials}
    finish(store.create_run(plan, seed=0), results)
    return forecast_plan(plan, store, ASKING, machine=MACHINE)


def test_a_plan_of_burners_is_foreseen_with_as_many_as_there_are_cores(tmp_path: Path) -> None:
    found = forecast(tmp_path, plan_of(COMMAND, 8), memory=MB, cpu_s=1.02)
    assert found.at_once == 4
    assert found.wall_s == pytest.approx(4.0)
    assert found.decides is not None
    assert (found.decides.name, found.decides.text) == ("this machine", "about 4 in parallel")


def test_a_plan_of_hogs_is_foreseen_with_as_many_as_fit_into_memory(tmp_path: Path) -> None:
    found = forecast(tmp_path, plan_of(COMMAND, 8), memory=6 * GB, cpu_s=0.01)
    assert found.at_once == 3


def test_a_plan_of_sleepers_is_foreseen_with_all_that_may(tmp_path: Path) -> None:
    found = forecast(tmp_path, plan_of(COMMAND, 8, parallel=12), memory=MB, cpu_s=0.01)
    assert found.at_once == 12
    assert found.decides is not None
    assert found.decides.name in ("parallel", "longest trial")


def test_without_history_a_plan_takes_the_most_at_once(tmp_path: Path) -> None:
    plan = plan_of(COMMAND, 8)
    found = forecast_plan(plan, Store(tmp_path / "store"), ASKING)
    assert found.at_once == 16
    assert found.wall_s is None
    assert len(found.starts) == 16


def test_exclusive_trials_are_foreseen_last_and_alone(tmp_path: Path) -> None:
    plan = plan_of(COMMAND, 2, auto=False)
    first, *others = plan.trials
    plan = replace(plan, trials=(replace(first, exclusive=True), *others))
    found = forecast(tmp_path, plan, memory=MB, cpu_s=0.0)
    assert [(trial.index, start) for trial, start, _ in found.starts][-1] == (0, 1.0)
    assert found.wall_s == pytest.approx(2.0)
    assert found.at_once is None


def test_a_plan_that_may_stop_early_is_foreseen_case_by_case_in_drawn_order(
    tmp_path: Path,
) -> None:
    """As its run goes, whichever trials take longest."""
    store = Store(tmp_path / "store")
    plan = replace(plan_of(COMMAND, 8, parallel=1, auto=False), stop=StopRule())
    results = {one.index: judged(duration_s=1.0 + one.index) for one in plan.trials}
    finish(store.create_run(plan, seed=0), results)
    cases = list(dict.fromkeys(trial.case.id for trial in plan.trials))
    for seed in (0, 5):
        found = forecast_plan(plan, store, ASKING, seed=seed, machine=MACHINE)
        started = list(dict.fromkeys(trial.case.id for trial, _, _ in found.starts))
        assert started == drawn_order(cases, seed)
        assert "case by case, in random order" in sentences(found)[0]
    longest_first = forecast_plan(replace(plan, stop=None), store, ASKING, machine=MACHINE)
    assert next(trial.index for trial, _, _ in longest_first.starts) == plan.trials[-1].index
    assert "longest first" in sentences(longest_first)[0]


def test_the_order_is_drawn_from_the_seed_of_the_suite(folder: Path) -> None:
    cases = [Case(id=f"case-{number}") for number in range(9)]
    suite = Suite(
        cases=cases,
        target=lambda case: case.id,
        matrix={"mode": ["a", "b"]},
        stop={"when": "decided"},
        seed=11,
    )
    found = forecast_of(suite, Selection(), Options())
    started = list(dict.fromkeys(trial.case.id for trial, _, _ in found.starts))
    assert started == drawn_order([case.id for case in cases], 11)
    assert "start case by case, in random order" in sentences(found)[0]
