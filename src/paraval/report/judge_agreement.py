"""How far a grader agrees with people's labels, and its pass rate corrected by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from paraval.dataclass import dataclass
from paraval.records import Case, LabelKey, TrialResult, answer_digest
from paraval.statistics.agreement import Stratum, corrected_rate, kappa_of
from paraval.statistics.rates import clustered_rate_interval
from paraval.text.words import counted, percent, percent_range

FEW_LABELS = 10
"""Fewer labels say little."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraderAgreement:
    """A grader's verdicts against people's labels on the same answers.

    Rates are weighted from the sample of labels back to the run, at 95%; None if only answers that
    it passed, or only answers that it failed, have labels.
    """

    grader: str
    labels: int
    """Labels on answers of this run that the grader gave a verdict on."""
    pass_rate: float
    """The share of trials that the grader passed ..."""
    corrected_pass_rate: float | None
    """... and that people would pass, by the labels."""
    corrected_interval: Interval | None
    agreement: float | None
    agreement_interval: Interval | None
    kappa: float | None
    """None also if every verdict and every label is the same."""
    kappa_interval: Interval | None
    too_kind: int
    """How often it passed an answer that a person failed ..."""
    too_strict: int
    """... and failed one that a person passed."""


Labels = Mapping[LabelKey, bool]


@dataclass(slots=True)
class _Verdicts:
    """The verdicts of a grader."""

    by_case: dict[str, list[int]] = field(default_factory=dict)
    """Of each case: how many trials it passed, and how many it judged."""
    labeled: Counter[tuple[LabelKey, bool]] = field(default_factory=Counter)
    """How many trials have a labeled answer, by its label's key and the grader's verdict."""


def agreements_of(
    results: Iterable[TrialResult], cases: Iterable[Case], labels: Labels
) -> tuple[GraderAgreement, ...]:
    """The agreement of each labeled grader, by its name."""
    graders = {grader: _Verdicts() for grader, _, _ in sorted(labels)}
    labeled = {case_id for _, case_id, _ in labels}
    known = {case.id: case for case in cases if case.id in labeled}
    for result in results:
        output, digest = result.result.output, ""
        if output is not None and (case := known.get(result.case_id)) is not None:
            digest = answer_digest(case, output.whole)
        for grade in result.result.grades:
            if output is None or (verdicts := graders.get(grade.grader)) is None:
                continue
            counts = verdicts.by_case.setdefault(result.case_id, [0, 0])
            counts[0] += grade.passed
            counts[1] += 1
            key = (grade.grader, result.case_id, digest)
            if key in labels:
                verdicts.labeled[key, grade.passed] += 1
    return tuple(
        _agreement(grader, verdicts, labels)
        for grader, verdicts in graders.items()
        if verdicts.labeled
    )


def _agreement(grader: str, verdicts: _Verdicts, labels: Labels) -> GraderAgreement:
    counts = [(float(passed), float(judged)) for passed, judged in verdicts.by_case.values()]
    good, total = (sum(int(one[place]) for one in counts) for place in (0, 1))
    passed, failed = (
        _stratum(verdicts, labels, number, passed=verdict)
        for verdict, number in ((True, good), (False, total - good))
    )
    judged = clustered_rate_interval(counts)
    corrected = corrected_rate(passed, failed, judged)
    agreement = corrected_rate(passed, failed, judged, agreeing=True)
    kappa = None
    if agreement is not None and corrected is not None:
        kappa = kappa_of(agreement, good / total, corrected[0])
    return GraderAgreement(
        grader=grader,
        labels=len({key for key, _ in verdicts.labeled}),
        pass_rate=good / total,
        corrected_pass_rate=corrected and corrected[0],
        corrected_interval=corrected and corrected[1:],
        agreement=agreement and agreement[0],
        agreement_interval=agreement and agreement[1:],
        kappa=kappa and kappa[0],
        kappa_interval=kappa and kappa[1:],
        too_kind=sum(not one for one in passed.passed),
        too_strict=sum(failed.passed),
    )


def _stratum(verdicts: _Verdicts, labels: Labels, trials: int, *, passed: bool) -> Stratum:
    found = {
        key: number for (key, verdict), number in verdicts.labeled.items() if verdict is passed
    }
    return Stratum(
        trials=trials, weights=tuple(found.values()), passed=tuple(labels[key] for key in found)
    )


def agreement_sentence(one: GraderAgreement, name: str) -> str:
    """`judge says 89%; with 60 labels: 84% (76–91%); agreement 88% (80–93%), kappa 0.74
    (0.45–0.95); it passed 2 that people failed`."""
    labels = counted(one.labels, "label")
    corrected = f"{labels} cannot correct it: label answers that it passed, and that it failed"
    if one.corrected_pass_rate is not None and one.corrected_interval is not None:
        interval = percent_range(*one.corrected_interval)
        corrected = f"with {labels}: {percent(one.corrected_pass_rate)} ({interval})"
    parts = [f"{name} says {percent(one.pass_rate)}", corrected]
    if one.agreement is not None and one.agreement_interval is not None:
        kappa = "kappa undefined (every verdict and every label is the same)"
        if one.kappa is not None and one.kappa_interval is not None:
            low, high = one.kappa_interval
            interval = f"{low:.2f}{' to ' if low < 0 else '–'}{high:.2f}"
            kappa = f"kappa {one.kappa:.2f} ({interval})".replace("-", "\N{MINUS SIGN}")
        interval = percent_range(*one.agreement_interval)
        parts.append(f"agreement {percent(one.agreement)} ({interval}), {kappa}")
    wrong = ((one.too_kind, "passed", "failed"), (one.too_strict, "failed", "passed"))
    found = [f"{did} {number:,} that people {people}" for number, did, people in wrong if number]
    parts += [f"it {' and '.join(found)}"] if found else []
    parts += [f"few labels: add more, at least {FEW_LABELS}"] if one.labels < FEW_LABELS else []
    return "; ".join(parts)
