"""Trials that are named while a run goes on, as rows: numbered here, written by the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paraval.records import Plan, Trial
from paraval.store.encoding import case_json, name_text, variant_json
from paraval.store.planned import plan_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRows:
    """What was added to a plan, in the shape of its tables."""

    variants: list[tuple[int, str]] = field(default_factory=list)
    cases: list[tuple[int, str, str]] = field(default_factory=list)
    trials: list[tuple[int, str, int, int, int]] = field(default_factory=list)

    def extend(self, more: NewRows) -> None:
        self.variants.extend(more.variants)
        self.cases.extend(more.cases)
        self.trials.extend(more.trials)


class Numbering:
    """The numbers of a plan's cases and variants, and of those that come after them."""

    def __init__(self, plan: Plan) -> None:
        rows = plan_rows(plan)
        self._variants = {choices: number for number, choices in rows.variants}
        self._cases = {case_id: number for number, case_id, _ in rows.cases}

    def rows_of(self, trials: Sequence[Trial]) -> NewRows:
        """A case that has several trials is written as the first of them has it."""
        rows = NewRows()
        for trial in trials:
            case, choices = trial.case, variant_json(trial.variant)
            if choices not in self._variants:
                self._variants[choices] = len(self._variants)
                rows.variants.append((self._variants[choices], choices))
            if case.id not in self._cases:
                self._cases[case.id] = len(self._cases)
                # Whoever names trials may take names from a program: half characters among them.
                rows.cases.append((self._cases[case.id], name_text(case.id), case_json(case)))
            numbers = (self._cases[case.id], self._variants[choices], trial.repeat)
            rows.trials.append((trial.index, trial.key, *numbers))
        return rows
