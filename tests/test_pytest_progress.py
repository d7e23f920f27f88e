"""What is seen of a parallel run of tests: one line at the bottom of a terminal, or one a test."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyte
import pytest

from paraval.pytest_plugin.options import ProgressForm
from paraval.pytest_plugin.progress import (
    Progress,
    TerminalLine,
    letter_of,
    names_of,
    progress_for,
)
from paraval.records import Failure, Outcome
from paraval.text.progress import CLEAR_TO_LINE_END, Footer
from paraval.text.words import rough_time

DRIVER = """
import os
from types import SimpleNamespace

import pytest

from paraval.pytest_plugin import progress as progress_line
from paraval.pytest_plugin.progress import progress_for
from paraval.text import progress as display
from paraval.pytest_plugin.options import ProgressForm
from paraval.records import Failure, Outcome

REFUSALS = (
    Failure(kind=Outcome.RATE_LIMITED, message="HTTP 429", account="account:openai"),
    Failure(kind=Outcome.INFRA_ERROR, message="nobody there"),
)
display.REDRAW_S = progress_line.LONG_S = 0.0
reports = []


def pytest_runtest_logreport(report):
    reports.append(report)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    nodeids = [item.nodeid for item in session.items]
    progress = progress_for(session.config, ProgressForm(os.environ["FORM"]), nodeids)
    for item in session.items:
        progress.started(item.nodeid)
        progress.tick()
        if item.name == os.environ.get("REFUSED"):
            for why in REFUSALS:
                progress.waits(item.nodeid, why, 4.0)
                progress.started(item.nodeid)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        result = SimpleNamespace(duration_s=1.9)
        progress.ended(item.nodeid, [*reports], result, 8.0)
        reports.clear()
        progress.tick()
    progress.close()
    progress.close()
    return True
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(60))
def test_many(number):
    assert number != 40, "forty is too much"

def test_with_a_name_that_is_much_too_long_for_one_row_of_this_terminal_or_of_most_others():
    pass

@pytest.fixture
def broken():
    raise OSError("no network")

def test_broken(broken): ...

@pytest.mark.skip(reason="not today")
def test_skipped(): ...

@pytest.mark.xfail
def test_expected():
    assert False
"""
PLAIN = ("-p", "no:cacheprovider", "-p", "driver")
ROW_END = CLEAR_TO_LINE_END.encode()
FOOT = re.compile(r"^\d+/\d+ · \d+ running")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "test_a.py").write_text(TESTS)
    for name in "bcd":
        (tmp_path / f"test_{name}.py").write_text("def test_one(): ...\ndef test_two(): ...\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def environment(form: str, **more: str) -> dict[str, str]:
    inherited = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTEST", "COV_")) and key not in ("CI", "NO_COLOR", "COLUMNS")
    }
    ours = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": "."}
    return {**inherited, **ours, "FORM": form, "TERM": "xterm-256color", **more}


def written(
    suite: Path, form: str, *flags: str, columns: int = 80, rows: int = 10
) -> Iterator[bytes]:
    """What a pytest writes to a terminal of this size, as it comes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    command = [sys.executable, "-m", "pytest", *PLAIN, *flags]
    env = environment(form)
    with subprocess.Popen(command, cwd=suite, env=env, stdout=theirs, stderr=theirs):
        os.close(theirs)
        try:
            while piece := os.read(ours, 1000):
                yield piece
        except OSError:  # The other end is closed.
            pass
        finally:
            os.close(ours)


class Seen:
    """A terminal of this size, what it showed at each moment, and what it shows in the end."""

    def __init__(self, columns: int = 80, rows: int = 10) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.ByteStream(self.screen)
        self.feet: list[str] = []
        self.most_feet = 0

    def watch(self, pieces: Iterator[bytes]) -> Seen:
        """Looks each time that a row is complete: what a read returns depends on the machine."""
        unread = b""
        for piece in pieces:
            *rows, unread = (unread + piece).split(ROW_END)
            for row in rows:
                self._stream.feed(row + ROW_END)
                self._look()
        self._stream.feed(unread)
        self._look()
        return self

    def _look(self) -> None:
        feet = [row for row in self.screen.display if FOOT.match(row)]
        self.most_feet = max(self.most_feet, len(feet))
        self.feet += [row.rstrip() for row in feet]

    @property
    def rows(self) -> list[str]:
        """All that was ever written, without times, which differ from run to run."""
        columns = self.screen.columns
        above = ["".join(row[at].data for at in range(columns)) for row in self.screen.history.top]
        rows = [*above, *self.screen.display]
        return [re.sub(r"in \d+\.\d+s.*", "", row).rstrip(" =") for row in rows]


@pytest.mark.parametrize(
    ("flags", "columns"),
    [((), 80), (("-v", "--color=yes"), 61), (("-q",), 30)],
)
def test_the_line_is_seen_below_and_leaves_nothing(
    suite: Path, flags: tuple[str, ...], columns: int
) -> None:
    """Whatever pytest writes, it stands there in the end as if there had been no line."""
    plain = Seen(columns).watch(written(suite, "none", *flags, columns=columns))
    seen = Seen(columns).watch(written(suite, "auto", *flags, columns=columns))
    assert plain.feet == []
    assert len(set(seen.feet)) > 5
    assert seen.most_feet == 1
    assert seen.rows == plain.rows
    assert any("1 fail" in foot for foot in seen.feet)
    assert max(map(len, seen.feet)) < columns


def test_a_line_says_what_is_known(suite: Path) -> None:
    """Done of all, running, failed, time, ETA, and which test runs longest."""
    feet = Seen(120, 10).watch(written(suite, "auto", "test_a.py", columns=120)).feet
    expected = (
        r"\d+/64 · 1 running · 1 failed · \d:\d\d · ETA \d s · longest: test_many\[\d+\] \d+ s"
    )
    assert any(re.fullmatch(expected, foot) for foot in feet), feet[-5:]


@pytest.mark.parametrize(
    ("environ", "capture", "is_shown"),
    [
        ({}, "fd", True),
        ({}, "no", False),
        ({"NO_COLOR": "1"}, "fd", False),
        ({"TERM": "dumb"}, "fd", False),
        ({"TERM": ""}, "fd", False),
        ({"CI": "true"}, "fd", False),
    ],
)
def test_nothing_is_drawn_where_it_would_disturb(
    environ: dict[str, str], capture: str, is_shown: bool
) -> None:
    """In logs, on terminals that cannot, and where tests write to the terminal themselves."""
    paper = Paper()
    reporter = SimpleNamespace(isatty=lambda: True, _tw=SimpleNamespace(_file=paper))
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(get_plugin=lambda name: reporter),
        getoption=lambda name, default: capture,
    )
    progress = progress_for(
        config, ProgressForm.AUTO, ["a::b"], environ={"TERM": "xterm", **environ}
    )
    assert type(progress) is (TerminalLine if is_shown else Progress)
    progress.close()
    assert reporter._tw._file is paper


def test_a_log_has_no_line_and_what_was_asked_for(suite: Path) -> None:
    """In lines: aligned, with the reason of what failed; dots and names are silent."""
    command = [sys.executable, "-m", "pytest", *PLAIN, "-v", "-k", "39 or 40 or not many"]
    ran = subprocess.run(
        command,
        cwd=suite,
        env=environment("lines"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("[")]
    assert lines[0] == f"[ 1/12] ✓ {'test_many[39]':<60}  1.9 s  (ETA 8 s)"
    assert lines[1] == lines[0].replace("[ 1/12] ✓", "[ 2/12] ✗").replace("39", "40") + (
        "  AssertionError: forty is too much"
    )
    assert re.match(r"\[ 3/12\] ✓ test_with_a_name_.*….*_most_others {2,}1.9 s  \(ETA", lines[2])
    assert lines[3].startswith("[ 4/12] E test_broken ")
    assert lines[3].endswith("OSError: no network")
    assert [line[8] for line in lines[4:6]] == ["s", "x"]
    # Two files have a test_one: these two say whose it is.
    assert lines[6].startswith("[ 7/12] ✓ test_b.py::test_one ")
    assert "ETA" not in lines[11]
    assert "PASSED" not in ran.stdout.split("short test summary")[0]
    assert "FAILED test_a.py::test_many[40]" in ran.stdout
    assert "1 failed, 8 passed, 1 skipped, 58 deselected, 1 xfailed, 1 error" in ran.stdout


def test_a_log_in_ascii_has_letters_and_tells_of_refusals(suite: Path) -> None:
    command = [sys.executable, "-m", "pytest", *PLAIN, "test_b.py"]
    env = environment("lines", PYTHONIOENCODING="ascii", REFUSED="test_two")
    ran = subprocess.run(command, cwd=suite, env=env, capture_output=True, check=False, timeout=60)
    assert (
        b"\n\n[1/2] . test_one  1.9 s  (ETA 8 s)\n"
        b"test_two: rate limited by openai, retrying in 4 s\n"
        b"test_two: nobody there, retrying in 4 s\n"
        b"[2/2] . test_two  1.9 s  (try 3)\n\n"
    ) in ran.stdout


def test_a_line_tells_for_whom_tests_wait() -> None:
    """They do not run meanwhile; of several, when the first goes on."""
    now, paper = 0.0, Paper()
    reporter = SimpleNamespace(_tw=SimpleNamespace(_file=paper))
    line = TerminalLine(reporter, ["f::a", "f::b", "f::c"], clock=lambda: now, width=lambda: 100)

    def foot() -> str:
        nonlocal now
        now += 1.0
        paper.truncate(0)
        line.tick()
        return re.sub(r"\x1b\[K\r", "", paper.getvalue()).strip("\0")

    refused = Failure(kind=Outcome.RATE_LIMITED, message="429", account="account:openai")
    for name in "abc":
        line.started(f"f::{name}")
    line.waits("f::a", refused, 4.0)
    assert foot() == "0/3 · 2 running · 1 waiting for openai (3 s) · 0:01"
    line.waits("f::b", refused, 9.0)
    line.waits("f::c", replace(refused, account=None), 9.0)
    assert foot() == "0/3 · 0 running · 2 waiting for openai (2 s) · 1 waiting (8 s) · 0:02"
    line.started("f::a")
    assert foot() == "0/3 · 1 running · 1 waiting for openai (7 s) · 1 waiting (7 s) · 0:03"
    line.close()


# ---- the footer by itself


class Paper(io.StringIO):
    encoding = "utf-8"


Written = Callable[[Footer, Callable[[int], None]], None]


def shown(script: Written, columns: int = 40, rows: int = 6) -> tuple[pyte.Screen, str]:
    """What a terminal shows after a script that writes to a footer, and may change its width."""
    size = [columns]
    paper = Paper()
    footer = Footer(paper, lambda: size[0])
    script(footer, lambda width: size.__setitem__(0, width))
    screen = pyte.Screen(columns, rows)
    # A terminal has its own lines end in both.
    pyte.Stream(screen).feed(re.sub(r"(?<!\r)\n", "\r\n", paper.getvalue()))
    return screen, paper.getvalue()


def test_a_footer_stays_below_an_unfinished_line_that_grows() -> None:
    def script(footer: Footer, _: object) -> None:
        footer.write("head\n" * 8 + "test_a.py ")
        footer.flush()
        footer.show("1/9")
        for _ in range(5):
            footer.write("\x1b[32m.\x1b[0m")
            footer.flush()
        footer.show("6/9")

    screen, _ = shown(script)
    assert [row.rstrip() for row in screen.display][-3:] == ["head", "test_a.py .....", "6/9"]
    assert (screen.cursor.x, screen.cursor.y) == (15, 4)


def test_a_footer_waits_where_a_row_is_just_full() -> None:
    """A terminal that stands behind the last column cannot be brought back to there."""

    def script(footer: Footer, _: object) -> None:
        footer.write("x" * 40)
        footer.show("hidden")
        footer.write("y")
        footer.flush()

    screen, raw = shown(script)
    assert [row.rstrip() for row in screen.display][:3] == ["x" * 40, "y", "hidden"]
    assert raw.count("hidden") == 1


def test_a_footer_follows_the_width_and_takes_itself_away() -> None:
    def script(footer: Footer, resize: Callable[[int], None]) -> None:
        footer.write("begun ")
        footer.show("a text of more than twenty columns")
        resize(24)
        footer.show("a text of more than twenty columns!")
        resize(10)
        footer.show("too narrow")
        footer.show("")

    screen, raw = shown(script)
    assert "a text of more than twe…" not in raw
    assert "a text of more than tw…" in raw
    assert "too narrow" not in raw
    assert "".join(screen.display).strip() == "begun"


def test_a_terminal_without_a_size_has_that_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    try:
        with open(theirs, "w", closefd=False) as terminal:
            footer = Footer(terminal)
            monkeypatch.setenv("COLUMNS", "wide")
            footer.show("not seen")
            monkeypatch.setenv("COLUMNS", "40")
            footer.show("seen")
        assert os.read(ours, 100).startswith(b"seen")
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_footer_in_ascii_is_cut_in_ascii() -> None:
    class Plain(io.StringIO):
        encoding = "ascii"

    paper = Plain()
    Footer(paper, lambda: 20).show("a text · of more than twenty columns")
    assert paper.getvalue().isascii()
    assert paper.getvalue().startswith("a text - of more...\x1b[K")


def test_a_footer_is_the_file_for_all_else() -> None:
    paper = Paper()
    footer = Footer(paper, lambda: 80)
    assert footer.write("abc") == 3
    assert footer.encoding == "utf-8"
    assert not footer.isatty()
    footer.show("·")
    footer.show("·")
    assert paper.getvalue().count("·") == 1


# ---- words


def test_names_are_short_unless_two_tests_have_the_same() -> None:
    ids = ["a.py::test_x", "b.py::test_x", "a.py::TestY::test_z[1]", "README.md"]
    assert [*names_of(ids).values()] == ["a.py::test_x", "b.py::test_x", "TestY::test_z[1]", ids[3]]


@pytest.mark.parametrize(
    ("phases", "letter"),
    [
        ("passed passed passed", "."),
        ("passed failed passed", "F"),
        ("passed failed failed", "F"),
        ("failed passed", "E"),
        ("passed passed failed", "E"),
        ("skipped passed", "s"),
        ("passed skipped passed", "s"),
        ("passed skipped! passed", "x"),
        ("skipped! passed", "x"),
        ("passed passed! passed", "X"),
    ],
)
def test_letters_are_those_of_pytest(phases: str, letter: str) -> None:
    """With `!`: the test was expected to fail."""
    names = phases.split()
    whens = ("setup", "call", "teardown") if len(names) == 3 else ("setup", "teardown")
    ended = [_report(name, when) for name, when in zip(names, whens, strict=True)]
    assert letter_of(ended) == letter


def _report(name: str, when: str) -> Any:
    outcome = name.removesuffix("!")
    flags = {one: one == outcome for one in ("passed", "failed", "skipped")}
    return SimpleNamespace(when=when, **flags, **({"wasxfail": ""} if "!" in name else {}))


def test_a_guess_has_few_digits() -> None:
    assert [*map(rough_time, (7.2, 89.5, 130, 5400, float("nan"), -1))] == [
        "8 s", "90 s", "2 min", "1 h 30 min", "?", "?",
    ]  # fmt: skip
