"""How this machine can end process trees and enforce limits: for `doctor`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path

from paraval.dataclass import dataclass
from paraval.processes.cgroups import PREFIX, CgroupDir, find_places
from paraval.processes.tree import HAS_SUBREAPER


class Means(StrEnum):
    CGROUP_V2 = "cgroup v2"
    CGROUP_V1 = "cgroup v1"
    SUBREAPER = "subreaper"
    """Searches the process table for all descendants of a command."""
    PROCESS_GROUP = "process group"
    """A process that leaves the command's group is not found again."""
    NONE = "none"
    """The limit is not enforced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """The method for each limit, as shown to users."""

    kill: Means
    memory: Means
    processes: Means


def limits_enforced() -> Enforcement:
    """Determined by trying: a group is created and removed for each."""
    places = find_places()
    table = Means.SUBREAPER if HAS_SUBREAPER else Means.PROCESS_GROUP
    return Enforcement(
        kill=_means(places.kill, table),
        memory=_means(places.memory, Means.NONE),
        processes=_means(places.processes, Means.NONE),
    )


def _means(place: CgroupDir | None, otherwise: Means) -> Means:
    if place is None:
        return otherwise
    # Not named like a warden's groups, which other wardens would remove.
    trial = Path(place.folder, f"{PREFIX}trial-{os.getpid()}")
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return otherwise
    return Means.CGROUP_V2 if place.version == 2 else Means.CGROUP_V1
