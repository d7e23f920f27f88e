"""Whether a regular expression is one."""

from __future__ import annotations

import re

from paraval.plan.places import shown


def pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"{shown(pattern)} is no regular expression: {error}"
    return None
