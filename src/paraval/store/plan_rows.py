"""A plan as rows: written when a run is created, replaced when it is resumed with another plan.

Results are not touched: they belong to keys, and count whenever a plan contains their key. A plan
without trials grows: trials are added during the run (see `execute.trial_source`), and again by
every engine that resumes it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from paraval.codec import hints_of, object_reader, to_data
from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.records import Plan, RunInfo, RunNotice
from paraval.store.encoding import case_json, name_text, to_json, variant_json
from paraval.store.exchanges import create_tables
from paraval.store.schema import (
    APPLICATION_ID,
    GROWS,
    SCHEMA,
    SCHEMA_VERSION,
    TRIAL_BY_KEY,
    statements_of,
)

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

# What a run was planned with besides its trials: its stopping rule, its baseline, and the digests
# of its parts.

_TABLE = "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, content TEXT NOT NULL)"


@cache
def _about_reader() -> SchemaValidator:
    names = ("stop", "holdout", "baseline", "cases", "models", "regraded_from", "notices", "parts")
    return object_reader({name: hints_of(RunInfo)[name] for name in names})


def about_from(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields of a RunInfo, from the JSON of a run's file or of the index."""
    about: dict[str, Any] = _about_reader().validate_python(stored)
    return about


def write_about(connection: sqlite3.Connection, plan: Plan) -> None:
    """Replace what was stored, also in a file of an earlier version; what held the run back before
    stays."""
    connection.execute(_TABLE)
    connection.execute("DELETE FROM about WHERE name <> 'waits'")
    told = {
        "stop": plan.stop and to_data(plan.stop),
        "holdout": plan.holdout,
        "baseline": plan.baseline and to_data(plan.baseline),
        "cases": plan.cases and to_data(plan.cases),
        "models": plan.models and to_data(plan.models),
        "regraded_from": plan.regraded_from,
        "notices": [{"message": one} for one in plan.notices] or None,
        "parts": dict(plan.parts) or None,
    }
    connection.executemany(
        "INSERT INTO about VALUES (?, ?)",
        [(name, to_json(content)) for name, content in told.items() if content is not None],
    )


def read_about(connection: sqlite3.Connection) -> dict[str, Any]:
    """Read with any connection to the run."""
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'about'"
    if connection.execute(known).fetchone() is None:
        return {}
    rows = connection.execute("SELECT name, content FROM about").fetchall()
    about = {name: from_json(content) for name, content in rows}
    waits = about.pop("waits", {})
    notices = [{"message": message, "waited_s": waited_s} for message, waited_s in waits.items()]
    return about_from({**about, "notices": [*about.get("notices", ()), *notices]})


def write_waits(connection: sqlite3.Connection, waits: Iterable[RunNotice]) -> None:
    """Add what held the run back, to what did before it was resumed."""
    connection.execute(_TABLE)
    row = connection.execute("SELECT content FROM about WHERE name = 'waits'").fetchone()
    total: dict[str, float] = {} if row is None else from_json(row[0])
    for wait in waits:
        total[wait.message] = total.get(wait.message, 0.0) + round(wait.waited_s or 0.0, 1)
    if total:
        connection.execute("INSERT OR REPLACE INTO about VALUES ('waits', ?)", (to_json(total),))


ROWS_AT_ONCE = 50
HASHED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRows:
    """A plan in the shape of its tables."""

    variants: list[tuple[int, str]]
    cases: list[tuple[int, str, str]]
    trials: list[tuple[int, str, int, int, int]]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedResults:
    """What a new plan does to the results of the old one, in numbers of trials."""

    changed: int = 0
    """Trials whose key changed: their results no longer count."""
    dropped: int = 0
    """Trials that are no longer in the plan."""


def plan_rows(plan: Plan) -> PlanRows:
    variants: dict[str, int] = {}
    # By identity, because trials share variants: encode each variant once, not once per trial. The
    # plan keeps the objects alive, so no id is reused.
    variant_numbers: dict[int, int] = {}
    cases: dict[str, tuple[int, str, str]] = {}
    trials = []
    distinct = {id(trial.variant): trial.variant for trial in plan.trials}
    for variant in (*plan.variants, *distinct.values()):
        if id(variant) not in variant_numbers:
            number = variants.setdefault(variant_json(variant), len(variants))
            variant_numbers[id(variant)] = number
    for trial in plan.trials:
        case = trial.case
        row = cases.get(case.id)
        if row is None:
            row = cases[case.id] = (len(cases), case.id, case_json(case))
        variant_number = variant_numbers[id(trial.variant)]
        trials.append((trial.index, trial.key, row[0], variant_number, trial.repeat))
    variant_rows = [(number, text) for text, number in variants.items()]
    case_rows = list(cases.values())
    digest = _digest(variant_rows, case_rows, trials) if trials else GROWS
    return PlanRows(variants=variant_rows, cases=case_rows, trials=trials, digest=digest)


def _digest(
    variants: Sequence[tuple[int, str]],
    cases: Sequence[tuple[int, str, str]],
    trials: Sequence[tuple[int, str, int, int, int]],
) -> str:
    """A hash of the rows: keys represent everything else about a trial, in order."""
    digest = hashlib.sha256()
    tables: list[tuple[Sequence[tuple[Any, ...]], int]] = [(variants, 1), (cases, 2), (trials, 1)]
    for rows, column in tables:
        # In parts: a text of all cases would take as much memory as the cases.
        for at in range(0, len(rows), HASHED_AT_ONCE):
            texts: list[str] = [row[column] for row in rows[at : at + HASHED_AT_ONCE]]
            digest.update(b"\0" if at else b"")
            digest.update("\0".join(texts).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def write_new(connection: sqlite3.Connection, run_id: str, plan: Plan, seed: int) -> None:
    """Write tables and plan, within the caller's transaction."""
    for statement in statements_of(SCHEMA):
        connection.execute(statement)
    create_tables(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    rows = plan_rows(plan)
    connection.execute(
        "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run_id, *_head(plan)[:3], str(seed), *_head(plan)[3:], rows.digest),
    )
    write_about(connection, plan)
    _insert(connection, rows)


def replace(connection: sqlite3.Connection, plan: Plan) -> ReplacedResults:
    """Replace the run's plan; returns what becomes of the existing results."""
    create_tables(connection)
    rows = plan_rows(plan)
    (digest,) = connection.execute("SELECT plan_digest FROM run").fetchone()
    replaced = ReplacedResults()
    if digest != rows.digest or digest == GROWS:
        replaced = _replace_rows(connection, rows)
    connection.execute(
        "UPDATE run SET suite = ?, source = ?, parallel = ?, fail_under = ?, axes = ?,"
        " selection = ?, trials = ?, plan_digest = ?",
        (*_head(plan), rows.digest),
    )
    write_about(connection, plan)
    # A growing plan has no trials yet: none is dropped, they just have not been added again.
    return ReplacedResults() if rows.digest == GROWS else replaced


def _head(plan: Plan) -> tuple[str, str | None, int, float | None, str, str, int]:
    return (
        name_text(plan.name),
        None if plan.source is None else name_text(plan.source),
        plan.limits.parallel,
        plan.fail_under,
        to_json(dict(plan.axes)),
        to_json(dict(plan.selection)),
        len(plan.trials),
    )


_SAME_TRIAL = """
    SELECT case_.id AS case_id, variant.choices, trial.repeat, trial.key
    FROM trial
    JOIN case_ ON case_.number = trial.case_ JOIN variant ON variant.number = trial.variant
"""

_COUNT_CHANGED = f"""
    SELECT count(*)
    FROM ({_SAME_TRIAL}) AS new JOIN had_result USING (case_id, choices, repeat)
    WHERE NOT EXISTS (SELECT 1 FROM result WHERE result.key = new.key)
"""  # noqa: S608 - our own text


_COUNT_DROPPED = f"""
    SELECT count(*) FROM (
        SELECT case_id, choices, repeat FROM had_result
        EXCEPT SELECT case_id, choices, repeat FROM ({_SAME_TRIAL})
    )
"""  # noqa: S608 - our own text


def _replace_rows(connection: sqlite3.Connection, rows: PlanRows) -> ReplacedResults:
    connection.execute("DROP TABLE IF EXISTS temp.had_result")
    connection.execute(
        f"CREATE TEMP TABLE had_result AS {_SAME_TRIAL} JOIN result ON result.key = trial.key"
    )
    for table in ("trial", "case_", "variant"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - the names are the three above
    _insert(connection, rows)
    (changed,) = connection.execute(_COUNT_CHANGED).fetchone()
    (dropped,) = connection.execute(_COUNT_DROPPED).fetchone()
    connection.execute("DROP TABLE temp.had_result")
    return ReplacedResults(changed=changed, dropped=dropped)


def _insert(connection: sqlite3.Connection, rows: PlanRows) -> None:
    _insert_into(connection, "variant", rows.variants)
    _insert_into(connection, "case_", rows.cases)
    # Building the index at the end takes half the time of updating it row by row.
    connection.execute("DROP INDEX IF EXISTS trial_by_key")
    _insert_into(connection, "trial", rows.trials)
    try:
        connection.execute(TRIAL_BY_KEY)
    except sqlite3.IntegrityError as error:
        raise StoreError(f"two trials of the plan are the same: {error}") from error


def _insert_into(
    connection: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Many rows with each statement take two thirds of the time."""
    if not rows:
        return
    row = f"({', '.join('?' * len(rows[0]))})"
    many = len(rows) // ROWS_AT_ONCE * ROWS_AT_ONCE
    for size, start, end in ((ROWS_AT_ONCE, 0, many), (1, many, len(rows))):
        connection.executemany(
            f"INSERT INTO {table} VALUES {', '.join([row] * size)}",  # noqa: S608 - our own names
            (tuple(chain.from_iterable(rows[at : at + size])) for at in range(start, end, size)),
        )
