"""A run's info: its sessions and times, and what its attempts spent, from their stored content."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from paraval.codec import hints_of, object_reader
from paraval.records import AttemptResult, Outcome, RunInfo, Spend
from paraval.store.encoding import (
    checked_text,
    content_of,
    required_number,
    required_time,
    required_whole,
)
from paraval.store.folder import is_run_id
from paraval.store.plan_rows import read_about
from paraval.store.schema import GROWS, NO_ATTEMPT


def read_info(connection: sqlite3.Connection, folder: Path, *, worked_on: bool) -> RunInfo:
    """The run's info, from any connection to its file."""
    run_id, suite, source, parallel, seed, fail_under, trials, digest = connection.execute(
        "SELECT id, suite, source, parallel, seed, fail_under, trials, plan_digest FROM run"
    ).fetchone()
    grows = digest == GROWS
    started_at, sessions = connection.execute(
        "SELECT min(started_at), count(*) FROM session"
    ).fetchone()
    ended_at, reason = connection.execute(
        "SELECT ended_at, reason FROM session ORDER BY number DESC LIMIT 1"
    ).fetchone()
    (done,) = connection.execute("SELECT count(*) FROM trial JOIN result USING (key)").fetchone()
    # In a growing plan, only the engine knows whether more trials would have been added.
    unfinished = not worked_on and (done < trials or (grows and reason != "finished"))
    # Only a resume can change a plan, and finding what it dropped is slow in a large run. In a
    # growing plan, a trial that was not added again yet is not dropped.
    may_have_dropped = sessions > 1 and not (grows and worked_on)
    dropped = _dropped(connection) if may_have_dropped else Sum()
    held_back = unfinished and reason == "held_back"
    info = RunInfo(
        id=run_id,
        suite=suite,
        source=source,
        folder=str(folder),
        trials=trials,
        parallel=parallel,
        seed=int(seed),
        started_at=started_at,
        ended_at=None if worked_on else ended_at,
        wall_s=_wall_s(connection),
        resumed=sessions - 1,
        interrupted=unfinished and not held_back,
        held_back=held_back,
        fail_under=fail_under,
        done=done,
        dropped_usd=dropped.usd,
        dropped_unknown=dropped.is_partly_unknown,
        running=worked_on,
        **read_about(connection),
    )
    return checked_info(info)


def checked_info(info: RunInfo) -> RunInfo:
    """The same, if it can be displayed; ValueError names the problem."""
    if not is_run_id(info.id):
        raise ValueError(f"{info.id!r:.60} where a run's id should be")
    if info.regraded_from is not None and not is_run_id(info.regraded_from):
        raise ValueError(f"{info.regraded_from!r:.60} where a run's id should be")
    for text in (info.suite, info.source or "", *(one.message for one in info.notices)):
        checked_text(text)
    for number in (info.trials, info.parallel, info.seed, info.resumed, info.done):
        required_whole(number)
    for at in (info.started_at, info.ended_at or 0.0):
        required_time(at)
    for amount in (info.wall_s, info.dropped_usd, info.fail_under or 0.0):
        required_number(amount)
    return info


def _dropped(connection: sqlite3.Connection) -> Sum:
    """Spending on trials that are no longer in the plan."""
    told = sum_of(content for (content,) in connection.execute(_DROPPED))
    (is_untold,) = connection.execute(_DROPPED_UNTOLD).fetchone()
    return told._replace(is_partly_unknown=told.is_partly_unknown or bool(is_untold))


def _wall_s(connection: sqlite3.Connection) -> float:
    """Wall time measured by the sessions; for one without it, from its start to its last sign of
    life."""
    total = 0.0
    for number, started_at, wall_s in connection.execute(
        "SELECT number, started_at, wall_s FROM session"
    ).fetchall():
        total += (
            required_number(wall_s)
            if wall_s is not None
            else last_sign_of_life(connection, number) - required_time(started_at)
        )
    return required_number(total)


def last_sign_of_life(connection: sqlite3.Connection, session: int) -> float:
    (at,) = connection.execute(
        "SELECT max(at) FROM ("
        " SELECT started_at AS at FROM session WHERE number = :session UNION ALL"
        " SELECT max(coalesce(ended_at, started_at)) FROM attempt WHERE session = :session)",
        {"session": session},
    ).fetchone()
    return required_time(at)


# ---- spending


class Spent(NamedTuple):
    """Spending on the target, and on judges; None if unknown."""

    target: Spend | None = None
    judging: Spend | None = None


def spent_in(content: str) -> Spent:
    """An attempt's spending from its stored content; fast enough for very many."""
    if '"cost_usd"' not in content:
        return Spent()
    told = _SPENT.validate_json(content)
    if told.get("spend") is None:  # Stored before it existed, or only reported in the output.
        told["spend"] = AttemptResult(outcome=Outcome.PASSED, **content_of(content)).told_spend
    return Spent(told["spend"], told.get("judging"))


def known_usd(spent: Spent) -> float:
    """The known spending; 0 if no price is known."""
    costs = (spend.known_usd for spend in spent if spend is not None)
    return math.fsum(cost for cost in costs if math.isfinite(cost))


def whole_usd(spent: Spent) -> float | None:
    """The spending if all of it is known."""
    costs = [spend.cost_usd for spend in spent if spend is not None]
    if not costs or any(cost is None or not math.isfinite(cost) for cost in costs):
        return None
    return known_usd(spent)


def tokens_of(spend: Spend | None) -> float | None:
    """Input plus output tokens; None if neither is known."""
    told = [] if spend is None else [spend.usage.get(name) for name in _TOKENS]
    amounts = [amount for amount in told if amount is not None and math.isfinite(amount)]
    return math.fsum(amounts) if amounts else None


class Sum(NamedTuple):
    """Total spending of attempts, judges included: the known part, and whether it is complete."""

    usd: float = 0.0
    is_partly_unknown: bool = False


def sum_of(contents: Iterable[str | None]) -> Sum:
    """From the attempts' stored contents; None for one that never ended."""
    spends: list[Spend] = []
    unended = False
    for content in contents:
        unended = unended or content is None
        spends += [spend for spend in spent_in(content or "") if spend is not None]
    unknown = any(spend.cost_usd is None for spend in spends) or (unended and bool(spends))
    return Sum(math.fsum(known_usd(Spent(spend)) for spend in spends), unknown)


def is_from_cache(spend: Spend | None) -> bool:
    """Whether every answer came from the cache, at no time or cost."""
    return spend is not None and spend.cached > 0 and spend.calls == 0


def is_carried_over(spent: Spent) -> bool:
    """Whether only a judge was called, on an answer that an earlier attempt had paid for."""
    return spent.judging is not None and spent.target == Spend()


_TOKENS = ("input_tokens", "output_tokens")
_SPENT = object_reader({name: hints_of(AttemptResult)[name] for name in ("spend", "judging")})

_DROPPED = f"""
    SELECT content FROM attempt
    WHERE number > {NO_ATTEMPT} AND NOT EXISTS (SELECT 1 FROM trial WHERE trial.key = attempt.key)
"""  # noqa: S608 - our own number

# Attempts that never ended count as costs only in a run whose attempts report costs.
_DROPPED_UNTOLD = f"""
    SELECT EXISTS ({_DROPPED} AND ended_at IS NULL)
        AND EXISTS (SELECT 1 FROM attempt WHERE instr(content, '"cost_usd"'))
"""  # noqa: S608 - our own text
