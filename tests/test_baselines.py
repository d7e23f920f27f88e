"""Which run a suite is held against: set once, used by every run that asks for it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from _pytest.capture import CaptureResult

import paraval as api
from paraval.cli.commands.compare import baseline_command
from paraval.errors import RequestError, StoreError, SuiteError
from paraval.plan.build import build_plan
from paraval.records import Baseline, Case, Happening, Notice
from paraval.runner.session import NullObserver
from paraval.settings import Options, Selection
from paraval.store.baselines import BASELINES_FILE, LOCK_FILE, Baselines, SetBaseline
from paraval.store.store import Store
from tests.conftest import Paraval, WriteSuite

ONE = SetBaseline(run="20260131-120000-abcd", set_at="2026-01-31T12:00:00.000Z", pass_rate=0.9)


def echo(case: Case) -> str:
    return case.id


def suite_of(cases: int = 75, *, max_drop: float | None = None) -> api.Suite:
    return api.Suite(
        name="small",
        cases=[Case(id=f"c{number}", expect=f"c{number}") for number in range(cases)],
        target=echo,
        graders=["equals"],
        max_drop=max_drop,
    )


# ---- the file


def test_what_is_set_is_read_back_and_a_person_can_read_it(tmp_path: Path) -> None:
    baselines = Baselines(tmp_path)
    assert baselines.all() == {}
    assert baselines.set("small", ONE) is None
    assert baselines.of("small") == ONE
    assert baselines.of("other") is None
    text = (tmp_path / BASELINES_FILE).read_text()
    assert json.loads(text)["small"]["run"] == ONE.run
    assert len(text.splitlines()) > 3


def test_another_takes_the_place_of_the_first_and_can_be_cleared(tmp_path: Path) -> None:
    baselines = Baselines(tmp_path)
    baselines.set("small", ONE)
    other = SetBaseline(run="other", set_at=ONE.set_at, pass_rate=0.5)
    assert baselines.set("small", other) == ONE
    assert baselines.clear("small") == other
    assert baselines.clear("small") is None
    assert baselines.all() == {}


@pytest.mark.parametrize("name", ["", "a b", "日本語", "\x1b[31m", "a\nb", '"', "\udc80"])
def test_any_name_of_a_suite_is_kept(tmp_path: Path, name: str) -> None:
    Baselines(tmp_path).set(name, ONE)
    assert Baselines(tmp_path).all() == {name: ONE}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"small": {}}', '{"small": 1}', "\udcff", '{"a": ' * 50_000]
)
def test_a_file_that_somebody_broke_is_told_and_not_overwritten(tmp_path: Path, text: str) -> None:
    file = tmp_path / BASELINES_FILE
    file.write_text(text, errors="surrogateescape")
    before = file.read_bytes()
    with pytest.raises(StoreError, match="cannot be used"):
        Baselines(tmp_path).all()
    with pytest.raises(StoreError, match="cannot be used"):
        Baselines(tmp_path).set("small", ONE)
    assert file.read_bytes() == before


def test_many_that_are_set_at_once_are_all_there(tmp_path: Path) -> None:
    def set_one(number: int) -> None:
        Baselines(tmp_path).set(f"suite-{number}", ONE)

    threads = [threading.Thread(target=set_one, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Baselines(tmp_path).all()) == 30
    assert not list(tmp_path.glob(".baselines-*"))


def test_two_commands_that_set_at_once_both_count(folder: Path, paraval: Paraval) -> None:
    run = api.run(suite_of(3)).run.id
    command = [sys.executable, "-m", "paraval", "baseline", "set", run, "--suite"]
    both = [subprocess.Popen([*command, name], stdout=subprocess.DEVNULL) for name in ("a", "b")]
    assert [one.wait(timeout=60) for one in both] == [0, 0]
    shown = json.loads(paraval("baseline", "show", "--json").stdout)
    assert set(shown) == {"a", "b"}


# ---- the command

Captured = pytest.CaptureFixture[str]


def test_set_show_and_clear(folder: Path, capsys: Captured) -> None:
    run = api.run(suite_of(3)).run.id
    told = _typed(capsys, "set", "last")
    assert f"Baseline of suite 'small': run {run} (100% passed, 3 cases)." in told.out
    assert "max_drop" in told.err
    assert _typed(capsys, "show").out.startswith(f"small  {run}  100% passed  set 20")
    with pytest.raises(RequestError, match="no baseline is set for suite 'smal'"):
        _typed(capsys, "clear", "smal")
    assert (
        f"Removed the baseline of suite 'small': run {run}." in _typed(capsys, "clear", "small").out
    )
    empty = _typed(capsys, "show")
    assert empty.out == ""
    assert "No baseline is set" in empty.err


def _typed(capsys: Captured, *arguments: str) -> CaptureResult[str]:
    baseline_command.main(arguments, standalone_mode=False)
    return capsys.readouterr()


def test_a_run_that_is_not_complete_is_refused(folder: Path, capsys: Captured) -> None:
    plan = build_plan(suite_of(3), Selection())
    Store(folder / ".paraval").create_run(plan, seed=0).close(interrupted=True)
    with pytest.raises(RequestError, match="cannot be a baseline: it is not complete") as told:
        _typed(capsys, "set", "last")
    assert "paraval resume" in (told.value.hint or "")
    assert not (folder / ".paraval" / BASELINES_FILE).exists()


def test_errors_are_said_and_a_run_without_any_verdict_is_refused(
    folder: Path, capsys: Captured
) -> None:
    def fails(case: Case) -> str:
        if case.id != "c0":
            raise RuntimeError("no")
        return case.id

    cases = [Case(id=f"c{n}") for n in range(3)]
    api.run(api.Suite(name="some", cases=cases, target=fails))
    assert "2 errors in it have no verdict" in _typed(capsys, "set", "last").err
    api.run(api.Suite(name="none", cases=cases[1:], target=fails))
    with pytest.raises(RequestError, match="none of its trials passed or failed"):
        _typed(capsys, "set", "last")


# ---- what runs make of it


class Heard(NullObserver):
    """What a run says."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def __call__(self, event: Happening) -> None:
        if isinstance(event, Notice):
            self.notices.append(event.message)


def test_a_suite_with_max_drop_uses_what_is_set_and_says_how_to_set_one(folder: Path) -> None:
    heard = Heard()
    first = api.run(suite_of(max_drop=0.1), observer=heard)
    assert first.run.baseline is None
    assert first.gate.baseline is None
    assert [one for one in heard.notices if "paraval baseline set" in one]
    Baselines(folder / ".paraval").set("small", _set_to(first.run.id))
    second = api.run(suite_of(max_drop=0.1))
    assert second.run.baseline == Baseline(name=first.run.id, max_drop=0.1)
    assert second.gate.sentence.startswith("Gate passed: no drop of more than 10 points against ")
    other = api.run(suite_of(max_drop=0.1), selection=Selection(max_drop=0.2))
    assert other.run.baseline == Baseline(name=first.run.id, max_drop=0.2)
    without = api.run(suite_of(max_drop=0.1), selection=Selection(baseline=""))
    assert without.run.baseline is None
    # Without max_drop, nothing is asked.
    assert api.run(suite_of()).run.baseline is None


def _set_to(run: str) -> SetBaseline:
    return SetBaseline(run=run, set_at=ONE.set_at, pass_rate=1.0)


def test_a_set_baseline_that_is_gone_is_told_before_anything_runs(folder: Path) -> None:
    Baselines(folder / ".paraval").set("small", ONE)
    with pytest.raises(RequestError, match="the baseline of suite 'small' cannot be used") as told:
        api.run(suite_of(max_drop=0.1))
    assert "--no-baseline" in (told.value.hint or "")
    assert Store(folder / ".paraval").runs() == []


def test_a_resume_judges_as_the_run_began(folder: Path) -> None:
    first = api.run(suite_of())
    run = api.run(suite_of(), selection=Selection(baseline=first.run.id, max_drop=0.3))
    Baselines(folder / ".paraval").set("small", _set_to(run.run.id))
    again = api.run(suite_of(max_drop=0.1), options=Options(resume=run.run.id))
    assert again.run.baseline == Baseline(name=first.run.id, max_drop=0.3)
    lower = api.run(
        suite_of(), selection=Selection(max_drop=0.2), options=Options(resume=run.run.id)
    )
    assert lower.run.baseline == Baseline(name=first.run.id, max_drop=0.2)
    with pytest.raises(RequestError, match="be its own baseline"):
        api.run(
            suite_of(),
            selection=Selection(baseline=run.run.id),
            options=Options(resume=run.run.id),
        )
    without = api.run(
        suite_of(), selection=Selection(baseline=""), options=Options(resume=run.run.id)
    )
    assert without.run.baseline is None


def test_a_run_of_another_store_is_kept_by_its_path(folder: Path) -> None:
    there = api.run(suite_of(), options=Options(store=folder / "there"))
    here = api.run(suite_of(), selection=Selection(baseline=there.run.folder))
    assert here.run.baseline == Baseline(name=there.run.folder, max_drop=0.05)
    assert here.gate.exit_code == 0


def test_what_is_too_few_is_said_before_the_run(folder: Path) -> None:
    first = api.run(suite_of(40))
    heard = Heard()
    api.run(suite_of(50), selection=Selection(baseline=first.run.id), observer=heard)
    told = " ".join(heard.notices)
    assert "Only 40 of 50 cases can be compared with the baseline" in told
    assert "Even if no case changes, 40 cases cannot rule out a drop of more than 5 points;" in told
    assert "32 more cases could" in told


def test_no_variant_in_common_is_told(folder: Path) -> None:
    def with_models(*names: str) -> api.Suite:
        return api.Suite(
            name="small", cases=[Case(id="a")], target=echo, matrix={"model": list(names)}
        )

    first = api.run(with_models("a", "b"))
    with pytest.raises(RequestError, match="no variant in common"):
        api.run(with_models("c", "d"), selection=Selection(baseline=first.run.id))


def test_a_store_that_takes_no_lock_is_told_and_nothing_changes(tmp_path: Path) -> None:
    Baselines(tmp_path).set("small", ONE)
    # A folder where the file would be: permissions would not hold back root.
    (tmp_path / LOCK_FILE).unlink()
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(StoreError, match="cannot be used: Is a directory"):
        Baselines(tmp_path).clear("small")
    assert Baselines(tmp_path).of("small") == ONE


def test_a_suite_file_may_say_max_drop(write: WriteSuite) -> None:
    file = write("suite.yaml", "cases: [{id: a}]\ntarget: {command: [echo, a]}\nmax_drop: 2\n")
    with pytest.raises(SuiteError, match=r"suite.yaml:3: max_drop"):
        api.Suite.load(file)
    file.write_text(file.read_text().replace("2", "0.2"))
    assert build_plan(api.Suite.load(file), Selection()).max_drop == 0.2
