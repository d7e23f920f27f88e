"""People's verdicts on answers: `labels.jsonl` in the store, one line each, the last one counts.

A label belongs to what the person saw (the case's input and expectation, and the answer), not to a
run: it holds for every run of the suite with the same answer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paraval.errors import StoreError
from paraval.records import Label, LabelKey
from paraval.store.folder import prepare_folder, unusable

LABELS_FILE = "labels.jsonl"


class Labels:
    """The labels of one store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.file = root / LABELS_FILE

    def of(self, suite: str) -> dict[LabelKey, bool]:
        """All labels of a suite that were not taken back."""
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise StoreError(f"{self.file} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.file} cannot be used: it is not UTF-8") from error
        found: dict[LabelKey, bool] = {}
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            of_suite, label = self._read(line, number)
            if of_suite != suite:
                continue
            if label.passed is None:
                found.pop(label.key, None)
            else:
                found[label.key] = label.passed
        return found

    def add(self, suite: str, labels: Iterable[Label]) -> None:
        """Append labels; they are on disk when this returns."""
        now = int(time.time())
        lines = [
            json.dumps(
                {
                    "suite": suite,
                    "grader": label.grader,
                    "case": label.case_id,
                    "answer": label.answer,
                    "label": _WORDS[label.passed],
                    "at": now,
                }
            )
            for label in labels
        ]
        if not lines:
            return
        prepare_folder(self._root)
        try:
            with self.file.open("ab") as file:
                file.write(("\n".join(lines) + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unusable(self._root, error) from error

    def _read(self, line: str, number: int) -> tuple[str, Label]:
        try:
            entry: Any = json.loads(line)
        except (ValueError, RecursionError):
            entry = None
        match entry:
            case {
                "suite": str(suite),
                "grader": str(grader),
                "case": str(case),
                "answer": str(answer),
                "label": "pass" | "fail" | "none" as word,
            }:
                passed = {"pass": True, "fail": False}.get(word)
                return suite, Label(grader=grader, case_id=case, answer=answer, passed=passed)
        raise StoreError(
            f"{self.file}, line {number}: this is not a label", hint="fix or remove the line"
        )


_WORDS = {True: "pass", False: "fail", None: "none"}
