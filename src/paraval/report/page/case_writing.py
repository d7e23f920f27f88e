"""The sections of cases, written one by one, and together no larger than a page may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TextIO

from paraval.records import TrialResult
from paraval.report.contents import Contents
from paraval.report.page.cases import Asked, AttemptsByTrial, CaseView, case_views
from paraval.report.page.figures import Figures, case_anchor, trial_anchor
from paraval.report.page.rendering import rendered
from paraval.report.page.room import WEIGHT_OF_A_TRIAL, Room, expected_size
from paraval.report.page.trials import line_of, trial_view
from paraval.report.wording import counted, listed


class CaseWriter:
    """Writes cases as long as there is room; what is linked to is always there, if in short."""

    def __init__(
        self,
        contents: Contents,
        figures: Figures,
        room: Room,
        file: TextIO,
        *,
        linked_cases: frozenset[str],
    ) -> None:
        """`linked_cases`: by their anchors."""
        self._contents = contents
        self._attempts = AttemptsByTrial(contents.attempts())
        self._linked_cases = linked_cases
        self._linked_trials = figures.linked_trials
        self._room = room
        self._file = file
        self._in_short = 0
        self._left_out = 0

    def write(self) -> None:
        for case, results in case_views(self._contents):
            self._write_case(case, results)

    def not_here(self) -> str:
        """What the page does not show, and where it is to be had; empty where it shows all."""
        told = [
            f"{counted(number, 'trial')} {how}"
            for number, how in (
                (self._in_short, "in one line only"),
                (self._left_out, "not at all"),
            )
            if number
        ]
        if not told:
            return ""
        run_id = self._contents.run.id
        return (
            f"So that browsers can open it, this page tells {listed(told)}."
            f" Everything: paraval report {run_id} -o report.jsonl"
        )

    def _write_case(self, case: CaseView, results: Iterator[TrialResult]) -> None:
        # A case that has no room for any of its trials has no section either.
        started = case_anchor(case.number) in self._linked_cases and not case.is_again
        if started:
            self._put(self._start(case))
        left_out = 0
        for result in results:
            text = self._trial(result)
            if text and not started:
                started = True
                self._put(self._start(case))
            if text:
                self._room.take(WEIGHT_OF_A_TRIAL)
            self._put(text)
            left_out += not text
        if started:
            more = f"… and {counted(left_out, 'more trial')}" if left_out else ""
            self._put(rendered("case_end.html", left_out=more))
        self._left_out += left_out

    def _start(self, case: CaseView) -> str:
        anchor = "" if case.is_again else case_anchor(case.number)
        text = rendered("case_start.html", case=case, anchor=anchor)
        if self._room.may_hold(len(text), passed=not (case.failed or case.errors)):
            return text
        return rendered("case_start.html", case=replace(case, asked=Asked()), anchor=anchor)

    def _trial(self, result: TrialResult) -> str:
        """In full, in short, or empty."""
        self._room.came_by(result)
        attempts = self._attempts.of(result.index)
        text = ""
        # What is read and rendered in vain takes as long as what is shown.
        if self._room.may_hold_trial(result, expected_size(result)):
            view = trial_view(result, attempts, self._contents.run.folder)
            text = rendered(
                "trial.html",
                trial=view,
                anchor=trial_anchor(result.index),
                all_of_it=f"paraval logs {self._contents.run.id} --trial {result.index}",
            )
        if text and self._room.may_hold_trial(result, len(text) + WEIGHT_OF_A_TRIAL):
            return text
        return self._trial_in_short(result)

    def _trial_in_short(self, result: TrialResult) -> str:
        anchor = trial_anchor(result.index)
        text = rendered("trial_in_short.html", line=line_of(result), anchor=anchor)
        weight = len(text) + WEIGHT_OF_A_TRIAL
        is_linked = result.index in self._linked_trials
        if not is_linked and not self._room.may_hold_in_short(result, weight):
            return ""
        self._in_short += 1
        self._room.was_told_in_short(weight)
        return text

    def _put(self, text: str) -> None:
        self._room.take(len(text))
        self._file.write(text)
