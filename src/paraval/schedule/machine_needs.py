"""What a trial takes of the machine: as its target says, else as earlier runs saw it.

Of what neither tells, the gate finds out while it runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

from paraval.records import ChatTarget, FunctionTarget, Trial
from paraval.schedule.estimates import Observation, variant_key
from paraval.schedule.messages import Work
from paraval.schedule.seen import high_of

MEMORY_MARGIN = 1.1
"""What is reserved over what such attempts held before."""


def of_the_target(trial: Trial) -> Hashable:
    """Trials of a variant share their target, which their plan keeps."""
    return id(trial.target)


class MachineNeeds:
    """Of the trials of a suite."""

    def __init__(
        self,
        observations: Iterable[Observation],
        kind_of: Callable[[Trial], Hashable] = of_the_target,
    ) -> None:
        """`kind_of`: trials of which it says the same use alike."""
        self._kind_of = kind_of
        self._kinds: dict[Hashable, int] = {}
        self._seen: dict[Hashable, Observation] = {}
        memory: dict[Hashable, list[int]] = defaultdict(list)
        cores: dict[Hashable, list[float]] = defaultdict(list)
        for one in observations:
            variant = variant_key(one.variant)
            self._seen[one.case_id, variant] = one
            if one.memory_bytes is not None:
                memory[variant].append(one.memory_bytes)
            if one.cores is not None:
                cores[variant].append(one.cores)
        self._memory = {variant: high_of(peaks) for variant, peaks in memory.items()}
        self._cores = {variant: sum(each) / len(each) for variant, each in cores.items()}

    def fill_in(self, work: Work, trial: Trial) -> Work:
        """The work with what its trial takes."""
        target = trial.target
        kind = self._kinds.setdefault(self._kind_of(trial), len(self._kinds))
        work = work._replace(kind=kind)
        if isinstance(target, ChatTarget):
            return work._replace(memory_bytes=0, cores=0.0)
        if isinstance(target, FunctionTarget):
            # In the engine's own process nobody can tell whose memory is whose.
            return self._as_seen(work, trial) if target.isolate else work._replace(memory_bytes=0)
        seen, said = self._as_seen(work, trial), target.limits
        memory = seen.memory_bytes if said.memory_bytes is None else said.memory_bytes
        return seen._replace(memory_bytes=memory, cpu=said.cpu)

    def _as_seen(self, work: Work, trial: Trial) -> Work:
        """By the same case in the same variant, else by the variant."""
        variant = variant_key(trial.variant)
        memory, cores = self._memory.get(variant), self._cores.get(variant)
        same = self._seen.get((trial.case.id, variant))
        if same is not None:
            memory = memory if same.memory_bytes is None else same.memory_bytes
            cores = cores if same.cores is None else same.cores
        reserved = None if memory is None else int(MEMORY_MARGIN * memory)
        return work._replace(memory_bytes=reserved, cores=cores)
