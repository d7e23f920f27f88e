"""What a run was planned with beside its trials: when it may stop, what it is held against, and the
digests of its parts.

Runs of earlier versions have no such table; then nothing is known of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from paraval.records import Baseline, Plan, StopRule
from paraval.store.encoding import checked_text, mapping_of, required_number, to_json

_TABLE = "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, content TEXT NOT NULL)"


class About(NamedTuple):
    """As in a plan, and in what is told of a run."""

    stop: StopRule | None = None
    baseline: Baseline | None = None
    parts: Mapping[str, str] = {}

    @classmethod
    def from_mapping(cls, stored: Mapping[str, Any]) -> About:
        """From JSON, of a run's file or of what is remembered of it."""
        stop, baseline = stored.get("stop"), stored.get("baseline")
        return cls(
            stop=None if stop is None else _stop_rule(**stop),
            baseline=None if baseline is None else _baseline(**baseline),
            parts={name: checked_text(part) for name, part in (stored.get("parts") or {}).items()},
        )


def _stop_rule(confidence: Any) -> StopRule:
    return StopRule(confidence=required_number(confidence))


def _baseline(name: Any, max_drop: Any) -> Baseline:
    return Baseline(name=checked_text(name), max_drop=required_number(max_drop))


def write_about(connection: sqlite3.Connection, plan: Plan) -> None:
    """In the place of what was there; in a file of an earlier version too."""
    connection.execute(_TABLE)
    connection.execute("DELETE FROM about")
    told = {
        "stop": None if plan.stop is None else asdict(plan.stop),
        "baseline": None if plan.baseline is None else asdict(plan.baseline),
        "parts": dict(plan.parts) or None,
    }
    connection.executemany(
        "INSERT INTO about VALUES (?, ?)",
        [(name, to_json(content)) for name, content in told.items() if content is not None],
    )


def read_about(connection: sqlite3.Connection) -> About:
    """By any connection to the run."""
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'about'"
    if connection.execute(known).fetchone() is None:
        return About()
    rows = connection.execute("SELECT name, content FROM about").fetchall()
    return About.from_mapping({name: mapping_of(content) for name, content in rows})
