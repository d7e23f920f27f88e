"""`paraval badge`: the latest figures in a prompt file or a JSON file, of complete runs alone."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from paraval.cli.commands.badge import badge_command
from paraval.errors import NotWrittenError, ParavalError
from paraval.report.badge import points, prompt_hash, read_front_matter
from paraval.settings import Selection
from paraval.store.store import Store
from tests.history_kit import stored

PROMPT = """\
---
name: discovery   # of what there is
version: '1.2'
latest_accuracy: 0.0
test_runs: []
tags: [a,  b]
---

You find things.
"""
Badge = Callable[..., "Told"]


class Told:
    """What a call of the command came to."""

    def __init__(self, code: int, output: str, talk: str) -> None:
        self.code = code
        self.output = output
        self.talk = talk


@pytest.fixture
def badge(folder: Path) -> Badge:
    """Calls the command in the folder, in this process."""

    def call(*arguments: str) -> Told:
        ended = CliRunner().invoke(badge_command, arguments, standalone_mode=False)
        if ended.exception is not None:
            raise ended.exception
        return Told(ended.return_value, ended.stdout, ended.stderr)

    return call


@pytest.fixture
def store(folder: Path) -> Store:
    return Store(folder / ".paraval")


@pytest.fixture
def prompt(folder: Path) -> Path:
    path = folder / "prompt.md"
    path.write_text(PROMPT)
    return path


def told_in(path: Path) -> dict[str, Any]:
    front = read_front_matter(path.read_text(), path.name)
    loaded: dict[str, Any] = yaml.safe_load(front.yaml)
    return loaded


# ---- in front matter


def test_the_figures_are_those_of_the_newest_complete_run(
    badge: Badge, store: Store, prompt: Path
) -> None:
    run = stored(store, "P" * 9 + "F" + "E" * 2)
    badge("prompt.md")
    told = told_in(prompt)
    assert told == {
        "name": "discovery",
        "version": "1.2",
        "latest_accuracy": 90.0,
        "test_runs": [90.0],
        "tags": ["a", "b"],
        "accuracy_interval": [59.6, 98.2],
        "average_accuracy": 90.0,
        "test_count": 10,
        "errors": 2,
        "last_tested": told["last_tested"],
        "prompt_hash": prompt_hash(read_front_matter(PROMPT, "")),
        "last_test_cost": 2.5,
        "test_run": run.id,
    }
    assert prompt.read_text().endswith("---\n\nYou find things.\n")
    assert "name: discovery   # of what there is\n" in prompt.read_text()


def test_a_full_disk_leaves_the_file_as_it_was_and_is_no_wrong_request(
    badge: Badge, store: Store, prompt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stored(store, "P" * 3)
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(NotWrittenError, match=r"cannot write prompt\.md: No space left"):
        badge("prompt.md")
    assert prompt.read_text() == PROMPT


def test_a_run_counts_once_and_the_last_ten_are_kept(
    badge: Badge, store: Store, prompt: Path
) -> None:
    for number in range(12):
        stored(store, "P" * (number + 1) + "F" * (19 - number))
        if number == 3:
            badge("prompt.md")
            assert told_in(prompt)["test_runs"] == [5.0, 10.0, 15.0, 20.0]
            before = prompt.read_bytes()
            assert "already" in badge("prompt.md").talk
            assert prompt.read_bytes() == before
    badge("prompt.md")
    told = told_in(prompt)
    assert told["test_runs"] == [15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0]
    assert (told["latest_accuracy"], told["average_accuracy"]) == (60.0, 37.5)


def test_runs_of_another_prompt_or_of_other_cases_are_not_counted_with_it(
    badge: Badge, store: Store, prompt: Path
) -> None:
    stored(store, "PP")
    stored(store, "PF", parts={"prompt": "other"})
    stored(store, "FF", parts={"prompt": "other"})
    badge("prompt.md")
    assert told_in(prompt)["test_runs"] == [50.0, 0.0]


def test_with_another_text_the_runs_begin_anew(badge: Badge, store: Store, prompt: Path) -> None:
    stored(store, "PP")
    stored(store, "PF")
    badge("prompt.md")
    assert told_in(prompt)["average_accuracy"] == 75.0
    changed = prompt.read_text().replace("You find", "You always find")
    prompt.write_text(changed)
    with pytest.raises(ParavalError, match="its text has changed since run") as found:
        badge("prompt.md")
    assert prompt.read_text() == changed
    assert "run the suite again" in str(found.value.hint)
    stored(store, "FF")
    os.utime(prompt, (0, 0))
    assert "see to it" not in badge("prompt.md").talk
    told = told_in(prompt)
    assert (told["test_runs"], told["previous_version_accuracy"]) == ([0.0], 75.0)


def test_a_text_that_was_written_after_the_run_began_is_told(
    badge: Badge, store: Store, prompt: Path
) -> None:
    prompt.write_text(PROMPT.replace("version:", "prompt_hash: abcdef01\nversion:"))
    stored(store, "P")
    os.utime(prompt, (4e9, 4e9))
    assert "make sure that the run used this text" in badge("prompt.md").talk


def test_runs_before_the_text_was_written_are_none_of_it(
    badge: Badge, store: Store, prompt: Path
) -> None:
    """A function may read the file, and what it read is in no part of the suite."""
    stored(store, "PP")
    later = stored(store, "PF")
    os.utime(prompt, (0, later.started_at))
    badge("prompt.md")
    assert told_in(prompt)["test_runs"] == [50.0]
    stored(store, "PP")
    prompt.write_text(prompt.read_text().replace("You find", "You always find"))
    newest = stored(store, "FF")
    os.utime(prompt, (0, newest.started_at))
    badge("prompt.md")
    told = told_in(prompt)
    assert (told["test_runs"], told["previous_version_accuracy"]) == ([0.0], 50.0)


def test_figures_of_a_text_that_nobody_noted_are_not_counted_with_it(
    badge: Badge, store: Store, prompt: Path
) -> None:
    prompt.write_text(PROMPT.replace("test_runs: []", "test_runs: [10, 20]"))
    stored(store, "PF")
    assert "its test_runs start over" in badge("prompt.md").talk
    told = told_in(prompt)
    assert (told["test_runs"], told["average_accuracy"]) == ([50.0], 50.0)
    assert "previous_version_accuracy" not in told
    assert "already" in badge("prompt.md").talk


def test_a_first_badge_says_that_the_text_may_be_newer_than_the_run(
    badge: Badge, store: Store, prompt: Path
) -> None:
    stored(store, "P")
    os.utime(prompt, (4e9, 4e9))
    assert "make sure that the run used this text" in badge("prompt.md").talk


def test_what_is_refused_is_said_once(badge: Badge, store: Store, prompt: Path) -> None:
    stored(store, "P")
    badge("prompt.md")
    prompt.write_text(prompt.read_text().replace("You find", "You always find"))
    os.utime(prompt, (4e9, 4e9))
    ended = CliRunner().invoke(badge_command, ["prompt.md"], standalone_mode=False)
    assert "its text has changed since run" in str(ended.exception)
    assert "see to it" not in ended.stderr


def test_space_around_lines_is_no_other_text() -> None:
    one = read_front_matter("---\na: 1\n---\n\nHello\n  you\n", "")
    other = read_front_matter("Hello  \r\n\r\nyou", "")
    expected = hashlib.md5(b"Hello\nyou").hexdigest()[:8]
    assert prompt_hash(one) == prompt_hash(other) == expected


# ---- which runs count


def test_runs_that_are_not_complete_and_outages_are_passed_over_and_said(
    badge: Badge, store: Store, prompt: Path
) -> None:
    good = stored(store, "PPPF")
    some = stored(store, "PP", parts={"case_count": "4"})
    stopped = stored(store, "PPPF", stop_after=2)
    outage = stored(store, "EEEE")
    told = badge("prompt.md")
    assert f"run {outage.id} is skipped: nothing was judged (4 errors)" in told.talk
    assert f"run {stopped.id} is skipped: it is not complete (interrupted)" in told.talk
    assert f"run {some.id} is skipped: it covers only 2 of 4 cases" in told.talk
    assert told_in(prompt)["test_run"] == good.id
    assert told_in(prompt)["test_runs"] == [75.0]


@pytest.mark.parametrize("ends", ["EEEE", "PPPP"])
def test_without_a_complete_run_nothing_is_written(
    badge: Badge, store: Store, prompt: Path, ends: str
) -> None:
    stored(store, ends, stop_after=2 if ends == "PPPP" else None)
    with pytest.raises(ParavalError, match="no complete run of suite 'greetings'"):
        badge("prompt.md")
    assert prompt.read_text() == PROMPT


def test_a_run_can_be_named(badge: Badge, store: Store, prompt: Path) -> None:
    first, _ = stored(store, "PP"), stored(store, "FF")
    badge("prompt.md", "--run", first.id)
    assert told_in(prompt)["latest_accuracy"] == 100.0
    stopped = stored(store, "PPPF", stop_after=2)
    with pytest.raises(ParavalError, match="it is not complete"):
        badge("prompt.md", "--run", stopped.id)


def test_of_several_suites_one_must_be_named(badge: Badge, store: Store, prompt: Path) -> None:
    stored(store, "PP")
    stored(store, "FF", name="others")
    with pytest.raises(ParavalError, match="runs of several suites: 'greetings', 'others'"):
        badge("prompt.md")
    badge("prompt.md", "--suite", "greetings")
    assert told_in(prompt)["latest_accuracy"] == 100.0
    with pytest.raises(ParavalError, match="cannot be combined"):
        badge("prompt.md", "--suite", "greetings", "--run", "last")


def test_several_variants_are_told_together_or_one_is_chosen(
    badge: Badge, store: Store, prompt: Path
) -> None:
    stored(store, {"a": "PP", "b": "FF"})
    assert "the figures are over 2 variants" in badge("prompt.md").talk
    assert told_in(prompt)["latest_accuracy"] == 50.0
    assert "variants" not in badge("prompt.md", "--variant", "mode=a").talk
    assert told_in(prompt)["latest_accuracy"] == 100.0
    with pytest.raises(ParavalError, match="no complete run"):
        badge("prompt.md", "--variant", "mode=x")


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        (Selection(variants=(("mode", "a"),)), "mode=a"),
        (Selection(models=("a", "x*")), "models a, x*"),
    ],
)
def test_a_run_over_chosen_variants_is_not_the_suites_figure(
    badge: Badge, store: Store, prompt: Path, selection: Selection, told: str
) -> None:
    whole = stored(store, {"a": "PP", "b": "FF"})
    some = stored(store, {"a": "PP"}, selection=selection)
    said = badge("prompt.md").talk
    assert f"run {some.id} is skipped: it covers only the selected variants ({told})" in said
    assert told_in(prompt)["test_run"] == whole.id
    badge("prompt.md", "--variant", "mode=a")
    assert told_in(prompt)["test_run"] == some.id, "of such trials it has all"
    assert (
        f"note: run {some.id} covers only the selected" in badge("prompt.md", "--run", some.id).talk
    )


def test_where_nobody_noted_what_runs_were_made_of_one_counts_alone(
    badge: Badge, store: Store, prompt: Path
) -> None:
    """As with sessions of pytest: those before may be of another prompt."""
    for ends in ("PP", "PF"):
        stored(store, ends, parts=None)
    badge("prompt.md")
    assert told_in(prompt)["test_runs"] == [50.0]
    stored(store, "FF", parts=None)
    badge("prompt.md")
    assert told_in(prompt)["test_runs"] == [50.0, 0.0]


# ---- the file


def test_a_diff_is_printed_and_nothing_written(badge: Badge, store: Store, prompt: Path) -> None:
    stored(store, "PP")
    told = badge("prompt.md", "--dry-run")
    assert told.code == 0
    lines = told.output.splitlines()
    assert lines[:2] == ["--- prompt.md", "+++ prompt.md"]
    assert {"-latest_accuracy: 0.0", "+latest_accuracy: 100.0", " tags: [a,  b]"} <= {*lines}
    assert prompt.read_text() == PROMPT


def test_check_ends_with_1_where_something_would_change(
    badge: Badge, store: Store, prompt: Path
) -> None:
    stored(store, "PP")
    assert badge("prompt.md", "--check").code == 1
    assert prompt.read_text() == PROMPT
    badge("prompt.md")
    assert badge("prompt.md", "--check").code == 0


def test_permissions_and_links_stay(badge: Badge, store: Store, prompt: Path, folder: Path) -> None:
    stored(store, "PP")
    prompt.chmod(0o600)
    (folder / "link.md").symlink_to(prompt)
    badge("link.md")
    assert (folder / "link.md").is_symlink()
    assert stat.S_IMODE(prompt.stat().st_mode) == 0o600
    assert told_in(prompt)["latest_accuracy"] == 100.0
    assert not list(folder.glob(".paraval-*"))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("prompt.md", b"---\nname: x\n", "has no end"),
        ("prompt.md", b"---\n\tname: x\n---\n", "line 2"),
        ("prompt.md", b"---\na: 1\na: 2\n---\n", "duplicate key"),
        ("prompt.md", b"---\n\nsome prose: about --- things\n\n---\n", "reads as prose"),
        ("prompt.md", b"---\ntest_runs: many\n---\n", "not a list of numbers"),
        ("prompt.md", b"---\ntest_runs: [1, .nan]\n---\n", "not a list of numbers"),
        ("prompt.md", b"---\na: \xff\n---\n", "is not UTF-8"),
        ("prompt.md", b"x" * 10_000_000, "larger than 4 MB"),
        ("prompt.py", b"print('hello')\n", "no front matter"),
        ("badge.json", b'{"name": "a package"}', "not a badge"),
        ("badge.json", b"{", "not a badge"),
    ],
)
def test_what_cannot_be_edited_is_told_and_left_alone(
    badge: Badge, store: Store, folder: Path, name: str, content: bytes, told: str
) -> None:
    stored(store, "PP")
    (folder / name).write_bytes(content)
    with pytest.raises(ParavalError, match=told):
        badge(name)
    assert (folder / name).read_bytes() == content


def test_only_json_files_are_made(badge: Badge, store: Store) -> None:
    stored(store, "PP")
    with pytest.raises(ParavalError, match=r"there is no file prompt\.md"):
        badge("prompt.md")


def test_costs_and_models_are_told_only_where_they_are_known(
    badge: Badge, store: Store, prompt: Path
) -> None:
    prompt.write_text(PROMPT.replace("version:", "test_model: old\nlast_test_cost: 5\nversion:"))
    stored(store, "EPP")
    badge("prompt.md")
    told = told_in(prompt)
    # Each answer of the run told 0.25; an error told nothing, and had no call.
    assert told["last_test_cost"] == 0.5
    assert told["test_model"] is None


# ---- as JSON


def test_a_json_file_has_all_figures_and_one_for_shields_its_own_alone(
    badge: Badge, store: Store, folder: Path
) -> None:
    run = stored(store, "P" * 46 + "F" * 4 + "E")
    badge("badge.json")
    badge("evals.shields.json")
    told = json.loads((folder / "badge.json").read_text())
    fields = {
        "schemaVersion": 1,
        "label": "greetings",
        "message": "92% (81–97%)",
        "color": "green",
    }
    assert json.loads((folder / "evals.shields.json").read_text()) == fields
    assert told.items() >= fields.items()
    assert (told["run"], told["pass_rate"], told["errors"], told["cases"]) == (run.id, 0.92, 1, 50)
    before = (folder / "badge.json").stat().st_mtime_ns
    assert "already" in badge("badge.json").talk
    assert (folder / "badge.json").stat().st_mtime_ns == before
    stored(store, "F" * 50)
    badge("badge.json")
    assert json.loads((folder / "badge.json").read_text())["color"] == "red"


def test_hundred_and_nothing_are_said_only_where_it_is_exactly_that() -> None:
    assert [points(share) for share in (0, 0.0001, 0.41666, 0.99999, 1)] == [
        0.0,
        0.1,
        41.7,
        99.9,
        100.0,
    ]
