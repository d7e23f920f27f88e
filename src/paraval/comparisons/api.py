"""Comparisons from Python."""

from __future__ import annotations

from pathlib import Path

from paraval.comparisons.holding import held_against
from paraval.comparisons.sides import Opened, Sides
from paraval.errors import RequestError
from paraval.report.document import Report
from paraval.report.versus.document import ComparisonReport
from paraval.report.versus.held import Question
from paraval.settings import default_store
from paraval.store.store import Store


def compare(
    a: Report | str | Path,
    b: Report | str | Path,
    *,
    confidence: float = 0.95,
    seed: int = 0,
    store: str | Path | None = None,
) -> ComparisonReport:
    """Is B better than A? Case by case, with how sure that is.

    Each side is a report, the path of a report file (.json, .jsonl) or of a run's folder, or what
    `paraval compare` takes: a run's id or its beginning, `last`, `last~1`, `RUN:AXIS=VALUE`, or
    `AXIS=VALUE` of the last run. Runs are looked for in `store`: unless told, in PARAVAL_STORE or
    `.paraval` in the current folder.
    """
    if not 0.5 < confidence < 1:
        raise RequestError(f"confidence={confidence}: it must lie between 0.5 and 1")
    sides = Sides(Store(default_store() if store is None else Path(store)))
    question = Question(confidence=confidence, seed=seed)
    return ComparisonReport(held_against(_opened(a, sides), _opened(b, sides), question))


def _opened(side: Report | str | Path, sides: Sides) -> Opened:
    if isinstance(side, Report):
        return Opened(name=side.run.id, source=side.source, run=side.run)
    return sides.open(str(side))
