"""What users can do from the viewer. Each action is asked about once, and then done."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

SAID = {
    "stop": "The run was asked to stop.",
    "cancel": "The trial was asked to end.",
    "parallel": "The run was asked to change its parallelism.",
    "budget": "The run was asked to change its budget.",
    "failed": "This is the new run.",
    "resume": "The run goes on.",
}
"""Notices after an action."""
_LOGS = "view-logs"
_LARGEST_LOG = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An action on a run's page."""

    do: str
    label: str
    field: str = ""
    """What its value is called; empty if it has none."""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    question: str
    detail: str
    label: str
    command: str = ""


class Actions:
    """The actions on the runs of one store."""

    def __init__(self, store: Store, csrf: str) -> None:
        self._store = store
        self._csrf = csrf

    def offered(self, info: RunInfo, state: RunState) -> list[Offer]:
        """What can be done with the run now."""
        if state.worked_on:
            live = state.live
            parallel = str(live.get("parallel", info.parallel))
            budget = live.get("budget_usd")
            offers = [
                Offer(do="stop", label="Stop the run"),
                Offer(do="parallel", label="Change", field="In parallel", value=parallel),
            ]
            if budget is not None:
                offers.append(
                    Offer(do="budget", label="Change", field="Budget, $", value=f"{budget:g}")
                )
            return offers
        offers = []
        if info.source is not None and not is_of_tests(self._store.selection(info)):
            if info.state != "done":
                offers.append(Offer(do="resume", label="Resume"))
            if state.whole.kinds["wrong"] + state.whole.kinds["error"]:
                offers.append(Offer(do="failed", label="Run the failed cases again"))
        return offers

    def question(self, info: RunInfo, asked: str, value: str) -> Markup:
        """The page that asks before it is done."""
        return render(
            "ask.html",
            run=info,
            do=asked,
            value=value,
            csrf=self._csrf,
            **_as_mapping(self._question(info, asked, value)),
        )

    def _question(self, info: RunInfo, asked: str, value: str) -> Question:
        match asked:
            case "stop":
                return Question(
                    question="Stop this run?",
                    detail=f"Running attempts are ended; `paraval resume {info.id}` runs them"
                    " again, and the rest.",
                    label="Stop the run",
                )
            case "cancel":
                trial = self._trial(info, value)
                return Question(
                    question=f"Cancel {trial}?",
                    detail="The running attempt is ended, and the trial is skipped.",
                    label="Cancel the trial",
                )
            case "parallel":
                return Question(
                    question=f"Run {_parallel(value)} in parallel?",
                    detail="Attempts that are running continue.",
                    label="Change the parallelism",
                )
            case "budget":
                return Question(
                    question=f"Change the budget to ${_budget(value):g}?",
                    detail="The run stops before it spends more than this.",
                    label="Change the budget",
                )
            case "failed" | "resume":
                command = ["paraval", *self._arguments(info, asked)]
                detail = "Continues where the run ended. Calls of models may cost money."
                if asked == "failed":
                    detail = (
                        "A new run of the cases whose latest result is a failure or an error."
                        " Calls of models may cost money."
                    )
                question, label = _STARTS[asked]
                return Question(
                    question=question, detail=detail, label=label, command=shlex.join(command)
                )
        raise RequestError("there is no such action")

    def _trial(self, info: RunInfo, value: str) -> str:
        index = _index(value)
        with self._store.reader(info) as reader:
            for attempt in reader.attempts(index=index):
                return one_line(attempt.case_id, 80)
        raise RequestError("there is no such trial in this run")

    # ---- doing it

    def do(self, info: RunInfo, asked: str, value: str) -> str:
        """Do it; the address of the page that shows the result."""
        command: dict[str, Any]
        match asked:
            case "stop":
                command = {"do": "stop"}
            case "cancel":
                command = {"do": "cancel", "index": _index(value)}
            case "parallel":
                command = {"do": "parallel", "value": _parallel(value)}
            case "budget":
                command = {"do": "budget", "value": _budget(value)}
            case "failed" | "resume":
                return f"/runs/{self._start(info, asked)}?said={asked}"
            case _:
                raise RequestError("there is no such action")
        if not info.running:
            raise RequestError("the run has ended already")
        send_command(Path(info.folder), command)
        return f"/runs/{info.id}?said={asked}"

    def _arguments(self, info: RunInfo, asked: str) -> list[str]:
        """Of the command that starts it."""
        store = ["--store", str(self._store.root)]
        if asked == "resume":
            return ["resume", info.id, *store]
        if info.source is None or not Path(info.source).is_file():
            raise RequestError("the suite's file is gone: it cannot run again")
        selection = self._store.selection(info)
        chosen = [f"--variant={axis}={value}" for axis, value in selection.get("variants", ())]
        if models := selection.get("models"):
            chosen.append(f"--models={','.join(models)}")
        return ["run", info.source, "--failed", *chosen, *store]

    def _start(self, info: RunInfo, asked: str) -> str:
        """Start it, and return the id of the run that it works on."""
        arguments = self._arguments(info, asked)
        known = {run.id for run in self._store.runs()}

        def new() -> list[str]:
            if asked == "resume":
                return [info.id] if is_worked_on(Path(info.folder)) else []
            return [run.id for run in self._store.runs() if run.id not in known]

        folder = self._store.root / _LOGS
        folder.mkdir(exist_ok=True)
        log = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{asked}-{info.id}.log"
        command = [sys.executable, "-m", "paraval", *arguments, "--progress", "lines"]
        code = start_detached(command, env=os.environ, log=log, has_begun=lambda: bool(new()))
        if code not in (None, 0, 1, 3) or not (found := new() or [info.id] * (asked == "resume")):
            text = log.read_bytes()[-_LARGEST_LOG:].decode(errors="replace")
            raise RequestError(f"it did not begin (exit code {code})", hint=text)
        return found[0]

    def label(self, info: RunInfo, form: Mapping[str, str]) -> str:
        """Save a person's verdict on an answer."""
        words = {"pass": True, "fail": False, "none": None}
        index, grader, word = _index(form.get("trial", "")), form.get("grader"), form.get("label")
        number = _index(form.get("case", ""))
        with self._store.reader(info) as reader:
            case = reader.cases_at([number]).get(number)
            trials = () if case is None else trials_of(reader, case)
            results = [one for one in trials if one.index == index]
        output = results[0].result.output if results else None
        if case is None or output is None or word not in words:
            raise RequestError("there is no such answer in this run")
        if grader not in [grade.grader for grade in results[0].result.grades]:
            raise RequestError("this grader gave no verdict on this answer")
        digest = answer_digest(case, output.whole)
        label = Label(grader=grader, case_id=case.id, answer=digest, passed=words[word])
        Labels(self._store.root).add(info.suite, [label])
        return f"/runs/{info.id}/cases/{number}#trial-{index}"


_STARTS = {
    "failed": ("Run the failed cases again?", "Run them"),
    "resume": ("Resume this run?", "Resume"),
}


def _as_mapping(question: Question) -> dict[str, str]:
    return {name: getattr(question, name) for name in Question.__slots__}


def _index(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 9:
        return int(text)
    raise RequestError(f"'{one_line(text, 40)}' is not a number")


def _parallel(text: str) -> int | str:
    text = text.strip()
    if text == "auto":
        return text
    if not 1 <= (number := _index(text)) <= 1_000_000:
        raise RequestError("parallelism must be a number from 1 on, or auto")
    return number


def _budget(text: str) -> float:
    try:
        usd = float(text.strip().removeprefix("$"))
    except ValueError:
        usd = 0.0
    if not 0 < usd < 1e9:
        raise RequestError("a budget is an amount in US dollars, such as 2.50")
    return usd
