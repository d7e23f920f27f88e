"""How far graders agree with people's labels, by Cohen's kappa with the case as unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paraval.dataclass import dataclass
from paraval.records import Case, LabelKey, TrialResult, answer_digest
from paraval.statistics.agreement import cohen_kappa
from paraval.text.words import counted, percent

FEW_LABELS = 10
"""Fewer labels say little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderAgreement:
    """A grader's verdicts against people's labels on the same answers."""

    grader: str
    labels: int
    """Labels on answers of this run that the grader gave a verdict on: its first, if several trials
    have the same answer."""
    agreement: float
    agreement_interval: tuple[float, float]
    kappa: float | None
    kappa_interval: tuple[float, float] | None
    """At 95%, with the case as unit."""
    too_kind: int
    """How often it passed an answer that a person failed ..."""
    too_strict: int
    """... and failed one that a person passed."""


Labels = Mapping[LabelKey, bool]


def agreements_of(
    results: Iterable[TrialResult], cases: Iterable[Case], labels: Labels
) -> tuple[GraderAgreement, ...]:
    """The agreement of each labeled grader, by its name."""
    graders: dict[str, dict[LabelKey, tuple[bool, bool]]] = {
        grader: {} for grader, _, _ in sorted(labels)
    }
    labeled = {case_id for _, case_id, _ in labels}
    known = {case.id: case for case in cases if case.id in labeled}
    for result in results:
        case, output = known.get(result.case_id), result.result.output
        if case is None or output is None:
            continue
        digest = answer_digest(case, output.whole)
        for grade in result.result.grades:
            key = (grade.grader, case.id, digest)
            if key in labels:
                graders[grade.grader].setdefault(key, (labels[key], grade.passed))
    made = (_agreement(grader, pairs) for grader, pairs in graders.items())
    return tuple(one for one in made if one is not None)


def _agreement(grader: str, pairs: Mapping[LabelKey, tuple[bool, bool]]) -> GraderAgreement | None:
    by_case: dict[str, list[tuple[bool, bool]]] = {}
    for (_, case_id, _), pair in pairs.items():
        by_case.setdefault(case_id, []).append(pair)
    kappa = cohen_kappa(list(by_case.values()))
    if kappa is None:
        return None
    return GraderAgreement(
        grader=grader,
        labels=len(pairs),
        agreement=kappa.agreement,
        agreement_interval=kappa.agreement_interval,
        kappa=kappa.kappa,
        kappa_interval=kappa.kappa_interval,
        too_kind=sum(pair == (False, True) for pair in pairs.values()),
        too_strict=sum(pair == (True, False) for pair in pairs.values()),
    )


def agreement_sentence(one: GraderAgreement, name: str) -> str:
    """`judge vs 24 labels: agreement 88%, kappa 0.74 (0.45–0.95); passed 2 that people failed`."""
    parts = [f"agreement {percent(one.agreement)}"]
    if one.kappa is None or one.kappa_interval is None:
        parts.append("kappa undefined (every verdict and every label is the same)")
    else:
        low, high = one.kappa_interval
        until = " to " if low < 0 else "–"
        kappa = f"kappa {one.kappa:.2f} ({low:.2f}{until}{high:.2f})"
        parts.append(kappa.replace("-", "\N{MINUS SIGN}"))
    wrong = []
    if one.too_kind:
        wrong.append(f"passed {one.too_kind:,} that people failed")
    if one.too_strict:
        wrong.append(f"failed {one.too_strict:,} that people passed")
    words = f"{name} vs {counted(one.labels, 'label')}: {', '.join(parts)}"
    words += f"; it {' and '.join(wrong)}" if wrong else ""
    few = f"; few labels: add more, at least {FEW_LABELS}"
    return words + (few if one.labels < FEW_LABELS else "")
