"""From suites to plans: what is selected, in which order, and with which keys."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.errors import RequestError, SuiteError
from paraval.plan.build import build_plan
from paraval.plan.suite import Suite
from paraval.records import Case, Plan, Trial
from paraval.settings import Selection
from tests.conftest import WriteSuite

pytestmark = pytest.mark.usefixtures("folder")


def answer(case: Case) -> str:
    return case.id


def small_suite(**changes: Any) -> Suite:
    given_keys: dict[str, Any] = {
        "cases": [
            {"id": "hello", "input": "hi", "expect": "x", "tags": ["smoke"]},
            {"id": "help", "input": "?", "expect": "y", "tags": ["slow"]},
            {"id": "bye", "input": "bye", "expect": "z"},
        ],
        "matrix": {"model": ["small", "large"], "size": [1, 2]},
        "exclude": [{"model": "large", "size": 2}],
        "target": answer,
        "graders": ["contains"],
    }
    return Suite(**{**given_keys, **changes})


def labels(plan: Plan) -> list[str]:
    return [trial.label for trial in plan.trials]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (
            Selection(cases=("hel*",), variants=(("size", "2"),)),
            ["hello · small · size=2", "help · small · size=2"],
        ),
        (Selection(cases=("bye",), variants=(("model", "large"),)), ["bye · large · size=1"]),
        (Selection(tags=("smoke",), variants=(("model", "large"),)), ["hello · large · size=1"]),
        (
            Selection(tags=("slow", "smoke"), variants=(("model", "large"), ("size", "1"))),
            ["hello · large · size=1", "help · large · size=1"],
        ),
        (
            Selection(
                cases=("bye",), variants=(("model", "large"), ("model", "small"), ("size", "1"))
            ),
            ["bye · small · size=1", "bye · large · size=1"],
        ),
        (
            Selection(cases=("bye", "help"), variants=(("size", "2"),)),
            ["help · small · size=2", "bye · small · size=2"],
        ),
    ],
)
def test_a_selection_takes_the_trials_that_fit(selection: Selection, expected: list[str]) -> None:
    plan = build_plan(small_suite(), selection)
    assert labels(plan) == expected
    assert [trial.index for trial in plan.trials] == list(range(len(expected)))
    assert Selection.from_mapping(plan.selection) == selection


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("true", [True]),
        ("True", [True]),
        ("false", [False]),
        ("1", [1]),
        ("1.0", [1]),
        ("1e0", [1]),
        ("0.5", [0.5]),
        (".50", [0.5]),
        ("2", [2.0]),
        ("02", ["02"]),
    ],
)
def test_a_value_is_chosen_as_it_is_written_or_by_its_number(asked: str, chosen: list[Any]) -> None:
    suite = small_suite(matrix={"v": [True, False, 1, 0.5, 2.0, "02"]}, exclude=None)
    plan = build_plan(suite, Selection(variants=(("v", asked),)))
    assert [variant["v"] for variant in plan.variants] == chosen
    assert [type(variant["v"]) for variant in plan.variants] == [type(value) for value in chosen]
    assert [type(value) for value in plan.axes["v"]] == [type(value) for value in chosen]


def test_values_are_told_as_the_suite_has_them() -> None:
    suite = small_suite(matrix={"v": [True, False]}, exclude=None)
    with pytest.raises(
        RequestError, match="axis 'v' has no value '1'; choose from 'true' and 'false'"
    ):
        build_plan(suite, Selection(variants=(("v", "1"),)))


def test_excluded_values_are_found_by_their_number() -> None:
    suite = small_suite(matrix={"v": [1.0, 2.0]}, exclude=[{"v": 1}])
    assert build_plan(suite, Selection()).variants == ({"v": 2.0},)


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            Selection(cases=("helo",)),
            "no case matches 'helo'\nhint: did you mean hello or help?",
        ),
        (
            Selection(cases=("hello", "zzz*")),
            "no case matches 'zzz*'\nhint: choose from 'hello', 'help'",
        ),
        (Selection(tags=("smok",)), "no case has the tag 'smok', did you mean 'smoke'?"),
        (Selection(variants=(("modle", "x"),)), "unknown axis 'modle', did you mean 'model'?"),
        (
            Selection(variants=(("model", "smal"),)),
            "axis 'model' has no value 'smal', did you mean",
        ),
        (
            Selection(variants=(("size", "3"),)),
            "axis 'size' has no value '3'; choose from '1' and '2'",
        ),
        (
            Selection(variants=(("model", "large"), ("size", "2"))),
            "no variant matches 'model=large' and 'size=2'\nhint: the suite excludes them",
        ),
        (
            Selection(cases=("bye",), tags=("smoke",)),
            "no case matches --case 'bye' and --tag 'smoke'",
        ),
        (Selection(repeats=0), "repeats must be 1 or more, not 0"),
        (Selection(repeats=10_000_000), "this makes 90,000,000 trials; the limit is 1,000,000"),
        (Selection(timeout=0), "the timeout must be a number of seconds greater than 0, not 0"),
        (Selection(timeout=float("nan")), "the timeout must be a number of seconds greater than 0"),
        (Selection(fail_under=1.1), "fail-under must be a number from 0 to 1, not 1.1"),
    ],
)
def test_a_selection_that_fits_nothing_says_so_and_names_near_ones(
    selection: Selection, message: str
) -> None:
    with pytest.raises(RequestError) as refused:
        build_plan(small_suite(), selection)
    assert str(refused.value).startswith(message)


def test_what_a_person_chooses_is_laid_over_the_suite() -> None:
    suite = small_suite(limits={"parallel": 3, "size": {1: 2}}, fail_under=0.5, repeats=2)
    plan = build_plan(suite, Selection(parallel=9, repeats=3, timeout=7, fail_under=0.9))
    assert plan.limits.parallel == 9
    assert plan.limits.named == {"size=1": 2}
    assert plan.fail_under == 0.9
    assert len(plan.trials) == 3 * 3 * 3
    assert {trial.target.timeout for trial in plan.trials} == {7.0}
    untouched = build_plan(suite, Selection())
    assert (untouched.limits.parallel, untouched.fail_under) == (3, 0.5)
    assert len(untouched.trials) == 3 * 3 * 2


@pytest.mark.parametrize("parallel", [0, -5])
def test_less_than_one_in_parallel_means_one(parallel: int) -> None:
    assert build_plan(small_suite(), Selection(parallel=parallel)).limits.parallel == 1


def test_more_repeats_than_the_suite_says_must_not_share_a_file() -> None:
    target = {"command": ["true"], "output": "{case.id}-{model}-{size}.txt"}
    suite = small_suite(target=target)
    assert build_plan(suite, Selection(repeats=1)).trials
    with pytest.raises(SuiteError, match="2 trials would write the same file"):
        build_plan(suite, Selection(repeats=2))


def test_trials_of_a_variant_share_its_objects() -> None:
    plan = build_plan(small_suite(repeats=2), Selection())
    by_variant: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in plan.trials:
        by_variant.setdefault(tuple(trial.variant.values()), []).append(trial)
    for trials in by_variant.values():
        assert len({id(trial.variant) for trial in trials}) == 1
        assert len({id(trial.target) for trial in trials}) == 1


def test_the_axes_of_a_plan_hold_the_values_that_run() -> None:
    plan = build_plan(small_suite(), Selection(variants=(("model", "large"),)))
    assert plan.axes == {"model": ("large",), "size": (1,)}


# ---- keys


def keys(suite: Suite, **selection: Any) -> list[str]:
    return [trial.key for trial in build_plan(suite, Selection(**selection)).trials]


COMMAND: dict[str, Any] = {
    "cases": [{"id": "a", "input": "i", "expect": "e", "metadata": {"n": 1}, "tags": ["t"]}],
    "target": {"command": ["echo", "{input}"], "env": {"A": "1"}, "timeout": 5},
    "graders": [{"contains": "x"}],
}


def changed(part: str, **changes: Any) -> dict[str, Any]:
    inner = COMMAND[part]
    new: Any = [{**inner[0], **changes}] if isinstance(inner, list) else {**inner, **changes}
    return {**COMMAND, part: new}


@pytest.mark.parametrize(
    "other",
    [
        changed("cases", id="b"),
        changed("cases", input="j"),
        changed("cases", input={"q": "i"}),
        changed("cases", expect="f"),
        changed("cases", metadata={"n": 2}),
        changed("target", command=["echo", "-n", "{input}"]),
        changed("target", env={"A": "2"}),
        changed("target", pass_env=["B"]),
        changed("target", stdin="x"),
        changed("target", output="json"),
        changed("target", cwd="/"),
        {**COMMAND, "graders": [{"contains": "y"}]},
        {**COMMAND, "graders": [{"equals": "x"}]},
        {**COMMAND, "matrix": {"model": ["x"]}},
    ],
)
def test_a_key_changes_with_what_decides_the_result(other: dict[str, Any]) -> None:
    assert keys(Suite(**COMMAND)) != keys(Suite(**other))


@pytest.mark.parametrize(
    "other",
    [
        {**COMMAND, "name": "another"},
        {**COMMAND, "description": "words"},
        {**COMMAND, "limits": {"parallel": 9}},
        {**COMMAND, "retry": {"attempts": 9}},
        {**COMMAND, "fail_under": 0.1, "seed": 5},
        changed("cases", tags=["other"]),
        changed("target", timeout=9),
        changed("target", grace=9),
        changed("target", cwd="."),
    ],
)
def test_a_key_stays_when_only_the_way_of_running_changes(other: dict[str, Any]) -> None:
    assert keys(Suite(**COMMAND)) == keys(Suite(**other))


def test_a_key_stays_when_trials_are_added_around_it() -> None:
    before = set(keys(small_suite()))
    more = small_suite(
        cases=[{"id": "new"}, *small_suite().cases],
        repeats=3,
        exclude=[],
        graders=[{"contains": "x"}],
    )
    assert before.isdisjoint(keys(more)), "another grading judges anew"
    grown = small_suite(cases=[{"id": "new", "expect": "n"}, *small_suite().cases], repeats=3)
    assert before < set(keys(grown))
    assert keys(small_suite(), timeout=3) == keys(small_suite())


def test_a_moved_checkout_keeps_its_keys(write: WriteSuite, folder: Path) -> None:
    (folder / "one/work").mkdir(parents=True)
    write("one/grade.py", "def grade(output, case): return True\n")
    write(
        "one/suite.yaml",
        """
        cases: [{id: a}]
        target: {command: [echo], cwd: work}
        graders: [{python: 'grade:grade'}]
        """,
    )
    shutil.copytree("one", "two")
    assert keys(Suite.load("one/suite.yaml")) == keys(Suite.load("two/suite.yaml"))


names = st.text("abcdefgh", min_size=1, max_size=3)
axes_strategy = st.dictionaries(
    names, st.lists(st.integers(0, 9) | names, min_size=1, max_size=3, unique_by=str), max_size=3
)


@st.composite
def suites(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """The arguments of a suite, and how many trials it has, counted the slow way."""
    ids = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    axes = draw(axes_strategy)
    repeats = draw(st.integers(1, 3))
    variants = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    exclude = draw(st.lists(st.sampled_from(variants), max_size=2)) if axes else []
    kept = [variant for variant in variants if variant not in exclude]
    if not kept:
        exclude, kept = [], variants
    arguments = {
        "cases": [{"id": name, "input": name} for name in ids],
        "matrix": axes,
        "exclude": exclude,
        "repeats": repeats,
        "target": answer,
    }
    return arguments, len(ids) * len(kept) * repeats


@given(suites())
def test_a_plan_has_every_trial_once_and_the_same_keys_every_time(
    made: tuple[dict[str, Any], int],
) -> None:
    arguments, count = made
    plan = build_plan(Suite(**arguments), Selection())
    assert len(plan.trials) == count
    assert len({trial.key for trial in plan.trials}) == count
    assert [trial.index for trial in plan.trials] == list(range(count))
    assert build_plan(Suite(**arguments), Selection()) == plan
    order = [
        (
            [case["id"] for case in arguments["cases"]].index(trial.case.id),
            plan.variants.index(trial.variant),
            trial.repeat,
        )
        for trial in plan.trials
    ]
    assert order == sorted(order)


@given(suites(), st.sampled_from(["input", "expect", "metadata"]), st.data())
def test_a_change_in_one_case_changes_its_keys_and_no_others(
    made: tuple[dict[str, Any], int], field: str, data: st.DataObject
) -> None:
    arguments, _ = made
    changed_case = data.draw(st.sampled_from(arguments["cases"]))
    cases = [
        {**case, field: {"new": 1}} if case is changed_case else case for case in arguments["cases"]
    ]
    before = build_plan(Suite(**arguments), Selection()).trials
    after = build_plan(Suite(**{**arguments, "cases": cases}), Selection()).trials
    for old, new in zip(before, after, strict=True):
        assert (old.key != new.key) == (old.case.id == changed_case["id"])


@pytest.mark.parametrize(("cases", "repeats"), [(1_000, 100), (100_000, 1)])
def test_a_hundred_thousand_trials_are_planned_quickly(cases: int, repeats: int) -> None:
    suite = Suite(
        cases=[Case(id=f"c{number}", input="x") for number in range(cases)],
        target=answer,
        repeats=repeats,
    )
    seconds = cpu_seconds(lambda: build_plan(suite, Selection()))
    assert seconds < 5, "under 2 s on a quiet machine"


def cpu_seconds(work: Callable[[], Plan]) -> float:
    started = time.process_time()
    assert len(work().trials) == 100_000
    return time.process_time() - started
