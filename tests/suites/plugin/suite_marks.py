"""Marks tests that share something on purpose, as their authors would: `SUITE_MARKS` says which.

It is JSON: patterns of node ids, and `serial` or the name of a parallel group.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marks: dict[str, str] = json.loads(os.environ["SUITE_MARKS"])
    for item in items:
        for pattern, mark in marks.items():
            if fnmatchcase(item.nodeid, pattern):
                group = pytest.mark.parallel_group(mark)
                item.add_marker(pytest.mark.serial if mark == "serial" else group)
