"""`paraval badge`: the latest figures in a prompt file or a JSON file, of complete runs alone."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from paraval.cli.commands.badge import badge_command
from paraval.errors import NotWrittenError, ParavalError
from paraval.settings import Selection
from paraval.store.store import Store
from tests.history_kit import stored

PROMPT = """\
---
name: discovery   # of what there is
version: '1.2'
pass_rate: unknown
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
    _, front, _ = path.read_text().split("---\n", 2)
    loaded: dict[str, Any] = yaml.safe_load(front)
    return loaded


# ---- in front matter


def test_the_figures_are_those_of_the_newest_complete_run(
    badge: Badge, store: Store, prompt: Path
) -> None:
    stored(store, "P" * 9 + "F" + "E" * 2)
    badge("prompt.md")
    told = told_in(prompt)
    assert told == {
        "name": "discovery",
        "version": "1.2",
        "pass_rate": "90% (60–98%)",
        "tags": ["a", "b"],
        "last_tested": told["last_tested"],
    }
    assert prompt.read_text().endswith("---\n\nYou find things.\n")
    assert "name: discovery   # of what there is\n" in prompt.read_text()


@pytest.mark.parametrize("text", ["Hello\r\n", "\ufeffHello\n", "", "---\r\n---\r\nHello\r\n"])
def test_a_text_without_keys_gets_them_with_its_own_line_ends(
    badge: Badge, store: Store, prompt: Path, text: str
) -> None:
    stored(store, "PP")
    prompt.write_bytes(text.encode())
    badge("prompt.md")
    written = prompt.read_bytes().decode()
    newline = "\r\n" if "\r" in text else "\n"
    mark, body = ("\ufeff" if "\ufeff" in text else ""), text.rpartition("---\r\n")[2]
    first, rate, day, last = written.removeprefix(mark).split(newline)[:4]
    assert (first, rate, last) == ("---", "pass_rate: 100% (34–100%)", "---")
    assert day.startswith("last_tested: 20")
    assert written.endswith(f"---{newline}{body.removeprefix(mark)}")
    assert badge("prompt.md", "--check").code == 0


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


# ---- which runs count


def test_runs_that_are_not_complete_and_outages_are_passed_over_and_said(
    badge: Badge, store: Store, prompt: Path
) -> None:
    stored(store, "PPPF")
    some = stored(store, "PP", parts={"case_count": "4"})
    stopped = stored(store, "PPPF", stop_after=2)
    outage = stored(store, "EEEE")
    told = badge("prompt.md")
    assert f"run {outage.id} is skipped: nothing was judged (4 errors)" in told.talk
    assert f"run {stopped.id} is skipped: it is not complete (interrupted)" in told.talk
    assert f"run {some.id} is skipped: it covers only 2 of 4 cases" in told.talk
    assert told_in(prompt)["pass_rate"].startswith("75%")


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
    assert told_in(prompt)["pass_rate"].startswith("100%")
    stopped = stored(store, "PPPF", stop_after=2)
    with pytest.raises(ParavalError, match="it is not complete"):
        badge("prompt.md", "--run", stopped.id)


def test_of_several_suites_one_must_be_named(badge: Badge, store: Store, prompt: Path) -> None:
    stored(store, "PP")
    stored(store, "FF", name="others")
    with pytest.raises(ParavalError, match="runs of several suites: 'greetings', 'others'"):
        badge("prompt.md")
    badge("prompt.md", "--suite", "greetings")
    assert told_in(prompt)["pass_rate"].startswith("100%")
    with pytest.raises(ParavalError, match="cannot be combined"):
        badge("prompt.md", "--suite", "greetings", "--run", "last")


def test_several_variants_are_told_together_or_one_is_chosen(
    badge: Badge, store: Store, prompt: Path
) -> None:
    stored(store, {"a": "PP", "b": "FF"})
    assert "the figures are over 2 variants" in badge("prompt.md").talk
    assert told_in(prompt)["pass_rate"].startswith("50%")
    assert "variants" not in badge("prompt.md", "--variant", "mode=a").talk
    assert told_in(prompt)["pass_rate"].startswith("100%")
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
    stored(store, {"a": "PP", "b": "FF"})
    some = stored(store, {"a": "PP"}, selection=selection)
    said = badge("prompt.md").talk
    assert f"run {some.id} is skipped: it covers only the selected variants ({told})" in said
    assert told_in(prompt)["pass_rate"].startswith("50%")
    badge("prompt.md", "--variant", "mode=a")
    assert told_in(prompt)["pass_rate"].startswith("100%"), "of such trials it has all"
    assert (
        f"note: run {some.id} covers only the selected" in badge("prompt.md", "--run", some.id).talk
    )


# ---- the file


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
    assert told_in(prompt)["pass_rate"].startswith("100%")
    assert not list(folder.glob(".paraval-*"))


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("prompt.md", b"---\nname: x\n", "has no end"),
        ("prompt.md", b"---\na: \xff\n---\n", "is not UTF-8"),
        ("prompt.md", b"x" * 10_000_000, "larger than 4 MB"),
        ("prompt.py", b"print('hello')\n", "neither a text"),
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


# ---- as JSON
