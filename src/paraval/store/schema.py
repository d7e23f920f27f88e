"""The tables of a run's file, `run.db`, as SQL: every table and column with its purpose.

`connection` opens the file; `plan_rows` and `writer` write the tables.
"""

from __future__ import annotations

import re
import sqlite3
from functools import lru_cache

APPLICATION_ID = 0x50415241
"""`PARA` in ASCII: identifies our files (PRAGMA application_id)."""

SCHEMA_VERSION = 1
"""PRAGMA user_version. A file with a larger one was created by a newer paraval and is left
untouched."""

GROWS = "grows"
"""Replaces a plan's digest when trials are added during the run."""

NO_ATTEMPT = 0
"""The number of a row in `attempt` that is not an attempt: it stores why its trial was postponed or
skipped for good."""

SCHEMA = """
CREATE TABLE run (
    -- One row: the run, as it was planned last.
    id          TEXT NOT NULL,     -- Its name and its folder's: UTC time and four random digits.
    suite       TEXT NOT NULL,     -- The suite's name.
    source      TEXT,              -- The suite's file; NULL for a suite made in Python.
    parallel    INTEGER NOT NULL,  -- How many attempts may run in parallel.
    seed        TEXT NOT NULL,     -- The random seed; may exceed SQLite's integers.
    fail_under  REAL,              -- The gate; NULL: no pass rate is required.
    axes        TEXT NOT NULL,     -- JSON: axis -> its values, in order.
    selection   TEXT NOT NULL,     -- JSON: the filters and overrides it was planned with.
    trials      INTEGER NOT NULL,  -- How many trials the plan has.
    plan_digest TEXT NOT NULL      -- A hash of trials, cases and variants, to compare plans.
                                   -- `grows`: trials are added during the run, which is finished
                                   -- when its last session ended as finished.
);

CREATE TABLE about (
    -- What else the run was planned with. Missing in runs of earlier versions.
    name        TEXT PRIMARY KEY,  -- stop, baseline, cases, models, parts, notices,
                                   -- waits: what held it back, in seconds.
    content     TEXT NOT NULL      -- JSON.
);

CREATE TABLE session (
    -- One row per engine that worked on the run: the first, then one per resume.
    -- Pid, start and host are for display. The run's lock shows whether it is alive.
    number      INTEGER PRIMARY KEY,  -- From 1.
    pid         INTEGER NOT NULL,     -- The engine's process ...
    start_time  REAL NOT NULL,        -- ... and its start, on Linux in ticks since the machine's:
                                      -- both can recur after a reboot.
    host        TEXT NOT NULL,        -- The machine it ran on.
    started_at  REAL NOT NULL,        -- Seconds since the epoch, like all times here.
    ended_at    REAL,                 -- NULL: it is running, or it died.
    wall_s      REAL,                 -- How long it worked, by a clock that never jumps.
    reason      TEXT                  -- finished, interrupted, held_back (postponed trials on
                                      -- purpose), or died (written by the next one).
);

CREATE TABLE variant (
    -- One choice from every axis.
    number      INTEGER PRIMARY KEY,  -- In plan order, from 0.
    choices     TEXT NOT NULL         -- JSON: axis -> value.
);

CREATE TABLE case_ (
    -- One input with what is expected of it ("case" is a word of SQL's own).
    number      INTEGER PRIMARY KEY,  -- In plan order, from 0.
    id          TEXT NOT NULL,        -- As the suite names it.
    content     TEXT NOT NULL         -- JSON: input, expect, tags, metadata.
);

CREATE TABLE trial (
    -- Case x variant x repeat, in plan order.
    idx         INTEGER PRIMARY KEY,  -- Its place in the plan, from 0.
    key         TEXT NOT NULL,        -- A hash of all that decides its result; unique.
    case_       INTEGER NOT NULL,     -- Its number in `case_`. Not declared as a reference: to
    variant     INTEGER NOT NULL,     -- check 100,000 of them takes long. `variant` likewise.
    repeat      INTEGER NOT NULL      -- From 1.
);

CREATE TABLE attempt (
    -- One execution of a trial, written before it starts. Not bound to `trial`, so that a suite
    -- that changed keeps what was paid for.
    key         TEXT NOT NULL,     -- The trial's.
    number      INTEGER NOT NULL,  -- From 1, over the whole run. 0 is not an attempt: it stores
                                   -- why the last engine postponed the trial, or skipped it for
                                   -- good if it has a result.
    session     INTEGER NOT NULL REFERENCES session (number),
    started_at  REAL NOT NULL,
    ended_at    REAL,              -- NULL: running, or its engine died; so too all below.
    outcome     TEXT,              -- A word of records.Outcome.
    score       REAL,              -- From 0 to 1, where it was judged.
    duration_s  REAL,              -- Target and graders.
    exit_code   INTEGER,           -- Of a command.
    content     TEXT,              -- JSON: output, grades, error, spend, judging, target_s,
                                   -- artifacts, notes.
    PRIMARY KEY (key, number)
);

CREATE TABLE result (
    -- Which attempt decided a trial. At most one row per key, written once.
    key         TEXT PRIMARY KEY,  -- The trial's.
    number      INTEGER NOT NULL,  -- The attempt's; 0: none, it was skipped for good.
    outcome     TEXT NOT NULL,     -- The attempt's, copied, so that a resume reads only this.
    queued_s    REAL,              -- How long the trial waited for its first attempt.
    FOREIGN KEY (key, number) REFERENCES attempt (key, number)
) WITHOUT ROWID;
"""

EXCHANGE_SCHEMA = """
CREATE TABLE exchange (
    -- What an attempt's target and judges were sent, and what came back beside its output. Missing
    -- in runs of earlier versions until they are resumed, like the next table.
    key         TEXT NOT NULL,     -- The trial's.
    number      INTEGER NOT NULL,  -- The attempt's.
    content     NOT NULL,          -- JSON: a list of records.Exchange. Long texts in it are NUL and
                                   -- the digest of a row below. As a blob, deflated.
    PRIMARY KEY (key, number)
);

CREATE TABLE long_text (
    -- Texts of exchanges, each once, however many attempts sent it.
    digest      TEXT PRIMARY KEY,  -- A hash of the text.
    content     NOT NULL           -- As a blob, deflated UTF-8.
);
"""

TRIAL_BY_KEY = "CREATE UNIQUE INDEX trial_by_key ON trial (key)"

EARLIER_TABLES = """
CREATE TABLE run (id TEXT NOT NULL, suite TEXT NOT NULL, source TEXT, parallel INTEGER NOT NULL,
    seed INTEGER NOT NULL, fail_under REAL, axes TEXT NOT NULL, selection TEXT NOT NULL,
    trials INTEGER NOT NULL, plan_digest TEXT NOT NULL);

CREATE TABLE trial (idx INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE,
    case_ INTEGER NOT NULL REFERENCES case_ (number),
    variant INTEGER NOT NULL REFERENCES variant (number), repeat INTEGER NOT NULL);
"""
"""Tables of the first versions, whose runs can still be read."""

INDEX_SCHEMA = """
CREATE TABLE run (
    -- One row per run of the store that no engine works on: a cache of its folder.
    id          TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,     -- Size and time of its run.db, for which the row is valid.
    suite       TEXT NOT NULL,
    started_at  REAL NOT NULL,
    info        TEXT NOT NULL      -- JSON: a RunInfo without its folder.
);

CREATE TABLE history (
    -- How long the trials of a run took, what they cost and what they took of the machine, by case
    -- and variant. Kept for a suite's last runs only.
    run_id      TEXT NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    case_id     TEXT NOT NULL,
    variant     TEXT NOT NULL,     -- JSON: axis -> value.
    n           INTEGER NOT NULL,  -- How many trials.
    sum_log     REAL NOT NULL,     -- The sum of their durations' natural logarithms.
    priced      INTEGER NOT NULL,  -- How many of them have a known cost ...
    sum_usd     REAL NOT NULL,     -- ... and what they cost together.
    measured    INTEGER NOT NULL,  -- How many of them reported their tokens ...
    sum_tokens  REAL NOT NULL,     -- ... and the total.
    most_memory INTEGER NOT NULL,  -- Bytes: peak of any of them; 0 if not measured.
    watched_s   REAL NOT NULL,     -- How long those of them took whose CPU time is known ...
    sum_cpu_s   REAL NOT NULL,     -- ... and their CPU time.
    PRIMARY KEY (run_id, case_id, variant)
) WITHOUT ROWID;

CREATE TABLE found_limit (
    -- The request limits that runs found, by model or account: where the next run starts.
    account    TEXT PRIMARY KEY,
    per_minute REAL NOT NULL,
    found_at   REAL NOT NULL      -- Seconds since 1970.
);
"""

_COMMENT = re.compile(r"--[^\n]*")
_BLANK = re.compile(r"[ \t\r\n\f]+")
_AROUND_SIGNS = re.compile(r" ?([(),]) ?")


def statements_of(schema: str) -> list[str]:
    return [statement for statement in schema.split(";\n") if statement.strip()]


@lru_cache(maxsize=100)
def _bare(statement: str) -> str:
    """A statement without comments and whitespace, which differ between versions. None of ours
    contains quotes, so no text that SQLite parses differently can turn into one of ours."""
    return _AROUND_SIGNS.sub(r"\1", _BLANK.sub(" ", _COMMENT.sub(" ", statement))).strip(" ;")


RUN_TABLES = frozenset(
    map(
        _bare,
        (
            *statements_of(SCHEMA),
            *statements_of(EXCHANGE_SCHEMA),
            TRIAL_BY_KEY,
            *statements_of(EARLIER_TABLES),
        ),
    )
)
INDEX_TABLES = frozenset(map(_bare, statements_of(INDEX_SCHEMA)))


def foreign_name(connection: sqlite3.Connection, tables: frozenset[str]) -> str | None:
    """The first table, view, index or trigger that paraval did not create; None if there is none.

    A view could produce endless rows out of nothing.
    """
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        by_itself = kind == "index" and sql is None and str(name).startswith("sqlite_autoindex_")
        if not by_itself and _bare(str(sql)) not in tables:
            return str(name)
    return None
