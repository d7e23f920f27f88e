"""Whether a file is a race or a suite, by its keys: so that one in the place of the other is told
in one sentence, and not by each key that is another's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paraval.plan.documents import read_document
from paraval.plan.places import Spot

_OF_RACES = ("test", "bench", "candidates")
_OF_SUITES = ("cases", "target", "matrix", "graders")


def is_race_file(path: Path) -> bool:
    return _has_more_of(_OF_RACES, _OF_SUITES, path)


def is_suite_file(path: Path) -> bool:
    return _has_more_of(_OF_SUITES, _OF_RACES, path)


def _has_more_of(keys: tuple[str, ...], others: tuple[str, ...], path: Path) -> bool:
    document = read_document(path, Spot(problems={}))
    if document is None or not isinstance(document.data, Mapping):
        return False
    return sum(key in document.data for key in keys) > sum(key in document.data for key in others)
