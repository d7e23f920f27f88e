"""What trials did, in every form of report: calls of tools are evidence, and a void one is told."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pyte
import pytest
from hypothesis import given, strategies as st
from lxml import etree
from wcwidth import wcswidth

from paraval.records import (
    Activity,
    Change,
    FileChange,
    McpState,
    Outcome,
    ToolUse,
    TrialResult,
    Variant,
)
from paraval.report.formats.run_text import run_text
from paraval.report.report import Report
from paraval.text.tables import Page
from paraval.text.words import size
from tests.test_report import HOSTILE, ended, junit_schema, plain, report_of, small_report, written
from tests.test_report_outputs import agents_report

__all__ = ["junit_schema"]

WITH: Variant = {"mode": "with-mcp"}
WITHOUT: Variant = {"mode": "without-mcp"}
SERVER = "repo-search"


def used(calls: int, failed: int = 0, state: McpState = McpState.CONNECTED) -> Activity:
    """An agent that was handed the server and called a tool of it so often."""
    tools = [ToolUse(name="Bash", calls=2)]
    if calls:
        tools.append(ToolUse(name="search", server=SERVER, calls=calls, failed=failed))
    return Activity(turns=6, tools=tuple(tools), mcp={SERVER: state})


def did(variant: Variant, activity: Activity | None = None, **deeds: Any) -> TrialResult:
    result = ended(variant=variant)
    return replace(result, result=replace(result.result, activity=activity, **deeds))


def alone(turns: int = 9, calls: int = 5) -> Activity:
    """An agent that was handed nothing."""
    return Activity(turns=turns, tools=(ToolUse(name="Bash", calls=calls),))


def compared(*with_mcp: Activity) -> Report:
    return report_of(*(did(WITH, one) for one in with_mcp), did(WITHOUT, alone()))


def tools_of(report: Report, width: int = 100) -> list[str]:
    """The section on tools, without its heading."""
    for block in plain(report, width).split("\n\n"):
        heading, *lines = block.split("\n")
        if heading == "Tools":
            return lines
    return []


def red(report: Report) -> list[str]:
    text = run_text(report, Page(width=200, color=True, unicode=True))
    return [
        line[5:-4].strip()
        for line in text.split("\n")
        if line.startswith("\x1b[31m") and line[5:7] == "  "
    ]


# ---- calls of tools


def test_alarms_are_red() -> None:
    assert red(compared(used(1), used(1))) == []
    assert [" ".join(alarm.split()[:4]) for alarm in red(agents_report())] == [
        "claude · without called",
        "codex · with-search never",
        "codex · with-search could",
        "codex · with-search: 1",
        "codex · without: 1",
    ]


def test_calls_that_all_gave_errors_are_no_use_of_the_tool() -> None:
    (alarm,) = red(compared(used(2, failed=2)))
    assert alarm.startswith("with-mcp got nothing but errors from repo-search (2 calls): ")


def test_connections_are_counted_only_where_every_trial_tells_of_its_own() -> None:
    report = compared(used(1), used(0, state=McpState.UNKNOWN))
    assert "connected" not in " ".join(tools_of(report))


def test_an_agent_that_does_not_tell_its_tools_is_unknown_and_not_void() -> None:
    silent = Activity(turns=None, mcp={SERVER: McpState.UNKNOWN}, tells_tools=False)
    report = compared(silent)
    assert tools_of(report)[0] == "  with-mcp     repo-search: tool calls not reported"
    assert red(report) == []
    use = report.to_dict()["summary"]["variants"][0]["agents"]["mcp"][SERVER]
    assert (use["telling"], use["never_called"]) == (0, False)


def test_servers_of_the_users_own_that_no_mode_hands_over_are_no_alarm() -> None:
    own = Activity(tools=(ToolUse(name="ask", server="mine", calls=4),))
    assert red(report_of(did(WITH, used(1)), did(WITHOUT, own))) == []


def test_agents_without_any_server_tell_turns_and_calls() -> None:
    report = report_of(
        did({"agent": "codex"}, alone(turns=1)), did({"agent": "custom"}, Activity())
    )
    assert tools_of(report) == [
        "  codex   median 1 turn, 5 tool calls in total",
        "  custom  0 tool calls in total",
    ]


def test_a_trial_that_told_nothing_is_not_counted_as_one_that_called_nothing() -> None:
    report = report_of(did(WITH, used(1)), did(WITH, None))
    assert "called in 1 of 1 trial (1 call)" in tools_of(report)[0]


def test_runs_without_agents_and_workspaces_are_reported_as_ever() -> None:
    measured = report_of(
        *(
            replace(trial, result=replace(trial.result, cpu_s=1.0, memory_bytes=10**9))
            if trial.outcome.is_judged
            else trial
            for trial in small_report().trials
        ),
        fail_under=0.5,
    )
    assert str(measured) == str(small_report())
    assert written(measured, ".md") == written(small_report(), ".md")


@pytest.mark.parametrize(
    ("number", "words"),
    [(4_096, "4 kB"), (999_000, "1 MB"), (5e8, "500 MB"), (999.9e6, "1.0 GB"), (2**31, "2.1 GB")],
)
def test_sizes_read_well(number: float, words: str) -> None:
    assert size(number) == words


# ---- changes


def changed(files: int, added: int, deleted: int, *tampering: str) -> Change:
    return Change(
        files_changed=files, lines_added=added, lines_deleted=deleted, tampering=tampering
    )


def test_one_line_is_a_line() -> None:
    text = plain(report_of(did(WITH, change=changed(1, 1, 0))), 100)
    assert "median 1 file, 1 line added, 0 deleted" in text


def test_a_change_that_is_not_known_is_neither_none_nor_in_a_median() -> None:
    lost = Change(unknown="the workspace was moved away")
    report = report_of(did(WITH, change=lost), did(WITH, change=lost))
    assert "  with-mcp  unknown in 2 of 2 trials\n" in plain(report, 100).replace(
        "-mcp   ", "-mcp "
    )
    changes = report.to_dict()["summary"]["variants"][0]["changes"]
    assert (changes["unknown"], changes["median_files"]) == (2, None)
    some = report_of(
        did(WITH, change=changed(2, 4, 0)), did(WITH, change=replace(lost, files_deleted=9))
    )
    assert (
        "2 of 2 trials changed files; median 2 files, 4 lines added, 0 deleted; unknown in 1 of 2"
        in plain(some, 130)
    )
    first, second = csv.DictReader(io.StringIO(written(some, ".csv")))
    assert (first["files_changed"], first["change.unknown"]) == ("2", "")
    assert (second["files_changed"], second["change.unknown"]) == ("", lost.unknown)
    told = json.loads(written(some, ".json"))["trials"][1]["change"]
    assert (told["unknown"], told["files_deleted"]) == (lost.unknown, 9)


def test_much_tampering_is_told_in_few_words() -> None:
    report = report_of(did(WITH, change=changed(1, 1, 1, *(f"thing {n}" for n in range(50)))))
    (alarm,) = red(report)
    assert alarm.endswith("thing 2 (1) and 17 more")


# ---- for programs


def full_report() -> Report:
    files = (FileChange(path="a.py", status="changed", lines_added=3, lines_deleted=1),)
    change = Change(files_changed=1, lines_added=3, lines_deleted=1, files=files)
    return report_of(
        did(WITH, used(3, failed=1), change=change, cpu_s=1.25, memory_bytes=1_000),
        did(WITHOUT, alone()),
    )


def test_csv_has_columns_for_deeds_where_there_are_some() -> None:
    first, second = csv.DictReader(io.StringIO(written(full_report(), ".csv")))
    assert (first["activity.turns"], first["tool_calls"], first["tool_errors"]) == ("6", "5", "1")
    assert (first[f"activity.mcp.{SERVER}"], first[f"mcp_calls.{SERVER}"]) == ("connected", "2")
    assert (second[f"activity.mcp.{SERVER}"], second[f"mcp_calls.{SERVER}"]) == ("", "0")
    assert (first["files_changed"], first["lines_added"]) == ("1", "3")
    assert first["change.tampering"] == ""
    assert (second["files_changed"], second["memory_bytes"]) == ("", "")
    assert "turns" not in written(small_report(), ".csv").split("\n")[0]


def test_junit_tells_tools_as_properties(junit_schema: etree.XMLSchema) -> None:
    text = written(full_report(), ".junit.xml")
    tree = etree.fromstring(text.encode())
    junit_schema.assertValid(tree)
    told = {one.get("name"): one.get("value") for one in tree[0].iter("property")}
    assert told[f"mcp.{SERVER}.called"] == "1"
    assert told["median_turns"] == "6"


# ---- hostile


def hostile(words: str, variant: Variant) -> TrialResult:
    activity = Activity(
        turns=1,
        tools=(ToolUse(name=words, server=words, calls=1), ToolUse(name=words, calls=2)),
        mcp={words: McpState.FAILED, f"{words}2": McpState.CONNECTED},
        session=words,
    )
    change = Change(
        files_added=1,
        files=(FileChange(path=words, status="added", lines_added=None, lines_deleted=None),),
        tampering=(words,),
        unknown=words,
    )
    return did(variant, activity, change=change)


def hostile_report() -> Report:
    return report_of(*(hostile(words, {"mode": f"{n}{words}"}) for n, words in enumerate(HOSTILE)))


@pytest.mark.parametrize("ending", [".json", ".jsonl", ".csv", ".md", ".junit.xml"])
def test_hostile_names_can_be_written_in_every_form(
    ending: str,
    junit_schema: etree.XMLSchema,
) -> None:
    text = written(hostile_report(), ending)
    text.encode()
    if ending == ".junit.xml":
        junit_schema.assertValid(etree.fromstring(text.encode()))
    if ending == ".csv":
        for row in csv.reader(io.StringIO(text, newline="")):
            assert not any(cell.lstrip().startswith(("=", "+", "-", "@")) for cell in row)
    if ending == ".md":
        assert len(text.encode()) < 65_000
        assert "<img" not in text


@pytest.mark.parametrize("width", [40, 80])
def test_hostile_names_keep_to_their_lines(width: int) -> None:
    for line in plain(hostile_report(), width).split("\n"):
        assert wcswidth(line) <= width or "more: paraval " in line
    assert plain(hostile_report(), width, unicode=False).isascii()


def test_hostile_names_do_nothing_to_a_terminal() -> None:
    text = plain(hostile_report())
    screen = pyte.Screen(90, text.count("\n") + 2)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    assert screen.title == ""
    assert {cell.fg for row in screen.buffer.values() for cell in row.values()} <= {"default"}


def test_names_without_end_of_servers_that_an_agent_makes_up_are_bounded() -> None:
    def inventive(start: int) -> Activity:
        names = range(start, start + 100)
        return Activity(tools=tuple(ToolUse(name="t", server=f"s{n}", calls=1) for n in names))

    report = report_of(*(did(WITH, inventive(100 * n)) for n in range(20)))
    agents = report.summary.agents
    assert agents is not None
    assert len(agents.mcp) <= 20
    assert agents.other_calls == 2_000


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from(McpState), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_the_counts_are_those_of_the_trials(trials: list[tuple[int, int, McpState, bool]]) -> None:
    """`called` counts trials with a call that gave no error, among those that tell."""
    activities = [
        replace(used(calls, failed=min(failed, calls), state=state), tells_tools=tells)
        for calls, failed, state, tells in trials
    ]
    agents = report_of(*(did(WITH, one) for one in activities)).summary.agents
    assert agents is not None
    use = agents.mcp[SERVER]
    telling = [one for one in activities if one.tells_tools]
    assert use.handed == len(activities)
    assert use.telling == len(telling)
    assert use.called == sum(one.calls_of(SERVER) > 0 for one in telling)
    assert use.calls == sum(one.calls_of(SERVER) for one in telling)
    assert use.connected + use.failed <= use.handed
    assert use.never_called == (bool(telling) and use.called == 0)


def test_a_skipped_trial_does_nothing() -> None:
    report = report_of(ended(Outcome.SKIPPED, why="not run"))
    assert report.summary.agents is None
    assert report.to_dict()["summary"]["agents"] is None
