"""What users can do from the viewer. Each action is asked about once, and then done."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from paraval.errors import RequestError
from paraval.processes.quick import start_detached
from paraval.records import Label, RunInfo, answer_digest
from paraval.runner.live import send_command
from paraval.settings import is_of_tests
from paraval.store.labels import Labels
from paraval.store.locks import is_worked_on
from paraval.store.store import Store
from paraval.text.terminal import one_line
from paraval.view.case_page import trials_of
from paraval.view.pages import render
from paraval.view.run_state import RunState

_LOGS = "view-logs"
_LARGEST_LOG = 20_000
_LABELS = {"pass": True, "fail": False, "none": None}


class Action(NamedTuple):
    """What is asked, with the value that the user gave, and what is said then."""

    question: str
    detail: str
    label: str
    notice: str


ACTIONS = {
    "stop": Action(
        "Stop this run?",
        "Running attempts are ended; a resume runs them again, and the rest.",
        "Stop the run",
        "The run was asked to stop.",
    ),
    "cancel": Action(
        "Cancel trial {value}?",
        "Its running attempt is ended, and the trial is skipped.",
        "Cancel the trial",
        "The trial was asked to end.",
    ),
    "parallel": Action(
        "Run {value} in parallel?",
        "Attempts that are running continue.",
        "Change the parallelism",
        "The run was asked to change its parallelism.",
    ),
    "budget": Action(
        "Change the budget to ${value}?",
        "The run stops before it spends more than this.",
        "Change the budget",
        "The run was asked to change its budget.",
    ),
    "failed": Action(
        "Run what failed again?",
        "Trials that failed or had an error run again, and their new results take the place of the"
        " old ones. Calls of models may cost money.",
        "Run them",
        "What had failed runs again.",
    ),
    "resume": Action(
        "Resume this run?",
        "Continues where the run ended. Calls of models may cost money.",
        "Resume",
        "The run was resumed.",
    ),
}


def notice_of(said: str) -> str:
    """What is said on the page after an action."""
    if said == "label":
        return "Your verdict was saved."
    return ACTIONS[said].notice if said in ACTIONS else ""


class Actions:
    """The actions on the runs of one store."""

    def __init__(self, store: Store, csrf: str) -> None:
        self._store = store
        self._csrf = csrf

    def offered(self, info: RunInfo, state: RunState) -> Iterator[tuple[str, str, str, str]]:
        """What can be done with the run now: name, label, and what its value is called and is."""
        if state.worked_on:
            yield "stop", "Stop the run", "", ""
            yield "parallel", "Change", "In parallel", str(state.live.get("parallel", ""))
            if (budget := state.live.get("budget_usd")) is not None:
                yield "budget", "Change", "Budget, $", f"{budget:g}"
        elif info.source is not None and not is_of_tests(self._store.selection(info)):
            if info.state != "done":
                budget = self._store.selection(info).get("budget_usd")
                field = "Budget, $" if info.held_back or budget is not None else ""
                yield "resume", "Resume", field, "" if budget is None else f"{budget:g}"
            if state.whole.kinds["wrong"] + state.whole.kinds["error"]:
                yield "failed", "Run what failed again", "", ""

    def question(self, info: RunInfo, asked: str, text: str) -> Markup:
        """The page that asks before it is done."""
        value = _value(asked, text)
        action = ACTIONS[asked]
        starts = asked in ("failed", "resume")
        return render(
            "ask.html",
            run=info,
            do=asked,
            value=text,
            action=action,
            question=action.question.format(value=value),
            command=shlex.join(["paraval", *self._arguments(info, asked, text)]) if starts else "",
            csrf=self._csrf,
        )

    def do(self, info: RunInfo, asked: str, text: str) -> str:
        """Do it; the address of the page that shows the result."""
        value = _value(asked, text)
        if asked in ("failed", "resume"):
            self._start(info, asked, text)
        else:
            given = {"index" if asked == "cancel" else "value": value} if asked != "stop" else {}
            send_command(Path(info.folder), {"do": asked, "by": "the viewer", **given})
        return f"/runs/{info.id}?said={asked}"

    def _arguments(self, info: RunInfo, asked: str, text: str) -> list[str]:
        """Of the command that starts it."""
        store = ["--store", str(self._store.root)]
        if asked == "resume":
            usd = _value("resume", text)
            return ["resume", info.id, *([] if usd is None else ["--budget", f"{usd:g}"]), *store]
        return ["resume", info.id, "--failed", *store]

    def _start(self, info: RunInfo, asked: str, text: str) -> None:
        """Start it, and wait until it works on the run or has ended."""
        folder = self._store.root / _LOGS
        folder.mkdir(exist_ok=True)
        log = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{asked}-{info.id}.log"
        command = [sys.executable, "-P", "-m", "paraval", *self._arguments(info, asked, text)]
        command += ["--progress", "lines"]
        run_folder = Path(info.folder)
        code = start_detached(
            command, env=os.environ, log=log, has_begun=lambda: is_worked_on(run_folder)
        )
        if code not in (None, 0, 1, 3):
            text = log.read_bytes()[-_LARGEST_LOG:].decode(errors="replace")
            raise RequestError(f"it did not begin (exit code {code})", hint=text)

    def label(self, info: RunInfo, form: Mapping[str, str]) -> str:
        """Save a person's verdict on an answer."""
        index, number = _number(form.get("trial", "")), _number(form.get("case", ""))
        grader, word = form.get("grader", ""), form.get("label", "")
        with self._store.reader(info) as reader:
            case = reader.cases_at([number]).get(number)
            trials = () if case is None else trials_of(reader, case)
            ends = [one.result for one in trials if one.index == index]
        graders = [grade.grader for end in ends for grade in end.grades]
        if case is None or grader not in graders or word not in _LABELS or not ends[0].output:
            raise RequestError("there is no such answer in this run, or no such verdict on it")
        digest = answer_digest(case, ends[0].output.whole)
        label = Label(grader=grader, case_id=case.id, answer=digest, passed=_LABELS[word])
        Labels(self._store.root).add(info.suite, [label])
        return f"/runs/{info.id}/cases/{number}?said=label#trial-{index}"


def _value(asked: str, text: str) -> Any:
    """The value of an action as it is sent; RequestError if it has another form."""
    text = text.strip()
    match asked:
        case "cancel":
            return _number(text)
        case "parallel":
            if text == "auto":
                return text
            if 1 <= (number := _number(text)) <= 1_000_000:
                return number
            raise RequestError("parallelism must be a number from 1 on, or auto")
        case "resume" if not text:
            return None
        case "budget" | "resume":
            try:
                usd = float(text.removeprefix("$"))
            except ValueError:
                usd = 0.0
            if 0 < usd < 1e9:
                return usd
            raise RequestError("a budget is an amount in US dollars, such as 2.50")
    if asked not in ACTIONS:
        raise RequestError("there is no such action")
    return None


def _number(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 9:
        return int(text)
    raise RequestError(f"'{one_line(text, 40)}' is not a number")
