"""`paraval history`: which runs are shown, where, and what is said of those that are not."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import paraval as api
from paraval.cli.commands.report import history_command
from paraval.errors import ParavalError
from paraval.report.contents import Related, RunSource
from paraval.report.formats.json import AsJson
from paraval.report.report import Report
from paraval.runner.stored_runs import EARLIER_RUNS, InStore, StoredRun, history_of
from paraval.settings import Selection
from paraval.store.reader import RunReader
from paraval.store.store import Store
from tests.child_pytest import run_pytest
from tests.conftest import Paraval, WriteSuite
from tests.history_kit import stored

Call = Callable[..., str]
GOOD, BAD = "P" * 36 + "F" * 4, "P" * 20 + "F" * 20

SUITE = """\
    name: tools
    cases: [{id: a, expect: a}, {id: b, expect: b}]
    target: {command: [echo, "{case.id}"]}
    graders: [equals]
    """


@pytest.fixture
def store(folder: Path) -> Store:
    return Store(folder / ".paraval")


@pytest.fixture
def history(folder: Path) -> Call:
    """Calls the command in the folder, in this process; gives what it printed."""

    def call(*arguments: str) -> str:
        ended = CliRunner().invoke(history_command, arguments, standalone_mode=False)
        if ended.exception is not None:
            raise ended.exception
        return str(ended.output)

    return call


def runs_in(text: str) -> list[str]:
    return [run["id"] for run in json.loads(text)["runs"]]


def test_the_last_runs_are_shown_and_how_many_are_not(history: Call, store: Store) -> None:
    runs = [stored(store, "PF").id for _ in range(5)]
    assert runs_in(history("greetings", "--json")) == runs
    assert runs_in(history("greetings", "--json", "--limit", "2")) == runs[-2:]
    assert "3 older runs not shown; use --limit N." in history("greetings", "--limit", "2")


def test_only_the_runs_that_are_shown_are_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        stored(store, "PF")
    store.runs()
    read: list[str] = []
    real = RunReader.results

    def results(self: RunReader) -> Any:
        read.append(self.info().id)
        return real(self)

    monkeypatch.setattr(RunReader, "results", results)
    shown = history_of(store, "greetings", limit=3, choice={}).entries
    assert read == [entry.run.id for entry in shown]
    assert len(read) == 3


def test_a_suite_is_found_by_its_file_even_where_that_is_broken_by_now(
    folder: Path, write: WriteSuite, history: Call
) -> None:
    file = write("suite.yaml", SUITE)
    api.run(file)
    file.write_text(file.read_text().replace("echo", "printf"))
    api.run(file)
    first, second = json.loads(history("tools", "--json"))["runs"]
    assert (first["suite_changes"], second["suite_changes"]) == ([], ["prompt changed"])
    file.write_text("name: [")
    assert "prompt changed" in history("suite.yaml", "-o", "h.html", "-o", "h.md", "-o", "h.csv")
    assert all((folder / f"h.{ending}").read_text() for ending in ("html", "md", "csv"))


def test_both_commands_are_there(paraval: Paraval) -> None:
    told = paraval("--help").stdout
    assert "history " in told
    assert "badge " in told


def test_a_suite_that_never_ran_is_told_with_what_there_is(
    history: Call, store: Store, write: WriteSuite
) -> None:
    stored(store, "P")
    with pytest.raises(ParavalError) as found:
        history("greeting")
    assert found.value.hint == "did you mean 'greetings'?"
    write("suite.yaml", SUITE)
    with pytest.raises(ParavalError, match="no run of suite 'tools'") as found:
        history("suite.yaml")
    assert found.value.hint == "the store has runs of 'greetings'"


def test_an_empty_store_is_told(history: Call) -> None:
    with pytest.raises(ParavalError) as found:
        history("greetings")
    assert "no runs yet" in str(found.value.hint)


def test_a_variant_can_be_chosen(history: Call, store: Store) -> None:
    stored(store, {"a": "PP", "b": "FF"})
    stored(store, {"a": "PP"})
    text = history("greetings", "--variant", "mode=b")
    assert "greetings (mode=b): 1 run" in text
    assert "1 run has no trial with mode=b." in text
    with pytest.raises(ParavalError, match="has no value 'x'"):
        history("greetings", "--variant", "mode=x")
    with pytest.raises(ParavalError, match="duplicate"):
        history("greetings", "--variant", "mode=a", "--variant", "mode=b")


def test_a_run_over_chosen_variants_is_marked(history: Call, store: Store) -> None:
    matrix = {"matrix": "of two"}
    chosen = Selection(variants=(("mode", "b"),))
    stored(store, {"a": "PF", "b": "PP"}, parts=matrix)
    stored(store, {"b": "PP"}, parts=matrix, selection=chosen)
    stored(store, {"b": "PP"}, parts={"matrix": "other"}, selection=chosen)
    shown = history("greetings")
    assert shown.count("1 of 2 variants (mode=b)") == 1
    assert shown.count("selected variants only (mode=b)") == 1
    told = [
        (run["chosen_variants"], run["suite_variants"])
        for run in json.loads(history("greetings", "--json"))["runs"]
    ]
    assert told == [(None, 2), ("mode=b", 2), ("mode=b", None)]
    assert "variants (mode=b)" not in history("greetings", "--variant", "mode=b")


def test_sessions_of_pytest_have_a_history(history: Call, folder: Path) -> None:
    tests = "def test_one(): assert True\ndef test_two(): assert {}\n"
    for value in (True, False):
        (folder / "test_it.py").write_text(tests.format(value))
        run_pytest(folder, "-q", "--paraval-store")
    loaded = json.loads(history(f"pytest:{folder.name}", "--json"))
    assert [run["pass_rate"] for run in loaded["runs"]] == [1.0, 0.5]


def test_a_run_that_cannot_be_read_is_named(
    history: Call, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, broken = stored(store, "P"), stored(store, "P")
    real = StoredRun.results

    def results(self: StoredRun) -> Any:
        if self.info().id == broken.id:
            raise ParavalError("it is damaged")
        return real(self)

    monkeypatch.setattr(StoredRun, "results", results)
    told = history_of(store, "greetings", limit=20, choice={})
    assert [entry.run.id for entry in told.entries] == [good.id]
    assert told.unreadable == {broken.id: "it is damaged"}


def test_what_cannot_be_written_is_told_before_anything_is_read(history: Call) -> None:
    with pytest.raises(ParavalError, match=r"unknown format .* for a history"):
        history("greetings", "-o", "h.pdf")


def test_twenty_runs_are_read_in_little_time(store: Store) -> None:
    for number in range(20):
        stored(store, {"a": GOOD[number:] + GOOD[:number], "b": GOOD})
    began = time.process_time()
    assert len(history_of(store, "greetings", limit=20, choice={}).entries) == 20
    assert time.process_time() - began < 2


# ---- on the page of a run


def page_of(store: Store, index: int = 0) -> str:
    run = store.runs()[index]
    report = Report(StoredRun(store, run), InStore(store, run))
    path = store.root / "page.html"
    report.write(path)
    return path.read_text()


def test_a_page_draws_the_complete_runs_before(store: Store) -> None:
    first = stored(store, GOOD)
    assert "History</h2>" not in page_of(store)
    stored(store, GOOD, stop_after=3)
    stored(store, GOOD, name="another suite")
    last = stored(store, BAD, parts={"prompt": "other"})
    page = page_of(store)
    assert f"2 runs, from {first.id} to {last.id}." in page
    assert f"{last.id}: prompt changed" in page


def test_a_page_draws_no_more_than_twenty_of_them_and_none_that_came_later(store: Store) -> None:
    runs = [stored(store, "PF") for _ in range(EARLIER_RUNS + 4)]
    found = [source.info().id for source in InStore(store, runs[-2]).earlier()]
    assert found == [run.id for run in runs[-2 - EARLIER_RUNS : -2]]


def test_a_page_reads_few_runs_where_they_are_large(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [stored(store, "PF" * 10) for _ in range(6)]
    for most, earlier in ((60, runs[2:5]), (59, runs[3:5]), (5, runs[4:5])):
        monkeypatch.setattr("paraval.runner.stored_runs.EARLIER_TRIALS", most)
        found = [source.info().id for source in InStore(store, runs[5]).earlier()]
        assert found == [run.id for run in earlier]


def test_a_page_does_without_them_where_the_store_cannot_tell(store: Store) -> None:
    run = stored(store, GOOD)
    report = Report(StoredRun(store, run), Untold())
    report.write(store.root / "page.html")
    assert "History</h2>" not in (store.root / "page.html").read_text()


def test_other_forms_of_a_report_read_no_other_run(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = stored(store, GOOD), []
    monkeypatch.setattr(Untold, "earlier", lambda _: asked.append(run))
    AsJson().write(Report(StoredRun(store, run), Untold()), io.StringIO())
    assert not asked


class Untold(Related):
    """A store that cannot tell its runs."""

    def earlier(self) -> Iterable[RunSource]:
        raise ParavalError("no such folder")
