"""Texts as they are in `golden/`; PARAVAL_GOLDEN=write writes them anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
LONG = re.compile(r"\d+\.\d{10,}(?:e-?\d+)?")
"""A number of which the last digits depend on the version of Python."""


def rounded(text: str) -> str:
    return LONG.sub(lambda number: f"{float(number[0]):.9g}", text)


def assert_golden(name: str, text: str) -> None:
    """The text is as in the golden file, apart from the folder of this test, and last digits."""
    text = rounded(text.replace(str(Path.cwd()), "/folder"))
    if os.environ.get("PARAVAL_GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / name).write_text(text, encoding="utf-8", newline="")
    assert text == rounded((GOLDEN / name).read_bytes().decode())
