"""`paraval compare`: what can be compared, what is told of it, and the exit codes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from paraval.cli.commands.compare import compare_command
from paraval.errors import ParavalError, RequestError
from paraval.records import Outcome, Plan, RunInfo, StopRule, TrialResult, Variant
from paraval.report.contents import Part, choice_from, side_by_side
from paraval.report.report import Report
from paraval.runner.comparisons import split_name
from paraval.store.store import Store
from paraval.text.terminal import columns
from tests.child_pytest import run_pytest
from tests.conftest import Paraval
from tests.test_report import HOSTILE, Made, ended, report_of
from tests.test_store import Desk, finish, judged, make_plan

Compare = Callable[..., "Told"]
SMALL: Variant = {"model": "small"}
LARGE: Variant = {"model": "large"}


class Told:
    """What a call of the command came to."""

    def __init__(self, text: str, code: int | None, error: ParavalError | None) -> None:
        self.text = text
        self.code = code
        self.error = error

    @property
    def data(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.text)
        return loaded

    @property
    def flat(self) -> str:
        """Without its line breaks."""
        return " ".join(self.text.split())


@pytest.fixture
def compare(folder: Path) -> Compare:
    """Calls the command in the folder, in this process."""

    def call(*arguments: str, **variables: str) -> Told:
        runner = CliRunner(env=variables)
        ended = runner.invoke(compare_command, arguments, standalone_mode=False)
        if isinstance(ended.exception, ParavalError):
            return Told(ended.output, None, ended.exception)
        if ended.exception is not None:
            raise ended.exception
        return Told(ended.output, ended.return_value, None)

    return call


@pytest.fixture
def store(folder: Path) -> Store:
    return Store(folder / ".paraval")


def recorded(store: Store, failing: Sequence[int] = (), *, cases: int = 12, **plan: Any) -> RunInfo:
    """A run of both models whose trials of these indices fail."""
    made = replace(make_plan(cases), **plan)
    return finish(store.create_run(made, seed=1), {index: judged(False) for index in failing})


def made(folder: Path, name: str, *trials: TrialResult, **info: Any) -> str:
    report_of(*trials, **info).write(folder / name)
    return name


def outcomes(text: str, variant: Variant | None = None) -> list[TrialResult]:
    """A case for each sign: passed, failed, error, skipped."""
    kinds = {"p": Outcome.PASSED, "f": Outcome.FAILED, "e": Outcome.TIMEOUT, "s": Outcome.SKIPPED}
    return [ended(kinds[sign], f"c{place}", variant) for place, sign in enumerate(text)]


# ---- what can be compared


def test_without_names_the_last_run_stands_against_the_one_before_of_its_suite(
    store: Store, compare: Compare
) -> None:
    first = recorded(store)
    recorded(store, name="other", cases=1)
    last = recorded(store, range(0, 24, 2))
    told = compare("--json").data
    assert told["reference"]["run"] == first.id
    assert told["subject"]["run"] == last.id
    assert told["comparison"]["finding"] == "worse"
    assert compare().text.startswith("after passes 50 points less than before (95% CI ")


def test_runs_are_named_by_id_its_beginning_last_and_how_far_before_it(
    store: Store, compare: Compare, folder: Path
) -> None:
    first, second = recorded(store), recorded(store, [0, 1])
    wanted = compare(first.id, second.id).text
    assert compare("last~1", "last").text == wanted
    assert compare("last~1", "last~0").text == wanted
    assert compare(f".paraval/runs/{first.id}", second.id[:-1]).text == wanted
    assert compare(f".paraval/runs/{first.id}/run.db", "last").text == wanted


def test_files_stand_for_runs(store: Store, compare: Compare, folder: Path) -> None:
    first, second = recorded(store), recorded(store, [0, 1, 5])
    for run, name in ((first, "a"), (second, "b")):
        with store.reader(run) as reader:
            Report(reader).write(folder / f"{name}.json")
            Report(reader).write(folder / f"{name}.jsonl")
    wanted = compare(first.id, second.id, "--json").data
    for names in (("a.json", "b.json"), ("a.jsonl", "last"), ("last~1", "b.json")):
        told = compare(*names, "--json").data
        for figures in (told, wanted):
            figures["comparison"]["subject"] = figures["comparison"]["reference"] = None
        assert told["comparison"] == wanted["comparison"]


def test_a_side_may_be_a_part_of_a_run(store: Store, compare: Compare) -> None:
    recorded(store, range(0, 16, 2))
    told = compare("model=small", "model=large")
    assert told.text.startswith("large passes 67 points more than small (95% CI ")
    assert "8 cases fixed: failed with small, passed with large" in told.text
    assert compare("last:model=small", "last~0:model=large").text == told.text


def test_parts_of_two_runs_are_told_without_what_was_chosen_of_both(folder: Path) -> None:
    one = Made(trials=[ended(variant={"model": "a", "mode": "x"})])
    other = Made(trials=[ended(variant={"mode": "x", "model": "b"})])

    def variants(*choices: dict[str, str]) -> list[Variant]:
        parts = side_by_side((one, choices[0]), (other, choices[1]))
        return [result.variant for part in parts for result in part.results()]

    assert variants({"model": "a"}, {"model": "b"}) == [{"mode": "x"}] * 2
    assert variants({"model": "a"}, {}) == [
        {"model": "a", "mode": "x"},
        {"model": "b", "mode": "x"},
    ]
    plain = Made(trials=[ended()])
    parts = side_by_side((plain, {}), (one, {"model": "a"}))
    assert [result.variant for part in parts for result in part.results()] == [{}, {"mode": "x"}]


def test_axes_in_another_order_are_the_same_variant(compare: Compare, folder: Path) -> None:
    made(folder, "a.json", *outcomes("ppff", {"model": "m", "mode": "x"}))
    made(folder, "b.json", *outcomes("pppf", {"mode": "x", "model": "m"}))
    assert compare("a.json", "b.json", "--json").data["comparison"]["cases"] == 4


def test_one_name_compares_the_variants_of_the_run(store: Store, compare: Compare) -> None:
    run = recorded(store, range(0, 16, 2))
    told = compare(run.id)
    assert told.text.startswith("Compared by model:\n  large passes 67 points more than small")
    assert "fixed: case-0, case-1" in told.text
    assert told.code == 0
    sides = f"{run.id}:model=small {run.id}:model=large"
    assert f"Both answers of changed cases: paraval compare {sides}" in told.flat
    assert "8 cases fixed" in compare(*sides.split()).text
    assert compare("last", "--json").data["comparisons"][0]["axis"] == "model"
    alone = compare("last:model=small")
    assert alone.error is not None
    assert "has one variant: nothing to compare" in alone.error.message


def test_sessions_of_pytest_are_compared_test_by_test(compare: Compare, folder: Path) -> None:
    tests = "def test_one(): assert True\ndef test_two(): assert {}\n"
    for value in (True, False):
        (folder / "test_it.py").write_text(tests.format(value))
        run_pytest(folder, "-q", "--paraval-store")
    told = compare()
    assert told.code == 0
    assert "1 case regressed: passed before, failed after" in told.text
    assert "test_it.py::test_two" in told.text


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [
        ("last", "last", None),
        ("last:mode=x", "last", "mode=x"),
        ("mode=x", None, "mode=x"),
        ("model=qwen:7b", None, "model=qwen:7b"),
        ("2026:model=qwen:7b", "2026", "model=qwen:7b"),
        ("a=b:c.json", "a=b:c.json", None),
        ("a=b:c.json:model=x:y", "a=b:c.json", "model=x:y"),
        ("x" * 5_000, "x" * 5_000, None),
    ],
)
def test_names_and_values_may_hold_colons_and_equals_signs(
    text: str, name: str | None, part: str | None, folder: Path
) -> None:
    (folder / "a=b:c.json").touch()
    assert split_name(text) == (name, part)


def test_values_may_hold_commas_and_equals_signs() -> None:
    source = Made(trials=[ended(variant={"a": "1,2=3", "a=b": "x,b=1", "n": 7, "on": True})])
    choice = choice_from("a=1,2=3,a=b=x,b=1,n=7,on=true", source, "it")
    assert choice == {"a": "1,2=3", "a=b": "x,b=1", "n": "7", "on": "true"}
    part = Part(source=source, choice=choice, axes=("n",))
    assert [result.variant for result in part.results()] == [{"n": 7}]


# ---- what cannot be compared


def test_a_race_is_refused_with_where_its_comparison_is(store: Store, compare: Compare) -> None:
    recorded(store)
    race = recorded(store, selection={"race": "{}"})
    told = compare("last~1", "last").error
    assert told is not None
    assert told.message == f"{race.id} is a race: its own report compares its candidates"
    assert told.hint == f"see it with: paraval report {race.id}"


def test_without_a_name_races_are_passed_over(store: Store, compare: Compare) -> None:
    """`make demo` ends with one; what it tells to type next must do."""
    first, _, last = (recorded(store, selection=one) for one in ({}, {"race": "{}"}, {}))
    race = recorded(store, selection={"race": "{}"})
    told = compare("--json").data
    assert (told["reference"]["run"], told["subject"]["run"]) == (first.id, last.id)
    assert f"small: {last.id} (model=small)" in compare("model=small", "model=large").text
    refused = compare("last:model=small", "last:model=large").error
    assert refused is not None
    assert refused.message.startswith(f"{race.id} is a race")


def test_where_all_are_races_that_is_said(store: Store, compare: Compare) -> None:
    race = recorded(store, selection={"race": "{}"})
    told = compare("model=small", "model=large").error
    assert told is not None
    assert told.message.startswith(f"{race.id} is a race")


@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        (("nope", "last"), "no run 'nope'", "paraval runs"),
        (("last~2", "last"), "there is no last~2: there are only 2 runs", "last~1"),
        (("nope.json", "last"), "cannot read nope.json: No such file", None),
        (("last", "last"), "both sides contain the same trials of", "two values of an axis"),
        (
            ("last", "last:model=small"),
            "both sides contain the same trials of",
            "two values of an axis",
        ),
        (("model=smal", "last~1"), "has no value 'smal'", "did you mean model=small?"),
        (("modle=small", "last~1"), "has no axis 'modle'", "did you mean model?"),
        (("last:small", "last~1"), "'small' is not a part of", "its axes are model"),
        (("last:model=small,model=large", "last~1"), "duplicate axis 'model'", "one value"),
        (("last:", "last~1"), "does not select part of a run", None),
        ((":model=small", "last~1"), "does not select part of a run", None),
        (("1", "2", "3"), "expected two sides to compare, got 3", None),
        (("last", "--max-drop", "0.1"), "--max-drop needs two sides", None),
        (("-o", "x.csv"), "unknown format '.csv' for a comparison", "comparison.json"),
        (("-o", "no/such/x.md"), "there is no folder", "mkdir"),
    ],
)
def test_a_wrong_request_says_what_is_wrong_and_what_to_do(
    names: tuple[str, ...], message: str, hint: str | None, store: Store, compare: Compare
) -> None:
    recorded(store, cases=2)
    recorded(store, cases=2)
    told = compare(*names).error
    assert isinstance(told, RequestError)
    assert message in told.message
    assert hint is None or hint in (told.hint or "")


def test_variants_without_a_like_must_be_chosen(compare: Compare, folder: Path) -> None:
    made(folder, "a.json", *outcomes("pf", {"m": "a"}), *outcomes("pf", {"m": "b"}))
    made(folder, "b.json", *outcomes("pf", {"m": "c"}), *outcomes("pf", {"m": "d"}))
    told = compare("a.json", "b.json").error
    assert told is not None
    assert "have no variant in common" in told.message
    assert compare("a.json:m=a", "b.json:m=d").code == 0


def test_the_only_run_of_a_suite_has_none_before_it(store: Store, compare: Compare) -> None:
    recorded(store, cases=1)
    told = compare().error
    assert told is not None
    assert "there is no run of 'greetings' before" in told.message


@pytest.mark.parametrize("other", ["", "eee", "sss"])
def test_where_no_case_is_judged_on_both_sides_it_ends_with_3(
    other: str, compare: Compare, folder: Path
) -> None:
    made(folder, "a.json", *outcomes("ppp"))
    made(folder, "b.json", *outcomes(other))
    for names in (("a.json", "b.json"), ("b.json", "a.json")):
        told = compare(*names)
        assert told.code == 3
        assert "no case has a verdict on both sides" in told.flat
        assert compare(*names, "--json", "--max-drop", "0.05").code == 3


# ---- what is told


def answered(folder: Path, name: str, *texts: str) -> str:
    """A case for each text; those that begin with `no` failed."""
    kinds = [Outcome.FAILED if text.startswith("no") else Outcome.PASSED for text in texts]
    trials = [
        ended(kind, f"c{place}", text=text, why=f"why {text}")
        for place, (kind, text) in enumerate(zip(kinds, texts, strict=True))
    ]
    return made(folder, name, *trials)


def test_verbose_shows_the_answers_of_all_listed_cases_and_more_of_each(
    compare: Compare, folder: Path
) -> None:
    long = " ".join(["word"] * 60)
    answered(folder, "a.json", *["yes"] * 8)
    answered(folder, "b.json", *[f"no {long} end"] * 8)
    assert compare("a.json", "b.json").text.count("after: no") == 3
    every = compare("a.json", "b.json", "-v").flat
    assert every.count("after: no") == 8
    assert every.count("word end") >= 8


def test_what_shows_a_case_in_full_is_named_for_stored_runs(store: Store, compare: Compare) -> None:
    recorded(store, cases=2)
    last = recorded(store, [0], cases=2)
    command = f"paraval show {last.id} --case case-0"
    assert f"Everything about a case: {command}\n" in compare().text
    compare("-o", "c.html")
    assert f"<code>{command}</code>" in Path("c.html").read_text()


def test_twenty_cases_of_each_kind_are_listed_and_all_on_request(
    compare: Compare, folder: Path
) -> None:
    made(folder, "a.json", *outcomes("p" * 30))
    made(folder, "b.json", *outcomes("f" * 30))
    few = compare("a.json", "b.json").text
    assert few.count('expected "hello"') == 20
    assert "and 10 more: add --all" in few
    every = compare("a.json", "b.json", "--all").text
    assert every.count('expected "hello"') == 30
    assert "--all" not in every


def scored(folder: Path, name: str, *scores: float, **info: Any) -> None:
    trials = [
        replace(trial, result=replace(trial.result, score=score))
        for trial, score in zip(outcomes("p" * len(scores)), scores, strict=True)
    ]
    made(folder, name, *trials, **info)


def test_scores_can_be_what_is_compared_first(compare: Compare, folder: Path) -> None:
    scored(folder, "a.json", *(0.5 + place / 100 for place in range(12)))
    scored(folder, "b.json", *(0.8 + place / 90 for place in range(12)))
    by_score = compare("a.json", "b.json", "--metric", "score").text
    assert by_score.startswith("after scores 0.31 more than before (95% CI +0.0")
    assert "): better\n" in by_score
    assert "after vs before: no difference shown" in by_score
    by_pass = compare("a.json", "b.json").text
    assert by_pass.startswith("after vs before: no difference shown")
    assert "score: +0.31 (+0.0" in by_pass
    made(folder, "c.json", *outcomes("pf"))
    told = compare("c.json", made(folder, "d.json", *outcomes("fp")), "--metric", "score").text
    assert "score: no more information than pass and fail" in told


def test_scores_of_different_graders_are_not_compared(compare: Compare, folder: Path) -> None:
    for name, graders in (("a.json", "1"), ("b.json", "1"), ("c.json", "2")):
        scored(
            folder, name, *(0.5 + place / 100 for place in range(12)), parts={"graders": graders}
        )
    assert compare("a.json", "b.json", "--json").data["comparison"]["score"] is not None
    told = compare("a.json", "c.json")
    assert "Scores are not compared: the two runs have different graders." in told.flat
    assert compare("a.json", "c.json", "--json").data["comparison"]["score"] is None
    refused = compare("a.json", "c.json", "--metric", "score").error
    assert refused is not None
    assert refused.message == "scores cannot be compared: the two runs have different graders"


def test_the_same_seed_tells_the_same_and_confidence_widens_intervals(
    compare: Compare, folder: Path
) -> None:
    scored(folder, "a.json", *((place * 37 % 101) / 101 for place in range(40)))
    scored(folder, "b.json", *((place * 53 % 97) / 97 for place in range(40)))
    names = ("a.json", "b.json", "--json", "--seed")
    assert compare(*names, "7").text == compare(*names, "7").text
    surer = compare(*names, "7", "--confidence", "0.99").data["comparison"]
    usual = compare(*names, "7").data["comparison"]
    assert surer["confidence"] == 0.99
    assert surer["score"]["interval"][0] < usual["score"]["interval"][0]


def test_what_is_asked_holds_for_the_variants_of_one_run_too(
    compare: Compare, folder: Path
) -> None:
    """--metric, --confidence and --seed, as for two sides."""
    trials = [
        replace(
            ended(case=f"c{place}", variant=variant),
            result=replace(ended().result, score=score),
        )
        for variant, step in ((SMALL, 37), (LARGE, 41))
        for place in range(40)
        for score in [0.5 + (place * step % 101) / 210]
    ]
    made(folder, "run.json", *trials)

    def told(*options: str) -> Any:
        return compare("run.json", "--json", *options).data["comparisons"][0]

    usual, surer, other = told(), told("--confidence", "0.99"), told("--seed", "7")
    assert (usual["confidence"], surer["confidence"]) == (0.95, 0.99)
    for metric in ("passing", "score"):
        assert surer[metric]["interval"][0] < usual[metric]["interval"][0]
    assert other["score"]["p"] != usual["score"]["p"]
    assert told("--seed", "7") == other
    data = compare("run.json", "--json", "--seed", "7", "--metric", "score").data
    assert (data["metric"], data["seed"]) == ("score", 7)
    by_score = compare("run.json", "--metric", "score", "--confidence", "0.9").flat
    assert re.search(r"by model: \w+ vs \w+: no difference in scores shown", by_score)
    assert "(−0.0" in by_score or "(+0.0" in by_score
    assert "90%" in by_score
    compare("run.json", "--metric", "score", "-o", "w.md")
    assert "no difference in scores shown" in (folder / "w.md").read_text()


def test_a_run_that_may_stop_early_is_told_as_surely_as_it_was_decided_unless_asked(
    compare: Compare, folder: Path
) -> None:
    trials = (*outcomes("f" * 12, SMALL), *outcomes("p" * 12, LARGE))
    made(folder, "run.json", *trials, stop=StopRule(confidence=0.9), seed=3)

    def told(*options: str) -> Any:
        return compare("run.json", "--json", *options).data["comparisons"][0]

    assert (told()["confidence"], told()["finding"]) == (0.9, "better")
    surer = told("--confidence", "0.9999")
    assert (surer["confidence"], surer["finding"]) == (0.9999, "no difference shown")
    assert surer["passing"]["interval"][0] < told()["passing"]["interval"][0]
    assert (
        "score: not compared if a run may stop early"
        in compare("run.json", "--metric", "score").text
    )


# ---- what else differs


def test_other_suites_parts_and_missing_results_are_said(
    compare: Compare, folder: Path, store: Store
) -> None:
    made(folder, "a.json", *outcomes("pps"), interrupted=True, suite="old")
    made(folder, "b.json", *outcomes("ppp"), held_back=True)
    told = compare("a.json", "b.json").flat
    assert "The runs are of different suites, old and greetings: cases are paired by id" in told
    assert (
        "a.json was interrupted, 1 trial without a result. The run b.json is not complete" in told
    )
    recorded(store, parts={"cases": "1", "target": "2", "graders": "3"})
    recorded(store, parts={"cases": "1", "target": "9", "matrix": "4"})
    assert "Changed between the runs: target, graders and matrix." in compare().flat


def test_json_lines_tell_no_suite_and_none_is_guessed(compare: Compare, folder: Path) -> None:
    made(folder, "a.jsonl", *outcomes("pp"))
    made(folder, "b.json", *outcomes("pp"))
    told = compare("a.jsonl", "b.json", "--json").data
    assert told["reference"]["suite"] is None
    assert told["notices"] == []


def test_a_run_that_goes_on_is_compared_as_it_stands(store: Store, compare: Compare) -> None:
    recorded(store, cases=2)
    desk = Desk(store.create_run(make_plan(2), seed=1))
    desk.end(desk.start(0), judged(False))
    desk.wait()
    told = compare("last~1", "last")
    desk.ledger.close(interrupted=True)
    assert "is still running, 3 trials without a result: its figures will change." in told.flat
    assert told.code == 0


def stopping(store: Store, failing: Sequence[int], *, seed: int = 1, done: int = 30) -> RunInfo:
    """A run that may stop early; of the rest of its trials it has no result."""
    plan: Plan = replace(make_plan(30), stop=StopRule(confidence=0.95))
    ledger = store.create_run(plan, seed=seed)
    desk = Desk(ledger)
    for trial in plan.trials[: done * 2]:
        desk.end(desk.start(trial.index), judged(trial.index not in failing))
    desk.wait()
    ledger.close(interrupted=done < 30)
    return ledger.run


def test_with_a_run_that_may_stop_early_only_what_holds_at_any_time_is_claimed(
    store: Store, compare: Compare
) -> None:
    recorded(store, cases=30)
    stopping(store, range(60))
    told = compare("last~1", "last", "--json").data["comparison"]
    assert told["passing"]["method"] == "anytime test by betting"
    assert told["finding"] == "worse"
    assert told["detectable"] is None
    assert told["seconds"]["interval"][1] is None


def test_cases_that_two_runs_drew_in_different_orders_support_no_claim(
    store: Store, compare: Compare
) -> None:
    stopping(store, (), seed=1)
    stopping(store, range(60), seed=2)
    told = compare("last~1", "last")
    assert "nothing can be claimed (−100 points, 30 cases)" in told.flat
    assert "were not drawn in one known order" in told.flat
    stopping(store, (), seed=2)
    assert " at any time, " in compare("last~1", "last").flat


def test_of_a_stopped_run_the_cases_count_up_to_the_first_that_is_missing(
    store: Store, compare: Compare
) -> None:
    recorded(store, cases=30)
    stopping(store, range(60), done=20)
    stopped = compare("last~1", "last", "--json").data["comparison"]["stopped"]
    assert stopped["planned"] == 30
    assert stopped["used"] < 20


# ---- gates


@pytest.mark.parametrize(
    ("now", "code", "said"),
    [
        ("p" * 100, 0, "Gate passed: "),
        ("f" * 30 + "p" * 70, 1, "Gate failed: "),
        ("f" * 6 + "p" * 94, 3, "Gate undecided: drop against "),
    ],
)
def test_a_drop_decides_the_exit_code_where_it_is_asked_for(
    now: str, code: int, said: str, compare: Compare, folder: Path
) -> None:
    made(folder, "a.json", *outcomes("p" * 100))
    made(folder, "b.json", *outcomes(now))
    told = compare("a.json", "b.json", "--max-drop", "0.05")
    assert told.code == code
    assert said in told.text
    assert compare("a.json", "b.json").code == 0
    gate = compare("a.json", "b.json", "--max-drop", "0.05", "--json").data["gate"]
    assert gate["sentence"] in told.flat


# ---- forms


def hostile(folder: Path) -> tuple[str, str]:
    def trials(first: Outcome, second: Outcome) -> list[TrialResult]:
        return [
            ended((first, second)[place % 2], case, {"axis": case}, text=case, why=case)
            for place, case in enumerate(HOSTILE)
        ]

    failed, passed = Outcome.FAILED, Outcome.PASSED
    return (
        made(folder, "a.json", *trials(passed, failed), suite=HOSTILE[0]),
        made(folder, "b.json", *trials(failed, passed), suite=HOSTILE[13]),
    )


@pytest.mark.parametrize("width", [40, 80])
def test_names_of_others_do_nothing_on_a_terminal_however_narrow(
    width: int, compare: Compare, folder: Path
) -> None:
    text = compare(*hostile(folder), "--all", COLUMNS=str(width)).text
    for line in text.split("\n"):
        assert columns(line) <= width
        assert line.isprintable() or all(
            sign.isprintable() or sign in "\u200d\ufe0f" for sign in line
        )


def test_it_reads_without_utf_8(paraval: Paraval, folder: Path) -> None:
    """And the program itself tells it on stdout, with an exit code."""
    variables = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    ended = paraval("compare", *hostile(folder), env=variables)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.isascii()
    assert ended.stderr == ""


def test_with_stdout_closed_the_exit_code_and_the_files_tell(
    compare: Compare, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = made(folder, "a.json", *outcomes("pf")), made(folder, "b.json", *outcomes("pp"))
    monkeypatch.setattr("paraval.cli.output.sys", SimpleNamespace(stdout=None))
    assert compare(*names, "-o", "c.md").code == 0
    assert compare(*names, "--json").code == 0
    assert (folder / "c.md").exists()


def test_markdown_fits_a_comment_and_nothing_in_it_acts(compare: Compare, folder: Path) -> None:
    compare(*hostile(folder), "-o", "c.md")
    text = (folder / "c.md").read_text()
    assert text.startswith(
        "## paraval: comparison\n\n**<code>after</code> vs <code>before</code>: no "
    )
    for payload in ("<script", "<img", "](http", "@everyone", "**y**"):
        assert payload not in text
    made(folder, "m.json", *[ended(case=f"{n} " + "ü|" * 200) for n in range(400)])
    wrong = [ended(Outcome.FAILED, case=f"{n} " + "ü|" * 200, why="|" * 999) for n in range(400)]
    made(folder, "n.json", *wrong)
    compare("m.json", "n.json", "-o", "big.md")
    assert (folder / "big.md").stat().st_size < 65_536


def test_files_hold_what_is_printed_as_json_and_are_no_reports(
    compare: Compare, folder: Path
) -> None:
    made(folder, "a.json", *outcomes("pf"))
    made(folder, "b.json", *outcomes("pp"))
    told = compare("a.json", "b.json", "--json", "-o", "c.json")
    assert json.loads((folder / "c.json").read_text()) == told.data
    refused = compare("c.json", "b.json").error
    assert refused is not None
    assert "c.json is not a report of a run: it is a comparison" in refused.message


def test_a_comparison_of_variants_can_be_written_too(compare: Compare, folder: Path) -> None:
    made(folder, "a.json", *outcomes("pf" * 6, SMALL), *outcomes("pp" * 6, LARGE))
    compare("a.json", "-o", "w.json", "-o", "w.md")
    assert json.loads((folder / "w.json").read_text())["comparisons"][0]["finding"] == "better"
    text = (folder / "w.md").read_text()
    assert "- **<code>large</code> passes 50 points more than <code>small</code>" in text


def test_on_github_a_comparison_is_on_the_page_of_the_job(compare: Compare, folder: Path) -> None:
    made(folder, "a.json", *outcomes("pf" * 6, SMALL), *outcomes("pp" * 6, LARGE))
    made(folder, "b.json", *outcomes("ff" * 6, SMALL), *outcomes("pp" * 6, LARGE))
    page = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    assert compare("a.json", "b.json", "--max-drop", "0.01", **page).code == 1
    assert compare("a.json", "--json", **page).code == 0
    text = (folder / "summary.md").read_text()
    first, second = text.split("\n## paraval: <code>")
    assert first.startswith("## paraval: comparison\n\n**<code>after</code> passes 25 points less")
    assert "Gate failed: " in first
    assert "### Compared by <code>model</code>" in second


def test_thousands_of_cases_are_compared_in_seconds(compare: Compare, folder: Path) -> None:
    """A smaller run than the largest, so that the suite stays quick."""
    for name, wrong in (("a.jsonl", 7), ("b.jsonl", 5)):
        made(folder, name, *outcomes("".join("pf"[n % wrong == 0] for n in range(2_000))))
    began = time.process_time()
    assert compare("a.jsonl", "b.jsonl").code == 0
    assert time.process_time() - began < 4


def test_the_help_tells_what_a_side_can_be() -> None:
    text = CliRunner().invoke(compare_command, ["--help"]).output
    for words in ("last~1", "RUN:AXIS=VALUE", ".jsonl", "--max-drop", "--metric"):
        assert words in text


def test_the_page_on_compare_names_options_that_there_are() -> None:
    page = (Path(__file__).parent.parent / "docs" / "how-to" / "compare-runs.md").read_text()
    named = set(re.findall(r"`(-[-a-z]+)", page))
    known = {name for parameter in compare_command.params for name in parameter.opts}
    assert named
    assert named <= known
