"""A case: what was asked, and each variant's answers side by side, with what the viewer adds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from urllib.parse import quote

from markupsafe import Markup

from paraval.errors import ParavalError
from paraval.records import AttemptRecord, Case, LabelKey, RunInfo, TrialResult, answer_digest
from paraval.report.page.side_by_side import side_by_side
from paraval.store.labels import Labels
from paraval.store.reader import RunReader
from paraval.store.store import Store
from paraval.text.terminal import one_line
from paraval.view.pages import render

_LABELS = {True: "pass", False: "fail", None: ""}


def case_body(store: Store, info: RunInfo, number: int, *, csrf: str) -> Markup:
    """The case with this number, as markup."""
    try:
        labels = Labels(store.root).of(info.suite)
    except ParavalError:
        # The report names the problem; the answers can be read all the same.
        labels = {}
    with store.reader(info) as reader:
        case = reader.cases_at([number]).get(number)
        return side_by_side(
            case,
            reader.results(case=number),
            info,
            attempts=lambda index: reader.attempts(index=index),
            below=partial(_below, reader, info, case, labels, csrf, number),
        )


def _below(
    reader: RunReader,
    info: RunInfo,
    case: Case | None,
    labels: dict[LabelKey, bool],
    csrf: str,
    number: int,
    result: TrialResult,
) -> Markup:
    """Links to the whole files of its attempts, and buttons to label the answer."""
    output = result.result.output
    asked = []
    if case is not None and output is not None:
        digest = answer_digest(case, output.whole)
        asked = [
            (grade.grader, _LABELS[labels.get((grade.grader, case.id, digest))])
            for grade in result.result.grades
            if grade.grader
        ]
    return render(
        "below.html",
        run=info,
        result=result,
        number=number,
        labels=asked,
        files=[*_files(info, reader.attempts(index=result.index))],
        csrf=csrf,
    )


def _files(info: RunInfo, attempts: Iterator[AttemptRecord]) -> Iterator[tuple[str, str]]:
    """Name and address of each file that the attempts left."""
    for attempt in attempts:
        artifacts = attempt.result.artifacts if attempt.result else {}
        for name in artifacts:
            label = name if attempt.number == 1 else f"{name} of attempt {attempt.number}"
            place = f"/runs/{info.id}/files/{attempt.index}/{attempt.number}/{quote(name, safe='')}"
            yield one_line(label, 60), place
