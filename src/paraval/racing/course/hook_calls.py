"""Decides which hooks may be called, and with which details. Pure; `hook_runner` calls them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from paraval.racing.course.candidate import Candidate
from paraval.racing.course.recorded import RaceTime, RecordedSteps
from paraval.racing.course.steps import StepEnd, StepKind
from paraval.racing.findings import Block, HookAnswer, Speedup
from paraval.racing.report.standings import BaselineStanding
from paraval.racing.request import Accept, HookSpec, RaceRequest
from paraval.records import Outcome
from paraval.text.words import counted

MOST_COMPLAINTS = 5
"""Complaints per call among the notes of a race."""


class HookCalls:
    """The limits of generate, repair and refine: depth, calls, cost."""

    def __init__(
        self,
        request: RaceRequest,
        kinds: frozenset[StepKind],
        recorded: RecordedSteps,
        time: RaceTime,
    ) -> None:
        self._kinds = kinds
        self._time = time
        self._specs = {kind: request.hook(kind.value) or HookSpec() for kind in kinds}
        self._usd = request.limits.usd
        self._recorded = {kind: recorded.candidates(kind) for kind in kinds}
        self._asked: dict[StepKind, set[str]] = {kind: set() for kind in kinds}
        self._spent: dict[StepKind, list[float]] = {kind: [] for kind in kinds}
        """Costs by call, summed together so that the order of calls does not matter."""
        self.unpriced_calls = 0
        """Calls that reported no cost."""
        self._refused: list[tuple[StepKind, Candidate]] = []
        self._notes: list[tuple[str, ...]] = []
        """For each call: the hook and its candidate, then the notes."""

    def __contains__(self, kind: StepKind) -> bool:
        return kind in self._kinds

    def may_ask(self, kind: StepKind, entry: Candidate) -> bool:
        """Whether the hook may be called for the candidate; if so, count the call."""
        if not self.was_asked(kind, entry) and self._why_not(kind, entry):
            self._refused.append((kind, entry))
            return False
        self._asked[kind].add(entry.name)
        return True

    def was_asked(self, kind: StepKind, entry: Candidate) -> bool:
        """Whether an earlier engine called the hook for it."""
        return entry.name in self._recorded[kind]

    def is_affordable(self, kind: StepKind) -> bool:
        """Whether its budget allows another call."""
        own = self._specs[kind].usd
        if own is not None and math.fsum(self._spent[kind]) >= own:
            return False
        return self._usd is None or self.cost_usd < self._usd

    @property
    def cost_usd(self) -> float:
        """The cost that all calls reported."""
        return math.fsum(cost for costs in self._spent.values() for cost in costs)

    def handle(self, end: StepEnd) -> None:
        kind, about = end.step.kind, f" of {end.step.candidate}"
        who = kind.value if kind is StepKind.GENERATE else kind.value + about
        if (asks := self._specs[kind].asks) is not None:
            who = f"{kind.value} of {asks.name(end.step.number)}"
        self._spent[kind].append(end.cost_usd)
        self.unpriced_calls += not end.is_priced and end.outcome is not Outcome.SKIPPED
        notes = []
        if end.outcome is Outcome.SKIPPED:
            notes.append(f"{who} was not called: {end.reason}")
        elif end.outcome is not Outcome.PASSED:
            why = f": {end.reason}" if end.reason else ""
            notes.append(f"{who} ended as {end.outcome.value}{why}")
        asked = end.finding.asked or HookAnswer()
        shown = asked.complaints[:MOST_COMPLAINTS]
        notes += [f"{who}: {complaint}" for complaint in shown]
        if more := len(asked.complaints) + asked.more_complaints - len(shown):
            notes.append(f"{who}: {more:,} more like these")
        notes += [f"{who}: {remark}" for remark in asked.remarks]
        self._notes.append((who, *notes))

    @property
    def notes(self) -> tuple[str, ...]:
        # The current reason, because the one at the time depends on timing.
        refused = Counter((kind, self._why_not(kind, entry)) for kind, entry in self._refused)
        refusals = [
            f"{kind.value} was not called for {counted(number, 'candidate')}: {why}"
            for (kind, why), number in sorted(refused.items())
        ]
        # Sorted, because hooks end in any order.
        noted = [note for _, *notes in sorted(self._notes) for note in notes]
        return (*noted, *refusals)

    def _why_not(self, kind: StepKind, entry: Candidate) -> str:
        spec = self._specs[kind]
        if entry.proposal.depth > spec.depth:
            return f"the depth limit of {spec.depth} was reached"
        if len(self._asked[kind]) >= spec.calls:
            return f"the limit of {counted(spec.calls, 'call')} was reached"
        if not self.is_affordable(kind):
            return "its budget is spent"
        return self._time.why_skipped if self._time.is_up else ""


def hook_details(
    kind: StepKind, entry: Candidate, accept: Accept, baseline: BaselineStanding
) -> dict[str, Any]:
    """All that is known of a candidate, as JSON data. The caller adds the patch."""
    speedup = entry.screened(accept.confidence)
    return {
        "kind": kind.value,
        "candidate": entry.name,
        "status": "passed" if entry.status is None else entry.status.value,
        "reason": entry.reason,
        "parent": entry.proposal.parent,
        "tests": None if entry.tests is None else asdict(entry.tests),
        "differences": [asdict(difference) for difference in entry.differences],
        "more_differences": entry.more_differences,
        "speedup": None if speedup is None else _finite(speedup),
        "measurements": [_samples(block) for _, block in sorted(entry.screening.items())],
        "accept": asdict(accept),
        "baseline": {
            "commit": baseline.commit,
            "tree": baseline.tree,
            "tests": None if baseline.tests is None else asdict(baseline.tests),
            "seconds": dict(baseline.seconds),
        },
    }


def _finite(speedup: Speedup) -> dict[str, float | None]:
    """JSON has no infinity: an unknown bound becomes null."""
    return {
        name: value if math.isfinite(value) else None for name, value in asdict(speedup).items()
    }


def _samples(block: Block) -> dict[str, list[dict[str, float]]]:
    return {
        "baseline": [dict(sample) for sample in block.baseline],
        "candidate": [dict(sample) for sample in block.candidate],
    }
