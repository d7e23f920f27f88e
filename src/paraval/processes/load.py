"""What running commands take of the machine, from one pass over the process table."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from paraval.processes.links import KeeperSeen, Link
from paraval.processes.niceness import be_nice
from paraval.processes.tree import Entry, below, by_parent, process_table


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLoad:
    """What the process tree of a command takes."""

    memory_bytes: int
    """What its processes hold; what several share counts for each of them."""
    cpu_s: float
    """So far."""


def look_at(links: Iterable[Link]) -> dict[int, TreeLoad]:
    """By tag; each link remembers the most memory that was seen. Empty where there is no /proc."""
    seen = [(link, link.keeper) for link in links if link.tag is not None]
    running = [(link, keeper) for link, keeper in seen if keeper and not link.ended.done()]
    if not running or sys.platform != "linux":
        return {}
    table = process_table()
    children = by_parent(table)
    loads: dict[int, TreeLoad] = {}
    for link, keeper in running:
        entries = below([keeper.pid], children)
        load = _load(entries, table.get(keeper.pid), keeper)
        link.most_memory = max(link.most_memory, load.memory_bytes)
        _be_nice(link, entries)
        assert link.tag is not None
        loads[link.tag] = _sum(loads.get(link.tag), load)
    return loads


def _load(entries: list[Entry], watcher: Entry | None, keeper: KeeperSeen) -> TreeLoad:
    ticks = sum(entry.cpu_ticks + entry.reaped_ticks for entry in entries)
    # What ended below the keeper itself; it served others before.
    reaped = watcher.reaped_ticks / os.sysconf("SC_CLK_TCK") if watcher is not None else 0.0
    return TreeLoad(
        memory_bytes=sum(entry.rss_pages for entry in entries) * os.sysconf("SC_PAGE_SIZE"),
        cpu_s=ticks / os.sysconf("SC_CLK_TCK") + max(0.0, reaped - keeper.spent_before),
    )


def _sum(one: TreeLoad | None, other: TreeLoad) -> TreeLoad:
    if one is None:
        return other
    return TreeLoad(
        memory_bytes=one.memory_bytes + other.memory_bytes, cpu_s=one.cpu_s + other.cpu_s
    )


def _be_nice(link: Link, entries: list[Entry]) -> None:
    if not link.nice:
        return
    for entry in entries:
        leads = entry.session == entry.pid and (entry.pid, entry.start_time) not in link.niced
        if leads and be_nice(entry.pid, link.nice):
            link.niced.add((entry.pid, entry.start_time))
