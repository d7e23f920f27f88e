"""A case: what was asked, and each variant's answers side by side, with what the viewer adds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

from markupsafe import Markup

from paraval.errors import ParavalError
from paraval.records import Case, LabelKey, RunInfo, TrialResult, answer_digest
from paraval.report.page.cases import side_by_side
from paraval.store.labels import Labels
from paraval.store.reader import RunReader
from paraval.store.store import Store
from paraval.text.terminal import one_line
from paraval.view.pages import render

_LABELS = {True: "pass", False: "fail", None: ""}


def case_body(store: Store, info: RunInfo, number: int, *, csrf: str) -> Markup:
    """The case with this number, as markup."""
    with store.reader(info) as reader:
        case = reader.cases_at([number])[number]
        below = _Below(store, info, reader, (number, case), csrf)
        return side_by_side(
            case,
            trials_of(reader, case),
            info,
            attempts=lambda index: reader.attempts(index=index),
            exchanges=reader.exchanges,
            below=below.render,
        )


def trials_of(reader: RunReader, case: Case) -> Iterator[TrialResult]:
    # An id may contain what globs have a meaning for.
    return (one for one in reader.results(case=case.id) if one.case_id == case.id)


class _Below:
    """What the viewer adds to a trial: the whole files of its attempts, and buttons to label its
    answer."""

    def __init__(
        self,
        store: Store,
        info: RunInfo,
        reader: RunReader,
        numbered: tuple[int, Case],
        csrf: str,
    ) -> None:
        self._info = info
        self._reader = reader
        self._number, self._case = numbered
        self._csrf = csrf
        self._labels: dict[LabelKey, bool] = {}
        # The report names a problem with them; the answers can be read all the same.
        with suppress(ParavalError):
            self._labels = Labels(store.root).of(info.suite)

    def render(self, result: TrialResult) -> Markup:
        case, output = self._case, result.result.output
        asked = []
        if output is not None:
            digest = answer_digest(case, output.whole)
            asked = [
                (grade.grader, _LABELS[self._labels.get((grade.grader, case.id, digest))])
                for grade in result.result.grades
                if grade.grader
            ]
        return render(
            "below.html",
            run=self._info,
            result=result,
            number=self._number,
            labels=asked,
            files=[*self._files(result.index)],
            csrf=self._csrf,
        )

    def _files(self, trial: int) -> Iterator[tuple[str, str]]:
        """Name and address of each file that the attempts left."""
        for attempt in self._reader.attempts(index=trial):
            artifacts = attempt.result.artifacts if attempt.result else {}
            for name in artifacts:
                label = name if attempt.number == 1 else f"{name} of attempt {attempt.number}"
                place = f"/runs/{self._info.id}/files/{trial}/{attempt.number}"
                yield one_line(label, 60), f"{place}/{quote(name, safe='')}"
